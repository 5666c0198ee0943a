"""Rows of gather and scatter."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aot.exporters.stablehlo import Block, Op

from .arithmetic import is_float
from .complex_numbers import Complex, Math, both
from .graph import Tensor
from .lowering import Lowering, row
from .rows_control import Captures, flat, grouped
from .rows_reduction import body_operation


def index_table(g: Math, indices: Tensor, vector_dim: int, batching: Sequence[int]) -> Tensor:
    """Indices as int32 with the index vector last, and one more column for each batching dimension of the indices.

    Values that int32 does not hold become its ends, which are outside of any array.
    """
    if vector_dim == indices.rank:
        indices = g.reshape(indices, (*indices.shape, 1))
    else:
        indices = g.transpose(indices, [*(d for d in range(indices.rank) if d != vector_dim), vector_dim])
    batching = [d - (d > vector_dim) for d in batching]
    indices = _as_int32(g, indices)
    columns = [g.iota((*indices.shape[:-1], 1), d, np.int32) for d in batching]
    return g.concatenate([indices, *columns], indices.rank - 1)


def _as_int32(g: Math, x: Tensor) -> Tensor:
    if x.dtype.itemsize >= 4 and x.dtype != np.int32:
        x = g.minimum(x, g.like(x, (1 << 31) - 1))
        x = g.maximum(x, g.like(x, -(1 << 31))) if x.dtype.kind == "i" else x
    return g.cast(x, np.int32)


# ---- gather -----------------------------------------------------------------------------------------------------------

@row("gather")
def gather(lower: Lowering, op: Op, x: Any, indices: Tensor) -> Any:
    g, d = lower.g, op.attrs["dimension_numbers"]
    sizes = [int(n) for n in op.attrs["slice_sizes"]]
    table = index_table(g, indices, d.index_vector_dim, d.start_indices_batching_dims)
    index_map = [*d.start_index_map, *d.operand_batching_dims]
    largest = np.array([x.shape[m] - sizes[m] for m in index_map], np.int32)
    table = g.minimum(g.maximum(table, g.const(np.int32(0))), g.broadcast(g.const(largest), table.shape))
    collapsed = sorted([*d.collapsed_slice_dims, *d.operand_batching_dims])
    if _takes_one_axis(x.shape, sizes, index_map, collapsed):
        return both(lambda t: _take(g, op, t, table, index_map[0]), x)
    if g.profile.has("STABLEHLO_GATHER", np.dtype(np.float32)):
        return both(lambda t: _by_kernel(g, op, t, table, index_map, collapsed, sizes), x)
    return both(lambda t: _by_linear_index(g, op, t, table, index_map, collapsed, sizes), x)


def _takes_one_axis(shape: Sequence[int], sizes: Sequence[int], index_map: Sequence[int], collapsed: Sequence[int]) -> bool:
    """Whether whole slices of one axis are taken."""
    return len(index_map) == 1 and list(collapsed) == list(index_map) and \
        all(n == m or d == index_map[0] for d, (n, m) in enumerate(zip(shape, sizes)))


def _take(g: Math, op: Op, x: Tensor, table: Tensor, axis: int) -> Tensor:
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1:])
    count = table.size
    line = g.reshape(table, (count,))
    found = g.carry("GATHER", [g.reshape(x, (outer, x.shape[axis], inner))], (outer, count, inner), line, axis=1)
    found = g.transpose(found, (1, 0, 2))
    rest = [n for d, n in enumerate(x.shape) if d != axis]
    return _with_offsets_in_place(g, op, g.reshape(found, (*table.shape[:-1], *rest)), table.rank - 1)


def _with_offsets_in_place(g: Math, op: Op, x: Tensor, batch_rank: int) -> Tensor:
    """[batch, offsets] -> the result, whose dimensions `offset_dims` are the offsets."""
    offsets = list(op.attrs["dimension_numbers"].offset_dims)
    order = [*(d for d in range(x.rank) if d not in offsets), *offsets]
    return g.transpose(x, [order.index(d) for d in range(x.rank)])


def _by_kernel(g: Math, op: Op, x: Tensor, table: Tensor, index_map: Sequence[int], collapsed: Sequence[int],
               sizes: Sequence[int]) -> Tensor:
    fields = {"offsetDims": op.attrs["dimension_numbers"].offset_dims, "collapsedSliceDims": collapsed,
              "startIndexMap": index_map, "sliceSizes": sizes}
    options = {k: np.array(v, np.int64) for k, v in fields.items()}
    return g.nodes("STABLEHLO_GATHER", [x, table], [(op.shape, x.dtype)],
                   ("StablehloGatherOptions", {**options, "indexVectorDim": table.rank - 1}))[0]


def _by_linear_index(g: Math, op: Op, x: Tensor, table: Tensor, index_map: Sequence[int], collapsed: Sequence[int],
                     sizes: Sequence[int]) -> Tensor:
    """Positions in the flat operand: that of each start, and that of each element of a slice relative to it."""
    steps = np.cumprod([1, *x.shape[:0:-1]])[::-1].astype(np.int32)
    weights = g.broadcast(g.const(np.array([steps[m] for m in index_map], np.int32)), table.shape)
    start = g.node("SUM", [g.reshape(g.mul(table, weights), (-1 if not table.size else table.size // table.shape[-1],
                                                              table.shape[-1])), g.i32([1])], (table.size // table.shape[-1],))
    kept = [n for d, n in enumerate(sizes) if d not in collapsed]
    offsets = sum(np.arange(n).reshape([-1 if i == d else 1 for i in range(len(sizes))]) * steps[d]
                  for d, n in enumerate(sizes))
    offsets = np.broadcast_to(np.asarray(offsets, np.int32), sizes).reshape(1, -1)
    shape = (start.size, offsets.size)
    where = g.add(g.broadcast(g.reshape(start, (start.size, 1)), shape), g.broadcast(g.const(offsets), shape))
    found = g.carry("GATHER", [g.reshape(x, (x.size,))], shape, where, axis=0)
    return _with_offsets_in_place(g, op, g.reshape(found, (*table.shape[:-1], *kept)), table.rank - 1)


# ---- scatter ----------------------------------------------------------------------------------------------------------

#: body of a scatter -> operation of the region; the runtime takes no other
COMBINERS = {"add": "STABLEHLO_ADD", "multiply": "STABLEHLO_MULTIPLY", "maximum": "STABLEHLO_MAXIMUM",
             "minimum": "STABLEHLO_MINIMUM"}


@row("scatter")
def scatter(lower: Lowering, op: Op, *operands: Any) -> list[Any]:
    g, d, n = lower.g, op.attrs["scatter_dimension_numbers"], len(op.results)
    inputs, indices, updates = operands[:n], operands[n], operands[n + 1:]
    if updates[0].size == 0 or inputs[0].size == 0:
        return list(inputs)
    table = index_table(g, indices, d.index_vector_dim, d.scatter_indices_batching_dims)
    name = _combiner(op.regions[0], n)
    if name is not None and _has_kernel(g, name, inputs):
        return [_by_scatter_kernel(g, op, name, x, table, u) for x, u in zip(inputs, updates)]
    return _one_after_another(lower, op, list(inputs), table, list(updates))


def _combiner(region: Block, n: int) -> str | None:
    """The operation of a body of one operation; "" for a body that returns the updates; None for others."""
    if region.outputs == region.args[n:]:
        return ""
    return body_operation(region) or None if n == 1 else None


def _has_kernel(g: Math, name: str, inputs: Sequence[Any]) -> bool:
    if not g.profile.has("STABLEHLO_SCATTER", np.dtype(np.float32)):
        return False
    if name in ("and", "or"):
        return inputs[0].dtype == bool
    return name in ("", "add") or name in COMBINERS and not isinstance(inputs[0], Complex)


def _by_scatter_kernel(g: Math, op: Op, name: str, x: Any, table: Tensor, update: Any) -> Any:
    if isinstance(x, Complex):
        return both(lambda a, b: _by_scatter_kernel(g, op, name, a, table, b), x, update)
    if x.dtype == bool:
        name = {"add": "maximum", "or": "maximum", "multiply": "minimum", "and": "minimum"}.get(name, name)
        return g.cast(_scatter_node(g, op, name, g.cast(x, np.int8), table, g.cast(update, np.int8)), bool)
    if x.dtype.name == "bfloat16" or x.dtype.name == "float16" and name:
        wide = _by_scatter_kernel(g, op, name, g.cast(x, np.float32), table, g.cast(update, np.float32))
        return g.cast(wide, x.dtype)
    if name in ("maximum", "minimum") and is_float(x.dtype):
        return _scatter_extremum(g, op, name, x, table, update)
    return _scatter_node(g, op, name, x, table, update)


def _scatter_extremum(g: Math, op: Op, name: str, x: Tensor, table: Tensor, update: Tensor) -> Tensor:
    """The kernel drops a NaN: on integers in the order of the numbers, with NaN at the end that wins."""
    def key(t: Tensor) -> Tensor:
        k = g.order_key(t)
        return g.select(g.is_nan(t), g.like(k, np.iinfo(k.dtype).max if name == "maximum" else np.iinfo(k.dtype).min), k)
    found = _scatter_node(g, op, name, key(x), table, key(update))
    number = g.from_order_key(found, x.dtype)
    return g.select(g.is_nan(number), g.like(x, np.nan), number)


def _scatter_node(g: Math, op: Op, name: str, x: Tensor, table: Tensor, update: Tensor) -> Tensor:
    d = op.attrs["scatter_dimension_numbers"]
    fields = {"updateWindowDims": d.update_window_dims,
              "insertedWindowDims": sorted([*d.inserted_window_dims, *d.input_batching_dims]),
              "scatterDimsToOperandDims": [*d.scattered_dims_to_operand_dims, *d.input_batching_dims]}
    options = {k: np.array(v, np.int64) for k, v in fields.items()}
    options |= {"indexVectorDim": table.rank - 1, "updateComputationSubgraphIndex": _combiner_graph(g, name, x.dtype)}
    return g.nodes("STABLEHLO_SCATTER", [x, table, update], [(x.shape, x.dtype)], ("StablehloScatterOptions", options))[0]


def _combiner_graph(g: Math, name: str, dtype: np.dtype) -> int:
    inner = g.nested("combine")
    args = [inner.input((), dtype), inner.input((), dtype)]
    if name:
        inner.finish([inner.node(COMBINERS[name], args, ())])
    else:
        assert args[1].index is not None
        inner.subgraph.outputs = [args[1].index]
    return inner.number


def _one_after_another(lower: Lowering, op: Op, inputs: list[Any], table: Tensor, updates: list[Any]) -> list[Any]:
    """Any body: a loop over the index vectors that reads a window, combines it with the update and writes it back."""
    g, d = lower.g, op.attrs["scatter_dimension_numbers"]
    count = table.size // table.shape[-1]
    target = [*d.scattered_dims_to_operand_dims, *d.input_batching_dims]
    sizes, rows = _window_sizes(op, inputs[0].shape, updates[0].shape), []
    for u in updates:
        scattered = [i for i in range(u.rank) if i not in d.update_window_dims]
        rows.append(both(lambda t: g.reshape(g.transpose(t, [*scattered, *d.update_window_dims]), (count, *sizes)), u))
    captures = Captures(lower, op.regions)
    start = flat(g, inputs, op.results)
    more = [g.reshape(table, (count, table.shape[-1])), *(t for r in rows for t in _parts(r)), *captures.operands]
    n, m = len(start), len(more) - len(captures.operands)

    def body(g: Math, i: Tensor, *ts: Tensor) -> list[Tensor]:
        inner = Lowering(g, lower.report, captures.env(ts[n + m:]))
        arrays, pieces = grouped(ts[:n], op.results), grouped(ts[n + 1:n + m], op.results)
        changed = _write_window(inner, op, arrays, ts[n], pieces, i, target, sizes)
        return [g.add(i, g.const(np.int32(1))), *flat(g, changed, op.results), *ts[n:]]

    found = g.while_loop(lambda g, i, *ts: g.less(i, g.const(np.int32(count))), body,
                         [g.const(np.int32(0)), *start, *more])
    return grouped(found[1:n + 1], op.results)


def _parts(x: Any) -> tuple[Tensor, ...]: return (x.re, x.im) if isinstance(x, Complex) else (x,)


def _window_sizes(op: Op, shape: Sequence[int], update_shape: Sequence[int]) -> tuple[int, ...]:
    """The window in the operand's dimensions."""
    d = op.attrs["scatter_dimension_numbers"]
    sizes = iter(update_shape[i] for i in d.update_window_dims)
    single = {*d.inserted_window_dims, *d.input_batching_dims}
    return tuple(1 if i in single else next(sizes) for i in range(len(shape)))


def _write_window(inner: Lowering, op: Op, arrays: list[Any], table: Tensor, pieces: list[Any], i: Tensor,
                  target: Sequence[int], sizes: tuple[int, ...]) -> list[Any]:
    """The arrays after update number i, unless its window is not inside."""
    g, shape = inner.g, arrays[0].shape
    line = g.dynamic_slice(table, g.concatenate([g.reshape(i, (1,)), g.i32([0])], 0), (1, table.shape[1]))
    columns = {t: g.reshape(g.along(line, 1, k, k + 1), (1,)) for k, t in enumerate(target)}
    at = g.concatenate([columns.get(k, g.i32([0])) for k in range(len(shape))], 0)
    largest = g.i32([n - s for n, s in zip(shape, sizes)])
    clamped = g.minimum(g.maximum(at, g.like(at, 0)), largest)
    inside = g.node("REDUCE_ALL", [g.equal(at, clamped), g.i32([0])], ())
    position = g.concatenate([g.reshape(i, (1,)), g.i32([0] * len(sizes))], 0)
    now = [both(lambda t: g.dynamic_slice(t, clamped, sizes), a) for a in arrays]
    new = [both(lambda t: g.reshape(g.dynamic_slice(t, position, (1, *sizes)), sizes), p) for p in pieces]
    combined = inner.apply(op.regions[0], *now, *new)
    chosen = [both(lambda a, b: g.select(inside, g.broadcast(a, sizes), b), *pair) for pair in zip(combined, now)]
    return [both(lambda t, u: g.dynamic_update_slice(t, u, clamped), *pair) for pair in zip(arrays, chosen)]


