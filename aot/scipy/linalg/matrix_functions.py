"""Functions of matrices: exponential, square root, polar decomposition, any function of the eigenvalues."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import dtypes, lax
from aot.api import jvp
from aot.config import default_matmul_precision
from aot.numpy.vectorizing import vectorize
from aot.scipy._util import fused
from aot.scipy.linalg.factorizations import adjoint, floats, rsf2csf, schur
from aot.scipy.linalg.polar_factors import qdwh
from aot.scipy.linalg.solvers import solve_triangular

Array = Any


def _dot(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def _diagonals(n: int, step: Callable, value: Array) -> Array:
    """Fill the upper triangle of value, (n, n): step(value) gives the entries of superdiagonal p once those below are."""
    offset = jnp.arange(n)[None, :] - jnp.arange(n)[:, None]
    return lax.fori_loop(1, n, lambda p, v: jnp.where(offset == p, step(v), v), value)


# ---- exponential -----------------------------------------------------------------------------------------------------

#: bits of the dtype -> degree of the Pade approximant, and up to what 1-norm it is accurate (N. Higham, "The scaling and
#: squaring method for the matrix exponential revisited", SIAM J. Matrix Anal. Appl. 26 (2005))
_PADE = {32: (7, 3.925724783138660), 64: (13, 5.371920351148152)}


def _pade(a: Array, degree: int) -> tuple[Array, Array]:
    """Numerator and denominator of the Pade approximant of exp: V + U and V - U, of even and odd powers."""
    b = [math.factorial(2 * degree - k) // (math.factorial(k) * math.factorial(degree - k)) for k in range(degree + 1)]
    b = [float(v) / b[-1] for v in b]
    eye, a2 = jnp.eye(a.shape[0], dtype=a.dtype), _dot(a, a)
    powers = [eye, a2, _dot(a2, a2)]
    powers.append(_dot(powers[2], a2))
    combine = lambda c: sum(x * p for x, p in zip(c, powers))
    if degree == 7:
        u, v = combine(b[1::2]), combine(b[0::2])
    else:
        high = lambda c: _dot(powers[3], sum(x * p for x, p in zip(c, powers[1:])))
        u, v = high(b[9::2]) + combine(b[1:8:2]), high(b[8::2]) + combine(b[0:7:2])
    u = _dot(a, u)
    return v + u, v - u


@fused("upper_triangular", "max_squarings")
def expm(A: Array, *, upper_triangular: bool = False, max_squarings: int = 16) -> Array:
    """Matrix exponential, by scaling, a Pade approximant and squaring; NaN where more than max_squarings are needed."""
    A = floats("expm", A)
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise ValueError(f"Expected A to be a (batched) square matrix, got {A.shape=}.")
    bits = dtypes.finfo(A.dtype).bits
    if bits not in _PADE:
        raise TypeError(f"A.dtype={A.dtype} is not supported.")
    return vectorize(lambda a: _expm(a, *_PADE[bits], upper_triangular, max_squarings), signature="(n,n)->(n,n)")(A)


def _expm(a: Array, degree: int, largest: float, triangular: bool, most: int) -> Array:
    norm = jnp.linalg.norm(a, 1)
    count = jnp.maximum(0, jnp.ceil(jnp.log2(norm / largest)))
    top, bottom = _pade(a / (2 ** count).astype(a.dtype), degree)
    r = solve_triangular(bottom, top) if triangular else jnp.linalg.solve(bottom, top)
    square = lambda r, i: (lax.cond(i < count, lambda x: _dot(x, x), lambda x: x, r), None)
    r, _ = lax.scan(square, r, jnp.arange(most, dtype=count.dtype))
    return jnp.where(count > most, jnp.nan, r)


@fused("method", "compute_expm")
def expm_frechet(A: Array, E: Array, *, method: str | None = None, compute_expm: bool = True) -> Any:
    """(expm(A), its derivative along E), or the derivative alone."""
    A, E = jnp.asarray(A), jnp.asarray(E)
    for name, v in (("A", A), ("E", E)):
        if v.ndim < 2 or v.shape[-1] != v.shape[-2]:
            raise ValueError(f"expected {name} to be a (batched) square matrix, got {name}.shape={v.shape}")
    if A.shape != E.shape:
        raise ValueError(f"expected A and E to be the same shape, got A.shape={A.shape} E.shape={E.shape}")
    out, slope = jvp(expm, (A,), (E,))[:2]
    return (out, slope) if compute_expm else slope


# ---- square root and others ------------------------------------------------------------------------------------------

def sqrtm(A: Array, blocksize: int = 1) -> Array:
    """Principal square root, complex: that of the Schur form (A. Bjorck and S. Hammarling, Linear Algebra Appl. 52-53
    (1983)), superdiagonal by superdiagonal."""
    if blocksize > 1:
        raise NotImplementedError("Blocked version is not implemented yet.")
    return _sqrtm(A)


@fused()
def _sqrtm(A: Array) -> Array:
    t, z = schur(A, output="complex")
    root = jnp.sqrt(jnp.diagonal(t))
    sums = root[:, None] + root[None, :]

    def step(u):
        rest = t - _dot(u, u)
        return jnp.where(rest == 0, 0, rest / sums)
    return _dot(_dot(z, _diagonals(t.shape[0], step, jnp.diag(root))), adjoint(z))


def funm(A: Array, func: Callable[[Array], Array], disp: bool = True) -> Any:
    """func of the eigenvalues, by Parlett's recurrence on the Schur form (G. Golub and C. Van Loan, Matrix Computations,
    algorithm 9.1.1): F T = T F gives each superdiagonal from those below.

    Complex; disp=False also returns an estimate of the error."""
    A = jnp.asarray(A)
    if A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise ValueError("expected square array_like input")
    t, z = rsf2csf(*schur(A))
    diagonal = jnp.diagonal(t)
    gaps = diagonal[None, :] - diagonal[:, None]

    def step(f):
        commutator = _dot(t, f) - _dot(f, t)
        return jnp.where(gaps != 0, commutator / jnp.where(gaps != 0, gaps, 1), commutator)
    n = t.shape[0]
    f = _diagonals(n, step, jnp.diag(func(diagonal)).astype(t.dtype))
    out = z @ f @ adjoint(z)
    if disp:
        return out
    above = jnp.triu(jnp.ones((n, n), bool), 1)
    smallest = jnp.minimum(jnp.min(jnp.where(above, jnp.abs(gaps), np.inf)), jnp.abs(t[0, 0]))
    eps = dtypes.finfo(out.dtype).eps
    smallest = jnp.where(smallest == 0, eps, smallest)
    error = jnp.minimum(1, jnp.maximum(eps, eps / smallest * jnp.linalg.norm(jnp.triu(t, 1), 1)))
    return out, jnp.where(jnp.any(jnp.isinf(out)), np.inf, error)


@fused("side", "method", "eps", "max_iterations")
def polar(a: Array, side: str = "right", *, method: str = "qdwh", eps: float | None = None,
          max_iterations: int | None = None) -> tuple[Array, Array]:
    """(U, P) with a = U P (side="right") or a = P U: U with orthonormal rows or columns, P positive semidefinite.

    method: "qdwh" (tall matrices on the right, wide ones on the left), or "svd"."""
    a = jnp.asarray(a)
    if a.ndim < 2:
        raise ValueError("The input `a` must be at least a 2-D array.")
    if side not in ("right", "left"):
        raise ValueError("The argument `side` must be either 'right' or 'left'.")
    if method not in ("qdwh", "svd"):
        raise ValueError(f"Unknown polar decomposition method {method}.")
    by = _polar_svd if method == "svd" else lambda x, right: _polar_qdwh(x, right, eps)
    with default_matmul_precision("float32"):
        return vectorize(lambda x: by(x, side == "right"),
                         signature="(m,n)->(m,n),(n,n)" if side == "right" else "(m,n)->(m,n),(m,m)")(a)


def _polar_qdwh(a: Array, right: bool, eps: float | None) -> tuple[Array, Array]:
    m, n = a.shape
    if right and m >= n:
        return qdwh(a, eps=eps)[:2]
    if not right and m < n:
        u, p = qdwh(adjoint(a), eps=eps)[:2]
        return adjoint(u), adjoint(p)
    raise NotImplementedError(f"method='qdwh' is for m >= n with side='right' and m < n with side='left', got {a.shape}; "
                              "hint: use method='svd'")


def _polar_svd(a: Array, right: bool) -> tuple[Array, Array]:
    u, s, vh = lax.linalg.svd(a, full_matrices=False)
    s = s.astype(u.dtype)
    return u @ vh, (adjoint(vh) * s[None, :]) @ vh if right else (u * s[None, :]) @ adjoint(u)
