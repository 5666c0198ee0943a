"""For libraries that build on tracing: jaxprs, primitives, wrapped functions, source positions, key implementations."""
from __future__ import annotations

import importlib
from typing import Any

_MODULES = ("backend", "core", "linear_util", "mlir", "random", "source_info_util")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"aot.extend.{name}")
    raise AttributeError(f"module 'aot.extend' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
