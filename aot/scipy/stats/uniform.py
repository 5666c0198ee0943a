"""Uniform distribution on [loc, loc + scale]."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.scipy._util import fused, inexact
from aot.scipy.stats._util import density, unit

Array = Any


@fused()
def logpdf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Log density."""
    x, loc, scale = inexact("uniform.logpdf", x, loc, scale)
    return jnp.where((x > loc + scale) | (x < loc), -np.inf, lax.neg(lax.log(scale)))


pdf = density(logpdf)


@fused()
def cdf(x: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Probability of at most x."""
    x, loc, scale = inexact("uniform.cdf", x, loc, scale)
    cases = [x < loc, x > loc + scale, (x >= loc) & (x <= loc + scale)]
    return jnp.select(cases, [jnp.array(0, x.dtype), jnp.array(1, x.dtype), lax.div(lax.sub(x, loc), scale)])


@fused()
def ppf(q: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """The inverse of cdf."""
    q, loc, scale = inexact("uniform.ppf", q, loc, scale)
    return jnp.where(unit(q), lax.add(loc, lax.mul(scale, q)), np.nan)
