"""Runs one file on many inputs in a process of its own: `python -m aot.exporters.judge FORMAT FILE FOLDER NUMBER...`.

For each number N it reads the arrays of FOLDER/in.N and writes its results to FOLDER/out.N, or FOLDER/err.N with the reason
why there are none.  FORMAT is a name of formats.py, or "xla" for a StableHLO program with all its parameters.
"""
from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

import numpy as np

from aot.project.server import die_with_parent


def opened(format: str, path: str) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    from . import formats, xla_run
    if format != "xla":
        return formats.FORMATS[format].load("run").open_file(path)
    with open(path, "rb") as f:
        return xla_run.function(f.read())


def read_arrays(path: str) -> list[np.ndarray]:
    """Arrays in safetensors layout, named by their positions."""
    import aot_runtime
    with open(path, "rb") as f:
        found = aot_runtime.tensors(memoryview(f.read()), path)
    return [found[str(i)] for i in range(len(found))]


def write_arrays(path: str, arrays: Sequence[np.ndarray]) -> None:
    """The inverse; the file appears when it is whole."""
    from aot.artifact import pack_tensors
    from aot.files import replacing
    with replacing(path) as f:
        f.writelines(pack_tensors({str(i): np.asarray(x) for i, x in enumerate(arrays)}))


def main(format: str, path: str, folder: str, numbers: Sequence[str]) -> None:
    from aot.files import write_text
    try:
        call = opened(format, path)
    except Exception as e:  # whatever a runtime raises about a file is the answer to every case
        for n in numbers:
            write_text(os.path.join(folder, f"err.{n}"), str(e) or type(e).__name__)
        return
    for n in numbers:
        try:
            write_arrays(os.path.join(folder, f"out.{n}"), call(read_arrays(os.path.join(folder, f"in.{n}"))))
        except Exception as e:
            write_text(os.path.join(folder, f"err.{n}"), str(e) or type(e).__name__)


if __name__ == "__main__":
    die_with_parent()
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
