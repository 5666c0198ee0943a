"""Writing ONNX graphs: tensors, nodes, initializers, nested graphs.

A `Tensor` knows its shape and what is stored for it: broadcasts stay undone as long as consumers broadcast themselves, so
a scalar that stands for a large array costs nothing.  Every operator goes through `Graph.__call__`, which looks up
whether the runtime has a kernel for the type and casts where it has none.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np

from aot.exporters.stablehlo import Type, is_splat

from .kernels import compute_dtype

ELEMENTS = {"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
            "float64": 11, "uint32": 12, "uint64": 13, "bfloat16": 16, "float8_e4m3fn": 17, "float8_e4m3fnuz": 18,
            "float8_e5m2": 19, "float8_e5m2fnuz": 20, "uint4": 21, "int4": 22, "uint2": 25, "int2": 26}
#: integers of less than a byte -> bits
NARROW = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2}
#: dtype -> the first opset whose Cast knows it
SINCE = {"float8_e4m3fn": 19, "float8_e4m3fnuz": 19, "float8_e5m2": 19, "float8_e5m2fnuz": 19, "uint4": 21, "int4": 21,
         "uint2": 25, "int2": 25}
BOOL, I32, I64, F32 = np.dtype(bool), np.dtype("int32"), np.dtype("int64"), np.dtype("float32")
U8, U32, U64, F64 = np.dtype("uint8"), np.dtype("uint32"), np.dtype("uint64"), np.dtype("float64")
BF16 = np.dtype(ml_dtypes.bfloat16)
_COMPARISONS = frozenset("Equal Less Greater LessOrEqual GreaterOrEqual IsNaN IsInf Not And Or Xor".split())


class Inexpressible(Exception):
    """Raised for one operation.  why: the reason, for the report; hint: what the user can do."""

    def __init__(self, why: str, hint: str = ""):
        super().__init__(why)
        self.why, self.hint = why, hint


class Tensor:
    """A tensor of the graph.

    shape: what it stands for; stored: what the graph holds, which broadcasts to shape by numpy's rules.
    array: its elements (of the stored shape) if they are known; name: None until a node uses a constant.
    """
    __slots__ = ("name", "shape", "dtype", "stored", "array")

    def __init__(self, name: str | None, shape: Sequence[int], dtype: np.dtype, stored: Sequence[int] | None = None,
                 array: np.ndarray | None = None):
        self.name, self.shape, self.dtype, self.array = name, tuple(shape), dtype, array
        self.stored = self.shape if stored is None else tuple(stored)

    @property
    def rank(self) -> int: return len(self.shape)

    @property
    def size(self) -> int: return math.prod(self.shape)

    @property
    def type(self) -> Type: return Type(self.shape, self.dtype)

    def scalar(self) -> Any:
        """The element of a known splat, else None."""
        return self.array.reshape(-1)[0] if self.array is not None and self.array.size == 1 else None

    def numpy(self) -> np.ndarray | None:
        """The known elements at the full shape."""
        return None if self.array is None else np.broadcast_to(self.array, self.shape)


class Graph:
    """The nodes and initializers of one model.  opset: of the default domain."""

    def __init__(self, opset: int):
        from onnx import helper
        self.opset, self.helper = opset, helper
        self.nodes: list[Any] = []
        self.initializers: dict[str, np.ndarray] = {}
        self.wanted: dict[int, tuple[str, np.ndarray]] = {}      # id of an array -> the name it has in the program
        self._known: dict[Any, str] = {}
        self._count = 0
        self.made: list[dict[Any, Tensor]] = [{}]
        self.notes: dict[str, None] = {}          # what the user should know of the model, each once

    # ---- names and constants ----
    def fresh(self, prefix: str = "t") -> str:
        self._count += 1
        return f"_{prefix}{self._count}"

    def constant(self, value: Any, dtype: Any = None) -> Tensor:
        """A known tensor; splats are stored as one element."""
        value = np.asarray(value, dtype)
        if value.size and is_splat(value):
            return Tensor(None, value.shape, value.dtype, (), np.asarray(value[(0,) * value.ndim]))
        return Tensor(None, value.shape, value.dtype, array=value)

    def ints(self, *values: int) -> Tensor:
        """A vector of int64, for shapes, axes and bounds; it is never stored as a splat."""
        array = np.array(values, np.int64)
        return Tensor(None, array.shape, I64, array=array)

    def like(self, value: Any, x: Tensor) -> Tensor:
        """A scalar of the type of x."""
        with np.errstate(all="ignore"):
            return self.constant(np.asarray(value).astype(x.dtype))

    def ref(self, t: Tensor) -> str:
        """The name of a tensor in the graph; a constant becomes an initializer."""
        if t.name is None:
            array = t.array
            assert array is not None
            named = self.wanted.get(id(array))
            key = id(array) if named or array.nbytes > 1 << 12 else (array.dtype.name, array.shape, array.tobytes())
            name = self._known.get(key)
            if name is None:
                name = self._known[key] = named[0] if named else self.fresh("c")
                self.initializers[name] = array
            t.name = name
        return t.name

    # ---- nodes ----
    def node(self, operator: str, inputs: Sequence[str], outputs: Sequence[str], **attrs: Any) -> None:
        self.nodes.append(self.helper.make_node(operator, inputs, outputs, **attrs))

    def __call__(self, operator: str, *xs: Tensor | None, shape: Sequence[int] | None = None, dtype: Any = None,
                 kernel: str = "", cast: int | Sequence[int] | None = None, **attrs: Any) -> Tensor:
        """One operator with one result.

        shape: of the result; without it the operator is elementwise and operands are broadcast.  dtype: of the result, by
        default that of the operands.  kernel: name in the table of kernels.  cast: positions of the operands whose type
        decides and that are cast together (by default all, only the first where `shape` is given).
        """
        elementwise = shape is None
        tensors = list(xs)
        if cast is None:
            decided = [i for i, x in enumerate(tensors) if x is not None] if elementwise else [0]
        else:
            decided = [cast] if isinstance(cast, int) else list(cast)
        lead = tensors[decided[0]]
        assert lead is not None
        own = lead.dtype
        wide = compute_dtype(kernel or operator, own, self.opset)
        if wide is None:
            raise Inexpressible(f"onnxruntime has no {operator} for {own.name}")
        if wide != own:
            for i in decided:
                tensors[i] = self.cast(tensors[i], wide)  # type: ignore[arg-type]
        out_dtype = np.dtype(dtype) if dtype is not None else BOOL if operator in _COMPARISONS else wide
        if elementwise:
            made = self._elementwise(operator, tensors, out_dtype, attrs)
        else:
            full = [None if t is None else self.full(t) for t in tensors]
            made = self.emit(operator, full, tuple(shape or ()), out_dtype, attrs)
        return self.cast(made, own) if wide != own and dtype is None and operator not in _COMPARISONS else made

    def _elementwise(self, operator: str, xs: Sequence[Tensor | None], dtype: np.dtype, attrs: dict) -> Tensor:
        present = [x for x in xs if x is not None]
        shape = np.broadcast_shapes(*(x.shape for x in present))
        stored = np.broadcast_shapes(*(x.stored for x in present))
        return self.emit(operator, xs, shape, dtype, attrs, stored)

    def emit(self, operator: str, xs: Sequence[Tensor | None], shape: Sequence[int], dtype: np.dtype, attrs: dict,
             stored: Sequence[int] | None = None) -> Tensor:
        """Write a node, unless an equal one was written where this one is."""
        inputs = ["" if x is None else self.ref(x) for x in xs]
        key = (operator, tuple(inputs), tuple(sorted((k, str(v)) for k, v in attrs.items())), dtype.name)
        pure = "body" not in attrs and "then_branch" not in attrs
        if pure:
            for scope in self.made:
                if key in scope:
                    found = scope[key]
                    return Tensor(found.name, shape, dtype, stored)
        made = Tensor(self.fresh(), shape, dtype, stored)
        self.node(operator, inputs, [made.name or ""], **attrs)
        if pure:
            self.made[-1][key] = made
        return made

    def several(self, operator: str, xs: Sequence[Tensor | None], types: Sequence[Type], **attrs: Any) -> list[Tensor]:
        """A node with several results."""
        outs = [Tensor(self.fresh(), t.shape, t.dtype) for t in types]
        self.node(operator, ["" if x is None else self.ref(self.full(x)) for x in xs], [o.name or "" for o in outs], **attrs)
        return outs

    # ---- types and shapes ----
    def require_type(self, dtype: np.dtype) -> None:
        """Raises Inexpressible for types that models of this opset cannot hold."""
        name = dtype.name
        if name not in ELEMENTS:
            raise Inexpressible(f"onnxruntime computes no {name}", "convert to float32 or another type before")
        if SINCE.get(name, 0) > self.opset:
            raise Inexpressible(f"ONNX opset {self.opset} has no type {name}", f"use --opset {SINCE[name]} or later")

    def cast(self, t: Tensor, dtype: Any, **attrs: Any) -> Tensor:
        """ONNX's Cast; integers wrap, floats to integers must be in range."""
        dtype = np.dtype(dtype)
        if t.dtype == dtype:
            return t
        if t.array is not None and t.array.size <= 1 << 16:
            with np.errstate(all="ignore"):
                return Tensor(None, t.shape, dtype, t.stored, np.asarray(t.array.astype(dtype)))
        self.require_type(t.dtype)
        self.require_type(dtype)
        if dtype.name in NARROW and t.dtype.kind in "iu":
            t = self._wrapped(t, NARROW[dtype.name], dtype.name[0] == "i")
        return self.emit("Cast", [t], t.shape, dtype, {"to": ELEMENTS[dtype.name], **attrs}, t.stored)

    def _wrapped(self, t: Tensor, bits: int, signed: bool) -> Tensor:
        """The lowest bits of integers, as int32 in the range of their type: ONNX leaves open what Cast does beyond it."""
        t = self.cast(t, I32)
        half = self.like(1 << (bits - 1) if signed else 0, t)
        return self("Sub", self("BitwiseAnd", self("Add", t, half), self.like((1 << bits) - 1, t)), half)

    def full(self, t: Tensor) -> Tensor:
        """The tensor with all its elements stored."""
        if t.stored == t.shape:
            return t
        if t.array is not None and (t.size <= 1 << 10 or 0 in t.shape):
            return Tensor(None, t.shape, t.dtype, array=np.array(np.broadcast_to(t.array, t.shape), order="C"))
        return self.moved("Expand", t, t.shape, self.ints(*t.shape))

    def moved(self, operator: str, t: Tensor, shape: Sequence[int], *more: Tensor, **attrs: Any) -> Tensor:
        """An operator that only moves elements of its first operand, as stored."""
        wide = compute_dtype(operator, t.dtype, self.opset)
        if wide is None:
            raise Inexpressible(f"onnxruntime has no {operator} for {t.dtype.name}")
        own = t.dtype
        made = self.emit(operator, [self.cast(t, wide), *more], shape, wide, attrs)
        return self.cast(made, own)

    def reshape(self, t: Tensor, shape: Sequence[int]) -> Tensor:
        """Row-major reshape; splats stay splats."""
        shape = tuple(shape)
        if t.shape == shape:
            return t
        if math.prod(t.stored) == 1 and 0 not in shape:
            return Tensor(t.name, shape, t.dtype, (), t.array.reshape(()) if t.array is not None else None) \
                if t.array is not None or t.stored == () else self._as_stored(t, shape)
        t = self.full(t)
        if t.array is not None:
            return Tensor(None, shape, t.dtype, array=t.array.reshape(shape))
        return self._reshape(t, shape)

    def _as_stored(self, t: Tensor, shape: tuple[int, ...]) -> Tensor:
        """One element that stands for all of shape."""
        if len(t.stored) <= len(shape):
            return Tensor(t.name, shape, t.dtype, t.stored)
        return Tensor(self._reshape(Tensor(t.name, t.stored, t.dtype), ()).name, shape, t.dtype, ())

    def _reshape(self, t: Tensor, shape: tuple[int, ...]) -> Tensor:
        attrs = {"allowzero": 1} if 0 in shape else {}
        return self.moved("Reshape", t, shape, self.ints(*shape), **attrs)

    def stored_as(self, t: Tensor, stored: Sequence[int], shape: Sequence[int]) -> Tensor:
        """What is stored for t, reshaped to `stored`, standing for `shape`."""
        stored = tuple(stored)
        if t.array is not None:                                  # the same object, where it can be: it may have a name
            return Tensor(t.name, shape, t.dtype, stored, t.array) if t.array.shape == stored else \
                Tensor(None, shape, t.dtype, stored, t.array.reshape(stored))
        inner = Tensor(t.name, t.stored, t.dtype)
        return Tensor((inner if stored == t.stored else self._reshape(inner, stored)).name, shape, t.dtype, stored)

    def broadcast(self, t: Tensor, dims: Sequence[int], shape: Sequence[int]) -> Tensor:
        """broadcast_in_dim, undone until somebody needs the elements."""
        shape = tuple(shape)
        sizes = (1,) * (t.rank - len(t.stored)) + t.stored
        aligned = [1] * len(shape)
        if list(dims) != sorted(dims):
            order = sorted(range(t.rank), key=lambda i: dims[i])
            t, dims = self.transpose(t, order), sorted(dims)
            sizes = (1,) * (t.rank - len(t.stored)) + t.stored
        for d, n in zip(dims, sizes):
            aligned[d] = n
        first = next((i for i, n in enumerate(aligned) if n != 1), len(aligned))
        stored = tuple(aligned[first:]) if math.prod(aligned) != 0 else tuple(aligned)
        return self.stored_as(t, stored, shape)

    def transpose(self, t: Tensor, order: Sequence[int]) -> Tensor:
        order = list(order)
        shape = tuple(t.shape[i] for i in order)
        if order == list(range(t.rank)) or t.stored == ():
            return Tensor(t.name, shape, t.dtype, t.stored, t.array)
        sizes = (1,) * (t.rank - len(t.stored)) + t.stored
        moving = [d for d in order if sizes[d] != 1]
        stored = tuple(sizes[i] for i in order)
        if moving == sorted(moving) or t.array is not None:
            padded = self.stored_as(t, sizes, t.shape)
            if padded.array is not None:
                return Tensor(None, shape, t.dtype, stored, np.asarray(padded.array.transpose(order), order="C"))
            return self.stored_as(padded, stored, shape)
        padded = self.stored_as(t, sizes, t.shape)
        made = self.moved("Transpose", Tensor(padded.name, sizes, t.dtype), stored, perm=order)
        return Tensor(made.name, shape, t.dtype, stored)

    # ---- common small things ----
    def where(self, p: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """select, by Where or, for booleans, by logic."""
        if x.dtype == BOOL:
            return self("Or", self("And", p, x), self("And", self("Not", p), y))
        own = x.dtype
        wide = compute_dtype("Where", own, self.opset)
        if wide is None:
            raise Inexpressible(f"onnxruntime has no Where for {own.name}")
        return self.cast(self._elementwise("Where", [p, self.cast(x, wide), self.cast(y, wide)], wide, {}), own)

    def slice(self, t: Tensor, starts: Sequence[int], limits: Sequence[int], steps: Sequence[int] | None = None) -> Tensor:
        """Static slice with positive steps."""
        steps = list(steps or [1] * t.rank)
        shape = tuple(max(0, -(-(b - a) // s)) for a, b, s in zip(starts, limits, steps))
        if shape == t.shape:
            return t
        if t.stored == ():
            return Tensor(t.name, shape, t.dtype, (), t.array)
        t = self.full(t)
        axes = [i for i in range(t.rank) if shape[i] != t.shape[i]]
        return self.moved("Slice", t, shape, self.ints(*(starts[i] for i in axes)), self.ints(*(limits[i] for i in axes)),
                          self.ints(*axes), self.ints(*(steps[i] for i in axes)))

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        parts = [p for p in parts if p.shape[axis]] or list(parts[:1])
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].shape)
        shape[axis] = sum(p.shape[axis] for p in parts)
        return self("Concat", *parts, shape=shape, cast=range(len(parts)), axis=axis)

    def pad(self, t: Tensor, low: Sequence[int], high: Sequence[int], value: Tensor) -> Tensor:
        """Edge padding with a scalar; negative amounts cut."""
        if any(n < 0 for n in (*low, *high)):
            t = self.slice(t, [max(0, -a) for a in low], [n - max(0, -b) for n, b in zip(t.shape, high)])
            low, high = [max(0, a) for a in low], [max(0, b) for b in high]
        if not any((*low, *high)):
            return t
        shape = [n + a + b for n, a, b in zip(t.shape, low, high)]
        if t.stored == () and t.array is not None and value.array is not None and t.scalar() == value.scalar():
            return Tensor(t.name, shape, t.dtype, (), t.array)
        if 0 in t.shape:
            return self.broadcast(value, (), shape)
        return self("Pad", t, self.ints(*low, *high), value, shape=shape, cast=(0, 2))

    @contextmanager
    def nested(self) -> Iterator[list[Any]]:
        """Collect the nodes of a nested graph."""
        outer, self.nodes = self.nodes, []
        self.made.append({})
        try:
            yield self.nodes
        finally:
            self.made.pop()
            self.nodes = outer

    def graph_proto(self, name: str, nodes: list[Any], inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Any:
        return self.helper.make_graph(nodes, name, [self.value_info(t) for t in inputs], [self.value_info(t) for t in outputs])

    def value_info(self, t: Tensor) -> Any:
        return self.helper.make_tensor_value_info(t.name, ELEMENTS[t.dtype.name], list(t.shape))
