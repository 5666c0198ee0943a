"""Comparisons of whole arrays, and questions about types and scalars."""
from __future__ import annotations

from typing import Any

import numpy as np

from aot import dtypes, lax
from aot.array_methods import ArrayMethods
from aot.numpy import reductions
from aot.numpy._util import array_of, broadcast, check, inexact, kind, named, promote, promote_args, real_of
from aot.numpy.elementwise import isfinite, isnan


@named("equal_nan")
def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """|a - b| <= atol + rtol * |b|, elementwise."""
    a, b = [array_of(x) for x in promote_args("isclose", a, b)]
    if dtypes.is_extended(a.dtype):
        return lax.eq(a, b)
    a, b = broadcast(*[array_of(x) for x in promote(a, b, to=inexact)])
    dtype = real_of(a.dtype)
    bound = lax.add(lax.convert_element_type(atol, dtype), lax.mul(lax.convert_element_type(rtol, dtype), lax.abs(b)))
    near = lax.bitwise_and(isfinite(b), lax.le(lax.abs(lax.sub(a, b)), bound))
    out = lax.bitwise_or(lax.eq(a, b), near)
    return lax.bitwise_or(out, lax.bitwise_and(isnan(a), isnan(b))) if equal_nan else out


@named("equal_nan")
def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """Whether all elements are close, see `isclose`."""
    check("allclose", a, b)
    return reductions.all(isclose(a, b, rtol, atol, equal_nan=equal_nan))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """Whether shapes and all elements are equal."""
    from aot.numpy.creation import array, asarray

    a1, a2 = asarray(a1), asarray(a2)
    if a1.shape != a2.shape:
        return array(False)
    same = a1 == a2
    return reductions.all(same | (isnan(a1) & isnan(a2)) if equal_nan else same)


def array_equiv(a1: Any, a2: Any) -> Any:
    """Whether all elements are equal after broadcasting."""
    from aot.numpy.creation import array, asarray

    a1, a2 = asarray(a1), asarray(a2)
    try:
        same = a1 == a2
    except (ValueError, TypeError):
        return array(False)
    return reductions.all(same)


# ---- types -----------------------------------------------------------------------------------------------------------
def iscomplexobj(x: Any) -> bool:
    """Whether `x` has a complex dtype."""
    if x is None or isinstance(x, (bool, int, float, str)):
        return False
    if isinstance(x, complex):
        return True
    if not hasattr(x, "dtype"):
        from aot.numpy.creation import asarray

        x = asarray(x)
    return kind(x.dtype) == "c"


def isrealobj(x: Any) -> bool:
    """Whether `x` has no complex dtype."""
    return not iscomplexobj(x)


def isscalar(element: Any) -> bool:
    """Whether `element` is a number or a zero-dimensional array."""
    if np.isscalar(element):
        return True
    if hasattr(element, "__jax_array__"):
        element = element.__jax_array__()
    return isinstance(element, (np.ndarray, ArrayMethods)) and element.ndim == 0


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Whether the first dtype is, or is below, the second in the hierarchy of scalar types."""
    return dtypes.issubdtype(arg1, arg2)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether `dtype` is of a kind such as "real floating", "integral" or "numeric"."""
    return dtypes.isdtype(dtype, kind)


def result_type(*args: Any) -> Any:
    """The dtype that arrays, scalars or dtypes combine to."""
    return dtypes.result_type(*args)


def promote_types(a: Any, b: Any) -> Any:
    """The dtype that two dtypes combine to."""
    return dtypes.promote_types(a, b)


