"""Calls of functions with given derivatives, on flat arrays: what traces meet, and the primitives that they are in jaxprs.

While nothing is staged the user's function simply runs.  In a jaxpr it becomes one equation that carries the rule,
so that the rule is found by transforms applied later.
"""
from __future__ import annotations

from typing import Any, Callable, Sequence

from aot import dtypes
from aot.trace import (
    Primitive,
    ShapedArray,
    Zero,
    bind,
    eval_jaxpr,
    is_linear,
    is_zero,
    stage,
    state,
    tangent_aval,
    typeof,
)
from aot.transforms.discharge import Cell, run, without_refs
from aot.transforms.jvp import instantiate_zero
from aot.transforms.vmap import Axis, to_dim, vmap_flat

# ---- calls: a flat function with its flat rule ---------------------------------------------------------------------


class JvpCall:
    """fun: flat -> flat list.  rule(primals, tangents) -> (outs, out tangents), Zero allowed in out tangents."""

    def __init__(self, fun: Callable, rule: Callable, name: str):
        self.fun, self.rule, self.name = fun, rule, name

    def jvp(self, primals, tangents, linear: bool):
        return self.rule(primals, tangents)

    def stage(self, trace, args):
        jaxpr, captured = stage(self.fun, [typeof(x) for x in args], self.name)
        return trace.process(custom_jvp_p, [*captured, *args], {"call_jaxpr": jaxpr, "jvp": self.rule,
                                                                "num_consts": len(captured), "name": self.name})

    def batch(self, axis: Axis, dims: Sequence, tag: Any = None):
        results = _Results(axis, self.name)

        def fun(*args):
            return results.of_fun(*vmap_flat(self.fun, axis, args, dims, tag))

        def rule(primals, tangents):
            nz = [not is_zero(t) for t in tangents]
            dots = [t for t in tangents if not is_zero(t)]
            in_dims = [*dims, *[d for d, n in zip(dims, nz) if n]]
            zero: list[bool] = []

            def both(*xs):
                ps, it = xs[:len(dims)], iter(xs[len(dims):])
                outs, ts = self.rule(ps, [next(it) if n else Zero.like(p) for p, n in zip(ps, nz)])
                zero[:] = map(is_zero, ts)
                return [*outs, *[t for t in ts if not is_zero(t)]]
            got, gd = vmap_flat(both, axis, [*primals, *dots], in_dims, tag)
            n, it = len(zero), iter(gd[len(zero):])
            outs = results.of_rule(got[:n], gd[:n], [None if z else next(it) for z in zero])
            it = iter(zip(got[n:], gd[n:]))
            ts = [Zero.like(o) if z else results.place(*next(it), m) for o, z, m in zip(outs, zero, results.mapped)]
            return outs, ts
        return JvpCall(fun, rule, self.name), results.dims


class _Results:
    """Which results of a call under vmap are mapped; those have the mapped axis first.

    The rule of a call that was staged, where its function was traced, gives the results that the function does."""

    def __init__(self, axis: Axis, name: str):
        self.axis, self.name = axis, name
        self.mapped: list[bool] = []
        self.staged = False

    def dims(self) -> list[int | None]: return [0 if m else None for m in self.mapped]

    def place(self, x: Any, d: int | None, mapped: bool) -> Any: return to_dim(self.axis, x, d, 0) if mapped else x

    def of_fun(self, outs: Sequence, dims: Sequence[int | None]) -> list:
        self.staged, self.mapped = True, [d is not None for d in dims]
        return list(map(self.place, outs, dims, self.mapped))

    def of_rule(self, outs: Sequence, dims: Sequence[int | None], tangent_dims: Sequence[int | None]) -> list:
        mapped = [d is not None or t is not None for d, t in zip(dims, tangent_dims)]
        if not self.staged:
            self.mapped = mapped
        elif any(m and not f for m, f in zip(mapped, self.mapped)):
            raise TypeError(f"the derivative rule of {self.name} gives a mapped value or tangent for a result that does not "
                            "depend on a mapped argument of vmap. hint: make the result depend on it, for instance out + 0 * x")
        return list(map(self.place, outs, dims, self.mapped))


class VjpCall:
    """fwd(perturbed, *args) -> (outs, residuals), perturbed: which arguments are differentiated;
    bwd(residuals, cts) -> cotangent of each argument; cotangents may be Zero; all flat."""

    def __init__(self, fun: Callable, fwd: Callable, bwd: Callable, name: str):
        self.fun, self.fwd, self.bwd, self.name = fun, fwd, bwd, name

    def jvp(self, primals, tangents, linear: bool):
        outs, res = self.fwd(tuple(not is_zero(t) for t in tangents), *primals)
        avals = [typeof(o) for o in outs]
        dots = bind(custom_lin_p, *res, *map(instantiate_zero, tangents), num_res=len(res), bwd=self.bwd,
                    out_avals=tuple(map(tangent_aval, avals)), name=self.name)
        return outs, [Zero(tangent_aval(a)) if tangent_aval(a).dtype == dtypes.float0 else t
                      for a, t in zip(avals, dots)]

    def stage(self, trace, args):
        jaxpr, captured = stage(self.fun, [typeof(x) for x in args], self.name)
        return trace.process(custom_vjp_p, [*captured, *args], {"call_jaxpr": jaxpr, "fwd": self.fwd, "bwd": self.bwd,
                                                                "num_consts": len(captured), "name": self.name})

    def batch(self, axis: Axis, dims: Sequence, tag: Any = None):
        results, box = _Results(axis, self.name), {}

        def fun(*args):
            return results.of_fun(*vmap_flat(self.fun, axis, args, dims, tag))

        def fwd(perturbed, *args):
            n: list[int] = []

            def both(*xs):
                outs, res = self.fwd(perturbed, *xs)
                n[:] = [len(outs)]
                return [*outs, *res]
            got, ds = vmap_flat(both, axis, args, dims, tag)
            box["res"] = ds[n[0]:]
            return results.of_rule(got[:n[0]], ds[:n[0]], [None] * n[0]), got[n[0]:]

        def bwd(res, cts):
            return batched_bwd(self.bwd, axis, box["res"], results.dims(), dims, tag)(res, cts)
        return VjpCall(fun, fwd, bwd, self.name), results.dims


def batched_bwd(bwd: Callable, axis: Axis, res_dims, ct_dims, in_dims, tag: Any = None) -> Callable:
    """bwd over a batch; cotangents of unbatched inputs are summed over it.

    The cotangent of an unbatched result is already that of the whole batch: each example gets its share."""
    if all(d is None for d in (*res_dims, *ct_dims, *in_dims)):
        return bwd

    def run(res, cts):
        nz = [not is_zero(c) for c in cts]
        cts = [c if d is not None or not n else _share(axis, c) for c, d, n in zip(cts, ct_dims, nz)]
        one = [None if n else Zero(_without(c.aval, d)) for c, n, d in zip(cts, nz, ct_dims)]
        zero: list[bool] = []

        def flat(*xs):
            it = iter(xs[len(res_dims):])
            back = bwd(list(xs[:len(res_dims)]), [next(it) if z is None else z for z in one])
            zero[:] = map(is_zero, back)
            return [b for b in back if not is_zero(b)]
        values = [*res, *[c for c, n in zip(cts, nz) if n]]
        dims = [*res_dims, *[d for d, n in zip(ct_dims, nz) if n]]
        got, gd = vmap_flat(flat, axis, values, dims, tag)
        it = iter(zip(got, gd))
        return [Zero(ShapedArray((), dtypes.float0)) if z else _onto(axis, *next(it), want)
                for z, want in zip(zero, in_dims)]
    return run


def _share(axis: Axis, ct: Any) -> Any:
    from aot.ops.elementwise import div, lit
    return div(ct, lit(ct, max(axis.size, 1)))


def _without(aval: ShapedArray, d: int | None) -> ShapedArray:
    """The aval of one example."""
    return aval if d is None else ShapedArray(aval.shape[:d] + aval.shape[d + 1:], aval.dtype, aval.weak_type)


def _onto(axis, ct, d, want):
    """A cotangent whose batch dimension is d, for an input whose batch dimension is want (None: sum)."""
    from aot.ops.elementwise import lit, mul
    from aot.ops.reductions import reduce_sum
    if want is not None:
        return to_dim(axis, ct, d, want)
    return reduce_sum(ct, (d,)) if d is not None else mul(ct, lit(ct, axis.size))


# ---- the primitives --------------------------------------------------------------------------------------------------

class CustomJvp(Primitive):
    """A call whose derivative is given.  In a jaxpr only; elsewhere the call object itself is used."""
    multiple_results = True
    name = "custom_jvp_call"
    batch_consts = True

    def infer(self, *avals, call_jaxpr, **_): return call_jaxpr.out_avals
    def effects(self, *, call_jaxpr, **_): return call_jaxpr.effects

    def shown(self, params):
        return {"name": params["name"], "call_jaxpr": params["call_jaxpr"], "jvp": params["jvp"], "symbolic_zeros": False}

    def uses_axis(self, axis_name, params):
        from aot.ops.call import uses_axis_name
        return axis_name is not None and uses_axis_name(params["call_jaxpr"], axis_name)

    def rebind(self, args, params):
        call = JvpCall(lambda *xs: eval_jaxpr(params["call_jaxpr"], xs), self._rule(params), params["name"])
        return state.trace.custom_jvp(call, args)

    def _rule(self, params):
        """The rule on all operands: what the function closes over counts as constant."""
        n, rule = params["num_consts"], params["jvp"]
        return (lambda primals, tangents: rule(primals[n:], tangents[n:])) if n else rule

    def discharge(self, args, *, call_jaxpr, **params):
        """The function without its rule where it takes references: nothing is differentiated any more (see `thread`)."""
        if any(type(x) is Cell for x in args):
            return run(call_jaxpr, args)
        return self.rebind(args, {"call_jaxpr": without_refs(call_jaxpr), **params})

    def jvp(self, primals, tangents, **params): return self._rule(params)(primals, tangents)

    def vmap(self, axis, args, dims, **params):
        return vmap_flat(lambda *xs: self.rebind(xs, params), axis, args, dims)

    def transpose(self, cts, *args, call_jaxpr, **params):
        from aot.transforms.linearize import transpose_flat
        got = iter(transpose_flat(call_jaxpr, args, cts))
        return [next(got) if is_linear(x) else None for x in args]

    def lower(self, e, ins, outs, *xs, call_jaxpr, name, **_):
        return e.jaxpr(call_jaxpr, xs) if len(call_jaxpr.eqns) <= 2 else e.call(call_jaxpr, xs, name)


class CustomVjp(CustomJvp):
    name = "custom_vjp_call"

    def shown(self, params):
        return {k: params[k] for k in ("name", "call_jaxpr", "fwd", "bwd")}

    def rebind(self, args, params):
        return state.trace.custom_vjp(self._call(**params), args)

    def jvp(self, primals, tangents, **params):
        return self._call(**params).jvp(primals, tangents, False)

    def _call(self, *, call_jaxpr, fwd, bwd, num_consts, name):
        """The function of all operands.  The rule knows no derivative in what the function closes over."""
        n = num_consts
        fun = lambda *xs: eval_jaxpr(call_jaxpr, xs)
        if not n:
            return VjpCall(fun, fwd, bwd, name)

        def fwd_of_all(perturbed, *xs):
            if any(perturbed[:n]):
                raise TypeError(f"custom_vjp function {name} closes over a value that is differentiated, and its rule says "
                                "nothing of that derivative. hint: pass the value as an argument, and return its cotangent "
                                "from the bwd rule; or use stop_gradient on it")
            return fwd(perturbed[n:], *xs[n:])
        zeros = [Zero(tangent_aval(a)) for a in call_jaxpr.in_avals[:n]]
        return VjpCall(fun, fwd_of_all, lambda res, cts: [*zeros, *bwd(res, cts)], name)


class CustomLin(Primitive):
    """The linear map of a custom_vjp: known only by its transpose."""
    multiple_results = True
    transposes_zeros = True         # a rule may give more than a linear function of the cotangents, such as statistics
    name = "custom_lin"

    def infer(self, *avals, out_avals, **_): return list(out_avals)

    def _forward_only(self, *args, name, **params):
        raise TypeError(f"can't apply forward-mode differentiation (jvp) to a custom_vjp function: {name}. "
                        "hint: define it with custom_jvp, from which reverse mode follows")

    def jvp(self, primals, tangents, **params):
        """Linear in the tangents; residuals are differentiated by differentiating fwd, not here."""
        n = params["num_res"]
        outs = bind(self, *primals, **params)
        if all(is_zero(t) for t in tangents):
            return outs, [Zero(tangent_aval(typeof(o))) for o in outs]
        if any(not is_zero(t) for t in tangents[:n]):
            self._forward_only(**params)
        return outs, bind(self, *primals[:n], *map(instantiate_zero, tangents[n:]), **params)

    def lower(self, *args, **params): self._forward_only(name=params.get("name"))
    def evaluate(self, args, params): self._forward_only(**params)

    def transpose(self, cts, *args, num_res, bwd, out_avals, name):
        back = bwd(list(args[:num_res]), list(cts))
        return [*[None] * num_res, *[c if is_linear(x) else None for c, x in zip(back, args[num_res:])]]

    def vmap(self, axis, args, dims, *, num_res, bwd, out_avals, name):
        res_dims = dims[:num_res]
        n_in = len(args) - num_res
        # every tangent is batched at 0, so that every cotangent is
        values = [*args[:num_res], *[to_dim(axis, x, d, 0) for x, d in zip(args[num_res:], dims[num_res:])]]
        batched = batched_bwd(bwd, axis, res_dims, [0] * len(out_avals), [0] * n_in)
        wide = tuple(ShapedArray((axis.size, *a.shape), a.dtype, a.weak_type) for a in out_avals)
        return bind(self, *values, num_res=num_res, bwd=batched, out_avals=wide, name=name), [0] * len(out_avals)


custom_jvp_p, custom_vjp_p, custom_lin_p = CustomJvp(), CustomVjp(), CustomLin()
