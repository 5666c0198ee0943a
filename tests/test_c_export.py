"""Programs as C: what they compute against XLA, for strict compilers and sanitizers; their memory, their names, what is refused."""
from __future__ import annotations

import json
import math
import os
import re
import subprocess

import numpy as np
import pytest

import aot
import aot.numpy as jnp
from aot import lax, nn
from aot.cli import main
from aot.errors import AotError
from aot.exporters import c, formats, verify
from aot.exporters.c import run
from aot.exporters.c.export import signature_in
from aot.exporters.report import Refused
from aot.exporters.source import Source
from tests.conformance import programs
from tests.conformance.sweep import names_in, sweep
from tests.exported import FUNCTIONS

SAMPLED = 6
F = np.float32
STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-fsyntax-only")
PLAIN, UBSAN = ("-O1",), ("-O1", "-fsanitize=undefined", "-fno-sanitize=float-divide-by-zero")
pytestmark = pytest.mark.skipif(run.compiler() is None, reason="there is no C compiler")


def leaves(tree): return [np.asarray(x) for x in aot.tree_util.tree_leaves(tree)]


def exported(f, args, **options):
    lowered = aot.jit(f).lower(*args)
    weights = {i: (f"w{i}", np.asarray(x)) for i, x in enumerate(lowered.consts)}
    program = Source("program", lowered.as_text(), weights=weights).program(c.KEEP)
    return c.export(program, metadata={"function": "program"}, **options)


def computed(made, args, folder, flags=PLAIN):
    """The results of a program that a strict compiler takes."""
    path = made.save(os.path.join(folder, "program.c"))[0]
    run.build(path, str(folder), STRICT)
    library = run.build(path, str(folder), ("-std=c99", "-w", "-shared", "-fPIC", *flags))
    return run.function(library, signature_in(made.header), made.weights)(leaves(args))


def same(got, want, rtol=2e-4):
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        size = np.abs(b[np.isfinite(b)]).max(initial=1) if b.dtype.kind in "fc" else 1
        assert np.allclose(a.astype("D"), b.astype("D"), rtol=rtol, atol=rtol * size, equal_nan=True), (a, b)


# ---- what it computes -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name, f, args", FUNCTIONS, ids=[row[0] for row in FUNCTIONS])
def test_functions(name, f, args, tmp_path, capfd):
    """Without a warning, and without undefined behaviour."""
    made = exported(f, args)
    got = computed(made, args, tmp_path, UBSAN)
    assert "runtime error" not in capfd.readouterr().err
    if name == "general_eigenvalues":
        got, want = ([np.sort_complex(x) for x in xs] for xs in (got, leaves(f(*args))))
    else:
        want = leaves(aot.jit(f)(*args))
    same(got, want)


@pytest.mark.parametrize("block", range(4))
def test_public_programs(block):
    folder = programs.prepared(programs.SAMPLE)
    outcomes = sweep(names_in(folder)[block::4], folder, "c", workers=1)
    assert len(outcomes) > 20 and {k: v for k, v in outcomes.items() if v[0] != "right"} == {}


def test_random_programs(tmp_path):
    """Nested control flow under transforms: places in memory are shared, and changed in place, without harm."""
    pytest.importorskip("jax")
    from tests import fuzz
    made, sources = [], []
    for seed in range(6):
        program, transform, xs = fuzz.case(seed)
        f = aot.jit(fuzz.TRANSFORMS[transform](aot, aot.lax, fuzz.build(program, aot, aot.lax)))
        out = c.export(f.lower(*xs).as_text(), metadata={"function": f"f{seed}"})
        sources.append(out.save(tmp_path / f"f{seed}.c")[0])
        made.append((out, xs, leaves(f(*xs))))
    library = run.build(sources[0], str(tmp_path), ("-std=c99", "-O1", "-w", "-shared", "-fPIC", *sources[1:]))
    for out, xs, want in made:
        same(run.function(library, signature_in(out.header))(leaves(xs)), want, 2e-3)


INTEGERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype, tmp_path, capfd):
    """The ends of a type, division by zero, shifts by more than the width; all without undefined behaviour."""
    info = np.iinfo(dtype)
    values = np.array([0, 1, 2, 3, 7, info.max, info.max - 1, info.min, info.min + 1, info.max // 2], dtype)
    x, y = (a.ravel() for a in np.meshgrid(values, values))

    def f(x, y):
        binary = [op(x, y) for op in (lax.add, lax.sub, lax.mul, lax.div, lax.rem, lax.max, lax.min, lax.bitwise_and, lax.bitwise_or,
                                      lax.bitwise_xor, lax.shift_left, lax.shift_right_logical, lax.shift_right_arithmetic)]
        unary = [op(x) for op in (lax.neg, lax.bitwise_not, lax.population_count, lax.clz, lax.sign, jnp.abs)]
        return binary, unary, [op(x, y) for op in (lax.lt, lax.ge, lax.eq)], [x.astype(t) for t in ("int8", "uint32", "bool", "float32")]
    with aot.enable_x64(True):
        made, want = exported(f, (x, y)), leaves(aot.jit(f)(x, y))
    got = computed(made, (x, y), tmp_path, UBSAN)
    assert "runtime error" not in capfd.readouterr().err
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype and np.array_equal(a, b)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_floats(dtype, tmp_path, capfd):
    """Conversions, order and extremes of special values and of numbers between two that can be stored."""
    tiny = float(jnp.finfo(dtype).tiny) * (1 if dtype == "float16" else 4)      # XLA takes smaller ones for 0
    x = np.array([0., -0., 1, -1, 1.5, np.inf, -np.inf, np.nan, tiny, tiny / 3, 65504, 65519, 65520, 3.4e38, 1e-45, 1e30, -1e30, 300.7,
                  -300.7, 2**31, 2**63, 1 + 2**-9, 1 + 3 * 2**-9, 1 + 2**-11, 2**-24, 2**-25, 3 * 2**-25])

    def f(x):
        x = x.astype(dtype)
        y = x[::-1]
        kept = [x.astype(t) for t in ("float16", "bfloat16", "float32", "float64", "bool", *INTEGERS)]
        return kept, lax.max(x, y), lax.min(x, y), lax.sort(x), jnp.sign(x), jnp.isfinite(x), jnp.floor(x), jnp.round(x), x < y, \
            lax.reduce_precision(x, 5, 3), jnp.exp(x), jnp.tanh(x), nn.sigmoid(x), jnp.sqrt(x)
    with aot.enable_x64(True):
        made, want = exported(f, (x,)), leaves(aot.jit(f)(x))
    got = computed(made, (x,), tmp_path, UBSAN)
    assert "runtime error" not in capfd.readouterr().err
    for a, b in zip(got[:14], want[:14], strict=True):
        assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f" or a.dtype.name == "bfloat16")
    same(got, want, {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-6, "float64": 1e-12}[dtype])


@pytest.mark.parametrize("algorithm", range(3))
@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64"])
def test_random_bits(algorithm, dtype, tmp_path):
    """The bits and the next states of XLA, also where the counter overflows."""
    f = lambda *states: [lax.rng_bit_generator(s, (3, 5), dtype=dtype, algorithm=algorithm) for s in states]
    with aot.enable_x64(True):
        states = np.array([5, 7], np.uint64), np.array([2**63 + 1, 2**64 - 2], np.uint64)
        made, want = exported(f, states), leaves(aot.jit(f)(*states))
    for a, b in zip(computed(made, states, tmp_path), want, strict=True):
        assert np.array_equal(a, b)


def test_functions_of_our_own(tmp_path, capfd):
    """log, erf and erfc of float32 over all its exponents, to some units in the last place."""
    x = np.random.default_rng(0).integers(0, 1 << 32, 20_000, np.uint64).astype(np.uint32).view(F)
    x = np.concatenate([x, np.linspace(-6, 12, 20_000, dtype=F), np.array([0, -0., 1, np.inf, -np.inf, np.nan, 1e-45], F)])
    got = computed(exported(lambda x: (lax.log(x), lax.erf(x), lax.erfc(x)), (x,)), (x,), tmp_path, UBSAN)
    assert "runtime error" not in capfd.readouterr().err
    with np.errstate(all="ignore"):
        exact = [np.log(x.astype("d")), *(np.array([f(v) for v in x.tolist()]) for f in (math.erf, math.erfc))]
        for a, b, units in zip(got, exact, (2, 3, 8)):
            near, finite = b.astype(F), np.isfinite(b)
            assert np.array_equal(a[~finite], near[~finite], equal_nan=True)
            assert np.all(np.abs(a - b)[finite] <= units * np.spacing(np.maximum(np.abs(near[finite]), F(1e-38))))


@pytest.mark.parametrize("shape, axis", [((3, 100), 1), ((2, 3, 64), (0, 2)), ((70,), 0), ((100, 3), 0)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_extremes_with_nan(shape, axis, dtype, tmp_path):
    x = np.random.default_rng(0).standard_normal(shape)
    x.flat[[3, 37]] = np.nan, -np.inf
    with aot.enable_x64(True):
        x = jnp.asarray(x, dtype)
        f = lambda x: (x.max(axis), x.min(axis), jnp.max(jnp.exp(x), axis, initial=2), jnp.where(x > 0, x, 0).sum(axis))
        made, want = exported(f, (x,)), leaves(aot.jit(f)(x))
    same(computed(made, (x,), tmp_path), want, {"bfloat16": 2e-2}.get(dtype, 1e-5))


@pytest.mark.parametrize("dims", [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"), ("CNHW", "IOHW", "HWNC")])
@pytest.mark.parametrize("options", [
    {}, {"window_strides": (2, 1), "padding": ((1, 2), (0, 3))}, {"lhs_dilation": (2, 3), "padding": ((1, -1), (-2, 2))},
    {"rhs_dilation": (2, 1)}, {"feature_group_count": 2}, {"batch_group_count": 2}])
def test_convolutions(dims, options, tmp_path):
    rng, options = np.random.default_rng(0), {"window_strides": (1, 1), "padding": "SAME", **options}
    inner = 4 // options.get("feature_group_count", 1)
    x = np.moveaxis(rng.standard_normal((4, 4, 9, 8)).astype(F), range(4), [dims[0].index(a) for a in "NCHW"])
    k = np.moveaxis(rng.standard_normal((6, inner, 3, 2)).astype(F), range(4), [dims[1].index(a) for a in "OIHW"])
    f = lambda x, k: lax.conv_general_dilated(x, k, dimension_numbers=dims, **options)
    same(computed(exported(f, (x, k)), (x, k), tmp_path), leaves(f(x, k)))


#: the shapes of input and kernel, channels before positions, and options
LAYERS = [
    ((2, 7), (4, 7), {}),
    ((2, 5, 37), (9, 5, 4), {"padding": "SAME"}),
    ((2, 3, 5, 6, 7), (4, 3, 2, 3, 2), {"window_strides": (1, 2, 1)}),
    ((1, 16, 9, 20), (16, 1, 3, 3), {"padding": "SAME", "feature_group_count": 16}),        # depthwise
    ((2, 9, 9, 20), (18, 1, 7, 6), {"feature_group_count": 9, "rhs_dilation": (1, 2)}),
    ((2, 3, 61, 59), (8, 3, 5, 5), {"window_strides": (2, 2)}),                             # parts that are not equally large
    ((4, 3, 40, 40), (5, 3, 3, 3), {"padding": "SAME"}),                                    # sums of 6,400 in the gradient
    ((3, 40, 19, 19), (1, 40, 3, 3), {}),                                                   # one feature
    ((3, 10, 9, 9), (5, 10, 9, 9), {}),                                                     # one position
    ((2, 6, 9, 9), (17, 6, 1, 1), {}),                                                      # nothing to gather
    ((2, 6, 9, 9), (17, 6, 1, 1), {"lhs_dilation": (2, 3), "padding": ((1, 0), (2, -1))}),  # positions that are 0
    ((2, 6, 7, 8), (8, 6, 4, 3), {"lhs_dilation": (2, 3), "rhs_dilation": (3, 2), "window_strides": (3, 2), "padding": ((4, 3), (2, 5))}),
    ((2, 0, 7, 8), (8, 0, 4, 3), {}),
]


@pytest.mark.parametrize("last", [False, True], ids=["channels_first", "channels_last"])
@pytest.mark.parametrize("x, k, options", LAYERS, ids=["x".join(map(str, row[0] + row[1])) for row in LAYERS])
def test_layers(x, k, options, last, tmp_path, capfd):
    """Every way to compute a convolution, and its gradients, also where the kernel is known."""
    space = "DHW"[5 - len(x):]
    dims = (f"N{space}C", f"{space}IO", f"N{space}C") if last else (f"NC{space}", f"OI{space}", f"NC{space}")
    options = {"window_strides": (1,) * len(space), "padding": "VALID", **options}
    rng = np.random.default_rng(0)
    x, k = (np.ascontiguousarray(np.transpose(rng.standard_normal(shape).astype(F), [first.index(a) for a in order]))
            for shape, first, order in ((x, f"NC{space}", dims[0]), (k, f"OI{space}", dims[1])))
    conv = lambda x, k: lax.conv_general_dilated(x, k, dimension_numbers=dims, **options)

    def f(x, k_):
        y = conv(x, k_)
        return y, *aot.vjp(conv, x, k_)[1](y), conv(x, k)
    same(computed(exported(f, (x, k)), (x, k), tmp_path, UBSAN), leaves(aot.jit(f)(x, k)))
    assert "runtime error" not in capfd.readouterr().err


@pytest.mark.parametrize("row", range(len(LAYERS)))
@pytest.mark.parametrize("dtype", ["bfloat16", "float64", "int32", "complex64"])
def test_layers_of_other_types(row, dtype, tmp_path):
    x, k, options = LAYERS[row]
    rng = np.random.default_rng(0)
    with aot.enable_x64(True):
        x, k = (jnp.asarray(rng.integers(-3, 4, shape), dtype) for shape in (x, k))
        f = lambda x, k: lax.conv_general_dilated(x, k, **{"window_strides": (1,) * (x.ndim - 2), "padding": "VALID", **options})
        made, want = exported(f, (x, k)), leaves(aot.jit(f)(x, k))
    same(computed(made, (x, k), tmp_path), want, 1e-2 if dtype == "bfloat16" else 1e-6)


@pytest.mark.parametrize("shape, axes", [((3,), 1), ((20, 1), 1), ((17, 2), 1), ((5, 60), 1), ((2, 37), 1), ((2, 3, 77), 1), ((3, 262), 1), ((2048,), 1), ((3, 1536), 1),
                                         ((2, 16, 15), 2), ((20, 9), 2), ((3, 4, 5, 18), 3), ((2, 18, 5, 1), 3)])
@pytest.mark.parametrize("kind", ["FFT", "IFFT", "RFFT", "IRFFT"])
@pytest.mark.parametrize("bits", [32, 64])
def test_fourier_transforms(shape, axes, kind, bits, tmp_path, capfd):
    """Lengths with small factors and large ones, even and odd, lines by themselves and in groups."""
    rng, lengths = np.random.default_rng(0), shape[-axes:]
    given = (*shape[:-1], shape[-1] // 2 + 1) if kind == "IRFFT" else shape
    x = rng.standard_normal(given) + (0 if kind == "RFFT" else 1j * rng.standard_normal(given))
    exact = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn}[kind](
        x, lengths, tuple(range(-axes, 0)))
    with aot.enable_x64(True):
        x = jnp.asarray(x, f"{'float' if kind == 'RFFT' else 'complex'}{bits if kind == 'RFFT' else 2 * bits}")
        f = lambda x: lax.fft(x, kind, lengths)
        made, dtype = exported(f, (x,)), f(x).dtype
    got, = computed(made, (x,), tmp_path, UBSAN)
    assert "runtime error" not in capfd.readouterr().err
    same([got], [exact.astype(dtype)], 1e-6 if bits == 32 else 1e-14)


@pytest.mark.parametrize("subscripts", ["ij,jk->ik", "ji,jk->ik", "ij,kj->ik", "bij,bjk->bik", "bij,bkj->ikb", "ij,j->i", "i,ij->j", "ji,j->i",
                                        "i,j->ij", "i,i->", "ijkl,kmlj->im", "bhqd,bkhd->bhqk", "ij,jk->ki"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int32", "complex64"])
def test_products(subscripts, dtype, tmp_path):
    """Every order of axes, sizes around those of tiles, and sums of the type of the result."""
    rng = np.random.default_rng(0)
    sizes = dict(zip("ijklmbhqd", (13, 19, 33, 3, 5, 2, 3, 7, 17)))
    x, y = (jnp.asarray(rng.integers(-3, 4, [sizes[a] for a in part]), dtype) for part in subscripts.split("->")[0].split(","))
    wide = {"int8": "int32", "bfloat16": "float32"}.get(dtype)
    f = lambda x, y: (jnp.einsum(subscripts, x, y), jnp.einsum(subscripts, x, y, preferred_element_type=wide))
    same(computed(exported(f, (x, y)), (x, y), tmp_path), leaves(f(x, y)))


# ---- loops and memory ---------------------------------------------------------------------------------------------------------

def test_state_changes_in_place(tmp_path):
    """A scan writes its results where they stay."""
    def f(xs): return lax.scan(lambda h, x: (jnp.tanh(h + x), h * 2), jnp.zeros(100), xs)
    xs = np.random.default_rng(0).standard_normal((50, 100)).astype(F)
    made = exported(f, (xs,))
    loop = made.source[made.source.index("for (;;)"):]
    assert "5000" not in loop and made.workspace < 4096
    same(computed(made, (xs,), tmp_path), leaves(f(xs)))


def test_places_are_shared_over_time():
    def f(x):
        for _ in range(20):
            x = jnp.cumsum(x) @ jnp.outer(x, x)
        return x
    made = exported(f, (np.ones(64, F),))
    assert made.workspace < 2 * 64 * 64 * 4 + 8192


def test_long_chains(tmp_path):
    """Many operations are fused in parts, and written in linear time."""
    def f(x):
        for i in range(1000):
            x = x * 1.001 + i % 3
        return x
    x = np.ones(5, F)
    same(computed(exported(f, (x,)), (x,), tmp_path), leaves(aot.jit(f)(x)))


def descent(weights, x):
    loss = lambda weights: jnp.sum(jnp.tanh(jnp.tanh(x @ weights[0]) @ weights[1]) ** 2)
    return [w - 0.1 * g for w, g in zip(weights, aot.grad(loss)(weights))]


@pytest.mark.parametrize("f, most", [
    (descent, 64 * 64 * 4), (lambda w, x: lax.scan(lambda h, v: (jnp.cumsum(h) + v, jnp.cumsum(jnp.cumsum(h))), x[0], x), 4 * 64 * 4)])
def test_results_are_workspace_until_they_are_written(f, most, tmp_path):
    """Not in a loop that writes them."""
    rng = np.random.default_rng(0)
    args = [rng.standard_normal((64, 64)).astype(F) * .1 for _ in range(2)], rng.standard_normal((32, 64)).astype(F)
    made = exported(f, args)
    assert made.workspace <= most
    same(computed(made, args, tmp_path), leaves(aot.jit(f)(*args)))


def test_what_is_read_often_is_computed_once():
    """Also where the axes over which it is read are added one after the other."""
    source = exported(nn.log_softmax, (np.ones((7, 1000), F),)).source
    loop, = (kernel for kernel in source[source.index("void program("):].split("\n  {\n") if "aot_log_f32" in kernel)
    assert "1000" not in loop


def test_what_frees_memory_comes_early():
    """A step of gradient descent holds one gradient at a time, although all updates come last in the program."""
    def step(weights, x):
        gradients = [jnp.outer(x, x) @ w for w in weights]
        return [w - 0.1 * g for w, g in zip(weights, gradients)]
    made = exported(step, ([np.ones((64, 64), F) * i for i in range(1, 9)], np.ones(64, F)))
    assert made.workspace < 4 * 64 * 64 * 4


@pytest.mark.parametrize("f", [
    lambda x: lax.fori_loop(0, 5, lambda i, s: (s[1], s[0] + 1, s[2]), (x, x * 2, x)),              # state that changes places
    lambda x: lax.fori_loop(0, 5, lambda i, s: (s[1], s[2], s[0]), (x, x, x)),
    lambda x: lax.fori_loop(0, 5, lambda i, s: (s[0].at[i].set(s[1][0]), s[0] + s[1]), (x, x)),     # read after it was changed
    lambda x: lax.fori_loop(0, 3, lambda i, s: lax.fori_loop(0, i, lambda j, t: t.at[j].add(t[i]), s) + x, x),
    lambda x: lax.while_loop(lambda s: lax.fori_loop(0, 3, lambda i, t: t * 2, s[0])[0] < 100, lambda s: (s[0] + s[1], s[1]), (x, x)),
    lambda x: lax.cond(x[0] > 0, lambda y: (y.at[1].set(0), y), lambda y: (y, y * 2), x),
    lambda x: (x.at[2].set(x[3]), x.at[3].set(x[2]), x),
    lambda x: (lambda y: (y.at[jnp.array([0, 1])].set(y[2:4]), y[::-1]))(x * 2),
    lambda x: lax.scan(lambda c, v: (c, lax.scan(lambda d, w: (d * w, d), v, x)[1]), 0., x),
    lambda x: (x, x, x.reshape(2, 3), x),
    lambda x: lax.fori_loop(0, 3, lambda i, s: (s[0] + x, s[1] + 2 * x), (jnp.zeros(6), jnp.zeros(6)))[::-1],   # results change places
    lambda x: lax.cond(x[0] > 0, lambda y: lax.fori_loop(0, 3, lambda i, s: (s[0] + y, s[1] * 2 + y), (jnp.zeros(6),) * 2)[::-1],
                       lambda y: (y, y), x),
    lambda x: jnp.concatenate([*lax.fori_loop(0, 2, lambda i, s: (s[0] + x, s[1] * 2), (x, x * 2)), jnp.cumsum(x), jnp.sort(x)]),
    lambda x: (jnp.zeros((2, 0)) @ jnp.zeros((0, 3)), x[:0], jnp.pad(x[:0], 2)),                    # arrays without elements
    lambda x: lax.switch(jnp.int32(x[0]), [lambda y: y, lambda y: y[::-1], lambda y: y * x], x),
])
def test_state_and_views(f, tmp_path, capfd):
    x = np.array([1., 2, 3, 4, 5, 6], F)
    same(computed(exported(f, (x,)), (x,), tmp_path, UBSAN), leaves(aot.jit(f)(x)))
    assert "runtime error" not in capfd.readouterr().err


# ---- the interface --------------------------------------------------------------------------------------------------------

def test_names_types_and_the_header(tmp_path):
    """The header is C and C++; names of the program are names of C."""
    x = {"float": np.ones(2, F), "b-c": np.ones((), bool), "2": np.ones(3, np.complex64)}
    f = aot.jit(lambda x, double: (x["2"] * 2, x["float"], double), keep_unused=True)
    text = f.lower(x, np.ones(2, np.float16)).as_text()
    made = c.export(text, input_names=["x['2']", "x['b-c']", "x['float']", "double"], output_names=["", "workspace", "aot_x"],
                    metadata={"function": "1 for all"})
    assert made.inputs == [("x_2",), ("x_b_c",), ("x_float",), ("double_",)] and made.renamed["workspace"] == ("workspace_",)
    assert made.outputs == [("output_0",), ("workspace_",), ("the_aot_x",)] and made.name == "_1_for_all"
    path, header = made.save(tmp_path / "all.c")
    assert f'#include "{os.path.basename(header)}"' in open(path).read()
    run.build(path, str(tmp_path), STRICT)
    (tmp_path / "main.cpp").write_text(f'#include "all.h"\nint main() {{ return {made.name.upper()}_WORKSPACE * 0; }}\n')
    done = subprocess.run([os.environ.get("CXX", "c++"), "-std=c++17", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only",
                           tmp_path / "main.cpp"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_names_with_a_meaning(tmp_path):
    """Arguments called like macros, functions and words of C and C++, a function called like one of the C library."""
    words = ["EOF", "NULL", "errno", "I", "isnan", "memcpy", "sin", "y0", "INT_MAX", "uint8_t", "M_PI", "stdin", "xor", "WRITE_H",
             "WRITE__WORKSPACE", "x", "x", "x", "x_", "class", "a1", "kernel_1", "\u00fc", "gamma", "index"]
    f = lambda *xs: [jnp.sin(x) + jnp.fft.fft(x).real for x in xs]
    made = c.export(aot.jit(f).lower(*[np.ones(3, F)] * len(words)).as_text(), input_names=words, metadata={"function": "write"})
    names = [n for n, in made.inputs]
    assert made.name == "write_" and len({*names}) == len(words) and names[-2:] == ["gamma", "index"]
    path, _ = made.save(tmp_path / "names.c")
    run.build(path, str(tmp_path), STRICT)
    headers = "math stdio errno assert stdlib unistd complex float limits".split()
    (tmp_path / "main.c").write_text("".join(f"#include <{h}.h>\n" for h in headers) + '#include "names.h"\n')
    run.build(str(tmp_path / "main.c"), str(tmp_path), ("-std=gnu99", "-Wall", "-Werror", "-fsyntax-only"))


def test_output_is_reproducible():
    f = lambda x: (jnp.linalg.solve(x, x), jnp.fft.fft(x), jnp.sort(x))
    texts = [aot.jit(f).lower(np.ones((4, 4), F)).as_text() for _ in range(2)]
    one, two = (c.export(t) for t in texts)
    assert one.source == two.source and one.header == two.header


def test_weights_in_a_file(tmp_path):
    weights = np.random.default_rng(0).standard_normal((64, 32)).astype(F)
    f, x = lambda x: jnp.tanh(x @ weights) + jnp.arange(32.), np.ones((3, 64), F)
    made = exported(f, (x,), weights="file")
    assert len(made.weights) >= weights.nbytes and len(made.source) < 12_000 and "const void *restrict weights" in made.source
    same(computed(made, (x,), tmp_path), leaves(f(x)))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["program.c", "program.h", "program.so", "program.weights"]
    (tmp_path / "program.weights").write_bytes(made.weights[:-1])
    with pytest.raises(AotError, match="weights have"):
        run.open_file(str(tmp_path / "program.c"))
    with pytest.raises(AotError, match="no place for constants"):
        exported(f, (x,), weights="flash")


@pytest.mark.parametrize("weights", ["source", "file"])
@pytest.mark.parametrize("dtype", ["bool", "float16", "bfloat16", "float32", "float64", "complex64", "complex128", *INTEGERS])
def test_constants(dtype, weights, tmp_path):
    """Arrays of every type in the program."""
    rng = np.random.default_rng(0)
    with aot.enable_x64(True):
        x = jnp.asarray(rng.integers(0, 9, 300) + (1j * rng.integers(0, 9, 300) if "complex" in dtype else 0), dtype)
        constant = np.asarray(x)
        f = lambda x: (x == constant, lax.rev(jnp.asarray(constant), (0,)))
        made, want = exported(f, (x,), weights=weights), leaves(f(x))
    for a, b in zip(computed(made, (x,), tmp_path), want, strict=True):
        assert np.array_equal(a, b)


def test_refusals():
    def f(x): return lax.reduce(x.astype("float8_e4m3fn"), np.array(0, "float8_e4m3fn"), lax.add, (0,)).astype(F)
    with pytest.raises(Refused) as e:
        exported(f, (np.ones(4, F),))
    assert "float8_e4m3fn" in str(e.value) and "convert to a wider type" in str(e.value)
    with pytest.raises(Refused, match="custom_call"):
        exported(lambda x: aot.pure_callback(lambda y: y, aot.ShapeDtypeStruct((2,), F), x), (np.ones(2, F),))
    with pytest.raises(AotError, match="its header|same folder"):
        run.open_file("missing.c")


# ---- commands ----------------------------------------------------------------------------------------------------------------

MODEL = """
import aot.numpy as jnp
def predict(params, x): return {"y": jnp.tanh(x @ params["w"]), "n": jnp.argmax(x, -1)}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(MODEL)
    np.savez("w.npz", w=np.random.default_rng(0).standard_normal((64, 16)).astype(F))
    (tmp_path / "aot.toml").write_text('[project]\nname = "p"\ntargets = ["cpu", "c", "c:file"]\n[[function]]\n'
                                       'function = "m.py:predict"\nargs = ["f32[2,64]"]\nweights = "w.npz"\n')
    return tmp_path


def test_a_target_of_a_project(project, capsys):
    assert main(["build"]) == 0
    files = {p.name for p in (project / "build").iterdir() if p.is_file()}
    assert files == {"predict.aot", "predict.c", "predict.h", "predict-file.c", "predict-file.h", "predict-file.weights"}
    capsys.readouterr()
    assert main(["verify", "build/predict.aot", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [(r["format"], r["ok"]) for r in report["exported"]] == [("c", True), ("c", True)]


def test_the_command(project, capsys):
    assert main(["export", "m.py:predict", "--weights", "w.npz", "--arg", "f32[2,64]", "-f", "c", "--weights-file"]) == 0
    assert "predict.c: right in its runtime" in capsys.readouterr().out and (project / "predict.weights").exists()
    text = (project / "predict.c").read_text()
    (project / "predict.c").write_text(re.sub(r"aot_tanh_f32\((v\d+)\)", r"\1", text))
    program = aot.jit(lambda w, x: {"y": jnp.tanh(x @ w), "n": jnp.argmax(x, -1)})
    made = Source("predict", program.lower(np.load("w.npz")["w"], np.ones((2, 64), F)).as_text(),
                  weights={0: ("w", np.load("w.npz")["w"])})
    report = verify.verify(made, "predict.c")
    assert not report["ok"] and formats.of_path("x/y.c") == "c"
