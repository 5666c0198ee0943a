"""When two results are the same: exact for integers and booleans, within a tolerance by element type otherwise.

A value is right if |got - expected| <= tolerance * max(1, |expected|); NaN and infinities must be where they are expected.
Complex numbers are compared as pairs of reals.
"""
from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

TOLERANCE = {"float16": 2e-2, "bfloat16": 2e-2, "float32": 1e-3, "complex64": 1e-3, "float64": 1e-6, "complex128": 1e-6}
EIGHT_BITS = 0.1

#: Programs with a wider tolerance, infinite where numbers are not compared: (format, or one before an opset, name pattern,
#: tolerance, reason).
LOOSER: tuple[tuple[str, str, float, str], ...] = (
    ("onnx<26", "top_k_float32_5_chlo", np.inf, "orders NaN by its sign, which ONNX cannot read before opset 26; a note says so"),
)


def tolerance(dtype: np.dtype, format: str = "", program: str = "", opset: int = 21) -> float:
    for where, pattern, bound, _ in LOOSER:
        name, _, below = where.partition("<")
        if name == format and opset < int(below or 1000) and re.fullmatch(pattern, program):
            return bound
    return TOLERANCE.get(dtype.name, EIGHT_BITS if dtype.name.startswith("float8") else 0)


def difference(got: np.ndarray, want: np.ndarray, bound: float) -> str:
    """What is wrong with a result, or "".  bound 0: every bit counts (a zero may have either sign)."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"is {got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    if bound == np.inf:
        return ""
    if want.dtype.kind in "biu" or "int" in want.dtype.name:
        wrong = got != want
        return _worst(got, want, wrong)
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    a, b = got.astype(wide).ravel().view(np.float64), want.astype(wide).ravel().view(np.float64)
    with np.errstate(all="ignore"):
        close = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= bound * np.maximum(1, np.abs(b))) & np.isfinite(b)
    return _worst(a, b, ~close)


def _worst(got: np.ndarray, want: np.ndarray, wrong: np.ndarray) -> str:
    """A sentence about the first element that is wrong, or ""."""
    if not wrong.any():
        return ""
    i = int(np.flatnonzero(wrong.ravel())[0])
    return f"{int(wrong.sum())} of {wrong.size} elements differ, e.g. element {i}: {got.ravel()[i]} instead of {want.ravel()[i]}"


def mismatch(got: Sequence[np.ndarray], want: Sequence[np.ndarray], format: str = "", program: str = "",
             opset: int = 21) -> str:
    """What is wrong with the results of a program, or ""."""
    if len(got) != len(want):
        return f"{len(got)} results instead of {len(want)}"
    texts = [difference(np.asarray(a), b, tolerance(b.dtype, format, program, opset)) for a, b in zip(got, want)]
    return "; ".join(f"result {i} {t}" for i, t in enumerate(texts) if t)
