"""High-level operations that the ONNX exporter recognises: they are found, equal XLA on special numbers too, and near misses stay."""
from __future__ import annotations

import math

import numpy as np
import pytest

import aot
from aot import lax, nn
from aot import numpy as jnp

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from aot.exporters import onnx as exporter
from aot.exporters.onnx.run import run

X = np.random.default_rng(0).standard_normal((4, 6, 16)).astype(np.float32)
SPECIAL = X.copy()
SPECIAL[0, 0, 0], SPECIAL[0, 1, 3], SPECIAL[1, 2], SPECIAL[2, 2, 5], SPECIAL[3, 0] = np.nan, np.inf, -np.inf, -80, 1e4
GAIN, BIAS = (np.random.default_rng(i).standard_normal(16).astype(np.float32) for i in (1, 2))
IMAGE = np.random.default_rng(3).standard_normal((2, 8, 9, 8)).astype(np.float32)
MARKED = IMAGE.copy()
MARKED[0, 0, 0, 0], MARKED[0, 1, 1, 0], MARKED[1, 3, 3, 2], MARKED[1, 5:, 5:, 1] = np.nan, 3, np.inf, -np.inf
KERNEL = np.random.default_rng(4).standard_normal((3, 3, 8, 16)).astype(np.float32)


def layer_norm(x, divide=False, square=True):
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred if square else jnp.abs(centred)).mean(-1, keepdims=True) + 1e-5
    return centred / jnp.sqrt(variance) if divide else centred * lax.rsqrt(variance)


def tanh_gelu(x, c=0.044715):
    return 0.5 * x * (1 + jnp.tanh(math.sqrt(2 / math.pi) * (x + c * x * x * x)))


def conv(x, b):
    return lax.conv_general_dilated(x, KERNEL, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) + b


def pool(x, init=-np.inf, op=lax.max, size=2, padding="VALID"):
    return lax.reduce_window(x, init, op, (1, size, size, 1), (1, 2, 2, 1), padding)


#: name, function, input, operators that must be there, operators that must not
FOUND = [
    ("softmax", nn.softmax, SPECIAL, ["Softmax"], ["Exp", "ReduceMax"]),
    ("softmax of the first axis", lambda x: nn.softmax(x, axis=0), SPECIAL, ["Softmax"], ["Exp"]),
    ("softmax by hand", lambda x: jnp.exp(x - x.max(-1, keepdims=True)) / jnp.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True),
     SPECIAL, ["Softmax"], ["Exp"]),
    ("softmax before a size of 1", lambda x: nn.softmax(x[..., None], axis=2), SPECIAL, ["Softmax"], ["Exp"]),
    ("log_softmax", nn.log_softmax, X, ["LogSoftmax"], ["Exp", "Log"]),
    ("layer norm", layer_norm, X, ["LayerNormalization"], ["Sqrt"]),
    ("layer norm by division", lambda x: layer_norm(x, True), X, ["LayerNormalization"], ["Sqrt"]),
    ("layer norm with gain and bias", lambda x: layer_norm(x) * GAIN + BIAS, X, ["LayerNormalization"], ["Sqrt", "Mul", "Add"]),
    ("layer norm with gain", lambda x: GAIN * layer_norm(x), X, ["LayerNormalization"], ["Sqrt", "Mul"]),
    ("gelu", lambda x: nn.gelu(x, approximate=False), X, ["Gelu"], ["Erf"]),
    ("gelu by erf", lambda x: 0.5 * x * (1 + lax.erf(x / math.sqrt(2))), X, ["Gelu"], ["Erf"]),
    ("gelu by tanh", tanh_gelu, X, ["Gelu"], ["Tanh"]),
    ("nn.gelu", nn.gelu, X, ["Gelu"], ["Tanh"]),
    ("relu", nn.relu, SPECIAL, ["Relu"], ["Max"]),
    ("bias of a convolution", lambda x: conv(x, BIAS), IMAGE, ["Conv"], ["Add"]),
    ("max pool after relu", lambda x: pool(nn.relu(x)), MARKED, ["MaxPool"], ["Slice"]),
    ("padded max pool after relu", lambda x: pool(nn.relu(x), size=3, padding="SAME"), MARKED, ["MaxPool"], ["Slice"]),
    ("sum pool", lambda x: pool(x, 0.0, lax.add), IMAGE, ["AveragePool"], ["Slice"]),
    ("padded sum pool", lambda x: pool(x, 0.0, lax.add, 3, "SAME"), IMAGE, ["AveragePool"], ["Slice"]),
    ("sine", jnp.sin, X, ["Sin"], []),
]
#: what looks alike and is something else
MISSED = [
    ("sum over another axis", lambda x: jnp.exp(x - x.max(-1, keepdims=True)) / jnp.exp(x - x.max(-1, keepdims=True)).sum(1, keepdims=True),
     SPECIAL, ["Exp"], ["Softmax"]),
    ("maximum over another axis", lambda x: jnp.exp(x - x.max(1, keepdims=True)) / jnp.exp(x - x.max(1, keepdims=True)).sum(-1, keepdims=True),
     X, ["Exp"], ["Softmax"]),
    ("minimum", lambda x: jnp.exp(x - x.min(-1, keepdims=True)) / jnp.exp(x - x.min(-1, keepdims=True)).sum(-1, keepdims=True),
     X, ["Exp"], ["Softmax"]),
    ("normalization of another axis", lambda x: (x - x.mean(1, keepdims=True)) * lax.rsqrt(((x - x.mean(1, keepdims=True)) ** 2)
     .mean(1, keepdims=True) + 1e-5), X, ["Sqrt"], ["LayerNormalization"]),
    ("mean deviation", lambda x: layer_norm(x, square=False), X, ["Sqrt"], ["LayerNormalization"]),
    ("another constant", lambda x: tanh_gelu(x, 0.05), X, ["Tanh"], ["Gelu"]),
    ("another share", lambda x: 0.6 * x * (1 + lax.erf(x / math.sqrt(2))), X, ["Erf"], ["Gelu"]),
    ("another threshold", lambda x: jnp.maximum(x, 0.1), SPECIAL, ["Max"], ["Relu"]),
    ("max pool of any numbers", pool, MARKED, ["Max"], ["MaxPool"]),
    ("a bias along another axis", lambda x: conv(x, jnp.arange(9.0)[:, None]), IMAGE, ["Conv", "Add"], []),
]


@pytest.mark.parametrize("name, f, x, there, absent", FOUND + MISSED, ids=[r[0] for r in FOUND + MISSED])
def test_patterns(name, f, x, there, absent):
    lowered = aot.jit(f).trace(x).lower()
    arrays = [*(np.asarray(c) for c in lowered.consts), x]
    made = exporter.export(lowered.text)
    operators = {n.op_type for n in made.model.graph.node}
    assert set(there) <= operators and not operators & set(absent), operators
    got, want = run(made, arrays)[0], np.asarray(lowered.compile()(x))
    assert got.dtype == want.dtype and (np.isnan(got) == np.isnan(want)).all()
    assert (np.isinf(got) == np.isinf(want)).all() and (got[np.isinf(want)] == want[np.isinf(want)]).all()
    finite = np.isfinite(want)
    assert np.abs(got[finite] - want[finite]).max(initial=0) <= 2e-5 * max(1, np.abs(want[finite]).max(initial=0))


def test_erfc_keeps_the_digits_of_small_results():
    x = np.linspace(-4, 9, 2000, dtype=np.float32)
    lowered = aot.jit(lax.erfc).trace(x).lower()
    got, want = run(exporter.export(lowered.text), [x])[0], np.asarray(lowered.compile()(x))
    assert np.abs(got / want - 1).max() < 2e-5
