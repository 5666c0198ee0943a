"""Targets `pjrt:PATH`: executables for one PJRT plugin file, which the C loader runs through that same file.

A blob of another XLA may crash or give wrong numbers without an error, so blob and plugin are tied together by the
sha256 of the plugin's file.  Nothing here imports jaxlib before something is compiled.
"""
from __future__ import annotations

import ctypes
import os
import re
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from aot.errors import AotError

if TYPE_CHECKING:
    from aot.compile.cached import Built
    from aot.targets import Target


# ---- identity ------------------------------------------------------------------------------------------------------

def file_sha256(path: str) -> str:
    """The sha256 of a plugin's file, remembered by its path, size and times: these files have hundreds of megabytes.

    Raises AotError when it cannot be read.  The C loader reads and writes the same records.
    """
    path = os.path.realpath(path)
    try:
        stamp, record = _stamp(os.stat(path)), _record_of(path)
        return _remembered(record, stamp) or _hash(path, record, stamp)
    except OSError as e:
        raise AotError(f"plugin {path} cannot be read: {e.strerror or e}") from None


def _stamp(s: os.stat_result) -> str:
    mtime, ctime = (f"{ns // 10**9}.{ns % 10**9:09}" for ns in (s.st_mtime_ns, s.st_ctime_ns))
    return f"{s.st_dev} {s.st_ino} {s.st_size} {mtime} {ctime}"


def _record_of(path: str) -> str:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "aot", "plugins", sha256(os.fsencode(path)).hexdigest()[:32])


def _remembered(record: str, stamp: str) -> str | None:
    try:
        with open(record) as f:
            before, _, digest = f.readline().rstrip("\n").rpartition(" ")
    except (OSError, UnicodeDecodeError):
        return None
    return digest if before == stamp and re.fullmatch("[0-9a-f]{64}", digest) else None


def _hash(path: str, record: str, stamp: str) -> str:
    from aot.files import replacing
    digest = sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            digest.update(block)
    try:
        os.makedirs(os.path.dirname(record), 0o700, exist_ok=True)
        with replacing(record) as f:
            f.write(f"{stamp} {digest.hexdigest()}\n".encode())
    except (OSError, AotError):  # the next process hashes again
        pass
    return digest.hexdigest()


def api_version(path: str) -> str:
    """The version of the C API that a plugin speaks, "0.115": the first fields of what GetPjrtApi returns."""
    class Api(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("extensions", ctypes.c_void_p), ("version_size", ctypes.c_size_t),
                    ("version_extensions", ctypes.c_void_p), ("major", ctypes.c_int), ("minor", ctypes.c_int)]
    get = ctypes.CDLL(path).GetPjrtApi
    get.restype = ctypes.POINTER(Api)
    api = get().contents
    return f"{api.major}.{api.minor}"


def label(target: Target) -> str:
    """The target's name in an artifact: `pjrt:FILE@SHA[:LEVEL]`, without the path of the machine that built it."""
    level = f":{target.chip}" if target.chip else ""
    return f"pjrt:{os.path.basename(target.plugin)}@{file_sha256(target.plugin)[:8]}{level}"


# ---- compiling -----------------------------------------------------------------------------------------------------

def build(text: str, target: Target, flags: dict[str, Any]) -> Built:
    """Compile through the plugin, in a process that is set up for the target.  Raises AotError."""
    from aot import xla
    from aot.compile.cached import Built, cpu_features_of
    from aot.lower.plain_lapack import expand
    start = time.perf_counter()
    text = expand(text)
    try:
        client = xla.plugin_client(target.plugin)
        blob, info = xla.compile_for_plugin(client, text, **flags)
    except xla.XlaRuntimeError as e:
        raise AotError(f"the plugin {target.plugin} refuses: {str(e).splitlines()[0]}") from None
    info |= {"compile_seconds": round(time.perf_counter() - start, 3), "platform": "pjrt", "device": client.platform,
             "cpu_features": cpu_features_of(blob, target) if client.platform == "cpu" else [],
             "plugin": file_sha256(target.plugin), "plugin_api": api_version(target.plugin)}
    return Built(blob, None, info)
