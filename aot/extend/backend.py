"""Backends by name."""
from __future__ import annotations

from typing import Any

from aot import xla
from aot.environment import (
    clear_caches,
    default_backend,
    device_count,
    devices,
    local_devices,
    process_count,
    process_index,
)
from aot.xla import default_device as get_default_device


def get_backend(platform: str | None = None) -> Any:
    """The client of a platform.  RuntimeError where this process has none."""
    return xla.client(platform or default_backend())


def backends() -> dict[str, Any]:
    """The clients that this process has, by platform; none before the first use."""
    return {default_backend(): get_backend()} if xla.started() else {}


def clear_in_memory_compilation_cache() -> None:
    """Forget what was compiled."""
    clear_caches()


__all__ = ["backends", "clear_in_memory_compilation_cache", "default_backend", "device_count", "devices",
           "get_backend", "get_default_device", "local_devices",
           "process_count", "process_index"]
