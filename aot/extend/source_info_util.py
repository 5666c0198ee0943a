"""Positions of operations in the user's program, and the names of the scopes around them."""
from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from aot import source
from aot.source import recorded_frame
from aot.source import register_internal as register_exclusion
from aot.transforms.more import named_scope as extend_name_stack


class NameStack(NamedTuple):
    """Names of scopes, the outermost first; as text, "outer/inner"."""
    stack: tuple[str, ...] = ()

    def extend(self, name: str) -> NameStack:
        """The same with one more inside."""
        return NameStack((*self.stack, name))

    def __str__(self) -> str: return "/".join(self.stack)


class SourceInfo(NamedTuple):
    """A position, and the scopes around it."""
    traceback: Any
    name_stack: NameStack


def new_name_stack(name: str = "") -> NameStack:
    """The names in "outer/inner"."""
    return NameStack(tuple(name.split("/")) if name else ())


def new_source_info() -> SourceInfo:
    """No position, in no scope."""
    return SourceInfo(None, NameStack())


def current() -> SourceInfo:
    """The innermost position outside of this package, and the scopes around it."""
    here = recorded_frame()
    return SourceInfo(here, new_name_stack(source.scope_of(here)))


def current_name_stack() -> NameStack:
    """The names of the scopes around the call."""
    return current().name_stack


def user_context(traceback: Any, *, name_stack: NameStack | None = None) -> AbstractContextManager:
    """A block whose operations have the position `traceback`, of `eqn.source_info.traceback`."""
    return source.replaying(traceback)


def summarize(source_info: SourceInfo, num_frames: int = 1) -> str:
    """`file:line (function)`."""
    return source.where(source_info.traceback)


__all__ = ["NameStack", "SourceInfo", "current", "current_name_stack", "extend_name_stack", "new_name_stack",
           "new_source_info", "register_exclusion", "summarize", "user_context"]
