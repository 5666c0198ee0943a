"""Reverse mode: linearize (jvp with the tangent work staged) and transpose (the staged work run backwards)."""
from __future__ import annotations

from typing import Any, Callable, Sequence

from aot import dtypes, source
from aot.trace import (
    Jaxpr,
    Linear,
    Literal,
    StageTrace,
    StageTracer,
    Var,
    Zero,
    dce,
    eval_jaxpr,
    is_linear,
    is_zero,
    stage_closed,
    state,
    tangent_aval,
    tracing,
    typeof,
)
from aot.transforms.discharge import without_refs
from aot.transforms.jvp import JVPTrace, JVPTracer, add_tangents, instantiate_zero


class LinearTrace(StageTrace):
    """Stages what depends on a tangent and hands everything else to the parent.  Rules bind primal and tangent work
    separately, so this is all of partial evaluation."""
    stages_linear = True

    def process(self, prim, args, params):
        if prim.makes_ref and params["tangent"]:
            return StageTrace.process(self, prim, args, params)
        for x in args:
            if type(x) is StageTracer and x.owner is self:
                return StageTrace.process(self, prim, args, params)
        state.trace = self.parent
        try:
            return self.parent.process(prim, args, params)
        finally:
            state.trace = self

    def _custom(self, kind, call, args):
        if any(type(x) is StageTracer and x.owner is self for x in args):
            return call.fun(*args)      # a linear function: its own equations say how to transpose it
        with tracing(self.parent):
            return getattr(self.parent, kind)(call, args)

    def custom_jvp(self, call, args): return self._custom("custom_jvp", call, args)
    def custom_vjp(self, call, args): return self._custom("custom_vjp", call, args)


def linearize_flat(f: Callable, primals: Sequence, nonzero: Sequence[bool] | None = None):
    """f: flat values -> flat list.  -> (outputs, jaxpr of the linear map, its residuals, which outputs have a tangent).

    The jaxpr takes residuals ++ nonzero input tangents and returns the tangents of outputs that have one."""
    lin = LinearTrace()
    trace = JVPTrace(lin, linear=True)
    if nonzero is None:
        nonzero = [tangent_aval(typeof(x)).dtype != dtypes.float0 for x in primals]
    dots = [lin.new_input(tangent_aval(typeof(x))) if nz else None for x, nz in zip(primals, nonzero)]
    with tracing(trace), source.transformed("jvp"):
        outs = f(*[x if d is None else JVPTracer(trace, x, d) for x, d in zip(primals, dots)])
        pairs = [trace.pair(x) for x in outs]
    out_nonzero = [not is_zero(t) for _, t in pairs]
    with tracing(lin):
        jaxpr, residuals = lin.close([d for d in dots if d is not None],
                                     [t for _, t in pairs if not is_zero(t)])
    return [x for x, _ in pairs], without_refs(jaxpr), residuals, out_nonzero


class LinearizedJaxpr:
    """fwd: inputs -> outputs ++ new residuals.  lin: residuals ++ nonzero tangents -> nonzero output tangents.

    `residuals` says where each residual of `lin` is found once fwd has run: ("in", i) is input i itself, ("out", i)
    is output i of fwd (an ordinary output or one of the new residuals)."""
    __slots__ = ("fwd", "lin", "residuals", "out_nonzero")

    def __init__(self, fwd, lin, residuals, out_nonzero):
        self.fwd, self.lin, self.residuals, self.out_nonzero = fwd, lin, residuals, out_nonzero

    def pick(self, ins: Sequence, fwd_outs: Sequence) -> list:
        return [ins[i] if where == "in" else fwd_outs[i] for where, i in self.residuals]


def linearize_jaxpr(jaxpr: Jaxpr, nonzero: Sequence[bool], force: Sequence[bool] | None = None) -> LinearizedJaxpr:
    """force: outputs whose tangent is wanted even where it is zero."""
    force = tuple(force) if force is not None else (False,) * len(jaxpr.outvars)
    return jaxpr.memo(("lin", tuple(nonzero), force), lambda: _linearize_jaxpr(jaxpr, nonzero, force))


def _linearize_jaxpr(jaxpr, nonzero, force) -> LinearizedJaxpr:
    made: dict[str, Any] = {}

    def f(*ins):
        outs, lin, residuals, out_nonzero = linearize_flat(lambda *xs: eval_jaxpr(jaxpr, xs), ins, nonzero)
        lin, out_nonzero = _force_outputs(lin, out_nonzero, force, jaxpr.out_avals)
        pruned, used = dce(lin, keep_inputs=True)
        keep = used[:len(residuals)]
        lin = Jaxpr([v for v, u in zip(pruned.invars, keep + [True] * len(pruned.invars)) if u],
                    pruned.eqns, pruned.outvars, jaxpr.debug_name)
        residuals = [r for r, u in zip(residuals, keep) if u]
        position = {id(x): ("in", i) for i, x in enumerate(ins)}
        for i, x in enumerate(outs):
            position.setdefault(id(x), ("out", i))
        extra = []
        for r in residuals:
            if id(r) not in position:
                position[id(r)] = ("out", len(outs) + len(extra))
                extra.append(r)
        made.update(lin=lin, where=[position[id(r)] for r in residuals], out_nonzero=out_nonzero)
        return [*outs, *extra]
    fwd = stage_closed(f, jaxpr.in_avals, jaxpr.debug_name)
    return LinearizedJaxpr(fwd, made["lin"], made["where"], made["out_nonzero"])


def _force_outputs(lin, out_nonzero, force, out_avals):
    if not any(f and not nz for f, nz in zip(force, out_nonzero)):
        return lin, out_nonzero
    want = [f or nz for f, nz in zip(force, out_nonzero)]

    def widened(*args):
        dots = iter(eval_jaxpr(lin, args))
        return [next(dots) if nz else instantiate_zero(Zero(tangent_aval(a)))
                for nz, w, a in zip(out_nonzero, want, out_avals) if w]
    return stage_closed(widened, lin.in_avals), want


# ---- transpose ---------------------------------------------------------------------------------------------------

def transpose_flat(jaxpr: Jaxpr, args: Sequence, cts: Sequence) -> list:
    """Cotangents (possibly Zero) for the `Linear` members of args; equations that need no transposing run first."""
    env: dict[Var, Any] = dict(zip(jaxpr.invars, args, strict=True))
    linear = []
    with source.replaying(None) as outer:
        for e in jaxpr.eqns:
            ins = [x.val if type(x) is Literal else env[x] for x in e.invars]
            if any(type(x) is Linear for x in ins):
                known = e.primitive.known
                env.update(zip(e.outvars, known(ins, e.params) if known else [Linear(v.aval) for v in e.outvars]))
                linear.append((e, ins))
            else:
                source.set_current(e.source or outer)
                env.update(zip(e.outvars, e.primitive.rebind(ins, e.params)))
        ct: dict[Var, Any] = {}
        for v, c in zip(jaxpr.outvars, cts, strict=True):
            if type(v) is Var and type(c) is not Zero and is_linear(env[v]):
                ct[v] = add_tangents(ct[v], c) if v in ct else c
        for e, ins in reversed(linear):
            outs = [ct.pop(v, None) for v in e.outvars]
            if all(c is None for c in outs) and not (e.primitive.transposes_zeros and _needed(jaxpr, e)):
                continue
            source.set_current(source.transposed(e.source) or outer)
            outs = [Zero(tangent_aval(v.aval)) if c is None else c for v, c in zip(e.outvars, outs)]
            for v, x, c in zip(e.invars, ins, e.primitive.transpose(outs, *ins, **e.params), strict=True):
                if type(x) is Linear and c is not None and type(c) is not Zero:
                    ct[v] = add_tangents(ct[v], c) if v in ct else c
    return [ct.get(v, Zero(v.aval)) for v, x in zip(jaxpr.invars, args) if type(x) is Linear]


def _needed(jaxpr: Jaxpr, e: Any) -> bool:
    """Whether a result of jaxpr depends on the equation."""
    live = jaxpr.memo("live", lambda: {v for e in dce(jaxpr)[0].eqns for v in e.outvars})
    return not live.isdisjoint(e.outvars)


def transpose_jaxpr(jaxpr: Jaxpr, linear: Sequence[bool], nonzero_cts: Sequence[bool],
                    force: bool | Sequence[bool] = False):
    """-> (jaxpr: fixed inputs ++ nonzero cotangents -> nonzero cotangents of the linear inputs, which are nonzero)."""
    key = ("transpose", tuple(linear), tuple(nonzero_cts), force if isinstance(force, bool) else tuple(force))
    return jaxpr.memo(key, lambda: _transpose_jaxpr(jaxpr, linear, nonzero_cts, force))


def _transpose_jaxpr(jaxpr, linear, nonzero_cts, force):
    n_fixed = len(linear) - sum(linear)
    forced = [force] * sum(linear) if isinstance(force, bool) else force
    nonzero: list[bool] = []

    def back(*args):
        fixed, cts = iter(args[:n_fixed]), iter(args[n_fixed:])
        ins = [Linear(v.aval) if lin else next(fixed) for v, lin in zip(jaxpr.invars, linear)]
        outs = transpose_flat(jaxpr, ins, [next(cts) if nz else Zero(tangent_aval(a))
                                           for a, nz in zip(jaxpr.out_avals, nonzero_cts)])
        nonzero[:] = [f or not is_zero(c) for f, c in zip(forced, outs)]
        return [instantiate_zero(c) for c, nz in zip(outs, nonzero) if nz]
    avals = [v.aval for v, lin in zip(jaxpr.invars, linear) if not lin]
    avals += [tangent_aval(a) for a, nz in zip(jaxpr.out_avals, nonzero_cts) if nz]
    return stage_closed(back, avals, jaxpr.debug_name), nonzero
