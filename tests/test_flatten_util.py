"""`ravel_pytree` against real jax."""
import numpy as np
import pytest

import aot
from aot import flatten_util
from aot.compile import cached

jax = pytest.importorskip("jax")
theirs = pytest.importorskip("jax.flatten_util")

TREES = [{"a": np.ones((2, 3), np.float32), "b": (np.float32(2), np.arange(3, dtype=np.float32))}, [], 3.0, None,
         [np.arange(3), np.ones(2, np.float16)], (np.arange(2), np.array([True, False])), [1, 2.5, 1j],
         [np.zeros((0, 3), np.float32), np.ones(2, np.float32)]]


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_round_trip(tree):
    flat, unravel = flatten_util.ravel_pytree(tree)
    want, want_unravel = theirs.ravel_pytree(tree)
    assert str(flat.dtype) == str(want.dtype)
    np.testing.assert_array_equal(np.asarray(flat), np.asarray(want))
    got, back = aot.tree.flatten(unravel(flat)), jax.tree.flatten(want_unravel(want))
    assert str(got[1]) == str(back[1])
    for g, w in zip(got[0], back[0]):
        assert g.dtype == w.dtype and g.shape == w.shape
        np.testing.assert_array_equal(np.asarray(g), np.asarray(w))


def test_under_transforms():
    tree = {"w": np.arange(4, dtype=np.float32).reshape(2, 2), "b": np.float32(1)}
    flat, unravel = flatten_util.ravel_pytree(tree)

    def f(v):
        t = unravel(v)
        return (t["w"] ** 2).sum() * t["b"]
    np.testing.assert_allclose(np.asarray(aot.grad(f)(flat)), [14, 0, 2, 4, 6])
    np.testing.assert_allclose(np.asarray(aot.jit(lambda t: flatten_util.ravel_pytree(t)[0])(tree)), np.asarray(flat))
    assert aot.tree.structure(unravel) == aot.tree.structure(flatten_util.ravel_pytree(tree)[1])


@pytest.mark.parametrize("dtype", ["complex64", "int32", "float16", "bool"])
def test_trees_of_one_dtype_take_that_of_the_vector(dtype):
    got, want = [m.ravel_pytree(TREES[0])[1](np.arange(10).astype(dtype)) for m in (flatten_util, theirs)]
    for g, w in zip(aot.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert g.dtype == w.dtype == dtype and g.shape == w.shape
        np.testing.assert_array_equal(np.asarray(g), np.asarray(w))


def test_wrong_vectors():
    flat, unravel = flatten_util.ravel_pytree(TREES[4])
    with pytest.raises(TypeError, match="float16"):
        unravel(flat.astype(np.int32))
    with pytest.raises(ValueError, match="shape"):
        unravel(flat[:-1])


#: many pieces of an array are one program, whatever their number
PIECES = {"unravel": lambda x: flatten_util.ravel_pytree({"a": x, "b": [x[:2], x[2:, None].astype("int32")]})[1],
          "split": lambda x: lambda v: aot.numpy.split(v, 7),
          "array_split": lambda x: lambda v: aot.numpy.array_split(v, 5), "split at": lambda x: lambda v: aot.numpy.split(v, [1, 2, 9])}


@pytest.mark.parametrize("name", PIECES)
def test_pieces_are_one_program(name, monkeypatch):
    f, v = PIECES[name](aot.numpy.arange(7.)), aot.numpy.arange(14.)
    compiled, real = [], cached.compile_text
    monkeypatch.setattr(cached, "compile_text", lambda *args, **kwargs: compiled.append(1) or real(*args, **kwargs))
    got = aot.tree.leaves(f(v))
    assert len(compiled) == 1 and np.array_equal(np.concatenate([np.ravel(x) for x in got]), v)
    assert "jit" not in str(aot.make_jaxpr(f)(v))


ROWS = {"unstack": aot.numpy.unstack, "lax": aot.lax.unstack, "iteration": list, "reversed": lambda x: [*reversed(x)][::-1],
        "along the last axis": lambda x: aot.numpy.unstack(x.T, axis=-1), "keys": lambda x: [
            aot.random.key_data(k) for k in aot.random.wrap_key_data(x.astype("uint32"))]}


@pytest.mark.parametrize("name", ROWS)
def test_programs_of_rows_are_small(name, monkeypatch):
    """One with a result for each of thousands of rows takes minutes to compile."""
    x = np.arange(14000, dtype=np.float32).reshape(7000, 2)
    lines, real = [], cached.compile_text
    monkeypatch.setattr(cached, "compile_text", lambda text, *args, **kwargs: lines.append(text.count("\n")) or real(text, *args, **kwargs))
    got = ROWS[name](aot.numpy.asarray(x))
    assert np.array_equal(np.stack(got), x) and len(lines) <= 5 and all(n < 100 for n in lines)
