"""A small transformer: next-token logits, and a training step."""
import aot
import aot.numpy as jnp
from aot import lax, nn

VOCABULARY, WIDTH, HEADS, LAYERS = 256, 64, 4, 2


def block(p, x):
    """One layer: causal attention, then a gated feed-forward network.  x: [length, width]"""
    length = x.shape[0]
    q, k, v = jnp.split((normalize(x) @ p["qkv"]).reshape(length, HEADS, -1), 3, axis=-1)
    scores = jnp.einsum("ihd,jhd->hij", q, k) / q.shape[-1] ** 0.5
    causal = jnp.tril(jnp.ones((length, length), bool))
    weights = nn.softmax(jnp.where(causal, scores, -1e9), axis=-1)
    x = x + jnp.einsum("hij,jhd->ihd", weights, v).reshape(length, WIDTH) @ p["out"]
    gate, up = jnp.split(normalize(x) @ p["up"], 2, axis=-1)
    return x + (nn.silu(gate) * up) @ p["down"]


def normalize(x):
    return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def logits(params, tokens):
    """tokens: i32[batch, length] -> f32[batch, length, vocabulary]"""
    def one(t):
        x = params["embedding"][t]
        for p in params["layers"]:
            x = block(p, x)
        return normalize(x) @ params["embedding"].T
    return aot.vmap(one)(tokens)


def loss(params, tokens):
    """Mean cross entropy of each next token."""
    logp = nn.log_softmax(logits(params, tokens[:, :-1]), axis=-1)
    return -jnp.mean(jnp.take_along_axis(logp, tokens[:, 1:, None], axis=-1))


def train_step(params, tokens):
    """One step of gradient descent -> (new parameters, loss)."""
    value, grads = aot.value_and_grad(loss)(params, tokens)
    return aot.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def parameters(seed=0):
    """Random parameters."""
    shapes = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, 8 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    first, *keys = aot.random.split(aot.random.key(seed), LAYERS + 1)

    def layer(key):
        return {name: aot.random.normal(k, shape) * 0.1
                for k, (name, shape) in zip(aot.random.split(key, len(shapes)), shapes.items())}
    return {"embedding": aot.random.normal(first, (VOCABULARY, WIDTH)) * 0.1, "layers": [layer(k) for k in keys]}


def types():
    """Arguments of `loss` and `train_step`, for aot.toml."""
    params = aot.eval_shape(parameters)
    return [params, aot.ShapeDtypeStruct((4, 33), jnp.int32)]
