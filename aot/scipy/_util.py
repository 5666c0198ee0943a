"""What every part of `aot.scipy` shares: arguments, polynomials, lazily loaded packages."""
from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aot import dtypes, lax
from aot.modules import fill
from aot.numpy import _util
from aot.numpy._util import fused as fused
from aot.numpy._util import is_tracer as is_tracer
from aot.numpy._util import named as named

Array = Any


def numeric(name: str, *args: Any) -> Any:
    """Arguments as arrays of one dtype; TypeError, naming the function, for what is no array."""
    out = [_util.array_of(x) for x in _util.promote_args(name, *args)]
    return out[0] if len(out) == 1 else out


def inexact(name: str, *args: Any) -> Any:
    """Arguments as arrays of one float or complex dtype (and rank, apart from scalars)."""
    out = [_util.array_of(x) for x in _util.promote_args(name, *args, to=_util.inexact)]
    return out[0] if len(out) == 1 else out


def real(name: str, *args: Any) -> Any:
    """As `inexact`, but complex arguments are refused."""
    out = inexact(name, *args)
    if is_complex(out[0] if isinstance(out, list) else out):
        raise ValueError(f"{name} does not support complex-valued inputs.")
    return out


def is_complex(x: Array) -> bool:
    """Whether an array is complex."""
    return dtypes.issubdtype(x.dtype, np.complexfloating)


def strong(x: Array) -> Array:
    """x without weak type."""
    return lax._convert_element_type(x, x.dtype, False)


def const(x: Array, value: Any) -> Any:
    """`value` with the dtype and weak type of x."""
    return _util.constant(x, value)


def polynomial(coefficients: Sequence[float], x: Array) -> Array:
    """The polynomial with these coefficients, highest degree first, at x."""
    out = const(x, coefficients[0])
    for c in coefficients[1:]:
        out = lax.add(lax.mul(out, x), const(x, c))
    return lax.full_like(x, coefficients[0]) if len(coefficients) == 1 else out


def ratio(pair: tuple[Sequence[float], Sequence[float]], x: Array) -> Array:
    """A rational function (numerator, denominator) at x."""
    return lax.div(polynomial(pair[0], x), polynomial(pair[1], x))


def lazily(package: str, files: dict[str, str], modules: str = "") -> tuple[Callable, Callable, list[str]]:
    """(__getattr__, __dir__, __all__) of a package whose names load when first used; files: file -> its names."""
    where = {name: file for file, names in files.items() for name in names.split()}
    submodules = modules.split()

    def getattr_(name: str) -> Any:
        if name in submodules:
            return importlib.import_module(f"{package}.{name}")
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{where[name]}"), name)
    names = sorted([*where, *submodules])
    fill(package)
    return getattr_, lambda: names, names
