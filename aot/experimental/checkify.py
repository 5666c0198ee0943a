"""Errors as values: `checkify` turns checks inside a function into an Error that is returned with its result.

The function is staged and its equations are run again with an error state beside them: whether something failed, which
check was the first, and the values for its message.  Loops carry the state, branches return it.
"""
from __future__ import annotations

import enum
import functools
from typing import Any, Callable, Iterable, Sequence

import numpy as np

from aot.ad_checkpoint import checkpoint_p
from aot.array import asarray
from aot.custom_calls import custom_jvp_p, custom_vjp_p
from aot.ops import elementwise as ew
from aot.ops.call import pjit_p
from aot.ops.control import cond_p, split, while_p
from aot.ops.families import kind
from aot.ops.indexing import GatherScatterMode, inside, window_sizes
from aot.ops.random import random_wrap
from aot.ops.reductions import reduce_and, reduce_or
from aot.ops.scan import scan_p
from aot.ops.shape import broadcast_to, zeros
from aot.source import api_boundary, code_line, user_frame, where, wraps
from aot.trace import (
    Eqn,
    Jaxpr,
    Literal,
    Primitive,
    ShapedArray,
    Tracer,
    base_trace,
    bind,
    eval_jaxpr,
    is_tracer,
    stage,
    state,
    typeof,
)
from aot.tree_util import PyTreeDef, register_pytree_node, tree_flatten, tree_structure


class JaxRuntimeError(ValueError):
    """What a failed check raises."""


class ErrorCategory(enum.Enum):
    """What `checkify` can look for."""
    USER = "user"
    NAN = "nan"
    DIV = "div"
    OOB = "oob"


user_checks = frozenset({ErrorCategory.USER})
nan_checks = frozenset({ErrorCategory.NAN})
div_checks = frozenset({ErrorCategory.DIV})
index_checks = frozenset({ErrorCategory.OOB})
float_checks = nan_checks | div_checks
automatic_checks = float_checks | index_checks
all_checks = automatic_checks | user_checks


class Site:
    """One place that can fail: its message, and the types of the values the message shows, which are the leaves of the tree
    (args, kwargs) of the message's fields."""
    __slots__ = ("message", "avals", "tree")

    def __init__(self, message: str, avals: Sequence[ShapedArray], tree: PyTreeDef):
        self.message, self.avals, self.tree = message, tuple(avals), tree

    def text(self, leaves: Iterable) -> str:
        args, kwargs = self.tree.unflatten(map(asarray, leaves))
        return self.message.format(*args, **kwargs)


#: what a message without fields shows
_NOTHING = tree_structure(((), {}))


class Error:
    """The outcome of the checks of one run (or, batched, of many)."""

    def __init__(self, pred: Any, code: Any, payload: Sequence, sites: tuple[Site, ...]):
        self._pred, self._code, self._payload, self._sites = pred, code, list(payload), sites

    def get(self) -> str | None:
        """The message of the first failed check, or None."""
        if not self._sites:
            return None
        pred = np.asarray(self._pred)
        if pred.ndim == 0:
            return self._message(()) if pred else None
        lines = [f"at mapped index {', '.join(map(str, i))}: {self._message(i)}" for i in zip(*np.nonzero(pred))]
        return "\n".join(lines) or None

    def _message(self, index: tuple) -> str:
        which = int(np.asarray(self._code)[index])
        start = sum(len(s.avals) for s in self._sites[:which])
        site = self._sites[which]
        return site.text([v[index] for v in self._payload[start:start + len(site.avals)]])

    def throw(self) -> None:
        """Raise JaxRuntimeError if a check failed."""
        check_error(self)

    def get_exception(self) -> JaxRuntimeError | None:
        message = self.get()
        return None if message is None else JaxRuntimeError(message)

    def __repr__(self): return f"Error({self.get() if not is_tracer(self._pred) else 'traced'})"


register_pytree_node(Error, lambda e: ((e._pred, e._code, *e._payload), e._sites),
                     lambda sites, xs: Error(xs[0], xs[1], xs[2:], sites))


init_error = Error(np.bool_(False), np.int32(0), [], ())

# ---- user checks -----------------------------------------------------------------------------------------------------------

class Check(Primitive):
    """Fails where not all of pred holds.  Only `checkify` gives it a meaning inside compiled code."""
    name = "check"

    def infer(self, pred, *args, **_): return []
    def effects(self, **_): return frozenset({"check"})

    def jvp(self, primals, tangents, **params):
        bind(self, *primals, **params)
        return [], []

    def vmap(self, axis, args, dims, **params):
        from aot.transforms.vmap import to_dim
        bind(self, *[x if d is None else to_dim(axis, x, d, 0) for x, d in zip(args, dims)], **params)
        return [], []

    def lower(self, e, ins, outs, *xs, debug, **_):
        if debug:
            return []
        raise ValueError("a checkify.check was compiled without checkify: nothing would look at its outcome. hint: wrap the "
                         "function, err, out = checkify.checkify(f)(x), or use debug_check, which may be dropped")

    def evaluate(self, args, params):
        if not params["debug"] and not bool(np.all(np.asarray(args[0]))):
            raise JaxRuntimeError(Site(params["message"], (), params["tree"]).text(args[1:]))
        return []


check_p = Check()


@api_boundary
def check(pred: Any, msg: str, *fmt_args, debug: bool = False, **fmt_kwargs) -> None:
    """Fail with msg.format(...) where pred is False.  Functions with checks are compiled through `checkify`.

    The arguments for msg are arrays or trees of them."""
    if not isinstance(msg, str):
        raise TypeError(f"`check` expected `msg` to be a string, got {msg!r}")
    if kind(typeof(pred).dtype) != "b":
        raise TypeError(f"`check` expected `pred` to be a boolean, got {typeof(pred).str_short()}")
    leaves, tree = tree_flatten((fmt_args, fmt_kwargs))
    params = {"message": f"{msg} (`check` failed at {where(user_frame()).translate(_LITERAL)})", "tree": tree, "debug": debug}
    if state.trace is base_trace and not any(is_tracer(x) for x in [pred, *leaves]):
        check_p.evaluate([pred, *leaves], params)
        return
    bind(check_p, pred, *leaves, **params)


#: braces in a text as a format string has them
_LITERAL = {ord("{"): "{{", ord("}"): "}}"}


def debug_check(pred: Any, msg: str, *fmt_args, **fmt_kwargs) -> None:
    """As check, but dropped where the function is not checkified."""
    check(pred, msg, *fmt_args, debug=True, **fmt_kwargs)


def check_error(error: Error) -> None:
    """Raise JaxRuntimeError if the error holds a failure; inside checkify, hand it on."""
    if isinstance(error._pred, Tracer):
        if error._sites:
            check(ew.bitwise_not(error._pred), "an error of an inner checkify")
        return
    exception = error.get_exception()
    if exception is not None:
        raise exception


# ---- the error state -------------------------------------------------------------------------------------------------------

class State:
    """(failed, code, payload) as values of the current trace, for a fixed list of sites."""
    __slots__ = ("failed", "code", "payload")

    def __init__(self, failed, code, payload): self.failed, self.code, self.payload = failed, code, list(payload)

    def flat(self) -> list: return [self.failed, self.code, *self.payload]


def blank(sites: Sequence[Site]) -> State:
    return State(np.bool_(False), np.int32(0), [_empty(a) for s in sites for a in s.avals])


def _empty(a: ShapedArray) -> Any:
    if kind(a.dtype) == "k":
        return random_wrap(zeros(a.physical), impl=a.dtype.impl)
    return zeros(a) if a.shape else np.zeros(a.shape, a.dtype)[()]


class Collector:
    """Lists the sites of equations, and runs equations with the state."""

    def __init__(self, errors: Iterable[ErrorCategory]):
        self.errors = frozenset(errors)

    def sites(self, jaxpr: Jaxpr) -> list[Site]:
        """Every check in jaxpr and below, in order."""
        return jaxpr.memo(("sites", self.errors), lambda: [s for e in jaxpr.eqns for s in self.eqn_sites(e)])

    def eqn_sites(self, e: Eqn) -> list[Site]:
        inner = self.inner(e)
        if inner:
            return [s for j in inner for s in self.sites(j)]
        if e.primitive is check_p:
            return [Site(e.params["message"], [v.aval for v in e.invars[1:]], e.params["tree"])] if (
                ErrorCategory.USER in self.errors) else []
        return [Site(message, (), _NOTHING) for _, message in self.automatic(e)]

    def inner(self, e: Eqn) -> list[Jaxpr]:
        p, prim = e.params, e.primitive
        found = ([p["jaxpr"]] if prim in (pjit_p, checkpoint_p, scan_p) else list(p["branches"]) if prim is cond_p
                 else [p["cond_jaxpr"], p["body_jaxpr"]] if prim is while_p
                 else [p["call_jaxpr"]] if prim in (custom_jvp_p, custom_vjp_p) else [])
        return [j.placed(e.source) for j in found]

    def automatic(self, e: Eqn) -> list[tuple[ErrorCategory, str]]:
        """The automatic checks of one equation -> (category, message)."""
        name, place = e.primitive.name, f"at {where(e.source)}: {code_line(e.source)}".translate(_LITERAL)
        floats = any(kind(v.aval.dtype) in "fc" for v in e.outvars)
        out = []
        if ErrorCategory.DIV in self.errors and name == "div" and kind(e.outvars[0].aval.dtype) in "fciu":
            out.append((ErrorCategory.DIV, f"division by zero {place}"))
        if ErrorCategory.NAN in self.errors and floats and name not in ("copy", "reshape", "transpose", "broadcast_in_dim"):
            out.append((ErrorCategory.NAN, f"nan generated by primitive: {name} {place}"))
        if ErrorCategory.OOB in self.errors and (name in ("gather", "dynamic_slice", "dynamic_update_slice")
                                                 or name.startswith("scatter")):
            out.append((ErrorCategory.OOB, f"out-of-bounds indexing in {name} {place}"))
        return out

    # ---- running ----
    def run(self, jaxpr: Jaxpr, args: Sequence, st: State, base: int, start: int) -> tuple[list, State]:
        """Evaluate; `base` numbers the first site of jaxpr, `start` is where its payload begins."""
        env = dict(zip(jaxpr.invars, args))
        for e in jaxpr.eqns:
            ins = [x.val if type(x) is Literal else env[x] for x in e.invars]
            outs, st = self.eqn(e, ins, st, base, start)
            env.update(zip(e.outvars, outs))
            here = self.eqn_sites(e)
            base, start = base + len(here), start + sum(len(s.avals) for s in here)
        return [x.val if type(x) is Literal else env[x] for x in jaxpr.outvars], st

    def eqn(self, e, ins, st, base, start):
        if not self.eqn_sites(e):
            return ([] if e.primitive is check_p else e.primitive.rebind(ins, e.params)), st
        rules = {pjit_p: self.call, checkpoint_p: self.call, custom_jvp_p: self.call, custom_vjp_p: self.call,
                 cond_p: self.cond, scan_p: self.scan, while_p: self.loop}
        rule = rules.get(e.primitive)
        if rule is not None:
            return rule(e, ins, st, base, start)
        if e.primitive is check_p:
            return [], fail(st, ew.bitwise_not(every(ins[0])), base, ins[1:], start)
        outs = e.primitive.rebind(ins, e.params)
        for i, (category, _) in enumerate(self.automatic(e)):
            st = fail(st, self.violated(category, e, ins, outs), base + i, (), start)
        return outs, st

    def violated(self, category, e, ins, outs):
        if category is ErrorCategory.DIV:
            return ew.bitwise_not(every(ew.ne(ins[1], ew.lit(ins[1], 0))))
        if category is ErrorCategory.NAN:
            return functools.reduce(ew.bitwise_or, [some(ew.ne(o, o)) for o in outs if kind(typeof(o).dtype) in "fc"])
        return out_of_bounds(e, ins)

    def call(self, e, ins, st, base, start):
        return self.run(self.inner(e)[0], ins, st, base, start)

    def staged(self, jaxpr: Jaxpr, st: State, base: int, start: int, offset: int = 0) -> Jaxpr:
        """jaxpr with the state as its leading inputs (after `offset` of its own) and leading outputs."""
        avals = [typeof(x) for x in st.flat()]
        n = len(avals)

        def f(*args):
            own, s, rest = args[:offset], args[offset:offset + n], args[offset + n:]
            outs, new = self.run(jaxpr, [*own, *rest], State(s[0], s[1], s[2:]), base, start)
            return [*new.flat(), *outs]
        ins = [a.strip_weak_type() for a in avals]
        return stage(f, [*jaxpr.in_avals[:offset], *ins, *jaxpr.in_avals[offset:]], jaxpr.debug_name)[0]

    def cond(self, e, ins, st, base, start):
        branches = []
        for b in e.params["branches"]:
            branches.append(self.staged(b, st, base, start))
            here = self.sites(b)
            base, start = base + len(here), start + sum(len(s.avals) for s in here)
        n = len(st.flat())
        outs = bind(cond_p, ins[0], *st.flat(), *ins[1:], branches=tuple(branches))
        return outs[n:], State(outs[0], outs[1], outs[2:n])

    def scan(self, e, ins, st, base, start):
        p, n = e.params, len(st.flat())
        body = self.staged(p["jaxpr"], st, base, start, p["num_consts"])
        outs = bind(scan_p, *ins[:p["num_consts"]], *st.flat(), *ins[p["num_consts"]:],
                    **{**p, "jaxpr": body, "num_carry": p["num_carry"] + n})
        return outs[n:], State(outs[0], outs[1], outs[2:n])

    def loop(self, e, ins, st, base, start):
        """Checks of the body run in each step; checks of the condition once more before it is asked."""
        p, n = e.params, len(st.flat())
        cond_consts, body_consts, carry = split(ins, p["cond_nconsts"], p["body_nconsts"])
        c_sites = self.sites(p["cond_jaxpr"])
        after = base + len(c_sites), start + sum(len(s.avals) for s in c_sites)
        nc, nb = len(cond_consts), len(body_consts)

        def step(*args):
            cc, bc, s, values = args[:nc], args[nc:nc + nb], args[nc + nb:nc + nb + n], args[nc + nb + n:]
            outs, new = self.run(p["body_jaxpr"], [*bc, *values], State(s[0], s[1], s[2:]), *after)
            _, new = self.run(p["cond_jaxpr"], [*cc, *outs], new, base, start)
            return [*new.flat(), *outs]

        def going(*args):
            return eval_jaxpr(p["cond_jaxpr"], [*args[:nc], *args[nc + n:]])
        _, st = self.run(p["cond_jaxpr"], [*cond_consts, *carry], st, base, start)
        state_avals = [typeof(x).strip_weak_type() for x in st.flat()]
        carry_avals = p["body_jaxpr"].in_avals[nb:]
        cc_avals = p["cond_jaxpr"].in_avals[:nc]
        body = stage(step, [*cc_avals, *p["body_jaxpr"].in_avals[:nb], *state_avals, *carry_avals])[0]
        cond = stage(going, [*cc_avals, *state_avals, *carry_avals])[0]
        outs = bind(while_p, *cond_consts, *cond_consts, *body_consts, *st.flat(), *carry, cond_jaxpr=cond, body_jaxpr=body,
                    cond_nconsts=nc, body_nconsts=nc + nb)
        return outs[n:], State(outs[0], outs[1], outs[2:n])


def every(x): return reduce_and(x, tuple(range(typeof(x).ndim))) if typeof(x).ndim else x


def some(x): return reduce_or(x, tuple(range(typeof(x).ndim))) if typeof(x).ndim else x


def fail(st: State, violated, code: int, values: Sequence, start: int) -> State:
    """The state after a check; the first failure stays."""
    first = ew.bitwise_and(violated, ew.bitwise_not(st.failed))
    payload = list(st.payload)
    for i, v in enumerate(values):
        old = payload[start + i]
        payload[start + i] = ew.select(broadcast_to(first, typeof(v).shape), ew.convert(v, typeof(old).dtype), old)
    return State(ew.bitwise_or(st.failed, violated), ew.select(first, np.int32(code), st.code), payload)


def out_of_bounds(e: Eqn, ins: Sequence):
    p, name = e.params, e.primitive.name
    x = typeof(ins[0])
    if name == "gather":
        if p["mode"] is GatherScatterMode.PROMISE_IN_BOUNDS and typeof(ins[1]).size == 0:
            return np.bool_(False)
        return ew.bitwise_not(every(inside(x.shape, p["slice_sizes"], p["dimension_numbers"].start_index_map, ins[1])))
    if name.startswith("scatter"):
        d = p["dimension_numbers"]
        window = window_sizes(x, typeof(ins[2]), d)
        return ew.bitwise_not(every(inside(x.shape, window, d.scatter_dims_to_operand_dims, ins[1])))
    sizes = p["slice_sizes"] if name == "dynamic_slice" else typeof(ins[1]).shape
    starts = ins[1:] if name == "dynamic_slice" else ins[2:]
    bad = np.bool_(False)
    for i, size, n in zip(starts, sizes, x.shape):
        bad = ew.bitwise_or(bad, ew.bitwise_or(ew.lt(i, ew.lit(i, 0)), ew.gt(i, ew.lit(i, n - size))))
    return bad


# ---- the transformation ----------------------------------------------------------------------------------------------------

def checkify(f: Callable, errors: Iterable[ErrorCategory] = user_checks) -> Callable:
    """Function returning (Error, f(...)); the checks in `errors` are made and the first failure is in the Error.

    errors: user_checks, nan_checks, div_checks, float_checks, index_checks, automatic_checks, all_checks, or a union."""
    collector = Collector(errors)

    @wraps(f)
    @api_boundary
    def checked(*args, **kwargs):
        leaves, in_tree = tree_flatten((args, kwargs))
        box: dict[str, Any] = {}

        def flat(*xs):
            a, k = in_tree.unflatten(xs)
            outs, box["tree"] = tree_flatten(f(*a, **k))
            return outs
        jaxpr, captured = stage(flat, [typeof(x) for x in leaves], getattr(f, "__name__", "f"))
        sites = tuple(collector.sites(jaxpr))
        outs, st = collector.run(jaxpr, [*captured, *leaves], blank(sites), 0, 0)
        return Error(st.failed, st.code, st.payload, sites), box["tree"].unflatten(outs)
    return checked


