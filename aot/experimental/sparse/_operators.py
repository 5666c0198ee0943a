"""Operators and methods of sparse arrays that are functions of aot.numpy, made sparse by `sparsify`."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot.array_methods import ArrayMethods
from aot.experimental.sparse._base import JAXSparse


def sparse_function(function: Callable, *args: Any) -> Any:
    """The function applied to arrays of which some are sparse."""
    from aot.experimental.sparse.transform import sparsify
    return sparsify(function)(*args)


def _operand(x: Any) -> bool:
    return isinstance(x, (ArrayMethods, JAXSparse, np.ndarray, np.generic, bool, int, float, complex))


def operation(name: str, reflected: bool = False) -> Callable:
    """An operator that is a function of aot.numpy."""
    def method(self, *other):
        if not all(map(_operand, other)):
            return NotImplemented
        args = (*other, self) if reflected else (self, *other)
        static = [x if isinstance(x, (bool, int, float, complex)) else None for x in args]
        arrays = [x for x, s in zip(args, static) if s is None]

        def function(*xs):
            it = iter(xs)
            return getattr(jnp, name)(*[next(it) if s is None else s for s in static])
        return sparse_function(function, *arrays)

    method.__name__ = name
    method.__doc__ = f"See `aot.numpy.{name}`" + (" (with the operands swapped)." if reflected else ".")
    return method


class ArrayOperators:
    """What BCOO and BCSR share."""

    __slots__ = ()
    __matmul__ = operation("matmul")
    __rmatmul__ = operation("matmul", reflected=True)

    def __getitem__(self, idx: Any) -> Any:
        """`x[idx]` with numpy's rules, sparse."""
        return sparse_function(functools.partial(_index, idx), self)

    def sum(self, *args: Any, **kwargs: Any) -> Any:
        """Sum over axes; see `aot.numpy.sum`."""
        return sparse_function(lambda x: x.sum(*args, **kwargs), self)

    def reshape(self, *args: Any, **kwargs: Any) -> Any:
        """Another shape; see `aot.numpy.reshape`."""
        return sparse_function(lambda x: x.reshape(*args, **kwargs), self)

    def astype(self, *args: Any, **kwargs: Any) -> Any:
        """Another dtype; see `aot.numpy.astype`."""
        return sparse_function(lambda x: x.astype(*args, **kwargs), self)


def _index(idx: Any, x: Any) -> Any: return x[idx]
