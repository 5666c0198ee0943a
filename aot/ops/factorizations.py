"""Factorizations that differentiate: each is a primitive whose lowering is LAPACK kernels and whose jvp is written in
matrix products and triangular solves.  Formulas: Giles, "An extended collection of matrix derivative results" (2008),
and Seeger et al., "Auto-differentiating linear algebra" (2017)."""
from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial

import numpy as np

from aot.ops import elementwise as ew
from aot.ops import lapack as lp
from aot.ops.dot import dot_general
from aot.ops.families import kind, lit
from aot.ops.lapack import INT, MatrixPrimitive, char, kernel, matrix, nan_where_failed
from aot.ops.shape import broadcast_to, broadcasted_iota, concatenate, full_like, pad, reshape, transpose, zeros
from aot.ops.slicing import slice_in_dim
from aot.trace import ShapedArray, Zero, bind, bind1, is_linear, stage, tangent_aval, typeof


class EigImplementation(enum.Enum):
    """Library for `eig`."""
    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


class EighImplementation(enum.Enum):
    """Algorithm for `eigh`; on CPU always QR."""
    QR = "QR"
    JACOBI = "Jacobi"
    QDWH = "QDWH"


class SvdAlgorithm(enum.Enum):
    """Algorithm for `svd`."""
    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


# ---- matrix helpers ------------------------------------------------------------------------------------------------

def mm(a, b):
    """Matrix product over equal batch dimensions, in full precision."""
    n = typeof(a).ndim
    batch = tuple(range(n - 2))
    return dot_general(a, b, (((n - 1,), (n - 2,)), (batch, batch)), precision="highest")


def T(a):
    n = typeof(a).ndim
    return transpose(a, (*range(n - 2), n - 1, n - 2))


def H(a): return T(ew.conj(a)) if kind(typeof(a).dtype) == "c" else T(a)


def real(x): return ew.real(x) if kind(typeof(x).dtype) == "c" else x


def triangle_mask(a, k: int, lower: bool):
    """Bool matrix of a's shape: on or below (above) the k-th diagonal."""
    shape = typeof(a).shape
    rows, cols = (broadcasted_iota(INT, shape[-2:], i) for i in (0, 1))
    mask = ew.ge(ew.add(rows, np.int32(k)), cols) if lower else ew.le(ew.add(rows, np.int32(k)), cols)
    return broadcast_to(mask, shape)


def tril(a, k: int = 0): return ew.select(triangle_mask(a, k, True), a, full_like(a, 0))


def triu(a, k: int = 0): return ew.select(triangle_mask(a, k, False), a, full_like(a, 0))


def eye_like(a):
    s = typeof(a).shape
    return broadcast_to(np.eye(s[-2], s[-1], dtype=typeof(a).dtype), s)


def diagonal(a):
    """The diagonals of square matrices."""
    from aot.ops.reductions import reduce_sum
    return reduce_sum(ew.mul(a, eye_like(a)), (typeof(a).ndim - 1,)) if typeof(a).size else reduce_sum(a, (typeof(a).ndim - 1,))


def rows(x):
    """A vector per matrix -> a matrix with that vector in every row, by a size of 1."""
    s = typeof(x).shape
    return reshape(x, (*s[:-1], 1, s[-1]))


def cols(x):
    s = typeof(x).shape
    return reshape(x, (*s, 1))


def symmetrized(a): return ew.mul(ew.add(a, H(a)), lit(a, 0.5))


class Factorization(MatrixPrimitive):
    """tangents(outputs, a, da, **params) -> output tangents; one operand."""
    multiple_results = True

    def tangents(self, outs, a, da, **params) -> list: raise self.missing("jvp")

    def jvp(self, primals, tangents, **params):
        (a,), (da,) = primals, tangents
        outs = bind(self, a, **params)
        if type(da) is Zero:
            return outs, [Zero(tangent_aval(typeof(o))) for o in outs]
        dots = self.tangents(outs, a, da, **params)
        return outs, [Zero(tangent_aval(typeof(o))) if t is None else t for o, t in zip(outs, dots)]


class Composed(MatrixPrimitive):
    """A primitive that is one function of other operations, over leading batch dimensions."""

    def __init__(self, name: str, of: Callable): self.name, self.of = name, of

    def infer(self, *avals, **params):
        return [a.strip_weak_type() for a in stage(lambda *xs: [self.of(*xs, **params)], avals)[0].out_avals]

    def lower(self, e, ins, outs, *xs, **params): return e.inline(partial(self.of, **params), ins, xs)

    def jvp(self, primals, tangents, **params):
        from aot.transforms.jvp import jvp_flat
        if all(type(t) is Zero for t in tangents):
            outs = bind(self, *primals, **params)
            return outs, [Zero(tangent_aval(typeof(o))) for o in outs]
        return jvp_flat(lambda *xs: [self.of(*xs, **params)], primals, tangents)


# ---- triangular solve ----------------------------------------------------------------------------------------------

class TriangularSolve(MatrixPrimitive):
    """x with op(a) x = b (left_side) or x op(a) = b."""
    name = "triangular_solve"

    def infer(self, a, b, **params):
        batch, n, _ = matrix(a, self.name, square=True)
        if a.dtype != b.dtype:
            raise TypeError(f"triangular_solve requires arguments to have the same dtypes, got {a.dtype.name}, "
                            f"{b.dtype.name}.")
        side = b.shape[-2 if params["left_side"] else -1] if b.ndim >= 2 else None
        if b.shape[:-2] != batch or side != n:
            raise TypeError(f"triangular_solve requires both arguments to have the same number of dimensions and equal batch "
                            f"and inner sizes, got {a.shape} and {b.shape}.")
        return [b.strip_weak_type()]

    def jvp(self, primals, tangents, *, left_side, lower, transpose_a, conjugate_a, unit_diagonal):
        params = dict(left_side=left_side, lower=lower, transpose_a=transpose_a, conjugate_a=conjugate_a,
                      unit_diagonal=unit_diagonal)
        (a, b), (da, db) = primals, tangents
        x = bind1(self, a, b, **params)
        if type(da) is Zero and type(db) is Zero:
            return [x], [Zero(tangent_aval(typeof(x)))]
        rhs = None if type(db) is Zero else db
        if type(da) is not Zero:
            k = 1 if unit_diagonal else 0
            da = tril(da, -k) if lower else triu(da, k)
            da = T(da) if transpose_a else da
            da = ew.conj(da) if conjugate_a and kind(typeof(da).dtype) == "c" else da
            change = ew.neg(mm(da, x) if left_side else mm(x, da))
            rhs = change if rhs is None else ew.add_any(rhs, change)
        return [x], [bind1(self, a, rhs, **params)]

    def transpose(self, cts, a, b, *, transpose_a, **params):
        return [None, bind1(self, a, cts[0], transpose_a=not transpose_a, **params)]

    def vmap(self, axis, args, dims, **params):
        (a, b), (da, db) = args, dims
        if da is None and typeof(a).ndim == 2:      # one matrix, many right hand sides: solve them side by side
            from aot.ops.conv import merge_into
            left = params["left_side"]
            at = 1 if left else 0
            n = axis.size
            wide = merge_into(b, db, at)
            out = bind1(self, a, wide, **params)
            s = typeof(out).shape
            return [reshape(out, (*s[:at], n, s[at] // n, *s[at + 1:]))], [at]
        return super().vmap(axis, args, dims, **params)

    def lower(self, e, ins, outs, a, b, *, left_side, lower, transpose_a, conjugate_a, unit_diagonal):
        if outs[0].size == 0:
            return [b]
        if conjugate_a and not transpose_a and kind(ins[0].dtype) == "c":
            a, conjugate_a = e.inline(ew.conj, ins[:1], (a,))[0], False
        trans = "N" if not transpose_a else "C" if conjugate_a and kind(ins[0].dtype) == "c" else "T"
        return kernel(e, "trsm", [a, b], ins, outs, {1: 0}, side=char("L" if left_side else "R"),
                      uplo=char("L" if lower else "U"), trans_x=char(trans), diag=char("U" if unit_diagonal else "N"))


triangular_solve_p = TriangularSolve()


def triangular_solve(a, b, *, left_side: bool = False, lower: bool = False, transpose_a: bool = False,
                     conjugate_a: bool = False, unit_diagonal: bool = False):
    """Solve op(a) x = b (left_side) or x op(a) = b for triangular a of shape (..., n, n)."""
    vector = typeof(b).ndim == typeof(a).ndim - 1
    if vector:
        b = cols(b) if left_side else rows(b)
    x = bind1(triangular_solve_p, a, b, left_side=left_side, lower=lower, transpose_a=transpose_a,
              conjugate_a=conjugate_a and kind(typeof(a).dtype) == "c", unit_diagonal=unit_diagonal)
    return reshape(x, (*typeof(x).shape[:-2], typeof(a).shape[-1])) if vector else x


def solve_lower(l, b, **kw): return triangular_solve(l, b, left_side=True, lower=True, **kw)


# ---- cholesky --------------------------------------------------------------------------------------------------------

class Cholesky(Factorization):
    name = "cholesky"
    multiple_results = False

    def infer(self, a): return lp.potrf_p.infer(a)

    def tangents(self, outs, a, da):
        """dL = L phi(L^-1 da L^-H), phi: lower triangle with half the diagonal."""
        l = tril(outs[0])
        inner = solve_lower(l, da)
        inner = triangular_solve(l, inner, left_side=False, lower=True, transpose_a=True, conjugate_a=True)
        half = ew.sub(tril(inner), ew.mul(ew.mul(inner, eye_like(inner)), lit(inner, 0.5)))
        return [mm(l, half)]

    def lower(self, e, ins, outs, a): return e.inline(lambda x: bind1(lp.potrf_p, x), ins, (a,))


cholesky_p = Cholesky()


def cholesky(x, *, symmetrize_input: bool = True):
    """Lower triangular L with L L^H = x; NaN where x is not positive definite."""
    return tril(bind1(cholesky_p, symmetrized(x) if symmetrize_input else x))


def _updated(r, w):
    w = cols(w)
    return H(cholesky(ew.add(mm(H(r), r), mm(w, H(w)))))


cholesky_update_p = Composed("cholesky_update", _updated)


def cholesky_update(r_matrix, w_vector):
    """The upper factor of R^H R + w w^H."""
    return bind1(cholesky_update_p, r_matrix, w_vector)


symmetric_product_p = Composed("symmetric_product", lambda a, c, *, alpha, beta: ew.add(
    ew.mul(lit(a, alpha), mm(a, T(a))), ew.mul(lit(c, beta), c)))


def symmetric_product(a_matrix, c_matrix, *, alpha: float = 1.0, beta: float = 0.0, symmetrize_output: bool = False):
    """alpha A A^T + beta C for symmetric C."""
    out = bind1(symmetric_product_p, a_matrix, c_matrix, alpha=alpha, beta=beta)
    return ew.add(tril(out), T(tril(out, -1))) if symmetrize_output else out


# ---- lu --------------------------------------------------------------------------------------------------------------

class Lu(Factorization):
    name = "lu"

    def infer(self, a):
        batch, m, n = matrix(a, "lu")
        return [*lp.getrf_p.infer(a), ShapedArray((*batch, m), INT)]

    def lower(self, e, ins, outs, a):
        lu, pivots = e.inline(lambda x: bind(lp.getrf_p, x), ins, (a,))
        m = outs[2].shape[-1]
        return [lu, pivots, e.inline(lambda p: _permutation(p, permutation_size=m), outs[1:2], (pivots,))[0]]

    def tangents(self, outs, a, da):
        lu, _, permutation = outs
        *_, m, n = typeof(a).shape
        k = min(m, n)
        nothing = zeros(ShapedArray((), typeof(lu).dtype))
        grow = lambda x, r, c: pad(x, nothing, [(0, 0, 0)] * (typeof(x).ndim - 2) + [(0, r, 0), (0, c, 0)])
        l = grow(tril(slice_in_dim(lu, 0, k, axis=-1), -1), 0, m - k)
        l = ew.add(l, eye_like(l))
        u = grow(triu(slice_in_dim(lu, 0, k, axis=-2)), n - k, 0)
        tail = np.diag([0.] * k + [1.] * (n - k)).astype(typeof(lu).dtype)
        u = ew.add(u, broadcast_to(tail, typeof(u).shape))
        moved = permute_rows(da, permutation)
        inner = solve_lower(l, moved, unit_diagonal=True)
        inner = triangular_solve(u, inner, left_side=False, lower=False)
        return [ew.add(mm(l, tril(inner, -1)), mm(triu(inner), u)), None, None]


lu_p = Lu()


def permute_rows(x, permutation):
    """x[permutation] in every batch entry."""
    from aot.ops.indexing import GatherDimensionNumbers, gather
    s = typeof(x).shape
    if 0 in s:
        return x
    nb = len(s) - 2
    batch = tuple(range(nb))
    numbers = GatherDimensionNumbers((nb + 1,), (nb,), (nb,), batch, batch)
    sizes = (*(1,) * nb, 1, s[-1])
    return gather(x, cols(permutation), numbers, sizes, mode="promise_in_bounds")


def lu(x):
    """(LU in one matrix, row exchanges, row permutation): x[permutation] = L U."""
    return bind(lu_p, x)


def _permutation(pivots, *, permutation_size: int):
    from aot.ops.loops import fori_loop
    from aot.ops.slicing import dynamic_index_in_dim
    a = typeof(pivots)
    batch, k = a.shape[:-1], a.shape[-1]
    start = broadcasted_iota(INT, (*batch, permutation_size), len(batch))
    where = broadcasted_iota(INT, (*batch, permutation_size), len(batch))
    column = lambda x: broadcast_to(x, typeof(where).shape)

    def swap(i, perm):
        j = dynamic_index_in_dim(pivots, i, len(batch))                     # (*batch, 1)
        here = ew.eq(where, column(reshape(ew.convert(i, INT), (1,) * (len(batch) + 1))))
        there = ew.eq(where, column(j))
        from aot.ops.reductions import reduce_sum
        pick = lambda mask: column(cols(reduce_sum(ew.select(mask, perm, full_like(perm, 0)), (len(batch),))))
        at_i, at_j = pick(here), pick(there)
        return ew.select(here, at_j, ew.select(there, at_i, perm))
    return fori_loop(np.int32(0), np.int32(k), swap, start) if k else start


lu_pivots_to_permutation_p = Composed("lu_pivots_to_permutation", _permutation)


def lu_pivots_to_permutation(pivots, permutation_size: int):
    """Row exchanges (0-based, applied in order) -> permutation of permutation_size rows."""
    return bind1(lu_pivots_to_permutation_p, pivots, permutation_size=permutation_size)


# ---- qr --------------------------------------------------------------------------------------------------------------

class Qr(Factorization):
    name = "qr"

    def infer(self, a, *, pivoting, full_matrices):
        batch, m, n = matrix(a, "qr")
        k = m if full_matrices else min(m, n)
        outs = [ShapedArray((*batch, m, k), a.dtype), ShapedArray((*batch, k, n), a.dtype)]
        return [*outs, ShapedArray((*batch, n), INT)] if pivoting else outs

    def lower(self, e, ins, outs, a, *, pivoting, full_matrices):
        return e.inline(lambda x: _qr(x, pivoting, full_matrices), ins, (a,))

    def tangents(self, outs, a, da, *, pivoting, full_matrices):
        q, r, *p = outs
        *_, m, n = typeof(a).shape
        if pivoting:
            a, da = (T(permute_rows(T(x), p[0])) for x in (a, da))
        if m < n:               # [A1 A2] = Q [R1 R2]: the square part gives dQ and dR1; R2 = Q^H A2 gives dR2
            part = lambda x, lo, hi: slice_in_dim(x, lo, hi, axis=-1)
            dq, dr1 = _square_qr_tangents(q, part(r, 0, m), part(da, 0, m))
            dr2 = ew.add(mm(H(dq), part(a, m, n)), mm(H(q), part(da, m, n)))
            return [dq, concatenate([dr1, dr2], typeof(a).ndim - 1), *[None] * len(p)]
        if not full_matrices or m == n:
            return [*_square_qr_tangents(q, r, da), *[None] * len(p)]
        q1, q2 = slice_in_dim(q, 0, n, axis=-1), slice_in_dim(q, n, m, axis=-1)
        dq1, dr1 = _square_qr_tangents(q1, slice_in_dim(r, 0, n, axis=-2), da)
        dq2 = _complement_tangent(q1, q2, dq1, n)
        config = [(0, 0, 0)] * (typeof(a).ndim - 2) + [(0, m - n, 0), (0, 0, 0)]
        dr = pad(dr1, zeros(ShapedArray((), typeof(dr1).dtype)), config)
        return [concatenate([dq1, dq2], typeof(a).ndim - 1), dr, *[None] * len(p)]


def _complement_tangent(q1, q2, dq1, n: int):
    """Tangent of the last m - n columns of the Q that n Householder reflectors make (arXiv:2409.13374, eq. 32 and 33)."""
    upper = lambda x: slice_in_dim(x, 0, n, axis=-2)
    below = lambda x: slice_in_dim(x, n, typeof(x).shape[-2], axis=-2)
    shifted = ew.sub(upper(q1), eye_like(upper(q1)))
    zh = general_solve(H(shifted), H(below(q1)))
    turn = ew.sub(below(dq1), mm(H(zh), upper(dq1)))
    return ew.sub(mm(dq1, zh), mm(ew.add(q1, mm(q2, H(zh))), H(turn)))


def _square_qr_tangents(q, r, da):
    """Tangents of Q (m, n) and square R for m >= n."""
    scaled = triangular_solve(r, da, left_side=False, lower=False)
    inner = mm(H(q), scaled)
    low = tril(inner, -1)
    omega = ew.sub(low, H(low))
    if kind(typeof(da).dtype) == "c":
        real_part = ew.real(inner)
        imaginary = ew.sub(inner, ew.complex(real_part, full_like(real_part, 0)))
        omega = ew.add(omega, ew.mul(eye_like(omega), imaginary))
    dq = ew.add(mm(q, ew.sub(omega, inner)), scaled)
    return dq, mm(ew.sub(inner, omega), r)


def _qr(a, pivoting: bool, full_matrices: bool):
    *batch, m, n = typeof(a).shape
    k = min(m, n)
    if pivoting:
        start = zeros(ShapedArray((*batch, n), INT))
        factors, order, taus = bind(lp.geqp3_p, a, start)
        tail = [ew.sub(order, np.int32(1))]
    else:
        (factors, taus), tail = bind(lp.geqrf_p, a), []
    if full_matrices and m > n:
        nothing = zeros(ShapedArray((), typeof(a).dtype))
        q = pad(factors, nothing, [(0, 0, 0)] * (len(batch) + 1) + [(0, m - n, 0)])
    else:
        q = slice_in_dim(factors, 0, k, axis=-1)
    r = triu(slice_in_dim(factors, 0, min(m if full_matrices else k, m), axis=-2))
    if m * n == 0:
        return [eye_like(q), r, *tail]
    return [bind1(lp.householder_product_p, q, taus), r, *tail]


qr_p = Qr()


def qr(x, *, pivoting: bool = False, full_matrices: bool = True, use_magma=None):
    """(Q, R), or with pivoting (Q, R, column order): x[:, order] = Q R."""
    return tuple(bind(qr_p, x, pivoting=pivoting, full_matrices=full_matrices))


def geqrf(a):
    """(R with Householder reflectors below it, their scales)."""
    return tuple(bind(lp.geqrf_p, a))


def geqp3(a, jpvt, *, use_magma=None):
    """Column-pivoted geqrf: (factors, 1-based column order, scales)."""
    return tuple(bind(lp.geqp3_p, a, jpvt))


def householder_product(a, taus):
    """The product of Householder reflectors, from the columns of a below its diagonal."""
    return bind1(lp.householder_product_p, a, taus)


def ormqr(a, taus, c, *, left: bool = True, transpose: bool = False):
    """c multiplied by the orthogonal matrix of reflectors a, taus."""
    return bind1(lp.ormqr_p, a, taus, c, left=left, transpose=transpose)


# ---- eigenvalues -----------------------------------------------------------------------------------------------------

class Eigh(Factorization):
    name = "eigh"

    def infer(self, a, *, lower): return lp.heevd_p.infer(a, lower=lower)
    def lower(self, e, ins, outs, a, *, lower): return e.inline(lambda x: bind(lp.heevd_p, x, lower=lower), ins, (a,))

    def tangents(self, outs, a, da, *, lower):
        v, w = outs
        i = eye_like(v)
        wide = ew.convert(w, typeof(v).dtype)
        gaps = ew.sub(ew.add(i, rows(wide)), cols(wide))
        f = ew.sub(ew.integer_pow(gaps, -1), i)
        inner = mm(mm(H(v), da), v)
        return [mm(v, ew.mul(f, inner)), real(diagonal(inner))]


eigh_p = Eigh()


def eigh(x, *, lower: bool = True, symmetrize_input: bool = True, sort_eigenvalues: bool = True, subset_by_index=None,
         implementation: EighImplementation | None = None):
    """(eigenvectors, ascending eigenvalues) of a Hermitian matrix."""
    n = typeof(x).shape[-1] if typeof(x).ndim else 0
    if subset_by_index is not None and tuple(subset_by_index) != (0, n):
        raise NotImplementedError("eigh with subset_by_index on CPU; hint: slice the result")
    return tuple(bind(eigh_p, symmetrized(x) if symmetrize_input else x, lower=lower))


class Eig(Factorization):
    name = "eig"

    def infer(self, a, *, left, right): return lp.geev_p.infer(a, left=left, right=right)

    def lower(self, e, ins, outs, a, *, left, right):
        return e.inline(lambda x: bind(lp.geev_p, x, left=left, right=right), ins, (a,))

    def tangents(self, outs, a, da, *, left, right):
        if left or right:
            raise NotImplementedError("The derivatives of non-symmetric eigenvectors are not supported; only first-order "
                                      "derivatives of eigenvalues are supported. hint: use eigvals, or eigh")
        w, v = bind(self, a, left=False, right=True)
        from aot.ops.reductions import reduce_sum
        solved = general_solve(v, ew.convert(da, typeof(w).dtype))
        return [reduce_sum(ew.mul(solved, T(v)), (typeof(v).ndim - 1,))]


eig_p = Eig()


def general_solve(a, b):
    """a^-1 b by LU."""
    factors, _, permutation = lu(a)
    x = solve_lower(factors, permute_rows(b, permutation), unit_diagonal=True)
    return triangular_solve(factors, x, left_side=True, lower=False)


def eig(x, *, compute_left_eigenvectors: bool = True, compute_right_eigenvectors: bool = True,
        enable_eigvec_derivs: bool = False, implementation: EigImplementation | None = None, use_magma: bool | None = None):
    """[eigenvalues, left eigenvectors, right eigenvectors] of a general matrix, complex.

    implementation and use_magma (deprecated) choose between libraries for GPUs, and have no effect here."""
    return bind(eig_p, x, left=compute_left_eigenvectors, right=compute_right_eigenvectors)


# ---- svd -------------------------------------------------------------------------------------------------------------

class Svd(Factorization):
    name = "svd"

    def infer(self, a, **params): return lp.gesdd_p.infer(a, **params)
    def lower(self, e, ins, outs, a, **params): return e.inline(lambda x: bind(lp.gesdd_p, x, **params), ins, (a,))

    def tangents(self, outs, a, da, *, full_matrices, compute_uv, qr_iteration):
        *_, m, n = typeof(a).shape
        if not compute_uv or full_matrices:
            if full_matrices and compute_uv and m != n:
                raise NotImplementedError("Singular value decomposition JVP not implemented for full matrices; hint: use "
                                          "full_matrices=False")
            s, u, vt = bind(self, a, full_matrices=False, compute_uv=True, qr_iteration=qr_iteration)
        else:
            s, u, vt = outs
        uh, v = H(u), H(vt)
        inner = mm(mm(uh, da), v)
        ds = real(diagonal(inner))
        if not compute_uv:
            return [ds]
        dtype = typeof(a).dtype
        sr, sc = rows(ew.convert(s, dtype)), cols(ew.convert(s, dtype))
        i = eye_like(inner)
        gaps = ew.mul(ew.add(sr, sc), ew.sub(sr, sc))
        f = ew.sub(ew.integer_pow(ew.add(gaps, i), -1), i)
        right, left = ew.mul(sr, inner), ew.mul(sc, inner)
        zero = ew.convert(ew.eq(s, full_like(s, 0)), typeof(s).dtype)
        s_inv = ew.convert(ew.sub(ew.integer_pow(ew.add(s, zero), -1), zero), dtype)
        skew = ew.mul(ew.mul(lit(inner, 0.5), ew.sub(inner, H(inner))), ew.mul(i, rows(s_inv)))
        du = mm(u, ew.add(ew.mul(f, ew.add(right, H(right))), skew))
        dv = mm(v, ew.mul(f, ew.add(left, H(left))))
        if m > n:
            dav = mm(da, v)
            du = ew.add(du, ew.div(ew.sub(dav, mm(u, mm(uh, dav))), sr))
        if n > m:
            dau = mm(H(da), u)
            dv = ew.add(dv, ew.div(ew.sub(dau, mm(v, mm(vt, dau))), sr))
        return [ds, du, H(dv)]


svd_p = Svd()


def svd(x, *, full_matrices: bool = True, compute_uv: bool = True, subset_by_index=None,
        algorithm: SvdAlgorithm | None = None):
    """(U, s, V^H) with descending s, or s alone."""
    a = typeof(x)
    rank = min(a.shape[-2:]) if a.ndim >= 2 else 0
    if subset_by_index is not None and (full_matrices and tuple(subset_by_index) != (0, rank)
                                        or tuple(subset_by_index) != (0, rank)):
        raise NotImplementedError("svd with subset_by_index on CPU; hint: slice the result")
    if algorithm in (SvdAlgorithm.JACOBI, SvdAlgorithm.POLAR):
        raise NotImplementedError("The SVD Jacobi and Polar algorithms are not implemented on CPU.")
    out = bind(svd_p, x, full_matrices=full_matrices, compute_uv=compute_uv, qr_iteration=algorithm is SvdAlgorithm.QR)
    return (out[1], out[0], out[2]) if compute_uv else out[0]


# ---- others ----------------------------------------------------------------------------------------------------------

def schur(x, *, compute_schur_vectors: bool = True, sort_eig_vals: bool = False, select_callable=None):
    """(T, Z) with x = Z T Z^H, or (T,)."""
    if sort_eig_vals:
        raise NotImplementedError("The sort feature of LAPACK's gees routine is not implemented.")
    return bind(lp.gees_p, x, compute_vectors=compute_schur_vectors)


def hessenberg(a):
    """(Hessenberg form with reflectors below it, their scales)."""
    return bind(lp.gehrd_p, a)


def tridiagonal(a, *, lower: bool = True):
    """(reflectors, diagonal, off-diagonal, scales) of a Hermitian matrix."""
    return bind(lp.sytrd_p, a, lower=lower)


class TridiagonalSolve(MatrixPrimitive):
    """Linear systems with tridiagonal matrices: dl and du have an unused first and last entry."""
    name = "tridiagonal_solve"

    def infer(self, dl, d, du, b):
        if not dl.shape == d.shape == du.shape == b.shape[:-1]:
            raise TypeError(f"tridiagonal_solve requires that all diagonal arguments have the same shape, matching b; got "
                            f"{dl.shape}, {d.shape}, {du.shape} and {b.shape}.")
        return [b.strip_weak_type()]

    def jvp(self, primals, tangents):
        from aot.transforms.jvp import instantiate_zero
        *diagonals, b = primals
        x = bind1(self, *primals)
        if all(type(t) is Zero for t in tangents):
            return [x], [Zero(tangent_aval(typeof(x)))]
        *dd, db = map(instantiate_zero, tangents)
        rhs = db
        if any(type(t) is not Zero for t in tangents[:3]):
            rhs = ew.sub(db, tridiagonal_product(dd[0], dd[1], dd[2], x))
        return [x], [bind1(self, *diagonals, rhs)]

    def transpose(self, cts, dl, d, du, b):
        shift = lambda v, by: pad(v, zeros(ShapedArray((), typeof(v).dtype)),
                                  [(0, 0, 0)] * (typeof(v).ndim - 1) + [(by, -by, 0)])
        return [None, None, None, bind1(self, shift(du, 1), d, shift(dl, -1), cts[0]) if is_linear(b) else None]

    def lower(self, e, ins, outs, dl, d, du, b):
        batch = ins[3].shape[:-2]
        *_, x, info = kernel(e, "gtsv", [dl, d, du, b], ins, [*ins, ShapedArray(batch, INT)], {0: 0, 1: 1, 2: 2, 3: 3})
        return [nan_where_failed(e, info, batch, x, outs[0])]


tridiagonal_solve_p = TridiagonalSolve()


def tridiagonal_product(dl, d, du, x):
    """The tridiagonal matrix times x (..., n, k)."""
    nothing = zeros(ShapedArray((), typeof(x).dtype))
    n = typeof(x).ndim
    shift = lambda by: pad(x, nothing, [(0, 0, 0)] * (n - 2) + [(by, -by, 0), (0, 0, 0)])
    keep = lambda v, lo, hi: ew.mul(v, broadcast_to(np.r_[[lo], np.ones(max(typeof(v).shape[-1] - 2, 0)), [hi]][
        :typeof(v).shape[-1]].astype(typeof(v).dtype), typeof(v).shape))
    out = ew.mul(cols(d), x)
    out = ew.add(out, ew.mul(cols(keep(dl, 0., 1.)), shift(1)))
    return ew.add(out, ew.mul(cols(keep(du, 1., 0.)), shift(-1)))


def tridiagonal_solve(dl, d, du, b, *, perturb_singular: bool = False):
    """x with A x = b; A has diagonal d, below it dl[1:], above it du[:-1]."""
    return bind1(tridiagonal_solve_p, dl, d, du, b)


