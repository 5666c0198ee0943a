"""Exchange of arrays with other libraries without copies (https://dmlc.github.io/dlpack)."""
from __future__ import annotations

from typing import Any

import numpy as np

from aot import dtypes, xla
from aot.array import Array, device_put_one
from aot.compile.spmd import laid_out
from aot.sharding import SingleDeviceSharding
from aot.trace import ShapedArray

_SUPPORTED = frozenset(np.dtype(t) for t in (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", dtypes.bfloat16, "float32",
    "float64", "complex64", "complex128"))
_CPU, _CUDA, _CUDA_HOST, _ROCM = 1, 2, 3, 10
_PLATFORMS = {_CPU: "cpu", _CUDA: "cuda", _CUDA_HOST: "cuda", _ROCM: "rocm"}


def is_supported_dtype(dtype: Any) -> bool:
    """Whether arrays of this dtype can be exchanged."""
    if dtype is None:
        raise TypeError(f"Expected a string or dtype-like object; got {dtype=}")
    return np.dtype(dtype) in _SUPPORTED


def from_dlpack(external_array: Any, device: Any = None, copy: bool | None = None) -> Array:
    """An Array of the memory of any object with __dlpack__ and __dlpack_device__.

    copy: True always copies, False never, None where needed (unaligned memory)."""
    if not hasattr(external_array, "__dlpack__") or not hasattr(external_array, "__dlpack_device__"):
        raise TypeError("The array passed to from_dlpack must have __dlpack__ and __dlpack_device__ methods.")
    kind = int(external_array.__dlpack_device__()[0])
    if kind not in _PLATFORMS:
        raise TypeError(f"Array passed to from_dlpack is on unsupported device type (DLDeviceType: {kind}, array: "
                        f"{external_array}")
    if copy:
        return device_put_one(np.array(np.from_dlpack(external_array), copy=True), device)
    try:
        out = _import(external_array)
    except Exception as err:
        if "align" not in str(err):
            raise
        if copy is False:
            raise ValueError(f"Specified copy=False, but the memory needs a copy: {err}. hint: set copy=True or "
                             "copy=None") from err
        out = device_put_one(np.array(np.from_dlpack(external_array), copy=True), device)
    return out if device is None else device_put_one(out, device)


def _import(external_array: Any) -> Array:
    """The buffer as an Array; 64-bit values become 32-bit ones unless x64 is enabled."""
    buf = xla.dlpack_import(external_array.__dlpack__())
    host = xla.to_numpy(buf)
    dtype, aval = host.dtype, ShapedArray(host.shape, host.dtype)
    where = laid_out(SingleDeviceSharding(xla.default_device()), xla.layout_of(buf), aval)
    out = Array(xla.described(buf, xla.storage(aval), xla.buffer_sharding(where, host.ndim)), aval)
    canonical = dtypes.canonicalize_dtype(dtype)
    return out if canonical == dtype else device_put_one(np.asarray(out).astype(canonical))
