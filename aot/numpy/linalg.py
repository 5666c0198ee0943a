"""Linear algebra: decompositions, solving, norms, determinants. All functions work on the last two axes."""
from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from aot import dtypes, lax
from aot.config import override
from aot.custom import custom_jvp
from aot.numpy import _util, contraction, matrices, products, reductions
from aot.numpy._util import array_of, arrays, axis_of, cast, default_int, inexact, kind, named, promote, real_of
from aot.numpy._util import where as _where
from aot.numpy.determinants import SlogdetResult as SlogdetResult
from aot.numpy.determinants import det as det
from aot.numpy.determinants import slogdet as slogdet
from aot.numpy.elementwise import conj, isnan
from aot.numpy.shapes import matrix_transpose as _swap
from aot.numpy.shapes import moveaxis


class EighResult(NamedTuple):
    """Eigenvalues `(..., n)` in ascending order and eigenvectors `(..., n, n)`, one a column."""

    eigenvalues: Any
    eigenvectors: Any


class EigResult(NamedTuple):
    """Eigenvalues `(..., n)` and right eigenvectors `(..., n, n)`, one a column."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """Orthonormal columns Q and upper triangle R."""

    Q: Any
    R: Any


class SVDResult(NamedTuple):
    """Left vectors, singular values in descending order, and conjugated right vectors."""

    U: Any
    S: Any
    Vh: Any


def _floats(name: str, *args: Any) -> Any:
    """Arguments as arrays of a common float or complex dtype."""
    args = arrays(f"jnp.linalg.{name}", *args)
    out = promote(*(args if isinstance(args, list) else [args]), to=inexact)
    return out[0] if len(out) == 1 else out


def _adjoint(x: Any) -> Any:
    return conj(_swap(x))


# ---- decompositions --------------------------------------------------------------------------------------------------
@named("upper", "symmetrize_input")
def cholesky(a: Any, *, upper: bool = False, symmetrize_input: bool = True) -> Any:
    """Lower triangle L with a = L L^H (or the upper one with a = U^H U); nan if `a` is not positive definite."""
    lower = lax.linalg.cholesky(_floats("cholesky", a), symmetrize_input=symmetrize_input)
    return _adjoint(lower) if upper else lower


@named("mode")
def qr(a: Any, mode: str = "reduced") -> Any:
    """a = Q R with orthonormal columns in Q. `mode`: "reduced", "complete", "r" (only R) or "raw" (reflectors)."""
    a = _floats("qr", a)
    if mode == "raw":
        reflectors, taus = lax.linalg.geqrf(a)
        return QRResult(_swap(reflectors), taus)
    if mode not in ("reduced", "r", "full", "complete"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'")
    q, r = lax.linalg.qr(a, pivoting=False, full_matrices=mode == "complete")
    return r if mode == "r" else QRResult(q, r)


@named("full_matrices", "compute_uv", "hermitian", "subset_by_index")
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False,
        subset_by_index: tuple[int, int] | None = None) -> Any:
    """a = U diag(S) Vh. Only S if not `compute_uv`; `hermitian` takes a quicker way for symmetric matrices."""
    a = _floats("svd", a)
    if hermitian:
        return _svd_hermitian(a, compute_uv, subset_by_index)
    out = lax.linalg.svd(a, full_matrices=full_matrices, compute_uv=compute_uv, subset_by_index=subset_by_index)
    return SVDResult(*out) if compute_uv else out


def _svd_hermitian(a: Any, compute_uv: bool, subset: Any) -> Any:
    """Eigenvalues in order of their absolute value; their signs go into the right vectors."""
    vectors, values = lax.linalg.eigh(a, subset_by_index=subset)
    last = values.ndim - 1
    order = lax.broadcasted_iota(np.int32, values.shape, last)
    size, order, sign = lax.sort((lax.abs(values), order, lax.sign(values)), dimension=last, num_keys=1)
    size, order, sign = [lax.rev(x, (last,)) for x in (size, order, sign)]
    if not compute_uv:
        return size
    from aot.numpy.selecting import take_along_axis

    u = take_along_axis(vectors, order[..., None, :], axis=-1)
    return SVDResult(u, size, _adjoint(u * lax.convert_element_type(sign[..., None, :], u.dtype)))


def svdvals(x: Any, /) -> Any:
    """Singular values in descending order."""
    return svd(x, compute_uv=False)


def eig(a: Any) -> EigResult:
    """Eigenvalues and right eigenvectors of a general matrix; always complex."""
    a = _floats("eig", a)
    values, vectors = lax.linalg.eig(a, compute_left_eigenvectors=False)
    return EigResult(values, vectors)


@named()
def eigvals(a: Any) -> Any:
    """Eigenvalues of a general matrix; always complex."""
    a = _floats("eigvals", a)
    return lax.linalg.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]


@named("UPLO", "symmetrize_input")
def eigh(a: Any, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """Eigenvalues and eigenvectors of a symmetric or Hermitian matrix. `UPLO`: which triangle is read."""
    if UPLO not in (None, "L", "U"):
        raise ValueError(f"UPLO must be one of None, 'L', or 'U', got {UPLO}")
    a = _floats("eigh", a)
    vectors, values = lax.linalg.eigh(a, lower=UPLO != "U", symmetrize_input=symmetrize_input)
    return EighResult(values, vectors)


@named("UPLO", "symmetrize_input")
def eigvalsh(a: Any, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Any:
    """Eigenvalues of a symmetric or Hermitian matrix."""
    return eigh(_floats("eigvalsh", a), UPLO=UPLO, symmetrize_input=symmetrize_input).eigenvalues


# ---- solving ---------------------------------------------------------------------------------------------------------
def _lu_solve(lu: Any, permutation: Any, b: Any, trans: int = 0) -> Any:
    """x from the LU decomposition of a: a x = b, a^T x = b (trans 1) or a^H x = b (trans 2); b is `(n, k)`."""
    triangle = lax.linalg.triangular_solve
    if trans == 0:
        y = triangle(lu, b[permutation, :], left_side=True, lower=True, unit_diagonal=True)
        return triangle(lu, y, left_side=True, lower=False)
    flip = {"transpose_a": True, "conjugate_a": trans == 2}
    y = triangle(lu, b, left_side=True, lower=False, **flip)
    y = triangle(lu, y, left_side=True, lower=True, unit_diagonal=True, **flip)
    from aot.numpy.sorting import argsort

    return y[argsort(permutation), :]


def _solve_matrix(a: Any, b: Any) -> Any:
    """a x = b for one matrix and one block of columns, differentiated as a linear solve and not through the LU."""
    lu, _, permutation = lax.linalg.lu(lax.stop_gradient(a))
    return lax.custom_linear_solve(
        functools.partial(products.matmul, a, precision=lax.Precision.HIGHEST), b,
        solve=lambda _, x: _lu_solve(lu, permutation, x),
        transpose_solve=lambda _, x: _lu_solve(lu, permutation, x, trans=1))


def _solve_vector(a: Any, b: Any) -> Any:
    return _solve_matrix(a, b[:, None])[:, 0]


@named()
def solve(a: Any, b: Any) -> Any:
    """x with a x = b; `b` is a vector or a matrix of columns, `(..., n, n), (n,) or (..., n, k)`."""
    from aot.numpy.vectorizing import vectorize

    a, b = _floats("solve", a, b)
    if a.ndim < 2:
        raise ValueError(f"left hand array must be at least two dimensional; got {a.shape=}")
    if b.ndim > 1 and a.ndim == b.ndim + 1 and a.shape[-1] == b.shape[-1] != b.shape[-2]:
        raise ValueError(f"Invalid shapes for solve: {a.shape}, {b.shape}. A batch of vectors needs a last axis of size 1: "
                         "solve(a, b[..., None]).squeeze(-1).")
    if b.ndim == 1:
        return vectorize(_solve_vector, signature="(m,m),(m)->(m)")(a, b)
    return vectorize(_solve_matrix, signature="(m,m),(m,n)->(m,n)")(a, b)


@named()
def inv(a: Any) -> Any:
    """Inverse matrix."""
    a = arrays("jnp.linalg.inv", a)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"Argument to inv must have shape [..., n, n], got {a.shape}.")
    return solve(a, lax.broadcast(matrices.eye(a.shape[-1], dtype=a.dtype), a.shape[:-2]))


def pinv(a: Any, rtol: Any = None, hermitian: bool = False, *, rcond: Any = None) -> Any:
    """Pseudo-inverse; singular values below `rtol` times the largest count as zero."""
    if rcond is not None and rtol is not None:
        raise ValueError("pinv: only one of rtol and rcond may be specified.")
    a = _floats("pinv", a)
    rtol = rcond if rtol is None else rtol
    if rtol is None:
        rtol = 10.0 * max(a.shape[-2:]) * float(dtypes.finfo(a.dtype).eps)
    return _pinv(a, cast(rtol, real_of(a.dtype)), hermitian)


@functools.partial(custom_jvp, nondiff_argnums=(2,))
def _pinv(a: Any, rtol: Any, hermitian: bool) -> Any:
    m, n = a.shape[-2:]
    if m == 0 or n == 0:
        return lax.full((*a.shape[:-2], n, m), 0, a.dtype)
    u, s, vh = svd(a, full_matrices=False, hermitian=hermitian)
    rtol = lax.reshape(rtol, (*rtol.shape, 1))
    keep = s > rtol * s[..., :1]
    inverse = lax.convert_element_type(_where(keep, 1 / _where(keep, s, 1), 0), a.dtype)
    return products.matmul(_adjoint(vh), inverse[..., None] * _adjoint(u), precision=lax.Precision.HIGHEST)


@_pinv.defjvp
def _pinv_jvp(hermitian: bool, primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    """Golub and Pereyra: -P da P + P P^H da^H (1 - a P) + (1 - P a) da^H P^H P."""
    (a, rtol), da = primals, tangents[0]
    p = _pinv(a, rtol, hermitian)
    if hermitian:
        a, da = [(x + _adjoint(x)) / 2 for x in (a, da)]
    with override("default_matmul_precision", "float32"):
        left = p @ (_adjoint(p) @ _adjoint(da))
        right = (_adjoint(da) @ _adjoint(p)) @ p
        return p, left - left @ (a @ p) + right - p @ (a @ right) - p @ (da @ p)


def lstsq(a: Any, b: Any, rcond: float | None = None, *, numpy_resid: bool = False) -> tuple[Any, Any, Any, Any]:
    """Least squares: x, residuals, rank of `a` and its singular values. Residuals are there for any rank."""
    a, b = _floats("lstsq", a, b)
    if a.shape[0] != b.shape[0]:
        raise ValueError("Leading dimensions of input arrays must match")
    if a.ndim != 2:
        raise TypeError(f"{a.ndim}-dimensional array given. Array must be two-dimensional")
    if b.ndim not in (1, 2):
        raise TypeError(f"{b.ndim}-dimensional array given. Array must be one or two-dimensional")
    x, residuals, rank, s = _lstsq(a, b, rcond)
    m, n = a.shape
    if numpy_resid and (rank < n or m <= n):
        residuals = lax.full((0,), 0, _util.default_float())
    return x, residuals, rank, s


@named()
def _lstsq(a: Any, b: Any, rcond: Any) -> tuple[Any, Any, Any, Any]:
    columns = b if b.ndim == 2 else b[:, None]
    m, n = a.shape
    highest = functools.partial(products.matmul, precision=lax.Precision.HIGHEST)
    eps = float(dtypes.finfo(a.dtype).eps)
    if a.size == 0:
        s, rank = lax.full((0,), 0, real_of(a.dtype)), lax.full((), 0, default_int())
        x = lax.full((n, columns.shape[1]), 0, a.dtype)
    else:
        u, s, vh = svd(a, full_matrices=False)
        rcond = eps * max(n, m) if rcond is None else _where(rcond < 0, eps, rcond)
        keep = (s > 0) & (s >= lax.convert_element_type(rcond, s.dtype) * s[0])
        rank = reductions.sum(keep)
        inverse = lax.convert_element_type(_where(keep, 1 / _where(keep, s, 1), 0), a.dtype)
        x = highest(_adjoint(vh), inverse[:, None] * highest(_adjoint(u), columns))
    residuals = norm(columns - highest(a, x), axis=0) ** 2
    return (x if b.ndim == 2 else lax.reshape(x, (x.size,))), residuals, rank, s


# ---- powers, ranks, conditions ---------------------------------------------------------------------------------------
@named("n")
def matrix_power(a: Any, n: int) -> Any:
    """a multiplied n times by itself; the inverse for negative n."""
    a = arrays("jnp.linalg.matrix_power", a)
    if a.ndim < 2:
        raise TypeError(f"{a.ndim}-dimensional array given. Array must be at least two-dimensional")
    if a.shape[-2] != a.shape[-1]:
        raise TypeError("Last 2 dimensions of the array must be square")
    try:
        n = operator.index(n)
    except TypeError as error:
        raise TypeError(f"exponent must be an integer, got {n}") from error
    if n == 0:
        return _util.broadcast_to(matrices.eye(a.shape[-1], dtype=a.dtype), a.shape)
    power, n, result = (inv(a), -n, None) if n < 0 else (a, n, None)
    while n:
        if n & 1:
            result = power if result is None else result @ power
        n >>= 1
        power = power @ power if n else power
    return result


@named("hermitian")
def matrix_rank(M: Any, rtol: Any = None, *, hermitian: bool = False, tol: Any = None) -> Any:
    """Number of singular values above `rtol` (an absolute bound)."""
    if tol is not None and rtol is not None:
        raise ValueError("matrix_rank: only one of tol or rtol may be specified.")
    rtol = tol if rtol is None else rtol
    M = _floats("matrix_rank", M)
    if M.ndim < 2:
        return lax.convert_element_type(reductions.any(M != 0), np.int32)
    s = svd(M, full_matrices=False, compute_uv=False, hermitian=hermitian)
    if rtol is None:
        rtol = reductions.max(s, -1) * (max(M.shape[-2:]) * float(dtypes.finfo(s.dtype).eps))
    rtol = arrays("matrix_rank", rtol)
    return reductions.sum(s > lax.expand_dims(rtol, (rtol.ndim,)), axis=-1)


@named("p")
def cond(x: Any, p: Any = None) -> Any:
    """Condition number: the norm of the matrix times that of its inverse. `p`: as for `norm`, 2 by default."""
    x = arrays("cond", x)
    if x.ndim < 2:
        raise ValueError(f"jnp.linalg.cond: input array must be at least 2D; got {x.shape=}")
    if 0 in x.shape[-2:]:
        raise ValueError(f"jnp.linalg.cond: input array must not be empty; got {x.shape=}")
    if p in (None, 2, -2):
        s = svdvals(x)
        ratio = s[..., 0] / s[..., -1] if p != -2 else s[..., -1] / s[..., 0]
        if p != -2:
            return ratio
    elif x.shape[-2] != x.shape[-1]:
        raise ValueError(f"jnp.linalg.cond: for {p=}, array must be square; got {x.shape=}")
    else:
        ratio = norm(x, ord=p, axis=(-2, -1)) * norm(inv(x), ord=p, axis=(-2, -1))
    return _where(isnan(ratio) & ~reductions.any(isnan(x), axis=(-2, -1)), np.inf, ratio)


# ---- norms -----------------------------------------------------------------------------------------------------------
def _euclidean(x: Any, axis: Any, keepdims: bool) -> Any:
    squares = lax.real(x * lax.conj(x)) if kind(x.dtype) == "c" else x * x
    return lax.sqrt(reductions.sum(squares, axis=axis, keepdims=keepdims))


@named("ord", "axis", "keepdims")
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Norm of vectors along one axis, of matrices in two, or of all elements.

    `ord` for vectors: any number, inf, -inf, 0 (count of nonzeros); for matrices: "fro", "nuc", 1, -1, 2, -2, inf, -inf.
    """
    x = _floats("norm", x)
    if axis is None and ord is None:
        return _euclidean(x, None, keepdims)
    axes = tuple(range(x.ndim)) if axis is None else tuple(
        axis_of(a, x.ndim) for a in (axis if isinstance(axis, tuple) else (axis,)))
    if len(axes) == 1:
        return vector_norm(x, ord=2 if ord is None else ord, axis=axes, keepdims=keepdims)
    if len(axes) != 2:
        raise ValueError(f"Improper number of axes for norm: {axis=}. Pass one axis to compute a vector-norm, or two axes "
                         "to compute a matrix-norm.")
    return _matrix_norm(x, ord, axes, keepdims)


def _matrix_norm(x: Any, ord: Any, axes: tuple[int, int], keepdims: bool) -> Any:
    if ord is None or ord in ("f", "fro"):
        return _euclidean(x, axes, keepdims)
    if ord in ("nuc", 2, -2):
        s = svd(moveaxis(x, axes, (-2, -1)), compute_uv=False)
        out = reductions.sum(s, axis=-1) if ord == "nuc" else (
            reductions.max(s, axis=-1, initial=0) if ord == 2 else reductions.min(s, axis=-1))
        return lax.expand_dims(out, axes) if keepdims else out
    if ord not in (1, -1, np.inf, -np.inf):
        raise ValueError(f"Invalid order '{ord}' for matrix norm.")
    inner, outer_ = axes if abs(ord) == 1 else axes[::-1]  # the largest column sum, or row sum
    sums = reductions.sum(lax.abs(x), axis=inner, keepdims=True)
    out = reductions.max(sums, axis=outer_, keepdims=True, initial=0) if ord > 0 else reductions.min(
        sums, axis=outer_, keepdims=True)
    return out if keepdims else lax.squeeze(out, axes)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """Norm of the matrices in the last two axes, see `norm`."""
    return norm(x, ord=ord, keepdims=keepdims, axis=(-2, -1))


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """Norm along `axis`, or of all elements, see `norm`."""
    x = arrays("jnp.linalg.vector_norm", x)
    if ord is None or ord == 2:
        return _euclidean(promote(x, to=inexact)[0], axis, keepdims)
    if isinstance(ord, str):
        raise ValueError(f"Invalid order '{ord}' for vector norm; use the number jnp.inf for the maximum.")
    if ord == 0:
        return reductions.sum(x != 0, dtype=real_of(inexact(x.dtype)), axis=axis, keepdims=keepdims)
    size = lax.abs(x)
    if ord == np.inf:
        return reductions.max(size, axis=axis, keepdims=keepdims, initial=0)
    if ord == -np.inf:
        return reductions.min(size, axis=axis, keepdims=keepdims)
    if ord == 1:
        return reductions.sum(size, axis=axis, keepdims=keepdims)
    from aot.numpy.ufuncs import power

    exponent = cast(ord, size.dtype)
    return power(reductions.sum(power(size, exponent), axis=axis, keepdims=keepdims), cast(1.0 / ord, size.dtype))


# ---- products and views of the array API standard --------------------------------------------------------------------
def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Cross product of vectors of three elements."""
    x1, x2 = arrays("jnp.linalg.cross", x1, x2)
    if x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise ValueError("Both input arrays must be (arrays of) 3-dimensional vectors, but they have "
                         f"{x1.shape[axis]=} and {x2.shape[axis]=}")
    return products.cross(x1, x2, axis=axis)


def outer(x1: Any, x2: Any, /) -> Any:
    """Products of all pairs of elements of two vectors."""
    x1, x2 = arrays("jnp.linalg.outer", x1, x2)
    if x1.ndim != 1 or x2.ndim != 1:
        raise ValueError(f"Input arrays must be one-dimensional, but they are {x1.ndim=} {x2.ndim=}")
    return x1[:, None] * x2[None, :]


def matmul(x1: Any, x2: Any, /, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Matrix product, see `aot.numpy.matmul`."""
    return products.matmul(x1, x2, precision=precision, preferred_element_type=preferred_element_type)


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2, precision: Any = None, preferred_element_type: Any = None,
              out_sharding: Any = None) -> Any:
    """Sum of products over axes, see `aot.numpy.tensordot`."""
    return products.tensordot(x1, x2, axes, precision=precision, preferred_element_type=preferred_element_type,
                              out_sharding=out_sharding)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Dot products of vectors, see `aot.numpy.vecdot`."""
    return products.vecdot(x1, x2, axis=axis, precision=precision, preferred_element_type=preferred_element_type)


def matrix_transpose(x: Any, /) -> Any:
    """The last two axes swapped."""
    return _swap(x)


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """Diagonals of the matrices in the last two axes."""
    return matrices.diagonal(x, offset, -2, -1)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """Sums of the diagonals of the matrices in the last two axes."""
    return matrices.trace(x, offset, axis1=-2, axis2=-1, dtype=dtype)


def tensorinv(a: Any, ind: int = 2) -> Any:
    """Inverse with respect to `tensordot` over the first `ind` axes."""
    a, ind = arrays("tensorinv", a), operator.index(ind)
    if ind <= 0:
        raise ValueError(f"ind must be a positive integer; got {ind=}")
    first, rest = a.shape[:ind], a.shape[ind:]
    if math.prod(first) != math.prod(rest):
        raise ValueError("tensorinv is only possible when the product of the first `ind` dimensions equals that of the "
                         f"remaining dimensions. got {a.shape=} with {ind=}.")
    return lax.reshape(inv(lax.reshape(a, (math.prod(first), math.prod(rest)))), (*rest, *first))


def tensorsolve(a: Any, b: Any, axes: tuple[int, ...] | None = None) -> Any:
    """x with tensordot(a, x, x.ndim) = b."""
    a, b = arrays("tensorsolve", a, b)
    for axis in sorted([axis_of(i, a.ndim) for i in axes] if axes is not None else [], reverse=False):
        a = moveaxis(a, axis, a.ndim - 1)
    shape = a.shape[b.ndim:]
    if a.shape[:b.ndim] != b.shape:
        raise ValueError("After moving axes to end, leading shape of a must match shape of b. got "
                         f"{a.shape=}, {b.shape=}")
    if b.size != math.prod(shape):
        raise ValueError(f"Input arrays must have prod(a.shape[:b.ndim]) == prod(a.shape[b.ndim:]); got {a.shape=}, "
                         f"{b.ndim=}.")
    return lax.reshape(solve(lax.reshape(a, (b.size, b.size)), lax.reshape(b, (b.size,))), shape)


def multi_dot(arrays: Sequence[Any], *, precision: Any = None) -> Any:
    """Product of several matrices in the cheapest order; the first and last may be vectors."""
    _util.check("jnp.linalg.multi_dot", *arrays)
    arrs = [array_of(a) for a in arrays]
    if len(arrs) < 2:
        raise ValueError(f"multi_dot requires at least two arrays; got {len(arrs)=}")
    shapes = [a.shape for a in arrs]
    if not (len(shapes[0]) in (1, 2) and len(shapes[-1]) in (1, 2) and all(len(s) == 2 for s in shapes[1:-1])):
        raise ValueError("multi_dot: input arrays must all be two-dimensional, except for the first and last array which "
                         f"may be 1 or 2 dimensional. Got array shapes {shapes}")
    if any(p[-1] != q[0] for p, q in zip(shapes, shapes[1:])):
        raise ValueError("multi_dot: last dimension of each array must match first dimension of following array. Got "
                         f"array shapes {shapes}")
    names = [[i, i + 1] for i in range(len(arrs))]
    names[0] = names[0][-arrs[0].ndim:]
    names[-1] = names[-1][:arrs[-1].ndim]
    pairs = [x for pair in zip(arrs, names) for x in pair]
    return contraction.einsum(*pairs, optimize="auto", precision=precision)
