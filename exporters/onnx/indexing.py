"""Rows: gather and scatter of all forms, as one list of linear indices into rows of the operand."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aot.exporters.stablehlo import Op

from .graph import BOOL, F32, I64, Graph, Inexpressible, Tensor
from .lowering import Lowering, Pair, complex_row, each, reducer, row, structural
from .shapes import linear_offsets, sum_of


def _component(g: Graph, indices: Tensor, axis: int, k: int) -> Tensor:
    """Component k of the index vectors, as int64 in the shape of the index batch."""
    if axis == indices.rank:
        found = indices
    else:
        starts, limits = [0] * indices.rank, list(indices.shape)
        starts[axis], limits[axis] = k, k + 1
        found = g.reshape(g.slice(indices, starts, limits), [n for i, n in enumerate(indices.shape) if i != axis])
    if found.dtype == np.uint64:
        found = g("Min", found, g.like(np.iinfo(np.int64).max, found))
    return g.cast(found, I64)


def _batch_shape(indices: Tensor, axis: int) -> tuple[int, ...]:
    return tuple(n for i, n in enumerate(indices.shape) if i != axis)


def _batching(g: Graph, batch: Sequence[int], positions: Sequence[int], axis: int, strides: Sequence[int]) -> list[Tensor]:
    """For batching dimensions: their own number, times the stride."""
    found = []
    for p, stride in zip(positions, strides):
        at = p - (p > axis)
        shape = [n if i == at else 1 for i, n in enumerate(batch)]
        numbers = (np.arange(batch[at], dtype=np.int64) * stride).reshape(shape)
        found.append(Tensor(None, batch, I64, shape, numbers))
    return found


def _whole_rows(shape: Sequence[int], sizes: Sequence[int], moving: set[int]) -> int:
    """How many trailing dimensions a window covers completely."""
    n = 0
    while n < len(shape) and sizes[-1 - n] == shape[-1 - n] and len(shape) - 1 - n not in moving:
        n += 1
    return n


def _strides(shape: Sequence[int], rows: int) -> list[int]:
    """Strides in units of rows, which are the trailing dimensions."""
    lead = list(shape[:len(shape) - rows])
    return [math.prod(lead[i + 1:]) for i in range(len(lead))] + [0] * rows


# ---- gather ----------------------------------------------------------------------------------------------------------

@structural("gather")
def _gather(c: Lowering, op: Op, x: Tensor, indices: Tensor) -> Tensor:
    g, d, sizes = c.g, op.attrs["dimension_numbers"], op.attrs["slice_sizes"]
    if 0 in op.shape:
        return g.broadcast(g.like(0, x), (), op.shape)
    batch = _batch_shape(indices, d.index_vector_dim)
    dropped = {*d.collapsed_slice_dims, *d.operand_batching_dims}
    window = [n for i, n in enumerate(sizes) if i not in dropped]
    if (taken := _take(g, op, x, indices, batch, window)) is None:
        rows = _whole_rows(x.shape, sizes, set(d.start_index_map) | dropped)
        strides = _strides(x.shape, rows)
        parts = [g("Mul", _clamped(g, _component(g, indices, d.index_vector_dim, k), x.shape[i] - sizes[i]),
                   g.constant(np.int64(strides[i]))) for k, i in enumerate(d.start_index_map)]
        parts += _batching(g, batch, d.start_indices_batching_dims, d.index_vector_dim,
                           [strides[i] for i in d.operand_batching_dims])
        base = sum_of(g, parts) if parts else g.constant(np.zeros(batch, np.int64))
        inner = [sizes[i] for i in range(x.rank - rows) if i not in dropped]
        offsets = linear_offsets(inner, [strides[i] for i in range(x.rank - rows) if i not in dropped])
        base = g.broadcast(base, range(len(batch)), (*batch, *inner))
        index = g.full(g("Add", base, g.constant(offsets)) if offsets.any() else base)
        table = g.reshape(x, (-1 if 0 in x.shape else math.prod(x.shape[:x.rank - rows]), *x.shape[x.rank - rows:]))
        taken = g("Gather", table, index, shape=(*batch, *window), axis=0)
    order = _result_order(len(batch), len(window), d.offset_dims)
    return g.transpose(taken, order)


def _take(g: Graph, op: Op, x: Tensor, indices: Tensor, batch: tuple[int, ...], window: Sequence[int]) -> Tensor | None:
    """Whole slices along one axis: ONNX's Gather.  Its result, with the batch dimensions first."""
    d, sizes = op.attrs["dimension_numbers"], op.attrs["slice_sizes"]
    if len(d.start_index_map) != 1 or d.operand_batching_dims:
        return None
    axis = d.start_index_map[0]
    if sizes[axis] != 1 or any(n != m for i, (n, m) in enumerate(zip(sizes, x.shape)) if i != axis):
        return None
    if len(d.collapsed_slice_dims) > 1 or (d.collapsed_slice_dims and d.collapsed_slice_dims[0] != axis):
        return None
    index = _clamped(g, _component(g, indices, d.index_vector_dim, 0), x.shape[axis] - 1)
    shape = (*x.shape[:axis], *batch, *x.shape[axis + 1:])
    found = g("Gather", x, index, shape=shape, axis=axis)
    n = len(batch)
    order = [*range(axis, axis + n), *range(axis), *range(axis + n, len(shape))]
    return g.reshape(g.transpose(found, order), (*batch, *window))


def _clamped(g: Graph, index: Tensor, limit: int) -> Tensor:
    if index.array is not None:
        return Tensor(None, index.shape, I64, index.stored, np.clip(index.array, 0, limit))
    return g("Max", g("Min", index, g.constant(np.int64(limit))), g.constant(np.int64(0)))


def _result_order(batch: int, window: int, offset_dims: Sequence[int]) -> list[int]:
    """Where each dimension of the result comes from, in (batch, window)."""
    batches, windows = iter(range(batch)), iter(range(batch, batch + window))
    return [next(windows) if i in offset_dims else next(batches) for i in range(batch + window)]


# ---- scatter ---------------------------------------------------------------------------------------------------------

_REDUCTIONS = {"add": "add", "multiply": "mul", "maximum": "max", "minimum": "min", "": "none"}


@row("scatter")
def _scatter(c: Lowering, op: Op, *xs: Any) -> list[Any]:
    return scatter(c, op, xs)


@complex_row("scatter")
def _scatter_complex(c: Lowering, op: Op, *xs: Any) -> list[Any]:
    return scatter(c, op, xs)


def scatter(c: Lowering, op: Op, xs: Sequence[Any]) -> list[Any]:
    """Each operand by itself if the body treats them so; windows that reach outside are left out, as in XLA."""
    n = len(op.results)
    operands, indices, updates = xs[:n], xs[n], xs[n + 1:]
    if 0 in updates[0].shape:
        return list(operands)
    kinds = [_kind(op, i, n) for i in range(n)]
    place = _Place(c.g, op, operands[0].shape, indices, updates[0].shape)
    if any(k is None for k in kinds):
        return place.apply(c, op, operands, updates)
    return [_one(c.g, place, kind or "", x, u) for kind, x, u in zip(kinds, operands, updates)]


def _kind(op: Op, i: int, n: int) -> str | None:
    """What the body does with operand i: an operation, "" for replacing; None for anything else."""
    block = op.regions[0]
    out = block.outputs[i]
    if out is block.args[n + i]:
        return ""
    if n == 1:
        found = reducer(block)
        return found if found and (found in _REDUCTIONS or found in ("and", "or")) else None
    made = out.op
    if made is None or made.name not in _REDUCTIONS or made not in block.ops:
        return None
    return made.name if {id(v) for v in made.operands} == {id(block.args[i]), id(block.args[n + i])} else None


class _Place:
    """Where updates go: row numbers in the operand, as a matrix of (row numbers, 1), and how to reshape operands."""

    def __init__(self, g: Graph, op: Op, shape: Sequence[int], indices: Tensor, updates: Sequence[int]):
        d = op.attrs["scatter_dimension_numbers"]
        self.g, self.shape, self.updates, self.d = g, tuple(shape), tuple(updates), d
        dropped = {*d.inserted_window_dims, *d.input_batching_dims}
        window = iter(updates[i] for i in d.update_window_dims)
        sizes = [1 if i in dropped else next(window) for i in range(len(shape))]
        batch = _batch_shape(indices, d.index_vector_dim)
        moving = set(d.scattered_dims_to_operand_dims)
        rows = _whole_rows(shape, sizes, moving | dropped)
        strides = _strides(shape, rows)
        self.row_shape = tuple(shape[len(shape) - rows:])
        self.count = math.prod(shape[:len(shape) - rows])
        parts, valid = [], []
        for k, i in enumerate(d.scattered_dims_to_operand_dims):
            index = _component(g, indices, d.index_vector_dim, k)
            parts.append(g("Mul", index, g.constant(np.int64(strides[i]))))
            valid += _bounds(g, index, shape[i] - sizes[i])
        parts += _batching(g, batch, d.scatter_indices_batching_dims, d.index_vector_dim,
                           [strides[i] for i in d.input_batching_dims])
        base = sum_of(g, parts) if parts else g.constant(np.zeros(batch, np.int64))
        inner = [sizes[i] for i in range(len(shape) - rows) if i not in dropped]
        offsets = linear_offsets(inner, [strides[i] for i in range(len(shape) - rows) if i not in dropped])
        self.windowed = (*batch, *inner)
        axes = range(len(batch))
        index = g("Add", g.broadcast(base, axes, self.windowed), g.constant(offsets)) if offsets.any() else \
            g.broadcast(base, axes, self.windowed)
        self.inside = bool(not valid)
        if valid:
            ok = valid[0]
            for v in valid[1:]:
                ok = g("And", ok, v)
            index = g.where(g.broadcast(ok, axes, self.windowed), index, g.constant(np.int64(self.count)))
        self.n = math.prod(self.windowed)
        self.rows = g.reshape(index, (self.n, 1))
        self.batch_rank = len(batch)
        self.unique = bool(op.attrs.get("unique_indices")) or self.n == 1 or self._known_unique()

    def _known_unique(self) -> bool:
        known = self.rows.numpy()
        return known is not None and len(np.unique(known)) == known.size

    def update_rows(self, u: Tensor) -> Tensor:
        """Updates as (rows, *row shape)."""
        others = [i for i in range(len(self.updates)) if i not in self.d.update_window_dims]
        return self.g.reshape(self.g.transpose(u, [*others, *self.d.update_window_dims]), (self.n, *self.row_shape))

    def table(self, x: Tensor) -> Tensor:
        """The operand as rows, with one more row for updates that go nowhere."""
        t = self.g.reshape(x, (self.count, *self.row_shape))
        if self.inside:
            return t
        rank = 1 + len(self.row_shape)
        return self.g.pad(t, [0] * rank, [1] + [0] * (rank - 1), self.g.like(0, x))

    def back(self, t: Tensor) -> Tensor:
        t = t if self.inside else self.g.slice(t, [0] * t.rank, (self.count, *self.row_shape))
        return self.g.reshape(t, self.shape)

    def write(self, x: Tensor, u: Tensor, how: str) -> Tensor:
        """ScatterND of update rows."""
        table = self.table(x)
        made = self.g("ScatterND", table, self.rows, self.update_rows(u), shape=table.shape, kernel=f"ScatterND:{how}",
                      cast=(0, 2), **({"reduction": how} if how != "none" else {}))
        return self.back(made)

    def apply(self, c: Lowering, op: Op, operands: Sequence[Any], updates: Sequence[Any]) -> list[Any]:
        """Any body, where no element is updated twice: gather, apply, scatter."""
        if not self.unique:
            raise Inexpressible("its body is no add, multiply, maximum, minimum or replacement, and indices may repeat",
                                "promise unique indices, or apply the function before scattering")
        index = self.g.reshape(self.rows, (self.n,))
        shape = (self.n, *self.row_shape)
        old = [each(lambda x: self.g("Gather", self.table(x), index, shape=shape, axis=0), x) for x in operands]
        new = [each(self.update_rows, u) for u in updates]
        found = c.vectorised(op.regions[0], [*old, *new], shape)
        return [each(lambda x, f: self.write_rows(x, f), x, f) for x, f in zip(operands, found)]

    def write_rows(self, x: Tensor, rows: Tensor) -> Tensor:
        table = self.table(x)
        return self.back(self.g("ScatterND", table, self.rows, rows, shape=table.shape, kernel="ScatterND:none", cast=(0, 2)))


def _bounds(g: Graph, index: Tensor, limit: int) -> list[Tensor]:
    """Conditions for an index to be in [0, limit]; none where it is known to be."""
    if index.array is not None and ((index.array >= 0) & (index.array <= limit)).all():
        return []
    return [g("And", g("GreaterOrEqual", index, g.constant(np.int64(0))), g("LessOrEqual", index, g.constant(np.int64(limit))))]


def _one(g: Graph, place: _Place, kind: str, x: Any, u: Any) -> Any:
    if isinstance(x, Pair):
        if kind in ("", "add"):
            return Pair(_one(g, place, kind, x.re, u.re), _one(g, place, kind, x.im, u.im))
        raise Inexpressible(f"complex numbers are combined by {kind}", "scatter their parts")
    if x.dtype == BOOL and kind:
        how = {"add": "max", "or": "max", "maximum": "max", "multiply": "min", "and": "min", "minimum": "min"}[kind]
        return g.cast(place.write(g.cast(x, np.uint8), g.cast(u, np.uint8), how), BOOL)
    if kind in ("and", "or"):
        raise Inexpressible(f"integers are combined by {kind}", "use add, multiply, maximum or minimum")
    made = place.write(x, u, _REDUCTIONS[kind])
    if kind in ("maximum", "minimum") and x.dtype.kind not in "iu":
        made = _with_nan(g, place, made, x, u)
    return made


def _with_nan(g: Graph, place: _Place, made: Tensor, x: Tensor, u: Tensor) -> Tensor:
    """NaN where one took part: the runtime's maximum forgets it."""
    count = place.write(g.cast(g("IsNaN", x), F32), g.cast(g("IsNaN", u), F32), "add")
    return g.where(g("Greater", count, g.like(0, count)), g.like(np.nan, made), made)
