"""Elementwise primitives, one row each: name, StableHLO or CHLO op, tangent, accepted dtype kinds."""
from __future__ import annotations

import builtins as _b  # the public names below shadow abs, max, min, pow, round, complex
import enum
import operator
from typing import Any, Callable

import numpy as np

from aot import dtypes
from aot.array_methods import ArrayMethods
from aot.ops.families import (
    Elementwise,
    LinearOp,
    add_any,
    align_full,
    binary,
    broadcast_shape,
    check_dtype,
    exact,
    kind,
    lit,
    unary,
)
from aot.trace import Primitive, ShapedArray, Zero, bind, bind1, is_linear, tangent_aval, typeof


def one(x): return lit(x, 1)


def same_bool(dtype): return np.dtype(bool)


_REAL = {np.dtype("complex64"): np.dtype("float32"), np.dtype("complex128"): np.dtype("float64")}


def real_dtype(dtype): return _REAL.get(dtype, dtype)


# ---- exponentials, logarithms, powers ----------------------------------------------------------------------------
#                   name      StableHLO       tangent
neg = unary("neg", "negate", lambda t, y, x: neg(t), "fciu", transpose=lambda ct, x: neg(ct))
exp = unary("exp", "exponential", lambda t, y, x: mul(t, y))
log = unary("log", "log", lambda t, y, x: div(t, x))
expm1 = unary("expm1", "exponential_minus_one", lambda t, y, x: mul(t, add(y, one(y))))
log1p = unary("log1p", "log_plus_one", lambda t, y, x: div(t, add(x, one(x))))
exp2 = unary("exp2", "", lambda t, y, x: mul(mul(t, lit(y, np.log(2))), y),
             emit=lambda e, ins, outs, x: e.inline(lambda v: exp(mul(v, lit(v, np.log(2)))), ins, (x,))[0])
sqrt = unary("sqrt", "sqrt", lambda t, y, x: div(mul(t, lit(x, 0.5)), y))
rsqrt = unary("rsqrt", "rsqrt", lambda t, y, x: mul(t, mul(lit(x, -0.5), div(y, x))))
cbrt = unary("cbrt", "cbrt", lambda t, y, x: mul(t, mul(div(y, x), lit(x, 1 / 3))), "f")
square = unary("square", "", lambda t, y, x: mul(t, mul(lit(x, 2), x)), "fciu",
               emit=lambda e, ins, outs, x: e.elementwise("multiply", ins, outs[0], (x, x)))

# ---- trigonometric and hyperbolic --------------------------------------------------------------------------------
sin = unary("sin", "sine", lambda t, y, x: mul(t, cos(x)))
cos = unary("cos", "cosine", lambda t, y, x: neg(mul(t, sin(x))))
tan = unary("tan", "tan", lambda t, y, x: mul(t, add(one(y), square(y))))
asin = unary("asin", "chlo.asin", lambda t, y, x: mul(t, rsqrt(sub(one(x), square(x)))))
acos = unary("acos", "chlo.acos", lambda t, y, x: mul(t, neg(rsqrt(sub(one(x), square(x))))))
atan = unary("atan", "chlo.atan", lambda t, y, x: div(t, add(one(x), square(x))))
sinh = unary("sinh", "chlo.sinh", lambda t, y, x: mul(t, cosh(x)))
cosh = unary("cosh", "chlo.cosh", lambda t, y, x: mul(t, sinh(x)))
tanh = unary("tanh", "tanh", lambda t, y, x: mul(add(t, mul(t, y)), sub(one(x), y)))
asinh = unary("asinh", "chlo.asinh", lambda t, y, x: mul(t, rsqrt(add(square(x), one(x)))))
acosh = unary("acosh", "chlo.acosh", lambda t, y, x: mul(t, mul(rsqrt(sub(x, one(x))), rsqrt(add(x, one(x))))))
atanh = unary("atanh", "chlo.atanh", lambda t, y, x: div(t, sub(one(x), square(x))))
logistic = unary("logistic", "logistic", lambda t, y, x: mul(t, mul(y, sub(one(y), y))))

# ---- special functions -------------------------------------------------------------------------------------------
erf = unary("erf", "chlo.erf",
            lambda t, y, x: mul(lit(x, 2 / np.sqrt(np.pi)), mul(t, exp(neg(square(x))))), "f")
erfc = unary("erfc", "chlo.erfc",
             lambda t, y, x: mul(lit(x, -2 / np.sqrt(np.pi)), mul(t, exp(neg(square(x))))), "f")
erf_inv = unary("erf_inv", "chlo.erf_inv",
                lambda t, y, x: mul(lit(x, np.sqrt(np.pi) / 2), mul(t, exp(square(y)))), "f")
lgamma = unary("lgamma", "chlo.lgamma", lambda t, y, x: mul(t, digamma(x)), "f")
digamma = unary("digamma", "chlo.digamma", lambda t, y, x: mul(t, polygamma(lit(x, 1), x)), "f")
bessel_i1e = unary("bessel_i1e", "chlo.bessel_i1e",
                   lambda t, y, x: mul(t, _bessel_i1e_slope(y, x)), "f")
zeta = binary("zeta", "chlo.zeta", None, lambda t, z, s, q: mul(mul(neg(t), s), zeta(add(s, one(s)), q)), "f",
              names=("x", "q"))
polygamma = binary("polygamma", "chlo.polygamma", None,
                   lambda t, z, m, x: mul(t, polygamma(add(m, one(m)), x)), "f", names=("m", "x"))


def _bessel_i1e_slope(y, x):
    """d/dx i1e(x) = i0e(x) - i1e(x) (sign(x) + 1/x); the limit at 0 is 1/2."""
    from aot.ops.special import bessel_i0e
    tiny = lit(x, np.finfo(np.float32).eps)
    safe = gt(abs(x), tiny)
    z = select(safe, x, full_like(x, 1))
    return select(safe, sub(bessel_i0e(z), mul(y, add(sign(z), div(one(z), z)))), full_like(x, 0.5))


def full_like(x, value):
    from aot.ops.shape import broadcast_to
    a = typeof(x)
    value = convert(lit(x, value), a.dtype, a.weak_type)
    return broadcast_to(value, a.shape) if a.shape else value


# ---- sign, rounding, parts ---------------------------------------------------------------------------------------
sign = unary("sign", "sign", None, "fciu", emit=lambda e, ins, outs, x: _emit_sign(e, ins, outs, x))
floor = unary("floor", "floor", None, "f")
ceil = unary("ceil", "ceil", None, "f")
is_finite = unary("is_finite", "is_finite", None, "f", result=same_bool)
real = unary("real", "real", lambda t, y, x: real(t), "c", result=real_dtype,
             transpose=lambda ct, x: complex(ct, full_like(ct, 0)))
imag = unary("imag", "imag", lambda t, y, x: imag(t), "c", result=real_dtype,
             transpose=lambda ct, x: complex(full_like(ct, 0), neg(ct)))
abs = unary("abs", "abs", lambda t, y, x: _abs_tangent(t, y, x), "fci", result=real_dtype)
population_count = unary("population_count", "popcnt", None, "iu")
clz = unary("clz", "count_leading_zeros", None, "iu")
bitwise_not = unary("not", "not", None, "iub")


def _emit_sign(e, ins, outs, x):
    if kind(ins[0].dtype) == "u":
        return e.inline(lambda v: convert(ne(v, full_like(v, 0)), typeof(v).dtype), ins, (x,))[0]
    return e.elementwise("sign", ins, outs[0], (x,))


def _abs_tangent(t, y, x):
    if kind(typeof(x).dtype) != "c":
        return select(ge(x, lit(x, 0)), t, neg(t))             # 1 at 0, as in JAX
    safe = select(eq(y, full_like(y, 0)), full_like(y, 1), y)      # the subgradient at 0 is 0
    return div(add(mul(real(t), real(x)), mul(imag(t), imag(x))), safe)


_complex_of = {np.dtype("float32"): np.dtype("complex64"), np.dtype("float64"): np.dtype("complex128")}
complex = binary("complex", "complex", lambda t, z, x, y: complex(t, full_like(t, 0)),
                 lambda t, z, x, y: complex(full_like(t, 0), t), "f", result=lambda d: _complex_of.get(d, d),
                 transposes=(lambda ct, x, y: real(ct), lambda ct, x, y: neg(imag(ct))))


class Conj(Elementwise):
    """Complex conjugate; real operands become complex.  Linear over the reals."""

    def __init__(self):
        super().__init__("conj", "", (lambda t, y, x, *, input_dtype: conj(t),), "fc", None)

    def infer(self, x, *, input_dtype):
        check_dtype("conj", "fc", x)
        return [ShapedArray(x.shape, _complex_of.get(x.dtype, x.dtype), x.weak_type)]

    def transpose(self, cts, x, *, input_dtype):
        out = conj(cts[0])
        return [real(out) if kind(x.aval.dtype) == "f" else out]

    def lower(self, e, ins, outs, x, *, input_dtype):
        if kind(ins[0].dtype) == "f":
            return [e.inline(lambda v: complex(v, full_like(v, 0)), ins, (x,))[0]]
        return e.inline(lambda v: complex(real(v), neg(imag(v))), ins, (x,))


conj_p = Conj()


def conj(x):
    """Elementwise complex conjugate."""
    return bind1(conj_p, x, input_dtype=typeof(x).dtype)


class RoundingMethod(enum.IntEnum):
    """How `round` breaks ties."""
    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


class Round(Elementwise):
    def __init__(self): super().__init__("round", "", (None,), "f")

    def lower(self, e, ins, outs, x, *, rounding_method):
        op = "round_nearest_even" if rounding_method == 1 else "round_nearest_afz"
        return [e.elementwise(op, ins, outs[0], (x,))]


round_p = Round()


def round(x, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO):
    """Round to integers, kept in the dtype of x."""
    return bind1(round_p, x, rounding_method=RoundingMethod(rounding_method))


# ---- arithmetic --------------------------------------------------------------------------------------------------
add = binary("add", "add", lambda t, z, x, y: t, lambda t, z, x, y: t, "fciu",
             transposes=(lambda ct, x, y: ct, lambda ct, x, y: ct))
sub = binary("sub", "subtract", lambda t, z, x, y: t, lambda t, z, x, y: neg(t), "fciu",
             transposes=(lambda ct, x, y: ct, lambda ct, x, y: neg(ct)))
_product = binary("mul", "multiply", lambda t, z, x, y: mul(t, y), lambda t, z, x, y: mul(x, t), "fciu",
                  transposes=(lambda ct, x, y: mul(ct, y), lambda ct, x, y: mul(x, ct)))


def mul(x, y, *, out_dtype=None):
    """Elementwise product, of x and y converted to out_dtype if that is given."""
    if out_dtype is not None:
        x, y = convert(x, dtypes.canonicalize_dtype(out_dtype)), convert(y, dtypes.canonicalize_dtype(out_dtype))
    return _product(x, y)


mul.primitive = _product.primitive  # type: ignore[attr-defined]
div = binary("div", "divide", lambda t, z, x, y: div(t, y),
             lambda t, z, x, y: mul(mul(neg(t), x), integer_pow(y, -2)), "fciu",
             transposes=(lambda ct, x, y: div(ct, y), lambda ct, x, y: None))
rem = binary("rem", "remainder", lambda t, z, x, y: t,
             lambda t, z, x, y: mul(neg(t), select(gt(mul(sign(x), sign(y)), lit(x, 0)), floor(abs(div(x, y))),
                                                   neg(floor(abs(div(x, y)))))), "fiu",
             transposes=(lambda ct, x, y: ct, lambda ct, x, y: None))


def _extreme(hlo: str, before: Callable) -> Callable:
    """Complex numbers by comparisons of their real, then their imaginary parts: XLA ends the process when it simplifies a
    complex maximum of a minimum, or the other way round, with constants."""
    def emit(e, ins, outs, *xs):
        from aot.ops.shape import broadcast_to
        if kind(ins[0].dtype) != "c":
            return e.elementwise(hlo, ins, outs[0], xs)

        def chosen(x, y):
            x, y = broadcast_to(x, outs[0].shape), broadcast_to(y, outs[0].shape)
            first = select(eq(real(x), real(y)), before(imag(x), imag(y)), before(real(x), real(y)))
            return select(first, x, y)
        return e.inline(chosen, ins, xs)[0]
    return emit


max = binary("max", "maximum", lambda t, z, x, y: mul(t, _share(x, z, y)), lambda t, z, x, y: mul(t, _share(y, z, x)), "fciub",
             emit=_extreme("maximum", lambda x, y: gt(x, y)))
min = binary("min", "minimum", lambda t, z, x, y: mul(t, _share(x, z, y)), lambda t, z, x, y: mul(t, _share(y, z, x)), "fciub",
             emit=_extreme("minimum", lambda x, y: lt(x, y)))
atan2 = binary("atan2", "atan2", lambda t, z, x, y: mul(t, div(y, add(square(x), square(y)))),
               lambda t, z, x, y: mul(t, div(neg(x), add(square(x), square(y)))), "fc")
def _steps(*_: Any) -> Any:
    raise NotImplementedError("Differentiation rule for 'nextafter' not implemented: it steps from one number to the next. "
                              "hint: stop_gradient(x), or custom_jvp for the derivative that you mean")


nextafter = binary("nextafter", "chlo.next_after", _steps, _steps, "f", names=("x1", "x2"))


def _share(x, z, y):
    """Weight of x in max/min(x, y) = z: 1 where it is the result, one half where both are."""
    from aot.ops.shape import broadcast_to
    shape = typeof(z).shape
    x, y = broadcast_to(x, shape), broadcast_to(y, shape)
    zero, half, whole = full_like(z, 0), full_like(z, 0.5), full_like(z, 1)
    return select(eq(x, z), select(eq(y, z), half, whole), zero)


class IntegerPow(Elementwise):
    """x ** y for a static integer y, by repeated squaring."""

    def __init__(self):
        super().__init__("integer_pow", "", (self.tangent,), "fciu")

    @staticmethod
    def tangent(t, out, x, *, y):
        if y == 0:
            return Zero(tangent_aval(typeof(x)))
        return mul(t, mul(lit(x, y), integer_pow(x, y - 1)) if y != 1 else lit(x, 1))

    def lower(self, e, ins, outs, x, *, y):
        return e.inline(lambda v: _power_by_squaring(v, y), ins, (x,))


integer_pow_p = IntegerPow()


def _power_by_squaring(x, n: int):
    if n == 0:
        return full_like(x, 1)
    base, n, out = x, n, None
    invert, n = n < 0, _b.abs(n)
    while n:
        if n & 1:
            out = base if out is None else mul(out, base)
        n >>= 1
        if n:
            base = mul(base, base)
    return div(full_like(x, 1), out) if invert else out


def integer_pow(x, y: int):
    """x ** y for a static integer y."""
    if y == 0:
        from aot.ops import shape
        return shape.full_like(x, 1)
    if y == 1:
        return x
    if y < 0 and kind(typeof(x).dtype) in "iu":
        raise TypeError(f"Integers cannot be raised to negative powers, got integer_pow({x}, {y})")
    return bind1(integer_pow_p, x, y=int(operator.index(y)))


class Pow(Elementwise):
    """x ** y; y may be an integer array where x is floating."""

    def __init__(self):
        super().__init__("pow", "power", (self.tangent_x, self.tangent_y), "fc")

    def infer(self, x, y):
        check_dtype("pow", "fc", x)
        check_dtype("pow", "fciu", y)
        if kind(y.dtype) in "fc" and y.dtype != x.dtype:
            raise self.dtype_error((x, y))
        weak = x.weak_type and y.weak_type
        return [ShapedArray(broadcast_shape("pow", (x, y)), x.dtype, weak)]

    @staticmethod
    def tangent_x(t, z, x, y):
        yf = convert_element_type(y, typeof(x).dtype)
        is_zero = eq(yf, lit(yf, 0))
        safe = select(is_zero, full_like(yf, 1), sub(yf, one(yf)))
        return mul(t, select_any(is_zero, 0, mul(yf, pow(x, safe))))

    @staticmethod
    def tangent_y(t, z, x, y):
        if kind(typeof(y).dtype) in "iu":
            return Zero(tangent_aval(typeof(z)))
        safe = select(eq(x, lit(x, 0)), full_like(x, 1), x)
        return mul(t, mul(log(safe), z))

    def lower(self, e, ins, outs, x, y):
        if ins[1].dtype != ins[0].dtype:
            return e.inline(lambda a, b: pow(a, convert_element_type(b, ins[0].dtype)), ins, (x, y))
        return [e.elementwise("power", ins, outs[0], (x, y))]


pow_p = Pow()


def pow(x, y):
    """Elementwise x ** y."""
    if isinstance(y, int) and not isinstance(y, bool):
        return integer_pow(x, y)
    return bind1(pow_p, x, y)


def select_any(pred, value, x):
    """where(pred, scalar value, x), with pred broadcast to the shape of x."""
    from aot.ops.shape import broadcast_to
    return select(broadcast_to(pred, typeof(x).shape), full_like(x, value), x)


# ---- bits and comparisons ----------------------------------------------------------------------------------------
bitwise_and = binary("and", "and", None, None, "iub")
bitwise_or = binary("or", "or", None, None, "iub")
bitwise_xor = binary("xor", "xor", None, None, "iub")
shift_left = binary("shift_left", "shift_left", None, None, "iu")
shift_right_arithmetic = binary("shift_right_arithmetic", "shift_right_arithmetic", None, None, "iu")
shift_right_logical = binary("shift_right_logical", "shift_right_logical", None, None, "iu")


def _comparison(name: str, direction: str):
    def emit(e, ins, outs, x, y):
        k = kind(ins[0].dtype)
        if k == "k":
            return e.inline(lambda a, b: _compare_keys(name, a, b), ins, (x, y))[0]
        how = {"f": "FLOAT", "c": "FLOAT", "i": "SIGNED"}.get(k, "UNSIGNED")
        t = e.full_type(ins, outs[0])
        return e.op(f"stablehlo.compare {direction}, {x}, {y}, {how} : ({t}, {t}) -> {outs[0].mlir}")
    return binary(name, "", None, None, "fciubk" if name in ("eq", "ne") else "fciub", result=same_bool, emit=emit,
                  doc=f"Elementwise comparison {name}.")


def _compare_keys(name, a, b):
    from aot.ops.random import random_unwrap
    from aot.ops.reductions import reduce_and, reduce_or
    x, y = random_unwrap(a), random_unwrap(b)
    axes = tuple(range(typeof(a).ndim, typeof(x).ndim))
    return reduce_and(eq(x, y), axes) if name == "eq" else reduce_or(ne(x, y), axes)


eq, ne = _comparison("eq", "EQ"), _comparison("ne", "NE")
lt, le = _comparison("lt", "LT"), _comparison("le", "LE")
gt, ge = _comparison("gt", "GT"), _comparison("ge", "GE")


# ---- selection ---------------------------------------------------------------------------------------------------

class SelectN(LinearOp):
    """cases[which], elementwise; `which` is bool (two cases) or int32, of the cases' shape or a scalar."""
    name = "select_n"
    linear_operands = (1, None)

    def infer(self, which: ShapedArray, *cases: Any):
        if len(cases) == 0:
            raise TypeError("select_n must have at least one case")
        if any(c.shape != cases[0].shape for c in cases):
            raise TypeError(f"select_n cases must have the same shapes, got [{', '.join(str(c.shape) for c in cases)}].")
        if any(c.dtype != cases[0].dtype for c in cases):
            raise TypeError("select_n cases must have the same dtypes, got "
                            f"[{', '.join(c.dtype.name for c in cases)}]. hint: convert the cases with astype")
        if kind(which.dtype) != "b" and which.dtype != np.dtype("int32"):
            raise TypeError(f"select `which` must be boolean or integer type, got {which.dtype.name}.")
        if kind(which.dtype) == "b" and len(cases) > 2:
            raise TypeError(f"select with boolean `which` cannot have > 2 cases, got {len(cases)}")
        if which.shape and which.shape != cases[0].shape:
            raise TypeError(f"select `which` must be scalar or have the same shape as cases: `which` shape {which.shape}"
                            f" but case shape {cases[0].shape}.")
        return [ShapedArray(cases[0].shape, cases[0].dtype, _b.all(c.weak_type for c in cases))]

    def transpose(self, cts, which, *cases):
        ct, = cts
        zeros = full_like(ct, 0)
        n = len(cases)
        return [None] + [bind1(self, which, *[ct if j == i else zeros for j in range(n)]) if is_linear(c) else None
                         for i, c in enumerate(cases)]

    def vmap(self, axis, args, dims):
        which, *cases = args
        if dims[0] is None and not typeof(which).shape:
            cases, d = align_full(axis, cases, dims[1:])
            return bind(self, which, *cases), [d]
        xs, d = align_full(axis, args, dims)
        return bind(self, *xs), [d]

    def lower(self, e, ins, outs, which, *cases):
        p = ins[0]
        if len(cases) == 1:
            return [cases[0]]
        if kind(p.dtype) == "b":
            return [e.select(which, p, cases[1], cases[0], outs[0])]
        result, lo = cases[-1], len(cases) - 1
        for i in range(lo - 1, -1, -1):
            bound = e.splat(i + 1, p)
            less = e.op(f"stablehlo.compare LT, {which}, {bound}, SIGNED : ({p.mlir}, {p.mlir}) -> "
                        f"{ShapedArray(p.shape, np.dtype(bool)).mlir}")
            result = e.select(less, ShapedArray(p.shape, np.dtype(bool)), cases[i], result, outs[0])
        return [result]


select_n_p = SelectN()


def select_n(which, *cases):
    """cases[which], elementwise."""
    return bind1(select_n_p, which, *cases)


def select(pred, on_true, on_false):
    """on_true where pred else on_false."""
    return bind1(select_n_p, pred, on_false, on_true)


class Clamp(Primitive):
    """min(max(x, lo), hi); lo and hi are scalars or of the shape of x."""
    name = "clamp"

    def infer(self, lo, x, hi):
        if not lo.dtype == x.dtype == hi.dtype:
            raise TypeError(f"clamp requires arguments to have the same dtypes, got {lo.dtype.name}, {x.dtype.name}, "
                            f"{hi.dtype.name}. hint: convert them with astype")
        for what, a in (("min", lo), ("max", hi)):
            if a.shape and a.shape != x.shape:
                raise TypeError(f"clamp requires {what}.shape == operand.shape or {what}.shape == (), got "
                                f"{what}.shape={a.shape}, operand.shape={x.shape}.")
        return [ShapedArray(x.shape, x.dtype, x.weak_type and lo.weak_type and hi.weak_type)]

    def jvp(self, primals, tangents):
        from aot.ops.shape import broadcast_to
        lo, x, hi = primals
        out = bind1(self, *primals)
        shape, total = typeof(out).shape, None
        inside = bitwise_and(gt(x, lo), lt(x, hi))
        where = (gt(lo, x), inside, lt(hi, x))
        for t, p in zip(tangents, where):
            if type(t) is Zero:
                continue
            t = broadcast_to(t, shape)
            part = select(broadcast_to(p, shape), t, full_like(t, 0))
            total = part if total is None else add_any(total, part)
        return [out], [Zero(tangent_aval(typeof(out))) if total is None else total]

    def vmap(self, axis, args, dims):
        xs, d = align_full(axis, args, dims)
        return bind(self, *xs), [d]

    def lower(self, e, ins, outs, lo, x, hi):
        types = f"({ins[0].mlir}, {ins[1].mlir}, {ins[2].mlir}) -> {outs[0].mlir}"
        if ins[0].shape != ins[2].shape:
            lo, hi = (e.broadcast_operand(v, a, outs[0].shape) for v, a in ((lo, ins[0]), (hi, ins[2])))
            types = f"({outs[0].mlir}, {outs[0].mlir}, {outs[0].mlir}) -> {outs[0].mlir}"
        return [e.op(f"stablehlo.clamp {lo}, {x}, {hi} : {types}")]


clamp_p = Clamp()


def clamp(min, x, max):
    """x limited to [min, max]."""
    return bind1(clamp_p, min, x, max)


# ---- type conversion ---------------------------------------------------------------------------------------------

class ConvertElementType(LinearOp):
    name = "convert_element_type"

    def infer(self, x, *, new_dtype, weak_type):
        if kind(x.dtype) == "k" or kind(new_dtype) == "k":
            raise TypeError("convert_element_type does not convert to or from key types; hint: use random.key_data or "
                            "random.wrap_key_data")
        return [ShapedArray(x.shape, new_dtype, weak_type)]

    def jvp(self, primals, tangents, *, new_dtype, weak_type):
        out = bind1(self, *primals, new_dtype=new_dtype, weak_type=weak_type)
        t, = tangents
        a = tangent_aval(typeof(out))
        if type(t) is Zero or a.dtype == dtypes.float0:
            return [out], [Zero(a)]
        return [out], [convert(t, new_dtype, weak_type)]

    def transpose(self, cts, x, *, new_dtype, weak_type):
        return [convert(cts[0], x.aval.dtype, x.aval.weak_type)]

    def vmap(self, axis, args, dims, **params): return bind(self, *args, **params), list(dims)

    def lower(self, e, ins, outs, x, *, new_dtype, weak_type):
        return [e.convert(x, ins[0], outs[0])]


convert_p = ConvertElementType()


def convert(x: Any, dtype, weak_type: bool = False):
    """x with this dtype and weak_type; scalars that are not traced are converted at once."""
    a = typeof(x)
    if a.dtype == dtype and a.weak_type == weak_type and not isinstance(x, (np.ndarray, np.generic, int, float)):
        return x
    if isinstance(x, (_b.bool, int, float, _b.complex, np.generic)):
        return _convert_scalar(x, a, dtype, weak_type)
    return bind1(convert_p, x, new_dtype=dtype, weak_type=weak_type)


def _convert_scalar(x, a, dtype, weak_type):
    if kind(a.dtype) == "c" and kind(dtype) != "c":
        x = x.real
    if kind(a.dtype) == "f" and kind(dtype) in "iu":       # out-of-range and nan: as XLA does it, not as C does
        info = np.iinfo(dtype) if dtype.itemsize and dtype.name in ("int8", "int16", "int32", "int64", "uint8",
                                                                     "uint16", "uint32", "uint64") else None
        x = 0 if x != x else int(x) if info is None else _b.min(_b.max(float(x), float(info.min)), float(info.max))
        if info is not None:
            x = _b.min(_b.max(int(x), info.min), info.max)
    with np.errstate(over="ignore", invalid="ignore"):
        value = np.asarray(x).astype(dtype)[()]
    if weak_type:
        python = value.item()
        if isinstance(python, (int, float, _b.complex)) and typeof(python).dtype == dtype:
            return python
        return bind1(convert_p, np.asarray(x), new_dtype=dtype, weak_type=True)
    return exact(value)


def convert_element_type(operand, new_dtype=None, weak_type: bool | None = None):
    """operand converted to new_dtype by XLA's rules (float to int saturates, NaN becomes 0)."""
    if not isinstance(operand, ArrayMethods) and hasattr(operand, "__jax_array__"):
        operand = operand.__jax_array__()
    a = typeof(operand)
    if new_dtype is None:
        dtype, weak = a.dtype, a.weak_type if weak_type is None else weak_type
    elif isinstance(new_dtype, type) and new_dtype in (_b.bool, int, float, _b.complex):
        dtype, weak = dtypes.dtype(new_dtype), new_dtype is not _b.bool if weak_type is None else weak_type
    else:
        dtype, weak = dtypes.dtype(new_dtype), False if weak_type is None else weak_type
    return as_array(convert(operand, dtype, weak))


def as_array(x: Any) -> Any:
    """A number or numpy array as an Array; anything else, and float0, as it is."""
    if isinstance(x, (_b.bool, int, float, _b.complex, np.generic, np.ndarray)) and getattr(x, "dtype", None) != dtypes.float0:
        from aot.array import asarray
        return asarray(x)
    return x


def _convert_element_type(operand, new_dtype=None, weak_type: bool = False):
    """convert_element_type with the weak type given, as the numpy layer wants it."""
    dtype = typeof(operand).dtype if new_dtype is None else new_dtype
    return convert(operand, dtype if isinstance(dtype, np.dtype) else dtypes.dtype(dtype), weak_type)


class ReducePrecision(LinearOp):
    """Round a float to a format with fewer exponent and mantissa bits, kept in its dtype."""
    name = "reduce_precision"

    def infer(self, x, *, exponent_bits, mantissa_bits):
        check_dtype(self.name, "f", x)
        return [x]

    def transpose(self, cts, x, **params): return bind(self, *cts, **params)
    def vmap(self, axis, args, dims, **params): return bind(self, *args, **params), list(dims)

    def lower(self, e, ins, outs, x, *, exponent_bits, mantissa_bits):
        return [e.op(f"stablehlo.reduce_precision {x}, format = e{exponent_bits}m{mantissa_bits} : {outs[0].mlir}")]


reduce_precision_p = ReducePrecision()


def reduce_precision(operand, exponent_bits: int, mantissa_bits: int):
    """Round to a float format of the given size."""
    return bind1(reduce_precision_p, operand, exponent_bits=operator.index(exponent_bits),
                 mantissa_bits=operator.index(mantissa_bits))


class BitcastConvertType(Primitive):
    """Reinterpret the bits; where element sizes differ the last dimension is split or joined."""
    name = "bitcast_convert_type"

    def infer(self, x, *, new_dtype):
        old, new = _bits(x.dtype), _bits(new_dtype)
        shape = x.shape
        if old > new:
            shape = (*shape, old // new)
        elif old < new:
            if not shape or shape[-1] != new // old:
                raise ValueError(f"Attempting to convert array of shape {x.shape} from {x.dtype.name} of size {old} to "
                                 f"{new_dtype.name} of size {new}, but the last dimension is not {new // old}")
            shape = shape[:-1]
        return [ShapedArray(shape, new_dtype)]

    def jvp(self, primals, tangents, **params):
        out = bind1(self, *primals, **params)
        return [out], [Zero(tangent_aval(typeof(out)))]

    def vmap(self, axis, args, dims, **params):
        from aot.transforms.vmap import to_dim
        return bind(self, to_dim(axis, args[0], dims[0], 0), **params), [0]

    def lower(self, e, ins, outs, x, *, new_dtype):
        return [e.op(f"stablehlo.bitcast_convert {x} : ({ins[0].mlir}) -> {outs[0].mlir}")]


def _bits(dtype) -> int:
    return dtypes.itemsize_bits(dtype)


bitcast_p = BitcastConvertType()


def bitcast_convert_type(operand, new_dtype):
    """operand's bits read as new_dtype."""
    return bind1(bitcast_p, operand, new_dtype=dtypes.canonicalize_dtype(np.dtype(new_dtype)))


class Copy(LinearOp):
    name = "copy"

    def infer(self, x): return [x]
    def transpose(self, cts, x): return list(cts)
    def vmap(self, axis, args, dims): return bind(self, *args), list(dims)
    def lower(self, e, ins, outs, x): return [x]


copy_p = Copy()


def copy(x): return bind1(copy_p, x)

