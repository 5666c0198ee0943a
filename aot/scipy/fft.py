"""Discrete cosine transforms of type II and their inverses.

Through a Fourier transform of reordered data: J. Makhoul, "A fast cosine transform in one and two dimensions", IEEE Trans.
ASSP 28 (1980)."""
from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.numpy._util import axes_of, axis_of, check
from aot.scipy._util import fused, inexact, is_complex

Array = Any


def _check(name: str, x: Array, type: int, norm: str | None) -> Array:
    check(name, x)
    if type != 2:
        raise NotImplementedError("Only DCT type 2 is implemented.")
    if norm not in (None, "backward", "ortho"):
        raise ValueError(f"jax.scipy.fft.{name}: {norm=!r} is not implemented")
    return jnp.asarray(x)


def _apart(f: Callable[[Array], Array], x: Array) -> Array:
    """f of the real and imaginary parts of complex x."""
    return lax.complex(f(x.real), f(x.imag)) if is_complex(x) else f(x)


def _sized(x: Array, axis: int, n: int | None) -> Array:
    """x cut or padded with zeros to n along an axis."""
    if n is None:
        return x
    return lax.pad(x, lax.full((), 0, x.dtype), [(0, n - m if i == axis else 0, 0) for i, m in enumerate(x.shape)])


def _along(v: Any, axis: int, ndim: int) -> Any:
    return np.asarray(v).reshape([-1 if i == axis else 1 for i in range(ndim)])


def _ortho_scale(n: int) -> np.ndarray:
    """What makes the transform orthogonal: 1 / sqrt(4 n) for the first coefficient, 1 / sqrt(2 n) for the others."""
    return 1 / np.sqrt(np.r_[4, np.full(n - 1, 2)] * n)


def _twiddle(n: int, axis: int, x: Array) -> Any:
    """exp(-i pi k / (2 n))."""
    dtype = np.complex128 if x.dtype == np.float64 else np.complex64
    return _along(np.exp(-0.5j * np.pi * np.arange(n) / n).astype(dtype), axis, x.ndim)


@fused("axis", "ortho")
def _dct(x: Array, axis: int, ortho: bool) -> Array:
    n = x.shape[axis]
    x = inexact("dct", x)
    evens, odds = (lax.slice_in_dim(x, start, None, 2, axis) for start in (0, 1))
    spectrum = jnp.fft.fft(lax.concatenate([evens, lax.rev(odds, (axis,))], axis), axis=axis)
    out = 2 * (spectrum * _twiddle(n, axis, x)).real
    return out * _along(_ortho_scale(n), axis, x.ndim).astype(out.dtype) if ortho else out


@fused("axis", "ortho")
def _idct(x: Array, axis: int, ortho: bool) -> Array:
    n = x.shape[axis]
    x = inexact("idct", x)
    scale = _ortho_scale(n) if ortho else _ortho_scale(n) ** 2
    x = x * _along(scale * 2 * n, axis, x.ndim).astype(x.dtype)
    values = jnp.fft.ifft(x / _twiddle(n, axis, x), axis=axis).real
    half = math.ceil(n / 2)
    low, high = lax.slice_in_dim(values, 0, half, 1, axis), lax.rev(lax.slice_in_dim(values, half, None, 1, axis), (axis,))
    order = np.argsort(np.r_[np.arange(0, n, 2), np.arange(1, n, 2)], kind="stable")
    return jnp.take(lax.concatenate([low, high], axis), order, axis=axis)


def dct(x: Array, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """y_k = 2 sum_j x_j cos(pi k (2j + 1) / (2n)); norm="ortho" makes it orthogonal.  n: size to cut or pad to."""
    x = _check("dct", x, type, norm)
    axis = axis_of(axis, x.ndim)
    return _apart(lambda v: _dct(_sized(v, axis, n), axis=axis, ortho=norm == "ortho"), x)


def idct(x: Array, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of dct."""
    x = _check("idct", x, type, norm)
    axis = axis_of(axis, x.ndim)
    return _apart(lambda v: _idct(_sized(v, axis, n), axis=axis, ortho=norm == "ortho"), x)


def _several(name: str, one: Callable, x: Array, type: int, s: Any, axes: Any, norm: str | None) -> Array:
    x = _check(name, x, type, norm)
    sizes = None if s is None else list(s) if np.iterable(s) else [operator.index(s)]
    if sizes is not None and len(sizes) > x.ndim:
        raise ValueError(f"s must have at most x.ndim ({x.ndim}) elements, got {len(sizes)}")
    if axes is None:
        axes = tuple(range(x.ndim - (x.ndim if sizes is None else len(sizes)), x.ndim))
    axes = axes_of(axes, x.ndim)

    def run(v):
        for i, axis in enumerate(axes):
            v = one(_sized(v, axis, None if sizes is None else sizes[i]), axis=axis, ortho=norm == "ortho")
        return v
    return _apart(run, x)


def dctn(x: Array, type: int = 2, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
         norm: str | None = None) -> Array:
    """dct along several axes (all by default); s: sizes along them."""
    return _several("dctn", _dct, x, type, s, axes, norm)


def idctn(x: Array, type: int = 2, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
          norm: str | None = None) -> Array:
    """The inverse of dctn."""
    return _several("idctn", _idct, x, type, s, axes, norm)
