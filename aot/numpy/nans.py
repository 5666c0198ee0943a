"""Reductions that leave out nan."""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from aot import lax
from aot.numpy import reductions
from aot.numpy._util import arrays, cast, inexact, kind, mask_of, named, no_out, user_dtype, where
from aot.numpy._util import where as _where
from aot.numpy.elementwise import isnan
from aot.numpy.reductions import neutral


def _without_nan(name: str, reduce: Callable, a: Any, init: float, axis: Any, keepdims: bool, mask: Any, empty_is_nan: bool,
                 **options: Any) -> Any:
    """`reduce` with nan replaced by the neutral element; nan where nothing else was there, if asked."""
    a, mask = arrays(name, a), mask_of(name, mask)
    if kind(a.dtype) not in "fc":
        return reduce(a, axis=axis, keepdims=keepdims, where=mask, **options)
    nan = isnan(a)
    out = reduce(_where(nan, neutral(init, a.dtype), a), axis=axis, keepdims=keepdims, where=mask, **options)
    if not empty_is_nan:
        return out
    return _where(reductions.all(nan, axis=axis, keepdims=keepdims), cast(np.nan, a.dtype), out)


@named("axis", "keepdims")
def nanmin(a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
           where: Any = None) -> Any:
    """Smallest element that is not nan; nan if there is none."""
    no_out("nanmin", out)
    return _without_nan("nanmin", reductions.min, a, np.inf, axis, keepdims, where, initial is None, initial=initial)


@named("axis", "keepdims")
def nanmax(a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
           where: Any = None) -> Any:
    """Largest element that is not nan; nan if there is none."""
    no_out("nanmax", out)
    return _without_nan("nanmax", reductions.max, a, -np.inf, axis, keepdims, where, initial is None, initial=initial)


@named("axis", "dtype", "keepdims")
def nansum(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
           where: Any = None) -> Any:
    """Sum of the elements that are not nan."""
    no_out("nansum", out)
    return _without_nan("nansum", reductions.sum, a, 0, axis, keepdims, where, False, dtype=dtype, initial=initial)


@named("axis", "dtype", "keepdims")
def nanprod(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
            where: Any = None) -> Any:
    """Product of the elements that are not nan."""
    no_out("nanprod", out)
    return _without_nan("nanprod", reductions.prod, a, 1, axis, keepdims, where, False, dtype=dtype, initial=initial)


@named("axis", "dtype", "keepdims")
def nanmean(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False,
            where: Any = None) -> Any:
    """Mean of the elements that are not nan; nan if there is none."""
    a, mask = arrays("nanmean", a), mask_of("nanmean", where)
    no_out("nanmean", out)
    if kind(a.dtype) not in "fc":
        return reductions.mean(a, axis, dtype, keepdims=keepdims, where=mask)
    dtype = inexact(a.dtype) if dtype is None else user_dtype(dtype, "nanmean")
    there = lax.bitwise_not(isnan(a))
    count = reductions.sum(there, axis=axis, dtype=dtype, keepdims=keepdims, where=mask)
    return lax.div(nansum(a, axis=axis, dtype=dtype, keepdims=keepdims, where=mask), count)


@named("axis", "dtype", "keepdims")
def nanvar(a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: int = 0, keepdims: bool = False,
           where: Any = None, mean: Any = None) -> Any:
    """Variance of the elements that are not nan."""
    a, mask = arrays("nanvar", a), mask_of("nanvar", where)
    no_out("nanvar", out)
    dtype = None if dtype is None else user_dtype(dtype, "nanvar")
    work, result = reductions.var_dtypes("nanvar", a.dtype, dtype)
    a = lax.convert_element_type(a, work)
    nan = isnan(a)
    centre = nanmean(a, axis=axis, dtype=work, keepdims=True, where=mask) if mean is None else mean
    squares = reductions.squared_distance(a, lax.convert_element_type(centre, work))
    squares = _where(nan, cast(0, squares.dtype), squares)
    n = reductions.sum(lax.bitwise_not(nan), axis=axis, keepdims=keepdims, where=mask) - ddof
    total = reductions.sum(squares, axis=axis, keepdims=keepdims, where=mask)
    empty = n <= 0
    out_ = _where(empty, cast(np.nan, total.dtype), total) / lax.convert_element_type(_where(empty, 1, n), total.dtype)
    return lax.convert_element_type(out_, result)


@named("axis", "dtype", "keepdims")
def nanstd(a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: int = 0, keepdims: bool = False,
           where: Any = None, mean: Any = None) -> Any:
    """Standard deviation of the elements that are not nan."""
    no_out("nanstd", out)
    dtype = None if dtype is None else user_dtype(dtype, "nanstd")
    return lax.sqrt(nanvar(a, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims, where=where, mean=mean))


@named("axis", "dtype")
def nancumsum(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
    """Cumulative sum with nan as 0."""
    return reductions.cumulate("nancumsum", lax.cumsum, _replaced("nancumsum", a, 0), axis, dtype, out)


@named("axis", "dtype")
def nancumprod(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
    """Cumulative product with nan as 1."""
    return reductions.cumulate("nancumprod", lax.cumprod, _replaced("nancumprod", a, 1), axis, dtype, out)


def _replaced(name: str, a: Any, value: int) -> Any:
    a = arrays(name, a)
    return _where(isnan(a), cast(value, a.dtype), a) if kind(a.dtype) in "fc" else a


@named("axis", "keepdims")
def _nanargmax(a: Any, axis: int | None, keepdims: bool) -> Any:
    return _nanarg(reductions.argmax, -np.inf, a, axis, keepdims)


@named("axis", "keepdims")
def _nanargmin(a: Any, axis: int | None, keepdims: bool) -> Any:
    return _nanarg(reductions.argmin, np.inf, a, axis, keepdims)


def _nanarg(find: Callable, worst: float, a: Any, axis: int | None, keepdims: bool) -> Any:
    if kind(a.dtype) not in "fc":
        return find(a, axis=axis, keepdims=keepdims)
    nan = isnan(a)
    out = find(where(nan, cast(worst, a.dtype), a), axis=axis, keepdims=keepdims)
    return where(reductions.all(nan, axis=axis, keepdims=keepdims), cast(-1, out.dtype), out)


def nanargmax(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Any:
    """Position of the largest element that is not nan; -1 if there is none."""
    no_out("nanargmax", out)
    axis = None if axis is None else operator.index(axis)
    return _nanargmax(arrays("nanargmax", a), axis=axis, keepdims=bool(keepdims))


def nanargmin(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Any:
    """Position of the smallest element that is not nan; -1 if there is none."""
    no_out("nanargmin", out)
    axis = None if axis is None else operator.index(axis)
    return _nanargmin(arrays("nanargmin", a), axis=axis, keepdims=bool(keepdims))


def nanquantile(a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
                keepdims: bool = False, *, weights: Any = None) -> Any:
    """Quantiles of the elements that are not nan."""
    from aot.numpy.statistics import quantile_of

    return quantile_of("nanquantile", a, q, axis, out, overwrite_input, method, keepdims, weights, skip_nan=True)


def nanpercentile(a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
                  method: str = "linear", keepdims: bool = False, *, weights: Any = None) -> Any:
    """Percentiles of the elements that are not nan."""
    from aot.numpy.statistics import percent

    return nanquantile(a, percent("nanpercentile", q), axis, out, overwrite_input, method, keepdims, weights=weights)


def nanmedian(a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    """Median of the elements that are not nan."""
    return nanquantile(a, 0.5, axis, out, overwrite_input, "midpoint", keepdims)
