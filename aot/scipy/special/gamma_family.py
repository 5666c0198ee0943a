"""Gamma and beta functions and what is made of them."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import dtypes, lax
from aot.custom import custom_jvp
from aot.numpy._util import concrete, dtype_of
from aot.ops.incomplete import betainc as betainc_
from aot.ops.incomplete import igamma, igammac
from aot.scipy._util import const, fused, inexact, is_complex, real
from aot.scipy.special._tables import LANCZOS

Array = Any


def gammaln(x: Array) -> Array:
    """log |Gamma(x)|, elementwise."""
    return lax.lgamma(inexact("gammaln", x))


@fused()
def gammasgn(x: Array) -> Array:
    """The sign of Gamma(x): NaN at negative integers, -1 at -0."""
    x = real("gammasgn", x)
    floor, negative, kind = lax.floor(x), x < 0, x.dtype.type
    pole = (negative & (x == floor)) | jnp.isnan(x)
    minus = (negative & (floor % 2 != 0)) | ((x == 0) & jnp.signbit(x))
    return jnp.select([pole, minus], [kind(np.nan), kind(-1)], kind(1))


def _is_pole(z: Array) -> Array:
    re = jnp.real(z)
    return (jnp.imag(z) == 0) & (re == jnp.floor(re)) & (re <= 0)


def _lanczos(z: Array) -> Array:
    """log Gamma of complex z with real part >= 1/2: log(sqrt(2 pi) t^(z - 1/2) exp(-t) A(z)), t = z + 6.5."""
    z = z - 1
    series = sum((c / (z + k) for k, c in enumerate(LANCZOS) if k), start=LANCZOS[0])
    t = z + 7.5
    return 0.5 * math.log(2 * math.pi) + (z + 0.5) * jnp.log(t) - t + jnp.log(series)


def _complex_loggamma(z: Array) -> Array:
    """By Lanczos on the right, by Gamma(z) Gamma(1 - z) = pi / sin(pi z) on the left of 1/2."""
    left = jnp.real(z) < 0.5
    value = _lanczos(jnp.where(left, 1 - z, z))
    safe = jnp.where(left, z, jnp.full_like(z, 0.5))
    return jnp.where(left, math.log(math.pi) - jnp.log(jnp.sin(math.pi * safe)) - value, value)


def _outside_poles(z: Array, fun) -> Array:
    """fun(z), and NaN at poles; fun never sees them."""
    bad = _is_pole(z) | jnp.isnan(z)
    return jnp.where(bad, jnp.array(complex(np.nan, np.nan), z.dtype), fun(jnp.where(bad, jnp.ones_like(z), z)))


def _complex_loggamma_scipy(z: Array) -> Array:
    """log Gamma on scipy's branch: the sum of logarithms on the way to the right half-plane is taken off."""
    steps = jnp.maximum(0, jnp.ceil(0.5 - jnp.real(z)).astype(int))

    def add_log(state):
        k, total = state
        return k + 1, total + jnp.where(k < steps, jnp.log(jnp.where(k < steps, z + k, jnp.ones_like(z))), 0)
    _, total = lax.while_loop(lambda s: jnp.any(s[0] < steps), add_log, (0, jnp.zeros_like(z)))
    return _complex_loggamma(z + steps) - total


@fused()
def loggamma(x: Array) -> Array:
    """Principal branch of log Gamma(x); NaN for real x <= 0."""
    x = inexact("loggamma", x)
    if is_complex(x):
        return _outside_poles(x, _complex_loggamma_scipy)
    return jnp.where(x > 0, lax.lgamma(x), np.nan)


@fused()
def gamma(x: Array) -> Array:
    """Gamma(x), also of complex x."""
    x = inexact("gamma", x)
    if is_complex(x):
        return _outside_poles(x, lambda z: jnp.exp(_complex_loggamma(z)))
    return gammasgn(x) * lax.exp(lax.lgamma(x))


#: del(x) = log Gamma(x) - ((x - 1/2) log x - x + log(2 pi) / 2) in 1 / x^2, times x (DiDonato and Morris, TOMS 708)
_STIRLING = (0.833333333333333e-01, -0.277777777760991e-02, 0.793650666825390e-03, -0.595202931351870e-03,
             0.837308034031215e-03, -0.165322962780713e-02)


def _log_gamma_ratio(a: Array, b: Array) -> Array:
    """log(Gamma(b) / Gamma(a + b)) for b >= 8, without cancellation (TOMS 708, algdiv)."""
    h = a / b
    x = h / (1 + h)
    x2, sums = x * x, [lax.full_like(x, 1)]                 # (1 - x^n) / (1 - x) for n = 1, 3, 5, ..
    for _ in _STIRLING[1:]:
        sums.append(1 + (x + x2 * sums[-1]))
    t = (1 / b) ** 2
    w = _STIRLING[-1] * sums[-1]
    for c, s in zip(_STIRLING[-2::-1], sums[-2::-1]):
        w = w * t + c * s
    w = w * (x / b)
    u, v = (b + (a - 0.5)) * lax.log1p(h), a * (lax.log(b) - 1)
    return jnp.where(u <= v, (w - v) - u, (w - u) - v)


@fused()
def betaln(a: Array, b: Array) -> Array:
    """log |B(a, b)|."""
    a, b = inexact("betaln", a, b)
    a, b = jnp.minimum(a, b), jnp.maximum(a, b)
    small = lax.lgamma(a) + (lax.lgamma(b) - lax.lgamma(a + b))
    return jnp.where(b < 8, small, lax.lgamma(a) + _log_gamma_ratio(a, b))


@fused()
def beta(a: Array, b: Array) -> Array:
    """B(a, b) = Gamma(a) Gamma(b) / Gamma(a + b)."""
    a, b = real("beta", a, b)
    return gammasgn(a) * gammasgn(b) * gammasgn(a + b) * lax.exp(betaln(a, b))


@fused("exact")
def factorial(n: Array, exact: bool = False) -> Array:
    """Gamma(n + 1), 0 for negative n; exact=True is not supported."""
    if exact:
        raise NotImplementedError("factorial with exact=True")
    n = inexact("factorial", n)
    return jnp.where(n < 0, 0, lax.exp(lax.lgamma(n + 1)))


@fused("repetition")
def comb(N: Array, k: Array, *, repetition: bool = False) -> Array:
    """Ways to choose k of N; 0 where there are none."""
    N, k = inexact("comb", N, k)
    if repetition:
        return jnp.where((k == 0) & (N >= 0), 1.0, comb(N + k - 1, k))
    possible = (k <= N) & (N >= 0) & (k >= 0)
    n, m = jnp.where(possible, N, 0.0), jnp.where(possible, k, 0.0)
    return jnp.where(possible, lax.exp(gammaln(n + 1) - gammaln(m + 1) - gammaln(n + 1 - m)), 0.0)


def betainc(a: Array, b: Array, x: Array) -> Array:
    """Regularized incomplete beta function I_x(a, b)."""
    return betainc_(*real("betainc", a, b, x))


def digamma(x: Array) -> Array:
    """Logarithmic derivative of Gamma."""
    return lax.digamma(inexact("digamma", x))


def gammainc(a: Array, x: Array) -> Array:
    """Regularized lower incomplete gamma function."""
    return igamma(*inexact("gammainc", a, x))


def gammaincc(a: Array, x: Array) -> Array:
    """Regularized upper incomplete gamma function."""
    return igammac(*inexact("gammaincc", a, x))


def multigammaln(a: Array, d: Array) -> Array:
    """log of the multivariate gamma function of dimension d, a Python int."""
    d = int(concrete(d, "d argument of multigammaln"))
    return _multigammaln(a, d=d)


@fused("d")
def _multigammaln(a: Array, d: int) -> Array:
    a, size = inexact("multigammaln", a, d)
    constant = lax.mul(lax.mul(lax.mul(const(a, 0.25), size), lax.sub(size, const(a, 1))), lax.log(const(a, np.pi)))
    halves = lax.div(jnp.arange(d, dtype=size.dtype), const(a, 2))
    terms = gammaln(jnp.expand_dims(a, -1) - jnp.expand_dims(halves, tuple(range(a.ndim))))
    return jnp.sum(terms, axis=-1) + constant


def polygamma(n: Array, x: Array) -> Array:
    """n-th derivative of digamma, for integers n."""
    if not dtypes.issubdtype(dtype_of(n), np.integer):
        raise ValueError(f"Argument `n` to polygamma must be of integer type. Got dtype {dtype_of(n)}.")
    return lax.polygamma(*real("polygamma", n, x))


@custom_jvp
def poch(z: Array, m: Array) -> Array:
    """Gamma(z + m) / Gamma(z)."""
    z, m = real("poch", z, m)
    return jnp.where(m == 0., jnp.array(1, dtype=z.dtype), gamma(z + m) / gamma(z))


poch.defjvps(lambda t, out, z, m: (digamma(z + m) - digamma(z)) * poch(z, m) * t,
             lambda t, out, z, m: digamma(z + m) * poch(z, m) * t)
