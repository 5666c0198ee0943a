"""Matrix factorizations on CPU: one class a LAPACK kernel, batched over leading dimensions.

Matrices are passed column-major.  Where a kernel reports failure (`info` not 0) its results are NaN.
"""
from __future__ import annotations

from typing import Sequence

import numpy as np

from aot.ops import elementwise as ew
from aot.ops.families import KINDS, NonDifferentiable, Primitive, kind
from aot.ops.shape import broadcast_in_dim, broadcast_to
from aot.trace import ShapedArray, bind

PREFIX = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
INT = np.dtype("int32")


def char(c: str) -> str: return f"{ord(c)} : ui8"


def layout(a: ShapedArray, matrix_rank: int) -> str:
    """Minor-to-major order: columns first for matrices, rows first for everything smaller."""
    n = a.ndim
    order = (n - 2, n - 1, *range(n - 3, -1, -1)) if n == matrix_rank else tuple(range(n - 1, -1, -1))
    return f"dense<[{', '.join(map(str, order))}]> : tensor<{n}xindex>" if n else "dense<> : tensor<0xindex>"


def kernel(e, name: str, xs: Sequence[str], ins: Sequence[ShapedArray], outs: Sequence[ShapedArray],
           aliases: dict[int, int] | None = None, dtype=None, **attrs: str) -> list[str]:
    """Emit a call of the LAPACK kernel `name` (without its type prefix).  aliases: operand -> result it overwrites."""
    dtype = dtype or ins[0].dtype
    if dtype.name not in PREFIX:
        raise TypeError(f"LAPACK has no kernel {name} for dtype {dtype.name}; hint: convert to float32 first")
    rank = max(a.ndim for a in ins)
    config = "{" + ", ".join(f"{k} = {v}" for k, v in attrs.items()) + "}"
    alias = ", ".join(f"#stablehlo.output_operand_alias<output_tuple_indices = [{out}], operand_index = {i}, "
                      "operand_tuple_indices = []>" for i, out in (aliases or {}).items())
    if len(outs) == 1:
        alias = alias.replace("output_tuple_indices = [0]", "output_tuple_indices = []")
    return e.ops(f"stablehlo.custom_call @lapack_{PREFIX[dtype.name]}{name}_ffi({', '.join(xs)}) {{api_version = 4 : i32, "
                 f"backend_config = {config}, operand_layouts = [{', '.join(layout(a, rank) for a in ins)}], "
                 f"result_layouts = [{', '.join(layout(a, rank) for a in outs)}], output_operand_aliases = [{alias}]}} : "
                 f"({', '.join(a.mlir for a in ins)}) -> ({', '.join(a.mlir for a in outs)})", len(outs))


def nan_where_failed(e, info: str, batch: tuple[int, ...], x: str, a: ShapedArray) -> str:
    """x, or NaN for the batch entries whose info is not 0."""
    def f(info, x):
        ok = broadcast_in_dim(ew.eq(info, np.int32(0)), a.shape, tuple(range(len(batch))))
        value = complex(np.nan, np.nan) if kind(a.dtype) == "c" else np.nan
        return ew.select(ok, x, broadcast_to(a.dtype.type(value), a.shape))
    return e.inline(f, [ShapedArray(batch, INT), a], (info, x))[0]


def matrix(a: ShapedArray, name: str, square: bool = False, kinds: str = "fc") -> tuple[tuple[int, ...], int, int]:
    """(batch shape, rows, columns) of a matrix operand, checked."""
    if kind(a.dtype) not in kinds:
        wanted = ", ".join(KINDS[k] for k in kinds)
        raise TypeError(f"{name} does not accept dtype {a.dtype.name}; accepted: {wanted}")
    if a.ndim < 2:
        raise ValueError(f"The input to {name} must have at least 2 dimensions. Got shape {a.shape}.")
    if square and a.shape[-1] != a.shape[-2]:
        raise ValueError(f"The input to {name} must be a square matrix. Got shape {a.shape}.")
    return a.shape[:-2], a.shape[-2], a.shape[-1]


def real_of(a: ShapedArray) -> np.dtype: return ew.real_dtype(a.dtype)


def complex_of(a: ShapedArray) -> np.dtype:
    return np.dtype({"float32": "complex64", "float64": "complex128"}.get(a.dtype.name, a.dtype.name))


class MatrixPrimitive(Primitive):
    """Operands have leading batch dimensions, so vmap only adds one more."""

    def vmap(self, axis, args, dims, **params):
        from aot.transforms.vmap import to_dim
        outs = bind(self, *[to_dim(axis, x, d, 0) for x, d in zip(args, dims)], **params)
        return outs, [0] * len(outs)


class Potrf(MatrixPrimitive, NonDifferentiable):
    """Lower Cholesky factor; entries above the diagonal are left as they were."""
    name = "potrf"
    multiple_results = True

    def infer(self, a):
        matrix(a, "cholesky", square=True)
        return [a.strip_weak_type()]

    def lower(self, e, ins, outs, a):
        batch = ins[0].shape[:-2]
        out, info = kernel(e, "potrf", [a], ins, [outs[0], ShapedArray(batch, INT)], {0: 0}, uplo=char("L"))
        return [nan_where_failed(e, info, batch, out, outs[0])]


class Getrf(MatrixPrimitive, NonDifferentiable):
    """LU in one matrix, and the row exchanged with each row (0-based)."""
    name = "getrf"
    multiple_results = True

    def infer(self, a):
        batch, m, n = matrix(a, "lu")
        return [a.strip_weak_type(), ShapedArray((*batch, min(m, n)), INT)]

    def lower(self, e, ins, outs, a):
        batch = ins[0].shape[:-2]
        lu, pivots, info = kernel(e, "getrf", [a], ins, [*outs, ShapedArray(batch, INT)], {0: 0})
        pivots = e.inline(lambda p: ew.sub(p, np.int32(1)), outs[1:], (pivots,))[0]
        ok = e.inline(lambda i: ew.min(i, np.int32(0)), [ShapedArray(batch, INT)], (info,))[0]   # singular is no failure
        return [nan_where_failed(e, ok, batch, lu, outs[0]), pivots]


class Geqrf(MatrixPrimitive, NonDifferentiable):
    """QR as R and Householder reflectors below it, with their scales."""
    name = "geqrf"
    multiple_results = True

    def infer(self, a):
        batch, m, n = matrix(a, "geqrf")
        return [a.strip_weak_type(), ShapedArray((*batch, min(m, n)), a.dtype)]

    def lower(self, e, ins, outs, a): return kernel(e, "geqrf", [a], ins, outs, {0: 0})


class Geqp3(MatrixPrimitive, NonDifferentiable):
    """QR with column pivoting: (factors, 1-based column order, scales)."""
    name = "geqp3"
    multiple_results = True

    def infer(self, a, jpvt):
        batch, m, n = matrix(a, "geqp3")
        return [a.strip_weak_type(), ShapedArray((*batch, n), INT), ShapedArray((*batch, min(m, n)), a.dtype)]

    def lower(self, e, ins, outs, a, jpvt): return kernel(e, "geqp3", [a, jpvt], ins, outs, {0: 0, 1: 1})


class HouseholderProduct(MatrixPrimitive, NonDifferentiable):
    """The orthogonal (unitary) matrix that Householder reflectors multiply to."""
    name = "householder_product"

    def infer(self, a, taus):
        batch, m, n = matrix(a, self.name)
        if m < n or taus.shape[:-1] != batch or taus.shape[-1] > n:
            raise ValueError(f"householder_product needs at least as many rows as columns, and at most as many taus; got "
                             f"{a.shape} and {taus.shape}")
        return [a.strip_weak_type()]

    def lower(self, e, ins, outs, a, taus):
        name = "ungqr" if kind(ins[0].dtype) == "c" else "orgqr"
        return kernel(e, name, [a, taus], ins, outs, {0: 0})


class Ormqr(MatrixPrimitive, NonDifferentiable):
    """c multiplied by the orthogonal matrix of Householder reflectors."""
    name = "ormqr"

    def infer(self, a, taus, c, *, left, transpose): return [c.strip_weak_type()]

    def lower(self, e, ins, outs, a, taus, c, *, left, transpose):
        name = "unmqr" if kind(ins[0].dtype) == "c" else "ormqr"
        return kernel(e, name, [a, taus, c], ins, outs, {2: 0}, left=str(left).lower(), transpose=str(transpose).lower())


class Heevd(MatrixPrimitive, NonDifferentiable):
    """Eigenvectors and ascending eigenvalues of a Hermitian matrix."""
    name = "heevd"
    multiple_results = True

    def infer(self, a, *, lower):
        batch, n, _ = matrix(a, "eigh", square=True)
        return [a.strip_weak_type(), ShapedArray((*batch, n), real_of(a))]

    def lower(self, e, ins, outs, a, *, lower):
        batch = ins[0].shape[:-2]
        if outs[0].size == 0:
            return [a, e.splat(0, outs[1])]
        name = "heevd" if kind(ins[0].dtype) == "c" else "syevd"
        v, w, info = kernel(e, name, [a], ins, [*outs, ShapedArray(batch, INT)], {0: 0}, mode=char("V"),
                            uplo=char("L" if lower else "U"))
        return [nan_where_failed(e, info, batch, v, outs[0]), nan_where_failed(e, info, batch, w, outs[1])]


class Geev(MatrixPrimitive, NonDifferentiable):
    """Eigenvalues, left and right eigenvectors of a general matrix (complex)."""
    name = "geev"
    multiple_results = True

    def infer(self, a, *, left, right):
        batch, n, _ = matrix(a, "eig", square=True)
        c = complex_of(a)
        return [ShapedArray((*batch, n), c), *[ShapedArray(a.shape, c)] * (left + right)]

    def lower(self, e, ins, outs, a, *, left, right):
        A, batch = ins[0], ins[0].shape[:-2]
        if A.size == 0:
            return [e.splat(0, o) for o in outs]
        w, v, info = ShapedArray(A.shape[:-1], A.dtype), ShapedArray(A.shape, complex_of(A)), ShapedArray(batch, INT)
        is_real = kind(A.dtype) == "f"
        got = kernel(e, "geev", [a], ins, [*[w] * (2 if is_real else 1), v, v, info],
                     compute_left=char("V" if left else "N"), compute_right=char("V" if right else "N"))
        *parts, vl, vr, info_name = got
        values = e.elementwise("complex", [w, w], outs[0], parts) if is_real else parts[0]
        results = [values] + [vl] * left + [vr] * right
        return [nan_where_failed(e, info_name, batch, x, o) for x, o in zip(results, outs)]


class Gesdd(MatrixPrimitive, NonDifferentiable):
    """Singular values, and (compute_uv) U and V^H; divide and conquer, or QR iteration."""
    name = "gesdd"
    multiple_results = True

    def infer(self, a, *, full_matrices, compute_uv, qr_iteration):
        batch, m, n = matrix(a, "svd")
        k = min(m, n)
        s = ShapedArray((*batch, k), real_of(a))
        if not compute_uv:
            return [s]
        return [s, ShapedArray((*batch, m, m if full_matrices else k), a.dtype),
                ShapedArray((*batch, n if full_matrices else k, n), a.dtype)]

    def lower(self, e, ins, outs, a, *, full_matrices, compute_uv, qr_iteration):
        A, batch = ins[0], ins[0].shape[:-2]
        s, u, v = self.infer(A, full_matrices=full_matrices, compute_uv=True, qr_iteration=qr_iteration)
        if A.size == 0:
            return e.inline(lambda _: _empty_svd(outs), ins, (a,))
        mode = "N" if not compute_uv else "A" if full_matrices else "S"
        _, *results, info = kernel(e, "gesvd" if qr_iteration else "gesdd", [a], ins,
                                   [A, s, u, v, ShapedArray(batch, INT)], {0: 0}, mode=char(mode))
        return [nan_where_failed(e, info, batch, x, o) for x, o in zip(results, outs)]


def _empty_svd(outs):
    eye = lambda o: broadcast_in_dim(np.eye(*o.shape[-2:], dtype=o.dtype), o.shape, (o.ndim - 2, o.ndim - 1))
    return [broadcast_to(outs[0].dtype.type(0), outs[0].shape), *map(eye, outs[1:])]


class Gees(MatrixPrimitive, NonDifferentiable):
    """Schur form T and vectors Z: a = Z T Z^H."""
    name = "schur"
    multiple_results = True

    def infer(self, a, *, compute_vectors):
        matrix(a, "schur", square=True)
        return [a.strip_weak_type()] * (2 if compute_vectors else 1)

    def lower(self, e, ins, outs, a, *, compute_vectors):
        A, batch = ins[0], ins[0].shape[:-2]
        w, info = ShapedArray(A.shape[:-1], A.dtype), ShapedArray(batch, INT)
        n_w = 2 if kind(A.dtype) == "f" else 1
        t, z, *_, failed = kernel(e, "gees", [a], ins, [A, A, *[w] * n_w, info, info], {0: 0},
                                  mode=char("V" if compute_vectors else "N"), sort=char("N"))
        return [nan_where_failed(e, failed, batch, x, o) for x, o in zip((t, z), outs)]


class Gehrd(MatrixPrimitive, NonDifferentiable):
    """Hessenberg form with Householder reflectors below it, and their scales."""
    name = "hessenberg"
    multiple_results = True

    def infer(self, a):
        batch, n, _ = matrix(a, "hessenberg", square=True)
        return [a.strip_weak_type(), ShapedArray((*batch, n - 1), a.dtype)]

    def lower(self, e, ins, outs, a):
        batch, n = ins[0].shape[:-2], ins[0].shape[-1]
        h, taus, info = kernel(e, "gehrd", [a], ins, [*outs, ShapedArray(batch, INT)], {0: 0}, low="1 : i32",
                               high=f"{n} : i32")
        return [nan_where_failed(e, info, batch, x, o) for x, o in zip((h, taus), outs)]


class Sytrd(MatrixPrimitive, NonDifferentiable):
    """Tridiagonal form of a Hermitian matrix: (reflectors, diagonal, off-diagonal, scales)."""
    name = "tridiagonal"
    multiple_results = True

    def infer(self, a, *, lower):
        batch, n, _ = matrix(a, "tridiagonal", square=True)
        r = real_of(a)
        return [a.strip_weak_type(), ShapedArray((*batch, n), r), ShapedArray((*batch, n - 1), r),
                ShapedArray((*batch, n - 1), a.dtype)]

    def lower(self, e, ins, outs, a, *, lower):
        batch = ins[0].shape[:-2]
        name = "hetrd" if kind(ins[0].dtype) == "c" else "sytrd"
        *results, info = kernel(e, name, [a], ins, [*outs, ShapedArray(batch, INT)], {0: 0},
                                uplo=char("L" if lower else "U"))
        return [nan_where_failed(e, info, batch, x, o) for x, o in zip(results, outs)]


potrf_p, getrf_p, geqrf_p, geqp3_p = Potrf(), Getrf(), Geqrf(), Geqp3()
householder_product_p, ormqr_p, heevd_p, geev_p = HouseholderProduct(), Ormqr(), Heevd(), Geev()
gesdd_p, gees_p, gehrd_p, sytrd_p = Gesdd(), Gees(), Gehrd(), Sytrd()
