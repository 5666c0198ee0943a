"""Binomial distribution: successes in n trials of probability p."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.scipy._util import fused, inexact
from aot.scipy.special.gamma_family import gammaln
from aot.scipy.special.logarithms import xlog1py, xlogy
from aot.scipy.stats._util import mass

Array = Any


@fused()
def logpmf(k: Array, n: Array, p: Array, loc: Array = 0) -> Array:
    """Log probability of k."""
    k, n, p, loc = inexact("binom.logpmf", k, n, p, loc)
    y = lax.sub(k, loc)
    ways = lax.sub(gammaln(n + 1), lax.add(gammaln(y + 1), gammaln(n - y + 1)))
    powers = lax.add(xlogy(y, p), xlog1py(lax.sub(n, y), lax.neg(p)))
    value = jnp.where(((y == 0) & (n == 0)) | (powers == 0), 0., lax.add(ways, powers))
    return jnp.where((k >= loc) & (k < loc + n + 1), value, -np.inf)


pmf = mass(logpmf)
