"""Activation functions, elementwise unless they say otherwise.  Integers are promoted to floats where needed."""
from __future__ import annotations

import functools
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.api import jit
from aot.custom import custom_jvp
from aot.nn._util import composite, inexact
from aot.numpy._util import arrays, check

Array = Any


@custom_jvp
@composite
@jit
def relu(x: Array) -> Array:
    """max(x, 0).  The derivative at 0 is 0."""
    return jnp.maximum(x, 0)


@relu.defjvp
def _relu_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    return relu(x), lax.select(x > 0, t, lax.full_like(t, 0))


@custom_jvp
@composite
@jit
def relu6(x: Array) -> Array:
    """min(max(x, 0), 6).  The derivative at 0 and at 6 is 0."""
    return jnp.minimum(jnp.maximum(x, 0), 6.0)


@relu6.defjvp
def _relu6_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    return relu6(x), lax.select((x > 0) & (x < 6), t, lax.full_like(t, 0))


@jit
def identity(x: Array) -> Array:
    """x itself."""
    return jnp.asarray(arrays("identity", x))


@functools.partial(jit, inline=True)
def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)).  Raises TypeError for integers."""
    return lax.logistic(arrays("sigmoid", x))


def tanh(x: Array, /) -> Array:
    """Hyperbolic tangent."""
    return jnp.tanh(x)


@composite
@jit
def softplus(x: Array) -> Array:
    """log(1 + exp(x)), without overflow."""
    return jnp.logaddexp(x, 0)


@jit
def sparse_plus(x: Array) -> Array:
    """0 below -1, x above 1, (x + 1)^2 / 4 between: a softplus with exact zeros."""
    check("sparse_plus", x)
    return jnp.where(x <= -1.0, 0.0, jnp.where(x >= 1.0, x, (x + 1.0) ** 2 / 4))


@composite
@jit
def soft_sign(x: Array) -> Array:
    """x / (|x| + 1)."""
    check("soft_sign", x)
    return x / (jnp.abs(x) + 1)


@composite
@jit
def silu(x: Array) -> Array:
    """x sigmoid(x), also called swish."""
    check("silu", x)
    return x * sigmoid(x)


swish = silu


@composite
@jit
def mish(x: Array) -> Array:
    """x tanh(softplus(x))."""
    check("mish", x)
    return x * jnp.tanh(softplus(x))


@jit
def log_sigmoid(x: Array) -> Array:
    """log(sigmoid(x)) = -softplus(-x)."""
    return -softplus(-arrays("log_sigmoid", x))


@composite
@jit
def elu(x: Array, alpha: Array = 1.0) -> Array:
    """x above 0, alpha (exp(x) - 1) below."""
    check("elu", x, alpha)
    # The inner where keeps expm1 away from large positive x, whose infinite value would make the gradient NaN.
    return jnp.where(x > 0, x, alpha * jnp.expm1(jnp.where(x > 0, 0.0, x)))


@composite
@jit
def leaky_relu(x: Array, negative_slope: Array = 1e-2) -> Array:
    """x from 0 on, negative_slope x below."""
    check("leaky_relu", x, negative_slope)
    return jnp.where(x >= 0, x, negative_slope * x)


@composite
@jit
def hard_tanh(x: Array) -> Array:
    """x clipped to [-1, 1]."""
    check("hard_tanh", x)
    return jnp.where(x > 1, 1, jnp.where(x < -1, -1, x))


@composite
@jit
def celu(x: Array, alpha: Array = 1.0) -> Array:
    """max(x, 0) + alpha (exp(min(x, 0) / alpha) - 1): an elu with continuous derivative."""
    check("celu", x, alpha)
    return jnp.maximum(x, 0.0) + alpha * jnp.expm1(jnp.minimum(x, 0.0) / alpha)


@composite
@jit
def selu(x: Array) -> Array:
    """A scaled elu that keeps activations normalized (Klambauer et al., "Self-normalizing neural networks", 2017)."""
    return 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717)


@composite
@functools.partial(jit, static_argnames="approximate", inline=True)
def gelu(x: Array, approximate: bool = True) -> Array:
    """x times the standard normal distribution function of x; by default its tanh approximation.

    Hendrycks and Gimpel, "Gaussian error linear units", 2016.
    """
    x = inexact("gelu", x)
    if approximate:
        scale = np.sqrt(2 / np.pi).astype(x.dtype)
        return x * (0.5 * (1.0 + jnp.tanh(scale * (x + 0.044715 * x ** 3))))
    return jnp.asarray(0.5 * x * lax.erfc(-x * np.sqrt(0.5).astype(x.dtype)), dtype=x.dtype)


@functools.partial(jit, static_argnames="axis")
def glu(x: Array, axis: int = -1) -> Array:
    """The first half of x along axis times the sigmoid of the second half; the axis must have even size."""
    x = arrays("glu", x)
    if x.shape[axis] % 2:
        raise ValueError(f"glu splits axis {axis} in two halves; its size {x.shape[axis]} is odd")
    first, second = jnp.split(x, 2, axis)
    return first * sigmoid(second)


@jit
def squareplus(x: Array, b: Array = 4) -> Array:
    """(x + sqrt(x^2 + b)) / 2: a smooth relu without exponentials."""
    check("squareplus", x, b)
    return (x + jnp.sqrt(jnp.square(x) + b)) / 2


@jit
def sparse_sigmoid(x: Array) -> Array:
    """x / 2 + 1 / 2 clipped to [0, 1]."""
    check("sparse_sigmoid", x)
    return 0.5 * jnp.clip(x + 1.0, 0.0, 2.0)


@composite
@jit
def hard_sigmoid(x: Array) -> Array:
    """relu6(x + 3) / 6."""
    check("hard_sigmoid", x)
    return relu6(x + 3.0) / 6.0


@composite
@jit
def hard_silu(x: Array) -> Array:
    """x hard_sigmoid(x), also called hard_swish."""
    check("hard_silu", x)
    return x * hard_sigmoid(x)


hard_swish = hard_silu


@custom_jvp
@jit
def log1mexp(x: Array) -> Array:
    """log(1 - exp(-x)) for x > 0, accurate for small and large x.

    Maechler, "Accurately computing log(1 - exp(-|a|))", 2012.
    """
    x = inexact("log1mexp", x)
    return jnp.where(x < jnp.log(2.0), jnp.log(-jnp.expm1(-x)), jnp.log1p(-jnp.exp(-x)))


@log1mexp.defjvp
def _log1mexp_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    return log1mexp(x), t / jnp.expm1(x)
