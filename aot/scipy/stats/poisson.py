"""Poisson distribution of mean mu."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.scipy._util import const, fused, inexact
from aot.scipy.special.gamma_family import gammaincc, gammaln
from aot.scipy.special.logarithms import entr, xlogy
from aot.scipy.stats._util import mass

Array = Any


@fused()
def logpmf(k: Array, mu: Array, loc: Array = 0) -> Array:
    """Log probability of k; -inf for negative and fractional k."""
    k, mu, loc = inexact("poisson.logpmf", k, mu, loc)
    x = lax.sub(k, loc)
    return jnp.where((x < 0) | (jnp.round(k) != k), -np.inf, xlogy(x, mu) - gammaln(x + 1) - mu)


pmf = mass(logpmf)


@fused()
def cdf(k: Array, mu: Array, loc: Array = 0) -> Array:
    """Probability of at most k."""
    k, mu, loc = inexact("poisson.cdf", k, mu, loc)
    x = lax.sub(k, loc)
    return jnp.where(x < 0, const(k, 0), gammaincc(jnp.floor(1 + x), mu))


@fused()
def entropy(mu: Array, loc: Array = 0) -> Array:
    """Entropy: a sum over probabilities for mu < 100, above that log(2 pi e mu) / 2 - 1 / (12 mu)."""
    mu, loc = inexact("poisson.entropy", mu, loc)
    shape = jnp.broadcast_shapes(mu.shape, loc.shape)
    flat = mu.ravel()
    small = _entropy_sum(flat, 35, jnp.ceil(flat + 20))
    medium = _entropy_sum(flat, 250, jnp.ceil(flat + 10 * jnp.sqrt(flat) + 20))
    large = 0.5 * jnp.log(2 * np.pi * np.e * flat) - 1 / (12 * flat)
    out = jnp.where(flat == 0, 0, jnp.where(flat < 10, small, jnp.where(flat < 100, medium, large)))
    return jnp.broadcast_to(out.reshape(mu.shape), shape).astype(mu.dtype)


def _entropy_sum(mu: Array, size: int, upper: Array) -> Array:
    k = jnp.arange(size, dtype=mu.dtype)[:, None]
    return jnp.sum(entr(jnp.where(k < upper[None, :], pmf(k, mu), 0.0)), axis=0)
