"""Python scalars that can be asked for their shape and dtype as arrays can."""
from __future__ import annotations

from typing import Any

import numpy as np

from aot.trace.aval import typeof


class _Typed:
    shape, ndim, size, weak_type = (), 0, 1, True
    dtype = property(lambda self: typeof(self).dtype)


class TypedInt(_Typed, int):
    """An int with a dtype."""


class TypedFloat(_Typed, float):
    """A float with a dtype."""


class TypedComplex(_Typed, complex):
    """A complex number with a dtype."""


_TYPED = {int: TypedInt, float: TypedFloat, complex: TypedComplex, bool: np.bool_}


def with_type(x: Any) -> Any:
    """x, where it is a Python scalar as one with a dtype."""
    kind = _TYPED.get(type(x))
    return x if kind is None else kind(x)
