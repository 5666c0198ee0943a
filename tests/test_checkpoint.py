"""checkpoint: the same derivatives, fewer residuals; policies, names, loops, memory."""
import numpy as np
import pytest

import aot
import aot.lax
from tests.support import compare, jax, total

F = np.float32
X, W = np.linspace(.1, 1, 6, dtype=F).reshape(2, 3), np.linspace(-1, 1, 9, dtype=F).reshape(3, 3)


def layer(lax, name=lambda x, n: x):
    return lambda x, w: lax.tanh(name(lax.dot(lax.sin(x), w), "z"))


def net(m, lax, **options):
    f = m.checkpoint(layer(lax), **options)
    return lambda x, w: total(lax, f(f(x, w), w))


POLICIES = [None, "everything_saveable", "nothing_saveable", "dots_saveable", "dots_with_no_batch_dims_saveable"]


@pytest.mark.parametrize("policy", POLICIES)
def test_derivatives(policy):
    options = lambda m: {} if policy is None else {"policy": getattr(m.checkpoint_policies, policy)}
    compare(lambda m, lax: m.grad(net(m, lax, **options(m)), (0, 1)), X, W)
    compare(lambda m, lax: m.jit(m.grad(net(m, lax, **options(m)), (0, 1))), X, W)
    compare(lambda m, lax: m.jit(m.hessian(net(m, lax, **options(m)))), X, W)
    compare(lambda m, lax: lambda x, w: m.jvp(net(m, lax, **options(m)), (x, w), (x, w)), X, W)
    compare(lambda m, lax: m.vmap(m.grad(net(m, lax, **options(m))), (None, 0)), X, np.stack([W, W + 1]))
    compare(lambda m, lax: m.grad(m.jit(net(m, lax, prevent_cse=False, **options(m)))), X, W)


def test_in_scan():
    def f(m, lax):
        body = m.checkpoint(lambda c, w: (layer(lax)(c, w), total(lax, c)))
        return m.jit(m.grad(lambda x, ws: total(lax, lax.scan(body, x, ws)[0]), (0, 1)))
    compare(f, X, np.stack([W] * 3))


def names(f, *args):
    return sorted(a.str_short() for a, _ in aot.ad_checkpoint.saved_residuals(f, *args))


def test_what_is_saved():
    name = aot.ad_checkpoint.checkpoint_name
    policies = aot.checkpoint_policies
    plain = layer(aot.lax, name)
    assert len(names(plain, X, W)) > 2
    assert names(aot.checkpoint(plain), X, W) == ["f32[2,3]", "f32[3,3]"]                      # the arguments
    assert names(aot.checkpoint(plain, policy=policies.save_only_these_names("z")), X, W) == [
        "f32[2,3]", "f32[2,3]", "f32[3,3]"]
    assert names(aot.checkpoint(plain, policy=policies.save_only_these_names("y")), X, W) == ["f32[2,3]", "f32[3,3]"]


def test_static_arguments_and_keywords():
    f = aot.checkpoint(lambda n, x, *, k: aot.lax.integer_pow(x, n) * k, static_argnums=0)
    assert float(aot.grad(lambda x: f(3, x, k=2.))(2.)) == 24.


def temp_bytes(compiled):
    return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("steps", [1000])
def test_memory_of_a_long_scan(steps):
    """Residuals of the policy only: temporary memory within 1.1 of jax's."""
    w, x = np.ones((64, 64), F) / 64, np.ones((64,), F)

    def program(m, lax):
        @m.checkpoint
        def body(c, _):
            for _ in range(4):
                c = lax.tanh(lax.dot(w, lax.sin(c)))
            return c, None
        return m.jit(m.grad(lambda x: total(lax, lax.scan(body, x, None, length=steps)[0]))).lower(x).compile()
    assert temp_bytes(program(aot, aot.lax)) <= 1.1 * temp_bytes(program(jax, jax.lax))
