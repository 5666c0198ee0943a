"""Rows: dot_general and convolution."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aot.exporters.stablehlo import ConvDims, DotDims, Op

from .complex_rows import as_pair
from .elementwise import convert
from .graph import BF16, BOOL, F32, I32, Graph, Inexpressible, Tensor
from .kernels import has_kernel
from .lowering import Lowering, Pair, complex_row, part_dtype, row
from .shapes import reverse, spaced, sum_of

# ---- dot_general -----------------------------------------------------------------------------------------------------


@row("dot_general")
def _dot(c: Lowering, op: Op, x: Tensor, y: Tensor) -> Tensor:
    return dot(c.g, x, y, op.attrs["dot_dimension_numbers"], op.dtype)


@complex_row("dot_general")
def _dot_complex(c: Lowering, op: Op, x: Any, y: Any) -> Pair:
    part = part_dtype(op.dtype)
    return _four_products(c.g, lambda a, b: dot(c.g, a, b, op.attrs["dot_dimension_numbers"], part), x, y)


def _four_products(g: Graph, product: Any, x: Any, y: Any) -> Pair:
    """A bilinear operation on complex numbers; two products where one operand is real."""
    if not isinstance(x, Pair):
        return Pair(product(x, y.re), product(x, y.im))
    if not isinstance(y, Pair):
        return Pair(product(x.re, y), product(x.im, y))
    return Pair(g("Sub", product(x.re, y.re), product(x.im, y.im)), g("Add", product(x.re, y.im), product(x.im, y.re)))


def dot(g: Graph, x: Tensor, y: Tensor, d: DotDims, dtype: np.dtype) -> Tensor:
    """MatMul of (batch, rows, contracted) and (batch, contracted, columns), with as few moves as possible."""
    compute = I32 if dtype == BOOL else dtype
    x, y = convert(g, x, compute), convert(g, y, compute)
    if compute == BF16 or compute.itemsize == 1 and compute.kind not in "iu":
        x, y = g.cast(x, F32), g.cast(y, F32)
    free_x = [i for i in range(x.rank) if i not in (*d.lhs_batching_dimensions, *d.lhs_contracting_dimensions)]
    free_y = [i for i in range(y.rank) if i not in (*d.rhs_batching_dimensions, *d.rhs_contracting_dimensions)]
    batch = [x.shape[i] for i in d.lhs_batching_dimensions]
    rows, columns = [x.shape[i] for i in free_x], [y.shape[i] for i in free_y]
    shape = (*batch, *rows, *columns)
    n = math.prod(x.shape[i] for i in d.lhs_contracting_dimensions)
    if 0 in (n, *shape):
        return convert(g, g.broadcast(g.like(0, x), (), shape), dtype)
    left = g.transpose(x, [*d.lhs_batching_dimensions, *free_x, *d.lhs_contracting_dimensions])
    right = g.transpose(y, [*d.rhs_batching_dimensions, *d.rhs_contracting_dimensions, *free_y])
    right = g.reshape(right, (*batch, n, math.prod(columns)))
    if not batch and rows:                                       # MatMul takes any number of leading dimensions
        left, lead = g.reshape(left, (*rows, n)), rows
    else:
        left, lead = g.reshape(left, (*batch, math.prod(rows), n)), [*batch, math.prod(rows)]
    made = g("MatMul", left, right, shape=(*lead, math.prod(columns)), cast=(0, 1))
    return convert(g, g.reshape(made, shape), dtype)


# ---- convolution -----------------------------------------------------------------------------------------------------

@row("convolution")
def _convolution(c: Lowering, op: Op, x: Tensor, w: Tensor, *bias: Tensor) -> Tensor:
    """bias: a vector of features, where recognise.py found one."""
    return _convolve(c.g, op, x, w, op.dtype, *bias)


@complex_row("convolution")
def _convolution_complex(c: Lowering, op: Op, x: Any, w: Any) -> Pair:
    part = part_dtype(op.dtype)
    return _four_products(c.g, lambda a, b: _convolve(c.g, op, a, b, part), as_pair(c.g, x), as_pair(c.g, w))


def _convolve(g: Graph, op: Op, x: Tensor, w: Tensor, dtype: np.dtype, *bias: Tensor) -> Tensor:
    a, d = op.attrs, op.attrs["dimension_numbers"]
    n = len(d.input_spatial_dimensions)
    compute = I32 if dtype == BOOL or dtype.kind in "iu" and dtype.itemsize < 4 else F32 if dtype.itemsize <= 2 else dtype
    x, w = convert(g, x, compute), convert(g, w, compute)
    padding = a.get("padding")
    low, high = ([int(p) for p in padding[:, i]] for i in (0, 1)) if padding is not None else ([0] * n, [0] * n)
    if 0 in (*x.shape, *w.shape, *op.shape):
        zero = g.broadcast(g.constant(np.zeros((), dtype)), (), op.shape)
        return g("Add", zero, g.broadcast(bias[0], (d.output_feature_dimension,), op.shape)) if bias else zero
    x, w = _channels_first(g, x, w, d, a)
    x = spaced(g, x, [0, 0, *(k - 1 for k in a.get("lhs_dilation") or (1,) * n)], g.like(0, x))
    if any(p < 0 for p in (*low, *high)):
        x = g.pad(x, [0, 0, *low], [0, 0, *high], g.like(0, x))
        low, high = [0] * n, [0] * n
    x, w, groups = _batch_groups(g, x, w, a.get("batch_group_count", 1), a.get("feature_group_count", 1))
    strides, dilations = list(a.get("window_strides") or (1,) * n), list(a.get("rhs_dilation") or (1,) * n)
    spatial = [op.shape[i] for i in d.output_spatial_dimensions]
    shape = (x.shape[0], w.shape[0], *spatial)
    if n and has_kernel("Conv", compute, g.opset):
        made = g("Conv", x, w, *bias, shape=shape, cast=range(2 + len(bias)), strides=strides, dilations=dilations,
                 group=groups, pads=[*low, *high], kernel_shape=list(w.shape[2:]))
    else:
        assert not bias
        made = _taps(g, g.pad(x, [0, 0, *low], [0, 0, *high], g.like(0, x)), w, shape, strides, dilations, groups)
    order = [0] * (n + 2)
    for i, at in enumerate((d.output_batch_dimension, d.output_feature_dimension, *d.output_spatial_dimensions)):
        order[at] = i
    return convert(g, g.transpose(made, order), dtype)


def _channels_first(g: Graph, x: Tensor, w: Tensor, d: ConvDims, attrs: dict) -> tuple[Tensor, Tensor]:
    """(batch, features, spatial...) and (output features, input features, spatial...), the kernel not reversed."""
    reversal = attrs.get("window_reversal") or ()
    turned = [d.kernel_spatial_dimensions[i] for i, r in enumerate(reversal) if r]
    w = reverse(g, w, turned)
    return (g.transpose(x, [d.input_batch_dimension, d.input_feature_dimension, *d.input_spatial_dimensions]),
            g.transpose(w, [d.kernel_output_feature_dimension, d.kernel_input_feature_dimension, *d.kernel_spatial_dimensions]))


def _batch_groups(g: Graph, x: Tensor, w: Tensor, batches: int, features: int) -> tuple[Tensor, Tensor, int]:
    """Groups of the batch become groups of features."""
    if batches == 1:
        return x, w, features
    n, channels, *spatial = x.shape
    split = g.reshape(x, (batches, n // batches, channels, *spatial))
    turned = g.transpose(split, [1, 0, *range(2, split.rank)])
    return g.reshape(turned, (n // batches, batches * channels, *spatial)), w, batches


MAX_TAPS = 1 << 12


def _taps(g: Graph, x: Tensor, w: Tensor, shape: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
          groups: int) -> Tensor:
    """The sum over the places of the kernel of one matrix product each, for types without a kernel for Conv."""
    batch, out, *spatial = shape
    channels, kernel = x.shape[1], w.shape[2:]
    if math.prod(kernel) > MAX_TAPS:
        raise Inexpressible(f"a convolution of {x.dtype.name} with {math.prod(kernel)} places in its kernel",
                            "convert to float32 before it")
    inner, parts = channels // groups, []
    for at in np.ndindex(*kernel):
        starts = [0, 0, *(i * d for i, d in zip(at, dilations))]
        limits = [batch, channels, *(i * d + (n - 1) * s + 1 for i, d, n, s in zip(at, dilations, spatial, strides))]
        piece = g.slice(x, starts, limits, [1, 1, *strides])
        piece = g.reshape(piece, (batch, groups, inner, math.prod(spatial)))
        tap = g.slice(w, [0, 0, *at], [out, inner, *(i + 1 for i in at)])
        tap = g.reshape(tap, (1, groups, out // groups, inner))
        parts.append(g("MatMul", tap, piece, shape=(batch, groups, out // groups, math.prod(spatial)), cast=(0, 1)))
    return g.reshape(sum_of(g, parts), shape)


__all__ = ["dot"]
