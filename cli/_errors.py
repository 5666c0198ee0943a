"""Errors as a person wants them: what, where, a hint; the user's own traceback if it was the user's code."""
from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from functools import cache
from types import TracebackType

import click

OK, FAILED, USAGE, DIFFERS, USER_CODE, BUG, INTERRUPTED = 0, 1, 2, 3, 4, 70, 130


def run_guarded(command: click.Command, args: list[str] | None) -> int:
    """Run a click command and turn every way it can end into an exit code and a message on stderr."""
    args = sys.argv[1:] if args is None else list(args)
    debug = "--debug" in args
    if debug:  # accepted anywhere
        args = ["--debug", *(a for a in args if a != "--debug")]
    try:
        return command.main(args, prog_name="aot", standalone_mode=False) or OK
    except click.exceptions.Exit as e:
        return e.exit_code
    except click.ClickException as e:
        e.show()
        return e.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our stdout has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return OK
    except (Exception, SystemExit) as e:    # the latter from the user's module or function: whatever its code, nothing is done
        return _report(e, debug)


def _report(e: BaseException, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    user = _user_frames(e.__traceback__)
    if isinstance(e, SyntaxError) and e.filename and not _is_ours(e.filename):
        user = user or [traceback.FrameSummary(e.filename, e.lineno or 0, "<module>")]
    if user and not debug:
        lines = ["Traceback (most recent call last):\n", *traceback.format_list(user),
                 *traceback.format_exception_only(e)]
        click.echo("".join(lines), err=True, nl=False)
    if user:
        return USER_CODE
    if _foreseen(e):
        click.echo(f"error: {_message(e)}", err=True)
        return FAILED
    click.echo(f"internal error: {type(e).__name__}: {e}", err=True)
    click.echo("hint: this is a bug in aot; please report it with the output of --debug", err=True)
    return BUG


def _foreseen(e: BaseException) -> bool:
    """Errors with a message written for the user: ours, the loader's, and complaints of the API about its arguments."""
    from aot.errors import AotError
    if type(e).__name__ == "JaxRuntimeError" and str(e).startswith("RESOURCE_EXHAUSTED"):
        return True
    if isinstance(e, (AotError, TypeError, ValueError, OverflowError, OSError, NotImplementedError)):
        return True
    if type(e).__name__ == "AotError":
        return True
    loader = sys.modules.get("aot_runtime")
    return loader is not None and isinstance(e, loader.AotError)


def _message(e: BaseException) -> str:
    return str(e) or type(e).__name__


def _user_frames(tb: TracebackType | None) -> list[traceback.FrameSummary]:
    """The frames of the traceback from the user's first one on, without ours, click's and the import machinery's."""
    frames = [f for f in traceback.extract_tb(tb) if not _is_ours(f.filename)]
    library = sysconfig.get_path("stdlib") + os.sep
    first = next((i for i, f in enumerate(frames) if not os.path.abspath(f.filename).startswith(library)), len(frames))
    return frames[first:]


def _is_ours(filename: str) -> bool:
    return filename.startswith("<") or os.path.abspath(filename).startswith(_our_folders())


@cache
def _our_folders() -> tuple[str, ...]:
    import importlib

    import aot
    import aot_runtime
    folders = [os.path.dirname(os.path.abspath(m.__file__ or "")) for m in (aot, aot_runtime, click, importlib)]
    return tuple(f + os.sep for f in [*folders, os.path.dirname(os.path.abspath(__file__))])
