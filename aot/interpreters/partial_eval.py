"""Tracing to jaxprs, with some arguments known."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aot.extend.linear_util import WrappedFun
from aot.trace import ClosedJaxpr, Jaxpr, StageTracer, dce, stage, tracing, typeof
from aot.transforms.linearize import LinearTrace

DynamicJaxprTracer = JaxprTracer = StageTracer


class PartialVal(tuple):
    """(None, value) of what is known, (type, None) of what is not."""

    @classmethod
    def known(cls, const: Any) -> PartialVal: return cls((None, const))

    @classmethod
    def unknown(cls, aval: Any) -> PartialVal: return cls((aval, None))

    def is_known(self) -> bool: return self[0] is None
    def get_known(self) -> Any: return self[1] if self[0] is None else None
    def get_aval(self) -> Any: return typeof(self[1]) if self[0] is None else self[0]


def trace_to_jaxpr_nounits(fun: WrappedFun, pvals: Sequence[PartialVal], instantiate: bool | Sequence[bool] = False
                           ) -> tuple[ClosedJaxpr, list[PartialVal], list]:
    """Run what depends on known arguments alone, and record the rest.

    -> (jaxpr of unknown arguments to unknown results, all results, the values of its constvars).  instantiate: results that
    are to be unknown in any case."""
    trace = LinearTrace()
    ins = [trace.new_input(p[0]) if p[0] is not None else p[1] for p in pvals]
    with tracing(trace):
        outs = list(fun.call_wrapped(*ins))
        forced = [instantiate] * len(outs) if isinstance(instantiate, bool) else instantiate
        unknown = [force or (type(x) is StageTracer and x.owner is trace) for x, force in zip(outs, forced)]
        inputs = [x for x, p in zip(ins, pvals) if p[0] is not None]
        jaxpr, consts = trace.close(inputs, [x for x, u in zip(outs, unknown) if u])
    results = [PartialVal.unknown(typeof(x)) if u else PartialVal.known(x) for x, u in zip(outs, unknown)]
    n = len(consts)
    return ClosedJaxpr(Jaxpr(jaxpr.invars[n:], jaxpr.eqns, jaxpr.outvars), consts, jaxpr.invars[:n]), results, consts


def trace_to_jaxpr_dynamic(fun: WrappedFun, in_avals: Sequence, **_: Any) -> tuple[ClosedJaxpr, list, list]:
    """Record all that a flat function does -> (jaxpr, types of its results, the values of its constvars)."""
    jaxpr, consts = stage(lambda *xs: list(fun.call_wrapped(*xs)), in_avals)
    n = len(consts)
    return ClosedJaxpr(Jaxpr(jaxpr.invars[n:], jaxpr.eqns, jaxpr.outvars), consts, jaxpr.invars[:n]), jaxpr.out_avals, consts


def dce_jaxpr(jaxpr: Jaxpr, used_outputs: Sequence[bool],
              instantiate: bool | Sequence[bool] = False) -> tuple[Jaxpr, list[bool]]:
    """The jaxpr of the used results, which takes the arguments that they need -> (jaxpr, which arguments it takes)."""
    pruned, used = dce(jaxpr, used_outputs)
    keep = [instantiate] * len(used) if isinstance(instantiate, bool) else instantiate
    used = [u or k for u, k in zip(used, keep)]
    return Jaxpr([v for v, u in zip(pruned.invars, used) if u], pruned.eqns, pruned.outvars, pruned.debug_name), used


__all__ = ["DynamicJaxprTracer", "JaxprTracer", "PartialVal", "dce_jaxpr", "trace_to_jaxpr_dynamic", "trace_to_jaxpr_nounits"]
