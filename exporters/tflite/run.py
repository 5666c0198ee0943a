"""Run a TFLite model in its runtime on numpy arrays."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from aot.errors import AotError

from .export import Exported


def run(model: Exported, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of a program, in its types, from the runtime.  The runtime may end the process.

    Raises AotError where the runtime is absent, RuntimeError or ValueError where it does not take the model.
    """
    signature = interpreter(model.data)
    given: dict[str, np.ndarray] = {}
    for names, x in zip(model.inputs, inputs):
        pieces = (x.real, x.imag) if len(names) == 2 else (x,)
        given.update({n: np.asarray(as_stored(p), order="C") for n, p in zip(names, pieces)})
    found = signature(**given)
    return [_as_type([found[n] for n in names], t) for names, t in zip(model.outputs, model.output_types)]


def interpreter(data: bytes) -> Any:
    """The signature runner of a model; numpy arrays by name in and out."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        raise AotError("running TFLite models needs the package ai-edge-litert", hint="pip install 'aotc[tflite]'") from None
    return _Runner(Interpreter(model_content=data, num_threads=1))


class _Runner:
    """Calls a model by the names of its signature."""

    def __init__(self, interpreter: Any):
        self.interpreter = interpreter
        interpreter.allocate_tensors()
        self.inputs = {d["name"]: d["index"] for d in interpreter.get_input_details()}
        self.outputs = {d["name"]: d["index"] for d in interpreter.get_output_details()}

    def __call__(self, **given: np.ndarray) -> dict[str, np.ndarray]:
        for name, x in given.items():
            self.interpreter.set_tensor(self.inputs[name], x)
        self.interpreter.invoke()
        return {name: self.interpreter.get_tensor(index) for name, index in self.outputs.items()}


def as_stored(x: np.ndarray) -> np.ndarray:
    """bfloat16 as the runtime's Python interface wants it."""
    return x


def _as_type(pieces: list[np.ndarray], type: Any) -> np.ndarray:
    if len(pieces) == 2:
        return (pieces[0] + 1j * pieces[1]).astype(type.dtype).reshape(type.shape)
    x = pieces[0]
    if type.dtype == ml_dtypes.bfloat16 and x.dtype == np.uint16:
        x = x.view(type.dtype)
    return x
