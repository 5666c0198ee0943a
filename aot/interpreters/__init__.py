"""Pieces of the transformations, for libraries that transform jaxprs themselves."""
from aot.interpreters import partial_eval, xla

__all__ = ["partial_eval", "xla"]
