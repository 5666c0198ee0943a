"""pad, insert, delete, trim_zeros, packbits, unpackbits, vander."""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from aot import lax
from aot.numpy import _util, reductions
from aot.numpy._util import (
    BOOL,
    ArrayMethods,
    array_of,
    arrays,
    axes_of,
    axis_of,
    cast,
    check,
    concrete,
    concrete_index,
    kind,
    named,
)
from aot.numpy._util import where as _where
from aot.numpy.selecting import clip
from aot.numpy.shapes import moveaxis, repeat, swapaxes
from aot.numpy.sorting import argsort

# ---- pad -------------------------------------------------------------------------------------------------------------
_PAD_OPTIONS = {
    "empty": (), "edge": (), "wrap": (), "constant": ("constant_values",), "linear_ramp": ("end_values",),
    "maximum": ("stat_length",), "mean": ("stat_length",), "median": ("stat_length",), "minimum": ("stat_length",),
    "reflect": ("reflect_type",), "symmetric": ("reflect_type",),
}


def _pairs(values: Any, n: int, name: str) -> tuple[tuple[Any, Any], ...]:
    """(before, after) for each of n axes, from any of the short forms."""
    if type(values) is int:
        return ((values, values),) * n
    known = concrete_tree(values, f"{name} argument of jnp.pad")
    try:
        table = np.asarray(known)
    except ValueError as error:
        raise TypeError(f"`{name}` entries must be the same shape: {values}") from error
    if table.dtype == object:
        raise TypeError(f"`{name}` entries must be the same shape: {values}")
    if table.shape not in ((n, 2), (1, 2), (2,), (1,), ()):
        raise ValueError(f"jnp.pad: {name} with nd={n} has unsupported shape {table.shape}. Valid shapes are ({n}, 2), "
                         "(1, 2), (2,), (1,), or ().")
    return tuple(map(tuple, np.broadcast_to(table, (n, 2)).tolist()))


def concrete_tree(values: Any, context: str) -> Any:
    """Nested sequences with every number known."""
    if isinstance(values, (list, tuple)):
        return [concrete_tree(v, context) for v in values]
    values = concrete(values, context)
    return np.asarray(values) if isinstance(values, ArrayMethods) else values


def pad(array: Any, pad_width: Any, mode: str | Callable[..., Any] = "constant", **kwargs: Any) -> Any:
    """`array` with elements added before and behind along each axis.

    `pad_width`: (before, after) for each axis, or one pair or number for all. `mode`: constant, edge, linear_ramp,
    maximum, mean, median, minimum, reflect, symmetric, wrap, empty, or a function as numpy takes it.
    """
    array = arrays("pad", array)
    if isinstance(pad_width, dict):
        pad_width = [pad_width.get(i, pad_width.get(i - array.ndim, (0, 0))) for i in range(array.ndim)]
        pad_width = [(w, w) if np.ndim(w) == 0 else w for w in pad_width]
    widths = _pairs(pad_width, array.ndim, "pad_width")
    if not all(isinstance(w, int) for pair in widths for w in pair):
        raise TypeError("`pad_width` must be of integral type.")
    if callable(mode):
        return _pad_by_function(array, widths, mode, kwargs)
    if mode not in _PAD_OPTIONS:
        raise NotImplementedError(f"Unimplemented padding mode '{mode}' for np.pad.")
    if unknown := set(kwargs) - set(_PAD_OPTIONS[mode]):
        raise ValueError(f"unsupported keyword arguments for mode '{mode}': {unknown}")
    if any(w < 0 for pair in widths for w in pair):
        raise ValueError("index can't contain negative values")
    if array.ndim == 0:
        return array
    return _pad_mode(array, widths, mode, kwargs)


def _pad_mode(array: Any, widths: tuple, mode: str, options: dict[str, Any]) -> Any:
    n = array.ndim
    if mode == "constant":
        value = options.get("constant_values", 0)
        return _pad_constant(array, _array(value) if isinstance(value, (list, tuple)) else value, widths=widths)
    stat_length, ends = options.get("stat_length"), options.get("end_values", 0)
    stat_length = None if stat_length is None else _pairs(stat_length, n, "stat_length")
    if mode in _STATS and stat_length is not None and any(s == 0 for pair in stat_length for s in pair):
        raise ValueError("stat_length of 0 yields no value for padding")
    return _pad(array, widths=widths, mode=mode, stat_length=stat_length, ends=_pairs(ends, n, "end_values"),
                reflect_type=options.get("reflect_type", "even"))


def _array(x: Any) -> Any:
    from aot.numpy.creation import asarray

    return asarray(x)


@named("widths")
def _pad_constant(array: Any, value: Any, widths: tuple) -> Any:
    value = cast(value, array.dtype, array.aval.weak_type)
    if value.ndim == 0 or value.shape == (1,):
        return lax.pad(array, lax.reshape(value, ()), tuple((lo, hi, 0) for lo, hi in widths))
    if value.ndim == 1 and value.shape[0] != 2:
        raise ValueError(f"jnp.pad: constant_values has unsupported shape {value.shape}. If the shape is 1D or 2D, the "
                         "last dimension must be of size 1 or 2.")
    value = _util.broadcast_to(value, (array.ndim, 2))
    for axis, pair in enumerate(widths):
        for side, width in enumerate(pair):
            config = [(0, 0, 0)] * array.ndim
            config[axis] = (width, 0, 0) if side == 0 else (0, width, 0)
            array = lax.pad(array, value[axis, side], config) if width else array
    return array


@named("widths", "mode", "stat_length", "ends", "reflect_type")
def _pad(array: Any, widths: tuple, mode: str, stat_length: Any, ends: tuple, reflect_type: str) -> Any:
    """One axis after the other, so that corners come out right."""
    for axis, (before, after) in enumerate(widths):
        if array.shape[axis] == 0 and mode in ("edge", "wrap", "reflect", "symmetric"):
            if before or after:
                raise ValueError(f"Cannot apply '{mode}' padding to empty axis")
            continue
        if mode == "wrap":
            array = _wrap(array, axis, before, after)
        elif mode in ("reflect", "symmetric"):
            array = _reflect(array, axis, before, True, mode, reflect_type)
            array = _reflect(array, axis, after, False, mode, reflect_type)
        elif mode == "linear_ramp":
            array = _ramp(array, axis, before, after, ends[axis])
        elif mode in _STATS:
            array = _statistic(array, axis, before, after, None if stat_length is None else stat_length[axis], mode)
        else:
            first, last = lax.slice_in_dim(array, 0, 1, axis=axis), lax.slice_in_dim(array, -1, None, axis=axis)
            array = _between(array, axis, first, last, before, after, keep=mode == "edge")
    return array


def _between(array: Any, axis: int, first: Any, last: Any, before: int, after: int, keep: bool = True) -> Any:
    """`first` repeated, the array, `last` repeated (zeros if not `keep`)."""
    parts = [repeat(x, n, axis=axis) for x, n in ((first, before), (last, after))]
    parts = parts if keep else [lax.full_like(p, 0) for p in parts]
    return lax.concatenate([parts[0], array, parts[1]], axis)


def _wrap(array: Any, axis: int, before: int, after: int) -> Any:
    size = array.shape[axis]
    (left, left_rest), (right, right_rest) = divmod(before, size), divmod(after, size)
    parts = [lax.slice_in_dim(array, size - left_rest, size, axis=axis)] if left_rest else []
    parts += [array] * (left + right + 1)
    parts += [lax.slice_in_dim(array, 0, right_rest, axis=axis)] if right_rest else []
    return lax.concatenate(parts, axis) if len(parts) > 1 else array


def _reflect(array: Any, axis: int, width: int, before: bool, mode: str, reflect_type: str) -> Any:
    """Mirror images added until `width` elements are there; "odd" ones are turned over around the edge value."""
    size = array.shape[axis]
    skip = 1 if mode == "reflect" and size > 1 else 0  # whether the edge itself is left out of the image
    cut = lambda x, lo, hi: lax.slice_in_dim(x, lo, hi, axis=axis)
    edge = cut(array, 0, 1) if before else cut(array, -1, None)
    while width > 0:
        now = min(width, size - skip)
        width -= now
        stop = array.shape[axis]
        image = cut(array, skip, skip + now) if before else cut(array, stop - skip - now, stop - skip)
        image = lax.rev(image, (axis,))
        if reflect_type == "odd":
            image = 2 * edge - image
            if size > 1:
                edge = cut(image, 0, 1) if before else cut(image, -1, None)
        array = lax.concatenate([image, array] if before else [array, image], axis)
    return array


def _ramp(array: Any, axis: int, before: int, after: int, ends: tuple[Any, Any]) -> Any:
    from aot.numpy.creation import linspace

    def ramp(end, edge, count):
        edge = lax.squeeze(edge, (axis,))
        out = linspace(end, edge, count, endpoint=False, dtype=array.dtype, axis=axis)
        return cast(out, array.dtype, array.aval.weak_type)

    first, last = lax.slice_in_dim(array, 0, 1, axis=axis), lax.slice_in_dim(array, -1, None, axis=axis)
    return lax.concatenate([ramp(ends[0], first, before), array, lax.rev(ramp(ends[1], last, after), (axis,))], axis)


def _median(a: Any, axis: int, keepdims: bool) -> Any:
    from aot.numpy.statistics import median

    return median(a, axis=axis, keepdims=keepdims)


_STATS: dict[str, Callable[..., Any]] = {
    "maximum": reductions.max, "minimum": reductions.min, "mean": reductions.mean, "median": _median}


def _statistic(array: Any, axis: int, before: int, after: int, lengths: Any, mode: str) -> Any:
    from aot.numpy.elementwise import round

    n = array.shape[axis]
    left, right = (n, n) if lengths is None else (min(lengths[0], n), min(lengths[1], n))
    values = []
    for part in (lax.slice_in_dim(array, 0, left, axis=axis), lax.slice_in_dim(array, n - right, n, axis=axis)):
        value = _STATS[mode](part, axis=axis, keepdims=True)
        value = round(value) if kind(array.dtype) in "ui" else value
        values.append(cast(value, array.dtype, array.aval.weak_type))
    return _between(array, axis, values[0], values[1], before, after)


def _pad_by_function(array: Any, widths: tuple, fun: Callable[..., Any], options: dict[str, Any]) -> Any:
    """numpy's callback form: `fun(vector, pad_width, axis, kwargs)` gets each vector padded with zeros."""
    from aot.numpy.vectorizing import apply_along_axis

    out = lax.pad(array, lax.full((), 0, array.dtype), tuple((lo, hi, 0) for lo, hi in widths))
    for axis in range(out.ndim):
        out = apply_along_axis(fun, axis, out, widths[axis], axis, options)
    return out


# ---- insert and delete -----------------------------------------------------------------------------------------------
def delete(arr: Any, obj: Any, axis: int | None = None, *, assume_unique_indices: bool = False) -> Any:
    """`arr` without the elements at `obj`. Traced positions need `assume_unique_indices`."""
    a = arrays("delete", arr)
    a, axis = (lax.reshape(a, (a.size,)), 0) if axis is None else (a, axis_of(axis, a.ndim))
    n = a.shape[axis]
    if not isinstance(obj, slice):
        try:
            position = axis_of(operator.index(obj), n)
        except TypeError:
            pass
        else:
            return lax.concatenate([lax.slice_in_dim(a, 0, position, axis=axis),
                                    lax.slice_in_dim(a, position + 1, None, axis=axis)], axis)
    obj = np.arange(n)[obj] if isinstance(obj, slice) else obj
    check("delete", a, obj)
    if assume_unique_indices and kind(_util.dtype_of(obj)) in "ui":
        return _delete_unique(a, array_of(obj), axis)
    known = np.asarray(concrete(obj, "'obj' array argument of jnp.delete()"))
    if kind(known.dtype) in "ui":
        keep = np.ones(n, bool)
        keep[known] = False
    elif known.dtype == BOOL:
        if known.shape != (n,):
            raise ValueError("np.delete(arr, obj): for boolean indices, obj must be one-dimensional with length matching "
                             "specified axis.")
        keep = ~known
    else:
        raise ValueError(f"np.delete(arr, obj): got obj.dtype={known.dtype}; must be integer or bool.")
    return a[(slice(None),) * axis + (np.nonzero(keep)[0],)]


def _delete_unique(a: Any, obj: Any, axis: int) -> Any:
    """The k-th kept element sits behind as many deleted ones as have a position <= its own."""
    n = a.shape[axis]
    obj = lax.reshape(obj, (obj.size,))
    obj = lax.sort(clip(_where(obj < 0, obj + n, obj), 0, n))
    obj = obj - lax.iota(obj.dtype, obj.size)
    kept = lax.iota(obj.dtype, n - obj.size)
    kept = kept + reductions.sum(kept[None, :] >= obj[:, None], 0, dtype=kept.dtype)
    return a[(slice(None),) * axis + (kept,)]


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """`arr` with `values` inserted before the positions `obj`."""
    a, _, values = arrays("insert", arr, 0 if isinstance(obj, slice) else obj, values)
    a, axis = (lax.reshape(a, (a.size,)), 0) if axis is None else (a, axis)
    axis = axis_of(concrete(axis, "axis argument of jnp.insert()"), a.ndim)
    n = a.shape[axis]
    positions = np.arange(*obj.indices(n)) if isinstance(obj, slice) else obj
    positions = array_of(np.asarray(positions, np.int32) if np.size(positions) == 0 else positions)
    if positions.ndim > 1:
        raise ValueError(f"jnp.insert(): obj must be a slice, a one-dimensional array, or a scalar; got {obj}")
    if kind(positions.dtype) not in "ui":
        raise ValueError(f"jnp.insert(): index array must be integer typed; got {obj}")
    values = lax.convert_element_type(values, a.dtype)
    values = lax.expand_dims(values, tuple(range(a.ndim - values.ndim))) if values.ndim < a.ndim else values
    if positions.size == 1:
        if positions.ndim == 0:
            values = moveaxis(values, 0, axis)
        positions = _util.broadcast_to(lax.reshape(positions, ()), (values.shape[axis],))
    return _insert(a, positions, values, axis=axis)


@_util.fused("axis")
def _insert(a: Any, positions: Any, values: Any, axis: int) -> Any:
    n = a.shape[axis]
    (count,) = lax.broadcast_shapes(positions.shape, (values.shape[axis],))
    positions = _util.broadcast_to(positions, (count,))
    positions = clip(_where(positions < 0, positions + n, positions), 0, n)
    new = positions.at[argsort(positions)].add(lax.iota(positions.dtype, count))
    from aot.numpy.selecting import nonzero

    free = lax.full((n + count,), True, BOOL).at[new].set(False)
    (old,) = nonzero(free, size=n)
    out = lax.full((*a.shape[:axis], n + count, *a.shape[axis + 1:]), 0, a.dtype)
    out = out.at[(slice(None),) * axis + (new,)].set(values)
    return out.at[(slice(None),) * axis + (old,)].set(a)


def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    """Without the zeros at the front ("f") and back ("b") along `axis`; values must be known."""
    a = arrays("trim_zeros", filt)
    known = np.asarray(concrete(a, "Error arose in the `filt` argument of trim_zeros()"))
    axes, trim = axes_of(axis, a.ndim), trim.lower()
    if not axes or not set(trim) & set("fb"):
        return a
    return a[tuple(_nonzero_range(known, ax, trim) if ax in axes else slice(None) for ax in range(a.ndim))]


def _nonzero_range(a: np.ndarray, axis: int, trim: str) -> slice:
    there = (a != 0).any(axis=tuple(i for i in range(a.ndim) if i != axis))
    if not there.any():
        return slice(0, 0)
    start = int(there.argmax()) if "f" in trim else None
    return slice(start, len(there) - int(there[::-1].argmax()) if "b" in trim else None)


# ---- bits and powers -------------------------------------------------------------------------------------------------
def _bit_order(bitorder: str) -> np.ndarray:
    if bitorder not in ("little", "big"):
        raise ValueError("'order' must be either 'little' or 'big'")
    shifts = np.arange(8, dtype=np.uint8)
    return shifts[::-1] if bitorder == "big" else shifts


def _to_last(a: Any, axis: int | None) -> tuple[Any, int]:
    if axis is None:
        return lax.reshape(a, (a.size,)), 0
    return swapaxes(a, axis, -1), axis


@named("axis", "bitorder")
def packbits(a: Any, axis: int | None = None, bitorder: str = "big") -> Any:
    """Booleans packed into bytes, eight at a time along `axis`."""
    a = arrays("packbits", a)
    if kind(a.dtype) not in "bui":
        raise TypeError("Expected an input array of integer or boolean data type")
    shifts = _bit_order(bitorder)
    bits = lax.convert_element_type(lax.ne(a, cast(0, a.dtype)), np.uint8)
    bits, axis = _to_last(bits, axis)
    missing = -bits.shape[-1] % 8
    bits = lax.pad(bits, np.uint8(0), (*[(0, 0, 0)] * (bits.ndim - 1), (0, missing, 0)))
    bits = lax.reshape(bits, (*bits.shape[:-1], bits.shape[-1] // 8, 8))
    out = reductions.sum(bits << shifts, -1, dtype=np.uint8)
    return swapaxes(out, axis, -1)


@named("axis", "count", "bitorder")
def unpackbits(a: Any, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Any:
    """The bits of bytes along `axis`, padded or cut to `count`."""
    a = arrays("unpackbits", a)
    if a.dtype != np.uint8:
        raise TypeError("Expected an input array of unsigned byte data type")
    shifts = _bit_order(bitorder)
    a, axis = _to_last(a, axis)
    bits = (lax.expand_dims(a, (a.ndim,)) >> shifts) & np.uint8(1)
    bits = lax.reshape(bits, (*a.shape[:-1], a.shape[-1] * 8))
    if count is not None and count > bits.shape[-1]:
        bits = lax.pad(bits, np.uint8(0), (*[(0, 0, 0)] * (bits.ndim - 1), (0, count - bits.shape[-1], 0)))
    return swapaxes(bits if count is None else bits[..., :count], axis, -1)


@named("N", "increasing")
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """Powers of `x` as columns, `(n,) -> (n, N)`, the highest first unless `increasing`."""
    from aot.numpy.ufuncs import power

    x = arrays("vander", x)
    if x.ndim != 1:
        raise ValueError("x must be a one-dimensional array")
    count = x.shape[0] if N is None else concrete_index(N, "'N' argument of jnp.vander()")
    if count < 0:
        raise ValueError("N must be nonnegative")
    exponents = lax.iota(x.dtype, count)
    exponents = exponents if increasing else lax.sub(cast(count - 1, x.dtype), exponents)
    return power(lax.expand_dims(x, (1,)), lax.expand_dims(exponents, (0,)))


