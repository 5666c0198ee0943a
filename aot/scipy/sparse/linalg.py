"""Iterative solvers of linear systems: only products with the matrix are needed.

Vectors are trees of arrays.  Solutions are differentiated as those of A x = b, whatever the iteration did."""
from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import dtypes, lax
from aot.api import device_put
from aot.array_methods import ArrayMethods
from aot.scipy._util import is_complex
from aot.scipy.linalg.solvers import solve, solve_triangular
from aot.tree_util import tree_leaves, tree_map, tree_structure

Array = Any
Tree = Any
_HIGHEST = lax.Precision.HIGHEST


# ---- trees as vectors ------------------------------------------------------------------------------------------------

def _vdot(x: Tree, y: Tree) -> Array:
    return sum(tree_leaves(tree_map(functools.partial(jnp.vdot, precision=_HIGHEST), x, y)))


def _real_dot(x: Tree, y: Tree) -> Array:
    """The real part of vdot."""
    def one(a, b):
        out = jnp.vdot(a.real, b.real, precision=_HIGHEST)
        return out + jnp.vdot(a.imag, b.imag, precision=_HIGHEST) if is_complex(a) or is_complex(b) else out
    return sum(tree_leaves(tree_map(one, x, y)))


def _norm(x: Tree) -> Array:
    return jnp.sqrt(_real_dot(x, x))


def _times(scalar: Array, x: Tree) -> Tree:
    return tree_map(lambda v: scalar * v, x)


_add, _sub = functools.partial(tree_map, operator.add), functools.partial(tree_map, operator.sub)


def _unit(x: Tree, least: Array | None = None) -> tuple[Tree, Array]:
    """(x over its norm, the norm), both zero where the norm is not above `least`."""
    norm = _norm(x)
    least = dtypes.finfo(norm.dtype).eps if least is None else least
    fine = norm > least
    safe = jnp.where(fine, norm, 1)
    return tree_map(lambda v: jnp.where(fine, v / safe.astype(v.dtype), 0), x), jnp.where(fine, norm, 0)


# ---- arguments -------------------------------------------------------------------------------------------------------

def _identity(x: Tree) -> Tree: return x


def _operator(f: Any) -> Callable[[Tree], Tree]:
    """A function, or the product with a square matrix (or anything else that has @)."""
    if callable(f):
        return f
    if not hasattr(f, "__matmul__"):
        raise TypeError(f"linear operator must be either a function or ndarray: {f}")
    shape = getattr(f, "shape", None)
    if shape is not None and (len(shape) != 2 or shape[0] != shape[1]):
        raise ValueError(f"linear operator must be a square matrix, but has shape: {shape}")
    if isinstance(f, (np.ndarray, ArrayMethods)):
        return functools.partial(jnp.dot, f, precision=_HIGHEST)
    return functools.partial(operator.matmul, f)


def _prepare(A: Any, b: Tree, x0: Tree, maxiter: Any, M: Any) -> tuple:
    x0 = tree_map(jnp.zeros_like, b) if x0 is None else x0
    b, x0 = device_put((b, x0))
    if tree_structure(x0) != tree_structure(b):
        raise ValueError(f"x0 and b must have matching tree structure: {tree_structure(x0)} vs {tree_structure(b)}")
    if [x.shape for x in tree_leaves(x0)] != [x.shape for x in tree_leaves(b)]:
        raise ValueError("arrays in x0 and b must have matching shapes: "
                         f"{[x.shape for x in tree_leaves(x0)]} vs {[x.shape for x in tree_leaves(b)]}")
    size = sum(x.size for x in tree_leaves(b))
    return _operator(A), b, x0, 10 * size if maxiter is None else maxiter, _identity if M is None else _operator(M), size


# ---- conjugate gradients ---------------------------------------------------------------------------------------------

def _cg(A, b, x0, maxiter, tol, atol, M):
    """M. Hestenes and E. Stiefel (1952), preconditioned by M."""
    limit = jnp.maximum(jnp.square(tol) * _real_dot(b, b), jnp.square(atol))
    residual = _sub(b, A(x0))
    start = M(residual)
    dtype = jnp.result_type(*tree_leaves(start))

    def going(value):
        _, r, gamma, _, k = value
        return ((gamma.real if M is _identity else _real_dot(r, r)) > limit) & (k < maxiter)

    def step(value):
        x, r, gamma, p, k = value
        Ap = A(p)
        alpha = gamma / _real_dot(p, Ap).astype(dtype)
        x, r = _add(x, _times(alpha, p)), _sub(r, _times(alpha, Ap))
        z = M(r)
        new = _real_dot(r, z).astype(dtype)
        return x, r, new, _add(z, _times(new / gamma, p)), k + 1
    return lax.while_loop(going, step, (x0, residual, _real_dot(residual, start).astype(dtype), start, 0))[0]


def cg(A: Any, b: Tree, x0: Tree = None, *, tol: Any = 1e-5, atol: Any = 0.0, maxiter: Any = None,
       M: Any = None) -> tuple[Tree, None]:
    """(x, None) with A x = b for a Hermitian positive definite A, by conjugate gradients.

    A: a matrix, or a function from trees like b to the same.  M: approximate inverse of A.  Ends when the residual is
    below max(tol * norm(b), atol), or after maxiter steps (10 times the size of b)."""
    A, b, x0, maxiter, M, _ = _prepare(A, b, x0, maxiter, M)
    run = lambda A, b: _cg(A, b, x0, maxiter, tol, atol, M)
    symmetric = not any(map(is_complex, tree_leaves(b)))
    return lax.custom_linear_solve(A, b, solve=run, transpose_solve=run, symmetric=symmetric), None


# ---- stabilized biconjugate gradients --------------------------------------------------------------------------------

def _bicgstab(A, b, x0, maxiter, tol, atol, M):
    """H. van der Vorst, SIAM J. Sci. Stat. Comput. 13 (1992).  The count becomes negative where it breaks down."""
    limit = jnp.maximum(jnp.square(tol) * _real_dot(b, b), jnp.square(atol))
    residual = _sub(b, A(x0))
    one = jnp.ones((), jnp.result_type(*tree_leaves(b)))

    def step(value):
        x, r, shadow, alpha, omega, rho, p, q, k = value
        new = _vdot(shadow, r)
        p = _add(r, _times(new / rho * alpha / omega, _sub(p, _times(omega, q))))
        p_hat = M(p)
        q = A(p_hat)
        alpha = new / _vdot(shadow, q)
        s = _sub(r, _times(alpha, q))
        early = _real_dot(s, s) < limit
        s_hat = M(s)
        t = A(s_hat)
        omega = _vdot(t, s) / _vdot(t, t)
        pick = functools.partial(tree_map, functools.partial(jnp.where, early))
        half = _add(x, _times(alpha, p_hat))
        x, r = pick(half, _add(half, _times(omega, s_hat))), pick(s, _sub(s, _times(omega, t)))
        k = jnp.where((omega == 0) | (alpha == 0), -11, k + 1)
        return x, r, shadow, alpha, omega, new, p, q, jnp.where(new == 0, -10, k)
    going = lambda v: (_real_dot(v[1], v[1]) > limit) & (v[-1] < maxiter) & (v[-1] >= 0)
    return lax.while_loop(going, step, (x0, residual, residual, one, one, one, residual, residual, 0))[0]


def bicgstab(A: Any, b: Tree, x0: Tree = None, *, tol: Any = 1e-5, atol: Any = 0.0, maxiter: Any = None,
             M: Any = None) -> tuple[Tree, None]:
    """(x, None) with A x = b for any square A, by stabilized biconjugate gradients; arguments as for cg."""
    A, b, x0, maxiter, M, _ = _prepare(A, b, x0, maxiter, M)
    run = lambda A, b: _bicgstab(A, b, x0, maxiter, tol, atol, M)
    return lax.custom_linear_solve(A, b, solve=run, transpose_solve=run), None


# ---- generalized minimal residuals -----------------------------------------------------------------------------------

def _orthogonalize(V: Tree, v: Tree) -> tuple[Tree, Array]:
    """v less its projection on the columns of V (classical Gram-Schmidt, twice) -> (v, coefficients)."""
    total = 0
    for _ in range(2):
        h = sum(tree_leaves(tree_map(lambda X, y: jnp.einsum("...n,...->n", X.conj(), y, precision=_HIGHEST), V, v)))
        v = _sub(v, tree_map(lambda X: jnp.dot(X, h, precision=_HIGHEST), V))
        total = total + h
    return v, total


def _arnoldi(k, A, M, V, H):
    """The k-th vector of the Krylov basis: column k + 1 of V, row k of H (H is kept transposed) -> (V, H, breakdown)."""
    dtype = jnp.result_type(*tree_leaves(V))
    v = M(A(tree_map(lambda X: X[..., k], V)))
    least = dtypes.finfo(dtype).eps * _norm(v)
    v, h = _orthogonalize(V, v)
    unit, norm = _unit(v, least)
    V = tree_map(lambda X, y: X.at[..., k + 1].set(y), V, unit)
    return V, H.at[k, :].set(h.at[k + 1].set(norm.astype(dtype))), norm == 0


def _basis(unit: Tree, restart: int) -> Tree:
    return tree_map(lambda x: jnp.pad(x[..., None], ((0, 0),) * x.ndim + ((0, restart),)), unit)


def _cycle_batched(A, unit, norm, ptol, restart, M):
    """A whole cycle, then one least squares problem -> (basis, coefficients)."""
    dtype = jnp.result_type(*tree_leaves(unit))
    going = lambda c: (c[3] < restart) & ~c[2]

    def step(c):
        V, H, _, k = c
        return (*_arnoldi(k, A, M, V, H), k + 1)
    init = (_basis(unit, restart), jnp.eye(restart, restart + 1, dtype=dtype), False, 0)
    V, H, _, _ = lax.while_loop(going, step, init)
    target = jnp.zeros(restart + 1, dtype).at[0].set(norm.astype(dtype))
    a = H.T
    normal = lambda x: jnp.dot(a.T.conj(), x, precision=_HIGHEST)
    return V, solve(normal(a), normal(target), assume_a="pos")


def _rotate(rows: Array, i: Any, cs: Array, sn: Array) -> Array:
    x, y = rows[i], rows[i + 1]
    return rows.at[i].set(cs.conj() * x - sn.conj() * y).at[i + 1].set(sn * x + cs * y)


def _givens(a: Array, b: Array) -> tuple[Array, Array]:
    """The rotation (cos, sin) that makes b zero."""
    larger = jnp.abs(a) < jnp.abs(b)
    zero = jnp.abs(b) == 0
    t = -jnp.where(larger, a, b) / jnp.where(zero & ~larger, 1, jnp.where(larger, b, a))
    r = lax.rsqrt(1 + jnp.abs(t) ** 2).astype(t.dtype)
    return jnp.where(zero, 1, jnp.where(larger, r * t, r)), jnp.where(zero, 0, jnp.where(larger, r, r * t))


def _cycle_incremental(A, unit, norm, ptol, restart, M):
    """A cycle that ends early, with the triangular factor updated by rotations -> (basis, coefficients)."""
    dtype = jnp.result_type(*tree_leaves(unit))

    def step(c):
        k, _, V, R, target, rotations = c
        V, H, _ = _arnoldi(k, A, M, V, R)
        row = lax.fori_loop(0, k, lambda i, row: _rotate(row, i, *rotations[i, :]), H[k, :])
        cs, sn = _givens(row[k], row[k + 1])
        target = _rotate(target, k, cs, sn)
        return (k + 1, jnp.abs(target[k + 1]), V, R.at[k, :].set(_rotate(row, k, cs, sn)), target,
                rotations.at[k, :].set(jnp.stack([cs, sn])))
    target = jnp.zeros(restart + 1, dtype).at[0].set(norm.astype(dtype))
    init = (0, norm, _basis(unit, restart), jnp.eye(restart, restart + 1, dtype=dtype), target,
            jnp.zeros((restart, 2), dtype))
    _, _, V, R, target, _ = lax.while_loop(lambda c: (c[0] < restart) & (c[1] > ptol), step, init)
    return V, solve_triangular(R[:, :-1].T, target[:-1])


_CYCLES = {"batched": _cycle_batched, "incremental": _cycle_incremental}


def gmres(A: Any, b: Tree, x0: Tree = None, *, tol: Any = 1e-5, atol: Any = 0.0, restart: int = 20, maxiter: Any = None,
          M: Any = None, solve_method: str = "batched") -> tuple[Tree, Array]:
    """(x, info) with A x = b for any square A, by generalized minimal residuals (Y. Saad and M. Schultz, 1986).

    restart: size of the basis.  solve_method: "batched" works through each cycle, "incremental" can end within one.
    info: 0, or -1 where x has NaNs.  Other arguments as for cg."""
    if solve_method not in _CYCLES:
        raise ValueError(f"invalid solve_method {solve_method}, must be either 'incremental' or 'batched'")
    A, b, x0, maxiter, M, size = _prepare(A, b, x0, maxiter, M)
    restart, cycle = min(restart, size), _CYCLES[solve_method]
    b_norm = _norm(b)
    limit = jnp.maximum(tol * b_norm, atol)
    ptol = _norm(M(b)) * jnp.minimum(1.0, limit / b_norm)

    def run(A, b):
        def step(value):
            x, k, unit, norm = value
            V, y = cycle(A, unit, norm, ptol, restart, M)
            x = _add(x, tree_map(lambda X: jnp.dot(X[..., :-1], y, precision=_HIGHEST), V))
            return x, k + 1, *_unit(M(_sub(b, A(x))))
        going = lambda v: (v[1] < maxiter) & (v[3] > limit)
        return lax.while_loop(going, step, (x0, 0, *_unit(M(_sub(b, A(x0))))))[0]
    x = lax.custom_linear_solve(A, b, solve=run, transpose_solve=run)
    return x, jnp.where(jnp.isnan(_norm(x)), -1, 0)
