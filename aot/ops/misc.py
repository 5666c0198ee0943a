"""stop_gradient, optimization_barrier, fft, and small functions over other primitives."""
from __future__ import annotations

import enum
import functools
import operator
from math import prod
from typing import Any, Iterator, Sequence

import numpy as np

from aot import dtypes
from aot.ops import elementwise as ew
from aot.ops.families import LinearOp, Primitive, check_dtype, kind
from aot.ops.shape import (
    broadcast_in_dim,
    broadcast_to,
    canonical_axis,
    canonical_shape,
    concatenate,
    expand_dims,
    full,
    moveaxis,
    pad,
    placed,
    reshape,
    squeeze,
    zeros,
)
from aot.ops.slicing import dynamic_slice_in_dim, slice_in_dim
from aot.trace import ShapedArray, Zero, base_trace, bind, bind1, state, tangent_aval, typeof
from aot.tree_util import tree_flatten, tree_map


class OptimizationBarrier(Primitive):
    """All operands are computed before any result is used; the compiler does not move work across."""
    name = "optimization_barrier"

    def infer(self, *xs): return list(xs)

    def jvp(self, primals, tangents):
        outs = bind(self, *primals)
        nz = [t for t in tangents if type(t) is not Zero]
        dots = iter(bind(self, *nz) if nz else [])
        return outs, [t if type(t) is Zero else next(dots) for t in tangents]

    def transpose(self, cts, *xs):
        nz = [c for c in cts if type(c) is not Zero]
        outs = iter(bind(self, *nz) if nz else [])
        return [c if type(c) is Zero else next(outs) for c in cts]

    def vmap(self, axis, args, dims): return bind(self, *args), list(dims)

    def lower(self, e, ins, outs, *xs):
        return e.ops(f"stablehlo.optimization_barrier {', '.join(xs)} : {', '.join(a.mlir for a in ins)}", len(xs))


optimization_barrier_p = OptimizationBarrier()


def optimization_barrier(operand: Any):
    """operand (a tree), with a barrier that the compiler does not optimise across."""
    leaves, tree = tree_flatten(operand)
    return tree.unflatten(bind(optimization_barrier_p, *leaves)) if leaves else operand


class StopGradient(Primitive):
    """Identity whose tangent is zero.  Never recorded unless something is differentiated."""
    name = "stop_gradient"

    def infer(self, x): return [x]

    def jvp(self, primals, tangents):
        """The result stays under the primitive: an outer derivative is zero as well."""
        return bind(self, *primals), [Zero(tangent_aval(typeof(primals[0])))]

    def vmap(self, axis, args, dims): return bind(self, *args), list(dims)
    def lower(self, e, ins, outs, x): return [x]
    def evaluate(self, args, params): return list(args)


stop_gradient_p = StopGradient()


def stop_gradient(x: Any):
    """x, for which every derivative is zero (every leaf of a tree)."""
    def one(leaf):
        if kind(typeof(leaf).dtype) not in "fc":
            return leaf
        return bind1(stop_gradient_p, leaf)
    return tree_map(one, x)


class DevicePut(StopGradient):
    """A value on another device; the identity in a program for one device."""
    multiple_results = True
    name = "device_put"

    def jvp(self, primals, tangents):
        t = tangents[0]
        return bind(self, *primals), [t if type(t) is Zero else bind1(self, t)]

    def transpose(self, cts, x): return [bind1(self, cts[0])]


device_put_p = DevicePut()


# ---- fft ---------------------------------------------------------------------------------------------------------

class FftType(enum.IntEnum):
    """The kinds of transform."""
    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


class Fft(LinearOp):
    name = "fft"

    def infer(self, x, *, fft_type, fft_lengths):
        n = len(fft_lengths)
        if not 1 <= n <= 3:
            raise ValueError("FFT only supports ranks 1, 2, and 3")
        if x.ndim < n:
            raise ValueError(f"FFT requires input with at least {n} dimensions, got shape {x.shape}")
        if fft_type is FftType.RFFT:
            check_dtype("rfft", "f", x)
            if x.shape[-n:] != fft_lengths:
                raise ValueError(f"RFFT requires the last {n} dimensions of {x.shape} to be fft_lengths={fft_lengths}.")
            shape = (*x.shape[:-1], fft_lengths[-1] // 2 + 1 if fft_lengths[-1] else 0)
            return [ShapedArray(shape, np.dtype("complex128" if x.dtype == np.float64 else "complex64"))]
        check_dtype("fft", "c", x)
        if fft_type is FftType.IRFFT:
            want = (*fft_lengths[:-1], fft_lengths[-1] // 2 + 1 if fft_lengths[-1] else 0)
            if x.shape[-n:] != want:
                raise ValueError(f"IRFFT requires the last {n} dimensions of {x.shape} to be {want}.")
            return [ShapedArray((*x.shape[:-1], fft_lengths[-1]), ew.real_dtype(x.dtype))]
        if x.shape[-n:] != fft_lengths:
            raise ValueError(f"FFT requires the last {n} dimensions of {x.shape} to be fft_lengths={fft_lengths}.")
        return [x]

    def transpose(self, cts, x, *, fft_type, fft_lengths):
        ct = cts[0]
        if fft_type in (FftType.FFT, FftType.IFFT):
            return [bind1(self, ct, fft_type=fft_type, fft_lengths=fft_lengths)]
        return [_rfft_transpose(ct, x.aval, fft_lengths) if fft_type is FftType.RFFT
                else _irfft_transpose(ct, fft_lengths)]

    def vmap(self, axis, args, dims, **params):
        return bind(self, moveaxis(args[0], dims[0], 0), **params), [0]

    def lower(self, e, ins, outs, x, *, fft_type, fft_lengths):
        if outs[0].size == 0:
            return [e.splat(0, outs[0])]
        lengths = ", ".join(map(str, fft_lengths))
        return [e.op(f"stablehlo.fft {x}, type = {fft_type.name}, length = [{lengths}] : ({ins[0].mlir}) -> "
                     f"{outs[0].mlir}")]


fft_p = Fft()


def _rfft_transpose(ct, x: ShapedArray, lengths):
    """rfft is a full fft cut to half its last axis: put zeros back, transform, take the real part."""
    n, a = lengths[-1], typeof(ct)
    config = [(0, 0, 0)] * (a.ndim - 1) + [(0, n - a.shape[-1], 0)]
    wide = pad(ct, zeros(ShapedArray((), a.dtype)), config)
    return ew.real(bind1(fft_p, wide, fft_type=FftType.FFT, fft_lengths=lengths))


def _irfft_transpose(ct, lengths):
    """The adjoint of reading both halves from one: inner frequencies count twice."""
    n = lengths[-1]
    out = bind1(fft_p, ct, fft_type=FftType.RFFT, fft_lengths=lengths)
    half = n // 2 + 1
    weight = np.full(half, 2.0)
    weight[0] = 1
    if n % 2 == 0:
        weight[-1] = 1
    a = typeof(out)
    scale = broadcast_in_dim((weight / prod(lengths)).astype(ew.real_dtype(a.dtype)), a.shape, (a.ndim - 1,))
    return ew.conj(ew.mul(out, ew.convert(scale, a.dtype)))


def fft(x, fft_type: Any, fft_lengths: Sequence[int]):
    """Discrete Fourier transform over the last len(fft_lengths) axes; fft_type: an FftType or its name."""
    kinds = {k.name: k for k in FftType}
    if isinstance(fft_type, str):
        if fft_type.upper() not in kinds:
            raise ValueError(f"unknown fft_type {fft_type!r}; hint: one of {sorted(kinds)}")
        fft_type = kinds[fft_type.upper()]
    fft_type, lengths, a = FftType(fft_type), canonical_shape(fft_lengths), typeof(x)
    if fft_type is FftType.RFFT:
        if kind(a.dtype) == "c":
            raise ValueError("only real valued inputs supported for rfft")
        x = x if kind(a.dtype) == "f" and a.dtype.itemsize >= 4 else ew.convert(x, np.dtype("float32"))
    elif kind(a.dtype) != "c":
        x = ew.convert(x, np.dtype("complex128" if a.dtype == np.float64 else "complex64"))
    return bind1(fft_p, x, fft_type=fft_type, fft_lengths=lengths)


# ---- small functions ---------------------------------------------------------------------------------------------

def reciprocal(x):
    """1 / x."""
    return ew.integer_pow(x, -1)


def collapse(operand, start_dimension: int, stop_dimension: int | None = None):
    """Join the dimensions from start to stop into one."""
    s = typeof(operand).shape
    lo, hi, _ = slice_indices(start_dimension, stop_dimension, len(s))
    if hi < lo:
        raise ValueError(f"Invalid dimension range passed to collapse: {s}[{start_dimension}:{stop_dimension}]")
    return reshape(operand, (*s[:lo], prod(s[lo:hi]), *s[hi:]))


def slice_indices(start, stop, n): return slice(start, stop).indices(n)


def broadcast_shapes(*shapes):
    """The shape to which numpy broadcasting brings these."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ValueError(f"Incompatible shapes for broadcasting: shapes={list(shapes)}") from None


def broadcast_to_rank(x, rank: int):
    """New dimensions of size 1 in front, up to this rank."""
    return expand_dims(x, tuple(range(rank - typeof(x).ndim)))


def broadcast_like(arr, like_arr): return broadcast_to(arr, typeof(like_arr).shape)


dtype = dtypes.dtype


def empty(shape, dtype=None, *, out_sharding=None):
    """An array whose contents do not matter (zeros here)."""
    return placed(full(shape, 0, dtype if dtype is not None else np.float32), out_sharding)


def tile(operand, reps: Sequence[int]):
    """operand repeated reps[i] times along dimension i."""
    s = typeof(operand).shape
    if len(reps) != len(s):
        raise ValueError(f"tile: reps must have one entry for each of {len(s)} dimensions, got {reps}")
    wide = [n for r, m in zip(reps, s) for n in (r, m)]
    out = broadcast_in_dim(operand, wide, range(1, 2 * len(s), 2))
    return reshape(out, tuple(r * m for r, m in zip(reps, s)))


def stack(operands: Sequence, axis: int = 0):
    """Join arrays of one shape along a new axis."""
    xs = list(operands)
    if not xs:
        raise ValueError("stack needs at least one array")
    if len({typeof(x).shape for x in xs}) > 1:
        raise ValueError(f"All input arrays to stack must have the same shape, got {[typeof(x).shape for x in xs]}")
    axis = canonical_axis(axis, typeof(xs[0]).ndim + 1)
    return concatenate([expand_dims(x, (axis,)) for x in xs], axis)


def unstack(x, axis: int = 0):
    """The slices of x along an axis."""
    return tuple(rows(x, canonical_axis(axis, typeof(x).ndim)))


#: as many slices are one program: with all of them in one, an array of thousands of rows takes minutes to compile
ROWS = 32


def rows(x, axis: int = 0) -> Iterator:
    """The slices of x along an axis, one after the other."""
    n = typeof(x).shape[axis]
    if state.trace is not base_trace:
        yield from _rows(x, axis, n)
        return
    for i in range(0, n, ROWS):
        yield from _some_rows()(x, i, axis=axis, count=min(ROWS, n - i))


@functools.cache
def _some_rows():
    from aot.dispatch import jit
    return jit(lambda x, start, *, axis, count: _rows(dynamic_slice_in_dim(x, start, count, axis), axis, count),
               static_argnames=("axis", "count"))


def _rows(x, axis: int, count: int) -> list:
    return [squeeze(slice_in_dim(x, i, i + 1, axis=axis), (axis,)) for i in range(count)]


def shape_as_value(shape):
    """A shape as an int32 vector."""
    return np.asarray([operator.index(n) for n in shape], dtypes.canonicalize_dtype(np.dtype("int64")))


