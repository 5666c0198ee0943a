"""The C loader: process start to first result of a saved MLP against jax, and a call of a tiny one against the Python loader.

Builds aot-run with the system's compiler; the plugin is the one that the tests fetch from PyPI.
"""
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import startup

from tests import c_loader

FILES = startup.FILES
REPEAT, ROUNDS = 10_000, 5


def prepare():
    """Compile both models for the plugin, and write the inputs as .npy files, once."""
    import numpy as np

    import aot.numpy as jnp
    from aot import build
    startup.prepare("aot")
    with np.load(FILES / "aot.npz") as data:
        arrays = dict(data)
    x = arrays.pop("x")
    targets = ["cpu", f"pjrt:{c_loader.plugin()}"]
    build.save(FILES / "mlp_c.aot", [build.Program(startup.mlp(jnp), [arrays, x], name="mlp")], targets)
    rng = np.random.default_rng(0)
    tiny = {"w": rng.standard_normal((16, 32)).astype("f"), "v": rng.standard_normal((32, 4)).astype("f")}
    x_tiny = rng.standard_normal((8, 16)).astype("f")
    program = build.Program(tiny_mlp, [], {"x": x_tiny}, weights={"params": tiny}, name="tiny")
    build.save(FILES / "tiny.aot", [program], targets)
    for i, a in enumerate([*(arrays[k] for k in sorted(arrays)), x]):
        np.save(FILES / f"mlp.{i}.npy", a)
    np.save(FILES / "tiny.npy", x_tiny)
    c_loader.install(FILES / "c")


def tiny_mlp(params, x):
    import aot.numpy as jnp
    return jnp.tanh(x @ params["w"]) @ params["v"]


def aot_run(*arguments):
    """Milliseconds from start to end of a process, its output, and its peak memory in MiB."""
    command = [FILES / "c" / "bin" / "aot-run", *arguments]
    start = time.perf_counter()
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=c_loader.QUIET, check=True)
    return (time.perf_counter() - start) * 1e3, done.stdout, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def ours():
    plugin = ["--plugin", c_loader.plugin(), "--strict"]
    inputs = [FILES / f"mlp.{i}.npy" for i in range(7)]
    first, _, memory = aot_run(FILES / "mlp_c.aot", "mlp", *plugin, *inputs, "-o", FILES / "out")
    calls = [float(aot_run(FILES / "tiny.aot", "tiny", *plugin, FILES / "tiny.npy", "--repeat", REPEAT)[1].split()[0])
             for _ in range(ROUNDS)]
    return {"first_result": first, "peak_memory": memory, "call": min(calls)}


def theirs():
    """jax for the start, the Python loader for the calls."""
    env = {**os.environ, "BENCH_START": repr(time.clock_gettime(time.CLOCK_MONOTONIC))}
    done = subprocess.run([sys.executable, HERE / "startup.py", "jax"], env=env, capture_output=True, text=True, check=True)
    return {**json.loads(done.stdout.splitlines()[-1]), "call": python_call()}


def python_call():
    import numpy as np

    import aot_runtime
    f, x = aot_runtime.load(FILES / "tiny.aot", strict=True)["tiny"], np.load(FILES / "tiny.npy")
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(REPEAT):
            f(x)
        best = min(best, (time.perf_counter() - start) / REPEAT)
    return best * 1e6


if __name__ == "__main__":
    if not (FILES / "c" / "bin" / "aot-run").exists():
        prepare()
    print(json.dumps(ours() if sys.argv[1] == "aot" else theirs()))
