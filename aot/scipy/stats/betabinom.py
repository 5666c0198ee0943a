"""Beta-binomial distribution: binomial with a beta distributed p."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.scipy._util import const, fused, inexact
from aot.scipy.special.gamma_family import betaln
from aot.scipy.stats._util import mass

Array = Any


@fused()
def logpmf(k: Array, n: Array, a: Array, b: Array, loc: Array = 0) -> Array:
    """Log probability of k out of n; NaN unless n >= 0, a, b > 0."""
    k, n, a, b, loc = inexact("betabinom.logpmf", k, n, a, b, loc)
    y, one = lax.sub(lax.floor(k), loc), const(k, 1)
    ways = lax.neg(lax.add(lax.log1p(n), betaln(lax.add(lax.sub(n, y), one), lax.add(y, one))))
    value = lax.add(ways, lax.sub(betaln(lax.add(y, a), lax.add(lax.sub(n, y), b)), betaln(a, b)))
    value = jnp.where((y == 0) & (n == 0), 0., value)
    value = jnp.where((y < -loc) | (y > n) | (y + a <= 0), -np.inf, value)
    return jnp.where((n < 0) | (a <= 0) | (b <= 0), np.nan, value)


pmf = mass(logpmf)
