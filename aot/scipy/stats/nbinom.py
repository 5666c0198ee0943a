"""Negative binomial distribution: failures before n successes of probability p."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.scipy._util import const, fused, inexact
from aot.scipy.special.gamma_family import gammaln
from aot.scipy.special.logarithms import xlogy
from aot.scipy.stats._util import mass

Array = Any


@fused()
def logpmf(k: Array, n: Array, p: Array, loc: Array = 0) -> Array:
    """Log probability of k."""
    k, n, p, loc = inexact("nbinom.logpmf", k, n, p, loc)
    y, one = lax.sub(k, loc), const(k, 1)
    ways = lax.sub(lax.sub(gammaln(lax.add(y, n)), gammaln(n)), gammaln(lax.add(y, one)))
    value = lax.add(ways, lax.add(xlogy(n, p), xlogy(y, lax.sub(one, p))))
    return jnp.where(k < loc, -np.inf, value)


pmf = mass(logpmf)
