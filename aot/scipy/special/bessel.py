"""Bessel functions."""
from __future__ import annotations

import operator
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.custom import custom_jvp
from aot.numpy._util import concrete
from aot.scipy._util import fused, inexact, is_complex

Array = Any


def i0e(x: Array) -> Array:
    """exp(-|x|) I0(x)."""
    return lax.bessel_i0e(inexact("i0e", x))


@custom_jvp
@fused()
def i0(x: Array) -> Array:
    """Modified Bessel function of order 0."""
    x = inexact("i0", x)
    return lax.mul(lax.exp(lax.abs(x)), lax.bessel_i0e(x))


i0.defjvps(lambda t, out, x: lax.mul(t, i1(x)))      # also at 0, where |x| has no derivative


def i1e(x: Array) -> Array:
    """exp(-|x|) I1(x)."""
    return lax.bessel_i1e(inexact("i1e", x))


@fused()
def i1(x: Array) -> Array:
    """Modified Bessel function of order 1."""
    x = inexact("i1", x)
    return lax.mul(lax.exp(lax.abs(x)), lax.bessel_i1e(x))


def bessel_jn(z: Array, *, v: int, n_iter: int = 50) -> Array:
    """J_0 .. J_v of real z, stacked: shape (v + 1, *z.shape)."""
    v = concrete(v, "Argument v of bessel_jn.")
    n_iter = int(concrete(n_iter, "Argument n_iter of bessel_jn."))
    return _bessel_jn(z, v=operator.index(v), n_iter=n_iter)


@fused("v", "n_iter")
def _bessel_jn(z: Array, v: int, n_iter: int) -> Array:
    """Miller's backward recurrence J_(k-1) = 2 k J_k / z - J_(k+1), normalised by J_0 + 2 (J_2 + J_4 + ..) = 1."""
    z = inexact("bessel_jn", z)
    if is_complex(z):
        raise ValueError("complex input not supported.")

    def step(carry, k):
        above, here, evens = carry
        below = 2.0 * (k + 1.0) * here / z - above
        return (here, below, jnp.where(jnp.mod(k, 2) == 0, evens + 2.0 * below, evens)), below
    zero = jnp.zeros(z.shape, z.dtype)
    init = zero, jnp.full(z.shape, 1e-16, z.dtype), zero
    (_, _, evens), values = lax.scan(step, init, lax.iota(np.dtype(z.dtype), n_iter + 1), reverse=True)
    return values[:v + 1] / (evens - values[0])
