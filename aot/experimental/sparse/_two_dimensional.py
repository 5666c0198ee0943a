"""What the plain matrix formats COO, CSR and CSC share."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot.experimental.sparse._base import JAXSparse, dtype_of
from aot.experimental.sparse.util import tuple_of
from aot.trace import concrete_or_error

Array = Any


class Matrix(JAXSparse):
    """A matrix of which the stored elements are in `data`."""

    __slots__ = ("data",)
    nse = property(lambda self: self.data.size)
    dtype = property(lambda self: dtype_of(self.data))

    def product(self, B: Array) -> Array:
        """self @ B for a dense vector or matrix of any dtype."""
        if isinstance(B, JAXSparse):
            raise NotImplementedError("matmul between two sparse objects. hint: BCOO has it")
        B = jnp.asarray(B)
        if B.ndim not in (1, 2):
            raise NotImplementedError(f"matmul with object of shape {B.shape}")
        dtype = jnp.promote_types(self.dtype, B.dtype)
        return self._times(self.data.astype(dtype), B.astype(dtype))

    def _times(self, data: Array, B: Array) -> Array: raise NotImplementedError

    def __matmul__(self, other: Any) -> Array: return self.product(other)


def two_sizes(shape: Sequence[int], name: str) -> tuple[int, int]:
    """The shape of a matrix; ValueError for any other."""
    shape = tuple_of(shape)
    if len(shape) != 2:
        raise ValueError(f"{name} must have ndim=2; got {shape=}")
    return shape


def diagonal(N: int, M: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the k-th diagonal."""
    rows = np.arange(max(-k, 0), max(min(N, M - k), max(-k, 0)))
    return rows, rows + k


def dense_matrix(mat: Any, nse: int | None, name: str) -> tuple[Array, int]:
    """A dense matrix and the number of elements to store of it."""
    mat = jnp.asarray(mat)
    two_sizes(mat.shape, name)
    count = jnp.count_nonzero(mat) if nse is None else nse
    why = f"the nse argument of {name}: under jit the number of stored elements is not known; pass nse as an integer"
    return mat, int(concrete_or_error(None, count, why))


def check_operand(mat: Matrix, data: Array, B: Array, transpose: bool, ndim: int, name: str) -> None:
    """ValueError or TypeError where a product of a matrix and a dense vector or matrix is not defined."""
    rows = mat.shape[0 if transpose else 1]
    if B.ndim != ndim or B.shape[0] != rows:
        raise ValueError(f"{name}: a matrix of shape {mat.shape}{', transposed,' if transpose else ''} cannot be multiplied "
                         f"by an array of shape {B.shape}")
    if B.dtype != data.dtype:
        raise TypeError(f"{name} requires operands of one dtype, got {data.dtype} and {B.dtype}. hint: convert one with "
                        "astype, or use the operator @")


def nonzero_positions(mat: Array, nse: int, index_dtype: Any) -> tuple[Array, Array, Array]:
    """data, rows and columns of the first nse nonzero elements; 0 at (0, 0) for what is missing."""
    row, col = jnp.nonzero(mat, size=nse)
    there = jnp.arange(nse) < jnp.count_nonzero(mat)
    data = jnp.where(there, mat[row, col], jnp.zeros((), mat.dtype)) if mat.size else jnp.zeros((nse,), mat.dtype)
    return data, row.astype(index_dtype), col.astype(index_dtype)


def scattered(data: Array, row: Array, col: Array, shape: tuple[int, int]) -> Array:
    """The dense matrix."""
    return jnp.zeros(shape, data.dtype).at[row, col].add(data, mode="drop")


def multiplied(data: Array, row: Array, col: Array, B: Array, rows: int) -> Array:
    """The product with a dense vector or matrix."""
    terms = data.reshape(-1, *[1] * (B.ndim - 1)) * B.at[col].get(mode="fill", fill_value=0)
    return jnp.zeros((rows, *B.shape[1:]), data.dtype).at[row].add(terms, mode="drop")
