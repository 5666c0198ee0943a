"""Which numbers the values of a jaxpr can be: intervals, as far as the operations tell.  For `aot check`."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aot import dtypes
from aot.trace import Eqn, Jaxpr, Literal, Var

INF = math.inf
ANY = (-INF, INF)
Range = tuple[float, float]
_SMALLEST = 1e-300      # above 0, however small
_LARGE_LITERAL = 4096   # elements; what is larger is not looked at

#: operations whose results are elements of their first operand
SAME = frozenset((
    "broadcast_in_dim", "reshape", "squeeze", "transpose", "rev", "slice", "dynamic_slice", "gather", "copy", "stop_gradient",
    "convert_element_type", "reduce_precision", "reduce_max", "reduce_min", "name", "device_put", "cummax", "cummin"))
_BOUNDS: dict[str, Range] = {
    "sin": (-1, 1), "cos": (-1, 1), "tanh": (-1, 1), "erf": (-1, 1), "sign": (-1, 1), "logistic": (_SMALLEST, 1),
    "cosh": (1, INF), "erfc": (0, 2), "iota": (0, INF)}


def _times(x: Range, y: Range) -> Range:
    ends = [0. if 0 in (a, b) else a * b for a in x for b in y]
    return min(ends), max(ends)


def _exp(x: float) -> float:
    return _SMALLEST if x < -690 else INF if x > 700 else math.exp(x)


def _over(x: Range, y: Range) -> Range:
    if y[0] <= 0 <= y[1]:
        return (0., INF) if x[0] >= 0 and y[0] >= 0 else ANY
    return _times(x, (1 / y[1], 1 / y[0]))


def _even(x: Range, power: Callable = lambda v: v * v) -> Range:
    low, high = sorted((abs(x[0]), abs(x[1])))
    return (0. if x[0] <= 0 <= x[1] else power(low)), power(high)


_RULES: dict[str, Callable[..., Range]] = {
    "neg": lambda x: (-x[1], -x[0]),
    "abs": lambda x: _even(x, abs),
    "square": _even,
    "exp": lambda x: (_exp(x[0]), _exp(x[1])),
    "sqrt": lambda x: (math.sqrt(max(x[0], 0.)), math.sqrt(max(x[1], 0.))),
    "rsqrt": lambda x: (0., INF),
    "log": lambda x: (math.log(x[0]) if x[0] > 0 else -INF, math.log(x[1]) if 0 < x[1] < INF else INF),
    "add": lambda x, y: (x[0] + y[0], x[1] + y[1]), "add_any": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "sub": lambda x, y: (x[0] - y[1], x[1] - y[0]),
    "mul": _times,
    "div": _over,
    "max": lambda x, y: (max(x[0], y[0]), max(x[1], y[1])),
    "min": lambda x, y: (min(x[0], y[0]), min(x[1], y[1])),
    "clamp": lambda low, x, high: (min(max(low[0], x[0]), high[1]), max(min(high[1], x[1]), low[0])),
    "reduce_sum": lambda x: (x[0] if x[0] >= 0 else -INF, x[1] if x[1] <= 0 else INF),
    "concatenate": lambda *xs: (min(x[0] for x in xs), max(x[1] for x in xs)),
    "pow": lambda x, y: (0., INF) if x[0] >= 0 else ANY,
}


class Ranges:
    """The intervals of one jaxpr's variables, and which equation made each."""

    def __init__(self, jaxpr: Jaxpr):
        self.made: dict[Var, Eqn] = {v: e for e in jaxpr.eqns for v in e.outvars}
        self.users: dict[Var, list[Eqn]] = {}
        self.known: dict[Var, Range] = {}
        self.differentiable = {v for v in jaxpr.invars if isinstance(v.aval.dtype, np.dtype) and dtypes.issubdtype(
            v.aval.dtype, np.inexact)}        # these, and what depends on them
        for e in jaxpr.eqns:
            if e.primitive.name != "stop_gradient" and any(type(x) is Var and x in self.differentiable for x in e.invars):
                self.differentiable.update(e.outvars)
            for x in e.invars:
                if type(x) is Var:
                    self.users.setdefault(x, []).append(e)
            if len(e.outvars) == 1:
                low, high = self._of_eqn(e)
                self.known[e.outvars[0]] = (ANY if low != low or high != high else (low, high))

    def of(self, x: Any) -> Range:
        """The interval of an operand."""
        if type(x) is Literal:
            return _of_literal(x)
        found = self.known.get(x)
        if found is None:
            dtype = x.aval.dtype
            found = (0., INF) if isinstance(dtype, np.dtype) and dtype.kind in "bu" else ANY
        return found

    def source(self, x: Any, through: frozenset = SAME) -> Eqn | None:
        """The equation that computed x, looking through those that only move elements."""
        e = self.made.get(x) if type(x) is Var else None
        while e is not None and e.primitive.name in through:
            x = e.invars[0]
            e = self.made.get(x) if type(x) is Var else None
        return e

    def below_own_maximum(self, e: Eqn | None) -> bool:
        """Whether an equation is x - max(x)."""
        return e is not None and e.primitive.name == "sub" and self._is_maximum(e.invars[1])

    def _is_maximum(self, x: Any) -> bool:
        e = self.source(x, SAME - {"reduce_max"})
        if e is None:
            return False
        if e.primitive.name in ("max", "select_n"):
            return any(self._is_maximum(v) for v in e.invars)
        return e.primitive.name == "reduce_max"

    def _of_eqn(self, e: Eqn) -> Range:
        name, ins = e.primitive.name, e.invars
        if name in _BOUNDS:
            return _BOUNDS[name]
        if e.outvars[0].aval.dtype == np.bool_:
            return 0., 1.
        if name in SAME:
            return self.of(ins[0])
        if name == "select_n":          # NaN as a case is no number
            cases = [self.of(x) for x in ins[1:] if not (type(x) is Literal and np.ndim(x.val) == 0 and x.val != x.val)]
            return min(c[0] for c in cases), max(c[1] for c in cases)
        if name == "mul" and ins[0] is ins[1]:
            return _even(self.of(ins[0]))
        if name == "integer_pow":
            return _even(self.of(ins[0]), lambda v: v ** e.params["y"]) if e.params["y"] % 2 == 0 and e.params["y"] > 0 else ANY
        if name == "sub" and self.below_own_maximum(e):
            return -INF, 0.
        if name == "reduce_sum":
            exp = self.source(ins[0])
            if exp is not None and exp.primitive.name == "exp" and self.below_own_maximum(self.source(exp.invars[0])):
                return 1., INF          # the largest exponent is 0
        rule = _RULES.get(name)
        return ANY if rule is None else rule(*map(self.of, ins))


def _of_literal(x: Literal) -> Range:
    if x.aval.size > _LARGE_LITERAL or x.aval.size == 0 or not isinstance(x.aval.dtype, np.dtype) or x.aval.dtype.kind == "c":
        return ANY
    v = np.asarray(x.val).astype(np.float64)
    return (float(v.min()), float(v.max())) if not np.isnan(v).any() else ANY
