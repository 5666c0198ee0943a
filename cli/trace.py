"""`aot trace`: what a function becomes."""
from __future__ import annotations

from typing import Any

import click

from ._function import function_options, program
from ._output import print_json, stage


@click.command("trace")
@function_options
@click.option("--stablehlo", is_flag=True, help="Print the StableHLO module instead of the jaxpr.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: the text and the types of inputs and outputs.")
def command(stablehlo: bool, as_json: bool, **options: Any) -> None:
    """Print the jaxpr (or the StableHLO) of FUNCTION for the given argument types."""
    with stage(f"importing {options['function']}"):
        made = program(**options)
    with stage(f"tracing {made.name}"):
        text = made.lowered.text if stablehlo else str(made.traced.jaxpr)
    if not as_json:
        click.echo(text)
        return
    traced = made.traced
    print_json({"function": made.name, "form": "stablehlo" if stablehlo else "jaxpr", "text": text,
                "inputs": dict(zip(made.leaf_names(), map(str, traced.in_avals))),
                "outputs": [str(a) for a in traced.out_avals]})
