"""Linear solves and roots that are differentiated implicitly, against real jax."""
import numpy as np
import pytest

from tests.support import compare

F = np.float32
A = np.array([[3., 1, 0], [1, 4, .5], [.2, .5, 5]], F)
B = np.array([1., 2, 3], F)


def dense(symmetric=False):
    """The solver forms the matrix."""
    def make(m, lax):
        np_ = m.numpy
        solve = lambda mv, b: np_.linalg.solve(m.jacobian(mv)(b), b)
        return lambda a, b: lax.custom_linear_solve(lambda x: np_.dot(a, x), b, solve, solve, symmetric=symmetric)
    return make


def iterating(m, lax):
    """The solver is a while loop, which has no reverse mode of its own."""
    def solve(mv, b):
        return lax.while_loop(lambda c: c[0] < 60, lambda c: (c[0] + 1, c[1] + .15 * (b - mv(c[1]))), (0, b * 0))[1]
    return lambda a, b: lax.custom_linear_solve(lambda x: m.numpy.dot(a, x), b, solve, solve)


@pytest.mark.parametrize("solver", [dense(), iterating], ids=["dense", "iterating"])
def test_linear_solve(solver):
    for transform in ("jit", "jacfwd", "jacrev"):
        compare(lambda m, lax: getattr(m, transform)(solver(m, lax), **{} if transform == "jit" else {"argnums": (0, 1)}), A, B)
    compare(lambda m, lax: m.hessian(lambda a, b: solver(m, lax)(a, b).sum(), (0, 1)), A, B)
    compare(lambda m, lax: m.vmap(solver(m, lax), (0, None)), np.stack([A, A * 2]), B)
    compare(lambda m, lax: m.vmap(m.grad(lambda a, b: solver(m, lax)(a, b).sum()), (None, 0)), A, np.stack([B, B * 2, -B]))


def test_symmetric_and_auxiliary():
    compare(lambda m, lax: m.jacrev(lambda a, b: dense(True)(m, lax)(a + a.T, b), (0, 1)), A, B)
    solve = lambda mv, b: (b / 2, b.sum())
    run = lambda m, lax: lambda b: lax.custom_linear_solve(lambda x: x * 2, b, solve, solve, has_aux=True)
    compare(run, B)
    compare(lambda m, lax: m.grad(lambda b: run(m, lax)(b)[0].sum()), B)
    compare(lambda m, lax: lambda b: lax.custom_linear_solve(lambda x: x[:2], b, lambda mv, b: b), B)         # both raise
    compare(lambda m, lax: m.grad(lambda b: lax.custom_linear_solve(lambda x: x, b, lambda mv, b: b).sum()), B)


def cube_root(m, lax):
    newton = lambda f, x: lax.while_loop(lambda c: c[0] < 30, lambda c: (c[0] + 1, c[1] - f(c[1]) / (3 * c[1]**2)), (0, x))[1]
    return lambda c: lax.custom_root(lambda x: x**3 - c, m.numpy.ones_like(c), newton, lambda g, y: y / g(1.))


def system(m, lax):
    np_ = m.numpy

    def f(a, b):
        def solve(f, x):
            x = lax.fori_loop(0, 50, lambda i, x: x - .15 * f(x), x)
            return x, np_.sum(f(x)**2)
        root = lambda x: np_.dot(a, x) + .1 * np_.tanh(x) - b
        return lax.custom_root(root, b * 0, solve, lambda g, y: np_.linalg.solve(m.jacobian(g)(y), y), has_aux=True)[0]
    return f


def test_roots():
    compare(cube_root, F(5))
    compare(lambda m, lax: m.jit(m.grad(m.grad(cube_root(m, lax)))), F(5))
    compare(lambda m, lax: m.vmap(m.grad(cube_root(m, lax))), np.array([2., 5, 8], F))
    compare(system, A, B)
    compare(lambda m, lax: m.jacfwd(system(m, lax), (0, 1)), A, B)
    compare(lambda m, lax: m.jit(m.vmap(m.jacrev(system(m, lax), (0, 1)), (None, 0))), A, np.stack([B, 2 * B]))
