"""Multivariate normal distribution."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.scipy._util import fused, inexact
from aot.scipy.stats._util import exponential

Array = Any


def logpdf(x: Array, mean: Array, cov: Array, allow_singular: None = None) -> Array:
    """Log density of x, shape (.., n); mean: (.., n) or a scalar; cov: (.., n, n), or a scalar variance."""
    if allow_singular is not None:
        raise NotImplementedError("allow_singular argument of multivariate_normal.logpdf")
    return _logpdf(*[jnp.asarray(v) for v in (x, mean, cov)])


@fused()
def _logpdf(x: Array, mean: Array, cov: Array) -> Array:
    dtype = inexact("multivariate_normal.logpdf", *[v.ravel()[:0].sum() for v in (x, mean, cov)])[0].dtype
    x, mean, cov = [v.astype(dtype) for v in (x, mean, cov)]
    log_2pi = float(np.log(2 * np.pi))
    if not mean.shape:
        return -1 / 2 * jnp.square(x - mean) / cov - 1 / 2 * (log_2pi + jnp.log(cov))
    n, y = mean.shape[-1], x - mean
    if not cov.shape:
        return -1 / 2 * jnp.sum(y * y, -1) / cov - n / 2 * (log_2pi + jnp.log(cov))
    if cov.ndim < 2 or cov.shape[-2:] != (n, n):
        raise ValueError("multivariate_normal.logpdf got incompatible shapes")
    lower = lax.linalg.cholesky(cov)
    batch = jnp.broadcast_shapes(lower.shape[:-2], y.shape[:-1])
    factor = jnp.broadcast_to(lower, (*batch, n, n))
    column = jnp.broadcast_to(y, (*batch, n))[..., None]
    white = lax.linalg.triangular_solve(factor, column, left_side=True, lower=True)[..., 0]
    log_det = jnp.log(jnp.diagonal(lower, axis1=-1, axis2=-2)).sum(-1)
    return -1 / 2 * jnp.sum(white * white, -1) - n / 2 * log_2pi - log_det


def _of_three(x: Array, mean: Array, cov: Array) -> Array: return logpdf(x, mean, cov)


pdf = exponential(_of_three, "pdf", "Probability density.")
