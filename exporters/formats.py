"""The formats: one row each, and the one way to write a file of any of them."""
from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aot.errors import AotError

from .source import Source


@dataclass(frozen=True)
class Format:
    """A format of files.

    module: has `export(program, *, input_names, output_names, metadata, **options)`, which returns an object with
    `save(path) -> files` or raises `report.Refused`, and optionally `KEEP` and `COMPOSITES` (see `stablehlo.read`); its
    submodule `run` has `open_file(path)`, which gives a function from the program's inputs to its results.
    options: those of `export`, with a word of help.  from_source: `export` takes the Source instead of its Program.
    runtime: the package that runs the files, "" for one that is always there; `missing` in `run` says what else is not there.
    """
    suffix: str
    module: str
    options: Mapping[str, str]
    from_source: bool = False
    runtime: str = ""

    def missing(self) -> str:
        """Why files of this format cannot be run here, "" where they can."""
        if self.runtime and importlib.util.find_spec(self.runtime) is None:
            return f"the package {self.runtime} is not installed"
        return getattr(self.load("run"), "missing", str)()

    def load(self, part: str = "") -> Any:
        """The module, or its submodule of this name."""
        return importlib.import_module(self.module + (f".{part}" if part else ""))


FORMATS = {
    "onnx": Format(".onnx", "aot.exporters.onnx", {"opset": "version of the operators, 18 to 28",
                                                    "dynamic_batch": "the source at another size of the first axes"},
                   runtime="onnxruntime"),
    "tflite": Format(".tflite", "aot.exporters.tflite", {"runtime": "the runtime to write for: current or 2.14",
                                                          "quantize": "float16 or int8",
                                                          "calibration": "for int8: lists of typical inputs"},
                     runtime="ai_edge_litert"),
    "c": Format(".c", "aot.exporters.c", {"weights": "where constants go: source or file"}),
    "stablehlo": Format(".mlirbc", "aot.exporters.portable", {"composites": "keep the names of functions of aot.nn"},
                        from_source=True),
}


def suffix(format: str) -> str:
    """How files of a format end.  Raises AotError for an unknown one."""
    return _row(format).suffix


def _row(format: str) -> Format:
    if format not in FORMATS:
        raise AotError(f"unknown format {format!r}", hint=f"choose one of: {', '.join(FORMATS)}")
    return FORMATS[format]


def of_path(path: str) -> str:
    """The format of a file, by its suffix.  Raises AotError."""
    for name, row in FORMATS.items():
        if path.endswith(row.suffix):
            return name
    raise AotError(f"{path}: no exported file", hint="files end with " + ", ".join(r.suffix for r in FORMATS.values()))


def export(source: Source, format: str, path: str | os.PathLike, **options: Any) -> tuple[Any, list[str]]:
    """Write a source to a file -> (what the format's `export` returned, the files that were written).

    Raises Refused with all that the format cannot express, AotError for an unknown format or option.
    """
    row = _row(format)
    for name in options:
        if name not in row.options:
            raise AotError(f"{format} has no option {name!r}",
                           hint=f"it has: {', '.join(row.options)}" if row.options else "it has none")
    module = row.load()
    program = source if row.from_source else source.program(getattr(module, "KEEP", ()), getattr(module, "COMPOSITES", ()))
    made = module.export(program, input_names=source.inputs or None, output_names=source.outputs or None,
                         metadata={"function": source.name}, **options)
    return made, made.save(os.fspath(path))
