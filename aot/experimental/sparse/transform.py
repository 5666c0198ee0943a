"""`sparsify`: functions of dense arrays, applied to sparse ones.

The function is traced with dense arrays of the same shapes; then its operations are run by the rules of `_rules`, and
loops, branches and calls by jaxprs whose variables are the arrays that sparse values consist of."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aot.ad_checkpoint import checkpoint_p
from aot.custom_calls import JvpCall, custom_jvp_p, custom_vjp_p
from aot.experimental.sparse import _rules
from aot.experimental.sparse._base import JAXSparse
from aot.experimental.sparse._bcoo import BCOO
from aot.experimental.sparse._values import (
    Form,
    aval_of,
    flatten,
    is_sparse,
    separate,
    supported,
    unflatten,
)
from aot.ops.call import pjit_p
from aot.ops.control import cond_p, split, while_p
from aot.ops.scan import scan_p
from aot.source import api_boundary, replaying, set_current, wraps
from aot.trace import (
    Jaxpr,
    Literal,
    ShapedArray,
    Trace,
    Tracer,
    Zero,
    bind,
    is_zero,
    stage,
    state,
    tracing,
    typeof,
)
from aot.tree_util import tree_flatten

Array = Any


def sparsify(f: Callable, use_tracer: bool = False) -> Callable:
    """f for arguments that may be BCOO or BCSR arrays, and results that are sparse where the operations have sparse results.

    Keyword arguments are passed on as they are.  Raises NotImplementedError for operations whose result would be dense, or that
    have no rule.  use_tracer: run f with tracers that are sparse, instead of tracing it with dense ones first.
    """
    run = _run_traced if use_tracer else _run_staged

    @wraps(f)
    @api_boundary
    def sparse_f(*args, **params):
        leaves, tree = tree_flatten(args, is_leaf=lambda x: isinstance(x, JAXSparse))
        values = separate([supported(x) for x in leaves])
        out_tree: list = []

        def flat(*xs):
            out, out_tree[:] = _flat_result(f(*tree.unflatten(xs), **params))
            return out
        outs = run(flat, values)
        return out_tree[0].unflatten(outs)
    return sparse_f


def _flat_result(out: Any) -> tuple[list, list]:
    leaves, tree = tree_flatten(out)
    return leaves, [tree]


def _run_staged(f: Callable, values: list) -> list:
    jaxpr, captured = stage(f, [aval_of(x) for x in values])
    outs = evaluate(jaxpr, [*captured, *values])
    return [_array(x) for x in outs]


def _array(x: Any) -> Any:
    """A result that is a Python scalar as an array."""
    import aot.numpy as jnp
    return jnp.asarray(x) if isinstance(x, (bool, int, float, complex, np.generic, np.ndarray)) else x


# ---- running jaxprs --------------------------------------------------------------------------------------------------

def evaluate(jaxpr: Jaxpr, args: Sequence) -> list:
    """Run the equations for operands of which some may be sparse."""
    env = dict(zip(jaxpr.invars, args, strict=True))

    def read(x): return x.val if type(x) is Literal else env[x]
    with replaying(None) as outer:
        for e in jaxpr.eqns:
            set_current(e.source or outer)
            env.update(zip(e.outvars, apply(e.primitive, [read(x) for x in e.invars], e.params)))
    return [read(x) for x in jaxpr.outvars]


def apply(prim: Any, args: list, params: dict) -> list:
    """The results of one operation."""
    if not any(map(is_sparse, args)):
        return prim.rebind(args, params)
    rule = _CONTROL.get(prim)
    return rule(prim, args, params) if rule is not None else _rules.apply(prim, args, params)


class _Staged:
    """A jaxpr over the arrays that values of these forms consist of, and the forms of its results."""
    outs: tuple[Form, ...]

    def __init__(self, jaxpr: Jaxpr, forms: tuple[Form, ...], avals: Sequence[ShapedArray]):
        def f(*arrays):
            outs, self.outs = flatten(evaluate(jaxpr, unflatten(forms, arrays)))
            return outs
        self.jaxpr = stage(f, avals, jaxpr.debug_name)[0]


def staged(jaxpr: Jaxpr, values: Sequence) -> _Staged:
    """The sparse form of a jaxpr, made once for each form of its operands."""
    arrays, forms = flatten(values)
    avals = [typeof(x) for x in arrays]
    return jaxpr.memo(("sparse", forms, tuple(avals)), lambda: _Staged(jaxpr, forms, avals))


def _call(prim: Any, args: list, params: dict) -> list:
    inner = staged(params["jaxpr"], args)
    return unflatten(inner.outs, bind(prim, *flatten(args)[0], **{**params, "jaxpr": inner.jaxpr}))


def _cond(prim: Any, args: list, params: dict) -> list:
    index, *operands = args
    index = index.todense() if is_sparse(index) else index
    branches = [staged(b, operands) for b in params["branches"]]
    first = branches[0]
    for b in branches[1:]:
        _same_result("the branches of cond", (first.outs, first.jaxpr.out_avals), (b.outs, b.jaxpr.out_avals))
    outs = bind(prim, index, *flatten(operands)[0], branches=tuple(b.jaxpr for b in branches))
    return unflatten(first.outs, outs)


def _same_result(what: str, one: tuple, other: tuple) -> None:
    """TypeError where two functions that are made sparse differ in what they return."""
    def shown(forms, avals):
        return [f"{avals[f.places[0]].str_short()} dense" if f.kind is None else
                f"{f.kind.__name__} {f.info} of data {avals[f.places[0]].str_short()}" for f in forms]
    a, b = shown(*one), shown(*other)
    plain = [[x.strip_weak_type() for x in avals] for _, avals in (one, other)]
    if one[0] != other[0] or plain[0] != plain[1]:
        i = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), 0)
        raise TypeError(f"sparsify: {what} must have the same sparse form, but result {i} is {a[i]} in one and {b[i]} in the "
                        "other. hint: update_layout, sum_duplicates(nse=...) or sparse.todense() make them alike")


def _while(prim: Any, args: list, params: dict) -> list:
    cond_consts, body_consts, carry = split(args, params["cond_nconsts"], params["body_nconsts"])
    carry, body = _settled(lambda c: staged(params["body_jaxpr"], [*body_consts, *c]), carry, len(carry), "while_loop")
    cond = staged(params["cond_jaxpr"], [*cond_consts, *carry])
    c_arrays, b_arrays, init = (flatten(x)[0] for x in (cond_consts, body_consts, carry))
    outs = bind(prim, *c_arrays, *b_arrays, *init, cond_jaxpr=cond.jaxpr, body_jaxpr=body.jaxpr,
                cond_nconsts=len(c_arrays), body_nconsts=len(b_arrays))
    return unflatten(body.outs, outs)


def _settled(make: Callable, carry: list, n: int, what: str) -> tuple[list, Any]:
    """The carry with the flags that the body keeps, and the body for it.

    Raises TypeError where the body changes the form of a carried value."""
    carry = separate(carry)
    while True:
        body = make(carry)
        outs = body.outs[:n]
        weaker = [_with_flags(x, form) for x, form in zip(carry, outs)]
        if all(a is b for a, b in zip(weaker, carry)):
            break
        carry = weaker
    arrays, forms = flatten(carry)
    avals = [typeof(x) for x in arrays]
    _same_result(f"a value that {what} carries before and after its body", (forms, avals),
                 (outs, body.jaxpr.out_avals[:max((p for f in outs for p in f.places), default=-1) + 1]))
    return carry, body


def _with_flags(x: Any, form: Form) -> Any:
    """x without the promises that do not hold after the body."""
    if not isinstance(x, BCOO) or form.kind is not BCOO or form.info is None:
        return x
    flags = x.indices_sorted and form.info.indices_sorted, x.unique_indices and form.info.unique_indices
    if flags == (x.indices_sorted, x.unique_indices):
        return x
    return BCOO(x._bufs, shape=x.shape, indices_sorted=flags[0], unique_indices=flags[1])


def _scan(prim: Any, args: list, params: dict) -> list:
    consts, carry, xs = split(args, params["num_consts"], params["num_carry"])
    xs = separate([_rows(x, params["length"]) for x in xs])
    slices = [_row_of(x) for x in xs]
    carry, body = _settled(lambda c: _scan_body(params["jaxpr"], consts, c, slices), carry, len(carry), "scan")
    parts = [flatten(part)[0] for part in (consts, carry, xs)]
    n = len(parts[1])
    outs = bind(prim, *parts[0], *parts[1], *parts[2],
                **{**params, "jaxpr": body.jaxpr, "num_consts": len(parts[0]), "num_carry": n})
    ys = [Form(f.kind, f.info and f.info._replace(shape=(params["length"], *f.info.shape)), f.places) for f in body.ys]
    return [*unflatten(body.outs, outs[:n]), *unflatten(ys, outs[n:])]


def _rows(x: Any, length: int) -> Any:
    """x with its leading dimension as a batch dimension of the full size."""
    if not is_sparse(x):
        return x
    if not x.n_batch:
        raise ValueError(f"sparsify: scan over the rows of {x!r}, which has no batch dimension to take them from. hint: "
                         "update_layout(n_batch=1)")
    import aot.numpy as jnp
    return type(x)(tuple(jnp.broadcast_to(a, (length, *a.shape[1:])) for a in x._bufs), shape=x.shape,
                   indices_sorted=x.indices_sorted, unique_indices=x.unique_indices)



def _row_of(x: Any) -> Any:
    """Something with the types of a row of x."""
    import aot.numpy as jnp
    if is_sparse(x):
        return type(x).tree_unflatten(x._info._replace(shape=x.shape[1:])._asdict(),
                                      [jnp.zeros(a.shape[1:], a.dtype) for a in x._bufs])
    a = typeof(x)
    return jnp.zeros(a.shape[1:], a.dtype)


def _scan_body(jaxpr: Jaxpr, consts: list, carry: list, rows: list) -> Any:
    """As `staged`, where operands and results of each group have arrays of their own."""
    groups = [flatten(g) for g in (consts, carry, rows)]
    avals = [typeof(x) for arrays, _ in groups for x in arrays]
    key = ("sparse scan", tuple(f for _, f in groups), tuple(avals))
    return jaxpr.memo(key, lambda: _ScanBody(jaxpr, [(len(a), f) for a, f in groups], avals, len(carry)))


class _ScanBody:
    outs: tuple[Form, ...]
    ys: tuple[Form, ...]

    def __init__(self, jaxpr: Jaxpr, groups: list, avals: list, num_carry: int):
        sizes = [n for n, _ in groups]

        def f(*arrays):
            parts = split(arrays, *sizes)
            values = [x for (_, forms), part in zip(groups, parts) for x in unflatten(forms, part)]
            outs = evaluate(jaxpr, values)
            carry, self.outs = flatten(separate(outs[:num_carry]))
            ys, self.ys = flatten(outs[num_carry:])
            return [*carry, *ys]
        self.jaxpr = stage(f, avals, jaxpr.debug_name)[0]


def _custom_jvp(prim: Any, args: list, params: dict) -> list:
    n, rule = params["num_consts"], params["jvp"]       # of what the function closes over the rule knows nothing
    return _with_rule(lambda values: evaluate(params["call_jaxpr"], values),
                      lambda values, dots: _sparse_rule(rule, values[n:], dots[n:]), params["name"], args)


def _with_rule(run: Callable, rule: Callable, name: str, values: Sequence) -> list:
    """run(values), with the derivative that rule(values, tangents) gives: of tangents that are sparse at the same places."""
    arrays, forms = flatten(values)
    out_forms: list[Form] = []

    def fun(*xs):
        outs, out_forms[:] = flatten(run(unflatten(forms, xs)))
        return outs

    def flat_rule(primals, tangents):
        values = unflatten(forms, primals)
        outs, dots = rule(values, [_tangent(x, form, tangents) for x, form in zip(values, forms)])
        flat, out_forms[:] = flatten(outs)
        ts: list = [Zero.like(x) for x in flat]
        for form, t in zip(out_forms, dots):
            ts[form.places[0]] = t.data if is_sparse(t) else t
        return flat, ts
    outs = state.trace.custom_jvp(JvpCall(fun, flat_rule, name), arrays)
    return unflatten(out_forms, outs)


def _tangent(x: Any, form: Form, tangents: Sequence) -> Any:
    t = tangents[form.places[0]]
    if is_zero(t) or form.kind is None:
        return t
    return x.with_data(t)


def _sparse_rule(rule: Callable, primals: list, tangents: list) -> tuple[list, list]:
    """rule(primals, tangents), a function of dense arrays, for sparse ones."""
    nonzero = [not is_zero(t) for t in tangents]
    zeros: list = []

    def f(*xs):
        n = len(primals)
        dots = iter(xs[n:])
        outs, ts = rule(xs[:n], [next(dots) if nz else Zero.like(x) for x, nz in zip(xs, nonzero)])
        zeros[:] = [t if is_zero(t) else None for t in ts]
        return [*outs, *(t for t in ts if not is_zero(t))]
    values = [*primals, *(t for t, nz in zip(tangents, nonzero) if nz)]
    jaxpr, captured = stage(f, [aval_of(x) for x in values])
    outs = evaluate(jaxpr, [*captured, *values])
    rest = iter(outs[len(zeros):])
    return outs[:len(zeros)], [next(rest) if z is None else z for z in zeros]


_CONTROL: dict[Any, Callable] = {pjit_p: _call, cond_p: _cond, while_p: _while, scan_p: _scan, checkpoint_p: _call,
                                 custom_jvp_p: _custom_jvp}


# ---- sparse tracers --------------------------------------------------------------------------------------------------

class SparseTracer(Tracer):
    """Stands for an array that is sparse: `spvalue`, a BCOO or BCSR array, or a dense one."""
    __slots__ = ("spvalue",)

    def __init__(self, trace: SparseTrace, *, spvalue: Any):
        self.owner, self.spvalue, self.aval = trace, spvalue, aval_of(spvalue)


class SparseTrace(Trace):
    """Runs the sparse rule of each operation that meets a sparse value."""

    def __init__(self, parent: Trace): self.parent = parent

    def value(self, x: Any) -> Any:
        return x.spvalue if type(x) is SparseTracer and x.owner is self else x

    def process(self, prim, args, params):
        values = [self.value(x) for x in args]
        with tracing(self.parent):
            outs = apply(prim, values, params)
        return [self.tracer(x) for x in outs]

    def tracer(self, x: Any) -> Any: return SparseTracer(self, spvalue=x) if is_sparse(x) else x

    def custom_jvp(self, call, args):
        values = [self.value(x) for x in args]
        with tracing(self.parent):
            if not any(map(is_sparse, values)):
                return self.parent.custom_jvp(call, values)
            outs = _with_rule(lambda xs: _run_staged(call.fun, xs), lambda xs, dots: _sparse_rule(call.rule, xs, dots),
                              call.name, values)
        return [self.tracer(x) for x in outs]

    def custom_vjp(self, call, args):
        values = [self.value(x) for x in args]
        if any(map(is_sparse, values)):
            return _rules.apply(custom_vjp_p, values, {})
        with tracing(self.parent):
            return self.parent.custom_vjp(call, values)


def _run_traced(f: Callable, values: list) -> list:
    trace = SparseTrace(state.trace)
    with tracing(trace):
        outs = f(*[SparseTracer(trace, spvalue=x) for x in values])
        return [_array(trace.value(x)) for x in outs]
