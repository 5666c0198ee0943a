"""One subgraph under construction: tensors, constants that are written when first used, and checked nodes."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .flatbuffer import Model, fits_half
from .kernels import DATA_OPERAND, Profile

Options = tuple[str, dict[str, Any]]

#: operators whose node carries options: name of the options, defaults
OPTIONS = {
    "ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions", "DIV": "DivOptions", "CONCATENATION": "ConcatenationOptions",
    "RESHAPE": "ReshapeOptions", "BATCH_MATMUL": "BatchMatMulOptions", "FULLY_CONNECTED": "FullyConnectedOptions",
    "SUM": "ReducerOptions", "REDUCE_PROD": "ReducerOptions", "REDUCE_MAX": "ReducerOptions", "REDUCE_MIN": "ReducerOptions",
    "REDUCE_ANY": "ReducerOptions", "REDUCE_ALL": "ReducerOptions", "GATHER": "GatherOptions",
    "STRIDED_SLICE": "StridedSliceOptions", "CUMSUM": "CumsumOptions", "TOPK_V2": "TopKV2Options",
    "SOFTMAX": "SoftmaxOptions", "LOG_SOFTMAX": "LogSoftmaxOptions", "GELU": "GeluOptions", "LEAKY_RELU": "LeakyReluOptions",
    "HARD_SWISH": "HardSwishOptions",
}


#: operators on constants alone: their result is a constant.  The runtime computes some of them before it runs, in memory
#: that a nested subgraph no longer has when it is prepared again.
FOLDED: dict[str, Callable[..., np.ndarray]] = {
    "ADD": np.add, "SUB": np.subtract, "MUL": np.multiply, "STABLEHLO_ADD": np.add, "STABLEHLO_MULTIPLY": np.multiply,
    "NEG": np.negative, "ABS": np.abs, "STABLEHLO_AND": np.bitwise_and, "BITWISE_XOR": np.bitwise_xor,
    "RIGHT_SHIFT": np.right_shift, "STABLEHLO_SHIFT_LEFT": np.left_shift, "SELECT_V2": np.where,
    "EQUAL": np.equal, "NOT_EQUAL": np.not_equal, "LESS": np.less, "LESS_EQUAL": np.less_equal, "GREATER": np.greater,
    "GREATER_EQUAL": np.greater_equal, "LOGICAL_AND": np.logical_and, "LOGICAL_OR": np.logical_or,
    "LOGICAL_NOT": np.logical_not, "RESHAPE": lambda x, shape: x.reshape(shape), "BROADCAST_TO": np.broadcast_to,
    "TRANSPOSE": np.transpose, "CONCATENATION": lambda *xs, axis: np.concatenate(xs, axis),
    "GATHER": lambda x, i, axis: np.take(x, i, axis),
}

#: operators whose result is the memory of their operand
VIEWS = ("RESHAPE", "BITCAST")


#: elements of a constant that repeats a smaller one; larger ones are repeated when the model runs
LARGEST_REPEATED = 1024


def _repeated(value: np.ndarray) -> bool:
    return any(s == 0 and n > 1 for s, n in zip(value.strides, value.shape))


class Tensor:
    """A value in a subgraph.

    value: the array of a constant; index: its place in the subgraph, None until it is used; view: for a result that shares
    the memory of another tensor, the operator, its operands and options; repeats: what a broadcast repeats, with sizes of 1.
    """
    __slots__ = ("shape", "dtype", "value", "index", "view", "repeats")

    def __init__(self, shape: Sequence[int], dtype: Any, value: np.ndarray | None = None, index: int | None = None):
        self.shape, self.dtype, self.value, self.index = tuple(shape), np.dtype(dtype), value, index
        self.view: tuple[str, list[Tensor], Any] | None = None
        self.repeats: Tensor | None = None

    @property
    def rank(self) -> int: return len(self.shape)

    @property
    def size(self) -> int: return math.prod(self.shape)

    def __repr__(self) -> str: return f"<{'constant' if self.value is not None else self.index} {self.dtype}{list(self.shape)}>"


class Graph:
    """Nodes and tensors of one subgraph; `Lowering` and the layers of arithmetic build on it."""

    def __init__(self, model: Model, profile: Profile, name: str = "main"):
        self.model, self.profile = model, profile
        self.number, self.subgraph = model.subgraph(name)
        self._constants: dict[Any, int] = {}
        self._kept: list[np.ndarray] = []          # arrays whose identity is a key

    def nested(self, name: str) -> Any:
        """A new subgraph of the same model."""
        return type(self)(self.model, self.profile, f"{name}_{len(self.model.subgraphs)}")

    # ---- tensors ----
    def _new(self, shape: Sequence[int], dtype: Any, buffer: int = 0, name: str = "") -> int:
        tensors = self.subgraph.tensors
        tensors.append(self.model.tensor(name or f"t{len(tensors)}", shape, dtype, buffer))
        return len(tensors) - 1

    def input(self, shape: Sequence[int], dtype: Any, name: str = "") -> Tensor:
        index = self._new(shape, dtype, name=name)
        self.subgraph.inputs.append(index)
        return Tensor(shape, dtype, index=index)

    def const(self, value: Any, dtype: Any = None) -> Tensor:
        array = np.asarray(value, dtype)
        return Tensor(array.shape, array.dtype, array)

    def place(self, t: Tensor) -> int:
        """The index of a tensor; writes a constant at its first use."""
        if t.value is None:
            assert t.index is not None
            return t.index
        if t.size > LARGEST_REPEATED and _repeated(t.value):
            return self._broadcast_constant(t)
        value = np.ascontiguousarray(t.value).reshape(t.shape)
        half = self.model.half_weights and fits_half(t.value)
        buffer = self.model.buffer(value.astype(np.float16) if half else value) if value.size else 0
        key = (t.shape, t.dtype, buffer)
        if key not in self._constants:
            self._constants[key] = self._new(t.shape, np.float16 if half else t.dtype, buffer)
            if half:
                stored = Tensor(t.shape, np.float16, index=self._constants[key])
                widened = self.nodes("DEQUANTIZE", [stored], [(t.shape, np.float32)])[0]
                assert widened.index is not None
                self._constants[key] = widened.index
        return self._constants[key]

    def _broadcast_constant(self, t: Tensor) -> int:
        """A large constant that repeats a smaller one, which is what the file holds."""
        assert t.value is not None
        key = (t.shape, t.dtype, id(t.value))
        if key not in self._constants:
            small = t.value[tuple(slice(0, 1) if s == 0 else slice(None) for s in t.value.strides)]
            shape = self.const(np.array(t.shape, np.int32))
            made = self.nodes("BROADCAST_TO", [self.const(np.ascontiguousarray(small)), shape], [(t.shape, t.dtype)])[0]
            assert made.index is not None
            self._constants[key] = made.index
            self._kept.append(t.value)
        return self._constants[key]

    # ---- nodes ----
    def nodes(self, operator: str, inputs: Sequence[Tensor], outputs: Sequence[tuple[Sequence[int], Any]],
              options: Options | None = None) -> list[Tensor]:
        """Append a node -> its results.  Raises NoKernel where the runtime does not have it."""
        self.profile.check(operator, inputs[DATA_OPERAND.get(operator, 0)].dtype)
        if options is None and operator in OPTIONS:
            options = (OPTIONS[operator], {})
        if operator in VIEWS:
            inputs = [self._own_view(inputs[0]), *inputs[1:]]
        made = [Tensor(shape, dtype, index=self._new(shape, dtype)) for shape, dtype in outputs]
        self.subgraph.operators.append(self.model.operator(
            operator, self.profile.versions.get(operator, 1), [self.place(t) for t in inputs],
            [t.index for t in made if t.index is not None], options))
        if operator in VIEWS:
            made[0].view = (operator, list(inputs), options)
        return made

    def _own_view(self, t: Tensor) -> Tensor:
        """A view of a view goes through a view of its own.

        The runtime lets an operator overwrite its operand if neither the operand nor the tensor that owns the memory has
        another reader; readers of a view between the two are forgotten.
        """
        if t.view is None:
            return t
        operator, inputs, options = t.view
        return self.nodes(operator, inputs, [(t.shape, t.dtype)], options)[0]

    def node(self, operator: str, inputs: Sequence[Tensor], shape: Sequence[int], dtype: Any = None, **fields: Any) -> Tensor:
        """A node with one result, of the type of the first input unless given.  fields: of its options.

        A result without elements needs no node.
        """
        dtype = inputs[0].dtype if dtype is None else np.dtype(dtype)
        if 0 in shape:
            return self.const(np.zeros(shape, dtype))
        known = [t.value for t in inputs if t.value is not None]
        if operator in FOLDED and len(known) == len(inputs):
            self.profile.check(operator, inputs[DATA_OPERAND.get(operator, 0)].dtype)
            return self._folded(operator, known, shape, dtype, fields)
        options = (OPTIONS[operator], fields) if operator in OPTIONS else None
        return self.nodes(operator, inputs, [(shape, dtype)], options)[0]

    def _folded(self, operator: str, values: Sequence[np.ndarray], shape: Sequence[int], dtype: np.dtype,
                fields: dict[str, Any]) -> Tensor:
        fields = {k: v for k, v in fields.items() if k == "axis"}
        with np.errstate(all="ignore"):
            value = np.asarray(FOLDED[operator](*values, **fields)).astype(dtype, copy=False)
        return self.const(np.broadcast_to(value, tuple(shape)) if value.shape != tuple(shape) else value)

    def finish(self, outputs: Sequence[Tensor], names: Sequence[str] = ()) -> None:
        """Set the results.  A constant, an argument or a value given twice is copied: the runtime wants each its own."""
        taken = set(self.subgraph.inputs)
        for i, t in enumerate(outputs):
            if t.value is not None or t.index in taken:
                t = self.copy(t)
            assert t.index is not None
            taken.add(t.index)
            self.subgraph.outputs.append(t.index)
            if names:
                self.subgraph.tensors[t.index].name = names[i]
        self._drop_unused()

    def _drop_unused(self) -> None:
        """Nodes whose results nobody reads."""
        used, kept = set(self.subgraph.outputs), []
        for node in reversed(self.subgraph.operators):
            if used.intersection(int(i) for i in node.outputs):
                used.update(int(i) for i in node.inputs)
                kept.append(node)
        self.subgraph.operators = kept[::-1]

    def copy(self, t: Tensor) -> Tensor: return self.nodes("BITCAST", [t], [(t.shape, t.dtype)])[0]

    # ---- control flow ----
    def while_loop(self, condition: Any, body: Any, state: Sequence[Tensor]) -> list[Tensor]:
        """Repeat body(graph, *state) -> state while condition(graph, *state) -> bool[]."""
        subgraphs = []
        for name, f in (("condition", condition), ("body", body)):
            g = self.nested(name)
            found = f(g, *(g.input(t.shape, t.dtype) for t in state))
            g.finish([found] if name == "condition" else found)
            subgraphs.append(g.number)
        options = ("WhileOptions", {"condSubgraphIndex": subgraphs[0], "bodySubgraphIndex": subgraphs[1]})
        return self.nodes("WHILE", state, [(t.shape, t.dtype) for t in state], options)
