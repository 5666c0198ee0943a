"""`aot check`: what in a function would surprise its author once it is compiled."""
from __future__ import annotations

import contextlib
import sys
from typing import Any

import click

from ._errors import DIFFERS, OK
from ._function import function_options, program
from ._output import print_json, stage


@click.command("check")
@function_options
@click.option("--key-reuse", is_flag=True, help="Only look for random keys that are used twice.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(key_reuse: bool, as_json: bool, **options: Any) -> int:
    """Look for side effects, large constants, callbacks, key reuse and NaN derivatives in FUNCTION.

    Exits with 3 if something is found."""
    from aot import check
    made = program(**options)
    rules = ("keys",) if key_reuse else ("source", "jaxpr", "keys")
    with stage(f"checking {made.name}"), contextlib.redirect_stdout(sys.stderr):      # what the function prints is no data
        findings = check.check(made.fun, made.abstract_args(), rules=rules, transform=made.transform)
    if as_json:
        print_json({"function": made.name, "findings": [f._asdict() for f in findings]})
    else:
        for f in findings:
            click.echo(f"{f.place}: {f.rule}: {f.message}\n    fix: {f.fix}")
        if not findings:
            click.echo(f"{made.name}: nothing found")
    return DIFFERS if findings else OK
