"""`aot compile`: a function to an artifact."""
from __future__ import annotations

import os
from typing import Any

import click

from ._function import function_options, keep_inputs, program
from ._output import print_json, size, stage


@click.command("compile")
@function_options
@click.option("--target", "-t", "targets", multiple=True, default=("cpu",), show_default=True,
              help="What to compile for; repeat for several. The portable program is always included.")
@click.option("--name", help="Name of the function in the artifact.  [default: its own name]")
@click.option("--output", "-o", metavar="FILE", help="The artifact to write.  [default: NAME.aot]")
@click.option("--no-golden", is_flag=True, help="Do not run the function once to record a result for `aot verify`.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON summary.")
def command(targets: tuple[str, ...], name: str | None, output: str | None, no_golden: bool, as_json: bool,
            **options: Any) -> None:
    """Compile FUNCTION of MODULE (a dotted name, or the path of a .py file) to an .aot artifact.

    \b
    aot compile model.py:predict --weights params.npz --arg 'f32[32,784]' -o model.aot
    aot compile model:loss --arg '{"w": f32[3], "b": f32[]}' --arg 'f32[8,3]' --value-and-grad 0
    """
    from aot import build, cache
    with stage(f"importing {options['function']}"):
        made = program(name=name, **options)
    path = output or f"{made.name}.aot"
    keep_inputs(path, **options)
    build.prepare_devices(made.devices)
    with cache.using(cache.from_environment()):
        build.save(path, [made], targets, golden=not no_golden, stage=stage)

    import aot_runtime
    artifact = aot_runtime.load(path)
    signature, unused = artifact.signature(made.name), artifact.manifest["functions"][made.name].get("unused_weights", ())
    if as_json:
        print_json({"file": path, "function": made.name, "signature": signature, "targets": list(targets),
                    "unused_weights": list(unused), "size": os.path.getsize(path)})
    else:
        click.echo(f"{path}: {signature} for {', '.join(targets)} ({size(os.path.getsize(path))})")
        if unused:
            click.echo(f"left out, because {made.name} has no use for them: {', '.join(unused)}", err=True)
