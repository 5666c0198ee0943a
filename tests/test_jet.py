"""Taylor mode against nested forward mode, and against jax's jet where it has a rule."""
import numpy as np
import pytest

import aot
import aot.numpy as jnp
from aot import lax
from aot.experimental.jet import jet
from tests.support import wide

SAMPLED = 3     # rows: one in 3, see conftest.py

jax_jet = pytest.importorskip("jax.experimental.jet").jet

F = np.float32
X = np.array([[.3, .7], [1.2, .4]])
SERIES = [X * .5 + .1, X * -.3, X + .2]

UNARY = """abs acosh asin asinh atan atanh cbrt ceil cos cosh digamma erf erf_inv erfc exp exp2 expm1 floor lgamma log log1p logistic
           neg rsqrt sign sin sinh sqrt square tan tanh""".split()


def nested(f, primals, series):
    """Derivatives of t -> f(sum h_k t^k / k!) by nested jvp."""
    order = len(series[0])
    fact = np.cumprod([1, *range(1, order + 1)])

    def along(t):
        return f(*[x + sum(h * t ** k / fact[k] for k, h in enumerate(hs, 1)) for x, hs in zip(primals, series)])
    g, out = along, []
    for _ in range(order):
        g = (lambda g: lambda t: aot.jvp(g, (t,), (1.,))[1])(g)
        out.append(g(0.))
    return f(*primals), out


def check(f, *args, series=None, rtol=1e-8):
    with aot.enable_x64(True):
        series = series or [[np.asarray(a) * .5 + .1 * i, np.asarray(a) * -.3, np.asarray(a) + .2] for i, a in enumerate(args)]
        for call in (f, aot.jit(f)):
            y, ys = jet(call, args, series)
            want, wants = nested(f, args, series)
            np.testing.assert_allclose(wide(y), wide(want), rtol=rtol)
            for a, b in zip(ys, wants, strict=True):
                np.testing.assert_allclose(wide(a), wide(b), rtol=rtol, atol=1e-9)


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    x = X + 1 if name == "acosh" else X * .6 if name in ("asin", "atanh", "erf_inv") else X
    check(getattr(lax, name), x)


#  name, function, arguments
ROWS = [
    ("add", lax.add, X, X + 1), ("sub", lax.sub, X, X + 1), ("mul", lax.mul, X, X + 1), ("div", lax.div, X, X + 1),
    ("max", lax.max, X, X[::-1]), ("pow", lax.pow, X, X + 1), ("atan2", lax.atan2, X, X + 1),
    ("integer_pow", lambda x: x ** 3 + x ** -2, X), ("dot", lambda a, b: a @ b, X, X + 1), ("reduce_sum", lambda x: x.sum(0), X),
    ("reduce_max", lambda x: x.max(0), X), ("reduce_prod", lambda x: x.prod(0), X), ("cumsum", lambda x: jnp.cumsum(x, 0), X),
    ("cumprod", lambda x: jnp.cumprod(x, 0), X), ("sort", lambda x: jnp.sort(jnp.sin(x), 0), X),
    ("gather", lambda x: jnp.sin(x)[np.array([1, 0, 1])], X), ("scatter", lambda x: jnp.zeros((3, 2)).at[1:].add(jnp.exp(x)), X),
    ("where", lambda x: jnp.where(x > .5, jnp.sin(x), x * x), X), ("reshape", lambda x: (jnp.exp(x).T.reshape(-1))[::2], X),
    ("softmax", lambda x: aot.nn.softmax(x), X), ("mlp", lambda x, w: jnp.tanh(jnp.tanh(x @ w) @ w + x), X, X - .5),
    ("scan", lambda x: lax.scan(lambda c, r: (jnp.sin(c) + r, c * r), x[0], x)[1], X),
    ("cond", lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), X),
    ("while", lambda x: lax.fori_loop(0, jnp.asarray(3), lambda i, c: c * jnp.sin(c), x), X),
    ("checkpoint", lambda x: aot.checkpoint(lambda v: jnp.sin(jnp.exp(v)))(x), X),
    ("relu", aot.nn.relu, X - .5), ("gelu", aot.nn.gelu, X), ("logsumexp", lambda x: aot.nn.logsumexp(x, -1), X),
]


@pytest.mark.parametrize("f, args", [pytest.param(r[1], r[2:], id=r[0]) for r in ROWS])
def test_functions(f, args):
    check(f, *args, rtol=1e-6)


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_against_jax(order):
    import jax.numpy as jjnp
    h = [F(.3) * (k + 1) for k in range(order)]
    ours = jet(lambda x: jnp.sin(jnp.exp(x) / (1 + x ** 2)), (F(.5),), (h,))
    theirs = jax_jet(lambda x: jjnp.sin(jjnp.exp(x) / (1 + x ** 2)), (F(.5),), (h,))
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-3)


def test_documented_figures():
    h0, h1, h2 = 0.5 ** 3., 3. * 0.5 ** 2., 6. * 0.5
    f0, (f1, f2) = jet(jnp.sin, (h0,), ((h1, h2),))
    np.testing.assert_allclose([f0, f1, f2], [0.12467473, 0.7441479, 2.9064622], rtol=1e-6)


def test_trees_and_errors():
    out, series = jet(lambda d: {"a": d["x"] * d["y"]}, ({"x": F(2), "y": F(3)},), ([{"x": F(1), "y": F(0)}],))
    assert float(out["a"]) == 6 and float(series["a"][0]) == 3
    for primals, series in (((1.,), ()), ((1., 2.), ([1.], [1., 2.])), ((X,), ([1.],))):
        with pytest.raises(ValueError):
            jet(lambda *xs: xs[0], primals, series)
