"""Bits, uniform floats and integers, and coin flips: what the other samplers are made of."""
from __future__ import annotations

from typing import Any

import numpy as np

from aot import dtypes, lax
from aot.config import config
from aot.ops.random import random_bits, random_split
from aot.ops.shape import broadcast_to, canonical_shape, placed
from aot.random._keys import single
from aot.random._sampler import broadcast_shape, cast, float_dtype, int_dtype, sampler
from aot.trace import typeof


def two(key: Any) -> tuple[Any, Any]:
    """Two keys from one."""
    keys = random_split(key, (2,))
    return lax.index_in_dim(keys, 0, keepdims=False), lax.index_in_dim(keys, 1, keepdims=False)


def three(key: Any) -> tuple[Any, Any, Any]:
    """Three keys from one."""
    keys = random_split(key, (3,))
    return tuple([lax.index_in_dim(keys, i, keepdims=False) for i in range(3)])  # type: ignore[return-value]


def const(value: Any, like: Any) -> np.generic:
    """A number in the dtype of an array."""
    return typeof(like).dtype.type(value)


# ---- bits ------------------------------------------------------------------------------------------------------------

def bits(key, shape=(), dtype=None, *, out_sharding=None):
    """Uniformly random unsigned integers over the whole range of `dtype` (uint8, 16, 32 or 64; default uint32)."""
    key = single("bits", key)
    result = dtypes.default_uint_dtype() if dtype is None else dtypes.check_user_dtype_supported(dtype, "bits")
    if result not in dtypes.UNSIGNED:
        raise ValueError(f"bits makes unsigned integers of 8 to 64 bits; dtype {dtype} is not of that kind")
    return placed(random_bits(key, result.itemsize * 8, canonical_shape(shape)), out_sharding)


# ---- floats ----------------------------------------------------------------------------------------------------------

def uniform(key, shape=(), dtype=None, minval=0.0, maxval=1.0, *, out_sharding=None):
    """Uniform floats in [minval, maxval).

    Args:
      shape: of the result; minval and maxval broadcast to it.
      dtype: a float dtype; default float32.

    Raises ValueError for other dtypes and for bounds that do not broadcast.
    """
    key, dtype = single("uniform", key), float_dtype("uniform", dtype)
    shape = broadcast_shape("uniform", shape, minval, maxval)
    return placed(_uniform(key, minval, maxval, shape=shape, dtype=dtype), out_sharding)


@sampler("shape", "dtype")
def _uniform(key, minval, maxval, *, shape, dtype):
    """Random mantissa bits under the exponent of 1 give floats in [1, 2); subtracting 1 is exact."""
    low, high = [x if not typeof(x).shape else broadcast_to(x, shape) for x in cast(dtype, minval, maxval)]
    info = dtypes.finfo(dtype)
    width = dtypes.itemsize_bits(dtype)
    if width not in (8, 16, 32, 64):
        raise TypeError(f"uniform has no bit pattern for {dtype}; hint: make float32 values and convert them")
    drawn = 8 if info.nmant < 8 else width       # 8 bits are enough for bfloat16
    word = np.dtype(f"uint{width}")
    mantissa = lax.convert_element_type(random_bits(key, drawn, shape), word)
    mantissa = lax.shift_right_logical(mantissa, word.type(drawn - info.nmant))
    one = np.array(1.0, dtype).view(word)[()]
    unit = lax.sub(lax.bitcast_convert_type(lax.bitwise_or(mantissa, one), dtype), dtype.type(1))
    return lax.max(low, lax.add(lax.mul(unit, lax.sub(high, low)), low))


def unit_uniform(key, shape, dtype):
    """Uniform floats in [0, 1)."""
    return _uniform(key, dtype.type(0), dtype.type(1), shape=shape, dtype=dtype)


# ---- integers --------------------------------------------------------------------------------------------------------

def randint(key, shape, minval, maxval, dtype=None, *, out_sharding=None):
    """Uniform integers in [minval, maxval).

    Args:
      minval, maxval: integers (or values that are truncated to integers) that broadcast to `shape`; where
        maxval <= minval the result is minval.
      dtype: an integer dtype; default int32.
    """
    key, dtype = single("randint", key), int_dtype("randint", dtype)
    minval, maxval = _bound(minval, dtype), _bound(maxval, dtype)
    shape = broadcast_shape("randint", shape, minval, maxval)
    if dtypes.itemsize_bits(dtype) < 32:        # drawn as int32, whose range has room for the upper bound
        info = dtypes.iinfo(dtype)
        minval, maxval = _clipped(minval, info.min, info.max), _clipped(maxval, info.min, info.max + 1)
        drawn = _randint(key, minval, maxval, shape=shape, dtype=np.dtype(np.int32))
        return placed(lax.convert_element_type(drawn, dtype), out_sharding)
    return placed(_randint(key, minval, maxval, shape=shape, dtype=dtype), out_sharding)


def _bound(x, dtype):
    """A bound as an integer; a Python integer that only fits an unsigned word becomes one."""
    if isinstance(x, int) and not isinstance(x, bool):
        info = np.iinfo(dtypes.default_int_dtype())
        return dtypes.default_uint_dtype().type(x) if info.max < x <= 2 * info.max + 1 else x
    return x if dtypes.issubdtype(dtypes.dtype(x), np.integer) else lax.convert_element_type(x, dtype)


def _clipped(x, low: int, high: int):
    """x clipped to [low, high] in int32, from any integer dtype."""
    info = dtypes.iinfo(typeof(x).dtype)
    if info.min < low:
        x = lax.max(x, const(low, x))
    if info.max > high:
        x = lax.min(x, const(high, x))
    return lax.convert_element_type(x, np.int32)


def _into_range(x, dtype):
    """x clipped to what both its own dtype and `dtype` can hold, as `dtype`."""
    own, info = dtypes.iinfo(typeof(x).dtype), dtypes.iinfo(dtype)
    if own.min < info.min:
        x = lax.max(x, const(info.min, x))
    if own.max > info.max:
        x = lax.min(x, const(info.max, x))
    return lax.convert_element_type(x, dtype)


@sampler("shape", "dtype")
def _randint(key, minval, maxval, *, shape, dtype):
    """Two words a value, so that the bias of the remainder is negligible for every span."""
    word = np.dtype(f"uint{dtype.itemsize * 8}")
    largest = _into_range(dtype.type(dtypes.iinfo(dtype).max), typeof(maxval).dtype)
    beyond = lax.gt(maxval, largest)            # an upper bound one past the largest value of dtype
    low, high = _into_range(minval, dtype), _into_range(maxval, dtype)
    if typeof(low).shape or typeof(high).shape:
        low, high, beyond = (broadcast_to(x, shape) for x in (low, high, beyond))
    k1, k2 = two(key)
    upper, lower = random_bits(k1, word.itemsize * 8, shape), random_bits(k2, word.itemsize * 8, shape)
    span = lax.convert_element_type(lax.sub(high, low), word)
    one = broadcast_to(word.type(1), typeof(span).shape)
    span = lax.select(lax.le(high, low), one, span)
    span = lax.select(lax.bitwise_and(beyond, lax.gt(high, low)), lax.add(span, one), span)
    half = lax.rem(broadcast_to(word.type(1 << word.itemsize * 4), typeof(span).shape), span)
    multiplier = lax.rem(lax.mul(half, half), span)
    span, multiplier, low = (broadcast_to(x, shape) for x in (span, multiplier, low))
    offset = lax.add(lax.mul(lax.rem(upper, span), multiplier), lax.rem(lower, span))
    return lax.add(low, lax.convert_element_type(lax.rem(offset, span), dtype))


# ---- coins -----------------------------------------------------------------------------------------------------------

def bernoulli(key, p=0.5, shape=None, mode="low", *, out_sharding=None):
    """Booleans that are True with probability p, a float.

    mode: 'low' compares p with one uniform value; 'high' uses two, which matters for p below 1e-7 or so.
    """
    if mode not in ("low", "high"):
        raise ValueError(f"bernoulli: mode is 'low' or 'high', got {mode!r}")
    key = single("bernoulli", key)
    dtype = dtypes.dtype(p)
    if not dtypes.issubdtype(dtype, np.floating):
        raise TypeError(f"bernoulli: the probability is a float, got dtype {dtype}")
    shape = broadcast_shape("bernoulli", shape, p)
    return placed(_bernoulli(key, *cast(dtype, p), shape=shape, mode=mode), out_sharding)


@sampler("shape", "mode")
def _bernoulli(key, p, *, shape, mode):
    dtype = typeof(p).dtype
    p = broadcast_to(p, shape) if typeof(p).shape else p
    if mode == "low":
        return lax.lt(unit_uniform(key, shape, dtype), p)
    first, second = pair(key, shape, dtype, *map(dtype.type, (0, 1)))
    return lax.lt(lax.mul(second, dtype.type(2.0 ** -dtypes.finfo(dtype).nmant)), lax.sub(p, first))


def pair(key, shape, dtype, low, high):
    """Two arrays of uniform values from one draw."""
    both = _uniform(key, low, high, shape=(2, *shape), dtype=dtype)
    return lax.index_in_dim(both, 0, keepdims=False), lax.index_in_dim(both, 1, keepdims=False)


def rademacher(key, shape=(), dtype=None, *, out_sharding=None):
    """-1 or 1 with equal probability, in any number dtype (default int32)."""
    key = single("rademacher", key)
    dtype = dtypes.default_int_dtype() if dtype is None else dtypes.check_user_dtype_supported(dtype, "rademacher")
    return placed(_rademacher(key, shape=canonical_shape(shape), dtype=dtype), out_sharding)


@sampler("shape", "dtype")
def _rademacher(key, *, shape, dtype):
    p = dtypes.default_float_dtype().type(0.5)
    coins = lax.convert_element_type(_bernoulli(key, p, shape=shape, mode="low"), dtype)
    return lax.sub(lax.mul(coins, dtype.type(2)), dtype.type(1))


def dynamic_range(mode: str | None) -> str:
    """The `mode` of gumbel and categorical: 'low', or 'high' with more precise tails.  Default as configured."""
    mode = mode or ("high" if config.high_dynamic_range_gumbel else "low")
    if mode not in ("low", "high"):
        raise ValueError(f"mode is 'low' or 'high', got {mode!r}")
    return mode


