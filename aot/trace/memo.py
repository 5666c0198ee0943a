"""What is remembered about a function, for as long as the function lives."""
from __future__ import annotations

import weakref
from typing import Any, Callable

_known: dict[int, tuple[weakref.ref, dict]] = {}     # id of a function -> what is known of it


def per_function(fun: Callable, key: Any) -> dict:
    """A dict for this very function object (not for an equal one) and this key; a new one where fun has no weak references."""
    found = _known.get(id(fun))
    if found is None or found[0]() is not fun:
        i = id(fun)
        try:
            found = _known[i] = weakref.ref(fun, lambda _, known=_known: known.pop(i, None)), {}    # at exit, globals are None
        except TypeError:
            return {}
    return found[1].setdefault(key, {})


def forget() -> None:
    """Forget everything."""
    for _, known in list(_known.values()):
        for table in known.values():
            table.clear()
