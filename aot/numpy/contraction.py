"""einsum: opt_einsum finds the order of pairwise contractions, each of which becomes one dot_general."""
from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Sequence
from typing import Any

from aot import lax
from aot.numpy import _util
from aot.numpy._util import BOOL, array_of, cast, check, fused, user_dtype
from aot.ops.shape import placed

Contraction = tuple[tuple[int, ...], frozenset, str]


def _path_type(optimize: Any) -> Any:
    if optimize is True:
        return "optimal"
    return _left_to_right() if optimize is False else optimize


@functools.cache
def _left_to_right() -> Any:
    import opt_einsum

    class LeftToRight(opt_einsum.paths.PathOptimizer):
        def __call__(self, inputs, *args, **kwargs):
            return [(0, 1)] * (len(inputs) - 1)

    return LeftToRight()


class _Shape:
    """What opt_einsum needs to know about an operand."""

    def __init__(self, shape: tuple[int, ...]):
        self.shape, self.ndim = shape, len(shape)


@functools.lru_cache(maxsize=1024)
def _plan(subscripts: str, shapes: tuple[tuple[int, ...], ...], optimize: Any) -> tuple[Contraction, ...]:
    """The contractions for these shapes: operand positions, summed names, and `inputs->output` of each."""
    import opt_einsum

    operands = [_Shape(s) for s in shapes]
    contract_path: Any = opt_einsum.contract_path  # its annotations do not know einsum_call
    _, contractions = contract_path(subscripts, *operands, einsum_call=True, optimize=_path_type(optimize))
    return tuple((tuple(c[0]), frozenset(c[1]), c[2]) for c in contractions)


def _plan_any(subscripts: str, shapes: tuple, optimize: Any) -> tuple[Contraction, ...]:
    """`_plan` for an explicit path too, which is a list and cannot be a cache key."""
    if isinstance(optimize, (str, bool)):
        return _plan(subscripts, shapes, optimize)
    return _plan.__wrapped__(subscripts, shapes, optimize)


def _parsed(subscripts: Any, operands: tuple) -> tuple[str, tuple]:
    """Subscripts as text: numpy also allows `einsum(x, [0, 1], y, [1, 2], [0, 2])`."""
    if isinstance(subscripts, str):
        return subscripts, operands
    from opt_einsum.parser import convert_interleaved_input

    text, arrs = convert_interleaved_input([subscripts, *operands])
    return text, tuple(arrs)


def einsum(subscripts: Any, /, *operands: Any, out: None = None, optimize: Any = "auto", precision: Any = None,
           preferred_element_type: Any = None, _dot_general: Callable[..., Any] = lax.dot_general,
           out_sharding: Any = None) -> Any:
    """Sums of products given by index names: `einsum("ij,jk->ik", a, b)` is a matrix product."""
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.einsum is not supported.")
    subscripts, operands = _parsed(subscripts, operands)
    check("einsum", *operands)
    operands = tuple(array_of(x) for x in operands)
    contractions = _plan_any(subscripts, tuple(x.shape for x in operands), optimize)
    dtype, weak = _util.result_type(*operands)
    if preferred_element_type is not None:
        dtype, weak = user_dtype(preferred_element_type, "einsum"), False
    return placed(_einsum(list(operands), contractions=contractions, precision=precision, dtype=dtype, weak=weak,
                          dot_general=_dot_general), out_sharding)


def einsum_path(subscripts: Any, /, *operands: Any, optimize: Any = "auto") -> tuple[Any, Any]:
    """The order of contractions that `einsum` would use, and a printable report."""
    import opt_einsum

    return opt_einsum.contract_path(subscripts, *operands, optimize=_path_type(optimize))


@fused("contractions", "precision", "dtype", "weak", "dot_general")
def _einsum(operands: list[Any], contractions: Sequence[Contraction], precision: Any, dtype: Any, weak: bool,
            dot_general: Callable) -> Any:
    operands = list(operands)
    for positions, summed, text in contractions:
        inputs, result = text.split("->")
        names = inputs.split(",")
        parts = [operands.pop(i) for i in positions]
        if len(parts) == 1:
            x, found = _reduce_one(parts[0], names[0], sorted(summed), result, dtype)
        elif len(parts) == 2:
            x, found = _contract_two(parts, names, sorted(summed), result, dtype, precision, dot_general)
        else:
            raise NotImplementedError("einsum contracts at most two operands at a time: the path given as `optimize` has "
                                      "a step with more")
        perm = tuple(found.index(n) for n in result)
        operands.append(x if perm == tuple(range(len(perm))) else lax.transpose(x, perm))
    return cast(operands[0], dtype, weak)


def _sum(x: Any, axes: Sequence[int], dtype: Any) -> Any:
    if _util.result_type(x, dtype)[0] != x.dtype:
        x = lax.convert_element_type(x, dtype)
    return (lax.reduce_or if x.dtype == BOOL else lax.reduce_sum)(x, axes=tuple(axes))


def _sum_away(x: Any, names: str, away: Sequence[str], dtype: Any) -> tuple[Any, str]:
    """Sum over names that occur once, and only in this operand."""
    if not away:
        return x, names
    x = _sum(x, [names.index(n) for n in away], dtype)
    return x, "".join(n for n in names if n not in away)


def _take_diagonals(x: Any, names: str, keep: str, dtype: Any) -> tuple[Any, str]:
    """A name that occurs several times in one operand: mask out all but the diagonal, then sum."""
    for name, count in collections.Counter(names).items():
        if count == 1:
            continue
        axes = [i for i, n in enumerate(names) if n == name]
        x = lax.select(_diagonal(x.shape, axes), x, lax.full_like(x, 0))
        drop = axes[:-1] if name in keep else axes
        x = _sum(x, drop, dtype)
        names = "".join(n for i, n in enumerate(names) if i not in drop)
    return x, names


def _diagonal(shape: tuple[int, ...], axes: list[int]) -> Any:
    """True where the positions along `axes` are all equal."""
    iotas = [lax.broadcasted_iota("int32", shape, a) for a in axes]
    masks = [lax.eq(iotas[0], other) for other in iotas[1:]]
    return functools.reduce(lax.bitwise_and, masks)


def _reduce_one(x: Any, names: str, summed: list[str], result: str, dtype: Any) -> tuple[Any, str]:
    counts = collections.Counter(names)
    x, names = _sum_away(x, names, [n for n in summed if counts[n] == 1], dtype)
    return _take_diagonals(x, names, result, dtype)


def _drop_ones(x: Any, names: str, other_shape: tuple[int, ...], other_names: str) -> tuple[Any, str]:
    """Axes of size 1 that the other operand has with another size: broadcasting, so they can go."""
    drop = tuple(i for i, n in enumerate(names) if x.shape[i] == 1 and n in other_names
                 and other_shape[other_names.index(n)] != 1)
    return (lax.squeeze(x, drop) if drop else x), "".join(n for i, n in enumerate(names) if i not in drop)


def _contract_two(parts: list[Any], names: list[str], summed: list[str], result: str, dtype: Any, precision: Any,
                  dot_general: Callable) -> tuple[Any, str]:
    (x, y), (xn, yn) = parts, names
    x, y = (x, y) if x.dtype == y.dtype else [array_of(v) for v in _util.promote(x, y)]
    x, xn = _drop_ones(x, xn, y.shape, yn)
    y, yn = _drop_ones(y, yn, x.shape, xn)
    xc, yc = collections.Counter(xn), collections.Counter(yn)
    x, xn = _sum_away(x, xn, [n for n in summed if xc[n] == 1 and yc[n] == 0], dtype)
    y, yn = _sum_away(y, yn, [n for n in summed if yc[n] == 1 and xc[n] == 0], dtype)
    x, xn = _take_diagonals(x, xn, result + yn, dtype)
    y, yn = _take_diagonals(y, yn, result + xn, dtype)
    batch = [n for n in result if n in xn and n in yn]
    contracted = [n for n in summed if n in xn and n in yn]
    for n in contracted + batch:
        if x.shape[xn.index(n)] != y.shape[yn.index(n)]:
            raise ValueError(f"einsum: index {n!r} has sizes {x.shape[xn.index(n)]} and {y.shape[yn.index(n)]}")
    gone = batch + contracted
    x_free, y_free = [[n for n in ns if n not in gone] for ns in (xn, yn)]
    order = [*batch, *y_free, *x_free]
    if "".join(order) == result:  # swapping the operands saves a transpose
        x, y, xn, yn = y, x, yn, xn
    else:
        order = [*batch, *x_free, *y_free]
    dims = ((tuple(map(xn.index, contracted)), tuple(map(yn.index, contracted))),
            (tuple(map(xn.index, batch)), tuple(map(yn.index, batch))))
    return dot_general(x, y, dims, precision, preferred_element_type=dtype), "".join(order)
