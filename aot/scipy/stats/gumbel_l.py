"""Gumbel distribution of minima: 1 - cdf = exp(-exp(y)).  NaN unless scale > 0."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.scipy._util import fused, inexact
from aot.scipy.special.logarithms import xlog1py, xlogy
from aot.scipy.stats._util import density, exponential, standardize

Array = Any


@fused()
def logpdf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Log density: y - exp(y) - log scale."""
    y, scale = standardize("gumbel_l.logpdf", x, loc, scale)
    value = lax.add(xlogy(-1, scale), lax.sub(y, lax.exp(y)))
    return jnp.where(scale > 0, jnp.where(y == np.inf, -np.inf, value), np.nan)


pdf = density(logpdf)


@fused()
def logcdf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """log of cdf."""
    y, scale = standardize("gumbel_l.logcdf", x, loc, scale)
    return jnp.where(scale > 0, lax.log(-lax.expm1(lax.neg(lax.exp(y)))), np.nan)


@fused()
def logsf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """log of sf."""
    y, scale = standardize("gumbel_l.logsf", x, loc, scale)
    return jnp.where(scale > 0, lax.neg(lax.exp(y)), np.nan)


cdf = exponential(logcdf, "cdf", "Probability of at most x.")
sf = exponential(logsf, "sf", "Probability of more than x.")


@fused()
def ppf(p: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """The inverse of cdf, for 0 < p < 1."""
    p, loc, scale = inexact("gumbel_l.ppf", p, loc, scale)
    value = lax.add(loc, lax.mul(scale, lax.log(xlog1py(-1, lax.neg(p)))))
    return jnp.where((p > 0) & (p < 1), value, np.nan)
