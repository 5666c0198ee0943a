"""ONNX models compute in onnxruntime what XLA computes: elementwise operations on edges, structure, own functions."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import aot
from aot import numpy as jnp
from aot import spec, tree_util
from aot.errors import AotError
from aot.exporters import formats, source, stablehlo
from aot.exporters.report import Refused
from tests.conformance.reference import run_xla
from tests.exported import FUNCTIONS
from tests.stablehlo_cases import CASES, DTYPES, inputs, module, tensor

SAMPLED = 2     # rows: one in 2, see conftest.py

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from aot.exporters import onnx as exporter
from aot.exporters.onnx.run import call, run, session

OPSETS = (21, 28)
#: bound on the difference from XLA, relative to the size of the number (elementwise) or of the largest one (others)
EXACT, ROUNDING = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 3e-6, "float64": 1e-12}, \
    {"float16": 2e-2, "bfloat16": 2e-2, "float32": 2e-5, "complex64": 2e-5, "float64": 1e-11, "complex128": 1e-11}


def assert_same(got, want, bounds, elementwise, what=""):
    assert (got.dtype, got.shape) == (want.dtype, want.shape), what
    if want.dtype.name not in bounds:
        wrong = got != want
    else:
        a, b, t = got.astype(complex), want.astype(complex), bounds[want.dtype.name]
        size = np.abs(b) + 1e-3 if elementwise else max(1, np.abs(b[np.isfinite(b)]).max(initial=0))
        with np.errstate(all="ignore"):
            wrong = ~((a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= t * size))
    assert not wrong.any(), f"{what}: {int(wrong.sum())} of {wrong.size} differ: {got[wrong][:3]} instead of {want[wrong][:3]}"


# ---- elementwise operations on edges -------------------------------------------------------------------------------

UNARY = {"float": "abs cbrt ceil cosine exponential exponential_minus_one floor log log_plus_one logistic negate "
                  "round_nearest_afz round_nearest_even rsqrt sign sine sqrt tan tanh",
         "int": "abs negate sign not popcnt count_leading_zeros", "uint": "negate not popcnt count_leading_zeros", "bool": "not"}
BINARY = {"float": "add subtract multiply divide remainder maximum minimum power atan2",
          "int": "add subtract multiply divide remainder maximum minimum and or xor shift_left shift_right_logical "
                 "shift_right_arithmetic",
          "bool": "add multiply maximum minimum and or xor"}
BINARY["uint"] = BINARY["int"]
REAL = [t for t in DTYPES if not t.startswith("complex")]


def kind(element):
    return "bool" if element == "i1" else "uint" if element.startswith("ui") else "int" if element[0] == "i" else "float"


def edges(element):
    dtype = np.dtype(DTYPES[element])
    if dtype.kind == "b":
        return np.array([True, False])
    if dtype.kind in "iu":
        info, bits = np.iinfo(dtype), dtype.itemsize * 8
        values = {info.min, info.min + 1, 0, 1, 2, 3, 7, bits - 1, bits, bits + 1, 100, info.max - 1, info.max}
        return np.array(sorted(values | ({-1, -2, -3, -7, -100} if dtype.kind == "i" else set())), dtype)
    info = ml_dtypes.finfo(dtype)
    values = [0., -0., 1, -1, .5, -.5, 2, -2, 3.5, -2.5, 1.5, 1e-3, -1e-3, 1e-5, .3, -.7, 7.25, 30, -30, 100, -100, 88, np.inf,
              -np.inf, np.nan, 1e4, -1e4, float(info.max), -float(info.max), float(info.smallest_normal) * 1.5]
    return np.array(values).astype(dtype)


def elementwise(element):
    """(module text, inputs, names): every operation on all edges, in one program."""
    e = edges(element)
    x, y = (np.ascontiguousarray(v.reshape(-1)) for v in np.meshgrid(e, e))
    one, two = tensor(f"{element}[{len(e)}]"), tensor(f"{element}[{len(x)}]")
    truth = tensor(f"i1[{len(x)}]")
    lines, outs, names = [], [], []

    def add(name, text, type):
        lines.append(f"  %r{len(outs)} = stablehlo.{text}")
        outs.append(type)
        names.append(name)
    for op in UNARY[kind(element)].split():
        add(op, f"{op} %e : {one}", one)
    if kind(element) == "float":
        add("is_finite", f"is_finite %e : ({one}) -> {tensor(f'i1[{len(e)}]')}", tensor(f"i1[{len(e)}]"))
    for op in BINARY[kind(element)].split():
        add(op, f"{op} %x, %y : {two}", two)
    order = {"float": ("FLOAT", "TOTALORDER"), "int": ("SIGNED",)}.get(kind(element), ("UNSIGNED",))
    for direction in "EQ NE LT LE GT GE".split():
        for how in order:
            add(f"compare {direction} {how}", f"compare {direction}, %x, %y, {how} : ({two}, {two}) -> {truth}", truth)
    for to in REAL:
        if to != element:
            result = tensor(f"{to}[{len(e)}]")
            add(f"convert to {to}", f"convert %e : ({one}) -> {result}", result)
    returned = f"  return {', '.join(f'%r{i}' for i in range(len(outs)))} : {', '.join(outs)}"
    text = "\n".join([f"module {{ func.func public @main(%e: {one}, %x: {two}, %y: {two}) -> ({', '.join(outs)}) {{",
                      *lines, returned, "} }"])
    return text, [e, x, y], names


@pytest.mark.parametrize("element", REAL)
def test_elementwise_operations_on_edges(element):
    text, arrays, names = elementwise(element)
    want = run_xla(text, arrays)
    for opset in OPSETS:
        for name, a, b in zip(names, run(exporter.export(text, opset=opset), arrays), want, strict=True):
            if "TOTALORDER" in name and opset < 26:          # signs of NaN need BitCast
                known = ~(np.isnan(arrays[1]) | np.isnan(arrays[2]))
                a, b = a[known], b[known]
            assert_same(a, b, EXACT, True, f"{name} of {element} at opset {opset}")


COMPLEX = "abs add subtract multiply divide power exponential exponential_minus_one log log_plus_one sqrt rsqrt cosine sine " \
          "tanh tan logistic negate sign"


@pytest.mark.parametrize("element", ["complex<f32>", "complex<f64>"])
def test_complex_functions(element):
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal((2, 400)) * np.exp(rng.standard_normal((2, 400))) for _ in range(2))
    arrays = [(v[0] + 1j * v[1]).astype(DTYPES[element]) for v in (x, y)]
    t, part = tensor(f"{element}[400]"), tensor(f"{element[8:11]}[400]")
    for op in COMPLEX.split():
        binary = op in ("add", "subtract", "multiply", "divide", "power")
        result = part if op == "abs" else t
        types = t if binary else f"({t}) -> {result}" if op == "abs" else t
        text = (f"module {{ func.func public @main(%x: {t}, %y: {t}) -> {result} {{\n"
                f"%r = stablehlo.{op} %x{', %y' if binary else ''} : {types}\n return %r : {result} }} }}")
        want = run_xla(text, arrays)[0]
        got = run(exporter.export(text), arrays)[0]
        single = element == "complex<f32>"
        error = np.abs(got - want) / np.maximum(np.abs(want), 1e-30)
        finite = np.isfinite(want)
        assert (np.isfinite(got) == finite).all(), op
        assert error[finite].max() < (2e-4 if single else 1e-11), (op, error[finite].max())


def test_integer_powers_wrap():
    text = module("i32[4] i32[4]", "i32[4]", "  %r = stablehlo.power %0, %1 : tensor<4xi32>\n  return %r : tensor<4xi32>")
    x, y = np.array([3, -2, -1, 5], np.int32), np.array([40, 31, -3, -1], np.int32)
    want = [int(np.int64(3 ** 40 % 2 ** 32)), -2 ** 31, -1, 0]
    assert run(exporter.export(text), [x, y])[0].view(np.uint32).tolist() == [w % 2 ** 32 for w in want]


SMALL = [("f8E4M3FN", 21), ("f8E5M2", 21), ("f8E4M3FNUZ", 21), ("i4", 21), ("ui4", 28), ("i2", 28), ("ui2", 28)]


@pytest.mark.parametrize("element, opset", SMALL)
def test_small_types_are_converted_added_and_moved(element, opset):
    text = """module { func.func public @main(%x: tensor<13xf32>) -> (tensor<13xf32>, tensor<13xTYPE>, tensor<13xf32>) {
 %a = stablehlo.convert %x : (tensor<13xf32>) -> tensor<13xTYPE>
 %b = stablehlo.convert %a : (tensor<13xTYPE>) -> tensor<13xf32>
 %c = stablehlo.add %a, %a : tensor<13xTYPE>
 %d = stablehlo.convert %c : (tensor<13xTYPE>) -> tensor<13xf32>
 %r = stablehlo.reverse %a, dims = [0] : tensor<13xTYPE>
 return %b, %r, %d : tensor<13xf32>, tensor<13xTYPE>, tensor<13xf32> } }""".replace("TYPE", element)
    x = np.linspace(-9, 9, 13, dtype=np.float32)
    for a, b in zip(run(exporter.export(text, opset=opset), [x]), run_xla(text, [x]), strict=True):
        assert a.dtype == b.dtype and a.astype(np.float32).tolist() == b.astype(np.float32).tolist()


# ---- structure -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name, arguments, results, body", CASES, ids=[c[0] for c in CASES])
def test_structural_operations(name, arguments, results, body):
    text, arrays = module(arguments, results, body), inputs(arguments)
    want = run_xla(text, arrays)
    for opset in OPSETS:
        for a, b in zip(run(exporter.export(text, opset=opset), arrays), want, strict=True):
            assert_same(a, b, ROUNDING, False, f"opset {opset}")


NANS = np.array([np.inf, np.nan, -np.nan, -np.inf, 3, np.nan, 0, -0.], np.float32)


def test_top_k_of_nan_is_in_total_order():
    text = module("f32[8]", "f32[8] i32[8]", """  %v, %i = chlo.top_k(%0, k = 8) : tensor<8xf32> -> (tensor<8xf32>, tensor<8xi32>)
  return %v, %i : tensor<8xf32>, tensor<8xi32>""")
    want = run_xla(text, [NANS])[1].tolist()
    assert run(exporter.export(text, opset=28), [NANS])[1].tolist() == want
    got = run(exporter.export(text, opset=21), [np.abs(NANS)])[1].tolist()          # no sign of NaN to be lost
    assert got == run_xla(text, [np.abs(NANS)])[1].tolist()


@pytest.mark.parametrize("opset", [18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28])
def test_every_opset_loads_and_computes(opset):
    text = aot.jit(lambda x: (jnp.fft.fft(x), jnp.cumprod(x), jnp.sort(x), x.max(), x.astype(int), x > 1)).lower(
        np.arange(256.0, dtype=np.float32)).text
    x = np.linspace(0.9, 1.1, 256).astype(np.float32)
    made = exporter.export(text, opset=opset)
    onnx.checker.check_model(made.model, full_check=True)
    assert made.model.opset_import[0].version == opset
    for a, b in zip(run(made, [x]), run_xla(text, [x]), strict=True):
        assert_same(a, b, ROUNDING, False)
    x = np.array([1.5, -2, 0, -0., np.inf, -np.inf, np.nan], np.float16)      # kernels of older operators take fewer types
    text = aot.jit(lambda x: (jnp.nextafter(x, x * 0), jnp.isinf(x), jnp.isnan(x), jnp.round(x), jnp.sign(x), jnp.maximum(x, 0),
                              jnp.cumsum(x[:4]), jnp.argmax(x), jnp.sort(x[:6]), x.sum())).lower(x).text
    for a, b in zip(run(exporter.export(text, opset=opset), [x]), run_xla(text, [x]), strict=True):
        assert_same(a, b, EXACT, False, f"opset {opset}")


@pytest.mark.parametrize("opset", [17, 29])
def test_other_opsets_are_refused(opset):
    with pytest.raises(AotError, match="18 to 28"):
        exporter.export(module("f32[2]", "f32[2]", "  return %0 : tensor<2xf32>"), opset=opset)


# ---- own functions -------------------------------------------------------------------------------------------------

def test_conformance_sample():
    """One public StableHLO program of each kind; all of them: make conformance FORMAT=onnx."""
    from tests.conformance import programs
    from tests.conformance.sweep import names_in, sweep
    folder = programs.prepared(programs.SAMPLE)
    outcomes = sweep(names_in(folder), folder, "onnx", workers=1)
    assert len(outcomes) > 90 and {name: o for name, o in outcomes.items() if o[0] != "right"} == {}


REFUSED = {"general_eigenvalues"}


def exported(f, args, **options):
    """(model, flat inputs, results by aot)"""
    lowered = aot.jit(f).trace(*args).lower()
    arrays = [np.asarray(x, a.dtype) for x, a in zip(tree_util.tree_leaves(args), lowered.in_avals)]
    weights = {i: (f"const{i}", np.asarray(v)) for i, v in enumerate(lowered.consts)}
    made = exporter.export(stablehlo.bind(stablehlo.read(lowered.text, keep=exporter.KEEP), weights), **options)
    return made, arrays, [np.asarray(x) for x in tree_util.tree_leaves(lowered.compile()(*args))]


@pytest.mark.parametrize("name, f, args", FUNCTIONS, ids=[f[0] for f in FUNCTIONS])
def test_own_functions(name, f, args):
    if name in REFUSED:
        with pytest.raises(Refused):
            exported(f, args)
        return
    made, arrays, want = exported(f, args)
    onnx.checker.check_model(made.model, full_check=True)
    for a, b in zip(run(made, arrays), want, strict=True):
        loose = {k: max(v, 2e-4 if "32" in k or "64" in k else v) for k, v in ROUNDING.items()}
        assert_same(a, b, loose | ({"float32": 1e-2} if "bfloat16" in name else {}), False)


JUDGED = ["mlp", "cnn", "attention", "softmax", "sgd_step", "cumulative", "take", "einsum", "fori_loop", "random_uniform"]


@pytest.mark.parametrize("name", JUDGED)
def test_the_reference_evaluator_agrees(name):
    from onnx.reference import ReferenceEvaluator
    f, args = next((f, a) for n, f, a in FUNCTIONS if n == name)
    made, arrays, _ = exported(f, args)
    names = [n for pair in made.inputs for n in pair]
    judge = ReferenceEvaluator(made.model).run(None, dict(zip(names, arrays)))
    for a, b in zip(run(made, arrays), judge, strict=True):
        assert_same(a, np.asarray(b), dict.fromkeys(ROUNDING, 0.0001), False)


def test_equal_programs_have_equal_bytes(tmp_path):
    code = ("import sys; from tests.test_onnx import exported, FUNCTIONS; import hashlib\n"
            "for n, f, a in FUNCTIONS:\n"
            "    if n in ('transformer', 'adam_step', 'gru', 'fft', 'solve'):\n"
            "        print(hashlib.sha256(exported(f, a)[0].data).hexdigest())")
    root = Path(__file__).resolve().parents[1]
    outs = [subprocess.run([sys.executable, "-c", code], cwd=root, env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": "."},
                           capture_output=True, text=True, check=True).stdout for seed in ("1", "2")]
    assert outs[0] == outs[1] and outs[0].count("\n") == 5


# ---- refusals ------------------------------------------------------------------------------------------------------

REFUSALS = [
    ("custom call", "f32[2]", "f32[2]", "  %r = stablehlo.custom_call @mine(%0) : (tensor<2xf32>) -> tensor<2xf32>\n"
     "  return %r : tensor<2xf32>", "stablehlo.custom_call @mine", "not part of the program"),
    ("random", "f32[] f32[]", "f32[2]", "  %s = stablehlo.constant dense<2> : tensor<1xi64>\n"
     "  %r = stablehlo.rng %0, %1, %s, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<2xf32>\n"
     "  return %r : tensor<2xf32>", "stablehlo.rng", "differ from run to run"),
    ("infeed", "f32[2]", "f32[2]", "  %k = stablehlo.create_token : !stablehlo.token\n"
     '  %r:2 = "stablehlo.infeed"(%k) <{infeed_config = "", layout = [[0]]}> : (!stablehlo.token) -> (tensor<2xf32>, '
     "!stablehlo.token)\n  return %r#0 : tensor<2xf32>", "stablehlo.infeed", "talks to the host"),
    ("a type that is too new", "i2[2]", "i2[2]", "  return %0 : tensor<2xi2>", "argument 0", "opset 21 has no type int2"),
    ("a type without kernels", "f4E2M1FN[2]", "f4E2M1FN[2]", "  return %0 : tensor<2xf4E2M1FN>", "argument 0", "computes no float4"),
    ("unknown sizes", "f32[?]", "f32[?]", "  return %0 : tensor<?xf32>", "argument 0", "size is not known"),
    ("order of complex numbers", "complex<f32>[2]", "i1[2]", "  %r = stablehlo.compare LT, %0, %0 : (tensor<2xcomplex<f32>>, "
     "tensor<2xcomplex<f32>>) -> tensor<2xi1>\n  return %r : tensor<2xi1>", "stablehlo.compare", "no order"),
]


@pytest.mark.parametrize("name, arguments, results, body, op, why", REFUSALS, ids=[r[0] for r in REFUSALS])
def test_what_onnx_cannot_express_is_refused(name, arguments, results, body, op, why):
    with pytest.raises(Refused) as e:
        exporter.export(module(arguments, results, body))
    assert e.value.rows[0].op == op and why in e.value.rows[0].why


def test_a_refusal_names_all_operations_and_the_users_lines():
    def f(x):
        return aot.lax.linalg.schur(x), jnp.linalg.eigvals(x), jnp.linalg.eigvals(x + 1)
    text = aot.jit(f).trace(np.eye(3, dtype=np.float32)).lower().located_text(root=str(Path(__file__).parent))
    with pytest.raises(Refused) as e:
        exporter.export(text)
    assert len({r.op for r in e.value.rows}) == 2 and sum(e.value.counts.values()) == 3
    assert all(r.where.startswith("test_onnx.py:") and r.hint for r in e.value.rows)


@pytest.mark.parametrize("text", ["", "module {", "func.func @f() { stablehlo.nope }", b"ML\xefR", b"\0\1\2"])
def test_what_is_no_program_is_one_clear_error(text):
    with pytest.raises(AotError):
        exporter.export(text)


# ---- files ---------------------------------------------------------------------------------------------------------

def test_names_come_from_the_program():
    def f(params, x):
        return {"sum": params["w"][0] + x, "all": [x, params["w"][1] * 1j]}
    program = aot.build.Program(f, [{"w": [spec.parse("f32[2]"), spec.parse("f32[2]")]}, spec.parse("f32[2]")])
    made = exporter.export(source.of_program(program).program(exporter.KEEP),
                           input_names=source.of_program(program).inputs, output_names=source.of_program(program).outputs)
    assert made.inputs == [("params.w.0",), ("params.w.1",), ("x",)]
    assert made.outputs == [("result.all.0",), ("result.all.1.real", "result.all.1.imag"), ("result.sum",)]
    assert [i.name for i in made.model.graph.input] == ["params.w.0", "params.w.1", "x"]
    assert made.renamed["result['all'][1]"] == ("result.all.1.real", "result.all.1.imag")


def test_weights_keep_their_names():
    program = aot.build.Program(lambda params, x: x @ params["w"] + params["b"], [spec.parse("f32[4,3]")],
                                weights={"params": {"w": np.eye(3, 2, dtype=np.float32), "b": np.arange(2, dtype=np.float32)}})
    made = exporter.export(source.of_program(program).program(exporter.KEEP))
    assert {i.name for i in made.model.graph.initializer} == {"params.w", "params.b"}


def test_large_arrays_go_to_a_file_of_their_own(tmp_path):
    table = np.arange(40_000, dtype=np.float32).reshape(200, 200)
    program = aot.build.Program(lambda w, x: x @ w, [spec.parse("f32[4,200]")], weights={"w": table})
    made = exporter.export(source.of_program(program).program(exporter.KEEP))
    path = str(tmp_path / "m.onnx")
    files = exporter.save(made, path, limit=1 << 24)
    assert [os.path.basename(f) for f in files] == ["m.onnx", "m.onnx.data"]
    assert os.path.getsize(files[0]) < 1000 < table.nbytes == os.path.getsize(files[1])
    onnx.checker.check_model(path, full_check=True)
    x = np.ones((4, 200), np.float32)
    assert_same(call(session(path), {made.inputs[0][0]: x})[0], x @ table, ROUNDING, False)


def test_models_that_are_no_single_message(tmp_path, monkeypatch):
    from aot.exporters.onnx import model
    monkeypatch.setattr(model, "EXTERNAL_LIMIT", model.EXTERNAL_SLACK + 1000)
    table = np.arange(3000, dtype=np.float32).reshape(100, 30)
    program = aot.build.Program(lambda w, x: x @ w, [spec.parse("f32[4,100]")], weights={"w": table})
    made = exporter.export(source.of_program(program).program(exporter.KEEP))
    assert set(made.arrays) == {"w"}
    with pytest.raises(AotError, match="above 2 GB"):
        made.data
    path = str(tmp_path / "m.onnx")
    assert len(made.save(path)) == 2
    x = np.ones((4, 100), np.float32)
    assert_same(call(session(path), {made.inputs[0][0]: x})[0], x @ table, ROUNDING, False)


def test_element_types_of_less_than_a_byte_are_packed():
    from aot.exporters.onnx.model import raw_bytes
    assert raw_bytes(np.array([1, -2, 3], ml_dtypes.int4)) == bytes([0xE1, 0x03])
    assert raw_bytes(np.array([1, 2, 3, 0, 1], ml_dtypes.uint2)) == bytes([0b00111001, 0b01])


def test_an_unknown_format_or_option_is_refused():
    made = source.Source("f", module("f32[2]", "f32[2]", "  return %0 : tensor<2xf32>"))
    with pytest.raises(AotError, match="unknown format"):
        formats.export(made, "pdf", "x.pdf")
    with pytest.raises(AotError, match="no option"):
        formats.export(made, "stablehlo", "x.mlirbc", opset=3)
