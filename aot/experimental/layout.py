"""Orders of elements in memory, for arguments and results of `jit` and for `device_put`."""
from aot.layout import Format, Layout, with_layout_constraint

__all__ = ["Format", "Layout", "with_layout_constraint"]
