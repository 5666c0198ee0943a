"""Lowering: Jaxpr -> StableHLO text."""
from aot.lower.emitter import Emitter, Module, lower

__all__ = ["Emitter", "Module", "lower"]
