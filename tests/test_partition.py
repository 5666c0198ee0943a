"""Programs over several devices, compiled ahead of time: meshes and shardings as text, artifacts, loading."""
from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import aot_runtime
from aot import partition, targets
from aot.errors import AotError
from aot.sharding import PartitionSpec as P

MODEL = """
import aot.numpy as np
from aot import lax, random, shard_map
from aot.sharding import PartitionSpec as P, get_mesh

def predict(params, x):
    for layer in params:
        x = np.tanh(x @ layer["w"] + layer["b"])
    return {"y": x, "mean": x.mean()}

def total(x):
    return shard_map(lambda x: lax.psum(x.sum(), ("data", "model")), mesh=get_mesh(), in_specs=P("data", "model"), out_specs=P())(x)

def constrained(x):
    return lax.with_sharding_constraint(x * 2, P(None, "model")), random.uniform(random.key(0), (4,))

def scalars(x, n):
    return x + n, n
"""
ARGS = ["--arg", '[{"w": f32[8,16], "b": f32[16]}, {"w": f32[16,4], "b": f32[4]}]', "--arg", "f32[16,8]"]
RULES = ["--mesh", "data=4,model=2", "--in-sharding", "x=data", "--in-sharding", "params.0.*=model", "--in-sharding",
         "params.0.w=-,model", "--in-sharding", "params.1.w=model"]


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "m.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*command, ok=True):
    """A command in a process of its own, which can still have as many devices as it wants."""
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, env={**os.environ, "XLA_FLAGS": ""})
    assert (done.returncode == 0) == ok, done.stderr
    return done.stdout if ok else done.stderr


def aot(*args, ok=True): return run("aot.cli", *args, ok=ok)


# ---- text ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("text, message", [
    ("", "'' is not an axis"), ("data", "'data' is not an axis"), ("data=0", "'data=0' is not an axis"), ("a=2,a=2", "is not an axis"),
    ("a b=2", "is not an axis"), ("a=-1", "is not an axis"), ("a=2048,b=1024", "has 2097152 devices"), ("a=2,", "'' is not an axis"),
])
def test_meshes_that_are_none(text, message):
    with pytest.raises(AotError, match=message):
        partition.parse_mesh(text)


MESH = partition.parse_mesh("data=4,model=2")


@pytest.mark.parametrize("text, spec", [("data", P("data")), ("-,model", P(None, "model")), ("data+model", P(("data", "model"))),
                                        ("", P()), ("-,-,data", P(None, None, "data")), (" data , model ", P("data", "model"))])
def test_specs(text, spec):
    assert partition.parse_spec(text, MESH) == spec


LEAVES = {"x": (16, 8), "params[0]['w']": (8, 16), "params[0]['b']": (16,), "params[1]['w']": (16, 4), "state.count": (), "d['a']['b']": (8,)}


@pytest.mark.parametrize("rules, expected", [
    ({"x": "data"}, {"x": P("data")}),
    ({"params": "model"}, {"params[0]['w']": P("model"), "params[0]['b']": P("model"), "params[1]['w']": P("model")}),
    ({"params.*.w": "-,model"}, {"params[0]['w']": P(None, "model"), "params[1]['w']": P(None, "model")}),
    ({"params": "model", "params.1": "-,model"}, {"params[0]['w']": P("model"), "params[0]['b']": P("model"), "params[1]['w']": P(None, "model")}),
    ({"params[1]['w']": "data"}, {"params[1]['w']": P("data")}), ({"state.count": ""}, {"state.count": P()}), ({"d.a.b": "data"}, {"d['a']['b']": P("data")}),
])
def test_the_last_rule_that_fits_holds(rules, expected):
    found = partition.assign(rules, LEAVES, MESH, "in-sharding")
    assert {n: s.spec for n, s in zip(LEAVES, found) if s} == expected


@pytest.mark.parametrize("rules, message", [
    ({"y": "data"}, "in-sharding 'y' names nothing\nhint: there are: x, params.0.w"), ({"x": "rows"}, "the mesh has no axis 'rows'"),
    ({"x": "data,model,data"}, "duplicate|has 2 dimensions"), ({"state.count": "data"}, "state.count has 0 dimensions"),
    ({"params.1.w": "-,data+model"}, "dimension 1 of size 4 cannot be split over 8 devices"), ({"param": "data"}, "names nothing"),
])
def test_rules_that_do_not_fit(rules, message):
    with pytest.raises((AotError, ValueError), match=message):
        partition.assign(rules, LEAVES, MESH, "in-sharding")


HLO = """
  %ar = f32[16,4]{1,0} all-reduce(%x), replica_groups={}
  %s = (f32[2]{0}, f32[8]{0}) all-gather-start(%y), dimensions={0}
  %d = f32[8]{0} all-gather-done(%s)
  ROOT %p = bf16[3]{0} collective-permute(%z)
  %t = pred[] all-reduce(%b)
"""


def test_collectives_are_counted():
    assert partition.collectives(HLO) == {"all-reduce": {"count": 2, "bytes": 257}, "all-gather": {"count": 1, "bytes": 40},
                                          "collective-permute": {"count": 1, "bytes": 6}}


@pytest.mark.parametrize("name, devices, message", [("tpu:v5e:2x2", 8, "the mesh has 8 devices, tpu:v5e:2x2 has 4"),
                                                    ("pjrt:/p.so", 2, "not supported for plugins")])
def test_targets_with_too_few_devices(name, devices, message):
    with pytest.raises(AotError, match=message):
        targets.parse(name).over(devices)


# ---- artifacts -----------------------------------------------------------------------------------------------------

def test_an_artifact_over_eight_devices(project):
    aot("compile", "m.py:predict", *ARGS, *RULES, "-o", "s.aot")
    aot("compile", "m.py:predict", *ARGS, "-o", "one.aot")
    assert "predict on cpu: ok" in aot("verify", "s.aot")
    shown = aot("inspect", "s.aot")
    for text in ("partitioned over data=4, model=2", "params[0]['w']  f32[8,16]  split -,model", "2 all-reduce"):
        assert text in shown
    script = """
    import sys, numpy as np, aot_runtime
    rng = np.random.default_rng(0)
    f32 = lambda *s: rng.standard_normal(s).astype(np.float32)
    params, x = [{"w": f32(8, 16), "b": f32(16)}, {"w": f32(16, 4), "b": f32(4)}], f32(16, 8)
    one = aot_runtime.load("one.aot")["predict"](params, x)
    for how in ("executable", "program"):
        loaded = aot_runtime.load("s.aot", strict=how == "executable")
        if how == "program":
            loaded.manifest["functions"]["predict"]["executables"] = []
        f = loaded["predict"]
        for _ in range(3):
            y = f(params, x)
            assert np.allclose(y["y"], one["y"], atol=1e-6) and np.allclose(y["mean"], one["mean"]), how
        assert f.target == ("cpu" if how == "executable" else "stablehlo") and y["y"].flags.writeable
    try:
        f(params, x[:8])
    except aot_runtime.InputError as e:
        assert "expected f32[16,8], got f32[8,8]" in str(e)
    else:
        raise SystemExit("accepted")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_weights_are_split_and_exchanged(project):
    rng = np.random.default_rng(0)
    w = {f"{i}.{k}": rng.standard_normal(s).astype(np.float32) for i, (a, b) in enumerate([(8, 16), (16, 4)]) for k, s in (("w", (a, b)), ("b", (b,)))}
    np.savez("w.npz", unused=np.ones(4, np.float32), **w)
    (project / "n.py").write_text("import m\ndef predict(params, x):\n"
                                  "    return m.predict([{k: params[f'{i}.{k}'] for k in 'wb'} for i in (0, 1)], x)\n")
    aot("compile", "n.py:predict", "--weights", "w.npz", "--arg", "f32[16,8]", "--mesh", "data=4,model=2", "--in-sharding", "x=data",
        "--in-sharding", "params.0.w=-,model", "--in-sharding", "params.unused=data", "--out-sharding", "result.y=data", "-o", "w.aot")
    assert "predict on cpu: ok" in aot("verify", "w.aot")
    script = """
    import numpy as np, aot_runtime
    loaded = aot_runtime.load("w.aot", strict=True)
    f, x = loaded["predict"], np.ones((16, 8), np.float32)
    w = {k: v.copy() for k, v in loaded.weights().items()}
    assert sorted(w) == ["params.0.b", "params.0.w", "params.1.b", "params.1.w"]
    def expected(w):
        y = x
        for i in "01": y = np.tanh(y @ w[f"params.{i}.w"] + w[f"params.{i}.b"])
        return y
    assert np.allclose(f(x)["y"], expected(w), atol=1e-5)
    w["params.0.w"] *= 2
    loaded.swap_weights({"params.0.w": w["params.0.w"]})
    assert np.allclose(f(x)["y"], expected(w), atol=1e-5)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_manual_programs_constraints_and_small_things(project):
    (project / "aot.toml").write_text("""
[project]
name = "p"
[[function]]
function = "m.py:total"
args = ["f32[8,4]"]
mesh = "data=4,model=2"
in_shardings = {x = "data,model"}
artifact = "all.aot"
[[function]]
function = "m.py:constrained"
args = ["bf16[4,4]"]
mesh = "data=2,model=2"
out_shardings = {"result.0" = "data"}
artifact = "all.aot"
[[function]]
function = "m.py:scalars"
args = ["f32[0,8]", "i32[]"]
mesh = "data=2"
in_shardings = {x = "-,data"}
artifact = "all.aot"
[[function]]
function = "m.py:scalars"
name = "single"
args = ["f32[3]", "i32[]"]
artifact = "all.aot"
""")
    aot("build")
    assert aot("verify", "build/all.aot").count(": ok") == 4
    assert json.loads(aot("build", "--message-format", "json").splitlines()[-1])["reason"] != "failed"
    manifest = aot_runtime.load("build/all.aot").manifest["functions"]
    assert manifest["total"]["mesh"] == [["data", 4], ["model", 2]] and manifest["total"]["executables"][0]["devices"] == 8
    assert manifest["total"]["inputs"][0]["sharding"] == [["data"], ["model"]] and "mesh" not in manifest["single"]
    script = """
    import numpy as np, aot_runtime
    loaded = aot_runtime.load("build/all.aot", strict=True)
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    assert loaded["total"](x) == x.sum()
    y, u = loaded["constrained"](np.ones((4, 4), aot_runtime.dtype_of("bfloat16")))
    assert (y == 2).all() and u.shape == (4,)
    a, n = loaded["scalars"](np.zeros((0, 8), np.float32), 3)
    assert a.shape == (0, 8) and n == 3
    assert loaded["single"](np.zeros(3, np.float32), 3)[0].tolist() == [3, 3, 3]
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("options, message", [
    (["--in-sharding", "x=data"], "shardings need a mesh"), (["--mesh", "data=3", "--in-sharding", "x=data"], "dimension 0 of size 16 cannot be split over 3"),
    (["--mesh", "data=2", "--in-sharding", "z=data"], "names nothing"), (["--mesh", "data:2"], "is not an axis"),
    (["--mesh", "data=2", "--in-sharding", "x"], "write WHICH=AXES"), (["--mesh", "data=8", "-t", "tpu:v5e:2x2"], "the mesh has 8 devices"),
])
def test_wrong_options(project, options, message):
    error = aot("compile", "m.py:predict", *ARGS, *options, ok=False)
    assert message in error or "libtpu is not installed" in error and "tpu:v5e:2x2" in options, error


@pytest.mark.parametrize("target", ["tpu:v5e:4x4", "cuda:h100"])
@pytest.mark.skipif(not (targets.plugin_path("tpu") and targets.plugin_path("cuda")), reason="needs the extras cuda and tpu")
def test_targets_that_are_not_here(project, target):
    aot("compile", "m.py:predict", *ARGS, *RULES, "-t", target, "-o", "t.aot")
    exe = aot_runtime.load("t.aot").manifest["functions"]["predict"]["executables"][0]
    assert exe["devices"] == 8 and exe["memory"]["argument"] and exe["collectives"]["all-reduce"]["count"] == 2


JOINED = """
import sys
import numpy as np, aot_runtime
aot_runtime.join(f"127.0.0.1:{sys.argv[1]}", 2, int(sys.argv[2]), timeout=60)
rng = np.random.default_rng(0)
params = [{"w": rng.standard_normal(s).astype(np.float32), "b": rng.standard_normal(s[1:]).astype(np.float32)} for s in ((8, 16), (16, 4))]
x = rng.standard_normal((16, 8)).astype(np.float32)
one = aot_runtime.load("one.aot")["predict"](params, x)
for strict in (True, False):
    artifact = aot_runtime.load("s.aot", strict=strict)
    if not strict:
        artifact.manifest["functions"]["predict"]["executables"] = []
    f = artifact["predict"]
    for _ in range(3):
        y = f(params, x)
        assert np.allclose(y["y"], one["y"], atol=1e-6) and np.allclose(y["mean"], one["mean"])
try:
    aot_runtime.load("parts.aot")["predict"]
except aot_runtime.AotError as e:
    print(e)
"""


def test_two_processes_share_out_a_function(project):
    """The same results in each; results of which a process would have parts are refused."""
    aot("compile", "m.py:predict", *ARGS, "-o", "one.aot")
    aot("compile", "m.py:predict", *ARGS, *RULES, "--out-sharding", "result.*=-", "-o", "s.aot")
    aot("compile", "m.py:predict", *ARGS, *RULES, "--out-sharding", "result.y=data", "-o", "parts.aot")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    processes = [subprocess.Popen([sys.executable, "-c", JOINED, port, str(i)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                 for i in range(2)]
    try:
        for p in processes:
            out, err = p.communicate(timeout=120)
            assert p.returncode == 0, err
            assert "this process would have only parts of" in out and "--out-sharding" in out
    finally:
        for p in processes:
            p.kill()
