"""`aot bundle`: an artifact with all that a minimal container needs."""
from __future__ import annotations

import os

import click

from ._output import size, stage


@click.command("bundle")
@click.argument("file")
@click.option("--output", "-o", metavar="FOLDER", help="The folder to write.  [default: FILE without .aot, plus _bundle]")
def command(file: str, output: str | None) -> None:
    """Write a folder with the artifact FILE, the loader as one Python file, pinned requirements and a Dockerfile.

    \b
    aot bundle model.aot -o service
    docker build service
    """
    from aot import bundle
    with stage(f"bundling {file}"):
        folder = bundle.write(file, output)
    for name in sorted(os.listdir(folder)):
        click.echo(f"{os.path.join(os.path.relpath(folder), name)}  {size(os.path.getsize(os.path.join(folder, name)))}")
