"""Sets of numbers: unique, isin, intersections, unions, differences.

The size of a result depends on the values, so traced arguments need `size`: results are then cut, or padded with
`fill_value`, to that many elements.
"""
from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from aot import lax
from aot.numpy import reductions
from aot.numpy._util import (
    BOOL,
    array_of,
    arrays,
    axis_of,
    cast,
    concrete,
    concrete_index,
    default_int,
    kind,
    named,
    promote,
)
from aot.numpy._util import where as _where
from aot.numpy.differences import diff
from aot.numpy.elementwise import isnan
from aot.numpy.selecting import nonzero
from aot.numpy.shapes import moveaxis
from aot.numpy.sorting import lexsort, searchsorted

_SIZE_HINT = ("To make jnp.unique() compatible with JIT and other transforms, you can specify a concrete value for the size "
              "argument, which will determine the output size.")


class UniqueAll(NamedTuple):
    """Result of `unique_all`."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """Result of `unique_counts`."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """Result of `unique_inverse`."""

    values: Any
    inverse_indices: Any


# ---- unique ----------------------------------------------------------------------------------------------------------
@named("axis", "equal_nan")
def _unique_sorted_mask(a: Any, axis: int, equal_nan: bool) -> tuple[Any, Any, Any]:
    """Slices along `axis` in sorted order, where a new one begins, and where each came from."""
    rows = moveaxis(a, axis, 0)
    if kind(rows.dtype) == "c":
        rows = _where(isnan(rows), cast(np.nan, rows.dtype), rows)
    n, width = rows.shape[0], math.prod(rows.shape[1:])
    if width == 0:
        n, order = 1, lax.full((1,), 0, default_int())
    else:
        order = lexsort(lax.reshape(rows, (n, width)).T[::-1])
    rows = rows[order] if rows.shape[0] else rows
    if rows.size == 0:
        return rows, lax.full((n,), False, BOOL), order
    later, sooner = rows[1:], rows[:-1]
    changed = lax.ne(later, sooner)
    if kind(rows.dtype) in "fc" and equal_nan:
        changed = changed & ~(isnan(later) & isnan(sooner))
    changed = reductions.any(changed, tuple(range(1, rows.ndim)))
    return rows, lax.concatenate([lax.full((1,), True, BOOL), changed], 0), order


def unique_of(a: Any, axis: int, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
              equal_nan: bool = True, size: int | None = None, fill_value: Any = None,
              return_true_size: bool = False) -> tuple[Any, ...]:
    """The unique slices along `axis` and whatever else is asked for, always as a tuple."""
    n = a.shape[axis]
    if n == 0 and size and fill_value is None:
        raise ValueError("jnp.unique: for zero-sized input with nonzero size argument, fill_value must be specified")
    rows, starts, order = _unique_sorted_mask(a, axis=axis, equal_nan=equal_nan)
    if size is None:
        known = np.asarray(concrete(starts, "The error arose in jnp.unique(). " + _SIZE_HINT))
        first = np.nonzero(known)[0].astype(np.int32)
    else:
        (first,) = nonzero(starts, size=size)
    values = rows[first] if rows.size else rows
    if size is not None and fill_value is not None:
        values = _filled(values, starts, size, fill_value)
    out = [moveaxis(values, 0, axis)]
    if return_index:
        out.append(order[first] if rows.size else order)
    if return_inverse:
        out.append(_inverse(starts, order, n if rows.size == 0 else None))
    if return_counts:
        out.append(_counts(starts, size, n, rows.size == 0))
    if return_true_size:
        out.append(reductions.sum(starts))
    return tuple(out)


def _filled(values: Any, starts: Any, size: int, fill_value: Any) -> Any:
    """`fill_value` behind the last unique slice."""
    fill = lax.convert_element_type(fill_value, values.dtype)
    if values.shape[0] == 0:
        return _broadcast(fill, (size, *values.shape[1:]))
    valid = lax.iota(default_int(), size) < reductions.sum(starts)
    return _where(lax.expand_dims(valid, tuple(range(1, values.ndim))), values, fill)


def _broadcast(x: Any, shape: tuple[int, ...]) -> Any:
    from aot.numpy._util import broadcast_to

    return broadcast_to(x, shape)


def _inverse(starts: Any, order: Any, empty: int | None) -> Any:
    """For each slice, the number of its unique value."""
    if empty is not None:
        return lax.full((empty,), 0, default_int())
    number = reductions.cumsum(starts) - 1
    return lax.full(starts.shape, 0, default_int()).at[order].set(number)


def _counts(starts: Any, size: int | None, n: int, empty: bool) -> Any:
    if empty:
        return lax.full((1,), n, default_int()) if n else lax.full((0,), 0, default_int())
    total = starts.shape[0]
    if size is None:
        (at,) = nonzero(starts)
        return diff(lax.concatenate([at, lax.full((1,), total, at.dtype)], 0))
    (at,) = nonzero(starts, size=size + 1)
    rest = at[1:]
    at = at.at[1:].set(_where(rest != 0, rest, total))
    return diff(at)


def unique(ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
           axis: int | None = None, *, equal_nan: bool = True, size: int | None = None, fill_value: Any = None,
           sorted: bool = True) -> Any:
    """Unique elements (or slices along `axis`) in sorted order; also where they first occur, the number of its unique
    value for each element, and how often each occurs. A traced argument needs `size`."""
    a = arrays("unique", ar)
    if size is None:
        a = concrete(a, "The error arose for the first argument of jnp.unique(). " + _SIZE_HINT)
    else:
        size = concrete_index(size, "The error arose for the size argument of jnp.unique(). " + _SIZE_HINT)
    shape, flat = a.shape, axis is None
    a = lax.reshape(a, (a.size,)) if flat else a
    axis = 0 if flat else axis_of(axis, a.ndim)
    out = unique_of(a, axis, return_index, return_inverse, return_counts, equal_nan, size, fill_value)
    if return_inverse and flat:
        at = 2 if return_index else 1
        out = (*out[:at], lax.reshape(out[at], shape), *out[at + 1:])
    return out[0] if len(out) == 1 else out


def unique_all(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueAll:
    """Unique elements, their first positions, the inverse and the counts; every nan is its own value."""
    return UniqueAll(*unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value))


def unique_counts(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueCounts:
    """Unique elements and how often each occurs; every nan is its own value."""
    return UniqueCounts(*unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_inverse(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueInverse:
    """Unique elements and, for each element of x, the number of its value; every nan is its own value."""
    return UniqueInverse(*unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_values(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Unique elements; every nan is its own value."""
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


# ---- membership ------------------------------------------------------------------------------------------------------
@named("invert", "method", "assume_unique")
def _in1d(x: Any, among: Any, invert: bool, method: str = "auto", assume_unique: bool = False) -> Any:
    x, among = [lax.reshape(array_of(v), (v.size,)) for v in promote(x, among)]
    if x.size == 0 or among.size == 0:
        return lax.full(x.shape, invert, BOOL)
    if method in ("auto", "compare_all"):
        found = reductions.any(x[:, None] == among[None, :], -1)
    elif method == "binary_search":
        among = lax.sort(among)
        found = x == among[searchsorted(among, x)]
    elif method == "sort":
        found = _in1d_by_sorting(x, among, assume_unique)
    else:
        raise ValueError(f"{method=} is not implemented; options are 'compare_all', 'binary_search', 'sort', and 'auto'")
    return ~found if invert else found


def _in1d_by_sorting(x: Any, among: Any, assume_unique: bool) -> Any:
    """In sorted order, an element that is also in `among` is directly before its equal."""
    back: Any = slice(None)
    if not assume_unique:
        x, back = unique(x, size=x.size, return_inverse=True, fill_value=reductions.max(among))
    both = lax.concatenate([x, among], 0)
    ordered, at = lax.sort_key_val(both, lax.iota(np.int32, both.size))
    found = lax.full(x.shape, False, BOOL).at[at[:-1]].set(ordered[1:] == ordered[:-1], mode="drop")
    return found[back]


def isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *,
         method: str = "auto") -> Any:
    """For each element, whether it is among `test_elements`."""
    element, test_elements = arrays("isin", element, test_elements)
    out = _in1d(element, test_elements, invert=invert, method=method, assume_unique=assume_unique)
    return lax.reshape(out, element.shape)


# ---- set operations --------------------------------------------------------------------------------------------------
def _flat(x: Any) -> Any:
    return lax.reshape(x, (x.size,))


def _known_size(name: str, size: Any, *args: Any) -> int | None:
    """`size` as an int, or None, in which case the values must be known."""
    if size is not None:
        return concrete_index(size, f"The error arose in {name}()")
    for x in args:
        concrete(x, f"The error arose in {name}()")
    return None


def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Unique elements of the first array that are not in the second."""
    a, b = [_flat(x) for x in arrays("setdiff1d", ar1, ar2)]
    size = _known_size("setdiff1d", size, a)
    fill = lax.full_like(a, 0 if fill_value is None else fill_value, shape=())
    if a.size == 0:
        return _broadcast(fill, (size or 0,))
    if not assume_unique:
        a = unique(a, size=None if size is None else a.size)
    keep = _in1d(a, b, invert=True, assume_unique=assume_unique)
    if size is None:
        return a[keep]
    if not assume_unique:  # behind the unique elements, the first one is repeated
        count = a.size + 1 - reductions.sum(a == a[0])
        keep = keep & (lax.iota(default_int(), a.size) < count)
    (at,) = nonzero(keep, size=size)
    return _where(lax.iota(default_int(), size) < reductions.sum(keep), a[at], fill)


def union1d(ar1: Any, ar2: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Unique elements of both arrays."""
    a, b = promote(*arrays("union1d", ar1, ar2))
    size = _known_size("union1d", size, a, b)
    return unique(lax.concatenate([_flat(array_of(a)), _flat(array_of(b))], 0), size=size, fill_value=fill_value)


def _pad_results(values: Any, count: Any, fill_value: Any) -> Any:
    """Behind the first `count` results: `fill_value`, or else the smallest result."""
    there = lax.iota(default_int(), values.shape[0]) < count
    if fill_value is not None:
        return _where(there, values, fill_value)
    values = _where(there, values, reductions.max(values)) if values.shape[0] else values
    return _where(there, values, reductions.min(values)) if values.shape[0] else values


def _pad_positions(at: Any, count: Any, beyond: int) -> Any:
    return _where(lax.iota(default_int(), at.shape[0]) < count, at, beyond)


def _unique_pair(a: Any, b: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Unique elements of a, then those of b, without a gap; how many are valid in all, how many are from a, and the
    positions they came from."""
    a, from_a, count_a = unique_of(a, 0, return_index=True, size=a.size, fill_value=0, return_true_size=True)
    b, from_b, count_b = unique_of(b, 0, return_index=True, size=b.size, fill_value=0, return_true_size=True)
    both = lax.full((a.size + b.size,), 0, a.dtype)
    both = lax.dynamic_update_slice(both, a, (0,))
    both = lax.dynamic_update_slice(both, b, (count_a,))
    return both, count_a + count_b, count_a, from_a, from_b


def _sorted_pairs(a: Any, b: Any, assume_unique: bool) -> tuple[Any, Any, Any, Any, Any, Any]:
    """All elements sorted (invalid ones last), their positions before, the number of valid ones, and, from
    `_unique_pair`, the number from a and the original positions."""
    if assume_unique:
        both = lax.concatenate([a, b], 0)
        count, count_a = both.size, a.size
        from_a, from_b = lax.iota(default_int(), a.size), lax.iota(default_int(), b.size)
    else:
        both, count, count_a, from_a, from_b = _unique_pair(a, b)
    position = lax.iota(default_int(), both.size)
    _, ordered, at = lax.sort((position >= count, both, position), dimension=0, is_stable=True, num_keys=2)
    return ordered, at, position < count, count_a, from_a, from_b


@named("assume_unique", "size")
def _setxor1d_sized(a: Any, b: Any, fill_value: Any, *, assume_unique: bool, size: int) -> Any:
    ordered, _, valid, *_ = _sorted_pairs(a, b, assume_unique)
    if ordered.size == 0:
        return lax.full((size,), 0 if fill_value is None else fill_value, ordered.dtype)
    same = (ordered[1:] == ordered[:-1]) & valid[1:]
    no = lax.full((1,), False, BOOL)
    alone = valid & ~lax.concatenate([no, same], 0) & ~lax.concatenate([same, no], 0)
    (at,) = nonzero(alone, size=size, fill_value=ordered.size)
    values = ordered.at[at].get(mode="fill", fill_value=0)
    return _pad_results(values, reductions.sum(alone), fill_value)


def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Elements that are in exactly one of the arrays."""
    a, b = [_flat(array_of(x)) for x in promote(*arrays("setxor1d", ar1, ar2))]
    if size is not None:
        return _setxor1d_sized(a, b, fill_value, assume_unique=assume_unique, size=size)
    a, b = (a, b) if assume_unique else (unique(a), unique(b))
    both = lax.sort(lax.concatenate([a, b], 0))
    if both.size == 0:
        return both
    yes = lax.full((1,), True, BOOL)
    edge = lax.concatenate([yes, both[1:] != both[:-1], yes], 0)
    return both[edge[1:] & edge[:-1]]


@named("assume_unique", "size", "return_indices")
def _intersect1d_sized(a: Any, b: Any, fill_value: Any, assume_unique: bool, size: int, return_indices: bool) -> Any:
    ordered, at, valid, count_a, from_a, from_b = _sorted_pairs(a, b, assume_unique)
    n = ordered.size
    twice = (ordered[1:] == ordered[:-1]) & valid[1:]
    count = reductions.sum(twice)
    (where_,) = nonzero(twice, size=size, fill_value=n) if n > 1 else (lax.full((size,), n, default_int()),)
    values = ordered.at[where_].get(mode="fill", fill_value=0) if n else lax.full((size,), 0, ordered.dtype)
    values = _pad_results(values, count, fill_value)
    if not return_indices:
        return values
    i = _pad_positions(at.at[where_].get(mode="fill", fill_value=a.size), count, a.size)
    j = _pad_positions(at.at[where_ + 1].get(mode="fill", fill_value=b.size) - count_a, count, b.size)
    return (values, from_a.at[i].get(mode="fill", fill_value=a.size), from_b.at[j].get(mode="fill", fill_value=b.size))


def intersect1d(ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False, *, size: int | None = None,
                fill_value: Any = None) -> Any:
    """Unique elements that are in both arrays, and optionally their first positions in each."""
    a, b = [_flat(array_of(x)) for x in promote(*arrays("intersect1d", ar1, ar2))]
    if size is not None:
        return _intersect1d_sized(a, b, fill_value, assume_unique=assume_unique, size=size, return_indices=return_indices)
    from_a = from_b = None
    if not assume_unique:
        a, from_a = unique(a, return_index=True)
        b, from_b = unique(b, return_index=True)
    both = lax.concatenate([a, b], 0)
    ordered, at = lax.sort_key_val(both, lax.iota(np.int32, both.size))
    twice = ordered[1:] == ordered[:-1]
    values = ordered[:-1][twice]
    if not return_indices:
        return values
    i, j = at[:-1][twice], at[1:][twice] - a.size
    return (values, i, j) if assume_unique else (values, from_a[i], from_b[j])
