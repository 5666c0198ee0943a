"""Distributions, ranks, modes and density estimates against real jax."""
import importlib

import numpy as np
import pytest

import aot
import aot.scipy.stats as stats
from tests.support import compare

SAMPLED = 3     # rows: one in 3, see conftest.py

jstats = pytest.importorskip("jax.scipy.stats")

F = np.float32
pytestmark = pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value", "ignore:divide by zero")
X = np.array([.3, -1, 0, .5, 1, 1.5, 3, 7, -4, np.nan, np.inf], F)
K = np.array([0, 1, 2, 3, 5, -1, 1.5], F)
Q = np.array([.01, .3, .5, .9, 0, 1, -.1, 1.1, np.nan], F)

#  distribution -> (points, shape parameters, whether loc and scale follow (0: none, 1: loc, 2: both))
CASES = {
    "bernoulli": (K, (F(.3),), 1), "beta": (X, (F(2), F(3)), 2), "betabinom": (K, (F(5), F(2), F(3)), 1),
    "binom": (K, (F(5), F(.3)), 1), "cauchy": (X[:10], (), 2), "chi2": (X, (F(3),), 2), "expon": (X, (), 2),
    "gamma": (X, (F(2.5),), 2), "gennorm": (X[:9], (F(1.5),), 0), "geom": (K, (F(.3),), 1), "gumbel_l": (X[:10], (), 2),
    "gumbel_r": (X, (), 2), "laplace": (X, (), 2), "logistic": (X, (), 2), "nbinom": (K, (F(4), F(.4)), 1),
    "norm": (X, (), 2), "pareto": (X, (F(1.5),), 2), "poisson": (K, (F(2.5),), 1), "t": (X, (F(4),), 2),
    "truncnorm": (X[:9], (F(-1), F(2)), 2), "uniform": (X, (), 2), "vonmises": (X, (F(2),), 0),
    "wrapcauchy": (X, (F(.4),), 0)}
NAMES = "logpdf pdf logpmf pmf cdf logcdf sf logsf ppf isf".split()


@pytest.mark.parametrize("name", CASES)
def test_distribution(name):
    """All functions of a distribution at once: compiling them one by one takes most of the time."""
    x, shapes, extra = CASES[name]
    names = [n for n in NAMES if hasattr(importlib.import_module(f"jax.scipy.stats.{name}"), n)]
    place = (F(.5 if extra == 2 else 1), F(1.5))[:extra]

    def run(m, lax):
        functions = [(getattr(getattr(m.scipy.stats, name), n), n) for n in names]
        more = lambda n: () if (name, n) in (("bernoulli", "cdf"), ("bernoulli", "ppf")) else place
        return m.jit(lambda x, q, *shapes: [f(q if n in ("ppf", "isf") else x, *shapes, *more(n)) for f, n in functions])
    compare(run, x, Q, *shapes, rtol=2e-4)
    log = next(n for n in names if n.startswith("log"))
    call = lambda m, lax: getattr(getattr(m.scipy.stats, name), log)
    compare(call, x, *shapes)
    compare(lambda m, lax: m.jit(m.vmap(m.grad(call(m, lax), tuple(range(1 + len(shapes)))), (0, *[None] * len(shapes)))),
            np.array([.3, .6], F) if log == "logpdf" else np.array([1, 2], F), *shapes, rtol=1e-3)


def test_every_module_has_jax_functions():
    for name in (n for n in stats.__all__ if n not in ("mode", "rankdata", "sem", "gaussian_kde")):
        theirs = importlib.import_module(f"jax.scipy.stats.{name}")
        for function in (n for n in vars(theirs) if not n.startswith("_")):
            assert hasattr(getattr(stats, name), function), f"{name}.{function}"


def of(name, function="logpdf"):
    return lambda m, lax: getattr(getattr(m.scipy.stats, name), function)


def test_vector_distributions():
    alpha, x = np.array([1., 2, 3], F), np.array([.2, .3, .5], F)
    for points in (x, x[:2], np.stack([x, x[::-1], x]).T, x * 2):
        compare(of("dirichlet"), points, alpha)
    compare(of("dirichlet", "pdf"), x, alpha)
    compare(of("dirichlet"), x, alpha[:1])                   # both raise
    compare(of("multinomial"), np.array([1, 2, 3]), 6, x)
    compare(of("multinomial", "pmf"), np.array([1, 2, 3]), 7, x)
    compare(of("multinomial"), x, 6, x)                      # both raise
    cov = np.array([[2, .5, 0], [.5, 1, .2], [0, .2, 3]], F)
    for mean, c in ((alpha, cov), (alpha, F(2)), (F(0), F(2)), (alpha, np.stack([cov, cov * 2]))):
        compare(of("multivariate_normal"), x, mean, c)
    compare(of("multivariate_normal", "pdf"), np.stack([x, alpha]), alpha, cov)
    compare(lambda m, lax: m.grad(of("multivariate_normal")(m, lax), (0, 1, 2)), x, alpha, cov, atol=1e-4)
    compare(of("multivariate_normal"), x, alpha, cov[:2])    # both raise


def test_poisson_entropy():
    compare(of("poisson", "entropy"), np.array([0, .5, 5, 20, 150], F), rtol=1e-3)


A = np.array([[3, 1, 2, 1], [1, 1, 5, 2], [3, 4, 2, 2]], F)


@pytest.mark.parametrize("axis", [0, 1, None])
def test_mode_and_sem(axis):
    for keepdims in (False, True):
        compare(lambda m, lax: lambda a: tuple(m.scipy.stats.mode(a, axis=axis, keepdims=keepdims)), A)
        compare(lambda m, lax: lambda a: m.scipy.stats.sem(a, axis=axis, keepdims=keepdims), A)
    compare(lambda m, lax: lambda a: m.scipy.stats.sem(a, axis=axis, nan_policy="omit"), np.where(A == 5, np.nan, A))
    compare(lambda m, lax: lambda a: m.scipy.stats.mode(a, axis=axis, nan_policy="omit"), A)     # both raise


@pytest.mark.parametrize("method", ["average", "min", "max", "dense", "ordinal", "other"])
def test_rankdata(method):
    for a, axis in ((A, None), (A, 1), (np.where(A == 5, np.nan, A), None)):
        compare(lambda m, lax: lambda a: m.scipy.stats.rankdata(a, method, axis=axis), a)


DATA = np.random.RandomState(0).randn(2, 15).astype(F)
POINTS = np.random.RandomState(1).randn(2, 6).astype(F)


@pytest.mark.parametrize("bw", [None, "silverman", .5, "other"])
def test_kernel_density(bw):
    kde = lambda m: m.scipy.stats.gaussian_kde
    compare(lambda m, lax: lambda d, p: kde(m)(d, bw)(p), DATA, POINTS)
    compare(lambda m, lax: m.jit(lambda d, p, w: kde(m)(d, bw, w).logpdf(p)), DATA, POINTS, np.arange(1, 16, dtype=F))
    compare(lambda m, lax: lambda d: (kde(m)(d[0], bw).integrate_box_1d(-1, 2), kde(m)(d, bw).integrate_gaussian(
        np.zeros(2, F), np.eye(2, dtype=F)), kde(m)(d, bw).integrate_kde(kde(m)(d[:, :7] + 1, bw))), DATA)
    compare(lambda m, lax: lambda d: kde(m)(d, bw).resample(m.random.key(0), (3,)), DATA)
    if bw == .5:
        compare(lambda m, lax: lambda d, p: m.grad(lambda d: kde(m)(d, bw).logpdf(p).sum())(d), DATA, POINTS, atol=1e-3)
        assert len(aot.tree_util.tree_leaves(stats.gaussian_kde(DATA))) == len(jstats.gaussian_kde(DATA).tree_flatten()[0])
