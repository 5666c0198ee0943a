"""Programs without references: what a reference refers to becomes a value, which is passed on from operation to operation.

A primitive's `discharge` rule is its meaning on cells: it reads and sets their values.  The same rule serves three purposes:
jaxprs are rewritten before they are lowered; what meets concrete references runs at once; and control flow that meets
references with tangents or batches becomes control flow over their contents, of which transforms know.
"""
from __future__ import annotations

from typing import Any, Sequence

from aot import source
from aot.trace import Jaxpr, Literal, stage_closed, subjaxprs
from aot.trace.refs import AbstractRef, is_ref, refuse_as_array

REF = "ref"         # the effect of what reads or writes references


class Cell:
    """A reference whose contents are passed on as a value.  shared: not by it alone, so that its memory is not reused."""
    __slots__ = ("aval", "value", "shared", "written", "ended")

    def __init__(self, aval: AbstractRef, value: Any, shared: bool = True):
        self.aval, self.value, self.shared, self.written, self.ended = aval, value, shared, False, ""

    def set(self, value: Any) -> None:
        """New contents, with the weak type that they have while the program runs."""
        self.value, self.written = value, True


def contents(args: Sequence) -> list:
    """Operands with contents in place of cells.  ValueError where a cell occurs twice."""
    cells = [x for x in args if type(x) is Cell]
    if len(set(map(id, cells))) < len(cells):
        twice = next(c for n, c in enumerate(cells) if any(c is d for d in cells[:n]))
        raise ValueError(f"only one reference to a mutable array may be passed to a function, but one of type {twice.aval} is "
                         "passed, or closed over, twice. hint: use it through one name only")
    return [x.value if type(x) is Cell else x for x in args]


def refuse_cells(prim: Any, args: Sequence) -> None:
    """TypeError where a reference is passed to what takes arrays."""
    for x in args:
        if type(x) is Cell:
            refuse_as_array(x.aval, f"passed to `{prim.name}`, which takes arrays")


def run(jaxpr: Jaxpr, args: Sequence) -> list:
    """Evaluate a jaxpr on values and cells."""
    env: dict[Any, Any] = dict(zip(jaxpr.invars, args, strict=True))
    with source.replaying(None) as outer:
        for e in jaxpr.eqns:
            source.set_current(e.source or outer)
            ins = [x.val if type(x) is Literal else env[x] for x in e.invars]
            held = REF in e.effects or any(type(x) is Cell for x in ins)
            outs = e.primitive.discharge(ins, **e.params) if held else e.primitive.rebind(ins, e.params)
            env.update(zip(e.outvars, outs))
    return [x.val if type(x) is Literal else env[x] for x in jaxpr.outvars]


def discharged(jaxpr: Jaxpr, args: Sequence, force: frozenset = frozenset()) -> tuple[Jaxpr, list[int]]:
    """-> (jaxpr on contents in place of the references that are cells among args, which of its inputs are written).

    The new contents of those come after the outputs.  force: inputs that count as written."""
    cells = tuple([type(x) is Cell for x in args])
    return jaxpr.memo((REF, cells, force), lambda: _discharged(jaxpr, cells, force))


def _discharged(jaxpr, cells, force):
    written: list[int] = []

    def f(*xs):
        ins = [Cell(a, x) if c else x for a, x, c in zip(jaxpr.in_avals, xs, cells)]
        outs = run(jaxpr, ins)
        written[:] = [i for i, x in enumerate(ins) if type(x) is Cell and (x.written or i in force)]
        return [*outs, *[ins[i].value for i in written]]
    avals = [a.inner_aval if c else a for a, c in zip(jaxpr.in_avals, cells)]
    return stage_closed(f, avals, jaxpr.debug_name), written


def update(args: Sequence, written: Sequence[int], outs: Sequence) -> list:
    """Take the new contents of cells off the end of outputs."""
    n = len(outs) - len(written)
    for i, x in zip(written, outs[n:]):
        args[i].set(x)
    return list(outs[:n])


def without_refs(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr without the references that it makes; those among its inputs stay."""
    return discharged(jaxpr, [None] * len(jaxpr.invars))[0] if REF in jaxpr.effects else jaxpr


def on_contents(jaxpr: Jaxpr) -> tuple[Jaxpr, list[int]]:
    """-> (the jaxpr on contents in place of all references, which of its inputs are written): what is lowered."""
    if REF not in jaxpr.effects and not any(type(a) is AbstractRef for a in jaxpr.in_avals):
        return jaxpr, []
    return discharged(jaxpr, [Cell(a, None) if type(a) is AbstractRef else a for a in jaxpr.in_avals])


def run_eagerly(prim: Any, args: Sequence, params: dict) -> list:
    """Run a primitive that meets concrete references."""
    from aot.array import asarray
    from aot.compile.eager import check_contents
    cells: dict[int, tuple[Any, Cell]] = {}
    for x in args:
        if is_ref(x):
            cells.setdefault(id(x), (x, Cell(x.aval, x.value, x.shared)))
    outs = prim.discharge([cells[id(x)][1] if id(x) in cells else x for x in args], **params)
    known = {id(x) for x in (*args, *outs)}
    for ref, cell in cells.values():
        if cell.written:
            ref.hold(asarray(cell.value))
            check_contents(prim.name, ref.value)
        ref.shared = ref.shared or id(cell.value) in known
    return outs


def run_in_place(jaxpr: Jaxpr, args: Sequence, written: Sequence[int], name: str) -> list:
    """Run a jaxpr on concrete values and contents; what is written takes the memory of what was there, where possible."""
    from aot.compile.eager import run_donating
    from aot.dispatch import is_partitioned, run_jaxpr
    values = contents(args)
    if not written or jaxpr.effects or is_partitioned(values, jaxpr):
        return run_jaxpr(jaxpr, values, name)
    return run_donating(jaxpr, values, written, [i for i in written if args[i].shared], name)


def thread(prim: Any, args: Sequence, params: dict) -> list:
    """Run a primitive that holds jaxprs on the contents of its references, in the current trace."""
    from aot.ops.refs import get_p, swap_p
    from aot.trace import bind, bind1
    if any(map(has_rules, subjaxprs(params))):
        raise NotImplementedError(f"`{prim.name}` with a reference that is batched or differentiated, which it passes to a "
                                  "function with a custom derivative. hint: pass that function the contents, ref[...]")
    cells: dict[int, tuple[Any, Cell]] = {}
    for x in args:
        if is_ref(x) and id(x) not in cells:
            cells[id(x)] = x, Cell(x.aval, bind1(get_p, x, view=()))
    outs = prim.discharge([cells[id(x)][1] if id(x) in cells else x for x in args], **params)
    for ref, cell in cells.values():
        if cell.written:
            bind(swap_p, ref, cell.value, view=())
    return outs


def has_rules(jaxpr: Jaxpr) -> bool:
    """Whether a function with a derivative rule takes a reference somewhere in it."""
    return jaxpr.memo("ref rules", lambda: [any(
        e.primitive.name.startswith("custom_") and any(type(x.aval) is AbstractRef for x in e.invars)
        or any(map(has_rules, subjaxprs(e.params))) for e in jaxpr.eqns)])[0]


def must_thread(prim: Any, args: Sequence, mine: Any) -> bool:
    """Whether a primitive that holds jaxprs runs on contents: where mine(x), or where it runs its jaxpr twice."""
    return any(is_ref(x) and (mine(x) or prim.recomputes) for x in args)


__all__ = ["REF", "Cell", "contents", "discharged", "must_thread", "on_contents", "run", "run_eagerly", "thread", "update",
           "without_refs"]
