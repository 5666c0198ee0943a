"""The TFLite exporter: every operation on edge values in the TFLite runtime against XLA, own functions, files, refusals.

Models run in worker processes, because the runtime may end the process.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import aot
from aot import build, lax, spec, tree_util
from aot import numpy as jnp
from aot.errors import AotError
from aot.exporters import formats, source, tflite
from aot.exporters.report import Refused
from aot.trace.aval import MLIR_NAMES
from tests import exported
from tests.conformance.pool import Worker

pytest.importorskip("ai_edge_litert", reason="needs the extra tflite")

INTS = [f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]


# ---- running ----------------------------------------------------------------------------------------------------------

def job(item):
    """(results of the runtime, results of XLA) of a program, or the exception as text.  In a worker."""
    from aot.exporters import tflite
    from aot.exporters.tflite.run import run
    from tests.conformance.reference import run_xla
    text, inputs, options = item
    try:
        return run(tflite.export(text, **options), inputs), run_xla(text, inputs)
    except Exception as e:
        return f"{type(e).__name__}: {e}"


WORKERS: list[Worker] = []


def compared(text, inputs, **options):
    """(results of the runtime, results of XLA), from a worker that lives as long as it can."""
    worker = WORKERS.pop() if WORKERS else Worker(job)
    result, died = worker.ask((text, inputs, options))
    assert not died, died
    WORKERS.append(worker)
    assert not isinstance(result, str), result
    return result


def errors(got, want, tolerance):
    """Where numbers differ by more than tolerance * max(|want|, 1e-3), or in being NaN or infinite."""
    if want.dtype.kind in "biu":
        return got != want
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    a, b = (np.ascontiguousarray(x).astype(wide).reshape(-1).view(np.float64) for x in (got, want))
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        close = np.abs(a - b) <= tolerance * np.maximum(np.abs(b), 1e-3)
    return ~(same | close & np.isfinite(b))


def program_of(fun, *args):
    """StableHLO text of a function."""
    def types(tree): return tree_util.tree_map(lambda x: spec.Array(np.shape(x), np.asarray(x).dtype.name), tree)
    return source.of_program(build.Program(fun, [types(a) for a in args]))


# ---- elementwise operations on edge values ----------------------------------------------------------------------------

def edges(dtype):
    d = np.dtype(dtype)
    if d.kind == "b":
        return np.array([False, True])
    if d.kind in "iu":
        info = np.iinfo(d)
        middle = [-7, -2, -1] if d.kind == "i" else [info.max // 2, info.max // 2 + 1]
        return np.array([info.min, info.min + 1, *middle, 0, 1, 2, 3, 7, 100, info.max - 1, info.max], d)
    if d.kind == "c":
        parts = [0.0, 1.0, -1.0, 0.5, -2.3, 3.7]
        return np.array([complex(a, b) for a in parts for b in parts], d)
    largest = float(ml_dtypes.finfo(d).max)
    return np.array([0.0, -0.0, 1, -1, .5, -.5, 1.5, 2.5, -2.5, 3, -7, 1e-4, -1e-4, .3, .7, 10.3, -3.7, 88, -80, 1000, 6e4,
                     largest, -largest, np.inf, -np.inf, np.nan], np.float64).astype(d)


COMPARISONS = [f"compare {c}" for c in ("EQ", "NE", "LT", "LE", "GT", "GE")]
FLOAT_UNARY = """abs cbrt ceil cosine exponential exponential_minus_one floor is_finite log log_plus_one logistic negate
    round_nearest_afz round_nearest_even rsqrt sign sine sqrt tan tanh""".split()
INT_BINARY = """add subtract multiply divide remainder maximum minimum and or xor shift_left shift_right_logical
    shift_right_arithmetic""".split()
#: kind of type -> (operations of one operand, of two)
OPERATIONS = {
    "b": ("not".split(), "and or xor add multiply maximum minimum".split() + COMPARISONS),
    "i": ("abs negate not popcnt count_leading_zeros sign".split(), INT_BINARY + COMPARISONS),
    "u": ("negate not popcnt count_leading_zeros".split(), INT_BINARY + COMPARISONS),
    "f": (FLOAT_UNARY, "add subtract multiply divide remainder maximum minimum power atan2".split() + COMPARISONS),
    "c": ("""abs cosine exponential exponential_minus_one log log_plus_one logistic negate real imag sign sine sqrt tan
          tanh""".split(), "add subtract multiply divide power".split() + COMPARISONS[:2]),
}
#: relative error; a result of 16 bits is rounded once more than in XLA
TOLERANCE = {"float16": 4e-3, "bfloat16": 2e-2, "float32": 3e-6, "float64": 2e-13, "complex64": 5e-4, "complex128": 1e-11}
#: angles of 2^50 and more give NaN: see docs/tflite.md
LARGE_ANGLES = ("sine", "cosine", "tan")


def kind_of(dtype): return "f" if dtype in FLOATS else np.dtype(dtype).kind


def result_type(operation, dtype):
    if operation.startswith("compare") or operation == "is_finite":
        return "i1"
    if dtype in COMPLEX and operation in ("abs", "real", "imag"):
        return {"complex64": "f32", "complex128": "f64"}[dtype]
    return MLIR_NAMES[dtype]


def elementwise_program(dtype, unary, binary, n):
    """All operations as results of one program of %a (n values), and %x and %y (all pairs)."""
    lines, results, types = [], [], []
    for operation, operands, size in [*((u, "%a", n) for u in unary), *((b, "%x, %y", n * n) for b in binary)]:
        t, r = (f"tensor<{size}x{e}>" for e in (MLIR_NAMES[dtype], result_type(operation, dtype)))
        given = ", ".join([t] * operands.count("%"))
        name = f"%r{len(results)}"
        head = f"stablehlo.{operation.replace(' ', ' ')}, {operands}" if "compare" in operation else \
            f'"stablehlo.{operation}"({operands})'
        lines.append(f"{name} = {head} : ({given}) -> {r}")
        results.append(name)
        types.append(r)
    a, p = (f"tensor<{size}x{MLIR_NAMES[dtype]}>" for size in (n, n * n))
    body = "\n  ".join(lines)
    pairs = f", %x: {p}, %y: {p}" if binary else ""
    return (f"module {{ func.func public @main(%a: {a}{pairs}) -> ({', '.join(types)}) {{\n  {body}\n"
            f"  return {', '.join(results)} : {', '.join(types)}\n}} }}")


def test_functions_at_every_magnitude():
    sizes = np.concatenate([f * 2.0 ** np.arange(-125, 128, 2) for f in (1, 1.37)]).astype(np.float32)
    values = np.concatenate([sizes, -sizes])
    got, want = compared(elementwise_program("float32", FLOAT_UNARY, [], len(values)), [values])
    for operation, a, b in zip(FLOAT_UNARY, got, want, strict=True):
        right = ~errors(a, b, 1e-5) | ((np.abs(values) >= 2.0 ** 50) & (operation in LARGE_ANGLES))
        assert right.all(), f"{operation} of {values[~right][:5]}: {a[~right][:5]} instead of {b[~right][:5]}"


@pytest.mark.parametrize("dtype", ["bool", *INTS, *FLOATS, *COMPLEX])
def test_elementwise_operations_on_edges(dtype):
    unary, binary = OPERATIONS[kind_of(dtype)]
    values = edges(dtype)
    x, y = np.repeat(values, len(values)), np.tile(values, len(values))
    got, want = compared(elementwise_program(dtype, unary, binary, len(values)), [values, x, y])
    for operation, a, b in zip([*unary, *binary], got, want, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, operation
        wrong = errors(a, b, TOLERANCE.get(dtype, 0))
        if operation in LARGE_ANGLES and dtype in FLOATS:
            large = np.abs(values.astype(np.float64)) >= 2.0 ** 50
            assert np.isnan(a[large].astype(np.float64)).all()
            wrong &= ~large
        assert not wrong.any(), f"{operation}: {np.flatnonzero(wrong)[:5]}: {a[:8]} instead of {b[:8]}"


@pytest.mark.parametrize("dtype", ["bool", *INTS, *FLOATS])
def test_conversions_between_all_types(dtype):
    values, targets = edges(dtype), [t for t in ["bool", *INTS, *FLOATS] if t != dtype]
    t = f"tensor<{len(values)}x{MLIR_NAMES[dtype]}>"
    types = [f"tensor<{len(values)}x{MLIR_NAMES[to]}>" for to in targets]
    lines = "\n".join(f"%r{i} = stablehlo.convert %a : ({t}) -> {r}" for i, r in enumerate(types))
    names = ", ".join(f"%r{i}" for i in range(len(types)))
    got, want = compared(f"module {{ func.func public @main(%a: {t}) -> ({', '.join(types)}) {{\n{lines}\n"
                         f"return {names} : {', '.join(types)} }} }}", [values])
    for to, a, b in zip(targets, got, want, strict=True):
        assert a.dtype == b.dtype
        wrong = errors(a, b, TOLERANCE.get(to, 0))
        assert not wrong.any(), f"to {to}: {values[wrong]}: {a[wrong]} instead of {b[wrong]}"


@pytest.mark.parametrize("dtype", INTS)
def test_integer_powers_are_exact_modulo_the_width(dtype):
    """XLA:CPU itself only looks at the six lowest bits of an exponent."""
    base, exponent = (np.array(v).astype(dtype) for v in zip(*[(b, e) for b in (0, 1, 2, 3, 7, 100) for e in (0, 1, 2, 5, 63)]))
    t = f"tensor<{len(base)}x{MLIR_NAMES[dtype]}>"
    text = (f"module {{ func.func public @main(%a: {t}, %b: {t}) -> {t} {{ %r = stablehlo.power %a, %b : {t}\n"
            f"return %r : {t} }} }}")
    (got,), (want,) = compared(text, [base, exponent])
    modulus = 1 << 8 * np.dtype(dtype).itemsize
    exact = np.array([pow(int(b), int(e), modulus) for b, e in zip(base, exponent)], np.uint64).astype(dtype)
    np.testing.assert_array_equal(got, exact)
    np.testing.assert_array_equal(got, want)


# ---- structural operations --------------------------------------------------------------------------------------------

rng = np.random.default_rng(7)


def normal(*shape): return rng.standard_normal(shape).astype(np.float32)


def whole(*shape, dtype=np.int32): return rng.integers(-9, 9, shape).astype(dtype)


NAN = np.array([[1, np.nan, 3], [-np.inf, 5, np.inf], [np.nan, np.nan, -2]], np.float32)
POSITIVE = (lambda a: a @ a.T + 6 * np.eye(6, dtype=np.float32))(normal(6, 6))
COMPLEX_MATRIX = (normal(4, 4) + 1j * normal(4, 4) + 5 * np.eye(4)).astype(np.complex64)


def conv(x, w, strides=(1, 1), padding="SAME", **kwargs):
    return lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC"), **kwargs)


def nested_loops(n, z):
    """A loop in a branch in a loop, all with captured values, one of them complex."""
    def inner(i, w): return w * 0.5 + z * i
    def outer(i, w): return lax.cond(i % 2 == 0, lambda: lax.fori_loop(0, i + 1, inner, w), lambda: w - n)
    return lax.fori_loop(0, n, outer, z * 0)


def windows(x): return lax.reduce_window(x, -jnp.inf, lax.max, (2, 3), (1, 2), ((1, 0), (2, 1)), (2, 1), (1, 2))


STRUCTURAL = [
    # name, function, arguments
    ("max_keeps_nan", lambda x: (x.max(0), x.min(1), jnp.argmax(x, 1), lax.cummax(x)), (NAN,)),
    ("sort_with_nan", lambda x: (jnp.sort(x, 0), jnp.argsort(x, 1), jnp.sort(-x.ravel())), (NAN,)),
    ("sort_is_stable", lambda k, v: lax.sort((k, v), num_keys=1), (whole(33) % 3, np.arange(33, dtype=np.int32))),
    ("sort_types", lambda *xs: [jnp.sort(x) for x in xs],
     tuple(whole(9, dtype=d) for d in (np.int8, np.uint16, np.uint32, np.uint64, np.float16, np.float64)) + (whole(9) > 0,)),
    ("top_k", lambda x: lax.top_k(x, 3), (normal(4, 9),)),
    ("high_rank", lambda x: (x.sum((1, 3)), x.transpose(7, 0, 1, 2, 6, 5, 4, 3), x[:, ::2], jnp.flip(x, (0, 7)),
                             jnp.concatenate([x, x], 5), jnp.tanh(x) + x, x.max(), jnp.pad(x, 1)), (normal(2, 3, 1, 2, 2, 1, 3, 2),)),
    ("empty_arrays", lambda x: (x.sum(0), x.max(1, initial=-1), jnp.concatenate([x, x + 1], 1), x.T @ x, x * 2, x[:, :0],
                                jnp.pad(x, 1)), (np.zeros((0, 3), np.float32),)),
    ("passed_through", lambda x, y: (x, x, jnp.zeros(3), y + 0, x.T), (normal(2, 3), np.float32(3))),
    ("clamped_slices", lambda x, i: (lax.dynamic_slice(x, (i, -i), (2, 3)), lax.dynamic_update_slice(x, x[:2, :2], (i, i))),
     (normal(5, 6), np.int32(9))),
    ("indices_of_all_types", lambda x, i, j: (x[i], x[j], lax.dynamic_slice(x, (i[0],), (3,))),
     (normal(300), np.array([0, 250, 255], np.uint8), np.array([-5, 7, 1 << 40], np.int64))),
    ("take_axis", lambda x, i: (jnp.take(x, i, 1, mode="clip"), jnp.take_along_axis(x, i[None, :, :1], 1)), (normal(3, 4, 5), whole(2, 3) % 4)),
    ("scatter_bodies", lambda x, i, u: (x.at[i].add(u), x.at[i].mul(u), x.at[i].max(u), x.at[i].min(u), x.at[i].set(u)),
     (normal(6, 2), np.array([0, 5, 5, 9], np.int32), normal(4, 2))),
    ("scatter_keeps_nan", lambda x, u: (x.at[jnp.array([0, 0, 2])].max(u), x.at[jnp.array([1, 0, 1])].min(u)), (NAN, NAN)),
    ("scatter_types", lambda *xs: [x.at[jnp.array([1, 3, 1])].add(x[:3]) for x in xs],
     tuple(whole(6, dtype=d) for d in (np.int8, np.uint64, np.float16, np.float64)) + (whole(6).astype(np.complex64),)),
    ("scatter_any_body", lambda x, u: lax.scatter_apply(
        x, jnp.array([[1], [4], [8]]), lambda v: v * v + 1,
        lax.ScatterDimensionNumbers((1,), (0,), (0,)), update_shape=(3, 2)) + u, (normal(6, 2), np.float32(1))),
    ("branches", lambda i, x: lax.switch(i, [lambda v: v + 1, lambda v: v * x[0], jnp.sin, lambda v: v - x.sum()], x),
     (np.int32(9), normal(3))),
    ("nested_loops", nested_loops, (np.int32(5), np.complex64(1 + 2j))),
    ("loop_that_does_not_run", lambda x: lax.while_loop(lambda s: s[0] > 1e9, lambda s: s * 2, x), (normal(3),)),
    ("windows", windows, (normal(5, 7),)),
    ("window_sums", lambda x, y: (lax.reduce_window(x, 0., lax.add, (3, 2), (2, 1), "SAME"), lax.cumsum(y, 0, reverse=True),
                                  lax.cumlogsumexp(x, 1), lax.cumprod(x, 0)), (normal(5, 7), whole(9))),
    ("pool_gradient", aot.grad(lambda x: (lax.reduce_window(x, -jnp.inf, lax.max, (3, 2), (2, 2), "SAME") ** 2).sum()), (normal(7, 6),)),
    ("variadic_reduce", lambda x: (jnp.argmin(x, 0), jnp.argmax(x)), (np.round(normal(7, 5)),)),
    ("reduce_types", lambda *xs: [(x.sum(0), x.prod(1), x.max(), x.min(0)) for x in xs],
     tuple(whole(3, 4, dtype=d) for d in (np.int8, np.uint16, np.uint32, np.int64, np.float16, np.float64))),
    ("bitwise_reduce", lambda x: [lax.reduce(x, x.dtype.type(i), f, (1,)) for f, i in
                                  ((lax.bitwise_or, 0), (lax.bitwise_and, -1), (lax.bitwise_xor, 0))], (whole(3, 5),)),
    ("products_of_types", lambda *xs: [x @ x.T for x in xs],
     tuple(whole(3, 4, dtype=d) for d in (np.int8, np.uint8, np.uint32, np.int64, np.float16, np.float64)) + (COMPLEX_MATRIX,)),
    ("contractions", lambda x, y: (jnp.einsum("abc,dcb->ad", x, y), jnp.einsum("abc,abd->acd", x, x), jnp.vdot(x, x)),
     (normal(2, 3, 4), normal(5, 4, 3))),
    ("convolutions", lambda x, w: (conv(x, w), conv(x, w, (2, 1), "VALID"), conv(x, w, rhs_dilation=(2, 2)),
                                   conv(x, w, (1, 1), ((2, -1), (-1, 3)), lhs_dilation=(2, 3))), (normal(2, 8, 7, 3), normal(3, 2, 3, 4))),
    ("grouped_convolutions", lambda x, w, b: (conv(x, w, feature_group_count=2), conv(x, b, batch_group_count=2)),
     (normal(2, 6, 5, 4), normal(3, 3, 2, 6), normal(2, 2, 4, 8))),
    ("convolution_gradients", aot.grad(lambda x, w: (conv(x, w, (2, 2)) ** 2).sum(), (0, 1)), (normal(2, 7, 7, 2), normal(3, 3, 2, 3))),
    ("convolutions_of_other_ranks", lambda x, v, i: (
        lax.conv(x, x, (1,), "SAME"), lax.conv(v, v, (1, 1, 1), "SAME"), lax.conv(i, i, (1, 1), "VALID")),
     (normal(3, 3, 5), normal(2, 2, 3, 4, 3), whole(2, 2, 4, 4, dtype=np.int8))),
    ("transforms", lambda x, z: (jnp.fft.fft(x), jnp.fft.ifft(z), jnp.fft.rfft(x[:, :15]), jnp.fft.irfft(z, 13), jnp.fft.fft2(z),
                                 jnp.fft.irfft2(z, (3, 8)), jnp.fft.fft(x[0, :97])),
     (normal(2, 150), (normal(3, 9) + 1j * normal(3, 9)).astype(np.complex64))),
    ("bits", lambda x, h, z: (lax.bitcast_convert_type(x, jnp.uint8), lax.bitcast_convert_type(h, jnp.float32), x.view(jnp.int32),
                              lax.reduce_precision(x, 5, 10), lax.reduce_precision(x, 8, 7), z.view(jnp.float32)),
     (normal(3, 4), whole(3, 2, dtype=np.uint16), normal(3).astype(np.complex64))),
    ("views_of_views", lambda x, s: (x << s, x >> s, lax.shift_right_logical(x, s), x * 2, x ^ s),
     (np.array([1, 2, 3, -1, 5 << 33], np.int64), np.array([1, 31, 32, 33, 63], np.int64))),
    ("random_numbers", lambda k: (aot.random.normal(aot.random.wrap_key_data(k), (5,)), aot.random.bits(aot.random.wrap_key_data(k), (5,), "uint8")),
     (np.array([3, 4], np.uint32),)),
    ("interior_padding", lambda x, v: [lax.pad(t, jnp.asarray(2, t.dtype), ((1, -1, 2), (-2, 3, 1))) for t in (x, v)],
     (normal(4, 5), whole(4, 5, dtype=np.uint64))),
    ("half_precision_sums", lambda x, y: (x.sum(0), y.sum(), lax.cumsum(x, 1)), (normal(40, 3).astype(np.float16), normal(300).astype(ml_dtypes.bfloat16))),
]


#: error relative to the largest value of a result
LIMITS = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 2e-6, "complex64": 2e-6, "float64": 1e-14, "complex128": 1e-14}


def results_differ(got, want):
    """What is wrong, or ""."""
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"result {i}: {a.dtype}{a.shape} instead of {b.dtype}{b.shape}"
        exact = b.dtype.kind in "biu"
        wide = np.complex128 if b.dtype.kind == "c" else np.float64
        x, y = (t if exact else np.ascontiguousarray(t).astype(wide).reshape(-1).view(np.float64) for t in (a, b))
        bound = 0 if exact else LIMITS[b.dtype.name] * np.abs(y[np.isfinite(y)]).max(initial=1e-3)
        with np.errstate(all="ignore"):
            right = (x == y) | (np.isnan(x) & np.isnan(y)) | (np.abs(x - y) <= bound) if not exact else x == y
        if not right.all():
            return f"result {i}: {a} instead of {b}"
    return ""


@pytest.mark.parametrize("name,fun,args", STRUCTURAL, ids=[row[0] for row in STRUCTURAL])
def test_structural_operations(name, fun, args):
    with aot.enable_x64(True):
        text = program_of(fun, *args).content
    got, want = compared(text, [np.asarray(x) for x in args])
    assert not results_differ(got, want)


# ---- own functions ----------------------------------------------------------------------------------------------------

#: functions that lower to LAPACK calls which nothing else expresses
REFUSED = {"general_eigenvalues"}


@pytest.mark.parametrize("name,fun,args", exported.FUNCTIONS, ids=[row[0] for row in exported.FUNCTIONS])
def test_own_functions(name, fun, args):
    made = program_of(fun, *args)
    inputs = [np.asarray(x) for x in tree_util.tree_leaves(list(args))]
    if name in REFUSED:
        with pytest.raises(Refused, match=r"custom_call @lapack_\w+ .*\n +at tests.exported.py:\d+"):
            tflite.export(made.program())
        return
    got, want = compared(made.content, inputs)
    bound = 2e-2 if "bfloat16" in name else 1e-3
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert not errors(a, b, bound).any() if b.dtype.kind in "biu" else np.allclose(a, b, rtol=bound, atol=bound, equal_nan=True)


# ---- files ------------------------------------------------------------------------------------------------------------

WEIGHTS = {"w": normal(144, 128), "k": normal(3, 3, 2, 4)}


def network(x):
    return jnp.tanh(conv(x, WEIGHTS["k"])).reshape(2, -1) @ WEIGHTS["w"]


IMAGE = normal(2, 6, 6, 2)


def tables(data):
    from ai_edge_litert import schema_py_generated as s
    return s.ModelT.InitFromPackedBuf(data, 0)


def nodes_of(data):
    """For each subgraph: its table, and (name of the builtin operator, node) of all nodes."""
    from ai_edge_litert import schema_py_generated as s
    codes, model = {v: k for k, v in vars(s.BuiltinOperator).items() if isinstance(v, int)}, tables(data)
    return [(g, [(codes[model.operatorCodes[node.opcodeIndex].builtinCode], node) for node in g.operators or []])
            for g in model.subgraphs]


def load_and_call(path, **inputs):
    """The outputs of a file by name, in a process of its own."""
    text = ("import numpy as np, sys; from aot.exporters.tflite.run import Model; d = np.load(sys.argv[2]);"
            "np.savez(sys.argv[3], **Model(sys.argv[1])({k: d[k] for k in d.files}))")
    given, found = f"{path}.in.npz", f"{path}.out.npz"
    np.savez(given, **inputs)
    subprocess.run([sys.executable, "-c", text, str(path), given, found], check=True, capture_output=True)
    with np.load(found) as file:
        return {k: file[k] for k in file.files}


def test_equal_programs_give_equal_bytes(tmp_path):
    text = program_of(lambda x: (jnp.sort(x), jnp.tanh(x) @ x.T, aot.lax.fori_loop(0, 3, lambda i, y: y * x, x)), normal(4, 4)).content
    (tmp_path / "m.mlir").write_text(text)
    code = ("import sys, hashlib; from pathlib import Path; from aot.exporters import tflite;"
            "print(hashlib.sha256(tflite.export(Path(sys.argv[1])).data).hexdigest())")
    found = {subprocess.run([sys.executable, "-c", code, str(tmp_path / "m.mlir")], check=True, capture_output=True, text=True,
                            env={**os.environ, "PYTHONHASHSEED": seed}).stdout for seed in ("1", "2")}
    assert len(found) == 1


def test_buffers_are_aligned():
    from ai_edge_litert import schema_py_generated as s
    data = tflite.export(program_of(network, IMAGE).program()).data
    model = s.Model.GetRootAsModel(data, 0)
    offsets = []
    for i in range(model.BuffersLength()):
        part = model.Buffers(i)
        if part.DataLength():
            offsets.append(part._tab.Vector(part._tab.Offset(4)))
    assert len(offsets) > 4 and all(o % 16 == 0 for o in offsets)


def test_large_models_keep_buffers_behind_the_tables(tmp_path, monkeypatch):
    """What happens above 2 GB, at a smaller limit."""
    from aot.exporters.tflite import flatbuffer
    plain = tflite.export(program_of(network, IMAGE).program(), input_names=["x"], output_names=["y"])
    monkeypatch.setattr(flatbuffer, "INLINE_LIMIT", 100)
    made = tflite.export(program_of(network, IMAGE).program(), input_names=["x"], output_names=["y"])
    assert all(b.data is None and (b.size == 0 or b.offset % 16 == 0) for b in tables(made.data).buffers)
    assert made.save(tmp_path / "large.tflite") == [str(tmp_path / "large.tflite")]
    plain.save(tmp_path / "plain.tflite")
    x, y = (load_and_call(tmp_path / f"{n}.tflite", x=IMAGE)["y"] for n in ("plain", "large"))
    np.testing.assert_array_equal(x, y)


def test_names_and_metadata():
    def f(params, z): return {"out": params["w"][0] + z.real, "z": z}
    made_source = program_of(f, {"w": [normal(3)]}, np.zeros(3, np.complex64))
    made = tflite.export(made_source.program(), input_names=made_source.inputs, output_names=made_source.outputs,
                         metadata={"b": "2", "a": "1"})
    assert made.inputs == [("params.w.0",), ("z.real", "z.imag")]
    assert [n for pair in made.outputs for n in pair] == ["result.out", "result.z.real", "result.z.imag"]
    assert made.renamed["z"] == ("z.real", "z.imag")
    model = tables(made.data)
    signature = model.signatureDefs[0]
    assert [m.name.decode() for m in signature.inputs] == ["params.w.0", "z.real", "z.imag"]
    assert {m.name.decode(): bytes(model.buffers[m.buffer].data) for m in model.metadata} == {"a": b"1", "b": b"2"}


def test_no_tensor_or_buffer_is_left_over():
    model = tables(tflite.export(program_of(network, IMAGE).program()).data)
    used = {i for op in model.subgraphs[0].operators for i in (*op.inputs, *op.outputs)}
    assert used == set(range(len(model.subgraphs[0].tensors)))
    assert {0, *(t.buffer for t in model.subgraphs[0].tensors)} == set(range(len(model.buffers)))


# ---- runtimes ---------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def subgraphs():
    """(runtime, table of a subgraph, its nodes as (operator, node)) of the models of many functions, for both runtimes."""
    found = []
    for _, fun, args in [*STRUCTURAL[::2], *exported.FUNCTIONS[::6]]:
        with aot.enable_x64(True):
            text = program_of(fun, *args).content
        for runtime in ("current", "2.14"):
            try:
                found += [(runtime, *row) for row in nodes_of(tflite.export(text, runtime=runtime).data)]
            except Refused:
                pass
    assert len([row for row in found if row[0] == "2.14"]) > 20
    return found


def test_only_kernels_of_the_runtime_are_used(subgraphs):
    from ai_edge_litert import schema_py_generated as s

    from aot.exporters.tflite.flatbuffer import TENSOR_TYPES
    from aot.exporters.tflite.kernels import DATA_OPERAND, PROFILES
    names = {getattr(s.TensorType, v): k for k, v in TENSOR_TYPES.items()}
    for runtime, g, nodes in subgraphs:
        for operator, node in nodes:
            dtype = names[g.tensors[node.inputs[DATA_OPERAND.get(operator, 0)]].type]
            assert PROFILES[runtime].has(operator, np.dtype(dtype)), (operator, dtype)


#: what the runtime computes while it prepares, if all operands are constant, in memory that nested subgraphs lose
EARLY = {"RESHAPE", "GATHER", "ADD", "SUB", "MUL", "CONCATENATION"}
VIEWS = {"RESHAPE", "BITCAST"}


def test_no_node_has_only_constants(subgraphs):
    for _, g, nodes in subgraphs:
        made = {*(g.inputs if g.inputs is not None else ()), *(int(i) for _, node in nodes for i in node.outputs)}
        for operator, node in nodes:
            assert operator not in EARLY or made.intersection(int(i) for i in node.inputs), (operator, list(node.inputs))


def test_views_between_others_have_one_reader(subgraphs):
    """The runtime's memory planner forgets the other readers of a view that has a view."""
    for _, g, nodes in subgraphs:
        readers = [int(i) for _, node in nodes for i in node.inputs] + [int(i) for i in g.outputs]
        views = {int(node.outputs[0]): int(node.inputs[0]) for operator, node in nodes if operator in VIEWS}
        assert all(readers.count(owner) == 1 for owner in views.values() if owner in views)


@pytest.mark.parametrize("seed", [7, 82, 91, 189])
def test_random_programs(seed):
    """Nested control flow under transformations; more of them: tests/fuzz.py has the generator."""
    pytest.importorskip("jax")
    from tests import fuzz
    program, transform, args = fuzz.case(seed)
    fun = fuzz.TRANSFORMS[transform](aot, aot.lax, fuzz.build(program, aot, aot.lax))
    made = program_of(lambda *xs: tree_util.tree_leaves(fun(*xs)), *args)
    got, want = compared(made.content, list(args))
    assert all(np.allclose(a, b, rtol=2e-3, atol=5e-4 * max(1, np.abs(b).max()), equal_nan=True) for a, b in zip(got, want, strict=True))


def test_a_runtime_without_a_kernel_is_named():
    text = "module { func.func public @main(%a: tensor<3xf64>) -> tensor<3xf64> { %0 = stablehlo.add %a, %a : tensor<3xf64>\n" \
           "return %0 : tensor<3xf64> } }"
    with pytest.raises(Refused, match=r"tflite-runtime 2.14\) has no kernel ADD for float64"):
        tflite.export(text, runtime="2.14")
    with pytest.raises(AotError, match="unknown profile '3'"):
        tflite.export(text, runtime="3")


def test_refusals_are_reported_all_at_once():
    text = """module { func.func public @main(%a: tensor<3xf32>, %k: tensor<2xui64>) -> (tensor<3xf32>, tensor<3xf32>) {
      %0 = stablehlo.custom_call @mystery(%a) : (tensor<3xf32>) -> tensor<3xf32> loc("model.py":7:1)
      %1 = stablehlo.custom_call @mystery(%0) : (tensor<3xf32>) -> tensor<3xf32> loc("model.py":7:1)
      %s, %r = stablehlo.rng_bit_generator %k, algorithm = DEFAULT : (tensor<2xui64>) -> (tensor<2xui64>, tensor<3xui8>)
      %f = stablehlo.convert %r : (tensor<3xui8>) -> tensor<3xf32>
      return %1, %f : tensor<3xf32>, tensor<3xf32> } }"""
    with pytest.raises(Refused) as caught:
        tflite.export(text)
    rows = json.loads(json.dumps(caught.value.to_json()))
    assert [(r["op"], r["count"], r["where"]) for r in rows] == [
        ("stablehlo.custom_call @mystery", 2, "model.py:7"), ("stablehlo.rng_bit_generator", 1, rows[1]["where"])]
    assert all(r["why"] and r["hint"] for r in rows) and "2 unsupported" not in str(caught.value)
    assert "3 unsupported operations" in str(caught.value) and "x2" in str(caught.value)


def test_types_that_the_format_has_not():
    text = "module { func.func public @main(%a: tensor<3xf8E4M3FN>) -> tensor<3xf8E4M3FN> { return %a : tensor<3xf8E4M3FN> } }"
    with pytest.raises(Refused, match=r"input 0 float8_e4m3fn\[3\]\n +the runtime does not compute with float8_e4m3fn"):
        tflite.export(text)


# ---- smaller models ---------------------------------------------------------------------------------------------------

INT8 = 9            # of the schema's TensorType


def signal_to_noise(got, want): return 10 * np.log10((want ** 2).sum() / ((got - want) ** 2).sum())


@pytest.mark.parametrize("mode,decibels,size", [(None, 110, 1.0), ("float16", 55, 0.6), ("int8", 28, 0.45)])
def test_quantization(tmp_path, mode, decibels, size):
    made_source = program_of(network, IMAGE)
    options = {"calibration": [[IMAGE], [IMAGE * 0.9]]} if mode == "int8" else {}
    made = tflite.export(made_source.program(), quantize=mode, output_names=["y"], input_names=["x"], **options)
    made.save(tmp_path / "m.tflite")
    got = load_and_call(tmp_path / "m.tflite", x=IMAGE)["y"]
    want = np.asarray(network(IMAGE))
    assert signal_to_noise(got, want) > decibels
    full = tflite.export(made_source.program(), output_names=["y"], input_names=["x"])
    assert len(made.data) <= size * len(full.data)
    found = [operator for g, nodes in nodes_of(made.data) for operator, node in nodes
             if len(node.inputs) > 1 and all(g.tensors[i].type == INT8 for i in node.inputs[:2])]
    assert sorted(found) == (["CONV_2D", "FULLY_CONNECTED"] if mode == "int8" else [])


@pytest.mark.parametrize("options,message", [
    ({"quantize": "int4"}, "unknown quantization 'int4'"),
    ({"quantize": "int8"}, "needs calibration inputs"),
    ({"quantize": "float16", "calibration": [[IMAGE]]}, "calibration inputs are for int8"),
])
def test_quantization_options(options, message):
    with pytest.raises(AotError, match=message):
        tflite.export(program_of(network, IMAGE).program(), **options)


MODULE = """
import numpy as np
from aot import numpy as jnp
W = np.random.default_rng(0).standard_normal((32, 8)).astype(np.float32) / 8
def predict(x): return jnp.tanh(x @ W)
def spectrum(z): return jnp.fft.fft(z)
def factors(a): return jnp.linalg.eig(a)
"""


@pytest.mark.parametrize("arguments,status,text", [
    (["model:predict", "-a", "f32[4,32]"], 0, "right in its runtime"),
    (["model:predict", "-a", "f32[4,32]", "--quantize", "float16"], 0, "right in its runtime"),
    (["model:predict", "-a", "f32[4,32]", "--quantize", "int8", "--calibration", "samples.npz"], 0, "recorded  right"),
    (["model:spectrum", "-a", "c64[5]"], 0, "note: z is called z.real and z.imag"),
    (["model:factors", "-a", "f32[3,3]"], 1, "custom_call @lapack_sgeev_ffi (float32[3,3])"),
    (["model:predict", "-a", "f32[4,32]", "--quantize", "int8"], 1, "hint: give a few typical inputs: --calibration FILE"),
    (["model:predict", "-a", "f32[4,32]", "--quantize", "int8", "--calibration", "model.py"], 1, "not a readable .npz file"),
    (["model:predict", "-a", "f32[4,32]", "--quantize", "int8", "--calibration", "other.npz"], 1, "no array 'x'"),
    (["model:predict", "-a", "f32[4,32]", "--quantize", "int8", "--calibration", "wrong.npz"], 1, "its input [4, 32]"),
    (["model:predict", "-a", "f32[4,32]", "--runtime", "1.0"], 1, "hint: one of 2.14, current"),
])
def test_command_line(tmp_path, monkeypatch, capfd, arguments, status, text):
    from aot.cli import main
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("model", None)
    (tmp_path / "model.py").write_text(MODULE)
    samples = np.random.default_rng(0).standard_normal((5, 4, 32)).astype(np.float32)
    for name, arrays in (("samples", {"x": samples}), ("other", {"y": samples}), ("wrong", {"x": samples[..., 0]})):
        np.savez(tmp_path / f"{name}.npz", **arrays)
    code = main(["export", *arguments, "--format", "tflite", "-o", "m.tflite"])
    out, err = capfd.readouterr()
    assert code == status and text in out + err and "Traceback" not in err
    assert (tmp_path / "m.tflite").exists() == (status == 0)


def test_format_table(tmp_path):
    made, _ = formats.export(program_of(network, IMAGE), "tflite", tmp_path / "m.tflite")
    assert made.inputs == [("x",)] and (tmp_path / "m.tflite").read_bytes()[4:8] == b"TFL3"


def test_conformance_sample():
    """One public StableHLO program of each kind; all of them: make conformance FORMAT=tflite."""
    from tests.conformance import programs
    from tests.conformance.sweep import names_in, sweep
    folder = programs.prepared(programs.SAMPLE)
    outcomes = sweep(names_in(folder), folder, "tflite", workers=1)
    assert len(outcomes) > 90 and {name: o for name, o in outcomes.items() if o[0] != "right"} == {}
