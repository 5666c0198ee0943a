"""scipy's functions with JAX's names: plain functions over `aot.numpy` and `aot.lax`, loaded when first used."""
from __future__ import annotations

import importlib
from typing import Any

_SUBPACKAGES = ("cluster", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal", "sparse",
                "spatial", "special", "stats")
__all__ = list(_SUBPACKAGES)


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"aot.scipy.{name}")
    raise AttributeError(f"module 'aot.scipy' has no attribute {name!r}")


def __dir__() -> list[str]: return sorted([*globals(), *_SUBPACKAGES])
