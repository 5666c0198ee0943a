"""The Threefry-2x32 counter-based generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).

A key is two uint32 words.  `threefry2x32` hashes a pair of counter words under it; everything else chooses counters.
There are two layouts.  In the partitionable one (the default) each element of a result hashes its own position, so
a part of the result can be made without the rest.  The original one hashes the two halves of a range as pairs.
"""
from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from aot.config import config, override
from aot.ops import elementwise as ew
from aot.ops import shape as sh
from aot.ops.families import NonDifferentiable, align
from aot.ops.slicing import index_in_dim, slice_in_dim
from aot.trace import ShapedArray, bind, typeof

UINT32 = np.dtype("uint32")
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
_u32 = np.uint32


def uint_dtype(bits: int) -> np.dtype:
    """The unsigned integer dtype of 8, 16, 32 or 64 bits."""
    return np.dtype(f"uint{bits}")


class Threefry2x32(NonDifferentiable):
    """(k1, k2, x0, x1) -> two hashed words; elementwise, scalars and dimensions of size 1 broadcast."""
    multiple_results = True
    name = "threefry2x32"

    def infer(self, *avals):
        if any(a.dtype != UINT32 for a in avals):
            raise TypeError(f"threefry2x32 takes uint32 words, got {', '.join(a.dtype.name for a in avals)}")
        shapes = [a.shape for a in avals if a.shape]
        try:
            out = ShapedArray(np.broadcast_shapes(*shapes), UINT32)
        except ValueError:
            raise TypeError(f"threefry2x32 got incompatible shapes {', '.join(map(str, shapes))}") from None
        return [out, out]

    def vmap(self, axis, args, dims):
        xs, d = align(axis, args, dims)
        return bind(self, *xs), [d, d]

    def lower(self, e, ins, outs, *xs):
        return e.call(_hash_jaxpr(tuple(ins), outs[0].shape), xs, "threefry2x32")


threefry2x32_p = Threefry2x32()


@lru_cache(maxsize=512)
def _hash_jaxpr(avals: tuple[ShapedArray, ...], shape: tuple[int, ...]):
    """One function a shape; cached, because modules recognise a jaxpr that they have written already by identity."""
    from aot.lower.emitter import stage_flat
    return stage_flat(lambda *words: _hash(words, shape), avals)


def _rotate_left(x, by):
    return ew.bitwise_or(ew.shift_left(x, by), ew.shift_right_logical(x, ew.sub(_u32(32), by)))


def _hash(words, shape):
    """Five groups of four rounds.  A loop, because twenty unrolled rounds take XLA five times as long to compile."""
    from aot.lax import fori_loop
    k1, k2, x0, x1 = words
    k3 = ew.bitwise_xor(ew.bitwise_xor(k1, k2), _PARITY)
    x0, x1 = (sh.broadcast_to(ew.add(x, k), shape) for x, k in ((x0, k1), (x1, k2)))

    def group(i, carry):
        x0, x1, k1, k2, k3, now, later = carry
        for r in range(4):
            x0 = ew.add(x0, x1)
            x1 = ew.bitwise_xor(_rotate_left(x1, index_in_dim(now, r, keepdims=False)), x0)
        count = ew.add(ew.convert_element_type(i, UINT32), _u32(1))
        return ew.add(x0, k2), ew.add(ew.add(x1, k3), count), k2, k3, k1, later, now

    tables = [np.array(r, UINT32) for r in _ROTATIONS]
    return list(fori_loop(0, 5, group, (x0, x1, k1, k2, k3, *tables))[:2])


def threefry2x32(k1, k2, x0, x1) -> tuple[Any, Any]:
    """Hash the counter words (x0, x1) under the key (k1, k2), elementwise in uint32."""
    first, second = bind(threefry2x32_p, k1, k2, x0, x1)
    return first, second


def _words(key) -> tuple[Any, Any]:
    return index_in_dim(key, 0, keepdims=False), index_in_dim(key, 1, keepdims=False)


# ---- counters --------------------------------------------------------------------------------------------------------

def positions(shape: tuple[int, ...]) -> tuple[Any, Any]:
    """High and low words of each element's row-major position.

    Built from one iota a dimension, so that sharding a dimension shards the counters with it.
    """
    if prod(shape) <= 1 << 32:
        return _u32(0), _row_major(shape, UINT32)
    with override("enable_x64", True):
        at = _row_major(shape, np.dtype("uint64"))
        high = ew.shift_right_logical(at, np.uint64(32))
        return ew.convert_element_type(high, UINT32), ew.convert_element_type(at, UINT32)


def _row_major(shape: tuple[int, ...], dtype: np.dtype):
    total = None
    for d in range(len(shape)):
        step = prod(shape[d + 1:])
        part = sh.broadcasted_iota(dtype, shape, d)
        part = part if step <= 1 else ew.mul(part, dtype.type(step))
        total = part if total is None else ew.add(total, part)
    return sh.full((), 0, dtype) if total is None else total


def _hash_range(key, count: int):
    """Hash 0..count-1 in pairs (i, i + half): the original layout."""
    half = (count + 1) // 2
    counts = sh.iota(UINT32, count)
    if count % 2:
        counts = sh.concatenate([counts, np.zeros(1, UINT32)], 0)
    pairs = threefry2x32(*_words(key), slice_in_dim(counts, 0, half), slice_in_dim(counts, half, 2 * half))
    both = sh.concatenate(list(pairs), 0)
    return slice_in_dim(both, 0, count) if count % 2 else both


# ---- the operations of a key implementation --------------------------------------------------------------------------

def seed(number):
    """An integer scalar -> key words: its high and low 32 bits."""
    dtype = typeof(number).dtype
    low = ew.convert_element_type(number, UINT32)
    if dtype.itemsize == 8:
        high = ew.convert_element_type(ew.shift_right_logical(number, ew.lit(number, 32)), UINT32)
    else:
        high = sh.full((), 0, UINT32)
    return sh.concatenate([sh.reshape(high, (1,)), sh.reshape(low, (1,))], 0)


def split(key, shape: tuple[int, ...]):
    """Key words -> words of `shape` new keys."""
    if config.threefry_partitionable:
        high, low = threefry2x32(*_words(key), *positions(shape))
        return sh.concatenate([sh.expand_dims(high, (len(shape),)), sh.expand_dims(low, (len(shape),))], len(shape))
    return sh.reshape(_hash_range(key, 2 * prod(shape)), (*shape, 2))


def fold_in(key, data):
    """Key words and a uint32 scalar -> new key words: the data, as a seed, hashed under the key."""
    high, low = threefry2x32(*_words(key), *_words(seed(data)))
    return sh.concatenate([sh.reshape(high, (1,)), sh.reshape(low, (1,))], 0)


def random_bits(key, bit_width: int, shape: tuple[int, ...]):
    """Key words -> uniformly random unsigned integers of `bit_width` bits."""
    if config.threefry_partitionable:
        return _bits_by_position(key, bit_width, shape)
    return _bits_by_range(key, bit_width, shape)


def _bits_by_position(key, bit_width, shape):
    high, low = threefry2x32(*_words(key), *positions(shape))
    if bit_width == 64:
        return _join(high, low)
    mixed = ew.bitwise_xor(high, low)
    return mixed if bit_width == 32 else ew.convert_element_type(mixed, uint_dtype(bit_width))


def _join(high, low):
    with override("enable_x64", True):
        high, low = [ew.convert_element_type(x, np.dtype("uint64")) for x in (high, low)]
        return ew.bitwise_or(ew.shift_left(high, np.uint64(32)), low)


def _bits_by_range(key, bit_width, shape):
    size = prod(shape)
    words = -(-size * bit_width // 32)
    if words >= 1 << 32:
        raise OverflowError(f"{size} random values need more than 2**32 words in the original layout; "
                            "hint: use aot.config.update('threefry_partitionable', True)")
    bits = _hash_range(key, words)
    if bit_width == 64:
        bits = _join(slice_in_dim(bits, 0, size), slice_in_dim(bits, size, 2 * size))
    elif bit_width < 32:
        bits = slice_in_dim(_unpack(bits, bit_width), 0, size)
    return sh.reshape(bits, shape)


def _unpack(words, bit_width: int):
    """uint32 words -> the narrower integers they hold, lowest bits first."""
    each, n = 32 // bit_width, typeof(words).shape[0]
    shifts = ew.mul(sh.broadcasted_iota(UINT32, (n, each), 1), _u32(bit_width))
    parts = ew.shift_right_logical(sh.broadcast_to(sh.expand_dims(words, (1,)), (n, each)), shifts)
    narrow = ew.convert_element_type(ew.bitwise_and(parts, _u32((1 << bit_width) - 1)), uint_dtype(bit_width))
    return sh.reshape(narrow, (n * each,))
