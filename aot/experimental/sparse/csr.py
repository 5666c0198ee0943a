"""Compressed rows (CSR) and compressed columns (CSC).  BCSR does more."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot.experimental.sparse._bcoo import integer_dtype
from aot.experimental.sparse._primitive import primitive
from aot.experimental.sparse._two_dimensional import (
    Matrix,
    check_operand,
    dense_matrix,
    diagonal,
    multiplied,
    nonzero_positions,
    scattered,
    two_sizes,
)
from aot.experimental.sparse.bcsr import row_starts, rows_of
from aot.experimental.sparse.util import tuple_of
from aot.tree_util import register_pytree_node_class

Array = Any


class _Compressed(Matrix):
    """Values, their position in the row (or column), and where each row starts."""

    __slots__ = ("indices", "indptr")
    axis = 0        # of the rows that are compressed

    def __init__(self, args: Any, *, shape: Sequence[int]):
        self.data, self.indices, self.indptr = map(jnp.asarray, args)
        super().__init__(args, shape=tuple_of(shape))

    @property
    def _bufs(self) -> tuple[Array, Array, Array]: return self.data, self.indices, self.indptr

    def tree_flatten(self) -> tuple[tuple[Array, Array, Array], dict[str, Any]]: return self._bufs, {"shape": self.shape}

    @classmethod
    def tree_unflatten(cls, aux_data: dict[str, Any], children: Any) -> Any:
        self = object.__new__(cls)
        self.data, self.indices, self.indptr = children
        if aux_data.keys() != {"shape"}:
            raise ValueError(f"{cls.__name__}.tree_unflatten: invalid {aux_data=}")
        self.shape = aux_data["shape"]
        return self

    @classmethod
    def _empty(cls, shape: Sequence[int], *, dtype: Any = None, index_dtype: Any = "int32") -> Any:
        shape = two_sizes(shape, cls.__name__)
        return cls((jnp.empty(0, dtype), jnp.empty(0, index_dtype), jnp.zeros(shape[cls.axis] + 1, index_dtype)), shape=shape)

    @classmethod
    def _eye(cls, N: int, M: int, k: int, *, dtype: Any = None, index_dtype: Any = "int32") -> Any:
        places = diagonal(N, M, k)
        starts = np.searchsorted(places[cls.axis], np.arange((N, M)[cls.axis] + 1))
        return cls((jnp.ones(len(places[0]), dtype), jnp.asarray(places[1 - cls.axis], index_dtype),
                    jnp.asarray(starts, index_dtype)), shape=(N, M))


@register_pytree_node_class
class CSR(_Compressed):
    """A matrix stored by rows: data [nse], their columns indices [nse], and indptr [rows + 1], where each row starts."""

    __slots__ = ()

    @classmethod
    def fromdense(cls, mat: Array, *, nse: int | None = None, index_dtype: Any = np.int32) -> CSR:
        """The sparse form of a dense matrix; see `csr_fromdense`."""
        return csr_fromdense(mat, nse=nse, index_dtype=index_dtype)

    def todense(self) -> Array:
        """The dense matrix."""
        return csr_todense(self)

    def transpose(self, axes: Any = None) -> CSC:
        """The transpose, which shares all arrays.  Raises NotImplementedError for axes."""
        if axes is not None:
            raise NotImplementedError("axes argument to transpose()")
        return CSC(self._bufs, shape=self.shape[::-1])

    def _times(self, data: Array, B: Array) -> Array:
        return (csr_matvec if B.ndim == 1 else csr_matmat)(CSR((data, self.indices, self.indptr), shape=self.shape), B)


@register_pytree_node_class
class CSC(_Compressed):
    """A matrix stored by columns: data [nse], their rows indices [nse], and indptr [columns + 1], where each column starts."""

    __slots__ = ()
    axis = 1

    @classmethod
    def fromdense(cls, mat: Array, *, nse: int | None = None, index_dtype: Any = np.int32) -> CSC:
        """The sparse form of a dense matrix; nse as for `csr_fromdense`."""
        return csr_fromdense(jnp.asarray(mat).T, nse=nse, index_dtype=index_dtype).T

    def todense(self) -> Array:
        """The dense matrix."""
        return self.T.todense().T

    def transpose(self, axes: Any = None) -> CSR:
        """The transpose, which shares all arrays.  Raises NotImplementedError for axes."""
        if axes is not None:
            raise NotImplementedError("axes argument to transpose()")
        return CSR(self._bufs, shape=self.shape[::-1])

    def _times(self, data: Array, B: Array) -> Array:
        rows = CSR((data, self.indices, self.indptr), shape=self.shape[::-1])
        return csr_matvec(rows, B, transpose=True) if B.ndim == 1 else csr_matmat(rows, B, transpose=True)


@primitive("csr_todense")
def csr_todense_p(data: Array, indices: Array, indptr: Array, *, shape: tuple[int, int]) -> Array:
    return scattered(data, rows_of(indptr, len(data)), indices, shape)


@primitive("csr_fromdense")
def csr_fromdense_p(mat: Array, *, index_dtype: Any, nse: int) -> tuple:
    data, row, col = nonzero_positions(mat, nse, index_dtype)
    there = jnp.arange(nse) < jnp.count_nonzero(mat)
    return data, col, row_starts(jnp.where(there, row, np.array(mat.shape[0], row.dtype)), mat.shape[0])


def _product(data: Array, indices: Array, indptr: Array, B: Array, shape: tuple[int, int], transpose: bool) -> Array:
    row, col = rows_of(indptr, len(data)), indices
    row, col = (col, row) if transpose else (row, col)
    return multiplied(data, row, col, B, shape[1 if transpose else 0])


@primitive("csr_matvec")
def csr_matvec_p(data: Array, indices: Array, indptr: Array, v: Array, *, shape: tuple[int, int], transpose: bool) -> Array:
    return _product(data, indices, indptr, v, shape, transpose)


@primitive("csr_matmat")
def csr_matmat_p(data: Array, indices: Array, indptr: Array, B: Array, *, shape: tuple[int, int], transpose: bool) -> Array:
    return _product(data, indices, indptr, B, shape, transpose)


def csr_todense(mat: CSR) -> Array:
    """The dense matrix of shape mat.shape."""
    return csr_todense_p(*mat._bufs, shape=mat.shape)


def csr_fromdense(mat: Array, *, nse: int | None = None, index_dtype: Any = np.int32) -> CSR:
    """The sparse form of a dense matrix (ValueError for other shapes).

    nse: elements to store, all that are not zero by default; not known under jit (ConcretizationTypeError)."""
    mat, nse = dense_matrix(mat, nse, "csr_fromdense")
    arrays = csr_fromdense_p(mat, nse=nse, index_dtype=np.dtype(integer_dtype(index_dtype)))
    return CSR(arrays, shape=mat.shape)


def csr_matvec(mat: CSR, v: Array, transpose: bool = False) -> Array:
    """The product with a dense vector of the same dtype, of the transpose where asked for."""
    v = jnp.asarray(v)
    check_operand(mat, mat.data, v, transpose, 1, "csr_matvec")
    return csr_matvec_p(*mat._bufs, v, shape=mat.shape, transpose=transpose)


def csr_matmat(mat: CSR, B: Array, *, transpose: bool = False) -> Array:
    """The product with a dense matrix of the same dtype, of the transpose where asked for."""
    B = jnp.asarray(B)
    check_operand(mat, mat.data, B, transpose, 2, "csr_matmat")
    return csr_matmat_p(*mat._bufs, B, shape=mat.shape, transpose=transpose)
