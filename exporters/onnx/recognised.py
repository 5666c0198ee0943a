"""Rows: the high-level operations that recognise.py finds, and error functions."""
from __future__ import annotations

import math

import numpy as np

from aot.exporters.stablehlo import Op

from .elementwise import polynomial
from .graph import F32, Tensor
from .lowering import Lowering, row


@row("onnx.Softmax", "onnx.LogSoftmax")
def _softmax(c: Lowering, op: Op, x: Tensor) -> Tensor:
    """With the axes behind as one, and none where that has size 1: the kernel moves the axis to the end, slowly for many."""
    axis, after = op.attrs["axis"], math.prod(x.shape[op.attrs["axis"] + 1:])
    one = x if axis >= x.rank - 1 else c.g.reshape(x, (*x.shape[:axis + 1], *([after] if after != 1 else [])))
    return c.g.reshape(c.g(op.name.removeprefix("onnx."), one, shape=one.shape, axis=axis), x.shape)


@row("onnx.LayerNormalization")
def _layer_norm(c: Lowering, op: Op, x: Tensor, *more: Tensor) -> Tensor:
    if op.attrs.get("is_fast"):
        c.g.notes["LayerNormalization keeps digits that nn.standardize loses where a mean is far larger than the deviation; "
                  "algorithm='stable' keeps them too"] = None
    scale = more[0] if more else c.g.constant(np.ones(x.shape[op.attrs["axis"]:], x.dtype))
    return c.g("LayerNormalization", x, scale, *more[1:], shape=x.shape, axis=op.attrs["axis"], epsilon=op.attrs["epsilon"])


@row(*(f"onnx.{n}" for n in "Celu Elu Gelu HardSigmoid HardSwish LeakyRelu Mish Relu Selu Softplus Softsign Swish".split()))
def _activation(c: Lowering, op: Op, x: Tensor) -> Tensor:
    return c.g(op.name.removeprefix("onnx."), x, **op.attrs)


@row("onnx.Clip")
def _clip(c: Lowering, op: Op, x: Tensor) -> Tensor:
    return c.g("Clip", x, c.g.like(op.attrs["low"], x), c.g.like(op.attrs["high"], x), shape=x.shape)


#: Cephes' polynomials in 1/x**2 for erfc(x) x exp(x**2): for 1 <= x < 2, and above
_ERFC_NEAR = (2.326819970068386e-2, -1.387039388740657e-1, 3.687424674597105e-1, -5.824733027278666e-1, 6.210004621745983e-1,
              -4.944515323274145e-1, 3.404879937665872e-1, -2.741127028184656e-1, 5.638259427386472e-1)
_ERFC_FAR = (-1.047766399936249e+1, 1.297719955372516e+1, -7.495518717768503e+0, 2.921019019210786e+0, -1.015265279202700e+0,
             4.218463358204948e-1, -2.820767439740514e-1, 5.641895067754075e-1)


@row("chlo.erfc")
def _erfc(c: Lowering, op: Op, x: Tensor) -> Tensor:
    """1 - erf(x) near 0, and an expansion that keeps the digits of small results far from it; of float32."""
    g, own = c.g, x.dtype
    x = g.cast(x, F32)
    a = g("Max", g("Abs", x), g.like(1, x))
    q = g("Reciprocal", a)
    z = g("Mul", q, q)
    tail = g.where(g("Less", a, g.like(2, x)), polynomial(g, _ERFC_NEAR, z), polynomial(g, _ERFC_FAR, z))
    far = g("Mul", g("Mul", g("Exp", g("Neg", g("Mul", a, a))), q), tail)
    far = g.where(g("Less", x, g.like(0, x)), g("Sub", g.like(2, x), far), far)
    near = g("Sub", g.like(1, x), g("Erf", x))
    return g.cast(g.where(g("Greater", g("Abs", x), g.like(1, x)), far, near), own)
