"""Implementations of random keys of one's own."""
from __future__ import annotations

from collections.abc import Callable

from aot.ops.random import PRNGImpl, PRNGSpec, rbg_impl, threefry_impl, unsafe_rbg_impl
from aot.ops.threefry import threefry2x32_p
from aot.random import key as _key

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


def seed_with_impl(impl: PRNGSpec, seed: int):
    """A key of an implementation from a seed."""
    return _key(seed, impl=impl)


__all__ = ["define_prng_impl", "rbg_prng_impl", "seed_with_impl", "threefry2x32_p", "threefry_prng_impl",
           "unsafe_rbg_prng_impl"]
