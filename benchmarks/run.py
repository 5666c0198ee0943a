"""Measure against real jax on this machine: `make bench`, or `python benchmarks/run.py [NAME...] [--check]`.

Both sides of a comparison run in processes of their own, in turn, so a busy machine slows both alike.  Figures are
medians of 7 processes.  A ratio below 1 means that aot needs less.  `--check` exits with 1 if a bar is missed.
"""
from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPEAT = int(os.environ.get("REPEAT", 7))

# file, metric, what it is, unit, bar (ratio to jax)
ROWS = [
    ("import_time", "import", "import aot / import jax", "ms", 0.5),
    ("import_time", "numpy", "the same, with the numpy API loaded", "ms", 0.5),
    ("import_time", "first", "the same, and tanh(1.0) computed", "ms", 0.5),
    ("transformer", "lower", "trace + lower, gradient of a 24-layer transformer", "ms", 0.5),
    ("transformer", "again", "the same, once more in a warm process", "ms", 0.5),
    ("dispatch", "device", "jitted call of a tiny function, device arrays", "us", 1.5),
    ("dispatch", "numpy", "jitted call of a tiny function, numpy to numpy", "us", 1.2),
    ("sharded", "call", "jitted call over 8 CPU devices, time of its thread", "us", 1.2),
    ("sharded", "lower", "trace + lower for 1,024 devices, 100 layers", "ms", 1.2),
    ("loaded", "call", "call of a loaded tiny MLP, numpy to numpy", "us", 1.0),
    ("startup", "first_result", "process start to first result of a saved MLP", "ms", 0.35),
    ("startup", "peak_memory", "peak memory of the same", "MiB", 0.7),
    ("weights", "load", "load of 1 GB of weights / map the file and touch it", "ms", 1.2),
    ("c_loader", "first_result", "the same start by the C loader / jax", "ms", 0.12),
    ("c_loader", "peak_memory", "peak memory of the same", "MiB", 0.75),
    ("c_loader", "call", "call of a tiny MLP, C loader / Python loader", "us", 0.4),
]


def measure(name: str, side: str) -> dict[str, float]:
    """Run one side once; it prints its metrics as JSON, the last line of its output."""
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "BENCH_START": repr(time.clock_gettime(time.CLOCK_MONOTONIC))}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    result = subprocess.run([sys.executable, str(HERE / f"{name}.py"), side], env=env, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{name} {side} failed:\n{result.stderr}")
    return json.loads(result.stdout.splitlines()[-1])


def compare(name: str) -> dict[str, tuple[float, float]]:
    """metric -> (aot, jax)"""
    for side in ("aot", "jax"):
        measure(name, side)  # writes byte code and files, fills disk caches
    samples = [(measure(name, "aot"), measure(name, "jax")) for _ in range(REPEAT)]
    return {metric: tuple(statistics.median(pair[i][metric] for pair in samples) for i in (0, 1))
            for metric in samples[0][0]}


def main(arguments: list[str]) -> int:
    wanted = [a for a in arguments if not a.startswith("-")]
    missed, measured = [], {}
    print(f"{'':52}{'aot':>11}{'jax':>11}{'ratio':>8}{'bar':>7}")
    for name, metric, what, unit, bar in ROWS:
        if wanted and name not in wanted:
            continue
        if name not in measured:
            measured[name] = compare(name)
        ours, theirs = measured[name][metric]
        ratio = ours / theirs
        missed += [what] if ratio > bar else []
        print(f"{what:52}{ours:8.1f} {unit:3}{theirs:8.1f} {unit:3}{ratio:7.2f}x{bar:6.2f}x"
              + ("  MISSED" if ratio > bar else ""), flush=True)
    return int(bool(missed) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
