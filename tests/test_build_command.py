"""`aot build` and its neighbours: what is built when, from which files, and what happens when something fails."""
from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import aot_runtime
from aot.cli import main

MODEL = """\
import aot.numpy as jnp
from layers import dense

def predict(params, x):
    return dense(jnp.tanh(dense(x, params["w1"])), params["w2"])

def square(x):
    return x * x

def argument_specs():
    return {"params": {"w1": "f32[8,4]", "w2": "f32[4,2]"}, "x": "f32[2,8]"}
"""
LAYERS = "def dense(x, w):\n    return x @ w\n"
MANIFEST = """\
[project]
name = "demo"

[[function]]
function = "model.py:predict"
args = ["f32[3,8]"]
weights = "params.npz"

[[function]]
function = "model.py:square"
args = ["f32[4]"]
"""
RNG = np.random.default_rng(0)
PARAMS = {"w1": RNG.normal(size=(8, 4)).astype("f"), "w2": RNG.normal(size=(4, 2)).astype("f")}


def write_project(folder, manifest=MANIFEST, **files):
    folder.mkdir(exist_ok=True)
    for name, text in {"model.py": MODEL, "layers.py": LAYERS, "aot.toml": manifest, **files}.items():
        (folder / name).write_text(text)
    np.savez(folder / "params.npz", **PARAMS)
    return folder


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of two functions, in the working directory, with a cache of its own."""
    monkeypatch.setenv("AOT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(write_project(tmp_path / "project"))
    return tmp_path / "project"


@pytest.fixture
def aot(capfd):
    """Run a command: (exit code, stdout, stderr)."""
    def run(*args):
        code = main(list(map(str, args)))
        out, err = capfd.readouterr()
        return code, out, err
    return run


@pytest.fixture
def events(aot):
    """Build and return the events by reason, which --message-format json prints."""
    def run(*args, code=0):
        got, out, err = aot("build", *args, "--message-format", "json")
        assert got == code, (out, err)
        found = {}
        for line in out.splitlines():
            e = json.loads(line)
            found.setdefault(e["reason"], []).append(e)
        return found
    return run


def why(found): return {os.path.basename(e["artifact"]): e["why"] for e in found.get("stale", [])}


def hits(found): return {(e["function"], e["target"]): e["hit"] for e in found.get("compiled", [])}


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


def edit(name, old, new):
    def change(p): (p / name).write_text((p / name).read_text().replace(old, new))
    return change


def append(name, text="\n# a comment\n"):
    def change(p): (p / name).write_text((p / name).read_text() + text)
    return change


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


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A built project, to be copied."""
    folder = write_project(tmp_path_factory.mktemp("built") / "project")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOT_CACHE_DIR", str(folder.parent / "cache"))
        patch.chdir(folder)
        assert main(["build"]) == 0
    return folder


@pytest.fixture
def copy(built, tmp_path, monkeypatch):
    """A copy of it in another folder, times included, and of its cache."""
    shutil.copytree(built.parent, tmp_path / "copy", dirs_exist_ok=True)
    monkeypatch.setenv("AOT_CACHE_DIR", str(tmp_path / "copy/cache"))
    monkeypatch.chdir(tmp_path / "copy/project")
    return tmp_path / "copy/project"


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


def test_a_checkout_elsewhere_hits_and_is_equal_to_the_byte(copy, built, events):
    shutil.rmtree("build")
    os.remove("aot.lock")
    assert all(hits(events("--require-cache-hit")).values())
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
    assert aot("clean")[0] == 0 and not os.path.exists("build") and os.path.exists("model.py")
    assert all(hits(events("--require-cache-hit")).values())
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


# ---- failures ------------------------------------------------------------------------------------------------------

BROKEN = """\
import os, signal, time
import aot.numpy as jnp

def fine(x): return x + 1
def raises(x):
    return fine(x) @ jnp.ones((3, 3))
def crashes(x): os.kill(os.getpid(), signal.SIGSEGV)
def eats(x): os.kill(os.getpid(), signal.SIGKILL)
def leaves(x): os._exit(7)
def exits(x): raise SystemExit("goodbye")
def hangs(x):
    print("before", flush=True)
    time.sleep(60)
def wants(x, y): return x
def talks(x): print("a word"); return x.reshape(7)
def memory(x): raise MemoryError
"""

#: function, exit code, what stderr contains
FAILURES = [
    ("raises", 4, ['broken.py", line 6, in raises', "error: raises for cpu: the function raised"]),
    ("crashes", 1, ["error: crashes for cpu: the worker was killed by SIGSEGV"]),
    ("eats", 1, ["the worker was killed by SIGKILL, probably for lack of memory"]),
    ("leaves", 1, ["the worker ended with status 7 before it was done"]),
    ("exits", 4, ["SystemExit: goodbye"]),
    ("hangs", 1, ["took longer than 2 seconds\nhint: its output is in build/.aot/log/hangs-cpu-lower.log"]),
    ("wants", 1, ["error: wants for cpu: wants: nothing given for parameter 'y'\nhint: its signature is wants(x, y)"]),
    ("talks", 4, ["hint: its output is in build/.aot/log/talks-cpu-lower.log"]),
    ("memory", 1, ["ran out of memory"]),
    ("nowhere", 1, ["module 'broken.py' has no 'nowhere'"]),
]


def test_a_failure_fails_its_function_and_nothing_else(tmp_path, monkeypatch, aot):
    names = [f[0] for f in FAILURES] + ["fine"]
    functions = "".join(f"[[function]]\nfunction = 'broken.py:{n}'\nargs = ['f32[2]']\n" for n in names)
    folder = write_project(tmp_path / "p", f"[project]\nname = 'broken'\n{functions}", **{"broken.py": BROKEN})
    monkeypatch.chdir(folder)
    code, out, err = aot("build", "--keep-going", "--timeout", 2, "-j", 3)
    assert code == 4 and out == "build/fine.aot: fine(x) -> f32[2]\n" and f"1 built, {len(FAILURES)} failed" in err
    for name, _, messages in FAILURES:
        for message in messages:
            assert message in err, (name, err)
        assert not os.path.exists(f"build/{name}.aot")
    assert not list(Path("build").glob("*.tmp")) and not list(Path("build/.aot").glob("stage*"))
    for name in ("raises", "crashes", "wants"):
        assert aot("build", name)[0] == next(f[1] for f in FAILURES if f[0] == name)
    assert aot("build", "fine")[2].startswith("1 up to date")


def test_a_failure_keeps_the_old_artifact(copy, aot):
    before = Path("build/square.aot").read_bytes()
    edit("model.py", "return x * x", "return x * y")(copy)
    code, _, err = aot("build", "square")
    assert code == 4 and "NameError: name 'y' is not defined" in err and Path("build/square.aot").read_bytes() == before
    edit("model.py", "return x * y", "return x * x")(copy)
    assert aot("build", "square")[2].startswith("1 up to date")


def test_a_module_that_does_not_import(copy, aot):
    append("model.py", "\nimport nosuchpackage\n")(copy)
    code, _, err = aot("build", "-k")
    assert code == 4 and "ModuleNotFoundError: No module named 'nosuchpackage'" in err and "2 failed" in err
    edit("aot.toml", 'name = "demo"', 'name = "demo"\nmodules = ["layers.py"]')(copy)
    code, _, err = aot("build")
    assert code == 1 and "error: layers.py: it marks no function with @aot.entry\nhint: remove it from `modules`" in err


def test_an_output_folder_that_cannot_be_written(project, aot):
    Path("build").write_text("")
    code, out, err = aot("build")
    assert code == 1 and "error: build: cannot be written: " in err and not out


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_a_full_disk(built, tmp_path, aot, monkeypatch):
    """Wherever the space runs out: an error, and the artifact of before."""
    monkeypatch.setenv("AOT_CACHE_DIR", str(built.parent / "cache"))
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], capture_output=True).returncode:
        pytest.skip("cannot mount")
    try:
        folder = shutil.copytree(built, tmp_path / "p")
        monkeypatch.chdir(folder)
        before = Path("build/square.aot").read_bytes()
        append("model.py")(folder)
        for room in (60_000, 36_000, 16_000, 4_000):
            free = shutil.disk_usage(".").free
            Path("filler").write_bytes(bytes(free - room))
            code, out, err = aot("build", "square", "--force")
            assert code == 0 or code == 1 and "cannot be written: No space left on device" in err, err
            assert len(Path("build/square.aot").read_bytes()) == len(before)
            aot_runtime.load("build/square.aot").verify()
            assert not list(Path("build").glob("*.tmp"))
            os.remove("filler")
        assert code == 1 and aot("build", "square")[0] == 0
    finally:
        os.chdir("/")
        subprocess.run(["umount", "-l", tmp_path])


def _processes(folder):
    """The processes whose working directory lies in a folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                zombie = f.read().rpartition(")")[2].split()[0] == "Z"
            if os.readlink(f"/proc/{pid}/cwd").startswith(str(folder)) and not zombie:
                found.append(int(pid))
        except OSError:
            pass
    return found


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_build_leaves_nothing(how, tmp_path):
    manifest = "[project]\nname = 'b'\n" + "".join(
        f"[[function]]\nname = '{n}'\nfunction = 'broken.py:{n}'\nargs = ['f32[2]']\n" for n in ("fine", "hangs"))
    folder = write_project(tmp_path / "p", manifest, **{"broken.py": BROKEN})
    code = "import sys; from aot.cli import main; sys.exit(main(['build', '-j', '2']))"
    build = subprocess.Popen([sys.executable, "-c", code], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             start_new_session=True)
    log = folder / "build/.aot/log/hangs-cpu-lower.log"
    deadline = time.monotonic() + 30
    while not ((folder / "build/fine.aot").exists() and log.exists() and log.read_text()):
        assert time.monotonic() < deadline and build.poll() is None
        time.sleep(0.05)
    os.killpg(build.pid, how)
    build.communicate(timeout=20)
    assert build.returncode == (130 if how == signal.SIGINT else -9)
    while _processes(folder):
        assert time.monotonic() < deadline + 10, "an orphan"
        time.sleep(0.05)
    aot_runtime.load(folder / "build/fine.aot").verify()
    assert not list(folder.rglob("*.tmp"))
    if how == signal.SIGINT:
        assert not list(folder.glob("build/.aot/stage*"))


def test_what_killed_builds_left_is_removed(copy, aot):
    dead, alive = 2**31 - 1, os.getppid()
    left = ["build/.aot/stage-{}", "build/.aot/state.json.{}.tmp", "build/square.aot.{}.tmp", "aot.lock.{}.tmp"]
    for pid in (dead, alive):
        os.mkdir(left[0].format(pid))
        for name in left[1:]:
            Path(name.format(pid)).touch()
    assert aot("build")[0] == 0
    assert [os.path.exists(name.format(pid)) for pid in (dead, alive) for name in left] == [False] * 4 + [True] * 4


def test_two_builds_at_once(copy):
    shutil.rmtree("build")
    code = "import sys; from aot.cli import main; sys.exit(main(['build', '-j', '1']))"
    running = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) for _ in range(3)]
    for p in running:
        _, err = p.communicate(timeout=60)
        assert p.returncode == 0, err
    for name in ("predict", "square"):
        aot_runtime.load(f"build/{name}.aot").verify()


# ---- the pool ------------------------------------------------------------------------------------------------------

def test_pool(tmp_path):
    from aot.project.pool import Pool
    def task(seconds): return {"do": "sleep", "seconds": seconds, "root": str(tmp_path)}
    with Pool(2) as pool:
        for i, seconds in enumerate([0.4, 0.0, 0.0]):
            pool.submit(task(seconds), log=str(tmp_path / f"{i}"), tag=i)
        assert [pool.next()[0] for _ in range(3)] == [1, 2, 0] and not pool.busy
        pool.submit(task(9), log=str(tmp_path / "late"), tag="late", timeout=0.1)
        assert pool.next()[1] == {"error": {"kind": "timeout", "message": "took longer than 0.1 seconds"}}
        pool.submit({**task(0), "do": "nothing"}, log=str(tmp_path / "x"))
        assert pool.next()[1]["error"]["kind"] == "bug"
        pool.submit(task(9), log=str(tmp_path / "y"))
        assert pool.next(0.1) is None
    assert pool.server is None


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
    assert json.loads(aot("cache", "stats", "--json")[1])["entries"] == 2
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
    assert before == 3 and aot(*args)[0] == 0 and json.loads(aot("cache", "stats", "--json")[1])["entries"] == before


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
