"""Dot algorithms, ragged and scaled products, local convolution, shapes of convolutions, platforms, composites."""
import numpy as np
import pytest

import aot
from aot import lax
from tests.support import compare

F = np.float32
R = np.random.RandomState(0)
X, Y = R.randn(3, 4).astype(F), R.randn(4, 5).astype(F)
ROWS, EACH = R.randn(9, 4).astype(F), R.randn(3, 4, 5).astype(F)
SIZES = np.array([2, 1, 4], np.int32)


@pytest.mark.parametrize("name", "DEFAULT F16_F16_F16 BF16_BF16_F32 BF16_BF16_F32_X3 BF16_BF16_F32_X6 F32_F32_F32 "
                                 "F64_F64_F64".split())
def test_dot_algorithms_of_this_platform(name):
    for dtype in (F, np.float16):
        compare(lambda m, lax: lambda x, y: lax.dot(x, y, precision=lax.DotAlgorithmPreset[name]), X.astype(dtype),
                Y.astype(dtype))
    if name != "DEFAULT":
        compare(lambda m, lax: m.grad(lambda x, y: lax.dot(x, y, precision=name).sum(), (0, 1)), X, Y)


def test_a_dot_algorithm_in_the_program():
    algorithm = lax.DotAlgorithm(np.float16, np.float16, F)
    text = aot.jit(lambda x, y: lax.dot(x, y, precision=algorithm)).lower(X, Y).as_text()
    assert "lhs_precision_type = f16" in text and "accumulation_type = f32" in text


def numbers(*args):
    return lambda lax: lax.RaggedDotDimensionNumbers(*args)


def test_ragged_dot():
    compare(lambda m, lax: lax.ragged_dot, ROWS, EACH, SIZES)
    compare(lambda m, lax: m.grad(lambda l, r: (lax.ragged_dot(l, r, SIZES)**2).sum(), (0, 1)), ROWS, EACH)
    compare(lambda m, lax: m.vmap(lax.ragged_dot), np.stack([ROWS, ROWS + 1]), np.stack([EACH, -EACH]),
            np.stack([SIZES, SIZES[::-1]]))
    compare(lambda m, lax: lambda l, r: lax.ragged_dot(l, r, SIZES[:2]), ROWS, EACH)       # both raise


@pytest.mark.parametrize("lhs, rhs, sizes, dims", [
    (ROWS, R.randn(9, 5), SIZES, ((((0,), (0,)), ((), ())), [0], [])),
    (R.randn(2, 9, 4), R.randn(2, 3, 4, 5), np.stack([SIZES, SIZES + 1]), ((((2,), (2,)), ((0,), (0,))), [1], [1])),
    (R.randn(2, 9, 4), R.randn(2, 9, 5), np.stack([SIZES, SIZES + 1]), ((((1,), (1,)), ((0,), (0,))), [1], [])),
    (R.randn(2, 9, 4), R.randn(2, 9, 5), np.array([1, 1]), ((((1,), (1,)), ((0,), (0,))), [0], [])),
], ids=["contracting", "batched", "batched contracting", "batch"])
def test_ragged_dot_general(lhs, rhs, sizes, dims):
    compare(lambda m, lax: lambda l, r, s: lax.ragged_dot_general(l, r, s, numbers(*dims)(lax)), lhs.astype(F),
            rhs.astype(F), sizes.astype(np.int32))


def test_scaled_dot():
    compare(lambda m, lax: lambda x, y, s: lax.scaled_dot(x, y, lhs_scale=s), X, Y, np.full((3, 2), 2, F))
    compare(lambda m, lax: lambda x, y: lax.scaled_dot(x, y, preferred_element_type=F), X, Y)


def test_platform_dependent():
    compare(lambda m, lax: lambda x: lax.platform_dependent(x, cpu=lax.sin, tpu=lax.cos), F(1))
    compare(lambda m, lax: m.vmap(m.grad(lambda x: lax.platform_dependent(x, tpu=lax.cos, default=lax.tan))), X[0])
    compare(lambda m, lax: lambda x: lax.platform_dependent(x, tpu=lax.cos), F(1))         # both raise
    compare(lambda m, lax: lambda x: lax.platform_dependent(x, gpu=lax.cos, default=lax.sin), F(1))


def test_composite():
    double = lambda lax: lax.composite(lambda y, k=1: y * k, "my.scale", version=2)
    compare(lambda m, lax: m.jit(lambda x: double(lax)(x, k=3)), F(1))
    compare(lambda m, lax: lax.composite(lambda y, z: (y * 2, z + 1), "my.pair"), F(1), F(2))
    compare(lambda m, lax: m.grad(double(lax)), F(1))                                      # both raise
    text = aot.jit(lambda x: double(lax)(x, k=3)).lower(F(1)).as_text()
    assert 'stablehlo.composite "my.scale"' in text and "k = 3 : i64" in text and "version = 2" in text


def test_sinks_tokens_and_stages():
    assert "dce_sink" in str(aot.make_jaxpr(lambda x: (lax.dce_sink(x * 2), x)[1])(1.))
    assert aot.jit(lambda x: (lax.dce_sink(x * 2), x)[1])(1.) == 1
    assert isinstance(lax.after_all(lax.create_token()), type(lax.create_token()))
    assert aot.grad(lambda x: lax.with_sharding_constraint(x * 2, None))(1.) == 2
    compare(lambda m, lax: lax.stage, 1.)
    compare(lambda m, lax: m.jit(lambda x: lax.stage(2.) * x), F(3))


def test_convolution_with_a_kernel_at_each_position():
    x, k = R.randn(2, 3, 6, 7).astype(F), R.randn(4, 12, 5, 6).astype(F)
    compare(lambda m, lax: lambda x, k: lax.conv_general_dilated_local(x, k, (1, 1), "VALID", (2, 2)), x, k, atol=1e-4)
    compare(lambda m, lax: lambda x, k: lax.conv_general_dilated_local(
        x, k, (1, 1), "VALID", (2, 2), dimension_numbers=("NHWC", "HWIO", "NHWC")), x.transpose(0, 2, 3, 1),
        k.transpose(2, 3, 1, 0), atol=1e-4)


@pytest.mark.parametrize("name, args", [
    ("conv_shape_tuple", ((1, 2, 7, 8), (3, 2, 3, 3), (2, 1), "SAME")),
    ("conv_shape_tuple", ((1, 2, 7, 8), (3, 2, 3, 3), (2, 1), [(0, 0)])),
    ("conv_general_permutations", (("NHWC", "HWIO", "NCHW"),)),
    ("conv_general_permutations", (("NHWC", "HWIO", "NCHX"),)),
    ("conv_general_shape_tuple", ((1, 7, 8, 2), (3, 3, 2, 4), (2, 1), "VALID", ("NHWC", "HWIO", "NHWC"))),
    ("conv_transpose_shape_tuple", ((1, 7, 8, 2), (3, 3, 2, 4), (2, 1), "SAME", ("NHWC", "HWIO", "NHWC"))),
    ("reduce_window_shape_tuple", ((7, 8), (2, 3), (1, 2), ((0, 0), (1, 1)))),
])
def test_shapes(name, args):
    compare(lambda m, lax: lambda: np.array(getattr(lax, name)(*args), np.int32))


def test_accuracy():
    assert lax.Tolerance(ulps=2) == lax.Tolerance(ulps=2) and lax.AccuracyMode.HIGHEST.name == "HIGHEST"
    with pytest.raises(ValueError, match="non-negative"):
        lax.Tolerance(-1.)
    with pytest.raises(ValueError, match="At least one"):
        lax.Tolerance()
