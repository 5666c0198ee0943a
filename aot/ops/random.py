"""Typed random keys: the primitives that make, split and consume arrays of dtype `key<...>`, and their implementations.

An array of keys is stored as uint32 words with `impl.key_shape` as trailing dimensions; `random_wrap` and
`random_unwrap` go between the two views.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from aot.dtypes import KeyDType
from aot.ops import elementwise as ew
from aot.ops import rng, threefry
from aot.ops import shape as sh
from aot.ops.families import NonDifferentiable
from aot.trace import ShapedArray, bind, bind1, typeof

UINT32 = np.dtype("uint32")


class PRNGSpec(NamedTuple):
    """A key implementation as users name it when it is not one of the built-in three."""
    impl: PRNGImpl


class PRNGImpl:
    """A generator: its names and the four operations on the words of one key.

    seed(integer scalar) -> words;  split(words, shape) -> words of that many keys;  fold_in(words, uint32) -> words;
    random_bits(words, bit width, shape) -> unsigned integers.
    """

    def __init__(self, name: str, tag: str, key_shape: tuple[int, ...], seed: Callable, split: Callable,
                 fold_in: Callable, random_bits: Callable):
        self.name, self.tag, self.key_shape = name, tag, key_shape
        self.seed, self.split, self.fold_in, self.random_bits = seed, split, fold_in, random_bits
        self.dtype = KeyDType(self)

    def __repr__(self) -> str: return self.tag


IMPLS: dict[str, PRNGImpl] = {}


def register_prng(impl: PRNGImpl) -> PRNGImpl:
    """Make an implementation known under its name.  Raises ValueError when the name is taken."""
    if IMPLS.setdefault(impl.name, impl) is not impl:
        raise ValueError(f"a key implementation named {impl.name!r} exists already")
    return impl


threefry_impl = register_prng(PRNGImpl("threefry2x32", "fry", (2,), threefry.seed, threefry.split, threefry.fold_in,
                                       threefry.random_bits))
rbg_impl = register_prng(PRNGImpl("rbg", "rbg", (4,), rng.seed, rng.split, rng.fold_in, rng.random_bits))
unsafe_rbg_impl = register_prng(PRNGImpl("unsafe_rbg", "urbg", (4,), rng.seed, rng.unsafe_split, rng.unsafe_fold_in,
                                         rng.random_bits))


def each(n: int, f: Callable, *args):
    """f on one key, mapped over n leading dimensions of all args."""
    if n == 0:
        return f(*args)
    from aot.transforms.vmap import Axis, to_dim, vmap_flat
    axis = Axis(typeof(args[0]).shape[0])
    outs, dims = vmap_flat(lambda *xs: [each(n - 1, f, *xs)], axis, args, [0] * len(args))
    return to_dim(axis, outs[0], dims[0], 0)


def _key_impl(a: ShapedArray, what: str) -> PRNGImpl:
    if not isinstance(a.dtype, KeyDType):
        raise TypeError(f"{what} takes random keys, got {a.str_short()}; hint: make keys with random.key(seed)")
    return a.dtype.impl


class _KeyPrimitive(NonDifferentiable):
    """Elementwise in the keys, and lowered by tracing the implementation's function on the key words."""

    def emit(self, e, f: Callable, ins, xs):
        return e.inline(f, [a.physical for a in ins], xs)

    def vmap(self, axis, args, dims, **params):
        x = args[0] if dims[0] == 0 else sh.moveaxis(args[0], dims[0], 0)
        return bind(self, x, **params), [0]

    def uses_axis(self, name, params): return False


class RandomSeed(_KeyPrimitive):
    """Integers -> keys."""
    name = "random_seed"

    def infer(self, seeds, *, impl):
        if seeds.dtype.kind not in "iu":
            raise TypeError(f"a random seed is an integer, got {seeds.str_short()}")
        return [ShapedArray(seeds.shape, impl.dtype)]

    def lower(self, e, ins, outs, x, *, impl):
        return self.emit(e, lambda s: each(ins[0].ndim, impl.seed, s), ins, (x,))


class RandomSplit(_KeyPrimitive):
    """Keys [k..] -> keys [k.. *shape]."""
    name = "random_split"

    def infer(self, keys, *, shape):
        _key_impl(keys, "split")
        return [ShapedArray((*keys.shape, *shape), keys.dtype)]

    def lower(self, e, ins, outs, x, *, shape):
        impl = ins[0].dtype.impl
        return self.emit(e, lambda k: each(ins[0].ndim, lambda w: impl.split(w, shape), k), ins, (x,))


class RandomFoldIn(_KeyPrimitive):
    """Keys [k..] and uint32 [k..] -> keys [k..]."""
    name = "random_fold_in"

    def infer(self, keys, data):
        _key_impl(keys, "fold_in")
        if keys.shape != data.shape:
            raise TypeError(f"fold_in: keys of shape {keys.shape} need data of that shape, got {data.shape}")
        return [keys]

    def vmap(self, axis, args, dims):
        keys, data = [sh.broadcast_new(x, axis.size, 0) if d is None else sh.moveaxis(x, d, 0)
                      for x, d in zip(args, dims)]
        return bind(self, keys, data), [0]

    def lower(self, e, ins, outs, x, data):
        impl = ins[0].dtype.impl
        return self.emit(e, lambda k, d: each(ins[0].ndim, impl.fold_in, k, ew.convert_element_type(d, UINT32)), ins,
                         (x, data))


class RandomBits(_KeyPrimitive):
    """Keys [k..] -> unsigned integers [k.. *shape]."""
    name = "random_bits"

    def infer(self, keys, *, bit_width, shape):
        _key_impl(keys, "random_bits")
        return [ShapedArray((*keys.shape, *shape), threefry.uint_dtype(bit_width))]

    def lower(self, e, ins, outs, x, *, bit_width, shape):
        impl = ins[0].dtype.impl
        return self.emit(e, lambda k: each(ins[0].ndim, lambda w: impl.random_bits(w, bit_width, shape), k), ins, (x,))


class RandomClone(_KeyPrimitive):
    """The same keys, as if new: for key-reuse checks."""
    name = "random_clone"

    def infer(self, keys):
        _key_impl(keys, "clone")
        return [keys]

    def lower(self, e, ins, outs, x): return [x]


class RandomWrap(_KeyPrimitive):
    """uint32 words [k.. *key_shape] -> keys [k..]."""
    name = "random_wrap"

    def infer(self, words, *, impl):
        n = len(impl.key_shape)
        if words.dtype != UINT32 or words.shape[words.ndim - n:] != impl.key_shape:
            raise TypeError(f"words of {impl.name} keys are uint32 with trailing shape {impl.key_shape}, "
                            f"got {words.str_short()}")
        return [ShapedArray(words.shape[:words.ndim - n], impl.dtype)]

    def lower(self, e, ins, outs, x, *, impl): return [x]


class RandomUnwrap(_KeyPrimitive):
    """Keys [k..] -> uint32 words [k.. *key_shape]."""
    name = "random_unwrap"

    def infer(self, keys):
        _key_impl(keys, "key_data")
        return [keys.physical]

    def lower(self, e, ins, outs, x): return [x]


random_seed_p, random_split_p, random_fold_in_p = RandomSeed(), RandomSplit(), RandomFoldIn()
random_bits_p, random_wrap_p, random_unwrap_p = RandomBits(), RandomWrap(), RandomUnwrap()
random_clone_p = RandomClone()


def random_seed(seeds, impl: PRNGImpl):
    """Integers -> keys of the same shape."""
    return bind1(random_seed_p, seeds, impl=impl)


def random_split(keys, shape: tuple[int, ...]):
    """Keys [k..] -> keys [k.. *shape]."""
    return bind1(random_split_p, keys, shape=tuple(shape))


def random_fold_in(keys, data):
    """Keys and integers of one shape -> keys."""
    return bind1(random_fold_in_p, keys, ew.convert_element_type(data, UINT32))


def random_bits(keys, bit_width: int, shape: tuple[int, ...]):
    """Keys [k..] -> unsigned integers [k.. *shape] of `bit_width` bits."""
    return bind1(random_bits_p, keys, bit_width=bit_width, shape=tuple(shape))


def random_wrap(words, impl: PRNGImpl):
    """uint32 words -> the keys that they are."""
    return bind1(random_wrap_p, words, impl=impl)


def random_unwrap(keys):
    """Keys -> their uint32 words."""
    return bind1(random_unwrap_p, keys)


def random_clone(keys):
    """The same keys, marked as new for key-reuse checks."""
    return bind1(random_clone_p, keys)
