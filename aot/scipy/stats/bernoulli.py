"""Bernoulli distribution: 1 with probability p, 0 otherwise."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.scipy._util import const, fused, inexact
from aot.scipy.special.logarithms import xlog1py, xlogy
from aot.scipy.stats._util import mass, unit

Array = Any


@fused()
def logpmf(k: Array, p: Array, loc: Array = 0) -> Array:
    """Log probability of k."""
    k, p, loc = inexact("bernoulli.logpmf", k, p, loc)
    x = lax.sub(k, loc)
    value = xlogy(x, p) + xlog1py(lax.sub(const(k, 1), x), -p)
    return jnp.where((x < 0) | (x > 1), -np.inf, value)


pmf = mass(logpmf)


@fused()
def cdf(k: Array, p: Array) -> Array:
    """Probability of at most k; NaN for p outside of [0, 1]."""
    k, p = inexact("bernoulli.cdf", k, p)
    zero, one = const(k, 0), const(k, 1)
    cases = [jnp.isnan(k) | ~unit(p), k < zero, (k >= zero) & (k < one), k >= one]
    return jnp.select(cases, [jnp.nan, zero, one - p, one])


@fused()
def ppf(q: Array, p: Array) -> Array:
    """The inverse of cdf."""
    q, p = inexact("bernoulli.ppf", q, p)
    zero, one = const(q, 0), const(q, 1)
    return jnp.where(unit(q) & unit(p), jnp.where(q <= one - p, zero, one), jnp.nan)
