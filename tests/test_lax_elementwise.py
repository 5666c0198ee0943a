"""Elementwise primitives against real jax: values at edge points, first and second derivatives, vmap, dtypes."""
import ml_dtypes
import numpy as np
import pytest

from tests.support import compare, total, wide

SAMPLED = 3     # rows: one in 3, see conftest.py

F = np.float32
EDGES = np.array([.1, .5, -.3, .9, 1.5, -2.5, 0., -0., np.inf, -np.inf, np.nan], F)
COMPLEX = np.array([.3 + .2j, -1 + .5j, 2 - 1j], np.complex64)

#  name, accepts complex
UNARY = [*[(n, True) for n in ("neg exp log expm1 log1p exp2 sqrt rsqrt square sin cos tan asin acos atan sinh cosh tanh asinh "
                               "acosh atanh logistic abs reciprocal").split()],
         *[(n, False) for n in "cbrt erf erfc erf_inv lgamma digamma sign floor ceil is_finite round bessel_i1e".split()]]


@pytest.mark.parametrize("name, _", UNARY)
def test_unary(name, _):
    compare(lambda m, lax: getattr(lax, name), EDGES)
    compare(lambda m, lax: getattr(lax, name), 1.5)
    if name != "is_finite":
        compare(lambda m, lax: m.vmap(m.grad(getattr(lax, name))), EDGES[:4])
        compare(lambda m, lax: m.jit(m.vmap(m.grad(m.grad(getattr(lax, name))))), EDGES[:4])
    for dtype in (np.float16, ml_dtypes.bfloat16):
        compare(lambda m, lax: getattr(lax, name), EDGES[:6].astype(dtype), rtol=2e-2, atol=2e-2)
    compare(lambda m, lax: getattr(lax, name), np.array([1, 2], np.int32))


@pytest.mark.parametrize("name", [n for n, c in UNARY if c])
def test_unary_complex(name):
    compare(lambda m, lax: getattr(lax, name), COMPLEX)
    if name != "acosh":     # jax 0.10.2 has the wrong sign left of the imaginary axis; see the next test
        compare(lambda m, lax: m.vmap(lambda t: m.jvp(getattr(lax, name), (t,), (t,))), COMPLEX)


def test_acosh_derivative_by_differences():
    import aot
    from aot import lax
    with aot.enable_x64(True):
        z = np.array([-1 + .5j, .3 + .2j, 2 - 1j])
        slope = aot.vmap(lambda t: aot.jvp(lax.acosh, (t,), (np.complex128(1),))[1])(z)
    step = 1e-6
    np.testing.assert_allclose(slope, (np.arccosh(z + step) - np.arccosh(z - step)) / (2 * step), rtol=1e-6)


A = np.array([.3, -.5, 2., -3., 1., 0., np.nan, np.inf], F)
B = np.array([.7, 1.5, .5, 2., 1., 1., 1., 2.], F)


@pytest.mark.parametrize("name", "add sub mul div rem max min atan2 nextafter pow".split())
def test_binary(name):
    f = lambda m, lax: getattr(lax, name)
    compare(f, A, B)
    compare(f, A, F(2))
    compare(f, 2., B)
    compare(f, A, B[:3])                                     # shapes that do not broadcast: both raise
    compare(f, A, np.arange(8, dtype=np.int32) if name != "pow" else B[:3])     # other dtype: both raise
    compare(f, A.reshape(2, 4), B[:4].reshape(1, 4))         # sizes of 1
    if name == "nextafter":
        compare(lambda m, lax: m.grad(lambda x: lax.nextafter(x, F(2))), F(1))      # both raise
        compare(lambda m, lax: m.grad(lambda x: lax.nextafter(F(2), x)), F(1))
        return
    x, y = np.abs(A[:5]), B[:5]
    compare(lambda m, lax: m.vmap(m.grad(getattr(lax, name), (0, 1))), x, y)
    compare(lambda m, lax: m.vmap(m.hessian(getattr(lax, name), (0, 1))), x, y)
    compare(lambda m, lax: m.grad(lambda a, b: total(lax, getattr(lax, name)(a, b)), (0, 1)), x, F(1.5))
    compare(lambda m, lax: m.grad(lambda a, b: total(lax, getattr(lax, name)(a, b)), (0, 1)), x.reshape(1, 5),
            y.reshape(5, 1))
    compare(lambda m, lax: m.vmap(lambda a, b: getattr(lax, name)(b, a)), A[:3], np.ones((3, 4), F))
    compare(lambda m, lax: m.vmap(getattr(lax, name), (0, None)), np.ones((3, 4), F), y[:4])
    compare(lambda m, lax: m.vmap(getattr(lax, name), (1, 0)), np.ones((4, 3), F), np.ones((3, 4), F))


I, J = np.array([7, -7, 5, -5, -2**31, 0, 3], np.int32), np.array([2, 2, -3, -3, -1, 0, 0], np.int32)


@pytest.mark.parametrize("name", ("add sub mul div rem max min bitwise_and bitwise_or bitwise_xor shift_left "
                                  "shift_right_arithmetic shift_right_logical eq ne lt le gt ge").split())
def test_integers(name):
    compare(lambda m, lax: getattr(lax, name), I, J)
    compare(lambda m, lax: getattr(lax, name), I.astype(np.uint8), J.astype(np.uint8))
    compare(lambda m, lax: getattr(lax, name), I > 0, J > 0)


@pytest.mark.parametrize("y", (-3, -1, 0, 1, 2, 3, 5))
def test_integer_pow(y):
    compare(lambda m, lax: lambda a: lax.integer_pow(a, y), A)
    compare(lambda m, lax: m.vmap(m.grad(m.grad(lambda a: lax.integer_pow(a, y)))), A[:5])


def test_pow_of_integer_exponent():
    compare(lambda m, lax: m.vmap(m.value_and_grad(lax.pow)), A[:5], np.arange(5, dtype=np.int32))


CONVERT = [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.bool_, np.float16, ml_dtypes.bfloat16, np.complex64,
           ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("dtype", CONVERT, ids=lambda d: np.dtype(d).name)
def test_convert(dtype):
    values = np.array([1.5, -1.5, 300, -300, 1e10, -1e10, np.nan, np.inf, -np.inf], F)
    compare(lambda m, lax: lambda a: lax.convert_element_type(a, dtype), values)
    compare(lambda m, lax: lambda a: lax.convert_element_type(a, dtype), np.array([0, 1, -1, 200, -2**31], np.int32))
    compare(lambda m, lax: lambda a: lax.convert_element_type(a, dtype), np.array([True, False]))


@pytest.mark.parametrize("dtype", CONVERT, ids=lambda d: np.dtype(d).name)
def test_converting_a_scalar_is_converting_an_array(dtype):
    """Also where jax lets numpy wrap around out-of-range scalars."""
    from aot import lax
    for s in (1.5, -1.5, 300., 1e10, float("nan"), float("-inf"), 3, True):
        got = lax.broadcast(lax.convert_element_type(s, dtype), (1,))
        want = lax.convert_element_type(np.full(1, s), dtype)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(wide(got), wide(want), err_msg=str(s))


def test_bitcast():
    compare(lambda m, lax: lambda a: (lax.bitcast_convert_type(a, np.uint32), lax.bitcast_convert_type(a, np.uint8)), A)
    compare(lambda m, lax: lambda a: lax.bitcast_convert_type(a, np.int32), np.ones((3, 2), np.uint16))
    compare(lambda m, lax: lambda a: lax.bitcast_convert_type(a, np.int32), np.ones((3,), np.uint16))


def test_clamp_and_select():
    compare(lambda m, lax: m.vmap(m.grad(lax.clamp, (0, 1, 2))), A[:5] * 0 - 1, A[:5], B[:5])
    compare(lambda m, lax: m.vmap(lax.clamp, (None, 0, 0)), F(-1), A, np.ones(8, F))
    compare(lambda m, lax: m.vmap(lax.clamp, (0, None, 0)), A, np.ones(3, F) * 9, np.ones(8, F))
    which = np.array([0, 1, 2, 1, 0], np.int32)
    compare(lambda m, lax: lax.select_n, which, A[:5], B[:5], A[3:])
    compare(lambda m, lax: m.grad(lambda a, b: total(lax, lax.select_n(which > 0, a, b)), (0, 1)), A[:5], B[:5])
    compare(lambda m, lax: m.vmap(lax.select_n, (0, None, 0)), which > 0, A[:3], np.ones((5, 3), F))
    compare(lambda m, lax: lax.select_n, which, A[:5], B[:5].astype(np.float16))


def test_two_argument_special_functions():
    compare(lambda m, lax: m.vmap(lambda a, b: (lax.zeta(a, b), lax.polygamma(F(1), b))), np.array([2., 3], F),
            np.array([.5, 2], F))


@pytest.mark.parametrize("bits", [(8, 23), (5, 10), (8, 7)])
def test_reduce_precision(bits):
    compare(lambda m, lax: lambda a: lax.reduce_precision(a, *bits), np.array([1 / 3, 1e5, 1e-8], F))
