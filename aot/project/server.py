"""The worker server: one process that has imported everything and forks a child for each task.

    python -m aot.project.server        lines of JSON on stdin and stdout

    {"id": 3, "task": {..}, "env": {..}, "log": path, "timeout": seconds or null}   run `tasks.run(task)` in a child
    {"id": 3, "result": ..}  or  {"id": 3, "error": {"kind", "message", ..}}        how it ended

A fork costs a millisecond and starts from a clean state: no task sees another's modules, a crash or a lack of memory
ends one task, and XLA reads its process-wide flags anew.  This process makes no XLA client, so it has no threads that
a fork would lose.  When stdin closes, or its parent dies, it kills its children and ends; they die with it.
"""
from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import sys
import time
import warnings
from typing import Any


def main() -> None:
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # nothing that a library prints may get between the replies
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*multi-threaded.*fork.*")
    warm_up()
    Server(replies).serve()


def warm_up() -> None:
    """Import what tasks need, once for all of them."""
    names = ["aot.api", "aot.lax", "aot.nn", "aot.numpy", "aot.random", "aot.compile.eager", "aot.stages",
             "aot.project.tasks", "numpy.random"]
    for package in ("aot.numpy", "aot.ops"):  # they load their parts when these are used
        names += [m.name for m in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}.")]
    for name in names:
        importlib.import_module(name)
    from aot import xla
    xla.warm_up()
    gc.freeze()  # the children share these objects; collecting them would copy their pages


def die_with_parent(parent: int = 0) -> None:
    """Ask the kernel to kill this process when its parent ends, however that happens (Linux).

    parent: its process id, to find out that it has ended before this call.
    """
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    except (OSError, AttributeError):
        pass
    if parent and os.getppid() != parent:
        os._exit(1)


class Child:
    def __init__(self, request: dict, pid: int, pipe: int):
        self.request, self.pid, self.pipe, self.data = request, pid, pipe, b""
        self.deadline = time.monotonic() + request["timeout"] if request.get("timeout") else None
        self.timed_out = False


class Server:
    def __init__(self, replies: Any):
        self.replies, self.children, self.rest = replies, {}, b""
        self.selector = selectors.DefaultSelector()
        self.selector.register(0, selectors.EVENT_READ, None)
        self.running = True

    def serve(self) -> None:
        while self.running:
            for event, _ in self.selector.select(self._wait()):
                self._read_requests() if event.data is None else self._read_child(event.data)
            self._stop_late_ones()
        for child in self.children.values():
            os.kill(child.pid, signal.SIGKILL)
        for child in self.children.values():
            os.waitpid(child.pid, 0)    # who waits for this process may remove what they left

    def _wait(self) -> float | None:
        deadlines = [c.deadline for c in self.children.values() if c.deadline]
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    def _read_requests(self) -> None:
        data = os.read(0, 1 << 20)
        self.running = bool(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self._start(json.loads(line))

    def _start(self, request: dict) -> None:
        read, write = os.pipe()
        sys.stdout.flush()
        server, pid = os.getpid(), os.fork()
        if pid == 0:
            run_child(request, write, server)
        os.close(write)
        child = self.children[pid] = Child(request, pid, read)
        self.selector.register(read, selectors.EVENT_READ, child)

    def _read_child(self, child: Child) -> None:
        data = os.read(child.pipe, 1 << 20)
        child.data += data
        if data:
            return
        self.selector.unregister(child.pipe)
        os.close(child.pipe)
        _, status = os.waitpid(child.pid, 0)
        del self.children[child.pid]
        self.replies.write(json.dumps({"id": child.request["id"], **outcome(child, status)}) + "\n")

    def _stop_late_ones(self) -> None:
        for child in self.children.values():
            if child.deadline and time.monotonic() >= child.deadline:
                child.timed_out, child.deadline = True, None
                os.kill(child.pid, signal.SIGKILL)


def outcome(child: Child, status: int) -> dict:
    """What is told of a child that has ended."""
    if os.WIFEXITED(status) and child.data.endswith(b"\n"):
        return json.loads(child.data)
    if child.timed_out:
        message = f"took longer than {child.request['timeout']:g} seconds"
    elif os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        message = f"the worker was killed by {name}" + (", probably for lack of memory" if name == "SIGKILL" else "")
    else:
        message = f"the worker ended with status {os.waitstatus_to_exitcode(status)} before it was done"
    return {"error": {"kind": "timeout" if child.timed_out else "crash", "message": message}}


def run_child(request: dict, pipe: int, server: int) -> None:
    """In the child: run the task, write the reply, end.  Never returns."""
    status = 1
    try:
        die_with_parent(server)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _volunteer_for_oom()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        try:
            log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        except OSError:  # no place for a log is no reason to fail
            log = os.open(os.devnull, os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(request.get("env") or {})
        from aot.project import tasks
        reply = json.dumps(tasks.guarded(request["task"]))
        sys.stdout.flush()
        sys.stderr.flush()
        with os.fdopen(pipe, "w") as f:
            f.write(reply + "\n")
        status = 0
    finally:
        os._exit(status)


def _volunteer_for_oom() -> None:
    """When memory runs out, the kernel shall end this child and not the build."""
    try:
        with open("/proc/self/oom_score_adj", "w") as f:
            f.write("800")
    except OSError:
        pass


if __name__ == "__main__":
    main()
