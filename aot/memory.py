"""Memories of a device."""
import enum


class Space(enum.Enum):
    """Where an array lies: in the memory of the device, of its host, or in either."""
    Device = 1
    Host = 2
    Any = 3

    def __repr__(self) -> str: return f"MemorySpace.{self.name}"


__all__ = ["Space"]
