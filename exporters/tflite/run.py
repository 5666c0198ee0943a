"""Running TFLite models in ai-edge-litert, on the CPU."""
from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from aot.errors import AotError

from ..parts import joined, split


class Model:
    """A loaded model: numpy arrays by name in and out.  The runtime may end the process.

    source: the bytes of a model or the path of a file.  keep: whether every tensor can be read after a call.
    Raises AotError where the runtime is missing or refuses the model.
    """

    def __init__(self, source: bytes | str | os.PathLike, threads: int = 1, keep: bool = False):
        try:
            from ai_edge_litert.interpreter import Interpreter
        except ImportError:
            raise AotError("running TFLite models needs the package ai-edge-litert",
                           hint="pip install 'aotc[tflite]'") from None
        given: dict[str, Any] = {"model_content": source} if isinstance(source, bytes) else {"model_path": os.fspath(source)}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")          # about the memory that kept tensors take
                self.interpreter = Interpreter(**given, num_threads=threads, experimental_preserve_all_tensors=keep)
            self.interpreter.allocate_tensors()
        except (RuntimeError, ValueError) as e:
            raise AotError(f"the TFLite runtime does not load the model: {e}") from e
        self.inputs = {d["name"]: d["index"] for d in self.interpreter.get_input_details()}
        self.outputs = {d["name"]: d["index"] for d in self.interpreter.get_output_details()}

    def __call__(self, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        for name, x in given.items():
            self.interpreter.set_tensor(self.inputs[name], np.asarray(x, order="C"))
        self.interpreter.invoke()
        return {name: self.interpreter.get_tensor(index) for name, index in self.outputs.items()}


def run(model: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of a program, in its types.  model: an `Exported`."""
    names = [n for pair in model.inputs for n in pair]
    found = Model(model.data)(dict(zip(names, split(inputs), strict=True)))
    return [joined([found[n] for n in pair], t.dtype) for pair, t in zip(model.outputs, model.output_types)]


def open_file(path: str) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """A function from the program's inputs to the model's outputs, in order; complex results are two arrays each."""
    loaded = Model(path)
    return lambda arrays: list(loaded(dict(zip(loaded.inputs, split(arrays), strict=True))).values())
