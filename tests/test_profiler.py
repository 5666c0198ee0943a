"""aot.profiler: traces hold what was annotated, one at a time; memory profiles name arrays.  aot.monitoring: events."""
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


def test_events(tmp_path):
    """Listeners get what is recorded, also by the compiler; each kind on its own."""
    from aot import monitoring
    from aot.config import override
    heard = []
    kinds = {"event": (monitoring.record_event, ("e",)), "event_duration_secs": (monitoring.record_event_duration_secs, ("d", 1.5)),
             "event_time_span": (monitoring.record_event_time_span, ("t", 1.0, 2.0)), "scalar": (monitoring.record_scalar, ("s", 3))}
    listener = lambda *args, **about: heard.append((args, about))
    for name, (record, args) in kinds.items():
        getattr(monitoring, f"register_{name}_listener")(listener)
        record(*args, who="me")
        getattr(monitoring, f"unregister_{name.removesuffix('_secs')}_listener")(listener)
        record(*args)
    assert heard == [(args, {"who": "me"}) for _, args in kinds.values()]
    with pytest.raises(ValueError, match="not registered"):
        monitoring.unregister_event_listener(listener)
    monitoring.register_event_listener(listener)
    monitoring.register_event_duration_secs_listener(listener)
    heard.clear()
    with override("compilation_cache_dir", str(tmp_path)), override("persistent_cache_min_compile_time_secs", 0.0):
        for _ in range(2):
            aot.jit(lambda x: jnp.tanh(x) * 11 + 2).lower(np.ones(3, np.float32)).compile()
    monitoring.clear_event_listeners()
    assert [args[0].rpartition("/")[2] for args, _ in heard] == ["cache_misses", "backend_compile_duration", "cache_hits"]


def test_small_modules():
    from aot.typing import ArrayLike, DTypeLike
    assert isinstance(jnp.ones(3), ArrayLike) and isinstance(1.5, ArrayLike) and isinstance("float32", str | np.dtype) and DTypeLike
    assert aot.version.__version__ == aot.__version__ and len(aot.version.__version_info__) == 3
    assert (aot.host_id(), aot.host_ids(), aot.host_count()) == (0, [0], 1)
    kept = []
    with pytest.raises(Exception, match="Leaked"), aot.checking_leaks():
        aot.jit(lambda x: kept.append(x))(1.0)
