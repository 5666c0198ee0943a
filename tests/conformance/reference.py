"""XLA as the judge: run a StableHLO module on numpy arrays."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot import mlir, xla
from aot.compile.eager import Program
from aot.trace.aval import MLIR_NAMES, ShapedArray

DTYPES = {mlir: name for name, mlir in MLIR_NAMES.items()}


def aval_of(mlir_type) -> ShapedArray:
    """The aval of a ranked tensor type of the MLIR bindings."""
    return ShapedArray(tuple(mlir_type.shape), np.dtype(DTYPES[str(mlir_type.element_type)]))


def main_of(module):
    return next(op for op in module.body.operations if op.attributes["sym_name"].value == "main")


def run_xla(text: str, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of `main` on these inputs, computed by XLA:CPU."""
    module = mlir.parse(text)                    # kept: operations do not keep their module alive
    outs = [aval_of(t) for t in main_of(module).type.results]
    program = Program(xla.compile_text(text), outs)
    buffers = [xla.put(x, xla.storage(ShapedArray(x.shape, x.dtype))) for x in inputs]
    return [np.array(xla.to_numpy(b)) for b in program.run_buffers(buffers)]
