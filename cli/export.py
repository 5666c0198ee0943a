"""`aot export`: a function, an artifact or a StableHLO file as a file of another format."""
from __future__ import annotations

import dataclasses
from typing import Any

import click

from ._errors import DIFFERS, OK
from ._function import function_options, keep_inputs, program
from ._output import print_json, stage
from ._verified import print_cases


@click.command("export")
@function_options
@click.option("--format", "-f", "format", required=True, help="onnx, tflite, c or stablehlo.")
@click.option("--output", "-o", metavar="FILE", help="The file to write.  [default: NAME and the format's suffix]")
@click.option("--opset", type=int, help="ONNX: the version of the operators, 18 to 28.  [default: 21]")
@click.option("--dynamic-batch", is_flag=True, help="ONNX: let the first axis of every input have any size.")
@click.option("--composites", is_flag=True, help="StableHLO: keep softmax, gelu and the like by name, as composites.")
@click.option("--runtime", metavar="NAME", help="TFLite: the runtime to write for, current or 2.14.  [default: current]")
@click.option("--quantize", metavar="MODE", help="TFLite: float16 (weights) or int8 (products, with --calibration).")
@click.option("--calibration", metavar="FILE", help="TFLite: typical inputs for int8, in an .npz file.")
@click.option("--weights-file", is_flag=True, help="C: constants in a file of their own instead of the source.")
@click.option("--function", "name", metavar="NAME", help="Which function of an artifact.  [default: the only one]")
@click.option("--no-verify", is_flag=True, help="Do not run the file in its runtime to compare it with XLA.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON summary.")
def command(function: str, format: str, output: str | None, opset: int | None, dynamic_batch: bool, composites: bool,
            runtime: str | None, quantize: str | None, calibration: str | None, weights_file: bool, name: str | None,
            no_verify: bool, as_json: bool, **options: Any) -> int:
    """Export FUNCTION of MODULE, an .aot artifact, or a StableHLO file (.mlir, .mlirbc).

    The file is compared with XLA in its own runtime; a program that the format cannot express is refused with a list of
    everything that stands in the way.  Exits with 3 when results differ.

    \b
    aot export model.aot --format onnx -o model.onnx
    aot export model.py:predict --arg 'f32[32,784]' --format onnx --opset 26
    """
    from aot.exporters import formats, verify
    source, again = _source(function, name, options)
    given = {"opset": opset, "dynamic_batch": dynamic_batch and again or None, "runtime": runtime, "quantize": quantize,
             "calibration": calibration, "composites": composites or None, "weights": "file" if weights_file else None}
    chosen = {k: v for k, v in given.items() if v is not None}
    if dynamic_batch and not again:
        raise click.UsageError("--dynamic-batch needs MODULE:FUNCTION, which can be traced at other sizes")
    path = output or source.name + formats.suffix(format)
    keep_inputs(path, function, **options)
    with stage(f"writing {path}"):
        made, _ = formats.export(source, format, path, **chosen)
    report = None
    if not no_verify:
        with stage(f"verifying {path}"):
            if getattr(made, "sample", ()):
                source = dataclasses.replace(source, golden=(made.sample, ()))
            report = verify.verify(source, path, format=format, **getattr(made, "verification", {}))
            if dynamic_batch and again:
                verify.extend(report, verify.verify(again(7), path, format=format, edges=False), "first axis of 7")
    if as_json:
        print_json({"file": path, "format": format, "function": source.name, "inputs": made.inputs, "outputs": made.outputs,
                    "renamed": made.renamed, "notes": getattr(made, "notes", []), "verified": report})
    else:
        _print(path, made, report)
    return OK if report is None or report["ok"] else DIFFERS


def _source(function: str, name: str | None, options: dict[str, Any]) -> tuple[Any, Any]:
    """The source, and how to make it for other sizes of the first axes of arguments (None for files)."""
    from aot.exporters import source
    if source.is_file(function):
        given = [f"--{k.replace('_', '-').removesuffix('s')}" for k, v in options.items() if v]
        if given:
            raise click.UsageError(f"{', '.join(given)}: only for MODULE:FUNCTION; {function} has its types already")
        with stage(f"reading {function}"):
            return source.load(function, name), None
    with stage(f"tracing {function}"):
        made = program(function=function, name=name, **options)
        return source.of_program(made), source.resized(made)


def _print(path: str, made: Any, report: dict[str, Any] | None) -> None:
    for old, new in made.renamed.items():
        click.echo(f"note: {old} is called {' and '.join(new)}", err=True)
    for note in getattr(made, "notes", ()):
        click.echo(f"note: {note}", err=True)
    if report is None:
        click.echo(f"{path}: written, not verified")
    else:
        print_cases(report)
