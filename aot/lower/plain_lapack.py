"""LAPACK calls as StableHLO, for compilers that do not have jaxlib's kernels.

`expand` replaces each call in a module's text by a call of a private function.  A row of KERNELS is that function over
`aot.lax`, with the kernel's operands, attributes (by LAPACK's letters) and results.  Loops instead of blocked kernels:
right, but slow for large matrices.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aot.errors import AotError

_CALL = re.compile(r"stablehlo\.custom_call @lapack_([sdcz])(\w+)_ffi\(([^)]*)\) (\{.*\}) : \(([^)]*)\) -> \(([^)]*)\)")
_TENSOR = re.compile(r"tensor<((?:\d+x)*)(\w+|complex<\w+>)>")
_DTYPES = {"f32": "float32", "f64": "float64", "i32": "int32", "complex<f32>": "complex64", "complex<f64>": "complex128"}


def expand(text: str) -> str:
    """The module without LAPACK calls.  Raises AotError naming a kernel that has no form here."""
    if "@lapack_" not in text:
        return text
    made: dict[tuple, tuple[str, str]] = {}
    module = re.match(r"module @(?:jit_)?(\S+)", text)
    owner = module[1] if module else "main"

    def replace(call: re.Match) -> str:
        letter, kernel, operands, attributes, ins, outs = call.groups()
        config = _config(attributes)
        key = kernel, tuple(config.items()), ins, outs
        if key not in made:
            name, target = f"lapack.{kernel}.{len(made)}", f"lapack_{letter}{kernel}_ffi"
            made[key] = _function(name, owner, target, kernel, config, ins, outs)
        return f"func.call @{made[key][0]}({operands}) : ({ins}) -> ({outs})"
    body = _CALL.sub(replace, text).rstrip()
    functions = "\n".join(f for _, f in made.values())
    return f"{body[:-1]}{functions}\n}}\n" if made else text


def _config(attributes: str) -> dict[str, Any]:
    """{"uplo": "L", "left": True} of `backend_config = {uplo = 76 : ui8, left = true}`."""
    inner = re.search(r"backend_config = \{([^}]*)\}", attributes)
    pairs = re.findall(r"(\w+) = (\w+)(?: : (\w+))?", inner[1]) if inner else []
    return {k: chr(int(v)) if t == "ui8" else v == "true" if v in ("true", "false") else int(v) for k, v, t in pairs}


def _types(text: str) -> list[tuple[tuple[int, ...], str]]:
    """(shape, dtype) of every `tensor<..>`."""
    return [(tuple(map(int, shape.split("x")[:-1])), _DTYPES[dtype]) for shape, dtype in _TENSOR.findall(text)]


def _function(name: str, owner: str, target: str, kernel: str, config: dict[str, Any], ins: str, outs: str) -> tuple[str, str]:
    """(name, text) of the function that stands for a call, and of the functions that it calls."""
    if kernel not in KERNELS:
        raise AotError(f"{owner} calls {target}, a LAPACK kernel of jaxlib that plugins do not have",
                       hint="linalg.cholesky, solve, inv, det, qr, eigh and svd have a form without kernels; build others "
                            "for the target cpu and load them from Python")
    import aot
    f = form(kernel, config, [shape for shape, _ in _types(outs)])
    with aot.enable_x64(True):
        lowered = aot.jit(f).trace(*[aot.ShapeDtypeStruct(shape, np.dtype(dtype)) for shape, dtype in _types(ins)]).lower()
    got = re.search(r"@main\(.*\) -> \((.*)\) \{", lowered.text)
    assert got and _types(got[1]) == _types(outs) and not lowered.consts, f"{kernel}: {got and got[1]} is not {outs}"
    inner = "\n".join(lowered.text.strip().splitlines()[1:-1])
    renamed = re.sub(r"@(\w[\w.]*)(?=\()", lambda m: f"@{name}" if m[1] == "main" else f"@{name}.{m[1]}", inner)
    return name, renamed.replace(f"func.func public @{name}(", f"func.func private @{name}(")


def form(kernel: str, config: dict[str, Any], shapes: Sequence[tuple[int, ...]]) -> Callable:
    """The function of a kernel's operands that gives its results in these shapes."""
    cuts = [tuple(map(slice, shape)) for shape in shapes]          # results that are not used may be larger

    def f(*xs: Any) -> Any:
        got = KERNELS[kernel](*xs, **config)
        return [y[cut] for y, cut in zip(got if isinstance(got, tuple) else (got,), cuts)]
    return f


# ---- kernels of one matrix ------------------------------------------------------------------------------------------

def _batched(f: Callable) -> Callable:
    """f of single matrices, mapped over the leading dimensions of all operands."""
    def mapped(a: Any, *more: Any, **config: Any) -> Any:
        import aot
        g = lambda *xs: f(*xs, **config)
        for _ in range(a.ndim - 2):
            g = aot.vmap(g)
        return g(a, *more)
    return mapped


def _conj(x: Any) -> Any:
    from aot import lax
    return lax.conj(x) if np.dtype(x.dtype).kind == "c" else x


def _potrf(a: Any, uplo: str) -> Any:
    """Column by column; NaN, and so a status, from the first pivot on that is not positive."""
    from aot import lax
    from aot import numpy as jnp
    n = a.shape[0]
    rows = jnp.arange(n)
    a = a if uplo == "L" else _conj(a.T)

    def step(k: Any, factor: Any) -> Any:
        column = a[:, k] - factor @ _conj(factor[k])
        root = jnp.sqrt(jnp.real(column[k]))
        return factor.at[:, k].set(jnp.where(rows > k, column / root, jnp.where(rows == k, root.astype(a.dtype), 0)))
    factor = lax.fori_loop(0, n, step, jnp.zeros_like(a))
    bad = ~jnp.all(jnp.isfinite(jnp.diagonal(factor)))
    return (factor if uplo == "L" else _conj(factor.T)), bad.astype("int32")


def _trsm(a: Any, b: Any, side: str, uplo: str, trans_x: str, diag: str) -> Any:
    """Substitution, one row of the result after the other."""
    from aot import lax
    from aot import numpy as jnp
    lower = uplo == "L"
    if trans_x != "N":
        a, lower = (a.T if trans_x == "T" else _conj(a.T)), not lower
    if side == "R":  # x a = b  <=>  a^T x^T = b^T
        a, b, lower = a.T, b.T, not lower
    n = a.shape[0]
    pivots = jnp.ones(n, a.dtype) if diag == "U" else jnp.diagonal(a)
    rest = a - jnp.diag(jnp.diagonal(a))
    rest = jnp.tril(rest) if lower else jnp.triu(rest)

    def step(i: Any, x: Any) -> Any:
        k = i if lower else n - 1 - i
        return x.at[k].set((b[k] - rest[k] @ x) / pivots[k])
    x = lax.fori_loop(0, n, step, jnp.zeros_like(b))
    return x.T if side == "R" else x


def _getrf(a: Any) -> Any:
    """Both factors in one matrix, the rows exchanged (counted from 1), and the first pivot that is zero."""
    from aot import lax
    from aot import numpy as jnp
    m, n = a.shape
    rows, columns = jnp.arange(m), jnp.arange(n)

    def step(k: Any, state: Any) -> Any:
        a, pivots, info = state
        p = jnp.argmax(jnp.where(rows >= k, jnp.abs(a[:, k]), -1)).astype("int32")
        a = a.at[k].set(a[p]).at[p].set(a[k])
        pivot = a[k, k]
        factors = jnp.where(rows > k, a[:, k] / jnp.where(pivot == 0, 1, pivot), 0)
        a = a - factors[:, None] * jnp.where(columns > k, a[k], 0)[None, :]
        a = a.at[:, k].set(jnp.where(rows > k, factors, a[:, k]))
        return a, pivots.at[k].set(p + 1), jnp.where((pivot == 0) & (info == 0), (k + 1).astype("int32"), info)
    return lax.fori_loop(0, min(m, n), step, (a, jnp.zeros(min(m, n), "int32"), jnp.zeros((), "int32")))


def _geqrf(a: Any) -> Any:
    """R and, below it, the Householder vectors; their scales."""
    from aot import lax
    from aot import numpy as jnp
    m, n = a.shape
    rows, columns = jnp.arange(m), jnp.arange(n)

    def step(k: Any, state: Any) -> Any:
        a, taus = state
        x = jnp.where(rows >= k, a[:, k], 0)
        alpha, below = x[k], jnp.where(rows > k, x, 0)
        largest = jnp.max(jnp.abs(x))
        scale = jnp.where(largest == 0, 1, largest)
        norm = scale * jnp.sqrt(jnp.sum(jnp.abs(x / scale) ** 2))
        flat = (jnp.max(jnp.abs(below)) == 0) & (jnp.imag(alpha) == 0)
        beta = jnp.where(flat, jnp.real(alpha), jnp.where(jnp.real(alpha) >= 0, -norm, norm)).astype(a.dtype)
        tau = jnp.where(flat, 0, (beta - alpha) / jnp.where(beta == 0, 1, beta))
        v = jnp.where(rows == k, 1, below / jnp.where(flat, 1, alpha - beta))
        update = _conj(tau) * v[:, None] * (_conj(v) @ a)[None, :]
        a = jnp.where(columns[None, :] > k, a - update, a)
        column = jnp.where(rows > k, v, jnp.where(rows == k, beta, a[:, k]))
        return a.at[:, k].set(column), taus.at[k].set(tau)
    return lax.fori_loop(0, min(m, n), step, (a, jnp.zeros(min(m, n), a.dtype)))


def _reflected(a: Any, taus: Any, c: Any, adjoint: bool) -> Any:
    """Q c, or Q^H c, of the reflectors below the diagonal of `a`."""
    from aot import lax
    from aot import numpy as jnp
    k, rows = taus.shape[0], jnp.arange(a.shape[0])

    def step(i: Any, c: Any) -> Any:
        j = i if adjoint else k - 1 - i
        v = jnp.where(rows > j, a[:, j], jnp.where(rows == j, 1, 0).astype(a.dtype))
        return c - (_conj(taus[j]) if adjoint else taus[j]) * v[:, None] * (_conj(v) @ c)[None, :]
    return lax.fori_loop(0, k, step, c)


def _orgqr(a: Any, taus: Any) -> Any:
    from aot import numpy as jnp
    return _reflected(a, taus, jnp.eye(*a.shape, dtype=a.dtype), False)


def _ormqr(a: Any, taus: Any, c: Any, left: bool, transpose: bool) -> Any:
    if left:
        return _reflected(a, taus, c, transpose)
    return _conj(_reflected(a, taus, _conj(c.T), not transpose).T)  # (c Q)^H = Q^H c^H


# ---- Jacobi rotations -------------------------------------------------------------------------------------------------

def _rotation(pp: Any, pq: Any, qq: Any, least: Any = 0) -> tuple[Any, Any]:
    """(c, s) that makes the Hermitian [[pp, pq], [conj(pq), qq]] diagonal; (1, 0) where |pq| <= least."""
    from aot import numpy as jnp
    size = jnp.abs(pq)
    nothing = size <= least
    phase = jnp.where(nothing, 1, pq / jnp.where(nothing, 1, size))
    theta = (jnp.real(qq) - jnp.real(pp)) / jnp.where(nothing, 1, 2 * size)
    t = jnp.where(nothing, 0, jnp.where(theta >= 0, 1, -1) / (jnp.abs(theta) + jnp.sqrt(theta * theta + 1)))
    c = 1 / jnp.sqrt(t * t + 1)
    return c, t * c * phase


def _rotated(x: Any, p: Any, q: Any, c: Any, s: Any) -> Any:
    """x with its columns p and q rotated."""
    xp, xq = x[:, p], x[:, q]
    return x.at[:, p].set(c * xp - _conj(s) * xq).at[:, q].set(s * xp + c * xq)


def _sweeps(rotate: Callable, off: Callable, start: tuple, n: int, most: int = 40) -> tuple:
    """Rotate every pair p < q, again and again while `off` of the state is true."""
    from aot import lax
    from aot import numpy as jnp
    if n < 2:
        return start
    row = lambda p, state: lax.fori_loop(p + 1, n, lambda q, s: rotate(p, q, s), state)
    sweep = lambda s: (s[0] + 1, *lax.fori_loop(0, n - 1, row, s[1:]))
    return lax.while_loop(lambda s: (s[0] < most) & off(s[1]), sweep, (jnp.zeros((), "int32"), *start))[1:]


def _syevd(a: Any, mode: str, uplo: str) -> Any:
    """Eigenvectors, and eigenvalues in ascending order."""
    from aot import numpy as jnp
    n = a.shape[0]
    half = jnp.tril(a) if uplo == "L" else _conj(jnp.triu(a).T)
    strict = half - jnp.diag(jnp.diagonal(half))
    a = strict + _conj(strict.T) + jnp.diag(jnp.real(jnp.diagonal(half)).astype(a.dtype))
    small = jnp.sum(jnp.abs(a) ** 2) * float(jnp.finfo(a.dtype).eps) ** 2

    def rotate(p: Any, q: Any, state: Any) -> Any:
        a, v = state
        c, s = _rotation(a[p, p], a[p, q], a[q, q])
        a = _rotated(a, p, q, c, s)
        return _conj(_rotated(_conj(a.T), p, q, c, s).T), _rotated(v, p, q, c, s)
    off = lambda a: jnp.sum(jnp.abs(a - jnp.diag(jnp.diagonal(a))) ** 2) > small
    a, v = _sweeps(rotate, off, (a, jnp.eye(n, dtype=a.dtype)), n)
    w = jnp.real(jnp.diagonal(a))
    order = jnp.argsort(w)
    return v[:, order], w[order], (~jnp.all(jnp.isfinite(w))).astype("int32")


def _tall_svd(a: Any) -> tuple[Any, Any, Any]:
    """(singular values, all left vectors, right vectors) of a matrix with at least as many rows as columns: its columns
    are rotated until they are orthogonal."""
    from aot import numpy as jnp
    m, n = a.shape
    eps = float(jnp.finfo(a.dtype).eps)

    def rotate(p: Any, q: Any, state: Any) -> Any:
        a, v = state
        xp, xq = a[:, p], a[:, q]
        pp, qq = jnp.sum(jnp.abs(xp) ** 2), jnp.sum(jnp.abs(xq) ** 2)
        c, s = _rotation(pp, jnp.sum(_conj(xp) * xq), qq, eps * jnp.sqrt(pp * qq))
        return _rotated(a, p, q, c, s), _rotated(v, p, q, c, s)

    def off(a: Any) -> Any:
        gram = jnp.abs(_conj(a.T) @ a)
        sizes = jnp.sqrt(jnp.diagonal(gram))
        return jnp.any(gram - jnp.diag(jnp.diagonal(gram)) > 4 * m * eps * sizes[:, None] * sizes[None, :])
    scale = jnp.max(jnp.abs(a))  # squares must not overflow
    scale = jnp.where(scale == 0, 1, scale)
    a, v = _sweeps(rotate, off, (a / scale, jnp.eye(n, dtype=a.dtype)), n)
    sizes = jnp.sqrt(jnp.sum(jnp.abs(a) ** 2, 0))
    order = jnp.argsort(-sizes)
    sizes, a = sizes[order], a[:, order]
    factors, taus = _geqrf(a / jnp.where(sizes == 0, 1, sizes))  # fills up the left vectors to a whole basis
    phases = jnp.where(sizes == 0, 1, jnp.diagonal(factors))
    u = _reflected(factors, taus, jnp.eye(m, dtype=a.dtype), False)
    return sizes * scale, u.at[:, :n].set(u[:, :n] * phases), v[:, order]


def _gesdd(a: Any, mode: str) -> Any:
    """(a, singular values, U, V^H, status); vectors of the first min(m, n) (S) or all singular values; with N
    they are not used."""
    from aot import numpy as jnp
    m, n = a.shape
    k = min(m, n)
    s, left, right = _tall_svd(a if m >= n else _conj(a.T))
    u, v = (left, right) if m >= n else (right, left)
    if mode == "S":
        u, v = u[:, :k], v[:, :k]
    return a, s, u, _conj(v.T), (~jnp.all(jnp.isfinite(s))).astype("int32")


#: name without the letter of its type -> (operands, **attributes) -> results
KERNELS: dict[str, Callable] = {
    "potrf": _batched(_potrf), "trsm": _batched(_trsm), "getrf": _batched(_getrf), "geqrf": _batched(_geqrf),
    "orgqr": _batched(_orgqr), "ungqr": _batched(_orgqr), "ormqr": _batched(_ormqr), "unmqr": _batched(_ormqr),
    "syevd": _batched(_syevd), "heevd": _batched(_syevd), "gesdd": _batched(_gesdd), "gesvd": _batched(_gesdd)}
