"""Process start to first result, and peak memory, of a saved 3-layer MLP: a serialized executable on both sides."""
import json
import os
import sys
import time
from pathlib import Path

FILES = Path(__file__).resolve().parents[1] / ".bench"
LAYERS = [(784, 512), (512, 512), (512, 10)]


def prepare(side):
    """Compile and save, once."""
    import numpy as np
    FILES.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    params = {f"w{i}": (rng.standard_normal(s) * 0.05).astype(np.float32) for i, s in enumerate(LAYERS)}
    params |= {f"b{i}": np.zeros(s[1], np.float32) for i, s in enumerate(LAYERS)}
    x = rng.standard_normal((32, 784)).astype(np.float32)
    np.savez(FILES / f"{side}.npz", x=x, **params)
    if side == "aot":
        import aot.numpy as jnp
        from aot import build
        build.save(FILES / "mlp.aot", [build.Program(mlp(jnp), [params, x], name="mlp")])
    else:
        import pickle

        import jax
        import jax.numpy as jnp
        from jax.experimental import serialize_executable
        compiled = jax.jit(mlp(jnp)).lower(params, x).compile()
        (FILES / "mlp.pickle").write_bytes(pickle.dumps(serialize_executable.serialize(compiled)))


def mlp(jnp):
    def mlp(params, x):
        for i in range(len(LAYERS) - 1):
            x = jnp.tanh(x @ params[f"w{i}"] + params[f"b{i}"])
        return x @ params["w2"] + params["b2"]
    return mlp


def load(side):
    if side == "aot":
        import aot_runtime
        return aot_runtime.load(FILES / "mlp.aot", strict=True)["mlp"]
    import pickle

    from jax.experimental import serialize_executable
    return serialize_executable.deserialize_and_load(*pickle.loads((FILES / "mlp.pickle").read_bytes()))


def main(side):
    import numpy as np
    with np.load(FILES / f"{side}.npz") as data:
        arrays = dict(data)
    x = arrays.pop("x")
    y = np.asarray(load(side)(arrays, x))
    assert y.shape == (32, 10) and np.isfinite(y).all()
    done = time.clock_gettime(time.CLOCK_MONOTONIC)
    with open("/proc/self/status") as f:
        peak = next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))
    print(json.dumps({"first_result": (done - float(os.environ["BENCH_START"])) * 1e3, "peak_memory": peak / 1024}))


if __name__ == "__main__":
    if not (FILES / f"{sys.argv[1]}.npz").exists():
        prepare(sys.argv[1])
        os.execv(sys.executable, [sys.executable, *sys.argv])
    main(sys.argv[1])
