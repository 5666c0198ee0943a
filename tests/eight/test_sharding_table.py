"""Operations x layouts against real jax: values, layouts of results, and for layers the collectives of the program.

Every row with AOT_ALL_ROWS=1 (`make conformance-sharding`), otherwise a sample in which each operation and layout occurs."""
import os
import re

import numpy as np
import pytest

import aot
import aot.numpy as jnp
from aot import lax
from aot.sharding import Mesh, NamedSharding
from aot.sharding import PartitionSpec as P

jax = pytest.importorskip("jax")
F = np.float32
ARR = np.random.default_rng(0).normal(size=(8, 16)).astype(F)
GRID = Mesh(np.array(aot.devices()).reshape(2, 4), ("x", "y"))
THEIRS = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y"))
SPECS = [P(), P("x"), P("y"), P("x", "y"), P("y", "x"), P(None, "x"), P(("x", "y")), P(None, ("y", "x"))]


#  name, function of (module, numpy, lax) -> function of one (8, 16) array
OPS = {
    "elementwise": lambda m, np_, lax: lambda x: 2 * np_.sin(x) + np_.exp(-x * x),
    "where": lambda m, np_, lax: lambda x: np_.where(x > 0, x, -x),
    "cast": lambda m, np_, lax: lambda x: (x * 10).astype("int32"),
    "sum of rows": lambda m, np_, lax: lambda x: x.sum(0),
    "sum of columns": lambda m, np_, lax: lambda x: x.sum(1),
    "max of all": lambda m, np_, lax: lambda x: x.max(),
    "mean, kept": lambda m, np_, lax: lambda x: x - x.mean(1, keepdims=True),
    "transpose": lambda m, np_, lax: lambda x: x.T,
    "gram": lambda m, np_, lax: lambda x: x @ x.T,
    "matmul by constant": lambda m, np_, lax: lambda x: x @ np.eye(16, 32, dtype=F),
    "einsum": lambda m, np_, lax: lambda x: np_.einsum("ij,kj->ik", x, np_.cos(x)),
    "batched dot": lambda m, np_, lax: lambda x: np_.einsum("bi,bj->bij", x, x),
    "softmax": lambda m, np_, lax: lambda x: m.nn.softmax(x, -1),
    "logsumexp": lambda m, np_, lax: lambda x: m.nn.logsumexp(x, 0),
    "cumsum": lambda m, np_, lax: lambda x: np_.cumsum(x, 1),
    "slice": lambda m, np_, lax: lambda x: x[1:5, ::2],
    "pad": lambda m, np_, lax: lambda x: np_.pad(x, ((0, 8), (0, 0))),
    "gather": lambda m, np_, lax: lambda x: x[np.array([3, 0, 7, 7])],
    "scatter": lambda m, np_, lax: lambda x: x.at[np.array([3, 0])].add(1.0),
    "dynamic slice": lambda m, np_, lax: lambda x: lax.dynamic_slice(x, (np_.int32(2), np_.int32(0)), (4, 16)),
    "concatenate": lambda m, np_, lax: lambda x: np_.concatenate([x, x]),
    "stack": lambda m, np_, lax: lambda x: np_.stack([x, -x], 1),
    "broadcast": lambda m, np_, lax: lambda x: np_.broadcast_to(x[:, None, :], (8, 4, 16)),
    "reshape": lambda m, np_, lax: lambda x: x.reshape(8, 4, 4),
    "merge": lambda m, np_, lax: lambda x: x.reshape(-1),
    "flip": lambda m, np_, lax: lambda x: x[:, ::-1],
    "sort": lambda m, np_, lax: lambda x: np_.sort(-x, 1),
    "argmax": lambda m, np_, lax: lambda x: np_.argmax(x, 0),
    "top k": lambda m, np_, lax: lambda x: lax.top_k(x, 3)[0],
    "scan": lambda m, np_, lax: lambda x: lax.scan(lambda c, r: (c + r, c * r), x[0], x)[1],
    "while": lambda m, np_, lax: lambda x: lax.fori_loop(0, 3, lambda i, c: c * 0.5 + 1, x),
    "cond": lambda m, np_, lax: lambda x: lax.cond(x[0, 0] > 0, lambda c: c * 2, lambda c: c - 1, x),
    "grad": lambda m, np_, lax: m.grad(lambda x: np_.tanh(x @ x.T).sum()),
    "vmap": lambda m, np_, lax: m.vmap(lambda r: np_.dot(r, r) * r),
    "convolution": lambda m, np_, lax: lambda x: lax.conv(x[:, None, :], np.ones((2, 1, 3), F), (1,), "SAME"),
    "window": lambda m, np_, lax: lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 4), (1, 4), "VALID"),
}
ALL = [(op, spec) for op in OPS for spec in SPECS]
SAMPLE = [row for i, row in enumerate(ALL) if i % len(SPECS) in ((i // len(SPECS)) % 8,)]
ROWS = ALL if os.environ.get("AOT_ALL_ROWS") else SAMPLE


def where(sharding, shape) -> dict:
    """device id -> (start, stop) of what it holds in each dimension."""
    return {d.id: [s.indices(n)[:2] for s, n in zip(i, shape)] for d, i in sharding.devices_indices_map(shape).items()}


@pytest.mark.parametrize("op, spec", ROWS, ids=str)
def test_values_and_layouts(op, spec):
    got = aot.jit(OPS[op](aot, jnp, lax))(aot.device_put(ARR, NamedSharding(GRID, spec)))
    want = jax.jit(OPS[op](jax, jax.numpy, jax.lax))(jax.device_put(ARR, jax.NamedSharding(THEIRS, jax.P(*spec))))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert got.dtype == want.dtype and where(got.sharding, got.shape) == where(want.sharding, want.shape)


# ---- layers --------------------------------------------------------------------------------------------------------------

def attention(np_, nn, q, k, v):
    scores = np_.einsum("bhqd,bhkd->bhqk", q, k) / 2.0
    return np_.einsum("bhqk,bhkd->bhqd", nn.softmax(scores, -1), v)


def norm(np_, x): return (x - x.mean(-1, keepdims=True)) / np_.sqrt(x.var(-1, keepdims=True) + 1e-5)


#  name: function of (module, numpy), shapes of its arguments, their specs
LAYERS = {
    "dense, data parallel": (lambda m, np_: lambda x, w: m.nn.relu(x @ w), [(8, 16), (16, 32)], [P("x"), P()]),
    "dense, columns": (lambda m, np_: lambda x, w: m.nn.relu(x @ w), [(8, 16), (16, 32)], [P("x"), P(None, "y")]),
    "dense, rows": (lambda m, np_: lambda x, w: m.nn.relu(x @ w), [(8, 16), (16, 32)], [P("x", "y"), P("y")]),
    "dense, weights gathered": (lambda m, np_: lambda x, w: m.nn.relu(x @ w), [(8, 16), (16, 32)], [P("x"), P("x", "y")]),
    "two dense layers": (lambda m, np_: lambda x, w, v: m.nn.relu(x @ w) @ v, [(8, 16), (16, 32), (32, 16)],
                         [P("x"), P(None, "y"), P("y")]),
    "its gradient": (lambda m, np_: m.grad(lambda w, v, x: (m.nn.relu(x @ w) @ v).sum(), (0, 1)),
                     [(16, 32), (32, 16), (8, 16)], [P(None, "y"), P("y"), P("x")]),
    "attention, heads split": (lambda m, np_: lambda q, k, v: attention(np_, m.nn, q, k, v), [(8, 4, 8, 4)] * 3,
                               [P("x", "y")] * 3),
    "attention, keys split": (lambda m, np_: lambda q, k, v: attention(np_, m.nn, q, k, v), [(8, 4, 8, 4)] * 3,
                              [P("x"), P("x", None, "y"), P("x", None, "y")]),
    "normalization": (lambda m, np_: lambda x: norm(np_, x), [(8, 16)], [P("x", "y")]),
    "normalization of whole rows": (lambda m, np_: lambda x: norm(np_, x), [(8, 16)], [P("x")]),
    "embedding": (lambda m, np_: lambda e, i: e[(i * 0).astype("int32")], [(32, 16), (8,)], [P("y"), P("x")]),
    "loss": (lambda m, np_: lambda x, w: -m.nn.log_softmax(x @ w)[:, 0].mean(), [(8, 16), (16, 32)], [P("x"), P(None, "y")]),
    "host input": (lambda m, np_: lambda x, w: x @ w, [(8, 16), (16, 32)], [P("x", "y"), None]),
}


def collectives(text: str) -> list[str]:
    return sorted(re.findall(r" (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(", text))


@pytest.mark.parametrize("layer, shapes, specs", LAYERS.values(), ids=LAYERS)
def test_layers_exchange_what_those_of_jax_do(layer, shapes, specs):
    values = [np.random.default_rng(1).normal(size=s).astype(F) for s in shapes]
    ours = aot.jit(layer(aot, jnp)).lower(*[x if s is None else aot.device_put(x, NamedSharding(GRID, s))
                                            for x, s in zip(values, specs)]).compile()
    theirs = jax.jit(layer(jax, jax.numpy)).lower(*[x if s is None else jax.device_put(
        x, jax.NamedSharding(THEIRS, jax.P(*s))) for x, s in zip(values, specs)]).compile()
    assert collectives(ours.as_text()) == collectives(theirs.as_text())


# ---- arrays on one of several devices ------------------------------------------------------------------------------------

BIG = np.arange(1600, dtype=F).reshape(40, 40)


def on(sh, m, *spec): return sh.NamedSharding(sh.Mesh(np.array(m.devices()).reshape(2, 4), ("x", "y")), sh.PartitionSpec(*spec))


#  name, function of (module, numpy, sharding, an array on device 3, one over all, one that is not committed) -> array
PLACES = {
    "jit": lambda m, np_, sh, one, all_, free: m.jit(lambda a: a * 2)(one),
    "eager": lambda m, np_, sh, one, all_, free: one + 1,
    "with a free one": lambda m, np_, sh, one, all_, free: m.jit(lambda a, b: a + b)(free, one),
    "with all": lambda m, np_, sh, one, all_, free: m.jit(lambda a, b: a + b)(one, all_),
    "with all, eager": lambda m, np_, sh, one, all_, free: one + all_,
    "two devices": lambda m, np_, sh, one, all_, free: one + m.device_put(BIG, m.devices()[5]),
    "captured": lambda m, np_, sh, one, all_, free: m.jit(lambda a: a + one)(free),
    "captured from all": lambda m, np_, sh, one, all_, free: m.jit(lambda a: a + all_)(free),
    "grad": lambda m, np_, sh, one, all_, free: m.grad(lambda a: (a * a).sum())(one),
    "scan": lambda m, np_, sh, one, all_, free: m.lax.scan(lambda c, r: (c + r, c), one[0], one)[1],
    "asked for arguments": lambda m, np_, sh, one, all_, free: m.jit(
        lambda a: a + 1, in_shardings=sh.SingleDeviceSharding(m.devices()[2]))(free),
    "asked for results": lambda m, np_, sh, one, all_, free: m.jit(
        lambda a: a + 1, out_shardings=sh.SingleDeviceSharding(m.devices()[2]))(free),
    "part of the devices": lambda m, np_, sh, one, all_, free: m.jit(lambda a: a * 2)(m.device_put(
        BIG, sh.NamedSharding(sh.Mesh(np.array(m.devices()[4:]), ("z",)), sh.PartitionSpec("z")))),
    "moved from all": lambda m, np_, sh, one, all_, free: m.device_put(all_, m.devices()[1]) * 2,
    "made there": lambda m, np_, sh, one, all_, free: np_.zeros(3, device=m.devices()[4]) + 1,
    "key": lambda m, np_, sh, one, all_, free: m.random.normal(m.device_put(m.random.key(0), m.devices()[3]), (8, 8)),
}


def placed(m, sh, use):
    one, all_ = m.device_put(BIG, m.devices()[3]), m.device_put(BIG, on(sh, m, "x", "y"))
    try:
        for _ in range(3):
            out = use(m, m.numpy, sh, one, all_, m.numpy.asarray(BIG))
    except ValueError as e:
        return "incompatible devices" in str(e)
    return sorted(d.id for d in out.sharding.device_set), np.asarray(out)


@pytest.mark.parametrize("use", PLACES.values(), ids=PLACES)
def test_computation_follows_data_to_one_device(use):
    got, want = placed(aot, aot.sharding, use), placed(jax, jax.sharding, use)
    if want is True:
        assert got is True
        return
    assert got[0] == want[0]
    np.testing.assert_allclose(got[1], want[1], rtol=1e-5)


def defaults(m, np_):
    f = m.jit(lambda x: x * 2)
    with m.default_device(m.devices()[6]):
        made = [np_.ones(3), np_.arange(3.) + 1, f(np.ones(3, F)), f(np.ones(3, F)), m.random.uniform(m.random.key(1), (2,)), m.device_put(1.)]
    made += [np_.ones(3), f(np.ones(3, F)), f(np_.ones(3))]
    return [([d.id for d in x.devices()], np.asarray(x)) for x in made]


def test_default_device():
    for (where_, got), (place, want) in zip(defaults(aot, jnp), defaults(jax, jax.numpy), strict=True):
        assert where_ == place and np.array_equal(got, want)
