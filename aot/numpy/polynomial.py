"""Polynomials as arrays of coefficients, the highest power first."""
from __future__ import annotations

import operator
from typing import Any

import numpy as np

from aot import dtypes, lax
from aot.numpy import linalg, products, reductions
from aot.numpy._util import array_of, arrays, cast, complexes, concrete_index, default_float, inexact, named, promote
from aot.numpy._util import where as _where
from aot.numpy.editing import trim_zeros, vander
from aot.numpy.matrices import diag
from aot.numpy.shapes import atleast_1d, roll
from aot.numpy.statistics import convolve
from aot.trace import concrete_or_error


def _coefficients(name: str, *args: Any) -> list[Any]:
    args = arrays(name, *args)
    return [array_of(x) for x in promote(*(args if isinstance(args, list) else [args]), to=inexact)]


# ---- roots -----------------------------------------------------------------------------------------------------------
@named()
def _roots_no_zeros(p: Any) -> Any:
    """Eigenvalues of the companion matrix."""
    if p.size < 2:
        return lax.full((0,), 0, complexes(p.dtype))
    companion = diag(lax.full((p.size - 2,), 1, p.dtype), -1)
    return linalg.eigvals(companion.at[0, :].set(-p[1:] / p[0]))


@named()
def _roots_with_zeros(p: Any, zeros: Any) -> Any:
    """Leading zeros moved behind, where they make roots at 0; these become nan, at the end."""
    p = _where(zeros == p.size, cast(1, p.dtype), p)
    found = _roots_no_zeros(roll(p, -zeros))
    _, found = lax.sort_key_val(found == 0, found)
    valid = lax.iota(np.int32, found.size) < found.size - zeros
    return _where(valid, found, cast(complex(np.nan, np.nan), found.dtype))


def roots(p: Any, *, strip_zeros: bool = True) -> Any:
    """Roots of the polynomial. Traced coefficients need `strip_zeros=False`: leading zeros then give nan roots."""
    (p,) = _coefficients("roots", p)
    p = atleast_1d(p)
    if p.ndim != 1:
        raise ValueError("Input must be a rank-1 array.")
    if p.size < 2:
        return lax.full((0,), 0, complexes(p.dtype))
    zero = p == 0
    zeros = _where(reductions.all(zero), p.size, reductions.argmin(zero))
    if not strip_zeros:
        return _roots_with_zeros(p, zeros)
    zeros = concrete_or_error(int, zeros, "The error occurred in the jnp.roots() function. To use this within a JIT-compiled "
                              "context, pass strip_zeros=False, but be aware that leading zeros will result in some "
                              "returned roots being set to NaN.")
    return _roots_no_zeros(p[zeros:])


@named()
def poly(seq_of_zeros: Any) -> Any:
    """Coefficients of the polynomial with these roots, or the characteristic polynomial of a matrix."""
    (zeros,) = _coefficients("poly", seq_of_zeros)
    zeros = atleast_1d(zeros)
    if zeros.ndim == 2 and zeros.shape[0] == zeros.shape[1] != 0:
        zeros = linalg.eigvals(zeros)
    if zeros.ndim != 1:
        raise ValueError("input must be 1d or non-empty square 2d array.")
    if zeros.size == 0:
        return lax.full((), 1, zeros.dtype)
    out = one = lax.full((1,), 1, zeros.dtype)
    for k in range(zeros.size):
        out = convolve(out, lax.concatenate([one, -zeros[k:k + 1]], 0), mode="full")
    return out


# ---- evaluation and arithmetic ---------------------------------------------------------------------------------------
@named("unroll")
def polyval(p: Any, x: Any, *, unroll: int = 16) -> Any:
    """Value at `x`, by Horner's rule."""
    p, x = [array_of(v) for v in promote(*arrays("polyval", p, x))]
    y = lax.full(lax.broadcast_shapes(p.shape[1:], x.shape), 0, x.dtype)
    y, _ = lax.scan(lambda y, c: (y * x + c, None), y, p, unroll=unroll)
    return y


@named()
def polyadd(a1: Any, a2: Any) -> Any:
    """Sum of two polynomials."""
    a, b = [array_of(x) for x in promote(*arrays("polyadd", a1, a2))]
    a, b = (a, b) if b.shape[0] <= a.shape[0] else (b, a)
    return a.at[a.shape[0] - b.shape[0]:].add(b)


@named()
def polysub(a1: Any, a2: Any) -> Any:
    """Difference of two polynomials."""
    a, b = [array_of(x) for x in promote(*arrays("polysub", a1, a2))]
    return polyadd(a, -b)


def polymul(a1: Any, a2: Any, *, trim_leading_zeros: bool = False) -> Any:
    """Product of two polynomials."""
    a, b = _coefficients("polymul", a1, a2)
    if trim_leading_zeros and (a.shape[0] > 1 or b.shape[0] > 1):
        a, b = trim_zeros(a, trim="f"), trim_zeros(b, trim="f")
    a, b = [x if x.shape[0] else lax.full((1,), 0, x.dtype) for x in (a, b)]
    return convolve(a, b, mode="full")


def polydiv(u: Any, v: Any, *, trim_leading_zeros: bool = False) -> tuple[Any, Any]:
    """Quotient and remainder of two polynomials."""
    u, v = _coefficients("polydiv", u, v)
    m, n = u.shape[0] - 1, v.shape[0] - 1
    scale = 1.0 / v[0]
    q = lax.full((max(m - n + 1, 1),), 0, u.dtype)
    for k in range(m - n + 1):
        d = scale * u[k]
        q = q.at[k].set(d)
        u = u.at[k:k + n + 1].add(-d * v)
    return q, _without_small_lead(u) if trim_leading_zeros else u


def _without_small_lead(u: Any) -> Any:
    """Leading coefficients that are 0 up to rounding are dropped."""
    known = np.asarray(concrete_or_error(None, u, "Error arose in polydiv with trim_leading_zeros=True"))
    large = np.abs(known) >= np.sqrt(float(dtypes.finfo(u.dtype).eps))
    return u[int(large.argmax()):] if large.any() else u[:0]


@named("m")
def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    """The m-th integral, with integration constants k."""
    m = concrete_index(m, "'m' argument of jnp.polyint")
    p, k = _coefficients("polyint", p, 0 if k is None else k)
    if m < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    k = atleast_1d(k)
    k = lax.broadcast_in_dim(k[0], (m,), ()) if k.shape[0] == 1 else k
    if k.shape != (m,):
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or m.")
    if m == 0:
        return p
    powers = np.arange(p.shape[0] + m)[::-1]
    divisors = np.maximum(1, powers[None, :] - np.arange(m)[:, None]).prod(0)
    return lax.concatenate([p, k], 0) / lax.convert_element_type(divisors.astype(float), p.dtype)


@named("m")
def polyder(p: Any, m: int = 1) -> Any:
    """The m-th derivative."""
    m = concrete_index(m, "'m' argument of jnp.polyder")
    (p,) = _coefficients("polyder", p)
    if m < 0:
        raise ValueError("Order of derivative must be positive")
    if m == 0:
        return p
    powers = np.arange(m, p.shape[0])[::-1]
    factors = (powers[None, :] - np.arange(m)[:, None]).prod(0)
    return p[:-m] * lax.convert_element_type(factors.astype(float), p.dtype)


# ---- fitting ---------------------------------------------------------------------------------------------------------
def polyfit(x: Any, y: Any, deg: int, rcond: float | None = None, full: bool = False, w: Any = None,
            cov: Any = False) -> Any:
    """Coefficients of the polynomial of degree `deg` with the least squared error; details of the fit if `full`, their
    covariance if `cov`."""
    x, y = arrays("polyfit", x, y)
    deg = operator.index(concrete_or_error(int, deg, "deg must be int"))
    _check_fit(x, y, deg)
    if rcond is None:
        rcond = x.shape[0] * float(dtypes.finfo(inexact(x.dtype)).eps)
    rcond = concrete_or_error(float, rcond, "rcond must be float")
    return _polyfit(x, y, w, deg=deg, rcond=rcond, full=full, cov=cov)


def _check_fit(x: Any, y: Any, deg: int) -> None:
    if deg < 0:
        raise ValueError("expected deg >= 0")
    if x.ndim != 1:
        raise TypeError("expected 1D vector for x")
    if x.size == 0:
        raise TypeError("expected non-empty vector for x")
    if y.ndim not in (1, 2):
        raise TypeError("expected 1D or 2D array for y")
    if x.shape[0] != y.shape[0]:
        raise TypeError("expected x and y to have same length")


@named("deg", "rcond", "full", "cov")
def _polyfit(x: Any, y: Any, w: Any, deg: int, rcond: float, full: bool, cov: Any) -> Any:
    columns, target = vander(x, deg + 1), y
    if w is not None:
        (w,) = _coefficients("polyfit", w)
        if w.ndim != 1:
            raise TypeError("expected a 1-d array for weights")
        if w.shape[0] != y.shape[0]:
            raise TypeError("expected w and y to have the same length")
        columns = columns * w[:, None]
        target = target * (w[:, None] if y.ndim == 2 else w)
    scale = reductions.sum(columns * columns, axis=0)
    scale = lax.sqrt(promote(scale, to=inexact)[0])
    columns = columns / scale[None, :]
    c, residuals, rank, s = linalg.lstsq(columns, target, rcond)
    c = (c.T / scale[None, :]).T if c.ndim > 1 else c / scale
    if full:
        return c, residuals, rank, s, array_of(rcond)
    if not cov:
        return c
    base = linalg.inv(products.dot(columns.T, columns)) / products.outer(scale, scale)
    if cov == "unscaled":
        factor = lax.full((), 1.0, default_float())
    elif x.shape[0] <= deg + 1:
        raise ValueError("the number of data points must exceed order to scale the covariance matrix")
    else:
        factor = residuals / (x.shape[0] - deg - 1)
    factor = atleast_1d(factor)
    return (c, base * factor[None]) if y.ndim == 1 else (c, base[:, :, None] * factor[None, None, :])


