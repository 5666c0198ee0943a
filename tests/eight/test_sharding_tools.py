"""Meshes from devices, and the picture of a layout."""
import numpy as np
import pytest

import aot
from aot.experimental import mesh_utils
from aot.experimental.pjit import pjit
from aot.experimental.shard_map import shard_map
from aot.sharding import Mesh, NamedSharding
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
