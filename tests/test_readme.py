"""The five-minute tour of README.md, typed exactly, in an empty folder."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def steps(text: str):
    """(kind, code) of each block: "file" for a python block that starts with `# NAME.py`, "python", or "shell"."""
    for block in re.finditer(r"```python\n([\s\S]*?)```|((?:^    .*\n)+)", text, re.M):
        if block[1]:
            named = re.match(r"# (\w+\.py)\n", block[1])
            yield (named[1] if named else "python"), block[1]
            continue
        command = ""
        for line in block[2].splitlines():
            if line.startswith("    $ "):
                if command:
                    yield "shell", command
                command = line[6:]
            elif command.count('"') % 2:        # a quoted program goes on
                command += "\n" + line[4:]
        if command:
            yield "shell", command


def test_the_tour(tmp_path):
    text = README.read_text()
    tour = text[text.index("## Five minutes"):text.index("`make demo` goes through")]
    python = Path(sys.executable)
    env = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}", "JAX_PLATFORMS": "cpu"}
    ran = []
    for kind, code in steps(tour):
        if kind.endswith(".py"):
            (tmp_path / kind).write_text(code)
            continue
        command = [python, "-c", code] if kind == "python" else ["bash", "-c", code]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{code}\n{done.stderr}"
        ran.append(code)
    assert len(ran) >= 9
    shown = re.search(r"model.aot: predict\(x\) -> f32\[3,2\] for cpu", tour)
    assert shown, "README shows what aot compile prints"
