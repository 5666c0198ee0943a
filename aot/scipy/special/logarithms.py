"""Logarithms and exponentials that are careful at 0, and functions of probabilities."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.custom import custom_jvp
from aot.nn._normalize import logsumexp as logsumexp
from aot.scipy._util import const, fused, inexact, real

Array = Any


def softmax(x: Array, /, *, axis: Any = None) -> Array:
    """exp(x) / sum(exp(x)) along axis (all of them when None)."""
    from aot import nn
    return nn.softmax(x, axis=axis)


def log_softmax(x: Array, /, *, axis: Any = None) -> Array:
    """log(softmax(x)) along axis."""
    from aot import nn
    return nn.log_softmax(x, axis=axis)


@custom_jvp
def logit(x: Array) -> Array:
    """log(x / (1 - x))."""
    x = inexact("logit", x)
    return lax.log(lax.div(x, lax.sub(const(x, 1), x)))


logit.defjvps(lambda t, out, x: lax.div(t, lax.mul(x, lax.sub(const(x, 1), x))))


def expit(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return lax.logistic(inexact("expit", x))


def _times_log(name: str, log):
    """(x, y) -> x log(y) that is 0 where x is, whatever y (but NaN)."""
    def call(x: Array, y: Array) -> Array:
        x, y = inexact(name, x, y)
        return jnp.where((x != 0.) | jnp.isnan(y), lax.mul(x, log(y)), jnp.zeros_like(x))
    call.__name__ = call.__qualname__ = name
    return call


xlogy = custom_jvp(_times_log("xlogy", lax.log))
xlogy.__doc__ = "x log(y), with 0 where x = 0."
xlog1py = custom_jvp(_times_log("xlog1py", lax.log1p))
xlog1py.__doc__ = "x log(1 + y), with 0 where x = 0."


@xlogy.defjvp
def _xlogy_jvp(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    out = xlogy(x, y)
    return out, (dx * lax.log(y) + dy * x / y).astype(out.dtype)


@xlog1py.defjvp
def _xlog1py_jvp(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    out = xlog1py(x, y)
    return out, (dx * lax.log1p(y) + dy * x / (1 + y)).astype(out.dtype)


@custom_jvp
def _xlogx(x: Array) -> Array:
    return xlogy(x, x)


_xlogx.defjvps(lambda t, out, x: t * (lax.log(x) + 1))


@fused()
def entr(x: Array) -> Array:
    """-x log(x), and -inf for negative x."""
    x = real("entr", x)
    return lax.select(lax.lt(x, const(x, 0)), lax.full_like(x, -np.inf), lax.neg(_xlogx(x)))


@fused()
def rel_entr(p: Array, q: Array) -> Array:
    """p log(p / q); 0 where p = 0 <= q, inf outside of the domain."""
    p, q = real("rel_entr", p, q)
    zero = const(p, 0.0)
    inside, edge = (p > zero) & (q > zero), (p == zero) & (q >= zero)
    safe_p, safe_q = jnp.where(inside, p, 1), jnp.where(inside, q, 1)
    value = lax.sub(_xlogx(safe_p), xlogy(safe_p, safe_q))
    return jnp.where(inside, value, jnp.where(edge, zero, np.inf))


@fused()
def kl_div(p: Array, q: Array) -> Array:
    """p log(p / q) - p + q."""
    p, q = real("kl_div", p, q)
    return rel_entr(p, q) - p + q


def _power_transform(x: Array, lmbda: Array, log_x: Array) -> Array:
    zero = lmbda == 0
    safe = jnp.where(zero, jnp.ones_like(lmbda), lmbda)
    return jnp.where(zero, log_x, jnp.expm1(safe * log_x) / safe)


@fused()
def boxcox(x: Array, lmbda: Array) -> Array:
    """(x^lmbda - 1) / lmbda, and log(x) for lmbda = 0."""
    x, lmbda = inexact("boxcox", x, lmbda)
    return _power_transform(x, lmbda, jnp.log(x))


@fused()
def boxcox1p(x: Array, lmbda: Array) -> Array:
    """boxcox of 1 + x."""
    x, lmbda = inexact("boxcox1p", x, lmbda)
    return _power_transform(x, lmbda, jnp.log1p(x))
