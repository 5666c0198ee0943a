"""Running ONNX files in onnxruntime, on the CPU."""
from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aot.errors import AotError

from .graph import ELEMENTS

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


def run(session: Any, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of a session in their order, of any element type."""
    import onnxruntime as ort
    feeds = {k: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.asarray(v, order="C"), ELEMENTS[v.dtype.name])
             if v.dtype.isbuiltin != 1 else ort.OrtValue.ortvalue_from_numpy(np.asarray(v, order="C"))
             for k, v in inputs.items()}
    found = session.run_with_ort_values([o.name for o in session.get_outputs()], feeds)
    return [to_numpy(v) for v in found]


def to_numpy(value: Any) -> np.ndarray:
    """A copy of what an OrtValue holds; its own method knows neither bfloat16 nor shapes of boolean scalars."""
    import ml_dtypes
    name = value.data_type().removeprefix("tensor(").removesuffix(")")
    dtype = np.dtype(getattr(ml_dtypes, _NAMES[name], _NAMES[name]))
    shape = tuple(value.shape())
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if not size:
        return np.empty(shape, dtype)
    return np.frombuffer(ctypes.string_at(value.data_ptr(), size), dtype).reshape(shape)


def interleaved(parts: Sequence[np.ndarray], dtypes: Sequence[np.dtype]) -> list[np.ndarray]:
    """Outputs by their program's dtypes: the two parts of a complex result become one array."""
    rest, found = iter(parts), []
    for dtype in dtypes:
        value = next(rest)
        if dtype.kind == "c":
            both = np.empty(value.shape, dtype)
            both.real, both.imag = value, next(rest)
            value = both
        found.append(value)
    return found


def feeds(names: Sequence[str], arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Inputs of a program by the names of the model's inputs: complex arrays as two."""
    flat = [part for x in arrays for part in ((x.real, x.imag) if x.dtype.kind == "c" else (x,))]
    return dict(zip(names, flat, strict=True))
