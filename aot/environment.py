"""The process: its devices and place among others, live arrays, caches, versions."""
from __future__ import annotations

import gc
import platform
import sys
from typing import Any

from aot import xla
from aot.array import Array


class _AnyDevice(type):
    def __instancecheck__(cls, x: Any) -> bool:
        from aot.sharding import AbsentDevice
        return isinstance(x, (xla.ext.Device, AbsentDevice))


class Device(metaclass=_AnyDevice):
    """What `devices` gives: for annotations and isinstance."""

    def __new__(cls) -> Device: raise TypeError("devices are not made. hint: aot.devices() gives those that are here")


def devices(backend: str | None = None) -> list:
    """All devices of the default platform."""
    return xla.client(backend or "cpu").devices()


def local_devices(process_index: int | None = None, backend: str | None = None, host_id: int | None = None) -> list:
    """The devices of one process (this one by default).  host_id is the old name of process_index."""
    process_index = host_id if process_index is None else process_index
    which = xla.client(backend or "cpu").process_index() if process_index is None else process_index
    return [d for d in devices(backend) if d.process_index == which]


def device_count(backend: str | None = None) -> int: return len(devices(backend))


def local_device_count(backend: str | None = None) -> int: return len(local_devices(backend=backend))


def default_backend() -> str:
    """The platform that arrays are made on."""
    return xla.client().platform


def process_index(backend: str | None = None) -> int: return xla.client(backend or "cpu").process_index()


def process_indices(backend: str | None = None) -> list[int]:
    return sorted({d.process_index for d in devices(backend)})


def process_count(backend: str | None = None) -> int: return len(process_indices(backend))


# their former names
host_id, host_ids, host_count = process_index, process_indices, process_count


def live_arrays(platform: str | None = None) -> list[Array]:
    """Every array that the program still holds.  Raises RuntimeError for a platform that is not there."""
    if platform is not None:
        xla.client(platform)        # there is one
    return [x for x in gc.get_objects() if type(x) is Array and not x.is_deleted()]


def clear_caches() -> None:
    """Forget all traces and compiled programs of this process."""
    from aot import dispatch
    from aot.compile import eager
    from aot.trace import memo
    for function in list(dispatch._all_jitted):
        function.clear_cache()
    memo.forget()
    eager.clear_caches()


def print_environment_info(return_string: bool = False) -> str | None:
    """Versions and devices, for a bug report."""
    import numpy

    import aot
    info = xla.version_info()
    lines = [f"aot:    {aot.__version__}", f"jaxlib: {info['jaxlib']}", f"numpy:  {numpy.__version__}",
             f"python: {sys.version}", f"device info: {device_count()} x {default_backend()}",
             f"process_count: {process_count()}", f"platform: {platform.platform()}"]
    text = "\n".join(lines)
    if return_string:
        return text
    print(text)
    return None
