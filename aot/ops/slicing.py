"""Primitives for parts of arrays: slice, dynamic_slice, dynamic_update_slice, and functions of one dimension over them."""
from __future__ import annotations

import operator
from typing import Any

import numpy as np

from aot import dtypes
from aot.ops.elementwise import convert
from aot.ops.families import LinearOp, kind
from aot.ops.shape import canonical_axis, canonical_shape, expand_dims, pad, squeeze, zeros
from aot.trace import ShapedArray, bind, bind1, is_linear, typeof

# ---- static ----------------------------------------------------------------------------------------------------------

class Slice(LinearOp):
    name = "slice"

    def infer(self, x, *, start_indices, limit_indices, strides):
        if len(start_indices) != x.ndim or len(limit_indices) != x.ndim:
            raise TypeError(f"slice start_indices and limit_indices must have one entry per operand dimension, got "
                            f"{start_indices} and {limit_indices} for operand shape {x.shape}.")
        for lo, hi, n in zip(start_indices, limit_indices, x.shape):
            if not 0 <= lo <= hi <= n:
                raise TypeError(f"slice start_indices must be non-negative and at most limit_indices, which must be at "
                                f"most the operand shape; got start_indices={start_indices}, "
                                f"limit_indices={limit_indices}, operand shape {x.shape}.")
        if strides is None:
            shape = tuple([hi - lo for lo, hi in zip(start_indices, limit_indices)])
        else:
            if len(strides) != x.ndim or any(s <= 0 for s in strides):
                raise TypeError(f"slice strides must be positive, got {strides}")
            shape = tuple(-(-(hi - lo) // s) for lo, hi, s in zip(start_indices, limit_indices, strides))
        return [ShapedArray(shape, x.dtype, x.weak_type)]

    def transpose(self, cts, x, *, start_indices, limit_indices, strides):
        ct, shape = cts[0], x.aval.shape
        config = []
        for n, m, lo, s in zip(shape, typeof(ct).shape, start_indices, strides or [1] * len(shape)):
            used = (m - 1) * s + 1 if m else 0
            config.append((lo, n - lo - used, s - 1))
        return [pad(ct, zeros(ShapedArray((), typeof(ct).dtype)), config)]

    def vmap(self, axis, args, dims, *, start_indices, limit_indices, strides):
        d, = dims
        put = lambda t, v: (*t[:d], v, *t[d:])
        return bind(self, *args, start_indices=put(start_indices, 0), limit_indices=put(limit_indices, axis.size),
                    strides=None if strides is None else put(strides, 1)), [d]

    def lower(self, e, ins, outs, x, *, start_indices, limit_indices, strides):
        parts = [f"{lo}:{hi}" if s == 1 else f"{lo}:{hi}:{s}" for lo, hi, s in
                 zip(start_indices, limit_indices, strides or [1] * len(start_indices))]
        if kind(outs[0].dtype) == "k":
            parts += [f"0:{n}" for n in outs[0].physical.shape[len(parts):]]
        return [e.op(f"stablehlo.slice {x} [{', '.join(parts)}] : ({ins[0].mlir}) -> {outs[0].mlir}")]


slice_p = Slice()


def slice(operand, start_indices, limit_indices, strides=None):
    """operand[start:limit:stride] in every dimension; static bounds within the shape."""
    strides = None if strides is None or all(s == 1 for s in strides) else tuple(map(operator.index, strides))
    return bind1(slice_p, operand, start_indices=tuple(map(operator.index, start_indices)),
                 limit_indices=tuple(map(operator.index, limit_indices)), strides=strides)


def slice_in_dim(operand, start_index, limit_index, stride: int = 1, axis: int = 0):
    """operand[start:limit:stride] along one dimension, with Python's rules for None and negatives."""
    shape = typeof(operand).shape
    axis = canonical_axis(axis, len(shape))
    n = shape[axis]
    lo = 0 if start_index is None else operator.index(start_index)
    hi = n if limit_index is None else operator.index(limit_index)
    lo, hi = lo + n if lo < 0 else lo, hi + n if hi < 0 else hi
    start, limit, strides = [0] * len(shape), list(shape), [1] * len(shape)
    start[axis], limit[axis], strides[axis] = lo, hi, operator.index(stride)
    return slice(operand, start, limit, strides)


def index_in_dim(operand, index: int, axis: int = 0, keepdims: bool = True):
    """One static index along a dimension."""
    n = typeof(operand).shape[canonical_axis(axis, typeof(operand).ndim)]
    i = operator.index(index)
    wrapped = i + n if i < 0 else i
    if not 0 <= wrapped < n:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {n}")
    out = slice_in_dim(operand, wrapped, wrapped + 1, 1, axis)
    return out if keepdims else squeeze(out, (axis,))


def split(operand, sizes, axis: int = 0):
    """Consecutive pieces of these sizes along axis."""
    axis, at, out = canonical_axis(axis, typeof(operand).ndim), 0, []
    if sum(sizes) != typeof(operand).shape[axis]:
        raise ValueError(f"Sum of sizes {sum(sizes)} must be equal to dimension {axis} of the operand shape "
                        f"{typeof(operand).shape}")
    for n in sizes:
        out.append(slice_in_dim(operand, at, at + n, axis=axis))
        at += n
    return out


# ---- at computed positions -------------------------------------------------------------------------------------------

class DynamicSlice(LinearOp):
    """A window of static size at a computed position; starts are clamped so that it fits."""
    name = "dynamic_slice"

    def infer(self, x, *starts, slice_sizes):
        if len(starts) != x.ndim or len(slice_sizes) != x.ndim:
            raise TypeError(f"dynamic_slice needs one start index and one size for each dimension, got {len(starts)} "
                            f"starts and slice_sizes {slice_sizes} for operand shape {x.shape}.")
        if any(not 0 <= s <= n for s, n in zip(slice_sizes, x.shape)):
            raise TypeError(f"slice slice_sizes must be less than or equal to operand shape, got slice_sizes "
                            f"{slice_sizes} for operand shape {x.shape}.")
        if any(kind(i.dtype) not in "iu" or i.shape for i in starts):
            raise TypeError("index arguments to dynamic_slice must be integer scalars, got "
                            f"{[i.str_short() for i in starts]}")
        return [ShapedArray(slice_sizes, x.dtype, x.weak_type)]

    def transpose(self, cts, x, *starts, slice_sizes):
        return [bind1(dynamic_update_slice_p, zeros(ShapedArray(x.aval.shape, typeof(cts[0]).dtype)), cts[0], *starts),
                *[None] * len(starts)]

    def vmap(self, axis, args, dims, *, slice_sizes):
        (x, *starts), (dx, *ds) = args, dims
        if all(d is None for d in ds):
            zero = np.zeros((), typeof(starts[0]).dtype)[()] if starts else np.int32(0)
            put = lambda t, v: (*t[:dx], v, *t[dx:])
            return bind(self, x, *put(tuple(starts), zero), slice_sizes=put(slice_sizes, axis.size)), [dx]
        from aot.ops.indexing import batched_dynamic_slice
        return batched_dynamic_slice(axis, args, dims, slice_sizes)

    def lower(self, e, ins, outs, x, *starts, slice_sizes):
        sizes, starts, types = slice_sizes, list(starts), [a.mlir for a in ins]
        if kind(outs[0].dtype) == "k":
            extra = outs[0].physical.shape[len(sizes):]
            sizes = (*sizes, *extra)
            index = ins[1] if len(ins) > 1 else ShapedArray((), np.dtype("int32"))
            starts += [e.splat(0, index)] * len(extra)
            types += [index.mlir] * len(extra)
        return [e.op(f"stablehlo.dynamic_slice {', '.join([x, *starts])}, sizes = "
                     f"[{', '.join(map(str, sizes))}] : ({', '.join(types)}) -> {outs[0].mlir}")]


dynamic_slice_p = DynamicSlice()


class DynamicUpdateSlice(LinearOp):
    """operand with a window replaced by update; starts are clamped so that it fits."""
    name = "dynamic_update_slice"
    linear_operands = (0, 2)

    def infer(self, x, update, *starts):
        if x.ndim != update.ndim or len(starts) != x.ndim:
            raise TypeError(f"dynamic_update_slice update must have the same rank as operand, got update shape "
                            f"{update.shape} for operand shape {x.shape}.")
        if any(u > n for u, n in zip(update.shape, x.shape)):
            raise TypeError(f"dynamic_update_slice update shape must be smaller than operand shape, got update shape "
                            f"{update.shape} for operand shape {x.shape}.")
        if x.dtype != update.dtype:
            raise TypeError("lax.dynamic_update_slice requires arguments to have the same dtypes, got "
                            f"{x.dtype.name}, {update.dtype.name}.")
        if any(kind(i.dtype) not in "iu" or i.shape for i in starts):
            raise TypeError("index arguments to dynamic_update_slice must be integer scalars, got "
                            f"{[i.str_short() for i in starts]}")
        return [ShapedArray(x.shape, x.dtype, x.weak_type)]

    def transpose(self, cts, x, update, *starts):
        ct, shape = cts[0], typeof(update).shape
        dx = bind1(self, ct, zeros(ShapedArray(shape, typeof(ct).dtype)), *starts) if is_linear(x) else None
        du = bind1(dynamic_slice_p, ct, *starts, slice_sizes=shape) if is_linear(update) else None
        return [dx, du, *[None] * len(starts)]

    def vmap(self, axis, args, dims):
        from aot.transforms.vmap import to_dim
        (x, update, *starts), (dx, du, *ds) = args, dims
        if all(d is None for d in ds):
            d = dx if dx is not None else du
            zero = np.zeros((), typeof(starts[0]).dtype)[()] if starts else np.int32(0)
            return bind(self, to_dim(axis, x, dx, d), to_dim(axis, update, du, d), *starts[:d], zero, *starts[d:]), [d]
        from aot.ops.indexing import batched_dynamic_update_slice
        return batched_dynamic_update_slice(axis, args, dims)

    def lower(self, e, ins, outs, x, update, *starts):
        starts, types = list(starts), [a.mlir for a in ins]
        if kind(outs[0].dtype) == "k":
            extra = len(outs[0].physical.shape) - outs[0].ndim
            index = ins[2] if len(ins) > 2 else ShapedArray((), np.dtype("int32"))
            starts += [e.splat(0, index)] * extra
            types += [index.mlir] * extra
        return [e.op(f"stablehlo.dynamic_update_slice {', '.join([x, update, *starts])} : "
                     f"({', '.join(types)}) -> {outs[0].mlir}")]


dynamic_update_slice_p = DynamicUpdateSlice()


def _starts(operand, start_indices, allow_negative) -> list:
    """Scalar start indices of one integer dtype; negative ones count from the end, where that is allowed.

    allow_negative: for all dimensions, or one for each."""
    shape = typeof(operand).shape
    if not isinstance(start_indices, (tuple, list)):
        start_indices = [squeeze(slice_in_dim(start_indices, i, i + 1), (0,)) for i in range(len(shape))]
    if len(start_indices) != len(shape):
        raise ValueError(f"Length of slice indices must match number of operand dimensions ({len(start_indices)} vs "
                         f"{len(shape)})")
    if isinstance(allow_negative, (bool, int, np.bool_)):
        allow_negative = [allow_negative] * len(shape)
    if len(allow_negative) != len(shape):
        raise ValueError(f"Length of allow_negative_indices must match number of operand dimensions "
                         f"({len(allow_negative)} vs {len(shape)})")
    out = []
    for i, n, wraps in zip(start_indices, shape, allow_negative):
        if isinstance(i, (int, np.integer)):
            if i < 0 and not wraps:
                raise ValueError(f"Index {i} is out of bounds for dimension {n} if allow_negative_indices=False")
            out.append(np.int32(i + n if i < 0 else i))
            continue
        if not wraps or kind(typeof(i).dtype) == "u":
            out.append(i)
            continue
        from aot.ops.elementwise import add, lit, lt, select
        out.append(select(lt(i, lit(i, 0)), add(i, lit(i, n)), i))
    common = {typeof(i).dtype for i in out}
    if len(common) > 1:
        wide = dtypes.result_type(*[np.dtype(d) for d in common])
        out = [convert(i, wide) for i in out]
    return out


def dynamic_slice(operand, start_indices, slice_sizes, *, allow_negative_indices=True):
    """The window of slice_sizes that begins at start_indices (computed; clamped into bounds)."""
    return bind1(dynamic_slice_p, operand, *_starts(operand, start_indices, allow_negative_indices),
                 slice_sizes=canonical_shape(slice_sizes))


def dynamic_update_slice(operand, update, start_indices, *, allow_negative_indices=True):
    """operand with the window at start_indices replaced by update."""
    return bind1(dynamic_update_slice_p, operand, update, *_starts(operand, start_indices, allow_negative_indices))


def dynamic_slice_in_dim(operand, start_index, slice_size: int, axis: int = 0, *, allow_negative_indices=True):
    """dynamic_slice along one dimension."""
    shape = typeof(operand).shape
    axis = canonical_axis(axis, len(shape))
    starts: list = [np.int32(0)] * len(shape)
    sizes = list(shape)
    starts[axis], sizes[axis] = start_index, operator.index(slice_size)
    return dynamic_slice(operand, starts, sizes, allow_negative_indices=allow_negative_indices)


def _clamped(index: Any, allow_negative: Any) -> Any:
    """An index that is refused nowhere: as an array, a negative one that does not count from the end is clamped to 0."""
    return np.asarray(index, np.int32) if isinstance(index, (int, np.integer)) and not allow_negative else index


def dynamic_index_in_dim(operand, index, axis: int = 0, keepdims: bool = True, *, allow_negative_indices=True):
    """One computed index along a dimension."""
    out = dynamic_slice_in_dim(operand, _clamped(index, allow_negative_indices), 1, axis,
                               allow_negative_indices=allow_negative_indices)
    return out if keepdims else squeeze(out, (axis,))


def dynamic_update_slice_in_dim(operand, update, start_index, axis: int, *, allow_negative_indices=True):
    """dynamic_update_slice along one dimension."""
    ndim = typeof(operand).ndim
    axis = canonical_axis(axis, ndim)
    starts: list = [np.int32(0)] * ndim
    starts[axis] = start_index
    return dynamic_update_slice(operand, update, starts, allow_negative_indices=allow_negative_indices)


def dynamic_update_index_in_dim(operand, update, index, axis: int, *, allow_negative_indices=True):
    """Replace one computed index along a dimension."""
    ndim = typeof(operand).ndim
    axis = canonical_axis(axis, ndim)
    if typeof(update).ndim != ndim:
        update = expand_dims(update, (axis,))
    return dynamic_update_slice_in_dim(operand, update, _clamped(index, allow_negative_indices), axis,
                                       allow_negative_indices=allow_negative_indices)


