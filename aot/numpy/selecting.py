"""Choosing elements: where, select, nonzero, take, put, choose, compress, clip, and positions as flat or multi index."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aot import dtypes, lax
from aot.numpy import _util, reductions
from aot.numpy._util import (
    BOOL,
    array_of,
    arrays,
    axis_of,
    cast,
    check,
    concrete,
    concrete_index,
    default_int,
    dtype_of,
    kind,
    named,
    ndim_of,
    no_out,
    promote,
    quick,
    user_dtype,
)
from aot.numpy._util import where as _where
from aot.numpy.ufuncs import as_bool, divmod, maximum, minimum, remainder


def where(condition: Any, x: Any = None, y: Any = None, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """`x` where `condition` holds, else `y`. With one argument: the positions of its nonzero elements, see `nonzero`."""
    if x is None and y is None:
        check("where", condition)
        return nonzero(condition, size=size, fill_value=fill_value)
    check("where", condition, x, y)
    if size is not None or fill_value is not None:
        raise ValueError("size and fill_value arguments cannot be used in three-term where function.")
    return _where(condition, x, y)


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """The choice of the first condition that holds, else `default`."""
    if len(condlist) != len(choicelist):
        raise ValueError(f"condlist must have length equal to choicelist ({len(condlist)} vs {len(choicelist)})")
    if len(condlist) == 0:
        raise ValueError("condlist must be non-empty")
    check("select", *condlist, *choicelist, default)
    values = promote(default, *choicelist)
    *conditions, _ = _util.broadcast(*map(array_of, condlist), lax.full((), False, BOOL))
    stacked = lax.stack([lax.full_like(conditions[0], False, dtype=BOOL), *map(as_bool, conditions)], axis=0)
    first = lax.argmax(stacked, 0, np.int32)
    first, *values = _util.broadcast(first, *map(array_of, values))
    return lax.select_n(first, *values)


@named("mode")
def _choose(a: Any, choices: list[Any], mode: str) -> Any:
    n = len(choices)
    a = remainder(a, cast(n, a.dtype)) if mode == "wrap" else clip(a, 0, n - 1)
    a, *choices = _util.broadcast(a, *map(array_of, promote(*choices)))
    return lax.select_n(lax.convert_element_type(a, np.int32), *choices)


def choose(a: Any, choices: Any, out: None = None, mode: str = "raise") -> Any:
    """The element of `choices[a[i]]` at every position i."""
    no_out("choose", out)
    check("choose", a, *choices)
    a, choices = array_of(a), [array_of(c) for c in choices]
    if kind(a.dtype) not in "ui":
        raise ValueError("`a` array must be integer typed")
    if mode == "raise":
        known = np.asarray(concrete(a, "The error occurred because jnp.choose was jit-compiled with mode='raise'. Use "
                                    "mode='wrap' or mode='clip' instead."))
        if ((known < 0) | (known >= len(choices))).any():
            raise ValueError("invalid entry in choice array")
    elif mode not in ("wrap", "clip"):
        raise ValueError(f"{mode=} not understood. Must be 'raise', 'wrap', or 'clip'")
    return _choose(a, choices, mode=mode)


@named()
def clip(arr: Any = None, /, min: Any = None, max: Any = None) -> Any:
    """`arr` with values below `min` or above `max` moved there."""
    if arr is None:
        raise ValueError("No input was provided to the clip function.")
    check("clip", arr)
    if any(x is not None and kind(dtype_of(x)) == "c" for x in (arr, min, max)):
        raise ValueError("Clip received a complex value either through the input or the min/max keywords. Complex values "
                         "have no ordering and cannot be clipped; clip jnp.real(x) or jnp.imag(x) instead.")
    if min is not None:
        arr = maximum(min, arr)
    if max is not None:
        arr = minimum(max, arr)
    return array_of(arr)


# ---- nonzero ---------------------------------------------------------------------------------------------------------
_SIZE_HELP = "The size argument of jnp.nonzero must be statically specified to use jnp.nonzero within JAX transformations."


def nonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> tuple[Any, ...]:
    """Positions of nonzero elements, one array for each axis. A traced `a` needs `size`, the length of the result."""
    a = arrays("nonzero", a)
    if a.ndim == 0:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use jnp.atleast_1d(scalar).nonzero() instead.")
    mask = as_bool(a)
    if size is None:
        size = int(concrete(reductions.sum(mask), _SIZE_HELP))
    size = concrete_index(size, _SIZE_HELP)
    return _nonzero(mask, _fills(fill_value, a.ndim), size=size)


def _fills(fill_value: Any, ndim: int) -> tuple | None:
    if fill_value is None:
        return None
    fills = fill_value if isinstance(fill_value, tuple) else (fill_value,) * ndim
    if any(ndim_of(v) for v in fills) or len(fills) != ndim:
        raise ValueError(f"fill_value must be a scalar or a tuple of length {ndim}; got {fill_value}")
    return fills


@_util.fused("size")
def _nonzero(mask: Any, fills: tuple | None, size: int) -> tuple[Any, ...]:
    """The k-th nonzero element is where the running count first exceeds k: count how many positions come before."""
    itype = default_int()
    if mask.size == 0 or size == 0:
        return tuple(lax.full((size,), 0, itype) for _ in mask.shape)
    running = lax.cumsum(lax.convert_element_type(lax.reshape(mask, (mask.size,)), itype))
    before = lax.full((size,), 0, itype).at[running].add(1, mode="drop")
    flat = lax.cumsum(before)
    strides = [math.prod(mask.shape[i + 1:]) for i in range(mask.ndim)]
    out = [lax.rem(lax.div(flat, cast(s, itype)), cast(n, itype)) for s, n in zip(strides, mask.shape)]
    if fills is None:
        return tuple(out)
    count = lax.index_in_dim(running, -1, keepdims=False)
    empty = lax.ge(lax.iota(itype, size), count)
    return tuple(_where(empty, fill, x) for fill, x in zip(fills, out))


def flatnonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Positions of nonzero elements in the flattened array."""
    a = arrays("flatnonzero", a)
    return nonzero(lax.reshape(a, (a.size,)), size=size, fill_value=fill_value)[0]


def argwhere(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Positions of nonzero elements as rows."""
    a = arrays("argwhere", a)
    found = nonzero(a if a.ndim else lax.reshape(a, (1,)), size=size, fill_value=fill_value)
    rows = lax.stack(list(found), axis=1)
    return lax.reshape(rows, (rows.shape[0], a.ndim)) if a.ndim else lax.full((rows.shape[0], 0), 0, rows.dtype)


def extract(condition: Any, arr: Any, *, size: int | None = None, fill_value: Any = 0) -> Any:
    """The elements of the flattened `arr` where `condition` holds."""
    condition, arr = arrays("extract", condition, arr)
    return compress(lax.reshape(condition, (condition.size,)), lax.reshape(arr, (arr.size,)), size=size,
                    fill_value=fill_value)


def compress(condition: Any, a: Any, axis: int | None = None, *, size: int | None = None, fill_value: Any = 0,
             out: None = None) -> Any:
    """The slices along `axis` where `condition` holds. A traced condition needs `size`."""
    from aot.numpy.shapes import moveaxis
    from aot.numpy.sorting import argsort

    condition, a, fill_value = arrays("compress", condition, a, fill_value)
    no_out("compress", out)
    if condition.ndim != 1:
        raise ValueError("condition must be a 1D array")
    mask = as_bool(condition)
    a = lax.reshape(a, (a.size,)) if axis is None else moveaxis(a, axis, 0)
    mask, beyond = mask[:a.shape[0]], mask[a.shape[0]:]
    a = a[:mask.shape[0]]
    if size is None:
        if reductions.any(beyond):
            raise ValueError("condition contains entries that are out of bounds")
        return moveaxis(a[mask], 0, axis or 0)
    if not 0 <= size <= a.shape[0]:
        raise ValueError("size must be positive and not greater than the size of the array axis; got "
                         f"{size=} for a.shape[axis]={a.shape[0]}")
    keep = lax.broadcast_in_dim(mask, a.shape, (0,))
    a = lax.select(keep, a, _util.broadcast_to(lax.convert_element_type(fill_value, a.dtype), a.shape))
    return moveaxis(a[argsort(mask, stable=True, descending=True)][:size], 0, axis or 0)


# ---- take and put ----------------------------------------------------------------------------------------------------
@quick
def take(a: Any, indices: Any, axis: int | None = None, out: None = None, mode: str | None = None,
         unique_indices: bool = False, indices_are_sorted: bool = False, fill_value: Any = None) -> Any:
    """The elements at `indices` along `axis`. `mode`: "fill" (nan where out of range, the default), "wrap" or "clip"."""
    no_out("take", out)
    check("take", a, indices)
    axis = None if axis is None else concrete_index(axis, "the axis argument of jnp.take")
    return _take(a, indices, axis=axis, mode=mode, unique_indices=unique_indices, indices_are_sorted=indices_are_sorted,
                 fill_value=fill_value)


@named("axis", "mode", "unique_indices", "indices_are_sorted", "fill_value")
def _take(a: Any, indices: Any, axis: int | None, mode: str | None, unique_indices: bool, indices_are_sorted: bool,
          fill_value: Any) -> Any:
    a, indices = arrays("take", a, indices)
    a = lax.reshape(a, (a.size,)) if axis is None else a
    axis = axis_of(0 if axis is None else axis, a.ndim)
    indices, gather_mode = _take_mode(indices, a.shape[axis], mode)
    before, after = a.shape[:axis], a.shape[axis + 1:]
    if a.shape[axis] == 0:
        if indices.size:
            raise IndexError("Cannot do a non-empty jnp.take() from an empty axis.")
        return a
    if indices.size == 0:
        return lax.full_like(a, 0, shape=(*before, *indices.shape, *after))
    dims = lax.GatherDimensionNumbers(
        offset_dims=(*range(axis), *range(axis + indices.ndim, a.ndim + indices.ndim - 1)),
        collapsed_slice_dims=(axis,), start_index_map=(axis,))
    return lax.gather(a, lax.expand_dims(indices, (indices.ndim,)), dims, (*before, 1, *after), mode=gather_mode,
                      unique_indices=unique_indices, indices_are_sorted=indices_are_sorted, fill_value=fill_value)


def _take_mode(indices: Any, size: int, mode: str | None) -> tuple[Any, Any]:
    modes = lax.GatherScatterMode
    if mode in (None, "fill"):
        return _where(lax.lt(indices, cast(0, indices.dtype)), indices + size, indices), modes.FILL_OR_DROP
    if mode == "wrap":
        return remainder(indices, cast(size, indices.dtype)), modes.PROMISE_IN_BOUNDS
    if mode == "clip":
        return indices, modes.CLIP
    if mode == "raise":
        raise NotImplementedError("The 'raise' mode to jnp.take is not supported.")
    raise ValueError(f"Invalid mode '{mode}' for np.take")


def take_along_axis(arr: Any, indices: Any, axis: int | None = -1, mode: Any = None, fill_value: Any = None, *,
                    wrap_negative_indices: bool | None = None) -> Any:
    """`arr[..., indices[..., i, ...], ...]`: positions along one axis, given for each element of the others."""
    check("take_along_axis", arr, indices)
    return _take_along_axis(arr, indices, axis=axis, mode=mode, fill_value=fill_value, wrap=wrap_negative_indices)


@named("axis", "mode", "fill_value", "wrap")
def _take_along_axis(arr: Any, indices: Any, axis: int | None, mode: Any, fill_value: Any, wrap: bool | None) -> Any:
    a, indices = arrays("take_along_axis", arr, indices)
    if kind(indices.dtype) not in "ui":
        raise TypeError(f"take_along_axis indices must be of integer type, got {indices.dtype}")
    if axis is None:
        if indices.ndim != 1:
            raise ValueError(f"take_along_axis indices must be 1D if axis=None, got shape {indices.shape}")
        a, axis = lax.reshape(a, (a.size,)), 0
    if a.ndim != indices.ndim:
        raise ValueError(f"indices and arr must have the same number of dimensions; {indices.ndim} vs. {a.ndim}")
    axis = axis_of(axis, a.ndim)
    size, single = a.shape[axis], (*a.shape[:axis], 1, *a.shape[axis + 1:])
    out_shape = lax.broadcast_shapes(indices.shape, single)
    if size == 0:
        return lax.full(out_shape, 0, a.dtype)
    if wrap is None:
        wrap = mode != "promise_in_bounds"
    if wrap:
        indices = _wrap_negative(indices, size)
    if mode == "one_hot":
        return _take_one_hot(a, indices, axis)
    return _gather_along(a, indices, axis, out_shape, "fill" if mode is None else mode, fill_value)


def _wrap_negative(indices: Any, size: int) -> Any:
    itype = np.dtype(np.int64 if size > np.iinfo(np.int32).max else np.int32)
    indices = lax.convert_element_type(indices, itype)
    return lax.select(lax.lt(indices, cast(0, itype)), lax.add(indices, cast(size, itype)), indices)


def _take_one_hot(a: Any, indices: Any, axis: int) -> Any:
    """A product with rows that are 1 at the position: quick on hardware that is bad at gathers."""
    from aot.numpy.contraction import einsum

    hot = lax.eq(lax.expand_dims(indices, (indices.ndim,)), lax.broadcasted_iota(indices.dtype, (*indices.shape, a.shape[axis]),
                                                                                 indices.ndim))
    names = "abcdefghijklmnopqrstuvw"[:a.ndim]
    inner = names[:axis] + "z" + names[axis + 1:]
    return einsum(f"{names}z,{inner}->{names}", hot, a, precision=lax.Precision.HIGHEST, preferred_element_type=a.dtype)


def _gather_along(a: Any, indices: Any, axis: int, out_shape: tuple[int, ...], mode: Any, fill_value: Any) -> Any:
    """One gather; other axes are batching dimensions, or whole slices where the index array has size 1."""
    offset, sizes, batching, index_batching, drop = [], [], [], [], []
    operand_dim = point_dim = 0
    axis_dim = 0
    for i in range(a.ndim):
        if i == axis:
            axis_dim = operand_dim
            sizes.append(1)
            point_dim += 1
        elif indices.shape[i] == 1:
            offset.append(i)
            sizes.append(a.shape[i])
        elif a.shape[i] == 1:
            drop.append(i)
            point_dim += 1
            continue
        else:
            sizes.append(min(1, a.shape[i]))
            batching.append(operand_dim)
            index_batching.append(point_dim)
            point_dim += 1
        operand_dim += 1
    points = tuple(out_shape[i] for i in range(a.ndim) if i == axis or indices.shape[i] != 1)
    dims = lax.GatherDimensionNumbers(
        offset_dims=tuple(offset), collapsed_slice_dims=(axis_dim,), start_index_map=(axis_dim,),
        operand_batching_dims=tuple(batching), start_indices_batching_dims=tuple(index_batching))
    a = lax.squeeze(a, tuple(drop)) if drop else a
    return lax.gather(a, lax.reshape(indices, (*points, 1)), dims, tuple(sizes), mode=mode, fill_value=fill_value)


def _no_inplace(name: str, inplace: bool) -> None:
    if inplace:
        raise ValueError(f"jax.numpy.{name} cannot modify arrays in-place, because JAX arrays are immutable. Pass "
                         "inplace=False to instead return an updated array.")


@named("axis", "inplace", "mode")
def put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None, inplace: bool = True, *,
                   mode: str | None = None) -> Any:
    """The counterpart of `take_along_axis`: a copy with `values` at these positions."""
    from aot.numpy.creation import indices as grid

    _no_inplace("put_along_axis", inplace)
    arr, indices, values = arrays("put_along_axis", arr, indices, values)
    shape = arr.shape
    if axis is None:
        arr, axis = lax.reshape(arr, (arr.size,)), 0
    if arr.ndim != indices.ndim:
        raise ValueError("put_along_axis arguments 'arr' and 'indices' must have same ndim. Got "
                         f"{arr.ndim=} and {indices.ndim=}.")
    try:
        values = _util.broadcast_to(values, indices.shape)
    except ValueError:
        raise ValueError("put_along_axis argument 'values' must be broadcastable to 'indices'. Got "
                         f"{values.shape=} and {indices.shape=}.") from None
    where_ = list(grid(arr.shape, sparse=True))
    where_[axis_of(axis, arr.ndim)] = indices
    return lax.reshape(arr.at[tuple(where_)].set(values, mode=mode), shape)


def tile_to(arr: Any, size: int) -> Any:
    """A one-dimensional array repeated and cut to `size` elements."""
    if arr.size < size:
        arr = lax.tile(arr, (-(-size // arr.size),))
    return lax.slice_in_dim(arr, 0, size)


def place(arr: Any, mask: Any, vals: Any, *, inplace: bool = True) -> Any:
    """A copy of `arr` with `vals`, in order and repeated, where `mask` holds."""
    arr, mask, vals = arrays("place", arr, mask, vals)
    vals = lax.reshape(vals, (vals.size,))
    _no_inplace("place", inplace)
    if arr.size != mask.size:
        raise ValueError("place: arr and mask must be the same size")
    if not vals.size:
        raise ValueError("Cannot place values from an empty array")
    if not arr.size:
        return arr
    found = flatnonzero(mask, size=mask.size, fill_value=mask.size)
    flat = lax.reshape(arr, (arr.size,)).at[found].set(tile_to(vals, mask.size), mode="drop")
    return lax.reshape(flat, arr.shape)


def put(a: Any, ind: Any, v: Any, mode: str | None = None, *, inplace: bool = True) -> Any:
    """A copy of `a` with `v`, in order and repeated, at the flat positions `ind`."""
    _no_inplace("put", inplace)
    a, ind, v = arrays("put", a, ind, v)
    ind, v = lax.reshape(ind, (ind.size,)), lax.reshape(v, (v.size,))
    if not a.size or not ind.size or not v.size:
        return a
    if mode == "clip":
        ind = clip(ind, 0, a.size - 1)
    elif mode == "wrap":
        ind = remainder(ind, a.size)
    elif mode == "raise":
        raise NotImplementedError("The 'raise' mode to jnp.put is not supported.")
    elif mode is not None:
        raise ValueError(f"mode should be one of 'wrap' or 'clip'; got {mode=}")
    how = "drop" if mode is None else "promise_in_bounds"
    flat = lax.reshape(a, (a.size,)).at[ind].set(tile_to(v, ind.size), mode=how)
    return lax.reshape(flat, a.shape)


# ---- flat and multi indices ------------------------------------------------------------------------------------------
def ravel_multi_index(multi_index: Sequence[Any], dims: Sequence[int], mode: str = "raise", order: str = "C", *,
                      dtype: Any = None) -> Any:
    """Flat positions from positions along each axis."""
    if len(multi_index) != len(dims):
        raise AssertionError(f"{len(multi_index)=} != {len(dims)=}")
    dims = tuple(concrete_index(d, "in `dims` argument of ravel_multi_index().") for d in dims)
    check("ravel_multi_index", *multi_index)
    index = [array_of(i) for i in multi_index]
    dtype = dtypes.result_type(int, *index) if dtype is None else user_dtype(dtype, "ravel_multi_index")
    if kind(dtype) not in "ui":
        raise ValueError(f"{dtype=} is not an integer type.")
    if math.prod(dims) - 1 > dtypes.iinfo(dtype).max:
        raise ValueError(f"jnp.ravel_multi_index: {dtype=} not large enough to hold flattened index for {dims=}. Use the "
                         "dtype argument to pass a suitable dtype.")
    index = _in_range(index, dims, mode)
    if order not in ("C", "F"):
        raise ValueError(f"invalid {order=}. Expected 'C' or 'F'")
    strides = [math.prod(dims[i + 1:] if order == "C" else dims[:i]) for i in range(len(dims))]
    result = lax.full((), 0, dtype)
    for i, s in zip(index, strides):
        result = result + lax.convert_element_type(i, dtype) * s
    return result


def _in_range(index: list[Any], dims: tuple[int, ...], mode: str) -> list[Any]:
    for i in index:
        if mode == "raise":
            concrete(i, "The error occurred because ravel_multi_index was jit-compiled with mode='raise'. Use mode='wrap' "
                     "or mode='clip' instead.")
        if kind(i.dtype) not in "ui":
            raise TypeError("only int indices permitted")
    if mode == "raise":
        if any(bool(((np.asarray(i) < 0) | (np.asarray(i) >= d)).any()) for i, d in zip(index, dims)):
            raise ValueError("invalid entry in coordinates array")
        return index
    if mode == "clip":
        return [clip(i, 0, d - 1) for i, d in zip(index, dims)]
    if mode == "wrap":
        return [remainder(i, d) for i, d in zip(index, dims)]
    if mode == "ignore":
        return index
    raise ValueError(f"invalid {mode=}. Expected 'raise', 'wrap', 'clip', or 'ignore'.")


def unravel_index(indices: Any, shape: Any) -> tuple[Any, ...]:
    """Positions along each axis from flat positions; those out of range clamp to the corners."""
    flat = arrays("unravel_index", indices)
    sizes = list(shape) if np.iterable(shape) else [shape]
    if any(np.ndim(s) for s in sizes):
        raise ValueError("unravel_index: shape should be a scalar or 1D sequence.")
    out: list[Any] = [0] * len(sizes)
    for i, size in reversed(list(enumerate(sizes))):
        flat, out[i] = divmod(flat, size)
    above = flat > 0
    below = flat < -1 if kind(flat.dtype) == "i" else lax.full((), False, BOOL)
    return tuple(_where(above, s - 1, _where(below, 0, i)) for s, i in zip(sizes, out))


