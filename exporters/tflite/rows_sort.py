"""Sorting: the runtime has no kernel that takes a comparator."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from aot.exporters.stablehlo import Op

from .arithmetic import WIDER, is_float
from .complex_numbers import Math, both
from .graph import Tensor
from .lowering import Lowering, row


@row("sort")
def sort(lower: Lowering, op: Op, *operands: Any) -> list[Any]:
    """Stable, by a bitonic network over rows padded to a power of two: log2(n)^2 / 2 steps on whole arrays."""
    g, shape, axis = lower.g, operands[0].shape, op.attrs.get("dimension", -1) % max(1, operands[0].rank)
    if not shape or shape[axis] <= 1:
        return list(operands)
    n, order = shape[axis], [*(d for d in range(len(shape)) if d != axis), axis]
    rows = math.prod(shape) // n
    width = 1 << (n - 1).bit_length()
    lines = [both(lambda t: _padded(g, g.reshape(g.transpose(t, order), (rows, n)), width), x) for x in operands]
    lines.append(g.iota((rows, width), 1, np.int32))
    block = 2
    while block <= width:
        distance = block // 2
        while distance:
            lines = _exchange(lower, op, lines, rows, width, block, distance, n)
            distance //= 2
        block *= 2
    inverse = [order.index(d) for d in range(len(shape))]
    sorted_shape = [shape[d] for d in order]
    return [both(lambda t: g.transpose(g.reshape(g.along(t, 1, 0, n), sorted_shape), inverse), x) for x in lines[:-1]]


@row("chlo.top_k")
def top_k(lower: Lowering, op: Op, x: Tensor) -> list[Tensor]:
    """The kernel, on integers in the order of the numbers: it would put NaN last."""
    g, k = lower.g, int(op.attrs["k"])
    shape = (*x.shape[:-1], k)
    if x.dtype.kind == "b" or x.dtype.name in WIDER:
        wide = g.cast(x, WIDER.get(x.dtype.name, "int32"))
        values, indices = top_k(lower, op, wide)
        return [g.cast(values, x.dtype), indices]
    key = g.order_key(x) if is_float(x.dtype) else g.biased(x) if x.dtype.kind == "u" else x
    types = [(shape, key.dtype), (shape, np.dtype(np.int32))]
    types = [(shape, key.dtype), (shape, np.dtype(np.int32))]
    found, indices = g.nodes("TOPK_V2", [key, g.const(np.int32(k))], types, ("TopKV2Options", {}))
    if is_float(x.dtype):
        found = g.from_order_key(found, x.dtype)
    return [g.unbiased(found) if x.dtype.kind == "u" else found, indices]


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
