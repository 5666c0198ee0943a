"""Coordinate matrices: values, rows and columns.  BCOO does more."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import aot.numpy as jnp
from aot import lax
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
from aot.experimental.sparse.util import tuple_of
from aot.tree_util import register_pytree_node_class

Array = Any


class COOInfo(NamedTuple):
    """What is known of a COO matrix apart from its values."""

    shape: tuple[int, ...]
    rows_sorted: bool = False
    cols_sorted: bool = False


@register_pytree_node_class
class COO(Matrix):
    """A matrix of which the elements data [nse] at row [nse] and col [nse] are stored; equal positions add up."""

    __slots__ = ("row", "col", "_rows_sorted", "_cols_sorted")

    def __init__(self, args: tuple[Array, Array, Array], *, shape: Sequence[int], rows_sorted: bool = False,
                 cols_sorted: bool = False):
        self.data, self.row, self.col = map(jnp.asarray, args)
        self._rows_sorted, self._cols_sorted = rows_sorted, cols_sorted
        super().__init__(args, shape=tuple_of(shape))

    @property
    def _info(self) -> COOInfo: return COOInfo(self.shape, self._rows_sorted, self._cols_sorted)

    @property
    def _bufs(self) -> tuple[Array, Array, Array]: return self.data, self.row, self.col

    @classmethod
    def fromdense(cls, mat: Array, *, nse: int | None = None, index_dtype: Any = np.int32) -> COO:
        """The sparse form of a dense matrix; see `coo_fromdense`."""
        return coo_fromdense(mat, nse=nse, index_dtype=index_dtype)

    @classmethod
    def _empty(cls, shape: Sequence[int], *, dtype: Any = None, index_dtype: Any = "int32") -> COO:
        shape = two_sizes(shape, "COO")
        none = jnp.empty(0, index_dtype)
        return cls((jnp.empty(0, dtype), none, none), shape=shape, rows_sorted=True, cols_sorted=True)

    @classmethod
    def _eye(cls, N: int, M: int, k: int, *, dtype: Any = None, index_dtype: Any = "int32") -> COO:
        row, col = (jnp.asarray(x, index_dtype) for x in diagonal(N, M, k))
        return cls((jnp.ones(len(row), dtype), row, col), shape=(N, M), rows_sorted=True, cols_sorted=True)

    def _sort_indices(self) -> COO:
        """The elements in the order of rows, and of columns within a row."""
        if self._rows_sorted:
            return self
        row, col, data = lax.sort((self.row, self.col, self.data), num_keys=2)
        return COO((data, row, col), shape=self.shape, rows_sorted=True)

    def todense(self) -> Array:
        """The dense matrix."""
        return coo_todense(self)

    def transpose(self, axes: tuple[int, ...] | None = None) -> COO:
        """The transpose, which shares all arrays.  Raises NotImplementedError for axes."""
        if axes is not None:
            raise NotImplementedError("axes argument to transpose()")
        return COO((self.data, self.col, self.row), shape=self.shape[::-1], rows_sorted=self._cols_sorted,
                   cols_sorted=self._rows_sorted)

    def tree_flatten(self) -> tuple[tuple[Array, Array, Array], dict[str, Any]]:
        return self._bufs, self._info._asdict()

    @classmethod
    def tree_unflatten(cls, aux_data: dict[str, Any], children: Any) -> COO:
        self = object.__new__(cls)
        self.data, self.row, self.col = children
        if aux_data.keys() != {"shape", "rows_sorted", "cols_sorted"}:
            raise ValueError(f"COO.tree_unflatten: invalid {aux_data=}")
        self.shape = aux_data["shape"]
        self._rows_sorted, self._cols_sorted = aux_data["rows_sorted"], aux_data["cols_sorted"]
        return self

    def _times(self, data: Array, B: Array) -> Array:
        return (coo_matvec if B.ndim == 1 else coo_matmat)(COO((data, self.row, self.col), shape=self.shape,
                                                               rows_sorted=self._rows_sorted, cols_sorted=self._cols_sorted), B)


@primitive("coo_todense")
def coo_todense_p(data: Array, row: Array, col: Array, *, spinfo: COOInfo) -> Array:
    return scattered(data, row, col, spinfo.shape)  # pyright: ignore


@primitive("coo_fromdense")
def coo_fromdense_p(mat: Array, *, index_dtype: Any, nse: int) -> tuple: return nonzero_positions(mat, nse, index_dtype)


@primitive("coo_matvec")
def coo_matvec_p(data: Array, row: Array, col: Array, v: Array, *, spinfo: COOInfo, transpose: bool) -> Array:
    row, col = (col, row) if transpose else (row, col)
    return multiplied(data, row, col, v, spinfo.shape[1 if transpose else 0])


@primitive("coo_matmat")
def coo_matmat_p(data: Array, row: Array, col: Array, B: Array, *, spinfo: COOInfo, transpose: bool) -> Array:
    row, col = (col, row) if transpose else (row, col)
    return multiplied(data, row, col, B, spinfo.shape[1 if transpose else 0])


def coo_todense(mat: COO) -> Array:
    """The dense matrix of shape mat.shape."""
    return coo_todense_p(mat.data, mat.row, mat.col, spinfo=mat._info)


def coo_fromdense(mat: Array, *, nse: int | None = None, index_dtype: Any = jnp.int32) -> COO:
    """The sparse form of a dense matrix (ValueError for other shapes).

    nse: elements to store, all that are not zero by default; not known under jit (ConcretizationTypeError)."""
    mat, nse = dense_matrix(mat, nse, "coo_fromdense")
    arrays = coo_fromdense_p(mat, nse=nse, index_dtype=np.dtype(integer_dtype(index_dtype)))
    return COO(arrays, shape=mat.shape, rows_sorted=True)


def coo_matvec(mat: COO, v: Array, transpose: bool = False) -> Array:
    """The product with a dense vector of the same dtype, of the transpose where asked for."""
    v = jnp.asarray(v)
    check_operand(mat, mat.data, v, transpose, 1, "coo_matvec")
    return coo_matvec_p(mat.data, mat.row, mat.col, v, spinfo=mat._info, transpose=transpose)


def coo_matmat(mat: COO, B: Array, *, transpose: bool = False) -> Array:
    """The product with a dense matrix of the same dtype, of the transpose where asked for."""
    B = jnp.asarray(B)
    check_operand(mat, mat.data, B, transpose, 2, "coo_matmat")
    return coo_matmat_p(mat.data, mat.row, mat.col, B, spinfo=mat._info, transpose=transpose)
