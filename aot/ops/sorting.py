"""sort, top_k and approximate top-k."""
from __future__ import annotations

import operator
from typing import Any, Sequence

import numpy as np

from aot import xla
from aot.ops import elementwise as ew
from aot.ops.families import Elementwise, Primitive, kind
from aot.ops.shape import broadcasted_iota, canonical_axis, full_like, moveaxis
from aot.trace import ShapedArray, Zero, bind, bind1, tangent_aval, typeof


def _total_order(name: str, direction: str) -> Elementwise:
    """A comparison in the total order of bits: -nan < -inf < .. < -0 < 0 < .. < inf < nan."""
    def emit(e, ins, outs, x, y):
        a = ins[0]
        how = {"f": "TOTALORDER", "i": "SIGNED"}.get(kind(a.dtype), "UNSIGNED")
        return e.op(f"stablehlo.compare {direction}, {x}, {y}, {how} : ({a.mlir}, {a.mlir}) -> {outs[0].mlir}")
    return Elementwise(name, "", (None, None), "fiub", result=ew.same_bool, emit=emit)


lt_to_p, le_to_p, eq_to_p = _total_order("lt_to", "LT"), _total_order("le_to", "LE"), _total_order("eq_to", "EQ")


def sort_keys(x) -> list:
    """Values whose total order is numpy's order: -0 equals 0, NaNs are last, complex by (real, imag)."""
    k = kind(typeof(x).dtype)
    if k == "c":
        return sort_keys(ew.real(x)) + sort_keys(ew.imag(x))
    if k != "f":
        return [x]
    x = ew.select(ew.eq(x, full_like(x, 0)), full_like(x, 0), x)
    return [ew.select(ew.ne(x, x), full_like(x, np.nan), x)]


def less(xs: Sequence, ys: Sequence):
    """Lexicographic xs < ys."""
    x, y = [k for v in xs for k in sort_keys(v)], [k for v in ys for k in sort_keys(v)]
    result = None
    for a, b in reversed(list(zip(x, y))):
        lt = bind1(lt_to_p, a, b)
        if result is None:
            result = lt
            continue
        same = ew.bitwise_not(ew.bitwise_or(lt, bind1(lt_to_p, b, a)))
        result = ew.bitwise_or(lt, ew.bitwise_and(same, result))
    return result


class Sort(Primitive):
    """Sort several arrays together along one dimension by the first num_keys of them."""
    multiple_results = True
    name = "sort"

    def infer(self, *xs, dimension, is_stable, num_keys):
        if any(x.shape != xs[0].shape for x in xs):
            raise ValueError(f"Arguments to sort must have equal shapes, got {', '.join(str(x.shape) for x in xs)}")
        return list(xs)

    def jvp(self, primals, tangents, **params):
        from aot.ops.indexing import GatherDimensionNumbers, GatherScatterMode, gather_p_bind
        if all(type(t) is Zero for t in tangents):
            outs = bind(self, *primals, **params)
            return outs, [Zero(tangent_aval(typeof(o))) for o in outs]
        d = params["dimension"]
        shape = typeof(primals[0]).shape
        *outs, order = bind(self, *primals, broadcasted_iota(np.int32, shape, d), **params)

        def permuted(t):
            if type(t) is Zero:
                return t
            n = len(shape)
            others = tuple(i for i in range(n) if i != d)
            from aot.ops.shape import reshape
            numbers = GatherDimensionNumbers((), (d,), (d,), others, others)
            return gather_p_bind(t, reshape(order, (*shape, 1)), numbers, (1,) * n, GatherScatterMode.PROMISE_IN_BOUNDS,
                                 None, False, True)
        return outs, [permuted(t) for t in tangents]

    def vmap(self, axis, args, dims, *, dimension, **params):
        from aot.transforms.vmap import to_dim
        xs = [to_dim(axis, x, d, 0) for x, d in zip(args, dims)]
        return bind(self, *xs, dimension=dimension + 1, **params), [0] * len(xs)

    def lower(self, e, ins, outs, *xs, dimension, is_stable, num_keys):
        scalars = [ShapedArray((), a.dtype) for a in ins for _ in (0, 1)]
        body = e.region(lambda *v: less(v[0:2 * num_keys:2], v[1:2 * num_keys:2]), scalars)
        types = ", ".join(a.mlir for a in ins)
        return e.ops(f'"stablehlo.sort"({", ".join(xs)}) <{{dimension = {dimension} : i64, is_stable = '
                     f'{str(is_stable).lower()}}}> {body} : ({types}) -> ({types})', len(xs))


sort_p = Sort()


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1):
    """Sort an array, or several together by the first num_keys of them, along a dimension (NaNs last)."""
    several = isinstance(operand, (tuple, list))
    xs = list(operand) if several else [operand]
    if several and not xs:
        raise TypeError("Sort requires at least one operand")
    if not 1 <= num_keys <= len(xs):
        raise ValueError(f"num_keys={num_keys} must be between 1 and len(operand)={len(xs)}")
    outs = bind(sort_p, *xs, dimension=canonical_axis(dimension, typeof(xs[0]).ndim), is_stable=bool(is_stable),
                num_keys=num_keys)
    return tuple(outs) if several else outs[0]


def sort_key_val(keys, values, dimension: int = -1, is_stable: bool = True):
    """Sort keys, and values along with them."""
    return sort((keys, values), dimension, is_stable, 1)


class TopK(Primitive):
    """The k largest elements along the last axis, in order, and their indices."""
    multiple_results = True
    name = "top_k"

    def infer(self, x, *, k):
        if not x.shape:
            raise TypeError("top_k operand must have >= 1 dimension, got ()")
        if not 0 <= k <= x.shape[-1]:
            raise ValueError(f"k argument to top_k must be no larger than size along axis; got {k} for shape {x.shape}")
        if kind(x.dtype) == "c":
            raise ValueError("top_k is not compatible with complex inputs.")
        shape = (*x.shape[:-1], k)
        return [ShapedArray(shape, x.dtype, x.weak_type), ShapedArray(shape, np.dtype("int32"))]

    def jvp(self, primals, tangents, *, k):
        outs = bind(self, *primals, k=k)
        t, = tangents
        zero = Zero(tangent_aval(typeof(outs[1])))
        if type(t) is Zero:
            return outs, [Zero(tangent_aval(typeof(outs[0]))), zero]
        from aot.ops.indexing import GatherDimensionNumbers, GatherScatterMode, gather_p_bind
        from aot.ops.shape import reshape
        shape = typeof(outs[1]).shape
        batch = tuple(range(len(shape) - 1))
        numbers = GatherDimensionNumbers((), (len(shape) - 1,), (len(shape) - 1,), batch, batch)
        return outs, [gather_p_bind(t, reshape(outs[1], (*shape, 1)), numbers, (1,) * len(shape),
                                    GatherScatterMode.PROMISE_IN_BOUNDS, None, False, True), zero]

    def vmap(self, axis, args, dims, *, k):
        return bind(self, moveaxis(args[0], dims[0], 0), k=k), [0, 0]

    def lower(self, e, ins, outs, x, *, k):
        return e.ops(f'"chlo.top_k"({x}) <{{k = {k} : i64}}> : ({ins[0].mlir}) -> ({outs[0].mlir}, {outs[1].mlir})', 2)


top_k_p = TopK()


def top_k(operand, k: int, *, axis: int = -1):
    """(values, indices) of the k largest elements along axis, largest first; equal elements by lower index."""
    ndim = typeof(operand).ndim
    if not ndim:
        raise TypeError("top_k operand must have >= 1 dimension, got ()")
    axis = canonical_axis(axis, ndim)
    k = operator.index(k)
    if k < 0:
        raise ValueError(f"k argument to top_k must be nonnegative, got {k}")
    values, indices = bind(top_k_p, moveaxis(operand, axis, ndim - 1), k=k)
    return [moveaxis(values, ndim - 1, axis), moveaxis(indices, ndim - 1, axis)]


def approx_max_k(operand, k: int, reduction_dimension: int = -1, recall_target: float = 0.95,
                 reduction_input_size_override: int = -1, aggregate_to_topk: bool = True):
    """(values, indices) of the k largest: all of them, whatever recall_target says.

    aggregate_to_topk=False: of more than k, as many as a device that searches in parts finds (reduction_input_size_override:
    in an array of this size)."""
    if not aggregate_to_topk:
        a = typeof(operand)
        k, _ = xla.ext.approx_top_k_reduction_output_size(a.shape[canonical_axis(reduction_dimension, a.ndim)], a.ndim, k,
                                                          recall_target, False, reduction_input_size_override)
    return top_k(operand, k, axis=reduction_dimension)


def approx_min_k(operand, k: int, reduction_dimension: int = -1, recall_target: float = 0.95,
                 reduction_input_size_override: int = -1, aggregate_to_topk: bool = True):
    """(values, indices) of the k smallest: all of them, as in `approx_max_k`."""
    values, indices = approx_max_k(ew.neg(operand), k, reduction_dimension, recall_target, reduction_input_size_override,
                                   aggregate_to_topk)
    return [ew.neg(values), indices]


__all__ = ["approx_max_k", "approx_min_k", "sort", "sort_key_val", "top_k"]
