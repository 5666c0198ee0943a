"""Derivative of a gamma sample in the shape parameter, by implicit differentiation.

A sample x of shape a keeps its quantile P(a, x), so dx/da = -(dP/da) / (dP/dx).  The incomplete gamma function P is a
power series for small x and a continued fraction for large x (Cephes); each is summed together with its derivative
(Figurnov, Mohamed and Mnih, "Implicit reparameterization gradients", 2018).
"""
from __future__ import annotations

from typing import Any

import numpy as np

from aot import dtypes
from aot.ops import elementwise as ew
from aot.ops import shape as sh
from aot.ops.reductions import reduce_or
from aot.trace import typeof

Array = Any


def random_gamma_grad(a: Array, x: Array) -> Array:
    """dx/da of gamma samples x with shape parameters a, elementwise; floats of one shape and dtype.

    0 at x = 0, NaN where x < 0 or a <= 0.
    """
    a, x, small = same_shape(a, x)
    return ew.convert(_at_edges(a, x, ew.neg(ew.mul(slope_over_weight(a, x), x))), small)


def same_shape(a: Array, x: Array) -> tuple[Array, Array, Any]:
    """Both in their common shape and at least float32 -> (a, x, the dtype they had)."""
    dtype = typeof(x).dtype
    if dtypes.itemsize_bits(dtype) < 32:
        a, x = (ew.convert(v, np.dtype(np.float32)) for v in (a, x))
    shape = np.broadcast_shapes(typeof(a).shape, typeof(x).shape)
    return sh.broadcast_to(a, shape), sh.broadcast_to(x, shape), dtype


def log_weight(a: Array, x: Array) -> Array:
    """log of x^a exp(-x) / Gamma(a)."""
    return ew.sub(ew.sub(ew.mul(a, ew.log(x)), x), ew.lgamma(a))


def underflows(log_w: Array) -> Array:
    """Whether exp(log_w) is too small for its dtype."""
    return ew.lt(log_w, sh.full_like(log_w, -np.log(dtypes.finfo(typeof(log_w).dtype).max)))


def slope_over_weight(a: Array, x: Array) -> Array:
    """(dP/da) / (x^a exp(-x) / Gamma(a)); what it is worth outside of x > 0, a > 0 is for the caller to decide."""
    full = lambda value: sh.full_like(x, value)
    large = ew.bitwise_and(ew.gt(x, full(1)), ew.gt(x, a))
    valid = ew.bitwise_and(ew.gt(x, full(0)), ew.gt(a, full(0)))
    active = ew.bitwise_and(valid, ew.bitwise_not(underflows(log_weight(a, x))))
    small = ew.bitwise_and(active, ew.bitwise_not(large))
    far = ew.neg(fraction_slope(a, x, ew.bitwise_and(active, large)))
    return ew.select(large, far, series_slope(a, x, small))


def _at_edges(a: Array, x: Array, out: Array) -> Array:
    """0 at x = 0, NaN where x < 0, a <= 0 or either is NaN, else `out`."""
    full = lambda value: sh.full_like(x, value)
    invalid = ew.bitwise_or(ew.lt(x, full(0)), ew.le(a, full(0)))
    nan = ew.bitwise_or(ew.ne(a, a), ew.ne(x, x))
    out = ew.select(ew.eq(x, full(0)), full(0), out)
    return ew.select(ew.bitwise_or(invalid, nan), full(np.nan), out)


def igamma_slope(a: Array, x: Array) -> Array:
    """dP(a, x)/da, elementwise."""
    a, x, dtype = same_shape(a, x)
    return ew.convert(_at_edges(a, x, ew.mul(ew.exp(log_weight(a, x)), slope_over_weight(a, x))), dtype)


def elementwise_loop(active: Array, state: dict[str, Array], step, limit: int | None):
    """Repeat step(state, i) -> (new state, whether to go on), elementwise; finished elements keep their state."""
    from aot.lax import while_loop
    names = list(state)
    axes = tuple(range(typeof(active).ndim))

    def going(carry):
        i, active, _ = carry
        more = reduce_or(active, axes)
        return more if limit is None else ew.bitwise_and(more, ew.lt(i, np.int32(limit)))

    def body(carry):
        i, active, values = carry
        old = dict(zip(names, values))
        new, more = step(old, ew.add(i, np.int32(1)))
        kept = tuple(ew.select(active, new[n], old[n]) for n in names)
        return ew.add(i, np.int32(1)), ew.bitwise_and(active, more), kept

    return dict(zip(names, while_loop(going, body, (np.int32(0), active, tuple(state.values())))[2]))


def series_slope(a: Array, x: Array, active: Array) -> Array:
    """dP/da over the weight exp(a log x - x - lgamma(a)): terms c_n = c_(n-1) x / (a + n) and their derivatives dc_n in a."""
    eps = sh.full_like(x, dtypes.finfo(typeof(x).dtype).eps)
    zero, one = sh.full_like(x, 0), sh.full_like(x, 1)

    def step(s, i):
        r = ew.add(s["r"], one)
        ratio = ew.div(x, r)
        dc = ew.sub(ew.mul(s["dc"], ratio), ew.div(ew.mul(s["c"], x), ew.mul(r, r)))
        dsum, c = ew.add(s["dsum"], dc), ew.mul(s["c"], ratio)
        new = {"r": r, "c": c, "sum": ew.add(s["sum"], c), "dc": dc, "dsum": dsum}
        return new, ew.gt(ew.abs(ew.div(dc, dsum)), eps)

    s = elementwise_loop(active, {"r": a, "c": one, "sum": one, "dc": zero, "dsum": zero}, step, None)
    slope = ew.add(s["dsum"], ew.mul(s["sum"], ew.sub(ew.log(x), ew.digamma(ew.add(a, one)))))
    return ew.div(slope, a)


def fraction_slope(a: Array, x: Array, active: Array) -> Array:
    """-dP/da over that weight: convergents p_k / q_k by the three-term recurrence, with the derivatives dp_k, dq_k in a."""
    eps = dtypes.finfo(typeof(x).dtype).eps
    full = lambda value: sh.full_like(x, value)
    zero, one, tiny = full(0), full(1), full(eps)
    y = ew.sub(one, a)
    z = ew.add(ew.add(x, y), one)
    p, q = ew.add(x, one), ew.mul(z, x)
    value, dq = ew.div(p, q), ew.neg(x)
    slope = ew.div(ew.sub(zero, ew.mul(value, dq)), q)

    def step(s, i):
        n = ew.convert_element_type(i, typeof(x).dtype)
        y, z = ew.add(s["y"], one), ew.add(s["z"], full(2))
        yn = ew.mul(y, n)
        p, q = [ew.sub(ew.mul(s[v], z), ew.mul(s[v + "0"], yn)) for v in "pq"]
        dp, dq = [ew.add(ew.sub(ew.sub(ew.mul(s["d" + v], z), s[v]), ew.mul(s["d" + v + "0"], yn)),
                         ew.mul(s[v + "0"], n)) for v in "pq"]
        fine = ew.ne(q, zero)
        value = ew.select(fine, ew.div(p, q), s["value"])
        slope = ew.select(fine, ew.div(ew.sub(dp, ew.mul(value, dq)), q), s["slope"])
        change = ew.select(fine, ew.abs(ew.sub(slope, s["slope"])), one)
        shrink = ew.gt(ew.abs(p), full(1 / eps))       # only ratios matter: keep the numbers from overflowing
        fit = lambda v: ew.select(shrink, ew.mul(v, tiny), v)
        new = {"p": p, "q": q, "p0": s["p"], "q0": s["q"], "dp": dp, "dq": dq, "dp0": s["dp"], "dq0": s["dq"]}
        return {**{k: fit(v) for k, v in new.items()}, "y": y, "z": z, "value": value, "slope": slope}, \
            ew.gt(change, tiny)

    s = elementwise_loop(active, {"p": p, "q": q, "p0": one, "q0": x, "dp": zero, "dq": dq, "dp0": zero, "dq0": zero,
                                  "y": y, "z": z, "value": value, "slope": slope}, step, 2000)
    return ew.add(s["slope"], ew.mul(s["value"], ew.sub(ew.log(x), ew.digamma(a))))
