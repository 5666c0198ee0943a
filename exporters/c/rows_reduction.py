"""Rows that combine elements: reduce, reduce_window, select_and_scatter, map."""
from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod

from aot.exporters.stablehlo import Block, Op

from .index import Index, flat
from .lowering import Lowering, Scope, row
from .memory import Buffer
from .rows_movement import fill
from .types import CType, of

LANES = 16          # partial sums of a long sum of floats: they are added in parallel, and rounding errors stay small
WIDE = 32           # the same where more is done than to add: GCC keeps a loop of so many, and makes it vector instructions


@row("reduce")
def reduce(l: Lowering, op: Op) -> None:
    n = len(op.results)
    xs, inits = op.operands[:n], op.operands[n:]
    axes = sorted(op.attrs["dimensions"])
    kept = [d for d in range(xs[0].rank) if d not in axes]
    with l.kernel():
        starting = [l.value(v) for v in inits]
        outs = [l.new(v) for v in op.results]
        if n == 1 and axes and _long(xs[0].shape, axes) and (first := _neutral(op.regions[0], starting[0])):
            _in_lanes(l, op, outs[0], starting[0], first, kept, axes)
        elif kept and axes and kept[-1] > axes[-1] and xs[0].shape[kept[-1]] > 1:
            _across(l, op, outs, starting, kept, axes)
        else:
            _along(l, op, outs, starting, kept, axes)


def _neutral(region: Block, start: str) -> str:
    """What partial results may begin with where a region adds two floats or takes the larger or smaller one; else nothing."""
    op = region.ops[-1] if len(region.ops) == 1 else None
    if op is None or set(op.operands) != set(region.args) or of(op.dtype).kind != "f":
        return ""
    if op.name == "add":
        return "" if of(op.dtype).is_small_float else "0"
    return start if op.name in ("maximum", "minimum") else ""


def _long(shape: Sequence[int], axes: Sequence[int]) -> bool:
    """Whether the elements that are added lie next to each other, and are many."""
    return axes[-1] == len(shape) - 1 and shape[-1] >= 2 * LANES


def _position(rank: int, kept: Sequence[int], at: Sequence[Index], axes: Sequence[int], inner: Sequence[Index]) -> list[Index]:
    found = [Index()] * rank
    for d, i in (*zip(kept, at), *zip(axes, inner)):
        found[d] = i
    return found


def _variables(l: Lowering, types: Sequence[CType], values: Sequence[str]) -> list[str]:
    names = [l.w.name("a") for _ in types]
    for name, t, value in zip(names, types, values):
        l.w.line(f"{t.value} {name} = {value};")
    return names


def _combine(l: Lowering, scope: Scope, region: Block, accumulators: list[str], elements: list[str]) -> None:
    """accumulators = region(accumulators, elements)"""
    for name, value in zip(accumulators, scope.region(region, [*accumulators, *elements])):
        l.w.line(f"{name} = {value};")


def _along(l: Lowering, op: Op, outs: list[Buffer], starting: list[str], kept: list[int], axes: list[int]) -> None:
    """One result after the other."""
    xs = op.operands[:len(outs)]
    shape = xs[0].shape
    with l.w.loops([shape[d] for d in kept]) as at:
        names = _variables(l, [o.ctype for o in outs], starting)
        with l.w.loops([shape[d] for d in axes]) as inner:
            scope, position = Scope(l), _position(len(shape), kept, at, axes, inner)
            _combine(l, scope, op.regions[0], names, [scope.get(x, position) for x in xs])
        for out, name in zip(outs, names):
            l.put(out, at, name)


def _across(l: Lowering, op: Op, outs: list[Buffer], starting: list[str], kept: list[int], axes: list[int]) -> None:
    """All results at once, in the order in which the elements lie."""
    xs = op.operands[:len(outs)]
    shape = xs[0].shape
    outer, last = [d for d in kept if d < axes[0]], [d for d in kept if d > axes[0]]
    with l.w.loops([shape[d] for d in outer]) as before:
        with l.w.loops([shape[d] for d in last]) as after:
            for out, value in zip(outs, starting):
                l.put(out, [*before, *after], value)
        with l.w.loops([shape[d] for d in axes]) as inner, l.w.loops([shape[d] for d in last]) as after:
            at, scope = [*before, *after], Scope(l)
            elements = [scope.get(x, _position(len(shape), kept, at, axes, inner)) for x in xs]
            held = [scope.let(o.ctype, l.load(o, at)) for o in outs]
            for out, value in zip(outs, scope.region(op.regions[0], [*held, *elements])):
                l.put(out, at, value)


def _in_lanes(l: Lowering, op: Op, out: Buffer, start: str, first: str, kept: list[int], axes: list[int]) -> None:
    """Sums and extremes of floats in lanes, which begin with `first`."""
    x, region = op.operands[0], op.regions[0]

    def combine(total: str, position: list[Index] | None = None, lane: str = "") -> None:
        scope = Scope(l)
        value = lane if position is None else scope.get(x, position)
        l.w.line(f"{total} = {scope.region(region, [total, value])[0]};")
    shape, t = x.shape, of(op.dtype)
    width = LANES if first == "0" and l.plan.is_plain(x) else WIDE
    whole, rest = divmod(shape[-1], width)
    with l.w.loops([shape[d] for d in kept]) as at:
        lanes, total = l.w.name("a"), l.w.name("a")
        l.w.line(f"{t.value} {lanes}[{width}]{' = {0}' if first == '0' else ''}, {total} = {start};")
        if first != "0":
            with l.w.loop(width) as lane:
                l.w.line(f"{lanes}[{lane}] = {first};")
        with l.w.loops([shape[d] for d in axes[:-1]]) as inner:
            with l.w.loop(whole) as block, l.w.loop(width) as lane:
                combine(f"{lanes}[{lane}]", _position(len(shape), kept, at, axes, [*inner, block * width + lane]))
            if rest:
                with l.w.loop(rest) as lane:
                    combine(f"{lanes}[{lane}]", _position(len(shape), kept, at, axes, [*inner, lane + whole * width]))
        with l.w.loop(width) as lane:
            combine(total, lane=f"{lanes}[{lane}]")
        l.put(out, at, total)


# ---- windows -----------------------------------------------------------------------------------------------------------

def attribute(op: Op, name: str, default: int, rank: int) -> list[int]:
    """A list of numbers for each axis."""
    found = op.attrs.get(name)
    return [int(n) for n in found] if found is not None and len(found) else [default] * rank


def paddings(op: Op, rank: int) -> list[tuple[int, int]]:
    """(before, behind) for each axis."""
    found = op.attrs.get("padding")
    if found is None:
        return [(0, 0)] * rank
    flat = [int(n) for n in getattr(found, "reshape", lambda _: _flattened(found))(-1)]
    return list(zip(flat[::2], flat[1::2]))


def _flattened(nested: Sequence) -> list[int]:
    return [n for pair in nested for n in (pair if isinstance(pair, (tuple, list)) else (pair,))]


@row("reduce_window")
def reduce_window(l: Lowering, op: Op) -> None:
    n = len(op.results)
    xs, inits = op.operands[:n], op.operands[n:]
    rank = xs[0].rank
    size, stride = attribute(op, "window_dimensions", 1, rank), attribute(op, "window_strides", 1, rank)
    base, dilation = attribute(op, "base_dilations", 1, rank), attribute(op, "window_dilations", 1, rank)
    sources, before = [l.stored(x) for x in xs], [low for low, _ in paddings(op, rank)]
    with l.kernel():
        starting = [l.value(v) for v in inits]
        outs = [l.new(v) for v in op.results]
        with l.w.loops(op.shape) as at:
            names = _variables(l, [o.ctype for o in outs], starting)
            with l.w.loops(size) as inner, one_step(l, size):
                place = [i * s + k * d + -b for i, s, k, d, b in zip(at, stride, inner, dilation, before)]
                source, scope = inside(l, place, xs[0].shape, base), Scope(l)
                elements = [scope.let(b.ctype, l.load(b, source)) for b in sources]
                _combine(l, scope, op.regions[0], names, elements)
            for out, name in zip(outs, names):
                l.put(out, at, name)


def one_step(l: Lowering, size: Sequence[int]) -> AbstractContextManager:
    """A block that `continue` leaves, where the loops over a window are none."""
    return l.w.block("do", " while (0);") if prod(size) == 1 else nullcontext()


def inside(l: Lowering, place: Sequence[Index], shape: Sequence[int], dilation: Sequence[int]) -> list[Index]:
    """The elements that positions in a dilated array stand for; the rest of the loop is skipped where there is none."""
    found = []
    for i, n, d in zip(place, shape, dilation):
        if i.lowest >= 0 and i.highest < n and d == 1:
            found.append(i)
            continue
        name = l.w.name("p")
        l.w.line(f"const ptrdiff_t {name} = {i};")
        outside = [f"{name} < 0"] if i.lowest < 0 else []
        outside += [f"{name} > {(n - 1) * d}"] if i.highest > (n - 1) * d else []
        outside += [f"{name} % {d} != 0"] if d > 1 else []
        if outside:
            l.w.line(f"if ({' || '.join(outside)}) continue;")
        found.append(Index.of(name if d == 1 else f"{name} / {d}", n))
    return found


@row("select_and_scatter")
def select_and_scatter(l: Lowering, op: Op) -> None:
    """Each source element goes to the place in its window that the first region prefers."""
    x, source, init = op.operands
    rank, (prefer, add) = x.rank, op.regions
    size, stride = attribute(op, "window_dimensions", 1, rank), attribute(op, "window_strides", 1, rank)
    before, values, given = [low for low, _ in paddings(op, rank)], l.stored(x), l.stored(source)
    with l.kernel():
        out = l.new(op.result)
        fill(l, out, l.value(init))
        with l.w.loops(source.shape) as at:
            best, held = l.w.name("p"), l.w.name("a")
            l.w.line(f"ptrdiff_t {best} = -1;")
            l.w.line(f"{values.ctype.value} {held} = 0;")
            with l.w.loops(size) as inner, one_step(l, size):
                place = [i * s + k + -b for i, s, k, b in zip(at, stride, inner, before)]
                position, scope = inside(l, place, x.shape, [1] * rank), Scope(l)
                value = scope.let(values.ctype, l.load(values, position))
                keep, = scope.region(prefer, [held, value])
                l.w.line(f"if ({best} < 0 || !{keep}) {best} = {flat(position, x.shape)}, {held} = {value};")
            with l.w.block(f"if ({best} >= 0)"):
                scope, line = Scope(l), out.reshaped((out.storage.size,))
                there = [Index.of(best, out.storage.size)]
                new, = scope.region(add, [scope.let(out.ctype, l.load(line, there)), scope.let(out.ctype, l.load(given, at))])
                l.put(line, there, new)


@row("map")
def map_(l: Lowering, op: Op) -> None:
    with l.kernel():
        out = l.new(op.result)
        with l.w.loops(op.shape) as at:
            scope = Scope(l)
            l.put(out, at, scope.region(op.regions[0], [scope.get(x, at) for x in op.operands])[0])
