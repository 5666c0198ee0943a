"""Rows of operations that move elements."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aot.exporters.stablehlo import Op

from .complex_numbers import both
from .graph import Tensor
from .lowering import Lowering, row


@row("reshape")
def reshape(lower: Lowering, op: Op, x: Any) -> Any:
    """A scalar inside of a vectorised region stays what it is."""
    return both(lambda t: t if t.size != _size(op.shape) else lower.g.reshape(t, op.shape), x)


def _size(shape: Sequence[int]) -> int: return int(np.prod(shape, dtype=np.int64))


@row("transpose")
def transpose(lower: Lowering, op: Op, x: Any) -> Any:
    return both(lambda t: lower.g.transpose(t, op.attrs["permutation"]), x)


@row("broadcast_in_dim")
def broadcast_in_dim(lower: Lowering, op: Op, x: Any) -> Any:
    if not op.shape:
        return x
    return both(lambda t: lower.g.broadcast_in_dim(t, op.shape, op.attrs["broadcast_dimensions"]), x)


@row("slice")
def slice_(lower: Lowering, op: Op, x: Any) -> Any:
    return both(lambda t: lower.g.slice(t, *(op.attrs[k] for k in ("start_indices", "limit_indices", "strides"))), x)


@row("concatenate")
def concatenate(lower: Lowering, op: Op, *xs: Any) -> Any:
    return both(lambda *ts: lower.g.concatenate(ts, op.attrs["dimension"]), *xs)


@row("pad")
def pad(lower: Lowering, op: Op, x: Any, value: Any) -> Any:
    edges = [op.attrs[k] for k in ("edge_padding_low", "edge_padding_high", "interior_padding")]
    return both(lambda t, v: lower.g.pad(t, v, *edges), x, value)


@row("reverse")
def reverse(lower: Lowering, op: Op, x: Any) -> Any:
    return both(lambda t: lower.g.reverse(t, op.attrs["dimensions"]), x)


@row("iota")
def iota(lower: Lowering, op: Op) -> Any:
    g, axis = lower.g, op.attrs["iota_dimension"]
    return g.cast_any(g.iota(op.shape, axis, np.int64), op.dtype)


# ---- dynamic positions ------------------------------------------------------------------------------------------------

def index(g: Any, x: Tensor, largest: int) -> Tensor:
    """An integer of any type, clamped to 0 ... largest, as int32."""
    if x.dtype.itemsize < 4:
        x = g.cast(x, np.int32)
    x = g.maximum(x, g.like(x, 0)) if x.dtype.kind == "i" else x
    return g.cast(g.minimum(x, g.like(x, largest)), np.int32)


def position(g: Any, starts: Sequence[Tensor], shape: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """Where a part of these sizes begins, clamped so that it is inside: int32[rank]."""
    clamped = [index(g, s, n - size) for s, n, size in zip(starts, shape, sizes)]
    return g.concatenate([g.reshape(s, (1,)) for s in clamped], 0)


@row("dynamic_slice")
def dynamic_slice(lower: Lowering, op: Op, x: Any, *starts: Tensor) -> Any:
    if not starts:
        return x
    at = position(lower.g, starts, x.shape, op.shape)
    return both(lambda t: lower.g.dynamic_slice(t, at, op.shape), x)


@row("dynamic_update_slice")
def dynamic_update_slice(lower: Lowering, op: Op, x: Any, update: Any, *starts: Tensor) -> Any:
    if not starts or update.size == 0:
        return x if starts else update
    at = position(lower.g, starts, x.shape, update.shape)
    return both(lambda t, u: lower.g.dynamic_update_slice(t, u, at), x, update)


