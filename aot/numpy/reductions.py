"""Reductions along axes: sum, prod, max, min, all, any, mean, var, argmax, ptp, cumulative sums and products."""
from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from aot import dtypes, lax
from aot.numpy import _util
from aot.numpy._util import (
    BOOL,
    array_of,
    arrays,
    axes_of,
    axis_of,
    cast,
    default_int,
    default_uint,
    fused,
    inexact,
    kind,
    mask_of,
    named,
    no_out,
    numeric,
    promote,
    quick,
    static_axes,
    user_dtype,
)
from aot.numpy._util import where as _where

_HALF = frozenset((np.dtype(np.float16), np.dtype(dtypes.bfloat16)))
_FULL_WIDTH = frozenset(map(np.dtype, (np.float32, np.float64, np.complex64, np.complex128)))


class _Kind(NamedTuple):
    """One reduction: how to reduce axes, how to combine two results, the neutral element, and the same for bools."""

    name: str
    reduce: Callable
    combine: Callable
    init: float | None
    reduce_bool: Callable
    combine_bool: Callable
    parallel: str | None = None
    has_identity: bool = True


_SUM = _Kind("sum", lax.reduce_sum, lax.add, 0, lax.reduce_or, lax.bitwise_or, "psum")
_PROD = _Kind("prod", lax.reduce_prod, lax.mul, 1, lax.reduce_and, lax.bitwise_and)
_MAX = _Kind("max", lax.reduce_max, lax.max, -np.inf, lax.reduce_max, lax.max, "pmax", False)
_MIN = _Kind("min", lax.reduce_min, lax.min, np.inf, lax.reduce_min, lax.min, "pmin", False)
_ALL = _Kind("all", lax.reduce_and, lax.bitwise_and, True, lax.reduce_and, lax.bitwise_and)
_ANY = _Kind("any", lax.reduce_or, lax.bitwise_or, False, lax.reduce_or, lax.bitwise_or)
_AND = _Kind("reduce_bitwise_and", lax.reduce_and, lax.bitwise_and, -1, lax.reduce_and, lax.bitwise_and)
_OR = _Kind("reduce_bitwise_or", lax.reduce_or, lax.bitwise_or, 0, lax.reduce_or, lax.bitwise_or)
_XOR = _Kind("reduce_bitwise_xor", lax.reduce_xor, lax.bitwise_xor, 0, lax.reduce_xor, lax.bitwise_xor)


def wide_sum_dtype(dtype: Any) -> Any:
    """The dtype in which integers are summed: at least the default int (or unsigned int)."""
    letter = kind(dtype)
    if letter == "b":
        return default_int()
    if letter in "ui":
        wide = default_uint() if letter == "u" else default_int()
        return wide if dtypes.itemsize_bits(dtype) < dtypes.itemsize_bits(wide) else dtype
    return dtype


def _upcast_half(dtype: Any) -> Any:
    return np.dtype(np.float32) if dtype in _HALF else dtype


def neutral(init: Any, dtype: Any) -> Any:
    """The neutral element as a scalar of `dtype`; infinities become the extreme value where there is no infinity."""
    letter = kind(dtype)
    if letter == "b":
        return np.bool_(init > 0)
    if np.isinf(init) and letter in "ui":
        info = dtypes.iinfo(dtype)
        return dtype.type(info.min if init < 0 else info.max)
    if np.isinf(init) and letter == "f" and not dtypes.supports_inf(dtype):
        info = dtypes.finfo(dtype)
        return dtype.type(info.min if init < 0 else info.max)
    return np.asarray(init).astype(dtype)[()]


def _split_axes(axis: Any, ndim: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Positional axes, and names of mapped axes."""
    if axis is None or type(axis) is int:
        return axes_of(axis, ndim), ()
    axis = static_axes(axis)
    items = axis if isinstance(axis, tuple) else (axis,)
    names = tuple(a for a in items if isinstance(a, str))
    return axes_of(tuple(a for a in items if not isinstance(a, str)), ndim), names


def _reduce(row: _Kind, a: Any, axis: Any, dtype: Any = None, keepdims: bool = False, initial: Any = None,
            where: Any = None, promote_integers: bool = False, upcast: bool = False) -> Any:
    """One reduction with numpy's options. The common case goes straight to `lax`."""
    axes, names = _split_axes(axis, a.ndim)
    mask = mask_of(row.name, where)
    if initial is None and not row.has_identity:
        _need_elements(row, a.shape, axes, mask)
    result = dtype if dtype is not None else dtypes.canonicalize_dtype(wide_sum_dtype(a.dtype) if promote_integers else a.dtype)
    work = _upcast_half(result) if upcast else result
    a = cast(a, work)
    is_bool = kind(work) == "b"
    if mask is not None:
        a = _where(mask, a, neutral(row.init, work))
    out = (row.reduce_bool if is_bool else row.reduce)(a, axes)
    out = _across(row, out, names)
    if initial is not None:
        out = (row.combine_bool if is_bool else row.combine)(_scalar(initial, work), out)
    if keepdims:
        out = lax.expand_dims(out, axes)
    return cast(out, result)


def _across(row: _Kind, x: Any, names: tuple[str, ...]) -> Any:
    if not names:
        return x
    if row.parallel is None:
        raise NotImplementedError(f"Named reductions not implemented for jnp.{row.name}()")
    return getattr(lax, row.parallel)(x, names)


def _need_elements(row: _Kind, shape: tuple[int, ...], axes: tuple[int, ...], mask: Any) -> None:
    if mask is not None:
        raise ValueError(f"reduction operation {row.name} does not have an identity, so to use a where mask one has to "
                         "specify 'initial'")
    if 0 in [shape[i] for i in axes]:
        raise ValueError(f"zero-size array to reduction operation {row.name} which has no identity")


def _scalar(initial: Any, dtype: Any) -> Any:
    if np.shape(initial) != ():
        raise ValueError(f"initial value must be a scalar. Got array of shape {np.shape(initial)}")
    return lax.convert_element_type(initial, dtype)


_STATIC = ("axis", "dtype", "keepdims", "promote_integers")


@fused(*_STATIC)
def _sum(a: Any, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any, promote_integers: bool) -> Any:
    return _reduce(_SUM, _numeric(a), axis, dtype, keepdims, initial, where, promote_integers, dtype is None)


@fused(*_STATIC)
def _prod(a: Any, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any, promote_integers: bool) -> Any:
    return _reduce(_PROD, _numeric(a), axis, dtype, keepdims, initial, where, promote_integers, dtype is None)


def _numeric(a: Any) -> Any:
    return array_of(promote(a, to=numeric)[0]) if a.dtype == BOOL else a


@quick
def sum(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
        where: Any = None, promote_integers: bool = True) -> Any:
    """Sum along `axis`. Narrow integers are summed in the default int; 16-bit floats in float32, then rounded."""
    a = arrays("sum", a)
    if where is None and initial is None and dtype is None and not keepdims and out is None and a.dtype in _FULL_WIDTH:
        axes, names = _split_axes(axis, a.ndim)
        if not names:
            return lax.reduce_sum(cast(a, dtypes.canonicalize_dtype(a.dtype)), axes)
    no_out("sum", out)
    dtype = None if dtype is None else user_dtype(dtype, "sum")
    return _sum(a, axis=static_axes(axis), dtype=dtype, keepdims=keepdims, initial=initial, where=where,
                promote_integers=promote_integers)


@quick
def prod(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
         where: Any = None, promote_integers: bool = True) -> Any:
    """Product along `axis`."""
    a = arrays("prod", a)
    no_out("prod", out)
    dtype = None if dtype is None else user_dtype(dtype, "prod")
    return _prod(a, axis=static_axes(axis), dtype=dtype, keepdims=keepdims, initial=initial, where=where,
                 promote_integers=promote_integers)


@fused("axis", "keepdims")
def _max(a: Any, axis: Any, keepdims: bool, initial: Any, where: Any) -> Any:
    return _reduce(_MAX, a, axis, None, keepdims, initial, where)


@fused("axis", "keepdims")
def _min(a: Any, axis: Any, keepdims: bool, initial: Any, where: Any) -> Any:
    return _reduce(_MIN, a, axis, None, keepdims, initial, where)


@quick
def max(a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
        where: Any = None) -> Any:
    """Largest element along `axis`; nan if there is one."""
    a = arrays("max", a)
    no_out("max", out)
    return _max(a, axis=static_axes(axis), keepdims=keepdims, initial=initial, where=where)


@quick
def min(a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
        where: Any = None) -> Any:
    """Smallest element along `axis`; nan if there is one."""
    a = arrays("min", a)
    no_out("min", out)
    return _min(a, axis=static_axes(axis), keepdims=keepdims, initial=initial, where=where)


def amax(a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
         where: Any = None) -> Any:
    """The same as `max`."""
    return max(a, axis=axis, out=out, keepdims=keepdims, initial=initial, where=where)


def amin(a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None,
         where: Any = None) -> Any:
    """The same as `min`."""
    return min(a, axis=axis, out=out, keepdims=keepdims, initial=initial, where=where)


def _truth(a: Any) -> Any:
    """Nonzero elements; only the real part counts for complex numbers."""
    a = lax.real(a) if kind(a.dtype) == "c" else a
    return a if a.dtype == BOOL else lax.convert_element_type(a, BOOL)


@fused("axis", "keepdims")
def _all(a: Any, axis: Any, keepdims: bool, where: Any) -> Any:
    return _reduce(_ALL, _truth(a), axis, None, keepdims, None, where)


@fused("axis", "keepdims")
def _any(a: Any, axis: Any, keepdims: bool, where: Any) -> Any:
    return _reduce(_ANY, _truth(a), axis, None, keepdims, None, where)


@quick
def all(a: Any, axis: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None) -> Any:
    """Whether all elements along `axis` are nonzero."""
    a = arrays("all", a)
    no_out("all", out)
    return _all(a, axis=static_axes(axis), keepdims=keepdims, where=where)


@quick
def any(a: Any, axis: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None) -> Any:
    """Whether some element along `axis` is nonzero."""
    a = arrays("any", a)
    no_out("any", out)
    return _any(a, axis=static_axes(axis), keepdims=keepdims, where=where)


# ---- reductions of ufunc objects -------------------------------------------------------------------------------------
def _extreme(fun: Callable) -> Callable:
    def call(a, axis=None, dtype=None, keepdims=False, initial=None, where=None):
        out = fun(a, axis=axis, keepdims=keepdims, initial=initial, where=where)
        return out if dtype is None else lax.convert_element_type(out, user_dtype(dtype))

    return call


reduce_max, reduce_min = _extreme(max), _extreme(min)


def _bits(row: _Kind) -> Callable:
    @fused("axis", "dtype", "keepdims")
    def fun(a, axis=None, dtype=None, keepdims=False, initial=None, where=None):
        a = arrays(row.name, a)
        if kind(a.dtype) not in "bui":
            raise ValueError(f"integer argument required; got dtype={a.dtype}")
        dtype = None if dtype is None else user_dtype(dtype, row.name)
        exact = row._replace(init=float(row.init != 0)) if a.dtype == BOOL else row
        return _reduce(exact, a, axis, dtype, keepdims, initial, where)

    return fun


reduce_bitwise_and, reduce_bitwise_or, reduce_bitwise_xor = _bits(_AND), _bits(_OR), _bits(_XOR)


def _logical(row: _Kind) -> Callable:
    @fused("axis", "dtype", "keepdims")
    def fun(a, axis=None, dtype=None, keepdims=False, initial=None, where=None):
        dtype = None if dtype is None else user_dtype(dtype, row.name)
        return _reduce(row, _truth(arrays(row.name, a)), axis, dtype, keepdims, initial, where)

    return fun


reduce_logical_and, reduce_logical_or = _logical(_ALL), _logical(_ANY)
reduce_logical_xor = _logical(_XOR._replace(name="reduce_logical_xor", init=False))


def logsumexp(a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, initial: Any = None,
              where: Any = None) -> Any:
    """log(sum(exp(a))) without overflow: what `logaddexp.reduce` computes."""
    from aot.numpy.ufuncs import logaddexp

    (a,) = promote(arrays("logsumexp", a), to=inexact)
    mask, axes = mask_of("logsumexp", where), axes_of(static_axes(axis), a.ndim)
    top = max(lax.real(a) if kind(a.dtype) == "c" else a, axis=axes, keepdims=True, where=mask, initial=-np.inf)
    top = lax.stop_gradient(lax.select(lax.is_finite(top), top, lax.full_like(top, 0)))
    shifted = lax.exp(lax.sub(a, lax.convert_element_type(top, a.dtype)))
    total = lax.log(sum(shifted, axis=axes, keepdims=True, where=mask))
    result = lax.add(total, lax.convert_element_type(top, total.dtype))
    result = result if keepdims else lax.squeeze(result, axes)
    return result if initial is None else logaddexp(initial, result)


def logsumexp2(a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, initial: Any = None,
               where: Any = None) -> Any:
    """log2(sum(2**a)) without overflow: what `logaddexp2.reduce` computes."""
    ln2 = float(np.log(2))
    initial = None if initial is None else initial * ln2
    return logsumexp(arrays("logsumexp2", a) * ln2, axis, dtype, keepdims, initial, where) / ln2


# ---- averages --------------------------------------------------------------------------------------------------------
@quick
def mean(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, *,
         where: Any = None) -> Any:
    """Mean along `axis`; integers are averaged as floats."""
    a = arrays("mean", a)
    no_out("mean", out)
    dtype = None if dtype is None else user_dtype(dtype, "mean")
    return _mean(a, axis=static_axes(axis), dtype=dtype, keepdims=keepdims, where=where)


@fused("axis", "dtype", "keepdims")
def _mean(a: Any, axis: Any, dtype: Any, keepdims: bool, where: Any) -> Any:
    result = dtypes.canonicalize_dtype(inexact(a.dtype)) if dtype is None else dtype
    work = _upcast_half(result) if dtype is None and kind(result) in "fc" else result
    mask = mask_of("mean", where)
    total = sum(a, axis, dtype=work if work != a.dtype else None, keepdims=keepdims, where=mask)
    out = lax.div(total, count(a, axis, keepdims, mask, work))
    return cast(out, result)


def count(a: Any, axis: Any, keepdims: bool, mask: Any, dtype: Any) -> Any:
    """How many elements are reduced, as a scalar or array of `dtype`."""
    if mask is not None:
        return sum(_util.broadcast_to(mask, a.shape), axis, dtype=dtype, keepdims=keepdims)
    axes, names = _split_axes(axis, a.ndim)
    n = math.prod(a.shape[i] for i in axes) * math.prod(lax.axis_size(name) for name in names)
    return cast(n, dtype)


def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, keepdims: bool = False) -> Any:
    """Weighted mean along `axis`; with the sum of weights if `returned`."""
    axis = static_axes(axis)
    if weights is None:
        (a,) = promote(arrays("average", a), to=inexact)
        return _average(a, None, axis=axis, returned=returned, keepdims=keepdims)
    a, weights = promote(*arrays("average", a, weights), to=inexact)
    return _average(a, weights, axis=axis, returned=returned, keepdims=keepdims)


@fused("axis", "returned", "keepdims")
def _average(a: Any, weights: Any, axis: Any, returned: bool, keepdims: bool) -> Any:
    axes = axes_of(axis, a.ndim)
    if weights is None:
        avg = mean(a, axis=axis, keepdims=keepdims)
        if not returned:
            return avg
        total = lax.full((), math.prod([a.shape[i] for i in axes]), avg.dtype)
    else:
        weights = _spread_weights(weights, a, axis, axes)
        total = sum(weights, axis=axis, keepdims=keepdims)
        avg = lax.div(*_util.broadcast(sum(lax.mul(a, weights), axis=axis, keepdims=keepdims), total))
    return (avg, _util.broadcast_to(total, avg.shape)) if returned else avg


def _spread_weights(weights: Any, a: Any, axis: Any, axes: tuple[int, ...]) -> Any:
    if weights.shape == a.shape:
        return weights
    if axis is None:
        raise ValueError("Axis must be specified when shapes of a and weights differ.")
    if weights.shape != tuple(a.shape[i] for i in axes):
        raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
    return lax.broadcast_in_dim(lax.transpose(weights, tuple(np.argsort(axes).tolist())), a.shape, tuple(sorted(axes)))


def _correction(ddof: Any, correction: Any) -> Any:
    if correction is None:
        return ddof
    if not isinstance(ddof, int) or ddof != 0:
        raise ValueError("ddof and correction can't be provided simultaneously.")
    return correction


def var_dtypes(name: str, given: Any, dtype: Any) -> tuple[Any, Any]:
    """The dtype a variance is computed in, and that of the result."""
    if dtype is not None:
        if kind(dtype) != "c" and kind(given) == "c":
            raise ValueError(f"jax.numpy.{name} cannot give a real dtype to the variance of complex values: it is not "
                             "clear what that would mean")
        return _upcast_half(dtype), dtype
    if kind(given) not in "fc":
        return inexact(given), inexact(given)
    return _upcast_half(given), _util.real_of(given)


@quick
def var(a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: int = 0, keepdims: bool = False, *,
        where: Any = None, mean: Any = None, correction: Any = None) -> Any:
    """Variance along `axis`; the sum of squares is divided by the count minus `ddof`."""
    a, correction = arrays("var", a), _correction(ddof, correction)
    no_out("var", out)
    dtype = None if dtype is None else user_dtype(dtype, "var")
    return _var(a, axis=static_axes(axis), dtype=dtype, correction=correction, keepdims=keepdims, where=where, a_mean=mean)


@named("axis", "dtype", "keepdims")
def _var(a: Any, *, axis: Any, dtype: Any, correction: Any, keepdims: bool, where: Any, a_mean: Any) -> Any:
    mask = mask_of("var", where)
    work, result = var_dtypes("var", a.dtype, dtype)
    a = lax.convert_element_type(a, work)
    centre = mean(a, axis, dtype=work, keepdims=True, where=mask) if a_mean is None else a_mean
    squares = squared_distance(a, lax.convert_element_type(centre, work))
    n = lax.sub(count(a, axis, keepdims, mask, squares.dtype), lax.convert_element_type(correction, squares.dtype))
    total = sum(squares, axis, dtype=squares.dtype, keepdims=keepdims, where=mask)
    out = lax.convert_element_type(lax.div(total, n), result)
    return _where(lax.gt(n, cast(0, n.dtype)), out, cast(np.nan, result))


def squared_distance(a: Any, centre: Any) -> Any:
    """|a - centre|**2 as real numbers."""
    d = lax.sub(*_util.broadcast(a, centre))
    return lax.square(d) if kind(d.dtype) != "c" else lax.real(lax.mul(d, lax.conj(d)))


@quick
def std(a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: int = 0, keepdims: bool = False, *,
        where: Any = None, mean: Any = None, correction: Any = None) -> Any:
    """Standard deviation along `axis`, the root of `var`."""
    a, correction = arrays("std", a), _correction(ddof, correction)
    no_out("std", out)
    dtype = None if dtype is None else user_dtype(dtype, "std")
    if dtype is not None and kind(dtype) not in "fc":
        raise ValueError(f"dtype argument to jnp.std must be inexact; got {dtype}")
    return _std(a, axis=static_axes(axis), dtype=dtype, correction=correction, keepdims=keepdims, where=where, mean=mean)


@named("axis", "dtype", "keepdims")
def _std(a: Any, *, axis: Any, dtype: Any, correction: Any, keepdims: bool, where: Any, mean: Any) -> Any:
    return lax.sqrt(var(a, axis=axis, dtype=dtype, correction=correction, keepdims=keepdims, where=where, mean=mean))


def ptp(a: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Any:
    """Largest minus smallest element."""
    a = arrays("ptp", a)
    no_out("ptp", out)
    return _ptp(a, axis=static_axes(axis), keepdims=keepdims)


@named("axis", "keepdims")
def _ptp(a: Any, axis: Any, keepdims: bool) -> Any:
    return lax.sub(max(a, axis=axis, keepdims=keepdims), min(a, axis=axis, keepdims=keepdims))


@named("axis", "keepdims")
def count_nonzero(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """How many elements are not zero."""
    a = arrays("count_nonzero", a)
    return sum(lax.ne(a, cast(0, a.dtype)), axis=axis, dtype=default_int(), keepdims=keepdims)


# ---- positions of extremes -------------------------------------------------------------------------------------------
def _arg(name: str, op: Callable, a: Any, axis: Any, out: Any, keepdims: Any) -> Any:
    a = arrays(name, a)
    no_out(name, out)
    axis = None if axis is None else operator.index(axis)
    dims = tuple(range(a.ndim)) if axis is None else (axis_of(axis, a.ndim),)
    a = lax.reshape(a, (a.size,)) if axis is None else a
    axis = 0 if axis is None else dims[0]
    if a.shape[axis] == 0:
        raise ValueError(f"attempt to get {name} of an empty sequence")
    result = op(a, axis, default_int())
    return lax.expand_dims(result, dims) if keepdims else result


@quick
def argmax(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Any:
    """Position of the first largest element; of the flattened array if `axis` is None."""
    return _arg("argmax", lax.argmax, a, axis, out, keepdims)


@quick
def argmin(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Any:
    """Position of the first smallest element; of the flattened array if `axis` is None."""
    return _arg("argmin", lax.argmin, a, axis, out, keepdims)


# ---- cumulative ------------------------------------------------------------------------------------------------------
def cumulate(name: str, op: Callable, a: Any, axis: int | None, dtype: Any, out: Any = None,
             promote_integers: bool = False) -> Any:
    """`op` (lax.cumsum or lax.cumprod) with numpy's handling of axis and dtype."""
    a = arrays(name, a)
    no_out(name, out)
    if axis is None or a.ndim == 0:
        a = lax.reshape(a, (a.size,))
    axis = axis_of(0 if axis is None else axis, a.ndim)
    dtype = None if dtype is None else user_dtype(dtype, name)
    if dtype == BOOL:
        a = a if a.dtype == BOOL else lax.ne(a, cast(0, a.dtype))
        return lax.convert_element_type(op(lax.convert_element_type(a, default_int()), axis), BOOL)
    if dtype is None:
        dtype = wide_sum_dtype(a.dtype) if promote_integers or a.dtype == BOOL else a.dtype
    return op(lax.convert_element_type(a, dtype), axis)


@named("axis", "dtype")
def cumsum(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
    """Cumulative sum along `axis`, or of the flattened array."""
    return cumulate("cumsum", lax.cumsum, a, axis, dtype, out)


@named("axis", "dtype")
def cumprod(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
    """Cumulative product along `axis`, or of the flattened array."""
    return cumulate("cumprod", lax.cumprod, a, axis, dtype, out)


def _array_api_cumulative(name: str, op: Callable, x: Any, axis: Any, dtype: Any, first: int | None,
                          promote_integers: bool) -> Any:
    x = arrays(name, x)
    if x.ndim == 0:
        raise ValueError(f"{name}: the input must have at least one dimension, got a scalar")
    if axis is None and x.ndim > 1:
        raise ValueError(f"{name}: `axis` may only be left out for one-dimensional arrays; this one has {x.ndim}")
    axis = axis_of(0 if axis is None else axis, x.ndim)
    out = cumulate(name, op, x, axis, dtype, promote_integers=promote_integers)
    if first is None:
        return out
    start = lax.full((*x.shape[:axis], 1, *x.shape[axis + 1:]), first, out.dtype)
    return lax.concatenate([start, out], axis)


def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """Cumulative sum along `axis`, starting with 0 if `include_initial`."""
    return _array_api_cumulative("cumulative_sum", lax.cumsum, x, axis, dtype, 0 if include_initial else None, True)


def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """Cumulative product along `axis`, starting with 1 if `include_initial`."""
    return _array_api_cumulative("cumulative_prod", lax.cumprod, x, axis, dtype, 1 if include_initial else None, False)


