"""Checks of derivatives against differences, for tests."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from aot import dtypes
from aot.api import jvp, linearize, vjp
from aot.trace import typeof
from aot.tree_util import tree_leaves, tree_map

EPS = 1e-4
#: dtype -> what derivatives may be off by for each element of the array, both absolute and relative
_TOLERANCE = {**{np.dtype(t): v for t, v in (("float16", 1e-2), ("float32", 2e-3), ("float64", 1e-5), ("complex64", 1e-3),
                                             ("complex128", 1e-5))}, np.dtype(dtypes.bfloat16): 1e-1}


def _dtype(x: Any) -> np.dtype:
    return np.dtype(getattr(x, "dtype", None) or np.asarray(x).dtype)


def _wide(x: Any) -> np.ndarray:
    x = np.asarray(x)
    return x.astype(np.float64) if x.dtype.kind == "V" else x


def _tolerance(given: Any, a: Any, b: Any) -> float:
    """The looser of both dtypes, unless given (a number, or a dict from dtype to number)."""
    if given is not None and not isinstance(given, dict):
        return given
    table = {**_TOLERANCE, **{np.dtype(k): v for k, v in (given or {}).items()}}
    return max(table.get(_dtype(a), 0.0), table.get(_dtype(b), 0.0))


def _check_close(got: Any, want: Any, atol: Any = None, rtol: Any = None, message: str = "") -> None:
    def one(a, b):
        if _dtype(a) == dtypes.float0:
            return
        n = np.size(a)          # tolerances grow with arrays
        np.testing.assert_allclose(_wide(a), _wide(b), atol=_tolerance(atol, a, b) * n, rtol=_tolerance(rtol, a, b) * n,
                                   err_msg=message)
    tree_map(one, got, want)


def _random_like(rng: np.random.RandomState, x: Any) -> Any:
    """Normal values in the shape and dtype of x; a Python number for one."""
    dtype, shape = _dtype(x), np.shape(x)
    if isinstance(x, (float, complex)):
        draw = rng.randn()
        return complex(draw, rng.randn()) if isinstance(x, complex) else draw
    if not dtypes.issubdtype(dtype, np.inexact):
        return np.zeros(shape, dtypes.float0)
    values = rng.randn(*shape)
    if dtypes.issubdtype(dtype, np.complexfloating):
        values = values + 1j * rng.randn(*shape)
    return np.asarray(values).astype(dtype)


def _moved(x: Any, t: Any, by: float) -> Any:
    if _dtype(t) == dtypes.float0:
        return x
    if isinstance(x, (float, complex)):
        return x + by * t
    return np.asarray(_wide(x) + by * _wide(t)).astype(_dtype(x))


def _difference(f: Callable, args: tuple, tangents: tuple, eps: float) -> Any:
    """Central difference of f at args along tangents."""
    high, low = (f(*tree_map(partial(_moved, by=by), args, tangents)) for by in (eps, -eps))

    def one(a, b):
        dtype = _dtype(a)
        if not dtypes.issubdtype(dtype, np.inexact):
            return np.zeros(np.shape(a), dtypes.float0)
        with np.errstate(invalid="ignore"):
            step = np.where(_wide(a) == _wide(b), 0, _wide(a) - _wide(b)) * (0.5 / eps)
        return np.asarray(step).astype(dtype)
    return tree_map(one, high, low)


def check_jvp(f: Callable, f_jvp: Callable, args: Sequence, atol: Any = None, rtol: Any = None, eps: float = EPS,
              err_msg: str = "") -> None:
    """AssertionError unless f_jvp(args, tangents) gives f(*args) and its central difference along random tangents."""
    args, rng = tuple(args), np.random.RandomState(0)
    tangents = tree_map(partial(_random_like, rng), args)
    out, slope = f_jvp(args, tangents)
    for a, b in zip(tree_leaves(out), tree_leaves(slope)):
        assert typeof(a).dtype == typeof(b).dtype or typeof(b).dtype == dtypes.float0, f"{err_msg}: tangent dtype"
    name = f"{err_msg} " if err_msg else ""
    _check_close(out, f(*args), atol, rtol, name + "primal")
    _check_close(slope, _difference(f, args, tangents, eps), atol, rtol, name + "tangent")


def check_vjp(f: Callable, f_vjp: Callable, args: Sequence, atol: Any = None, rtol: Any = None, eps: float = EPS,
              err_msg: str = "") -> None:
    """AssertionError unless the pullback of f_vjp(*args) -> (out, pullback) is the transpose of the central difference."""
    args, rng = tuple(args), np.random.RandomState(0)
    out, pullback = f_vjp(*args)
    name = f"{err_msg} " if err_msg else ""
    _check_close(out, f(*args), atol, rtol, name + "primal")
    tangents = tree_map(partial(_random_like, rng), args)
    slope = _difference(f, args, tangents, eps)
    cotangents = tree_map(partial(_random_like, rng), out)
    conj = partial(tree_map, lambda x: x if isinstance(x, float) or _dtype(x) == dtypes.float0 else np.conj(np.asarray(x)))
    back = conj(pullback(conj(cotangents)))
    _check_close(_inner(tangents, back), _inner(slope, cotangents), atol, rtol, name + "cotangent projection")


def _inner(xs: Any, ys: Any) -> np.ndarray:
    total, dtype = 0.0, np.dtype(np.float32)
    for x, y in zip(tree_leaves(xs), tree_leaves(ys)):
        if _dtype(x) == dtypes.float0 or _dtype(y) == dtypes.float0:
            continue
        total += np.real(np.vdot(_wide(x), _wide(y)))
        dtype = np.zeros((), _dtype(y)).real.dtype if _dtype(y).kind != "V" else _dtype(y)
    return np.asarray(total).astype(dtype)


def _jvp_from_linearize(f: Callable, primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    out, linear = linearize(f, *primals)[:2]
    return out, linear(*tangents)


def check_grads(f: Callable, args: Sequence, order: int, modes: Sequence[str] = ("fwd", "rev"), atol: Any = None,
                rtol: Any = None, eps: float | None = None) -> None:
    """AssertionError unless derivatives of f up to `order` agree with differences; modes: fwd, rev, lin (linearize)."""
    step = eps or EPS

    def check(f, args, order, message):
        named = lambda kind: f"{kind} of {message}" if message else kind
        for mode, kind, derivative in (("fwd", "JVP", partial(jvp, f)), ("lin", "LIN", partial(_jvp_from_linearize, f))):
            if mode in modes:
                check_jvp(f, derivative, args, atol, rtol, step, named(kind))
                if order > 1:
                    check(derivative, (args, args), order - 1, named(kind))
        if "rev" in modes:
            check_vjp(f, partial(vjp, f), args, atol, rtol, step, named("VJP"))
            if order > 1:
                def back(*args):
                    out, pullback = vjp(f, *args)[:2]
                    return pullback(out)
                check(back, args, order - 1, named("VJP"))
    check(f, tuple(args), order, "")
