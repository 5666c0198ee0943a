"""`aot bench`: how fast an artifact is here."""
from __future__ import annotations

import click

from ._output import loader_warnings, print_json, stage, table


@click.command("bench")
@click.argument("file")
@click.option("--function", "-f", help="Only this function.")
@click.option("--seconds", type=float, default=1.0, show_default=True, help="Time to spend on calls of one function.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(file: str, function: str | None, seconds: float, as_json: bool) -> None:
    """Measure the time to load each function of an artifact, its first call, and further calls.

    Inputs are the recorded ones, otherwise zeros.
    """
    from aot import measure
    with stage(f"measuring {file}"), loader_warnings():
        rows = measure.bench(file, function, seconds)
    if as_json:
        print_json(rows)
        return
    ms = [[r["function"], r["target"], *(f"{r[k] * 1e3:.3f} ms" for k in ("load", "first", "median", "best", "p95")),
           str(r["calls"])] for r in rows]
    click.echo(table([["function", "target", "load", "first call", "median", "best", "95 %", "calls"], *ms]))
