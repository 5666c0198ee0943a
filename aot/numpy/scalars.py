"""The dtype names as scalar types: `jnp.float32(3)` is an array, and `jnp.float32` is usable as a dtype."""
from __future__ import annotations

from typing import Any

import numpy as np

from aot import dtypes


class ScalarType(type):
    """Type of `jnp.float32` and its like. Calling one makes a zero-dimensional array; numpy takes it as a dtype."""

    dtype: np.dtype

    def __call__(cls, x: Any) -> Any:
        from aot.numpy.creation import asarray

        return asarray(x, dtype=cls.dtype)

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)

    def __eq__(cls, other: object) -> bool:
        return cls is other or cls.dtype.type == other

    def __ne__(cls, other: object) -> bool:
        return not cls == other

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.dtype.type)

    @property
    def __numpy_dtype__(cls) -> np.dtype:
        return cls.dtype


def _scalar_type(dtype: np.dtype) -> ScalarType:
    doc = f"`{dtype.name}` as a dtype; called with a number or array it makes an array of that dtype."
    return ScalarType(dtype.type.__name__, (object,), {"dtype": dtype, "__doc__": doc, "__module__": "aot.numpy"})


_BY_NAME = {dtype.name: _scalar_type(dtype) for dtype in dtypes.ALL}
_BY_NAME["bool_"] = _BY_NAME["bool"]
_ALIASES = {
    "single": "float32", "double": "float64", "csingle": "complex64", "cdouble": "complex128", "int_": "int64",
    "uint": "uint64", "float_": "float64", "complex_": "complex128",
}
globals().update(_BY_NAME, **{alias: _BY_NAME[name] for alias, name in _ALIASES.items()})
