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
@click.option("--against", metavar="FILE", help="For an exported file: the .aot artifact or StableHLO file that it came from.")
@click.option("--function", metavar="NAME", help="With --against: which function of the artifact.  [default: the only one]")
@click.option("--report", type=click.Choice(["html", "json"]), help="Print the report on exported files as a page, or as JSON.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(file: str, rtol: float | None, strict: bool, keys: tuple[str, ...], against: str | None, function: str | None,
            report: str | None, as_json: bool) -> int:
    """Check the signature, every member's checksum, and replay the inputs recorded at build time.

    Exported files are run in their own runtime and compared with XLA on recorded, random and edge inputs: those that lie
    next to an artifact under the names that `aot build` and `aot export` give them, or one with --against.
    Exits with 3 when a result differs by more than the tolerance.

    \b
    aot verify model.aot
    aot verify model.onnx --against model.aot --report html > report.html
    """
    if against is not None:
        return _exported(file, against, function, rtol, "json" if as_json else report)
    if function:
        raise click.UsageError("--function needs --against")
    return _artifact(file, rtol, strict, keys, "json" if as_json else report)


def _exported(file: str, against: str, function: str | None, rtol: float | None, form: str | None) -> int:
    from aot.exporters import report_page, source, verify

    from ._verified import print_cases
    with stage(f"verifying {file}"):
        report = verify.verify(source.load(against, function), file, rtol=rtol)
    if form == "html":
        click.echo(report_page.page(report))
    elif form == "json":
        print_json(report)
    else:
        print_cases(report)
    return OK if report["ok"] else DIFFERS


def _artifact(file: str, rtol: float | None, strict: bool, keys: tuple[str, ...], form: str | None) -> int:
    from aot import replay
    from aot.exporters import report_page, verify

    from ._verified import print_cases
    with stage(f"verifying {file}"), loader_warnings():
        report = replay.verify(file, rtol=rtol, strict=strict, trusted_keys=keys or None)
        exported = verify.beside(file, rtol)
    ok = report["ok"] and all(r["ok"] is not False for r in exported)
    if form == "html":
        click.echo(report_page.page(*exported))
    elif form == "json":
        print_json({**report, "ok": ok, "exported": exported})
    else:
        _print(report)
        for r in exported:
            print_cases(r)
    return OK if ok else DIFFERS


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
