"""`aot check`: each rule on a function that breaks it and on one that does not; the command."""
import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import aot
import aot.numpy as jnp
from aot import check, lax, random

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


ROWS = [
    (prints, F32, "side effect", "debug.print"), (writes_global, F32, "global write", "return"),
    (appends, F32, "global write", "return"), (draws, F32, "side effect", "aot.random"),
    (calls_helper, F32, "side effect", "scan"),
    (lambda x: x @ BIG[:3], F32, None, None), (lambda x: (x.sum() * BIG).sum(), F32, "large constant", "argument"),
    (lambda x: aot.pure_callback(np.sin, F32, x), F32, "host callback", "outside"),
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
