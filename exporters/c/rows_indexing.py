"""Rows of gather, scatter and sort."""
from __future__ import annotations

from collections.abc import Callable, Sequence

from aot.exporters.stablehlo import Op

from .index import Index
from .lowering import Lowering, Scope, row
from .memory import Buffer
from .rows_movement import changed
from .types import BRIEF


def index_at(l: Lowering, indices: Buffer, batch: Sequence[Index], component: int, vector: int) -> str:
    """One component of the index of a batch element."""
    at = list(batch)
    if vector < len(indices.shape):
        at.insert(vector, Index((), component))
    name = l.w.name("p")
    value = l.load(indices, at)
    if indices.ctype.brief == "u64":        # beyond any array
        value = f"{value} > INT64_MAX ? INT64_MAX : (int64_t){value}"
    l.w.line(f"const int64_t {name} = {value};")
    return name


@row("gather")
def gather(l: Lowering, op: Op) -> None:
    x, (d, sizes) = op.operands[0], (op.attrs["dimension_numbers"], op.attrs["slice_sizes"])
    source, indices = l.stored(x), l.stored(op.operands[1])
    batch_dims = [i for i in range(len(op.shape)) if i not in d.offset_dims]
    gone = {*d.collapsed_slice_dims, *d.operand_batching_dims}
    window = dict(zip([i for i in range(x.rank) if i not in gone], d.offset_dims))
    with l.kernel():
        out = l.new(op.result)
        with l.w.loops([op.shape[i] for i in batch_dims]) as batch:
            start = [Index()] * x.rank
            for component, axis in enumerate(d.start_index_map):
                limit = x.shape[axis] - sizes[axis]
                if limit:
                    i, name = index_at(l, indices, batch, component, d.index_vector_dim), l.w.name("p")
                    l.w.line(f"const ptrdiff_t {name} = {i} < 0 ? 0 : {i} > {limit} ? {limit} : (ptrdiff_t){i};")
                    start[axis] = Index.of(name, limit + 1)
            for axis, of_indices in zip(d.operand_batching_dims, d.start_indices_batching_dims):
                start[axis] = batch[of_indices - (of_indices > d.index_vector_dim)]
            with l.w.loops([op.shape[i] for i in d.offset_dims]) as inner:
                offsets, at = dict(zip(d.offset_dims, inner)), [Index()] * len(op.shape)
                for i, v in (*zip(batch_dims, batch), *offsets.items()):
                    at[i] = v
                place = [s + offsets[window[axis]] if axis in window else s for axis, s in enumerate(start)]
                l.put(out, at, l.load(source, place))


@row("scatter")
def scatter(l: Lowering, op: Op) -> None:
    """One update after the other; a window that does not fit is left out."""
    n = len(op.results)
    xs, updates = op.operands[:n], op.operands[n + 1:]
    d, rank = op.attrs["scatter_dimension_numbers"], xs[0].rank
    indices, given = l.stored(op.operands[n]), [l.stored(u) for u in updates]
    outs = [changed(l, x, r, [indices, *given]) for x, r in zip(xs, op.results)]
    shape = updates[0].shape
    batch_dims = [i for i in range(len(shape)) if i not in d.update_window_dims]
    gone = {*d.inserted_window_dims, *d.input_batching_dims}
    window = dict(zip([i for i in range(rank) if i not in gone], d.update_window_dims))
    with l.kernel(), l.w.loops([shape[i] for i in batch_dims]) as batch, l.w.block("do", " while (0);"):
        start = [Index()] * rank
        for component, axis in enumerate(d.scattered_dims_to_operand_dims):
            i = index_at(l, indices, batch, component, d.index_vector_dim)
            limit = xs[0].shape[axis] - (shape[window[axis]] if axis in window else 1)
            l.w.line(f"if ({i} < 0 || {i} > {limit}) continue;")
            start[axis] = Index.of(f"(ptrdiff_t){i}", limit + 1) if limit else Index()
        for axis, of_indices in zip(d.input_batching_dims, d.scatter_indices_batching_dims):
            start[axis] = batch[of_indices - (of_indices > d.index_vector_dim)]
        with l.w.loops([shape[i] for i in d.update_window_dims]) as inner:
            offsets, at = dict(zip(d.update_window_dims, inner)), [Index()] * len(shape)
            for i, v in (*zip(batch_dims, batch), *offsets.items()):
                at[i] = v
            place = [s + offsets[window[axis]] if axis in window else s for axis, s in enumerate(start)]
            scope = Scope(l)
            elements = [*(element(scope, o, place) for o in outs), *(element(scope, g, at) for g in given)]
            for out, value in zip(outs, scope.region(op.regions[0], elements)):
                l.put(out, place, value)


def element(scope: Scope, b: Buffer, at: Sequence[Index]) -> Callable[[], str]:
    """What loads an element."""
    return lambda: scope.let(b.ctype, scope.lowering.load(b, at))


@row("sort")
def sort(l: Lowering, op: Op) -> None:
    """Merge sort of positions, which is stable; then each operand is written in their order."""
    axis, shape = op.attrs["dimension"], op.operands[0].shape
    n, xs = shape[axis], [l.stored(x) for x in op.operands]
    order, room = (l.temporary(BRIEF["i32"], n) for _ in range(2))
    others = [d for d in range(len(shape)) if d != axis]
    with l.kernel():
        outs = [l.new(v) for v in op.results]
        with l.w.loops([shape[d] for d in others]) as outer:
            def at(i: Index) -> list[Index]:
                found = list(outer)
                found.insert(axis, i)
                return found
            a, b = _merge_sort(l, op, xs, order, room, at)
            with l.w.loop(n) as i:
                place = Index.of(f"{a}[{i}]", n)
                for x, out in zip(xs, outs):
                    l.w.line(f"{l.element(out, at(i), True)} = {l.element(x, at(place))};")


def _merge_sort(l: Lowering, op: Op, xs: Sequence[Buffer], order: Buffer, room: Buffer,
                at: Callable[[Index], list[Index]]) -> tuple[str, str]:
    """Write the sort of one line -> the names of the array with the positions, and of the other one."""
    n, w = order.storage.size, l.w
    for b in (order, room):
        l.use(b.storage, True)
    a, b = w.name("a"), w.name("a")
    for name, buffer in ((a, order), (b, room)):
        w.line(f"int32_t *{name} = {l.pointer(buffer, written=True)};")
    with w.loop(n) as i:
        w.line(f"{a}[{i}] = (int32_t)({i});")
    width, start, middle, end, i, j, k = (w.name("p") for _ in range(7))
    with w.block(f"for (ptrdiff_t {width} = 1; {width} < {n}; {width} *= 2)"):
        with w.block(f"for (ptrdiff_t {start} = 0; {start} < {n}; {start} += 2 * {width})"):
            w.line(f"const ptrdiff_t {middle} = {start} + {width} < {n} ? {start} + {width} : {n};")
            w.line(f"const ptrdiff_t {end} = {start} + 2 * {width} < {n} ? {start} + 2 * {width} : {n};")
            w.line(f"ptrdiff_t {i} = {start}, {j} = {middle}, {k} = {start};")
            with w.block(f"while ({i} < {middle} && {j} < {end})"):
                scope = Scope(l)
                pair = [at(Index.of(f"{a}[{p}]", n)) for p in (j, i)]
                before, = scope.region(op.regions[0], [element(scope, x, place) for x in xs for place in pair])
                w.line(f"{b}[{k}++] = {before} ? {a}[{j}++] : {a}[{i}++];")
            w.line(f"while ({i} < {middle}) {b}[{k}++] = {a}[{i}++];")
            w.line(f"while ({j} < {end}) {b}[{k}++] = {a}[{j}++];")
        swap = w.name("a")
        w.line(f"int32_t *{swap} = {a}; {a} = {b}; {b} = {swap};")
    return a, b
