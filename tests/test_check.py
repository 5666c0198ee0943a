"""`aot check`: each rule on a function that breaks it and on one that does not; the command."""
import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import aot
import aot.numpy as jnp
from aot import check, lax, nn, random
from aot.extend.core import Primitive
from aot.interpreters import mlir

F32 = aot.ShapeDtypeStruct((3,), np.float32)
KEY = aot.ShapeDtypeStruct((), random.key(0).dtype)
BIG = np.ones((600, 600), np.float32)
log = []
counter = 0


def prints(x):
    print("x is", x)
    return x


def writes_global(x):
    global counter
    counter += 1
    return x


def appends(x):
    log.append(x)
    return x


def draws(x):
    return x + np.random.normal(size=3)


def helper(x):
    return next(iter([x]))


def calls_helper(x):
    return helper(x)


def pure(x):
    parts = []
    parts.append(jnp.sin(x))
    return jnp.stack(parts).sum(0)


sine_p = Primitive("sine_of_the_host")
sine_p.def_abstract_eval(lambda x: x)
mlir.register_lowering(sine_p, mlir.lower_fun(lambda x: aot.pure_callback(np.sin, F32, x), multiple_results=False))

ROWS = [
    (prints, F32, "side effect", "debug.print"), (writes_global, F32, "global write", "return"),
    (appends, F32, "global write", "return"), (draws, F32, "side effect", "aot.random"),
    (calls_helper, F32, "side effect", "scan"),
    (lambda x: x @ BIG[:3], F32, None, None), (lambda x: (x.sum() * BIG).sum(), F32, "large constant", "argument"),
    (lambda x: aot.pure_callback(np.sin, F32, x), F32, "host callback", "outside"),
    (lambda x: sine_p.bind(x), F32, "host callback", "outside"),
    (lambda x: jnp.where(x > 0, jnp.log(x), 0), F32, "nan derivative", "safe"),
    (lambda x: lax.select(x > 0, jnp.sqrt(x), x), F32, "nan derivative", "safe"),
    (lambda x: jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 1)), 0), F32, None, None),
    (lambda k: random.normal(k) + random.uniform(k), KEY, "key reuse", "split"),
    (lambda k: random.normal(random.fold_in(k, 1)) + random.uniform(k), KEY, None, None), (pure, F32, None, None),
]


@pytest.mark.parametrize("f, arg, rule, fix", ROWS)
def test_rules(f, arg, rule, fix):
    found = check.check(f, [arg])
    assert [x.rule for x in found] == ([] if rule is None else [rule])
    for x in found:
        assert fix in x.fix and "test_check.py:" in x.place


def command(tmp_path, *args):
    (tmp_path / "model.py").write_text(textwrap.dedent("""
        import aot.numpy as jnp
        from aot import random
        def noisy(x, key):
            print(x)
            return x + random.normal(key, (3,)) + random.normal(key, (3,))
        def clean(x):
            return jnp.sin(x)
    """))
    return subprocess.run([sys.executable, "-c", "import sys; from aot.cli import main; sys.exit(main(sys.argv[1:]))", "check", *args],
                          cwd=tmp_path, capture_output=True, text=True)


def test_command(tmp_path):
    done = command(tmp_path, "model.py:clean", "--arg", "f32[3]")
    assert done.returncode == 0 and "nothing found" in done.stdout, done.stderr
    done = command(tmp_path, "model.py:noisy", "--arg", "f32[3]", "--arg", "key[]")
    assert done.returncode == 3 and "model.py:5" in done.stdout and "key reuse" in done.stdout and "fix:" in done.stdout
    done = command(tmp_path, "model.py:noisy", "--arg", "f32[3]", "--arg", "key[]", "--key-reuse", "--json")
    assert done.returncode == 3 and [f["rule"] for f in json.loads(done.stdout)["findings"]] == ["key reuse"]
    assert command(tmp_path, "model.py:missing").returncode == 1


# ---- numbers ----------------------------------------------------------------------------------------------------------------

def softmax(x): return jnp.exp(x - x.max()) / jnp.sum(jnp.exp(x - x.max()))


def two_lines(x):
    size = jnp.sqrt(jnp.sum(x * x))
    return x / size


#: bad form -> (its rule, a word of the fix), with good forms of the same
NUMBERS = {
    "norm": (lambda x: jnp.linalg.norm(x), "nan derivative", "under the root", [
        lambda x: jnp.sqrt(jnp.sum(x * x) + 1e-12), lambda x: jnp.where((n := (x * x).sum()) > 0, jnp.sqrt(jnp.where(n > 0, n, 1)), 0),
        lambda x: jnp.sqrt(jnp.maximum(jnp.sum(x**2), 1e-12)), lambda x: jnp.sqrt(x), lambda x: jnp.sqrt(1 + x**2)]),
    "distance": (lambda x: jnp.sqrt(jnp.sum((x - 1) ** 2, -1)), "nan derivative", "where twice", [
        lambda x: jnp.sum((x - 1) ** 2, -1), lambda x: jnp.hypot(x, 1.)]),
    "std": (lambda x: x.std(), "nan derivative", "under the root", [lambda x: jnp.sqrt(x.var() + 1e-6), lambda x: x.var()]),
    "rsqrt": (lambda x: (x - x.mean()) * lax.rsqrt(x.var()), "nan derivative", "under the root", [
        lambda x: (x - x.mean()) * lax.rsqrt(x.var() + 1e-6)]),
    "fractional power": (lambda x: x ** 0.5, "nan derivative", "maximum", [
        lambda x: jnp.maximum(x, 1e-12) ** 0.5, lambda x: (x**2 + 1) ** 0.5, lambda x: x**2, lambda x: x**3]),
    "computed power": (lambda x: jnp.abs(x) ** x.sum(), "nan derivative", "keep the base", [
        lambda x: jnp.maximum(jnp.abs(x), 1e-12) ** x.sum(), lambda x: jnp.exp(x) ** x.sum(), lambda x: 2. ** x]),
    "arctan2": (lambda x: jnp.arctan2(x, x), "nan derivative", "make one of them safe", [
        lambda x: jnp.arctan2(x, jnp.where(x == 0, 1, x)), lambda x: jnp.arctan2(x, 1.), lambda x: jnp.arctan2(x, x**2 + 1)]),
    "log of softmax": (lambda x: jnp.log(nn.softmax(x)), "log of zero", "log_softmax", [
        lambda x: nn.log_softmax(x), lambda x: jnp.log(nn.softmax(x) + 1e-8)]),
    "log of own softmax": (lambda x: jnp.log(softmax(x)), "log of zero", "log_softmax", [softmax]),
    "log of sigmoid": (lambda x: jnp.log(nn.sigmoid(x)), "log of zero", "log_sigmoid", [
        lambda x: nn.log_sigmoid(x), lambda x: jnp.log(jnp.clip(nn.sigmoid(x), 1e-6, 1 - 1e-6))]),
    "log of 1 - sigmoid": (lambda x: jnp.log(1 - nn.sigmoid(x)), "log of zero", "log_sigmoid(-x)", [lambda x: nn.log_sigmoid(-x)]),
    "log of a count": (lambda x: jnp.log(jnp.abs(x).sum()), "log of zero", "maximum", [
        lambda x: jnp.log(jnp.maximum(jnp.abs(x), 1e-6)), lambda x: jnp.log(1 + x**2), lambda x: jnp.log(x), lambda x: jnp.log1p(x**2)]),
    "log1p": (lambda x: jnp.log1p(-nn.sigmoid(x)), "log of zero", "above -1", [lambda x: jnp.log1p(jnp.abs(x)), lambda x: jnp.log1p(x)]),
    "own logsumexp": (lambda x: jnp.log(jnp.sum(jnp.exp(x))), "overflow", "logsumexp", [
        lambda x: nn.logsumexp(x), lambda x: jnp.log(jnp.sum(jnp.exp(x - x.max()))) + x.max(),
        lambda x: jnp.log(jnp.sum(jnp.exp(jnp.tanh(x))))]),
    "own softmax": (lambda x: jnp.exp(x) / jnp.sum(jnp.exp(x)), "overflow", "nn.softmax", [lambda x: nn.softmax(x)]),
    "share of a sum": (lambda x: x / x.sum(), "division by zero", "maximum", [
        lambda x: x / (jnp.abs(x).sum() + 1e-8), lambda x: x / jnp.maximum(x.sum(), 1e-8), lambda x: x / 3, lambda x: x / x.shape[0],
        lambda x: x / jnp.where((s := x.sum()) == 0, 1, s), lambda x: jnp.arange(3) / 3 + x]),
    "mean of a mask": (lambda x: (x * (x > 0)).sum() / (x > 0).sum(), "division by zero", "keep the denominator", [
        lambda x: (x * (x > 0)).sum() / jnp.maximum((x > 0).sum(), 1)]),
    "own variance": (lambda x: jnp.mean(x**2) - jnp.mean(x)**2, "cancellation", "x.var()", [
        lambda x: x.var(), lambda x: jnp.mean((x - x.mean())**2), lambda x: jnp.maximum(jnp.mean(x**2) - jnp.mean(x)**2, 0)]),
}


@pytest.mark.parametrize("row", NUMBERS)
def test_numbers(row):
    bad, rule, fix, good = NUMBERS[row]
    found = check.check(bad, [F32], ["jaxpr"])
    assert [f.rule for f in found] == [rule] and fix in found[0].fix and "test_check.py:" in found[0].place
    for i, f in enumerate(good):
        assert not check.check(f, [F32], ["jaxpr"]), i


def test_numbers_are_those_of_the_function_itself():
    """Derivatives divide by what the function does not: no alarm; vmap: ranges are those of one example."""
    for row in ("norm", "arctan2", "own logsumexp"):
        bad, _, _, good = NUMBERS[row]
        assert not [f for g in good for f in check.check(g, [F32], ["jaxpr"], lambda f: aot.grad(lambda x: jnp.sum(f(x))))]
        assert len(check.check(bad, [aot.ShapeDtypeStruct((2, 3), np.float32)], ["jaxpr"], aot.vmap)) == 1


def test_numbers_name_each_line():
    found = check.check(two_lines, [F32], ["jaxpr"])
    assert [f.rule for f in found] == ["nan derivative", "division by zero"] and len({f.place for f in found}) == 2


LIBRARY = ("relu relu6 gelu silu elu selu celu softplus log_sigmoid sigmoid softmax log_softmax logsumexp standardize glu mish "
           "hard_tanh leaky_relu squareplus soft_sign sparse_plus").split()


@pytest.mark.parametrize("name", LIBRARY)
def test_no_alarm_on_the_library_itself(name):
    f = getattr(nn, name)
    assert not check.check(lambda x: f(x), [aot.ShapeDtypeStruct((4,), np.float32)], ["jaxpr"])


SAMPLERS = {
    "poisson": lambda k, x: random.poisson(k, x, (3,)), "gamma": lambda k, x: random.gamma(k, x),
    "binomial": lambda k, x: random.binomial(k, 5., x), "beta": lambda k, x: random.beta(k, x, x),
    "dirichlet": lambda k, x: random.dirichlet(k, jnp.stack([x, x])), "t": lambda k, x: random.t(k, x),
    "in jit": lambda k, x: aot.jit(lambda k: random.poisson(k, x))(k),
    "in scan": lambda k, x: lax.scan(lambda c, k: (c, random.poisson(k, c)), x, random.split(k, 2)),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_no_alarm_on_samplers(name):
    assert not check.check(SAMPLERS[name], [KEY, aot.ShapeDtypeStruct((), np.float32)], ["jaxpr"])


def test_what_is_done_with_samples_is_checked():
    found = check.check(lambda k: aot.jit(lambda k: 1 / jnp.sum(random.poisson(k, 3., (4,)) * 1.))(k), [KEY], ["jaxpr"])
    assert [f.rule for f in found] == ["division by zero"]


def test_what_depends_on_no_argument_has_no_derivative():
    assert not check.check(lambda k: random.maxwell(k, (3,)), [KEY], ["jaxpr"])
    assert not check.check(lambda x: jnp.linalg.norm(lax.stop_gradient(x)), [F32], ["jaxpr"])


def test_a_rule_of_ones_own_is_no_alarm():
    @aot.custom_jvp
    def safe_norm(x): return jnp.sqrt(jnp.sum(x * x))

    @safe_norm.defjvp
    def rule(p, t): return safe_norm(*p), jnp.sum(p[0] * t[0]) / jnp.maximum(safe_norm(*p), 1e-6)
    assert not check.check(lambda x: safe_norm(x), [F32], ["jaxpr"])
