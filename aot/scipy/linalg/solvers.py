"""Solutions of linear matrix equations."""
from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import aot.numpy as jnp
from aot import lax
from aot.numpy.linalg import _lu_solve
from aot.numpy.vectorizing import vectorize
from aot.scipy._util import fused, is_complex
from aot.scipy.linalg.factorizations import adjoint, cho_factor, floats, schur

Array = Any


def _columns(name: str, a: Array, b: Array) -> bool:
    """Whether b holds columns (else one vector, or a batch of them, which is deprecated)."""
    if b.ndim == 1:
        return False
    if a.ndim == b.ndim + 1 and a.shape[-1] == b.shape[-1]:
        warnings.warn(f"{name}: batched 1D solves with b.ndim > 1 are deprecated, and in the future will be treated as a "
                      "batched 2D solve. Use b[..., None] and squeeze(-1) to avoid this warning.", FutureWarning,
                      stacklevel=4)
        return False
    return True


def _batched(name: str, solve, a: Array, b: Array) -> Array:
    """solve(matrix, columns) over batches of matrices and of columns or vectors."""
    if _columns(name, a, b):
        return vectorize(solve, signature="(n,n),(n,k)->(n,k)")(a, b)
    return vectorize(lambda m, v: solve(m, v[:, None])[:, 0], signature="(n,n),(n)->(n)")(a, b)


def cho_solve(c_and_lower: tuple[Array, bool], b: Array, overwrite_b: bool = False, check_finite: bool = True) -> Array:
    """x with a x = b, from cho_factor(a)."""
    c, lower = c_and_lower
    return _cho_solve(c, b, lower=bool(lower))


@fused("lower")
def _cho_solve(c: Array, b: Array, lower: bool) -> Array:
    c, b = floats("cho_solve", c, b)
    triangle = partial(lax.linalg.triangular_solve, left_side=True, lower=lower)

    def solve(m, v):
        v = triangle(m, v, transpose_a=not lower, conjugate_a=not lower)
        return triangle(m, v, transpose_a=lower, conjugate_a=lower)
    return _batched("cho_solve", solve, c, b)


@fused("trans", "overwrite_b", "check_finite")
def lu_solve(lu_and_piv: tuple[Array, Array], b: Array, trans: int = 0, overwrite_b: bool = False,
             check_finite: bool = True) -> Array:
    """x with a x = b, a^T x = b (trans=1) or a^H x = b (trans=2), from lu_factor(a)."""
    lu, pivots = lu_and_piv
    lu, b = floats("lu_solve", lu, b)
    permutation = lax.linalg.lu_pivots_to_permutation(pivots, lu.shape[-2])
    if _columns("lu_solve", lu, b):
        return vectorize(lambda m, p, v: _lu_solve(m, p, v, trans), signature="(n,n),(n),(n,k)->(n,k)")(lu, permutation, b)
    return vectorize(lambda m, p, v: _lu_solve(m, p, v[:, None], trans)[:, 0],
                     signature="(n,n),(n),(n)->(n)")(lu, permutation, b)


def solve(a: Array, b: Array, lower: bool = False, overwrite_a: bool = False, overwrite_b: bool = False,
          debug: bool = False, check_finite: bool = True, assume_a: str = "gen") -> Array:
    """x with a x = b; assume_a="pos" uses a Cholesky factorization."""
    valid = ["gen", "sym", "her", "pos"]
    if assume_a not in valid:
        raise ValueError(f"Expected assume_a to be one of {valid}; got {assume_a!r}")
    if assume_a != "pos":
        return jnp.linalg.solve(a, b)
    return _solve_positive(*floats("solve", a, b), lower=bool(lower))


@fused("lower")
def _solve_positive(a: Array, b: Array, lower: bool) -> Array:
    """Differentiated as a linear solve with the same factor."""
    def solve_one(m, v):
        factor = cho_factor(lax.stop_gradient(m), lower=lower)
        return lax.custom_linear_solve(partial(jnp.matmul, m, precision=lax.Precision.HIGHEST), v,
                                       lambda _, x: cho_solve(factor, x), symmetric=True)
    if b.ndim == 1 or a.ndim == b.ndim + 1:
        return vectorize(lambda m, v: solve_one(m, v[:, None])[:, 0], signature="(n,n),(n)->(n)")(a, b)
    return vectorize(solve_one, signature="(n,n),(n,k)->(n,k)")(a, b)


_TRANS = {0: (False, False), "N": (False, False), 1: (True, False), "T": (True, False), 2: (True, True), "C": (True, True)}


@fused("trans", "lower", "unit_diagonal", "overwrite_b", "debug", "check_finite")
def solve_triangular(a: Array, b: Array, trans: int | str = 0, lower: bool = False, unit_diagonal: bool = False,
                     overwrite_b: bool = False, debug: Any = None, check_finite: bool = True) -> Array:
    """x with a x = b for triangular a; trans: 0 or N for a, 1 or T for its transpose, 2 or C for its adjoint."""
    if trans not in _TRANS:
        raise ValueError(f"Invalid 'trans' value {trans}")
    transpose, conjugate = _TRANS[trans]
    a, b = floats("solve_triangular", a, b)
    solve_one = partial(lax.linalg.triangular_solve, left_side=True, lower=lower, transpose_a=transpose,
                        conjugate_a=conjugate, unit_diagonal=unit_diagonal)
    return _batched("solve_triangular", solve_one, a, b)


@fused("method")
def solve_sylvester(A: Array, B: Array, C: Array, *, method: str = "schur", tol: float = 1e-8) -> Array:
    """X with A X + X B = C, shapes (m, m), (n, n), (m, n), by Schur forms or eigenvectors (method="eigen").

    NaN where an eigenvalue of A is that of -B within tol: there is no unique solution."""
    A, B, C = floats("solve_sylvester", A, B, C)
    m, n = C.shape[-2:]
    if A.shape[-2:] != (m, m) or B.shape[-2:] != (n, n):
        raise ValueError(f"Incompatible shapes for Sylvester equation:\nA: {A.shape}\nB: {B.shape}\nC: {C.shape}")
    if method not in ("schur", "eigen"):
        raise ValueError(f'Unrecognized method {method}. The two valid methods are either "schur" or "eigen".')
    by = {"schur": _sylvester_schur, "eigen": _sylvester_eigen}[method]

    def solve_one(a, b, c):
        x, wa, wb = by(a, b, c), jnp.linalg.eigvals(a), jnp.linalg.eigvals(b)
        x = x if is_complex(c) else x.real
        return jnp.where(jnp.any(jnp.abs(wa[:, None] + wb[None, :]) < tol), jnp.nan, x)
    return vectorize(solve_one, signature="(m,m),(n,n),(m,n)->(m,n)")(A, B, C)


def _sylvester_schur(a: Array, b: Array, c: Array) -> Array:
    """With a = U R U^H and b = V L V^H, L lower triangular: the columns of U^H X V, from the last to the first."""
    r, u = schur(a, output="complex")
    s, v = schur(adjoint(b), output="complex")
    low, f = adjoint(s), adjoint(u) @ c.astype(r.dtype) @ v
    n, eye = c.shape[1], jnp.eye(c.shape[0], dtype=r.dtype)

    def column(i, y):
        j = n - 1 - i
        rest = f[:, j] - y @ jnp.where(jnp.arange(n) > j, low[:, j], 0)
        solved = lax.linalg.triangular_solve(r + low[j, j] * eye, rest[:, None], left_side=True, lower=False)
        return y.at[:, j].set(solved[:, 0])
    y = lax.fori_loop(0, n, column, jnp.zeros_like(f))
    return u @ y @ adjoint(v)


def _sylvester_eigen(a: Array, b: Array, c: Array) -> Array:
    (wa, ua), (wb, ub) = jnp.linalg.eig(a), jnp.linalg.eig(b)
    y = jnp.linalg.solve(ua, c.astype(wa.dtype) @ ub) / (wa[:, None] + wb[None, :])
    return ua @ y @ jnp.linalg.inv(ub)
