"""Operators and methods of arrays, refused arguments, documented jaxprs, coverage of the API."""
from __future__ import annotations

import copy
import operator
import os
import sys
import time

import numpy as np
import pytest

import aot
import aot.numpy as jnp
from aot import lax
from aot.array_methods import ArrayMethods

sys.path.insert(0, os.path.dirname(__file__))

import api_coverage
from support import compare

X = np.array([[1.5, -2.0, 3.0], [4.0, 0.5, -6.0]], np.float32)
I = np.array([[1, -2, 3], [4, 0, 6]], np.int32)


# ---- coverage --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("module", ["numpy", "numpy.linalg", "numpy.fft", "Array.at"])
def test_every_name_is_here(module):
    assert api_coverage.missing(module) == []


def test_every_public_function_has_a_docstring():
    bare = [n for n in jnp.__all__ if callable(getattr(jnp, n)) and not getattr(jnp, n).__doc__]
    assert bare == ["iinfo"]  # a class of ml_dtypes


# ---- operators -------------------------------------------------------------------------------------------------------
BINARY = (operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.lt, operator.le,
          operator.gt, operator.ge, operator.eq, operator.ne)


@pytest.mark.parametrize("op", BINARY, ids=lambda f: f.__name__)
@pytest.mark.parametrize("other", [2, 2.5, X[::-1].copy(), np.float32(3)], ids=["int", "float", "array", "scalar"])
def test_binary_operators(op, other):
    x = jnp.asarray(X)
    np.testing.assert_allclose(op(x, other), op(X, other), rtol=1e-6)
    np.testing.assert_allclose(op(other, x), op(other, X), rtol=1e-6)
    assert type(op(other, x)) is aot.Array


@pytest.mark.parametrize("op", (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift), ids=lambda f: f.__name__)
def test_bit_operators(op):
    i = jnp.asarray(I)
    np.testing.assert_array_equal(op(i, 3), op(I, 3))
    np.testing.assert_array_equal(op(jnp.asarray(np.abs(I)), 1), op(np.abs(I), 1))
    np.testing.assert_array_equal(op(3, jnp.asarray(np.abs(I))), op(3, np.abs(I)))


def test_other_operators():
    x = jnp.asarray(X)
    np.testing.assert_array_equal(-x, -X)
    np.testing.assert_array_equal(+x, X)
    np.testing.assert_array_equal(abs(x), abs(X))
    np.testing.assert_array_equal(~jnp.asarray(I), ~I)
    np.testing.assert_allclose(x @ x.T, X @ X.T, rtol=1e-6)
    np.testing.assert_allclose(X @ jnp.asarray(X.T), X @ X.T, rtol=1e-6)
    np.testing.assert_allclose(x**2, X**2)
    np.testing.assert_allclose(2.0 ** x, 2.0**X, rtol=1e-5)
    for got, expected in zip(divmod(x, 2), divmod(X, 2)):
        np.testing.assert_array_equal(got, expected)
    assert round(jnp.asarray(2.6)).dtype == np.int32 and float(round(jnp.asarray(2.66), 1)) == pytest.approx(2.7)


@pytest.mark.parametrize("other", [[1, 2, 3], (1, 2, 3)])
def test_containers_are_refused(other):
    x = jnp.ones(3)
    for op in (operator.add, operator.mul, operator.eq, operator.ne):
        with pytest.raises(TypeError, match="unsupported operand"):
            op(x, other)
    with pytest.raises(TypeError):
        x - other
    with pytest.raises(TypeError, match="unsupported operand"):
        other + x
    with pytest.raises(TypeError):
        operator.lt(x, "a")
    assert (x == "a") is False and (x != None) is True  # noqa: E711


def test_unknown_operands_get_their_turn():
    class Other:
        def __radd__(self, x):
            return "radd"

        __array_ufunc__ = None

    assert jnp.ones(3) + Other() == "radd"


def test_jax_array_protocol():
    class Wrapped:
        def __jax_array__(self):
            return jnp.arange(3.0)

    assert (jnp.ones(3) + Wrapped()).tolist() == [1, 2, 3]
    assert jnp.sum(Wrapped()).tolist() == 3
    assert jnp.asarray(Wrapped()).shape == (3,)


def test_immutable():
    x = jnp.ones(3)
    with pytest.raises(TypeError, match=r"immutable.*\.at\[idx\]\.set\(y\)"):
        x[0] = 1
    with pytest.raises(TypeError, match="immutable"):
        del x[0]
    y = x
    y += 1
    assert x.tolist() == [1, 1, 1] and y.tolist() == [2, 2, 2]
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)


# ---- methods ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("call", [
    lambda x: x.T, lambda x: x.mT, lambda x: x.real, lambda x: x.imag, lambda x: x.sum(), lambda x: x.sum(0, keepdims=True),
    lambda x: x.mean(1), lambda x: x.max(), lambda x: x.min(axis=0), lambda x: x.prod(), lambda x: x.std(), lambda x: x.var(ddof=1),
    lambda x: x.ptp() if hasattr(x, "ptp") else np.ptp(x), lambda x: x.argmax(), lambda x: x.argmin(axis=1), lambda x: x.cumsum(), lambda x: x.cumprod(axis=1),
    lambda x: x.reshape(3, 2), lambda x: x.reshape((6,)), lambda x: x.reshape(-1, 1), lambda x: x.ravel(), lambda x: x.flatten(),
    lambda x: x.transpose(), lambda x: x.transpose(1, 0), lambda x: x.transpose((0, 1)), lambda x: x.swapaxes(0, 1),
    lambda x: x[None].squeeze(), lambda x: x.astype("int32"), lambda x: x.clip(0, 2), lambda x: x.round(), lambda x: x.dot(x.T),
    lambda x: x.trace(), lambda x: x.diagonal(1), lambda x: x.repeat(2, axis=0), lambda x: x.take(np.array([0, 3])), lambda x: x.copy(),
    lambda x: x.conj(), lambda x: (x > 0).all(), lambda x: (x > 0).any(0), lambda x: x.nonzero()[0], lambda x: x.view("int32"),
    lambda x: x.view("int16"), lambda x: x[0].view("uint8"), lambda x: x.byteswap().view("int32"), lambda x: x.compress(np.array([True, False]), axis=0),
    lambda x: (x > 0).astype(int).choose([x, -x]), lambda x: x[0].searchsorted(0.1), lambda x: x.item(3), lambda x: x.tolist(),
    lambda x: x.ndim, lambda x: x.size, lambda x: x.itemsize, lambda x: x.nbytes, lambda x: len(x), lambda x: list(x), lambda x: list(x.tobytes()),
    lambda x: np.asarray(copy.copy(x)), lambda x: np.asarray(copy.deepcopy(x)), lambda x: 3.0 in x[0], lambda x: next(reversed(x)),
])
def test_methods_like_numpy(call):
    got, expected = call(jnp.asarray(X)), call(X)
    np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=1e-5)


def test_sorting_methods_return_copies():
    x = jnp.asarray(X)
    np.testing.assert_array_equal(x.sort(), np.sort(X))
    np.testing.assert_array_equal(x.argsort(axis=0), np.argsort(X, axis=0))
    assert x.argpartition(1).shape == X.shape


@pytest.mark.parametrize("call, error", [
    (lambda x: x.flat, NotImplementedError), (lambda x: len(x.sum()), TypeError), (lambda x: list(x.sum()), TypeError),
    (lambda x: 1 in x, ValueError), (lambda x: "a" in x[0], TypeError), (lambda x: x.view(int, type=np.ndarray), NotImplementedError),
    (lambda x: x.sum().view("int16"), ValueError), (lambda x: x.view("float64"), ValueError),
])
def test_method_errors(call, error):
    with aot.enable_x64(True), pytest.raises(error):
        call(jnp.asarray(X))


def test_methods_of_tracers():
    f = aot.jit(lambda x: (x.sum(), x.T, x.at[0].set(1), x.reshape(6), x.astype(int), x.mean(0), [r * 2 for r in x], x.ndim, len(x)))
    out = f(jnp.asarray(X))
    np.testing.assert_allclose(out[0], X.sum(), rtol=1e-6)
    np.testing.assert_allclose(out[6][1], X[1] * 2)
    assert (int(out[7]), int(out[8])) == (2, 2)


def test_array_namespace():
    x = jnp.ones(3)
    assert x.__array_namespace__() is jnp
    assert x.__array_namespace__(api_version="2024.12") is jnp
    with pytest.raises(ValueError):
        x.__array_namespace__(api_version="1999.1")
    info = jnp.__array_namespace_info__()
    assert info.default_dtypes()["real floating"] == np.float32 and "float64" not in info.dtypes()


# ---- scalar types ----------------------------------------------------------------------------------------------------
def test_scalar_types():
    assert jnp.float32(3).dtype == np.float32 and jnp.float32(3).shape == () and not jnp.float32(3).weak_type
    assert np.dtype(jnp.bfloat16) == jnp.bfloat16.dtype and jnp.float32 == np.float32 and np.float32 == jnp.float32
    assert jnp.zeros(2, jnp.int8).dtype == np.int8 and jnp.float_ is jnp.float64 and jnp.bool_ is jnp.bool
    assert isinstance(np.float32(1), jnp.float32) and hash(jnp.float32) == hash(np.float32)
    assert jnp.int8([1, 2]).tolist() == [1, 2]


# ---- refused arguments -----------------------------------------------------------------------------------------------
def test_lists_are_refused_with_the_documented_message():
    with pytest.raises(TypeError) as caught:
        jnp.sum([1, 2, 3])
    assert str(caught.value) == "sum requires ndarray or scalar arguments, got <class 'list'> at position 0."
    with pytest.raises(TypeError, match="add requires .* at position 1"):
        jnp.add(1, [2])


@pytest.mark.parametrize("call, error, text", [
    (lambda x: jnp.zeros(2, 3), TypeError, "one tuple"), (lambda x: jnp.reshape(x, (4, 4)), TypeError, "size 6"),
    (lambda x: jnp.arange(3)[0:1, 0], IndexError, "1-dimensional"), (lambda x: x.sum(axis=5), ValueError, "out of bounds"),
    (lambda x: jnp.max(jnp.zeros((0,))), ValueError, "no identity"), (lambda x: jnp.sum(x, out=x), NotImplementedError, "out"),
    (lambda x: jnp.concatenate([]), ValueError, "at least one"), (lambda x: jnp.fill_diagonal(x, 1), NotImplementedError, "immutable"),
    (lambda x: jnp.einsum("ij,jk->ik", x, x), ValueError, "'j'"), (lambda x: jnp.fromfile("a"), NotImplementedError, "np.fromfile"),
])
def test_errors_say_what_is_wrong(call, error, text):
    with pytest.raises(error, match=text):
        call(jnp.asarray(X))


@pytest.mark.parametrize("call, text", [
    (lambda x: jnp.nonzero(x), "size"), (lambda x: jnp.unique(x), "size"), (lambda x: jnp.repeat(x, x.astype(int)), "total_repeat_length"),
    (lambda x: jnp.arange(x[0]), "stop"), (lambda x: jnp.bincount(x.astype(int)), "length"),
])
def test_sizes_that_depend_on_traced_values_name_the_remedy(call, text):
    with pytest.raises((aot.errors.ConcretizationTypeError, aot.errors.TracerIntegerConversionError), match=text):
        aot.jit(call)(jnp.ones(3))


def test_64_bits_are_narrowed_with_a_warning():
    with pytest.warns(UserWarning, match="float64"):
        assert jnp.zeros(2, np.float64).dtype == np.float32
    with aot.enable_x64(True):
        assert jnp.zeros(2, np.float64).dtype == np.float64 and jnp.arange(3).dtype == np.int64


def test_rank_promotion_option():
    with aot.numpy_rank_promotion("raise"), pytest.raises(ValueError, match="rank"):
        jnp.ones((2, 3)) + jnp.ones(3)
    with aot.numpy_rank_promotion("warn"), pytest.warns(UserWarning, match="rank"):
        jnp.ones((2, 3)) + jnp.ones(3)


# ---- jaxprs ----------------------------------------------------------------------------------------------------------
def operations(f, *args) -> list[str]:
    """Names of the operations a function records."""
    return [eqn.primitive.name for eqn in aot.make_jaxpr(f)(*args).eqns]


def test_where_is_a_call_as_documented():
    def selu(x, alpha=1.67, lambda_=1.05):
        return lambda_ * jnp.where(x > 0, x, alpha * jnp.exp(x) - alpha)

    assert operations(selu, jnp.arange(5.0)) == ["gt", "exp", "mul", "sub", "pjit", "mul"]
    text = str(aot.make_jaxpr(selu)(jnp.arange(5.0)))
    assert "name=_where" in text and "mul 1.6699999570846558 c" in text and "select_n g i h" in text


@pytest.mark.parametrize("f, expected", [
    (lambda x: jnp.sum(x), ["reduce_sum"]), (lambda x: jnp.mean(x), ["reduce_sum", "div"]), (lambda x: jnp.sin(x), ["sin"]),
    (lambda x: x + 1, ["add"]), (lambda x: 2 * x, ["mul"]), (lambda x: x @ x, ["dot_general"]), (lambda x: x.T, ["transpose"]),
    (lambda x: jnp.einsum("ij,kj->ik", x, x), ["dot_general"]), (lambda x: x.reshape(-1), ["reshape"]), (lambda x: x**2, ["integer_pow"]),
    (lambda x: jnp.var(x), ["pjit"]), (lambda x: jnp.sort(x), ["pjit"]), (lambda x: jnp.maximum(x, 0), ["max"]), (lambda x: x.astype(jnp.float32), []),
    (lambda x: x[::-1], ["rev"]), (lambda x: x + jnp.ones(3), ["broadcast_in_dim", "broadcast_in_dim", "add"]),
])
def test_what_is_recorded(f, expected):
    assert operations(f, jnp.ones((3, 3))) == expected


def test_functions_of_constants_are_recorded_as_documented():
    assert operations(lambda x: jnp.log(x) / jnp.log(2.0), 3.0) == ["log", "log", "div"]


def test_array_of_traced_scalars_is_a_concatenation_as_documented():
    names = operations(lambda x: jnp.sum(jnp.array(x)), list(range(10)))
    assert names == ["convert_element_type"] * 10 + ["broadcast_in_dim"] * 10 + ["concatenate", "reduce_sum"]


def test_constants_of_known_values_are_not_recorded():
    assert operations(lambda x: x * np.float32(2) + jnp.array([1.0, 2.0, 3.0]), jnp.ones(3)) == ["mul", "add"]


@pytest.mark.parametrize("value, dtype", [
    ([2 ** 31, 0], "uint32"), ([2 ** 32 - 1], "uint32"), ([[2 ** 31], [1]], "uint32"), ([2 ** 40], "float32"), ([-1], "uint32"),
    ([2 ** 31], None), ([2 ** 32], "uint32"), ([300], "uint8"), ([2 ** 31], "int32"), ([1.5, 2 ** 31], "float32"), ([1.5, 2], "int32"),
])
def test_large_numbers_in_lists_are_of_the_dtype_that_is_given(value, dtype):
    try:
        expected = np.asarray(value, dtype or "int32") if dtype != "int32" else np.asarray(value).astype("int32", casting="unsafe")
        if dtype == "int32" and value == [2 ** 31]:
            raise OverflowError
    except OverflowError:
        with pytest.raises(OverflowError):
            jnp.asarray(value, dtype)
    else:
        found = jnp.asarray(value, dtype)
        assert found.dtype == dtype and found.tolist() == expected.tolist()


@pytest.mark.parametrize("n", [0, 1, 64, 65, 1000])
def test_iteration(n):
    x = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
    np.testing.assert_array_equal(np.reshape([*map(np.asarray, jnp.asarray(x))], (n, 2)), x)
    np.testing.assert_array_equal(np.reshape([*map(np.asarray, reversed(jnp.asarray(x)))], (n, 2)), x[::-1])
    assert [int(k) for k in jnp.arange(n)] == [*range(n)]
    keys = aot.random.split(aot.random.key(0), n)
    assert [str(aot.random.key_data(k)) for k in keys] == [str(k) for k in aot.random.key_data(keys)]
    if 0 < n < 100:
        assert aot.jit(lambda x: sum([row.sum() for row in x]))(x) == x.sum()


def test_iteration_compiles_little():
    start = time.process_time()
    assert next(iter(jnp.arange(100_000))) == 0 and sum(map(int, jnp.arange(5_003))) == 5_003 * 2_501
    assert time.process_time() - start < 20          # one program with all the results takes minutes


@pytest.mark.parametrize("make", [jnp.asarray, jnp.array, lambda v: jnp.asarray(v, jnp.float32), lambda v: jnp.array(v, ndmin=1)])
@pytest.mark.parametrize("value", [False, 3, 2.5, 1j], ids=str)
def test_python_numbers_made_into_arrays_are_values_of_the_staged_function(make, value):
    def f(x):
        y = make(value.real if type(value) is complex else value)
        with pytest.raises(aot.errors.TracerBoolConversionError):
            bool(y)
        with aot.ensure_compile_time_eval():
            assert make(2)
        return lax.fori_loop(0, 2, lambda i, c: c + y.sum(), x)
    expected = 1 + 2 * value.real
    assert aot.jit(f)(1.0) == expected and aot.jit(aot.vmap(f))(jnp.ones(1)) == expected and aot.jit(aot.value_and_grad(f))(1.0)[1] == 1
    assert not isinstance(make(2), aot.core.Tracer) and aot.grad(lambda x: x if make(2.0) else -x)(1.0) == 1     # nothing is staged


def test_same_function_eager_and_traced():
    for f in (lambda x: jnp.mean(x, 1, keepdims=True), lambda x: jnp.median(x), lambda x: jnp.logaddexp(x, 1.0), lambda x: lax.exp(x).std()):
        np.testing.assert_allclose(f(jnp.asarray(X)), aot.jit(f)(jnp.asarray(X)), rtol=1e-6)


METHODS = [n for n in dir(ArrayMethods) if not n.startswith("_") and callable(getattr(ArrayMethods, n))]


@pytest.mark.parametrize("wrap", [aot.jit, aot.vmap, lambda f: lambda x: aot.jvp(f, (x,), (x,))[0]], ids=["jit", "vmap", "jvp"])
def test_tracers_have_the_methods_of_arrays(wrap):
    """Nothing that a tracer keeps hides a method."""
    seen = []
    wrap(lambda x: seen.append([n for n in METHODS if not callable(getattr(x, n))]) or x)(np.ones((3, 3, 3), np.float32))
    assert seen and not any(seen)
    for name in ("var", "trace"):
        np.testing.assert_allclose(aot.jit(lambda x: getattr(x, name)())(np.ones((3, 3), np.float32)),
                                   getattr(np.ones((3, 3), np.float32), name)())


MIXED = [(np.inf, np.bool_([False, True])), (np.bool_([False, True]), np.float32([np.inf, np.inf])), (2, np.bool_([True])),
         (1.5, np.int8([3])), (np.int32([3]), np.float32([.5])), (1j, np.float32([2])), (np.uint8([200]), np.int8([100]))]
BINARY = ("add", "multiply", "true_divide", "less", "maximum", "power")


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("x, y", MIXED, ids=str)
def test_operands_that_are_converted(name, x, y):
    """Eagerly too, conversion and operation are one program, as they are in jax: inf times False is 0 there."""
    def call(m, lax):
        def f(x, y):
            x, y = (m.numpy.asarray(v) if isinstance(v, np.ndarray) else v for v in (x, y))
            return [getattr(m.numpy, name)(*p) for p in ((x, y), (y, x))]
        return f
    compare(call, x, y)
