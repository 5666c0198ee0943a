"""Primitives that hold jaxprs: what they share, and jit as a call primitive (printed as `pjit`)."""
from __future__ import annotations

from typing import Any, Sequence

from aot.errors import UnexpectedTracerError
from aot.trace import (
    ClosedJaxpr,
    Eqn,
    Jaxpr,
    Primitive,
    Var,
    Zero,
    base_trace,
    bind,
    captured_by,
    dce,
    is_linear,
    is_zero,
    opened,
    state,
    subjaxprs,
    tangent_aval,
)
from aot.transforms.discharge import contents, discharged, refuse_cells, run_in_place, update, without_refs


class Holder(Primitive):
    """Holds jaxprs among its params, and does what they do."""
    batch_consts = holds = multiple_results = True

    def bind(self, *args, **params) -> list:
        """bind(self, ...) for derived jaxprs: the tracers that they hold become operands."""
        params = {k: v.without_consts() if type(v) is ClosedJaxpr else v for k, v in params.items()}
        if any(map(captured_by, subjaxprs(params))):
            args, params = self.opened(args, params)
        return bind(self, *args, **params)

    def opened(self, args: Sequence, params: dict) -> tuple[Sequence, dict]:
        """Operands and params with the tracers that the jaxprs hold among the operands."""
        raise UnexpectedTracerError(next(x for j in subjaxprs(params) for x in captured_by(j)))

    def discharge(self, args, **params):
        refuse_cells(self, args)
        return self.bind(*args, **{k: without_refs(v) if isinstance(v, Jaxpr) else v for k, v in params.items()})

    def effects(self, **params): return frozenset().union(*(j.effects for j in subjaxprs(params)))
    def uses_axis(self, name, params): return name is not None and any(uses_axis_name(j, name) for j in subjaxprs(params))


class Call(Holder):
    """Calls params["jaxpr"] on its operands.  Derived calls are calls of derived jaxprs with the same other params."""

    def infer(self, *avals, jaxpr, **params): return jaxpr.out_avals

    def opened(self, args, params):
        jaxpr = params["jaxpr"]
        return [*captured_by(jaxpr), *args], {**params, "jaxpr": opened(jaxpr)}

    def jvp(self, primals, tangents, *, jaxpr, **params):
        from aot.transforms.jvp import jvp_jaxpr
        both, out_nonzero = jvp_jaxpr(jaxpr, [not is_zero(t) for t in tangents])
        outs = self.bind(*primals, *[t for t in tangents if not is_zero(t)], jaxpr=both, **params)
        return with_dots(outs, out_nonzero, jaxpr.out_avals)

    def transpose(self, cts, *args, jaxpr, **params):
        from aot.transforms.linearize import transpose_jaxpr
        linear = [is_linear(x) for x in args]
        back, out_nonzero = transpose_jaxpr(jaxpr, linear, [not is_zero(c) for c in cts])
        outs = iter(self.bind(*[x for x in args if not is_linear(x)], *[c for c in cts if not is_zero(c)], jaxpr=back,
                              **params))
        which = iter(out_nonzero)
        return [(next(outs) if next(which) else Zero(tangent_aval(x.aval))) if lin else None
                for x, lin in zip(args, linear)]

    def vmap(self, axis, args, dims, *, jaxpr, **params):
        from aot.transforms.vmap import batch_jaxpr
        batched, out_dims = batch_jaxpr(jaxpr, axis, dims)
        return self.bind(*args, jaxpr=batched, **params), out_dims

    def discharge(self, args, *, jaxpr, **params):
        pure, written = discharged(jaxpr, args)
        return update(args, written, self.bind(*contents(args), jaxpr=pure, **params))

    def dce(self, eqn, needed):
        if all(needed):
            return eqn
        jaxpr = eqn.params["jaxpr"]
        small, used = jaxpr.memo(("dce", tuple(needed)), lambda: dce(jaxpr, needed, keep_inputs=False))
        return Eqn(self, [x for x, u in zip(eqn.invars, used) if u], [v for v, n in zip(eqn.outvars, needed) if n],
                   {**eqn.params, "jaxpr": small}, eqn.source)


class Pjit(Call):
    """Compiled as a function of its own, or by itself when nothing is being traced."""
    name = "pjit"

    def shown(self, params): return {"name": params["name"], "jaxpr": params["jaxpr"]}

    def linearize(self, primals, tangents, *, jaxpr, **params):
        from aot.transforms.linearize import linearize_jaxpr
        lin = linearize_jaxpr(jaxpr, [not is_zero(t) for t in tangents])
        outs = self.bind(*primals, jaxpr=lin.fwd, **params)
        dots = [t for t in tangents if not is_zero(t)]
        lin_outs = self.bind(*lin.pick(primals, outs), *dots, jaxpr=lin.lin, **params) if any(lin.out_nonzero) else []
        return with_dots([*outs[:len(jaxpr.outvars)], *lin_outs], lin.out_nonzero, jaxpr.out_avals)

    def lower(self, e, ins, outs, *xs, jaxpr, name, inline=False):
        if jaxpr.composite is None and (inline or len(jaxpr.eqns) <= 1):
            return e.jaxpr(jaxpr, xs)
        return e.call(jaxpr, xs, name)

    def vmap(self, axis, args, dims, *, jaxpr, **params):
        from aot.transforms.vmap import batch_jaxpr
        batched, out_dims = batch_jaxpr(jaxpr, axis, dims)
        if jaxpr.composite is not None:
            batched.composite = batched_composite(jaxpr, dims, out_dims)
        return self.bind(*args, jaxpr=batched, **params), out_dims

    def discharge(self, args, *, jaxpr, **params):
        if state.trace is not base_trace:
            return super().discharge(args, jaxpr=jaxpr, **params)
        pure, written = discharged(jaxpr, args)
        return update(args, written, run_in_place(pure, args, written, params["name"]))

    def evaluate(self, args, params):
        """Eager call, for instance the linear half of a jitted function under grad."""
        from aot.dispatch import run_jaxpr
        return run_jaxpr(params["jaxpr"], args, params["name"])


def batched_composite(jaxpr: Jaxpr, dims: Sequence[int | None], out_dims: Sequence[int | None]) -> tuple[str, dict] | None:
    """What a composite of one array `x`, and of scalars, is when x is mapped: the same, with other numbers for its axes."""
    assert jaxpr.composite is not None
    name, attributes = jaxpr.composite
    (d, *others), (x, *scalars) = dims, jaxpr.in_avals
    if attributes["arguments"][:1] != ("x",) or d is None or list(out_dims) != [d] or any(
            e is not None or a.shape for e, a in zip(others, scalars)):
        return None
    if "axis" not in attributes:
        return jaxpr.composite
    given = attributes["axis"] if isinstance(attributes["axis"], (tuple, list)) else (attributes["axis"],)
    axes = [a % x.ndim for a in given] if x.ndim else []
    return (name, {**attributes, "axis": tuple(a + (a >= d) for a in axes)}) if axes else None


def with_dots(outs: Sequence, nonzero: Sequence[bool], avals: Sequence) -> tuple[list, list]:
    """Outputs of these types ++ the tangents that are not zero -> (outputs, tangents)."""
    n = len(avals)
    return list(outs[:n]), spread(outs[n:], nonzero, avals)


def spread(values: Sequence, nonzero: Sequence[bool], avals: Sequence) -> list:
    """Values at the True positions, Zero elsewhere."""
    it = iter(values)
    return [next(it) if nz else Zero(tangent_aval(a)) for nz, a in zip(nonzero, avals)]


def merge_captured(jaxprs: Sequence[Jaxpr], captured: Sequence[list]) -> tuple[list[Jaxpr], list]:
    """Several jaxprs that each take their own captured tracers -> jaxprs that all take the union of them."""
    union: dict[int, Any] = {id(x): x for xs in captured for x in xs}
    if not union:
        return list(jaxprs), []         # the same ones, with the programs that they have
    out = []
    for j, xs in zip(jaxprs, captured):
        mine = dict(zip(map(id, xs), j.invars))
        head = [mine.get(i) or Var(x.aval) for i, x in union.items()]
        out.append(Jaxpr([*head, *j.invars[len(xs):]], j.eqns, j.outvars, j.debug_name))
    return out, list(union.values())


def uses_axis_name(jaxpr: Jaxpr, axis_name: Any) -> bool:
    """Whether any equation below speaks of this mapped axis."""
    return jaxpr.memo(("uses_axis", axis_name), lambda: [any(
        e.primitive.batch_consts and e.primitive.uses_axis(axis_name, e.params) for e in jaxpr.eqns)])[0]


pjit_p = Pjit()
