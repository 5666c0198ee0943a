"""The gamma sampler as a primitive, with its derivative in the shape parameter."""
from __future__ import annotations

from math import prod

from aot import dtypes
from aot.ops import elementwise as ew
from aot.ops import shape as sh
from aot.ops.families import kind
from aot.ops.random import each, random_split
from aot.ops.slicing import index_in_dim
from aot.trace import Primitive, ShapedArray, Zero, bind, bind1, tangent_aval, typeof


class RandomGamma(Primitive):
    """(keys [k..], a [k.. s..]) -> samples of a's shape; their logarithms when log_space."""
    name = "random_gamma"

    def infer(self, keys, a, *, log_space):
        if kind(keys.dtype) != "k" or kind(a.dtype) != "f" or a.shape[:keys.ndim] != keys.shape:
            raise TypeError(f"random_gamma takes keys [k..] and floats [k.. s..], got {keys.str_short()} and "
                            f"{a.str_short()}")
        return [ShapedArray(a.shape, a.dtype)]

    def jvp(self, primals, tangents, *, log_space):
        (keys, a), dot = primals, tangents[1]
        out = bind1(self, keys, a, log_space=log_space)
        if type(dot) is Zero:
            return [out], [Zero(tangent_aval(typeof(out)))]
        return [out], [ew.mul(dot, _slope(out, a, log_space))]

    def vmap(self, axis, args, dims, *, log_space):
        from aot.transforms.vmap import to_dim
        keys, a = args
        if dims[0] is None:     # one key for a larger array of parameters would draw other values
            keys = to_dim(axis, keys, None, 0)
        else:
            keys = to_dim(axis, keys, dims[0], 0)
        return bind(self, keys, to_dim(axis, a, dims[1], 0), log_space=log_space), [0]

    def lower(self, e, ins, outs, keys, a, *, log_space):
        from aot.ops.random import random_wrap
        impl = ins[0].dtype.impl
        return e.inline(lambda k, x: _samples(random_wrap(k, impl), x, log_space), [ins[0].physical, ins[1]], (keys, a))

    def uses_axis(self, name, params): return False


random_gamma_p = RandomGamma()


def _samples(keys, a, log_space: bool):
    """One key for each element, then one element after the other: each runs its own rejection loop."""
    from aot.lax import map as lax_map
    k, s = typeof(keys), typeof(a)
    per_key = prod(s.shape[k.ndim:])
    keys = each(1, lambda one: random_split(one, (per_key,)), sh.reshape(keys, (k.size,)))
    flat = (sh.reshape(keys, (s.size,)), sh.reshape(a, (s.size,)))
    return sh.reshape(lax_map(lambda pair: _one(pair[0], pair[1], log_space), flat), s.shape)


def _one(key, alpha, log_space: bool):
    """A gamma value by the method of Marsaglia and Tsang ("A simple method for generating gamma variables", 2000).

    For alpha < 1 it is that of alpha + 1 times u ** (1 / alpha); in log space this stays finite for tiny alpha.
    """
    from aot.random._continuous import _exponential
    from aot.random._uniform import unit_uniform
    dtype = typeof(alpha).dtype
    one, third = dtype.type(1), dtype.type(1 / 3)
    large = ew.ge(alpha, one)
    d = ew.sub(ew.select(large, alpha, ew.add(alpha, one)), third)
    c = ew.div(third, ew.sqrt(d))
    keys = random_split(key, (2,))
    loop_key, boost_key = index_in_dim(keys, 0, keepdims=False), index_in_dim(keys, 1, keepdims=False)
    v = _accepted(loop_key, d, c, dtype)
    if not log_space:
        u = ew.sub(one, unit_uniform(boost_key, (), dtype))
        return ew.mul(ew.mul(d, v), ew.select(large, one, ew.pow(u, ew.div(one, alpha))))
    log_u = ew.neg(_exponential(boost_key, shape=(), dtype=dtype))
    plain = ew.bitwise_or(large, ew.eq(log_u, dtype.type(0)))
    boost = ew.select(plain, dtype.type(0), ew.mul(log_u, ew.div(one, alpha)))
    return ew.add(ew.add(ew.log(d), ew.log(v)), boost)


def _accepted(key, d, c, dtype):
    """Draw x normal with 1 + c x > 0 and u uniform until u is below the ratio of the densities -> (1 + c x)^3."""
    from aot.lax import while_loop
    from aot.random._normal import _normal
    from aot.random._uniform import three, two, unit_uniform
    one, half, squeeze = dtype.type(1), dtype.type(0.5), dtype.type(0.0331)

    def rejected(carry):
        _, x2, v, u = carry
        quick = ew.ge(u, ew.sub(one, ew.mul(squeeze, ew.mul(x2, x2))))
        exact = ew.ge(ew.log(u), ew.add(ew.mul(x2, half), ew.mul(d, ew.add(ew.sub(one, v), ew.log(v)))))
        return ew.bitwise_and(quick, exact)

    def positive(carry):
        key, _, _ = carry
        key, sub_key = two(key)
        x = _normal(sub_key, shape=(), dtype=dtype)
        return key, x, ew.add(one, ew.mul(x, c))

    def draw(carry):
        key, normal_key, u_key = three(carry[0])
        start = normal_key, dtype.type(0), dtype.type(-1)
        _, x, v = while_loop(lambda carry: ew.le(carry[2], dtype.type(0)), positive, start)
        return key, ew.mul(x, x), ew.mul(ew.mul(v, v), v), unit_uniform(u_key, (), dtype)

    return while_loop(rejected, draw, (key, dtype.type(0), one, dtype.type(2)))[2]


def _slope(sample, a, log_space: bool):
    """d sample / d a by implicit differentiation of the distribution function, element by element."""
    from aot.lax import map as lax_map
    from aot.ops.gamma_grad import random_gamma_grad
    s = typeof(sample)
    x, alpha = sh.reshape(sample, (s.size,)), sh.reshape(a, (s.size,))
    if log_space:
        x = ew.exp(x)
        tiny = s.dtype.type(dtypes.finfo(s.dtype).tiny)
        x = ew.select(ew.eq(x, s.dtype.type(0)), sh.full_like(x, tiny), x)
        slope = lax_map(lambda p: ew.div(random_gamma_grad(*p), p[1]), (alpha, x))
    else:
        slope = lax_map(lambda p: random_gamma_grad(*p), (alpha, x))
    return sh.reshape(slope, s.shape)


def random_gamma(keys, a, log_space: bool):
    """Gamma samples with shape parameters a (their logarithms when log_space), one key [k..] for each a[k.. s..]."""
    return bind1(random_gamma_p, keys, a, log_space=log_space)


