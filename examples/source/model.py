"""A filter bank and a small network that tells tones apart: what a microcontroller might run on 256 samples of a microphone."""
import numpy as np

import aot
import aot.numpy as jnp

SAMPLES, RATE, TONES = 256, 8000.0, (440.0, 660.0, 880.0, 1320.0)


def features(x):
    """The logarithm of the energy in 16 bands of the spectrum, f32[.., 256] -> f32[.., 16]."""
    spectrum = jnp.abs(jnp.fft.rfft(x * jnp.hanning(SAMPLES)))[..., :128]
    return jnp.log(jnp.sum(spectrum.reshape(*x.shape[:-1], 16, 8) ** 2, axis=-1) + 1e-3)


def scores(params, x):
    h = jnp.tanh(features(x) @ params["w1"] + params["b1"])
    return h @ params["w2"] + params["b2"]


def predict(params, x):
    """The most likely tone, and how likely each one is: f32[256] -> i32[], f32[4]."""
    y = scores(params, x)
    return jnp.argmax(y), aot.nn.softmax(y)


def recordings(rng, n):
    """Tones with noise, and which ones they are."""
    labels = rng.integers(0, len(TONES), n)
    t = np.arange(SAMPLES) / RATE
    x = np.sin(2 * np.pi * np.array(TONES)[labels, None] * t + rng.uniform(0, 6, (n, 1)))
    x += rng.uniform(0, 0.7, (n, 1)) * rng.normal(0, 1, (n, SAMPLES))
    return x.astype(np.float32), labels


def train(path):
    """Write trained parameters."""
    rng = np.random.default_rng(0)
    params = {"w1": rng.normal(0, 0.3, (16, 24)), "b1": np.zeros(24), "w2": rng.normal(0, 0.3, (24, 4)), "b2": np.zeros(4)}
    params = {k: jnp.asarray(v, jnp.float32) for k, v in params.items()}
    x, labels = recordings(rng, 512)

    def loss(p):
        return -jnp.mean(jnp.sum(aot.nn.log_softmax(scores(p, x)) * aot.nn.one_hot(labels, len(TONES)), axis=-1))

    step = aot.jit(lambda p: aot.tree_util.tree_map(lambda w, g: w - 0.1 * g, p, aot.grad(loss)(p)))
    for _ in range(500):
        params = step(params)
    np.savez(path, **{k: np.asarray(v) for k, v in params.items()})


if __name__ == "__main__":
    train("params.npz")
