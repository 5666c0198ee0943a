"""What libraries written for jax rely on beyond its documents: each case runs over aot and over jax, and must agree."""
from __future__ import annotations

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
