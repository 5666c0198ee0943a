"""Incomplete gamma and beta functions: power series and continued fractions, summed elementwise in while loops.

P(a, x) and Q(a, x) = 1 - P: Cephes (igam, igamc).  I_x(a, b): https://dlmf.nist.gov/8.17.E22, by Lentz's method.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from aot import dtypes
from aot.ops import elementwise as ew
from aot.ops import gamma_grad as gg
from aot.ops import shape as sh
from aot.ops.families import Elementwise, NonDifferentiable, binary, lit, state_bind
from aot.trace import is_zero, typeof

Array = Any


def _any(*conditions: Array) -> Array:
    out = conditions[0]
    for c in conditions[1:]:
        out = ew.bitwise_or(out, c)
    return out


def _all(*conditions: Array) -> Array:
    out = conditions[0]
    for c in conditions[1:]:
        out = ew.bitwise_and(out, c)
    return out


def _nan(x: Array) -> Array: return ew.ne(x, x)


# ---- incomplete gamma ------------------------------------------------------------------------------------------------

def _series(a: Array, x: Array, active: Array) -> Array:
    """Sum of x^n / ((a + 1) .. (a + n)); P is that times the weight over a."""
    eps, one = sh.full_like(x, dtypes.finfo(typeof(x).dtype).eps), sh.full_like(x, 1)

    def step(s, i):
        r = ew.add(s["r"], one)
        term = ew.mul(s["term"], ew.div(x, r))
        total = ew.add(s["sum"], term)
        return {"r": r, "term": term, "sum": total}, ew.gt(ew.div(term, total), eps)
    return gg.elementwise_loop(active, {"r": a, "term": one, "sum": one}, step, None)["sum"]


def _fraction(a: Array, x: Array, active: Array) -> Array:
    """Convergents p_k / q_k by the three-term recurrence; Q is their limit times the weight."""
    eps = dtypes.finfo(typeof(x).dtype).eps
    full = lambda value: sh.full_like(x, value)
    one = full(1)
    y = ew.sub(one, a)
    z = ew.add(ew.add(x, y), one)
    p, q = ew.add(x, one), ew.mul(z, x)

    def step(s, i):
        y, z = ew.add(s["y"], one), ew.add(s["z"], full(2))
        yn = ew.mul(y, ew.convert_element_type(i, typeof(x).dtype))
        p, q = [ew.sub(ew.mul(s[v], z), ew.mul(s[v + "0"], yn)) for v in "pq"]
        fine = ew.ne(q, full(0))
        value = ew.select(fine, ew.div(p, q), s["value"])
        change = ew.select(fine, ew.abs(ew.div(ew.sub(s["value"], value), value)), one)
        shrink = ew.gt(ew.abs(p), full(1 / eps))       # only ratios matter: keep the numbers from overflowing
        new = {"p": p, "q": q, "p0": s["p"], "q0": s["q"]}
        new = {k: ew.select(shrink, ew.mul(v, full(eps)), v) for k, v in new.items()}
        return {**new, "y": y, "z": z, "value": value}, ew.gt(change, full(eps))
    init = {"p": p, "q": q, "p0": one, "q0": x, "y": y, "z": z, "value": ew.div(p, q)}
    return gg.elementwise_loop(active, init, step, 2000)["value"]


def _gamma_parts(a: Array, x: Array, by_fraction: Array, active: Array) -> tuple[Array, Array]:
    """(P by the series, Q by the fraction), each where it is asked for."""
    log_w = gg.log_weight(a, x)
    weight, active = ew.exp(log_w), ew.bitwise_and(active, ew.bitwise_not(gg.underflows(log_w)))
    series = _series(a, x, ew.bitwise_and(active, ew.bitwise_not(by_fraction)))
    fraction = _fraction(a, x, ew.bitwise_and(active, by_fraction))
    return ew.div(ew.mul(series, weight), a), ew.mul(fraction, weight)


def _domain_error(a: Array, x: Array) -> Array:
    zero = sh.full_like(x, 0)
    return _any(ew.lt(x, zero), ew.lt(a, zero), _all(ew.eq(a, zero), ew.eq(x, zero)), _nan(a), _nan(x))


def _igamma(a: Array, x: Array) -> Array:
    a, x, dtype = gg.same_shape(a, x)
    full = lambda value: sh.full_like(x, value)
    bad, at_zero, at_inf = _domain_error(a, x), ew.eq(x, full(0)), ew.eq(x, full(np.inf))
    by_fraction = _all(ew.ge(x, full(1)), ew.gt(x, a))
    p, q = _gamma_parts(a, x, by_fraction, ew.bitwise_not(_any(bad, at_zero, at_inf)))
    out = ew.select(by_fraction, ew.sub(full(1), q), p)
    out = ew.select(at_inf, full(1), ew.select(at_zero, full(0), out))
    return ew.convert(ew.select(bad, full(np.nan), out), dtype)


def _igammac(a: Array, x: Array) -> Array:
    a, x, dtype = gg.same_shape(a, x)
    full = lambda value: sh.full_like(x, value)
    bad, at_zero = _domain_error(a, x), _any(ew.eq(x, full(np.inf)), ew.eq(a, full(0)))
    by_fraction = ew.bitwise_not(_any(ew.lt(x, full(1)), ew.lt(x, a)))
    p, q = _gamma_parts(a, x, by_fraction, ew.bitwise_not(_any(bad, at_zero)))
    out = ew.select(at_zero, full(0), ew.select(by_fraction, q, ew.sub(full(1), p)))
    return ew.convert(ew.select(bad, full(np.nan), out), dtype)


def _gamma_density(a, x):
    """dP/dx."""
    return ew.exp(ew.sub(ew.add(ew.neg(x), ew.mul(ew.sub(a, lit(a, 1)), ew.log(x))), ew.lgamma(a)))


def _emit(fn):
    return lambda e, ins, outs, *xs: e.inline(fn, ins, xs)[0]


igamma = binary("igamma", "", lambda t, z, a, x: ew.mul(t, igamma_grad_a(a, x)),
                lambda t, z, a, x: ew.mul(t, _gamma_density(a, x)), "f", emit=_emit(_igamma), names=("a", "x"),
                doc="Regularized lower incomplete gamma function P(a, x), elementwise.")
igammac = binary("igammac", "", lambda t, z, a, x: ew.neg(ew.mul(t, igamma_grad_a(a, x))),
                 lambda t, z, a, x: ew.neg(ew.mul(t, _gamma_density(a, x))), "f", emit=_emit(_igammac), names=("a", "x"),
                 doc="Regularized upper incomplete gamma function Q(a, x) = 1 - P(a, x), elementwise.")


class NoSlope(Elementwise):
    """Elementwise, without a derivative of its own."""

    def jvp(self, primals, tangents, **params):
        if all(map(is_zero, tangents)):
            return NonDifferentiable.jvp(self, primals, tangents, **params)  # type: ignore[arg-type]
        raise self.missing("jvp")


igamma_grad_a_p = NoSlope("igamma_grad_a", "", (None, None), "f", emit=_emit(gg.igamma_slope))
random_gamma_grad_p = NoSlope("random_gamma_grad", "", (None, None), "f", emit=_emit(gg.random_gamma_grad))


def igamma_grad_a(a: Array, x: Array) -> Array:
    """dP(a, x)/da, elementwise."""
    return state_bind(igamma_grad_a_p, (a, x))


def random_gamma_grad(a: Array, x: Array, *, dtype=None) -> Array:
    """dx/da of a gamma sample x of shape a, elementwise."""
    return state_bind(random_gamma_grad_p, (a, x))


# ---- incomplete beta -------------------------------------------------------------------------------------------------

def _beta_numerator(i: Array, a: Array, b: Array, x: Array) -> Array:
    """The i-th partial numerator after the first (which is 1); i: the float 1, 2, ... in the shape of x.

    Odd i = 2m + 1: -(a + m)(a + b + m) x / ((a + 2m)(a + 2m + 1)); even i = 2m: m (b - m) x / ((a + 2m - 1)(a + 2m)).
    """
    full = lambda value: sh.full_like(x, value)
    m = ew.floor(ew.mul(i, full(0.5)))
    a2m, odd = ew.add(a, ew.mul(m, full(2))), ew.ne(ew.mul(m, full(2)), i)
    shared = ew.div(ew.neg(ew.mul(ew.add(ew.add(a, b), m), x)), ew.add(a2m, full(1)))
    first = ew.eq(m, full(0))                   # there (a + m) / (a + 2m) is 1, also for a that underflows
    up = ew.mul(shared, ew.select(first, full(1), ew.div(ew.add(a, m), a2m)))
    down = ew.div(ew.mul(ew.mul(m, ew.sub(b, m)), x), ew.mul(ew.sub(a2m, full(1)), a2m))
    return ew.select(odd, up, down)


def _beta_fraction(a: Array, b: Array, x: Array, active: Array) -> Array:
    """1 / (1 + d1 / (1 + d2 / (1 + ..))) by Lentz's method."""
    dtype = typeof(x).dtype
    half_eps = dtypes.finfo(dtype).eps / 2
    full = lambda value: sh.full_like(x, value)
    one, tiny = full(1), full(half_eps)
    away = lambda v: ew.select(ew.lt(ew.abs(v), tiny), tiny, v)

    def step(s, i):
        d = _beta_numerator(ew.add(full(0), ew.convert_element_type(i, dtype)), a, b, x)
        c = away(ew.add(one, ew.div(d, s["c"])))
        r = ew.div(one, away(ew.add(one, ew.mul(d, s["r"]))))
        factor = ew.mul(c, r)
        return {"c": c, "r": r, "h": ew.mul(s["h"], factor)}, ew.ge(ew.abs(ew.sub(factor, one)), tiny)
    steps = 200 if dtype == np.float32 else 600
    return gg.elementwise_loop(active, {"c": full(1 / half_eps), "r": one, "h": one}, step, steps)["h"]


def _beta_factor(a: Array, b: Array, x: Array) -> Array:
    """x^a (1 - x)^b / (a B(a, b)); a Gamma(a) is 1 for a that underflows."""
    very_small = sh.full_like(a, 2 * float(dtypes.finfo(typeof(a).dtype).tiny))
    rest = ew.sub(ew.lgamma(b), ew.lgamma(ew.add(a, b)))
    power = ew.mul(ew.log1p(ew.neg(x)), b)
    usual = ew.sub(ew.add(ew.mul(ew.log(x), a), power), ew.add(ew.lgamma(a), rest))
    return ew.select(ew.lt(a, very_small), ew.exp(ew.sub(power, rest)), ew.div(ew.exp(usual), a))


def _betainc(a: Array, b: Array, x: Array) -> Array:
    a, x, dtype = gg.same_shape(a, x)
    b, x, _ = gg.same_shape(b, x)
    a, x, _ = gg.same_shape(a, x)
    full = lambda value: sh.full_like(x, value)
    zero, one, inf = full(0), full(1), full(np.inf)
    direct = ew.lt(x, ew.div(ew.add(a, one), ew.add(ew.add(a, b), full(2))))     # else I_x(a, b) = 1 - I_(1-x)(b, a)
    a0, b0 = _any(ew.eq(a, zero), ew.eq(b, inf)), _any(ew.eq(b, zero), ew.eq(a, inf))
    p, q = ew.select(direct, a, b), ew.select(direct, b, a)
    y = ew.select(direct, x, ew.sub(one, x))
    bad = _any(ew.lt(a, zero), ew.lt(b, zero), ew.lt(x, zero), ew.gt(x, one), _all(a0, b0), _nan(a), _nan(b), _nan(x))
    out = ew.mul(_beta_fraction(p, q, y, ew.bitwise_not(_any(bad, a0, b0))), _beta_factor(p, q, y))
    out = ew.select(direct, out, ew.sub(one, out))
    at0, at1 = ew.eq(x, zero), ew.eq(x, one)
    out = ew.select(_any(_all(b0, ew.bitwise_not(at1)), _all(a0, at0)), zero, out)
    out = ew.select(_any(_all(a0, ew.bitwise_not(at0)), _all(b0, at1)), one, out)
    return ew.convert(ew.select(bad, full(np.nan), out), dtype)


def _beta_density(t, y, a, b, x):
    """t times dI/dx = x^(a - 1) (1 - x)^(b - 1) / B(a, b)."""
    one = lit(x, 1)
    log_beta = ew.sub(ew.add(ew.lgamma(a), ew.lgamma(b)), ew.lgamma(ew.add(a, b)))
    log_top = ew.add(ew.mul(ew.sub(b, one), ew.log1p(ew.neg(x))), ew.mul(ew.sub(a, one), ew.log(x)))
    return ew.mul(t, ew.exp(ew.sub(log_top, log_beta)))


def _beta_slope(which: int):
    """The derivative in a or b: the fraction's own, carried along by forward mode."""
    def partial(t, y, a, b, x):
        from aot.transforms.autodiff import jvp
        shape, dtype = typeof(y).shape, typeof(y).dtype
        a, b, x = (sh.broadcast_to(ew.convert(v, dtype), shape) for v in (a, b, x))
        call = (lambda v: _betainc(v, b, x)) if which == 0 else lambda v: _betainc(a, v, x)
        return ew.mul(t, jvp(call, ((a, b)[which],), (sh.full_like(y, 1, dtype=dtype),))[1])
    return partial


regularized_incomplete_beta_p = Elementwise("regularized_incomplete_beta", "",
                                            (_beta_slope(0), _beta_slope(1), _beta_density), "f", emit=_emit(_betainc))


def betainc(a: Array, b: Array, x: Array) -> Array:
    """Regularized incomplete beta function I_x(a, b), elementwise; floats of one dtype, differentiable in all three."""
    return state_bind(regularized_incomplete_beta_p, (a, b, x))
