"""Where in the user's program an operation came from, and tracebacks without this package's frames.

Capturing must be cheap, because it happens for every traced operation: `recorded_frame` returns only the code object
and the instruction offset of the innermost frame outside this package.  File, line and function are worked out when
somebody asks.

A jitted function of this package is traced once for all its callers, and so is what is derived from a jaxpr: operations
there have the place `CALLER`, which whoever goes through a jaxpr replaces by the place of the call.
"""
from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any, TypeVar

from aot.config import config

#: A captured position: a code object and the offset of its last instruction; None when there is no user frame.
#: Where operations are recorded within scopes (`named_scope`), the names of these, as in "outer/inner", come third.
Source = tuple[CodeType, int] | tuple[CodeType, int, str] | tuple[()] | None
#: The position of operations that belong to the place of the call; false, as None is.
CALLER: Source = ()

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_internal: dict[str, bool] = {}      # by file name: code objects of different files can compare equal


class _Roots(list):
    """Paths whose files are internal; libraries add and remove theirs."""

    def append(self, path: str) -> None:
        super().append(path)
        _internal.clear()

    def remove(self, path: str) -> None:
        super().remove(path)
        _internal.clear()


_internal_roots = _Roots([_PACKAGE, "<frozen "])
F = TypeVar("F", bound=Callable[..., Any])


class _Local(threading.local):
    current: Source = None
    scope: str = ""
    transforms: tuple[str, ...] = ()        # since the innermost scope


_local = _Local()


def register_internal(path: str) -> None:
    """Treat files under `path` as part of the compiler: their frames are skipped when looking for the user's line."""
    _internal_roots.append(os.path.abspath(path) + ("" if path.endswith(".py") else os.sep))


def is_internal(code: CodeType) -> bool:
    """Whether a code object belongs to this package (or to functools and contextlib, which it calls through)."""
    name = code.co_filename
    known = _internal.get(name)
    if known is None:
        known = _internal[name] = is_internal_path(name) or name in _GLUE
    return known


def is_users_frame(frame: FrameType) -> bool:
    """Whether a frame runs code outside this package."""
    return not is_internal(frame.f_code)


def is_internal_path(path: str) -> bool:
    """Whether a file or folder is one of the compiler's."""
    return path.startswith(tuple(_internal_roots))


# Generated dataclass methods and the wrappers of these two modules stand between our frames; never the user's place.
_GLUE = frozenset((functools.__file__, contextlib.__file__))


def is_ours(fun: Callable) -> bool:
    """Whether a function, under its wrappers, is one of this package."""
    code = getattr(inspect.unwrap(fun), "__code__", None)
    return code is not None and is_internal(code)


def recorded_frame() -> Source:
    """The place of an operation that is recorded now: the innermost frame outside this package, the override set by
    `replaying`, or CALLER in a function of this package that is traced for all its callers."""
    override = _local.current
    if override is not None:
        return override
    frame: FrameType | None = sys._getframe(1)
    internal, shared = _internal, shared_body.__code__
    while frame is not None:
        code = frame.f_code
        known = internal.get(code.co_filename)
        if known is None:
            known = is_internal(code)
        if not known:
            scope = _local.scope
            return (code, frame.f_lasti, scope) if scope else (code, frame.f_lasti)
        if code is shared:
            return CALLER
        frame = frame.f_back
    return None


def scope_of(source: Source) -> str:
    """The names of the scopes of a position; "" outside of any."""
    return source[2] if source and len(source) == 3 else ""


class scope:
    """Operations recorded inside the block belong to a scope of that name, within that around the block; None: to no scope.

    The first scope within a transform is named after both, `jvp(layer)`."""
    __slots__ = ("name", "before")

    def __init__(self, name: str | None): self.name = name

    def __enter__(self) -> None:
        around, transforms = self.before = _local.scope, _local.transforms
        name = self.name or ""
        for t in reversed(transforms):
            name = f"{t}({name})"
        _local.scope = "" if self.name is None else f"{around}/{name}" if around else name
        _local.transforms = ()

    def __exit__(self, *_: Any) -> None: _local.scope, _local.transforms = self.before


class transformed:
    """Functions called inside the block are under a transform of that name."""
    __slots__ = ("name", "before")

    def __init__(self, name: str): self.name = name

    def __enter__(self) -> None:
        self.before = _local.transforms
        _local.transforms = (*self.before, self.name)

    def __exit__(self, *_: Any) -> None: _local.transforms = self.before


def transposed(source: Source) -> Source:
    """The position of what is done for the transpose of an operation at a position."""
    return (source[0], source[1], _transposed_scope(source[2])) if source and len(source) == 3 else source


@functools.lru_cache(maxsize=4096)
def _transposed_scope(scope: str) -> str:
    """`outer/jvp(layer)/inner` -> `outer/transpose(jvp(layer))/inner`"""
    found, depth = re.search(r"(?<![^/(])jvp\(", scope), 0
    start = found.start() if found else len(scope)
    for end in range(start, len(scope)):
        depth += (scope[end] == "(") - (scope[end] == ")")
        if scope[end] == ")" and depth == 0:
            return f"{scope[:start]}transpose({scope[start:end + 1]}){scope[end + 1:]}"
    return scope


def shared_body(fun: Callable, args: Any, kwargs: Any) -> Any:
    """Call a function of this package to trace it for all its callers."""
    before = set_current(None)
    try:
        return fun(*args, **kwargs)
    finally:
        set_current(before)


def user_frame() -> Source:
    """The user's place, for messages: the override set by `replaying`, else the innermost frame outside this package."""
    frame: FrameType | None = sys._getframe(1)
    while not _local.current and frame is not None and is_internal(frame.f_code):
        frame = frame.f_back
    return _local.current or frame and (frame.f_code, frame.f_lasti)


def frames_to_user() -> int:
    """How many frames lie between the caller of this function and the user's frame, plus one.

    With `n = frames_to_user()` in a function, `warnings.warn(..., stacklevel=n)` there points at the user's line.
    """
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and is_internal(frame.f_code):
        frame, depth = frame.f_back, depth + 1
    return depth


@contextlib.contextmanager
def replaying(source: Source) -> Iterator[Source]:
    """Give operations recorded inside the block the position `source`, as when a recorded equation is run again.

    Without one (None, or CALLER) the override of before goes on.  Gives the override."""
    before = _local.current
    _local.current = source or before
    try:
        yield _local.current
    finally:
        _local.current = before


def set_current(source: Source) -> Source:
    """Set this thread's override and return the one before; the fast form of `replaying` for inner loops."""
    before = _local.current
    _local.current = source
    return before


def line_of(source: Source) -> int:
    """The line number of a captured position; 0 when unknown."""
    if not source:
        return 0
    code, lasti = source[:2]
    for start, end, line in code.co_lines():
        if start <= lasti < end and line is not None:
            return line
    return code.co_firstlineno


def location(source: Source) -> tuple[str, int, str] | None:
    """`(file, line, function)` of a captured position."""
    if not source:
        return None
    return source[0].co_filename, line_of(source), source[0].co_qualname


def where(source: Source) -> str:
    """`file:line (function)` for messages; the file relative to the working directory when it lies below it."""
    found = location(source)
    if found is None:
        return "<unknown location>"
    file, line, function = found
    return f"{relative(file)}:{line} ({function})"


def code_line(source: Source) -> str:
    """The text of the user's source line, stripped; '' when the file cannot be read."""
    import linecache

    found = location(source)
    return linecache.getline(found[0], found[1]).strip() if found else ""


def relative(file: str, root: str | None = None) -> str:
    """`file` relative to `root` (default: the working directory) if below it, with forward slashes; else unchanged.

    Output that must not depend on where a checkout lies uses this for every file name it stores.
    """
    base = os.path.abspath(root or os.getcwd()) + os.sep
    path = os.path.abspath(file) if not file.startswith("<") else file
    return path[len(base):].replace(os.sep, "/") if path.startswith(base) else file


# ---- tracebacks ------------------------------------------------------------------------------------------------------

def hide_internal_frames(exc: BaseException) -> BaseException:
    """Drop this package's frames from the traceback of `exc` and of its causes; returns `exc`.

    Use it as `except Exception as exc: hide_internal_frames(exc); raise`: with a bare `raise`, Python (3.11 and later)
    does not add the frame of the handler again.

    Honours `config.traceback_filtering`: 'off' keeps everything; 'tracebackhide' only marks the frames, for IPython;
    'remove_frames' makes an UnfilteredStackTrace with all of them the cause.  An error that looks like a fault of this
    package (an AttributeError or the like raised in its own code) keeps its traceback, or nobody could find the fault.
    """
    mode = config.traceback_filtering
    if mode == "off" or (isinstance(exc, _FAULTS) and _raised_inside(exc)) or mode == "remove_frames" and _under_a_boundary():
        return exc
    full = exc.__traceback__
    for link in list(_chain(exc)):
        if mode == "tracebackhide":
            for step in _steps(link.__traceback__):
                if is_internal(step.tb_frame.f_code):
                    step.tb_frame.f_locals["__tracebackhide__"] = True
        else:
            link.__traceback__ = _without_internal(link.__traceback__)
    if mode == "remove_frames":
        cause = UnfilteredStackTrace("the same exception with all of its frames").with_traceback(full)
        for name in ("__cause__", "__context__", "__suppress_context__"):
            setattr(cause, name, getattr(exc, name))
        exc.__cause__ = cause
    return exc


class UnfilteredStackTrace(Exception):
    """The cause of exceptions under `traceback_filtering` = "remove_frames": its traceback has every frame."""


def _chain(exc: BaseException | None) -> Iterator[BaseException]:
    """An exception and those that led to it."""
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:
        seen.add(id(exc))
        yield exc
        exc = exc.__cause__ or (None if exc.__suppress_context__ else exc.__context__)


def _under_a_boundary() -> bool:
    """Whether one further out will hide the frames of the exception that the caller's caller is handling."""
    frame = sys._getframe(2).f_back
    while frame is not None and frame.f_code not in boundaries:
        frame = frame.f_back
    return frame is not None


# What this package never raises on purpose for a user's mistake.
_FAULTS = (AssertionError, AttributeError, KeyError, NameError, ArithmeticError, RecursionError, MemoryError)


def _steps(tb: TracebackType | None) -> Iterator[TracebackType]:
    while tb is not None:
        yield tb
        tb = tb.tb_next


def _raised_inside(exc: BaseException) -> bool:
    steps = list(_steps(exc.__traceback__))
    return bool(steps) and is_internal(steps[-1].tb_frame.f_code) and not type(exc).__module__.startswith("aot.")


def _without_internal(tb: TracebackType | None) -> TracebackType | None:
    kept = [step for step in _steps(tb) if not is_internal(step.tb_frame.f_code)]
    result: TracebackType | None = None
    for step in reversed(kept):
        result = TracebackType(result, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return result


def wraps(fun: Callable) -> Callable[[F], F]:
    """functools.wraps for any callable: what is no name among its `__name__` and the like is not taken over."""
    named = [n for n in ("__module__", "__name__", "__qualname__") if isinstance(getattr(fun, n, None), str)]
    return functools.wraps(fun, assigned=(*named, "__doc__"))       # type: ignore[return-value]


def api_boundary(function: F) -> F:
    """Decorator of public functions: exceptions leave them with only the user's frames."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as exc:
            hide_internal_frames(exc)
            raise           # a bare raise does not put this frame back
    return wrapper  # type: ignore[return-value]


#: the code that calls `hide_internal_frames`
boundaries: set[CodeType] = {api_boundary(len).__code__}
