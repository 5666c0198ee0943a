"""Progress on stderr for what takes longer than a second, tables and JSON on stdout."""
from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

import click

SLOW = 1.0  # seconds before anything is shown


@contextmanager
def stage(what: str) -> Iterator[None]:
    """Show `what` on stderr while the block runs, if it runs for more than a second.

    What the user's code prints meanwhile is no data: it goes to stderr.  If it changes the current folder, that ends here."""
    from aot.binding import same_folder
    done = threading.Event()
    shown = threading.Thread(target=_show, args=(what, done), daemon=True)
    shown.start()
    try:
        with redirect_stdout(sys.stderr), same_folder():
            yield
    finally:
        done.set()
        shown.join()


def _show(what: str, done: threading.Event) -> None:
    if done.wait(SLOW):
        return
    if not sys.stderr.isatty():
        click.echo(f"{what} ...", err=True)
        return
    from rich.console import Console
    start = time.monotonic() - SLOW
    with Console(stderr=True).status(what) as status:
        while not done.wait(0.2):
            status.update(f"{what} ({time.monotonic() - start:.0f} s)")


class _Warnings(logging.Handler):
    """Prints what the loader logs as `warning:` lines."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(f"{record.levelname.lower()}: {record.getMessage()}", err=True)


@contextmanager
def loader_warnings() -> Iterator[None]:
    """Show on stderr why an executable was passed over."""
    logger, handler = logging.getLogger("aot_runtime"), _Warnings()
    logger.addHandler(handler)
    propagate, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def table(rows: Sequence[Sequence[Any]], indent: str = "") -> str:
    """Rows as left-aligned columns."""
    text = [[str(c) for c in row] for row in rows]
    widths = [max(len(row[i]) for row in text) for i in range(len(text[0]))] if text else []
    return "\n".join(indent + "  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in text)


def size(n: int) -> str:
    """1536 -> '1.5 KiB'"""
    for unit in ("B", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024  # type: ignore[assignment]
    return f"{n:.1f} GiB"
