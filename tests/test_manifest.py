"""aot.toml: what is accepted, how it is resolved, and how errors point at the line; marks; targets; transforms."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

import aot
from aot import manifest as manifests
from aot import pipeline, targets
from aot.errors import AotError
from aot.manifest import ManifestError

ROOT = Path(__file__).resolve().parents[1]
HEAD = '[project]\nname = "p"\n'
F = '[[function]]\nfunction = "m.py:f"\nargs = ["f32[3]"]\n'


def load(tmp_path, text):
    path = tmp_path / "aot.toml"
    path.write_text(text)
    return manifests.load(path)


#: text, what the message contains
WRONG = [
    ("name = 1", "aot.toml:1: name: unknown key; known are: project, function, profile"),
    ("[[function]]\nfunction = 'm.py:f'", "aot.toml:1: the key 'project' is missing"),
    ("[project]\n", "aot.toml:1: project: the key 'name' is missing"),
    ("[project]\nname = 3", "aot.toml:2: project.name: expected a string that is not empty, got 3"),
    ("[project]\nname = 'p'\n\ntargts = ['cpu']", "aot.toml:4: project.targts: unknown key; did you mean 'targets'?"),
    ("[project]\nname = 'p'\ntargets = 'cpu'", "aot.toml:3: project.targets: expected a list of strings, got 'cpu'"),
    (HEAD + "[[function]]\nname = 'f'", "aot.toml:3: function[0]: the key 'function' is missing"),
    (HEAD + F + "\n[[function]]\nfunction = 'm.py:g'\narg = ['f32[3]']", "aot.toml:9: function[1].arg: unknown key; did you mean 'args'?"),
    (HEAD + F + "golden = 3", "aot.toml:6: function[0].golden: expected true, false or a list of files, got 3"),
    (HEAD + F + "weights_mode = 'baken'", "aot.toml:6: function[0].weights_mode: expected one of baked, separate, argument, got 'baken'"),
    (HEAD + F + "transforms = ['gard']", "aot.toml:6: function[0].transforms: expected a list of transforms (grad, "),
    (HEAD + F + "transforms = [{has_aux = true}]", "aot.toml:6: function[0].transforms: expected a list of transforms"),
    (HEAD + F + "[[function.signature]]\nname = 'b1'\nargs = 3", "aot.toml:8: function[0].signature[0].args: expected a list of specs"),
    (HEAD + F + "[[function.signature]]\nname = 'a'\n[[function.signature]]\nnam = 'b'", "aot.toml:9: function[0].signature[1].nam: unknown key"),
    (HEAD + F + "[profile.fast]\ngolden = true\nxla_flags = 3", "aot.toml:8: profile.fast.xla_flags: expected a table, got 3"),
    (HEAD + F + "[function.static]\nn = 3\n[function.named]\ny = 3", "aot.toml:8: function[0].named: expected a table of strings"),
    (HEAD + "[function]\nfunction = 'm.py:f'", "aot.toml:3: function: expected tables [[function]]"),
    (HEAD + "[[function]\n", "aot.toml:3:"),
    (HEAD + "x = ", "aot.toml:3: Invalid value"),
    (HEAD + "name = 'q'", "aot.toml:3:"),
]


@pytest.mark.parametrize("text, message", WRONG, ids=[w[1][:60] for w in WRONG])
def test_errors_name_file_line_and_key(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ManifestError) as e:
        load(tmp_path, text)
    assert message in str(e.value)


def test_no_manifest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AotError, match="no aot.toml here or in a folder above\nhint: `aot init`"):
        manifests.find()
    with pytest.raises(AotError, match="cannot be read"):
        manifests.load(tmp_path / "aot.toml")


def test_find_looks_above(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    load(tmp_path, HEAD)
    assert manifests.find(str(tmp_path / "a/b")) == str(tmp_path / "aot.toml")


#: text after HEAD, profile, then {function name: {key: expected}}
RESOLVED = [
    (F, "release", {"f": {"function": "m.py:f", "args": ["f32[3]"], "artifact": "f.aot", "targets": ["cpu"], "golden": True,
                          "weights_mode": "baked", "transforms": [], "xla_flags": {}, "x64": False}}),
    ("targets = ['stablehlo']\n" + F, "release", {"f": {"targets": ["stablehlo"]}}),
    ("targets = ['stablehlo']\n" + F + "targets = ['cpu']", "release", {"f": {"targets": ["cpu"]}}),
    (F, "dev", {"f": {"golden": False, "xla_flags": {"xla_backend_optimization_level": 0}}}),
    (F + "golden = ['x.npy']\n", "dev", {"f": {"golden": False}}),
    (F + "golden = ['x.npy']\n", "release", {"f": {"golden": ["x.npy"]}}),
    (F + "xla_flags = {a = 1, b = 2}\n[profile.fast]\nxla_flags = {b = 3}\ntargets = ['cpu:x86-64-v3']", "fast",
     {"f": {"xla_flags": {"a": 1, "b": 3}, "targets": ["cpu:x86-64-v3"]}}),
    (F + "[profile.dev]\ngolden = true", "dev", {"f": {"golden": True}}),
    (F + "[[function.signature]]\nname = 'b1'\nargs = ['f32[1]']\n[[function.signature]]\nname = 'b2'\nstatic = {n = 2}",
     "release", {"f_b1": {"args": ["f32[1]"], "artifact": "f.aot"}, "f_b2": {"args": ["f32[3]"], "static": {"n": 2}}}),
    (F + "name = 'g'\nartifact = 'all.aot'\n" + F + "artifact = 'all.aot'", "release",
     {"g": {"artifact": "all.aot"}, "f": {"artifact": "all.aot"}}),
]


@pytest.mark.parametrize("text, profile, expected", RESOLVED)
def test_resolving(tmp_path, text, profile, expected):
    items = {i["name"]: i for i in manifests.items(load(tmp_path, HEAD + text), profile)}
    assert set(items) == set(expected)
    for name, keys in expected.items():
        assert {k: items[name][k] for k in keys} == keys


UNRESOLVED = [
    (F + F, "release", "aot.toml:6: function[1].name: there are two functions 'f'\nhint: give one of them another `name`"), (F, "nightly", "there is no profile 'nightly'\nhint: there are: dev, release"),
    (F + "name = 'a/b'", "release", "aot.toml:6: function[0].name: 'a/b' cannot be the name of a file"),
    (F + "[[function.signature]]\nname = 'b/1'", "release", "aot.toml:3: function[0].name: 'f_b/1' cannot be the name of a file"),
    (F + "signature = []", "release", "aot.toml:6: function[0].signature: the list is empty"),
]


@pytest.mark.parametrize("text, profile, message", UNRESOLVED)
def test_what_cannot_be_resolved(tmp_path, monkeypatch, text, profile, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AotError) as e:
        manifests.items(load(tmp_path, HEAD + text), profile)
    assert message in str(e.value)


def test_the_schema_in_the_documentation_is_current():
    path = ROOT / "docs/aot.schema.json"
    assert path.read_text() == manifests.schema_text(), "aot init --schema > docs/aot.schema.json"


def test_the_schema_describes_every_key():
    schema = json.loads(manifests.schema_text())
    function = schema["properties"]["function"]["items"]
    assert set(function["properties"]) == set(manifests.FUNCTION) and function["required"] == ["function"]
    assert all(p["description"] for p in function["properties"].values())


def test_the_template_is_a_manifest(tmp_path):
    text = manifests.TEMPLATE.format(name="x", function="m.py:f", args='"f32[3]"')
    assert [i["name"] for i in manifests.items(load(tmp_path, text))] == ["f"]


def test_reading_a_manifest_imports_neither_numpy_nor_jaxlib():
    import subprocess
    import sys
    code = ("import sys, aot.manifest, aot.project; "
            "assert not {'numpy', 'jaxlib', 'click', 'rich'} & set(sys.modules), sorted(sys.modules)")
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# ---- marks ---------------------------------------------------------------------------------------------------------

def test_marks(tmp_path):
    from aot import binding, marks
    (tmp_path / "marked.py").write_text("""
import aot

def specs(): return ["f32[3]"]

@aot.entry(args=["f32[2]"], name="two")
@aot.entry(args=specs, targets=["stablehlo"])
def f(x): return x

@aot.entry
@aot.jit
def g(): return 1.0
""")
    module = binding._import_file(str(tmp_path / "marked.py"))
    assert marks.discover(module, str(tmp_path)) == [
        {"args": "marked.py:specs", "targets": ["stablehlo"], "function": "marked.py:f"},
        {"args": ["f32[2]"], "name": "two", "function": "marked.py:f"}, {"function": "marked.py:g"}]
    assert module.f(3) == 3


MARKS = [
    (lambda: aot.entry(argz=["f32[3]"])(test_marks), "@aot.entry of test_marks: argz: unknown key; did you mean 'args'?"),
    (lambda: aot.entry(args=[3])(test_marks), "args: expected a list of specs"),
    (lambda: aot.entry(3), "marks functions, not values of type int"),
    (lambda: aot.entry(args=lambda: ["f32[3]"])(test_marks), "cannot be found by name"),
    (lambda: aot.entry(args=list)(test_marks), "list cannot be found by name"),
]


@pytest.mark.parametrize("mark, message", MARKS)
def test_wrong_marks(mark, message):
    with pytest.raises(AotError) as e:
        mark()
    assert message in str(e.value)


# ---- targets -------------------------------------------------------------------------------------------------------

TARGETS = [
    ("cpu", "cpu", "", 0), ("cpu:x86-64-v3", "cpu", "x86-64-v3", 0), ("cuda:h100", "cuda", "H100", 79),
    ("cuda:sm_80", "cuda", "A100 80GB", 79), ("cuda:H200", "cuda", "H200", 139), ("cuda:b200", "cuda", "B200", 178),
    ("cuda:l4", "cuda", "L4", 21), ("cuda:rtx4090", "cuda", "RTX 4090", 23), ("tpu:v5e", "tpu", "TPU v5e", 16),
    ("tpu:v6e:2x4", "tpu", "TPU v6e", 32), ("tpu:v4:2x2x1", "tpu", "TPU v4", 16), ("tpu:v5p", "tpu", "TPU v5p", 95),
    ("stablehlo", "stablehlo", "", 0),
]


@pytest.mark.parametrize("text, kind, chip, gib", TARGETS)
def test_targets(text, kind, chip, gib):
    t = targets.parse(text)
    assert (t.kind, t.chip, t.memory >> 30) == (kind, chip, gib)
    assert targets.parse(t.name) == t


@pytest.mark.parametrize("text, message", [
    ("abacus", "hint: targets are cpu, "), ("cpu:x86-64-v9", "there are: cpu:x86-64-v2, cpu:x86-64-v3"),
    ("cuda:voodoo2", "there are: cuda:a100, "), ("tpu:v9", "there are: tpu:v4"), ("cuda", "there are: cuda:a100"),
    ("tpu:v5e:2x2x2", "it has 2 axes, for example tpu:v5e:2x2"), ("tpu:v4:axb", "is not a topology of v4")])
def test_unknown_targets(text, message):
    with pytest.raises(AotError) as e:
        targets.parse(text)
    assert message in str(e.value)


@pytest.mark.parametrize("texts, kept", [
    (["cpu", "onnx", "cpu"], ["cpu", "onnx"]), (["tpu:v5e", "tpu:v5e:2x2"], 1), (["cuda:h100", "cuda:H100"], 1),
    (["cpu:x86-64-v3", "cpu:x86-64-v2"], 2), (["pjrt:a.so", f"pjrt:{Path('a.so').absolute()}", "pjrt:./a.so"], 1)], ids=str)
def test_targets_named_twice_count_once(texts, kept):
    found = targets.distinct(texts)
    assert found == kept if isinstance(kept, list) else len(found) == kept
    assert len({targets.parse(t).name for t in found}) == len(found)


def test_a_target_without_its_plugin_names_the_extra(monkeypatch):
    monkeypatch.setattr(targets, "plugin_path", lambda kind: None)
    with pytest.raises(AotError, match=r"cannot build for tpu:v5e: libtpu is not installed\nhint: pip install 'aotc\[tpu\]'"):
        targets.require("tpu:v5e")


# ---- transforms ----------------------------------------------------------------------------------------------------

STEPS = [
    ("grad", ("grad", None, {})), ("grad:params,x", ("grad", "params,x", {})), ("vmap:None,0", ("vmap", "None,0", {})),
    ({"grad": "params", "has_aux": True}, ("grad", "params", {"has_aux": True})),
    ({"checkpoint": "dots_saveable"}, ("checkpoint", "dots_saveable", {})), ({"jit": True, "inline": True}, ("jit", None, {"inline": True})),
]


@pytest.mark.parametrize("step, expected", STEPS, ids=str)
def test_transform_steps(step, expected):
    assert pipeline.parse(step) == expected


def cube(x, y): return (x ** 3 * y).sum()


PIPELINES = [(["grad"], [12.0]), (["value_and_grad:y"], [8.0, 8.0]), (["grad:x", {"grad": "0"}], [12.0]), (["hessian"], [12.0]),
             (["jacfwd:y"], [8.0]), (["jacrev:x,y"], [12.0, 8.0]), (["checkpoint", "grad"], [12.0]),
             ([{"checkpoint": "dots_saveable"}, "jit", "grad:y"], [8.0])]


@pytest.mark.parametrize("steps, expected", PIPELINES, ids=str)
def test_pipelines(steps, expected):
    from aot.binding import Argument
    f = pipeline.apply(cube, steps, [Argument("x", None), Argument("y", None)])
    assert [float(v) for v in aot.tree_util.tree_leaves(f(2.0, 1.0))] == expected


def test_pipelines_end_in_vmap():
    import numpy as np

    from aot.binding import Argument
    f = pipeline.apply(cube, ["grad:x", {"vmap": "0,None", "out_axes": 0}], [Argument("x", None), Argument("y", None)])
    assert np.allclose(np.asarray(f(np.arange(3.0, dtype=np.float32), 1.0)), [0, 3, 12])


@pytest.mark.parametrize("step, message", [("gradient", "unknown transform 'gradient'\nhint: there are: grad, "),
                                           ({"grad": "x", "in_axes": 0}, "transform grad has no option 'in_axes'"),
                                           ({"checkpoint": "nothing"}, "there is no checkpoint policy 'nothing'")])
def test_wrong_transforms(step, message):
    with pytest.raises(AotError) as e:
        pipeline.apply(cube, [step], [])
    assert message in str(e.value)
