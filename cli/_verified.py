"""What a verification of an exported file found, as text."""
from __future__ import annotations

from typing import Any

import click

from ._output import table

_FIGURES = (("max_abs_error", "abs"), ("max_rel_error", "rel"), ("max_ulp_error", "ulp"))


def print_cases(report: dict[str, Any]) -> None:
    """One line a case, and one for each of its results that differs."""
    if report["ok"] is None:
        click.echo(f"{report['file']}: {report['why']}")
        return
    outcome = "right" if report["ok"] else "NOT RIGHT"
    click.echo(f"{report['file']}: {outcome} in its runtime, compared with XLA")
    rows = []
    for case in report["cases"]:
        worst = [f"max {short} error {_worst(case['outputs'], key)}" for key, short in _FIGURES] if case["outputs"] else []
        why = case["why"].splitlines()[0] if case["why"] else ""
        rows.append([case["name"], case["outcome"], *([*worst, why] if worst else [why, "", "", ""])])
    click.echo(table(rows, "  "))
    for case in report["cases"]:
        for o in case["outputs"]:
            if not o["ok"]:
                by = f"by up to {o['max_abs_error']:.3g}" if o["max_abs_error"] else "in where it is infinite or NaN"
                click.echo(f"  {case['name']}: {o['name']} {o['type']} differs {by}")


def _worst(outputs: list[dict[str, Any]], key: str) -> str:
    found = [o[key] for o in outputs if o[key] is not None]
    return f"{max(found):.3g}" if found else "-"
