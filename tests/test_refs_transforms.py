"""Derivatives and batches of functions with references, against real jax, forward mode and finite differences."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aot
import aot.lax
import aot.numpy
from tests.support import compare, table

SAMPLED = 14
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
V = np.arange(1, 4, dtype=np.float32)
ALL = slice(None)
A2, A3 = np.array([0, 1]), np.array([2, 0, 1])

def plain(m, lax, x):
    r = m.new_ref(x)
    r[0] = r[1] * x[2]
    r[2] *= 2.
    return (r[...] ** 2).sum()


def looped(m, lax, x):
    r = m.new_ref(x)

    def body(c, i):
        r[i] = r[i] * c + x[i]
        return c + r[i], None
    c, _ = lax.scan(body, 1., m.numpy.arange(3))
    return c + (r[...] ** 2).sum()


def looped_inside(m, lax, x):
    def body(c, y):
        r = m.new_ref(y)
        r[...] *= c
        q = m.new_ref(m.numpy.zeros(2))
        q[1] = r[...] * y
        return q[1] + c, q[...]
    c, ys = lax.scan(body, x[0], x)
    return c + (ys ** 2).sum()


def branched(m, lax, x):
    r = m.new_ref(x)
    lax.cond(x[0] < 2, lambda: r.__setitem__(0, r[1] * x[2]), lambda: r.__setitem__(1, x[0] * x[1]))
    return (r[...] ** 2).sum()


def whiled(m, lax, x):
    r = m.new_ref(x)
    lax.while_loop(lambda i: i < 3, lambda i: (r.__setitem__(i, r[i] * x[i]), i + 1)[1], 0)
    return (r[...] ** 2).sum()


def constant_first(m, lax, x):
    r = m.new_ref(m.numpy.zeros(3))
    r[...] = x * x
    return (r[...] ** 2).sum()


def added(m, lax, x):
    r = m.new_ref(x)
    m.ref.addupdate(r, 0, x[1] * 2)
    return m.ref.swap(r, 1, x[0]) + (r[...] ** 2).sum()


def frozen(m, lax, x):
    r = m.new_ref(x)
    r[0] = x[1] * x[2]
    return (m.freeze(r) ** 3).sum()


def gathered(m, lax, x):
    r = m.new_ref(x)
    i = m.numpy.array([2, 0, 2])
    r[i[:2]] = r[i[1:]] * x[:2]
    return (r[i] ** 2).sum()


def with_integers(m, lax, x):
    n = m.new_ref(m.numpy.arange(3))
    n[...] += 1
    r = m.new_ref(x)
    r[0] = r[n[0]] * n[1]
    return (r[...] ** 2).sum()


def jitted_inside(m, lax, x):
    r = m.new_ref(x)
    m.jit(lambda r, x: r.__setitem__(0, r[1] * x[2]))(r, x)
    m.jit(lambda x: r.__setitem__(1, r[0] * x[2]))(x)
    return (r[...] ** 2).sum()


def rematted(m, lax, x):
    r = m.new_ref(x)
    m.checkpoint(lambda x: r.__setitem__(0, m.numpy.sin(r[1] * x[2])))(x)
    return m.checkpoint(lambda x: plain(m, lax, x))(m.numpy.sin(x)) + (r[...] ** 2).sum()


FUNCTIONS = [plain, looped, looped_inside, branched, constant_first, added, frozen, gathered, with_integers, jitted_inside, rematted]
WAYS = {"grad": lambda m, f: m.grad(f), "jit_grad": lambda m, f: m.jit(m.grad(f)), "grad_jit": lambda m, f: m.grad(m.jit(f)),
        "jvp": lambda m, f: lambda x: m.jvp(f, (x,), (x + 1,)), "linearize": lambda m, f: lambda x: m.linearize(f, x)[1](x),
        "vmap": lambda m, f: lambda x: m.vmap(f)(m.numpy.stack([x, x * 3])),
        "vmap_jit": lambda m, f: lambda x: m.vmap(m.jit(f))(m.numpy.stack([x, x * 3])),
        "vmap_grad": lambda m, f: lambda x: m.vmap(m.grad(f))(m.numpy.stack([x, x * 3])),
        "remat": lambda m, f: m.grad(m.checkpoint(f))}
#: what jax refuses; and functions whose gradients it gets wrong: finite differences say so
NOT_IN_JAX = {("vmap", "branched"), ("vmap_jit", "branched"), ("vmap_grad", "branched"), ("remat", "branched"),
              ("remat", "constant_first")} | {
                  (way, f) for way in ("grad", "jit_grad", "grad_jit", "linearize", "vmap_grad", "remat")
                  for f in ("looped_inside", "rematted")}


@table(*[(f"{way}-{f.__name__}", lambda m, lax, f=f, w=w: w(m, lambda x: f(m, lax, x)), V) for way, w in WAYS.items()
         for f in FUNCTIONS if (way, f.__name__) not in NOT_IN_JAX],
       ("jvp-while", lambda m, lax: lambda x: m.jvp(lambda x: whiled(m, lax, x), (x,), (x,)), V),
       ("vmap-while", lambda m, lax: lambda x: m.vmap(lambda x: whiled(m, lax, x))(m.numpy.stack([x, x + 1])), V),
       ("grad-while", lambda m, lax: m.grad(lambda x: whiled(m, lax, x)), V))
def test_transforms(call, args):
    compare(call, *args)


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_gradients(f):
    """As forward mode has them."""
    g = lambda x: f(aot, aot.lax, x)
    want = [aot.jvp(g, (V,), (e,))[1] for e in np.eye(3, dtype=np.float32)]
    for way in ("grad", "jit_grad", "grad_jit", "remat"):
        np.testing.assert_allclose(WAYS[way](aot, g)(V), want, rtol=1e-5)
    np.testing.assert_allclose(WAYS["vmap_grad"](aot, g)(V)[0], want, rtol=1e-5)
    np.testing.assert_allclose(aot.vmap(aot.jit(g), in_axes=1)(np.stack([V, V * 3], 1)), [g(V), g(V * 3)], rtol=1e-6)


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_second_derivatives(f):
    """jax has no forward derivative of the backward pass of these."""
    g = lambda x: f(aot, aot.lax, x)
    hessian, column = aot.hessian(g)(V), aot.jvp(aot.grad(g), (V,), (V,))[1]
    step = np.float32(1e-2)
    ahead, behind = aot.grad(g)(V + step * V), aot.grad(g)(V - step * V)
    np.testing.assert_allclose(hessian @ V, column, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(column, (ahead - behind) / (2 * step), rtol=3e-2, atol=2.)


@pytest.mark.parametrize("way", ["vmap", "vmap_jit", "vmap_grad"])
def test_vmap_of_branches(way):
    f = lambda x: branched(aot, aot.lax, x)
    each = aot.grad(f) if way == "vmap_grad" else f
    got = WAYS[way](aot, f)(V)
    np.testing.assert_allclose(got, np.stack([each(V), each(V * 3)]), rtol=1e-6)


def plumbed(write, closed):
    """The gradient of a function that also writes into a reference."""
    def build(m, lax):
        def run(x, wrap):
            r = m.new_ref(m.numpy.zeros(3))

            def f(x, r):
                r[...] = write(lax, x)
                return (x ** 2).sum()
            g = m.grad((lambda x, q: f(x, r)) if closed else f)
            return wrap(g)(x, None if closed else r), r[...]
        return lambda x: (run(x, lambda g: g), run(x, m.jit))
    return build


@table(*[(f"{name}-{'closed' if c else 'argument'}", plumbed(w, c), V) for c in (False, True) for name, w in {
    "stop": lambda lax, x: lax.stop_gradient(x * 2), "active": lambda lax, x: x * 2}.items()])
def test_plumbing(call, args):
    compare(call, *args)


def stash(m):
    """The identity, which adds the cotangent that it gets to a reference."""
    @m.custom_vjp
    def f(r, x):
        return x

    def bwd(r, g):
        r[...] += g
        return None, g
    f.defvjp(lambda r, x: (x, r), bwd)
    return f


def stashed(loss, way):
    def build(m, lax):
        def run(x):
            r = m.new_ref(m.numpy.zeros_like(x))
            f = lambda x, r: loss(m, lax, stash(m), x, r)
            g = {"grad": lambda: m.grad(f), "grad_jit": lambda: m.grad(m.jit(f)), "jit_grad": lambda: m.jit(m.grad(f))}[way]()
            return g(x, r), r[...]
        return run
    return build


@table(*[(f"{name}-{way}", stashed(f, way), x) for way in ("grad", "grad_jit", "jit_grad") for name, (f, x) in {
    "plain": (lambda m, lax, s, x, r: m.numpy.sin(s(r, x * 2)).sum(), V),
    "scan": (lambda m, lax, s, x, r: lax.scan(lambda c, _: (m.numpy.sin(s(r, c)), None), x, None, length=3)[0], np.float32(1)),
    "cond": (lambda m, lax, s, x, r: lax.cond(x > 0, lambda x: s(r, x) ** 2, lambda x: x, x), np.float32(3)),
    "jit": (lambda m, lax, s, x, r: m.jit(lambda x, r: s(r, x ** 2))(x, r), np.float32(3))}.items()])
def test_cotangents_written_to_a_reference(call, args):
    compare(call, *args)


def custom_primal(m, lax):
    @m.custom_vjp
    def f(r, x):
        r[...] += x
        return x * 2
    f.defvjp(lambda r, x: (f(r, x), None), lambda _, g: (None, g))
    r = m.new_ref(np.float32(1))
    return lambda: (f(r, np.float32(3)), r[...], m.jit(f)(r, np.float32(1)), r[...], m.grad(lambda x: f(r, x))(2.), r[...])


def custom_forward(m, lax):
    @m.custom_jvp
    def f(r, x):
        return x * r[...]

    @f.defjvp
    def rule(primals, tangents):
        return f(*primals), tangents[1] * 10
    return lambda x: (f(m.new_ref(2.), x), m.jvp(lambda x: f(m.new_ref(2.), x), (x,), (x,)), m.grad(lambda x: f(m.new_ref(2.), x))(x))


@table(("vjp", custom_primal), ("jvp", custom_forward, np.float32(3)))
def test_custom_rules(call, args):
    compare(call, *args)


def mapping(f, in_axes: Any = 0):
    def build(m, lax):
        def run(x, *rest):
            r = m.new_ref(x)
            return m.vmap(lambda *xs: f(m, lax, *xs), in_axes=in_axes)(r, *rest), r[...]
        return run
    return build


def set_at(i): return lambda m, lax, r, x: r.__setitem__(i, x)


@table(("arg", mapping(lambda m, lax, r, x: r.__setitem__(..., r[...] + x)), V, V),
       ("arg-jit", lambda m, lax: m.jit(mapping(lambda m, lax, r, x: r.__setitem__(..., r[...] + x))(m, lax)), V, V),
       ("other_axis", mapping(set_at((0, 1)), (1, 0)), X, V), ("last_axis", mapping(set_at((0, 1)), (-1, 0)), X, np.ones(4, "f")),
       ("unmapped_write", mapping(set_at(0), (None, 0)), V, V), ("closed", lambda m, lax: lambda x: (
           lambda r: m.vmap(lambda y: r.__setitem__(0, y))(x))(m.new_ref(x)), V),
       ("closed_add", lambda m, lax: lambda x: (lambda r: m.vmap(lambda y: m.ref.addupdate(r, 0, y))(x))(m.new_ref(x)), V),
       ("closed_read", lambda m, lax: lambda x: (lambda r: m.vmap(lambda y: r[...] + y)(x))(m.new_ref(x)), V),
       ("closed_at", lambda m, lax: lambda x: (lambda r: m.vmap(lambda i: r[i])(A3))(m.new_ref(x)), V),
       ("positions", mapping(lambda m, lax, r, i: (r[i], r.__setitem__(i, np.float32(1)))[0]), X[0], A2),
       ("many_positions", mapping(lambda m, lax, r, i: (r[i], r.__setitem__(i, r[i] + 1))[0]), X[0], np.array([[1, 0], [2, 2]])),
       ("row_positions", mapping(lambda m, lax, r, i: (r[:, i], r.__setitem__((ALL, i), r[:, i] + 1))[0]), X, A2),
       ("batch_late", lambda m, lax: m.vmap(lambda y: (lambda r: (r.__setitem__(0, y), r[...])[1])(m.new_ref(m.numpy.zeros(2)))), V),
       ("scan", mapping(lambda m, lax, r, x: lax.scan(lambda c, i: (c + r[i], r.__setitem__(i, c)), x, m.numpy.arange(3))[0]), X[0], V[:2]),
       ("returned", lambda m, lax: lambda x: m.vmap(lambda x: m.new_ref(x))(x)[...], V),
       ("freeze", lambda m, lax: m.vmap(lambda x: m.freeze(m.new_ref(x))), V),
       ("twice", lambda m, lax: m.vmap(m.vmap(lambda x: (lambda r: (r.__setitem__(1, x.sum()), r[...])[1])(m.new_ref(x)))), X))
def test_vmap(call, args):
    compare(call, *args)


def test_vmap_of_slices():
    """Traced starts of slices that are mapped, which jax refuses."""
    r = aot.new_ref(X[0])
    got = aot.vmap(lambda r, i: (r[aot.ds(i, 2)], r.__setitem__(aot.ds(i, 2), np.zeros(2, np.float32)))[0])(r, A3)
    assert got.tolist() == [[2, 3], [4, 5], [9, 10]]
    assert r[...].tolist() == [[0, 1, 0, 0], [0, 0, 6, 7], [8, 0, 0, 11]]


def test_jet_refuses():
    from aot.experimental import jet
    with pytest.raises(NotImplementedError, match="reference"):
        jet.jet(lambda x: plain(aot, aot.lax, x), (V,), ((V,),))
