"""For libraries: primitives of one's own, jaxprs walked and rewritten, wrapped functions, the example libraries."""
from __future__ import annotations

import functools
import importlib

import numpy as np
import pytest

import aot
import aot.numpy as jnp
from aot.extend.core import Literal, Primitive, Var, jaxpr_as_fun
from aot.extend.linear_util import StoreException
from tests.support import compare

F = np.float32
X = np.linspace(.1, 1, 6, dtype=F).reshape(2, 3)


def part(m, name):
    return importlib.import_module(f"{m.__name__}.{name}")


def compare_on_arrays(call, *args, rtol=1e-4):
    """`compare`, of a function that takes arrays of its own package."""
    compare(lambda m, lax: lambda *xs: call(m)(*map(m.numpy.asarray, xs)), *args, rtol=rtol)


# ---- primitives ------------------------------------------------------------------------------------------------------

def multiply_add(m, ns, rules=("lower", "jvp", "transpose", "vmap")):
    """A primitive x y + z with these rules, in either package."""
    ad, batching, mlir = (part(m, f"interpreters.{n}") for n in ("ad", "batching", "mlir"))
    p = part(m, "extend.core").Primitive("multiply_add")
    p.def_impl(lambda x, y, z: np.multiply(x, y) + z)
    p.def_abstract_eval(lambda x, y, z: m.core.ShapedArray(x.shape, x.dtype))
    zero, some = (lambda t, like: ns.zeros(like.shape, like.dtype) if type(t) is ad.Zero else t), ad.is_undefined_primal

    def jvp(primals, tangents):
        x, y, z = primals
        dx, dy, dz = tangents
        return p.bind(x, y, z), p.bind(zero(dx, x), y, p.bind(x, zero(dy, y), zero(dz, z)))

    def transpose(ct, x, y, z):
        if some(x):
            return p.bind(ct, y, ns.zeros_like(ct)), None, ct if some(z) else None
        return None, p.bind(x, ct, ns.zeros_like(ct)) if some(y) else None, ct if some(z) else None

    def batch(args, dims):
        size = next(x.shape[d] for x, d in zip(args, dims) if d is not None)
        return p.bind(*[batching.bdim_at_front(x, d, size) for x, d in zip(args, dims)]), 0
    if "lower" in rules:
        mlir.register_lowering(p, mlir.lower_fun(lambda x, y, z: x * y + z, multiple_results=False))
    if "jvp" in rules:
        ad.primitive_jvps[p] = jvp
    if "transpose" in rules:
        ad.primitive_transposes[p] = transpose
    if "vmap" in rules:
        batching.primitive_batchers[p] = batch
    return p.bind


OWN = {
    "eager": lambda m, f: f,
    "jit": lambda m, f: m.jit(f),
    "jvp": lambda m, f: lambda x, y, z: m.jvp(f, (x, y, z), (y, z, x)),
    "jvp of one": lambda m, f: lambda x, y, z: m.jvp(lambda y: f(x, y, z), (y,), (x,)),
    "grad": lambda m, f: m.grad(lambda x, y, z: f(x, y, z).sum(), (0, 1, 2)),
    "jit of grad of vmap": lambda m, f: m.jit(m.grad(lambda x, y, z: m.vmap(f, (0, 0, 0))(x, y, z).sum(), (0, 2))),
    "hessian": lambda m, f: lambda x, y, z: m.jacfwd(m.grad(lambda x: f(x, x, z).sum()))(x),
    "vmap": lambda m, f: m.vmap(f),
    "vmap of one": lambda m, f: lambda x, y, z: m.vmap(f, (0, None, None))(x, y[0], z[0]),
    "in a loop": lambda m, f: lambda x, y, z: m.lax.fori_loop(0, 3, lambda i, c: f(c, y, z), x),
}


@pytest.mark.parametrize("name", OWN)
def test_primitives_of_ones_own(name):
    compare_on_arrays(lambda m: OWN[name](m, multiply_add(m, m.numpy)), X, X + 1, 2 * X)


@pytest.mark.parametrize("name", ["jvp", "grad", "jit of grad", "vmap of grad"])
def test_rules_give_tangents_of_float0_for_integers(name):
    def call(m):
        ad, batching, mlir = (part(m, f"interpreters.{n}") for n in ("ad", "batching", "mlir"))
        p = part(m, "extend.core").Primitive("sine_and_sign")
        p.multiple_results = True
        both = lambda x: [m.numpy.sin(x), x > .5]
        p.def_impl(both)
        p.def_abstract_eval(lambda x: [m.core.ShapedArray(x.shape, x.dtype), m.core.ShapedArray(x.shape, np.dtype(bool))])
        mlir.register_lowering(p, mlir.lower_fun(both))
        ad.primitive_jvps[p] = lambda xs, ts: (p.bind(*xs), [m.numpy.cos(xs[0]) * ts[0], np.zeros(xs[0].shape, m.dtypes.float0)])
        batching.primitive_batchers[p] = lambda xs, dims: (p.bind(*xs), [dims[0], dims[0]])

        def f(x):
            y, large = p.bind(x)
            return m.numpy.where(large, y, -y).sum()
        return {"jvp": lambda x: m.jvp(f, (x,), (x,)), "grad": m.grad(f), "jit of grad": m.jit(m.grad(f)),
                "vmap of grad": m.vmap(m.grad(f))}[name]
    compare_on_arrays(call, X)


MISSING = [("lower", lambda f: aot.jit(f), "compiled programs"), ("jvp", lambda f: aot.grad(f), "differentiation"),
           ("transpose", lambda f: aot.grad(f), "transposition"),
           ("vmap", lambda f: lambda *xs: aot.vmap(f)(*[x[None] for x in xs]), "vmap")]


@pytest.mark.parametrize("rule, transform, text", MISSING, ids=[r[0] for r in MISSING])
def test_rules_that_are_not_there(rule, transform, text):
    rules = {"lower", "jvp", "transpose", "vmap"} - {rule}
    one = jnp.asarray(1.)
    with pytest.raises(NotImplementedError, match=f"multiply_add.*no rule for {text}.*hint: give it one"):
        transform(multiply_add(aot, jnp, rules))(one, one, one)


def families(m, ns):
    """Primitives whose rules the helpers make: linear, bilinear, with several results, vectorized, reducing."""
    ad, batching, mlir = (part(m, f"interpreters.{n}") for n in ("ad", "batching", "mlir"))
    core = part(m, "extend.core")

    def make(name, fun, types, several=False):
        p = core.Primitive(name)
        p.multiple_results = several
        p.def_impl(fun)
        p.def_abstract_eval(types)
        mlir.register_lowering(p, mlir.lower_fun(fun, multiple_results=several))
        return p
    same = lambda x, *_, **__: m.core.ShapedArray(x.shape, x.dtype)
    double = make("double", lambda x: x + x, same)
    ad.deflinear2(double, lambda ct, x: [double.bind(ct)])
    batching.defvectorized(double)
    times = make("times", lambda x, y: x * y, same)
    ad.defbilinear(times, lambda ct, x, y: times.bind(ct, y), lambda ct, x, y: times.bind(x, ct))
    batching.defbroadcasting(times)
    cube = make("cube", lambda x, *, scale: x * x * x * scale, same)
    ad.defjvp(cube, lambda t, x, scale: t * (3 * scale * x * x))
    batching.defvectorized(cube)
    root = make("root", lambda x: x ** .5, same)
    ad.defjvp2(root, lambda t, out, x: t / (2 * out))
    batching.defvectorized(root)
    total = make("total", lambda x, *, axes: x.sum(axes), lambda x, *, axes: m.core.ShapedArray(
        tuple(n for i, n in enumerate(x.shape) if i not in axes), x.dtype))
    batching.defreducer(total)
    both = make("both", lambda x: [x + 1, x * 2], lambda x: [same(x), same(x)], True)
    ad.primitive_jvps[both] = lambda p, t: (both.bind(*p), [t[0], 2 * t[0]])
    batching.primitive_batchers[both] = lambda args, dims: (both.bind(*args), dims * 2)
    return {"double": double.bind, "times": times.bind, "cube": functools.partial(cube.bind, scale=2.), "root": root.bind,
            "total": functools.partial(total.bind, axes=(0,)), "both": both.bind}


FAMILIES = [
    ("double", lambda m, f: m.grad(lambda x: (f(f(x)) * x).sum())),
    ("double", lambda m, f: m.vmap(f)),
    ("times", lambda m, f: m.grad(lambda x: f(x, m.numpy.sin(x)).sum())),
    ("times", lambda m, f: lambda x: m.vmap(f, (0, 1))(x, x.T)),
    ("cube", lambda m, f: m.jacfwd(m.grad(lambda x: f(x).sum()))),
    ("cube", lambda m, f: lambda x: m.jvp(m.vmap(f), (x,), (x,))),
    ("root", lambda m, f: m.grad(lambda x: f(x).sum())),
    ("total", lambda m, f: lambda x: [m.vmap(f)(m.numpy.stack([x, x])), m.vmap(f, 1)(x), m.jit(f)(x)]),
    ("both", lambda m, f: lambda x: [f(x), m.jit(f)(x), m.vmap(f)(x), m.grad(lambda x: f(x)[1].sum())(x)]),
]


@pytest.mark.parametrize("name, call", FAMILIES, ids=[f"{i} {r[0]}" for i, r in enumerate(FAMILIES)])
def test_families_of_primitives(name, call):
    compare_on_arrays(lambda m: call(m, families(m, m.numpy)[name]), X)


def test_rules_of_this_package_can_be_read():
    from aot.interpreters import ad, batching
    (out, dot) = ad.primitive_jvps[aot.lax.sin_p]((F(1),), (F(2),))
    np.testing.assert_allclose([out, dot], [np.sin(1), 2 * np.cos(1)], rtol=1e-6)
    out, dim = batching.primitive_batchers[aot.lax.sin_p]((X,), (1,))
    assert dim == 1 and out.shape == X.shape
    with pytest.raises(KeyError):
        ad.primitive_jvps[Primitive("nothing")]
    assert isinstance(aot.lax.sin_p, Primitive)


def test_effects_and_lowerings_that_cannot_be():
    from aot.interpreters import mlir
    p = Primitive("p")
    p.def_effectful_abstract_eval(lambda x: (x, {"an effect"}))
    with pytest.raises(NotImplementedError, match="an effect"):
        aot.jit(p.bind)(1.)
    q = Primitive("q")
    q.def_abstract_eval(lambda x: x)
    for rule in (lambda ctx, x: [object()], lambda ctx, x: x.owner.op_of_mlir):
        mlir.register_lowering(q, rule)
        with pytest.raises(NotImplementedError, match="`q` builds operations of MLIR itself"):
            aot.jit(q.bind)(X)


def test_lowerings_for_one_platform():
    from aot.interpreters import mlir
    p = Primitive("p")
    p.def_abstract_eval(lambda x: x)
    mlir.register_lowering(p, mlir.lower_fun(lambda x: aot.lax.cos(x), multiple_results=False), platform="tpu")
    lowered = lambda platform: aot.jit(p.bind).trace(X).lower(lowering_platforms=(platform,)).as_text()
    assert "stablehlo.cosine" in lowered("tpu")
    with pytest.raises(NotImplementedError, match="no rule for compiled programs"):
        lowered("cpu")
    mlir.register_lowering(p, mlir.lower_fun(lambda x: aot.lax.sin(x), multiple_results=False))
    assert "stablehlo.sine" in lowered("cpu") and "stablehlo.cosine" in lowered("tpu")


def subclassed(m):
    """A primitive whose rules are methods, and whose lowering picks among its operands or calls another one."""
    core, mlir, ad = part(m, "extend.core"), part(m, "interpreters.mlir"), part(m, "interpreters.ad")

    class Tag(core.Primitive):
        multiple_results = True

        def __init__(self, square):
            super().__init__("tag")
            squared = mlir.lower_fun(lambda x, y, *, keep: [x, y * y][:keep])
            mlir.register_lowering(self, squared if square is None else (
                lambda ctx, *xs, keep: squared(ctx, *xs, keep=keep)[:len(ctx.avals_out)]) if square else
                lambda ctx, *xs, keep: xs[:keep])
            ad.primitive_jvps[self] = lambda xs, ts, keep: (self.bind(*xs, keep=keep), list(ts)[:keep])

        def impl(self, *xs, keep): return list(xs)[:keep]
        def abstract_eval(self, *xs, keep): return list(xs)[:keep], core.no_effects
    return Tag


def test_implementations_by_the_lowering():
    def call(m):
        core, mlir, xla = part(m, "extend.core"), part(m, "interpreters.mlir"), part(m, "interpreters.xla")
        p = core.Primitive("power")
        p.def_impl(functools.partial(xla.apply_primitive, p))
        p.def_abstract_eval(lambda x, *, n: m.core.ShapedArray(x.shape, x.dtype))
        mlir.register_lowering(p, mlir.lower_fun(lambda x, *, n: x ** n, multiple_results=False))
        return lambda x: [p.bind(x, n=2), p.bind(x, n=3), m.jit(lambda x: p.bind(x, n=2))(x)]
    compare_on_arrays(call, X)


@pytest.mark.parametrize("square", [None, True, False])
@pytest.mark.parametrize("name", ["eager", "jit", "jvp"])
def test_primitives_whose_rules_are_methods(name, square):
    def call(m):
        tag = subclassed(m)(square)
        return OWN[name](m, lambda x, y, z: tag.bind(x, y, keep=2)[1] + tag.bind(y, z, keep=1)[0])
    compare_on_arrays(call, X, X + 1, 2 * X)


# ---- jaxprs ----------------------------------------------------------------------------------------------------------

def interpreted(m, fun):
    """fun, evaluated equation by equation through `Primitive.bind`, as interpreters of one's own do it."""
    literal = part(m, "extend.core").Literal

    def run(jaxpr, consts, args):
        env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))
        read = lambda v: v.val if isinstance(v, literal) else env[v]
        for e in jaxpr.eqns:
            out = e.primitive.bind(*map(read, e.invars), **e.primitive.get_bind_params(e.params))
            env.update(zip(e.outvars, out if e.primitive.multiple_results else [out], strict=True))
        return [read(v) for v in jaxpr.outvars]

    def call(*args):
        closed = m.make_jaxpr(fun)(*args)
        return run(closed.jaxpr, closed.literals, args)
    return call


W = np.arange(9, dtype=F).reshape(3, 3) / 9 + np.eye(3, dtype=F)
WALKED = {
    "calls": lambda m: lambda x: m.jit(m.numpy.sin)(x) @ W,
    "loops": lambda m: lambda x: m.lax.scan(lambda c, v: (c + v, c * v), x[0], x),
    "branches": lambda m: lambda x: m.lax.cond(x.sum() > 0, m.numpy.sin, m.numpy.cos, x),
    "while": lambda m: lambda x: m.lax.while_loop(lambda c: c.sum() < 20, lambda c: c * 2, x),
    "sort": lambda m: lambda x: [m.numpy.sort(x), m.numpy.argsort(x), m.lax.top_k(x, 2)],
    "linalg": lambda m: lambda x: [m.numpy.linalg.qr(W)[1], m.numpy.linalg.eigh(W + W.T)[0] + x[0],
                                   m.numpy.linalg.cholesky(W @ W.T), m.scipy.linalg.lu(W)[2]],
    "custom": lambda m: lambda x: m.nn.relu(x - .5) + m.nn.silu(x),
    "random": lambda m: lambda x: m.random.normal(m.random.wrap_key_data(np.uint32([0, 1])), (2,)) + x.sum(),
    "checkpoint": lambda m: lambda x: m.grad(lambda v: m.checkpoint(m.numpy.sin)(v).sum())(x),
    "reductions": lambda m: lambda x: [x.sum(), x.max(0), m.numpy.argmax(x), m.numpy.cumsum(x), m.numpy.prod(x)],
}


@pytest.mark.parametrize("name", WALKED)
def test_jaxprs_evaluated_equation_by_equation(name):
    compare_on_arrays(lambda m: interpreted(m, WALKED[name](m)), X)


def test_primitives_say_whether_they_have_several_results():
    ours, theirs = aot.extend.core.primitives, pytest.importorskip("jax.extend.core.primitives")
    found = {}
    for name in dir(theirs):
        if name.endswith("_p"):
            try:
                found[name] = getattr(ours, name).multiple_results
            except AttributeError:
                continue
    assert len(found) > 150
    assert {n for n, several in found.items() if several != getattr(theirs, n).multiple_results} == set()


def test_make_jaxpr_within_a_trace_keeps_what_it_closes_over():
    def outer(x):
        closed = aot.make_jaxpr(lambda v: v * x + W[0])(x)
        assert len(closed.consts) == len(closed.constvars) == 2 and len(closed.jaxpr.invars) == 1
        return jaxpr_as_fun(closed)(2 * x)[0] + aot.core.eval_jaxpr(closed.jaxpr, closed.consts, x)[0]
    want = 3 * X[0] ** 2 + 2 * W[0]
    np.testing.assert_allclose(aot.jit(outer)(X[0]), want, rtol=1e-6)
    np.testing.assert_allclose(aot.grad(lambda x: outer(x).sum())(X[0]), 6 * X[0], rtol=1e-6)


def test_closed_jaxprs_as_parameters():
    closed = aot.make_jaxpr(lambda x: jnp.sin(x) * X)(X)
    inner = aot.extend.core.primitives.jit_p.bind(X, jaxpr=closed, name="f")
    np.testing.assert_allclose(inner[0], np.sin(X) * X, rtol=1e-6)
    np.testing.assert_allclose(aot.jit(lambda x: aot.extend.core.primitives.jit_p.bind(x, jaxpr=closed, name="f"))(X)[0],
                               np.sin(X) * X, rtol=1e-6)


def test_names_that_moved_from_core():
    import aot.core
    for name in ("DropVar", "concrete_or_error", "gensym", "no_effects", "new_jaxpr_eqn", "valid_jaxtype"):
        with pytest.warns(DeprecationWarning, match=f"extend.core.{name}"):
            assert getattr(aot.core, name) is getattr(aot.extend.core, name)
    assert not hasattr(aot.core, "Literal")
    known = []
    aot.grad(lambda x: known.append(aot.core.is_concrete(x)) or x)(1.)
    aot.jit(lambda x: known.append(aot.core.is_concrete(x)) or x)(1.)
    assert known == [True, False] and aot.core.is_concrete(X)


def test_jaxprs_with_other_parts():
    """Equations taken away, and a variable of the middle for a result."""
    def call(m):
        closed = m.make_jaxpr(lambda x: m.numpy.sin(x @ W) * 2)(X)
        inner = closed.jaxpr
        assert inner.debug_info.arg_names is not None and len(inner.eqns) > 2
        inner = inner.replace(eqns=inner.eqns[:2], outvars=inner.eqns[1].outvars, debug_info=None)
        half = closed.replace(jaxpr=inner)
        return lambda x: m.core.eval_jaxpr(half.jaxpr, half.consts, x)
    compare_on_arrays(call, X)


def test_parts_of_jaxprs():
    core = aot.extend.core
    jaxpr = aot.make_jaxpr(lambda x: aot.jit(jnp.sin)(x) + 1)(X).jaxpr
    assert [type(v) for v in jaxpr.eqns[-1].invars] == [Var, Literal]
    assert [str(e.primitive) for j in core.jaxprs_in_params(jaxpr.eqns[0].params) for e in j.eqns] == ["sin"]
    aval = core.mapped_aval(2, 0, aot.typeof(X))
    assert aval.shape == (3,) and core.unmapped_aval(5, 1, aval).shape == (3, 5)
    assert core.valid_jaxtype(1.) and not core.valid_jaxtype("a")
    assert core.trace_state_clean() and core.primal_dtype_to_tangent_dtype(np.int32) == aot.float0
    states = [core.get_opaque_trace_state(), core.get_opaque_trace_state()]
    aot.jit(lambda x: states.append(core.get_opaque_trace_state()) or x)(1.)
    assert states[0] == states[1] != states[2]


# ---- functions under transformations -----------------------------------------------------------------------------------

def wrapped(m):
    lu, api_util, pe = part(m, "extend.linear_util"), part(m, "api_util"), part(m, "interpreters.partial_eval")
    tree_util = m.tree_util
    fun = lambda a, b: {"s": a["x"] + b, "k": 2 * b}
    args = ({"x": X[0]}, X[1])
    leaves, tree = tree_util.tree_flatten(args)
    debug = api_util.debug_info("test", fun, args, {})
    flat, out_tree = api_util.flatten_fun_nokwargs(lu.wrap_init(fun, debug_info=debug), tree)
    return lu, pe, flat, out_tree, leaves, tree_util


def test_flat_functions():
    def run(m, lax):
        def call(_):
            *_, flat, out_tree, leaves, tree_util = wrapped(m)
            outs = flat.call_wrapped(*leaves)
            return tree_util.tree_unflatten(out_tree(), outs)
        return call
    compare(run, X)
    *_, out_tree, _, _ = wrapped(aot)
    with pytest.raises(StoreException):
        out_tree()


def test_partial_evaluation():
    def run(m, lax):
        def call(_):
            _, pe, flat, _, leaves, _ = wrapped(m)
            avals = [pe.PartialVal.unknown(m.core.ShapedArray((3,), np.dtype("float32"))), pe.PartialVal.known(m.numpy.asarray(leaves[1]))]
            jaxpr, results, consts = pe.trace_to_jaxpr_nounits(flat, avals)
            known = [r.get_known() for r in results if r.is_known()]
            rest = m.core.eval_jaxpr(jaxpr, consts, leaves[0])
            return [len(known), known, rest]
        return call
    compare(run, X)


# ---- example libraries -------------------------------------------------------------------------------------------------

OPTIMIZERS = [("sgd", (.1,)), ("momentum", (.1, .9)), ("nesterov", (.1, .9)), ("adagrad", (.1,)), ("rmsprop", (.1,)),
              ("rmsprop_momentum", (.1,)), ("adam", (.1,)), ("adamax", (.1,)), ("sm3", (.1,))]
SCHEDULES = [("constant", (.1,)), ("exponential_decay", (.1, 3, .5)), ("inverse_time_decay", (.1, 3, .5)),
             ("inverse_time_decay", (.1, 3, .5, True)), ("polynomial_decay", (.1, 3, .01, 2.)),
             ("piecewise_constant", ([1, 3], [.1, .2, .3]))]


def trained(m, maker, steps=5):
    optimizers = part(m, "example_libraries.optimizers")
    init, update, params = maker(optimizers)
    start = {"w": m.numpy.asarray(X), "b": m.numpy.asarray(F(.5))}
    loss = lambda p: ((m.numpy.sin(p["w"]) + p["b"]) ** 2).sum()
    state = init(start)
    state = optimizers.pack_optimizer_state(optimizers.unpack_optimizer_state(state))
    step = m.jit(lambda i, s: update(i, optimizers.clip_grads(m.grad(loss)(params(s)), 2.), s))
    for i in range(steps):
        state = step(i, state)
    return params(state)


@pytest.mark.parametrize("name, args", OPTIMIZERS)
def test_optimizers(name, args):
    compare(lambda m, lax: lambda _: trained(m, lambda o: getattr(o, name)(*args)), X)


@pytest.mark.parametrize("name, args", SCHEDULES, ids=str)
def test_schedules(name, args):
    compare(lambda m, lax: lambda _: trained(m, lambda o: o.sgd(getattr(o, name)(*args))), X)


IMAGES = np.linspace(-1, 1, 2 * 9 * 9 * 3, dtype=F).reshape(2, 9, 9, 3)
NETWORKS = {
    "dense": lambda s: s.serial(s.Flatten, s.Dense(4), s.Relu, s.Dense(3), s.LogSoftmax),
    "conv": lambda s: s.serial(s.Conv(4, (3, 3), padding="SAME"), s.BatchNorm(), s.Relu, s.MaxPool((2, 2), (2, 2)),
                               s.Conv(2, (2, 2), (2, 2)), s.AvgPool((2, 2), padding="SAME"), s.SumPool((1, 1))),
    "transposed": lambda s: s.serial(s.ConvTranspose(2, (3, 3), (2, 2)), s.Tanh, s.BatchNorm(center=False), s.Sigmoid),
    "other dimensions": lambda s: s.serial(s.GeneralConv(("NCHW", "OIHW", "NCHW"), 3, (2, 2)), s.MaxPool((2, 2), spec="NCHW"), s.Gelu),
    "fan": lambda s: s.serial(s.FanOut(2), s.parallel(s.Dense(4), s.serial(s.Dense(4), s.Elu)), s.FanInSum, s.Softplus),
    "concatenated": lambda s: s.serial(s.FanOut(3), s.parallel(s.Dense(2), s.Identity, s.LeakyRelu), s.FanInConcat(), s.Selu),
    "shapes": lambda s: s.shape_dependent(lambda shape: s.serial(s.Dense(shape[1]), s.Exp, s.Softmax)),
    "dropout": lambda s: s.serial(s.Dense(4), s.Dropout(.6), s.Dense(2), s.Dropout(.5, mode="test")),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name):
    def run(m):
        def call(x):
            init, apply = NETWORKS[name](part(m, "example_libraries.stax"))
            shape, params = init(m.random.PRNGKey(0), x.shape)
            out = apply(params, x, rng=m.random.PRNGKey(1))
            assert tuple(shape) == out.shape
            return params, out
        return call
    compare_on_arrays(run, IMAGES, rtol=1e-5)


BAD = [
    (lambda o: o.make_schedule(np.ones(2)), TypeError, "a number or a function"),
    (lambda o: o.piecewise_constant([1], [1]), ValueError, "one value more"),
    (lambda o: o.pack_optimizer_state([1]), TypeError, "JoinPoints"),
    (lambda o: o.sgd(1.)[1](0, [1., 2.], o.sgd(1.)[0]([1.])), TypeError, "structure"),
    (lambda o: part(aot, "example_libraries.stax").Dropout(.5)[1]((), X), ValueError, "needs a key"),
]


@pytest.mark.parametrize("call, kind, text", BAD, ids=[r[2] for r in BAD])
def test_mistakes(call, kind, text):
    with pytest.raises(kind, match=text):
        call(part(aot, "example_libraries.optimizers"))


WHERE = {"nowhere": lambda m, f: f, "jit": lambda m, f: m.jit(f), "vmap": lambda m, f: m.vmap(f), "grad": lambda m, f: m.grad(f),
         "vmap of jit": lambda m, f: m.vmap(m.jit(f)), "jit of vmap": lambda m, f: m.jit(m.vmap(f)),
         "grad of vmap": lambda m, f: m.grad(lambda x: m.vmap(f)(x).sum())}


@pytest.mark.parametrize("name", WHERE)
def test_what_is_running(name):
    def run(m):
        core, seen = part(m, "extend.core"), []

        def f(x):
            seen.append([bool(getattr(core, f"unsafe_am_i_under_a_{what}_DO_NOT_USE")()) for what in ("jit", "vmap")])
            return x * 2
        WHERE[name](m, f)(m.numpy.ones(3) if "vmap" in name else m.numpy.asarray(1.))
        return seen
    jax = pytest.importorskip("jax")
    assert run(aot) == run(jax)


# ---- jaxprs checked and rebuilt ------------------------------------------------------------------------------------------

def test_jaxprs_are_checked():
    core = aot.extend.core
    jaxpr = aot.make_jaxpr(lambda x: aot.jit(jnp.sin)(x) + 1)(X).jaxpr.inner
    core.check_jaxpr(jaxpr)
    stranger = core.gensym()(aot.typeof(X))
    for wrong in (jaxpr.replace(eqns=[jaxpr.eqns[0].replace(invars=[stranger]), *jaxpr.eqns[1:]]),
                  jaxpr.replace(eqns=[jaxpr.eqns[0].replace(outvars=[core.gensym()(aot.typeof(X[0]))]), *jaxpr.eqns[1:]]),
                  jaxpr.replace(outvars=[stranger])):
        with pytest.raises(core.JaxprTypeError):
            core.check_jaxpr(wrong)


def test_jaxprs_are_rebuilt():
    core = aot.extend.core
    closed = aot.make_jaxpr(lambda x: jnp.sin(x) * X)(X)
    twice = core.ClosedJaxpr(closed.jaxpr, [2 * X])
    np.testing.assert_allclose(jaxpr_as_fun(twice)(X)[0], 2 * np.sin(X) * X, rtol=1e-6)
    np.testing.assert_allclose(jaxpr_as_fun(closed.replace(consts=[3 * X]))(X)[0], 3 * np.sin(X) * X, rtol=1e-6)
    cosine = closed.inner.replace(eqns=[e.replace(primitive=aot.lax.cos_p) if str(e.primitive) == "sin" else e for e in closed.eqns])
    np.testing.assert_allclose(jaxpr_as_fun(core.ClosedJaxpr(cosine, closed.consts, closed.constvars))(X)[0], np.cos(X) * X, rtol=1e-6)


def test_words_of_threefry():
    def run(m, lax):
        random = part(m, "extend.random")
        return lambda key, count: [random.threefry_2x32(key, count), random.threefry_2x32(key, count[:1]),
                                   random.threefry_2x32(key, count.reshape(1, 5))]
    compare(run, np.uint32([3, 4]), np.arange(5, dtype=np.uint32))
