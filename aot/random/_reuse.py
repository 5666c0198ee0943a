"""Key-reuse checks, for `aot.debug_key_reuse(True)`.

A key is consumed when a sampler draws from it or `split` splits it; `fold_in`, `key_data` and `clone` leave it alone.
Consuming it again raises KeyReuseError.  Keys are followed as Python objects, inside of the trace they belong to:
one that a nested function captures is not followed there, because a branch or loop body may run once, never or often.
"""
from __future__ import annotations

import weakref
from typing import Any

from aot.errors import KeyReuseError
from aot.source import Source, user_frame, where
from aot.trace import StageTrace, Tracer, state

_consumed: dict[int, tuple[Any, str, Source]] = {}      # id of the key -> (weak reference, by what, where)


def consume(key: Any, by: str) -> None:
    """Note that `by` consumes the key.  Raises KeyReuseError, naming both places, if something did so before."""
    if not _followed(key):
        return
    before = _consumed.get(id(key))
    if before is not None and before[0]() is key:
        raise KeyReuseError(f"{by} uses a random key that {before[1]} consumed at {where(before[2])}\n"
                            "Why: the same key gives the same random bits, so the results are not independent.\n"
                            "To fix this: split the key first (key, sub = random.split(key)) and use each part once; "
                            "random.clone(key) allows an intended reuse.")
    ident = id(key)
    _consumed[ident] = weakref.ref(key, lambda _: _consumed.pop(ident, None)), by, user_frame()


def consumed(key: Any) -> bool:
    """Whether the key was consumed before."""
    found = _consumed.get(id(key))
    return found is not None and found[0]() is key


def _followed(key: Any) -> bool:
    trace = state.trace
    if isinstance(key, Tracer):
        return key.trace is trace
    while trace is not None:
        if type(trace) is StageTrace:       # not the staging half of differentiation
            return False
        trace = trace.parent
    return True
