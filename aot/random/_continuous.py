"""Samplers of continuous distributions, by inverse transform unless they say otherwise."""
from __future__ import annotations

import numpy as np

from aot import dtypes, lax
from aot.ops.shape import broadcast_to, canonical_shape, placed
from aot.random._keys import single
from aot.random._sampler import broadcast_shape, cast, float_dtype, sampler
from aot.random._uniform import _rademacher, _uniform, dynamic_range, pair, two, unit_uniform
from aot.trace import typeof


def _full(shape, *params):
    """Parameters broadcast to the result's shape (scalars are left alone: lax broadcasts them)."""
    out = [broadcast_to(x, shape) if typeof(x).shape else x for x in params]
    return out[0] if len(out) == 1 else out


def exponential(key, shape=(), dtype=None, *, out_sharding=None):
    """Exponential values with rate 1."""
    key, dtype = single("exponential", key), float_dtype("exponential", dtype)
    return placed(_exponential(key, shape=canonical_shape(shape), dtype=dtype), out_sharding)


@sampler("shape", "dtype")
def _exponential(key, *, shape, dtype):
    return lax.neg(lax.log1p(lax.neg(unit_uniform(key, shape, dtype))))


def gumbel(key, shape=(), dtype=None, mode=None, *, out_sharding=None):
    """Standard Gumbel values.  mode 'high' draws twice as many bits, for values far in the upper tail."""
    key, dtype = single("gumbel", key), float_dtype("gumbel", dtype)
    return placed(_gumbel(key, shape=canonical_shape(shape), dtype=dtype, mode=dynamic_range(mode)), out_sharding)


@sampler("shape", "dtype", "mode")
def _gumbel(key, *, shape, dtype, mode):
    info = dtypes.finfo(dtype)
    tiny = dtype.type(info.tiny)
    if mode == "low":
        return lax.neg(lax.log(lax.neg(lax.log(_uniform(key, tiny, dtype.type(1), shape=shape, dtype=dtype)))))
    high, low = pair(key, shape, dtype, dtype.type(0), dtype.type(1))
    fine = lax.add(lax.add(high, lax.mul(dtype.type(2.0 ** -info.nmant), low)), tiny)
    x = lax.select(lax.ge(high, dtype.type(0.5)), high, fine)
    return lax.neg(lax.log(lax.neg(lax.log1p(lax.neg(x)))))


def laplace(key, shape=(), dtype=None, *, out_sharding=None):
    """Standard Laplace (double exponential) values."""
    key, dtype = single("laplace", key), float_dtype("laplace", dtype)
    return placed(_laplace(key, shape=canonical_shape(shape), dtype=dtype), out_sharding)


@sampler("shape", "dtype")
def _laplace(key, *, shape, dtype):
    low = dtype.type(-1 + float(dtypes.finfo(dtype).epsneg))
    u = _uniform(key, low, dtype.type(1), shape=shape, dtype=dtype)
    return lax.mul(lax.sign(u), lax.log1p(lax.neg(lax.abs(u))))


def logistic(key, shape=(), dtype=None, *, out_sharding=None):
    """Standard logistic values."""
    key, dtype = single("logistic", key), float_dtype("logistic", dtype)
    return placed(_logistic(key, shape=canonical_shape(shape), dtype=dtype), out_sharding)


@sampler("shape", "dtype")
def _logistic(key, *, shape, dtype):
    u = _uniform(key, dtype.type(dtypes.finfo(dtype).tiny), dtype.type(1), shape=shape, dtype=dtype)
    return lax.sub(lax.log(u), lax.log1p(lax.neg(u)))


def cauchy(key, shape=(), dtype=None, *, out_sharding=None):
    """Standard Cauchy values."""
    key, dtype = single("cauchy", key), float_dtype("cauchy", dtype)
    return placed(_cauchy(key, shape=canonical_shape(shape), dtype=dtype), out_sharding)


@sampler("shape", "dtype")
def _cauchy(key, *, shape, dtype):
    u = _uniform(key, dtype.type(dtypes.finfo(dtype).eps), dtype.type(1), shape=shape, dtype=dtype)
    return lax.tan(lax.mul(dtype.type(np.pi), lax.sub(u, dtype.type(0.5))))


def pareto(key, b, shape=None, dtype=None, *, out_sharding=None):
    """Pareto values with scale 1 and shape parameter b."""
    key, dtype = single("pareto", key), float_dtype("pareto", dtype)
    shape = broadcast_shape("pareto", shape, b)
    return placed(_pareto(key, *cast(dtype, b), shape=shape, dtype=dtype), out_sharding)


@sampler("shape", "dtype")
def _pareto(key, b, *, shape, dtype):
    return lax.exp(lax.div(_exponential(key, shape=shape, dtype=dtype), _full(shape, b)))


def rayleigh(key, scale, shape=None, dtype=None, *, out_sharding=None):
    """Rayleigh values with the given scale."""
    key, dtype = single("rayleigh", key), float_dtype("rayleigh", dtype)
    shape = broadcast_shape("rayleigh", shape, scale)
    return placed(_rayleigh(key, *cast(dtype, scale), shape=shape, dtype=dtype), out_sharding)


@sampler("shape", "dtype")
def _rayleigh(key, scale, *, shape, dtype):
    u = unit_uniform(key, shape, dtype)
    return lax.mul(_full(shape, scale), lax.sqrt(lax.mul(lax.log(u), dtype.type(-2))))


def weibull_min(key, scale, concentration, shape=(), dtype=None):
    """Weibull (minimum) values with a scale and a concentration.

    shape: sample dimensions, in front of the broadcast shape of the parameters.
    """
    key, dtype = single("weibull_min", key), float_dtype("weibull_min", dtype)
    shape = canonical_shape(shape) + broadcast_shape("weibull_min", None, scale, concentration)
    return _weibull_min(key, *cast(dtype, scale, concentration), shape=shape, dtype=dtype)


@sampler("shape", "dtype")
def _weibull_min(key, scale, concentration, *, shape, dtype):
    e = lax.neg(lax.log1p(lax.neg(unit_uniform(key, shape, dtype))))
    power = lax.div(dtype.type(1), concentration)
    return lax.mul(lax.pow(e, _full(shape, power)), _full(shape, scale))


def triangular(key, left, mode, right, shape=None, dtype=None, *, out_sharding=None):
    """Triangular values between left and right with their peak at mode."""
    key, dtype = single("triangular", key), float_dtype("triangular", dtype)
    shape = broadcast_shape("triangular", shape, left, mode, right)
    left, mode, right = cast(dtype, left, mode, right)
    return placed(_triangular(key, left, mode, right, shape=shape, dtype=dtype), out_sharding)


@sampler("shape", "dtype")
def _triangular(key, left, mode, right, *, shape, dtype):
    left, mode, right = _full(shape, left, mode, right)
    u, width = unit_uniform(key, shape, dtype), lax.sub(right, left)
    rising = lax.add(left, lax.sqrt(lax.mul(lax.mul(u, width), lax.sub(mode, left))))
    falling = lax.mul(lax.mul(lax.sub(dtype.type(1), u), width), lax.sub(right, mode))
    return lax.select(lax.lt(u, lax.div(lax.sub(mode, left), width)), rising, lax.sub(right, lax.sqrt(falling)))


def wald(key, mean, shape=None, dtype=None, *, out_sharding=None):
    """Wald (inverse Gaussian) values with the given mean and scale 1.

    Michael, Schucany and Haas, "Generating random variates using transformations with multiple roots", 1976.
    """
    key, dtype = single("wald", key), float_dtype("wald", dtype)
    shape = broadcast_shape("wald", shape, mean)
    return placed(_wald(key, *cast(dtype, mean), shape=shape, dtype=dtype), out_sharding)


@sampler("shape", "dtype")
def _wald(key, mean, *, shape, dtype):
    from aot.random._normal import _normal
    k1, k2 = two(key)
    mean = broadcast_to(mean, shape)
    v, z = _normal(k1, shape=shape, dtype=dtype), unit_uniform(k2, shape, dtype)
    y, mean2 = lax.integer_pow(v, 2), lax.integer_pow(mean, 2)
    root = lax.sqrt(lax.add(lax.mul(lax.mul(dtype.type(4), mean), y), lax.mul(mean2, lax.integer_pow(y, 2))))
    x = lax.sub(lax.add(mean, lax.div(lax.mul(mean2, y), dtype.type(2))), lax.mul(lax.div(mean, dtype.type(2)), root))
    return lax.select(lax.le(z, lax.div(mean, lax.add(mean, x))), x, lax.div(mean2, x))


def generalized_normal(key, p, shape=(), dtype=None, *, out_sharding=None):
    """Generalized normal values, with density proportional to exp(-|x|^p)."""
    key, dtype = single("generalized_normal", key), float_dtype("generalized_normal", dtype)
    out = _generalized_normal(key, p, shape=canonical_shape(shape), dtype=dtype)
    return placed(out, out_sharding)


@sampler("shape", "dtype")
def _generalized_normal(key, p, *, shape, dtype):
    from aot.random._gamma import _gamma
    size, sign = two(key)
    power = lax.convert_element_type(_reciprocal(p), dtype)
    g = _gamma(size, power, shape=shape, dtype=dtype, log_space=False)
    return lax.mul(_rademacher(sign, shape=shape, dtype=dtype), lax.pow(g, power))


def _reciprocal(p):
    """1 / p in the default float, or in p's own float."""
    a = typeof(p)
    if a.dtype.kind in "iu":
        p = lax.convert_element_type(p, dtypes.default_float_dtype())
    return lax.div(typeof(p).dtype.type(1), p)


def ball(key, d, p=2, shape=(), dtype=None, *, out_sharding=None):
    """Uniform points [.. d] inside the unit ball of the p-norm in d dimensions.

    Barthe, Guedon, Mendelson and Naor, "A probabilistic approach to the geometry of the l_p^n-ball", 2005.
    """
    key, dtype = single("ball", key), float_dtype("ball", dtype)
    return placed(_ball(key, p, d=d, shape=canonical_shape(shape), dtype=dtype), out_sharding)


@sampler("d", "shape", "dtype")
def _ball(key, p, *, d, shape, dtype):
    k1, k2 = two(key)
    g = _generalized_normal(k1, p, shape=(*shape, d), dtype=dtype)
    e = _exponential(k2, shape=shape, dtype=dtype)
    exponent = p if typeof(p).dtype.kind in "iu" else lax.convert_element_type(p, dtype)
    norm = lax.add(lax.reduce_sum(lax.pow(lax.abs(g), exponent), (len(shape),)), e)
    norm = lax.pow(norm, lax.convert_element_type(_reciprocal(p), dtype))
    return lax.div(g, lax.broadcast_in_dim(norm, (*shape, d), tuple(range(len(shape)))))
