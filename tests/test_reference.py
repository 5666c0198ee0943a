"""Programs in double precision, which tell whether a file that differs from XLA is less right than XLA is."""
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import aot
import aot.numpy as jnp
from aot import lax
from aot.exporters import onnx, reference, stablehlo, verify
from aot.exporters.source import Source
from aot.exporters.xla_run import function

pytest.importorskip("onnxruntime")
F = np.float32
X = np.linspace(.1, 2, 6, dtype=F)
TABLE = np.random.default_rng(0).normal(size=200).astype(F)


def text(f, *args) -> str:
    return aot.jit(f).lower(*args).as_text()


PROGRAMS = {
    "arithmetic": lambda x: jnp.sin(x * 0.1) / 3 + jnp.exp(-x),
    "constants": lambda x: x * np.array([.1, 1 / 3, 1e-30, 1e30, -0., 7], F) + 1e-7,
    "infinite constants": lambda x: jnp.where(x > 1, jnp.inf, jnp.where(x > .5, jnp.nan, -jnp.inf)),
    "many constants": lambda x: x.sum() * TABLE,
    "complex": lambda x: (x * (1 + 2j) + np.array([1j, 2, 3, 4, 5, .1j], np.complex64)) ** 2,
    "bits": lambda x: x + aot.random.normal(aot.random.key(3), (6,)) + lax.bitcast_convert_type(
        lax.bitcast_convert_type(x, jnp.int32) & ~1, jnp.float32),
    "half": lambda x: (x.astype(jnp.float16) * 3 + x.astype(jnp.bfloat16)).astype(jnp.float32),
    "loop": lambda x: lax.fori_loop(0, 5, lambda i, v: jnp.cos(v) + i, x),
    "cholesky": lambda x: jnp.linalg.cholesky(jnp.eye(6) * x + 2),
    "fft, sort and integers": lambda x: (jnp.fft.fft(x), jnp.sort(-x), jnp.argmax(x), lax.top_k(x, 2)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_widened_program(name):
    f = PROGRAMS[name]
    program = text(f, X)
    got = function(program)([X])
    wide = function(reference.widened(program))(reference.widened_arrays([X]))
    for narrow, exact in zip(got, wide):
        assert exact.dtype in (np.float64, np.complex128) or exact.dtype == narrow.dtype
        assert np.allclose(narrow, exact, rtol=2e-2 if name == "half" else 1e-5, atol=1e-6, equal_nan=True)


def test_constants_are_the_narrow_ones():
    wide = function(reference.widened(text(lambda x: x * 0.1, X)))([X.astype(float)])[0]
    assert np.array_equal(wide, X.astype(float) * float(F(.1)))


def near(got, want, exact, dtype=F): return reference.as_near(np.array(got, dtype), np.array(want, dtype), np.array(exact, float))


NEAR = [
    # got, what XLA has, exact, verdict
    ([1.5], [1.4], [1.0], True), ([1.01], [1.4], [1.0], True), ([1.0], [1.4], [1.0], True), ([9.0], [1.4], [1.0], False),
    ([1.1], [1.0], [1.0], False), ([np.nan], [1.4], [1.0], False), ([np.inf], [1.4], [1.0], False),
    ([np.nan, 1.5], [np.nan, 1.4], [1.0, 1.0], True), ([np.inf, 1.5], [-np.inf, 1.4], [1.0, 1.0], False),
    ([np.inf], [np.inf], [np.inf], False), ([1.0, 5.0], [1.4, 1.0], [1.0, 1.0], False),
]


@pytest.mark.parametrize("got, want, exact, verdict", NEAR)
def test_as_near(got, want, exact, verdict):
    assert near(got, want, exact) == verdict


def chaos(x):
    for _ in range(40):
        x = jnp.sin(40 * x)
    return x


def report(tmp_path, exported, source=None):
    """Of the ONNX file of one program, compared with another."""
    path, recorded = str(tmp_path / "m.onnx"), [np.linspace(.1, .9, 6, dtype=F)]
    onnx.export(text(exported, X)).save(path)
    return verify.verify(Source("m", text(source or exported, X), golden=(recorded, ())), path, edges=False, random=0)


def test_what_depends_on_the_last_digit_is_right(tmp_path):
    found = report(tmp_path, chaos)
    case, = found["cases"]
    if case["outputs"][0]["max_abs_error"] < 1e-3:
        pytest.fail("the kernels round alike: this program shows nothing")
    assert found["ok"] and case["outcome"] == "right" and "double precision" in case["why"]


def test_a_file_of_another_program_differs(tmp_path):
    for other in (lambda x: jnp.sin(x) + 1e-3, lambda x: jnp.cos(x), lambda x: jnp.sin(x).at[3].set(0)):
        found = report(tmp_path, other, source=jnp.sin)
        assert not found["ok"] and found["cases"][0]["outcome"] == "differs"


def test_digits_that_a_narrow_float_has_cut_off(tmp_path):
    half = lambda x: ((x.astype(ml_dtypes.bfloat16) * 3 + 1) * x.astype(ml_dtypes.bfloat16)).astype(F)
    assert report(tmp_path, half)["ok"]
    assert not report(tmp_path, lambda x: half(x) * 1.2, source=half)["ok"]


NAN, WINDOW = np.nan, (1, 2)
WINDOWS = {"maxima": (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, WINDOW, WINDOW, "VALID"), True),
           "minima": (lambda x: lax.reduce_window(x, jnp.inf, lax.min, WINDOW, WINDOW, "VALID"), True),
           "sums": (lambda x: lax.reduce_window(x, 0., lax.add, WINDOW, WINDOW, "VALID"), False),
           "none": (lambda x: x.max(1), False),
           "in a loop": (lambda x: lax.fori_loop(0, 2, lambda i, v: lax.reduce_window(v, -jnp.inf, lax.max, WINDOW, (1, 1), "SAME"), x),
                         True)}


@pytest.mark.parametrize("name", WINDOWS)
def test_programs_in_which_xla_loses_nan(name):
    f, loses = WINDOWS[name]
    program = stablehlo.read(text(f, np.zeros((2, 4), F)))
    assert any(map(verify.loses_nan, program.body.walk())) == loses


@pytest.mark.parametrize("case, want, got, losing, outcome", [
    ("not a number", [1, 2], [NAN, 2], True, "right"), ("not a number", [1, 2], [NAN, 2], False, "differs"),
    ("not a number", [1, 2], [NAN, 3], True, "differs"), ("not a number", [NAN, 2], [1, 2], True, "differs"),
    ("infinite", [1, 2], [NAN, 2], True, "differs"), ("random 0", [1, 2], [NAN, 2], True, "differs"),
    ("not a number", [NAN, 2], [NAN, 2], False, "right")])
def test_files_that_keep_nan(case, want, got, losing, outcome):
    case = verify.Case(case, [], [np.array(want, F)], [np.array(got, F)])
    assert verify.judged(case, ["result"], lambda dtype: 1e-5, losing)["outcome"] == outcome
