"""Special functions against real jax (value, dtype, weak type, derivative) and against scipy."""
import numpy as np
import pytest
import scipy.special

import aot
import aot.scipy.special as special
from tests.support import compare

SAMPLED = 3     # rows: one in 3, see conftest.py

F = np.float32
EDGES = np.array([.1, .5, -.3, .9, 1.5, -2.5, 0, -0., np.inf, -np.inf, np.nan, 3, -4, 12, 30], F)
PAIRS = [v.ravel() for v in np.meshgrid(EDGES, EDGES)]
COMPLEX = np.array([.3 + .2j, -1.5 + .5j, 2 - 1j], np.complex64)
pytestmark = pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value", "ignore:divide by zero")


def on(name, **static):
    return lambda m, lax: lambda *args: getattr(m.scipy.special, name)(*args, **static)


def slopes(name, count):
    return lambda m, lax: m.vmap(m.grad(getattr(m.scipy.special, name), tuple(range(count))))


UNARY = ("gammaln gammasgn loggamma gamma factorial digamma logit expit entr i0e i1e i1 erf erfc erfinv erfcx dawsn ndtr "
         "ndtri log_ndtr sici spence fresnel wofz").split()
#: jax has no finite value there, or a wrong derivative
APART = {"exp1": EDGES, "expi": EDGES[EDGES != 0], "i0": EDGES}


def together(names, make=on):
    """Several functions compiled as one, which is many times faster than one by one."""
    return lambda m, lax: m.jit(lambda *args: [make(n)(m, lax)(*args) for n in names])


@pytest.mark.parametrize("names", [UNARY[::3], UNARY[1::3], UNARY[2::3]])
def test_unary(names):
    compare(together(names), EDGES)
    compare(together(names), 1.5)
    smooth = [n for n in names if n not in ("gammasgn", "sici", "fresnel", "spence")]
    compare(together(smooth, lambda n: slopes(n, 1)), EDGES[np.isfinite(EDGES)], rtol=1e-3)


def test_unary_apart():
    for name, x in APART.items():
        compare(on(name), x)
    compare(together([*APART, "spence"], lambda n: slopes(n, 1)), EDGES[[0, 1, 3]], rtol=1e-3)


@pytest.mark.parametrize("name", [*UNARY, *APART])
def test_complex_numbers(name):
    compare(on(name), COMPLEX)


@pytest.mark.parametrize("name", ["gamma", "erfcx", "entr", "logit"])
def test_other_types(name):
    for x in (np.array([1, 2], np.int32), [1., 2.], 1.5):
        compare(on(name), x)
    compare(on(name), EDGES[:6].astype(np.float16), rtol=2e-2, atol=2e-2)


BINARY = ("beta betaln comb xlogy xlog1py rel_entr kl_div boxcox boxcox1p gammainc gammaincc poch zeta owens_t").split()


@pytest.mark.parametrize("names", [BINARY[:7], BINARY[7:]])
def test_binary(names):
    compare(together(names), *PAIRS, rtol=3e-4)
    compare(together(names, lambda n: slopes(n, 2)), np.array([.5, 1.5, 3, 9], F), np.array([.7, 2.5, 1.2, 10], F), rtol=1e-3)


@pytest.mark.parametrize("name", ["beta", "xlogy", "owens_t"])
def test_binary_types(name):
    compare(on(name), 1.5, 2.5)
    compare(on(name), np.ones((2, 3), F), np.ones(3, np.int32))
    compare(on(name), [1., 2.], 1.)


def test_pairs_of_results():
    x = np.array([.1, .5, 1, 3, 5, 12, -2], F)
    for name in ("sici", "fresnel"):
        compare(lambda m, lax: lambda v: m.jvp(getattr(m.scipy.special, name), (v,), (v,)), x)
    with aot.enable_x64(True):
        v = np.array([.01, .5, 1.7, 3.9, 4.1, 9.5, 100, 40000.])
        np.testing.assert_allclose(special.sici(v), scipy.special.sici(v), rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(special.fresnel(v), scipy.special.fresnel(v), rtol=1e-12)


ORDERS = np.array([0, 1, 2, 5, 1, 3], np.int32)
ABOVE = np.array([.1, .5, 1, 1.5, 3, 10, 50, np.nan], F)


def test_exponential_integrals():
    for n in (0, 1, 2, 5, 6000):
        compare(lambda m, lax: lambda x: m.scipy.special.expn(n, x), ABOVE)
    compare(on("expn"), ORDERS, ABOVE[:6])
    compare(lambda m, lax: m.vmap(m.grad(lambda x: m.scipy.special.expn(2, x))), ABOVE[:6])
    assert np.array_equal(special.expn(np.array([0, 1, 2, 3]), F(0)), [np.inf, np.inf, 1, .5])
    assert special.expi(F(0)) == -np.inf


def test_confluent_hypergeometric_function():
    a, b, x = [v.ravel() for v in np.meshgrid(np.array([.5, 1, 2, -1.5, 3.5], F), np.array([.7, 1.2, 2.5, 3], F),
                                              np.array([.1, -.5, 2, 30, -20, -90], F))]
    np.testing.assert_allclose(special.hyp1f1(a, b, x), scipy.special.hyp1f1(*(v.astype(float) for v in (a, b, x))), 3e-4, 1e-30)
    compare(slopes("hyp1f1", 3), *(v[x > 0][::3] for v in (a, b, x)), rtol=1e-2, atol=1e-2)


def test_gauss_hypergeometric_function():
    args = [v.ravel() for v in np.meshgrid(np.array([.5, 1, 2, -2, -1.5], F), np.array([.7, 1, 2, -3], F),
                                           np.array([.9, 1.5, 3, 4.25], F), np.array([.1, -.5, .6, .95, 1.], F))]
    compare(on("hyp2f1"), *args, rtol=1e-3, atol=1e-3)
    compare(slopes("hyp2f1", 4), *np.array([[.5, 1, 2], [.7, 1.5, .3], [.9, 1.5, 3], [.1, .5, -.4]], F), rtol=1e-2, atol=1e-3)


def test_spherical_harmonics_and_bessel_functions():
    order, theta = np.array([0, 1, -1, 3, 2, 0], np.int32), np.array([.1, .5, 1, 1.5, 2, 3], F)
    compare(on("sph_harm_y"), ORDERS, order, theta, theta * 2)
    compare(lambda m, lax: m.jit(on("sph_harm_y", n_max=6)(m, lax)), ORDERS, order, theta, theta * 2)
    z = np.array([.1, 1, 5, 10], F)
    compare(on("bessel_jn", v=3), z)
    compare(lambda m, lax: m.vmap(m.grad(lambda z: m.scipy.special.bessel_jn(z, v=3, n_iter=30)[2])), z)


def test_the_rest():
    x = np.array([2., 5], F)
    for n in (0, 1, 2, 3, 10, 21):
        compare(lambda m, lax: lambda: m.scipy.special.bernoulli(n))
    compare(on("multigammaln", d=3), x)
    compare(lambda m, lax: lambda x: m.scipy.special.polygamma(2, x), x)
    compare(lambda m, lax: lambda x: m.scipy.special.polygamma(2., x), x)         # both raise
    compare(lambda m, lax: lambda x: m.scipy.special.betainc(x, 2, .5), x)
    compare(lambda m, lax: lambda x: m.scipy.special.zeta(x), x)                  # both raise
    compare(on("comb", repetition=True), x, 2)
    compare(on("factorial", exact=True), x)                                       # both raise
    compare(lambda m, lax: lambda x: m.scipy.special.log_ndtr(x, 5), EDGES)
    compare(lambda m, lax: lambda x: (m.scipy.special.softmax(x, axis=0), m.scipy.special.log_softmax(x, axis=0),
                                      m.scipy.special.logsumexp(x)), EDGES[:5])


@pytest.mark.parametrize("name, x", [
    ("gamma", [-2.5, .3, 4.7]), ("gammaln", [-2.5, .3, 40]), ("erfcx", [-3., .5, 30]), ("dawsn", [.5, 4, 9]),
    ("ndtri", [1e-12, .03, .5, .999]), ("log_ndtr", [-30, -5, 2, 9.]), ("exp1", [.2, 1.1, 20]), ("expi", [-2, .3, 5, 70]),
    ("spence", [.1, .9, 1.7, 5]), ("wofz", [1 + 2j, -2 - .5j]), ("i0", [.1, 9]), ("digamma", [.1, 9])])
def test_double_precision(name, x):
    with aot.enable_x64(True):
        x = np.array(x)
        got, want = getattr(special, name)(x), getattr(scipy.special, name)(x)
        np.testing.assert_allclose(got, want, rtol=1e-9 if name == "log_ndtr" else 1e-11)


def test_vmap_is_a_loop():
    for name in ("gamma", "ndtri", "expi", "spence", "dawsn"):
        f = getattr(special, name)
        np.testing.assert_allclose(aot.vmap(f)(ABOVE[:6] / 20), [f(v) for v in ABOVE[:6] / 20], rtol=1e-6)
