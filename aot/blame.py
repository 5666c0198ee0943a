"""Whose mistake an exception is, for commands and workers: the user's code, the request, or this package."""
from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
import traceback
from functools import cache

from aot.errors import AotError


def describe(e: BaseException, also_ours: tuple[str, ...] = ()) -> dict[str, str]:
    """{"kind": "user" | "error" | "bug", "message"}; the message of the first is the user's own traceback.

    also_ours: folders, with a separator at the end, whose frames are not the user's.
    """
    if is_out_of_memory(e):
        return {"kind": "error", "message": f"ran out of memory{f': {e}' if str(e) else ''}"}
    if _is_too_deep(e):
        return {"kind": "error", "message": "containers of arguments or results are nested too deeply\n"
                                            "hint: flatten them, or stack what is alike into one array"}
    if frames := _user_frames(e, _our_folders() + also_ours):
        lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames),
                 *traceback.format_exception_only(e)]
        return {"kind": "user", "message": "".join(lines).rstrip() + _about_jax(e)}
    if isinstance(e, FileNotFoundError) and e.filename is None:
        return {"kind": "error", "message": "the current folder does not exist any more"}
    if _is_foreseen(e):
        return {"kind": "error", "message": str(e) or type(e).__name__}
    return {"kind": "bug", "message": "".join(traceback.format_exception(e)).rstrip()}


def _about_jax(e: BaseException) -> str:
    """A hint for code that imports jax: it is not there, or it was given values of this package."""
    missing = isinstance(e, ModuleNotFoundError) and (e.name or "").partition(".")[0] == "jax"
    given_ours = isinstance(e, TypeError) and "jax" in sys.modules and "aot." in str(e)
    if (missing or given_ours) and "aot.as_jax" not in sys.modules:
        return ("\nhint: jax traces nothing for aot: import aot in its place, or let `import jax` mean aot, with --as-jax "
                "(as_jax = true in aot.toml)")
    return ""


def _user_frames(e: BaseException, ours: tuple[str, ...]) -> list[traceback.FrameSummary]:
    """The frames from the user's first one on, without ours and the import machinery's."""
    def foreign(filename: str) -> bool:
        return not (filename.startswith("<") or os.path.abspath(filename).startswith(ours))
    frames = [f for f in traceback.extract_tb(e.__traceback__) if foreign(f.filename)]
    library = sysconfig.get_path("stdlib") + os.sep
    first = next((i for i, f in enumerate(frames) if not os.path.abspath(f.filename).startswith(library)), len(frames))
    if first == len(frames) and isinstance(e, SyntaxError) and e.filename and foreign(e.filename):
        return [traceback.FrameSummary(e.filename, e.lineno or 0, "<module>")]
    return frames[first:]


@cache
def _our_folders() -> tuple[str, ...]:
    import aot
    import aot_runtime
    folders = [os.path.dirname(m.__file__ or "") for m in (aot, aot_runtime, importlib)]
    exporters = importlib.util.find_spec("aot.exporters")       # not below aot where it is installed for editing
    folders += (exporters and exporters.submodule_search_locations) or []
    return tuple(os.path.abspath(f) + os.sep for f in folders)


def _is_foreseen(e: BaseException) -> bool:
    """Errors with a message written for the user: ours, the loader's, and complaints of the API about its arguments."""
    loader = sys.modules["aot_runtime"]
    return isinstance(e, (AotError, loader.AotError, TypeError, ValueError, OverflowError, OSError, NotImplementedError))


def is_out_of_memory(e: BaseException) -> bool:
    """Python's, numpy's, or XLA's error for that."""
    return isinstance(e, MemoryError) or type(e).__name__ == "JaxRuntimeError" and str(e).startswith("RESOURCE_EXHAUSTED")


def _is_too_deep(e: BaseException) -> bool:
    """What jaxlib makes of a RecursionError while it goes through a tree."""
    inner = e.__cause__ or e.__context__
    return isinstance(e, SystemError) and "returned a result with an exception set" in str(e) and (
        inner is None or isinstance(inner, RecursionError))
