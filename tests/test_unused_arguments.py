"""Arguments that no result needs: as in jax they are no part of the compiled program, unless keep_unused asks for it."""
from __future__ import annotations

import re

import numpy as np
import pytest

import aot
import aot.numpy as jnp
from aot import export, lax
from aot.experimental import serialize_executable

jax = pytest.importorskip("jax")

W = np.arange(6000, dtype=np.float32)      # hoisted: a parameter of the program that is no argument


def functions(np_, jit, lax):
    """name -> (function, how many of its arguments (float[3], float[4], {"a": float[3], "b": float[5]}) have a use)"""
    def dead(x, y, d):
        np_.sin(y) * 2 + d["b"][0]          # no result needs it
        return x + d["a"]

    inner = jit(lambda x, y: (x * 2, y * 3))

    def of_a_call(x, y, d):
        return inner(x, y)[0] + d["a"]

    def of_a_branch(x, y, d):
        return lax.cond(x[0] > 0, lambda x, y: x, lambda x, y: x * y[0], x, d["b"])

    def weights(x, y, d):
        return d["b"] + W[:5] @ np_.asarray(W)[:5] + np_.asarray(W).sum()
    return {"one": (lambda x, y, d: x + 1, 1), "none": (lambda x, y, d: np_.ones(2), 0), "all": (
        lambda x, y, d: (x, y, d), 4), "dead": (dead, 2), "of a call": (of_a_call, 2), "of a branch": (of_a_branch, 2),
        "weights": (weights, 1), "passed on": (lambda x, y, d: (y, d["a"]), 2),
        "only its shape": (lambda x, y, d: x * y.shape[0] + d["b"].ndim, 1)}


OURS, THEIRS = functions(jnp, aot.jit, lax), functions(jax.numpy, jax.jit, jax.lax)


def arguments(i=0):
    rng = np.random.default_rng(i)
    x, y, a, b = (rng.standard_normal(n).astype(np.float32) for n in (3, 4, 3, 5))
    return x, y, {"a": a, "b": b}


def same(got, want):
    got, want = aot.tree.leaves(got), jax.tree.leaves(want)
    assert len(got) == len(want)
    for g, w in zip(got, want):
        np.testing.assert_allclose(g, w, rtol=1e-6)


def parameters(text):
    return len(re.findall(r"%arg\d+: ", text[text.index("@main("):text.index("->", text.index("@main("))]))


@pytest.mark.parametrize("name", OURS)
def test_results_and_programs_are_as_in_jax(name):
    (f, used), (g, _) = OURS[name], THEIRS[name]
    ours, theirs = aot.jit(f), jax.jit(g)
    for i in range(4):       # the first call, those that are dispatched faster, numpy arrays and arrays of the device
        args = arguments(i) if i % 2 else aot.tree.map(jnp.asarray, arguments(i))
        same(ours(*args), theirs(*arguments(i)))
    args = arguments()
    lowered = ours.lower(*args)
    assert parameters(lowered.as_text()) == used + len(lowered.consts)
    assert parameters(theirs.lower(*args).as_text()) == used
    compiled = lowered.compile()
    same(compiled(*arguments(7)), theirs(*arguments(7)))
    assert [s is None for s in aot.tree.leaves(compiled.input_shardings, is_leaf=lambda x: x is None)] == [
        s is None for s in jax.tree.leaves(theirs.lower(*args).compile().input_shardings, is_leaf=lambda x: x is None)]
    assert len(aot.tree.leaves(compiled.args_info)) == 4
    with pytest.raises(TypeError, match="Argument types differ"):
        compiled(args[0], np.zeros(9, np.float32), args[2])


@pytest.mark.parametrize("name", OURS)
def test_they_are_kept_on_request(name):
    f, _ = OURS[name]
    kept = aot.jit(f, keep_unused=True)
    lowered = kept.lower(*arguments())
    assert parameters(lowered.as_text()) == 4 + len(lowered.consts)
    for i in range(3):
        same(kept(*arguments(i)), THEIRS[name][0](*arguments(i)))
    same(lowered.compile()(*arguments(5)), THEIRS[name][0](*arguments(5)))


@pytest.mark.parametrize("name", OURS)
def test_bytes_and_exported_programs(name):
    f = aot.jit(OURS[name][0])
    want = THEIRS[name][0](*arguments(1))
    loaded = serialize_executable.deserialize_and_load(*serialize_executable.serialize(f.lower(*arguments()).compile()))
    same(loaded(*arguments(1)), want)
    assert len(loaded.in_avals) == 4
    again = serialize_executable.deserialize_and_load(*serialize_executable.serialize(loaded))
    same(again(*arguments(1)), want)
    exported = export.export(f)(*arguments())
    assert len(exported.in_avals) == 4
    same(export.deserialize(exported.serialize()).call(*arguments(1)), want)


@pytest.mark.parametrize("name", OURS)
def test_derivatives_of_jitted_functions(name):
    def gradient(m, f):
        def total(*args): return sum(m.numpy.sum(x ** 2) for x in m.tree.leaves(f(*args)))
        return m.grad(total, argnums=(0, 1, 2))(*arguments())
    same(gradient(aot, aot.jit(OURS[name][0])), gradient(jax, jax.jit(THEIRS[name][0])))


def test_what_is_donated_and_not_used_stays():
    state = {"used": jnp.ones(3), "unused": jnp.ones(4)}
    for f in (aot.jit(lambda s: s["used"] + 1, donate_argnums=0),
              aot.jit(lambda s: s["used"] + 1, donate_argnums=0).lower(state).compile()):
        for _ in range(3):
            state = {"used": jnp.ones(3), "unused": jnp.ones(4)}
            f(state)
            assert state["used"].is_deleted() and not state["unused"].is_deleted()


def test_what_is_deleted_and_not_used_does_not_matter():
    gone = jnp.ones(4)
    f = aot.jit(lambda x, y: x + 1)
    f(jnp.ones(3), gone), f(jnp.ones(3), gone)
    gone.delete()
    assert f(jnp.ones(3), gone).tolist() == [2, 2, 2]


def test_one_function_with_other_uses_by_type():
    """The call that is dispatched fast looks at the program of each signature."""
    f = aot.jit(lambda x, y: x * 2 if x.ndim == 1 else x + y)
    for _ in range(3):
        assert f(jnp.ones(2), jnp.ones(2)).tolist() == [2, 2]
        assert f(jnp.ones((1, 2)), jnp.full(2, 5.0)).tolist() == [[6, 6]]


def test_static_arguments_and_keywords():
    f = aot.jit(lambda n, x, *, y, z: x * n + z, static_argnums=0)
    for n in (2, 3, 2):
        assert f(n, jnp.ones(2), y=jnp.zeros(3), z=jnp.ones(())).tolist() == [n + 1.0] * 2


def test_effects_are_uses(capfd):
    def f(x, y):
        aot.debug.print("y is {}", y)
        return x
    for _ in range(2):
        aot.jit(f)(1.0, 2.0)
    aot.effects_barrier()
    assert capfd.readouterr().out.count("y is 2.0") == 2
