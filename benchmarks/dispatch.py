"""Time of one call of a jitted f32[8] function: device array to device array, and numpy to numpy."""
import json
import sys

import numpy as np
from timing import best

if sys.argv[1] == "aot":
    import aot as jax
else:
    import jax

f = jax.jit(lambda x, y: x * 2 + y)
x = np.arange(8, dtype=np.float32)
on_device = jax.device_put(x)


print(json.dumps({"device": best(lambda: f(on_device, on_device)), "numpy": best(lambda: np.asarray(f(x, x)))}))
