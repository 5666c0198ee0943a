"""Taylor mode: `jet` pushes truncated Taylor series through a function.

Series hold derivatives (h_k is the k-th), as in f(h(t)) = sum f_k t^k / k!.  Rules: operations that are linear, or
linear piece by piece, act on each term; products follow Leibniz; a function of one operand with y' = d(x) x' takes the
series of d from one order lower (so every elementwise primitive works by its own tangent rule); whatever else is
differentiated k times along the series.  See Griewank and Walther, "Evaluating derivatives", chapter 13.
"""
from __future__ import annotations

from math import comb, factorial
from typing import Any, Callable, Sequence

from aot.ad_checkpoint import checkpoint_p
from aot.dtypes import float0
from aot.ops import elementwise as ew
from aot.ops.call import pjit_p
from aot.ops.families import Bilinear, Elementwise, LinearOp, NonDifferentiable, lit
from aot.source import api_boundary
from aot.trace import Primitive, Trace, Tracer, Zero, bind, eval_jaxpr, state, tangent_aval, tracing, typeof
from aot.transforms.jvp import add_tangents, instantiate_zero, jvp_flat
from aot.tree_util import tree_flatten, tree_structure

#: their jvp at a point is the same linear map for every order, where they are differentiable at all
PIECEWISE_LINEAR = frozenset("""abs add add_any clamp complex cummax cummin imag max min neg optimization_barrier real
    reduce_max reduce_min reduce_window_max reduce_window_min rem scatter scatter-add scatter-max scatter-min scatter-sub
    select_and_gather_add select_and_scatter_add sort stop_gradient sub top_k""".split())


class JetTracer(Tracer):
    """A primal with derivative terms 1..K; a term may be Zero."""
    __slots__ = ("primal", "terms")

    def __init__(self, trace, primal, terms):
        self.owner, self.primal, self.terms, self.aval = trace, primal, terms, typeof(primal)

    def concrete(self):
        return self.primal.concrete() if isinstance(self.primal, Tracer) else self.primal


class JetTrace(Trace):
    def __init__(self, parent: Trace, order: int):
        self.parent, self.order = parent, order

    def pair(self, x) -> tuple[Any, list]:
        if type(x) is JetTracer and x.owner is self:
            return x.primal, x.terms
        return x, [Zero.like(x)] * self.order

    def process(self, prim, args, params):
        if prim is pjit_p or prim is checkpoint_p:
            return eval_jaxpr(params["jaxpr"], args)
        if prim.makes_ref:
            raise NotImplementedError("jet of a function that makes a mutable reference is not supported. hint: nest jvp, or "
                                      "update arrays with x.at[i].set(y)")
        pairs = [self.pair(x) for x in args]
        primals, terms = [p for p, _ in pairs], [t for _, t in pairs]
        with tracing(self.parent):
            if all(type(t) is Zero for ts in terms for t in ts):
                return bind(prim, *primals, **params)
            outs, series = rule_for(prim)(prim, primals, terms, params, self.order)
        return [x if all(type(t) is Zero for t in ts) else JetTracer(self, x, ts) for x, ts in zip(outs, series)]

    def custom_jvp(self, call, args): return call.fun(*args)
    def custom_vjp(self, call, args): return call.fun(*args)


# ---- rules: (prim, primals, terms of each operand, params, order) -> (outputs, terms of each output) -------------------

def rule_for(prim: Primitive) -> Callable:
    if prim is ew.div.primitive:  # type: ignore[attr-defined]
        return quotient
    if prim is ew.mul.primitive or isinstance(prim, Bilinear):  # type: ignore[attr-defined]
        return product
    if isinstance(prim, NonDifferentiable) or isinstance(prim, Elementwise) and not any(prim.partials):
        return without_terms
    if isinstance(prim, LinearOp) or prim.name in PIECEWISE_LINEAR:
        return term_by_term
    if isinstance(prim, Elementwise) and len(prim.partials) == 1:
        return by_derivative
    return by_repeated_jvp


def without_terms(prim, primals, terms, params, order):
    outs = bind(prim, *primals, **params)
    return outs, [[Zero(tangent_aval(typeof(o)))] * order for o in outs]


def term_by_term(prim, primals, terms, params, order):
    outs, columns = None, []
    for k in range(order):
        outs, dots = prim.jvp(primals, [t[k] for t in terms], **params)
        columns.append(dots)
    return outs, [list(ts) for ts in zip(*columns)]


def product(prim, primals, terms, params, order):
    """(x y)_k = sum_j C(k, j) x_j y_(k-j)."""
    call = lambda a, b: bind(prim, a, b, **params)[0]
    x, y = [primals[0], *terms[0]], [primals[1], *terms[1]]
    out, series = call(*primals), []
    for k in range(1, order + 1):
        total = Zero(tangent_aval(typeof(out)))
        for j in range(k + 1):
            if type(x[j]) is Zero or type(y[k - j]) is Zero:
                continue
            part = call(x[j], y[k - j])
            total = add_tangents(total, scaled(part, comb(k, j)))
        series.append(total)
    return [out], [series]


def quotient(prim, primals, terms, params, order):
    """From x = z y: z_k = (x_k - sum_(j>0) C(k, j) y_j z_(k-j)) / y_0."""
    x, y = [primals[0], *terms[0]], [primals[1], *terms[1]]
    z = [bind(prim, *primals)[0]]
    for k in range(1, order + 1):
        total = x[k]
        for j in range(1, k + 1):
            if type(y[j]) is not Zero and type(z[k - j]) is not Zero:
                total = add_tangents(total, scaled(ew.mul(y[j], z[k - j]), -comb(k, j)))
        z.append(total if type(total) is Zero else bind(prim, total, y[0])[0])
    return [z[0]], [z[1:]]


def by_derivative(prim, primals, terms, params, order):
    """y_k = sum_j C(k-1, j-1) x_j d_(k-j), where d is the derivative as a function of x."""
    (x,), (xs,) = primals, terms
    out = bind(prim, x, **params)[0]

    def derivative(v):
        ones = instantiate_one(v)
        return [instantiate_zero(prim.jvp([v], [ones], **params)[1][0])]
    d0, ds = jet_flat(derivative, [x], [xs[:-1]], order - 1)
    d, series = [d0[0], *ds[0]], []
    for k in range(1, order + 1):
        total = Zero(tangent_aval(typeof(out)))
        for j in range(1, k + 1):
            if type(xs[j - 1]) is not Zero and type(d[k - j]) is not Zero:
                total = add_tangents(total, scaled(ew.mul(xs[j - 1], d[k - j]), comb(k - 1, j - 1)))
        series.append(total)
    return [out], [series]


def by_repeated_jvp(prim, primals, terms, params, order):
    """Differentiate t -> prim(x(t)), x(t) = sum h_k t^k / k!, order times at 0."""
    def along(t):
        point = []
        for x, ts in zip(primals, terms):
            for k, h in enumerate(ts, 1):
                if type(h) is not Zero:
                    weight = ew.convert(ew.integer_pow(t, k), typeof(h).dtype)
                    x = ew.add(x, scaled(ew.mul(h, weight), 1 / factorial(k)))
            point.append(x)
        return bind(prim, *point, **params)

    def derivative(f):
        def g(t):
            dots = jvp_flat(f, [t], [1.0])[1]
            return [0.0 if tangent_aval(typeof(t)).dtype == float0 else instantiate_zero(t) for t in dots]
        return g
    outs, f, columns = bind(prim, *primals, **params), along, []
    for _ in range(order):
        f = derivative(f)
        columns.append(f(0.0))
    zeros = [Zero(tangent_aval(typeof(o))) for o in outs]
    return outs, [[z] * order if z.aval.dtype == float0 else list(ts) for z, ts in zip(zeros, zip(*columns))]


def scaled(x, factor):
    return x if factor == 1 else ew.mul(x, lit(x, factor))


def instantiate_one(x):
    from aot.ops.shape import full_like
    return full_like(x, 1)


# ---- the public function -------------------------------------------------------------------------------------------------

def jet_flat(f: Callable, primals: Sequence, series: Sequence[Sequence], order: int) -> tuple[list, list]:
    """f: flat values -> flat list.  Terms may be Zero on both sides."""
    trace = JetTrace(state.trace, order)
    with tracing(trace):
        outs = f(*[JetTracer(trace, x, list(ts)) if order and any(type(t) is not Zero for t in ts) else x
                   for x, ts in zip(primals, series)])
        pairs = [trace.pair(x) for x in outs]
    return [x for x, _ in pairs], [ts for _, ts in pairs]


@api_boundary
def jet(fun: Callable, primals: Sequence, series: Sequence, factorial_scaled: bool = True, **_) -> tuple[Any, Any]:
    """(fun(*primals), series of the result): the Taylor approximation of fun along the series of its arguments.

    series: for each argument a list of its derivatives h_1, ..., h_K (trees like the argument); the result's series is
    a list of K trees for each output leaf, in the structure of the output.  factorial_scaled=False: both are coefficients
    of powers, h_k / k!."""
    if len(primals) != len(series):
        raise ValueError(f"jet needs one series for each argument, got {len(primals)} primals and {len(series)} series")
    orders = {len(s) for s in series}
    if len(orders) > 1:
        raise ValueError(f"jet terms have inconsistent lengths for different arguments: {sorted(orders)}")
    order = orders.pop() if orders else 0
    leaves, in_tree = tree_flatten(tuple(primals))
    rows: list[list] = [[] for _ in leaves]
    for k in range(order):
        terms, tree = tree_flatten(tuple(s[k] for s in series))
        if tree != in_tree:
            raise ValueError(f"term {k + 1} of the series has structure {tree}, but the primals have {in_tree}")
        for row, x, t in zip(rows, leaves, terms):
            if typeof(t).shape != typeof(x).shape:
                raise ValueError(f"term {k + 1} has shape {typeof(t).shape} for a primal of shape {typeof(x).shape}")
            t = ew.convert(t, typeof(x).dtype, typeof(x).weak_type)
            row.append(t if factorial_scaled else ew.mul(t, ew.lit(t, factorial(k + 1))))
    box: dict[str, Any] = {}

    def flat(*xs):
        outs, box["tree"] = tree_flatten(fun(*in_tree.unflatten(xs)))
        return outs
    outs, out_series = jet_flat(flat, leaves, rows, order)
    tree = box["tree"]
    filled = [list(map(instantiate_zero, ts)) for ts in out_series]
    if not factorial_scaled:
        filled = [[ew.div(t, ew.lit(t, factorial(k))) for k, t in enumerate(ts, 1)] for ts in filled]
    if tree == tree_structure(0):
        return outs[0], filled[0]
    return tree.unflatten(outs), tree.unflatten(filled)
