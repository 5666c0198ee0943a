"""`aot inspect`: what is in an artifact."""
from __future__ import annotations

import click

from ._output import print_json, size, table


@click.command("inspect")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest, and what would run here, as JSON.")
def command(file: str, as_json: bool) -> None:
    """Show the functions, signatures, targets and members of an artifact, and what would run on this host."""
    import aot_runtime
    artifact = aot_runtime.load(file)
    if as_json:
        print_json({"file": file, "manifest": artifact.manifest,
                    "fit": {k: dict(v) for k, v in artifact.fit().items()}})
        return
    click.echo(artifact.explain())
    for name, fn in artifact.manifest["functions"].items():
        if mesh := fn.get("mesh"):
            click.echo(f"\n{name}: partitioned over " + ", ".join(f"{axis}={n}" for axis, n in mesh) + "; per device below")
        click.echo(f"\n{name}: inputs")
        click.echo(table([_row(e) for e in fn["inputs"]] or [["none"]], "  "))
        click.echo(f"{name}: outputs")
        click.echo(table([_row(e) for e in fn["outputs"]] or [["none"]], "  "))
        needs = [row for exe in fn["executables"] if (row := _needs(exe))]
        if needs:
            click.echo(f"{name}: needs")
            click.echo(table(needs, "  "))
        if unused := fn.get("unused_weights"):
            click.echo(f"{name}: weights without a use, not stored: " + ", ".join(unused))
        if fn["static"]:
            click.echo(f"{name}: fixed " + ", ".join(f"{k}={v}" for k, v in fn["static"].items()))
    click.echo("\nmembers")
    rows = [[k, size(m["size"]), m["sha256"][:12]] for k, m in artifact.manifest["members"].items()]
    click.echo(table(rows or [["none"]], "  "))
    click.echo("built with " + ", ".join(f"{k} {v}" for k, v in sorted(artifact.manifest["toolchain"].items())))


def _row(entry: dict) -> list[str]:
    import aot_runtime
    return [entry["name"], aot_runtime.short(entry["dtype"], entry["shape"]),
            _axes(entry.get("sharding")), "donated" if entry.get("donated") else ""]


def _axes(sharding: list[list[str]] | None) -> str:
    """The mesh axes that split each dimension, as `--in-sharding` takes them."""
    return "" if not any(sharding or ()) else "split " + ",".join("+".join(axes) or "-" for axes in sharding or ())


def _needs(exe: dict) -> list[str] | None:
    """Memory and work of an executable, where its compiler told."""
    memory = exe.get("memory")
    if not memory:
        return None
    parts = [f"{k} {size(memory[k])}" for k in ("argument", "output", "temp")]
    exchanged = [f"{c['count']} {k} {size(c['bytes'])}" for k, c in (exe.get("collectives") or {}).items()]
    return [exe["target"], *parts, f"{exe['flops']:,} flops" if exe.get("flops") else "", ", ".join(exchanged)]
