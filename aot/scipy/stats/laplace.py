"""Laplace distribution."""
from __future__ import annotations

from typing import Any

from aot import lax
from aot.scipy._util import const, fused
from aot.scipy.stats._util import density, standardize

Array = Any


@fused()
def logpdf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Log density: -|y| - log(2 scale)."""
    y, scale = standardize("laplace.logpdf", x, loc, scale)
    return lax.neg(lax.add(lax.abs(y), lax.log(lax.mul(const(y, 2), scale))))


pdf = density(logpdf)


@fused()
def cdf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Probability of at most x."""
    y, _ = standardize("laplace.cdf", x, loc, scale)
    half = const(y, 0.5)
    above = lax.sub(const(y, 1), lax.mul(half, lax.exp(lax.neg(y))))
    return lax.select(y <= 0, lax.mul(half, lax.exp(y)), above)
