"""Operations about the program rather than its values: branches by platform, composites, sinks, tokens, shardings."""
from __future__ import annotations

from functools import cache
from typing import Any, Callable

import numpy as np

from aot import errors
from aot.ops.control import Cond
from aot.ops.families import LinearOp, NonDifferentiable, Primitive
from aot.ops.loops import avals_of, merge_captured, stage_tree
from aot.trace import bind, bind1, is_tracer
from aot.tree_util import tree_map

# ---- platform_dependent ----------------------------------------------------------------------------------------------

class PlatformDependent(Cond):
    """The branch of the platform that is compiled for; derived as a cond is, and decided when lowered."""
    name = "platform_dependent"

    def __init__(self, platforms: tuple[str, ...]):
        self.platforms = platforms      # of the branches; "" is the default

    def lower(self, e, ins, outs, index, *xs, branches):
        for name in (e.module.platform, ""):
            if name in self.platforms:
                return e.jaxpr(branches[self.platforms.index(name)], xs)
        raise NotImplementedError(f"platform_dependent has no branch for platform {e.module.platform!r} and no default; it "
                                  f"has {', '.join(self.platforms)}. hint: give it a default")


@cache
def _platform_dependent_p(platforms: tuple[str, ...]) -> PlatformDependent:
    return PlatformDependent(platforms)


def platform_dependent(*args, default: Callable | None = None, **per_platform: Callable):
    """per_platform[platform](*args), or default(*args): chosen when the program is lowered for a platform.

    Keywords are names of platforms: cpu, cuda, rocm, tpu.  All branches return the same types."""
    if "gpu" in per_platform:
        raise ValueError("Use 'cuda' or 'rocm' for lax.platform_dependent.")
    funs = {**per_platform, **({"": default} if default is not None else {})}
    for name, f in funs.items():
        if not callable(f):
            raise TypeError(f"lax.platform_dependent: the '{name or 'default'}' branch must be a callable.")
    if not funs:
        raise ValueError("lax.platform_dependent needs a default or a branch")
    leaves, tree, avals = avals_of(args)
    staged = [stage_tree(f, tree, avals, f"platform_dependent's {n or 'default'}") for n, f in funs.items()]
    for s, n in zip(staged, funs):
        if s[2] != staged[0][2] or [(a.shape, a.dtype) for a in s[0].out_avals] != [
                (a.shape, a.dtype) for a in staged[0][0].out_avals]:
            raise TypeError(f"lax.platform_dependent: the branches must return the same types, but {n or 'default'} differs")
    jaxprs, captured = merge_captured([s[0] for s in staged], [s[1] for s in staged])
    outs = bind(_platform_dependent_p(tuple(funs)), np.int32(0), *captured, *leaves, branches=tuple(jaxprs))
    return staged[0][2].unflatten(outs)


# ---- composite -------------------------------------------------------------------------------------------------------

class Composite(Primitive):
    """A named operation with a decomposition, for compilers and converters that know the name."""
    name = "composite"

    def infer(self, *avals, jaxpr, **_): return jaxpr.out_avals
    def effects(self, *, jaxpr, **_): return jaxpr.effects

    def jvp(self, primals, tangents, **params):
        raise ValueError("JVP rule for composite not implemented. hint: wrap the composite in custom_jvp or custom_vjp")

    def lower(self, e, ins, outs, *xs, jaxpr, op_name, attributes, version):
        from aot.lower.emitter import attribute_text
        fn, weights = e.module.function(jaxpr, op_name)
        xs = [*(e.weights[i] for i in weights), *xs]
        types = ", ".join([*(e.module.weight_types[i] for i in weights), *(a.mlir for a in jaxpr.in_avals)])
        text = ", ".join(f"{k} = {attribute_text(v)}" for k, v in attributes)
        extra = f"composite_attributes = {{{text}}}, " if text else ""
        extra += f"decomposition = @{fn}" + (f", version = {version} : i32" if version else "")
        results = ", ".join(a.mlir for a in outs)
        return e.ops(f'stablehlo.composite "{op_name}" {", ".join(xs)} {{{extra}}} : ({types}) -> '
                     f"{results if len(outs) == 1 else f'({results})'}", len(outs))


composite_p = Composite()


def composite(decomposition: Callable, name: str, version: int = 0) -> Callable:
    """decomposition as one operation called `name` in the lowered program; keyword arguments become its attributes."""
    def call(*args, **kwargs):
        if any(is_tracer(v) for v in kwargs.values()):
            raise errors.UnexpectedTracerError(next(v for v in kwargs.values() if is_tracer(v)))
        leaves, tree, avals = avals_of(args)
        jaxpr, captured, out_tree = stage_tree(lambda *a: decomposition(*a, **kwargs), tree, avals, f"composite {name}")[:3]
        freeze = lambda v: tuple(v) if isinstance(v, list) else v
        outs = bind(composite_p, *captured, *leaves, jaxpr=jaxpr, op_name=name, version=version,
                    attributes=tuple((k, freeze(v)) for k, v in kwargs.items()))
        return out_tree.unflatten(outs)
    return call


# ---- sinks, tokens, shardings ----------------------------------------------------------------------------------------

class DceSink(NonDifferentiable):
    """Keeps its operand's computation in the program."""
    name = "dce_sink"

    def infer(self, x, **_): return []
    def effects(self, **_): return frozenset({"no_dce"})
    def vmap(self, axis, args, dims, **params): return bind(self, *args, **params), []

    def lower(self, e, ins, outs, x, **_): return []
    def evaluate(self, args, params): return []


dce_sink_p = DceSink()


def dce_sink(val: Any, *, prevent_mlir_dce: bool = False) -> None:
    """Keep what val (a tree) takes to compute in the traced program, used or not.

    What the compiler finds unused it may still drop; prevent_mlir_dce is accepted and makes no difference."""
    tree_map(lambda x: bind(dce_sink_p, x, prevent_mlir_dce=prevent_mlir_dce), val)


class Token:
    """Stands for an order of effects.  Effects are ordered by themselves here, so a token carries nothing."""

    def block_until_ready(self) -> Token: return self


def create_token(_: Any = None) -> Token:
    """A token."""
    return Token()


def after_all(*operands: Any) -> Token:
    """A token after all of these."""
    for t in operands:
        if not isinstance(t, Token):
            raise TypeError(f"after_all takes tokens, got {type(t)}")
    return Token()


class Identity(LinearOp):
    """x itself, as an operation of its own."""

    def __init__(self, name: str): self.name = name
    def infer(self, x, **_): return [x]
    def transpose(self, cts, x, **params): return [bind1(self, cts[0], **params)]
    def vmap(self, axis, args, dims, **params): return bind(self, *args, **params), list(dims)
    def lower(self, e, ins, outs, x, **_): return [x]


stage_p = Identity("stage")


def stage(x: Any, /) -> Any:
    """A number or numpy array as a value of the current trace; an array where nothing is traced."""
    from aot.trace import base_trace, state
    if is_tracer(x):
        return x
    if state.trace is base_trace:
        from aot.api import device_put
        return device_put(x)
    return bind1(stage_p, x)


__all__ = ["after_all", "composite", "create_token", "dce_sink", "platform_dependent", "stage"]
