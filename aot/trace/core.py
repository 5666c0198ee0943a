"""Primitives, tracers and the current trace.  Everything else is a client of `bind`."""
from __future__ import annotations

import gc
import threading
from contextlib import contextmanager
from typing import Any, Sequence

import numpy as np

from aot import errors, source
from aot.array_methods import ArrayMethods
from aot.config import gate
from aot.source import recorded_frame
from aot.trace.aval import ShapedArray, typeof
from aot.trace.jaxpr import ClosedJaxpr, Eqn, Jaxpr, Literal, Var, replaced
from aot.trace.refs import AbstractRef, Ref, refuse_as_array, whole


class Primitive:
    """One operation and all of its rules.  Arrays are positional, metadata is keyword, rules return lists.

    infer(*avals, **params)                -> output avals
    lower(e, ins, outs, *xs, **params)     -> names of results; e is the Emitter, ins/outs avals, xs operand names
    jvp(primals, tangents, **params)       -> (outputs, output tangents); a tangent may be a symbolic `Zero`
    linearize(primals, tangents, **params) -> the same, with primal and tangent work bound separately (only for
                                              primitives that hold jaxprs; the jvp rules of all others do so anyway)
    transpose(cts, *args, **params)        -> a cotangent or None for each argument; linear arguments are `Linear`
    discharge(args, **params)              -> outputs; references among args are `Cell`s, whose values it reads and sets
    vmap(axis, args, dims, **params)       -> (outputs, output dims); axis has .size and .name
    """
    name: str = "?"
    nary = False        # elementwise: rank-0 operands broadcast against the others
    linear = False      # a rule family flag used by printing and checks
    holds = False       # jaxprs among its params
    recomputes = False  # its derivative runs the jaxpr that it holds again
    makes_ref = False   # a new reference
    multiple_results = call_primitive = map_primitive = False       # for those who evaluate jaxprs themselves: see `bind`

    def infer(self, *avals: ShapedArray, **params) -> list[ShapedArray]: raise self.missing("infer")
    def lower(self, e, ins, outs, *xs, **params) -> list[str]: raise self.missing("lower")
    def jvp(self, primals, tangents, **params) -> tuple[list, list]: raise self.missing("jvp")
    def transpose(self, cts, *args, **params) -> list: raise self.missing("transpose")
    def vmap(self, axis, args, dims, **params) -> tuple[list, list]: raise self.missing("vmap")

    def discharge(self, args, **params) -> list:
        from aot.transforms.discharge import refuse_cells
        refuse_cells(self, args)
        return self.rebind(args, params)

    linearize: Any = None
    text: Any = None        # text(eqn, names of results, *names of operands) -> how jaxprs show it
    evaluate: Any = None    # evaluate(args, params) -> results, where concrete values need more than the lowering
    known: Any = None       # known(args, params) -> results, `Linear` where they depend on `Linear` args, if some do not
    transposes_zeros = False    # True: `transpose` is also asked where all cotangents are Zero
    batch_consts = False    # True: `vmap` is also asked when no operand is batched (collectives, axis_index)

    def effects(self, **params) -> frozenset: return frozenset()
    def dce(self, eqn: Eqn, needed: list[bool]) -> Eqn: return eqn
    def uses_axis(self, name: Any, params: dict) -> bool: return False
    def shown(self, params: dict) -> dict: return dict(sorted(params.items()))      # what printing shows, in order
    def rebind(self, args, params) -> list: return state.trace.process(self, args, params)

    def bind(self, *args, **params) -> Any:
        """An equation evaluated: the list of its results with multiple_results, else its one result."""
        outs = self.rebind(args, {k: v.without_consts() if type(v) is ClosedJaxpr else v for k, v in params.items()})
        return outs if self.multiple_results else outs[0]

    def get_bind_params(self, params: dict) -> dict: return params

    def __repr__(self): return self.name

    def missing(self, rule: str) -> Exception:
        return NotImplementedError(f"`{self.name}` has no {rule} rule; hint: add a `{rule}` method to class "
                                   f"{type(self).__name__} in {type(self).__module__.replace('.', '/')}.py")


# ---- the current trace -------------------------------------------------------------------------------------------

class Trace:
    """What happens to a primitive.  Rules run with `parent` current."""
    parent: Any = None          # the trace that rules run under; None for the base
    tag: Any = None             # shared by traces that accept each other's tracers
    folds = False               # constants stay known under it
    main = property(lambda self: self.tag or self)

    def process(self, prim: Primitive, args: Sequence, params: dict) -> list:
        raise NotImplementedError

    def custom_jvp(self, call, args) -> list: raise NotImplementedError
    def custom_vjp(self, call, args) -> list: raise NotImplementedError


class _State(threading.local):
    trace: Any = None           # set to the eval trace on first use, see below
    axes: dict = {}             # axis name -> size, for collectives under vmap and shard_map
    mesh: Any = None            # of the innermost `with mesh:`
    mesh_read: bool = False     # whether anything asked for it; set to False by those who want to know

    def __init__(self):
        self.trace, self.axes = base_trace, {}


class _LazyEval(Trace):
    """The bottom trace: runs each primitive through XLA.  The evaluator is imported by the first eager operation."""

    def process(self, prim, args, params):
        from aot.compile.eager import evaluate
        self.process = evaluate
        return evaluate(prim, args, params)

    def custom_jvp(self, call, args): return call.fun(*args)
    def custom_vjp(self, call, args): return call.fun(*args)


base_trace = _LazyEval()
state = _State()
Ref.owner = base_trace


@contextmanager
def tracing(trace: Trace):
    before = state.trace
    state.trace = trace
    gate.close()
    try:
        yield trace
    finally:
        gate.open()
        state.trace = before


@contextmanager
def axis_env(name, size: int):
    """Bind an axis name for collectives while tracing."""
    before = state.axes
    if name is not None:
        state.axes = {**before, name: size}
    try:
        yield
    finally:
        state.axes = before


def current() -> Trace:
    return state.trace


def bind(prim: Primitive, *args, **params) -> list:
    """Run prim in the current trace -> list of results."""
    return state.trace.process(prim, args, params)


def bind1(prim: Primitive, *args, **params) -> Any:
    return state.trace.process(prim, args, params)[0]


def check_leak(trace: Any, what: str) -> None:
    """trace: a weak reference to a finished trace, which only tracers can keep alive."""
    gc.collect()
    if trace() is not None:
        held = [x for x in gc.get_referrers(trace()) if isinstance(x, Tracer)]
        raise Exception(f"Leaked {held[0] if held else 'a tracer'} of {what}: it is still referred to after the function was "
                        "traced. hint: return it instead of keeping it in a global, an attribute or a closure")


# ---- tracers -----------------------------------------------------------------------------------------------------

class Tracer(ArrayMethods):
    """Stands for an array while a function is traced."""
    __slots__ = ("owner", "aval", "__weakref__")
    __array_priority__ = 1000
    owner: Trace
    aval: ShapedArray

    shape = property(lambda self: self.aval.shape)  # pyright: ignore
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: len(self.aval.shape))
    size = property(lambda self: self.aval.size)
    weak_type = property(lambda self: self.aval.weak_type)
    _trace = property(lambda self: self.owner)
    __hash__ = None  # type: ignore[assignment]

    # Of a reference these are the operations of references.
    def __getitem__(self, index: Any) -> Any:
        return whole(self)[index] if type(self.aval) is AbstractRef else ArrayMethods.__getitem__(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        (whole(self) if type(self.aval) is AbstractRef else super()).__setitem__(index, value)

    def addupdate(self, x: Any, idx: Any = ()) -> None: whole(self).addupdate(x, idx)
    at = property(lambda self: whole(self).at if type(self.aval) is AbstractRef else super().at)  # pyright: ignore

    def concrete(self) -> Any:
        """The concrete value under this tracer, or None."""
        return None

    def __bool__(self):
        v = self._concrete_or(errors.TracerBoolConversionError)
        return bool(v)

    def __int__(self): return int(self._concrete_or(errors.ConcretizationTypeError, "int"))
    # Conversions that keep the value but lose its derivative fail even where the value is known.
    def __float__(self): raise errors.ConcretizationTypeError(self, "float")
    def __complex__(self): raise errors.ConcretizationTypeError(self, "complex")
    def __index__(self): return self._concrete_or(errors.TracerIntegerConversionError).__index__()

    def __array__(self, *args, **kwargs): raise errors.TracerArrayConversionError(self)
    def __reduce__(self): raise errors.ConcretizationTypeError(self, "pickle")
    def __copy__(self): return self
    def __deepcopy__(self, memo): return self
    def tolist(self): raise errors.ConcretizationTypeError(self, "tolist")

    def item(self, *args):
        return np.asarray(self._concrete_or(errors.ConcretizationTypeError, "item")).item(*args)

    def block_until_ready(self): return self
    def copy_to_host_async(self): return None

    def _concrete_or(self, error, *context):
        v = self.concrete()
        if v is None:
            raise error(self, *context)
        return v

    def __repr__(self):
        name = type(self.owner).__name__
        name = {"StageTrace": "DynamicJaxprTrace"}.get(name, name)
        return f"Traced<{self.aval!r}>with<{name}>"


def is_tracer(x: Any) -> bool:
    return isinstance(x, Tracer)


def is_live(trace: Trace) -> bool:
    t: Trace | None = state.trace
    while t is not None:
        if t is trace or t.tag is trace.tag is not None:
            return True
        t = t.parent
    return False


def check_live(x: Any) -> None:
    """A tracer may only be used while its transformation runs."""
    if not is_live(x.owner):
        raise errors.UnexpectedTracerError(x)


def concrete_or_error(force, val, context: str = ""):
    """val as a concrete value (through force(val) when given), or ConcretizationTypeError with the context."""
    if isinstance(val, Tracer):
        known = val.concrete()
        if known is None:
            raise errors.ConcretizationTypeError(val, context)
        val = known
    return val if force is None else force(val)


# ---- staging: record equations -----------------------------------------------------------------------------------

class StageTracer(Tracer):
    __slots__ = ("variable",)

    def __init__(self, trace, var):
        self.owner, self.variable, self.aval = trace, var, var.aval

    def origin(self) -> str:
        """Which arguments of the traced function this value depends on, for error messages."""
        names = self.owner.input_names() if self.owner.input_names is not None else {}
        depends, seen = [], {self.variable}
        for e in reversed(self.owner.eqns):
            if any(v in seen for v in e.outvars):
                seen.update(v for v in e.invars if type(v) is Var)
        depends = [name for v, name in names.items() if v in seen]
        if not depends:
            return ""
        what = f"the argument {depends[0]}" if len(depends) == 1 else "the arguments " + ", ".join(depends)
        return f"{'' if self.variable in names else 'computed from '}{what} of {self.owner.function}"


class StageTrace(Trace):
    """Records equations.  A tracer of an outer trace becomes an extra input; a concrete array becomes a literal."""

    def __init__(self, parent: Trace | None = None):
        self.parent = state.trace if parent is None else parent
        self.eqns: list[Eqn] = []
        self.captured: dict[int, tuple[Any, Var]] = {}
        self.literals: dict[int, Literal] = {}
        self.input_names: Any = None      # when called: {input variable: name of the argument}
        self.function = ""

    def new_input(self, aval: ShapedArray) -> StageTracer:
        return StageTracer(self, Var(aval))

    def atom(self, x: Any) -> Var | Literal:
        """The operand that x is in this jaxpr."""
        if type(x) is StageTracer and x.owner is self:
            return x.variable
        if type(x) is StageTracer and type(x.variable) is Literal:
            return self.atom(x.variable.val)
        if isinstance(x, Tracer) or type(x) is Ref:
            found = self.captured.get(id(x))
            if found is None:
                check_live(x)
                found = self.captured[id(x)] = (x, Var(typeof(x)))
            return found[1]
        if isinstance(x, (bool, int, float, complex)):
            return Literal(x, typeof(x))
        found = self.literals.get(id(x))
        if found is None:
            if not isinstance(x, ArrayMethods) and hasattr(x, "__jax_array__"):
                return self.atom(x.__jax_array__())
            aval = typeof(x)
            value = np.asarray(x, aval.dtype) if isinstance(x, (np.ndarray, np.generic)) else x
            found = self.literals[id(x)] = Literal(value, aval)
            if value is not x:
                self.literals[id(value)] = found
                self.captured_refs = [*getattr(self, "captured_refs", ()), x]  # keeps id(x) from being reused
        return found

    def process(self, prim, args, params):
        atoms = [x.variable if type(x) is StageTracer and x.owner is self else self.atom(x) for x in args]
        avals = prim.infer(*[a.aval for a in atoms], **params)
        for a in avals:
            if type(a) is AbstractRef and not prim.makes_ref:
                refuse_as_array(a, f"passed to `{prim.name}`, which takes arrays")
        outs = [StageTracer(self, Var(a)) for a in avals]
        self.eqns.append(Eqn(prim, atoms, [o.variable for o in outs], params, recorded_frame()))
        return outs

    def close(self, ins: Sequence[StageTracer], outs: Sequence, name: str = "") -> tuple[Jaxpr, list]:
        """-> (jaxpr taking the captured tracers first, the captured tracers)."""
        outvars = [self.atom(o) for o in outs]
        captured = [x for x, _ in self.captured.values()]
        return Jaxpr([v for _, v in self.captured.values()] + [i.variable for i in ins], self.eqns, outvars, name), captured

    def custom_jvp(self, call, args): return call.stage(self, args)
    def custom_vjp(self, call, args): return call.stage(self, args)


def staged(x: Any) -> Any:
    """A constant as a value of the function that is being staged, if any: Python cannot ask for it."""
    trace: Trace | None = state.trace
    while trace is not None and type(trace) is not StageTrace:
        trace = None if trace.folds else trace.parent
    return x if trace is None else StageTracer(trace, trace.atom(x))


def stage(f, avals: Sequence[ShapedArray], name: str = "", finish: Any = None) -> tuple[Jaxpr, list]:
    """Trace f on flat avals; f returns a flat list -> (jaxpr, captured tracers); the jaxpr takes those first.

    finish(trace, inputs) is called at the end, where given."""
    trace = StageTrace()
    with tracing(trace), source.scope(None):
        ins = [trace.new_input(a) for a in avals]
        closed = trace.close(ins, f(*ins), name)
    if finish is not None:
        finish(trace, ins)
    return closed


def stage_closed(f, avals: Sequence[ShapedArray], name: str = "") -> Jaxpr:
    """`stage` for forms derived from a jaxpr.  What a user's derivative rule closes over stays inside, as literals that are
    tracers, until a primitive takes the jaxpr (see `Holder.bind`)."""
    jaxpr, captured = stage(f, avals, name)
    if not captured:
        return jaxpr
    literals = {v: Literal(x, x.aval) for v, x in zip(jaxpr.invars, captured)}
    return replaced(jaxpr, jaxpr.invars[len(captured):], lambda x: literals.get(x, x) if type(x) is Var else x)


def captured_by(jaxpr: Jaxpr) -> list[Tracer]:
    """The tracers that a derived jaxpr holds as literals."""
    def find():
        atoms = [*(x for e in jaxpr.eqns for x in e.invars), *jaxpr.outvars]
        return list({id(x.val): x.val for x in atoms if type(x) is Literal and isinstance(x.val, (Tracer, Ref))}.values())
    return jaxpr.memo("captured", find)


def opened(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with the tracers that it holds as leading inputs."""
    def make():
        inputs = {id(x): Var(x.aval) for x in captured_by(jaxpr)}
        return replaced(jaxpr, [*inputs.values(), *jaxpr.invars],
                         lambda x: inputs.get(id(x.val), x) if type(x) is Literal else x)
    return jaxpr.memo("opened", make)


def eval_jaxpr(jaxpr, args: Sequence) -> list:
    """Run the equations in the current trace, under their own source locations."""
    env = dict(zip(jaxpr.invars, args, strict=True))
    env.update(zip(jaxpr.constvars, jaxpr.consts))
    with source.replaying(None) as outer:
        for e in jaxpr.eqns:
            source.set_current(e.source or outer)
            ins = [x.val if type(x) is Literal else env[x] for x in e.invars]
            env.update(zip(e.outvars, e.primitive.rebind(ins, e.params)))
    return [x.val if type(x) is Literal else env[x] for x in jaxpr.outvars]
