"""Rows that move elements: pad, concatenate, slices and updates at computed places, bits of another width."""
from __future__ import annotations

from collections.abc import Sequence

from aot.exporters.stablehlo import Op, Value

from .index import Index
from .lowering import Lowering, Scope, row
from .memory import Buffer
from .types import of


def fill(l: Lowering, b: Buffer, value: str) -> None:
    """Write the loop that gives every element one value."""
    with l.w.loop(b.storage.size) as i:
        l.put(b.reshaped((b.storage.size,)), [i], value)


@row("pad")
def pad(l: Lowering, op: Op) -> None:
    x, padding = op.operands
    low, high, inner = (op.attrs[k] for k in ("edge_padding_low", "edge_padding_high", "interior_padding"))
    with l.kernel():
        out = l.new(op.result)
        fill(l, out, l.value(padding))
        spread(l, out, x, low, inner)


def spread(l: Lowering, out: Buffer, x: Value, low: Sequence[int], inner: Sequence[int]) -> None:
    """Write the loops that put x into a larger array, `low` from its start and with room for `inner` between neighbours.

    low may be negative: elements whose place lies outside are left out."""
    first = [max(0, -(b // (i + 1))) if b < 0 else 0 for b, i in zip(low, inner)]
    last = [min(n, -(-(m - b) // (i + 1))) for n, m, b, i in zip(x.shape, out.shape, low, inner)]
    counts = [b - a for a, b in zip(first, last)]
    if min(counts, default=1) > 0:
        with l.w.loops(counts) as at:
            source = [i + a for i, a in zip(at, first)]
            place = [i * (n + 1) + b for i, n, b in zip(source, inner, low)]
            l.put(out, place, Scope(l).get(x, source))


@row("concatenate")
def concatenate(l: Lowering, op: Op) -> None:
    axis, start = op.attrs["dimension"], 0
    with l.kernel():
        out = l.new(op.result)
        for x in op.operands:
            if x.type.size:
                with l.w.loops(x.shape) as at:
                    place = [i + start if d == axis else i for d, i in enumerate(at)]
                    l.put(out, place, Scope(l).get(x, at))
            start += x.shape[axis]


def starts(l: Lowering, indices: Sequence[Value], limits: Sequence[int]) -> list[Index]:
    """Positions as variables, clamped to 0 .. limit."""
    found = []
    for v, limit in zip(indices, limits):
        name = l.w.name("p")
        if limit == 0:
            found.append(Index())
            continue
        value = l.value(v)
        low = "" if of(v.dtype).kind == "u" else f"{value} < 0 ? 0 : "
        l.w.line(f"const ptrdiff_t {name} = {low}{value} > {limit} ? {limit} : (ptrdiff_t){value};")
        found.append(Index.of(name, limit + 1))
    return found


@row("dynamic_slice")
def dynamic_slice(l: Lowering, op: Op) -> None:
    x = op.operands[0]
    source = l.stored(x)
    with l.kernel():
        begin = starts(l, op.operands[1:], [n - m for n, m in zip(x.shape, op.shape)])
        out = l.new(op.result)
        with l.w.loops(op.shape) as at:
            l.put(out, at, l.load(source, [i + b for i, b in zip(at, begin)]))


@row("dynamic_update_slice")
def dynamic_update_slice(l: Lowering, op: Op) -> None:
    x, update = op.operands[:2]
    piece = l.stored(update)
    out = changed(l, x, op.result, [piece])
    with l.kernel():
        begin = starts(l, op.operands[2:], [n - m for n, m in zip(x.shape, update.shape)])
        with l.w.loops(update.shape) as at:
            l.put(out, [i + b for i, b in zip(at, begin)], l.load(piece, at))


def changed(l: Lowering, x: Value, result: Value, read: Sequence[Buffer]) -> Buffer:
    """The place of a result that is an operand with some elements changed, holding the operand: its own place if nothing else
    needs it, or a copy.  read: what else the operation reads."""
    source = l.stored(x)
    own = l.may_overwrite(x)
    if own is not None and all(b.storage is not own.storage for b in read):
        l.targets.pop(result, None)
        return l.bind(result, own.storage)
    out = l.new(result)
    l.copy(source, out.storage)
    return out


@row("bitcast_convert")
def bitcast_convert(l: Lowering, op: Op) -> None:
    """Elements of another width: the same bytes."""
    source = l.stored(op.operands[0])
    with l.kernel():
        out = l.new(op.result)
        l.w.line(f"memcpy({l.pointer(out, written=True)}, {l.pointer(source)}, {out.storage.bytes});")
