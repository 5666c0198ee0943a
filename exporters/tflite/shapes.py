"""Movement of elements: reshape, transpose, broadcast, slices, concatenation, padding, types.

Element types that a kernel lacks are moved as integers of the same width.  Ranks above four become three dimensions where
only one axis matters: delegates of the runtime refuse them.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .graph import Graph, Tensor

#: types of the same width, of which more kernels know one
CARRIERS = {"float64": ["int64"], "uint64": ["int64"], "uint32": ["int32"], "float32": ["int32"], "uint16": ["int16"],
            "bfloat16": ["int16"], "uint8": ["int8"], "bool": ["uint8"]}
#: wider types that hold the same values
HOLDERS = {"int8": "int32", "int16": "int32", "float16": "float32"}
MAX_FOLDED = 1 << 16


class Shapes(Graph):
    """Operations that compute nothing."""

    def i32(self, values: Sequence[int]) -> Tensor: return self.const(np.array(values, np.int32))

    def carry(self, operator: str, xs: Sequence[Tensor], shape: Sequence[int], *indices: Tensor, before: Sequence[Tensor] = (),
              **fields) -> Tensor:
        """A node that moves the elements of xs (one type), through a type of the same width, or int32, where it has to.

        before, indices: its other operands, in front of xs and behind.
        """
        dtype = xs[0].dtype
        if self.profile.has(operator, dtype):
            return self.node(operator, [*before, *xs, *indices], shape, dtype, **fields)
        for carrier in CARRIERS.get(dtype.name, ()):
            if self.profile.has(operator, np.dtype(carrier)) or np.dtype(carrier).itemsize < 4:
                moved = [self.bitcast(x, carrier) for x in xs]
                return self.bitcast(self.carry(operator, moved, shape, *indices, before=before, **fields), dtype)
        if dtype.name in HOLDERS:
            moved = [self._held(x, np.dtype(HOLDERS[dtype.name])) for x in xs]
            return self.node("CAST", [self.carry(operator, moved, shape, *indices, before=before, **fields)], shape, dtype)
        return self.node(operator, [*before, *xs, *indices], shape, dtype, **fields)

    def _held(self, x: Tensor, dtype: np.dtype) -> Tensor:
        return self.node("CAST", [x], x.shape, dtype) if x.value is None else self.const(x.value.astype(dtype))

    # ---- shape ----
    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        shape = tuple(int(n) for n in shape)
        if x.shape == shape:
            return x
        if x.value is not None:
            return self.const(_reshaped(x.value, shape))
        if x.view is not None and x.view[0] == "RESHAPE":
            return self.reshape(x.view[1][0], shape)
        target = self.i32(shape)
        return self.node("RESHAPE", [x, target], shape, newShape=target.value)

    def transpose(self, x: Tensor, permutation: Sequence[int]) -> Tensor:
        permutation = tuple(int(p) for p in permutation)
        if permutation == tuple(range(x.rank)):
            return x
        shape = tuple(x.shape[p] for p in permutation)
        if x.value is not None:
            return self.const(np.transpose(x.value, permutation))
        sizes, order = _merged(x.shape, permutation)
        if len(order) <= 1:
            return self.reshape(x, shape)
        moved = self.reshape(x, sizes)
        return self.reshape(self.carry("TRANSPOSE", [moved], [sizes[p] for p in order], self.i32(order)), shape)

    def broadcast(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """x, whose sizes are those of the last dimensions of the shape or 1, in this shape."""
        shape = tuple(int(n) for n in shape)
        if x.shape == shape:
            return x
        if x.value is not None:
            return self.const(np.broadcast_to(x.value, shape))
        if math.prod(shape) == x.size:
            return self.reshape(x, shape)
        made = self.node("BROADCAST_TO", [x, self.i32(shape)], shape)
        made.repeats = x if x.rank == len(shape) else self.reshape(x, (1,) * (len(shape) - x.rank) + x.shape)
        return made

    def broadcast_in_dim(self, x: Tensor, shape: Sequence[int], dims: Sequence[int]) -> Tensor:
        order = sorted(range(x.rank), key=lambda i: dims[i])
        x, dims = self.transpose(x, order), [dims[i] for i in order]
        expanded = [1] * len(shape)
        for n, d in zip(x.shape, dims):
            expanded[d] = n
        return self.broadcast(self.reshape(x, expanded), shape)

    # ---- parts ----
    def slice(self, x: Tensor, start: Sequence[int], limit: Sequence[int], strides: Sequence[int] | None = None) -> Tensor:
        strides = list(strides or [1] * x.rank)
        shape = tuple(max(0, -(-(l - s) // k)) for s, l, k in zip(start, limit, strides))
        if shape == x.shape:
            return x
        if x.value is not None:
            return self.const(x.value[tuple(slice(*p) for p in zip(start, limit, strides))])
        if x.rank > 4:
            return self._slice_by_axis(x, start, limit, strides)
        return self.carry("STRIDED_SLICE", [x], shape, self.i32(start), self.i32(limit), self.i32(strides))

    def _slice_by_axis(self, x: Tensor, start: Sequence[int], limit: Sequence[int], strides: Sequence[int]) -> Tensor:
        for axis, part in enumerate(zip(start, limit, strides)):
            if part != (0, x.shape[axis], 1):
                outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1:])
                flat = self.reshape(x, (outer, x.shape[axis], inner))
                flat = self.slice(flat, (0, part[0], 0), (outer, part[1], inner), (1, part[2], 1))
                x = self.reshape(flat, (*x.shape[:axis], flat.shape[1], *x.shape[axis + 1:]))
        return x

    def along(self, x: Tensor, axis: int, start: int, limit: int, stride: int = 1) -> Tensor:
        """A slice of one axis."""
        lows, highs, strides = [0] * x.rank, list(x.shape), [1] * x.rank
        lows[axis], highs[axis], strides[axis] = start, limit, stride
        return self.slice(x, lows, highs, strides)

    def dynamic_slice(self, x: Tensor, start: Tensor, sizes: Sequence[int]) -> Tensor:
        """start: int32[rank], in range."""
        return self.carry("SLICE", [x], sizes, start, self.i32(sizes))

    def dynamic_update_slice(self, x: Tensor, update: Tensor, start: Tensor) -> Tensor:
        """x with an update of the same rank in place of what is at the start, int32[rank], in range."""
        return self.carry("DYNAMIC_UPDATE_SLICE", [x, update], x.shape, start)

    def concatenate(self, xs: Sequence[Tensor], axis: int) -> Tensor:
        xs = [x for x in xs if x.shape[axis]] or list(xs[:1])
        if len(xs) == 1:
            return xs[0]
        shape = list(xs[0].shape)
        shape[axis] = sum(x.shape[axis] for x in xs)
        known = [x.value for x in xs if x.value is not None]
        if len(known) == len(xs) and math.prod(shape) <= MAX_FOLDED:
            return self.const(np.concatenate(known, axis))
        outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1:])
        flat = [self.reshape(x, (outer, x.shape[axis], inner)) for x in xs] if len(shape) > 4 else xs
        at, whole = (1, (outer, shape[axis], inner)) if len(shape) > 4 else (axis, shape)
        return self.reshape(self.carry("CONCATENATION", flat, whole, axis=at), shape)

    def stack(self, xs: Sequence[Tensor], axis: int = -1) -> Tensor:
        """Join along a new axis."""
        axis = axis % (xs[0].rank + 1)
        return self.concatenate([self.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:])) for x in xs], axis)

    def reverse(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        for axis in axes:
            if x.shape[axis] > 1:
                flat = (math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1:]))
                shape = x.shape
                x = self.carry("REVERSE_V2", [self.reshape(x, flat)], flat, self.i32([1]))
                x = self.reshape(x, shape)
        return x

    def pad(self, x: Tensor, value: Tensor, low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> Tensor:
        """StableHLO's pad: negative edges cut; interior elements between neighbours."""
        shape = tuple(max(0, l + h + n + max(n - 1, 0) * i) for n, l, h, i in zip(x.shape, low, high, interior))
        if not any(low) and not any(high) and not any(interior):
            return x
        if x.size == 0:
            return self.broadcast(value, shape)
        if self.profile.has("STABLEHLO_PAD", x.dtype):
            fields = {"edgePaddingLow": low, "edgePaddingHigh": high, "interiorPadding": interior}
            options = ("StablehloPadOptions", {k: np.array(v, np.int64) for k, v in fields.items()})
            return self.const(np.zeros(shape, x.dtype)) if 0 in shape else \
                self.nodes("STABLEHLO_PAD", [x, value], [(shape, x.dtype)], options)[0]
        return self._pad_with_concatenation(x, value, low, high, interior)

    def _pad_with_concatenation(self, x: Tensor, value: Tensor, low: Sequence[int], high: Sequence[int],
                                interior: Sequence[int]) -> Tensor:
        for axis, (l, h, i) in enumerate(zip(low, high, interior)):
            if i and x.shape[axis] > 1:
                x = self._dilate(x, value, axis, i)
            sizes = [[*x.shape[:axis], max(0, n), *x.shape[axis + 1:]] for n in (l, h)]
            x = self.concatenate([self.broadcast(value, sizes[0]), x, self.broadcast(value, sizes[1])], axis)
            x = self.along(x, axis, max(0, -l), x.shape[axis] - max(0, -h))
        return x

    def _dilate(self, x: Tensor, value: Tensor, axis: int, interior: int) -> Tensor:
        """Every element of an axis followed by `interior` times the value, except the last."""
        outer, n, inner = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1:])
        parts = self.reshape(x, (outer, n, 1, inner))
        filled = self.concatenate([parts, self.broadcast(value, (outer, n, interior, inner))], 2)
        whole = self.reshape(filled, (outer, n * (interior + 1), inner))
        cut = self.along(whole, 1, 0, n * (interior + 1) - interior)
        return self.reshape(cut, (*x.shape[:axis], cut.shape[1], *x.shape[axis + 1:]))

    def iota(self, shape: Sequence[int], axis: int, dtype) -> Tensor:
        line = np.arange(shape[axis]).astype(dtype)
        return self.const(np.broadcast_to(line.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape))

    def full(self, shape: Sequence[int], value, dtype) -> Tensor:
        return self.const(np.broadcast_to(np.asarray(value).astype(dtype), tuple(shape)))

    # ---- bits ----
    def bitcast(self, x: Tensor, dtype) -> Tensor:
        """The same bytes; a wider type takes the last dimension, a narrower one adds one."""
        dtype = np.dtype(dtype)
        if x.dtype == dtype:
            return x
        shape = x.shape
        if dtype.itemsize > x.dtype.itemsize:
            shape = shape[:-1]
        elif dtype.itemsize < x.dtype.itemsize:
            shape = (*shape, x.dtype.itemsize // dtype.itemsize)
        if x.value is not None and x.size > 1 and not any(x.value.strides) and dtype.itemsize <= x.dtype.itemsize:
            return self.const(np.broadcast_to(x.value.reshape(-1)[:1].view(dtype), shape))        # a splat stays one
        if x.value is not None:
            return self.const(np.ascontiguousarray(x.value).reshape(-1).view(dtype).reshape(shape))
        source = x.view[1][0] if x.view is not None and x.view[0] == "BITCAST" else x
        if source.dtype.itemsize == x.dtype.itemsize == dtype.itemsize and source is not x:
            return self.bitcast(source, dtype)
        return self.node("BITCAST", [x], shape, dtype)


def _merged(shape: Sequence[int], permutation: Sequence[int]) -> tuple[list[int], list[int]]:
    """A transposition without dimensions of size 1, and with dimensions that stay neighbours as one."""
    groups: list[list[int]] = []
    for p in (p for p in permutation if shape[p] != 1):
        skipped = groups and all(shape[i] == 1 for i in range(groups[-1][-1] + 1, p))
        if groups and p > groups[-1][-1] and skipped:
            groups[-1].append(p)
        else:
            groups.append([p])
    before = sorted(groups)
    return [math.prod(shape[p] for p in group) for group in before], [before.index(group) for group in groups]


def _reshaped(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A splat stays one element in memory."""
    if value.size > 1 and not any(value.strides):
        return np.broadcast_to(value.reshape(-1)[0], shape)
    return value.reshape(shape)
