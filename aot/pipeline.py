"""A list of transforms, as manifests and commands write it, applied to a function.

    ["value_and_grad:params", "vmap:None,0"]
    [{"grad": "params,x", "has_aux": True}, {"vmap": "0", "out_axes": 1}, {"checkpoint": "dots_saveable"}]

The first is applied first.  Argument numbers may be names; stored weights may be left out of axes.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from aot.binding import Argument, parse_argnums, parse_in_axes
from aot.errors import AotError

#: transform -> the options it takes
OPTIONS = {
    "grad": ("has_aux", "holomorphic", "allow_int"), "value_and_grad": ("has_aux", "holomorphic", "allow_int"),
    "jacfwd": ("has_aux", "holomorphic"), "jacrev": ("has_aux", "holomorphic", "allow_int"),
    "hessian": ("has_aux", "holomorphic"), "vmap": ("out_axes", "axis_name", "axis_size", "spmd_axis_name"),
    "checkpoint": ("prevent_cse",), "jit": ("inline", "keep_unused"),
}


def apply(f: Callable, transforms: Iterable[Any], bound: list[Argument]) -> Callable:
    """f after its transforms.  Raises AotError for what cannot be understood."""
    for step in transforms:
        name, main, options = parse(step)
        f = _apply(f, name, main, options, bound)
    return f


def parse(step: Any) -> tuple[str, Any, dict[str, Any]]:
    """'grad:params' or {"grad": "params", ...} -> (name, its main argument or None, options)."""
    if isinstance(step, str):
        name, colon, main = step.partition(":")
        options: dict[str, Any] = {}
    else:
        options = dict(step)
        name = next((k for k in options if k in OPTIONS), "")
        main = options.pop(name, None)
        colon = main is not None and main is not True
    if name not in OPTIONS:
        raise AotError(f"unknown transform {step!r}", hint=f"there are: {', '.join(OPTIONS)}")
    for k in options:
        if k not in OPTIONS[name]:
            raise AotError(f"transform {name} has no option {k!r}", hint=f"it has: {', '.join(OPTIONS[name])}")
    return name, main if colon else None, options


def _apply(f: Callable, name: str, main: Any, options: dict, bound: list[Argument]) -> Callable:
    import aot
    if name == "vmap":
        return aot.vmap(f, in_axes=parse_in_axes("0" if main is None else str(main), bound), **options)
    if name == "checkpoint":
        return aot.checkpoint(f, policy=_policy(main), **options)
    if name == "jit":
        return aot.jit(f, **options)
    argnums = parse_argnums("0" if main is None else str(main), bound)
    return getattr(aot, name)(f, argnums=argnums, **options)


def _policy(name: str | None) -> Any:
    import aot
    if name is None:
        return None
    found = getattr(aot.checkpoint_policies, name, None)
    if found is None:
        raise AotError(f"there is no checkpoint policy {name!r}",
                       hint="for example dots_saveable, nothing_saveable, everything_saveable")
    return found
