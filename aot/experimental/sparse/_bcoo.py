"""The class of batched coordinate arrays."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import dtypes, lax
from aot.array_methods import ArrayMethods
from aot.experimental.sparse import _mapping, _storage
from aot.experimental.sparse._base import JAXSparse, dtype_of
from aot.experimental.sparse._operators import ArrayOperators, operation
from aot.experimental.sparse.util import SparseInfo, tuple_of
from aot.tree_util import register_pytree_node_class

Array = Any


@_mapping.register
@register_pytree_node_class
class BCOO(ArrayOperators, JAXSparse):
    """An array of which the elements at given indices are stored (batched COO).

    data: [*batch, nse, *dense], the stored elements.  indices: integers [*batch, nse, n_sparse], their positions in the sparse
    dimensions.  Elements at the same position are added up; those whose position is out of range count as absent.  Batch
    dimensions of data or indices may have size 1 instead of the size in `shape`.

    indices_sorted, unique_indices: promises that operations make use of.  Raises ValueError where the arrays do not fit
    `shape`.
    """

    __slots__ = ("data", "indices", "indices_sorted", "unique_indices", "_pattern")

    nse = property(lambda self: self.indices.shape[-2])
    dtype = property(lambda self: dtype_of(self.data))
    n_batch = property(lambda self: self.indices.ndim - 2)
    n_sparse = property(lambda self: self.indices.shape[-1])
    n_dense = property(lambda self: self.data.ndim - 1 - self.n_batch)

    def __init__(self, args: tuple[Array, Array], *, shape: Sequence[int], indices_sorted: bool = False,
                 unique_indices: bool = False):
        self.data, self.indices = map(jnp.asarray, args)
        super().__init__(args, shape=tuple_of(shape))
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        self._pattern = object()        # the same for arrays that are known to have the same indices
        _storage.layout_of(self.data, self.indices, self.shape)

    # ---- what it is made of ----
    @property
    def _info(self) -> SparseInfo: return SparseInfo(self.shape, self.indices_sorted, self.unique_indices)

    @property
    def _bufs(self) -> tuple[Array, Array]: return self.data, self.indices

    @property
    def layout(self) -> _storage.Layout:
        """The numbers of dimensions of each kind, and of stored elements."""
        return _storage.layout_of(self.data, self.indices, self.shape)

    def with_data(self, data: Array) -> BCOO:
        """Other values at the same places."""
        out = BCOO((data, self.indices), shape=self.shape, indices_sorted=self.indices_sorted,
                   unique_indices=self.unique_indices)
        out._pattern = self._pattern
        return out

    def tree_flatten(self) -> tuple[tuple[Array, Array], dict[str, Any]]:
        return (self.data, self.indices), self._info._asdict()

    @classmethod
    def tree_unflatten(cls, aux_data: dict[str, Any], children: Any) -> BCOO:
        self = object.__new__(cls)
        self.data, self.indices = children
        if aux_data.keys() != {"shape", "indices_sorted", "unique_indices"}:
            raise ValueError(f"BCOO.tree_unflatten: invalid {aux_data=}")
        for name, value in aux_data.items():
            setattr(self, name, value)
        self._pattern = object()
        return self

    def __repr__(self) -> str:
        text = super().__repr__()
        data = getattr(self, "data", None)
        return f"{_tracer_name(data)}[{text}]" if _tracer_name(data) and "<invalid>" not in text else text

    # ---- making them ----
    @classmethod
    def fromdense(cls, mat: Array, *, nse: int | None = None, index_dtype: Any = np.int32, n_dense: int = 0,
                  n_batch: int = 0) -> BCOO:
        """The sparse form of a dense array; see `bcoo_fromdense`."""
        from aot.experimental.sparse.bcoo import bcoo_fromdense
        return bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch)

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0) -> BCOO:
        """A matrix of scipy.sparse.  Raises NotImplementedError for batch or dense dimensions."""
        if n_dense or n_batch:
            raise NotImplementedError("BCOO.from_scipy_sparse with nonzero n_dense or n_batch. hint: update_layout changes "
                                      "both")
        mat = mat.tocoo()
        data = jnp.asarray(mat.data)
        indices = jnp.column_stack((mat.row, mat.col)).astype(index_dtype or np.int32)
        return cls((data, indices), shape=mat.shape, indices_sorted=False, unique_indices=False)

    @classmethod
    def _empty(cls, shape: Sequence[int], *, dtype: Any = None, index_dtype: Any = "int32", n_dense: int = 0, n_batch: int = 0,
               nse: int = 0) -> BCOO:
        shape = tuple_of(shape)
        n_sparse = len(shape) - n_dense - n_batch
        if min(n_sparse, n_batch, n_dense, nse) < 0:
            raise ValueError(f"Invalid inputs: {shape=}, {n_dense=}, {n_batch=}, {nse=}")
        batch, sparse, dense = _storage.Layout(n_batch, n_sparse, n_dense, nse).groups(shape)
        data = jnp.zeros((*batch, nse, *dense), dtype)
        indices = jnp.full((*batch, nse, n_sparse), _storage.limits(sparse, index_dtype), index_dtype)
        return cls((data, indices), shape=shape, indices_sorted=True, unique_indices=True)

    @classmethod
    def _eye(cls, N: int, M: int, k: int, *, dtype: Any = None, index_dtype: Any = "int32", n_batch: int = 0,
             n_dense: int = 0) -> BCOO:
        n_sparse = 2 - n_batch - n_dense
        if min(n_sparse, n_batch, n_dense) < 0:
            raise ValueError(f"Invalid inputs: shape={(N, M)}, {n_dense=}, {n_batch=}")
        if not n_batch and not n_dense:
            rows = np.arange(max(-k, 0), max(min(N, M - k), max(-k, 0)))
            indices = jnp.asarray(np.stack([rows, rows + k], axis=1), index_dtype)
            return cls((jnp.ones(len(rows), dtype), indices), shape=(N, M), indices_sorted=True, unique_indices=True)
        return cls._dense_eye(N, M, k, dtype, index_dtype, n_batch, n_dense)

    @classmethod
    def _dense_eye(cls, N: int, M: int, k: int, dtype: Any, index_dtype: Any, n_batch: int, n_dense: int) -> BCOO:
        """One element a row where one dimension is sparse: of the batch, or a dense row itself; a dense matrix elsewhere."""
        if n_batch == 1 and not n_dense:
            column = np.arange(N)[:, None] + k
            there = (column >= 0) & (column < M)
            data, indices = jnp.asarray(there, dtype or float), np.where(there, column, M)[..., None]
        elif n_dense == 1 and not n_batch:
            rows = np.arange(max(-k, 0), max(min(N, M - k), max(-k, 0)))
            data, indices = jnp.eye(N, M, k, dtype)[rows], rows[:, None]
        else:
            data = jnp.expand_dims(jnp.eye(N, M, k, dtype), n_batch)
            indices = np.zeros((*(N, M)[:n_batch], 1, 0))
        return cls((data, jnp.asarray(indices, index_dtype)), shape=(N, M), indices_sorted=True, unique_indices=True)

    # ---- conversions ----
    def todense(self) -> Array:
        """The dense array."""
        from aot.experimental.sparse.bcoo import bcoo_todense
        return bcoo_todense(self)

    def update_layout(self, *, n_batch: int | None = None, n_dense: int | None = None,
                      on_inefficient: str | None = "error") -> BCOO:
        """The same array stored with other numbers of batch and dense dimensions; see `bcoo_update_layout`."""
        from aot.experimental.sparse.bcoo import bcoo_update_layout
        return bcoo_update_layout(self, n_batch=n_batch, n_dense=n_dense, on_inefficient=on_inefficient)

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCOO:
        """Elements at the same position added up, in lexicographic order of positions.

        nse: how many to store; needed under jit.  remove_zeros: drop elements that are stored and zero."""
        from aot.experimental.sparse.bcoo import bcoo_sum_duplicates
        return bcoo_sum_duplicates(_without_zeros(self) if remove_zeros else self, nse=nse)

    def sort_indices(self) -> BCOO:
        """The elements in lexicographic order of positions."""
        from aot.experimental.sparse.bcoo import bcoo_sort_indices
        return bcoo_sort_indices(self)

    def transpose(self, axes: Sequence[int] | None = None) -> BCOO:
        """Dimensions in another order (reversed by default), within the batch, sparse and dense ones."""
        from aot.experimental.sparse.bcoo import bcoo_transpose
        order = tuple(range(self.ndim)[::-1]) if axes is None else tuple_of(axes)
        out = bcoo_transpose(self, permutation=order)
        return out

    T = property(transpose)
    __add__ = operation("add")
    __sub__ = operation("subtract")
    __mul__ = operation("multiply")
    __truediv__ = operation("true_divide")

    def __pow__(self, other: Any) -> Any:
        """See `aot.numpy.power`.  Raises NotImplementedError for exponents that make zeros nonzero."""
        if isinstance(other, int) and other <= 0:
            raise NotImplementedError(f"a sparse array to the power {other} would be dense. hint: use sparse.todense() to "
                                      "convert it to a dense array")
        return operation("power")(self, other)

    __neg__, __pos__, __abs__ = operation("negative"), operation("positive"), operation("abs")
    __radd__, __rsub__ = operation("add", reflected=True), operation("subtract", reflected=True)
    __rmul__, __rtruediv__ = operation("multiply", reflected=True), operation("true_divide", reflected=True)
    __rpow__ = operation("power", reflected=True)
    __eq__, __ne__ = operation("equal"), operation("not_equal")  # type: ignore[assignment]
    __lt__, __le__, __gt__, __ge__ = map(operation, ("less", "less_equal", "greater", "greater_equal"))

    def __iter__(self) -> Any:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return iter([self[i] for i in range(self.shape[0])])


def _without_zeros(mat: BCOO) -> BCOO:
    """Elements that are zero made absent."""
    n, s = mat.n_batch, mat.n_sparse
    if not s:
        return mat
    zero = jnp.all(mat.data == 0, axis=tuple(range(n + 1, mat.data.ndim)))
    batch = _storage.batch_shape(mat.data, mat.indices, n)
    zero = jnp.all(jnp.broadcast_to(zero, (*batch, mat.nse)), axis=tuple(
        i for i in range(n) if mat.indices.shape[i] != batch[i]), keepdims=True)
    sparse = mat.layout.groups(mat.shape)[1]
    indices = jnp.where(zero[..., None], _storage.limits(sparse, mat.indices.dtype), mat.indices)
    return BCOO((mat.data, indices), shape=mat.shape)


def _tracer_name(x: Any) -> str:
    from aot.trace import is_tracer
    name = type(x.owner).__name__.replace("StageTrace", "DynamicJaxprTrace") + "r" if is_tracer(x) else ""
    return name


def is_dense(x: Any) -> bool:
    """Whether x is an array of numbers, and not a sparse one."""
    return isinstance(x, (ArrayMethods, np.ndarray, np.generic, bool, int, float, complex))


def require(x: Any, name: str) -> None:
    """TypeError unless x is a BCOO array."""
    if not isinstance(x, BCOO):
        raise TypeError(f"{name}: expected a BCOO array, got {type(x).__name__}. hint: BCOO.fromdense makes one of a dense "
                        f"array")


def integer_dtype(dtype: Any) -> Any:
    """The dtype of indices; TypeError for one that has no integers."""
    if not dtypes.issubdtype(np.dtype(dtype), np.integer):
        raise TypeError(f"indices have an integer dtype, not {np.dtype(dtype)}")
    return dtypes.canonicalize_dtype(dtype)


__all__ = ["BCOO", "integer_dtype", "is_dense", "lax", "require"]
