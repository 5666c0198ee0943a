"""`aot run`: call a function of an artifact."""
from __future__ import annotations

from typing import Any

import click

from ._function import _split
from ._output import loader_warnings, print_json, stage


@click.command("run")
@click.argument("file")
@click.option("--function", "-f", "function", help="Which function.  [default: the only one]")
@click.option("--input", "-i", "inputs", multiple=True, metavar="[NAME=]VALUE",
              help="An argument: a .npy/.npz/.safetensors file or a literal like 1.5 or [[1, 2], [3, 4]].")
@click.option("--output", "-o", metavar="FILE", help="Write the results to a .npz, .npy or .safetensors file.")
@click.option("--strict", is_flag=True, help="Fail instead of compiling the program where no executable fits.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def command(file: str, function: str | None, inputs: tuple[str, ...], output: str | None, strict: bool,
            as_json: bool) -> None:
    """Run a function of an artifact and print or save its results.

    \b
    aot run model.aot --input x.npy
    aot run model.aot --input params=params.npz --input 'x=[1.0, 2.0]' --output y.npz
    """
    from aot import replay
    with stage(f"loading {file}"), loader_warnings():
        fn = replay.function(file, function, strict=strict)
    args, kwargs = [], {}
    for text in inputs:
        name, value = _split(text)
        if name:
            kwargs[name] = value
        else:
            args.append(value)
    with stage(f"running {fn.name}"):
        results = replay.run(fn, args, kwargs)
    _write(results, output, as_json)


def _write(results: dict[str, Any], output: str | None, as_json: bool) -> None:
    from aot import spec
    if output:
        spec.write_arrays(output, results)
    if as_json:
        print_json({k: {"dtype": v.dtype.name, "shape": list(v.shape), **({} if output else {"data": _plain(v)})}
                    for k, v in results.items()})
    elif not output:
        for name, value in results.items():
            click.echo(f"{name} =\n{value}" if value.ndim else f"{name} = {value}")


def _plain(value: Any) -> Any:
    """Nested lists of what JSON has: complex numbers as pairs, small float types widened."""
    if value.dtype.kind == "c":
        return value.view(value.real.dtype).reshape(*value.shape, 2).tolist()
    return (value if value.dtype.kind in "biuf" else value.astype("float32")).tolist()
