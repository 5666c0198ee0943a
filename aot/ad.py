"""What to do with gradients: arguments and results of `pullback.with_refs(...)`, where vjp returned the pullback."""
from __future__ import annotations

from dataclasses import dataclass

from aot.tree_util import register_pytree_node


@dataclass(frozen=True, slots=True)
class GradValue:
    """Argument: the gradient is returned."""


@dataclass(frozen=True, slots=True)
class GradRef:
    """Result: the gradient was added to the reference that was given."""


@dataclass(frozen=True, slots=True)
class DontWant:
    """Argument: the gradient is not returned."""


@dataclass(frozen=True, slots=True)
class DidntWant:
    """Result: the gradient was not asked for."""


for _result in (GradRef, DidntWant):       # no arrays, to those who look for gradients among results
    register_pytree_node(_result, lambda x: ((), None), lambda _, __, made=_result: made())

__all__ = ["DidntWant", "DontWant", "GradRef", "GradValue"]
