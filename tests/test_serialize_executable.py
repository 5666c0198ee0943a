"""experimental.serialize_executable: what was compiled runs again from bytes, here and in another process; what is refused."""
import json
import subprocess
import sys

import numpy as np
import pytest

import aot
import aot.numpy as jnp
import aot_runtime
from aot import artifact
from aot.experimental.layout import Format, Layout
from aot.experimental.serialize_executable import deserialize_and_load, serialize
from aot.sharding import SingleDeviceSharding

F = np.float32
X = np.arange(12, dtype=F).reshape(3, 4)
BIG = np.random.default_rng(0).normal(size=(20, 20)).astype(F)
HERE = SingleDeviceSharding(aot.devices()[0])

#  name, function, arguments, named arguments, options of jit
PROGRAMS = {
    "tree": (lambda x, y, *, s: {"a": jnp.sin(x) * s, "b": [y["w"].sum(), None]}, (X, {"w": X}), {"s": F(2)}, {}),
    "weak": (lambda x: (x + 1, 2), (1.5,), {}, {}),
    "hoisted constant": (lambda x: x @ BIG, (BIG,), {}, {}),
    "keys": (lambda k: aot.random.key_data(aot.random.split(k)), (aot.random.key(3),), {}, {}),
    "lapack": (lambda x: jnp.linalg.eigh(x @ x.T)[0], (X,), {}, {}),
    "layouts": (lambda x: (x * 2, x.T), (X,), {}, {"in_shardings": Format(Layout((1, 0)), HERE), "out_shardings": (
        Format(Layout((1, 0)), HERE), None)}),
    "bfloat16": (lambda x: x * 2, (X.astype(aot.dtypes.bfloat16),), {}, {}),
}


@pytest.mark.parametrize("f, args, named, options", PROGRAMS.values(), ids=PROGRAMS)
def test_round_trip(f, args, named, options):
    compiled = aot.jit(f, **options).lower(*args, **named).compile()
    again = deserialize_and_load(*serialize(compiled))
    want, got = compiled(*args, **named), again(*args, **named)
    assert aot.tree_util.tree_structure(got) == aot.tree_util.tree_structure(want)
    for a, b in zip(aot.tree_util.tree_leaves(got), aot.tree_util.tree_leaves(want)):
        assert a.aval == b.aval and np.array_equal(a, b) and a.format == b.format
    assert again.in_avals == compiled.in_avals and again.out_info == compiled.out_info
    assert again.args_info == compiled.args_info and again.input_formats == compiled.input_formats


def test_donation_and_checks_are_kept():
    again = deserialize_and_load(*serialize(aot.jit(lambda x: x + 1, donate_argnums=0).lower(X).compile()))
    x = jnp.asarray(X)
    assert np.array_equal(again(x), X + 1) and x.is_deleted()
    with pytest.raises(TypeError, match="compiled for f32"):
        again(X.astype(np.int32))
    assert np.array_equal(deserialize_and_load(*serialize(again))(X), X + 1)


def test_what_the_cache_gave_is_whole(tmp_path):
    """XLA writes what it loaded without its code."""
    from aot.config import override
    with override("compilation_cache_dir", str(tmp_path)), override("persistent_cache_min_compile_time_secs", 0.0):
        for _ in range(2):
            compiled = aot.jit(lambda x: jnp.tanh(x) * 7 + 1).lower(X).compile({"xla_cpu_enable_fast_math": False})
            assert np.array_equal(deserialize_and_load(*serialize(compiled))(X), compiled(X))


def test_in_another_process(tmp_path):
    (tmp_path / "x.aot").write_bytes(serialize(aot.jit(lambda x, y: (jnp.sin(x), y * 2)).lower(X, X).compile())[0])
    code = f"""
import numpy as np, aot
from aot.experimental.serialize_executable import deserialize_and_load
from aot.tree_util import tree_structure
run = deserialize_and_load(open({str(tmp_path / "x.aot")!r}, "rb").read(), tree_structure(((0, 0), {{}})), tree_structure((0, 0)))
x = np.arange(12, dtype=np.float32).reshape(3, 4)
a, b = run(x, x)
np.testing.assert_allclose(a, np.sin(x), rtol=1e-6)
assert np.array_equal(b, x * 2)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_loader_runs_it():
    run = aot_runtime.load(serialize(aot.jit(lambda x: x @ BIG).lower(BIG).compile())[0])["call"]
    np.testing.assert_allclose(run(BIG)[0], BIG @ BIG, rtol=1e-3, atol=1e-4)


def damaged(blob, at): return blob[:at] + bytes([blob[at] ^ 1]) + blob[at + 1:]


def with_executable(blob, **fields):
    """The artifact again, made to look as if another host had compiled it."""
    read = aot_runtime.Artifact(blob)
    record = read.manifest["functions"]["call"]
    made = artifact.Executable.for_this_host("cpu", bytes(read.member(record["executables"][0]["member"])))
    for name, value in fields.items():
        setattr(made, name, value)
    return artifact.as_bytes([artifact.Function("call", record["arguments"], record["inputs"], record["outputs"],
                                                record["out_tree"], record["parameters"], executables=[made],
                                                source=json.loads(json.dumps(record["source"])))])


def test_refused():
    blob, ins, outs = serialize(aot.jit(jnp.sin).lower(X).compile())
    at = blob.index(b"sin")      # within the executable, whose bytes come first
    for other, message in [(damaged(blob, at), "does not match its sha256"), (b"garbage", "not an .aot artifact"),
                           (with_executable(blob, machine="pdp11"), "built for pdp11"),
                           (with_executable(blob, jaxlib="0.0.1"), "built with jaxlib 0.0.1"),
                           (with_executable(blob, cpu_features=["quantum"]), "needs CPU features"),
                           (bytes(aot.export.export(aot.jit(jnp.sin))(X).serialize()), "not one that `serialize` wrote")]:
        with pytest.raises(aot_runtime.ArtifactError, match=message):
            deserialize_and_load(other, ins, outs)
    assert np.array_equal(deserialize_and_load(with_executable(blob), ins, outs)(X), jnp.sin(X))
    with pytest.raises(ValueError, match="do not have 1 and 1 leaves"):
        deserialize_and_load(blob, aot.tree_util.tree_structure((0, 0)), outs)
    with pytest.raises(ValueError, match="execution_devices has 2"):
        deserialize_and_load(blob, ins, outs, execution_devices=aot.devices() * 2)
    with pytest.raises(ValueError, match="calls back into Python"):
        serialize(aot.jit(lambda x: aot.pure_callback(lambda y: y, x, x)).lower(X).compile())
