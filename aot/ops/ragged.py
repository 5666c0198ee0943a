"""Matrix products over groups of rows (ragged_dot), and products of scaled operands (scaled_dot)."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence

import ml_dtypes
import numpy as np

from aot import dtypes
from aot.ops import elementwise as ew
from aot.ops import shape as sh
from aot.ops.dot import dot_general
from aot.ops.reductions import cumsum
from aot.trace import typeof

Array = Any


@dataclass(frozen=True, init=False)
class RaggedDotDimensionNumbers:
    """dot_dimension_numbers as for dot_general, the ragged dimension of lhs, and the group dimension of rhs (if any)."""
    dot_dimension_numbers: tuple
    lhs_ragged_dimensions: tuple[int, ...]
    rhs_group_dimensions: tuple[int, ...]

    def __init__(self, dot_dimension_numbers, lhs_ragged_dimensions: Sequence[int], rhs_group_dimensions: Sequence[int]):
        fix = lambda name, value: object.__setattr__(self, name, value)
        fix("dot_dimension_numbers", tuple(tuple(map(tuple, pair)) for pair in dot_dimension_numbers))
        fix("lhs_ragged_dimensions", tuple(lhs_ragged_dimensions))
        fix("rhs_group_dimensions", tuple(rhs_group_dimensions))


_BF16 = np.dtype(ml_dtypes.bfloat16)
_BASIC = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))


def ragged_dot(lhs: Array, rhs: Array, group_sizes: Array, precision=None, preferred_element_type=None,
               group_offset=None, out_sharding=None) -> Array:
    """(m, k) . (g, k, n) -> (m, n): the first group_sizes[0] rows times rhs[0], the next group_sizes[1] times rhs[1], ..

    Rows beyond the sum of group_sizes give zeros."""
    return ragged_dot_general(lhs, rhs, group_sizes, _BASIC, precision, preferred_element_type, group_offset, out_sharding)


def ragged_dot_general(lhs: Array, rhs: Array, group_sizes: Array, ragged_dot_dimension_numbers, precision=None,
                       preferred_element_type=None, group_offset=None, out_sharding=None) -> Array:
    """dot_general whose lhs has a dimension cut into groups of group_sizes, integers of shape ([prefix..,] g).

    A free dimension: each group has its own rhs, along rhs' group dimension.  A contracting dimension: each group has a
    result of its own, along a new first axis.  A batch dimension: nothing but dot_general."""
    if group_offset is not None:
        raise NotImplementedError("ragged_dot_general does not take a group_offset yet")
    numbers = ragged_dot_dimension_numbers
    (lk, rk), (lb, rb) = numbers.dot_dimension_numbers
    ragged = _ragged_dimension(numbers, typeof(lhs), typeof(rhs), typeof(group_sizes))
    call = lambda x, y, dims: dot_general(x, y, dims, precision, preferred_element_type, out_sharding=out_sharding)
    if ragged in lb:
        return call(lhs, rhs, ((lk, rk), (lb, rb)))
    up = lambda axes: tuple(d + 1 for d in axes)
    wide = _by_group(lhs, ragged, group_sizes, _prefix(typeof(lhs).ndim, ragged, lb, lk))
    if ragged in lk:
        other = rk[lk.index(ragged)]
        wide_rhs = _by_group(rhs, other, group_sizes, _prefix(typeof(rhs).ndim, other, rb, rk))
        return call(wide, wide_rhs, ((up(lk), up(rk)), ((0, *up(lb)), (0, *up(rb)))))
    return call(wide, rhs, (((*up(lk), 0), (*rk, numbers.rhs_group_dimensions[0])), (up(lb), rb)))


def _ragged_dimension(numbers, lhs, rhs, sizes) -> int:
    if len(numbers.lhs_ragged_dimensions) != 1:
        raise TypeError("ragged_dot_general expects exactly one lhs ragged dimension.")
    ragged, = numbers.lhs_ragged_dimensions
    if not 0 <= ragged < lhs.ndim:
        raise TypeError(f"ragged_dot_general: lhs ragged dimension {ragged} is out of range for rank {lhs.ndim}")
    if sizes.ndim == 0 or not dtypes.issubdtype(sizes.dtype, np.integer):
        raise TypeError(f"ragged_dot_general: group_sizes must be integers of rank >= 1, got {sizes.str_short()}")
    (lk, rk), (lb, rb) = numbers.dot_dimension_numbers
    free = ragged not in lk and ragged not in lb
    if len(numbers.rhs_group_dimensions) != free:
        raise TypeError(f"ragged_dot_general requires {'exactly one' if free else 'zero'} group dimensions in the rhs "
                        f"when the lhs ragged dimension is {'noncontracting' if free else 'contracting or batch'}.")
    if free:
        group, = numbers.rhs_group_dimensions
        if group in rk or group in rb or rhs.shape[group] != sizes.shape[-1]:
            raise TypeError(f"ragged_dot_general: rhs group dimension {group} must be free and of size "
                            f"{sizes.shape[-1]}, got rhs of shape {rhs.shape}")
    return ragged


def _prefix(ndim: int, ragged: int, batch, contracting) -> tuple[int, ...]:
    """The axes that group sizes of rank > 1 may vary over: batch, and what comes before the ragged one of its kind."""
    if ragged in contracting:
        return (*batch, *[d for d in contracting if d < ragged])
    return (*batch, *[d for d in range(ragged) if d not in batch and d not in contracting])


def _by_group(x: Array, dim: int, sizes: Array, prefix: tuple[int, ...]) -> Array:
    """x of shape s -> (g, *s): row i of axis `dim` stays in its group, and is zero in all others."""
    a, n = typeof(x), typeof(sizes)
    shape = (n.shape[-1], *a.shape)
    ends = cumsum(sizes, n.ndim - 1)
    starts = ew.sub(ends, sizes)
    at = (0,) if n.ndim == 1 else (*[d + 1 for d in prefix], 0)
    order = tuple(int(i) for i in np.argsort(at))
    place = lambda v: sh.broadcast_in_dim(sh.transpose(v, order), shape, tuple(sorted(at)))
    rows = sh.broadcasted_iota(n.dtype, shape, dim + 1)
    mine = ew.bitwise_and(ew.le(place(starts), rows), ew.lt(rows, place(ends)))
    wide = sh.broadcast_in_dim(x, shape, tuple(range(1, len(shape))))
    return ew.select(mine, wide, sh.full_like(wide, 0))


def scaled_dot(lhs: Array, rhs: Array, *, lhs_scale: Array | None = None, rhs_scale: Array | None = None,
               dimension_numbers=None, preferred_element_type=None) -> Array:
    """dot_general of lhs * lhs_scale and rhs * rhs_scale, both in bfloat16; the sums are in preferred_element_type
    (bfloat16 unless given).

    A scale has its operand's shape, except that one value serves several consecutive elements of the contracting
    dimension."""
    n = typeof(lhs).ndim
    if dimension_numbers is None:
        if n < 2:
            raise TypeError("scaled_dot does not support 0-rank and 1-rank operands.")
        batch = tuple(range(n - 2))
        dimension_numbers = (((n - 1,), (n - 2,)), (batch, batch))
    dtype = dtypes.check_user_dtype_supported(preferred_element_type or ml_dtypes.bfloat16, "scaled_dot")
    (lk, rk), _ = dimension_numbers
    x, y = _scaled(lhs, lhs_scale, lk, _BF16), _scaled(rhs, rhs_scale, rk, _BF16)
    return dot_general(x, y, dimension_numbers, preferred_element_type=dtype)


def _scaled(x: Array, scale: Array | None, contracting, dtype) -> Array:
    wide = ew.convert(x, dtype)
    if scale is None:
        return wide
    a, b = typeof(x).shape, typeof(scale).shape
    if len(a) != len(b) or any(m == 0 or n % m or (n != m and i not in contracting) for i, (n, m) in enumerate(zip(a, b))):
        raise TypeError(f"scaled_dot: a scale of shape {b} does not divide an operand of shape {a} along its contracting "
                        f"dimensions {tuple(contracting)}")
    scale = sh.broadcast_in_dim(ew.convert(scale, dtype), [v for n, m in zip(a, b) for v in (m, n // m)],
                                range(0, 2 * len(a), 2))
    return ew.mul(wide, sh.reshape(scale, a))
