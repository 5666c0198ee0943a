"""Sparse arrays against real jax, and against the same computation with dense arrays."""
import warnings

import numpy as np
import pytest

import aot
import aot.experimental.sparse.linalg
import aot.numpy as jnp
from aot.experimental import sparse
from tests import sparse_cases
from tests.sparse_cases import DENSE, SAME, M, names, rows
from tests.support import jax

SAMPLED = 80    # rows: one in 80, see conftest.py
OURS, THEIRS = names(aot), names(jax) if jax else {}


def outcome(row, space):
    """Class, shape, metadata, arrays and dense value of each result, or the exception."""
    s, tree_util = space["s"], space["jax"].tree_util

    def described(x):
        if not isinstance(x, s.JAXSparse):
            return ("dense", np.asarray(x), getattr(x, "weak_type", None))
        arrays, metadata = x.tree_flatten()
        return type(x).__name__, x.shape, metadata, list(map(np.asarray, arrays)), np.asarray(x.todense())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = eval(row, space)
            return [described(x) for x in tree_util.tree_leaves(out, is_leaf=lambda x: isinstance(x, s.JAXSparse))]
    except Exception as err:
        return err


def difference(a, b):
    """None where equal, else what differs."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        if len(a) != len(b):
            return f"{a} and {b} have other lengths"
        return next((d for d in map(difference, a, b) if d), None)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        same = a.shape == b.shape and a.dtype == b.dtype
        equal = (lambda: np.array_equal(a, b)) if a.dtype.kind not in "fc" else (
            lambda: np.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True))
        return None if same and equal() else f"{a.dtype}{a.shape} {a.tolist()} and {b.dtype}{b.shape} {b.tolist()}"
    return None if a == b else f"{a} and {b}"


@pytest.mark.parametrize("row", rows(SAME))
@pytest.mark.skipif(not jax, reason="compares with jax, which is not installed")
def test_as_in_jax(row):
    ours, theirs = outcome(row, OURS), outcome(row, THEIRS)
    if isinstance(theirs, Exception):
        assert isinstance(ours, Exception), f"jax raises {type(theirs).__name__}: {theirs}; aot returned {ours}"
        if not isinstance(theirs, (AssertionError, KeyError, AttributeError)) and "verifier" not in str(theirs):
            assert type(ours).__name__ in (type(theirs).__name__, "ValueError", "TypeError", "NotImplementedError"), ours
        return
    if isinstance(ours, Exception):
        raise ours
    assert difference(ours, theirs) is None, difference(ours, theirs)


@pytest.mark.parametrize("row", rows(DENSE))
def test_as_dense(row):
    mat, dense = eval(row, OURS)
    np.testing.assert_allclose(np.asarray(sparse.todense(mat)), np.asarray(sparse.todense(dense)), rtol=1e-6)


NUMBERS = [(c, b) for c in ((), (0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)) for b in ((), (0,), (1,), (0, 1)) if not set(c) & set(b)]


@pytest.mark.parametrize("layout", sparse_cases.LAYOUTS)
def test_every_contraction(layout):
    """Either the product of the dense arrays, on both sides, or what jax refuses as well."""
    n_batch, n_dense = layout
    x = OURS["X"]
    mat = sparse.BCOO.fromdense(x, n_batch=n_batch, n_dense=n_dense)
    for c, b in NUMBERS:
        numbers = ((c, c), (b, b))
        refused = any(d >= n_batch for d in b) or any(d >= 3 - n_dense for d in c)
        for pair in ((mat, x), (x, mat)):
            if refused:
                with pytest.raises(NotImplementedError):
                    sparse.bcoo_dot_general(*pair, dimension_numbers=numbers)
            else:
                got = sparse.bcoo_dot_general(*pair, dimension_numbers=numbers)
                np.testing.assert_allclose(got, aot.lax.dot_general(x, x, numbers), rtol=1e-5)


def test_jaxprs_name_the_operations_that_jax_has():
    def lines(m, s, mat):
        text = str(m.make_jaxpr(lambda a, v: (a @ v, a.todense(), a.T, a.sort_indices(), a @ a.T))(mat, np.ones(3, np.float32)))
        return [line.strip() for line in text.splitlines() if "bcoo_" in line or "spinfo" in line or "dimension" in line]
    assert lines(jax, THEIRS.get("s"), THEIRS.get("S")) == lines(aot, OURS["s"], OURS["S"])


def test_warnings():
    mat = OURS["S"]
    with pytest.warns(sparse.SparseEfficiencyWarning, match="increasing n_dense from 0 to 1"):
        mat.update_layout(n_dense=1, on_inefficient="warn")
    with pytest.raises(sparse.SparseEfficiencyError, match="increasing n_batch from 0 to 1"):
        mat.update_layout(n_batch=1)
    assert issubclass(sparse.CuSparseEfficiencyWarning, sparse.SparseEfficiencyWarning)


@pytest.mark.parametrize("cls", ["BCOO", "BCSR"])
def test_from_scipy(cls):
    import scipy.sparse
    mat = getattr(sparse, cls).from_scipy_sparse(scipy.sparse.csc_matrix(M), index_dtype="int16")
    np.testing.assert_array_equal(mat.todense(), M)
    assert mat.indices.dtype == np.int16 and mat.shape == (2, 3)
    with pytest.raises(NotImplementedError):
        getattr(sparse, cls).from_scipy_sparse(scipy.sparse.csc_matrix(M), n_batch=1)


def test_eigenvalues():
    rng = np.random.RandomState(0)
    half = rng.randn(30, 30).astype(np.float32)
    A, start = half @ half.T, rng.randn(30, 3).astype(np.float32)
    w, U, i = sparse.linalg.lobpcg_standard(lambda x: A @ x, start)
    np.testing.assert_allclose(w, np.linalg.eigvalsh(A)[::-1][:3], rtol=1e-4)
    np.testing.assert_allclose(A @ np.asarray(U), np.asarray(U) * np.asarray(w), atol=2e-2)
    np.testing.assert_allclose(U.T @ U, np.eye(3), atol=1e-4)
    assert 0 < int(i) < 100
    assert int(sparse.linalg.lobpcg_standard(A, start, m=2)[2]) == 2
    for bad in ((A, start[:, :0]), (A, np.ones((30, 6), np.float32)), (A[:10], start), (A, start.astype(int)),
                (A, start[:, 0])):
        with pytest.raises(ValueError):
            sparse.linalg.lobpcg_standard(*bad)


def test_spsolve():
    A = np.array([[4, 1, 0], [2, 3, 0], [0, 0, 2]], np.float32)
    mat, b = sparse.BCSR.fromdense(A), np.array([1, 2, 3], np.float32)
    solve = lambda data, b: sparse.linalg.spsolve(data, mat.indices, mat.indptr, b)
    dense = lambda data, b: jnp.linalg.solve(sparse.BCSR((data, mat.indices, mat.indptr), shape=(3, 3)).todense(), b)
    np.testing.assert_allclose(solve(mat.data, b), np.linalg.solve(A, b), rtol=1e-5)
    for transform in (lambda f: aot.grad(lambda *a: (f(*a) ** 2).sum(), (0, 1)), aot.jit, lambda f: lambda *a: aot.jvp(f, a, a),
                      lambda f: lambda d, b: aot.vmap(f, (None, 0))(d, jnp.stack([b, 2 * b]))):
        got, want = transform(solve)(mat.data, b), transform(dense)(mat.data, b)
        for x, y in zip(aot.tree_util.tree_leaves(got), aot.tree_util.tree_leaves(want), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)
    with pytest.warns(Warning, match="singular"):
        assert np.isnan(solve(mat.data * 0, b)).all()
    for bad in ((mat.data, b[:2]), (mat.data, b.astype(int)), (mat.data, np.ones((3, 2), np.float32))):
        with pytest.raises(ValueError):
            solve(*bad)
    with pytest.raises(ValueError, match="reorder"):
        sparse.linalg.spsolve(mat.data, mat.indices, mat.indptr, b, reorder=7)
