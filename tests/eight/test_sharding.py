"""Shardings, automatic partitioning, shard_map and pmap on eight devices: against one device, vmap, and real jax."""
import subprocess
import sys

import numpy as np
import pytest

import aot
import aot.numpy as jnp
from aot import lax
from aot.sharding import Mesh, NamedSharding
from aot.sharding import PartitionSpec as P

F = np.float32
DEVICES = aot.devices()
GRID, LINE = Mesh(np.array(DEVICES).reshape(2, 4), ("x", "y")), Mesh(np.array(DEVICES), "x")
ARR = np.arange(32, dtype=F).reshape(4, 8)
SPECS = [P(), P("x"), P("y"), P("x", "y"), P(None, "x"), P(("x", "y"),), P(None, ("y", "x")), P("y", "x")]


def test_devices():
    assert len(DEVICES) == 8


def on_jax(spec):
    """The same placement of ARR by real jax (the test ends here, as skipped, where that is not installed)."""
    jax = pytest.importorskip("jax")
    grid = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y"))
    return jax.device_put(ARR, jax.sharding.NamedSharding(grid, jax.P(*spec)))


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_placement(spec):
    sharding = NamedSharding(GRID, spec)
    if ARR.shape[0] % sharding.tiles(2)[0][0]:
        with pytest.raises(ValueError, match="divisible"):
            aot.device_put(ARR, sharding)
        return
    a = aot.device_put(ARR, sharding)
    assert a.sharding == sharding and np.array_equal(a, ARR)
    b = on_jax(spec)
    assert sharding.shard_shape(ARR.shape) == b.sharding.shard_shape(ARR.shape)
    for ours, theirs in zip(a.addressable_shards, b.addressable_shards, strict=True):
        assert ours.device.id == theirs.device.id and ours.index == theirs.index and ours.replica_id == theirs.replica_id
        np.testing.assert_array_equal(ours.data, theirs.data)


#  name, function of (module, numpy, lax) -> function of one array
OPS = {
    "elementwise": lambda m, np_, lax: lambda x: 2 * np_.sin(x) + 1,
    "sum of rows": lambda m, np_, lax: lambda x: x.sum(0),
    "sum of all": lambda m, np_, lax: lambda x: x.sum(),
    "transpose": lambda m, np_, lax: lambda x: x.T,
    "matmul": lambda m, np_, lax: lambda x: x @ x.T,
    "softmax": lambda m, np_, lax: lambda x: m.nn.softmax(x, -1),
    "cumsum": lambda m, np_, lax: lambda x: np_.cumsum(x, 1),
    "slice": lambda m, np_, lax: lambda x: x[1:3, ::2],
    "gather": lambda m, np_, lax: lambda x: x[np.array([3, 0])],
    "concatenate": lambda m, np_, lax: lambda x: np_.concatenate([x, x]),
    "scan": lambda m, np_, lax: lambda x: lax.scan(lambda c, r: (c + r, c * r), x[0], x)[1],
    "grad": lambda m, np_, lax: m.grad(lambda x: np_.tanh(x / 9).sum()),
    "vmap": lambda m, np_, lax: m.vmap(lambda r: np_.dot(r, r)),
    "sort": lambda m, np_, lax: lambda x: np_.sort(-x, 1),
    "argmax": lambda m, np_, lax: lambda x: np_.argmax(x, 0),
}
ROWS = [(op, spec) for op in OPS for spec in (P("x"), P("x", "y"), P(None, "y"), P("y", "x"))]


@pytest.mark.parametrize("op, spec", ROWS, ids=str)
def test_computation_follows_data(op, spec):
    """Values as on one device, and (for results that jax lays out by name) the layout that jax gets."""
    f = OPS[op](aot, jnp, lax)
    x = aot.device_put(ARR, NamedSharding(GRID, spec))
    got = aot.jit(f)(x)
    np.testing.assert_allclose(got, aot.jit(f)(jnp.asarray(ARR)), rtol=1e-5, atol=1e-6)
    x = on_jax(spec)
    import jax
    theirs = jax.jit(OPS[op](jax, jax.numpy, jax.lax))(x)
    np.testing.assert_allclose(got, theirs, rtol=1e-5, atol=1e-6)
    assert got.sharding.shard_shape(got.shape) == theirs.sharding.shard_shape(theirs.shape)
    want = theirs.sharding.devices_indices_map(theirs.shape)
    mine = got.sharding.devices_indices_map(got.shape)
    full = lambda i, shape: [s.indices(n) for s, n in zip(i, shape)]
    assert {d.id: full(i, got.shape) for d, i in mine.items()} == {d.id: full(i, got.shape) for d, i in want.items()}


def test_eager_operations_keep_layouts():
    x = aot.device_put(ARR, NamedSharding(GRID, P("x", "y")))
    assert (jnp.sin(x) + 1).sharding == x.sharding
    np.testing.assert_allclose(jnp.sin(x) + 1, np.sin(ARR) + 1, rtol=1e-6)


def test_in_and_out_shardings():
    s = lambda *a: NamedSharding(GRID, P(*a))
    f = aot.jit(lambda x, y: x @ y, in_shardings=(s("x", None), s(None, "y")), out_shardings=s("x", "y"))
    out = f(ARR, ARR.T)
    assert out.sharding == s("x", "y")
    np.testing.assert_allclose(out, ARR @ ARR.T)
    with GRID:
        g = aot.jit(lambda d: d["a"] * 2, in_shardings=(P("x"),), out_shardings=P(None, "y"))
        assert g({"a": ARR}).sharding == s(None, "y")
    with pytest.raises(RuntimeError, match="mesh"):
        aot.jit(lambda x: x, in_shardings=P("x"))(ARR)


def test_shardings_of_a_call_within_a_program():
    """They hold for values, derivatives and batches, as those of the outermost jit do."""
    x, s = aot.device_put(np.ones((8, 8), F), NamedSharding(LINE, P())), NamedSharding(LINE, P("x"))
    inner = aot.jit(lambda y: y * y, in_shardings=s)
    outer = aot.jit(lambda y: y * y, out_shardings=s)
    assert aot.jit(lambda x: outer(x))(x).sharding == s
    assert aot.jit(lambda x: inner(x))(x).sharding == s
    assert aot.grad(lambda x: outer(x).sum())(x).sharding == s
    rows = aot.device_put(x, s)
    for spec, want in ((P(), P("x")), (P("x"), P(None, "x")), (P(P.UNCONSTRAINED), P("x"))):
        t = NamedSharding(LINE, spec)
        assert aot.vmap(aot.jit(lambda y: y + 1, out_shardings=t))(rows).sharding == NamedSharding(LINE, want)
        assert aot.vmap(lambda y, t=t: lax.with_sharding_constraint(y, t))(rows).sharding == NamedSharding(LINE, want)
    one = aot.jit(lambda y: y * 2, device=DEVICES[0])
    assert float(aot.jit(lambda y: one(y))(F(2))) == float(one(F(2))) == 4
    assert aot.jit(lambda y: y * 2, device=DEVICES[3])(F(2)).device == DEVICES[3]


def test_with_sharding_constraint():
    f = aot.jit(lambda x: lax.with_sharding_constraint(x.sum(0), NamedSharding(LINE, P("x"))))
    out = f(aot.device_put(ARR, NamedSharding(GRID, P("x", "y"))))
    assert out.sharding.shard_shape(out.shape) == (1,)
    np.testing.assert_allclose(out, ARR.sum(0))


def test_devices_that_do_not_fit():
    half = Mesh(np.array(DEVICES[:4]), "h")
    x, y = aot.device_put(ARR, NamedSharding(GRID, P("x"))), aot.device_put(ARR, NamedSharding(half, P("h")))
    with pytest.raises(ValueError, match="incompatible devices"):
        aot.jit(lambda a, b: a + b)(x, y)
    np.testing.assert_allclose(aot.jit(lambda a: a * 2)(y), ARR * 2)


def test_constants_and_donation():
    big = np.arange(4000, dtype=F).reshape(4, 1000)
    x = aot.device_put(np.ones((4, 1000), F), NamedSharding(GRID, P("x")))
    out = aot.jit(lambda v: v + big, donate_argnums=0)(x)
    np.testing.assert_allclose(out, big + 1)
    assert x.is_deleted()


# ---- shard_map -------------------------------------------------------------------------------------------------------------

COLLECTIVES = {
    "psum": lambda r: r / lax.psum(r.sum(), "x"), "pmean": lambda r: lax.pmean(r, "x") + r, "pmax": lambda r: lax.pmax(r, "x") - r,
    "ppermute": lambda r: lax.ppermute(r, "x", [(i, (i + 1) % 8) for i in range(8)]),
    "partial ppermute": lambda r: lax.ppermute(r, "x", [(0, 3), (3, 5)]),
    "all_gather": lambda r: lax.all_gather(r, "x").sum(0) * r, "all_gather tiled": lambda r: lax.all_gather(r, "x", tiled=True)[:2] * r,
    "psum_scatter": lambda r: lax.psum_scatter(lax.all_gather(r, "x", tiled=True) * r[0], "x", tiled=True),
    "all_to_all": lambda r: lax.all_to_all(lax.all_gather(r, "x", tiled=True) + r[0], "x", 0, 0, tiled=True)[:2],
    "axis_index": lambda r: r * lax.axis_index("x"), "in scan": lambda r: lax.scan(lambda c, _: (
        jnp.sin(c) * lax.psum(c, "x"), c), r, None, length=3)[0], "in jit": lambda r: aot.jit(lambda v: v * lax.psum(v, "x"))(r),
    "in cond": lambda r: lax.cond(lax.psum(r[0], "x") > 0, lambda: lax.psum(r, "x"), lambda: r),
}
V = np.linspace(.1, 1, 16, dtype=F)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_shard_map_is_vmap_with_names(name):
    f = COLLECTIVES[name]
    mapped = aot.shard_map(f, mesh=LINE, in_specs=P("x"), out_specs=P("x"), check_vma=False)
    vectorised = lambda x: aot.vmap(f, axis_name="x")(x.reshape(8, 2)).reshape(-1)
    np.testing.assert_allclose(mapped(V), vectorised(V), rtol=1e-5)
    np.testing.assert_allclose(aot.jit(mapped)(V), vectorised(V), rtol=1e-5)
    loss = lambda g: lambda x: jnp.sin(g(x)).sum()
    np.testing.assert_allclose(aot.grad(loss(mapped))(V), aot.grad(loss(vectorised))(V), rtol=2e-4, atol=1e-5)
    np.testing.assert_allclose(aot.jvp(mapped, (V,), (V,))[1], aot.jvp(vectorised, (V,), (V,))[1], rtol=2e-4, atol=1e-5)
    np.testing.assert_allclose(aot.vmap(mapped)(np.stack([V, V + 1])), np.stack([vectorised(V), vectorised(V + 1)]), rtol=1e-5)


def layer(x, w, b):
    return aot.nn.sigmoid(lax.psum(x @ w, "x") + b)


def test_layer_three_ways():
    rng = np.random.default_rng(0)
    x, w, b = (rng.normal(size=s).astype(F) for s in ((32,), (32, 4), (4,)))
    want = np.array([0.02138912, 0.893112, 0.59892005, 0.97742504])
    s = NamedSharding(LINE, P("x"))
    plain = lambda x, w, b: aot.nn.sigmoid(x @ w + b)
    manual = aot.shard_map(layer, mesh=LINE, in_specs=(P("x"), P("x", None), P(None)), out_specs=P(None))
    np.testing.assert_allclose(aot.jit(plain)(aot.device_put(x, s), aot.device_put(w, s), b), want, rtol=1e-5)
    np.testing.assert_allclose(aot.jit(lambda x, w, b: plain(lax.with_sharding_constraint(x, s), w, b))(x, w, b), want, rtol=1e-5)
    np.testing.assert_allclose(aot.jit(manual)(x, w, b), want, rtol=1e-5)
    for wrap in (lambda f: f, aot.jit):
        for g, h in zip(wrap(aot.grad(lambda *a: manual(*a).sum(), (0, 1, 2)))(x, w, b),
                        aot.grad(lambda *a: plain(*a).sum(), (0, 1, 2))(x, w, b)):
            np.testing.assert_allclose(g, h, rtol=1e-4, atol=1e-5)


def test_documented_shard_map():
    f = aot.shard_map(lambda x: jnp.sum(x, keepdims=True), mesh=LINE, in_specs=P("x"), out_specs=P("x"))
    assert repr(f(jnp.arange(32))) == "Array([  6,  22,  38,  54,  70,  86, 102, 118], dtype=int32)"
    g = aot.shard_map(lambda x: lax.psum(x.sum(), "x"), mesh=LINE, in_specs=P("x"), out_specs=P())
    assert repr(g(jnp.arange(32))) == "Array(496, dtype=int32)"
    shapes = []
    aot.shard_map(lambda x: (shapes.append(x.shape), x * 2)[1], mesh=LINE, in_specs=P("x"), out_specs=P("x"))(jnp.arange(32))
    assert shapes == [(4,)]
    assert repr(NamedSharding(GRID, P("x", "y"))) == (
        "NamedSharding(mesh=Mesh('x': 2, 'y': 4), spec=PartitionSpec('x', 'y'))")


def test_partly_manual():
    f = aot.shard_map(lambda x: lax.psum(x, "x") * 2, mesh=GRID, in_specs=P("x"), out_specs=P(), axis_names={"x"})
    np.testing.assert_allclose(aot.jit(f)(aot.device_put(ARR, NamedSharding(GRID, P("x", "y")))), 2 * (ARR[:2] + ARR[2:]))


def test_two_axes():
    f = aot.shard_map(lambda x: (lax.psum(x.sum(), ("x", "y")) + lax.axis_index(("x", "y")))[None], mesh=GRID,
                      in_specs=P("x", "y"), out_specs=P(("x", "y")))
    np.testing.assert_allclose(f(ARR), ARR.sum() + np.arange(8))


@pytest.mark.parametrize("call, text", [
    (lambda: aot.shard_map(lambda x: x, mesh=LINE, in_specs=P("x"), out_specs=P("x"))(np.ones(9, F)), "divisible"),
    (lambda: aot.shard_map(lambda x: x, mesh=LINE, in_specs=P("z"), out_specs=P("x"))(np.ones(8, F)), "not found in mesh"),
    (lambda: aot.shard_map(lambda x: x.sum(), mesh=LINE, in_specs=P("x"), out_specs=P("x"))(np.ones(8, F)), "more entries"),
    (lambda: NamedSharding(GRID, P("x", "x")), "at most one"),
    (lambda: Mesh(np.array(DEVICES), ("a", "b")), "ndim"),
    (lambda: aot.pmap(lambda x: x)(np.ones(9, F)), "9 logical devices"),
])
def test_errors(call, text):
    with pytest.raises((ValueError, TypeError), match=text):
        call()


# ---- pmap --------------------------------------------------------------------------------------------------------------------

def test_pmap():
    assert str(aot.pmap(lambda x: x / lax.psum(x, "i"), axis_name="i")(jnp.arange(4.))) == (
        "[0.         0.16666667 0.33333334 0.5       ]")
    x = np.arange(48, dtype=F).reshape(8, 3, 2)
    out = aot.pmap(lambda a: a @ a.T)(x)
    np.testing.assert_allclose(out, x @ x.transpose(0, 2, 1))
    assert out.sharding.shard_shape(out.shape) == (1, 3, 3)
    np.testing.assert_allclose(aot.pmap(lambda a, b: {"s": a * b}, in_axes=(1, None), out_axes=1)(ARR, F(3))["s"], ARR * 3)
    np.testing.assert_allclose(aot.pmap(lambda a, n: a * n, static_broadcasted_argnums=1)(x, 3), x * 3)
    keys = aot.random.split(aot.random.key(0), 8)
    draws = aot.pmap(lambda k: aot.random.bits(k, (3,)))(keys)
    np.testing.assert_array_equal(draws, aot.vmap(lambda k: aot.random.bits(k, (3,)))(keys))


def test_pmap_of_other_arguments_after_a_first_call():
    f, x = aot.pmap(lambda x, y=1., *, z=2.: x * y + z), np.ones((8, 3), np.float32)
    assert [c.sum() for c in (f(x), f(x, x * 2), f(x=x, z=x), f(x, z=x))] == [72, 96, 48, 48]
    for args, text in (((x, 1.), "rank should be at least 1"), ((x, x[:4]), "inconsistent sizes"), ((), "must have at least one")):
        with pytest.raises(ValueError, match=f"pmap .*{text}"):
            f(*args)


def test_nested_pmap_gradient():
    """The readme's example; its x is any 4 x 2 array."""
    x = jnp.asarray(np.random.RandomState(0).randn(4, 2).astype(F))

    def make(m, np_, pmap):
        @pmap
        def f(x):
            y = np_.sin(x)

            @pmap
            def g(z):
                return np_.cos(z) * np_.tan(y.sum()) * np_.tanh(x).sum()
            return m.grad(lambda w: np_.sum(g(w)))(x)
        return f
    jax = pytest.importorskip("jax")
    ours, want = make(aot, jnp, aot.pmap), make(jax, jax.numpy, jax.vmap)
    np.testing.assert_allclose(ours(x), want(np.asarray(x)), rtol=1e-5)
    np.testing.assert_allclose(aot.grad(lambda x: jnp.sum(ours(x)))(x), jax.grad(lambda x: jax.numpy.sum(want(x)))(np.asarray(x)),
                               rtol=1e-4)


# ---- arrays made of parts --------------------------------------------------------------------------------------------------------

def test_making_arrays():
    s = NamedSharding(GRID, P("x", "y"))
    a = aot.make_array_from_callback(ARR.shape, s, lambda index: ARR[index])
    np.testing.assert_array_equal(a, ARR)
    b = aot.make_array_from_single_device_arrays(ARR.shape, s, [x.data for x in a.addressable_shards])
    np.testing.assert_array_equal(b, ARR)
    np.testing.assert_array_equal(aot.make_array_from_process_local_data(s, ARR), ARR)
    assert aot.make_mesh((2, 2), ("a", "b")).shape == {"a": 2, "b": 2}
    with pytest.raises(ValueError, match="devices"):
        aot.make_mesh((3, 4), ("a", "b"))
    assert aot.device_put(a, aot.devices()[3]).devices() == {aot.devices()[3]}


@pytest.mark.parametrize("sharding", [NamedSharding(GRID, P()), aot.sharding.SingleDeviceSharding(aot.devices()[0]),
                                      aot.sharding.SingleDeviceSharding(aot.devices()[1])], ids=["replicated", "first", "second"])
@pytest.mark.parametrize("value", [3.5, [[1., 2.]], np.arange(6.).reshape(2, 3).T, np.zeros((0, 2))], ids=["scalar", "row", "transposed", "empty"])
def test_arrays_made_of_parts_have_the_shape_of_the_parts(sharding, value):
    value = np.asarray(value, np.float32)
    a = aot.make_array_from_callback(value.shape, sharding, lambda index: value[index])
    b = aot.make_array_from_single_device_arrays(value.shape, sharding, [s.data for s in a.addressable_shards])
    for x in (a, b, a.addressable_data(0)):
        assert x.shape == np.asarray(x).shape == value.shape and str(np.asarray(x).tolist()) == str(value.tolist())
        assert value.ndim or float(x) == value


@pytest.mark.parametrize("spec", [P(), P("x"), P("x", "y"), P(None, ("y", "x"))], ids=str)
def test_arrays_like_one_over_devices_lie_as_it_does(spec):
    a = aot.device_put(ARR, NamedSharding(GRID, spec))
    for like, value in ((jnp.zeros_like, 0), (jnp.ones_like, 1), (lambda x: jnp.full_like(x, 2, dtype=int), 2),
                        (lambda x: lax.full_like(x, 3), 3)):
        out = like(a)
        assert out.sharding == a.sharding and np.array_equal(out, np.full_like(ARR, value))
        assert all(s.data.shape == t.data.shape for s, t in zip(out.addressable_shards, a.addressable_shards))
    assert jnp.zeros_like(a, shape=(3,)).sharding.num_devices == 1
    assert aot.jit(lambda: jnp.zeros_like(a) + 1)().shape == a.shape and aot.grad(lambda x: (jnp.ones_like(a) * x).sum())(1.) == 32


def test_keys_over_devices():
    keys = aot.device_put(aot.random.split(aot.random.key(0), 8), NamedSharding(LINE, P("x")))
    out = aot.jit(aot.vmap(lambda k: aot.random.uniform(k)))(keys)
    np.testing.assert_array_equal(out, aot.vmap(aot.random.uniform)(aot.random.split(aot.random.key(0), 8)))


# ---- stages --------------------------------------------------------------------------------------------------------

def test_lowered_and_compiled_programs_keep_their_shardings():
    mesh = aot.make_mesh((4, 2), ("data", "model"))
    w, x = np.ones((8, 16), np.float32), np.ones((8, 8), np.float32)
    rows, columns = NamedSharding(mesh, P("data")), NamedSharding(mesh, P(None, "model"))
    specified = aot.jit(lambda w, x: jnp.tanh(x @ w), in_shardings=(columns, rows))
    for traced in (specified.trace(w, x), aot.jit(lambda w, x: jnp.tanh(x @ w)).trace(
            aot.ShapeDtypeStruct(w.shape, w.dtype, sharding=columns), aot.device_put(x, rows))):
        lowered = traced.lower()
        assert 'sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>' in lowered.as_text()
        compiled = lowered.compile()
        assert compiled.input_shardings == ((columns, rows), {}) and compiled.output_shardings.spec == P("data", "model")
        y = compiled(w, x)
        assert y.sharding.spec == P("data", "model") and np.allclose(y, np.tanh(x @ w))
    single = aot.jit(lambda x: x + 1).lower(x).compile()
    assert single.input_shardings == ((aot.sharding.SingleDeviceSharding(aot.devices()[0]),), {})


def test_calls_follow_layouts_and_meshes():
    """One jitted function, called in turn with each layout, host arrays, several meshes in scope: always as at first."""
    f = aot.jit(lambda x, y: jnp.sin(x) @ y.T)
    want = np.sin(ARR) @ ARR.T
    values = [aot.device_put(ARR, NamedSharding(GRID, s)) for s in SPECS if ARR.shape[0] % NamedSharding(GRID, s).tiles(2)[0][0] == 0]
    layouts = {}
    for _ in range(3):
        for i, x in enumerate([ARR, jnp.asarray(ARR), *values]):
            for j, y in enumerate([ARR, jnp.asarray(ARR), *values]):
                got = f(x, y)
                np.testing.assert_allclose(got, want, rtol=1e-4)
                assert layouts.setdefault((i, j), got.sharding) == got.sharding
    g = aot.jit(lambda x: x + 1, in_shardings=P("x"), out_shardings=P("x"))
    h = aot.jit(lambda x: lax.with_sharding_constraint(x * 2, P("x")))
    outer = aot.jit(lambda x: h(x) + 0)
    other = Mesh(np.array(DEVICES[::-1]).reshape(2, 4), ("x", "y"))
    for mesh in (GRID, LINE, other, GRID, LINE):
        with mesh:
            for call in (g, g, h, h, outer, outer):
                if mesh.shape["x"] == 8:
                    with pytest.raises(ValueError, match="divisible"):
                        call(ARR)
                else:
                    assert call(ARR).sharding == NamedSharding(mesh, P("x"))


def test_arguments_of_one_device_are_laid_out_as_the_program_likes():
    """A host array that is multiplied with one split by rows need not be everywhere: the layout that jax gets."""
    y = np.ones((8, 4), F)
    x = aot.device_put(ARR, NamedSharding(GRID, P("x", "y")))
    compiled = aot.jit(lambda x, y: x @ y).lower(x, y).compile()
    ours = compiled.input_shardings[0][1]
    assert ours == NamedSharding(GRID, P("y")) and "all-gather" not in compiled.as_text()
    np.testing.assert_allclose(compiled(x, y), ARR @ y)
    jax = pytest.importorskip("jax")
    theirs = jax.jit(lambda x, y: x @ y).lower(on_jax(P("x", "y")), y).compile().input_shardings[0][1]
    assert ours.shard_shape(y.shape) == theirs.shard_shape(y.shape)


def test_arguments_are_laid_out_anew():
    """Whatever layout arguments have, in whatever order: also where calls are dispatched in C++, in a process without jax."""
    code = """
import itertools, sys, numpy as np, aot
from aot.experimental.layout import Format, Layout
from aot.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

X = np.arange(32, dtype=np.float32).reshape(4, 8)
grid = Mesh(np.array(aot.devices()).reshape(2, 4), ("x", "y"))
rows, other = NamedSharding(grid, P("x", "y")), NamedSharding(grid, P(None, "x"))
columns = Format(Layout((1, 0)), rows)
kinds = [X, aot.numpy.asarray(X), *(aot.device_put(X, s) for s in (rows, other, columns, aot.devices()[1]))]
assert kinds[4].format == columns and kinds[4].sharding == rows
for asked in (rows, columns):
    for a, b in itertools.permutations(range(len(kinds)), 2):
        f = aot.jit(lambda x: x * 2, in_shardings=asked, out_shardings=columns)
        for i in (a, a, b, a, b, b):
            y = f(kinds[i])
            assert y.format == columns and np.array_equal(y, 2 * X), (asked, a, b, i)
for d in aot.devices()[:2]:
    for a, b in itertools.permutations(range(len(kinds)), 2):
        f = aot.jit(lambda x: x * 2, in_shardings=SingleDeviceSharding(d))
        for i in (a, a, b, a, b, b):
            y = f(kinds[i])
            assert y.device == d and np.array_equal(y, 2 * X), (d, a, b, i)
assert "jax" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_layouts_on_several_devices():
    """A layout and a sharding together: calls, results, and changes of either."""
    from aot.experimental.layout import Format, Layout
    columns = Format(Layout((1, 0)), NamedSharding(GRID, P("x", "y")))
    x, plain = aot.device_put(ARR, columns), aot.device_put(ARR, NamedSharding(GRID, P("x", "y")))
    assert x.format == columns and x.sharding == plain.sharding and np.array_equal(x, ARR)
    f = aot.jit(lambda a, b: (a + b, a @ b.T), in_shardings=(columns, None), out_shardings=(columns, None))
    for a, b in [(x, plain), (plain, x), (x, x), (plain, plain), (ARR, x), (x, plain), (plain, x), (x, x), (ARR, x)]:
        total, product = f(a, b)
        assert total.format == columns and np.array_equal(total, 2 * ARR) and np.array_equal(product, ARR @ ARR.T)
    assert np.array_equal(aot.jit(lambda a: a.sum(0))(x), ARR.sum(0)) and np.array_equal(x + plain, 2 * ARR)


def test_exported_program_of_several_devices():
    """It is called where a mesh of its shape is set, and keeps its layouts; also its derivative, and after a round trip."""
    from aot import export
    f = lambda x: lax.with_sharding_constraint(jnp.sin(x) @ jnp.ones((8, 8), F), NamedSharding(GRID, P("x", "y")))
    sharded = aot.jit(f, in_shardings=NamedSharding(GRID, P("x", None)), out_shardings=NamedSharding(GRID, P("x", "y")))
    with aot.set_mesh(GRID):
        made = export.export(sharded)(ARR)
        read = export.deserialize(made.serialize(vjp_order=1))
        assert made.nr_devices == 8 and (read.in_specs, read.out_specs) == ((P("x"),), (P("x", "y"),)) and read.mesh == made.mesh
        for e in (made, read):
            assert e.call(ARR).sharding.spec == P("x", "y")
            np.testing.assert_allclose(e.call(ARR), f(ARR), rtol=1e-5)
            np.testing.assert_allclose(aot.jit(e.call)(ARR), f(ARR), rtol=1e-5)
            np.testing.assert_allclose(aot.grad(lambda x: (e.call(x) ** 2).sum())(ARR), aot.grad(lambda x: (f(x) ** 2).sum())(ARR),
                                       rtol=1e-4)
    assert [h is not None for h in made.in_shardings_hlo] == [True]
    with pytest.raises(ValueError, match="exported for 8 devices"):
        made.call(ARR)
    with aot.set_mesh(LINE), pytest.raises(ValueError, match="a mesh of the shape"):
        made.call(ARR)


def _nested(x):
    inner = aot.shard_map(lambda y: lax.psum(y, "y"), mesh=GRID, in_specs=P(None, "y"), out_specs=P(), axis_names={"y"})
    return aot.shard_map(aot.jit(inner), mesh=GRID, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})(x)


def _over_two_meshes(x):
    turned = Mesh(np.array(DEVICES).reshape(2, 4).T, ("x 1", "y%"))
    a = aot.shard_map(lambda x: x * lax.axis_index("x"), mesh=GRID, in_specs=P("x"), out_specs=P("x"))(x)
    return lax.with_sharding_constraint(a, NamedSharding(turned, P("x 1", "y%")))


@pytest.mark.parametrize("f, n", [
    (aot.shard_map(lambda a, b: (lax.psum(a, "y"), b * 2), mesh=GRID, in_specs=(P("x", "y"), P("y")), out_specs=(P("x"), P("y"))), 2),
    (aot.shard_map(lambda: lax.axis_index("x")[None] + jnp.ones(2, int), mesh=GRID, in_specs=(), out_specs=P("x")), 0),
    (aot.jit(lambda x: x + 1, out_shardings=NamedSharding(GRID, P(None, "y"))), 1),
    (lambda x: lax.fori_loop(0, 3, lambda i, c: lax.with_sharding_constraint(c * 2, NamedSharding(GRID, P("y"))), x), 1),
    (_nested, 1), (_over_two_meshes, 1)], ids=["two", "none", "results", "loop", "nested", "meshes"])
def test_exported_programs_inside_of_others(f, n):
    """Manual computations, constraints and several meshes of a stored program, alone and in one that has its own."""
    from aot import export
    args, own = [ARR + i for i in range(n)], aot.shard_map(lambda x: lax.psum(x, "x"), mesh=GRID, in_specs=P("x"), out_specs=P())
    want = aot.jit(f)(*args)
    with aot.set_mesh(GRID):
        read = export.deserialize(export.export(aot.jit(f))(*args).serialize())
        made = {"alone": (read.call(*args), own(ARR)), "inside": aot.jit(lambda x, *xs: (read.call(*xs), own(x)))(ARR, *args)}
    for name, got in made.items():
        leaves = aot.tree_util.tree_leaves(got)
        for x, y in zip(leaves, [*aot.tree_util.tree_leaves(want), own(ARR)], strict=True):
            np.testing.assert_allclose(x, y, err_msg=name)
            assert x.sharding.is_equivalent_to(y.sharding, x.ndim), name


def test_exported_program_and_devices_in_another_order():
    """The positions of devices in a stored program are those of the mesh that is set; one in another order is refused."""
    from aot import export
    f = aot.shard_map(lambda x: x * lax.axis_index("x"), mesh=GRID, in_specs=P("x"), out_specs=P("x"))
    back = Mesh(np.array(DEVICES[::-1]).reshape(2, 4), ("x", "y"))
    with aot.set_mesh(GRID):
        made = export.export(aot.jit(f))(ARR)
    with aot.set_mesh(back):
        assert np.array_equal(made.call(ARR), f(ARR))
        with pytest.raises(ValueError, match="set a mesh with the devices in this order"):
            aot.jit(lambda x, y: (made.call(x), y), in_shardings=(NamedSharding(GRID, P("x")), None))(ARR, 1.)


def test_executables_from_bytes():
    """Compiled for a mesh, run on it, and on other devices."""
    from aot.experimental.serialize_executable import deserialize_and_load, serialize
    grid = Mesh(np.array(DEVICES[:4]).reshape(2, 2), ("x", "y"))
    rows = NamedSharding(grid, P("x"))
    made = serialize(aot.jit(lambda x: (x @ x.T, x * 2), in_shardings=rows).lower(ARR).compile())
    again = deserialize_and_load(*made)
    other = deserialize_and_load(*made, execution_devices=DEVICES[4:])
    for run, devices in ((again, DEVICES[:4]), (other, DEVICES[4:])):
        a, b = run(ARR)
        assert np.array_equal(a, ARR @ ARR.T) and np.array_equal(b, 2 * ARR) and b.sharding.spec == P("x")
        assert list(b.sharding.device_tuple) == devices
    single = serialize(aot.jit(lambda x: x + 1).lower(ARR).compile())
    moved = deserialize_and_load(*single, execution_devices=DEVICES[3:4])(ARR)
    assert moved.device == DEVICES[3] and np.array_equal(moved, ARR + 1)


def test_where_unused_arguments_lie_does_not_matter():
    elsewhere, spread = aot.device_put(jnp.ones(4), DEVICES[1]), NamedSharding(LINE, P("x"))
    f = aot.jit(lambda x, y: x * 2)
    for _ in range(3):
        assert f(jnp.ones(8), elsewhere).devices() == {DEVICES[0]}
        assert f(aot.device_put(jnp.ones(8), spread), elsewhere).sharding == spread
        assert f(elsewhere, aot.device_put(jnp.ones(8), spread)).devices() == {DEVICES[1]}
    with pytest.raises(ValueError, match="incompatible devices"):
        aot.jit(lambda x, y: x * 2, keep_unused=True)(aot.device_put(jnp.ones(8), spread), elsewhere)


def test_unused_arguments_with_shardings():
    spread = NamedSharding(LINE, P("x"))
    f = aot.jit(lambda x, y: y * 2, in_shardings=(NamedSharding(GRID, P("y")), spread))
    compiled = f.lower(jnp.ones(8), jnp.ones(8)).compile()
    assert compiled.input_shardings == ((None, spread), {})
    for g in (f, f, compiled):
        assert g(jnp.ones(8), jnp.ones(8)).sharding == spread
    step = aot.jit(lambda s: s["used"] + 1, donate_argnums=0)
    for _ in range(3):
        state = {k: aot.device_put(jnp.ones(8), spread) for k in ("used", "unused")}
        assert step(state).sharding == spread
        assert state["used"].is_deleted() and not state["unused"].is_deleted()
