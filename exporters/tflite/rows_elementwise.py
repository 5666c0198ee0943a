"""Rows of elementwise operations; the arithmetic itself is in the layers up to `complex_numbers`."""
from __future__ import annotations

from typing import Any

import numpy as np

from aot.exporters.stablehlo import Op

from .complex_numbers import PARTS, Complex, both
from .lowering import Lowering, row


@row("abs", "add", "and", "atan2", "cbrt", "ceil", "cosine", "count_leading_zeros", "divide", "exponential",
     "exponential_minus_one", "floor", "is_finite", "log", "log_plus_one", "logistic", "maximum", "minimum", "multiply",
     "negate", "not", "or", "popcnt", "power", "remainder", "round_nearest_afz", "round_nearest_even", "rsqrt", "select",
     "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sine", "sqrt", "subtract", "tan", "tanh", "xor")
def by_name(lower: Lowering, op: Op, *xs: Any) -> Any:
    return lower.g.call(op.name, *xs)


@row("clamp")
def clamp(lower: Lowering, op: Op, low: Any, x: Any, high: Any) -> Any:
    g = lower.g
    return g.call("minimum", g.call("maximum", x, low), high)


@row("compare")
def compare(lower: Lowering, op: Op, x: Any, y: Any) -> Any:
    total = op.attrs.get("compare_type") == "TOTALORDER"
    return lower.g.call("compare", op.attrs["comparison_direction"], x, y, total=total) if not isinstance(x, Complex) else \
        lower.g.complex.compare(op.attrs["comparison_direction"], x, y)


@row("convert")
def convert(lower: Lowering, op: Op, x: Any) -> Any: return lower.g.cast_any(x, op.dtype)


@row("reduce_precision")
def reduce_precision(lower: Lowering, op: Op, x: Any) -> Any:
    sizes = op.attrs["exponent_bits"], op.attrs["mantissa_bits"]
    return both(lambda part: lower.g.reduce_precision(part, *sizes), x)


@row("complex")
def make_complex(lower: Lowering, op: Op, re: Any, im: Any) -> Any: return Complex(re, im)


@row("real")
def real(lower: Lowering, op: Op, z: Any) -> Any: return z.re if isinstance(z, Complex) else z


@row("imag")
def imag(lower: Lowering, op: Op, z: Any) -> Any:
    return z.im if isinstance(z, Complex) else lower.g.full(z.shape, 0, z.dtype)


@row("map")
def map_(lower: Lowering, op: Op, *xs: Any) -> Any: return lower.apply(op.regions[0], *xs)


@row("optimization_barrier")
def barrier(lower: Lowering, op: Op, *xs: Any) -> Any: return list(xs)


@row("bitcast_convert")
def bitcast_convert(lower: Lowering, op: Op, x: Any) -> Any:
    """A complex number lies in memory as its parts, the real one first."""
    g = lower.g
    if isinstance(x, Complex):
        x = g.stack([g.broadcast(part, x.shape) for part in (x.re, x.im)])
        if op.dtype.itemsize >= 2 * x.dtype.itemsize or op.dtype in PARTS:
            return _as_type(lower, x, op)
        return g.reshape(g.bitcast(x, op.dtype), op.shape)
    return _as_type(lower, x, op)


def _as_type(lower: Lowering, x: Any, op: Op) -> Any:
    g, part = lower.g, PARTS.get(op.dtype)
    if part is None:
        return g.bitcast(x, op.dtype)
    pair = g.reshape(g.bitcast(x, part), (*op.shape, 2))
    re, im = (g.reshape(g.along(pair, len(op.shape), i, i + 1), op.shape) for i in (0, 1))
    return Complex(re, im)


@row("partition_id", "replica_id")
def alone(lower: Lowering, op: Op) -> Any: return lower.g.const(np.array(0, op.dtype))
