"""Factorizations against real jax and against their definitions; derivatives, batches, failures, empty matrices."""
import numpy as np
import pytest

import aot
import aot.lax
from tests.support import compare, jax, total

SAMPLED = 3     # rows: one in 3, see conftest.py

F = np.float32
RNG = np.random.RandomState(0)


def square(n=4, dtype=F, batch=()):
    a = RNG.randn(*batch, n, n)
    return (a + 1j * RNG.randn(*batch, n, n) if np.dtype(dtype).kind == "c" else a).astype(dtype)


def definite(n=4, dtype=F, batch=()):
    a = square(n, dtype, batch)
    return (a @ np.conj(np.swapaxes(a, -1, -2)) + n * np.eye(n)).astype(dtype)


def rect(m, n, dtype=F):
    return (RNG.randn(m, n) + (1j * RNG.randn(m, n) if np.dtype(dtype).kind == "c" else 0)).astype(dtype)


TYPES = (np.float32, np.complex64)


#: made of other operations: values, jaxprs and batches as in jax, which does not differentiate them
COMPOSED = {
    "symmetric_product": (lambda lax: lax.linalg.symmetric_product, (square(), square())),
    "symmetric_product of all": (lambda lax: lambda a, c: lax.linalg.symmetric_product(a, c, alpha=2., beta=-.5), (
        rect(3, 2), definite(3))),
    "cholesky_update": (lambda lax: lax.linalg.cholesky_update, (np.linalg.cholesky(definite()).T, RNG.randn(4).astype(F))),
    "lu_pivots_to_permutation": (lambda lax: lambda p: lax.linalg.lu_pivots_to_permutation(p, 5), (np.array([2, 1, 2], "i"),)),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_composed(name):
    import aot
    jax = pytest.importorskip("jax")
    from aot.test_util import check_grads
    f, args = COMPOSED[name]
    compare(lambda m, lax: f(lax), *args)
    assert str(aot.make_jaxpr(f(aot.lax))(*args)) == str(jax.make_jaxpr(f(jax.lax))(*args))
    if name != "cholesky_update":       # jax has no rule
        compare(lambda m, lax: m.vmap(f(lax)), *[np.stack([a, a[::-1]]) for a in args])
    if "pivots" not in name:
        check_grads(f(aot.lax), args, 2, rtol=3e-2, atol=3e-2)      # times the size of an array; projections are numbers
        size = max(np.size(x) for x in aot.tree_util.tree_leaves(f(aot.lax)(*args)))
        check_grads(f(aot.lax), args, 2, ["fwd"], rtol=3e-2 / size, atol=3e-2 / size)


@pytest.mark.parametrize("dtype", TYPES)
def test_cholesky(dtype):
    f = lambda m, lax: lambda a: lax.linalg.cholesky(a)
    compare(f, definite(dtype=dtype))
    compare(f, definite(dtype=dtype, batch=(2, 3)))
    compare(f, -definite(dtype=dtype))
    compare(f, np.zeros((0, 0), dtype))
    compare(f, rect(2, 3))
    compare(lambda m, lax: lambda a: m.jvp(lax.linalg.cholesky, (a,), (a,)), definite(dtype=dtype))
    compare(lambda m, lax: m.vmap(lax.linalg.cholesky, 1), np.moveaxis(definite(batch=(3,)), 0, 1))
    compare(lambda m, lax: m.jit(m.hessian(lambda a: total(lax, lax.sin(lax.linalg.cholesky(a))))), definite(3), rtol=1e-3)


FLAGS = [(left, low, tr, unit) for left in (True, False) for low in (True, False) for tr in (True, False) for unit in (True, False)]


@pytest.mark.parametrize("left, low, transposed, unit", FLAGS)
def test_triangular_solve(left, low, transposed, unit):
    a = definite() / 8
    b = rect(4, 2) if left else rect(2, 4)
    f = lambda lax: lambda a, b: lax.linalg.triangular_solve(a, b, left_side=left, lower=low, transpose_a=transposed,
                                                             unit_diagonal=unit)
    compare(lambda m, lax: f(lax), a, b)
    compare(lambda m, lax: m.grad(lambda a, b: total(lax, lax.sin(f(lax)(a, b))), (0, 1)), a, b, rtol=1e-3)
    compare(lambda m, lax: m.vmap(f(lax), (None, 0)), a, np.stack([b, b + 1]))
    compare(lambda m, lax: m.vmap(f(lax), (0, None)), np.stack([a, a + 1]), b)
    ca, cb = a.astype(np.complex64) * (1 + .5j), b.astype(np.complex64) * (1 - 1j)
    compare(lambda m, lax: lambda a, b: lax.linalg.triangular_solve(a, b, left_side=left, lower=low, transpose_a=transposed,
                                                                    conjugate_a=True, unit_diagonal=unit), ca, cb)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
@pytest.mark.parametrize("dtype", TYPES)
def test_lu(shape, dtype):
    a = rect(*shape, dtype)
    compare(lambda m, lax: lax.linalg.lu, a)
    compare(lambda m, lax: lambda a: m.jvp(lambda a: lax.linalg.lu(a)[0], (a,), (a + 1,)), a, rtol=1e-3, atol=1e-4)
    compare(lambda m, lax: m.vmap(lax.linalg.lu), np.stack([a, a + 1]))


@pytest.mark.parametrize("full", (True, False))
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (3, 0), (0, 3)])
def test_qr(shape, full):
    for dtype in TYPES:
        a = rect(*shape, dtype)
        compare(lambda m, lax: lambda a: lax.linalg.qr(a, full_matrices=full), a)
        compare(lambda m, lax: lambda a: m.jvp(lambda a: lax.linalg.qr(a, full_matrices=full), (a,), (a + 1,)), a, rtol=1e-3,
                atol=1e-4)


def test_qr_with_pivoting():
    import aot.lax as lax
    a = rect(5, 3)
    q, r, p = lax.linalg.qr(a, pivoting=True, full_matrices=False)
    np.testing.assert_allclose(np.asarray(q) @ np.asarray(r), a[:, np.asarray(p)], atol=1e-5)


@pytest.mark.parametrize("dtype", TYPES)
def test_eigh(dtype):
    import aot
    import aot.lax as lax
    a = definite(dtype=dtype)
    v, w = lax.linalg.eigh(a)
    np.testing.assert_allclose(a @ np.asarray(v), np.asarray(v) * np.asarray(w), atol=1e-3)
    compare(lambda m, lax: lambda a: lax.linalg.eigh(a)[1], a)
    compare(lambda m, lax: lambda a: lax.abs(lax.linalg.eigh(a)[0]), definite(dtype=dtype, batch=(2,)))
    compare(lambda m, lax: lambda a: m.jvp(lambda a: lax.linalg.eigh(a)[1], (a,), (a,)), a)
    compare(lambda m, lax: m.jit(m.grad(lambda a: total(lax, lax.abs(lax.linalg.eigh(a)[0])))), definite(), rtol=1e-3, atol=1e-4)
    assert aot.eval_shape(lambda a: lax.linalg.eigh(a), np.zeros((0, 0), dtype))[1].shape == (0,)


def test_eig():
    import aot.lax as lax
    for a in (square(), square(dtype=np.complex64)):
        w, vl, vr = map(np.asarray, lax.linalg.eig(a))
        np.testing.assert_allclose(a @ vr, vr * w, atol=1e-4)
        np.testing.assert_allclose(vl.conj().T @ a, w[:, None] * vl.conj().T, atol=1e-4)
        compare(lambda m, lax: lambda a: lax.linalg.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False), a)
    compare(lambda m, lax: lambda a: m.jvp(lambda a: lax.linalg.eig(a, compute_left_eigenvectors=False,
                                                                    compute_right_eigenvectors=False)[0], (a,), (a + 1,)),
            square(), rtol=1e-3)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
@pytest.mark.parametrize("dtype", TYPES)
def test_svd(shape, dtype):
    import aot.lax as lax
    a = rect(*shape, dtype)
    u, s, vh = map(np.asarray, lax.linalg.svd(a, full_matrices=False))
    np.testing.assert_allclose((u * s) @ vh, a, atol=1e-5)
    compare(lambda m, lax: lambda a: lax.linalg.svd(a, compute_uv=False), a)
    compare(lambda m, lax: lambda a: m.jvp(lambda a: lax.linalg.svd(a, compute_uv=False), (a,), (a + 1,)), a)
    compare(lambda m, lax: lambda a: [x.shape for x in lax.linalg.svd(a)], a)
    f = lambda lax: lambda a: lax.abs(lax.linalg.svd(a, full_matrices=False)[0])
    compare(lambda m, lax: lambda a: m.jvp(f(lax), (a,), (a + 1,)), a, rtol=1e-3, atol=1e-3)


def test_svd_of_empty():
    compare(lambda m, lax: lambda a: lax.linalg.svd(a), np.zeros((3, 0), F))


def test_other_forms():
    import aot.lax as lax
    a = square()
    t, z = map(np.asarray, lax.linalg.schur(a))
    np.testing.assert_allclose(z @ t @ z.T, a, atol=1e-4)
    compare(lambda m, lax: lax.linalg.hessenberg, a)
    compare(lambda m, lax: lax.linalg.tridiagonal, definite())
    compare(lambda m, lax: lambda a: lax.linalg.householder_product(a, np.array([.3, .2], F)), rect(4, 2))


def test_tridiagonal_solve():
    dl, d, du = RNG.randn(3, 5).astype(F)
    d = d + 5
    dl[0] = du[-1] = 0
    b = rect(5, 2)
    f = lambda lax: lambda *xs: lax.linalg.tridiagonal_solve(*xs)
    compare(lambda m, lax: f(lax), dl, d, du, b)
    compare(lambda m, lax: m.grad(lambda *xs: total(lax, lax.sin(f(lax)(*xs))), (1, 3)), dl, d, du, b)
    compare(lambda m, lax: m.vmap(f(lax), (None, None, None, 0)), dl, d, du, np.stack([b, b + 1]))


def test_lists_and_tuples():
    """What several results come in."""
    for name in ("eig", "eigh", "hessenberg", "lu", "qdwh", "qr", "schur", "svd", "tridiagonal"):
        ours, theirs = (getattr(lax.linalg, name)(np.eye(3, dtype=np.float32) * 2) for lax in (aot.lax, jax.lax))
        assert type(ours) is type(theirs), name
