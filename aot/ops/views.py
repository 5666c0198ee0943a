"""What part of a reference an index selects: parsing, reading and writing of views.

A view is a chain of indexers, one for each indexing.  An indexer has an entry for each dimension: a `Slice`, or None for a
scalar or an array of positions, which is an operand.  Positions that are scalars, and slices, are moved into bounds;
of arrays of positions reads clamp, and writes out of bounds are dropped.
"""
from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Sequence

import numpy as np

from aot.ops.families import kind
from aot.trace import ShapedArray, is_tracer, typeof
from aot.trace.refs import is_ref


@dataclass(frozen=True)
class Slice:
    """`size` positions from `start` (None within an indexer: it is an operand), each `stride` from the one before."""
    start: Any
    size: int
    stride: int = 1


def ds(start: Any, size: Any = None, stride: int | None = None) -> Any:
    """The slice of `size` positions from `start`, which may be traced; ds(n) is that of the first n, ds(None) all.

    Raises ValueError for a negative stride."""
    if start is None:
        return slice(None)
    if size is None:
        start, size = 0, start
    stride = 1 if stride is None else stride
    if stride < 0:
        raise ValueError(f"ds takes a stride of 0 or more, got {stride}")
    return Slice(start, size, stride)


Indexer = tuple       # of Slice | None, one for each dimension


# ---- parsing ---------------------------------------------------------------------------------------------------------

def parse(index: Any, shape: tuple[int, ...], clip: bool = False) -> tuple[Indexer, list]:
    """An index expression -> (indexer, operands).  Raises what is wrong with it: TypeError, IndexError, ValueError.

    clip: what `ds` says is moved into bounds instead of refused."""
    given = index if type(index) is tuple else () if index is None else (index,)
    given = [_entry(i) for i in given]
    dots = [n for n, i in enumerate(given) if i is Ellipsis]
    if len(dots) > 1:
        raise ValueError("an index of a reference has at most one ellipsis (...)")
    at = dots[0] if dots else len(given)
    rest = given[at + 1:]
    missing = len(shape) - at - len(rest)
    if missing < 0:
        raise ValueError(f"a reference of shape {shape} was given {at + len(rest)} indices")
    full = [*given[:at], *[slice(None)] * missing, *rest]
    entries, operands = [], []
    for axis, (i, n) in enumerate(zip(full, shape)):
        entry, operand = _sliced(i, n, axis, clip) if isinstance(i, (slice, Slice)) else (None, _position(i, n, axis))
        entries.append(entry)
        operands += [] if operand is None else [operand]
    return tuple(entries), operands


def _entry(i: Any) -> Any:
    if i is Ellipsis or isinstance(i, (slice, Slice)):
        return i
    if i is None or isinstance(i, (str, list, tuple)) or is_ref(i):
        raise TypeError(f"a reference takes integers, slices, ds(start, size), integer arrays and ... as indices, got {i!r}")
    if kind(typeof(i).dtype) not in "iu":
        raise TypeError(f"an index of a reference must have an integer type, got {typeof(i).str_short(False)}. hint: of "
                        "boolean masks take the positions, as by jnp.nonzero(mask)[0]")
    return i


def _known(x: Any) -> int | None:
    """A scalar that is not traced, as an int."""
    return None if is_tracer(x) or typeof(x).shape else operator.index(x)


def _position(i: Any, n: int, axis: int) -> Any:
    at = _known(i)
    if at is not None and not -n <= at < n:
        raise ValueError(f"index {at} is out of bounds for axis {axis} of a reference, of size {n}")
    return i if at is None or at >= 0 else at + n


def _sliced(s: Any, n: int, axis: int, clip: bool) -> tuple[Slice, Any]:
    if isinstance(s, slice):
        start, stop, step = [None if v is None else _bound(v) for v in (s.start, s.stop, s.step)]
        if step is not None and step < 1:
            raise ValueError(f"a slice of a reference has a step of at least 1, got {step}. hint: reverse what was read")
        positions = range(*slice(start, stop, step).indices(n))
        return Slice(positions.start, len(positions), positions.step), None
    size = _bound(s.size)
    start = _known(s.start)
    if size < 0 or s.stride < 1:
        raise ValueError(f"a slice of a reference has a size of 0 or more and a stride of at least 1, got {s}")
    if start is None:
        return Slice(None, size, s.stride), s.start
    start += n if start < 0 else 0
    if clip:
        start = max(0, min(start, n - span(s)))
    if size and not 0 <= start <= n - span(s):
        raise ValueError(f"{s} is out of bounds for axis {axis} of a reference, of size {n}")
    return Slice(start, size, s.stride), None


def _bound(v: Any) -> int:
    found = _known(v)
    if found is None:
        raise IndexError("bounds and sizes of slices of a reference are known when it is traced. hint: "
                         "ds(start, size) takes a traced start")
    return found


# ---- shapes ----------------------------------------------------------------------------------------------------------

def part(shape: tuple[int, ...], indexer: Indexer, positions: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that an indexer selects, from the shapes of its positions: as of numpy's indexing."""
    advanced = [n for n, e in enumerate(indexer) if e is None]
    sizes = [e.size for e in indexer if e is not None]
    if not any(positions):
        return tuple(sizes)
    points = np.broadcast_shapes(*positions)
    together = advanced == list(range(advanced[0], advanced[-1] + 1))
    at = advanced[0] if together else 0
    return (*sizes[:at], *points, *sizes[at:])


def paired(indexer: Indexer, operands: Sequence) -> tuple[list, list]:
    """Operands in order -> (for each dimension its start or position, the positions alone)."""
    it = iter(operands)
    each = [next(it) if e is None or e.start is None else e.start for e in indexer]
    return each, [x for e, x in zip(indexer, each) if e is None]


def count(indexer: Indexer) -> int:
    """How many operands an indexer takes."""
    return sum(e is None or e.start is None for e in indexer)


def links(view: Sequence[Indexer], operands: Sequence) -> list[tuple[Indexer, list]]:
    """Each indexer of a view with its operands."""
    out, rest = [], list(operands)
    for indexer in view:
        n = count(indexer)
        out.append((indexer, rest[:n]))
        rest = rest[n:]
    return out


def selected(aval: Any, view: Sequence[Indexer], operands: Sequence[ShapedArray]) -> ShapedArray:
    """The type of what a view selects, from the types of the reference and of the operands."""
    shape = aval.shape
    for indexer, avals in links(view, operands):
        shape = part(shape, indexer, [a.shape for a in paired(indexer, avals)[1]])
    return aval.inner_aval.update(shape=shape)


# ---- reading and writing of arrays -----------------------------------------------------------------------------------

def take(x: Any, view: Sequence[tuple[Indexer, list]]) -> Any:
    """What a view selects of an array."""
    for indexer, operands in view:
        x = _take(x, indexer, operands)
    return x


def put(x: Any, view: Sequence[tuple[Indexer, list]], update: Any, add: bool = False) -> Any:
    """The array x in which `update` is, or is added to, what a view selects."""
    if not view:
        return _sum(x, update) if add else update
    (indexer, operands), *rest = view
    if rest:
        update, add = put(_take(x, indexer, operands), rest, update, add), False
    return _put(x, indexer, operands, update, add)


def _sum(x: Any, y: Any) -> Any:
    from aot.ops.elementwise import add, bitwise_or
    return bitwise_or(x, y) if kind(typeof(x).dtype) == "b" else add(x, y)


def _take(x: Any, indexer: Indexer, operands: list) -> Any:
    from aot.ops.shape import squeeze
    each, positions = paired(indexer, operands)
    if not any(typeof(p).shape for p in positions):
        return squeeze(_window(x, indexer, each), [n for n, e in enumerate(indexer) if e is None])
    from aot.numpy.indexing import getitem
    x = _window(x, [e or Slice(0, n) for e, n in zip(indexer, x.shape)], [at if e else 0 for e, at in zip(indexer, each)])
    return getitem(x, _positions_of(indexer, each))


def _put(x: Any, indexer: Indexer, operands: list, update: Any, add: bool) -> Any:
    from aot.ops.shape import expand_dims
    each, positions = paired(indexer, operands)
    if not any(typeof(p).shape for p in positions):
        update = expand_dims(update, [n for n, e in enumerate(indexer) if e is None])
        return _set_window(x, indexer, each, _sum(_window(x, indexer, each), update) if add else update)
    from aot.numpy.at import At
    slices = [e or Slice(0, n) for e, n in zip(indexer, x.shape)]
    starts = [at if e else 0 for e, at in zip(indexer, each)]
    chosen = At(_window(x, slices, starts))[_positions_of(indexer, each)]
    return _set_window(x, slices, starts, chosen.add(update) if add else chosen.set(update))


def _positions_of(indexer: Indexer, each: list) -> tuple:
    return tuple(slice(None) if e else at for e, at in zip(indexer, each))


def _is_all(slices: Sequence, starts: Sequence, shape: tuple[int, ...]) -> bool:
    return all(e is not None and e.stride == 1 and e.size == n and type(at) is int for e, at, n in zip(slices, starts, shape))


def span(s: Slice) -> int:
    """How many positions from the first to the last."""
    return (s.size - 1) * s.stride + 1 if s.size else 0


def _spans(slices: Sequence) -> tuple[list[int], list[int]]:
    """(how many positions from the first to the last, stride) of each; scalars are slices of one."""
    return ([1 if e is None else span(e) for e in slices],
            [1 if e is None else max(e.stride, 1) for e in slices])


def _window(x: Any, slices: Sequence, starts: Sequence) -> Any:
    """The slices of an array, where None is a slice of one position."""
    from aot.ops.slicing import dynamic_slice
    from aot.ops.slicing import slice as static_slice
    if _is_all(slices, starts, x.shape):
        return x
    spans, strides = _spans(slices)
    if all(type(s) is int for s in starts):
        return static_slice(x, starts, [s + n for s, n in zip(starts, spans)], strides)
    x = dynamic_slice(x, _starts(x, starts), spans)
    return x if all(s == 1 for s in strides) else static_slice(x, [0] * len(spans), spans, strides)


def _set_window(x: Any, slices: Sequence, starts: Sequence, update: Any) -> Any:
    from aot.ops.slicing import dynamic_slice, dynamic_update_slice
    if _is_all(slices, starts, x.shape):
        return update
    spans, strides = _spans(slices)
    if 0 in spans:
        return x
    starts = _starts(x, starts)
    if any(s != 1 for s in strides):
        from aot.numpy.at import At
        update = At(dynamic_slice(x, starts, spans))[tuple([slice(None, None, s) for s in strides])].set(update)
    return dynamic_update_slice(x, update, starts)


def _starts(x: Any, starts: Sequence) -> list:
    """Positions of one dtype."""
    from aot.numpy.indexing import position_dtype
    from aot.ops.elementwise import convert
    dtype = position_dtype(x.shape)
    return [np.asarray(s, dtype)[()] if type(s) is int else s if typeof(s).dtype == dtype else convert(s, dtype)
            for s in starts]


# ---- what users hold -------------------------------------------------------------------------------------------------

class _At:
    __slots__ = ("view",)

    def __init__(self, view: View): self.view = view

    def __getitem__(self, index: Any) -> View: return self.view.narrowed(index)


class View:
    """A part of a reference, which reads and writes like a reference: `ref.at[index]`."""
    __slots__ = ("ref", "indexers", "operands")

    def __init__(self, ref: Any, indexers: tuple = (), operands: tuple = ()):
        self.ref, self.indexers, self.operands = ref, indexers, operands

    @property
    def inner_aval(self) -> ShapedArray: return selected(self.ref.aval, self.indexers, list(map(typeof, self.operands)))

    shape = property(lambda self: self.inner_aval.shape)
    dtype = property(lambda self: self.ref.aval.dtype)
    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: self.inner_aval.size)
    at = property(_At)

    def narrowed(self, index: Any) -> View:
        """The part of this view that an index selects."""
        shape = self.shape
        indexer, operands = parse(index, shape)
        if all(e is not None and e == Slice(0, n) for e, n in zip(indexer, shape)):
            return self
        return View(self.ref, (*self.indexers, indexer), (*self.operands, *operands))

    def __getitem__(self, index: Any) -> Any:
        from aot.ops.refs import read
        return read(self.narrowed(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        from aot.ops.refs import write
        write(self.narrowed(index), value)

    def get(self, idx: Any = ()) -> Any:
        """self[idx]."""
        return self[idx]

    def set(self, value: Any, idx: Any = ()) -> None:
        """self[idx] = value."""
        self[idx] = value

    def swap(self, value: Any, idx: Any = ()) -> Any:
        """self[idx] = value -> what was there."""
        from aot.ops.refs import write
        return write(self.narrowed(idx), value, "swap")

    def addupdate(self, x: Any, idx: Any = ()) -> None:
        """self[idx] += x."""
        from aot.ops.refs import increase
        increase(self.narrowed(idx), x)

    __iter__ = None

    def __repr__(self):
        return f"View({self.ref!r}, shape={self.shape})"


def view_of(ref: Any, what: str) -> View:
    """The view of all of x, or x where it is a view.  Raises ValueError where it is no reference."""
    if type(ref) is View:
        return ref
    if not is_ref(ref):
        raise ValueError(f"{what} takes a reference, got {type(ref)}. hint: make one with new_ref(array)")
    return View(ref)
