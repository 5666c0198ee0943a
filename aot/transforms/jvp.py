"""Forward mode: dual numbers as a Trace, and jvp of jaxprs."""
from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np

from aot import dtypes
from aot.source import transformed
from aot.trace import (
    Jaxpr,
    Trace,
    Tracer,
    Zero,
    eval_jaxpr,
    is_tracer,
    is_zero,
    stage_closed,
    state,
    tangent_aval,
    tracing,
    typeof,
)
from aot.transforms.discharge import must_thread, thread


class JVPTracer(Tracer):
    """A primal with a nonzero tangent."""
    __slots__ = ("primal", "tangent")

    def __init__(self, trace, primal, tangent):
        self.owner, self.primal, self.tangent, self.aval = trace, primal, tangent, typeof(primal)

    def concrete(self):
        return self.primal.concrete() if is_tracer(self.primal) else self.primal


class JVPTrace(Trace):
    """Runs the jvp rule of each primitive that meets a tangent; `linear` asks for rules that keep the tangent work
    separate from the primal work (see `aot.transforms.linearize`)."""

    def __init__(self, parent: Trace, linear: bool = False):
        self.parent, self.linear = parent, linear

    def process(self, prim, args, params):
        primals, tangents, active = [], [], False
        for x in args:
            if type(x) is JVPTracer and x.owner is self:
                primals.append(x.primal)
                tangents.append(x.tangent)
                active = True
            else:
                primals.append(x)
                tangents.append(None)
        if prim.holds and active and must_thread(prim, args, lambda x: type(x) is JVPTracer and x.owner is self):
            return thread(prim, args, params)
        state.trace = self.parent
        try:
            if not active and not prim.makes_ref:
                return self.parent.process(prim, primals, params)
            tangents = [Zero.like(x) if t is None else t for x, t in zip(primals, tangents)]
            rule = prim.linearize if self.linear and prim.linearize is not None else prim.jvp
            outs, dots = rule(primals, tangents, **params)
        finally:
            state.trace = self
        return [self.tracer(x, t) for x, t in zip(outs, dots)]

    def tracer(self, x, t):
        return x if type(t) is Zero else JVPTracer(self, x, t)

    def pair(self, x) -> tuple[Any, Any]:
        return (x.primal, x.tangent) if type(x) is JVPTracer and x.owner is self else (x, Zero.like(x))

    def _custom(self, kind, call, args):
        primals, tangents = [list(z) for z in zip(*map(self.pair, args))] if args else ([], [])
        with tracing(self.parent):
            if all(map(is_zero, tangents)):
                return getattr(self.parent, kind)(call, primals)
            outs, dots = call.jvp(list(map(_indexable, primals)), tangents, linear=self.linear)
        return [self.tracer(x, t) for x, t in zip(outs, dots)]

    def custom_jvp(self, call, args): return self._custom("custom_jvp", call, args)
    def custom_vjp(self, call, args): return self._custom("custom_vjp", call, args)


def _indexable(x: Any) -> Any:
    """What a rule of the user's is given: a numpy array could not be indexed by traced values there."""
    from aot.array import asarray
    return asarray(x) if isinstance(x, np.ndarray) and x.ndim else x


def _is_staged_linear(t: Any) -> bool:
    """Whether a tangent is being linearized over (as in a custom_jvp rule that calls jvp, under grad): primal work must
    then stay apart from it."""
    while is_tracer(t):
        if getattr(t.owner, "stages_linear", False):
            return True
        t = getattr(t, "value", None) if not isinstance(t, JVPTracer) else t.primal
    return False


def jvp_flat(f: Callable, primals: Sequence, tangents: Sequence) -> tuple[list, list]:
    """f maps flat values to a flat list -> (outputs, tangents); tangents may be Zero on both sides."""
    trace = JVPTrace(state.trace, linear=any(map(_is_staged_linear, tangents)))
    with tracing(trace), transformed("jvp"):
        outs = f(*[x if is_zero(t) or typeof(t).dtype == dtypes.float0 else JVPTracer(trace, x, t)
                   for x, t in zip(primals, tangents, strict=True)])
        pairs = [trace.pair(x) for x in outs]
    return [x for x, _ in pairs], [t for _, t in pairs]


def jvp_jaxpr(jaxpr: Jaxpr, nonzero: Sequence[bool], instantiate: bool | Sequence[bool] = False):
    """-> (jaxpr: primals ++ nonzero tangents -> outputs ++ nonzero output tangents, which outputs have one)."""
    force = tuple([instantiate] * len(jaxpr.outvars) if isinstance(instantiate, bool) else instantiate)
    return jaxpr.memo(("jvp", tuple(nonzero), force), lambda: _jvp_jaxpr(jaxpr, nonzero, force))


def _jvp_jaxpr(jaxpr, nonzero, force):
    out_nonzero: list[bool] = []

    def f(*args):
        primals, dots = args[:len(jaxpr.invars)], iter(args[len(jaxpr.invars):])
        tangents = [next(dots) if nz else Zero.like(x) for x, nz in zip(primals, nonzero)]
        outs, out_dots = jvp_flat(lambda *xs: eval_jaxpr(jaxpr, xs), primals, tangents)
        out_nonzero[:] = [keep or not is_zero(t) for keep, t in zip(force, out_dots)]
        return [*outs, *[instantiate_zero(t) for t, nz in zip(out_dots, out_nonzero) if nz]]
    dot_avals = [tangent_aval(a) for a, nz in zip(jaxpr.in_avals, nonzero) if nz]
    return stage_closed(f, [*jaxpr.in_avals, *dot_avals], jaxpr.debug_name), out_nonzero


def instantiate_zero(t):
    """Zero -> an array of zeros; anything else unchanged."""
    if type(t) is not Zero:
        return t
    from aot.ops.shape import zeros
    return zeros(t.aval)


def add_tangents(x, y):
    """x + y where either may be Zero."""
    if type(x) is Zero:
        return y
    if type(y) is Zero:
        return x
    from aot.ops.elementwise import add_any
    return add_any(x, y)
