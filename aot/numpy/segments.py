"""Reductions over groups of rows that share a segment id (public as `aot.ops.segment_*`)."""
from __future__ import annotations

import operator
from typing import Any

import numpy as np

from aot import dtypes
from aot.numpy._util import check, concrete
from aot.numpy.creation import arange, asarray, full
from aot.numpy.reductions import max, min, prod, sum

Array = Any


def _identity(name: str, dtype: Any) -> Any:
    """What an empty segment reduces to: 0, 1, or the lowest or highest value."""
    if name in ("add", "multiply"):
        return dtype.type(name == "multiply")
    if dtype == np.bool_:
        return name == "min"
    if dtypes.issubdtype(dtype, np.inexact):
        return dtype.type(np.inf if name == "min" else -np.inf)
    info = dtypes.iinfo(dtype)
    return info.max if name == "min" else info.min


def _segments(function: str, method: str, reducer: Any, data: Array, segment_ids: Array, num_segments: int | None,
              indices_are_sorted: bool, unique_indices: bool, bucket_size: int | None, mode: Any) -> Array:
    check(function, data, segment_ids)
    data, ids = asarray(data), asarray(segment_ids)
    if num_segments is None:
        num_segments = np.max(concrete(ids, f"{function}() needs `num_segments` while tracing.")) + 1
    count = operator.index(concrete(num_segments, f"{function}() `num_segments` argument."))
    if count < 0:
        raise ValueError("num_segments must be non-negative.")
    options = {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices, "wrap_negative_indices": False,
               "mode": "drop" if mode is None else mode}
    start = _identity(method, data.dtype)
    if bucket_size is None:
        out = full((count, *data.shape[ids.ndim:]), start, dtype=data.dtype)
        return getattr(out.at[ids], method)(data, **options)
    out = full((-(-ids.size // bucket_size), count, *data.shape[1:]), start, dtype=data.dtype)
    out = getattr(out.at[arange(ids.shape[0]) // bucket_size, ids], method)(data, **options)
    return reducer(out, axis=0).astype(data.dtype)


def segment_sum(data: Array, segment_ids: Array, num_segments: int | None = None, indices_are_sorted: bool = False,
                unique_indices: bool = False, bucket_size: int | None = None, mode: Any = None,
                out_sharding: Any = None) -> Array:
    """Sums of the rows of data with equal ids: shape (num_segments, ...).

    segment_ids: integers, one a row; those outside of the range are dropped.  bucket_size: sum blocks of so many rows
    first, for numerical stability."""
    return _segments("segment_sum", "add", sum, data, segment_ids, num_segments, indices_are_sorted, unique_indices,
                     bucket_size, mode)


def segment_prod(data: Array, segment_ids: Array, num_segments: int | None = None, indices_are_sorted: bool = False,
                 unique_indices: bool = False, bucket_size: int | None = None, mode: Any = None,
                 out_sharding: Any = None) -> Array:
    """Products of the rows of data with equal ids; as segment_sum."""
    return _segments("segment_prod", "multiply", prod, data, segment_ids, num_segments, indices_are_sorted,
                     unique_indices, bucket_size, mode)


def segment_max(data: Array, segment_ids: Array, num_segments: int | None = None, indices_are_sorted: bool = False,
                unique_indices: bool = False, bucket_size: int | None = None, mode: Any = None,
                out_sharding: Any = None) -> Array:
    """Largest of the rows of data with equal ids (-inf or the lowest integer where there are none); as segment_sum."""
    return _segments("segment_max", "max", max, data, segment_ids, num_segments, indices_are_sorted, unique_indices,
                     bucket_size, mode)


def segment_min(data: Array, segment_ids: Array, num_segments: int | None = None, indices_are_sorted: bool = False,
                unique_indices: bool = False, bucket_size: int | None = None, mode: Any = None,
                out_sharding: Any = None) -> Array:
    """Smallest of the rows of data with equal ids (inf or the highest integer where there are none); as segment_sum."""
    return _segments("segment_min", "min", min, data, segment_ids, num_segments, indices_are_sorted, unique_indices,
                     bucket_size, mode)
