"""Orders of elements in memory: values never depend on them, formats are as asked, and as real jax says them."""
import importlib.util
import itertools
import subprocess
import sys

import numpy as np
import pytest

import aot
import aot.numpy as jnp
from aot.experimental.layout import Format, Layout, with_layout_constraint
from aot.layout import Layout as Parsed
from aot.sharding import SingleDeviceSharding

F = np.float32
HAS_JAX = importlib.util.find_spec("jax") is not None
HERE = SingleDeviceSharding(aot.devices()[0])
X = np.arange(24, dtype=F).reshape(2, 3, 4)
L = Format(Layout((2, 0, 1)), HERE)
W = np.arange(1200, dtype=F).reshape(30, 40)


def order(x): return x.format.layout.major_to_minor


@pytest.mark.parametrize("perm", [*itertools.permutations(range(3))], ids=str)
def test_device_put(perm):
    x = aot.device_put(X, Format(Layout(perm), HERE))
    assert order(x) == perm and x.format == Format(Layout(perm), HERE) and x.sharding == HERE
    assert np.array_equal(x, X) and x.addressable_shards[0].data.shape == X.shape and x.device == HERE._device
    assert order(aot.device_put(x, HERE)) == (0, 1, 2) and np.array_equal(aot.device_put(x, HERE), X)
    jax = pytest.importorskip("jax")
    from jax.experimental import layout as theirs
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    assert order(jax.device_put(X, theirs.Format(theirs.Layout(perm), device))) == perm


#  name, function of an array in a layout of its own -> what must be equal
USES = {
    "eager": lambda x: (x + 1, X + 1),
    "jit": lambda x: (aot.jit(lambda a: a.sum(0))(x), X.sum(0)),
    "jit of both kinds": lambda x: (aot.jit(lambda a, b: a - 2 * b)(x, X), -X),
    "grad": lambda x: (aot.grad(lambda a: (a * a).sum())(x), 2 * X),
    "vmap": lambda x: (aot.vmap(lambda a: a.T)(x), X.transpose(0, 2, 1)),
    "captured": lambda x: (aot.jit(lambda a: a + x)(X), 2 * X),
    "captured, hoisted": lambda x: (aot.jit(lambda a: a + aot.device_put(W, Format(Layout((1, 0)), HERE)))(W), 2 * W),
    "loop": lambda x: (aot.lax.fori_loop(0, 2, lambda i, a: a + x, x), 3 * X),
    "donated": lambda x: (aot.jit(lambda a: a + 1, donate_argnums=0)(x), X + 1),
    "constraint": lambda x: (aot.jit(lambda a: with_layout_constraint(a * 2, Layout((1, 0, 2))) + 1)(x), 2 * X + 1),
    "constraint, mapped": lambda x: (aot.vmap(lambda a: with_layout_constraint(a, Layout((1, 0))) + 1)(x), X + 1),
    "constraint, differentiated": lambda x: (
        aot.grad(lambda a: with_layout_constraint(a * a, Layout((1, 0, 2))).sum())(x), 2 * X),
    "put while tracing": lambda x: (aot.jit(lambda a: aot.device_put(a, L) + 1)(x), X + 1),
    "compiled for another": lambda x: (aot.jit(lambda a: a + 1, in_shardings=HERE)(x), X + 1),
    "gather": lambda x: (x[:, 1], X[:, 1]),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_values_do_not_depend_on_layouts(use):
    got, want = use(aot.device_put(X, L))
    assert np.array_equal(got, want)


def test_keys():
    keys = aot.random.split(aot.random.key(0), 6).reshape(2, 3)
    moved = aot.device_put(keys, Format(Layout((1, 0)), HERE))
    assert order(moved) == (1, 0) and np.array_equal(aot.random.key_data(moved), aot.random.key_data(keys))


def formats(m, layout, device, X):
    """Formats of a program for each way to ask, over either library."""
    fixed, auto = layout.Format(layout.Layout((2, 0, 1)), device), layout.Format(layout.Layout.AUTO)
    asked = [(None, None), (fixed, None), (None, fixed), (fixed, fixed), (None, auto), (auto, auto)]
    compiled = [m.jit(lambda a: a.T, in_shardings=i, out_shardings=o).lower(X).compile() for i, o in asked]
    return [(order_of(c.input_formats[0][0]), order_of(c.output_formats)) for c in compiled]


def order_of(f): return f.layout.major_to_minor


def test_formats_of_programs_are_those_of_jax():
    jax = pytest.importorskip("jax")
    import jax.experimental.layout as theirs

    import aot.experimental.layout as ours
    assert formats(aot, ours, HERE, X) == formats(jax, theirs, jax.sharding.SingleDeviceSharding(jax.devices()[0]), X)


def test_one_automatic_result_leaves_the_others_as_asked():
    """XLA would choose all results; real jax refuses the program."""
    f = aot.jit(lambda a: (a * 2, a.T), out_shardings=(L, Format(Layout.AUTO)))
    for x in (X, jnp.asarray(X), aot.device_put(X, L)):
        doubled, turned = f(x)
        assert doubled.format == L and np.array_equal(doubled, 2 * X) and np.array_equal(turned, X.T)


BAD = {
    "rank": (ValueError, "does not order the 3 dimensions", lambda: aot.device_put(X, Format(Layout((1, 0)), HERE))),
    "twice": (ValueError, "does not order", lambda: with_layout_constraint(X, Layout((0, 0, 1)))),
    "auto put": (ValueError, "that is not AUTO", lambda: aot.device_put(X, Format(Layout.AUTO, HERE))),
    "no place": (ValueError, "needs to know its devices", lambda: Format(Layout((0, 1)))),
    "tuple": (TypeError, "hint: pass a Layout", lambda: Format((1, 0), HERE)),  # type: ignore[arg-type]
    "no layout": (TypeError, "takes Layouts", lambda: with_layout_constraint(X, (1, 0, 2)[0])),
}


@pytest.mark.parametrize("kind, message, call", BAD.values(), ids=BAD)
def test_refused(kind, message, call):
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize("text", ["{}", "{0}", "{1,0}", "{1,0,2}", "{1,0:T(8,128)}", "{1,0:T(8,128)(2,1)}", "{0,1:E(4)}"])
def test_text_of_layouts(text):
    assert Parsed.parse(text).text == text


def test_memory_of_other_libraries():
    """Columns first stays columns first, without a copy; values are right.  Also where jax is not in the process."""
    code = """
import sys, numpy as np, aot
from aot.dtypes import bfloat16
X = np.arange(12, dtype=np.float32).reshape(3, 4)
f = aot.jit(lambda x: x + 1)
raw = np.zeros(128, np.uint8)
columns = raw[-raw.ctypes.data % 64:][:48].view(np.float32).reshape(4, 3).T       # aligned, so that it is not copied
columns[:] = X
for x in (columns, X, np.asfortranarray(X), X.T, aot.numpy.asarray(X), aot.numpy.asarray(X, bfloat16), X.astype(np.int8)):
    y = aot.dlpack.from_dlpack(x)
    assert y.dtype == x.dtype
    for got in (y, f(y) - 1, f(y) - 1, f(y) - 1, y * 1):
        assert np.array_equal(np.asarray(got, np.float32), np.asarray(x, np.float32)), x
assert aot.dlpack.from_dlpack(columns).format.layout.major_to_minor == (1, 0)
assert ("jax" in sys.modules) == WITH
"""
    for first in ("WITH = False", "import jax; WITH = True")[:1 + HAS_JAX]:
        done = subprocess.run([sys.executable, "-c", f"{first}\n{code}"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]


def test_calls_dispatched_in_cpp():
    """The same in a process without jax, where calls that are repeated go through another path."""
    code = """
import itertools, sys, numpy as np, aot
from tests.test_layout import HERE, L, X, Format, Layout
kinds = {"numpy": X, "default": aot.numpy.asarray(X), "laid out": aot.device_put(X, L)}
for asked in ({}, {"in_shardings": L}, {"in_shardings": HERE}, {"in_shardings": Format(Layout((1, 2, 0)), HERE)}):
    for a, b in itertools.permutations(kinds, 2):
        f = aot.jit(lambda x: x * 2, out_shardings=L, **asked)
        for name in (a, a, b, a, b, b, a):
            y = f(kinds[name])
            assert np.array_equal(y, 2 * X) and y.format == L, (asked, a, b, name)
assert "jax" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
