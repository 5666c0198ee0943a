"""From a program to an ONNX model: names, inputs, outputs, metadata, external data."""
from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aot import __version__
from aot.errors import AotError
from aot.exporters import stablehlo
from aot.exporters.names import Names, one_each
from aot.exporters.report import Report

from .composites import COMPOSITES, rules
from .control import flat
from .graph import ELEMENTS, NARROW, Graph, Inexpressible, Tensor
from .lowering import Lowering, part_dtype
from .recognise import recognise

DEFAULT_OPSET, MIN_OPSET, MAX_OPSET = 21, 18, 28
#: operations of the dialect chlo that have rows; `NAME:TYPE` for one element type
KEEP = ("chlo.erf:f32", "chlo.erf:f16", "chlo.erfc:f32", "chlo.erfc:f16", "chlo.top_k")
EXTERNAL_LIMIT = 1 << 31          # a protobuf message holds less than 2 GiB
EXTERNAL_SLACK = 1 << 24          # for everything but arrays
EXTERNAL_MIN = 1 << 10


@dataclass
class Exported:
    """A model, and how its arrays relate to those of the program.

    model: a ModelProto.  inputs, outputs: the names of the model's arrays for each argument and result; a complex one has
    two, its real and its imaginary part.  renamed: program name -> names in the model, where they differ.  notes: where the
    model differs from the program for some inputs.  arrays: of initializers that are too large for the message together.
    """
    model: Any
    inputs: list[tuple[str, ...]]
    outputs: list[tuple[str, ...]]
    input_types: list[stablehlo.Type] = field(default_factory=list)
    output_types: list[stablehlo.Type] = field(default_factory=list)
    renamed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        """The serialized model; equal programs give equal bytes.  Raises AotError above 2 GB."""
        if self.arrays:
            raise AotError("a model above 2 GB is no single message", hint="save it to a file")
        return self.model.SerializeToString(deterministic=True)

    def save(self, path: str | os.PathLike) -> list[str]:
        """Write the model, its arrays next to it where they exceed what one file can hold -> the files."""
        return save(self, os.fspath(path))


def require_onnx() -> Any:
    """The package onnx.  Raises AotError where the extra is not installed."""
    try:
        import onnx
    except ImportError:
        raise AotError("writing ONNX models needs the package onnx", hint="pip install 'aotc[onnx]'") from None
    return onnx


def export(source: Any, *, opset: int = DEFAULT_OPSET, input_names: Sequence[str] | None = None,
           output_names: Sequence[str] | None = None, metadata: Mapping[str, str] | None = None,
           dynamic_batch: Callable[[int], Any] | None = None) -> Exported:
    """A StableHLO program (what `stablehlo.read` takes; a Program was best read with KEEP and COMPOSITES) as an ONNX model.

    Constants that `stablehlo.bind` made become initializers under their names.
    Names default to those in the program, then to `input_0` and `output_0`.
    dynamic_batch: makes the same program (a `source.Source`) for another size of the first axis; the model then takes any.
    Raises Refused with everything that ONNX cannot express, AotError where the source is no program.
    """
    require_onnx()
    if not MIN_OPSET <= opset <= MAX_OPSET:
        raise AotError(f"ONNX opset {opset} is not supported", hint=f"use an opset from {MIN_OPSET} to {MAX_OPSET}")
    from . import rows  # noqa: F401  fills the tables
    if dynamic_batch is not None:
        from .dynamic import unify
        return unify(lambda n: export(dynamic_batch(n).program(KEEP, COMPOSITES), opset=opset, input_names=input_names,
                                      output_names=output_names, metadata=metadata))
    program = stablehlo.read(source, keep=KEEP, composites=COMPOSITES)
    recognise(stablehlo.simplify(stablehlo.resolve(program, rules(opset))), opset)
    g, report = Graph(opset), Report("onnx")
    c = Lowering(g, report)
    c.partitions = program.partitions
    arguments, names = program.body.args, Names(op.attrs["name"] for op in program.body.ops if "name" in op.attrs)
    wanted = one_each("input", input_names or program.argument_names, len(arguments))
    inputs = [names(w, f"input_{i}", v.type) for i, (w, v) in enumerate(zip(wanted, arguments))]
    c.env.update(zip(arguments, (c.given(v.type, n) for v, n in zip(arguments, inputs))))
    _check_types(g, report, "argument", arguments)
    _check_types(g, report, "result", program.body.outputs)
    report.raise_if_any()
    found = c.inline(program.body, [c.env[v] for v in program.body.args])
    report.raise_if_any()
    results = one_each("output", output_names or program.result_names, len(program.body.outputs))
    outputs = [names(w, f"output_{i}", v.type) for i, (w, v) in enumerate(zip(results, program.body.outputs))]
    model = _model(g, program, [t for v in arguments for t in flat([c.env[v]])], _named(g, found, outputs), metadata or {})
    return Exported(model, inputs, outputs, [v.type for v in arguments], program.output_types,
                    {w: n for w, n in zip([*wanted, *results], [*inputs, *outputs]) if w and n != (w,)}, list(g.notes),
                    {t.name: g.initializers[t.name] for t in model.graph.initializer if t.data_location})


def _check_types(g: Graph, report: Report, kind: str, values: Sequence[stablehlo.Value]) -> None:
    """Report inputs or outputs that a model cannot have."""
    for i, v in enumerate(values):
        try:
            g.require_type(part_dtype(v.dtype) if v.dtype.kind == "c" else v.dtype)
            if not v.type.is_static:
                raise Inexpressible("its size is not known", "give static shapes; --dynamic-batch makes the first variable")
        except Inexpressible as e:
            report.add(f"{kind} {i}", str(v.type), why=e.why, hint=e.hint)


def _named(g: Graph, values: Sequence[Any], names: Sequence[tuple[str, ...]]) -> list[Tensor]:
    """The outputs of the model: nodes of their own, under these names."""
    found = []
    for t, name in zip(flat(values), [n for pair in names for n in pair], strict=True):
        made = Tensor(name, t.shape, t.dtype)
        g.node("Identity", [g.ref(g.full(t))], [name])
        found.append(made)
    return found


def _model(g: Graph, program: stablehlo.Program, inputs: Sequence[Tensor], outputs: Sequence[Tensor],
           metadata: Mapping[str, str]) -> Any:
    from onnx import helper
    graph = g.graph_proto(program.name or "main", g.nodes, inputs, outputs)
    apart = sum(array.nbytes for array in g.initializers.values()) >= EXTERNAL_LIMIT - EXTERNAL_SLACK
    for key, array in g.initializers.items():
        fill(graph.initializer.add(), key, array, apart and array.nbytes >= EXTERNAL_MIN)
    opset = helper.make_opsetid("", g.opset)
    model = helper.make_model_gen_version(graph, opset_imports=[opset], producer_name="aotc", producer_version=__version__)
    model.ir_version = _ir_version(g.opset)
    helper.set_model_props(model, dict(sorted(metadata.items())))
    return model


def _ir_version(opset: int) -> int:
    from onnx import helper
    return helper.find_min_ir_version_for([helper.make_opsetid("", opset)], ignore_unknown=True)


def tensor_proto(name: str, array: np.ndarray) -> Any:
    """An initializer with its elements."""
    from onnx import TensorProto
    proto = TensorProto()
    fill(proto, name, array, False)
    return proto


def fill(proto: Any, name: str, array: np.ndarray, apart: bool) -> None:
    """Name, type and shape of an initializer; its elements too, unless they are to lie in another file."""
    from onnx import TensorProto
    proto.name, proto.data_type = name, ELEMENTS[array.dtype.name]
    proto.dims.extend(array.shape)
    if apart:
        proto.data_location = TensorProto.EXTERNAL
    else:
        proto.raw_data = raw_bytes(array)


def raw_bytes(array: np.ndarray) -> bytes:
    """The elements as ONNX stores them."""
    bits = NARROW.get(array.dtype.name)
    if bits is None:
        return np.ascontiguousarray(array).tobytes()
    per = 8 // bits
    nibbles = np.ascontiguousarray(array).reshape(-1).view(np.uint8) & ((1 << bits) - 1)
    padded = np.concatenate([nibbles, np.zeros(-len(nibbles) % per, np.uint8)]).reshape(-1, per)
    shifted = padded << (np.arange(per, dtype=np.uint8) * bits)
    return np.bitwise_or.reduce(shifted, axis=1).astype(np.uint8).tobytes()


def save(exported: Exported, path: str, limit: int = EXTERNAL_LIMIT) -> list[str]:
    """Write a model atomically; arrays go to PATH.data when the whole would have `limit` bytes or more."""
    from onnx import TensorProto

    from aot.files import replacing
    model, files = exported.model, [path]
    apart = [t for t in model.graph.initializer if t.data_location == TensorProto.EXTERNAL]
    if not apart and sum(len(t.raw_data) for t in model.graph.initializer) >= limit - EXTERNAL_SLACK:
        apart = [t for t in model.graph.initializer if len(t.raw_data) >= EXTERNAL_MIN]
    if apart:
        files.append(path + ".data")
        with replacing(files[1]) as f:
            _write_apart(apart, exported.arrays, f, os.path.basename(files[1]))
    with replacing(path) as f:
        f.write(model.SerializeToString(deterministic=True))
    return files


def _write_apart(initializers: Sequence[Any], arrays: Mapping[str, np.ndarray], f: Any, location: str) -> None:
    """Write the elements of initializers to a file, page by page, and say in each where they are."""
    from onnx import StringStringEntryProto, TensorProto
    at = 0
    for t in initializers:
        data = raw_bytes(arrays[t.name]) if t.name in arrays else t.raw_data
        pad = -at % 4096
        f.write(bytes(pad))
        f.write(data)
        at += pad
        entries = {"location": location, "offset": str(at), "length": str(len(data))}
        at += len(data)
        t.ClearField("raw_data")
        del t.external_data[:]
        t.data_location = TensorProto.EXTERNAL
        t.external_data.extend(StringStringEntryProto(key=k, value=v) for k, v in entries.items())
