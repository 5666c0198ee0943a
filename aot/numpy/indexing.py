"""`x[index]` and `x.at[index]`: numpy's indexing rules in terms of slice, dynamic_slice, gather and scatter.

An index expression is parsed once into items, one for each entry. Where it allows, a read becomes a static slice; a
read at traced scalar positions a dynamic slice; everything else a gather. Updates are always scatters, planned by the
same code as gathers: `_plan` works out which dimensions of the operand are window, collapsed or indexed.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from aot import dtypes, errors, lax, xla
from aot.array import Array
from aot.array_methods import ArrayMethods
from aot.config import config, gate
from aot.numpy import _util
from aot.numpy._util import array_of, cast, concrete, dtype_of, is_tracer, kind, promote, shape_of, typeof
from aot.ops import views

# Kinds of entries of an index expression.
_NEW, _ELLIPSIS, _SLICE, _INT, _BOOL, _ARRAY, _WINDOW = "newaxis", "ellipsis", "slice", "int", "bool", "array", "ds"


class Item(NamedTuple):
    """One entry of an index expression and the axes of the operand that it takes."""

    kind: str
    index: Any
    axes: tuple[int, ...]


# ---- parsing ---------------------------------------------------------------------------------------------------------
def _refuse_sequence(index: Any) -> None:
    """`x[[1, 2]]` is ambiguous in numpy's history; say what to write."""
    nested = any((isinstance(i, (np.ndarray, ArrayMethods)) and i.ndim) or i is None or i is Ellipsis
                 or isinstance(i, (list, tuple, slice)) for i in index)
    how = "x[tuple(index)]" if nested else "x[jnp.array(index)]"
    raise TypeError(f"Using a non-tuple sequence for multidimensional indexing is not allowed; write {how} in place of "
                    "x[index].")


def _classify(index: Any) -> tuple[str, Any]:
    """The kind of one entry, and the entry with lists turned into arrays."""
    if index is None:
        return _NEW, None
    if index is Ellipsis:
        return _ELLIPSIS, None
    if isinstance(index, slice):
        return _SLICE, index
    if isinstance(index, (bool, np.bool_)):
        return _BOOL, index
    if isinstance(index, (int, np.integer)):
        return _INT, index
    if isinstance(index, (list, tuple)):
        index = _list_entry(index)
    if isinstance(index, (np.ndarray, ArrayMethods)):
        letter = kind(index.dtype)
        if letter == "b":
            return _BOOL, index
        if letter in "ui":
            return _ARRAY, index
        raise TypeError(f"Indexer must have integer or boolean type, got indexer with type {index.dtype}")
    if isinstance(index, str):
        raise TypeError(f"JAX does not support string indexing; got idx={index!r}")
    if isinstance(index, (float, complex, np.generic)):
        raise TypeError(f"Indexer must have integer or boolean type, got indexer with type {np.dtype(type(index))}")
    if hasattr(index, "__jax_array__"):
        return _classify(index.__jax_array__())
    if hasattr(type(index), "__index__"):
        return _INT, operator.index(index)
    if isinstance(index, views.Slice):
        return _WINDOW, index
    raise IndexError("only integers, slices (`:`), ellipsis (`...`), newaxis (`None`) and integer or boolean arrays are "
                     f"valid indices. Got {index}")


def _list_entry(index: Sequence[Any]) -> Any:
    if not len(index):
        return np.zeros((0,), np.int32)
    try:
        as_numpy = None if any(isinstance(i, ArrayMethods) for i in index) else np.asarray(index)
    except ValueError:
        as_numpy = None
    if as_numpy is not None and as_numpy.dtype != object:
        return as_numpy
    from aot.numpy.creation import array

    return array(index)


def parse(index: Any, shape: tuple[int, ...]) -> list[Item]:
    """All entries of an index expression with the axes they take."""
    if not isinstance(index, tuple):
        if isinstance(index, list):
            _refuse_sequence(index)
        index = (index,)
    entries = [_classify(i) for i in index]
    taken = [{_NEW: 0, _ELLIPSIS: 0, _BOOL: np.ndim(i) if k == _BOOL else 0}.get(k, 1) for k, i in entries]
    dots = [n for n, (k, _) in enumerate(entries) if k == _ELLIPSIS]
    if len(dots) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    total = sum(taken)
    if total > len(shape):
        raise IndexError(f"Too many indices: array is {len(shape)}-dimensional, but {total} were indexed")
    if dots:
        taken[dots[0]] = len(shape) - total
    items, axis = [], 0
    for (k, i), n in zip(entries, taken):
        items.append(Item(k, i, tuple(range(axis, axis + n))))
        axis += n
    return items


def _spread(items: list[Item], ndim: int) -> list[Item]:
    """Full slices in place of the ellipsis and of axes that are not mentioned."""
    out, axis = [], 0
    for item in items:
        axis += len(item.axes)
        if item.kind == _ELLIPSIS:
            out.extend(Item(_SLICE, slice(None), (a,)) for a in item.axes)
        else:
            out.append(item)
    return out + [Item(_SLICE, slice(None), (a,)) for a in range(axis, ndim)]


def _bounds(index: slice, size: int) -> tuple[int, int, int]:
    """start, stop, step of a slice whose entries are known; a traced entry is an error that names the remedy."""
    entries = (index.start, index.stop, index.step)
    if any(is_tracer(e) for e in entries):
        raise IndexError(
            f"Slice entries must be static integers. Got {index}. A slice with traced bounds would have a shape that is "
            "not known; use lax.dynamic_slice_in_dim (fixed size, traced start) or a mask instead."
        )
    return slice(*[e if e is None else operator.index(e) for e in entries]).indices(size)


# ---- reading ---------------------------------------------------------------------------------------------------------
def getitem(x: Any, index: Any, *, indices_are_sorted: bool = False, unique_indices: bool = False, mode: Any = None,
            fill_value: Any = None, wrap_negative_indices: bool = True, out_sharding: Any = None) -> Any:
    """`x[index]`; positions out of range clamp unless `mode` says otherwise."""
    items = parse(index, x.shape)
    if config.check_static_indices and (mode is None or _mode(mode) == lax.GatherScatterMode.PROMISE_IN_BOUNDS):
        _check_static(items, x.shape, wrap_negative_indices)
    kinds = {item.kind for item in items}
    if _WINDOW in kinds:
        return getitem(views.take(x, _window(items, x.shape)), _within(items), indices_are_sorted=indices_are_sorted,
                       unique_indices=unique_indices, mode=mode, fill_value=fill_value,
                       wrap_negative_indices=wrap_negative_indices, out_sharding=out_sharding)
    if (mode is None or _mode(mode) in _SLICE_MODES) and not kinds & {_BOOL}:
        if _ARRAY not in kinds:
            return _static_slice(x, items, wrap_negative_indices, mode)
        if all(_sliceable(item) for item in items):
            return _dynamic_slice(x, items, wrap_negative_indices)
    plan = _plan(items, x.shape, wrap_negative_indices)
    return _gather(x, plan, mode, fill_value, indices_are_sorted, unique_indices)


def _window(items: list[Item], shape: tuple[int, ...]) -> list:
    """The view of an array that the entries made by `ds` select."""
    each = [i.index if i.kind == _WINDOW else slice(None) for i in _spread(items, len(shape)) for _ in i.axes]
    return [views.parse(tuple(each), shape, clip=True)]


def _fits(items: list[Item], shape: tuple[int, ...]) -> Any:
    """Whether what `ds` selects is in range, else updates are dropped: True, False, or traced."""
    fits: Any = True
    for item in _spread(items, len(shape)):
        if item.kind == _WINDOW:
            start, last = item.index.start, shape[item.axes[0]] - views.span(item.index)
            if not is_tracer(start):
                fits = fits if 0 <= int(start) <= last else False
            elif fits is not False:
                inside = lax.bitwise_and(lax.ge(start, cast(0, start.dtype)), lax.le(start, cast(last, start.dtype)))
                fits = inside if fits is True else lax.bitwise_and(fits, inside)
    return fits


def _within(items: list[Item]) -> tuple:
    """The index of what these select."""
    return tuple(slice(None) if i.kind == _WINDOW else Ellipsis if i.kind == _ELLIPSIS else i.index for i in items)


def _mode(mode: Any) -> Any:
    return lax.GatherScatterMode.from_any(mode)


_SLICE_MODES = (lax.GatherScatterMode.PROMISE_IN_BOUNDS, lax.GatherScatterMode.CLIP)


def _check_static(items: list[Item], shape: tuple[int, ...], wrap: bool) -> None:
    """With the option `check_static_indices`, known positions must be in range."""
    for item in items:
        if item.kind == _INT:
            size, i = shape[item.axes[0]], operator.index(item.index)
            if not 0 <= (i + size if wrap and i < 0 else i) < size:
                raise IndexError(f"index {i} out of bounds for axis {item.axes[0]} with size {size}")


def _need_elements(axis: int, size: int) -> None:
    if size == 0:
        raise IndexError(f"index is out of bounds for axis {axis} with size 0")


def _known_position(item: Item, shape: tuple[int, ...], wrap: bool) -> int:
    """An integer index as a position in range."""
    (axis,) = item.axes
    size, i = shape[axis], int(item.index)
    _need_elements(axis, size)
    return min(max(i + size if wrap and i < 0 else i, 0), size - 1)


def _static_slice(x: Any, items: list[Item], wrap: bool, mode: Any) -> Any:
    """Integers, slices and newaxis: one slice, then at most a reversal, a squeeze and new axes."""
    start, stop, step = [0] * x.ndim, list(x.shape), [1] * x.ndim
    reverse, drop, new, position = [], [], [], 0
    for item in _spread(items, x.ndim):
        if item.kind == _NEW:
            new.append(position)
        elif item.kind == _INT:
            (axis,) = item.axes
            start[axis] = _known_position(item, x.shape, wrap)
            stop[axis] = start[axis] + 1
            drop.append(axis)
            continue
        elif item.index != slice(None):
            (axis,) = item.axes
            start[axis], stop[axis], step[axis], flip = _forward(item.index, x.shape[axis])
            reverse.extend([axis] * flip)
        position += 1
    if gate.ready is not None and type(x) is Array and step == [1] * x.ndim and not xla.is_placed(x.buf):
        sizes = tuple(map(operator.sub, stop, start))
        if sizes != x.shape:
            x, drop = _known_window(x, np.array(start, position_dtype(x.shape)), sizes=sizes, drop=tuple(drop)), []
    else:
        x = _sliced(x, start, stop, step)
    return _shaped(x, reverse, drop, new)


@_util.named("sizes", "drop")
def _known_window(x: Any, start: Any, *, sizes: tuple[int, ...], drop: tuple[int, ...]) -> Any:
    """Part of an array outside of any trace: one program for all positions, where a static slice would be one for each."""
    window = lax.dynamic_slice(x, lax.unstack(start), sizes, allow_negative_indices=False)
    return lax.squeeze(window, drop) if drop else window


def _forward(index: slice, size: int) -> tuple[int, int, int, bool]:
    """A slice with a positive step that selects the same elements, and whether they must be reversed afterwards."""
    start, stop, step = _bounds(index, size)
    if step > 0:
        return start, max(start, stop), step, False
    count = max(0, -(-(start - stop) // -step))
    first = min(size, start + (count - 1) * step) if count else 0
    return first, (start + 1 if count else 0), -step, True


def _sliced(x: Any, start: list[int], stop: list[int], step: list[int]) -> Any:
    strided = any(s != 1 for s in step)
    if not strided and not any(start) and tuple(stop) == x.shape:
        return x
    return lax.slice(x, start, stop, step if strided else None)


def _shaped(x: Any, reverse: Sequence[int], drop: Sequence[int], new: Sequence[int]) -> Any:
    x = lax.rev(x, tuple(reverse)) if reverse else x
    x = lax.squeeze(x, tuple(drop)) if drop else x
    return lax.expand_dims(x, tuple(new)) if new else x


def _sliceable(item: Item) -> bool:
    """Whether a dynamic slice can take this entry: scalar positions and slices of step 1 or -1."""
    if item.kind == _ARRAY:
        return np.ndim(item.index) == 0
    return item.kind != _SLICE or item.index.step in (None, 1, -1)


def _dynamic_slice(x: Any, items: list[Item], wrap: bool) -> Any:
    """Positions that are scalars but traced."""
    start, sizes = [0] * x.ndim, list(x.shape)
    reverse, drop, new, position = [], [], [], 0
    for item in _spread(items, x.ndim):
        if item.kind == _NEW:
            new.append(position)
        elif item.kind in (_INT, _ARRAY):
            (axis,) = item.axes
            _need_elements(axis, x.shape[axis])
            start[axis], sizes[axis] = array_of(item.index), 1
            drop.append(axis)
            continue
        else:
            (axis,) = item.axes
            start[axis], stop, _, flip = _forward(item.index, x.shape[axis])
            sizes[axis] = stop - start[axis]
            reverse.extend([axis] * flip)
        position += 1
    if x.ndim > 1:
        dtype = position_dtype(x.shape)
        start = [cast(i, dtype) if isinstance(i, int) else lax.convert_element_type(i, dtype) for i in start]
    return _shaped(lax.dynamic_slice(x, start, sizes, allow_negative_indices=wrap), reverse, drop, new)


def position_dtype(shape: tuple[int, ...]) -> np.dtype:
    """The dtype of positions in an array of this shape: int32 unless an axis is too long."""
    return np.dtype(np.int64 if any(n > np.iinfo(np.int32).max for n in shape) else np.int32)


# ---- planning gathers and scatters -----------------------------------------------------------------------------------
class Plan(NamedTuple):
    """How to gather or scatter for an index expression, and what to do to the shape around it."""

    shape: tuple[int, ...]  # of the result of indexing
    indices: Any  # one row of positions for each point
    dims: Any  # GatherDimensionNumbers
    sizes: tuple[int, ...]  # of the slice taken at each point
    reverse: tuple[int, ...]  # dimensions of the result to reverse
    new: tuple[int, ...]  # positions of new axes in the result
    extra: tuple[int, ...]  # axes of size 1 to give the operand first, for scalar booleans
    regular: bool  # no array index: points are sorted and unique


def _expand_masks(items: list[Item], shape: tuple[int, ...]) -> list[Item]:
    """Boolean arrays become the integer positions of their True elements."""
    out = []
    for position, item in enumerate(items):
        if item.kind != _BOOL:
            out.append(item)
            continue
        if is_tracer(item.index) and not _is_known(item.index):
            raise errors.NonConcreteBooleanIndexError(typeof(item.index))
        mask = np.asarray(item.index)
        if mask.ndim == 0:
            out.append(Item(_BOOL, bool(mask), ()))
            continue
        expected = tuple(shape[a] for a in item.axes)
        if not all(m in (0, n) for m, n in zip(mask.shape, expected)):
            raise IndexError(f"boolean index did not match shape of indexed array in index {position}: got {mask.shape}, "
                             f"expected {list(expected)}")
        out.extend(Item(_ARRAY, where, (axis,)) for where, axis in zip(np.nonzero(mask), item.axes))
    return out


def _is_known(x: Any) -> bool:
    try:
        concrete(x, "")
    except errors.ConcretizationTypeError:
        return False
    return True


def _expand_scalar_bools(items: list[Item], shape: tuple[int, ...]) -> tuple[list[Item], tuple[int, ...], tuple[int, ...]]:
    """`x[True]` adds an axis and `x[False]` an empty one: an index array on an axis of size 1 that is inserted."""
    extra = tuple(n for n, item in enumerate(items) if item.kind == _BOOL)
    if not extra:
        return items, shape, ()
    sizes, out, axis = [], [], 0
    for item in items:
        if item.kind == _BOOL:
            out.append(Item(_ARRAY, np.arange(int(item.index)), (axis,)))
            sizes.append(1)
            axis += 1
        else:
            out.append(item._replace(axes=tuple(range(axis, axis + len(item.axes)))))
            sizes.extend(shape[a] for a in item.axes)
            axis += len(item.axes)
    inserted = tuple(i.axes[0] for i, old in zip(out, items) if old.kind == _BOOL)
    return out, tuple(sizes), inserted


def _wrapped(index: Any, size: int, wrap: bool) -> Any:
    """Negative positions count from the end."""
    if not wrap or kind(dtype_of(index)) == "u":
        return index
    if isinstance(index, (int, np.integer)):
        return index + size if index < 0 else index
    if isinstance(index, np.ndarray):
        return np.where(index < 0, index + np.asarray(size, index.dtype), index)
    index = cast(index, index.dtype)
    return lax.select(lax.lt(index, cast(0, index.dtype)), lax.add(index, cast(size, index.dtype)), index)


def _plan(items: list[Item], shape: tuple[int, ...], wrap: bool = True) -> Plan:
    """Work out a gather for parsed items. The same plan read backwards is a scatter."""
    items = _expand_masks(items, shape)
    scattered = [n for n, item in enumerate(items) if item.kind in (_ARRAY, _INT)]
    together = all(b - a == 1 for a, b in zip(scattered, scattered[1:]))
    items, shape, extra = _expand_scalar_bools(_spread(items, len(shape)), shape)
    items = [item._replace(index=_wrapped(item.index, shape[item.axes[0]], wrap))
             if item.kind in (_INT, _ARRAY) else item for item in items]
    builder = _Builder(items, shape, together)
    for position, item in enumerate(items):
        builder.take(position, item)
    return builder.plan(extra)


class _Builder:
    """Collects the dimension numbers of a gather, entry by entry."""

    def __init__(self, items: list[Item], shape: tuple[int, ...], together: bool):
        self.shape, self.dtype = shape, position_dtype(shape)
        self.result: list[int] = []  # shape of the result, with new axes
        self.points: list[int] = []  # shape of the set of points
        self.rows: list[tuple[Any, int]] = []  # positions along one axis, and the first point dimension they span
        self.starts: list[int] = []  # the operand axis that each row indexes
        self.offset: list[int] = []
        self.collapsed: list[int] = []
        self.sizes: list[int] = []
        self.reverse: list[int] = []
        self.new: list[int] = []
        self.dim = 0  # of the result, without new axes
        indexed = [n for n, i in enumerate(items) if i.kind in (_ARRAY, _INT)]
        advanced = any(i.kind == _ARRAY and np.ndim(i.index) for i in items)
        self.advanced = indexed if advanced else []
        # Index arrays side by side leave their dimensions in place; otherwise these come first, as in numpy.
        self.arrays_at = (self.advanced[0] if together else 0) if advanced else None
        self.items = items

    def take(self, position: int, item: Item) -> None:
        """Account for one entry."""
        if position == self.arrays_at:
            self._take_arrays()
        if item.kind == _NEW:
            self.new.append(len(self.result))
            self.result.append(1)
        elif item.kind == _SLICE:
            self._take_slice(item)
        elif position in self.advanced:
            self.sizes.append(1)
        else:
            (axis,) = item.axes
            _need_elements(axis, self.shape[axis])
            self._row(item.index, axis, len(self.points))
            self.collapsed.append(axis)
            self.sizes.append(1)

    def _row(self, index: Any, axis: int, dim: int) -> None:
        known = isinstance(index, (int, np.integer, np.ndarray))
        row = np.asarray(index, self.dtype) if known else lax.convert_element_type(index, self.dtype)
        self.rows.append((row, dim))
        self.starts.append(axis)

    def _take_arrays(self) -> None:
        """All index arrays at once: they broadcast against each other."""
        entries = [self.items[n] for n in self.advanced]
        shape = lax.broadcast_shapes(*[shape_of(e.index) for e in entries])
        dim = len(self.points)
        for e in entries:
            known = isinstance(e.index, (int, np.integer, np.ndarray))
            index = np.broadcast_to(e.index, shape) if known else _util.broadcast_to(e.index, shape)
            self._row(index, e.axes[0], dim)
            self.collapsed.append(e.axes[0])
        self.points.extend(shape)
        self.result.extend(shape)
        self.dim += len(shape)

    def _take_slice(self, item: Item) -> None:
        (axis,) = item.axes
        size = self.shape[axis]
        first, stop, step, flip = _forward(item.index, size)
        length = max(0, -(-(stop - first) // step))
        if step == 1 and not flip:
            if length != size:
                self._row(first, axis, len(self.points))
            self.offset.append(self.dim)
            self.sizes.append(length)
        else:
            self._row(np.arange(first, first + length * step, step)[:length], axis, len(self.points))
            self.points.append(length)
            self.collapsed.append(axis)
            self.sizes.append(1)
            self.reverse.extend([self.dim] * flip)
        self.result.append(length)
        self.dim += 1

    def plan(self, extra: tuple[int, ...]) -> Plan:
        """The finished plan."""
        dims = lax.GatherDimensionNumbers(
            offset_dims=tuple(self.offset), collapsed_slice_dims=tuple(sorted(self.collapsed)),
            start_index_map=tuple(self.starts))
        return Plan(tuple(self.result), self._indices(), dims, tuple(self.sizes), tuple(self.reverse), tuple(self.new),
                    extra, self.arrays_at is None)

    def _indices(self) -> Any:
        """Rows side by side: shape `(*points, number of rows)`."""
        if not self.rows:
            return np.zeros((*self.points, 0), self.dtype)
        if all(isinstance(row, np.ndarray) for row, _ in self.rows):
            return np.stack([_numpy_spread(row, dim, self.points) for row, dim in self.rows], -1)
        if len(self.rows) == 1:
            row = self.rows[0][0]
            return lax.expand_dims(row, (row.ndim,))
        shape = (*self.points, 1)
        rows = [lax.broadcast_in_dim(row, shape, tuple(range(dim, dim + row.ndim))) for row, dim in self.rows]
        return lax.concatenate(rows, len(self.points))


def _numpy_spread(row: np.ndarray, dim: int, points: list[int]) -> np.ndarray:
    behind = len(points) - dim - row.ndim
    return np.broadcast_to(row.reshape(row.shape + (1,) * behind), points)


def _gather(x: Any, plan: Plan, mode: Any, fill_value: Any, is_sorted: bool, unique: bool) -> Any:
    if fill_value is not None:
        fill_value = concrete(fill_value, "fill_value argument to indexed get()")
        if np.ndim(fill_value) != 0:
            raise ValueError("fill_value argument to indexed get() must be a scalar")
        fill_value = fill_value.item() if isinstance(fill_value, (np.ndarray, ArrayMethods)) else fill_value
    x = lax.expand_dims(x, plan.extra) if plan.extra else x
    if 0 in plan.shape:
        return lax.full_like(x, 0, shape=plan.shape)
    if plan.indices.shape[-1] or 0 not in plan.indices.shape:
        mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS if mode is None else mode
        x = lax.gather(x, plan.indices, plan.dims, plan.sizes, mode=mode, fill_value=fill_value,
                       unique_indices=unique or plan.regular, indices_are_sorted=is_sorted or plan.regular)
    return _shaped(x, plan.reverse, (), plan.new)


# ---- updating --------------------------------------------------------------------------------------------------------
def scatter(x: Any, index: Any, values: Any, op: Callable[..., Any], *, indices_are_sorted: bool = False,
            unique_indices: bool = False, mode: Any = None, wrap_negative_indices: bool = True) -> Any:
    """`x` with `values` combined in at `index` by a `lax.scatter*` function; positions out of range are dropped."""
    x, values = (_util.plain("x.at[...]", n, v) for n, v in enumerate((x, values)))
    x = array_of(x)
    dtype, weak = x.dtype, x.aval.weak_type
    _warn_unsafe(values, x)
    items = parse(index, x.shape)
    if any(item.kind == _WINDOW for item in items):
        window, fits = _window(items, x.shape), _fits(items, x.shape)
        old = views.take(x, window)
        new = scatter(old, _within(items), values, op, indices_are_sorted=indices_are_sorted, unique_indices=unique_indices,
                      mode=mode, wrap_negative_indices=wrap_negative_indices)
        if mode is not None and _mode(mode) == lax.GatherScatterMode.CLIP:
            fits = True
        return x if fits is False else views.put(x, window, new if fits is True else lax.select(fits, new, old))
    plan = _plan(items, x.shape, wrap_negative_indices)
    if 0 in plan.shape:
        return x
    x, values = promote(x, values)
    values = _util.broadcast_to(values, plan.shape)
    values = lax.squeeze(values, plan.new) if plan.new else values
    values = lax.rev(values, plan.reverse) if plan.reverse else values
    x = lax.expand_dims(x, plan.extra) if plan.extra else x
    dims = lax.ScatterDimensionNumbers(
        update_window_dims=plan.dims.offset_dims, inserted_window_dims=plan.dims.collapsed_slice_dims,
        scatter_dims_to_operand_dims=plan.dims.start_index_map)
    out = op(x, plan.indices, values, dims, indices_are_sorted=indices_are_sorted or plan.regular,
             unique_indices=unique_indices or plan.regular, mode=mode)
    return cast(lax.squeeze(out, plan.extra) if plan.extra else out, dtype, weak)


def _warn_unsafe(values: Any, x: Any) -> None:
    """Warn when values lose their kind on the way into `x`, such as floats into integers."""
    dtype = dtype_of(values)
    if dtype == x.dtype or dtypes.result_type(values, x.dtype) == x.dtype:
        return
    import warnings

    warnings.warn(f"scatter inputs have incompatible types: cannot safely cast value from dtype={dtype} to "
                  f"dtype={x.dtype}. In future releases this will result in an error.", FutureWarning, stacklevel=4)
