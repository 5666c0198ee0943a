"""Scaled dot-product attention."""
from __future__ import annotations

from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import dtypes, lax
from aot.nn._normalize import logsumexp, softmax
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
    k = key.shape[2]
    grouped = lambda x: None if x is None else _heads(x, k, n // k)
    logits = _logits(query.reshape(batch, t, k, n // k, h), key, grouped(bias), scale)
    allowed = _allowed(logits, grouped(mask), is_causal, query_seq_lengths, key_value_seq_lengths, local_window_size)
    if allowed is not None:
        logits = jnp.where(allowed, logits, jnp.asarray(-0.7 * float(dtypes.finfo(logits.dtype).max), logits.dtype))
    weights = softmax(logits.astype(jnp.float32), -1).astype(key.dtype)
    out = jnp.einsum("BKGTS,BSKH->BTKGH", weights, value)
    if query_seq_lengths is not None:
        out = out * _valid(t, query_seq_lengths)[:, :, None, None, None].astype(out.dtype)
    out = out.reshape(shape)
    if not return_residual:
        return out
    lse = lax.stop_gradient(jnp.moveaxis(logsumexp(logits, -1), 3, 1).reshape(batch, t, n))
    return out, lse if batched else lse[0]


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


def _allowed(logits, mask, is_causal, q_len, kv_len, window) -> Array | None:
    """The conjunction of all masks, broadcastable to [B K G T S]; None when there are none."""
    t, s = logits.shape[-2:]
    rows, cols = jnp.arange(t)[:, None], jnp.arange(s)[None, :]
    masks = [] if mask is None else [mask]
    if is_causal:
        masks.append(rows >= cols)
    if window is not None:
        left, right = (window, window) if isinstance(window, int) else window
        masks.append((rows <= cols + left) & (rows >= cols - right))
    if q_len is not None:
        masks.append(_valid(t, q_len)[:, None, None, :, None])
    if kv_len is not None:
        masks.append(_valid(s, kv_len)[:, None, None, None, :])
    result = None
    for m in masks:
        result = m if result is None else result & m
    return result


def _valid(size: int, lengths: Array) -> Array:
    """[B size]: positions before each length."""
    return jnp.arange(size)[None, :] < jnp.asarray(lengths)[:, None]
