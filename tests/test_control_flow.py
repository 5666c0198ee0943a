"""cond, switch, while, fori, scan, map, associative_scan, nested and under every transform, against real jax."""
import gc
import weakref

import numpy as np
import pytest

import aot
from aot.compile import cached
from tests.support import compare, table, total

F = np.float32
X = (np.arange(1, 7, dtype=F).reshape(2, 3) / 7)
W = np.array([.3, .2, .1], F)
WW = np.stack([W, W * 2])


def rnn(lax):
    def f(x, w):
        def body(c, r):
            c = lax.tanh(lax.add(lax.mul(c, w), r))
            return c, lax.sin(c)
        c, ys = lax.scan(body, lax.full((3,), 0.5, F), x)
        return lax.add(total(lax, lax.mul(c, c)), total(lax, ys))
    return f


def power(lax):
    return lambda x: lax.while_loop(lambda c: lax.lt(c[0], 5), lambda c: (lax.add(c[0], 1), lax.mul(c[1], lax.sin(c[1]))),
                                    (0, x))[1]


def doubling(lax):
    return lambda x: lax.while_loop(lambda c: lax.lt(c, F(10)), lambda c: lax.mul(c, F(2)), x)


def choice(lax):
    return lambda p, x, y: lax.cond(p, lambda a, b: lax.mul(a, lax.sin(b)), lambda a, b: lax.add(a, b), x, y)


def nested(lax):
    """cond inside a reversed scan."""
    def f(x):
        def body(c, r):
            c = lax.cond(lax.gt(total(lax, c), F(0.5)), lambda c: lax.mul(c, lax.sin(r)),
                         lambda c: lax.add(lax.mul(c, c), r), c)
            return c, lax.reduce_max(c, (0,))
        c, ys = lax.scan(body, lax.full((3,), 0.5, F), x, reverse=True)
        return lax.add(total(lax, c), total(lax, ys))
    return f


def while_in_scan(lax):
    """A while loop inside a scan; its trip count depends on an integer carry."""
    def f(x):
        def body(carry, r):
            n, c = carry
            c = lax.stop_gradient(lax.while_loop(lambda s: lax.lt(s[0], n), lambda s: (lax.add(s[0], 1), lax.mul(s[1], F(1.1))),
                                                 (0, c))[1])
            return (lax.add(n, 1), lax.add(lax.mul(c, r), r)), c
        (_, c), ys = lax.scan(body, (1, lax.full((3,), 0.5, F)), x)
        return lax.add(total(lax, c), total(lax, ys))
    return f


SEVEN = np.arange(7., dtype=F)


@table(
    ("scan", lambda m, lax: m.jit(rnn(lax)), X, W),
    ("grad of scan, eager", lambda m, lax: m.grad(rnn(lax), (0, 1)), X, W),
    ("grad of scan", lambda m, lax: m.jit(m.grad(rnn(lax), (0, 1))), X, W),
    ("hessian of scan", lambda m, lax: m.jit(m.hessian(rnn(lax), (0, 1))), X, W),
    ("reverse over forward", lambda m, lax: m.jit(m.jacrev(m.jacfwd(rnn(lax), 1), 1)), X, W),
    ("vmap of grad of scan", lambda m, lax: m.vmap(m.grad(rnn(lax), 1), (None, 0)), X, WW),
    ("grad of vmap of scan", lambda m, lax: m.grad(lambda x, w: total(lax, m.vmap(rnn(lax), (None, 0))(x, w)), (0, 1)), X, WW),
    ("jvp of scan", lambda m, lax: lambda x, w: m.jvp(rnn(lax), (x, w), (x, w)), X, W),
    ("linearize of scan", lambda m, lax: lambda x, w: m.linearize(rnn(lax), x, w)[1](x, w), X, W),
    ("scan unrolled", lambda m, lax: m.jit(lambda x: lax.scan(lambda c, r: (lax.add(c, r), c), F(0), x, unroll=3)), SEVEN),
    ("scan without xs", lambda m, lax: m.jit(lambda x: lax.scan(lambda c, _: (lax.sin(c), None), x, None, length=4)), X),
    ("scan of length 0", lambda m, lax: m.jit(lambda x: lax.scan(lambda c, r: (lax.add(c, r), r), F(0), x)), SEVEN[:0]),
    ("grad of scan of length 0",
     lambda m, lax: m.grad(lambda x: lax.scan(lambda c, r: (lax.mul(c, r), r), F(2), x)[0]), SEVEN[:0]),
    ("weak carry", lambda m, lax: lambda x: lax.scan(lambda c, r: (lax.add(c, r), c), 0., x), SEVEN),
    ("carry of another type", lambda m, lax: lambda x: lax.scan(lambda c, r: (lax.mul(r, r), c), np.int32(0), x), SEVEN),
    ("carry of another shape", lambda m, lax: lambda x: lax.scan(lambda c, r: (x, c), F(0), x), SEVEN),
    ("carry of another structure", lambda m, lax: lambda x: lax.scan(lambda c, r: ((c, c), c), F(0), x), SEVEN),
    ("while", lambda m, lax: m.jit(power(lax)), X),
    ("jvp of while", lambda m, lax: lambda x: m.jvp(power(lax), (x,), (x,)), X),
    ("jacobians of weak scalars", lambda m, lax: lambda x: [m.jacfwd(lax.sin)(x), m.jacrev(lax.sin)(x), m.hessian(lax.sin)(x)], 2.5),
    ("jacfwd of while", lambda m, lax: m.jacfwd(power(lax)), X[0]),
    ("grad of while", lambda m, lax: m.grad(lambda x: total(lax, power(lax)(x))), X),
    ("while under vmap of its predicate", lambda m, lax: m.vmap(doubling(lax)), np.array([1, 3, 20], F)),
    ("while predicate not bool", lambda m, lax: lambda x: lax.while_loop(lambda c: c, lambda c: c, x), F(1)),
    ("grad of fori", lambda m, lax: m.grad(lambda x: total(lax, lax.fori_loop(0, 4, lambda i, c: lax.mul(c, lax.cos(c)), x))), W),
    ("fori, dynamic", lambda m, lax: m.jit(lambda n, x: lax.fori_loop(0, n, lambda i, c: lax.mul(c, lax.cos(c)), x)), 3, W),
    ("fori, index used", lambda m, lax: lambda x: lax.fori_loop(2, 5, lambda i, c: lax.add(c, i), x), 1),
    *[(f"cond {p}", lambda m, lax: m.jit(choice(lax)), p, X, X) for p in (True, False)],
    *[(f"grad of cond {p}", lambda m, lax: m.jit(m.grad(lambda p, x, y: total(lax, choice(lax)(p, x, y)), (1, 2))), p, X, X)
      for p in (True, False)],
    ("grad of cond, eager", lambda m, lax: m.grad(lambda p, x, y: total(lax, choice(lax)(p, x, y)), (1, 2)), True, X, X),
    ("vmap of cond over predicate", lambda m, lax: m.vmap(choice(lax)), np.array([True, False]), X, X),
    ("vmap of cond over operand", lambda m, lax: m.vmap(choice(lax), (None, 0, None)), np.array(True), X, X[0]),
    ("grad of vmap of cond", lambda m, lax: m.grad(lambda x, y, p: total(lax, m.vmap(choice(lax))(p, x, y)), (0, 1)), X, X,
     np.array([True, False])),
    ("cond, unequal branches", lambda m, lax: lambda p, x: lax.cond(p, lambda v: v, lambda v: lax.reduce_sum(v, (0,)), x), True, X),
    ("cond, weak and strong", lambda m, lax: lambda p: lax.cond(p, lambda: 1., lambda: F(2)), True),
    ("switch", lambda m, lax: m.jit(m.grad(lambda x, i: total(lax, lax.switch(i, [lax.sin, lax.cos, lax.exp], x)))), X, 2),
    ("switch out of range", lambda m, lax: m.jit(lambda i, x: lax.switch(i, [lax.sin, lax.cos], x)), -3, X),
    ("vmap of switch", lambda m, lax: m.vmap(lambda x, i: lax.switch(i, [lax.sin, lax.cos, lax.exp], x)), X, np.array([0, 5])),
    ("associative_scan", lambda m, lax: m.jit(m.grad(lambda x: total(lax, lax.mul(lax.associative_scan(lax.add, x), x)))), SEVEN),
    ("associative_scan, reverse", lambda m, lax: lambda x: lax.associative_scan(lax.mul, x, reverse=True, axis=1), X),
    ("map", lambda m, lax: m.jit(m.grad(lambda x: total(lax, lax.map(lambda r: lax.mul(r, lax.sin(r)), x)))), X),
    ("map in batches", lambda m, lax: m.jit(lambda x: lax.map(lambda r: lax.mul(r, lax.sin(r)), x, batch_size=2)),
     np.arange(15., dtype=F).reshape(5, 3)),
    ("nested", lambda m, lax: m.jit(m.value_and_grad(nested(lax))), X),
    ("hessian of nested", lambda m, lax: m.jit(m.hessian(nested(lax))), X),
    ("vmap of grad of nested", lambda m, lax: m.jit(m.vmap(m.grad(nested(lax)))), np.stack([X, X + 1])),
    ("grad of while in scan", lambda m, lax: m.jit(m.grad(while_in_scan(lax))), X),
    ("jvp of while in scan", lambda m, lax: lambda x: m.jvp(while_in_scan(lax), (x,), (x,)), X),
)
def test_control_flow(call, args):
    compare(call, *args)


@pytest.mark.parametrize("name", ["reduce_sum", "reduce_max", "reduce_min", "reduce_prod"])
def test_reductions(name):
    x = np.array([[1, 2, 2], [0, 3, 0]], F)
    compare(lambda m, lax: m.jacrev(lambda x: getattr(lax, name)(x, (1,))), x)
    compare(lambda m, lax: m.jacfwd(m.jacrev(lambda x: getattr(lax, name)(x, (1,)))), X)
    compare(lambda m, lax: m.vmap(lambda x: getattr(lax, name)(x, (0,)), in_axes=1), X)
    compare(lambda m, lax: lambda x: getattr(lax, name)(x, (0, 0)), X)
    compare(lambda m, lax: lambda x: getattr(lax, name)(x, (0,)), np.zeros((0, 2), F))


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"])
@pytest.mark.parametrize("n", (1, 3, 40))
def test_cumulative(name, n):
    z = (np.sin(np.arange(2 * n)) + .1).astype(F).reshape(2, n)
    compare(lambda m, lax: m.jit(lambda x: getattr(lax, name)(x, 1, reverse=True)), z)
    compare(lambda m, lax: m.jit(m.jacrev(lambda x: getattr(lax, name)(x, 1))), z)
    compare(lambda m, lax: m.vmap(lambda x: getattr(lax, name)(x, 0)), z)


@table(
    ("argmax, nan first", lambda m, lax: lambda x: (lax.argmax(x, 1, np.int32), lax.argmin(x, 0, np.int32)),
     np.array([[1, np.nan, 3], [5, 5, 1]], F)),
    ("argmax of empty", lambda m, lax: lambda x: lax.argmax(x, 0, np.int32), np.zeros((0, 2), F)),
    ("argmax of bool", lambda m, lax: lambda x: lax.argmax(x, 0, np.int32), np.array([False, True, True])),
    ("general reduce", lambda m, lax: m.jit(lambda x: lax.reduce(x, F(1), lambda a, b: lax.add(lax.mul(a, b), lax.mul(a, b)),
                                                                 (1,))), X),
    ("monoid reduce", lambda m, lax: m.jit(lambda x: lax.reduce(x, F(1), lax.max, (1,))), X),
    ("reduce_and", lambda m, lax: lambda x: lax.reduce_and(x, (0,)), np.array([[1, 2], [3, 6]], np.int32)),
    ("reduce_xor", lambda m, lax: lambda x: lax.reduce_xor(x, (0,)), np.array([[1, 2], [3, 6]], np.uint8)),
)
def test_other_reductions(call, args):
    compare(call, *args)


# ---- bounds, lengths, carries at the edges -----------------------------------------------------------------------------------

def count(i, c): return c + 1


def with_numpy(call):
    """A row that also takes the numpy module."""
    def made(m, lax):
        import jax.numpy

        import aot.numpy
        return lambda: call(m, lax, aot.numpy if m is aot else jax.numpy)
    return made


I8, I32, U8 = np.int8, np.int32, np.uint8
EDGES = {
    "float bounds": lambda m, lax, np_: lax.fori_loop(0., 3., count, 0),
    "bool bounds": lambda m, lax, np_: lax.fori_loop(np.bool_(False), True, count, 0),
    "float and integer bounds": lambda m, lax, np_: lax.fori_loop(0, 3., count, 0),
    "bounds of two types": lambda m, lax, np_: lax.fori_loop(I8(0), I32(3), count, 0),
    "traced bounds of two types": lambda m, lax, np_: m.jit(lambda a, b: lax.fori_loop(a, b, count, 0))(I8(0), I32(3)),
    "Python and unsigned bounds": lambda m, lax, np_: lax.fori_loop(0, U8(3), count, 0),
    "Python and narrow bounds": lambda m, lax, np_: [lax.fori_loop(I8(0), 3, lambda i, c: c + i, I8(0)), m.jit(
        lambda k: lax.fori_loop(0, k, lambda i, c: i, I8(0)))(I8(3))],
    "index as carry of a narrow type": lambda m, lax, np_: lax.fori_loop(I8(0), I8(3), lambda i, c: i, I8(0)),
    "weak traced bound": lambda m, lax, np_: m.jit(lambda k: lax.fori_loop(k, 5, lambda i, c: i, 0))(1),
    "bound of one dimension": lambda m, lax, np_: lax.fori_loop(0, np_.array([3]), count, 0),
    "mapped bounds": lambda m, lax, np_: m.vmap(lambda a, b: lax.fori_loop(a, b, lambda i, c: c * 2 + i, 0))(
        np_.array([1, 4, 9]), np_.array([3, 5, 2])),
    "unroll": lambda m, lax, np_: [lax.fori_loop(0, 3, count, 0, unroll=u) for u in (10, True, 0, np.int32(2))],
    "unroll of a traced bound": lambda m, lax, np_: m.jit(lambda k: lax.fori_loop(0, k, count, 0, unroll=False))(3),
    "weak carries": lambda m, lax, np_: [lax.fori_loop(0, 3, lambda i, c: c + .5, 0), lax.fori_loop(
        0, 3, lambda i, c: c + np.float16(1), 0), lax.while_loop(lambda c: c < 5, lambda c: c + U8(1), 0)],
    "carry of another type": lambda m, lax, np_: lax.fori_loop(0, 3, lambda i, c: c + .5, I32(0)),
    "no steps": lambda m, lax, np_: [lax.fori_loop(3, 0, count, 7), *[lax.scan(lambda c, x: (c + x, c), F(1), np_.zeros(
        (0,)), reverse=r, unroll=u) for r, u in ((False, True), (True, 3))]],
    "nothing to map": lambda m, lax, np_: [lax.map(lambda x: x * 2, np_.ones((n, 2)), batch_size=b) for n, b in (
        (0, 2), (3, 0), (3, 5))],
    "keys": lambda m, lax, np_: m.random.key_data(lax.scan(lambda k, _: (m.random.split(k)[0], k), m.random.key(0), None,
                                                           length=2)[1]),
    "no keys": lambda m, lax, np_: m.random.key_data(lax.scan(lambda k, _: (k, k), m.random.key(0), None, length=0)[1]),
    "keys of mapped loops": lambda m, lax, np_: m.vmap(lambda k, n: lax.fori_loop(0, n, lambda i, c: (m.random.split(c[0])[
        0], c[1] + m.random.uniform(c[0])), (k, F(0)))[1])(m.random.split(m.random.key(0), 2), np_.array([0, 3])),
    "reverse without xs": lambda m, lax, np_: lax.scan(lambda c, _: (c * 2, c), F(1), None, length=3, reverse=True),
    "a pair as list": lambda m, lax, np_: lax.scan(lambda c, x: [c + x, c], 0, np_.arange(3)),
    "three results": lambda m, lax, np_: lax.scan(lambda c, x: (c, c, c), 0, np_.arange(3)),
    "lengths": lambda m, lax, np_: [lax.scan(count_rows, 0, None, length=n) for n in (2., np.int64(2), True)],
    "negative length": lambda m, lax, np_: lax.scan(count_rows, 0, None, length=-1),
    "nothing to carry": lambda m, lax, np_: [lax.while_loop(lambda c: False, lambda c: c, v) for v in (None, ())],
}


def count_rows(c, _): return c + 1, c


@pytest.mark.parametrize("row", EDGES)
def test_edges(row):
    compare(with_numpy(EDGES[row]))


def increase(x): return x + 1
def double(x): return x * 2


EAGER = {"cond": lambda lax, f, g, x: lax.cond(True, f, g, x), "cond of one function": lambda lax, f, g, x: lax.cond(True, f, f, x),
         "switch": lambda lax, f, g, x: lax.switch(2, [f, g, f], x),
         "while": lambda lax, f, g, x: lax.while_loop(below_nine, f, x), "scan": lambda lax, f, g, x: lax.scan(count_rows, x, None, 3),
         "platform": lambda lax, f, g, x: lax.platform_dependent(x, cpu=f, default=g)}


def below_nine(x): return x < 9


@pytest.mark.parametrize("name", EAGER)
def test_the_second_call_outside_of_jit_compiles_nothing(name, monkeypatch):
    compiled, real = [], cached.compile_text
    monkeypatch.setattr(cached, "compile_text", lambda *args, **kwargs: compiled.append(1) or real(*args, **kwargs))
    first = aot.tree.map(np.asarray, EAGER[name](aot.lax, increase, double, F(2)))
    count = len(compiled)
    again = EAGER[name](aot.lax, increase, double, F(2))
    assert aot.tree.all(aot.tree.map(np.array_equal, first, again)) and len(compiled) == count


@pytest.mark.parametrize("place", range(3))
def test_programs_of_branches_go_with_each_of_the_functions(place):
    held = np.zeros(3)
    branches = [increase, double, increase]
    branches[place] = lambda x, held=held: x - 1
    aot.lax.switch(1, branches, F(2))
    alive = weakref.ref(held)
    del held, branches
    gc.collect()
    assert alive() is None
