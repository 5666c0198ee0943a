"""The `.aot` file: layout, manifest, determinism, atomic writing, descriptions of trees."""
from __future__ import annotations

import collections.abc
import dataclasses
import hashlib
import json
import os
import pathlib
import struct
import zipfile

import ml_dtypes
import numpy as np
import pytest

import aot
import aot_runtime
from aot import artifact, tree_util
from aot.errors import AotError
from aot.files import replacing

Point = collections.namedtuple("Point", "x y")


class Pair:
    def __init__(self, a, b): self.a, self.b = a, b


tree_util.register_pytree_with_keys(
    Pair, lambda p: (((tree_util.GetAttrKey("a"), p.a), (tree_util.GetAttrKey("b"), p.b)), None),
    lambda _, xs: Pair(*xs))


class Frozen(collections.abc.Mapping):
    """A mapping that is no dict, as FrozenDict and nnx.State of flax."""
    def __init__(self, pairs): self._pairs = dict(pairs)
    def __getitem__(self, key): return self._pairs[key]
    def __iter__(self): return iter(self._pairs)
    def __len__(self): return len(self._pairs)


tree_util.register_pytree_with_keys(
    Frozen, lambda p: ([(tree_util.DictKey(k), v) for k, v in p.items()], tuple(p)), lambda keys, xs: Frozen(zip(keys, xs)))


class Numbered(list):
    """A sequence whose children have no names."""


tree_util.register_pytree_node(Numbered, lambda p: (tuple(p), None), lambda _, xs: Numbered(xs))


@tree_util.register_dataclass
@dataclasses.dataclass
class State:
    step: int
    params: dict


def manifest_of(path):
    with zipfile.ZipFile(path) as z:
        return json.loads(z.read("manifest.json"))


def test_members_are_stored_aligned_and_listed_with_their_sha256(add_file):
    manifest, raw = manifest_of(add_file), add_file.read_bytes()
    assert set(manifest["members"]) == {"program/f.mlirbc", "exec/f/cpu", "golden/f", "sbom.json"}
    with zipfile.ZipFile(add_file) as z:
        assert z.testzip() is None
        assert {i.filename for i in z.infolist()} == {*manifest["members"], "manifest.json"}
        for i in z.infolist():
            n, k = struct.unpack_from("<HH", raw, i.header_offset + 26)
            assert (i.header_offset + 30 + n + k) % artifact.ALIGN == 0
            assert i.compress_type == zipfile.ZIP_STORED
        for name, entry in manifest["members"].items():
            data = z.read(name)
            assert entry == {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def test_manifest_fields(add_file):
    manifest = manifest_of(add_file)
    f = manifest["functions"]["f"]
    assert (manifest["format"], manifest["schema"]) == ("aot", 1)
    assert f["inputs"] == [{"name": n, "shape": [4], "dtype": "float32"} for n in "ab"]
    assert f["outputs"] == [{"name": "result", "shape": [4], "dtype": "float32"}]
    assert f["parameters"] == [0, 1]
    assert f["arguments"] == [{"name": "a", "tree": "*"}, {"name": "b", "tree": "*"}]
    exe, = f["executables"]
    assert exe["member"] == "exec/f/cpu" and exe["jaxlib"] == aot_runtime.host_info()["jaxlib"]
    assert f["stablehlo"] == "" or f["stablehlo"].count(".") == 2


def test_everything_but_the_executable_is_reproducible(tmp_path, hlo):
    x = np.ones(4, np.float32)
    files = [hlo.store(tmp_path / f"{i}.aot", hlo.elementwise("f32"), {"a": x, "b": x}, x, executable=False,
                       golden=([x, x], [x + x])) for i in range(2)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_failed_write_leaves_the_old_file_and_no_temporary(add_file):
    before = add_file.read_bytes()
    with pytest.raises(AotError, match="names must be different"):
        f = artifact.Function("f", [], [], [], None, [])
        artifact.write(add_file, [f, f])
    assert add_file.read_bytes() == before
    assert os.listdir(add_file.parent) == [add_file.name]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_interrupted_write_leaves_nothing(tmp_path, error):
    with pytest.raises(error), replacing(str(tmp_path / "x")) as f:
        f.write(b"half of it")
        raise error
    assert not os.listdir(tmp_path)


def test_unwritable_folder_is_a_clear_error(tmp_path):
    with pytest.raises(AotError, match="cannot be written: .*\nhint: make its folder first"):
        artifact.write(tmp_path / "no" / "x.aot", [])


@pytest.mark.parametrize("name", ["", "a/b"])
def test_bad_function_names(tmp_path, name):
    with pytest.raises(AotError, match="names must be"):
        artifact.write(tmp_path / "x.aot", [artifact.Function(name, [], [], [], None, [])])


ARRAYS = {
    "f32": np.arange(6, dtype=np.float32).reshape(2, 3),
    "scalar": np.float32(3),
    "empty": np.zeros((0, 5), np.int32),
    "bool": np.array([True, False]),
    "bf16": np.arange(3).astype(ml_dtypes.bfloat16),
    "f8": np.arange(3).astype(ml_dtypes.float8_e4m3fn),
    "f8fnuz": np.arange(3).astype(ml_dtypes.float8_e4m3fnuz),
    "i4": np.arange(5).astype(ml_dtypes.int4).reshape(5, 1),
    "c64": np.array([1 + 2j], np.complex64),
    "c128": np.array([[1 + 2j, 3]], np.complex128),
    "strided": np.arange(10, dtype=np.int64)[::2],
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
}


def test_tensors_round_trip_aligned():
    data = b"".join(bytes(p) for p in artifact.pack_tensors(ARRAYS))
    back = aot_runtime.tensors(memoryview(data), "t")
    n, = struct.unpack_from("<Q", data)
    assert (8 + n) % artifact.ALIGN == 0
    assert all(v["data_offsets"][0] % artifact.ALIGN == 0
               for k, v in json.loads(data[8:8 + n]).items() if not k.startswith("__"))
    for name, x in ARRAYS.items():
        assert back[name].dtype == x.dtype and back[name].shape == x.shape
        assert np.array_equal(back[name].astype(complex), np.asarray(x).astype(complex))


def test_tensors_are_read_by_the_safetensors_package():
    safetensors = pytest.importorskip("safetensors.numpy")
    plain = {k: v for k, v in ARRAYS.items() if k in ("f32", "bool", "strided", "scalar")}
    back = safetensors.load(b"".join(bytes(p) for p in artifact.pack_tensors(plain)))
    for name, x in plain.items():
        assert np.array_equal(back[name], x)


TREES = [
    (1, "*"),
    (None, None),
    ((1, [2, None]), {"tuple": ["*", {"list": ["*", None]}]}),
    ({"b": 1, "a": 2}, {"dict": [["a", "*"], ["b", "*"]]}),
    ({2: 1, 1: 0}, {"dict": [[1, "*"], [2, "*"]]}),
    ({(1, "x"): 1}, {"dict": [[[1, "x"], "*"]]}),
    ((), {"tuple": []}),
    (Point(1, {"k": 2}), {"namedtuple": "Point", "fields": [["x", "*"], ["y", {"dict": [["k", "*"]]}]]}),
    (collections.OrderedDict(z=1, a=2), {"dict": [["z", "*"], ["a", "*"]], "ordered": True}),
    (collections.defaultdict(int, z=1, a=2), {"dict": [["a", "*"], ["z", "*"]]}),
    (Pair(1, (2,)), {"node": "Pair", "fields": [["a", "*"], ["b", {"tuple": ["*"]}]]}),
    (Frozen({"z": 1, 0: Frozen({})}), {"dict": [["z", "*"], [0, {"node": "Frozen", "fields": []}]]}),
    (Numbered([1, 2]), {"node": "Numbered", "fields": [[0, "*"], [1, "*"]]}),
    (State(1, {"w": 2}), {"node": "State", "fields": [["step", "*"], ["params", {"dict": [["w", "*"]]}]]}),
]


@pytest.mark.parametrize("tree, expected", TREES, ids=lambda t: type(t).__name__)
def test_trees_are_described_in_json(tree, expected):
    described = artifact.describe_tree(tree_util.tree_structure(tree))
    assert json.loads(json.dumps(described)) == expected
    leaves = []
    aot_runtime.collect(described, tree, "t", leaves)
    assert leaves == tree_util.tree_leaves(tree)


def test_keys_that_json_cannot_hold_are_refused():
    with pytest.raises(AotError, match="params: dictionary key b'x' of type bytes cannot be stored"):
        artifact.describe_tree(tree_util.tree_structure({b"x": 1}), "params")


# ---- files of earlier versions -------------------------------------------------------------------------------------

OLD = sorted((pathlib.Path(__file__).parent / "data/artifacts").glob("*.aot"))
assert OLD


@pytest.mark.parametrize("path", OLD, ids=[p.stem for p in OLD])
def test_every_later_loader_reads_every_earlier_file(path):
    """They hold predict(x) = {0: tanh(x @ w + b), 1: Point(sum of x, None)} and draw(key, n)."""
    loaded = aot_runtime.load(path)
    loaded.verify()
    w, b = loaded.weights()["params.w"], loaded.weights()["params.b"]
    x = np.arange(8, dtype=np.float32).reshape(2, 4) / 8
    y = loaded["predict"](x)
    assert np.allclose(y[0], np.tanh(x @ w + b), rtol=1e-6) and y[1].x == x.sum() and y[1].y is None
    uniform, split, empty = loaded["draw"](aot_runtime.key(0), 2.0)
    assert np.allclose(uniform, 2 * np.asarray(aot.random.uniform(aot.random.key(0), (4,)))) and empty.shape == (0, 3)
    assert split.tolist() == aot.random.key_data(aot.random.split(aot.random.key(0))[0]).tolist()
    for name in loaded:
        inputs, outputs = loaded.golden(name)
        for got, want in zip(loaded[name].call_flat(inputs), outputs):
            assert np.allclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-5)


def test_the_schema_in_the_documentation_is_current():
    from aot.artifact_schema import json_schema
    path = pathlib.Path(__file__).parent.parent / "docs/artifact.schema.json"
    assert json.loads(path.read_text()) == json_schema(), "python -m aot.artifact_schema > docs/artifact.schema.json"


@pytest.mark.parametrize("path", OLD, ids=[p.stem for p in OLD])
def test_manifests_are_as_the_schema_says(path):
    import jsonschema

    from aot.artifact_schema import json_schema
    jsonschema.validate(aot_runtime.load(path).manifest, json_schema())


@pytest.fixture
def chunked(tmp_path, hlo, monkeypatch):
    """An artifact whose weights are large, for a writer to whom 4 KiB are much."""
    monkeypatch.setattr(artifact, "CHUNK", 1 << 12)
    monkeypatch.setattr(artifact, "LARGE", 1 << 12)
    w = np.arange(5000, dtype=np.float32)
    text = """module @m { func.func public @main(%w: tensor<5000xf32>) -> tensor<5000xf32> { return %w : tensor<5000xf32> } }"""
    return hlo.store(tmp_path / "w.aot", text, {}, w, parameters=["w"], weights={"w": w}, executable=False)


@pytest.mark.parametrize("piece", [1 << 20, 1000], ids=["one read a chunk", "several reads a chunk"])
def test_large_members_are_checked_in_chunks(chunked, piece, monkeypatch):
    monkeypatch.setattr(aot_runtime, "_PIECE", piece)
    entry, raw = manifest_of(chunked)["members"]["weights"], chunked.read_bytes()
    data = bytes(aot_runtime.load(chunked).member("weights"))
    assert entry["sha256"] == hashlib.sha256(data).hexdigest()
    assert entry["chunks"] == {"size": 4096, "sha256": [hashlib.sha256(data[i:i + 4096]).hexdigest() for i in range(0, len(data), 4096)]}
    start = raw.index(data)
    for at in (0, 4095, 4096, len(data) - 1):
        damaged = bytearray(raw)
        damaged[start + at] ^= 1
        chunked.write_bytes(damaged)
        for source in (chunked, bytes(damaged), open(chunked, "rb")):
            with pytest.raises(aot_runtime.ArtifactError, match="weights does not match its sha256"):
                aot_runtime.load(source).member("weights")


def test_a_large_member_of_a_file_that_shrinks_is_damaged(chunked):
    opened = aot_runtime.load(chunked)
    os.truncate(chunked, chunked.stat().st_size // 2)
    with pytest.raises(aot_runtime.ArtifactError, match="weights does not match its sha256"):
        opened.member("weights")


def test_an_artifact_in_a_part_of_a_mapped_file(chunked, tmp_path):
    """Its members do not begin where they would in a file of its own."""
    outer = tmp_path / "outer.aot"
    with zipfile.ZipFile(chunked) as z, zipfile.ZipFile(outer, "w") as out:
        for name in z.namelist():
            artifact.add_member(out, name, [z.read(name)])
        artifact.add_member(out, "inner", [chunked.read_bytes()])
    inside = aot_runtime.load(outer)._members["inner"].data
    assert bytes(aot_runtime.load(inside).member("weights")) == bytes(aot_runtime.load(chunked).member("weights"))
