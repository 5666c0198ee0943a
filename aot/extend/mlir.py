"""StableHLO programs as portable files."""
from __future__ import annotations

from aot import mlir


def serialize_portable_artifact(module: str | bytes, version: str | None = None) -> bytes:
    """A StableHLO program (text or bytecode) as bytecode that later versions of StableHLO read; version: as "1.0.0"."""
    return mlir.portable_bytecode(module, version)


def deserialize_portable_artifact(artifact: bytes) -> str:
    """The text of a program from portable bytecode."""
    return str(mlir.from_portable_bytecode(artifact))


__all__ = ["deserialize_portable_artifact", "serialize_portable_artifact"]
