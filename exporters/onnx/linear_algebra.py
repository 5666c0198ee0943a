"""Rows: triangular systems and Cholesky factors, by blocks: the size of the graph grows with the size of the matrix."""
from __future__ import annotations

import numpy as np

from aot.exporters.stablehlo import DotDims, Op

from .graph import Graph, Inexpressible, Tensor
from .lowering import Lowering, row
from .products import dot
from .shapes import reverse

MAX_SIZE = 1024


def _matmul(g: Graph, x: Tensor, y: Tensor) -> Tensor:
    n = x.rank - 2
    batch = tuple(range(n))
    return dot(g, x, y, DotDims(batch, batch, (n + 1,), (n,)), x.dtype)


def _part(g: Graph, x: Tensor, rows: slice, columns: slice) -> Tensor:
    starts, limits = [0] * (x.rank - 2), list(x.shape[:-2])
    return g.slice(x, [*starts, rows.start, columns.start], [*limits, rows.stop, columns.stop])


def _transposed(g: Graph, x: Tensor) -> Tensor:
    return g.transpose(x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])


def _check(n: int, what: str) -> None:
    if n > MAX_SIZE:
        raise Inexpressible(f"{what} of a matrix of {n} rows would need a graph that is too large",
                            f"matrices of at most {MAX_SIZE} rows can be exported")


@row("triangular_solve")
def _triangular_solve(c: Lowering, op: Op, a: Tensor, b: Tensor) -> Tensor:
    g, attrs = c.g, op.attrs
    lower, transposed = attrs["lower"], attrs["transpose_a"] in ("TRANSPOSE", "ADJOINT")
    _check(a.shape[-1], "a triangular system")
    if 0 in op.shape:
        return b
    if not attrs["left_side"]:                               # x a = b  is  a^T x^T = b^T
        b, transposed = _transposed(g, b), not transposed
    if transposed:
        a, lower = _transposed(g, a), not lower
    if not lower:                                            # reversed, an upper triangle is a lower one
        a, b = reverse(g, a, [a.rank - 2, a.rank - 1]), reverse(g, b, [b.rank - 2])
    x = solve_lower(g, g.full(a), g.full(b), attrs["unit_diagonal"])
    x = x if lower else reverse(g, x, [x.rank - 2])
    return x if attrs["left_side"] else _transposed(g, x)


def solve_lower(g: Graph, a: Tensor, b: Tensor, unit: bool) -> Tensor:
    """a x = b for a lower triangle: the first half, then the second with what the first leaves."""
    n = a.shape[-1]
    if n == 1:
        return b if unit else g("Div", b, g.broadcast(a, range(a.rank), b.shape) if a.shape != b.shape else a)
    k, m = n // 2, b.shape[-1]
    first = solve_lower(g, _part(g, a, slice(0, k), slice(0, k)), _part(g, b, slice(0, k), slice(0, m)), unit)
    coupled = _matmul(g, _part(g, a, slice(k, n), slice(0, k)), first)
    rest = g("Sub", _part(g, b, slice(k, n), slice(0, m)), coupled)
    second = solve_lower(g, _part(g, a, slice(k, n), slice(k, n)), rest, unit)
    return g.concat([g.full(first), g.full(second)], b.rank - 2)


@row("cholesky")
def _cholesky(c: Lowering, op: Op, a: Tensor) -> Tensor:
    g, lower = c.g, op.attrs.get("lower", False)
    _check(a.shape[-1], "a Cholesky factor")
    if 0 in op.shape:
        return a
    factor = _factor(g, g.full(a if lower else _transposed(g, a)))
    factor = factor if lower else _transposed(g, factor)
    keep = np.tri(a.shape[-1], dtype=bool)
    return g.where(g.constant(keep if lower else keep.T), factor, g.like(0, a))


def _factor(g: Graph, a: Tensor) -> Tensor:
    """L of a = L L^T, from the lower triangle of a; NaN where it is not positive definite."""
    n = a.shape[-1]
    if n == 1:
        return g("Sqrt", a)
    k = n // 2
    top = _factor(g, _part(g, a, slice(0, k), slice(0, k)))
    side = _transposed(g, solve_lower(g, top, _transposed(g, _part(g, a, slice(k, n), slice(0, k))), False))
    rest = g("Sub", _part(g, a, slice(k, n), slice(k, n)), _matmul(g, side, _transposed(g, side)))
    bottom = _factor(g, rest)
    upper = g.broadcast(g.like(0, a), (), (*a.shape[:-2], k, n - k))
    above = g.concat([g.full(top), g.full(upper)], a.rank - 1)
    return g.concat([above, g.concat([g.full(side), g.full(bottom)], a.rank - 1)], a.rank - 2)


