"""Rows of control flow.  Subgraphs are closed: values of outer blocks become operands, constants are written again."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aot.exporters.stablehlo import Block, Op, Value

from .complex_numbers import PARTS, Complex, Math, parts
from .graph import Tensor
from .lowering import Lowering, row


def captured(regions: Sequence[Block], outer: dict[Value, Any]) -> list[Value]:
    """The values of outer blocks that regions use, each once, in the order of use."""
    own: set[Value] = set()
    used: dict[Value, None] = {}
    for region in regions:
        own.update(region.args)
        for op in region.walk():
            used.update(dict.fromkeys(op.operands))
            own.update(op.results)
            for inner in op.regions:
                own.update(inner.args)
                used.update(dict.fromkeys(inner.outputs))
        used.update(dict.fromkeys(region.outputs))
    return [v for v in used if v not in own and v in outer]


class Captures:
    """What regions take from outside: constants as they are, everything else as further state."""

    def __init__(self, lower: Lowering, regions: Sequence[Block]):
        values = captured(regions, lower.env)
        self.constants = {v: lower.env[v] for v in values if all(p.value is not None for p in parts(lower.env[v]))}
        self.values = [v for v in values if v not in self.constants]
        self.operands = [t for v in self.values for t in parts(lower.env[v])]

    def env(self, tensors: Sequence[Tensor]) -> dict[Value, Any]:
        """What the values are in a subgraph that was given these tensors."""
        found, rest = dict(self.constants), list(tensors)
        for v in self.values:
            n = 2 if v.dtype in PARTS else 1
            found[v], rest = joined(rest[:n]), rest[n:]
        return found


def joined(tensors: Sequence[Tensor]) -> Any: return Complex(*tensors) if len(tensors) == 2 else tensors[0]


def flat(g: Math, values: Sequence[Any], like: Sequence[Value]) -> list[Tensor]:
    """Parts of values, in the shape that their types have."""
    return [g.broadcast(t, v.shape) for x, v in zip(values, like) for t in parts(x)]


def grouped(tensors: Sequence[Tensor], like: Sequence[Value]) -> list[Any]:
    """The values whose parts these tensors are."""
    found, rest = [], list(tensors)
    for v in like:
        n = 2 if v.dtype in PARTS else 1
        found.append(joined(rest[:n]))
        rest = rest[n:]
    return found


@row("while")
def while_(lower: Lowering, op: Op, *state: Any) -> list[Any]:
    g, (condition, body) = lower.g, op.regions
    captures = Captures(lower, op.regions)
    start = flat(g, state, op.results)
    n = len(start)

    def run(g: Math, block: Block, tensors: Sequence[Tensor]) -> list[Tensor]:
        inner = Lowering(g, lower.report, captures.env(tensors[n:]))
        return flat(g, inner.block(block, grouped(tensors[:n], op.results)), block.outputs)

    found = g.while_loop(lambda g, *ts: run(g, condition, ts)[0], lambda g, *ts: [*run(g, body, ts), *ts[n:]],
                         [*start, *captures.operands])
    return grouped(found[:n], op.results)


@row("if")
def if_(lower: Lowering, op: Op, predicate: Tensor) -> list[Any]: return _branches(lower, op, predicate, op.regions)


@row("case")
def case(lower: Lowering, op: Op, index: Tensor) -> list[Any]:
    """Any index that is not one of a branch means the last; nested choices between two."""
    if len(op.regions) == 1:
        return lower.apply(op.regions[0])
    is_first = lower.g.equal(index, lower.g.const(np.int32(0)))
    return _branches(lower, op, is_first, op.regions, index)


def _branches(lower: Lowering, op: Op, predicate: Tensor, regions: Sequence[Block], index: Tensor | None = None,
              number: int = 0) -> list[Any]:
    """The first region where the predicate holds, the others where it does not."""
    captures = Captures(lower, regions)
    operands = [*captures.operands, *([index] if index is not None and len(regions) > 2 else [])]

    def otherwise(inner: Lowering, given: Sequence[Tensor]) -> list[Any]:
        if len(regions) == 2:
            return inner.block(regions[1], [])
        chosen = inner.g.equal(given[-1], inner.g.const(np.int32(number + 1)))
        return _branches(inner, op, chosen, regions[1:], given[-1], number + 1)

    then = _branch(lower, op, captures, operands, "then", lambda inner, given: inner.block(regions[0], []))
    options = ("IfOptions", {"thenSubgraphIndex": then,
                             "elseSubgraphIndex": _branch(lower, op, captures, operands, "else", otherwise)})
    types = [(v.shape, PARTS.get(v.dtype, v.dtype)) for v in op.results for _ in range(2 if v.dtype in PARTS else 1)]
    return grouped(lower.g.nodes("IF", [predicate, *operands], types, options), op.results)


def _branch(lower: Lowering, op: Op, captures: Captures, operands: Sequence[Tensor], name: str, body: Callable) -> int:
    """The number of a subgraph with the results of body(lowering, its inputs)."""
    g = lower.g.nested(name)
    given = [g.input(t.shape, t.dtype) for t in operands]
    g.finish(flat(g, body(Lowering(g, lower.report, captures.env(given)), given), op.results))
    return g.number
