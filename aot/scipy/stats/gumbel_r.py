"""Gumbel distribution of maxima: cdf = exp(-exp(-y)).  NaN unless scale > 0."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.scipy._util import const, fused, inexact
from aot.scipy.special.logarithms import xlogy
from aot.scipy.stats._util import density, exponential, standardize

Array = Any


@fused()
def logpdf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Log density: -y - exp(-y) - log scale."""
    y, scale = standardize("gumbel_r.logpdf", x, loc, scale)
    return jnp.where(scale > 0, lax.add(xlogy(-1, scale), lax.neg(lax.add(y, lax.exp(lax.neg(y))))), np.nan)


pdf = density(logpdf)


@fused()
def logcdf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """log of cdf."""
    y, scale = standardize("gumbel_r.logcdf", x, loc, scale)
    return jnp.where(scale > 0, lax.neg(lax.exp(lax.neg(y))), np.nan)


cdf = exponential(logcdf, "cdf", "Probability of at most x.")


@fused()
def sf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Probability of more than x."""
    y, scale = standardize("gumbel_r.sf", x, loc, scale)
    return jnp.where(scale > 0, lax.sub(const(y, 1), lax.exp(lax.neg(lax.exp(lax.neg(y))))), np.nan)


@fused()
def logsf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """log of sf: log(1 - exp(-t)) for t = exp(-y), by whichever form is accurate."""
    y, scale = standardize("gumbel_r.logsf", x, loc, scale)
    t = lax.exp(lax.neg(y))
    value = jnp.where(t < np.log(2), lax.log(-lax.expm1(lax.neg(t))), lax.log1p(lax.neg(lax.exp(lax.neg(t)))))
    return jnp.where(scale > 0, value, np.nan)


@fused()
def ppf(p: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """The inverse of cdf, for 0 < p < 1."""
    p, loc, scale = inexact("gumbel_r.ppf", p, loc, scale)
    return jnp.where((p > 0) & (p < 1), lax.sub(loc, lax.mul(scale, lax.log(xlogy(-1, p)))), np.nan)
