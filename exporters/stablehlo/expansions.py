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
    rule = _RULES.get(_name(op))
    return rule and (_kernel if op.operands[0].dtype.kind == "c" else rule)


def _name(op: Op) -> str:
    """The LAPACK routine that an operation calls, without the letter of its type; nothing for other operations."""
    name = str(op.attrs.get("call_target_name", "")) if op.name == "custom_call" else ""
    is_kernel = name.startswith("lapack_") and name.endswith("_ffi")
    return name.removeprefix("lapack_").removesuffix("_ffi")[1:] if is_kernel else ""


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


def _kernel(op: Op) -> tuple[list[Op], list[Value]]:
    """A LAPACK call by the form that compilers without the kernels get."""
    from aot.lower.plain_lapack import form
    config = {k: v if isinstance(v, bool) else chr(v) for k, v in _config(op).items()}
    return _traced(form(_name(op), config, [r.shape for r in op.results]), op)


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
    **dict.fromkeys("gesdd gesvd geqrf getrf heevd orgqr ormqr syevd ungqr unmqr".split(), _kernel)}
