"""Matrices of a given form."""
from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import dtypes, lax
from aot.numpy._util import check
from aot.numpy.vectorizing import vectorize
from aot.scipy._util import fused, inexact
from aot.scipy.special.gamma_family import comb

Array = Any


def _indices(m: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(m)[:, None], np.arange(n)[None, :]


@fused()
def block_diag(*arrs: Array) -> Array:
    """Matrices (at most 2-d arrays) along the diagonal of one."""
    arrs = arrs or (jnp.zeros((1, 0)),)
    for i, a in enumerate(arrs):
        if np.ndim(a) > 2:
            raise ValueError(f"Arguments to jax.scipy.linalg.block_diag must have at most 2 dimensions, got {a} at "
                             f"argument {i}.")
    blocks = [jnp.atleast_2d(a) for a in arrs]
    dtype = jnp.result_type(*blocks)
    total, at, rows = sum(b.shape[1] for b in blocks), 0, []
    for b in blocks:
        rows.append(jnp.pad(b.astype(dtype), ((0, 0), (at, total - at - b.shape[1]))))
        at += b.shape[1]
    return jnp.concatenate(rows)


def toeplitz(c: Array, r: Array | None = None) -> Array:
    """Constant diagonals: first column c, first row r (but r[0] is not used; conj(c) if None)."""
    check("toeplitz", c, *([] if r is None else [r]))
    c = jnp.atleast_1d(c)
    return _toeplitz(c, jnp.conjugate(c) if r is None else jnp.atleast_1d(r))


@fused()
def _toeplitz(c: Array, r: Array) -> Array:
    def one(c, r):
        i, j = _indices(c.shape[0], r.shape[0])
        return jnp.concatenate([c[::-1], r[1:]])[np.maximum(j - i + c.shape[0] - 1, 0)]
    return vectorize(one, signature="(m),(n)->(m,n)")(c, r)


def hankel(c: Array, r: Array | None = None) -> Array:
    """Constant antidiagonals: first column c, last row r (but r[0] is not used; zeros if None)."""
    check("hankel", c, *([] if r is None else [r]))
    c = jnp.asarray(c)
    r = jnp.zeros_like(c) if r is None else jnp.asarray(r)
    for name, v in (("c", c), ("r", r)):
        if v.ndim == 0:
            raise ValueError(f"hankel: {name} must be at least 1-dimensional, got a scalar.")
    return _hankel(c, r)


@fused()
def _hankel(c: Array, r: Array) -> Array:
    rank = max(c.ndim, r.ndim)
    c, r = (v.reshape((1,) * (rank - v.ndim) + v.shape) for v in (c, r))

    def one(c, r):
        i, j = _indices(c.shape[0], r.shape[0])
        return jnp.concatenate([c, r[1:]])[i + j]
    return vectorize(one, signature="(m),(n)->(m,n)")(c, r)


@fused()
def circulant(c: Array) -> Array:
    """Columns are rotations of c, shape (.., n)."""
    check("circulant", c)
    c = jnp.atleast_1d(c)
    i, j = _indices(c.shape[-1], c.shape[-1])
    return c[..., (i - j) % max(c.shape[-1], 1)]


@fused()
def leslie(f: Array, s: Array) -> Array:
    """Fecundities f, (.., n), in the first row and survival rates s, (.., n - 1), below the diagonal."""
    check("leslie", f, s)
    f, s = jnp.atleast_1d(f), jnp.atleast_1d(s)
    if f.shape[-1] < 2:
        raise ValueError(f"The length of f along the last axis must be at least 2; got shape {f.shape}.")
    if s.shape[-1] != f.shape[-1] - 1:
        raise ValueError("Incorrect lengths for f and s. The length of s along the last axis must be one less than the "
                         f"length of f; got f shape {f.shape} and s shape {s.shape}.")
    dtype = jnp.result_type(f, s)
    return vectorize(lambda f, s: jnp.diag(s, k=-1).at[0].set(f), signature="(n),(m)->(n,n)")(f.astype(dtype), s.astype(dtype))


@fused()
def companion(a: Array) -> Array:
    """The matrix whose characteristic polynomial has coefficients a, shape (.., n >= 2)."""
    a = jnp.atleast_1d(inexact("companion", a))
    if a.shape[-1] < 2:
        raise ValueError(f"The length of `a` along the last axis must be at least 2; got shape {a.shape}.")

    def one(a):
        m = a.shape[0] - 1
        return jnp.eye(m, k=-1, dtype=a.dtype).at[0].set(-a[1:] / a[0])
    return vectorize(one, signature="(n)->(m,m)")(a)


@fused()
def fiedler(a: Array) -> Array:
    """|a_i - a_j|."""
    check("fiedler", a)
    a = jnp.atleast_1d(a)
    return jnp.abs(a[..., None] - a[..., None, :])


@fused()
def fiedler_companion(a: Array) -> Array:
    """A pentadiagonal companion matrix of the polynomial a (M. Fiedler, Linear Algebra Appl. 372 (2003))."""
    a = jnp.atleast_1d(inexact("fiedler_companion", a))
    if a.shape[-1] == 0:
        raise ValueError("fiedler_companion requires the last axis of 'a' to have nonzero length, but got an array of "
                         f"shape {a.shape}.")
    return vectorize(_fiedler_companion, signature="(n)->(m,m)")(a)


def _fiedler_companion(a: Array) -> Array:
    """-a[k] at known places, ones at others."""
    n = a.shape[0] - 1
    which, ones = np.full((n, n), -1), np.zeros((n, n), bool)
    for i in range(n):
        if i == 0:
            which[0, 0] = 1
        if i == 1:
            ones[1, 0] = True
        if i % 2 == 0:
            for j, k in ((i + 1, i + 2), (i - 1, i + 1)):
                if 0 <= j < n:
                    which[i, j] = k
            if i + 2 < n:
                ones[i, i + 2] = True
        elif i >= 3:
            ones[i, i - 2] = True
    if n == 0:
        return jnp.zeros((0, 0), a.dtype)
    values = jnp.where(which >= 0, -(a / a[0])[np.maximum(which, 0)], 0)
    return jnp.where(ones, jnp.array(1, a.dtype), values)


@fused("n", "mode")
def convolution_matrix(a: Array, n: int, mode: str = "full") -> Array:
    """The matrix that convolves vectors of length n with a, shape (.., m); mode as in numpy.convolve."""
    n = operator.index(n)
    if n <= 0:
        raise ValueError(f"n must be a positive integer; got {n}.")
    check("convolution_matrix", a)
    a = jnp.asarray(a)
    if a.ndim == 0:
        raise ValueError("convolution_matrix: a must be at least 1-dimensional, got a scalar.")
    m = a.shape[-1]
    if m < 1:
        raise ValueError(f"len(a) must be at least 1; got shape {a.shape}.")
    if mode not in ("full", "valid", "same"):
        raise ValueError(f"mode must be one of 'full', 'valid', 'same'; got {mode!r}.")
    low = {"full": 0, "same": (min(n, m) - 1) // 2, "valid": min(n, m) - 1}[mode]
    rows = {"full": m + n - 1, "same": max(n, m), "valid": max(n, m) - min(n, m) + 1}[mode]
    i, j = _indices(rows, n)
    k = i + low - j
    return jnp.where((k >= 0) & (k < m), a[..., np.clip(k, 0, m - 1)], 0)


@fused("n")
def hilbert(n: int) -> Array:
    """1 / (i + j + 1)."""
    a = lax.broadcasted_iota(dtypes.default_float_dtype(), (n, 1), 0)
    return 1 / (a + a.T + 1)


@fused("n")
def invhilbert(n: int) -> Array:
    """Inverse of hilbert(n)."""
    a = jnp.arange(n, dtype=dtypes.default_float_dtype())
    i, j = a[:, None], a[None, :]
    s = i + j
    return (-1.0) ** s * (s + 1.0) * comb(n + i, n - j - 1) * comb(n + j, n - i - 1) * comb(s, i) ** 2


def _lower_pascal(n: int, dtype: Any) -> Array:
    """binomial(i, j)."""
    a = jnp.arange(n, dtype=dtype)
    i, j = a[:, None], a[None, :]
    return lax.exp(lax.lgamma(i + 1.0) - lax.lgamma(i - j + 1.0) - lax.lgamma(j + 1.0))


def _pascal_kind(kind: str | None) -> str:
    kind = kind or "symmetric"
    if kind not in ("symmetric", "lower", "upper"):
        raise ValueError(f"Expected kind to be on of: ['symmetric', 'lower', 'upper']; got {kind}")
    return kind


@fused("n", "kind")
def pascal(n: int, kind: str | None = None) -> Array:
    """Binomial coefficients: binomial(i + j, i), or the "lower" or "upper" triangular matrix of binomial(i, j)."""
    kind, lower = _pascal_kind(kind), _lower_pascal(n, np.float32)
    return {"lower": lambda: lower, "upper": lambda: lower.T, "symmetric": lambda: jnp.dot(lower, lower.T)}[kind]()


@fused("n", "kind")
def invpascal(n: int, kind: str | None = None) -> Array:
    """Inverse of pascal(n, kind)."""
    kind, a = _pascal_kind(kind), jnp.arange(n, dtype=dtypes.default_float_dtype())
    lower = (-1.0) ** (a[:, None] - a[None, :]) * _lower_pascal(n, a.dtype)
    return {"lower": lambda: lower, "upper": lambda: lower.T, "symmetric": lambda: jnp.dot(lower.T, lower)}[kind]()


@fused("n", "full")
def helmert(n: int, full: bool = False) -> Array:
    """Orthonormal rows: the i-th compares element i + 1 with the mean of those before; full: with a constant row first."""
    if n < 1:
        raise ValueError(f"n must be a positive integer; got {n}.")
    i, j = jnp.arange(n - 1)[:, None], jnp.arange(n)[None, :]
    k = (i + 1).astype(dtypes.default_float_dtype())
    length = jnp.sqrt(k * (k + 1))
    out = jnp.where(j <= i, 1.0 / length, jnp.where(j == i + 1, -k / length, jnp.zeros_like(length)))
    return jnp.concatenate([jnp.full((1, n), 1.0 / jnp.sqrt(n), dtype=out.dtype), out]) if full else out


def hadamard(n: int, dtype: Any = int) -> Array:
    """Ones and minus ones with orthogonal rows, for a power of two n: (-1)^(number of common bits of i and j)."""
    if n < 1 or not math.log2(n).is_integer():
        raise ValueError(f"n must be a positive power of 2; got {n}.")
    i, j = _indices(n, n)
    common = np.zeros((n, n), int)
    for bit in range(n.bit_length()):
        common += (i >> bit) & (j >> bit) & 1
    return jnp.array((-1) ** common, dtype=dtype)


@fused("n", "scale", "dtype")
def dft(n: int, scale: str | None = None, *, dtype: Any = None) -> Array:
    """The matrix of the discrete Fourier transform; scale: None, "sqrtn" or "n"."""
    if scale is not None and scale not in ("sqrtn", "n"):
        raise ValueError(f"scale must be None, 'sqrtn', or 'n'; got {scale!r}.")
    if dtype is None:
        dtype = dtypes.default_complex_dtype()
    else:
        dtype = dtypes.check_user_dtype_supported(dtype, "dft")
        if not dtypes.issubdtype(dtype, np.complexfloating):
            raise ValueError(f"dtype must be a complex floating-point type; got {dtype}.")
    a = jnp.arange(n, dtype=dtype)
    out = jnp.exp(-2j * np.pi * a[:, None] * a[None, :] / n)
    return out / {None: 1, "sqrtn": math.sqrt(n), "n": n}[scale]
