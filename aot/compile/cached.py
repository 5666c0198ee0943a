"""Compiling through the persistent cache, where one is in use."""
from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache as once
from hashlib import sha256
from typing import Any

from aot import cache, monitoring, xla
from aot.config import config
from aot.errors import AotError

require_hit = False  # set by `aot build --require-cache-hit`: compiling anything is an error


def compile_text(text: str, device: Any = None, host_callbacks: Sequence[Callable] = (), **flags: Any) -> Any:
    """Like `xla.compile_text`."""
    devices = [] if device is None else [device]
    return _through(text, devices, flags, host_callbacks, lambda: xla.compile_text(text, device, host_callbacks, **flags))


def compile_partitioned(text: str, devices: Sequence, host_callbacks: Sequence[Callable] = (), **flags: Any) -> Any:
    """Like `xla.compile_partitioned`.  Programs of several processes are not kept: all would have to find the same."""
    if len({d.process_index for d in devices}) > 1:
        return xla.compile_partitioned(text, devices, host_callbacks, **flags)
    return _through(text, devices, flags, host_callbacks,
                    lambda: xla.compile_partitioned(text, devices, host_callbacks, **flags))


def _through(text: str, devices: Sequence, flags: dict, callbacks: Sequence, compile: Callable[[], Any]) -> Any:
    """The executable from the cache, or compiled and stored.  Programs that call back into this process never are."""
    store = None if callbacks else store_for(text)
    if store is None:
        return _timed(compile)[0]
    fields = {**host_fields(text, flags), **({"on": [d.id for d in devices]} if devices else {})}
    found = store.get(k := cache.key(fields))
    if found is not None:
        try:
            executable = xla.deserialize(found, devices, lapack="@lapack_" in text, **flags)
            monitoring.record_event("/jax/compilation_cache/cache_hits")
            return executable
        except xla.XlaRuntimeError:  # whole, but not what this XLA reads
            pass
    refuse_miss(fields)
    monitoring.record_event("/jax/compilation_cache/cache_misses")
    executable, seconds = _timed(compile)
    if seconds >= config.persistent_cache_min_compile_time_secs:
        blob = xla.serialize(executable)
        if len(blob) >= config.persistent_cache_min_entry_size_bytes:
            store.put(k, blob, fields, {"compile_seconds": round(seconds, 3)})
    return executable


def _timed(compile: Callable[[], Any]) -> tuple[Any, float]:
    """The executable, and the seconds that it took."""
    start = time.perf_counter()
    executable = compile()
    seconds = time.perf_counter() - start
    monitoring.record_event_duration_secs("/jax/core/compile/backend_compile_duration", seconds)
    return executable, seconds


def store_for(text: str) -> Any:
    """The cache in use, if the text decides the executable: rules of custom_partitioning are functions of this process."""
    return None if "@aot_custom_partitioning" in text else cache.active()


@dataclass
class Built:
    """An executable in both forms (`loaded` is None for other machines), and what is known about it.

    info: "memory" (bytes by use), "flops", "cpu_features" that it needs, "platform", "hit" whether the cache had it.
    """
    blob: bytes
    loaded: Any
    info: dict[str, Any] = field(default_factory=dict)


def build(text: str, target: Any, flags: dict[str, Any]) -> Built:
    """Compile for a `Target` in a process that is set up for it, or take the result from the cache.

    Raises AotError when the target's compiler refuses the program.
    """
    fields = fields_of(text, target, flags)
    store, k = store_for(text), cache.key(fields)
    if store is not None and (found := store.lookup(k)):
        blob, header = found
        if built := _from_cache(blob, header, text, target, flags):
            return built
    refuse_miss(fields)
    built = _BUILDERS.get(target.kind, _build_cross)(text, target, flags)
    if store is not None:
        store.put(k, built.blob, fields, built.info)
    return Built(built.blob, built.loaded, {**built.info, "hit": False})


def _from_cache(blob: bytes, header: dict, text: str, target: Any, flags: dict) -> Built | None:
    info = {**header["info"], "hit": True}
    if target.kind != "cpu":
        return Built(blob, None, info)
    try:
        return Built(blob, xla.deserialize(blob, xla.devices()[:target.devices], lapack="@lapack_" in text, **flags), info)
    except xla.XlaRuntimeError:  # whole, but not what this XLA reads
        return None


def _build_host(text: str, target: Any, flags: dict) -> Built:
    start = time.perf_counter()
    devices = xla.devices()[:target.devices]
    if len(devices) < target.devices:
        raise AotError(f"the program needs {target.devices} devices, this process has {len(devices)}",
                       hint=f"set XLA_FLAGS=--xla_force_host_platform_device_count={target.devices}")
    try:
        loaded = xla.compile_partitioned(text, devices, **flags) if len(devices) > 1 else xla.compile_text(text, **flags)
    except xla.XlaRuntimeError as e:
        raise AotError(f"XLA refuses the program for {target.name}: {str(e).splitlines()[0]}") from None
    info = {"compile_seconds": round(time.perf_counter() - start, 3), **xla.analysis(loaded)}
    blob = xla.serialize(loaded)
    return Built(blob, loaded, {**info, "platform": "cpu", "cpu_features": cpu_features_of(blob, target)})


def cpu_features_of(blob: bytes, target: Any) -> list[str] | None:
    """What an executable that was compiled on this host for its CPU, or for a level, needs of a CPU."""
    from aot_runtime import host_info
    features = host_info()["cpu_features"]
    if target.isa and features is not None:
        return sorted({*target.features, *extra_features(blob, features)})
    return features


def _build_cross(text: str, target: Any, flags: dict) -> Built:
    from aot.lower.plain_lapack import expand
    from aot.targets import plugin_path
    start, text = time.perf_counter(), expand(text)
    try:
        compiled = xla.cross_compile(text, target.kind, plugin_path(target.kind), target.topology, target.config,
                                     target.devices, **flags)
    except xla.XlaRuntimeError as e:
        raise AotError(f"XLA refuses the program for {target.name}: {str(e).splitlines()[0]}") from None
    info = {"compile_seconds": round(time.perf_counter() - start, 3), **xla.analysis(compiled)}
    return Built(compiled.serialize(), None, {**info, "platform": target.kind, "cpu_features": None})


def _build_for_plugin(text: str, target: Any, flags: dict) -> Built:
    from aot.compile import pjrt
    return pjrt.build(text, target, flags)


_BUILDERS = {"cpu": _build_host, "pjrt": _build_for_plugin}


def _vex(maps: tuple[int, ...], opcodes: bytes) -> bytes:
    """A pattern for VEX-encoded instructions with the prefix 66."""
    first = bytes(b for b in range(256) if b & 31 in maps)
    second = bytes(b for b in range(256) if b & 3 == 1)
    return b"\xc4[" + re.escape(first) + b"][" + re.escape(second) + b"][" + re.escape(opcodes) + b"]"


#: instructions that XLA's ISA limit does not exclude: LLVM's feature, its name in /proc/cpuinfo, their encoding (None:
#: assumed to be used)
_EXTRAS = (
    ("sse4a", "sse4a", rb"[\x66\xf2][\x40-\x4f]?\x0f[\x78\x79]"),
    ("gfni", "gfni", _vex((2, 3), b"\xce\xcf") + rb"|\x66[\x40-\x4f]?\x0f[\x38\x3a][\xce\xcf]"),
    ("avxvnni", "avx_vnni", _vex((2,), b"\x50\x51\x52\x53")),
    ("avxifma", "avx_ifma", None), ("avxneconvert", "avx_ne_convert", None), ("avx512vnni", "avx512_vnni", None),
    ("avx512bf16", "avx512_bf16", None), ("avx512fp16", "avx512_fp16", None), ("avx512ifma", "avx512ifma", None),
    ("avx512vbmi", "avx512vbmi", None), ("avx512vbmi2", "avx512_vbmi2", None),
    ("avx512bitalg", "avx512_bitalg", None), ("avx512vpopcntdq", "avx512_vpopcntdq", None),
)


def extra_features(blob: bytes, host: Sequence[str]) -> list[str]:
    """What this code may need beyond its level, because LLVM was free to use it on the machine of the build."""
    enabled = set(re.findall(rb"\+([a-z0-9]+)", blob))
    sure = b"avx512f" in enabled  # its encodings are not looked for
    return [name for llvm, name, pattern in _EXTRAS if llvm.encode() in enabled and name in host
            and (sure and name != "sse4a" or pattern is None or re.search(pattern, blob, re.DOTALL))]


def refuse_miss(fields: dict) -> None:
    """Raise when nothing may be compiled."""
    if require_hit:
        raise AotError(f"{fields['name']} for {fields['target']} is not in the cache, and --require-cache-hit was given",
                       hint="aot cache explain tells which input changed")


def fields_of(text: str, target: Any, flags: dict) -> dict[str, Any]:
    """Everything that decides the executable of a program for a `Target`."""
    if target.kind == "pjrt":
        return plugin_fields(text, flags, target)
    return host_fields(text, flags, target.name) if target.kind == "cpu" else cross_fields(text, flags, target)


def program_fields(text: str, target: str, flags: dict) -> dict[str, Any]:
    """What decides an executable, for any target: the program, its options and the compiler."""
    name = text.split("@", 1)[1].split()[0] if text.startswith("module @") else "main"
    return {"kind": "executable", "name": name, "target": target, "program": sha256(text.encode()).hexdigest(),
            "options": {k: str(v) for k, v in sorted(flags.items())}, **tools()}


def host_fields(text: str, flags: dict, target: str = "cpu") -> dict[str, Any]:
    """The same for an executable of this host's CPU."""
    return {**program_fields(text, target, flags), **_this_cpu(), "devices": len(xla.devices())}


def _this_cpu() -> dict[str, Any]:
    from aot_runtime import host_info
    host = host_info()
    return {"machine": host["machine"], "cpu_features": host["cpu_features"], "xla_flags": xla_flags()}


def plugin_fields(text: str, flags: dict, target: Any) -> dict[str, Any]:
    """The same for an executable of a plugin file, wherever that lies."""
    from aot.compile import pjrt
    from aot.lower.plain_lapack import expand
    return {**program_fields(expand(text), pjrt.label(target), flags), **_this_cpu(),
            "plugin": pjrt.file_sha256(target.plugin)}


def cross_fields(text: str, flags: dict, target: Any) -> dict[str, Any]:
    """The same for a machine that is not here: no host, but the plugin and the chip."""
    from aot.targets import plugin_path
    path = plugin_path(target.kind) or ""
    plugin = f"{os.path.basename(path)} {os.path.getsize(path)} {package_version(target.kind)}"
    return {**program_fields(text, target.name, flags), "plugin": plugin,
            "chip": f"{target.topology} {sha256(target.config.encode()).hexdigest()[:16]}", "xla_flags": xla_flags()}


def package_version(kind: str) -> str:
    from importlib import metadata

    from aot_runtime import PLUGINS
    try:
        return metadata.version(PLUGINS[kind][0])
    except metadata.PackageNotFoundError:
        return "?"


@once
def tools() -> dict[str, str]:
    from aot_runtime import host_info
    return {k: host_info()[k] for k in ("jaxlib", "jaxlib_build")}


def xla_flags() -> list[str]:
    """The flags of the environment that can change code."""
    return sorted(f for f in os.environ.get("XLA_FLAGS", "").split() if not f.startswith("--xla_dump"))
