"""Key reuse through jit, control flow and vmap."""
import pytest

import aot
from aot import lax, random

KEY = random.key(0)


def draw(key):
    return random.normal(key)


@aot.jit
def jitted(key):
    return draw(key)


def carried(key, _):
    key, sub = random.split(key)
    return key, draw(sub)


BAD = [
    ("twice", lambda k: draw(k) + draw(k)),
    ("split and draw", lambda k: (random.split(k), draw(k))),
    ("jitted twice", lambda k: jitted(k) + jitted(k)),
    ("jitted and drawn", lambda k: jitted(k) + draw(k)),
    ("inside jit", aot.jit(lambda k: draw(k) + random.uniform(k))),
    ("captured by jit", lambda k: aot.jit(lambda x: x + draw(k))(1.) + draw(k)),
    ("both in and after cond", lambda k: lax.cond(True, draw, lambda k: 0., k) + draw(k)),
    ("the same in each step", lambda k: lax.scan(lambda c, _: (c + draw(k), None), 0., None, length=3)),
    ("a carry that stays", lambda k: lax.scan(lambda k, _: (k, draw(k)), k, None, length=3)),
    ("fori", lambda k: lax.fori_loop(0, 3, lambda i, x: x + draw(k), 0.)),
    ("while", lambda k: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1], draw(c[1])), (0, k, 0.))),
    ("scanned keys, then again", lambda k: (lambda ks: (lax.map(draw, ks), aot.vmap(draw)(ks)))(random.split(k, 3))),
    ("vmapped twice", lambda k: (lambda ks: (aot.vmap(draw)(ks), aot.vmap(draw)(ks)))(random.split(k, 3))),
    ("grad", lambda k: aot.grad(lambda x: x * draw(k))(1.) + draw(k)),
]
GOOD = [
    ("split", lambda k: [draw(s) for s in random.split(k)]),
    ("fold_in", lambda k: draw(random.fold_in(k, 1)) + draw(random.fold_in(k, 2))),
    ("clone", lambda k: draw(random.clone(k)) + draw(k)),
    ("jitted once each", lambda k: [jitted(s) for s in random.split(k)]),
    ("both branches", lambda k: lax.cond(True, draw, lambda k: random.uniform(k), k)),
    ("a carry that is split", lambda k: lax.scan(carried, k, None, length=3)),
    ("scan over keys", lambda k: lax.map(draw, random.split(k, 3))),
    ("vmap over keys", lambda k: aot.vmap(draw)(random.split(k, 3))),
    ("folded in each step", lambda k: lax.fori_loop(0, 3, lambda i, x: x + draw(random.fold_in(k, i)), 0.)),
]


@pytest.mark.parametrize("f", [pytest.param(r[1], id=r[0]) for r in BAD])
@pytest.mark.parametrize("wrap", [lambda f: f, aot.jit], ids=["eager", "jit"])
def test_reuse_is_found(f, wrap):
    with aot.debug_key_reuse(True), pytest.raises(aot.errors.KeyReuseError, match="test_key_reuse.py"):
        wrap(f)(random.clone(KEY))


@pytest.mark.parametrize("f", [pytest.param(r[1], id=r[0]) for r in GOOD])
@pytest.mark.parametrize("wrap", [lambda f: f, aot.jit], ids=["eager", "jit"])
def test_correct_use_passes(f, wrap):
    with aot.debug_key_reuse(True):
        for _ in range(2):
            wrap(f)(random.clone(KEY))


def test_without_the_option():
    assert float(draw(KEY)) == float(draw(KEY))
