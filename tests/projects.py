"""A small project to build, and fixtures that build it (tests/conftest.py makes them known)."""
from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest

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


def forget_builds():
    """Leave only compiled programs in the cache: finished builds are made again from these."""
    from aot import cache
    store = cache.from_environment()
    for e in store.entries():
        if store.header(e)["fields"]["kind"] in ("build", "file"):
            os.unlink(e.path)


def edit(name, old, new):
    def change(p): (p / name).write_text((p / name).read_text().replace(old, new))
    return change


def append(name, text="\n# a comment\n"):
    def change(p): (p / name).write_text((p / name).read_text() + text)
    return change


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
