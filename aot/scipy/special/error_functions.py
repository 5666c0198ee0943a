"""Error functions, the normal distribution, Fresnel integrals, Owen's T."""
from __future__ import annotations

import functools
import math
from functools import cache
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import dtypes, lax
from aot.custom import custom_jvp
from aot.scipy._util import const, fused, inexact, is_complex, polynomial, ratio, real, strong
from aot.scipy.special import _tables as tables

Array = Any


def erf(x: Array) -> Array:
    """2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x."""
    return lax.erf(inexact("erf", x))


def erfc(x: Array) -> Array:
    """1 - erf(x)."""
    return lax.erfc(inexact("erfc", x))


def erfinv(x: Array) -> Array:
    """The inverse of erf."""
    return lax.erf_inv(inexact("erfinv", x))


# ---- Faddeeva's function ---------------------------------------------------------------------------------------------

_TERMS = 32


@cache
def _weideman() -> tuple[float, list[float]]:
    """(L, coefficients, highest degree first): w(z) = 2 p(Z) / (L - iz)^2 + 1 / (sqrt(pi) (L - iz)), Z = (L + iz) / (L - iz),
    for Im z >= 0.  J. Weideman, "Computation of the complex error function", SIAM J. Numer. Anal. 31 (1994)."""
    scale, half = math.sqrt(_TERMS / math.sqrt(2)), 2 * _TERMS
    t = scale * np.tan(np.arange(-half + 1, half) * np.pi / half / 2)
    samples = np.concatenate([[0], np.exp(-t**2) * (scale**2 + t**2)])
    a = np.real(np.fft.fft(np.fft.fftshift(samples))) / (2 * half)
    return scale, [float(v) for v in a[_TERMS:0:-1]]


def _wofz_upper(z: Array) -> Array:
    scale, coefficients = _weideman()
    iz = lax.complex(lax.neg(lax.imag(z)), lax.real(z))
    below = const(z, scale) - iz
    p = polynomial(coefficients, (const(z, scale) + iz) / below)
    return 2 * p / (below * below) + const(z, 1 / math.sqrt(math.pi)) / below


@custom_jvp
def _wofz(z: Array) -> Array:
    """The lower half-plane by w(z) = 2 exp(-z^2) - w(-z)."""
    up = lax.imag(z) >= 0
    w = _wofz_upper(lax.select(up, z, lax.neg(z)))
    return lax.select(up, w, 2 * lax.exp(lax.neg(z * z)) - w)


_wofz.defjvps(lambda t, w, z: t * (lax.neg(2 * z * w) + const(z, 2j / math.sqrt(math.pi))))


@fused()
def wofz(z: Array) -> Array:
    """Faddeeva's function exp(-z^2) erfc(-iz)."""
    z = inexact("wofz", z)
    return _wofz(z if is_complex(z) else z.astype(dtypes.to_complex_dtype(z.dtype)))


# ---- scaled error functions ------------------------------------------------------------------------------------------

def _in_float32(fun):
    """Compute 16-bit floats in float32."""
    @functools.wraps(fun)
    def call(x: Array) -> Array:
        return fun(x) if x.dtype.itemsize >= 4 else fun(x.astype(np.float32)).astype(x.dtype)
    return call


@_in_float32
def _erfcx_values(x: Array) -> Array:
    """exp(x^2) erfc(x), or for large x the asymptotic sum over k of (-1)^k (2k - 1)!! / (2 x^2)^k over x sqrt(pi)."""
    limit = math.sqrt(math.log(float(dtypes.finfo(x.dtype).max)))       # exp(x^2) is finite below
    large = x > const(x, limit)
    safe = lax.select(large, lax.full_like(x, 1), x)
    terms = 9 if x.dtype == np.float64 else 5
    series = [(-1) ** k * math.prod(range(1, 2 * k, 2)) / 2 ** k for k in range(terms)]
    far = polynomial(series[::-1], 1 / lax.square(x)) / (x * const(x, math.sqrt(math.pi)))
    return lax.select(large, far, lax.exp(lax.square(safe)) * lax.erfc(safe))


_erfcx = custom_jvp(_erfcx_values)
_erfcx.defjvps(lambda t, y, x: t * (2 * x * y - const(x, 2 / math.sqrt(math.pi))))


@fused()
def erfcx(x: Array) -> Array:
    """exp(x^2) erfc(x), also of complex x."""
    x = inexact("erfcx", x)
    return _wofz(lax.complex(lax.neg(lax.imag(x)), lax.real(x))) if is_complex(x) else _erfcx(strong(x))


@_in_float32
def _dawsn_values(x: Array) -> Array:
    a = lax.abs(x)
    near, middle = a < const(x, 3.25), a < const(x, 6.25)
    one = lax.full_like(a, 1)
    small, large = lax.select(near, a, one), lax.select(near, one, a)
    t = 1 / lax.square(large)
    correction = lax.select(middle, ratio(tables.DAWSN_1, t), ratio(tables.DAWSN_2, t))
    far = const(x, 0.5) / large * (1 + t * correction)
    return jnp.sign(x) * lax.select(near, small * ratio(tables.DAWSN_0, lax.square(small)), far)


_dawsn = custom_jvp(_dawsn_values)
_dawsn.defjvps(lambda t, y, x: t * (const(x, 1) - const(x, 2) * x * y))


@fused()
def dawsn(x: Array) -> Array:
    """Dawson's integral: exp(-x^2) times the integral of exp(t^2) from 0 to x."""
    return _dawsn(strong(real("dawsn", x)))


# ---- normal distribution ---------------------------------------------------------------------------------------------

def _float_array(x: Array) -> Array:
    x = jnp.asarray(x)
    if x.dtype not in (np.float32, np.float64):
        raise TypeError(f"x.dtype={x.dtype} is not supported, see docstring for supported types.")
    return x


@fused()
def _ndtr(x: Array) -> Array:
    kind = x.dtype.type
    w = x * kind(math.sqrt(0.5))
    z = lax.abs(w)
    tail = lax.erfc(z)
    y = lax.select(z < kind(math.sqrt(0.5)), kind(1) + lax.erf(w), lax.select(w > kind(0), kind(2) - tail, tail))
    return kind(0.5) * y


def ndtr(x: Array) -> Array:
    """Distribution function of the standard normal distribution; float32 or float64."""
    return _ndtr(_float_array(x))


def ndtri(p: Array) -> Array:
    """The inverse of ndtr; float32 or float64."""
    return _ndtri(_float_array(p))


@fused()
def _ndtri(p: Array) -> Array:
    """Cephes' rational approximations in three regions."""
    kind = p.dtype.type
    q = jnp.where(p > kind(-math.expm1(-2)), kind(1) - p, p)
    q = jnp.where(q == kind(0), kind(0.5), q)
    w = q - kind(0.5)
    ww = lax.square(w)
    center = (w + w * ww * ratio(tables.NDTRI_CENTER, ww)) * -kind(math.sqrt(2 * math.pi))
    z = lax.sqrt(kind(-2) * lax.log(q))
    rest = jnp.where(z >= kind(8), ratio(tables.NDTRI_FAR, 1 / z), ratio(tables.NDTRI_TAIL, 1 / z)) / z
    x = jnp.where(q > kind(math.exp(-2)), center, z - lax.log(z) / z - rest)
    x = jnp.where(p > kind(1 - math.exp(-2)), x, -x)
    return jnp.where(p == kind(0), kind(-np.inf), jnp.where(p == kind(1), kind(np.inf), x))


#: dtype -> where the series takes over, and above what log(1 - q) is -q
_SEGMENTS = {np.dtype(np.float32): (-10, 5), np.dtype(np.float64): (-20, 8)}


@functools.partial(custom_jvp, nondiff_argnums=(1,))
def log_ndtr(x: Array, series_order: int = 3) -> Array:
    """log(ndtr(x)): by an asymptotic series of `series_order` terms far left, by -ndtr(-x) far right."""
    if not isinstance(series_order, int):
        raise TypeError("series_order must be a Python integer.")
    if not 0 <= series_order <= 30:
        raise ValueError(f"series_order must be {'non-negative' if series_order < 0 else '<= 30'}.")
    return _log_ndtr(_float_array(x), series_order=series_order)


@fused("series_order")
def _log_ndtr(x: Array, series_order: int) -> Array:
    low, high = (x.dtype.type(v) for v in _SEGMENTS[np.dtype(x.dtype)])
    right = x > high
    middle = _ndtr(jnp.where(right, -x, lax.max(x, low)))
    left = _log_ndtr_series(lax.min(x, low), series_order)
    return jnp.where(right, -middle, jnp.where(x > low, lax.log(middle), left))


def _log_ndtr_series(x: Array, order: int) -> Array:
    """log of the density over -x, times the sum over n of (-1)^n (2n - 1)!! / x^(2n)."""
    kind, xx = x.dtype.type, lax.square(x)
    scale = -kind(0.5) * xx - lax.log(-x) - kind(0.5 * math.log(2 * math.pi))
    total, power = kind(1), xx
    for n in range(1, order + 1):
        total = total + kind((-1) ** n * math.prod(range(1, 2 * n, 2))) / power
        power = power * xx
    return scale + lax.log(total) if order else scale


@log_ndtr.defjvp
def _log_ndtr_jvp(series_order, primals, tangents):
    (x,), (t,) = primals, tangents
    out = log_ndtr(x, series_order)
    density = lax.sub(lax.mul(const(x, -0.5), lax.square(x)), const(x, 0.5 * math.log(2 * math.pi)))
    return out, lax.mul(t, lax.exp(lax.sub(density, out)))


# ---- Owen's T --------------------------------------------------------------------------------------------------------

@cache
def _quadrature() -> tuple[np.ndarray, np.ndarray]:
    """Squares of the 13 positive nodes of the 26-point Gauss-Legendre rule, and their weights over 2 pi (method T5 of
    M. Patefield and D. Tandy, "Fast and accurate calculation of Owen's T function", J. Stat. Softw. 5 (2000))."""
    nodes, weights = np.polynomial.legendre.leggauss(26)
    return nodes[13:] ** 2, weights[13:] / (2 * np.pi)


def _owens_t_unit(h: Array, a: Array) -> Array:
    """For 0 <= a <= 1: a times the integral of exp(-h^2 (1 + a^2 t) / 2) / (2 pi (1 + a^2 t)) over t = u^2."""
    total = lax.full_like(h, 0)
    for node, weight in zip(*_quadrature()):
        r = 1 + lax.square(a) * const(a, float(node))
        total = total + const(a, float(weight)) * jnp.exp(-0.5 * lax.square(h) * r) / r
    root = const(h, math.sqrt(2))
    exact = 0.125 * lax.erfc(-h / root) * lax.erfc(h / root)
    out = jnp.where(h == 0, jnp.arctan(a) / (2 * np.pi), a * total)
    return jnp.where(a == 1, exact, out)


@custom_jvp
def _owens_t(h: Array, a: Array) -> Array:
    """|a| > 1 by the symmetry that swaps h with ah and a with 1 / a."""
    nan = jnp.isnan(a) | jnp.isnan(h)
    h, b = jnp.abs(h), jnp.abs(a)
    inner = b <= 1
    value = _owens_t_unit(jnp.where(inner, h, b * h), jnp.where(inner, b, 1 / b))
    u = h / const(h, math.sqrt(2))
    v = b * u
    close = 0.25 - 0.25 * lax.erf(u) * lax.erf(v) - value
    far = 0.25 * (lax.erfc(u) + lax.erfc(v) - lax.erfc(u) * lax.erfc(v)) - value
    value = jnp.where(inner, value, jnp.where(b * h <= 0.67, close, far))
    return jnp.where(nan, jnp.nan, lax.sign(a) * value)


@_owens_t.defjvp
def _owens_t_jvp(primals, tangents):
    (h, a), (dh, da) = primals, tangents
    out, s = _owens_t(h, a), 1 + lax.square(a)
    slope_h = -lax.exp(-0.5 * lax.square(h)) * lax.erf(a * h / math.sqrt(2)) / (2 * math.sqrt(2 * math.pi))
    slope_a = lax.exp(-0.5 * s * lax.square(h)) / (2 * math.pi * s)
    return out, (slope_h * dh + slope_a * da).astype(out.dtype)


@fused()
def owens_t(h: Array, a: Array) -> Array:
    """Owen's T: probability that X > h and 0 < Y < aX for independent standard normal X, Y."""
    return _owens_t(*map(strong, jnp.broadcast_arrays(*inexact("owens_t", h, a))))


# ---- Fresnel integrals -----------------------------------------------------------------------------------------------

def _sin_cos(x: Array) -> tuple[Array, Array]:
    """sin and cos of pi x^2 / 2: with s = x mod 2, x^2 / 2 is s (x - s / 2) plus an even number; then only sines of
    small angles, which keep their relative accuracy."""
    x = jnp.abs(x)
    s = lax.rem(x, const(x, 2))
    r = lax.rem(s * (x - s / 2), const(x, 2))
    r = jnp.where(r > 1, r - 2, r)
    size = jnp.abs(r)
    near = jnp.where(size > 0.5, lax.sign(r) * (1 - size), r)
    return jnp.sin(math.pi * near), jnp.sin(math.pi * (0.5 - size))


@custom_jvp
def _fresnel(x: Array) -> tuple[Array, Array]:
    suffix = "32" if x.dtype == np.float32 else ""
    at = lambda name, t: ratio(getattr(tables, f"FRESNEL_{name}{suffix}"), t)
    a = jnp.abs(x)
    xx = a * a
    small_s, small_c = a * xx * at("S", xx * xx), a * at("C", xx * xx)
    sin, cos = _sin_cos(a)
    t = 1 / (math.pi * xx)
    f, g = 1 - t * t * at("F", t * t), t * at("G", t * t)
    scale = math.pi * a
    large_c, large_s = 0.5 + (f * sin - g * cos) / scale, 0.5 - (f * cos + g * sin) / scale
    small, infinite = xx < 2.5625, jnp.isinf(x)
    join = lambda near, far: jnp.where(infinite, 0.5, jnp.where(small, near, far))
    s, c = join(small_s, large_s), join(small_c, large_c)
    return jnp.where(x < 0, -s, s), jnp.where(x < 0, -c, c)


@_fresnel.defjvp
def _fresnel_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    sin, cos = _sin_cos(x)
    return _fresnel(x), (sin * t, cos * t)


@fused()
def fresnel(x: Array) -> tuple[Array, Array]:
    """(S, C): integrals of sin(pi t^2 / 2) and cos(pi t^2 / 2) from 0 to x."""
    x = inexact("fresnel", x)
    if is_complex(x):
        raise NotImplementedError("Support for complex-valued inputs is not implemented yet.")
    if x.dtype.itemsize < 4:
        s, c = _fresnel(x.astype(np.float32))
        return s.astype(x.dtype), c.astype(x.dtype)
    return _fresnel(strong(x))
