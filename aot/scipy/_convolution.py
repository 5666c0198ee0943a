"""Convolution and correlation of arrays of equal rank."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.api import vmap
from aot.numpy._util import axes_of, check
from aot.scipy._util import fused, inexact, is_complex

Array = Any
_MODES = ("full", "same", "valid")


def _order(name: str, a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether the second array covers the first in every dimension (one of them must cover the other)."""
    if all(n >= m for n, m in zip(a, b)):
        return all(n == m for n, m in zip(a, b))
    if not all(n <= m for n, m in zip(a, b)):
        raise ValueError(f"{name}: One input must be smaller than the other in every dimension, got shapes {a} and {b}.")
    return True


def fftconvolve(in1: Array, in2: Array, mode: str = "full", axes: Sequence[int] | None = None) -> Array:
    """Convolution by FFT over axes (all by default); the other axes have equal sizes."""
    check("fftconvolve", in1, in2)
    if mode not in _MODES:
        raise ValueError("mode must be one of ['same', 'full', 'valid']")
    return _fftconvolve(in1, in2, mode=mode, axes=None if axes is None else tuple(np.atleast_1d(axes).tolist()))


@fused("mode", "axes")
def _fftconvolve(in1: Array, in2: Array, mode: str, axes: Any) -> Array:
    if jnp.ndim(in1) != jnp.ndim(in2):
        raise ValueError("in1 and in2 should have the same dimensionality")
    in1, in2 = inexact("fftconvolve", in1, in2)
    kept = sorted(set(range(in1.ndim)) - set(axes_of(axes, in1.ndim)))
    if any(in1.shape[i] != in2.shape[i] for i in kept):
        raise ValueError(f"mapped axes must have same shape; got {in1.shape=} {in2.shape=} {axes=}")
    run = lambda a, b: _fftconvolve_all(a, b, mode)
    for d in kept:
        run = vmap(run, in_axes=d, out_axes=d)
    return run(in1, in2)


def _fftconvolve_all(a: Array, b: Array, mode: str) -> Array:
    full = tuple(n + m - 1 for n, m in zip(a.shape, b.shape))
    if mode == "valid" and _order("fftconvolve 'valid'", a.shape, b.shape):
        a, b = b, a
    if all(n == 1 or m == 1 for n, m in zip(a.shape, b.shape)):
        out = a * b
    else:
        forward, back = (jnp.fft.fftn, jnp.fft.ifftn) if is_complex(a) else (jnp.fft.rfftn, jnp.fft.irfftn)
        out = back(forward(a, full) * forward(b, full), full)
    shape = {"full": full, "same": a.shape, "valid": tuple(n - m + 1 for n, m in zip(a.shape, b.shape))}[mode]
    starts = [(n - m) // 2 for n, m in zip(full, shape)]
    return lax.slice(out, starts, [s + n for s, n in zip(starts, shape)])


def _convolve(in1: Array, in2: Array, mode: str, precision: Any) -> Array:
    if mode not in _MODES:
        raise ValueError("mode must be one of ['full', 'same', 'valid']")
    if jnp.ndim(in1) != jnp.ndim(in2):
        raise ValueError("in1 and in2 must have the same number of dimensions")
    if jnp.size(in1) == 0 or jnp.size(in2) == 0:
        raise ValueError(f"zero-size arrays not supported in convolutions, got shapes {jnp.shape(in1)} and "
                         f"{jnp.shape(in2)}.")
    return _convolve_direct(in1, in2, mode=mode, precision=precision)


@fused("mode", "precision")
def _convolve_direct(in1: Array, in2: Array, mode: str, precision: Any) -> Array:
    in1, in2 = inexact("convolve", in1, in2)
    first = in2.shape
    if _order("convolve", in1.shape, in2.shape):
        in1, in2 = in2, in1
    sizes = in2.shape
    pads = {"valid": [(0, 0) for _ in sizes], "full": [(n - 1, n - 1) for n in sizes],
            "same": [(n - 1 - (m - 1) // 2, n - m + (m - 1) // 2) for n, m in zip(sizes, first)]}[mode]
    out = lax.conv_general_dilated(in1[None, None], jnp.flip(in2)[None, None], (1,) * len(sizes), pads, precision=precision)
    return out[0, 0]


def convolve(in1: Array, in2: Array, mode: str = "full", method: str = "auto", precision: Any = None) -> Array:
    """N-dimensional convolution.  mode: all of it (full), the middle of in1's size (same), or where one covers the other
    (valid).  method: "direct" (also "auto") or "fft"."""
    if method == "fft":
        return fftconvolve(in1, in2, mode=mode)
    if method not in ("direct", "auto"):
        raise ValueError(f"Got {method=}; expected 'auto', 'fft', or 'direct'.")
    return _convolve(in1, in2, mode, precision)


def correlate(in1: Array, in2: Array, mode: str = "full", method: str = "auto", precision: Any = None) -> Array:
    """N-dimensional cross-correlation: convolution with in2 conjugated and reversed."""
    return convolve(in1, jnp.flip(jnp.conj(in2)), mode, precision=precision, method=method)


def _check_2d(name: str, in1: Array, in2: Array, boundary: str, fillvalue: float) -> None:
    if boundary != "fill" or fillvalue != 0:
        raise NotImplementedError(f"{name}() only supports boundary='fill', fillvalue=0")
    if np.ndim(in1) != 2 or np.ndim(in2) != 2:
        raise ValueError(f"{name}() only supports 2-dimensional inputs.")


def convolve2d(in1: Array, in2: Array, mode: str = "full", boundary: str = "fill", fillvalue: float = 0,
               precision: Any = None) -> Array:
    """Convolution of two matrices; outside of them is 0."""
    _check_2d("convolve2d", in1, in2, boundary, fillvalue)
    return _convolve(in1, in2, mode, precision)


def correlate2d(in1: Array, in2: Array, mode: str = "full", boundary: str = "fill", fillvalue: float = 0,
                precision: Any = None) -> Array:
    """Cross-correlation of two matrices; outside of them is 0."""
    _check_2d("correlate2d", in1, in2, boundary, fillvalue)
    a, b = jnp.shape(in1), jnp.shape(in2)
    smaller = all(n <= m for n, m in zip(a, b))
    if smaller and mode != "same" and not (mode == "valid" and a == b):
        out = _convolve(jnp.flip(in2), jnp.conj(in1), mode, precision)
        return out if mode == "valid" else jnp.conj(out)
    return jnp.flip(_convolve(jnp.flip(in1), jnp.conj(in2), mode, precision))
