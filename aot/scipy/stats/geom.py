"""Geometric distribution: trials of probability p up to the first success."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.scipy._util import const, fused, inexact
from aot.scipy.special.logarithms import xlog1py
from aot.scipy.stats._util import mass

Array = Any


@fused()
def logpmf(k: Array, p: Array, loc: Array = 0) -> Array:
    """Log probability of k >= 1."""
    k, p, loc = inexact("geom.logpmf", k, p, loc)
    x = lax.sub(k, loc)
    return jnp.where(x <= 0, -np.inf, xlog1py(lax.sub(x, const(k, 1)), -p) + lax.log(p))


pmf = mass(logpmf)
