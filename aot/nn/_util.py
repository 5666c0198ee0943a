"""Argument handling shared by the files of `aot.nn`."""
from __future__ import annotations

import inspect
from typing import Any

from aot.numpy import _util


class _Operand(int):
    """The number of an array among the arguments."""


def composite(f: Any) -> Any:
    """Mark a jitted function as one that other formats know: its calls lower to a function that carries its name.

    `aot.NAME` has as attributes the arguments that are no arrays, and `arguments`: the names of those that are, in order.
    """
    def described(signature: Any, entry: Any) -> tuple[str, dict[str, Any]] | None:
        if entry.captured:
            return None
        dynamic, named = signature.in_tree.unflatten(map(_Operand, range(signature.in_tree.num_leaves)))
        args, kwargs = f.merged(signature, dynamic, named)
        bound = inspect.signature(f.fun).bind(*args, **kwargs)
        bound.apply_defaults()
        if bound.arguments.get("axis", 0) is None:
            bound.arguments["axis"] = tuple(range(entry.jaxpr.in_avals[0].ndim))
        arrays = {v: k for k, v in bound.arguments.items() if isinstance(v, _Operand)}
        given = {k: v for k, v in bound.arguments.items() if v is not None and not isinstance(v, _Operand)}
        return f"aot.{f.name.lstrip('_')}", {**given, "arguments": tuple(arrays[i] for i in sorted(arrays))}
    f.composite = described
    return f


def inexact(name: str, *args: Any) -> Any:
    """Arguments as arrays of one float or complex dtype; TypeError, naming the function, for what is no array."""
    out = [_util.array_of(x) for x in _util.promote_args(name, *args, to=_util.inexact)]
    return out[0] if len(out) == 1 else out
