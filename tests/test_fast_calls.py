"""Calls dispatched in C++ (aot/compile/fastpath.py), which work only in processes without jax: hence some of their own."""
from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
import collections, functools, sys
import numpy as np
import aot, aot.numpy as jnp
from aot.dispatch import PjitFunction

Pair = collections.namedtuple("Pair", "a b")
slow, real = [], PjitFunction._call_slow

def spy(self, args, kwargs):
    slow.append(self.name)
    return real(self, args, kwargs)

PjitFunction._call_slow = spy

def fast(f, *args, **kwargs):
    "The result of the third call, after two that may take the slow path."
    f(*args, **kwargs), f(*args, **kwargs)
    slow.clear()
    out = f(*args, **kwargs)
    assert not slow, f"took the slow path: {slow}"
    return out

x = jnp.arange(4.0)
"""

CASES = {
    "arrays": "f = aot.jit(lambda a, b: a + b); assert fast(f, x, x).tolist() == [0, 2, 4, 6]",
    "numpy arrays and numbers": """
        f = aot.jit(lambda a, b: a * b)
        assert fast(f, np.arange(3, dtype=np.float32), 2).tolist() == [0, 2, 4]
        assert fast(f, 2, 3).dtype == np.int32 and fast(f, 2.0, 3).dtype == np.float32 and fast(f, True, 3).tolist() == 3""",
    "another number after arrays": """
        f = aot.jit(lambda a, b: a + b)
        assert fast(f, x, x).tolist() == [0, 2, 4, 6] and fast(f, x, 1.0).tolist() == [1, 2, 3, 4]
        assert fast(f, x, 1).tolist() == [1, 2, 3, 4] and fast(f, x, x).tolist() == [0, 2, 4, 6]""",
    "weak types are told apart": """
        f = aot.jit(lambda a, b: a + b)
        half = jnp.ones(2, jnp.bfloat16)
        assert fast(f, half, 1.0).dtype == jnp.bfloat16 and fast(f, half, jnp.float32(1)).dtype == jnp.float32
        assert fast(f, half, 2.0).dtype == jnp.bfloat16""",
    "other shapes and dtypes": """
        f = aot.jit(lambda a: a + a)
        for a in (np.ones(3, np.float32), np.ones((2, 2), np.int32), np.ones(0, np.uint8), np.float32(2), jnp.ones(3)):
            out = fast(f, a)
            assert out.shape == np.shape(a) and out.dtype == a.dtype and np.array_equal(out, 2 * np.asarray(a))""",
    "arguments by name": """
        f = aot.jit(lambda a, b=1.0, *, c=0.0: a - 2 * b + c)
        assert fast(f, x, b=x).tolist() == [0, -1, -2, -3] and fast(f, x, c=x, b=x).tolist() == [0, 0, 0, 0]
        assert fast(f, a=x).tolist() == [-2, -1, 0, 1] and fast(f, x, c=1.0).tolist() == [-1, 0, 1, 2]
        assert fast(f, x).tolist() == [-2, -1, 0, 1]""",
    "static arguments": """
        f = aot.jit(lambda a, n, *, scale=1: [a * scale] * n, static_argnames=("n", "scale"))
        assert [len(fast(f, x, n)) for n in (1, 3, 2, 1)] == [1, 3, 2, 1]
        assert fast(f, x, 1, scale=5)[0].tolist() == [0, 5, 10, 15] and fast(f, x, n=2)[1].tolist() == [0, 1, 2, 3]
        assert fast(f, x, 1, scale=2.0)[0].tolist() == [0, 2, 4, 6] and fast(f, x, 1, scale=2)[0].dtype == np.float32""",
    "equal static arguments of other types": """
        f = aot.jit(lambda a, s: a * (10 if s is True else s), static_argnums=1)
        assert fast(f, x, 1).tolist() == [0, 1, 2, 3] and fast(f, x, True).tolist() == [0, 10, 20, 30]
        assert fast(f, jnp.arange(2), 1).dtype == np.int32 and fast(f, jnp.arange(2), 1.0).dtype == np.float32""",
    "static arguments counted from the end": """
        f = aot.jit(lambda *a: a[0] * a[-1], static_argnums=-1)
        assert fast(f, x, 2).tolist() == [0, 2, 4, 6] and fast(f, x, x, 3).tolist() == [0, 3, 6, 9]""",
    "static arguments by position and by name, in any order": """
        f = aot.jit(lambda a, n, b=0.0, *, k="x", c=0.0: a * n + b - c + len(k), static_argnames=("n", "k"))
        assert fast(f, x, 2).tolist() == [1, 3, 5, 7] and fast(f, x, n=2).tolist() == [1, 3, 5, 7]
        assert fast(f, x, k="xyz", n=1).tolist() == fast(f, x, n=1, k="xyz").tolist() == [3, 4, 5, 6]
        assert fast(f, x, c=x, n=3, b=x).tolist() == fast(f, x, b=x, n=3, c=x).tolist() == [1, 4, 7, 10]
        assert fast(f, x, 3, x, c=2.0).tolist() == [-1, 3, 7, 11] and fast(f, n=2, a=x, b=1).tolist() == [2, 4, 6, 8]
        assert fast(f, x, True).tolist() == [1, 2, 3, 4] and fast(f, x, 1.0).tolist() == [1, 2, 3, 4]""",
    "functions of numpy with options": """
        m = x.reshape(2, 2)
        assert fast(jnp.sum, m, axis=0).tolist() == [2, 4] and fast(jnp.sum, m, 1).tolist() == [1, 5]
        assert fast(jnp.sum, m, axis=(0, 1), keepdims=True).tolist() == [[6]] and fast(jnp.max, m, axis=-1).tolist() == [1, 3]
        assert fast(jnp.take, m, jnp.array([1]), axis=1).tolist() == [[1], [3]] and fast(jnp.take, m, 3).tolist() == 3
        assert fast(jnp.take, m, jnp.array([9]), mode="clip").tolist() == [3] and fast(jnp.swapaxes, m, 0, 1)[0].tolist() == [0, 2]
        assert fast(jnp.sum, m, where=m > 1).tolist() == 5 and fast(jnp.sum, m, initial=2).dtype == np.float32
        assert fast(jnp.linspace, 0, 1, 3).tolist() == [0, 0.5, 1] and fast(jnp.pad, x, 1).tolist() == [0, 0, 1, 2, 3, 0]
        assert fast(jnp.linspace, 0.0, 1.0, num=3, retstep=True)[1] == 0.5
        assert jnp.take(m, jnp.array([9]), fill_value=jnp.float32(7)).tolist() == [7]""",
    "a static argument without a hash": """
        f = aot.jit(lambda a, s: a, static_argnums=1)
        fast(f, x, (1,))
        try: f(x, [1])
        except ValueError as e: assert "Non-hashable static arguments" in str(e)
        else: raise SystemExit("not refused")
        assert fast(f, x, (1,)).tolist() == [0, 1, 2, 3]""",
    "trees": """
        f = aot.jit(lambda p, q: {"a": p["w"] + q.a, "b": Pair(q.b, None), "c": (), "d": p["w"]})
        out = fast(f, {"w": x}, Pair(x, x))
        assert out["a"].tolist() == [0, 2, 4, 6] and out["b"] == Pair(out["b"].a, None) and out["c"] == ()
        assert fast(f, {"w": x}, Pair(1.0, 2))["a"].tolist() == [1, 2, 3, 4]""",
    "no results, no arguments": """
        assert fast(aot.jit(lambda a: None), x) is None and fast(aot.jit(lambda: jnp.ones(2))).tolist() == [1, 1]""",
    "a result that depends on the type of an argument": """
        f = aot.jit(lambda a: a if a.ndim else (a, a))
        for _ in range(3):
            assert f(x).tolist() == [0, 1, 2, 3] and [int(v) for v in f(jnp.int32(3))] == [3, 3]""",
    "donated arguments": """
        f = aot.jit(lambda a, *, n: a + n, donate_argnums=0, static_argnames="n")
        for n in (1, 2, 1, 1, 1):
            a = jnp.zeros(8)
            assert f(a, n=n).tolist() == [n] * 8 and a.is_deleted()
        try: f(a, n=1)
        except RuntimeError as e: assert "deleted" in str(e)
        else: raise SystemExit("not refused")""",
    "errors of the function, and the next call": """
        def g(a, n):
            if a.shape == (2,): raise KeyError("mine")
            return a
        f = aot.jit(g, static_argnums=1)
        fast(f, x, 1)
        for _ in range(2):
            try: f(jnp.ones(2), 1)
            except KeyError as e: assert e.args == ("mine",)
            else: raise SystemExit("no error")
        assert fast(f, x, 1).tolist() == [0, 1, 2, 3]""",
    "a function that raises is run once": """
        runs = []
        @aot.jit
        def f(a):
            runs.append(a.shape)
            try: return a @ jnp.ones(4)
            except TypeError as e: raise LookupError(a.shape)
        fast(f, x)
        for n in 2, 2, 3:
            try: f(jnp.ones(n))
            except LookupError as e:
                assert type(e.__context__) is TypeError and e.__cause__ is None
                frames = [t.name for t in traceback.extract_tb(e.__traceback__)]
                assert frames == ["<module>", "f"], frames
            else: raise SystemExit("no error")
        assert runs == [(4,), (2,), (2,), (3,)] and fast(f, x) == 6""",
    "options": """
        f = aot.jit(lambda a, n: a * n, static_argnums=1)
        fast(f, np.arange(3.0), 2)
        with aot.enable_x64(True):
            assert f(np.arange(3.0), 2).dtype == np.float64
        assert fast(f, np.arange(3.0), 2).dtype == np.float32
        seen = []
        g = aot.jit(lambda a, n: (seen.append(type(a)), a)[1], static_argnums=1)
        fast(g, x, 1)
        with aot.disable_jit():
            g(x, 1)
        assert len(seen) == 2 and fast(g, x, 1).tolist() == [0, 1, 2, 3]""",
    "keys": """
        f = aot.jit(lambda k, n: aot.random.bits(k, (n,)), static_argnums=1)
        a, b = fast(f, aot.random.key(0), 3), fast(f, aot.random.key(1), 3)
        assert a.tolist() == aot.random.bits(aot.random.key(0), (3,)).tolist() != b.tolist()""",
    "under transforms": """
        f = aot.jit(lambda a, n: (a * n).sum(), static_argnums=1)
        fast(f, x, 3)
        assert aot.grad(f)(x, 3).tolist() == [3] * 4 and aot.vmap(f, (0, None))(jnp.ones((2, 4)), 3).tolist() == [12, 12]
        assert fast(f, x, 3) == 18""",
    "methods": """
        class M:
            def __init__(self, s): self.s = s
            @functools.partial(aot.jit, static_argnums=0)
            def f(self, a): return a * self.s
        m, n = M(2), M(3)
        assert fast(m.f, x).tolist() == [0, 2, 4, 6] and fast(n.f, x).tolist() == [0, 3, 6, 9]""",
    "library functions": """
        assert fast(jnp.where, x > 1, x, 0).tolist() == [0, 0, 2, 3] and fast(jnp.where, x > 1, x, x).tolist() == [0, 1, 2, 3]
        assert np.allclose(fast(aot.nn.log_softmax, x), np.arange(4) - np.log(np.exp(np.arange(4)).sum()))
        assert fast(jnp.mean, x, 0) == 1.5 and fast(jnp.var, x, 0) == 1.25 and fast(jnp.var, x, ddof=1).round(3) == 1.667""",
}


#: what a process does first, and the check at its end: without jax, and where `jax` is this package
PROCESSES = {"aot": ("", "'jax' not in sys.modules"),
             "aot as jax": ("import aot.as_jax, jax, jax.numpy\n", "sys.modules['jax'].numpy is aot.numpy")}


@pytest.fixture(scope="module", params=PROCESSES)
def outcomes(request):
    """What each case printed: all run in one process, one after the other."""
    first, last = PROCESSES[request.param]
    script = first + PRELUDE + "\nimport traceback\n"
    for name, body in CASES.items():
        code = textwrap.dedent(body)
        script += (f"\nslow.clear()\ntry:\n    exec(compile({code!r}, {name!r}, 'exec'), dict(globals()))\n"
                   f"    print({name!r} + ': fine')\nexcept BaseException:\n    print({name!r} + ': ' + repr(traceback.format_exc()))\n")
    done = subprocess.run([sys.executable, "-c", script + f"\nassert {last}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", CASES)
def test_calls(outcomes, name):
    assert outcomes[name] == "fine", outcomes[name].replace("\\n", "\n")
