"""Where arrays live.  On one device there is one sharding."""
from __future__ import annotations

from typing import Any


class Sharding:
    """How an array is laid out over devices."""

    @property
    def device_set(self) -> set: raise NotImplementedError

    @property
    def num_devices(self) -> int: return len(self.device_set)

    is_fully_addressable = True
    is_fully_replicated = True
    memory_kind: str | None = None


class SingleDeviceSharding(Sharding):
    """A whole array on one device."""

    def __init__(self, device: Any, *, memory_kind: str | None = None):
        self._device, self.memory_kind = device, memory_kind

    @property
    def device_set(self) -> set: return {self._device}

    @property
    def addressable_devices(self) -> set: return {self._device}

    def shard_shape(self, global_shape) -> tuple[int, ...]: return tuple(global_shape)

    def devices_indices_map(self, global_shape) -> dict:
        return {self._device: tuple(slice(None) for _ in global_shape)}

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool: return self == other
    def __eq__(self, other): return isinstance(other, SingleDeviceSharding) and self._device == other._device
    def __hash__(self): return hash(self._device)
    def __repr__(self): return f"SingleDeviceSharding(device={self._device!r})"
