"""Functions for every sparse format."""
from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import aot.numpy as jnp
from aot.experimental.sparse._base import JAXSparse
from aot.experimental.sparse._primitive import primitive
from aot.experimental.sparse.bcoo import BCOO
from aot.experimental.sparse.bcsr import BCSR
from aot.experimental.sparse.coo import COO
from aot.experimental.sparse.csr import CSC, CSR
from aot.tree_util import tree_flatten

Array = Any
_FORMATS: dict[str, Any] = {"bcsr": BCSR, "bcoo": BCOO, "coo": COO, "csr": CSR, "csc": CSC}


@primitive("todense")
def todense_p(*arrays: Array, tree: Any) -> Array:
    mat = tree.unflatten(arrays)
    return mat.todense() if isinstance(mat, JAXSparse) else mat


def todense(arr: Any) -> Array:
    """A sparse array as a dense one; a dense one as it is.  Inside `sparsify` it makes its argument dense."""
    arrays, tree = tree_flatten(arr if isinstance(arr, JAXSparse) else jnp.asarray(arr))
    return todense_p(*arrays, tree=tree)


def empty(shape: Sequence[int], dtype: Any = None, index_dtype: Any = "int32", sparse_format: str = "bcoo", **kwds: Any) -> Any:
    """A sparse array of zeros: 'bcoo', 'bcsr' (both take nse, n_batch, n_dense), 'coo', 'csr' or 'csc'."""
    return _format(sparse_format)._empty(shape, dtype=dtype, index_dtype=index_dtype, **kwds)


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None, index_dtype: Any = "int32", sparse_format: str = "bcoo",
        **kwds: Any) -> Any:
    """Ones on the k-th diagonal of an N x M matrix (N x N by default), in the formats of `empty` but 'bcsr'."""
    M = N if M is None else M
    cls = _format(sparse_format)
    if not hasattr(cls, "_eye"):
        raise NotImplementedError(f"eye has no sparse_format={sparse_format!r}. hint: BCSR.from_bcoo(sparse.eye(N))")
    return cls._eye(operator.index(N), operator.index(M), operator.index(k), dtype=dtype, index_dtype=index_dtype, **kwds)


def _format(name: str) -> Any:
    if name not in _FORMATS:
        raise ValueError(f"sparse_format={name!r} not recognized; must be one of {list(_FORMATS)}")
    return _FORMATS[name]
