"""Lowerings of primitives of one's own: functions of other operations."""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from aot import source
from aot.trace import Eqn, Jaxpr, Primitive


class Lowered:
    """A lowering that is a function of other operations."""

    def __init__(self, fun: Callable): self.fun = fun


def lower_fun(fun: Callable, multiple_results: bool = True) -> Lowered:
    """fun(*args, **params), which gives a list of results or one, as the lowering of a primitive."""
    return Lowered(fun)


def register_lowering(prim: Primitive, rule: Any, platform: str | None = None, **_: Any) -> Any:
    """Make `rule`, from `lower_fun`, what compiled programs do for a primitive.

    platform: "cpu", "cuda", "rocm" or "tpu", where it is for that alone.  To lower a program for which there is no rule, or
    one that builds operations of MLIR itself, raises NotImplementedError."""
    rules = prim.__dict__.setdefault("lowerings", {})
    rules[platform] = rule

    def lower(e: Any, ins: Any, outs: Any, *xs: str, **params: Any) -> list[str]:
        found = rules.get(e.module.platform, rules.get(None))
        if found is None:
            raise prim.missing("lower")
        if type(found) is not Lowered:
            raise NotImplementedError(f"the lowering of `{prim.name}` builds operations of MLIR itself: not supported. hint: "
                                      "write it as a function of other operations (mlir.lower_fun), or call native code by "
                                      "ffi.ffi_call")
        return e.inline(partial(_results, prim, found.fun, params), ins, xs)
    prim.lower = lower          # type: ignore[method-assign]
    return rule


def traced(e: Eqn) -> Jaxpr | None:
    """The operations that an equation is lowered to, where its primitive has a function for that from `register_lowering`."""
    from aot.lower.emitter import stage_flat
    rules = e.primitive.__dict__.get("lowerings", {})
    found = rules.get(None) or rules.get("cpu")
    if type(found) is not Lowered:
        return None
    with source.replaying(e.source):
        return stage_flat(partial(_results, e.primitive, found.fun, e.params), [x.aval for x in e.invars])


def _results(prim: Primitive, fun: Callable, params: dict, *args: Any) -> list:
    outs = fun(*args, **params)
    return list(outs) if prim.multiple_results else [outs]


__all__ = ["lower_fun", "register_lowering"]
