"""Student's t distribution with df degrees of freedom."""
from __future__ import annotations

from typing import Any

import numpy as np

from aot import lax
from aot.scipy._util import const, fused
from aot.scipy.stats._util import density, standardize

Array = Any


@fused()
def logpdf(x: Array, df: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Log density: lgamma((df + 1)/2) - lgamma(df/2) - log(pi df scale^2)/2 - (df + 1)/2 log(1 + y^2/df)."""
    y, df, scale = standardize("t.logpdf", x, df, loc, scale)
    half = lax.div(df, const(df, 2))
    power = lax.add(half, const(df, 0.5))
    spread = lax.div(lax.log(lax.mul(lax.mul(lax.mul(scale, scale), const(y, np.pi)), df)), const(y, 2))
    constant = lax.sub(lax.add(lax.lgamma(half), spread), lax.lgamma(power))
    return lax.neg(lax.add(constant, lax.mul(power, lax.log1p(lax.div(lax.mul(y, y), df)))))


pdf = density(logpdf)
