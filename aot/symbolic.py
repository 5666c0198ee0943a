"""Sizes as text for `aot.export`; programs here have known sizes, so names of unknown ones are refused."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aot.trace import ShapeDtypeStruct, typeof
from aot.tree_util import broadcast_prefix, tree_flatten


class SymbolicScope:
    """Names of sizes that are not known.  Programs here have known sizes, so making one raises NotImplementedError."""

    def __init__(self, constraints_str: Sequence[str] = ()):
        raise _no_symbols(", ".join(constraints_str))


def _no_symbols(what: str) -> NotImplementedError:
    return NotImplementedError(f"symbolic dimensions ({what}) are not supported: every program has known sizes. hint: export "
                               "one function for each size; several signatures of a function in aot.toml make an artifact that "
                               "takes batches of any size (docs/loader.md)")


def is_symbolic_dim(p: Any) -> bool:
    """Whether a size is an unknown one: never."""
    return False


def symbolic_shape(shape_spec: str | None, *, constraints: Sequence[str] = (), scope: SymbolicScope | None = None,
                   like: Sequence[int | None] | None = None) -> tuple[int, ...]:
    """The shape that a text like "2, 3" says; `_` stands for the size in `like`, `...` for all further ones.

    Raises NotImplementedError for sizes that are names, ValueError where `like` does not fit."""
    if constraints:
        raise _no_symbols(", ".join(constraints))
    parts = [p.strip() for p in (shape_spec if shape_spec is not None else "...").strip().strip("()").split(",") if p.strip()]
    if unknown := [p for p in parts if p not in ("_", "...") and not p.isdigit()]:
        raise _no_symbols(", ".join(unknown))
    given = None if like is None else tuple(like)
    if parts[-1:] == ["..."]:
        parts = [*parts[:-1], *["_"] * (len(given or ()) - len(parts) + 1)]
    if "_" in parts and (given is None or len(given) != len(parts) or "..." in parts) or given and len(given) != len(parts):
        raise ValueError(f"shape {shape_spec!r} does not fit {given}. hint: `_` and `...` stand for sizes of an array")
    sizes = [like[i] if p == "_" and like else int(p) for i, p in enumerate(parts)]
    if wrong := [(a, b) for a, b in zip(sizes, given or ()) if b is not None and a != b]:
        raise ValueError(f"shape {shape_spec!r} does not fit {given}: {wrong[0][0]} is not {wrong[0][1]}")
    return tuple(int(n) for n in sizes if n is not None)


def symbolic_args_specs(args: Any, shapes_specs: Any, constraints: Sequence[str] = (), scope: SymbolicScope | None = None
                        ) -> Any:
    """ShapeDtypeStructs in the structure of args, with the shapes that shapes_specs (a prefix of it) says, as symbolic_shape
    reads them."""
    leaves, tree = tree_flatten(args)
    specs = broadcast_prefix(shapes_specs, args, is_leaf=lambda x: x is None, name="symbolic_args_specs shapes_specs")
    avals = [typeof(x) for x in leaves]
    return tree.unflatten([ShapeDtypeStruct(symbolic_shape(s, constraints=constraints, like=a.shape), a.dtype)
                           for s, a in zip(specs, avals)])
