"""Arithmetic, comparisons, logic and bits: the operators of arrays, and the binary ufunc objects.

Operands of equal type go straight to `lax`; anything else is promoted first. Those in `_BINARY` are `ufunc` objects
with `reduce`, `accumulate`, `at`, `outer` and `reduceat`.
"""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from aot import dtypes, lax
from aot.array import Array
from aot.array_methods import ArrayMethods
from aot.config import gate
from aot.custom import custom_jvp
from aot.numpy._util import (
    BOOL,
    INEXACT,
    arrays,
    broadcast,
    cast,
    check,
    constant,
    dtype_of,
    inexact,
    is_tracer,
    kind,
    named,
    numeric,
    promote_args,
    quick,
    same_rank,
    scalar_like,
    where,
)
from aot.numpy.ufunc_class import ufunc

# What promotion does to the common dtype, and the dtypes it leaves alone.
_ANY = (None, frozenset((BOOL, *dtypes.INTEGERS, *INEXACT)))
_NUMERIC = (numeric, frozenset((*dtypes.INTEGERS, *INEXACT)))
_INEXACT = (inexact, INEXACT)


def _pair(name: str, x: Any, y: Any, rule: tuple) -> tuple[Any, Any, Any]:
    """Two promoted operands and their dtype. The common cases on a hot path come first."""
    to, ready = rule
    ax, ay = x.aval if isinstance(x, ArrayMethods) else None, y.aval if isinstance(y, ArrayMethods) else None
    if ax is not None and ax.dtype in ready:
        if ay is not None:
            if ax.dtype == ay.dtype and ax.weak_type == ay.weak_type:
                if len(ax.shape) != len(ay.shape):
                    x, y = same_rank(name, [x, y])
                return x, y, ax.dtype
        elif (scalar := scalar_like(y, ax)) is not None:
            return x, scalar, ax.dtype
    elif ay is not None and ay.dtype in ready and (scalar := scalar_like(x, ay)) is not None:
        return scalar, y, ay.dtype
    x, y = promote_args(name, x, y, to=to)
    return x, y, dtype_of(x)


def _binary(name: str, op: Callable, doc: str, rule: tuple = _ANY, **special: Callable) -> Callable:
    """A function of two operands that promotes them and calls `op`. `special`: other operations for kinds of dtypes,
    `b` for booleans and `c` for complex numbers."""

    def plain(x, y, /):
        x, y, dtype = _pair(name, x, y, rule)
        if special and dtype.kind in special:
            return special[dtype.kind](x, y)
        return op(x, y)
    converted = named()(_called(plain, name, doc))

    def fun(x, y, /):
        # An operand that has to be converted is converted in the same program.
        return converted(x, y) if gate.ready is not None and _converts(x, y) else plain(x, y)

    return _called(fun, name, doc)


_KINDS = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3}
_SCALAR_KINDS = {int: 1, float: 2, complex: 3}


def _converts(x: Any, y: Any) -> bool:
    """Whether one of two operands is an array that is converted for the other."""
    if type(x) is Array and type(y) is Array:
        return x.aval.dtype != y.aval.dtype
    if type(y) is Array:
        x, y = y, x
    return type(x) is Array and _SCALAR_KINDS.get(type(y), 0) > _KINDS.get(x.aval.dtype.kind, 3)


def _called(fun: Callable, name: str, doc: str) -> Callable:
    fun.__name__ = fun.__qualname__ = name
    fun.__module__, fun.__doc__ = "aot.numpy", doc
    return fun


def _lexicographic(op: Callable) -> Callable:
    """Order complex numbers by their real, then their imaginary part."""

    def compare(x, y):
        x, y = broadcast(x, y)
        rx, ry = lax.real(x), lax.real(y)
        return lax.select(lax.eq(rx, ry), op(lax.imag(x), lax.imag(y)), op(rx, ry))

    return compare


def _ordering(name: str, op: Callable, doc: str) -> Callable:
    return _binary(name, op, doc, c=_lexicographic(op))


# ---- comparisons and shifts ------------------------------------------------------------------------------------------
equal = _binary("equal", lax.eq, "x == y, elementwise.")
not_equal = _binary("not_equal", lax.ne, "x != y, elementwise.")
less = _ordering("less", lax.lt, "x < y, elementwise; complex numbers compare lexicographically.")
less_equal = _ordering("less_equal", lax.le, "x <= y, elementwise.")
greater = _ordering("greater", lax.gt, "x > y, elementwise.")
greater_equal = _ordering("greater_equal", lax.ge, "x >= y, elementwise.")
left_shift = _binary("left_shift", lax.shift_left, "x << y for integers.", _NUMERIC)
bitwise_left_shift = _binary("bitwise_left_shift", lax.shift_left, "x << y for integers.", _NUMERIC)


def _shift_right(x, y):
    return (lax.shift_right_logical if kind(dtype_of(x)) == "u" else lax.shift_right_arithmetic)(x, y)


def right_shift(x1: Any, x2: Any, /) -> Any:
    """x1 >> x2 for integers; signed ones keep their sign."""
    x1, x2, _ = _pair("right_shift", x1, x2, _NUMERIC)
    return _shift_right(x1, x2)


def bitwise_right_shift(x1: Any, x2: Any, /) -> Any:
    """x1 >> x2 for integers; signed ones keep their sign."""
    return right_shift(x1, x2)


# ---- bits and logic of one operand -----------------------------------------------------------------------------------
def invert(x: Any, /) -> Any:
    """All bits flipped; logical not for booleans."""
    return lax.bitwise_not(*promote_args("invert", x))


def bitwise_invert(x: Any, /) -> Any:
    """All bits flipped; logical not for booleans."""
    return lax.bitwise_not(*promote_args("bitwise_invert", x))


def bitwise_not(x: Any, /) -> Any:
    """All bits flipped; logical not for booleans."""
    return lax.bitwise_not(*promote_args("bitwise_not", x))


@named()
def bitwise_count(x: Any, /) -> Any:
    """Number of one-bits of the absolute value, as uint8."""
    (x,) = promote_args("bitwise_count", x, to=numeric)
    return cast(lax.population_count(absolute(x)), np.dtype(np.uint8))


def as_bool(x: Any) -> Any:
    """`x != 0` unless `x` is boolean already."""
    dtype = dtype_of(x)
    return x if dtype == BOOL else lax.ne(x, cast(0, dtype))


def logical_not(x: Any, /) -> Any:
    """True where `x` is zero or False."""
    return lax.bitwise_not(as_bool(*promote_args("logical_not", x)))


# ---- sign and magnitude ----------------------------------------------------------------------------------------------
def positive(x: Any, /) -> Any:
    """+x, that is `x` as an array."""
    return arrays("positive", *promote_args("positive", x))


def sign(x: Any, /) -> Any:
    """-1, 0 or 1 by the sign of `x`; x / abs(x) for complex numbers."""
    return lax.sign(*promote_args("sign", x))


def absolute(x: Any, /) -> Any:
    """Absolute value; the modulus for complex numbers."""
    x = arrays("absolute", x)
    return x if kind(x.dtype) in "bu" else lax.abs(x)


def abs(x: Any, /) -> Any:
    """Absolute value; the modulus for complex numbers."""
    return absolute(x)


def fabs(x: Any, /) -> Any:
    """Absolute value as a float; complex numbers are an error."""
    x = arrays("fabs", x)
    if kind(x.dtype) == "c":
        raise TypeError("ufunc 'fabs' does not support complex dtypes")
    return lax.abs(*promote_args("fabs", x, to=inexact))


def square(x: Any, /) -> Any:
    """x * x."""
    if isinstance(x, ArrayMethods) and x.aval.dtype in _NUMERIC[1]:
        return lax.square(x)
    return lax.square(*promote_args("square", x, to=numeric))


def reciprocal(x: Any, /) -> Any:
    """1 / x as a float."""
    (x,) = promote_args("reciprocal", x, to=inexact)
    return lax.integer_pow(x, -1)


# ---- division --------------------------------------------------------------------------------------------------------
def true_divide(x1: Any, x2: Any, /) -> Any:
    """x1 / x2; integers are divided as floats."""
    x1, x2, _ = _pair("true_divide", x1, x2, _INEXACT)
    return lax.div(x1, x2)


def divide(x1: Any, x2: Any, /) -> Any:
    """x1 / x2; integers are divided as floats."""
    return true_divide(x1, x2)


def _float_divmod(x: Any, y: Any) -> tuple[Any, Any]:
    """Quotient rounded down, and a remainder with the sign of `y`."""
    zero = constant(x, 0)
    rest = lax.rem(x, y)
    # Subtracting the remainder makes the division exact, except where y is 0 and the remainder is nan.
    quotient = lax.div(lax.select(lax.eq(y, zero), x, lax.sub(x, rest)), y)
    opposite = lax.bitwise_and(lax.ne(rest, zero), lax.ne(lax.sign(y), lax.sign(rest)))
    quotient = lax.select(opposite, lax.sub(quotient, constant(x, 1)), quotient)
    return lax.round(quotient), lax.select(opposite, lax.add(rest, y), rest)


def _int_floor_divide(x: Any, y: Any) -> Any:
    zero = constant(x, 0)
    quotient = lax.div(x, y)
    lower = lax.bitwise_and(lax.ne(lax.sign(x), lax.sign(y)), lax.ne(lax.rem(x, y), zero))
    return lax.select(lower, lax.sub(quotient, constant(x, 1)), quotient)


@named()
def floor_divide(x1: Any, x2: Any, /) -> Any:
    """x1 / x2 rounded towards minus infinity."""
    x1, x2 = broadcast(*promote_args("floor_divide", x1, x2, to=numeric))
    letter = kind(x1.dtype)
    if letter == "c":
        raise TypeError("floor_divide does not support complex-valued inputs")
    if letter == "u":
        return lax.div(x1, x2)
    return _int_floor_divide(x1, x2) if letter == "i" else _float_divmod(x1, x2)[0]


@named()
def divmod(x1: Any, x2: Any, /) -> tuple[Any, Any]:
    """(x1 // x2, x1 % x2)."""
    x1, x2 = promote_args("divmod", x1, x2, to=numeric)
    if kind(x1.dtype) in "ui":
        return floor_divide(x1, x2), remainder(x1, x2)
    return _float_divmod(*broadcast(x1, x2))


@named()
def remainder(x1: Any, x2: Any, /) -> Any:
    """x1 - x2 * floor(x1 / x2), which has the sign of `x2`; 0 for an integer division by zero."""
    x1, x2 = broadcast(*promote_args("remainder", x1, x2, to=numeric))
    zero = constant(x1, 0)
    if kind(x2.dtype) in "ui":
        x2 = lax.select(lax.eq(x2, zero), lax.full_like(x2, 1), x2)
    rest = lax.rem(x1, x2)
    wrong_sign = lax.ne(lax.lt(rest, zero), lax.lt(x2, zero))
    return lax.select(lax.bitwise_and(wrong_sign, lax.ne(rest, zero)), lax.add(rest, x2), rest)


def mod(x1: Any, x2: Any, /) -> Any:
    """The same as `remainder`."""
    return remainder(x1, x2)


@named()
def fmod(x1: Any, x2: Any, /) -> Any:
    """Remainder of a division rounded towards zero, which has the sign of `x1`."""
    x1, x2 = promote_args("fmod", x1, x2, to=numeric)
    if kind(x2.dtype) in "ui":
        x2 = where(lax.eq(x2, cast(0, x2.dtype)), lax.full_like(x2, 1), x2)
    return lax.rem(x1, x2)


# ---- powers ----------------------------------------------------------------------------------------------------------
def power(x1: Any, x2: Any, /) -> Any:
    """x1 ** x2. A known integer exponent becomes repeated multiplication, exact and differentiable everywhere."""
    if not is_tracer(x2):
        try:
            exponent = operator.index(x2)
        except TypeError:
            pass
        else:
            (x1,) = promote_args("power", x1, to=numeric)
            return lax.integer_pow(x1, exponent)
    check("power", x1, x2)
    d1, d2 = dtype_of(x1), dtype_of(x2)
    x, y = promote_args("power", x1, x2, to=numeric)
    if kind(dtype_of(x)) in "ui":
        if BOOL in (d1, d2):        # booleans are integers there, and those are not weak
            x, y = cast(x, dtype_of(x)), cast(y, dtype_of(y))
        return _int_power(*broadcast(x, y))
    if d1 in INEXACT and kind(d2) in "ui":
        return _power_by_ints(x1, x2)
    return lax.pow(x, y)


def _power_by_ints(x: Any, y: Any) -> Any:
    """Keep an array of integer exponents as it is, so that a negative base is no domain error for the derivative."""
    rank = max(len(np.shape(x)), len(np.shape(y)))
    x, y = [lax.broadcast_to_rank(a, rank) if 0 < len(np.shape(a)) < rank else a for a in (x, y)]
    return lax.pow(x, y)


def pow(x1: Any, x2: Any, /) -> Any:
    """x1 ** x2."""
    return power(x1, x2)


def _int_power(x: Any, y: Any) -> Any:
    """Integer power by squaring; an exponent of 64 or more has overflowed unless the base is 0, 1 or -1."""
    x, y = arrays("power", x, y)
    zero, one = cast(0, x.dtype), cast(1, x.dtype)
    ones = lax.full_like(x, 1)
    result = lax.select(lax.bitwise_and(lax.eq(x, zero), lax.ne(y, zero)), lax.full_like(x, 0), ones)
    for _ in range(6):
        odd = lax.ne(lax.bitwise_and(y, one), zero)
        result = lax.select(odd, lax.mul(result, x), result)
        x = lax.mul(x, x)
        y = lax.shift_right_logical(y, one)
    return result


def float_power(x: Any, y: Any, /) -> Any:
    """x ** y, always computed as floats."""
    x, y, _ = _pair("float_power", x, y, _INEXACT)
    return lax.pow(x, y)


# ---- log-domain addition ---------------------------------------------------------------------------------------------
def _wrap_angle(x: Any) -> Any:
    """The angle modulo 2 pi, in [-pi, pi)."""
    turn, half = cast(2 * np.pi, x.dtype), cast(np.pi, x.dtype)
    return lax.sub(remainder(lax.add(x, half), turn), half)


@custom_jvp
def _logaddexp(x: Any, y: Any) -> Any:
    top = lax.select(greater(x, y), x, y) if kind(x.dtype) == "c" else lax.max(x, y)
    if kind(x.dtype) != "c":
        delta = lax.sub(x, y)
        # inf - inf is nan: there the sum is already right.
        return lax.select(lax.ne(delta, delta), lax.add(x, y),
                          lax.add(top, lax.log1p(lax.exp(lax.neg(lax.abs(delta))))))
    delta = lax.sub(lax.add(x, y), lax.mul(top, cast(2, x.dtype)))
    out = lax.add(top, lax.log1p(lax.exp(delta)))
    return lax.complex(lax.real(out), _wrap_angle(lax.imag(out)))


def _finite_or_zero(x: Any) -> Any:
    real = lax.real(x) if kind(x.dtype) == "c" else x
    return lax.select(lax.eq(real, cast(np.inf, real.dtype)), lax.full_like(x, 0), x)


@_logaddexp.defjvp
def _logaddexp_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    out = _logaddexp(*primals)
    weights = [lax.exp(lax.sub(_finite_or_zero(x), _finite_or_zero(out))) for x in primals]
    return out, lax.add(lax.mul(tangents[0], weights[0]), lax.mul(tangents[1], weights[1]))


def _logaddexp2(x: Any, y: Any) -> Any:
    """log2(2**x + 2**y) through base e."""
    ln2 = cast(float(np.log(2)), x.dtype)
    return lax.div(_logaddexp(lax.mul(x, ln2), lax.mul(y, ln2)), ln2)


def _of_floats(name: str, op: Callable, doc: str) -> Callable:
    def fun(x1, x2, /):
        return op(*arrays(name, *broadcast(*promote_args(name, x1, x2, to=inexact))))

    return named()(_called(fun, name, doc))


# ---- ufunc objects ---------------------------------------------------------------------------------------------------
def _add_at(a: Any, indices: Any, b: Any) -> Any:
    return a.at[indices].add(b) if a.dtype != BOOL else _bool_at(a, indices, b, "add")


def _multiply_at(a: Any, indices: Any, b: Any) -> Any:
    return a.at[indices].multiply(b) if a.dtype != BOOL else _bool_at(a, indices, b, "multiply")


def _bool_at(a: Any, indices: Any, b: Any, method: str) -> Any:
    """Booleans cannot be added up by a scatter: go through int32."""
    ints = lax.convert_element_type(a, np.int32)
    b = lax.convert_element_type(lax.convert_element_type(b, BOOL), np.int32)
    return lax.convert_element_type(getattr(ints.at[indices], method)(b), BOOL)


def _subtract_at(a: Any, indices: Any, b: Any) -> Any:
    return a.at[indices].subtract(b)


def _logic(name: str, op: Callable, doc: str) -> Callable:
    def fun(x, y, /):
        x, y, dtype = _pair(name, x, y, _ANY)
        return op(x, y) if dtype == BOOL else op(as_bool(x), as_bool(y))

    return _called(fun, name, doc)


def _object(fun: Callable, identity: Any, reduce: str | None = None, accumulate: str | None = None,
            at: Callable | None = None) -> ufunc:
    return ufunc(fun, 2, 1, identity=identity, call=fun, reduce=_later(reduce), accumulate=_later(accumulate), at=at)


def _later(name: str | None) -> Callable | None:
    """A function of `aot.numpy.reductions` by name, imported when it is called."""
    if name is None:
        return None

    def call(*args, **kwargs):
        from aot.numpy import reductions

        return getattr(reductions, name)(*args, **kwargs)

    return call


add = _object(_binary("add", lax.add, "x + y; logical or for booleans.", b=lax.bitwise_or),
              0, "sum", "cumsum", _add_at)
subtract = _object(_binary("subtract", lax.sub, "x - y."), None, at=_subtract_at)
multiply = _object(_binary("multiply", lax.mul, "x * y; logical and for booleans.", b=lax.bitwise_and),
                   1, "prod", "cumprod", _multiply_at)
minimum = _object(_binary("minimum", lax.min, "The smaller of x and y; nan if either is nan."), None, "reduce_min")
maximum = _object(_binary("maximum", lax.max, "The larger of x and y; nan if either is nan."), None, "reduce_max")
bitwise_and = _object(_binary("bitwise_and", lax.bitwise_and, "Bitwise x & y."), -1, "reduce_bitwise_and")
bitwise_or = _object(_binary("bitwise_or", lax.bitwise_or, "Bitwise x | y."), 0, "reduce_bitwise_or")
bitwise_xor = _object(_binary("bitwise_xor", lax.bitwise_xor, "Bitwise x ^ y."), 0, "reduce_bitwise_xor")
logical_and = _object(_logic("logical_and", lax.bitwise_and, "True where both are nonzero."), True, "reduce_logical_and")
logical_or = _object(_logic("logical_or", lax.bitwise_or, "True where either is nonzero."), False, "reduce_logical_or")
logical_xor = _object(_logic("logical_xor", lax.bitwise_xor, "True where exactly one is nonzero."), False,
                      "reduce_logical_xor")
logaddexp = _object(_of_floats("logaddexp", _logaddexp, "log(exp(x1) + exp(x2)) without overflow."), -np.inf, "logsumexp")
logaddexp2 = _object(_of_floats("logaddexp2", _logaddexp2, "log2(2**x1 + 2**x2) without overflow."), -np.inf,
                     "logsumexp2")


@quick
def _negative(x: Any, /) -> Any:
    """-x."""
    if isinstance(x, ArrayMethods) and x.aval.dtype in INEXACT:
        return lax.neg(x)
    return lax.neg(*promote_args("negative", x))


negative = ufunc(_called(_negative, "negative", "-x."), 1, 1, call=_negative)
