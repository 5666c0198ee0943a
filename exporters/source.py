"""What can be exported: a function with its arguments, a function of an artifact, or a StableHLO file.

    source = of_program(build.Program(fun, [spec.parse("f32[8,4]")]))
    source = of_artifact("model.aot", "predict")
    source = of_file("model.mlirbc")
"""
from __future__ import annotations

import copy
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from aot.errors import AotError

from . import stablehlo

ARTIFACT, PROGRAMS = ".aot", (".mlir", ".mlirbc", ".stablehlo")


@dataclass
class Source:
    """A StableHLO program and what is known of its parameters.

    content: text or bytecode.  weights: parameter number -> (name, array); the other parameters are the inputs, in order.
    inputs, outputs: their names, "" where none is known.  golden: recorded (inputs, outputs).
    """
    name: str
    content: str | bytes
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    weights: dict[int, tuple[str, np.ndarray]] = field(default_factory=dict)
    golden: tuple[Sequence[np.ndarray], Sequence[np.ndarray]] | None = None

    def program(self, keep: Collection[str] = (), composites: Collection[str] = ()) -> stablehlo.Program:
        """The program with its weights as named constants.  keep, composites: see `stablehlo.read`."""
        return stablehlo.bind(stablehlo.read(self.content, keep=keep, composites=composites), self.weights)

    def arguments(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """All parameters of the program, weights included, for these inputs."""
        given = iter(inputs)
        return [self.weights[i][1] if i in self.weights else next(given) for i in range(len(inputs) + len(self.weights))]


def is_file(text: str) -> bool:
    """Whether a text names a file that `load` reads, and no function of a module."""
    return text.endswith((ARTIFACT, *PROGRAMS))


def load(path: str, function: str | None = None) -> Source:
    """The source in a file: an artifact, or StableHLO as text or bytecode.  Raises AotError."""
    return of_artifact(path, function) if path.endswith(ARTIFACT) else of_file(path)


def of_file(path: str) -> Source:
    """A StableHLO file."""
    try:
        with open(path, "rb") as f:
            content = f.read()
    except OSError as e:
        raise AotError(f"{path}: {e.strerror or e}") from None
    return Source(os.path.basename(path).partition(".")[0], content)


def of_artifact(path: str, function: str | None = None) -> Source:
    """A function of an artifact, by default its only one."""
    import aot_runtime
    loaded = aot_runtime.load(path)
    if function is None and len(loaded) != 1:
        raise AotError(f"{path}: holds {len(loaded)} functions", hint=f"choose one of: {', '.join(loaded)}")
    name = function or loaded.keys()[0]
    if name not in loaded:
        raise AotError(f"{path}: has no function {name!r}", hint=f"choose one of: {', '.join(loaded)}")
    spec = loaded.manifest["functions"][name]
    if "program" not in spec:
        raise AotError(f"{path}: {name} is stored without its program", hint="build it again with the program included")
    return _source(name, bytes(loaded.member(spec["program"])), spec["parameters"], spec["inputs"], spec["outputs"],
                   loaded.weights(), loaded.golden(name))


def of_program(program: Any) -> Source:
    """A `build.Program`: its StableHLO with the places of the user's source, relative to the current directory."""
    from aot import build
    record, weights = build.describe_program(program)
    text = program.lowered.located_text(root=os.getcwd())
    return _source(program.name, text, record.parameters, record.inputs, record.outputs, weights, None)


def resized(program: Any) -> Callable[[int], Source]:
    """How to make the source of a `build.Program` for another size of the first axis.

    The size is that of the first input; other inputs whose first axis has it follow.  Raises AotError where there is none.
    """
    sizes = [leaf.shape[0] for b in program.bound if not b.weights for leaf in _leaves(b.tree) if getattr(leaf, "shape", ())]
    if not sizes:
        raise AotError(f"{program.name}: no input has a first axis", hint="leave out --dynamic-batch")

    def at(n: int) -> Source:
        made = copy.copy(program)
        for name in ("transformed", "traced", "lowered", "bytecode", "built", "compiled"):
            made.__dict__.pop(name, None)
        made.bound = [b if b.weights else replace(b, tree=_with_first_axis(b.tree, sizes[0], n)) for b in program.bound]
        return of_program(made)
    return at


def _leaves(tree: Any) -> list[Any]:
    from aot import tree_util
    return tree_util.tree_leaves(tree)


def _with_first_axis(tree: Any, old: int, new: int) -> Any:
    """Types instead of arrays, with another size of the first axis where it had the old one."""
    from aot import spec, tree_util

    def leaf(x: Any) -> Any:
        shape = getattr(x, "shape", ())
        if not shape or shape[0] != old:
            return x
        dtype = x.dtype if isinstance(x.dtype, str) else np.dtype(x.dtype).name
        return spec.Array((new, *shape[1:]), dtype)
    return tree_util.tree_map(leaf, tree)


def _source(name: str, content: Any, parameters: list, inputs: list[dict], outputs: list[dict], weights: Any,
            golden: Any) -> Source:
    bound = {i: (p, np.asarray(weights[p])) for i, p in enumerate(parameters) if isinstance(p, str)}
    order = [p for p in parameters if not isinstance(p, str)]
    if order != sorted(order):
        raise AotError(f"{name}: its program takes the inputs in another order than its signature")
    return Source(name, content, [e["name"] for e in inputs], [e["name"] for e in outputs], bound, golden)
