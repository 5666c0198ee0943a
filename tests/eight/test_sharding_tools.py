"""Meshes from devices, and the picture of a layout."""
import functools
import inspect

import numpy as np
import pytest

import aot
from aot import lax
from aot.experimental import mesh_utils
from aot.experimental.pjit import pjit
from aot.experimental.shard_map import shard_map
from aot.sharding import AbstractDevice, AbstractMesh, AxisType, ManualAxisType, Mesh, NamedSharding
from aot.sharding import PartitionSpec as P


def test_create_device_mesh():
    grid = mesh_utils.create_device_mesh((2, 4))
    assert [d.id for d in grid.flat] == list(range(8)) and grid.shape == (2, 4)
    assert mesh_utils.create_hybrid_device_mesh((2, 4), (1, 1)).shape == (2, 4)
    with pytest.raises(ValueError, match="product"):
        mesh_utils.create_device_mesh((3, 4))


def test_visualize(capsys):
    mesh = Mesh(mesh_utils.create_device_mesh((2, 4)), ("x", "y"))
    aot.debug.visualize_array_sharding(aot.device_put(np.ones((4, 8), np.float32), NamedSharding(mesh, P("x", "y"))))
    text = capsys.readouterr().out
    assert all(f"CPU {i} " in text for i in range(8)) and len(text.splitlines()) == 5
    aot.debug.visualize_array_sharding(aot.device_put(np.ones(8, np.float32), NamedSharding(mesh, P("y"))))
    assert "CPU 0,4" in capsys.readouterr().out
    aot.debug.visualize_array_sharding(aot.numpy.ones((2, 2)))
    assert "CPU 0" in capsys.readouterr().out


def test_former_names():
    mesh = Mesh(np.array(aot.devices()), "x")
    out = pjit(lambda x: x * 2, out_shardings=NamedSharding(mesh, P("x")))(np.arange(8.))
    assert out.sharding.spec == P("x")
    np.testing.assert_allclose(shard_map(lambda x: x + 1, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(out), np.arange(8.) * 2 + 1)


def test_small_names_of_the_module():
    from aot.sharding import SingleDeviceSharding, make_single_device_sharding, reshard
    mesh = Mesh(np.array(aot.devices()), "x")
    x = reshard({"a": np.arange(8.0)}, NamedSharding(mesh, P("x")))["a"]
    assert x.sharding == NamedSharding(mesh, P("x")) and np.array_equal(x, np.arange(8.0))
    assert make_single_device_sharding(aot.devices()[1]) == SingleDeviceSharding(aot.devices()[1])


# ---- names of programs that say themselves how they are split ----------------------------------------------------------

SQUARE = np.ones((4, 4), np.float32)


def meshes(s):
    """What abstract meshes of either library say of themselves."""
    auto, explicit, manual = s.AxisType.Auto, s.AxisType.Explicit, s.AxisType.Manual
    mixed = s.AbstractMesh((2, 4), ("x", "y"), (explicit, auto))
    all_ = [s.AbstractMesh((2, 4), ("x", "y")), mixed, mixed.update_axis_types({"x": auto}), mixed.update(axis_sizes=(8, 1)),
            s.AbstractMesh((2,), ("z",), (manual,)), s.AbstractMesh((3,), "z", auto), s.get_abstract_mesh()]
    facts = [(m.auto_axes, m.explicit_axes, m.manual_axes, m.are_all_axes_auto, m.are_all_axes_manual, m.size, m.empty,
              m.shape_tuple, m.axis_types and str(m.axis_types)) for m in all_]
    return facts, [a == b for a in all_ for b in all_], len({*all_})


def test_abstract_meshes():
    jax = pytest.importorskip("jax")
    ours, theirs = meshes(aot.sharding), meshes(jax.sharding)
    for a, b in zip(ours[0][:-1], theirs[0][:-1]):
        assert a == b
    assert ours[0][-1][5:7] == theirs[0][-1][5:7] == (0, True) and ours[1:] == theirs[1:]
    assert repr(AbstractMesh((2,), "x")) == "AbstractMesh('x': 2)"
    assert repr(AbstractMesh((2,), "x", AxisType.Explicit)) == "AbstractMesh('x': 2, axis_types=(Explicit,))"


@pytest.mark.parametrize("given, message", [
    (((2, 4), ("x",)), "one size, name and type"), (((2,), ("x",), (AxisType.Auto, AxisType.Auto)), "one size, name and type")])
def test_meshes_refused(given, message):
    with pytest.raises(ValueError, match=message):
        AbstractMesh(*given)


def test_manual_axis_type():
    assert ManualAxisType(varying=frozenset("x")) == ManualAxisType(varying=frozenset("x")) != ManualAxisType()
    with pytest.raises(ValueError, match="varying and reduced"):
        ManualAxisType(varying=frozenset("xy"), reduced=frozenset("x"))


MESH = Mesh(np.array(aot.devices()).reshape(2, 4), ("x", "y"))


def test_reshard_auto_axes_and_explicit_axes():
    from aot.sharding import auto_axes, explicit_axes, reshard
    with aot.set_mesh(MESH):
        assert auto_axes(lambda x: x * 2)(SQUARE, out_sharding=P("x")).sharding.spec == P("x")
        assert aot.jit(auto_axes(axes="x", out_sharding=P(None, "x"))(lambda x: x * 2))(SQUARE).sharding.spec == P(None, "x")
        assert explicit_axes(lambda x: x * 2, in_sharding=P("y"))(SQUARE).sharding.spec == P("y")
        assert aot.jit(lambda x: reshard(x, P("y", "x")))(SQUARE).sharding.spec == P("y", "x")
        with pytest.raises(TypeError, match="needs out_sharding"):
            auto_axes(lambda x: x)(SQUARE)
        with pytest.raises(ValueError, match="no axis 'z'"):
            auto_axes(lambda x: x, axes="z")(SQUARE, out_sharding=P())


def test_types_tell_what_the_compiler_leaves_open():
    """As in jax with Auto axes; of Explicit ones types know nothing here, and say so."""
    with aot.set_mesh(MESH):
        found = aot.typeof(SQUARE).sharding
        assert (found.mesh, found.spec) == (aot.sharding.get_abstract_mesh(), P(None, None))
    with aot.set_mesh(Mesh(MESH.devices, ("x", "y"), AxisType.Explicit)):
        x = aot.device_put(SQUARE, P("x"))
        assert (x @ x).sharding.spec == P("x") and aot.sharding.get_mesh().explicit_axes == ("x", "y")
        with pytest.raises(NotImplementedError, match="with_sharding_constraint"):
            aot.typeof(x).sharding


def test_shardings_without_devices():
    sharding = NamedSharding(MESH.abstract_mesh, P("x"))
    assert sharding.shard_shape((4, 4)) == (2, 4)
    with pytest.raises(ValueError, match="has no devices"):
        sharding.device_set
    with pytest.raises(ValueError, match="where the mesh is None"):
        aot.device_put(SQUARE, sharding)
    with aot.set_mesh(MESH):
        assert aot.device_put(SQUARE, sharding).sharding == NamedSharding(MESH, P("x"))
        assert aot.jit(lambda x: aot.lax.with_sharding_constraint(x, sharding))(SQUARE).sharding.spec == P("x")


def test_lower_for_devices_that_are_not_here():
    mesh = AbstractMesh((64, 4), ("data", "model"), abstract_device=AbstractDevice("TPU v6 lite", 1, "tpu"))
    with aot.sharding.use_abstract_mesh(mesh):
        assert aot.sharding.get_abstract_mesh() == mesh
        f = aot.jit(lambda x: aot.lax.with_sharding_constraint(x @ x.T, P("data", "model")))
        lowered = f.lower(aot.ShapeDtypeStruct((128, 64), np.float32))
        assert '<["data"=64, "model"=4]>' in lowered.as_text()
        for run in (lowered.compile, lambda: f(np.ones((128, 64), np.float32))):
            with pytest.raises(ValueError, match="256 devices that are not here"):
                run()


def test_arguments_of_stages():
    from aot.stages import ArgInfo, Wrapped
    f = aot.jit(lambda x, y: x + y, donate_argnums=0)
    low = f.lower(SQUARE, y=SQUARE)
    want = ArgInfo((4, 4), np.dtype("float32"), True), ArgInfo((4, 4), np.dtype("float32"), False)
    assert low.args_info == ((want[0],), {"y": want[1]}) == low.compile().args_info == f.trace(SQUARE, y=SQUARE).args_info
    assert isinstance(f, Wrapped) and not isinstance(len, Wrapped)


def test_smap():
    """One axis by hand; jax's results."""
    def both(m, np_, sh):
        mesh = sh.Mesh(np.array(m.devices()).reshape(2, 4), ("x", "y"))
        with m.set_mesh(mesh):
            f = m.smap(lambda a, b: a + m.lax.psum(b, "y"), in_axes=(0, None), out_axes=0, axis_name="y")
            g = m.smap(lambda t: {"s": m.lax.psum(t["v"].sum(), "y")}, in_axes=({"v": 1},), out_axes=None, axis_name="y")
            return [np.asarray(m.jit(f)(SQUARE, SQUARE[0])), np.asarray(m.jit(g)({"v": SQUARE})["s"])]
    got = both(aot, aot.numpy, aot.sharding)
    assert np.array_equal(got[0], SQUARE + 4) and got[1] == 16
    for bad in ({"in_axes": "x"}, {"in_axes": 0, "axis_name": ("x", "y")}, {}):
        with pytest.raises(TypeError, match="smap"):
            aot.smap(lambda a: a, **{"out_axes": 0, "axis_name": "x", **bad})(SQUARE)
    jax = pytest.importorskip("jax")
    for a, b in zip(got, both(jax, jax.numpy, jax.sharding)):
        assert np.array_equal(a, b)


# ---- out_sharding ------------------------------------------------------------------------------------------------------

MODULES = {"lax": aot.lax, "numpy": aot.numpy, "numpy.linalg": aot.numpy.linalg, "random": aot.random, "nn": aot.nn,
           "lax.linalg": aot.lax.linalg}
M8, V8 = np.ones((8, 8), np.float32), np.ones(8, np.float32)
KEY = aot.random.key(0)
#  arguments of every function that takes out_sharding; those of random that are not here take a key and a shape of (8,)
ARGUMENTS = {
    "lax.broadcast": (V8[0], (8,)), "lax.broadcast_in_dim": (V8, (8, 2), (0,)), "lax.empty": ((8,),), "lax.reshape": (M8, (64,)),
    "lax.conv_general_dilated": (M8[:, None], np.ones((1, 1, 1), np.float32), (1,), "SAME"), "lax.dot": (M8, M8),
    "lax.broadcasted_iota": (np.float32, (8,), 0),
    "lax.dot_general": (M8, M8, (((1,), (0,)), ((), ()))), "lax.reduce": (M8, np.float32(0), aot.lax.add, (0,)),
    "numpy.arange": (8,), "numpy.array": (M8,), "numpy.asarray": (M8,),
    "numpy.bincount": (np.arange(8),), "numpy.broadcast_to": (V8[0], (8,)), "numpy.dot": (M8, M8), "numpy.empty": (8,),
    "numpy.einsum": ("ij,jk->ik", M8, M8), "numpy.full": (8, 1.0), "numpy.full_like": (M8, 2), "numpy.matmul": (M8, M8),
    "numpy.ones": (8,), "numpy.ones_like": (M8,), "numpy.percentile": (M8, 50.0, 0), "numpy.ravel": (M8,),
    "numpy.repeat": (V8[:1], 8), "numpy.reshape": (M8, 64), "numpy.tensordot": (M8, M8, 1), "numpy.zeros": (8,),
    "numpy.zeros_like": (M8,), "numpy.linalg.tensordot": (np.ones((8, 8, 8)), M8), "random.ball": (KEY, 2, 2.0, (8,)), "random.beta": (KEY, V8, 1.0),
    "random.bernoulli": (KEY, 0.5, (8,)), "random.categorical": (KEY, M8), "random.chisquare": (KEY, V8),
    "random.dirichlet": (KEY, M8), "random.f": (KEY, V8, V8), "random.gamma": (KEY, V8), "random.loggamma": (KEY, V8),
    "random.generalized_normal": (KEY, 2.0, (8,)), "random.geometric": (KEY, V8 / 2), "random.lognormal": (KEY, 1.0, (8,)),
    "random.multivariate_normal": (KEY, M8, np.eye(8, dtype=np.float32)), "random.orthogonal": (KEY, 8), "random.pareto": (KEY, V8),
    "random.permutation": (KEY, 8), "random.poisson": (KEY, V8), "random.randint": (KEY, (8,), 0, 9), "random.rayleigh": (KEY, V8),
    "random.t": (KEY, V8), "random.triangular": (KEY, 0.0, 1.0, 2.0, (8,)), "random.truncated_normal": (KEY, -1.0, 1.0, (8,)),
    "random.wald": (KEY, V8), "lax.ragged_dot": (M8, np.ones((2, 8, 8), np.float32), np.array([3, 5])),
    "lax.ragged_dot_general": (M8, np.ones((2, 8, 8), np.float32), np.array([3, 5]), lax.RaggedDotDimensionNumbers(
        (((1,), (1,)), ((), ())), [0], [0])), "lax.rng_bit_generator": (np.arange(4, dtype=np.uint32), (8,)),
}
TAKING = [f"{m}.{n}" for m, module in MODULES.items() for n in dir(module)
          if inspect.isroutine(f := getattr(module, n)) and "out_sharding" in inspect.signature(f).parameters]


@pytest.mark.parametrize("name", TAKING)
def test_results_lie_where_out_sharding_says(name):
    module, _, function = name.rpartition(".")
    f = functools.partial(getattr(MODULES[module], function), *ARGUMENTS.get(name, (KEY, (8,))))
    with aot.set_mesh(MESH):
        if module.startswith("random"):         # tracing is enough to see it
            assert "sharding_constraint" in str(aot.make_jaxpr(lambda: f(out_sharding=P("x")))())
        else:
            out = f(out_sharding=P("x"))
            assert (out[1] if name == "lax.rng_bit_generator" else out).sharding.spec == P("x")
