"""XLA's own bit generator, and the two key implementations on top of it: `rbg` and `unsafe_rbg`.

Keys are four uint32 words.  What bits come out depends on the platform and, under `vmap`, on the whole batch; in
exchange they are fast on accelerators and need no counters.
"""
from __future__ import annotations

import enum
from math import prod
from typing import Any

import numpy as np

from aot import dtypes
from aot.ops import elementwise as ew
from aot.ops import shape as sh
from aot.ops import threefry
from aot.ops.families import NonDifferentiable
from aot.ops.slicing import dynamic_update_slice, index_in_dim, slice_in_dim
from aot.trace import ShapedArray, bind, bind1

UINT32 = np.dtype("uint32")


class RandomAlgorithm(enum.IntEnum):
    """Which generator `rng_bit_generator` runs; the default is the platform's choice."""
    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2

    def __repr__(self) -> str: return self.name
    def __str__(self) -> str: return self.name


class RngBitGenerator(NonDifferentiable):
    """(state words) -> (new state, random bits of `shape` and `dtype`)."""
    multiple_results = True
    name = "rng_bit_generator"

    def infer(self, key, *, shape, dtype, algorithm, out_sharding=None):
        words = {2: "uint64", 4: "uint32"}
        if key.ndim != 1 or words.get(key.shape[0]) != key.dtype.name:
            raise TypeError("rng_bit_generator takes a key of shape u32[4] or u64[2], got "
                            f"{key.str_short()}; hint: pass random.key_data(key)")
        return [ShapedArray(key.shape, key.dtype), ShapedArray(shape, dtype)]

    def vmap(self, axis, args, dims, *, shape, dtype, algorithm, out_sharding=None):
        """The whole batch is drawn from the first key, and only its state advances."""
        keys = sh.moveaxis(args[0], dims[0], 0)
        state, bits = bind(self, index_in_dim(keys, 0, keepdims=False), shape=(axis.size, *shape), dtype=dtype,
                           algorithm=algorithm, out_sharding=out_sharding)
        return [dynamic_update_slice(keys, sh.expand_dims(state, (0,)), (0, 0)), bits], [0, 0]

    def lower(self, e, ins, outs, key, *, shape, dtype, algorithm, out_sharding=None):
        a, wide = ins[0], "tensor<2xui64>"
        if a.dtype == UINT32:
            pairs = "tensor<2x2xui32>"
            key = e.op(f"stablehlo.reshape {key} : ({a.mlir}) -> {pairs}")
            key = e.op(f"stablehlo.bitcast_convert {key} : ({pairs}) -> {wide}")
        name = RandomAlgorithm(algorithm).name.removeprefix("RNG_")
        state, bits = e.ops(f"stablehlo.rng_bit_generator {key}, algorithm = {name} : ({wide}) -> "
                            f"({wide}, {outs[1].mlir})", 2)
        if a.dtype == UINT32:
            state = e.op(f"stablehlo.bitcast_convert {state} : ({wide}) -> {pairs}")
            state = e.op(f"stablehlo.reshape {state} : ({pairs}) -> {a.mlir}")
        return [state, bits]


rng_bit_generator_p = RngBitGenerator()


def rng_bit_generator(key, shape, dtype=np.uint32, algorithm: RandomAlgorithm = RandomAlgorithm.RNG_DEFAULT, *,
                      out_sharding=None) -> list[Any]:
    """State words (u32[4] or u64[2]) -> [new state, random bits]; which bits depends on the platform."""
    dtype = np.dtype(dtype) if np.dtype(dtype).itemsize < 8 else dtypes.check_user_dtype_supported(dtype, "rng")
    if dtype not in dtypes.UNSIGNED:
        raise TypeError(f"rng_bit_generator makes unsigned integers of 8, 16, 32 or 64 bits, not {dtype.name}")
    state, bits = bind(rng_bit_generator_p, key, shape=sh.canonical_shape(shape), dtype=dtype,
                       algorithm=RandomAlgorithm(algorithm), out_sharding=None)
    return [state, sh.placed(bits, out_sharding)]


class RngUniform(NonDifferentiable):
    """Uniform values in [a, b) from a generator without a key; every run draws anew."""
    name = "rng_uniform"

    def infer(self, a, b, *, shape):
        if a.dtype != b.dtype or a.shape or b.shape:
            raise TypeError(f"rng_uniform takes two scalars of one dtype, got {a.str_short()} and {b.str_short()}")
        return [ShapedArray(shape, a.dtype)]

    def lower(self, e, ins, outs, a, b, *, shape):
        where = e.op(f"stablehlo.constant dense<[{', '.join(map(str, shape))}]> : tensor<{len(shape)}xi64>") if shape \
            else e.op("stablehlo.constant dense<> : tensor<0xi64>")
        return [e.op(f"stablehlo.rng {a}, {b}, {where}, distribution = UNIFORM : "
                     f"({ins[0].mlir}, {ins[1].mlir}, tensor<{len(shape)}xi64>) -> {outs[0].mlir}")]


rng_uniform_p = RngUniform()


def rng_uniform(a, b, shape):
    """Uniform values in [a, b), not reproducible; prefer `aot.random.uniform`."""
    return bind1(rng_uniform_p, a, b, shape=sh.canonical_shape(shape))


# ---- the operations of the two key implementations -------------------------------------------------------------------

def seed(number):
    """An integer scalar -> key words: the Threefry key of it, twice."""
    half = threefry.seed(number)
    return sh.concatenate([half, half], 0)


def _halves(key) -> list[Any]:
    return [slice_in_dim(key, 0, 2), slice_in_dim(key, 2, 4)]


def split(key, shape: tuple[int, ...]):
    """Both halves of the key split as Threefry keys."""
    return sh.concatenate([threefry.split(half, shape) for half in _halves(key)], len(shape))


def fold_in(key, data):
    """The data folded into both halves of the key as Threefry keys."""
    return sh.concatenate([threefry.fold_in(half, data) for half in _halves(key)], 0)


def random_bits(key, bit_width: int, shape: tuple[int, ...]):
    """Bits of XLA's generator with the key as its state."""
    return bind(rng_bit_generator_p, key, shape=tuple(shape), dtype=threefry.uint_dtype(bit_width),
                algorithm=RandomAlgorithm.RNG_DEFAULT, out_sharding=None)[1]


def unsafe_split(key, shape: tuple[int, ...]):
    """Every tenth row of the generator's output is a new key: fast, with no guarantee of independence."""
    num = prod(shape)
    rows = random_bits(key, 32, (10 * num, 4))
    return sh.reshape(slice_in_dim(rows, 0, 10 * num, 10), (*shape, 4)) if num else sh.reshape(rows, (*shape, 4))


def unsafe_fold_in(key, data):
    """The key combined with the tenth row that the data, as a seed, generates."""
    rows = random_bits(seed(data), 32, (10, 4))
    return ew.bitwise_xor(key, index_in_dim(rows, 9, keepdims=False))


