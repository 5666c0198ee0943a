"""The effects that jaxprs have, as `make_jaxpr(f)(x).effects` shows them."""
from __future__ import annotations

from typing import Any, Iterable


class Effect:
    """Something that a program does apart from computing its results.  Its name says which; each name has one instance."""

    def __init__(self, name: str): self.name = name

    def __str__(self) -> str: return self.name
    def __repr__(self) -> str: return f"{type(self).__name__}({self.name!r})"


class DebugEffect(Effect):
    """That of debug.print and debug.callback."""

    def __init__(self): super().__init__("Debug")


class OrderedDebugEffect(Effect):
    """That of debug.print and debug.callback with ordered=True."""

    def __init__(self): super().__init__("OrderedDebug")


_known = {frozenset(("debug",)): DebugEffect(), frozenset(("debug", "ordered")): OrderedDebugEffect(),
          frozenset(("io",)): Effect("IO"), frozenset(("io", "ordered")): Effect("OrderedIO"),
          frozenset(("ref",)): Effect("Ref")}


def shown(effects: Iterable[frozenset]) -> set[Any]:
    """Effects of equations as users see them."""
    return {_known.get(e) or Effect(" ".join(sorted(e))) for e in effects if e}
