"""What was built from what: the up-to-date check, dependency files and the lock file.

`OUTPUT/.aot/state.json` has a record for every artifact: its resolved manifest items, the tools and variables, the
files that it was made from, and the size and time of what was written.  An artifact is fresh when all of it still
holds.  Nothing here imports numpy or jaxlib, since most builds find nothing to do.
"""
from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable
from typing import Any

from aot.errors import AotError
from aot.files import write_text
from aot.project import dependencies

SCHEMA = 3


class State:
    """The records of one output folder.  root: the folder of the manifest; output: relative to it."""

    def __init__(self, root: str, output: str):
        self.root, self.output = root, output
        self.path = os.path.join(root, output, ".aot", "state.json")
        self.records = self._read()

    def _read(self) -> dict[str, dict]:
        try:
            with open(self.path, encoding="utf-8") as f:
                data = json.load(f)
            return data["records"] if data["schema"] == SCHEMA else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}  # never built, or damaged: everything is built again

    def record(self, name: str, wanted: dict, reads: dict[str, dict], outputs: Iterable[str], result: Any) -> None:
        """Note that `outputs` were made from what was read (a snapshot) as `wanted` describes, and save."""
        self.records = self._read()
        self.records[name] = {**wanted, **{k: dict(sorted(v.items())) for k, v in reads.items()},
                              "outputs": {p: self._stamp(p) for p in outputs}, "result": result}
        self._save()

    def _save(self) -> None:
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        write_text(self.path, json.dumps({"schema": SCHEMA, "records": self.records}, indent=1))

    def _stamp(self, path: str) -> list[int] | None:
        try:
            s = os.stat(os.path.join(self.root, path))
            return [s.st_size, s.st_mtime_ns]
        except OSError:
            return None

    def stale(self, name: str, wanted: dict) -> str | None:
        """Why something must be built, or None when it is fresh."""
        record = self.records.get(name)
        if record is None:
            return "not built yet"
        for path, stamp in record["outputs"].items():
            if stamp != self._stamp(path):
                return f"{path} is {'missing' if self._stamp(path) is None else 'not what was written'}"
        if why := difference(json.loads(json.dumps(wanted)), {k: record.get(k) for k in wanted}):
            return f"{why} changed"
        return dependencies.changes(self.root, self.output, record)


def difference(a: Any, b: Any, at: str = "") -> str | None:
    """The first place where two JSON values differ, as `targets` or `tools.jaxlib`."""
    if isinstance(a, dict) and isinstance(b, dict):
        for k in {**a, **b}:
            if found := difference(a.get(k), b.get(k), f"{at}.{k}" if at else k):
                return found
        return None
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return next((found for i, (x, y) in enumerate(zip(a, b)) if (found := difference(x, y, f"{at}[{i}]"))), None)
    return None if a == b else at or "the value"


# ---- dependency files ----------------------------------------------------------------------------------------------

def depfile(records: Iterable[dict], root: str, start: str) -> str:
    """Rules in make's syntax, `artifact: file file ..`, with paths relative to the folder `start`."""
    def path(p: str) -> str:
        full = os.path.abspath(os.path.join(root, p))
        near = os.path.relpath(full, start)
        return escape(full if near.startswith("..") else near)
    lines, sources = [], {}
    for record in records:
        files = [path(p) for p in record["files"]]
        lines.append(f"{' '.join(map(path, record['outputs']))}: {' '.join(files)}")
        sources.update(dict.fromkeys(files))
    return "\n".join(lines + [f"\n{s}:" for s in sources]) + "\n"  # a source that is gone shall not stop make


def escape(path: str) -> str:
    """A file name as make reads it."""
    return path.replace("$", "$$").replace("#", "\\#").replace(" ", "\\ ").replace(":", "\\:")


# ---- the lock file -------------------------------------------------------------------------------------------------

LOCK = "aot.lock"


class Lock:
    """aot.lock: versions of the tools, and for each function the hash of its program and weights."""

    def __init__(self, root: str):
        self.path = os.path.join(root, LOCK)
        try:
            with open(self.path, "rb") as f:
                data = tomllib.load(f)
        except FileNotFoundError:
            data = {}
        except (OSError, tomllib.TOMLDecodeError) as e:
            raise AotError(f"{self.path}: cannot be read: {e}", hint="remove it, and build without --locked") from None
        self.tools, self.functions = data.get("tools", {}), data.get("function", {})

    def check_tools(self, tools: dict[str, str]) -> None:
        """Raise AotError when there is no lock, or it is of other versions."""
        if not os.path.exists(self.path):
            raise AotError(f"there is no {LOCK}, and --locked was given", hint="build once without --locked")
        for k, v in tools.items():
            if k != "python" and self.tools.get(k) != v:
                raise AotError(f"{LOCK} was written with {k} {self.tools.get(k, '(none)')}, here is {v}",
                               hint="install that version, or build without --locked to accept the new one")

    def check(self, name: str, made: dict) -> str | None:
        """What differs from the lock, or None."""
        locked = self.functions.get(name)
        if locked is None:
            return f"{name} is not in {LOCK}"
        for k in ("signature", "program", "weights"):
            if locked.get(k) != made[k]:
                return f"the {k} of {name} {'differ' if k == 'weights' else 'differs'} from {LOCK}"
        return None

    def update(self, tools: dict[str, str], made: dict[str, dict], keep: set[str]) -> None:
        """Take in what was built and drop functions that are gone; the file is written when that changes it."""
        self.tools = {**self.tools, **{k: v for k, v in tools.items() if k != "python"}}
        self.functions = {k: v for k, v in sorted({**self.functions, **made}.items()) if k in keep}
        text = self.text()
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as f:
                if f.read() == text:
                    return
        write_text(self.path, text)

    def text(self) -> str:
        rows = ["# Written by `aot build`; commit it.  `aot build --locked` fails where a build would differ.", "[tools]",
                *(f"{k} = {json.dumps(v)}" for k, v in sorted(self.tools.items()))]
        for name, f in self.functions.items():
            rows += ["", f"[function.{json.dumps(name)}]",
                     *(f"{k} = {json.dumps(f[k], ensure_ascii=False)}" for k in ("signature", "program", "weights"))]
        return "\n".join(rows) + "\n"
