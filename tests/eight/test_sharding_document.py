"""The Python code of docs/sharding.md is a program that runs."""
import re
from pathlib import Path

import pytest

from aot import targets

TEXT = (Path(__file__).parents[2] / "docs" / "sharding.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
ABSENT = [b for b in BLOCKS if "topologies" in b]        # devices that are not here, which need a plugin


def test_code_of_the_document_runs():
    code = "\n".join(b for b in BLOCKS if b not in ABSENT)
    assert code.count("assert") == 4
    exec(compile(code, "docs/sharding.md", "exec"), {"__name__": "document"})


@pytest.mark.skipif(targets.plugin_path("tpu") is None, reason="needs the extra tpu")
def test_code_for_devices_that_are_not_here():
    exec(compile("\n".join(ABSENT), "docs/sharding.md", "exec"), {"__name__": "document"})
