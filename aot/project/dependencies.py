"""What a build has read, files and variables of the environment, and whether it is still what it was.

Nothing here imports numpy or jaxlib."""
from __future__ import annotations

import contextlib
import os
import re
import sys
import sysconfig
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

from aot.project import unseen

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
def recording(root: str, output: str) -> Iterator[Callable[[], Reads]]:
    """Record what is read in the block: every module that is no installed package, every file below the root, the folders
    there that are looked through, and the variables of the environment that code asks for by name, but Python's own code and
    what runs it here.  Files that libraries open themselves are found by aot/project/unseen.py.

    Yields a function that returns all of these, paths relative to the root where they lie below it.  Can be used once a
    process, since Python has no way to remove the hook.
    """
    opened: set[str] = set()
    listed: set[str] = set()
    active = True

    def hook(event: str, args: tuple) -> None:
        if not active:
            return
        if event == "open" and isinstance(args[0], (str, bytes, os.PathLike)) and not _writes(args):
            opened.add(os.path.abspath(os.fsdecode(args[0])))
        elif event in ("os.listdir", "os.scandir") and not isinstance(args[0], int) and not _imports(sys._getframe(1)):
            listed.add(os.path.abspath(os.fsdecode(args[0] or ".")))
    sys.addaudithook(hook)
    below, out = os.path.abspath(root) + os.sep, os.path.abspath(os.path.join(root, output)) + os.sep

    def files() -> list[str]:
        modules = {os.path.abspath(f) for m in list(sys.modules.values())
                   if isinstance(f := getattr(m, "__file__", None), str)}
        found = {p for p in opened if p.startswith(below) or p.endswith((".npz", ".npy", ".safetensors"))} | modules
        found |= unseen.possible(root, output)
        return sorted({os.path.relpath(p, root) if p.startswith(below) else p for p in found
                       if not is_installed(p) and not p.startswith(out) and not p.endswith(".pyc") and os.path.isfile(p)})

    def folders() -> list[str]:
        return sorted({os.path.relpath(p, root) for p in listed if (p + os.sep).startswith(below) and not is_installed(p)
                       and not (p + os.sep).startswith(out) and os.path.isdir(p)})
    try:
        with _variables_asked_for() as variables, unseen.watching(opened):
            yield lambda: Reads(files(), folders(), dict(variables))
    finally:
        active = False


class Reads(NamedTuple):
    """Paths, and variables by name as `variable` tells of them."""
    files: list[str]
    folders: list[str]
    variables: dict[str, str]


def _imports(frame: Any) -> bool:
    """Whether Python looks for modules or installed packages, on its own or because it was asked to."""
    while frame is not None:
        file, package = frame.f_code.co_filename, (frame.f_globals.get("__name__") or "").partition(".")[0]
        if file.startswith("<frozen importlib") or package in ("importlib", "pkgutil", "pkg_resources", "setuptools"):
            return True
        if not file.startswith("<frozen") and (f"{os.sep}site-packages{os.sep}" in file or not is_installed(file)):
            return False
        frame = frame.f_back
    return False


#: variables that tell where and for whom a program runs, and those that `environment` knows
_NEUTRAL = re.compile(r"(AOT_|JAX_|XLA_|TPU_|PYTHON|LC_|XDG_|TMP|TEMP).*|HOME|PATH|USER|LOGNAME|SHELL|TERM|COLUMNS|LINES|PWD|"
                      r"LANG|LANGUAGE|NO_COLOR|FORCE_COLOR|DISPLAY|HOSTNAME|SOURCE_DATE_EPOCH")


@contextlib.contextmanager
def _variables_asked_for() -> Iterator[dict[str, str]]:
    """The variables that are asked for in the block, with the values that the process had before it.

    Going through all of them asks for none."""
    kind, found, before = type(os.environ), {}, {k: variable(k) for k in os.environ}
    one, every, passed = kind.__getitem__, kind.__iter__, deque()

    def getitem(self: Any, name: str) -> str:
        if passed and passed[0] == name:
            passed.popleft()
        elif self is os.environ and isinstance(name, str) and not _NEUTRAL.fullmatch(name) and _asked(sys._getframe(1)):
            found[name] = before.get(name, "")
        return one(self, name)

    def iterate(self: Any) -> Iterator[str]:
        passed.clear()
        for name in every(self):
            passed.append(name)     # whose value is asked for now, or when all names are known
            yield name
    kind.__getitem__, kind.__iter__ = getitem, iterate
    try:
        yield found
    finally:
        kind.__getitem__, kind.__iter__ = one, every


def _asked(frame: Any) -> bool:
    """Whether code that can decide what is traced asks."""
    while frame is not None and frame.f_globals.get("__name__") in ("os", "collections.abc"):
        frame = frame.f_back
    file = frame.f_code.co_filename if frame is not None else "<frozen>"
    if file.startswith("<frozen") or not is_installed(file):
        return not file.startswith("<frozen")
    package = file.rpartition(f"{os.sep}site-packages{os.sep}")[2]
    return package != file and package.split(os.sep)[0] not in (*PACKAGES, "aot", "aot_runtime")


def variable(name: str) -> str:
    """The value of a variable of the environment, which may be a secret, as a hash; empty where it is not set."""
    from hashlib import sha256
    value = os.environ.get(name)
    return "" if value is None else sha256(os.fsencode(value)).hexdigest()[:16]


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


def snapshot(root: str, output: str, reads: Reads, since: float) -> dict[str, dict]:
    """{"files": {path: [size, mtime_ns, sha256, time of this record]}, "folders": {path: see `names_in`}, "variables": {name:
    see `variable`}}; files that are gone are left out.

    since: when the first of them may have been read.  One that was modified later has no hash, since nobody knows which
    version was read: what was made from it is not fresh.
    """
    found = {}
    for path in reads.files:
        full = os.path.join(root, path)
        try:
            found[path] = entry(full, digest(full) if os.stat(full).st_mtime < since - TICK else "")
        except OSError:
            pass
    return {"files": found, "folders": names_in(root, output, reads.folders), "variables": reads.variables}


def names_in(root: str, output: str, folders: Iterable[str]) -> dict[str, str]:
    """The names in each folder as a hash, without hidden ones and those that builds make; empty where it is gone."""
    from hashlib import sha256
    made, found = ("__pycache__", "aot.lock", os.path.normpath(output).split(os.sep)[0]), {}
    for folder in folders:
        try:
            names = sorted(n for n in os.listdir(os.path.join(root, folder)) if n not in made and not n.startswith("."))
            found[folder] = sha256(os.fsencode("\0".join(names))).hexdigest()[:16]
        except OSError:
            found[folder] = ""
    return found


def entry(full: str, sha: str) -> list:
    """What `snapshot` has for a file with this hash.  Raises OSError."""
    s = os.stat(full)
    return [s.st_size, s.st_mtime_ns, sha, time.time()]


def merge(a: dict[str, dict], b: dict[str, dict]) -> dict[str, dict]:
    """What two tasks have read.  A file that was not the same for both has no hash."""
    x, y = a["files"], b["files"]
    torn = {p for p in x if p in y and x[p][2] != y[p][2]}
    files = {p: [*e[:2], "", e[3]] if p in torn else e for p, e in {**x, **y}.items()}
    return {"files": files, **{k: {**a[k], **b[k]} for k in ("folders", "variables")}}


def changes(root: str, output: str, reads: dict[str, dict]) -> str | None:
    """Why what was read is not what it was, or None."""
    variables, folders = reads["variables"], names_in(root, output, reads["folders"])
    return next(filter(None, chain(
        (f"the variable {k} changed" for k, v in variables.items() if v != variable(k)),
        (f"what is in {p} changed" for p, v in reads["folders"].items() if v != folders[p]),
        (changed(root, path, known) for path, known in reads["files"].items()))), None)


def changed(root: str, path: str, known: list) -> str | None:
    """Why a file is not what it was, or None."""
    size, mtime, sha, at = known
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
    for path in _files_below(here):
        s = os.stat(path)
        h.update(f"{path[len(here):]} {s.st_size} {s.st_mtime_ns}\n".encode())
    return h.hexdigest()[:16]


def _files_below(here: str) -> Iterator[str]:
    """Every file, in a fixed order, but byte code."""
    for folder, folders, files in os.walk(here):
        folders[:] = sorted(f for f in folders if f != "__pycache__")
        yield from (os.path.join(folder, name) for name in sorted(files))


@cache
def compiler_contents() -> str:
    """The same on every machine that has the same files of this package."""
    from hashlib import sha256
    from importlib.util import find_spec
    h = sha256()
    for package in ("aot", "aot.cli", "aot.exporters"):
        spec = find_spec(package)
        for here in (spec and spec.submodule_search_locations) or ():
            for path in _files_below(here):
                h.update(f"{package} {path[len(here):]} {digest(path)}\n".encode())
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
