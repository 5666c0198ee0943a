"""A network of flax, trained with optax: as it is written for jax.  `python -c 'import aot.as_jax, model; model.train()'`."""
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax


class Classifier(nn.Module):
    """Which of three shapes a picture of 16 x 16 shows: a disc, a square or a cross."""

    @nn.compact
    def __call__(self, x):
        for features in (8, 16):
            x = nn.relu(nn.Conv(features, (3, 3))(x))
            x = nn.max_pool(x, (2, 2), (2, 2))
        return nn.Dense(3)(x.reshape(x.shape[0], -1))


net = Classifier()


def predict(params, pictures):
    """Probabilities of the three shapes, f32[n, 3], for pictures f32[n, 16, 16, 1]."""
    return nn.softmax(net.apply(params, pictures))


def pictures(key, count):
    """(pictures, which shapes they show)."""
    which_key, place_key, noise_key = jax.random.split(key, 3)
    which = jax.random.randint(which_key, (count,), 0, 3)
    y, x = jnp.mgrid[:16, :16][:, None] - jax.random.uniform(place_key, (2, count, 1, 1), minval=6, maxval=10)
    shapes = jnp.stack([x ** 2 + y ** 2 < 16, jnp.maximum(abs(x), abs(y)) < 4, jnp.minimum(abs(x), abs(y)) < 1])
    drawn = jnp.take_along_axis(shapes, which[None, :, None, None], 0)[0]
    return (drawn + .3 * jax.random.normal(noise_key, drawn.shape))[..., None], which


def train(steps=150):
    """Train it, write params.npz, and print how many of 500 pictures it gets right."""
    params = net.init(jax.random.key(0), jnp.zeros((1, 16, 16, 1)))
    opt = optax.adam(3e-3)
    state = opt.init(params)

    @jax.jit
    def step(params, state, key):
        def loss(params):
            x, which = pictures(key, 64)
            return optax.softmax_cross_entropy_with_integer_labels(net.apply(params, x), which).mean()
        updates, state = opt.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state
    for i in range(steps):
        params, state = step(params, state, jax.random.key(i))
    x, which = pictures(jax.random.key(999), 500)
    np.savez("params.npz", **{jax.tree_util.keystr(path): v for path, v in jax.tree_util.tree_leaves_with_path(params)})
    print(f"right: {jnp.mean(predict(params, x).argmax(-1) == which):.0%}")
