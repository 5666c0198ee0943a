"""Gamma distribution with shape a."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.scipy._util import const, fused, inexact
from aot.scipy.special.gamma_family import gammainc, gammaincc, gammaln
from aot.scipy.special.logarithms import xlogy
from aot.scipy.stats._util import density, logarithm, standardize

Array = Any


@fused()
def logpdf(x: Array, a: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Log density: (a - 1) log y - y - lgamma(a) - log scale for y >= 0."""
    x, a, loc, scale = inexact("gamma.logpdf", x, a, loc, scale)
    inside = x >= loc
    y = jnp.where(inside, lax.div(lax.sub(x, loc), scale), const(x, 1))
    value = lax.sub(lax.sub(xlogy(lax.sub(a, const(x, 1)), y), y), lax.add(gammaln(a), lax.log(scale)))
    return jnp.where(inside, value, -np.inf)


pdf = density(logpdf)


@fused()
def cdf(x: Array, a: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Probability of at most x."""
    y, a, _ = standardize("gamma.cdf", x, a, loc, scale)
    return gammainc(a, lax.clamp(const(y, 0), y, const(y, np.inf)))


@fused()
def sf(x: Array, a: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Probability of more than x."""
    y, a, _ = standardize("gamma.sf", x, a, loc, scale)
    return jnp.where(y < 0, 1, gammaincc(a, y))


logcdf = logarithm(cdf, "logcdf", "log of cdf.")
logsf = logarithm(sf, "logsf", "log of sf.")
