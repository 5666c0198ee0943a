"""Generalized normal distribution: density proportional to exp(-|x|^beta)."""
from __future__ import annotations

from typing import Any

from aot import lax
from aot.scipy._util import fused, inexact
from aot.scipy.special.gamma_family import gammainc
from aot.scipy.stats._util import density

Array = Any


@fused()
def logpdf(x: Array, beta: Array) -> Array:
    """Log density."""
    x, beta = inexact("gennorm.logpdf", x, beta)
    return lax.log(.5 * beta) - lax.lgamma(1 / beta) - lax.abs(x) ** beta


pdf = density(logpdf)


@fused()
def cdf(x: Array, beta: Array) -> Array:
    """Probability of at most x."""
    x, beta = inexact("gennorm.cdf", x, beta)
    return .5 * (1 + lax.sign(x) * gammainc(1 / beta, lax.abs(x) ** beta))
