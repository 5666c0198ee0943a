"""Who may import whom, checked on the source text; and that packaging lists every package."""
from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOADER = ROOT / "runtime_stubs/python/aot_runtime/__init__.py"
FOLDERS = {"aot": "aot", "cli": "aot.cli", "exporters": "aot.exporters"}
# packages that only some extra installs: imported where used, never at the top of a module
OPTIONAL = {"jax", "onnx", "ai_edge_litert", "fsspec", "libtpu", "jax_plugins"}


def sources(folder):
    return sorted((ROOT / folder).rglob("*.py"))


def imports(path, top_level_only=False):
    """(imported module, line) of every import statement, relative ones resolved by folder."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((a.name, node.lineno) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                parts = path.relative_to(ROOT).parts[:-1][:len(path.relative_to(ROOT).parts) - node.level]
                base = ".".join((FOLDERS.get(parts[0], parts[0]), *parts[1:]))
                yield f"{base}.{node.module}" if node.module else base, node.lineno
            else:
                yield node.module, node.lineno
                yield from ((f"{node.module}.{a.name}", node.lineno) for a in node.names)


def offenders(files, forbidden, **kwargs):
    return [f"{f.relative_to(ROOT)}:{line} imports {name}" for f in files for name, line in imports(f, **kwargs)
            if any(name == m or name.startswith(m + ".") for m in forbidden)]


RULES = [
    ("only aot/xla.py and aot/mlir.py import jaxlib", "aot", {"jaxlib"}, {"aot/xla.py", "aot/mlir.py"}),
    ("commands and exporters reach jaxlib through aot.xla", "cli", {"jaxlib"}, set()),
    ("exporters reach jaxlib through aot.xla", "exporters", {"jaxlib"}, set()),
    ("the library knows nothing of the command line or the exporters", "aot",
     {"click", "rich", "onnx", "ai_edge_litert", "aot.cli", "aot.exporters"}, set()),
    ("exporters know nothing of the command line", "exporters", {"click", "rich", "aot.cli"}, set()),
    ("jax is for tests only", "aot", {"jax"}, set()),
    ("jax is for tests only", "cli", {"jax"}, set()),
    ("no pickle", "aot", {"pickle", "cloudpickle", "dill", "marshal", "shelve"}, set()),
    ("no pickle", "runtime_stubs", {"pickle", "cloudpickle", "dill", "marshal", "shelve"}, set()),
    ("the folder is cli, the package aot.cli", "cli", {"cli", "exporters"}, set()),
    ("the folder is exporters, the package aot.exporters", "exporters", {"cli", "exporters"}, set()),
    ("the folders are not packages", "aot", {"cli", "exporters", "runtime_stubs"}, set()),
    ("the folders are not packages", "tests", {"cli", "exporters", "runtime_stubs"}, set()),
]


@pytest.mark.parametrize("rule, folder, forbidden, allowed", RULES, ids=[f"{r[1]}: {r[0]}" for r in RULES])
def test_import_rule(rule, folder, forbidden, allowed):
    files = [f for f in sources(folder) if str(f.relative_to(ROOT)) not in allowed]
    assert not offenders(files, forbidden), rule


@pytest.mark.parametrize("folder", ["aot", "cli", "exporters"])
def test_optional_packages_are_imported_where_used(folder):
    assert not offenders(sources(folder), OPTIONAL, top_level_only=True)


def test_the_loader_is_one_file_that_needs_three_packages():
    assert [p.name for p in LOADER.parent.glob("*.py")] == ["__init__.py"]
    used = {name.split(".")[0] for name, _ in imports(LOADER)}
    assert used - set(sys.stdlib_module_names) - {"_sha2", "_sha256"} <= {"numpy", "ml_dtypes", "jaxlib", "cryptography"}
    assert not offenders([LOADER], {"cryptography"}, top_level_only=True)


def test_commands_import_the_compiler_only_when_they_run():
    assert not offenders(sources("cli"), {"aot.api", "aot.build", "aot.spec", "aot.replay", "aot_runtime", "numpy"},
                         top_level_only=True)


def test_packaging_lists_every_package():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = {"aot_runtime"}
    for folder, package in FOLDERS.items():
        for init in (ROOT / folder).rglob("__init__.py"):
            found.add(".".join((package, *init.parent.relative_to(ROOT / folder).parts)))
    assert found == set(config["packages"])


def test_import_aot_does_not_import_jax_or_mlir():
    code = ("import sys, aot; bad = [m for m in ('jax', 'jaxlib.mlir', 'click', 'rich', 'scipy', 'onnx') "
            "if m in sys.modules]; assert not bad, bad")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert result.returncode == 0, result.stderr


def test_no_module_hides_a_name_of_the_package():
    """Importing `aot.x` sets the attribute `x` of the package."""
    import aot
    modules = {p.stem for p in (ROOT / "aot").iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()}
    hidden = {name for name, module in aot._EXPORTS.items() if name in modules and module != f"aot.{name}"}
    assert not hidden - {"config"}
