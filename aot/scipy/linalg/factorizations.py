"""Matrix factorizations.  Arguments that scipy has for memory and checks (overwrite_*, check_finite, ..) change nothing."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import dtypes, lax
from aot.numpy.vectorizing import vectorize
from aot.scipy._util import fused, inexact

Array = Any


def floats(name: str, *args: Any) -> Any:
    """Arrays (also from lists) of one float or complex dtype, each of its own rank."""
    args = tuple(jnp.asarray(a) for a in args)
    dtype = inexact(name, *[a.ravel()[:0].sum() if a.ndim else a for a in args])
    dtype = (dtype[0] if isinstance(dtype, list) else dtype).dtype
    out = [a.astype(dtype) for a in args]
    return out[0] if len(out) == 1 else out


def adjoint(x: Array) -> Array:
    """Conjugate transpose of the last two axes."""
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def cholesky(a: Array, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """L with a = L L^H (lower), or its adjoint; reads only that triangle of a."""
    return _cholesky(floats("cholesky", a), lower=bool(lower))


@fused("lower")
def _cholesky(a: Array, lower: bool) -> Array:
    factor = lax.linalg.cholesky(a if lower else adjoint(a), symmetrize_input=False)
    return factor if lower else adjoint(factor)


def cho_factor(a: Array, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, bool]:
    """(Cholesky factor, lower), for cho_solve."""
    return cholesky(a, lower=lower), lower


def svd(a: Array, full_matrices: bool = True, compute_uv: bool = True, overwrite_a: bool = False,
        check_finite: bool = True, lapack_driver: str = "gesdd") -> Any:
    """(U, s, V^H) with a = U diag(s) V^H, or s alone."""
    return lax.linalg.svd(floats("svd", a), full_matrices=full_matrices, compute_uv=compute_uv)


def det(a: Array, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Determinant."""
    return jnp.linalg.det(a)


def inv(a: Array, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Inverse."""
    return jnp.linalg.inv(a)


def eigh(a: Array, b: Array | None = None, lower: bool = True, eigvals_only: bool = False, overwrite_a: bool = False,
         overwrite_b: bool = False, turbo: bool = True, eigvals: None = None, type: int = 1,
         check_finite: bool = True) -> Any:
    """(eigenvalues in ascending order, eigenvectors) of a Hermitian matrix, or the eigenvalues alone."""
    for name, fine in (("b=None", b is None), ("type=1", type == 1), ("eigvals=None", eigvals is None)):
        if not fine:
            raise NotImplementedError(f"Only the {name} case of eigh is implemented.")
    v, w = lax.linalg.eigh(floats("eigh", a), lower=lower)
    return w if eigvals_only else (w, v)


def eigh_tridiagonal(d: Array, e: Array, *, eigvals_only: bool = False, select: str = "a",
                     select_range: tuple[float, float] | None = None, tol: float | None = None,
                     key: Array | None = None) -> Any:
    """Eigenvalues (and eigenvectors) of the Hermitian matrix with diagonal d, shape (n,), and e above it, (n - 1,).

    select: "a" for all, "i" for those with indices in select_range (both ends included).  Works on the dense matrix;
    tol and key, for iterative methods, are not used."""
    d, e = jnp.asarray(d), jnp.asarray(e)
    if d.dtype != e.dtype:
        raise TypeError(f"diagonal and off-diagonal values must have same dtype, got {d.dtype} and {e.dtype}")
    if d.dtype not in (np.float32, np.float64, np.complex64, np.complex128):
        raise TypeError("Only float32 and float64 inputs are supported as inputs to eigh_tridiagonal, got "
                        f"{d.dtype} and {e.dtype}")
    if select not in ("a", "i", "v"):
        raise ValueError("'select must have a value in {'a', 'i', 'v'}.")
    if select == "v":
        raise NotImplementedError("eigh_tridiagonal(..., select='v') is not implemented: how many there are is not known "
                                  "while tracing")
    if select == "i" and select_range is None:
        raise ValueError("for select='i', select_range must be specified.")
    low, high = (0, d.shape[0] - 1) if select == "a" or select_range is None else map(int, select_range)
    if low > high >= 0:
        raise ValueError("Got empty index range in select_range.")
    w, v = _eigh_tridiagonal(d, e)
    w, v = w[low:high + 1], v[:, low:high + 1]
    return w if eigvals_only else (w, v)


@fused()
def _eigh_tridiagonal(d: Array, e: Array) -> tuple[Array, Array]:
    real = jnp.real(d).astype(d.dtype)
    v, w = lax.linalg.eigh(jnp.diag(real) + jnp.diag(e, 1) + jnp.diag(jnp.conj(e), -1), symmetrize_input=False)
    return w, v


def schur(a: Array, output: str = "real") -> tuple[Array, Array]:
    """(T, Z) with a = Z T Z^H: T triangular for output="complex", with 2x2 blocks for pairs of eigenvalues for "real"."""
    if output not in ("real", "complex"):
        raise ValueError(f"Expected 'output' to be either 'real' or 'complex', got {output=}.")
    if output == "complex":
        a = a.astype(dtypes.to_complex_dtype(a.dtype))
    return lax.linalg.schur(a)  # type: ignore[return-value]


@fused("overwrite_a", "check_finite")
def lu_factor(a: Array, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, Array]:
    """(L and U in one matrix, pivots), for lu_solve."""
    factors, pivots, _ = lax.linalg.lu(floats("lu_factor", a))
    return factors, pivots


@fused("permute_l", "overwrite_a", "check_finite")
def lu(a: Array, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """(P, L, U) with a = P L U, or (P L, U)."""
    a = floats("lu", a)
    factors, _, permutation = lax.linalg.lu(a)
    m, n = a.shape
    k, rows = min(m, n), jnp.arange(m, dtype=permutation.dtype)
    p = jnp.array(permutation[None, :] == rows[:, None], dtype=np.zeros((), a.dtype).real.dtype)
    lower = jnp.tril(factors, -1)[:, :k] + jnp.eye(m, k, dtype=a.dtype)
    upper = jnp.triu(factors)[:k, :]
    if permute_l:
        return jnp.matmul(p, lower, precision=lax.Precision.HIGHEST), upper
    return p, lower, upper


@fused("overwrite_a", "lwork", "mode", "pivoting", "check_finite")
def qr(a: Array, overwrite_a: bool = False, lwork: Any = None, mode: str = "full", pivoting: bool = False,
       check_finite: bool = True) -> Any:
    """(Q, R), or (R,) for mode="r"; with pivoting also the permutation of columns.  mode="economic": thin factors."""
    if mode not in ("full", "r", "economic"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'")
    q, r, *p = lax.linalg.qr(floats("qr", a), pivoting=pivoting, full_matrices=mode != "economic")
    return (r, *p) if mode == "r" else (q, r, *p)


def qr_multiply(a: Array, c: Array, mode: str = "right", pivoting: bool = False, conjugate: bool = False,
                overwrite_a: bool = False, overwrite_c: bool = False) -> Any:
    """(c Q or Q c, R[, permutation]) without forming Q.  conjugate: conj(Q) in its place."""
    if mode not in ("right", "left"):
        raise ValueError(f"mode must be 'right' or 'left', got {mode!r}")
    a, c = floats("qr_multiply", a, c)
    return _qr_multiply(a, c, left=mode == "left", pivoting=bool(pivoting), conjugate=bool(conjugate))


@fused("left", "pivoting", "conjugate")
def _qr_multiply(a: Array, c: Array, left: bool, pivoting: bool, conjugate: bool) -> Any:
    vector = c.ndim == 1
    c = c if not vector else c[:, None] if left else c[None, :]
    (m, n), k = a.shape[-2:], min(a.shape[-2:])
    if c.shape[-2 if left else -1] != (k if left else m):
        raise ValueError(f"Array shapes are not compatible for {'Q @ c' if left else 'c @ Q'}: a has shape {a.shape}, c has "
                         f"shape {c.shape}, and {k if left else m} {'rows' if left else 'columns'} are needed.")
    batch = jnp.broadcast_shapes(a.shape[:-2], c.shape[:-2])
    a, c = jnp.broadcast_to(a, (*batch, m, n)), jnp.broadcast_to(c, (*batch, *c.shape[-2:]))
    if pivoting:
        r, p, taus = lax.linalg.geqp3(a, jnp.zeros((*batch, n), dtype=np.int32))
    else:
        (r, taus), p = lax.linalg.geqrf(a), None
    if m > n and left:
        c = jnp.concatenate([c, jnp.zeros((*batch, m - k, c.shape[-1]), dtype=c.dtype)], axis=-2)
    turn = (lambda v: jnp.swapaxes(v, -1, -2)) if conjugate else lambda v: v       # conj(Q) c = (c^T Q^H)^T
    out = turn(lax.linalg.ormqr(r, taus, turn(c), left=left != conjugate, transpose=conjugate))
    out = out if left else out[..., :k]
    out = out.ravel() if vector else out
    r = jnp.triu(r[..., :k, :])
    return (out, r) if p is None else (out, r, p - 1)


@fused("calc_q", "overwrite_a", "check_finite")
def hessenberg(a: Array, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """H, zero below its first subdiagonal, with a = Q H Q^H; or (H, Q)."""
    a = jnp.asarray(a)
    n = a.shape[-1]
    if n == 0:
        return (jnp.zeros_like(a), jnp.zeros_like(a)) if calc_q else jnp.zeros_like(a)
    reflectors, taus = lax.linalg.hessenberg(a)
    h = jnp.triu(reflectors, -1)
    if not calc_q:
        return h
    q = lax.linalg.householder_product(reflectors[..., 1:, :-1], taus)
    eye = jnp.broadcast_to(jnp.eye(n, dtype=a.dtype), a.shape)
    return h, eye.at[..., 1:, 1:].set(q)


@fused("check_finite")
def rsf2csf(T: Array, Z: Array, check_finite: bool = True) -> tuple[Array, Array]:
    """Real Schur form -> complex Schur form: each 2x2 block is made triangular by a rotation."""
    T, Z = jnp.asarray(T), jnp.asarray(Z)
    for name, v in (("T", T), ("Z", Z)):
        if v.ndim < 2 or v.shape[-1] != v.shape[-2]:
            raise ValueError(f"Input '{name}' must be square.")
    if T.shape[-1] != Z.shape[-1]:
        raise ValueError(f"Input array shapes must match: Z: {Z.shape} vs. T: {T.shape}")
    dtype = dtypes.to_complex_dtype(floats("rsf2csf", T, Z)[0].dtype)
    return vectorize(_rsf2csf, signature="(n,n),(n,n)->(n,n),(n,n)")(T.astype(dtype), Z.astype(dtype))


def _rsf2csf(T: Array, Z: Array) -> tuple[Array, Array]:
    n, eps = T.shape[0], dtypes.finfo(T.dtype).eps

    def step(i, carry):
        m, (T, Z) = n - i, carry
        block = lax.dynamic_slice(T, (m - 1, m - 1), (2, 2))
        small = jnp.abs(block[1, 0]) <= eps * (jnp.abs(block[0, 0]) + jnp.abs(block[1, 1]))
        rotation = jnp.where(small, jnp.eye(2, dtype=T.dtype), _rotation(block))
        rows = lax.dynamic_slice_in_dim(T, m - 1, 2, 0)
        T = lax.dynamic_update_slice_in_dim(T, rotation @ rows, m - 1, 0)
        turn = lambda M: lax.dynamic_update_slice_in_dim(
            M, lax.dynamic_slice_in_dim(M, m - 1, 2, 1) @ adjoint(rotation), m - 1, 1)
        return turn(T).at[m, m - 1].set(0), turn(Z)
    return lax.fori_loop(1, n, step, (T, Z)) if n > 1 else (T, Z)


def _rotation(block: Array) -> Array:
    """The unitary 2x2 matrix that makes a 2x2 block upper triangular, from one of its eigenvalues."""
    (a, b), (c, d) = block
    half, mean = (a - d) / 2, (a + d) / 2
    value = mean + jnp.sqrt(half * half + b * c)
    x = jnp.stack([value - d, c])
    x = x / jnp.where(jnp.all(x == 0), 1, jnp.linalg.norm(x)).astype(block.dtype)
    return jnp.stack([jnp.stack([jnp.conj(x[0]), jnp.conj(x[1])]), jnp.stack([-x[1], x[0]])])
