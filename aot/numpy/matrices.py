"""Matrices by pattern: eye, tri, tril, triu, diag, diagonal, trace, and the index arrays that go with them."""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from aot import lax
from aot.api import device_put
from aot.numpy import _util, reductions
from aot.numpy._util import (
    arrays,
    axis_of,
    concrete_index,
    default_float,
    index_dtype,
    kind,
    named,
    no_out,
    user_dtype,
    where,
)
from aot.numpy.selecting import nonzero, tile_to
from aot.numpy.shapes import moveaxis


def _band(n: int, m: int, k: Any, op: Callable) -> Any:
    """`op(i + k, j)` of row i and column j."""
    rows, columns = lax.broadcasted_iota(np.int32, (n, m), 0), lax.broadcasted_iota(np.int32, (n, m), 1)
    return op(lax.add(rows, lax.convert_element_type(k, np.int32)), columns)


def eye(N: Any, M: Any = None, k: Any = 0, dtype: Any = None, *, device: Any = None) -> Any:
    """N x M zeros with ones on diagonal number k."""
    dtype = default_float() if dtype is None else user_dtype(dtype, "eye")
    if not isinstance(k, int):
        k = arrays("eye", k)
        if k.shape != () or kind(k.dtype) not in "ui":
            raise ValueError(f"k must be a scalar integer; got {k}")
    n = concrete_index(N, "argument of 'N' jnp.eye()")
    m = n if M is None else concrete_index(M, "argument 'M' of jnp.eye()")
    if n < 0 or m < 0:
        raise ValueError(f"negative dimensions are not allowed, got {N} and {M}")
    k = max(-(n + 1), min(k, m + 1)) if isinstance(k, int) else k
    out = lax.convert_element_type(_band(n, m, k, lax.eq), dtype)
    return out if device is None else device_put(out, device)


def identity(n: Any, dtype: Any = None) -> Any:
    """n x n identity matrix."""
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    """N x M with ones on and below diagonal number k, zeros above."""
    dtype = np.dtype(np.float32) if dtype is None else user_dtype(dtype, "tri")
    return lax.convert_element_type(_band(N, N if M is None else M, k, lax.ge), dtype)


def _masked(name: str, m: Any, k: int, keep_lower: bool) -> Any:
    m = arrays(name, m)
    if m.ndim < 2:
        raise ValueError(f"Argument to jax.numpy.{name} must be at least 2D")
    lower = tri(*m.shape[-2:], k=k if keep_lower else k - 1, dtype=bool)
    mask = lax.broadcast(lower, m.shape[:-2])
    zeros = lax.full_like(m, 0)
    return lax.select(mask, m, zeros) if keep_lower else lax.select(mask, zeros, m)


@named("k")
def tril(m: Any, k: int = 0) -> Any:
    """The lower triangle: zeros above diagonal number k."""
    return _masked("tril", m, k, True)


@named("k")
def triu(m: Any, k: int = 0) -> Any:
    """The upper triangle: zeros below diagonal number k."""
    return _masked("triu", m, k, False)


# ---- diagonals -------------------------------------------------------------------------------------------------------
@named("offset", "axis1", "axis2")
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Diagonal number `offset` of the matrices in two axes, as the last axis of the result."""
    a = arrays("diagonal", a)
    if a.ndim < 2:
        raise ValueError("diagonal requires an array of at least two dimensions.")
    offset = concrete_index(offset, "'offset' argument of jnp.diagonal()")
    a = moveaxis(a, (axis1, axis2), (-2, -1))
    n, m = a.shape[-2:]
    size = max(0, min(n + min(offset, 0), m - max(offset, 0)))
    i = np.arange(size, dtype=np.int32)
    return a[..., i + max(-offset, 0), i + max(offset, 0)]


def diag(v: Any, k: int = 0) -> Any:
    """A matrix with `v` on diagonal number k, or that diagonal of a matrix."""
    return _diag(arrays("diag", v), k=operator.index(k))


@named("k")
def _diag(v: Any, k: int) -> Any:
    if v.ndim == 2:
        return diagonal(v, offset=k)
    if v.ndim != 1:
        raise ValueError("diag input must be 1d or 2d")
    zero = lax.full((), 0, v.dtype)
    v = lax.pad(v, zero, ((max(0, -k), max(0, k), 0),))
    n = v.shape[0]
    return where(eye(n, k=k, dtype=bool), lax.broadcast_in_dim(v, (n, n), (0,)), zero)


def diagflat(v: Any, k: int = 0) -> Any:
    """A matrix with the flattened `v` on diagonal number k."""
    v = arrays("diagflat", v)
    flat = lax.reshape(v, (v.size,))
    n = flat.shape[0] + abs(k)
    i = np.arange(flat.shape[0], dtype=np.int32)
    return lax.full((n, n), 0, flat.dtype).at[i + max(-k, 0), i + max(k, 0)].set(flat)


def fill_diagonal(a: Any, val: Any, wrap: bool = False, *, inplace: bool = True) -> Any:
    """A copy with `val`, repeated if it is an array, on the main diagonal."""
    if inplace:
        raise NotImplementedError("JAX arrays are immutable, must use inplace=False")
    if wrap:
        raise NotImplementedError("wrap=True is not implemented, must use wrap=False")
    a, val = arrays("fill_diagonal", a, val)
    if a.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if a.ndim > 2 and len(set(a.shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    n = min(a.shape)
    value = val if val.ndim == 0 else tile_to(lax.reshape(val, (val.size,)), n)
    return a.at[diag_indices(n, a.ndim)].set(value)


@named("axis1", "axis2", "dtype")
def trace(a: Any, offset: Any = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None) -> Any:
    """Sum along diagonal number `offset`."""
    a = arrays("trace", a)
    no_out("trace", out)
    i, j = axis_of(axis1, a.ndim), axis_of(axis2, a.ndim)
    if i == j:
        raise ValueError(f"axis1 and axis2 can not be same. axis1={axis1} and axis2={axis2}")
    dtype = None if dtype is None else user_dtype(dtype, "trace")
    on_diagonal = eye(a.shape[i], a.shape[j], k=offset, dtype=bool)
    a = moveaxis(a, (i, j), (-2, -1))
    a = lax.select(_util.broadcast_to(on_diagonal, a.shape), a, lax.full_like(a, 0))
    return reductions.sum(a, axis=(-2, -1), dtype=dtype)


# ---- index arrays ----------------------------------------------------------------------------------------------------
def diag_indices(n: int, ndim: int = 2) -> tuple[Any, ...]:
    """Positions of the main diagonal of an array with `ndim` axes of size n."""
    n = concrete_index(n, "'n' argument of jnp.diag_indices()")
    ndim = concrete_index(ndim, "'ndim' argument of jnp.diag_indices()")
    if n < 0:
        raise ValueError(f"n argument to diag_indices must be nonnegative, got {n}")
    if ndim < 0:
        raise ValueError(f"ndim argument to diag_indices must be nonnegative, got {ndim}")
    return (lax.iota(index_dtype(n), n),) * ndim


def diag_indices_from(arr: Any) -> tuple[Any, ...]:
    """Positions of the main diagonal of `arr`."""
    arr = arrays("diag_indices_from", arr)
    if arr.ndim < 2:
        raise ValueError("input array must be at least 2-d")
    if len(set(arr.shape)) != 1:
        raise ValueError("All dimensions of input must be of equal length")
    return diag_indices(arr.shape[0], ndim=arr.ndim)


def mask_indices(n: int, mask_func: Callable[..., Any], k: int = 0, *, size: int | None = None) -> tuple[Any, Any]:
    """Positions that `mask_func(ones, k)` keeps of an n x n matrix."""
    i, j = nonzero(mask_func(lax.full((n, n), 1, default_float()), k), size=size)
    return i, j


def _triangle(name: str, n: Any, k: Any, m: Any, pick: Callable) -> tuple[Any, Any]:
    n, k = [concrete_index(x, f"argument of jnp.{name}") for x in (n, k)]
    m = n if m is None else concrete_index(m, f"m argument of jnp.{name}")
    rows, columns = np.nonzero(pick(np.ones((n, m)), k))
    from aot.numpy.creation import asarray

    itype = _util.default_int()
    return asarray(rows, dtype=itype), asarray(columns, dtype=itype)


def tril_indices(n: Any, k: Any = 0, m: Any = None) -> tuple[Any, Any]:
    """Positions of the lower triangle of an n x m matrix."""
    return _triangle("tril_indices", n, k, m, np.tril)


def triu_indices(n: Any, k: Any = 0, m: Any = None) -> tuple[Any, Any]:
    """Positions of the upper triangle of an n x m matrix."""
    return _triangle("triu_indices", n, k, m, np.triu)


def _two_sizes(name: str, arr: Any) -> tuple[int, int]:
    shape = arr.shape if hasattr(arr, "shape") else arrays(name, arr).shape
    if len(shape) != 2:
        raise ValueError("Only 2-D inputs are accepted")
    return shape


def tril_indices_from(arr: Any, k: int = 0) -> tuple[Any, Any]:
    """Positions of the lower triangle of `arr`."""
    n, m = _two_sizes("tril_indices_from", arr)
    return tril_indices(n, k=k, m=m)


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Any, Any]:
    """Positions of the upper triangle of `arr`."""
    n, m = _two_sizes("triu_indices_from", arr)
    return triu_indices(n, k=k, m=m)


