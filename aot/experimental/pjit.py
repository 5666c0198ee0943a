"""`jit` under the name it had for partitioned programs."""
from aot.dispatch import jit as pjit

__all__ = ["pjit"]
