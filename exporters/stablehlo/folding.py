"""Constant folding: operations on constants, through numpy and ml_dtypes.

Only operations whose result is exact and the same on every machine are here; transcendental functions are left to the
runtime.  A function returns None where the result would depend on what numpy does out of range.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .ir import Op, Type

Array = np.ndarray


def fold(op: Op, arrays: list[Array]) -> Array | None:
    """The value of an operation on constants, or None when it is not one that is folded."""
    rule = _RULES.get(op.name)
    if rule is None or not _foldable(op.dtype) or not all(_foldable(a.dtype) for a in arrays):
        return None
    with np.errstate(all="ignore"):
        found = rule(op, *arrays)
    return None if found is None else np.asarray(found).astype(op.dtype, copy=False).reshape(op.shape)


def _foldable(dtype: np.dtype) -> bool:
    return dtype.kind in "biufc" or dtype.name == "bfloat16"


def _elementwise(f: Callable) -> Callable:
    return lambda op, *xs: f(*xs)


def _arithmetic(f: Callable, logical: Callable) -> Callable:
    return lambda op, x, y: logical(x, y) if x.dtype == np.bool_ else f(x, y)


def _divide(op: Op, x: Array, y: Array) -> Array | None:
    if x.dtype.kind in "fc" or x.dtype.name == "bfloat16":
        return np.divide(x, y)
    if not _divides(x, y):
        return None
    return _truncated(x, y)


def _truncated(x: Array, y: Array) -> Array:
    quotient = x // y
    return quotient + ((quotient * y != x) & ((x < 0) != (y < 0))).astype(x.dtype)


def _remainder(op: Op, x: Array, y: Array) -> Array | None:
    if x.dtype.kind in "iu" and not _divides(x, y) or x.dtype.kind in "bc":
        return None
    return np.fmod(x, y)


def _divides(x: Array, y: Array) -> bool:
    return bool((y != 0).all() and not (x.dtype.kind == "i" and ((y == -1) & (x == np.iinfo(x.dtype).min)).any()))


def _shift(f: Callable) -> Callable:
    def rule(op: Op, x: Array, s: Array) -> Array | None:
        bits = x.dtype.itemsize * 8
        if x.dtype.kind not in "iu" or (s < 0).any() or (s >= bits).any():
            return None
        return f(x, s)
    return rule


def _logical_right(x: Array, s: Array) -> Array:
    unsigned = x.dtype.str.replace("i", "u")
    return np.right_shift(x.view(unsigned), s.view(unsigned)).view(x.dtype)


def _convert(op: Op, x: Array) -> Array | None:
    to = op.dtype
    if to == np.bool_:
        return x != 0
    if x.dtype.kind == "c" or to.kind == "c":
        return x.astype(to) if to.kind == "c" else x.real.astype(to)
    if to.kind in "iu" and (x.dtype.kind == "f" or x.dtype.name == "bfloat16"):
        wide, info = x.astype(np.float64), np.iinfo(to)
        if not np.isfinite(wide).all() or (wide <= float(info.min) - 1).any() or (wide >= float(info.max)).any():
            return None
    return x.astype(to)


_COMPARISONS = {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater,
                "GE": np.greater_equal}


def _compare(op: Op, x: Array, y: Array) -> Array | None:
    if op.attrs.get("compare_type") == "TOTALORDER" or x.dtype.kind == "c":
        return None
    return _COMPARISONS[op.attrs["comparison_direction"]](x, y)


def broadcast(x: Array, dims: tuple[int, ...], type: Type) -> Array:
    """broadcast_in_dim as a view."""
    shape = [1] * type.rank
    for d, n in zip(dims, x.shape):
        shape[d] = n
    return np.broadcast_to(x.reshape(shape), type.shape)


def _iota(op: Op) -> Array:
    n, axis = op.shape[op.attrs["iota_dimension"]], op.attrs["iota_dimension"]
    shape = [1] * len(op.shape)
    shape[axis] = n
    return np.broadcast_to(np.arange(n).astype(op.dtype).reshape(shape), op.shape)


def _slice(op: Op, x: Array) -> Array:
    a = op.attrs
    return x[tuple(slice(*t) for t in zip(a["start_indices"], a["limit_indices"], a["strides"]))]


def _pad(op: Op, x: Array, value: Array) -> Array | None:
    low, high, interior = (op.attrs[f"edge_padding_{k}"] if k != "interior" else op.attrs["interior_padding"]
                           for k in ("low", "high", "interior"))
    if min((*low, *high, 0)) < 0:
        return None
    out = np.full(op.shape, value)
    out[tuple(slice(lo, lo + (n - 1) * (i + 1) + 1 if n else lo, i + 1) for lo, n, i in zip(low, x.shape, interior))] = x
    return out


def _bitcast(op: Op, x: Array) -> Array | None:
    return np.array(x, order="C").view(op.dtype) if x.dtype.itemsize == op.dtype.itemsize and x.dtype != bool else None


_RULES: dict[str, Callable[..., Any]] = {
    "add": _arithmetic(np.add, np.logical_or), "subtract": _elementwise(np.subtract),
    "multiply": _arithmetic(np.multiply, np.logical_and), "divide": _divide, "remainder": _remainder,
    "maximum": _elementwise(np.maximum), "minimum": _elementwise(np.minimum),
    "and": _arithmetic(np.bitwise_and, np.logical_and), "or": _arithmetic(np.bitwise_or, np.logical_or),
    "xor": _arithmetic(np.bitwise_xor, np.logical_xor), "not": _elementwise(np.invert),
    "negate": _elementwise(np.negative), "abs": _elementwise(np.abs), "floor": _elementwise(np.floor),
    "ceil": _elementwise(np.ceil), "sqrt": lambda op, x: np.sqrt(x) if x.dtype.kind == "f" else None,
    "shift_left": _shift(np.left_shift), "shift_right_arithmetic": _shift(lambda x, s: x >> s if x.dtype.kind == "i" else None),
    "shift_right_logical": _shift(_logical_right), "convert": _convert, "compare": _compare,
    "select": lambda op, p, x, y: np.where(p, x, y), "bitcast_convert": _bitcast,
    "real": lambda op, x: x.real, "imag": lambda op, x: x.imag,
    "complex": lambda op, x, y: (x + 1j * y).astype(op.dtype) if np.isfinite(x).all() and np.isfinite(y).all() else None,
    "iota": _iota, "reshape": lambda op, x: x.reshape(op.shape),
    "broadcast_in_dim": lambda op, x: broadcast(x, op.attrs["broadcast_dimensions"], op.result.type),
    "transpose": lambda op, x: x.transpose(op.attrs["permutation"]), "slice": _slice, "pad": _pad,
    "concatenate": lambda op, *xs: np.concatenate(xs, op.attrs["dimension"]),
    "reverse": lambda op, x: np.flip(x, op.attrs["dimensions"]),
}
