"""Modules whose names load when they are first used."""
from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class LazyModule(ModuleType):
    """A module with functions `__getattr__` and `__dir__` for its names.

    `vars(module)` has all of them, as libraries expect that copy or wrap them."""

    @property
    def __dict__(self) -> dict[str, Any]:        # type: ignore[override]
        found = ModuleType.__dict__["__dict__"].__get__(self)
        for name in found["__dir__"]():
            if name not in found:
                found[name] = getattr(self, name)
        return found


def fill(name: str) -> None:
    """Make the module of that name a `LazyModule`."""
    sys.modules[name].__class__ = LazyModule
