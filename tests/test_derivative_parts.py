"""Parts of differentiation by name: linear_call, zeros, what to do with gradients (`ad`), weak types of gradients, `core`."""
from __future__ import annotations

import numpy as np
import pytest

import aot
import aot.ad
import aot.core
import aot.custom_derivatives
import aot.lax
import aot.memory
import aot.numpy
from tests.support import compare, jax, table

SAMPLED = 4
V = np.arange(1, 4, dtype=np.float32)
TWO, THREE = np.float32(2), np.float32(3)


# ---- linear_call -----------------------------------------------------------------------------------------------------

def scaled(m, r, x, factor=7.):
    """x * r, whose transpose says that it is more."""
    return m.custom_derivatives.linear_call(lambda r, x: x * r, lambda r, t: t * r * factor, r, x)


def in_trees(m, x):
    return m.custom_derivatives.linear_call(lambda r, x: {"o": x["a"] * r[0] + x["b"]}, lambda r, t: {
        "a": t["o"] * r[0] * 5., "b": t["o"]}, (TWO,), {"a": x, "b": x * x})["o"]


def transposed(m, f): return lambda x: m.linear_transpose(f, x)(x)[0]


@table(("value", lambda m, lax: lambda x: scaled(m, 2., x), 3.), ("array", lambda m, lax: lambda x: scaled(m, TWO, x), V),
       ("jit", lambda m, lax: m.jit(lambda x: scaled(m, 2., x)), THREE),
       ("jvp", lambda m, lax: lambda x: m.jvp(lambda x: scaled(m, 2., x), (x,), (x,)), THREE),
       ("grad", lambda m, lax: m.grad(lambda x: scaled(m, 2., x)), 3.),
       ("jit_grad", lambda m, lax: m.jit(m.grad(lambda x: scaled(m, 2., x) ** 2)), THREE),
       ("second", lambda m, lax: m.grad(m.grad(lambda x: scaled(m, 2., x) ** 2)), THREE),
       ("int_residual", lambda m, lax: m.grad(lambda x: scaled(m, 2, x)), THREE), ("trees", lambda m, lax: lambda x: in_trees(m, x), 3.),
       ("trees_grad", lambda m, lax: m.grad(lambda x: in_trees(m, x)), THREE),
       ("transpose", lambda m, lax: transposed(m, lambda x: scaled(m, 2., x)), THREE),
       ("transpose_twice", lambda m, lax: transposed(m, transposed(m, lambda x: scaled(m, 2., x))), THREE),
       ("residual_grad", lambda m, lax: m.grad(lambda x: scaled(m, x, x)), THREE),
       ("scan", lambda m, lax: m.grad(lambda x: lax.scan(lambda c, _: (scaled(m, 2., c), None), x, None, length=2)[0]), THREE),
       ("structure", lambda m, lax: m.grad(lambda x: m.custom_derivatives.linear_call(
           lambda r, x: x * r, lambda r, t: (t, t), 2., x)), THREE),
       ("shape", lambda m, lax: m.grad(lambda x: m.custom_derivatives.linear_call(
           lambda r, x: (x * r).sum(), lambda r, t: t, 2., x)), V))
def test_linear_call(call, args):
    compare(call, *args)


def test_linear_call_under_vmap():
    """Which jax cannot."""
    f = lambda r, x: aot.grad(lambda x: scaled(aot, r, x) ** 2)(x)
    for axes in ((0, 0), (None, 0), (0, None)):
        got = aot.vmap(f, in_axes=axes)(*[V if d == 0 else TWO for d in axes])
        want = [f(V[i] if axes[0] == 0 else TWO, V[i] if axes[1] == 0 else TWO) for i in range(3)]
        np.testing.assert_allclose(got, want, rtol=1e-6)
    with pytest.raises(ValueError, match="float32"):
        aot.grad(lambda x: aot.custom_derivatives.linear_call(lambda r, x: x, lambda r, t: np.int32(1), 2., x))(3.)


# ---- fwd rules that are replaced -------------------------------------------------------------------------------------

def counted(m, optimize, seen):
    """sin, whose fwd rule is worth 100 more than the function, and gives a derivative of its own."""
    @m.custom_vjp
    def f(x):
        seen.append("function")
        return m.numpy.sin(x)

    def fwd(x):
        seen.append("fwd")
        return m.numpy.sin(x), m.numpy.cos(x)
    f.defvjp(fwd, lambda r, g: (r * g * 2,), optimize_remat=optimize)
    return f


@table(*[(f"{name}-{opt}", lambda m, lax, w=w, opt=opt: w(m, counted(m, opt, [])), np.float32(.5)) for opt in (False, True)
         for name, w in {"value": lambda m, f: f, "grad": lambda m, f: m.grad(f), "jit": lambda m, f: m.jit(f),
                         "jit_grad": lambda m, f: m.jit(m.grad(f)), "grad_jit": lambda m, f: m.grad(m.jit(f)),
                         "remat": lambda m, f: m.grad(m.checkpoint(lambda x: m.numpy.sin(f(x)))),
                         "vmap": lambda m, f: lambda x: m.vmap(m.grad(f))(m.numpy.stack([x, x + 1])),
                         "vmap_jit": lambda m, f: lambda x: m.jit(m.vmap(m.grad(m.jit(f))))(m.numpy.stack([x, x + 1]))}.items()])
def test_optimize_remat(call, args):
    compare(call, *args)


def test_the_function_runs_where_residuals_are_not_used():
    def equations(optimize):
        f = counted(aot, optimize, [])
        jaxpr = aot.make_jaxpr(aot.jit(lambda x: aot.vjp(f, x)[0]))(.5).eqns[0].params["jaxpr"]
        from aot.trace import dce
        return str(dce(jaxpr)[0])
    assert "remat_opt" in equations(True) and "cos" not in equations(True)
    assert "remat_opt" not in equations(False)
    assert aot.custom_derivatives.remat_opt_p.name == "remat_opt"


# ---- small things of custom_derivatives ------------------------------------------------------------------------------

def zero(m, x, **kw):
    z = m.custom_derivatives.zero_from_primal(x, **kw)
    return (z.aval.shape, str(z.aval.dtype)) if kw else z


@table(*[(n, lambda m, lax, x=x: lambda: zero(m, x)) for n, x in {"array": V, "float": 2., "double": np.ones(2)}.items()])
def test_zero_from_primal(call, args):
    compare(call, *args)


def test_symbolic_zeros_and_primals():
    for x in (V, 3):
        assert zero(aot, x, symbolic_zeros=True) == zero(jax, x, symbolic_zeros=True)
    assert aot.custom_derivatives.zero_from_primal(3).dtype == aot.float0
    one = aot.custom_derivatives.CustomVJPPrimal(1, True)
    assert repr(one) == repr(jax.custom_derivatives.CustomVJPPrimal(1, True)) and one == aot.custom_derivatives.CustomVJPPrimal(1, True)
    values = aot.custom_derivatives.custom_vjp_primal_tree_values
    assert values((one, {"a": one})) == (1, {"a": 1})
    with pytest.raises(TypeError, match="leaf"):
        values((one, 3))


# ---- ad: where gradients go ------------------------------------------------------------------------------------------

def delivered(wanted, f=lambda x, y: (x * y).sum(), args=(V, V + 1), calls=1):
    """The result of a pullback with references, and the contents of these."""
    def build(m, lax):
        def run():
            places = wanted(m)
            pullback = m.vjp(f, *args)[1].with_refs(*places)
            for _ in range(calls):
                got = pullback(np.float32(1))
            return got, [x[...] for x in m.tree_util.tree_leaves(places) if isinstance(x, m.Ref)]
        return run
    return build


def ref(m, value=0.): return m.new_ref(m.numpy.full(3, value, "float32"))


D = ({"a": V, "b": V * 2},)
product = lambda d: (d["a"] * d["b"]).sum()


@table(("reference", delivered(lambda m: (ref(m), m.ad.GradValue()))), ("added", delivered(lambda m: (ref(m, 5.), m.ad.GradValue()))),
       ("unwanted", delivered(lambda m: (m.ad.DontWant(), m.ad.GradValue()))), ("both", delivered(lambda m: (ref(m), ref(m, 1.)))),
       ("twice", delivered(lambda m: (ref(m), m.ad.DontWant()), calls=2)), ("same", delivered(lambda m: (r := ref(m), r))),
       ("few", delivered(lambda m: (ref(m),))), ("many", delivered(lambda m: (ref(m),) * 3)), ("none", delivered(lambda m: (None, ref(m)))),
       ("result", delivered(lambda m: (m.ad.GradRef(), ref(m)))), ("shape", delivered(lambda m: (m.new_ref(V[:2]), ref(m)))),
       ("dtype", delivered(lambda m: (m.new_ref(np.arange(3)), ref(m)))),
       ("tree", delivered(lambda m: ({"a": ref(m), "b": m.ad.GradValue()},), product, D)),
       ("prefix", delivered(lambda m: (m.ad.GradValue(),), product, D)),
       ("zero", delivered(lambda m: (ref(m, 2.), m.ad.GradValue()), lambda x, y: y.sum())),
       ("integer", delivered(lambda m: (m.ad.GradValue(), m.new_ref(3)), lambda x, i: (x * i).sum(), (V, 3))))
def test_with_refs(call, args):
    compare(call, *args)


def test_with_refs_in_loops():
    def f(m, lax):
        def run(x):
            r = m.new_ref(m.numpy.zeros(3))

            def body(c, y):
                m.vjp(lambda x: (m.numpy.sin(x) * y).sum(), x)[1].with_refs(r)(1.)
                return c, None
            lax.scan(body, 0., m.numpy.arange(3.))
            return r[...]
        return run
    compare(f, V)
    compare(lambda m, lax: m.jit(f(m, lax)), V)


def test_placeholders():
    pullback = aot.vjp(lambda x, y: (x * y).sum(), V, V)[1]
    assert repr(pullback.with_refs(ref(aot), aot.ad.DontWant())(1.)) == "(GradRef(), DidntWant())"
    for name in ("GradValue", "GradRef", "DontWant", "DidntWant"):
        ours, theirs = getattr(aot.ad, name), getattr(jax.ad, name)
        assert repr(ours()) == repr(theirs()) and ours() == ours() and hash(ours()) == hash(ours())
        assert len(aot.tree_util.tree_leaves(ours())) == len(jax.tree_util.tree_leaves(theirs()))


# ---- weak types ------------------------------------------------------------------------------------------------------

def ruled(m, bwd):
    f = m.custom_vjp(lambda x: x * 2.)
    f.defvjp(lambda x: (f(x), None), lambda _, ct: (bwd(m, ct),))
    return f


BWDS = {"same": lambda m, c: c, "constant": lambda m, c: m.numpy.float32(3), "scaled": lambda m, c: c * 3,
        "strong": lambda m, c: c * m.numpy.float32(2), "zeros": lambda m, c: m.numpy.zeros_like(c)}
USES = {"grad": lambda m, f: m.grad(f), "jit": lambda m, f: m.jit(m.grad(f)), "grad_jit": lambda m, f: m.grad(m.jit(f)),
        "chain": lambda m, f: m.grad(lambda x: f(x * 2.)), "sum": lambda m, f: m.grad(lambda x: f(x) + x),
        "vjp": lambda m, f: lambda x: m.vjp(f, x)[1](m.numpy.float32(1)), "remat": lambda m, f: m.grad(m.checkpoint(f)),
        "scan": lambda m, f: m.grad(lambda x: m.lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0])}


@table(*[(f"{use}-{bwd}-{i}", lambda m, lax, u=u, b=b: u(m, ruled(m, b)), x) for use, u in USES.items() for bwd, b in BWDS.items()
         for i, x in enumerate((2., TWO))])
def test_weak_types_of_given_cotangents(call, args):
    """A cotangent that a rule gives is as weak as the rule made it."""
    compare(call, *args)


SIMPLE = {"max": lambda m, x: m.numpy.maximum(x, 0), "clip": lambda m, x: m.numpy.clip(x, 0, 1), "relu": lambda m, x: m.nn.relu(x),
          "abs": lambda m, x: abs(x), "strong": lambda m, x: x * m.numpy.float32(2), "where": lambda m, x: m.numpy.where(x > 0, x, 1.),
          "sum": lambda m, x: (x * m.numpy.ones(3)).sum(), "identity": lambda m, x: x, "softplus": lambda m, x: m.nn.softplus(x)}


@table(*[(f"{name}-{way}-{i}", lambda m, lax, f=f, w=w: w(m, lambda x: f(m, x)), x) for name, f in SIMPLE.items() for way, w in {
    "grad": lambda m, f: m.grad(f), "jit": lambda m, f: m.jit(m.grad(f)), "value": lambda m, f: m.value_and_grad(f)}.items()
    for i, x in enumerate((2., TWO))])
def test_weak_types_of_gradients(call, args):
    compare(call, *args)


# ---- core, memory, effects -------------------------------------------------------------------------------------------

def test_core():
    closed = aot.make_jaxpr(lambda x: aot.numpy.sin(x) * V)(1.)
    assert aot.core.eval_jaxpr(closed.jaxpr, closed.consts, 2.)[0].tolist() == (np.sin(TWO) * V).tolist()
    assert aot.core.eval_jaxpr(closed.jaxpr, [V * 0], 2.)[0].tolist() == [0, 0, 0]
    assert (aot.core.max_dim(3, 5), aot.core.min_dim(3, np.int32(5))) == (5, 3)
    with pytest.raises(TypeError):
        aot.core.max_dim(3., 5)
    for x in (V, aot.new_ref(V), aot.random.key(0)):
        assert isinstance(aot.typeof(x), aot.core.AbstractValue)
    seen = []

    def f(x):
        assert isinstance(x, aot.core.Tracer)
        with aot.core.eval_context():
            seen.append(float(aot.numpy.sin(TWO)))
        return x
    aot.jit(f)(1.)
    assert seen == [pytest.approx(np.sin(2.))]


def test_memory():
    assert [repr(s) for s in aot.memory.Space] == [repr(s) for s in jax.memory.Space]
    assert [s.value for s in aot.memory.Space] == [s.value for s in jax.memory.Space]
    assert aot.device_put(V, aot.memory.Space.Device).tolist() == V.tolist()
    assert aot.jit(lambda x: aot.device_put(x, aot.memory.Space.Device) + 1)(V).tolist() == [2, 3, 4]
    with pytest.raises(NotImplementedError, match="device_get"):
        aot.device_put(V, aot.memory.Space.Host)


@pytest.mark.parametrize("f, name", [
    (lambda m: lambda x: m.debug.print("{}", x), "DebugEffect"),
    (lambda m: lambda x: m.debug.callback(lambda x: None, x, ordered=True), "OrderedDebugEffect"),
    (lambda m: lambda x: m.lax.cond(x > 0, lambda: m.debug.print("{}", x), lambda: None), "DebugEffect")])
def test_effects(f, name):
    for m in (aot, jax):
        effect, = m.make_jaxpr(f(m))(1.).effects
        assert type(effect) is getattr(m.debug, name)
    assert str(aot.debug.OrderedDebugEffect()) == str(jax.debug.OrderedDebugEffect())
    assert aot.make_jaxpr(lambda x: x + 1)(1.).effects == jax.make_jaxpr(lambda x: x + 1)(1.).effects == set()
