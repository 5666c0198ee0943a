"""Running exported C: compiled with the system's compiler into a shared library, called through ctypes."""
from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from aot.errors import AotError

from .export import WEIGHTS, signature_in
from .memory import ALIGN

FLAGS = ("-std=c99", "-O1", "-shared", "-fPIC", "-w")


def compiler() -> str | None:
    """The C compiler: $CC, cc, gcc or clang."""
    names = os.environ.get("CC"), "cc", "gcc", "clang"
    return next((found for name in names if name and (found := shutil.which(name))), None)


def missing() -> str:
    """Why exported files cannot be run here."""
    return "" if compiler() else "there is no C compiler"


def build(source: str, folder: str, flags: Sequence[str] = FLAGS) -> str:
    """Compile a source file to a shared library in a folder -> its path.  Raises AotError with what the compiler says."""
    library, found = os.path.join(folder, "program.so"), compiler()
    if found is None:
        raise AotError("running exported C needs a C compiler", hint="install gcc or clang, or set CC")
    done = subprocess.run([found, *flags, source, "-o", library, "-lm"], capture_output=True, text=True)
    if done.returncode:
        raise AotError(f"the C compiler does not take the file: {done.stderr.strip()[:2000]}")
    return library


def function(library: str, about: dict[str, Any], weights: bytes = b"") -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """The function of a shared library, from arrays to arrays."""
    if len(weights) != about["weights"]:
        raise AotError(f"its weights have {len(weights)} bytes instead of {about['weights']}", hint="export it again")
    constants = [_aligned(weights)] if weights else []
    entry = getattr(ctypes.CDLL(library), about["function"])
    entry.restype = None
    types = [_dtype(p["dtype"]) for p in about["inputs"]]

    def call(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        given = [np.ascontiguousarray(a, t) for a, t in zip(arrays, types, strict=True)]
        results = [np.empty(p["shape"], _dtype(p["dtype"])) for p in about["outputs"]]
        arrays = *constants, *given, *results, _aligned(bytes(about["workspace"]))
        entry(*(ctypes.c_void_p(a.ctypes.data) for a in arrays))
        return results
    return call


def _aligned(contents: bytes) -> np.ndarray:
    """A copy at an address as the functions want it."""
    room = np.empty(len(contents) + ALIGN, np.uint8)
    start = -room.ctypes.data % ALIGN
    room[start:start + len(contents)] = np.frombuffer(contents, np.uint8)
    return room[start:]


def _dtype(name: str) -> np.dtype: return np.dtype(getattr(ml_dtypes, name, name))


def run(made: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of a program.  made: an `Exported`."""
    with tempfile.TemporaryDirectory() as folder:
        path = made.save(os.path.join(folder, "program.c"))[0]
        return function(build(path, folder), signature_in(made.header), made.weights)(inputs)


def open_file(path: str) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """A function from the program's inputs to its results."""
    base = path.removesuffix(".c")
    about = signature_in(_contents(base + ".h").decode())
    weights = _contents(base + WEIGHTS) if about["weights"] else b""
    folder = tempfile.mkdtemp()
    try:
        return function(build(path, folder), about, weights)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _contents(path: str) -> bytes:
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError as e:
        raise AotError(f"{path}: {e.strerror or e}",
                       hint="a source file needs what was exported with it in the same folder") from None
