"""Derivatives and vmap of functions in the table: jvp and vjp agree with jax, vmap with a loop."""
from __future__ import annotations

import os
import sys

import numpy as np
import pytest

SAMPLED = 3     # rows: one in 3, see conftest.py

jax = pytest.importorskip("jax")
sys.path.insert(0, os.path.dirname(__file__))

import jax.numpy as jnp
import numpy_cases

import aot
import aot.numpy as anp
from aot import errors


def first_of_each_name() -> list[numpy_cases.Case]:
    """One differentiable case of each function that has one; jax must be able to compute it."""
    found: dict[str, numpy_cases.Case] = {}
    for case in numpy_cases.cases():
        if case.grad and case.name not in found and floats(case):
            found[case.name] = case
    return list(found.values())


def floats(case: numpy_cases.Case) -> list[int]:
    """Positions of the float32 arrays among the arguments."""
    return [i for i, a in enumerate(case.args) if isinstance(a, np.ndarray) and a.dtype == np.float32]


# Every third name; tests/conformance_api.py takes all of them.
CASES = first_of_each_name()[::3]


def function(module, case):
    """The call as a function of its float arrays; results are the float arrays among its results."""
    fun = module
    for part in case.name.split("."):
        fun = getattr(fun, part)
    where = floats(case)

    def f(*xs):
        args = [numpy_cases.given(a, module, lambda x: x) for a in case.args]
        for i, x in zip(where, xs):
            args[i] = x
        out = fun(*args, **case.kwargs)
        return [x for x in numpy_cases.leaves(out) if str(getattr(x, "dtype", "")) == "float32"]

    return f, [case.args[i] for i in where]


def skip_errors(case):
    if isinstance(numpy_cases.call(jnp, case, jnp.asarray), Exception):
        pytest.skip("a case of the table for the error it raises")


def close(got, expected, case):
    bound = 64 * (case.tolerance or 16) * 1.2e-7
    for a, b in zip(got, expected, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        scale = np.abs(b[np.isfinite(b)]).max(initial=1)
        np.testing.assert_allclose(a, b, rtol=bound, atol=bound * scale)


def tangents(xs):
    return [numpy_cases.values(x.shape, seed=7 + i) for i, x in enumerate(xs)]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_jvp_and_vjp(case):
    skip_errors(case)
    ours, xs = function(anp, case)
    theirs, _ = function(jnp, case)
    expected, expected_dot = jax.jvp(theirs, [jnp.asarray(x) for x in xs], [jnp.asarray(t) for t in tangents(xs)])
    if not expected:
        pytest.skip("no float result")
    got, got_dot = aot.jvp(ours, [anp.asarray(x) for x in xs], [anp.asarray(t) for t in tangents(xs)])
    close(got, expected, case)
    close(got_dot, expected_dot, case)
    _, expected_vjp = jax.vjp(theirs, *map(jnp.asarray, xs))
    _, got_vjp = aot.vjp(ours, *map(anp.asarray, xs))
    cotangents = [numpy_cases.values(y.shape, seed=17) for y in expected]
    close(got_vjp([anp.asarray(c) for c in cotangents]), expected_vjp([jnp.asarray(c) for c in cotangents]), case)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_vmap_is_a_loop(case):
    skip_errors(case)
    f, xs = function(anp, case)
    batch = [np.stack([x, x[::-1] if x.ndim and not case.name.startswith("linalg") else x * 0.5]) for x in xs]
    loop = [f(*[anp.asarray(b[i]) for b in batch]) for i in range(2)]
    try:
        got = aot.vmap(f)(*map(anp.asarray, batch))
    except errors.ConcretizationTypeError:
        pytest.skip("the shape of the result depends on values")
    close(got, [np.stack([np.asarray(a), np.asarray(b)]) for a, b in zip(*loop)], case)
    if len(xs) > 1:
        first = aot.vmap(f, in_axes=(0, *[None] * (len(xs) - 1)))(anp.asarray(batch[0]), *map(anp.asarray, xs[1:]))
        loop = [f(anp.asarray(batch[0][i]), *map(anp.asarray, xs[1:])) for i in range(2)]
        close(first, [np.stack([np.asarray(a), np.asarray(b)]) for a, b in zip(*loop)], case)
