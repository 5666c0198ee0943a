"""`aot.nn` against real jax: values, dtypes, weak types and gradients."""
import numpy as np
import pytest

import aot
from aot import nn
from aot.config import override

SAMPLED = 4     # rows: one in 4, see conftest.py

jax = pytest.importorskip("jax")
jnp = jax.numpy

F = np.float32
X = np.array([-30.0, -4, -3, -1, -0.5, -1e-3, 0, 1e-3, 0.5, 1, 2, 3, 6, 30, 200], F)
INPUTS = {"f32": X, "bf16": X.astype(jnp.bfloat16), "f16": X.astype(np.float16),
          "i32": np.arange(-3, 4, dtype=np.int32),
          "2d": np.linspace(-3, 3, 12, dtype=F).reshape(3, 4), "scalar": 0.5, "int": 2, "f0": np.zeros((0, 3), F)}
FEW_ULPS = {"f32": 4e-6, "2d": 4e-6, "scalar": 1e-6, "int": 1e-6, "i32": 4e-6, "f0": 0}


def same(got, want, tol=0.0):
    got, want = [x if isinstance(x, tuple) else (x,) for x in (got, want)]
    assert len(got) == len(want)
    for g, w in zip(got, want):
        assert str(g.dtype) == str(w.dtype) and g.shape == w.shape
        assert g.weak_type == w.weak_type
        np.testing.assert_allclose(np.asarray(g).astype(np.complex128 if g.dtype.kind == "c" else np.float64),
                                   np.asarray(w).astype(np.complex128 if w.dtype.kind == "c" else np.float64),
                                   rtol=tol, atol=tol)


# ---- elementwise -----------------------------------------------------------------------------------------------------

#: name -> function of (nn, x)
ACTIVATIONS = {n: (lambda m, x, n=n: getattr(m, n)(x)) for n in (
    "relu relu6 identity sigmoid tanh softplus sparse_plus soft_sign silu swish mish log_sigmoid elu leaky_relu "
    "hard_tanh celu selu gelu squareplus sparse_sigmoid hard_sigmoid hard_silu hard_swish softmax log_softmax "
    "logsumexp logmeanexp standardize").split()}
ACTIVATIONS |= {
    "elu 2": lambda m, x: m.elu(x, 2.0), "celu 2": lambda m, x: m.celu(x, 2.0),
    "leaky 0.2": lambda m, x: m.leaky_relu(x, 0.2), "gelu exact": lambda m, x: m.gelu(x, False),
    "squareplus 2": lambda m, x: m.squareplus(x, 2.0)}


def result(f, *args):
    try:
        return f(*args)
    except Exception as e:
        return type(e)


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_values(name, kind):
    f, x = ACTIVATIONS[name], INPUTS[kind]
    want, got = result(f, jax.nn, x), result(f, nn, x)
    if isinstance(want, type):
        assert isinstance(got, type), f"jax refuses with {want}"
    else:
        same(got, want, FEW_ULPS.get(kind, 2e-2))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients(name):
    f = ACTIVATIONS[name]
    x = X if name not in ("logsumexp", "logmeanexp") else X / 10
    same(aot.vjp(lambda x: f(nn, x), x)[1](np.asarray(f(jax.nn, x)) * 0 + 1)[0],
         jax.vjp(lambda x: f(jax.nn, x), x)[1](f(jax.nn, x) * 0 + 1)[0], 1e-5)


@pytest.mark.parametrize("name", ["relu", "relu6", "log1mexp"])
def test_custom_derivatives_under_transforms(name):
    x = np.abs(X) + F(0.25) if name == "log1mexp" else X
    run = lambda m, f: (m.jvp(f, (x,), (x,))[1], m.vmap(m.grad(f))(x), m.jit(m.vmap(m.grad(f)))(x),
                        m.jvp(m.vmap(m.grad(f)), (x,), (x,))[1])
    same(run(aot, getattr(nn, name)), run(jax, getattr(jax.nn, name)), 1e-5)


@pytest.mark.parametrize("bad", [[1.0, 2.0], "text", None])
def test_arguments_that_are_no_arrays(bad):
    for name in ("relu", "silu", "softmax", "gelu", "logsumexp"):
        with pytest.raises(TypeError):
            getattr(nn, name)(bad)


def test_log1mexp():
    same(nn.log1mexp(np.array([1e-10, 0.1, 0.7, 5, 50], F)),
    jax.nn.log1mexp(np.array([1e-10, 0.1, 0.7, 5, 50], F)), 1e-6)


# ---- along axes ------------------------------------------------------------------------------------------------------

A = np.array([[0.5, -1, 2, 80], [-np.inf, 3, 3, 1], [1, 2, 3, 4]], F)
W = np.array([[True, False, True, True], [True, True, False, True], [False] * 4])
B = np.array([[1, -2, 0, 1], [2, 1, 1, 1], [-1, 0, 0, 0]], F)

ALONG_AXES = {
    "softmax 0": lambda m: m.softmax(A, 0), "softmax both": lambda m: m.softmax(A, (0, 1)),
    "softmax where": lambda m: m.softmax(A, where=W), "log_softmax 0": lambda m: m.log_softmax(A, 0),
    "log_softmax where": lambda m: m.log_softmax(A, where=W), "logsumexp 1": lambda m: m.logsumexp(A, 1),
    "logsumexp keep": lambda m: m.logsumexp(A, 0, keepdims=True),
    "logsumexp where": lambda m: m.logsumexp(A, 1, where=W),
    "logsumexp b": lambda m: m.logsumexp(A, 1, b=B),
    "logsumexp sign": lambda m: m.logsumexp(A, 1, b=B, return_sign=True),
    "logsumexp -inf": lambda m: m.logsumexp(np.full(3, -np.inf, F)),
    "logsumexp inf": lambda m: m.logsumexp(np.array([np.inf, 1], F)),
    "logsumexp complex": lambda m: m.logsumexp(A[2] + 1j * A[2]), "logsumexp all": lambda m: m.logsumexp(A, (0, 1)),
    "logsumexp complex sign": lambda m: m.logsumexp(A[2] + 1j * A[2], return_sign=True),
    "logmeanexp": lambda m: m.logmeanexp(A, 1),
    "logmeanexp where": lambda m: m.logmeanexp(A, 1, where=W, keepdims=True),
    "standardize 0": lambda m: m.standardize(A[[0, 2]], 0),
    "standardize stable": lambda m: m.standardize(A[[0, 2]], algorithm="stable"),
    "standardize where": lambda m: m.standardize(A[[0, 2]], where=W[:2]),
    "standardize mean": lambda m: m.standardize(A[[0, 2]], mean=1.0, variance=B[:2] ** 2), "glu": lambda m: m.glu(A),
    "glu 0": lambda m: m.glu(A[:2], 0),
    "one_hot": lambda m: m.one_hot(np.array([0, 2, -1, 4]), 4),
    "one_hot axis": lambda m: m.one_hot(np.array([[0, 2]]), 3, axis=1),
    "one_hot dtype": lambda m: m.one_hot(np.array([0, 2]), 3, dtype=jnp.bfloat16),
    "one_hot scalar": lambda m: m.one_hot(1, 3),
    "one_hot int": lambda m: m.one_hot(np.array([0, 2]), 3, dtype=np.int32),
    "one_hot float": lambda m: m.one_hot(np.array([0.0, 2]), 3),
}


@pytest.mark.parametrize("name", ALONG_AXES)
def test_along_axes(name):
    same(ALONG_AXES[name](nn), ALONG_AXES[name](jax.nn), 2e-6)


@pytest.mark.parametrize("name", ["softmax where", "log_softmax where", "logsumexp where", "logsumexp b", "softmax 0",
                                  "logmeanexp where", "standardize where", "glu"])
def test_gradients_along_axes(name):
    finite = np.where(np.isfinite(A), A, 0)
    table = {"softmax where": lambda m, a: m.softmax(a, where=W[:2]), "log_softmax where": lambda m, a: jnp_where(m, a),
             "logsumexp where": lambda m, a: m.logsumexp(a, 1, where=W[:2]), "softmax 0": lambda m, a: m.softmax(a, 0),
             "logsumexp b": lambda m, a: m.logsumexp(a, 1, b=np.abs(B[:2])), "glu": lambda m, a: m.glu(a),
             "logmeanexp where": lambda m, a: m.logmeanexp(a, 1, where=W[:2]),
             "standardize where": lambda m, a: m.standardize(a, where=W[:2])}
    f = table[name]
    same(aot.grad(lambda a: (f(nn, a) * f(nn, a)).sum())(finite[:2]),
         jax.grad(lambda a: (f(jax.nn, a) * f(jax.nn, a)).sum())(finite[:2]), 1e-5)


def jnp_where(m, a):
    package = aot if m is nn else jax
    return package.numpy.where(W[:2], m.log_softmax(a, where=W[:2]), 0)


def test_softmax_with_derivative_from_the_output():
    with jax.softmax_custom_jvp(True), override("softmax_custom_jvp", True):
        for where in (None, W[:2]):
            finite = np.where(np.isfinite(A), A, 0)[:2]
            run = lambda m: m.grad(lambda a: (m.nn.softmax(a, where=where) ** 2).sum())(finite)
            same(run(aot), run(jax), 1e-6)
            run = lambda m: m.hessian(lambda a: m.nn.softmax(a, where=where)[0, 0])(finite)
            same(run(aot), run(jax), 1e-6)


def test_one_hot_along_a_mapped_axis():
    run = lambda m: m.vmap(lambda x: m.nn.one_hot(x, 3, axis="i"), axis_name="i")(np.array([0, 1, 1]))
    same(run(aot), run(jax))


@pytest.mark.parametrize("f", [lambda: nn.glu(A[0, :3]), lambda: nn.standardize(A, algorithm="best")])
def test_errors(f):
    with pytest.raises((ValueError, AssertionError)):
        f()


# ---- attention -------------------------------------------------------------------------------------------------------

rng = np.random.default_rng(0)
Q, K, V = [rng.standard_normal(s, dtype=F) for s in ((2, 5, 4, 3), (2, 6, 2, 3), (2, 6, 2, 3))]
BIAS, MASK = rng.standard_normal((1, 4, 5, 6), dtype=F), rng.random((2, 1, 5, 6)) > 0.3
LENGTHS = {"query_seq_lengths": np.array([2, 5], np.int32), "key_value_seq_lengths": np.array([6, 3], np.int32)}

ATTENTION = {
    "plain": ((Q, K[:, :, [0, 0, 1, 1]], V[:, :, [0, 0, 1, 1]]), {}), "grouped": ((Q, K, V), {}),
    "multi-query": ((Q, K[:, :, :1], V[:, :, :1]), {}), "unbatched": ((Q[0], K[0], V[0]), {}),
    "bias": ((Q, K, V, BIAS), {}), "mask": ((Q, K, V, None, MASK), {}), "causal": ((Q, K, V), {"is_causal": True}),
    "window": ((Q, K, V), {"local_window_size": (2, 1)}), "window int": ((Q, K, V), {"local_window_size": 1}),
    "lengths": ((Q, K, V), LENGTHS), "scale": ((Q, K, V), {"scale": 0.3}),
    "all": ((Q, K, V, BIAS, MASK), {"is_causal": True, "scale": 0.5, **LENGTHS}),
    "residual": ((Q, K, V, BIAS), {"return_residual": True, "is_causal": True}),
    "residual unbatched": ((Q[0], K[0], V[0]), {"return_residual": True}),
    "bf16": (tuple(x.astype(jnp.bfloat16) for x in (Q, K, V)), {"is_causal": True}),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name):
    args, kw = ATTENTION[name]
    tol = 2e-2 if name == "bf16" else 5e-6
    same(nn.dot_product_attention(*args, **kw), jax.nn.dot_product_attention(*args, **kw), tol)
    if "residual" not in name and name != "bf16":
        run = lambda m: m.grad(lambda q, k, v: (m.nn.dot_product_attention(q, k, v, *args[3:], **kw) ** 2).sum(),
                               (0, 1, 2))(*args[:3])
        same(run(aot), run(jax), 2e-5)


BAD_ATTENTION = [((Q[..., :2], K, V), {}), ((Q[:, :, :3], K, V), {}), ((Q, K, V[:, :4]), {}),
                 ((Q, K, V, BIAS[..., :4]), {}),
                 ((Q, K, V, None, BIAS), {}), ((Q, K, V), {"query_seq_lengths": np.ones(3, np.int32)}),
                 ((Q, K, V), {"implementation": "fast"}), ((Q[0, 0], K, V), {})]


@pytest.mark.parametrize("i", range(len(BAD_ATTENTION)))
def test_attention_errors(i):
    args, kw = BAD_ATTENTION[i]
    with pytest.raises(ValueError, match="dot_product_attention"):
        nn.dot_product_attention(*args, **kw)


# ---- block-scaled products (jax has no CPU implementation; compared with the definition) -----------------------------

def test_scaled_matmul():
    a, b = rng.standard_normal((2, 3, 64), dtype=F), rng.standard_normal((2, 5, 64), dtype=F)
    sa, sb = 2.0 ** rng.integers(-2, 3, (2, 3, 2)), 2.0 ** rng.integers(-2, 3, (2, 5, 4))
    a8, b8 = [x.astype(jnp.float8_e4m3fn) for x in (a, b)]
    sa8, sb8 = [x.astype(jnp.float8_e8m0fnu) for x in (sa, sb)]
    want = np.einsum("bmk,bnk->bmn", a8.astype(F) * np.repeat(sa, 32, 2), b8.astype(F) * np.repeat(sb, 16, 2))
    got = nn.scaled_matmul(a8, b8, sa8, sb8)
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5)
    assert nn.scaled_matmul(a8, b8, sa8, sb8, np.float16).dtype == np.float16
    with pytest.raises(ValueError, match="scales"):
        nn.scaled_matmul(a8, b8, sa8[:, :, :1].repeat(3, 2), sb8)


@pytest.mark.parametrize("mode, tol", [("mxfp8", 0.15), ("nvfp4", 0.6)])
def test_scaled_dot_general_is_close_to_the_exact_product(mode, tol):
    x, y = rng.standard_normal((2, 32, 64), dtype=F), rng.standard_normal((32, 2, 64), dtype=F)
    configs = [nn.get_scaled_dot_general_config(mode)] * 3
    dims = (((2,), (2,)), ((0,), (1,)))
    f = lambda x, y, c: nn.scaled_dot_general(x, y, dims, configs=c)
    scale = np.sqrt(64)
    np.testing.assert_allclose(np.asarray(f(x, y, configs)), np.asarray(f(x, y, None)), atol=tol * scale)
    for i in (0, 1):
        got, want = [np.asarray(aot.grad(lambda *a, c=c: (f(*a, c) ** 2).sum(), i)(x, y)) for c in (configs, None)]
        assert np.corrcoef(got.ravel(), want.ravel())[0, 1] > 0.97
    config = jax.nn.get_scaled_dot_general_config(mode)
    assert (config.block_size, config.data_type, config.scale_type) == (
        configs[0].block_size, configs[0].data_type, configs[0].scale_type)
    with pytest.raises(ValueError):
        nn.get_scaled_dot_general_config("int3")


# ---- initializers ----------------------------------------------------------------------------------------------------

#: name -> (function of the module's initializers, shape)
INITIALIZERS = {
    "zeros": (lambda i: i.zeros, (2, 3)), "ones": (lambda i: i.ones, (2, 3)),
    "constant": (lambda i: i.constant(-7), (2, 3)),
    "constant array": (lambda i: i.constant(np.arange(3, dtype=F)), (2, 3)),
    "uniform": (lambda i: i.uniform(5.0), (2, 3)),
    "normal": (lambda i: i.normal(5.0), (2, 3)), "truncated_normal": (lambda i: i.truncated_normal(5.0), (2, 3)),
    "truncated bounds": (lambda i: i.truncated_normal(1.0, lower=-1, upper=0.5), (7,)),
    **{f"{name} {shape}": (lambda i, name=name: getattr(i, name)(), shape) for name in (
        "glorot_uniform", "glorot_normal", "lecun_uniform", "lecun_normal", "he_uniform", "he_normal", "xavier_uniform",
        "xavier_normal", "kaiming_uniform", "kaiming_normal") for shape in ((4, 3), (3, 3, 2, 5))},
    "axes": (lambda i: i.lecun_normal(in_axis=(0, 1), out_axis=2, batch_axis=3), (2, 3, 4, 5)),
    "fan_out": (lambda i: i.variance_scaling(2.0, "fan_out", "normal"), (4, 3)),
    "geo": (lambda i: i.variance_scaling(2.0, "fan_geo_avg", "uniform"), (4, 3)),
    "orthogonal": (lambda i: i.orthogonal(2.0), (4, 3)), "orthogonal wide": (lambda i: i.orthogonal(), (3, 5)),
    "orthogonal axis": (lambda i: i.orthogonal(column_axis=0), (3, 4, 2)),
    "delta_orthogonal": (lambda i: i.delta_orthogonal(), (3, 3, 2, 4)),
}


@pytest.mark.parametrize("name", INITIALIZERS)
def test_initializers(name):
    make, shape = INITIALIZERS[name]
    tol = 2e-6 if "orthogonal" in name else 3e-7
    same(make(nn.initializers)(aot.random.key(3), shape), make(jax.nn.initializers)(jax.random.key(3), shape), tol)
    if "orthogonal" not in name:
        same(make(nn.initializers)(aot.random.key(3), shape, jnp.bfloat16),
             make(jax.nn.initializers)(jax.random.key(3), shape, jnp.bfloat16), 1e-2)


@pytest.mark.parametrize("distribution", ["truncated_normal", "normal", "uniform"])
def test_complex_initializers(distribution):
    make = lambda m: m.nn.initializers.variance_scaling(1.0, "fan_in", distribution)(
        m.random.key(3), (3, 4), np.complex64)
    same(make(aot), make(jax), 2e-6)


@pytest.mark.parametrize("f", [
    lambda i: i.lecun_normal()(aot.random.key(0), (3,)), lambda i: i.orthogonal()(aot.random.key(0), (3,)),
    lambda i: i.variance_scaling(1.0, "fan", "normal")(aot.random.key(0), (3, 3)),
    lambda i: i.variance_scaling(1.0, "fan_in", "odd")(aot.random.key(0), (3, 3)),
    lambda i: i.delta_orthogonal()(aot.random.key(0), (3, 4, 2)),
    lambda i: i.delta_orthogonal()(aot.random.key(0), (3, 4))])
def test_initializer_errors(f):
    with pytest.raises(ValueError):
        f(nn.initializers)


def test_public_names():
    for ours, theirs in ((nn, jax.nn), (nn.initializers, jax.nn.initializers)):
        assert [n for n in dir(theirs) if not n.startswith("_") and not hasattr(ours, n)] == []
