"""The arguments of functions that are traced: their names, their types, and which are static."""
from __future__ import annotations

import inspect
from typing import Any, Callable

from aot.trace import ShapedArray, typeof

# How the arguments of a call divide: a unique mark; the static ones among the positions, and the others (those by name follow
# the positions); the names of the static ones, and of the others.
Plan = tuple[object, list[int], list[int], list[str], list[str]]


def parameter_names(fun, n: int) -> list[str]:
    """Names for n positional arguments of fun."""
    try:
        names = [p.name for p in inspect.signature(fun).parameters.values()
                 if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    except (ValueError, TypeError):
        names = []
    return [names[i] if i < len(names) else f"args[{i}]" for i in range(n)]


def argument_aval(x: Any, describe: Callable[[], str]) -> ShapedArray:
    try:
        return typeof(x)
    except TypeError:
        raise TypeError(f"{describe()} of type {type(x)} is not a valid JAX type. hint: pass arrays or numbers, or mark "
                        "the argument static with static_argnums or static_argnames") from None


# ---- static arguments ----------------------------------------------------------------------------------------------

def resolve_static(fun, nums: tuple, names: tuple) -> tuple[frozenset, frozenset]:
    """Positions and names that mean the same parameters; where only one kind is given, the signature tells the other.

    fun: a function, or a signature."""
    if not nums and not names:
        return frozenset(), frozenset()
    try:
        signature = fun if isinstance(fun, inspect.Signature) else inspect.signature(fun)
        parameters = list(signature.parameters.values())
    except (ValueError, TypeError):
        return frozenset(nums), frozenset(names)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    known = {p.name for p in parameters if p.kind is not p.VAR_POSITIONAL}
    for i in nums:
        if not variadic and not -len(positional) <= i < len(positional):
            raise ValueError(f"static_argnums or donate_argnums has {i}, but {getattr(fun, '__name__', fun)} takes only "
                             f"{len(positional)} positional arguments")
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for name in names:
            if name not in known:
                raise ValueError(f"jit got invalid argument name {name!r} in static_argnames or donate_argnames; "
                                 f"{getattr(fun, '__name__', fun)} has {sorted(known)}")
    wrapped = [i + len(positional) if i < 0 and not variadic else i for i in nums]
    if nums and names:
        return frozenset(wrapped), frozenset(names)
    position = {p.name: i for i, p in enumerate(positional)}
    out_names = {*names, *(positional[i].name for i in wrapped if 0 <= i < len(positional)
                           and positional[i].kind is not inspect.Parameter.POSITIONAL_ONLY)}
    return frozenset([*wrapped, *(position[n] for n in names if n in position)]), frozenset(out_names)


class UnhashableStatic(ValueError):
    """A static argument that has no hash, so that its traces could not be told from others."""
    def __init__(self, message: str, function: Any):
        super().__init__(message)
        self.function = function


class Static:
    """A static argument as part of a cache key."""
    __slots__ = ("value", "hash")

    def __init__(self, value, owner, where):
        self.value = value
        try:
            self.hash = hash(value)
        except TypeError:
            raise UnhashableStatic(
                f"Non-hashable static arguments are used in a jitted function: static argument {where!r} of {owner.name} is "
                f"of type {type(value)}, which is not hashable. hint: pass a tuple instead of a list, or make the argument "
                "dynamic",
                owner) from None

    def __hash__(self): return self.hash

    def __eq__(self, other):
        return self.value is other.value or (type(self.value) is type(other.value) and self.value == other.value)
