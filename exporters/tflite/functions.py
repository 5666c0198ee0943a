"""Elementwise functions of real numbers by the names of StableHLO, on every element type."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .arithmetic import WIDER, bits, is_float
from .double import Double
from .graph import Tensor

#: StableHLO name -> kernel for float32; double precision has a method `d_NAME`
KERNELS = {"exponential": "EXP", "log": "LOG", "sqrt": "SQRT", "rsqrt": "RSQRT", "sine": "SIN", "cosine": "COS",
           "tanh": "TANH", "logistic": "LOGISTIC", "floor": "FLOOR", "ceil": "CEIL", "round_nearest_even": "ROUND"}


class Functions(Double):
    """Real functions.  Each is computed in float32 or float64; narrower types are computed in float32 and rounded."""

    def real_function(self, name: str, *xs: Tensor) -> Tensor:
        """f16 and bf16 through float32, float64 by `d_NAME`, float32 by a kernel or `s_NAME`."""
        dtype = xs[0].dtype
        if dtype.name in WIDER:
            return self._widened(lambda *ys: self.real_function(name, *ys), *xs)
        if dtype == np.float64:
            return getattr(self, f"d_{name}")(*xs)
        own = getattr(self, f"s_{name}", None)
        return own(*xs) if own else self.elementwise(KERNELS[name], *xs)

    # ---- single precision, where there is no kernel or one that fails at the ends of its range ----
    def s_exponential(self, x: Tensor) -> Tensor:
        """The kernel gives 0 for NaN."""
        return self._keep_nan(x, self.elementwise("EXP", x))

    def s_log(self, x: Tensor) -> Tensor:
        """The kernel does not know infinity, NaN and the numbers from 2^127 on."""
        big = self.less(self.like(x, 2.0 ** 100), x)
        y = self.elementwise("LOG", self.select(big, self.mul(x, self.like(x, 2.0 ** -64)), x))
        y = self.add(y, self.select(big, self.like(x, 64 * np.log(2)), self.like(x, 0)))
        return self.select(self.less(x, self.like(x, np.inf)), y, x)

    def s_logistic(self, x: Tensor) -> Tensor:
        """The runtime's delegate gives NaN for finite numbers from 2^91 on, which 0 and 1 stand for long before."""
        big = self.less(self.like(x, 2.0 ** 64), self.abs(x))
        return self.elementwise("LOGISTIC", self.select(big, self.mul(x, self.like(x, 2.0 ** -40)), x))

    def s_sqrt(self, x: Tensor) -> Tensor:
        """The kernel is wrong from 2^126 on."""
        big = self.less(self.like(x, 2.0 ** 100), x)
        y = self.elementwise("SQRT", self.select(big, self.mul(x, self.like(x, 2.0 ** -64)), x))
        return self.select(big, self.mul(y, self.like(x, 2.0 ** 32)), y)

    def s_rsqrt(self, x: Tensor) -> Tensor:
        """The kernel gives NaN for 0."""
        return self.elementwise("DIV", self.like(x, 1), self.s_sqrt(x))

    def _small_angle(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x = k pi/2 + r with r between -pi/4 and pi/4, found in double precision: the kernels are right for a few turns,
        and senseless from some thousands on.  r as float32, k as int32; NaN from 2^50 on."""
        r, k = self._quadrant(self.cast(x, np.float64), exact=False)
        k = self.bit_and(self.node("CAST", [k], k.shape, np.int32), self.const(np.int32(3)))
        return self.cast(r, np.float32), k

    def _has_double(self) -> bool:
        """Runtimes without arithmetic in double precision have kernels for angles of any size."""
        return self.profile.has("STABLEHLO_MULTIPLY", np.dtype(np.float64))

    def _turned(self, x: Tensor, turn: int) -> Tensor:
        """sin(x + turn * pi/2)."""
        if not self._has_double():
            return self.elementwise(("SIN", "COS")[turn], x)
        r, k = self._small_angle(x)
        k = self.add(k, self.const(np.int32(turn)))
        odd, second = (self.equal(self.bit_and(k, self.const(np.int32(b))), self.const(np.int32(b))) for b in (1, 2))
        y = self.select(odd, self.elementwise("COS", r), self.elementwise("SIN", r))
        return self.select(second, self.neg(y), y)

    def s_sine(self, x: Tensor) -> Tensor: return self._turned(x, 0)

    def s_cosine(self, x: Tensor) -> Tensor: return self._turned(x, 1)

    def s_tan(self, x: Tensor) -> Tensor:
        if not self._has_double():
            return self.elementwise("DIV", self.elementwise("SIN", x), self.elementwise("COS", x))
        r, k = self._small_angle(x)
        odd = self.equal(self.bit_and(k, self.const(np.int32(1))), self.const(np.int32(1)))
        sine, cosine = self.elementwise("SIN", r), self.elementwise("COS", r)
        return self.elementwise("DIV", self.select(odd, self.neg(cosine), sine), self.select(odd, sine, cosine))

    def s_exponential_minus_one(self, x: Tensor) -> Tensor:
        """tanh(x / 2) (exp(x) + 1) keeps the digits near 0."""
        e = self.s_exponential(x)
        near = self.mul(self.elementwise("TANH", self.mul(x, self.like(x, 0.5))), self.add(e, self.like(x, 1)))
        small = self.less(self.abs(x), self.like(x, 0.5))
        return self.select(small, near, self.sub(e, self.like(x, 1)))

    def s_log_plus_one(self, x: Tensor) -> Tensor:
        """2 atanh(x / (2 + x)) as a series near 0, where the kernel loses the digits."""
        small = self.less(self.abs(x), self.like(x, 0.3))
        s = self.elementwise("DIV", x, self.select(small, self.add(x, self.like(x, 2)), self.like(x, 1)))
        series = self.mul(self.add(s, s), self.horner(self.mul(s, s), [1 / (2 * n + 1) for n in range(6)]))
        return self.select(small, series, self.s_log(self.add(x, self.like(x, 1))))

    def s_cbrt(self, x: Tensor) -> Tensor:
        """One step of Newton's iteration after a power."""
        size = self.abs(x)
        y = self.elementwise("POW", size, self.like(x, 1 / 3))
        usual = self.logical_and(self.less(self.like(x, 0), size), self.less(size, self.like(x, np.inf)))
        y2 = self.select(usual, self.mul(y, y), self.like(x, 1))
        better = self.sub(y, self.mul(self.sub(y, self.elementwise("DIV", size, y2)), self.like(x, 1 / 3)))
        root = self.select(usual, better, size)
        return self.select(self.less(x, self.like(x, 0)), self.neg(root), root)

    def s_atan2(self, y: Tensor, x: Tensor) -> Tensor: return self.elementwise("ATAN2", y, x)

    def d_atan2(self, y: Tensor, x: Tensor) -> Tensor: return self.elementwise("ATAN2", y, x)

    def s_power(self, x: Tensor, y: Tensor) -> Tensor: return self.elementwise("POW", x, y)

    def s_divide(self, x: Tensor, y: Tensor) -> Tensor: return self.elementwise("DIV", x, y)

    def s_remainder(self, x: Tensor, y: Tensor) -> Tensor:
        """FLOOR_MOD of sizes, with the sign of x."""
        r = self.elementwise("FLOOR_MOD", self.abs(x), self.abs(y))
        return self.select(self.less(x, self.like(x, 0)), self.neg(r), r)

    # ---- for both precisions ----
    def power_special_cases(self, result: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """exp(y log |x|) -> x^y: signs, zeros, infinities and 1, as IEEE 754 has them."""
        zero, one = self.like(x, 0), self.like(x, 1)
        whole = self.equal(self.floor(y), y)
        half = self.mul(y, self.like(y, 0.5))
        odd = self.logical_and(whole, self.compare("NE", self.floor(half), half))
        negative = self.less(x, zero)
        result = self.select(self.logical_and(self._is_negative(x), odd), self.neg(result), result)
        finite_base = self.less(self.abs(x), self.like(x, np.inf))
        invalid = self.logical_and(self.logical_and(negative, finite_base), self.logical_not(whole))
        result = self.select(invalid, self.like(x, np.nan), result)
        minus_one = self.logical_and(self.equal(self.abs(x), one), self.equal(self.abs(y), self.like(y, np.inf)))
        result = self.select(minus_one, one, result)
        return self.select(self.logical_or(self.equal(x, one), self.equal(y, zero)), one, result)

    def sign(self, x: Tensor) -> Tensor:
        if self.profile.has("SIGN", x.dtype) and not is_float(x.dtype):
            return self.elementwise("SIGN", x)
        zero = self.like(x, 0)
        positive = self.select(self.less(zero, x), self.like(x, 1), x)
        return positive if x.dtype.kind in "ub" else self.select(self.less(x, zero), self.like(x, -1), positive)

    def floor(self, x: Tensor) -> Tensor: return self.real_function("floor", x)

    def round_nearest_afz(self, x: Tensor) -> Tensor:
        """Halves away from zero."""
        size = self.abs(x)
        down = self.floor(size)
        up = self.compare("GE", self.sub(size, down), self.like(x, 0.5))
        size = self.select(up, self.add(down, self.like(x, 1)), down)
        return self.select(self.less(x, self.like(x, 0)), self.neg(size), size)

    def is_finite(self, x: Tensor) -> Tensor: return self.less(self.abs(x), self.like(x, np.inf))

    def clamp(self, low: Tensor, x: Tensor, high: Tensor) -> Tensor: return self.minimum(self.maximum(x, low), high)

    def reduce_precision(self, x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
        """Rounded to nearest even in integer arithmetic on the bits; too large is infinite, too small is zero."""
        if x.dtype.name in WIDER:
            return self._widened(lambda y: self.reduce_precision(y, exponent_bits, mantissa_bits), x)
        width, mantissa = (32, 23) if x.dtype == np.float32 else (64, 52)
        kind = np.dtype(f"int{width}")
        size = self.bitcast(self.clear_sign(x), kind)
        drop = mantissa - mantissa_bits
        if drop > 0:
            last = self.bit_and(self.shift_right_logical(size, self.const(kind.type(drop))), self.const(kind.type(1)))
            size = self.add(size, self.add(last, self.const(kind.type((1 << drop - 1) - 1))))
            size = self.bit_and(size, self.const(kind.type(-1 << drop)))
        size = self._exponent_in_range(size, kind, exponent_bits, mantissa, drop)
        sign = self.bit_and(self.bitcast(x, kind), self.const(np.array(np.iinfo(kind).min, kind)))
        return self.select(self.is_nan(x), x, self.bitcast(self.add(size, sign), x.dtype))

    def _exponent_in_range(self, size: Tensor, kind: np.dtype, exponent_bits: int, mantissa: int, drop: int) -> Tensor:
        bias = (1 << bits(kind) - 2 - mantissa) - 1
        target = (1 << exponent_bits - 1) - 1
        infinite = kind.type((2 * bias + 1) << mantissa)
        if target < bias:
            largest = kind.type((bias + target << mantissa) | ((1 << mantissa) - (1 << max(drop, 0))))
            smallest = kind.type(bias - target + 1 << mantissa)
            size = self.select(self.less(self.const(largest), size), self.const(infinite), size)
            size = self.select(self.less(size, self.const(smallest)), self.const(kind.type(0)), size)
        return self.minimum_plain(size, self.const(infinite))

    # ---- integers ----
    def divide(self, x: Tensor, y: Tensor) -> Tensor:
        """Integers: truncated; x / 0 is -1 (all bits set) and the smallest number / -1 is itself."""
        return self.real_function("divide", x, y) if is_float(x.dtype) else self._integer("int_divide", x, y)

    def remainder(self, x: Tensor, y: Tensor) -> Tensor:
        """Of the sign of x; integers: x modulo 0 is x."""
        return self.real_function("remainder", x, y) if is_float(x.dtype) else self._integer("int_remainder", x, y)

    def _integer(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        """In int32 or int64, which hold all operands except uint64."""
        zero = self.equal(y, self.like(y, 0))
        safe = self.select(zero, self.like(y, 1), y)
        function: Callable = getattr(self, name)
        wider = {"uint32": "int64"}.get(x.dtype.name, WIDER.get(x.dtype.name))
        if x.dtype == np.uint64:
            found = self._unsigned_64(name, x, safe)
        elif wider:
            found = self.cast(function(self.cast(x, wider), self.cast(safe, wider)), x.dtype)
        else:
            found = function(x, safe)
        undefined = x if name == "int_remainder" else self.like(x, -1 if x.dtype.kind == "i" else np.iinfo(x.dtype).max)
        return self.select(zero, undefined, found)

    def _by_minus_one(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Whether y is -1, where the processor fails on the smallest number; y with 1 instead."""
        minus = self.equal(y, self.like(y, -1))
        return minus, self.select(minus, self.like(y, 1), y)

    def int_remainder(self, x: Tensor, y: Tensor) -> Tensor:
        """y is not 0.  FLOOR_MOD has the sign of y."""
        _, y = self._by_minus_one(y)
        r, zero = self.elementwise("FLOOR_MOD", x, y), self.like(x, 0)
        differ = self.compare("NE", self.less(x, zero), self.less(y, zero))
        wrong = self.logical_and(differ, self.compare("NE", r, zero))
        return self.select(wrong, self.sub(r, y), r)

    def int_divide(self, x: Tensor, y: Tensor) -> Tensor:
        """y is not 0.  64 bits: an exact quotient x - r by y, guessed in double precision and corrected once."""
        minus, safe = self._by_minus_one(y)
        if x.dtype == np.int32:
            q = self.elementwise("DIV", x, safe)
        else:
            exact, divisor = self.sub(x, self.int_remainder(x, safe)), self.cast(safe, np.float64)
            q = self._nearest_quotient(exact, divisor)
            q = self.add(q, self._nearest_quotient(self.sub(exact, self.mul(q, safe)), divisor))
        return self.select(minus, self.neg(x), q)

    def _nearest_quotient(self, x: Tensor, divisor: Tensor) -> Tensor:
        return self.cast(self.d_round_nearest_even(self.d_divide(self.cast(x, np.float64), divisor)), np.int64)

    def _unsigned_64(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        """Half of x, signed, by y, doubled and corrected; a y of 2^63 or more goes in at most once."""
        small = self.compare("GE", self.bitcast(y, np.int64), self.const(np.int64(0)))
        divisor = self.bitcast(self.select(small, y, self.like(y, 1)), np.int64)
        half = self.bitcast(self.shift_right_logical(x, self.like(x, 1)), np.int64)
        q = self.bitcast(self.int_divide(half, divisor), np.uint64)
        q = self.select(small, self.add(q, q), self.like(q, 0))
        r = self.sub(x, self.mul(q, y))
        more = self.compare("GE", r, y)
        if name == "int_remainder":
            return self.select(more, self.sub(r, y), r)
        return self.select(more, self.add(q, self.like(q, 1)), q)

    def power(self, x: Tensor, y: Tensor) -> Tensor:
        if is_float(x.dtype):
            return self.real_function("power", x, y)
        return self._int_power(x, y)

    def _int_power(self, x: Tensor, y: Tensor) -> Tensor:
        """By squaring; a negative exponent gives 0, or 1 and -1 for those bases."""
        result, base, one = self.like(x, 1), x, self.like(x, 1)
        known = y.value is not None and y.value.size and y.value.min() >= 0
        for i in range(int(y.value.max()).bit_length() if known else bits(x.dtype)):
            taken = self.bit_and(self.shift_right_logical(y, self.like(y, i)), one)
            result = self.select(self.equal(taken, one), self.mul(result, base), result)
            base = self.mul(base, base)
        if known or y.dtype.kind == "u":
            return self.broadcast(result, x.shape)
        parity = self.equal(self.bit_and(y, one), one)
        inverse = self.select(self.equal(x, one), one, self.like(x, 0))
        minus = self.select(parity, self.like(x, -1), one)
        inverse = self.select(self.equal(x, self.like(x, -1)), minus, inverse)
        return self.select(self.less(y, self.like(y, 0)), inverse, result)

    def popcnt(self, x: Tensor) -> Tensor:
        """Sums of neighbouring groups of bits, in 32 bits."""
        if x.dtype.itemsize == 8:
            low, high = (self.popcnt(t) for t in self.halves(x))
            return self.cast(self.add(low, high), x.dtype)
        u = self.bitcast(x, f"uint{bits(x.dtype)}")
        v = self.cast(u, np.uint32)

        def fields(t, shift, mask): return self.bit_and(self.shift_right_logical(t, self.like(t, shift)), self.like(t, mask))
        v = self.sub(v, fields(v, 1, 0x55555555))
        v = self.add(self.bit_and(v, self.like(v, 0x33333333)), fields(v, 2, 0x33333333))
        v = self.bit_and(self.add(v, self.shift_right_logical(v, self.like(v, 4))), self.like(v, 0x0F0F0F0F))
        return self.cast(self.shift_right_logical(self.mul(v, self.like(v, 0x01010101)), self.like(v, 24)), x.dtype)

    def count_leading_zeros(self, x: Tensor) -> Tensor:
        """All bits below the highest one set, and the others counted."""
        u, width = x, bits(x.dtype)
        for shift in (1, 2, 4, 8, 16, 32):
            if shift < width:
                u = self.bit_or(u, self.shift_right_logical(u, self.like(u, shift)))
        return self.popcnt(self.bit_not(u))


def _forwarded(name: str) -> Callable:
    def function(self: Functions, *xs: Tensor) -> Tensor: return self.real_function(name, *xs)
    function.__name__, function.__doc__ = name, f"StableHLO's {name} of real numbers."
    return function


for _name in [*KERNELS, "exponential_minus_one", "log_plus_one", "cbrt", "tan", "atan2"]:
    if not hasattr(Functions, _name):
        setattr(Functions, _name, _forwarded(_name))
