"""Scaled dot-product attention."""
from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import dtypes, lax
from aot.api import jit
from aot.nn._normalize import logsumexp, softmax
from aot.nn._util import composite
from aot.numpy._util import arrays

Array = Any


def dot_product_attention(query: Array, key: Array, value: Array, bias: Array | None = None,
                          mask: Array | None = None, *, scale: float | None = None, is_causal: bool = False,
                          query_seq_lengths: Array | None = None, key_value_seq_lengths: Array | None = None,
                          local_window_size: int | tuple[int, int] | None = None, implementation: str | None = None,
                          return_residual: bool = False) -> Any:
    """softmax(scale query key^T + bias) value, for each head.

    Dimensions: B batch, T queries, S keys, N heads, K heads of key and value (N is a multiple of K), H features.

    Args:
      query: [B T N H] or [T N H].  key, value: [B S K H] or [S K H].
      bias: added to the logits; [B N T S] up to broadcasting.  mask: True where attention is allowed; same shape.
      scale: default 1 / sqrt(H).
      is_causal: query t sees keys up to t.
      query_seq_lengths, key_value_seq_lengths: int [B]; rows and keys beyond are ignored.
      local_window_size: (left, right), or one number for both: query t sees keys t - left to t + right.
      implementation: None or 'xla'.
      return_residual: also return the log-sum-exp of the logits, [B T N].

    Returns the attention output in the shape of query.  Raises ValueError for shapes that do not fit.
    """
    if implementation not in (None, "xla"):
        raise ValueError(f"dot_product_attention: implementation is None or 'xla', got {implementation!r}")
    shape, batched = np.shape(query), np.ndim(query) == 4
    query, key, value = [_with_batch(x) for x in arrays("dot_product_attention", query, key, value)]
    bias, mask = [None if x is None else _with_batch(arrays("dot_product_attention", x)) for x in (bias, mask)]
    _check(query, key, value, bias, mask, query_seq_lengths, key_value_seq_lengths)
    batch, t, n, h = query.shape
    only_causal = mask is query_seq_lengths is key_value_seq_lengths is local_window_size is None
    if not only_causal:
        mask = _allowed(t, key.shape[1], mask, is_causal, query_seq_lengths, key_value_seq_lengths, local_window_size)
    scale = float(1 / np.sqrt(h)) if scale is None else scale
    attend = _attend if return_residual or not isinstance(scale, float | int) else _dot_product_attention
    out, *logits = attend(query, key, value, bias, mask, scale=scale, is_causal=is_causal and only_causal)
    if query_seq_lengths is not None:
        out = out * _valid(t, query_seq_lengths)[:, :, None, None].astype(out.dtype)
    out = out.reshape(shape)
    if not return_residual:
        return out
    lse = lax.stop_gradient(jnp.moveaxis(logsumexp(logits[0], -1), 3, 1).reshape(batch, t, n))
    return out, lse if batched else lse[0]


def _attend(query, key, value, bias, mask, *, scale, is_causal) -> tuple[Array, Array]:
    """[B T N H], [B S K H] twice, up to [B N T S] twice -> the result [B T N H], and the logits [B K N/K T S]."""
    (batch, t, n, h), (s, k) = query.shape, key.shape[1:3]
    grouped = lambda x: None if x is None else _heads(x, k, n // k)
    logits = _logits(query.reshape(batch, t, k, n // k, h), key, grouped(bias), scale)
    allowed = _allowed(t, s, None, True) if is_causal else mask
    if allowed is not None:
        lowest = jnp.asarray(-0.7 * float(dtypes.finfo(logits.dtype).max), logits.dtype)
        logits = jnp.where(grouped(allowed), logits, lowest)
    weights = softmax(logits.astype(jnp.float32), -1).astype(key.dtype)
    return jnp.einsum("BKGTS,BSKH->BTKGH", weights, value).reshape(query.shape), logits


@composite
@functools.partial(jit, static_argnames=("scale", "is_causal"))
def _dot_product_attention(query, key, value, bias, mask, *, scale, is_causal) -> tuple[Array]:
    return _attend(query, key, value, bias, mask, scale=scale, is_causal=is_causal)[:1]


def _with_batch(x: Array) -> Array:
    return x if x.ndim == 4 else x[None]


def _check(query, key, value, bias, mask, q_len, kv_len) -> None:
    def fail(text: str) -> None:
        raise ValueError(f"dot_product_attention: {text}")

    if query.ndim != 4 or key.ndim != 4 or value.ndim != 4:
        fail(f"query, key and value have 3 or 4 dimensions, got {query.ndim}, {key.ndim} and {value.ndim}")
    batch, t, n, h = query.shape
    _, s, k, _ = key.shape
    if key.shape != (batch, s, k, h) or value.shape != key.shape or n % k:
        fail(f"query {query.shape} [B T N H] does not fit key {key.shape} and value {value.shape} [B S K H]; "
             "N must be a multiple of K")
    for name, x in (("bias", bias), ("mask", mask)):
        if x is not None and (x.ndim != 4 or any(got not in (1, want) for got, want in zip(x.shape, (batch, n, t, s)))):
            fail(f"{name} of shape {x.shape} does not broadcast to {(batch, n, t, s)} [B N T S]")
    if mask is not None and mask.dtype != np.bool_:
        fail(f"mask is boolean, got {mask.dtype}; add numbers through bias")
    for name, x in (("query_seq_lengths", q_len), ("key_value_seq_lengths", kv_len)):
        if x is not None and (np.shape(x) != (batch,) or np.dtype(x.dtype).kind not in "iu"):
            fail(f"{name} is an integer array of shape {(batch,)}, got {x.dtype}{list(np.shape(x))}")


def _heads(x: Array, k: int, g: int) -> Array:
    """[B N T S] -> [B K G T S]; a single head stays one."""
    b, n, t, s = x.shape
    return x.reshape((b, 1, 1, t, s) if n == 1 else (b, k, g, t, s))


def _logits(query, key, bias, scale) -> Array:
    """[B T K G H], [B S K H] -> [B K G T S], at least in float32."""
    dtype = dtypes.promote_types(query.dtype, np.float32)
    logits = jnp.einsum("BTKGH,BSKH->BKGTS", query, key, preferred_element_type=dtype)
    logits = logits * jnp.asarray(1 / np.sqrt(query.shape[-1]) if scale is None else scale, logits.dtype)
    return logits if bias is None else (logits + bias).astype(logits.dtype)


def _allowed(t, s, mask, is_causal, q_len=None, kv_len=None, window=None) -> Array:
    """The conjunction of all masks, of which there is at least one, broadcastable to [B N T S]."""
    rows, cols = (lax.expand_dims(jnp.arange(size), dims) for size, dims in ((t, (0, 1, 3)), (s, (0, 1, 2))))
    masks = [] if mask is None else [mask]
    if is_causal:
        masks.append(rows >= cols)
    if window is not None:
        left, right = (window, window) if isinstance(window, int) else window
        masks.append((rows <= cols + left) & (rows >= cols - right))
    if q_len is not None:
        masks.append(_valid(t, q_len)[:, None, :, None])
    if kv_len is not None:
        masks.append(_valid(s, kv_len)[:, None, None, :])
    return functools.reduce(operator.and_, masks)


def _valid(size: int, lengths: Array) -> Array:
    """[B size]: positions before each length."""
    return jnp.arange(size)[None, :] < jnp.asarray(lengths)[:, None]
