"""Derivatives with respect to sparse arrays: within their sparsity pattern, as sparse arrays of the same indices."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import aot
import aot.numpy as jnp
from aot.experimental.sparse._base import JAXSparse
from aot.experimental.sparse.bcoo import BCOO
from aot.source import wraps
from aot.tree_util import tree_flatten, tree_leaves, tree_map

Array = Any


def _is_sparse(x: Any) -> bool: return isinstance(x, JAXSparse)


def _data(x: Any) -> Any: return x.data if _is_sparse(x) else x


def _with_data(x: Any, data: Any) -> Any:
    """The sparse array with other data; what is not sparse is replaced."""
    if not _is_sparse(x):
        return data
    (_, *rest), aux = x.tree_flatten()
    return type(x).tree_unflatten(aux, (data, *rest))


class _Arguments:
    """The arguments of one call as functions of the data of those that are differentiated."""

    def __init__(self, args: tuple, argnums: int | Sequence[int]):
        self.args, self.one = list(args), isinstance(argnums, int)
        nums = [argnums] if isinstance(argnums, int) else list(argnums)
        if any(not -len(args) <= i < len(args) for i in nums):
            raise ValueError(f"argnums={argnums} for a function called with {len(args)} positional arguments")
        self.nums = [i % len(args) for i in nums]

    def leaves(self) -> tuple[list, Any]:
        """Arrays, dense or sparse, that are differentiated, and their structure."""
        return tree_flatten([self.args[i] for i in self.nums], is_leaf=_is_sparse)

    def given(self, data: Sequence) -> list:
        """All arguments, with these data."""
        leaves, tree = self.leaves()
        chosen = tree.unflatten([_with_data(x, d) for x, d in zip(leaves, data)])
        args = list(self.args)
        for i, x in zip(self.nums, chosen):
            args[i] = x
        return args

    def result(self, leaves: Sequence) -> Any:
        """A value for each differentiated array, in the structure of argnums."""
        out = self.leaves()[1].unflatten(leaves)
        return out[0] if self.one else tuple(out)


def _derivative(transform: Callable, place: Callable, fun: Callable, argnums: int | Sequence[int], has_aux: bool,
                options: dict) -> Callable:
    """fun's derivative by `transform` with respect to lists of data; place(x, d): what d is for the array x."""
    @wraps(fun)
    def derivative(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            raise TypeError(f"{getattr(fun, '__name__', 'fun')}: derivatives of sparse functions take positional arguments "
                            f"only, got {', '.join(kwargs)}")
        arguments = _Arguments(args, argnums)
        leaves = arguments.leaves()[0]
        flat = transform(lambda data: fun(*arguments.given(data)), has_aux=has_aux, **options)
        return flat([_data(x) for x in leaves]), arguments, lambda d: place(leaves, d)
    return derivative


def value_and_grad(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any) -> Callable:
    """As `aot.value_and_grad`; the gradient of a sparse argument is sparse, with the same indices."""
    raw = _derivative(aot.value_and_grad, _same_pattern, fun, argnums, has_aux, kwargs)

    @wraps(fun)
    def value_and_gradient(*args: Any, **kw: Any) -> Any:
        (value, data), arguments, placed = raw(*args, **kw)
        return value, arguments.result(placed(data))
    return value_and_gradient


def grad(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any) -> Callable:
    """As `aot.grad`; the gradient of a sparse argument is sparse, with the same indices."""
    both = value_and_grad(fun, argnums, has_aux, **kwargs)

    @wraps(fun)
    def gradient(*args: Any, **kw: Any) -> Any:
        value, out = both(*args, **kw)
        return (out, value[1]) if has_aux else out
    return gradient


def _same_pattern(leaves: Sequence, data: Sequence) -> list: return [_with_data(x, d) for x, d in zip(leaves, data)]


def _jacobian(transform: Callable, fun: Callable, argnums: int | Sequence[int], has_aux: bool, options: dict) -> Callable:
    @wraps(fun)
    def dense(*args: Any) -> Any:
        out = fun(*args)
        if any(map(_is_sparse, tree_leaves(out[0] if has_aux else out, is_leaf=_is_sparse))):
            raise NotImplementedError("the Jacobian of a function with sparse results. hint: return todense() of them")
        return out
    raw = _derivative(transform, lambda leaves, d: d, dense, argnums, has_aux, options)

    @wraps(fun)
    def jacobian_fun(*args: Any, **kw: Any) -> Any:
        out, arguments, _ = raw(*args, **kw)
        jacobians, aux = out if has_aux else (out, None)
        leaves = arguments.leaves()[0]
        size = len(leaves)
        outer = tree_map(lambda row: arguments.result([_placed(x, d) for x, d in zip(leaves, row)]), jacobians,
                         is_leaf=lambda node: isinstance(node, list) and len(node) == size and all(
                             hasattr(d, "shape") for d in node))
        return (outer, aux) if has_aux else outer
    return jacobian_fun


def _placed(x: Any, d: Array) -> Any:
    """A Jacobian with respect to data: the dimensions of the result are batch dimensions in front of those of x."""
    if not _is_sparse(x):
        return d
    if not isinstance(x, BCOO):
        raise NotImplementedError(f"the Jacobian with respect to {type(x).__name__}. hint: BCOO has one")
    front = d.shape[:d.ndim - x.data.ndim]
    indices = jnp.broadcast_to(x.indices, (*front, *x.indices.shape))
    return BCOO((d, indices), shape=(*front, *x.shape), indices_sorted=x.indices_sorted, unique_indices=x.unique_indices)


def jacfwd(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any) -> Callable:
    """As `aot.jacfwd` for functions with dense results; the Jacobian of a sparse argument is sparse."""
    return _jacobian(aot.jacfwd, fun, argnums, has_aux, kwargs)


def jacrev(fun: Callable, argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any) -> Callable:
    """As `aot.jacrev` for functions with dense results; the Jacobian of a sparse argument is sparse."""
    return _jacobian(aot.jacrev, fun, argnums, has_aux, kwargs)


jacobian = jacrev
