"""sort, argsort, partition, lexsort, searchsorted, digitize."""
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from aot import lax
from aot.api import vmap
from aot.numpy._util import (
    array_of,
    arrays,
    axis_of,
    cast,
    check,
    complexes,
    concrete,
    default_int,
    index_dtype,
    kind,
    named,
    promote,
    user_dtype,
    where,
)


def _no_kind(name: str, sort_kind: Any, order: Any) -> None:
    if sort_kind is not None:
        raise TypeError(f"'kind' argument to {name} is not supported. Use stable=True or stable=False to specify sort "
                        "stability.")
    if order is not None:
        raise TypeError(f"'order' argument to {name} is not supported.")


def _one_axis(a: Any, axis: int | None) -> tuple[Any, int]:
    if axis is None:
        return lax.reshape(a, (a.size,)), 0
    return a, axis_of(axis, a.ndim)


@named("axis", "kind", "order", "stable", "descending")
def sort(a: Any, axis: int | None = -1, *, kind: None = None, order: None = None, stable: bool = True,
         descending: bool = False) -> Any:
    """Elements in ascending order along `axis`; nan comes last."""
    a = arrays("sort", a)
    _no_kind("sort", kind, order)
    a, axis = _one_axis(a, axis)
    out = lax.sort(a, dimension=axis, is_stable=stable)
    return lax.rev(out, (axis,)) if descending else out


@named("axis", "kind", "order", "stable", "descending", "dtype")
def argsort(a: Any, axis: int | None = -1, *, kind: None = None, order: None = None, stable: bool = True,
            descending: bool = False, dtype: Any = None) -> Any:
    """Positions that would sort `a` along `axis`."""
    a = arrays("argsort", a)
    _no_kind("argsort", kind, order)
    a, axis = _one_axis(a, axis)
    itype = index_dtype(a.shape[axis]) if dtype is None else user_dtype(dtype, "argsort")
    positions = lax.broadcasted_iota(itype, a.shape, axis)
    if descending and stable:  # reversing twice keeps the order of equal elements
        a, positions = lax.rev(a, (axis,)), lax.rev(positions, (axis,))
    _, out = lax.sort_key_val(a, positions, dimension=axis, is_stable=stable)
    return lax.rev(out, (axis,)) if descending else out


def _last(a: Any, axis: int) -> Any:
    """`axis` swapped with the last one."""
    perm = list(range(a.ndim))
    perm[axis], perm[-1] = perm[-1], perm[axis]
    return lax.transpose(a, tuple(perm)) if axis != a.ndim - 1 else a


def _partition_arguments(name: str, a: Any, kth: int, axis: int) -> tuple[Any, int, int]:
    a = arrays(name, a)
    if kind(a.dtype) == "c":
        raise NotImplementedError(f"jnp.{name} for complex dtype is not implemented.")
    axis = axis_of(axis, a.ndim)
    return _last(a, axis), axis_of(kth, a.shape[axis]), axis


def _negated(a: Any) -> Any:
    """The reversed order; for unsigned integers, -x wraps 0 to itself, so all bits are flipped instead."""
    return lax.bitwise_not(a) if kind(a.dtype) == "u" else lax.neg(a)


@named("kth", "axis")
def partition(a: Any, kth: int, axis: int = -1) -> Any:
    """The kth smallest element in its sorted place, smaller ones before it, larger ones behind."""
    a, kth, axis = _partition_arguments("partition", a, kth, axis)
    low = _negated(lax.top_k(_negated(a), kth + 1)[0])
    high = lax.top_k(a, a.shape[-1] - kth - 1)[0]
    return _last(lax.concatenate([low, high], a.ndim - 1), axis)


@named("kth", "axis")
def argpartition(a: Any, kth: int, axis: int = -1) -> Any:
    """Positions that would partition `a`."""
    a, kth, axis = _partition_arguments("argpartition", a, kth, axis)
    low = lax.top_k(_negated(a), kth + 1)[1]
    # Whatever is not among the lower ones: mark those with 0 and take the rest.
    clear = lambda row, i: row.at[i].set(0)
    for _ in range(a.ndim - 1):
        clear = vmap(clear)
    rest = lax.top_k(clear(lax.full(a.shape, 1.0), low), a.shape[-1] - kth - 1)[1]
    return _last(lax.concatenate([low, rest], a.ndim - 1), axis)


@named()
def sort_complex(a: Any) -> Any:
    """Sorted by real, then imaginary part, as complex numbers."""
    a = lax.sort(arrays("sort_complex", a))
    return lax.convert_element_type(a, complexes(a.dtype))


@named("axis")
def lexsort(keys: Any, axis: int = -1) -> Any:
    """Positions that sort by several keys, the last one being the most significant."""
    keys = tuple(keys)
    check("lexsort", *keys)
    keys = [array_of(k) for k in keys]
    if not keys:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    if len({k.shape for k in keys}) > 1:
        raise ValueError("all keys need to be the same shape")
    if keys[0].ndim == 0:
        return lax.full((), 0, default_int())
    axis = axis_of(axis, keys[0].ndim)
    positions = lax.broadcasted_iota(index_dtype(keys[0].shape[axis]), keys[0].shape, axis)
    return lax.sort((*keys[::-1], positions), dimension=axis, num_keys=len(keys))[-1]


# ---- searching -------------------------------------------------------------------------------------------------------
def _less(x: Any, y: Any, or_equal: bool) -> Any:
    """x < y (or <=) in sorting order: nan is the largest number, and complex numbers compare by parts."""
    letter = kind(x.dtype)
    if letter == "c":
        (xr, xi), (yr, yi) = [(lax.real(v), lax.imag(v)) for v in (x, y)]
        return lax.select(_same(xr, yr), _less(xi, yi, or_equal), _less(xr, yr, or_equal))
    if letter != "f":
        return (lax.le if or_equal else lax.lt)(x, y)
    x_nan, y_nan = lax.ne(x, x), lax.ne(y, y)
    if or_equal:
        return lax.bitwise_or(lax.le(x, y), y_nan)
    return lax.bitwise_or(lax.lt(x, y), lax.bitwise_and(lax.bitwise_not(x_nan), y_nan))


def _same(x: Any, y: Any) -> Any:
    return lax.bitwise_or(lax.eq(x, y), lax.bitwise_and(lax.ne(x, x), lax.ne(y, y)))


def _by_bisection(a: Any, v: Any, side: str, itype: Any, unroll: bool) -> Any:
    """All queries at once halve their intervals [low, high]."""
    n = a.shape[0]
    levels = math.ceil(math.log2(n + 1))

    def step(state, _):
        low, high = state
        middle = lax.add(low, lax.div(lax.sub(high, low), cast(2, itype)))
        at_middle = a.at[middle].get(mode="promise_in_bounds", wrap_negative_indices=False)
        left = _less(v, at_middle, or_equal=side == "left")
        return (lax.select(left, low, middle), lax.select(left, middle, high)), ()

    start = (lax.full(v.shape, 0, itype), lax.full(v.shape, n, itype))
    (_, high), _ = lax.scan(step, start, (), length=levels, unroll=levels if unroll else 1)
    return high


def _by_comparing(a: Any, v: Any, side: str, itype: Any) -> Any:
    """How many elements come before each query."""
    shape = (a.shape[0], *v.shape)
    rows, queries = lax.broadcast_in_dim(a, shape, (0,)), lax.broadcast_in_dim(v, shape, tuple(range(1, v.ndim + 1)))
    before = _less(rows, queries, or_equal=side == "right")
    return lax.reduce_sum(lax.convert_element_type(before, itype), axes=(0,))


def _by_sorting(a: Any, v: Any, side: str, itype: Any) -> Any:
    """Sort queries and array together: the rank among both minus the rank among the queries."""

    def rank(x):
        positions = lax.iota(itype, x.shape[0])
        return lax.full_like(positions, 0).at[lax.sort_key_val(x, positions)[1]].set(positions)

    flat = lax.reshape(v, (v.size,))
    if side == "left":
        together = lax.slice_in_dim(rank(lax.concatenate([flat, a], 0)), 0, v.size)
    else:
        together = lax.slice_in_dim(rank(lax.concatenate([a, flat], 0)), a.shape[0], None)
    return lax.reshape(lax.sub(together, rank(flat)), v.shape)


_METHODS = {
    "scan": functools.partial(_by_bisection, unroll=False), "scan_unrolled": functools.partial(_by_bisection, unroll=True),
    "compare_all": _by_comparing, "sort": _by_sorting,
}


@named("side", "method")
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None, *, method: str = "scan") -> Any:
    """Where to insert `v` into the sorted `a`, before (side "left") or behind equal elements."""
    a, v = arrays("searchsorted", a, v)
    if side not in ("left", "right"):
        raise ValueError(f"invalid argument {side=}, expected 'left' or 'right'")
    if method not in _METHODS:
        raise ValueError(f"invalid argument {method=}, expected one of {list(_METHODS)}")
    if a.ndim != 1:
        raise ValueError("a should be 1-dimensional")
    a, v = [array_of(x) for x in promote(a, v)]
    a = a if sorter is None else a[arrays("searchsorted", sorter)]
    itype = np.dtype(np.int64 if a.shape[0] > np.iinfo(np.int32).max else np.int32)
    if a.shape[0] == 0:
        return lax.full(v.shape, 0, itype)
    return _METHODS[method](a, v, side, itype)


@named("right", "method")
def digitize(x: Any, bins: Any, right: bool = False, *, method: str | None = None) -> Any:
    """In which bin each element falls; `bins` are edges in ascending or descending order."""
    x, bins = arrays("digitize", x, bins)
    right = bool(concrete(right, "right argument of jnp.digitize()"))
    if bins.ndim != 1:
        raise ValueError(f"digitize: bins must be a 1-dimensional array; got {bins=}")
    n = bins.shape[0]
    if n == 0:
        return lax.full(x.shape, 0, np.int32)
    find = functools.partial(searchsorted, side="left" if right else "right", method=method or "scan")
    backwards = find(lax.rev(bins, (0,)), x)
    ascending = lax.index_in_dim(bins, -1, keepdims=False) >= lax.index_in_dim(bins, 0, keepdims=False)
    return where(ascending, find(bins, x), n - backwards)


