"""Rules that are given for a part of differentiation: of a linear function its transpose, of a fwd rule its short form."""
from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np

from aot.array import asarray
from aot.ops.call import Call, pjit_p
from aot.source import api_boundary
from aot.trace import (
    Eqn,
    Jaxpr,
    Primitive,
    Zero,
    base_trace,
    bind,
    is_linear,
    is_tracer,
    is_zero,
    stage,
    state,
    tangent_aval,
    typeof,
)
from aot.transforms.jvp import instantiate_zero
from aot.transforms.vmap import batch_jaxpr
from aot.tree_util import tree_flatten, tree_map

# ---- linear_call -----------------------------------------------------------------------------------------------------


class LinearCall(Primitive):
    """Calls `jaxpr` on (residuals, linear operands).  transpose_fun(residuals, cotangents) -> cotangents of the operands,
    which is linear in the cotangents: what it computes is another such call, whose transpose is this one."""
    name = "linear_call"

    def infer(self, *avals, jaxpr, **_): return jaxpr.out_avals
    def effects(self, *, jaxpr, **_): return jaxpr.effects
    def shown(self, params): return {"callee": params["jaxpr"], "num_res": params["num_res"]}

    def jvp(self, primals, tangents, *, num_res, **params):
        if not all(map(is_zero, tangents[:num_res])):
            raise TypeError("linear_call is linear in its second arguments alone, and was differentiated with respect to a "
                            "residual. hint: use stop_gradient on it, or custom_vjp, whose residuals may be differentiated")
        outs = bind(self, *primals, num_res=num_res, **params)
        if all(map(is_zero, tangents)):
            return outs, [Zero(tangent_aval(typeof(x))) for x in outs]
        return outs, bind(self, *primals[:num_res], *map(instantiate_zero, tangents[num_res:]), num_res=num_res, **params)

    def transpose(self, cts, *args, jaxpr, transpose_fun, num_res):
        res, cts = list(args[:num_res]), list(map(instantiate_zero, cts))
        back, captured = stage(lambda *xs: transpose_fun(list(xs[:num_res]), list(xs[num_res:])), [*map(typeof, (*res, *cts))])
        forward = lambda res, xs: bind(self, *res, *xs, jaxpr=jaxpr, transpose_fun=transpose_fun, num_res=num_res)
        n = len(captured)
        outs = bind(self, *captured, *res, *cts, jaxpr=back, transpose_fun=lambda res, xs: forward(res[n:], xs),
                    num_res=n + num_res)
        return [*[None] * num_res, *[c if is_linear(x) else None for c, x in zip(outs, args[num_res:])]]

    def vmap(self, axis, args, dims, *, jaxpr, transpose_fun, num_res):
        from aot.custom_calls import batched_bwd
        batched, out_dims = batch_jaxpr(jaxpr, axis, dims, [True] * len(jaxpr.outvars))
        back = batched_bwd(transpose_fun, axis, dims[:num_res], out_dims, dims[num_res:])
        return bind(self, *args, jaxpr=batched, transpose_fun=back, num_res=num_res), out_dims

    def lower(self, e, ins, outs, *xs, jaxpr, **_): return e.jaxpr(jaxpr, xs)


linear_call_p = LinearCall()


@api_boundary
def linear_call(fun: Callable, fun_transpose: Callable, residual_args: Any, linear_args: Any) -> Any:
    """fun(residual_args, linear_args), which is linear in linear_args, and is transposed by
    fun_transpose(residual_args, cotangent) -> cotangent of linear_args.

    In the backward pass raises TypeError, ValueError where that has another structure, or other types, than linear_args."""
    res, res_tree = tree_flatten(residual_args)
    xs, in_tree = tree_flatten(linear_args)
    if state.trace is base_trace:
        return tree_map(asarray, fun(residual_args, linear_args))
    box: dict[str, Any] = {}

    def flat(*operands):
        outs, box["tree"] = tree_flatten(fun(res_tree.unflatten(operands[:len(res)]), in_tree.unflatten(operands[len(res):])))
        return outs
    avals = [typeof(x) for x in xs]

    def back(res, cts):
        cts, tree = tree_flatten(fun_transpose(res_tree.unflatten(res), box["tree"].unflatten(cts)))
        if tree != in_tree:
            raise TypeError(f"linear_call: fun_transpose gives cotangents of structure {tree}, linear_args have {in_tree}")
        for c, a in zip(cts, avals):
            if typeof(c).shape != a.shape or typeof(c).dtype != a.dtype:
                raise ValueError(f"linear_call: fun_transpose gives a cotangent of type {typeof(c).str_short(False)} for a "
                                 f"linear argument of type {a.str_short(False)}")
        return cts
    jaxpr, captured = stage(flat, [*map(typeof, res), *avals], "linear_call")
    n = len(captured)
    outs = bind(linear_call_p, *captured, *res, *xs, jaxpr=jaxpr, transpose_fun=lambda res, cts: back(res[n:], cts),
                num_res=n + len(res))
    return box["tree"].unflatten(outs)


# ---- fwd rules that may be replaced ------------------------------------------------------------------------------------

class RematOpt(Call):
    """A fwd rule (`jaxpr`: residuals, then outputs) that becomes the function itself (`fun`) where no residual is used."""
    name = "remat_opt"

    def shown(self, params): return {"fun": params["fun"], "fwd_jaxpr": params["jaxpr"], "num_res": params["num_res"]}

    def _as_call(self, rule: str, *args: Any, jaxpr: Jaxpr, **_: Any) -> Any:
        return getattr(pjit_p, rule)(*args, jaxpr=jaxpr, name=self.name)

    def jvp(self, primals, tangents, **params): return self._as_call("jvp", primals, tangents, **params)
    def linearize(self, primals, tangents, **params): return self._as_call("linearize", primals, tangents, **params)
    def vmap(self, axis, args, dims, **params): return self._as_call("vmap", axis, args, dims, **params)
    def discharge(self, args, **params): return self._as_call("discharge", args, **params)
    def lower(self, e, ins, outs, *xs, jaxpr, **_): return e.jaxpr(jaxpr, xs)

    def dce(self, eqn, needed):
        p = eqn.params
        if any(needed[:p["num_res"]]):
            return eqn
        call = Eqn(pjit_p, eqn.invars, eqn.outvars[p["num_res"]:], {"jaxpr": p["fun"], "name": self.name}, eqn.source)
        return pjit_p.dce(call, needed[p["num_res"]:])


remat_opt_p = RematOpt()


def replaceable(fwd: Callable, fun: Callable, name: str) -> Callable:
    """A flat fwd rule, (perturbed, *args) -> (outputs, residuals), that may be replaced by the flat function."""
    def recorded(perturbed, *args):
        if state.trace is base_trace:
            return fwd(perturbed, *args)
        sizes: list[int] = []

        def flat(*xs):
            outs, res = fwd(perturbed, *xs)
            sizes[:] = [len(res)]
            return [*res, *outs]
        avals = [typeof(x) for x in args]
        (jaxpr, captured), (short, held) = stage(flat, avals, name), stage(lambda *xs: list(fun(*xs)), avals, name)
        if captured or held:
            return fwd(perturbed, *args)
        n, = sizes
        got = bind(remat_opt_p, *args, jaxpr=jaxpr, fun=short, num_res=n)
        return got[n:], got[:n]
    return recorded


# ---- zeros -----------------------------------------------------------------------------------------------------------

def zero_from_primal(val: Any, symbolic_zeros: bool = False) -> Any:
    """The zero tangents of a tree of values: zeros, of dtype float0 where it is no float; SymbolicZeros where asked for."""
    from aot.custom import SymbolicZero
    return tree_map(SymbolicZero.from_primal_value if symbolic_zeros else _zero, val)


def _zero(val: Any) -> Any:
    from aot.dtypes import float0
    from aot.ops.shape import zeros
    aval = tangent_aval(typeof(val))
    if aval.dtype == float0:
        return np.zeros(aval.shape, float0)
    zero = zeros(aval)
    return zero if is_tracer(zero) else asarray(zero)


__all__: Sequence[str] = ("linear_call", "linear_call_p", "remat_opt_p", "replaceable", "zero_from_primal")
