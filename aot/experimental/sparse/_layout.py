"""BCOO with other numbers of batch and dense dimensions."""
from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot.experimental.sparse._bcoo import BCOO, require
from aot.experimental.sparse._storage import columns
from aot.experimental.sparse.util import SparseEfficiencyError, SparseEfficiencyWarning, over_batch

Array = Any


def bcoo_update_layout(mat: BCOO, *, n_batch: int | None = None, n_dense: int | None = None,
                       on_inefficient: str | None = "error") -> BCOO:
    """The same array, stored with these numbers of batch and dense dimensions (None: as they are).

    More of either repeats elements: each stored element takes a row of the new dimensions, mostly zeros, unless these have a
    size of 0 or 1.  on_inefficient says what to do then: 'error' (SparseEfficiencyError), 'warn' (SparseEfficiencyWarning), or
    None.  Raises ValueError for numbers that are negative or together exceed mat.ndim.
    """
    require(mat, "bcoo_update_layout")
    n_batch = int(mat.n_batch if n_batch is None else n_batch)
    n_dense = int(mat.n_dense if n_dense is None else n_dense)
    _check_numbers(mat, n_batch, n_dense)
    if (n_batch, n_dense) == (mat.n_batch, mat.n_dense):
        return mat
    _check_dense(mat, n_dense, on_inefficient)
    _check_batch(mat, n_batch, on_inefficient)
    data, indices = _all_batches(mat) if n_batch < mat.n_batch else (mat.data, mat.indices)
    fewer, have = min(n_batch, mat.n_batch), mat.n_batch
    if n_batch < have:
        data, indices = over_batch(lambda d, i: _fewer_batch(d, i, mat.shape[n_batch:have]), n_batch)(data, indices)
    if n_dense < mat.n_dense:
        data, indices = over_batch(lambda d, i: _fewer_dense(d, i, mat.n_dense - n_dense), fewer)(data, indices)
    if n_dense > mat.n_dense:
        data, indices = over_batch(lambda d, i: _more_dense(d, i, _new_dense(mat, n_dense)), fewer)(data, indices)
    if n_batch > have:
        data, indices = over_batch(lambda d, i: _more_batch(d, i, mat.shape[have:n_batch]), have)(data, indices)
    return BCOO((data, indices), shape=mat.shape)


def _check_numbers(mat: BCOO, n_batch: int, n_dense: int) -> None:
    for name, n in (("n_batch", n_batch), ("n_dense", n_dense)):
        if n < 0:
            raise ValueError(f"{name} must be non-negative; got {n}")
    if n_batch + n_dense > mat.ndim:
        raise ValueError(f"sum of {n_batch=} and {n_dense=} cannot be larger than mat.ndim={mat.ndim}.")


def _new_dense(mat: BCOO, n_dense: int) -> tuple[int, ...]:
    return mat.shape[mat.ndim - n_dense:mat.ndim - mat.n_dense]


def _check_dense(mat: BCOO, n_dense: int, on_inefficient: str | None) -> None:
    if n_dense > mat.n_dense and any(n > 1 for n in _new_dense(mat, n_dense)):
        _inefficient(f"For matrix of shape {mat.shape}, increasing n_dense from {mat.n_dense} to {n_dense}", on_inefficient)


def _check_batch(mat: BCOO, n_batch: int, on_inefficient: str | None) -> None:
    if n_batch > mat.n_batch and any(n > 1 for n in mat.shape[mat.n_batch:n_batch]):
        _inefficient(f"For matrix of shape {mat.shape}, increasing n_batch from {mat.n_batch} to {n_batch}", on_inefficient)


def _inefficient(what: str, action: str | None) -> None:
    text = f"{what} stores many zeros explicitly. hint: to "
    if action == "error":
        raise SparseEfficiencyError(text + "do so all the same, pass on_inefficient='warn' or None to bcoo_update_layout")
    if action == "warn":
        warnings.warn(text + "silence this warning, pass on_inefficient=None to bcoo_update_layout",
                      category=SparseEfficiencyWarning, stacklevel=4)
    elif action is not None:
        raise ValueError(f"on_inefficient={action!r}; expected one of ['error', 'warn', None].")


def all_batches(data: Array, indices: Array, batch: Sequence[int]) -> tuple[Array, Array]:
    """Both arrays with the full batch sizes."""
    n = len(batch)
    return (jnp.broadcast_to(data, (*batch, *data.shape[n:])), jnp.broadcast_to(indices, (*batch, *indices.shape[n:])))


def _all_batches(mat: BCOO) -> tuple[Array, Array]: return all_batches(mat.data, mat.indices, mat.shape[:mat.n_batch])


# ---- one step each, for one batch ------------------------------------------------------------------------------------

def _more_dense(data: Array, indices: Array, new: Sequence[int]) -> tuple:
    """The last sparse dimensions become dense: each element lies in a block of zeros."""
    keep = indices.shape[1] - len(new)
    block = jnp.zeros((data.shape[0], *new, *data.shape[1:]), data.dtype)
    rows = jnp.arange(data.shape[0], dtype=indices.dtype)
    return block.at[(rows, *columns(indices)[keep:])].set(data, mode="drop"), indices[:, :keep]


def _more_batch(data: Array, indices: Array, new: Sequence[int]) -> tuple:
    """The first sparse dimensions become batch: each batch has room for all elements."""
    n, nse = len(new), data.shape[0]
    rows = jnp.arange(nse, dtype=indices.dtype)
    out = jnp.zeros((*new, *data.shape), data.dtype).at[(*columns(indices)[:n], rows)].set(data, mode="drop")
    return out, jnp.broadcast_to(indices[:, n:], (*new, nse, indices.shape[1] - n))


def _fewer_dense(data: Array, indices: Array, n: int) -> tuple:
    """The first dense dimensions become sparse."""
    sizes = data.shape[1:n + 1]
    grid = _positions(sizes, indices.dtype)
    nse, s = indices.shape
    both = jnp.concatenate([jnp.broadcast_to(indices[:, None], (nse, len(grid), s)),
                            jnp.broadcast_to(grid, (nse, len(grid), n))], axis=-1)
    return data.reshape(nse * len(grid), *data.shape[n + 1:]), both.reshape(nse * len(grid), s + n)


def _fewer_batch(data: Array, indices: Array, sizes: Sequence[int]) -> tuple:
    """The last batch dimensions become sparse."""
    n = len(sizes)
    grid = _positions(sizes, indices.dtype)
    nse, s = indices.shape[n:]
    indices = indices.reshape(len(grid), nse, s)
    both = jnp.concatenate([jnp.broadcast_to(grid[:, None], (len(grid), nse, n)), indices], axis=-1)
    return data.reshape(len(grid) * nse, *data.shape[n + 1:]), both.reshape(len(grid) * nse, s + n)


def _positions(sizes: Sequence[int], dtype: Any) -> np.ndarray:
    """All positions in an array of these sizes, in order: [number, len(sizes)]."""
    return np.moveaxis(np.indices(tuple(sizes)), 0, -1).reshape(-1, len(sizes)).astype(dtype)
