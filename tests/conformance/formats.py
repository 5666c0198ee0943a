"""How each format makes a model of StableHLO text and runs it: one row a format.

export(text, **options) returns a model or raises aot.exporters.report.Refused; run(model, inputs) returns the results in
the types of the program (a format without complex numbers puts them together again).
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.conformance.reference import run_xla

Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class Format:
    export: Callable[..., Any]
    run: Callable[[Any, Arrays], list[np.ndarray]]


def export_tflite(text: str, **options: Any) -> Any:
    from aot.exporters import tflite
    return tflite.export(text, **options)


def run_tflite(model: Any, inputs: Arrays) -> list[np.ndarray]:
    from aot.exporters.tflite.run import run
    return run(model, inputs)


def export_onnx(text: str, **options: Any) -> Any:
    from aot.exporters import onnx
    return onnx.export(text, **options)


def run_onnx(model: Any, inputs: Arrays) -> list[np.ndarray]:
    from aot.exporters.onnx.run import run
    return run(model, inputs)


def export_c(text: str, **options: Any) -> Any:
    from aot.exporters import c
    return c.export(text, **options)


def run_c(model: Any, inputs: Arrays) -> list[np.ndarray]:
    from aot.exporters.c.run import run
    return run(model, inputs)


FORMATS = {
    "xla": Format(lambda text: text, run_xla),      # checks the programs and the harness itself
    "onnx": Format(export_onnx, run_onnx),
    "tflite": Format(export_tflite, run_tflite),
    "c": Format(export_c, run_c),
}
