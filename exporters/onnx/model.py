"""From a program to an ONNX model: names, inputs, outputs, metadata, external data."""
from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aot import __version__
from aot.errors import AotError
from aot.exporters import stablehlo
from aot.exporters.report import Report

from .control import flat, named
from .graph import ELEMENTS, Graph, Tensor
from .lowering import Lowering, Pair

DEFAULT_OPSET, MIN_OPSET, MAX_OPSET = 21, 18, 28
#: operations of the dialect chlo that have rows; `NAME:TYPE` for one element type
KEEP = ("chlo.erf:f32", "chlo.erf:f16", "chlo.top_k")
EXTERNAL_LIMIT = 1 << 31          # a protobuf message holds less than 2 GiB
EXTERNAL_MIN = 1 << 10


@dataclass
class Exported:
    """A model and how its inputs and outputs are named.

    renamed: what has another name in the model than in the program, such as the parts of complex numbers.
    """
    model: Any
    inputs: list[str]
    outputs: list[str]
    renamed: dict[str, list[str]] = field(default_factory=dict)

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


def export(program: stablehlo.Program, *, opset: int = DEFAULT_OPSET, input_names: Sequence[str] = (),
           output_names: Sequence[str] = (), weights: Mapping[int, tuple[str, np.ndarray]] | None = None,
           metadata: Mapping[str, str] | None = None) -> Exported:
    """The ONNX model of a program that was read with `keep=KEEP`.

    weights: argument number -> (name, array) for arguments that become initializers.  Names of inputs and outputs are
    those given, or the program's own.  Raises Refused with everything that cannot be expressed.
    """
    require_onnx()
    if not MIN_OPSET <= opset <= MAX_OPSET:
        raise AotError(f"ONNX opset {opset} is not supported", hint=f"use an opset from {MIN_OPSET} to {MAX_OPSET}")
    from . import rows  # noqa: F401  fills the tables
    stablehlo.simplify(program)
    g, report = Graph(opset), Report("onnx")
    c = Lowering(g, report)
    c.partitions = program.partitions
    names = Names()
    inputs, renamed = _inputs(c, program, names, input_names, weights or {})
    found = c.inline(program.body, [c.env[v] for v in program.body.args])
    report.raise_if_any()
    outputs, more = _outputs(c, program, names, output_names, found)
    return Exported(_model(g, program.name, inputs, outputs, metadata or {}), [t.name or "" for t in inputs],
                    [t.name or "" for t in outputs], renamed | more)


class Names:
    """Names of inputs and outputs: `params['w'][0]` becomes `params.w.0`; each is used once."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    def __call__(self, wanted: str, default: str) -> str:
        name = re.sub(r"[^\w.]+", ".", wanted.replace("'", "").replace('"', "")).strip(".") or default
        unique, n = name, 1
        while unique in self.used or re.fullmatch(r"[a-z]+\d+", unique) and not wanted and unique != default:
            unique, n = f"{name}_{n}", n + 1
        self.used.add(unique)
        return unique


def _inputs(c: Lowering, program: stablehlo.Program, names: Names, given: Sequence[str],
            weights: Mapping[int, tuple[str, np.ndarray]]) -> tuple[list[Tensor], dict[str, list[str]]]:
    inputs, renamed, position = [], {}, 0
    for i, v in enumerate(program.body.args):
        if i in weights:
            name, array = weights[i]
            c.env[v] = c.constant(np.asarray(array))
            continue
        wanted = given[position] if position < len(given) else program.argument_names[i]
        value = c.env[v] = c.given(v.type, names(wanted, f"input_{position}"))
        position += 1
        inputs += flat([value])
        if isinstance(value, Pair) or wanted and flat([value])[0].name != wanted:
            renamed[wanted or f"input_{position - 1}"] = [t.name for t in flat([value])]
    return inputs, renamed


def _outputs(c: Lowering, program: stablehlo.Program, names: Names, given: Sequence[str],
             found: Sequence[Any]) -> tuple[list[Tensor], dict[str, list[str]]]:
    outputs, renamed = [], {}
    for i, value in enumerate(found):
        wanted = given[i] if i < len(given) else program.result_names[i]
        base = names(wanted, f"output_{i}")
        parts = flat([value])
        final = [base] if len(parts) == 1 else [f"{base}.real", f"{base}.imag"]
        for t, name in zip(parts, final):
            made = named(c.g, t)
            c.g.nodes[-1].output[0] = made.name = name
            outputs.append(made)
        if len(parts) > 1 or wanted and base != wanted:
            renamed[wanted or f"output_{i}"] = final
    return outputs, renamed


def _model(g: Graph, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], metadata: Mapping[str, str]) -> Any:
    from onnx import helper
    graph = g.graph_proto(name or "main", g.nodes, inputs, outputs)
    graph.initializer.extend(tensor_proto(key, array) for key, array in g.initializers.items())
    opset = helper.make_opsetid("", g.opset)
    model = helper.make_model_gen_version(graph, opset_imports=[opset], producer_name="aotc", producer_version=__version__)
    model.ir_version = min(model.ir_version, _ir_version(g.opset))
    helper.set_model_props(model, dict(sorted(metadata.items())))
    return model


def _ir_version(opset: int) -> int:
    from onnx import helper
    return helper.find_min_ir_version_for([helper.make_opsetid("", opset)], ignore_unknown=True)


def tensor_proto(name: str, array: np.ndarray) -> Any:
    """An initializer with raw data, little-endian; types of less than a byte are packed, the first one lowest."""
    from onnx import TensorProto
    proto = TensorProto(name=name, data_type=ELEMENTS[array.dtype.name], dims=list(array.shape))
    proto.raw_data = raw_bytes(array)
    return proto


def raw_bytes(array: np.ndarray) -> bytes:
    """The elements as ONNX stores them."""
    bits = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}.get(array.dtype.name)
    if bits is None:
        return np.ascontiguousarray(array).tobytes()
    per = 8 // bits
    nibbles = np.ascontiguousarray(array).reshape(-1).view(np.uint8) & ((1 << bits) - 1)
    padded = np.concatenate([nibbles, np.zeros(-len(nibbles) % per, np.uint8)]).reshape(-1, per)
    shifted = padded << (np.arange(per, dtype=np.uint8) * bits)
    return np.bitwise_or.reduce(shifted, axis=1).astype(np.uint8).tobytes()


def save(exported: Exported, path: str, limit: int = EXTERNAL_LIMIT) -> list[str]:
    """Write a model atomically; arrays go to PATH.data when the whole would have `limit` bytes or more."""
    from aot.files import replacing
    model, files = exported.model, [path]
    total = sum(len(t.raw_data) for t in model.graph.initializer)
    if total >= limit - (1 << 24):
        files.append(path + ".data")
        with replacing(files[1]) as f:
            _externalise(model, f, os.path.basename(files[1]))
    with replacing(path) as f:
        f.write(model.SerializeToString(deterministic=True))
    return files


def _externalise(model: Any, f: Any, location: str) -> None:
    from onnx import StringStringEntryProto, TensorProto
    at = 0
    for t in model.graph.initializer:
        if len(t.raw_data) < EXTERNAL_MIN:
            continue
        pad = -at % 4096
        f.write(bytes(pad))
        at += pad
        f.write(t.raw_data)
        entries = {"location": location, "offset": str(at), "length": str(len(t.raw_data))}
        at += len(t.raw_data)
        t.ClearField("raw_data")
        t.data_location = TensorProto.EXTERNAL
        t.external_data.extend(StringStringEntryProto(key=k, value=v) for k, v in entries.items())
