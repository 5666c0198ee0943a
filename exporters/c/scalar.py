"""Rows of elementwise operations: a C expression from expressions of the operands, which are names or literals.

A row is `row(op, t, *operands) -> expression`; t is the element type of the first operand.  Integers wrap around.  Floats that
C has not are computed in float32, and rounded where they are stored or converted (as XLA does, which fuses like this).
"""
from __future__ import annotations

from collections.abc import Callable

from aot.exporters.stablehlo import Op

from .types import BRIEF, PARTS, CType, Inexpressible, literal, of, unsigned

Row = Callable[..., str]
ROWS: dict[str, Row] = {}


def scalar(*names: str) -> Callable[[Row], Row]:
    """Register a function as the row of these operations."""
    def register(f: Row) -> Row:
        ROWS.update(dict.fromkeys(names, f))
        return f
    return register


def expression(op: Op, operands: list[str]) -> str:
    """The value of an elementwise operation.  Raises Inexpressible."""
    t = of(op.operands[0].dtype)
    return ROWS[op.name](op, t, *operands)


# ---- arithmetic ------------------------------------------------------------------------------------------------------

def wrapped(t: CType, x: str, sign: str, y: str) -> str:
    """Integer arithmetic modulo 2 to the number of bits."""
    wide = "uint64_t" if t.bits == 64 else "uint32_t"
    if t.kind == "u" and t.bits >= 32:
        return f"{x} {sign} {y}"
    return f"({t.value})(({wide}){x} {sign} ({wide}){y})"


def _arithmetic(sign: str, of_bools: str) -> Row:
    def row(op: Op, t: CType, x: str, y: str) -> str:
        if t.kind in "iu":
            return wrapped(t, x, sign, y)
        return f"{x} {sign} {y}" if t.kind in "fc" else f"{x} {of_bools} {y}"
    return row


ROWS["add"], ROWS["multiply"] = _arithmetic("+", "||"), _arithmetic("*", "&&")
ROWS["subtract"] = _arithmetic("-", "!=")


@scalar("divide")
def _divide(op: Op, t: CType, x: str, y: str) -> str:
    if t.kind == "c":
        return f"aot_div_{t.brief}({x}, {y})"
    return f"{x} / {y}" if t.kind == "f" else f"aot_div_{t.brief}({x}, {y})"


@scalar("remainder")
def _remainder(op: Op, t: CType, x: str, y: str) -> str:
    return _libm("fmod", t, x, y) if t.kind == "f" else f"aot_rem_{t.brief}({x}, {y})"


@scalar("power")
def _power(op: Op, t: CType, x: str, y: str) -> str:
    return f"aot_pow_{t.brief}({x}, {y})" if t.kind in "iuc" else _libm("pow", t, x, y)


def _extreme(name: str, of_bools: str) -> Row:
    def row(op: Op, t: CType, x: str, y: str) -> str:
        if t.kind == "b":
            return f"{x} {of_bools} {y}"
        return f"aot_{name}_{_wide(t).brief}({x}, {y})"
    return row


ROWS["maximum"], ROWS["minimum"] = _extreme("max", "||"), _extreme("min", "&&")


@scalar("clamp")
def _clamp(op: Op, t: CType, low: str, x: str, high: str) -> str:
    if t.kind == "b":
        return f"({x} || {low}) && {high}"
    name = _wide(t).brief
    return f"aot_min_{name}(aot_max_{name}({x}, {low}), {high})"


@scalar("negate")
def _negate(op: Op, t: CType, x: str) -> str:
    return f"-{x}" if t.kind in "fc" else wrapped(t, "0", "-", x)


@scalar("abs")
def _abs(op: Op, t: CType, x: str) -> str:
    if t.kind == "i":
        return f"({t.value})({x} < 0 ? {wrapped(t, '0', '-', x)} : {x})"
    return x if t.kind in "ub" else _libm("cabs" if t.kind == "c" else "fabs", t, x)


@scalar("sign")
def _sign(op: Op, t: CType, x: str) -> str:
    if t.kind == "c":
        return f"aot_sign_{t.brief}({x})"
    one, minus = literal(1, t), literal(-1, t) if t.kind != "u" else ""
    positive = f"{x} > 0 ? {one} : "
    return positive + (f"{x} < 0 ? {minus} : {x}" if t.kind != "u" else "0")


# ---- functions -------------------------------------------------------------------------------------------------------

def _wide(t: CType) -> CType:
    """The type that values of t have in registers."""
    return BRIEF["f32"] if t.is_small_float else t


def _libm(name: str, t: CType, *xs: str) -> str:
    """A call of a function of libm."""
    suffix = "f" if _wide(t).brief in ("f32", "c64") else ""
    return f"{name}{suffix}({', '.join(xs)})"


#: functions of float32 that helpers.py has
OURS = ("exp", "log", "tanh", "erf", "erfc")


def _function(real: str, of_complex: str = "") -> Row:
    """A function of libm of one operand; of_complex: that for complex numbers, with a leading underscore one of ours."""
    def row(op: Op, t: CType, x: str) -> str:
        if t.kind == "c" and of_complex:
            return f"aot{of_complex}_{t.brief}({x})" if of_complex.startswith("_") else _libm(of_complex, t, x)
        if t.kind != "f":
            raise Inexpressible(f"it is not defined for {t.brief}")
        ours = real in OURS and _wide(t).brief == "f32"
        return f"aot_{real}_f32({x})" if ours else _libm(real, t, x)
    return row


ROWS.update({
    "exponential": _function("exp", "cexp"), "log": _function("log", "clog"), "sine": _function("sin", "csin"),
    "cosine": _function("cos", "ccos"), "tan": _function("tan", "ctan"), "tanh": _function("tanh", "ctanh"),
    "sqrt": _function("sqrt", "csqrt"), "cbrt": _function("cbrt"), "floor": _function("floor"), "ceil": _function("ceil"),
    "exponential_minus_one": _function("expm1", "_expm1"), "log_plus_one": _function("log1p", "_log1p"),
    "round_nearest_afz": _function("round"), "round_nearest_even": _function("rint"),
    "chlo.erf": _function("erf"), "chlo.erfc": _function("erfc"),
})


@scalar("rsqrt")
def _rsqrt(op: Op, t: CType, x: str) -> str:
    if t.kind == "c":
        return f"aot_div_{t.brief}({literal(1 + 0j, t)}, {_libm('csqrt', t, x)})"
    return f"{literal(1, t)} / {_libm('sqrt', t, x)}"


@scalar("logistic")
def _logistic(op: Op, t: CType, x: str) -> str:
    if t.kind == "c":
        return f"aot_div_{t.brief}({literal(1 + 0j, t)}, {literal(1 + 0j, t)} + {_libm('cexp', t, '-' + x)})"
    one, power = literal(1, t), "aot_exp_f32" if _wide(t).brief == "f32" else "exp"
    return f"{one} / ({one} + {power}(-{x}))"


@scalar("atan2")
def _atan2(op: Op, t: CType, y: str, x: str) -> str:
    return f"aot_atan2_{t.brief}({y}, {x})" if t.kind == "c" else _libm("atan2", t, y, x)


@scalar("is_finite")
def _is_finite(op: Op, t: CType, x: str) -> str: return f"isfinite({x}) != 0" if t.kind == "f" else "true"


@scalar("reduce_precision")
def _reduce_precision(op: Op, t: CType, x: str) -> str:
    return f"aot_precision_{_wide(t).brief}({x}, {op.attrs['exponent_bits']}, {op.attrs['mantissa_bits']})"


# ---- bits ------------------------------------------------------------------------------------------------------------

def _bitwise(sign: str, of_bools: str) -> Row:
    def row(op: Op, t: CType, x: str, y: str) -> str:
        if t.kind == "b":
            return f"{x} {of_bools} {y}"
        return f"({t.value})({x} {sign} {y})"
    return row


ROWS["and"], ROWS["or"], ROWS["xor"] = _bitwise("&", "&&"), _bitwise("|", "||"), _bitwise("^", "!=")


@scalar("not")
def _not(op: Op, t: CType, x: str) -> str: return f"!{x}" if t.kind == "b" else f"({t.value})~{x}"


def _named(name: str) -> Row:
    """An operation on integers that is a helper function."""
    def row(op: Op, t: CType, *xs: str) -> str:
        if t.kind not in "iu":
            raise Inexpressible(f"it is not defined for {t.brief}")
        return f"aot_{name}_{t.brief}({', '.join(xs)})"
    return row


ROWS.update({"shift_left": _named("shl"), "shift_right_logical": _named("shr"), "shift_right_arithmetic": _named("sar"),
             "popcnt": _named("popcnt"), "count_leading_zeros": _named("clz")})


def same_width(op: Op) -> bool:
    """Whether a bitcast_convert keeps the number of elements."""
    return of(op.operands[0].dtype).bits == of(op.dtype).bits


@scalar("bitcast_convert")
def _bitcast(op: Op, t: CType, x: str) -> str:
    to = of(op.dtype)
    x, source = (t.store(x), unsigned(t)) if t.is_small_float else (x, t)
    target = unsigned(to) if to.is_small_float else to
    if source == target:
        return to.load(x)
    integers = source.kind in "iu" and target.kind in "iu"
    return to.load(f"({target.value}){x}" if integers else f"aot_bits_{source.brief}_{target.brief}({x})")


# ---- conversions and comparisons ---------------------------------------------------------------------------------------

@scalar("convert")
def _convert(op: Op, t: CType, x: str) -> str: return converted(x, t, of(op.dtype))


def converted(x: str, t: CType, to: CType) -> str:
    """A value of type t as one of another type, as XLA converts: floats to the nearest integer there is, NaN to 0."""
    if t == to:
        return x
    if t.kind == "c" and to.kind != "c":
        return f"{x} != 0" if to.kind == "b" else converted(part_of(x, "real", t), PARTS[t.brief], to)
    if to.kind == "b":
        return f"{x} != 0"
    if to.kind == "c" and t.kind != "c":
        part = PARTS[to.brief]
        return f"aot_complex_{to.brief}({converted(x, t, part)}, 0)"
    if t.kind == "f" and to.kind in "iu":
        return f"aot_{to.brief}_of_float({x})" if _wide(t).brief == "f32" else f"aot_{to.brief}_of_double({x})"
    if to.is_small_float:
        if _wide(t).brief == "f32" or t.bits <= 16:
            return to.rounded(f"(float){x}" if t.kind != "f" else x)
        return to.load(f"aot_to_{to.brief}_of_double((double){x})")
    return f"({to.value}){x}"


_SIGNS = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}


@scalar("compare")
def _compare(op: Op, t: CType, x: str, y: str) -> str:
    sign = _SIGNS[op.attrs["comparison_direction"]]
    if t.kind == "f" and op.attrs.get("compare_type") == "TOTALORDER":
        name = _wide(t).brief
        return f"aot_order_{name}({x}) {sign} aot_order_{name}({y})"
    if t.kind == "c" and sign not in ("==", "!="):
        return f"aot_compare_{t.brief}({x}, {y}) {sign} 0"
    return f"{x} {sign} {y}"


@scalar("select")
def _select(op: Op, t: CType, chosen: str, x: str, y: str) -> str: return f"{chosen} ? {x} : {y}"


# ---- complex numbers -----------------------------------------------------------------------------------------------------

def part_of(x: str, which: str, t: CType) -> str:
    """The real or imaginary part of a value."""
    return _libm(f"c{which}", t, x)


@scalar("real")
def _real(op: Op, t: CType, x: str) -> str: return part_of(x, "real", t) if t.kind == "c" else x


@scalar("imag")
def _imag(op: Op, t: CType, x: str) -> str: return part_of(x, "imag", t) if t.kind == "c" else literal(0, t)


@scalar("complex")
def _complex(op: Op, t: CType, x: str, y: str) -> str: return f"aot_complex_{of(op.dtype).brief}({x}, {y})"
