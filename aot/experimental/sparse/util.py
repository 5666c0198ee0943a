"""What the sparse formats share: warnings, static facts about an array, and functions mapped over leading batch dimensions."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from aot.transforms.batching import vmap

Array = Any


class SparseEfficiencyError(ValueError):
    """An operation would store many zeros explicitly."""


class SparseEfficiencyWarning(UserWarning):
    """An operation is slow, or stores many zeros explicitly."""


class CuSparseEfficiencyWarning(SparseEfficiencyWarning):
    """An operation cannot use the library for sparse arrays of GPUs."""


class SparseInfo(NamedTuple):
    """What is known of a sparse array apart from its values: a static parameter of primitives."""

    shape: tuple[int, ...]
    indices_sorted: bool = False
    unique_indices: bool = False


def over_batch(fun: Callable, n: int, broadcast: bool = True) -> Callable:
    """fun mapped over n leading dimensions of every argument and result.

    broadcast: sizes of 1 are as good as the full size; without it, an argument that is None is passed on."""
    for _ in range(n):
        fun = _over_one(fun) if broadcast else vmap(fun)
    return fun


def _over_one(fun: Callable) -> Callable:
    def mapped(*args):
        size = common_size([x.shape[0] for x in args])
        fixed = [x.shape[0] != size for x in args]
        squeezed = [x.reshape(x.shape[1:]) if f else x for x, f in zip(args, fixed)]
        return vmap(fun, in_axes=tuple(None if f else 0 for f in fixed), axis_size=size)(*squeezed)
    return mapped


def common_size(sizes: Sequence[int]) -> int:
    """The size that sizes of 1 are broadcast to."""
    return next((n for n in sizes if n != 1), 1)


def remaining(n: int, *taken: Sequence[int]) -> list[int]:
    """0..n-1 without those taken."""
    gone = {d for group in taken for d in group}
    return [d for d in range(n) if d not in gone]


def canonical(d: int, ndim: int) -> int:
    """A dimension that may count from the end, as one that does not."""
    if not -ndim <= d < ndim:
        raise ValueError(f"axis {d} is out of bounds for array of dimension {ndim}")
    return d % ndim


def tuple_of(xs: Any) -> tuple[int, ...]:
    """Sizes or dimensions as Python integers."""
    return tuple(int(x) for x in xs)
