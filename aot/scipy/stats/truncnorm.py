"""Normal distribution limited to [loc + a scale, loc + b scale]."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.scipy._util import fused, inexact
from aot.scipy.special.error_functions import log_ndtr, ndtr
from aot.scipy.special.logarithms import logsumexp
from aot.scipy.stats import norm
from aot.scipy.stats._util import density, exponential

Array = Any


def _log_difference(x: Array, y: Array) -> Array:
    """log(exp(x) - exp(y))."""
    return logsumexp(jnp.array([x, y]), b=jnp.array([jnp.ones_like(x), -jnp.ones_like(y)]), axis=0)


def _log_mass(a: Array, b: Array) -> Array:
    """log probability of [a, b] under the standard normal: in the left tail, or in its mirror image on the right, or by
    the complement in the middle."""
    a, b = jnp.broadcast_arrays(a, b)
    right, left = a > 0, b <= 0
    tail = _log_difference(log_ndtr(jnp.where(right, -a, b)), log_ndtr(jnp.where(right, -b, a)))
    return jnp.where(right | left, tail, jnp.log1p(-ndtr(a) - ndtr(-b)))


@fused()
def logpdf(x: Array, a: Array, b: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Log density; NaN unless a < b."""
    x, a, b, loc, scale = inexact("truncnorm.logpdf", x, a, b, loc, scale)
    value, y = lax.sub(norm.logpdf(x, loc, scale), _log_mass(a, b)), lax.div(lax.sub(x, loc), scale)
    return jnp.where(a >= b, np.nan, jnp.where((y < a) | (y > b), -np.inf, value))


pdf = density(logpdf)


@fused()
def logcdf(x: Array, a: Array, b: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """log of cdf; close to 0 by the upper tail."""
    x, a, b, loc, scale = inexact("truncnorm.logcdf", x, a, b, loc, scale)
    x, a, b = jnp.broadcast_arrays(x, a, b)
    x = lax.div(lax.sub(x, loc), scale)
    total = _log_mass(a, b)
    low, high = _log_mass(a, x) - total, _log_mass(x, b) - total
    value = jnp.select([x >= b, x <= a, low > -0.1, x > a], [0, -np.inf, jnp.log1p(-jnp.exp(high)), low])
    return jnp.where(a >= b, np.nan, value)


@fused()
def logsf(x: Array, a: Array, b: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """log of sf."""
    x, a, b, loc, scale = inexact("truncnorm.logsf", x, a, b, loc, scale)
    return logcdf(-x, -b, -a, -loc, scale)


cdf = exponential(logcdf, "cdf", "Probability of at most x.")
sf = exponential(logsf, "sf", "Probability of more than x.")
