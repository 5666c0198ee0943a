"""Normal distribution."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.scipy._util import const, fused, inexact
from aot.scipy.special.error_functions import log_ndtr, ndtr, ndtri
from aot.scipy.stats._util import density, mirrored, standardize

Array = Any


@fused()
def logpdf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Log density: -(log(2 pi scale^2) + y^2) / 2."""
    x, loc, scale = inexact("norm.logpdf", x, loc, scale)
    variance = lax.square(scale)
    constant = lax.log(lax.mul(const(x, 2 * np.pi), variance))
    return lax.div(lax.add(constant, lax.div(lax.square(lax.sub(x, loc)), variance)), const(x, -2))


pdf = density(logpdf)


@fused()
def cdf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Probability of at most x."""
    return ndtr(standardize("norm.cdf", x, loc, scale)[0])


@fused()
def logcdf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """log of cdf."""
    return log_ndtr(standardize("norm.logcdf", x, loc, scale)[0])


sf = mirrored(cdf, "sf", "Probability of more than x.")
logsf = mirrored(logcdf, "logsf", "log of sf.")


def ppf(q: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """The inverse of cdf; q: float32 or float64."""
    return jnp.asarray(ndtri(q) * scale + loc, float)


def isf(q: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """The inverse of sf."""
    return ppf(lax.sub(const(q, 1), q), loc, scale)
