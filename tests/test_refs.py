"""Mutable array references against real jax: reads, writes, control flow, transforms, errors."""
from __future__ import annotations

import copy

import numpy as np
import pytest

import aot
import aot.lax
import aot.numpy
import aot.ref
from tests.support import compare, jax, outcome, table

SAMPLED = 16
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
V = np.arange(1, 4, dtype=np.float32)
S = slice
ALL = S(None)
A2, A3 = np.array([0, 1]), np.array([2, 0, 1])


# ---- indices ---------------------------------------------------------------------------------------------------------

INDICES = {
    "int": 1, "negative": -1, "row": (0, -2), "scalar": (1, 2, 3), "ellipsis": ..., "ellipsis_last": (..., 1), "empty_tuple": (),
    "slice": S(1, None), "slices": (ALL, S(0, 2), S(1, 3)), "steps": (0, S(None, None, 2), S(1, 4, 2)), "clipped": S(1, 9),
    "from_end": (0, S(-2, None)), "nothing": S(1, 1), "ds": lambda m: (0, m.ds(1, 2)), "ds_all": lambda m: m.ds(2),
    "ds_none": lambda m: (1, m.ds(None)), "ds_step": lambda m: (0, m.ds(0, 2, 2)), "ds_empty": lambda m: m.ds(0, 0),
    "ds_negative": lambda m: (0, m.ds(-2, 2)), "array": A2, "array_later": (ALL, A3), "array_last": (..., A3),
    "array_2d": (np.array([[0], [1]]), A3), "arrays": (A2, A2, A2), "split_arrays": (A2, ALL, np.array([1, 3])),
    "joined_arrays": (ALL, A2, np.array([1, 3])), "int_and_array": (1, ALL, A2), "array_and_int": (A2, ALL, 1),
    "int_beside_array": (ALL, 1, A2), "array_and_ds": lambda m: (A2, m.ds(1, 2)), "array_and_step": (A2, S(0, 3, 2)),
    "negative_array": (A2, ALL, np.array([-1, -2])), "array_outside": (A2, ALL, np.array([1, 9])),
    "array_far_outside": np.array([-5]), "no_positions": np.array([], np.int32), "numpy_int": np.int64(1),
    "repeated": (0, np.array([1, 1])),
    # refused
    "two_ellipses": (..., ...), "too_many": (0, 0, 0, 0), "outside": 2, "backwards": S(None, None, -1),
    "floats": np.array([0., 1.]), "text": "a", "list": [0, 1], "ds_outside": lambda m: (0, m.ds(2, 2)), "newaxis": (None, 1),
}


def resolved(m, index):
    return index(m) if callable(index) else index


def reading(index):
    return lambda m, lax: lambda x: m.new_ref(x)[resolved(m, index)]


def writing(index, how):
    """Everything that is there afterwards, and what was there."""
    def build(m, lax):
        def f(x):
            r, i = m.new_ref(x), resolved(m, index)
            old = r[i]
            new = -1 - m.numpy.arange(old.size, dtype=old.dtype).reshape(old.shape)
            got = how(m.ref, r, i, new)
            return r[...], old, got
        return f
    return build


HOWS = {"set": lambda ref, r, i, v: ref.set(r, i, v), "swap": lambda ref, r, i, v: ref.swap(r, i, v),
        "add": lambda ref, r, i, v: ref.addupdate(r, i, v), "item": lambda ref, r, i, v: r.__setitem__(i, v)}
#: under jit jax has no rule for a step of a slice, and does not check positions
EAGER_ONLY = ("steps", "ds_step", "outside")


#: what the unpacking of a list and of None in jax raises
ACCIDENTS = ("list", "newaxis")


@pytest.mark.parametrize("name", ["two_ellipses", "too_many", "outside", "backwards", "floats", "text", "ds_outside"])
def test_refused_indices(name):
    """With jax's exceptions."""
    for f in (reading, lambda i: writing(i, HOWS["set"])):
        call = f(INDICES[name])
        ours, theirs = outcome(call, aot, aot.lax, (X,)), outcome(call, jax, jax.lax, (X,))
        assert issubclass(type(theirs), type(ours)) and isinstance(ours, Exception), (ours, theirs)


@table(*[(f"{name}-get", reading(i), X) for name, i in INDICES.items()],
       *[(f"{name}-{how}", writing(i, f), X) for name, i in INDICES.items() for how, f in HOWS.items()])
def test_indices(call, args):
    compare(call, *args)


@table(*[(f"{name}-{how}", writing(i, f), X) for name, i in INDICES.items() if name not in EAGER_ONLY
         for how, f in list(HOWS.items())[:3]])
def test_indices_jitted(call, args):
    compare(lambda m, lax: m.jit(call(m, lax)), *args)


def traced(index, write):
    def build(m, lax):
        def f(i):
            r = m.new_ref(m.numpy.arange(5.))
            if write:
                r[index(m, i)] = -m.numpy.ones_like(r[index(m, i)])
            return r[...] if write else r[index(m, i)]
        return m.jit(f)
    return build


@table(*[(f"{name}-{'set' if w else 'get'}-{i}", traced(f, w), i) for w in (False, True) for name, f in {
    "int": lambda m, i: i, "ds": lambda m, i: m.ds(i, 2), "array": lambda m, i: i + m.numpy.array([0, 1])}.items()
    for i in (0, 3, -1, 4, 9, -9)])
def test_traced_positions(call, args):
    """Scalars and starts of slices are moved into bounds, what is written to positions of arrays out of bounds is dropped."""
    compare(call, *args)


WINDOWS = {
    "one": lambda m, i: m.ds(i, 2), "row": lambda m, i: (0, m.ds(i, 2)), "column": lambda m, i: (ALL, m.ds(i, 2)),
    "array": lambda m, i: (A2, m.ds(i, 2)), "ellipsis": lambda m, i: (..., m.ds(i, 2)), "step": lambda m, i: (1, m.ds(i, 2, 2)),
    "newaxis": lambda m, i: (None, m.ds(i, 2)), "two": lambda m, i: (m.ds(1, 2), m.ds(i, 1)), "empty": lambda m, i: m.ds(0, 0),
    "mask": lambda m, i: (np.array([True, False, True]), m.ds(i, 2)), "too_many": lambda m, i: (m.ds(0, 1),) * 3}
UPDATES = {"get": lambda x, i, m: x[i], "set": lambda x, i, m: x.at[i].set(-1.), "add": lambda x, i, m: x.at[i].add(x[i]),
           "grad": lambda x, i, m: m.grad(lambda x: (x[i] ** 2).sum())(x)}


@table(*[(f"{name}-{what}-{i}-{how}", lambda m, lax, w=w, f=f, i=i, how=how: lambda x: (
    m.jit(lambda x, i: f(x, w(m, i), m))(x, i) if how else f(x, w(m, i), m)), X.reshape(6, 4)[:3])
    for name, w in WINDOWS.items() for what, f in UPDATES.items() for i in (0, 1, 3, -2) for how in (False, True)
    if i in (0, 1) or name not in ("array", "mask", "step")])
def test_arrays(call, args):
    """ds is an index of arrays, too.  Out of range jax is not of one mind beside arrays and with a step, eagerly and jitted."""
    compare(call, *args)


# ---- values ----------------------------------------------------------------------------------------------------------

def stored(init, index, value, dtype=None):
    def build(m, lax):
        def f():
            r = m.new_ref(m.numpy.ones(2, dtype) if init is None else init)
            r[index] = value(m) if callable(value) else value
            return r[...]
        return f
    return build


@table(("float", stored(None, 0, 2.)), ("broadcast", stored(None, ..., 2.)), ("shape", stored(None, ..., np.ones(3))),
       ("int_in_float", stored(None, 0, 2)), ("float_in_int", stored(None, 0, 2., "int32")),
       ("bfloat16", stored(None, 0, 2., "bfloat16")), ("float32_in_bfloat16", stored(None, 0, np.float32(2), "bfloat16")),
       ("int8", stored(None, 1, 3, "int8")), ("uint8", stored(None, 1, 3, "uint8")), ("bool", stored(None, 1, False, "bool")),
       ("float_in_complex", stored(None, 0, 2., "complex64")), ("complex", stored(None, 0, 2j, "complex64")),
       ("float64", stored(None, 0, np.float64(3))), ("list", stored(None, ..., [1., 2.])), ("nan", stored(None, 0, np.nan)),
       ("scalar", stored(1., ..., np.float32(2))), ("weak_int", stored(1, ..., 5)), ("weak_mixed", stored(1., ..., 5)),
       ("reference", stored(None, ..., lambda m: m.new_ref(m.numpy.ones(2)))),
       ("keys", lambda m, lax: lambda: m.random.key_data(stored(m.random.key(0), ..., lambda m: m.random.key(1))(m, lax)())))
def test_values(call, args):
    compare(call, *args)


@table(*[(name, lambda m, lax, x=x: lambda: m.new_ref(x)[...]) for name, x in {
    "float": 1., "int": 1, "bool": True, "numpy": np.arange(3), "float64": np.ones(2), "empty": np.ones((0, 2), np.float32),
    "none": None, "list": [1, 2], "dict": {"a": 1}, "text": "a"}.items()],
    ("ref", lambda m, lax: lambda: m.new_ref(m.new_ref(1.))), ("freeze", lambda m, lax: lambda: m.freeze(m.new_ref(1.))),
    ("frozen_read", lambda m, lax: lambda: (lambda r: (m.freeze(r), r[...]))(m.new_ref(V))),
    ("get_array", lambda m, lax: lambda: m.ref.get(m.numpy.ones(2), 0)), ("get", lambda m, lax: lambda: m.ref.get(m.new_ref(V))),
    ("swap_numpy", lambda m, lax: lambda: m.ref.swap(np.ones(2), 0, 1.)))
def test_making(call, args):
    compare(call, *args)


def test_augmented():
    def f(m, lax):
        r = m.new_ref(X)
        r[...] += 1
        r[0] *= 2
        r[1, :, m.ds(1, 2)] -= 3
        r.addupdate(m.numpy.ones(4), (0, 0))
        return r[...]
    compare(lambda m, lax: lambda: f(m, lax))


@pytest.mark.parametrize("op", [lambda m, r: r + 1, lambda m, r: m.numpy.sin(r), lambda m, r: m.lax.sin(r), lambda m, r: list(r),
                                lambda m, r: m.numpy.asarray(r), lambda m, r: np.asarray(r), lambda m, r: float(r),
                                lambda m, r: m.lax.add(r, r), lambda m, r: m.lax.reshape(r, (6,)), lambda m, r: r.sum()])
@pytest.mark.parametrize("jitted", [False, True])
def test_no_array(op, jitted):
    """A reference is no array."""
    def build(m, lax):
        f = lambda x: op(m, m.new_ref(x))
        return m.jit(f) if jitted else f
    compare(build, X[0])


def test_looks():
    ours, theirs = aot.new_ref(X[0]), jax.new_ref(X[0])
    assert repr(ours) == repr(theirs) and repr(ours.aval) == repr(theirs.aval) == repr(aot.typeof(ours))
    assert repr(aot.new_ref(1)) == repr(jax.new_ref(1))
    assert (ours.shape, ours.dtype, ours.ndim, ours.size, len(ours)) == (theirs.shape, theirs.dtype, theirs.ndim, theirs.size,
                                                                       len(theirs))
    assert repr(aot.ds(1, 2, 3)) == repr(jax.ds(1, 2, 3)) and aot.ds(None) == jax.ds(None)
    assert aot.typeof(ours) == aot.typeof(aot.new_ref(X[0])) and hash(aot.typeof(ours)) == hash(aot.typeof(aot.new_ref(X[0])))
    assert isinstance(ours, aot.Ref) and not isinstance(ours, aot.Array)
    seen = []
    aot.jit(lambda r: seen.append((isinstance(r, aot.Ref), isinstance(r, aot.Array), r.shape)))(ours)
    assert seen == [(True, False, (3, 4))]
    with pytest.raises(TypeError, match=r"ref\[...\]"):
        aot.numpy.sin(ours)


def test_jaxprs():
    def f(m):
        def g(r, x):
            s = m.new_ref(x)
            s[0] = x[1]
            r[0, :, m.ds(1, 2)] = m.numpy.ones((3, 2), "float32")
            m.ref.addupdate(r, (0, slice(1, None), 1), x[:2])
            s[...] = s[...]
            return s[1], m.freeze(s)
        return g
    text = str(aot.make_jaxpr(f(aot))(aot.new_ref(X), V))
    for line in ("a:Ref{f32[2,3,4]} b:f32[3]", "c:Ref{f32[3]} = new_ref[kind=None memory_space=None] b", "c[0] <- e",
                 "a[0,:,1:3] <- f", "a[0,1:,1] += g", "c[...] <- h", "i:f32[] <- c[1]", "j:f32[3] = freeze c"):
        assert line in text, text


# ---- views -----------------------------------------------------------------------------------------------------------

def viewed(m, x):
    r = m.new_ref(x)
    v = r.at[0]
    w = v.at[1:]
    w[0] = m.numpy.full(4, 7.)
    v[0, 1] = v[0, 2] + 1.
    u = r.at[m.numpy.array([1, 0]), :, 1]
    u[0] = u[1] + 1
    u.at[1, m.ds(1, 2)][...] *= 2
    return r[...], w[...], v[0], u[...]


def test_views():
    compare(lambda m, lax: m.jit(lambda x: viewed(m, x)), X)


def test_views_outside_of_jit():
    """jax has none there."""
    f = lambda x: viewed(aot, x)
    jitted = aot.jit(f)
    for got, one, two, eager in zip(aot.jit(aot.vmap(f))(np.stack([X, X + 1])), jitted(X), jitted(X + 1), f(X)):
        np.testing.assert_array_equal(got, np.stack([one, two]))
        np.testing.assert_array_equal(eager, one)
    total = lambda x: sum((y ** 2).sum() for y in f(x))
    gradient, dot = aot.jit(lambda x: (aot.grad(total)(x), aot.jvp(total, (x,), (x,))[1]))(X)
    np.testing.assert_allclose((gradient * X).sum(), dot, rtol=1e-6)
    view = aot.new_ref(X).at[0, 1:]
    assert (view.shape, view.ndim, view.size, view.dtype) == ((2, 4), 2, 8, np.float32)
    with pytest.raises(ValueError, match="axis 1"):
        view[0, -5]
    for bad in (aot.freeze, aot.free_ref, aot.jit(lambda r: r[...])):
        with pytest.raises(TypeError):
            bad(view)


# ---- jit and control flow --------------------------------------------------------------------------------------------

def inc(r):
    r[...] += 1


def after(f):
    """f(m, lax, r) on a new reference: its result, and what is there afterwards."""
    def build(m, lax):
        def run(x):
            r = m.new_ref(x)
            return f(m, lax, r), r[...]
        return run
    return build


def twice(m, lax, r):
    f = m.jit(inc)
    f(r)
    f(r)


def nested(m, lax, r):
    @m.jit
    def f(r):
        m.jit(inc)(r)
        m.jit(inc)(r)
        return r[...] * 2
    return f(r)


def closed(m, lax, r):
    @m.jit
    def f(x):
        r[...] += x
        return r[0]
    return f(1.), f(2.)


def scanned(m, lax, r):
    def body(c, i):
        r[i] += c
        return c + 1, r[i]
    return lax.scan(body, 1., m.numpy.arange(3))


def scanned_back(m, lax, r):
    return lax.scan(lambda c, i: (c + r[i], r.__setitem__(i, c)), np.float32(1), m.numpy.arange(3), reverse=True, unroll=2)[0]


def rows(m, lax, r):
    def body(c, row):
        row[...] += c
        return c + 1, row[0]
    q = m.new_ref(m.numpy.zeros((3, 2)))
    return lax.scan(body, 1., q), q[...]


def dynamic(m, lax, r):
    def body(i, c):
        r[i] = i * 1.
        return c
    m.jit(lambda n: lax.fori_loop(0, n, body, ()))(2)
    lax.fori_loop(1, 2, lambda i, c: (r.__setitem__(i, r[i] - c), c)[1], 1.)


def while_loop(m, lax, r):
    def body(i):
        r[0] += 1
        return i + 1
    return lax.while_loop(lambda i: i < 3, body, 0)


def branch(p):
    def f(m, lax, r):
        def a(x):
            r[0] = x

        def b(x):
            r[1] = x + r[2]
        lax.cond(p, a, b, np.float32(5))
    return f


def operand(m, lax, r):
    return lax.cond(True, lambda r: r[0] + 1, lambda r: r[1], r)


def switched(m, lax, r):
    def case(i):
        return lambda: r.__setitem__(i, i + 1.)
    m.jit(lambda i: lax.switch(i, [case(0), case(1), case(2)]))(2)


def in_branch(m, lax, r):
    def a():
        q = m.new_ref(r[0])
        q[...] += 1
        return q[...]
    return lax.cond(r[0] < 9, a, lambda: np.float32(3))


def in_scan(m, lax, r):
    def body(c, x):
        q = m.new_ref(x)
        lax.fori_loop(0, 2, lambda i, c: (q.__setitem__(..., q[...] * 2), c)[1], 0)
        r[1] += q[...]
        return c + q[...], q[...]
    return lax.scan(body, np.float32(0), V)


def mapped(m, lax, r):
    return lax.map(lambda i: (r.__setitem__(i, i * 2.), i)[1], m.numpy.arange(3))


def deep(m, lax, r):
    def outer(c, i):
        def inner(j, c):
            lax.cond(j > 0, lambda: r.__setitem__(i, r[i] + c), lambda: None)
            return c + 1
        return lax.fori_loop(0, 2, inner, c), None
    return lax.scan(outer, np.float32(1), m.numpy.arange(3))[0]


def rematerialised(m, lax, r): return m.checkpoint(inc)(r)


def unused(m, lax, r): return m.jit(lambda r: 3)(r)


def readonly(m, lax, r): return m.jit(lambda r, x: r[...] + x)(r, 1.)


def many(m, lax, r):
    q = m.new_ref(V)

    @m.jit
    def f(rs, x):
        rs["a"][...], rs["b"][...] = rs["b"][...] + x, rs["a"][...]
    f({"a": r, "b": q}, 1.)
    return q[...]


def no_jit(m, lax, r):
    with m.disable_jit():
        twice(m, lax, r)
        return scanned(m, lax, r), lax.cond(True, lambda: r[0], lambda: r[1])


FLOWS = [twice, nested, closed, scanned, scanned_back, rows, dynamic, while_loop, operand, switched, in_branch, in_scan, mapped,
         deep, rematerialised, unused, readonly, many, no_jit]


@table(*[(f.__name__, after(f), V) for f in FLOWS], *[(f"cond-{p}", after(branch(p)), V) for p in (True, False)],
       *[(f"jit-{f.__name__}", lambda m, lax, f=f: m.jit(after(f)(m, lax)), V) for f in FLOWS if f is not no_jit],
       *[(f"jit-cond-{p}", lambda m, lax, p=p: m.jit(after(branch(p))(m, lax)), V) for p in (True, False)])
def test_control_flow(call, args):
    compare(call, *args)


def test_cond_of_while_reads_and_writes():
    """As Python does it; jax forgets what the last call of cond_fun writes, and refuses or hangs where it reads what body writes."""
    def f(r):
        def cond(i):
            r[1] += 1
            return r[0] < 5

        def body(i):
            r[0] += 2
            return i + 1
        return aot.lax.while_loop(cond, body, 0)
    for call in (f, aot.jit(f)):
        r = aot.new_ref(np.zeros(2, np.float32))
        assert int(call(r)) == 3 and r[...].tolist() == [6, 4]


def test_while_cond_reads_under_vmap():
    def f(x, n):
        r = aot.new_ref(x)
        aot.lax.while_loop(lambda i: r[...] < n, lambda i: (r.__setitem__(..., r[...] + 1), i + 1)[1], 0)
        return r[...]
    assert aot.vmap(f)(np.zeros(3, np.float32), np.array([2., 0., 4.], np.float32)).tolist() == [2, 0, 4]


# ---- errors ----------------------------------------------------------------------------------------------------------

@table(*[(name, lambda m, lax, f=f: lambda: f(m, lax, m.new_ref(V))) for name, f in {
    "returned": lambda m, lax, r: m.jit(lambda x: m.new_ref(x))(1.),
    "returned_argument": lambda m, lax, r: m.jit(lambda r: {"a": r})(r),
    "carried": lambda m, lax, r: lax.scan(lambda c, x: (c, None), r, m.numpy.arange(3)),
    "stacked": lambda m, lax, r: lax.scan(lambda c, x: (c, r), 1., None, length=2),
    "loop": lambda m, lax, r: lax.fori_loop(0, 3, lambda i, r: r, r),
    "branch": lambda m, lax, r: lax.cond(True, lambda r: r, lambda r: r, r),
    "twice": lambda m, lax, r: m.jit(lambda a, b: a[...] + b[...])(r, r),
    "twice_written": lambda m, lax, r: m.jit(lambda a, b: a.__setitem__(0, b[0]))(r, r),
    "twice_in_cond": lambda m, lax, r: lax.cond(True, lambda a, b: a[0] + b[0], lambda a, b: a[0], r, r),
    "closed_and_passed": lambda m, lax, r: m.jit(lambda q: r.__setitem__(0, q[0]))(r),
    "scan_closed_and_passed": lambda m, lax, r: lax.scan(lambda c, q: (c, r.__setitem__(0, c)), 1., r),
    "grad": lambda m, lax, r: m.grad(lambda r: r[...].sum())(r),
    "vjp": lambda m, lax, r: m.vjp(lambda r: r[...].sum(), r)[1](1.),
    "gradient_of_reference": lambda m, lax, r: m.grad(lambda x: m.new_ref(x))(1.),
    "leaked": lambda m, lax, r: (lambda box: (m.jit(lambda x: box.append(m.new_ref(x)))(1.), box[0][...]))([]),
    "freed": lambda m, lax, r: m.jit(lambda x: (lambda q: (m.free_ref(q), q[...]))(m.new_ref(x))[1])(1.),
    "frozen": lambda m, lax, r: m.jit(lambda x: (lambda q: (m.freeze(q), q.__setitem__(..., x)))(m.new_ref(x))[0])(1.),
    "callback": lambda m, lax, r: m.pure_callback(lambda x: x, m.ShapeDtypeStruct((3,), "float32"), r),
    "memory": lambda m, lax, r: m.new_ref(1., memory_space="host"),
    "size": lambda m, lax, r: m.jit(lambda n: r[m.ds(0, n)])(2), "stride": lambda m, lax, r: m.ds(0, 2, -1),
    "jvp": lambda m, lax, r: m.jvp(lambda r: r[...].sum(), (r,), (m.new_ref(V),)),
    "eval_shape": lambda m, lax, r: m.eval_shape(lambda r: r[...], r).shape}.items()])
def test_refused(call, args):
    compare(call, *args)


# ---- ahead of time ---------------------------------------------------------------------------------------------------

def test_compiled():
    def f(m, lax, r):
        c = m.jit(lambda r, x: (r.__setitem__(0, r[0] + x), r[1])[1]).lower(r, 1.).compile()
        return c(r, 1.), c(r, 2.)
    compare(after(f), V)
    compare(after(lambda m, lax, r: m.jit(inc).lower(m.ShapeDtypeStruct((3,), np.float32, is_ref=True)).compile()(r)), V)
    assert repr(aot.ShapeDtypeStruct((3,), np.float32, is_ref=True)) == repr(jax.ShapeDtypeStruct((3,), np.float32, is_ref=True))
    r = aot.new_ref(V)
    c = aot.jit(lambda x: (r.__setitem__(0, r[0] + x), r[1])[1]).lower(1.).compile()
    assert float(c(2.)) == 2. and r[...].tolist() == [3, 2, 3]
    with pytest.raises(TypeError, match="compiled"):
        aot.jit(inc).lower(r).compile()(V)


def test_lowered_without_a_trace():
    """References that a function makes are values in its program, also in an exported one."""
    f = aot.jit(lambda x: after(scanned)(aot, aot.lax)(x)[1])
    assert "Ref" not in f.lower(V).as_text()
    again = aot.export.deserialize(aot.export.export(f)(V).serialize())
    np.testing.assert_allclose(again.call(V), f(V))
    with pytest.raises(NotImplementedError, match="reference"):
        aot.export.export(aot.jit(inc))(aot.new_ref(V))


def test_memory_is_reused_where_nobody_else_holds_it():
    """A jitted function takes the memory of what it writes, unless somebody holds the array that was there."""
    r = aot.new_ref(np.zeros(1 << 16, np.float32))
    f = aot.jit(lambda r, i: r.__setitem__(i, r[i] + 1))
    f(r, 1)
    where = r.unsafe_buffer_pointer()
    for i in range(3):
        f(r, i)
    assert r.unsafe_buffer_pointer() == where
    seen, other, gradient = r[...], aot.freeze(r), aot.vjp(lambda x: (x * r[...]).sum(), np.ones(1 << 16, np.float32))[1]
    copied = copy.deepcopy(r)
    f(r, 1)
    f(r, 1)
    assert seen[1] == other[1] == gradient(np.float32(1))[0][1] == copied[1] == 2 and r[1] == 4
    x = aot.numpy.ones(3)
    q = aot.new_ref(x)
    g = aot.jit(lambda q, y: (q.__setitem__(..., q[...] + y), y)[1])
    old = aot.ref.swap(q, ..., aot.numpy.zeros(3))
    kept = g(q, x)
    g(q, kept)
    assert x.tolist() == old.tolist() == kept.tolist() == [1, 1, 1] and q[...].tolist() == [2, 2, 2]


def test_debug_nans():
    r = aot.new_ref(V)
    with aot.debug_nans(True), pytest.raises(FloatingPointError, match="reference"):
        aot.jit(lambda r: r.__setitem__(0, aot.numpy.log(-r[0])))(r)


def test_effects_in_order():
    """Ordered effects and references in one program."""
    out = []

    @aot.jit
    def f(r):
        def body(i, c):
            r[0] += 1
            aot.debug.callback(lambda v: out.append(float(v)), r[0], ordered=True)
            return c
        aot.lax.fori_loop(0, 3, body, 0)
    f(aot.new_ref(V))
    aot.effects_barrier()
    assert out == [2, 3, 4]


def test_other_holders_of_jaxprs():
    """What makes references inside runs as without: checkify, custom_linear_solve, shard_map."""
    def f(x):
        r = aot.new_ref(x)
        r[0] = r[1] * 2
        return r[...]
    from aot.experimental import checkify
    mesh = aot.make_mesh((1,), ("x",))
    assert checkify.checkify(f)(V)[1].tolist() == [4, 2, 3]
    assert aot.jit(aot.shard_map(f, mesh=mesh, in_specs=aot.P("x"), out_specs=aot.P("x")))(V).tolist() == [4, 2, 3]
    assert aot.jit(lambda b: aot.lax.custom_linear_solve(lambda x: (lambda r: (r.__setitem__(0, x[0] * 2.), r[...] * 1.)[1])(
        aot.new_ref(x * 2.)), b, lambda _, b: b / 2))(V).tolist() == (V / 2).tolist()
    with pytest.raises(TypeError, match=r"ref\[...\]"):
        aot.shard_map(lambda r: r[...], mesh=mesh, in_specs=aot.P("x"), out_specs=aot.P("x"))(aot.new_ref(V))


def test_calls_of_one_function_with_arrays_and_references():
    f = aot.jit(lambda x: x[...] * 2)
    r = aot.new_ref(V)
    for _ in range(3):
        assert f(V).tolist() == f(r).tolist() == [2, 4, 6]
