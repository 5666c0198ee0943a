"""Shared fixtures."""
from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
import zlib
from types import SimpleNamespace

import numpy as np
import pytest

# A suite that runs in the background of a shell inherits SIGINT as ignored, and so would the commands that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["AOT_CACHE_DIR"] = tempfile.mkdtemp(prefix="aot-test-cache-")

from tests.projects import aot, built, copy, events, project  # noqa: F401  fixtures of the tests of projects

atexit.register(shutil.rmtree, os.environ["AOT_CACHE_DIR"], True)


def pytest_collection_modifyitems(config, items):
    """Of the rows of a module with SAMPLED = n, keep one in n, and one of each test at least; all with AOT_ALL_ROWS=1."""
    seen, kept, dropped = set(), [], []
    for item in items:
        n, test = getattr(item.module, "SAMPLED", 1), (item.fspath, item.originalname)
        chosen = n == 1 or test not in seen or zlib.crc32(item.name.encode()) % n == 0
        seen.add(test)
        (kept if chosen or os.environ.get("AOT_ALL_ROWS") else dropped).append(item)
    if dropped and not any("::" in a for a in config.args):
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


@pytest.fixture(autouse=True)
def _options():
    """The command line, run inside of this process, sets options and folders to import from for good: what one test sets, the
    next does not see, and neither do the processes that it starts."""
    from aot.config import OPTIONS, config
    before, path = {o.name: config.read(o.name) for o in OPTIONS}, [*sys.path]
    yield
    sys.path[:] = path
    for name, value in before.items():
        if config.read(name) != value:
            config.update(name, value)


def store(path, text, arguments, result, *, parameters=None, weights=None, executable=True, program=True, **fields):
    """An artifact with one function `f` made of StableHLO text, without tracing anything.

    arguments: {name: tree of example arrays}; result: tree of example arrays.
    """
    from aot import artifact, mlir, tree_util, xla
    described, inputs = [], []
    for name, tree in arguments.items():
        leaves, treedef = tree_util.tree_flatten_with_path(tree)
        described.append({"name": name, "tree": artifact.describe_tree(treedef, name)})
        inputs += [artifact.describe_array(name + tree_util.keystr(p), np.shape(x), np.asarray(x).dtype)
                   for p, x in leaves]
    leaves, treedef = tree_util.tree_flatten_with_path(result)
    outputs = [artifact.describe_array("result" + tree_util.keystr(p), np.shape(x), np.asarray(x).dtype)
               for p, x in leaves]
    fn = artifact.Function("f", described, inputs, outputs, artifact.describe_tree(treedef),
                           list(range(len(inputs))) if parameters is None else parameters, **fields)
    if program:
        fn.program = mlir.portable_bytecode(text)
    if executable:
        blob = xla.serialize(xla.compile_text(text))
        fn.executables = [artifact.Executable.for_this_host("cpu", blob)]
    artifact.write(path, [fn], weights)
    return path


def elementwise(dtype, shape=(4,), op="add"):
    """StableHLO of `op(a, b)` on two arrays of one type."""
    t = f"tensor<{''.join(f'{d}x' for d in shape)}{dtype}>"
    return f"""module @m {{
  func.func public @main(%a: {t}, %b: {t}) -> {t} {{
    %0 = stablehlo.{op} %a, %b : {t}
    return %0 : {t}
  }}
}}"""


@pytest.fixture
def hlo():
    """Helpers to build artifacts from StableHLO text."""
    return SimpleNamespace(store=store, elementwise=elementwise)


@pytest.fixture
def add_file(tmp_path, hlo):
    """An artifact with `f(a, b) = a + b` on f32[4], with a recorded result."""
    x = np.arange(4, dtype=np.float32)
    return hlo.store(tmp_path / "add.aot", hlo.elementwise("f32"), {"a": x, "b": x}, x, golden=([x, x], [x + x]))


@pytest.fixture
def repack():
    """Rewrite an artifact with an edited manifest, as a build on another machine would have made it."""
    def edit(source, target, change):
        import json
        import zipfile

        from aot import artifact
        with zipfile.ZipFile(source) as z:
            members = {i.filename: z.read(i) for i in z.infolist()}
        manifest = json.loads(members.pop("manifest.json"))
        change(manifest)
        with zipfile.ZipFile(target, "w") as z:
            for name, data in members.items():
                artifact.add_member(z, name, [data])
            artifact.add_member(z, "manifest.json", [json.dumps(manifest).encode()])
        return target
    return edit
