"""Which files a build depends on, and whether they are still what they were.  Nothing here imports numpy or jaxlib."""
from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

BIG = 1 << 20  # files above this size are not hashed again while size and time of modification stay the same
TICK = 0.05    # seconds by which times of modification may lag behind the clock
RACY = 2.0     # seconds in which a file may change without its time of modification telling


@cache
def _installed() -> tuple[str, ...]:
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    loader = sys.modules.get("aot_runtime")
    ours = [here, os.path.dirname(os.path.abspath(loader.__file__ or ""))] if loader else [here]
    paths = sysconfig.get_paths()
    library = [paths[k] for k in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple({os.path.abspath(p) + os.sep for p in [*ours, *library]}
                 | {os.path.realpath(p) + os.sep for p in [*ours, *library]})


def is_installed(path: str) -> bool:
    """Whether a file belongs to Python, to an installed package or to this one."""
    path = os.path.abspath(path)
    return path.startswith(_installed()) or f"{os.sep}site-packages{os.sep}" in path


@contextlib.contextmanager
def recording(root: str, output: str) -> Iterator[Callable[[], set[str]]]:
    """Record what is read in the block: every module that is no installed package, and every file below the root.

    Yields a function that returns the paths, relative to the root where they lie below it.  Can be used once a
    process, since Python has no way to remove the hook.
    """
    opened: set[str] = set()
    active = True

    def hook(event: str, args: tuple) -> None:
        if active and event == "open" and isinstance(args[0], (str, bytes, os.PathLike)) and not _writes(args):
            opened.add(os.path.abspath(os.fsdecode(args[0])))
    sys.addaudithook(hook)
    below, out = os.path.abspath(root) + os.sep, os.path.abspath(os.path.join(root, output)) + os.sep

    def files() -> set[str]:
        modules = {os.path.abspath(f) for m in list(sys.modules.values())
                   if isinstance(f := getattr(m, "__file__", None), str)}
        found = {p for p in opened if p.startswith(below) or p.endswith((".npz", ".npy", ".safetensors"))} | modules
        return {os.path.relpath(p, root) if p.startswith(below) else p for p in found
                if not is_installed(p) and not p.startswith(out) and not p.endswith(".pyc") and os.path.isfile(p)}
    try:
        yield files
    finally:
        active = False


def _writes(args: tuple) -> bool:
    mode, flags = args[1], args[2]
    return isinstance(mode, str) and any(c in mode for c in "wax+") or bool(flags & (os.O_WRONLY | os.O_RDWR))


# ---- is a file still the same? -------------------------------------------------------------------------------------

def digest(path: str) -> str:
    """sha256 of a file's contents."""
    from hashlib import sha256
    h = sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            h.update(block)
    return h.hexdigest()


def snapshot(root: str, files: Iterable[str], since: float) -> dict[str, list]:
    """{path: [size, mtime_ns, sha256, time of this record]}; files that are gone are left out.

    since: when the first of them may have been read.  One that was modified later has no hash, since nobody knows which
    version was read: what was made from it is not fresh.
    """
    found = {}
    for path in files:
        full = os.path.join(root, path)
        try:
            s = os.stat(full)
            found[path] = [s.st_size, s.st_mtime_ns, digest(full) if s.st_mtime < since - TICK else "", time.time()]
        except OSError:
            pass
    return found


def merge(a: dict[str, list], b: dict[str, list]) -> dict[str, list]:
    """What two tasks have read.  A file that was not the same for both has no hash."""
    torn = {p for p in a if p in b and a[p][2] != b[p][2]}
    return {p: [*e[:2], "", e[3]] if p in torn else e for p, e in {**a, **b}.items()}


def changed(root: str, path: str, entry: list) -> str | None:
    """Why a file is not what it was, or None."""
    size, mtime, sha, at = entry
    full = os.path.join(root, path)
    try:
        s = os.stat(full)
    except OSError:
        return f"{path} is gone"
    if not sha:
        return f"{path} changed during the build"
    if s.st_size != size:
        return f"{path} changed"
    settled = s.st_mtime_ns == mtime and at - mtime / 1e9 > RACY
    if size >= BIG and settled:
        return None
    try:
        return None if digest(full) == sha else f"{path} changed"
    except OSError as e:
        return f"{path} cannot be read: {e.strerror}"


# ---- tools ---------------------------------------------------------------------------------------------------------

#: packages that only some targets need, and which
PLUGINS = {"libtpu": "tpu", "jax_cuda12_plugin": "cuda", "jax_cuda12_pjrt": "cuda", "onnx": "onnx", "ai_edge_litert": "tflite"}
PACKAGES = ("jaxlib", "numpy", "ml_dtypes", *PLUGINS)


@cache
def tools() -> dict[str, str]:
    """Versions of what takes part in a build, read from the names of folders: nothing is imported."""
    import aot
    found = {"aotc": aot.__version__, "python": sys.version.split()[0]}
    for folder in sys.path:
        with contextlib.suppress(OSError):
            for name in os.listdir(folder or "."):
                package, _, rest = name.partition("-")
                if package in PACKAGES and rest.endswith(".dist-info"):
                    found.setdefault(package, rest.removesuffix(".dist-info"))
    return found


@cache
def compiler_state() -> str:
    """Changes whenever a file of this package does: for people who work on it, and reinstallations."""
    from hashlib import sha256
    h, here = sha256(), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for folder, folders, files in os.walk(here):
        folders[:] = sorted(f for f in folders if f != "__pycache__")
        for name in sorted(files):
            s = os.stat(os.path.join(folder, name))
            h.update(f"{folder[len(here):]}/{name} {s.st_size} {s.st_mtime_ns}\n".encode())
    return h.hexdigest()[:16]


def environment() -> dict[str, str]:
    """The variables that can change what is built."""
    ignored = ("CACHE", "LOG", "TRACEBACK")
    return {k: v for k, v in sorted(os.environ.items())
            if v and (k.startswith(("AOT_", "JAX_")) and not any(w in k for w in ignored)
                      or k in ("XLA_FLAGS", "PYTHONPATH", "SOURCE_DATE_EPOCH"))}


def identity() -> dict[str, Any]:
    """Everything outside the project that a build depends on."""
    return {"tools": tools(), "compiler": compiler_state(), "environment": environment()}
