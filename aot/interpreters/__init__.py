"""Pieces of the transformations, for libraries that define primitives or transform jaxprs themselves."""
from aot.interpreters import ad, batching, mlir, partial_eval, xla

__all__ = ["ad", "batching", "mlir", "partial_eval", "xla"]
