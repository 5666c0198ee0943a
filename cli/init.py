"""`aot init`: a first manifest."""
from __future__ import annotations

import os

import click


@click.command("init")
@click.argument("function", required=False, metavar="[MODULE:FUNCTION]")
@click.option("--arg", "-a", "args", multiple=True, metavar="SPEC", help="An argument, as for `aot compile`.")
@click.option("--schema", is_flag=True, help="Print the JSON schema of aot.toml, for editors, and write nothing.")
def command(function: str | None, args: tuple[str, ...], schema: bool) -> None:
    """Write aot.toml in this folder, with one function to start from."""
    from aot import manifest
    from aot.errors import AotError
    if schema:
        click.echo(manifest.schema_text(), nl=False)
        return
    if function is not None and not all(function.partition(":")):
        raise AotError(f"{function!r} is no function", hint="name it as MODULE:FUNCTION, such as model.py:predict")
    if os.path.exists(manifest.FILE):
        raise AotError(f"{manifest.FILE} exists", hint="edit it, or remove it first")
    import json
    text = manifest.TEMPLATE.format(name=os.path.basename(os.getcwd()) or "project", function=function or "model.py:predict",
                                    args=", ".join(map(json.dumps, args or ["f32[32,784]"])))
    with open(manifest.FILE, "w", encoding="utf-8") as f:
        f.write(text)
    click.echo(f"wrote {manifest.FILE}; next: aot build", err=True)
