"""Rows: operations that only move elements, for real numbers and for the parts of complex ones."""
from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from aot.exporters.stablehlo import Op

from .graph import BOOL, I64, Graph, Inexpressible, Tensor
from .lowering import Lowering, row, structural


@structural("reshape")
def _reshape(c: Lowering, op: Op, x: Tensor) -> Tensor:
    return c.g.reshape(x, op.shape)


@structural("broadcast_in_dim")
def _broadcast(c: Lowering, op: Op, x: Tensor) -> Tensor:
    return c.g.broadcast(x, op.attrs["broadcast_dimensions"], op.shape)


@structural("transpose")
def _transpose(c: Lowering, op: Op, x: Tensor) -> Tensor:
    return c.g.transpose(x, op.attrs["permutation"])


@structural("slice")
def _slice(c: Lowering, op: Op, x: Tensor) -> Tensor:
    return c.g.slice(x, op.attrs["start_indices"], op.attrs["limit_indices"], op.attrs["strides"])


@structural("concatenate")
def _concatenate(c: Lowering, op: Op, *xs: Tensor) -> Tensor:
    return c.g.concat(xs, op.attrs["dimension"])


@structural("reverse")
def _reverse(c: Lowering, op: Op, x: Tensor) -> Tensor:
    return reverse(c.g, x, op.attrs["dimensions"])


def reverse(g: Graph, x: Tensor, axes: Sequence[int]) -> Tensor:
    axes = [a for a in axes if x.shape[a] > 1]
    if not axes or x.stored == () or 0 in x.shape:
        return x
    n, x = len(axes), g.full(x)
    return g.moved("Slice", x, x.shape, g.ints(*[-1] * n), g.ints(*[-(1 << 62)] * n), g.ints(*axes), g.ints(*[-1] * n))


@structural("pad")
def _pad(c: Lowering, op: Op, x: Tensor, value: Tensor) -> Tensor:
    a = op.attrs
    return c.g.pad(spaced(c.g, x, a["interior_padding"], value), a["edge_padding_low"], a["edge_padding_high"], value)


def spaced(g: Graph, x: Tensor, interior: Sequence[int], value: Tensor) -> Tensor:
    """Interior padding: each element becomes the first of a group of 1 + n, and the last group is cut."""
    for axis, n in enumerate(interior):
        size = x.shape[axis]
        if n and size > 1:
            split = g.reshape(x, (*x.shape[:axis + 1], 1, *x.shape[axis + 1:]))
            low = [0] * split.rank
            padded = g.pad(split, low, [n if i == axis + 1 else 0 for i in range(split.rank)], value)
            merged = g.reshape(padded, (*x.shape[:axis], size * (n + 1), *x.shape[axis + 1:]))
            limits = [(size - 1) * (n + 1) + 1 if i == axis else m for i, m in enumerate(merged.shape)]
            x = g.slice(merged, [0] * merged.rank, limits)
    return x


@row("iota")
def _iota(c: Lowering, op: Op) -> Tensor:
    return iota(c.g, op.shape, op.attrs["iota_dimension"], op.dtype)


def iota(g: Graph, shape: Sequence[int], axis: int, dtype: np.dtype) -> Tensor:
    """Stored as the one axis along which it changes."""
    stored = [shape[axis], *[1] * (len(shape) - axis - 1)]
    with np.errstate(all="ignore"):
        values = np.arange(shape[axis]).astype(dtype)
    return Tensor(None, shape, np.dtype(dtype), stored, values.reshape(stored))


# ---- slices at computed places ---------------------------------------------------------------------------------------

def start_vector(g: Graph, starts: Sequence[Tensor], shape: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """The starts as int64, clamped so that the slice lies inside."""
    limits = [n - m for n, m in zip(shape, sizes)]
    known = [s.numpy() for s in starts]
    if all(k is not None for k in known):
        return g.ints(*(min(max(int(k), 0), n) for k, n in zip(known, limits)))  # type: ignore[arg-type]
    parts = []
    for s, n in zip(starts, limits):
        if s.dtype == np.uint64:                                        # may be above the largest int64
            s = g("Min", s, g.like(n, s))
        parts.append(g.reshape(g.cast(s, I64), (1,)))
    vector = g.concat([g.full(p) for p in parts], 0)
    return g("Max", g("Min", vector, g.ints(*limits)), g.constant(np.int64(0)))


@structural("dynamic_slice")
def _dynamic_slice(c: Lowering, op: Op, x: Tensor, *starts: Tensor) -> Tensor:
    g, sizes = c.g, op.attrs["slice_sizes"]
    if not x.rank or tuple(sizes) == x.shape:
        return x
    if x.stored == ():
        return Tensor(x.name, op.shape, x.dtype, (), x.array)
    moving = [i for i in range(x.rank) if sizes[i] != x.shape[i]]
    first = start_vector(g, [starts[i] for i in moving], [x.shape[i] for i in moving], [sizes[i] for i in moving])
    last = g("Add", first, g.ints(*(sizes[i] for i in moving)))
    return g.moved("Slice", g.full(x), op.shape, g.full(first), g.full(last), g.ints(*moving))


@structural("dynamic_update_slice")
def _dynamic_update_slice(c: Lowering, op: Op, x: Tensor, update: Tensor, *starts: Tensor) -> Tensor:
    """Rows by ScatterND along the leading axes that move; anything else by linear indices."""
    g = c.g
    if not x.rank or update.shape == x.shape:
        return update
    if 0 in update.shape:
        return x
    moving = [i for i in range(x.rank) if update.shape[i] != x.shape[i]]
    first = start_vector(g, [starts[i] for i in moving], [x.shape[i] for i in moving], [update.shape[i] for i in moving])
    if moving == [0]:
        offsets = g.constant(np.arange(update.shape[0], dtype=np.int64).reshape(-1, 1))
        index = g.full(g("Add", g.broadcast(first, (1,), (update.shape[0], 1)), offsets))
        return g("ScatterND", x, index, update, shape=x.shape, kernel="ScatterND:none", cast=(0, 2))
    strides = [math.prod(x.shape[i + 1:]) for i in range(x.rank)]
    base = sum_of(g, [g("Mul", g.reshape(g.slice(g.full(first), [j], [j + 1]), ()), g.constant(np.int64(strides[i])))
                      for j, i in enumerate(moving)])
    index = linear_offsets(update.shape, strides)
    flat = g("Add", g.constant(index.reshape(-1)), base)
    made = g("ScatterElements", g.reshape(x, (x.size,)), g.full(flat), g.reshape(update, (update.size,)), shape=(x.size,),
             kernel="ScatterElements:none", cast=(0, 2), axis=0)
    return g.reshape(made, x.shape)


def sum_of(g: Graph, parts: Sequence[Tensor]) -> Tensor:
    found = parts[0]
    for p in parts[1:]:
        found = g("Add", found, p)
    return found


def linear_offsets(shape: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """Row-major positions of a block of this shape inside an array with these strides (in elements)."""
    found = np.zeros(tuple(shape), np.int64)
    for axis, (n, s) in enumerate(zip(shape, strides)):
        found += (np.arange(n, dtype=np.int64) * s).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return found


# ---- one device ------------------------------------------------------------------------------------------------------

@structural("all_reduce", "all_gather", "all_to_all", "collective_broadcast", "collective_permute", "reduce_scatter")
def _alone(c: Lowering, op: Op, *xs: Tensor) -> list[Tensor]:
    """On one device there is nothing to exchange."""
    if c.partitions != 1:
        raise Inexpressible("it communicates between devices", "export a program for one device")
    if any(x.shape != r.shape for x, r in zip(xs, op.results)):
        raise Inexpressible("it communicates between devices", "export a program for one device")
    return list(xs)


@row("partition_id", "replica_id")
def _device_number(c: Lowering, op: Op) -> Tensor:
    if c.partitions != 1:
        raise Inexpressible("it asks for the device that it runs on", "export a program for one device")
    return c.g.constant(np.zeros(op.shape, op.dtype))


@row("get_dimension_size")
def _dimension_size(c: Lowering, op: Op, x: Tensor) -> Tensor:
    return c.g.constant(np.asarray(x.shape[op.attrs["dimension"]], op.dtype))


__all__ = ["BOOL", "iota", "linear_offsets", "reverse", "spaced", "start_vector", "sum_of"]
