"""Rows of control flow: while, case, if, and the values that a region hands out."""
from __future__ import annotations

from collections.abc import Collection, Sequence

from aot.exporters.stablehlo import Block, Op, Value

from .lowering import Lowering, row, used_in
from .memory import Buffer, Storage
from .types import of


@row("while")
def while_(l: Lowering, op: Op) -> None:
    """State that changes lies in places of its own; what the body hands on unchanged stays where it is."""
    condition, body = op.regions
    captured = used_in(condition) | used_in(body)
    wanted = [l.targets.pop(v, None) for v in op.results]
    places = [_begin(l, init, storage) for init, storage in zip(op.operands, wanted)]
    state: list[Storage] = []
    for init, place, arg, out, result in zip(op.operands, places, body.args, body.outputs, wanted):
        shared = sum(b.storage is place.storage for b in places) > 1
        state.append(place.storage if out is arg else _own(l, init, place, shared, captured, result))
    changed = [s for s, arg, out in zip(state, body.args, body.outputs) if out is not arg]
    l.memory.enter()
    with l.w.block("for (;;)"):
        _hold(l, condition.args, state, changed)
        for v, s in zip(op.results, state):
            l.bound[s].add(v)       # the body wants the state as it is
        going, = l.block(condition)
        with l.w.block():
            l.w.line(f"if (!{l.element(going, [])}) break;")
        _hold(l, body.args, state, changed)
        _advance(l, body, state)
    l.memory.leave()
    _hold(l, op.results, state, changed)


def _hold(l: Lowering, values: Sequence[Value], state: Sequence[Storage], changed: Sequence[Storage]) -> None:
    """The state is known as these values now, and what changes of it as nothing else."""
    for s in changed:
        l.bound[s] = set()
    for v, s in zip(values, state):
        l.bind(v, s)


def _begin(l: Lowering, init: Value, wanted: Storage | None) -> Buffer:
    """A first value of state; a constant is written where the result is to be."""
    if wanted is not None and init.constant is not None:
        l.targets[init] = wanted
    place = l.stored(init)
    l.targets.pop(init, None)
    return place


def _own(l: Lowering, init: Value, place: Buffer, shared: bool, captured: Collection[Value], wanted: Storage | None) -> Storage:
    """A place for state that starts with a value; wanted: where the result is to be."""
    if init.constant is not None and place.storage.kind != "constant":
        return place.storage        # made for this loop
    if not shared and wanted is None and (found := l.may_overwrite(init, captured)) is not None:
        return found.storage
    made = wanted if wanted is not None and l.is_free(wanted) else l.memory.new(of(init.dtype), init.type.size)
    l.copy(place, made)
    return made


def _advance(l: Lowering, body: Block, state: Sequence[Storage]) -> None:
    """One step: the new state is computed in place where the old one is not needed any more, or else copied."""
    wanted = {out: s for out, s in zip(body.outputs, state) if _made_in(body, out)}
    l.move(l.block(body, wanted), state)


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
                l.move(l.block(region, targets), [o.storage for o in outs])


def _made_in(region: Block, v: Value) -> bool:
    return region.outputs.count(v) == 1 and v.op is not None and any(v.op is op for op in region.ops)
