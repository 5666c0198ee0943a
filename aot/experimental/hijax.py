"""The names that libraries define types and operations of their own with.  They can be defined; traced functions cannot use
them: to run one raises NotImplementedError.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aot.interpreters.ad import instantiate_zeros
from aot.ops.views import View as TransformedRef
from aot.trace import Linear, ShapedArray, Zero, is_linear
from aot.trace.aval import AbstractValue
from aot.trace.refs import AbstractRef

UndefinedPrimal = Linear
is_undefined_primal = is_linear


class _Effects(set):
    def add_type(self, kind: type) -> None:
        """Allow the effects of a type."""
        self.add(kind)


control_flow_allowed_effects = _Effects()


def _refuse(what: str) -> NotImplementedError:
    return NotImplementedError(f"{what}: types and operations of hijax are not supported. hint: use arrays, pytrees of them, "
                               "or references (new_ref); in flax.nnx, leave flax_hijax_variable off")


class HiPrimitive:
    """An operation on types of one's own."""

    def __init__(self, name: str = ""): self.name = name or type(self).__name__
    def bind(self, *args: Any, **params: Any) -> Any: raise _refuse(f"operation {self.name}")


class VJPHiPrimitive(HiPrimitive):
    """One with a derivative of its own."""
    def __call__(self, *args: Any) -> Any: raise _refuse(f"operation {self.name}")


class HiType(AbstractValue):
    """A type of one's own."""


class MutableHiType(HiType):
    """One whose values change."""


class HiPspec:
    """How a value of such a type is split."""


@dataclass(frozen=True)
class AvalQDD:
    """A type with what is known of the state of its value."""
    aval: Any
    qdd: Any


class AvalMutableQDD(AvalQDD):
    """The same, while it changes."""


def register_hitype(val_cls: type, typeof_fn: Any) -> None:
    """Values of a class have the type typeof_fn(value)."""


@dataclass(frozen=True)
class aval_property:
    """A property that tracers take from their type."""
    fget: Any


@dataclass(frozen=True)
class aval_method:
    """A method that tracers take from their type."""
    fun: Any


__all__ = ["AbstractRef", "AbstractValue", "AvalMutableQDD", "AvalQDD", "HiPrimitive", "HiPspec", "HiType", "MutableHiType",
           "ShapedArray", "TransformedRef", "VJPHiPrimitive", "Zero", "aval_method", "aval_property",
           "control_flow_allowed_effects", "instantiate_zeros", "is_undefined_primal", "register_hitype"]
