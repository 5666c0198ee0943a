"""Interpolation of arrays at any coordinates."""
from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import dtypes, lax
from aot.scipy._util import fused

Array = Any


def _mirror(index: Array, size: int) -> Array:
    """Back and forth between 0 and size - 1."""
    s = size - 1
    return jnp.abs((index + s) % (2 * s) - s)


def _reflect(index: Array, size: int) -> Array:
    """Back and forth, with the ends twice."""
    return jnp.floor_divide(_mirror(2 * index + 1, 2 * size + 1) - 1, 2)


#: mode -> index of an element for any index
_INDEX: dict[str, Callable[[Array, int], Array]] = {
    "constant": lambda index, size: index, "nearest": lambda index, size: jnp.clip(index, 0, size - 1),
    "wrap": lambda index, size: index % size, "mirror": _mirror, "reflect": _reflect}


def _rounded(a: Array) -> Array:
    """To the nearest integer, halves away from zero."""
    return a if dtypes.issubdtype(a.dtype, np.integer) else lax.round(a)


def _neighbours(at: Array, order: int) -> list[tuple[Array, Array]]:
    """(index, weight) of the elements that count at a coordinate."""
    if order == 0:
        return [(_rounded(at).astype(np.int32), at.dtype.type(1))]
    low = jnp.floor(at)
    part = at - low
    index = low.astype(np.int32)
    return [(index, 1 - part), (index + 1, part)]


def map_coordinates(input: Array, coordinates: Sequence[Array], order: int, mode: str = "constant",
                    cval: Array = 0.0) -> Array:
    """input at fractional coordinates, an array of equal shape for each axis of input.

    order: 0 for the nearest element, 1 for linear interpolation.  mode: beyond the edges cval (constant), the edge
    (nearest), or the array repeated (wrap, mirror, reflect)."""
    if mode not in _INDEX:
        raise NotImplementedError(f"map_coordinates does not yet support mode {mode}. Currently supported modes are "
                                  f"{set(_INDEX)}.")
    if order not in (0, 1):
        raise NotImplementedError("map_coordinates currently requires order<=1")
    coordinates = [jnp.asarray(c) for c in coordinates]
    return _map_coordinates(jnp.asarray(input), coordinates, cval, order=order, mode=mode)


@fused("order", "mode")
def _map_coordinates(input: Array, coordinates: list[Array], cval: Array, order: int, mode: str) -> Array:
    if len(coordinates) != input.ndim:
        raise ValueError(f"coordinates must be a sequence of length input.ndim, but {len(coordinates)} != {input.ndim}")
    cval, fixed = jnp.asarray(cval, input.dtype), _INDEX[mode]
    nodes = [[(fixed(i, n), (i >= 0) & (i < n), w) for i, w in _neighbours(at, order)]
             for at, n in zip(coordinates, input.shape)]
    total = None
    for corner in itertools.product(*nodes):
        index, inside, weights = zip(*corner)
        value = input[index]
        if mode == "constant":
            value = jnp.where(functools.reduce(operator.and_, inside), value, cval)
        part = functools.reduce(operator.mul, weights) * value
        total = part if total is None else total + part
    if dtypes.issubdtype(input.dtype, np.integer):
        total = _rounded(total)
    return total.astype(input.dtype)  # type: ignore[union-attr]
