"""Linear algebra with sparse matrices: eigenvalues at the top of the spectrum, and a direct solver."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import dtypes, lax
from aot.callbacks import pure_callback
from aot.experimental.sparse.bcsr import row_starts, rows_of
from aot.trace import Primitive, ShapeDtypeStruct, Zero, bind, bind1, is_linear, tangent_aval, typeof
from aot.transforms.jvp import add_tangents

Array = Any

# ---- the largest eigenvalues -----------------------------------------------------------------------------------------


def lobpcg_standard(A: Array | Callable[[Array], Array], X: Array, m: int = 100,
                    tol: Array | float | None = None) -> tuple[Array, Array, Array]:
    """The k largest eigenvalues of a Hermitian matrix by LOBPCG, which needs only products with it.

    A: the matrix (n, n), or a function (n, j) -> (n, j).  X: (n, k), where to start; 0 < 5 k < n.  m: iterations at most.
    tol: an eigenpair is done when |A v - w v| < 10 n tol (w + |A v|); by default the precision of the dtype.
    Returns the eigenvalues (k,), largest first, the eigenvectors (n, k) and the number of iterations.  Not differentiable in
    reverse mode.  Raises ValueError for sizes and dtypes that do not fit.
    """
    apply = A if callable(A) else _product(A)
    X = jnp.asarray(X)
    n, k = _check_start(X, apply)
    limit = (dtypes.finfo(X.dtype).eps if tol is None else tol) * 10 * n
    X = jnp.linalg.qr(X)[0]
    w, X, AX, P = _ritz(apply, X, k)
    state = (0, w, X, P, AX - X * w)

    def going(s: tuple) -> Array:
        i, w, X, P, R = s
        size = jnp.linalg.norm(R, axis=0)
        done = jnp.all(size < limit * (w + jnp.linalg.norm(X * w + R, axis=0)))
        return (i < m) & ~done

    def step(s: tuple) -> tuple:
        i, w, X, P, R = s
        R = R / jnp.maximum(jnp.linalg.norm(R, axis=0), dtypes.finfo(w.dtype).tiny)
        basis = jnp.linalg.qr(jnp.concatenate([X, P, R], axis=1))[0]
        w, X, AX, P = _ritz(apply, basis, k)
        return i + 1, w, X, P, AX - X * w
    i, w, X, _, _ = lax.while_loop(going, step, state)
    return w, X, i


def _product(A: Array) -> Callable[[Array], Array]:
    A = jnp.asarray(A) if not hasattr(A, "tree_flatten") else A
    if A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise ValueError(f"A must be a square matrix or a function, got shape {A.shape}")
    return lambda x: A @ x


def _check_start(X: Array, apply: Callable) -> tuple[int, int]:
    import aot
    if X.ndim != 2:
        raise ValueError(f"X must have the shape (n, k), got {X.shape}")
    n, k = X.shape
    if not dtypes.issubdtype(X.dtype, np.inexact):
        raise ValueError(f"data type {X.dtype} of X is not inexact. hint: X.astype(float)")
    if not 0 < 5 * k < n:
        raise ValueError(f"expected 0 < search dim * 5 < matrix dim (got {k} * 5, {n})")
    out = aot.eval_shape(apply, ShapeDtypeStruct((n, k), X.dtype))
    if out.shape != (n, k) or out.dtype != X.dtype:
        raise ValueError(f"A must map arrays of shape ({n}, {k}) and dtype {X.dtype} to such arrays, got "
                         f"{out.dtype}{out.shape}")
    return n, k


def _ritz(apply: Callable, basis: Array, k: int) -> tuple:
    """The k best pairs in the span of an orthonormal basis -> (w, X, A X, the part of X outside of the first k vectors)."""
    images = apply(basis)
    small = basis.conj().T @ images
    w, V = jnp.linalg.eigh((small + small.conj().T) / 2)
    w, V = w[::-1][:k], V[:, ::-1][:, :k]
    inside = (jnp.arange(len(V)) < k)[:, None]
    return w, basis @ V, images @ V, basis @ jnp.where(inside, jnp.zeros((), V.dtype), V)


# ---- direct solution -------------------------------------------------------------------------------------------------

class _Spsolve(Primitive):
    """x with A x = b for a matrix in compressed rows, by scipy on the host."""
    name = "spsolve"

    def infer(self, data, indices, indptr, b, **_): return [b.strip_weak_type()]

    def lower(self, e, ins, outs, *xs, **_): return e.inline(_on_host, ins, xs)

    def jvp(self, primals, tangents, **params):
        """A dx = db - dA x"""
        x = bind1(self, *primals, **params)
        data, indices, indptr, b = primals
        dA, _, _, db = tangents
        if type(dA) is not Zero:
            rows = rows_of(indptr, data.shape[0])
            change = jnp.zeros(b.shape, b.dtype).at[rows].add(-dA * x[indices], mode="drop")
            db = add_tangents(db, change)
        if type(db) is Zero:
            return [x], [Zero(tangent_aval(typeof(x)))]
        return [x], [bind1(self, data, indices, indptr, db, **params)]

    def transpose(self, cts, data, indices, indptr, b, **params):
        if any(map(is_linear, (data, indices, indptr))):
            raise NotImplementedError("spsolve is not linear in the matrix")
        return [None, None, None, bind1(self, *_transposed(data, indices, indptr), cts[0], **params)]

    def vmap(self, axis, args, dims, **params):
        from aot.transforms.vmap import to_dim
        moved = [x if d is None else to_dim(axis, x, d, 0) for x, d in zip(args, dims)]
        rows = [x for x, d in zip(moved, dims) if d is not None]

        def one(row):
            it = iter(row)
            return bind1(self, *[x if d is None else next(it) for x, d in zip(moved, dims)], **params)
        return [lax.map(one, rows)], [0]


spsolve_p = _Spsolve()


def _transposed(data: Array, indices: Array, indptr: Array) -> tuple:
    """The transpose, in compressed rows."""
    rows = rows_of(indptr, data.shape[0]).astype(indices.dtype)
    order = jnp.argsort(indices, stable=True)
    starts = row_starts(indices[order], indptr.shape[0] - 1)
    return data[order], rows[order], starts


def _on_host(data: Array, indices: Array, indptr: Array, b: Array) -> list:
    return [pure_callback(_solve, ShapeDtypeStruct(b.shape, b.dtype), data, indices, indptr, b)]


def _solve(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, b: np.ndarray) -> np.ndarray:
    from scipy.sparse import csr_matrix
    from scipy.sparse.linalg import spsolve as solve
    dtype = b.dtype if b.dtype.char in "fdFD" else np.dtype(np.float32)     # what the solver computes with
    matrix = csr_matrix((data.astype(dtype), indices, indptr), shape=(len(b), len(b)))
    return np.asarray(solve(matrix, b.astype(dtype))).astype(b.dtype)


def spsolve(data: Array, indices: Array, indptr: Array, b: Array, tol: float = 1e-6, reorder: int = 1) -> Array:
    """x with A x = b, for a square matrix A in compressed rows: data (nse,), columns indices (nse,) and indptr (n + 1,).

    Runs on the host, through `scipy.sparse.linalg.spsolve`; NaN where A is singular.  tol, reorder (1 to 4) are for solvers on
    accelerators.  Raises ValueError for shapes and dtypes that do not fit.
    """
    data, indices, indptr, b = map(jnp.asarray, (data, indices, indptr, b))
    shapes = f"data.shape={data.shape} indices.shape={indices.shape} indptr.shape={indptr.shape} b.shape={b.shape}"
    if not data.ndim == indices.ndim == indptr.ndim == b.ndim == 1:
        raise ValueError(f"Arrays must be one-dimensional. Got {shapes}")
    if indptr.shape[0] != b.shape[0] + 1 or data.shape != indices.shape:
        raise ValueError(f"Invalid CSR buffer sizes: {shapes}")
    if reorder not in (1, 2, 3, 4):
        raise ValueError(f"{reorder=} not valid, must be one of [1, 2, 3, 4]")
    if data.dtype != b.dtype:
        raise ValueError(f"data types do not match: data.dtype={data.dtype} b.dtype={b.dtype}")
    for name, x in (("indices", indices), ("indptr", indptr)):
        if not dtypes.issubdtype(x.dtype, np.integer):
            raise ValueError(f"{name} must be integers, got {x.dtype}")
    return bind(spsolve_p, data, indices, indptr, b, tol=tol, reorder=reorder)[0]
