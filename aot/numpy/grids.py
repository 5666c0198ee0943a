"""Index objects: mgrid and ogrid, r_ and c_, s_ and index_exp."""
from __future__ import annotations

from typing import Any

import numpy as np

from aot.numpy._util import array_of, concrete, promote
from aot.numpy.creation import arange, array, linspace, meshgrid
from aot.numpy.shapes import concatenate, expand_dims, stack, transpose

s_, index_exp = np.s_, np.index_exp


def _range(s: slice, name: str) -> Any:
    """`start:stop:step` as arange; with an imaginary step, that many points including the end."""
    start, stop, step = [concrete(x, f"slice entry of jnp.{name}") for x in (s.start, s.stop, s.step)]
    start, step = 0 if start is None else start, step or 1
    if np.iscomplex(step):
        return linspace(start, stop, int(abs(step)))
    return arange(start, stop, step)


class _Grid:
    """`mgrid[0:2, 0:3]`: coordinate arrays, of full shape or of sizes 1 except along their axis."""

    def __init__(self, name: str, sparse: bool):
        self.name, self.sparse = name, sparse

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return _range(key, self.name)
        ranges = [_range(k, self.name) for k in key]
        ranges = [array_of(r) for r in promote(*ranges)] if ranges else []
        grid = meshgrid(*ranges, indexing="ij", sparse=self.sparse)
        if self.sparse:
            return grid
        return stack(grid, 0) if grid else arange(0)

    def __repr__(self) -> str:
        return f"aot.numpy.{self.name}"


mgrid, ogrid = _Grid("mgrid", sparse=False), _Grid("ogrid", sparse=True)


class _Concatenator:
    """`r_[1:4, 0, x]`: ranges, numbers and arrays joined into one array."""

    def __init__(self, name: str, axis: int, ndmin: int, trans1d: int):
        self.name, self.defaults = name, [axis, ndmin, trans1d, -1]

    def __getitem__(self, key: Any) -> Any:
        key = key if isinstance(key, tuple) else (key,)
        axis, ndmin, trans1d, matrix = self.defaults
        if isinstance(key[0], str):
            (axis, ndmin, trans1d, matrix), key = self._directive(key[0]), key[1:]
        out = concatenate([self._part(item, ndmin, trans1d) for item in key], axis=axis)
        return expand_dims(out, matrix) if matrix != -1 and out.ndim == 1 else out

    def _directive(self, text: str) -> list[int]:
        """A leading string: 'r' or 'c' for a matrix of one row or column, or 'axis,ndmin,trans1d'."""
        if text in ("r", "c"):
            return [*self.defaults[:3], 0 if text == "r" else 1]
        given = text.split(",")[:3]
        try:
            return [*map(int, given), *self.defaults[len(given):]]
        except ValueError as error:
            raise ValueError(f"could not understand directive {text!r}") from error

    def _part(self, item: Any, ndmin: int, trans1d: int) -> Any:
        if isinstance(item, str):
            raise ValueError("string directive must be placed at the beginning")
        x = _range(item, self.name) if isinstance(item, slice) else array(item, copy=False)
        old_ndim = 0 if isinstance(item, slice) else x.ndim
        x = array(x, copy=False, ndmin=ndmin)
        if trans1d == -1 or ndmin <= old_ndim:
            return x
        shift = ndmin - abs(ndmin + trans1d + 1) % ndmin
        axes = list(range(ndmin))
        return transpose(x, axes[shift:] + axes[:shift])

    def __len__(self) -> int:
        return 0


r_ = _Concatenator("r_", axis=0, ndmin=1, trans1d=-1)
c_ = _Concatenator("c_", axis=-1, ndmin=2, trans1d=0)
