"""Discrete Fourier transforms."""
from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from aot import lax
from aot.api import device_put
from aot.numpy._util import arrays, cast, default_float, inexact, real_of, user_dtype
from aot.numpy.elementwise import conj
from aot.numpy.shapes import moveaxis, roll


def _scale(name: str, norm: str, sizes: Sequence[int]) -> float:
    """What the plain transform is multiplied by."""
    count, inverse = float(math.prod(sizes)), name.startswith("i")
    if norm not in ("backward", "ortho", "forward"):
        raise ValueError(f'Invalid norm value {norm}; should be "backward","ortho" or "forward".')
    if norm == "backward":
        return 1.0
    count = math.sqrt(count) if norm == "ortho" else count
    return count if inverse else 1 / count


def _resized(x: Any, sizes: Sequence[int]) -> Any:
    """Last axes cut or padded with zeros to `sizes`."""
    first = x.ndim - len(sizes)
    for i, n in enumerate(sizes):
        x = lax.slice_in_dim(x, 0, n, axis=first + i) if n < x.shape[first + i] else x
    pads = [(0, n - x.shape[first + i], 0) for i, n in enumerate(sizes)]
    return lax.pad(x, lax.full((), 0, x.dtype), [(0, 0, 0)] * first + pads) if any(hi for _, hi, _ in pads) else x


def _transform(name: str, form: str, a: Any, s: Any, axes: Any, norm: str | None) -> Any:
    """Any of the transforms over several axes. `s`: sizes of the result along them."""
    full = f"jax.numpy.fft.{name}"
    a = arrays(full, a)
    if s is not None:
        s = tuple(map(operator.index, s))
        if any(n <= 0 for n in s):
            raise ValueError("Shape should be positive.")
        if axes is not None and len(s) != len(axes):
            raise ValueError("Shape and axes have different lengths.")
    count = len(axes) if axes is not None else a.ndim if s is None else len(s)
    if axes is not None and len({i % a.ndim if a.ndim else i for i in axes}) != len(axes):
        raise ValueError(f"{full} does not support repeated axes. Got axes {axes}.")
    last = tuple(range(a.ndim - count, a.ndim))
    a = a if axes is None else moveaxis(a, axes, last)
    if s is not None:
        a = _resized(a, (*s[:-1], s[-1] // 2 + 1) if form == "IRFFT" else s)
    else:
        s = a.shape[a.ndim - count:]
        s = (*s[:-1], max(0, 2 * (s[-1] - 1))) if form == "IRFFT" and s else s
    out = _over_last_axes(a, form, s)
    if norm is not None:
        out = out * cast(_scale(name, norm, s), out.dtype)
    return out if axes is None else moveaxis(out, last, axes)


def _over_last_axes(a: Any, form: str, sizes: Sequence[int]) -> Any:
    """One operation covers at most three axes; more are done in groups."""
    if len(sizes) <= 3:
        return lax.fft(a, getattr(lax.FftType, form), tuple(sizes))
    n = 2 if len(sizes) == 4 else 3
    ahead, behind = tuple(range(a.ndim - len(sizes), a.ndim - n)), tuple(range(a.ndim - len(sizes) + n, a.ndim))
    if form in ("RFFT", "FFT"):
        a = _over_last_axes(a, form, sizes[-n:])
        return moveaxis(_over_last_axes(moveaxis(a, ahead, behind), "FFT", sizes[:-n]), behind, ahead)
    a = moveaxis(_over_last_axes(moveaxis(a, ahead, behind), "IFFT", sizes[:-n]), behind, ahead)
    return _over_last_axes(a, form, sizes[-n:])


def _along(name: str, form: str, a: Any, n: int | None, axis: Any, norm: str | None) -> Any:
    """A transform over one axis."""
    if isinstance(axis, (list, tuple)):
        raise ValueError(f"jax.numpy.fft.{name} does not support multiple axes. Please use jax.numpy.fft.{name}n. Got "
                         f"axis = {axis!r}.")
    return _transform(name, form, a, None if n is None else [n], None if axis is None else [axis], norm)


def _in_plane(name: str, form: str, a: Any, s: Any, axes: Sequence[int], norm: str | None) -> Any:
    if len(axes) != 2:
        raise ValueError(f"jax.numpy.fft.{name} only supports 2 axes. Got axes = {axes!r}.")
    return _transform(name, form, a, s, axes, norm)


# ---- one axis --------------------------------------------------------------------------------------------------------
def fft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Discrete Fourier transform along `axis`, of size n. `norm`: "backward" (default), "ortho" or "forward"."""
    return _along("fft", "FFT", a, n, axis, norm)


def ifft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Inverse of `fft`."""
    return _along("ifft", "IFFT", a, n, axis, norm)


def rfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Transform of real numbers: the n // 2 + 1 non-negative frequencies."""
    return _along("rfft", "RFFT", a, n, axis, norm)


def irfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Inverse of `rfft`, n real numbers."""
    return _along("irfft", "IRFFT", a, n, axis, norm)


def hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Transform of a signal with Hermitian symmetry, which has a real spectrum."""
    a = conj(a)
    count = (a.shape[axis] - 1) * 2 if n is None else n
    return _along("hfft", "IRFFT", a, n, axis, norm) * count


def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Inverse of `hfft`."""
    a = arrays("jax.numpy.fft.ihfft", a)
    count = a.shape[axis] if n is None else n
    return conj(_along("ihfft", "RFFT", a, n, axis, norm)) * (1 / count)


# ---- several axes ----------------------------------------------------------------------------------------------------
def fftn(a: Any, s: Any = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Any:
    """Transform over several axes, all by default; `s` gives the sizes."""
    return _transform("fftn", "FFT", a, s, axes, norm)


def ifftn(a: Any, s: Any = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Any:
    """Inverse of `fftn`."""
    return _transform("ifftn", "IFFT", a, s, axes, norm)


def rfftn(a: Any, s: Any = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Any:
    """Transform of real numbers over several axes; the last one keeps the non-negative frequencies."""
    return _transform("rfftn", "RFFT", a, s, axes, norm)


def irfftn(a: Any, s: Any = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Any:
    """Inverse of `rfftn`."""
    return _transform("irfftn", "IRFFT", a, s, axes, norm)


def fft2(a: Any, s: Any = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
    """Transform over two axes."""
    return _in_plane("fft2", "FFT", a, s, axes, norm)


def ifft2(a: Any, s: Any = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
    """Inverse of `fft2`."""
    return _in_plane("ifft2", "IFFT", a, s, axes, norm)


def rfft2(a: Any, s: Any = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
    """Transform of real numbers over two axes."""
    return _in_plane("rfft2", "RFFT", a, s, axes, norm)


def irfft2(a: Any, s: Any = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
    """Inverse of `rfft2`."""
    return _in_plane("irfft2", "IRFFT", a, s, axes, norm)


# ---- frequencies -----------------------------------------------------------------------------------------------------
def _frequencies(name: str, n: Any, d: Any, dtype: Any, device: Any, half: bool) -> Any:
    if isinstance(n, (list, tuple)):
        raise ValueError(f"The n argument of jax.numpy.fft.{name} only takes an int. Got n = {list(n)}.")
    if isinstance(d, (list, tuple)):
        raise ValueError(f"The d argument of jax.numpy.fft.{name} only takes a single value. Got d = {list(d)}.")
    dtype = default_float() if dtype is None else user_dtype(dtype, name)
    work = real_of(inexact(dtype))
    steps = np.arange(n // 2 + 1 if half else n)
    if not half:
        steps = (steps + n // 2) % n - n // 2
    out = lax.div(lax.convert_element_type(steps, work), lax.convert_element_type(d * n, work))
    out = lax.convert_element_type(out, dtype)
    return out if device is None else device_put(out, device)


def fftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """The frequency of each element of an `fft` of size n, for samples at distance d."""
    return _frequencies("fftfreq", n, d, dtype, device, half=False)


def rfftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """The frequency of each element of an `rfft` of size n, for samples at distance d."""
    return _frequencies("rfftfreq", n, d, dtype, device, half=True)


def _shifts(x: Any, axes: Any, sign: int) -> Any:
    axes = tuple(range(x.ndim)) if axes is None else (axes,) if isinstance(axes, int) else tuple(axes)
    return roll(x, tuple(sign * (x.shape[a] // 2) for a in axes), axes)


def fftshift(x: Any, axes: Any = None) -> Any:
    """Frequency zero moved to the middle."""
    return _shifts(arrays("fftshift", x), axes, 1)


def ifftshift(x: Any, axes: Any = None) -> Any:
    """Inverse of `fftshift`."""
    return _shifts(arrays("ifftshift", x), axes, -1)


