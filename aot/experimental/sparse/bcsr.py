"""Batched compressed rows (BCSR): BCOO with two sparse dimensions, sorted by row, that stores where each row starts."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.experimental.sparse import _mapping, _storage
from aot.experimental.sparse._base import JAXSparse, dtype_of
from aot.experimental.sparse._bcoo import BCOO, integer_dtype
from aot.experimental.sparse._dot import _element_type, _numbers, dot_general_p, product_aval
from aot.experimental.sparse._operators import operation, sparse_function
from aot.experimental.sparse._primitive import primitive
from aot.experimental.sparse.bcoo import (
    bcoo_broadcast_in_dim,
    bcoo_concatenate,
    bcoo_sort_indices,
    stored_elements,
)
from aot.experimental.sparse.util import SparseInfo, over_batch, tuple_of
from aot.trace import concrete_or_error
from aot.tree_util import register_pytree_node_class

Array = Any


@_mapping.register
@register_pytree_node_class
class BCSR(JAXSparse):
    """A matrix, with batch dimensions in front and dense ones behind, stored by rows.

    data: [*batch, nse, *dense].  indices: integers [*batch, nse], the columns.  indptr: integers [*batch, rows + 1]: row i
    has the elements indptr[i] to indptr[i + 1].  Raises ValueError where the arrays do not fit `shape`."""

    __slots__ = ("data", "indices", "indptr", "indices_sorted", "unique_indices", "_pattern")

    nse = property(lambda self: self.indices.shape[-1])
    dtype = property(lambda self: dtype_of(self.data))
    n_batch = property(lambda self: self.indices.ndim - 1)
    n_sparse = property(lambda self: 2)
    n_dense = property(lambda self: self.data.ndim - self.indices.ndim)

    def __init__(self, args: tuple[Array, Array, Array], *, shape: Sequence[int], indices_sorted: bool = False,
                 unique_indices: bool = False):
        self.data, self.indices, self.indptr = map(jnp.asarray, args)
        super().__init__(args, shape=tuple_of(shape))
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        self._pattern = object()
        _check(self)

    @property
    def _info(self) -> SparseInfo: return SparseInfo(self.shape, self.indices_sorted, self.unique_indices)

    @property
    def _bufs(self) -> tuple[Array, Array, Array]: return self.data, self.indices, self.indptr

    def with_data(self, data: Array) -> BCSR:
        """Other values at the same places."""
        out = BCSR((data, self.indices, self.indptr), shape=self.shape, indices_sorted=self.indices_sorted,
                   unique_indices=self.unique_indices)
        out._pattern = self._pattern
        return out

    def tree_flatten(self) -> tuple[tuple[Array, Array, Array], dict[str, Any]]:
        return self._bufs, self._info._asdict()

    @classmethod
    def tree_unflatten(cls, aux_data: dict[str, Any], children: Any) -> BCSR:
        self = object.__new__(cls)
        self.data, self.indices, self.indptr = children
        if aux_data.keys() != {"shape", "indices_sorted", "unique_indices"}:
            raise ValueError(f"BCSR.tree_unflatten: invalid {aux_data=}")
        for name, value in aux_data.items():
            setattr(self, name, value)
        self._pattern = object()
        return self

    @classmethod
    def _empty(cls, shape: Sequence[int], *, dtype: Any = None, index_dtype: Any = "int32", n_dense: int = 0, n_batch: int = 0,
               nse: int = 0) -> BCSR:
        shape = tuple_of(shape)
        if n_dense < 0 or n_batch < 0 or nse < 0:
            raise ValueError(f"Invalid inputs: {shape=}, {n_dense=}, {n_batch=}, {nse=}")
        if len(shape) - n_dense - n_batch != 2:
            raise ValueError("BCSR sparse.empty: must have 2 sparse dimensions.")
        batch, (rows, cols), dense = _storage.Layout(n_batch, 2, n_dense, nse).groups(shape)
        data = jnp.zeros((*batch, nse, *dense), dtype)
        return cls((data, jnp.full((*batch, nse), cols, index_dtype), jnp.zeros((*batch, rows + 1), index_dtype)), shape=shape)

    @classmethod
    def fromdense(cls, mat: Array, *, nse: int | None = None, index_dtype: Any = np.int32, n_dense: int = 0,
                  n_batch: int = 0) -> BCSR:
        """The sparse form of a dense array; see `bcsr_fromdense`."""
        return bcsr_fromdense(mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch)

    @classmethod
    def from_bcoo(cls, arr: BCOO) -> BCSR:
        """The same elements by rows.  Raises NotImplementedError unless there are two sparse dimensions."""
        if arr.n_sparse != 2:
            raise NotImplementedError(f"BCSR.from_bcoo requires n_sparse=2; got arr.n_sparse={arr.n_sparse}. hint: "
                                      "update_layout changes the numbers of batch and dense dimensions")
        if not arr.indices_sorted:
            arr = bcoo_sort_indices(arr)
        rows, _ = arr.layout.groups(arr.shape)[1]
        indptr = over_batch(lambda i: row_starts(i[:, 0], rows), arr.n_batch)(arr.indices)
        return cls((arr.data, arr.indices[..., 1], indptr), shape=arr.shape)

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0) -> BCSR:
        """A matrix of scipy.sparse.  Raises NotImplementedError for batch or dense dimensions."""
        if n_dense or n_batch:
            raise NotImplementedError("BCSR.from_scipy_sparse with nonzero n_dense or n_batch.")
        mat = mat.tocsr()
        index_dtype = index_dtype or np.int32
        return cls((jnp.asarray(mat.data), jnp.asarray(mat.indices).astype(index_dtype),
                    jnp.asarray(mat.indptr).astype(index_dtype)), shape=mat.shape)

    def to_bcoo(self) -> BCOO:
        """The same elements with both positions stored."""
        return BCOO((self.data, positions(self.indices, self.indptr)), shape=self.shape,
                    indices_sorted=self.indices_sorted, unique_indices=self.unique_indices)

    def todense(self) -> Array:
        """The dense array."""
        return bcsr_todense(self)

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCSR:
        """Elements at the same position added up, in order; nse: how many to store, needed under jit."""
        return BCSR.from_bcoo(self.to_bcoo().sum_duplicates(nse=nse, remove_zeros=remove_zeros))

    def transpose(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("Transpose is not implemented for BCSR. hint: to_bcoo().transpose(...)")

    T = property(transpose)
    __matmul__, __rmatmul__ = operation("matmul"), operation("matmul", reflected=True)

    def __getitem__(self, idx: Any) -> Any:
        """`x[idx]`, where there is a sparse rule for what it means."""
        return sparse_function(lambda x: x[idx], self)


def _check(mat: BCSR) -> None:
    n = mat.n_batch
    if len(mat.shape) < n + 2 or mat.data.ndim < n + 1 or mat.indptr.ndim != n + 1:
        raise ValueError(f"BCSR arrays do not fit: data {mat.data.shape}, indices {mat.indices.shape}, indptr "
                         f"{mat.indptr.shape} for shape {mat.shape}")
    if mat.indptr.shape[-1] != mat.shape[n] + 1:
        raise ValueError(f"indptr shape must match the matrix shape plus 1: got {mat.indptr.shape} for shape {mat.shape}.")
    if mat.data.shape[n:] != (mat.nse, *mat.shape[n + 2:]):
        raise ValueError(f"Invalid data.shape={mat.data.shape} for nse={mat.nse}, n_batch={n} and shape={mat.shape}")
    for name in ("data", "indices", "indptr"):
        if any(got not in (1, size) for got, size in zip(getattr(mat, name).shape[:n], mat.shape)):
            raise ValueError(f"{name} batch dimensions not compatible for {name}.shape={getattr(mat, name).shape}, "
                             f"shape={mat.shape}")
    for name in ("indices", "indptr"):
        integer_dtype(getattr(mat, name).dtype)


# ---- rows and their starts -------------------------------------------------------------------------------------------

def row_starts(rows: Array, n: int) -> Array:
    """Sorted rows [nse] -> [n + 1], where each starts; those out of range are behind the last."""
    count = jnp.zeros((n,), rows.dtype).at[rows].add(jnp.ones((), rows.dtype), mode="drop")
    return jnp.concatenate([jnp.zeros((1,), rows.dtype), jnp.cumsum(count, dtype=rows.dtype)])


def rows_of(indptr: Array, nse: int) -> Array:
    """[n + 1] -> [nse], the row of each element; n for those behind the last row."""
    starts = jnp.zeros((nse,), indptr.dtype).at[indptr].add(jnp.ones((), indptr.dtype), mode="drop")
    return jnp.cumsum(starts, dtype=indptr.dtype) - jnp.ones((), indptr.dtype)


def positions(indices: Array, indptr: Array) -> Array:
    """The indices of BCOO, [*batch, nse, 2]."""
    nse = indices.shape[-1]
    return over_batch(lambda i, p: jnp.stack([rows_of(p, nse).astype(i.dtype), i], axis=-1), indices.ndim - 1)(indices, indptr)


# ---- functions -------------------------------------------------------------------------------------------------------

@primitive("bcsr_todense")
def todense_p(data: Array, indices: Array, indptr: Array, *, spinfo: SparseInfo) -> Array:
    return _storage.todense_p(data, positions(indices, indptr), spinfo=spinfo)


@primitive("bcsr_fromdense")
def fromdense_p(mat: Array, *, nse: int, n_batch: int, n_dense: int, index_dtype: Any) -> tuple:
    data, indices = _storage.fromdense_p(mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype)
    indptr = over_batch(lambda i: row_starts(i[:, 0], mat.shape[n_batch]), n_batch)(indices)
    return data, indices[..., 1], indptr


@primitive("bcsr_extract")
def extract_p(indices: Array, indptr: Array, mat: Array) -> Array:
    return _storage.extract_p(positions(indices, indptr), mat, assume_unique=True)


@primitive("bcsr_dot_general")
def bcsr_dot_general_p(data: Array, indices: Array, indptr: Array, rhs: Array, *, dimension_numbers: Any,
                       preferred_element_type: Any, lhs_spinfo: SparseInfo) -> Array:
    return dot_general_p(data, positions(indices, indptr), rhs, dimension_numbers=dimension_numbers, lhs_spinfo=lhs_spinfo,
                         preferred_element_type=preferred_element_type)


bcsr_todense_p, bcsr_fromdense_p, bcsr_extract_p = todense_p, fromdense_p, extract_p


def bcsr_todense(mat: BCSR) -> Array:
    """The dense array of shape mat.shape."""
    return bcsr_todense_p(mat.data, mat.indices, mat.indptr, spinfo=mat._info)


def bcsr_fromdense(mat: Any, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0,
                   index_dtype: Any = jnp.int32) -> BCSR:
    """The sparse form of a dense array of n_batch + 2 + n_dense dimensions (ValueError for others).

    nse: elements to store in each batch; as many as the fullest has by default, which is not known under jit
    (ConcretizationTypeError)."""
    mat = _storage.numbers(mat)
    if mat.ndim - n_batch - n_dense != 2:
        raise ValueError(f"bcsr_fromdense: must have 2 sparse dimensions, got shape {mat.shape} with {n_batch=} and "
                         f"{n_dense=}.")
    index_dtype = np.dtype(integer_dtype(index_dtype))
    nse = stored_elements(mat, n_batch, n_dense, "bcsr_fromdense") if nse is None else int(
        concrete_or_error(None, nse, "the nse argument of bcsr_fromdense"))
    arrays = bcsr_fromdense_p(mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype)
    return BCSR(arrays, shape=mat.shape)


def bcsr_extract(indices: Any, indptr: Any, mat: Any) -> Array:
    """The values of a dense array at BCSR positions: data."""
    return bcsr_extract_p(jnp.asarray(indices), jnp.asarray(indptr), jnp.asarray(mat))


def bcsr_dot_general(lhs: Any, rhs: Any, *, dimension_numbers: Any, precision: None = None, preferred_element_type: Any = None,
                     out_sharding: Any = None) -> Array:
    """`lax.dot_general` of a BCSR array and a dense one: dense.  As `bcoo_dot_general` otherwise.

    Raises NotImplementedError for other operands."""
    if not isinstance(lhs, BCSR) or isinstance(rhs, JAXSparse):
        if not isinstance(lhs, JAXSparse) and not isinstance(rhs, JAXSparse):
            return lax.dot_general(lhs, rhs, dimension_numbers, preferred_element_type=preferred_element_type)
        raise NotImplementedError("bcsr_dot_general currently implemented for BCSR lhs and ndarray rhs. hint: to_bcoo() and "
                                  "bcoo_dot_general")
    rhs, numbers = jnp.asarray(rhs), _numbers(dimension_numbers)
    product_aval(lhs, rhs, numbers, None)
    return bcsr_dot_general_p(lhs.data, lhs.indices, lhs.indptr, rhs, dimension_numbers=numbers, lhs_spinfo=lhs._info,
                              preferred_element_type=_element_type(preferred_element_type))


def bcsr_sum_duplicates(mat: BCSR, nse: int | None = None) -> BCSR:
    """Elements at the same position added up, in order; nse: how many to store, needed under jit."""
    return mat.sum_duplicates(nse=nse, remove_zeros=False)


def bcsr_broadcast_in_dim(mat: BCSR, *, shape: Sequence[int], broadcast_dimensions: Sequence[int],
                          sharding: Any = None) -> BCSR:
    """Other sizes and more dimensions; see `bcoo_broadcast_in_dim`."""
    return BCSR.from_bcoo(bcoo_broadcast_in_dim(mat.to_bcoo(), shape=shape, broadcast_dimensions=broadcast_dimensions))


def bcsr_concatenate(operands: Sequence[BCSR], *, dimension: int) -> BCSR:
    """The arrays one after the other along a batch or sparse dimension; see `bcoo_concatenate`."""
    return BCSR.from_bcoo(bcoo_concatenate([m.to_bcoo() for m in operands], dimension=dimension))
