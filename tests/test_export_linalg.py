"""Exported linear algebra: values as numpy has them, factors that multiply to the matrix, in onnxruntime and the TFLite runtime."""
from __future__ import annotations

import numpy as np
import pytest

import aot
from aot import lax, tree_util
from aot import numpy as jnp

RNG = np.random.default_rng(0)


def normal(*shape, dtype=np.float32):
    x = RNG.standard_normal(shape)
    return (x + 1j * RNG.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def hermitian(a): return a + a.conj().swapaxes(-1, -2)


def gram(a): return a @ a.conj().T


SYMMETRIC = {"batch": hermitian(normal(2, 4, 4)), "repeated": np.diag(np.float32([2, 1, 2])),
             "not a number": np.full((2, 2), np.nan, np.float32),
             "complex": hermitian(normal(3, 3, dtype=np.complex64)), "double": hermitian(normal(3, 3, dtype=np.float64))}
GENERAL = {"large and wide": normal(2, 4) * np.float32(1e25), "rank one": np.ones((3, 3), np.float32),
           "zeros": np.zeros((3, 2), np.float32), "complex tall": normal(3, 2, dtype=np.complex64)}
SQUARES = {"complex": normal(3, 3, dtype=np.complex64)}
ARGUMENTS = [list(t.values()) for t in (SYMMETRIC, GENERAL, SQUARES)]


def program(symmetric, general, square):
    """Everything at once: one program for each runtime to load."""
    return ([jnp.linalg.eigh(a) for a in symmetric], [jnp.linalg.svd(a) for a in general],
            jnp.linalg.svd(general[0], compute_uv=False),
            [(jnp.linalg.qr(a), lax.linalg.cholesky(gram(a.astype(complex)) + jnp.eye(3), symmetrize_input=False),
              jnp.linalg.solve(a, a[:, 0]), jnp.linalg.det(a), jnp.linalg.pinv(a)) for a in square])


@pytest.fixture(scope="module")
def lowered():
    with aot.enable_x64(True):
        return aot.jit(program).trace(*ARGUMENTS).lower()


@pytest.mark.parametrize("format, package", [("onnx", "onnxruntime"), ("tflite", "ai_edge_litert")])
def test_factors(lowered, format, package):
    pytest.importorskip(package)
    from aot.exporters import formats
    row = formats.FORMATS[format]
    got = row.load("run").run(row.load().export(lowered.text), tree_util.tree_leaves(ARGUMENTS))
    eigen, svd, values, squares = tree_util.tree_unflatten(tree_util.tree_structure(lowered.out_info), got)
    close(values, svd[0][1])
    for (name, a), (w, v) in zip(SYMMETRIC.items(), eigen, strict=True):
        if name == "not a number":
            assert np.isnan(w).all() and np.isnan(v).all()
            continue
        close(w, np.linalg.eigvalsh(a), name)
        close(v @ (w[..., None] * v.conj().swapaxes(-1, -2)), a, name)
        close(v.conj().swapaxes(-1, -2) @ v, np.broadcast_to(np.eye(a.shape[-1]), a.shape), name)
    for (name, a), (u, s, vh) in zip(GENERAL.items(), svd, strict=True):
        k = len(s)
        close(s, np.linalg.svd(a, compute_uv=False), name)
        close((u[:, :k] * s) @ vh[:k], a, name)
        close(u.conj().T @ u, np.eye(len(u)), name)
        close(vh @ vh.conj().T, np.eye(len(vh)), name)
    for a, ((q, r), factor, x, det, inverse) in zip(SQUARES.values(), squares, strict=True):
        for found, want in ((q @ r, a), (factor, np.linalg.cholesky(gram(a.astype(complex)) + np.eye(3))), (a @ x, a[:, 0]),
                            (det, np.linalg.det(a)), (inverse @ a, np.eye(3))):
            close(found, want)


def close(got, want, name=""):
    tolerance = 1e-12 if got.dtype.name in ("float64", "complex128") else 1e-5
    assert np.abs(got - want).max() <= tolerance * max(1, np.abs(want).max()), name
