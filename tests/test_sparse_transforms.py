"""Derivatives, batches and compilation of functions of sparse arrays, against the same functions of dense arrays and real jax."""
import numpy as np
import pytest

import aot
import aot.experimental.sparse.linalg
import aot.numpy as jnp
import aot.scipy.sparse.linalg
import aot_runtime
from aot.cli import main
from aot.experimental import sparse
from tests.sparse_cases import LAYOUTS, M, X, names
from tests.support import jax

SAMPLED = 20    # rows: one in 20, see conftest.py
OURS, THEIRS = names(aot), names(jax) if jax else {}
RNG = np.random.RandomState(0)
INDICES = np.array([[0, 1], [2, 0], [1, 3], [3, 4], [0, 1]], np.int32)


def array(*shape): return RNG.randn(*shape).astype(np.float32)


def of_layout(n_batch, n_dense):
    """Data and indices of X in a layout."""
    mat = sparse.BCOO.fromdense(X, n_batch=n_batch, n_dense=n_dense)
    return array(*mat.data.shape), np.asarray(mat.indices)


#: name -> (function of (names, make a BCOO of data) that gives a function of arrays, shapes of more arrays (None: as data))
FUNCTIONS = {
    "todense": (lambda n, B: lambda d: B(d).todense(), ()),
    "sort": (lambda n, B: lambda d: B(d).sort_indices().data, ()),
    "sum_duplicates": (lambda n, B: lambda d: n["s"].bcoo_sum_duplicates(B(d), nse=B(d).nse).data, ()),
    "update_layout": (lambda n, B: lambda d: B(d).update_layout(n_batch=1, n_dense=1, on_inefficient=None).data, ()),
    "multiply_dense": (lambda n, B: lambda d, v: (B(d) * v).todense(), ((3, 1),)),
    "multiply_sparse": (lambda n, B: lambda d, e: (B(d) * B(e)).todense(), (None,)),
    "reduce_sum": (lambda n, B: lambda d: n["s"].bcoo_reduce_sum(B(d), axes=(0, 2)).todense(), ()),
    "slice": (lambda n, B: lambda d: B(d)[:, 1:, ::2].todense(), ()),
    "rev": (lambda n, B: lambda d: B(d)[::-1, :, ::-1].todense(), ()),
    "add": (lambda n, B: lambda d, e: (B(d) + B(e) * 2).todense(), (None,)),
    "sin": (lambda n, B: lambda d: n["sp"](n["jnp"].sin)(B(d, unique_indices=True)).todense(), ()),
    "fromdense": (lambda n, B: lambda d: n["s"].BCOO.fromdense(B(d).todense(), n_batch=B(d).n_batch, n_dense=B(d).n_dense, nse=B(d).nse).data, ()),
    "matmul": (lambda n, B: lambda d, v: n["s"].bcoo_dot_general(B(d), v, dimension_numbers=(((2,), (0,)), ((), ()))), ((4, 5),)),
    "rmatmul": (lambda n, B: lambda v, d: n["s"].bcoo_dot_general(v, B(d), dimension_numbers=(((1,), (2,)), ((), ()))), ((5, 4), None)),
    "batched": (lambda n, B: lambda d, v: n["s"].bcoo_dot_general(B(d), v, dimension_numbers=(((1,), (0,)), ((0,), (2,)))), ((3, 5, 2),)),
    "over the batch": (lambda n, B: lambda d, v: n["s"].bcoo_dot_general(B(d), v, dimension_numbers=(((0,), (0,)), ((), ()))), ((2, 5),)),
    "sparse product": (lambda n, B: lambda d, e: n["s"].bcoo_dot_general(B(d), B(e), dimension_numbers=(((2,), (2,)), ((), ()))).todense(), (None,)),
}


def rows():
    for name, (f, more) in FUNCTIONS.items():
        for n_batch, n_dense in LAYOUTS:
            if n_dense and name in ("matmul", "rmatmul", "sparse product") or not n_batch and name in ("batched", "over the batch") or (
                    name == "batched" and n_dense == 2) or n_batch == 3 and name == "matmul" and n_dense:
                continue
            if name == "sparse product" and n_batch:        # no product of these in jax
                continue
            data, indices = of_layout(n_batch, n_dense)

            def make(space, f=f, indices=indices):
                return f(space, lambda d, **flags: space["s"].BCOO((d, space["jnp"].asarray(indices)), shape=X.shape, **flags))
            arrays = [data.copy() if shape is None else array(*shape) for shape in more]
            yield f"{name}, {n_batch} batch, {n_dense} dense", make, arrays if name == "rmatmul" else [data, *arrays]
    yield from matrices()
    yield from sampled()


def matrices():
    for cls in ("BCSR", "COO", "CSR", "CSC"):
        rest = [np.asarray(x) for x in getattr(sparse, cls).fromdense(M).tree_flatten()[0][1:]]

        def mat(n, d, cls=cls, rest=rest): return getattr(n["s"], cls)((d, *map(n["jnp"].asarray, rest)), shape=(2, 3))
        yield f"{cls} todense", lambda n, mat=mat: lambda d: mat(n, d).todense(), [array(3)]
        yield f"{cls} @ v", lambda n, mat=mat: lambda d, v: mat(n, d) @ v, [array(3), array(3)]
        yield f"{cls} @ B", lambda n, mat=mat: lambda d, v: mat(n, d) @ v, [array(3), array(3, 2)]
        yield f"{cls} fromdense", lambda n, cls=cls: lambda x: getattr(n["s"], cls).fromdense(x, nse=3).data, [M.copy()]
        if cls != "BCSR":
            yield f"{cls}.T @ v", lambda n, mat=mat: lambda d, v: mat(n, d).T @ v, [array(3), array(2)]


def sampled():
    for name, indices, numbers, shapes in (
            ("matrices", INDICES, (((1,), (0,)), ((), ())), ((3, 6), (6, 4))), ("rows", INDICES[:, :1], (((1,), (0,)), ((), ())), ((3, 6), (6, 4))),
            ("batched", np.stack([INDICES, INDICES[::-1]]), (((2,), (1,)), ((0,), (0,))), ((2, 3, 6), (2, 6, 4))),
            ("columns of each row", np.stack([INDICES[:, 1:]] * 3), (((1,), (0,)), ((), ())), ((3, 6), (6, 4))),
            ("outer", INDICES, (((), ()), ((), ())), ((3,), (4,)))):
        yield f"sampled {name}", lambda n, i=indices, numbers=numbers: lambda a, b: n["s"].bcoo_dot_general_sampled(
            a, b, n["jnp"].asarray(i), dimension_numbers=numbers), [array(*s) for s in shapes]


ROWS = {name: (make, arrays) for name, make, arrays in rows()}


@pytest.mark.parametrize("name", ROWS)
def test_derivatives_and_batches(name):
    """Value, jvp and vjp as in jax and as differences say; vmap over each operand is a loop over it.  All in one program."""
    make, arrays = ROWS[name]
    tangents = [np.roll(x, 1) for x in arrays]

    def everything(m, space, reverse):
        f = make(space)

        def run(primals, dots):
            out, dot = m.jvp(f, primals, dots)
            return out, dot, m.vjp(f, *primals)[1](dot) if reverse else None
        return m.jit(run)(arrays, tangents)
    ours = everything(aot, OURS, True)
    # jax has no such rule for products of sparse arrays, a wrong one for these
    reverse = name not in ("CSR.T @ v", "CSC @ v", "CSC @ B") and "sparse product" not in name and not (
        name.startswith(("batched", "over the batch")) and "0 dense" not in name)
    theirs = jax.tree_util.tree_leaves(everything(jax, THEIRS, reverse)) if jax else []
    for x, y in zip(aot.tree_util.tree_leaves(ours), theirs, strict=bool(jax) and reverse):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
    out, dot, cotangents = ours
    inner = sum(float(np.vdot(c, t)) for c, t in zip(cotangents, tangents))
    np.testing.assert_allclose(inner, float(np.vdot(dot, dot)), rtol=1e-3)      # <J^T u, t> = <u, J t> with u = J t
    f = aot.jit(make(OURS))
    if "fromdense" not in name:     # whose results are elsewhere beside the zeros
        ahead, behind = (f(*[x + h * t for x, t in zip(arrays, tangents)]) for h in np.float32([1e-2, -1e-2]))
        np.testing.assert_allclose(dot, (ahead - behind) / 2e-2, rtol=1e-2, atol=2e-3)
    for i, x in enumerate(arrays):
        if "fromdense" in name:     # the second one has zeros elsewhere
            continue
        two = np.stack([x, np.roll(x, 1)])
        axes = [0 if j == i else None for j in range(len(arrays))]
        got = aot.jit(aot.vmap(make(OURS), axes))(*[two if j == i else y for j, y in enumerate(arrays)])
        want = np.stack([f(*[row if j == i else y for j, y in enumerate(arrays)]) for row in two])
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_batches_of_sparse_arrays():
    """vmap maps a batch dimension of a sparse argument, and gives a sparse result one more."""
    mats = sparse.BCOO.fromdense(X, n_batch=1)
    products, transposed = aot.vmap(lambda mat, v: (mat @ v, mat.T))(mats, np.ones((2, 4), np.float32))
    np.testing.assert_allclose(products, X.sum(-1))
    assert (transposed.shape, transposed.n_batch) == ((2, 4, 3), 1)
    np.testing.assert_allclose(transposed.todense(), X.swapaxes(1, 2))
    g = aot.jit(aot.vmap(sparse.grad(lambda mat: (mat.todense() ** 2).sum())))(mats)
    np.testing.assert_allclose(g.todense(), 2 * X)


def test_linear_transposes():
    mat = sparse.BCOO.fromdense(M)
    u = np.array([1, 2], np.float32)
    np.testing.assert_allclose(aot.linear_transpose(lambda v: mat @ v, np.ones(3, np.float32))(u)[0], u @ M)
    back = aot.linear_transpose(lambda d: sparse.BCOO((d, mat.indices), shape=mat.shape).T.todense().T, mat.data)
    np.testing.assert_allclose(back(M)[0], mat.data)
    x = aot.scipy.sparse.linalg.cg(lambda v: mat.T @ (mat @ v) + v, np.ones(3, np.float32))[0]
    np.testing.assert_allclose((M.T @ M + np.eye(3)) @ x, 1, rtol=1e-4)


def test_duplicates_and_padding_have_derivatives():
    mat = sparse.BCOO((np.array([1., 2., 3.], np.float32), np.array([[0, 1], [0, 1], [2, 3]])), shape=(2, 3))
    g = sparse.grad(lambda m: (m.todense() ** 2).sum())(mat)
    np.testing.assert_allclose(g.data, [6., 6., 0.])
    g = sparse.grad(lambda m: (m @ np.ones(3, np.float32)).sum())(mat)
    np.testing.assert_allclose(g.data, [1., 1., 0.])


def test_custom_rules_are_kept():
    @aot.custom_jvp
    def double(x): return x * 2
    double.defjvp(lambda primals, tangents: (double(*primals), tangents[0] * 3))

    @aot.custom_vjp
    def triple(x): return x * 3
    triple.defvjp(lambda x: (triple(x), None), lambda _, ct: (ct,))
    mat = sparse.BCOO.fromdense(M)
    for use_tracer in (False, True):
        f = sparse.sparsify(double, use_tracer=use_tracer)
        total = lambda m: f(m).todense().sum()
        np.testing.assert_allclose(f(mat).todense(), 2 * M)
        for derivative in (sparse.grad(total), aot.jit(sparse.grad(total))):
            assert np.asarray(derivative(mat).data).tolist() == [3., 3., 3.]
        assert float(sparse.value_and_grad(total)(mat)[0]) == 14
        with pytest.raises(NotImplementedError, match="custom_vjp_call"):
            sparse.sparsify(triple, use_tracer=use_tracer)(mat)


def test_ahead_of_time():
    """Sparse arrays as arguments and results of compiled functions, of loops, and made inside."""
    mat, v = sparse.BCOO.fromdense(M), np.ones(3, np.float32)
    compiled = aot.jit(lambda m, v: (m @ v, m.T)).lower(mat, v).compile()
    product, transposed = compiled(mat, v)
    np.testing.assert_allclose(product, M @ v)
    assert isinstance(transposed, sparse.BCOO) and transposed.shape == (3, 2)
    np.testing.assert_allclose(transposed.todense(), M.T)
    out, stacked = aot.lax.scan(lambda m, x: (m * x, m.data), mat, jnp.arange(1., 4.))
    np.testing.assert_allclose(out.todense(), 6 * M)
    assert stacked.shape == (3, 3)
    inside = aot.jit(lambda data, rows, v: sparse.BCOO((data, rows), shape=(2, 3)) @ v)
    np.testing.assert_allclose(inside.lower(mat.data, mat.indices, v).compile()(mat.data, mat.indices, v), M @ v)


def test_compile_a_function_that_makes_a_sparse_array(tmp_path, monkeypatch):
    """`aot compile` of a function of arrays that multiplies by a sparse matrix, run by the loader."""
    (tmp_path / "model.py").write_text("from aot.experimental import sparse\n\n"
                                       "def apply(data, indices, v):\n    return sparse.BCOO((data, indices), shape=(2, 3)) @ v\n")
    monkeypatch.chdir(tmp_path)
    assert main(["compile", "model.py:apply", "-a", "data=f32[3]", "-a", "indices=i32[3,2]", "-a", "v=f32[3]", "-o", "m.aot"]) == 0
    mat, v = sparse.BCOO.fromdense(M), np.array([1, 2, 3], np.float32)
    np.testing.assert_allclose(aot_runtime.load("m.aot")["apply"](np.asarray(mat.data), np.asarray(mat.indices), v), M @ v)


def test_repr_of_traced_and_broken_arrays():
    mat = sparse.BCOO.fromdense(M)
    seen = []
    aot.jit(lambda m: seen.append(repr(m)) or m.data)(mat)
    assert seen == ["DynamicJaxprTracer[BCOO(float32[2, 3], nse=3)]"]
    assert repr(aot.tree_util.tree_map(lambda x: None, mat)) == "BCOO(<invalid>)"
    assert repr(sparse.BCOO.fromdense(X, n_batch=1, n_dense=1)) == "BCOO(float32[2, 3, 4], nse=3, n_batch=1, n_dense=1)"


def test_errors_say_what_to_do():
    mat = sparse.BCOO.fromdense(M)
    for call, error, text in [
            (lambda: aot.jit(sparse.BCOO.fromdense)(M), aot.errors.ConcretizationTypeError, "nse argument of bcoo_fromdense"),
            (lambda: sparse.sparsify(jnp.cos)(mat), NotImplementedError, r"cos .* dense output.*todense"),
            (lambda: mat + 1, NotImplementedError, "todense"),
            (lambda: mat.transpose((0, 0)), TypeError, r"permutation \(0, 0\) for shape \(2, 3\)"),
            (lambda: sparse.BCOO((mat.data, mat.indices[:, 0]), shape=(2, 3)), ValueError, r"\[\*batch, nse, n_sparse\]"),
            (lambda: sparse.BCOO.fromdense(np.eye(200, dtype=np.float32), index_dtype="int8"), ValueError, "index_dtype='int32'"),
            (lambda: sparse.BCSR.fromdense(M).T, NotImplementedError, "to_bcoo"),
            (lambda: sparse.bcoo_slice(M, start_indices=(0, 0), limit_indices=(1, 1)), TypeError, "expected a BCOO array"),
            (lambda: sparse.grad(lambda m: m.sum())(mat, x=1), TypeError, "positional"),
            (lambda: sparse.jacfwd(lambda m: m * 2)(mat), NotImplementedError, "todense")]:
        with pytest.raises(error, match=text):
            call()
