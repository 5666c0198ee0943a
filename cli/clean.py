"""`aot clean`: remove what was built."""
from __future__ import annotations

import click


@click.command("clean")
@click.option("--manifest", "-m", metavar="FILE", help="The manifest.  [default: aot.toml here or above]")
def command(manifest: str | None) -> None:
    """Remove the artifacts that `aot build` has written, and its records.  The cache is left alone."""
    from aot import manifest as manifests
    from aot import project
    for path in project.clean(manifests.load(manifest or manifests.find())):
        click.echo(f"removed {path}", err=True)
