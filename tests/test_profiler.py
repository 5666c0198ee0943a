"""aot.profiler: traces hold what was annotated, one at a time; memory profiles name arrays."""
import gzip
import json

import numpy as np
import pytest

import aot
import aot.numpy as jnp
from aot import profiler


def names(path):
    data = profiler.ProfileData.from_file(str(path))
    return {e.name for plane in data.planes for line in plane.lines for e in line.events}


def test_trace(tmp_path):
    @profiler.annotate_function
    def step(x): return jnp.sin(x) @ x

    with profiler.trace(tmp_path, create_perfetto_trace=True):
        with pytest.raises(RuntimeError, match="running already"):
            profiler.start_trace(tmp_path)
        with profiler.StepTraceAnnotation("train", step_num=3), profiler.TraceAnnotation("inner", kind="test"):
            profiler.annotate_function(step, name="named")(np.ones((8, 8), np.float32)).block_until_ready()
    found, = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    assert {"train", "inner", "named", "test_trace.<locals>.step"} <= names(found)
    with gzip.open(found.parent / "perfetto_trace.json.gz", "rt") as f:
        events = json.load(f)
    assert "metadata" not in events and any(e.get("name") == "inner" for e in events["traceEvents"])
    with pytest.raises(RuntimeError, match="no trace is running"):
        profiler.stop_trace()
    with pytest.raises(NotImplementedError, match="create_perfetto_trace=True"):
        profiler.start_trace(tmp_path, create_perfetto_link=True)


def test_a_failed_block_ends_its_trace(tmp_path):
    with pytest.raises(ZeroDivisionError), profiler.trace(tmp_path):
        1 / 0
    with profiler.trace(tmp_path):
        pass


def test_memory(tmp_path):
    kept = aot.device_put(np.ones(1000, np.float32))
    profiler.save_device_memory_profile(tmp_path / "memory.prof")
    assert b"buffer" in (tmp_path / "memory.prof").read_bytes() and kept.size == 1000


def test_server():
    server = profiler.start_server(0)
    with pytest.raises(ValueError, match="running already"):
        profiler.start_server(0)
    profiler.stop_server()
    with pytest.raises(ValueError, match="no profiler server"):
        profiler.stop_server()
    del server
