"""Random keys: making, splitting and inspecting them.

A key is either an array of dtype `key<...>` (made by `key`) or, as older programs have it, the bare uint32 words (made
by `PRNGKey`).  Functions that take a key accept both, and return the kind they were given.
"""
from __future__ import annotations

import operator
import warnings
from typing import Any

import numpy as np

from aot import dtypes
from aot.config import config
from aot.ops import random as ops
from aot.ops.elementwise import convert_element_type
from aot.ops.shape import canonical_shape
from aot.random._reuse import consume
from aot.trace import typeof

Key = Any       # an array of keys, or of key words


def resolve_impl(impl: Any) -> ops.PRNGImpl:
    """A key implementation from its name, its spec, a key dtype, itself, or None for the configured default.

    Raises ValueError for an unknown name and TypeError for anything else.
    """
    if impl is None:
        impl = config.default_prng_impl
    if isinstance(impl, dtypes.KeyDType):
        return impl.impl
    if isinstance(impl, ops.PRNGSpec):
        return impl.impl
    if isinstance(impl, ops.PRNGImpl):
        return impl
    if not isinstance(impl, str):
        raise TypeError(f"a key implementation is given by its name or key dtype, got {type(impl).__name__} {impl!r}")
    if impl not in ops.IMPLS:
        raise ValueError(f"there is no key implementation {impl!r}; choose one of {', '.join(map(repr, ops.IMPLS))}")
    return ops.IMPLS[impl]


def _implementation(impl: Any, dtype: Any) -> ops.PRNGImpl:
    if impl is not None and dtype is not None:
        raise ValueError(f"give impl or dtype, not both: impl={impl!r}, dtype={dtype}")
    if dtype is not None and not isinstance(dtype, dtypes.KeyDType):
        raise TypeError(f"dtype must be a key dtype such as random.key_dtype(), got {dtype!r}")
    return resolve_impl(dtype if impl is None else impl)


def is_typed_key(x: Any) -> bool:
    """Whether x is an array of dtype `key<...>`."""
    return isinstance(getattr(x, "dtype", None), dtypes.KeyDType)


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> Key:
    """A key from an integer seed: an array of shape () and dtype `key<...>`.

    Args:
      seed: a scalar integer, possibly traced.  Without x64 only its low 32 bits count.
      impl: 'threefry2x32' (default), 'rbg' or 'unsafe_rbg'.
      dtype: a key dtype, instead of `impl`.

    Raises TypeError for seeds that are not integers or not scalar, OverflowError for more than 64 bits.
    """
    return ops.random_seed(_seed(seed), _implementation(impl, dtype))


def PRNGKey(seed: Any, *, impl: Any = None) -> Key:
    """A key from an integer seed, as its uint32 words (shape (2,) for the default implementation).

    `key` is the newer form; under `config.enable_custom_prng` this returns the same.
    """
    made = ops.random_seed(_seed(seed), resolve_impl(impl))
    return made if config.enable_custom_prng else ops.random_unwrap(made)


def _seed(seed: Any) -> Any:
    if is_typed_key(seed):
        raise TypeError("a random seed is an integer, got a random key; hint: keys are used as they are")
    if isinstance(seed, int):
        seed = _plain_seed(seed + config.random_seed_offset)
    elif config.random_seed_offset:
        from aot.ops.elementwise import add
        seed = add(seed, convert_element_type(config.random_seed_offset, typeof(seed).dtype))
    a = typeof(seed)
    if a.dtype.kind not in "iu":
        raise TypeError(f"a random seed is an integer, got {a.str_short()}")
    if a.shape:
        raise TypeError(f"a random seed is a scalar, got {a.str_short()}; hint: use vmap over an array of seeds")
    return seed


def _plain_seed(number: int) -> Any:
    if not -(1 << 63) <= number < 1 << 63:
        raise OverflowError(f"a random seed must fit in a signed 64-bit integer, got {number}")
    wide = np.int64(number)
    return wide if config.enable_x64 else wide.astype(np.int32)


def typed(key: Any) -> tuple[Any, bool]:
    """`key` as typed keys, and whether it was given as raw words."""
    if is_typed_key(key):
        return key, False
    aval = getattr(key, "aval", None) or (typeof(key) if isinstance(key, np.ndarray) else None)
    if aval is None or aval.dtype != np.uint32:
        got = aval.str_short() if aval is not None else f"{type(key).__name__} {key!r}"
        raise TypeError(f"a random key is needed here, got {got}; hint: make one with random.key(seed)")
    _legacy()
    impl = resolve_impl(None)
    if aval.shape[aval.ndim - len(impl.key_shape):] != impl.key_shape or aval.ndim < len(impl.key_shape):
        raise TypeError(f"raw words of a {impl.name} key have trailing shape {impl.key_shape}, got {aval.str_short()}; "
                        "hint: random.key(seed) makes typed keys, which know their implementation")
    return ops.random_wrap(key, impl), True


def _legacy() -> None:
    message = "a raw uint32 array is used as a random key; make typed keys with random.key(seed) instead"
    if config.legacy_prng_key == "error":
        raise ValueError(message + " (config.legacy_prng_key is 'error')")
    if config.legacy_prng_key == "warn":
        from aot.source import frames_to_user
        warnings.warn(message, UserWarning, stacklevel=frames_to_user())


def single(name: str, key: Any) -> Any:
    """One typed key from what a sampler was given.  Raises ValueError, pointing to vmap, for an array of keys."""
    keys, _ = typed(key)
    if keys.shape:
        raise ValueError(f"{name} takes a single key, got an array of keys of shape {keys.shape}; "
                         "hint: use vmap for many keys at once")
    if config.debug_key_reuse:
        consume(key, name)
    return keys


def _rewrapped(keys: Any, raw: bool) -> Any:
    return ops.random_unwrap(keys) if raw else keys


def split(key: Key, num: int | tuple[int, ...] = 2) -> Key:
    """`num` new keys (or an array of keys of shape `num`) from one key, which must not be used again."""
    keys, raw = typed(key)
    if keys.shape:
        raise ValueError(f"split takes a single key, got an array of keys of shape {keys.shape}; "
                         "hint: use vmap(split)")
    if config.debug_key_reuse:
        consume(key, "split")
    shape = tuple(num) if isinstance(num, (tuple, list)) else (operator.index(num),)
    return _rewrapped(ops.random_split(keys, canonical_shape(shape)), raw)


def fold_in(key: Key, data: Any) -> Key:
    """A new key from a key and an integer: different data give independent keys.

    data: a scalar integer, possibly traced, converted to uint32.  Raises TypeError for an array, OverflowError for a
    Python integer outside of [0, 2**32).
    """
    keys, raw = typed(key)
    if keys.shape:
        raise ValueError(f"fold_in takes a single key, got an array of keys of shape {keys.shape}; "
                         "hint: use vmap(fold_in)")
    if isinstance(data, int):
        if not 0 <= data < 1 << 32:
            raise OverflowError(f"fold_in: {data} does not fit in 32 unsigned bits")
        data = np.uint32(data)
    if typeof(data).shape:
        raise TypeError(f"fold_in takes a scalar, got data of shape {typeof(data).shape}; hint: use vmap(fold_in)")
    return _rewrapped(ops.random_fold_in(keys, data), raw)


def clone(key: Key) -> Key:
    """The same key as a fresh one, for intended reuse under `aot.debug_key_reuse`."""
    keys, raw = typed(key)
    return _rewrapped(ops.random_clone(keys), raw)


def key_data(keys: Key) -> Any:
    """The uint32 words of keys, with the implementation's key shape as trailing dimensions."""
    return ops.random_unwrap(typed(keys)[0])


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> Key:
    """Typed keys from their uint32 words; the inverse of `key_data`."""
    return ops.random_wrap(key_bits_array, _implementation(impl, dtype))


def key_impl(keys: Key) -> str | ops.PRNGSpec:
    """The name of the implementation of keys (a spec object if it has no registered name)."""
    impl = typed(keys)[0].dtype.impl
    return impl.name if ops.IMPLS.get(impl.name) is impl else ops.PRNGSpec(impl)


def key_dtype(impl_spec: Any = None) -> dtypes.KeyDType:
    """The dtype of keys of an implementation (default: the configured one)."""
    return resolve_impl(impl_spec).dtype


