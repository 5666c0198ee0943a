"""Batched coordinate arrays (BCOO) and the functions on them."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot.experimental.sparse import _arithmetic, _dot, _layout, _shapes, _slicing, _storage
from aot.experimental.sparse._bcoo import BCOO, integer_dtype, require
from aot.trace import concrete_or_error, is_tracer

Array = Any

bcoo_todense_p, bcoo_fromdense_p, bcoo_extract_p = _storage.todense_p, _storage.fromdense_p, _storage.extract_p
bcoo_sort_indices_p, bcoo_sum_duplicates_p = _storage.sort_indices_p, _storage.sum_duplicates_p
bcoo_transpose_p, bcoo_dot_general_p = _storage.transpose_p, _dot.dot_general_p
bcoo_spdot_general_p, bcoo_dot_general_sampled_p = _dot.spdot_general_p, _dot.dot_general_sampled_p

bcoo_dot_general, bcoo_dot_general_sampled = _dot.bcoo_dot_general, _dot.bcoo_dot_general_sampled
bcoo_update_layout = _layout.bcoo_update_layout
bcoo_multiply_dense, bcoo_multiply_sparse = _arithmetic.bcoo_multiply_dense, _arithmetic.bcoo_multiply_sparse
bcoo_reduce_sum, bcoo_conv_general_dilated = _arithmetic.bcoo_reduce_sum, _arithmetic.bcoo_conv_general_dilated
bcoo_transpose, bcoo_broadcast_in_dim = _shapes.bcoo_transpose, _shapes.bcoo_broadcast_in_dim
bcoo_concatenate, bcoo_reshape = _shapes.bcoo_concatenate, _shapes.bcoo_reshape
bcoo_rev, bcoo_squeeze = _shapes.bcoo_rev, _shapes.bcoo_squeeze
bcoo_slice, bcoo_dynamic_slice, bcoo_gather = _slicing.bcoo_slice, _slicing.bcoo_dynamic_slice, _slicing.bcoo_gather


def bcoo_todense(mat: BCOO) -> Array:
    """The dense array of shape mat.shape: elements at one position are added up, those out of range dropped."""
    require(mat, "bcoo_todense")
    return bcoo_todense_p(mat.data, mat.indices, spinfo=mat._info)


def bcoo_fromdense(mat: Array, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0,
                   index_dtype: Any = jnp.int32) -> BCOO:
    """The sparse form of a dense array.

    nse: elements to store in each batch (default: as many as the fullest batch has); missing ones are padded with indices out
    of range, too many dropped from the end.  n_batch, n_dense: leading and trailing dimensions that are batch and dense ones.
    Raises ConcretizationTypeError for nse=None under jit, where the number of elements is not known.
    """
    mat = _storage.numbers(mat)
    if n_batch < 0 or n_dense < 0 or n_batch + n_dense > mat.ndim:
        raise ValueError(f"bcoo_fromdense: n_batch={n_batch} and n_dense={n_dense} do not fit shape {mat.shape}")
    index_dtype = integer_dtype(index_dtype)
    nse = stored_elements(mat, n_batch, n_dense, "bcoo_fromdense") if nse is None else int(
        concrete_or_error(None, nse, "the nse argument of bcoo_fromdense"))
    if nse < 0:
        raise ValueError(f"bcoo_fromdense: nse must not be negative, got {nse}")
    data, indices = bcoo_fromdense_p(mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=np.dtype(index_dtype))
    return BCOO((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=True)


def stored_elements(mat: Array, n_batch: int, n_dense: int, name: str) -> int:
    """How many elements the fullest batch has."""
    count = jnp.sum(_storage.stored(mat, n_dense), axis=tuple(range(n_batch, mat.ndim - n_dense)))
    most = jnp.max(count) if count.size else 0
    return int(concrete_or_error(None, most, f"the nse argument of {name}: under jit and other transformations the number of "
                                             "stored elements is not known; pass nse as an integer"))


def bcoo_extract(sparr: BCOO, arr: Any, *, assume_unique: bool | None = None) -> BCOO:
    """The values of a dense array of the same shape at the positions of a sparse one, with its indices.

    assume_unique (default: sparr.unique_indices): take a value for each index, also where a position comes again; otherwise
    later ones get 0, so that the elements add up to the value.  Raises TypeError, ValueError for another type or shape."""
    if not isinstance(sparr, BCOO):
        raise TypeError(f"First argument to bcoo_extract should be a BCOO array. Got type(sparr)={type(sparr)}")
    arr = jnp.asarray(arr)
    if sparr.shape != arr.shape:
        raise ValueError(f"shape mismatch: sparr.shape={sparr.shape} a.shape={arr.shape}")
    unique = sparr.unique_indices if assume_unique is None else assume_unique
    data = bcoo_extract_p(sparr.indices, arr, assume_unique=bool(unique))
    return sparr.with_data(data)


def bcoo_sort_indices(mat: BCOO) -> BCOO:
    """The elements in lexicographic order of their positions; the order of equal ones stays."""
    require(mat, "bcoo_sort_indices")
    data, indices = bcoo_sort_indices_p(mat.data, mat.indices, spinfo=mat._info)
    return BCOO((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=mat.unique_indices)


def bcoo_sum_duplicates(mat: BCOO, nse: int | None = None) -> BCOO:
    """Elements at the same position added up, in lexicographic order of positions.

    nse: how many to store (default: as many different positions as the fullest batch has); missing ones are padded with indices
    out of range, too many dropped.  Raises ValueError for nse=None under jit, where that number is not known."""
    require(mat, "bcoo_sum_duplicates")
    sparse = mat.layout.groups(mat.shape)[1]
    if nse is None:
        count = _storage.count_distinct(mat.indices, sparse)
        if is_tracer(count):
            raise ValueError("bcoo_sum_duplicates: nse must be specified when using the function within jit, vmap, and other "
                             "transformations: the number of different positions is not known there")
        nse = min(int(count), math.prod(sparse))
    data, indices = bcoo_sum_duplicates_p(mat.data, mat.indices, spinfo=mat._info, nse=int(nse))
    return BCOO((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=True)
