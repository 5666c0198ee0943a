"""The command `aot`: one thin file a command, each imported only when it is used.

Data goes to stdout; progress, warnings and errors go to stderr.  Exit codes:

    0    done
    1    the request cannot be carried out: no such module, function or file, a wrong spec, a damaged artifact, ...
    2    the command line itself is wrong: unknown option, missing argument
    3    `aot verify`: a result differs from the one recorded at build time; `aot check`: something was found;
         `aot diff`: the artifacts differ
    4    the user's function raised; its own traceback is shown
    70   a bug in aot: please report it with the output of --debug
    130  interrupted
"""
from __future__ import annotations

import contextlib
import importlib
import os
import sys

import click

from ._errors import INTERRUPTED, OK, run_guarded

# name -> one line of help.  The command itself is `command` in the file of that name.
COMMANDS = {
    "compile": "Compile a function to an .aot artifact.",
    "init": "Write a first aot.toml.",
    "build": "Build the artifacts of a project, as far as they are not up to date.",
    "clean": "Remove what `aot build` has written.",
    "trace": "Print a function's jaxpr or StableHLO.",
    "check": "Look for what would surprise: side effects, large constants, key reuse, NaN derivatives.",
    "export": "Write a function as ONNX, TFLite or portable StableHLO, and compare it with XLA.",
    "run": "Run a function of an artifact on given inputs.",
    "inspect": "Show what an artifact contains and what would run here.",
    "verify": "Check an artifact's checksums and replay its recorded results.",
    "sign": "Sign an artifact, or make a key to sign with.",
    "bundle": "Write a folder to deploy: artifact, loader, requirements and Dockerfile.",
    "diff": "Show in what two artifacts differ.",
    "bench": "Measure load and run times of an artifact.",
    "targets": "List what can be built for, and what to install for the rest.",
    "cache": "Look at and look after the cache of compiled programs.",
    "make-rules": "Print the path of rules to include in a Makefile, or in CMake.",
    "doctor": "Check this installation.",
}


class _Commands(click.Group):
    """Looks commands up by file, so `aot --help` imports none of them."""

    def list_commands(self, ctx): return list(COMMANDS)

    def get_command(self, ctx, cmd_name):
        if cmd_name not in COMMANDS:
            return None
        return importlib.import_module(f"aot.cli.{cmd_name.replace('-', '_')}").command

    def format_commands(self, ctx, formatter):
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--debug", is_flag=True, help="Show full tracebacks, aot's own frames included.")
@click.version_option(package_name="aotc", prog_name="aot")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Ahead-of-time compiler for JAX-style pure Python functions.

    \b
    aot compile model.py:predict --arg 'f32[32,784]' -o model.aot
    aot run model.aot --input x.npy
    """
    ctx.obj = {"debug": debug}


def main(args: list[str] | None = None) -> int:
    """Run the command line; returns the exit code.  The console script exits with it."""
    code = run_guarded(cli, args)
    if code == INTERRUPTED and args is None:        # XLA may be compiling in threads, which would not survive an orderly end
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    return code


__all__ = ["COMMANDS", "OK", "cli", "main"]
