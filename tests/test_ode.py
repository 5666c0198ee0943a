"""odeint: solutions against scipy, derivatives against real jax and differences."""
import numpy as np
import pytest
import scipy.integrate

import aot
import aot.experimental.ode as ode
import aot.numpy as jnp
from tests.support import compare

pytest.importorskip("jax.experimental.ode")

F = np.float32
T = np.linspace(0, 2, 5).astype(F)
Y0 = np.array([1., .5], F)


def pendulum(m):
    return lambda y, t, damping, pull: m.numpy.stack([y[1], -damping * y[1] - pull * m.numpy.sin(y[0])])


def solve(m, f, *args, **options):
    return m.experimental.ode.odeint(f, *args, **{"rtol": 1e-5, "atol": 1e-6, **options})


def test_solutions():
    f = lambda y, t, a, b: [y[1], -a * y[1] - b * np.sin(y[0])]
    want = scipy.integrate.odeint(f, Y0, T, (.3, 2.), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(solve(aot, pendulum(aot), Y0, T, F(.3), F(2)), want, atol=2e-4)
    with aot.enable_x64(True):
        got = ode.odeint(pendulum(aot), Y0.astype(float), T.astype(float), .3, 2.)
        np.testing.assert_allclose(got, want, atol=1e-7)


def test_against_jax():
    run = lambda m: lambda y, t, a, b: solve(m, pendulum(m), y, t, a, b)
    compare(lambda m, lax: run(m), Y0, T, F(.3), F(2), atol=1e-4)
    compare(lambda m, lax: m.jit(m.grad(lambda *x: (run(m)(*x)**2).sum(), (0, 1, 2, 3))), Y0, T, F(.3), F(2), rtol=2e-3, atol=2e-3)
    compare(lambda m, lax: m.vmap(lambda b: run(m)(Y0, T, F(.3), b)), np.array([1., 2, 3], F), atol=1e-4)
    tree = lambda m: lambda y, t: {"a": y["b"], "b": -y["a"] * t}
    compare(lambda m, lax: lambda y, t: solve(m, tree(m), y, t), {"a": F(1), "b": np.ones(2, F)[0]}, T, atol=1e-4)


def test_closures_and_integer_arguments():
    def loss(m, k):
        f = lambda y, t, n: -k * y * n
        return solve(m, f, m.numpy.ones(3), T, 2)[-1].sum()
    assert abs(aot.grad(lambda k: loss(aot, k))(F(.5)) - 3 * -4 * np.exp(-2)) < 1e-3
    assert abs(aot.jit(aot.grad(lambda k: loss(aot, k)))(F(.5)) - 3 * -4 * np.exp(-2)) < 1e-3


def test_limits_and_errors():
    f = lambda y, t: y
    assert abs(float(solve(aot, f, jnp.ones(()), jnp.array([0., 1.]), hmax=.05)[-1]) - np.e) < 1e-3
    for bad in (lambda: ode.odeint(f, Y0, np.arange(3)), lambda: ode.odeint(f, Y0, T, "x"), lambda: ode.odeint(lambda y, t: (y,), Y0, T)):
        with pytest.raises(TypeError):
            bad()


def test_steps():
    y0, f0, t = Y0, -Y0, F(0)
    for name, args in (("runge_kutta_step", (lambda y, t: -y, y0, f0, t, F(.1))),
                       ("initial_step_size", (lambda y, t: -y, t, y0, 4, 1e-4, 1e-5, f0)),
                       ("optimal_step_size", (F(.1), F(.5))), ("mean_error_ratio", (y0, 1e-3, 1e-3, y0, f0))):
        compare(lambda m, lax: lambda: getattr(m.experimental.ode, name)(*[m.numpy.asarray(a) if isinstance(a, np.generic) else a for a in args]))
