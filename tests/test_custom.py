"""custom_jvp and custom_vjp under every transform, against real jax."""
import numpy as np
import pytest

import aot
from tests.support import compare, total

F = np.float32
X = np.arange(1, 7, dtype=F).reshape(2, 3) / 7


def by_jvp(m, lax):
    @m.custom_jvp
    def f(x, y):
        return lax.mul(lax.sin(x), y)

    @f.defjvp
    def rule(p, t):
        (x, y), (dx, dy) = p, t     # three times the true derivative in y, so that the rule is seen to be used
        return f(x, y), lax.add(lax.mul(dx, lax.mul(lax.cos(x), y)), lax.mul(F(3), lax.mul(lax.sin(x), dy)))
    return f


def by_vjp(m, lax):
    @m.custom_vjp
    def f(x, y):
        return lax.mul(lax.sin(x), y)
    f.defvjp(lambda x, y: (f(x, y), (x, y, lax.cos(x))),
             lambda r, ct: (lax.mul(ct, lax.mul(r[2], r[1])), lax.mul(ct, lax.mul(F(2), lax.sin(r[0])))))
    return f


def loop(m, lax, f):
    return lambda a, b: total(lax, lax.scan(lambda c, r: (f(m, lax)(c, r), c), b, a)[0])


ROWS = {
    "call": (lambda m, lax, f: f(m, lax), X, X),
    "grad": (lambda m, lax, f: m.grad(lambda a, b: total(lax, f(m, lax)(a, b)), (0, 1)), X, X),
    "jit of grad": (lambda m, lax, f: m.jit(m.grad(lambda a, b: total(lax, f(m, lax)(a, b)), (0, 1))), X, X),
    "grad of jit": (lambda m, lax, f: m.grad(m.jit(lambda a, b: total(lax, f(m, lax)(a, b))), (0, 1)), X, X),
    "vmap": (lambda m, lax, f: m.vmap(f(m, lax)), X, X),
    "vmap of grad": (lambda m, lax, f: m.jit(m.vmap(m.grad(lambda a, b: total(lax, f(m, lax)(a, b)), (0, 1)), (0, None))), X,
                     X[0]),
    "grad of vmap": (lambda m, lax, f: m.jit(m.grad(lambda a, b: total(lax, m.vmap(f(m, lax), (0, None))(a, b)), (0, 1))), X,
                     X[0]),
    "grad of vmap of jit": (lambda m, lax, f: m.jit(m.grad(lambda a, b: total(lax, m.vmap(m.jit(f(m, lax)), (0, None))(a, b)),
                                                           (0, 1))), X, X[0]),
    "scan": (lambda m, lax, f: m.jit(m.grad(loop(m, lax, f), (0, 1))), X, X[0]),
    "vmap of scan": (lambda m, lax, f: m.jit(m.vmap(m.grad(loop(m, lax, f), (0, 1)), (0, None))), np.stack([X, X]), X[0]),
    "second derivative": (lambda m, lax, f: m.jacrev(m.grad(lambda a: total(lax, f(m, lax)(a, a)))), X[0]),
    "jvp": (lambda m, lax, f: lambda a, b: m.jvp(f(m, lax), (a, b), (b, a)), X, X),
}


@pytest.mark.parametrize("f", [by_jvp, by_vjp])
@pytest.mark.parametrize("row", ROWS)
def test_custom(row, f):
    call, *args = ROWS[row]
    compare(lambda m, lax: call(m, lax, f), *args)


def nondiff(m, lax):
    apply = m.custom_vjp(lambda fun, x: fun(x), nondiff_argnums=(0,))
    apply.defvjp(lambda fun, x: (fun(x), x), lambda fun, x, ct: (lax.mul(ct, F(2)),))
    return m.grad(lambda x: apply(lax.sin, x))


def test_arguments_that_are_not_differentiated():
    compare(nondiff, F(.5))


def test_defjvps():
    def make(m, lax):
        @m.custom_jvp
        def f(x, y):
            return lax.mul(x, y)
        f.defjvps(lambda t, ans, x, y: lax.mul(t, ans), None)
        return m.grad(f, (0, 1))
    compare(make, F(2), F(3))


def test_custom_gradient():
    def make(m, lax):
        f = m.custom_gradient(lambda x: (lax.sin(x), lambda ct: (lax.mul(ct, lax.mul(F(5), x)),)))
        return m.jit(m.grad(lambda x: total(lax, f(x))))
    compare(make, X)


def test_none_cotangent_is_zero():
    def make(m, lax):
        @m.custom_vjp
        def f(x, y):
            return lax.mul(x, y)
        f.defvjp(lambda x, y: (lax.mul(x, y), None), lambda r, ct: (ct, None))
        return m.grad(f, (0, 1))
    compare(make, F(2), F(3))


def two_results(m, lax):
    @m.custom_vjp
    def f(x, y):
        return lax.mul(lax.sin(x), y), lax.cos(y)
    f.defvjp(lambda x, y: (f(x, y), (x, y)), lambda r, ct: (
        lax.add(lax.mul(ct[0], lax.mul(lax.cos(r[0]), r[1])), ct[1]), lax.sub(lax.mul(ct[0], lax.sin(r[0])), lax.mul(ct[1], lax.sin(r[1])))))
    return f


@pytest.mark.parametrize("used", [0, 1])
@pytest.mark.parametrize("dims", [(0, 0), (0, None), (None, 0), (1, 0)])
def test_results_without_cotangent_under_vmap(used, dims):
    """Where only one result is mapped, jax 0.10.2 counts the cotangent of the other once an example, so the reference is jax
    on each example."""
    jax = pytest.importorskip("jax")
    pick = lambda d: X[0, 0] if d is None else X[0] if dims != (1, 0) else X[:, :2]
    args = [pick(d) for d in dims]
    loss = lambda m, lax, f: lambda a, b: total(lax, f(a, b)[used])
    size = next(x.shape[d] for x, d in zip(args, dims) if d is not None)
    each = [jax.grad(loss(jax, jax.lax, two_results(jax, jax.lax)), (0, 1))(*[
        x if d is None else np.take(x, i, d) for x, d in zip(args, dims)]) for i in range(size)]
    expected = [sum(gs) if d is None else np.stack(gs, d) for gs, d in zip(zip(*each), dims)]
    mapped = loss(aot, aot.lax, aot.vmap(two_results(aot, aot.lax), dims))
    for f in (mapped, aot.jit(mapped)):
        for g, want in zip(aot.grad(f, (0, 1))(*args), expected):
            assert np.allclose(g, want, rtol=1e-5)


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("wanted", [(0,), (1,), (0, 1)])
def test_symbolic_zeros_of_custom_vjp(wanted, batched):
    """What fwd hears of its arguments, and bwd of its cotangents."""
    def call(m, lax):
        seen = []

        @m.custom_vjp
        def f(x, y):
            return lax.mul(x, y), lax.sin(y)

        def fwd(x, y):
            seen.append((x.perturbed, y.perturbed))
            return f(x.value, y.value), (x.value, y.value)

        def bwd(r, ct):
            seen.append(tuple(type(c).__name__ == "SymbolicZero" for c in ct))
            return lax.mul(ct[0], r[1]), lax.mul(ct[0], r[0])
        f.defvjp(fwd, bwd, symbolic_zeros=True)
        g = m.vmap(f) if batched else f

        def run(x, y):
            grads = m.grad(lambda *a: total(lax, g(*a)[0]), wanted)(x, y)
            return grads, seen
        return run
    compare(call, X[0], X[1])


# ---- custom_vjp where nothing, or not everything, is mapped ----------------------------------------------------------------

def _rule(a, b):
    """Two results, of which each depends on one argument; the rule is no derivative, so that it shows when it is used."""
    return aot.lax.sinh(a), aot.lax.cos(b)


doubled = aot.custom_vjp(_rule)
doubled.defvjp(lambda a, b: (_rule(a, b), (a, b)), lambda r, ct: (ct[0] * 2 + ct[1] * r[1], ct[1] * 3 + ct[0] * r[0]))

PARTLY_MAPPED = {
    "nothing mapped": lambda x, y: sum(doubled(x, x * 2)).sum(),
    "nothing mapped, then mapped": lambda x, y: (doubled(x, x)[0] * y).sum(),
    "one argument mapped": lambda x, y: sum(doubled(x, y)).sum(),
    "one argument mapped, the unmapped result used": lambda x, y: doubled(x, y)[0].sum(),
    "one argument mapped, the mapped result used": lambda x, y: (doubled(x, y)[1] * y).sum(),
    "both mapped": lambda x, y: sum(doubled(x * y, y)).sum(),
    "in jit": lambda x, y: aot.jit(lambda x, y: sum(doubled(x, y)).sum())(x, y),
    "in scan": lambda x, y: aot.lax.scan(lambda c, _: (sum(doubled(c, y)), None), x, None, length=2)[0].sum(),
    "in checkpoint": lambda x, y: aot.checkpoint(lambda x, y: sum(doubled(x, y)).sum())(x, y),
}


@pytest.mark.parametrize("f", PARTLY_MAPPED.values(), ids=PARTLY_MAPPED)
@pytest.mark.parametrize("size", [1, 3])
def test_derivatives_of_a_map_are_the_sum_over_its_elements(f, size):
    x, ys = np.arange(1, 4, dtype=np.float32) / 3, np.linspace(.2, 1, 3 * size, dtype=np.float32).reshape(size, 3)
    mapped = aot.grad(lambda x, ys: aot.vmap(f, (None, 0))(x, ys).sum(), (0, 1))(x, ys)
    each = [aot.grad(f, (0, 1))(x, y) for y in ys]
    assert np.allclose(mapped[0], sum(np.asarray(g) for g, _ in each), rtol=1e-5)
    assert np.allclose(mapped[1], np.stack([g for _, g in each]), rtol=1e-5)


def test_derivatives_of_a_map_over_nothing():
    x, ys = np.ones(3, np.float32), np.ones((0, 3), np.float32)
    for f in PARTLY_MAPPED.values():
        g = aot.grad(lambda x: aot.vmap(f, (None, 0))(x, ys).sum())(x)
        assert np.asarray(g).tolist() == [0, 0, 0]


def product(m, lax, kind):
    """x * y, whose rule multiplies in the other order, so that its result has another mapped axis."""
    f = getattr(m, f"custom_{kind}")(lambda x, y: lax.mul(x, y))
    if kind == "jvp":
        f.defjvp(lambda p, t: (lax.mul(p[1], p[0]), lax.add(lax.mul(t[1], p[0]), lax.mul(p[1], t[0]))))
    else:
        f.defvjp(lambda x, y: (lax.mul(y, x), (x, y)), lambda r, ct: (lax.mul(r[1], ct), lax.mul(r[0], ct)))
    return f


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
@pytest.mark.parametrize("dims", [(0, 1), (1, 0), (1, None)])
def test_rules_of_staged_calls_follow_the_axes_of_their_function(kind, dims):
    square = np.arange(9, dtype=F).reshape(3, 3) / 7
    args = [square if d is not None else square[0] for d in dims]
    compare(lambda m, lax: m.grad(lambda x, y: total(lax, lax.mul(m.jit(m.vmap(product(m, lax, kind), dims))(x, y), square)),
                                  (0, 1)), *args)


def test_a_rule_may_not_map_what_its_function_does_not():
    f = aot.custom_jvp(lambda x, y: y)
    f.defjvp(lambda p, t: (p[1], t[0] + t[1]))
    with pytest.raises(TypeError, match="depend on a mapped argument of vmap"):
        aot.jvp(lambda x: aot.jit(aot.vmap(f, (0, None)))(x, X[0]), (X,), (X,))


# ---- functions and rules that close over traced values -----------------------------------------------------------------------

def closing(m, lax, what, c):
    """sin(x) times 2 or c, with a rule that says 3 or c times cos(x)."""
    k, r = (c if w in what else F(v) for w, v in (("fun", 2), ("rule", 3)))
    if "vjp" in what:
        f = m.custom_vjp(lambda x: lax.mul(lax.sin(x), k))
        f.defvjp(lambda x: (lax.mul(lax.sin(x), k), (lax.cos(x), r)), lambda res, ct: (lax.mul(ct, lax.mul(r, res[0])),))
        return f
    f = m.custom_jvp(lambda x: lax.mul(lax.sin(x), k))
    f.defjvp(lambda p, t: (f(p[0]), lax.mul(t[0], lax.mul(r, lax.cos(p[0])))))
    return f


INSIDE = {
    "jit": lambda m, lax, f: m.jit(lambda x: f(x)),
    "checkpoint": lambda m, lax, f: m.checkpoint(lambda x: f(x)),
    "scan": lambda m, lax, f: lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0],
    "cond": lambda m, lax, f: lambda x: lax.cond(lax.gt(x, F(0)), lambda x: f(x), lambda x: x, x),
    "vmap": lambda m, lax, f: lambda x: total(lax, m.vmap(f)(lax.broadcast(x, (2,)))),
    "scan of jit": lambda m, lax, f: lambda x: lax.scan(lambda c, _: (m.jit(lambda x: f(x))(c), None), x, None, length=2)[0],
}


def derivatives(m, lax, inside):
    def run(c, x):
        grads = [m.grad(INSIDE[inside](m, lax, closing(m, lax, w, c)))(x)
                 for w in ("jvp fun", "jvp rule", "vjp fun", "vjp rule", "vjp fun rule")]
        return grads, m.jvp(INSIDE[inside](m, lax, closing(m, lax, "jvp fun rule", c)), (x,), (c,))
    return run


@pytest.mark.parametrize("inside", INSIDE)
def test_closures_over_traced_values(inside):
    """The reference is jax without staging: staged, it refuses some of these."""
    jax = pytest.importorskip("jax")
    cs, x = np.array([.7, .2], F), F(.4)
    with jax.disable_jit():
        expected = jax.tree_util.tree_map(lambda *v: np.stack(v), *[derivatives(jax, jax.lax, inside)(c, x) for c in cs])
    ours = derivatives(aot, aot.lax, inside)
    for got in (aot.jit(aot.vmap(ours, (0, None)))(cs, x), aot.lax.map(lambda c: ours(c, x), cs)):
        for a, b in zip(aot.tree_util.tree_leaves(got), jax.tree_util.tree_leaves(expected), strict=True):
            assert np.allclose(a, b, rtol=1e-5), (a, b)


def closed_over(m, lax, inside, kind, wanted):
    """A rule that closes over nothing, a function that closes over a differentiated value."""
    def f(c, x):
        custom = m.custom_jvp(lambda x: lax.mul(lax.sin(x), c)) if kind == "jvp" else m.custom_vjp(lambda x: lax.mul(lax.sin(x), c))
        if kind == "jvp":
            custom.defjvp(lambda p, t: (lax.sin(p[0]), t[0]))
        else:
            custom.defvjp(lambda x: (lax.sin(x), None), lambda _, ct: (ct,))
        return INSIDE[inside](m, lax, custom)(x)
    return m.grad(f, wanted)


@pytest.mark.parametrize("inside", ["jit", "scan", "checkpoint"])
@pytest.mark.parametrize("kind", ["jvp", "vjp"])
@pytest.mark.parametrize("wanted", [(0,), (0, 1)])
def test_derivatives_of_what_a_custom_function_closes_over(inside, kind, wanted):
    compare(lambda m, lax: closed_over(m, lax, inside, kind, wanted), F(.3), F(.4))
    if kind == "vjp":
        with pytest.raises(TypeError, match="closes over a value that is differentiated"):
            closed_over(aot, aot.lax, inside, kind, wanted)(F(.3), F(.4))


def test_rules_that_close_over_a_finished_trace_say_so():
    def f(x):
        return aot.jit(lambda c, x: closing(aot, aot.lax, "jvp rule", c)(x))(F(2), x)
    with pytest.raises(aot.errors.UnexpectedTracerError, match="rule of a custom derivative"):
        aot.grad(f)(F(.5))


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_rules_may_index_by_traced_values_what_was_given_as_a_numpy_array(kind):
    def squares(x):
        return aot.lax.fori_loop(0, 3, lambda i, total: total + x[i] ** 2, 0.)
    f = getattr(aot, f"custom_{kind}")(lambda x: (x ** 2).sum())
    if kind == "jvp":
        f.defjvp(lambda p, t: (squares(*p), 2 * aot.numpy.vdot(p[0], t[0])))
    else:
        f.defvjp(lambda x: (squares(x), x), lambda x, g: (aot.lax.fori_loop(
            0, 3, lambda i, out: out.at[i].set(2 * g * x[i]), aot.numpy.zeros(3)),))
    x = np.array([1, 2, 3], F)
    assert aot.grad(f)(x).tolist() == [2, 4, 6] and aot.vjp(f, x)[1](F(1))[0].tolist() == [2, 4, 6]
    assert aot.jit(aot.grad(f))(x).tolist() == [2, 4, 6]
