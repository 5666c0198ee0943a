"""Polar decomposition by dynamically weighted Halley iterations.

Y. Nakatsukasa, Z. Bai and F. Gygi, "Optimizing Halley's iteration for computing the matrix polar decomposition", SIAM J.
Matrix Anal. Appl. 31 (2010)."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import dtypes, lax
from aot.scipy._util import fused
from aot.scipy.linalg.factorizations import adjoint

Array = Any


def _weights(eps: float, most: int) -> list[tuple[float, float, float]]:
    """The weights (a, b, c) of each step, from a lower bound l of the singular values that each step raises to near 1."""
    l, out = eps, []
    while l + 5 * eps < 1 and len(out) < most:
        l2 = l * l
        d = (4 * (1 / l2 - 1) / l2) ** (1 / 3)
        root = (1 + d) ** 0.5
        a = root + (2 - d + 2 * (2 - l2) / (l2 * root)) ** 0.5
        b = (a - 1) ** 2 / 4
        c = a + b - 1
        l = l * (a + b * l2) / (1 + c * l2)
        out.append((a, b, c))
    return out


def _halley(u: Array, a: Array, b: Array, c: Array) -> Array:
    """u (a + b u^H u) (1 + c u^H u)^-1, by a Cholesky factorization."""
    eye = jnp.eye(u.shape[1], dtype=u.dtype)
    factor = lax.linalg.cholesky(c * (adjoint(u) @ u) + eye, symmetrize_input=False)
    solved = lax.linalg.triangular_solve(factor, u, lower=True, transpose_a=True, conjugate_a=True)
    solved = lax.linalg.triangular_solve(factor, solved, lower=True)
    return b / c * u + (a - b / c) * solved


def _halley_qr(u: Array, a: float, b: float, c: float) -> Array:
    """The same by a QR factorization, stable for large c."""
    m, n = u.shape
    q, _ = lax.linalg.qr(jnp.concatenate([c ** 0.5 * u, jnp.eye(n, dtype=u.dtype)]), full_matrices=False)
    return b / c * u + (a - b / c) / c ** 0.5 * (q[:m] @ adjoint(q[m:]))


@fused("is_hermitian", "max_iterations", "eps", "dynamic_shape")
def qdwh(x: Array, *, is_hermitian: bool = False, max_iterations: int | None = None, eps: float | None = None,
         dynamic_shape: tuple[int, int] | None = None) -> tuple[Array, Array, Array, Array]:
    """(U, H, number of iterations, whether they converged): x = U H, U with orthonormal columns, H positive semidefinite.

    x: shape (m, n), m >= n, of full rank."""
    m, n = x.shape
    if m < n:
        raise ValueError("The input matrix of shape M x N must have M >= N.")
    if dynamic_shape is not None:
        raise NotImplementedError("qdwh: shapes are static here; pass x[:m, :n]")
    most = 10 if max_iterations is None else max_iterations
    eps = float(dtypes.finfo(x.dtype).eps) if eps is None else eps
    bound = lax.rsqrt(jnp.linalg.norm(x, ord=1)) * lax.rsqrt(jnp.linalg.norm(x, ord=np.inf))
    u = x * jnp.where(jnp.isfinite(bound), bound, 1).astype(x.dtype)
    before, plan = u, _weights(eps, most)
    for a, b, c in plan:
        before, u = u, _halley_qr(u, a, b, c) if c > 100 else _halley(u, a, b, c)
    moving = lambda u, before: jnp.linalg.norm(u - before) > np.cbrt(5 * eps)

    def step(carry):
        k, u, _ = carry
        new = _halley(u, *(x.dtype.type(v) for v in (3, 1, 3)))
        return k + 1, new, moving(new, u)
    k, u, unfinished = lax.while_loop(lambda s: s[2] & (s[0] < most), step, (len(plan), u, moving(u, before)))
    u = 1.5 * u - 0.5 * u @ (adjoint(u) @ u)                # one Newton-Schulz step
    h = adjoint(u) @ x
    return u, (h + adjoint(h)) / 2, k, ~unfinished
