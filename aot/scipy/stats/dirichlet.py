"""Dirichlet distribution on the simplex, with concentrations alpha."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.scipy._util import const, fused, inexact
from aot.scipy.special.gamma_family import gammaln
from aot.scipy.special.logarithms import xlogy
from aot.scipy.stats._util import density

Array = Any


@fused()
def logpdf(x: Array, alpha: Array) -> Array:
    """Log density of x, shape (k, ..) or (k - 1, ..) with the last entry implied; alpha: shape (k,)."""
    x, alpha = jnp.asarray(x), jnp.asarray(alpha)
    if alpha.ndim != 1:
        raise ValueError(f"`alpha` must be one-dimensional; got alpha.shape={alpha.shape}")
    if x.shape[0] not in (alpha.shape[0], alpha.shape[0] - 1):
        raise ValueError("`x` must have either the same number of entries as `alpha` or one entry fewer; got "
                         f"x.shape={x.shape}, alpha.shape={alpha.shape}")
    dtype = inexact("dirichlet.logpdf", x.ravel()[:0].sum(), alpha[:0].sum())[0].dtype
    x, alpha = x.astype(dtype), alpha.astype(dtype)
    if x.shape[0] != alpha.shape[0]:
        x = jnp.concatenate([x, lax.sub(const(x, 1), x.sum(0, keepdims=True))], axis=0)
    constant = jnp.sum(gammaln(alpha)) - gammaln(jnp.sum(alpha))
    alpha = lax.broadcast_in_dim(alpha, alpha.shape + (1,) * (x.ndim - 1), (0,))
    value = lax.sub(jnp.sum(xlogy(lax.sub(alpha, const(x, 1)), x), axis=0), constant)
    simplex = jnp.all(x > 0, axis=0) & (abs(jnp.sum(x, axis=0) - 1) < 1e-6)
    return jnp.where(simplex, value, -np.inf)


pdf = density(logpdf)
