"""Symbolic sizes: arithmetic, constraints, and the shapes that `eval_shape` finds.  The expected texts are jax's."""
from __future__ import annotations

import numpy as np
import pytest

import aot
import aot.numpy as jnp
from aot import export, lax
from aot.errors import InconclusiveDimensionOperation
from tests.support import jax

F = np.float32


def struct(text: str, **options) -> aot.ShapeDtypeStruct:
    return aot.ShapeDtypeStruct(export.symbolic_shape(text, **options), F)


TEXTS = [
    ("b, 3", "(b, 3)"), ("(a)", "(a,)"), ("a", "(a,)"), ("()", "()"), ("2*a + 1, a*b", "(2*a + 1, a*b)"), ("a - a + 3", "(3,)"),
    ("floordiv(a, 2), mod(a, 3), max(a, b), a^2", "(floordiv(a, 2), mod(a, 3), max(a, b), a^2)"), ("2*a - b - a + b", "(a,)"),
]


@pytest.mark.parametrize("text, shown", TEXTS)
def test_text(text, shown):
    shape = export.symbolic_shape(text)
    assert str(shape) == shown
    if jax:
        assert str(pytest.importorskip("jax.export").symbolic_shape(text)) == shown


def test_like():
    assert str(export.symbolic_shape("a, _, ...", like=(2, 3, 4))) == "(a, 3, 4)"
    one, two = export.symbolic_args_specs((np.ones((2, 3), F), np.ones((2, 4), F)), "b, _")
    assert str((one.shape, two.shape)) == "((b, 3), (b, 4))" and one.shape[0] == two.shape[0]


def test_arithmetic():
    a, b = export.symbolic_shape("a, b")
    shown = [str(x) for x in (a + 1, 1 + a, a - 1, 2 * a, a - a, a * b, a + b - a, 5 - a, a // 1, a * 0, 2 * (a + 1), a % 4, 7 // a)]
    assert shown == ["a + 1", "a + 1", "a - 1", "2*a", "0", "a*b", "b", "-a + 5", "a", "0", "2*a + 2", "mod(a, 4)", "0"]
    assert type(a - a) is int and a + 0 == a and hash(a + 0) == hash(a) and a != b and a != 3 and divmod(a, 2) == (a // 2, a % 2)
    assert export.is_symbolic_dim(a) and not export.is_symbolic_dim(3) and a != export.symbolic_shape("a")[0]


@pytest.mark.parametrize("compare, answer", [
    (lambda a, b, c: a >= 1, True), (lambda a, b, c: a >= 0, True), (lambda a, b, c: a > 0, True), (lambda a, b, c: a + 1 >= 2, True),
    (lambda a, b, c: a < 1, False), (lambda a, b, c: a <= 0, False), (lambda a, b, c: c >= 4, True), (lambda a, b, c: c + 1 > 4, True),
    (lambda a, b, c: a + b >= a, True), (lambda a, b, c: 3 - c >= 0, False), (lambda a, b, c: a - a >= 0, True),
    (lambda a, b, c: a >= 5, None), (lambda a, b, c: a >= b, None), (lambda a, b, c: a < b, None), (lambda a, b, c: a * b >= 5, None),
])
def test_comparison(compare, answer):
    a, b, c = export.symbolic_shape("a, b, c", constraints=["c >= 4"])
    if answer is None:
        with pytest.raises(InconclusiveDimensionOperation, match="depends on the sizes.*hint"):
            compare(a, b, c)
    else:
        assert compare(a, b, c) is answer


#: name -> function, shapes of its arguments in one scope, and of its result
SHAPES = {
    "elementwise": (jnp.sin, ["b, 3"], "(b, 3)"),
    "reshape": (lambda x: x.reshape(-1), ["b, 3"], "(3*b,)"),
    "product": (lambda x: x.reshape(-1), ["a, b"], "(a*b,)"),
    "product with 2": (lambda x: jnp.concatenate([x.reshape(-1)] * 2), ["a, b"], "(2*a*b,)"),
    "concatenate": (lambda x: jnp.concatenate([x, x, jnp.ones((1, 3))]), ["b, 3"], "(2*b + 1, 3)"),
    "sum of two": (lambda x, y: jnp.concatenate([x, y]), ["b,", "a,"], "(b + a,)"),
    "matmul": (lambda x: x @ x.T, ["b, 3"], "(b, b)"),
    "reduction": (lambda x: x.sum(0), ["b, 3"], "(3,)"),
    "slice": (lambda x: x[1:], ["b, 3"], "(b - 1, 3)"),
    "strided": (lambda x: x[::2], ["b, 3"], "(floordiv(b + 1, 2), 3)"),
    "grad": (aot.grad(lambda x: (x ** 2).sum()), ["b, 3"], "(b, 3)"),
    "scan": (lambda x: lax.scan(lambda c, t: (c + t.sum(), t * 2), 0., x)[1], ["b, 3"], "(b, 3)"),
    "padded": (lambda x: jnp.pad(x, 2), ["2*b"], "(2*b + 4,)"),
    "equal sizes": (lambda x, y: x + y, ["b, c", "b, c"], "(b, c)"),
}


@pytest.mark.parametrize("fun, shapes, expected", SHAPES.values(), ids=SHAPES)
def test_eval_shape(fun, shapes, expected):
    scope = export.SymbolicScope(["b >= 2"])
    found = aot.eval_shape(fun, *[struct(s, scope=scope) for s in shapes])
    assert str(found.shape) == expected.replace("b + a", "a + b") or str(found.shape) == expected
    assert found.dtype == F


def test_eval_shape_of_trees_and_known_arguments():
    found = aot.eval_shape(lambda d, w, n: {"y": d["x"] @ w * n, "n": jnp.ones(2)}, {"x": struct("b, 3")}, jnp.ones((3, 5)), 2)
    assert str({k: v.shape for k, v in found.items()}) == "{'n': (2,), 'y': (b, 5)}"


def test_sizes_without_a_simple_form_are_functions():
    n, = aot.eval_shape(lambda x: x[:max(1, x.shape[0] ** 2 % 57)], struct("b,")).shape
    assert str(n) == "f(b)" and export.is_symbolic_dim(n)


@pytest.mark.parametrize("constraints, text, holds", [
    (["b >= 2"], "b", lambda b: b >= 2), (["mod(b, 8) == 0"], "b", lambda b: b % 8 == 0), (["b <= 5"], "b", lambda b: b <= 5),
    (["c == 2*b"], "b, c", lambda b, c: c == 2 * b), (["b <= c"], "c, b", lambda c, b: b <= c), (["b > 3", "b < 9"], "b", lambda b: 3 < b < 9),
])
def test_samples_satisfy_constraints(constraints, text, holds):
    dims = export.symbolic_shape(text, constraints=constraints)
    assert all(holds(*at) for at in zip(*(d.values for d in dims))) and all(len(set(d.values)) > 1 for d in dims)


X = np.ones((2, 3), F)
REFUSED = {
    "export": (NotImplementedError, "only for eval_shape: every program has known sizes.*hint",
               lambda: export.export(aot.jit(jnp.sin))(struct("b, 3"))),
    "lower": (NotImplementedError, r"symbolic dimensions \(b\)", lambda: aot.jit(jnp.sin).lower(struct("b, 3"))),
    "make_jaxpr": (NotImplementedError, r"symbolic dimensions \(b\)", lambda: aot.make_jaxpr(jnp.sin)(struct("b, 3"))),
    "zeros": (TypeError, "concrete values of integer type, got b", lambda: jnp.zeros(export.symbolic_shape("b, 3"))),
    "range": (TypeError, r"symbolic dimensions \(b\)", lambda: range(export.symbolic_shape("b")[0])),
    "scopes": (ValueError, "several scopes.*hint", lambda: aot.eval_shape(jnp.add, struct("b"), struct("b"))),
    "sum of scopes": (ValueError, "two scopes.*hint", lambda: export.symbolic_shape("b")[0] + export.symbolic_shape("c")[0]),
    "text": (ValueError, "is no size.*hint", lambda: export.symbolic_shape("a +")),
    "function": (ValueError, "is no size.*hint", lambda: export.symbolic_shape("sin(a, b)")),
    "float": (ValueError, "is no size.*hint", lambda: export.symbolic_shape("1.5")),
    "constraint": (ValueError, "is no comparison.*hint", lambda: export.symbolic_shape("a", constraints=["a"])),
    "scope and constraints": (ValueError, "hint: give them to SymbolicScope",
                              lambda: export.symbolic_shape("a", constraints=["a >= 2"], scope=export.SymbolicScope())),
    "impossible": (ValueError, "satisfies the constraints", lambda: export.symbolic_shape("a", constraints=["a >= 9", "a <= 3"])),
    "structure": (NotImplementedError, "structure, ranks or dtypes",
                  lambda: aot.eval_shape(lambda x: [x] * (x.shape[0] % 5), struct("b"))),
}


@pytest.mark.parametrize("kind, message, call", REFUSED.values(), ids=REFUSED)
def test_refused(kind, message, call):
    with pytest.raises(kind, match=message):
        call()


def test_errors_name_the_sample():
    with pytest.raises(TypeError) as info:
        aot.eval_shape(jnp.add, struct("b, 3"), X)
    assert info.value.__notes__ == ["with b = 83, as a sample of the symbolic sizes"]
