"""Compiling through the persistent cache, where one is in use."""
from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import cache as once
from hashlib import sha256
from typing import Any

from aot import cache, xla
from aot.config import config
from aot.errors import AotError

require_hit = False  # set by `aot build --require-cache-hit`: compiling anything is an error


def compile_text(text: str, device: Any = None, host_callbacks: Sequence[Callable] = (), **flags: Any) -> Any:
    """Like `xla.compile_text`.  Programs that call back into this process are never stored."""
    store = cache.active()
    if store is None or host_callbacks:
        return xla.compile_text(text, device, host_callbacks, **flags)
    fields = {**host_fields(text, flags), **({} if device is None else {"device": device.id})}
    found = store.get(k := cache.key(fields))
    if found is not None:
        try:
            return xla.deserialize(found, device, lapack="@lapack_" in text, **flags)
        except xla.XlaRuntimeError:  # whole, but not what this XLA reads
            pass
    refuse_miss(fields)
    start = time.perf_counter()
    executable = xla.compile_text(text, device, **flags)
    seconds = time.perf_counter() - start
    if seconds >= config.persistent_cache_min_compile_time_secs:
        blob = xla.serialize(executable)
        if len(blob) >= config.persistent_cache_min_entry_size_bytes:
            store.put(k, blob, fields, {"compile_seconds": round(seconds, 3)})
    return executable


def refuse_miss(fields: dict) -> None:
    """Raise when nothing may be compiled."""
    if require_hit:
        raise AotError(f"{fields['name']} for {fields['target']} is not in the cache, and --require-cache-hit was given",
                       hint="aot cache explain tells which input changed")


def program_fields(text: str, target: str, flags: dict) -> dict[str, Any]:
    """What decides an executable, for any target: the program, its options and the compiler."""
    name = text.split("@", 1)[1].split()[0] if text.startswith("module @") else "main"
    return {"kind": "executable", "name": name, "target": target, "program": sha256(text.encode()).hexdigest(),
            "options": {k: str(v) for k, v in sorted(flags.items())}, **tools()}


def host_fields(text: str, flags: dict, target: str = "cpu") -> dict[str, Any]:
    """The same for an executable of this host's CPU."""
    from aot_runtime import host_info
    host = host_info()
    return {**program_fields(text, target, flags), "machine": host["machine"], "cpu_features": host["cpu_features"],
            "xla_flags": xla_flags(), "devices": len(xla.devices())}


@once
def tools() -> dict[str, str]:
    from aot_runtime import host_info
    return {k: host_info()[k] for k in ("jaxlib", "jaxlib_build")}


def xla_flags() -> list[str]:
    """The flags of the environment that can change code."""
    return sorted(f for f in os.environ.get("XLA_FLAGS", "").split() if not f.startswith("--xla_dump"))
