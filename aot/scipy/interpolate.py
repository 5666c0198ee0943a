"""scipy.interpolate: tables over a rectangular grid."""
from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot.scipy._util import inexact
from aot.tree_util import register_pytree_node

Array = Any
METHODS = ("linear", "nearest")


class RegularGridInterpolator:
    """A function from its values on a rectangular grid; a pytree of grid, values and fill value.

    points: one increasing 1-D array for each axis.  values: array whose leading axes are the grid.  method: "linear" or
    "nearest".  fill_value: result outside of the grid; None extrapolates.
    Raises ValueError for another method or an incompatible fill_value, NotImplementedError for bounds_error=True, which a
    compiled function cannot raise.
    """

    def __init__(self, points: Sequence[Any], values: Any, method: str = "linear", bounds_error: bool = False,
                 fill_value: Any = np.nan):
        self.method, self.bounds_error = _known(method), bounds_error
        if bounds_error:
            raise NotImplementedError("RegularGridInterpolator: bounds_error=True is not supported: a compiled function "
                                      "cannot raise; hint: use fill_value, or aot.experimental.checkify")
        self.values = inexact("RegularGridInterpolator", values)
        if len(points) > self.values.ndim:
            raise ValueError(f"there are {len(points)} point arrays, but values has {self.values.ndim} dimensions")
        self.grid = tuple(jnp.asarray(p) for p in points)
        self.fill_value = fill_value
        if fill_value is not None:
            self.fill_value = jnp.asarray(fill_value)
            if not jnp.can_cast(self.fill_value.dtype, self.values.dtype, casting="same_kind"):
                raise ValueError("fill_value must be either 'None' or of a type compatible with values")

    def __call__(self, xi: Any, method: str | None = None) -> Array:
        """Values at xi: an array [..., n] of positions, or a tuple of n arrays that broadcast.

        Returns [..., *trailing axes of values].
        """
        method = self.method if method is None else _known(method)
        n = len(self.grid)
        if isinstance(xi, tuple) and len(xi) > 1:
            xi = jnp.stack(jnp.broadcast_arrays(*xi), -1)
        else:
            xi = jnp.asarray(*xi) if isinstance(xi, tuple) else jnp.asarray(xi)
            xi = xi.reshape(-1, n) if xi.ndim == 1 else xi
        if xi.shape[-1] != n:
            raise ValueError(f"the requested sample points xi have dimension {xi.shape[-1]}, but this "
                             f"RegularGridInterpolator has dimension {n}")
        flat = xi.reshape(-1, n)
        lower, weights, outside = [], [], jnp.zeros(flat.shape[:1], bool)
        for d, g in enumerate(self.grid):
            x = flat[:, d]
            i = jnp.clip(jnp.searchsorted(g, x) - 1, 0, g.size - 2)
            lower.append(i)
            weights.append((x - g[i]) / (g[i + 1] - g[i]))
            outside |= (x < g[0]) | (x > g[-1])
        trailing = self.values.ndim - n
        if method == "nearest":
            out = self.values[tuple(jnp.where(w <= 0.5, i, i + 1) for i, w in zip(lower, weights))]
        else:
            out = jnp.zeros(())
            for corner in itertools.product((0, 1), repeat=n):
                weight = jnp.ones(())
                for w, up in zip(weights, corner):
                    weight = weight * (w if up else 1 - w)
                out += self.values[tuple(i + up for i, up in zip(lower, corner))] * weight.reshape(-1, *[1] * trailing)
        if self.fill_value is not None:
            out = jnp.where(outside.reshape(-1, *[1] * trailing), self.fill_value, out)
        return out.reshape(*xi.shape[:-1], *self.values.shape[n:])


def _known(method: str) -> str:
    if method not in METHODS:
        raise ValueError(f"method {method!r} is not defined; the methods are {', '.join(METHODS)}")
    return method


def _rebuild(fixed: Any, children: Any) -> RegularGridInterpolator:
    out = object.__new__(RegularGridInterpolator)       # children may be placeholders: nothing is checked
    out.method, out.bounds_error = fixed
    out.grid, out.values, out.fill_value = children
    return out


register_pytree_node(RegularGridInterpolator,
                     lambda f: ((f.grid, f.values, f.fill_value), (f.method, f.bounds_error)), _rebuild)
