"""Rows of transforms and factorizations: fft, cholesky, triangular_solve, rng_bit_generator."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from aot.exporters.stablehlo import Op

from .complex_numbers import Complex, Math, both, parts
from .graph import Tensor
from .kernels import NoKernel
from .lowering import Lowering, row
from .rows_contraction import bilinear, matmul

LARGEST_MATRIX = 4096          # of a Fourier transform of a length without factors


# ---- Fourier transforms -----------------------------------------------------------------------------------------------

@row("fft")
def fft(lower: Lowering, op: Op, x: Any) -> Any:
    """One axis after the other, the last first (last for inverse real transforms)."""
    g, kind, lengths = lower.g, op.attrs["fft_type"], [int(n) for n in op.attrs["fft_length"]]
    first = x.rank - len(lengths)
    inverse = kind in ("IFFT", "IRFFT")
    z = x if isinstance(x, Complex) else Complex(x, g.full(x.shape, 0, x.dtype))
    if kind == "IRFFT":
        z = _along_axes(g, z, range(first, x.rank - 1), True)
        z = _along_axes(g, _hermitian(g, z, lengths[-1]), [x.rank - 1], True)
        return z.re
    z = _along_axes(g, z, range(first, x.rank), inverse)
    if kind == "RFFT":
        z = both(lambda t: g.along(t, t.rank - 1, 0, lengths[-1] // 2 + 1), z)
    return z


def _hermitian(g: Math, z: Complex, n: int) -> Complex:
    """The first half of a spectrum of a real signal -> all n values: the others are conjugates, in reverse order."""
    axis, half = z.rank - 1, n // 2 + 1
    z = both(lambda t: g.along(t, axis, 0, half), z)
    rest = both(lambda t: g.reverse(g.along(t, axis, 1, n - half + 1), [axis]), z)
    rest = Complex(rest.re, g.neg(rest.im))
    last = half - 1 if n % 2 == 0 else half
    real_ends = [0] + ([last] if n % 2 == 0 else [])
    mask = np.ones(half)
    mask[real_ends] = 0
    im = g.mul(z.im, g.broadcast(g.const(mask.astype(z.im.dtype)), z.im.shape))
    return both(lambda a, b: g.concatenate([a, b], axis), Complex(z.re, im), rest)


def _along_axes(g: Math, z: Complex, axes: Any, inverse: bool) -> Complex:
    for axis in reversed(list(axes)):
        order = [*(d for d in range(z.rank) if d != axis), axis]
        shape = [z.shape[d] for d in order]
        n = shape[-1]
        lines = both(lambda t: g.reshape(g.transpose(t, order), (math.prod(shape[:-1]), n)), z)
        lines = _transform(g, lines, -1 if not inverse else 1)
        if inverse:
            lines = both(lambda t: g.mul(t, g.like(t, 1 / n)), lines)
        z = both(lambda t: g.transpose(g.reshape(t, shape), [order.index(d) for d in range(len(order))]), lines)
    return z


def _transform(g: Math, z: Complex, sign: int) -> Complex:
    """[rows, n]: a product with the matrix of the transform, or by two factors of n."""
    rows, n = z.shape
    factor = _factor(n)
    if factor == 1 or n <= 64:
        if n > LARGEST_MATRIX:
            raise NoKernel(f"a Fourier transform of length {n}, which has no small factors", "pad to a power of two")
        return _times_matrix(g, z, _roots(np.outer(np.arange(n), np.arange(n)), n, sign))
    p, q = factor, n // factor

    def rearranged(z: Complex, shape: tuple, order: tuple, flat: tuple) -> Complex:
        return both(lambda t: g.reshape(g.transpose(g.reshape(t, shape), order), flat), z)
    inner = _transform(g, rearranged(z, (rows, p, q), (0, 2, 1), (rows * q, p)), sign)
    twiddles = _roots(np.outer(np.arange(q), np.arange(p)), n, sign)
    inner = both(lambda t: g.reshape(t, (rows, q, p)), inner)
    factors = Complex(*(g.broadcast(g.const(t.astype(z.re.dtype)), (rows, q, p)) for t in (twiddles.real, twiddles.imag)))
    turned = g.complex.mul(inner, factors)
    outer = _transform(g, rearranged(turned, (rows, q, p), (0, 2, 1), (rows * p, q)), sign)
    return rearranged(outer, (rows, p, q), (0, 2, 1), (rows, n))


def _factor(n: int) -> int:
    """The largest factor up to the square root."""
    return next(p for p in range(math.isqrt(n), 0, -1) if n % p == 0)


def _roots(exponents: np.ndarray, n: int, sign: int) -> np.ndarray:
    return np.exp(sign * 2j * np.pi * (exponents % n) / n)


def _times_matrix(g: Math, z: Complex, matrix: np.ndarray) -> Complex:
    weights = Complex(*(g.const(t.astype(z.re.dtype)[None]) for t in (matrix.real, matrix.imag)))
    lines = both(lambda t: g.reshape(t, (1, *t.shape)), z)
    found = bilinear(g, lambda a, b: matmul(g, a, b), lines, weights)
    return both(lambda t: g.reshape(t, z.shape), found)


# ---- factorizations: loops over the rows of batches of matrices -------------------------------------------------------

def _loop(g: Math, n: int, body: Any, state: list[Tensor]) -> list[Tensor]:
    """body(g, i, *state) -> state for i = 0 ... n - 1."""
    def step(g: Math, i: Tensor, *ts: Tensor) -> list[Tensor]: return [g.add(i, g.const(np.int32(1))), *body(g, i, *ts)]
    return g.while_loop(lambda g, i, *ts: g.less(i, g.const(np.int32(n))), step, [g.const(np.int32(0)), *state])[1:]


def _at(g: Math, i: Tensor, axis: int, rank: int = 3) -> Tensor:
    """The position that is i in one dimension and 0 in the others."""
    return g.concatenate([g.reshape(i, (1,)) if d == axis else g.i32([0]) for d in range(rank)], 0)


def _row(g: Math, z: Any, i: Tensor) -> Any:
    return both(lambda t: g.dynamic_slice(t, _at(g, i, 1), (t.shape[0], 1, t.shape[2])), z)


def _column(g: Math, z: Any, i: Tensor) -> Any:
    return both(lambda t: g.dynamic_slice(t, _at(g, i, 2), (t.shape[0], t.shape[1], 1)), z)


def _product(g: Math, x: Any, y: Any) -> Any: return bilinear(g, lambda a, b: matmul(g, a, b), x, y)


def _conjugate(g: Math, z: Any) -> Any: return Complex(z.re, g.neg(z.im)) if isinstance(z, Complex) else z


def _turned(g: Math, z: Any) -> Any: return both(lambda t: g.transpose(t, (0, 2, 1)), z)


def _as_value(ts: Any) -> Any: return Complex(*ts) if len(ts) == 2 else ts[0]


@row("cholesky")
def cholesky(lower: Lowering, op: Op, a: Any) -> Any:
    """Column after column; what is above the diagonal is 0, and NaN where the matrix is not positive definite."""
    g, n, shape = lower.g, a.shape[-1], a.shape
    a = both(lambda t: g.reshape(t, (math.prod(shape[:-2]), n, n)), a)
    if not op.attrs.get("lower"):
        a = _conjugate(g, _turned(g, a))
    k = len(parts(a))

    def body(g: Math, j: Tensor, *ts: Tensor) -> list[Tensor]:
        a, l = _as_value(ts[:k]), _as_value(ts[k:])
        column = _cholesky_column(g, a, l, j)
        placed = both(lambda t, u: g.dynamic_update_slice(t, u, _at(g, j, 2)), l, column)
        return [*ts[:k], *parts(placed)]
    start = [g.full(t.shape, 0, t.dtype) for t in parts(a)]
    found = _as_value(_loop(g, n, body, [*parts(a), *start])[k:])
    if not op.attrs.get("lower"):
        found = _conjugate(g, _turned(g, found))
    return both(lambda t: g.reshape(t, shape), found)


def _cholesky_column(g: Math, a: Any, l: Any, j: Tensor) -> Any:
    """Column j of the factor, from the columns before it."""
    n = a.shape[-1]
    s = g.call("subtract", _column(g, a, j), _product(g, l, _turned(g, _conjugate(g, _row(g, l, j)))))
    pivot = g.call("sqrt", _row(g, parts(s)[0], j))
    below = g.compare("GE", g.reshape(g.const(np.arange(n, dtype=np.int32)), (1, n, 1)), j)

    def entry(t: Tensor) -> Tensor:
        q = g.divide(t, g.broadcast(pivot, t.shape))
        return g.select(g.broadcast(below, t.shape), q, g.like(t, 0))
    return both(entry, s)


@row("triangular_solve")
def triangular_solve(lower: Lowering, op: Op, a: Any, b: Any) -> Any:
    """Forward substitution, row after row; the other cases are transposed and reversed into that one."""
    g, n, shape = lower.g, a.shape[-1], b.shape
    batch = math.prod(shape[:-2])
    a = both(lambda t: g.reshape(t, (batch, n, n)), a)
    b = both(lambda t: g.reshape(t, (batch, *shape[-2:])), b)
    left, how, is_lower = op.attrs["left_side"], op.attrs.get("transpose_a", "NO_TRANSPOSE"), op.attrs["lower"]
    a = _conjugate(g, a) if how == "ADJOINT" else a
    if not left:
        b = _turned(g, b)
    if (how in ("TRANSPOSE", "ADJOINT")) == bool(left):
        a, is_lower = _turned(g, a), not is_lower
    if not is_lower:
        a, b = both(lambda t: g.reverse(t, [1, 2]), a), both(lambda t: g.reverse(t, [1]), b)
    x = _substitute(g, a, b, n, bool(op.attrs.get("unit_diagonal")))
    x = x if is_lower else both(lambda t: g.reverse(t, [1]), x)
    x = x if left else _turned(g, x)
    return both(lambda t: g.reshape(t, shape), x)


def _substitute(g: Math, a: Any, b: Any, n: int, unit: bool) -> Any:
    k = len(parts(a))

    def body(g: Math, i: Tensor, *ts: Tensor) -> list[Tensor]:
        a, b, x = (_as_value(ts[m * k:(m + 1) * k]) for m in range(3))
        line = _row(g, a, i)
        known = g.less(g.reshape(g.const(np.arange(n, dtype=np.int32)), (1, 1, n)), i)
        used = both(lambda t: g.select(g.broadcast(known, t.shape), t, g.like(t, 0)), line)
        rest = g.call("subtract", _row(g, b, i), _product(g, used, x))
        if not unit:
            pivot = both(lambda t: g.broadcast(t, parts(rest)[0].shape), _column(g, line, i))
            rest = g.call("divide", rest, pivot)
        placed = both(lambda t, u: g.dynamic_update_slice(t, u, _at(g, i, 1)), x, rest)
        return [*ts[:2 * k], *parts(placed)]
    start = [g.full(t.shape, 0, t.dtype) for t in parts(b)]
    return _as_value(_loop(g, n, body, [*parts(a), *parts(b), *start])[2 * k:])


# ---- random bits ------------------------------------------------------------------------------------------------------

ALGORITHMS = {"DEFAULT": 0, "PHILOX": 1, "THREE_FRY": 2}


@row("rng_bit_generator")
def rng_bit_generator(lower: Lowering, op: Op, state: Tensor) -> list[Tensor]:
    g, result = lower.g, op.results[1]
    known = result.dtype.name in ("int32", "int64", "uint32", "uint64")
    if not known or not g.profile.has("STABLEHLO_RNG_BIT_GENERATOR", state.dtype):
        raise NoKernel("the runtime generates no such random bits", "use the threefry generator of aot.random")
    options = ("StablehloRngBitGeneratorOptions", {"algorithm": ALGORITHMS[op.attrs["rng_algorithm"]]})
    return g.nodes("STABLEHLO_RNG_BIT_GENERATOR", [state], [(state.shape, state.dtype), (result.shape, result.dtype)], options)


