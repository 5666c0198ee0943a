"""Figures that the public JAX documents print (readme, sharp bits, and the tutorials on jit, vmap, autodiff, debugging,
stateful computation), reproduced: section, program, expected output.

A program prints its results; white space is not compared.  `old` rows use the random layout of the time of writing."""
from __future__ import annotations

import contextlib
import io
import re
import textwrap

import numpy as np
import pytest

import aot

SETUP = """
import numpy as np
from functools import partial
import aot as jax
import aot.numpy as jnp
from aot import grad, hessian, jacfwd, jacrev, jit, lax, make_jaxpr, nn, random, value_and_grad, vmap
"""

SELU = """
def selu(x, alpha=1.67, lambda_=1.05):
    return lambda_ * jnp.where(x > 0, x, alpha * jnp.exp(x) - alpha)
"""
CONVOLVE = """
def convolve(x, w):
    return jnp.array([jnp.dot(x[i - 1:i + 2], w) for i in range(1, len(x) - 1)])
x, w = jnp.arange(5), jnp.array([2., 3., 4.])
xs, ws = jnp.stack([x, x]), jnp.stack([w, w])
"""
LOGISTIC = """
def predict(W, b, inputs):
    return 0.5 * (jnp.tanh((jnp.dot(inputs, W) + b) / 2) + 1)
inputs = jnp.array([[0.52, 1.12, 0.77], [0.88, -1.08, 0.15], [0.52, 0.06, -1.30], [0.74, -2.49, 1.39]])
targets = jnp.array([True, True, False, True])
def loss(W, b):
    preds = predict(W, b, inputs)
    return -jnp.sum(jnp.log(preds * targets + (1 - preds) * (1 - targets)))
key, W_key, b_key = random.split(random.key(0), 3)
W, b = random.normal(W_key, (3,)), random.normal(b_key, ())
"""
TANH = """
def tanh(x):
    y = jnp.exp(-2.0 * x)
    return (1.0 - y) / (1.0 + y)
"""
NANSUM = "x = jnp.array([1, 2, jnp.nan, 3, 4])\n"

#: the pages of jax.experimental.sparse print no figures: each row is what one of them says
SPARSE = """
from aot.experimental import sparse
dense = jnp.array([[0., 2., 0.], [1., 0., 4.]])
mat, rows = sparse.BCOO.fromdense(dense), sparse.BCOO.fromdense(dense, n_batch=1)
same = lambda a, b: print(type(a).__name__, bool((sparse.todense(a) == b).all()))
"""

ROWS = [
    ("sparse: bcoo_multiply_dense gives an array", SPARSE + "print(sparse.bcoo_multiply_dense(sp_mat=mat, v=dense))", "[ 4. 1. 16.]"),
    ("sparse: bcoo_multiply_sparse", SPARSE + "same(sparse.bcoo_multiply_sparse(lhs=mat, rhs=mat), dense ** 2)", "BCOO True"),
    ("sparse: bcoo_update_layout", SPARSE + "same(sparse.bcoo_update_layout(rows, n_batch=0), dense)\n"
     "same(sparse.bcoo_update_layout(mat, n_dense=1, on_inefficient=None), dense)\n"
     "try: sparse.bcoo_update_layout(mat, n_batch=1)\nexcept sparse.SparseEfficiencyError: print('refused')\n"
     "print(sparse.bcoo_update_layout(sparse.BCOO.fromdense(dense[:1]), n_batch=1).n_batch)", "BCOO True BCOO True refused 1"),
    ("sparse: bcoo_reduce_sum", SPARSE + "same(sparse.bcoo_reduce_sum(mat, axes=[0]), dense.sum(0))", "BCOO True"),
    ("sparse: bcoo_reshape", SPARSE + "same(sparse.bcoo_reshape(mat, new_sizes=(3, 2)), dense.reshape(3, 2))\n"
     "same(sparse.bcoo_reshape(mat, new_sizes=(6,), dimensions=(1, 0)), dense.T.reshape(6))\n"
     "try: sparse.bcoo_reshape(rows, new_sizes=(3, 2))\nexcept ValueError: print('mixed')", "BCOO True BCOO True mixed"),
    ("sparse: bcoo_slice", SPARSE + "same(sparse.bcoo_slice(mat, start_indices=(0, 1), limit_indices=(2, 3)), dense[:, 1:])", "BCOO True"),
    ("sparse: bcoo_sort_indices", SPARSE + "same(sparse.bcoo_sort_indices(mat.T), dense.T)\n"
     "print(sparse.bcoo_sort_indices(mat.T).indices.tolist())", "BCOO True [[0, 1], [1, 0], [2, 1]]"),
    ("sparse: bcoo_squeeze", SPARSE + "same(sparse.bcoo_squeeze(sparse.BCOO.fromdense(dense[:1]), dimensions=(0,)), dense[0])", "BCOO True"),
    ("sparse: bcoo_sum_duplicates", SPARSE + "twice = mat + mat\nprint(twice.nse, sparse.bcoo_sum_duplicates(twice).nse)\n"
     "same(jit(lambda m: sparse.bcoo_sum_duplicates(m, nse=5))(twice), 2 * dense)\n"
     "print(sparse.bcoo_sum_duplicates(twice, nse=2).todense())", "6 3 BCOO True [[0. 4. 0.] [2. 0. 0.]]"),
    ("sparse: bcoo_todense", SPARSE + "same(sparse.bcoo_todense(rows), dense)", "Array True"),
    ("sparse: bcoo_transpose", SPARSE + "same(sparse.bcoo_transpose(mat, permutation=(1, 0)), dense.T)\n"
     "try: sparse.bcoo_transpose(rows, permutation=(1, 0))\nexcept NotImplementedError: print('batch')", "BCOO True batch"),
    ("readme: grad", TANH + "print(grad(tanh)(1.0))", "0.4199743"),
    ("readme: third derivative", TANH + "print(grad(grad(grad(tanh)))(1.0))", "0.62162673"),
    ("readme: hessian", "print(jit(jacfwd(jacrev(lambda x: x[0] ** 2 * x[1])))(jnp.array([1., 2.])))", "[[4. 2.] [2. 0.]]"),
    ("readme: python control flow", "f = grad(lambda x: x if x > 0 else -x)\nprint(f(1.0), f(-1.0))", "1.0 -1.0"),
    ("readme: jit", "f = lambda x: x * x + x * 2.0\nx = jnp.ones((50, 50))\nprint(bool((jit(f)(x) == f(x)).all()))", "True"),
    ("readme: vmap with None", "print(vmap(lambda p, x: jnp.dot(p, x), in_axes=(None, 0))(jnp.eye(2), jnp.ones((3, 2))).shape)",
     "(3, 2)"),
    ("concepts: an array is an Array", "x = jnp.arange(5)\nprint(isinstance(x, jax.Array), x.devices(), x.sharding)",
     "True {CpuDevice(id=0)} SingleDeviceSharding(device=CpuDevice(id=0))"),
    ("concepts: jit of selu", SELU + "print(jit(selu)(1.0))", "1.05"),
    ("concepts: a tracer prints its type", "@jit\ndef f(x):\n  print(x)\n  return x + 1\nf(jnp.arange(5))",
     "Traced<ShapedArray(int32[5])>with<DynamicJaxprTrace>"),
    ("concepts: jaxpr of selu", SELU + "print(make_jaxpr(selu)(jnp.arange(5.0)))", """
     { lambda ; a:f32[5]. let b:bool[5] = gt a 0.0 c:f32[5] = exp a d:f32[5] = mul 1.6699999570846558 c
     e:f32[5] = sub d 1.6699999570846558
     f:f32[5] = pjit[ name=_where jaxpr={ lambda ; g:bool[5] h:f32[5] i:f32[5]. let j:f32[5] = select_n g i h in (j,) } ] b a e
     k:f32[5] = mul 1.0499999523162842 f in (k,) }"""),
    ("concepts: pytrees of arrays", """
params = [1, 2, (jnp.arange(3), jnp.ones(2))]
print(jax.tree.structure(params), jax.tree.leaves(params))
params = {'n': 5, 'W': jnp.ones((2, 2)), 'b': jnp.zeros(2)}
print(jax.tree.structure(params), jax.tree.leaves(params))""", """
     PyTreeDef([*, *, (*, *)]) [1, 2, Array([0, 1, 2], dtype=int32), Array([1., 1.], dtype=float32)]
     PyTreeDef({'W': *, 'b': *, 'n': *}) [Array([[1., 1.], [1., 1.]], dtype=float32), Array([0., 0.], dtype=float32), 5]"""),
    ("jit: side effects are not in the jaxpr", """
seen = []
def log2(x):
    seen.append(x)
    ln_x = jnp.log(x)
    ln_2 = jnp.log(2.0)
    return ln_x / ln_2
print(make_jaxpr(log2)(3.0))""", "{ lambda ; a:f32[]. let b:f32[] = log a c:f32[] = log 2.0 d:f32[] = div b c in (d,) }"),
    ("jit: a weakly typed tracer", "make_jaxpr(lambda x: print('printed x:', x))(3.)",
     "printed x: Traced<ShapedArray(float32[], weak_type=True)>with<DynamicJaxprTrace>"),
    ("jit: the branch not taken", "print(make_jaxpr(lambda x: jnp.log(x) if x.ndim == 2 else x)(jnp.array([1, 2, 3])))",
     "{ lambda ; a:i32[3]. let in (a,) }"),
    ("jit: static arguments", """
def f(x): return x if x > 0 else 2 * x
def g(x, n):
    i = 0
    while i < n: i += 1
    return x + i
print(jit(f, static_argnums=0)(10), jit(g, static_argnames=['n'])(10, 20), partial(jit, static_argnames=['n'])(g)(10, 20))""",
     "10 30 30"),
    ("jit: part of a loop", "body = jit(lambda i: i + 1)\ni = 0\nwhile i < 20: i = body(i)\nprint(repr(10 + i))",
     "Array(30, dtype=int32, weak_type=True)"),
    ("vmap: convolution", CONVOLVE + "print(repr(convolve(x, w)), repr(vmap(convolve)(xs, ws)))",
     "Array([11., 20., 29.], dtype=float32) Array([[11., 20., 29.], [11., 20., 29.]], dtype=float32)"),
    ("vmap: other axes", CONVOLVE + "print(repr(vmap(convolve, in_axes=1, out_axes=1)(xs.T, ws.T)))",
     "Array([[11., 11.], [20., 20.], [29., 29.]], dtype=float32)"),
    ("vmap: one argument only", CONVOLVE + "print(vmap(convolve, in_axes=[0, None])(xs, w), jit(vmap(convolve))(xs, ws))",
     "[[11. 20. 29.] [11. 20. 29.]] [[11. 20. 29.] [11. 20. 29.]]"),
    ("autodiff: tanh", "print(grad(jnp.tanh)(2.0), grad(grad(jnp.tanh))(2.0), grad(grad(grad(jnp.tanh)))(2.0))",
     "0.070650816 -0.13621868 0.25265405"),
    ("autodiff: polynomial", """
d1 = grad(lambda x: x**3 + 2*x**2 - 3*x + 1)
d2 = grad(d1); d3 = grad(d2); d4 = grad(d3)
print(d1(1.), d2(1.), d3(1.), d4(1.))""", "4.0 10.0 6.0 0.0"),
    ("autodiff: logistic regression (old)", LOGISTIC + "W_grad, b_grad = grad(loss, (0, 1))(W, b)\nprint(repr(W_grad), repr(b_grad))",
     "Array([-0.16965583, -0.8774644 , -1.4901346 ], dtype=float32) Array(-0.29227245, dtype=float32)"),
    ("autodiff: dictionaries (old)", LOGISTIC + "print(grad(lambda d: loss(d['W'], d['b']))({'W': W, 'b': b}))",
     "{'W': Array([-0.16965583, -0.8774644 , -1.4901346 ], dtype=float32), 'b': Array(-0.29227245, dtype=float32)}"),
    ("autodiff: value_and_grad (old)", LOGISTIC + "print(value_and_grad(loss, (0, 1))(W, b)[0], loss(W, b))", "3.0519385 3.0519385"),
    ("debugging: print", """
@jit
def f(x):
    jax.debug.print("x -> {x}", x=x)
    y = jnp.sin(x)
    jax.debug.print("y -> {y}", y=y)
    return y
f(2.)""", "x -> 2.0 y -> 0.9092974066734314"),
    ("debugging: print under map", """
def f(x):
    jax.debug.print("x -> {}", x)
    y = jnp.sin(x)
    jax.debug.print("y -> {}", y)
    return y
vmap(f)(jnp.arange(3.))
lax.map(f, jnp.arange(3.))""", """x -> 0.0 x -> 1.0 x -> 2.0 y -> 0.0 y -> 0.8414709568023682 y -> 0.9092974066734314
     x -> 0.0 y -> 0.0 x -> 1.0 y -> 0.8414709568023682 x -> 2.0 y -> 0.9092974066734314"""),
    ("debugging: print under grad", "grad(lambda x: (jax.debug.print('x -> {}', x), x ** 2)[1])(1.)", "x -> 1.0"),
    ("debugging: ordered", """
@jit
def f(x, y):
    jax.debug.print("x -> {}", x, ordered=True)
    jax.debug.print("y -> {}", y, ordered=True)
    return x + y
print(repr(f(1, 2)))""", "x -> 1 y -> 2 Array(3, dtype=int32, weak_type=True)"),
    ("debugging: conditional breakpoint", """
@jit
def f(x, y):
    z = x / y
    lax.cond(jnp.isfinite(z).all(), lambda x: None, lambda x: jax.debug.breakpoint(), z)
    return z
print(repr(f(2., 1.)))""", "Array(2., dtype=float32, weak_type=True)"),
    ("debugging: callback", """
log = lambda x: print('Logged value:', x)
@jit
def f(x):
    jax.debug.callback(log, x)
    return x
f(1.0); vmap(f)(jnp.arange(3.0)); grad(f)(1.0)""",
     "Logged value: 1.0 Logged value: 0.0 Logged value: 1.0 Logged value: 2.0 Logged value: 1.0"),
    ("random: a key", "print(random.key(42))", "Array((), dtype=key<fry>) overlaying: [ 0 42]"),
    ("random: the same key twice (old)", "key = random.key(42)\nprint(random.normal(key), random.normal(key))",
     "-0.18471177 -0.18471177"),
    ("random: splitting (old)", """
key = random.key(42)
for i in range(3):
    key, subkey = random.split(key)
    print(f"draw {i}: {random.normal(subkey)}")""",
     "draw 0: 1.369469404220581 draw 1: -0.19947023689746857 draw 2: -2.298278331756592"),
    ("random: no sequential equivalence (old)", """
key = random.key(42)
print(np.stack([random.normal(k) for k in random.split(key, 3)]), random.normal(key, shape=(3,)))
print(vmap(random.normal)(random.split(key, 3)))""",
     "[-0.04838832 0.10796154 -1.2226542 ] [ 0.18693547 -1.2806505 -1.5593132 ] [-0.04838832 0.10796154 -1.2226542 ]"),
    ("sharp bits: side effects happen while tracing", """
def f(x):
    print("Executing function")
    return x
print("First:", jit(f)(4.))
print("Second:", jit(f)(5.))
print("Third:", jit(f)(jnp.array([5.])))""", "Executing function First: 4.0 Second: 5.0 Executing function Third: [5.]"),
    ("sharp bits: globals are read while tracing", """
g = 0.
f = lambda x: x + g
print(jit(f)(4.))
g = 10.
print(jit(f)(5.), jit(f)(jnp.array([4.])))""", "4.0 5.0 [14.]"),
    ("sharp bits: internal state", """
def f(x):
    state = dict(even=0, odd=0)
    for i in range(10): state['even' if i % 2 == 0 else 'odd'] += x
    return state['even'] + state['odd']
print(jit(f)(5.))""", "50.0"),
    ("sharp bits: iterators", """
array = jnp.arange(10)
print(lax.fori_loop(0, 10, lambda i, x: x + array[i], 0))
iterator = iter(range(10))
print(lax.fori_loop(0, 10, lambda i, x: x + next(iterator), 0))""", "45 0"),
    ("sharp bits: updates", """
x = jnp.zeros((3, 3), dtype=jnp.float32)
print(x.at[1, :].set(1.0), x)
print(jnp.ones((5, 6)).at[::2, 3:].add(7.))""", """[[0. 0. 0.] [1. 1. 1.] [0. 0. 0.]] [[0. 0. 0.] [0. 0. 0.] [0. 0. 0.]]
     [[1. 1. 1. 8. 8. 8.] [1. 1. 1. 1. 1. 1.] [1. 1. 1. 8. 8. 8.] [1. 1. 1. 1. 1. 1.] [1. 1. 1. 8. 8. 8.]]"""),
    ("sharp bits: out of bounds", """
print(repr(jnp.arange(10)[11]), repr(jnp.arange(10.0).at[11].get()),
      repr(jnp.arange(10.0).at[11].get(mode='fill', fill_value=jnp.nan)))""",
     "Array(9, dtype=int32) Array(9., dtype=float32) Array(nan, dtype=float32)"),
    ("sharp bits: lists as many arguments", "print(make_jaxpr(lambda x: jnp.sum(jnp.array(x)))(list(range(3))))", """
     { lambda ; a:i32[] b:i32[] c:i32[]. let d:i32[] = convert_element_type[new_dtype=int32 weak_type=False] a
     e:i32[] = convert_element_type[new_dtype=int32 weak_type=False] b
     f:i32[] = convert_element_type[new_dtype=int32 weak_type=False] c
     g:i32[1] = broadcast_in_dim[ broadcast_dimensions=() shape=(1,) sharding=None ] d
     h:i32[1] = broadcast_in_dim[ broadcast_dimensions=() shape=(1,) sharding=None ] e
     i:i32[1] = broadcast_in_dim[ broadcast_dimensions=() shape=(1,) sharding=None ] f
     j:i32[3] = concatenate[dimension=0] g h i k:i32[] = reduce_sum[axes=(0,)] j in (k,) }"""),
    ("sharp bits: dynamic shapes", NANSUM + "print(x[~jnp.isnan(x)].sum(), jit(lambda x: jnp.where(~jnp.isnan(x), x, 0).sum())(x))",
     "10.0 10.0"),
    ("sharp bits: unsafe casts", "print(repr(jnp.arange(254.0, 258.0).astype('uint8')))", "Array([254, 255, 255, 255], dtype=uint8)"),
    ("sharp bits: double precision", "with jax.enable_x64(True): print(random.uniform(random.key(0), (3,), dtype=jnp.float64).dtype)",
     "float64"),
]


def squeeze(text: str) -> str:
    """Without layout: white space, and the spaces that numpy puts inside brackets."""
    text = re.sub(r"\s+", " ", text.strip())
    return re.sub(r"\s*([\[\]])\s*", r"\1", text)


NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d*(?:e[+-]?\d+)?")


def alike(a: str, b: str) -> bool:
    """Equal texts, but for the last digit of float32 numbers, which depends on the processor."""
    x, y = [float(n) for n in NUMBER.findall(a)], [float(n) for n in NUMBER.findall(b)]
    return NUMBER.sub("#", a) == NUMBER.sub("#", b) and np.allclose(x, y, rtol=5e-7, atol=0)


def run(program: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(SETUP + textwrap.dedent(program), "document", "exec"), {})
    return out.getvalue()


@pytest.mark.parametrize("program, expected", [pytest.param(*r[1:], id=r[0]) for r in ROWS])
def test_figure(program, expected, request):
    layout = "(old)" not in request.node.callspec.id
    with aot.threefry_partitionable(layout):
        got, want = squeeze(run(program)), squeeze(expected)
        assert got == want or alike(got, want), got


def test_layout_of_a_jaxpr():
    """White space too: 80 columns, equations indented by 4."""
    text = str(aot.make_jaxpr(lambda x: aot.numpy.sum(aot.numpy.array(x)))(list(range(10))))
    lines = text.splitlines()
    assert lines[0] == "{ lambda ; a:i32[] b:i32[] c:i32[] d:i32[] e:i32[] f:i32[] g:i32[] h:i32[] i:i32[]"
    assert lines[1] == "    j:i32[]. let"
    assert lines[2] == "    k:i32[] = convert_element_type[new_dtype=int32 weak_type=False] a"
    assert lines[12:17] == ["    u:i32[1] = broadcast_in_dim[", "      broadcast_dimensions=()", "      shape=(1,)",
                            "      sharding=None", "    ] k"]
    assert lines[-3:] == ["    be:i32[10] = concatenate[dimension=0] u v w x y z ba bb bc bd",
                          "    bf:i32[] = reduce_sum[axes=(0,)] be", "  in (bf,) }"]


RAISES = [
    ("jit: if", "jit(lambda x: x if x > 0 else 2 * x)(10)", aot.errors.TracerBoolConversionError, "argument x"),
    ("jit: while", "def g(x, n):\n  i = 0\n  while i < n: i += 1\njit(g)(10, 20)", aot.errors.TracerBoolConversionError,
     "argument n"),
    ("sharp bits: assignment", "x = jnp.zeros(3)\nx[1] = 1.0", TypeError, "at\\[idx\\].set"),
    ("sharp bits: lists", "jnp.sum([1, 2, 3])", TypeError, "list"),
    ("sharp bits: boolean mask under jit", NANSUM + "jit(lambda x: x[~jnp.isnan(x)].sum())(x)",
     aot.errors.NonConcreteBooleanIndexError, "where"),
    ("sharp bits: scan over an iterator", "lax.scan(lambda c, x: (c, x), 0., iter(range(3)))", TypeError, "iterator"),
    ("sharp bits: debug_nans", "with jax.debug_nans(True): jnp.divide(0., 0.)", FloatingPointError, "nan"),
    ("sharp bits: debug_nans under jit", "with jax.debug_nans(True): jit(lambda x, y: x * y + 2 * (x + y) / (x - y))(0., 0.)",
     FloatingPointError, "nan"),
]


@pytest.mark.parametrize("program, error, text", [pytest.param(*r[1:], id=r[0]) for r in RAISES])
def test_error(program, error, text):
    with pytest.raises(error, match=text):
        run(program)


def test_requesting_64_bits_without_x64_warns():
    with pytest.warns(UserWarning, match="float64"):
        assert aot.random.uniform(aot.random.key(0), (3,), dtype=np.float64).dtype == np.float32


def test_a_saved_tracer_is_refused():
    saved = []
    aot.jit(lambda x: (saved.append(x * 2), x)[1])(4.)
    assert repr(saved[0]).startswith("Traced<ShapedArray(float32[], weak_type=True)>")
    with pytest.raises(aot.errors.UnexpectedTracerError, match="returned"):
        saved[0] + 1
