"""closure_convert, fwd_and_bwd, custom_batching, compile-time evaluation, leaks, environment."""
import re
import subprocess
import sys

import numpy as np
import pytest

import aot
import aot.numpy as jnp
from aot import lax
from tests.support import compare

F = np.float32
X = np.linspace(.1, 1, 6, dtype=F).reshape(2, 3)


def test_closure_convert():
    w, c = jnp.arange(3.), 2.

    def outer(x, scale):
        f, consts = aot.closure_convert(lambda v: v * w * scale + c, x)
        assert len(consts) == 2
        return f(x, *consts).sum()
    np.testing.assert_allclose(aot.grad(outer, 1)(X, F(3)), (X * np.arange(3)).sum(), rtol=1e-6)


def test_fwd_and_bwd():
    fwd, bwd = aot.fwd_and_bwd(lambda x, y: jnp.sin(x) * y, argnums=(0, 1))
    out, residuals = fwd(X, X + 1)
    gx, gy = bwd(residuals, jnp.ones_like(X))
    np.testing.assert_allclose(out, np.sin(X) * (X + 1), rtol=1e-6)
    np.testing.assert_allclose(gx, np.cos(X) * (X + 1), rtol=1e-6)
    np.testing.assert_allclose(gy, np.sin(X), rtol=1e-6)


def batched(m, lax):
    @m.custom_batching.custom_vmap
    def f(x, y):
        return lax.sin(x), lax.mul(x, y)

    @f.def_vmap
    def rule(size, in_batched, x, y):       # twice the true second output, so that the rule is seen to be used
        assert size == 2
        z = lax.mul(x, y) if in_batched[1] else lax.mul(x, lax.broadcast(y, (size,)))
        return (lax.sin(x), lax.mul(F(2), z)), (True, True)
    return f


ROWS = [
    ("call", lambda m, lax: batched(m, lax), X[0], X[1]),
    ("vmap", lambda m, lax: m.vmap(batched(m, lax)), X, X + 1),
    ("vmap of one", lambda m, lax: m.vmap(batched(m, lax), (0, None)), X, X[0]),
    ("jit of vmap", lambda m, lax: m.jit(m.vmap(batched(m, lax))), X, X + 1),
    ("jvp of vmap", lambda m, lax: lambda x, y: m.jvp(m.vmap(batched(m, lax)), (x, y), (y, x)), X, X + 1),
    ("vmap of jvp", lambda m, lax: m.vmap(lambda x, y: m.jvp(batched(m, lax), (x, y), (y, x))), X, X + 1),
    ("sequential", lambda m, lax: m.jit(m.vmap(m.custom_batching.sequential_vmap(lambda x, y: {"a": lax.mul(x, y)}), (0, None))),
     X, X[0]),
]


@pytest.mark.parametrize("call, args", [pytest.param(r[1], r[2:], id=r[0]) for r in ROWS])
def test_custom_batching(call, args):
    pytest.importorskip("jax.custom_batching")
    compare(call, *args)


def test_grad_of_custom_vmap():
    """Unlike in jax 0.10.2; without a batch the function itself is differentiated."""
    gx, gy = aot.grad(lambda x, y: batched(aot, lax)(x, y)[1].sum(), (0, 1))(X[0], X[1])
    np.testing.assert_allclose(gx, X[1])
    np.testing.assert_allclose(gy, X[0])


def test_ensure_compile_time_eval():
    @aot.jit
    def f(x):
        with aot.ensure_compile_time_eval():
            n = int(jnp.ones((2, 3)).sum())
        return jnp.zeros(n) + x
    assert f(1.).shape == (6,)


def custom_product():
    f = aot.custom_vjp(lambda x, y: x * y)
    f.defvjp(lambda x, y: (x * y, (x, y)), lambda r, g: (g * r[1], g * r[0]))
    return f


def custom_sine():
    f = aot.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (f(*p), t[0] * jnp.cos(p[0])))
    return f


KEPT = {
    "custom_jvp": lambda x: custom_sine()(x + 1),
    "custom_vjp": lambda x: custom_product()(x + 1, x),
    "custom_gradient": lambda x: aot.custom_gradient(lambda v: (v * 2, lambda g: g * 2))(x + 1),
    "custom_vmap": lambda x: aot.vmap(aot.custom_batching.sequential_vmap(lambda v: v * 2))(x + 1),
    "checkpoint": lambda x: aot.checkpoint(lambda v: jnp.sin(v) * x)(x + 1),
    "jit": lambda x: aot.jit(lambda v: v * x)(x + 1),
    "loops": lambda x: lax.scan(lambda c, v: (c + v * x.sum(), c), 0., x)[1],
    "branches": lambda x: lax.cond(x[0] > 0, lambda: x * 2, lambda: x),
    "linearize": lambda x: aot.linearize(lambda v: v * x, x)[1](x),
    "vjp": lambda x: aot.vjp(lambda v: custom_sine()(v) * x, x)[1](x)[0],
    "callbacks": lambda x: aot.pure_callback(lambda v: v, x, lax.stop_gradient(x)),
    "make_jaxpr": lambda x: aot.make_jaxpr(lambda v: v * x)(x) and x,
    "solvers": lambda x: lax.custom_linear_solve(lambda v: v * x[0], x, lambda mv, b: b / x[0], lambda mv, b: b / x[0]),
    "library": lambda x: aot.nn.relu(x) + aot.nn.gelu(x) + aot.scipy.special.logsumexp(x),
}


@pytest.mark.parametrize("name", KEPT)
def test_nothing_keeps_a_finished_trace(name):
    f = KEPT[name]
    with aot.checking_leaks():
        aot.jit(f)(X[0])
        aot.jacrev(aot.jit(f))(X[0])
        aot.jit(aot.jacrev(f))(X[0])


def test_leaks_are_found():
    saved = []
    with aot.check_tracer_leaks(True):
        aot.jit(lambda x: {"a": [x, jnp.where(x > 0, x, 1)]})(jnp.arange(3.))
        with pytest.raises(Exception, match="Leaked"):
            aot.jit(lambda x: (saved.append(x), x)[1])(2.)


def scoped(m):
    def f(x):
        with m.named_scope("outer"):
            with m.named_scope("inner"):
                y = m.numpy.sin(x)
            y = m.jit(lambda v: v * 2)(y)
            y = m.lax.cond(y.sum() > 0, m.named_scope("branch")(m.numpy.cos), lambda v: v, y)
        return m.named_call(lambda v: v.sum(), name="total")(y)
    return f


def test_named_scopes():
    def run(m, lax):
        def names(x):
            return {str(e.source_info.name_stack) for e in m.make_jaxpr(scoped(m))(x).jaxpr.eqns}
        return lambda x: [scoped(m)(x), m.grad(scoped(m))(x), sorted(names(x)) == ["outer", "outer/inner", "total"]]
    compare(run, X)
    for f, names in ((scoped(aot), {"outer/inner/sin", "outer/branch/cos", "total/reduce_sum"}),
                     (aot.grad(scoped(aot)), {"jvp(outer)/inner/cos", "transpose(jvp(outer))/inner/mul"})):
        assert names <= set(re.findall(r'op_name="([^"]*)"', aot.jit(f).lower(X).compile().as_text()))
    assert 'loc("outer/inner/scoped.<locals>.f"(' in aot.jit(scoped(aot)).lower(X).located_text()
    assert " loc(" not in aot.jit(scoped(aot)).lower(X).as_text()
    f = aot.jit(lambda v: jnp.sin(v) + 1)
    with aot.named_scope("first"):      # traced here, named by the place of each call
        f(X)
    inner = aot.make_jaxpr(f)(X).jaxpr.eqns[0].params["jaxpr"]
    assert {str(e.source_info.name_stack) for e in inner.eqns} == {""}
    assert str(aot.extend.source_info_util.current_name_stack()) == ""


def _two_scopes(m):
    def f(x, w):
        with m.named_scope("layer"):
            x = m.numpy.tanh(x @ w)
        with m.named_scope("head"), m.named_scope("(odd"):
            return (m.numpy.sin(x) * x).sum()
    return f


#  transforms of a function with scopes
SCOPED = {"none": lambda m, f: f, "grad": lambda m, f: m.grad(f, (0, 1)), "vmap": lambda m, f: m.vmap(f, (0, None)),
          "jvp": lambda m, f: lambda x, w: m.jvp(f, (x, w), (x, w)), "vmap of grad": lambda m, f: m.vmap(m.grad(f, (0, 1)), (0, None)),
          "grad of vmap": lambda m, f: m.grad(lambda x, w: m.vmap(f, (0, None))(x, w).sum(), (0, 1)),
          "vjp": lambda m, f: lambda x, w: m.vjp(f, x, w)[1](1.0),
          "in a scope": lambda m, f: m.named_scope("around")(m.grad(f)), "linearize": lambda m, f: lambda x, w: m.linearize(f, x, w)[1](x, w)}


@pytest.mark.parametrize("how", SCOPED)
def test_scopes_under_transforms(how):
    jax = pytest.importorskip("jax")
    x, w = np.ones((2, 3, 4) if "vmap" in how else (3, 4), np.float32), np.ones((4, 4), np.float32)

    def scopes(m):
        text = m.jit(SCOPED[how](m, _two_scopes(m))).lower(x, w).as_text(debug_info=True)
        found = re.findall(r'"([^"]*(?:layer|head)[^"]*)"', text)
        return {re.sub(r"^jit\([^/]*\)/", "", name).rpartition("/")[0] for name in found}
    assert scopes(aot) == scopes(jax)


def test_environment(capsys):
    assert aot.device_count() == len(aot.devices()) >= 1 and aot.default_backend() == "cpu"
    assert aot.process_index() == 0 and aot.process_count() == 1
    x = jnp.arange(3.)
    assert any(y is x for y in aot.live_arrays())
    aot.print_environment_info()
    assert "jaxlib" in capsys.readouterr().out


def test_clear_caches():
    count = []
    f = aot.jit(lambda x: (count.append(1), x)[1])
    f(1.), f(2.)
    aot.clear_caches()
    f(3.)
    assert len(count) == 2 and float(lax.sin(0.)) == 0


# ---- platforms -----------------------------------------------------------------------------------------------------

def by_platform(x):
    return aot.lax.platform_dependent(x, cpu=jnp.sin, cuda=jnp.cos, default=jnp.exp)


@pytest.mark.parametrize("platform, op", [("cpu", "sine"), ("cuda", "cosine"), ("tpu", "exponential"), ("rocm", "exponential")])
def test_branches_are_chosen_by_the_platform_that_is_lowered_for(platform, op):
    def f(x): return aot.jit(by_platform)(x) * 2
    text = aot.jit(aot.grad(f)).trace(1.0).lower(lowering_platforms=(platform,)).as_text()
    derived = {"sine": "cosine", "cosine": "sine", "exponential": "exponential"}[op]
    assert f"stablehlo.{derived}" in text
    text = aot.jit(f).trace(1.0).lower(lowering_platforms=(platform,)).as_text()
    assert [o for o in ("sine", "cosine", "exponential") if f"stablehlo.{o}" in text] == [op]


def test_platforms_that_cannot_be_lowered_for():
    traced = aot.jit(by_platform).trace(1.0)
    for platforms in (("cpu", "cuda"), ("gpu",)):
        with pytest.raises(NotImplementedError, match="hint: lower for one platform at a time, of cpu, cuda, rocm, tpu"):
            traced.lower(lowering_platforms=platforms)
    with pytest.raises(NotImplementedError, match="lowered for cuda, which this process does not have"):
        traced.lower(lowering_platforms=("cuda",)).compile()
    with pytest.raises(TypeError):
        traced.lower(platform="cuda")
    with pytest.raises(NotImplementedError, match="no branch for platform 'tpu' and no default; it has cpu, cuda"):
        aot.jit(lambda x: aot.lax.platform_dependent(x, cpu=jnp.sin, cuda=jnp.cos)).trace(1.0).lower(lowering_platforms=("tpu",))


def test_a_fork_of_a_process_that_has_run_programs_is_warned_of():
    script = "import os, aot, aot.numpy as jnp\n" + "os.fork() or os._exit(0)\nos.wait()\n" + "jnp.ones(2)\n" + "os.fork() or os._exit(0)\n"
    done = subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr.count("RuntimeWarning: a process that has run programs is forked") == 1
