"""Composites: operations that carry a name and a way to compute them without it.

A format has a table of rules by name.  What it has no rule for, or declines, is replaced by its plain form.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .ir import Block, Op, Program, Type, Value
from .simplify import substitute


class Composite:
    """One composite whose operands have names: a call of a function of `aot.nn`.

    operands: argument name -> value, in order.  attrs: the arguments that are no arrays.  type: of its result.
    """

    def __init__(self, op: Op):
        self.attrs = dict(op.attrs.get("composite_attributes") or {})
        self.operands: dict[str, Value] = dict(zip(self.attrs.pop("arguments", ()), op.operands))
        self.type: Type = op.result.type

    def takes(self, *names: str) -> bool:
        """Whether its arrays are exactly these arguments."""
        return tuple(self.operands) == names

    def number(self, name: str) -> float | None:
        """An argument that is a number, or an array with one known element; None for others."""
        if name not in self.operands:
            found = self.attrs.get(name)
            return float(found) if isinstance(found, (int, float)) else None
        value = self.operands[name].constant
        return float(value.reshape(-1)[0]) if value is not None and value.size == 1 else None

    def axes(self, name: str = "axis") -> tuple[int, ...]:
        """An argument that is one axis, several, or all of `x`, counted from the front and sorted."""
        rank, found = self.operands["x"].rank, self.attrs.get(name)
        given = range(rank) if found is None else found if isinstance(found, (tuple, list)) else (found,)
        return tuple(sorted(int(a) % max(rank, 1) for a in given))

    def op(self, name: str, *operands: str, **attrs: Any) -> Op:
        """The operation that computes it from these of its arrays."""
        return Op(name, [self.operands[o] for o in operands], [self.type], attrs)


Rule = Callable[[Composite], "Op | None"]


def resolve(program: Program, rules: Mapping[str, Rule]) -> Program:
    """Replace each composite by what its rule gives, or by its plain form, in place."""
    _resolve(program.body, rules)
    return program


def _resolve(block: Block, rules: Mapping[str, Rule]) -> None:
    kept: list[Op] = []
    replaced: dict[Value, Value] = {}
    for op in block.ops:
        op.operands = [replaced.get(v, v) for v in op.operands]
        if op.name != "composite":
            for region in op.regions:
                _resolve(region, rules)
            kept.append(op)
            continue
        composite = Composite(op)
        rule = rules.get(op.attrs["name"]) if composite.operands else None        # without names it is not ours
        made = rule(composite) if rule else None
        if made is not None:
            made.location = op.location
            kept.append(made)
            replaced[op.result] = made.result
        else:
            body = op.regions[0]
            substitute(body, dict(zip(body.args, op.operands)))
            _resolve(body, rules)
            kept += body.ops
            replaced.update(zip(op.results, body.outputs))
    block.ops = kept
    if replaced:
        substitute(block, replaced)
