"""The loader: calling, input checks, damaged files, executables that do not fit this host."""
from __future__ import annotations

import collections
import logging
import os
import subprocess
import sys
import textwrap

import ml_dtypes
import numpy as np
import pytest

import aot_runtime

Point = collections.namedtuple("Point", "x y")
X = np.arange(4, dtype=np.float32)
IDENTITY = """module @m {
  func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    return %b, %a : tensor<4xf32>, tensor<4xf32>
  }
}"""
BF, F8, I4, U4 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4, ml_dtypes.uint4


# ---- calling -------------------------------------------------------------------------------------------------------

TYPES = [("f32", np.float32), ("f64", np.float64), ("f16", np.float16), ("bf16", BF), ("f8E4M3FN", F8),
         ("i8", np.int8), ("i32", np.int32), ("i64", np.int64), ("ui8", np.uint8), ("ui64", np.uint64),
         ("i4", I4), ("ui4", U4), ("complex<f32>", np.complex64), ("complex<f64>", np.complex128)]


@pytest.mark.parametrize("shape", [(4,), (), (2, 3), (0, 3)], ids=str)
@pytest.mark.parametrize("hlo_type, dtype", TYPES, ids=[t for t, _ in TYPES])
def test_every_element_type(tmp_path, hlo, hlo_type, dtype, shape):
    x = (np.arange(np.prod(shape, dtype=int)) % 4).reshape(shape).astype(dtype)
    f = aot_runtime.load(hlo.store(tmp_path / "t.aot", hlo.elementwise(hlo_type, shape), {"a": x, "b": x}, x))["f"]
    y = f(x, x)
    assert y.dtype == x.dtype and y.shape == x.shape
    assert np.array_equal(y.astype(complex), (x.astype(complex) * 2))


def test_booleans(tmp_path, hlo):
    x = np.array([True, False, True])
    f = aot_runtime.load(hlo.store(tmp_path / "t.aot", hlo.elementwise("i1", (3,), "xor"), {"a": x, "b": x}, x))["f"]
    assert f(x, ~x).tolist() == [True] * 3


def test_results_are_writable_numpy_arrays_that_own_their_memory(add_file):
    f = aot_runtime.load(add_file)["f"]
    y = f(X, X)
    other = f(X, X + 1)
    y += 1
    assert y.tolist() == [1, 3, 5, 7] and other.tolist() == [1, 3, 5, 7]
    assert np.shares_memory(np.from_dlpack(y), y)
    del f
    assert y.tolist() == [1, 3, 5, 7]


def test_outputs_do_not_alias_inputs(tmp_path, hlo):
    f = aot_runtime.load(hlo.store(tmp_path / "t.aot", IDENTITY, {"a": X, "b": X}, (X, X)))["f"]
    a, b = np.ones(4, np.float32), np.zeros(4, np.float32)
    y, z = f(a, b)
    a[:] = 5
    assert y.tolist() == [0] * 4 and z.tolist() == [1] * 4


@pytest.mark.parametrize("args, kwargs", [((X, X), {}), ((X,), {"b": X}), ((), {"b": X, "a": X})])
def test_arguments_by_position_or_name(add_file, args, kwargs):
    assert aot_runtime.load(add_file)["f"](*args, **kwargs).tolist() == [0, 2, 4, 6]


def test_strided_big_endian_and_foreign_arrays(add_file):
    class Foreign:
        def __array__(self, dtype=None, copy=None): return X

    f = aot_runtime.load(add_file)["f"]
    for x in (np.arange(8, dtype=np.float32)[::2] / 2, X.astype(">f4"), Foreign(), X[::-1][::-1]):
        assert f(x, X).tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize("hlo_type, dtype, good, bad", [
    ("f32", np.float32, [1, 1.5, -2], [1j, True, "x"]),
    ("bf16", BF, [1, 1.5], [1j, True]),
    ("i32", np.int32, [1, -1], [1.5, True, 1 << 40]),
    ("ui8", np.uint8, [255], [-1, 256]),
    ("complex<f32>", np.complex64, [1, 1.5, 1j], [True]),
])
def test_python_scalars(tmp_path, hlo, hlo_type, dtype, good, bad):
    zero = np.zeros((), dtype)
    path = hlo.store(tmp_path / "t.aot", hlo.elementwise(hlo_type, ()), {"a": zero, "b": zero}, zero)
    f = aot_runtime.load(path)["f"]
    for v in good:
        assert complex(f(v, zero)) == v
    for v in bad:
        with pytest.raises(aot_runtime.InputError, match="^a: expected "):
            f(v, zero)


def test_trees_in_and_out(tmp_path, hlo):
    arguments = {"p": {"w": X}, "q": [(X,), None]}
    for result, check in [((X,), lambda y: y[0]), ({"k": X}, lambda y: y["k"]), ([None, X], lambda y: y[1]),
                          (Point(X, None), lambda y: y.x), (collections.OrderedDict(z=X), lambda y: y["z"])]:
        f = aot_runtime.load(hlo.store(tmp_path / "t.aot", hlo.elementwise("f32"), arguments, result))["f"]
        y = f({"w": X}, [(X,), None])
        assert check(y).tolist() == [0, 2, 4, 6]
        assert type(y).__name__ == type(result).__name__


def test_named_tuples_are_accepted_by_their_fields(tmp_path, hlo):
    f = aot_runtime.load(hlo.store(tmp_path / "t.aot", hlo.elementwise("f32"), {"p": Point(X, X)}, X))["f"]
    other = collections.namedtuple("Other", "y x")
    for p in (Point(X, X + 1), other(X + 1, X), {"x": X, "y": X + 1}):
        assert f(p).tolist() == [1, 3, 5, 7]


def test_ordered_and_plain_dicts_are_matched_by_key(tmp_path, hlo):
    text = hlo.elementwise("f32", op="subtract")
    for given in (collections.OrderedDict(z=X, a=X), {"z": X, "a": X}):
        f = aot_runtime.load(hlo.store(tmp_path / "t.aot", text, {"p": given}, X))["f"]
        first, second = list(given) if isinstance(given, collections.OrderedDict) else sorted(given)
        for cls in (dict, collections.OrderedDict):
            for order in ("az", "za"):
                p = cls((k, X * 2 if k == first else X) for k in order)
                assert f(p).tolist() == X.tolist(), (given, cls, order)


def test_weights_are_stored_parameters(tmp_path, hlo):
    path = hlo.store(tmp_path / "t.aot", hlo.elementwise("f32", op="subtract"), {"a": X}, X, parameters=["w", 0],
                     weights={"unused": np.ones(3, np.int8), "w": X * 10})
    loaded = aot_runtime.load(path)
    assert loaded["f"](X).tolist() == [0, 9, 18, 27]
    assert loaded.signature("f") == "f(a) -> f32[4]"


def test_key():
    assert aot_runtime.key(7).tolist() == [0, 7] and aot_runtime.key((5 << 32) + 1).tolist() == [5, 1]


def test_an_artifact_is_a_mapping(add_file):
    loaded = aot_runtime.load(add_file)
    assert list(loaded) == loaded.keys() == ["f"] and len(loaded) == 1 and "f" in loaded and "g" not in loaded
    assert loaded["f"] is loaded["f"]
    with pytest.raises(aot_runtime.AotError, match="no function 'g'\nhint: it has: f"):
        loaded["g"]


def test_bytes_instead_of_a_path(add_file):
    assert aot_runtime.load(add_file.read_bytes())["f"](X, X).tolist() == [0, 2, 4, 6]


# ---- input checks --------------------------------------------------------------------------------------------------

WRONG = [
    (lambda: ({"w1": X.astype("f8"), "b": [X]},), "params['w1']: expected f32[4], got f64[4]"),
    (lambda: ({"w1": X[:3], "b": [X]},), "params['w1']: expected f32[4], got f32[3]"),
    (lambda: ({"w1": X, "b": [X[None]]},), "params['b'][0]: expected f32[4], got f32[1,4]"),
    (lambda: ({"w1": 1.5, "b": [X]},), "params['w1']: expected f32[4], got float"),
    (lambda: ({"w1": [1, 2, 3, 4], "b": [X]},), "params['w1']: expected f32[4], got list"),
    (lambda: ({"w1": None, "b": [X]},), "params['w1']: expected f32[4], got NoneType"),
    (lambda: ({"w1": X},), "params: missing key 'b'"),
    (lambda: ({"w1": X, "b": [X], "c": 0},), "params: unexpected key 'c'"),
    (lambda: ({"w1": X, "b": [X, X]},), "params['b']: expected a list of 1, got 2 elements"),
    (lambda: ({"w1": X, "b": (X,)},), "params['b']: expected a list of 1, got tuple"),
    (lambda: (X,), "params: expected a dict with keys 'b', 'w1', got ndarray"),
    (lambda: (), "f(params) -> f32[4]: missing argument 'params'"),
    (lambda: (X, X), "f(params) -> f32[4]: takes 1 positional arguments, got 2"),
]


@pytest.mark.parametrize("args, message", WRONG, ids=[m for _, m in WRONG])
def test_wrong_inputs_are_named_by_path(tmp_path, hlo, args, message):
    f = aot_runtime.load(hlo.store(tmp_path / "t.aot", hlo.elementwise("f32"), {"params": {"w1": X, "b": [X]}}, X))["f"]
    with pytest.raises(aot_runtime.InputError) as e:
        f(*args())
    assert str(e.value).splitlines()[0] == message
    assert isinstance(e.value, TypeError)


def test_wrong_keywords(add_file):
    f = aot_runtime.load(add_file)["f"]
    for kwargs, message in [({"c": X}, "unexpected argument 'c'"), ({"a": X}, "got two values for argument 'a'")]:
        with pytest.raises(aot_runtime.InputError, match=message):
            f(X, **kwargs)


# ---- damaged files -------------------------------------------------------------------------------------------------

def load_and_run(path):
    loaded = aot_runtime.load(path)
    loaded.verify()
    return loaded["f"](X, X)


@pytest.mark.parametrize("content, message", [
    (b"", "the file is empty"),
    (b"hello world, this is text", "not an .aot artifact"),
    (b"PK\x03\x04" + b"x" * 100, "truncated"),
])
def test_other_files(tmp_path, content, message):
    (tmp_path / "x.aot").write_bytes(content)
    with pytest.raises(aot_runtime.AotError, match=message):
        aot_runtime.load(tmp_path / "x.aot")


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(aot_runtime.AotError, match="no such file"):
        aot_runtime.load(tmp_path / "x.aot")
    with pytest.raises(aot_runtime.AotError, match="cannot be read"):
        aot_runtime.load(tmp_path)


def test_another_zip(tmp_path):
    import zipfile
    with zipfile.ZipFile(tmp_path / "x.aot", "w") as z:
        z.writestr("hello", "x")
    with pytest.raises(aot_runtime.AotError, match="no manifest.json"):
        aot_runtime.load(tmp_path / "x.aot")
    with zipfile.ZipFile(tmp_path / "y.aot", "w") as z:
        z.writestr("manifest.json", "[1]")
    with pytest.raises(aot_runtime.AotError, match="not an .aot artifact"):
        aot_runtime.load(tmp_path / "y.aot")


def test_truncation_anywhere_is_an_error(add_file, tmp_path):
    raw = add_file.read_bytes()
    cut = tmp_path / "cut.aot"
    for n in sorted({*range(0, len(raw), 997), *range(len(raw) - 30, len(raw))}):
        cut.write_bytes(raw[:n])
        with pytest.raises(aot_runtime.AotError):
            load_and_run(cut)


def test_a_flipped_bit_in_any_member_is_an_error(add_file, tmp_path):
    import zipfile
    raw, bad = add_file.read_bytes(), tmp_path / "bad.aot"
    with zipfile.ZipFile(add_file) as z:
        infos = z.infolist()
    for i in infos:
        data = i.header_offset + 30 + int.from_bytes(raw[i.header_offset + 26:i.header_offset + 28], "little") \
            + int.from_bytes(raw[i.header_offset + 28:i.header_offset + 30], "little")
        for at in (data, data + i.file_size // 2, data + i.file_size - 1):
            changed = bytearray(raw)
            changed[at] ^= 4
            bad.write_bytes(changed)
            with pytest.raises(aot_runtime.AotError, match=f"damaged: {i.filename} does not match"):
                load_and_run(bad)


def test_random_damage_never_crashes(add_file, tmp_path):
    rng, raw, bad = np.random.default_rng(0), add_file.read_bytes(), tmp_path / "bad.aot"
    for _ in range(200):
        changed = bytearray(raw)
        changed[rng.integers(len(raw))] ^= 1 << rng.integers(8)
        bad.write_bytes(changed)
        try:
            assert load_and_run(bad).tolist() == [0, 2, 4, 6]  # padding, timestamps: nothing that matters
        except aot_runtime.AotError:
            pass


def test_compressed_members_are_refused(add_file, tmp_path):
    import zipfile
    with zipfile.ZipFile(add_file) as z, zipfile.ZipFile(tmp_path / "z.aot", "w", zipfile.ZIP_DEFLATED) as w:
        for i in z.infolist():
            w.writestr(i.filename, z.read(i))
    with pytest.raises(aot_runtime.AotError, match="is compressed"):
        aot_runtime.load(tmp_path / "z.aot")


def test_newer_schema(add_file, tmp_path, repack):
    newer = repack(add_file, tmp_path / "n.aot", lambda m: m.update(schema=99))
    with pytest.raises(aot_runtime.AotError, match="schema 99, this loader reads up to 1\nhint: upgrade"):
        aot_runtime.load(newer)


# ---- executables for other hosts -----------------------------------------------------------------------------------

MISFITS = [
    ({"platform": "cuda"}, "built for cuda, this process runs on cpu"),
    ({"machine": "riscv64"}, "built for riscv64, this machine is"),
    ({"cpu_features": ["avx10_9", "sse99"]}, "needs CPU features that this host lacks: avx10_9, sse99"),
    ({"cpu_features": None}, "CPU features could not be read"),
    ({"jaxlib": "0.1.2"}, "built with jaxlib 0.1.2, this is"),
    ({"jaxlib_build": "0000"}, f"built with jaxlib {aot_runtime.host_info()['jaxlib']}, this is another build of it"),
]


@pytest.mark.parametrize("change, reason", MISFITS, ids=[r for _, r in MISFITS])
def test_an_executable_that_does_not_fit_is_not_tried(add_file, tmp_path, repack, caplog, change, reason):
    other = repack(add_file, tmp_path / "o.aot", lambda m: m["functions"]["f"]["executables"][0].update(change))
    loaded = aot_runtime.load(other)
    assert f"cpu: {reason}" in loaded.explain() and "stablehlo: compiled here" in loaded.explain()
    with caplog.at_level(logging.WARNING, "aot_runtime"):
        f = loaded["f"]
    assert f.target == "stablehlo" and reason in f.reasons[0]
    assert reason in caplog.text and "compiling its StableHLO" in caplog.text
    assert f(X, X).tolist() == [0, 2, 4, 6]
    with pytest.raises(aot_runtime.AotError, match="no executable for this host") as e:
        aot_runtime.load(other, strict=True)["f"]
    assert reason in str(e.value)


def test_the_first_executable_that_fits_is_used(add_file, tmp_path, repack):
    def two(m):
        f = m["functions"]["f"]
        f["executables"] = [f["executables"][0] | {"target": "cuda:h100", "platform": "cuda"}, f["executables"][0]]
    f = aot_runtime.load(repack(add_file, tmp_path / "o.aot", two), strict=True)["f"]
    assert f.target == "cpu" and f.reasons == ["cuda:h100: built for cuda, this process runs on cpu"]


def test_explain_names_what_is_used(add_file):
    text = aot_runtime.load(add_file).explain()
    assert "f(a, b) -> f32[4]\n  cpu: fits this host: used" in text and "stablehlo" not in text


def test_program_only_and_executable_only(tmp_path, hlo):
    text, x = hlo.elementwise("f32"), {"a": X, "b": X}
    portable = hlo.store(tmp_path / "p.aot", text, x, X, executable=False)
    assert aot_runtime.load(portable)["f"](X, X).tolist() == [0, 2, 4, 6]
    binary = hlo.store(tmp_path / "b.aot", text, x, X, program=False)
    assert aot_runtime.load(binary)["f"].target == "cpu"


# ---- the process ---------------------------------------------------------------------------------------------------

def run_python(code, *args, **env):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code), *map(str, args)], capture_output=True,
                          text=True, env={**os.environ, **env}, timeout=120)


def test_loads_without_the_compiler_jax_or_mlir(add_file):
    result = run_python("""
        import sys, numpy as np, aot_runtime
        y = aot_runtime.load(sys.argv[1])["f"](np.ones(4, np.float32), np.ones(4, np.float32))
        loaded = {m.split(".")[0] for m in sys.modules} & {"aot", "jax", "click", "rich", "scipy", "zipfile", "logging"}
        assert y.tolist() == [2] * 4 and not loaded and "jaxlib.mlir" not in sys.modules, loaded
        assert "jaxlib.xla_client" not in sys.modules
    """, add_file)
    assert result.returncode == 0, result.stderr
    assert not result.stderr


@pytest.mark.parametrize("first", ["jax", "aot_runtime"])
def test_beside_jax_in_one_process(add_file, first):
    pytest.importorskip("jax")
    result = run_python("""
        import sys, numpy as np
        def ours():
            import aot_runtime
            x = np.arange(4, dtype=np.float32)
            assert aot_runtime.load(sys.argv[1])["f"](x, x).tolist() == [0, 2, 4, 6]
        def theirs():
            import jax
            assert jax.jit(lambda x: x @ x)(jax.numpy.ones(4)) == 4
        order = [theirs, ours, theirs] if sys.argv[2] == "jax" else [ours, theirs, ours]
        for step in order: step()
    """, add_file, first, JAX_PLATFORMS="cpu")
    assert result.returncode == 0, result.stderr


def test_jax_arrays_are_accepted(add_file):
    jnp = pytest.importorskip("jax.numpy")
    assert aot_runtime.load(add_file)["f"](jnp.arange(4.0), X).tolist() == [0, 2, 4, 6]


def test_many_threads(add_file):
    from concurrent.futures import ThreadPoolExecutor
    f = aot_runtime.load(add_file)["f"]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda i: f(X, np.full(4, i, np.float32))[0], range(200)))
    assert results == list(range(200))


CHOLESKY = """module @c {
  func.func public @main(%a: tensor<2x4x4xf32>) -> (tensor<2x4x4xf32>, tensor<2xi32>) {
    %0:2 = stablehlo.custom_call @lapack_spotrf_ffi(%a) {api_version = 4 : i32,
      backend_config = {uplo = 76 : ui8}, operand_layouts = [dense<[1,2,0]> : tensor<3xindex>],
      result_layouts = [dense<[1,2,0]> : tensor<3xindex>, dense<0> : tensor<1xindex>], output_operand_aliases = [
      #stablehlo.output_operand_alias<output_tuple_indices=[0], operand_index=0, operand_tuple_indices=[]>]
    } : (tensor<2x4x4xf32>) -> (tensor<2x4x4xf32>, tensor<2xi32>)
    return %0#0, %0#1 : tensor<2x4x4xf32>, tensor<2xi32>
  }
}"""


@pytest.mark.parametrize("executable", [True, False])
def test_lapack_kernels_are_registered_in_a_fresh_process(tmp_path, hlo, executable):
    a = np.ones((2, 4, 4), np.float32) + 4 * np.eye(4, dtype=np.float32)
    path = hlo.store(tmp_path / "c.aot", CHOLESKY, {"a": a}, (a, np.zeros(2, np.int32)), executable=executable,
                     custom_calls=["lapack_spotrf_ffi"])
    result = run_python("""
        import sys, numpy as np, aot_runtime
        a = np.ones((2, 4, 4), np.float32) + 4 * np.eye(4, dtype=np.float32)
        factor, info = aot_runtime.load(sys.argv[1])["f"](a)
        np.testing.assert_allclose(np.tril(factor), np.linalg.cholesky(a), rtol=1e-5)
        assert not info.any()
    """, path)
    assert result.returncode == 0, result.stderr


# ---- sources, devices, weights, sizes, threads ---------------------------------------------------------------------

def test_paths_bytes_and_files(add_file, tmp_path):
    import io
    raw = add_file.read_bytes()
    with open(add_file, "rb") as f:
        sources = [add_file, str(add_file), raw, bytearray(raw), memoryview(raw), io.BytesIO(raw), f]
        for source in sources:
            assert aot_runtime.load(source)["f"](X, X).tolist() == [0, 2, 4, 6]
    assert aot_runtime.load(add_file, functions=["f"])._functions
    with pytest.raises(aot_runtime.AotError, match="no function 'g'"):
        aot_runtime.load(add_file, functions=["g"])
    with open(add_file, errors="replace") as text, pytest.raises(aot_runtime.ArtifactError, match="the file is open for text"):
        text.read(1)
        aot_runtime.load(text)


@pytest.mark.parametrize("device, message", [
    ("gpu", "unknown device 'gpu'"), ("cpu:7", "there is no device 'cpu:7': this process has 1"), ("cpu:x", "no device 'cpu:x'"),
    ("pjrt:/none.so", "/none.so: there is no such plugin"), ("pjrt:" + __file__, "cannot be used"),
])
def test_devices_that_are_not_there(add_file, device, message):
    with pytest.raises(aot_runtime.AotError, match=message):
        aot_runtime.load(add_file, device=device)["f"]


def test_a_plugin_may_be_named_relative_to_the_current_folder(add_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plugin.so").write_text("not a library")
    with pytest.raises(aot_runtime.AotError, match="cannot be used") as e:
        aot_runtime.load(add_file, device="pjrt:plugin.so")["f"]
    assert "No such file" not in str(e.value)


SCALE = """module @m {
  func.func public @main(%w: tensor<4xf32>, %x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.multiply %w, %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}"""


def test_weights_are_swapped(tmp_path, hlo):
    from aot import artifact
    loaded = aot_runtime.load(hlo.store(tmp_path / "w.aot", SCALE, {"x": X}, X, parameters=["w", 0], weights={"w": X}))
    f = loaded["f"]
    assert f(X).tolist() == [0, 1, 4, 9]
    mine = X + 1
    loaded.swap_weights({"w": mine})
    mine[:] = 100       # they are copied
    assert f(X).tolist() == [0, 2, 6, 12] and loaded["f"] is f and loaded.weights()["w"].tolist() == [1, 2, 3, 4]
    (tmp_path / "n.safetensors").write_bytes(b"".join(map(bytes, artifact.pack_tensors({"w": X + 2}))))
    loaded.swap_weights(tmp_path / "n.safetensors")
    assert f(X).tolist() == [0, 3, 8, 15]
    for bad, message in [({"v": X}, "there is no weight 'v'"), ({"w": X[:3]}, r"expected f32\[4\], got f32\[3\]"),
                         ({"w": X.astype("f8")}, r"expected f32\[4\], got f64\[4\]")]:
        with pytest.raises(aot_runtime.ArtifactError, match=message):
            loaded.swap_weights(bad)
    assert f(X).tolist() == [0, 3, 8, 15]


def test_submit_gives_futures(add_file):
    f = aot_runtime.load(add_file)["f"]
    futures = [f.submit(X, X * i) for i in range(50)]
    assert [y.result().tolist() for y in futures] == [(X + X * i).tolist() for i in range(50)]
    with pytest.raises(aot_runtime.InputError):
        f.submit(X).result()


def test_donated_inputs_are_not_changed(tmp_path):
    """The memory of a donated input is given up by the program, but a caller's array is never written to."""
    from aot import build, spec
    path = tmp_path / "d.aot"
    build.save(path, [build.Program(lambda x: x + 1, [spec.parse("f32[64]")], name="f", donate=["x"])])
    f = aot_runtime.load(path)["f"]
    assert f.spec["inputs"][0]["donated"]
    block = np.zeros(64 + 16, np.float32)
    start = -block.ctypes.data // 4 % 16      # aligned memory is what the runtime may share
    x = block[start:start + 64]
    for _ in range(5):
        y = f(x)
        assert not x.any() and (y == 1).all()


# ---- several sizes -------------------------------------------------------------------------------------------------

@pytest.fixture
def sized(tmp_path):
    """An artifact with `mean(x, w)` of the rows, compiled for 2, 8 and 4 rows."""
    (tmp_path / "m.py").write_text(textwrap.dedent("""
        import aot.numpy as np
        def rows(x, w): return {"mean": (x["a"] * w).mean(1), "both": np.concatenate([x["a"], x["b"]], 1)}
    """))
    sizes = "".join(f'[[function.signature]]\nname = "n{n}"\nargs = [\'{{"a": f32[{n},3], "b": f32[{n},1]}}\', "f32[3]"]\n'
                    for n in (2, 8, 4))
    (tmp_path / "aot.toml").write_text(f'[project]\nname = "p"\n[[function]]\nfunction = "m.py:rows"\ngolden = false\n{sizes}')
    done = subprocess.run([sys.executable, "-m", "aot.cli", "build"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return aot_runtime.load(tmp_path / "build" / "rows.aot")


def test_calls_are_padded_to_the_next_size(sized):
    f, w = sized["rows"], np.array([1, 2, 3], np.float32)
    assert isinstance(f, aot_runtime.Buckets) and f.sizes == [2, 4, 8] and sized["rows"] is f
    rng = np.random.default_rng(0)
    for n in range(9):
        a, b = rng.standard_normal((n, 3), np.float32), rng.standard_normal((n, 1), np.float32)
        y = f({"a": a, "b": b}, w=w)
        assert np.allclose(y["mean"], (a * w).mean(1)) and np.array_equal(y["both"], np.concatenate([a, b], 1))
    for bad in ({"a": np.zeros((9, 3), np.float32), "b": np.zeros((9, 1), np.float32)},
                {"a": np.zeros((3, 3), np.float32), "b": np.zeros((4, 1), np.float32)},
                {"a": np.zeros((3, 3), np.float64), "b": np.zeros((3, 1), np.float32)},
                {"a": np.zeros((3, 2), np.float32), "b": np.zeros((3, 1), np.float32)}, {"a": np.zeros((3, 3), np.float32)}):
        with pytest.raises(aot_runtime.InputError):
            f(bad, w)
    assert sized["rows_n4"]({"a": np.ones((4, 3), np.float32), "b": np.ones((4, 1), np.float32)}, w)["mean"].tolist() == [2] * 4


def test_signatures_that_differ_in_more_than_one_size_are_no_buckets(sized):
    manifest = sized.manifest["functions"]
    manifest["rows_n2"]["inputs"][0]["shape"] = [2, 5]
    with pytest.raises(aot_runtime.AotError, match="differ in more than one size"):
        sized["rows"]


# ---- calls dispatched in C++, which are used where neither jax nor the compiler is in the process -------------------

QUICK = """
    import sys, threading, numpy as np, ml_dtypes, aot_runtime
    loaded = aot_runtime.load(sys.argv[1])
    def both(name, *args):
        f = loaded[name]
        quick, again = f(*args), f(*args)
        f._quick, kept = None, f._quick
        slow = f(*args)
        f._quick = kept
        for y in (quick, again):
            a, b, c = ([], [], [])
            aot_runtime.collect(f.spec["out_tree"], y, "", a)
            aot_runtime.collect(f.spec["out_tree"], slow, "", b)
            for p, q in zip(a, b, strict=True):
                assert p.dtype == q.dtype and p.shape == q.shape and p.tobytes() == q.tobytes(), (name, p, q)
                assert p.flags.writeable, name
        return kept
"""


def test_quick_calls_give_what_slow_ones_do(tmp_path):
    from aot import build, spec
    def program(name, f, *args, **kw): return build.Program(f, [spec.parse(a) for a in args], name=name, **kw)
    w = {"w": np.eye(3, dtype=np.float32)}
    programs = [program(f"add_{t}", lambda a, b: a + b, f"{t}[2,3]", f"{t}[]")
                for t in ("f32", "f16", "bf16", "i8", "u32", "c64", "i32")]
    programs += [program("tree", lambda d: (d["a"] * 2, {"b": d["b"][0]}), '{"a": f32[2], "b": [i32[], i32[3]]}'),
                 program("large", lambda x: x + 1, "f32[300,300]"), program("empty", lambda x: (x, x.sum()), "f32[0,3]"),
                 program("none", lambda x: None, "f32[2]"), program("keys", lambda k: aot.random.split(k), "key[]"),
                 program("donated", lambda x: x + 1, "f32[64]", donate=["x"]), program("narrow", lambda x: x, "int4[4]"),
                 build.Program(lambda params, x: x @ params["w"], [], {"x": spec.parse("f32[2,3]")}, name="first", weights={"params": w}),
                 build.Program(lambda x, params: x @ params["w"], [spec.parse("f32[2,3]")], name="last", weights={"params": w})]
    import aot
    build.save(tmp_path / "q.aot", programs)
    result = run_python(QUICK + """
    rng = np.random.default_rng(0)
    for t in ("float32", "float16", "bfloat16", "int8", "uint32", "complex64", "int32"):
        short = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "uint32": "u32", "complex64": "c64", "int32": "i32"}[t]
        x, y = (rng.standard_normal((2, 3)) * 3).astype(t), np.array(2, t)
        assert both("add_" + short, x, y) is not None
        both("add_" + short, np.asarray(x, order="F"), y)
        both("add_" + short, np.repeat(x, 2, 1)[:, ::2], y[()])
    assert both("tree", {"a": np.ones(2, np.float32), "b": [np.int32(3), np.arange(3, dtype=np.int32)]})
    both("tree", {"b": [3, np.arange(3, dtype=np.int32)], "a": np.ones(2, np.float32)})
    both("large", rng.standard_normal((300, 300)).astype(np.float32))
    both("empty", np.zeros((0, 3), np.float32))
    assert loaded["none"](np.zeros(2, np.float32)) is None
    both("keys", aot_runtime.key(3))
    x = np.zeros(64, np.float32)
    both("donated", x); both("donated", x)
    assert not x.any()
    assert both("narrow", np.array([1, 2, 3, -1], ml_dtypes.int4)) is None
    assert both("first", np.ones((2, 3), np.float32)) is not None and both("last", np.ones((2, 3), np.float32)) is None
    f = loaded["first"]
    loaded.swap_weights({"params.w": np.full((3, 3), 2, np.float32)})
    assert f(np.ones((2, 3), np.float32)).tolist() == [[6.0] * 3] * 2
    for wrong in ((np.ones((2, 3)),), (np.ones((3, 2), np.float32),), (), ([[1.0] * 3] * 2,), (np.ones((2, 3), np.float32),) * 2):
        try:
            f(*wrong)
        except aot_runtime.InputError:
            continue
        raise SystemExit(f"accepted {wrong}")
    def work(i):
        for _ in range(300):
            assert f(np.full((2, 3), i, np.float32))[0, 0] == 6 * i
    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads: t.start()
    for t in threads: t.join()
    import aot, aot.numpy as jnp
    assert both("first", np.ones((2, 3), np.float32)) is not None
    assert aot.jit(lambda x: x + 1)(np.float64(1)).dtype == np.float32
    assert f(np.ones((2, 3), np.float32)).tolist() == [[6.0] * 3] * 2
    """, tmp_path / "q.aot")
    assert result.returncode == 0, result.stderr
