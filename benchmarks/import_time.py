"""Time to import the package, to have its numpy API, and to have computed something with it."""
import json
import sys
import time

start = time.perf_counter()
if sys.argv[1] == "aot":
    import aot
else:
    import jax as aot
imported = time.perf_counter()
aot.numpy.tanh  # noqa: B018  loads the module
api = time.perf_counter()
float(aot.numpy.tanh(1.0))
done = time.perf_counter()
print(json.dumps({"import": (imported - start) * 1e3, "numpy": (api - start) * 1e3, "first": (done - start) * 1e3}))
