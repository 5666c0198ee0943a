"""Hypergeometric functions 1F1 and 2F1 of real arguments.

Regions and transformations: J. Pearson, S. Olver and M. Porter, "Numerical methods for the computation of the confluent
and Gauss hypergeometric functions", arXiv:1407.7786, and Cephes' hyp2f1.
"""
from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import dtypes
from aot.api import jvp
from aot.custom import custom_jvp
from aot.ops.gamma_grad import elementwise_loop
from aot.scipy._util import fused, real, strong
from aot.scipy.special.gamma_family import digamma, gamma

Array = Any
_TERMS = 250


def _sum(ratio: Callable, x: Array, active: Array, terms: int = _TERMS) -> Array:
    """1 + t_1 + t_2 + .. where t_(k+1) = t_k ratio(k), until a term no longer matters."""
    eps = dtypes.finfo(x.dtype).eps

    def step(s, i):
        term = s["term"] * ratio((i - 1).astype(x.dtype))
        total = s["sum"] + term
        return {"term": term, "sum": total}, jnp.abs(term) > eps * jnp.abs(total)
    one = jnp.ones_like(x)
    return elementwise_loop(active, {"term": one, "sum": one}, step, terms)["sum"]


def _slope(fun: Callable, args: tuple, i: int) -> Array:
    """The derivative of fun in argument i, by forward mode through its loops."""
    args = jnp.broadcast_arrays(*args)
    return jvp(lambda v: fun(*args[:i], v, *args[i + 1:]), (args[i],), (jnp.ones_like(args[i]),))[1]


def _prepare(name: str, *args: Array) -> list[Array]:
    return [strong(v) for v in jnp.broadcast_arrays(*real(name, *args))]


# ---- 1F1 -------------------------------------------------------------------------------------------------------------

def _hyp1f1(a: Array, b: Array, x: Array) -> Array:
    """Left of 0 by Kummer's transformation exp(x) 1F1(b - a; b; -x), whose terms do not cancel; far out by
    exp(x) x^(a - b) Gamma(b) / Gamma(a) times an asymptotic series (https://dlmf.nist.gov/13.7.E2)."""
    left, special = x < 0, (a == 0) | (a == b) | (b == 0)
    p, y = jnp.where(left, b - a, a), jnp.abs(x)
    near = (y < 50) | ((p <= 0) & (p == jnp.round(p)))       # there the series ends
    series = _sum(lambda k: (p + k) / (b + k) * y / (k + 1), y, near & ~special)
    z = jnp.where(near, 100, y)
    tail = _sum(lambda k: (b - p + k) * (1 - p + k) / (k + 1) / z, z, ~near & ~special)
    far = gamma(b) / gamma(p) * z ** (p - b) * tail
    grown = jnp.exp(jnp.where(near ^ left, 0, x))            # a factor where it does not cancel
    out = jnp.where(near, series, far) * grown
    return jnp.where(a == 0, 1, jnp.where(a == b, jnp.exp(x), jnp.where(b == 0, np.inf, out)))


@custom_jvp
@fused()
def hyp1f1(a: Array, b: Array, x: Array) -> Array:
    """Confluent hypergeometric function: the sum of (a)_k x^k / ((b)_k k!)."""
    return _hyp1f1(*_prepare("hyp1f1", a, b, x))


hyp1f1.defjvps(lambda t, out, *xs: _slope(_hyp1f1, xs, 0) * t, lambda t, out, *xs: _slope(_hyp1f1, xs, 1) * t,
               lambda t, out, a, b, x: a / b * hyp1f1(a + 1, b + 1, x) * t)


# ---- 2F1 -------------------------------------------------------------------------------------------------------------

def _series2(a: Array, b: Array, c: Array, x: Array, active: Array | None = None) -> Array:
    active = jnp.ones_like(x, bool) if active is None else active
    return _sum(lambda k: (a + k) * (b + k) / (c + k) / (k + 1) * x, x, active)


def _polynomial(a: Array, b: Array, c: Array, x: Array, active: Array) -> Array:
    """The series where a or b is a non-positive integer, which ends it."""
    eps = dtypes.finfo(x.dtype).eps * 50
    integer_b = jnp.abs(b - jnp.round(b)) < eps
    by_b = (b < a) & integer_b & ~((c % 1 == 0) & (c <= 0) & (c > b))
    a, b = jnp.where(by_b, b, a), jnp.where(by_b, a, b)
    last = jnp.abs(a)

    def step(s, i):
        k = i.astype(x.dtype)
        term = s["term"] * -(last - k + 1) / (c + k - 1) * (b + k - 1) / k * x
        return {"term": term, "sum": s["sum"] + term}, k < last
    one = jnp.ones_like(x)
    return elementwise_loop(active & (last >= 1), {"term": one, "sum": one}, step, None)["sum"]


def _near_one(a: Array, b: Array, c: Array, x: Array, active: Array) -> Array:
    """Integer d = c - a - b and x close to 1 (https://dlmf.nist.gov/15.8.E10): a series in 1 - x with digammas, and a
    finite sum of |d| terms."""
    eps, d, s = dtypes.finfo(x.dtype).eps, c - a - b, 1 - x
    whole = jnp.round(d)
    e, up, down = jnp.abs(d), jnp.maximum(d, 0), jnp.minimum(d, 0)
    bracket = lambda k: (digamma(1 + k) + digamma(1 + k + e) - digamma(a + k + up) - digamma(b + k + up) - jnp.log(s))
    first = bracket(jnp.zeros_like(x)) / gamma(e + 1)

    def step(v, i):
        k = i.astype(x.dtype)
        term = v["power"] * bracket(k)
        power = v["power"] * s * (a + k + up) / (k + 1) * (b + k + up) / (k + 1 + e)
        return {"power": power, "sum": v["sum"] + term}, jnp.abs(term) >= eps * jnp.abs(v["sum"] + term)
    power = (a + up) * (b + up) * s / gamma(e + 2)
    infinite = elementwise_loop(active, {"power": power, "sum": first}, step, _TERMS)["sum"]

    def finite_step(v, i):
        k = (i - 1).astype(x.dtype)
        power = v["power"] * s * (a + k + down) * (b + k + down) / (1 - e + k) / (k + 1)
        return {"power": power, "sum": v["sum"] + power}, k + 2 < e
    one = jnp.ones_like(x)
    finite = elementwise_loop(active & (e > 1), {"power": one, "sum": one}, finite_step, None)["sum"]
    finite = finite * gamma(e) * gamma(c) / (gamma(a + up) * gamma(b + up))
    scaled = infinite * gamma(c) / (gamma(a + down) * gamma(b + down))
    scaled = jnp.where(jnp.abs(whole) % 2 != 0, -scaled, scaled)
    q = s ** whole
    both = jnp.where(whole > 0, scaled * q + finite, scaled + finite * q)
    return jnp.where(whole == 0, infinite * gamma(c) / (gamma(a) * gamma(b)), both)


def _by_kind(a: Array, b: Array, c: Array, x: Array, active: Array) -> Array:
    """A polynomial, the series near 1, or the plain series, whichever fits."""
    eps, d = dtypes.finfo(x.dtype).eps * 50, c - a - b
    ends = lambda v: (v <= 0) & (jnp.abs(v - jnp.round(v)) < eps)
    finite = ends(a) | ends(b)
    near = (x > 0.9) & ~finite & (jnp.abs(d - jnp.round(d)) < eps)
    value = _series2(a, b, c, x, active & ~finite & ~near)
    value = jnp.where(near, _near_one(a, b, c, jnp.where(near, x, 0.95), active & near), value)
    return jnp.where(finite, _polynomial(a, b, c, x, active & finite), value)


def _hyp2f1(a: Array, b: Array, c: Array, x: Array) -> Array:
    eps, d, s = dtypes.finfo(x.dtype).eps * 50, c - a - b, 1 - x
    conditions = [
        (x == 0) | (((a == 0) | (b == 0)) & (c != 0)),
        (c == 0) | ((c < 0) & (c % 1 == 0)),
        (d <= -1) & ~((jnp.abs(d - jnp.round(d)) >= eps) & (s < 0)),
        (d <= 0) & (x == 1),
        (x < 1) & (b == c),
        (x < 1) & (a == c),
        x > 1,
        x == 1,
    ]
    euler = conditions[2] & ~(conditions[0] | conditions[1])
    transformed = s ** d * _by_kind(c - a, c - b, c, x, euler)
    taken = functools.reduce(operator.or_, conditions)
    inf = jnp.full_like(x, np.inf)
    values = [jnp.ones_like(x), inf, transformed, inf, s ** -a, s ** -b, inf,
              gamma(c) * gamma(d) / (gamma(c - a) * gamma(c - b))]
    return jnp.select(conditions, values, _by_kind(a, b, c, x, ~taken))


@custom_jvp
@fused()
def hyp2f1(a: Array, b: Array, c: Array, x: Array) -> Array:
    """Gauss' hypergeometric function: the sum of (a)_k (b)_k x^k / ((c)_k k!), for x <= 1."""
    return _hyp2f1(*_prepare("hyp2f1", a, b, c, x))


hyp2f1.defjvps(*[lambda t, out, *xs, i=i: _slope(_series2, xs, i) * t for i in range(3)],
               lambda t, out, a, b, c, x: a * b / c * hyp2f1(a + 1, b + 1, c + 1, x) * t)
