"""`aot build` and its neighbours: what is built when, from which files, and the other commands of projects."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import aot_runtime
from tests.projects import MODEL, PARAMS, append, edit, forget_builds, hits, why, write_project

# ---- building, and not building ------------------------------------------------------------------------------------

def test_build_then_nothing_to_do(project, aot):
    code, out, err = aot("build")
    assert code == 0 and sorted(out.splitlines()) == ["build/predict.aot: predict(x) -> f32[3,2]",
                                                      "build/square.aot: square(x) -> f32[4]"]
    assert "predict for cpu: " in err and "2 built in" in err
    x = np.ones((3, 8), "f")
    expected = np.tanh(x @ PARAMS["w1"]) @ PARAMS["w2"]
    assert np.allclose(aot_runtime.load("build/predict.aot", strict=True)["predict"](x), expected, rtol=1e-4)
    assert aot("verify", "build/predict.aot")[0] == 0
    assert not list(Path("build/.aot").glob("stage*"))
    code, out, err = aot("build")
    assert (code, out) == (0, "") and err.startswith("2 up to date in")
    (project / "sub").mkdir()
    os.chdir(project / "sub")
    assert aot("build")[2].startswith("2 up to date in")


#: change, {artifact that is built again: why}, {(function, target): whether the cache has its executable}
CHANGES = {
    "comment": (append("model.py"), {"predict.aot": "model.py changed", "square.aot": "model.py changed"},
                {("predict", "cpu"): True, ("square", "cpu"): True}),
    "touch": (lambda p: os.utime(p / "model.py"), {}, {}),
    "imported file": (edit("layers.py", "x @ w", "x @ w + 1"),
                      {"predict.aot": "layers.py changed", "square.aot": "layers.py changed"},
                      {("predict", "cpu"): False, ("square", "cpu"): True}),
    "weights": (lambda p: np.savez(p / "params.npz", w1=PARAMS["w1"] + 1, w2=PARAMS["w2"]),
                {"predict.aot": "params.npz changed"}, {("predict", "cpu"): True}),
    "argument": (edit("aot.toml", "f32[4]", "f32[5]"), {"square.aot": "items[0].args[0] changed"}, {("square", "cpu"): False}),
    "comment in the manifest": (append("aot.toml"), {}, {}),
    "xla flag": (append("aot.toml", 'xla_flags = {xla_cpu_enable_fast_math = true}'),
                 {"square.aot": "items[0].xla_flags.xla_cpu_enable_fast_math changed"}, {("square", "cpu"): False}),
    "artifact removed": (lambda p: (p / "build/square.aot").unlink(), {"square.aot": "build/square.aot is missing"},
                         {("square", "cpu"): True}),
    "artifact edited": (append("build/square.aot".replace("/", os.sep), ""), {"square.aot": "build/square.aot is not what was written"},
                        {("square", "cpu"): True}),
    "state damaged": (lambda p: (p / "build/.aot/state.json").write_text("{"),
                      {"predict.aot": "not built yet", "square.aot": "not built yet"},
                      {("predict", "cpu"): True, ("square", "cpu"): True}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_built_again(change, copy, events):
    make, stale, cached = CHANGES[change]
    if change == "artifact edited":
        data = (copy / "build/square.aot").read_bytes()
        (copy / "build/square.aot").write_bytes(data + b"x")
    else:
        make(copy)
    found = events()
    assert why(found) == stale and hits(found) == cached
    assert "stale" not in events()


@pytest.mark.parametrize("again", ["copied", "made again"])
def test_a_checkout_elsewhere_hits_and_is_equal_to_the_byte(copy, built, events, again):
    shutil.rmtree("build")
    os.remove("aot.lock")
    if again == "made again":
        forget_builds()
    assert hits(events("--require-cache-hit")) == {("predict", "cpu"): True, ("square", "cpu"): True}
    for name in ("build/predict.aot", "build/square.aot", "aot.lock"):
        assert (copy / name).read_bytes() == (built / name).read_bytes()


def test_the_program_is_equal_to_the_byte_without_the_cache(copy, built, events):
    shutil.rmtree("build")
    events("--no-cache")
    def program(p): return bytes(aot_runtime.load(p / "build/predict.aot").member("program/predict.mlirbc"))
    assert program(copy) == program(built)


def test_a_file_that_changes_during_the_build(copy, events):
    edit("model.py", "return x * x", "open(__file__, 'a').write('# later'); return x * x")(copy)
    assert why(events("square"))["square.aot"] == "model.py changed"
    assert why(events("square"))["square.aot"] == "model.py changed during the build"


def test_clean_then_warm(copy, aot, events):
    for step in (forget_builds, lambda: None):
        step()
        assert aot("clean")[0] == 0 and not os.path.exists("build") and os.path.exists("model.py")
        assert hits(events("--require-cache-hit")) == {("predict", "cpu"): True, ("square", "cpu"): True}
    aot("cache", "clear")
    assert aot("clean")[0] == 0
    code, out, err = aot("build", "--require-cache-hit")
    assert code == 1 and "is not in the cache, and --require-cache-hit was given\nhint: aot cache explain" in err
    assert not os.path.exists("build/predict.aot")


def test_the_environment_counts(copy, events, monkeypatch):
    monkeypatch.setenv("AOT_DEFAULT_MATMUL_PRECISION", "highest")
    assert set(why(events()).values()) == {"environment.AOT_DEFAULT_MATMUL_PRECISION changed"}


def test_nothing_to_do_imports_no_jaxlib(copy):
    code = ("import sys; from aot.cli import main; assert main(['build', '--depfile', 'd']) == 0; "
            "assert not {'numpy', 'jaxlib', 'rich', 'ml_dtypes'} & set(sys.modules)")
    for _ in range(3):
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        if "compiler changed" not in result.stderr:  # somebody is working on it just now
            break
    assert result.returncode == 0 and "2 up to date" in result.stderr, result.stderr


def test_depfile(copy, aot):
    assert aot("build", "--depfile", "deps.mk")[0] == 0
    rules = Path("deps.mk").read_text()
    assert "build/predict.aot: layers.py model.py params.npz\n" in rules and "\nmodel.py:\n" in rules
    Path("Makefile").write_text("all: build/predict.aot\nbuild/predict.aot:\n\t@echo again\ninclude deps.mk\n")
    def make(): return subprocess.run(["make", "-s"], capture_output=True, text=True).stdout
    assert make() == ""
    os.utime("layers.py")
    assert make() == "again\n"


def test_file_names_for_make():
    from aot.project.state import escape
    assert escape("a b$c#d:e") == r"a\ b$$c\#d\:e"


# ---- choosing ------------------------------------------------------------------------------------------------------

def test_names_targets_profiles(copy, aot, events):
    found = events("square", "--target", "cpu:x86-64-v2", "--target", "stablehlo")
    assert why(found) == {"square.aot": "items[0].targets changed"} and set(hits(found)) == {("square", "cpu:x86-64-v2")}
    exe = aot_runtime.load("build/square.aot").manifest["functions"]["square"]["executables"][0]
    assert exe["target"] == "cpu:x86-64-v2" and not [f for f in exe["cpu_features"] if f.startswith("avx")]
    assert aot("verify", "--strict", "build/square.aot")[0] == 0
    found = events("--profile", "dev", "predict.aot")
    assert why(found) == {"predict.aot": "not built yet"} and os.path.exists("build/dev/predict.aot")
    assert aot_runtime.load("build/dev/predict.aot").golden("predict") is None


WRONG = [
    (["cube"], "aot.toml has no function 'cube'\nhint: it has: predict, square"),
    (["--profile", "nightly"], "there is no profile 'nightly'\nhint: there are: dev, release"),
    (["--target", "abacus"], "unknown target 'abacus'\nhint: targets are cpu"),
    (["--manifest", "none.toml"], "none.toml: cannot be read"),
]


@pytest.mark.parametrize("args, message", WRONG)
def test_requests_that_cannot_be_carried_out(args, message, copy, aot):
    code, out, err = aot("build", *args)
    assert code == 1 and message in err and not out


def test_a_target_that_needs_an_extra(copy, aot, monkeypatch):
    from aot import targets
    monkeypatch.setattr(targets, "plugin_path", lambda kind: None)
    append("aot.toml", "targets = ['cuda:h100']")(copy)
    code, _, err = aot("build")
    assert code == 1 and ("aot.toml:12: function[1].targets: cannot build for cuda:h100: jax-cuda12-plugin is not "
                          "installed\nhint: pip install 'aotc[cuda]'") in err
    append("aot.toml", "\n[profile.tpu]\ntargets = ['tpu:v5e']")(copy)
    assert "aot.toml:14: profile.tpu.targets: cannot build for tpu:v5e: " in aot("build", "--profile", "tpu")[2]


def test_lock(copy, aot):
    lock = Path("aot.lock").read_text()
    assert 'jaxlib = "' in lock and '[function."predict"]\nsignature = "predict(x) -> f32[3,2]"' in lock
    assert aot("build", "--locked")[0] == 0
    append("model.py")(copy)
    assert aot("build", "--locked")[0] == 0 and Path("aot.lock").read_text() == lock
    edit("model.py", "x * x", "x * x * x")(copy)
    code, _, err = aot("build", "--locked")
    assert code == 1 and "the program of square differs from aot.lock" in err
    assert aot("build")[0] == 0 and Path("aot.lock").read_text() != lock
    edit("aot.lock", 'jaxlib = "', 'jaxlib = "9')(copy)
    assert "aot.lock was written with jaxlib 9" in aot("build", "--locked")[2]
    os.remove("aot.lock")
    assert "there is no aot.lock" in aot("build", "--locked")[2]


def test_a_plugin_matters_only_to_its_targets(copy, events, monkeypatch):
    from aot.project import dependencies
    found = {**dependencies.tools(), "libtpu": "9.9"}
    monkeypatch.setattr(dependencies, "tools", lambda: found)
    assert "stale" not in events()
    found = {**found, "jaxlib": "9.9"}
    assert set(why(events()).values()) == {"tools.jaxlib changed"}


def test_timings_and_json(copy, aot, events):
    code, _, err = aot("build", "--force", "--timings")
    assert code == 0 and "of which XLA" in err and "from the cache" in err
    found = events()
    assert [e["artifact"] for e in found["fresh"]] == ["build/predict.aot", "build/square.aot"]
    assert found["finished"][0]["fresh"] == 2


def test_bars_on_a_terminal(copy):
    import pty
    parent, child = pty.openpty()
    code = "import sys; from aot.cli import main; sys.exit(main(['build', '--force']))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=child,
                               env={**os.environ, "TERM": "xterm"})
    os.close(child)
    shown = b""
    while True:
        try:
            data = os.read(parent, 4096)
        except OSError:
            break
        shown += data
    os.close(parent)
    assert process.wait() == 0 and b"build/square.aot: square(x) -> f32[4]\n" in process.stdout.read()
    assert b"square for cpu" in shown and "\u2501".encode() in shown and b"2 built in" in shown


# ---- everything that a manifest can say ----------------------------------------------------------------------------

FULL = """\
[project]
name = "full"
modules = ["marked.py"]

[[function]]
name = "train"
function = "model.py:loss"
transforms = ["value_and_grad:params"]
artifact = "train.aot"
donate = ["params"]
[[function.signature]]
name = "b1"
args = ['{"w1": f32[8,4], "w2": f32[4,2]}', "f32[1,8]"]
[[function.signature]]
name = "b2"
args = "model.py:argument_specs"

[[function]]
name = "swap"
function = "model.py:predict"
args = ["f32[3,8]"]
weights = {params = "params.npz"}
weights_mode = "separate"

[[function]]
name = "pass"
function = "model.py:predict"
args = ["f32[3,8]"]
weights = "params.npz"
weights_mode = "argument"
targets = ["cpu", "cpu:x86-64-v3"]
golden = ["params.npz", "x.npy"]

[[function]]
name = "wide"
function = "model.py:square"
args = ["f64[2]"]
x64 = true
transforms = ["vmap"]
"""
MARKED = """\
import aot, aot.numpy as jnp

@aot.entry(args=["f32[2]"], static={"n": 3})
def power(x, n): return x ** n
"""


def test_everything_a_manifest_can_say(tmp_path, monkeypatch, aot, events):
    loss = "\ndef loss(params, x): return jnp.mean(predict(params, x) ** 2)\n"
    monkeypatch.chdir(write_project(tmp_path / "p", FULL, **{"model.py": MODEL + loss, "marked.py": MARKED}))
    np.save("x.npy", np.full((3, 8), 0.5, "f"))
    found = events("-j", 2)
    assert {os.path.basename(e["artifact"]) for e in found["artifact"]} == {
        "train.aot", "swap.aot", "pass.aot", "wide.aot", "power.aot"}
    train = aot_runtime.load("build/train.aot")
    assert list(train) == ["train_b1", "train_b2"]
    assert [e.get("donated", False) for e in train.manifest["functions"]["train_b1"]["inputs"]] == [True, True, False]
    value, grads = train["train_b2"](PARAMS, np.ones((2, 8), "f"))
    assert value.shape == () and grads["w1"].shape == (8, 4)
    both = aot_runtime.load("build/pass.aot")
    assert both.signature("pass") == "pass(params, x) -> f32[3,2]"
    assert [t for t, _ in both.fit()["pass"]] == ["cpu", "cpu:x86-64-v3"]
    assert np.array_equal(both.golden("pass")[0][-1], np.load("x.npy")) and aot("verify", "build/pass.aot")[0] == 0
    assert np.array_equal(aot_runtime.load("build/power.aot")["power"](np.array([2, 3], "f")), [8, 27])
    assert aot_runtime.load("build/wide.aot").manifest["functions"]["wide"]["outputs"][0]["dtype"] == "float64"
    assert "stale" not in events()
    assert all(aot("cache", "explain", name)[1].startswith("hit: ") for name in ("train_b2", "wide", "power"))
    _check_separate_weights()
    edit("marked.py", "n\": 3", "n\": 2")(tmp_path / "p")
    assert why(events()) == {"power.aot": "items[0].static.n changed"}


def _check_separate_weights():
    from aot import spec
    x = np.ones((3, 8), "f")
    def expected(w): return np.tanh(x @ w["w1"]) @ w["w2"]
    artifact = aot_runtime.load("build/swap.aot", strict=True)
    assert artifact.manifest["external"]["file"] == "swap.weights.safetensors"
    assert "weights" not in artifact.manifest["members"]
    assert np.allclose(artifact["swap"](x), expected(PARAMS), rtol=1e-4)
    other = {k: v + 1 for k, v in PARAMS.items()}
    spec.write_arrays("other.safetensors", {f"params.{k}": v for k, v in other.items()})
    swapped = aot_runtime.load("build/swap.aot", weights="other.safetensors")
    assert np.allclose(swapped["swap"](x), expected(other), rtol=1e-4)
    spec.write_arrays("wrong.safetensors", {"params.w1": PARAMS["w1"].T.copy(), "params.w2": PARAMS["w2"]})
    with pytest.raises(aot_runtime.AotError, match=r"weight 'params.w1': expected f32\[8,4\], got f32\[4,8\]"):
        aot_runtime.load("build/swap.aot", weights="wrong.safetensors")["swap"]
    with pytest.raises(aot_runtime.AotError, match="not in a separate file"):
        aot_runtime.load("build/pass.aot", weights="other.safetensors")["pass"]


def test_a_date_only_where_it_is_given(copy, events, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    events("square")
    assert aot_runtime.load("build/square.aot").manifest["created"] == "2023-11-14T22:13:20Z"


# ---- the other commands --------------------------------------------------------------------------------------------

def test_init(tmp_path, monkeypatch, aot):
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path)
    os.remove("aot.toml")
    assert aot("init", "model.py:square", "-a", "f32[2]")[0] == 0
    assert aot("build")[1] == "build/square.aot: square(x) -> f32[2]\n"
    assert aot("init")[0] == 1 and json.loads(aot("init", "--schema")[1])["title"] == "aot.toml"


def test_cache_commands(copy, aot):
    assert aot("cache", "dir")[1].strip() == os.environ["AOT_CACHE_DIR"]
    assert json.loads(aot("cache", "stats", "--json")[1])["entries"] == 6
    listed = [(r["name"], r["target"]) for r in json.loads(aot("cache", "list", "--json")[1])]
    assert sorted(listed) == sorted([(f"build/{n}.aot", t) for n in ("predict", "square") for t in ("build", "file")]
                                    + [(f"jit_{n}", "cpu") for n in ("predict", "square")])
    forget_builds()
    assert "2 entries" in aot("cache", "stats")[1]
    assert {r["name"] for r in json.loads(aot("cache", "list", "--json")[1])} == {"jit_predict", "jit_square"}
    assert len(aot("cache", "list")[1].splitlines()) == 2
    assert aot("cache", "explain", "square")[1].startswith("hit: ")
    assert aot("cache", "explain", "model.py:square", "-a", "f32[4]")[1].startswith("hit: ")
    out = aot("cache", "explain", "model.py:square", "-a", "f32[6]")[1]
    assert out.startswith("miss: ") and "\n  program: " in out and "target" not in out
    out = json.loads(aot("cache", "explain", "model.py:square", "-a", "f32[4]", "-t", "cpu:x86-64-v2", "--json")[1])
    assert set(out["changed"]) == {"target", "xla_flags"}
    assert "aot.toml has no function 'cube'\nhint: it has: predict, square" in aot("cache", "explain", "cube")[2]
    assert aot("cache", "verify")[0] == 0
    victim = next(Path(os.environ["AOT_CACHE_DIR"]).glob("v1/??/*"))
    victim.write_bytes(victim.read_bytes()[:-1])
    code, out, err = aot("cache", "verify")
    assert code == 1 and out.strip() == str(victim) and "1 damaged entries, removed" in err
    assert "removed 1 entries" in aot("cache", "prune", "--max-size", "1K")[2]
    assert "removed 0 entries" in aot("cache", "clear")[2]
    assert aot("cache", "prune", "--max-size", "much")[0] == 1


def test_targets_and_doctor(aot, tmp_path, monkeypatch):
    rows = {r["target"]: r for r in json.loads(aot("targets", "--json")[1])}
    assert rows["cpu"]["available"] and {"cuda:a100", "cuda:b200", "tpu:v5p:2x2x1", "cpu:x86-64-v4"} <= set(rows)
    assert "cuda:rtx4090" in aot("targets")[1]
    code, out, err = aot("doctor")
    assert code == 0 and "ok       compiling" in out
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AOT_CACHE_DIR", str(tmp_path / "file"))
    code, out, _ = aot("doctor", "--json")
    assert code == 1 and [r["what"] for r in json.loads(out) if r["state"] == "broken"] == ["cache"]


def test_diff_and_bench(copy, aot):
    shutil.copy("build/square.aot", "before.aot")
    assert aot("diff", "before.aot", "build/square.aot") == (0, "", "")
    edit("model.py", "x * x", "x * x + 1")(copy)
    aot("build", "square")
    code, out, _ = aot("diff", "before.aot", "build/square.aot", "--program")
    assert code == 3 and "square: program: " in out and "  +    %" in out and "recorded output 0: 4 of 4 values" in out
    rows = json.loads(aot("diff", "build/predict.aot", "build/square.aot", "--json")[1])
    assert {r["what"] for r in rows} >= {"function", "weight params.w1"}
    (row,) = json.loads(aot("bench", "build/square.aot", "--seconds", "0.05", "--json")[1])
    assert row["function"] == "square" and row["target"] == "cpu" and 0 < row["best"] <= row["median"] <= row["p95"]
    assert "median" in aot("bench", "build/square.aot", "--seconds", "0.01")[1]


def test_compile_uses_workers_for_other_targets_and_the_cache(copy, aot):
    args = ("compile", "model.py:square", "-a", "f32[4]", "-t", "cpu", "-t", "cpu:x86-64-v3", "-o", "m.aot")
    assert aot(*args)[0] == 0
    assert [t for t, _ in aot_runtime.load("m.aot").fit()["square"]] == ["cpu", "cpu:x86-64-v3"]
    before = json.loads(aot("cache", "stats", "--json")[1])["entries"]
    assert before == 7 and aot(*args)[0] == 0 and json.loads(aot("cache", "stats", "--json")[1])["entries"] == before


# ---- other build systems, and the example --------------------------------------------------------------------------

COMMAND = f"{sys.executable} -c \"import sys; from aot.cli import main; sys.exit(main())\""


def test_rules_for_make(copy, aot):
    rules = aot("make-rules")[1].strip()
    Path("Makefile").write_text(f"all: build/square.aot build/predict.aot\ninclude {rules}\n")
    def make(*args):
        result = subprocess.run(["make", f"AOT={COMMAND}", *args], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        return result.stdout
    shutil.rmtree("build")
    assert "build/predict.aot: predict(x) -> f32[3,2]" in make() and "Nothing to be done" in make()
    append("layers.py", "\nSCALE = 2\n")(copy)
    assert "build/square.aot: square(x)" in make()
    make("aot-clean")
    assert not os.path.exists("build")


def test_rules_for_cmake(copy, aot, tmp_path):
    if shutil.which("cmake") is None:
        pytest.skip("needs cmake")
    rules = aot("make-rules", "--cmake")[1].strip()
    command = tmp_path / "aot"
    command.write_text(f'#!/bin/sh\nexec {COMMAND} "$@"\n')
    command.chmod(0o755)
    Path("CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.20)\nproject(p NONE)\ninclude({rules})\n"
                                      "aot_artifact(square)\n")
    shutil.rmtree("build")
    subprocess.run(["cmake", "-S", ".", "-B", "out", f"-DAOT_COMMAND={command}"], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", "out"], check=True, capture_output=True)
    assert os.path.exists("build/square.aot") and not os.path.exists("build/predict.aot")


def test_the_example_of_targets(tmp_path, monkeypatch, aot):
    """A transformer's training step for this CPU, and for GPUs and TPUs where their plugins are installed."""
    from aot import targets
    example = Path(__file__).resolve().parents[1] / "examples/targets"
    for name in ("model.py", "aot.toml"):
        shutil.copy(example / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    wanted = ["cpu", *(t for t in ("cuda:sm_80", "cuda:h100", "tpu:v5e:2x2", "tpu:v6e:2x2")
                       if targets.plugin_path(t.partition(":")[0]))]
    code, out, err = aot("build", "train_step", *(x for t in wanted for x in ("-t", t)))
    assert code == 0, err
    made = aot_runtime.load("build/train_step.aot").manifest["functions"]["train_step"]["executables"]
    assert [e["target"] for e in made] == wanted and all(e["memory"]["argument"] > 500_000 for e in made)
    assert aot("verify", "build/train_step.aot")[0] == 0
