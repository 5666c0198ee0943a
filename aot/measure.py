"""Timing of artifacts, for `aot bench`."""
from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

import aot_runtime


def bench(path: str, function: str | None = None, seconds: float = 1.0) -> list[dict[str, Any]]:
    """For each function: seconds to load, of the first call, and median, best and 95 % of calls for `seconds`."""
    names = [function] if function else list(aot_runtime.load(path))
    return [_bench_one(path, name, seconds) for name in names]


def _bench_one(path: str, name: str, seconds: float) -> dict[str, Any]:
    start = time.perf_counter()
    artifact = aot_runtime.load(path)
    fn = artifact[name]
    loaded = time.perf_counter()
    golden = artifact.golden(name)
    leaves = [np.array(x) for x in golden[0]] if golden else [_zeros(e) for e in fn.spec["inputs"]]
    first = time.perf_counter()
    fn.call_flat(leaves)
    times = [time.perf_counter() - first]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        at = time.perf_counter()
        fn.call_flat(leaves)
        times.append(time.perf_counter() - at)
    rest = sorted(times[1:])
    return {"function": name, "target": fn.target, "load": loaded - start, "first": times[0],
            "median": statistics.median(rest), "best": rest[0], "p95": rest[int(0.95 * (len(rest) - 1))],
            "calls": len(rest)}


def _zeros(entry: dict) -> np.ndarray:
    data = entry.get("data", entry)
    return np.zeros(data["shape"], aot_runtime.dtype_of(data["dtype"]))
