"""What every sampler shares: the decorator that compiles it, and the checks of its arguments."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from aot import dtypes
from aot.api import jit
from aot.ops.elementwise import convert_element_type
from aot.ops.shape import canonical_shape
from aot.trace import typeof


def sampler(*static: str) -> Callable:
    """Compile a sampler's inner function; `static` names its arguments that are not arrays.

    Eager calls then run as one program, and traced ones print as one named equation.
    """
    return functools.partial(jit, static_argnames=static)


def float_dtype(name: str, dtype: Any, complex_too: bool = False) -> np.dtype:
    """The canonical float dtype of a sampler's result (default: the configured float).

    Raises ValueError when it is not a float (or complex, if allowed).
    """
    result = dtypes.default_float_dtype() if dtype is None else dtypes.check_user_dtype_supported(dtype, name)
    if not dtypes.issubdtype(result, np.inexact if complex_too else np.floating):
        kinds = "float or complex" if complex_too else "float"
        raise ValueError(f"{name} makes {kinds} values; dtype {dtype} is not of that kind")
    return result


def int_dtype(name: str, dtype: Any) -> np.dtype:
    """The canonical integer dtype of a sampler's result (default: the configured integer)."""
    result = dtypes.default_int_dtype() if dtype is None else dtypes.check_user_dtype_supported(dtype, name)
    if not dtypes.issubdtype(result, np.integer):
        raise ValueError(f"{name} makes integers; dtype {dtype} is not an integer type")
    return result


def broadcast_shape(name: str, shape: Any, *params: Any) -> tuple[int, ...]:
    """The result shape: the broadcast shape of the parameters, or `shape` if they broadcast to it."""
    shapes = [typeof(p).shape for p in params]
    wanted = None if shape is None else canonical_shape(shape)
    try:
        joint = np.broadcast_shapes(*shapes, *([] if wanted is None else [wanted]))
    except ValueError:
        joint = None
    if joint is None or wanted not in (None, joint):
        raise ValueError(f"{name}: parameters of shapes {', '.join(map(str, shapes))} do not broadcast to "
                         f"{'one shape' if wanted is None else f'shape={wanted}'}")
    return joint


def cast(dtype: np.dtype, *values: Any) -> list[Any]:
    """Parameters in the dtype of the result."""
    return [convert_element_type(v, dtype) for v in values]
