"""Initializers of weights: each factory returns a function (key, shape, dtype) -> array."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

import aot.numpy as jnp
from aot import dtypes, random
from aot.ops.shape import placed

Array = Any


class Initializer(Protocol):
    """What the factories of this module return."""

    def __call__(self, key: Array, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None) -> Array:
        raise NotImplementedError


def _dtype(dtype: Any) -> np.dtype:
    """The dtype of the weights: float by default."""
    if dtype is None:
        return dtypes.default_float_dtype()
    return dtypes.check_user_dtype_supported(dtype, "initializer")


def _is_complex(dtype: np.dtype) -> bool:
    return dtypes.issubdtype(dtype, np.complexfloating)


def zeros(key: Array, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None) -> Array:
    """All zeros; the key is ignored."""
    return placed(jnp.zeros(shape, _dtype(dtype)), out_sharding)


def ones(key: Array, shape: Sequence[int], dtype: Any = None, out_sharding: Any = None) -> Array:
    """All ones; the key is ignored."""
    return placed(jnp.ones(shape, _dtype(dtype)), out_sharding)


def constant(value: Array, dtype: Any = None) -> Initializer:
    """Every element `value` (a number or an array that broadcasts to the shape)."""
    def init(key, shape, dtype=dtype, out_sharding=None):
        return placed(jnp.full(shape, value, dtype=_dtype(dtype)), out_sharding)

    return init


def uniform(scale: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Uniform in [0, scale)."""
    def init(key, shape, dtype=dtype, out_sharding=None):
        dtype = _dtype(dtype)
        return random.uniform(key, shape, dtype, out_sharding=out_sharding) * jnp.array(scale, dtype)

    return init


def normal(stddev: Any = 1e-2, dtype: Any = None) -> Initializer:
    """Normal with the given standard deviation."""
    def init(key, shape, dtype=dtype, out_sharding=None):
        dtype = _dtype(dtype)
        return random.normal(key, shape, dtype, out_sharding=out_sharding) * jnp.array(stddev, dtype)

    return init


def truncated_normal(stddev: Any = 1e-2, dtype: Any = None, lower: Any = -2.0, upper: Any = 2.0) -> Initializer:
    """Normal, conditioned on lying within [lower, upper] standard deviations, times stddev."""
    def init(key, shape, dtype=dtype, out_sharding=None):
        dtype = _dtype(dtype)
        drawn = random.truncated_normal(key, lower, upper, shape, dtype, out_sharding=out_sharding)
        return drawn * jnp.array(stddev, dtype)

    return init


# ---- variance scaling ------------------------------------------------------------------------------------------------

def _fans(shape: Sequence[int], in_axis: Any, out_axis: Any, batch_axis: Any) -> tuple[float, float]:
    """Number of inputs and outputs of one unit; axes that are neither belong to the receptive field."""
    if len(shape) <= 1:
        raise ValueError(f"variance scaling needs at least two dimensions (inputs and outputs), got shape {shape}; "
                         "hint: use normal or uniform for vectors")
    size = lambda axes: math.prod([shape[a] for a in ((axes,) if isinstance(axes, int) else axes)])
    inputs, outputs = size(in_axis), size(out_axis)
    field = math.prod(shape) / inputs / outputs / size(batch_axis)
    return inputs * field, outputs * field


_MODES = {"fan_in": lambda i, o: i, "fan_out": lambda i, o: o, "fan_avg": lambda i, o: (i + o) / 2,
          "fan_geo_avg": lambda i, o: (i * o) ** 0.5}


def variance_scaling(scale: Any, mode: str, distribution: str, in_axis: Any = -2, out_axis: Any = -1,
                     batch_axis: Any = (), dtype: Any = None) -> Initializer:
    """Zero-mean values with variance scale / n, where n is chosen by `mode`.

    Args:
      mode: 'fan_in' (number of inputs of a unit), 'fan_out', 'fan_avg' or 'fan_geo_avg' (their means).
      distribution: 'truncated_normal' (at two standard deviations), 'normal' or 'uniform'.
      in_axis, out_axis, batch_axis: the dimensions (int or tuple) of inputs, outputs, and of independent copies.

    Raises ValueError for other modes and distributions and for shapes with fewer than two dimensions.
    """
    def init(key, shape, dtype=dtype, out_sharding=None):
        dtype = _dtype(dtype)
        if mode not in _MODES:
            raise ValueError(f"variance_scaling: mode is one of {', '.join(map(repr, _MODES))}; got {mode!r}")
        if distribution not in _DRAW:
            raise ValueError(f"variance_scaling: distribution is one of {', '.join(map(repr, _DRAW))}; "
                             f"got {distribution!r}")
        variance = jnp.array(scale / _MODES[mode](*_fans(shape, in_axis, out_axis, batch_axis)), dtype)
        return placed(_DRAW[distribution](key, tuple(shape), dtype, variance), out_sharding)

    return init


def _truncated(key, shape, dtype, variance):
    """The constants are the standard deviations of (complex) normal values truncated at two."""
    if _is_complex(dtype):
        return _complex_truncated_normal(key, 2, shape, dtype) * (
            jnp.sqrt(variance) / jnp.array(0.95311164380491208, dtype))
    stddev = jnp.sqrt(variance) / jnp.array(0.87962566103423978, dtype)
    return random.truncated_normal(key, -2, 2, shape, dtype) * stddev


def _normal(key, shape, dtype, variance):
    return random.normal(key, shape, dtype) * jnp.sqrt(variance)


def _uniform(key, shape, dtype, variance):
    if _is_complex(dtype):
        return _complex_uniform(key, shape, dtype) * jnp.sqrt(2 * variance)
    return random.uniform(key, shape, dtype, -1) * jnp.sqrt(3 * variance)


_DRAW = {"truncated_normal": _truncated, "normal": _normal, "uniform": _uniform}


def _parts(key, shape, dtype) -> tuple[Array, Array]:
    """A uniform value, and a unit complex number with uniform angle."""
    k1, k2 = random.split(key)
    part = dtypes.to_floating_dtype(dtype)
    angle = 2 * jnp.pi * random.uniform(k2, shape, part).astype(dtype)
    return random.uniform(k1, shape, part), jnp.exp(1j * angle)


def _complex_uniform(key, shape, dtype):
    """Uniform in the complex unit disk."""
    u, direction = _parts(key, shape, dtype)
    return jnp.sqrt(u).astype(dtype) * direction


def _complex_truncated_normal(key, upper, shape, dtype):
    """Complex normal values of modulus below `upper`."""
    u, direction = _parts(key, shape, dtype)
    t = (1 - jnp.exp(jnp.array(-(upper ** 2), dtype))) * u.astype(dtype)
    return jnp.sqrt(-jnp.log(1 - t)) * direction


def _scaled(scale: float, mode: str, distribution: str, name: str, doc: str):
    def factory(in_axis: Any = -2, out_axis: Any = -1, batch_axis: Any = (), dtype: Any = None) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    factory.__name__ = factory.__qualname__ = name
    factory.__doc__ = doc
    return factory


#                        scale   n          distribution
glorot_uniform = _scaled(1.0, "fan_avg", "uniform", "glorot_uniform", "Glorot and Bengio, 2010, uniform.")
glorot_normal = _scaled(1.0, "fan_avg", "truncated_normal", "glorot_normal", "Glorot and Bengio, 2010, normal.")
lecun_uniform = _scaled(1.0, "fan_in", "uniform", "lecun_uniform", "LeCun et al., 1998, uniform.")
lecun_normal = _scaled(1.0, "fan_in", "truncated_normal", "lecun_normal", "LeCun et al., 1998, normal.")
he_uniform = _scaled(2.0, "fan_in", "uniform", "he_uniform", "He et al., 2015, uniform.")
he_normal = _scaled(2.0, "fan_in", "truncated_normal", "he_normal", "He et al., 2015, normal.")
xavier_uniform, xavier_normal = glorot_uniform, glorot_normal
kaiming_uniform, kaiming_normal = he_uniform, he_normal


# ---- orthogonal ------------------------------------------------------------------------------------------------------

def orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """A random matrix with orthonormal rows or columns, times scale; other dimensions than column_axis form the rows.

    Saxe, McClelland and Ganguli, "Exact solutions to the nonlinear dynamics of learning in deep linear networks", 2014.
    """
    def init(key, shape, dtype=dtype, out_sharding=None):
        dtype = _dtype(dtype)
        if len(shape) < 2:
            raise ValueError(f"orthogonal needs at least two dimensions, got shape {shape}")
        columns = shape[column_axis]
        rows = math.prod(shape) // columns
        q = random.orthogonal(key, rows, dtype=dtype, m=columns)
        rest = [n for i, n in enumerate(shape) if i != column_axis % len(shape)]
        return placed(jnp.array(scale, dtype) * jnp.moveaxis(q.reshape(*rest, columns), -1, column_axis), out_sharding)

    return init


def delta_orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """A convolution kernel [.. in out] (1, 2 or 3 spatial dimensions) that is an orthogonal matrix at its center.

    Xiao et al., "Dynamical isometry and a mean field theory of CNNs", 2018.
    """
    def init(key, shape, dtype=dtype, out_sharding=None):
        dtype = _dtype(dtype)
        if len(shape) not in (3, 4, 5):
            raise ValueError(f"delta_orthogonal needs 3 to 5 dimensions (1 to 3 of them spatial), got shape {shape}")
        if shape[-1] < shape[-2]:
            raise ValueError(f"delta_orthogonal needs at least as many outputs as inputs, got shape {shape}")
        matrix = orthogonal(scale, column_axis, dtype)(key, shape[-2:])
        center = tuple((n - 1) // 2 for n in shape[:-2])
        return placed(jnp.zeros(shape, dtype).at[center].set(matrix), out_sharding)

    return init
