"""Indexing: random index expressions read and update like jax, and in range like numpy; modes; errors."""
from __future__ import annotations

import random
import warnings

import numpy as np
import pytest

import aot
import aot.numpy as jnp
from aot import errors

SAMPLED = 3     # rows: one in 3, see conftest.py

UPDATES = ("set", "add", "subtract", "multiply", "divide", "power", "min", "max")


# ---- random index expressions ----------------------------------------------------------------------------------------
def random_slice(rng: random.Random, n: int) -> slice:
    bound = lambda: rng.choice([None] * 3 + list(range(-n - 2, n + 3)))
    return slice(bound(), bound(), rng.choice([None, None, 1, 2, 3, -1, -2, -3]))


def random_index(rng: random.Random, shape: tuple[int, ...], reach: int = 0) -> tuple:
    """An index expression for `shape`; integers go `reach` positions beyond both ends."""
    out: list = []
    axis, ellipsis, together = 0, False, rng.choice([(2,), (3,), (2, 3), (1,), ()])
    position = lambda n: rng.randint(-n - reach, n - 1 + reach)
    while axis < len(shape) and rng.random() < 0.85:
        kind, n = rng.choice(("int", "slice", "slice", "new", "dots", "array", "array", "list", "mask", "scalar mask")), shape[axis]
        if kind in ("int", "slice", "array", "list"):
            size = rng.choice([together, together[-1:], ()])
            out.append(position(n) if kind == "int" else random_slice(rng, n) if kind == "slice" else
                       [position(n)] * (together[-1] if together else 1) if kind == "list" else
                       np.array([position(n) for _ in range(int(np.prod(size)))], np.int32).reshape(size))
            axis += 1
        elif kind == "new":
            out.append(None)
        elif kind == "dots" and not ellipsis:
            out.append(...)
            ellipsis, axis = True, rng.randint(axis, len(shape))
        elif kind == "mask":
            width = min(rng.choice([1, 1, 2]), len(shape) - axis)
            size = shape[axis:axis + width]
            out.append(np.array([rng.random() < 0.5 for _ in range(int(np.prod(size)))], bool).reshape(size))
            axis += width
        elif kind == "scalar mask" and rng.random() < 0.3:
            out.append(rng.choice([True, False]))
    if any(i is True or i is False for i in out):  # beside newaxis, libraries disagree on where its axis goes
        out = [i for i in out if i is not None]
    return tuple(out)


def random_array(rng: random.Random) -> np.ndarray:
    shape = tuple(rng.choice([1, 2, 3, 4, 5]) for _ in range(rng.randint(0, 4)))
    return np.asarray(np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape))


def outcome(f):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return f()
    except Exception as error:
        return error


def same(a, b) -> bool:
    if isinstance(a, Exception) or isinstance(b, Exception):
        return isinstance(a, type(b))
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True)


@pytest.mark.parametrize("seed", range(6))
def test_reads_like_numpy(seed):
    """In range, every expression that numpy takes gives what numpy gives."""
    rng = random.Random(seed)
    for _ in range(25):
        x = random_array(rng)
        index = tuple(i for i in random_index(rng, x.shape) if i is not True and i is not False)
        expected = outcome(lambda x=x, index=index: x[index])
        got = outcome(lambda x=x, index=index: jnp.asarray(x)[index])
        assert same(got, expected) or isinstance(expected, Exception), (x.shape, index, got, expected)


@pytest.mark.parametrize("seed", range(6))
def test_updates_like_numpy(seed):
    rng = random.Random(100 + seed)
    for _ in range(15):
        x = random_array(rng)
        index = random_index(rng, x.shape)
        expected = x.copy()
        try:
            expected[index] = 7
        except (IndexError, ValueError):
            continue
        got = outcome(lambda x=x, index=index: jnp.asarray(x).at[index].set(7))
        assert same(got, expected), (x.shape, index, got, expected)


@pytest.mark.parametrize("seed", range(6))
def test_agrees_with_jax(seed):
    """Also out of range, in every mode, and for every kind of update."""
    jax = pytest.importorskip("jax")
    rng = random.Random(200 + seed)
    for _ in range(12):
        x = random_array(rng)
        index = random_index(rng, x.shape, reach=rng.choice([0, 2]))
        how = {"mode": rng.choice(["clip", "fill", "drop"])} if rng.random() < 0.5 else {}
        method = rng.choice(UPDATES)
        for call in (lambda a, h=how, i=index: a.at[i].get(**h), lambda a, h=how, i=index, m=method: getattr(a.at[i], m)(2.0, **h)):
            expected = outcome(lambda c=call, x=x: c(jax.numpy.asarray(x)))
            got = outcome(lambda c=call, x=x: c(jnp.asarray(x)))
            assert same(got, expected), (x.shape, index, how, method, got, expected)


# ---- rows ------------------------------------------------------------------------------------------------------------
x5 = np.arange(5.0, dtype=np.float32)


@pytest.mark.parametrize("index, mode, expected", [
    (11, None, 4), (-9, None, 0), (11, "clip", 4), (11, "fill", np.nan), (11, "drop", np.nan), (-1, "fill", 4),
    (slice(3, 99), None, [3, 4]), (slice(None, None, -2), None, [4, 2, 0]), ([1, 9], "fill", [1, np.nan]),
])
def test_out_of_range_reads(index, mode, expected):
    index = np.array(index) if isinstance(index, list) else index
    np.testing.assert_array_equal(jnp.asarray(x5).at[index].get(mode=mode), expected)


def test_fill_value_and_wrap():
    x = jnp.arange(5)
    assert int(x.at[9].get(mode="fill", fill_value=-7)) == -7
    assert int(x.at[9].get(mode="fill")) == np.iinfo(np.int32).min
    np.testing.assert_array_equal(jnp.asarray(x5).at[-1].set(9, wrap_negative_indices=False, mode="drop"), x5)


@pytest.mark.parametrize("mode, expected", [(None, x5), ("drop", x5), ("clip", [0, 1, 2, 3, 14])])
def test_out_of_range_updates(mode, expected):
    np.testing.assert_array_equal(jnp.asarray(x5).at[20].add(10, mode=mode), expected)


def test_repeated_indices_all_count():
    x = jnp.ones(3)
    i = jnp.array([0, 0, 2])
    np.testing.assert_array_equal(x.at[i].add(1), [3, 1, 2])
    np.testing.assert_array_equal(x.at[i].multiply(2), [4, 1, 2])
    np.testing.assert_array_equal(x.at[i].apply(lambda v: v + 1), [3, 1, 2])


def test_static_slices_are_slices():
    text = str(aot.make_jaxpr(lambda x: (x[1], x[1:3], x[::-1], x[..., None], x[0, 1:]))(jnp.ones((3, 2))))
    assert "gather" not in text and "dynamic_slice" not in text


def test_traced_scalars_are_dynamic_slices():
    text = str(aot.make_jaxpr(lambda x, i: x[i, 1:])(jnp.ones((3, 2)), 1))
    assert "dynamic_slice" in text and "gather" not in text


@pytest.mark.parametrize("index, other", [
    (1, -2), ((2, 0), (0, -1)), ((slice(None), 1), (slice(None), 3)), (slice(0, 2), slice(-3, -1)), ((None, ..., 2), (None, ..., 0)),
    (slice(0, 0), slice(1, 1)), ((0, slice(3, 1, -1)), (1, slice(2, 0, -1)))], ids=str)
def test_known_positions_share_a_program(index, other, monkeypatch):
    """Outside of traces: a loop over positions compiles once."""
    x, keys = np.arange(24, dtype=np.int16).reshape(4, 6), aot.random.split(aot.random.key(0), (4, 6))
    on_device, made, compile_text = jnp.asarray(x), [], aot.xla.compile_text
    np.testing.assert_array_equal(on_device[index], x[index], strict=True)
    monkeypatch.setattr(aot.xla, "compile_text", lambda *a, **k: [made.append(a), compile_text(*a, **k)][1])
    np.testing.assert_array_equal(on_device[other], x[other], strict=True)
    assert not made
    np.testing.assert_array_equal(aot.random.key_data(keys[other]), aot.random.key_data(keys)[other])
    np.testing.assert_array_equal(aot.random.key_data(keys[index]), aot.random.key_data(keys)[index])


def test_boolean_mask_under_jit_explains_where():
    with pytest.raises(errors.NonConcreteBooleanIndexError, match="where"):
        aot.jit(lambda x: x[x > 0])(jnp.ones(3))
    np.testing.assert_array_equal(jnp.array([1.0, -1.0, 2.0])[jnp.array([True, False, True])], [1, 2])
    assert aot.grad(lambda x: x[x > 0].sum())(jnp.array([1.0, -1.0])).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("index, error, text", [
    ([1, 2], TypeError, "jnp.array"), ([[1], [2]], TypeError, "tuple"), ("a", TypeError, "string"), (1.5, TypeError, "integer"),
    ((0, 0, 0), IndexError, "2-dimensional"), ((..., ...), IndexError, "ellipsis"), (np.array([1.0]), TypeError, "integer"),
    (np.array([True] * 4), IndexError, "boolean"), (object(), IndexError, "valid"),
])
def test_refused_indices(index, error, text):
    with pytest.raises(error, match=text):
        jnp.ones((3, 2))[index]


def test_traced_slice_bounds_are_refused():
    with pytest.raises(IndexError, match="dynamic_slice"):
        aot.jit(lambda x, n: x[:n])(jnp.ones(3), 2)


def test_unsafe_updates_warn():
    with pytest.warns(FutureWarning, match="cast"):
        jnp.arange(3).at[0].set(1.5)


def test_gradients_of_reads_and_updates():
    x = jnp.arange(4.0)
    i = jnp.array([0, 0, 3])
    assert aot.grad(lambda x: (x[i] ** 2).sum())(x).tolist() == [0, 0, 0, 6]
    assert aot.grad(lambda v: (x.at[i].add(v) * x).sum())(jnp.ones(3)).tolist() == [0, 0, 3]
    assert aot.grad(lambda x: x.at[1].set(5.0).sum())(x).tolist() == [1, 0, 1, 1]


def test_vmap_over_index_and_operand():
    x, i = jnp.arange(12.0).reshape(3, 4), jnp.array([3, 0, 1])
    np.testing.assert_array_equal(aot.vmap(lambda row, k: row[k])(x, i), [3, 4, 9])
    np.testing.assert_array_equal(aot.vmap(lambda k: x[k % 3])(i), np.asarray(x)[[0, 0, 1]])
    expected = np.asarray(x).copy()
    expected[[0, 1, 2], [3, 0, 1]] = 7
    np.testing.assert_array_equal(aot.vmap(lambda row, k: row.at[k].set(7))(x, i), expected)
