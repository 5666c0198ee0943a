"""What libraries written for jax ask of it: signatures, texts, former names, arrays without elements."""
from __future__ import annotations

import contextlib
import functools
import importlib
import inspect

import numpy as np
import pytest

import aot
from tests.test_corners import cases, check

jax = pytest.importorskip("jax")
f32 = np.float32


class Adder:
    def __call__(self, x): return x + 1


@cases(bound=lambda m: m.jit(lambda x, *, b=2: x), method=lambda m: m.jit(Adder.__call__), vmap=lambda m: m.vmap(lambda x, y: x),
       pmap=lambda m: m.pmap(lambda x, y=1: x), partial=lambda m: m.jit(functools.partial(lambda x, y: x, y=2)))
def test_signatures_of_transformed_functions(case):
    for follow in True, False:
        assert inspect.signature(case(aot), follow_wrapped=follow) == inspect.signature(case(jax), follow_wrapped=follow)
    assert inspect.signature(type(aot.jit(len)))


def test_former_names():
    assert aot.config.x64_enabled is aot.config.enable_x64 is False
    for x in np.ones(3, f32), np.ones(3, np.int32):
        assert str(aot.typeof(x).at_least_vspace()) == str(jax.typeof(x).at_least_vspace()) == str(aot.typeof(x).to_tangent_aval())


@pytest.mark.parametrize("error, size, fits", [(.15, 1, False), (.15, 2, True), (.15, 10, True), (1.5, 10, False)])
def test_tolerances_of_derivatives_grow_with_the_array(error, size, fits):
    for m in aot, jax:
        f = m.custom_jvp(lambda x: x * 1)
        f.defjvp(lambda p, t: (f(*p), t[0] * (1 + error)))
        check_jvp = importlib.import_module(f"{m.__name__}.test_util").check_jvp
        with contextlib.nullcontext() if fits else pytest.raises(AssertionError):
            check_jvp(f, functools.partial(m.jvp, f), (np.ones(size, f32),), rtol=.1, atol=.01)


def test_texts_that_libraries_match():
    assert [str(p) for p in aot.lax.Precision] == [str(p) for p in jax.lax.Precision] == ["DEFAULT", "HIGH", "HIGHEST"]
    with pytest.raises(TypeError, match="cond branch outputs must have the same pytree structure"):
        aot.lax.cond(True, lambda: 1, lambda: (1,))


def test_jitted_functions_show_what_they_wrap():
    f = aot.jit(max)
    assert repr(f) == repr(jax.jit(max)) == "<PjitFunction of <built-in function max>>"
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        f.missing


def test_programs_as_hlo():
    lowered = aot.jit(lambda x: x * 2).lower(1.)
    assert lowered.compiler_ir("hlo").as_hlo_text() == lowered.as_text("hlo") and "ENTRY" in lowered.as_text("hlo")
    assert lowered.as_text("stablehlo") == lowered.as_text() == str(lowered.compiler_ir())
    for ask in lowered.as_text, lowered.compiler_ir, lambda d: lowered.as_text(d, debug_info=True):
        with pytest.raises(ValueError, match="unknown dialect: mhlo"):
            ask("mhlo")


def _sharding(m, *shape): return m.typeof(m.numpy.ones(shape)).sharding


@cases(zeros=lambda m: m.numpy.zeros(3, out_sharding=_sharding(m, 3)), full=lambda m: m.lax.full((3,), 1., sharding=_sharding(m, 3)),
       arange=lambda m: m.numpy.arange(3., device=_sharding(m, 3)), asarray=lambda m: m.numpy.asarray(np.arange(3, dtype=f32), device=_sharding(m, 3)),
       normal=lambda m: m.random.normal(m.random.key(0), (3,), out_sharding=_sharding(m, 3)),
       traced=lambda m: m.jit(lambda x: m.numpy.ones_like(x, out_sharding=m.typeof(x).sharding))(np.ones(3, f32)),
       reshape=lambda m: m.numpy.ones(3).reshape((3, 1), out_sharding=_sharding(m, 3, 1)),
       einsum=lambda m: m.numpy.einsum("i,j", np.ones(3, f32), np.ones(3, f32), out_sharding=_sharding(m, 3, 3)),
       device_put=lambda m: m.jit(lambda x: m.device_put(x, m.typeof(x).sharding))(np.ones(3, f32)))
def test_the_sharding_of_a_type_without_a_mesh_asks_for_nothing(case):
    check(case)
    x = np.ones(3, f32)
    assert (aot.lax.with_sharding_constraint(x, _sharding(aot, 3)) == x).all()


def test_platforms_that_are_not_here():
    with pytest.raises(RuntimeError, match="Unknown backend 'tpu'"):
        aot.devices("tpu")


MATRIX = np.zeros((0, 3, 4), f32)
EMPTY = {
    "dynamic_slice": lambda m, x, i: m.lax.dynamic_slice(x, (i, i), (1, 2)), "index": lambda m, x, i: x[i],
    "indices": lambda m, x, i: x[m.numpy.stack([i, i])], "set": lambda m, x, i: x.at[i].set(1), "add": lambda m, x, i: x.at[i].add(1),
    "dynamic_update_slice": lambda m, x, i: m.lax.dynamic_update_slice(x, x[:1, :2], (i, i)),
    "grad": lambda m, x, i: m.grad(lambda x: m.lax.dynamic_slice(x, (i, i), (1, 2)).sum() + x[i].sum())(x),
    "conv": lambda m, x, i: m.lax.conv(x[None, None], x[None, None, :1, :1], (1, 1), "SAME"),
    "convolve": lambda m, x, i: m.numpy.convolve(x[0], x[1]), "roll": lambda m, x, i: m.numpy.roll(x, i),
    "fori_loop": lambda m, x, i: m.lax.fori_loop(0, i, lambda _, x: x + 1, x), "svd": lambda m, x, i: m.numpy.linalg.svd(x)[1],
    "cond": lambda m, x, i: m.lax.cond(i > 0, lambda x: x, lambda x: x + 1, x), "sort": lambda m, x, i: m.numpy.sort(x),
    "scan": lambda m, x, i: m.lax.scan(lambda c, y: (c + y, c), x[0], x), "normal": lambda m, x, i: m.random.normal(m.random.key(i), (3,)),
}


@pytest.mark.parametrize("dims", [(0, 0), (0, None), (None, 0)], ids=str)
@pytest.mark.parametrize("f", EMPTY.values(), ids=EMPTY)
def test_vmap_over_no_elements(f, dims):
    args = MATRIX if dims[0] == 0 else np.zeros((3, 4), f32), np.zeros((0,) if dims[1] == 0 else (), np.int32)
    check(lambda m: m.vmap(functools.partial(f, m), dims)(*args))
