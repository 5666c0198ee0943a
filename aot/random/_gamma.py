"""The gamma distribution and those derived from it."""
from __future__ import annotations

from aot import lax
from aot.ops.random_gamma import random_gamma
from aot.ops.random_gamma import random_gamma_p as random_gamma_p
from aot.ops.shape import broadcast_to, canonical_shape, placed
from aot.random._keys import single
from aot.random._sampler import broadcast_shape, cast, float_dtype, sampler
from aot.random._uniform import two
from aot.trace import typeof


def gamma(key, a, shape=None, dtype=None, *, out_sharding=None):
    """Gamma values with shape parameter a and scale 1; differentiable in a.

    For small a prefer `loggamma`: the values themselves underflow to 0.
    """
    key, dtype = single("gamma", key), float_dtype("gamma", dtype)
    shape = broadcast_shape("gamma", shape, a)
    return placed(_gamma(key, *cast(dtype, a), shape=shape, dtype=dtype, log_space=False), out_sharding)


def loggamma(key, a, shape=None, dtype=None, *, out_sharding=None):
    """Logarithms of gamma values with shape parameter a and scale 1; differentiable in a."""
    key, dtype = single("loggamma", key), float_dtype("loggamma", dtype)
    shape = broadcast_shape("loggamma", shape, a)
    return placed(_gamma(key, *cast(dtype, a), shape=shape, dtype=dtype, log_space=True), out_sharding)


@sampler("shape", "dtype", "log_space")
def _gamma(key, a, *, shape, dtype, log_space):
    return random_gamma(key, broadcast_to(a, shape), log_space)


def beta(key, a, b, shape=None, dtype=None, *, out_sharding=None):
    """Beta values with parameters a and b."""
    key, dtype = single("beta", key), float_dtype("beta", dtype)
    shape = broadcast_shape("beta", shape, a, b)
    return placed(_beta(key, *cast(dtype, a, b), shape=shape, dtype=dtype), out_sharding)


@sampler("shape", "dtype")
def _beta(key, a, b, *, shape, dtype):
    """A ratio of gamma values, formed from logarithms so that small parameters do not give 0 / 0."""
    k1, k2 = two(key)
    log_a, log_b = [_gamma(k, broadcast_to(p, shape), shape=shape, dtype=dtype, log_space=True)
                    for k, p in ((k1, a), (k2, b))]
    top = lax.max(log_a, log_b)
    x, y = lax.exp(lax.sub(log_a, top)), lax.exp(lax.sub(log_b, top))
    return lax.div(x, lax.add(x, y))


def dirichlet(key, alpha, shape=None, dtype=None, *, out_sharding=None):
    """Dirichlet vectors [.. n] with concentrations alpha [.. n].

    shape: batch dimensions; default those of alpha.
    """
    key, dtype = single("dirichlet", key), float_dtype("dirichlet", dtype)
    a = typeof(alpha).shape
    if not a:
        raise ValueError("dirichlet: alpha needs at least one dimension, got a scalar")
    shape = a[:-1] if shape is None else canonical_shape(shape)
    full = broadcast_shape("dirichlet", (*shape, a[-1]), alpha)
    return placed(_dirichlet(key, *cast(dtype, alpha), shape=full, dtype=dtype), out_sharding)


@sampler("shape", "dtype")
def _dirichlet(key, alpha, *, shape, dtype):
    """The softmax of the logarithms of gamma values."""
    logs = _gamma(key, alpha, shape=shape, dtype=dtype, log_space=True)
    axis = len(shape) - 1
    spread = lambda x: lax.broadcast_in_dim(x, shape, tuple(range(axis)))
    e = lax.exp(lax.sub(logs, lax.stop_gradient(spread(lax.reduce_max(logs, (axis,))))))
    return lax.div(e, spread(lax.reduce_sum(e, (axis,))))


def chisquare(key, df, shape=None, dtype=None, *, out_sharding=None):
    """Chi-square values with df degrees of freedom."""
    key, dtype = single("chisquare", key), float_dtype("chisquare", dtype)
    shape = broadcast_shape("chisquare", shape, df)
    return placed(_chisquare(key, *cast(dtype, df), shape=shape, dtype=dtype), out_sharding)


@sampler("shape", "dtype")
def _chisquare(key, df, *, shape, dtype):
    two_ = dtype.type(2)
    return lax.mul(lax.exp(_gamma(key, lax.div(df, two_), shape=shape, dtype=dtype, log_space=True)), two_)


def f(key, dfnum, dfden, shape=None, dtype=None, *, out_sharding=None):
    """F values with dfnum and dfden degrees of freedom: a ratio of two scaled chi-square values."""
    key, dtype = single("f", key), float_dtype("f", dtype)
    shape = broadcast_shape("f", shape, dfnum, dfden)
    return placed(_f(key, *cast(dtype, dfnum, dfden), shape=shape, dtype=dtype), out_sharding)


@sampler("shape", "dtype")
def _f(key, dfnum, dfden, *, shape, dtype):
    den_key, num_key = two(key)
    ratio = lambda k, df: lax.div(_chisquare(k, df, shape=shape, dtype=dtype),
                                  broadcast_to(df, shape) if typeof(df).shape else df)
    return lax.div(ratio(num_key, dfnum), ratio(den_key, dfden))


def t(key, df, shape=None, dtype=None, *, out_sharding=None):
    """Student's t values with df degrees of freedom.

    shape: of the result, to which df broadcasts; default the shape of df.
    """
    key, dtype = single("t", key), float_dtype("t", dtype)
    shape = broadcast_shape("t", shape, df)
    return placed(_t(key, *cast(dtype, df), shape=shape, dtype=dtype), out_sharding)


@sampler("shape", "dtype")
def _t(key, df, *, shape, dtype):
    from aot.random._normal import _normal
    k1, k2 = two(key)
    n, half = _normal(k1, shape=shape, dtype=dtype), lax.div(df, dtype.type(2))
    g = _gamma(k2, half, shape=shape, dtype=dtype, log_space=False)
    half = broadcast_to(half, shape) if typeof(half).shape else half
    return lax.mul(n, lax.sqrt(lax.div(half, g)))
