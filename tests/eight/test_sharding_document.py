"""The Python code of docs/sharding.md is a program that runs."""
import re
from pathlib import Path

TEXT = (Path(__file__).parents[2] / "docs" / "sharding.md").read_text()


def test_code_of_the_document_runs():
    code = "\n".join(re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL))
    assert code.count("assert") == 4
    exec(compile(code, "docs/sharding.md", "exec"), {"__name__": "document"})
