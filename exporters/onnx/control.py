"""Rows: loops and branches as nested graphs, which may use values of the graphs around them."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aot.exporters.stablehlo import Block, Op

from .graph import BOOL, I64, Graph, Tensor
from .lowering import Lowering, Pair, complex_row, row


def flat(values: Sequence[Any]) -> list[Tensor]:
    """Complex numbers as their parts."""
    return [t for v in values for t in ((v.re, v.im) if isinstance(v, Pair) else (v,))]


def like(tensors: Sequence[Tensor], model: Sequence[Any]) -> list[Any]:
    """The inverse of `flat`, for values of the kind of `model`."""
    found = iter(tensors)
    return [Pair(next(found), next(found)) if isinstance(m, Pair) else next(found) for m in model]


def named(g: Graph, t: Tensor, prefix: str = "o") -> Tensor:
    """A tensor under a name of its own in the current graph, as results of graphs must have."""
    made = Tensor(g.fresh(prefix), t.shape, t.dtype)
    g.node("Identity", [g.ref(g.full(t))], [made.name or ""])
    return made


@row("while")
def _while(c: Lowering, op: Op, *xs: Any) -> list[Any]:
    """Loop: the condition is computed before the loop and at the end of its body."""
    g = c.g
    cond, body = op.regions
    start = c.inline(cond, list(xs))[0]
    carried = [Tensor(g.fresh("l"), t.shape, t.dtype) for t in flat(xs)]
    counter, entered = Tensor(g.fresh("i"), (), I64), Tensor(g.fresh("b"), (), BOOL)
    with g.nested() as nodes:
        new = c.inline(body, like(carried, xs))
        again = c.inline(cond, new)[0]
        outs = [named(g, t) for t in (again, *flat(new))]
    graph = g.graph_proto(g.fresh("body"), nodes, [counter, entered, *carried], outs)
    made = g.several("Loop", [None, start, *flat(xs)], [t.type for t in carried], body=graph)
    return like(made, xs)


@row("if")
def _if(c: Lowering, op: Op, p: Tensor) -> list[Any]:
    return _branches(c, op, p, op.regions[0], op.regions[1])


@row("case")
def _case(c: Lowering, op: Op, index: Tensor) -> list[Any]:
    """Nested branches; a number that is none of them means the last."""
    return _cases(c, op, index, 0)


def _cases(c: Lowering, op: Op, index: Tensor, i: int) -> list[Any]:
    if i == len(op.regions) - 1:
        return c.inline(op.regions[i], [])
    this = c.g("Equal", index, c.g.constant(np.asarray(i, index.dtype)))
    return _branches(c, op, this, op.regions[i], lambda: _cases(c, op, index, i + 1))


def _branches(c: Lowering, op: Op, p: Tensor, yes: Block, no: Any) -> list[Any]:
    g, graphs, model = c.g, [], []
    for branch in (yes, no):
        with g.nested() as nodes:
            model = c.inline(branch, []) if isinstance(branch, Block) else branch()
            outs = [named(g, t) for t in flat(model)]
        graphs.append(g.graph_proto(g.fresh("branch"), nodes, [], outs))
    made = g.several("If", [p], [t.type for t in flat(model)], then_branch=graphs[0], else_branch=graphs[1])
    return like(made, model)


for _name, _row in (("while", _while), ("if", _if), ("case", _case)):
    complex_row(_name)(_row)
