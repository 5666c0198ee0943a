"""`aot diff`: in what two artifacts differ."""
from __future__ import annotations

import click

from ._errors import DIFFERS, OK
from ._output import print_json


@click.command("diff")
@click.argument("a")
@click.argument("b")
@click.option("--program", is_flag=True, help="Show the differences of the StableHLO programs line by line.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(a: str, b: str, program: bool, as_json: bool) -> int:
    """Compare two artifacts: signatures, programs, weights, recorded results, executables and tools.

    Exits with 3 when they differ in anything but the bytes of executables, which no two compilations share.
    """
    from aot import compare
    found = compare.diff(a, b, program=program)
    if as_json:
        print_json(found)
    for row in [] if as_json else found:
        where = f"{row['function']}: " if row["function"] else ""
        click.echo(f"{where}{row['what']}: {row['change']}")
        for line in row.get("lines", ()):
            click.echo(f"  {line}")
    return DIFFERS if found else OK
