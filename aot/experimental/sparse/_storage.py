"""The arrays of BCOO: data [*batch, nse, *dense] and indices [*batch, nse, n_sparse], and the primitives that work on them.

A batch dimension of size 1 in one of them stands for any size. An index out of range marks an element that is not there."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import aot.numpy as jnp
from aot import dtypes, lax
from aot.experimental.sparse._primitive import primitive
from aot.experimental.sparse.util import SparseInfo, common_size, over_batch

Array = Any


class Layout(NamedTuple):
    """How many dimensions are of each kind, and the number of stored elements."""

    n_batch: int
    n_sparse: int
    n_dense: int
    nse: int

    def groups(self, xs: Sequence) -> tuple[tuple, tuple, tuple]:
        """Something for each dimension, split into what is for batch, sparse and dense ones."""
        sparse, dense = self.n_batch, self.n_batch + self.n_sparse
        return tuple(xs[:sparse]), tuple(xs[sparse:dense]), tuple(xs[dense:])


def layout_of(data: Array, indices: Array, shape: Sequence[int]) -> Layout:
    """The layout of arrays for this shape.  Raises ValueError where they do not fit one another."""
    indices_shape = tuple(indices.shape)
    if len(indices_shape) < 2:
        raise ValueError(f"BCOO indices must have the shape [*batch, nse, n_sparse], got {indices_shape}")
    if not dtypes.issubdtype(indices.dtype, np.integer):
        raise ValueError(f"BCOO indices must be integers, got dtype {indices.dtype}")
    *batch, nse, n_sparse = indices_shape
    _check_sizes(indices.dtype, shape[len(batch):len(batch) + n_sparse])
    n_batch = len(batch)
    n_dense = len(shape) - n_batch - n_sparse
    if n_dense < 0:
        raise ValueError(f"BCOO indices of shape {indices_shape} have {n_batch} batch and {n_sparse} sparse dimensions, more "
                         f"than shape {tuple(shape)} has")
    layout = Layout(n_batch, n_sparse, n_dense, nse)
    _check(tuple(data.shape), batch, layout, shape)
    return layout


def _check_sizes(dtype: Any, sparse: Sequence[int]) -> None:
    if max(sparse, default=0) > np.iinfo(dtype).max:
        raise ValueError(f"indices of dtype {dtype} cannot hold all positions, and those of padding, in sparse dimensions of "
                         f"sizes {tuple(sparse)}. hint: index_dtype='int32'")


def _check(data: tuple, batch: Sequence[int], layout: Layout, shape: Sequence[int]) -> None:
    n, dense = layout.n_batch, layout.groups(shape)[2]
    if data[n:] != (layout.nse, *dense):
        raise ValueError(f"Invalid data.shape={data} for nse={layout.nse}, n_batch={n}, n_dense={layout.n_dense}")
    for what, sizes in (("data", data[:n]), ("indices", batch)):
        if len(sizes) != n or any(got not in (1, size) for got, size in zip(sizes, shape)):
            raise ValueError(f"{what} batch dimensions not compatible for {what}.shape={data if what == 'data' else batch}, "
                             f"shape={tuple(shape)}")


def columns(indices: Array) -> tuple:
    """One array of positions for each sparse dimension."""
    return tuple(lax.index_in_dim(indices, i, indices.ndim - 1, keepdims=False) for i in range(indices.shape[-1]))


def chosen(indices: Array, dims: Sequence[int]) -> Array:
    """Indices of some of the sparse dimensions, in this order."""
    last = indices.ndim - 1
    if list(dims) == list(range(indices.shape[last])):
        return indices
    parts = [lax.slice_in_dim(indices, d, d + 1, axis=last) for d in dims]
    return lax.concatenate(parts, last) if parts else lax.slice_in_dim(indices, 0, 0, axis=last)


def limits(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """The first index out of range in each dimension: what padding has."""
    return np.array(shape, dtype)


def out_of_range(indices: Array, sparse: Sequence[int]) -> Array:
    """Which elements are not there: bool[*batch, nse]."""
    return jnp.any(indices >= limits(sparse, indices.dtype), axis=-1)


def put(out: Array, indices: Array, values: Array) -> Array:
    """Add values at indices; those out of range are dropped."""
    if values.dtype == np.bool_:
        raise TypeError("sparse arrays of bool have no sums of elements at one position. hint: astype(int)")
    if not indices.shape[-1]:
        return lax.add(out, lax.reduce_sum(values, (0,)))
    return out.at[columns(indices)].add(values, mode="drop")


def take(mat: Array, indices: Array) -> Array:
    """The values at indices, 0 for those out of range: [nse, n_sparse] -> [nse, *the other dimensions]."""
    if not indices.shape[-1]:
        return jnp.broadcast_to(mat, (indices.shape[0], *mat.shape))
    return mat.at[columns(indices)].get(mode="fill", fill_value=0)


# ---- dense <-> sparse ------------------------------------------------------------------------------------------------

@primitive("bcoo_todense")
def todense_p(data: Array, indices: Array, *, spinfo: SparseInfo) -> Array:
    layout = layout_of(data, indices, spinfo.shape)
    batch, sparse, dense = layout.groups(spinfo.shape)
    out = over_batch(lambda d, i: put(jnp.zeros(sparse + dense, d.dtype), i, d), layout.n_batch)(data, indices)
    return jnp.broadcast_to(out, (*batch, *sparse, *dense))


@primitive("bcoo_fromdense")
def fromdense_p(mat: Array, *, nse: int, n_batch: int, n_dense: int, index_dtype: Any) -> tuple:
    n_sparse = mat.ndim - n_batch - n_dense
    sparse = mat.shape[n_batch:n_batch + n_sparse]

    def positions(x):
        found = jnp.nonzero(stored(x, n_dense), size=nse, fill_value=sparse)
        return jnp.stack([i.astype(index_dtype) for i in found], axis=-1)

    def alone(x):
        rest = jnp.zeros((max(nse - 1, 0), *x.shape), x.dtype)
        return jnp.concatenate([x[None], rest])[:nse]
    if not sparse:
        return over_batch(alone, n_batch)(mat), jnp.zeros((*mat.shape[:n_batch], nse, 0), index_dtype)
    indices = over_batch(positions, n_batch)(mat)
    return over_batch(take, n_batch)(mat, indices), indices


def numbers(mat: Any) -> Array:
    """What is stored of a dense array: of bools, which have no sums, 0 and 1."""
    mat = jnp.asarray(mat)
    return mat.astype(np.int32) if mat.dtype == np.bool_ else mat


def stored(mat: Array, n_dense: int) -> Array:
    """Where anything is not zero, over the last dimensions together."""
    return jnp.any(mat != 0, axis=tuple(range(mat.ndim - n_dense, mat.ndim)))


@primitive("bcoo_extract")
def extract_p(indices: Array, mat: Array, *, assume_unique: bool) -> Array:
    n_batch = indices.ndim - 2
    data = over_batch(lambda i, m: take(m, i), n_batch)(indices, mat)
    if assume_unique:
        return data
    first = over_batch(_is_first, n_batch)(indices)
    first = jnp.broadcast_to(first, data.shape[:n_batch + 1])
    return jnp.where(first.reshape(*first.shape, *[1] * (data.ndim - n_batch - 1)), data, jnp.zeros((), data.dtype))


def _is_first(indices: Array) -> Array:
    """Which elements are the first ones at their position."""
    nse = indices.shape[0]
    order, which = sorted_groups(indices)
    starts = jnp.concatenate([jnp.ones((min(nse, 1),), bool), which[1:] != which[:-1]])
    return jnp.zeros((nse,), bool).at[order].set(starts)


# ---- order -----------------------------------------------------------------------------------------------------------

def sorted_groups(indices: Array) -> tuple[Array, Array]:
    """-> (the stable order of rows, the number of distinct rows before each in that order)."""
    nse, n = indices.shape
    rows = jnp.arange(nse, dtype=np.int32)
    if not n:
        return rows, jnp.zeros((nse,), np.int32)
    *keys, order = lax.sort((*columns(indices), rows), num_keys=n)
    changed = jnp.any(jnp.stack([k[1:] != k[:-1] for k in keys]), axis=0)
    return order, jnp.concatenate([jnp.zeros((min(nse, 1),), np.int32), jnp.cumsum(changed, dtype=np.int32)])


@primitive("bcoo_sort_indices")
def sort_indices_p(data: Array, indices: Array, *, spinfo: SparseInfo) -> tuple:
    n = layout_of(data, indices, spinfo.shape).n_batch
    if not indices.shape[-1]:
        return data, indices
    sorted_, order = over_batch(_sorted, n)(indices)
    data = over_batch(lambda d, o: d[o], n)(data, order)
    return data, sorted_


def _sorted(indices: Array) -> tuple:
    *keys, order = lax.sort((*columns(indices), jnp.arange(indices.shape[0], dtype=np.int32)), num_keys=indices.shape[1])
    return jnp.stack(keys, axis=-1), order


@primitive("bcoo_sum_duplicates")
def sum_duplicates_p(data: Array, indices: Array, *, spinfo: SparseInfo, nse: int) -> tuple:
    layout = layout_of(data, indices, spinfo.shape)
    sparse = layout.groups(spinfo.shape)[1]

    def groups(i):
        i = jnp.where(jnp.any(i >= limits(sparse, i.dtype), axis=-1, keepdims=True), limits(sparse, i.dtype), i)
        order, which = sorted_groups(i)
        padding = jnp.broadcast_to(jnp.asarray(limits(sparse, i.dtype)), (nse, len(sparse)))
        place = jnp.zeros((i.shape[0],), np.int32).at[order].set(which)
        return padding.at[which].set(i[order], mode="drop"), place

    def summed(d, place):
        return jnp.zeros((nse, *d.shape[1:]), d.dtype).at[place].add(d, mode="drop")
    out, place = over_batch(groups, layout.n_batch)(indices)
    return over_batch(summed, layout.n_batch)(data, place), out


def count_distinct(indices: Array, sparse: Sequence[int]) -> Array:
    """The largest number, over batches, of distinct positions in range."""
    def one(i):
        outside = jnp.any(i >= limits(sparse, i.dtype), axis=-1, keepdims=True)
        order, which = sorted_groups(jnp.where(outside, limits(sparse, i.dtype), i))
        return jnp.where(jnp.any(outside), which[-1], which[-1] + 1)
    if not math.prod(indices.shape[:-1]):
        return np.int32(0)
    if not indices.shape[-1]:
        return np.int32(1)
    return jnp.max(over_batch(one, indices.ndim - 2)(indices))


@primitive("bcoo_transpose")
def transpose_p(data: Array, indices: Array, *, permutation: tuple[int, ...], spinfo: SparseInfo) -> tuple:
    layout = layout_of(data, indices, spinfo.shape)
    n, s = layout.n_batch, layout.n_sparse
    batch, sparse, dense = layout.groups(permutation)
    data = lax.transpose(data, (*batch, n, *(d - s + 1 for d in dense)))
    indices = lax.transpose(indices, (*batch, n, n + 1))
    return data, chosen(indices, [d - n for d in sparse])


def batch_shape(data: Array, indices: Array, n_batch: int) -> tuple[int, ...]:
    """The batch sizes that the arrays have together, which may be 1 where the shape has more."""
    return tuple(common_size(sizes) for sizes in zip(data.shape[:n_batch], indices.shape[:n_batch]))
