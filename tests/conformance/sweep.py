"""One outcome for each program: right, refused, wrong or crash."""
from __future__ import annotations

import functools
import re
import traceback
from pathlib import Path
from typing import Any

from tests.conformance.pool import run_all

OUTCOMES = ("right", "refused", "wrong", "crash")


def judge(name: str, folder: str, format: str, options: dict[str, Any]) -> tuple[str, str]:
    """(outcome, reason) of one program."""
    from aot.exporters.report import Refused
    from tests.conformance import programs
    from tests.conformance.compare import mismatch
    from tests.conformance.formats import FORMATS
    program, how = programs.load(Path(folder), name), FORMATS[format]
    try:
        got = how.run(how.export(program.text, **options), program.inputs)
    except Refused as e:
        return "refused", str(e)
    except Exception:
        return "wrong", "exception: " + "".join(traceback.format_exc(limit=-4))
    why = mismatch(got, program.expected, format, name, (options or {}).get("opset", 21))
    return ("wrong", why) if why else ("right", "")


def sweep(names: list[str], folder: Path, format: str, options: dict[str, Any] | None = None, workers: int = 2,
          timeout: float = 60) -> dict[str, tuple[str, str]]:
    """{name: (outcome, reason)}."""
    job = functools.partial(judge, folder=str(folder), format=format, options=options or {})
    outcomes = {name: result if result else ("crash", died) for name, result, died in run_all(names, job, workers, timeout)}
    return dict(sorted(outcomes.items()))


def names_in(folder: Path, pattern: str = "") -> list[str]:
    return sorted(p.stem for p in folder.glob("*.mlir") if re.search(pattern, p.stem))
