"""Types for annotations of one's own functions."""
from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np

from aot.array import Array


class _HasDType(Protocol):
    @property
    def dtype(self) -> np.dtype: ...


#: what functions of `aot.numpy` take as an array
ArrayLike: TypeAlias = Array | np.ndarray | np.bool_ | np.number | bool | int | float | complex
#: what they take as a dtype
DTypeLike: TypeAlias = str | type[Any] | np.dtype | _HasDType

__all__ = ["ArrayLike", "DTypeLike"]
