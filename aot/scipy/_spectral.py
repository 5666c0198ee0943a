"""Short-time Fourier transforms and power spectra."""
from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import dtypes, lax
from aot.numpy._util import axis_of, check, concrete
from aot.scipy._util import fused, inexact, is_complex
from aot.scipy.linalg.factorizations import floats

Array = Any


def detrend(data: Array, axis: int = -1, type: str = "linear", bp: int | Sequence[int] | np.ndarray = 0,
            overwrite_data: None = None) -> Array:
    """data less its mean ("constant") or less a line fitted to each piece between the breakpoints bp ("linear")."""
    if overwrite_data is not None:
        raise NotImplementedError("overwrite_data argument not implemented.")
    if type not in ("constant", "linear"):
        raise ValueError("Trend type must be 'linear' or 'constant'.")
    data = floats("detrend", data)
    if type == "constant":
        return data - data.mean(axis, keepdims=True)
    n = data.shape[axis]
    ends = np.unique(np.r_[0, bp, n])
    if ends[0] < 0 or ends[-1] > n:
        raise ValueError("Breakpoints must be non-negative and less than length of data along given axis.")
    columns = jnp.moveaxis(data, axis, 0)
    rows = columns.reshape(n, -1)
    pieces = [_without_line(rows[a:b]) for a, b in zip(ends[:-1], ends[1:])]
    return jnp.moveaxis(jnp.concatenate(pieces).reshape(columns.shape), 0, axis)


def _without_line(rows: Array) -> Array:
    n = rows.shape[0]
    a = jnp.vstack([jnp.ones(n, dtype=rows.dtype), jnp.arange(1, n + 1, dtype=rows.dtype) / n]).T
    coefficients = jnp.linalg.lstsq(a, rows)[0]
    return rows - jnp.matmul(a, coefficients, precision=lax.Precision.HIGHEST)


# ---- windows and segments --------------------------------------------------------------------------------------------

def _named_window(window: Any, n: int) -> Any:
    """A window of scipy by name; hann here, as it is the default."""
    if isinstance(window, str) and window == "hann":
        return np.ones(1) if n == 1 else np.sin(np.linspace(0, np.pi, n, endpoint=False)) ** 2
    from scipy.signal import get_window
    return get_window(window, n)


def _window(window: Any, nperseg: int | None, length: int, dtype: Any) -> tuple[Array, int]:
    if isinstance(window, (str, tuple)):
        n = length if nperseg is None else nperseg
        if n > length:
            warnings.warn(f"nperseg={n} is greater than input_length={length}, using nperseg={length}", stacklevel=4)
            n = length
        return jnp.array(_named_window(window, n), dtype=dtype), n
    win = jnp.asarray(window, dtype=dtype)
    if win.ndim != 1:
        raise ValueError("window must be 1-D")
    if length < win.size:
        raise ValueError("window is longer than input signal")
    if nperseg is not None and nperseg != win.size:
        raise ValueError("value specified for nperseg is different from length of window")
    return win, win.size


def _odd_extension(x: Array, n: int) -> Array:
    """n values on both sides of the last axis, mirrored at the end points."""
    if n < 1:
        return x
    if n > x.shape[-1] - 1:
        raise ValueError(f"The extension length n ({n}) is too big. It must not exceed x.shape[axis]-1, which is "
                         f"{x.shape[-1] - 1}.")
    left, right = jnp.flip(x[..., 1:n + 1], -1), jnp.flip(x[..., -(n + 1):-1], -1)
    return jnp.concatenate([2 * x[..., :1] - left, x, 2 * x[..., -1:] - right], axis=-1)


def _padded(x: Array, n: int, mode: str) -> Array:
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(n, n)], mode)


_EXTENSIONS: dict[Any, Callable[[Array, int], Array]] = {
    "even": lambda x, n: _padded(x, n, "reflect"), "odd": _odd_extension, "constant": lambda x, n: _padded(x, n, "edge"),
    "zeros": lambda x, n: _padded(x, n, "constant"), None: lambda x, n: x}


def _with_zeros(x: Array, n: int) -> Array:
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, n)]) if n else x


def _detrender(kind: Any, axis: int) -> Callable[[Array], Array]:
    if isinstance(kind, str):
        return lambda d: detrend(d, type=kind, axis=-1)
    if callable(kind):
        return kind if axis == -1 else lambda d: jnp.moveaxis(kind(jnp.moveaxis(d, axis, -1)), -1, axis)
    if not kind:
        return lambda d: d
    raise ValueError(f"Unsupported detrend type: {kind}")


def _segment_transforms(x: Array, win: Array, detrended: Callable, step: int, nfft: int, one_sided: bool) -> Array:
    """(.., time) -> (.., segment, frequency)."""
    n = win.size
    starts = np.arange(0, x.shape[-1] - n + 1, step)
    segments = detrended(x[..., starts[:, None] + np.arange(n)[None, :]])
    segments = win * segments
    return jnp.fft.rfft(segments.real, n=nfft) if one_sided else jnp.fft.fft(segments, n=nfft)


def _int(value: Any, name: str) -> int:
    return int(concrete(value, f"{name} of windowed-FFT"))


def _spectra(x: Array, y: Array | None, fs: Any, window: Any, nperseg: int | None, noverlap: int | None, nfft: int | None,
             detrend_type: Any, one_sided: bool, scaling: str, axis: int, stft_mode: bool, boundary: str | None,
             padded: bool) -> tuple[Array, Array, Array]:
    """(frequencies, times, transforms of x, or conj of them times those of y): what stft, csd and welch share."""
    if boundary not in _EXTENSIONS:
        raise ValueError(f"Unknown boundary option '{boundary}', must be one of: {list(_EXTENSIONS)}")
    check("spectral_helper", *([x] if y is None else [x, y]))
    axis = axis_of(axis, jnp.ndim(x))
    signals = [floats("spectral_helper", x)] if y is None else floats("spectral_helper", x, y)
    if len(signals) == 2 and signals[0].ndim != signals[1].ndim:
        raise ValueError(f"two-arguments must have the same rank ({signals[0].ndim} vs {signals[1].ndim}).")
    dtype = signals[0].dtype
    result_dtype = dtypes.to_complex_dtype(dtype)
    freq_dtype = np.zeros((), result_dtype).real.dtype
    if nperseg is not None and _int(nperseg, "nperseg") < 1:
        raise ValueError("nperseg must be a positive integer")
    win, n = _window(window, None if nperseg is None else _int(nperseg, "nperseg"), signals[0].shape[axis], dtype)
    overlap = n // 2 if noverlap is None else _int(noverlap, "noverlap")
    nfft = n if nfft is None else _int(nfft, "nfft")
    if any(s.size == 0 for s in signals):
        return _empty_spectra(signals, axis, freq_dtype, result_dtype)
    signals = [jnp.moveaxis(s, axis, -1) for s in signals]
    length = max(s.shape[-1] for s in signals)
    if nfft < n:
        raise ValueError("nfft must be greater than or equal to nperseg.")
    if overlap >= n:
        raise ValueError("noverlap must be less than nperseg.")
    step = n - overlap
    signals = [_EXTENSIONS[boundary](_with_zeros(s, length - s.shape[-1]), n // 2) for s in signals]
    if padded:
        signals = [_with_zeros(s, (-(s.shape[-1] - n) % step) % n) for s in signals]
    if one_sided and any(map(is_complex, signals)):
        warnings.warn("Input data is complex, switching to return_onesided=False", stacklevel=3)
        one_sided = False
    out = [_segment_transforms(s, win, _detrender(detrend_type, -1), step, nfft, one_sided) for s in signals]
    return _scaled(out, win, fs, scaling, nfft, one_sided, stft_mode, signals[0].shape[-1], step, boundary,
                   (freq_dtype, result_dtype), axis)


def _empty_spectra(signals, axis, freq_dtype, result_dtype):
    shape = list(jnp.broadcast_shapes(*[s.shape[:axis] + s.shape[axis + 1:] for s in signals]))
    shape.insert(axis, min(s.shape[axis] for s in signals))
    return jnp.zeros(shape, freq_dtype), jnp.zeros(shape, freq_dtype), jnp.zeros(shape, result_dtype)


def _scaled(out, win, fs, scaling, nfft, one_sided, stft_mode, length, step, boundary, kinds, axis):
    n = win.size
    if scaling not in ("density", "spectrum"):
        raise ValueError(f"Unknown scaling: {scaling}")
    scale = 1.0 / (fs * (win * win).sum()) if scaling == "density" else 1.0 / win.sum() ** 2
    result = out[0] if stft_mode else jnp.conjugate(out[0]) * out[-1]
    result = result * (jnp.sqrt(scale) if stft_mode else scale)
    if one_sided and not stft_mode:
        result = result.at[..., 1:None if nfft % 2 else -1].multiply(2)
    freqs = (jnp.fft.rfftfreq if one_sided else jnp.fft.fftfreq)(nfft, 1 / fs, dtype=kinds[0])
    times = jnp.arange(n / 2, length - n / 2 + 1, step, dtype=kinds[0]) / fs
    if boundary is not None:
        times = times - (n / 2) / fs
    result = result.astype(kinds[1])
    if len(out) == 1 and not stft_mode:
        result = result.real
    return freqs, times, jnp.moveaxis(result, -1, axis)


# ---- public ----------------------------------------------------------------------------------------------------------

def stft(x: Array, fs: Any = 1.0, window: Any = "hann", nperseg: int = 256, noverlap: int | None = None,
         nfft: int | None = None, detrend: Any = False, return_onesided: bool = True, boundary: str | None = "zeros",
         padded: bool = True, axis: int = -1) -> tuple[Array, Array, Array]:
    """(frequencies, times, transform): Fourier transforms of overlapping windowed segments; times become the last axis."""
    return _spectra(x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, "spectrum", axis, True,
                    boundary, padded)


def csd(x: Array, y: Array | None, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None,
        noverlap: int | None = None, nfft: int | None = None, detrend: Any = "constant", return_onesided: bool = True,
        scaling: str = "density", axis: int = -1, average: str = "mean") -> tuple[Array, Array]:
    """(frequencies, cross power spectrum), averaged over segments by mean or median (Welch's method)."""
    freqs, _, power = _spectra(x, y, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, False,
                               None, False)
    if y is not None:
        power = power + 0j
    if power.ndim < 2 or power.size == 0:
        return freqs, power
    count = power.shape[-1]
    if count == 1:
        return freqs, power.reshape(power.shape[:-1])
    if average == "mean":
        return freqs, power.mean(axis=-1)
    if average != "median":
        raise ValueError(f'average must be "median" or "mean", got {average}')
    steps = np.arange(2., count, 2)
    bias = 1 + np.sum(1. / (steps + 1) - 1. / steps)        # of the median of exponentially distributed values
    middle = jnp.median(jnp.real(power), axis=-1)
    if is_complex(power):
        middle = middle + 1j * jnp.median(jnp.imag(power), axis=-1)
    return freqs, middle / bias


def welch(x: Array, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
          nfft: int | None = None, detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density",
          axis: int = -1, average: str = "mean") -> tuple[Array, Array]:
    """(frequencies, power spectrum)."""
    freqs, power = csd(x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average)
    return freqs, power.real


def _overlap_add(frames: Array, step: int) -> Array:
    """(.., n, length) -> (.., total): frames added at multiples of step."""
    *batch, n, length = frames.shape
    at = (np.arange(n)[:, None] * step + np.arange(length)[None, :]).ravel()
    out = jnp.zeros((*batch, step * (n - 1) + length), frames.dtype)
    return out.at[..., at].add(frames.reshape(*batch, n * length))


def istft(Zxx: Array, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
          nfft: int | None = None, input_onesided: bool = True, boundary: bool = True, time_axis: int = -1,
          freq_axis: int = -2) -> tuple[Array, Array]:
    """(times, signal) from the transform that stft gives with the same settings."""
    check("istft", Zxx)
    z = jnp.asarray(Zxx)
    if z.ndim < 2:
        raise ValueError("Input stft must be at least 2d!")
    freq_axis, time_axis = axis_of(freq_axis, z.ndim), axis_of(time_axis, z.ndim)
    if freq_axis == time_axis:
        raise ValueError("Must specify differing time and frequency axes!")
    z = z.astype(dtypes.to_complex_dtype(inexact("istft", z).dtype))
    default = 2 * (z.shape[freq_axis] - 1) if input_onesided else z.shape[freq_axis]
    n = _int(nperseg or default, "nperseg")
    if n < 1:
        raise ValueError("nperseg must be a positive integer")
    size = default + (input_onesided and n == default + 1) if nfft is None else _int(nfft, "nfft")
    if size < n:
        raise ValueError(f"FFT length ({size}) must be longer than nperseg ({n}).")
    overlap = n // 2 if noverlap is None else _int(noverlap, "noverlap")
    if overlap >= n:
        raise ValueError("noverlap must be less than nperseg.")
    frames = jnp.moveaxis(z, (time_axis, freq_axis), (-2, -1))
    frames = (jnp.fft.irfft if input_onesided else jnp.fft.ifft)(frames, n=size)[..., :n]
    if isinstance(window, (str, tuple)):
        win = jnp.array(_named_window(window, n), dtype=frames.dtype)
    else:
        win = jnp.asarray(window)
        if win.ndim != 1 or win.shape[0] != n:
            raise ValueError("window must be 1-D" if win.ndim != 1 else f"window must have length of {n}")
    x = _reconstruct(frames, win, n - overlap, n // 2 if boundary else 0)
    if x.ndim > 1 and time_axis != z.ndim - 1:
        x = jnp.moveaxis(x, -1, time_axis - (freq_axis < time_axis))
    return jnp.arange(x.shape[0], dtype=np.zeros((), x.dtype).real.dtype) / fs, x


@fused("step", "cut")
def _reconstruct(frames: Array, win: Array, step: int, cut: int) -> Array:
    """Weighted overlap-add: windowed frames over the sum of squared windows."""
    x = _overlap_add(frames * win.sum() * win, step)
    norm = _overlap_add(jnp.broadcast_to(win * win, frames.shape[-2:]), step)
    if cut:
        x, norm = x[..., cut:-cut], norm[..., cut:-cut]
    return x / jnp.where(norm > 1e-10, norm, 1.0)
