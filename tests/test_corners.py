"""Corners of the API: each case is one function of a module (aot or jax), run over both; results or errors must agree."""
from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import gc
import itertools
import pickle
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest

import aot
from aot import errors
from tests.support import same

jax = pytest.importorskip("jax")
f32 = np.float32
Pair = collections.namedtuple("Pair", "a b")


def plain(m, v):
    """Keys as their words and float0 as bool, so that they can be compared."""
    def leaf(x):
        dtype = getattr(x, "dtype", None)
        return m.random.key_data(x) if "key<" in str(dtype) else np.zeros(x.shape, bool) if dtype == m.float0 else x
    return m.tree_util.tree_map(leaf, v)


def check(case):
    """Both raise, or both return the same structure and values."""
    def run(m):
        try:
            return plain(m, case(m))
        except Exception as error:
            return error
    theirs, ours = run(jax), run(aot)
    if isinstance(theirs, Exception):
        assert isinstance(ours, Exception), f"jax raises {theirs!r}, aot returned {ours}"
        return
    if isinstance(ours, Exception):
        raise ours
    assert str(jax.tree_util.tree_structure(theirs)) == str(aot.tree_util.tree_structure(ours))
    assert same(ours, theirs, 1e-4, 1e-5) is None, same(ours, theirs, 1e-4, 1e-5)


def cases(**functions):
    return pytest.mark.parametrize("case", functions.values(), ids=functions)


# ---- structures and signatures ---------------------------------------------------------------------------------------

class Counter:
    """A callable with state, equal to every other one."""

    def __init__(self, k): self.k, self.calls = k, 0
    def __hash__(self): return 1
    def __eq__(self, other): return isinstance(other, Counter)

    def __call__(self, x):
        self.calls += 1
        return x * self.k


def _frozen(m):
    @dataclasses.dataclass(frozen=True)
    class Config:
        n: int
    return m.jit(lambda c, x: x * c.n, static_argnums=0)(Config(3), 2.)


def _method(m):
    class Layer:
        def __init__(self): self.n = 3.

        @functools.partial(m.jit, static_argnums=0)
        def __call__(self, x): return x * self.n
    return Layer()(2.)


@cases(
    namedtuple=lambda m: m.jit(lambda p: Pair(p.b, p.a * 2))(Pair(1., np.ones(2, f32))),
    integer_keys=lambda m: m.jit(lambda d: {2: d[1], 1: d[2]})({1: 1., 2: np.ones(2, f32)}),
    none_and_empty=lambda m: m.jit(lambda x, y: (None, (), {}, [], x, y))(None, {"a": ()}),
    no_arguments=lambda m: m.jit(lambda: (3, 1., True, 1j, np.float64(1)))(),
    no_results=lambda m: m.jit(lambda x: ())(1.),
    the_same_twice=lambda m: m.jit(lambda x: (x, x, x + 1, 3, 3))(np.ones(2, f32)),
    constants_twice=lambda m: m.jit(lambda x, c=np.arange(5000.): (c, c, x + c))(1),
    unsortable_keys=lambda m: m.jit(lambda d: d)({1: 1., "a": 2.}),
    kwargs=lambda m: m.jit(lambda x, *a, y=2., **k: (x, a, y, k))(1, 2., b=3, c=4),
    partial=lambda m: m.jit(functools.partial(lambda a, b, c: a + b * c, 1., c=3.))(2.),
    method=_method,
    frozen_dataclass=_frozen,
    generator=lambda m: m.jit(lambda x: (i for i in range(3)))(1.),
    equal_callables=lambda m: (m.jit(Counter(2.))(1.), m.jit(Counter(3.))(1.)),
    static_of_other_type=lambda m: [m.jit(lambda x, n: x * n, static_argnums=1)(1., n) for n in (1, 1., True)],
    unhashable_static=lambda m: m.jit(lambda x, n: x, static_argnums=1)(1., [1]),
    static_and_donated=lambda m: m.jit(lambda x: x, static_argnums=0, donate_argnums=0)(1),
    masked_array=lambda m: m.jit(lambda x: x)(np.ma.masked_array([1., 2.], [0, 1])),
    numpy_changed_after_use=lambda m: (lambda c: (m.jit(lambda y: y + c)(1.), c.fill(7))[0])(np.ones(3, f32)),
)
def test_structures(case):
    check(case)


# ---- numbers ---------------------------------------------------------------------------------------------------------

NUMBERS = [True, 0, -1, 2**31 - 1, -2**31, 1.5, -0., float("inf"), float("nan"), 1e40, 5e-324, 2j, np.int8(-128),
           np.float16(6e4), np.float64(1e300), ml_dtypes.bfloat16(1.1), ml_dtypes.int4(-8)]


@pytest.mark.parametrize("v", NUMBERS, ids=lambda v: f"{type(v).__name__} {v}")
def test_numbers(v):
    check(lambda m: (m.jit(lambda x: x)(v), m.jit(lambda: v)(), m.numpy.asarray(v)))
    check(lambda m: m.jit(lambda x: x + v)(np.ones(2, "float32")))
    check(lambda m: m.numpy.ones(2, "bfloat16") * v)
    check(lambda m: m.vmap(lambda x: x + v)(np.arange(3)))


@pytest.mark.parametrize("value", [2**31, 2**63, 2**64, 10**30])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_large_integers_join_floats(value, dtype):
    got = aot.numpy.ones(2, dtype) * value
    assert got.dtype == dtype and np.all(np.asarray(got, float) == np.asarray(value).astype(float).astype(got.dtype))


def test_scalars_of_an_operation_are_told_apart():
    one = aot.numpy.ones((), "float32")
    for zero in (0.0, -0.0, 0.0):
        assert str(np.asarray(one * zero)) == str(zero)
    assert [(one * v).dtype.name for v in (2, 2.0, True)] == ["float32"] * 3
    assert [(aot.numpy.int32(1) * v).dtype.name for v in (1, 1.0, True)] == ["int32", "float32", "int32"]
    with aot.enable_x64(True):
        assert aot.numpy.asarray(1.5).dtype == "float64" and (aot.numpy.float64(1) * 2.0).dtype == "float64"
    assert (one * 2.0).dtype == "float32"


NARROW = ["int2", "uint2", "int4", "uint4"]


@pytest.mark.parametrize("dtype", NARROW)
def test_numbers_of_less_than_a_byte(dtype):
    """XLA ends the process on some of these operations, and sorts 2-bit numbers wrongly."""
    np_, lax = aot.numpy, aot.lax
    bits = np.array([[0, 1, 0], [1, 0, 1]], np.int8)
    x = lax.convert_element_type(np_.asarray(bits), dtype)
    for f in (lambda a: np_.concatenate([a, a]), lambda a: np_.stack([a, a]), np_.sort, np_.argsort, np_.argmax,
              lambda a: a @ a.T, lambda a: lax.top_k(a, 2)[0], lambda a: a.any(0), lambda a: a.astype(bool),
              lambda a: lax.conv(a[None, None], a[None, None], (1, 1), "VALID")):
        want = np.asarray(f(np_.asarray(bits)), np.int8)
        info = ml_dtypes.iinfo(dtype)
        if f(x).dtype == dtype:
            want = (want - int(info.min)) % (1 << info.bits) + int(info.min)
        np.testing.assert_array_equal(np.asarray(f(x)).astype(np.int8), want)


def test_arrays_made_with_x64():
    def case(m):
        with m.enable_x64(True):
            a = m.numpy.arange(3.)
            f = m.jit(lambda x: x * 2)
            inside = f(a)
        return inside, f(a), a + 1, m.jit(lambda x: x + x)(a), m.numpy.where(a > 0, a, 0), a[1]
    check(case)


def test_arrays_too_large_for_any_machine():
    """XLA ends the process when the number of elements overflows."""
    with pytest.raises(ValueError, match="more elements than any machine"):
        aot.numpy.zeros((2**32, 2**32))


# ---- derivatives -----------------------------------------------------------------------------------------------------

@cases(
    complex_input=lambda m: m.value_and_grad(lambda z: m.numpy.sum(m.numpy.abs(m.numpy.sin(z))))(
        np.array([1 + 2j, 3], np.complex64)),
    complex_jacrev=lambda m: m.jacrev(lambda z: m.numpy.real(z * z))(np.array([1 + 2j, 3], np.complex64)),
    complex_jacfwd=lambda m: m.jacfwd(lambda z: m.numpy.real(z * z))(np.array([1 + 2j, 3], np.complex64)),
    complex_output=lambda m: m.grad(lambda z: z * z)(1 + 2j),
    integer=lambda m: m.grad(lambda x: x * 1.)(3),
    float0=lambda m: m.grad(lambda x, n: x * n, argnums=(0, 1), allow_int=True)(3., 2),
    float0_under_jit=lambda m: m.jit(m.grad(lambda n: n * 1., allow_int=True))(3),
    float0_under_vmap=lambda m: m.jit(m.vmap(m.grad(lambda i, x: i * x, (0, 1), allow_int=True), (0, None)))(
        np.arange(2), 2.),
    float0_argument=lambda m: m.jit(lambda t: m.jvp(lambda x: x * 2., (np.arange(3),), (t,)))(
        np.zeros(3, m.dtypes.float0)),
    constant=lambda m: m.grad(lambda x: 3.)(2.),
    constant_shape_under_jit=lambda m: m.jit(lambda x: m.numpy.ones(m.grad(lambda y: 3.)(x).shape))(2.),
    zero_tangent=lambda m: m.jvp(lambda x: {"a": x * 2, "b": m.numpy.ones(2)}, (1.,), (1.,)),
    no_such_argument=lambda m: m.grad(lambda x: x, argnums=2)(1.),
    the_same_argument_twice=lambda m: m.grad(lambda x, y: x * y, argnums=(0, 0))(2., 3.),
    not_linear=lambda m: m.linear_transpose(lambda x: x * x, 1.)(2.),
    hessian_of_dict=lambda m: m.hessian(lambda d: (d["a"] ** 2 @ d["b"]) * 2)(
        {"a": np.arange(2, dtype=f32), "b": np.ones(2, f32)}),
)
def test_derivatives(case):
    check(case)


@cases(
    numpy_function=lambda m: m.grad(lambda x: m.numpy.sum(np.sin(x)))(1.),
    asarray=lambda m: m.grad(lambda x: m.numpy.sum(np.asarray(x) * x))(1.),
    dot=lambda m: m.grad(lambda x: m.numpy.asarray(np.dot(x, x)))(np.ones(2, f32)),
    math=lambda m: m.grad(lambda x: __import__("math").sin(x) * x)(1.),
    float=lambda m: m.grad(lambda x: float(x) * x)(2.),
    tolist=lambda m: m.grad(lambda x: x.tolist() * x)(2.),
    pickle=lambda m: m.jit(pickle.dumps)(1.),
    control_flow=lambda m: m.grad(lambda x: x * x if x > 1 else x)(2.),
    integer_argument=lambda m: m.grad(lambda x, n: x * [1., 2.][n] * np.asarray(n))(2., 1),
    stopped=lambda m: m.grad(lambda x: m.numpy.sum(x * x))(2.),
)
def test_values_do_not_leave_a_derivative_silently(case):
    check(case)


def test_a_stopped_value_may_leave():
    assert aot.grad(lambda x: float(aot.lax.stop_gradient(x)) * x)(2.) == 2
    with pytest.raises(errors.TracerArrayConversionError, match="stop_gradient"):
        aot.grad(lambda x: np.sin(x))(1.)


def closing_over(m, rule):
    """outer(y): a function with its own derivative that closes over y, called on a constant or on y itself."""
    def outer(y, x=2.):
        f = getattr(m, rule)(lambda v: v * y)
        if rule == "custom_jvp":
            f.defjvp(lambda p, t: (f(*p), t[0] * 7))
        else:
            f.defvjp(lambda v: (v * y, None), lambda r, g: (g * 7,))
        return f(x)
    return outer


@pytest.mark.parametrize("rule", ["custom_jvp", "custom_vjp"])
@cases(
    jit=lambda m, f: m.jit(f)(3.),
    vmap=lambda m, f: m.vmap(f)(np.arange(3.)),
    vmap_of_itself=lambda m, f: m.vmap(lambda y: f(y, y))(np.arange(3.)),
    grad_inside_vmap=lambda m, f: m.vmap(lambda y: m.grad(lambda x: f(y, x))(2.))(np.arange(3.)),
    jit_of_vmap=lambda m, f: m.jit(m.vmap(f))(np.arange(3.)),
    two_vmaps=lambda m, f: m.vmap(lambda y: m.vmap(lambda x: f(y, x))(np.arange(2.)))(np.arange(3.)),
    grad_of_what_is_closed_over=lambda m, f: m.grad(f)(3.),
)
def test_derivative_rules_may_close_over_traced_values(rule, case):
    check_values(lambda m: case(m, closing_over(m, rule)))


def check_values(case):
    """Like `check`, without weak types."""
    def run(m):
        try:
            return [np.asarray(x) for x in m.tree_util.tree_leaves(case(m))]
        except Exception as error:
            return error
    theirs, ours = run(jax), run(aot)
    if isinstance(theirs, Exception):
        assert isinstance(ours, Exception)
        return
    if isinstance(ours, Exception):
        raise ours
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def nested(m):
    """jit in grad in vmap in scan, with a traced value of each level used in all inner ones."""
    def f(w):
        def step(c, x):
            g = m.vmap(lambda u: m.grad(lambda v: m.jit(lambda q: m.numpy.sin(q * w) * c * x)(v))(u))(m.numpy.arange(3.) * w)
            return c + g.sum() * w, m.jit(lambda z: z * w * c)(x)
        last, ys = m.lax.scan(step, w, m.numpy.arange(4.))
        return last + ys.sum()
    return (f(.3), m.grad(f)(.3), m.jit(m.grad(f))(.3), m.vmap(m.grad(f))(m.numpy.array([.1, .2])),
            m.jvp(m.grad(f), (.3,), (1.,)), m.grad(m.grad(f))(.3))


def test_every_level_uses_the_outer_ones():
    check_values(nested)


# ---- keys ------------------------------------------------------------------------------------------------------------

@cases(
    carry=lambda m: m.lax.scan(lambda k, _: tuple(m.random.split(k)), m.random.key(0), None, length=3),
    inputs_of_scan=lambda m: m.lax.scan(lambda c, k: (c + m.random.uniform(k), k), 0., m.random.split(m.random.key(0), 4)),
    cond_under_vmap=lambda m: m.vmap(lambda p, k: m.lax.cond(p, lambda k: m.random.split(k)[0], lambda k: k, k))(
        np.array([True, False]), m.random.split(m.random.key(0))),
    residual=lambda m: m.grad(m.checkpoint(lambda x, k: m.numpy.sin(x * m.random.normal(k))))(1., m.random.key(0)),
    pickled=lambda m: pickle.loads(pickle.dumps(m.random.split(m.random.key(0)))),
    copied=lambda m: copy.deepcopy(m.random.key(0)),
    captured=lambda m: (lambda k: m.jit(lambda x: (x * m.random.normal(k), k))(1.))(m.random.key(0)),
    gradient=lambda m: m.grad(lambda k: m.random.normal(k))(m.random.key(0)),
    sum=lambda m: m.random.key(0) + 1,
)
def test_keys(case):
    check(case)


# ---- buffers ---------------------------------------------------------------------------------------------------------

def _donated(m):
    x = m.numpy.ones(1000)
    y = m.jit(lambda v: v + 1, donate_argnums=0)(x)
    return y, x.is_deleted()


def _captured_then_donated(m):
    x = m.numpy.ones(1000)
    f = m.jit(lambda y: x * y)
    first = f(2.)
    second = m.jit(lambda z: z + 1, donate_argnums=0)(m.numpy.array(x) if m is jax else x)
    return first, second, f(3.)


@cases(
    donated=_donated,
    donated_twice=lambda m: (lambda x: m.jit(lambda a, b: (a, b), donate_argnums=(0, 1))(x, x))(m.numpy.ones(1000)),
    donated_and_passed=lambda m: (lambda x: m.jit(lambda a, b: (a, b), donate_argnums=0)(x, x))(m.numpy.ones(1000)),
    donated_and_captured=lambda m: (lambda x: m.jit(lambda y: (x + 1, y + 2), donate_argnums=0)(x))(m.numpy.ones(1000)),
    captured_then_donated=_captured_then_donated,
    pickled=lambda m: pickle.loads(pickle.dumps({"a": m.numpy.ones(2), "w": m.numpy.asarray(1.)})),
    copied_tracer=lambda m: m.jit(lambda x: copy.deepcopy(x) + copy.copy(x))(1.),
    changed_array=lambda m: np.asarray(m.numpy.ones(2)).__setitem__(0, 3),
)
def test_buffers(case):
    check(case)


def test_a_compiled_function_is_not_transformed():
    compiled = aot.jit(lambda x: x * x).lower(1.).compile()
    assert compiled(2.) == 4
    for use in (aot.grad(compiled), aot.jit(compiled)):
        with pytest.raises(TypeError, match="transform the function first"):
            use(2.)


def test_a_deleted_array_is_named():
    f, x = aot.jit(lambda v: v + 1, donate_argnums=0), aot.numpy.ones(1000)
    f(x)
    for use in (lambda: f(x), lambda: x + 1, lambda: np.asarray(x)):
        with pytest.raises(RuntimeError, match=r"Array has been deleted with shape=float32\[1000\]"):
            use()


# ---- state -----------------------------------------------------------------------------------------------------------

def bad(x): raise KeyError("k")


@cases(
    jit=lambda m, x: m.jit(bad)(x), grad=lambda m, x: m.grad(bad)(x), vmap=lambda m, x: m.vmap(bad)(x),
    nested=lambda m, x: m.jit(m.grad(m.vmap(bad)))(x), remat=lambda m, x: m.checkpoint(bad)(x),
    scan=lambda m, x: m.lax.scan(lambda c, y: bad(c), x, None, length=2),
    cond=lambda m, x: m.lax.cond(x.sum() > 0, bad, bad, x),
    while_loop=lambda m, x: m.lax.while_loop(lambda c: True, bad, x),
)
def test_an_exception_leaves_no_trace(case):
    with pytest.raises(KeyError):
        case(aot, aot.numpy.ones(2))
    assert aot.jit(lambda x: x * 2)(3.) == 6 and aot.grad(lambda x: x * x)(3.) == 6 and aot.numpy.sin(0.) == 0


def test_threads_share_a_jitted_function():
    f, out = aot.jit(lambda x: aot.lax.fori_loop(0, 10, lambda i, c: aot.numpy.sin(c) + i, x).sum()), [0.] * 6

    def work(i):
        for k in range(10):
            out[i] = float(f(np.ones(k % 5 + 1, f32) * i))
    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert out == [float(f(np.ones(5, f32) * i)) for i in range(6)]


def test_results_of_a_program_are_freed_with_its_function():
    """Neither fresh functions nor fresh loop bodies leave programs behind."""
    import weakref
    seen = []

    def fresh(i):
        body = lambda c, v: (c + v * i, c)
        seen.append(weakref.ref(body))
        return aot.lax.scan(body, 0., aot.numpy.ones(3)), aot.jit(lambda v: v * i)(1.)
    for i in range(5):
        fresh(i)
    gc.collect()
    assert [r for r in seen if r() is not None] == []


@pytest.mark.parametrize("what", ["numpy.sin(x)", "jit(aot.numpy.sin)(x, )", "numpy.sin(x) * 2.0 + 1"])
def test_memory_stays_bounded(what):
    code = f"""
import aot, aot.numpy
x, f = aot.numpy.ones(100), eval("lambda x: aot.{what}".replace("aot.jit(aot.numpy.sin)", "g"), {{"aot": aot, "g": aot.jit(aot.numpy.sin)}})
def resident(): return int(open("/proc/self/statm").read().split()[1]) * 4096
for _ in range(20000): f(x)
before = resident()
for _ in range(40000): f(x)
print((resident() - before) / 40000)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 30, f"{done.stdout.strip()} bytes are left by each call"


def test_used_next_to_jax():
    for m in itertools.islice(itertools.cycle([jax, aot]), 6):
        x = m.numpy.arange(3.)
        assert float(m.jit(m.grad(lambda v: m.numpy.sum(v ** 2)))(x)[2]) == 4
        assert m.vmap(lambda v: v * 2)(x).shape == (3,)
    assert float(aot.jit(lambda v: v.sum())(np.asarray(jax.numpy.ones(3)))) == 3


EXTREMES = {"relu6": lambda m, x: m.nn.relu6(x), "hard_tanh": lambda m, x: m.nn.hard_tanh(x), "mapped": lambda m, x: m.vmap(m.nn.relu6)(x),
            "clamped from above": lambda m, x: m.numpy.maximum(m.numpy.minimum(x, 2 + 1j), -1),
            "broadcast": lambda m, x: m.numpy.minimum(m.numpy.maximum(x[:, None], x), 1j)}


@pytest.mark.parametrize("name", EXTREMES)
def test_complex_numbers_between_a_minimum_and_a_maximum(name):
    """XLA's own minimum of a maximum with constants ends the process."""
    x = np.array([1 + 1j, -0.0, 3 - 2j, 3 + 2j, 9, -2j, np.nan, np.inf], np.complex64)
    check(lambda m: m.jit(lambda x: EXTREMES[name](m, x))(x))


def named_otherwise(name):
    def f(ξ): return {"β": ξ * 2}
    f.__name__ = f.__qualname__ = name
    return f


@pytest.mark.parametrize("name", ["ünï数", "λ", "3d", "a b", 'a"b', "a\\b", "", "%s"])
def test_functions_of_any_name(name):
    f, x = named_otherwise(name), np.ones(3, f32)
    calls = {"jit": f, "called twice": lambda x: (aot.jit(f)(x), aot.jit(named_otherwise(name))(x)), "checkpoint": aot.checkpoint(f),
             "scan": lambda x: aot.lax.scan(lambda c, v: (c, aot.jit(f)(v)), 0., x), "vmap": aot.vmap(f)}
    for call in calls.values():
        assert aot.jit(call)(x) is not None
    exported = aot.export.export(aot.jit(f))(x)
    assert aot.jit(aot.export.deserialize(exported.serialize()).call)(x)["β"].tolist() == [2, 2, 2]
    assert "loc(" in aot.jit(f).lower(x).as_text(debug_info=True)
    target = aot.ffi.ffi_call(name or "none", aot.ShapeDtypeStruct((3,), f32))
    with pytest.raises(aot.errors.JaxRuntimeError, match="NOT_FOUND: No FFI handler registered"):
        aot.jit(target)(x)


@pytest.mark.parametrize("axis", ["ä", "数", "a b", 'a"b', "a\\b", "a\nb", "%", 0])
def test_axes_of_any_name(axis):
    mesh, x = aot.make_mesh((1,), (axis,)), np.ones((4, 3), f32)
    total = aot.shard_map(lambda x: aot.lax.psum(x, axis), mesh=mesh, in_specs=aot.P(axis), out_specs=aot.P())
    assert aot.jit(total)(x).sum() == 12 == aot.vmap(lambda x: aot.lax.psum(x, axis), axis_name=axis)(x)[0].sum()
    split = aot.NamedSharding(mesh, aot.P(axis))
    assert aot.jit(lambda x: x * 2, in_shardings=split, out_shardings=split)(x).sum() == 24


BIG = np.arange(3, dtype=">f4")


@pytest.mark.parametrize("case", [
    lambda m: m.numpy.asarray(BIG), lambda m: m.numpy.array(BIG), lambda m: m.numpy.asarray(BIG, f32), lambda m: m.device_put(BIG),
    lambda m: m.numpy.stack([BIG, BIG]), lambda m: m.jit(lambda x: x)({"a": BIG}), lambda m: m.grad(lambda x: x.sum())(BIG),
    lambda m: m.vmap(lambda x: x)(BIG), lambda m: m.lax.sin(BIG), lambda m: m.numpy.ones(3)[BIG.astype(">i4")],
    lambda m: m.jit(lambda: m.numpy.sin(BIG))(), lambda m: m.numpy.full(2, BIG[0]), lambda m: m.numpy.asarray(np.ones(2, ">i1")),
    lambda m: m.numpy.asarray(BIG[1]), lambda m: m.make_jaxpr(lambda x: x)(BIG).jaxpr and 0])
def test_numbers_in_the_other_byte_order(case):
    check(case)


def test_the_other_byte_order_after_a_call_that_was_dispatched_fast():
    f = aot.jit(lambda x: x + 1)
    for _ in range(3):
        f(BIG.astype(f32))
    with pytest.raises(TypeError, match="is not a valid JAX type"):
        f(BIG)
    with pytest.raises(TypeError, match="newbyteorder"):
        aot.numpy.asarray(BIG)


def test_float0_arguments_of_compiled_functions():
    """They have no data, and are part of the structure."""
    for f in (lambda x: 1., lambda x: x, lambda x: {"a": x, "b": 2.}):
        def run(m, f=f):
            zero = np.zeros(3, m.dtypes.float0)
            return m.jit(f).lower(zero).compile()(zero)
        ours, theirs = run(aot), run(jax)
        assert [np.shape(x) for x in aot.tree_util.tree_leaves(ours)] == [np.shape(x) for x in jax.tree_util.tree_leaves(theirs)]
        assert [np.asarray(x).dtype for x in aot.tree_util.tree_leaves(ours)] == [
            np.asarray(x).dtype for x in jax.tree_util.tree_leaves(theirs)]
    with pytest.raises(TypeError):
        aot.jit(lambda x: x).lower(np.zeros(3)).compile()(np.zeros(3, aot.float0))


def test_live_arrays_of_a_platform():
    kept = aot.numpy.ones(3)
    assert any(x is kept for x in aot.live_arrays()) and any(x is kept for x in aot.live_arrays("cpu"))
    for name in ("tpu", "no such"):
        for m in (aot, jax):
            with pytest.raises(RuntimeError, match=name):
                m.live_arrays(name)
