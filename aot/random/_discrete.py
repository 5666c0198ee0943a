"""Permutations, choices, categories and small counting distributions."""
from __future__ import annotations

import math
import operator
from math import prod

import numpy as np

from aot import dtypes, lax
from aot.ops.random import random_bits
from aot.ops.shape import broadcast_to, canonical_axis, canonical_shape, placed
from aot.random._continuous import _gumbel
from aot.random._keys import single
from aot.random._sampler import broadcast_shape, cast, int_dtype, sampler
from aot.random._uniform import dynamic_range, randint, two, unit_uniform
from aot.trace import typeof

# ---- permutations and choices ----------------------------------------------------------------------------------------

def permutation(key, x, axis: int = 0, independent: bool = False, *, out_sharding=None):
    """range(x) in random order for an integer x, or an array's slices along `axis` in random order.

    independent: shuffle every line along `axis` on its own, instead of whole slices.
    """
    key, ndim = single("permutation", key), typeof(x).ndim
    axis = canonical_axis(axis, ndim or 1)
    if not ndim:
        if typeof(x).dtype.kind not in "iu":
            raise TypeError(f"permutation takes an integer or an array, got a scalar of dtype {typeof(x).dtype}")
        x = lax.iota(dtypes.default_int_dtype(), operator.index(x))
        return placed(_shuffle(key, x, axis=0), out_sharding)
    if independent or ndim == 1:
        return placed(_shuffle(key, x, axis=axis), out_sharding)
    import aot.numpy as jnp
    order = _shuffle(key, lax.iota(dtypes.default_int_dtype(), typeof(x).shape[axis]), axis=0)
    return placed(jnp.take(x, order, axis, unique_indices=True), out_sharding)


@sampler("axis")
def _shuffle(key, x, *, axis):
    """Sort by random words, as often as it takes to make ties between words unlikely to matter.

    A round leaves about n^2 / 2^33 tied pairs in their old order; enough rounds for n^-3 are run.
    """
    shape = typeof(x).shape
    rounds = math.ceil(3 * math.log(max(1, prod(shape))) / math.log(2 ** 32 - 1))
    for _ in range(rounds):
        key, sub_key = two(key)
        _, x = lax.sort_key_val(random_bits(sub_key, 32, shape), x, axis)
    return x


def choice(key, a, shape=(), replace: bool = True, p=None, axis: int = 0, mode: str | None = None):
    """Random elements of range(a) or of an array along `axis`.

    Args:
      a: an integer n for range(n), or an array.
      shape: number (and arrangement) of draws; takes the place of `axis` in the result.
      replace: whether an element can be drawn twice.
      p: the probability of each element; default uniform.
      mode: precision of the draw without replacement with p, see `gumbel`.

    Raises ValueError when there are not enough elements, or p has the wrong shape.
    """
    key, shape, draws = single("choice", key), canonical_shape(shape), prod(canonical_shape(shape))
    ndim = typeof(a).ndim
    axis = canonical_axis(axis, ndim or 1)
    size = typeof(a).shape[axis] if ndim else operator.index(a)
    if draws and size <= 0:
        raise ValueError("choice: there is nothing to choose from; a must be positive or not empty")
    if not replace and draws > size:
        raise ValueError(f"choice: {draws} draws without replacement from only {size} elements")
    if p is None and not replace:
        taken = lax.slice_in_dim(permutation(key, a, axis), 0, draws, axis=axis)
        if not ndim:
            return lax.reshape(taken, shape)
        full = typeof(a).shape
        return lax.reshape(taken, full[:axis] + shape + full[axis + 1:])
    index = randint(key, shape, 0, size) if p is None else _weighted(key, p, size, shape, replace, mode)
    if not ndim:
        return index
    import aot.numpy as jnp
    return jnp.take(a, index, axis)


def _weighted(key, p, size: int, shape, replace: bool, mode):
    """Indices drawn with probabilities p: inverse transform, or the largest of perturbed log-probabilities."""
    import aot.numpy as jnp
    p, = cast(_inexact(p), p)
    if typeof(p).shape != (size,):
        raise ValueError(f"choice: p must have one entry for each of {size} elements, got shape {typeof(p).shape}")
    dtype = typeof(p).dtype
    if replace:
        upto = lax.cumsum(p, 0)
        r = lax.mul(lax.index_in_dim(upto, -1, keepdims=False), lax.sub(dtype.type(1), unit_uniform(key, shape, dtype)))
        index = jnp.searchsorted(upto, r)
    else:
        scores = lax.add(_gumbel(key, shape=(size,), dtype=dtype, mode=dynamic_range(mode)), lax.log(p))
        index = lax.reshape(lax.top_k(scores, prod(shape))[1], shape)
    return lax.convert_element_type(index, dtypes.default_int_dtype())


def _inexact(p):
    return dtypes.canonicalize_dtype(dtypes.to_inexact_dtype(dtypes.dtype(p)))


def categorical(key, logits, axis: int = -1, shape=None, replace: bool = True, mode: str | None = None, *,
                out_sharding=None):
    """Indices along `axis`, drawn with probabilities softmax(logits).

    Args:
      shape: of the result, ending in the batch shape of logits (without `axis`); default that shape.
      replace: False draws different indices for the leading dimensions of `shape`.
      mode: see `gumbel`.
    """
    key, a = single("categorical", key), typeof(logits)
    if not dtypes.issubdtype(a.dtype, np.floating):
        raise ValueError(f"categorical takes float logits, got dtype {a.dtype}")
    axis = canonical_axis(axis, a.ndim)
    batch = a.shape[:axis] + a.shape[axis + 1:]
    shape = batch if shape is None else canonical_shape(shape)
    lead = len(shape) - len(batch)
    if lead < 0 or np.broadcast_shapes(shape[lead:], batch) != shape[lead:]:
        raise ValueError(f"categorical: shape={shape} must end in a shape that the batch shape {batch} broadcasts to")
    draw = _categorical if replace else _without_replacement
    return placed(draw(key, logits, axis, shape, lead, dynamic_range(mode)), out_sharding)


def _categorical(key, logits, axis, shape, lead, mode):
    """The position of the largest logit after adding Gumbel noise."""
    a = typeof(logits)
    full = (*shape[:lead + axis], a.shape[axis], *shape[lead + axis:])
    noisy = lax.add(_gumbel(key, shape=full, dtype=a.dtype, mode=mode), broadcast_to(logits, full))
    return lax.argmax(noisy, lead + axis, dtypes.default_int_dtype())


def _without_replacement(key, logits, axis, shape, lead, mode):
    """The positions of the k largest noisy logits."""
    a, k = typeof(logits), prod(shape[:lead])
    if shape[lead:] != a.shape[:axis] + a.shape[axis + 1:]:
        raise ValueError(f"categorical: with replace=False, shape={shape} must end in the batch shape of logits")
    if k > a.shape[axis]:
        raise ValueError(f"categorical: {k} draws without replacement from only {a.shape[axis]} categories")
    noisy = lax.add(logits, _gumbel(key, shape=a.shape, dtype=a.dtype, mode=mode))
    _, index = lax.top_k(noisy, k, axis=axis)
    order = (axis, *(d for d in range(a.ndim) if d != axis))
    return lax.reshape(lax.transpose(index, order), shape)


# ---- counts ----------------------------------------------------------------------------------------------------------

def geometric(key, p, shape=None, dtype=None, *, out_sharding=None):
    """The number of trials until the first success, each succeeding with probability p."""
    key, dtype = single("geometric", key), int_dtype("geometric", dtype)
    shape = broadcast_shape("geometric", shape, p)
    p, = cast(_inexact(p), p)
    return placed(_geometric(key, p, shape=shape, dtype=dtype), out_sharding)


@sampler("shape", "dtype")
def _geometric(key, p, *, shape, dtype):
    float_ = typeof(p).dtype
    u = unit_uniform(key, shape, float_)
    log_u = lax.log(lax.select(lax.eq(u, float_.type(0)), broadcast_to(float_.type(1), shape), u))
    log_q = broadcast_to(lax.log1p(lax.neg(p)), shape)
    return lax.convert_element_type(lax.add(lax.floor(lax.div(log_u, log_q)), float_.type(1)), dtype)


def poisson(key, lam, shape=None, dtype=None, *, out_sharding=None):
    """Poisson counts with rate lam (integers, default int32); -1 where lam is NaN or negative.

    Raises NotImplementedError for keys other than threefry2x32.
    """
    key, dtype = single("poisson", key), int_dtype("poisson", dtype)
    if key.dtype.impl.name != "threefry2x32":
        raise NotImplementedError(f"poisson needs threefry2x32 keys, got {key.dtype.impl.name}")
    shape = broadcast_shape("poisson", shape, lam)
    lam = lax.convert_element_type(broadcast_to(lam, shape), np.float32)
    return placed(_poisson(key, lam, shape=shape, dtype=dtype), out_sharding)


@sampler("shape", "dtype")
def _poisson(key, lam, *, shape, dtype):
    """Knuth's product of uniforms below 10, Hormann's transformed rejection above; each sees harmless other rates."""
    small = lax.bitwise_or(lax.ne(lam, lam), lax.lt(lam, np.float32(10)))
    full = lambda v: broadcast_to(np.float32(v), shape)
    counts = lax.select(small, _knuth(key, lax.select(small, lam, full(0)), shape, dtype),
                        _rejection(key, lax.select(small, full(1e5), lam), shape, dtype))
    return lax.select(lax.eq(lam, np.float32(0)), broadcast_to(dtype.type(0), shape), counts)


def _any(x):
    return lax.reduce_or(x, tuple(range(typeof(x).ndim)))


def _limit(i, dtype):
    """Whether the loop counter still has room in the result's dtype."""
    return lax.lt(lax.convert_element_type(i, dtype), dtype.type(dtypes.iinfo(dtype).max))


def _knuth(key, lam, shape, dtype):
    """Count uniforms until their product falls below exp(-lam), in logarithms."""
    def going(carry):
        i, _, _, log_product = carry
        return lax.bitwise_and(_any(lax.gt(log_product, lax.neg(lam))), _limit(i, dtype))

    def step(carry):
        i, k, key, log_product = carry
        key, sub_key = two(key)
        k = lax.select(lax.gt(log_product, lax.neg(lam)), lax.add(k, dtype.type(1)), k)
        u = unit_uniform(sub_key, shape, np.dtype(np.float32))
        return lax.add(i, np.int32(1)), k, key, lax.add(log_product, lax.log(u))

    zeros = broadcast_to(dtype.type(0), shape), broadcast_to(np.float32(0), shape)
    return lax.sub(lax.while_loop(going, step, (np.int32(0), zeros[0], key, zeros[1]))[1], dtype.type(1))


def _rejection(key, lam, shape, dtype):
    """Algorithm PTRS of Hormann, "The transformed rejection method for generating Poisson variables", 1993."""
    from aot.random._uniform import three
    c = np.float32
    log_lam = lax.log(lam)
    b = lax.add(c(0.931), lax.mul(c(2.53), lax.sqrt(lam)))
    a = lax.add(c(-0.059), lax.mul(c(0.02483), b))
    inv_alpha = lax.add(c(1.1239), lax.div(c(1.1328), lax.sub(b, c(3.4))))
    v_r = lax.sub(c(0.9277), lax.div(c(3.6224), lax.sub(b, c(2))))

    def going(carry):
        i, _, accepted, _ = carry
        return lax.bitwise_and(_any(lax.bitwise_not(accepted)), _limit(i, dtype))

    def step(carry):
        i, out, accepted, key = carry
        key, k0, k1 = three(key)
        u = lax.sub(unit_uniform(k0, shape, np.dtype(np.float32)), c(0.5))
        v = unit_uniform(k1, shape, np.dtype(np.float32))
        us = lax.sub(c(0.5), lax.abs(u))
        slope = lax.add(lax.div(lax.mul(c(2), a), us), b)
        k = lax.floor(lax.add(lax.add(lax.mul(slope, u), lam), c(0.43)))
        s = lax.log(lax.div(lax.mul(v, inv_alpha), lax.add(lax.div(a, lax.mul(us, us)), b)))
        t = lax.sub(lax.add(lax.neg(lam), lax.mul(k, log_lam)), lax.lgamma(lax.add(k, c(1))))
        quick = lax.bitwise_and(lax.ge(us, c(0.07)), lax.le(v, v_r))
        outside = lax.bitwise_or(lax.lt(k, c(0)), lax.bitwise_and(lax.lt(us, c(0.013)), lax.gt(v, us)))
        accept = lax.bitwise_or(quick, lax.bitwise_and(lax.bitwise_not(outside), lax.le(s, t)))
        return lax.add(i, np.int32(1)), lax.select(accept, k, out), lax.bitwise_or(accepted, accept), key

    start = np.int32(0), broadcast_to(c(-1), shape), broadcast_to(np.bool_(False), shape), key
    return lax.convert_element_type(lax.while_loop(going, step, start)[1], dtype)
