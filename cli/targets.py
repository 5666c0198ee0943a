"""`aot targets`: what can be built for."""
from __future__ import annotations

import click

from ._output import print_json, table


@click.command("targets")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """List targets: whether this machine can build for them, and what to install if not."""
    from aot import targets
    rows = []
    for name in targets.names():
        target = targets.parse(name)
        why = targets.unavailable(target)
        rows.append({"target": name, "available": why is None, "chip": target.chip, "memory": target.memory,
                     "why": why and why[0], "hint": why and why[1]})
    if as_json:
        print_json(rows)
        return
    click.echo(table([[r["target"], f"{r['memory'] / 2**30:.0f} GiB" if r["memory"] else "",
                       "yes" if r["available"] else f"no: {r['why']}; {r['hint']}"] for r in rows]))
