"""Differences and what is built on them: diff, gradient, trapezoid, interp, unwrap."""
from __future__ import annotations

from typing import Any

import numpy as np

from aot import lax
from aot.numpy import reductions
from aot.numpy._util import (
    BOOL,
    array_of,
    arrays,
    axes_of,
    axis_of,
    broadcast_to,
    check,
    concrete_index,
    inexact,
    kind,
    named,
    promote,
    static_axes,
)
from aot.numpy._util import where as _where
from aot.numpy.selecting import clip
from aot.numpy.shapes import moveaxis
from aot.numpy.sorting import searchsorted


def _step(a: Any, axis: int) -> Any:
    """a[1:] - a[:-1] along `axis`; a != b for booleans."""
    later, sooner = lax.slice_in_dim(a, 1, None, axis=axis), lax.slice_in_dim(a, 0, -1, axis=axis)
    return lax.ne(later, sooner) if a.dtype == BOOL else lax.sub(later, sooner)


def _edge(name: str, x: Any, a: Any, axis: int) -> Any:
    x = arrays(name, x)
    return broadcast_to(x, (*a.shape[:axis], 1, *a.shape[axis + 1:])) if x.ndim == 0 else x


@named("n", "axis")
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """n-th differences of neighbours along `axis`."""
    a = arrays("diff", a)
    n = concrete_index(n, "'n' argument of jnp.diff")
    axis = concrete_index(axis, "'axis' argument of jnp.diff")
    if n == 0:
        return a
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    if a.ndim == 0:
        raise ValueError(f"diff requires input that is at least one dimensional; got {a}")
    axis = axis_of(axis, a.ndim)
    parts = [a if x is None else _edge("diff", x, a, axis) for x in (prepend, append)]
    joined = [*([parts[0]] if prepend is not None else []), a, *([parts[1]] if append is not None else [])]
    a = lax.concatenate([array_of(x) for x in promote(*joined)], axis) if len(joined) > 1 else a
    for _ in range(n):
        a = _step(a, axis) if a.shape[axis] else a
    return a


@named()
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """Differences of neighbours in the flattened array, between optional first and last values."""
    a = arrays("ediff1d", ary)
    out = _step(lax.reshape(a, (a.size,)), 0) if a.size else lax.reshape(a, (0,))
    first, last = [[] if x is None else [_flat_as(x, out.dtype)] for x in (to_begin, to_end)]
    return lax.concatenate([*first, out, *last], 0) if first or last else out


def _flat_as(x: Any, dtype: Any) -> Any:
    x = arrays("ediff1d", x)
    return lax.convert_element_type(lax.reshape(x, (x.size,)), dtype)


# ---- gradient --------------------------------------------------------------------------------------------------------
def _gradient_along(a: Any, h: Any, axis: int) -> Any:
    """Central differences inside, one-sided ones at both ends, for spacing (or positions) h."""
    part = lambda x, lo, hi: lax.slice_in_dim(x, lo, hi, axis=axis)
    first, last = part(a, 1, 2) - part(a, 0, 1), part(a, -1, None) - part(a, -2, -1)
    if h.ndim == 0:
        return lax.concatenate([first / h, (part(a, 2, None) - part(a, 0, -2)) * 0.5 / h, last / h], axis)
    if h.ndim != 1:
        raise ValueError("Spacing arrays must be 1D arrays or scalars.")
    if h.shape[0] != a.shape[axis]:
        raise ValueError("Spacing arrays must have the same length as the dimension along which the gradient is calculated.")
    h = lax.reshape(h, tuple(h.shape[0] if i == axis else 1 for i in range(a.ndim)))
    first, last = first / (part(h, 1, 2) - part(h, 0, 1)), last / (part(h, -1, None) - part(h, -2, -1))
    left, right = part(h, 1, -1) - part(h, 0, -2), part(h, 2, None) - part(h, 1, -1)
    inner = (-right / (left * (left + right)) * part(a, 0, -2) + (right - left) / (left * right) * part(a, 1, -1)
             + left / (right * (left + right)) * part(a, 2, None))
    return lax.concatenate([first, inner, last], axis)


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int | None = None) -> Any:
    """Derivatives along each axis by finite differences, for unit spacing, given spacings or given positions."""
    if edge_order is not None:
        raise NotImplementedError("The 'edge_order' argument to jnp.gradient is not supported.")
    check("gradient", f, *varargs)
    return _gradient(f, *varargs, axis=static_axes(axis))


@named("axis")
def _gradient(f: Any, *spacing: Any, axis: Any) -> Any:
    a, *steps = [array_of(x) for x in promote(f, *spacing, to=inexact)]
    axes = axes_of(axis, a.ndim)
    if not axes:
        return []
    if min(a.shape[i] for i in axes) < 2:
        raise ValueError("Shape of array too small to calculate a numerical gradient, at least 2 elements are required.")
    if len(steps) not in (0, 1, len(axes)):
        raise TypeError(f"Invalid number of spacing arguments {len(steps)} for {axis=}")
    steps = steps or [lax.full((), 1, a.dtype)]
    steps = steps * len(axes) if len(steps) == 1 else steps
    out = [_gradient_along(a, h, ax) for h, ax in zip(steps, axes)]
    return out[0] if len(out) == 1 else out


@named("axis")
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """Integral along `axis` by the trapezoidal rule, over positions `x` or with spacing `dx`."""
    if x is None:
        (y,) = promote(arrays("trapezoid", y), to=inexact)
        width = arrays("trapezoid", dx)
        if width.ndim:
            width = moveaxis(lax.expand_dims(width, tuple(range(y.ndim - width.ndim))), axis, -1)
    else:
        y, x = promote(*arrays("trapezoid", y, x), to=inexact)
        width = diff(x) if x.ndim == 1 else moveaxis(diff(x, axis=axis), axis, -1)
    y = moveaxis(y, axis, -1)
    if width.ndim == 0 or width.shape[-1] == 1:
        width = width if width.ndim == 0 else width[..., 0]
        return width * (reductions.sum(y, -1) - 0.5 * (y[..., 0] + y[..., -1]))
    return 0.5 * reductions.sum(width * (y[..., 1:] + y[..., :-1]), -1)


# ---- interpolation ---------------------------------------------------------------------------------------------------
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """Linear interpolation of the points (xp, fp) at `x`. `left`, `right`: values outside, or "extrapolate"."""
    check("interp", x, xp, fp)
    if np.shape(xp) != np.shape(fp) or np.ndim(xp) != 1:
        raise ValueError("xp and fp must be one-dimensional arrays of equal size")
    for name, value in (("left", left), ("right", right)):
        if isinstance(value, str) and value != "extrapolate":
            raise ValueError(f"the only valid string value of `{name}` is 'extrapolate', but got: {value!r}")
    if period is not None and np.ndim(period) != 0:
        raise ValueError(f"period must be a scalar; got {period}")
    beyond = tuple(isinstance(v, str) for v in (left, right))
    return _interp(x, xp, fp, *[None if isinstance(v, str) else v for v in (left, right)], period, extrapolate=beyond)


@named("extrapolate")
def _interp(x: Any, xp: Any, fp: Any, left: Any, right: Any, period: Any, extrapolate: tuple[bool, bool]) -> Any:
    x, xp = [array_of(v) for v in promote(x, xp, to=inexact)]
    (fp,) = [array_of(v) for v in promote(fp, to=inexact)]
    if kind(x.dtype) == "c":
        raise ValueError("jnp.interp: complex x values not supported.")
    if period is not None:
        x, xp, fp = _periodic(x, xp, fp, abs(period))
    i = clip(searchsorted(xp, x, side="right"), 1, xp.shape[0] - 1)
    rise, run = fp[i] - fp[i - 1], xp[i] - xp[i - 1]
    ahead = x - xp[i - 1]
    tiny = float(np.spacing(np.finfo(xp.dtype).eps))
    same = lax.abs(run) <= tiny
    f = _where(same, fp[i - 1], fp[i - 1] + (ahead / _where(same, 1, run)) * rise)
    if period is None and not extrapolate[0]:
        f = _where(x < xp[0], fp[0] if left is None else left, f)
    if period is None and not extrapolate[1]:
        f = _where(x > xp[-1], fp[-1] if right is None else right, f)
    return f


def _periodic(x: Any, xp: Any, fp: Any, period: Any) -> tuple[Any, Any, Any]:
    """Everything moved into one period, with a point of the neighbouring periods at each end."""
    x, xp = x % period, xp % period
    xp, fp = lax.sort_key_val(xp, fp)
    xp = lax.concatenate([xp[-1:] - period, xp, xp[:1] + period], 0)
    return x, xp, lax.concatenate([fp[-1:], fp, fp[:1]], 0)


@named("axis")
def unwrap(p: Any, discont: Any = None, axis: int = -1, period: Any = 2 * np.pi) -> Any:
    """Angles made continuous by adding multiples of `period` where neighbours jump."""
    p, period = [array_of(x) for x in promote(arrays("unwrap", p), period)]
    if kind(p.dtype) == "c":
        raise ValueError("jnp.unwrap does not support complex inputs.")
    if p.shape[axis] == 0:
        return p
    discont = period / 2 if discont is None else discont
    half = period // 2 if kind(p.dtype) in "ui" else period / 2
    jump = diff(p, axis=axis)
    small = (jump + half) % period - half
    small = _where((small == -half) & (jump > 0), half, small)
    correction = _where(lax.abs(jump) < discont, 0, small - jump)
    axis = axis_of(axis, p.ndim)
    start, rest = lax.slice_in_dim(p, 0, 1, axis=axis), lax.slice_in_dim(p, 1, None, axis=axis)
    joined = promote(start, rest + reductions.cumsum(correction, axis=axis))
    return lax.concatenate([array_of(x) for x in joined], axis)
