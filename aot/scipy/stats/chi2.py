"""Chi-squared distribution with df degrees of freedom."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.scipy._util import const, fused, inexact
from aot.scipy.special.gamma_family import gammainc, gammaincc
from aot.scipy.stats._util import density, logarithm, standardize

Array = Any


@fused()
def logpdf(x: Array, df: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Log density: (df/2 - 1) log y - y/2 - (df/2) log 2 - lgamma(df/2) - log scale."""
    x, df, loc, scale = inexact("chi2.logpdf", x, df, loc, scale)
    y, half, two = lax.div(lax.sub(x, loc), scale), lax.div(df, const(df, 2)), const(x, 2)
    kernel = lax.sub(lax.mul(lax.sub(half, const(x, 1)), lax.log(y)), lax.div(y, two))
    constant = lax.add(lax.lgamma(half), lax.mul(const(x, np.log(2)), half))
    return jnp.where(x < loc, -np.inf, lax.add(lax.sub(lax.neg(constant), lax.log(scale)), kernel))


pdf = density(logpdf)


def _halves(name: str, x: Array, df: Array, loc: Array, scale: Array) -> tuple[Array, Array]:
    y, df, _ = standardize(name, x, df, loc, scale)
    y = lax.clamp(const(y, 0), lax.div(y, const(y, 2)), const(y, np.inf))
    return lax.div(df, const(df, 2)), y


@fused()
def cdf(x: Array, df: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Probability of at most x."""
    return gammainc(*_halves("chi2.cdf", x, df, loc, scale))


@fused()
def sf(x: Array, df: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Probability of more than x."""
    return gammaincc(*_halves("chi2.sf", x, df, loc, scale))


logcdf = logarithm(cdf, "logcdf", "log of cdf.")
logsf = logarithm(sf, "logsf", "log of sf.")
