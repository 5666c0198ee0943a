"""Compiling for devices that are not here, over meshes of them: `experimental.topologies`."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

import aot
from aot import targets
from aot.errors import AotError
from aot.experimental import topologies

HEAD = """
    import json
    import numpy as np
    import aot, aot.numpy as jnp
    from aot import lax
    from aot.experimental import serialize_executable, topologies
    from aot.sharding import NamedSharding, PartitionSpec as P, SingleDeviceSharding
    S = aot.ShapeDtypeStruct
    topo = topologies.get_topology_desc("v5e:2x4")
    mesh = topologies.make_mesh(topo, (2, 4), ("x", "y"))
    one, x, y = SingleDeviceSharding(topo.devices[0]), NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "y"))
    A = S((8, 128), jnp.float32)
    def compiled(f, *args, **options): return aot.jit(f, **options).lower(*args).compile()
    def error(f):
        try: f()
        except Exception as e: return f"{type(e).__name__}: {e}"
"""
#: name -> (an expression, what it is, or a text that it contains)
ROWS = {
    "devices": ("[len(topo.devices), topo.devices[0].platform, mesh.shape]", [8, "tpu", {"x": 2, "y": 4}]),
    "one device": ("compiled(lambda a: jnp.sin(a), A, in_shardings=one).memory_analysis().argument_size_in_bytes", 4096),
    "over the mesh": ("compiled(lambda a: a * 2, A, in_shardings=x).memory_analysis().argument_size_in_bytes", 2048),
    "shardings": ("str(compiled(lambda a: a.sum(0), A, in_shardings=y).output_shardings.spec)", "PartitionSpec('y',)"),
    "of the argument's type": ("str(compiled(lambda a: a + 1, S((8,), jnp.float32, sharding=x)).input_shardings[0][0].spec)",
                               "PartitionSpec('x',)"),
    "constraints": ("str(compiled(lambda a: lax.with_sharding_constraint(a, x), A).output_shardings.spec)", "PartitionSpec('x', None)"),
    "collectives": ("'all-reduce' in compiled(aot.shard_map(lambda a: lax.psum(a, 'x'), mesh=mesh, in_specs=P('x'), out_specs=P()), A)"
                    ".as_text()", True),
    "gradients": ("compiled(aot.grad(lambda w, a: ((a @ w) ** 2).mean()), S((128, 64), jnp.bfloat16), S((8, 128), jnp.bfloat16), "
                  "in_shardings=(y, x), donate_argnums=0).cost_analysis()['flops'] > 1e4", True),
    "platform": ("aot.jit(lambda a: lax.platform_dependent(a, cpu=jnp.sin, tpu=jnp.cos), in_shardings=one).lower(A).as_text()"
                 ".count('stablehlo.cosine')", 1),
    "platform of a mesh inside": ("aot.jit(aot.shard_map(lambda a: lax.platform_dependent(a, cpu=jnp.sin, tpu=jnp.cos), mesh=mesh, "
                                  "in_specs=P('x'), out_specs=P('x'))).lower(A).as_text().count('stablehlo.cosine')", 1),
    "linear algebra": ("compiled(jnp.linalg.cholesky, S((8, 8), jnp.float32), in_shardings=one).as_text().startswith('HloModule')", True),
    "keys": ("compiled(lambda k: aot.random.normal(k, (4,)), S((), aot.random.key(0).dtype), in_shardings=one).out_info.shape", [4]),
    "code": ("len(compiled(jnp.sin, A, in_shardings=one).runtime_executable().serialize()) > 1000", True),
    "no call": ("error(lambda: compiled(jnp.sin, A, in_shardings=one)(np.ones((8, 128), np.float32)))",
                "RuntimeError: the function was compiled for TPU v5 lite devices that are not here, and cannot be called. hint: "),
    "no arrays": ("error(lambda: aot.device_put(np.ones(8), x))", "RuntimeError: an array cannot be put on TPU v5 lite devices"),
    "no artifact": ("error(lambda: serialize_executable.serialize(compiled(jnp.sin, A, in_shardings=one)))", "hint: compiled.runtime"),
    "no callbacks": ("error(lambda: compiled(lambda a: aot.debug.print('{}', a), A, in_shardings=one))", "hint: remove debug prints"),
    "no such shape": ("error(lambda: topologies.get_topology_desc('v5e:3x7'))", "AotError: there is no topology v5e:3x7"),
    "no such mesh": ("error(lambda: topologies.make_mesh(topo, (3, 3), ('x', 'y')))", "ValueError: "),
}


@pytest.fixture(scope="module")
def found():
    rows = ", ".join(f"{name!r}: {expression}" for name, (expression, _) in ROWS.items())
    script = textwrap.dedent(HEAD) + f"print(json.dumps({{{rows}}}))\n"
    env = {**os.environ, "TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.skipif(targets.plugin_path("tpu") is None, reason="needs the extra tpu")
@pytest.mark.parametrize("name", ROWS)
def test_tpus_that_are_not_here(found, name):
    want = ROWS[name][1]
    assert want in found[name] if isinstance(want, str) else found[name] == want


def test_devices_that_are_here():
    assert topologies.get_attached_topology().devices == aot.devices()


@pytest.mark.parametrize("args, text", [
    (("v9:2x2", "tpu"), "unknown target 'tpu:v9:2x2'"), (("h100", "rocm"), "no topology for the platform 'rocm'"),
    (("v5e", "tpu"), "") if targets.plugin_path("tpu") else (("v5e", "tpu"), "libtpu is not installed"),
    (("h100", "cuda"), "") if targets.plugin_path("cuda") else (("h100", "cuda"), "jax-cuda12-plugin is not installed"),
])
def test_machines_that_cannot_be_described(args, text):
    if not text:
        pytest.skip("its plugin is installed")
    with pytest.raises(AotError, match=text):
        topologies.get_topology_desc(*args)
