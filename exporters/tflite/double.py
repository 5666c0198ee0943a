"""Double precision from what the runtime computes in it: addition, multiplication and the bits.

Errors are a few units in the last place, unless a docstring says otherwise.  `_two_product` gives the rounding error of a
product, which keeps quotients, roots and the reduction of angles exact enough.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .arithmetic import Arithmetic
from .graph import Tensor

MANTISSA, EXPONENT = (1 << 52) - 1, 0x7FF << 52
LN2_HIGH, LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10
#: pi/2 as an unevaluated sum
HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33)
#: 1/n!
FACTORIAL = [1 / math.factorial(n) for n in range(18)]


class Double(Arithmetic):
    """Functions of float64 tensors; `d_` marks them as the double precision form of an operation."""

    def f64(self, value: float) -> Tensor: return self.const(np.float64(value))

    def horner(self, x: Tensor, coefficients: Sequence[float]) -> Tensor:
        """c[0] + c[1] x + c[2] x^2 + ..."""
        result = self.like(x, coefficients[-1])
        for c in reversed(coefficients[:-1]):
            result = self.add(self.mul(result, x), self.like(x, c))
        return result

    # ---- parts of a number ----
    def copy_sign(self, x: Tensor, sign: Tensor) -> Tensor:
        i, s = self.bitcast(x, np.int64), self.bitcast(sign, np.int64)
        magnitude = self.bit_and(i, self.const(np.int64((1 << 63) - 1)))
        return self.bitcast(self.add(magnitude, self.bit_and(s, self.const(np.int64(-1 << 63)))), np.float64)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """|x| = m * 2^e with 1 <= m < 2, e as float64; for numbers that are neither 0 nor infinite nor NaN."""
        size = self.clear_sign(x)
        tiny = self.less(size, self.f64(2.0 ** -1022))
        size = self.select(tiny, self.mul(size, self.f64(2.0 ** 54)), size)
        i = self.bitcast(size, np.int64)
        mantissa = self.bit_and(i, self.const(np.int64(MANTISSA)))
        m = self.bitcast(self.add(mantissa, self.const(np.int64(1023 << 52))), np.float64)
        high = self.shift_right_logical(self.halves(size)[1], self.const(np.uint32(20)))
        e = self.cast(high, np.float64)
        return m, self.sub(e, self.select(tiny, self.f64(1023 + 54), self.f64(1023)))

    def power_of_two(self, k: Tensor) -> Tensor:
        """2^k for whole k from -1022 to 1023."""
        i = self.node("CAST", [self.add(k, self.f64(1023))], k.shape, np.int64)
        return self.bitcast(self.mul(i, self.const(np.int64(1 << 52))), np.float64)

    def scale(self, x: Tensor, k: Tensor) -> Tensor:
        """x * 2^k for x between 2^-60 and 2^60 or so; in two steps, because 2^k may be no number while the result is."""
        k = self.minimum_plain(self.maximum_plain(k, self.f64(-2040)), self.f64(2040))
        half = self.d_floor(self.mul(k, self.f64(0.5)))
        return self.mul(self.mul(x, self.power_of_two(half)), self.power_of_two(self.sub(k, half)))

    def _split_in_halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The upper 26 bits of the mantissa, and the rest."""
        i = self.bit_and(self.bitcast(x, np.int64), self.const(np.int64(-1 << 27)))
        high = self.bitcast(i, np.float64)
        return high, self.sub(x, high)

    def _two_product(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The rounded product and its error."""
        product = self.mul(x, y)
        (xh, xl), (yh, yl) = self._split_in_halves(x), self._split_in_halves(y)
        error = self.sub(self.mul(xh, yh), product)
        error = self.add(self.add(error, self.mul(xh, yl)), self.mul(xl, yh))
        return product, self.add(error, self.mul(xl, yl))

    # ---- rounding ----
    def d_round_nearest_even(self, x: Tensor) -> Tensor:
        size, large = self.clear_sign(x), self.f64(2.0 ** 52)
        rounded = self.copy_sign(self.sub(self.add(size, large), large), x)
        return self.select(self.less(size, large), rounded, x)

    def d_floor(self, x: Tensor) -> Tensor:
        nearest = self.d_round_nearest_even(x)
        down = self.select(self.less(x, nearest), self.sub(nearest, self.f64(1)), nearest)
        return self.select(self.equal(x, nearest), x, down)

    def d_ceil(self, x: Tensor) -> Tensor: return self.neg(self.d_floor(self.neg(x)))

    def d_truncate(self, x: Tensor) -> Tensor: return self.copy_sign(self.d_floor(self.clear_sign(x)), x)

    # ---- quotient and roots ----
    def _ratio(self, a: Tensor, b: Tensor) -> Tensor:
        """a / b for b from 1 to 4 and a of such a size: a guess in single precision, refined twice."""
        y = self.cast(self.elementwise("DIV", self.const(np.float32(1)), self.cast(b, np.float32)), np.float64)
        for _ in range(2):
            y = self.add(y, self.mul(y, self.sub(self.f64(1), self.mul(b, y))))
        q = self.mul(a, y)
        product, error = self._two_product(q, b)
        return self.add(q, self.mul(self.sub(self.sub(a, product), error), y))

    def d_divide(self, a: Tensor, b: Tensor) -> Tensor:
        (ma, ea), (mb, eb) = self.split(a), self.split(b)
        q = self.scale(self._ratio(ma, mb), self.sub(ea, eb))
        q = self._where_special(q, a, b)
        negative = self.bit_xor(self._is_negative(a), self._is_negative(b))
        q = self.select(negative, self.neg(q), q)
        return self.select(self.logical_or(self.is_nan(a), self.is_nan(b)), self.f64(np.nan), q)

    def _is_negative(self, x: Tensor) -> Tensor: return self.less(self.bitcast(x, np.int64), self.const(np.int64(0)))

    def _where_special(self, q: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """|a / b| where one is zero or infinite."""
        zero_a, zero_b = (self.equal(t, self.f64(0)) for t in (a, b))
        inf_a, inf_b = (self.equal(self.clear_sign(t), self.f64(np.inf)) for t in (a, b))
        q = self.select(self.logical_or(zero_a, inf_b), self.f64(0), q)
        q = self.select(self.logical_or(zero_b, inf_a), self.f64(np.inf), q)
        undefined = self.logical_or(self.logical_and(zero_a, zero_b), self.logical_and(inf_a, inf_b))
        return self.select(undefined, self.f64(np.nan), q)

    def d_sqrt(self, x: Tensor) -> Tensor:
        m, e = self.split(x)
        half = self.d_floor(self.mul(e, self.f64(0.5)))
        odd = self.less(self.add(half, half), e)
        m = self.select(odd, self.add(m, m), m)
        y = self.cast(self.elementwise("RSQRT", self.cast(m, np.float32)), np.float64)
        for _ in range(2):
            y = self.mul(y, self.sub(self.f64(1.5), self.mul(self.mul(self.mul(m, self.f64(0.5)), y), y)))
        s = self.mul(m, y)
        product, error = self._two_product(s, s)
        s = self.add(s, self.mul(self.mul(self.sub(self.sub(m, product), error), self.f64(0.5)), y))
        root = self.scale(s, half)
        itself = self.logical_or(self.equal(x, self.f64(0)), self.equal(x, self.f64(np.inf)))
        root = self.select(itself, x, root)
        invalid = self.logical_or(self.is_nan(x), self.less(x, self.f64(0)))
        return self.select(invalid, self.f64(np.nan), root)

    def d_rsqrt(self, x: Tensor) -> Tensor: return self.d_divide(self.f64(1), self.d_sqrt(x))

    def d_cbrt(self, x: Tensor) -> Tensor:
        """One step of Newton's iteration makes exp(log(x) / 3) accurate."""
        size = self.clear_sign(x)
        y = self.d_exponential(self.d_divide(self.d_log(size), self.f64(3)))
        better = self.sub(y, self.d_divide(self.sub(y, self.d_divide(size, self.mul(y, y))), self.f64(3)))
        usual = self.logical_and(self.less(self.f64(0), size), self.less(size, self.f64(np.inf)))
        return self.copy_sign(self.select(usual, better, size), x)

    # ---- exponentials and logarithms ----
    def d_exponential(self, x: Tensor) -> Tensor:
        bounded = self.minimum_plain(self.maximum_plain(x, self.f64(-800)), self.f64(800))
        k = self.d_round_nearest_even(self.mul(bounded, self.f64(1 / math.log(2))))
        r = self.sub(self.sub(bounded, self.mul(k, self.f64(LN2_HIGH))), self.mul(k, self.f64(LN2_LOW)))
        y = self.scale(self.horner(r, FACTORIAL[:15]), k)
        return self.select(self.is_nan(x), x, y)

    def d_exponential_minus_one(self, x: Tensor) -> Tensor:
        series = self.mul(x, self.horner(x, FACTORIAL[1:17]))
        small = self.less(self.clear_sign(x), self.f64(0.5))
        return self.select(small, series, self.sub(self.d_exponential(x), self.f64(1)))

    def d_log(self, x: Tensor) -> Tensor:
        """e ln 2 + 2 atanh((m - 1) / (m + 1)), with m between 1/sqrt 2 and sqrt 2."""
        m, e = self.split(x)
        above = self.less(self.f64(math.sqrt(2)), m)
        m = self.select(above, self.mul(m, self.f64(0.5)), m)
        e = self.select(above, self.add(e, self.f64(1)), e)
        s = self._ratio(self.sub(m, self.f64(1)), self.add(m, self.f64(1)))
        z = self.mul(s, s)
        tail = self.mul(self.mul(s, z), self.horner(z, [2 / (2 * n + 3) for n in range(10)]))
        low = self.add(self.mul(e, self.f64(LN2_LOW)), tail)
        y = self.add(self.mul(e, self.f64(LN2_HIGH)), self.add(self.add(s, s), low))
        y = self.select(self.equal(x, self.f64(0)), self.f64(-np.inf), y)
        y = self.select(self.equal(x, self.f64(np.inf)), x, y)
        invalid = self.logical_or(self.is_nan(x), self.less(x, self.f64(0)))
        return self.select(invalid, self.f64(np.nan), y)

    def d_log_plus_one(self, x: Tensor) -> Tensor:
        """log(u) + (x - (u - 1)) / u, where u = 1 + x rounded."""
        u = self.add(x, self.f64(1))
        lost = self.d_divide(self.sub(x, self.sub(u, self.f64(1))), u)
        usual = self.logical_and(self.less(self.f64(0), u), self.less(u, self.f64(np.inf)))
        y = self.add(self.d_log(u), self.select(usual, lost, self.f64(0)))
        return self.select(self.equal(x, self.f64(0)), x, y)

    def d_power(self, x: Tensor, y: Tensor) -> Tensor:
        """exp(y log |x|); a relative error of up to 1e-13 where the result is very large or very small."""
        size = self.clear_sign(x)
        result = self.d_exponential(self.mul(y, self.d_log(size)))
        return self.power_special_cases(result, x, y)

    # ---- trigonometry ----
    def _quadrant(self, x: Tensor, exact: bool = True) -> tuple[Tensor, Tensor]:
        """x = k pi/2 + r with |r| <= pi/4: r, and k as int64; NaN from 2^50 on, where the angle means nothing.

        exact: to double precision; else to single precision, in fewer steps.
        """
        k = self.d_round_nearest_even(self.mul(x, self.f64(2 / math.pi)))
        high, low = self._two_product(k, self.f64(HALF_PI[0]))
        r = self.sub(self.sub(x, high), low)
        if exact:
            high, low = self._two_product(k, self.f64(HALF_PI[1]))
            r = self.sub(self.sub(self.sub(r, high), low), self.mul(k, self.f64(HALF_PI[2])))
        else:
            r = self.sub(r, self.mul(k, self.f64(HALF_PI[1])))
        known = self.less(self.clear_sign(x), self.f64(2.0 ** 50))
        r = self.select(known, r, self.f64(np.nan))
        return r, self.node("CAST", [self.select(known, k, self.f64(0))], k.shape, np.int64)

    def _circular(self, x: Tensor, turn: int) -> Tensor:
        """sin(x + turn * pi/2)."""
        r, k = self._quadrant(x)
        z = self.mul(r, r)
        sine = self.mul(r, self.horner(z, [(-1) ** n * FACTORIAL[2 * n + 1] for n in range(8)]))
        cosine = self.horner(z, [(-1) ** n * FACTORIAL[2 * n] for n in range(9)])
        k = self.add(k, self.const(np.int64(turn)))
        odd, second = (self.equal(self.bit_and(k, self.const(np.int64(b))), self.const(np.int64(b))) for b in (1, 2))
        y = self.select(odd, cosine, sine)
        return self.select(second, self.neg(y), y)

    def d_sine(self, x: Tensor) -> Tensor:
        return self.select(self.equal(x, self.f64(0)), x, self._circular(x, 0))

    def d_cosine(self, x: Tensor) -> Tensor: return self._circular(x, 1)

    def d_tan(self, x: Tensor) -> Tensor: return self.d_divide(self.d_sine(x), self.d_cosine(x))

    def d_tanh(self, x: Tensor) -> Tensor:
        """e / (e + 2) with e = exp(2 x) - 1."""
        bounded = self.minimum_plain(self.maximum_plain(x, self.f64(-20)), self.f64(20))
        e = self.d_exponential_minus_one(self.add(bounded, bounded))
        y = self.d_divide(e, self.add(e, self.f64(2)))
        return self.select(self.is_nan(x), x, self.copy_sign(y, x))

    def d_logistic(self, x: Tensor) -> Tensor:
        return self.d_divide(self.f64(1), self.add(self.d_exponential(self.neg(x)), self.f64(1)))

    def d_remainder(self, a: Tensor, b: Tensor) -> Tensor:
        """Exact: long division, 2^50 at a time.  The quotient of two doubles has at most 2098 bits."""
        x, y = self.clear_sign(a), self.clear_sign(b)
        undefined = self.logical_or(self.equal(x, self.f64(np.inf)), self.equal(y, self.f64(0)))
        result = self.reduced(self.select(undefined, self.f64(0), x), self.select(undefined, self.f64(1), y))
        result = self.copy_sign(result, a)
        undefined = self.logical_or(undefined, self.logical_or(self.is_nan(a), self.is_nan(b)))
        return self.select(undefined, self.f64(np.nan), result)

    def reduced(self, x: Tensor, y: Tensor) -> Tensor:
        """x modulo y of positive numbers, a loop that takes off at least 2^50 y / 2 while x / y is larger than that."""
        shape = next((t.shape for t in (x, y) if t.rank), ())
        x, y = self.broadcast(x, shape), self.broadcast(y, shape)

        def unfinished(g, x, y):
            return g.any(g.compare("GE", x, y))

        def step(g, x, y):
            return [g.select(g.compare("GE", x, y), g._take_off(x, y), x), y]
        return self.while_loop(unfinished, step, [x, y])[0]

    def _take_off(self, x: Tensor, y: Tensor) -> Tensor:
        """x - q y for a whole q that is a little too small: exact, and not negative."""
        (mx, ex), (my, ey) = self.split(x), self.split(y)
        k = self.maximum_plain(self.sub(self.sub(ex, ey), self.f64(50)), self.f64(0))
        q = self.d_floor(self.scale(self._ratio(mx, my), self.sub(self.sub(ex, ey), k)))
        y = self.mul(y, self.power_of_two(self.minimum_plain(k, self.f64(1023))))
        product, error = self._two_product(q, y)
        r = self.sub(self.sub(x, product), error)
        return self.select(self.less(r, self.f64(0)), self.add(r, y), r)
