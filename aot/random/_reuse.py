"""Key-reuse checks, for `aot.debug_key_reuse(True)`.

A key is consumed when a sampler draws from it or `split` splits it; `fold_in`, `key_data` and `clone` leave it alone.
Consuming it again raises KeyReuseError.  Keys are followed as objects within one trace.  A staged function (jit, a
branch, a loop body) remembers which of its inputs and captured values it consumes; calling it consumes those keys where
it is called, and a loop that consumes the same key in each step is refused.
"""
from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

from aot.errors import KeyReuseError
from aot.source import Source, recorded_frame, where
from aot.trace import StageTrace, StageTracer, Tracer, state

_consumed: dict[int, tuple[Any, str, Source]] = {}      # id of the key -> (weak reference, by what, where)


class Use(NamedTuple):
    """A consumed input (its position) or captured key of a staged function."""
    position: int | None
    key: Any
    by: str
    source: Source


def consume(key: Any, by: str, source: Source = None) -> None:
    """Note that `by` consumes the key.  Raises KeyReuseError, naming both places, if something did so before."""
    key, source = root(key), source or recorded_frame()
    trace = staging()
    if trace is not None and not (type(key) is StageTracer and key.owner is trace):
        captured = trace.__dict__.setdefault("captured_keys", {})
        if id(key) in captured:
            refuse(by, captured[id(key)].by, captured[id(key)].source)
        captured[id(key)] = Use(None, key, by, source)
        return
    before = _consumed.get(id(key))
    if before is not None and before[0]() is key:
        refuse(by, before[1], before[2])
    ident = id(key)
    _consumed[ident] = weakref.ref(key, lambda _: _consumed.pop(ident, None)), by, source


def refuse(by: str, before: str, source: Source) -> None:
    raise KeyReuseError(f"{by} uses a random key that {before} consumed at {where(source)}\n"
                        "Why: the same key gives the same random bits, so the results are not independent.\n"
                        "To fix this: split the key first (key, sub = random.split(key)) and use each part once; "
                        "random.clone(key) allows an intended reuse.")


def consumed(key: Any) -> bool:
    """Whether the key was consumed before."""
    found = _consumed.get(id(root(key)))
    return found is not None and found[0]() is root(key)


def root(key: Any) -> Any:
    """The key under the tracers of vmap and jvp, which follow one value through one call."""
    while isinstance(key, Tracer) and type(key) is not StageTracer:
        under = getattr(key, "value", None)
        key = under if under is not None else getattr(key, "primal", None)
    return key


def staging() -> StageTrace | None:
    """The innermost trace that records equations (the staging half of differentiation runs its primal work at once)."""
    trace = state.trace
    while trace is not None and type(trace) is not StageTrace:
        trace = trace.parent
    return trace


# ---- staged functions ------------------------------------------------------------------------------------------------

def uses(trace: StageTrace, inputs: Sequence[Any]) -> tuple[Use, ...]:
    """What a function consumed while `trace` staged it."""
    found = []
    for i, x in enumerate(inputs):
        if consumed(x):
            _, by, source = _consumed[id(x)]
            found.append(Use(i, None, by, source))
    return (*found, *trace.__dict__.get("captured_keys", {}).values())


def replay(staged: Sequence[Use], leaves: Sequence[Any]) -> None:
    """A call of a staged function consumes these keys here."""
    for use in staged:
        consume(use.key if use.position is None else leaves[use.position], use.by, use.source)


def refuse_in_loop(staged: Sequence[Use], n_carry: int, passed_on: Sequence[int], what: str) -> None:
    """A loop body may consume its elements, and carries that it replaces; anything else is the same key every step."""
    for use in staged:
        again = use.position is None or use.position < n_carry and use.position in passed_on
        if again:
            raise KeyReuseError(f"{use.by} consumes the same random key in every step of {what}, at {where(use.source)}\n"
                                "To fix this: carry the key and split it in each step, or scan over "
                                "random.split(key, steps)")
