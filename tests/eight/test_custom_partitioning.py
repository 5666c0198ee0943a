"""custom_partitioning: the documented example, rules of each kind, errors; texts of rules as real jax writes them."""
import re
import subprocess
import sys

import numpy as np
import pytest

import aot
import aot.numpy as jnp
from aot.config import override
from aot.experimental._sharding_rule import parse_rule, rule_text
from aot.experimental.custom_partitioning import (
    BATCHING,
    ArrayMapping,
    CompoundFactor,
    SdyShardingRule,
    custom_partitioning,
)
from aot.experimental.pjit import pjit
from aot.numpy.fft import fft
from aot.sharding import Mesh, NamedSharding, TiledSharding
from aot.sharding import PartitionSpec as P
from aot_runtime import host_info

F = np.float32
GRID, LINE = Mesh(np.array(aot.devices()).reshape(2, 4), ("x", "y")), Mesh(np.array(aot.devices()), ("x",))
MOVES = re.compile(r"dynamic-slice|all-gather|all-to-all|all-reduce")


def hlo(f, *args) -> str:
    return f.lower(*args).compile().runtime_executable().hlo_modules()[0].to_string()


# ---- the documented example --------------------------------------------------------------------------------------------

def supported_sharding(sharding, shape):
    """Keeps the split of all dimensions but the last."""
    rank = len(shape.shape)
    kept = min(len(sharding.spec), rank - 1)
    return NamedSharding(sharding.mesh, P(*sharding.spec[:kept], *[None] * (rank - kept)))


def partition(mesh, arg_shapes, result_shape):
    sharding, = aot.tree.map(lambda x: x.sharding, arg_shapes)
    return mesh, fft, supported_sharding(sharding, arg_shapes[0]), (supported_sharding(sharding, arg_shapes[0]),)


def infer(mesh, arg_shapes, result_shape):
    return supported_sharding(arg_shapes[0].sharding, arg_shapes[0])


def make_fft(**rules):
    my_fft = custom_partitioning(lambda x: fft(x))
    my_fft.def_partition(partition, **rules)
    return my_fft


#: XLA itself splits a Fourier transform over the other dimensions from jaxlib 0.12 on
XLA_GATHERS_FFTS = tuple(map(int, host_info()["jaxlib"].split(".")[:2])) < (0, 12)

RULES = {
    "inferred": {"infer_sharding_from_operands": infer},
    "notation": {"infer_sharding_from_operands": infer, "sharding_rule": "...i -> ...i"},
    "object": {"sharding_rule": SdyShardingRule(((BATCHING, "i"),), ((BATCHING, "i"),))},
    "function": {"sharding_rule": lambda mesh, ins, outs: "... i -> ... i"},
    "function with options": {"sharding_rule": lambda mesh, ins, outs: ("...i -> ...i", {"need_replication_factors": ("i",)})},
}


@pytest.mark.parametrize("out", [P("x"), None], ids=["given", "free"])
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_fft_split_by_batch_exchanges_nothing(rules, out):
    x = np.random.default_rng(0).normal(size=(64, 32)).astype(np.complex64)
    with LINE:
        y = pjit(lambda x: x, out_shardings=P("x"))(x)
        mine, plain = (pjit(f, in_shardings=P("x"), out_shardings=out) for f in (make_fft(**rules), fft))
        assert not MOVES.search(hlo(mine, y))
        if XLA_GATHERS_FFTS:
            assert MOVES.search(hlo(plain, y))
        got = mine(y)
    np.testing.assert_allclose(got, np.fft.fft(x), rtol=1e-4, atol=1e-4)
    assert got.sharding == NamedSharding(LINE, P("x", None))


def test_fft_of_one_dimension_is_gathered():
    x = np.random.default_rng(0).normal(size=512).astype(np.complex64)
    with LINE:
        f = pjit(make_fft(infer_sharding_from_operands=infer), in_shardings=P("x"), out_shardings=P("x"))
        assert MOVES.search(hlo(f, x))
        np.testing.assert_allclose(f(x), np.fft.fft(x), rtol=1e-3, atol=1e-3)


# ---- collectives, static arguments, several results ----------------------------------------------------------------------

def scaled_dot(scale, x, y): return scale * (jnp.sin(x) @ y), x.sum()


def dot_partition(scale, mesh, arg_shapes, result_shapes):
    def part(x, y): return aot.lax.psum(scale * (jnp.sin(x) @ y), "y"), aot.lax.psum(x.sum(), ("x", "y"))
    named = lambda *spec: NamedSharding(mesh, P(*spec))
    return mesh, part, (named("x", None), named()), (named("x", "y"), named("y", None))


dot = custom_partitioning(scaled_dot, static_argnums=0)
dot.def_partition(dot_partition, sharding_rule="i j, j k -> i k, ", reduction_factors=("j",))
X, Y = np.arange(128, dtype=F).reshape(8, 16), np.ones((16, 4), F)


@pytest.mark.parametrize("call", [lambda x, y: aot.jit(lambda x, y: dot(3.0, x, y))(x, y), lambda x, y: dot(3.0, x, y)],
                         ids=["jit", "eager"])
@pytest.mark.parametrize("spec", [P("x", "y"), P(None, "y"), P(), P("y", "x")], ids=str)
def test_values_are_those_of_one_device(call, spec):
    want = 3 * np.sin(X) @ Y, X.sum()
    for got, value in zip(call(aot.device_put(X, NamedSharding(GRID, spec)), Y), want, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-4, atol=1e-4)
    for got, value in zip(call(X, Y), want, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-4, atol=1e-4)


def test_inside_shard_map_it_is_the_function():
    f = aot.shard_map(lambda x, y: dot(2.0, x, y)[0], mesh=LINE, in_specs=(P("x"), P()), out_specs=P("x"))
    np.testing.assert_allclose(f(X, Y), 2 * np.sin(X) @ Y, rtol=1e-4, atol=1e-4)


def test_one_trace_for_equal_calls():
    seen = []
    f = custom_partitioning(lambda x: seen.append(1) or x * 2)
    f.def_partition(lambda mesh, a, r: (mesh, lambda x: x * 2, r.sharding, (r.sharding,)), sharding_rule="i -> i")
    x = aot.device_put(np.ones(8, F), NamedSharding(LINE, P("x")))
    for _ in range(3):
        np.testing.assert_array_equal(f(x), np.full(8, 2, F))
    assert len(seen) == 1


def test_rules_get_tiles_where_asked():
    seen = []

    def rule(mesh, args, result):
        seen.append(args[0].sharding)
        return mesh, lambda x: x + 1, NamedSharding(mesh, P("x")), (NamedSharding(mesh, P("x")),)
    f = custom_partitioning(lambda x: x + 1)
    f.def_partition(rule, decode_shardings=False, sharding_rule="i -> i")
    np.testing.assert_array_equal(aot.jit(f)(aot.device_put(np.ones(8, F), NamedSharding(LINE, P("x")))), np.full(8, 2, F))
    assert isinstance(seen[0], TiledSharding) and seen[0].dims == (8,)


def test_derivatives_and_batches_by_wrapping():
    f = aot.custom_vjp(lambda x: dot(2.0, x, Y)[0].sum())
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * 2 * jnp.cos(x) * Y.sum(1),))
    x = aot.device_put(X, NamedSharding(GRID, P("x", "y")))
    np.testing.assert_allclose(aot.jit(aot.grad(f))(x), 2 * np.cos(X) * 4, rtol=1e-4, atol=1e-4)
    g = aot.custom_batching.custom_vmap(lambda x: dot(2.0, x, Y)[0])
    g.def_vmap(lambda n, batched, x: (dot(2.0, x.reshape(-1, 16), Y)[0].reshape(n, -1, 4), True))
    np.testing.assert_allclose(aot.vmap(g)(np.stack([X, X])), np.stack([2 * np.sin(X) @ Y] * 2), rtol=1e-4, atol=1e-4)


# ---- keys --------------------------------------------------------------------------------------------------------------

PROGRAM = """
import numpy as np, aot, aot.numpy as jnp
from aot.experimental.custom_partitioning import custom_partitioning
from aot.sharding import *
junk = [object() for _ in range({junk})]
def named(mesh, a, r): return mesh, jnp.sin, r.sharding, (r.sharding,)
f = custom_partitioning(lambda n, x: jnp.sin(x), static_argnums=0)
f.def_partition(named, sharding_rule="i -> i")
line = Mesh(np.array(aot.devices()), "x")
x = aot.device_put(np.ones(8, np.float32), NamedSharding(line, PartitionSpec("x")))
print(aot.jit(lambda x: f(1, x) + f(2, x) + f(1, x)).lower(x).as_text())
"""


def test_texts_are_the_same_in_every_process():
    """The two calls with 1 have one key, that with 2 another one; neither depends on where objects lie in memory."""
    texts = {subprocess.run([sys.executable, "-c", PROGRAM.format(junk=n)], check=True, capture_output=True, text=True).stdout
             for n in (1, 999)}
    assert len(texts) == 1
    assert re.findall('backend_config = "(.*?)"', *texts) == [f"__main__.<lambda>#{i}" for i in (0, 1, 0)]


def test_programs_are_not_kept_in_the_cache(tmp_path):
    """Their rules are functions of this process: another one may have changed them."""
    x = aot.device_put(np.ones(24, F), NamedSharding(LINE, P("x")))
    f = custom_partitioning(lambda x: x * 3)
    f.def_partition(lambda mesh, a, r: (mesh, lambda x: x * 3, r.sharding, (r.sharding,)), sharding_rule="i -> i")
    count = lambda: len([p for p in tmp_path.rglob("*") if p.is_file()])
    with override("compilation_cache_dir", str(tmp_path)), override("persistent_cache_min_compile_time_secs", 0.0):
        aot.jit(lambda x: x * 3)(x)
        before = count()
        np.testing.assert_array_equal(aot.jit(f)(x), np.full(24, 3, F))
    assert before > 0 and count() == before


# ---- errors --------------------------------------------------------------------------------------------------------------

def broken(result):
    f = custom_partitioning(lambda x: x * 2)
    f.def_partition(result, sharding_rule="i -> i")
    return lambda: aot.jit(f)(aot.device_put(np.ones(8, F), NamedSharding(LINE, P("x"))))


def raise_own(mesh, a, r): raise KeyError("of the user")


ERRORS = {
    "own exception": (broken(raise_own), KeyError, "of the user"),
    "wrong shape": (broken(lambda mesh, a, r: (mesh, lambda x: x[:0], r.sharding, (r.sharding,))), ValueError, "for parts"),
    "wrong structure": (broken(lambda mesh, a, r: (mesh, lambda x: [x], r.sharding, (r.sharding,))), ValueError, "returns"),
    "no sharding": (broken(lambda mesh, a, r: (mesh, lambda x: x, None, (r.sharding,))), ValueError, "return shardings"),
    "no rule": (lambda: custom_partitioning(lambda x: x)(1), TypeError, "def_partition"),
    "vmap": (lambda: aot.vmap(lambda x: dot(1.0, x, Y))(X[None]), NotImplementedError, "custom_vmap"),
    "grad": (lambda: aot.grad(lambda x: dot(1.0, x, Y)[1])(X), NotImplementedError, "custom_vjp"),
    "traced static": (lambda: aot.jit(lambda s: dot(s, X, Y))(1.0), aot.errors.UnexpectedTracerError, "static_argnums"),
    "options without notation": (lambda: make_fft(reduction_factors=("i",)), ValueError, "notation"),
    "rank": (lambda: aot.jit(make_fft(sharding_rule="i j k -> i j k"))(
        aot.device_put(np.ones((8, 8), np.complex64), NamedSharding(LINE, P("x")))), ValueError, "rank"),
}


@pytest.mark.parametrize("call, kind, text", ERRORS.values(), ids=ERRORS)
def test_errors(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


# ---- notation ------------------------------------------------------------------------------------------------------------

#  notation, options, shapes of operands, shapes of results
NOTATION = [
    ("i j -> i j", {}, [(4, 8)], [(4, 8)]),
    ("i j, j k -> i k", {"reduction_factors": ("j",)}, [(4, 8), (8, 2)], [(4, 2)]),
    ("... i -> ... i", {"need_replication_factors": ("i",)}, [(3, 4, 8)], [(3, 4, 8)]),
    ("...i->...i", {}, [(8,)], [(8,)]),
    ("...1 i, ...2 j -> ...1 ...2", {}, None, None),
    ("...0 i, ...1 j -> ...1 i, ... j", {}, [(3, 4), (5, 6)], [(5, 4), (3, 6)]),
    ("(a b) c -> a b c", {}, [(8, 3)], [(2, 4, 3)]),
    ("(a b) c -> (a b) c", {"a": 2, "b": 4}, [(8, 3)], [(8, 3)]),
    ("(a b) c -> (a b) c", {"a": 2, "b": 3}, [(8, 3)], [(8, 3)]),
    ("(a b) c -> (a b) c", {}, None, None),
    ("a -> a", {"a": 3}, None, None),
    ("i j -> j i", {"permutation_factors": ("i",)}, [(4, 8)], [(8, 4)]),
    ("i j -> i", {"reduction_factors": ("j",), "permutation_factors": ("j",)}, None, None),
    ("i j -> i", {"reduction_factors": ["j"]}, None, None),
    ("i j -> i", {"reduction_factors": ("k",)}, None, None),
    (", -> ", {}, [(), ()], [()]),
    ("i, i -> i", {}, [(4,), (8,)], [(4,)]),
    ("... i, ... i -> i", {}, [(4, 8), (5, 8)], [(8,)]),
    ("... i, ... i -> i", {}, [(4, 8), (8,)], [(8,)]),
    ("a1 b_2 -> b_2 a1", {}, [(4, 8)], [(8, 4)]),
    (" ".join(f"f{i}" for i in range(20)) + " -> ", {}, [(2,) * 20], [()]),
    *[(bad, {}, None, None) for bad in ("i j", "i -> j -> k", "1i -> i", "i . -> i", "(i) -> i", "((a b) c) -> a", "(a b -> a",
                                        "a b) -> a", "i ... -> i", "i* -> i", "_i -> i", "(... a) -> a", "(a, b) -> a")],
]


@pytest.mark.parametrize("rule, options, ins, outs", NOTATION, ids=[r[0][:30] for r in NOTATION])
def test_notation_is_that_of_jax(rule, options, ins, outs):
    """The same texts for Shardy, and errors for the same rules."""
    def ours():
        parsed = parse_rule(rule, **options)
        return rule_text(parsed, ins, outs) if ins is not None else str(parsed)

    def theirs():
        pytest.importorskip("jax")
        from jax._src.custom_partitioning_sharding_rule import sdy_sharding_rule_to_mlir, str_to_sdy_sharding_rule
        from jax._src.interpreters.mlir import make_ir_context
        from jaxlib.mlir import ir
        parsed = str_to_sdy_sharding_rule(rule, **options)
        with make_ir_context(), ir.Location.unknown():
            types = lambda shapes: [ir.RankedTensorType.get(s, ir.F32Type.get()) for s in shapes]
            return str(sdy_sharding_rule_to_mlir(parsed, types(ins), types(outs))) if ins is not None else ""

    def outcome(f):
        try:
            return f()
        except ValueError:
            return ValueError
    got, want = outcome(ours), outcome(theirs)
    assert (got is ValueError) == (want is ValueError), (got, want)
    if ins is not None:
        assert got == want


def test_parts_of_rules():
    assert ArrayMapping(CompoundFactor("b", "c"), "d") == (("b", "c"), "d")
    rule = SdyShardingRule((ArrayMapping("i", "j"),), (ArrayMapping("i"),), reduction_factors=("j",))
    assert rule == parse_rule("i j -> i", reduction_factors=("j",)) and "reduction_factors=('j',)" in str(rule)
    for bad in (lambda: CompoundFactor("a"), lambda: CompoundFactor("a", 1), lambda: ArrayMapping("a", BATCHING),
                lambda: ArrayMapping("2"), lambda: SdyShardingRule((ArrayMapping("i"),), (), k=2)):
        with pytest.raises(ValueError):
            bad()
