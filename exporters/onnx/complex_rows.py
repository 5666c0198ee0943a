"""Rows: complex numbers as pairs of real tensors."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from aot.exporters.stablehlo import Op

from . import elementwise
from .graph import Graph, Inexpressible, Tensor
from .lowering import Lowering, Pair, complex_row, part_dtype


def as_pair(g: Graph, x: Any) -> Pair:
    """A real tensor as a complex one."""
    return x if isinstance(x, Pair) else Pair(x, g.broadcast(g.like(0, x), (), x.shape))


complex_row("constant")(elementwise._constant)


@complex_row("complex")
def _complex(c: Lowering, op: Op, re: Tensor, im: Tensor) -> Pair: return Pair(re, im)


@complex_row("real")
def _real(c: Lowering, op: Op, x: Pair) -> Tensor: return x.re


@complex_row("imag")
def _imag(c: Lowering, op: Op, x: Pair) -> Tensor: return x.im


@complex_row("iota")
def _iota(c: Lowering, op: Op) -> Pair:
    from .shapes import iota
    return as_pair(c.g, iota(c.g, op.shape, op.attrs["iota_dimension"], part_dtype(op.dtype)))


# ---- arithmetic ------------------------------------------------------------------------------------------------------

@complex_row("add", "subtract")
def _add(c: Lowering, op: Op, x: Pair, y: Pair) -> Pair:
    operator = "Add" if op.name == "add" else "Sub"
    return Pair(c.g(operator, x.re, y.re), c.g(operator, x.im, y.im))


@complex_row("negate")
def _negate(c: Lowering, op: Op, x: Pair) -> Pair: return Pair(c.g("Neg", x.re), c.g("Neg", x.im))


@complex_row("multiply")
def _multiply(c: Lowering, op: Op, x: Pair, y: Pair) -> Pair: return multiply(c.g, x, y)


def multiply(g: Graph, x: Pair, y: Pair) -> Pair:
    return Pair(g("Sub", g("Mul", x.re, y.re), g("Mul", x.im, y.im)), g("Add", g("Mul", x.re, y.im), g("Mul", x.im, y.re)))


@complex_row("divide")
def _divide(c: Lowering, op: Op, x: Pair, y: Pair) -> Pair: return divide(c.g, x, y)


def divide(g: Graph, x: Pair, y: Pair) -> Pair:
    """x / y, with y scaled by its larger part so that squares do not overflow."""
    scale = g("Max", g("Abs", y.re), g("Abs", y.im))
    usual = g("And", g("Greater", scale, g.like(0, scale)), g("Less", scale, g.like(np.inf, scale)))
    scale = g.where(usual, scale, g.like(1, scale))
    re, im = g("Div", y.re, scale), g("Div", y.im, scale)
    norm = g("Add", g("Mul", re, re), g("Mul", im, im))
    top = multiply(g, x, Pair(re, g("Neg", im)))
    return Pair(g("Div", g("Div", top.re, norm), scale), g("Div", g("Div", top.im, norm), scale))


def absolute(g: Graph, x: Pair) -> Tensor:
    """Scaled hypotenuse: infinite where a part is."""
    a, b = g("Abs", x.re), g("Abs", x.im)
    large, small = g("Max", a, b), g("Min", a, b)
    usual = g("And", g("Greater", large, g.like(0, large)), g("Less", large, g.like(np.inf, large)))
    ratio = g("Div", small, g.where(usual, large, g.like(1, large)))
    found = g("Mul", large, g("Sqrt", g("Add", g.like(1, ratio), g("Mul", ratio, ratio))))
    infinite = g("Or", g("Equal", a, g.like(np.inf, a)), g("Equal", b, g.like(np.inf, b)))
    return g.where(infinite, g.like(np.inf, a), g.where(usual, found, large))


@complex_row("abs")
def _abs(c: Lowering, op: Op, x: Pair) -> Tensor: return absolute(c.g, x)


@complex_row("sign")
def _sign(c: Lowering, op: Op, x: Pair) -> Pair:
    g, size = c.g, absolute(c.g, x)
    zero = g("Equal", size, g.like(0, size))
    safe = g.where(zero, g.like(1, size), size)
    return Pair(g("Div", x.re, safe), g("Div", x.im, safe))


@complex_row("select")
def _select(c: Lowering, op: Op, p: Tensor, x: Pair, y: Pair) -> Pair:
    return Pair(c.g.where(p, x.re, y.re), c.g.where(p, x.im, y.im))


@complex_row("compare")
def _compare(c: Lowering, op: Op, x: Pair, y: Pair) -> Tensor:
    g, direction = c.g, op.attrs["comparison_direction"]
    if direction not in ("EQ", "NE"):
        raise Inexpressible(f"complex numbers have no order {direction}", "compare their real parts")
    equal = g("And", g("Equal", x.re, y.re), g("Equal", x.im, y.im))
    return g("Not", equal) if direction == "NE" else equal


@complex_row("is_finite")
def _is_finite(c: Lowering, op: Op, x: Pair) -> Tensor:
    return c.g("And", elementwise._is_finite(c, op, x.re), elementwise._is_finite(c, op, x.im))


@complex_row("convert")
def _convert(c: Lowering, op: Op, x: Any) -> Any:
    if op.dtype.kind != "c":
        return elementwise.convert(c.g, x.re, op.dtype)
    part, pair = part_dtype(op.dtype), as_pair(c.g, x)
    return Pair(elementwise.convert(c.g, pair.re, part), elementwise.convert(c.g, pair.im, part))


@complex_row("maximum", "minimum")
def _extreme(c: Lowering, op: Op, x: Pair, y: Pair) -> Pair:
    """Lexicographic order of (real, imaginary)."""
    g = c.g
    compare = "Greater" if op.name == "maximum" else "Less"
    first = g("Or", g(compare, x.re, y.re), g("And", g("Equal", x.re, y.re), g(compare + "OrEqual" if compare == "Greater" else
                                                                           "LessOrEqual", x.im, y.im)))
    return Pair(g.where(first, x.re, y.re), g.where(first, x.im, y.im))


# ---- functions -------------------------------------------------------------------------------------------------------

@complex_row("exponential")
def _exp(c: Lowering, op: Op, x: Pair) -> Pair:
    """exp(re) split in two factors, so that large sizes with a small cosine do not overflow on the way."""
    g = c.g
    half = g("Exp", g("Mul", x.re, g.like(0.5, x.re)))
    re, im = g("Mul", g("Mul", half, g("Cos", x.im)), half), g("Mul", g("Mul", half, g("Sin", x.im)), half)
    return Pair(re, g.where(g("Equal", x.im, g.like(0, x.im)), x.im, im))


@complex_row("log")
def _log(c: Lowering, op: Op, x: Pair) -> Pair: return log(c.g, x)


def log(g: Graph, x: Pair) -> Pair:
    """log |x| from the larger part and, near |x| = 1, from (|x| - 1) (|x| + 1)."""
    a, b = g("Abs", x.re), g("Abs", x.im)
    large, small = g("Max", a, b), g("Min", a, b)
    near = g("And", g("Greater", large, g.like(0.5, a)), g("Less", large, g.like(2, a)))
    excess = g("Add", g("Mul", g("Sub", large, g.like(1, a)), g("Add", large, g.like(1, a))), g("Mul", small, small))
    precise = g("Mul", g.like(0.5, a), _log1p(g, g.where(near, excess, g.like(0, a))))
    return Pair(g.where(near, precise, g("Log", absolute(g, x))), elementwise.atan2(g, x.im, x.re))


def _log1p(g: Graph, x: Tensor) -> Tensor:
    u = g("Add", x, g.like(1, x))
    same = g("Equal", u, g.like(1, u))
    return g.where(same, x, g("Mul", g("Log", u), g("Div", x, g("Sub", u, g.like(1, u)))))


@complex_row("log_plus_one")
def _log_plus_one(c: Lowering, op: Op, x: Pair) -> Pair:
    """log |1 + x| = log1p(re (2 + re) + im im) / 2 where nothing overflows."""
    g = c.g
    one = Pair(g("Add", x.re, g.like(1, x.re)), x.im)
    size = g("Max", g("Abs", x.re), g("Abs", x.im))
    small = g("Less", size, g.like(0.5, size))
    excess = g("Add", g("Mul", x.re, g("Add", x.re, g.like(2, x.re))), g("Mul", x.im, x.im))
    near = g("Mul", g.like(0.5, size), _log1p(g, g.where(small, excess, g.like(0, size))))
    far = log(g, one)
    return Pair(g.where(small, near, far.re), far.im)


@complex_row("exponential_minus_one")
def _expm1(c: Lowering, op: Op, x: Pair) -> Pair:
    """re: expm1(re) cos(im) - 2 sin(im / 2)**2."""
    g = c.g
    e = elementwise._expm1(c, op, x.re)
    half = g("Sin", g("Mul", x.im, g.like(0.5, x.im)))
    re = g("Sub", g("Mul", e, g("Cos", x.im)), g("Mul", g.like(2, half), g("Mul", half, half)))
    return Pair(re, g("Mul", g("Add", e, g.like(1, e)), g("Sin", x.im)))


@complex_row("sqrt")
def _sqrt(c: Lowering, op: Op, x: Pair) -> Pair: return sqrt(c.g, x)


def sqrt(g: Graph, x: Pair) -> Pair:
    """With t = sqrt((|re| + |x|) / 2): (t, im / 2t), or turned by 90 degrees where re < 0."""
    size, half = absolute(g, x), g.like(0.5, x.re)
    quarter = g.like(0.25, x.re)
    large = g("Greater", size, g.like(1e30 if x.re.dtype.itemsize == 4 else 1e300, size))
    scale = g.where(large, quarter, g.like(1, size))
    back = g.where(large, g.like(2, size), g.like(1, size))
    t = g("Sqrt", g("Mul", half, g("Add", g("Mul", g("Abs", x.re), scale), g("Mul", size, scale))))
    t = g("Mul", t, back)
    zero = g("Equal", t, g.like(0, t))
    other = g.where(zero, g("Abs", x.im), g("Div", g("Mul", g("Abs", x.im), half), g.where(zero, g.like(1, t), t)))
    left = g("Less", x.re, g.like(0, x.re))
    im = g.where(left, t, other)
    im = g.where(elementwise.is_negative(g, x.im), g("Neg", im), im)
    infinite = g("Equal", g("Abs", x.im), g.like(np.inf, x.im))
    return Pair(g.where(infinite, g("Abs", x.im), g.where(left, other, t)), g.where(infinite, x.im, im))


@complex_row("rsqrt")
def _rsqrt(c: Lowering, op: Op, x: Pair) -> Pair:
    root = sqrt(c.g, x)
    return divide(c.g, as_pair(c.g, c.g.like(1, root.re)), root)


@complex_row("cbrt")
def _cbrt(c: Lowering, op: Op, x: Pair) -> Pair:
    third = c.g.like(1 / 3, x.re)
    return power(c, x, as_pair(c.g, third))


@complex_row("power")
def _power(c: Lowering, op: Op, x: Any, y: Any) -> Pair: return power(c, as_pair(c.g, x), as_pair(c.g, y))


def power(c: Lowering, x: Pair, y: Pair) -> Pair:
    """exp(y log x); 0 ** y is 0, and 1 for y = 0."""
    g = c.g
    found = _exp(c, Op("exponential", [], []), multiply(g, y, log(g, x)))
    no_base = g("Equal", absolute(g, x), g.like(0, x.re))
    no_exponent = g("And", g("Equal", y.re, g.like(0, y.re)), g("Equal", y.im, g.like(0, y.im)))
    one, zero = g.like(1, x.re), g.like(0, x.re)
    re = g.where(no_exponent, one, g.where(no_base, zero, found.re))
    return Pair(re, g.where(g("Or", no_exponent, no_base), zero, found.im))


def _hyperbolic(g: Graph, x: Tensor) -> tuple[Tensor, Tensor]:
    """(sinh, cosh), precise near 0."""
    e = g("Exp", x)
    inverse = g("Reciprocal", e)
    half = g.like(0.5, x)
    square = g("Mul", x, x)
    series = g("Mul", x, elementwise.polynomial(g, tuple(1 / math.factorial(n) for n in (13, 11, 9, 7, 5, 3, 1)), square))
    small = g("Less", g("Abs", x), g.like(0.4, x))
    return (g.where(small, series, g("Mul", half, g("Sub", e, inverse))), g("Mul", half, g("Add", e, inverse)))


@complex_row("sine")
def _sine(c: Lowering, op: Op, x: Pair) -> Pair:
    sinh, cosh = _hyperbolic(c.g, x.im)
    return Pair(c.g("Mul", c.g("Sin", x.re), cosh), c.g("Mul", c.g("Cos", x.re), sinh))


@complex_row("cosine")
def _cosine(c: Lowering, op: Op, x: Pair) -> Pair:
    sinh, cosh = _hyperbolic(c.g, x.im)
    return Pair(c.g("Mul", c.g("Cos", x.re), cosh), c.g("Neg", c.g("Mul", c.g("Sin", x.re), sinh)))


@complex_row("tanh")
def _tanh(c: Lowering, op: Op, x: Pair) -> Pair: return tanh(c.g, x)


def tanh(g: Graph, x: Pair) -> Pair:
    """With t = tan(im), s = sinh(re), b = 1 + t t: (b s sqrt(1 + s s), t) / (1 + b s s); a sign far from 0."""
    far = g("Greater", g("Abs", x.re), g.like(9 if x.re.dtype.itemsize == 4 else 20, x.re))
    re = g.where(far, g.like(0, x.re), x.re)
    sin, cos = g("Sin", x.im), g("Cos", x.im)
    s, cosh = _hyperbolic(g, re)
    below = g("Add", g("Mul", s, s), g("Mul", cos, cos))
    edge = g("Sign", x.re)
    return Pair(g.where(far, edge, g("Div", g("Mul", s, cosh), below)),
                g.where(far, g.like(0, x.re), g("Div", g("Mul", sin, cos), below)))


@complex_row("tan", "chlo.tan")
def _tan(c: Lowering, op: Op, x: Pair) -> Pair:
    turned = tanh(c.g, Pair(c.g("Neg", x.im), x.re))          # tan x = -i tanh(i x)
    return Pair(turned.im, c.g("Neg", turned.re))


@complex_row("logistic")
def _logistic(c: Lowering, op: Op, x: Pair) -> Pair:
    """1 / (1 + exp(-x))."""
    g, one = c.g, c.g.like(1, x.re)
    e = _exp(c, op, Pair(g("Neg", x.re), g("Neg", x.im)))
    return divide(g, as_pair(g, one), Pair(g("Add", one, e.re), e.im))


@complex_row("bitcast_convert")
def _bitcast(c: Lowering, op: Op, x: Any) -> Any:
    if isinstance(x, Pair) and op.dtype == op.operands[0].dtype:
        return x
    raise Inexpressible("the bits of complex numbers cannot be read in ONNX", "use their parts")


@complex_row("map")
def _map(c: Lowering, op: Op, *xs: Any) -> list[Any]:
    return c.vectorised(op.regions[0], xs, op.shape)


