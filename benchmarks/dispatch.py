"""Time of one call of a jitted f32[8] function: device array to device array, and numpy to numpy."""
import json
import sys
import time

import numpy as np

if sys.argv[1] == "aot":
    import aot as jax
else:
    import jax

f = jax.jit(lambda x, y: x * 2 + y)
x = np.arange(8, dtype=np.float32)
on_device = jax.device_put(x)


def best(call, n=5000, rounds=5):
    """Microseconds a call, the fastest of some rounds."""
    call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(n):
            call()
        times.append(time.perf_counter() - start)
    return min(times) / n * 1e6


print(json.dumps({"device": best(lambda: f(on_device, on_device)), "numpy": best(lambda: np.asarray(f(x, x)))}))
