"""Models for any size of the first axis.

Programs have static shapes, so the model is written for several sizes and the copies are compared node by node.  They may
differ only in integers that are a * size + b, which are then computed from the shape of an input when the model runs, and in
constants that count along the axis.  Anything else means that the size is built into the program, and is refused.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.errors import AotError

from .graph import ELEMENTS

AXIS = "batch"
SIZES = (23, 29, 37)        # three primes that are no usual size: two to find a and b, one to check them


class SizeDependent(AotError):
    """A program in which the size of the first axis is more than a size."""

    def __init__(self, message: str, hint: str = "leave out --dynamic-batch, or export one file for each size"):
        super().__init__(message, hint)


@dataclass(frozen=True)
class Linear:
    """a * size + b, elementwise."""
    a: np.ndarray
    b: np.ndarray


def linear(values: Sequence[Any], sizes: Sequence[int]) -> Linear | None:
    """The line through values at these sizes, or None where there is none with whole numbers."""
    x = [np.asarray(v, np.int64) for v in values]
    step = sizes[1] - sizes[0]
    if any(v.shape != x[0].shape for v in x) or ((x[1] - x[0]) % step).any():
        return None
    a = (x[1] - x[0]) // step
    b = x[0] - a * sizes[0]
    return Linear(a, b) if all((v == a * n + b).all() for v, n in zip(x, sizes)) else None


def unify(export: Callable[[int], Any]) -> Any:
    """The model for every size, from `export(size)`.  Raises SizeDependent with what stands in the way."""
    made = [export(n) for n in SIZES]
    found = made[0]
    if found.arrays:
        raise SizeDependent("models above 2 GB are written for one size")
    _Unifier([m.model for m in made]).run()
    return found


class _Unifier:
    """Changes the first of several models so that it holds for all sizes."""

    def __init__(self, models: Sequence[Any]):
        from onnx import helper, numpy_helper
        self.helper, self.models = helper, models
        self.arrays = [{t.name: numpy_helper.to_array(t) for t in m.graph.initializer} for m in models]
        self.computed: dict[Any, str] = {}
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.same: list[dict[str, str]] = [{} for _ in models]        # name in the first model -> name in this one

    def run(self) -> None:
        graphs = [m.graph for m in self.models]
        first = graphs[0]
        for kind in ("input", "output"):
            self.values([getattr(g, kind) for g in graphs], kind == "input")
        if not any(self.shape_of(v) for v in first.input):
            raise SizeDependent("no input has a first axis of variable size", hint="leave out --dynamic-batch")
        self.graph(graphs)
        used = {n for node in _all_nodes(first) for n in node.input}
        kept = [t for t in first.initializer if t.name in used]
        del first.initializer[:]
        first.initializer.extend([*kept, *self.constants])
        nodes = [*self.nodes, *first.node]
        del first.node[:]
        first.node.extend(nodes)

    def shape_of(self, value: Any) -> bool:
        return any(d.dim_param for d in value.type.tensor_type.shape.dim)

    def values(self, lists: Sequence[Any], is_input: bool) -> None:
        """Inputs or outputs: sizes that vary get a name."""
        for several in zip(*lists, strict=True):
            dims = [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in several]
            line = linear(dims, SIZES)
            if line is None:
                raise SizeDependent(f"the shape of {several[0].name} does not follow from the size of the first axis")
            for d, a, b in zip(several[0].type.tensor_type.shape.dim, line.a, line.b):
                if a:
                    d.dim_param = AXIS if (a, b) == (1, 0) else f"{a}*{AXIS}" + (f"+{b}" if b else "")
            if is_input:
                for names, v in zip(self.same, several):
                    names[several[0].name] = v.name

    def graph(self, graphs: Sequence[Any]) -> None:
        lists = [list(g.node) for g in graphs]
        if len({len(nodes) for nodes in lists}) != 1:
            raise SizeDependent("the program has other operations for other sizes of the first axis",
                                hint="sorting, scans or transforms along that axis cannot be exported for any size")
        for nodes in zip(*lists):
            self.node(nodes)

    def node(self, nodes: Sequence[Any]) -> None:
        first = nodes[0]
        if len({n.op_type for n in nodes}) != 1 or len({len(n.input) for n in nodes}) != 1:
            raise SizeDependent("the program has other operations for other sizes of the first axis")
        for i in range(len(first.input)):
            first.input[i] = self.operand(first, [n.input[i] for n in nodes])
        for attributes in zip(*(n.attribute for n in nodes), strict=True):
            self.attribute(first, attributes)
        for outputs in zip(*(n.output for n in nodes)):
            for names, o in zip(self.same, outputs):
                names[outputs[0]] = o

    def operand(self, node: Any, names: Sequence[str]) -> str:
        arrays = [known.get(n) for known, n in zip(self.arrays, names)]
        if all(a is None for a in arrays):
            if any(same.get(names[0], names[0]) != n for same, n in zip(self.same, names)):
                raise SizeDependent(f"{node.op_type} takes other values for other sizes of the first axis")
            return names[0]
        if any(a is None for a in arrays):
            raise SizeDependent(f"{node.op_type} takes a constant for some sizes of the first axis")
        if all(_equal(arrays[0], a) for a in arrays[1:]):
            return names[0]
        return self.varying(node, arrays)  # type: ignore[arg-type]

    def attribute(self, node: Any, attributes: Sequence[Any]) -> None:
        if attributes[0].HasField("g"):
            graphs = [a.g for a in attributes]
            for several in zip(*(g.input for g in graphs), strict=True):
                for names, v in zip(self.same, several):
                    names[several[0].name] = v.name
            self.values([g.input for g in graphs], True)
            self.graph(graphs)
            self.values([g.output for g in graphs], False)
        elif any(a.SerializeToString() != attributes[0].SerializeToString() for a in attributes):
            raise SizeDependent(f"the {attributes[0].name} of {node.op_type} depends on the size of the first axis")

    # ---- what varies ----
    def varying(self, node: Any, arrays: Sequence[np.ndarray]) -> str:
        """The name of a computed value that is these constants at their sizes."""
        dtype = arrays[0].dtype
        whole = dtype.kind in "iu" or dtype.kind == "f" and all(np.isfinite(a).all() and (a == np.rint(a)).all()
                                                                for a in arrays)
        if whole and (line := linear(arrays, SIZES)) is not None:
            return self.cast(self.line(line), dtype)
        if dtype.kind == "f" and all(_equal((1 / np.asarray(n, dtype)).astype(dtype), a) for n, a in zip(SIZES, arrays)):
            return self.add("Reciprocal", [self.cast(self.size(), dtype)])
        shape = linear([a.shape for a in arrays], SIZES) if len({a.ndim for a in arrays}) == 1 else None
        if shape is None:
            raise SizeDependent(f"a constant of {node.op_type} depends on the size of the first axis")
        if all(a.size and (a == arrays[0].reshape(-1)[0]).all() for a in arrays):
            return self.add("Expand", [self.known(arrays[0].reshape(-1)[0]), self.line(shape)])
        return self.counting(node, arrays, shape)

    def counting(self, node: Any, arrays: Sequence[np.ndarray], shape: Linear) -> str:
        """first + step * (0, 1, 2, ...) along the one axis that varies."""
        axes = [i for i, a in enumerate(shape.a) if a]
        first = np.take(arrays[0], [0], axes[0]) if len(axes) == 1 else arrays[0]
        dtype = arrays[0].dtype
        for a in arrays:
            if len(axes) != 1 or dtype.kind not in "iuf" or a.shape[axes[0]] < 2:
                break
            step = np.take(a, [1], axes[0]) - np.take(a, [0], axes[0])
            number = np.arange(a.shape[axes[0]]).astype(dtype).reshape([-1 if i == axes[0] else 1 for i in range(a.ndim)])
            if not _equal(first, np.take(a, [0], axes[0])) or not (a == first + step * number).all():
                break
        else:
            step = np.take(arrays[0], [1], axes[0]) - first
            return self.counted(first, step, axes[0], shape)
        raise SizeDependent(f"a constant of {node.op_type} depends on the size of the first axis")

    def counted(self, first: np.ndarray, step: np.ndarray, axis: int, shape: Linear) -> str:
        length = self.line(Linear(shape.a[axis], shape.b[axis]))
        numbers = self.add("Range", [self.known(np.int64(0)), length, self.known(np.int64(1))])
        target = np.array([-1 if i == axis else 1 for i in range(first.ndim)], np.int64)
        numbers = self.cast(self.add("Reshape", [numbers, self.known(target)]), first.dtype)
        return self.add("Add", [self.known(first), self.add("Mul", [self.known(step), numbers])])

    def line(self, line: Linear) -> str:
        key = line.a.tobytes(), line.b.tobytes(), line.a.shape
        if key not in self.computed:
            found = self.size()
            if (line.a != 1).any() or line.a.ndim:
                found = self.add("Mul", [found, self.known(line.a)])
            if line.b.any() or line.a.ndim:
                found = self.add("Add", [found, self.known(line.b)])
            self.computed[key] = found
        return self.computed[key]

    def size(self) -> str:
        """The size of the first axis, from the first input that has it."""
        if "size" not in self.computed:
            for value in self.models[0].graph.input:
                for i, d in enumerate(value.type.tensor_type.shape.dim):
                    if d.dim_param == AXIS:
                        shape = self.add("Shape", [value.name])
                        self.computed["size"] = self.add("Gather", [shape, self.known(np.int64(i))])
                        return self.computed["size"]
        return self.computed["size"]

    def cast(self, name: str, dtype: np.dtype) -> str:
        return name if dtype == np.int64 else self.add("Cast", [name], to=ELEMENTS[dtype.name])

    def known(self, value: Any) -> str:
        from .model import tensor_proto
        name = f"_dynamic{len(self.constants) + len(self.nodes)}"
        self.constants.append(tensor_proto(name, np.asarray(value)))
        return name

    def add(self, operator: str, inputs: Sequence[str], **attrs: Any) -> str:
        name = f"_dynamic{len(self.constants) + len(self.nodes)}"
        self.nodes.append(self.helper.make_node(operator, inputs, [name], **attrs))
        return name


def _equal(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    return a is not None and b is not None and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _all_nodes(graph: Any) -> list[Any]:
    """Nodes, those of nested graphs included."""
    found = []
    for node in graph.node:
        found.append(node)
        for a in node.attribute:
            if a.HasField("g"):
                found += _all_nodes(a.g)
    return found
