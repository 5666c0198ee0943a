"""Exponential, sine and cosine integrals, and the dilogarithm."""
from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import dtypes, lax
from aot.custom import custom_jvp
from aot.ops.gamma_grad import elementwise_loop
from aot.scipy._util import const, fused, ratio, real, strong
from aot.scipy.special import _tables as tables

Array = Any


# ---- E_n -------------------------------------------------------------------------------------------------------------

def _expn_series(n: Array, x: Array, active: Array) -> Array:
    """For 0 < x <= 1 (https://dlmf.nist.gov/8.19.E8): sum over i != n - 1 of -(-x)^i / (i! (i - n + 1)), and for
    i = n - 1 the term (-x)^i / i! (digamma(n) - log x)."""
    eps, log_x, order = const(x, dtypes.finfo(x.dtype).eps), jnp.log(x), n - 1
    first = jnp.where(order == 0, lax.digamma(n) - log_x, 1 / jnp.where(order == 0, 1, order))

    def step(s, i):
        i = i.astype(x.dtype)
        power = s["power"] * -x / i
        at = i == order
        term = power * jnp.where(at, lax.digamma(n) - log_x, -1 / jnp.where(at, 1, i - order))
        total = s["sum"] + term
        return {"power": power, "sum": total}, jnp.abs(term) > eps * jnp.abs(total)
    return elementwise_loop(active, {"power": jnp.ones_like(x), "sum": first}, step, 1000)["sum"]


def _expn_fraction(n: Array, x: Array, active: Array) -> Array:
    """For x > 1 (https://dlmf.nist.gov/8.19.E17, contracted to its even part), by Lentz's method."""
    eps = const(x, dtypes.finfo(x.dtype).eps)

    def step(s, i):
        i = i.astype(x.dtype)
        a, b = -i * (n - 1 + i), s["b"] + 2
        d, c = 1 / (a * s["d"] + b), b + a / s["c"]
        return {"b": b, "c": c, "d": d, "h": s["h"] * c * d}, jnp.abs(c * d - 1) > eps
    b = x + n
    init = {"b": b, "c": jnp.full_like(x, 1 / dtypes.finfo(x.dtype).tiny), "d": 1 / b, "h": 1 / b}
    return elementwise_loop(active, init, step, 2000)["h"] * jnp.exp(-x)


def _expn_large_order(n: Array, x: Array) -> Array:
    """For n >= 5000 (https://dlmf.nist.gov/8.20.E6)."""
    y = 1 / (x + n) ** 2
    total = y * n * (6 * x * x - 8 * n * x + n * n)
    total = y * (total + n * (n - 2 * x))
    return (y * (total + n) + 1) * jnp.exp(-x) / (x + n)


@functools.partial(custom_jvp, nondiff_argnums=(0,))
@fused()
def expn(n: Array, x: Array) -> Array:
    """Exponential integral E_n(x): of exp(-x t) / t^n over t from 1 to infinity, for integers n >= 0, x >= 0."""
    n, x = jnp.broadcast_arrays(*map(strong, real("expn", n, x)))
    inside = (n > 0) & (x > 0) & (n < 5000)
    large = x > 1
    out = jnp.where(large, _expn_fraction(n, x, inside & large), _expn_series(n, x, inside & ~large))
    out = jnp.where(n >= 5000, _expn_large_order(n, x), out)
    out = jnp.where(n == 0, jnp.exp(-x) / x, out)
    out = jnp.where(x == 0, jnp.where(n < 2, np.inf, 1 / jnp.where(n < 2, 1, n - 1)), out)
    return jnp.where((n < 0) | (x < 0) | jnp.isnan(x), np.nan, out)


@expn.defjvp
def _expn_jvp(n, primals, tangents):
    (x,), (t,) = primals, tangents
    return expn(n, x), lax.mul(lax.neg(t), expn(lax.sub(n, const(jnp.asarray(n), 1)), x))


@fused()
def exp1(x: Array) -> Array:
    """E_1(x)."""
    x = real("exp1", x)
    return expn(1, x)


@custom_jvp
@fused()
def expi(x: Array) -> Array:
    """Exponential integral Ei(x): of exp(t) / t from -infinity to x."""
    x = strong(real("expi", x))
    positive = x > 0
    y = jnp.where(positive, x, 1)
    out = y * ratio(tables.EXPI[0], y) + np.euler_gamma + jnp.log(y)
    w = 1 / y
    for i, table in enumerate(tables.EXPI[1:], 1):          # on (2^i, 2^(i + 1)]
        out = jnp.where(y > 2 ** i, jnp.exp(y) * w * (w * ratio(table, w) + 1), out)
    out = jnp.where(positive, out, -expn(1, jnp.where(positive, 1, -x)))
    return jnp.where(jnp.isnan(x), np.nan, out)


expi.defjvps(lambda t, out, x: jnp.exp(x) / x * t)


# ---- sine and cosine integrals ---------------------------------------------------------------------------------------

def _sici_series(x: Array) -> tuple[Array, Array]:
    t = x * x
    ci = np.euler_gamma + jnp.log(x) + t * ratio(tables.CI_SERIES, t)
    return jnp.where(x == 0, 0.0, x * ratio(tables.SI_SERIES, t)), jnp.where(x == 0, -np.inf, ci)


def _sici_large(x: Array) -> tuple[Array, Array]:
    """By the auxiliary functions: pi / 2 - f cos x - g sin x, f sin x - g cos x."""
    sin, cos, z = jnp.sin(x), jnp.cos(x), 1 / (x * x)
    middle = x < 8
    f = jnp.where(middle, ratio(tables.SICI_F4, z), ratio(tables.SICI_F8, z)) / x
    g = z * jnp.where(middle, ratio(tables.SICI_G4, z), ratio(tables.SICI_G8, z))
    far, infinite = x > 1e9, jnp.isinf(x)
    si = jnp.where(far, math.pi / 2 - cos / x, math.pi / 2 - f * cos - g * sin)
    ci = jnp.where(far, sin / x, f * sin - g * cos)
    return jnp.where(infinite, math.pi / 2, si), jnp.where(infinite, 0.0, ci)


@custom_jvp
@fused()
def sici(x: Array) -> tuple[Array, Array]:
    """(Si, Ci): integrals of sin(t) / t from 0 to x and of cos(t) / t from infinity to |x|."""
    x = strong(real("sici", x))
    a = jnp.abs(x)
    small = a <= 4
    (si, ci), (far_si, far_ci) = _sici_series(jnp.where(small, a, 1)), _sici_large(jnp.where(small, 5, a))
    si, ci = jnp.where(small, si, far_si), jnp.where(small, ci, far_ci)
    return jnp.sign(x) * si, jnp.where(jnp.isneginf(x), np.nan, ci)


@sici.defjvp
def _sici_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    return sici(x), (jnp.sinc(x / np.pi) * t, jnp.cos(x) / x * t)


# ---- dilogarithm -----------------------------------------------------------------------------------------------------

def spence(x: Array) -> Array:
    """Spence's function, the integral of log(t) / (1 - t) from 1 to x: Li2(1 - x); float32 or float64."""
    x = strong(jnp.asarray(x))
    if x.dtype not in (np.float32, np.float64):
        raise TypeError(f"x.dtype={x.dtype} is not supported, see docstring for supported types.")
    return _spence(x)


@custom_jvp
@fused()
def _spence(x: Array) -> Array:
    """Cephes: a rational function near 1, and the reflections to 1 / x and 1 - x."""
    inside = (x > 0) & (x != 1)
    y = jnp.where(inside, x, 2)
    large = y > 1.5
    y = jnp.where(y > 2, 1 / y, y)
    small = y < 0.5
    w = jnp.where(y > 1.5, 1 / y - 1, jnp.where(small, -y, y - 1))
    out = -w * ratio(tables.SPENCE, w)
    out = jnp.where(small, math.pi ** 2 / 6 - jnp.log(y) * jnp.log(1 - y) - out, out)
    out = jnp.where(large, -0.5 * jnp.log(y) ** 2 - out, out)
    out = jnp.where(x == 1, 0.0, jnp.where(x == 0, math.pi ** 2 / 6, out))
    return jnp.where((x < 0) | jnp.isnan(x), np.nan, out)


_spence.defjvps(lambda t, out, x: t * jnp.where(x == 1, -1.0, jnp.log(x) / (1 - jnp.where(x == 1, 0.0, x))))
