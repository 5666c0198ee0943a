"""Initial value problems of ordinary differential equations, by the adaptive Runge-Kutta method of Dormand and Prince
(J. Comput. Appl. Math. 6 (1980)), differentiated by solving the adjoint equation backwards."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import dtypes, lax
from aot.api import jit, vjp, vmap
from aot.config import default_matmul_precision
from aot.custom import custom_vjp
from aot.flatten_util import ravel_pytree as ravel_pytree
from aot.ops.loops import stage_tree
from aot.scipy._util import inexact, is_complex
from aot.trace import eval_jaxpr, typeof
from aot.tree_util import tree_flatten, tree_leaves, tree_map, tree_structure

Array = Any

# The tableau: times and weights of each stage, weights of the solution, and their difference from the embedded method.
_ALPHA = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1., 1.)
_BETA = ((1 / 5,), (3 / 40, 9 / 40), (44 / 45, -56 / 15, 32 / 9), (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
         (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
         (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84))
_SOLUTION = (*_BETA[-1], 0)
_ERROR = (35 / 384 - 1951 / 21600, 0, 500 / 1113 - 22642 / 50085, 125 / 192 - 451 / 720, -2187 / 6784 + 12231 / 42400,
          11 / 84 - 649 / 6300, -1 / 60)
#: weights of the stages at the middle of a step (L. Shampine, Math. Comp. 46 (1986))
_MIDDLE = (6025192743 / 30085553152 / 2, 0, 51252292925 / 65400821598 / 2, -2691868925 / 45128329728 / 2,
           187940372067 / 1594534317056 / 2, -1776094331 / 19743644256 / 2, 11237099 / 235043384 / 2)


def _weighted(weights: Any, k: Array) -> Array:
    return jnp.dot(np.asarray(weights, k.dtype), k, precision=lax.Precision.HIGHEST)


def abs2(x: Array) -> Array:
    """|x|^2."""
    return x.real ** 2 + x.imag ** 2 if is_complex(x) else x ** 2


def fit_4th_order_polynomial(y0: Array, y1: Array, y_mid: Array, dy0: Array, dy1: Array, dt: Array) -> tuple:
    """Coefficients, highest first, of the quartic on [0, 1] with these values at 0, 1/2 and 1 and slopes at the ends."""
    dt = dt.astype(y0.dtype)
    u, v = dt * dy0, dt * dy1
    return (2 * (v - u) - 8 * (y0 + y1) + 16 * y_mid, 5 * u - 3 * v + 18 * y0 + 14 * y1 - 32 * y_mid,
            v - 4 * u - 11 * y0 - 5 * y1 + 16 * y_mid, u, y0)


def interp_fit_dopri(y0: Array, y1: Array, k: Array, dt: Array) -> Array:
    """The quartic over one step, from its stages k: coefficients, shape (5, n)."""
    y_mid = y0 + dt.astype(y0.dtype) * _weighted(_MIDDLE, k)
    return jnp.stack(fit_4th_order_polynomial(y0, y1, y_mid, k[0], k[-1], dt))


def initial_step_size(fun: Callable, t0: Array, y0: Array, order: int, rtol: Any, atol: Any, f0: Array) -> Array:
    """A first step: E. Hairer, S. Norsett and G. Wanner, Solving Ordinary Differential Equations I, II.4."""
    y0, f0 = inexact("initial_step_size", y0, f0)
    scale = (atol + jnp.abs(y0) * rtol).astype(y0.dtype)
    d0, d1 = jnp.linalg.norm(y0 / scale), jnp.linalg.norm(f0 / scale)
    h0 = jnp.where((d0 < 1e-5) | (d1 < 1e-5), 1e-6, 0.01 * d0 / d1)
    f1 = fun(y0 + h0.astype(y0.dtype) * f0, t0 + h0)
    d2 = jnp.linalg.norm((f1 - f0) / scale) / h0
    h1 = jnp.where((d1 <= 1e-15) & (d2 <= 1e-15), jnp.maximum(1e-6, h0 * 1e-3),
                   (0.01 / jnp.maximum(d1, d2)) ** (1. / (order + 1.)))
    return jnp.minimum(100. * h0, h1)


def runge_kutta_step(func: Callable, y0: Array, f0: Array, t0: Array, dt: Array) -> tuple[Array, Array, Array, Array]:
    """(y1, func there, estimate of the error of y1, stages of shape (7, n)) after one step dt of y' = func(y, t)."""
    step, stages = dt.astype(f0.dtype), [f0]
    for alpha, beta in zip(_ALPHA, _BETA):
        y = y0 + step * _weighted(beta, jnp.stack(stages))
        stages.append(func(y, t0 + dt * alpha))
    k = jnp.stack(stages)
    return step * _weighted(_SOLUTION, k) + y0, k[-1], step * _weighted(_ERROR, k), k


def mean_error_ratio(error_estimate: Array, rtol: Any, atol: Any, y0: Array, y1: Array) -> Array:
    """Root mean square of the error over what is tolerated."""
    tolerated = atol + rtol * jnp.maximum(jnp.abs(y0), jnp.abs(y1))
    return jnp.sqrt(jnp.mean(abs2(error_estimate / tolerated.astype(error_estimate.dtype))))


def optimal_step_size(last_step: Array, mean_error_ratio: Array, safety: float = 0.9, ifactor: float = 10.0,
                      dfactor: float = 0.2, order: float = 5.0) -> Array:
    """The next step: at most ifactor longer, at most dfactor shorter (not shorter after an accepted step)."""
    least = jnp.where(mean_error_ratio < 1, 1.0, dfactor)
    factor = jnp.minimum(ifactor, jnp.maximum(mean_error_ratio ** (-1.0 / order) * safety, least))
    return jnp.where(mean_error_ratio == 0, last_step * ifactor, last_step * factor)


def odeint(func: Callable, y0: Any, t: Array, *args: Any, rtol: Any = 1.4e-8, atol: Any = 1.4e-8, mxstep: Any = jnp.inf,
           hmax: Any = jnp.inf) -> Any:
    """Solution of y' = func(y, t, *args), y(t[0]) = y0, at the increasing times t: a tree like y0 with a leading axis.

    rtol, atol: tolerance relative to y and absolute.  mxstep: most steps between two times.  hmax: longest step.
    Differentiable in reverse in y0, t, args and what func closes over."""
    for arg in tree_leaves(args):
        try:
            typeof(arg)
        except TypeError:
            raise TypeError(f"The contents of odeint *args must be arrays or scalars, but got {arg}.") from None
    if not dtypes.issubdtype(t.dtype, np.floating):
        raise TypeError(f"t must be an array of floats, but got {t}.")
    t = jnp.asarray(t)
    inputs = (y0, t[0], *args)
    leaves, tree = tree_flatten(inputs)
    jaxpr, captured, out_tree = stage_tree(func, tree, [typeof(x) for x in leaves], "odeint's func")[:3]
    if out_tree != tree_structure(y0):
        raise TypeError(f"odeint's func must return a tree like y0, {tree_structure(y0)}, but returned {out_tree}")
    flat0, unravel = ravel_pytree(y0)

    def flat_func(y, t, args, captured):
        values = tree_flatten((unravel(y), t, *args))[0]
        return ravel_pytree(out_tree.unflatten(eval_jaxpr(jaxpr, [*captured, *values])))[0]
    with default_matmul_precision("highest"):
        ys = _odeint(flat_func, rtol, atol, mxstep, hmax, flat0, t, args, list(captured))
    return vmap(unravel)(ys)


@functools.partial(jit, static_argnums=(0, 1, 2, 3, 4))
def _solve(func, rtol, atol, mxstep, hmax, y0, ts, args, captured):
    """All states, (len(ts), n): steps until the next time is passed, then interpolation."""
    rhs = lambda y, t: func(y, t, args, captured)

    def step(state):
        i, y, f, t, dt, last_t, fit = state
        next_y, next_f, error, k = runge_kutta_step(rhs, y, f, t, dt)
        ratio = mean_error_ratio(error, rtol, atol, y, next_y)
        next_dt = jnp.clip(optimal_step_size(dt, ratio), min=0., max=hmax)
        new = (next_y, next_f, t + dt, next_dt, t, interp_fit_dopri(y, next_y, k, dt))
        old = (y, f, t, next_dt, last_t, fit)
        return (i + 1, *[jnp.where(ratio <= 1., a, b.astype(a.dtype)) for a, b in zip(new, old)])

    def advance(carry, target):
        going = lambda s: (s[3] < target) & (s[0] < mxstep) & (s[4] > 0)
        _, *carry = lax.while_loop(going, step, (0, *carry))
        _, _, t, _, last_t, fit = carry
        part = (target - last_t) / (t - last_t)
        return tuple(carry), jnp.polyval(fit, part.astype(fit.dtype))
    f0 = rhs(y0, ts[0])
    dt = jnp.clip(initial_step_size(rhs, ts[0], y0, 4, rtol, atol, f0), min=0., max=hmax).astype(ts.dtype)
    init = (y0, f0, ts[0], dt, ts[0], jnp.stack([y0] * 5))
    _, ys = lax.scan(advance, init, ts[1:])
    return jnp.concatenate([y0[None], ys])


_odeint = custom_vjp(lambda func, *rest: _solve(func, *rest), nondiff_argnums=(0, 1, 2, 3, 4))


def _forward(func, rtol, atol, mxstep, hmax, y0, ts, args, captured):
    ys = _odeint(func, rtol, atol, mxstep, hmax, y0, ts, args, captured)
    return ys, (ys, ts, args, captured)


def _backward(func, rtol, atol, mxstep, hmax, residuals, g):
    """Backwards in time with the state: its cotangent, that of the first time, and those of the parameters, which obey
    a' = -(vjp of func)(a) (L. Pontryagin et al., 1962)."""
    ys, ts, args, captured = residuals

    def adjoint(state, minus_t, parameters):
        y, y_bar, *_ = state
        slope, pull = vjp(lambda y, t, p: func(y, t, *p), y, -minus_t, parameters)[:2]
        y_dot, t_dot, p_dot = pull(y_bar)
        return -slope, y_dot, t_dot, _real_slopes(p_dot, parameters)

    def back(carry, i):
        y_bar, t_bar, p_bar = carry
        at_time = jnp.dot(func(ys[i], ts[i], args, captured), g[i]).real
        start = (ys[i], y_bar, t_bar - at_time, p_bar)
        out = odeint(adjoint, start, jnp.stack([-ts[i], -ts[i - 1]]), (args, captured), rtol=rtol, atol=atol, mxstep=mxstep,
                     hmax=hmax)
        _, y_bar, t_bar, p_bar = tree_map(lambda v: v[1], out)
        return (y_bar + g[i - 1], t_bar, p_bar), at_time
    zeros = tree_map(_zero_slope, (args, captured))
    init = (g[-1], jnp.zeros((), ts.dtype), zeros)
    (y_bar, t0_bar, (args_bar, captured_bar)), at_times = lax.scan(back, init, jnp.arange(len(ts) - 1, 0, -1))
    only = lambda bars, xs: tree_map(lambda b, x: b if _moves(x) else None, bars, xs)
    return y_bar, jnp.concatenate([t0_bar[None], at_times[::-1]]), only(args_bar, args), only(captured_bar, captured)


def _moves(x: Any) -> bool:
    return dtypes.issubdtype(typeof(x).dtype, np.inexact)


def _zero_slope(x: Any) -> Array:
    a = typeof(x)
    return jnp.zeros(a.shape, a.dtype if _moves(x) else np.float32)


def _real_slopes(slopes: Any, like: Any) -> Any:
    """Cotangents of parameters as arrays; those of integers, which do not move, are zeros."""
    return tree_map(lambda s, x: jnp.asarray(s) if _moves(x) else _zero_slope(x), slopes, like)


_odeint.defvjp(_forward, _backward)
