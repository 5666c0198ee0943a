"""Cauchy distribution."""
from __future__ import annotations

from typing import Any

import numpy as np

from aot import lax
from aot.scipy._util import const, fused, inexact
from aot.scipy.stats._util import density, logarithm, mirrored, standardize

Array = Any


@fused()
def logpdf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Log density: -log(pi scale (1 + y^2))."""
    y, scale = standardize("cauchy.logpdf", x, loc, scale)
    return lax.neg(lax.add(lax.log(lax.mul(const(y, np.pi), scale)), lax.log1p(lax.mul(y, y))))


pdf = density(logpdf)


@fused()
def cdf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Probability of at most x: 1/2 + atan(y) / pi, in a form that keeps the tail."""
    y, _ = standardize("cauchy.cdf", x, loc, scale)
    return lax.mul(const(y, 1 / np.pi), lax.atan2(const(y, 1), lax.neg(y)))


logcdf = logarithm(cdf, "logcdf", "log of cdf.")
sf = mirrored(cdf, "sf", "Probability of more than x.")
logsf = mirrored(logcdf, "logsf", "log of sf.")


@fused()
def ppf(q: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """The inverse of cdf."""
    q, loc, scale = inexact("cauchy.ppf", q, loc, scale)
    return lax.add(lax.mul(lax.tan(lax.sub(lax.mul(const(q, np.pi), q), const(q, np.pi / 2))), scale), loc)


@fused()
def isf(q: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """The inverse of sf."""
    q, loc, scale = inexact("cauchy.isf", q, loc, scale)
    return lax.add(lax.mul(lax.tan(lax.sub(const(q, np.pi / 2), lax.mul(const(q, np.pi), q))), scale), loc)
