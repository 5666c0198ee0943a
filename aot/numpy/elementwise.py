"""Mathematical functions of each element: trigonometry, exponentials, rounding, floating-point parts, tests."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aot import dtypes, lax
from aot.api import jvp
from aot.array_methods import ArrayMethods
from aot.custom import custom_jvp
from aot.numpy._util import (
    BOOL,
    INEXACT,
    array_of,
    arrays,
    broadcast,
    cast,
    concrete_index,
    constant,
    default_float,
    dtype_of,
    fused,
    inexact,
    kind,
    named,
    no_out,
    promote_args,
    quick,
    where,
)
from aot.numpy.ufuncs import absolute, greater, less, maximum, minimum

_INT_OF_BITS = {16: np.dtype(np.int16), 32: np.dtype(np.int32), 64: np.dtype(np.int64)}


def _float_function(name: str, op: Callable, doc: str) -> Callable:
    """A function that computes in floats: integers are converted first, floats and complex go straight to `op`."""

    def fun(x, /):
        if isinstance(x, ArrayMethods) and x.aval.dtype in INEXACT:
            return op(x)
        return op(*promote_args(name, x, to=inexact))

    fun.__name__ = fun.__qualname__ = name
    fun.__module__, fun.__doc__ = "aot.numpy", doc
    return fun


exp = _float_function("exp", lax.exp, "e ** x.")
exp2 = _float_function("exp2", lax.exp2, "2 ** x.")
expm1 = _float_function("expm1", lax.expm1, "exp(x) - 1, exact near 0.")
log = _float_function("log", lax.log, "Natural logarithm.")
log1p = _float_function("log1p", lax.log1p, "log(1 + x), exact near 0.")
sqrt = _float_function("sqrt", lax.sqrt, "Square root.")
cbrt = _float_function("cbrt", lax.cbrt, "Cube root.")
sin = _float_function("sin", lax.sin, "Sine of an angle in radians.")
cos = _float_function("cos", lax.cos, "Cosine of an angle in radians.")
tan = _float_function("tan", lax.tan, "Tangent of an angle in radians.")
sinh = _float_function("sinh", lax.sinh, "Hyperbolic sine.")
cosh = _float_function("cosh", lax.cosh, "Hyperbolic cosine.")
tanh = _float_function("tanh", lax.tanh, "Hyperbolic tangent.")
arcsin = _float_function("arcsin", lax.asin, "Inverse sine, in radians.")
arccos = _float_function("arccos", lax.acos, "Inverse cosine, in radians.")
arctan = _float_function("arctan", lax.atan, "Inverse tangent, in radians.")
arcsinh = _float_function("arcsinh", lax.asinh, "Inverse hyperbolic sine.")
arctanh = _float_function("arctanh", lax.atanh, "Inverse hyperbolic tangent.")
asin = _float_function("asin", lax.asin, "Inverse sine, in radians.")
acos = _float_function("acos", lax.acos, "Inverse cosine, in radians.")
atan = _float_function("atan", lax.atan, "Inverse tangent, in radians.")
asinh = _float_function("asinh", lax.asinh, "Inverse hyperbolic sine.")
atanh = _float_function("atanh", lax.atanh, "Inverse hyperbolic tangent.")


@named()
def arccosh(x: Any, /) -> Any:
    """Inverse hyperbolic cosine; the branch with a real part >= 0 for complex numbers."""
    y = lax.acosh(*promote_args("arccosh", x, to=inexact))
    if kind(y.dtype) != "c":
        return y
    return where(lax.lt(lax.real(y), cast(0, lax.real(y).dtype)), lax.neg(y), y)


def acosh(x: Any, /) -> Any:
    """Inverse hyperbolic cosine."""
    return arccosh(*promote_args("acosh", x))


def arctan2(x1: Any, x2: Any, /) -> Any:
    """Angle of the point (x2, x1), in radians in [-pi, pi]."""
    return lax.atan2(*promote_args("arctan2", x1, x2, to=inexact))


def atan2(x1: Any, x2: Any, /) -> Any:
    """Angle of the point (x2, x1), in radians in [-pi, pi]."""
    return lax.atan2(*promote_args("atan2", x1, x2, to=inexact))


def _scaled_log(name: str, x: Any, scale: Callable[[Any, Any], Any]) -> Any:
    """log(x) with its real and imaginary part scaled by `scale(part, dtype)`."""
    (x,) = promote_args(name, x, to=inexact)
    y = lax.log(x)
    if kind(dtype_of(y)) != "c":
        return scale(y, y.dtype)
    re, im = lax.real(y), lax.imag(y)
    return lax.complex(scale(re, re.dtype), scale(im, im.dtype))


@fused()
def log2(x: Any, /) -> Any:
    """Logarithm to base 2."""
    return _scaled_log("log2", x, lambda part, dtype: lax.div(part, lax.log(cast(2.0, dtype))))


@fused()
def log10(x: Any, /) -> Any:
    """Logarithm to base 10."""
    return _scaled_log("log10", x, lambda part, dtype: lax.mul(part, cast(0.4342944819032518, dtype)))


@fused()
def deg2rad(x: Any, /) -> Any:
    """Degrees to radians."""
    (x,) = promote_args("deg2rad", x, to=inexact)
    return lax.mul(x, constant(x, np.pi / 180))


@fused()
def rad2deg(x: Any, /) -> Any:
    """Radians to degrees."""
    (x,) = promote_args("rad2deg", x, to=inexact)
    return lax.mul(x, constant(x, 180 / np.pi))


def degrees(x: Any, /) -> Any:
    """Radians to degrees."""
    return rad2deg(x)


def radians(x: Any, /) -> Any:
    """Degrees to radians."""
    return deg2rad(x)


# ---- rounding --------------------------------------------------------------------------------------------------------
def _rounding(name: str, op: Callable, doc: str) -> Callable:
    def fun(x, /):
        x = arrays(name, x)
        return x if kind(x.dtype) in "bui" else op(x)

    fun.__name__ = fun.__qualname__ = name
    fun.__module__, fun.__doc__ = "aot.numpy", doc
    return fun


floor = _rounding("floor", lax.floor, "The largest integer <= x, with the dtype of `x`.")
ceil = _rounding("ceil", lax.ceil, "The smallest integer >= x, with the dtype of `x`.")


@named()
def trunc(x: Any) -> Any:
    """x without its fractional part."""
    x = arrays("trunc", x)
    return x if kind(x.dtype) in "bui" else where(lax.lt(x, constant(x, 0)), ceil(x), floor(x))


@named()
def rint(x: Any, /) -> Any:
    """The nearest integer as a float; halves go to the even one."""
    x = arrays("rint", x)
    if kind(x.dtype) in "bui":
        return cast(x, default_float())
    if kind(x.dtype) == "c":
        return lax.complex(rint(lax.real(x)), rint(lax.imag(x)))
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


def _round_float(x: Any, decimals: int) -> Any:
    even = lax.RoundingMethod.TO_NEAREST_EVEN
    if decimals == 0:
        return lax.round(x, even)
    dtype = x.dtype
    x = lax.convert_element_type(x, np.float32) if dtype == np.float16 else x  # 10**decimals overflows early in f16
    factor = constant(x, 10.0**decimals)
    out = lax.div(lax.round(lax.mul(x, factor), even), factor)
    return lax.convert_element_type(out, dtype) if dtype == np.float16 else out


@named("decimals")
def round(a: Any, decimals: int = 0, out: None = None) -> Any:
    """`a` rounded to `decimals` places; halves go to the even digit."""
    no_out("round", out)
    a, decimals = arrays("round", a), concrete_index(decimals, "'decimals' argument of jnp.round")
    if kind(a.dtype) in "ui":
        if decimals < 0:
            raise NotImplementedError("integer np.round not implemented for decimals < 0")
        return a
    if kind(a.dtype) == "b":
        raise ValueError("jnp.round: booleans cannot be rounded")
    if decimals > np.log10(float(dtypes.finfo(a.dtype).max)):
        return a
    if kind(a.dtype) == "c":
        return lax.complex(_round_float(lax.real(a), decimals), _round_float(lax.imag(a), decimals))
    return _round_float(a, decimals)


@named("decimals")
def around(a: Any, decimals: int = 0, out: None = None) -> Any:
    """`a` rounded to `decimals` places; halves go to the even digit."""
    return round(a, decimals, out)


# ---- complex parts ---------------------------------------------------------------------------------------------------
def conjugate(x: Any, /) -> Any:
    """Complex conjugate."""
    x = arrays("conjugate", x)
    return lax.conj(x) if kind(x.dtype) == "c" else x


def conj(x: Any, /) -> Any:
    """Complex conjugate."""
    return conjugate(x)


def real(val: Any, /) -> Any:
    """Real part."""
    val = arrays("real", val)
    return lax.real(val) if kind(val.dtype) == "c" else val


def imag(val: Any, /) -> Any:
    """Imaginary part; zeros for real numbers."""
    val = arrays("imag", val)
    return lax.imag(val) if kind(val.dtype) == "c" else lax.full_like(val, 0)


@named("deg")
def angle(z: Any, deg: bool = False) -> Any:
    """Angle of a complex number with the positive real axis, in radians or degrees."""
    z = arrays("angle", z)
    re, im = real(z), imag(z)
    if kind(re.dtype) not in "fc" or (kind(z.dtype) == "f" and z.ndim == 0):
        re, im = cast(re, default_float()), cast(im, default_float())
    result = lax.atan2(im, re)
    return degrees(result) if deg else result


# ---- floating-point parts --------------------------------------------------------------------------------------------
def _bits_of(dtype: Any, name: str) -> np.dtype:
    """The integer dtype of the same width."""
    bits = dtypes.finfo(dtype).bits
    if bits not in _INT_OF_BITS:
        raise NotImplementedError(f"jax.numpy.{name} only supports 16, 32, and 64-bit types.")
    return _INT_OF_BITS[bits]


@named()
def signbit(x: Any, /) -> Any:
    """Whether the sign bit is set; True for -0.0."""
    (x,) = promote_args("signbit", x)
    x, letter = array_of(x), kind(dtype_of(x))
    if letter in "ui":
        return lax.lt(x, cast(0, x.dtype))
    if letter == "b":
        return lax.full_like(x, False, dtype=BOOL)
    if letter != "f":
        raise ValueError(f"jax.numpy.signbit is not well defined for {x.dtype}")
    return lax.lt(lax.bitcast_convert_type(x, ints := _bits_of(x.dtype, "signbit")), cast(0, ints))


@named()
def copysign(x1: Any, x2: Any, /) -> Any:
    """The magnitude of x1 with the sign of x2."""
    x1, x2 = promote_args("copysign", x1, x2, to=inexact)
    if kind(dtype_of(x1)) == "c":
        raise TypeError("copysign does not support complex-valued inputs")
    return where(signbit(x2), lax.neg(lax.abs(x1)), lax.abs(x1))


def nextafter(x: Any, y: Any, /) -> Any:
    """The next representable number after x towards y."""
    return lax.nextafter(*promote_args("nextafter", x, y, to=inexact))


@named()
def spacing(x: Any, /) -> Any:
    """Distance from x to the next representable number away from 0."""
    (x,) = promote_args("spacing", x, to=inexact)
    x = array_of(x)
    if kind(x.dtype) == "c":
        raise ValueError("jnp.spacing is not defined for complex inputs.")
    infinity = cast(np.inf, x.dtype)
    if x.dtype == np.float16:
        return lax.sub(lax.nextafter(x, lax.full_like(x, np.inf)), x)
    step = lax.sub(lax.nextafter(x, copysign(infinity, x)), x)
    smallest = cast(float(dtypes.finfo(x.dtype).smallest_subnormal), x.dtype)
    return where(lax.eq(step, cast(0, x.dtype)), copysign(smallest, x), step)


@custom_jvp
def _frexp(x: Any) -> tuple[Any, Any]:
    dtype, info = x.dtype, dtypes.finfo(x.dtype)
    ints = _bits_of(dtype, "frexp")
    mask, bias = (1 << info.nexp) - 1, 1 - info.minexp
    # Subnormal numbers are scaled into the normal range first.
    small = lax.lt(lax.abs(x), lax.full_like(x, float(info.tiny)))
    bits = lax.bitcast_convert_type(lax.select(small, lax.mul(x, cast(2.0**info.nmant, dtype)), x), ints)
    shift = lax.select(small, lax.full(x.shape, -info.nmant, ints), lax.full(x.shape, 0, ints))
    raw = lax.bitwise_and(lax.shift_right_arithmetic(bits, cast(info.nmant, ints)), cast(mask, ints))
    exponent = lax.add(shift, lax.sub(raw, cast(bias - 1, ints)))
    cleared = lax.bitwise_and(bits, cast(~(mask << info.nmant), ints))
    mantissa = lax.bitcast_convert_type(lax.bitwise_or(cleared, cast((bias - 1) << info.nmant, ints)), dtype)
    special = lax.bitwise_or(lax.bitwise_not(lax.is_finite(x)), lax.eq(x, cast(0, dtype)))
    exponent = lax.select(special, lax.full(x.shape, 0, ints), exponent)
    return lax.select(special, x, mantissa), lax.convert_element_type(exponent, np.int32)


@_frexp.defjvp
def _frexp_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    mantissa, exponent = _frexp(*primals)
    t = tangents[0]
    t = lax.mul(t, exp2(lax.neg(lax.convert_element_type(exponent, t.dtype))))
    return (mantissa, exponent), (t, np.zeros(exponent.shape, dtypes.float0))


@named()
def frexp(x: Any, /) -> tuple[Any, Any]:
    """Mantissa in [0.5, 1) and exponent with x = mantissa * 2**exponent."""
    (x,) = promote_args("frexp", x, to=inexact)
    if kind(dtype_of(x)) == "c":
        raise TypeError("frexp does not support complex-valued inputs")
    return _frexp(array_of(x))


@named()
def ldexp(x1: Any, x2: Any, /) -> Any:
    """x1 * 2**x2, without an overflow on the way."""
    d1, d2 = dtype_of(x1), dtype_of(x2)
    if kind(d1) == "c" or kind(d2) in "fc":
        raise ValueError(f"ldexp not supported for input types {(d1, d2)}")
    (x1,) = promote_args("ldexp", x1, to=inexact)
    x1, x2 = broadcast(array_of(x1), lax.convert_element_type(x2, dtype_of(x1)))
    mantissa, exponent = frexp(x1)
    exponent = lax.add(lax.convert_element_type(exponent, x1.dtype), x2)
    up = lax.gt(exponent, cast(0, x1.dtype))
    mantissa = lax.select(up, lax.mul(mantissa, cast(2, x1.dtype)), mantissa)
    exponent = lax.select(up, lax.sub(exponent, cast(1, x1.dtype)), exponent)
    scaled = lax.mul(mantissa, exp2(exponent))
    keep = lax.bitwise_or(isinf(x1), lax.eq(x1, cast(0, x1.dtype)))
    return lax.select(keep, x1, scaled)


@named()
def modf(x: Any, /, out: None = None) -> tuple[Any, Any]:
    """(fractional part, integral part), both with the sign of x."""
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.modf is not supported.")
    (x,) = promote_args("modf", x, to=inexact)
    whole = where(lax.ge(x, constant(x, 0)), floor(x), ceil(x))
    return lax.sub(x, whole), whole


# ---- tests -----------------------------------------------------------------------------------------------------------
def isfinite(x: Any, /) -> Any:
    """True where x is neither infinite nor nan."""
    x = arrays("isfinite", x)
    if kind(x.dtype) == "f":
        return lax.is_finite(x)
    if kind(x.dtype) == "c":
        return lax.bitwise_and(lax.is_finite(lax.real(x)), lax.is_finite(lax.imag(x)))
    return lax.full_like(x, True, dtype=BOOL)


def _is_infinite(x: Any) -> Any:
    return lax.eq(lax.abs(x), cast(np.inf, x.dtype))


@named()
def isinf(x: Any, /) -> Any:
    """True where x is infinite."""
    x = arrays("isinf", x)
    if kind(x.dtype) == "f":
        return _is_infinite(x)
    if kind(x.dtype) == "c":
        return lax.bitwise_or(_is_infinite(lax.real(x)), _is_infinite(lax.imag(x)))
    return lax.full_like(x, False, dtype=BOOL)


def _is_signed_inf(name: str, x: Any, value: float, out: Any) -> Any:
    if out is not None:
        raise NotImplementedError("The 'out' argument to isneginf/isposinf is not supported.")
    x = arrays(name, x)
    if kind(x.dtype) == "f":
        return lax.eq(x, cast(value, x.dtype))
    if kind(x.dtype) == "c":
        raise ValueError("isposinf/isneginf are not well defined for complex types")
    return lax.full_like(x, False, dtype=BOOL)


def isposinf(x: Any, /, out: None = None) -> Any:
    """True where x is +infinity."""
    return _is_signed_inf("isposinf", x, np.inf, out)


def isneginf(x: Any, /, out: None = None) -> Any:
    """True where x is -infinity."""
    return _is_signed_inf("isneginf", x, -np.inf, out)


@quick
def isnan(x: Any, /) -> Any:
    """True where x is not a number."""
    x = arrays("isnan", x)
    return lax.ne(x, x)


@named()
def iscomplex(x: Any) -> Any:
    """True where x has a nonzero imaginary part."""
    part = imag(x)
    return lax.ne(part, constant(part, 0))


@named()
def isreal(x: Any) -> Any:
    """True where x has no imaginary part."""
    part = imag(x)
    return lax.eq(part, constant(part, 0))


@named()
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """x with nan and infinities replaced by numbers: 0 and the largest and smallest finite values by default."""
    x = arrays("nan_to_num", x)
    if kind(x.dtype) == "c":
        parts = [nan_to_num(part, nan=nan, posinf=posinf, neginf=neginf) for part in (lax.real(x), lax.imag(x))]
        return lax.complex(*parts)
    if kind(x.dtype) != "f":
        return x
    info = dtypes.finfo(x.dtype)
    posinf = float(info.max) if posinf is None else posinf
    neginf = float(info.min) if neginf is None else neginf
    x = where(isnan(x), cast(nan, x.dtype), x)
    x = where(isposinf(x), cast(posinf, x.dtype), x)
    return where(isneginf(x), cast(neginf, x.dtype), x)


# ---- special functions -----------------------------------------------------------------------------------------------
@named()
def heaviside(x1: Any, x2: Any, /) -> Any:
    """0 below 0, x2 at 0, 1 above."""
    x1, x2 = broadcast(*promote_args("heaviside", x1, x2, to=inexact))
    x1 = array_of(x1)
    zero, one = constant(x1, 0.0), constant(x1, 1.0)
    at_zero = where(isnan(x1), x1, x2)
    return where(lax.lt(x1, zero), zero, where(lax.gt(x1, zero), one, at_zero))


@named()
def hypot(x1: Any, x2: Any, /) -> Any:
    """sqrt(x1**2 + x2**2) without overflow."""
    x1, x2 = broadcast(*promote_args("hypot", x1, x2, to=inexact))
    if kind(dtype_of(x1)) == "c":
        raise ValueError("jnp.hypot is not well defined for complex-valued inputs. Please convert to real values first, "
                         "such as by using abs(x)")
    x1, x2 = lax.abs(x1), lax.abs(x2)
    infinite = lax.bitwise_or(isposinf(x1), isposinf(x2))
    big, small = maximum(x1, x2), minimum(x1, x2)
    zero = lax.eq(big, cast(0, big.dtype))
    ratio = lax.div(small, where(zero, lax.full_like(big, 1), big))
    root = lax.mul(big, lax.sqrt(lax.add(constant(big, 1.0), lax.square(ratio))))
    return where(infinite, constant(big, np.inf), where(zero, big, root))


def _sinc(x: Any) -> Any:
    zero = lax.eq(x, constant(x, 0.0))
    pi_x = lax.mul(constant(x, np.pi), x)
    safe = where(zero, constant(x, 1.0), pi_x)
    return where(zero, _sinc_series(pi_x, 0), lax.div(lax.sin(safe), safe))


def _sinc_series(pi_x: Any, k: int) -> Any:
    """Derivative number `k` of sin(t) / t at t = 0, by its Maclaurin series; differentiates into number k + 1."""

    @custom_jvp
    def term(t):
        value = 0.0 if k % 2 else (-1.0) ** (k // 2) / (k + 1)
        return lax.add(lax.mul(t, constant(t, 0.0)), constant(t, value))

    term.defjvp(lambda primals, tangents: (term(*primals), lax.mul(_sinc_series(primals[0], k + 1), tangents[0])))
    return term(pi_x)


@named()
def sinc(x: Any, /) -> Any:
    """sin(pi x) / (pi x), 1 at 0; differentiable any number of times."""
    (x,) = promote_args("sinc", x, to=inexact)
    return _sinc(x)


def _i0_plain(x: Any) -> Any:
    x = lax.abs(x)
    return lax.mul(lax.exp(x), lax.bessel_i0e(x))


_i0 = custom_jvp(_i0_plain)


@_i0.defjvp
def _i0_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    result = jvp(_i0_plain, primals, tangents)
    out, tangent = result[0], result[1]
    return out, where(lax.eq(primals[0], cast(0, primals[0].dtype)), cast(0, tangent.dtype), tangent)


@named()
def i0(x: Any) -> Any:
    """Modified Bessel function of the first kind, order 0."""
    (x,) = promote_args("i0", x, to=inexact)
    if kind(dtype_of(x)) != "f":
        raise ValueError(f"Unsupported input type to jax.numpy.i0: {dtype_of(x)}")
    return _i0(array_of(x))


@named()
def fmin(x1: Any, x2: Any) -> Any:
    """The smaller of x1 and x2, ignoring a nan in one of them."""
    return where(lax.bitwise_or(*broadcast(less(x1, x2), isnan(x2))), x1, x2)


@named()
def fmax(x1: Any, x2: Any) -> Any:
    """The larger of x1 and x2, ignoring a nan in one of them."""
    return where(lax.bitwise_or(*broadcast(greater(x1, x2), isnan(x2))), x1, x2)


def _iterate_gcd(pair: tuple[Any, Any]) -> tuple[Any, Any]:
    """One step of Euclid's algorithm where the second number is not 0 yet."""
    a, b = pair
    going = lax.ne(b, cast(0, b.dtype))
    rest = lax.select(going, lax.rem(a, lax.select(going, b, lax.full_like(b, 1))), b)
    return lax.select(going, b, a), rest


@named()
def gcd(x1: Any, x2: Any) -> Any:
    """Greatest common divisor of integers."""
    x1, x2 = _two_integers("gcd", x1, x2)

    def unfinished(pair):
        going = lax.ne(pair[1], cast(0, pair[1].dtype))
        return lax.reduce_or(going, axes=tuple(range(going.ndim)))

    return lax.while_loop(unfinished, _iterate_gcd, (x1, x2))[0]


@named()
def lcm(x1: Any, x2: Any) -> Any:
    """Least common multiple of integers."""
    x1, x2 = _two_integers("lcm", x1, x2)
    divisor = gcd(x1, x2)
    zero = lax.eq(divisor, cast(0, divisor.dtype))
    quotient = lax.div(x2, lax.select(zero, lax.full_like(divisor, 1), divisor))
    return lax.select(zero, divisor, lax.mul(x1, quotient))


def _two_integers(name: str, x1: Any, x2: Any) -> list[Any]:
    """The absolute values of two integer arguments, broadcast against each other."""
    x1, x2 = promote_args(name, x1, x2)
    if kind(dtype_of(x1)) not in "ui":
        raise ValueError(f"Arguments to jax.numpy.{name} must be integers.")
    return [absolute(x) for x in broadcast(x1, x2)]


