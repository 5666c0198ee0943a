"""Rotations and their interpolation, against real jax."""
import numpy as np
import pytest
import scipy.spatial.transform

import aot
import aot.scipy.spatial.transform as st
from tests.support import compare

pytest.importorskip("jax.scipy.spatial.transform")

F = np.float32
R = np.random.RandomState(0)
Q = R.randn(5, 4).astype(F)
V = R.randn(5, 3).astype(F)
rotation = lambda m: m.scipy.spatial.transform.Rotation


@pytest.mark.parametrize("name, args", [
    ("from_quat", (Q,)), ("from_quat", (Q[0],)), ("from_rotvec", (V,)), ("from_rotvec", (V[0] * 1e-4,)), ("from_mrp", (V,)),
    ("from_euler", ("xyz", V)), ("from_euler", ("ZY", V[0, :2])), ("from_euler", ("x", F(.3))), ("from_euler", ("xx", V)),
    ("from_euler", ("xY", V)), ("identity", ())])
def test_making(name, args):
    compare(lambda m, lax: lambda: getattr(rotation(m), name)(*args).as_quat())
    if name == "from_rotvec":
        compare(lambda m, lax: lambda: getattr(rotation(m), name)(*args, degrees=True).as_matrix())


@pytest.mark.parametrize("name, args", [
    ("as_matrix", ()), ("as_rotvec", ()), ("as_rotvec", (True,)), ("as_mrp", ()), ("magnitude", ()), ("as_quat", (True,)),
    ("as_quat", (True, True)), ("apply", (V[0],)), ("apply", (V[0], True)), ("as_euler", ("xyz",)), ("as_euler", ("ZXZ", True)),
    ("as_euler", ("YXZ",)), ("as_euler", ("xy",))])
def test_forms(name, args):
    for q in (Q, Q[1]):
        compare(lambda m, lax: lambda q: getattr(rotation(m).from_quat(q), name)(*args), q, atol=1e-4)


def test_operations():
    compare(lambda m, lax: lambda q: (rotation(m).from_quat(q) * rotation(m).from_quat(q[::-1])).quat, Q)
    compare(lambda m, lax: lambda q: rotation(m).from_quat(q).inv().quat, Q)
    compare(lambda m, lax: lambda q: rotation(m).from_matrix(rotation(m).from_quat(q).as_matrix()).quat, Q)
    compare(lambda m, lax: lambda q: abs(rotation(m).from_quat(q).mean(np.arange(5.)).quat), Q, atol=1e-4)
    compare(lambda m, lax: lambda q: rotation(m).concatenate([rotation(m).from_quat(q)] * 2)[3:6].quat, Q)
    compare(lambda m, lax: m.grad(lambda v: rotation(m).from_rotvec(v).apply(V[0]).sum()), V[1])
    compare(lambda m, lax: lambda q: len(rotation(m).from_quat(q)), Q[0])                    # both raise
    assert abs(np.linalg.norm(st.Rotation.random(aot.random.key(0), 3).quat, axis=-1) - 1).max() < 1e-6
    euler = st.Rotation.from_euler("xyz", np.array([.3, np.pi / 2, .2], F)).as_euler("xyz")
    again = st.Rotation.from_euler("xyz", euler)
    np.testing.assert_allclose(again.as_matrix(), scipy.spatial.transform.Rotation.from_euler(
        "xyz", [.3, np.pi / 2, .2]).as_matrix(), atol=1e-3)


def test_slerp():
    slerp = lambda m: m.scipy.spatial.transform.Slerp
    times = np.array([0, 1, 2.5, 3, 4], F)
    for at in (np.array([.2, 1, 2.7, 4], F), F(1.5)):
        compare(lambda m, lax: lambda q, t: slerp(m).init(times, rotation(m).from_quat(q))(t).quat, Q, at, atol=1e-4)
    compare(lambda m, lax: lambda q: slerp(m).init(times[:2], rotation(m).from_quat(q)), Q)  # both raise
