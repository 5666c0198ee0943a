"""A step length with the strong Wolfe conditions: J. Nocedal and S. Wright, Numerical Optimization, algorithms 3.5 and 3.6.

State is a dict of arrays; each update replaces some entries where a condition holds."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import dtypes, lax
from aot.api import value_and_grad
from aot.scipy._util import inexact

Array = Any
State = dict[str, Any]


def dot(x: Array, y: Array) -> Array:
    """Inner product in full precision."""
    return jnp.dot(x, y, precision=lax.Precision.HIGHEST)


def _replaced(state: State, where: Array, **new: Array) -> State:
    return {**state, **{k: jnp.where(where, v, state[k]) for k, v in new.items()}}


def _cubic_minimum(a, fa, slope, b, fb, c, fc):
    """Minimum of the cubic through three points with a slope at the first."""
    db, dc = b - a, c - a
    denominator = (db * dc) ** 2 * (db - dc)
    yb, yc = fb - fa - slope * db, fc - fa - slope * dc
    A = (dc ** 2 * yb - db ** 2 * yc) / denominator
    B = (-dc ** 3 * yb + db ** 3 * yc) / denominator
    return a + (-B + jnp.sqrt(B * B - 3. * A * slope)) / (3. * A)


def _quadratic_minimum(a, fa, slope, b, fb):
    db = b - a
    return a - slope / (2. * ((fb - fa - slope * db) / db ** 2))


def _candidate(s: State) -> Array:
    """A point within the bracket: by cubic, else quadratic interpolation, else its middle."""
    width = jnp.abs(s["a_hi"] - s["a_lo"])
    low, high = jnp.minimum(s["a_hi"], s["a_lo"]), jnp.maximum(s["a_hi"], s["a_lo"])
    cubic = _cubic_minimum(s["a_lo"], s["phi_lo"], s["dphi_lo"], s["a_hi"], s["phi_hi"], s["a_rec"], s["phi_rec"])
    use_cubic = (s["j"] > 0) & (cubic > low + 0.2 * width) & (cubic < high - 0.2 * width)
    quadratic = _quadratic_minimum(s["a_lo"], s["phi_lo"], s["dphi_lo"], s["a_hi"], s["phi_hi"])
    use_quadratic = (quadratic > low + 0.1 * width) & (quadratic < high - 0.1 * width)
    middle = (s["a_lo"] + s["a_hi"]) / 2.
    return jnp.where(use_cubic, cubic, jnp.where(use_quadratic, quadratic, middle))


def _zoom(phi: Callable, too_high: Callable, flat: Callable, low: tuple, high: tuple, g: Array, active: Array) -> State:
    """Narrow the bracket between low and high, (step, value, slope) each, until a step is good."""
    (a_lo, phi_lo, dphi_lo), (a_hi, phi_hi, dphi_hi) = low, high

    def step(s: State) -> State:
        width = jnp.abs(s["a_hi"] - s["a_lo"])
        s = {**s, "failed": s["failed"] | (width <= (1e-5 if dtypes.finfo(width.dtype).bits < 64 else 1e-10))}
        a = _candidate(s)
        value, slope, grad = (v.astype(s[k].dtype) for v, k in zip(phi(a), ("phi_lo", "dphi_lo", "g_star")))
        s = {**s, "nfev": s["nfev"] + 1, "ngev": s["ngev"] + 1}
        to_high = too_high(a, value) | (value >= s["phi_lo"])
        found = flat(slope) & ~to_high
        turn = (slope * (s["a_hi"] - s["a_lo"]) >= 0.) & ~to_high & ~found
        to_low = ~to_high & ~found
        s = _replaced(s, to_high, a_rec=s["a_hi"], phi_rec=s["phi_hi"], a_hi=a, phi_hi=value, dphi_hi=slope)
        s = _replaced({**s, "done": found | s["done"]}, found, a_star=a, phi_star=value, dphi_star=slope, g_star=grad)
        s = _replaced(s, turn, a_rec=s["a_hi"], phi_rec=s["phi_hi"], a_hi=s["a_lo"], phi_hi=s["phi_lo"],
                      dphi_hi=s["dphi_lo"])
        s = _replaced(s, to_low & ~turn, a_rec=s["a_lo"], phi_rec=s["phi_lo"])
        s = _replaced(s, to_low, a_lo=a, phi_lo=value, dphi_lo=slope)
        return {**s, "j": s["j"] + 1, "failed": s["failed"] | (s["j"] + 1 >= 30)}
    one = jnp.ones_like(a_lo)
    init = {"done": jnp.array(False), "failed": jnp.array(False), "j": 0, "a_lo": a_lo, "phi_lo": phi_lo,
            "dphi_lo": dphi_lo, "a_hi": a_hi, "phi_hi": phi_hi, "dphi_hi": dphi_hi, "a_rec": (a_lo + a_hi) / 2.,
            "phi_rec": (phi_lo + phi_hi) / 2., "a_star": one, "phi_star": phi_lo, "dphi_star": dphi_lo, "g_star": g,
            "nfev": 0, "ngev": 0}
    return lax.while_loop(lambda s: ~s["done"] & active & ~s["failed"], step, init)


_STAR = ("a_star", "phi_star", "dphi_star", "g_star")


def line_search(f: Callable, x: Array, direction: Array, value: Array, gradient: Array, before: Array | None = None,
                c1: float = 1e-4, c2: float = 0.9, maxiter: int = 20) -> State:
    """A step along direction from x, where f has this value and gradient; before: the value one iteration earlier.

    -> a_star, phi_star, g_star: the step, value and gradient there; failed, status (0 fine, 1 zoom failed, 3 maxiter
    reached), nfev, ngev."""
    x, direction = inexact("line_search", x, direction)

    def phi(t):
        out, g = value_and_grad(f)(x + t.astype(direction.dtype) * direction)
        return out, jnp.real(dot(g, direction)), g
    slope = jnp.real(dot(gradient, direction))
    zero = jnp.zeros_like(slope)
    start = zero + 1
    if before is not None:
        guess = 1.01 * 2 * (value - before) / slope
        start = jnp.where(guess > 1, 1.0, guess)
    too_high = lambda a, v: v > value + c1 * a * slope
    flat = lambda d: jnp.abs(d) <= -c2 * slope

    def step(s: State) -> State:
        a = jnp.where(s["i"] == 1, start, s["a"] * 2.).astype(s["a"].dtype)
        v, d, g = phi(a)
        v, d = v.astype(s["phi"].dtype), d.astype(s["dphi"].dtype)
        passed = too_high(a, v) | ((v >= s["phi"]) & (s["i"] > 1))
        found = flat(d) & ~passed
        turned = (d >= 0.) & ~passed & ~found
        last = (s["a"], s["phi"], s["dphi"])
        zooms = [(passed, _zoom(phi, too_high, flat, last, (a, v, d), gradient, passed)),
                 (turned, _zoom(phi, too_high, flat, (a, v, d), last, gradient, turned))]
        for k in ("nfev", "ngev"):
            s = {**s, k: s[k] + 1 + zooms[0][1][k] + zooms[1][1][k]}
        s = _replaced(s, found, a_star=a, phi_star=v, dphi_star=d, g_star=g)
        for where, z in zooms:
            s = _replaced({**s, "failed": s["failed"] | (where & z["failed"])}, where, **{k: z[k] for k in _STAR})
        return {**s, "done": s["done"] | passed | found | turned, "i": s["i"] + 1, "a": a, "phi": v, "dphi": d}
    init = {"done": jnp.array(False), "failed": jnp.array(False), "i": 1, "a": zero, "phi": value, "dphi": slope,
            "nfev": 0, "ngev": 0, "a_star": zero, "phi_star": value, "dphi_star": slope, "g_star": gradient}
    s = lax.while_loop(lambda s: ~s["done"] & (s["i"] <= maxiter) & ~s["failed"], step, init)
    status = jnp.where(s["failed"], 1, jnp.where(s["i"] > maxiter, 3, 0))
    a = s["a_star"]
    if dtypes.finfo(a.dtype).bits != 64:
        a = jnp.where(jnp.abs(a) < 1e-8, jnp.sign(a) * np.float32(1e-8), a).astype(a.dtype)
    return {**s, "a_star": a, "failed": s["failed"] | ~s["done"], "status": status}
