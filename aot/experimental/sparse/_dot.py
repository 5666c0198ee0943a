"""Contractions: sparse with dense, dense with sparse, sparse with sparse, and dense with dense at given places."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.experimental.sparse import _storage
from aot.experimental.sparse._bcoo import BCOO
from aot.experimental.sparse._primitive import primitive
from aot.experimental.sparse._storage import chosen, columns, layout_of, limits, out_of_range, take
from aot.experimental.sparse.util import SparseInfo, common_size, over_batch, remaining
from aot.trace import ShapedArray
from aot.transforms.batching import vmap

Array = Any
Numbers = tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]


def bcoo_dot_general(lhs: Any, rhs: Any, *, dimension_numbers: Any, precision: None = None,
                     preferred_element_type: Any = None, out_sharding: Any = None) -> Any:
    """`lax.dot_general` where one operand is sparse (the result is dense), or both are (the result is sparse).

    Contracts batch and sparse dimensions; batch dimensions of the product must be batch dimensions of the representation.
    Raises TypeError for dimension numbers that do not fit, NotImplementedError for others.  precision is not used."""
    numbers = _numbers(dimension_numbers)
    if not any(isinstance(x, BCOO) for x in (lhs, rhs)):
        return lax.dot_general(lhs, rhs, numbers, preferred_element_type=preferred_element_type)
    lhs, rhs = (x if isinstance(x, BCOO) else jnp.asarray(x) for x in (lhs, rhs))
    product_aval(lhs, rhs, numbers, None)
    if isinstance(lhs, BCOO) and isinstance(rhs, BCOO):
        return _sparse_product(lhs, rhs, numbers)
    if isinstance(lhs, BCOO):
        return dot_general_p(lhs.data, lhs.indices, rhs, dimension_numbers=numbers, lhs_spinfo=lhs._info,
                             preferred_element_type=_element_type(preferred_element_type))
    (lc, rc), (lb, rb) = numbers
    out = dot_general_p(rhs.data, rhs.indices, lhs, dimension_numbers=((rc, lc), (rb, lb)), lhs_spinfo=rhs._info,
                        preferred_element_type=_element_type(preferred_element_type))
    n, right = len(lb), rhs.ndim - len(rc)          # batch, what rhs keeps, what lhs keeps -> batch, lhs, rhs
    return lax.transpose(out, (*range(n), *range(right, out.ndim), *range(n, right)))


def _numbers(dimension_numbers: Any) -> Numbers:
    (lc, rc), (lb, rb) = dimension_numbers
    return (tuple(map(int, lc)), tuple(map(int, rc))), (tuple(map(int, lb)), tuple(map(int, rb)))


def _element_type(dtype: Any) -> Any: return None if dtype is None else np.dtype(dtype)


def product_aval(lhs: Any, rhs: Any, numbers: Numbers, element_type: Any) -> Any:
    """Shape and dtype of the product as lax.dot_general says, for operands of any dtypes; TypeError where it refuses."""
    import aot
    dtype = np.promote_types(lhs.dtype, rhs.dtype) if lhs.dtype == rhs.dtype else jnp.promote_types(lhs.dtype, rhs.dtype)
    out = aot.eval_shape(lambda a, b: lax.dot_general(a, b, numbers, preferred_element_type=element_type),
                         *(aot.ShapeDtypeStruct(x.shape, dtype) for x in (lhs, rhs)))
    return ShapedArray(out.shape, out.dtype)


# ---- sparse and dense ------------------------------------------------------------------------------------------------

@primitive("bcoo_dot_general")
def dot_general_p(data: Array, indices: Array, rhs: Array, *, dimension_numbers: Numbers, preferred_element_type: Any,
                  lhs_spinfo: SparseInfo) -> Array:
    shape = lhs_spinfo.shape
    layout = layout_of(data, indices, shape)
    (lc, rc), (lb, rb) = dimension_numbers
    out = product_aval(jnp.broadcast_to(jnp.zeros((), data.dtype), shape), rhs, dimension_numbers, preferred_element_type)
    _check(layout, lc, lb)
    working = np.dtype("int32") if out.dtype == np.bool_ else out.dtype
    rhs_of = {**dict(zip(lc, rc)), **dict(zip(lb, rb))}
    product = _Product(layout, shape, rhs_of, set(lc), working)
    result = product.over_batches(data, indices, rhs, 0, tuple(range(rhs.ndim)))
    batch = list(range(layout.n_batch))
    result = lax.reduce_sum(result, tuple(d for d in batch if d in lc))
    kept = [d for d in batch if d not in lc]
    order = [*(kept.index(d) for d in lb), *(i for i, d in enumerate(kept) if d not in lb), *range(len(kept), result.ndim)]
    return lax.transpose(result, order).astype(out.dtype)


def _check(layout: Any, contracting: Sequence[int], batch: Sequence[int]) -> None:
    if any(d >= layout.n_batch for d in batch):
        raise NotImplementedError("bcoo_dot_general batch dimensions must be among the batch dimensions in the sparse "
                                  "representation. hint: update_layout(n_batch=...)")
    if any(d >= layout.n_batch + layout.n_sparse for d in contracting):
        raise NotImplementedError("bcoo_dot_general: contracting over dense dimensions. hint: update_layout(n_dense=0)")


class _Product:
    """The product for each batch: batches, then sparse dimensions, dense ones, and what is left of the dense operand."""

    def __init__(self, layout: Any, shape: Sequence[int], rhs_of: dict[int, int], contracting: set[int], dtype: Any):
        self.layout, self.shape, self.rhs_of, self.contracting, self.dtype = layout, shape, rhs_of, contracting, dtype

    def over_batches(self, data: Array, indices: Array, rhs: Array, d: int, names: tuple[int, ...]) -> Array:
        """names: which dimensions of the dense operand its axes are."""
        if d == self.layout.n_batch:
            return self.one(data, indices, rhs, names)
        size = self.shape[d]
        arrays, axes = [], []
        for x in (data, indices):
            fixed = x.shape[0] != size
            arrays.append(x.reshape(x.shape[1:]) if fixed else x)
            axes.append(None if fixed else 0)
        axis = names.index(self.rhs_of[d]) if d in self.rhs_of else None
        left = tuple(n for n in names if d not in self.rhs_of or n != self.rhs_of[d])
        inner = lambda x, i, y: self.over_batches(x, i, y, d + 1, left)
        return vmap(inner, in_axes=(*axes, axis), axis_size=size)(*arrays, rhs)

    def one(self, data: Array, indices: Array, rhs: Array, names: tuple[int, ...]) -> Array:
        """Rows of the dense operand at the contracted positions, times data, added up at the others."""
        n = self.layout.n_batch
        contracted = [s for s in range(self.layout.n_sparse) if s + n in self.contracting]
        free = remaining(self.layout.n_sparse, contracted)
        if contracted:
            axes = [names.index(self.rhs_of[s + n]) for s in contracted]
            rhs = lax.transpose(rhs, (*axes, *remaining(rhs.ndim, axes)))
            rows = take(rhs, chosen(indices, contracted))
            if not free:
                return self.summed(data, rows)
        else:
            rows = rhs[None]
        products = self.scaled(data, rows)
        if not self.layout.n_sparse:
            return lax.reduce_sum(products, (0,))
        sizes = [self.shape[s + n] for s in free]
        out = jnp.zeros((*sizes, *products.shape[1:]), products.dtype)
        return out.at[columns(chosen(indices, free))].add(products, mode="drop")

    def scaled(self, data: Array, rows: Array) -> Array:
        """[nse, *dense] and [nse or 1, *rest] -> [nse, *dense, *rest]"""
        dense = data.ndim - 1
        data = lax.expand_dims(data.astype(self.dtype), tuple(range(data.ndim, data.ndim + rows.ndim - 1)))
        rows = lax.expand_dims(rows.astype(self.dtype), tuple(range(1, dense + 1)))
        return data * rows

    def summed(self, data: Array, rows: Array) -> Array:
        """[nse, *dense] and [nse, *rest] -> [*dense, *rest]"""
        return lax.dot_general(data.astype(self.dtype), rows.astype(self.dtype), (((0,), (0,)), ((), ())),
                               preferred_element_type=self.dtype)


# ---- sparse and sparse -----------------------------------------------------------------------------------------------

def _sparse_product(lhs: BCOO, rhs: BCOO, numbers: Numbers) -> BCOO:
    (lc, rc), (lb, rb) = numbers
    _check_sparse(lhs, rhs, numbers)
    data, indices = spdot_general_p(lhs.data, lhs.indices, rhs.data, rhs.indices, dimension_numbers=numbers,
                                    lhs_spinfo=lhs._info, rhs_spinfo=rhs._info, preferred_element_type=None)
    left, right = remaining(lhs.ndim, lc, lb), remaining(rhs.ndim, rc, rb)
    return BCOO((data, indices), shape=[*(lhs.shape[d] for d in lb), *(lhs.shape[d] for d in left),
                                        *(rhs.shape[d] for d in right)])


def _check_sparse(lhs: BCOO, rhs: BCOO, numbers: Numbers) -> None:
    (lc, rc), (lb, rb) = numbers
    if lhs.n_dense or rhs.n_dense:
        raise NotImplementedError("bcoo_spdot_general: operands with dense dimensions. hint: update_layout(n_dense=0)")
    if any(d >= lhs.n_batch for d in lb) or any(d >= rhs.n_batch for d in rb):
        raise NotImplementedError("bcoo_spdot_general: batch_dims must correspond to batch dimensions of the sparse "
                                  "representation. hint: update_layout(n_batch=...)")
    if any(d < lhs.n_batch for d in lc) or any(d < rhs.n_batch for d in rc):
        raise NotImplementedError("bcoo_spdot_general only supports contraction of sparse indices. hint: "
                                  "update_layout(n_batch=...)")
    if rhs.n_batch > len(rb) and lhs.n_sparse > len(lc):
        raise ValueError("bcoo_spdot_general: cannot have unused batch dims on rhs with unused sparse dims on lhs.")


@primitive("bcoo_spdot_general")
def spdot_general_p(lhs_data: Array, lhs_indices: Array, rhs_data: Array, rhs_indices: Array, *, dimension_numbers: Numbers,
                    lhs_spinfo: SparseInfo, preferred_element_type: Any, rhs_spinfo: SparseInfo) -> tuple:
    (lc, rc), (lb, rb) = dimension_numbers
    left, right = layout_of(lhs_data, lhs_indices, lhs_spinfo.shape), layout_of(rhs_data, rhs_indices, rhs_spinfo.shape)
    dtype = jnp.promote_types(lhs_data.dtype, rhs_data.dtype)
    one = _Pairs(left, right, lhs_spinfo.shape, rhs_spinfo.shape, (lc, rc))

    f = one.product
    for _ in range(right.n_batch - len(rb)):
        f = vmap(f, in_axes=(None, None, 0, 0))
    for _ in range(left.n_batch - len(lb)):
        f = vmap(f, in_axes=(0, 0, None, None))
    x, i = _batch_first(lhs_data.astype(dtype), lhs_indices, left, lhs_spinfo.shape, lb)
    y, j = _batch_first(rhs_data.astype(dtype), rhs_indices, right, rhs_spinfo.shape, rb)
    return over_batch(f, len(lb))(x, i, y, j)


def _batch_first(data: Array, indices: Array, layout: Any, shape: Sequence[int], batch: Sequence[int]) -> tuple:
    """The batch dimensions of the product in front, the others at their full sizes behind."""
    n = layout.n_batch
    order = [*batch, *(d for d in range(n) if d not in batch)]

    def moved(x):
        x = lax.transpose(x, (*order, *range(n, x.ndim)))
        sizes = [x.shape[i] if d in batch else shape[d] for i, d in enumerate(order)]
        return jnp.broadcast_to(x, (*sizes, *x.shape[n:]))
    return moved(data), moved(indices)


class _Pairs:
    """The product of all pairs of stored elements, where their contracted positions agree."""

    def __init__(self, left: Any, right: Any, lhs: Sequence[int], rhs: Sequence[int], contracting: Any):
        self.lc, self.rc = ([d - n for d in ds] for ds, n in zip(contracting, (left.n_batch, right.n_batch)))
        self.left, self.right = left.groups(lhs)[1], right.groups(rhs)[1]
        self.lf, self.rf = remaining(left.n_sparse, self.lc), remaining(right.n_sparse, self.rc)
        self.sizes = (*(self.left[d] for d in self.lf), *(self.right[d] for d in self.rf))

    def product(self, x: Array, i: Array, y: Array, j: Array) -> tuple:
        shape = (len(x), len(y))
        dtype = np.promote_types(i.dtype, j.dtype)
        i, j = i.astype(dtype), j.astype(dtype)
        same = ~out_of_range(i, self.left)[:, None] & ~out_of_range(j, self.right)[None]
        place = [jnp.broadcast_to(p, shape).reshape(-1) for p in (
            *(i[:, d][:, None] for d in self.lf), *(j[:, d][None] for d in self.rf))]
        at = jnp.stack(place, axis=-1) if place else jnp.zeros((len(x) * len(y), 0), dtype)
        at = jnp.where(same.reshape(-1)[:, None], at, limits(self.sizes, dtype))
        for a, b in zip(self.lc, self.rc):
            same = same & (i[:, a][:, None] == j[:, b][None])
        data = jnp.where(same, x[:, None] * y[None], jnp.zeros((), x.dtype)).reshape(-1)
        nse = min(len(x) * len(y), math.prod(self.sizes))
        return _storage.sum_duplicates_p(data, at, spinfo=SparseInfo(self.sizes), nse=nse)


# ---- dense and dense, at given places --------------------------------------------------------------------------------

def bcoo_dot_general_sampled(A: Array, B: Array, indices: Array, *, dimension_numbers: Any) -> Array:
    """The elements of `lax.dot_general(A, B)` at BCOO indices: the data [*batch, nse, *dense] of that sparse array.

    Only these elements are computed."""
    A, B, indices = map(jnp.asarray, (A, B, indices))
    return dot_general_sampled_p(A, B, indices, dimension_numbers=_numbers(dimension_numbers))


@primitive("bcoo_dot_general_sampled")
def dot_general_sampled_p(A: Array, B: Array, indices: Array, *, dimension_numbers: Numbers) -> Array:
    (ac, bc), (ab, bb) = dimension_numbers
    out = product_aval(A, B, dimension_numbers, None)
    af, bf = remaining(A.ndim, ac, ab), remaining(B.ndim, bc, bb)
    where = [*zip(ab, bb), *((d, None) for d in af), *((None, d) for d in bf)]      # of each dimension of the product
    n = indices.ndim - 2
    if n + indices.shape[-1] > len(where):
        raise ValueError(f"bcoo_dot_general_sampled: indices of shape {indices.shape} are for more dimensions than the product "
                         f"has, {out.shape}")
    sampled = _Sampled(where, n, indices.shape[-1], (ac, bc))
    return sampled.over_batches(A, B, indices, 0, tuple(range(A.ndim)), tuple(range(B.ndim))).astype(out.dtype)


class _Sampled:
    def __init__(self, where: Sequence, n_batch: int, n_sparse: int, contracting: Any):
        self.where, self.n_batch, self.n_sparse, self.contracting = where, n_batch, n_sparse, contracting

    def over_batches(self, A: Array, B: Array, indices: Array, d: int, an: tuple, bn: tuple) -> Array:
        """an, bn: which dimensions of the operands their axes are."""
        if d == self.n_batch:
            return self.one(A, B, indices, an, bn)
        a, b = self.where[d]
        size = common_size([indices.shape[0], *(x.shape[names.index(i)] for x, names, i in ((A, an, a), (B, bn, b))
                                                if i is not None)])
        fixed = indices.shape[0] != size
        axes = (None if a is None else an.index(a), None if b is None else bn.index(b), None if fixed else 0)
        return vmap(lambda x, y, i: self.over_batches(x, y, i, d + 1, _without(an, a), _without(bn, b)), in_axes=axes,
                    axis_size=size)(A, B, indices[0] if fixed else indices)

    def one(self, A: Array, B: Array, indices: Array, an: tuple, bn: tuple) -> Array:
        """Rows of both operands at the positions, then a product for each of them."""
        sparse = self.where[self.n_batch:self.n_batch + self.n_sparse]
        dense = self.where[self.n_batch + self.n_sparse:]
        sides = []
        for side, (x, names) in enumerate(((A, an), (B, bn))):
            used = [(s, names.index(w[side])) for s, w in enumerate(sparse) if w[side] is not None]
            axes = [axis for _, axis in used]
            left = tuple(n for axis, n in enumerate(names) if axis not in axes)
            x = lax.transpose(x, (*axes, *remaining(x.ndim, axes)))
            sides.append((take(x, chosen(indices, [s for s, _ in used])), left))
        return _rowwise(sides[0], sides[1], dense, self.contracting)


def _without(names: tuple, gone: Any) -> tuple: return tuple(n for n in names if n != gone)


def _rowwise(left: tuple, right: tuple, dense: Sequence, contracting: Any) -> Array:
    """A dot_general for each row, with the dimensions of `dense` behind."""
    (x, xn), (y, yn) = left, right
    both = [w for w in dense if w[0] is not None and w[1] is not None]
    contract = [[names.index(d) + 1 for d in ds] for names, ds in zip((xn, yn), contracting)]
    batch = [[0, *(names.index(w[side]) + 1 for w in both)] for side, names in enumerate((xn, yn))]
    dtype = jnp.promote_types(x.dtype, y.dtype)
    return lax.dot_general(x.astype(dtype), y.astype(dtype), (contract, batch))
