"""What libraries written for jax rely on beyond its documents: each case runs over aot and over jax, and must agree."""
from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import inspect
import traceback
from unittest import mock

import numpy as np
import pytest

import aot

jax = pytest.importorskip("jax")        # before test_corners, which asks for it too

from tests.test_corners import cases, check

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


# ---- signatures, texts, former names, arrays without elements --------------------------------------------------------------

class Adder:
    def __call__(self, x): return x + 1


@cases(bound=lambda m: m.jit(lambda x, *, b=2: x), method=lambda m: m.jit(Adder.__call__), vmap=lambda m: m.vmap(lambda x, y: x),
       pmap=lambda m: m.pmap(lambda x, y=1: x), partial=lambda m: m.jit(functools.partial(lambda x, y: x, y=2)))
def test_signatures_of_transformed_functions(case):
    for follow in True, False:
        assert inspect.signature(case(aot), follow_wrapped=follow) == inspect.signature(case(jax), follow_wrapped=follow)
    assert inspect.signature(type(aot.jit(len)))


def test_former_names():
    assert aot.config.x64_enabled is aot.config.enable_x64 is False
    for x in np.ones(3, f32), np.ones(3, np.int32):
        assert str(aot.typeof(x).at_least_vspace()) == str(jax.typeof(x).at_least_vspace()) == str(aot.typeof(x).to_tangent_aval())


@pytest.mark.parametrize("error, size, fits", [(.15, 1, False), (.15, 2, True), (.15, 10, True), (1.5, 10, False)])
def test_tolerances_of_derivatives_grow_with_the_array(error, size, fits):
    for m in aot, jax:
        f = m.custom_jvp(lambda x: x * 1)
        f.defjvp(lambda p, t: (f(*p), t[0] * (1 + error)))
        check_jvp = importlib.import_module(f"{m.__name__}.test_util").check_jvp
        with contextlib.nullcontext() if fits else pytest.raises(AssertionError):
            check_jvp(f, functools.partial(m.jvp, f), (np.ones(size, f32),), rtol=.1, atol=.01)


def test_texts_that_libraries_match():
    assert [str(p) for p in aot.lax.Precision] == [str(p) for p in jax.lax.Precision] == ["DEFAULT", "HIGH", "HIGHEST"]
    with pytest.raises(TypeError, match="cond branch outputs must have the same pytree structure"):
        aot.lax.cond(True, lambda: 1, lambda: (1,))


def test_jitted_functions_show_what_they_wrap():
    f = aot.jit(max)
    assert repr(f) == repr(jax.jit(max)) == "<PjitFunction of <built-in function max>>"
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        f.missing


def test_programs_as_hlo():
    lowered = aot.jit(lambda x: x * 2).lower(1.)
    assert lowered.compiler_ir("hlo").as_hlo_text() == lowered.as_text("hlo") and "ENTRY" in lowered.as_text("hlo")
    assert lowered.as_text("stablehlo") == lowered.as_text() == str(lowered.compiler_ir())
    for ask in lowered.as_text, lowered.compiler_ir, lambda d: lowered.as_text(d, debug_info=True):
        with pytest.raises(ValueError, match="unknown dialect: mhlo"):
            ask("mhlo")


def _sharding(m, *shape): return m.typeof(m.numpy.ones(shape)).sharding


@cases(zeros=lambda m: m.numpy.zeros(3, out_sharding=_sharding(m, 3)), full=lambda m: m.lax.full((3,), 1., sharding=_sharding(m, 3)),
       arange=lambda m: m.numpy.arange(3., device=_sharding(m, 3)), asarray=lambda m: m.numpy.asarray(np.arange(3, dtype=f32), device=_sharding(m, 3)),
       normal=lambda m: m.random.normal(m.random.key(0), (3,), out_sharding=_sharding(m, 3)),
       traced=lambda m: m.jit(lambda x: m.numpy.ones_like(x, out_sharding=m.typeof(x).sharding))(np.ones(3, f32)),
       reshape=lambda m: m.numpy.ones(3).reshape((3, 1), out_sharding=_sharding(m, 3, 1)),
       einsum=lambda m: m.numpy.einsum("i,j", np.ones(3, f32), np.ones(3, f32), out_sharding=_sharding(m, 3, 3)),
       device_put=lambda m: m.jit(lambda x: m.device_put(x, m.typeof(x).sharding))(np.ones(3, f32)))
def test_the_sharding_of_a_type_without_a_mesh_asks_for_nothing(case):
    check(case)
    x = np.ones(3, f32)
    assert (aot.lax.with_sharding_constraint(x, _sharding(aot, 3)) == x).all()


def test_platforms_that_are_not_here():
    with pytest.raises(RuntimeError, match="Unknown backend 'tpu'"):
        aot.devices("tpu")


MATRIX = np.zeros((0, 3, 4), f32)
EMPTY = {
    "dynamic_slice": lambda m, x, i: m.lax.dynamic_slice(x, (i, i), (1, 2)), "index": lambda m, x, i: x[i],
    "indices": lambda m, x, i: x[m.numpy.stack([i, i])], "set": lambda m, x, i: x.at[i].set(1), "add": lambda m, x, i: x.at[i].add(1),
    "dynamic_update_slice": lambda m, x, i: m.lax.dynamic_update_slice(x, x[:1, :2], (i, i)),
    "grad": lambda m, x, i: m.grad(lambda x: m.lax.dynamic_slice(x, (i, i), (1, 2)).sum() + x[i].sum())(x),
    "conv": lambda m, x, i: m.lax.conv(x[None, None], x[None, None, :1, :1], (1, 1), "SAME"),
    "convolve": lambda m, x, i: m.numpy.convolve(x[0], x[1]), "roll": lambda m, x, i: m.numpy.roll(x, i),
    "fori_loop": lambda m, x, i: m.lax.fori_loop(0, i, lambda _, x: x + 1, x), "svd": lambda m, x, i: m.numpy.linalg.svd(x)[1],
    "cond": lambda m, x, i: m.lax.cond(i > 0, lambda x: x, lambda x: x + 1, x), "sort": lambda m, x, i: m.numpy.sort(x),
    "scan": lambda m, x, i: m.lax.scan(lambda c, y: (c + y, c), x[0], x), "normal": lambda m, x, i: m.random.normal(m.random.key(i), (3,)),
}


@pytest.mark.parametrize("dims", [(0, 0), (0, None), (None, 0)], ids=str)
@pytest.mark.parametrize("f", EMPTY.values(), ids=EMPTY)
def test_vmap_over_no_elements(f, dims):
    args = MATRIX if dims[0] == 0 else np.zeros((3, 4), f32), np.zeros((0,) if dims[1] == 0 else (), np.int32)
    check(lambda m: m.vmap(functools.partial(f, m), dims)(*args))


# ---- classes that say themselves how vmap maps them ----------------------------------------------------------------------

def mapped_class(m):
    """Arrays of which one is mapped and one is not."""
    class Data:
        def __init__(self, a, b): self.a, self.b = a, b

    m.tree_util.register_pytree_node(Data, lambda d: ((d.a, d.b), ()), lambda _, ab: Data(*ab))
    importlib.import_module(f"{m.__name__}.interpreters.batching").register_vmappable(
        Data, int, int, lambda cont, _, d, axis: Data(cont(d.a, axis), d.b), lambda cont, size, d, axis: Data(cont(size, d.a, axis), d.b),
        None)
    return Data(m.numpy.asarray(X), m.numpy.ones(5)), lambda d, y: Data(d.a * 2 + y, d.b)


MAPPED = {
    "first axis": lambda m, d, f: m.vmap(f)(d, X[:, 0]), "second": lambda m, d, f: m.vmap(f, (1, 0))(d, X[0]),
    "not mapped": lambda m, d, f: m.vmap(f, (None, 0))(d, X[0]), "another for the result": lambda m, d, f: m.vmap(f, out_axes=1)(d, X[:, 0]),
    "jit": lambda m, d, f: m.jit(m.vmap(f))(d, X[:, 0]), "twice": lambda m, d, f: m.vmap(m.vmap(f))(d, X),
    "within others": lambda m, d, f: m.vmap(lambda t: [f(t["d"], t["x"].sum())])({"d": d, "x": X}),
    "alone": lambda m, d, f: m.vmap(lambda d: d.a.sum() + d.b.sum(), axis_size=2)(d),
    "grad": lambda m, d, f: m.grad(lambda y: m.vmap(f)(d, y).a.sum())(X[:, 0]),
}


@pytest.mark.parametrize("f", MAPPED.values(), ids=MAPPED)
def test_vmappable_classes(f):
    check(lambda m: m.tree.leaves(f(m, *mapped_class(m))))


# ---- arguments without a value -------------------------------------------------------------------------------------------

#: f takes its second argument for a description alone
DESCRIBED = {
    "call": lambda m, f, s: f(X, s), "twice": lambda m, f, s: (f(X, X), f(X, s), f(X, X), f(X, s)),
    "within jit": lambda m, f, s: m.jit(lambda x: f(x, s))(X), "grad": lambda m, f, s: m.grad(lambda x: f(x, s).sum())(X),
    "vmap": lambda m, f, s: m.jit(m.vmap(lambda x: f(x, s)))(X),
    "scan": lambda m, f, s: m.lax.scan(lambda c, _: (f(c, s), None), X, None, length=2)[0],
    "key": lambda m, f, s: f(X, m.eval_shape(lambda: m.random.key(0))),
}


@pytest.mark.parametrize("f", DESCRIBED.values(), ids=DESCRIBED)
def test_descriptions_of_arrays_as_arguments(f):
    check(lambda m: f(m, m.jit(lambda x, s: x * (2 if s.dtype == "float32" else 3)), m.ShapeDtypeStruct((2,), f32)))


def test_descriptions_have_no_value():
    f = aot.jit(lambda x, s: x * s["a"])
    with pytest.raises(TypeError, match=r"'s\['a'\]' is a ShapeDtypeStruct, which has no value"):
        f(X, {"a": aot.ShapeDtypeStruct((3,), f32)})


# ---- functions of the library where ranks may not be promoted ------------------------------------------------------------

P, C = np.array([.3, .6], f32), np.eye(2, dtype=f32)
KDE = lambda m: m.scipy.stats.gaussian_kde(np.array([[1, 2, 4]], f32))
STRICT = {
    "multivariate_normal": lambda m, k: m.random.multivariate_normal(k, P, C, (4, 3)),
    "dirichlet": lambda m, k: m.random.dirichlet(k, P, (4, 3)), "gamma": lambda m, k: m.random.gamma(k, P, (4, 3, 2)),
    "categorical": lambda m, k: m.random.categorical(k, P, shape=(4,)), "poisson": lambda m, k: m.random.poisson(k, P, (4, 2)),
    "binomial": lambda m, k: m.random.binomial(k, 9 * P, P, (4, 2)), "uniform": lambda m, k: m.random.uniform(k, (4, 2), minval=P[None]),
    "kde": lambda m, k: KDE(m)(np.ones((1, 2), f32)), "resample": lambda m, k: KDE(m).resample(k, (3,)),
    "logpdf": lambda m, k: m.scipy.stats.multivariate_normal.logpdf(X.T, P, C), "solve": lambda m, k: m.numpy.linalg.solve(C[None] * 2, P),
    "average": lambda m, k: m.numpy.average(X.T, axis=1, weights=P), "percentile": lambda m, k: m.numpy.percentile(X, P, axis=0),
    "set": lambda m, k: m.numpy.asarray(X.T).at[:].set(P), "svd": lambda m, k: m.grad(lambda a: m.numpy.linalg.svd(a)[1].sum())(X),
}


@pytest.mark.parametrize("f", STRICT.values(), ids=STRICT)
def test_ranks_are_not_promoted_within(f):
    def run(m):
        with m.numpy_rank_promotion("raise"):
            return f(m, m.random.key(1))
    check(run)


# ---- functools.wraps over functions of the library -----------------------------------------------------------------------

def marked(m, fun):
    fun.mark = "it"
    return fun


WRAPPING = {
    "jit as jit": lambda m: functools.wraps(m.jit(m.numpy.sin))(m.jit(lambda x: x + 1)),
    "jit as grad of jit": lambda m: functools.wraps(m.grad(m.jit(m.numpy.sin)))(m.jit(lambda x: x * 2)),
    "jit of jit": lambda m: functools.wraps(m.jit(m.numpy.sin))(m.jit(m.grad(m.jit(m.numpy.sin)))),
    "jit as custom_jvp": lambda m: functools.wraps(m.custom_jvp(m.numpy.sin))(m.jit(lambda x: x + 1)),
    "jit as custom_vjp": lambda m: functools.wraps(m.custom_vjp(m.numpy.sin))(m.jit(lambda x: x + 1)),
    "jit as checkpoint": lambda m: functools.wraps(m.checkpoint(m.numpy.sin))(m.jit(lambda x: x + 1)),
    "marks are kept": lambda m: lambda x: functools.wraps(m.jit(marked(m, lambda x: x)))(m.jit(lambda x: x + 1)).mark == "it",
}


@pytest.mark.parametrize("f", WRAPPING.values(), ids=WRAPPING)
def test_functools_wraps(f):
    check(lambda m: [f(m)(m.numpy.asarray(.7)) for _ in range(3)])


# ---- functions with rules whose keyword-only arguments have defaults -----------------------------------------------------

KEYWORDS = {"default": lambda m: lambda x, *, k=2.: x * k, "partial": lambda m: functools.partial(lambda x, *, k: x * k, k=3.),
            "partial of jit": lambda m: functools.partial(m.jit(lambda x, *, k: x * k), k=3.)}


@pytest.mark.parametrize("fun", KEYWORDS.values(), ids=KEYWORDS)
def test_rules_of_functions_with_keywords_that_have_defaults(fun):
    def run(m):
        f, g = m.custom_jvp(fun(m)), m.custom_vjp(fun(m))
        f.defjvp(lambda x, t: (x[0] * 5, t[0] * 7))
        g.defvjp(lambda x: (x * 5, None), lambda _, ct: (ct * 11,))
        return [h(x) for h in (f, g) for x in (2., X)] + [m.grad(h)(2.) for h in (f, g)] + [m.jit(m.grad(h))(2.) for h in (f, g)]
    check(run)


def test_keywords_that_are_given_have_no_place_in_rules():
    f, g = aot.custom_jvp(KEYWORDS["default"](aot)), aot.custom_vjp(KEYWORDS["default"](aot))
    f.defjvp(lambda x, t: (x[0], t[0]))
    g.defvjp(lambda x: (x, None), lambda _, ct: (ct,))
    for h in (f, g):
        with pytest.raises(TypeError, match="takes keyword-only arguments"):
            h(1., k=3.)
