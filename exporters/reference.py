"""A program in double precision: where a runtime and XLA disagree, it tells how many digits of theirs mean anything."""
from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count

import ml_dtypes
import numpy as np

_NARROW = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
_TYPE = re.compile(r"(tensor<(?:\d+x)*(?:complex<)?)(f32|f16|bf16)>")
_DENSE = re.compile(r'dense<([^>]*)> : (tensor<(?:\d+x)*(?:complex<)?)(f32|f16|bf16)>')
_NUMBER = re.compile(r"0x[0-9A-Fa-f]+|-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_BITCAST = re.compile(r"(\s*)(%\S+) = stablehlo\.bitcast_convert (%\S+) : \((tensor<[^>]*>)\) -> (tensor<[^>]*>)")


def widened(text: str) -> str:
    """StableHLO text with every float of 16 and 32 bits as one of 64.  Bits are still those of the narrow numbers."""
    fresh = count()
    lines = []
    for line in text.splitlines():
        bits = _BITCAST.match(line)
        lines += _of_bits(bits, next(fresh)) if bits else [_TYPE.sub(r"\1f64>", _DENSE.sub(_constant, line))]
    return re.sub(r"@lapack_([sc])", lambda m: "@lapack_" + {"s": "d", "c": "z"}[m[1]], "\n".join(lines))


def _of_bits(m: re.Match, n: int) -> list[str]:
    indent, result, operand, source, target = m.groups()
    narrow, wide = f"%narrow{n}", lambda t: _TYPE.sub(r"\1f64>", t)
    if wide(source) != source:
        return [f"{indent}{narrow} = stablehlo.convert {operand} : ({wide(source)}) -> {source}",
                f"{indent}{result} = stablehlo.bitcast_convert {narrow} : ({source}) -> {target}"]
    return [f"{indent}{narrow} = stablehlo.bitcast_convert {operand} : ({source}) -> {target}",
            f"{indent}{result} = stablehlo.convert {narrow} : ({target}) -> {wide(target)}"]


def _constant(m: re.Match) -> str:
    """The same numbers, which are those of the narrow type, in the text of doubles."""
    content, head, dtype = m[1], m[2], _NARROW[m[3]]
    if content.startswith('"0x'):
        raw = np.frombuffer(bytes.fromhex(content[3:-1]), dtype).astype(np.float64)
        return f'dense<"0x{raw.tobytes().hex().upper()}"> : {head}f64>'

    def number(token: re.Match) -> str:
        if token[0].startswith("0x"):
            value = np.array(int(token[0], 16), f"u{dtype.itemsize}").view(dtype)
        else:
            value = np.array(float(token[0])).astype(dtype)
        value = value.astype(np.float64)
        return f"{value:.17e}" if np.isfinite(value) else f"0x{int(value.view(np.uint64)):016X}"
    return f"dense<{_NUMBER.sub(number, content)}> : {head}f64>"


def widened_arrays(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Arguments of the widened program."""
    wide = {**dict.fromkeys(_NARROW.values(), np.float64), np.dtype(np.complex64): np.complex128}
    return [x.astype(wide.get(x.dtype, x.dtype)) for x in arrays]


def as_near(got: np.ndarray, want: np.ndarray, exact: np.ndarray, factor: float = 10.0) -> bool:
    """Whether `got` is about as near to the exact result as `want` is, and infinite or NaN where that is."""
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    a, b, x = (v.astype(wide) for v in (got, want, exact))
    finite = np.isfinite(b) & np.isfinite(x)
    if not np.array_equal(a[~np.isfinite(b)], b[~np.isfinite(b)], equal_nan=True) or not np.isfinite(a[np.isfinite(b)]).all():
        return False
    ours, theirs = np.abs(a - x)[finite], np.abs(b - x)[finite]
    return bool(finite.any() and ours.max() <= factor * theirs.max() and ours.mean() <= factor * theirs.mean())
