"""Spherical harmonics."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.numpy._util import concrete
from aot.scipy._util import fused

Array = Any


def sph_harm_y(n: Array, m: Array, theta: Array, phi: Array, diff_n: int | None = None, n_max: int | None = None) -> Array:
    """Spherical harmonics Y_n^m(theta, phi) of degree n >= 0 and order |m| <= n; theta: angle from the pole in [0, pi].

    n, m, theta, phi: vectors of one length, or scalars.  n_max: the largest degree, needed while tracing."""
    if diff_n is not None:
        raise NotImplementedError("The 'diff_n' argument to sph_harm_y is not supported.")
    if n_max is None:
        n_max = np.max(concrete(n, "The `n_max` argument of `sph_harm_y` must be given while tracing."))
    n_max = int(concrete(n_max, "The `n_max` argument of `sph_harm_y` must be known while tracing."))
    return _sph_harm(*[jnp.asarray(v) for v in (n, m)], jnp.atleast_1d(theta), jnp.asarray(phi), n_max=n_max)


@fused("n_max")
def _sph_harm(n: Array, m: Array, theta: Array, phi: Array, n_max: int) -> Array:
    order = jnp.abs(m)
    legendre = _legendre(jnp.minimum(n, n_max), order, jnp.cos(theta), n_max)
    angle = order * phi
    out = lax.complex(*jnp.broadcast_arrays(legendre * jnp.cos(angle), legendre * jnp.sin(angle)))
    return jnp.where(m < 0, (-1.0) ** order * jnp.conjugate(out), out)


def _legendre(n: Array, m: Array, x: Array, n_max: int) -> Array:
    """Associated Legendre functions with the factor sqrt((2n + 1) (n - m)! / (4 pi (n + m)!)), by upward recurrence
    (W. Press et al., Numerical Recipes, 6.7): first in the order up to m, then in the degree up to n."""
    n, m, x = jnp.broadcast_arrays(n, m.astype(x.dtype), x)
    sin = jnp.sqrt(1 - x * x)
    start = jnp.full_like(x, 0.5 / math.sqrt(math.pi))
    for k in range(1, n_max + 1):
        start = jnp.where(k <= m, start * sin * -math.sqrt(1 + 0.5 / k), start)

    def step(degree, carry):
        before, here, found = carry
        d = degree.astype(x.dtype)
        above = d > m
        gap = jnp.where(above, d * d - m * m, 1)
        a = jnp.sqrt((4 * d * d - 1) / gap)
        b = jnp.sqrt(jnp.where(above, (2 * d + 1) * ((d - 1) ** 2 - m * m) / ((2 * d - 3) * gap), 0))
        new = jnp.where(above, a * x * here - b * before, jnp.where(d == m, start, 0))
        return here, new, jnp.where(degree == n, new, found)
    zero = jnp.zeros_like(x)
    return lax.fori_loop(0, n_max + 1, step, (zero, zero, zero))[2]
