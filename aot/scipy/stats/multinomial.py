"""Multinomial distribution: counts of n draws from the probabilities p."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import dtypes
from aot.scipy._util import fused, inexact, numeric
from aot.scipy.special.gamma_family import gammaln
from aot.scipy.special.logarithms import xlogy
from aot.scipy.stats._util import mass

Array = Any


@fused()
def logpmf(x: Array, n: Array, p: Array) -> Array:
    """Log probability of the counts x, integers along the last axis; -inf unless they sum to n."""
    p = inexact("multinomial.logpmf", p)
    x, n = numeric("multinomial.logpmf", x, n)
    if not dtypes.issubdtype(x.dtype, np.integer):
        raise ValueError(f"x and n must be of integer type; got x.dtype={x.dtype}, n.dtype={n.dtype}")
    x, n = x.astype(p.dtype), n.astype(p.dtype)
    value = gammaln(n + 1) + jnp.sum(xlogy(x, p) - gammaln(x + 1), axis=-1)
    return jnp.where(jnp.sum(x) == n, value, -np.inf)


pmf = mass(logpmf)
