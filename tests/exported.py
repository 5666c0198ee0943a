"""Own functions for exporters: models, loops, sorting, random numbers, transforms, linear algebra, training steps, gradients.

A row is (name, function, arguments); arguments are arrays with fixed values, so that every format sees the same numbers.
"""
from __future__ import annotations

import numpy as np

import aot
from aot import lax, nn
from aot import numpy as jnp
from aot import scipy as jsp
from aot.experimental.layout import Layout, with_layout_constraint
from aot.experimental.ode import odeint

RNG = np.random.default_rng(0)


def f32(*shape, scale=1.0):
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def i32(high, *shape):
    return RNG.integers(0, high, shape).astype(np.int32)


X, V, SQUARE = f32(8, 16), f32(64), f32(6, 6)
SPD = (SQUARE @ SQUARE.T + 6 * np.eye(6)).astype(np.float32)
IMAGE = f32(2, 12, 12, 3)

# ---- models --------------------------------------------------------------------------------------------------------

MLP = {"w1": f32(16, 32, scale=.3), "b1": f32(32), "w2": f32(32, 4, scale=.3), "b2": f32(4)}
CNN = {"k1": f32(3, 3, 3, 8, scale=.2), "k2": f32(3, 3, 8, 8, scale=.2), "w": f32(72, 5, scale=.2)}
BLOCK = {"qkv": f32(16, 48, scale=.2), "o": f32(16, 16, scale=.2), "up": f32(16, 64, scale=.2), "down": f32(64, 16, scale=.2),
         "g1": np.ones(16, np.float32), "g2": np.ones(16, np.float32)}
GRU = {"w": f32(8, 24, scale=.3), "u": f32(8, 24, scale=.3), "b": f32(24, scale=.1)}
TOKENS = i32(20, 2, 5)
LABELS = i32(4, 8)


def mlp(p, x):
    return jnp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]


def conv(x, k, stride=1, padding="SAME", **kwargs):
    return lax.conv_general_dilated(x, k, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"), **kwargs)


def max_pool(x, n=2):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, n, n, 1), (1, n, n, 1), "VALID")


def cnn(p, x):
    x = max_pool(nn.relu(conv(x, p["k1"])))
    x = max_pool(nn.relu(conv(x, p["k2"])))
    return x.reshape(x.shape[0], -1) @ p["w"]


def layer_norm(x, gain):
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred ** 2).mean(-1, keepdims=True) + 1e-5) * gain


def attention(p, x, heads=4):
    b, t, d = x.shape
    q, k, v = jnp.split((x @ p["qkv"]).reshape(b, t, heads, 3 * d // heads), 3, -1)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(d // heads)
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -1e9)
    return jnp.einsum("bhqk,bkhd->bqhd", nn.softmax(scores), v).reshape(b, t, d) @ p["o"]


def block(p, x):
    x = x + attention(p, layer_norm(x, p["g1"]))
    return x + nn.gelu(layer_norm(x, p["g2"]) @ p["up"]) @ p["down"]


def transformer(p, table, tokens):
    x = table[tokens]
    for _ in range(2):
        x = block(p, x)
    return x @ table.T


def gru(p, xs):
    def step(h, x):
        r, z, n = jnp.split(x @ p["w"] + p["b"], 3, -1)
        hr, hz, hn = jnp.split(h @ p["u"], 3, -1)
        r, z = nn.sigmoid(r + hr), nn.sigmoid(z + hz)
        h = (1 - z) * jnp.tanh(n + r * hn) + z * h
        return h, h
    return lax.scan(step, jnp.zeros((xs.shape[1], 8), xs.dtype), xs)


def cross_entropy(p, x, y):
    return -jnp.take_along_axis(nn.log_softmax(mlp(p, x)), y[:, None], 1).mean()


def sgd(p, x, y):
    loss, g = aot.value_and_grad(cross_entropy)(p, x, y)
    return loss, {k: p[k] - 0.1 * g[k] for k in p}


def adam(p, m, v, x, y):
    loss, g = aot.value_and_grad(cross_entropy)(p, x, y)
    m = {k: 0.9 * m[k] + 0.1 * g[k] for k in p}
    v = {k: 0.999 * v[k] + 0.001 * g[k] ** 2 for k in p}
    return loss, {k: p[k] - 1e-3 * m[k] / (jnp.sqrt(v[k]) + 1e-8) for k in p}, m, v


def batch_norm(x):
    mean, var = jnp.mean(x, 0), jnp.var(x, 0)
    return (x - mean) / jnp.sqrt(var + 1e-5)


# ---- loops ---------------------------------------------------------------------------------------------------------

def collatz(n):
    def step(state):
        n, count = state
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1
    return lax.while_loop(lambda s: s[0] != 1, step, (n, 0))


def newton(x):
    return lax.fori_loop(0, 20, lambda i, y: 0.5 * (y + x / y), x)


def switched(i, x):
    return lax.switch(i, [jnp.sin, jnp.cos, lambda v: v * 2], x)


def branched(x):
    return lax.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, x)


def recurrence(x):
    return lax.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, x + 1))


# ---- random numbers ------------------------------------------------------------------------------------------------

KEY = np.array([1, 42], np.uint32)


def keyed(f):
    return lambda data: f(aot.random.wrap_key_data(data))


def dropout(k, x):
    keep = aot.random.bernoulli(aot.random.wrap_key_data(k), 0.8, x.shape)
    return jnp.where(keep, x / 0.8, 0)


# ---- the table -----------------------------------------------------------------------------------------------------

NOT_FINITE = np.resize(np.array([1, -1, np.inf, 2, -np.inf, -3, np.nan, 0, 3e38], np.float32), (1, 8, 8, 3))
STATE = {k: np.zeros_like(v) for k, v in MLP.items()}
FUNCTIONS = [
    ("mlp", mlp, (MLP, X)),
    ("mlp_gradient", aot.grad(cross_entropy), (MLP, X, LABELS)),
    ("mlp_bfloat16", lambda p, x: mlp({k: v.astype(jnp.bfloat16) for k, v in p.items()}, x.astype(jnp.bfloat16))
     .astype(jnp.float32), (MLP, X)),
    ("cnn", cnn, (CNN, IMAGE)),
    ("cnn_gradient", aot.grad(lambda p, x: (cnn(p, x) ** 2).mean()), (CNN, IMAGE)),
    ("cnn_strided", lambda x, k: conv(x, k, 2, "VALID"), (IMAGE, CNN["k1"])),
    ("cnn_dilated", lambda x, k: conv(x, k, rhs_dilation=(2, 2)), (IMAGE, CNN["k1"])),
    ("cnn_transposed", lambda x, k: lax.conv_transpose(x, k, (2, 2), "SAME"), (IMAGE, CNN["k1"])),
    ("cnn_depthwise", lambda x, k: conv(x, k, feature_group_count=3), (IMAGE, f32(3, 3, 1, 6))),
    ("average_pool", lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") / 9, (IMAGE,)),
    ("sum_pool_not_finite", lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), (NOT_FINITE,)),
    ("masks", lambda x: ((x > 0) * x, x * (x < 1).astype(x.dtype) / 2, (x > 0)[:, :1] * x, (x > 0) * (x + 1j)), (NOT_FINITE,)),
    ("max_pool_gradient", aot.grad(lambda x: (max_pool(x, 3) ** 2).sum()), (IMAGE,)),
    ("transformer", transformer, (BLOCK, f32(20, 16), TOKENS)),
    ("transformer_gradient", aot.grad(lambda p, t, x: transformer(p, t, x).mean()), (BLOCK, f32(20, 16), TOKENS)),
    ("attention", attention, (BLOCK, f32(2, 5, 16))),
    ("dot_product_attention", lambda q: nn.dot_product_attention(q, q + 1, q - 1), (f32(2, 6, 4, 8),)),
    ("layer_norm", lambda x: layer_norm(x, 1.5), (X,)),
    ("batch_norm", batch_norm, (X,)),
    ("softmax", lambda x: (nn.softmax(x), nn.log_softmax(x)), (X,)),
    ("activations", lambda x: (nn.gelu(x, approximate=False), nn.silu(x), nn.elu(x), nn.softplus(x), nn.selu(x)), (X,)),
    ("layout", lambda x: with_layout_constraint(x * 2, Layout((1, 0))) + 1, (X,)),
    ("gru", gru, (GRU, f32(7, 2, 8))),
    ("gru_gradient", aot.grad(lambda p, x: gru(p, x)[1].sum()), (GRU, f32(7, 2, 8))),
    ("sgd_step", sgd, (MLP, X, LABELS)),
    ("adam_step", adam, (MLP, STATE, STATE, X, LABELS)),
    ("second_derivative", aot.hessian(lambda x: (jnp.sin(x) * x ** 3).sum()), (f32(5),)),
    ("jacobian", aot.jacfwd(lambda x: jnp.tanh(x) * x[0]), (f32(5),)),
    ("per_example_gradient", aot.vmap(aot.grad(lambda x, w: jnp.tanh(x @ w).sum()), (None, 0)), (f32(4), f32(3, 4, 2))),
    # loops
    ("while_loop", collatz, (np.int32(27),)),
    ("fori_loop", newton, (np.abs(V) + 1,)),
    ("scan_sum", lambda x: lax.scan(lambda c, v: (c + v, c * v), 0.0, x), (V,)),
    ("switch", switched, (np.int32(2), V)),
    ("cond", branched, (V,)),
    ("associative_scan", recurrence, (V * .5,)),
    ("cumulative", lambda x: (jnp.cumsum(x, 0), jnp.cumprod(x, 1), lax.cummax(x, 0), lax.cumlogsumexp(x, 1)), (SQUARE,)),
    ("map", lambda x: lax.map(lambda r: jnp.sort(r)[::-1], x), (SQUARE,)),
    # sorting and indexing
    ("sort", lambda x: (jnp.sort(x), jnp.argsort(x), jnp.sort(x, axis=0)), (X,)),
    ("sort_descending", lambda x: jnp.argsort(x, descending=True), (X,)),
    ("sort_two_keys", lambda a, b: lax.sort((a, b, jnp.arange(a.size)), num_keys=2), (i32(4, 64), V)),
    ("top_k", lambda x: lax.top_k(x, 3), (X,)),
    ("argmax", lambda x: (x.argmax(), x.argmin(1), x.max(0), x.min(1)), (X,)),
    ("median", lambda x: (jnp.median(x), jnp.quantile(x, .3, 0), jnp.percentile(x, 80)), (X,)),
    ("searchsorted", lambda a, v: jnp.searchsorted(jnp.sort(a), v), (V, f32(10))),
    ("take", lambda x, i: (jnp.take(x, i, 0), x[i, i], jnp.take(x, i, 1, mode="clip")), (X, i32(8, 3))),
    ("indexed_update", lambda x, i: (x.at[i].add(1), x.at[i, i].set(2), x.at[i].max(0), x.at[i].mul(3)), (X, i32(8, 3))),
    ("segment_sum", lambda x, i: aot.ops.segment_sum(x, i, 5), (X, i32(5, 8))),
    ("one_hot", lambda i: nn.one_hot(i, 5), (LABELS,)),
    ("unique_sized", lambda i: jnp.unique(i, size=5, fill_value=-1), (LABELS,)),
    ("bincount", lambda i: jnp.bincount(i, length=5), (LABELS,)),
    ("dynamic_update", lambda x, i: lax.dynamic_update_slice(x, x[:2, :2] * 0, (i, i)), (X, np.int32(20))),
    ("roll_pad_flip", lambda x: (jnp.roll(x, 3, 1), jnp.pad(x, 2, mode="reflect"), x[::-1, ::2], jnp.tril(x)), (X,)),
    # random numbers
    ("random_uniform", keyed(lambda k: aot.random.uniform(k, (33,))), (KEY,)),
    ("random_normal", keyed(lambda k: aot.random.normal(k, (4, 8))), (KEY,)),
    ("random_integers", keyed(lambda k: (aot.random.randint(k, (9,), 0, 10), aot.random.bits(k, (5,)))), (KEY,)),
    ("random_permutation", keyed(lambda k: aot.random.permutation(k, 20)), (KEY,)),
    ("random_categorical", keyed(lambda k: aot.random.categorical(k, jnp.arange(5.), shape=(7,))), (KEY,)),
    ("dropout", dropout, (KEY, X)),
    # transforms
    ("fft", lambda x: jnp.fft.fft(x), (V,)),
    ("fft_odd_size", lambda x: jnp.abs(jnp.fft.fft(x[:45])), (V,)),
    ("rfft_and_back", lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * 2), (V,)),
    ("fft2", lambda x: jnp.fft.fft2(x).real, (SQUARE,)),
    ("convolve", lambda x, y: jnp.convolve(x, y, mode="same"), (V, f32(7))),
    # linear algebra
    ("einsum", lambda x: jnp.einsum("ij,kj,kl->il", x, x, x), (SQUARE,)),
    ("cholesky", lambda a: jnp.linalg.cholesky(a), (SPD,)),
    ("solve", lambda a, b: jnp.linalg.solve(a, b), (SPD, f32(6, 2))),
    ("triangular_solve", lambda a, b: jsp.linalg.solve_triangular(a, b, lower=True), (SPD, f32(6))),
    ("inverse_determinant", lambda a: (jnp.linalg.inv(a), jnp.linalg.slogdet(a)), (SPD,)),
    ("qr", lambda a: jnp.linalg.qr(a)[1], (SPD,)),
    ("eigenvalues", lambda a: jnp.linalg.eigvalsh(a), (SPD,)),
    ("singular_values", lambda a: jnp.linalg.svd(a, compute_uv=False), (SQUARE,)),
    ("general_eigenvalues", lambda a: jnp.linalg.eigvals(a), (SQUARE,)),
    ("matrix_power", lambda a: jnp.linalg.matrix_power(a / 10, 5), (SPD,)),
    ("expm", lambda a: jsp.linalg.expm(a / 10), (SPD,)),
    # numbers
    ("special_functions", lambda x: (jsp.special.erf(x), jsp.special.gammaln(jnp.abs(x)), jsp.special.digamma(jnp.abs(x) + .1),
                                     jsp.special.ndtr(x), jsp.special.logsumexp(x), jsp.special.expit(x)), (V,)),
    ("inverse_functions", lambda x: (jnp.arctan2(x, x + 1), jnp.arcsinh(x), jnp.arctanh(x / 4), jnp.arccos(x / 4)), (V,)),
    ("statistics", lambda x: (jnp.cov(x), jnp.std(x), jnp.var(x, 1), jnp.histogram(x, 4, (-1, 1))[0]), (X,)),
    ("integers", lambda i: (i // 3, i % 3, i ** 2, i << 2, i ^ 5, -i // 2, lax.population_count(i)), (i32(50, 9),)),
    ("complex_numbers", lambda x: jnp.abs(jnp.exp(1j * x) * (x + 2j)), (V,)),
    ("interpolate", lambda x: jnp.interp(x, jnp.linspace(-1, 1, 5), jnp.arange(5.)), (V,)),
    ("resize", lambda x: aot.image.resize(x, (2, 6, 20, 3), "linear"), (IMAGE,)),
    ("ode", lambda y: odeint(lambda y, t: -y, y, jnp.linspace(0., 1., 4)), (f32(3),)),
]
