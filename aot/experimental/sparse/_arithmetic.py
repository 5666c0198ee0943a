"""Products element by element, sums over axes, and convolutions of BCOO arrays."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.experimental.sparse._bcoo import BCOO, require
from aot.experimental.sparse._storage import chosen, limits, out_of_range, take
from aot.experimental.sparse.util import common_size, over_batch, remaining, tuple_of

Array = Any


def bcoo_multiply_dense(sp_mat: BCOO, v: Array) -> Array:
    """The data of the product, element by element, with a dense array that broadcasts to sp_mat.shape.

    Raises NotImplementedError where the product would have another shape, TypeError for other dtypes."""
    require(sp_mat, "bcoo_multiply_dense")
    v = jnp.asarray(v)
    if v.ndim > sp_mat.ndim or jnp.broadcast_shapes(sp_mat.shape, v.shape) != sp_mat.shape:
        error = NotImplementedError if v.ndim <= sp_mat.ndim else ValueError
        raise error("multiplication between sparse and dense is only implemented for cases where the output shape matches the "
                    f"sparse matrix shape. Got shape={sp_mat.shape}, v.shape={v.shape}")
    v = lax.expand_dims(v, tuple(range(sp_mat.ndim - v.ndim)))
    return over_batch(_scaled, sp_mat.n_batch)(sp_mat.data, sp_mat.indices, v)


def _scaled(data: Array, indices: Array, v: Array) -> Array:
    n = indices.shape[1]
    if all(size == 1 for size in v.shape[:n]) and n:
        return lax.mul(data, jnp.broadcast_to(v.reshape(v.shape[n:]), data.shape))
    used = [d for d in range(n) if v.shape[d] != 1]
    v = lax.squeeze(v, [d for d in range(n) if d not in used])
    return lax.mul(data, jnp.broadcast_to(take(v, chosen(indices, used)), data.shape))


def bcoo_multiply_sparse(lhs: BCOO, rhs: BCOO) -> BCOO:
    """The product, element by element: room for each pair of stored elements; dimensions of size 1 broadcast.

    Raises TypeError for other numbers of dimensions, NotImplementedError for other numbers of dense ones."""
    require(lhs, "bcoo_multiply_sparse")
    require(rhs, "bcoo_multiply_sparse")
    if lhs.ndim != rhs.ndim:
        raise TypeError(f"bcoo_multiply_sparse: arrays must have same number of dimensions, got {lhs.shape}, {rhs.shape}")
    if lhs.n_dense != rhs.n_dense:
        raise NotImplementedError("bcoo_multiply_sparse: arrays with differing numbers of dense dimensions: "
                                  f"{lhs.n_dense} and {rhs.n_dense}. hint: update_layout changes them")
    n = min(lhs.n_batch, rhs.n_batch)
    lhs, rhs = lhs.update_layout(n_batch=n), rhs.update_layout(n_batch=n)
    shape = jnp.broadcast_shapes(lhs.shape, rhs.shape)
    left, right = (m.layout.groups(m.shape)[1] for m in (lhs, rhs))
    beyond = max(shape, default=0)
    pairs = over_batch(lambda x, i, y, j: _matching(x, i, y, j, left, right, beyond), n)
    data, indices = pairs(lhs.data, lhs.indices, rhs.data, rhs.indices)
    return BCOO((data, indices), shape=shape)


def _matching(x: Array, i: Array, y: Array, j: Array, left: Sequence[int], right: Sequence[int],
              beyond: int) -> tuple:
    """All pairs of elements at one position, lhs first; what is left of the room is padding, with `beyond`."""
    i = i.astype(np.promote_types(i.dtype, j.dtype))
    j = j.astype(i.dtype)
    size = len(x) * len(y)
    if not left:
        return lax.mul(*_all_pairs(x, y)), jnp.zeros((size, 0), i.dtype)
    compared = np.array([d for d in range(len(left)) if left[d] == right[d]], np.int32)
    same = jnp.all(i[:, None, compared] == j[None, :, compared], axis=-1)
    if len(compared) < len(left):
        same = same & ~out_of_range(i, left)[:, None] & ~out_of_range(j, right)[None]
    rows, cols = jnp.nonzero(same, size=size, fill_value=(len(x), len(y)))
    data = x.at[rows].get(mode="fill", fill_value=0) * y.at[cols].get(mode="fill", fill_value=0)
    return data, jnp.maximum(i.at[rows].get(mode="fill", fill_value=beyond), j.at[cols].get(mode="fill", fill_value=beyond))


def _all_pairs(x: Array, y: Array) -> tuple[Array, Array]:
    dense = jnp.broadcast_shapes(x.shape[1:], y.shape[1:])
    shape = (len(x), len(y), *dense)
    flat = (len(x) * len(y), *dense)
    return jnp.broadcast_to(x[:, None], shape).reshape(flat), jnp.broadcast_to(y[None], shape).reshape(flat)


def bcoo_reduce_sum(mat: BCOO, *, axes: Sequence[int]) -> BCOO:
    """The sum over axes.  Elements of batches that are summed are stored one after the other, none are added up.

    Raises ValueError for axes that are not there."""
    require(mat, "bcoo_reduce_sum")
    axes = tuple_of(sorted(set(axes)))
    if any(not 0 <= d < mat.ndim for d in axes):
        raise ValueError(f"bcoo_reduce_sum: axes {axes} are not all among the {mat.ndim} dimensions of shape {mat.shape}")
    n, s = mat.n_batch, mat.n_sparse
    batch, sparse, dense = ([d for d in axes if lo <= d < hi] for lo, hi in ((0, n), (n, n + s), (n + s, mat.ndim)))
    data = lax.reduce_sum(mat.data, tuple(d - s + 1 for d in dense))
    indices = mat.indices
    if sparse:
        absent = out_of_range(indices, mat.layout.groups(mat.shape)[1])
        absent = absent.reshape(*absent.shape, *[1] * (data.ndim - n - 1))
        data = jnp.where(absent, jnp.zeros((), data.dtype), data)
        indices = chosen(indices, [d for d in range(s) if d + n not in sparse])
    shape = [mat.shape[d] for d in remaining(mat.ndim, axes)]
    data, indices = _merged(mat, data, indices, batch)
    return BCOO((data, indices), shape=shape)


def _merged(mat: BCOO, data: Array, indices: Array, batch: list[int]) -> tuple[Array, Array]:
    """The elements of some batch dimensions in one row.  Where neither array has the size, each stands for that many."""
    n = mat.n_batch
    for d in batch:
        if data.shape[d] == indices.shape[d] == 1 != mat.shape[d]:
            data = lax.mul(data, jnp.asarray(mat.shape[d], data.dtype))

    if not batch:
        return data, indices
    sizes = {d: common_size([data.shape[d], indices.shape[d]]) for d in batch}
    keep = remaining(n, batch)

    def merged(x):
        full = jnp.broadcast_to(x, (*(sizes.get(d, x.shape[d]) for d in range(n)), *x.shape[n:]))
        full = lax.transpose(full, (*keep, *batch, *range(n, x.ndim)))
        return full.reshape(*full.shape[:len(keep)], math.prod(full.shape[len(keep):n + 1]), *x.shape[n + 1:])
    return merged(data), merged(indices)


def bcoo_conv_general_dilated(lhs: Any, rhs: Any, *, window_strides: Sequence[int], padding: Any, lhs_dilation: Any = None,
                              rhs_dilation: Any = None, dimension_numbers: Any = None, feature_group_count: int = 1,
                              batch_group_count: int = 1, precision: Any = None, preferred_element_type: Any = None,
                              out_sharding: Any = None) -> BCOO:
    """The convolution of two arrays of shape (1, 1, size), either of which may be dense, with room for each pair of elements.

    Raises NotImplementedError for strides, dilation, groups, more channels, and more than one spatial dimension."""
    shape, dtype, pads = _convolved(lhs, rhs, dict(
        window_strides=tuple(window_strides), padding=padding, lhs_dilation=lhs_dilation, rhs_dilation=rhs_dilation,
        dimension_numbers=dimension_numbers, feature_group_count=feature_group_count, batch_group_count=batch_group_count,
        preferred_element_type=preferred_element_type))
    left, right = (_vector(x, dtype) for x in (lhs, rhs))
    data, indices = _convolution(left, right, pads, shape[-1])
    return BCOO((data[None, None], indices[None, None]), shape=shape)


def _convolved(lhs: Any, rhs: Any, options: dict) -> tuple[tuple, Any, int]:
    """Shape and dtype of the result, and the padding in front."""
    import aot
    from aot.trace import ShapeDtypeStruct
    like = [ShapeDtypeStruct(x.shape, x.dtype) for x in (lhs, rhs)]
    out = aot.eval_shape(lambda a, b: lax.conv_general_dilated(a, b, **options), *like)
    what = [name for name, bad in (
        ("non-unit window_strides", any(s != 1 for s in options["window_strides"])),
        ("lhs_dilation", any(d != 1 for d in options["lhs_dilation"] or ())),
        ("rhs_dilation", any(d != 1 for d in options["rhs_dilation"] or ())),
        ("groups", options["feature_group_count"] != 1 or options["batch_group_count"] != 1),
        ("more than one spatial dimension", len(lhs.shape) != 3),
        ("leading dimensions other than (1, 1)", lhs.shape[:2] != (1, 1) or rhs.shape[:2] != (1, 1)),
        ("dimension_numbers other than NCH, OIH, NCH", out.shape[:2] != (1, 1))) if bad]
    if what:
        raise NotImplementedError(f"bcoo convolution with {', '.join(what)}. hint: todense() and lax.conv_general_dilated")
    padding = options["padding"]
    pads = lax.padtype_to_pads(lhs.shape[2:], rhs.shape[2:], (1,), padding) if isinstance(padding, str) else padding
    return out.shape, out.dtype, int(pads[0][0])


def _vector(x: Any, dtype: Any) -> BCOO:
    """The spatial dimension alone, sparse."""
    if not isinstance(x, BCOO):
        x = BCOO.fromdense(jnp.asarray(x), n_batch=2, nse=x.shape[-1])
    one = x.update_layout(n_batch=0, n_dense=0)
    return BCOO((one.data.astype(dtype), one.indices[:, 2:]), shape=one.shape[2:])


def _convolution(x: BCOO, y: BCOO, pad: int, size: int) -> tuple[Array, Array]:
    """Each element of x times each of y: at position i - j + pad."""
    data = lax.mul(*_all_pairs(x.data, y.data))
    at = (x.indices[:, 0][:, None] - y.indices[:, 0][None] + pad).reshape(-1)
    outside = (out_of_range(x.indices, x.shape)[:, None] | out_of_range(y.indices, y.shape)[None]).reshape(-1)
    outside = outside | (at < 0) | (at >= size)
    return (jnp.where(outside, jnp.zeros((), data.dtype), data),
            jnp.where(outside, limits((size,), at.dtype)[0], at)[:, None])
