"""Rows: Fourier transforms.

The runtime's DFT is exact for powers of two and loses digits for other sizes, so those are products with a matrix, split by
factors; a large prime factor is a convolution of a power of two (Bluestein).
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from aot.exporters.stablehlo import DotDims, Op

from .complex_rows import as_pair, multiply
from .graph import Graph, Tensor
from .lowering import Lowering, Pair, complex_row, row
from .products import dot
from .shapes import reverse

DIRECT = 128            # sizes up to this are one product with a matrix


@row("fft")
@complex_row("fft")
def _fft(c: Lowering, op: Op, x: Any) -> Any:
    g, kind, lengths = c.g, op.attrs["fft_type"], [int(n) for n in op.attrs["fft_length"]]
    axes = list(range(x.rank - len(lengths), x.rank))
    if 0 in op.shape:
        zero = g.broadcast(g.constant(np.zeros((), "f4" if op.dtype.itemsize in (4,) or op.dtype == np.complex64 else "f8")),
                           (), op.shape)
        return as_pair(g, zero) if op.dtype.kind == "c" else zero
    if kind in ("FFT", "IFFT"):
        for axis in axes:
            x = transform(g, as_pair(g, x), axis, kind == "IFFT")
        return x
    if kind == "RFFT":
        full = transform(g, as_pair(g, x), axes[-1], False)
        x = _cut(g, full, axes[-1], lengths[-1] // 2 + 1)
        for axis in axes[:-1]:
            x = transform(g, x, axis, False)
        return x
    for axis in axes[:-1]:
        x = transform(g, x, axis, True)
    return transform(g, _mirrored(g, x, axes[-1], lengths[-1]), axes[-1], True).re


def _cut(g: Graph, x: Pair, axis: int, n: int, start: int = 0) -> Pair:
    starts, limits = [0] * x.rank, list(x.shape)
    starts[axis], limits[axis] = start, start + n
    return Pair(g.slice(x.re, starts, limits), g.slice(x.im, starts, limits))


def _mirrored(g: Graph, x: Pair, axis: int, n: int) -> Pair:
    """The whole spectrum of a real signal from its first half; the parts that must be real are taken as such."""
    rest = _cut(g, x, axis, (n - 1) // 2, 1)
    turned = Pair(reverse(g, rest.re, [axis]), g("Neg", reverse(g, rest.im, [axis])))
    shape = [1] * x.rank
    shape[axis] = n // 2 + 1
    mask = np.ones(n // 2 + 1)
    mask[0] = 0
    if n % 2 == 0:
        mask[-1] = 0
    im = g("Mul", x.im, g.constant(mask.astype(x.im.dtype).reshape(shape)))
    if x.shape[axis] != n // 2 + 1:
        raise AssertionError("an inverse real transform of a spectrum of the wrong length")
    return Pair(g.concat([g.full(x.re), g.full(turned.re)], axis), g.concat([g.full(im), g.full(turned.im)], axis))


def transform(g: Graph, x: Pair, axis: int, inverse: bool) -> Pair:
    """The discrete Fourier transform along one axis, with numpy's scaling."""
    n, last = x.shape[axis], x.rank - 1
    order = [*(i for i in range(x.rank) if i != axis), axis]
    rows = Pair(g.transpose(x.re, order), g.transpose(x.im, order))
    lead = rows.shape[:-1]
    flat = Pair(g.reshape(rows.re, (math.prod(lead), n)), g.reshape(rows.im, (math.prod(lead), n)))
    if n & (n - 1) == 0 and n > DIRECT:
        found = _power_of_two(g, flat, inverse)
    else:
        found = _any_size(g, flat, -1.0 if not inverse else 1.0)
        if inverse:
            scale = g.like(1 / n, found.re)
            found = Pair(g("Mul", found.re, scale), g("Mul", found.im, scale))
    back = list(np.argsort(order))
    return Pair(*(g.transpose(g.reshape(t, (*lead, n)), back) for t in (found.re, found.im))) if last >= 0 else found


def _power_of_two(g: Graph, x: Pair, inverse: bool) -> Pair:
    """ONNX's DFT, whose complex numbers are a last axis of 2."""
    rows, n = x.shape
    both = g.concat([g.reshape(g.full(t), (rows, n, 1)) for t in (x.re, x.im)], 2)
    if g.opset >= 20:
        made = g("DFT", both, None, g.constant(np.int64(1)), shape=both.shape, cast=0, inverse=int(inverse))
    else:
        made = g("DFT", both, shape=both.shape, cast=0, inverse=int(inverse), axis=1)
    parts = [g.reshape(g.slice(made, [0, 0, i], [rows, n, i + 1]), (rows, n)) for i in (0, 1)]
    return Pair(parts[0], parts[1])


def _any_size(g: Graph, x: Pair, sign: float) -> Pair:
    """Unscaled transform of the rows of a matrix."""
    n = x.shape[1]
    if n <= DIRECT:
        return _by_matrix(g, x, _roots(n, sign, np.outer(np.arange(n), np.arange(n)) % n))
    if n & (n - 1) == 0:
        found = _power_of_two(g, x, sign > 0)
        return found if sign < 0 else Pair(*(g("Mul", t, g.like(n, t)) for t in (found.re, found.im)))
    factor = max((k for k in range(2, DIRECT + 1) if n % k == 0), default=0)
    return _by_factors(g, x, factor, sign) if factor else _bluestein(g, x, sign)


def _roots(n: int, sign: float, powers: np.ndarray) -> np.ndarray:
    return np.exp(sign * 2j * np.pi * powers / n)


def _by_matrix(g: Graph, x: Pair, matrix: np.ndarray) -> Pair:
    d = DotDims((), (), (1,), (0,))
    re, im = (g.constant(np.ascontiguousarray(part).astype(x.re.dtype)) for part in (matrix.real, matrix.imag))

    def product(a: Tensor, b: Tensor) -> Tensor: return dot(g, a, b, d, x.re.dtype)
    if x.im.scalar() == 0:
        return Pair(product(x.re, re), product(x.re, im))
    return Pair(g("Sub", product(x.re, re), product(x.im, im)), g("Add", product(x.re, im), product(x.im, re)))


def _by_factors(g: Graph, x: Pair, a: int, sign: float) -> Pair:
    """n = a b: transforms of size a over columns, twiddles, transforms of size b over rows."""
    rows, n = x.shape
    b = n // a

    def moved(p: Pair, shape: tuple[int, ...], order: list[int], out: tuple[int, ...]) -> Pair:
        return Pair(*(g.reshape(g.transpose(g.reshape(t, shape), order), out) for t in (p.re, p.im)))
    columns = moved(x, (rows, a, b), [0, 2, 1], (rows * b, a))
    first = _any_size(g, columns, sign)
    twiddles = _roots(n, sign, np.outer(np.arange(b), np.arange(a)))
    shaped = Pair(*(g.reshape(t, (rows, b, a)) for t in (first.re, first.im)))
    factor = Pair(*(g.constant(np.ascontiguousarray(p).astype(x.re.dtype)) for p in (twiddles.real, twiddles.imag)))
    turned = multiply(g, shaped, factor)
    second = _any_size(g, moved(turned, (rows, b, a), [0, 2, 1], (rows * a, b)), sign)
    return moved(second, (rows, a, b), [0, 2, 1], (rows, n))


def _bluestein(g: Graph, x: Pair, sign: float) -> Pair:
    """A large prime size: chirps and a circular convolution of a power of two."""
    rows, n = x.shape
    size = 1 << (2 * n - 1).bit_length()
    chirp = np.exp(sign * 1j * np.pi * (np.arange(n, dtype=object) ** 2 % (2 * n)).astype(float) / n)
    kernel = np.zeros(size, complex)
    kernel[:n] = chirp.conj()
    kernel[size - n + 1:] = chirp.conj()[1:][::-1]

    def constant(z: np.ndarray) -> Pair:
        return Pair(*(g.constant(np.ascontiguousarray(p).astype(x.re.dtype)) for p in (z.real, z.imag)))
    zero = g.like(0, x.re)
    start = multiply(g, x, constant(chirp))
    padded = Pair(*(g.pad(t, [0, 0], [0, size - n], zero) for t in (start.re, start.im)))
    spectrum = multiply(g, _power_of_two(g, padded, False), constant(np.fft.fft(kernel)))
    back = _power_of_two(g, spectrum, True)
    return multiply(g, _cut(g, back, 1, n), constant(chirp))
