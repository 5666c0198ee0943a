"""Modes, ranks and the standard error of the mean."""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import aot.numpy as jnp
from aot import dtypes, lax
from aot.api import vmap
from aot.numpy._util import axis_of, check
from aot.scipy._util import fused, inexact

Array = Any


class ModeResult(NamedTuple):
    """The most frequent values and how often they occur."""
    mode: Array
    count: Array


def _only_propagate(name: str, nan_policy: str) -> None:
    if nan_policy not in ("propagate", "omit", "raise"):
        raise ValueError(f"Illegal nan_policy value {nan_policy!r}; expected one of {{'propagate', 'omit', 'raise'}}")
    if nan_policy != "propagate":
        raise NotImplementedError(f"nan_policy={nan_policy!r} is not implemented for {name}; hint: which elements are NaN "
                                  "is not known while tracing")


def mode(a: Array, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False) -> ModeResult:
    """The smallest of the most frequent values along an axis (None: of all), and its count."""
    _only_propagate("mode", nan_policy)
    check("mode", a)
    return ModeResult(*_mode(a, axis=axis, keepdims=keepdims))


@fused("axis", "keepdims")
def _mode(a: Array, axis: int | None, keepdims: bool) -> tuple[Array, Array]:
    x = jnp.atleast_1d(a)
    along = range(x.ndim) if axis is None else (axis_of(axis, x.ndim),)
    shape = tuple(1 if i in along else n for i, n in enumerate(x.shape) if keepdims or i not in along)
    rows = x.reshape(1, -1) if axis is None else jnp.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])
    if not rows.shape[1]:
        return jnp.full(shape, np.nan), jnp.zeros(shape)

    def of_row(row):
        values, counts = jnp.unique(row, return_counts=True, size=row.size)
        return values[jnp.argmax(counts)], counts.max()
    values, counts = vmap(of_row)(rows)
    return values.reshape(shape), counts.reshape(shape)


def rankdata(a: Array, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate") -> Array:
    """Ranks from 1, as floats.  Ties get their average, min or max rank, ranks without gaps (dense), or their order of
    appearance (ordinal).  NaN anywhere makes all ranks NaN."""
    _only_propagate("rankdata", nan_policy)
    check("rankdata", a)
    if method not in ("average", "min", "max", "dense", "ordinal"):
        raise ValueError(f"unknown method '{method}'")
    if axis is not None:
        return jnp.apply_along_axis(_rankdata, axis, jnp.asarray(a), method=method)
    return _rankdata(a, method=method)


@fused("method")
def _rankdata(a: Array, method: str) -> Array:
    a = jnp.ravel(a)
    dtype = dtypes.default_float_dtype()
    ordered, order = lax.sort_key_val(a, jnp.arange(a.size))
    place = jnp.zeros_like(order).at[order].set(jnp.arange(a.size, dtype=order.dtype))
    if method == "ordinal":
        ranks = (place + 1).astype(dtype)
    else:
        new = jnp.concatenate([jnp.array([True]), ordered[1:] != ordered[:-1]])[:a.size]
        dense = new.cumsum()[place]
        starts = jnp.nonzero(new, size=a.size + 1, fill_value=a.size)[0].astype(dtype)
        ranks = {"dense": lambda: dense.astype(dtype), "max": lambda: starts[dense], "min": lambda: starts[dense - 1] + 1,
                 "average": lambda: .5 * (starts[dense] + starts[dense - 1] + 1)}[method]()
    return jnp.where(jnp.any(jnp.isnan(a)), jnp.full_like(ranks, np.nan), ranks)


@fused("axis", "ddof", "nan_policy", "keepdims")
def sem(a: Array, axis: int | None = 0, ddof: int = 1, nan_policy: str = "propagate", *, keepdims: bool = False) -> Array:
    """Standard error of the mean: std(ddof) / sqrt(count); nan_policy="omit" counts what is not NaN."""
    b = inexact("sem", a)
    if nan_policy == "propagate":
        size = b.size if axis is None else b.shape[axis]
        return b.std(axis, ddof=ddof, keepdims=keepdims) / jnp.sqrt(size).astype(b.dtype)
    if nan_policy != "omit":
        raise ValueError(f"{nan_policy} is not supported")
    count = (~jnp.isnan(b)).sum(axis, keepdims=keepdims)
    return jnp.nanstd(b, axis, ddof=ddof, keepdims=keepdims) / jnp.sqrt(count).astype(b.dtype)
