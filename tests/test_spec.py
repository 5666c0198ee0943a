"""Argument specs as text, array files, and matching them to a function's parameters."""
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from aot import binding, spec
from aot.errors import AotError

A = spec.Array

GOOD = [
    ("f32[32,784]", A((32, 784), "float32")),
    ("bf16[]", A((), "bfloat16")),
    ("pred[2]", A((2,), "bool")),
    ("bool[]", A((), "bool")),
    ("s32[1]", A((1,), "int32")),
    ("u8[ 3 , 4 ]", A((3, 4), "uint8")),
    ("int4[5]", A((5,), "int4")),
    ("f8_e4m3fn[2]", A((2,), "float8_e4m3fn")),
    ("c128[0,2]", A((0, 2), "complex128")),
    ("key[3]", A((3,), "key")),
    ("1.5", 1.5), ("-3", -3), ("1e-3", 1e-3), ("2j", 2j), ("True", True), ("None", None),
    ('{"w": f32[3], "b": f32[]}', {"w": A((3,), "float32"), "b": A((), "float32")}),
    ("{w:f32[3],b:{0:i32[],1:None}}", {"w": A((3,), "float32"), "b": {0: A((), "int32"), 1: None}}),
    ("{'a b': 1, \"c:d\": 2}", {"a b": 1, "c:d": 2}),
    ("[f32[1], (i32[2], 3), ()]", [A((1,), "float32"), (A((2,), "int32"), 3), ()]),
    ("(f32[1])", A((1,), "float32")), ("(f32[1],)", (A((1,), "float32"),)),
    ("[1, 2.5, [3]]", [1, 2.5, [3]]), ("{}", {}), ("[ ]", []), ("[inf, -inf]", [float("inf"), -float("inf")]),
]


@pytest.mark.parametrize("text, expected", GOOD, ids=[t for t, _ in GOOD])
def test_parse(text, expected):
    got = spec.parse(text)
    assert got == expected and type(got) is type(expected)


BAD = [
    ("", "the spec ends too early"),
    ("f32[a]", "dimensions must be numbers"), ("f32[-1]", "dimensions must be numbers"),
    ("f32[3", "not closed by ']'"), ("q7[3]", "unknown element type 'q7'"), ("float[3]", "unknown element type"),
    ("f32", "did you mean f32[]?"), ("hello", "neither an array, a number nor a file"),
    ("{w f32[3]}", "expected ':'"), ('{"w": }', "unexpected '}'"), ('{"w": f32[3]', "expected ',' or '}'"),
    ("[f32[1] f32[2]]", "expected ',' or ']'"), ("f32[1] f32[2]", "expected the end"), ("{f32[1]: 2}", "expected a key"),
    ("none.npz", "none.npz: no such file"), ("{x: none.npz:w}", "none.npz: no such file"), ("]", "unexpected ']'"),
]


@pytest.mark.parametrize("text, message", BAD, ids=[t for t, _ in BAD])
def test_what_is_wrong_is_pointed_at(text, message):
    with pytest.raises(spec.SpecError) as e:
        spec.parse(text)
    assert message in str(e.value)
    assert "^" in str(e.value) or "no such file" in str(e.value)


ARRAYS = {"w": np.arange(6.0).reshape(2, 3), "b": np.array([True, False])}


@pytest.mark.parametrize("name", ["a.npz", "a.safetensors"])
def test_files_of_several_arrays(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    spec.write_arrays(name, ARRAYS)
    for text, pick in [(name, lambda x: x), (f"{name}:w", lambda x: {"w": x, "b": ARRAYS["b"]}),
                       (f"{{w: {name}:w, b: '{name}:b'}}", lambda x: x)]:
        got = pick(spec.parse(text))
        assert got.keys() == ARRAYS.keys() and all(np.array_equal(got[k], v) for k, v in ARRAYS.items())
    with pytest.raises(spec.SpecError, match="no array 'z'\nhint: it has: w, b"):
        spec.parse(f"{name}:z")


def test_file_of_one_array(tmp_path):
    spec.write_arrays(str(tmp_path / "x.npy"), {"x": ARRAYS["w"]})
    assert np.array_equal(spec.parse(str(tmp_path / "x.npy")), ARRAYS["w"])
    with pytest.raises(spec.SpecError, match="holds one array"):
        spec.write_arrays(str(tmp_path / "x.npy"), ARRAYS)


def test_files_written_by_the_safetensors_package(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    safetensors.save_file({"w": ARRAYS["w"], "h": np.ones(3, np.float16)}, tmp_path / "a.safetensors")
    got = spec.load_file(str(tmp_path / "a.safetensors"))
    assert np.array_equal(got["w"], ARRAYS["w"]) and got["h"].dtype == np.float16


def test_bfloat16_survives_safetensors(tmp_path):
    x = np.arange(3).astype(ml_dtypes.bfloat16)
    spec.write_arrays(str(tmp_path / "x.safetensors"), {"x": x})
    assert spec.load_file(str(tmp_path / "x.safetensors"))["x"].dtype == x.dtype


@pytest.mark.parametrize("name", ["x.npz", "x.npy", "x.safetensors"])
def test_damaged_files(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x93NUMPY this is not it, nor anything else")
    with pytest.raises(spec.SpecError, match=f"{name}: cannot be read as {name[2:]}"):
        spec.load_file(str(tmp_path / name))


def test_pickles_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(spec.SpecError, match="cannot be read"):
        spec.load_file(str(tmp_path / "x.npy"))


@pytest.mark.parametrize("arrays, tree", [
    ({"['a'][0]": 1, "['a'][1]": 2, "['b']": 3}, {"a": [1, 2], "b": 3}),
    ({"[0]['w']": 1, "[1]['w']": 2}, [{"w": 1}, {"w": 2}]),
    ({"[0]": 1, "[2]": 2}, {0: 1, 2: 2}),
    ({"['p'].w": 1}, {"p": {"w": 1}}),
    ({"a.b": 1, "c": 2}, {"a.b": 1, "c": 2}),
    ({"layers[0]": 1}, {"layers[0]": 1}),
    ({}, {}),
])
def test_key_paths_as_names_are_nested(arrays, tree):
    assert spec.nest(arrays) == tree


# ---- binding -------------------------------------------------------------------------------------------------------

def plain(x, y): ...
def default(x, y=1): ...
def keyword(x, *, scale, flag=False): ...
def positional(x, /, y): ...
def star(x, *rest): ...
def anything(**kw): ...


BOUND = [
    # function, positional, named, weights, static -> names in order (w: weights, k: keyword)
    (plain, [1, 2], {}, {}, {}, "x y"),
    (plain, [2], {"x": 1}, {}, {}, "x y"),
    (plain, [], {"y": 2, "x": 1}, {}, {}, "x y"),
    (plain, [2], {}, {"x": 1}, {}, "wx y"),
    (plain, [1], {}, {}, {"y": 2}, "x"),
    (default, [1], {}, {}, {}, "x"),
    (default, [1], {}, {}, {"y": 3}, "x"),
    (keyword, [1], {"scale": 2}, {}, {}, "x kscale"),
    (keyword, [1], {"scale": 2, "flag": 3}, {}, {}, "x kscale kflag"),
    (positional, [1, 2], {}, {}, {}, "x y"),
    (star, [1, 2, 3], {}, {}, {}, "x rest[0] rest[1]"),
    (anything, [], {"b": 1, "a": 2}, {}, {}, "ka kb"),
]


@pytest.mark.parametrize("fun, args, named, weights, static, expected", BOUND)
def test_bind(fun, args, named, weights, static, expected):
    bound = binding.bind(fun, args, named, weights, static)
    assert " ".join("w" * a.weights + "k" * a.keyword + a.name for a in bound) == expected


UNBOUND = [
    (plain, [1], {}, {}, {}, "nothing given for parameter 'y'"),
    (plain, [1, 2, 3], {}, {}, {}, "1 arguments too many"),
    (plain, [1], {"z": 2}, {}, {}, "there is no parameter 'z'"),
    (plain, [1], {"y": 2}, {}, {"y": 3}, "parameter 'y' is given twice"),
    (keyword, [1], {}, {}, {}, "nothing given for parameter 'scale'"),
]


@pytest.mark.parametrize("fun, args, named, weights, static, message", UNBOUND)
def test_bind_errors(fun, args, named, weights, static, message):
    with pytest.raises(AotError) as e:
        binding.bind(fun, args, named, weights, static)
    assert message in str(e.value) and "signature" in str(e.value) or "twice" in message


def test_calling_by_position():
    def f(a, /, b, c=3, *rest, d=4, e=5): return a, b, c, rest, d, e

    for args, named, static in [([1, 2], {}, {}), ([1, 2], {"e": 6}, {"d": 7}), ([1], {"c": 9}, {"b": 8}),
                                ([1, 2, 3, 10, 11], {"d": 0}, {}), ([2], {}, {"a": 1})]:
        bound = binding.bind(f, args, named, {}, static)
        call = binding.as_positional(f, bound, static)
        every = {**dict(zip([n for n in "abc" if n not in static and n not in named], args)), **named, **static}
        expected = f(every.pop("a"), every.pop("b"), every.pop("c", 3), *args[3:], **every)
        assert call(*(x.tree for x in bound)) == expected


@pytest.mark.parametrize("array, message", [
    (np.array(["a"]), "elements of type <U1 are no numbers"), (np.zeros(2, [("a", "f4")]), "are no numbers"),
    (np.array(["2020"], "M8[D]"), "are no numbers"), (np.array([1, None], object), "Object arrays cannot be loaded"),
    (np.ones(2, ml_dtypes.float8_e4m3fn), "use .safetensors")])
def test_files_without_numbers(tmp_path, array, message):
    np.save(tmp_path / "x.npy", array)
    np.savez(tmp_path / "x.npz", a=array)
    for name in ("x.npy", "x.npz"):
        with pytest.raises(spec.SpecError) as e:
            spec.load_file(str(tmp_path / name))
        assert str(e.value).startswith(f"{tmp_path / name}: cannot be read as ") and message in str(e.value)


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.safetensors"])
def test_files_that_are_something_else(tmp_path, name):
    for content in (b"", b"junk", b"\x93NUMPY", b"PK\3\4"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(spec.SpecError, match="cannot be read as") as e:
            spec.load_file(str(tmp_path / name))
        assert "pickle" not in str(e.value)


@pytest.mark.parametrize("array", [np.arange(6, dtype=">f4").reshape(2, 3), np.arange(3, dtype=">i2"), np.asfortranarray(
    np.arange(6.).reshape(2, 3)), np.arange(3).astype(ml_dtypes.bfloat16), np.array(2.5, ">f8")], ids=lambda a: a.dtype.str)
def test_arrays_of_files_are_as_they_are_computed_with(tmp_path, array):
    np.save(tmp_path / "x.npy", array)
    np.savez(tmp_path / "x.npz", a=array)
    for got in (spec.load_file(str(tmp_path / "x.npy")), spec.load_file(str(tmp_path / "x.npz"))["a"]):
        assert got.dtype.isnative and got.dtype.name == array.dtype.name and np.array_equal(got, array)
