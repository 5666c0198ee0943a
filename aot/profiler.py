"""Where time and memory go: traces for TensorBoard, XProf and Perfetto, and pprof files of device memory, by XLA's profiler."""
from __future__ import annotations

import functools
import gzip
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aot import xla

_profiler, _data = xla.profiler()
ProfileData, ProfileEvent, ProfilePlane = _data.ProfileData, _data.ProfileEvent, _data.ProfilePlane
ProfileOptions = _profiler.ProfileOptions


class _Running:
    """The trace and the server of this process: one of each at a time."""
    lock = threading.Lock()
    session: Any = None
    server: Any = None
    log_dir = ""
    perfetto = False


def start_trace(log_dir: os.PathLike | str, create_perfetto_link: bool = False, create_perfetto_trace: bool = False,
                profiler_options: Any = None) -> None:
    """Record what this process and its devices do, until `stop_trace` writes it below log_dir.

    create_perfetto_trace: also as `perfetto_trace.json.gz`.  Raises RuntimeError while another trace is running."""
    if create_perfetto_link:
        raise NotImplementedError("start_trace: create_perfetto_link is not supported. hint: use create_perfetto_trace=True "
                                  "and open perfetto_trace.json.gz at https://ui.perfetto.dev")
    with _Running.lock:
        if _Running.session is not None:
            raise RuntimeError("a trace is running already; there can be one at a time. hint: call stop_trace first")
        xla.client()        # so that its devices are part of the trace
        _Running.session = _profiler.ProfilerSession(profiler_options if profiler_options is not None else ProfileOptions())
        _Running.log_dir, _Running.perfetto = os.fspath(log_dir), create_perfetto_trace


def stop_trace() -> None:
    """End the trace and write it.  Raises RuntimeError when none is running."""
    with _Running.lock:
        if _Running.session is None:
            raise RuntimeError("no trace is running. hint: call start_trace first")
        session, _Running.session = _Running.session, None
        session.stop_and_export(_Running.log_dir)
        if _Running.perfetto:
            _write_perfetto(Path(_Running.log_dir))


def _write_perfetto(log_dir: Path) -> None:
    """The newest trace without the field that Perfetto does not read."""
    written = max((log_dir / "plugins" / "profile").glob("*/*.trace.json.gz"), key=lambda p: p.stat().st_mtime)
    with gzip.open(written, "rt") as f:
        found = json.load(f)
    found.pop("metadata", None)
    with gzip.open(written.parent / "perfetto_trace.json.gz", "wt") as f:
        json.dump(found, f)


@contextmanager
def trace(log_dir: os.PathLike | str, create_perfetto_link: bool = False, create_perfetto_trace: bool = False,
          profiler_options: Any = None) -> Iterator[None]:
    """Record the block: `start_trace` and `stop_trace`."""
    start_trace(log_dir, create_perfetto_link, create_perfetto_trace, profiler_options)
    try:
        yield
    finally:
        stop_trace()


class TraceAnnotation(_profiler.TraceMe):
    """`with TraceAnnotation("name", key=value):` is an event of that name in a trace."""


class StepTraceAnnotation(TraceAnnotation):
    """The same for one step of a training loop: `with StepTraceAnnotation("train", step_num=i):`."""

    def __init__(self, name: str, **kwargs: Any):
        super().__init__(name, _r=1, **kwargs)


def annotate_function(func: Callable | None = None, name: str | None = None, **decorator_kwargs: Any) -> Callable:
    """func, whose calls are events of that name (by default its own) in a trace.  Usable as a decorator with options."""
    if func is None:
        return functools.partial(annotate_function, name=name, **decorator_kwargs)

    @functools.wraps(func)
    def annotated(*args: Any, **kwargs: Any) -> Any:
        with TraceAnnotation(name or getattr(func, "__qualname__", str(func)), **decorator_kwargs):
            return func(*args, **kwargs)
    return annotated


# ---- memory ------------------------------------------------------------------------------------------------------------

def device_memory_profile(backend: str | None = None) -> bytes:
    """The arrays and executables that are alive, in pprof's format: `pprof -http=: FILE` shows it."""
    return xla.client(backend or "cpu").heap_profile()


def save_device_memory_profile(filename: os.PathLike | str, backend: str | None = None) -> None:
    """Write `device_memory_profile` to a file."""
    Path(filename).write_bytes(device_memory_profile(backend))


# ---- a server for tools that take traces themselves -----------------------------------------------------------------------

def start_server(port: int, requires_backend: bool = True) -> Any:
    """Let TensorBoard and XProf take traces through this port.  Keep the result alive.  Raises ValueError if there is one."""
    with _Running.lock:
        if _Running.server is not None:
            raise ValueError("a profiler server is running already. hint: call stop_server first")
        if requires_backend:
            xla.client()
        _Running.server = _profiler.start_server(port)
        return _Running.server


def stop_server() -> None:
    """End the server.  Raises ValueError when there is none."""
    with _Running.lock:
        if _Running.server is None:
            raise ValueError("no profiler server is running. hint: call start_server first")
        _Running.server = None


__all__ = ["ProfileData", "ProfileEvent", "ProfileOptions", "ProfilePlane", "StepTraceAnnotation", "TraceAnnotation",
           "annotate_function", "device_memory_profile", "save_device_memory_profile", "start_server", "start_trace",
           "stop_server", "stop_trace", "trace"]
