"""Functions of aot.nn reach exporters by name: one operator where that is equal, the plain form elsewhere, XLA sees none of it."""
from __future__ import annotations

import numpy as np
import pytest

import aot
from aot import lax, mlir, nn

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from aot.exporters import onnx, stablehlo
from aot.exporters.onnx.run import run

X = np.random.default_rng(0).standard_normal((4, 6, 16)).astype(np.float32)
SPECIAL = X.copy()
SPECIAL[0, 0, :3], SPECIAL[0, 1, 3], SPECIAL[1, 2], SPECIAL[2, 2, 5], SPECIAL[3, 0] = (np.nan, 0, -0.0), np.inf, -np.inf, -80, 1e4

#: name, function, operator in ONNX from opset 24 on, operator in TFLite
ACTIVATIONS = [("relu6", nn.relu6, "Clip", "RELU6"), ("hard_tanh", nn.hard_tanh, "Clip", None),
               ("hard_swish", nn.hard_swish, "HardSwish", "HARD_SWISH"), ("hard_sigmoid", nn.hard_sigmoid, "HardSigmoid", None),
               ("leaky_relu", lambda x: nn.leaky_relu(x, 0.3), "LeakyRelu", "LEAKY_RELU"),
               ("leaky_relu, no finite slope", lambda x: nn.leaky_relu(x, np.inf), "LeakyRelu", None), ("elu", nn.elu, "Elu", "ELU"),
               ("elu of 2", lambda x: nn.elu(x, 2.0), "Elu", None), ("celu", lambda x: nn.celu(x, 0.7), "Celu", None),
               ("selu", nn.selu, "Selu", None), ("mish", nn.mish, "Mish", None), ("softplus", nn.softplus, "Softplus", None),
               ("soft_sign", nn.soft_sign, "Softsign", None), ("silu", nn.silu, "Swish", None), ("relu", nn.relu, "Relu", "RELU"),
               ("gelu", nn.gelu, "Gelu", "GELU"), ("exact gelu", lambda x: nn.gelu(x, False), "Gelu", "GELU"),
               ("softmax", nn.softmax, "Softmax", "SOFTMAX"), ("log_softmax", nn.log_softmax, "LogSoftmax", "LOG_SOFTMAX"),
               ("softmax of the first axis", lambda x: nn.softmax(x, 0), "Softmax", None),
               ("softmax of two axes", lambda x: nn.softmax(x, (1, 2)), None, None),
               ("masked softmax", lambda x: nn.softmax(x, where=X > 0), None, None),
               ("standardize", lambda x: nn.standardize(x, epsilon=0.01), "LayerNormalization", None),
               ("standardize of two axes", lambda x: nn.standardize(x, (1, 2), algorithm="stable"), "LayerNormalization", None),
               ("standardize of an outer axis", lambda x: nn.standardize(x, 1), None, None),
               ("softmax, mapped", lambda x: aot.vmap(nn.softmax)(x * 2), "Softmax", "SOFTMAX"),
               ("softmax, mapped twice", lambda x: aot.vmap(aot.vmap(nn.softmax), 1, 1)(x * 3), "Softmax", "SOFTMAX"),
               ("softmax of the first axis, mapped", aot.vmap(lambda x: nn.softmax(x, 0)), "Softmax", None),
               ("softmax, mapped over the last axis", aot.vmap(nn.softmax, 2, 2), "Softmax", None),
               ("softmax of all axes, mapped", aot.vmap(lambda x: nn.softmax(x, None)), None, None),
               ("gelu, mapped", lambda x: aot.vmap(nn.gelu, 1, 1)(x * 2), "Gelu", "GELU"), ("elu, mapped", lambda x: aot.vmap(nn.elu)(x * 2), "Elu", "ELU"),
               ("elu with mapped numbers", lambda x: aot.vmap(nn.elu)(x, np.ones(len(x), np.float32)), None, None),
               ("standardize, mapped", aot.vmap(nn.standardize), "LayerNormalization", None)]
HIGH_LEVEL = {r[2] for r in ACTIVATIONS} | {r[3] for r in ACTIVATIONS}


@pytest.fixture(scope="module")
def activations():
    """All functions in one program, its arguments, and what XLA computes."""
    fs = [f for _, f, _, _ in ACTIVATIONS]
    lowered = aot.jit(lambda x: [f(x) for f in fs]).trace(SPECIAL).lower()
    arrays = [*(np.asarray(c) for c in lowered.consts), SPECIAL]
    return lowered.text, arrays, [np.asarray(y) for y in lowered.compile()(SPECIAL)]


def operators_of_outputs(model):
    """The high-level operator behind each output of an ONNX model, or None."""
    nodes = {n.output[0]: n for n in model.graph.node}
    found = []
    for out in model.graph.output:
        node = nodes[out.name]
        while node.op_type in ("Identity", "Reshape"):
            node = nodes[node.input[0]]
        found.append(node.op_type if node.op_type in HIGH_LEVEL else None)
    return found


def tflite_operators(data):
    """The operators of a TFLite model, one for each node."""
    from ai_edge_litert import schema_py_generated as schema
    model = schema.ModelT.InitFromPackedBuf(data, 0)
    names = {v: k for k, v in vars(schema.BuiltinOperator).items() if isinstance(v, int)}
    return [names[model.operatorCodes[n.opcodeIndex].builtinCode] for n in model.subgraphs[0].operators]


def same_up_to_rounding(got, want, tolerance=2e-5):
    assert got.dtype == want.dtype and (np.isnan(got) == np.isnan(want)).all()
    assert (np.isinf(got) == np.isinf(want)).all() and (got[np.isinf(want)] == want[np.isinf(want)]).all()
    finite = np.isfinite(want)
    assert np.abs(got[finite] - want[finite]).max(initial=0) <= tolerance * max(1, np.abs(want[finite]).max(initial=0))


@pytest.mark.parametrize("opset", [21, 24])
def test_functions_of_nn_are_one_operator_of_onnx(activations, opset):
    text, arrays, wanted = activations
    made = onnx.export(text, opset=opset)
    since = {"Swish": 24}
    assert operators_of_outputs(made.model) == [o if opset >= since.get(o, 0) else None for _, _, o, _ in ACTIVATIONS]
    for got, want in zip(run(made, arrays), wanted, strict=True):
        same_up_to_rounding(got, want)


def test_functions_of_nn_are_one_operator_of_tflite(activations):
    pytest.importorskip("ai_edge_litert")
    from aot.exporters import tflite
    from aot.exporters.tflite.run import run
    text, arrays, wanted = activations
    made = tflite.export(text)
    for got, want in zip(run(made, arrays), wanted, strict=True):
        same_up_to_rounding(got, want)
    found = tflite_operators(made.data)
    for operator in {r[3] for r in ACTIVATIONS} - {None}:
        assert found.count(operator) >= sum(r[3] == operator for r in ACTIVATIONS), operator


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 3, 0)])
def test_arrays_without_elements(shape):
    pytest.importorskip("ai_edge_litert")
    from aot.exporters import tflite
    from aot.exporters.tflite.run import run as run_tflite
    x = np.zeros(shape, np.float32)
    lowered = aot.jit(lambda x: [f(x) for name, f, _, _ in ACTIVATIONS if "masked" not in name]).trace(x).lower()
    for made, runner in ((onnx.export(lowered.text), run), (tflite.export(lowered.text), run_tflite)):
        assert {(y.shape, y.dtype) for y in runner(made, [x])} == {(shape, x.dtype)}


# ---- attention -------------------------------------------------------------------------------------------------------

Q, K, V = (np.random.default_rng(i).standard_normal((2, n, h, 8)).astype(np.float32) for i, n, h in ((1, 5, 4), (2, 7, 2), (3, 7, 2)))
BIAS = np.random.default_rng(4).standard_normal((1, 4, 5, 7)).astype(np.float32)
MASK = np.random.default_rng(5).random((2, 1, 5, 7)) > 0.5
MASK[0, 0, 2] = False                                                       # a query that may attend to nothing
WHOLE, LONG = (np.random.default_rng(i).standard_normal((2, 7, 4, 8)).astype(np.float32) for i in (6, 7))
HIDDEN = K.copy()
HIDDEN[:, 6] = np.nan                                                       # a key that causal queries do not see

#: name, function, arguments, whether it is one operator from opset 23 on
ATTENTION = [("plain", lambda q, k: nn.dot_product_attention(q, k, k), (WHOLE, LONG), True),
             ("shared keys", nn.dot_product_attention, (Q, K, V), True),
             ("bias", lambda q, k, v: nn.dot_product_attention(q, k, v, BIAS, scale=0.7), (Q, K, V), True),
             ("causal", lambda q, k, v: nn.dot_product_attention(q, k, v, is_causal=True), (Q, HIDDEN, V), False),
             ("causal, more queries", lambda q, k: nn.dot_product_attention(q, k[:, :3], k[:, :3], is_causal=True), (WHOLE, LONG), False),
             ("mask", lambda q, k, v: nn.dot_product_attention(q, k, v, BIAS, MASK, is_causal=True), (Q, K, V), False),
             ("window", lambda q, k, v: nn.dot_product_attention(q, k, v, local_window_size=1), (Q, K, V), False),
             ("lengths", lambda q, k, v: nn.dot_product_attention(q, k, v, query_seq_lengths=np.array([5, 2]),
                                                                  key_value_seq_lengths=np.array([3, 7])), (Q, K, V), False)]


@pytest.mark.parametrize("name, f, args, is_operator", ATTENTION, ids=[r[0] for r in ATTENTION])
def test_attention(name, f, args, is_operator):
    from onnx.reference import ReferenceEvaluator
    lowered = aot.jit(f).trace(*args).lower()
    arrays = [*(np.asarray(c) for c in lowered.consts), *args]
    want = np.asarray(lowered.compile()(*args))
    for opset in (21, 23):
        made = onnx.export(lowered.text, opset=opset)
        assert ("Attention" in {n.op_type for n in made.model.graph.node}) == (is_operator and opset >= 23)
        same_up_to_rounding(run(made, arrays)[0], want)
        inputs = dict(zip([n for pair in made.inputs for n in pair], arrays))
        same_up_to_rounding(ReferenceEvaluator(made.model).run(None, inputs)[0], want)


# ---- what a mark must not change -----------------------------------------------------------------------------------------

def network(x):
    y = nn.gelu(nn.softmax(nn.standardize(x)) @ x[0].T) + nn.relu6(x).sum(-1, keepdims=True)
    return nn.dot_product_attention(x[:, :, None], x[:, :, None], x[:, :, None]).sum() + nn.log_softmax(y).sum()


@pytest.mark.parametrize("name, f", [
    ("gradient", aot.grad(network)), ("vmap", aot.vmap(lambda x: nn.elu(nn.softmax(x, 0)))),
    ("gradient of vmap", aot.grad(lambda x: aot.vmap(lambda r: nn.leaky_relu(nn.softmax(r, 0)).max())(x).sum())),
    ("loop", lambda x: lax.fori_loop(0, 3, lambda i, c: nn.softmax(nn.elu(c, 0.5), 1), x)),
    ("checkpoint", aot.grad(aot.checkpoint(network)))], ids=lambda v: v if isinstance(v, str) else "")
def test_transformed_functions(name, f):
    lowered = aot.jit(f).trace(X).lower()
    same_up_to_rounding(run(onnx.export(lowered.text, opset=24), [X])[0], np.asarray(lowered.compile()(X)), 2e-4)


def test_xla_sees_plain_calls():
    lowered = aot.jit(lambda x: nn.softmax(nn.gelu(x))).trace(X).lower()
    assert "stablehlo.composite" not in lowered.text and lowered.text.count("func.call") == 2
    portable = mlir.portable_bytecode(lowered.text)                         # marks survive in artifacts
    assert [n.op_type for n in onnx.export(portable).model.graph.node] == ["Gelu", "Softmax", "Identity"]


def test_a_captured_array_is_no_operand():
    """What a jitted function takes from around it is an input that the mark does not name."""
    lowered = aot.jit(lambda x: aot.vmap(lambda r: nn.softmax(r, where=x[0] > 0))(x)).trace(X).lower()
    same_up_to_rounding(run(onnx.export(lowered.text), [X])[0], np.asarray(lowered.compile()(X)))


def test_stablehlo_files_with_names(tmp_path):
    from aot.exporters import formats, source
    lowered = aot.jit(lambda x: nn.softmax(x)).trace(X).lower()
    formats.export(source.Source("f", lowered.text), "stablehlo", tmp_path / "f.mlirbc", composites=True)
    read = stablehlo.read(tmp_path / "f.mlirbc", composites={"aot.softmax"}).body.ops
    assert [op.attrs["name"] for op in read if op.name == "composite"] == ["aot.softmax"]
    assert "exponential" in [op.name for op in stablehlo.read(tmp_path / "f.mlirbc").body.ops]


FOREIGN = """
module @foreign {
  func.func public @main(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
    %0 = stablehlo.composite "odml.rms_norm" %x {composite_attributes = {epsilon = 1.0e-5 : f32}, decomposition = @inner} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %1 = stablehlo.composite "aot.softmax" %0 {decomposition = @double} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    return %1 : tensor<2x4xf32>
  }
  func.func private @inner(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
    %0 = stablehlo.composite "some.name" %x {decomposition = @double} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
  func.func private @double(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
    %0 = stablehlo.add %x, %x : tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
}
"""


def test_composites_from_elsewhere_are_their_plain_form():
    """Also one that bears a name of ours and no arguments by name."""
    assert (run(onnx.export(FOREIGN), [X[0, :2, :4]])[0] == 4 * X[0, :2, :4]).all()
