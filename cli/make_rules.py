"""`aot make-rules`: rules for other build systems."""
from __future__ import annotations

import os

import click


@click.command("make-rules")
@click.option("--cmake", is_flag=True, help="The file for CMake.")
def command(cmake: bool) -> None:
    """Print the path of a file to include in a Makefile: include $(shell aot make-rules)."""
    from aot import project
    click.echo(os.path.join(os.path.dirname(project.__file__), "aot.cmake" if cmake else "aot.mk"))
