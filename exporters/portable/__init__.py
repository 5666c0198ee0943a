"""StableHLO itself as a format: a portable artifact, which later versions of its readers accept."""
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from aot.exporters.source import Source


@dataclass
class Exported:
    """A portable artifact.  inputs, outputs: the names of arguments and results."""
    data: bytes
    inputs: list[tuple[str, ...]] = field(default_factory=list)
    outputs: list[tuple[str, ...]] = field(default_factory=list)
    renamed: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def save(self, path: str | os.PathLike) -> list[str]:
        """Write the file atomically."""
        from aot.files import replacing
        with replacing(os.fspath(path)) as f:
            f.write(self.data)
        return [os.fspath(path)]


def export(source: Source, *, input_names: Sequence[str] | None = None, output_names: Sequence[str] | None = None,
           metadata: Mapping[str, str] | None = None, composites: bool = False) -> Exported:
    """The program of a source with its weights as constants.  Raises AotError where it is no StableHLO.

    composites: write calls of functions of `aot.nn` that other formats know as `stablehlo.composite`s named `aot.NAME`.
    """
    from aot import mlir
    from aot.exporters import stablehlo
    stablehlo.read(source.content)                             # refuses what is no program, in our words
    module = mlir.read_module(source.content)
    mlir.bind_arguments(module, {i: _attribute(array) for i, (_, array) in source.weights.items()})
    if composites:
        mlir.name_composites(module)
    return Exported(mlir.portable_bytecode(str(module)), [(n,) for n in input_names or ()], [(n,) for n in output_names or ()])


def _attribute(array: np.ndarray) -> str:
    from aot.lower.emitter import dense_text, scalar_text
    from aot.trace.aval import ShapedArray
    text = dense_text(array) if array.ndim else f"dense<{scalar_text(array[()], array.dtype)}>"
    return f"{text} : {ShapedArray(array.shape, array.dtype).mlir}"


__all__ = ["Exported", "export"]
