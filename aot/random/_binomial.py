"""Binomial and multinomial counts."""
from __future__ import annotations

from typing import Any

import numpy as np

from aot import dtypes, lax
from aot.ops.random import random_split
from aot.ops.shape import broadcast_to, canonical_shape
from aot.random._discrete import _any
from aot.random._keys import single
from aot.random._sampler import broadcast_shape, float_dtype, sampler
from aot.random._uniform import three, two, unit_uniform
from aot.trace import typeof

#: log(k!) minus Stirling's approximation of it, for k = 0..9
_STIRLING_TAIL = np.array([
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.0207906721037650, 0.0166446911898211,
    0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.00925546218271273, 0.00833056343336287])


def binomial(key, n, p, shape=None, dtype=None):
    """The number of successes in n trials of probability p, as floats (default float32).

    NaN where n is negative or p is outside of [0, 1].
    """
    key, dtype = single("binomial", key), float_dtype("binomial", dtype)
    shape = broadcast_shape("binomial", shape, n, p)
    n, p = [broadcast_to(lax.convert_element_type(x, _inexact(x)), shape) for x in (n, p)]
    return _binomial(key, n, p, shape=shape, dtype=dtype)


def _inexact(x):
    return dtypes.canonicalize_dtype(dtypes.to_inexact_dtype(dtypes.dtype(x)))


@sampler("shape", "dtype")
def _binomial(key, n, p, *, shape, dtype):
    """Counts for min(p, 1 - p), mirrored back; by inversion for n p <= 10 and by rejection above.

    Each method sees harmless parameters where the other applies.
    """
    n = lax.convert_element_type(n, dtype)
    full = lambda v, like: broadcast_to(typeof(like).dtype.type(v), shape)
    low = lax.lt(p, full(0.5, p))
    q = lax.select(low, p, lax.sub(full(1, p), p))
    bad_n = lax.bitwise_or(lax.ne(n, n), lax.lt(n, full(0, n)))
    bad_q, infinite = lax.bitwise_or(lax.ne(q, q), lax.lt(q, full(0, q))), lax.eq(lax.abs(n), full(np.inf, n))
    safe_q = lax.select(bad_q, full(0.01, q), q)
    few = lax.bitwise_or(bad_n, lax.le(lax.mul(n, lax.convert_element_type(safe_q, dtype)), full(10, n)))
    whole = lax.floor(n)
    by_inversion = _inversion(key, lax.select(few, whole, full(0, n)), safe_q, shape)
    by_rejection = _btrs(key, lax.select(few, full(1e4, n), whole), lax.select(few, full(0.5, q), safe_q), shape)
    out = lax.select(few, by_inversion, by_rejection)
    invalid = lax.bitwise_or(bad_q, bad_n)
    out = lax.select(invalid, full(np.nan, n), out)
    out = lax.select(lax.bitwise_and(infinite, lax.bitwise_not(invalid)), full(np.inf, n), out)
    keep = lax.bitwise_or(lax.bitwise_or(lax.bitwise_or(low, bad_n), lax.ne(q, q)), infinite)
    return lax.select(keep, out, lax.sub(whole, out))


def _room(i, dtype):
    return lax.lt(lax.convert_element_type(i, dtype), dtype.type(dtypes.finfo(dtype).max))


def _inversion(key, n, q, shape):
    """Add up geometric waiting times until they exceed n (Kachitvichyanukul and Schmeiser, 1988)."""
    dtype = typeof(n).dtype
    log_q = lax.convert_element_type(lax.log1p(lax.neg(q)), dtype)

    def going(carry):
        i, _, total, _ = carry
        return lax.bitwise_and(_any(lax.le(total, n)), _room(i, dtype))

    def step(carry):
        i, count, total, key = carry
        sub_key, key = two(key)
        count = lax.select(lax.le(total, n), lax.add(count, dtype.type(1)), count)
        wait = lax.ceil(lax.div(lax.log(unit_uniform(sub_key, shape, dtype)), log_q))
        return lax.add(i, np.int32(1)), count, lax.add(total, wait), key

    zero = broadcast_to(dtype.type(0), shape)
    return lax.sub(lax.while_loop(going, step, (np.int32(0), zero, zero, key))[1], dtype.type(1))


def _btrs(key, n, q, shape):
    """Algorithm BTRS of Hormann, "The generation of binomial random variates", 1993."""
    dtype = typeof(n).dtype
    q = lax.convert_element_type(q, dtype)
    c = dtype.type
    one_minus = lax.sub(c(1), q)
    spread = lax.sqrt(lax.mul(lax.mul(n, q), one_minus))
    b = lax.add(c(1.15), lax.mul(c(2.53), spread))
    a = lax.add(lax.add(c(-0.0873), lax.mul(c(0.0248), b)), lax.mul(c(0.01), q))
    middle = lax.add(lax.mul(n, q), c(0.5))
    v_r = lax.sub(c(0.92), lax.div(c(4.2), b))
    odds = lax.div(q, one_minus)
    alpha = lax.mul(lax.add(c(2.83), lax.div(c(5.1), b)), spread)
    mode = lax.floor(lax.mul(lax.add(n, c(1)), q))

    def going(carry):
        i, _, accepted, _ = carry
        return lax.bitwise_and(_any(lax.bitwise_not(accepted)), _room(i, dtype))

    def step(carry):
        i, out, accepted, key = carry
        key, k0, k1 = three(key)
        u, v = lax.sub(unit_uniform(k0, shape, dtype), c(0.5)), unit_uniform(k1, shape, dtype)
        us = lax.sub(c(0.5), lax.abs(u))
        quick = lax.bitwise_and(lax.ge(us, c(0.07)), lax.le(v, v_r))
        k = lax.floor(lax.add(lax.mul(lax.add(lax.div(lax.mul(c(2), a), us), b), u), middle))
        outside = lax.bitwise_or(lax.lt(k, c(0)), lax.gt(k, n))
        height = lax.log(lax.div(lax.mul(v, alpha), lax.add(lax.div(a, lax.mul(us, us)), b)))
        inside = lax.bitwise_and(lax.bitwise_not(outside), lax.le(height, _bound(k, n, mode, odds)))
        accept = lax.bitwise_or(quick, inside)
        return lax.add(i, np.int32(1)), lax.select(accept, k, out), lax.bitwise_or(accepted, accept), key

    start = np.int32(0), broadcast_to(c(-1), shape), broadcast_to(np.bool_(False), shape), key
    return lax.while_loop(going, step, start)[1]


def _bound(k, n, mode, odds):
    """Logarithm of the ratio of the probabilities of k and of the mode, through Stirling's formula."""
    c = typeof(k).dtype.type
    plus = lambda x, v: lax.add(x, c(v))
    from_n = lambda x: plus(lax.sub(n, x), 1)
    terms = lax.mul(plus(mode, 0.5), lax.log(lax.div(plus(mode, 1), lax.mul(odds, from_n(mode)))))
    terms = lax.add(terms, lax.mul(plus(n, 1), lax.log(lax.div(from_n(mode), from_n(k)))))
    terms = lax.add(terms, lax.mul(plus(k, 0.5), lax.log(lax.div(lax.mul(odds, from_n(k)), plus(k, 1)))))
    terms = lax.add(lax.add(terms, _tail(mode)), _tail(lax.sub(n, mode)))
    return lax.sub(lax.sub(terms, _tail(k)), _tail(lax.sub(n, k)))


def _tail(k):
    """log(k!) minus Stirling's approximation: from the table up to 9, from the series above."""
    dtype = typeof(k).dtype
    c = dtype.type
    small = lax.le(k, c(9))
    k = lax.clamp(c(0), k, c(9))
    kp1 = lax.add(k, c(1))
    sq = lax.mul(kp1, kp1)
    series = lax.div(lax.sub(c(1 / 12), lax.div(lax.sub(c(1 / 360), lax.div(c(1 / 1260), sq)), sq)), kp1)
    return lax.select(small, _lookup(_STIRLING_TAIL.astype(dtype), k), series)


def _lookup(table: np.ndarray, k) -> Any:
    import aot.numpy as jnp
    index = lax.convert_element_type(lax.floor(k), np.int32)
    return jnp.asarray(table)[index]


def multinomial(key, n, p, *, shape=None, dtype=None, unroll=1):
    """Counts [.. k] of n draws over k categories with probabilities p [.. k], as floats.

    Args:
      shape: of the result; n[.., None] and p broadcast to it.
      unroll: passed to the loop over categories.
    """
    import aot.numpy as jnp
    key, dtype = single("multinomial", key), float_dtype("multinomial", dtype)
    n, p = jnp.asarray(n), jnp.asarray(p)
    p = lax.convert_element_type(p, _inexact(p))
    joint = np.broadcast_shapes(n.shape + (1,), p.shape)
    shape = joint if shape is None else canonical_shape(shape)
    if np.broadcast_shapes(shape, joint) != shape:
        raise ValueError(f"multinomial: n of shape {n.shape} and p of shape {p.shape} do not broadcast to {shape}")
    return _multinomial(key, lax.convert_element_type(n, dtype), p, shape=shape, dtype=dtype, unroll=unroll)


@sampler("shape", "dtype", "unroll")
def _multinomial(key, n, p, *, shape, dtype, unroll):
    """One binomial draw a category, from what the categories before left over."""
    last = typeof(p).ndim - 1
    rest = lax.cumsum(p, last, reverse=True)
    zero = typeof(p).dtype.type(0)
    ratios = lax.div(p, lax.select(lax.eq(rest, zero), broadcast_to(typeof(p).dtype.type(1), typeof(p).shape), rest))
    ratios = lax.transpose(broadcast_to(ratios, shape), (len(shape) - 1, *range(len(shape) - 1)))
    keys = random_split(key, (shape[-1],))

    def step(remaining, x):
        k, ratio = x
        ratio = lax.min(typeof(ratio).dtype.type(1), lax.max(typeof(ratio).dtype.type(0), ratio))
        count = _binomial(k, remaining, ratio, shape=shape[:-1], dtype=dtype)
        return lax.sub(remaining, count), count

    _, counts = lax.scan(step, broadcast_to(n, shape[:-1]), (keys, ratios), unroll=unroll)
    return lax.transpose(counts, (*range(1, len(shape)), 0))
