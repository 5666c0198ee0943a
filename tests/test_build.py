"""Building artifacts from Python: several functions, weights, donation, structures, constants."""
from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import aot
import aot.numpy as jnp
import aot_runtime
from aot import build, replay, spec
from aot.build import Program
from aot.errors import AotError

X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = {"w": np.eye(3, dtype=np.float32), "b": np.ones(3, np.float32)}
F23 = spec.parse("f32[2,3]")


class State(NamedTuple):
    step: object
    params: object


def affine(params, x): return x @ params["w"] + params["b"]
def total(params, x): return affine(params, x).sum()


@pytest.fixture
def saved(tmp_path):
    """Save programs and load them again."""
    def save(*programs, **options):
        build.save(tmp_path / "m.aot", programs, **options)
        assert replay.verify(tmp_path / "m.aot")["ok"]
        return aot_runtime.load(tmp_path / "m.aot", strict=True)
    return save


def test_several_functions_share_their_weights(saved):
    loaded = saved(Program(affine, [F23], weights={"params": W}), Program(total, [F23], weights={"params": W}))
    assert list(loaded) == ["affine", "total"] and sorted(loaded.weights()) == ["params.b", "params.w"]
    assert np.array_equal(loaded["affine"](X), X + 1) and loaded["total"](X) == 21


def test_weights_of_one_name_and_different_values(saved):
    other = {"w": W["w"] * 2, "b": W["b"]}
    loaded = saved(Program(affine, [F23], weights={"params": W}),
                   Program(affine, [F23], weights={"params": other}, name="twice"))
    assert np.array_equal(loaded["affine"](X), X + 1) and np.array_equal(loaded["twice"](X), 2 * X + 1)


HEAD = np.full((3, 4), 2, np.float32)


def dead(params, x):
    jnp.sin(params["head"]) * params["key"].shape[0]         # no result needs it
    return affine(params, x)


@pytest.mark.parametrize("fun, unused", [(affine, ["params.head", "params.key"]), (dead, ["params.head", "params.key"]),
                                         (lambda params, x: x * params["head"].shape[1], ["params.b", "params.head", "params.key", "params.w"]),
                                         (lambda params, x: affine(params, x) @ params["head"], ["params.key"])],
                         ids=["not read", "in dead code", "all", "one"])
def test_weights_without_a_use_are_left_out(saved, fun, unused):
    params = {**W, "head": HEAD, "key": aot.random.split(aot.random.key(0), 2)}
    loaded = saved(Program(fun, [F23], weights={"params": params}, name="f"))
    assert loaded.manifest["functions"]["f"]["unused_weights"] == unused
    assert sorted([*loaded.weights(), *unused]) == sorted(f"params.{k}" for k in params)
    assert np.array_equal(loaded["f"](X), fun(params, X))
    loaded.swap_weights({f"params.{k}": params[k] * 2 for k in W} | {"params.head": HEAD})      # all that were given fit
    assert np.array_equal(loaded["f"](X), fun({**params, **{k: W[k] * 2 for k in W}}, X))
    with pytest.raises(aot_runtime.ArtifactError, match="there is no weight 'params.nope'"):
        loaded.swap_weights({"params.nope": HEAD})


def test_one_function_uses_what_another_does_not(saved):
    params = {**W, "head": HEAD}
    loaded = saved(Program(affine, [F23], weights={"params": params}),
                   Program(lambda params, x: x @ params["head"], [F23], weights={"params": params}, name="head"))
    assert sorted(loaded.weights()) == ["params.b", "params.head", "params.w"]
    loaded.swap_weights({"params.head": HEAD * 2})
    assert np.array_equal(loaded["affine"](X), X + 1) and np.array_equal(loaded["head"](X), X @ HEAD * 2)


def test_inputs_without_a_use_stay_in_the_signature(saved):
    loaded = saved(Program(lambda params, x, y: x @ params["w"], [F23, F23], weights={"params": W}, name="f"))
    assert loaded.signature("f") == "f(x, y) -> f32[2,3]" and list(loaded.weights()) == ["params.w"]
    assert np.array_equal(loaded["f"](X, X), X)
    with pytest.raises(aot_runtime.InputError, match="y: "):
        loaded["f"](X, X[0])


def test_random_keys_as_weights(saved):
    w = {"k": aot.random.key(1), "ks": aot.random.split(aot.random.key(2), 3)}
    draw = lambda p, n: aot.random.randint(p["k"], (3,), 0, n) + aot.random.randint(p["ks"][1], (3,), 0, n)
    loaded = saved(Program(draw, [spec.parse("i32[]")], weights={"p": w}, name="draw"))
    assert loaded.weights()["p.ks"].tolist() == aot.random.key_data(w["ks"]).tolist()
    assert loaded["draw"](np.int32(99)).tolist() == draw(w, 99).tolist()


def test_typed_keys_are_passed_as_their_words(saved):
    loaded = saved(Program(lambda p: aot.random.bits(p["k"]), [{"k": spec.parse("key[]")}], name="bits"))
    key = aot.random.key(3)
    with pytest.raises(aot_runtime.InputError, match=r"^p\['k'\]: expected key<fry>\[\].*\nhint: pass the words of the key"):
        loaded["bits"]({"k": key})
    assert loaded["bits"]({"k": aot.random.key_data(key)}) == aot.random.bits(key)


def test_functions_of_one_name_are_refused(tmp_path):
    with pytest.raises(AotError, match="names must be different"):
        build.save(tmp_path / "m.aot", [Program(affine, [W, F23]), Program(affine, [W, X])])


def test_large_closed_over_arrays_become_weights(saved):
    table = np.arange(3000, dtype=np.float32)
    loaded = saved(Program(lambda i: jnp.asarray(table)[i], [spec.parse("i32[2]")], name="pick"))
    assert loaded["pick"](np.array([5, 7], np.int32)).tolist() == [5, 7]
    assert [w.shape for w in loaded.weights().values()] == [(3000,)]
    assert loaded.signature("pick") == "pick(i) -> f32[2]"


def test_a_training_step_with_donation_and_named_tuples(saved):
    def step(state, x):
        loss, grads = aot.value_and_grad(total)(state.params, x)
        return State(state.step + 1, aot.tree.map(lambda p, g: p - 0.1 * g, state.params, grads)), loss

    loaded = saved(Program(step, [State(np.int32(0), W), F23], donate=["state"]))
    donated = {e["name"]: e.get("donated", False) for e in loaded.manifest["functions"]["step"]["inputs"]}
    assert donated == {"state.step": True, "state.params['b']": True, "state.params['w']": True, "x": False}
    state = State(np.int32(0), W)
    for i in range(3):
        state, loss = loaded["step"](state, X)
        assert state.step == i + 1
    assert np.allclose(state.params["b"], 1 - 3 * 0.2) and np.array_equal(W["b"], np.ones(3))
    with pytest.raises(aot_runtime.InputError, match=r"state.params\['b'\]: expected f32\[3\], got f64\[3\]"):
        loaded["step"](State(np.int32(0), {**W, "b": np.ones(3)}), X)


def test_the_result_is_the_compilers(saved):
    f = lambda p, x: {"y": jnp.tanh(affine(p, x)), "n": (x.shape[0], None)}
    got, want = saved(Program(f, [W, X], name="f"))["f"](W, X), f(W, X)
    assert got.keys() == want.keys() and got["n"] == (2, None)
    np.testing.assert_allclose(got["y"], want["y"], rtol=1e-6)


def test_given_values_are_the_recorded_inputs(saved):
    loaded = saved(Program(affine, [W, X]))
    inputs, outputs = loaded.golden("affine")
    assert np.array_equal(inputs[2], X) and np.array_equal(outputs[0], X + 1)


def test_jitted_and_static_functions(saved):
    @aot.jit
    def f(x, n): return x ** n
    loaded = saved(Program(f, [F23], static={"n": 2}))
    assert np.array_equal(loaded["f"](X), X ** 2)
    assert loaded.manifest["functions"]["f"]["static"] == {"n": "2"}


@pytest.mark.parametrize("f, args, check", [
    (lambda x: jnp.linalg.cholesky(x), [np.eye(3, dtype=np.float32) * 4], lambda y: y[0, 0] == 2),
    (lambda x: aot.lax.top_k(x, 2), [np.array([1, 3, 2], np.float32)], lambda y: y[0].tolist() == [3, 2]),
    (lambda x: aot.lax.erf_inv(x), [np.zeros(2, np.float32)], lambda y: y.tolist() == [0, 0]),
    (lambda x: jnp.fft.fft(x), [np.ones(4, np.complex64)], lambda y: y[0] == 4),
    (lambda x: aot.lax.fori_loop(0, 3, lambda i, c: c * 2, x), [np.float32(1)], lambda y: y == 8),
    (lambda x: aot.lax.cond(x > 0, lambda v: v, lambda v: -v, x), [np.float32(-3)], lambda y: y == 3),
    (lambda x: jnp.sort(x), [np.array([2, 1], np.int32)], lambda y: y.tolist() == [1, 2]),
], ids=["cholesky", "top_k", "erf_inv", "fft", "loop", "cond", "sort"])
def test_operations_of_every_kind_survive(saved, tmp_path, f, args, check):
    assert check(saved(Program(f, args, name="f"))["f"](*args))
    build.save(tmp_path / "portable.aot", [Program(f, args, name="f")], targets=["stablehlo"])
    assert check(aot_runtime.load(tmp_path / "portable.aot")["f"](*args))


x3 = np.arange(3, dtype=np.float32)
EDGES = [
    # function, arguments, signature, result
    (lambda: jnp.ones(2), [], "f() -> f32[2]", [1, 1]),
    (lambda x: None, [x3], "f(x) -> None", None),
    (lambda x: (1, 2.5, True), [x3], "f(x) -> i32[], f32[], bool[]", (1, 2.5, True)),
    (lambda x, y: x, [x3, x3 + 1], "f(x, y) -> f32[3]", [0, 1, 2]),
    (lambda x: x, [np.zeros((0, 3), np.float32)], "f(x) -> f32[0,3]", []),
    (lambda d: {1: d[2], 2: d[1]}, [{1: x3, 2: x3 + 1}], "f(d) -> f32[3], f32[3]", {1: [1, 2, 3], 2: [0, 1, 2]}),
    (lambda t: t[0] > 1, [(x3, None)], "f(t) -> bool[3]", [False, False, True]),
    (lambda x: x.astype("bfloat16"), [x3], "f(x) -> bf16[3]", [0, 1, 2]),
    (lambda x: x.astype("int4"), [x3], "f(x) -> i4[3]", [0, 1, 2]),
    (lambda s: aot.random.split(aot.random.key(s)).shape[0], [np.uint32(3)], "f(s) -> i32[]", 2),
]


@pytest.mark.parametrize("f, args, signature, expected", EDGES, ids=[e[2] for e in EDGES])
def test_edges(saved, f, args, signature, expected):
    g = saved(Program(f, args, name="f"))["f"]
    assert g.signature == signature
    got = g(*(np.asarray(a) if isinstance(a, np.generic) else a for a in args))
    assert aot.tree.map(lambda x: x.tolist(), got) == expected


def test_equal_results_do_not_share_memory(saved):
    a, b = saved(Program(lambda x: (x, x), [x3], name="f"))["f"](x3)
    a += 1
    assert b.tolist() == [0, 1, 2]


def test_results_that_are_keys_come_as_their_data(saved):
    g = saved(Program(lambda k: aot.random.split(k), [spec.parse("key[]")], name="f"))["f"]
    assert g.signature == "f(k) -> key<fry>[2]"
    want = aot.random.key_data(aot.random.split(aot.random.key(3)))
    assert np.array_equal(g(aot_runtime.key(3)), want)


def test_callbacks_are_refused(tmp_path):
    def f(x):
        aot.debug.print("{}", x)
        return x
    with pytest.raises(AotError, match="calls back into Python"):
        build.save(tmp_path / "m.aot", [Program(f, [X])])


def test_unknown_targets(tmp_path):
    with pytest.raises(AotError, match="unknown target 'abacus'\nhint: targets are cpu"):
        build.save(tmp_path / "m.aot", [Program(affine, [W, X])], targets=["abacus"])


def test_stages_are_reported():
    from contextlib import contextmanager
    seen = []

    @contextmanager
    def stage(what):
        seen.append(what)
        yield
    build.describe(Program(affine, [W, X]), stage=stage)
    assert [s.split()[0] for s in seen] == ["tracing", "writing", "compiling", "recording"]


def test_slow_stages_are_shown(monkeypatch, capsys):
    import time

    from aot.cli import _output
    monkeypatch.setattr(_output, "SLOW", 0.4)
    with _output.stage("doing something long"):
        time.sleep(1.2)
    with _output.stage("doing something short"):
        pass
    assert capsys.readouterr().err == "doing something long ...\n"


@pytest.mark.parametrize("got, want, ok", [
    ([1.0, 2.0], [1.0, 2.0], True), ([1.0, np.nan], [1.0, np.nan], True), ([1.0, np.nan], [1.0, 2.0], False),
    ([np.inf], [np.inf], True), ([np.inf], [-np.inf], False), ([1.0, 1e-9], [1.0, 0.0], True),
    ([1.0, 1.01], [1.0, 1.0], False), ([], [], True),
])
def test_compare(got, want, ok):
    assert replay.compare(np.array(got, np.float32), np.array(want, np.float32))["ok"] is ok


@pytest.mark.parametrize("dtype, tolerance", [("int32", 0), ("bool", 0), ("int4", 0), ("float64", 1e-9),
                                              ("float32", 1e-4), ("complex64", 1e-4), ("float16", 1e-2),
                                              ("bfloat16", 5e-2), ("float8_e5m2", 0.2)])
def test_tolerances(dtype, tolerance):
    assert replay.tolerance(aot_runtime.dtype_of(dtype)) == tolerance


@pytest.mark.parametrize("target, op", [("cpu", "sine"), ("cpu:x86-64-v3", "sine"), ("cuda:h100", "cosine"), ("tpu:v5e", "exponential")])
def test_each_target_gets_the_branches_of_its_platform(target, op):
    from aot import lax, targets
    def f(x): return lax.platform_dependent(x, cpu=jnp.sin, cuda=jnp.cos, default=jnp.exp)
    text = build.Program(f, [spec.parse("f32[3]")]).text(targets.parse(target))
    assert [o for o in ("sine", "cosine", "exponential") if f"stablehlo.{o}" in text] == [op]


@pytest.mark.parametrize("name", ["nosuch", "params"])
def test_what_cannot_be_donated_is_named(name):
    with pytest.raises(AotError, match=f"donate: there is no argument '{name}'\nhint: there are: x; stored weights cannot"):
        Program(lambda params, x: x @ params["w"], [F23], weights={"params": W}, donate=[name])
