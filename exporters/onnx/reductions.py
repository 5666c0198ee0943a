"""Rows: reduce, reduce_window and its gradient."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aot.exporters.stablehlo import Block, Op

from .elementwise import convert
from .graph import BOOL, F32, I64, U8, Graph, Inexpressible, Tensor
from .kernels import compute_dtype
from .lowering import REDUCERS, Lowering, Pair, complex_row, each, part_dtype, reducer, row
from .shapes import spaced

_DIRECT = {"add": "ReduceSum", "multiply": "ReduceProd", "maximum": "ReduceMax", "minimum": "ReduceMin"}
_PAIRWISE = {"add": ("Add", "Or"), "multiply": ("Mul", "And"), "maximum": ("Max", "Or"), "minimum": ("Min", "And"),
             "and": ("BitwiseAnd", "And"), "or": ("BitwiseOr", "Or"), "xor": ("BitwiseXor", "Xor")}


def combine(g: Graph, kind: str, x: Tensor, y: Tensor) -> Tensor:
    """One step of a known reduction."""
    return g(_PAIRWISE[kind][1 if x.dtype == BOOL else 0], x, y)


def is_neutral(kind: str, x: Tensor) -> bool:
    """Whether a tensor is known to be the neutral element of a reduction."""
    value = x.scalar()
    return value is not None and bool(np.asarray(REDUCERS[kind](x.dtype)).astype(x.dtype) == value)


# ---- reduce ----------------------------------------------------------------------------------------------------------

@row("reduce")
def _reduce(c: Lowering, op: Op, *xs: Any) -> list[Any]:
    n = len(op.results)
    operands, inits, axes = xs[:n], xs[n:], op.attrs["dimensions"]
    kind = reducer(op.regions[0]) if n == 1 else ""
    if 0 in operands[0].shape or not axes:
        return [c.spread(i, op.shape) if axes else x for x, i in zip(operands, inits)]
    if kind and not isinstance(operands[0], Pair):
        found = reduce_known(c.g, kind, operands[0], axes, op.shape)
        if found is not None:
            return [found if is_neutral(kind, inits[0]) else combine(c.g, kind, found, inits[0])]
    return _reduce_any(c, op.regions[0], operands, inits, axes, op.shape)


complex_row("reduce")(_reduce)


def reduce_known(g: Graph, kind: str, x: Tensor, axes: Sequence[int], shape: Sequence[int]) -> Tensor | None:
    """A reduction for which the runtime has an operator, or None."""
    if x.dtype == BOOL:
        return _reduce_logical(g, kind, x, axes, shape)
    operator = _DIRECT.get(kind)
    if operator is None:
        return None
    if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" and kind in ("add", "multiply"):
        return g.cast(_reduced(g, operator, g.cast(x, F32), axes, shape), x.dtype)
    if compute_dtype(operator, x.dtype, g.opset) is None:
        return _reduce_biased(g, operator, x, axes, shape)
    found = _reduced(g, operator, x, axes, shape)
    if kind in ("maximum", "minimum") and x.dtype.kind not in "iu":
        has_nan = _reduced(g, "ReduceMax", g.cast(g("IsNaN", x), U8), axes, shape)
        found = g.where(g.cast(has_nan, BOOL), g.like(np.nan, found), found)
    return found


def _reduced(g: Graph, operator: str, x: Tensor, axes: Sequence[int], shape: Sequence[int]) -> Tensor:
    """keepdims=0; axes are an input since opset 13 for sums, since 18 for the others."""
    if operator == "ReduceSum" or g.opset >= 18:
        return g(operator, x, g.ints(*axes), shape=shape, cast=0, keepdims=0)
    return g(operator, x, shape=shape, cast=0, keepdims=0, axes=list(axes))


def _reduce_logical(g: Graph, kind: str, x: Tensor, axes: Sequence[int], shape: Sequence[int]) -> Tensor | None:
    if kind == "xor":
        total = _reduced(g, "ReduceSum", g.cast(x, I64), axes, shape)
        return convert(g, g("Mod", total, g.like(2, total)), BOOL)
    operator = "ReduceMax" if kind in ("or", "add", "maximum") else "ReduceMin"
    return g.cast(_reduced(g, operator, g.cast(x, U8), axes, shape), BOOL)


def _reduce_biased(g: Graph, operator: str, x: Tensor, axes: Sequence[int], shape: Sequence[int]) -> Tensor:
    """Extremes of uint64, moved into the range of int64."""
    top = g.constant(np.asarray(1 << 63, np.uint64))
    found = _reduced(g, operator, g.cast(g("BitwiseXor", x, top), I64), axes, shape)
    return g("BitwiseXor", g.cast(found, x.dtype), top)


def _reduce_any(c: Lowering, body: Block, xs: Sequence[Any], inits: Sequence[Any], axes: Sequence[int],
                shape: Sequence[int]) -> list[Any]:
    """Any body: neighbours are combined until one element is left, each step over all pairs at once."""
    g = c.g
    kept = [i for i in range(xs[0].rank) if i not in axes]
    n = math.prod(xs[0].shape[i] for i in axes)
    order = [*axes, *kept]
    parts = [each(lambda t: g.reshape(g.transpose(t, order), (n, *shape)), x) for x in xs]
    while n > 1:
        half = n // 2
        even = [each(lambda t: _every_other(g, t, 0, half), p) for p in parts]
        odd = [each(lambda t: _every_other(g, t, 1, half), p) for p in parts]
        found = c.vectorised(body, [*even, *odd], (half, *shape))
        if n % 2:
            found = [each(lambda f, t: g.concat([g.full(f), _row(g, t, n - 1)], 0), f, p) for f, p in zip(found, parts)]
        parts, n = found, half + n % 2
    flat = [each(lambda t: g.reshape(t, shape), p) for p in parts]
    return c.vectorised(body, [*(c.spread(i, shape) for i in inits), *flat], shape)


def _every_other(g: Graph, t: Tensor, start: int, n: int) -> Tensor:
    starts, steps, limits = [0] * t.rank, [1] * t.rank, list(t.shape)
    starts[0], steps[0], limits[0] = start, 2, start + 2 * n - 1
    return g.slice(t, starts, limits, steps)


def _row(g: Graph, t: Tensor, i: int) -> Tensor:
    return g.full(g.slice(t, [i] + [0] * (t.rank - 1), [i + 1, *t.shape[1:]]))


# ---- reduce_window ---------------------------------------------------------------------------------------------------

class Window:
    """The attributes of a windowed operation, one entry for each dimension."""

    def __init__(self, op: Op, rank: int):
        a = op.attrs

        def ones(name: str) -> tuple[int, ...]: return tuple(a.get(name) or (1,) * rank)
        self.sizes, self.strides = ones("window_dimensions"), ones("window_strides")
        self.base, self.dilations = ones("base_dilations"), ones("window_dilations")
        padding = a.get("padding")
        self.low, self.high = ([int(v) for v in padding[:, i]] for i in (0, 1)) if padding is not None \
            else ([0] * rank, [0] * rank)


@row("reduce_window")
def _reduce_window(c: Lowering, op: Op, *xs: Any) -> list[Any]:
    """Separable: one axis after the other, each in about log2(size) steps."""
    n, g = len(op.results), c.g
    operands, inits, body = list(xs[:n]), xs[n:], op.regions[0]
    w = Window(op, operands[0].rank)
    kind = reducer(body) if n == 1 else ""
    if kind and not isinstance(operands[0], Pair):
        fast = cumulative(g, kind, w, operands[0])
        fast = pooled(g, kind, w, op, operands[0]) if fast is None else fast
        if fast is not None:
            return [fast if is_neutral(kind, inits[0]) else combine(g, kind, fast, inits[0])]

    def step(a: list[Any], b: list[Any]) -> list[Any]:
        if kind and not isinstance(a[0], Pair):
            return [combine(g, kind, a[0], b[0])]
        return c.vectorised(body, [*a, *b], a[0].shape)
    fill = [g.constant(np.asarray(REDUCERS[kind](x.dtype)).astype(x.dtype)) for x in operands] \
        if kind and not isinstance(operands[0], Pair) else inits         # as in XLA, where padding takes no part
    parts = [each(lambda t, i: g.pad(spaced(g, t, [b - 1 for b in w.base], i), w.low, w.high, i), x, i)
             for x, i in zip(operands, fill)]
    for axis in range(operands[0].rank):
        parts = _slide(g, parts, axis, w, step)
    if kind and not isinstance(parts[0], Pair) and is_neutral(kind, inits[0]):
        return parts
    return step([c.spread(i, op.shape) for i in inits], parts)


complex_row("reduce_window")(_reduce_window)


def _slide(g: Graph, parts: list[Any], axis: int, w: Window, step: Callable[[list, list], list]) -> list[Any]:
    """All windows along one axis: windows of 2**k elements are made of two, and those of the size of several."""
    size, dilation, stride = w.sizes[axis], w.dilations[axis], w.strides[axis]
    length = parts[0].shape[axis]
    out = length - (size - 1) * dilation

    def cut(t: Tensor, start: int, n: int, stride: int = 1) -> Tensor:
        starts, limits, steps = [0] * t.rank, list(t.shape), [1] * t.rank
        starts[axis], limits[axis], steps[axis] = start, start + n, stride
        return g.slice(t, starts, limits, steps)
    if stride > 1 and size <= 4 * stride:                     # few windows: only the elements that start or follow one
        n = -(-out // stride)
        found = [each(lambda t: cut(t, 0, (n - 1) * stride + 1, stride), p) for p in parts]
        for k in range(1, size):
            found = step(found, [each(lambda t, at=k * dilation: cut(t, at, (n - 1) * stride + 1, stride), p) for p in parts])
        return found
    doubled, width, done, found = parts, 1, 0, None
    while width <= size:
        if size & width:
            piece = [each(lambda t, at=done * dilation: cut(t, at, out), p) for p in doubled]
            found = piece if found is None else step(found, piece)
            done += width
        if width * 2 <= size:
            n = doubled[0].shape[axis] - width * dilation
            doubled = step([each(lambda t: cut(t, 0, n), p) for p in doubled],
                           [each(lambda t: cut(t, width * dilation, n), p) for p in doubled])
        width *= 2
    assert found is not None
    return [each(lambda t: cut(t, 0, out, stride), f) for f in found] if stride > 1 else found


def cumulative(g: Graph, kind: str, w: Window, x: Tensor) -> Tensor | None:
    """CumSum, and CumProd since opset 26: a window over all elements before (or after) along one axis."""
    if kind not in ("add", "multiply") or (kind == "multiply" and g.opset < 26):
        return None
    wide = [i for i, n in enumerate(w.sizes) if n != 1]
    if len(wide) != 1 or any(n != 1 for n in (*w.strides, *w.base, *w.dilations)) or x.dtype == BOOL:
        return None
    axis, n = wide[0], x.shape[wide[0]]
    pads = [(a, b) for i, (a, b) in enumerate(zip(w.low, w.high)) if i != axis]
    edge = (w.low[axis], w.high[axis])
    if w.sizes[axis] != n or any(p != (0, 0) for p in pads) or edge not in ((n - 1, 0), (0, n - 1)):
        return None
    operator = "CumSum" if kind == "add" else "CumProd"
    own = x.dtype
    if own.itemsize == 2 and own.kind not in "iu":
        x = g.cast(x, F32)
    made = g(operator, x, g.constant(np.int64(axis)), shape=x.shape, cast=0, reverse=int(edge[1] > 0))
    return g.cast(made, own)


def pooled(g: Graph, kind: str, w: Window, op: Op, x: Tensor) -> Tensor | None:
    """AveragePool and MaxPool over two axes of four, for float32.

    The runtime's MaxPool may lose NaN and -Inf.  After a ReLU there is no -Inf, and the mean of a window, which is at most
    the largest element, brings NaN back.
    """
    axes = [i for i in range(x.rank) if w.sizes[i] != 1 or w.strides[i] != 1 or w.low[i] or w.high[i]]
    made_by = op.operands[0].op
    if x.rank != 4 or axes not in ([1, 2], [2, 3]) or x.dtype != F32 or any(n != 1 for n in (*w.base, *w.dilations)):
        return None
    if any(not 0 <= p < w.sizes[i] for i in axes for p in (w.low[i], w.high[i])) or 0 in (*x.shape, *op.shape):
        return None
    if kind != "add" and (kind != "maximum" or made_by is None or made_by.name != "onnx.Relu"):
        return None
    order = [0, 3, 1, 2] if axes == [1, 2] else [0, 1, 2, 3]
    attrs: dict[str, Any] = {"kernel_shape": [w.sizes[i] for i in axes], "strides": [w.strides[i] for i in axes],
             "pads": [*(w.low[i] for i in axes), *(w.high[i] for i in axes)]}
    turned, shape = g.transpose(x, order), [op.shape[i] for i in order]
    mean = g("AveragePool", turned, shape=shape, count_include_pad=int(kind == "add"), **attrs)
    if kind == "add":
        found = g("Mul", mean, g.like(math.prod(w.sizes), mean))
    else:
        top = g("MaxPool", turned, shape=shape, **attrs)
        found = g("Max", top, g("Min", mean, top))
    return g.transpose(found, list(np.argsort(order)))


# ---- select_and_scatter ----------------------------------------------------------------------------------------------

MAX_WINDOW = 1024


@row("select_and_scatter")
def _select_and_scatter(c: Lowering, op: Op, x: Tensor, source: Tensor, init: Tensor) -> Tensor:
    """The place that each window selects, by running over the places of a window; then the sources there are summed."""
    g, w = c.g, Window(op, x.rank)
    kind = reducer(op.regions[1])
    if not kind:
        raise Inexpressible("its scatter body is not one operation", "scatter by add")
    if math.prod(w.sizes) > MAX_WINDOW:
        raise Inexpressible(f"windows of {math.prod(w.sizes)} elements would need a graph that is too large")
    places = list(np.ndindex(*w.sizes))
    chosen = _chosen(c, op, x, source.shape, w, places)
    neutral = g.constant(np.asarray(REDUCERS[kind](x.dtype)).astype(x.dtype))
    total = None
    for k, at in enumerate(places):
        mine = g.where(g("Equal", chosen, g.constant(np.int32(k))), source, neutral)
        apart = spaced(g, g.full(mine), [s - 1 for s in w.strides], neutral)
        low = [a - p for a, p in zip(at, w.low)]
        high = [n - lo - m for n, lo, m in zip(x.shape, low, apart.shape)]
        part = g.pad(apart, low, high, neutral)
        total = part if total is None else combine(g, kind, total, part)
    assert total is not None
    return total if is_neutral(kind, init) else combine(g, kind, total, init)


def _chosen(c: Lowering, op: Op, x: Tensor, shape: Sequence[int], w: Window, places: list) -> Tensor:
    """For each window the number of the place in it that the select body keeps.  Padding is never selected."""
    g, best, index, seen = c.g, None, None, np.zeros(tuple(shape), bool)
    padded = g.pad(x, w.low, w.high, g.like(0, x))
    for k, at in enumerate(places):
        inside = _inside(at, shape, x.shape, w)
        limits = [a + (n - 1) * s + 1 for a, n, s in zip(at, shape, w.strides)]
        candidate = g.slice(padded, at, limits, w.strides)
        number = g.constant(np.full(tuple(shape), k, np.int32))
        if best is None or index is None:
            best, index = candidate, number
        else:
            keep = c.vectorised(op.regions[0], [best, candidate], shape)[0]
            if not inside.all():
                keep = g("Or", keep, g.constant(~inside))
            if not seen.all():
                keep = g("And", keep, g.constant(seen))
            best, index = g.where(keep, best, candidate), g.where(keep, index, number)
        seen = seen | inside
    assert index is not None
    return index


def _inside(at: Sequence[int], shape: Sequence[int], full: Sequence[int], w: Window) -> np.ndarray:
    """Which windows have this place inside of the operand."""
    found = np.ones(tuple(shape), bool)
    for axis, (a, n) in enumerate(zip(at, shape)):
        where = np.arange(n) * w.strides[axis] + a - w.low[axis]
        found &= ((where >= 0) & (where < full[axis])).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return found


__all__ = ["Window", "part_dtype", "reduce_known"]
