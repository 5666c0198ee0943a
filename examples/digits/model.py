"""A classifier of 8x8 images of handwritten digits: two hidden layers, trained with Adam.  Pure functions only."""
import aot
import aot.numpy as jnp

SIZES = (64, 128, 64, 10)


def init(key):
    """Parameters {"w0": f32[64,128], "b0": f32[128], ...}."""
    params = {}
    for i, (n, m) in enumerate(zip(SIZES, SIZES[1:])):
        key, sub = aot.random.split(key)
        params[f"w{i}"] = aot.random.normal(sub, (n, m)) * (2 / n) ** 0.5
        params[f"b{i}"] = jnp.zeros(m)
    return params


def logits(params, x):
    """x: f32[n,64] with values from 0 to 16 -> f32[n,10]"""
    h = x / 16
    for i in range(len(SIZES) - 1):
        h = h @ params[f"w{i}"] + params[f"b{i}"]
        if i < len(SIZES) - 2:
            h = aot.nn.relu(h)
    return h


def predict(params, x):
    """The digit and its probability for each image: {"digit": i32[n], "probability": f32[n]}."""
    p = aot.nn.softmax(logits(params, x))
    return {"digit": jnp.argmax(p, axis=1), "probability": jnp.max(p, axis=1)}


def loss(params, x, labels):
    """Mean cross entropy."""
    log_p = aot.nn.log_softmax(logits(params, x))
    return -jnp.mean(jnp.sum(log_p * aot.nn.one_hot(labels, 10), axis=1))


def adam(params, state, x, labels, rate=0.003, b1=0.9, b2=0.999):
    """One training step; returns (params, state, loss).  state: (step, first moments, second moments)."""
    value, grads = aot.value_and_grad(loss)(params, x, labels)
    step, m, v = state
    step = step + 1
    m = aot.tree.map(lambda m, g: b1 * m + (1 - b1) * g, m, grads)
    v = aot.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, v, grads)
    scale = rate * jnp.sqrt(1 - b2 ** step) / (1 - b1 ** step)
    params = aot.tree.map(lambda p, m, v: p - scale * m / (jnp.sqrt(v) + 1e-8), params, m, v)
    return params, (step, m, v), value
