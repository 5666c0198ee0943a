"""Every way a command can end: exit code, and a message on stderr."""
from __future__ import annotations

import os
import sys
import traceback

import click

from ._interrupt import end_when_stuck

OK, FAILED, USAGE, DIFFERS, USER_CODE, BUG, INTERRUPTED = 0, 1, 2, 3, 4, 70, 130


def run_guarded(command: click.Command, args: list[str] | None) -> int:
    """Run a click command and turn every way it can end into an exit code and a message on stderr."""
    own_process = args is None
    args = sys.argv[1:] if args is None else list(args)
    debug = "--debug" in args
    if debug:  # accepted anywhere
        args = ["--debug", *(a for a in args if a != "--debug")]
    _open_streams()
    if own_process:
        end_when_stuck(INTERRUPTED)
    try:
        with command.make_context("aot", args) as context:      # not `main`, which has endings of its own
            _check_environment()
            return command.invoke(context) or OK
    except click.exceptions.Exit as e:
        return e.exit_code
    except click.ClickException as e:
        e.show()
        return e.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except (Exception, SystemExit) as e:    # the latter from the user's module or function: whatever its code, nothing is done
        return _report(e, debug)


def _open_streams() -> None:
    """Let no file become what C++ takes for stdout or stderr, where those are closed."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)      # the lowest number that is free, which is this one


def _check_environment() -> None:
    from aot.config import check_environment
    check_environment()


def _report(e: BaseException, debug: bool) -> int:
    from aot import blame
    found = blame.describe(e, _command_line())
    if debug:
        traceback.print_exc()
    if isinstance(e, BrokenPipeError) and found["kind"] != "user":      # the reader of our stdout has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return OK
    if found["kind"] == "bug":
        click.echo(f"internal error: {type(e).__name__}: {e}", err=True)
        click.echo("hint: this is a bug in aot; please report it with the output of --debug", err=True)
        return BUG
    if found["kind"] == "error":
        click.echo(f"error: {found['message']}", err=True)
        return FAILED
    if not debug:
        click.echo(found["message"], err=True)
    return USER_CODE


def _command_line() -> tuple[str, ...]:
    """The folders of this package, the exporters (neither is below aot where it is installed for editing), and click."""
    import aot.exporters
    files = (__file__, click.__file__, aot.exporters.__file__)
    return tuple(os.path.dirname(os.path.abspath(f or "")) + os.sep for f in files)
