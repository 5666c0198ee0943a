"""gather and the scatter family, with batching dimensions, all modes and their derivatives."""
from __future__ import annotations

import enum
from typing import Any, Callable, NamedTuple, Sequence

import numpy as np

from aot import dtypes
from aot.ops import elementwise as ew
from aot.ops.families import LinearOp, Primitive, in_lax, kind
from aot.ops.reductions import reduce_and
from aot.ops.shape import (
    broadcast_in_dim,
    broadcast_to,
    broadcasted_iota,
    concatenate,
    full_like,
    moveaxis,
    reshape,
    zeros,
)
from aot.trace import ShapedArray, Zero, bind, bind1, is_linear, stage, tangent_aval, typeof


class GatherDimensionNumbers(NamedTuple):
    """How gather's operand, indices and output dimensions correspond; see the StableHLO specification of gather."""
    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class ScatterDimensionNumbers(NamedTuple):
    """How scatter's operand, indices and update dimensions correspond; see the StableHLO specification of scatter."""
    update_window_dims: Sequence[int]
    inserted_window_dims: Sequence[int]
    scatter_dims_to_operand_dims: Sequence[int]
    operand_batching_dims: Sequence[int] = ()
    scatter_indices_batching_dims: Sequence[int] = ()


class GatherScatterMode(enum.Enum):
    """What an out-of-bounds index means."""
    CLIP = enum.auto()
    FILL_OR_DROP = enum.auto()
    PROMISE_IN_BOUNDS = enum.auto()
    ONE_HOT = enum.auto()

    @staticmethod
    def from_any(s: Any) -> GatherScatterMode:
        if isinstance(s, GatherScatterMode):
            return s
        names = {"clip": GatherScatterMode.CLIP, None: GatherScatterMode.FILL_OR_DROP,
                 "fill": GatherScatterMode.FILL_OR_DROP, "drop": GatherScatterMode.FILL_OR_DROP,
                 "promise_in_bounds": GatherScatterMode.PROMISE_IN_BOUNDS}
        if s not in names:
            raise ValueError(f"Unknown gather mode \"{s}\"; hint: one of 'clip', 'fill', 'drop', 'promise_in_bounds'")
        return names[s]

    def __str__(self): return f"GatherScatterMode.{self.name}"


def _ints(axes) -> tuple[int, ...]: return tuple([int(a) for a in axes])


def _text(axes) -> str: return "[" + ", ".join(map(str, axes)) + "]"


def inside(shape, window, numbers_map, indices, reduce: bool = True):
    """Whether each index vector keeps its window within the operand (bool, shape of indices without the last)."""
    dtype = typeof(indices).dtype
    limits = [shape[d] - window[d] for d in numbers_map]
    top = dtypes.iinfo(dtype).max
    upper = np.array([min(n, top) for n in limits], dtype=dtype)
    bound = broadcast_in_dim(upper, typeof(indices).shape, (typeof(indices).ndim - 1,))
    ok = ew.bitwise_and(ew.ge(indices, full_like(indices, 0)), ew.le(indices, bound))
    return reduce_and(ok, (typeof(ok).ndim - 1,))


def clip_indices(shape, window, numbers_map, indices):
    """Index vectors moved so that every window is within the operand."""
    dtype = typeof(indices).dtype
    top = dtypes.iinfo(dtype).max
    upper = np.array([min(shape[d] - window[d], top) for d in numbers_map], dtype=dtype)
    bound = broadcast_in_dim(upper, typeof(indices).shape, (typeof(indices).ndim - 1,))
    return ew.clamp(full_like(indices, 0), indices, bound)


# ---- gather ------------------------------------------------------------------------------------------------------

class Gather(LinearOp):
    name = "gather"

    def infer(self, x, indices, *, dimension_numbers: GatherDimensionNumbers, slice_sizes, mode, fill_value,
              indices_are_sorted, unique_indices):
        d = dimension_numbers
        if kind(indices.dtype) not in "iu":
            raise ValueError("indices must have an integer type")
        if len(slice_sizes) != x.ndim:
            raise TypeError(f"Gather op must have one slice size for every operand dimension; got slice_sizes="
                            f"{slice_sizes} for operand shape {x.shape}")
        if any(not 0 <= s <= n for s, n in zip(slice_sizes, x.shape)):
            raise TypeError(f"Slice size in gather must be within the operand shape; got {slice_sizes} for {x.shape}")
        if indices.shape[-1] != len(d.start_index_map):
            raise TypeError(f"Gather op has {len(d.start_index_map)} elements in start_index_map and the bound of the "
                            f"index vector dimension is {indices.shape[-1]}. These two numbers must be equal.")
        window = [n for i, n in enumerate(slice_sizes)
                  if i not in d.collapsed_slice_dims and i not in d.operand_batching_dims]
        if len(window) != len(d.offset_dims):
            raise TypeError(f"All components of the offset index in a gather op must either be a offset dimension or "
                            f"explicitly collapsed/batching; got slice_sizes={slice_sizes}, {d}")
        rank = len(d.offset_dims) + indices.ndim - 1
        win, batch = iter(window), iter(indices.shape[:-1])
        shape = tuple(next(win) if i in d.offset_dims else next(batch) for i in range(rank))
        return [ShapedArray(shape, x.dtype, x.weak_type)]

    def jvp(self, primals, tangents, **params):
        out = bind1(self, *primals, **params)
        if type(tangents[0]) is Zero:
            return [out], [Zero(tangent_aval(typeof(out)))]
        return [out], [bind1(self, tangents[0], primals[1], **{**params, "fill_value": 0})]

    def transpose(self, cts, x, indices, *, dimension_numbers, slice_sizes, mode, indices_are_sorted, unique_indices,
                  **_):
        d = dimension_numbers
        numbers = ScatterDimensionNumbers(d.offset_dims, d.collapsed_slice_dims, d.start_index_map,
                                          d.operand_batching_dims, d.start_indices_batching_dims)
        ct = scatter_add(zeros(ShapedArray(x.aval.shape, typeof(cts[0]).dtype)), indices, cts[0], numbers,
                         indices_are_sorted=indices_are_sorted, unique_indices=unique_indices, mode=mode)
        return [ct, None]

    def vmap(self, axis, args, dims, *, dimension_numbers, slice_sizes, **params):
        (x, indices), (dx, di) = args, dims
        d, up = dimension_numbers, lambda axes: tuple(a + 1 for a in axes)
        if di is None:
            numbers = GatherDimensionNumbers((0, *up(d.offset_dims)), up(d.collapsed_slice_dims), up(d.start_index_map),
                                             up(d.operand_batching_dims), d.start_indices_batching_dims)
            return bind(self, moveaxis(x, dx, 0), indices, dimension_numbers=numbers,
                        slice_sizes=(axis.size, *slice_sizes), **params), [0]
        indices = moveaxis(indices, di, 0)
        if dx is None:
            numbers = d._replace(offset_dims=up(d.offset_dims),
                                 start_indices_batching_dims=up(d.start_indices_batching_dims))
            return bind(self, x, indices, dimension_numbers=numbers, slice_sizes=slice_sizes, **params), [0]
        numbers = GatherDimensionNumbers(up(d.offset_dims), up(d.collapsed_slice_dims), up(d.start_index_map),
                                         (0, *up(d.operand_batching_dims)), (0, *up(d.start_indices_batching_dims)))
        return bind(self, moveaxis(x, dx, 0), indices, dimension_numbers=numbers,
                    slice_sizes=(min(axis.size, 1), *slice_sizes), **params), [0]

    def lower(self, e, ins, outs, x, indices, *, dimension_numbers, slice_sizes, mode, fill_value, indices_are_sorted,
              unique_indices):
        if mode is GatherScatterMode.FILL_OR_DROP and outs[0].size:
            return e.inline(lambda a, i: _gather_fill(a, i, dimension_numbers, slice_sizes, fill_value,
                                                      indices_are_sorted, unique_indices), ins, (x, indices))
        d, out, sizes = dimension_numbers, outs[0], slice_sizes
        offset = d.offset_dims
        if kind(out.dtype) == "k":
            extra = out.physical.shape[out.ndim:]
            sizes = (*sizes, *extra)
            offset = (*offset, *range(out.ndim, out.ndim + len(extra)))
        numbers = (f"#stablehlo.gather<offset_dims = {_text(offset)}, collapsed_slice_dims = "
                   f"{_text(d.collapsed_slice_dims)}, operand_batching_dims = {_text(d.operand_batching_dims)}, "
                   f"start_indices_batching_dims = {_text(d.start_indices_batching_dims)}, start_index_map = "
                   f"{_text(d.start_index_map)}, index_vector_dim = {ins[1].ndim - 1}>")
        return [e.op(f'"stablehlo.gather"({x}, {indices}) <{{dimension_numbers = {numbers}, indices_are_sorted = '
                     f'{str(indices_are_sorted).lower()}, slice_sizes = {i64s(sizes)}}}> : '
                     f"({ins[0].mlir}, {ins[1].mlir}) -> {out.mlir}")]




def i64s(values) -> str:
    values = list(values)
    return f"array<i64: {', '.join(map(str, values))}>" if values else "array<i64>"


def _gather_fill(x, indices, d, slice_sizes, fill_value, indices_are_sorted, unique_indices):
    ok = inside(typeof(x).shape, slice_sizes, d.start_index_map, indices)
    out = gather_p_bind(x, indices, d, slice_sizes, GatherScatterMode.CLIP, 0, indices_are_sorted, unique_indices)
    a = typeof(out)
    batch = [i for i in range(a.ndim) if i not in d.offset_dims]
    return ew.select(broadcast_in_dim(ok, a.shape, batch), out, _fill(a, fill_value))


def _fill(a: ShapedArray, fill_value):
    if kind(a.dtype) == "k":
        from aot.ops.random import random_wrap
        return random_wrap(broadcast_to(np.uint32(0xFFFFFFFF), a.physical.shape), impl=a.dtype.impl)
    return broadcast_to(np.asarray(fill_value).astype(a.dtype)[()], a.shape)


gather_p = Gather()


def gather_p_bind(x, indices, d, slice_sizes, mode, fill_value, indices_are_sorted, unique_indices):
    return bind1(gather_p, x, indices, dimension_numbers=d, slice_sizes=tuple(slice_sizes), mode=mode,
                 fill_value=fill_value, indices_are_sorted=bool(indices_are_sorted), unique_indices=bool(unique_indices))


def default_fill(dtype) -> Any:
    """What gather's fill mode puts for an index out of bounds."""
    k = kind(dtype)
    return (np.nan if k in "fc" else dtypes.iinfo(dtype).min if k == "i" else dtypes.iinfo(dtype).max if k == "u"
            else True if k == "b" else None)


def gather(operand, start_indices, dimension_numbers: GatherDimensionNumbers, slice_sizes, *,
           unique_indices: bool = False, indices_are_sorted: bool = False, mode: Any = None, fill_value=None):
    """Slices of operand at computed positions.  start_indices has shape (..., len(start_index_map))."""
    mode = GatherScatterMode.from_any(mode)
    d = GatherDimensionNumbers(*map(_ints, dimension_numbers))
    if mode is GatherScatterMode.FILL_OR_DROP and fill_value is None:
        fill_value = default_fill(typeof(operand).dtype)
    if mode is not GatherScatterMode.FILL_OR_DROP:
        fill_value = None
    elif hasattr(fill_value, "aval") or isinstance(fill_value, np.ndarray):
        fill_value = np.asarray(fill_value).item()
    return gather_p_bind(operand, start_indices, d, _ints(slice_sizes), mode, fill_value, indices_are_sorted,
                         unique_indices)


# ---- scatter -----------------------------------------------------------------------------------------------------

class Scatter(Primitive):
    """operand with updates combined into it at computed positions."""

    def __init__(self, name: str, combine: Callable | None):
        self.name, self.combine = name, combine

    def infer(self, x, indices, updates, *, dimension_numbers: ScatterDimensionNumbers, mode, indices_are_sorted,
              unique_indices, **_):
        d = dimension_numbers
        if kind(indices.dtype) not in "iu":
            raise ValueError("indices must have an integer type")
        if x.dtype != updates.dtype:
            raise TypeError(f"lax.{self.name} requires arguments to have the same dtypes, got {x.dtype.name}, "
                            f"{updates.dtype.name}. hint: convert the updates with astype")
        if indices.shape[-1] != len(d.scatter_dims_to_operand_dims):
            raise TypeError(f"Scatter op has {len(d.scatter_dims_to_operand_dims)} elements in "
                            f"scatter_dims_to_operand_dims and the bound of the index vector dimension is "
                            f"{indices.shape[-1]}. These two numbers must be equal.")
        window = [i for i in range(x.ndim) if i not in d.inserted_window_dims and i not in d.operand_batching_dims]
        if len(window) != len(d.update_window_dims):
            raise TypeError(f"Scatter op has window of size {len(d.update_window_dims)}; window of size {len(window)} is "
                            f"needed for operand of shape {x.shape} and {d}")
        if len(d.update_window_dims) + indices.ndim - 1 != updates.ndim:
            raise TypeError(f"Updates tensor must be of rank {len(d.update_window_dims) + indices.ndim - 1}; got "
                            f"{updates.ndim}.")
        for u, w in zip(d.update_window_dims, window):
            if updates.shape[u] > x.shape[w]:
                raise TypeError(f"Bounds of the window dimensions of updates must not exceed the bounds of the operand; "
                                f"got updates {updates.shape} for operand {x.shape}")
        batch = tuple(n for i, n in enumerate(updates.shape) if i not in d.update_window_dims)
        if batch != indices.shape[:-1]:
            raise TypeError(f"Updates scatter dimensions must match the indices: updates {updates.shape}, indices "
                            f"{indices.shape}, update_window_dims {d.update_window_dims}")
        return [ShapedArray(x.shape, x.dtype, x.weak_type and updates.weak_type)]

    def vmap(self, axis, args, dims, *, dimension_numbers, **params):
        from aot.transforms.vmap import to_dim
        (x, indices, updates), (dx, di, du) = args, dims
        d, up = dimension_numbers, lambda axes: tuple(a + 1 for a in axes)
        x, updates = to_dim(axis, x, dx, 0), to_dim(axis, updates, du, 0)
        if di is None:
            numbers = ScatterDimensionNumbers((0, *up(d.update_window_dims)), up(d.inserted_window_dims),
                                              up(d.scatter_dims_to_operand_dims), up(d.operand_batching_dims),
                                              d.scatter_indices_batching_dims)
        else:
            indices = moveaxis(indices, di, 0)
            numbers = ScatterDimensionNumbers(up(d.update_window_dims), up(d.inserted_window_dims),
                                              up(d.scatter_dims_to_operand_dims), (0, *up(d.operand_batching_dims)),
                                              (0, *up(d.scatter_indices_batching_dims)))
        return bind(self, x, indices, updates, dimension_numbers=numbers, **params), [0]

    def lower(self, e, ins, outs, x, indices, updates, *, dimension_numbers, mode, indices_are_sorted, unique_indices,
              jaxpr=None, **_):
        d, out = dimension_numbers, outs[0]
        if mode is GatherScatterMode.CLIP:
            window = window_sizes(ins[0], ins[2], d)
            indices = e.inline(lambda i: clip_indices(ins[0].shape, window, d.scatter_dims_to_operand_dims, i),
                               ins[1:2], (indices,))[0]
        scalar = ShapedArray((), out.physical.dtype)
        body = e.region(jaxpr if jaxpr is not None else self._computation, [scalar, scalar])
        window_dims = d.update_window_dims
        if kind(out.dtype) == "k":
            window_dims = (*window_dims, *range(ins[2].ndim, len(ins[2].physical.shape)))
        numbers = (f"#stablehlo.scatter<update_window_dims = {_text(window_dims)}, inserted_window_dims = "
                   f"{_text(d.inserted_window_dims)}, input_batching_dims = {_text(d.operand_batching_dims)}, "
                   f"scatter_indices_batching_dims = {_text(d.scatter_indices_batching_dims)}, "
                   f"scatter_dims_to_operand_dims = {_text(d.scatter_dims_to_operand_dims)}, index_vector_dim = "
                   f"{ins[1].ndim - 1}>")
        return [e.op(f'"stablehlo.scatter"({x}, {indices}, {updates}) <{{indices_are_sorted = '
                     f'{str(indices_are_sorted).lower()}, scatter_dimension_numbers = {numbers}, unique_indices = '
                     f'{str(unique_indices).lower()}}}> {body} : ({ins[0].mlir}, {ins[1].mlir}, {ins[2].mlir}) -> '
                     f"{out.mlir}")]

    def _computation(self, a, b):
        return b if self.combine is None else self.combine(a, b)


def window_sizes(x: ShapedArray, updates: ShapedArray, d: ScatterDimensionNumbers) -> list[int]:
    """The size of the update window in each operand dimension."""
    it = iter(d.update_window_dims)
    return [1 if i in d.inserted_window_dims or i in d.operand_batching_dims else updates.shape[next(it)]
            for i in range(x.ndim)]


def gather_like(d: ScatterDimensionNumbers) -> GatherDimensionNumbers:
    return GatherDimensionNumbers(tuple(d.update_window_dims), tuple(d.inserted_window_dims),
                                  tuple(d.scatter_dims_to_operand_dims), tuple(d.operand_batching_dims),
                                  tuple(d.scatter_indices_batching_dims))


def gather_updates(x, indices, updates_aval, params):
    """What a gather with this scatter's numbers reads from x: one element for each element of updates."""
    d = params["dimension_numbers"]
    return gather_p_bind(x, indices, gather_like(d), window_sizes(typeof(x), updates_aval, d), params["mode"], 0,
                         params["indices_are_sorted"], params["unique_indices"])


class ScatterAdd(Scatter):
    """Linear in operand and updates."""

    def jvp(self, primals, tangents, **params):
        from aot.transforms.jvp import instantiate_zero
        (x, i, u), (tx, _, tu) = primals, tangents
        out = bind1(self, x, i, u, **params)
        if type(tx) is Zero and type(tu) is Zero:
            return [out], [Zero(tangent_aval(typeof(out)))]
        return [out], [bind1(self, instantiate_zero(tx), i, instantiate_zero(tu), **params)]

    def transpose(self, cts, x, indices, updates, **params):
        ct = cts[0]
        sign = ew.neg if self.name == "scatter-sub" else lambda v: v
        return [ct if is_linear(x) else None, None,
                sign(gather_updates(ct, indices, updates.aval, params)) if is_linear(updates) else None]


class ScatterMul(Scatter):
    def jvp(self, primals, tangents, **params):
        (x, i, u), (tx, _, tu) = primals, tangents
        out = bind1(self, x, i, u, **params)
        parts = []
        if type(tx) is not Zero:
            parts.append(bind1(self, tx, i, u, **params))
        if type(tu) is not Zero:
            if not params["unique_indices"]:
                raise NotImplementedError("scatter_mul gradients are only implemented if `unique_indices=True`")
            parts.append(ew.mul(x, bind1(scatter_add_p, full_like(x, 0), i, tu, **params)))
        if not parts:
            return [out], [Zero(tangent_aval(typeof(out)))]
        return [out], [parts[0] if len(parts) == 1 else ew.add_any(*parts)]

    def transpose(self, cts, x, indices, updates, **params):
        return [bind1(self, cts[0], indices, updates, **params) if is_linear(x) else None, None, None]


class ScatterExtreme(Scatter):
    """min and max: tangents of those that attain the result, shared equally."""

    def jvp(self, primals, tangents, **params):
        from aot.transforms.jvp import instantiate_zero
        (x, i, u), (tx, _, tu) = primals, tangents
        out = bind1(self, x, i, u, **params)
        if type(tx) is Zero and type(tu) is Zero:
            return [out], [Zero(tangent_aval(typeof(out)))]
        tx, tu, a = instantiate_zero(tx), instantiate_zero(tu), typeof(u)
        dtype = typeof(tx).dtype
        from_x = ew.convert(ew.eq(x, out), dtype)
        from_u = ew.convert(ew.eq(u, gather_updates(out, i, a, params)), dtype)
        # updates equal to the old value do not count: the operand is the first to attain it
        hits = bind1(scatter_add_p, from_x, i, from_u, **params)
        share_x = ew.div(ew.mul(tx, from_x), ew.max(hits, full_like(hits, 1)))
        share_u = ew.div(ew.mul(tu, from_u), ew.max(gather_updates(hits, i, a, params), full_like(u, 1)))
        return [out], [bind1(scatter_add_p, share_x, i, share_u, **params)]


class ScatterSet(Scatter):
    """The last update wins; with repeated indices the tangent follows the one that did."""

    def jvp(self, primals, tangents, **params):
        from aot.transforms.jvp import instantiate_zero
        (x, i, u), (tx, _, tu) = primals, tangents
        out = bind1(self, x, i, u, **params)
        if type(tx) is Zero and type(tu) is Zero:
            return [out], [Zero(tangent_aval(typeof(out)))]
        tx, tu = instantiate_zero(tx), instantiate_zero(tu)
        if params["unique_indices"]:
            return [out], [bind1(self, tx, i, tu, **params)]
        a = typeof(u)
        number = np.dtype("int32")
        ids = ew.add(reshape(broadcasted_iota(number, (a.size,), 0), a.shape), broadcast_to(np.int32(1), a.shape))
        winner = bind1(self, broadcast_to(np.int32(0), typeof(x).shape), i, ids, **params)
        won = ew.eq(ids, gather_updates(winner, i, a, params))
        kept = ew.eq(winner, full_like(winner, 0))
        return [out], [bind1(scatter_add_p, ew.select(kept, tx, full_like(tx, 0)), i,
                             ew.select(won, tu, full_like(tu, 0)), **params)]

    def transpose(self, cts, x, indices, updates, **params):
        ct = cts[0]
        shape = typeof(updates).shape
        dx = bind1(self, ct, indices, zeros(ShapedArray(shape, typeof(ct).dtype)), **params) if is_linear(x) else None
        du = gather_updates(ct, indices, typeof(updates), params) if is_linear(updates) else None
        return [dx, None, du]


class ScatterApply(Scatter):
    """A user's function of the old value at each index."""

    def infer(self, *avals, jaxpr, **params): return Scatter.infer(self, *avals, **params)

    def jvp(self, primals, tangents, **params):
        out = bind1(self, *primals, **params)
        if type(tangents[0]) is Zero:
            return [out], [Zero(tangent_aval(typeof(out)))]
        raise NotImplementedError("the derivative of scatter_apply; hint: use x.at[i].get(), the function, and .set()")


scatter_p = ScatterSet("scatter", None)
scatter_add_p = ScatterAdd("scatter-add", ew.add)
scatter_sub_p = ScatterAdd("scatter-sub", ew.sub)
scatter_mul_p = ScatterMul("scatter-mul", ew.mul)
scatter_min_p = ScatterExtreme("scatter-min", ew.min)
scatter_max_p = ScatterExtreme("scatter-max", ew.max)
scatter_apply_p = ScatterApply("scatter-apply", None)


def _scatter_function(prim: Scatter, doc: str) -> Callable:
    def f(operand, scatter_indices, updates, dimension_numbers: ScatterDimensionNumbers, *,
          indices_are_sorted: bool = False, unique_indices: bool = False, mode: Any = None):
        return bind1(prim, operand, scatter_indices, updates,
                     dimension_numbers=ScatterDimensionNumbers(*map(_ints, dimension_numbers)),
                     mode=GatherScatterMode.from_any(mode), indices_are_sorted=bool(indices_are_sorted),
                     unique_indices=bool(unique_indices))
    return in_lax(f, prim.name.replace("-", "_"),
                  f"operand with updates {doc} at computed positions (shape (..., len(scatter_dims_to_operand_dims))).")


scatter = _scatter_function(scatter_p, "written")
scatter_add = _scatter_function(scatter_add_p, "added")
scatter_sub = _scatter_function(scatter_sub_p, "subtracted")
scatter_mul = _scatter_function(scatter_mul_p, "multiplied in")
scatter_min = _scatter_function(scatter_min_p, "combined by min")
scatter_max = _scatter_function(scatter_max_p, "combined by max")


def scatter_apply(operand, scatter_indices, func: Callable, dimension_numbers: ScatterDimensionNumbers, *,
                  update_shape=(), indices_are_sorted: bool = False, unique_indices: bool = False, mode: Any = None):
    """operand with func applied to the elements at computed positions."""
    a = typeof(operand)
    jaxpr, captured = stage(lambda x, _: [func(x)], [ShapedArray((), a.dtype)] * 2, "scatter_apply")
    if captured:
        raise TypeError("the function given to scatter_apply must not close over traced values")
    unused = zeros(ShapedArray(tuple(update_shape), a.dtype))
    return bind1(scatter_apply_p, operand, scatter_indices, unused, jaxpr=jaxpr,
                 dimension_numbers=ScatterDimensionNumbers(*map(_ints, dimension_numbers)),
                 mode=GatherScatterMode.from_any(mode), indices_are_sorted=bool(indices_are_sorted),
                 unique_indices=bool(unique_indices))


# ---- batched slices, and selection by arrays of indices ------------------------------------------------------------

def _stack_starts(axis, starts, dims):
    """Scalar starts, some batched -> (batch, number of starts)."""
    cols = []
    for s, d in zip(starts, dims):
        col = broadcast_to(s, (axis.size,)) if d is None else s
        cols.append(reshape(col, (axis.size, 1)))
    return concatenate(cols, 1)


def batched_dynamic_slice(axis, args, dims, slice_sizes):
    (x, *starts), (dx, *ds) = args, dims
    indices = _stack_starts(axis, starts, ds)
    n = len(slice_sizes)
    if dx is None:
        numbers = GatherDimensionNumbers(tuple(range(1, n + 1)), (), tuple(range(n)))
        sizes = slice_sizes
    else:
        x = moveaxis(x, dx, 0)
        numbers = GatherDimensionNumbers(tuple(range(1, n + 1)), (), tuple(range(1, n + 1)), (0,), (0,))
        sizes = (min(axis.size, 1), *slice_sizes)
    return [gather_p_bind(x, indices, numbers, sizes, GatherScatterMode.CLIP, None, False, False)], [0]


def batched_dynamic_update_slice(axis, args, dims):
    from aot.transforms.vmap import to_dim
    (x, update, *starts), (dx, du, *ds) = args, dims
    x, update = to_dim(axis, x, dx, 0), to_dim(axis, update, du, 0)
    indices = _stack_starts(axis, starts, ds)
    window = tuple(range(1, typeof(x).ndim))
    numbers = ScatterDimensionNumbers(window, (), window, (0,), (0,))
    return [scatter(x, indices, update, numbers, mode=GatherScatterMode.CLIP, indices_are_sorted=True,
                    unique_indices=True)], [0]


def index_take(src, idxs: Sequence, axes: Sequence[int]):
    """src at the index arrays idxs along axes (out-of-range indices as gather's clip mode)."""
    indices = concatenate([reshape(i, (*typeof(i).shape, 1)) for i in idxs], typeof(idxs[0]).ndim)
    a = typeof(src)
    sizes = [1 if i in axes else n for i, n in enumerate(a.shape)]
    offset = tuple(range(typeof(indices).ndim - 1, typeof(indices).ndim - 1 + a.ndim - len(axes)))
    return gather(src, indices, GatherDimensionNumbers(offset, tuple(axes), tuple(axes)), sizes, mode="clip")


__all__ = ["GatherDimensionNumbers", "GatherScatterMode", "ScatterDimensionNumbers", "gather", "index_take", "scatter",
           "scatter_add", "scatter_apply", "scatter_max", "scatter_min", "scatter_mul", "scatter_sub"]
