"""Softmax and its relatives, standardization, one-hot encoding: functions along axes."""
from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import dtypes, lax
from aot.api import jit
from aot.config import config, override
from aot.custom import custom_jvp
from aot.nn._util import composite, inexact
from aot.numpy._util import arrays, axes_of, axis_of, concrete_or_error

Array = Any
Axis = Any      # int, tuple of ints, or None for all


def _top(x: Array, axis: Axis, where: Array | None, keepdims: bool = True) -> Array:
    """The largest element that counts, as a constant for differentiation."""
    return jnp.max(x, axis, where=where, initial=-jnp.inf, keepdims=keepdims)


def logsumexp(a: Array, axis: Axis = None, b: Array | None = None, keepdims: bool = False, return_sign: bool = False,
              where: Array | None = None) -> Array | tuple[Array, Array]:
    """log(sum(b exp(a))) along axes, without overflow.

    Args:
      a: floats or complex.  b: weights that broadcast against a.  where: mask of the elements that count.
      return_sign: return (log(|sum|), sign(sum)); otherwise a negative sum gives NaN.
    """
    if b is None:
        a = inexact("logsumexp", a)
    else:
        a, b = inexact("logsumexp", a, b)
    if where is not None:
        a = jnp.where(where, a, 0)
    if b is not None:
        a = jnp.where(b != 0, a, -jnp.inf)
    top = _top(a.real if _is_complex(a) else a, axis, where, keepdims)
    top = lax.stop_gradient(lax.select(jnp.isfinite(top), top, lax.full_like(top, 0)))
    spread = top if keepdims else jnp.expand_dims(top, axes_of(axis, a.ndim))
    terms = lax.exp(jnp.subtract(a, spread.astype(a.dtype)))
    if b is not None:
        terms = jnp.multiply(terms, b)
    total = jnp.sum(terms, axis, keepdims=keepdims, where=where)
    sign = lax.sign(total)
    if return_sign or not _is_complex(a):
        total = abs(total)
    out = jnp.add(lax.log(total), top.astype(a.dtype if not return_sign else top.dtype))
    if return_sign:
        return out, sign
    if b is not None and not _is_complex(a):
        with override("debug_nans", False):
            out = jnp.where(sign < 0, jnp.array(np.nan, dtype=out.dtype), out)
    return out


def _is_complex(x: Array) -> bool:
    return dtypes.issubdtype(x.dtype, np.complexfloating)


@functools.partial(jit, static_argnames=("axis", "keepdims"))
def logmeanexp(x: Array, axis: Axis = None, where: Array | None = None, keepdims: bool = False) -> Array:
    """log(mean(exp(x))) along axes."""
    lse = logsumexp(x, axis, where=where, keepdims=keepdims)
    count = _count(x, axis, where, keepdims)
    return lse - jnp.log(count).astype(lse.dtype) if where is not None else lse - lax.log(lse.dtype.type(count))


def _count(x: Array, axis: Axis, where: Array | None, keepdims: bool) -> Any:
    """How many elements are reduced: a number, or an array when a mask decides."""
    if where is None:
        return np.prod([np.shape(x)[a] for a in axes_of(axis, np.ndim(x))], dtype=int)
    return jnp.sum(jnp.broadcast_to(where, np.shape(x)).astype(dtypes.default_int_dtype()), axis,
                   dtype=_float_of(x), keepdims=keepdims)


def _float_of(x: Array) -> Any:
    return dtypes.to_floating_dtype(inexact("logmeanexp", x).dtype)


@composite
@functools.partial(jit, static_argnames="axis")
def log_softmax(x: Array, axis: Axis = -1, where: Array | None = None) -> Array:
    """log(softmax(x)) along axes; -inf outside of the mask."""
    x = arrays("log_softmax", x)
    top = _top(x, axis, where)
    safe = x if where is None else jnp.where(where, x, -jnp.inf)
    shifted = safe - lax.stop_gradient(top)
    out = shifted - jnp.log(jnp.sum(jnp.exp(shifted), axis, where=where, keepdims=True))
    return out if where is None else jnp.where(where, out, -jnp.inf)


def softmax(x: Array, axis: Axis = -1, where: Array | None = None) -> Array:
    """exp(x) / sum(exp(x)) along axes; 0 outside of the mask.

    Under `config.softmax_custom_jvp`, the derivative is computed from the output alone, which saves memory.
    """
    x = arrays("softmax", x)
    compute = _softmax_from_output if config.softmax_custom_jvp else _softmax
    return compute(x, tuple(axis) if isinstance(axis, list) else axis, where)


@composite
@functools.partial(jit, static_argnames="axis")
def _softmax(x, axis, where):
    top = _top(x, axis, where)
    safe = x if where is None else jnp.where(where, x, -jnp.inf)
    e = jnp.exp(safe - lax.stop_gradient(top))
    out = e / jnp.sum(e, axis, where=where, keepdims=True)
    return out if where is None else jnp.where(where, out, 0)


@functools.partial(custom_jvp, nondiff_argnums=(1,))
def _softmax_from_output(x, axis, where):
    return _softmax(x, axis, where)


@_softmax_from_output.defjvp
def _softmax_jvp(axis, primals, tangents):
    (x, where), (t, _) = primals, tangents
    y = _softmax(x, axis, where)
    return y, y * (t - jnp.sum(y * t, axis, where=where, keepdims=True))


@composite
@functools.partial(jit, static_argnames=("axis", "algorithm"))
def standardize(x: Array, axis: Axis = -1, mean: Array | None = None, variance: Array | None = None,
                epsilon: Array = 1e-5, where: Array | None = None, *, algorithm: str = "fast") -> Array:
    """(x - mean) / sqrt(variance + epsilon), by default with the mean and variance along axes.

    algorithm: 'fast' computes the variance as mean(x^2) - mean(x)^2, which loses digits when the mean is large;
    'stable' as mean((x - mean)^2).
    """
    if algorithm not in ("fast", "stable"):
        raise ValueError(f"standardize: algorithm is 'fast' or 'stable', got {algorithm!r}")
    x = inexact("standardize", x)
    if mean is None:
        mean = jnp.mean(x, axis, keepdims=True, where=where)
    if variance is None:
        if algorithm == "fast":
            spread = jnp.mean(jnp.square(x), axis, keepdims=True, where=where) - jnp.square(mean)
            variance = jnp.clip(spread, 0)      # rounding could make it negative
        else:
            variance = jnp.mean(jnp.square(x - mean), axis, keepdims=True, where=where)
    return jnp.subtract(x, mean) * lax.rsqrt(jnp.asarray(variance + epsilon))


def one_hot(x: Array, num_classes: int, *, dtype: Any = None, axis: Any = -1) -> Array:
    """Integers as vectors of zeros with a one at their position; all zeros outside of [0, num_classes).

    Args:
      dtype: of the result; default float.
      axis: where the new dimension goes; or the name of a mapped axis of that size, along which each copy gets its own
        element.
    """
    size = concrete_or_error(operator.index, num_classes, "num_classes of one_hot must be known statically.")
    dtype = dtypes.default_float_dtype() if dtype is None else dtypes.check_user_dtype_supported(dtype, "one_hot")
    return _one_hot(x, num_classes=size, dtype=dtype, axis=axis)


@functools.partial(jit, static_argnames=("num_classes", "dtype", "axis"))
def _one_hot(x, *, num_classes, dtype, axis):
    x = jnp.asarray(x)
    try:
        at = axis_of(axis, x.ndim + 1)
    except TypeError:
        if lax.axis_size(axis) != num_classes:
            raise ValueError(f"one_hot: mapped axis {axis!r} has size {lax.axis_size(axis)}, not num_classes="
                             f"{num_classes}") from None
        return jnp.asarray(x == lax.axis_index(axis), dtype=dtype)
    shape = [1] * (x.ndim + 1)
    shape[at] = num_classes
    classes = lax.broadcasted_iota(x.dtype, shape, at)
    return jnp.asarray(lax.expand_dims(x, (at,)) == classes, dtype=dtype)


