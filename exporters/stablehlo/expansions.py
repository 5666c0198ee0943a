"""Operations written in others that every format has: LAPACK calls of programs for the CPU, and normalization of batches."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .ir import Block, Op, Program, Value

_LEFT, _LOWER, _NO_TRANSPOSE, _UNIT = 76, 76, 78, 85                # LAPACK's letters L, L, N, U


def expand(program: Program) -> Program:
    """Replace the LAPACK calls that have a form here, in place; others stay."""
    _expand_block(program.body)
    return program


def _expand_block(block: Block) -> None:
    kept: list[Op] = []
    replaced: dict[Value, Value] = {}
    for op in block.ops:
        op.operands = [replaced.get(v, v) for v in op.operands]
        for region in op.regions:
            _expand_block(region)
        rule = _rule(op)
        if rule is None:
            kept.append(op)
            continue
        ops, results = rule(op)
        for made in ops:
            made.location = op.location
        kept += ops
        replaced.update(zip(op.results, results))
    block.ops = kept
    if replaced:
        _replace(block, replaced)


def _replace(block: Block, values: dict[Value, Value]) -> None:
    from .simplify import substitute
    substitute(block, values)


def _rule(op: Op) -> Callable[[Op], tuple[list[Op], list[Value]]] | None:
    if op.name in _NORMALIZATIONS:
        return lambda op: _traced(lambda *xs: _NORMALIZATIONS[op.name](op.attrs["epsilon"], op.attrs["feature_index"], *xs), op)
    name = str(op.attrs.get("call_target_name", "")) if op.name == "custom_call" else ""
    if not (name.startswith("lapack_") and name.endswith("_ffi")) or op.operands[0].dtype.kind == "c":
        return None
    return _RULES.get(name.removeprefix("lapack_").removesuffix("_ffi")[1:])


def _config(op: Op) -> dict[str, Any]:
    found = op.attrs.get("backend_config") or op.attrs.get("mhlo.backend_config")
    return found if isinstance(found, dict) else {}


# ---- operations of StableHLO -----------------------------------------------------------------------------------------

def _potrf(op: Op) -> tuple[list[Op], list[Value]]:
    """cholesky; the last element of the diagonal is NaN where the matrix is not positive definite."""
    a = op.operands[0]
    if _config(op).get("uplo", _LOWER) != _LOWER:
        return _traced(lambda x: _upper_cholesky(x), op)
    factor = Op("cholesky", [a], [a.type], {"lower": True})
    checked, results = _traced(_info, op, [factor.result])
    return [factor, *checked], [factor.result, results[0]]


def _info(factor: Any) -> Any:
    """LAPACK's status: 0, or positive where the factor is not finite."""
    from aot import numpy as jnp
    return jnp.logical_not(jnp.isfinite(factor[..., -1, -1])).astype("int32")


def _upper_cholesky(a: Any) -> Any:
    from aot import lax
    from aot import numpy as jnp
    factor = lax.linalg.cholesky(jnp.swapaxes(a, -1, -2))
    return jnp.swapaxes(factor, -1, -2), _info(factor)


def _trsm(op: Op) -> tuple[list[Op], list[Value]]:
    c = _config(op)
    attrs = {"left_side": c["side"] == _LEFT, "lower": c["uplo"] == _LOWER, "unit_diagonal": c["diag"] == _UNIT,
             "transpose_a": "NO_TRANSPOSE" if c["trans_x"] == _NO_TRANSPOSE else "TRANSPOSE"}
    made = Op("triangular_solve", op.operands[:2], [op.result.type], attrs)
    return [made], made.results


# ---- functions that are traced ---------------------------------------------------------------------------------------

def _traced(f: Callable, op: Op, operands: Sequence[Value] | None = None) -> tuple[list[Op], list[Value]]:
    """The operations of a function over aot.numpy, applied to the operands of an operation."""
    import aot

    from .reader import read
    operands = list(operands if operands is not None else op.operands)
    with aot.enable_x64(True):
        structs = [aot.ShapeDtypeStruct(v.shape, v.dtype) for v in operands]
        lowered = aot.jit(f).trace(*structs).lower()
    program = read(lowered.text)
    if len(lowered.consts):
        raise AssertionError("an expansion captured an array")
    body = program.body
    _replace(body, dict(zip(body.args, operands)))
    return body.ops, body.outputs


def _batched(f: Callable) -> Callable:
    """f of one matrix, mapped over leading dimensions."""
    def mapped(a: Any, *more: Any) -> Any:
        import aot
        g = f
        for _ in range(a.ndim - 2):
            g = aot.vmap(g)
        return g(a, *more)
    return mapped


def _lu(a: Any) -> Any:
    """getrf: both factors in one matrix, pivots counted from 1, status."""
    from aot import lax
    from aot import numpy as jnp
    m, n = a.shape
    rows, columns = jnp.arange(m), jnp.arange(n)

    def step(k: Any, state: Any) -> Any:
        a, pivots, info = state
        size = jnp.where(rows >= k, jnp.abs(a[:, k]), -1)
        p = jnp.argmax(size).astype("int32")
        top, other = a[k], a[p]
        a = a.at[k].set(other).at[p].set(top)
        pivot = a[k, k]
        factors = jnp.where(rows > k, a[:, k] / jnp.where(pivot == 0, 1, pivot), 0)
        a = a - factors[:, None] * jnp.where(columns > k, a[k], 0)[None, :]
        a = a.at[:, k].set(jnp.where(rows > k, factors, a[:, k]))
        info = jnp.where((pivot == 0) & (info == 0), (k + 1).astype("int32"), info)
        return a, pivots.at[k].set(p + 1), info
    start = a, jnp.zeros(min(m, n), "int32"), jnp.zeros((), "int32")
    return lax.fori_loop(0, min(m, n), step, start)


def _qr(a: Any) -> Any:
    """geqrf: the upper triangle and, below it, the Householder vectors; their factors."""
    from aot import lax
    from aot import numpy as jnp
    m, n = a.shape
    rows, columns = jnp.arange(m), jnp.arange(n)

    def step(k: Any, state: Any) -> Any:
        a, taus = state
        x = jnp.where(rows >= k, a[:, k], 0)
        alpha, rest = x[k], jnp.where(rows > k, x, 0)
        largest = jnp.max(jnp.abs(x))
        scale = jnp.where(largest == 0, 1, largest)
        norm = scale * jnp.sqrt(jnp.sum((x / scale) ** 2))
        flat = jnp.max(jnp.abs(rest)) == 0
        beta = jnp.where(flat, alpha, jnp.where(alpha >= 0, -norm, norm))
        tau = jnp.where(flat, 0, (beta - alpha) / jnp.where(beta == 0, 1, beta))
        v = jnp.where(rows == k, 1, rest / jnp.where(flat, 1, alpha - beta))
        update = tau * v[:, None] * (v @ a)[None, :]
        a = jnp.where(columns[None, :] > k, a - update, a)
        column = jnp.where(rows > k, v, jnp.where(rows == k, beta, a[:, k]))
        return a.at[:, k].set(column), taus.at[k].set(tau)
    return lax.fori_loop(0, min(m, n), step, (a, jnp.zeros(min(m, n), a.dtype)))


def _q(a: Any, taus: Any) -> Any:
    """orgqr: the first columns of the product of Householder reflections."""
    from aot import lax
    from aot import numpy as jnp
    m, n = a.shape
    k = taus.shape[0]
    rows = jnp.arange(m)

    def step(i: Any, q: Any) -> Any:
        j = k - 1 - i
        v = jnp.where(rows > j, a[:, j], jnp.where(rows == j, 1, 0).astype(a.dtype))
        return q - taus[j] * v[:, None] * (v @ q)[None, :]
    return lax.fori_loop(0, k, step, jnp.eye(m, n, dtype=a.dtype))


# ---- normalization of batches ----------------------------------------------------------------------------------------

def _along(x: Any, axis: int, v: Any) -> Any:
    """A vector as an array that broadcasts along one axis of x."""
    return v.reshape([-1 if i == axis else 1 for i in range(x.ndim)])


def _normalized(epsilon: float, axis: int, x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
    from aot import numpy as jnp
    deviation = jnp.sqrt(_along(x, axis, variance) + epsilon).astype(x.dtype)
    return _along(x, axis, scale) * (x - _along(x, axis, mean)) / deviation + _along(x, axis, offset)


def _batch_norm(epsilon: float, axis: int, x: Any, scale: Any, offset: Any) -> Any:
    from aot import numpy as jnp
    others = tuple(i for i in range(x.ndim) if i != axis)
    mean = jnp.mean(x, others)
    variance = jnp.mean((x - _along(x, axis, mean)) ** 2, others)
    return _normalized(epsilon, axis, x, scale, offset, mean, variance), mean, variance


def _batch_norm_grad(epsilon: float, axis: int, x: Any, scale: Any, mean: Any, variance: Any, g: Any) -> Any:
    from aot import numpy as jnp
    others = tuple(i for i in range(x.ndim) if i != axis)
    n = x.size // x.shape[axis]
    centred, root = x - _along(x, axis, mean), jnp.sqrt(_along(x, axis, variance) + epsilon).astype(x.dtype)
    offset, product = jnp.sum(g, others), jnp.sum(g * centred, others)
    rest = n * g - _along(x, axis, offset) - centred * _along(x, axis, product) / (root * root)
    return _along(x, axis, scale) / root / n * rest, jnp.sum(g * (centred / root), others), offset


_NORMALIZATIONS = {"batch_norm_inference": _normalized, "batch_norm_training": _batch_norm, "batch_norm_grad": _batch_norm_grad}

_RULES: dict[str, Callable[[Op], tuple[list[Op], list[Value]]]] = {
    "potrf": _potrf, "trsm": _trsm,
    "getrf": lambda op: _traced(_batched(_lu), op), "geqrf": lambda op: _traced(_batched(_qr), op),
    "orgqr": lambda op: _traced(_batched(_q), op)}
