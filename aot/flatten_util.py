"""A pytree of arrays as one vector, and back."""
from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import dtypes, lax
from aot.numpy._util import fused
from aot.trace import typeof
from aot.tree_util import Partial, tree_flatten, tree_unflatten


def ravel_pytree(pytree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Concatenate the raveled leaves into a vector.

    Returns (vector, unravel): the vector has the common dtype of the leaves (float32 if there are none), and
    `unravel(vector)` gives a pytree of the original structure, shapes and dtypes.  Where all leaves have one dtype, they get
    that of the vector instead, which may be any; else `unravel` raises TypeError for another one.  ValueError for
    another length.
    """
    leaves, treedef = tree_flatten(pytree)
    avals = [typeof(x) for x in leaves]
    shapes, kinds = tuple(a.shape for a in avals), tuple(a.dtype for a in avals)
    if not leaves:
        dtype = np.dtype(np.float32)
        flat = jnp.zeros(0, dtype)
    else:
        dtype = dtypes.result_type(*kinds)
        flat = jnp.concatenate([jnp.ravel(lax.convert_element_type(x, dtype)) for x in leaves])
    return flat, Partial(_Unravel(treedef, shapes, kinds, dtype))


class _Unravel:
    """Hashable, so that two results for trees of one type have equal structures."""

    def __init__(self, treedef: Any, shapes: tuple, kinds: tuple, dtype: np.dtype):
        self.key = treedef, shapes, kinds, dtype

    def __eq__(self, other: object) -> bool: return isinstance(other, _Unravel) and self.key == other.key
    def __hash__(self) -> int: return hash(self.key)

    def __call__(self, vector: Any) -> Any:
        treedef, shapes, kinds, dtype = self.key
        a, size = typeof(vector), sum(map(prod, shapes))
        if a.shape[:1] != (size,):
            raise ValueError(f"unravel takes a vector of shape {(size,)}, got {a.shape}")
        if all(k == dtype for k in kinds):
            kinds = (a.dtype,) * len(kinds)
        elif a.dtype != dtype:
            raise TypeError(f"unravel takes a vector of dtype {dtype}, got {a.dtype}")
        return tree_unflatten(treedef, _pieces(vector, shapes=shapes, kinds=kinds))


@fused("shapes", "kinds")
def _pieces(vector: Any, *, shapes: tuple, kinds: tuple) -> list:
    """The arrays of these shapes and dtypes that a vector consists of."""
    parts = lax.split(vector, list(map(prod, shapes)))
    return [lax.convert_element_type(lax.reshape(x, s), k) for x, s, k in zip(parts, shapes, kinds)]
