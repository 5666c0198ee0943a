"""Callbacks, debug.print and debug.breakpoint under every transform."""
import io

import numpy as np
import pytest

import aot
import aot.numpy as jnp
from aot import lax
from aot.debug import _breakpoint
from aot.experimental import io_callback

F = np.float32
X = np.arange(1, 4, dtype=F)
SCALAR, VECTOR = aot.ShapeDtypeStruct((), F), aot.ShapeDtypeStruct((3,), F)


def note(x, text="x {}", ordered=False):
    aot.debug.print(text, x, ordered=ordered)
    return x


#  name, function, argument, lines printed
PRINTS = [
    ("eager", lambda x: note(x), F(2), ["x 2.0"]),
    ("jit", aot.jit(note), X, ["x [1. 2. 3.]"]),
    ("format", aot.jit(lambda x: aot.debug.print("{a:.2f} and {0}", x, a=x)), F(2), ["2.00 and 2.0"]),
    ("static argument", aot.jit(lambda x: aot.debug.print("{} {name}", x, name="w")), F(2), ["2.0 w"]),
    ("vmap", aot.vmap(note), X, ["x 1.0", "x 2.0", "x 3.0"]),
    ("grad", aot.grad(lambda x: note(x) * x), F(3), ["x 3.0"]),
    ("grad of jit", aot.grad(aot.jit(lambda x: note(x) * x)), F(3), ["x 3.0"]),
    ("scan, ordered", aot.jit(lambda x: lax.scan(lambda c, r: (c + r, note(c, ordered=True)), F(0), x)), X,
     ["x 0.0", "x 1.0", "x 3.0"]),
    ("cond, ordered", aot.jit(lambda x: lax.cond(x[0] > 0, lambda: note(x[0], "yes {}", True), lambda: note(x[1], "no {}", True))),
     X, ["yes 1.0"]),
    ("while, ordered", aot.jit(lambda x: lax.while_loop(lambda c: c < 3, lambda c: note(c, ordered=True) + 1, x)), np.int32(0),
     ["x 0", "x 1", "x 2"]),
    ("calls, ordered", aot.jit(lambda x: aot.jit(lambda y: note(y, ordered=True) + 1)(note(x, "first {}", True)) + 1), F(0),
     ["first 0.0", "x 0.0"]),
]


@pytest.mark.parametrize("function, argument, lines", [pytest.param(*r[1:], id=r[0]) for r in PRINTS])
def test_print(function, argument, lines, capsys):
    for _ in range(2):
        aot.block_until_ready(function(argument))
        assert capsys.readouterr().out.splitlines() == lines


def test_print_refuses_what_it_cannot_format():
    for call in (lambda: aot.debug.print("x", 1.), lambda: aot.debug.print("{}"), lambda: aot.debug.print("{y}", x=1.)):
        with pytest.raises((ValueError, IndexError, KeyError)):
            call()
    with pytest.raises(ValueError, match="ordered"):
        aot.vmap(lambda x: note(x, ordered=True))(X)


def test_pure_callback():
    f = aot.jit(lambda x: aot.pure_callback(np.sin, VECTOR, x))
    np.testing.assert_allclose(f(X), np.sin(X), rtol=1e-6)
    tree = aot.jit(lambda x: aot.pure_callback(lambda d: {"s": d["a"].sum(), "n": (d["a"] * 2,)},
                                               {"s": SCALAR, "n": (VECTOR,)}, {"a": x}))(X)
    assert float(tree["s"]) == 6 and tree["n"][0].tolist() == [2, 4, 6]


@pytest.mark.parametrize("method", ["sequential", "sequential_unrolled", "expand_dims", "broadcast_all"])
def test_pure_callback_under_vmap(method):
    f = lambda x, y: aot.pure_callback(lambda a, b: np.asarray(a * b, F), SCALAR, x, y, vmap_method=method)
    np.testing.assert_allclose(aot.jit(aot.vmap(f))(X, X + 1), X * (X + 1))
    np.testing.assert_allclose(aot.vmap(f, (0, None))(X, F(2)), X * 2)


@pytest.mark.parametrize("call", [
    lambda f, x: aot.pure_callback(f, x, x, 2), lambda f, x: aot.experimental.io_callback(f, x, x, 2),
    lambda f, x: aot.debug.callback(f, x, 2), lambda f, x: aot.debug.callback(f, x, np.int32(2), ordered=True),
    lambda f, x: aot.vmap(lambda r: aot.pure_callback(f, r, r, 2, vmap_method="sequential"))(x),
])
@pytest.mark.parametrize("wrap", [lambda f: f, aot.jit], ids=["eager", "jit"])
def test_functions_called_back_get_arrays(call, wrap):
    seen = []

    def f(x, n):
        seen.append(x)
        with pytest.raises(ValueError):
            np.asarray(x)[...] = 0
        return jnp.sin(x).at[0].set(n) + (x.device == aot.devices()[0])
    x = jnp.arange(200_000.0).reshape(2, -1)
    aot.block_until_ready(wrap(lambda x: call(f, x))(x))
    assert seen and all(type(s) is aot.Array for s in seen)
    np.testing.assert_array_equal(seen[0], x if seen[0].ndim == 2 else x[0])


def test_pure_callback_with_a_custom_derivative():
    @aot.custom_jvp
    def f(x):
        return aot.pure_callback(np.sin, VECTOR, x, vmap_method="sequential")
    f.defjvp(lambda p, t: (f(*p), lax.cos(p[0]) * t[0]))
    np.testing.assert_allclose(aot.jit(aot.grad(lambda x: f(x).sum()))(X), np.cos(X), rtol=1e-6)


def boom(*_):
    raise KeyError("mine")


REFUSED = [
    ("an exception of the user", lambda x: aot.pure_callback(boom, VECTOR, x), KeyError, "mine"),
    ("another shape", lambda x: aot.pure_callback(lambda v: np.zeros(2, F), VECTOR, x), ValueError, "declared"),
    ("another kind of dtype", lambda x: aot.pure_callback(lambda v: v + 1j, VECTOR, x), TypeError, "declared"),
    ("another structure", lambda x: aot.pure_callback(lambda v: (v, v), VECTOR, x), TypeError, "declared"),
    ("a derivative", lambda x: aot.grad(lambda y: aot.pure_callback(np.sin, VECTOR, y).sum())(x), ValueError, "custom_jvp"),
    ("vmap without a method", aot.vmap(lambda x: aot.pure_callback(np.sin, SCALAR, x)), NotImplementedError, "vmap_method"),
]


@pytest.mark.parametrize("function, error, text", [pytest.param(*r[1:], id=r[0]) for r in REFUSED])
@pytest.mark.parametrize("wrap", [aot.jit, lambda f: f], ids=["jit", "eager"])
def test_callback_errors(function, error, text, wrap):
    with pytest.raises(error, match=text):
        wrap(function)(X)


def test_io_callback_runs_once_and_in_order():
    seen = []

    def record(x):
        seen.append(int(x))
        return np.int32(len(seen))

    @aot.jit
    def f(n):
        a = io_callback(record, aot.ShapeDtypeStruct((), np.int32), n, ordered=True)
        b = io_callback(record, aot.ShapeDtypeStruct((), np.int32), n + 10, ordered=True)
        io_callback(record, aot.ShapeDtypeStruct((), np.int32), n + 20, ordered=True)       # its result is unused
        return a, b
    assert [int(x) for x in f(1)] == [1, 2] and seen == [1, 11, 21]


def test_breakpoint_prompt():
    out = io.StringIO()

    @aot.jit
    def f(x):
        y = x * 2
        aot.debug.breakpoint(stdin=io.StringIO("p y\ny + 1\nnope\na\nl\nw\nu\nd\nh\nc\n"), stdout=out)
        return y
    assert float(f(F(3))) == 6
    text = out.getvalue()
    assert "array(6., dtype=float32)" in text and "7.0" in text and "NameError" in text and "x = " in text
    assert "aot.debug.breakpoint(" in text and "test_debug.py" in text


def test_breakpoint_without_input_continues():
    out = io.StringIO()
    assert float(aot.jit(lambda x: (aot.debug.breakpoint(stdin=io.StringIO(""), stdout=out), x)[1])(F(3))) == 3
    assert "continuing" in out.getvalue()


def test_breakpoint_with_a_token():
    out = io.StringIO()
    f = lambda x: aot.debug.breakpoint(token={"y": x * 2}, stdin=io.StringIO("p x\n"), stdout=out)["y"]
    value, slope = aot.jit(aot.value_and_grad(lambda x: f(x) + x))(F(3))
    assert (float(value), float(slope)) == (9, 1) and "array(3., dtype=float32)" in out.getvalue()
    with pytest.raises(ValueError, match="exclude"):
        aot.debug.breakpoint(token=F(1), ordered=True)


def test_breakpoint_quit():
    with pytest.raises(KeyboardInterrupt):
        aot.jit(lambda x: (aot.debug.breakpoint(stdin=io.StringIO("q\n"), stdout=io.StringIO()), x)[1])(F(3))


def test_help_names_every_command():
    assert all(f"\n{c}" in "\n" + _breakpoint.HELP for c in ("p", "l", "u", "c"))


def test_log(caplog):
    with caplog.at_level("INFO", "aot.debug"):
        aot.jit(lambda x: aot.debug.log("x {} {n}", x, n=2))(np.float32(1.5))
        aot.effects_barrier()
    assert caplog.messages == ["x 1.5 2"]
    with pytest.raises(ValueError, match="Unused arguments"):
        aot.debug.log("x", 3)
