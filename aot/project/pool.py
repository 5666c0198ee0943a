"""The near end of the worker server: start it, send it tasks, wait for what comes back."""
from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections import deque
from typing import Any

from aot.errors import AotError


class Pool:
    """Runs tasks in workers, `jobs` at a time, in the order of submission.  Use as a context manager.

    Leaving the block, for whatever reason, ends every worker.  The server starts with the first task.  on_start: called
    with the tag of a task that starts.
    """

    def __init__(self, jobs: int = 1, on_start: Any = None):
        self.jobs, self.waiting, self.running = max(1, jobs), deque(), {}
        self.on_start = on_start or (lambda tag: None)
        self.server: subprocess.Popen | None = None
        self._next, self._buffer, self._lines = 0, b"", deque()

    def __enter__(self) -> Pool: return self

    def __exit__(self, *exc: Any) -> None: self.close()

    def start(self) -> None:
        """Start the server now; it warms up while the caller goes on."""
        if self.server is None:
            command = [sys.executable, "-P", "-m", "aot.project.server"]        # the user's files are no libraries
            self.server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
                                           start_new_session=True)

    def submit(self, task: dict, *, log: str, env: dict | None = None, timeout: float | None = None,
               tag: Any = None) -> None:
        """Queue a task.  tag: returned with its reply."""
        request = {"id": self._next, "task": task, "env": env, "log": os.path.abspath(log), "timeout": timeout}
        self.waiting.append((request, tag))
        self._next += 1
        self._fill()

    def cancel(self) -> None:
        """Forget the tasks that have not started."""
        self.waiting.clear()

    @property
    def busy(self) -> bool:
        return bool(self.running or self.waiting)

    def _fill(self) -> None:
        self.start()
        assert self.server and self.server.stdin
        while self.waiting and len(self.running) < self.jobs:
            request, tag = self.waiting.popleft()
            self.running[request["id"]] = tag, time.monotonic()
            self.on_start(tag)
            try:
                self.server.stdin.write(json.dumps(request).encode() + b"\n")
            except BrokenPipeError:
                raise self._lost() from None

    def next(self, wait: float | None = None) -> tuple[Any, dict, float] | None:
        """(tag, reply, seconds) of the next task that ends, or None after `wait` seconds."""
        assert self.server and self.server.stdout
        while not self._lines:
            if not select.select([self.server.stdout], [], [], wait)[0]:
                return None
            data = os.read(self.server.stdout.fileno(), 1 << 20)
            if not data:
                raise self._lost()
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            self._lines.extend(lines)
        reply = json.loads(self._lines.popleft())
        tag, started = self.running.pop(reply.pop("id"))
        if self.waiting:
            self._fill()
        return tag, reply, time.monotonic() - started

    def _lost(self) -> AotError:
        code = self.server.wait() if self.server else None
        return AotError(f"the worker server ended unexpectedly (status {code})",
                        hint="its messages are above; `aot doctor` checks the installation")

    def close(self) -> None:
        """End the server and its children, and wait for them."""
        if self.server is None:
            return
        try:
            self.server.stdin.close()  # type: ignore[union-attr]
            self.server.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            self.server.kill()
            self.server.wait()
        self.server.stdout.close()  # type: ignore[union-attr]
        self.server = None


def compile_elsewhere(text: str, target: Any, flags: dict[str, Any]) -> Any:
    """StableHLO text -> `artifact.Executable` for a target that needs a process set up for it.  Raises AotError."""
    import tempfile

    from aot import artifact, cache
    store = cache.active()
    where = {"directory": store.directory, "offline": not store.remotes} if store else None
    with tempfile.TemporaryDirectory() as stage, Pool() as pool:
        with open(os.path.join(stage, f"{target.platform}.mlir"), "w") as f:
            f.write(text)
        task = {"do": "compile", "root": os.getcwd(), "output": stage, "stage": stage, "target": target.name, "number": 0,
                "devices": target.devices,
                "item": {"xla_flags": flags}, "cache": where}
        pool.submit(task, log=(log := os.path.join(stage, "log")), env=target.environment)
        _, reply, _ = pool.next() or (None, {"error": {"message": "no reply"}}, 0)
        if "error" in reply:
            with open(log, errors="replace") as f:
                tail = "".join(f.readlines()[-20:])
            raise AotError(f"compiling for {target.name}: {reply['error']['message']}" + (tail and f"\n{tail}"))
        with open(os.path.join(stage, "exec.0.json")) as f:
            about = json.load(f)
        with open(os.path.join(stage, "exec.0"), "rb") as f:
            return artifact.Executable(blob=f.read(), **about)
