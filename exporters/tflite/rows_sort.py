"""Sorting: the runtime has no kernel that takes a comparator."""
from __future__ import annotations

from typing import Any

import numpy as np

from aot.exporters.stablehlo import Op, Value

from .arithmetic import WIDER, is_float
from .complex_numbers import Math, both
from .graph import Tensor
from .lowering import Lowering, row


@row("sort")
def sort(lower: Lowering, op: Op, *operands: Any) -> list[Any]:
    """Stable: by the kernel for top_k where the comparator has one key, by a network otherwise."""
    g, shape, axis = lower.g, operands[0].shape, op.attrs.get("dimension", -1) % max(1, operands[0].rank)
    if not shape or shape[axis] <= 1:
        return list(operands)
    n, order = shape[axis], [*(d for d in range(len(shape)) if d != axis), axis]
    inverse = [order.index(d) for d in range(len(shape))]
    lines = [both(lambda t: g.reshape(g.transpose(t, order), (t.size // n, n)), x) for x in operands]
    found = _by_key(lower, op, lines) or _by_network(lower, op, lines)
    sorted_shape = [shape[d] for d in order]
    return [both(lambda t: g.transpose(g.reshape(t, sorted_shape), inverse), x) for x in found]


def _by_network(lower: Lowering, op: Op, lines: list[Any]) -> list[Any]:
    """A bitonic network over rows padded to a power of two: log2(n)^2 / 2 steps on whole arrays, for any comparator."""
    g, (rows, n) = lower.g, lines[0].shape
    width = 1 << (n - 1).bit_length()
    lines = [both(lambda t: _padded(g, t, width), x) for x in lines]
    lines.append(g.iota((rows, width), 1, np.int32))
    block = 2
    while block <= width:
        distance = block // 2
        while distance:
            lines = _exchange(lower, op, lines, rows, width, block, distance, n)
            distance //= 2
        block *= 2
    return [both(lambda t: g.along(t, 1, 0, n), x) for x in lines[:-1]]


# ---- one key ----------------------------------------------------------------------------------------------------------

def _by_key(lower: Lowering, op: Op, lines: list[Any]) -> list[Any] | None:
    """Rows sorted by the integer that stands for the key, None where the comparator is no plain comparison of keys."""
    g, region = lower.g, op.regions[0]
    last = region.outputs[0].op
    if last is None or last.name != "compare" or last.attrs["comparison_direction"] not in ("LT", "GT"):
        return None
    total = last.attrs.get("compare_type") == "TOTALORDER"
    dtype = last.operands[0].dtype
    if dtype.kind == "c" or is_float(dtype) and not total:
        return None
    if not _same_function(last.operands[0], last.operands[1], region.args):
        return None
    inner = Lowering(g, lower.report, dict(lower.env))
    inner.block(region, [x for x in lines for _ in range(2)])
    key = _integer_key(g, g.broadcast(inner.env[last.operands[0]], lines[0].shape))
    if last.attrs["comparison_direction"] == "LT":
        key = g.bit_not(key)
    rows, n = key.shape
    types = [(key.shape, key.dtype), (key.shape, np.dtype(np.int32))]
    order = g.nodes("TOPK_V2", [key, g.const(np.int32(n))], types, ("TopKV2Options", {}))[1]
    where = g.reshape(g.add(order, g.const(np.arange(rows, dtype=np.int32)[:, None] * n)), (rows * n,))
    return [both(lambda t: g.reshape(g.carry("GATHER", [g.reshape(t, (t.size,))], (t.size,), where, axis=0), t.shape), x)
            for x in lines]


def _integer_key(g: Math, x: Tensor) -> Tensor:
    """int32 or int64 in the order of the numbers, floats in their total order."""
    if x.dtype.kind == "b" or x.dtype.name in WIDER:
        x = g.cast(x, WIDER.get(x.dtype.name, "int32"))
    return g.order_key(x) if is_float(x.dtype) else g.biased(x) if x.dtype.kind == "u" else x


def _same_function(x: Value, y: Value, args: list[Value]) -> bool:
    """Whether y is of the second element what x is of the first: of arguments 0, 2, ... and 1, 3, ..."""
    if x in args or y in args:
        return x in args and y in args and args.index(x) % 2 == 0 and args.index(y) == args.index(x) + 1
    if x is y or x.op is None or y.op is None:
        return x is y
    if x.constant is not None and y.constant is not None:
        return x.type == y.type and x.constant.tobytes() == y.constant.tobytes()
    alike = x.op.name == y.op.name and x.op.attrs == y.op.attrs and x.index == y.index and not x.op.regions
    return alike and len(x.op.operands) == len(y.op.operands) and \
        all(_same_function(a, b, args) for a, b in zip(x.op.operands, y.op.operands))


@row("chlo.top_k")
def top_k(lower: Lowering, op: Op, x: Tensor) -> list[Tensor]:
    """The kernel, on integers in the order of the numbers: it would put NaN last."""
    g, k, key = lower.g, int(op.attrs["k"]), _integer_key(lower.g, x)
    shape = (*x.shape[:-1], k)
    types = [(shape, key.dtype), (shape, np.dtype(np.int32))]
    found, indices = g.nodes("TOPK_V2", [key, g.const(np.int32(k))], types, ("TopKV2Options", {}))
    wide = np.dtype(WIDER.get(x.dtype.name, "int32" if x.dtype.kind == "b" else x.dtype.name))
    if is_float(wide):
        found = g.from_order_key(found, wide)
    elif wide.kind == "u":
        found = g.unbiased(found)
    return [g.cast(found, x.dtype), indices]


# ---- any comparator ---------------------------------------------------------------------------------------------------

def _padded(g: Math, x: Tensor, width: int) -> Tensor:
    rest = g.full((x.shape[0], width - x.shape[1]), 0, x.dtype)
    return g.concatenate([x, rest], 1)


def _exchange(lower: Lowering, op: Op, lines: list[Any], rows: int, width: int, block: int, distance: int, n: int) -> list[Any]:
    """Compare elements at a distance and exchange those that are in the wrong order for their block."""
    g, shape = lower.g, (rows, width // (2 * distance), 2, distance)
    half = (rows, width // 2)

    def part(which: int) -> list[Any]:
        return [both(lambda t: g.reshape(g.along(g.reshape(t, shape), 2, which, which + 1), half), x) for x in lines]
    a, b = part(0), part(1)
    first = np.arange(width).reshape(-1, 2, distance)[:, 0].reshape(-1)
    downwards = (first // block) % 2 == 1 if block < width else np.zeros(width // 2, bool)
    exchange = _is_before(lower, op, b, a, n)
    if downwards.any():
        exchange = g.compare("NE", exchange, g.const(np.broadcast_to(downwards, half)))
    halves = (rows, shape[1], 1, distance)

    def together(x: Tensor, y: Tensor) -> Tensor:
        pair = [g.reshape(g.select(exchange, *p), halves) for p in ((y, x), (x, y))]
        return g.reshape(g.concatenate(pair, 2), (rows, width))
    return [both(together, x, y) for x, y in zip(a, b)]


def _is_before(lower: Lowering, op: Op, x: list[Any], y: list[Any], n: int) -> Tensor:
    """Whether x comes before y: by the comparator, then by position; positions from n on are padding."""
    g = lower.g

    def compared(x: list[Any], y: list[Any]) -> Tensor:
        return lower.apply(op.regions[0], *(v for pair in zip(x[:-1], y[:-1]) for v in pair))[0]
    earlier = g.less(x[-1], y[-1])
    tie = g.logical_and(earlier, g.logical_not(compared(y, x)))
    before = g.logical_or(compared(x, y), tie)
    limit = g.const(np.int32(n))
    real = g.logical_and(g.less(x[-1], limit), g.less(y[-1], limit))
    return g.select(real, before, earlier)
