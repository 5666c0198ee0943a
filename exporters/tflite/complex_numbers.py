"""Complex numbers as pairs of real tensors: the runtime has next to no complex arithmetic.

`Math`, the last layer, takes real tensors and `Complex` ones under the same names.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from .functions import Functions
from .graph import Tensor

PARTS = {np.dtype(np.complex64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.float64)}
#: beyond this the hyperbolic tangent is 1 in the element type
TANH_IS_ONE = {"float32": 20, "float64": 40}


class Complex:
    """A complex value: its real and its imaginary part, of one shape and type."""
    __slots__ = ("re", "im")

    def __init__(self, re: Tensor, im: Tensor):
        self.re, self.im = re, im

    shape = property(lambda self: self.re.shape if self.re.rank else self.im.shape)
    rank = property(lambda self: len(self.shape))
    size = property(lambda self: max(self.re.size, self.im.size))
    value = property(lambda self: None)

    @property
    def dtype(self) -> np.dtype: return next(c for c, part in PARTS.items() if part == self.re.dtype)


def constant(g: Functions, value: np.ndarray) -> Any:
    """A constant of any element type."""
    if value.dtype not in PARTS:
        return g.const(value)
    return Complex(g.const(np.real(value)), g.const(np.imag(value)))


def parts(value: Any) -> tuple[Tensor, ...]:
    """A real value as itself, a complex one as its parts."""
    return (value.re, value.im) if isinstance(value, Complex) else (value,)


def both(f: Any, *zs: Any) -> Any:
    """f on the parts of complex values, or on real ones: for what only moves elements."""
    if not any(isinstance(z, Complex) for z in zs):
        return f(*zs)
    re, im = ([getattr(z, part) if isinstance(z, Complex) else z for z in zs] for part in ("re", "im"))
    return Complex(f(*re), f(*im))


class ComplexMath:
    """Functions of `Complex` values, named as their real forms; `r` computes with the parts."""

    def __init__(self, real: Functions):
        self.r = real

    def real(self, z: Complex) -> Tensor: return z.re

    def imag(self, z: Complex) -> Tensor: return z.im

    # ---- arithmetic ----
    def add(self, z: Complex, w: Complex) -> Complex: return both(self.r.add, z, w)

    def sub(self, z: Complex, w: Complex) -> Complex: return both(self.r.sub, z, w)

    def neg(self, z: Complex) -> Complex: return both(self.r.neg, z)

    def mul(self, z: Complex, w: Complex) -> Complex:
        r = self.r
        return Complex(r.sub(r.mul(z.re, w.re), r.mul(z.im, w.im)), r.add(r.mul(z.re, w.im), r.mul(z.im, w.re)))

    def times(self, z: Complex, x: Tensor) -> Complex: return both(lambda part: self.r.mul(part, x), z)

    def divide(self, z: Complex, w: Complex) -> Complex:
        """Smith's method: by the larger part of w, which is made the real one.  By 0: infinite parts."""
        r = self.r
        zero = r.like(w.re, 0)
        by_zero = r.logical_and(r.equal(w.re, zero), r.equal(w.im, zero))
        swap = r.less(r.abs(w.re), r.abs(w.im))
        a, b = r.select(swap, z.im, z.re), r.select(swap, r.neg(z.re), z.im)
        c, d = r.select(swap, w.im, w.re), r.select(swap, r.neg(w.re), w.im)
        q = r.select(by_zero, zero, r.divide(d, c))
        size = r.add(c, r.mul(d, q))
        return Complex(r.divide(r.add(a, r.mul(b, q)), size), r.divide(r.sub(b, r.mul(a, q)), size))

    def abs(self, z: Complex) -> Tensor:
        """Neither overflows nor loses small numbers: large * sqrt(1 + (small / large)^2)."""
        r = self.r
        a, b = r.abs(z.re), r.abs(z.im)
        large, small = r.maximum(a, b), r.minimum(a, b)
        extreme = r.logical_or(r.equal(large, r.like(a, 0)), r.equal(large, r.like(a, np.inf)))
        q = r.divide(small, r.select(extreme, r.like(a, 1), large))
        size = r.mul(large, r.sqrt(r.add(r.like(a, 1), r.mul(q, q))))
        infinite = r.logical_or(r.equal(a, r.like(a, np.inf)), r.equal(b, r.like(a, np.inf)))
        return r.select(infinite, r.like(a, np.inf), r.select(extreme, large, size))

    def sign(self, z: Complex) -> Complex:
        r, size = self.r, self.abs(z)
        zero = r.equal(size, r.like(size, 0))
        safe = r.select(zero, r.like(size, 1), size)
        return both(lambda part: r.divide(part, safe), z)

    def compare(self, direction: str, z: Complex, w: Complex, total: bool = False) -> Tensor:
        """EQ and NE; the order of parts, real first, for the others."""
        r = self.r
        re, im = r.equal(z.re, w.re), r.equal(z.im, w.im)
        if direction in ("EQ", "NE"):
            same = r.logical_and(re, im)
            return same if direction == "EQ" else r.logical_not(same)
        strict = direction[0] + "T"
        return r.logical_or(r.compare(strict, z.re, w.re), r.logical_and(re, r.compare(direction, z.im, w.im)))

    def maximum(self, z: Complex, w: Complex) -> Complex: return self.select(self.compare("GT", z, w), z, w)

    def minimum(self, z: Complex, w: Complex) -> Complex: return self.select(self.compare("LT", z, w), z, w)

    def select(self, predicate: Tensor, z: Complex, w: Complex) -> Complex:
        return both(lambda a, b: self.r.select(predicate, a, b), z, w)

    def is_finite(self, z: Complex) -> Tensor: return self.r.logical_and(self.r.is_finite(z.re), self.r.is_finite(z.im))

    # ---- exponentials, logarithms, roots ----
    def exponential(self, z: Complex) -> Complex:
        r = self.r
        size = r.exponential(z.re)
        im = r.select(r.equal(z.im, r.like(z.im, 0)), z.im, r.mul(size, r.sine(z.im)))
        return Complex(r.mul(size, r.cosine(z.im)), im)

    def exponential_minus_one(self, z: Complex) -> Complex:
        """expm1(a) cos b - 2 sin^2(b / 2), and exp(a) sin b."""
        r = self.r
        half = r.sine(r.mul(z.im, r.like(z.im, 0.5)))
        less = r.mul(r.mul(half, half), r.like(half, 2))
        re = r.sub(r.mul(r.exponential_minus_one(z.re), r.cosine(z.im)), less)
        return Complex(re, r.mul(r.exponential(z.re), r.sine(z.im)))

    def log(self, z: Complex) -> Complex:
        return Complex(self._log_abs(z), self.r.atan2(z.im, z.re))

    def _log_abs(self, z: Complex) -> Tensor:
        """log |z|; near 1 by log1p((|a| - 1) (|a| + 1) + b^2) / 2, where a is the larger part."""
        r = self.r
        a, b = r.abs(z.re), r.abs(z.im)
        large, small, one = r.maximum(a, b), r.minimum(a, b), r.like(a, 1)
        excess = r.add(r.mul(r.sub(large, one), r.add(large, one)), r.mul(small, small))
        near = r.logical_and(r.less(r.like(a, 0.5), large), r.less(large, r.like(a, 2)))
        accurate = r.mul(r.log_plus_one(r.select(near, excess, r.like(a, 0))), r.like(a, 0.5))
        return r.select(near, accurate, r.log(self.abs(z)))

    def log_plus_one(self, z: Complex) -> Complex:
        r = self.r
        one = r.like(z.re, 1)
        shifted = Complex(r.add(z.re, one), z.im)
        excess = r.add(r.mul(z.re, r.add(z.re, r.like(z.re, 2))), r.mul(z.im, z.im))
        near = r.less(r.abs(excess), r.like(z.re, 0.5))
        accurate = r.mul(r.log_plus_one(r.select(near, excess, r.like(z.re, 0))), r.like(z.re, 0.5))
        return Complex(r.select(near, accurate, self._log_abs(shifted)), r.atan2(z.im, shifted.re))

    def sqrt(self, z: Complex) -> Complex:
        """u = sqrt((|z| + |a|) / 2) is the larger part of the root, b / (2 u) the other."""
        r = self.r
        zero, half = r.like(z.re, 0), r.like(z.re, 0.5)
        u = r.sqrt(r.add(r.mul(self.abs(z), half), r.mul(r.abs(z.re), half)))
        none = r.equal(u, zero)
        v = r.divide(r.mul(z.im, half), r.select(none, r.like(u, 1), u))
        infinite = r.equal(u, r.like(u, np.inf))
        v = r.select(r.logical_and(infinite, r.is_finite(z.re)), z.im, v)
        left = r.less(z.re, zero)
        negative = r.less(z.im, zero)
        other = r.select(negative, r.neg(u), u)
        return Complex(r.select(left, r.abs(v), u), r.select(left, other, v))

    def rsqrt(self, z: Complex) -> Complex: return self.divide(self._one(z), self.sqrt(z))

    def _one(self, z: Complex) -> Complex: return Complex(self.r.like(z.re, 1), self.r.like(z.re, 0))

    def cbrt(self, z: Complex) -> Complex:
        third = Complex(self.r.like(z.re, 1 / 3), self.r.like(z.re, 0))
        return self.power(z, third)

    def power(self, z: Complex, w: Complex) -> Complex:
        """exp(w log z).  0^w is 0 for a positive w, 1 for 0 and undefined for others."""
        r = self.r
        zero = r.like(z.re, 0)
        none, nought = (r.logical_and(r.equal(t.re, zero), r.equal(t.im, zero)) for t in (z, w))
        positive = r.logical_and(r.less(zero, w.re), r.equal(w.im, zero))
        result = self.exponential(self.mul(w, self.log(z)))
        result = self.select(r.logical_and(none, positive), Complex(zero, zero), result)
        return self.select(nought, self._one(z), result)

    def logistic(self, z: Complex) -> Complex:
        return self.divide(self._one(z), self.add(self._one(z), self.exponential(self.neg(z))))

    # ---- trigonometry ----
    def _hyperbolic(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """sinh x and cosh x."""
        r, half = self.r, self.r.like(x, 0.5)
        size = r.abs(x)
        e = r.exponential_minus_one(size)
        up = r.add(e, r.like(x, 1))
        sinh = r.mul(half, r.add(e, r.divide(e, up)))
        sinh = r.select(r.equal(e, r.like(x, np.inf)), e, sinh)
        cosh = r.mul(half, r.add(up, r.divide(r.like(x, 1), up)))
        return r.select(r.less(x, r.like(x, 0)), r.neg(sinh), sinh), cosh

    def sine(self, z: Complex) -> Complex:
        r = self.r
        sinh, cosh = self._hyperbolic(z.im)
        return Complex(r.mul(r.sine(z.re), cosh), r.mul(r.cosine(z.re), sinh))

    def cosine(self, z: Complex) -> Complex:
        r = self.r
        sinh, cosh = self._hyperbolic(z.im)
        return Complex(r.mul(r.cosine(z.re), cosh), r.neg(r.mul(r.sine(z.re), sinh)))

    def tanh(self, z: Complex) -> Complex:
        """(sinh a cosh a + i sin b cos b) / (sinh^2 a + cos^2 b)."""
        r = self.r
        bound = r.like(z.re, TANH_IS_ONE[z.re.dtype.name])
        sinh, cosh = self._hyperbolic(r.minimum(r.maximum(z.re, r.neg(bound)), bound))
        sine, cosine = r.sine(z.im), r.cosine(z.im)
        size = r.add(r.mul(sinh, sinh), r.mul(cosine, cosine))
        return Complex(r.divide(r.mul(sinh, cosh), size), r.divide(r.mul(sine, cosine), size))

    def tan(self, z: Complex) -> Complex:
        """-i tanh(i z)."""
        found = self.tanh(Complex(self.r.neg(z.im), z.re))
        return Complex(found.im, self.r.neg(found.re))

    def atan2(self, y: Complex, x: Complex) -> Complex:
        """-i log((x + i y) / sqrt(x^2 + y^2))."""
        turned = self.add(x, Complex(self.r.neg(y.im), y.re))
        root = self.sqrt(self.add(self.mul(x, x), self.mul(y, y)))
        found = self.log(self.divide(turned, root))
        return Complex(found.im, self.r.neg(found.re))

    def cast(self, z: Complex, dtype: Any) -> Any:
        if np.dtype(dtype) in PARTS:
            return both(lambda part: self.r.cast(part, PARTS[np.dtype(dtype)]), z)
        return self.r.cast(z.re, dtype)


class Math(Functions):
    """Real and complex elementwise operations under one name."""

    @property
    def complex(self) -> ComplexMath: return ComplexMath(self)

    def cast_any(self, x: Any, dtype: Any) -> Any:
        dtype = np.dtype(dtype)
        if isinstance(x, Complex):
            return self.complex.cast(x, dtype)
        if dtype in PARTS:
            return Complex(self.cast(x, PARTS[dtype]), self.full(x.shape, 0, PARTS[dtype]))
        return self.cast(x, dtype)

    def call(self, name: str, *xs: Any, **attributes: Any) -> Any:
        """An elementwise operation by its StableHLO name."""
        name = METHODS.get(name, name)
        where = self.complex if any(isinstance(x, Complex) for x in xs) else self
        return getattr(where, name)(*xs, **attributes)


#: StableHLO names of methods that are called otherwise
METHODS = {"subtract": "sub", "multiply": "mul", "negate": "neg", "and": "bit_and", "or": "bit_or", "xor": "bit_xor",
           "not": "bit_not"}
