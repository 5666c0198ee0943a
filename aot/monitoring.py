"""Events of this process, for those who collect them: listeners are called with a name, a value and keywords.

The compiler records, under jax's names, `/jax/compilation_cache/cache_hits` and `cache_misses`, and the seconds of
`/jax/core/compile/backend_compile_duration`.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

Listener = Callable[..., None]
_listeners: dict[str, list[Listener]] = {"event": [], "duration": [], "time span": [], "scalar": []}


def _tell(kind: str, *values: Any, **about: Any) -> None:
    for listener in list(_listeners[kind]):
        listener(*values, **about)


def record_event(event: str, **kwargs: str | int) -> None:
    """Something has happened."""
    _tell("event", event, **kwargs)


def record_event_duration_secs(event: str, duration: float, **kwargs: str | int) -> None:
    """Something has taken that many seconds."""
    _tell("duration", event, duration, **kwargs)


def record_event_time_span(event: str, start_time: float, end_time: float, **kwargs: str | int) -> None:
    """Something has lasted from one time to another, in seconds since 1970."""
    _tell("time span", event, start_time, end_time, **kwargs)


def record_scalar(event: str, value: float | int, **kwargs: str | int) -> None:
    """Something has this value."""
    _tell("scalar", event, value, **kwargs)


def register_event_listener(callback: Listener) -> None:
    """Call callback(event, **keywords) for every event."""
    _listeners["event"].append(callback)


def register_event_duration_secs_listener(callback: Listener) -> None:
    """Call callback(event, seconds, **keywords) for every duration."""
    _listeners["duration"].append(callback)


def register_event_time_span_listener(callback: Listener) -> None:
    """Call callback(event, start, end, **keywords) for every time span."""
    _listeners["time span"].append(callback)


def register_scalar_listener(callback: Listener) -> None:
    """Call callback(event, value, **keywords) for every scalar."""
    _listeners["scalar"].append(callback)


def unregister_event_listener(callback: Listener) -> None:
    """Raises ValueError for a callback that is not registered, as the other three do."""
    _forget("event", callback)


def unregister_event_duration_listener(callback: Listener) -> None: _forget("duration", callback)
def unregister_event_time_span_listener(callback: Listener) -> None: _forget("time span", callback)
def unregister_scalar_listener(callback: Listener) -> None: _forget("scalar", callback)


def _forget(kind: str, callback: Listener) -> None:
    if callback not in _listeners[kind]:
        raise ValueError(f"{callback} is not registered as a listener of a {kind}. hint: pass the same object as to register")
    _listeners[kind].remove(callback)


def clear_event_listeners() -> None:
    """Forget all listeners."""
    for found in _listeners.values():
        found.clear()
