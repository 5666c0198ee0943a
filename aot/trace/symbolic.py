"""Symbolic zeros and the marker for linear operands, shared by the rules and the transforms."""
from __future__ import annotations

from typing import Any

from aot.trace.aval import ShapedArray, tangent_aval, typeof


class Zero:
    """A tangent or cotangent known to be zero; never materialised unless asked.  `aval` is the tangent's type."""
    __slots__ = ("aval",)

    def __init__(self, aval: ShapedArray):
        self.aval = aval

    @staticmethod
    def like(x: Any) -> Zero:
        """The zero tangent of the value x."""
        return Zero(tangent_aval(typeof(x)))

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)

    def __repr__(self): return f"Zero({self.aval.str_short()})"


class Linear:
    """Marks the operand that a transpose rule must produce a cotangent for."""
    __slots__ = ("aval",)

    def __init__(self, aval: ShapedArray):
        self.aval = aval

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: len(self.aval.shape))

    def __array__(self, *args, **kwargs):
        raise TypeError("linear_transpose of a function that is not linear: it multiplies two values that both depend on "
                        "its arguments, or applies a nonlinear function to one")

    def __repr__(self): return f"Linear({self.aval.str_short()})"


def is_zero(x: Any) -> bool:
    return type(x) is Zero


def is_linear(x: Any) -> bool:
    return type(x) is Linear
