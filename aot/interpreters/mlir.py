"""Lowerings of primitives of one's own: functions of other operations."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from aot import source
from aot.array import Array
from aot.trace import Eqn, Jaxpr, Primitive, Tracer


class LoweringRuleContext(NamedTuple):
    """What a lowering rule is told: the primitive, and the types of operands and results."""
    primitive: Primitive
    avals_in: Sequence[Any]
    avals_out: Sequence[Any]


class Lowered:
    """A lowering that is a function of other operations.  Other rules may call it, with their context and operands."""

    def __init__(self, fun: Callable, multiple_results: bool):
        self.fun, self.multiple_results = fun, multiple_results

    def __call__(self, ctx: LoweringRuleContext, *args: Any, **params: Any) -> list:
        outs = self.fun(*args, **params)
        return list(outs) if self.multiple_results else [outs]


def lower_fun(fun: Callable, multiple_results: bool = True) -> Lowered:
    """fun(*args, **params), which gives a list of results or one, as the lowering of a primitive."""
    return Lowered(fun, multiple_results)


def register_lowering(prim: Primitive, rule: Callable, platform: str | None = None, **_: Any) -> Any:
    """Make `rule(ctx, *operands, **params)` -> list of results what compiled programs do for a primitive.

    It comes from `lower_fun`, calls what does, or picks among its operands.  platform: "cpu", "cuda", "rocm" or "tpu", where it
    is for that alone.  To lower a program for which there is no rule, or one that builds operations of MLIR itself, raises
    NotImplementedError."""
    rules = prim.__dict__.setdefault("lowerings", {})
    rules[platform] = rule

    def lower(e: Any, ins: Any, outs: Any, *xs: str, **params: Any) -> list[str]:
        found = rules.get(e.module.platform, rules.get(None))
        if found is None:
            raise prim.missing("lower")
        return e.inline(_applied(found, LoweringRuleContext(prim, ins, outs), params), ins, xs)
    prim.lower = lower          # type: ignore[method-assign]
    return rule


def traced(e: Eqn) -> Jaxpr | None:
    """The operations that an equation is lowered to, where its primitive has a function for that from `register_lowering`."""
    from aot.lower.emitter import stage_flat
    rules = e.primitive.__dict__.get("lowerings", {})
    found = rules.get(None) or rules.get("cpu")
    if found is None:
        return None
    ins = [x.aval for x in e.invars]
    with source.replaying(e.source), suppress(NotImplementedError):
        return stage_flat(_applied(found, LoweringRuleContext(e.primitive, ins, [v.aval for v in e.outvars]), e.params), ins)
    return None


def _applied(rule: Callable, ctx: LoweringRuleContext, params: dict) -> Callable:
    """The function of arrays that a rule is."""
    def fun(*args: Any) -> list:
        if type(rule) is Lowered:
            return rule(ctx, *args, **params)
        cause = None
        try:
            outs = list(rule(ctx, *args, **params))
            if all(isinstance(x, Tracer | Array) for x in outs):
                return outs
            reason = f"its results are {[type(x).__name__ for x in outs]}"
        except Exception as error:
            cause, reason = error, f"{type(error).__name__}: {error}"
        raise NotImplementedError(f"the lowering of `{ctx.primitive.name}` builds operations of MLIR itself: not supported "
                                  f"({reason}). hint: write it as a function of other operations (mlir.lower_fun), or call "
                                  "native code by ffi.ffi_call") from cause
    return fun


__all__ = ["LoweringRuleContext", "lower_fun", "register_lowering"]
