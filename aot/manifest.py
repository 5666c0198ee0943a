"""`aot.toml`: what a project builds.  Reading, checking and resolving it; nothing here imports numpy or jaxlib.

The tables below are the specification: they drive the checks, the JSON schema for editors and the documentation.
A `[[function]]` may have several `[[function.signature]]`; each is built as a function `NAME_SIGNATURE`.
"""
from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from aot import targets
from aot.errors import AotError
from aot.files import is_file_name
from aot.pipeline import OPTIONS

FILE = "aot.toml"
TRANSFORMS = ", ".join(OPTIONS)
WEIGHTS_MODES = ("baked", "separate", "argument")


class ManifestError(AotError):
    """A manifest that cannot be used: names file, line and key."""


@dataclass(frozen=True)
class Key:
    """A key of a table: how its value is checked (a name of CHECKS, or the allowed strings) and what it means."""
    kind: str | tuple[str, ...]
    doc: str
    required: bool = False


_ARGS = Key("args", "One spec per argument, in order, as for `aot compile --arg`; or MODULE:FUNCTION, called without "
                    "arguments, that returns them.")
_NAMED = Key("strings by name", "Specs of arguments that are passed by name.")
_STATIC = Key("table", "Arguments that are fixed to a value.")
_TARGETS = Key("strings", "What to compile for; `aot targets` lists them.")
_GOLDEN = Key("golden", "Record a result for `aot verify`: true, false, or specs or files of the inputs to record.")
_FLAGS = Key("table", "XLA debug options, such as xla_cpu_enable_fast_math.")
_X64 = Key("boolean", "Allow 64-bit types.")
_AS_JAX = Key("boolean", "Let `import jax` mean aot, in the functions' modules and in the libraries that they import.")

PROJECT = {
    "name": Key("string", "Name of the project.", True),
    "output": Key("string", "Folder that receives the artifacts; default `build`."),
    "modules": Key("strings", "Python files whose functions marked with `@aot.entry` are built too."),
    "targets": _TARGETS, "golden": _GOLDEN, "xla_flags": _FLAGS, "x64": _X64, "as_jax": _AS_JAX,
}
FUNCTION = {
    "name": Key("string", "Its name in the artifact; default: the Python function's."),
    "function": Key("string", "MODULE:FUNCTION, where MODULE is a path relative to the manifest or a dotted name.", True),
    "args": _ARGS, "named": _NAMED, "static": _STATIC,
    "weights": Key("weights", "A .npz or .safetensors file with the first parameter, or a table of parameter = file."),
    "weights_mode": Key(WEIGHTS_MODES, "baked: stored in the artifact (default); separate: stored in a file next to "
                                       "it that can be exchanged; argument: only their types are used."),
    "transforms": Key("transforms", f"Applied in this order: {TRANSFORMS}; as \"grad:params\" or "
                                    "{grad = \"params\", has_aux = true}."),
    "donate": Key("strings", "Arguments whose memory may be reused for results."),
    "mesh": Key("string", "Axes of devices that the program is partitioned over, such as \"data=4,model=2\"."),
    "in_shardings": Key("strings by name", "Mesh axes that split arguments or parts of them: {x = \"data\", \"params.w\" = "
                                           "\"-,model\"}; the others are on every device."),
    "out_shardings": Key("strings by name", "The same for results: {result = \"data\"}; by default where XLA leaves them."),
    "signature": Key("signatures", "Several signatures of the same function."),
    "artifact": Key("string", "File in the output folder; functions that name the same one share it. Default NAME.aot."),
    "targets": _TARGETS, "golden": _GOLDEN, "xla_flags": _FLAGS, "x64": _X64,
}
SIGNATURE = {
    "name": Key("string", "Appended to the function's name: NAME_SIGNATURE.", True),
    "args": _ARGS, "named": _NAMED, "static": _STATIC, "golden": _GOLDEN,
}
PROFILE = {"targets": _TARGETS, "golden": _GOLDEN, "xla_flags": _FLAGS, "x64": _X64}
TOP = {
    "project": Key("project", "The project.", True),
    "function": Key("functions", "A function to build."),
    "profile": Key("profiles", "Values that take the place of those above under `--profile NAME`."),
}
#: profiles that exist without being written
PROFILES = {"release": {}, "dev": {"golden": False, "xla_flags": {"xla_backend_optimization_level": 0}}}


# ---- checking ------------------------------------------------------------------------------------------------------

def _is_strings(v: Any) -> bool: return isinstance(v, list) and all(isinstance(x, str) for x in v)
def _is_named(v: Any) -> bool: return isinstance(v, dict) and all(isinstance(x, str) for x in v.values())


def _is_transforms(v: Any) -> bool:
    return isinstance(v, list) and all(isinstance(x, str) and x.partition(":")[0] in OPTIONS
                                       or isinstance(x, dict) and len(set(x) & set(OPTIONS)) == 1 for x in v)


#: kind -> (test, what to say, JSON schema)
_STRINGS = {"type": "array", "items": {"type": "string"}}
_BY_NAME = {"type": "object", "additionalProperties": {"type": "string"}}
CHECKS: dict[str, tuple[Any, str, dict]] = {
    "string": (lambda v: isinstance(v, str) and v, "a string that is not empty", {"type": "string", "minLength": 1}),
    "boolean": (lambda v: isinstance(v, bool), "true or false", {"type": "boolean"}),
    "strings": (_is_strings, "a list of strings", _STRINGS),
    "table": (lambda v: isinstance(v, dict), "a table", {"type": "object"}),
    "strings by name": (_is_named, "a table of strings", _BY_NAME),
    "args": (lambda v: _is_strings(v) or isinstance(v, str) and ":" in v, "a list of specs, or MODULE:FUNCTION",
             {"anyOf": [_STRINGS, {"type": "string", "pattern": ":"}]}),
    "weights": (lambda v: isinstance(v, str) and v or _is_named(v), "a file, or a table of parameter = file",
                {"anyOf": [{"type": "string"}, _BY_NAME]}),
    "golden": (lambda v: isinstance(v, bool) or _is_strings(v), "true, false or a list of files",
               {"anyOf": [{"type": "boolean"}, _STRINGS]}),
    "transforms": (_is_transforms, f"a list of transforms ({TRANSFORMS})",
                   {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "object"}]}}),
    "project": (lambda v: isinstance(v, dict), "a table [project]", {}),
    "functions": (lambda v: isinstance(v, list), "tables [[function]]", {}),
    "signatures": (lambda v: isinstance(v, list), "tables [[function.signature]]", {}),
    "profiles": (lambda v: isinstance(v, dict), "tables [profile.NAME]", {}),
}
_INSIDE = {"project": PROJECT, "functions": FUNCTION, "signatures": SIGNATURE, "profiles": PROFILE}


class Checker:
    """Checks values against the tables.  fail(path, message) raises; path is ("function", 0, "args")."""

    def __init__(self, fail: Any): self.fail = fail

    def table(self, value: dict, keys: dict[str, Key], at: tuple) -> None:
        for k, v in value.items():
            if k not in keys:
                close = difflib.get_close_matches(k, keys, 1)
                hint = f"did you mean {close[0]!r}?" if close else f"known are: {', '.join(keys)}"
                self.fail((*at, k), f"unknown key; {hint}")
            self.value(v, keys[k], (*at, k))
        for k, spec in keys.items():
            if spec.required and k not in value:
                self.fail(at, f"the key {k!r} is missing")

    def value(self, v: Any, spec: Key, at: tuple) -> None:
        if isinstance(spec.kind, tuple):
            if v not in spec.kind:
                self.fail(at, f"expected one of {', '.join(spec.kind)}, got {v!r}")
            return
        test, expected, _ = CHECKS[spec.kind]
        if not test(v):
            self.fail(at, f"expected {expected}, got {v!r}")
        inside = _INSIDE.get(spec.kind)
        if inside is None:
            return
        rows = enumerate(v) if isinstance(v, list) else v.items() if spec.kind == "profiles" else [(None, v)]
        for i, row in rows:
            if not isinstance(row, dict):
                self.fail((*at, i), f"expected a table, got {row!r}")
            self.table(row, inside, at if i is None else (*at, i))


def line_of(text: str, path: tuple) -> int:
    """The line on which the key of a path stands, or that of the table around it.  0 when there is none."""
    found: dict[tuple, int] = {}
    counts: dict[tuple, int] = {}
    table: tuple = ()
    for number, line in enumerate(text.splitlines(), 1):
        if m := re.match(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?$", line):
            table = ()
            parts = [p.strip().strip("\"'") for p in m[2].split(".")]
            for i, part in enumerate(parts):
                table = (*table, part)
                if m[1] == "[[" and i == len(parts) - 1:
                    counts[table] = counts.get(table, -1) + 1
                    for inner in [c for c in counts if c[:len(table)] == table and c != table]:
                        del counts[inner]
                if table in counts:
                    table = (*table, counts[table])
            found.setdefault(table, number)
        elif m := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            found.setdefault((*table, *(p.strip("\"'") for p in m[1].split("."))), number)
    while path and path not in found:
        path = path[:-1]
    return found.get(path, 0)


def dotted(path: tuple) -> str:
    """("function", 1, "args") -> 'function[1].args'"""
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")


# ---- reading -------------------------------------------------------------------------------------------------------

@dataclass
class Manifest:
    """A checked manifest: its file, its folder, and its tables as they were written."""
    path: str
    root: str
    text: str
    project: dict
    functions: list[dict]
    profiles: dict[str, dict] = field(default_factory=dict)

    def output(self, profile: str = "release") -> str:
        """The folder that receives the artifacts, relative to the manifest."""
        base = self.project.get("output", "build")
        return base if profile == "release" else os.path.join(base, profile)

    def fail(self, path: tuple, message: str, hint: str | None = None) -> None:
        """Raise ManifestError for a key."""
        line = line_of(self.text, path)
        where = f"{os.path.relpath(self.path)}:{line or 1}"
        raise ManifestError(f"{where}: {dotted(path)}: {message}" if path else f"{where}: {message}", hint)


def find(start: str | None = None) -> str:
    """The manifest of this folder or the nearest one above.  Raises AotError."""
    folder = os.path.abspath(start or os.getcwd())
    while not os.path.isfile(os.path.join(folder, FILE)):
        if os.path.dirname(folder) == folder:
            raise AotError(f"no {FILE} here or in a folder above", hint="`aot init` writes one")
        folder = os.path.dirname(folder)
    return os.path.join(folder, FILE)


def load(path: str | os.PathLike) -> Manifest:
    """Read and check a manifest.  Raises ManifestError, AotError."""
    path = os.path.abspath(os.fspath(path))
    try:
        with open(path, encoding="utf-8") as f:
            text = f.read()
    except OSError as e:
        raise AotError(f"{path}: cannot be read: {e.strerror or e}", hint="`aot init` writes a manifest") from None
    except UnicodeDecodeError:
        raise ManifestError(f"{os.path.relpath(path)}: is not UTF-8 text") from None
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        what, _, place = str(e).partition(" (at ")
        m = re.match(r"line (\d+), column (\d+)", place)
        where = f":{m[1]}:{m[2]}" if m else f":{text.count(chr(10)) + 1}"
        raise ManifestError(f"{os.path.relpath(path)}{where}: {what}") from None
    made = Manifest(path, os.path.dirname(path), text, data.get("project", {}), data.get("function", []),
                    data.get("profile", {}))
    Checker(made.fail).table(data, TOP, ())
    return made


# ---- resolving -----------------------------------------------------------------------------------------------------

def items(manifest: Manifest, profile: str = "release", entries: Sequence[dict] = ()) -> list[dict]:
    """Everything to build as plain tables, one per function and signature, defaults and profile filled in.

    entries: functions that `@aot.entry` marked, like `[[function]]` tables.
    """
    if profile not in manifest.profiles and profile not in PROFILES:
        known = sorted({*manifest.profiles, *PROFILES})
        raise AotError(f"there is no profile {profile!r}", hint=f"there are: {', '.join(known)}")
    over = {**PROFILES.get(profile, {}), **manifest.profiles.get(profile, {})}
    found: list[dict] = []
    for i, f in enumerate([*manifest.functions, *entries]):
        at = ("function", i) if i < len(manifest.functions) else ()
        for item in _signatures(manifest, f, at):
            resolved = _resolve(manifest, item, over)
            name = resolved["name"]
            if not is_file_name(name):
                manifest.fail((*at, "name"), f"{name!r} cannot be the name of a file")
            if any(name == other["name"] for other in found):
                manifest.fail((*at, "name"), f"there are two functions {name!r}", "give one of them another `name`")
            found.append(resolved)
    return found


def _signatures(manifest: Manifest, f: dict, at: tuple) -> list[dict]:
    name = f.get("name") or f["function"].rpartition(":")[2]
    base = {**f, "name": name, "base": name, "artifact": f.get("artifact") or f"{name}.aot"}
    several = base.pop("signature", None)
    if several is None:
        return [base]
    if not several:
        manifest.fail((*at, "signature"), "the list is empty")
    return [{**base, **s, "name": f"{name}_{s['name']}"} for s in several]


def _resolve(manifest: Manifest, f: dict, over: dict) -> dict:
    project = manifest.project
    def pick(k: str, default: Any) -> Any: return over.get(k, f.get(k, project.get(k, default)))
    golden = f.get("golden") if isinstance(f.get("golden"), list) and over.get("golden") is not False else None
    return {"name": f["name"], "base": f["base"], "function": f["function"], "args": f.get("args", []),
            "named": f.get("named", {}), "static": f.get("static", {}), "weights": f.get("weights", {}),
            "weights_mode": f.get("weights_mode", "baked"), "transforms": f.get("transforms", []),
            "donate": f.get("donate", []), "mesh": f.get("mesh", ""), "in_shardings": f.get("in_shardings", {}),
            "out_shardings": f.get("out_shardings", {}), "artifact": f["artifact"],
            "targets": targets.distinct(pick("targets", ["cpu"]), manifest.root),
            "golden": golden or pick("golden", True), "x64": pick("x64", False), "as_jax": project.get("as_jax", False),
            "xla_flags": {**project.get("xla_flags", {}), **f.get("xla_flags", {}), **over.get("xla_flags", {})}}


# ---- for editors ---------------------------------------------------------------------------------------------------

def json_schema() -> dict:
    """The JSON schema of a manifest."""
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "aot.toml", **_schema(TOP)}


def _schema(keys: dict[str, Key]) -> dict:
    return {"type": "object", "additionalProperties": False, "required": [k for k, v in keys.items() if v.required],
            "properties": {k: {"description": v.doc, **_schema_of(v)} for k, v in keys.items()}}


def _schema_of(spec: Key) -> dict:
    if isinstance(spec.kind, tuple):
        return {"enum": list(spec.kind)}
    if spec.kind not in _INSIDE:
        return CHECKS[spec.kind][2]
    inner = _schema(_INSIDE[spec.kind])
    if spec.kind == "profiles":
        return {"type": "object", "additionalProperties": inner}
    return inner if spec.kind == "project" else {"type": "array", "items": inner}


def schema_text() -> str:
    return json.dumps(json_schema(), indent=1) + "\n"


TEMPLATE = """\
[project]
name = "{name}"
# targets = ["cpu"]            # what to build for; `aot targets` lists them

[[function]]
function = "{function}"
args = [{args}]
# weights = "params.npz"       # stored in the artifact as the first parameter
# transforms = ["value_and_grad:params", "vmap:None,0"]
# golden = ["inputs.npz"]      # recorded for `aot verify`
"""
