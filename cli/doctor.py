"""`aot doctor`: is this installation sound?"""
from __future__ import annotations

import click

from ._errors import FAILED, OK
from ._output import print_json, table


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> int:
    """Check Python, jaxlib, a compilation, the cache and the optional parts.  Exits with 1 when something is broken."""
    from aot import diagnose
    rows = diagnose.run()
    if as_json:
        print_json(rows)
    else:
        click.echo(table([[r["state"], r["what"], r["detail"]] for r in rows]))
        for r in rows:
            if r["hint"]:
                click.echo(f"hint: {r['what']}: {r['hint']}", err=True)
    return FAILED if any(r["state"] == "broken" for r in rows) else OK
