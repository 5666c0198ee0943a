"""Control flow for users: cond, switch, while_loop, fori_loop, scan, map, associative_scan."""
from __future__ import annotations

import operator
from typing import Any, Callable, Sequence

import numpy as np

from aot import dtypes
from aot.config import config
from aot.ops import elementwise as ew
from aot.ops.call import merge_captured
from aot.ops.control import cond_p, select_outputs, while_p
from aot.ops.families import kind
from aot.ops.scan import scan_p
from aot.ops.shape import concatenate, reshape
from aot.ops.slicing import dynamic_index_in_dim, slice_in_dim
from aot.source import api_boundary
from aot.trace import (
    Jaxpr,
    ShapedArray,
    Var,
    bind,
    concrete_or_error,
    eval_jaxpr,
    is_live,
    is_tracer,
    stage,
    stage_closed,
    state,
    typeof,
)
from aot.trace.memo import per_function
from aot.trace.refs import refuse_ref
from aot.tree_util import keystr, tree_flatten, tree_flatten_with_path, tree_leaves, tree_map, tree_structure


def stage_tree(fun: Callable, in_tree, avals: Sequence[ShapedArray], what: str):
    """Trace fun over a tree of arguments -> (jaxpr with captured tracers first, captured, output tree).

    Repeated eager calls with the same function object and types reuse the trace."""
    key = None
    try:
        key = (in_tree, tuple(avals), config.trace_key(), tuple(state.axes.items()))
        bodies = per_function(fun, "body")
        found = bodies.get(key)
        if found is not None and all(is_live(x.owner) for x in found[1]):
            return found
    except TypeError:
        key = None                      # unhashable callables are traced each time
    box = {}

    def flat(*leaves):
        outs, box["tree"] = tree_flatten(fun(*in_tree.unflatten(leaves)))
        for x in outs:
            _check_leaf(x, what)
        return outs
    def note_keys(trace, ins):
        from aot.random._reuse import uses
        box["keys"] = uses(trace, ins)
    jaxpr, captured = stage(flat, avals, getattr(fun, "__name__", "body"), note_keys if config.debug_key_reuse else None)
    found = (jaxpr, captured, box["tree"], box.get("keys", ()))
    if key is not None:
        bodies[key] = found
    return found


def _check_leaf(x, what):
    refuse_ref(x, what)
    try:
        typeof(x)
    except TypeError:
        raise TypeError(f"{what} returned a value of type {type(x)}, which is not an array. hint: return arrays, "
                        "scalars or pytrees of them") from None


def avals_of(tree: Any) -> tuple[list, Any, list[ShapedArray]]:
    leaves, treedef = tree_flatten(tree)
    return leaves, treedef, [typeof(x) for x in leaves]


# ---- cond and switch ---------------------------------------------------------------------------------------------

_NO_OPERAND: Any = object()      # None is an operand like others


def _with_operand(what: str, operands: tuple, operand: Any) -> tuple:
    """The operands, where the only one may have been given by name."""
    if operand is _NO_OPERAND:
        return operands
    if operands:
        raise TypeError(f"lax.{what} got operands both by position and as operand=. hint: pass all by position")
    return (operand,)


@api_boundary
def cond(pred, true_fun: Callable, false_fun: Callable, *operands, operand: Any = _NO_OPERAND):
    """true_fun(*operands) if pred else false_fun(*operands); only the chosen branch runs (not so under vmap over
    pred, where both do).  Both must return the same types."""
    if callable(false_fun) and not callable(true_fun) and len(operands) == 2 and callable(operands[1]):
        (true_operand, on_true), (false_operand, on_false) = (true_fun, false_fun), operands     # an operand for each
        return cond(pred, lambda x, _: on_true(x), lambda _, x: on_false(x), true_operand, false_operand)
    if not (callable(true_fun) and callable(false_fun)):
        raise TypeError("lax.cond: true_fun and false_fun arguments should be callable.")
    operands = _with_operand("cond", operands, operand)
    a = typeof(pred)
    if a.shape:
        raise TypeError(f"Pred must be a scalar, got {pred} of shape {a.shape}.")
    if kind(a.dtype) == "k" or kind(a.dtype) == "c":
        raise TypeError(f"Pred type must be either boolean or number, got {a.dtype.name}.")
    if config.disable_jit and not is_tracer(pred):
        return true_fun(*operands) if pred else false_fun(*operands)
    if kind(a.dtype) != "b":
        pred = ew.ne(pred, ew.lit(pred, 0))
    return _branches(pred, (false_fun, true_fun), operands, "cond", ("false_fun", "true_fun"))


@api_boundary
def switch(index, branches: Sequence[Callable], *operands, operand: Any = _NO_OPERAND):
    """branches[clamp(index)](*operands)."""
    operands = _with_operand("switch", operands, operand)
    branches = tuple(branches)
    if not branches:
        raise ValueError("Empty branch sequence")
    a = typeof(index)
    if a.shape or kind(a.dtype) not in "iu":
        raise TypeError(f"Index type must be an integer scalar, got {a.str_short()}.")
    if len(branches) == 1:
        return branches[0](*operands)
    if config.disable_jit and not is_tracer(index):
        return branches[min(max(int(index), 0), len(branches) - 1)](*operands)
    index = ew.clamp(np.int32(0), ew.convert(index, np.dtype("int32")), np.int32(len(branches) - 1))
    return _branches(index, branches, operands, "switch", [f"branches[{i}]" for i in range(len(branches))])


def _branches(index, funs, operands, what, names):
    leaves, tree, avals = avals_of(operands)
    staged = [stage_tree(f, tree, avals, f"lax.{what}'s {n}") for f, n in zip(funs, names)]
    if config.debug_key_reuse:
        from aot.random._reuse import replay
        replay(list({(u.position, id(u.key)): u for s in staged for u in s[3]}.values()), leaves)
    jaxprs, captured = merge_captured([s[0] for s in staged], [s[1] for s in staged])
    first, out_tree = staged[0], staged[0][2]
    for s, n in zip(staged[1:], names[1:]):
        if s[2] != out_tree:
            raise TypeError(f"{what} branch outputs must have the same pytree structure: {names[0]} returns {out_tree}, "
                            f"{n} returns {s[2]}.")
        for i, (a, b) in enumerate(zip(first[0].out_avals, s[0].out_avals)):
            if a.shape != b.shape or a.dtype != b.dtype:
                raise TypeError(f"{what} branches must have equal output types: output{_leaf_path(out_tree, i)} is "
                                f"{a.str_short()} in {names[0]} but {b.str_short()} in {n}. hint: cast or broadcast in "
                                "one of the branches")
    weak = [all(j.out_avals[i].weak_type for j in jaxprs) for i in range(len(first[0].outvars))]
    jaxprs = [_with_weak(j, weak) for j in jaxprs]
    passed, operands = _passed_on(jaxprs), [*captured, *leaves]
    if any(i is not None for i in passed):
        needed = tuple(i is None for i in passed)
        jaxprs = [j.memo(("keep", needed), lambda j=j: select_outputs(j, needed)) for j in jaxprs]
    runs = jaxprs[0].outvars or any(j.effects for j in jaxprs)
    outs = iter(bind(cond_p, index, *operands, branches=tuple(jaxprs)) if runs else ())
    return out_tree.unflatten([next(outs) if i is None else ew.as_array(operands[i]) for i in passed])


def _passed_on(branches: Sequence[Jaxpr]) -> list[int | None]:
    """For each result the operand that all branches return as it is, if they do: it does not depend on which one runs."""
    places = [{v: i for i, v in enumerate(b.invars)} for b in branches]

    def operand(results):
        first, *others = [at.get(v) if type(v) is Var else None for at, v in zip(places, results)]
        return first if all(i == first for i in others) else None
    return [operand(results) for results in zip(*(b.outvars for b in branches))]


def _with_weak(jaxpr: Jaxpr, weak: Sequence[bool]) -> Jaxpr:
    """Outputs with these weak types."""
    if [a.weak_type for a in jaxpr.out_avals] == list(weak):
        return jaxpr
    return jaxpr.memo(("weak", tuple(weak)), lambda: stage_closed(
        lambda *xs: [ew.convert(o, typeof(o).dtype, w) if isinstance(typeof(o).dtype, np.dtype) else o
                     for o, w in zip(eval_jaxpr(jaxpr, xs), weak)], jaxpr.in_avals, jaxpr.debug_name))


def check_loop_keys(keys: Sequence, jaxpr: Jaxpr, n_captured: int, n_carry: int, leaves: Sequence, what: str) -> None:
    """Under debug_key_reuse: refuse a body that consumes one key in every step; the loop consumes the rest here."""
    if not keys:
        return
    from aot.random._reuse import refuse_in_loop, replay
    ins = jaxpr.invars[n_captured:]
    passed_on = [i for i in range(n_carry) if jaxpr.outvars[i] is ins[i]]
    refuse_in_loop(keys, n_carry, passed_on, what)
    replay(keys, leaves)


def _leaf_path(tree, i: int) -> str:
    return keystr(tree_flatten_with_path(tree.unflatten(range(tree.num_leaves)))[0][i][0])


# ---- carries -----------------------------------------------------------------------------------------------------

def settle_carry(trace_body: Callable, init_leaves: list, what: str, tree):
    """Trace a body; weakly typed initial values take the dtype the body returns -> (the trace, the initial values)."""
    avals = [typeof(x) for x in init_leaves]
    staged = trace_body(avals)
    outs = staged[0].out_avals[:len(avals)]
    if any(a.weak_type and a.dtype != o.dtype for a, o in zip(avals, outs)):
        init_leaves = [ew.convert(x, dtypes.result_type(x, o)) if a.weak_type and a.dtype != o.dtype else x
                       for x, a, o in zip(init_leaves, avals, outs)]
        if [typeof(x) for x in init_leaves] != avals:
            return settle_carry(trace_body, init_leaves, what, tree)
    for i, (a, o) in enumerate(zip(avals, outs)):
        if a.shape != o.shape or a.dtype != o.dtype:
            raise TypeError(f"{what} function carry input and carry output must have equal types, but they differ: the "
                            f"input carry component {_carry_name(tree, i)} has type {a.str_short(False)} but the "
                            f"corresponding output carry component has type {o.str_short(False)}. hint: cast or reshape "
                            "the carry so that both agree")
    return staged, init_leaves


def _carry_name(tree, i):
    path = _leaf_path(tree, i)
    return f"carry{path}" if path else "carry"


def _check_carry_tree(expected, got, what: str):
    if expected != got:
        raise TypeError(f"{what} function carry input and carry output must have the same pytree structure, but they "
                        f"differ: the input carry is {expected} and the output carry is {got}.")


# ---- while and fori ----------------------------------------------------------------------------------------------

@api_boundary
def while_loop(cond_fun: Callable, body_fun: Callable, init_val):
    """Repeat body_fun while cond_fun holds, both on a carry of fixed type.  Not reverse-differentiable."""
    if not (callable(body_fun) and callable(cond_fun)):
        raise TypeError("lax.while_loop: body_fun and cond_fun arguments should be callable.")
    if config.disable_jit and not any(map(is_tracer, tree_leaves(init_val))):
        val = tree_map(ew.as_array, init_val)
        while cond_fun(val):
            val = body_fun(val)
        return val
    leaves, tree, _ = avals_of(init_val)
    arg_tree = tree_structure((init_val,))
    body, leaves = settle_carry(lambda avals: stage_tree(body_fun, arg_tree, avals, "while_loop body_fun"), leaves,
                                "while_loop body", tree)
    body_jaxpr, body_captured, out_tree, keys = body
    check_loop_keys(keys, body_jaxpr, len(body_captured), len(leaves), leaves, "while_loop")
    _check_carry_tree(tree, out_tree, "while_loop body")
    avals = [typeof(x) for x in leaves]
    cond_jaxpr, cond_captured, cond_tree, _ = stage_tree(cond_fun, arg_tree, avals, "while_loop cond_fun")
    p = cond_jaxpr.out_avals
    if len(p) != 1 or cond_tree != tree_structure(0) or p[0].shape or kind(p[0].dtype) != "b":
        raise TypeError("cond_fun must return a boolean scalar, but got pytree "
                        f"{cond_tree} of types {[a.str_short() for a in p]}.")
    n = len(body_captured)
    fixed = tuple(v is w for v, w in zip(body_jaxpr.invars[n:], body_jaxpr.outvars))        # no iteration changes them
    constant = [ew.as_array(x) for x, f in zip(leaves, fixed) if f]
    cond_jaxpr, used = _without_fixed(cond_jaxpr, fixed, False)
    cond_consts = [*cond_captured, *[x for x, u in zip(constant, used) if u]]
    body_jaxpr, used = _without_fixed(body_jaxpr, fixed, True)
    body_consts = [*body_captured, *[x for x, u in zip(constant, used) if u]]
    outs = iter(bind(while_p, *cond_consts, *body_consts, *[x for x, f in zip(leaves, fixed) if not f], cond_jaxpr=cond_jaxpr,
                     body_jaxpr=body_jaxpr, cond_nconsts=len(cond_consts), body_nconsts=len(body_consts)))
    given = iter(constant)
    return tree.unflatten([next(given if f else outs) for f in fixed])


def _without_fixed(jaxpr: Jaxpr, fixed: tuple[bool, ...], carried: bool) -> tuple[Jaxpr, list[bool]]:
    """The function of a loop with those parts of the carry that are fixed, if it uses them, as inputs before the others.

    -> (it, which of them it uses); carried: its results are the carry."""
    if not any(fixed):
        return jaxpr, []

    def make():
        n = len(jaxpr.invars) - len(fixed)
        outs = [v for v, f in zip(jaxpr.outvars, fixed) if not f] if carried else jaxpr.outvars
        read = {*outs, *(v for e in jaxpr.eqns for v in e.invars)}
        constant, changing = ([v for v, f in zip(jaxpr.invars[n:], fixed) if f is want] for want in (True, False))
        invars = [*jaxpr.invars[:n], *[v for v in constant if v in read], *changing]
        return Jaxpr(invars, jaxpr.eqns, outs, jaxpr.debug_name), [v in read for v in constant]
    return jaxpr.memo(("without", fixed, carried), make)


@api_boundary
def fori_loop(lower, upper, body_fun: Callable, init_val, *, unroll=None):
    """for i in range(lower, upper): val = body_fun(i, val).  With static bounds it is a scan, hence differentiable."""
    if not callable(body_fun):
        raise TypeError("lax.fori_loop: body_fun argument should be callable.")
    dtype = _bound_dtype(typeof(lower), typeof(upper))
    if not is_tracer(lower) and not is_tracer(upper):
        start, length = int(lower), max(int(upper) - int(lower), 0)
        if config.disable_jit:
            val = init_val
            for i in range(start, start + length):
                val = body_fun(np.asarray(i, dtype)[()], val)
            return val

        def step(carry, _):
            i, val = carry
            return (ew.add(i, ew.lit(i, 1)), body_fun(i, val)), None
        (_, out), _ = scan(step, (start, init_val), None, length=length, unroll=1 if unroll is None else unroll)
        return out
    if unroll not in (None, False, 1):
        raise ValueError("Can only use `unroll` in `fori_loop` if the loop bounds are statically known.")
    lower, upper = (x if typeof(x).dtype == dtype else ew.convert(x, dtype) for x in (lower, upper))
    out = while_loop(lambda c: ew.lt(c[0], c[1]), lambda c: (ew.add(c[0], ew.lit(c[0], 1)), c[1], body_fun(c[0], c[2])),
                     (lower, upper, init_val))
    return out[2]


def _bound_dtype(lower: ShapedArray, upper: ShapedArray):
    """The dtype that a loop counts in: that of both bounds, or of the typed one where the other is a Python integer."""
    if lower.shape or upper.shape or kind(lower.dtype) not in "iufb" or kind(upper.dtype) not in "iufb":
        raise TypeError(f"lower and upper arguments to fori_loop must be integer scalars, got {lower.str_short()} and "
                        f"{upper.str_short()}")
    if lower.dtype == upper.dtype:
        return lower.dtype
    if kind(lower.dtype) == kind(upper.dtype) == "i" and lower.weak_type != upper.weak_type:
        return upper.dtype if lower.weak_type else lower.dtype
    raise TypeError(f"lower and upper arguments to fori_loop must have equal types, got {lower.dtype.name} and "
                    f"{upper.dtype.name}. hint: cast one of them with astype")


# ---- scan and map ------------------------------------------------------------------------------------------------

@api_boundary
def scan(f: Callable, init, xs=None, length: int | None = None, reverse: bool = False, unroll: int | bool = 1,
         _split_transpose: bool = False):
    """carry, ys = scan(f, init, xs): f(carry, x) -> (carry, y) along the leading axis of xs.

    xs leaves have shape (length, ...); ys are stacked the same way.  reverse runs from the end."""
    if not callable(f):
        raise TypeError("lax.scan: f argument should be a callable.")
    if not isinstance(unroll, (bool, int, np.integer)) or unroll < 0:
        raise ValueError(f"`unroll` must be a `bool` or a non-negative `int`, got {unroll!r}.")
    xs_leaves, xs_tree, xs_avals = avals_of(xs)
    n = _scan_length(xs_leaves, xs_avals, length)
    init_leaves, init_tree, _ = avals_of(init)
    if config.disable_jit:
        return _scan_in_python(f, init, xs_leaves, xs_tree, n, reverse)
    row_avals = [a.update(shape=a.shape[1:]) for a in xs_avals]
    in_tree = tree_structure((init, xs))

    def trace_body(avals):
        staged = stage_tree(f, in_tree, [*avals, *row_avals], "scan body")
        out_tree = staged[2]
        children = out_tree.children()
        if out_tree.num_nodes == 1 or out_tree.node_data()[0] not in (tuple, list) or len(children) != 2:
            raise TypeError(f"scan body output must be a pair, got {out_tree}.")
        _check_carry_tree(init_tree, children[0], "scan body")
        return staged
    (jaxpr, captured, out_tree, keys), init_leaves = settle_carry(trace_body, init_leaves, "scan body", init_tree)
    if n > 1:
        check_loop_keys(keys, jaxpr, len(captured), len(init_leaves), [*init_leaves, *xs_leaves], "scan")
    outs = bind(scan_p, *captured, *init_leaves, *xs_leaves, jaxpr=jaxpr, num_consts=len(captured),
                num_carry=len(init_leaves), length=n, reverse=bool(reverse),
                unroll=unroll if unroll is True else int(unroll) or 1)
    return out_tree.unflatten(outs)


def _scan_length(leaves, avals, length) -> int:
    sizes = set()
    for x, a in zip(leaves, avals):
        if not a.shape:
            raise ValueError("scan got value with no leading axis to scan over: " + str(x) + ".")
        sizes.add(a.shape[0])
    if length is not None:
        given = concrete_or_error(None, length, "the length of lax.scan")
        length = int(given) if given == int(given) else operator.index(given)
        if length < 0:
            raise ValueError(f"scan got `length` argument of {length}, which is negative.")
        if sizes and sizes != {length}:
            raise ValueError(f"scan got `length` argument of {length} which disagrees with leading axis sizes "
                             f"{sorted(sizes)}.")
        return length
    if len(sizes) > 1:
        raise ValueError(f"scan got values with different leading axis sizes: {', '.join(map(str, sorted(sizes)))}.")
    if not sizes:
        raise ValueError("scan got no values to scan over and `length` not provided.")
    return sizes.pop()


def _scan_in_python(f, init, leaves, tree, n, reverse):
    carry, ys = init, []
    for i in (reversed(range(n)) if reverse else range(n)):
        carry, y = f(carry, tree.unflatten([dynamic_index_in_dim(x, i, keepdims=False) for x in leaves]))
        ys.append(y)
    ys = ys[::-1] if reverse else ys
    if not ys:
        return carry, None
    stack = lambda *vs: concatenate([reshape(v, (1, *typeof(v).shape)) for v in vs], 0)
    return carry, tree_map(stack, *ys)


@api_boundary
def map_over(f: Callable, xs, *, batch_size: int | None = None):
    """f applied to each slice of xs along the leading axis, one after the other (batch_size at a time with vmap)."""
    if batch_size is not None:
        return _map_batched(f, xs, batch_size)
    return scan(lambda _, x: ((), f(x)), (), xs)[1]


def _map_batched(f, xs, size):
    from aot.transforms.batching import vmap
    leaves, tree = tree_flatten(xs)
    n = typeof(leaves[0]).shape[0]
    whole, rest = divmod(n, size) if size else (0, n)
    g = vmap(f)
    outs = []
    if whole:
        rows = [reshape(slice_in_dim(x, 0, whole * size), (whole, size, *typeof(x).shape[1:])) for x in leaves]
        y = map_over(g, tree.unflatten(rows))
        outs.append(tree_map(lambda v: reshape(v, (whole * size, *typeof(v).shape[2:])), y))
    if rest or not whole:
        outs.append(g(tree.unflatten([slice_in_dim(x, whole * size, n) for x in leaves])))
    return outs[0] if len(outs) == 1 else tree_map(lambda a, b: concatenate([a, b], 0), *outs)


@api_boundary
def associative_scan(fn: Callable, elems, reverse: bool = False, axis: int = 0):
    """All prefixes of elems combined with the associative fn, in logarithmic depth."""
    if not callable(fn):
        raise TypeError("lax.associative_scan: fn argument should be callable.")
    from aot.ops.reductions import interleave
    from aot.ops.shape import canonical_axis, rev
    leaves, tree = tree_flatten(elems)
    axis = canonical_axis(axis, typeof(leaves[0]).ndim)
    n = typeof(leaves[0]).shape[axis]
    if any(typeof(x).shape[axis] != n for x in leaves):
        raise ValueError("Array inputs to associative_scan must have the same first dimension. "
                         f"(saw: {[typeof(x).shape for x in leaves]})")
    if reverse:
        leaves = [rev(x, (axis,)) for x in leaves]
    combine = lambda a, b: tree_leaves(fn(tree.unflatten(a), tree.unflatten(b)))
    cut = lambda xs, lo, hi, s=1: [slice_in_dim(x, lo, hi, s, axis) for x in xs]

    def go(xs):
        n = typeof(xs[0]).shape[axis]
        if n < 2:
            return xs
        odd = go(combine(cut(xs, 0, n - 1, 2), cut(xs, 1, n, 2)))
        even = cut(xs, 0, 1)
        if n > 2:
            inner = combine(cut(odd, 0, (n - 1) // 2), cut(xs, 2, n, 2))
            even = [concatenate([a, b], axis) for a, b in zip(even, inner)]
        return [interleave(a, b, axis) for a, b in zip(even, odd)]
    outs = go(leaves)
    return tree.unflatten([rev(x, (axis,)) for x in outs] if reverse else outs)


__all__ = ["associative_scan", "cond", "fori_loop", "map_over", "scan", "switch", "while_loop"]
