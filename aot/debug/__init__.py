"""Looking into running programs: print, log, callback, breakpoint."""
from __future__ import annotations

import logging
import string
import sys
from typing import Any, Callable

from aot.array import shared
from aot.debug._breakpoint import breakpoint as breakpoint
from aot.debug._effects import DebugEffect as DebugEffect
from aot.debug._effects import OrderedDebugEffect as OrderedDebugEffect
from aot.ops.callbacks import callback as _bind_callback
from aot.source import api_boundary
from aot.trace import is_valid_type
from aot.trace.refs import is_ref
from aot.tree_util import tree_flatten


@api_boundary
def callback(callback: Callable | None = None, *args, ordered: bool = False, partitioned: bool = False,
             **kwargs) -> Callable | None:
    """Call a Python function with values of the running program; its result is ignored.

    Arguments that are not arrays are passed as they are, of references the contents.  Without a function, what takes it and
    its arguments: `callback(ordered=True)(f, x)`, where f may have arguments named like the options.  partitioned has no
    effect.  Raises TypeError for what is not callable."""
    if callback is None:
        return _second_call(lambda f, *a, **k: _call(f, a, k, ordered), "callback", args, kwargs)
    return _call(callback, args, kwargs, ordered)


def _second_call(call: Callable, name: str, args: tuple, kwargs: dict) -> Callable:
    """The function that takes what is to be called and its arguments; the first call had options alone."""
    if args or kwargs:
        raise TypeError(f"debug.{name} got arguments without a first one: {args}, {kwargs}. hint: the first call takes "
                        f"options, the second the rest: debug.{name}(ordered=True)(...)")
    return api_boundary(call)


def _call(callback: Callable, args: tuple, kwargs: dict, ordered: bool) -> None:
    if not callable(callback):
        raise TypeError(f"debug.callback calls a function, got {callback!r}")
    leaves, tree = tree_flatten((args, kwargs))
    leaves = [x[...] if is_ref(x) else x for x in leaves]
    dynamic = [x for x in leaves if is_valid_type(x) and not isinstance(x, str)]
    fixed = [None if is_valid_type(x) and not isinstance(x, str) else (x,) for x in leaves]

    def call(*values):
        it = map(shared, values)
        a, k = tree.unflatten([next(it) if f is None else f[0] for f in fixed])
        callback(*a, **k)
        return []
    call.__name__ = getattr(callback, "__name__", "callback")
    _bind_callback(call, dynamic, [], "debug", ordered)


class _Formatter(string.Formatter):
    """str.format that refuses unused arguments."""

    def check_unused_args(self, used_args, args, kwargs):
        unused = [a for i, a in enumerate(args) if i not in used_args] + [k for k in kwargs if k not in used_args]
        if unused:
            raise ValueError(f"Unused arguments to `aot.debug.print`: {unused}. hint: refer to each in the format string")


_formatter = _Formatter()


@api_boundary
def print(fmt: str | None = None, *args, ordered: bool = False, partitioned: bool = False, skip_format_check: bool = False,
          _use_logging: bool = False, **kwargs) -> Callable | None:
    """Print `fmt.format(*args, **kwargs)` with the values of the running program, under any transform.

    ordered: keep program order among ordered prints (not under vmap).  Without fmt, what takes it and its arguments:
    `print(ordered=True)("{x}", x=x)`.  partitioned has no effect."""
    write = logging.getLogger("aot.debug").info if _use_logging else _to_stdout
    if fmt is None:
        return _second_call(lambda f, *a, **k: _show(write, f, a, k, ordered, skip_format_check), "print", args, kwargs)
    return _show(write, fmt, args, kwargs, ordered, skip_format_check)


def log(fmt: str | None = None, *args, ordered: bool = False, partitioned: bool = False, skip_format_check: bool = False,
        _use_logging: bool = True, **kwargs) -> Callable | None:
    """Like `print`, to the logger "aot.debug" at level INFO."""
    return print(fmt, *args, ordered=ordered, partitioned=partitioned, skip_format_check=skip_format_check,
                 _use_logging=_use_logging, **kwargs)


def _to_stdout(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _show(write: Callable[[str], Any], fmt: str, args: tuple, kwargs: dict, ordered: bool, unchecked: bool) -> None:
    if not unchecked:
        _formatter.format(fmt, *[_Any()] * len(args), **dict.fromkeys(kwargs, _Any()))

    def show(*a, **k): write(fmt.format(*a, **k))
    _call(show, args, kwargs, ordered)


class _Any:
    """Stands for a value when a format string is checked."""

    def __format__(self, spec): return ""
    def __getattr__(self, name): return self
    def __getitem__(self, key): return self


def visualize_array_sharding(arr: Any, **kwargs) -> None:
    """Print which device holds which part of an array."""
    from aot.debug._sharding import visualize
    visualize(arr, **kwargs)


def __getattr__(name: str):
    if name in ("visualize_sharding", "inspect_array_sharding"):
        from aot.debug import _sharding
        return getattr(_sharding, name)
    raise AttributeError(f"module 'aot.debug' has no attribute {name!r}")
