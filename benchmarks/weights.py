"""Time to load an artifact with 1 GB of weights, every byte of which is hashed, against mapping its file and touching it once.

The file is not in memory before either: its pages are given back to the system first.
"""
import json
import mmap
import os
import sys
import time
from pathlib import Path

import numpy as np

FILES = Path(__file__).resolve().parents[1] / ".bench"
LARGE, SMALL = FILES / "weights.aot", FILES / "weights_small.aot"


def save(path, rows):
    import aot.numpy as jnp
    from aot import build, spec
    rng = np.random.default_rng(0)
    params = {f"w{i}": rng.standard_normal((rows, 4096), np.float32) for i in range(8)}

    def sums(params, x):
        return [jnp.dot(x, w[:4]) for w in params.values()]
    build.save(path, [build.Program(sums, [], {"x": spec.parse("f32[4]")}, weights={"params": params})])


def load(path):
    import aot_runtime
    return aot_runtime.load(path, strict=True)["sums"]


def touch(path):
    with open(path, "rb") as f:
        mapped = np.frombuffer(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    return np.bitwise_or.reduce(mapped[:mapped.size // 8 * 8].view(np.uint64))


def main(side):
    if not LARGE.exists():
        FILES.mkdir(exist_ok=True)
        save(SMALL, 4)
        save(LARGE, 8192)
        os.sync()
    measured = load if side == "aot" else touch
    measured(SMALL)                                         # the client has started
    with open(LARGE, "rb") as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    start = time.perf_counter()
    measured(LARGE)
    print(json.dumps({"load": (time.perf_counter() - start) * 1e3}))


if __name__ == "__main__":
    main(sys.argv[1])
