"""User-defined vectorising: custom_vmap and sequential_vmap."""
from __future__ import annotations

import functools
from typing import Any, Callable

from aot.ops.call import Holder, with_dots
from aot.source import api_boundary
from aot.trace import Zero, bind, eval_jaxpr, is_zero, stage, typeof
from aot.tree_util import tree_flatten, tree_map, tree_structure


class CustomVmapCall(Holder):
    """A jaxpr with its own batching rule: rule(axis size, which inputs are batched, *args) -> (out, which are batched)."""
    name = "custom_vmap_call"

    def infer(self, *avals, jaxpr, **_): return jaxpr.out_avals

    def vmap(self, axis, args, dims, *, jaxpr, rule, **params):
        from aot.transforms.vmap import to_dim
        values = [x if d is None else to_dim(axis, x, d, 0) for x, d in zip(args, dims)]
        outs, batched = rule(axis.size, [d is not None for d in dims], values)
        return outs, [0 if b else None for b in batched]

    def jvp(self, primals, tangents, *, jaxpr, rule, **params):
        """The derivative is that of the function; batched, primal and tangent go through the rule together."""
        from aot.transforms.jvp import instantiate_zero, jvp_flat, jvp_jaxpr
        from aot.transforms.vmap import Axis, to_dim
        nonzero = [not is_zero(t) for t in tangents]
        both, out_nonzero = jvp_jaxpr(jaxpr, nonzero)
        n = len(primals)

        def joint_rule(size, batched, values):
            which, it = {}, n
            for i, nz in enumerate(nonzero):
                if nz:
                    which[i], it = it, it + 1
            either = [b or (i in which and batched[which[i]]) for i, b in enumerate(batched[:n])]
            axis = Axis(size)
            wide = lambda x, have, want: to_dim(axis, x, None, 0) if want and not have else x
            ps = [wide(values[i], batched[i], either[i]) for i in range(n)]
            ts = [wide(values[which[i]], batched[which[i]], either[i]) for i in range(n) if i in which]
            box: dict[str, Any] = {}

            def run(*xs):
                outs, box["batched"] = rule(size, either, list(xs))
                return outs
            it_t = iter(ts)
            outs, dots = jvp_flat(run, ps, [next(it_t) if nz else Zero.like(p) for p, nz in zip(ps, nonzero)])
            keep = [instantiate_zero(t) for t, nz in zip(dots, out_nonzero) if nz]
            flags = [b for b, nz in zip(box["batched"], out_nonzero) if nz]
            return [*outs, *keep], [*box["batched"], *flags]
        outs = self.bind(*primals, *[t for t in tangents if not is_zero(t)], jaxpr=both, rule=joint_rule, **params)
        return with_dots(outs, out_nonzero, jaxpr.out_avals)

    def linearize(self, primals, tangents, *, jaxpr, rule, **params):
        """Without a batch in sight, differentiate the function itself."""
        from aot.transforms.linearize import linearize_jaxpr
        nonzero = [not is_zero(t) for t in tangents]
        lin = linearize_jaxpr(jaxpr, nonzero)
        outs = eval_jaxpr(lin.fwd, primals)
        dots = [t for t in tangents if not is_zero(t)]
        lin_outs = eval_jaxpr(lin.lin, [*lin.pick(primals, outs), *dots]) if any(lin.out_nonzero) else []
        return with_dots([*outs[:len(jaxpr.outvars)], *lin_outs], lin.out_nonzero, jaxpr.out_avals)

    def lower(self, e, ins, outs, *xs, jaxpr, **_): return e.jaxpr(jaxpr, xs)

    def evaluate(self, args, params):
        from aot.dispatch import run_jaxpr
        return run_jaxpr(params["jaxpr"], args, "custom_vmap")


custom_vmap_p = CustomVmapCall()


class custom_vmap:
    """A function with its own rule for vmap.

    `@custom_vmap def f(x, y)`, then `@f.def_vmap def rule(axis_size, in_batched, x, y): return out, out_batched`, where
    batched values have the mapped axis first and in_batched / out_batched are trees of bools."""

    def __init__(self, fun: Callable):
        functools.update_wrapper(self, fun)
        self.fun, self.vmap_rule = fun, None

    def def_vmap(self, vmap_rule: Callable) -> Callable:
        self.vmap_rule = vmap_rule
        return vmap_rule

    @api_boundary
    def __call__(self, *args, **kwargs):
        name = getattr(self.fun, "__name__", "fun")
        if self.vmap_rule is None:
            raise AttributeError(f"No batching rule defined for custom_vmap function {name} using def_vmap")
        if kwargs:
            raise TypeError(f"custom_vmap function {name} takes positional arguments only")
        leaves, in_tree = tree_flatten(args)
        box: dict[str, Any] = {}

        def flat(*xs):
            outs, box["tree"] = tree_flatten(self.fun(*in_tree.unflatten(xs)))
            return outs
        jaxpr, captured = stage(flat, [typeof(x) for x in leaves], name)
        out_tree, n = box["tree"], len(captured)

        def rule(size, batched, values):
            if any(batched[:n]):
                raise ValueError(f"custom_vmap function {name} closes over a batched value. hint: pass it as an argument")
            flags = in_tree.unflatten(batched[n:])
            got = self.vmap_rule(size, list(flags), *in_tree.unflatten(values[n:]))
            if not isinstance(got, tuple) or len(got) != 2:
                raise TypeError(f"the vmap rule of {name} must return (out, out_batched), got {got!r}")
            out, out_batched = got
            outs, tree = tree_flatten(out)
            if tree != out_tree:
                raise TypeError(f"structure of the output of the vmap rule of {name}: expected {out_tree}, got {tree}")
            if tree_structure(out_batched) != out_tree:
                out_batched = tree_map(lambda _: bool(out_batched), out)
            return outs, tree_flatten(out_batched)[0]
        outs = bind(custom_vmap_p, *captured, *leaves, jaxpr=jaxpr, rule=rule)
        return out_tree.unflatten(outs)


def sequential_vmap(f: Callable) -> custom_vmap:
    """f, which vmap runs one lane after the other (as lax.map) instead of vectorising."""
    mapped = custom_vmap(f)

    @mapped.def_vmap
    def rule(axis_size, in_batched, *args):
        from aot.ops.loops import map_over
        leaves, tree = tree_flatten(args)
        flags = tree_flatten(tuple(in_batched))[0]

        def one(rows):
            it = iter(rows)
            return f(*tree.unflatten([next(it) if b else x for x, b in zip(leaves, flags)]))
        out = map_over(one, [x for x, b in zip(leaves, flags) if b])
        return out, tree_map(lambda _: True, out)
    return mapped
