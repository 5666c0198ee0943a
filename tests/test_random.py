"""Random numbers against real jax: the same keys give the same values, dtypes and weak types, bit by bit."""
import contextlib
import itertools

import numpy as np
import pytest

import aot
from aot import random
from aot.config import override

SAMPLED = 4     # rows: one in 4, see conftest.py

jax = pytest.importorskip("jax")
jnp = jax.numpy

#: (threefry_partitionable, enable_x64)
MODES = list(itertools.product([True, False], [False, True]))


@contextlib.contextmanager
def mode(partitionable, x64):
    with jax.threefry_partitionable(partitionable), jax.enable_x64(x64), \
            override("threefry_partitionable", partitionable), override("enable_x64", x64):
        yield


def raw(x):
    """The numpy value of an array, keys as their words."""
    if isinstance(x.dtype, aot.dtypes.KeyDType):
        return np.asarray(random.key_data(x))
    return np.asarray(jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x)


def same(got, want, ulps=0):
    assert str(got.dtype) == str(want.dtype) and got.shape == want.shape
    assert got.weak_type == getattr(want, "weak_type", False)
    g, w = raw(got), raw(want)
    if ulps and g.dtype.kind in "fcV":
        eps = float(jnp.finfo(g.dtype).eps)
        np.testing.assert_allclose(g.astype(np.complex128 if g.dtype.kind == "c" else np.float64),
                                   w.astype(np.complex128 if g.dtype.kind == "c" else np.float64),
                                   rtol=ulps * eps, atol=ulps * eps)
    else:
        np.testing.assert_array_equal(g, w)


# ---- keys ------------------------------------------------------------------------------------------------------------

SEEDS = [0, 1, -1, 42, 2**31 - 1, 2**31, 2**32 - 1, 2**32 + 5, -2**31, 2**63 - 1, -2**63, np.int32(7),
         np.uint32(2**32 - 1), np.int8(-3), np.int64(2**40), np.uint8(200)]
IMPLS = ["threefry2x32", "rbg", "unsafe_rbg"]


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("impl", IMPLS)
def test_seeds(impl, x64):
    with mode(True, x64):
        for seed in SEEDS:
            same(random.key(seed, impl=impl), jax.random.key(seed, impl=impl))
            same(random.PRNGKey(seed, impl=impl), jax.random.PRNGKey(seed, impl=impl))


@pytest.mark.parametrize("impl, partitionable, x64", [*[("threefry2x32", *m) for m in MODES], ("rbg", True, False),
                                                      ("rbg", False, True), ("unsafe_rbg", True, False)])
def test_split_and_fold_in(impl, partitionable, x64):
    with mode(partitionable, x64):
        ours, theirs = random.key(3, impl=impl), jax.random.key(3, impl=impl)
        for num in (2, 3, (2, 3), ()):
            same(random.split(ours, num), jax.random.split(theirs, num))
        for data in (0, 2**31 - 1, 2**32 - 1, 1.5, True, np.uint32(2**32 - 1), np.int8(-3)):
            same(random.fold_in(ours, data), jax.random.fold_in(theirs, data))
        same(random.split(random.PRNGKey(1)), jax.random.split(jax.random.PRNGKey(1)))
        same(random.fold_in(random.PRNGKey(1), 2), jax.random.fold_in(jax.random.PRNGKey(1), 2))


def test_key_arrays_print_and_convert():
    k = random.key(0)
    assert repr(k) == repr(jax.random.key(0)) and repr(random.split(k)) == repr(jax.random.split(jax.random.key(0)))
    assert random.key_impl(k) == random.key_impl(random.PRNGKey(0)) == "threefry2x32"
    assert random.key_dtype() == k.dtype and str(random.key_dtype("rbg")) == "key<rbg>"
    same(random.key_data(k), jax.random.key_data(jax.random.key(0)))
    same(random.wrap_key_data(random.key_data(k)), jax.random.key(0))
    same(random.clone(k), jax.random.key(0))
    assert aot.dtypes.issubdtype(k.dtype, aot.dtypes.prng_key)
    assert random.key(0, dtype=random.key_dtype("rbg")).dtype == random.key_dtype("rbg")
    with override("default_prng_impl", "rbg"):
        assert random.key_impl(random.key(0)) == "rbg"
    with override("enable_custom_prng", True):
        assert random.PRNGKey(0).dtype == k.dtype
    with override("random_seed_offset", 3):
        same(random.key(4), jax.random.key(7))


KEY_ERRORS = [
    (lambda r, k: r.key(1.5), TypeError), (lambda r, k: r.key(np.arange(2)), TypeError),
    (lambda r, k: r.key(k), TypeError), (lambda r, k: r.key(2**64), OverflowError),
    (lambda r, k: r.key(0, impl="nonsense"), ValueError), (lambda r, k: r.key(0, impl=3), TypeError),
    (lambda r, k: r.normal(3), TypeError), (lambda r, k: r.normal(r.split(k)), ValueError),
    (lambda r, k: r.normal(np.zeros(3, np.uint32)), TypeError), (lambda r, k: r.split(r.split(k)), ValueError),
    (lambda r, k: r.fold_in(k, np.arange(3)), TypeError), (lambda r, k: r.fold_in(k, -1), OverflowError),
    (lambda r, k: r.normal(k, (2,), np.int32), ValueError), (lambda r, k: r.uniform(k, (2,), np.int32), ValueError),
    (lambda r, k: r.bits(k, (2,), np.int32), ValueError), (lambda r, k: r.bernoulli(k, 1), TypeError),
    (lambda r, k: r.randint(k, (2,), 0, 3, np.float32), ValueError),
    (lambda r, k: r.choice(k, 3, (4,), replace=False), ValueError),
    (lambda r, k: r.choice(k, 3, (4,), p=np.ones(4)), ValueError), (lambda r, k: r.choice(k, 0, (4,)), ValueError),
    (lambda r, k: r.gamma(k, np.ones(3), (2,)), ValueError),
    (lambda r, k: r.bernoulli(k, np.ones(3), (2,)), ValueError),
    (lambda r, k: r.categorical(k, np.ones((2, 3)), shape=(3,)), ValueError),
    (lambda r, k: r.categorical(k, np.ones((2, 3)), shape=(5, 2), replace=False), ValueError),
    (lambda r, k: r.permutation(k, 1.5), TypeError), (lambda r, k: k + 1, TypeError), (lambda r, k: k * k, TypeError),
    (lambda r, k: np.asarray(k), TypeError), (lambda r, k: bool(k), TypeError),
    (lambda r, k: k.astype(np.uint32), TypeError),
    (lambda r, k: r.wrap_key_data(np.zeros(3, np.uint32)), TypeError),
]


@pytest.mark.parametrize("i", range(len(KEY_ERRORS)))
def test_errors(i):
    f, error = KEY_ERRORS[i]
    with pytest.raises(error):
        f(random, random.key(0))
    with pytest.raises((TypeError, ValueError, OverflowError, NotImplementedError)):
        f(jax.random, jax.random.key(0))


def test_legacy_keys():
    with override("legacy_prng_key", "error"), pytest.raises(ValueError, match="raw uint32"):
        random.normal(random.PRNGKey(0))
    with override("legacy_prng_key", "warn"), pytest.warns(UserWarning, match="raw uint32"):
        random.normal(random.PRNGKey(0))


# ---- samplers: name -> function of (module, key); the shapes are odd on purpose --------------------------------------

F = np.float32
SAMPLERS = {
    "bits": lambda r, k: r.bits(k, (5,)),
    "bits8": lambda r, k: r.bits(k, (5, 3), np.uint8),
    "bits16": lambda r, k: r.bits(k, (7,), np.uint16),
    "bits32": lambda r, k: r.bits(k, (2, 3, 5), np.uint32),
    "bits scalar": lambda r, k: r.bits(k),
    "bits empty": lambda r, k: r.bits(k, (0, 3)),
    "uniform": lambda r, k: r.uniform(k, (3, 5)),
    "uniform bounds": lambda r, k: r.uniform(k, (3, 5), minval=-2.5, maxval=np.arange(5, dtype=F)),
    "uniform int bounds": lambda r, k: r.uniform(k, (3,), minval=1, maxval=4),
    "uniform f16": lambda r, k: r.uniform(k, (9,), np.float16),
    "uniform bf16": lambda r, k: r.uniform(k, (9,), jnp.bfloat16),
    "uniform f8": lambda r, k: r.uniform(k, (9,), jnp.float8_e5m2),
    "uniform raw key": lambda r, k: r.uniform(r.PRNGKey(3), (4,)),
    "randint": lambda r, k: r.randint(k, (3, 5), 0, 10),
    "randint negative": lambda r, k: r.randint(k, (11,), -10, 10),
    "randint empty range": lambda r, k: r.randint(k, (4,), 5, 5),
    "randint arrays": lambda r, k: r.randint(k, (2, 3), np.arange(3), np.array([[5], [2]])),
    "randint u8": lambda r, k: r.randint(k, (11,), 0, 256, np.uint8),
    "randint i8": lambda r, k: r.randint(k, (11,), -300, 300, np.int8),
    "randint i16": lambda r, k: r.randint(k, (11,), -5, 5, np.int16),
    "randint u32": lambda r, k: r.randint(k, (11,), 0, np.uint32(2**32 - 1), np.uint32),
    "randint max": lambda r, k: r.randint(k, (11,), np.iinfo(np.int32).min, np.iinfo(np.int32).max, np.int32),
    "randint floats": lambda r, k: r.randint(k, (11,), 0.0, 3.7),
    "randint scalar": lambda r, k: r.randint(k, (), 0, 100),
    "bernoulli": lambda r, k: r.bernoulli(k, 0.3, (11,)),
    "bernoulli default": lambda r, k: r.bernoulli(k),
    "bernoulli array": lambda r, k: r.bernoulli(k, np.linspace(0, 1, 7, dtype=F)),
    "bernoulli f16": lambda r, k: r.bernoulli(k, np.float16(0.25), (9,)),
    "bernoulli high": lambda r, k: r.bernoulli(k, 0.3, (11,), mode="high"),
    "rademacher": lambda r, k: r.rademacher(k, (11,)),
    "rademacher f32": lambda r, k: r.rademacher(k, (11,), np.float32),
    "normal": lambda r, k: r.normal(k, (3, 5)),
    "normal scalar": lambda r, k: r.normal(k),
    "normal bf16": lambda r, k: r.normal(k, (9,), jnp.bfloat16),
    "normal f16": lambda r, k: r.normal(k, (9,), np.float16),
    "normal complex": lambda r, k: r.normal(k, (9,), np.complex64),
    "truncated_normal": lambda r, k: r.truncated_normal(k, -2, 2, (11,)),
    "truncated_normal arrays": lambda r, k: r.truncated_normal(k, np.array([-1, 0], F), F(1.5)),
    "lognormal": lambda r, k: r.lognormal(k, 0.5, (5,)),
    "maxwell": lambda r, k: r.maxwell(k, (5,)),
    "double_sided_maxwell": lambda r, k: r.double_sided_maxwell(k, 1.0, 2.0, (5,)),
    "exponential": lambda r, k: r.exponential(k, (5,)),
    "gumbel": lambda r, k: r.gumbel(k, (5,)),
    "gumbel high": lambda r, k: r.gumbel(k, (5,), mode="high"),
    "laplace": lambda r, k: r.laplace(k, (5,)),
    "logistic": lambda r, k: r.logistic(k, (5,)),
    "cauchy": lambda r, k: r.cauchy(k, (5,)),
    "pareto": lambda r, k: r.pareto(k, np.array([1, 2.5], F), (3, 2)),
    "rayleigh": lambda r, k: r.rayleigh(k, 2.0, (5,)),
    "weibull_min": lambda r, k: r.weibull_min(k, 0.5, 1.5, (5,)),
    "triangular": lambda r, k: r.triangular(k, 0.0, np.array([0.25, 0.75], F), 1.0, (3, 2)),
    "wald": lambda r, k: r.wald(k, 0.5, (7,)),
    "generalized_normal": lambda r, k: r.generalized_normal(k, 1.5, (5,)),
    "ball": lambda r, k: r.ball(k, 3, shape=(4,)),
    "ball p": lambda r, k: r.ball(k, 3, 1.5, shape=(4,)),
    "gamma": lambda r, k: r.gamma(k, np.array([0.3, 1, 5], F)),
    "gamma shape": lambda r, k: r.gamma(k, 2.0, (2, 3)),
    "loggamma": lambda r, k: r.loggamma(k, np.array([0.01, 1, 5], F)),
    "beta": lambda r, k: r.beta(k, 0.5, 2.0, (5,)),
    "dirichlet": lambda r, k: r.dirichlet(k, np.array([0.5, 1, 3], F), (2,)),
    "chisquare": lambda r, k: r.chisquare(k, 3.0, (5,)),
    "f": lambda r, k: r.f(k, 2.0, 3.0, (5,)),
    "t": lambda r, k: r.t(k, 3.0, (5,)),
    "permutation int": lambda r, k: r.permutation(k, 10),
    "permutation one": lambda r, k: r.permutation(k, 1),
    "permutation 1d": lambda r, k: r.permutation(k, np.arange(7, dtype=F)),
    "permutation big": lambda r, k: r.permutation(k, 3000),
    "permutation 2d": lambda r, k: r.permutation(k, np.arange(12).reshape(4, 3), axis=1),
    "permutation independent": lambda r, k: r.permutation(k, np.arange(12).reshape(4, 3), axis=0, independent=True),
    "choice": lambda r, k: r.choice(k, 5, (4,)),
    "choice scalar": lambda r, k: r.choice(k, 5),
    "choice array": lambda r, k: r.choice(k, np.arange(12.0, dtype=F).reshape(4, 3), (2,), axis=1),
    "choice once": lambda r, k: r.choice(k, 10, (2, 3), replace=False),
    "choice once array": lambda r, k: r.choice(k, np.arange(12).reshape(4, 3), (2,), replace=False),
    "choice p": lambda r, k: r.choice(k, 5, (9,), p=np.array([0.1, 0.2, 0.3, 0, 0.4], F)),
    "choice p once": lambda r, k: r.choice(k, 5, (3,), p=np.array([0.1, 0.2, 0.3, 0, 0.4], F), replace=False),
    "categorical": lambda r, k: r.categorical(k, np.arange(6, dtype=F).reshape(2, 3)),
    "categorical axis": lambda r, k: r.categorical(k, np.arange(6, dtype=F).reshape(2, 3), axis=0),
    "categorical shape": lambda r, k: r.categorical(k, np.arange(6, dtype=F).reshape(2, 3), shape=(4, 2)),
    "categorical once": lambda r, k: r.categorical(k, np.zeros((2, 5), F), shape=(3, 2), replace=False),
    "geometric": lambda r, k: r.geometric(k, 0.3, (9,)),
    "poisson": lambda r, k: r.poisson(k, np.array([0, 0.5, 3, 20, 1000], F)),
    "poisson scalar": lambda r, k: r.poisson(k, 12.0),
    "binomial": lambda r, k: r.binomial(k, np.array([1, 10, 100, 1000], F), np.array([0.5, 0.9, 0.01, 0.3], F)),
    "binomial edges": lambda r, k: r.binomial(
        k, np.array([-1, 0, 10, np.inf, 5], F), np.array([0.5, 0.5, 1.5, 0.5, 1], F)),
    "multinomial": lambda r, k: r.multinomial(k, 20.0, np.array([0.2, 0.5, 0.3], F)),
    "orthogonal": lambda r, k: r.orthogonal(k, 3, (2,)),
    "orthogonal m": lambda r, k: r.orthogonal(k, 3, m=2),
    "multivariate_normal": lambda r, k: r.multivariate_normal(
        k, np.array([1, 2], F), np.array([[2, 1], [1, 3]], F), (3,)),
    "multivariate_normal eigh": lambda r, k: r.multivariate_normal(
        k, np.array([1, 2], F), np.array([[2, 1], [1, 3]], F), (3,), method="eigh"),
    "multivariate_normal svd": lambda r, k: r.multivariate_normal(
        k, np.array([1, 2], F), np.array([[2, 1], [1, 3]], F), (3,), method="svd"),
}
#: samplers that go through matrix factorizations or sums, whose order of additions is XLA's choice: units in last place
ROUNDED = {"maxwell": 4, "double_sided_maxwell": 4, "ball": 4, "ball p": 4, "dirichlet": 4, "orthogonal": 64,
           "orthogonal m": 64, "multivariate_normal": 16, "multivariate_normal eigh": 64, "multivariate_normal svd": 64}


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers(name):
    with mode(True, False):
        same(SAMPLERS[name](random, random.key(7)), SAMPLERS[name](jax.random, jax.random.key(7)), ROUNDED.get(name, 0))


#: one sampler of each way of drawing, in the other modes
OTHER_MODES = ["bits", "bits8", "bits16", "bits32", "uniform", "randint", "randint u8", "bernoulli", "normal", "gamma",
               "permutation int", "choice p", "choice p once", "choice once", "choice", "categorical", "poisson", "truncated_normal", "rademacher", "geometric"]


@pytest.mark.parametrize("partitionable, x64", MODES[1:])
@pytest.mark.parametrize("name", OTHER_MODES)
def test_samplers_in_other_modes(name, partitionable, x64):
    with mode(partitionable, x64):
        same(SAMPLERS[name](random, random.key(7)), SAMPLERS[name](jax.random, jax.random.key(7)))


@pytest.mark.parametrize("partitionable", [True, False])
def test_64_bit_values(partitionable):
    with mode(partitionable, True):
        for f in (lambda r, k: r.bits(k, (5,), np.uint64), lambda r, k: r.uniform(k, (5,), np.float64),
                  lambda r, k: r.randint(k, (5,), -2**40, 2**40, np.int64),
                  lambda r, k: r.normal(k, (5,), np.complex128),
                  lambda r, k: r.randint(k, (5,), 0, np.uint64(2**64 - 1), np.uint64)):
            same(f(random, random.key(7)), f(jax.random, jax.random.key(7)))


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_samplers_with_xla_bits(impl):
    for f in (lambda r, k: r.bits(k, (3,), np.uint8), lambda r, k: r.uniform(k, (3, 2)), lambda r, k: r.normal(k, (3,)),
              lambda r, k: r.split(k, 3), lambda r, k: r.permutation(k, 5)):
        same(f(random, random.key(7, impl=impl)), f(jax.random, jax.random.key(7, impl=impl)))
    with pytest.raises(NotImplementedError):
        random.poisson(random.key(0, impl=impl), 1.0)


# ---- under transformations -------------------------------------------------------------------------------------------

TRANSFORMED = {     # name -> function of (package, random module, key), keys being traced
    "jit": lambda m, r, k: m.jit(lambda k: r.normal(k, (3,)))(k),
    "jit split": lambda m, r, k: m.jit(lambda k: r.split(k, 3))(k),
    "jit key": lambda m, r, k: m.jit(r.key)(5),
    "jit raw": lambda m, r, k: m.jit(lambda k: r.split(k))(r.PRNGKey(5)),
    "vmap bits": lambda m, r, k: m.vmap(lambda k: r.bits(k, (3,)))(r.split(k, 4)),
    "vmap normal": lambda m, r, k: m.vmap(lambda k: r.normal(k, (3,)))(r.split(k, 4)),
    "vmap split": lambda m, r, k: m.vmap(r.split)(r.split(k, 4)),
    "vmap fold_in": lambda m, r, k: m.vmap(r.fold_in, (None, 0))(k, np.arange(4)),
    "vmap fold_in keys": lambda m, r, k: m.vmap(r.fold_in, (0, None))(r.split(k, 4), 3),
    "vmap key": lambda m, r, k: m.vmap(r.key)(np.arange(4)),
    "vmap wrap": lambda m, r, k: m.vmap(r.wrap_key_data, 1)(np.arange(6, dtype=np.uint32).reshape(2, 3)),
    "vmap data": lambda m, r, k: m.vmap(r.key_data)(r.split(k, 4)),
    "vmap twice": lambda m, r, k: m.vmap(m.vmap(lambda k: r.bits(k, (3,))))(r.split(k, (2, 2))),
    "vmap randint": lambda m, r, k: m.vmap(lambda k, n: r.randint(k, (3,), 0, n))(r.split(k, 4), np.arange(1, 5)),
    "vmap bound": lambda m, r, k: m.vmap(lambda n: r.uniform(k, (3,), maxval=n))(np.arange(4, dtype=F)),
    "vmap gamma": lambda m, r, k: m.vmap(lambda k: r.gamma(k, 0.5, (2,)))(r.split(k, 3)),
    "vmap permutation": lambda m, r, k: m.vmap(lambda k: r.permutation(k, 5))(r.split(k, 4)),
    "vmap categorical": lambda m, r, k: m.vmap(r.categorical)(r.split(k, 2), np.arange(6, dtype=F).reshape(2, 3)),
    "scan": lambda m, r, k: m.lax.scan(lambda k, _: tuple(reversed_pair(r.split(k))), k, None, length=3)[1],
    "scan keys": lambda m, r, k: m.lax.scan(lambda c, k: (c, r.uniform(k)), 0.0, r.split(k, 3))[1],
    "fori": lambda m, r, k: m.lax.fori_loop(0, 3, lambda i, k: r.fold_in(k, i), k),
    "while": lambda m, r, k: m.lax.while_loop(lambda c: c[1] < 3, lambda c: (r.split(c[0])[1], c[1] + 1), (k, 0))[0],
    "cond": lambda m, r, k: m.lax.cond(True, lambda k: r.split(k)[0], lambda k: k, k),
    "grad": lambda m, r, k: m.grad(lambda s: (r.normal(k, (3,)) * s).sum())(2.0),
    "grad uniform": lambda m, r, k: m.grad(lambda s: r.uniform(k, (3,), maxval=s).sum())(2.0),
    "grad truncated": lambda m, r, k: m.grad(lambda s: r.truncated_normal(k, -1.0, s, (3,)).sum())(2.0),
    "grad keys": lambda m, r, k: m.grad(lambda s, k: r.normal(k) * s)(2.0, k),
    "index": lambda m, r, k: r.split(k, 4)[2],
    "slice": lambda m, r, k: r.split(k, 4)[1:3],
    "reshape": lambda m, r, k: r.split(k, 4).reshape(2, 2),
    "concatenate": lambda m, r, k: m.numpy.concatenate([r.split(k), r.split(k, 3)]),
    "stack": lambda m, r, k: m.numpy.stack([k, r.split(k)[0]]),
    "where": lambda m, r, k: m.numpy.where(np.array([True, False]), r.split(k), k),
    "equal": lambda m, r, k: r.split(k) == r.split(k)[0],
    "ravel": lambda m, r, k: m.numpy.ravel(r.split(k, (2, 2))),
    "device_put": lambda m, r, k: m.device_put(k),
}


def reversed_pair(keys):
    return keys[1], keys[0]


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformed(name):
    f = TRANSFORMED[name]
    same(f(aot, random, random.key(7)), f(jax, jax.random, jax.random.key(7)), 4 if "grad" in name else 0)


@pytest.mark.parametrize("name", ["gamma", "loggamma", "beta", "t"])
def test_gradients_of_gamma_samplers(name):
    def g(m, r, k):
        args = (np.array([0.7, 2.5], F), F(1.5)) if name == "beta" else (np.array([0.7, 2.5], F),)
        return m.grad(lambda a: getattr(r, name)(k, a, *args[1:]).sum())(args[0])
    same(g(aot, random, random.key(7)), g(jax, jax.random, jax.random.key(7)), 64)


def test_random_gamma_grad():
    from aot.ops.gamma_grad import random_gamma_grad
    a, x = np.meshgrid(np.array([-1, 1e-3, 0.3, 1, 2.5, 20, 300], F), np.array([-1, 0, 1e-6, 0.5, 2, 10, 25, 400], F))
    got, want = random_gamma_grad(a, x), jax.lax.random_gamma_grad(a, x)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=2e-5, atol=1e-30)
    half = np.array([0.5, 2], np.float16)
    assert random_gamma_grad(half, half).dtype == np.float16
    with mode(True, True):
        args = np.array([0.3, 2.5, 40]), np.array([1.0, 0.1, 50])
        np.testing.assert_allclose(np.asarray(random_gamma_grad(*args)), np.asarray(jax.lax.random_gamma_grad(*args)), rtol=1e-12)


def test_batches_of_xla_bits_come_from_the_first_key():
    for m in (True, False):
        with mode(m, False):
            f = lambda m, r: m.vmap(lambda k: r.bits(k, (3,)))(r.split(r.key(1, impl="rbg"), 3))
            same(f(aot, random), f(jax, jax.random))


def test_statistics():
    """Not a comparison: the moments are those of the distributions."""
    k = random.key(0)
    x = np.asarray(random.normal(k, (20000,)))
    assert abs(x.mean()) < 0.03 and abs(x.std() - 1) < 0.03
    assert abs(np.asarray(random.gamma(k, 3.0, (2000,))).mean() - 3) < 0.2
    assert abs(np.asarray(random.poisson(k, 4.0, (5000,))).mean() - 4) < 0.15
    assert abs(np.asarray(random.binomial(k, 10.0, 0.3, (5000,))).mean() - 3) < 0.15


# ---- key reuse -------------------------------------------------------------------------------------------------------

REUSED = [lambda k: (random.normal(k), random.uniform(k)), lambda k: (random.split(k), random.bits(k)),
          lambda k: [random.randint(k, (), 0, 3) for _ in range(2)],
          lambda k: aot.jit(lambda k: random.normal(k) + random.uniform(k))(k),
          lambda k: aot.vmap(lambda k: random.normal(k) + random.uniform(k))(random.split(k)),
          lambda k: aot.grad(lambda x: x * random.normal(k) + random.normal(k))(1.0)]
FINE = [lambda k: [random.normal(s) for s in random.split(k)], lambda k: (random.fold_in(k, 1), random.normal(k)),
        lambda k: (random.normal(random.clone(k)), random.normal(k)),
        lambda k: (random.key_data(k), random.normal(k)), lambda k: [random.normal(random.key(0)) for _ in range(2)],
        lambda k: aot.lax.cond(True, lambda: random.normal(k), lambda: random.uniform(k)),
        lambda k: aot.lax.scan(lambda k, _: tuple(reversed_pair(random.split(k))), k, None, length=2),
        lambda k: random.multinomial(k, 5.0, np.ones(3, F) / 3), lambda k: random.gamma(k, 0.5)]


@pytest.mark.parametrize("i", range(len(REUSED)))
def test_key_reuse_is_found(i):
    REUSED[i](random.key(0))
    with aot.debug_key_reuse(True), pytest.raises(aot.errors.KeyReuseError, match="test_random.py"):
        REUSED[i](random.key(0))


@pytest.mark.parametrize("i", range(len(FINE)))
def test_key_use_is_allowed(i):
    with aot.debug_key_reuse(True):
        FINE[i](random.key(0))


# ---- the documented examples of random numbers, in the layout they were made with -------------------------------------

def test_documented_figures():
    key = random.key(42)
    assert str(key) == "Array((), dtype=key<fry>) overlaying:\n[ 0 42]"
    with mode(False, False):
        assert str(random.normal(key)) == str(random.normal(key)) == "-0.18471177"
        draws = []
        for _ in range(3):
            key, sub = random.split(key)
            draws.append(f"{random.normal(sub)}")
        assert draws == ["1.369469404220581", "-0.19947023689746857", "-2.298278331756592"]
        subkeys = random.split(random.key(42), 3)
        one_by_one = np.stack([random.normal(k) for k in subkeys])
        assert str(one_by_one) == "[-0.04838832  0.10796154 -1.2226542 ]"
        assert str(aot.vmap(random.normal)(subkeys)) == str(one_by_one)
        assert str(random.normal(random.key(42), shape=(3,))) == "[ 0.18693547 -1.2806505  -1.5593132 ]"


def test_64_bit_floats_need_the_option():
    with pytest.warns(UserWarning, match="float64"):
        assert random.uniform(random.key(0), (1000,), dtype=aot.numpy.float64).dtype == np.float32
    with mode(True, True):
        assert random.uniform(random.key(0), (1000,), dtype=aot.numpy.float64).dtype == np.float64


def test_public_names():
    public = [n for n in dir(jax.random) if not n.startswith("_")]
    assert [n for n in public if not hasattr(random, n)] == []


def test_jaxprs_show_captured_keys():
    key = random.key(0)
    shown = aot.make_jaxpr(lambda x: (random.key_data(key), x + 1.0))(1.0)
    assert "lambda a:key<fry>[] ;" in str(shown) and len(shown.consts) == 1
    assert "random_unwrap <key<fry>[]>" in str(aot.make_jaxpr(aot.jit(lambda: random.key_data(key)))())
