"""Rows of control flow: while, case, if, and the values that a region hands out."""
from __future__ import annotations

from aot.exporters.stablehlo import Block, Op, Value

from .lowering import Lowering, Plan, row
from .memory import Buffer, Storage
from .types import of


@row("while")
def while_(l: Lowering, op: Op) -> None:
    """State that changes lies in places of its own; what the body hands on unchanged stays where it is."""
    condition, body = op.regions
    state: list[Storage] = []
    for init, start, arg, out, result in zip(op.operands, condition.args, body.args, body.outputs, op.results):
        place = l.stored(init)
        storage = place.storage if out is arg else _own(l, init, place)
        state.append(storage)
        for v in (start, arg, result):
            l.bind(v, storage)
    l.memory.enter()
    with l.w.block("for (;;)"):
        going, = l.block(condition)
        with l.w.block():
            l.w.line(f"if (!{l.element(going, [])}) break;")
        _advance(l, body, state)
    l.memory.leave()


def _own(l: Lowering, init: Value, place: Buffer) -> Storage:
    """A place for state that starts with a value."""
    if (found := l.may_overwrite(init)) is not None:
        return found.storage
    made = l.memory.new(of(init.dtype), init.type.size)
    l.copy(place, made)
    return made


def _advance(l: Lowering, body: Block, state: list[Storage]) -> None:
    """One step: the new state is computed in place where the old one is not needed any more, or else copied."""
    plan, wanted = Plan(body), {}
    places = {r: i for i, op in enumerate(body.ops) for r in op.results}
    for arg, out, storage in zip(body.args, body.outputs, state):
        if out in places and body.outputs.count(out) == 1 and plan.last.get(arg, -1) < places[out]:
            wanted[out] = storage
    found = l.block(body, wanted)
    moves = [(b, s) for b, s in zip(found, state) if b.storage is not s]
    changed = {s for _, s in moves}
    for i, (b, s) in enumerate(moves):
        if b.storage in changed:                # another piece of state, as it was before this step
            aside = l.memory.new(b.ctype, b.storage.size)
            l.copy(b, aside)
            moves[i] = Buffer(aside, b.shape), s
    for b, s in moves:
        l.copy(b, s)


@row("if", "case")
def branches(l: Lowering, op: Op) -> None:
    chosen = l.stored(op.operands[0])
    outs = [l.new(v) for v in op.results]
    n = len(op.regions)
    with l.w.block():
        name = l.w.name("v")
        l.w.line(f"const {chosen.ctype.value} {name} = {l.element(chosen, [])};")
        for i, region in enumerate(op.regions):
            test = name if op.name == "if" else f"{name} == {i}"
            with l.w.block(f"{'else ' if i else ''}{'' if i == n - 1 and i else f'if ({test})' if n > 1 else ''}".strip()):
                targets = {v: o.storage for v, o in zip(region.outputs, outs) if _made_in(region, v)}
                for b, o in zip(l.block(region, targets), outs):
                    l.copy(b, o.storage)


def _made_in(region: Block, v: Value) -> bool:
    return region.outputs.count(v) == 1 and v.op is not None and any(v.op is op for op in region.ops)
