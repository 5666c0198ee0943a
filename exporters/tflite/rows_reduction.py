"""Rows of reductions and windows: reduce, reduce_window, select_and_scatter, batch normalisation."""
from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aot.exporters.stablehlo import Block, Op

from .arithmetic import is_float
from .complex_numbers import Complex, Math, both
from .graph import Tensor
from .lowering import Lowering, row

Arrays = list[Any]
Body = Callable[[Arrays, Arrays], Arrays]


def body_operation(block: Block) -> str:
    """The name of the only operation of a body of two arguments, "" for any other body."""
    if len(block.ops) == 1 and len(block.args) == 2 and block.outputs == block.ops[0].results:
        return block.ops[0].name if set(block.ops[0].operands) == set(block.args) else ""
    return ""


def body_of(lower: Lowering, op: Op, which: int = 0) -> Body:
    """The body of a reduction on lists of whole arrays."""
    return lambda xs, ys: lower.apply(op.regions[which], *xs, *ys)


def accumulated(row: Callable) -> Callable:
    """Sums and products of narrow floats are accumulated in float32 and rounded once."""
    def widened(lower: Lowering, op: Op, *operands: Any) -> list[Any]:
        dtype = op.results[0].dtype
        if len(op.results) > 1 or dtype.name not in ("float16", "bfloat16") or \
                body_operation(op.regions[0]) not in ("add", "multiply"):
            return row(lower, op, *operands)
        found = row(lower, op, *(lower.g.cast(x, np.float32) for x in operands))
        return [lower.g.cast(t, dtype) for t in found]
    return widened


# ---- reduce -----------------------------------------------------------------------------------------------------------

@row("reduce")
@accumulated
def reduce(lower: Lowering, op: Op, *operands: Any) -> list[Any]:
    g, axes = lower.g, sorted(int(d) for d in op.attrs["dimensions"])
    n = len(operands) // 2
    xs, inits = list(operands[:n]), list(operands[n:])
    if any(xs[0].shape[a] == 0 for a in axes):
        return [both(lambda t: g.broadcast(t, op.results[i].shape), init) for i, init in enumerate(inits)]
    kept = [d for d in range(xs[0].rank) if d not in axes]
    shape, count = tuple(xs[0].shape[d] for d in kept), math.prod(xs[0].shape[a] for a in axes)
    lines = [both(lambda t: g.reshape(g.transpose(t, [*kept, *axes]), (math.prod(shape), count)), x) for x in xs]
    name = body_operation(op.regions[0])
    found = _by_kernel(g, name, lines[0]) if n == 1 and isinstance(lines[0], Tensor) else None
    body = body_of(lower, op)
    results = [found] if found is not None else _by_tree(g, lines, body)
    results = [both(lambda t: g.reshape(t, shape), r) for r in results]
    return results if n == 1 and _is_identity(name, inits[0]) else body(inits, results)


def _by_kernel(g: Math, name: str, x: Tensor) -> Tensor | None:
    """The reduction of each row of a matrix by one kernel, or None."""
    if x.dtype == bool:
        operator = {"or": "REDUCE_ANY", "maximum": "REDUCE_ANY", "and": "REDUCE_ALL", "minimum": "REDUCE_ALL",
                    "add": "REDUCE_ANY", "multiply": "REDUCE_ALL"}.get(name)
    else:
        operator = {"add": "SUM", "multiply": "REDUCE_PROD", "maximum": "REDUCE_MAX", "minimum": "REDUCE_MIN"}.get(name)
    if operator is None or not g.profile.has(operator, x.dtype):
        return None
    found = g.node(operator, [x, g.i32([1])], x.shape[:1])
    if operator in ("REDUCE_MAX", "REDUCE_MIN") and is_float(x.dtype):       # the kernels skip NaN
        invalid = g.node("REDUCE_ANY", [g.is_nan(x), g.i32([1])], x.shape[:1], bool)
        found = g.select(invalid, g.like(x, np.nan), found)
    return found


def _by_tree(g: Math, xs: Arrays, body: Body) -> Arrays:
    """Neighbours are combined until one column is left."""
    n = xs[0].shape[1]
    while n > 1:
        even = [both(lambda t: g.along(t, 1, 0, n // 2 * 2, 2), x) for x in xs]
        odd = [both(lambda t: g.along(t, 1, 1, n // 2 * 2, 2), x) for x in xs]
        joined = body(even, odd)
        if n % 2:
            rest = [both(lambda t: g.along(t, 1, n - 1, n), x) for x in xs]
            joined = [both(lambda a, b: g.concatenate([a, b], 1), *pair) for pair in zip(joined, rest)]
        xs, n = joined, (n + 1) // 2
    return xs


def _is_identity(name: str, init: Any) -> bool:
    """Whether an initial value changes nothing."""
    parts = (init.re, init.im) if isinstance(init, Complex) else (init,)
    if any(p.value is None or p.size != 1 for p in parts):
        return False
    value, dtype = parts[0].value.reshape(()), parts[0].dtype
    if len(parts) == 2:
        return name == "add" and not value and not parts[1].value.any()
    low, high = (False, True) if dtype.kind == "b" else (-np.inf, np.inf) if is_float(dtype) else \
        (np.iinfo(dtype).min, np.iinfo(dtype).max)
    all_ones = True if dtype.kind == "b" else dtype.type(-1 if dtype.kind == "i" else high)
    return {"add": lambda: value == 0, "multiply": lambda: value == 1, "maximum": lambda: value == low,
            "minimum": lambda: value == high, "or": lambda: value == 0, "xor": lambda: value == 0,
            "and": lambda: value == all_ones,
            }.get(name, lambda: False)()


# ---- windows ----------------------------------------------------------------------------------------------------------

def _numbers(op: Op, name: str, rank: int) -> list[int]:
    found = op.attrs.get(name)
    return [1] * rank if found is None else [int(n) for n in np.asarray(found).reshape(-1)]


def _padding(op: Op, rank: int) -> tuple[list[int], list[int]]:
    found = np.asarray(op.attrs.get("padding", np.zeros((rank, 2)))).reshape(rank, 2).astype(int)
    return found[:, 0].tolist(), found[:, 1].tolist()


@row("reduce_window")
@accumulated
def reduce_window(lower: Lowering, op: Op, *operands: Any) -> list[Any]:
    """One dimension after the other, each in a number of steps that grows with the logarithm of the window."""
    g, n = lower.g, len(operands) // 2
    xs, inits = list(operands[:n]), list(operands[n:])
    rank = xs[0].rank
    window, strides = _numbers(op, "window_dimensions", rank), _numbers(op, "window_strides", rank)
    base, dilation = _numbers(op, "base_dilations", rank), _numbers(op, "window_dilations", rank)
    low, high = _padding(op, rank)
    xs = [both(lambda t, v: g.pad(t, v, low, high, [b - 1 for b in base]), x, init) for x, init in zip(xs, inits)]
    pooled = _pooled(g, op, xs, inits, window, strides, dilation)
    if pooled is not None:
        return [pooled]
    body = body_of(lower, op)
    for axis in range(rank):
        if window[axis] > 1:
            xs = _windows_along(g, xs, body, axis, window[axis], dilation[axis])
        xs = [both(lambda t: g.along(t, axis, 0, t.shape[axis], strides[axis]), x) for x in xs]
    if n == 1 and _is_identity(body_operation(op.regions[0]), inits[0]):
        return xs
    return body([both(lambda t: g.broadcast(t, xs[0].shape), init) for init in inits], xs)


def _pooled(g: Math, op: Op, xs: Arrays, inits: Arrays, window: list[int], strides: list[int],
            dilation: list[int]) -> Tensor | None:
    """Windows of the two middle dimensions of four, by a kernel; None for all others."""
    name, x = body_operation(op.regions[0]), xs[0]
    plain = len(xs) == 1 and x.rank == 4 and window[0] == window[3] == 1 and strides[0] == strides[3] == 1 and max(window) > 1
    if not plain or max(dilation) > 1 or 0 in op.results[0].shape or not _is_identity(name, inits[0]):
        return None
    if name not in ("add", "maximum", "minimum") or not all(g.profile.has(f"{kind}_POOL_2D", x.dtype) for kind in (
            ("MAX", "AVERAGE") if name == "add" else ("MAX",))):
        return None

    def holds(condition: Tensor) -> Tensor:
        """Whether it is true of an element of each window."""
        return g.less(g.like(x, 0), _pool(g, "MAX_POOL_2D", g.cast(condition, np.float32), window, strides, op.shape))
    if name == "add":       # NaN is less than the kernel's lowest result
        found = g.mul(_pool(g, "AVERAGE_POOL_2D", x, window, strides, op.shape), g.like(x, window[1] * window[2]))
        invalid = g.logical_and(holds(g.logical_not(g.less(x, g.like(x, np.inf)))),
                                holds(g.logical_not(g.less(g.like(x, -np.inf), x))))
    else:                   # the kernel skips NaN
        found = _pool(g, "MAX_POOL_2D", x if name == "maximum" else g.neg(x), window, strides, op.shape)
        found, invalid = found if name == "maximum" else g.neg(found), holds(g.is_nan(x))
    return g.select(invalid, g.like(x, np.nan), found)


def _pool(g: Math, operator: str, x: Tensor, window: list[int], strides: list[int], shape: Sequence[int]) -> Tensor:
    fields = {"padding": 1, "filterHeight": window[1], "filterWidth": window[2], "strideH": strides[1], "strideW": strides[2]}
    return g.nodes(operator, [x], [(shape, x.dtype)], ("Pool2DOptions", fields))[0]


def _windows_along(g: Math, xs: Arrays, body: Body, axis: int, window: int, dilation: int) -> Arrays:
    """Position i of the result combines i, i + dilation, ... (window of them): the binary digits of the window."""
    length = xs[0].shape[axis] - (window - 1) * dilation
    total: Arrays | None = None
    taken, power, sums = 0, 1, xs
    while power <= window:
        if window & power:
            start = taken * dilation
            part = [both(lambda t: g.along(t, axis, start, start + length), x) for x in sums]
            total = part if total is None else body(total, part)
            taken += power
        power *= 2
        if power <= window:
            shift, size = power // 2 * dilation, sums[0].shape[axis] - power // 2 * dilation
            sums = body([both(lambda t: g.along(t, axis, 0, size), x) for x in sums],
                        [both(lambda t: g.along(t, axis, shift, shift + size), x) for x in sums])
    assert total is not None
    return total


@row("select_and_scatter")
def select_and_scatter(lower: Lowering, op: Op, x: Any, source: Any, init: Any) -> Any:
    """Find in each window which position is selected, then add every source element to the position it belongs to."""
    g, rank = lower.g, x.rank
    window, strides = _numbers(op, "window_dimensions", rank), _numbers(op, "window_strides", rank)
    low, high = _padding(op, rank)
    padded = both(lambda t: g.pad(t, g.like(t, 0), low, high, [0] * rank), x)
    inside = g.pad(g.full(x.shape, 1, np.int32), g.const(np.int32(0)), low, high, [0] * rank)
    taps = list(itertools.product(*(range(n) for n in window)))
    chosen = _selected(lower, op, padded, g.compare("EQ", inside, g.const(np.int32(1))), taps, strides, source.shape)
    scatter = body_of(lower, op, 1)
    total = both(lambda t: g.broadcast(t, padded.shape), init)
    for i, tap in enumerate(taps):
        mine = g.equal(chosen, g.const(np.int32(i)))
        piece = both(lambda t, v: g.select(mine, t, g.broadcast(v, t.shape)), source, init)
        sizes = [(n - 1) * s + 1 for n, s in zip(source.shape, strides)]
        after = [p - t - n for p, t, n in zip(padded.shape, tap, sizes)]
        placed = both(lambda t, v: g.pad(t, v, list(tap), after, [s - 1 for s in strides]), piece, init)
        total = scatter([total], [placed])[0]
    limit = [p - h for p, h in zip(padded.shape, high)]
    return both(lambda t: g.slice(t, low, limit), total)


def _selected(lower: Lowering, op: Op, x: Any, inside: Tensor, taps: Sequence[tuple[int, ...]], strides: Sequence[int],
              shape: tuple[int, ...]) -> Tensor:
    """The number of the tap that each window selects; padding is never selected."""
    g, best, known, chosen = lower.g, None, None, None
    for i, tap in enumerate(taps):
        limit = [t + (n - 1) * s + 1 for t, n, s in zip(tap, shape, strides)]
        value = both(lambda t: g.slice(t, tap, limit, strides), x)
        valid = g.slice(inside, tap, limit, strides)
        number = g.full(shape, i, np.int32)
        if best is None or known is None or chosen is None:
            best, known, chosen = value, valid, number
            continue
        keep = lower.apply(op.regions[0], best, value)[0]
        keep = g.logical_or(g.logical_not(valid), g.logical_and(keep, known))
        best = both(lambda a, b: g.select(keep, a, b), best, value)
        chosen, known = g.select(keep, chosen, number), g.logical_or(known, valid)
    assert chosen is not None
    return chosen


# ---- batch normalisation ----------------------------------------------------------------------------------------------

@row("batch_norm_inference")
def batch_norm_inference(lower: Lowering, op: Op, x: Tensor, scale: Tensor, offset: Tensor, mean: Tensor,
                         variance: Tensor) -> Tensor:
    g, axis = lower.g, op.attrs["feature_index"]

    def spread(t: Tensor) -> Tensor: return g.broadcast_in_dim(t, x.shape, [axis])
    factor = g.mul(scale, g.call("rsqrt", g.add(variance, g.like(variance, op.attrs["epsilon"]))))
    return g.add(g.mul(g.sub(x, spread(mean)), spread(factor)), spread(offset))


@row("batch_norm_training")
def batch_norm_training(lower: Lowering, op: Op, x: Tensor, scale: Tensor, offset: Tensor) -> list[Tensor]:
    g, axis = lower.g, op.attrs["feature_index"]
    mean = _feature_mean(g, x, axis)
    centred = g.sub(x, g.broadcast_in_dim(mean, x.shape, [axis]))
    variance = _feature_mean(g, g.mul(centred, centred), axis)
    return [batch_norm_inference(lower, op, x, scale, offset, mean, variance), mean, variance]


def _feature_mean(g: Math, x: Tensor, axis: int) -> Tensor:
    """The mean over all dimensions except one."""
    from .rows_contraction import sum_axis
    order = [axis, *(d for d in range(x.rank) if d != axis)]
    lines = g.reshape(g.transpose(x, order), (x.shape[axis], x.size // max(1, x.shape[axis])))
    return g.mul(sum_axis(g, lines, 1), g.like(x, 1 / lines.shape[1]))


@row("batch_norm_grad")
def batch_norm_grad(lower: Lowering, op: Op, x: Tensor, scale: Tensor, mean: Tensor, variance: Tensor,
                    gradient: Tensor) -> list[Tensor]:
    g, axis = lower.g, op.attrs["feature_index"]

    def spread(t: Tensor) -> Tensor: return g.broadcast_in_dim(t, x.shape, [axis])
    count = g.like(x, x.size // x.shape[axis])
    factor = g.call("rsqrt", g.add(variance, g.like(variance, op.attrs["epsilon"])))
    normal = g.mul(g.sub(x, spread(mean)), spread(factor))
    for_offset = g.mul(_feature_mean(g, gradient, axis), count)
    for_scale = g.mul(_feature_mean(g, g.mul(gradient, normal), axis), count)
    inner = g.add(spread(for_offset), g.mul(normal, spread(for_scale)))
    centred = g.sub(gradient, g.mul(inner, g.like(x, x.shape[axis] / x.size)))
    return [g.mul(spread(g.mul(scale, factor)), centred), for_scale, for_offset]
