"""BCOO in other shapes: transpose, broadcast_in_dim, concatenate, reshape, rev, squeeze."""
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
from aot.experimental.sparse._layout import all_batches
from aot.experimental.sparse._storage import chosen, columns, limits, out_of_range
from aot.experimental.sparse.util import canonical, tuple_of

Array = Any


def bcoo_transpose(mat: BCOO, *, permutation: Sequence[int]) -> BCOO:
    """Dimension i of the result is dimension permutation[i] of mat; batch, sparse and dense dimensions stay apart.

    Raises TypeError for what is no permutation, NotImplementedError for one that mixes the kinds of dimensions."""
    require(mat, "bcoo_transpose")
    permutation = tuple(map(operator.index, permutation))
    if sorted(permutation) != list(range(mat.ndim)):
        raise TypeError(f"transpose permutation isn't a permutation of operand dimensions, got permutation {permutation} for "
                        f"shape {mat.shape}.")
    _check_kinds(mat, permutation)
    if permutation == tuple(range(mat.ndim)):
        return mat
    data, indices = _storage.transpose_p(mat.data, mat.indices, permutation=permutation, spinfo=mat._info)
    sparse = mat.layout.groups(permutation)[1]
    return BCOO((data, indices), shape=[mat.shape[d] for d in permutation], unique_indices=mat.unique_indices,
                indices_sorted=mat.indices_sorted and list(sparse) == sorted(sparse))


def _check_kinds(mat: BCOO, permutation: Sequence[int]) -> None:
    batch, _, dense = mat.layout.groups(permutation)
    for kind, got, first, n in (("batch", batch, 0, mat.n_batch), ("dense", dense, mat.ndim - mat.n_dense, mat.n_dense)):
        if sorted(got) != list(range(first, first + n)):
            raise NotImplementedError(f"transpose permutation cannot permute {kind} axes with non-{kind} axes; got permutation "
                                      f"{tuple(permutation)}, with n_{kind}={n}. hint: update_layout changes what axes are")


def bcoo_broadcast_in_dim(mat: BCOO, *, shape: Sequence[int], broadcast_dimensions: Sequence[int],
                          sharding: Any = None) -> BCOO:
    """Dimension i of mat becomes dimension broadcast_dimensions[i] of the result, the others repeat it.

    New dimensions in front of the sparse ones are batch dimensions, behind the first dense one dense.  Raises
    NotImplementedError where a sparse dimension would be repeated."""
    require(mat, "bcoo_broadcast_in_dim")
    shape, places = tuple_of(shape), tuple_of(broadcast_dimensions)
    if len(places) != mat.ndim or list(places) != sorted(set(places)) or any(not 0 <= p < len(shape) for p in places):
        raise ValueError(f"bcoo_broadcast_in_dim: broadcast_dimensions={places} must increase and name a dimension of "
                         f"{shape} for each one of {mat.shape}")
    if any(n not in (1, shape[p]) for p, n in zip(places, mat.shape)):
        raise ValueError(f"bcoo_broadcast_in_dim: cannot broadcast {mat.shape} to {shape} with "
                         f"broadcast_dimensions={places}: only dimensions of size 1 can change")
    batch, sparse, dense = mat.layout.groups(places)
    first_dense = dense[0] if dense else len(shape)
    n_batch = sparse[0] if sparse else first_dense
    if any(shape[d] != 1 for d in range(n_batch, first_dense) if d not in sparse) or any(
            shape[d] != mat.shape[places.index(d)] for d in sparse):
        raise NotImplementedError("bcoo_broadcast_in_dim: a sparse dimension would be repeated. hint: update_layout first, "
                                  "with this dimension among the batch or dense ones")
    return _broadcast(mat, shape, places, n_batch, first_dense)


def _broadcast(mat: BCOO, shape: tuple, places: tuple, n_batch: int, first_dense: int) -> BCOO:
    batch, sparse, dense = mat.layout.groups(places)
    sizes = [1 if d in batch else shape[d] for d in range(n_batch)]

    def batches(x):
        return [x.shape[batch.index(d)] if d in batch else n for d, n in enumerate(sizes)]
    nse = mat.nse
    data = lax.broadcast_in_dim(mat.data, (*batches(mat.data), nse, *shape[first_dense:]),
                                (*batch, n_batch, *(n_batch + 1 + d - first_dense for d in dense)))
    indices = lax.broadcast_in_dim(mat.indices, (*batches(mat.indices), nse, mat.n_sparse), (*batch, n_batch, n_batch + 1))
    if first_dense - n_batch > mat.n_sparse:
        zero = jnp.zeros((*indices.shape[:-1], 1), indices.dtype)
        indices = jnp.concatenate([indices[..., sparse.index(d):sparse.index(d) + 1] if d in sparse else zero
                                   for d in range(n_batch, first_dense)], axis=-1)
    return BCOO((data, indices), shape=shape)


def bcoo_concatenate(operands: Sequence[BCOO], *, dimension: int) -> BCOO:
    """The arrays one after the other along a batch or sparse dimension; they have equal shapes elsewhere, and equal layouts.

    Raises ValueError for no arrays, dense arrays or other layouts, TypeError for shapes that do not fit or a dimension that is
    not there, NotImplementedError for a dense dimension."""
    operands = list(operands)
    if not operands:
        raise ValueError("bcoo_concatenate requires a non-empty sequence of arrays")
    if not all(isinstance(m, BCOO) for m in operands):
        raise ValueError(f"bcoo_concatenate: expected operands to be a sequence of BCOO arrays. Got {operands}")
    first = operands[0]
    _check_concatenated([m.shape for m in operands], dimension)
    if any((m.n_batch, m.n_dense) != (first.n_batch, first.n_dense) for m in operands):
        raise ValueError("bcoo_concatenate requires inputs with the same numbers of batch and dense dimensions. hint: "
                         "update_layout changes both")
    shape = tuple(sum(m.shape[d] for m in operands) if d == dimension else n for d, n in enumerate(first.shape))
    if dimension < first.n_batch:
        return _along_batch(operands, dimension, shape)
    if dimension < first.ndim - first.n_dense:
        return _along_sparse(operands, dimension, shape)
    raise NotImplementedError("Concatenation along dense dimensions. hint: update_layout makes the dimension sparse")


def _check_concatenated(shapes: list[tuple], dimension: int) -> None:
    shown = ", ".join(map(str, shapes))
    if not 0 <= dimension < len(shapes[0]):
        raise TypeError(f"concatenate dimension out of bounds: dimension {dimension} for shapes {shown}.")
    if len({(*s[:dimension], *s[dimension + 1:]) for s in shapes}) > 1:
        raise TypeError("Cannot concatenate arrays with shapes that differ in dimensions other than the one being "
                        f"concatenated: concatenating along dimension {dimension} for shapes {shown}.")


def _along_batch(operands: list[BCOO], dimension: int, shape: tuple) -> BCOO:
    """Batches one after the other, with room for the largest number of elements."""
    nse = max(m.nse for m in operands)
    n = operands[0].n_batch

    def padded(x, m, value):
        more = jnp.broadcast_to(jnp.asarray(value, x.dtype), (*x.shape[:n], nse - m.nse, *x.shape[n + 1:]))
        return jnp.concatenate([x, more], axis=n) if nse > m.nse else x
    pairs = [all_batches(m.data, m.indices, m.shape[:n]) for m in operands]
    data = [padded(d, m, 0) for m, (d, _) in zip(operands, pairs)]
    indices = [padded(i, m, limits(m.layout.groups(m.shape)[1], i.dtype)) for m, (_, i) in zip(operands, pairs)]
    return BCOO((lax.concatenate(data, dimension), lax.concatenate(indices, dimension)), shape=shape)


def _along_sparse(operands: list[BCOO], dimension: int, shape: tuple) -> BCOO:
    """All elements, with positions that count from where their array starts."""
    n = operands[0].n_batch
    column = dimension - n
    offsets = np.cumsum([0, *(m.shape[dimension] for m in operands)])
    shifted = []
    for m, offset in zip(operands, offsets):
        step = np.zeros(m.n_sparse, m.indices.dtype)
        step[column] = offset
        sparse = m.layout.groups(m.shape)[1]
        absent = out_of_range(m.indices, sparse)[..., None]
        shifted.append(jnp.where(absent, limits(m.layout.groups(shape)[1], m.indices.dtype), m.indices + step))
    data, indices = _same_batches([m.data for m in operands], n), _same_batches(shifted, n)
    return BCOO((lax.concatenate(data, n), lax.concatenate(indices, n)), shape=shape)


def _same_batches(arrays: list, n: int) -> list:
    batch = jnp.broadcast_shapes(*[x.shape[:n] for x in arrays])
    return [jnp.broadcast_to(x, (*batch, *x.shape[n:])) for x in arrays]


def bcoo_reshape(mat: BCOO, *, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None, sharding: Any = None) -> BCOO:
    """Another shape, in which batch, sparse and dense dimensions stay apart; dimensions: an order to read them in first.

    Raises ValueError where the new sizes would mix them, or do not fit."""
    require(mat, "bcoo_reshape")
    if dimensions is not None:
        mat = bcoo_transpose(mat, permutation=dimensions)
    shape = tuple_of(new_sizes)
    old = mat.layout.groups(mat.shape)
    n_batch = _end(mat, shape, 0, old[0], "batch and sparse")
    last = _end(mat, shape, n_batch, old[1], "sparse and dense") if mat.n_dense else len(shape)
    if math.prod(shape[n_batch:last]) != math.prod(old[1]) or math.prod(shape[last:]) != math.prod(old[2]):
        raise _mixed(mat, shape, "sparse and dense")
    batch, sparse, dense = shape[:n_batch], shape[n_batch:last], shape[last:]
    nse = mat.nse
    data, indices = _reshaped_batches(mat, batch)
    data = data.reshape(*data.shape[:n_batch], nse, *dense)
    if sparse != old[1]:
        indices = _renumbered(indices, old[1], sparse)
    return BCOO((data, indices), shape=shape)


def _end(mat: BCOO, shape: tuple, start: int, old: Sequence[int], kinds: str) -> int:
    """Where the dimensions of one kind end that start at `start`: as many elements as there are, and the 1s behind them."""
    ends = [d for d in range(start, len(shape) + 1) if math.prod(shape[start:d]) == math.prod(old)]
    if not ends:
        raise _mixed(mat, shape, kinds)
    return ends[-1]


def _mixed(mat: BCOO, shape: tuple, kinds: str) -> ValueError:
    n = f"n_batch={mat.n_batch}" if kinds.startswith("batch") else f"n_dense={mat.n_dense}"
    return ValueError(f"bcoo_reshape: new shape cannot mix {kinds} dimensions; got shape={mat.shape} new_shape={shape} with "
                      f"{n}")


def _reshaped_batches(mat: BCOO, batch: tuple) -> tuple[Array, Array]:
    n = mat.n_batch
    if batch == mat.shape[:n]:
        return mat.data, mat.indices
    data, indices = all_batches(mat.data, mat.indices, mat.shape[:n])
    return data.reshape(*batch, *data.shape[n:]), indices.reshape(*batch, *indices.shape[n:])


def _renumbered(indices: Array, old: tuple, new: tuple) -> Array:
    """Positions in an array of other sizes; those out of range stay so."""
    absent = out_of_range(indices, old)[..., None]
    narrow = indices.dtype
    indices = indices.astype(np.promote_types(narrow, np.int32))
    flat = jnp.zeros(indices.shape[:-1], indices.dtype)
    for column, size, stride in zip(columns(indices), old, _strides(old)):
        flat = flat + jnp.clip(column, 0, max(size - 1, 0)) * np.array(stride, indices.dtype)
    parts = [flat // np.array(stride, flat.dtype) % np.array(max(size, 1), flat.dtype)
             for size, stride in zip(new, _strides(new))]
    renumbered = jnp.stack(parts, axis=-1) if parts else jnp.zeros((*flat.shape, 0), flat.dtype)
    fits = max(new, default=0) <= np.iinfo(narrow).max
    return jnp.where(absent, limits(new, indices.dtype), renumbered).astype(narrow if fits else indices.dtype)


def _strides(sizes: Sequence[int]) -> list[int]: return [max(math.prod(sizes[i + 1:]), 1) for i in range(len(sizes))]


def bcoo_rev(operand: BCOO, dimensions: Sequence[int]) -> BCOO:
    """The order of elements reversed along these dimensions.  Raises TypeError where lax.rev does."""
    require(operand, "bcoo_rev")
    dimensions = tuple(dimensions)
    if len(set(dimensions)) != len(dimensions):
        raise TypeError(f"rev dimensions must be unique, got {dimensions}.")
    if any(not 0 <= d < operand.ndim for d in dimensions):
        raise TypeError(f"rev dimensions must all be nonnegative and less than operand ndim, got dimensions {dimensions} for "
                        f"operand ndim {operand.ndim}.")
    n, s = operand.n_batch, operand.n_sparse
    batch = [d for d in dimensions if d < n]
    data = lax.rev(operand.data, [*batch, *(d - s + 1 for d in dimensions if d >= n + s)])
    indices = lax.rev(operand.indices, batch)
    sparse = operand.layout.groups(operand.shape)[1]
    flipped = np.array([d + n in dimensions for d in range(s)], bool)
    if flipped.any():
        absent = out_of_range(indices, sparse)[..., None] | (indices < 0)
        mirrored = jnp.where(flipped, limits(sparse, indices.dtype) - 1 - indices, indices)
        indices = jnp.where(absent, limits(sparse, indices.dtype), mirrored)
    return BCOO((data, indices), shape=operand.shape)


def bcoo_squeeze(arr: BCOO, *, dimensions: Sequence[int]) -> BCOO:
    """Without these dimensions, whose size must be 1 (ValueError)."""
    require(arr, "bcoo_squeeze")
    gone = sorted({canonical(operator.index(d), arr.ndim) for d in dimensions})
    if any(arr.shape[d] != 1 for d in gone):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one, got "
                         f"shape={arr.shape} and dimensions={tuple(dimensions)}")
    n, s = arr.n_batch, arr.n_sparse
    batch = [d for d in gone if d < n]
    data = lax.squeeze(arr.data, [*batch, *(d - s + 1 for d in gone if d >= n + s)])
    indices = lax.squeeze(arr.indices, batch)
    sparse = [d - n for d in gone if n <= d < n + s]
    if sparse:
        data, indices = _without_columns(arr, data, indices, sparse)
    return BCOO((data, indices), shape=[m for d, m in enumerate(arr.shape) if d not in gone], indices_sorted=arr.indices_sorted,
                unique_indices=arr.unique_indices)


def _without_columns(arr: BCOO, data: Array, indices: Array, gone: list[int]) -> tuple[Array, Array]:
    """Elements that are absent by a position that goes away are absent by the others; by their value where none is left."""
    sizes = arr.layout.groups(arr.shape)[1]
    keep = [d for d in range(len(sizes)) if d not in gone]
    absent = out_of_range(indices, sizes)
    left = chosen(indices, keep)
    if keep:
        return data, jnp.where(absent[..., None], limits([sizes[d] for d in keep], indices.dtype), left)
    absent = absent.reshape(*absent.shape, *[1] * (data.ndim - absent.ndim))
    return jnp.where(absent, jnp.zeros((), data.dtype), data), left
