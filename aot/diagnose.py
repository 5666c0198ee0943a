"""Checks of an installation, for `aot doctor`."""
from __future__ import annotations

import importlib.util
import os
import platform
import sys
import tempfile
from collections.abc import Callable

from aot.errors import AotError

SUPPORTED = ((0, 10, 2), (0, 13, 0))  # jaxlib, from and below

#: package -> what it is for, and the extra that installs it
OPTIONAL = {"onnx": ("ONNX export", "onnx"), "ai_edge_litert": ("TFLite export", "tflite"),
            "fsspec": ("remote cache tiers on object stores", "remote")}


def run() -> list[dict[str, str]]:
    """[{"what", "state": "ok" | "broken" | "missing", "detail", "hint"}]; missing parts are optional."""
    rows = [_checked(what, check) for what, check in
            (("python", _python), ("jaxlib", _jaxlib), ("compiling", _compiling), ("cpu", _cpu), ("workers", _workers),
             ("cache", _cache))]
    for package, (use, extra) in OPTIONAL.items():
        found = importlib.util.find_spec(package) is not None
        rows.append(_row(package, "ok" if found else "missing", use, "" if found else f"pip install 'aotc[{extra}]'"))
    from aot import targets
    for kind, use in (("cuda", "NVIDIA GPUs"), ("tpu", "TPUs")):
        path = targets.plugin_path(kind)
        rows.append(_row(kind, "ok" if path else "missing", path or f"compiling for {use}",
                         "" if path else f"pip install 'aotc[{kind}]'"))
    return rows


def _row(what: str, state: str, detail: str, hint: str = "") -> dict[str, str]:
    return {"what": what, "state": state, "detail": detail, "hint": hint}


def _checked(what: str, check: Callable[[], str]) -> dict[str, str]:
    try:
        return _row(what, "ok", check())
    except AotError as e:
        return _row(what, "broken", e.message, e.hint or "")
    except Exception as e:  # whatever is wrong with an installation, tell it
        return _row(what, "broken", f"{type(e).__name__}: {e}".splitlines()[0])


def _python() -> str:
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        raise AotError(f"Python {platform.python_version()} is not supported", "use 3.11, 3.12 or 3.13")
    return f"{platform.python_version()} at {sys.executable}"


def _jaxlib() -> str:
    from aot_runtime import host_info
    version = host_info()["jaxlib"]
    number = tuple(int(p) for p in version.split(".")[:3] if p.isdigit())
    if not SUPPORTED[0] <= number < SUPPORTED[1]:
        raise AotError(f"jaxlib {version} is not supported", "pip install 'jaxlib>=0.10.2,<0.13'")
    return version


def _compiling() -> str:
    from aot import xla
    text = ("module @m { func.func public @main(%a: tensor<f32>) -> tensor<f32> { %0 = stablehlo.sine %a : tensor<f32>\n"
            " return %0 : tensor<f32> } }")
    xla.compile_text(text)
    return xla.client().platform_version


def _cpu() -> str:
    from aot import targets
    levels = [k for k in targets.CPU_LEVELS if targets.unavailable(targets.parse(f"cpu:{k}")) is None]
    return f"{platform.machine()}, {os.cpu_count()} CPUs" + (f", up to {levels[-1]}" if levels else "")


def _workers() -> str:
    from aot.project.pool import Pool
    with tempfile.TemporaryDirectory() as folder, Pool() as pool:
        pool.submit({"do": "sleep", "seconds": 0, "root": folder}, log=os.path.join(folder, "log"))
        _, reply, seconds = pool.next(60) or (None, {"error": {"message": "no answer within a minute"}}, 0)
        if "error" in reply:
            raise AotError(reply["error"]["message"])
        return f"start in {seconds:.1f} s"


def _cache() -> str:
    from aot import cache
    store = cache.from_environment(offline=True)
    if store.readonly:
        return f"{store.directory}, read only"
    if not store.put("0" * 64, b"", {"name": "doctor"}):
        raise AotError(f"{store.directory} cannot be written", "set AOT_CACHE_DIR to a folder that can")
    os.unlink(store.path("0" * 64))
    return store.directory
