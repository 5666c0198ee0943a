"""Rows: sort and top_k.

Sorting by one or several keys in a recognised order uses the runtime's TopK, which is stable.  Any other comparator is
applied to all pairs of a short axis, or in a network of compare-and-exchange steps on a long one.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.exporters.stablehlo import Block, Op, Type, Value

from .elementwise import order_key
from .graph import BOOL, I32, I64, U64, Graph, Tensor
from .lowering import Lowering, Pair, complex_row, each, row
from .shapes import iota


@dataclass(frozen=True)
class Key:
    """Sort by this operand.  total: floats in total order, where zeros and NaNs with different signs differ."""
    operand: int
    descending: bool
    total: bool


# ---- what a comparator does ------------------------------------------------------------------------------------------

def keys_of(block: Block) -> list[Key] | None:
    """The keys of a lexicographic comparator, the most significant first; None for any other."""
    return _keys(block, block.outputs[0])


def _keys(block: Block, v: Value) -> list[Key] | None:
    op = v.op
    if op is None:
        return None
    if op.name == "compare":
        key = _key(block, op, {"LT": False, "GT": True})
        return None if key is None else [key]
    if op.name == "or":
        return _lexicographic(block, op.operands) or _lexicographic(block, op.operands[::-1])
    if op.name == "select":                           # select(equal, rest, first)
        equal, rest, first = op.operands
        return _joined(_keys(block, first), _equal(block, equal), _keys(block, rest))
    return None


def _lexicographic(block: Block, operands: Sequence[Value]) -> list[Key] | None:
    """first < or (first == and rest <)"""
    first, both = operands
    if both.op is None or both.op.name != "and":
        return None
    for equal, rest in (both.op.operands, both.op.operands[::-1]):
        if (found := _joined(_keys(block, first), _equal(block, equal), _keys(block, rest))) is not None:
            return found
    return None


def _joined(first: list[Key] | None, equal: int | None, rest: list[Key] | None) -> list[Key] | None:
    if first is None or rest is None or len(first) != 1 or first[0].operand != equal:
        return None
    return [*first, *rest]


def _equal(block: Block, v: Value) -> int | None:
    if v.op is None or v.op.name != "compare" or v.op.attrs["comparison_direction"] != "EQ":
        return None
    key = _key(block, v.op, {"EQ": False})
    return None if key is None else key.operand


def _key(block: Block, op: Op, directions: dict[str, bool]) -> Key | None:
    descending = directions.get(op.attrs["comparison_direction"])
    (a, plain_a), (b, plain_b) = (_stripped(v) for v in op.operands)
    if descending is None or a not in block.args or b not in block.args:
        return None
    i, j = block.args.index(a), block.args.index(b)
    if i // 2 != j // 2 or i == j or plain_a != plain_b:
        return None
    total = op.attrs.get("compare_type") == "TOTALORDER" and plain_a and a.dtype.kind not in "iub"
    return Key(i // 2, descending if i < j else not descending, total)


def _stripped(v: Value) -> tuple[Value, bool]:
    """What is compared, without the steps that make all zeros and all NaNs equal; and whether there were none."""
    plain = True
    while v.op is not None and v.op.name == "select":
        p, x, y = v.op.operands
        if p.op is None or p.op.name != "compare" or x.constant is None:
            break
        v, plain = y, False
    return v, plain


# ---- rows ------------------------------------------------------------------------------------------------------------

@row("sort")
def _sort(c: Lowering, op: Op, *xs: Any) -> list[Any]:
    g, axis, rank = c.g, op.attrs["dimension"], op.results[0].rank
    n = op.results[0].shape[axis] if rank else 1
    if n <= 1 or 0 in op.results[0].shape:
        return list(xs)
    order = [*(i for i in range(rank) if i != axis), axis]
    rows = [each(lambda t: g.full(g.transpose(t, order)), x) for x in xs]
    keys = None if any(isinstance(x, Pair) for x in xs) else keys_of(op.regions[0])
    if keys is not None:
        index = _by_keys(g, [rows[k.operand] for k in keys], keys)
        found = [g("GatherElements", x, index, shape=x.shape, axis=rank - 1) for x in rows]
    else:
        found = _by_ranks(c, op.regions[0], rows, n) if n <= 256 else _by_network(c, op.regions[0], rows, n)
    back = list(np.argsort(order))
    return [each(lambda t: g.transpose(t, back), f) for f in found]


complex_row("sort")(_sort)


def _by_keys(g: Graph, keys: Sequence[Tensor], how: Sequence[Key]) -> Tensor:
    """The stable order, from the least significant key to the most significant one."""
    index = None
    for x, k in zip(reversed(keys), reversed(how)):
        for part in _comparable(g, x, k.total):
            moved = part if index is None else g("GatherElements", part, index, shape=part.shape, axis=part.rank - 1)
            order = _top(g, moved, moved.shape[-1], k.descending)
            index = order if index is None else g("GatherElements", index, order, shape=order.shape, axis=order.rank - 1)
    assert index is not None
    return index


def _comparable(g: Graph, x: Tensor, total: bool) -> list[Tensor]:
    """Tensors that TopK orders like x, the least significant first."""
    if x.dtype.kind not in "iub":
        nan, zero = g("IsNaN", x), g.like(0, x)
        if not total and g.opset < 26:                      # without BitCast, two keys are cheaper than one
            return [g.where(nan, zero, x), g.cast(nan, I32)]
        return [order_key(g, x if total else g.where(nan, g.like(np.nan, x), g.where(g("Equal", x, zero), zero, x)))]
    if x.dtype == BOOL:
        return [g.cast(x, I32)]
    if x.dtype == U64:
        return [g.cast(g("BitwiseXor", x, g.constant(np.asarray(1 << 63, np.uint64))), I64)]
    return [x]


def _top(g: Graph, x: Tensor, k: int, descending: bool) -> Tensor:
    """Indices of the k first elements of the last axis; equal ones in their order."""
    from .kernels import compute_dtype
    wide = compute_dtype("TopK", x.dtype, g.opset) or x.dtype
    t = Type((*x.shape[:-1], k), wide)
    return g.several("TopK", [g.cast(x, wide), g.ints(k)], [t, t.with_dtype(I64)], axis=-1, largest=int(descending),
                     sorted=1)[1]


@row("chlo.top_k")
def _top_k(c: Lowering, op: Op, x: Tensor) -> list[Tensor]:
    """The k largest in total order: NaN is above all, and -NaN (which only BitCast of opset 26 can tell) below."""
    g, k = c.g, int(op.attrs["k"])
    if 0 in op.results[0].shape:
        return [g.broadcast(g.constant(np.zeros((), r.dtype)), (), r.shape) for r in op.results]
    x = g.full(x)
    parts = _comparable(g, x, g.opset >= 26 and x.dtype.kind not in "iub")
    if len(parts) == 1:
        index = _top(g, parts[0], k, True)
    else:
        g.notes["before opset 26, top_k takes every NaN for the largest number; XLA takes those with a sign for the smallest"] \
            = None
        index = g.slice(_by_keys(g, [x], [Key(0, True, False)]), [0] * x.rank, (*x.shape[:-1], k))
    values = g("GatherElements", x, index, shape=index.shape, axis=x.rank - 1)
    return [values, g.cast(index, op.results[1].dtype)]


# ---- any comparator --------------------------------------------------------------------------------------------------

def _compared(c: Lowering, block: Block, xs: Sequence[Any], ys: Sequence[Any], shape: Sequence[int]) -> Tensor:
    pairs = [v for x, y in zip(xs, ys) for v in (x, y)]
    return c.vectorised(block, pairs, shape)[0]


def _by_ranks(c: Lowering, block: Block, rows: Sequence[Any], n: int) -> list[Any]:
    """The rank of an element: how many others come before it."""
    g, lead = c.g, rows[0].shape[:-1]
    shape, rank = (*lead, n, n), len(lead) + 1
    a = [each(lambda t: g.broadcast(t, range(rank), shape), x) for x in rows]                   # element i of (i, j)
    b = [each(lambda t: g.broadcast(t, [*range(rank - 1), rank], shape), x) for x in rows]      # element j
    before = _compared(c, block, b, a, shape)
    not_after = g("Not", _compared(c, block, a, b, shape))
    earlier = g.constant(np.arange(n)[None, :] < np.arange(n)[:, None])
    earlier = g.broadcast(earlier, [rank - 1, rank], shape)
    counted = g.cast(g("Or", before, g("And", not_after, earlier)), I64)
    ranks = g("ReduceSum", counted, g.ints(rank), shape=(*lead, n), keepdims=0)
    return [each(lambda t: g("ScatterElements", t, ranks, t, shape=t.shape, kernel="ScatterElements:none", cast=(0, 2),
                             axis=rank - 1), x) for x in rows]


def _by_network(c: Lowering, block: Block, rows: Sequence[Any], n: int) -> list[Any]:
    """Bitonic sorting network; the place of each element is the last key, which makes it stable."""
    g, lead = c.g, rows[0].shape[:-1]
    size, axis = 1 << (n - 1).bit_length(), len(lead)
    place = iota(g, (*lead, size), axis, I64)
    parts = [*(each(lambda t: _filled(g, t, size), x) for x in rows), g.full(place)]
    k = 2
    while k <= size:
        j = k // 2
        while j:
            parts = _exchange(c, block, parts, n, k, j)
            j //= 2
        k *= 2
    return [each(lambda t: g.slice(t, [0] * (axis + 1), (*lead, n)), p) for p in parts[:-1]]


def _filled(g: Graph, t: Tensor, size: int) -> Tensor:
    return g.pad(t, [0] * t.rank, [*[0] * (t.rank - 1), size - t.shape[-1]], g.like(0, t))


def _exchange(c: Lowering, block: Block, parts: Sequence[Any], n: int, k: int, j: int) -> list[Any]:
    """One step: elements j apart, ascending or descending by bit k of their place.  Filling goes last."""
    g, (*lead, size) = c.g, parts[-1].shape
    half = (*lead, size // (2 * j), 1, j)

    def side(t: Tensor, i: int) -> Tensor:
        split = g.reshape(t, (*lead, size // (2 * j), 2, j))
        starts, limits = [0] * split.rank, list(split.shape)
        starts[-2], limits[-2] = i, i + 1
        return g.full(g.slice(split, starts, limits))
    low = [each(lambda t: side(t, 0), p) for p in parts]
    high = [each(lambda t: side(t, 1), p) for p in parts]
    first = _compared(c, block, low[:-1], high[:-1], half)
    second = _compared(c, block, high[:-1], low[:-1], half)
    filling = g.like(n, low[-1])
    both = g("And", g("Less", low[-1], filling), g("Less", high[-1], filling))
    by_place = g("Less", low[-1], high[-1])
    in_order = g("Or", g("And", both, g("Or", first, g("And", g("Not", second), by_place))),
                 g("And", g("Not", both), by_place))
    up = ((np.arange(size // (2 * j)) * 2 * j) & k == 0).reshape(-1, 1, 1)
    keep = g("Equal", in_order, g.broadcast(g.constant(up), range(len(lead), len(lead) + 3), half))

    def joined(a: Tensor, b: Tensor) -> Tensor:
        pair = g.concat([g.full(g.where(keep, a, b)), g.full(g.where(keep, b, a))], len(half) - 2)
        return g.reshape(pair, (*lead, size))
    return [each(joined, a, b) for a, b in zip(low, high)]


__all__ = ["keys_of"]
