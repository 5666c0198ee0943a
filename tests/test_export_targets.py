"""Files of other formats as targets of a project."""
from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest

from aot import targets
from aot.cli import main
from aot.errors import AotError

pytest.importorskip("onnxruntime")
pytest.importorskip("ai_edge_litert")

MODEL = """
import aot.numpy as np
from aot import nn
def predict(params, x): return nn.softmax(np.tanh(x @ params["w"]))
def eigen(x): return np.linalg.eig(x)
"""
MANIFEST = """
[project]
name = "p"
targets = ["cpu", "onnx", "onnx:26", "tflite", "tflite:float16"]
[[function]]
function = "m.py:predict"
args = ["f32[2,8]"]
weights = "w.npz"
"""
EIGEN = """
[[function]]
function = "m.py:eigen"
args = ["f32[4,4]"]
targets = ["cpu", "onnx"]
"""
FILES = {"predict.aot", "predict.onnx", "predict-26.onnx", "predict.tflite", "predict-float16.tflite"}


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "m.py").write_text(MODEL)
    (tmp_path / "aot.toml").write_text(MANIFEST)
    np.savez(tmp_path / "w.npz", w=np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(project): return {p.name for p in (project / "build").iterdir() if p.is_file()} if (project / "build").exists() else set()


def test_files_are_built_verified_and_kept_up_to_date(project, capsys):
    assert main(["build"]) == 0 and files(project) == FILES
    import onnxruntime
    x = np.random.default_rng(1).standard_normal((2, 8)).astype(np.float32)
    session = onnxruntime.InferenceSession("build/predict.onnx")
    y, = session.run(None, {session.get_inputs()[0].name: x})
    logits = np.tanh(x @ np.load("w.npz")["w"])
    assert np.allclose(y, np.exp(logits) / np.exp(logits).sum(1, keepdims=True), atol=1e-5)
    capsys.readouterr()
    assert main(["verify", "build/predict.aot", "--json"]) == 0
    exported = json.loads(capsys.readouterr().out)["exported"]
    assert {r["file"] for r in exported} == {f"build/{f}" for f in FILES if not f.endswith(".aot")}
    assert all({"recorded", "random 0", "zeros"} <= {c["name"] for c in r["cases"]} and r["ok"] for r in exported)
    capsys.readouterr()
    assert main(["build"]) == 0 and "1 up to date" in capsys.readouterr().err
    (project / "build/predict.onnx").unlink()
    assert main(["build", "--message-format", "json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {e["target"] for e in events if e["reason"] == "compiled"} == {"cpu", "onnx", "onnx:26", "tflite", "tflite:float16"}
    assert set(next(e for e in events if e["reason"] == "artifact")["files"]) == {f"build/{f}" for f in FILES}
    assert main(["clean"]) == 0 and not files(project)


def test_what_a_format_cannot_express_fails_that_artifact_alone(project, capsys):
    (project / "aot.toml").write_text(MANIFEST + EIGEN)
    assert main(["build", "--keep-going"]) == 1
    err = capsys.readouterr().err
    assert "cannot export to onnx: 1 unsupported operation" in err and "lapack_sgeev_ffi" in err and "Traceback" not in err
    assert FILES <= files(project) and "eigen.onnx" not in files(project)
    assert main(["build"]) == 1       # it is tried again


@pytest.mark.parametrize("name, message", [("onnx:17", "unknown target 'onnx:17'\nhint: there are: onnx:18"), ("tflite:int8", "there are: tflite:2.14"),
                                           ("onnx:", "unknown target")])
def test_unknown_options(name, message):
    with pytest.raises(AotError) as e:
        targets.parse(name)
    assert message in str(e.value)


def test_an_artifact_has_no_such_part(project, capsys):
    assert main(["compile", "m.py:eigen", "--arg", "f32[4,4]", "-t", "onnx"]) == 1
    assert "onnx is a file of its own" in capsys.readouterr().err


def test_files_next_to_an_artifact_are_verified_with_it(project, capsys, monkeypatch):
    """By either name; one that another function was exported to is found out, one without its runtime is not run."""
    (project / "m.py").write_text("def double(x): return x + x\ndef triple(x): return 3 * x\n")
    assert main(["compile", "m.py:double", "--arg", "f32[3]", "-o", "model.aot"]) == 0
    assert main(["export", "model.aot", "--format", "onnx", "-o", "model.onnx", "--no-verify"]) == 0
    assert main(["export", "m.py:double", "--arg", "f32[3]", "--format", "tflite", "--no-verify"]) == 0
    capsys.readouterr()
    assert main(["verify", "model.aot"]) == 0
    out = capsys.readouterr().out
    assert "model.onnx: right in its runtime" in out and "double.tflite: right in its runtime" in out
    assert main(["export", "m.py:triple", "--arg", "f32[3]", "--format", "onnx", "-o", "double-26.onnx", "--no-verify"]) == 0
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "ai_edge_litert" else real(name, *a))
    assert main(["verify", "model.aot", "--report", "html"]) == 3
    out = capsys.readouterr().out
    assert "double-26.onnx: NOT RIGHT" in out and "model.onnx: right" in out
    assert "double.tflite: not run: the package ai_edge_litert is not installed" in out
