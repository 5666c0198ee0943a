"""`aot verify`: is the artifact whole, and does it still compute what it did?"""
from __future__ import annotations

import click

from ._errors import DIFFERS, OK
from ._output import loader_warnings, print_json, stage, table


@click.command("verify")
@click.argument("file")
@click.option("--rtol", type=float, help="Allowed error relative to the largest expected value.  [default: by type]")
@click.option("--strict", is_flag=True, help="Fail instead of compiling the program where no executable fits.")
@click.option("--key", "-k", "keys", multiple=True, metavar="PEM|HEX",
              help="Require a signature by this public key, or by one of several.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(file: str, rtol: float | None, strict: bool, keys: tuple[str, ...], as_json: bool) -> int:
    """Check the signature, every member's checksum, and replay the inputs recorded at build time.

    Exits with 3 when a result differs by more than the tolerance.
    """
    from aot import replay
    with stage(f"verifying {file}"), loader_warnings():
        report = replay.verify(file, rtol=rtol, strict=strict, trusted_keys=keys or None)
    if as_json:
        print_json(report)
    else:
        _print(report)
    return OK if report["ok"] else DIFFERS


def _print(report: dict) -> None:
    if report["signer"]:
        click.echo(f"{report['file']}: signed by {report['signer']}")
    click.echo(f"{report['file']}: {report['members']} members match their checksums")
    for fn in report["functions"]:
        if fn["outputs"] is None:
            click.echo(f"{fn['name']} on {fn['target']}: no recorded result to replay")
            continue
        click.echo(f"{fn['name']} on {fn['target']}: {'ok' if fn['ok'] else 'DIFFERS'}")
        rows = [[o["name"], o["type"], f"max abs error {o['max_abs_error']:.3g}",
                 f"max rel error {o['max_rel_error']:.3g}", "" if o["ok"] else "<-- differs"] for o in fn["outputs"]]
        click.echo(table(rows or [["no outputs"]], "  "))
