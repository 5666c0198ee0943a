"""XLA as the judge of exported files: run a StableHLO program on numpy arrays."""
from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np


def function(content: str | bytes) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """A compiled StableHLO program: a function from all its parameters to its results, on the CPU.

    Raises AotError where XLA does not compile it.
    """
    from aot import mlir, xla
    from aot.compile.eager import Program
    from aot.errors import AotError
    from aot.trace.aval import ShapedArray

    from . import stablehlo
    module = mlir.read_module(content)
    types = stablehlo.read(mlir.read_module(content)).output_types
    try:
        loaded = xla.compile_text(str(module))
    except xla.XlaRuntimeError as e:
        raise AotError(f"XLA does not compile the program: {str(e).splitlines()[0]}") from None
    program = Program(loaded, [ShapedArray(t.shape, t.dtype) for t in types])

    def call(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        buffers = [xla.put(np.asarray(x), xla.storage(ShapedArray(np.shape(x), np.asarray(x).dtype))) for x in inputs]
        return [np.array(xla.to_numpy(b)) for b in program.run_buffers(buffers)]
    return call
