"""Incomplete gamma and beta functions, and their derivatives, against real jax and scipy."""
import numpy as np
import pytest
import scipy.special

import aot
from aot import lax
from tests.support import compare, jax

SAMPLED = 2     # rows: one in 2, see conftest.py

F = np.float32
SHAPES = np.array([0, 1e-3, .1, .5, 1, 1.5, 3, 10, 50, 200, -1, np.inf, np.nan], F)
UNIT = np.array([0, 1e-3, .2, .5, .9, 1, 1.1, -.1, np.nan], F)


def grid(*axes):
    return [v.ravel() for v in np.meshgrid(*axes)]


@pytest.mark.parametrize("name", ["igamma", "igammac", "igamma_grad_a", "random_gamma_grad"])
def test_incomplete_gamma(name):
    compare(lambda m, lax: getattr(lax, name), *grid(SHAPES, SHAPES), atol=1e-6)
    compare(lambda m, lax: getattr(lax, name), F(2), F(3))
    compare(lambda m, lax: getattr(lax, name), np.array([2, 3], np.float16), np.array([1, 4], np.float16), rtol=1e-2)
    compare(lambda m, lax: m.vmap(getattr(lax, name), (0, None)), SHAPES[:5], F(2))
    compare(lambda m, lax: getattr(lax, name), np.array([1, 2], np.int32), np.array([1, 2], np.int32))


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma_derivatives(name):
    a, x = grid(np.array([.5, 1, 3, 10], F), np.array([.1, 1, 4, 20], F))
    compare(lambda m, lax: m.vmap(m.grad(getattr(lax, name), (0, 1))), a, x, atol=1e-6)
    compare(lambda m, lax: m.vmap(m.grad(m.grad(getattr(lax, name), 1), (1,))), a, x, atol=1e-5)


def test_betainc():
    a, b, x = grid(np.array([0, .1, .5, 1, 3, 50, -1, np.inf, np.nan], F),
                   np.array([0, .1, .5, 1, 3, 50, -1, np.inf, np.nan], F), UNIT)
    compare(lambda m, lax: lax.betainc, a, b, x, atol=1e-6)
    compare(lambda m, lax: m.vmap(m.grad(lax.betainc, 2)), *grid(a[[18, 30, 40]], b[[30, 40]], np.array([.1, .5, .8], F)))


def test_betainc_slopes_in_all_arguments():
    """jax has no derivative in a and b: compare with differences of scipy's function."""
    with aot.enable_x64(True):
        for args in ((2.5, 1.5, .3), (.5, 4., .9), (20., 30., .4)):
            got = aot.grad(lax.betainc, (0, 1, 2))(*map(np.float64, args))
            step = np.eye(3) * 1e-6
            want = [(scipy.special.betainc(*(args + h)) - scipy.special.betainc(*(args - h))) / 2e-6 for h in step]
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-8)


def test_double_precision_against_scipy():
    a, x = grid(np.array([.3, 2, 15, 80.]), np.array([.2, 3, 14, 90.]))
    with aot.enable_x64(True):
        np.testing.assert_allclose(lax.igamma(a, x), scipy.special.gammainc(a, x), rtol=1e-11)
        np.testing.assert_allclose(lax.igammac(a, x), scipy.special.gammaincc(a, x), rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(lax.betainc(a, x, .4), scipy.special.betainc(a, x, .4), rtol=1e-10, atol=1e-14)


def test_upper_half_of_products():
    i = np.random.RandomState(0).randint(-2**31, 2**31 - 1, 50).astype(np.int32)
    for dtype in (np.int32, np.uint32, np.int8, np.uint8, np.int16):
        compare(lambda m, lax: lax.mulhi, i.astype(dtype), i[::-1].astype(dtype))
    with aot.enable_x64(True):
        for dtype in (np.int64, np.uint64):
            v = np.frombuffer(np.random.RandomState(1).bytes(800), dtype)
            want = [(int(x) * int(y)) >> 64 for x, y in zip(v, v[::-1])]
            assert [int(g) for g in np.asarray(lax.mulhi(v, v[::-1]))] == want


def test_names_of_primitives():
    names = [n for n in dir(jax.lax) if n.endswith("_p") and hasattr(lax, n)]
    assert len(names) > 140
    assert all(isinstance(getattr(lax, n), aot.trace.Primitive) for n in names)
