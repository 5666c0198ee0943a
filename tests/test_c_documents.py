"""docs/source.md and examples/source, typed as they are."""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aot.exporters.c import run

ROOT = Path(__file__).parent.parent
ENV = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "JAX_PLATFORMS": "cpu"}
pytestmark = pytest.mark.skipif(run.compiler() is None, reason="there is no C compiler")


def sh(command, folder):
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=ENV, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example(tmp_path):
    shutil.copytree(ROOT / "examples" / "source", tmp_path / "source")
    heard = re.findall(r"(\d+) Hz: heard +(\d+) Hz, (\d+) %", sh("make", tmp_path / "source"))
    assert len(heard) == 4 and all(tone == found and int(sure) > 90 for tone, found, sure in heard)


def test_the_document(tmp_path):
    """The commands for a function, and the program that calls it."""
    text = (ROOT / "docs" / "source.md").read_text()
    export = next(line[6:] for line in text.splitlines() if line.startswith("    $ aot export model.py:predict"))
    build = next(line[6:] for line in text.splitlines() if line.startswith("    $ cc "))
    program = next(block for block in re.findall(r"```c\n(.*?)```", text, re.DOTALL) if "int main" in block)
    (tmp_path / "model.py").write_text("import aot.numpy as jnp\nW = jnp.ones((784, 10))\ndef predict(x): return jnp.tanh(x @ W)[0]\n")
    (tmp_path / "main.c").write_text(program)
    assert "right in its runtime" in sh(export, tmp_path)
    assert re.search(r"#define PREDICT_WORKSPACE \d+\n", (tmp_path / "predict.h").read_text())
    sh(f"{build} && ./main", tmp_path)
