"""`x.at[index].set(y)` and its siblings: pure counterparts of in-place updates."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aot import lax
from aot.numpy import indexing
from aot.numpy._util import cast


class At:
    """The `at` property of arrays.

        x.at[i].set(y)        x[i] = y               x.at[i].min(y)         x[i] = minimum(x[i], y)
        x.at[i].add(y)        x[i] += y              x.at[i].max(y)         x[i] = maximum(x[i], y)
        x.at[i].subtract(y)   x[i] -= y              x.at[i].apply(f)       x[i] = f(x[i])
        x.at[i].multiply(y)   x[i] *= y              x.at[i].get()          x[i]
        x.at[i].divide(y)     x[i] /= y              x.at[i].power(y)       x[i] **= y

    Each returns an updated copy. Where an index occurs several times, every update counts. Keywords of all:
    `mode`: what happens to positions out of range: "promise_in_bounds" (the default; updates are dropped, `get`
    clamps), "clip" (moved to the nearest element) or "drop" / "fill" (updates are dropped, `get` returns `fill_value`);
    `wrap_negative_indices=False`: negative positions are out of range instead of counting from the end;
    `indices_are_sorted`, `unique_indices`: promises that allow faster code.
    """

    __slots__ = ("array",)

    def __init__(self, array: Any):
        self.array = array

    def __getitem__(self, index: Any) -> AtIndex:
        return AtIndex(self.array, index)

    def __repr__(self) -> str:
        return f"At({self.array!r})"


def _update(name: str, op: Callable, doc: str) -> Callable[..., Any]:
    def method(self, values, *, indices_are_sorted=False, unique_indices=False, mode=None, out_sharding=None,
               wrap_negative_indices=True):
        return indexing.scatter(self.array, self.index, values, op, indices_are_sorted=indices_are_sorted,
                                unique_indices=unique_indices, mode=mode, wrap_negative_indices=wrap_negative_indices)

    method.__name__, method.__qualname__, method.__doc__ = name, f"AtIndex.{name}", doc
    return method


def _factors(name: str, combine: str, doc: str) -> Callable[..., Any]:
    """Scatter the operands into an array of ones, then combine once: repeated indices multiply up."""
    product = _update(name, lax.scatter_mul, doc)

    def method(self, values, **keywords):
        from aot.numpy import ufuncs

        ones = lax.full_like(self.array, 1)
        return getattr(ufuncs, combine)(self.array, product(AtIndex(ones, self.index), values, **keywords))

    method.__name__, method.__qualname__, method.__doc__ = name, f"AtIndex.{name}", doc
    return method


class AtIndex:
    """`x.at[index]`: call one of its methods to get an updated copy of `x`."""

    __slots__ = ("array", "index")

    def __init__(self, array: Any, index: Any):
        self.array, self.index = array, index

    def __repr__(self) -> str:
        return f"AtIndex({self.array!r}, {self.index!r})"

    def get(self, *, indices_are_sorted: bool = False, unique_indices: bool = False, mode: Any = None,
            fill_value: Any = None, out_sharding: Any = None, wrap_negative_indices: bool = True) -> Any:
        """`x[index]`, with control over positions out of range."""
        return indexing.getitem(self.array, self.index, indices_are_sorted=indices_are_sorted,
                                unique_indices=unique_indices, mode=mode, fill_value=fill_value,
                                wrap_negative_indices=wrap_negative_indices, out_sharding=out_sharding)

    def apply(self, func: Callable[[Any], Any], *, indices_are_sorted: bool = False, unique_indices: bool = False,
              mode: Any = None, wrap_negative_indices: bool = True) -> Any:
        """`x[index] = func(x[index])`, once for every occurrence of an index. Has no derivative."""

        def op(x, indices, values, dims, **keywords):
            return lax.scatter_apply(x, indices, func, dims, update_shape=values.shape, **keywords)

        zero = cast(0, self.array.dtype)
        return indexing.scatter(self.array, self.index, zero, op, indices_are_sorted=indices_are_sorted,
                                unique_indices=unique_indices, mode=mode, wrap_negative_indices=wrap_negative_indices)

    set = _update("set", lax.scatter, "`x[index] = values`.")
    add = _update("add", lax.scatter_add, "`x[index] += values`; repeated indices add up.")
    subtract = _update("subtract", lax.scatter_sub, "`x[index] -= values`.")
    multiply = mul = _update("multiply", lax.scatter_mul, "`x[index] *= values`; repeated indices multiply up.")
    min = _update("min", lax.scatter_min, "`x[index] = minimum(x[index], values)`.")
    max = _update("max", lax.scatter_max, "`x[index] = maximum(x[index], values)`.")
    divide = _factors("divide", "divide", "`x[index] /= values`; repeated indices divide again.")
    power = _factors("power", "power", "`x[index] **= values`; repeated indices raise again.")
