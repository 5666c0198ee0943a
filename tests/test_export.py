"""aot export and aot verify --against: files of other formats, compared with XLA in their runtimes."""
from __future__ import annotations

import json
import os
import textwrap

import numpy as np
import pytest

from aot.cli import main
from aot.errors import AotError
from aot.exporters import formats, report_page, source, verify
from tests.stablehlo_cases import module

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

MODEL = """
import aot
from aot import lax, nn
from aot import numpy as jnp

def predict(params, x):
    return {"label": x @ params["w"] + params["b"], "wave": jnp.fft.fft(x)}

def spectrum(x):
    a = jnp.linalg.eigvals(x)
    return a + lax.linalg.schur(x)[0]

def mean(x):
    return (x - x.mean(0)) / (1 + x.std(0)), x[:, 0], jnp.concatenate([x, x + jnp.arange(x.shape[0])[:, None]])

def sums(x):
    return jnp.cumsum(x, 0)

def ordered(x):
    return lax.top_k(x, 2)

def failing(x):
    raise RuntimeError("the user's own")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "m.py").write_text(textwrap.dedent(MODEL))
    np.savez(tmp_path / "p.npz", w=np.eye(4, 3, dtype=np.float32), b=np.arange(3, dtype=np.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


PREDICT = ["m.py:predict", "--weights", "p.npz", "--arg", "x=f32[5,4]"]


def run(capsys, *args):
    code = main(["export", *args])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_function_becomes_a_file_that_is_right(folder, capsys):
    code, out, err = run(capsys, *PREDICT, "--format", "onnx")
    assert code == 0 and "predict.onnx: right in its runtime" in out and "random 0" in out
    assert "note: result['wave'] is called result.wave.real and result.wave.imag" in err
    model = onnx.load("predict.onnx")
    assert [i.name for i in model.graph.input] == ["x"] and model.opset_import[0].version == 21
    assert {p.key: p.value for p in model.metadata_props} == {"function": "predict"}


def test_json_summary(folder, capsys):
    code, out, _ = run(capsys, *PREDICT, "--format", "onnx", "--opset", "26", "-o", "a.onnx", "--json")
    found = json.loads(out)
    assert code == 0 and found["inputs"] == [["x"]] and found["verified"]["ok"]
    case = found["verified"]["cases"][0]
    assert case["outcome"] == "right" and {"max_abs_error", "max_rel_error", "max_ulp_error"} <= set(case["outputs"][0])


def test_an_artifact_becomes_every_format_and_back(folder, capsys):
    assert main(["compile", *PREDICT, "-o", "m.aot"]) == 0
    assert run(capsys, "m.aot", "--format", "stablehlo", "-o", "s.mlirbc")[0] == 0
    code, out, _ = run(capsys, "s.mlirbc", "--format", "onnx", "-o", "b.onnx")
    assert code == 0 and "b.onnx: right" in out
    assert run(capsys, "m.aot", "--format", "onnx", "-o", "a.onnx")[0] == 0
    code = main(["verify", "a.onnx", "--against", "m.aot"])
    out = capsys.readouterr().out
    assert code == 0 and "recorded" in out
    assert main(["verify", "a.onnx", "--against", "m.aot", "--report", "html"]) == 0
    assert capsys.readouterr().out.startswith("<!doctype html>")


@pytest.mark.parametrize("format, file", [("stablehlo", "program.mlir"), ("onnx", "plain"), ("tflite", "model.onnx")])
def test_a_file_of_any_name_is_verified_as_what_it_is(folder, capsys, format, file):
    code, out, err = run(capsys, *PREDICT, "--format", format, "-o", file)
    assert code == 0 and f"{file}: right in its runtime" in out and "error" not in err


def test_a_file_of_another_function_is_not_right(folder, capsys):
    assert main(["export", *PREDICT, "--format", "onnx", "-o", "a.onnx"]) == 0
    assert main(["compile", "m.py:mean", "--arg", "f32[5,4]", "-o", "m.aot"]) == 0
    capsys.readouterr()
    assert main(["verify", "a.onnx", "--against", "m.aot"]) == 3
    assert "failed" in capsys.readouterr().out


def test_any_size_of_the_first_axis(folder, capsys):
    code, out, _ = run(capsys, "m.py:mean", "--arg", "f32[5,4]", "--format", "onnx", "--dynamic-batch")
    assert code == 0 and "first axis of 7" in out
    model = onnx.load("mean.onnx")
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert model.graph.output[2].type.tensor_type.shape.dim[0].dim_param == "2*batch"
    onnx.checker.check_model(model, full_check=True)


def test_notes(folder, capsys):
    code, _, err = run(capsys, "m.py:ordered", "--arg", "f32[5,4]", "--format", "onnx")
    assert code == 0 and "note: before opset 26, top_k takes every NaN for the largest" in err
    assert "every NaN" not in run(capsys, "m.py:ordered", "--arg", "f32[5,4]", "--format", "onnx", "--opset", "26")[2]


ERRORS = [
    (["m.py:spectrum", "--arg", "f32[4,4]", "--format", "onnx"], 1, ["2 unsupported operations", "lapack_sgeev", "at m.py:10", "hint:"]),
    (["m.py:sums", "--arg", "f32[4,4]", "--format", "onnx", "--dynamic-batch"], 1, ["for other sizes of the first axis", "hint:"]),
    (["m.py:mean", "--arg", "f32[]", "--format", "onnx", "--dynamic-batch"], 4, ["m.py"]),
    (["m.py:mean", "--arg", "f32[4,4]", "--format", "pdf"], 1, ["unknown format 'pdf'", "hint: choose one of"]),
    (["m.py:mean", "--arg", "f32[4,4]", "--format", "onnx", "--opset", "99"], 1, ["opset 99", "18 to 28"]),
    (["m.py:mean", "--arg", "f32[4,4]", "--format", "stablehlo", "--opset", "21"], 1, ["has no option 'opset'"]),
    (["m.py:failing", "--arg", "f32[4]", "--format", "onnx"], 4, ["the user's own", "m.py"]),
    (["m.py:nothing", "--format", "onnx"], 1, ["nothing"]),
    (["none.aot", "--format", "onnx"], 1, ["none.aot"]),
    (["none.mlir", "--format", "onnx"], 1, ["none.mlir: No such file"]),
    (["bad.mlir", "--format", "onnx"], 1, ["not a StableHLO program", "hint:"]),
    (["good.mlir", "--arg", "f32[2]", "--format", "onnx"], 2, ["only for MODULE:FUNCTION"]),
    (["good.mlir", "--format", "onnx", "--dynamic-batch"], 2, ["--dynamic-batch needs MODULE:FUNCTION"]),
    (["good.mlir", "--format", "onnx", "-o", "none/a.onnx"], 1, ["none/a.onnx", "hint:"]),
]


@pytest.mark.parametrize("args, code, words", ERRORS, ids=[" ".join(e[0][:2] + e[0][-1:]) for e in ERRORS])
def test_errors(folder, capsys, args, code, words):
    (folder / "bad.mlir").write_text("module {")
    (folder / "good.mlir").write_text(module("f32[2]", "f32[2]", "  return %0 : tensor<2xf32>"))
    before = set(os.listdir())
    found, out, err = run(capsys, *args)
    assert found == code and all(w in err for w in words), err
    assert "internal error" not in err and (code == 4 or "Traceback" not in err)
    assert {f for f in os.listdir() if not f.startswith("__pycache__")} <= before and not out


# ---- comparing -----------------------------------------------------------------------------------------------------

IDENTITY = source.Source("f", module("f32[3]", "f32[3]", "  return %0 : tensor<3xf32>"))


def test_a_runtime_that_ends_the_process_is_a_failed_case(tmp_path, monkeypatch):
    from aot.exporters import formats
    (tmp_path / "crash").mkdir()
    (tmp_path / "crash/run.py").write_text("import os\ndef open_file(path):\n    def f(x):\n        if x[0].sum() == 3: os.abort()\n"
                                           "        return x\n    return f\n")
    (tmp_path / "crash/__init__.py").write_text("")
    (tmp_path / "sitecustomize.py").write_text(
        "import aot.exporters.formats as f\nf.FORMATS['crash'] = f.Format('.crash', 'crash', {})\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setitem(formats.FORMATS, "crash", formats.Format(".crash", "crash", {}))
    path = tmp_path / "a.crash"
    path.write_text("")
    report = verify.verify(IDENTITY, str(path))
    found = {c["name"]: c["outcome"] for c in report["cases"]}
    assert found["ones"] == "failed" and found["zeros"] == found["large"] == "right" and not report["ok"]
    assert "signal" in next(c["why"] for c in report["cases"] if c["name"] == "ones")


def test_a_missing_or_unknown_file_is_refused(tmp_path):
    with pytest.raises(AotError, match="no such file"):
        verify.verify(IDENTITY, str(tmp_path / "a.onnx"))
    with pytest.raises(AotError, match="no exported file"):
        verify.verify(IDENTITY, str(tmp_path / "a.txt"))


ULPS = [(1.0, 1.0, 0), (1.0, np.nextafter(np.float32(1), np.float32(2)), 1), (0.0, -0.0, 0), (-1.0, 1.0, 2 * 0x3F800000),
        (np.inf, 1.0, None), (np.nan, np.nan, None)]


@pytest.mark.parametrize("a, b, want", ULPS)
def test_distance_in_units_of_the_last_place(a, b, want):
    assert verify.ulp_error(np.array([a], np.float32), np.array([b], np.float32)) == want


def test_distance_ignores_what_is_only_noise():
    assert verify.ulp_error(np.array([1, 1e-12], np.float32), np.array([1, 2e-12], np.float32)) == 0
    assert verify.ulp_error(np.array([1], np.int32), np.array([2], np.int32)) is None
    assert verify.ulp_error(np.array([1 + 1e-12j], np.complex64), np.array([1 + 2e-12j], np.complex64)) == 0


def test_the_page_escapes_names():
    case = {"name": "<b>", "outcome": "failed", "why": "a < b", "outputs": []}
    page = report_page.page({"file": "<f>", "format": "onnx", "function": "g", "ok": False, "cases": [case]})
    assert "<b>" not in page and "&lt;b&gt;" in page and "a &lt; b" in page and "NOT RIGHT" in page


@pytest.mark.parametrize("format", ["onnx", "tflite", "c"])
def test_as_many_names_as_arguments(format):
    import aot
    export = formats.FORMATS[format].load().export
    def text(**options): return aot.jit(lambda x, y: x * 2, **options).lower(np.ones(2, "f"), np.ones(2, "f")).as_text()
    with pytest.raises(AotError, match="2 input names for 1 inputs of the program\nhint: jit leaves out .*keep_unused"):
        export(text(), input_names=["x", "y"])
    with pytest.raises(AotError, match="2 output names for 1 outputs of the program"):
        export(text(), output_names=["x", "y"])
    assert export(text(keep_unused=True), input_names=["x", "y"])
