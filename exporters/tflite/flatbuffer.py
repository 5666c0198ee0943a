"""TFLite files: subgraphs, buffers and signatures -> the bytes of a flatbuffer.

Buffers are aligned to 16 bytes.  A model of more than 2 GB, the limit of flatbuffers, keeps its buffers behind the
flatbuffer, at offsets that the buffer table holds.
"""
from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aot.errors import AotError

ALIGNMENT = 16
INLINE_LIMIT = 1_900_000_000
SMALLEST_HALF = 256                    # elements; smaller constants stay as they are

#: numpy dtype name -> TensorType
TENSOR_TYPES = {"bool": "BOOL", "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64", "uint8": "UINT8",
                "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "float16": "FLOAT16", "bfloat16": "BFLOAT16",
                "float32": "FLOAT32", "float64": "FLOAT64"}


def schema() -> Any:
    """The generated classes of the TFLite schema.  Raises AotError where the optional package is absent."""
    try:
        from ai_edge_litert import schema_py_generated
    except ImportError:
        raise AotError("writing TFLite models needs the package ai-edge-litert",
                       hint="pip install 'aotc[tflite]'") from None
    return schema_py_generated


@dataclass
class Subgraph:
    """tensors: rows of `tensor`; operators: rows of `operator`; inputs, outputs: indices of tensors."""
    name: str
    tensors: list[Any] = field(default_factory=list)
    operators: list[Any] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)


class Model:
    """The tables that all subgraphs share: buffers (equal ones once), operator codes, subgraphs.

    half_weights: store large constants of float32 in half precision.
    """

    def __init__(self, half_weights: bool = False) -> None:
        self.s, self.half_weights = schema(), half_weights
        self.buffers: list[np.ndarray | None] = [None]        # buffer 0: tensors without data
        self.subgraphs: list[Subgraph] = []
        self.codes: list[tuple[str, int]] = []
        self._known: dict[bytes, int] = {}
        self._code_index: dict[tuple[str, int], int] = {}

    def subgraph(self, name: str) -> tuple[int, Subgraph]:
        made = Subgraph(name)
        self.subgraphs.append(made)
        return len(self.subgraphs) - 1, made

    def buffer(self, value: np.ndarray) -> int:
        """The index of a buffer with these bytes."""
        flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        key = hashlib.blake2b(flat.data, digest_size=16).digest() + flat.nbytes.to_bytes(8, "little")
        if key not in self._known:
            self._known[key] = len(self.buffers)
            self.buffers.append(flat)
        return self._known[key]

    def code(self, name: str, version: int) -> int:
        """The index of the code of a builtin operator."""
        key = (name, version)
        if key not in self._code_index:
            self._code_index[key] = len(self.codes)
            self.codes.append(key)
        return self._code_index[key]

    def tensor(self, name: str, shape: Sequence[int], dtype: np.dtype, buffer: int = 0, quantization: Any = None) -> Any:
        made = self.s.TensorT()
        made.name, made.shape, made.hasRank, made.buffer = name, np.array(shape, np.int32), True, buffer
        made.type = getattr(self.s.TensorType, TENSOR_TYPES[np.dtype(dtype).name])
        made.quantization = quantization
        return made

    def operator(self, name: str, version: int, inputs: Sequence[int], outputs: Sequence[int],
                 options: tuple[str, dict[str, Any]] | None) -> Any:
        made = self.s.OperatorT()
        made.opcodeIndex = self.code(name, version)
        made.inputs, made.outputs = np.array(inputs, np.int32), np.array(outputs, np.int32)
        if options is not None:
            self._set_options(made, *options)
        return made

    def _set_options(self, operator: Any, kind: str, fields: dict[str, Any]) -> None:
        filled = getattr(self.s, f"{kind}T")()
        for name, value in fields.items():
            setattr(filled, name, value)
        second = hasattr(self.s.BuiltinOptions2, kind)
        where = self.s.BuiltinOptions2 if second else self.s.BuiltinOptions
        suffix = "2" if second else ""
        setattr(operator, f"builtinOptions{suffix}Type", getattr(where, kind))
        setattr(operator, f"builtinOptions{suffix}", filled)

    # ---- writing ----
    def to_bytes(self, signature: Signature, metadata: dict[str, bytes] | None = None) -> bytes:
        """The file.  The same model gives the same bytes."""
        numbers = {name: self.buffer(np.frombuffer(data, np.uint8)) for name, data in (metadata or {}).items()}
        subgraphs = [_without_unused(g) for g in self.subgraphs]
        used = sorted({0, *numbers.values(), *(t.buffer for g in subgraphs for t in g.tensors)})
        buffers, place = [self.buffers[i] for i in used], {old: new for new, old in enumerate(used)}
        for t in (t for g in subgraphs for t in g.tensors):
            t.buffer = place[t.buffer]
        model = self._tables(subgraphs, signature, {name: place[i] for name, i in numbers.items()})
        if sum(b.nbytes for b in buffers if b is not None) < INLINE_LIMIT:
            model.buffers = [_Buffer(b) for b in buffers]
            return _pack(self.s, model)
        return self._with_offsets(model, buffers)

    def _with_offsets(self, model: Any, buffers: Sequence[np.ndarray | None]) -> bytes:
        """The buffers behind the flatbuffer; the first packing tells how long that is, whatever the offsets are."""
        sizes = [0 if b is None else b.nbytes for b in buffers]
        offsets = [1] * len(sizes)
        for _ in range(2):
            model.buffers = [_Buffer(None, offset, size) for offset, size in zip(offsets, sizes)]
            head = _pack(self.s, model)
            position = _aligned(len(head))
            offsets = []
            for size in sizes:
                offsets.append(position if size else 1)
                position = _aligned(position + size)
        out = bytearray(position)
        out[:len(head)] = head
        for b, offset in zip(buffers, offsets):
            if b is not None:
                out[offset:offset + b.nbytes] = b.data
        return bytes(out)

    def _tables(self, subgraphs: Sequence[Subgraph], signature: Signature, metadata: dict[str, int]) -> Any:
        s = self.s
        model = s.ModelT()
        model.version, model.description = 3, "aot"
        model.operatorCodes = [self._operator_code(*key) for key in self.codes]
        model.subgraphs = [self._subgraph(g) for g in subgraphs]
        model.signatureDefs = [self._signature(subgraphs[0], signature)]
        model.metadata = [self._metadata(name, buffer) for name, buffer in metadata.items()]
        return model

    def _operator_code(self, name: str, version: int) -> Any:
        made = self.s.OperatorCodeT()
        made.builtinCode = getattr(self.s.BuiltinOperator, name)
        made.deprecatedBuiltinCode = min(made.builtinCode, 127)
        made.version = version
        return made

    def _subgraph(self, g: Subgraph) -> Any:
        made = self.s.SubGraphT()
        made.name, made.tensors, made.operators = g.name, g.tensors, g.operators
        made.inputs, made.outputs = np.array(g.inputs, np.int32), np.array(g.outputs, np.int32)
        return made

    def _signature(self, main: Subgraph, signature: Signature) -> Any:
        made = self.s.SignatureDefT()
        made.signatureKey, made.subgraphIndex = signature.key, 0
        made.inputs = [self._tensor_map(*row) for row in zip(signature.inputs, main.inputs)]
        made.outputs = [self._tensor_map(*row) for row in zip(signature.outputs, main.outputs)]
        return made

    def _tensor_map(self, name: str, index: int) -> Any:
        made = self.s.TensorMapT()
        made.name, made.tensorIndex = name, index
        return made

    def _metadata(self, name: str, buffer: int) -> Any:
        made = self.s.MetadataT()
        made.name, made.buffer = name, buffer
        return made


def _without_unused(g: Subgraph) -> Subgraph:
    """A copy that has only the tensors which nodes, inputs and outputs name, numbered anew."""
    used = {*g.inputs, *g.outputs, *(int(i) for node in g.operators for i in (*node.inputs, *node.outputs))}
    number = {old: new for new, old in enumerate(sorted(used))}
    operators = [copy.copy(node) for node in g.operators]
    for node in operators:
        node.inputs, node.outputs = (np.array([number[int(i)] for i in row], np.int32) for row in (node.inputs, node.outputs))
    return Subgraph(g.name, [copy.copy(g.tensors[i]) for i in sorted(used)], operators, [number[i] for i in g.inputs],
                    [number[i] for i in g.outputs])


@dataclass(frozen=True)
class Signature:
    """The names under which callers give inputs and find outputs."""
    inputs: Sequence[str]
    outputs: Sequence[str]
    key: str = "serving_default"


@dataclass
class _Buffer:
    """A row of the buffer table; packs its data aligned, which the generated class does not."""
    data: np.ndarray | None
    offset: int = 0
    size: int = 0

    def Pack(self, builder: Any) -> int:
        s = schema()
        data = self._vector(builder) if self.data is not None else None
        s.BufferStart(builder)
        if data is not None:
            s.BufferAddData(builder, data)
        s.BufferAddOffset(builder, self.offset if self.size else 0)
        s.BufferAddSize(builder, self.size)
        return s.BufferEnd(builder)

    def _vector(self, builder: Any) -> int:
        n = self.data.nbytes
        builder.StartVector(1, n, ALIGNMENT)
        head = builder.Head() - n
        builder.head = head
        builder.Bytes[head:head + n] = self.data.tobytes()
        return builder.EndVector()


def fits_half(value: np.ndarray) -> bool:
    """Whether a constant is worth storing in half precision, and can be."""
    return value.dtype == np.float32 and value.size >= SMALLEST_HALF and any(value.strides) and \
        bool(np.all(np.abs(value) <= np.finfo(np.float16).max))


def _aligned(n: int) -> int: return -(-n // ALIGNMENT) * ALIGNMENT


def _pack(s: Any, model: Any) -> bytes:
    import flatbuffers
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())
