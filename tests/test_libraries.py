"""What libraries written for jax rely on beyond its documents: each case runs over aot and over jax, and must agree."""
from __future__ import annotations

import gc
import traceback
from unittest import mock

import numpy as np
import pytest

import aot
from tests.test_corners import cases, check

jax = pytest.importorskip("jax")
f32 = np.float32
X = np.arange(6, dtype=f32).reshape(2, 3) / 7


# ---- rules of derivatives that give more than a cotangent ---------------------------------------------------------------

def statistic(m):
    """x, whose "cotangent" is 10 x whatever reaches it."""
    f = m.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, x), lambda x, ct: (10 * x + ct,))
    return f


def first_blocks(m):
    """x + y, with None for the cotangent of x."""
    f = m.custom_vjp(lambda x, y: x + y)
    f.defvjp(lambda x, y: (x + y, ()), lambda _, ct: (None, ct))
    return f


#: name -> function of a module, a statistic, a function that passes nothing back to its first argument, and x
WITHOUT_COTANGENT = {
    "none": lambda m, g, h, x: h(g(x), x),
    "before": lambda m, g, h, x: h(m.numpy.sin(g(x)), x),
    "after": lambda m, g, h, x: h(g(m.numpy.sin(x)), x),
    "call": lambda m, g, h, x: h(m.jit(g)(x), x),
    "not used": lambda m, g, h, x: (m.numpy.sin(g(x)), x)[1],
    "stopped": lambda m, g, h, x: m.lax.stop_gradient(g(x)) + x,
    "integer": lambda m, g, h, x: g(x).astype(int) + x,
    "scan": lambda m, g, h, x: m.lax.scan(lambda c, _: (h(g(c), c), None), x, None, length=2)[0],
    "scan, not used": lambda m, g, h, x: m.lax.scan(lambda c, _: ((g(c), c)[1], None), x, None, length=2)[0],
    "cond": lambda m, g, h, x: m.lax.cond(x > 0, lambda x: h(g(x), x), lambda x: x, x),
    "checkpoint": lambda m, g, h, x: m.checkpoint(lambda x: h(g(x), x))(x),
    "vmap": lambda m, g, h, x: m.vmap(lambda x: h(g(x), x))(x[None])[0],
}


@pytest.mark.parametrize("how", ["grad", "jit of grad", "grad of jit", "vjp"])
@pytest.mark.parametrize("name", WITHOUT_COTANGENT)
def test_rules_run_without_a_cotangent_where_a_result_depends_on_them(name, how):
    def case(m):
        f = lambda x: WITHOUT_COTANGENT[name](m, statistic(m), first_blocks(m), x)
        return {"grad": m.grad(f), "jit of grad": m.jit(m.grad(f)), "grad of jit": m.grad(m.jit(f)),
                "vjp": lambda x: m.vjp(f, x)[1](f32(1))[0]}[how](f32(3))
    check(case)


@cases(**{str(i): lambda m, ct=ct: m.vjp(lambda x: ((x * 2).astype(int), x), f32(3))[1]((ct, f32(2)))
          for i, ct in enumerate([1, True, 2., np.int32(3), np.zeros((), jax.dtypes.float0), np.zeros(2, int)])})
def test_cotangents_of_integers_have_no_effect(case):
    check(case)


# ---- values ---------------------------------------------------------------------------------------------------------------

SCALARS = {
    "zeros": lambda m: m.numpy.zeros(()), "ones": lambda m: m.numpy.ones((), "uint32"), "full": lambda m: m.numpy.full((), 3.),
    "lax.full": lambda m: m.lax.full((), 1), "zeros_like": lambda m: m.numpy.zeros_like(1.),
    "full_like": lambda m: m.lax.full_like(np.ones((), f32), 2), "convert": lambda m: m.lax.convert_element_type(1, "float32"),
    "same": lambda m: m.lax.convert_element_type(f32(1), "float32"), "weak": lambda m: m.lax.full((), 1.)}
TRACES = {"none": lambda m, f: f(1.), "jit": lambda m, f: m.jit(f)(1.), "grad": lambda m, f: m.grad(f)(1.),
          "vmap": lambda m, f: m.vmap(f)(X[0]), "eval_shape": lambda m, f: m.eval_shape(f, 1.)}


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("name", SCALARS)
def test_scalars_are_arrays_in_every_trace(name, trace):
    for m in aot, jax:
        seen = []

        def f(x, m=m, seen=seen):
            made = SCALARS[name](m)
            seen.append((isinstance(made, m.Array), made.dtype, made.weak_type, made.at[...].set(2).shape))
            return x * 1.
        TRACES[trace](m, f)
        assert seen[0][0]
        if m is aot:
            ours = seen[0]
    assert ours == seen[0]


@pytest.mark.parametrize("rule", ["bwd", "jvp"])
def test_zeros_that_rules_are_given_are_arrays(rule):
    for m in aot, jax:
        seen = []
        if rule == "bwd":
            f = m.custom_vjp(lambda x: (x * 2, x))
            f.defvjp(lambda x: (f(x), None), lambda _, cts: seen.append(cts[1]) or (cts[0] * 2,))
        else:
            f = m.custom_jvp(lambda x, y=3.: (x * 2, y))
            f.defjvp(lambda p, t: (f(*p), (seen.append(t[1]) or t[0] * 2, t[1])))
        for how in m.grad, lambda f, m=m: m.jit(m.grad(f)):
            how(lambda x: f(x, *([3.] if rule == "jvp" else []))[0])(1.)
        assert len(seen) == 2 and all(isinstance(x, m.Array) and x.shape == () for x in seen)


def wrapper(m, value):
    """An object that stands for an array, and has its attributes, as parameters of neural networks have."""
    class Wrapper:
        def __init__(self, x): self.x = x
        def __getattr__(self, name): return getattr(object.__getattribute__(self, "x"), name)
        def __jax_array__(self): return self.x
    m.tree_util.register_pytree_node(Wrapper, lambda w: ([w.x], None), lambda _, xs: Wrapper(*xs))
    return Wrapper(value)


WRAPPED = {
    "sin": lambda m, x, w: m.numpy.sin(w), "square": lambda m, x, w: m.numpy.square(w), "negative": lambda m, x, w: m.numpy.negative(w),
    "multiply": lambda m, x, w: m.numpy.multiply(x, w), "left": lambda m, x, w: m.numpy.add(w, 1.), "operator": lambda m, x, w: x * w,
    "dot": lambda m, x, w: m.numpy.dot(x[0], m.numpy.sum(w, 0)), "convert": lambda m, x, w: m.lax.convert_element_type(w, "float32"),
    "set": lambda m, x, w: x.at[:].set(w), "add": lambda m, x, w: x.at[0].add(w[0])}


@pytest.mark.parametrize("trace", ["none", "jit", "grad", "vmap"])
@pytest.mark.parametrize("name", WRAPPED)
def test_objects_that_stand_for_arrays(name, trace):
    def case(m):
        f = lambda x: WRAPPED[name](m, x, wrapper(m, x * 2)).sum()
        x = m.numpy.asarray(X)
        return {"none": f, "jit": m.jit(f), "grad": m.grad(f), "vmap": lambda x: m.vmap(f)(x[None])}[trace](x)
    check(case)


@cases(given=lambda m: m.lax.dot_general(X, X.T, (((1,), (0,)), ((), ())), preferred_element_type=m.numpy.float32),
       wide=lambda m: m.lax.dot_general(X, X.T, (((1,), (0,)), ((), ())), preferred_element_type=np.float32))
def test_dtypes_given_as_types(case):
    check(case)
    assert aot.core.ShapedArray((), aot.numpy.float32) == aot.typeof(f32(0))


# ---- control flow ----------------------------------------------------------------------------------------------------------

def test_copies_to_the_host_may_start_early():
    x = aot.numpy.arange(3) * 2
    assert x.copy_to_host_async() is None and aot.copy_to_host_async({"x": x})["x"] is x and x.tolist() == [0, 2, 4]


UNCHANGED = {
    "cond": lambda m, x, y: m.lax.cond(x > 0, lambda x, y: (x + 1, y), lambda x, y: (x, y), x, y),
    "closed over": lambda m, x, y: m.lax.cond(x > 0, lambda: (x + 1, y), lambda: (x, y)),
    "switch": lambda m, x, y: m.lax.switch(x.astype(int), [lambda x, y: (x, y), lambda x, y: (x * y, y), lambda x, y: (y, y)], x, y),
    "all": lambda m, x, y: m.lax.cond(x > 0, lambda x, y: (x, y), lambda x, y: (x, y), x, y),
    "swapped": lambda m, x, y: m.lax.cond(x > 0, lambda x, y: (x, y), lambda x, y: (y, x), x, y),
    "while": lambda m, x, y: m.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + c[1], c[1]), (x, y)),
    "while, in the condition": lambda m, x, y: m.lax.while_loop(lambda c: c[0] < 3 * c[1], lambda c: (c[0] + 1, c[1]), (x, y)),
    "scan": lambda m, x, y: m.lax.scan(lambda c, _: ((c[0] + c[1], c[1]), None), (x, y), None, length=3)[0]}


@pytest.mark.parametrize("name", UNCHANGED)
def test_what_no_branch_or_iteration_changes_is_passed_on(name):
    f = UNCHANGED[name]
    check(lambda m: f(m, m.numpy.float32(1), m.numpy.float32(2)))
    check(lambda m: m.jit(lambda x, y: f(m, x, y))(f32(1), f32(2)))
    if "condition" not in name:         # jax wants an axis there
        check(lambda m: m.vmap(lambda x, y: f(m, x, y), in_axes=(0, None), out_axes=(0, None))(X[0] - f32(.2), f32(2)))
    check(lambda m: m.vmap(lambda x, y: f(m, x, y))(X[0] - f32(.2), X[1]))
    check(lambda m: m.jvp(lambda x, y: f(m, x, y), (f32(1), f32(2)), (f32(3), f32(4))))
    if "while" not in name:
        check(lambda m: m.grad(lambda x, y: f(m, x, y)[0] * f(m, x, y)[1], (0, 1))(f32(1), f32(2)))


def test_mapped_results_without_an_axis_are_named():
    with pytest.raises(ValueError, match=r"at vmap.*\['b'\].*got axis spec None but output was batched on axis 0"):
        aot.vmap(lambda x: {"a": 1., "b": x}, out_axes=None)(X)


def test_loops_without_jit():
    with aot.disable_jit():
        assert aot.lax.while_loop(lambda c: c < 3, lambda c: c + 1, 0) == 3


# ---- what is known of functions and values -------------------------------------------------------------------------------

@cases(inferred=lambda m: m.jit(lambda n, x: x * n if n else x, static_argnames="n")(0, f32(2)),
       both=lambda m: m.jit(lambda key, x, *, n: x * len(key) * n, static_argnums=0, static_argnames="n")("ab", f32(2), n=3),
       positions_of_another=lambda m: m.jit(lambda *xs, k: xs[1] * len(k), static_argnums=(0,), static_argnames=["k"])(
           "ab", f32(2), k="abc"),
       names_that_only_look_alike=lambda m: m.jit(lambda a, x, b: x * (1 if b is None else b), static_argnums=(0,),
                                                  static_argnames="b")("a", f32(2), f32(4)))
def test_static_arguments_by_position_and_name(case):
    check(case)


@cases(**{str(i): lambda m, x=x: np.zeros(1, m.lax.dtype(x)) for i, x in enumerate(
    [np.dtype("int32"), np.int8, float, int, bool, "float32", np.float16, np.int64(3), 3, [1.], None, object(), X])})
def test_dtype(case):
    check(case)


def test_types_made_by_hand():
    made = aot.core.ShapedArray(X.shape, X.dtype, sharding=aot.typeof(X).sharding, weak_type=False)
    assert made == made.update(sharding=None) == aot.typeof(X)
    mesh = aot.make_mesh((1,), ("x",))
    sharding = aot.NamedSharding(mesh, aot.P(None, "x"))
    assert sharding.update(spec=("x",)) == aot.NamedSharding(mesh, aot.P("x")) and sharding.update() == sharding


@pytest.mark.parametrize("f", [lambda m, x: m.numpy.sin(x @ x.T) + 1,
                               lambda m, x: m.lax.scan(lambda c, _: (c * x, None), x, None, length=5)[0]])
def test_costs_before_compilation(f):
    ours, theirs = (m.jit(lambda x: f(m, x)).lower(X).cost_analysis() for m in (aot, jax))
    assert ours == theirs and ours["flops"] > 0


# ---- traces and tracebacks -----------------------------------------------------------------------------------------------

TRACED = {
    "call": lambda m, x: m.jit(m.numpy.sin)(x), "random": lambda m, x: m.random.normal(m.random.key(0), (3,)),
    "jit of vmap": lambda m, x: m.jit(m.vmap(lambda x: m.jit(m.numpy.cos)(x) + x))(X), "grad": lambda m, x: m.jit(m.grad(m.numpy.sin))(x),
    "scan": lambda m, x: m.jit(lambda x: m.lax.scan(lambda c, _: (c * 2, c), x, None, length=3))(x),
    "cond": lambda m, x: m.jit(lambda x: m.lax.cond(x > 0, m.numpy.sin, m.numpy.cos, x))(x),
    "while": lambda m, x: m.jit(lambda x: m.lax.while_loop(lambda x: x < 3, lambda x: x + 1, x))(x),
    "eval_shape": lambda m, x: m.eval_shape(lambda x: m.numpy.tan(x), x), "make_jaxpr": lambda m, x: m.make_jaxpr(m.numpy.exp)(x)}


@pytest.mark.parametrize("name", TRACED)
def test_traces_are_freed_without_the_collector(name):
    gc.disable()
    try:
        with mock.patch.object(gc, "collect", return_value=0), aot.checking_leaks():
            TRACED[name](aot, f32(.5))
    finally:
        gc.enable()


def fails(m):
    def f(x): raise ValueError("wrong")
    return m.jit(m.grad(m.checkpoint(f)))(1.)


@pytest.mark.parametrize("mode", ["off", "tracebackhide", "remove_frames", "quiet_remove_frames"])
def test_frames_of_tracebacks(mode):
    seen = []
    for m in aot, jax:
        m.config.update("jax_traceback_filtering", mode)
        try:
            fails(m)
        except ValueError as error:
            frames = [f for f, _ in traceback.walk_tb(error.__traceback__)]
            shown = [f for f in frames if "__tracebackhide__" not in f.f_locals]
            ours = [f.f_code.co_name for f in frames if f.f_code.co_filename == __file__]
            full = [] if error.__cause__ is None else [f for f, _ in traceback.walk_tb(error.__cause__.__traceback__)]
            seen.append((ours, len(frames) > len(shown) if mode != "off" else None, len(shown) > len(ours),
                         type(error.__cause__).__name__, len(full) > len(frames)))
        finally:
            m.config.update("jax_traceback_filtering", "auto")
    assert seen[0] == seen[1]
