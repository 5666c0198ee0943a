"""A small classifier, to be compiled for a PJRT plugin and run from C and C++."""
import numpy as np

import aot
import aot.numpy as jnp


def predict(params, x):
    """x: f32[8,16] -> class probabilities f32[8,4]"""
    hidden = jnp.tanh(x @ params["w0"] + params["b0"])
    return aot.nn.softmax(hidden @ params["w1"] + params["b1"])


def weights():
    """What training would give; written to params.npz by `make`."""
    rng = np.random.default_rng(0)
    return {"w0": rng.standard_normal((16, 32)).astype("f"), "b0": np.zeros(32, "f"),
            "w1": rng.standard_normal((32, 4)).astype("f"), "b1": np.zeros(4, "f")}


if __name__ == "__main__":
    np.savez("params.npz", **weights())
