"""Exported files as targets of a project: the task that `aot build` runs in a worker once an artifact is there."""
from __future__ import annotations

import os
from typing import Any

from aot import targets
from aot.errors import AotError

from . import formats, source, verify


def export(task: dict[str, Any]) -> dict[str, Any]:
    """Export a function of an artifact and compare the file with XLA, unless its item asks for no golden result.

    Raises Refused with all that the format cannot express, and AotError where the results differ."""
    target, path = targets.parse(task["target"]), task["path"]
    found = source.of_artifact(task["artifact"], task["item"]["name"])
    made, files = formats.export(found, target.kind, path, **target.options)
    if task["item"]["golden"]:
        report = verify.verify(found, path, **getattr(made, "verification", {}))
        if not report["ok"]:
            wrong = "; ".join(f"{c['name']}: {c['outcome']} {c.get('why') or ''}".strip() for c in report["cases"]
                              if c["outcome"] not in ("right", "skipped"))
            for file in files:
                os.unlink(file)
            raise AotError(f"the {target.kind} file does not compute what XLA does ({wrong})",
                           hint=f"`aot export {task['artifact']} --format {target.kind}` shows by how much")
    return {"files": files, "size": sum(map(os.path.getsize, files))}
