"""Calls of the sparse API as text, run over aot and over real jax: what each row may name is in `names`."""
from __future__ import annotations

import importlib
from typing import Any

import numpy as np

X = np.array([[[0, 1, 0, 2], [3, 0, 0, 0], [0, 0, 4, 5]], [[6, 0, 0, 0], [0, 0, 0, 0], [7, 8, 0, 0]]], np.float32)
M = np.array([[0, 2, 0], [1, 0, 4]], np.float32)


def names(module: Any) -> dict[str, Any]:
    """What a row can speak of, made by this package (aot or jax)."""
    s, jnp, lax, random = (importlib.import_module(f"{module.__name__}.{n}") for n in (
        "experimental.sparse", "numpy", "lax", "random"))
    F = s.BCOO.fromdense

    def bcoo(data, indices, shape, **flags):
        return s.BCOO((jnp.array(data), jnp.array(indices)), shape=shape, **flags)

    def dg(lhs, rhs, contract, batch=((), ()), f=s.bcoo_dot_general, **options):
        return f(lhs, rhs, dimension_numbers=(contract, batch), **options)
    m, x = jnp.asarray(M), jnp.asarray(X)
    return dict(
        jax=module, s=s, jnp=jnp, lax=lax, random=random, np=np, sp=s.sparsify, F=F, bcoo=bcoo, dg=dg, M=m, X=x, S=F(m),
        B=F(x, n_batch=1, n_dense=1), C=s.BCSR.fromdense(m), C3=s.BCSR.fromdense(jnp.stack([m, m]), n_batch=1),
        pad=F(m, nse=5), dup=bcoo([1., 2., 3.], [[0, 1], [0, 1], [1, 1]], (2, 3)),
        messy=bcoo([1., 0., 3., 4., 9.], [[2, 1], [0, 2], [0, 1], [0, 1], [3, 3]], (3, 3)),
        wide=bcoo([[0., 1.], [2., 3.]], [[[1], [0]]], (2, 3)), v=jnp.array([5., 7., 9.]), key=random.key(0),
        signal=jnp.array([[[0, 1., 0, 2, 3]]]), kernel=jnp.array([[[1., 0, 2]]]))


#: the same arrays, indices, flags and shapes as jax's, or an error where jax has one
SAME = {
    "fromdense": """
        S; pad; F(M, nse=2); F(M, nse=0); F(M, nse=-1); F(M * 0); F(M.astype(int)); F(M.astype(bool)); F(M.astype('complex64'))
        F(jnp.array([jnp.nan, -0., 0., jnp.inf])); F(jnp.zeros((0, 3))); F(jnp.zeros((2, 0)), n_batch=1); F(3.); F([[1, 2], [3, 0]])
        F(M, index_dtype='int16'); F(M, index_dtype='float32'); F(M, n_batch=3); F(M, n_batch=2, nse=2); F(M * 0, n_batch=2)
        F(M, n_dense=2, nse=2); F(M * 0, n_dense=2); B; jax.jit(F)(M); jax.jit(lambda x: F(x, nse=2))(M); F(X, n_batch=1, nse=6)
        s.BCOO((jnp.ones(3), jnp.zeros((2, 2), 'int32')), shape=(3, 3)); s.BCOO(([1, 2], np.zeros((2, 2), 'int64')), shape=[3, 3])
        s.BCOO((jnp.ones(3), jnp.zeros((3, 2), 'float32')), shape=(3, 3)); s.BCOO((jnp.ones((3, 2)), jnp.zeros((2, 2, 1), int)), shape=(2, 4))""",
    "todense": """
        bcoo([1., 2.], [[-1], [0]], (3,)).todense(); bcoo([1., 2.], [[3], [0]], (3,)).todense(); dup.todense(); wide.todense()
        bcoo([True], [[0]], (3,)).todense(); s.todense(S); s.todense(M); S.T.todense()""",
    "extract": """
        s.bcoo_extract(dup, M); s.bcoo_extract(dup, M, assume_unique=True); s.bcoo_extract(S, M.astype(int)); s.bcoo_extract(M, M)
        s.bcoo_extract(S, M.T); s.bcoo_extract(pad, M, assume_unique=False); s.bcoo_extract(B, X)""",
    "order": """
        messy.sort_indices(); B.sort_indices(); wide.sort_indices(); S.T.sort_indices(); bcoo([1., 1.], [[-1], [0]], (3,)).sort_indices()
        messy.sum_duplicates(); messy.sum_duplicates(nse=1); messy.sum_duplicates(nse=5); messy.sum_duplicates(remove_zeros=False)
        messy.sum_duplicates(nse=2, remove_zeros=False); s.bcoo_sum_duplicates(messy); s.bcoo_sum_duplicates(messy, nse=6)
        s.bcoo_sum_duplicates(wide); jax.jit(lambda m: m.sum_duplicates())(S); S.sum_duplicates(); B.sum_duplicates(nse=2)
        s.bcoo_sum_duplicates(bcoo([[0., 1.], [2., 3.]], np.zeros((2, 2, 0), int), (2,))); bcoo([True, True], [[2], [2]], (3,)).sum_duplicates()""",
    "transpose": """
        S.T; F(X, n_batch=2).transpose((1, 0, 2)); F(X, n_dense=2).transpose((0, 2, 1)); F(X).transpose((0, 2, 1)); B.T
        F(X, n_dense=1).transpose((0, 2, 1)); F(X).transpose((0, 0, 1)); F(X, n_batch=1).transpose((0, 2, 1)); F(X).transpose((0, 1, 2))""",
    "layout errors": """
        S.update_layout(n_batch=1); S.update_layout(n_dense=1); S.update_layout(n_dense=-1); S.update_layout(n_dense=2, n_batch=1)
        S.update_layout(n_dense=1, on_inefficient='no'); F(M[:1]).update_layout(n_batch=1); F(M[:, :1]).update_layout(n_dense=1)
        dup.update_layout(n_batch=1, on_inefficient=None); messy.update_layout(n_dense=1, on_inefficient=None)""",
    "broadcast": "; ".join(f"s.bcoo_broadcast_in_dim({m}, shape={shape}, broadcast_dimensions={d})" for m, shape, d in [
        ("S", (2, 3), (0, 1)), ("S", (2, 2, 3), (1, 2)), ("S", (2, 2, 3), (0, 2)), ("S", (2, 3, 2), (0, 1)), ("F(M[:1])", (2, 3), (0, 1)),
        ("F(M[:1])", (1, 1, 3), (0, 2)), ("F(M, n_batch=1)", (2, 2, 3), (0, 2)), ("F(M[:1], n_batch=1)", (2, 3), (0, 1)),
        ("F(M, n_dense=1)", (2, 3, 2), (0, 1)), ("F(jnp.float32(3))", (2, 3), ()), ("B", (2, 2, 3, 4), (0, 2, 3)), ("S", (2, 4), (0, 1))]),
    "concatenate": "; ".join(f"s.bcoo_concatenate([{ms}], dimension={d})" for ms, d in [
        ("S, S", 0), ("S, F(M[:, :2])", 1), ("F(M, n_batch=1), F(M * 2, n_batch=1, nse=4)", 0), ("F(M, n_dense=1), F(M, n_dense=1)", 1),
        ("F(M, n_dense=1), F(M, n_dense=1)", 0), ("F(M, n_dense=1), S", 0), ("F(M.astype(int)), S", 0), ("S, S.T", 0), ("S, M", 0), ("", 0),
        ("S", 0), ("S, S", 2), ("S, S", -1)]),
    "reshape": "; ".join([f"s.bcoo_reshape(F(X, n_batch={b}, n_dense={d}), new_sizes={sizes})" for b, d, sizes in [
        (0, 0, (1, 24)), (0, 0, (4, 6)), (0, 0, (24, 1)), (0, 1, (6, 4)), (0, 1, (6, 2, 2)), (0, 1, (24,)), (0, 2, (2, 12)), (0, 2, (2, 3, 4, 1)),
        (1, 0, (2, 1, 12)), (1, 0, (1, 2, 12)), (1, 0, (4, 6)), (2, 0, (6, 4)), (2, 0, (3, 2, 4)), (2, 0, (2, 3, 1, 4)), (3, 0, (24,))]] + [
        "s.bcoo_reshape(F(X), new_sizes=(4, 6), dimensions=(1, 0, 2))", "S.reshape(-1)", "S.reshape(3, -1)", "S.reshape((6,), order='F')",
        "S.reshape(5)", "pad.reshape(3, 2)", "s.bcoo_reshape(F(X, n_batch=1), new_sizes=(4, 6), dimensions=(1, 0, 2))"]),
    "rev squeeze": """
        s.bcoo_rev(S, (0,)); s.bcoo_rev(pad, (0, 1)); s.bcoo_rev(B, (0, 1)); s.bcoo_rev(B, (2,)); s.bcoo_rev(S, ()); s.bcoo_rev(S, (2,))
        s.bcoo_rev(S, (-1,)); s.bcoo_rev(S, (0, 0)); s.bcoo_rev(wide, (0,)); s.bcoo_squeeze(F(M[:1]), dimensions=(0,))
        s.bcoo_squeeze(F(M[:1], n_batch=1), dimensions=(0,)); s.bcoo_squeeze(F(M[:, :1], n_dense=1), dimensions=(-1,))
        s.bcoo_squeeze(F(M[:1, :1]), dimensions=(0, 1)); s.bcoo_squeeze(S, dimensions=(0,)); s.bcoo_squeeze(F(M[:1], nse=3), dimensions=(0,))""",
    "slice": "; ".join([f"s.bcoo_slice({m}, start_indices={a}, limit_indices={b}, strides={c})" for m, a, b, c in [
        ("S", (0, 1), (2, 3), None), ("F(X)", (0, 0, 0), (1, 1, 2), None), ("F(X)", (0, 0, 0), (2, 3, 4), (1, 2, 2)),
        ("F(X)", (0, 0, 0), (2, 0, 4), None), ("B", (1, 0, 1), (2, 2, 4), (1, 1, 2)), ("pad", (0, 0), (2, 2), None), ("S", (0,), (2,), None),
        ("S", (0, 0), (3, 3), None), ("S", (1, 0), (0, 3), None), ("S", (0, 0), (2, 3), (0, 1)), ("M", (0, 0), (2, 3), None)]] + [
        f"s.bcoo_dynamic_slice({m}, {a}, {b})" for m, a, b in [
            ("S", (0, 1), (2, 2)), ("S", (1, 2), (2, 2)), ("S", (-1, -1), (1, 2)), ("S", "jnp.array([0, 1])", (2, 2)), ("F(X)", (0, 0, 0), (1, 1, 2)),
            ("B", (1, 0, 1), (1, 2, 3)), ("S", (0,), (2, 2)), ("S", (0, 0), (3, 2)), ("S", (0., 0.), (2, 2)), ("S", "(jnp.zeros(2, int), 0)", (2, 2))]]),
    "index": "; ".join(f"{m}[{i}]" for m, i in [
        ("S", "0"), ("S", "..., 0"), ("S", "0, 1"), ("S", "None"), ("S", ":, None"), ("S", "5"), ("S", "-1"), ("S", "::-1, 1:"),
        ("S", "jnp.array([1, 0, 1])"), ("S", "jnp.array([0, 1]), jnp.array([1, 2])"), ("S", "jnp.array(1)"), ("S", "np.array([True, False])"),
        ("B", "0"), ("B", ":, 1:2"), ("B", "..., 1:3"), ("B", "1, 0, 1:"), ("S", "'a'"), ("S", "0, 0, 0"), ("S", "M.astype(bool)"),
        ("S", ":, jnp.array([[0, 1], [2, 0]])"), ("S", "1:1"), ("list(F(M[0]))", ":")]),
    "sum": "; ".join([f"s.bcoo_reduce_sum({m}, axes={a})" for m, a in [
        ("S", (0,)), ("S", (0, 1)), ("S", ()), ("S", (0, 0)), ("S", (2,)), *(("B", a) for a in [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)]),
        ("F(X, n_batch=2)", (0,)), ("F(X, n_batch=2)", (0, 1)), ("messy", (0,)), ("messy", (0, 1))]] + [
        f"{m}.sum({a})" for m, a in [("S", ""), ("S", "1"), ("S", "-1"), ("S", "0, keepdims=True"), ("S", "keepdims=True"), ("S", "dtype='int32'"),
                                     ("B", ""), ("B", "0")]]),
    "product": """
        S * S; S * F(M[:, ::-1]); S * F(M[:1]); F(M[:1]) * S; S * F(M[0]); B * B; F(X, n_batch=1) * F(X[:, ::-1], n_batch=1); S * M; M * S
        F(X, n_batch=1) * F(X); B * F(X, n_batch=1); pad * pad; dup * F(M + 1); F(M, n_batch=2) * F(M, n_batch=2); S * F(M.astype(int))
        S * X[:, :, :3]; S * M[:1]; S * jnp.ones((2, 1)); F(M[:1]) * M; F(M.astype(int)) * 2.5; 2 * F(M.astype(int)); B * X[0]; wide * M
        s.bcoo_multiply_dense(S, v); s.bcoo_multiply_dense(F(M[:1]), M); s.bcoo_multiply_dense(pad, v)
        s.bcoo_multiply_dense(F(M.astype(int)), M); s.bcoo_multiply_sparse(S, F(M[0]))""",
    "operators": """
        S + S; S - S; S + M; M + S; M - S; S - M; S + 1; S + M[:1]; F(M[:1]) + M; S + F(M[:1]); F(M, n_batch=1) + S; B + B; S + F(M.astype(int))
        -S; +S; abs(S); S / 2; 2 / S; S / S; S / M; S / 3.; S ** 2; S ** 2.; S ** 0; 2 ** S; S == S; S < 2; S.astype('int32'); dup ** 2; -dup; S @ 2
        len(S); len(S.sum()); hash(S); S @ jnp.ones(2); M.T @ S; repr(S); repr(B); repr(C); repr(s.CSR.fromdense(M)); repr(wide)
        jax.jit(lambda m: m)(S); jax.tree_util.tree_map(lambda x: x + 1, S)""",
    "dot_general": """
        S @ S.T; F(X[0]) @ F(X[1]).T; F(X[0, 0]) @ F(X[1, 0]); F(X[0]) @ F(X[0, 0]); messy @ messy; dg(S, S, ((), ())); dg(S, M, ((), ()))
        dg(F(X, n_batch=1), F(X, n_batch=1), ((2,), (2,)), ((0,), (0,))); dg(F(X, n_batch=1), F(X), ((2,), (2,))); F(M.astype(int)) @ S.T
        dg(F(X, n_batch=1), F(X, n_batch=1), ((), ()), ((0,), (0,))); dg(F(X, n_batch=1), F(X, n_batch=1), ((2,), (2,)))
        dg(F(X), F(X), ((2,), (2,)), ((0,), (0,))); dg(F(X, n_batch=1), F(X, n_batch=1), ((0,), (0,))); dg(F(X, n_dense=1), F(X), ((0,), (0,)))
        dg(F(X, n_batch=2), F(X, n_batch=2), ((2,), (2,)), ((1,), (1,))); dg(F(M.astype(int)), M, ((1,), (1,))); dg(M, M, ((1,), (1,)))
        dg(F(M.astype('int8')), M.astype('int8'), ((1,), (1,)), preferred_element_type='int32'); dg(S, M, ((1,), (0,))); dg(S, M, ((5,), (0,)))
        dg(F(M.astype('float16')), M.astype('float16'), ((1,), (1,))); dg(S, M, ((1,), ())); dg(S, 3., ((1,), (0,))); pad @ v; messy @ v
        dg(F(X), X, ((1,), (1,)), ((0,), (0,))); dg(B, X, ((2,), (2,))); dg(B, X, ((1,), (1,)), ((0,), (0,))); dg(X, B, ((0, 1), (0, 1)))""",
    "conv": """
        s.bcoo_conv_general_dilated(F(signal), F(kernel), window_strides=(1,), padding='VALID').todense()
        s.bcoo_conv_general_dilated(F(signal, n_batch=2), kernel, window_strides=(1,), padding='VALID').todense()
        s.bcoo_conv_general_dilated(signal, F(kernel), window_strides=(1,), padding='SAME').todense()
        s.bcoo_conv_general_dilated(F(signal), F(kernel), window_strides=(1,), padding=[(1, 2)])
        s.bcoo_conv_general_dilated(F(signal), F(kernel), window_strides=(2,), padding='VALID')
        s.bcoo_conv_general_dilated(F(signal), F(kernel), window_strides=(1,), padding='VALID', rhs_dilation=(2,))""",
    "gather": "; ".join(f"s.bcoo_gather(S, jnp.array([[0], [5], [-1]]), lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims="
                        f"(0,), start_index_map=(0,)), (1, 3){mode})" for mode in ("", ", mode='promise_in_bounds'", ", mode='fill'")),
    "api": "; ".join(f"s.{f}({a}, sparse_format='{c}'{o})" for f, a, o in [
        ("empty", "(2, 3)", ""), ("empty", "(2, 3, 4)", ""), ("empty", "(2, 3)", ", n_batch=1, nse=2"), ("eye", "3, 4", ", k=1"),
        ("eye", "3, 2", ", k=-1, dtype='int32'"), ("eye", "3, 2", ", k=5, index_dtype='int16'"), ("eye", "3, 4", ", k=-1, n_batch=1"),
        ("eye", "3, 4", ", k=1, n_dense=1"), ("eye", "3", ", n_batch=1, n_dense=1"), ("eye", "3", ", n_batch=2, n_dense=1")]
        for c in ("bcoo", "bcsr", "coo", "csr", "csc", "none")),
    "matrices": "; ".join(f"s.{c}.{e}" for c in ("COO", "CSR", "CSC") for e in [
        "fromdense(M, nse=5)", "fromdense(M, nse=2)", "fromdense(M, index_dtype='int16')", "fromdense(M[0])", "fromdense(M).T", "fromdense(M) @ v",
        "fromdense(M) @ M.T", "fromdense(M) @ jnp.ones((2, 3, 1))", "fromdense(M) @ jnp.arange(3)", "fromdense(M) @ jnp.ones(2)",
        "fromdense(M).transpose((0, 1))", "fromdense(M) @ S", "fromdense(M) * 2", "fromdense(M)[0]", "fromdense(M).sum()", "fromdense(M) @ 2."]) + """
        s.coo_matvec(s.COO.fromdense(M), jnp.ones(2), transpose=True); s.csr_matmat(s.CSR.fromdense(M), jnp.ones((2, 2)), transpose=True)
        s.coo_matmat(s.COO.fromdense(M), jnp.ones((2, 2)), transpose=True); s.csr_matvec(s.CSR.fromdense(M), jnp.ones(2), transpose=True)
        s.coo_matvec(s.COO.fromdense(M), jnp.arange(2), transpose=True); s.COO.fromdense(M).T._sort_indices(); s.csr_todense(s.CSR.fromdense(M))""",
    "rows": """
        C; C3; C * 2; -C; C + C; C @ v; jnp.ones(2) @ C; C.T; C.sum(); C[0]; C @ C; sp(abs)(C); sp(lambda x: x.astype(int))(C); C3 @ jnp.ones((2, 3, 1))
        sp(lambda m: jnp.broadcast_to(m, (2, 2, 3)))(C); sp(lambda m: jnp.concatenate([m, m], 1))(C); sp(lambda m: jnp.stack([m, m]))(C); C.to_bcoo()
        s.BCSR.from_bcoo(S.T); s.BCSR.from_bcoo(F(M[0])); s.BCSR.from_bcoo(pad); s.BCSR.from_bcoo(dup); C.sum_duplicates(nse=2); C.sum_duplicates()
        s.BCSR.fromdense(M.astype(bool)); s.BCSR.fromdense(M.astype(bool)).todense(); s.BCSR.fromdense(M, nse=5); s.BCSR.fromdense(M, nse=2); s.BCSR.fromdense(M[0]); s.BCSR.fromdense(jnp.stack([M, M * 0], -1), n_dense=1)
        s.bcsr_extract(C3.indices, C3.indptr, C3.todense()); s.bcsr_concatenate([C, C], dimension=0); dg(C, M, ((1,), (1,)), f=s.bcsr_dot_general)
        dg(M, C, ((1,), (1,)), f=s.bcsr_dot_general); dg(C3, C3.todense(), ((2,), (2,)), ((0,), (0,)), f=s.bcsr_dot_general)
        s.BCSR((jnp.ones(3), jnp.zeros(3, int), jnp.zeros(2, int)), shape=(2, 3)); s.bcsr_sum_duplicates(C, nse=5)""",
    "random": "; ".join(f"s.random_bcoo(key, (3, 4, 2), {o})" for o in [
        "", "nse=3", "nse=.5", "n_batch=1", "n_dense=1", "n_batch=1, n_dense=1", "unique_indices=False", "sorted_indices=True", "nse=50", "nse=1.5",
        "indices_dtype='int16'", "nse=-1", "minval=2., maxval=3.", "n_batch=3", "n_dense=3", "dtype='complex64', generator=random.normal"]),
    "sparsify": """
        sp(lambda m: m + 2 * m)(S); sp(lambda m: m * m)(S); sp(lambda m: m * m)(dup); sp(lambda m: m + m.T.T)(S); sp(jnp.sin)(dup); sp(jnp.cos)(S)
        sp(lambda m: jnp.maximum(m, 0))(S); sp(lambda m: m.mean())(S); sp(lambda m: m.mean(0))(S); sp(lambda m: m + 1)(M); sp(jax.nn.relu)(S)
        sp(lambda m: s.todense(m) + 1)(S); sp(lambda m: (m, 3, jnp.ones(2)))(S); sp(lambda m, k: m * k)(S, k=M); sp(lambda m: 2 * m)(s.COO.fromdense(M))
        sp(lambda t: {'a': t['x'] * 2, 'b': t['y'].T})({'x': S, 'y': S}); sp(jax.jit(lambda m: m * 2))(S)
        sp(lambda p, m: lax.cond(p, lambda m: m * 2, lambda m: -m, m))(True, S); sp(lambda p, m: lax.cond(p, lambda: m @ M.T, lambda: m[:, :2]))(True, S)
        sp(lambda p, m: lax.cond(p.sum() > 0, lambda: m, lambda: 2 * m))(S, S); sp(lambda p, m, n: lax.cond(p, lambda: m, lambda: n))(True, S, pad)
        sp(lambda m: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, m)))(S); sp(lambda m: lax.fori_loop(0, 3, lambda i, c: c * 2, m))(S)
        sp(lambda m: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + c[1].T.T), (0, m)))(S)
        sp(lambda m: lax.while_loop(lambda c: c.sum() < 30, lambda c: c * 2, m))(S); sp(lambda m, v: lax.fori_loop(0, 3, lambda i, c: m.T @ (m @ c), v))(S, v)""",
    "sparse tracers": """
        s.sparsify(lambda m, v: m @ v, use_tracer=True)(S, v); s.sparsify(lambda m: m.T * 2, use_tracer=True)(S)
        s.sparsify(jax.jit(lambda m: m.T * 2), use_tracer=True)(S); s.sparsify(lambda m: m == 2, use_tracer=True)(S)
        s.sparsify(lambda m: lax.cond(True, lambda m: m * 2, lambda m: -m, m), use_tracer=True)(S)
        s.sparsify(lambda m, v: jax.grad(lambda v: (m @ v).sum())(v), use_tracer=True)(S, v); s.sparsify(lambda m: s.todense(m) + 1, use_tracer=True)(S)
        s.sparsify(lambda m, v: jax.vmap(lambda v: m @ v)(v), use_tracer=True)(S, jnp.ones((2, 3)))
        s.sparsify(lambda m: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, m)), use_tracer=True)(S)""",
    "vmap": """
        jax.vmap(lambda m: m)(B); jax.vmap(lambda m: m.T)(F(X, n_batch=1)); jax.vmap(lambda m: m, in_axes=1)(F(X, n_batch=2)); jax.vmap(lambda m: m)(S)
        jax.vmap(lambda m: m, out_axes=1)(F(X, n_batch=2)); jax.vmap(lambda m: m, in_axes=1)(B); jax.vmap(lambda m: m, out_axes=2)(B)
        jax.vmap(lambda m, w: m @ w, in_axes=(None, 0))(S, jnp.ones((5, 3))); jax.vmap(lambda t: t['m'] @ t['v'])({'m': F(X, n_batch=1), 'v': jnp.ones((2, 4))})
        jax.vmap(lambda d: s.BCOO((d, jnp.zeros((2, 1), int)), shape=(3,)))(jnp.ones((4, 2))); jax.vmap(lambda d: s.BCOO.fromdense(d, nse=2))(X)
        jax.vmap(lambda d, m: m, in_axes=(0, None), out_axes=None)(X, S); jax.vmap(lambda d, m: m, in_axes=(0, None))(X, S); jax.vmap(lambda m: m.todense())(wide)
        jax.vmap(jax.vmap(lambda m: m.todense()))(F(X, n_batch=2)); jax.vmap(lambda m: m @ jnp.ones(4))(s.BCSR.fromdense(X, n_batch=1))
        jax.vmap(s.BCSR.from_bcoo)(F(X, n_batch=1)); jax.vmap(lambda m: m.sum_duplicates(nse=2))(F(X, n_batch=1)); jax.vmap(lambda m: (m.shape, m.n_batch))(B)""",
    "derivatives": """
        s.grad(lambda a, y: (a @ y).sum())(S, v); s.grad(lambda a, y: (a @ y).sum(), argnums=(0, 1))(S, v); s.jacrev(lambda a, y: a @ y, argnums=(0, 1))(S, v)
        s.value_and_grad(lambda a, y: ((a @ y).sum(), y), has_aux=True)(S, v); s.jacfwd(lambda a, y: (a @ y, y), has_aux=True)(S, v)
        s.grad(lambda t: (t['a'] @ t['b']).sum())({'a': S, 'b': v}); s.grad(lambda a: a.todense().sum())(s.COO.fromdense(M)); s.jacfwd(lambda a: a * 2)(S)
        s.grad(lambda a: (a @ v).sum())(C); s.grad(lambda a: a.sum())(F(M.astype(int))); s.grad(lambda a: a.sum(0))(S); s.grad(lambda a, y: a.sum())(S, y=v)
        s.jacrev(lambda a, y: a @ y)(F(M, n_batch=1), v); s.jacfwd(lambda a: a.todense() ** 2)(B); jax.grad(lambda a, y: (a @ y).sum())(S, v)""",
}

#: layouts of three dimensions, to every other one
LAYOUTS = [(b, d) for b in range(4) for d in range(4 - b)]
SAME["layouts"] = "; ".join(f"s.bcoo_update_layout(F(X, n_batch={b}, n_dense={d}), n_batch={nb}, n_dense={nd}, on_inefficient=None)"
                            for b, d in LAYOUTS for nb, nd in LAYOUTS)


def rows(table: dict[str, str]) -> list[str]:
    """The calls of a table, one a row."""
    return [row.strip() for text in table.values() for line in text.splitlines() for row in line.split("; ") if row.strip()]


#: where jax fails or is wrong: (sparse, dense) must be equal
DENSE = {
    "wide batches": """
        (wide.update_layout(n_batch=0), wide); (wide + wide, 2 * wide.todense()); (s.bcoo_reduce_sum(wide, axes=(0,)), wide.todense().sum(0))
        (s.bcoo_concatenate([wide, wide], dimension=0), jnp.concatenate([wide.todense()] * 2)); (wide.reshape(2, 1, 3), wide.todense()[:, None])
        (wide[::-1], wide.todense()[::-1]); (wide @ v, wide.todense() @ v); (wide[1], wide.todense()[1]); (wide.sum(1), wide.todense().sum(1))
        (s.bcoo_extract(wide, M), M * jnp.array([1., 1., 0.]))
        (s.bcoo_concatenate([wide, F(M, n_batch=1)], dimension=1), jnp.concatenate([wide.todense(), M], 1))""",
    "padding": """
        (s.bcoo_concatenate([messy, messy], dimension=1), jnp.concatenate([messy.todense()] * 2, 1)); (messy.reshape(9), messy.todense().reshape(9))
        (s.bcoo_squeeze(bcoo([1., 1.], [[1, 1], [0, 0]], (1, 3)), dimensions=(0,)), jnp.array([1., 0., 0.]))
        (messy.sum(0), messy.todense().sum(0)); (messy * messy, messy.todense() ** 2); (messy @ messy, messy.todense() @ messy.todense())
        (messy[1:, ::-1], messy.todense()[1:, ::-1]); (messy.T, messy.todense().T); (messy / 2, messy.todense() / 2)""",
    "reshape": "; ".join(f"(s.bcoo_reshape(F(X, n_batch={b}, n_dense={d}), new_sizes={sizes}), X.reshape({sizes}))" for b, d, sizes in [
        (0, 1, (1, 2, 3, 4)), (0, 3, (1, 24)), (1, 1, (2, 1, 3, 4)), (1, 2, (2, 12)), (2, 1, (6, 4)), (1, 1, (2, 3, 4, 1)), (0, 2, (1, 2, 3, 4))]),
    "other": """
        (B[jnp.array([1, 0])], X[::-1]); (F(M[:, :0]).update_layout(n_dense=1), M[:, :0]); (np.asarray(M).T @ S, M.T @ M); (np.asarray(M) * S, M * M)
        (s.bcoo_broadcast_in_dim(F(M[:, :1], n_dense=1), shape=(2, 3), broadcast_dimensions=(0, 1)), jnp.broadcast_to(M[:, :1], (2, 3)))
        (sp(lambda m: lax.scan(lambda c, x: (c + x.sum(), x * 2), 0., m))(F(M, n_batch=1))[1], M * 2)
        (sp(lambda m: lax.scan(lambda c, x: (c * x, c), m, jnp.arange(1., 3.)))(S)[1], jnp.stack([M, M]))
        (sp(lambda m: lax.scan(lambda c, x: (c * x, c), m, jnp.arange(1., 3.)))(S)[0], M * 2); (sp(jax.checkpoint(lambda x: x * 2))(S), M * 2)
        (s.sparsify(lambda m, v: lax.scan(lambda c, x: (m.T @ (m @ c) * x, c), v, jnp.ones(2))[0], use_tracer=True)(S, v), M.T @ (M @ (M.T @ (M @ v))))""",
}
