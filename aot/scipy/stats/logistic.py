"""Logistic distribution."""
from __future__ import annotations

from typing import Any

import aot.numpy as jnp
from aot import lax
from aot.scipy._util import const, fused, inexact
from aot.scipy.special.logarithms import expit, logit
from aot.scipy.stats._util import density, standardize

Array = Any


@fused()
def logpdf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Log density: -2 log(2 cosh(y / 2)) - log scale."""
    y, scale = standardize("logistic.logpdf", x, loc, scale)
    half = lax.div(y, const(y, 2))
    return lax.sub(lax.mul(const(y, -2), jnp.logaddexp(half, lax.neg(half))), lax.log(scale))


pdf = density(logpdf)


@fused()
def cdf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Probability of at most x."""
    return expit(standardize("logistic.cdf", x, loc, scale)[0])


@fused()
def sf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Probability of more than x."""
    return expit(lax.neg(standardize("logistic.sf", x, loc, scale)[0]))


@fused()
def ppf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """The inverse of cdf."""
    x, loc, scale = inexact("logistic.ppf", x, loc, scale)
    return lax.add(lax.mul(logit(x), scale), loc)


@fused()
def isf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """The inverse of sf."""
    x, loc, scale = inexact("logistic.isf", x, loc, scale)
    return lax.add(lax.mul(lax.neg(logit(x)), scale), loc)
