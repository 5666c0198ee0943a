"""What operations of lax mean for sparse operands: one table a format, name of the primitive -> rule.

A rule takes the operands (BCOO or BCSR, and dense arrays) and the parameters, and returns the list of results."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aot.numpy as jnp
from aot import lax
from aot.experimental.sparse import bcoo as sp
from aot.experimental.sparse import bcsr as rows
from aot.experimental.sparse._bcoo import BCOO
from aot.experimental.sparse._storage import take
from aot.experimental.sparse._values import is_sparse
from aot.experimental.sparse.api import todense
from aot.experimental.sparse.util import over_batch
from aot.trace import bind1, typeof

Array = Any
Rule = Callable[..., list]

# ---- elementwise functions of one operand ----------------------------------------------------------------------------

_LINEAR = frozenset("neg copy copy_p".split())
_ZERO_AT_ZERO = """
    abs asin asinh atan atanh bessel_i1e conj convert_element_type expm1 imag log1p real sign sin sinh sqrt square tan tanh"""
#: functions that are not zero at zero
_DENSE = frozenset("""
    acos acosh cos cosh digamma eq erfc erf_inv exp exp2 ge gt is_finite le lgamma log logistic lt ne rsqrt not clz
    population_count bessel_i0e""".split())


def _unary(prim: Any) -> Rule:
    def rule(x: Any, **params: Any) -> list:
        if prim.name not in _LINEAR and isinstance(x, BCOO) and not x.unique_indices:
            x = sp.bcoo_sum_duplicates(x, nse=x.nse)
        return [x.with_data(bind1(prim, x.data, **params))]
    return rule


def _integer_pow(prim: Any) -> Rule:
    apply = _unary(prim)

    def rule(x: Any, *, y: int) -> list:
        if y <= 0:
            raise NotImplementedError(f"sparse rule for integer_pow with non-positive exponent {y} is not implemented "
                                      "because it would result in dense output. hint: sparse.todense() makes the argument "
                                      "dense")
        return [x.with_data(x.data)] if y == 1 else apply(x, y=y)
    return rule


# ---- elementwise functions of two ------------------------------------------------------------------------------------

def _output_shape(x: Any, y: Any) -> tuple: return tuple(jnp.broadcast_shapes(x.shape, y.shape))


def _same_places(x: Any, y: Any) -> bool: return is_sparse(x) and is_sparse(y) and x._pattern is y._pattern


def _add(x: Any, y: Any) -> list:
    if is_sparse(x) and is_sparse(y):
        return [_add_sparse(x, y)]
    mat, dense = (x, y) if is_sparse(x) else (y, x)
    if _output_shape(mat, dense) != dense.shape:
        raise NotImplementedError("Addition between a sparse array X and a dense array Y is not implemented when the output "
                                  "shape is larger than Y.shape: the result would be dense. hint: sparse.todense(X) + Y")
    return [lax.add(jnp.broadcast_to(mat.todense(), dense.shape), dense)]


def _add_sparse(x: BCOO, y: BCOO) -> BCOO:
    if x.shape != y.shape:
        raise NotImplementedError("Addition between sparse matrices of different shapes.")
    if _same_places(x, y):
        return x.with_data(lax.add(x.data, y.data))
    if (x.n_batch, x.n_dense) != (y.n_batch, y.n_dense):
        raise NotImplementedError("Addition between sparse matrices with different batch/dense dimensions. hint: update_layout")
    n = x.n_batch

    def joined(a, b):
        batch = jnp.broadcast_shapes(a.shape[:n], b.shape[:n])
        return lax.concatenate([jnp.broadcast_to(z, (*batch, *z.shape[n:])) for z in (a, b)], n)
    return BCOO((joined(x.data, y.data), joined(x.indices, y.indices.astype(x.indices.dtype))), shape=x.shape)


def _sub(x: Any, y: Any) -> list:
    if is_sparse(x) and is_sparse(y):
        return [_add_sparse(x, y.with_data(lax.neg(y.data)))]
    raise NotImplementedError("Subtraction between sparse and dense array. hint: X + (-Y), or sparse.todense(X) - Y")


def _mul(x: Any, y: Any) -> list:
    if is_sparse(x) and is_sparse(y):
        if _same_places(x, y) and x.unique_indices:
            return [x.with_data(lax.mul(x.data, y.data))]
        return [sp.bcoo_multiply_sparse(x, y)]
    mat, dense = (x, y) if is_sparse(x) else (y, x)
    if not jnp.ndim(dense):
        return [mat.with_data(lax.mul(mat.data, _strong(dense, mat)))]
    return [mat.with_data(sp.bcoo_multiply_dense(mat, dense))]


def _strong(scalar: Any, mat: Any) -> Any:
    """A scalar with the dtype and weak type of the data."""
    a = typeof(mat.data)
    return lax._convert_element_type(scalar, a.dtype, a.weak_type)


def _div(x: Any, y: Any) -> list:
    if is_sparse(y):
        raise NotImplementedError("Division by a sparse array is not implemented because it would result in dense output. "
                                  "hint: sparse.todense() makes it dense")
    if not jnp.ndim(y):
        return [x.with_data(lax.div(x.data, _strong(y, x)))]
    if _output_shape(x, y) != x.shape:
        raise NotImplementedError(f"Division of a sparse array of shape {x.shape} by a dense array of shape {y.shape}, "
                                  "which would repeat its elements.")
    divisor = over_batch(lambda i, v: take(v - 1, i) + 1, x.n_batch)(x.indices, jnp.broadcast_to(y, x.shape))
    return [x.with_data(lax.div(x.data, jnp.broadcast_to(divisor, x.data.shape)))]


# ---- structural operations -------------------------------------------------------------------------------------------

def _reduce_sum(x: BCOO, *, axes: Any) -> list:
    out = sp.bcoo_reduce_sum(x, axes=axes)
    return [out if out.shape else lax.reduce_sum(out.data, tuple(range(out.data.ndim)))]


def _reshape(x: BCOO, *, new_sizes: Any, dimensions: Any = None, **_: Any) -> list:
    return [sp.bcoo_reshape(x, new_sizes=new_sizes, dimensions=dimensions)]


def _dot_general(x: Any, y: Any, *, dimension_numbers: Any, preferred_element_type: Any = None, **_: Any) -> list:
    return [sp.bcoo_dot_general(x, y, dimension_numbers=dimension_numbers, preferred_element_type=preferred_element_type)]


def _broadcast(x: BCOO, *, shape: Any, broadcast_dimensions: Any, **_: Any) -> list:
    return [sp.bcoo_broadcast_in_dim(x, shape=shape, broadcast_dimensions=broadcast_dimensions)]


def _conv(x: Any, y: Any, **params: Any) -> list:
    names = ("window_strides", "padding", "lhs_dilation", "rhs_dilation", "feature_group_count", "batch_group_count")
    return [sp.bcoo_conv_general_dilated(x, y, **{k: params[k] for k in names if k in params})]


_STRUCTURAL: dict[str, Rule] = {
    "add": _add, "add_any": _add, "sub": _sub, "mul": _mul, "div": _div, "reduce_sum": _reduce_sum, "reshape": _reshape,
    "dot_general": _dot_general, "broadcast_in_dim": _broadcast, "conv_general_dilated": _conv,
    "concatenate": lambda *xs, dimension: [sp.bcoo_concatenate(xs, dimension=dimension)],
    "transpose": lambda x, *, permutation: [sp.bcoo_transpose(x, permutation=permutation)],
    "rev": lambda x, *, dimensions: [sp.bcoo_rev(x, dimensions)],
    "squeeze": lambda x, *, dimensions: [sp.bcoo_squeeze(x, dimensions=dimensions)],
    "slice": lambda x, *, start_indices, limit_indices, strides=None: [
        sp.bcoo_slice(x, start_indices=start_indices, limit_indices=limit_indices, strides=strides)],
    "dynamic_slice": lambda x, *starts, slice_sizes: [sp.bcoo_dynamic_slice(x, starts, slice_sizes)],
    "gather": lambda x, starts, *, dimension_numbers, slice_sizes, mode, **_: [
        sp.bcoo_gather(x, starts, dimension_numbers, slice_sizes, mode=mode)],
    "todense": lambda *xs, tree: [todense(xs[0])],
}

_BY_ROWS: dict[str, Rule] = {
    "todense": lambda *xs, tree: [todense(xs[0])],
    "dot_general": lambda x, y, *, dimension_numbers, preferred_element_type=None, **_: [rows.bcsr_dot_general(
        x, y, dimension_numbers=dimension_numbers, preferred_element_type=preferred_element_type)],
    "broadcast_in_dim": lambda x, *, shape, broadcast_dimensions, **_: [
        rows.bcsr_broadcast_in_dim(x, shape=shape, broadcast_dimensions=broadcast_dimensions)],
    "concatenate": lambda *xs, dimension: [rows.bcsr_concatenate(xs, dimension=dimension)],
}


def apply(prim: Any, args: list, params: dict) -> list:
    """The results of a primitive for operands of which some are sparse; NotImplementedError where there is no rule."""
    name = prim.name
    kinds = {type(x) for x in args if is_sparse(x)}
    if len(kinds) > 1:
        raise NotImplementedError(f"sparse rule for {name} of a BCOO and a BCSR array. hint: to_bcoo()")
    structural = _STRUCTURAL if kinds == {BCOO} else _BY_ROWS
    if name in structural:
        return structural[name](*args, **params)
    if name == "integer_pow":
        return _integer_pow(prim)(*args, **params)
    if len(args) == 1 and (name in _LINEAR or name in _ZERO_AT_ZERO.split()):
        return _unary(prim)(*args, **params)
    if name in _DENSE:
        raise NotImplementedError(f"sparse rule for {name} is not implemented because it would result in dense output. "
                                  "hint: use sparse.todense() to convert the arguments to dense arrays")
    raise NotImplementedError(f"sparse rule for {name} is not implemented. hint: use sparse.todense() to convert the "
                              "arguments to dense arrays")
