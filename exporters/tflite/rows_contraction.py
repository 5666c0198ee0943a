"""Rows of products: dot_general, convolution."""
from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from aot.exporters.stablehlo import DotDims, Op

from .arithmetic import WIDER
from .complex_numbers import Complex, Math
from .graph import Tensor
from .lowering import Lowering, row


@row("dot_general")
def dot_general(lower: Lowering, op: Op, x: Any, y: Any) -> Any:
    g, dims = lower.g, op.attrs["dot_dimension_numbers"]
    x, y = g.cast_any(x, op.dtype), g.cast_any(y, op.dtype)
    return bilinear(g, lambda a, b: dot(g, a, b, dims), x, y)


def bilinear(g: Math, f: Any, x: Any, y: Any) -> Any:
    """A bilinear function of real tensors, on complex ones."""
    if not isinstance(x, Complex):
        return f(x, y)
    re, im = g.sub(f(x.re, y.re), f(x.im, y.im)), g.add(f(x.re, y.im), f(x.im, y.re))
    return Complex(re, im)


def dot(g: Math, x: Tensor, y: Tensor, dims: DotDims) -> Tensor:
    """Real operands of one type, as batches of matrices."""
    xb, xc = dims.lhs_batching_dimensions, dims.lhs_contracting_dimensions
    yb, yc = dims.rhs_batching_dimensions, dims.rhs_contracting_dimensions
    xf = [d for d in range(x.rank) if d not in xb + xc]
    yf = [d for d in range(y.rank) if d not in yb + yc]
    batch, rows, columns = [x.shape[d] for d in xb], [x.shape[d] for d in xf], [y.shape[d] for d in yf]
    inner = math.prod(x.shape[d] for d in xc)
    a = g.reshape(g.transpose(x, [*xb, *xf, *xc]), (math.prod(batch), math.prod(rows), inner))
    b = g.reshape(g.transpose(y, [*yb, *yc, *yf]), (math.prod(batch), inner, math.prod(columns)))
    return g.reshape(matmul(g, a, b), (*batch, *rows, *columns))


def matmul(g: Math, a: Tensor, b: Tensor) -> Tensor:
    """[batch, m, k] x [batch, k, n] -> [batch, m, n], of one type."""
    shape = (a.shape[0], a.shape[1], b.shape[2])
    if a.shape[2] == 0 or 0 in shape:
        return g.full(shape, 0, a.dtype)
    if g.profile.has("FULLY_CONNECTED", a.dtype) and a.shape[0] == 1 and b.value is not None:
        weights = g.transpose(g.reshape(b, b.shape[1:]), (1, 0))
        return g.reshape(g.node("FULLY_CONNECTED", [g.reshape(a, a.shape[1:]), weights], shape[1:]), shape)
    if g.profile.has("BATCH_MATMUL", a.dtype):
        return g.node("BATCH_MATMUL", [a, b], shape)
    if a.dtype == bool:
        return g.cast(matmul(g, g.cast(a, np.int32), g.cast(b, np.int32)), bool)
    if a.dtype.name in WIDER:
        return g.cast(matmul(g, g.cast(a, WIDER[a.dtype.name]), g.cast(b, WIDER[a.dtype.name])), a.dtype)
    return _matmul_by_products(g, a, b, shape)


def _matmul_by_products(g: Math, a: Tensor, b: Tensor, shape: tuple[int, ...]) -> Tensor:
    """All products, in chunks of the inner dimension, and their sum: integers wrap, double precision stays."""
    batch, m, n = shape
    k, total = a.shape[2], None
    step = max(1, (1 << 24) // max(1, batch * m * n))
    for start in range(0, k, step):
        part = min(step, k - start)
        x = g.broadcast(g.reshape(g.along(a, 2, start, start + part), (batch, m, part, 1)), (batch, m, part, n))
        y = g.broadcast(g.reshape(g.along(b, 1, start, start + part), (batch, 1, part, n)), (batch, m, part, n))
        found = sum_axis(g, g.mul(x, y), 2)
        total = found if total is None else g.add(total, found)
    assert total is not None
    return total


def sum_axis(g: Math, x: Tensor, axis: int) -> Tensor:
    """The sum along one axis, which is removed."""
    shape = x.shape[:axis] + x.shape[axis + 1:]
    if x.dtype in (np.uint32, np.uint64):
        signed = sum_axis(g, g.bitcast(x, f"int{8 * x.dtype.itemsize}"), axis)
        return g.bitcast(signed, x.dtype)
    if g.profile.has("SUM", x.dtype):
        flat = g.reshape(x, (math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1:])))
        return g.reshape(g.node("SUM", [flat, g.i32([1])], (flat.shape[0], flat.shape[2])), shape)
    while x.shape[axis] > 1:
        n = x.shape[axis]
        half = g.add(g.along(x, axis, 0, n // 2), g.along(x, axis, n // 2, n // 2 * 2))
        x = g.concatenate([half, g.along(x, axis, n // 2 * 2, n)], axis) if n % 2 else half
    return g.reshape(x, shape)


# ---- convolution ------------------------------------------------------------------------------------------------------

@row("convolution")
def convolution(lower: Lowering, op: Op, x: Any, w: Any) -> Any:
    g = lower.g
    dtype = op.dtype
    wide = np.dtype(WIDER.get(dtype.name, dtype.name))
    x, w = g.cast_any(x, wide), g.cast_any(w, wide)
    return g.cast_any(bilinear(g, lambda a, b: _convolve(g, op, a, b), x, w), dtype)


def _convolve(g: Math, op: Op, x: Tensor, w: Tensor) -> Tensor:
    """In the order batch, spatial, feature: pad, dilate and reverse first, so that a plain strided convolution is left."""
    d, spatial = op.attrs["dimension_numbers"], len(op.attrs["dimension_numbers"].input_spatial_dimensions)
    x = g.transpose(x, [d.input_batch_dimension, *d.input_spatial_dimensions, d.input_feature_dimension])
    w = g.transpose(w, [*d.kernel_spatial_dimensions, d.kernel_input_feature_dimension, d.kernel_output_feature_dimension])
    if any(op.attrs.get("window_reversal") or ()):
        w = g.reverse(w, [i for i, flag in enumerate(op.attrs["window_reversal"]) if flag])
    x = _padded(g, op, x, spatial)
    groups = op.attrs["feature_group_count"]
    if op.attrs["batch_group_count"] > 1:
        groups = op.attrs["batch_group_count"]
        x = _batch_groups_as_features(g, x, groups)
    strides = _per_dimension(op, "window_strides", spatial)
    dilation = _per_dimension(op, "rhs_dilation", spatial)
    y = _strided(g, x, w, strides, dilation, groups)
    place = [d.output_batch_dimension, *d.output_spatial_dimensions, d.output_feature_dimension]
    return g.transpose(y, [place.index(i) for i in range(spatial + 2)])


def _per_dimension(op: Op, name: str, spatial: int) -> list[int]:
    found = op.attrs.get(name)
    return [1] * spatial if found is None else [int(n) for n in found]


def _padded(g: Math, op: Op, x: Tensor, spatial: int) -> Tensor:
    padding = np.asarray(op.attrs.get("padding", np.zeros((spatial, 2)))).reshape(spatial, 2).astype(int)
    interior = [n - 1 for n in _per_dimension(op, "lhs_dilation", spatial)]
    low, high = padding[:, 0].tolist(), padding[:, 1].tolist()
    return g.pad(x, g.like(x, 0), [0, *low, 0], [0, *high, 0], [0, *interior, 0])


def _batch_groups_as_features(g: Math, x: Tensor, groups: int) -> Tensor:
    """[groups * n, spatial, c] -> [n, spatial, groups * c]."""
    n, features = x.shape[0] // groups, x.shape[-1]
    split = g.reshape(x, (groups, n, math.prod(x.shape[1:-1]), features))
    return g.reshape(g.transpose(split, (1, 2, 0, 3)), (n, *x.shape[1:-1], groups * features))


def _strided(g: Math, x: Tensor, w: Tensor, strides: list[int], dilation: list[int], groups: int) -> Tensor:
    """[n, spatial, c] * [window, c / groups, o] -> [n, spatial, o], without padding."""
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape, dilation)]
    out = [max(0, (n - r) // s + 1) for n, r, s in zip(x.shape[1:-1], reach, strides)]
    shape = (x.shape[0], *out, w.shape[-1])
    if 0 in shape or 0 in w.shape or 0 in x.shape:
        return g.full(shape, 0, x.dtype)
    if g.profile.has("CONV_2D", x.dtype) and len(out) in (1, 2) and max(dilation) * max(strides) < 1 << 15:
        return _conv_2d(g, x, w, strides, dilation, shape)
    return _by_taps(g, x, w, strides, dilation, groups, shape)


def _conv_2d(g: Math, x: Tensor, w: Tensor, strides: list[int], dilation: list[int], shape: tuple[int, ...]) -> Tensor:
    """One spatial dimension is a plane of height 1.  Features in groups follow from the sizes."""
    if len(strides) == 1:
        x, w = g.reshape(x, (x.shape[0], 1, *x.shape[1:])), g.reshape(w, (1, *w.shape))
        flat = _conv_2d(g, x, w, [1, *strides], [1, *dilation], (shape[0], 1, *shape[1:]))
        return g.reshape(flat, shape)
    kernel = g.transpose(w, (3, 0, 1, 2))
    bias = g.const(np.zeros(w.shape[-1], np.float32))
    options = ("Conv2DOptions", {"padding": 1, "strideH": strides[0], "strideW": strides[1],
                                 "dilationHFactor": dilation[0], "dilationWFactor": dilation[1]})
    return g.nodes("CONV_2D", [x, kernel, bias], [(shape, x.dtype)], options)[0]


def _by_taps(g: Math, x: Tensor, w: Tensor, strides: list[int], dilation: list[int], groups: int,
             shape: tuple[int, ...]) -> Tensor:
    """The sum over the window of products of matrices: for every element type and number of dimensions."""
    features, outs, positions = w.shape[-2], w.shape[-1] // groups, math.prod(shape[:-1])
    total = None
    for tap in itertools.product(*(range(n) for n in w.shape[:-2])):
        start = [0, *(t * d for t, d in zip(tap, dilation)), 0]
        limit = [x.shape[0], *(s + (n - 1) * k + 1 for s, n, k in zip(start[1:-1], shape[1:-1], strides)), x.shape[-1]]
        part = g.reshape(g.slice(x, start, limit, [1, *strides, 1]), (positions, groups, features))
        weights = g.reshape(g.slice(w, [*tap, 0, 0], [*(t + 1 for t in tap), *w.shape[-2:]]), (features, groups, outs))
        found = matmul(g, g.transpose(part, (1, 0, 2)), g.transpose(weights, (1, 0, 2)))
        total = found if total is None else g.add(total, found)
    assert total is not None
    return g.reshape(g.transpose(total, (1, 0, 2)), shape)
