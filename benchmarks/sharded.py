"""Time of one call of jitted functions over 8 CPU devices, and of lowering a program for 1,024 devices that are not here."""
import json
import os
import sys
import time

COUNT = 1024 if len(sys.argv) > 2 else 8
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={COUNT if sys.argv[1] == 'jax' else 8}"

import numpy as np

if sys.argv[1] == "aot":
    import aot as jax
    import aot.numpy as jnp
    from aot.partition import parse_mesh
    from aot.sharding import Mesh, NamedSharding
    from aot.sharding import PartitionSpec as P
else:
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P


def call(rounds=9, n=100):
    """Microseconds of the calling thread for a call that is waited for, the fastest of some rounds."""
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("data", "model"))
    x = jax.device_put(np.ones((64, 64), np.float32), NamedSharding(mesh, P("data")))
    w = jax.device_put(np.ones((64, 64), np.float32), NamedSharding(mesh, P(None, "model")))
    f = jax.jit(lambda x, w: jnp.tanh(x @ w))
    f(x, w).block_until_ready()
    times = []
    for _ in range(rounds):
        start = time.thread_time()
        for _ in range(n):
            f(x, w).block_until_ready()
        times.append(time.thread_time() - start)
    return min(times) / n * 1e6


def lower(devices, layers):
    """Milliseconds to trace and lower a chain of layers for a mesh of that many devices."""
    if sys.argv[1] == "aot":
        mesh = parse_mesh(f"data={devices // 8},model=8")
    else:
        mesh = Mesh(np.array(jax.devices()[:devices]).reshape(devices // 8, 8), ("data", "model"))
    x = jax.ShapeDtypeStruct((1024, 64), "float32", sharding=NamedSharding(mesh, P("data")))
    w = jax.ShapeDtypeStruct((64, 64), "float32", sharding=NamedSharding(mesh, P(None, "model")))

    def f(x, ws):
        for w in ws:
            x = jnp.tanh(x @ w)
        return x
    times = []
    for _ in range(5):
        start = time.perf_counter()
        jax.jit(lambda x, ws: f(x, ws)).lower(x, [w] * layers).as_text()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


if COUNT == 8:
    import subprocess
    more = subprocess.run([sys.executable, __file__, sys.argv[1], "lower"], check=True, capture_output=True, text=True).stdout
    print(json.dumps({"call": call(), **json.loads(more.splitlines()[-1])}))
else:
    print(json.dumps({"lower": lower(1024, 100), "lower_few": lower(8, 100), "lower_twice": lower(1024, 200)}))
