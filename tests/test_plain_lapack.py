"""LAPACK calls written as StableHLO: the same results as the kernels."""
from __future__ import annotations

import re

import numpy as np
import pytest

import aot
import aot.numpy as jnp
from aot import lax, xla
from aot.errors import AotError
from aot.lower.plain_lapack import expand

SAMPLED = 2     # rows: one in 2, see conftest.py

la, solve_triangular = jnp.linalg, lax.linalg.triangular_solve
RNG = np.random.default_rng(0)


def matrix(dtype, *shape):
    x = RNG.standard_normal(shape) + (1j * RNG.standard_normal(shape) if np.dtype(dtype).kind == "c" else 0)
    return x.astype(dtype)


def adjoint(x): return x.conj().swapaxes(-1, -2)
def hermitian(dtype, *shape): x = matrix(dtype, *shape); return (x + adjoint(x)) / 2
def positive(dtype, *shape): x = matrix(dtype, *shape); return x @ adjoint(x) + np.eye(shape[-1], dtype=dtype)
def rank_two(dtype, *shape): x = matrix(dtype, *shape); x[..., -1] = x[..., 0]; return x
def ones(dtype, *shape): return np.ones(shape, dtype)
def negative(dtype, *shape): return -positive(dtype, *shape)


def eigh(x):
    """Values, and what does not depend on the signs of vectors."""
    w, v = la.eigh(x)
    return w, (v * w[..., None, :]) @ jnp.conj(v).swapaxes(-1, -2)


def svd(full):
    def f(x):
        u, s, v = la.svd(x, full_matrices=full)
        k = s.shape[-1]
        return s, (u[..., :k] * s[..., None, :]) @ v[..., :k, :], jnp.conj(u).swapaxes(-1, -2) @ u
    return f


# name, function, how to make its arguments, their shapes
CASES = [
    ("cholesky", la.cholesky, positive, [(2, 5, 5)]), ("cholesky upper", lambda x: la.cholesky(x, upper=True), positive, [(5, 5)]),
    ("not positive", la.cholesky, negative, [(3, 3)]), ("inv", la.inv, matrix, [(2, 3, 4, 4)]),
    ("solve", la.solve, matrix, [(5, 5), (5, 2)]), ("det", la.det, matrix, [(4, 4)]), ("singular", la.det, ones, [(4, 4)]),
    ("lu wide", lax.linalg.lu, matrix, [(3, 5)]), ("lu tall", lax.linalg.lu, matrix, [(5, 3)]),
    ("qr", la.qr, matrix, [(5, 3)]), ("qr wide", la.qr, matrix, [(2, 3, 5)]), ("qr of zeros", lambda x: la.qr(x * 0)[1], matrix, [(4, 3)]),
    ("qr complete", lambda x: la.qr(x, mode="complete"), matrix, [(5, 3)]),
    ("triangular", lambda a, b: solve_triangular(a + 4 * jnp.eye(4, dtype=a.dtype), b, lower=True, transpose_a=True, conjugate_a=True), matrix, [(4, 4), (3, 4)]),
    ("triangular left", lambda a, b: solve_triangular(a, b, left_side=True, unit_diagonal=True), matrix, [(2, 4, 4), (2, 4, 3)]),
    ("multiply by q", lambda a, t, c: lax.linalg.ormqr(a, t, c, left=False, transpose=True), matrix, [(4, 4), (4,), (3, 4)]),
    ("eigh", eigh, hermitian, [(2, 6, 6)]), ("eigh upper", lambda x: la.eigvalsh(x, UPLO="U"), matrix, [(4, 4)]),
    ("eigh large", eigh, hermitian, [(40, 40)]), ("eigh degenerate", eigh, ones, [(8, 8)]), ("eigh 1", eigh, hermitian, [(1, 1)]),
    ("svd", svd(False), matrix, [(6, 4)]), ("svd wide", svd(False), matrix, [(2, 3, 7)]), ("svd full", svd(True), matrix, [(6, 3)]),
    ("svd rank", svd(True), rank_two, [(6, 3)]), ("svd of zeros", lambda x: la.svd(x * 0)[1], matrix, [(3, 3)]),
    ("svd values", lambda x: la.svd(x, compute_uv=False), matrix, [(4, 6)]), ("svd large", svd(False), matrix, [(40, 30)]),
    ("pinv", la.pinv, matrix, [(6, 3)]), ("lstsq", lambda a, b: la.lstsq(a, b)[0], matrix, [(6, 3), (6,)]),
    ("gradient", aot.grad(lambda x: jnp.real(jnp.sum(la.inv(x)))), matrix, [(3, 3)]),
]
SAMPLE = {"float64": CASES[::2], "complex64": CASES[1::4], "complex128": CASES[3::4]}


def run(lowered, text, args):
    """The results of a module with the signature of `lowered`."""
    outs = [xla.storage(o) for o in lowered.out_avals]
    buffers = [xla.put(np.asarray(a), xla.storage(aot.typeof(np.asarray(a)))) for a in [*lowered.consts, *args]]
    handlers = [xla.result_handler(o, xla.default_sharding()) for o in outs]
    return [xla.to_numpy(b) for b in xla.compile_text(text).execute_sharded(buffers).consume_with_handlers(handlers)]


@pytest.mark.parametrize("dtype, name, f, make, shapes", [(d, *c) for d, cases in SAMPLE.items() for c in cases],
                         ids=[f"{c[0]} {d}" for d, cases in SAMPLE.items() for c in cases])
def test_results_are_those_of_the_kernels(dtype, name, f, make, shapes):
    with aot.enable_x64(True):
        args = [make(dtype, *s) if len(s) > 1 else matrix(dtype, *s) for s in shapes]
        lowered = aot.jit(f).trace(*args).lower()
        text = expand(lowered.text)
        assert "lapack_" in lowered.text and "@lapack_" not in text
        tolerance = 1e-10 if dtype in ("float64", "complex128") else 3e-4
        for got, want in zip(run(lowered, text, args), run(lowered, lowered.text, args)):
            assert np.allclose(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)


def test_equal_calls_share_a_function_and_text_is_reproducible():
    lowered = aot.jit(lambda x, y: (la.inv(x), la.inv(y), la.inv(x @ y))).trace(*[np.eye(3, dtype="f")] * 2)
    text = lowered.lower().text
    assert expand(text) == expand(text)
    assert len(re.findall(r"func private @lapack\.getrf\.\d+\(", expand(text))) == 1


def test_modules_without_calls_stay_as_they_are():
    text = aot.jit(jnp.sin).trace(np.ones(3, "f")).lower().text
    assert expand(text) is text


def test_kernels_without_a_form_are_named():
    text = aot.jit(la.eigvals).trace(np.eye(3, dtype="f")).lower().text
    with pytest.raises(AotError, match="eigvals calls lapack_sgeev_ffi, a LAPACK kernel of jaxlib that plugins do not have"):
        expand(text)
