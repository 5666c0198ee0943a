"""Beta distribution on [loc, loc + scale]: density proportional to y^(a - 1) (1 - y)^(b - 1)."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.scipy._util import const, fused, inexact
from aot.scipy.special.gamma_family import betainc, betaln
from aot.scipy.special.logarithms import xlog1py, xlogy
from aot.scipy.stats._util import density, logarithm, standardize

Array = Any


@fused()
def logpdf(x: Array, a: Array, b: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Log density; NaN unless a, b, scale > 0."""
    x, a, b, loc, scale = inexact("beta.logpdf", x, a, b, loc, scale)
    y, one = lax.div(lax.sub(x, loc), scale), const(x, 1)
    terms = lax.add(xlogy(lax.sub(a, one), y), xlog1py(lax.sub(b, one), lax.neg(y)))
    value = lax.sub(lax.add(lax.neg(betaln(a, b)), terms), lax.log(scale))
    value = jnp.where((x > loc + scale) | (x < loc), -np.inf, value)
    return jnp.where((a <= 0) | (b <= 0) | (scale <= 0), np.nan, value)


pdf = density(logpdf)


def _inside(y: Array) -> Array:
    return lax.clamp(const(y, 0), y, const(y, 1))


@fused()
def cdf(x: Array, a: Array, b: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Probability of at most x."""
    y, a, b, _ = standardize("beta.cdf", x, a, b, loc, scale)
    return betainc(a, b, _inside(y))


@fused()
def sf(x: Array, a: Array, b: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Probability of more than x."""
    y, a, b, _ = standardize("beta.sf", x, a, b, loc, scale)
    return betainc(b, a, 1 - _inside(y))


logcdf = logarithm(cdf, "logcdf", "log of cdf.")
logsf = logarithm(sf, "logsf", "log of sf.")
