"""The driver: a StableHLO program -> the bytes of a TFLite model."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aot.exporters import stablehlo
from aot.exporters.report import Report

from . import (  # noqa: F401  each registers rows
    rows_contraction,
    rows_control,
    rows_elementwise,
    rows_indexing,
    rows_linalg,
    rows_reduction,
    rows_shapes,
    rows_sort,
)
from .complex_numbers import PARTS, Complex, Math, parts
from .flatbuffer import Model, Signature
from .kernels import NoKernel, profile
from .lowering import Lowering, check_type


@dataclass(frozen=True)
class Exported:
    """A model, and how its arrays relate to those of the program.

    inputs, outputs: the names of the model's arrays for each argument and result; a complex one has two, its real and its
    imaginary part.
    """
    data: bytes
    inputs: list[tuple[str, ...]]
    outputs: list[tuple[str, ...]]
    input_types: list[stablehlo.Type] = field(default_factory=list)
    output_types: list[stablehlo.Type] = field(default_factory=list)


def export(source: Any, *, runtime: str = "current", input_names: Sequence[str] | None = None,
           output_names: Sequence[str] | None = None, metadata: dict[str, str] | None = None) -> Exported:
    """A StableHLO program (see `stablehlo.read`) as a TFLite model.

    runtime: a row of `kernels.PROFILES`.  Names default to those in the program, then to `arg0` and `result0`.
    Raises Refused, with everything that the runtime cannot do, and AotError where the source is no program.
    """
    program = stablehlo.simplify(stablehlo.read(source))
    report = Report("tflite")
    graph = Math(Model(), profile(runtime))
    inputs = _names(input_names or program.argument_names, program.input_types, "arg")
    outputs = _names(output_names or program.result_names, program.output_types, "result")
    for kind, types in (("argument", program.input_types), ("result", program.output_types)):
        _check_types(report, kind, types)
    report.raise_if_any()
    args = [_argument(graph, *pair) for pair in zip(program.input_types, inputs)]
    results = Lowering(graph, report).block(program.body, args)
    report.raise_if_any()
    flat = [graph.broadcast(t, type.shape) for value, type in zip(results, program.output_types) for t in parts(value)]
    graph.finish(flat, [n for names in outputs for n in names])
    signature = Signature([n for names in inputs for n in names], [n for names in outputs for n in names])
    data = graph.model.to_bytes(signature, {k: v.encode() for k, v in (metadata or {}).items()})
    return Exported(data, inputs, outputs, program.input_types, program.output_types)


def _check_types(report: Report, kind: str, types: Sequence[stablehlo.Type]) -> None:
    for i, type in enumerate(types):
        try:
            check_type(type)
        except NoKernel as e:
            report.add(f"{kind} {i}", str(type), why=str(e), hint=e.hint)


def _names(given: Sequence[str], types: Sequence[stablehlo.Type], prefix: str) -> list[tuple[str, ...]]:
    """Distinct names, two for a complex value."""
    taken: dict[str, int] = {}
    names = []
    for i, type in enumerate(types):
        name = (given[i] if i < len(given) else "") or f"{prefix}{i}"
        taken[name] = taken.get(name, 0) + 1
        name = name if taken[name] == 1 else f"{name}_{taken[name] - 1}"
        names.append((f"{name}.real", f"{name}.imag") if type.dtype in PARTS else (name,))
    return names


def _argument(graph: Math, type: stablehlo.Type, names: tuple[str, ...]) -> Any:
    part = PARTS.get(type.dtype, type.dtype)
    made = [graph.input(type.shape, np.dtype(part), n) for n in names]
    return Complex(*made) if len(made) == 2 else made[0]
