"""scipy.linalg against real jax; factorizations that are unique up to signs are checked by their defining equations."""
import numpy as np
import pytest
import scipy.linalg

import aot
import aot.scipy.linalg as sl
from tests.support import compare

SAMPLED = 3     # rows: one in 3, see conftest.py

F = np.float32
R = np.random.RandomState(0)
A = R.randn(4, 4).astype(F) + 3 * np.eye(4, dtype=F)
P = (A @ A.T).astype(F)
B, V = R.randn(4, 3).astype(F), R.randn(4).astype(F)
TALL = R.randn(5, 3).astype(F)
C = (A + 1j * R.randn(4, 4)).astype(np.complex64)
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def on(name, **static):
    return lambda m, lax: lambda *args: getattr(m.scipy.linalg, name)(*args, **static)


ROWS = [
    ("cholesky", (P,), {}), ("cholesky", (P,), {"lower": True}), ("cholesky", ([[2., 0], [0, 3]],), {}),
    ("cho_factor", (P,), {"lower": True}), ("det", (A,), {}), ("inv", (A,), {}), ("eigh", (P,), {"eigvals_only": True}),
    ("eigh", (P, P), {}), ("svd", (TALL,), {"compute_uv": False}), ("lu_factor", (A,), {}), ("lu", (TALL,), {}),
    ("lu", (A,), {"permute_l": True}), ("qr", (TALL,), {}), ("qr", (TALL,), {"mode": "economic"}),
    ("qr", (TALL,), {"mode": "r"}), ("qr", (A,), {"pivoting": True}), ("qr", (A,), {"mode": "x"}), ("schur", (A,), {}),
    ("schur", (A,), {"output": "x"}), ("hessenberg", (A,), {"calc_q": True}), ("hessenberg", (C,), {}),
    ("qr_multiply", (TALL, R.randn(3, 5)), {}), ("qr_multiply", (TALL, R.randn(3, 2)), {"mode": "left"}),
    ("qr_multiply", (TALL, V[:3]), {"mode": "left", "pivoting": True}), ("qr_multiply", (C, C), {"conjugate": True}),
    ("solve", (A, B), {}), ("solve", (P, V), {"assume_a": "pos"}), ("solve", (P, B), {"assume_a": "pos", "lower": True}),
    ("solve", (P, B), {"assume_a": "other"}), ("solve_triangular", (A, B), {}),
    ("solve_triangular", (A, V), {"lower": True, "trans": 1}), ("solve_triangular", (C, C), {"trans": "C"}),
    ("solve_triangular", (A, V), {"unit_diagonal": True}), ("solve_triangular", (A, V), {"trans": 7}),
    ("solve_sylvester", (A, P, C.real), {}), ("solve_sylvester", (A, P, C.real), {"method": "eigen"}),
    ("solve_sylvester", (A[:2, :2], P, R.randn(2, 4).astype(F)), {}), ("solve_sylvester", (A, -A, P), {}),
    ("solve_sylvester", (A, P, B), {}), ("expm", (A / 3,), {}), ("expm", (A * 4,), {}), ("expm", (C,), {}),
    ("expm", (np.triu(A),), {"upper_triangular": True}), ("expm", (np.stack([A, P / 9]),), {}), ("expm", (B,), {}),
    ("expm", (A * 1e6,), {}), ("expm_frechet", (A / 3, P), {}), ("expm_frechet", (A / 3, P), {"compute_expm": False}),
    ("sqrtm", (P,), {}), ("sqrtm", (A,), {}), ("polar", (TALL,), {}), ("polar", (TALL.T,), {"side": "left"}),
    ("polar", (TALL,), {"method": "svd"}), ("polar", (C,), {"method": "svd", "side": "left"}), ("polar", (C,), {}),
    ("polar", (TALL.T,), {}), ("block_diag", (A, V, 3.), {}), ("block_diag", (), {}), ("toeplitz", (V,), {}),
    ("toeplitz", (V, B[:, 0]), {}), ("toeplitz", (C[0],), {}), ("toeplitz", (B, V), {}), ("hankel", (V,), {}),
    ("hankel", (V, V[:3]), {}), ("hankel", (3.,), {}), ("circulant", (B,), {}), ("leslie", (V, V[:3]), {}),
    ("leslie", (V, V), {}), ("companion", (V,), {}), ("companion", (np.array([1, 2, 3]),), {}), ("fiedler", (B,), {}),
    ("fiedler_companion", (V,), {}), ("fiedler_companion", (np.arange(1., 8).astype(F),), {}),
    ("fiedler_companion", (V[:2],), {}), ("fiedler_companion", (V[:1],), {}), ("convolution_matrix", (V, 3), {}),
    ("convolution_matrix", (V, 3), {"mode": "same"}), ("convolution_matrix", (V, 6), {"mode": "valid"}),
    ("convolution_matrix", (V, 0), {}), ("hilbert", (4,), {}), ("invhilbert", (4,), {}), ("pascal", (4,), {}),
    ("pascal", (4,), {"kind": "upper"}), ("pascal", (4,), {"kind": "x"}), ("invpascal", (4,), {}),
    ("invpascal", (4,), {"kind": "lower"}), ("helmert", (4,), {}), ("helmert", (4,), {"full": True}), ("hadamard", (8,), {}),
    ("hadamard", (6,), {}), ("dft", (5,), {}), ("dft", (5,), {"scale": "sqrtn"}), ("dft", (5,), {"scale": "x"})]


@pytest.mark.parametrize("name, args, static", ROWS, ids=[f"{r[0]}-{i}" for i, r in enumerate(ROWS)])
def test_against_jax(name, args, static):
    compare(on(name, **static), *args, rtol=2e-3, atol=2e-3)


def test_solving_with_factors():
    for lower in (True, False):
        for b in (B, V):
            compare(lambda m, lax: lambda p, b: m.scipy.linalg.cho_solve(m.scipy.linalg.cho_factor(p, lower), b), P, b)
    for trans in (0, 1, 2):
        for b in (C, C[0]):
            compare(lambda m, lax: lambda a, b: m.scipy.linalg.lu_solve(m.scipy.linalg.lu_factor(a), b, trans), C, b)
    compare(lambda m, lax: m.vmap(on("solve", assume_a="pos")(m, lax), (0, None)), np.stack([P, P * 2]), V)


@pytest.mark.parametrize("name, args, static", [
    ("expm", (A / 3,), {}), ("solve", (P, B), {"assume_a": "pos"}), ("polar", (TALL,), {"method": "svd"}),
    ("cholesky", (P,), {}), ("toeplitz", (V, V), {}), ("solve_triangular", (A, B), {})])
def test_derivatives(name, args, static):
    def run(m, lax):
        total = lambda *a: sum((x * x).sum() for x in m.tree_util.tree_leaves(on(name, **static)(m, lax)(*a)))
        return m.grad(total, tuple(range(len(args))))
    compare(run, *args, rtol=2e-3, atol=2e-3)


def test_functions_of_matrices():
    compare(lambda m, lax: lambda a: m.scipy.linalg.funm(a, m.numpy.cos), A / 3, rtol=1e-3, atol=1e-3)
    compare(lambda m, lax: lambda a: m.scipy.linalg.funm(a, m.numpy.exp, disp=False), A / 3, rtol=1e-2, atol=1e-3)
    with aot.enable_x64(True):
        a = A.astype(float)
        np.testing.assert_allclose(sl.expm(a), scipy.linalg.expm(a), rtol=1e-11)
        np.testing.assert_allclose(sl.sqrtm(a), scipy.linalg.sqrtm(a), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(sl.funm(a, aot.numpy.sin), scipy.linalg.sinm(a), rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(sl.solve_sylvester(a, a @ a, a.T), scipy.linalg.solve_sylvester(a, a @ a, a.T), rtol=1e-9)


def test_complex_schur_form():
    a = np.array([[0., 1, 2], [-1, 0, 1], [0, .5, 2]], F)
    t, z = sl.rsf2csf(*sl.schur(aot.numpy.array(a)))
    assert np.abs(np.tril(t, -1)).max() < 1e-6
    np.testing.assert_allclose(z @ t @ z.conj().T, a, atol=1e-5)
    np.testing.assert_allclose(z @ z.conj().T, np.eye(3), atol=1e-6)


@pytest.mark.parametrize("dtype", [F, np.complex64])
def test_tridiagonal_eigenvalues(dtype):
    d, e = V.astype(dtype), (B[:3, 0] + (1j * B[:3, 1] if dtype != F else 0)).astype(dtype)
    for static in ({"eigvals_only": True}, {"eigvals_only": True, "select": "i", "select_range": (1, 2)},
                   {"select": "v"}, {"select": "i"}):
        compare(on("eigh_tridiagonal", **static), d, e, atol=1e-4)
    w, v = sl.eigh_tridiagonal(d, e)
    matrix = np.diag(d) + np.diag(e, 1) + np.diag(e.conj(), -1)
    np.testing.assert_allclose(matrix @ v, v * w[None], atol=1e-5)
