"""Export the public StableHLO programs and compare what the format's runtime computes with what is expected.

    python -m tests.conformance FORMAT [-k REGEX] [--set NAME=VALUE ...] [--json OUTCOMES] [--workers N] [--list OUTCOME]

FORMAT: a row of formats.py.  --set passes an option to its exporter, e.g. `--set opset=21`.
Each program is right, refused (with the exporter's reason), wrong (other numbers, or a fault of the exporter) or crash (its
runtime, or the exporter, took the process down or hung).  The exit status is 1 if any is wrong or a crash.
"""
from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.conformance import programs
from tests.conformance.formats import FORMATS
from tests.conformance.sweep import OUTCOMES, names_in, sweep


def option(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    return name, int(value) if value.lstrip("-").isdigit() else value


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("format", choices=sorted(FORMATS))
    parser.add_argument("-k", default="", metavar="REGEX", help="only programs whose name contains a match")
    parser.add_argument("--set", action="append", default=[], type=option, metavar="NAME=VALUE", help="option of the exporter")
    parser.add_argument("--json", type=Path, help="write {name: [outcome, reason]} to this file")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=60, help="seconds for a program")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th program")
    args = parser.parse_args()
    archive = programs.archive()
    if archive is None:
        print(f"only a sample: for all programs put stablehlo_testdata.tar.xz at {programs.ARCHIVE} or set AOT_TESTDATA", file=sys.stderr)
    folder, started = programs.prepared(archive or programs.SAMPLE), time.monotonic()
    outcomes = sweep(names_in(folder, args.k)[::args.every], folder, args.format, dict(args.set), args.workers, args.timeout)
    if not outcomes:
        print(f"no program's name contains a match of {args.k!r}", file=sys.stderr)
        return 2
    if args.json:
        args.json.write_text(json.dumps(outcomes, indent=1))
    return report(outcomes, args.format, time.monotonic() - started)


def report(outcomes: dict[str, tuple[str, str]], format: str, seconds: float) -> int:
    """Print what is not right, then the totals."""
    for name, (outcome, why) in outcomes.items():
        if outcome != "right":
            print(f"{outcome:8} {name}: {why.strip()}")
    totals = Counter(outcome for outcome, _ in outcomes.values())
    counts = ", ".join(f"{totals[o]} {o}" for o in OUTCOMES)
    print(f"{format}: {len(outcomes)} programs: {counts} ({seconds:.0f} s)")
    return int(totals["wrong"] + totals["crash"] > 0)


if __name__ == "__main__":
    sys.exit(main())
