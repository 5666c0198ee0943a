"""Implementations of random keys of one's own."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot.ops.random import PRNGImpl, PRNGSpec, rbg_impl, threefry_impl, unsafe_rbg_impl
from aot.ops.random import random_seed as _random_seed
from aot.ops.threefry import threefry2x32_p
from aot.random import key as _key
from aot.random._keys import resolve_impl
from aot.trace import bind

threefry_prng_impl, rbg_prng_impl, unsafe_rbg_prng_impl = map(PRNGSpec, (threefry_impl, rbg_impl, unsafe_rbg_impl))


def define_prng_impl(*, key_shape: tuple[int, ...], seed: Callable, split: Callable, random_bits: Callable, fold_in: Callable,
                     name: str = "<unnamed>", tag: str = "?") -> PRNGSpec:
    """A key implementation, to be given as `impl=` to functions of `random`.

    Args:
      key_shape: shape of the uint32 words of one key.
      seed: integer scalar -> words.
      split: (words, shape) -> words of that many keys.
      random_bits: (words, bit width, shape) -> unsigned integers.
      fold_in: (words, uint32 scalar) -> words.
      name, tag: the implementation's name, in full and in printed dtypes.
    """
    return PRNGSpec(PRNGImpl(name, tag, tuple(key_shape), seed, split, fold_in, random_bits))


def random_seed(seeds: Any, impl: PRNGSpec | str | None = None) -> Any:
    """Keys of an implementation from an array of seeds."""
    return _random_seed(seeds, resolve_impl(impl))


def threefry_2x32(keypair: Any, count: Any) -> Any:
    """The threefry hash of an array of uint32 counts, under a pair of uint32 words: as many random words."""
    words = jnp.ravel(jnp.asarray(count))
    if words.dtype != np.dtype("uint32"):
        raise TypeError(f"threefry_2x32 takes counts of dtype uint32, got {words.dtype.name}")
    half = (words.size + 1) // 2
    first, second = bind(threefry2x32_p, *keypair, words[:half], jnp.pad(words[half:], (0, words.size % 2)))
    return jnp.reshape(jnp.concatenate([first, second])[:words.size], jnp.shape(count))


def seed_with_impl(impl: PRNGSpec, seed: int):
    """A key of an implementation from a seed."""
    return _key(seed, impl=impl)


__all__ = ["define_prng_impl", "random_seed", "rbg_prng_impl", "seed_with_impl", "threefry2x32_p", "threefry_2x32",
           "threefry_prng_impl", "unsafe_rbg_prng_impl"]
