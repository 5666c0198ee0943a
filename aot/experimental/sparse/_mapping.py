"""`vmap` over sparse arrays: the mapped axis is one of their batch dimensions, inside and outside."""
from __future__ import annotations

from typing import Any

import aot.numpy as jnp
from aot.experimental.sparse.util import common_size
from aot.transforms.batching import register_mapped


def _enter(mat: Any, axis: int) -> tuple[Any, list[int | None]]:
    """One batch of a sparse array.  Arrays that have a size of 1 there, and stand for more, are the same in all batches."""
    d = axis + mat.ndim if axis < 0 else axis
    if not 0 <= d < mat.n_batch:
        raise ValueError(f"Cannot map in_axis={axis} for {type(mat).__name__} array with n_batch={mat.n_batch}: the mapped "
                         "axis of a sparse array must be a batch dimension. hint: update_layout(n_batch=...)")
    size = mat.shape[d]
    arrays = list(mat._bufs)
    if common_size([x.shape[d] for x in arrays]) != size:
        arrays[0] = jnp.broadcast_to(arrays[0], (*arrays[0].shape[:d], size, *arrays[0].shape[d + 1:]))
    fixed = [x.shape[d] != size for x in arrays]
    arrays = [x.reshape(*x.shape[:d], *x.shape[d + 1:]) if f else x for x, f in zip(arrays, fixed)]
    return _with_shape(mat, arrays, (*mat.shape[:d], *mat.shape[d + 1:])), [None if f else d for f in fixed]


def _leave(mat: Any, axis: int, size: int) -> Any:
    """All batches of a sparse array together."""
    d = axis + len(mat.shape) + 1 if axis < 0 else axis
    n_batch = mat.n_batch - 1
    if not 0 <= d <= n_batch:
        raise ValueError(f"vmap out_axes is {axis} for a {type(mat).__name__} array with n_batch={n_batch}: the mapped axis "
                         "must be among its batch dimensions")
    return _with_shape(mat, mat._bufs, (*mat.shape[:d], size, *mat.shape[d:]))


def _with_shape(mat: Any, arrays: Any, shape: tuple) -> Any:
    return type(mat).tree_unflatten(mat._info._replace(shape=shape)._asdict(), arrays)


def register(cls: Any) -> Any:
    """Class decorator for formats with batch dimensions."""
    register_mapped(cls, _enter, _leave)
    return cls
