"""Gaussian samplers."""
from __future__ import annotations

import numpy as np

from aot import dtypes, lax
from aot.ops.shape import broadcast_to, canonical_shape, placed
from aot.random._keys import single
from aot.random._sampler import broadcast_shape, cast, float_dtype, sampler
from aot.random._uniform import _rademacher, _uniform, two
from aot.trace import typeof


def normal(key, shape=(), dtype=None, *, out_sharding=None):
    """Standard normal values; complex ones have unit variance, half in each part."""
    key, dtype = single("normal", key), float_dtype("normal", dtype, complex_too=True)
    return placed(_normal(key, shape=canonical_shape(shape), dtype=dtype), out_sharding)


@sampler("shape", "dtype")
def _normal(key, *, shape, dtype):
    if not dtypes.issubdtype(dtype, np.complexfloating):
        return _normal_real(key, shape=shape, dtype=dtype)
    part = dtypes.to_floating_dtype(dtype)
    real, imag = [lax.convert_element_type(_normal_real(k, shape=shape, dtype=part), dtype) for k in two(key)]
    return lax.div(lax.add(real, lax.mul(dtype.type(1j), imag)), dtype.type(np.sqrt(2)))


@sampler("shape", "dtype")
def _normal_real(key, *, shape, dtype):
    """The inverse error function of a uniform value in (-1, 1)."""
    low = np.nextafter(np.array(-1, dtype), np.array(0, dtype), dtype=dtype)[()]
    u = _uniform(key, low, dtype.type(1), shape=shape, dtype=dtype)
    return lax.mul(dtype.type(np.sqrt(2)), lax.erf_inv(u))


def truncated_normal(key, lower, upper, shape=None, dtype=None, *, out_sharding=None):
    """Standard normal values conditioned to lie in (lower, upper); differentiable in the bounds.

    shape: of the result; default the broadcast shape of the bounds.
    """
    key, dtype = single("truncated_normal", key), float_dtype("truncated_normal", dtype)
    shape = broadcast_shape("truncated_normal", shape, lower, upper)
    return placed(_truncated_normal(key, *cast(dtype, lower, upper), shape=shape, dtype=dtype), out_sharding)


@sampler("shape", "dtype")
def _truncated_normal(key, lower, upper, *, shape, dtype):
    """Inverse transform; the result is kept strictly inside the bounds, where rounding would reach them."""
    root = dtype.type(np.sqrt(2))
    u = _uniform(key, lax.erf(lax.div(lower, root)), lax.erf(lax.div(upper, root)), shape=shape, dtype=dtype)
    out = lax.mul(root, lax.erf_inv(u))
    low = lax.nextafter(lax.stop_gradient(lower), dtype.type(np.inf))
    high = lax.nextafter(lax.stop_gradient(upper), dtype.type(-np.inf))
    low, high = [broadcast_to(x, shape) if typeof(x).shape else x for x in (low, high)]
    return lax.min(high, lax.max(low, out))


def lognormal(key, sigma=np.float32(1.0), shape=None, dtype=None, *, out_sharding=None):
    """exp of a normal value with standard deviation sigma."""
    key, dtype = single("lognormal", key), float_dtype("lognormal", dtype)
    shape = broadcast_shape("lognormal", shape, sigma)
    return placed(_lognormal(key, *cast(dtype, sigma), shape=shape, dtype=dtype), out_sharding)


@sampler("shape", "dtype")
def _lognormal(key, sigma, *, shape, dtype):
    drawn = _normal(key, shape=shape, dtype=dtype)
    return lax.exp(lax.mul(drawn, broadcast_to(sigma, shape) if typeof(sigma).shape else sigma))


def maxwell(key, shape=(), dtype=None, *, out_sharding=None):
    """The length of a standard normal vector of three components."""
    key, dtype = single("maxwell", key), float_dtype("maxwell", dtype)
    return placed(_maxwell(key, shape=canonical_shape(shape), dtype=dtype), out_sharding)


@sampler("shape", "dtype")
def _maxwell(key, *, shape, dtype):
    v = _normal(key, shape=(*shape, 3), dtype=dtype)
    return lax.sqrt(lax.reduce_sum(lax.mul(v, v), (len(shape),)))


def double_sided_maxwell(key, loc, scale, shape=(), dtype=None):
    """A Maxwell value with a random sign, scaled and shifted.

    shape: sample dimensions, in front of the broadcast shape of loc and scale.
    """
    key, dtype = single("double_sided_maxwell", key), float_dtype("double_sided_maxwell", dtype)
    shape = canonical_shape(shape) + broadcast_shape("double_sided_maxwell", None, loc, scale)
    return _double_sided_maxwell(key, *cast(dtype, loc, scale), shape=shape, dtype=dtype)


@sampler("shape", "dtype")
def _double_sided_maxwell(key, loc, scale, *, shape, dtype):
    length, sign = two(key)
    out = lax.mul(_rademacher(sign, shape=shape, dtype=dtype), _maxwell(length, shape=shape, dtype=dtype))
    loc, scale = [broadcast_to(x, shape) if typeof(x).shape else x for x in (loc, scale)]
    return lax.add(lax.mul(out, scale), loc)


def multivariate_normal(key, mean, cov, shape=None, dtype=None, method="cholesky", *, out_sharding=None):
    """Normal vectors with a mean and a covariance.

    Args:
      mean: [.. n];  cov: [.. n n], symmetric positive semidefinite.
      shape: batch dimensions of the result [.. n]; default those of mean and cov.
      method: how cov is factored: 'cholesky', 'eigh' or 'svd'; the last two allow singular matrices.
    """
    key, dtype = single("multivariate_normal", key), float_dtype("multivariate_normal", dtype)
    if method not in ("cholesky", "eigh", "svd"):
        raise ValueError(f"multivariate_normal: method is 'cholesky', 'eigh' or 'svd', got {method!r}")
    m, c = typeof(mean).shape, typeof(cov).shape
    if not m or len(c) < 2 or c[-2:] != (m[-1], m[-1]):
        raise ValueError(f"multivariate_normal: a mean [.. n] needs a covariance [.. n n], got shapes {m} and {c}")
    batch = np.broadcast_shapes(m[:-1], c[:-2])
    shape = batch if shape is None else canonical_shape(shape)
    if np.broadcast_shapes(shape, batch) != shape:
        raise ValueError(f"multivariate_normal: batch shapes {m[:-1]} and {c[:-2]} do not broadcast to shape={shape}")
    out = _multivariate_normal(key, *cast(dtype, mean, cov), shape=shape, dtype=dtype, method=method)
    return placed(out, out_sharding)


@sampler("shape", "dtype", "method")
def _multivariate_normal(key, mean, cov, *, shape, dtype, method):
    import aot.numpy as jnp
    n = typeof(mean).shape[-1]
    drawn = _normal(key, shape=(*shape, n), dtype=dtype)
    return jnp.add(jnp.broadcast_to(mean, drawn.shape), jnp.einsum("...ij,...j->...i", _factor(cov, method), drawn))


def _factor(cov, method):
    """A with A A^T = cov."""
    import aot.numpy as jnp
    if method == "cholesky":
        return jnp.linalg.cholesky(cov)
    if method == "eigh":
        values, vectors = jnp.linalg.eigh(cov)
    else:
        vectors, values, _ = jnp.linalg.svd(cov)
    return jnp.multiply(vectors, jnp.sqrt(jnp.expand_dims(values, -2)))


def orthogonal(key, n, shape=(), dtype=None, m=None, *, out_sharding=None):
    """Matrices [.. n m] uniform over the orthogonal (or unitary) group; semi-orthogonal when m differs from n.

    shape: batch dimensions.  m: number of columns, default n.
    """
    key, dtype = single("orthogonal", key), float_dtype("orthogonal", dtype, complex_too=True)
    return placed(_orthogonal(key, n=n, m=n if m is None else m, shape=canonical_shape(shape), dtype=dtype),
                  out_sharding)


@sampler("n", "m", "shape", "dtype")
def _orthogonal(key, *, n, m, shape, dtype):
    """QR of a Gaussian matrix, with the signs of R's diagonal moved into Q (Mezzadri, arXiv:math-ph/0609050)."""
    import aot.numpy as jnp
    z = _normal(key, shape=(*shape, max(n, m), min(n, m)), dtype=dtype)
    q, r = jnp.linalg.qr(z)
    d = jnp.linalg.diagonal(r)
    q = jnp.multiply(q, jnp.expand_dims(jnp.sign(d), -2))
    return q if n >= m else jnp.matrix_transpose(q)
