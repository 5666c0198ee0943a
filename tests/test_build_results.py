"""Finished builds in the cache: an artifact whose sources are what they were is copied; and variables as dependencies."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import aot_runtime
from aot import cache
from aot.project import dependencies
from tests.projects import MANIFEST, MODEL, append, edit, forget_builds, hits, why, write_project

HITS = {("predict", "cpu"): True, ("square", "cpu"): True}


def is_copied(found):
    """Whether a build was taken from the cache: nothing was started for it."""
    assert "artifact" in found
    return "started" not in found


def clean(): shutil.rmtree("build")


def test_what_was_built_is_copied(copy, aot, events):
    before = {p: Path(p).read_bytes() for p in ("build/predict.aot", "build/square.aot", "aot.lock")}
    assert aot("clean")[0] == 0
    os.remove("aot.lock")
    found = events("-j", 1)
    assert is_copied(found) and hits(found) == HITS and why(found) == dict.fromkeys(["predict.aot", "square.aot"], "not built yet")
    assert before == {p: Path(p).read_bytes() for p in before}
    assert "stale" not in events() and aot("verify", "build/predict.aot")[0] == 0
    clean()
    code, out, err = aot("build")
    assert code == 0 and out == "build/predict.aot: predict(x) -> f32[3,2]\nbuild/square.aot: square(x) -> f32[4]\n"
    assert "predict for cpu: from the cache" in err and "2 built in" in err


#  what changes, what is then made again
CHANGES = {"a comment": (append("model.py"), {"predict", "square"}), "a module of one": (append("layers.py"), {"predict", "square"}),
           "the weights": (lambda p: np.savez(p / "params.npz", w1=np.ones((8, 4), "f"), w2=np.ones((4, 2), "f")), {"predict"}),
           "a type": (edit("aot.toml", "f32[4]", "f32[5]"), {"square"}),
           "a target": (edit("aot.toml", 'args = ["f32[4]"]', 'args = ["f32[4]"]\ntargets = ["cpu", "cpu:x86-64-v2"]'), {"square"})}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_is_made_again_and_back_again_is_copied(change, copy, events):
    make, again = CHANGES[change]
    files = {p: Path(p).read_bytes() for p in ("model.py", "layers.py", "params.npz", "aot.toml", "build/predict.aot", "build/square.aot")}
    make(copy)
    clean()
    assert {e["function"] for e in events().get("started", ())} == again
    changed = {p: Path(p).read_bytes() for p in files}
    for state in (files, changed, files):       # both are known now
        for p, data in state.items():
            if not p.startswith("build/"):
                Path(p).write_bytes(data)
        clean()
        assert is_copied(events()) and {p: Path(p).read_bytes() for p in files} == state


def test_force_makes_it_again(copy, events):
    assert not is_copied(events("--force"))
    clean()
    assert not is_copied(events("--no-cache"))


def test_other_tools_and_other_hosts(copy, events, monkeypatch):
    for module, name, other in ((aot_runtime, "host_info", {**aot_runtime.host_info(), "cpu_features": ["avx2"]}), (dependencies, "compiler_contents", "another version")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, lambda other=other: other)
            clean()
            assert not is_copied(events())
    clean()
    assert is_copied(events())


def test_a_damaged_or_missing_file_is_made_again_and_kept_again(copy, events):
    def entries(): return [e.path for e in store.entries() if store.header(e)["fields"]["kind"] == "file"]
    store = cache.from_environment()
    for spoil in (lambda p: p.write_bytes(p.read_bytes()[:-40] + b"x" * 40), lambda p: p.unlink()):
        for path in map(Path, entries()):
            spoil(path)
        clean()
        assert not is_copied(events())
        clean()
        assert is_copied(events())


def test_what_is_large_and_what_a_cache_does_not_take_is_not_kept(copy, events, monkeypatch):
    cache.from_environment().clear()
    monkeypatch.setenv("AOT_CACHE_MAX_SIZE", "200K")            # an artifact has 10 KB, the least that is too large is 4 KB
    clean()
    events()
    store = cache.from_environment()
    assert {store.header(e)["fields"]["kind"] for e in store.entries()} == {"executable"}
    monkeypatch.delenv("AOT_CACHE_MAX_SIZE")
    monkeypatch.setenv("AOT_CACHE_READONLY", "1")
    for _ in range(2):
        clean()
        assert not is_copied(events())


def test_a_source_that_changes_during_the_build_is_not_kept(copy, events):
    edit("model.py", "return x * x", "open(__file__, 'a').write('# later'); return x * x")(copy)
    events("square")
    text = Path("model.py").read_text()
    clean()
    Path("model.py").write_text(text.removesuffix("# later"))
    assert not is_copied(events("square"))


def test_a_lock_that_does_not_fit_leaves_nothing_behind(copy, aot, events):
    before = Path("aot.lock").read_text()
    Path("aot.lock").write_text(before.replace("square(x) -> f32[4]", "square(x) -> f32[5]"))
    clean()
    code, _, err = aot("build", "--locked", "--keep-going")
    assert code == 1 and "the signature of square differs from aot.lock" in err
    assert not os.path.exists("build/square.aot") and os.path.exists("build/predict.aot")
    Path("aot.lock").write_text(before)
    clean()
    assert is_copied(events("--locked"))


def test_artifacts_name_the_revision_that_is_here(project, events):
    def git(*args): subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *args], check=True, capture_output=True)
    def provenance(): return aot_runtime.load("build/square.aot").manifest["provenance"]
    git("init", "-q"), git("add", "model.py", "layers.py", "aot.toml"), git("commit", "-qm", "first")
    events()
    first, data = provenance(), Path("build/square.aot").read_bytes()
    Path("README").write_text("words")
    git("add", "README"), git("commit", "-qm", "second")
    clean()
    assert is_copied(events())
    second = provenance()
    assert first["revision"] != second["revision"] and not second["modified"]
    copied = Path("build/square.aot").read_bytes()
    clean(), forget_builds()
    assert not is_copied(events()) and Path("build/square.aot").read_bytes() == copied
    git("checkout", "-q", "HEAD~1")
    clean()
    assert is_copied(events()) and Path("build/square.aot").read_bytes() == data


MARKED = """\
import aot, aot.numpy as jnp

@aot.entry(args=["f32[2]"], targets=["cpu", "c", "stablehlo"])
def cube(x): return x ** 3
"""


def test_marked_functions_files_of_other_formats_and_separate_weights(project, aot, events):
    manifest = MANIFEST.replace('name = "demo"', 'name = "demo"\nmodules = ["marked.py"]').replace(
        'weights = "params.npz"', 'weights = "params.npz"\nweights_mode = "separate"')
    write_project(project, manifest, **{"marked.py": MARKED})
    events()
    before = {p: p.read_bytes() for p in Path("build").iterdir() if p.is_file()}
    assert {p.name for p in before} == {"predict.aot", "predict.weights.safetensors", "square.aot", "cube.aot", "cube.c", "cube.h"}
    clean()
    assert is_copied(events())
    assert before == {p: p.read_bytes() for p in Path("build").iterdir() if p.is_file()}
    assert "stale" not in events()
    edit("marked.py", "x ** 3", "x ** 4")(project)
    clean()
    assert {e["function"] for e in events()["started"]} == {"cube"}


# ---- variables -----------------------------------------------------------------------------------------------------

READS = {"get": 'os.environ.get("FACTOR", "2")', "getenv": 'os.getenv("FACTOR") or 2', "in": '3 if "FACTOR" in os.environ else 2',
         "item": 'os.environ["FACTOR"]', "setdefault": 'os.environ.setdefault("FACTOR", "2")', "pop": 'os.environ.pop("FACTOR", 2)'}


@pytest.mark.parametrize("how", READS)
def test_variables_that_a_module_asks_for_are_dependencies(how, project, events, monkeypatch):
    monkeypatch.setenv("FACTOR", "3")
    Path("model.py").write_text("import os\n" + MODEL.replace("x * x", f"x * float(FACTOR)\n\nFACTOR = {READS[how]}"))
    def result(): return aot_runtime.load("build/square.aot")["square"](np.ones(4, "f"))[0]
    events("square")
    first = result()
    assert "stale" not in events("square")
    monkeypatch.setenv("FACTOR", "5")
    if how != "in":
        assert why(events("square")) == {"square.aot": "the variable FACTOR changed"} and result() == 5
    if how != "item":
        monkeypatch.delenv("FACTOR")
        assert why(events("square")) == {"square.aot": "the variable FACTOR changed"} and result() == 2
        assert "stale" not in events("square")
    monkeypatch.setenv("FACTOR", "3")
    found = events("square")
    assert is_copied(found) and result() == first == 3
    assert "3" not in {str(v) for v in json.loads(Path("build/.aot/state.json").read_text())["records"]["build/square.aot"]["variables"].values()}


def test_variables_that_do_not_count(project, events, monkeypatch):
    Path("model.py").write_text("import os, getpass, tempfile\n" + MODEL + """
HERE, EVERYTHING, COPY = os.environ.get("HOME"), {**os.environ}, os.environ.copy()
ITEMS = [v for k, v in os.environ.items()] + [os.environ[k] for k in os.environ]
tempfile.gettempdir(), os.path.expandvars("$HOME")
""")
    monkeypatch.setenv("RUN_ID", "1")
    events("square")
    monkeypatch.setenv("RUN_ID", "2"), monkeypatch.setenv("HOME", "/elsewhere")
    assert "stale" not in events("square")
    assert json.loads(Path("build/.aot/state.json").read_text())["records"]["build/square.aot"]["variables"] == {}


def test_looking_for_packages_is_no_dependency(project, events):
    Path("model.py").write_text("import importlib.metadata, pkgutil\nimport layers\nimportlib.metadata.version('numpy')\n"
                                "list(importlib.metadata.entry_points(group='x')), list(pkgutil.iter_modules(['.']))\n" + MODEL)
    events("square")
    Path("other.py").write_text("")
    assert "stale" not in events("square")


def test_what_the_module_sets_itself_is_no_dependency(project, events, monkeypatch):
    Path("model.py").write_text("import os\nos.environ['FACTOR'] = '2'\n" + MODEL.replace("x * x", "x * float(os.environ['FACTOR'])"))
    events("square")
    assert "stale" not in events("square")


# ---- files that libraries open themselves --------------------------------------------------------------------------

NATIVE = "import ctypes\n\ndef read(path):\n    c = ctypes.CDLL(None)\n    assert c.close(c.open(path.encode(), 0)) == 0\n"

#  module, file that it reads, files of the project that are dependencies then
UNSEEN = {"h5py": ("w.h5", ["w.h5", "other.H5"]), "pyarrow": ("deep/t.parquet", ["deep/t.parquet"]),
          "tensorstore": ("ckpt/d/0", ["ckpt/manifest.ocdbt", "ckpt/d/0", "ckpt/d/e/1"])}


@pytest.mark.parametrize("module", UNSEEN)
def test_files_that_native_code_reads(module, project, events):
    name, expected = UNSEEN[module]
    Path(f"{module}.py").write_text(NATIVE)
    Path("model.py").write_text(f"import {module}\n{module}.read({name!r})\n" + MODEL)
    for path in ("w.h5", "other.H5", "deep/t.parquet", "ckpt/manifest.ocdbt", "ckpt/d/0", "ckpt/d/e/1", "notes.txt",
                 "env/pyvenv.cfg", "env/x.h5", ".git/x.parquet", "build/x.h5"):
        Path(path).parent.mkdir(exist_ok=True, parents=True)
        Path(path).write_text("1")
    events("square")
    record = json.loads(Path("build/.aot/state.json").read_text())["records"]["build/square.aot"]
    assert sorted(record["files"]) == sorted(["model.py", "layers.py", f"{module}.py", *expected])
    Path(name).write_text("2")
    assert why(events("square")) == {"square.aot": f"{name} changed"} and "stale" not in events("square")


@pytest.mark.parametrize("how", ["from safetensors.numpy import load_file", "import safetensors.numpy; load_file = safetensors.numpy.load_file",
                                 "import safetensors; load_file = lambda p: safetensors.safe_open(p, 'np').get_tensors()"])
def test_safetensors_that_a_module_reads(how, project, events, tmp_path):
    from safetensors.numpy import save_file
    path = tmp_path / "elsewhere" / "w.safetensors"
    path.parent.mkdir()
    Path("model.py").write_text(f"{how}\nW = load_file({str(path)!r})['w']\n" + MODEL.replace("x * x", "x * W"))
    for value in (2, 3):
        save_file({"w": np.full(4, value, "f")}, path)
        assert "artifact" in events("square")
        assert aot_runtime.load("build/square.aot")["square"](np.ones(4, "f"))[0] == value
    assert "stale" not in events("square")


LISTS = {"glob": "import glob; N = len(glob.glob('data/*.npy'))", "pathlib": "from pathlib import Path; N = len(list(Path('data').glob('*')))",
         "listdir": "import os; N = len(os.listdir('data'))", "walk": "import os; N = sum(len(f) for _, _, f in os.walk('data'))",
         "scandir": "import os; N = len(list(os.scandir('data')))", "here": "import os; os.listdir(); N = len(os.listdir('data'))"}


@pytest.mark.parametrize("how", LISTS)
def test_folders_that_a_module_looks_through(how, project, events):
    os.mkdir("data")
    np.save("data/a.npy", 1)
    Path("model.py").write_text(f"{LISTS[how]}\n" + MODEL.replace("x * x", "x * N"))
    def result(): return aot_runtime.load("build/square.aot")["square"](np.ones(4, "f"))[0]
    events("square")
    assert result() == 1 and "stale" not in events("square")
    Path("data/.hidden").write_text(""), os.mkdir(".cache")
    assert "stale" not in events("square") and "stale" in events("predict")
    os.remove("data/.hidden")
    np.save("data/b.npy", 1)
    assert why(events("square")) == {"square.aot": "what is in data changed"} and result() == 2
    os.remove("data/b.npy")
    assert is_copied(events("square")) and result() == 1
