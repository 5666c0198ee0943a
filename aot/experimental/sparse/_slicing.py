"""Parts of BCOO arrays: slice, dynamic_slice, gather."""
from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.experimental.sparse import _storage
from aot.experimental.sparse._bcoo import BCOO, require
from aot.experimental.sparse._shapes import bcoo_squeeze, bcoo_transpose
from aot.experimental.sparse.util import SparseInfo, tuple_of
from aot.ops.families import kind
from aot.ops.indexing import GatherScatterMode
from aot.trace import typeof
from aot.transforms.batching import vmap

Array = Any


def bcoo_slice(mat: BCOO, *, start_indices: Sequence[int], limit_indices: Sequence[int],
               strides: Sequence[int] | None = None) -> BCOO:
    """The elements from start_indices up to limit_indices, every strides[i]-th along dimension i.

    Raises TypeError for a dense array, ValueError for positions that are not in order and in range."""
    require(mat, "bcoo_slice")
    start, limit = tuple(map(operator.index, start_indices)), tuple(map(operator.index, limit_indices))
    step = (1,) * mat.ndim if strides is None else tuple(map(operator.index, strides))
    if not len(start) == len(limit) == len(step) == mat.ndim:
        raise ValueError(f"bcoo_slice: indices must have the size of the shape {mat.shape}. Got {start_indices=}, "
                         f"{limit_indices=}, {strides=}")
    if any(s < 1 for s in step):
        raise ValueError(f"strides must be a sequence of positive integers; got {strides}")
    if any(not 0 <= a <= b <= n for a, b, n in zip(start, limit, mat.shape)):
        raise ValueError(f"bcoo_slice: invalid indices. Got start_indices={start}, limit_indices={limit} and shape={mat.shape}")
    shape = [-(-(b - a) // s) for a, b, s in zip(start, limit, step)]
    data, indices = (_slice_blocks(x, mat, start, limit, step) for x in (mat.data, mat.indices))
    first, last, by = (mat.layout.groups(x)[1] for x in (start, limit, step))
    if (first, last) == ((0,) * mat.n_sparse, mat.layout.groups(mat.shape)[1]) and set(by) <= {1}:
        return BCOO((data, indices), shape=shape)
    dtype = indices.dtype
    a, b, s = (np.array(x, dtype) for x in (first, last, by))
    keep = jnp.all((indices >= a) & (indices < b) & ((indices - a) % s == 0), axis=-1)
    return _kept(mat, data, (indices - a) // s, keep, shape)


def _slice_blocks(x: Array, mat: BCOO, start: Sequence, limit: Sequence, step: Sequence) -> Array:
    """The batch and dense parts of a slice; a batch dimension of size 1 that stands for many is left."""
    n, behind = mat.n_batch, x.ndim - mat.n_batch
    is_data = x is mat.data
    first, last, by = [0] * x.ndim, list(x.shape), [1] * x.ndim
    for d in range(n):
        if x.shape[d] == mat.shape[d]:
            first[d], last[d], by[d] = start[d], limit[d], step[d]
        elif limit[d] == start[d]:
            last[d] = 0
    if is_data and behind > 1:
        for axis, d in enumerate(range(n + mat.n_sparse, mat.ndim), n + 1):
            first[axis], last[axis], by[axis] = start[d], limit[d], step[d]
    return lax.slice(x, first, last, by)


def _kept(mat: BCOO, data: Array, indices: Array, keep: Array, shape: Sequence[int]) -> BCOO:
    """The elements that are kept, at their new places; no more than fit into the sparse dimensions."""
    sparse = mat.layout.groups(shape)[1]
    indices = jnp.where(keep[..., None], indices, _storage.limits(sparse, indices.dtype))
    keep = keep.reshape(*keep.shape, *[1] * mat.n_dense)
    data = jnp.where(keep, data, jnp.zeros((), data.dtype))
    room = math.prod(sparse)
    if mat.nse > room:
        data, indices = _storage.sum_duplicates_p(data, indices, spinfo=SparseInfo(tuple(shape)), nse=room)
    return BCOO((data, indices), shape=shape)


def bcoo_dynamic_slice(mat: BCOO, start_indices: Sequence[Any], slice_sizes: Sequence[int]) -> BCOO:
    """A part of these sizes that starts at start_indices, integer scalars that may be traced; clamped to fit.

    Raises ValueError or TypeError where lax.dynamic_slice does."""
    require(mat, "bcoo_dynamic_slice")
    sizes = tuple_of(slice_sizes)
    start = _scalars(mat, start_indices)
    if len(sizes) != mat.ndim or any(not 0 <= m <= n for m, n in zip(sizes, mat.shape)):
        raise TypeError("slice slice_sizes must be less than or equal to operand shape, got slice_sizes "
                        f"{sizes} for operand shape {mat.shape}.")
    n, s = mat.n_batch, mat.n_sparse
    first = [jnp.clip(jnp.where(i < 0, i + np.array(size, i.dtype), i), 0, size - m)
             for i, size, m in zip(start, mat.shape, sizes)]
    data = _dynamic_blocks(mat.data, mat, first, sizes)
    indices = _dynamic_blocks(mat.indices, mat, first, sizes)
    if not s:
        return BCOO((data, indices), shape=sizes)
    a = jnp.stack([i.astype(indices.dtype) for i in first[n:n + s]])
    b = a + np.array(sizes[n:n + s], indices.dtype)
    keep = jnp.all((indices >= a) & (indices < b), axis=-1)
    return _kept(mat, data, indices - a, keep, sizes)


def _scalars(mat: BCOO, start_indices: Sequence[Any]) -> list[Array]:
    start = [jnp.asarray(i) for i in start_indices]
    if len(start) != mat.ndim:
        raise ValueError(f"Length of slice indices must match number of operand dimensions ({len(start)} vs {mat.shape})")
    if any(kind(i.dtype) not in "iu" for i in start):
        raise TypeError("index arguments to dynamic_slice must be integers of the same type, got: "
                        f"{', '.join(i.dtype.name for i in start)}")
    if any(i.ndim for i in start):
        raise TypeError(f"start_indices arguments to dynamic_slice must be scalars, got indices {tuple(map(typeof, start))}")
    return start


def _dynamic_blocks(x: Array, mat: BCOO, start: Sequence[Array], sizes: Sequence[int]) -> Array:
    n = mat.n_batch
    zero = np.int32(0)
    first, shape = [zero] * x.ndim, list(x.shape)
    for d in range(n):
        if x.shape[d] == mat.shape[d]:
            first[d], shape[d] = start[d], sizes[d]
        elif not sizes[d]:
            shape[d] = 0
    if x is mat.data:
        for axis, d in enumerate(range(n + mat.n_sparse, mat.ndim), n + 1):
            first[axis], shape[axis] = start[d], sizes[d]
    if tuple(shape) == x.shape:
        return x
    common = np.result_type(*[i.dtype for i in first])
    return lax.dynamic_slice(x, [i.astype(common) for i in first], shape)


def bcoo_gather(operand: BCOO, start_indices: Array, dimension_numbers: Any, slice_sizes: Sequence[int], *,
                unique_indices: bool = False, indices_are_sorted: bool = False, mode: Any = None,
                fill_value: Any = None) -> BCOO:
    """`lax.gather` of parts of a sparse array: each start is a `bcoo_dynamic_slice`, clamped to fit.

    Raises NotImplementedError for a mode that does not clamp, and for batching dimensions."""
    require(operand, "bcoo_gather")
    if mode is not None and GatherScatterMode.from_any(mode) not in (GatherScatterMode.PROMISE_IN_BOUNDS,
                                                                     GatherScatterMode.CLIP):
        raise NotImplementedError(f"bcoo_gather: {mode=} not supported. hint: starts out of range are clamped; mask the result")
    numbers = dimension_numbers
    if numbers.operand_batching_dims or numbers.start_indices_batching_dims:
        raise NotImplementedError("bcoo_gather: batching dimensions are not supported. hint: use vmap")
    start_indices = jnp.asarray(start_indices)
    if start_indices.shape[-1] != len(numbers.start_index_map):
        raise ValueError(f"bcoo_gather: the last dimension of start_indices has size {start_indices.shape[-1]}, but "
                         f"start_index_map has {len(numbers.start_index_map)} dimensions")
    sizes = tuple_of(slice_sizes)

    def one(start):
        at = dict(zip(numbers.start_index_map, range(start.shape[0])))
        zero = np.array(0, start.dtype)
        part = bcoo_dynamic_slice(operand, [start[at[d]] if d in at else zero for d in range(operand.ndim)], sizes)
        return bcoo_squeeze(part, dimensions=numbers.collapsed_slice_dims)
    return _placed(one, start_indices, numbers)


def _placed(one: Any, start_indices: Array, numbers: Any) -> BCOO:
    """one(start) for each start; the dimensions of the starts in front, or where offset_dims leave room for them."""
    batch = start_indices.shape[:-1]
    if not batch:
        return one(start_indices)
    flat = start_indices.reshape(-1, start_indices.shape[-1])
    parts = vmap(one)(flat)
    shape = (*batch, *parts.shape[1:])
    out = BCOO((parts.data.reshape(*batch, *parts.data.shape[1:]), parts.indices.reshape(*batch, *parts.indices.shape[1:])),
               shape=shape)
    order: list[int] = []
    front, behind = iter(range(len(batch))), iter(range(len(batch), out.ndim))
    for d in range(out.ndim):
        order.append(next(behind) if d in numbers.offset_dims else next(front))
    if order == list(range(out.ndim)):
        return out
    last_batch = max(i for i, d in enumerate(order) if d < out.n_batch)
    if last_batch >= out.n_batch:
        out = out.update_layout(n_batch=0)
    return bcoo_transpose(out, permutation=order)


