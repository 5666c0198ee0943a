"""Rows: scaled dot-product attention, as one operator where that is equal, else as products in the order that suits them."""
from __future__ import annotations

import numpy as np

from aot.exporters.stablehlo import Op

from .graph import Graph, Tensor
from .lowering import Lowering, row


@row("onnx.Attention")
def _attention(c: Lowering, op: Op, q: Tensor, k: Tensor, v: Tensor, *more: Tensor) -> Tensor:
    """[B T N H], [B S K H] twice, and a bias and a mask that broadcast to [B N T S] -> [B T N H].

    The operator adds what masks, so that a NaN in a key which nobody attends to would reach the result: it is used without
    a mask only.
    """
    given = dict(zip(op.attrs["arguments"][3:], more))
    if c.g.opset >= 23 and "mask" not in given and not op.attrs["is_causal"]:
        return _operator(c.g, q, k, v, given.get("bias"), op.attrs["scale"])
    return _parts(c.g, q, k, v, given.get("bias"), given.get("mask"), op.attrs["scale"], op.attrs["is_causal"])


def _operator(g: Graph, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    (b, t, n, h), (s, heads) = q.shape, k.shape[1:3]
    rows, keys, values = g.reshape(q, (b, t, n * h)), g.reshape(k, (b, s, heads * h)), g.reshape(v, (b, s, heads * h))
    added = None if bias is None else g.broadcast(bias, range(4), (*bias.shape[:2], t, s))
    made = g("Attention", rows, keys, values, added, shape=rows.shape, scale=scale, q_num_heads=n, kv_num_heads=heads)
    return g.reshape(made, q.shape)


def _parts(g: Graph, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, mask: Tensor | None, scale: float,
           is_causal: bool) -> Tensor:
    (b, t, n, h), (s, heads) = q.shape, k.shape[1:3]

    def grouped(x: Tensor | None) -> Tensor | None:
        """[B N T S] -> [B K N/K T S] where several queries share a key."""
        if x is None or n == heads:
            return x
        return g.reshape(x, (x.shape[0], *((1, 1) if x.shape[1] == 1 else (heads, x.shape[1] // heads)), *x.shape[2:]))
    rows, keys, values = (grouped(g.transpose(g.full(x), order)) for x, order in
                          ((q, (0, 2, 1, 3)), (k, (0, 2, 3, 1)), (v, (0, 2, 1, 3))))
    assert rows is not None and keys is not None and values is not None
    lead = rows.shape[:-2]
    logits = g("MatMul", g("Mul", rows, g.like(scale, rows)), keys, shape=(*lead, t, s), cast=(0, 1))
    if (added := grouped(bias)) is not None:
        logits = g("Add", logits, added)
    if is_causal:
        mask = g("GreaterOrEqual", g.constant(np.arange(t)[:, None]), g.constant(np.arange(s)[None, :]))
    elif mask is not None:
        mask = grouped(mask)
    if mask is not None:
        logits = g.where(mask, logits, g.like(-0.7 * float(np.finfo(np.float32).max), logits))
    weights = g("Softmax", logits, shape=logits.shape, axis=-1)
    out = g("MatMul", weights, values, shape=(*lead, t, h), cast=(0, 1))
    return g.transpose(g.reshape(out, (b, n, t, h)), (0, 2, 1, 3))
