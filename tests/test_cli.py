"""The command line: what each command prints, and every way it can fail."""
from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import aot_runtime
from aot.cli import COMMANDS, main

MODEL = '''
from typing import NamedTuple
import numpy as np
import aot
import aot.numpy as jnp
from aot import lax

class Params(NamedTuple):
    w: object
    b: object

TABLE = np.arange(6000, dtype=np.float32)
LIMIT = 3

def affine(params, x):
    return x @ params["w"] + params["b"]

def loss(params, x):
    return jnp.sum(affine(params, x) ** 2)

def square(x):
    return x * x

def power(x, n, *, scale=1.0, negate=False):
    y = x ** n * scale
    return -y if negate else y

def named(p):
    return Params(p.w * 2, p.b)

def plus_table(x):
    return x + TABLE

def total(*xs):
    return sum(xs[1:], xs[0])

def pick(table, i):
    return table[i]

def noise(key):
    return aot.random.normal(key, (3,))

def branches(x):
    if x > 0:
        return x
    return -x

def raises(x):
    return helper(x)

def helper(x):
    raise KeyError("this is the user's own mistake")

def prints(x):
    aot.debug.print("{}", x)
    return x

def mismatch(x):
    return x + jnp.ones(7)

def exits(x):
    raise SystemExit(0)

def speaks(x):
    print("a word while tracing")
    return x

def huge(x):
    return jnp.broadcast_to(x, (2**38,))

def deep(x, levels):
    for _ in range(levels):
        x = (x,)
    return x

def surrogate(x):
    return {"\\ud800": x}
'''


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current folder with model.py, params.npz and x.npy."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "syntax.py").write_text("def f(:\n")
    (tmp_path / "nulls.py").write_text("def f(x): return x\0")
    (tmp_path / "exits.py").write_text("import sys\nsys.exit(3)\n")
    np.savez("params.npz", w=np.eye(3, dtype=np.float32), b=np.ones(3, np.float32))
    np.save("x.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    yield tmp_path
    for name in ("model", "broken", "syntax", "exits", "nulls"):
        sys.modules.pop(name, None)


@pytest.fixture
def aot(here, capsys):
    """Run a command in this process: (exit code, stdout, stderr)."""
    def run(*args):
        code = main([str(a) for a in args])
        out, err = capsys.readouterr()
        return code, out, err
    return run


@pytest.fixture
def good(aot):
    """Like `aot` for commands that must succeed; returns stdout."""
    def run(*args):
        code, out, err = aot(*args)
        assert (code, re.sub(r"compiling .* \.\.\.\n", "", err)) == (0, "")       # what takes long says so
        return out
    return run


# ---- compile, then run ---------------------------------------------------------------------------------------------

SPEC = '{"w": f32[3,3], b: f32[3]}'
X = np.arange(6, dtype=np.float32).reshape(2, 3)
P = {"w": np.eye(3, dtype=np.float32), "b": np.ones(3, np.float32)}

COMPILES = [
    # options after `compile`, signature, arguments, expected result
    (["model.py:affine", "--arg", SPEC, "--arg", "f32[2,3]"], "affine(params, x) -> f32[2,3]", (P, X), X + 1),
    (["model:affine", "-a", "params.npz", "-a", "x.npy"], "affine(params, x) -> f32[2,3]", (P, X), X + 1),
    (["model.py:affine", "-a", "x=f32[2,3]", "-a", f"params={SPEC}"], "affine(params, x) -> f32[2,3]", (P, X), X + 1),
    (["model.py:affine", "--weights", "params.npz", "-a", "f32[2,3]"], "affine(x) -> f32[2,3]", (X,), X + 1),
    (["model.py:affine", "--weights", "params=params.npz", "-a", "f32[2,3]"], "affine(x) -> f32[2,3]", (X,), X + 1),
    (["model.py:affine", "-a", '{"w": params.npz:w, "b": params.npz:b}', "-a", "f32[2,3]"],
     "affine(params, x) -> f32[2,3]", (P, X), X + 1),
    (["model.py:loss", "-a", SPEC, "-a", "f32[2,3]", "--grad", "0"], "loss(params, x) -> f32[3], f32[3,3]", (P, X),
     {"w": 2 * X.T @ (X + 1), "b": 2 * (X + 1).sum(0)}),
    (["model.py:loss", "-a", SPEC, "-a", "f32[2,3]", "--grad", "x"], "loss(params, x) -> f32[2,3]", (P, X),
     2 * (X + 1)),
    (["model.py:loss", "-a", SPEC, "-a", "f32[2,3]", "--value-and-grad", "1"], "loss(params, x) -> f32[], f32[2,3]",
     (P, X), (((X + 1) ** 2).sum(), 2 * (X + 1))),
    (["model.py:loss", "--weights", "params.npz", "-a", "f32[2,3]", "--vmap", "0"], "loss(x) -> f32[2]", (X,),
     ((X + 1) ** 2).sum(1)),
    (["model.py:loss", "-a", SPEC, "-a", "f32[2,3]", "--grad", "x", "--vmap", "None,0"],
     "loss(params, x) -> f32[2,3]", (P, X), 2 * (X + 1)),
    (["model.py:power", "-a", "f32[2,3]", "--static", "n=3"], "power(x) -> f32[2,3]", (X,), X ** 3),
    (["model.py:power", "-a", "f32[2,3]", "--static", "n=2", "--static", "negate=True", "-a", "scale=f32[]"],
     "power(x, scale) -> f32[2,3]", (X,), None),
    (["model.py:plus_table", "-a", "f32[6000]"], "plus_table(x) -> f32[6000]", (np.ones(6000, np.float32),),
     np.arange(1, 6001, dtype=np.float32)),
    (["model.py:total", "-a", "f32[3]", "-a", "f32[3]", "-a", "2.5"], "total(xs[0], xs[1], xs[2]) -> f32[3]",
     (P["b"], P["b"], 2.5), P["b"] * 4.5),
    (["model.py:pick", "-a", "i32[5]", "-a", "i32[]"], "pick(table, i) -> i32[]", (np.arange(5, dtype=np.int32), 3), 3),
    (["model.py:square", "-a", "c64[2]"], "square(x) -> c64[2]", (np.array([1j, 2], np.complex64),), [-1, 4]),
    (["model.py:square", "-a", "bf16[]"], "square(x) -> bf16[]", (3,), 9),
]


@pytest.mark.parametrize("options, signature, args, expected", COMPILES,
                         ids=[" ".join(c[0][0:1] + c[0][-2:]) for c in COMPILES])
def test_compile_then_load(good, options, signature, args, expected):
    assert good("compile", *options, "-o", "m.aot").startswith(f"m.aot: {signature} for cpu (")
    f = aot_runtime.load("m.aot", strict=True)[options[0].split(":")[1]]
    assert f.signature == signature
    if expected is None:
        return
    compare(f(*args), expected)
    assert "ok" in good("verify", "m.aot")


def compare(got, expected):
    if isinstance(expected, dict):
        assert got.keys() == expected.keys()
        [compare(got[k], v) for k, v in expected.items()]
    elif isinstance(expected, tuple):
        assert len(got) == len(expected)
        [compare(g, v) for g, v in zip(got, expected)]
    else:
        np.testing.assert_allclose(got.astype(complex), expected, rtol=1e-5)


def test_keyword_only_arguments_are_passed_by_name(good):
    good("compile", "model.py:power", "-a", "f32[]", "-a", "scale=f32[]", "--static", "n=2", "-o", "m.aot")
    f = aot_runtime.load("m.aot")["power"]
    assert f(3.0, scale=2.0) == 18
    with pytest.raises(aot_runtime.InputError, match="takes 1 positional arguments, got 2"):
        f(3.0, 2.0)


def test_random_keys(good):
    good("compile", "model.py:noise", "-a", "key[]")
    f = aot_runtime.load("noise.aot")["noise"]
    import aot
    np.testing.assert_array_equal(f(aot_runtime.key(5)), aot.random.normal(aot.random.key(5), (3,)))
    with pytest.raises(aot_runtime.InputError, match=r"key: expected key<fry>\[\], got int\nhint: aot_runtime.key"):
        f(5)
    assert good("run", "noise.aot", "--input", "5").startswith("result =\n[")
    assert "ok" in good("verify", "noise.aot")


def test_compile_json_and_default_file(good):
    report = json.loads(good("compile", "model.py:square", "-a", "f32[3]", "--name", "sq", "--json"))
    assert report == {"file": "sq.aot", "function": "sq", "signature": "sq(x) -> f32[3]", "targets": ["cpu"],
                      "unused_weights": [],
                    "size": os.path.getsize("sq.aot")}


def test_compile_for_a_target_named_twice(good, aot):
    good("compile", "model.py:square", "-a", "f32[3]", "-t", "cpu", "-t", "cpu", "-o", "twice.aot")
    good("verify", "twice.aot")


def test_compile_for_stablehlo_only(good, aot):
    good("compile", "model.py:square", "-a", "f32[3]", "--target", "stablehlo")
    loaded = aot_runtime.load("square.aot")
    assert loaded.manifest["functions"]["square"]["executables"] == []
    assert loaded["square"](np.ones(3, np.float32)).tolist() == [1] * 3
    code, out, err = aot("verify", "square.aot")
    assert code == 0 and "no recorded result" in out
    assert err.startswith("warning: square.aot: square: compiling its StableHLO for this host (it holds no executable)")


def test_portable_outputs_are_reproducible(good, tmp_path):
    blobs = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.py").write_text(MODEL)
        good("compile", f"{folder}/model.py:square", "-a", "f32[3]", "--target", "stablehlo", "-o", "m.aot")
        blobs.append((tmp_path / "m.aot").read_bytes())
    assert blobs[0] == blobs[1]


# ---- trace, run, inspect, verify -----------------------------------------------------------------------------------

def test_trace(good):
    assert good("trace", "model.py:square", "-a", "f32[3]") == "{ lambda ; a:f32[3]. let b:f32[3] = mul a a in (b,) }\n"
    text = good("trace", "model.py:square", "-a", "f32[3]", "--stablehlo")
    assert "stablehlo.multiply" in text and "loc(" not in text
    report = json.loads(good("trace", "model.py:affine", "-a", SPEC, "-a", "f32[2,3]", "--json"))
    assert list(report["inputs"]) == ["params['b']", "params['w']", "x"] and report["form"] == "jaxpr"
    assert len(report["outputs"]) == 1 and "dot_general" in report["text"]


@pytest.fixture
def affine(good):
    good("compile", "model.py:affine", "-a", SPEC, "-a", "f32[2,3]", "-o", "affine.aot")
    return "affine.aot"


def test_run(good, affine):
    expected = "result =\n[[1. 2. 3.]\n [4. 5. 6.]]\n"
    assert good("run", affine, "--input", "params.npz", "--input", "x.npy") == expected
    assert good("run", affine, "-i", "x=[[0,1,2],[3,4,5]]", "-i", "params=params.npz") == expected
    report = json.loads(good("run", affine, "-i", "params.npz", "-i", "x.npy", "--json"))
    assert report == {"result": {"dtype": "float32", "shape": [2, 3], "data": [[1, 2, 3], [4, 5, 6]]}}


@pytest.mark.parametrize("output", ["y.npy", "y.npz", "y.safetensors"])
def test_run_writes_files_that_are_read_again(good, affine, output):
    assert good("run", affine, "-i", "params.npz", "-i", "x.npy", "-o", output) == ""
    from aot import spec
    y = spec.load_file(output)
    np.testing.assert_array_equal(y["result"] if isinstance(y, dict) else y, X + 1)


def test_results_with_structure_come_back_as_arguments(good):
    good("compile", "model.py:loss", "-a", SPEC, "-a", "f32[2,3]", "--grad", "0", "-o", "g.aot")
    good("run", "g.aot", "-i", "params.npz", "-i", "x.npy", "-o", "g.npz")
    assert sorted(np.load("g.npz")) == ["result['b']", "result['w']"]


def test_inspect(good, affine):
    text = good("inspect", affine)
    for part in ("affine(params, x) -> f32[2,3]", "cpu: fits this host: used", "params['w']  f32[3,3]",
                 "exec/affine/cpu", "program/affine.mlirbc", "jaxlib"):
        assert part in text
    report = json.loads(good("inspect", affine, "--json"))
    assert report["manifest"]["schema"] == 1 and report["fit"] == {"affine": {"cpu": None}}


def test_weights_without_a_use_are_named(aot, good):
    np.savez("more.npz", **np.load("params.npz"), head=np.ones((3, 4), np.float32))
    compiling = ("compile", "model.py:affine", "--weights", "more.npz", "-a", "f32[2,3]", "-o", "m.aot")
    code, out, err = aot(*compiling)
    assert code == 0 and out.startswith("m.aot: affine(x) -> f32[2,3]")
    assert "left out, because affine has no use for them: params.head\n" in err
    assert json.loads(good(*compiling, "--json"))["unused_weights"] == ["params.head"]
    assert "affine: weights without a use, not stored: params.head" in good("inspect", "m.aot")


def test_verify(good, affine):
    report = json.loads(good("verify", affine, "--json"))
    assert report["ok"] and report["members"] == 4
    assert report["functions"][0]["outputs"] == [{"name": "result", "type": "f32[2,3]", "ok": True,
                                                  "max_abs_error": 0.0, "max_rel_error": 0.0}]


def test_verify_reports_a_different_result(aot, add_file, hlo, tmp_path):
    x = np.ones(4, np.float32)
    hlo.store(tmp_path / "bad.aot", hlo.elementwise("f32"), {"a": x, "b": x}, x, golden=([x, x], [x * 2.01]))
    code, out, err = aot("verify", "bad.aot")
    assert code == 3 and "DIFFERS" in out and "max abs error 0.01" in out
    assert aot("verify", "bad.aot", "--rtol", "0.1")[0] == 0


def test_an_artifact_of_another_cpu(aot, affine, repack):
    repack(affine, "other.aot", lambda m: m["functions"]["affine"]["executables"][0].update(cpu_features=["avx99"]))
    code, out, err = aot("run", "other.aot", "-i", "params.npz", "-i", "x.npy")
    assert code == 0 and err.startswith("warning: ") and "needs CPU features that this host lacks: avx99" in err
    code, out, err = aot("run", "other.aot", "-i", "params.npz", "-i", "x.npy", "--strict")
    assert code == 1 and "needs CPU features that this host lacks: avx99" in err and "hint: " in err


# ---- errors --------------------------------------------------------------------------------------------------------

ERRORS = [
    # command line, exit code, what stderr says
    (["compile", "nowhere:f"], 1, "error: no module named 'nowhere'"),
    (["compile", "nowhere.py:f"], 1, "error: nowhere.py: no such file"),
    (["compile", "model.py"], 1, "error: 'model.py' names no function\nhint: write MODULE:FUNCTION"),
    (["compile", "model.py:sqare", "-a", "f32[]"], 1, "has no 'sqare'\nhint: did you mean 'square'?"),
    (["compile", "model.py:LIMIT"], 1, "model.py:LIMIT is not a function but a value of type int"),
    (["compile", "broken.py:f"], 4, "No module named 'nothing_of_this_name'"),
    (["compile", "syntax.py:f"], 4, "SyntaxError"),
    (["compile", "model.py:square"], 1, "square: nothing given for parameter 'x'\nhint: its signature is square(x)"),
    (["compile", "model.py:square", "-a", "f32[]", "-a", "f32[]"], 1, "square: 1 arguments too many"),
    (["compile", "model.py:square", "-a", "y=f32[]"], 1, "square: there is no parameter 'y'"),
    (["compile", "model.py:square", "-a", "f32[3"], 1, "the dimensions of f32 are not closed by ']'"),
    (["compile", "model.py:square", "-a", "f33[3]"], 1, "unknown element type 'f33'"),
    (["compile", "model.py:square", "-a", "f32"], 1, "did you mean f32[]?"),
    (["compile", "model.py:square", "-a", "f32[n]"], 1, "dimensions must be numbers"),
    (["compile", "model.py:square", "-a", '{"w": f32[3]'], 1, "expected ',' or '}'"),
    (["compile", "model.py:square", "-a", "missing.npz"], 1, "missing.npz: no such file"),
    (["compile", "model.py:square", "-a", "params.npz:v"], 1, "params.npz: no array 'v'\nhint: it has: w, b"),
    (["compile", "model.py:square", "-a", "f64[3]"], 1, "x: float64 needs 64-bit types, which are off"),
    (["compile", "model.py:affine", "--weights", "no.npz", "-a", "f32[2,3]"], 1, "no.npz: no such file"),
    (["compile", "model.py:square", "-a", "f32[]", "--target", "abacus"], 1, "unknown target 'abacus'\nhint: "),
    (["compile", "model.py:square", "-a", "f32[]", "--grad", "3"], 1, "cannot differentiate with respect to '3'"),
    (["compile", "model.py:square", "-a", "f32[3]", "--grad", "0"], 1, "calar-output"),
    (["compile", "model.py:square", "-a", "i32[]", "--grad", "0"], 1, "int32"),
    (["compile", "model.py:square", "-a", "f32[]", "--grad", "0", "--value-and-grad", "0"], 2, "exclude each other"),
    (["compile", "model.py:square", "-a", "f32[3]", "--vmap", "zero"], 1, "cannot read the axes 'zero'"),
    (["compile", "model.py:square", "-a", "f32[3]", "--vmap", "0,0"], 1, "2 axes for 1 arguments (x)"),
    (["compile", "model.py:square", "-a", "f32[]", "--static", "n"], 2, "write NAME=VALUE"),
    (["compile", "model.py:square", "-a", "f32[]", "-o", "no/folder/m.aot"], 1, "cannot be written"),
    (["compile", "model.py:raises", "-a", "f32[]"], 4, "KeyError: \"this is the user's own mistake\""),
    (["compile", "model.py:branches", "-a", "f32[]"], 4, "if x > 0:"),
    (["compile", "model.py:mismatch", "-a", "f32[3]"], 4, "return x + jnp.ones(7)"),
    (["compile", "model.py:exits", "-a", "f32[]"], 4, "SystemExit: 0"),
    (["trace", "model.py:exits", "-a", "f32[]"], 4, "SystemExit: 0"),
    (["compile", "exits.py:f", "-a", "f32[]"], 4, "SystemExit: 3"),
    (["compile", "model.py:huge", "-a", "f32[]"], 1, "huge: there is not enough memory to run it and record a result\nhint: "),
    (["compile", "model.py:square", "-a", "f32[99999999999]"], 1, "there is not enough memory to run it"),
    (["compile", "model.py:prints", "-a", "f32[]"], 1, "an artifact cannot contain\n  model.py:55 (prints): debug"),
    (["compile", "model.py:square", "-a", "f32[]", "-o", "model.py"], 1, "model.py: cannot be written: it is what is read"),
    (["compile", "model.py:square", "-a", "x.npy", "-o", "./x.npy"], 1, "x.npy: cannot be written: it is what is read"),
    (["compile", "model:affine", "--weights", "params.npz", "-a", "x.npy", "-o", "params.npz"], 1, "it is what is read"),
    (["export", "affine.aot", "-f", "stablehlo", "-o", "affine.aot"], 1, "affine.aot: cannot be written: it is what is read"),
    (["compile", "model.py:deep", "-a", "f32[]", "--static", "levels=3000"], 1, "nested too deeply\nhint: "),
    (["compile", "model.py:deep", "-a", "f32[]", "--static", "levels=400"], 1, "deep: result: containers are nested too deeply"),
    (["compile", "model.py:deep", "-a", "f32[]", "--static", "levels=102"], 1, "deep: result: containers are nested too deeply"),
    (["compile", "model.py:surrogate", "-a", "f32[]"], 1, r"surrogate: result: dictionary key '\ud800' is no Unicode"),
    (["compile", "nulls.py:f"], 4, "SyntaxError"),
    (["compile", "model.py:square", "-a", "f32[99999999999999999999]"], 1, "no machine holds an array of this size"),
    (["compile", "model.py:square", "-a", "f32[4294967296,4294967296]"], 1, "no machine holds an array of this size"),
    (["compile", "model.py:square", "-a", "99999999999"], 1, "too large to convert to int32"),
    (["compile", "model.py:square", "-a", '{"w": f32[3], w: f32[4]}'], 1, "the key 'w' is given twice"),
    (["compile", "model.py:square", "-a", "x.npy:w"], 1, "x.npy: a single array, which has no name 'w'"),
    (["compile", "model.py:square", "-a", "f32[]", "-o", "/dev/null"], 1, "cannot be written: it is not an ordinary file"),
    (["compile", "model.py:square", "-a", "f32[]", "-o", "."], 1, "cannot be written: it is a directory"),
    *((["compile", "model.py:square", "-a", "f32[]", "--name", name, "-o", "m.aot"], 1, "names must be different, of one line")
      for name in (".", "..", "a/b", "../a", "a\\b", "a\nb", ".a", "\udcff")),
    (["compile"], 2, "Missing argument"),
    (["compile", "model.py:square", "--wrong"], 2, "No such option"),
    (["fly"], 2, "No such command 'fly'"),
    (["trace", "model.py:raises", "-a", "f32[]"], 4, "in helper"),
    (["run", "missing.aot"], 1, "missing.aot: no such file"),
    (["run", "x.npy"], 1, "x.npy: not an .aot artifact"),
    (["run", "affine.aot"], 1, "missing argument 'params', 'x'"),
    (["run", "affine.aot", "-f", "g"], 1, "no function 'g'"),
    (["run", "affine.aot", "-i", "params.npz", "-i", "[1,2]"], 1, "x: expected f32[2,3], got f32[2]"),
    (["run", "affine.aot", "-i", "params.npz", "-i", "[[1,2],[3]]"], 1, "is not an array"),
    (["run", "affine.aot", "-i", "params.npz", "-i", "f32[2,3]"], 1, "is a type, running needs values"),
    (["run", "affine.aot", "-i", "params.npz", "-i", "x.npy", "-i", "3"], 1, "takes 2 positional arguments, got 3"),
    (["run", "affine.aot", "-i", "x.npy", "-i", "x.npy"], 1, "params: expected a dict with keys 'b', 'w', got ndarray"),
    (["run", "affine.aot", "-i", "params.npz", "-i", "x.npy", "-o", "y.txt"], 1, "y.txt: unknown kind of file"),
    (["inspect", "missing.aot"], 1, "missing.aot: no such file"),
    (["inspect", "cut.aot"], 1, "cut.aot: truncated"),
    (["verify", "cut.aot"], 1, "cut.aot: truncated"),
    (["verify", "flipped.aot"], 1, "flipped.aot: damaged: exec/affine/cpu does not match its sha256"),
    (["run", "flipped.aot", "-i", "params.npz", "-i", "x.npy"], 1, "damaged: exec/affine/cpu"),
    (["verify"], 2, "Missing argument"),
]


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    """affine.aot and damaged copies of it, built once."""
    folder = tmp_path_factory.mktemp("artifacts")
    (folder / "model.py").write_text(MODEL)
    affine = ["compile", f"{folder}/model.py:affine", "-a", SPEC, "-a", "f32[2,3]"]
    assert main([*affine, "-o", f"{folder}/affine.aot"]) == 0
    raw = bytearray((folder / "affine.aot").read_bytes())
    (folder / "cut.aot").write_bytes(raw[:len(raw) // 2])
    raw[raw.index(b"exec/affine/cpu") + 2000] ^= 1
    (folder / "flipped.aot").write_bytes(raw)
    return folder


@pytest.mark.parametrize("args, code, message", ERRORS, ids=[ascii(" ".join(e[0])) for e in ERRORS])
def test_errors(aot, artifacts, args, code, message):
    for name in ("affine.aot", "cut.aot", "flipped.aot"):
        if not os.path.exists(name):
            os.symlink(artifacts / name, name)
    got, out, err = aot(*args)
    assert message in err
    assert got == code and out == ""
    assert os.path.dirname(os.path.abspath(aot_runtime.__file__)) not in err  # no frame of ours
    assert "/aot/" not in err and "internal error" not in err
    assert ("Traceback" in err) == (code == 4)


def test_debug_shows_everything(aot):
    code, out, err = aot("compile", "model.py:square", "-a", "f32[3", "--debug")
    assert code == 1 and "Traceback" in err and "spec.py" in err and "error: " in err


def test_a_bug_of_ours_is_called_one(aot, monkeypatch):
    from aot import build
    monkeypatch.setattr(build, "save", lambda *a, **k: {}["x"])
    code, out, err = aot("compile", "model.py:square", "-a", "f32[]")
    assert code in (4, 70)  # the lambda lives in this file, which counts as the user's


# ---- the process ---------------------------------------------------------------------------------------------------

def run_process(*args, cwd=None, **env):
    code = "import sys; from aot.cli import main; sys.exit(main())"
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, cwd=cwd, timeout=120,
                          env={**os.environ, **env})


def test_help_lists_the_commands_without_importing_the_compiler(here):
    result = run_process("--help")
    assert result.returncode == 0 and all(name in result.stdout for name in COMMANDS)
    code = ("import sys; from aot.cli import main; main(['--help']); "
            "bad = {'jaxlib', 'numpy', 'rich', 'aot.build'} & set(sys.modules); sys.exit(str(bad) if bad else 0)")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(good, name):
    assert "Usage: aot " + name in good(name, "--help")


def unhurried(text: str) -> str:
    """Without the lines that say what is being done, which a busy machine shows."""
    return "".join(line for line in text.splitlines(True) if not line.endswith(" ...\n"))


def test_exit_code_stdout_and_stderr_of_a_process(here):
    made = run_process("compile", "model.py:square", "-a", "f32[2]", "-o", "m.aot", cwd=here)
    assert (made.returncode, unhurried(made.stderr)) == (0, "") and made.stdout.startswith("m.aot: square(x) -> f32[2]")
    failed = run_process("compile", "model.py:raises", "-a", "f32[2]", cwd=here)
    assert failed.returncode == 4 and failed.stdout == ""
    lines = [line for line in unhurried(failed.stderr).splitlines(True) if line.strip(" ~^\n")]
    assert "".join(lines) == textwrap.dedent(f"""\
        Traceback (most recent call last):
          File "{here}/model.py", line 49, in raises
            return helper(x)
          File "{here}/model.py", line 52, in helper
            raise KeyError("this is the user's own mistake")
        KeyError: "this is the user's own mistake"
        """)


@pytest.mark.parametrize("target", ["top.py:f", "top:f", "pack.inner:f", "sub/top.py:f"])
def test_a_file_that_changes_twice_in_a_second(tmp_path, target, monkeypatch):
    """Python's byte code knows a source by its size and whole seconds."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    for file, text in {"top.py": "from near import K\nfrom pack.inner import f", "near.py": "K = 1.5", "pack/__init__.py": "",
                       "pack/inner.py": "from near import K\ndef f(x): return x * K", "sub/near.py": "K = 1.5",
                       "sub/top.py": "from near import K\ndef f(x): return x * K"}.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
        os.utime(tmp_path / file, (1e9, 1e9))
    warm = "import sys; sys.path[:0] = ['sub' * ('sub' in sys.argv[1]), '.']; import top"
    subprocess.run([sys.executable, "-c", warm, target], cwd=tmp_path, check=True)
    assert list(tmp_path.rglob("near*.pyc"))
    for value in ("1.5", "2.5"):
        for file in tmp_path.rglob("near.py"):
            file.write_text(f"K = {value}")
            os.utime(file, (1e9, 1e9))
        assert f" {value} in" in run_process("trace", target, "-a", "f32[2]", cwd=tmp_path).stdout


@pytest.mark.parametrize("command", ["compile", "trace"])
def test_what_the_function_prints_is_no_data(aot, command):
    code, out, err = aot(command, "model.py:speaks", "-a", "f32[3]", "--json")
    assert code == 0 and "a word while tracing" in err
    assert json.loads(out)["function"] == "speaks"


@pytest.mark.parametrize("command", ["compile", "trace", "check"])
def test_interrupting_a_function_that_never_ends(here, command):
    (here / "loops.py").write_text("def f(x):\n    print('started', flush=True)\n    while True: pass\n")
    process = subprocess.Popen([sys.executable, "-m", "aot.cli", command, "loops.py:f", "-a", "f32[3]"], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for line in process.stderr:
        if "started" in line:
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "") and "interrupted" in err and "Traceback" not in err
    assert not [f for f in os.listdir() if ".aot" in f or f.endswith(".tmp")]


def test_output_that_cannot_be_written(here, affine):
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "aot.cli", "inspect", affine], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "error: [Errno 28]" in done.stderr and "Traceback" not in done.stderr


def test_a_reader_that_has_seen_enough(here, affine):
    process = subprocess.Popen([sys.executable, "-m", "aot.cli", "inspect", affine], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert (process.stderr.read(), process.wait(30)) == (b"", 0)
    process.stderr.close()


@pytest.mark.parametrize("raised", ["EOFError", "BrokenPipeError", "SystemExit", "SystemExit(0)"])
def test_exceptions_of_a_function_that_end_programs(aot, here, raised):
    (here / "ends.py").write_text(f"def f(x):\n    raise {raised}\n")
    code, out, err = aot("trace", "ends.py:f", "-a", "f32[3]")
    assert (code, out) == (4, "") and f"raise {raised}" in err


def test_x64_from_the_environment(here):
    made = run_process("compile", "model.py:square", "-a", "f64[2]", cwd=here, AOT_ENABLE_X64="1")
    assert made.returncode == 0 and "f64[2]" in made.stdout


@pytest.mark.parametrize("name", ["numpy", "random", "typing", "click", "aot", "jax"])
def test_a_file_with_the_name_of_a_library(aot, here, name):
    (here / f"{name}.py").write_text(MODEL)
    library = sys.modules[name] if name != "jax" else pytest.importorskip("jax")
    assert aot("compile", f"{name}.py:square", "-a", "f32[3]", "-o", "m.aot")[0] == 0
    assert sys.modules.get(name) is library


def test_files_with_names_of_libraries_in_processes(here):
    """Processes that commands start import no file of the current folder for a library."""
    for name in ("random", "typing", "numpy"):
        (here / f"{name}.py").write_text(MODEL)
    (here / "aot.toml").write_text('[project]\nname = "p"\ntargets = ["cpu", "stablehlo"]\n[[function]]\n'
                                   'function = "random.py:square"\nargs = ["f32[3]"]\n')
    made = run_command("export", "random.py:square", "-a", "f32[3]", "-f", "stablehlo", cwd=here)
    assert made.returncode == 0 and "right in its runtime" in made.stdout, made.stdout + made.stderr
    assert run_command("build", cwd=here).returncode == 0


def run_command(*args, cwd):
    """The installed command, whose own import path has no current folder."""
    code = "import sys; from aot.cli import main; sys.exit(main())"
    return subprocess.run([sys.executable, "-P", "-c", code, *args], capture_output=True, text=True, cwd=cwd)


@pytest.mark.parametrize("when", ["import", "trace"])
def test_the_current_folder_of_the_user_code_is_its_own(aot, here, when):
    leave = "import os; os.chdir('/')\n"
    (here / "leaves.py").write_text(
        f"{leave if when == 'import' else ''}def f(x):\n    {leave if when == 'trace' else ''}\n    return x\n")
    code, out, err = aot("compile", "leaves.py:f", "-a", "f32[3]", "-o", "m.aot")
    assert (code, err, os.getcwd()) == (0, "", str(here)) and (here / "m.aot").exists()


def test_names_of_files_in_another_encoding(here):
    name = os.fsencode(here) + b"/non\xffutf.py"
    with open(name, "wb") as f:
        f.write("import aot\ndef λ(ξ):\n    return {'β': aot.numpy.sin(ξ)}\n".encode())
    command = [sys.executable, "-m", "aot.cli"]
    subprocess.run([*command, "compile", name + ":λ".encode(), "-a", "f32[3]", "-o", b"o\xfe.aot"], check=True, cwd=here)
    done = subprocess.run([*command, "verify", b"o\xfe.aot"], check=True, cwd=here, capture_output=True)
    assert "result['β']" in done.stdout.decode(errors="replace")


def test_closed_streams_are_not_replaced_by_files(here):
    """Otherwise what C++ logs would go to the artifact."""
    (here / "logs.py").write_text("import os\ndef f(x):\n    os.write(1, b'out'); os.write(2, b'err')\n    return x\n")
    command = f"{sys.executable} -m aot.cli compile logs.py:f -a 'f32[3]' -o m.aot <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], cwd=here).returncode == 0
    assert aot_runtime.load(here / "m.aot").verify() is None


@pytest.mark.parametrize("command", [["compile", "{}/model.py:square", "-a", "f32[3]"], ["build"], ["inspect", "m.aot"]])
def test_a_current_folder_that_is_gone(here, command):
    (here / "gone").mkdir()
    line = " ".join(["cd gone && rmdir ../gone &&", sys.executable, "-m aot.cli", *command]).format(here)
    done = subprocess.run(["sh", "-c", line], cwd=here, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("error: ") and "Traceback" not in done.stderr
    assert "the current folder does not exist any more" in done.stderr or "m.aot: no such file" in done.stderr


@pytest.mark.parametrize("name", ["ü n", "a.b", "数", "f (1)", "a:b"])
def test_functions_may_have_other_names(good, name):
    assert name in good("compile", "model.py:square", "-a", "f32[3]", "--name", name)
    assert name in good("verify", f"{name}.aot")
    assert (aot_runtime.load(f"{name}.aot")[name](np.ones(3, np.float32)) == 1).all()


def test_interrupting_while_xla_compiles(here):
    (here / "long.py").write_text("import aot.numpy as jnp\ndef f(x):\n    for i in range(600): x = jnp.sin(x @ x) + i\n    return x\n")
    command = [sys.executable, "-m", "aot.cli", "compile", "long.py:f", "-a", "f32[8,8]", "-o", "m.aot"]
    for _ in range(2):
        process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env={**os.environ, "AOT_CACHE_DIR": str(here / "cache"), "AOT_CACHE_READONLY": "1"})
        assert process.stderr is not None
        while "compiling" not in process.stderr.readline():
            assert process.poll() is None, "compiling takes longer than a second, which is when it is said"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (130, "", "interrupted\n") and not (here / "m.aot").exists()
