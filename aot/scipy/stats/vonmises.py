"""Von Mises distribution on the circle: density proportional to exp(kappa cos x)."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.scipy._util import const, fused, inexact
from aot.scipy.stats._util import density

Array = Any


@fused()
def logpdf(x: Array, kappa: Array) -> Array:
    """Log density; NaN unless kappa > 0."""
    x, kappa = inexact("vonmises.logpdf", x, kappa)
    value = kappa * (jnp.cos(x) - 1) - jnp.log(2 * np.pi * lax.bessel_i0e(kappa))
    return jnp.where(kappa > const(kappa, 0), value, np.nan)


pdf = density(logpdf)
