"""Functions that bring a mesh of their own, as programs for jax do, in artifacts."""
from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import aot
import aot.numpy as jnp
import aot_runtime
from aot import build, lax
from aot.errors import AotError
from aot.sharding import Mesh, NamedSharding
from aot.sharding import PartitionSpec as P

MESH = Mesh(np.array(aot.devices()).reshape(4, 2), ("data", "model"))
TURNED = Mesh(np.array(aot.devices()[::-1]).reshape(4, 2), ("data", "model"))
X = np.arange(32, dtype=np.float32).reshape(8, 4)


def total(x, mesh):
    @partial(aot.shard_map, mesh=mesh, in_specs=P("data", "model"), out_specs=P("data", None))
    def f(x): return lax.psum(x.sum(1, keepdims=True), "model") * (1 + lax.axis_index("data"))
    return f(x)


def constrained(x, mesh):
    return jnp.tanh(lax.with_sharding_constraint(x, NamedSharding(mesh, P("data", "model")))).sum(0)


@pytest.mark.parametrize("own", [MESH, TURNED], ids=["in order", "turned"])
@pytest.mark.parametrize("f", [total, constrained])
@pytest.mark.parametrize("mesh", ["data=4,model=2", "all=8"])
def test_compiled_over_a_mesh_of_the_same_size(tmp_path, f, own, mesh):
    run = partial(f, mesh=own)
    run.__name__ = "f"
    build.save(tmp_path / "m.aot", [build.Program(run, [X], mesh=mesh)])
    np.testing.assert_allclose(aot_runtime.load(tmp_path / "m.aot")["f"](X), aot.jit(run)(X), rtol=1e-6)


@pytest.mark.parametrize("f", [total, constrained])
def test_without_a_mesh_it_is_said_which(f):
    with pytest.raises(AotError, match="runs on 8 devices\nhint: give it a mesh, data=4,model=2: --mesh, or mesh in aot.toml"):
        build.Program(lambda x: f(x, MESH), [X]).lowered
    with pytest.raises(ValueError, match=r"shardings over devices \[0, 1, 2, 3\] and \[0, 1, 2, 3, 4, 5, 6, 7\]"):
        build.Program(lambda x: f(x, MESH), [X], mesh="data=4").lowered
