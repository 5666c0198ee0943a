"""`@aot.entry`: a function's build description next to the function, instead of in aot.toml."""
from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

from aot.errors import AotError
from aot.manifest import FUNCTION, Checker, dotted


def entry(fun: Callable | None = None, **keys: Any) -> Any:
    """Mark a function to be built by `aot build`; the keys are those of a `[[function]]` table.

        @aot.entry(args=["f32[32,784]"], weights="params.npz", targets=["cpu", "cpu:x86-64-v3"])
        def predict(params, x): ...

    `args` may also be a function of the same module that returns them.  The file must be listed under
    `modules` in aot.toml.  Returns the function unchanged; several marks are several builds.
    Raises AotError for unknown keys and wrong values.
    """
    if fun is None:
        return lambda f: entry(f, **keys)
    if not callable(fun):
        raise AotError(f"@aot.entry marks functions, not values of type {type(fun).__name__}",
                       hint='write @aot.entry(args=["f32[3]"])')
    name = getattr(fun, "__name__", type(fun).__name__)

    def fail(path: tuple, message: str) -> None:
        raise AotError(f"@aot.entry of {name}: {dotted(path)}: {message}")
    if callable(keys.get("args")):
        keys["args"] = _reference(keys["args"])
    keys.setdefault("function", _reference(fun))
    Checker(fail).table(keys, FUNCTION, ())
    marked: Any = fun
    marked.__aot_entries__ = [*getattr(fun, "__aot_entries__", []), keys]
    return fun


def _reference(fun: Callable) -> str:
    """MODULE:FUNCTION, with the module as a path."""
    name = getattr(fun, "__qualname__", "<nameless>")
    path = getattr(inspect.getmodule(inspect.unwrap(fun)), "__file__", None)
    if "<" in name or path is None:
        raise AotError(f"@aot.entry: {name} cannot be found by name", hint="use a function of the module")
    return f"{os.path.abspath(path)}:{name}"


def discover(module: Any, root: str) -> list[dict]:
    """The marks of functions that this module defines, in their order, with paths relative to the root."""
    marks = {id(v): v.__aot_entries__ for v in vars(module).values()
             if isinstance(getattr(v, "__aot_entries__", None), list)}
    here = os.path.abspath(module.__file__) + ":"
    return [{k: _relative(v, root) if k in ("function", "args") else v for k, v in keys.items()}
            for several in marks.values() for keys in several if keys["function"].startswith(here)]


def _relative(v: Any, root: str) -> Any:
    if not isinstance(v, str) or not os.path.isabs(v):
        return v
    path = os.path.relpath(v, os.path.abspath(root))
    return v if path.startswith("..") else path
