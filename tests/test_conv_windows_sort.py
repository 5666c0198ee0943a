"""Convolutions, windowed reductions, sort, top_k, fft and collectives under vmap; against real jax."""
import itertools

import numpy as np
import pytest

from tests.support import compare, table, total

SAMPLED = 3     # rows: one in 3, see conftest.py

F = np.float32
RNG = np.random.RandomState(0)
X = RNG.randn(5, 6).astype(F)
NANS = np.where(RNG.rand(5, 6) < .2, np.nan, X).astype(F)
NANS[0, :3] = 0., -0., np.inf
Z = RNG.randn(2, 7, 8, 3).astype(F)

LAYOUTS = (None, ("NHWC", "HWIO", "NHWC"), ("HWNC", "OHWI", "CHNW"))
CONVS = [c for i, c in enumerate(itertools.product(((1, 1), (2, 1), (1, 2)), ((1, 1), (2, 3)), ("SAME", ((1, 2), (0, 1))),
                                                   ((1, 1), (2, 1)), ((1, 1), (1, 2)), LAYOUTS))
         if not (c[2] == "SAME" and c[3] != (1, 1)) and i % 5 == 0]


@pytest.mark.parametrize("groups, strides, padding, lhs_dilation, rhs_dilation, layout", CONVS)
def test_conv(groups, strides, padding, lhs_dilation, rhs_dilation, layout):
    features, batches = groups
    sizes = dict(N=4, C=4, H=5, W=6), dict(O=6, I=4 // features, H=3, W=2)
    lhs_spec, rhs_spec, _ = layout or ("NCHW", "OIHW", "NCHW")
    lhs = RNG.randn(*[sizes[0][c] for c in lhs_spec]).astype(F)
    rhs = RNG.randn(*[sizes[1][c] for c in rhs_spec]).astype(F)
    f = lambda lax: lambda a, b: lax.conv_general_dilated(a, b, strides, padding, lhs_dilation, rhs_dilation, layout, features,
                                                          batches)
    compare(lambda m, lax: m.jit(f(lax)), lhs, rhs)
    compare(lambda m, lax: m.jit(m.grad(lambda a, b: total(lax, lax.sin(f(lax)(a, b))), (0, 1))), lhs, rhs, rtol=1e-3, atol=1e-4)
    compare(lambda m, lax: m.jit(m.vmap(f(lax), (1, 0), 2)), np.stack([lhs, lhs + 1], 1), np.stack([rhs, rhs + 1]))
    compare(lambda m, lax: m.jit(m.vmap(f(lax), (1, None))), np.stack([lhs, lhs + 1], 1), rhs)
    compare(lambda m, lax: m.jit(m.vmap(f(lax), (None, 1))), lhs, np.stack([rhs, rhs + 1], 1))


WINDOWS = [(n, p, s) for n in ("add", "max", "min") for p in ("SAME", "VALID", ((0, 0), (1, 2), (0, 1), (0, 0)))
           for s in ((1, 1, 1, 1), (1, 2, 3, 1))]
INIT = {"add": F(0), "max": F(-np.inf), "min": F(np.inf), "mul": F(1)}


@pytest.mark.parametrize("name, padding, strides", WINDOWS)
def test_reduce_window(name, padding, strides):
    f = lambda lax: lambda z: lax.reduce_window(z, INIT[name], getattr(lax, name), (1, 3, 2, 1), strides, padding)
    compare(lambda m, lax: m.jit(f(lax)), Z)
    compare(lambda m, lax: m.jit(m.grad(lambda z: total(lax, lax.sin(f(lax)(z))))), Z)
    compare(lambda m, lax: m.jit(lambda z: m.jvp(f(lax), (z,), (z,))), Z)


@pytest.mark.parametrize("name", ("add", "max", "min"))
def test_reduce_window_composed(name):
    small = Z[0, :4, :4, 0]
    window = lambda lax, *rest: lambda z: lax.reduce_window(z, INIT[name], getattr(lax, name), (3, 2), (2, 1), "SAME", *rest)
    compare(lambda m, lax: m.jit(m.hessian(lambda z: total(lax, lax.sin(window(lax)(z))))), small)
    compare(lambda m, lax: m.jit(m.vmap(m.grad(lambda z: total(lax, lax.sin(window(lax)(z)))))), Z[..., 0])
    compare(lambda m, lax: m.jit(window(lax, (2, 1), (1, 2))), small)


@table(
    ("window of a user's operation", lambda m, lax: m.jit(lambda z: lax.reduce_window(z, F(1), lax.mul, (3, 2), (2, 1), "SAME")),
     Z[0, :4, :4, 0]),
    ("its jvp", lambda m, lax: m.jit(lambda z: m.jvp(lambda z: lax.reduce_window(z, F(1), lax.mul, (3, 2), (2, 1), "SAME"),
                                                     (z,), (z,))), Z[0, :4, :4, 0]),
    ("dilated sum, grad", lambda m, lax: m.jit(m.grad(lambda z: total(lax, lax.sin(lax.reduce_window(
        z, F(0), lax.add, (3, 2), (2, 1), "SAME", (2, 1), (1, 2)))))), Z[0, :4, :4, 0]),
    ("conv_transpose", lambda m, lax: m.jit(lambda a, b: lax.conv_transpose(a, b, (2, 2), "SAME")), Z, RNG.randn(3, 3, 3, 4).astype(F)),
    ("conv_transpose valid", lambda m, lax: m.jit(lambda a, b: lax.conv_transpose(a, b, (2, 3), "VALID", transpose_kernel=True)),
     Z, RNG.randn(3, 3, 4, 3).astype(F)),
    ("patches", lambda m, lax: m.jit(lambda a: lax.conv_general_dilated_patches(a, (3, 2), (1, 2), "SAME", dimension_numbers=(
        "NHWC", "HWIO", "NHWC"))), Z),
    ("conv, wrong features", lambda m, lax: lambda a, b: lax.conv(a, b, (1, 1), "SAME"), Z, Z),
    ("sort", lambda m, lax: m.jit(lax.sort), NANS),
    ("sort ints", lambda m, lax: lambda x: lax.sort(x, 0), RNG.randint(0, 9, (5, 3)).astype(np.int32)),
    ("sort complex", lambda m, lax: lambda x: lax.sort(x, 0),
     (RNG.randint(0, 3, (5, 3)) + 1j * RNG.randint(0, 3, (5, 3))).astype(np.complex64)),
    ("sort by two keys", lambda m, lax: lambda x, y: lax.sort((x, y), 0, num_keys=2), RNG.randint(0, 3, (7, 3)).astype(np.int32),
     RNG.randn(7, 3).astype(F)),
    ("jacobian of sort", lambda m, lax: m.jit(m.jacrev(lambda y: lax.sort(y, 0))), X),
    ("forward jacobian of sort", lambda m, lax: m.jit(m.jacfwd(lambda y: lax.sort(lax.sin(y)))), X),
    ("vmap of sort", lambda m, lax: m.vmap(lax.sort, in_axes=1), X),
    ("top_k", lambda m, lax: m.jit(lambda y: lax.top_k(y, 3)), X),
    ("top_k along an axis", lambda m, lax: lambda y: lax.top_k(y, 3, axis=0), X),
    ("grad of top_k", lambda m, lax: m.jit(m.grad(lambda y: total(lax, lax.sin(lax.top_k(y, 3)[0])))), X),
    ("vmap of top_k", lambda m, lax: m.vmap(lambda y: lax.top_k(y, 3), 1), X),
    ("top_k of too many", lambda m, lax: lambda y: lax.top_k(y, 9), X),
    ("stop_gradient", lambda m, lax: m.grad(lambda x: total(lax, lax.mul(lax.stop_gradient(lax.sin(x)), x))), X),
    ("stop_gradient, second derivatives", lambda m, lax: lambda x: [m.hessian(f)(x) for f in (
        lambda x: total(lax, lax.mul(lax.stop_gradient(lax.sin(x)), lax.mul(x, x))),
        m.jit(lambda x: total(lax, lax.mul(lax.sin(lax.stop_gradient(x)), x))))], X[0]),
    ("stop_gradient, reverse over reverse through a loop", lambda m, lax: m.grad(m.grad(lambda x: lax.while_loop(
        lambda s: lax.lt(s[0], 2), lambda s: (lax.add(s[0], 1), lax.sin(s[1])), (0, lax.stop_gradient(x)))[1] * x * x)), F(.3)),
    ("optimization_barrier", lambda m, lax: m.jit(m.grad(lambda x: total(lax, lax.mul(*lax.optimization_barrier((lax.sin(x), x)))))),
     X),
)
def test_other_operations(call, args):
    compare(call, *args)


C = (X[:4] + 1j * X[1:]).astype(np.complex64)
FFTS = [("FFT", C, (6,)), ("IFFT", C, (4, 6)), ("RFFT", X[:4], (6,)), ("RFFT", X[:4, :5], (4, 5)), ("IRFFT", C, (10,)),
        ("IRFFT", C, (11,)), ("IRFFT", C, (4, 10)), ("RFFT", C, (6,)), ("FFT", C, (5,))]


@pytest.mark.parametrize("name, x, lengths", FFTS)
def test_fft(name, x, lengths):
    f = lambda lax: lambda v: lax.fft(v, name, lengths)
    compare(lambda m, lax: m.jit(f(lax)), x)
    compare(lambda m, lax: m.jit(lambda v: m.vjp(f(lax), v)[1](f(lax)(v))), x)
    compare(lambda m, lax: m.jit(lambda v: m.jvp(f(lax), (v,), (v,))), x)
    compare(lambda m, lax: m.vmap(f(lax), 1), np.stack([x, x], 1))


V = X[:4]
COLLECTIVES = {
    "psum": lambda m, lax: lambda r: lax.psum(r, "i"),
    "pmean of a tree": lambda m, lax: lambda r: lax.pmean({"a": r}, "i")["a"],
    "normalise": lambda m, lax: lambda r: lax.div(r, lax.psum(r, "i")),
    "psum of a constant": lambda m, lax: lambda r: lax.mul(r, F(lax.psum(1, "i"))),
    "ppermute": lambda m, lax: lambda r: lax.ppermute(r, "i", [(0, 1), (1, 2), (2, 3), (3, 0)]),
    "pshuffle": lambda m, lax: lambda r: lax.pshuffle(r, "i", [3, 1, 2, 0]),
    "all_gather": lambda m, lax: lambda r: lax.all_gather(r, "i"),
    "all_gather at 1": lambda m, lax: lambda r: lax.all_gather(r, "i", axis=1),
    "all_gather tiled": lambda m, lax: lambda r: lax.all_gather(r, "i", tiled=True),
    "psum_scatter": lambda m, lax: lambda r: lax.psum_scatter(lax.all_gather(r, "i"), "i"),
    "psum_scatter tiled": lambda m, lax: lambda r: lax.psum_scatter(lax.all_gather(r, "i", tiled=True), "i", tiled=True),
    "in jit": lambda m, lax: lambda r: m.jit(lambda r: lax.mul(r, lax.psum(lax.sin(r), "i")))(r),
    "in scan": lambda m, lax: lambda r: lax.scan(lambda c, _: (lax.psum(c, "i"), None), r, None, length=2)[0],
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_under_vmap(name):
    f = COLLECTIVES[name]
    compare(lambda m, lax: m.jit(m.vmap(f(m, lax), axis_name="i")), V)
    compare(lambda m, lax: m.grad(lambda x: total(lax, lax.sin(m.vmap(f(m, lax), axis_name="i")(x)))), V)
    compare(lambda m, lax: m.vmap(m.grad(lambda r: total(lax, lax.sin(f(m, lax)(r)))), axis_name="i"), V)
    compare(lambda m, lax: m.vmap(m.vmap(f(m, lax), axis_name="i")), np.stack([V, V + 1]))
    compare(lambda m, lax: m.vmap(m.vmap(f(m, lax)), axis_name="i"), RNG.randn(4, 2, 6).astype(F))
    compare(lambda m, lax: m.vmap(lambda a, r: (a, f(m, lax)(r)), in_axes=(0, None), axis_name="i"), V, V[0])


@table(
    ("axis_index", lambda m, lax: m.vmap(lambda r: lax.axis_index("i"), axis_name="i"), V),
    ("pmax", lambda m, lax: m.vmap(lambda r: (lax.pmax(r, "i"), lax.pmin(r, "i")), axis_name="i"), V),
    ("axis_size", lambda m, lax: m.vmap(lambda r: lax.mul(r, F(lax.axis_size("i"))), axis_name="i"), V),
    ("all_to_all", lambda m, lax: m.vmap(lambda x: lax.all_to_all(x, "i", 0, 1), axis_name="i"), RNG.randn(4, 4, 3, 2).astype(F)),
    ("all_to_all tiled", lambda m, lax: m.vmap(lambda x: lax.all_to_all(x, "i", 0, 1, tiled=True), axis_name="i"),
     RNG.randn(4, 8, 3).astype(F)),
    ("unbound name", lambda m, lax: m.jit(lambda x: lax.psum(x, "i")), V),
)
def test_named_axes(call, args):
    compare(call, *args)
