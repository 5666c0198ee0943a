"""Time of one call of a tiny MLP, numpy to numpy: a loaded artifact against a jitted function, each with its weights."""
import json
import sys
from pathlib import Path

import numpy as np
from timing import best

FILE = Path(__file__).resolve().parents[1] / ".bench" / "loaded.aot"
LAYERS = [(8, 16), (16, 16), (16, 4)]
rng = np.random.default_rng(0)
params = [{"w": rng.standard_normal(s).astype(np.float32), "b": np.zeros(s[1], np.float32)} for s in LAYERS]
x = rng.standard_normal((4, 8)).astype(np.float32)


def mlp(jnp):
    def mlp(params, x):
        for layer in params[:-1]:
            x = jnp.tanh(x @ layer["w"] + layer["b"])
        return x @ params[-1]["w"] + params[-1]["b"]
    return mlp


if sys.argv[1] == "save":
    import aot.numpy as jnp
    from aot import build, spec
    FILE.parent.mkdir(exist_ok=True)
    build.save(FILE, [build.Program(mlp(jnp), [], {"x": spec.parse("f32[4,8]")}, weights={"params": params})])
elif sys.argv[1] == "aot":
    import subprocess

    subprocess.run([sys.executable, __file__, "save"], check=True)
    import aot_runtime
    f = aot_runtime.load(FILE, strict=True)["mlp"]
    print(json.dumps({"call": best(lambda: f(x))}))
else:
    import jax
    f, on_device = jax.jit(mlp(jax.numpy)), jax.device_put(params)
    print(json.dumps({"call": best(lambda: np.asarray(f(on_device, x)))}))
