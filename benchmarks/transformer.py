"""Trace and lower the gradient of an unrolled 24-layer transformer to a verified StableHLO module."""
import json
import sys
import time

LAYERS, HEADS, WIDTH, LENGTH, BATCH, VOCABULARY = 24, 4, 64, 32, 2, 256

if sys.argv[1] == "aot":
    import aot as jax
    import aot.lax as lax
    import aot.nn as nn
    import aot.numpy as jnp
else:
    import jax
    import jax.lax as lax
    import jax.nn as nn
    import jax.numpy as jnp


def norm(x, gain, bias):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * gain + bias


def split(x):
    return x.reshape(BATCH, LENGTH, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)


def attention(p, x):
    q, k, v = split(x @ p["q"]), split(x @ p["k"]), split(x @ p["v"])
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / (WIDTH // HEADS) ** 0.5
    mask = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
    weights = nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
    out = jnp.einsum("bhqk,bhkd->bhqd", weights, v)
    return out.transpose(0, 2, 1, 3).reshape(BATCH, LENGTH, WIDTH) @ p["o"]


def block(p, x):
    x = x + attention(p, norm(x, p["g1"], p["b1"]))
    return x + nn.relu(norm(x, p["g2"], p["b2"]) @ p["up"]) @ p["down"]


def loss(params, tokens):
    x = params["embed"][tokens]
    for p in params["layers"]:
        x = block(p, x)
    log_p = nn.log_softmax(x @ params["embed"].T)
    return -jnp.mean(jnp.take_along_axis(log_p[:, :-1], tokens[:, 1:, None], axis=-1))


def specs():
    def f32(*shape): return jax.ShapeDtypeStruct(shape, "float32")
    w = WIDTH
    layer = {**{k: f32(w, w) for k in "qkvo"}, **{k: f32(w) for k in ("g1", "b1", "g2", "b2")},
             "up": f32(w, 4 * w), "down": f32(4 * w, w)}
    return ({"embed": f32(VOCABULARY, w), "layers": [layer] * LAYERS},
            jax.ShapeDtypeStruct((BATCH, LENGTH), "int32"))


def run():
    """Seconds for one trace and lowering of a function that nothing has been cached for."""
    args = specs()
    start = time.perf_counter()
    lowered = jax.jit(lambda params, tokens: jax.grad(loss)(params, tokens)).trace(*args).lower()
    lowered.compiler_ir("stablehlo")  # a parsed and verified MLIR module on both sides
    return time.perf_counter() - start


def equations():
    jaxpr = jax.make_jaxpr(jax.grad(loss))(*specs())
    return len(jaxpr.eqns)


if __name__ == "__main__":
    print(json.dumps({"lower": run() * 1e3, "again": run() * 1e3, "equations": equations()}))
