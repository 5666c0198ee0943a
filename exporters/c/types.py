"""Element types in C: how they are stored, what they are in registers, and how literals of them are written."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.exporters.stablehlo import Type


@dataclass(frozen=True)
class CType:
    """One element type.

    brief: its name in helper functions.  stored: the type in memory.  value: the type in registers, which is wider for the
    floats that C has not.  kind: numpy's letter ("b", "i", "u", "f" or "c").  bits: in memory.
    """
    brief: str
    stored: str
    value: str
    kind: str
    bits: int

    @property
    def is_small_float(self) -> bool: return self.stored != self.value

    @property
    def align(self) -> int: return min(self.bits // 8, 8)

    def load(self, place: str) -> str:
        """The value in a place in memory."""
        return f"aot_from_{self.brief}({place})" if self.is_small_float else place

    def store(self, value: str) -> str:
        """A value as it goes to memory."""
        return f"aot_to_{self.brief}({value})" if self.is_small_float else value

    def rounded(self, value: str) -> str:
        """A number in registers as one that can be stored without a change."""
        return f"aot_round_{self.brief}({value})" if self.is_small_float else value


def _integers() -> dict[str, CType]:
    return {f"{u}int{n}": CType(f"{u or 'i'}{n}", f"{u}int{n}_t", f"{u}int{n}_t", u or "i", n)
            for u in ("", "u") for n in (8, 16, 32, 64)}


TYPES: dict[str, CType] = {
    "bool": CType("bool", "bool", "bool", "b", 8), **_integers(),
    "float16": CType("f16", "uint16_t", "float", "f", 16), "bfloat16": CType("bf16", "uint16_t", "float", "f", 16),
    "float32": CType("f32", "float", "float", "f", 32), "float64": CType("f64", "double", "double", "f", 64),
    "complex64": CType("c64", "float complex", "float complex", "c", 64),
    "complex128": CType("c128", "double complex", "double complex", "c", 128),
}
TYPES = {k: CType(t.brief, t.stored, t.value, "u" if t.brief.startswith("u") else t.kind, t.bits) for k, t in TYPES.items()}
BRIEF = {t.brief: t for t in TYPES.values()}
PARTS = {"c64": BRIEF["f32"], "c128": BRIEF["f64"]}             # of a complex number


class Inexpressible(Exception):
    """What C cannot express.  hint: what to do about it."""

    def __init__(self, why: str, hint: str = ""):
        super().__init__(why)
        self.hint = hint


def of(dtype: np.dtype) -> CType:
    """The row of an element type.  Raises Inexpressible."""
    found = TYPES.get(dtype.name)
    if found is None:
        raise Inexpressible(f"C has no elements of type {dtype.name}", "convert to a wider type")
    return found


def check(type: Type) -> CType:
    """The same for a type of arrays; its sizes must be known."""
    if not type.is_static:
        raise Inexpressible("a size is not known", "export with static shapes")
    return of(type.dtype)


def unsigned(t: CType) -> CType: return BRIEF[f"u{t.bits}"]


# ---- literals --------------------------------------------------------------------------------------------------------

def literal(value: Any, t: CType) -> str:
    """A number as an expression of the type that it has in registers."""
    if t.kind == "c":
        part = PARTS[t.brief]
        return f"aot_complex_{t.brief}({literal(value.real, part)}, {literal(value.imag, part)})"
    if t.kind == "f":
        return _float(np.float64(value) if t.brief == "f64" else np.float32(value))
    if t.kind == "b":
        return "true" if value else "false"
    return _integer(int(value), t)


def _float(x: Any) -> str:
    if np.isnan(x):
        return "-NAN" if np.signbit(x) else "NAN"
    if np.isinf(x):
        return "-INFINITY" if x < 0 else "INFINITY"
    digits = np.format_float_scientific(x, unique=True, trim="0", exp_digits=1)
    plain = np.format_float_positional(x, unique=True, trim="0")
    text = plain if len(plain) <= len(digits) else digits
    return text + ("f" if x.dtype == np.float32 else "")


def _floats(array: np.ndarray) -> list[str]:
    """Literals of many numbers, with as many digits as any of them needs: much faster than the shortest ones."""
    form, end = ("%.9g", "f") if array.dtype == np.float32 else ("%.17g", "")
    words = " ".join([form] * array.size) % tuple(array.tolist())
    special = {"nan": "NAN", "-nan": "-NAN", "inf": "INFINITY", "-inf": "-INFINITY"}
    return [special.get(w) or (w + end if "." in w or "e" in w else f"{w}.0{end}") for w in words.split()]


def _integer(n: int, t: CType) -> str:
    if t.kind == "i" and n == -(1 << (t.bits - 1)) and t.bits >= 32:
        return f"INT{t.bits}_MIN"                     # the digits alone would not fit
    if t.bits <= 32:
        return f"{n}u" if t.kind == "u" and t.bits == 32 else str(n)
    return f"{'U' if t.kind == 'u' else ''}INT64_C({n})"


def initializer(array: np.ndarray, t: CType) -> str:
    """The elements of an array between braces, in lines."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if t.is_small_float:
        words = [f"0x{n:04x}" for n in flat.view(np.uint16).tolist()]
    elif t.kind in "fc":
        words = _floats(flat.view(np.float32 if PARTS.get(t.brief, t).brief == "f32" else np.float64))
    else:
        words = [literal(x, t) for x in flat]
    lines, line = [], ""
    for word in words:
        if len(line) + len(word) > 116:
            lines.append(line)
            line = ""
        line += word + ", "
    return "\n".join(f"  {x.rstrip()}" for x in [*lines, line])
