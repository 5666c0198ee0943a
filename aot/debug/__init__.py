"""Looking into running programs: print, log, callback, breakpoint."""
from __future__ import annotations

import logging
import string
import sys
from typing import Any, Callable

from aot.debug._breakpoint import breakpoint as breakpoint
from aot.ops.callbacks import callback as _bind_callback
from aot.source import api_boundary
from aot.trace import is_valid_type
from aot.tree_util import tree_flatten


@api_boundary
def callback(callback: Callable, *args, ordered: bool = False, partitioned: bool = False, **kwargs) -> None:
    """Call a Python function with values of the running program; its result is ignored.

    Arguments that are not arrays are passed as they are."""
    leaves, tree = tree_flatten((args, kwargs))
    dynamic = [x for x in leaves if is_valid_type(x) and not isinstance(x, str)]
    fixed = [None if is_valid_type(x) and not isinstance(x, str) else (x,) for x in leaves]

    def call(*values):
        it = iter(values)
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
def print(fmt: str, *args, ordered: bool = False, partitioned: bool = False, skip_format_check: bool = False,
          **kwargs) -> None:
    """Print `fmt.format(*args, **kwargs)` with the values of the running program, under any transform.

    ordered: keep program order among ordered prints (not under vmap)."""
    _show(_to_stdout, fmt, args, kwargs, ordered, skip_format_check)


@api_boundary
def log(fmt: str, *args, ordered: bool = False, partitioned: bool = False, skip_format_check: bool = False,
        **kwargs) -> None:
    """Like `print`, to the logger "aot.debug" at level INFO."""
    _show(logging.getLogger("aot.debug").info, fmt, args, kwargs, ordered, skip_format_check)


def _to_stdout(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _show(write: Callable[[str], Any], fmt: str, args: tuple, kwargs: dict, ordered: bool, unchecked: bool) -> None:
    if not unchecked:
        _formatter.format(fmt, *[_Any()] * len(args), **dict.fromkeys(kwargs, _Any()))

    def show(*a, **k): write(fmt.format(*a, **k))
    callback(show, *args, ordered=ordered, **kwargs)


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
