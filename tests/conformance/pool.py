"""Worker processes that survive what runtimes do: a worker that dies or hangs is one outcome, and is replaced."""
from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any


def _serve(connection: Connection, job: Callable[[Any], Any]) -> None:
    with open(os.devnull, "w") as nowhere:        # runtimes report to the terminal
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    while (item := connection.recv()) is not None:
        connection.send(job(item))


class Worker:
    """A process that does one job after the other."""

    def __init__(self, job: Callable[[Any], Any]):
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, job), daemon=True)
        self.process.start()
        theirs.close()
        self.item: Any = None
        self.deadline = 0.0

    def give(self, item: Any, timeout: float) -> None:
        self.item, self.deadline = item, time.monotonic() + timeout
        self.connection.send(item)

    def end(self) -> str:
        """Make sure that it is gone; how it ended, in words."""
        late = self.process.is_alive() and time.monotonic() > self.deadline
        if self.process.is_alive():
            self.process.join(0.5)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        if late:
            return "did not end in time"
        code = self.process.exitcode or 0
        return f"ended with {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


    def ask(self, item: Any, timeout: float = 120) -> tuple[Any, str]:
        """(result, how the worker died or "") of one job."""
        self.give(item, timeout)
        return _answer(self, self.connection.poll(timeout))


def run_all(items: Iterable[Any], job: Callable[[Any], Any], workers: int = 2, timeout: float = 60.0,
            startup: float = 30.0) -> Iterator[tuple]:
    """(item, result, how the worker died or "") for each item, as they finish.

    job: a function of a module, which the worker imports; it must not raise.  startup: seconds that a new worker has more.
    """
    waiting, active = iter(items), []
    for item in itertools.islice(waiting, workers):
        active.append(Worker(job))
        active[-1].give(item, timeout + startup)
    while active:
        for worker in _finished(active):
            item, (result, died) = worker.item, _answer(worker, worker.connection.poll())
            yield item, result, died
            active.remove(worker)
            for following in itertools.islice(waiting, 1):
                active.append(Worker(job) if died else worker)
                active[-1].give(following, timeout + startup * bool(died))
            if worker not in active and not died:
                with contextlib.suppress(OSError):
                    worker.connection.send(None)


def _finished(active: list[Worker]) -> list[Worker]:
    """The workers that have an answer, are gone, or are late; waits up to a second."""
    ready = wait([w.connection for w in active], timeout=1.0)
    return [w for w in active if w.connection in ready or time.monotonic() > w.deadline]


def _answer(worker: Worker, ready: bool) -> tuple[Any, str]:
    if ready:
        with contextlib.suppress(EOFError, OSError):
            return worker.connection.recv(), ""
    return None, worker.end()
