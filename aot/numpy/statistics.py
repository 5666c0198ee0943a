"""Quantiles, histograms, counts, covariance, and one-dimensional convolution."""
from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from aot import lax
from aot.numpy import _util, reductions
from aot.numpy._util import (
    array_of,
    arrays,
    axes_of,
    cast,
    check,
    concrete,
    concrete_index,
    default_int,
    inexact,
    kind,
    named,
    promote,
    promote_args,
    typeof,
    user_dtype,
)
from aot.numpy._util import where as _where
from aot.numpy.elementwise import isnan
from aot.numpy.selecting import clip, ravel_multi_index, take_along_axis
from aot.numpy.sorting import searchsorted
from aot.ops.shape import placed
from aot.trace import concrete_or_error

_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")


# ---- quantiles -------------------------------------------------------------------------------------------------------
def quantile(a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
             keepdims: bool = False, *, weights: Any = None) -> Any:
    """Values below which the fraction `q` of the elements lies; nan if there is a nan.

    Shape: that of `q` followed by the other axes of `a`. `method`: linear, lower, higher, midpoint, nearest or
    inverted_cdf; only the last one takes `weights`.
    """
    return quantile_of("quantile", a, q, axis, out, overwrite_input, method, keepdims, weights, skip_nan=False)


def percentile(a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
               keepdims: bool = False, *, weights: Any = None, out_sharding: Any = None) -> Any:
    """Like `quantile`, with `q` in percent."""
    return placed(quantile(a, percent("percentile", q), axis, out, overwrite_input, method, keepdims, weights=weights),
                  out_sharding)


def median(a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    """The middle element, or the mean of the two in the middle."""
    return quantile(a, 0.5, axis, out, overwrite_input, "midpoint", keepdims)


def percent(name: str, q: Any) -> Any:
    """A percentage as a fraction."""
    (q,) = promote_args(name, q, to=inexact)
    return lax.div(q, cast(100, typeof(q).dtype, typeof(q).weak_type))


def quantile_of(name: str, a: Any, q: Any, axis: Any, out: Any, overwrite_input: bool, method: str, keepdims: bool,
                weights: Any, skip_nan: bool) -> Any:
    """Check the arguments of a quantile function and compute it."""
    check(name, a, q)
    a = array_of(a)
    if overwrite_input or out is not None:
        raise ValueError(f"jax.numpy.{name} does not support overwrite_input=True or out != None")
    if method not in _INTERPOLATIONS:
        raise ValueError(f"method can only be one of {', '.join(map(repr, _INTERPOLATIONS))}")
    weights = None if weights is None else arrays(name, weights)
    axis = axis if axis is None or isinstance(axis, int) else tuple(axis)
    return _quantile(a, q, weights, axis=axis, method=method, keepdims=keepdims, skip_nan=skip_nan)


def _spread(weights: Any, a: Any, axis: Any, method: str) -> Any:
    """Weights with the shape of `a`."""
    if kind(weights.dtype) == "c":
        raise ValueError("Weights cannot be complex types.")
    if method != "inverted_cdf":
        raise NotImplementedError(f"{method} doesn't support weights. Only method 'inverted_cdf' supports weights.")
    if weights.shape == a.shape:
        return weights
    if axis is None:
        raise ValueError("Weights shape must match 'a' shape when axis is None.")
    axes = axes_of(axis, a.ndim)
    if weights.shape != tuple(a.shape[i] for i in axes):
        raise ValueError(f"Weights shape {weights.shape} must match reduction axes {tuple(a.shape[i] for i in axes)}")
    order = tuple(np.argsort(axes).tolist())
    return lax.broadcast_in_dim(lax.transpose(weights, order), a.shape, tuple(sorted(axes)))


def _last(a: Any, axes: tuple[int, ...]) -> Any:
    """The axes to reduce merged into the last one."""
    keep = tuple(i for i in range(a.ndim) if i not in axes)
    sizes = (*[a.shape[i] for i in keep], math.prod(a.shape[i] for i in axes))
    return lax.reshape(lax.transpose(a, (*keep, *axes)), sizes)


@named("axis", "method", "keepdims", "skip_nan")
def _quantile(a: Any, q: Any, weights: Any, axis: Any, method: str, keepdims: bool, skip_nan: bool) -> Any:
    q, axes = array_of(q), axes_of(axis, a.ndim)
    kept = tuple(1 if i in axes else n for i, n in enumerate(a.shape))
    if weights is not None:
        a, weights = [array_of(x) for x in promote(a, weights, to=inexact)]
        weights = _last(_spread(weights, a, axis, method), axes)
    (a,) = promote(a, to=inexact)
    if kind(a.dtype) == "c":
        raise ValueError("quantile does not support complex input, as the operation is poorly defined.")
    if q.ndim > 1:
        raise ValueError(f"q must be have rank <= 1, got shape {q.shape}")
    if method == "inverted_cdf":
        out = _by_weight(_last(a, axes), q, weights, skip_nan)
    else:
        out = _by_rank(_last(a, axes), q, method, skip_nan)
    out = lax.reshape(out, (*q.shape, *kept)) if keepdims else out
    return lax.convert_element_type(out, a.dtype)


def _pick(rows: Any, positions: Any, q_ndim: int) -> Any:
    """`rows[..., position]`; positions have shape `(*q, *rows.shape[:-1])`."""
    if q_ndim == 0:
        return lax.squeeze(take_along_axis(rows, lax.expand_dims(positions, (rows.ndim - 1,)), axis=-1), (rows.ndim - 1,))
    last = lax.transpose(positions, (*range(1, positions.ndim), 0))
    return lax.transpose(take_along_axis(rows, last, axis=-1), (rows.ndim - 1, *range(rows.ndim - 1)))


def _by_rank(a: Any, q: Any, method: str, skip_nan: bool) -> Any:
    """Interpolate between the neighbours of position q * (count - 1) in sorted order."""
    nan, n = isnan(a), a.shape[-1]
    if not skip_nan:
        a = _where(reductions.any(nan, axis=-1, keepdims=True), cast(np.nan, a.dtype), a)
    rows = lax.sort(a, dimension=-1)
    batch = a.shape[:-1]
    if skip_nan:
        top = reductions.sum(lax.bitwise_not(nan), axis=-1, dtype=q.dtype) - 1
    else:
        top = lax.full(batch, n - 1, q.dtype)
    shape = (*q.shape, *batch)
    top = lax.broadcast_in_dim(top, shape, tuple(range(q.ndim, len(shape))))
    place = lax.mul(lax.broadcast_in_dim(q, shape, tuple(range(q.ndim))), top)
    low, high = lax.floor(place), lax.ceil(place)
    high_share = lax.sub(place, low)
    low, high = [lax.convert_element_type(lax.max(cast(0, x.dtype), lax.min(x, top)), default_int()) for x in (low, high)]
    return _interpolate(_pick(rows, low, q.ndim), _pick(rows, high, q.ndim), high_share, method)


def _interpolate(low: Any, high: Any, high_share: Any, method: str) -> Any:
    if method == "linear":
        low, high = [lax.convert_element_type(x, high_share.dtype) for x in (low, high)]
        return lax.add(lax.mul(low, lax.sub(cast(1, high_share.dtype), high_share)), lax.mul(high, high_share))
    if method == "midpoint":
        return lax.mul(lax.add(low, high), cast(0.5, low.dtype))
    if method == "nearest":
        return lax.select(lax.le(high_share, cast(0.5, high_share.dtype)), low, high)
    return low if method == "lower" else high


def _by_weight(a: Any, q: Any, weights: Any, skip_nan: bool) -> Any:
    """The first element, in sorted order, up to which at least the fraction q of all weight lies."""
    weights = lax.full_like(a, 1.0) if weights is None else weights
    rows, weights = lax.sort_key_val(a, weights, dimension=-1)
    nan, zero = isnan(rows), lax.full_like(weights, 0)
    bad = lax.bitwise_or(lax.lt(weights, zero), isnan(weights))
    running = lax.cumsum(lax.select(lax.bitwise_or(bad, nan), zero, weights), axis=rows.ndim - 1)
    total = lax.index_in_dim(running, -1, axis=-1, keepdims=False)
    count = reductions.sum(lax.bitwise_not(nan), axis=-1, dtype=default_int())
    shape = (*q.shape, *total.shape)
    target = lax.broadcast_in_dim(q, shape, tuple(range(q.ndim))) * lax.broadcast_in_dim(
        total, shape, tuple(range(q.ndim, len(shape))))
    wide = (*shape, rows.shape[-1])
    below = lax.lt(lax.broadcast_in_dim(running, wide, tuple(range(q.ndim, len(wide)))),
                   lax.broadcast_in_dim(lax.convert_element_type(target, running.dtype), wide, tuple(range(len(shape)))))
    index = reductions.sum(below, axis=-1, dtype=default_int())
    limit = count if skip_nan else lax.full(count.shape, rows.shape[-1], count.dtype)
    limit = lax.broadcast_in_dim(limit - 1, shape, tuple(range(q.ndim, len(shape))))
    out = _pick(rows, lax.max(cast(0, index.dtype), lax.min(index, limit)), q.ndim)
    useless = lax.eq(count, cast(0, count.dtype)) if skip_nan else reductions.any(nan, axis=-1)
    useless = lax.bitwise_or(reductions.any(bad, axis=-1), useless)
    return _where(useless, cast(np.nan, out.dtype), out)


# ---- counts and histograms -------------------------------------------------------------------------------------------
def bincount(x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None,
             out_sharding: Any = None) -> Any:
    """How often each non-negative integer occurs, or the sum of its weights. A traced `x` needs `length`."""
    x = arrays("bincount", x)
    x = lax.convert_element_type(x, np.int32) if kind(x.dtype) == "b" else x
    if kind(x.dtype) not in "ui":
        raise TypeError(f"x argument to bincount must have an integer type; got {x.dtype}")
    if x.ndim != 1:
        raise ValueError("only 1-dimensional input supported.")
    minlength = concrete_index(minlength, "The error occurred because of argument 'minlength' of jnp.bincount.")
    if length is None:
        known = np.asarray(concrete(x, "The error occurred because of argument 'x' of jnp.bincount. To avoid this error, "
                                    "pass a static `length` argument."))
        length = max(minlength, int(known.max(initial=-1).clip(-1)) + 1 if known.size else 0)
    length = concrete_index(length, "The error occurred because of argument 'length' of jnp.bincount.")
    if weights is None:
        weights = np.ones((), default_int())
    elif np.shape(weights) != x.shape:
        raise ValueError(f"type of weights must match type of x. Got shapes {np.shape(weights)} and {x.shape}")
    start = lax.full((length,), 0, _util.dtype_of(weights))
    return placed(start.at[clip(x, 0)].add(weights, mode="drop"), out_sharding)


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """The edges of the bins `histogram` would use."""
    from aot.numpy.creation import asarray, linspace

    if isinstance(bins, str):
        raise NotImplementedError("string values for `bins` not implemented.")
    check("histogram_bin_edges", a, bins)
    a = asarray(a)
    dtype = inexact(a.dtype)
    if np.ndim(bins) == 1:
        return asarray(bins, dtype=dtype)
    bins = concrete_or_error(operator.index, bins, "bins argument of histogram_bin_edges")
    low_high = asarray([reductions.min(a), reductions.max(a)] if range is None else range, dtype=dtype)
    if low_high.shape != (2,):
        raise ValueError(f"`range` must be either None or a sequence of scalars, got {range}")
    low, high = low_high[0], low_high[1]
    flat = low == high
    return linspace(_where(flat, low - 0.5, low), _where(flat, high + 0.5, high), bins + 1, dtype=dtype)


def _sample(name: str, a: Any, weights: Any) -> tuple[Any, Any]:
    if weights is None:
        (a,) = promote(arrays(name, a), to=inexact)
        return a, None
    a, weights = arrays(name, a, weights)
    expected = a.shape if name == "histogram" else a.shape[:1]
    if weights.shape != expected:
        raise ValueError("weights should have the same shape as a." if name == "histogram" else
                         "should have one weight for each sample.")
    return tuple(promote(a, weights, to=inexact))


def histogram(a: Any, bins: Any = 10, range: Any = None, weights: Any = None,
              density: bool | None = None) -> tuple[Any, Any]:
    """Number (or weight, or density) of elements in each bin, and the bin edges."""
    from aot.numpy.differences import diff

    check("histogram", bins)
    a, weights = _sample("histogram", a, weights)
    weights = lax.full_like(a, 1) if weights is None else weights
    edges = histogram_bin_edges(a, bins, range, weights)
    where_ = searchsorted(edges, a, side="right")
    where_ = _where(a == edges[-1], edges.shape[0] - 1, where_)  # the last bin includes its right edge
    counts = lax.full((edges.shape[0],), 0, weights.dtype).at[where_].add(weights)[1:]
    if density:
        counts = counts / diff(edges) / reductions.sum(counts)
    return counts, edges


def histogram2d(x: Any, y: Any, bins: Any = 10, range: Any = None, weights: Any = None,
                density: bool | None = None) -> tuple[Any, Any, Any]:
    """Histogram of points in the plane, and the edges along both axes."""
    x, y = promote_args("histogram2d", x, y)
    try:
        count = len(bins)
    except TypeError:
        count = 1
    bins = bins if count in (1, 2) else [array_of(bins)] * 2
    sample = lax.stack([array_of(v) for v in (x, y)], axis=1)
    hist, edges = histogramdd(sample, bins, range, weights, density)
    return hist, edges[0], edges[1]


def histogramdd(sample: Any, bins: Any = 10, range: Any = None, weights: Any = None,
                density: bool | None = None) -> tuple[Any, list[Any]]:
    """Histogram of points, the rows of `sample`, and the edges along every axis."""
    from aot.numpy.creation import ix_
    from aot.numpy.differences import diff

    sample, weights = _sample("histogramdd", sample, weights)
    n, d = sample.shape
    if range is not None and (len(range) != d or any(r is not None and np.shape(r)[0] != 2 for r in range)):
        raise ValueError(f"For sample.shape={(n, d)}, range must be a sequence of {d} pairs or Nones; got {range=}")
    try:
        per_axis: Sequence[Any] = list(bins)
    except TypeError:
        per_axis = [bins] * d
    if len(per_axis) != d:
        raise ValueError("should be a bin for each dimension.")
    edges, where_ = [], []
    for i, (column, b) in enumerate(zip(sample.T, per_axis)):
        e = histogram_bin_edges(column, b, None if range is None else range[i], weights)
        at = searchsorted(e, column, side="right")
        edges.append(e)
        where_.append(_where(column == e[-1], at - 1, at))
    sizes = tuple(e.shape[0] + 1 for e in edges)  # one more bin on each side for what lies outside
    flat = ravel_multi_index(tuple(where_), sizes, mode="clip")
    hist = lax.reshape(bincount(flat, weights, length=math.prod(sizes)), sizes)[(slice(1, -1),) * d]
    if density:
        hist = lax.convert_element_type(hist, sample.dtype)
        hist = hist / reductions.sum(hist)
        for width in ix_(*map(diff, edges)):
            hist = hist / width
    return hist, edges


# ---- covariance ------------------------------------------------------------------------------------------------------
def _weights_of(name: str, w: Any, count: int) -> Any:
    w = arrays("cov", w)
    if w.ndim > 1:
        raise RuntimeError(f"cannot handle multidimensional {name}")
    if w.shape[0] != count:
        raise RuntimeError(f"incompatible numbers of samples and {name}")
    if name == "fweights" and kind(w.dtype) not in "ui":
        raise TypeError("fweights must be integer.")
    return abs(w)


def _rows(m: Any) -> Any:
    return m if m.ndim == 2 else lax.reshape(m, (1, m.size))


@named("rowvar", "bias", "ddof", "dtype")
def cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None, fweights: Any = None,
        aweights: Any = None, dtype: Any = None) -> Any:
    """Covariance matrix of variables, one a row (or one a column if not `rowvar`)."""
    given = promote_args("cov", *([m] if y is None else [m, y]), to=inexact)
    given = [array_of(x) for x in given]
    m, y = given if y is not None else (given[0], None)
    for name, x in (("m", m), ("y", y)):
        if x is not None and x.ndim > 2:
            raise ValueError(f"{name} has more than 2 dimensions")
    if dtype is not None and kind(user_dtype(dtype)) not in "fc":
        raise ValueError(f"cov: dtype must be a subclass of float or complex; got {dtype=}")
    x = _rows(m)
    x = lax.transpose(x, (1, 0)) if not rowvar and m.ndim != 1 else x
    if x.shape[0] == 0:
        return lax.full((0, 0), 0, _util.default_float())
    if y is not None:
        second = _rows(y)
        second = lax.transpose(second, (1, 0)) if not rowvar and second.shape[0] != 1 else second
        x = lax.concatenate([x, second], 0)
    if x.shape[1] == 0:
        return lax.full(() if x.shape[0] == 1 else (x.shape[0],) * 2, np.nan, x.dtype)
    ddof = (0 if bias else 1) if ddof is None else ddof
    return _covariance(x, ddof, fweights, aweights, None if dtype is None else user_dtype(dtype))


def _covariance(x: Any, ddof: int, fweights: Any, aweights: Any, dtype: Any) -> Any:
    from aot.numpy.products import dot

    count = x.shape[1]
    w = None if fweights is None else _weights_of("fweights", fweights, count)
    if aweights is not None:
        aweights = _weights_of("aweights", aweights, count)
        w = aweights if w is None else w * aweights
    if dtype is not None:
        x = lax.convert_element_type(x, dtype)
        w = None if w is None else lax.convert_element_type(w, dtype)
    avg, total = reductions.average(x, axis=1, weights=w, returned=True)
    total = total[0]
    if w is None:
        divisor: Any = count - ddof
    elif ddof == 0 or aweights is None:
        divisor = total - ddof
    else:
        divisor = total - ddof * reductions.sum(w * aweights) / total
    x = x - avg[:, None]
    other = (x if w is None else x * w[None, :]).T.conj()
    out = dot(x, other) / divisor
    return lax.reshape(out, ()) if out.shape == (1, 1) else out


@named("rowvar", "dtype")
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, dtype: Any = None) -> Any:
    """Correlation coefficients of variables, see `cov`."""
    check("corrcoef", x)
    if dtype is not None and kind(user_dtype(dtype)) not in "fc":
        raise ValueError(f"corrcoef: dtype must be a subclass of float or complex; got {dtype=}")
    c = cov(x, y, rowvar=rowvar, dtype=dtype)
    if c.ndim == 0:
        return c / c
    from aot.numpy.matrices import diag

    variance = diag(c)
    deviation = lax.sqrt(lax.real(variance) if kind(c.dtype) == "c" else variance)
    deviation = lax.convert_element_type(deviation, c.dtype)
    c = c / deviation[:, None] / deviation[None, :]
    if kind(c.dtype) != "c":
        return clip(c, -1, 1)
    return lax.complex(clip(lax.real(c), -1, 1), clip(lax.imag(c), -1, 1))


# ---- convolution -----------------------------------------------------------------------------------------------------
def _sliding(name: str, x: Any, y: Any, mode: str, precision: Any, preferred_element_type: Any) -> Any:
    x, y = arrays(name, x, y)
    if x.ndim != 1 or y.ndim != 1:
        raise ValueError(f"{name}() only support 1-dimensional inputs.")
    x, y = [array_of(v) for v in promote(x, y, to=inexact if preferred_element_type is None else None)]
    if x.shape[0] == 0 or y.shape[0] == 0:
        raise ValueError(f"{name}: inputs cannot be empty, got shapes {x.shape} and {y.shape}.")
    if name == "correlate":
        y = lax.conj(y) if kind(y.dtype) == "c" else y
    swapped = x.shape[0] < y.shape[0]
    x, y = (y, x) if swapped else (x, y)
    y = lax.rev(y, (0,)) if name == "convolve" else y
    n = y.shape[0]
    pads = {"valid": (0, 0), "same": (n // 2, n - n // 2 - 1), "full": (n - 1, n - 1)}
    if mode not in pads:
        raise ValueError("mode must be one of ['full', 'same', 'valid']")
    dtype = None if preferred_element_type is None else user_dtype(preferred_element_type)
    out = lax.conv_general_dilated(lax.reshape(x, (1, 1, x.size)), lax.reshape(y, (1, 1, n)), (1,), [pads[mode]],
                                   precision=precision, preferred_element_type=dtype)
    out = lax.reshape(out, (out.size,))
    return lax.rev(out, (0,)) if swapped and name == "correlate" else out


@named("mode", "precision", "preferred_element_type")
def convolve(a: Any, v: Any, mode: str = "full", *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Convolution of two sequences. `mode`: "full", "same" (as long as the longer one) or "valid" (full overlap)."""
    return _sliding("convolve", a, v, mode, precision, preferred_element_type)


@named("mode", "precision", "preferred_element_type")
def correlate(a: Any, v: Any, mode: str = "valid", *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Cross-correlation of two sequences, the second one conjugated."""
    return _sliding("correlate", a, v, mode, precision, preferred_element_type)
