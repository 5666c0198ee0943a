"""Pareto distribution: density b / y^(b + 1) for y >= 1."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.scipy._util import const, fused, inexact
from aot.scipy.stats._util import density, exponential, unit

Array = Any


def _prepare(name: str, x: Array, b: Array, loc: Array, scale: Array) -> tuple[Array, Array, Array, Array]:
    """(y, b, scale, whether x is below the support)."""
    x, b, loc, scale = inexact(name, x, b, loc, scale)
    return lax.div(lax.sub(x, loc), scale), b, scale, x < lax.add(loc, scale)


@fused()
def logpdf(x: Array, b: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Log density."""
    y, b, scale, below = _prepare("pareto.logpdf", x, b, loc, scale)
    value = lax.neg(lax.add(lax.log(lax.div(scale, b)), lax.mul(lax.add(b, const(b, 1)), lax.log(y))))
    return jnp.where(below, -np.inf, value)


pdf = density(logpdf)


@fused()
def cdf(x: Array, b: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """Probability of at most x: 1 - y^-b."""
    y, b, _, below = _prepare("pareto.cdf", x, b, loc, scale)
    return jnp.where(below, const(y, 0), lax.sub(const(y, 1), lax.pow(y, lax.neg(b))))


@fused()
def logcdf(x: Array, b: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """log of cdf."""
    y, b, _, below = _prepare("pareto.logcdf", x, b, loc, scale)
    return jnp.where(below, -np.inf, lax.log1p(lax.neg(lax.pow(y, lax.neg(b)))))


@fused()
def logsf(x: Array, b: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """log of sf."""
    y, b, _, below = _prepare("pareto.logsf", x, b, loc, scale)
    return jnp.where(below, const(y, 0), lax.neg(lax.mul(b, lax.log(y))))


sf = exponential(logsf, "sf", "Probability of more than x.")


@fused()
def ppf(q: Array, b: Array, loc: Array = 0, scale: Array = 1) -> Array:
    """The inverse of cdf."""
    q, b, loc, scale = inexact("pareto.ppf", q, b, loc, scale)
    one = const(q, 1)
    value = lax.add(loc, lax.mul(scale, lax.pow(lax.sub(one, q), lax.neg(lax.div(one, b)))))
    return jnp.where(unit(q), value, np.nan)
