"""Tables of rules of primitives, as libraries write and read them."""
from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from aot.trace import Primitive


class Rules(MutableMapping):
    """primitive -> its rule of one kind.  To set one sets the method of the primitive of that name.

    adapted(prim, rule) -> the method; plain(prim, method) -> the rule that a primitive of this package has."""

    def __init__(self, method: str, adapted: Callable, plain: Callable):
        self.method, self.adapted, self.plain = method, adapted, plain
        self.given: dict[Primitive, Callable] = {}

    def __setitem__(self, prim: Primitive, rule: Callable) -> None:
        self.given[prim] = rule
        setattr(prim, self.method, self.adapted(prim, rule))

    def __getitem__(self, prim: Primitive) -> Callable:
        if prim in self.given:
            return self.given[prim]
        if getattr(type(prim), self.method) is getattr(Primitive, self.method):
            raise KeyError(prim)
        return self.plain(prim, getattr(prim, self.method))

    def __delitem__(self, prim: Primitive) -> None:
        del self.given[prim]
        delattr(prim, self.method)

    def __iter__(self) -> Iterator[Primitive]: return iter(self.given)
    def __len__(self) -> int: return len(self.given)


def listed(prim: Primitive, outs: Any) -> list:
    """The list of results from what a rule returned."""
    return list(outs) if prim.multiple_results else [outs]


def unlisted(prim: Primitive, outs: list) -> Any:
    """What a rule returns, from the list of results."""
    return outs if prim.multiple_results else outs[0]
