"""Rows: elementwise operations on real numbers, with the semantics of XLA at the edges."""
from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from aot.exporters.stablehlo import Op

from .graph import BOOL, F32, F64, I32, Graph, Tensor
from .lowering import Lowering, row

# ---- one operator each -----------------------------------------------------------------------------------------------

#: StableHLO -> (ONNX operator, operator for booleans)
_DIRECT = {
    "exponential": ("Exp", ""), "log": ("Log", ""), "sqrt": ("Sqrt", ""), "sine": ("Sin", ""), "cosine": ("Cos", ""),
    "tanh": ("Tanh", ""), "logistic": ("Sigmoid", ""), "floor": ("Floor", ""), "ceil": ("Ceil", ""),
    "round_nearest_even": ("Round", ""), "add": ("Add", "Or"), "subtract": ("Sub", "Xor"), "multiply": ("Mul", "And"),
    "maximum": ("Max", "Or"), "minimum": ("Min", "And"), "and": ("BitwiseAnd", "And"), "or": ("BitwiseOr", "Or"),
    "xor": ("BitwiseXor", "Xor"), "not": ("BitwiseNot", "Not"), "chlo.erf": ("Erf", ""),
}


@row(*_DIRECT)
def _direct(c: Lowering, op: Op, *xs: Tensor) -> Tensor:
    operator, logical = _DIRECT[op.name]
    return c.g(logical if xs[0].dtype == BOOL and logical else operator, *xs)


@row("abs")
def _abs(c: Lowering, op: Op, x: Tensor) -> Tensor:
    return x if x.dtype.kind in "ub" else c.g("Abs", x)


@row("negate")
def _negate(c: Lowering, op: Op, x: Tensor) -> Tensor:
    return c.g("Sub", c.g.like(0, x), x) if x.dtype.kind == "u" else c.g("Neg", x)


@row("sign")
def _sign(c: Lowering, op: Op, x: Tensor) -> Tensor:
    if x.dtype.kind in "iu":
        return c.g("Sign", x)
    nonzero = c.g("Greater", c.g("Abs", x), c.g.like(0, x))             # also false for NaN, which is its own sign
    return c.g.where(nonzero, c.g("Sign", x), x)


@row("rsqrt")
def _rsqrt(c: Lowering, op: Op, x: Tensor) -> Tensor:
    return c.g("Reciprocal", c.g("Sqrt", x))


@row("is_finite")
def _is_finite(c: Lowering, op: Op, x: Tensor) -> Tensor:
    return c.g("Less", c.g("Abs", x), c.g.like(np.inf, x))


@row("clamp")
def _clamp(c: Lowering, op: Op, low: Tensor, x: Tensor, high: Tensor) -> Tensor:
    return _direct(c, _named("minimum"), _direct(c, _named("maximum"), x, low), high)


def _named(name: str) -> Op: return Op(name, [], [])


@row("select")
def _select(c: Lowering, op: Op, p: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return c.g.where(p, x, y)


@row("real")
def _real(c: Lowering, op: Op, x: Tensor) -> Tensor: return x


@row("imag")
def _imag(c: Lowering, op: Op, x: Tensor) -> Tensor:
    return c.g.broadcast(c.g.like(0, x), (), x.shape)


# ---- composed functions ----------------------------------------------------------------------------------------------

@row("tan", "chlo.tan")
def _tan(c: Lowering, op: Op, x: Tensor) -> Tensor:
    return c.g("Div", c.g("Sin", x), c.g("Cos", x)) if x.dtype == F64 else c.g("Tan", x)


@row("cbrt")
def _cbrt(c: Lowering, op: Op, x: Tensor) -> Tensor:
    """sign(x) * |x| ** (1/3), made exact by one step of Newton's method."""
    g, a = c.g, c.g("Abs", x)
    y = g("Pow", a, g.like(1 / 3, x))
    square = g("Mul", y, y)
    better = g("Sub", y, g("Div", g("Sub", y, g("Div", a, square)), g.like(3, x)))
    ordinary = g("And", g("Greater", a, g.like(0, x)), g("Less", a, g.like(np.inf, x)))
    root = g.where(ordinary, better, a)
    return g.where(g("Less", x, g.like(0, x)), g("Neg", root), root)


@row("log_plus_one")
def _log1p(c: Lowering, op: Op, x: Tensor) -> Tensor:
    """log(u) * x / (u - 1) for u = 1 + x, which loses no digits near 0."""
    g, one = c.g, c.g.like(1, x)
    if x.dtype.itemsize == 2:
        return _in(g, F32, lambda y: _log1p(c, op, y), x)
    u = g("Add", x, one)
    scaled = g("Mul", g("Log", u), g("Div", x, g("Sub", u, one)))
    plain = g("Or", g("Equal", u, one), g("Equal", x, g.like(np.inf, x)))
    return g.where(plain, x, scaled)


@row("exponential_minus_one")
def _expm1(c: Lowering, op: Op, x: Tensor) -> Tensor:
    """tanh(x / 2) * (exp(x) + 1) near 0."""
    g = c.g
    if x.dtype.itemsize == 2:
        return _in(g, F32, lambda y: _expm1(c, op, y), x)
    e = g("Exp", x)
    near = g("Mul", g("Tanh", g("Mul", x, g.like(0.5, x))), g("Add", e, g.like(1, x)))
    small = g("Less", g("Abs", x), g.like(0.5, x))
    tiny = g("Less", g("Abs", x), g.like(1e-4, x))                       # where x + x*x/2 is exact, and keeps -0
    near = g.where(tiny, g("Add", x, g("Mul", g("Mul", x, x), g.like(0.5, x))), near) if x.dtype == F32 else near
    return g.where(small, near, g("Sub", e, g.like(1, x)))


@row("round_nearest_afz")
def _round_away(c: Lowering, op: Op, x: Tensor) -> Tensor:
    g, a = c.g, c.g("Abs", x)
    down = g("Floor", a)
    up = g("GreaterOrEqual", g("Sub", a, down), g.like(0.5, x))
    rounded = g("Add", down, g.cast(up, x.dtype))
    return g.where(g("Less", x, g.like(0, x)), g("Neg", rounded), rounded)


#: Cephes' rational approximation of atan on [0, 0.66]: numerator and denominator, highest power first
_ATAN_P = (-8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1, -1.228866684490136173410e2,
           -6.485021904942025371773e1)
_ATAN_Q = (1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2, 4.853903996359136964868e2,
           1.945506571482613964425e2)


def atan(g: Graph, x: Tensor) -> Tensor:
    """Arc tangent of numbers in [0, 1]; the runtime has none for float64."""
    if x.dtype != F64:
        return g("Atan", x)
    far = g("Greater", x, g.like(0.66, x))
    t = g.where(far, g("Div", g("Sub", x, g.like(1, x)), g("Add", x, g.like(1, x))), x)
    z = g("Mul", t, t)
    ratio = g("Div", g("Mul", z, polynomial(g, _ATAN_P, z)), polynomial(g, _ATAN_Q, z))
    y = g("Add", g("Mul", t, ratio), t)
    return g.where(far, g("Add", y, g.like(math.pi / 4, x)), y)


def polynomial(g: Graph, coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    """Horner's rule, highest power first."""
    y = g.like(coefficients[0], x)
    for k in coefficients[1:]:
        y = g("Add", g("Mul", y, x), g.like(k, x))
    return y


def is_negative(g: Graph, x: Tensor) -> Tensor:
    """The sign bit of numbers that are not NaN."""
    zero = g.like(0, x)
    return g("Or", g("Less", x, zero), g("And", g("Equal", x, zero), g("Less", g("Reciprocal", x), zero)))


@row("atan2")
def _atan2(c: Lowering, op: Op, y: Tensor, x: Tensor) -> Tensor:
    return atan2(c.g, y, x)


def atan2(g: Graph, y: Tensor, x: Tensor) -> Tensor:
    """The angle of (x, y): atan of a ratio in [0, 1], put into its octant.  Keeps signs of zeros."""
    if x.dtype.itemsize == 2:
        return _in(g, F32, lambda b, a: atan2(g, b, a), y, x)
    ax, ay, zero = g("Abs", x), g("Abs", y), g.like(0, x)
    small, large = g("Min", ax, ay), g("Max", ax, ay)
    ratio = g.where(g("Equal", small, large), g.cast(g("Greater", large, zero), x.dtype), g("Div", small, large))
    ratio = g.where(g("IsNaN", g("Add", ax, ay)), g("Add", ax, ay), ratio)
    angle = atan(g, ratio)
    angle = g.where(g("Greater", ay, ax), g("Sub", g.like(math.pi / 2, x), angle), angle)
    angle = g.where(is_negative(g, x), g("Sub", g.like(math.pi, x), angle), angle)
    return g.where(is_negative(g, y), g("Neg", angle), angle)


def _in(g: Graph, dtype: np.dtype, f: Any, *xs: Tensor) -> Tensor:
    """f computed in a wider type."""
    return g.cast(f(*(g.cast(x, dtype) for x in xs)), xs[0].dtype)


# ---- division, powers ------------------------------------------------------------------------------------------------

@row("divide")
def _divide(c: Lowering, op: Op, x: Tensor, y: Tensor) -> Tensor:
    return divide(c.g, x, y)


def divide(g: Graph, x: Tensor, y: Tensor) -> Tensor:
    """For integers: truncating; x / 0 is -1; INT_MIN / -1 is INT_MIN.  The runtime raises or dies for these divisors."""
    if x.dtype.kind not in "iu":
        return g("Div", x, y)
    if (known := y.numpy()) is not None and not (known == 0).any() and not (x.dtype.kind == "i" and (known == -1).any()):
        return g("Div", x, y)
    zero = g("Equal", y, g.like(0, y))
    special = g("Or", zero, g("Equal", y, g.like(-1, y))) if x.dtype.kind == "i" else zero
    quotient = g("Div", x, g.where(special, g.like(1, y), y))
    if x.dtype.kind == "i":
        quotient = g.where(special, g("Sub", g.like(0, x), x), quotient)
    return g.where(zero, g.constant(np.asarray(-1).astype(x.dtype)), quotient)


@row("remainder")
def _remainder(c: Lowering, op: Op, x: Tensor, y: Tensor) -> Tensor:
    """With the sign of the dividend; for integers x % 0 is x."""
    g = c.g
    if x.dtype.kind not in "iu":
        return g("Mod", x, y, fmod=1)
    zero = g("Equal", y, g.like(0, y))
    special = g("Or", zero, g("Equal", y, g.like(-1, y))) if x.dtype.kind == "i" else zero
    rest = g("Mod", x, g.where(special, g.like(1, y), y), fmod=1)
    return g.where(zero, x, rest)


@row("power")
def _power(c: Lowering, op: Op, x: Tensor, y: Tensor) -> Tensor:
    g = c.g
    if x.dtype.kind not in "iub":
        return g("Pow", x, y)
    if x.dtype == BOOL:
        return g("Or", x, g("Not", y))
    power = _wrapping_power(g, x, y)
    if x.dtype.kind == "u":
        return power
    zero, one, minus = g.like(0, x), g.like(1, x), g.like(-1, x)
    odd = g("Equal", g("BitwiseAnd", y, one), one)
    inverse = g.where(g("Equal", x, one), one, g.where(g("Equal", x, minus), g.where(odd, minus, one), zero))
    return g.where(g("Less", y, zero), inverse, power)


def _wrapping_power(g: Graph, x: Tensor, y: Tensor) -> Tensor:
    """x ** y modulo 2 ** bits, by squaring."""
    known = y.numpy()
    bits = x.dtype.itemsize * 8 if known is None else max(int(known.max(initial=0)), 1).bit_length()
    result, one, two = g.like(1, x), g.like(1, y), g.like(2, y)
    for i in range(bits):
        odd = g("Equal", g("BitwiseAnd", y, one), one)
        result = g.where(odd, g("Mul", result, x), result)
        if i + 1 < bits:
            x, y = g("Mul", x, x), g("Div", y, two)
    return result


# ---- conversions and comparisons -------------------------------------------------------------------------------------

@row("convert")
def _convert(c: Lowering, op: Op, x: Tensor) -> Tensor:
    return convert(c.g, x, op.dtype)


def convert(g: Graph, x: Tensor, to: np.dtype) -> Tensor:
    """XLA's conversion: floats to integers saturate, NaN becomes 0; numbers to booleans are compared with 0."""
    if to == BOOL:
        return g("Not", g("Equal", x, g.like(0, x)))
    if _is_integer(to) and not _is_integer(x.dtype):
        return _to_integer(g, x, to)
    if to.name.startswith("float8") and not _is_integer(x.dtype):       # out of range is infinite or NaN, not the largest
        return g.cast(g.cast(x, F32) if x.dtype.name != "float16" else x, to, saturate=0)
    if x.dtype.name in ("int4", "uint4", "int2", "uint2") and to.kind != "i":
        return g.cast(g.cast(x, I32), to)
    return g.cast(x, to)


def _is_integer(dtype: np.dtype) -> bool:
    return dtype.kind in "iub" or dtype.name in ("int4", "uint4", "int2", "uint2")


def _to_integer(g: Graph, x: Tensor, to: np.dtype) -> Tensor:
    if x.array is not None:
        found = saturated(x.array, to)
        return Tensor(None, x.shape, to, x.stored, found)
    info = ml_dtypes.iinfo(to)
    if x.dtype.itemsize <= 2:
        x = g.cast(x, F32)
    highest = float(np.nextafter(x.dtype.type(float(info.max) + 1), x.dtype.type(0))) if to.itemsize >= 4 else float(info.max)
    inside = g("Min", g("Max", x, g.like(float(info.min), x)), g.like(highest, x))
    inside = g.where(g("IsNaN", x), g.like(0, x), inside)
    wide = to if to.itemsize >= 4 else I32
    found = g.cast(g.cast(inside, wide), to)
    if float(highest) == float(info.max) and to.itemsize < 4:
        return found
    return g.where(g("Greater", x, g.like(highest, x)), g.constant(np.asarray(info.max, to)), found)


def saturated(x: np.ndarray, to: np.dtype) -> np.ndarray:
    """numpy's form of the conversion above."""
    info, wide = ml_dtypes.iinfo(to), np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    with np.errstate(all="ignore"):
        found = np.clip(wide, float(info.min), float(info.max)).astype(to)
    found = np.where(wide >= float(info.max), np.asarray(int(info.max)).astype(to), found)
    return np.asarray(np.where(wide <= float(info.min), np.asarray(int(info.min)).astype(to), found))


_COMPARE = {"EQ": "Equal", "NE": "Equal", "LT": "Less", "LE": "LessOrEqual", "GT": "Greater", "GE": "GreaterOrEqual"}


@row("compare")
def _compare(c: Lowering, op: Op, x: Tensor, y: Tensor) -> Tensor:
    direction = op.attrs["comparison_direction"]
    if op.attrs.get("compare_type") == "TOTALORDER" and not _is_integer(x.dtype):
        return _total_order(c.g, direction, x, y)
    found = c.g(_COMPARE[direction], x, y)
    return c.g("Not", found) if direction == "NE" else found


def _total_order(g: Graph, direction: str, x: Tensor, y: Tensor) -> Tensor:
    """-NaN < -Inf < ... < -0 < +0 < ... < Inf < NaN, as integers."""
    a, b = order_key(g, x), order_key(g, y)
    found = g(_COMPARE[direction], a, b)
    return g("Not", found) if direction == "NE" else found


def order_key(g: Graph, x: Tensor) -> Tensor:
    """An integer of the same width for each float, in total order."""
    from .bits import float_bits
    bits = float_bits(g, x)
    signed = g.cast(bits, np.dtype(f"int{x.dtype.itemsize * 8}"))
    mask = g.constant(np.asarray(np.iinfo(signed.dtype).max, signed.dtype))
    return g.where(g("Less", signed, g.like(0, signed)), g("BitwiseXor", signed, mask), signed)


@row("map")
def _map(c: Lowering, op: Op, *xs: Tensor) -> list[Any]:
    return c.vectorised(op.regions[0], xs, op.shape)


@row("constant")
def _constant(c: Lowering, op: Op) -> Any:
    return c.weight(op.attrs["name"], op.attrs["value"]) if "name" in op.attrs else c.constant(op.attrs["value"])


__all__ = ["atan", "atan2", "convert", "divide", "is_negative", "order_key", "polynomial", "saturated"]
