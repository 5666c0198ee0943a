"""The options that describe a function and its arguments, shared by `aot compile` and `aot trace`."""
from __future__ import annotations

import ast
import os
from typing import Any

import click

_OPTIONS = [
    click.argument("function", metavar="MODULE:FUNCTION"),
    click.option("--arg", "-a", "args", multiple=True, metavar="[NAME=]SPEC",
                 help="An argument: f32[32,784], {\"w\": f32[3]}, 1.5, key[], or a .npz/.npy/.safetensors file. "
                      "Once per argument, in order; NAME= for one passed by name."),
    click.option("--grad", metavar="ARGNUMS", help="Differentiate with respect to these arguments: 0, or params,x."),
    click.option("--value-and-grad", metavar="ARGNUMS", help="Like --grad, returning the value too."),
    click.option("--vmap", metavar="IN_AXES", help="Map over axes of the arguments: 0, or None,0. After --grad."),
    click.option("--static", multiple=True, metavar="NAME=VALUE", help="Fix an argument to a Python value."),
    click.option("--as-jax", is_flag=True, help="Let `import jax` mean aot, in the module and the libraries it imports."),
    click.option("--weights", multiple=True, metavar="[NAME=]FILE",
                 help="Store the arrays of a file in the artifact as this argument (by default the first)."),
    click.option("--mesh", metavar="AXIS=N,...", default="", help="Partition over devices: data=4,model=2."),
    click.option("--in-sharding", "in_shardings", multiple=True, metavar="WHICH=AXES",
                 help="Mesh axes that split an argument or a part of one: x=data, params.w=-,model."),
    click.option("--out-sharding", "out_shardings", multiple=True, metavar="WHICH=AXES",
                 help="The same for results: result=data.  [default: where XLA leaves them]"),
]


def function_options(command: Any) -> Any:
    """Decorator: add the options above, in this order."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def program(function: str, args: tuple[str, ...], grad: str | None, value_and_grad: str | None, vmap: str | None,
            static: tuple[str, ...], as_jax: bool, weights: tuple[str, ...], mesh: str, in_shardings: tuple[str, ...],
            out_shardings: tuple[str, ...], name: str | None = None) -> Any:
    """The `aot.build.Program` that the options describe."""
    from aot import binding, build, partition, spec
    if grad is not None and value_and_grad is not None:
        raise click.UsageError("--grad and --value-and-grad exclude each other")
    if mesh:        # the module may make a mesh of its own while it is imported
        build.prepare_devices(partition.parse_mesh(mesh).size)
    if as_jax:
        import aot.as_jax  # noqa: F401
    fun = binding.find(function)
    positional, named = [], {}
    for text in args:
        key, value = _split(text)
        if key:
            named[key] = spec.parse(value)
        else:
            positional.append(spec.parse(value))
    return build.Program(fun, positional, named, name=name, grad=grad, value_and_grad=value_and_grad, vmap=vmap,
                         static={k: _literal(v) for k, v in (_required(s, "--static") for s in static)},
                         weights=_weights(fun, weights), mesh=mesh, in_shardings=_rules(in_shardings, "--in-sharding"),
                         out_shardings=_rules(out_shardings, "--out-sharding"))


def keep_inputs(output: str, function: str, args: tuple[str, ...] = (), weights: tuple[str, ...] = (), **_: Any) -> None:
    """Raise AotError where `output` would replace a file that the command reads."""
    from aot.errors import AotError
    read = [function, function.rpartition(":")[0], *(_split(text)[1] for text in (*args, *weights))]
    if any(os.path.isfile(path) and os.path.exists(output) and os.path.samefile(path, output) for path in read):
        raise AotError(f"{output}: cannot be written: it is what is read", hint="name another file with -o")


def _weights(fun: Any, options: tuple[str, ...]) -> dict[str, Any]:
    from aot import binding, spec
    found = {}
    for text in options:
        key, path = _split(text)
        found[key or binding.first_parameter(fun)] = spec.load_file(path)
    return found


def _rules(options: tuple[str, ...], option: str) -> dict[str, str]:
    rules = {}
    for text in options:
        which, equals, axes = text.partition("=")
        if not which.strip() or not equals:
            raise click.UsageError(f"{option} {text!r}: write WHICH=AXES, like x=data")
        rules[which.strip()] = axes
    return rules


def _split(text: str) -> tuple[str, str]:
    """`x=f32[3]` -> ('x', 'f32[3]'); without a name the first is empty."""
    name, equals, value = text.partition("=")
    return (name.strip(), value) if equals and name.strip().isidentifier() else ("", text)


def _required(text: str, option: str) -> tuple[str, str]:
    name, value = _split(text)
    if not name:
        raise click.UsageError(f"{option} {text!r}: write NAME=VALUE")
    return name, value


def _literal(text: str) -> Any:
    """A Python literal, or the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
