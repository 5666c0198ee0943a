"""The bars of the build system and the cache: `python benchmarks/build_system.py [--check]`.

A project of 20 functions is built with one and with two workers, from the cache, and when there is nothing to do.
XLA compiles one function in threads on every processor that it may use, so one worker leaves little of a second one idle: how
workers scale is two of them against one that is held to one processor.  What `-j 2` gains over a free `-j 1` is shown too, and
the CPUs that two busy processes get, because parallel speed needs free ones.
"""
from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

FUNCTIONS = 20
MODEL = '''
import aot, aot.numpy as jnp

def mlp(params, x, n):
    for i in range(n):
        x = jnp.tanh(x @ params["w"] + i) + jnp.sin(x)
    return jnp.mean(aot.nn.softmax(x, axis=-1) ** 2)
'''
ENTRY = '''
[[function]]
name = "f{i}"
function = "model.py:mlp"
args = ['{{"w": f32[64,64]}}', "f32[{rows},64]"]
static = {{n = 6}}
transforms = ["value_and_grad:params"]
'''
BUILD = [sys.executable, "-c", "import sys; from aot.cli import main; sys.exit(main())", "build"]
BUSY = "import time\nt = time.process_time()\nwhile time.process_time() - t < 1: pass"

#: what, unit, bar, whether more is better
ROWS = [("nothing to do / import click", "", 5.0, False), ("one worker on one processor / two workers", "", 1.6, True),
        ("put and get, 10,000 entries / 10", "", 1.5, False)]


def run(*args: str, env: dict | None = None) -> float:
    start = time.perf_counter()
    subprocess.run(args, check=True, capture_output=True, env=env)      # on the processors that this process may use
    return time.perf_counter() - start


def free_cpus() -> float:
    """How many CPUs two busy processes get."""
    start = time.perf_counter()
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2)]
    for p in busy:
        p.wait()
    return 2 / (time.perf_counter() - start)


def builds(folder: str) -> tuple[float, float]:
    env = {**os.environ, "AOT_CACHE_DIR": os.path.join(folder, "cache")}
    processors, seconds = os.sched_getaffinity(0), {}
    for how, jobs, allowed in (("on one processor", 1, {min(processors)}), ("", 1, processors), ("", 2, processors)):
        shutil.rmtree("build", ignore_errors=True)
        shutil.rmtree(env["AOT_CACHE_DIR"], ignore_errors=True)
        os.sched_setaffinity(0, allowed)
        seconds[how, jobs] = run(*BUILD, "-j", str(jobs), env=env)
        os.sched_setaffinity(0, processors)
        print(f"build of {FUNCTIONS} functions, -j {jobs} {how or 'on all'}: {seconds[how, jobs]:.1f} s; "
              f"two processes get {free_cpus():.1f} CPUs")
    print(f"-j 2 / -j 1, both on all processors: {seconds['', 1] / seconds['', 2]:.2f}x as fast")
    shutil.rmtree("build")
    print(f"again from the cache: {run(*BUILD, '--require-cache-hit', env=env):.1f} s")
    pairs = [(run(*BUILD, env=env), run(sys.executable, "-c", "import click")) for _ in range(11)]
    nothing, click = (statistics.median(p[i] for p in pairs) for i in (0, 1))
    print(f"nothing to do: {nothing * 1e3:.0f} ms; import click: {click * 1e3:.0f} ms")
    return nothing / click, seconds["on one processor", 1] / seconds["", 2]


def cache(folder: str) -> float:
    """Median time of a put and a get with 10,000 entries, relative to 10."""
    from aot.cache import Cache, key
    blob, medians = bytes(20_000), []
    for n in (300, 10, 10_000):  # the first only warms up
        store, times = Cache(os.path.join(folder, f"entries{n}"), max_size=5 << 30), []
        for i in range(n + 300):
            start = time.perf_counter()
            store.put(k := key({"program": i}), blob)
            store.get(k)
            times.append(time.perf_counter() - start)
        medians.append(statistics.median(times[n:]))
    print(f"put and get: {medians[1] * 1e6:.0f} us with 10 entries, {medians[2] * 1e6:.0f} us with 10,000")
    return medians[2] / medians[1]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open("model.py", "w") as f:
            f.write(MODEL)
        with open("aot.toml", "w") as f:
            f.write('[project]\nname = "bench"\n' + "".join(ENTRY.format(i=i, rows=i + 4) for i in range(FUNCTIONS)))
        values = (*builds(folder), cache(folder))
    missed = 0
    for (what, unit, bar, more), value in zip(ROWS, values):
        ok = value >= bar if more else value <= bar
        missed += not ok
        print(f"{what:42} {value:6.2f}{unit}   bar {'>=' if more else '<='} {bar}   {'ok' if ok else 'MISSED'}")
    return 1 if missed and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
