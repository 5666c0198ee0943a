"""jit as a call primitive (printed as `pjit`), and other primitives that hold one jaxpr."""
from __future__ import annotations

from typing import Any, Sequence

from aot.trace import Eqn, Jaxpr, Primitive, Zero, bind, dce, is_linear, is_zero, tangent_aval


class Pjit(Primitive):
    """Call a jaxpr.  Compiled as a function of its own, or by itself when nothing is being traced."""
    name = "pjit"

    def infer(self, *avals, jaxpr, **params): return jaxpr.out_avals
    def effects(self, *, jaxpr, **params): return jaxpr.effects
    def shown(self, params): return {"name": params["name"], "jaxpr": params["jaxpr"]}

    def jvp(self, primals, tangents, *, jaxpr, name, **params):
        from aot.transforms.jvp import jvp_jaxpr
        nonzero = [not is_zero(t) for t in tangents]
        both, out_nonzero = jvp_jaxpr(jaxpr, nonzero)
        dots = [t for t in tangents if not is_zero(t)]
        outs = bind(self, *primals, *dots, jaxpr=both, name=name, **_plain(params))
        n = len(jaxpr.outvars)
        return outs[:n], spread(outs[n:], out_nonzero, jaxpr.out_avals)

    def linearize(self, primals, tangents, *, jaxpr, name, **params):
        from aot.transforms.linearize import linearize_jaxpr
        nonzero = [not is_zero(t) for t in tangents]
        lin = linearize_jaxpr(jaxpr, nonzero)
        outs = bind(self, *primals, jaxpr=lin.fwd, name=name, **_plain(params))
        dots = [t for t in tangents if not is_zero(t)]
        if not any(lin.out_nonzero):
            dots_out: list = []
        else:
            dots_out = bind(self, *lin.pick(primals, outs), *dots, jaxpr=lin.lin, name=name, **_plain(params))
        return outs[:len(jaxpr.outvars)], spread(dots_out, lin.out_nonzero, jaxpr.out_avals)

    def transpose(self, cts, *args, jaxpr, name, **params):
        from aot.transforms.linearize import transpose_jaxpr
        linear = [is_linear(x) for x in args]
        nonzero_cts = [not is_zero(c) for c in cts]
        back, out_nonzero = transpose_jaxpr(jaxpr, linear, nonzero_cts)
        fixed = [x for x in args if not is_linear(x)]
        outs = iter(bind(self, *fixed, *[c for c in cts if not is_zero(c)], jaxpr=back, name=name, **_plain(params)))
        which = iter(out_nonzero)
        return [(next(outs) if next(which) else Zero(tangent_aval(x.aval))) if lin else None
                for x, lin in zip(args, linear)]

    def vmap(self, axis, args, dims, *, jaxpr, name, **params):
        from aot.transforms.vmap import batch_jaxpr
        batched, out_dims = batch_jaxpr(jaxpr, axis, dims)
        return bind(self, *args, jaxpr=batched, name=name, **_plain(params)), out_dims

    batch_consts = True

    def uses_axis(self, axis_name, params):
        return axis_name is not None and uses_axis_name(params["jaxpr"], axis_name)

    def dce(self, eqn, needed):
        if all(needed):
            return eqn
        small, used = eqn.params["jaxpr"].memo(("dce", tuple(needed)), lambda: dce(
            eqn.params["jaxpr"], needed, keep_inputs=False))
        return Eqn(self, [x for x, u in zip(eqn.invars, used) if u],
                   [v for v, n in zip(eqn.outvars, needed) if n],
                   {**eqn.params, "jaxpr": small, **_plain(eqn.params)}, eqn.source)

    def lower(self, e, ins, outs, *xs, jaxpr, name, inline=False, **params):
        if inline or len(jaxpr.eqns) <= 1:
            return e.jaxpr(jaxpr, xs)
        return e.call(jaxpr, xs, name)

    def evaluate(self, args, params):
        """Eager call, for instance the linear half of a jitted function under grad."""
        jaxpr = params["jaxpr"]
        from aot.dispatch import run_jaxpr
        return run_jaxpr(jaxpr, args, params["name"])


def _plain(params: dict) -> dict:
    """Donation and the like speak of the original arguments; derived calls drop them."""
    return {"inline": params.get("inline", False)} if params.get("inline") else {}


def spread(values: Sequence, nonzero: Sequence[bool], avals: Sequence) -> list:
    """Values at the True positions, Zero elsewhere."""
    it = iter(values)
    return [next(it) if nz else Zero(tangent_aval(a)) for nz, a in zip(nonzero, avals)]


def uses_axis_name(jaxpr: Jaxpr, axis_name: Any) -> bool:
    """Whether any equation below speaks of this mapped axis."""
    return jaxpr.memo(("uses_axis", axis_name), lambda: [any(
        e.primitive.batch_consts and e.primitive.uses_axis(axis_name, e.params) for e in jaxpr.eqns)])[0]


pjit_p = Pjit()
