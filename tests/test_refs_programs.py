"""Programs with references as users write them, against real jax."""
from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import aot
import aot.numpy
from tests.support import compare, table

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
V = np.arange(1, 4, dtype=np.float32)


def inc(r):
    r[...] += 1


def counter(m, lax):
    r = m.new_ref(0)

    @m.jit
    def step(x):
        r[...] += 1
        return x * r[...]
    return step(2.), step(2.), step(3), r[...]


def weak_types(m, lax):
    """What is read after a write in the same program is strongly typed; outside of it references keep their types."""
    def f(r, x):
        before = r[...]
        inc(r)
        s = m.new_ref(x)
        first = s[...]
        s[...] = s[...] * 2
        ys = lax.scan(lambda c, _: (c, (inc(r), r[...])[1]), 0, None, length=2)[1]
        q = m.new_ref(x)
        lax.cond(x > 0, lambda: q.__setitem__(..., 5), lambda: inc(q))
        t = m.new_ref(x)
        m.ref.addupdate(t, ..., 1)
        return before, r[...], first, s[...], m.freeze(s), ys, q[...], t[...]
    r = m.new_ref(1)
    return m.jit(f)(r, 2), r[...], m.jit(lambda: r[...] * 2)(), m.jit(m.jit(lambda r: (inc(r), r[...])[1]))(r)


def statistics(m, lax):
    @m.jit
    def f(xs):
        mean, var, n = m.new_ref(m.numpy.zeros(3)), m.new_ref(m.numpy.zeros(3)), m.new_ref(m.numpy.int32(0))

        def body(_, x):
            n[...] += 1
            d = x - mean[...]
            mean[...] += d / n[...]
            var[...] += d * (x - mean[...])
            return None, mean[...]
        means = lax.scan(body, None, xs)[1]
        return means, m.freeze(var) / n[...]
    return f(X[:, :, 0])


def sieve(m, lax):
    def cross_out(r, i):
        lax.fori_loop(2, 30 // i + 1, lambda j, c: (r.__setitem__(i * j, False), c)[1], 0)

    @m.jit
    def f():
        r = m.new_ref(m.numpy.ones(31, bool))
        r[:2] = m.numpy.zeros(2, bool)
        for i in range(2, 6):
            lax.cond(r[i], lambda i=i: cross_out(r, i), lambda: None)
        return m.freeze(r)
    return f()


def ring_buffer(m, lax):
    @m.jit
    def push(state, x):
        buffer, at = state["buffer"], state["at"]
        i = at[...] % 3
        buffer[i] = x
        at[...] = at[...] + 1
        return buffer[(i - 1) % 3], buffer[m.numpy.arange(3)[::-1]], buffer[m.ds(i, 1)]
    state = {"buffer": m.new_ref(m.numpy.zeros((3, 2))), "at": m.new_ref(0)}
    return [push(state, m.numpy.full(2, i * 1.)) for i in range(5)], state["buffer"][...], state["at"][...]


def random_state(m, lax):
    r = m.new_ref(m.random.split(m.random.key(3), 3))

    @m.jit
    def draw(r, i):
        key, now = m.random.split(r[i])
        r[i] = key
        return m.random.normal(now, (2,))
    return draw(r, 1), draw(r, 1), m.random.key_data(r[...])


def shared(m, lax):
    r = m.new_ref(V)
    double = m.jit(lambda r: r.__setitem__(..., r[...] * 2))
    first = m.jit(lambda x: (r.__setitem__(0, r[0] + x), r[0])[1])
    double(r), first(1.), double(r)
    return first(2.), r[...]


def copies(m, lax):
    """A copy is the same reference; one that is deep, or was pickled, is another."""
    r = m.new_ref(V)
    same, other, stored = copy.copy(r), copy.deepcopy(r), pickle.loads(pickle.dumps(r))
    same[0], other[1], stored[2] = 7., 8., 9.
    return r[...], same[...], other[...], stored[...]


def donations(m, lax):
    """What was donated, or deleted, is gone, but not from references."""
    give = m.jit(lambda x: x + 1, donate_argnums=0)

    def new(x): return m.new_ref(x), x

    def read(x): return (r := m.new_ref(V)), r[...]

    def written(x):
        r = m.new_ref(V)
        r[...] = x
        return r, x

    def frozen(x):
        r = m.new_ref(x)
        return r, m.freeze(r)
    ends = {"donated": give, "deleted": lambda x: x.delete(),
            "compiled": lambda x: m.jit(lambda x: x + 1, donate_argnums=0).lower(x).compile()(x)}
    out = []
    for end in ends.values():
        for f in (new, read, written, frozen):
            r, x = f(m.numpy.ones(3))
            end(x)
            out.append((r[...] + 0, x.is_deleted()))
    return out


def written_whole(m, lax):
    """The array that was written is not the memory that a jitted function changes."""
    r, x = m.new_ref(1.), m.numpy.ones(())
    r[...] = x
    f = m.jit(inc)
    f(r), f(r)
    return x + 0, r[...]


def compiled(m, lax):
    r = m.new_ref(0)
    c = m.jit(lambda r: (inc(r), r[...])[1]).lower(r).compile()
    return c(r), c(r), r[...]


def methods_of_views(m, lax):
    """Under jit; elsewhere jax has none."""
    def f(r):
        r.at[0].set(5.)
        old = r.at[1].swap(6.)
        r.at[1:].set(m.numpy.ones(1), slice(1, 2))
        return old, r.at[0].get(), r.at[1:].get(0)
    r = m.new_ref(V)
    return m.jit(f)(r), r[...]


@table(*[(f.__name__, lambda m, lax, f=f: lambda: f(m, lax)) for f in (
    counter, weak_types, statistics, sieve, ring_buffer, random_state, shared, copies, donations, written_whole, compiled, methods_of_views)])
def test_programs(call, args):
    compare(call)


def of_dtype(dtype):
    def build(m, lax):
        @m.jit
        def g(r, i):
            r[i] = r[i + 1]
            if dtype != "bool":
                r[...] += r[...]
                m.ref.addupdate(r, m.numpy.array([0, 0, 1]), m.numpy.ones(3, dtype))
            return r[i], m.ref.swap(r, slice(1, 3), m.numpy.zeros(2, dtype))

        def f(x):
            r = m.new_ref(m.numpy.array(x).astype(dtype))
            out = g(r, 1)
            return [y.astype("complex64") for y in (*out, r[...])], r.dtype == dtype
        return f
    return build


@table(*[(d, of_dtype(d), [0, 1, 1, 0]) for d in "bool int4 int8 uint32 bfloat16 float8_e4m3fn complex64".split()],
       ("empty", lambda m, lax: lambda: (lambda r: (m.jit(inc)(r), r[...]))(m.new_ref(m.numpy.zeros((0, 3))))))
def test_dtypes(call, args):
    compare(call, *args)


def test_debug_print_shows_the_contents(capsys):
    f = lambda r: aot.debug.print("{} {x}", r, x={"a": r})
    r = aot.new_ref(V)
    f(r), aot.jit(f)(r), aot.jit(lambda: f(r))()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and len(set(lines)) == 1 and lines[0].startswith("[1. 2. 3.] {'a': ")


def test_operations_refuse_references_where_they_are_traced():
    for f in (aot.numpy.negative, aot.lax.cumsum, aot.lax.sort, aot.lax.stop_gradient):
        with pytest.raises(TypeError, match="which takes arrays. hint: read it first"):
            aot.jit(lambda x, f=f: f(aot.new_ref(x)))(V)
