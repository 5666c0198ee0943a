"""Running ONNX files in onnxruntime, on the CPU."""
from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from aot.errors import AotError

from ..parts import joined, split
from .graph import ELEMENTS, NARROW

_NAMES = {"float": "float32", "double": "float64", **{n: n for n in ELEMENTS}, "float8e4m3fn": "float8_e4m3fn",
          "float8e5m2": "float8_e5m2", "float8e4m3fnuz": "float8_e4m3fnuz", "float8e5m2fnuz": "float8_e5m2fnuz"}


def session(model: bytes | str | os.PathLike, threads: int = 1) -> Any:
    """An onnxruntime session of a serialized model or a file.  Raises AotError where onnxruntime is missing or refuses it."""
    try:
        import onnxruntime as ort
    except ImportError:
        raise AotError("running ONNX models needs the package onnxruntime", hint="pip install 'aotc[onnx]'") from None
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    try:
        return ort.InferenceSession(model if isinstance(model, bytes) else os.fspath(model), options,
                                    providers=["CPUExecutionProvider"])
    except Exception as e:  # onnxruntime's exceptions have no common base but Exception
        raise AotError(f"onnxruntime does not load the model: {e}") from e


def run(model: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of a program, in its types, from onnxruntime.  model: an `Exported`."""
    names = [n for pair in model.inputs for n in pair]
    found = iter(call(session(model.data), dict(zip(names, split(inputs), strict=True))))
    return [joined([next(found) for _ in pair], t.dtype) for pair, t in zip(model.outputs, model.output_types)]


def open_file(path: str) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """A function from the program's inputs to the model's outputs, in order; complex results are two arrays each."""
    loaded = session(path)
    names = [i.name for i in loaded.get_inputs()]
    return lambda arrays: call(loaded, dict(zip(names, split(arrays), strict=True)))


def call(session: Any, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of a session in their order, of any element type."""
    found = session.run_with_ort_values([o.name for o in session.get_outputs()], {k: to_value(v) for k, v in inputs.items()})
    return [to_numpy(v) for v in found]


def to_value(x: np.ndarray) -> Any:
    """An OrtValue of an array of any element type."""
    import onnxruntime as ort
    x = np.asarray(x, order="C")
    if x.dtype.isbuiltin == 1:
        return ort.OrtValue.ortvalue_from_numpy(x)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(x, ELEMENTS[x.dtype.name])


def to_numpy(value: Any) -> np.ndarray:
    """A copy of what an OrtValue holds; its own method knows neither bfloat16 nor shapes of boolean scalars."""
    import ml_dtypes
    name = value.data_type().removeprefix("tensor(").removesuffix(")")
    dtype = np.dtype(getattr(ml_dtypes, _NAMES[name], _NAMES[name]))
    shape = tuple(value.shape())
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return np.empty(shape, dtype)
    if dtype.name in NARROW:
        return _unpacked(ctypes.string_at(value.data_ptr(), -(-count * NARROW[dtype.name] // 8)), dtype)[:count].reshape(shape)
    return np.frombuffer(ctypes.string_at(value.data_ptr(), count * dtype.itemsize), dtype).reshape(shape)


def _unpacked(data: bytes, dtype: np.dtype) -> np.ndarray:
    """Integers of less than a byte, of which the first one is lowest."""
    bits = NARROW[dtype.name]
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (np.frombuffer(data, np.uint8)[:, None] >> shifts & ((1 << bits) - 1)).reshape(-1).astype(np.int8)
    return np.where((parts >> (bits - 1) > 0) & (dtype.name[0] == "i"), parts - (1 << bits), parts).astype(dtype)
