"""What README.md says is typed exactly, in an empty folder, and prints what it says."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def steps(text: str):
    """(kind, code, what is printed) of each block: "file" for a python block that starts with `# NAME.py` and for aot.toml,
    "python", or "shell"."""
    for block in re.finditer(r"```(python|toml)\n([\s\S]*?)```|((?:^    .*\n)+)", text, re.M):
        if block[1]:
            named = re.match(r"# (\w+\.py)\n", block[2])
            yield "aot.toml" if block[1] == "toml" else named[1] if named else "python", block[2], []
            continue
        command, shown = "", []
        for line in block[3].splitlines():
            if line.startswith("    $ "):
                if command:
                    yield "shell", command, shown
                command, shown = line[6:], []
            elif command.count('"') % 2:        # a quoted program goes on
                command += "\n" + line[4:]
            else:
                shown.append(line[4:])
        if command:
            yield "shell", command, shown


def as_pattern(line: str) -> str:
    """A printed line: `...` stands for anything, a time for any time."""
    return re.sub(r"\d+\\.\d s\b", r"\\d+\\.\\d s", re.escape(line)).replace(r"\.\.\.", ".*")


def test_the_tour_and_its_project(tmp_path):
    text = README.read_text()
    tour = text[text.index("## Five minutes"):text.index("`make demo` goes through")]
    project = text[text.index("## Projects"):text.index("- **Up to date** means")]
    python = Path(sys.executable)
    env = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}", "JAX_PLATFORMS": "cpu"}
    ran, printed = [], []
    for kind, code, shown in [*steps(tour), *steps(project)]:
        if kind not in ("python", "shell"):
            (tmp_path / kind).write_text(code)
            continue
        command = [python, "-c", code] if kind == "python" else ["bash", "-c", code]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{code}\n{done.stderr}"
        for line in shown:
            assert re.search(f"^{as_pattern(line)}$", done.stdout + done.stderr, re.M), (line, done.stdout, done.stderr)
        ran.append(code)
        printed += shown
    assert len(ran) >= 11 and len(printed) >= 4
