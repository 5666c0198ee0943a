"""Determinants, from LU decompositions, with derivatives that hold for singular matrices too."""
from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from aot import lax
from aot.custom import custom_jvp
from aot.numpy import matrices, reductions
from aot.numpy._util import array_of, arrays, cast, inexact, kind, named, promote
from aot.numpy._util import where as _where
from aot.numpy.selecting import take_along_axis


class SlogdetResult(NamedTuple):
    """Sign (or phase) and logarithm of the absolute value of a determinant."""

    sign: Any
    logabsdet: Any


def _square(name: str, a: Any) -> Any:
    """`a` as square matrices of floats or complex numbers."""
    a = array_of(promote(arrays(f"jnp.linalg.{name}", a), to=inexact)[0])
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"Argument to {name}() must have shape [..., n, n], got {a.shape}")
    return a


def _det_2x2(a: Any) -> Any:
    return a[..., 0, 0] * a[..., 1, 1] - a[..., 0, 1] * a[..., 1, 0]


def _det_3x3(a: Any) -> Any:
    """Sum over the three columns of the first row times their cofactors."""
    (p, q, r), (s, t, u), (v, w, x) = [[a[..., i, j] for j in range(3)] for i in range(3)]
    return p * (t * x - u * w) + q * (u * v - s * x) + r * (s * w - t * v)


def _odd_permutation(pivots: Any) -> Any:
    """1 where the row exchanges of an LU decomposition are odd in number, else 0."""
    stay = lax.broadcasted_iota(pivots.dtype, pivots.shape, pivots.ndim - 1)
    return reductions.count_nonzero(pivots != stay, axis=-1) % 2


@custom_jvp
def _det_lu(a: Any) -> Any:
    sign, logdet = slogdet(a)
    return sign * lax.convert_element_type(lax.exp(logdet), sign.dtype)


@_det_lu.defjvp
def _det_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    """d det = trace(adj(a) da), with adj(a) = det U^-1 L^-1 P arranged so that the last pivot is not divided by.

    That makes it right for matrices of rank n - 1 too, where the determinant is 0 and its derivative is not.
    """
    (a,), (da,) = primals, tangents
    lu, pivots, permutation = lax.linalg.lu(a)
    diagonal_ = matrices.diagonal(lu, 0, -2, -1)
    sign = lax.convert_element_type(1 - 2 * _odd_permutation(pivots), a.dtype)
    minor = sign * reductions.prod(diagonal_[..., :-1], axis=-1)
    det_ = minor * diagonal_[..., -1]
    rows = lax.expand_dims(permutation, (permutation.ndim,))
    permuted = take_along_axis(da, lax.broadcast_in_dim(permutation, da.shape, tuple(range(rows.ndim - 1))), axis=-2)
    triangle = functools.partial(lax.linalg.triangular_solve, left_side=True)
    y = triangle(lu, permuted, lower=True, unit_diagonal=True)
    scale = lax.concatenate([lax.broadcast_in_dim(det_, (*det_.shape, a.shape[-1] - 1), tuple(range(det_.ndim))),
                             minor[..., None]], det_.ndim)
    singular = reductions.any(diagonal_[..., :-1] == 0, axis=-1)
    upper = lu.at[..., -1, -1].set(1)
    z = triangle(_where(singular[..., None, None], matrices.eye(a.shape[-1], dtype=a.dtype), upper), y * scale[..., None],
                 lower=False)
    out = _where(singular, 0, matrices.trace(z, axis1=-1, axis2=-2))
    return det_, lax.convert_element_type(out, det_.dtype)


@named()
def det(a: Any) -> Any:
    """Determinant."""
    a = _square("det", a)
    small = {2: _det_2x2, 3: _det_3x3}
    return small.get(a.shape[-1], _det_lu)(a)


@named("method")
def slogdet(a: Any, *, method: str | None = None) -> SlogdetResult:
    """Sign and logarithm of the absolute determinant. `method`: "lu" (the default) or "qr"."""
    a = _square("slogdet", a)
    if method not in (None, "lu", "qr"):
        raise ValueError(f"Unknown slogdet method '{method}'. Supported methods are 'lu' (`None`), and 'qr'.")
    if method != "qr":
        return SlogdetResult(*(_slogdet_small if a.shape[-1] in (1, 2) else _slogdet_lu)(a))
    return SlogdetResult(*_slogdet_qr(a))


def _slogdet_rule(factored: Any) -> Any:
    """The derivative of any of the ways to compute it: d log det = trace(a^-1 da)."""

    def rule(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
        (a,), (da,) = primals, tangents
        sign, logdet = factored(a)
        change = _trace_of_solve(a, da)
        if kind(a.dtype) != "c":
            return (sign, logdet), (lax.full_like(sign, 0), change)
        real = lax.real(change)
        turning = (change - lax.convert_element_type(real, change.dtype)) * sign
        return (sign, logdet), (turning, real)

    factored.defjvp(rule)
    return factored


def _trace_of_solve(a: Any, da: Any) -> Any:
    if a.shape[-1] == 1:
        return da[..., 0, 0] / a[..., 0, 0]
    if a.shape[-1] == 2:
        adjugate = (da[..., 0, 0] * a[..., 1, 1] - da[..., 0, 1] * a[..., 1, 0]
                    - da[..., 1, 0] * a[..., 0, 1] + da[..., 1, 1] * a[..., 0, 0])
        return adjugate / _det_2x2(a)
    from aot.numpy.linalg import solve

    return matrices.trace(solve(a, da), axis1=-1, axis2=-2)


@_slogdet_rule
@custom_jvp
def _slogdet_small(a: Any) -> tuple[Any, Any]:
    value = a[..., 0, 0] if a.shape[-1] == 1 else _det_2x2(a)
    return lax.sign(value), lax.log(lax.abs(value))


@_slogdet_rule
@custom_jvp
def _slogdet_lu(a: Any) -> tuple[Any, Any]:
    lu, pivots, _ = lax.linalg.lu(a)
    d = matrices.diagonal(lu, 0, -2, -1)
    singular = reductions.any(d == 0, axis=-1)
    phase = 1 - 2 * _odd_permutation(pivots)
    sign = lax.convert_element_type(phase, a.dtype) * reductions.prod(lax.sign(d), axis=-1)
    logdet = reductions.sum(lax.log(lax.abs(d)), axis=-1)
    return _where(singular, cast(0, sign.dtype), sign), _where(singular, cast(-np.inf, logdet.dtype), logdet)


@_slogdet_rule
@custom_jvp
def _slogdet_qr(a: Any) -> tuple[Any, Any]:
    if kind(a.dtype) == "c":
        raise NotImplementedError("slogdet method='qr' not implemented for complex inputs")
    reflectors, taus = lax.linalg.geqrf(a)
    d = matrices.diagonal(reflectors, 0, -2, -1)
    turned = reductions.count_nonzero(taus[..., :a.shape[-1] - 1], axis=-1) % 2  # each reflection changes the sign
    sign = lax.convert_element_type(1 - 2 * turned, a.dtype) * reductions.prod(lax.sign(d), axis=-1)
    return sign, reductions.sum(lax.log(lax.abs(d)), axis=-1)
