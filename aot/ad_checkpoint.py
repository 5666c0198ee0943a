"""Rematerialisation: `checkpoint` (alias `remat`), its policies, `checkpoint_name` and `saved_residuals`.

Linearizing a checkpointed function keeps its inputs and what the policy saves; its linear part is one equation that
recomputes the rest and is transposed as a whole.
"""
from __future__ import annotations

import functools
from typing import Any, Callable, Iterable, Sequence

import numpy as np

from aot.arguments import resolve_static
from aot.ops.call import Call, pjit_p, with_dots
from aot.ops.families import LinearOp
from aot.source import api_boundary, wraps
from aot.trace import (
    Eqn,
    Jaxpr,
    Literal,
    Var,
    bind,
    bind1,
    dce,
    eval_jaxpr,
    is_zero,
    stage,
    stage_closed,
    tangent_aval,
    typeof,
)
from aot.transforms.discharge import without_refs
from aot.tree_util import keystr, tree_flatten, tree_flatten_with_path


class Name(LinearOp):
    """The identity, with a name that policies can ask for."""
    name = "name"

    def infer(self, x, *, name): return [x]
    def transpose(self, cts, x, *, name): return list(cts)
    def vmap(self, axis, args, dims, **params): return bind(self, *args, **params), list(dims)
    def lower(self, e, ins, outs, x, *, name): return [x]


name_p = Name()


def checkpoint_name(x: Any, name: str) -> Any:
    """x (every leaf of a tree), named for save_only_these_names and the like."""
    leaves, tree = tree_flatten(x)
    return tree.unflatten([bind1(name_p, leaf, name=name) for leaf in leaves])


# ---- policies: (primitive, *avals, **params) -> whether its outputs are saved -----------------------------------------

class checkpoint_policies:
    """What a checkpointed function saves instead of recomputing."""

    @staticmethod
    def everything_saveable(*_, **__) -> bool: return True

    @staticmethod
    def nothing_saveable(*_, **__) -> bool: return False

    @staticmethod
    def dots_saveable(prim, *_, **__) -> bool: return prim.name in ("dot_general", "conv_general_dilated")

    checkpoint_dots = dots_saveable

    @staticmethod
    def dots_with_no_batch_dims_saveable(prim, *_, **params) -> bool:
        return prim.name == "dot_general" and not params["dimension_numbers"][1][0]

    checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable

    @staticmethod
    def save_anything_except_these_names(*names: str) -> Callable:
        """Everything but values with these names."""
        return lambda prim, *_, **params: not (prim is name_p and params["name"] in names)

    @staticmethod
    def save_any_names_but_these(*names: str) -> Callable:
        """Values that have a name, except these."""
        return lambda prim, *_, **params: prim is name_p and params["name"] not in names

    @staticmethod
    def save_only_these_names(*names: str) -> Callable:
        """Values with these names."""
        return lambda prim, *_, **params: prim is name_p and params["name"] in names

    @staticmethod
    def save_from_both_policies(first: Callable, second: Callable) -> Callable:
        """What either policy saves."""
        return lambda prim, *avals, **params: first(prim, *avals, **params) or second(prim, *avals, **params)

    @staticmethod
    def save_and_offload_only_these_names(*, names_which_can_be_saved, names_which_can_be_offloaded, offload_src,
                                          offload_dst) -> Callable:
        """Values with these names; on devices with one memory offloaded values are saved in place."""
        return checkpoint_policies.save_only_these_names(*names_which_can_be_saved, *names_which_can_be_offloaded)

    @staticmethod
    def offload_dot_with_no_batch_dims(offload_src, offload_dst) -> Callable:
        """As dots_with_no_batch_dims_saveable; on devices with one memory they are saved in place."""
        return checkpoint_policies.dots_with_no_batch_dims_saveable


# ---- the primitive -----------------------------------------------------------------------------------------------------

class Checkpoint(Call):
    """A jaxpr whose intermediate values are not kept for the backward pass."""
    name = "checkpoint"
    recomputes = True

    def linearize(self, primals, tangents, *, jaxpr, policy, prevent_cse, differentiated):
        nonzero, jaxpr = [not is_zero(t) for t in tangents], without_refs(jaxpr)
        plan = jaxpr.memo(("remat", tuple(nonzero), policy), lambda: RematPlan(jaxpr, nonzero, policy))
        outs = self.bind(*primals, jaxpr=plan.fwd, policy=policy, prevent_cse=prevent_cse, differentiated=False)
        n = len(jaxpr.outvars)
        dots = [t for t in tangents if not is_zero(t)]
        lin_outs = self.bind(*primals, *outs[n:], *dots, jaxpr=plan.lin, policy=policy, prevent_cse=prevent_cse,
                             differentiated=True) if any(plan.out_nonzero) else []
        return with_dots([*outs[:n], *lin_outs], plan.out_nonzero, jaxpr.out_avals)

    def transpose(self, cts, *args, differentiated, **params):
        return super().transpose(cts, *args, differentiated=True, **params)

    def lower(self, e, ins, outs, *xs, jaxpr, prevent_cse, differentiated, policy):
        """A barrier keeps XLA from merging the recomputation with the original."""
        if differentiated and prevent_cse and xs:
            xs = e.ops(f"stablehlo.optimization_barrier {', '.join(xs)} : {', '.join(a.mlir for a in ins)}", len(xs))
        return e.jaxpr(jaxpr, xs)

    def evaluate(self, args, params):
        from aot.dispatch import run_jaxpr
        if params["differentiated"]:
            return run_jaxpr(_as_call(params["jaxpr"], params), args, "checkpoint")
        return run_jaxpr(params["jaxpr"], args, "checkpoint")


checkpoint_p = Checkpoint()


def _as_call(jaxpr: Jaxpr, params: dict) -> Jaxpr:
    """A jaxpr of the one checkpoint equation, so that its barrier is compiled too."""
    def make():
        ins, outs = [Var(a) for a in jaxpr.in_avals], [Var(a) for a in jaxpr.out_avals]
        return Jaxpr(ins, [Eqn(checkpoint_p, list(ins), outs, params)], list(outs), jaxpr.debug_name)
    return jaxpr.memo(("remat call", params["prevent_cse"]), make)


class RematPlan:
    """fwd: inputs -> outputs ++ saved.  lin: inputs ++ saved ++ tangents -> tangents, recomputing what it needs."""

    def __init__(self, jaxpr: Jaxpr, nonzero: Sequence[bool], policy: Callable | None):
        from aot.transforms.linearize import linearize_jaxpr
        flat = inline_calls(jaxpr)
        lin = linearize_jaxpr(flat, nonzero)
        self.out_nonzero = lin.out_nonzero
        body, n = lin.fwd, len(jaxpr.outvars)
        residual_vars = lin.pick(body.invars, body.outvars)
        saved = saved_vars(body, policy)
        again, used = dce(recompute(body, saved, residual_vars))
        kept = [v for v, u in zip(saved, used[len(body.invars):]) if u]
        self.fwd = dce(Jaxpr(body.invars, body.eqns, [*body.outvars[:n], *kept], jaxpr.debug_name))[0]
        again = Jaxpr([*body.invars, *kept], again.eqns, again.outvars, jaxpr.debug_name)

        def linear(*args):
            ins, dots = args[:len(again.invars)], args[len(again.invars):]
            return eval_jaxpr(lin.lin, [*eval_jaxpr(again, ins), *dots])
        dot_avals = [tangent_aval(a) for a, nz in zip(jaxpr.in_avals, nonzero) if nz]
        self.lin = stage_closed(linear, [*again.in_avals, *dot_avals], jaxpr.debug_name)


def saved_vars(jaxpr: Jaxpr, policy: Callable | None) -> list[Var]:
    if policy is None:
        return []
    return [v for e in jaxpr.eqns for v in e.outvars
            if policy(e.primitive, *[x.aval for x in e.invars], **e.params) and v not in jaxpr.invars]


def recompute(jaxpr: Jaxpr, saved: Sequence[Var], outs: Sequence) -> Jaxpr:
    """inputs ++ saved -> outs, without the equations that made what is saved."""
    known = set(saved)
    eqns = []
    for e in jaxpr.eqns:
        if all(v in known for v in e.outvars):
            continue
        eqns.append(Eqn(e.primitive, e.invars, [Var(v.aval) if v in known else v for v in e.outvars], e.params, e.source))
    return Jaxpr([*jaxpr.invars, *saved], eqns, list(outs), jaxpr.debug_name)


def inline_calls(jaxpr: Jaxpr, unplaced: Callable[[Eqn], bool] | None = None) -> Jaxpr:
    """jit calls replaced by their equations, so that policies see every operation.

    unplaced: calls whose equations, where they have no place of their own, do not get that of the call."""
    if not any(e.primitive is pjit_p for e in jaxpr.eqns):
        return jaxpr
    return jaxpr.memo(("inlined", unplaced), lambda: _inlined(jaxpr, unplaced))


def _inlined(jaxpr: Jaxpr, unplaced: Callable[[Eqn], bool] | None) -> Jaxpr:
    eqns, names = [], {}
    look = lambda v: v if type(v) is Literal else names.get(v, v)

    def walk(j):
        for e in j.eqns:
            if e.primitive is not pjit_p:
                outs = [Var(v.aval) for v in e.outvars]
                eqns.append(Eqn(e.primitive, [look(v) for v in e.invars], outs, e.params, e.source))
                names.update(zip(e.outvars, outs))
                continue
            inner = e.params["jaxpr"] if unplaced and unplaced(e) else e.params["jaxpr"].placed(e.source)
            names.update(zip(inner.invars, [look(v) for v in e.invars]))
            walk(inner)
            names.update(zip(e.outvars, [look(v) for v in inner.outvars]))
    walk(jaxpr)
    return Jaxpr(jaxpr.invars, eqns, [look(v) for v in jaxpr.outvars], jaxpr.debug_name)


# ---- users' functions -----------------------------------------------------------------------------------------------------

def checkpoint(fun: Callable | None = None, *, prevent_cse: bool | Sequence[Any] = True, policy: Callable | None = None,
               static_argnums: int | Sequence[int] = (), static_argnames: str | Iterable[str] = (),
               concrete: None = None) -> Any:
    """fun, whose intermediate values are recomputed in the backward pass instead of kept.

    policy: what to keep all the same, see `checkpoint_policies`.  prevent_cse=False lets the compiler undo the
    recomputation outside loops; it is faster where that cannot happen (inside scan).  A sequence of bools, one for each
    argument, means True if one of them is.  static_argnums, static_argnames: arguments that are not traced.
    Raises NotImplementedError for concrete, which jax has removed too."""
    if concrete is not None:
        raise NotImplementedError("checkpoint(concrete=...) was removed. hint: use static_argnums for arguments whose values "
                                  "the function looks at")
    if fun is None:
        return functools.partial(checkpoint, prevent_cse=prevent_cse, policy=policy, static_argnums=static_argnums,
                                 static_argnames=static_argnames)
    nums = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    again = any(tree_flatten(prevent_cse)[0])

    @wraps(fun)
    @api_boundary
    def checkpointed(*args, **kwargs):
        static, named = resolve_static(fun, nums, names)
        fixed = {i: args[i] for i in static if i < len(args)}
        values = {k: v for k, v in kwargs.items() if k in named}
        dynamic = tuple(x for i, x in enumerate(args) if i not in fixed)
        leaves, in_tree = tree_flatten((dynamic, {k: v for k, v in kwargs.items() if k not in named}))
        box: dict[str, Any] = {}

        def flat(*xs):
            d, k = in_tree.unflatten(xs)
            it = iter(d)
            out = fun(*[fixed[i] if i in fixed else next(it) for i in range(len(args))], **k, **values)
            outs, box["tree"] = tree_flatten(out)
            return outs
        jaxpr, captured = stage(flat, [typeof(x) for x in leaves], getattr(fun, "__name__", "fun"))
        outs = bind(checkpoint_p, *captured, *leaves, jaxpr=jaxpr, policy=policy, prevent_cse=again,
                    differentiated=False)
        return box["tree"].unflatten(outs)
    return checkpointed


remat = checkpoint


def saved_residuals(f: Callable, *args, **kwargs) -> list[tuple[Any, str]]:
    """(type, origin) of every value that the backward pass of f would keep."""
    from aot.transforms.linearize import linearize_flat
    leaves, tree = tree_flatten((args, kwargs))
    paths = [keystr(p) for p, _ in tree_flatten_with_path((args, kwargs))[0]]

    found: list[tuple[Any, str]] = []

    def traced(*xs):
        def flat(*ys):
            a, k = tree.unflatten(ys)
            return tree_flatten(f(*a, **k))[0]
        outs, lin, residuals, _ = linearize_flat(flat, xs)
        _, used = dce(lin)
        source = {id(x): f"from the argument {p}" for x, p in zip(xs, paths)}
        for r, u in zip(residuals, used):
            if u:
                found.append((typeof(r), source.get(id(r), "computed by the function")))
        for e in lin.eqns:
            found.extend((x.aval, "from a constant") for x in e.invars if type(x) is Literal and np.ndim(x.val) > 0)
        return outs
    stage(traced, [typeof(x) for x in leaves])
    return found


def print_saved_residuals(f: Callable, *args, **kwargs) -> None:
    """Print what `saved_residuals` finds, one line each."""
    for aval, origin in saved_residuals(f, *args, **kwargs):
        print(f"{aval.str_short()} {origin}")


