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

from .export import signature_in
from .memory import ALIGN

FLAGS = ("-std=c99", "-O1", "-shared", "-fPIC", "-w")


def compiler() -> str | None:
    """The C compiler: $CC, cc, gcc or clang."""
    return next((found for name in (os.environ.get("CC"), "cc", "gcc", "clang") if name and (found := shutil.which(name))), None)


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


def function(library: str, about: dict[str, Any]) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """The function of a shared library, from arrays to arrays."""
    entry = getattr(ctypes.CDLL(library), about["function"])
    entry.restype = None
    types = [_dtype(p["dtype"]) for p in about["inputs"]]

    def call(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        given = [np.ascontiguousarray(a, t) for a, t in zip(arrays, types, strict=True)]
        results = [np.empty(p["shape"], _dtype(p["dtype"])) for p in about["outputs"]]
        room = np.empty(about["workspace"] + ALIGN, np.uint8)
        work = room.ctypes.data + -room.ctypes.data % ALIGN
        entry(*(ctypes.c_void_p(a.ctypes.data) for a in (*given, *results)), ctypes.c_void_p(work))
        return results
    return call


def _dtype(name: str) -> np.dtype: return np.dtype(getattr(ml_dtypes, name, name))


def run(made: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of a program.  made: an `Exported`."""
    with tempfile.TemporaryDirectory() as folder:
        path = made.save(os.path.join(folder, "program.c"))[0]
        return function(build(path, folder), signature_in(made.header))(inputs)


def open_file(path: str) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """A function from the program's inputs to its results."""
    header = path.removesuffix(".c") + ".h"
    try:
        with open(header, encoding="utf-8") as f:
            about = signature_in(f.read())
    except OSError as e:
        raise AotError(f"{header}: {e.strerror or e}", hint="a source file needs its header next to it") from None
    folder = tempfile.mkdtemp()
    try:
        return function(build(path, folder), about)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
