"""Exponential distribution."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.scipy._util import fused, inexact
from aot.scipy.stats._util import density, exponential, unit

Array = Any


@fused()
def logpdf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Log density: -y - log scale for y >= 0."""
    x, loc, scale = inexact("expon.logpdf", x, loc, scale)
    return jnp.where(x < loc, -np.inf, lax.neg(lax.add(lax.div(lax.sub(x, loc), scale), lax.log(scale))))


pdf = density(logpdf)


@fused()
def cdf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Probability of at most x: 1 - exp(-y)."""
    x, loc, scale = inexact("expon.cdf", x, loc, scale)
    minus = lax.div(lax.sub(loc, x), scale)
    return jnp.where(x < loc, jnp.zeros_like(minus), lax.neg(lax.expm1(minus)))


@fused()
def logsf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """log of sf."""
    x, loc, scale = inexact("expon.sf", x, loc, scale)
    minus = lax.div(lax.sub(loc, x), scale)
    return jnp.where(x < loc, jnp.zeros_like(minus), minus)


sf = exponential(logsf, "sf", "Probability of more than x.")


@fused()
def logcdf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """log of cdf."""
    return lax.log1p(lax.neg(sf(x, loc, scale)))


@fused()
def ppf(q: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """The inverse of cdf."""
    q, loc, scale = inexact("expon.ppf", q, loc, scale)
    return jnp.where(unit(q), lax.sub(loc, lax.mul(scale, lax.log1p(lax.neg(q)))), np.nan)
