"""The driver: a StableHLO program -> the bytes of a TFLite model."""
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aot.exporters import stablehlo
from aot.exporters.names import Names, one_each
from aot.exporters.report import Report
from aot.files import replacing

from . import quantize as quantization
from . import (  # noqa: F401  each registers rows
    rows_composites,
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
from .kernels import NoKernel, Profile, profile
from .lowering import Lowering, check_type
from .rows_composites import COMPOSITES

Named = tuple[str, tuple[str, ...]]           # a name in the program, and the names in the model
#: operations of the dialect chlo that have rows
KEEP = ("chlo.top_k",)


@dataclass(frozen=True)
class Exported:
    """A model, and how its arrays relate to those of the program.

    inputs, outputs: the names of the model's arrays for each argument and result; a complex one has two, its real and its
    imaginary part.  renamed: program name -> names in the model, where they differ.  verification, sample: how a quantized
    model is to be compared with XLA (options of `verify`), and inputs to do it on.
    """
    data: bytes
    inputs: list[tuple[str, ...]]
    outputs: list[tuple[str, ...]]
    input_types: list[stablehlo.Type] = field(default_factory=list)
    output_types: list[stablehlo.Type] = field(default_factory=list)
    renamed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    verification: Mapping[str, Any] = field(default_factory=dict)
    sample: Sequence[np.ndarray] = ()

    def save(self, path: str | os.PathLike) -> list[str]:
        """Write the model -> the files."""
        with replacing(os.fspath(path)) as f:
            f.write(self.data)
        return [os.fspath(path)]


def export(source: Any, *, runtime: str = "current", input_names: Sequence[str] | None = None,
           output_names: Sequence[str] | None = None, metadata: Mapping[str, str] | None = None,
           quantize: str | None = None, calibration: Any = ()) -> Exported:
    """A StableHLO program (what `stablehlo.read` takes, or a Program) as a TFLite model.

    runtime: a row of `kernels.PROFILES`.  quantize: "float16" or "int8", see quantize.py; calibration: for int8, lists of
    inputs or a file, see `quantize.samples`.  Names default to those in the program, then to `input_0` and `output_0`.
    Raises Refused with everything that the runtime cannot do, AotError where the source is no program.
    """
    quantization.check(quantize, calibration)
    graph, names = Math(Model(quantize == "float16"), profile(runtime)), Names()
    program = stablehlo.read(source, keep=KEEP, composites=COMPOSITES)
    stablehlo.simplify(stablehlo.resolve(program, rows_composites.rules(graph.profile)))
    _check_types(program, graph.profile)
    inputs = _named(names, "input", input_names or program.argument_names, program.input_types)
    outputs = _named(names, "output", output_names or program.result_names, program.output_types)
    signature = Signature([n for _, pair in inputs for n in pair], [n for _, pair in outputs for n in pair])
    _lower(program, graph, inputs, signature.outputs)
    described = {k: v.encode() for k, v in sorted((metadata or {}).items())}
    data, sample = graph.model.to_bytes(signature, described), ()
    if quantize == "int8":
        wanted = [w or pair[0] for w, pair in inputs]
        given = quantization.samples(calibration, wanted, [t.shape for t in program.input_types])
        data, sample = _quantized(graph, signature, described, data, given), given[0]
    renamed = {w: pair for w, pair in [*inputs, *outputs] if w and pair != (w,)}
    return Exported(data, [n for _, n in inputs], [n for _, n in outputs], program.input_types, program.output_types, renamed,
                    quantization.VERIFICATION[quantize], sample)


def _named(names: Names, kind: str, wanted: Sequence[str], types: Sequence[stablehlo.Type]) -> list[Named]:
    """(name in the program, names in the model) of each input or output."""
    return [(w, names(w, f"{kind}_{i}", t)) for i, (w, t) in enumerate(zip(one_each(kind, wanted, len(types)), types))]


def _lower(program: stablehlo.Program, graph: Math, inputs: Sequence[Named], outputs: Sequence[str]) -> None:
    """Write the program to the graph.  Raises Refused."""
    report = Report("tflite")
    args = [_argument(graph, t, pair) for t, (_, pair) in zip(program.input_types, inputs)]
    results = Lowering(graph, report).block(program.body, args)
    report.raise_if_any()
    shaped = [graph.broadcast(t, v.shape) for value, v in zip(results, program.body.outputs) for t in parts(value)]
    graph.finish(shaped, outputs)


def _quantized(graph: Math, signature: Signature, metadata: dict[str, bytes], data: bytes,
               given: Sequence[Sequence[np.ndarray]]) -> bytes:
    """The model with products in 8-bit integers, for ranges that the float model has on these inputs."""
    flat = [[p for x in sample for p in ((x.real, x.imag) if x.dtype.kind == "c" else (x,))] for sample in given]
    quantization.apply(graph, quantization.ranges(data, quantization.observed(graph), signature.inputs, flat))
    return graph.model.to_bytes(signature, metadata)


def _check_types(program: stablehlo.Program, profile: Profile) -> None:
    """Raises Refused for inputs and outputs that no tensor of the runtime can be."""
    report = Report("tflite")
    for kind, types in (("input", program.input_types), ("output", program.output_types)):
        for i, type in enumerate(types):
            try:
                check_type(type, profile)
            except NoKernel as e:
                report.add(f"{kind} {i}", str(type), why=str(e), hint=e.hint)
    report.raise_if_any()


def _argument(graph: Math, type: stablehlo.Type, names: tuple[str, ...]) -> Any:
    part = PARTS.get(type.dtype, type.dtype)
    made = [graph.input(type.shape, np.dtype(part), n) for n in names]
    return Complex(*made) if len(made) == 2 else made[0]
