"""Image resampling, segment reductions, dlpack and derivative checks."""
import numpy as np
import pytest

import aot
import aot.numpy as jnp
from tests.support import compare, jax

SAMPLED = 3     # rows: one in 3, see conftest.py

F = np.float32
R = np.random.RandomState(0)
IMAGE = R.rand(7, 9, 2).astype(F)
METHODS = ["nearest", "linear", "lanczos3", "lanczos5", "cubic", "cubic-pytorch", "area"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("antialias", [True, False])
def test_resize(method, antialias):
    for shape in ((14, 9, 2), (3, 5, 2)):
        compare(lambda m, lax: lambda x: m.image.resize(x, shape, method, antialias), IMAGE)
    if antialias and method in ("linear", "nearest", "cubic"):
        compare(lambda m, lax: lambda x: m.image.resize(x, (7, 18, 3), method), (IMAGE * 255).astype(np.uint8))
        compare(lambda m, lax: m.grad(lambda x: (m.image.resize(x, (3, 5, 2), method)**2).sum()), IMAGE)


@pytest.mark.parametrize("method", METHODS)
def test_scale_and_translate(method):
    scale, move = np.array([1.7, .6], F), np.array([.8, -1.2], F)
    for antialias in (True, False):
        compare(lambda m, lax: lambda x, s, t: m.image.scale_and_translate(x, (9, 5, 2), (0, 1), s, t, method, antialias),
                IMAGE, scale, move, atol=1e-4)
    if method in ("linear", "lanczos3"):
        compare(lambda m, lax: m.grad(lambda x, s, t: (m.image.scale_and_translate(
            x, (9, 5, 2), (0, 1), s, t, method)**2).sum(), (0, 1, 2)), IMAGE, scale, move, rtol=1e-3, atol=1e-3)


def test_image_errors_and_edges():
    compare(lambda m, lax: lambda x: m.image.resize(x, (3, 5), "linear"), IMAGE)
    compare(lambda m, lax: lambda x: m.image.resize(x, (3, 5, 2), "other"), IMAGE)
    compare(lambda m, lax: lambda x: m.image.resize(x, (0, 5, 2), "linear"), IMAGE)
    compare(lambda m, lax: m.vmap(lambda x: m.image.resize(x, (3, 4), "cubic")), IMAGE)
    assert aot.image.ResizeMethod.from_string("bicubic") is aot.image.ResizeMethod.CUBIC


IDS = np.array([0, 2, 2, 1, 5, -1, 2], np.int32)


@pytest.mark.parametrize("name", ["segment_sum", "segment_prod", "segment_max", "segment_min"])
def test_segments(name):
    rows = R.randn(7, 2).astype(F)
    run = lambda m, **options: lambda d, i: getattr(m.ops, name)(d, i, **options)
    compare(lambda m, lax: run(m, num_segments=4), rows, IDS)
    compare(lambda m, lax: run(m), (rows[:, 0] * 10).astype(np.int32), IDS)
    compare(lambda m, lax: m.jit(run(m, num_segments=4, bucket_size=3)), rows, IDS)
    compare(lambda m, lax: run(m, num_segments=4, indices_are_sorted=True), rows, np.sort(IDS))
    compare(lambda m, lax: m.jit(run(m)), rows, IDS)                     # both raise
    compare(lambda m, lax: m.grad(lambda d: (run(m, num_segments=4)(d, IDS)[:3]**2).sum()), rows)


def test_segments_of_booleans():
    for name in ("segment_max", "segment_min"):
        compare(lambda m, lax: lambda d, i: getattr(m.ops, name)(d, i, 4), IDS > 0, np.abs(IDS))


def test_dlpack():
    x = np.arange(64, dtype=F).reshape(8, 8)
    theirs = [jax.numpy.array(x)] if jax else []
    for got in map(aot.dlpack.from_dlpack, [x, jnp.array(x), np.asfortranarray(x), *theirs]):
        assert isinstance(got, aot.Array) and got.dtype == F
        np.testing.assert_array_equal(got, x)
    np.testing.assert_array_equal(np.from_dlpack(jnp.array(x)), x)
    assert aot.dlpack.from_dlpack(np.arange(3.)).dtype == F
    assert aot.dlpack.from_dlpack(x, copy=True).dtype == F
    for dtype, fine in ((np.float32, True), (np.int8, True), ("complex64", True), (jnp.bfloat16, True), (jnp.int4, False)):
        assert aot.dlpack.is_supported_dtype(np.dtype(dtype)) == fine
    with pytest.raises(TypeError, match="__dlpack__"):
        aot.dlpack.from_dlpack([1., 2.])


@aot.custom_jvp
def wrong(x):
    return jnp.sin(x)


wrong.defjvps(lambda t, out, x: t * jnp.cos(x) * 1.1)


def test_checks_of_derivatives():
    from aot.test_util import check_grads, check_jvp, check_vjp
    f = lambda x, y: {"a": jnp.sin(x) * y["b"], "c": jnp.sum(x ** 2)}
    args = (R.randn(3).astype(F), {"b": F(1.5)})
    check_grads(f, args, 1, eps=1e-2, modes=("fwd", "rev", "lin"), rtol=2e-3 / 3, atol=2e-3 / 3)     # for each of 3 elements
    check_grads(lambda x: jnp.sin(x * 1.5), (.3,), 2, eps=1e-2, rtol=1e-2, atol=1e-2)
    check_grads(lambda z: z * z, (np.complex64(1 + 2j),), 1, eps=1e-2)
    with aot.enable_x64(True):
        check_grads(lambda x: jnp.exp(jnp.tanh(x)), (np.array([.1, .7]),), 3, rtol=1e-5 / 2, atol=1e-5 / 2)
    for check, rule in ((check_jvp, lambda p, t: aot.jvp(wrong, p, t)), (check_vjp, lambda *a: aot.vjp(wrong, *a))):
        with pytest.raises(AssertionError):
            check(wrong, rule, (F(.3),), eps=1e-2)
