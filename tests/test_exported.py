"""aot.export: signatures and results as those of jax.export; what is stored is what is loaded; and what is refused."""
from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import aot
import aot.numpy as jnp
import aot_runtime
from aot import export, lax
from aot.export import DisabledSafetyCheck

F = np.float32
X, W = np.arange(12, dtype=F).reshape(3, 4) / 7, np.ones((4, 2), F)
BIG = np.random.default_rng(0).normal(size=(20, 20)).astype(F)        # a constant that lowering makes a parameter

#  name, function of (module, numpy, lax) -> function, arguments, named arguments
FUNCTIONS = {
    "dict": (lambda m, np_, lax: lambda x, y: {"a": np_.sin(x) @ y["w"], "b": x.sum()}, (X, {"w": W}), {}),
    "named": (lambda m, np_, lax: lambda x, *, scale: x * scale, (X,), {"scale": np.float32(3)}),
    "list and none": (lambda m, np_, lax: lambda xs: [xs[0], None, (xs[1] * 2,)], ([X, W],), {}),
    "constant": (lambda m, np_, lax: lambda x: x @ BIG, (BIG,), {}),
    "integers": (lambda m, np_, lax: lambda x, n: (x * n.astype(F), n + 1), (X[0], np.arange(4, dtype=np.int32)), {}),
    "weak": (lambda m, np_, lax: lambda x: (x + 1, 2.0), (1.5,), {}),
    "loop": (lambda m, np_, lax: lambda x: lax.fori_loop(0, 3, lambda i, c: np_.tanh(c) + c, x), (X,), {}),
    "linalg": (lambda m, np_, lax: lambda x: np_.linalg.cholesky(x @ x.T + 4 * np_.eye(3)), (X,), {}),
    "nested jit": (lambda m, np_, lax: lambda x: m.jit(np_.sin)(x) + m.jit(np_.sin)(x * 2), (X,), {}),
}


@pytest.mark.parametrize("make, args, named", FUNCTIONS.values(), ids=FUNCTIONS)
def test_like_jax(make, args, named):
    """Signature, results and gradients: of the function, and of what is left of it in another process."""
    f = aot.jit(make(aot, jnp, lax))
    made = export.export(f)(*args, **named)
    read = export.deserialize(made.serialize(vjp_order=1))
    want = f(*args, **named)
    for e in (made, read):
        same(e.call(*args, **named), want)
        same(aot.jit(lambda a, k, e=e: e.call(*a, **k))(args, named), want)
        same(gradients(aot, e.call, args, named), gradients(aot, f, args, named))
    assert read.in_tree == made.in_tree and read.out_tree == made.out_tree
    for got, avals in ((read.in_avals, made.in_avals), (read.out_avals, made.out_avals)):
        assert got == tuple(a.strip_weak_type() for a in avals)
    assert read.mlir_module() == made.mlir_module()
    jax = pytest.importorskip("jax")
    from jax import export as theirs
    other = theirs.export(jax.jit(make(jax, jax.numpy, jax.lax)))(*args, **named)
    for name in ("in_avals", "out_avals", "in_tree", "out_tree", "platforms", "nr_devices", "fun_name", "module_kept_var_idx"):
        assert str(getattr(made, name)) == str(getattr(other, name)), name
    same(other.call(*args, **named), want)
    same(gradients(jax, other.call, args, named), gradients(aot, made.call, args, named))


def gradients(m, call, args, named):
    """The gradient of a sum of all real results by the first floating argument."""
    def total(x):
        outs = m.tree_util.tree_leaves(call(x, *args[1:], **named))
        return sum((o * o).sum() for o in outs if np.issubdtype(o.dtype, np.inexact))
    return m.grad(total, allow_int=True)(args[0])


def same(got, want):
    a, b = aot.tree_util.tree_leaves(got), aot.tree_util.tree_leaves(want)
    assert len(a) == len(b)
    for x, y in zip(a, b):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_vjp_of_floats_has_the_signature_of_jax():
    jax = pytest.importorskip("jax")
    from jax import export as theirs
    ours = export.export(aot.jit(FUNCTIONS["dict"][0](aot, jnp, lax)))(X, {"w": W}).vjp()
    other = theirs.export(jax.jit(FUNCTIONS["dict"][0](jax, jax.numpy, jax.lax)))(X, {"w": W}).vjp()
    assert all(str(getattr(ours, n)) == str(getattr(other, n)) for n in ("in_avals", "out_avals", "in_tree", "out_tree"))


def test_second_derivative():
    e = export.deserialize(export.export(aot.jit(lambda x: x ** 3))(F(2)).serialize(vjp_order=2))
    assert aot.grad(aot.grad(e.call))(F(2)) == 12 and e.vjp().vjp().has_vjp() is False
    with pytest.raises(ValueError, match="vjp_order=1"):
        aot.grad(aot.grad(aot.grad(e.call)))(F(2))


def test_the_file_is_an_artifact():
    """So the loader runs it, and `aot inspect` and `aot verify` read it."""
    blob = export.export(aot.jit(lambda x, y: {"a": jnp.sin(x) @ y["w"]}))(X, {"w": W}).serialize()
    run = aot_runtime.load(bytes(blob))["call"]
    np.testing.assert_allclose(run(X, {"w": W})["a"], np.sin(X) @ W, rtol=1e-5)


def test_twice_in_one_program_and_with_equal_names():
    @aot.jit
    def wave(x): return jnp.sin(x) * 2
    double, other = export.export(aot.jit(lambda x: wave(x) * 2))(X), export.export(aot.jit(lambda x: wave(x) * 3))(X)
    f = aot.jit(lambda x: double.call(x) + double.call(x) + other.call(x) + wave(x))
    same(f(X), 16 * np.sin(X))
    assert f.lower(X).as_text().count("call @wave") == 3          # in each exported program, and in the caller
    again = export.export(f)(X)                                  # exported programs inside of an exported program
    same(export.deserialize(again.serialize()).call(X), 16 * np.sin(X))


def test_keys():
    e = export.export(aot.jit(lambda k: (aot.random.split(k), aot.random.normal(k, (3,)))))(aot.random.key(0))
    read = export.deserialize(e.serialize())
    keys, x = read.call(aot.random.key(7))
    assert keys.dtype == aot.random.key(0).dtype and np.array_equal(x, aot.random.normal(aot.random.key(7), (3,)))


def test_static_arguments_are_part_of_the_program():
    e = export.export(aot.jit(lambda x, n: x * n, static_argnums=1))(X, 3)
    same(e.call(X), X * 3)
    assert len(e.in_avals) == 1


# ---- platforms ---------------------------------------------------------------------------------------------------------

def test_platforms():
    by_platform = aot.jit(lambda x: lax.platform_dependent(x, cpu=lambda x: x + 1, tpu=lambda x: x + 2))
    e = export.deserialize(export.export(by_platform, platforms=("tpu", "cpu"))(X).serialize())
    same(e.call(X), X + 1)
    assert "2.0" in str(aot.mlir.from_portable_bytecode(e.mlir_module_of("tpu"))) and set(e.platforms) == {"tpu", "cpu"}
    with pytest.raises(ValueError, match="differs between the platforms"):
        e.mlir_module()
    elsewhere = export.export(aot.jit(jnp.sin), platforms=("tpu", "cuda"))(X)
    assert len(set(elsewhere.programs.values())) == 1
    with pytest.raises(ValueError, match="exported for tpu, cuda and is used on cpu"):
        elsewhere.call(X)
    free = export.export(aot.jit(jnp.sin), platforms=("tpu",), disabled_checks=[DisabledSafetyCheck.platform()])(X)
    same(export.deserialize(free.serialize()).call(X), np.sin(X))
    assert "custom_call" not in export.export(aot.jit(jnp.linalg.cholesky), platforms=("cuda",))(np.eye(3, dtype=F)).mlir_module()


# ---- classes in arguments and results ------------------------------------------------------------------------------------

Pair = namedtuple("Pair", "a b")
Unknown = namedtuple("Unknown", "a")


class Scaled:
    def __init__(self, x, factor): self.x, self.factor = x, factor


aot.tree_util.register_pytree_node(Scaled, lambda s: ((s.x,), s.factor), lambda factor, c: Scaled(c[0], factor))
export.register_namedtuple_serialization(Pair, serialized_name="tests.Pair")
export.register_pytree_node_serialization(Scaled, serialized_name="tests.Scaled", serialize_auxdata=lambda f: str(f).encode(),
                                          deserialize_auxdata=lambda b: int(b))


def test_registered_classes():
    made = export.export(aot.jit(lambda p, s: Scaled({1: p.a, 2: OrderedDict(z=p.b[()])}, s.factor)))(
        Pair(X, {(): W}), Scaled(X, 3))
    read = export.deserialize(made.serialize())
    assert (read.in_tree, read.out_tree) == (made.in_tree, made.out_tree)
    out = read.call(Pair(X, {(): W}), Scaled(X, 3))
    assert type(out) is Scaled and out.factor == 3
    same(out.x[2]["z"], W)
    with pytest.raises(ValueError, match="another structure"):
        read.call(Pair(X, {(): W}), Scaled(X, 4))


REFUSED = {
    "not jitted": (ValueError, "takes the result of jit", lambda: export.export(lambda x: x)),
    "platform": (ValueError, "name one or more of cpu", lambda: export.export(aot.jit(jnp.sin), platforms=("abacus",))),
    "callback": (NotImplementedError, "calls back into Python",
                 lambda: export.export(aot.jit(lambda x: aot.pure_callback(lambda y: y, x, x)))(X)),
    "class": (ValueError, "Unknown'> in the arguments", lambda: export.export(aot.jit(lambda p: p.a))(Unknown(X)).serialize()),
    "registered twice": (ValueError, "already", lambda: export.register_namedtuple_serialization(Pair, serialized_name="b")),
    "name twice": (ValueError, "already", lambda: export.register_namedtuple_serialization(Unknown, serialized_name="tests.Pair")),
    "no tuple": (ValueError, "not a named tuple", lambda: export.register_namedtuple_serialization(int, serialized_name="i")),
    "garbage": (aot_runtime.ArtifactError, "not an .aot artifact", lambda: export.deserialize(b"garbage")),
    "shape": (ValueError, "does not fit", lambda: export.symbolic_shape("3, _", like=(2, 4))),
    "mapped": (NotImplementedError, "export jit", lambda: aot.vmap(export.export(aot.jit(jnp.sin))(X[0]).call)(X)),
    "shape of an argument": (ValueError, r"Shape mismatch for .*\[0\]\[0\] of sin: exported for f32\[3,4\], called with f32\[4,3\]",
                             lambda: export.export(aot.jit(jnp.sin))(X).call(X.T)),
    "dtype of an argument": (ValueError, "Dtype mismatch", lambda: export.export(aot.jit(jnp.sin))(X).call(X.astype(np.int32))),
    "structure": (ValueError, "called with a tuple of length 2", lambda: export.export(aot.jit(jnp.sin))(X).call(X, X)),
    "forward mode": (TypeError, "forward-mode", lambda: aot.jvp(export.export(aot.jit(jnp.sin))(X).call, (X,), (X,))),
}


@pytest.mark.parametrize("kind, message, call", REFUSED.values(), ids=REFUSED)
def test_refused(kind, message, call):
    with pytest.raises(kind, match=message):
        call()


def test_artifacts_of_other_origin_are_refused():
    from aot import artifact
    blob = artifact.as_bytes([artifact.Function("call", [], [], [], None, [])])
    with pytest.raises(aot_runtime.ArtifactError, match="not one that"):
        export.deserialize(blob)


def test_fixed_sizes_as_text():
    assert export.symbolic_shape("(2, 3)") == (2, 3) == export.symbolic_shape("_, ...", like=(2, 3)) == export.symbolic_shape(
        None, like=(2, 3))
    found = export.symbolic_args_specs((X, {"w": W}), ("3, _", None))
    assert found == (aot.ShapeDtypeStruct((3, 4), F), {"w": aot.ShapeDtypeStruct((4, 2), F)})
    assert not export.is_symbolic_dim(3)


@pytest.mark.parametrize("make, args", [(lambda m: lambda x: x * 2., (2.,)), (lambda m: lambda x, n: (x * n, n, 1.), (F(2), 3))])
def test_weak_types_end_with_the_file(make, args):
    """Those of what was read are strong, as in jax."""
    jax = pytest.importorskip("jax")
    from jax import export as theirs
    for keep in (True, False):
        results = []
        for m, ex in ((aot, export), (jax, theirs)):
            e = ex.export(m.jit(make(m)))(*args)
            e = e if keep else ex.deserialize(e.serialize(vjp_order=1))
            results.append([x.weak_type for x in m.tree_util.tree_leaves((
                e.call(*args), m.jit(e.call)(*args), m.grad(lambda *xs: m.tree_util.tree_leaves(e.call(*xs))[0])(*args)))])
        assert results[0] == results[1] and any(results[0]) == keep
