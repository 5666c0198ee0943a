"""Shapes: reshape, transpose, stack, split, repeat, tile, flip, roll. Nothing here computes new values."""
from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from aot import lax
from aot.api import vmap
from aot.array_methods import ArrayMethods
from aot.numpy import _util
from aot.numpy._util import (
    array_of,
    arrays,
    axes_of,
    axis_of,
    cast,
    check,
    concrete,
    concrete_index,
    fused,
    index_tuple,
    named,
    no_out,
    promote,
    static_axes,
    user_dtype,
)
from aot.ops.shape import placed


def shape(a: Any) -> tuple[int, ...]:
    """The shape as a tuple of ints."""
    if hasattr(a, "shape"):
        return a.shape
    _check_soft("shape", a)
    return np.shape(array_of(a) if hasattr(a, "__jax_array__") else a)


def ndim(a: Any) -> int:
    """The number of dimensions."""
    if hasattr(a, "ndim"):
        return a.ndim
    _check_soft("ndim", a)
    return len(shape(a))


def size(a: Any, axis: Any = None) -> int:
    """The number of elements, in all or along `axis`."""
    _check_soft("size", a)
    if axis is None and hasattr(a, "size"):
        return a.size
    sizes = shape(a)
    return math.prod(sizes[i] for i in axes_of(axis, len(sizes)))


def _check_soft(name: str, a: Any) -> None:
    """Only a warning for lists: these functions ask about shapes and compute nothing."""
    try:
        check(name, a)
    except TypeError as error:
        import warnings

        warnings.warn(f"{error} In a future release this will be an error.", DeprecationWarning, stacklevel=3)


# ---- reshape ---------------------------------------------------------------------------------------------------------
def new_shape(old: tuple[int, ...], shape: Any) -> tuple[int, ...]:
    """The target of a reshape with -1 resolved, checked against the number of elements."""
    given = shape
    shape = tuple(_static_dim(d) for d in (shape if np.iterable(shape) else (shape,)))
    unknown = [i for i, d in enumerate(shape) if d == -1]
    count = math.prod(old)
    if len(unknown) > 1:
        raise TypeError(f"can only specify one unknown axis size with a `-1` value, got {given}")
    rest = math.prod(d for d in shape if d != -1)
    if unknown:
        if rest == 0:
            raise ZeroDivisionError(f"the axis marked -1 in {given} could have any size: the others have no elements")
        if count % rest:
            raise TypeError(f"cannot reshape array of shape {old} (size {count}) into shape {given} because the product "
                            f"of specified axis sizes ({rest}) does not evenly divide {count}")
        return tuple(count // rest if d == -1 else d for d in shape)
    if rest != count:
        raise TypeError(f"cannot reshape array of shape {old} (size {count}) into shape {given} (size {rest})")
    return shape


def _static_dim(d: Any) -> int:
    if type(d) is int:
        return d
    try:
        return concrete_index(d, "Shapes must be 1D sequences of concrete values of integer type.")
    except TypeError as error:
        if _util.is_tracer(d):
            raise
        raise TypeError(f"Shapes must be 1D sequences of concrete values of integer type, got {d!r}.") from error


def reshape(a: Any, shape: Any, order: str = "C", *, copy: bool | None = None, out_sharding: Any = None) -> Any:
    """The same elements in another shape; one size may be -1."""
    a = arrays("reshape", a)
    sizes = new_shape(a.shape, shape)
    if order == "C":
        return lax.reshape(a, sizes, None, out_sharding=out_sharding)
    if order == "F":
        return placed(transpose(lax.reshape(a, sizes[::-1], tuple(range(a.ndim)[::-1]))), out_sharding)
    if order == "A":
        raise NotImplementedError("np.reshape order=A is not implemented.")
    raise ValueError(f"Unexpected value for 'order' argument: {order}.")


def ravel(a: Any, order: str = "C", *, out_sharding: Any = None) -> Any:
    """All elements in one dimension."""
    a = arrays("ravel", a)
    if order == "K":
        raise NotImplementedError("Ravel not implemented for order='K'.")
    return reshape(a, (a.size,), order, out_sharding=out_sharding)


def squeeze(a: Any, axis: Any = None) -> Any:
    """Without the axes of size 1, all of them or those given."""
    a = arrays("squeeze", a)
    dims = tuple(i for i, d in enumerate(a.shape) if d == 1) if axis is None else index_tuple(axis)
    return lax.squeeze(a, dims)


def expand_dims(a: Any, axis: Any) -> Any:
    """With new axes of size 1 at the positions `axis` of the result."""
    return lax.expand_dims(arrays("expand_dims", a), index_tuple(axis))


def _ndmin(x: Any, n: int) -> Any:
    return lax.expand_dims(x, tuple(range(n - x.ndim))) if x.ndim < n else x


def _each(name: str, arys: tuple, fun: Any) -> Any:
    check(name, *arys)
    out = [fun(array_of(x)) for x in arys]
    return out[0] if len(arys) == 1 else out


@named()
def atleast_1d(*arys: Any) -> Any:
    """Scalars become arrays of one element."""
    return _each("atleast_1d", arys, lambda x: _ndmin(x, 1))


@named()
def atleast_2d(*arys: Any) -> Any:
    """At least two dimensions, new ones in front."""
    return _each("atleast_2d", arys, lambda x: _ndmin(x, 2))


@named()
def atleast_3d(*arys: Any) -> Any:
    """At least three dimensions: (), (n,), (m, n) become (1, 1, 1), (1, n, 1), (m, n, 1)."""
    new = {0: (0, 1, 2), 1: (0, 2), 2: (2,)}
    return _each("atleast_3d", arys, lambda x: lax.expand_dims(x, new[x.ndim]) if x.ndim < 3 else x)


def broadcast_to(array: Any, shape: Any, *, out_sharding: Any = None) -> Any:
    """`array` repeated along new axes and axes of size 1."""
    array = arrays("broadcast_to", array)
    sizes = tuple(_static_dim(d) for d in (shape if np.iterable(shape) else (shape,)))
    return placed(_util.broadcast_to(array, sizes), out_sharding)


def broadcast_arrays(*args: Any) -> list[Any]:
    """All arrays with their common shape."""
    check("broadcast_arrays", *args)
    return _util.broadcast(*[array_of(x) for x in args]) if args else []


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that arrays of these shapes broadcast to."""
    if not shapes:
        return ()
    return lax.broadcast_shapes(*[(s,) if np.ndim(s) == 0 else tuple(s) for s in shapes])


# ---- transpose -------------------------------------------------------------------------------------------------------
def transpose(a: Any, axes: Any = None) -> Any:
    """Axes in reversed order, or in the order `axes`."""
    a = arrays("transpose", a)
    axes = range(a.ndim)[::-1] if axes is None else [axis_of(i, a.ndim) for i in axes]
    return lax.transpose(a, tuple(axes))


def permute_dims(a: Any, /, axes: tuple[int, ...]) -> Any:
    """Axes in the order `axes`."""
    a = arrays("permute_dims", a)
    return lax.transpose(a, tuple(axis_of(i, a.ndim) for i in axes))


def matrix_transpose(x: Any, /) -> Any:
    """The last two axes swapped."""
    x = arrays("matrix_transpose", x)
    if x.ndim < 2:
        raise ValueError(f"x must be at least two-dimensional for matrix_transpose; got ndim={x.ndim}")
    return lax.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


@fused("axis1", "axis2")
def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """Two axes swapped."""
    a = arrays("swapaxes", a)
    perm = list(range(a.ndim))
    i, j = axis_of(axis1, a.ndim), axis_of(axis2, a.ndim)
    perm[i], perm[j] = perm[j], perm[i]
    return lax.transpose(a, tuple(perm))


def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    """The axes `source` moved to the positions `destination`, the others in their order."""
    a = arrays("moveaxis", a)
    source = [axis_of(i, a.ndim) for i in index_tuple(source)]
    destination = [axis_of(i, a.ndim) for i in index_tuple(destination)]
    if len(source) != len(destination):
        raise ValueError(f"Inconsistent number of elements: {len(source)} vs {len(destination)}")
    perm = [i for i in range(a.ndim) if i not in source]
    for position, axis in sorted(zip(destination, source)):
        perm.insert(position, axis)
    return lax.transpose(a, tuple(perm)) if perm != list(range(a.ndim)) else a


@named("axis", "start")
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """`axis` moved before position `start`."""
    a = arrays("rollaxis", a)
    axis, start = axis_of(axis, a.ndim), concrete_index(start, "'start' argument of jnp.rollaxis()")
    if not -a.ndim <= start <= a.ndim:
        raise ValueError(f"{start=} must satisfy {-a.ndim}<=start<={a.ndim}")
    start += a.ndim if start < 0 else 0
    return moveaxis(a, axis, start - 1 if start > axis else start)


# ---- stack and concatenate -------------------------------------------------------------------------------------------
def _is_array(x: Any) -> bool:
    return isinstance(x, (np.ndarray, ArrayMethods))


def _of_dtype(arrs: Sequence[Any], dtype: Any) -> list[Any]:
    """`arrs` with their common dtype, or with `dtype`."""
    if dtype is None:
        return promote(*arrs)
    dtype = user_dtype(dtype)
    return [lax.convert_element_type(x, dtype) for x in arrs]


def stack(arrays: Any, axis: int = 0, out: None = None, dtype: Any = None) -> Any:
    """Arrays of equal shape joined along a new axis."""
    if not len(arrays):
        raise ValueError("Need at least one array to stack.")
    no_out("stack", out)
    if _is_array(arrays):
        axis = axis_of(axis, arrays.ndim)
        return concatenate(expand_dims(arrays, axis + 1), axis=axis, dtype=dtype)
    check("stack", *arrays)
    parts = _of_dtype([array_of(x) for x in arrays], dtype)
    return lax.stack(parts, axis=axis)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The slices along `axis` as a tuple."""
    return tuple(lax.unstack(arrays("unstack", x), axis=axis))


def concatenate(arrays: Any, axis: int | None = 0, dtype: Any = None) -> Any:
    """Arrays joined along an existing axis; flattened first if `axis` is None."""
    if _is_array(arrays):
        return _concatenate_rows(array_of(arrays), axis, dtype)
    check("concatenate", *arrays)
    if not len(arrays):
        raise ValueError("Need at least one array to concatenate.")
    parts = [array_of(x) for x in arrays]
    if axis is None:
        return concatenate([ravel(x) for x in parts], axis=0, dtype=dtype)
    if parts[0].ndim == 0:
        raise ValueError("Zero-dimensional arrays cannot be concatenated.")
    axis = axis_of(axis, parts[0].ndim)
    return lax.concatenate(_of_dtype(parts, dtype), axis)


def _concatenate_rows(a: Any, axis: int | None, dtype: Any) -> Any:
    """The rows of one array joined: only a transpose and a reshape."""
    a = a if dtype is None else lax.convert_element_type(a, user_dtype(dtype))
    if a.ndim == 0 or a.shape[0] == 0:
        raise ValueError("Need at least one array to concatenate.")
    if axis is None:
        return lax.reshape(a, (a.size,))
    if a.ndim == 1:
        raise ValueError("Zero-dimensional arrays cannot be concatenated.")
    axis = axis_of(axis, a.ndim - 1)
    sizes = (*a.shape[1:axis + 1], a.shape[0] * a.shape[axis + 1], *a.shape[axis + 2:])
    return lax.reshape(a, sizes, (*range(1, axis + 1), 0, *range(axis + 1, a.ndim)))


def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Any:
    """Arrays joined along an existing axis."""
    check("concat", *arrays)
    return concatenate(arrays, axis=axis)


def _each_atleast(name: str, tup: Any, fun: Any) -> Any:
    if _is_array(tup):
        return vmap(fun)(tup)
    check(name, *tup)
    return [fun(array_of(x)) for x in tup]


def vstack(tup: Any, dtype: Any = None) -> Any:
    """Arrays joined as rows."""
    return concatenate(_each_atleast("vstack", tup, atleast_2d), axis=0, dtype=dtype)


def hstack(tup: Any, dtype: Any = None) -> Any:
    """Arrays joined as columns; one-dimensional ones end to end."""
    arrs = _each_atleast("hstack", tup, atleast_1d)
    dims = arrs.ndim - 1 if _is_array(arrs) else arrs[0].ndim
    return concatenate(arrs, axis=0 if dims == 1 else 1, dtype=dtype)


def dstack(tup: Any, dtype: Any = None) -> Any:
    """Arrays joined along the third axis."""
    return concatenate(_each_atleast("dstack", tup, atleast_3d), axis=2, dtype=dtype)


def column_stack(tup: Any) -> Any:
    """One-dimensional arrays as the columns of a matrix."""
    if _is_array(tup) and tup.ndim >= 3:
        return concatenate(tup, axis=1)
    return concatenate(_each_atleast("column_stack", tup, lambda x: x if x.ndim >= 2 else transpose(atleast_2d(x))), axis=1)


def _block(xs: Any) -> tuple[Any, int]:
    if isinstance(xs, tuple):
        raise ValueError(f"jax.numpy.block does not allow tuples, got {xs}")
    if not isinstance(xs, list):
        return array_of(xs), 1
    if not xs:
        raise ValueError("jax.numpy.block does not allow empty list arguments")
    parts, depths = zip(*[_block(x) for x in xs])
    if len(set(depths)) > 1:
        raise ValueError("Mismatched list depths in jax.numpy.block")
    rank = max(depths[0], *[x.ndim for x in parts])
    return concatenate([_ndmin(x, rank) for x in parts], axis=-depths[0]), depths[0] + 1


@named()
def block(arrays: Any) -> Any:
    """An array assembled from nested lists of blocks."""
    return _block(arrays)[0]


@named("axis")
def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """`values` after `arr`, both flattened if `axis` is None."""
    if axis is None:
        return concatenate([ravel(arr), ravel(values)], 0)
    return concatenate([arr, values], axis=axis)


# ---- split -----------------------------------------------------------------------------------------------------------
def _split(name: str, a: Any, where_: Any, axis: Any) -> list[Any]:
    a, axis = arrays(name, a), concrete_index(axis, f"in jax.numpy.{name} argument `axis`")
    axis = axis_of(axis, a.ndim)
    total = a.shape[axis]
    if isinstance(where_, (list, tuple)) or (_is_array(where_) and where_.ndim > 0):
        cuts = [0, *[concrete_index(i, f"in jax.numpy.{name} argument 1") for i in where_], total]
        sizes = tuple(hi - lo for lo, hi in zip(cuts[:-1], cuts[1:]))
        if any(n < 0 for n in sizes):
            raise ValueError(f"{name}: positions must be in ascending order and at most {total}, got {cuts[1:-1]}")
        return _pieces(a, sizes=sizes, axis=axis)
    sections = int(concrete(where_, f"in jax.numpy.{name} argument 1"))
    part, rest = divmod(total, sections)
    if rest and name != "array_split":
        raise ValueError(f"array split does not result in an equal division: rest is {rest}")
    return _pieces(a, sizes=(part + 1,) * rest + (part,) * (sections - rest), axis=axis)


@fused("sizes", "axis")
def _pieces(a: Any, *, sizes: tuple[int, ...], axis: int) -> list[Any]: return list(lax.split(a, sizes, axis=axis))


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Parts along `axis`: this many equal ones, or cut at these positions."""
    return _split("split", ary, indices_or_sections, axis)


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Like `split`; the first parts are one longer where the division has a rest."""
    return _split("array_split", ary, indices_or_sections, axis)


def vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Parts along axis 0."""
    return _split("vsplit", ary, indices_or_sections, 0)


def hsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Parts along axis 1, or 0 for one-dimensional arrays."""
    a = arrays("hsplit", ary)
    return _split("hsplit", a, indices_or_sections, 0 if a.ndim == 1 else 1)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Parts along axis 2."""
    return _split("dsplit", ary, indices_or_sections, 2)


# ---- repeat ----------------------------------------------------------------------------------------------------------
def tile(A: Any, reps: Any) -> Any:
    """`A` repeated as a whole, `reps` times along each axis."""
    A = arrays("tile", A)
    counts = tuple(operator.index(r) for r in (reps if np.iterable(reps) else (reps,)))
    counts = (1,) * (A.ndim - len(counts)) + counts
    A = _ndmin(A, len(counts))
    return lax.tile(A, counts)


def repeat(a: Any, repeats: Any, axis: int | None = None, *, total_repeat_length: int | None = None,
           out_sharding: Any = None) -> Any:
    """Each element repeated. A traced `repeats` needs `total_repeat_length`."""
    return placed(_repeat(a, repeats, axis, total_repeat_length), out_sharding)


def _repeat(a: Any, repeats: Any, axis: int | None, total_repeat_length: int | None) -> Any:
    check("repeat", a, *([] if isinstance(repeats, int) else [repeats]))
    a = array_of(a)
    if axis is None:
        a, axis = ravel(a), 0
    axis = concrete_index(axis, "'axis' argument of jnp.repeat()")
    if total_repeat_length is not None:
        return _repeat_varying(a, ravel(repeats), axis, total_repeat_length)
    repeats = concrete(repeats, "When jit-compiling jnp.repeat, the total number of repeats must be static. To fix this, "
                       "either specify a static value for `repeats`, or pass a static value to `total_repeat_length`.")
    if np.ndim(repeats) == 0 and a.ndim:
        return _repeat_equally(a, operator.index(repeats), axis_of(axis, a.ndim))
    repeats = np.ravel(np.asarray(repeats))
    if a.ndim:
        repeats = np.broadcast_to(repeats, (a.shape[axis_of(axis, a.ndim)],))
    return _repeat_varying(a, repeats, axis, int(repeats.sum()))


def _repeat_equally(a: Any, count: int, axis: int) -> Any:
    wide = (*a.shape[:axis + 1], count, *a.shape[axis + 1:])
    out = lax.broadcast_in_dim(a, wide, tuple(i for i in range(a.ndim + 1) if i != axis + 1))
    return lax.reshape(out, (*a.shape[:axis], a.shape[axis] * count, *a.shape[axis + 1:]))


def _repeat_varying(a: Any, repeats: Any, axis: int, total: int) -> Any:
    """Gather from positions found by counting, at each place of the result, how many elements have started."""
    if a.ndim == 0:
        if np.shape(repeats) != (1,):
            raise ValueError("`repeat` with a scalar parameter `a` is only implemented for scalar values of the "
                             "parameter `repeats`.")
        return _util.broadcast_to(a, (total,))
    axis = axis_of(axis, a.ndim)
    if total == 0:
        return lax.full((*a.shape[:axis], 0, *a.shape[axis + 1:]), 0, a.dtype)
    if a.shape[axis] == 0:
        return a
    from aot.numpy import creation, reductions, selecting

    repeats = _util.broadcast_to(array_of(repeats), (a.shape[axis],))
    starts = reductions.cumsum(roll(repeats, 1).at[0].set(0))
    counts = creation.zeros((total,), np.int32).at[starts].add(1)
    position = lax.sub(reductions.cumsum(counts), cast(1, np.dtype(np.int32)))
    return selecting.take(a, position, axis=axis)


@named("new_shape")
def resize(a: Any, new_shape: Any) -> Any:
    """The elements of `a`, repeated or cut off to fill `new_shape`."""
    sizes = index_tuple(new_shape)
    if any(d < 0 for d in sizes):
        raise ValueError("all elements of `new_shape` must be non-negative")
    flat, count = ravel(a), math.prod(sizes)
    if flat.size == 0 or count == 0:
        return lax.full(sizes, 0, flat.dtype)
    flat = tile(flat, -(-count // flat.size))
    return lax.reshape(lax.slice_in_dim(flat, 0, count), sizes)


# ---- flip and roll ---------------------------------------------------------------------------------------------------
@named("axis")
def _flip(m: Any, axis: Any = None) -> Any:
    return lax.rev(m, axes_of(axis, m.ndim))


def flip(m: Any, axis: Any = None) -> Any:
    """Elements in reversed order along `axis`, or along all axes."""
    return _flip(arrays("flip", m), axis=static_axes(axis))


def fliplr(m: Any) -> Any:
    """Columns in reversed order."""
    return _flip(arrays("fliplr", m), axis=1)


def flipud(m: Any) -> Any:
    """Rows in reversed order."""
    return _flip(arrays("flipud", m), axis=0)


@named("k", "axes")
def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    """Rotated by k quarter turns in the plane of `axes`, from the first towards the second."""
    m = arrays("rot90", m)
    if m.ndim < 2:
        raise ValueError("rot90 requires its first argument to have ndim at least two, but got first argument of shape "
                         f"{m.shape}, which has ndim {m.ndim}")
    i, j = (axis_of(a, m.ndim) for a in axes)
    if i == j:
        raise ValueError("Axes must be different")
    k %= 4
    if k == 2:
        return lax.rev(m, (i, j))
    if k == 0:
        return m
    return swapaxes(lax.rev(m, (j,)), i, j) if k == 1 else lax.rev(swapaxes(m, i, j), (j,))


@named("shift", "axis")
def _roll_static(a: Any, shift: tuple[int, ...], axis: tuple[int, ...]) -> Any:
    for ax, s in zip(*[x.tolist() for x in np.broadcast_arrays(axis, shift)]):
        if a.shape[ax]:
            cut = -s % a.shape[ax]
            a = lax.concatenate([lax.slice_in_dim(a, cut, None, axis=ax), lax.slice_in_dim(a, 0, cut, axis=ax)], ax)
    return a


@named("axis")
def _roll_dynamic(a: Any, shift: Any, axis: tuple[int, ...]) -> Any:
    sizes = lax.broadcast_shapes(shift.shape, (len(axis),))
    if len(sizes) != 1:
        raise ValueError("'shift' and 'axis' arguments to roll must be scalars or 1D arrays")
    shift = lax.convert_element_type(_util.broadcast_to(shift, sizes), np.int32)
    for k, ax in enumerate(np.broadcast_to(axis, sizes).tolist()):
        from aot.numpy.ufuncs import remainder

        steps = remainder(lax.index_in_dim(shift, k, keepdims=False), np.int32(max(a.shape[ax], 1)))
        start = lax.sub(np.int32(a.shape[ax]), steps)
        a = lax.dynamic_slice_in_dim(lax.concatenate([a, a], ax), start, a.shape[ax], axis=ax)
    return a


def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """Elements moved by `shift` along `axis`, those leaving at one end entering at the other."""
    a = arrays("roll", a)
    if axis is None:
        return lax.reshape(roll(lax.reshape(a, (a.size,)), shift, 0), a.shape)
    axis = tuple(axis_of(ax, a.ndim) for ax in index_tuple(axis))
    try:
        shift = index_tuple(shift)
    except TypeError:
        return _roll_dynamic(a, array_of(shift), axis=axis)
    return _roll_static(a, shift=shift, axis=axis)


