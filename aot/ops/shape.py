"""Primitives that move data without computing: reshape, broadcast, transpose, pad, concatenate, iota, ...

Parts of arrays are in slicing.py."""
from __future__ import annotations

import functools
import operator
from math import prod
from typing import Any, Sequence

import numpy as np

from aot import dtypes
from aot.ops.elementwise import as_array, convert
from aot.ops.families import LinearOp, NonDifferentiable, check_dtype, kind, typed_scalar
from aot.trace import ShapedArray, bind, bind1, is_linear, typeof


def canonical_shape(shape: Any, what: str = "shape") -> tuple[int, ...]:
    """A tuple of ints, or a TypeError that names the offending entry."""
    if isinstance(shape, (int, np.integer)):
        shape = (shape,)
    try:
        sizes = tuple([operator.index(n) for n in shape])
    except TypeError as err:
        from aot.trace import is_tracer
        if any(is_tracer(n) for n in shape):
            raise TypeError(f"Shapes must be 1D sequences of concrete values of integer type, got {shape}.\n"
                            "hint: sizes must be known while tracing; mark the argument static "
                            "(static_argnums) or take it from x.shape") from err
        raise TypeError(f"Shapes must be 1D sequences of concrete values of integer type, got {shape}.") from err
    if any(n < 0 for n in sizes):
        raise TypeError(f"{what} must have every element be nonnegative, got {sizes}.")
    return sizes


def canonical_axis(axis: int, ndim: int) -> int:
    axis = operator.index(axis)
    if not -ndim <= axis < ndim:
        raise ValueError(f"axis {axis} is out of bounds for array of dimension {ndim}")
    return axis + ndim if axis < 0 else axis


# ---- constants ---------------------------------------------------------------------------------------------------

def full(shape: Sequence[int], fill_value, dtype=None, *, sharding=None):
    """An array of `shape` filled with the scalar fill_value."""
    shape = canonical_shape(shape)
    if np.shape(fill_value):
        raise TypeError(f"lax.full must be called with scalar fill_value; got fill_value.shape {np.shape(fill_value)}.")
    a = typeof(fill_value)
    weak = dtype is None and a.weak_type
    if dtypes.is_extended(a.dtype if dtype is None else dtype):
        return _full_of_keys(shape, fill_value, a.dtype if dtype is None else dtype)
    d = a.dtype if dtype is None else dtypes.canonicalize_dtype(dtypes.dtype(dtype))
    value = convert(fill_value, d, weak)
    return placed(broadcast_to(value, shape) if shape else as_array(value), sharding)


def _full_of_keys(shape, fill_value, dtype):
    """Copies of one key, or keys with every word equal to a number."""
    from aot.ops.random import random_wrap
    if typeof(fill_value).dtype == dtype:
        return broadcast_to(fill_value, shape)
    words = ShapedArray(shape, dtype).physical
    return random_wrap(full(words.shape, fill_value, words.dtype), impl=dtype.impl)


def zeros(aval: ShapedArray):
    """Zeros of this type (float0 avals give a numpy array of float0)."""
    if aval.dtype == dtypes.float0:
        return np.zeros(aval.shape, dtypes.float0)
    if not isinstance(aval.dtype, np.dtype):
        raise TypeError(f"no zero of key type {aval}")
    value = typed_scalar(0, aval.dtype)
    if aval.weak_type:
        value = convert(value, aval.dtype, True)
    return broadcast_to(value, aval.shape) if aval.shape else value


def full_like(x, fill_value, dtype=None, shape=None, sharding=None):
    """An array like x (shape, dtype, weak_type) filled with fill_value; laid out over several devices as x is."""
    a = typeof(x)
    shape = a.shape if shape is None else canonical_shape(shape)
    weak = dtype is None and a.weak_type
    d = a.dtype if dtype is None else dtypes.dtype(dtype)
    if kind(d) == "k":
        return _full_of_keys(shape, fill_value, d)
    value = convert(fill_value, d, weak)
    if sharding is None and shape == a.shape and (over := _devices_of(x)) is not None:
        return _filler(shape, over)(value)
    return placed(broadcast_to(value, shape) if shape else as_array(value), sharding)


def _devices_of(x) -> Any:
    """The sharding of a concrete array over several devices, outside of any trace."""
    from aot import xla
    from aot.trace.core import base_trace, state
    if not xla.may_be_placed() or state.trace is not base_trace or not hasattr(x, "buf"):
        return None
    return x.sharding if x.sharding.num_devices > 1 else None


@functools.lru_cache(256)
def _filler(shape: tuple[int, ...], sharding: Any) -> Any:
    """number -> an array of it whose parts are made where they are wanted."""
    from aot.dispatch import jit
    return jit(lambda value: broadcast_to(value, shape), out_shardings=sharding)


class Iota(NonDifferentiable):
    name = "iota"

    def infer(self, *, dtype, shape, dimension, sharding=None): return [ShapedArray(shape, dtype)]
    def vmap(self, axis, args, dims, **params): return bind(self, **params), [None]

    def lower(self, e, ins, outs, *, dtype, shape, dimension, sharding=None):
        if kind(dtype) == "b":
            wide = ShapedArray(shape, np.dtype("int32"))
            return [e.convert(e.op(f"stablehlo.iota dim = {dimension} : {wide.mlir}"), wide, outs[0])]
        return [e.op(f"stablehlo.iota dim = {dimension} : {outs[0].mlir}")]


iota_p = Iota()


def iota(dtype, size: int):
    """[0, 1, ..., size - 1]."""
    return broadcasted_iota(dtype, (size,), 0)


def broadcasted_iota(dtype, shape, dimension: int, *, out_sharding=None):
    """Counts up along `dimension`, constant along the others."""
    dtype = dtypes.canonicalize_dtype(dtypes.dtype(dtype))
    shape = canonical_shape(shape)
    check_dtype("iota", "fciu", ShapedArray((), dtype))
    dimension = canonical_axis(dimension, len(shape))
    return placed(bind1(iota_p, dtype=dtype, shape=shape, dimension=dimension, sharding=None), out_sharding)


# ---- broadcast, reshape, transpose -------------------------------------------------------------------------------

class BroadcastInDim(LinearOp):
    """Dimension i of the operand becomes dimension broadcast_dimensions[i] of the result; sizes 1 are repeated."""
    name = "broadcast_in_dim"

    def infer(self, x, *, shape, broadcast_dimensions, sharding=None):
        if len(broadcast_dimensions) != x.ndim:
            raise TypeError("broadcast_in_dim broadcast_dimensions must have length equal to operand ndim; got "
                            f"broadcast_dimensions={broadcast_dimensions}, operand ndim {x.ndim}.")
        previous = -1
        for n, d in zip(x.shape, broadcast_dimensions):
            if not previous < d < len(shape):
                raise TypeError("broadcast_in_dim broadcast_dimensions must be strictly increasing and within the rank "
                                f"of the result; got {broadcast_dimensions} for shape {shape}.")
            if n != shape[d] and n != 1:
                raise TypeError("broadcast_in_dim operand dimension sizes must either be 1, or be equal to their "
                                "corresponding dimensions in the target broadcast shape; got operand of shape "
                                f"{x.shape}, target broadcast shape {shape}, broadcast_dimensions "
                                f"{broadcast_dimensions}.")
            previous = d
        return [ShapedArray(shape, x.dtype, x.weak_type)]

    def transpose(self, cts, x, *, shape, broadcast_dimensions, sharding=None):
        from aot.ops.reductions import reduce_sum
        ct, a = cts[0], x.aval
        kept = [d for n, d in zip(a.shape, broadcast_dimensions) if n == shape[d]]
        ct = reduce_sum(ct, tuple(d for d in range(len(shape)) if d not in kept))
        return [ct if typeof(ct).shape == a.shape else reshape(ct, a.shape)]

    def vmap(self, axis, args, dims, *, shape, broadcast_dimensions, sharding=None):
        x = moveaxis(args[0], dims[0], 0)
        return bind(self, x, shape=(axis.size, *shape), sharding=None,
                    broadcast_dimensions=(0, *(d + 1 for d in broadcast_dimensions))), [0]

    def lower(self, e, ins, outs, x, *, shape, broadcast_dimensions, sharding=None):
        if kind(outs[0].dtype) == "k":
            extra = tuple(range(len(shape), len(outs[0].physical.shape)))
            broadcast_dimensions = (*broadcast_dimensions, *extra)
        dims = ", ".join(map(str, broadcast_dimensions))
        return [e.op(f"stablehlo.broadcast_in_dim {x}, dims = [{dims}] : ({ins[0].mlir}) -> {outs[0].mlir}")]


broadcast_in_dim_p = BroadcastInDim()


def broadcast_in_dim(operand, shape, broadcast_dimensions, *, out_sharding=None):
    """operand broadcast to `shape`, its dimension i becoming dimension broadcast_dimensions[i]."""
    shape = canonical_shape(shape)
    dims = tuple(map(int, broadcast_dimensions))
    a = typeof(operand)
    if not (a.shape == shape and dims == tuple(range(len(shape))) and hasattr(operand, "aval")):
        operand = bind1(broadcast_in_dim_p, operand, shape=shape, broadcast_dimensions=dims, sharding=None)
    return placed(operand, out_sharding)


def placed(x: Any, out_sharding: Any) -> Any:
    """A result (or a tree of them) under the sharding that the caller asked for, if any."""
    if out_sharding is None:
        return x
    from aot.parallel import with_sharding_constraint
    return with_sharding_constraint(x, out_sharding)


def broadcast_to(x, shape: tuple[int, ...]):
    """numpy-style: new dimensions in front; returns x itself where nothing changes."""
    s = typeof(x).shape
    if s == shape:
        return x
    return bind1(broadcast_in_dim_p, x, shape=shape, sharding=None,
                 broadcast_dimensions=tuple(range(len(shape) - len(s), len(shape))))


def broadcast_new(x, size: int, dim: int):
    """A new dimension of `size` at `dim`."""
    s = typeof(x).shape
    if typeof(x).dtype == dtypes.float0:
        return np.zeros((*s[:dim], size, *s[dim:]), dtypes.float0)
    return bind1(broadcast_in_dim_p, x, shape=(*s[:dim], size, *s[dim:]), sharding=None,
                 broadcast_dimensions=tuple(i + (i >= dim) for i in range(len(s))))


def broadcast(operand, sizes, *, out_sharding=None):
    """New dimensions of the given sizes in front."""
    s = typeof(operand).shape
    sizes = canonical_shape(sizes)
    return broadcast_in_dim(operand, (*sizes, *s), range(len(sizes), len(sizes) + len(s)), out_sharding=out_sharding)


def expand_dims(array, dimensions):
    """New dimensions of size 1 at these positions of the result."""
    if len(set(dimensions)) != len(dimensions):
        raise ValueError(f"repeated axis in lax.expand_dims: {dimensions}")
    s = typeof(array).shape
    n = len(s) + len(dimensions)
    new = sorted(canonical_axis(d, n) for d in dimensions)
    if len(set(new)) != len(new):
        raise ValueError(f"repeated axis in lax.expand_dims: {dimensions}")
    out = list(s)
    for d in new:
        out.insert(d, 1)
    return broadcast_in_dim(array, tuple(out), [i for i in range(n) if i not in new])


class Reshape(LinearOp):
    name = "reshape"

    def infer(self, x, *, new_sizes, dimensions=None, sharding=None):
        if prod(new_sizes) != x.size:
            raise TypeError(f"reshape total size must be unchanged, got new_sizes {new_sizes} (of total size "
                            f"{prod(new_sizes)}) for shape {x.shape} (of total size {x.size}).")
        return [ShapedArray(new_sizes, x.dtype, x.weak_type)]

    def transpose(self, cts, x, **params): return [reshape(cts[0], x.aval.shape)]

    def vmap(self, axis, args, dims, *, new_sizes, dimensions=None, sharding=None):
        return bind(self, moveaxis(args[0], dims[0], 0), new_sizes=(axis.size, *new_sizes), dimensions=None,
                    sharding=None), [0]

    def lower(self, e, ins, outs, x, **params):
        return [e.op(f"stablehlo.reshape {x} : ({ins[0].mlir}) -> {outs[0].mlir}")]


reshape_p = Reshape()


def reshape(operand, new_sizes, dimensions=None, *, out_sharding=None):
    """The same elements in row-major order under another shape."""
    shape = canonical_shape(new_sizes)
    a = typeof(operand)
    if any(n < 0 for n in shape):
        raise TypeError(f"reshape new_sizes must be non-negative, got {shape}; hint: -1 is understood by "
                        "aot.numpy.reshape only")
    if dimensions is not None and tuple(dimensions) != tuple(range(a.ndim)):
        operand = transpose(operand, dimensions)
    if a.shape != shape or not hasattr(operand, "aval"):
        operand = bind1(reshape_p, operand, new_sizes=shape, dimensions=None, sharding=None)
    return placed(operand, out_sharding)


class Squeeze(LinearOp):
    name = "squeeze"

    def infer(self, x, *, dimensions):
        for d in dimensions:
            if x.shape[d] != 1:
                raise ValueError(f"cannot select an axis to squeeze out which has size not equal to one, got "
                                 f"shape={x.shape} and dimensions={dimensions}")
        return [ShapedArray(tuple(n for i, n in enumerate(x.shape) if i not in dimensions), x.dtype, x.weak_type)]

    def transpose(self, cts, x, *, dimensions): return [reshape(cts[0], x.aval.shape)]

    def vmap(self, axis, args, dims, *, dimensions):
        return bind(self, moveaxis(args[0], dims[0], 0), dimensions=tuple(d + 1 for d in dimensions)), [0]

    def lower(self, e, ins, outs, x, *, dimensions):
        return [e.op(f"stablehlo.reshape {x} : ({ins[0].mlir}) -> {outs[0].mlir}")]


squeeze_p = Squeeze()


def squeeze(array, dimensions):
    """Drop dimensions of size 1."""
    ndim = typeof(array).ndim
    dims = tuple(sorted({canonical_axis(d, ndim) for d in dimensions}))
    return bind1(squeeze_p, array, dimensions=dims) if dims else array


class Transpose(LinearOp):
    name = "transpose"

    def infer(self, x, *, permutation):
        if sorted(permutation) != list(range(x.ndim)):
            raise TypeError(f"transpose permutation isn't a permutation of operand dimensions, got permutation "
                            f"{permutation} for operand shape {x.shape}.")
        return [ShapedArray(tuple([x.shape[i] for i in permutation]), x.dtype, x.weak_type)]

    def transpose(self, cts, x, *, permutation):
        return [transpose(cts[0], np.argsort(permutation))]

    def vmap(self, axis, args, dims, *, permutation):
        d, = dims
        return bind(self, *args, permutation=(d, *[i + (i >= d) for i in permutation])), [0]

    def lower(self, e, ins, outs, x, *, permutation):
        extra = range(len(permutation), len(outs[0].physical.shape)) if kind(outs[0].dtype) == "k" else ()
        dims = ", ".join(map(str, (*permutation, *extra)))
        return [e.op(f"stablehlo.transpose {x}, dims = [{dims}] : ({ins[0].mlir}) -> {outs[0].mlir}")]


transpose_p = Transpose()


def transpose(operand, permutation):
    """Dimension i of the result is dimension permutation[i] of the operand."""
    permutation = tuple(operator.index(i) for i in permutation)
    if permutation == tuple(range(typeof(operand).ndim)) and hasattr(operand, "aval"):
        return operand
    return bind1(transpose_p, operand, permutation=permutation)


def moveaxis(x, src: int, dst: int):
    if src == dst:
        return x
    perm = [i for i in range(typeof(x).ndim) if i != src]
    perm.insert(dst, src)
    return bind1(transpose_p, x, permutation=tuple(perm))


class Rev(LinearOp):
    name = "rev"

    def infer(self, x, *, dimensions):
        if len(set(dimensions)) != len(dimensions):
            raise TypeError(f"rev dimensions must be unique, got {dimensions}.")
        if any(not 0 <= d < x.ndim for d in dimensions):
            raise TypeError(f"rev dimensions must all be less than operand ndim, got dimensions {dimensions} for "
                            f"operand ndim {x.ndim}.")
        return [x]

    def transpose(self, cts, x, *, dimensions): return [rev(cts[0], dimensions)]

    def vmap(self, axis, args, dims, *, dimensions):
        d, = dims
        return bind(self, *args, dimensions=tuple(i + (i >= d) for i in dimensions)), [d]

    def lower(self, e, ins, outs, x, *, dimensions):
        dims = ", ".join(map(str, dimensions))
        return [e.op(f"stablehlo.reverse {x}, dims = [{dims}] : {outs[0].mlir}")]


rev_p = Rev()


def rev(operand, dimensions):
    """Reverse the order along these dimensions."""
    return bind1(rev_p, operand, dimensions=tuple(dimensions))


# ---- concatenate, pad --------------------------------------------------------------------------------------------

class Concatenate(LinearOp):
    name = "concatenate"
    linear_operands = (0, None)

    def infer(self, *xs, dimension):
        first = xs[0]
        if len({x.ndim for x in xs}) != 1:
            raise TypeError(f"Cannot concatenate arrays with different numbers of dimensions: got "
                            f"{', '.join(str(x.shape) for x in xs)}.")
        if not 0 <= dimension < first.ndim:
            raise TypeError(f"concatenate dimension out of bounds: dimension {dimension} for shapes "
                            f"{', '.join(str(x.shape) for x in xs)}.")
        rest = {(*x.shape[:dimension], *x.shape[dimension + 1:]) for x in xs}
        if len(rest) != 1:
            raise TypeError(f"Cannot concatenate arrays with shapes that differ in dimensions other than the one being "
                            f"concatenated: concatenating along dimension {dimension} for shapes "
                            f"{', '.join(str(x.shape) for x in xs)}.")
        if any(x.dtype != first.dtype for x in xs):
            raise TypeError("lax.concatenate requires arguments to have the same dtypes, got "
                            f"{', '.join(x.dtype.name for x in xs)}. hint: aot.numpy.concatenate promotes")
        n = sum(x.shape[dimension] for x in xs)
        shape = (*first.shape[:dimension], n, *first.shape[dimension + 1:])
        return [ShapedArray(shape, first.dtype, all(x.weak_type for x in xs))]

    def transpose(self, cts, *xs, dimension):
        ct, at, out = cts[0], 0, []
        from aot.ops.slicing import slice_in_dim
        for x in xs:
            n = typeof(x).shape[dimension]
            out.append(slice_in_dim(ct, at, at + n, axis=dimension) if is_linear(x) else None)
            at += n
        return out

    def vmap(self, axis, args, dims, *, dimension):
        from aot.transforms.vmap import to_dim
        return bind(self, *[to_dim(axis, x, d, 0) for x, d in zip(args, dims)], dimension=dimension + 1), [0]

    def lower(self, e, ins, outs, *xs, dimension):
        types = ", ".join(a.mlir for a in ins)
        return [e.op(f"stablehlo.concatenate {', '.join(xs)}, dim = {dimension} : ({types}) -> {outs[0].mlir}")]


concatenate_p = Concatenate()


def concatenate(operands, dimension: int):
    """Join arrays of one dtype along a dimension."""
    operands = list(operands)
    if not operands:
        raise ValueError("concatenate requires a non-empty sequences of arrays")
    if len(operands) == 1 and hasattr(operands[0], "aval"):
        return operands[0]
    return bind1(concatenate_p, *operands, dimension=operator.index(dimension))


class Pad(LinearOp):
    """Pad with a scalar: (low, high, interior) per dimension; negative low/high remove."""
    name = "pad"
    linear_operands = (0, None)

    def infer(self, x, value, *, padding_config):
        if x.dtype != value.dtype:
            raise TypeError(f"pad operand and padding_value must have the same dtype: got {x.dtype.name} and "
                            f"{value.dtype.name}.")
        if value.shape:
            raise TypeError(f"padding_value must be a scalar; got array of shape {value.shape}")
        if len(padding_config) != x.ndim:
            raise ValueError(f"length of padding_config must equal the number of axes of operand, got padding_config "
                             f"{padding_config} for operand shape {x.shape}")
        if any(i < 0 for _, _, i in padding_config):
            raise ValueError(f"interior padding in padding_config must be nonnegative, got padding_config "
                             f"{padding_config}")
        shape = tuple(lo + hi + (n + (n - 1) * i if n else 0) for n, (lo, hi, i) in zip(x.shape, padding_config))
        if any(n < 0 for n in shape):
            raise ValueError(f"Dimension size after padding is not at least 0, got result shape {shape}, for "
                             f"padding_config {padding_config} and operand shape {x.shape}")
        return [ShapedArray(shape, x.dtype, x.weak_type and value.weak_type)]

    def transpose(self, cts, x, value, *, padding_config):
        from aot.ops.elementwise import sub
        from aot.ops.reductions import reduce_sum
        from aot.ops.slicing import slice
        ct = cts[0]
        axes = tuple(range(len(padding_config)))
        negative = tuple((-lo, -hi, 0) for lo, hi, _ in padding_config)
        inner = slice(pad(ct, zeros(ShapedArray((), typeof(ct).dtype)), negative), [0] * len(axes),
                      [n - lo - hi for n, (lo, hi, _) in zip(typeof(ct).shape, padding_config)],
                      [i + 1 for _, _, i in padding_config])
        dx = inner if is_linear(x) else None
        dv = sub(reduce_sum(ct, axes), reduce_sum(inner, axes)) if is_linear(value) else None
        return [dx, dv]

    def vmap(self, axis, args, dims, *, padding_config):
        from aot.ops.elementwise import select
        from aot.transforms.vmap import to_dim
        x, value = args
        dx, dv = dims
        if dv is None:
            config = list(padding_config)
            config.insert(dx, (0, 0, 0))
            return bind(self, x, value, padding_config=tuple(config)), [dx]
        x, config = to_dim(axis, x, dx, 0), ((0, 0, 0), *padding_config)
        nothing = zeros(ShapedArray((), typeof(x).dtype))
        out = bind1(self, x, nothing, padding_config=config)
        inside = bind1(self, full_like(x, True, np.dtype(bool)), np.bool_(False), padding_config=config)
        shape = typeof(out).shape
        return [select(inside, out, broadcast_in_dim(value, shape, (0,)))], [0]

    def lower(self, e, ins, outs, x, value, *, padding_config):
        low, high, interior = (", ".join(str(c[i]) for c in padding_config) for i in range(3))
        return [e.op(f"stablehlo.pad {x}, {value}, low = [{low}], high = [{high}], interior = [{interior}] : "
                     f"({ins[0].mlir}, {ins[1].mlir}) -> {outs[0].mlir}")]


pad_p = Pad()


def pad(operand, padding_value, padding_config):
    """Pad each dimension with (low, high, interior) copies of the scalar padding_value."""
    return bind1(pad_p, operand, padding_value,
                 padding_config=tuple((operator.index(a), operator.index(b), operator.index(c))
                                      for a, b, c in padding_config))
