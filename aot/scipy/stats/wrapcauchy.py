"""Wrapped Cauchy distribution on [0, 2 pi]."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot.scipy._util import const, fused, inexact
from aot.scipy.stats._util import density

Array = Any


@fused()
def logpdf(x: Array, c: Array) -> Array:
    """Log density; NaN unless 0 < c < 1."""
    x, c = inexact("wrapcauchy.logpdf", x, c)
    value = jnp.log(1 - c * c) - jnp.log(2 * np.pi) - jnp.log(1 + c * c - 2 * c * jnp.cos(x))
    value = jnp.where((x >= const(x, 0)) & (x <= const(x, np.pi * 2)), value, -np.inf)
    return jnp.where((c > 0) & (c < 1), value, np.nan)


pdf = density(logpdf)
