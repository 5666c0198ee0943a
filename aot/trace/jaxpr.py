"""The jaxpr IR: variables, literals, equations, jaxprs, and their evaluation."""
from __future__ import annotations

from typing import Any, Callable, Iterable, Sequence

from aot.source import CALLER, Source, scope_of, set_current
from aot.trace.aval import ShapedArray


class Var:
    """A value inside a jaxpr, named only when printed."""
    __slots__ = ("aval",)

    def __init__(self, aval: ShapedArray):
        self.aval = aval

    def __repr__(self): return f"Var({self.aval.str_short()})"


class Literal:
    """A constant operand: a Python or numpy scalar, or a captured concrete array."""
    __slots__ = ("val", "aval")

    def __init__(self, val: Any, aval: ShapedArray):
        self.val, self.aval = val, aval

    def __repr__(self): return f"Literal({self.val})"


Atom = Var | Literal


class Eqn:
    """One equation: outvars = primitive[params] invars."""
    __slots__ = ("primitive", "invars", "outvars", "params", "source")

    def __init__(self, primitive, invars: list, outvars: list, params: dict, source=None):
        self.primitive, self.invars, self.outvars = primitive, invars, outvars
        self.params, self.source = params, source

    @property
    def effects(self) -> frozenset:
        return self.primitive.effects(**self.params)

    @property
    def source_info(self) -> Any:
        """The place, and the names of the scopes around it."""
        from aot.extend.source_info_util import SourceInfo, new_name_stack
        return SourceInfo(self.source, new_name_stack(scope_of(self.source)))

    def replace(self, invars: Any = None, outvars: Any = None, primitive: Any = None, params: Any = None, effects: Any = None,
                source_info: Any = None, ctx: Any = None) -> Eqn:
        """The same with other parts.  effects follow from the params, and ctx has no effect."""
        given, own = (primitive, invars, outvars, params, source_info), (getattr(self, k) for k in Eqn.__slots__)
        return Eqn(*(old if new is None else new for new, old in zip(given, own)))

    def __str__(self):
        from aot.trace.printing import eqn_text
        return eqn_text(self)

    __repr__ = __str__


class Jaxpr:
    """A typed list of equations.  Captured tracers are ordinary inputs; captured arrays are literals.

    composite: (name, attributes) where this is a library function that other formats know by a name; derived jaxprs have none.
    """
    __slots__ = ("invars", "eqns", "outvars", "debug_name", "composite", "_memo", "_effects", "__weakref__")
    consts: Sequence = ()
    constvars: Sequence = ()

    def __init__(self, invars: list, eqns: list, outvars: list, debug_name: str = ""):
        self.invars, self.eqns, self.outvars, self.debug_name = invars, eqns, outvars, debug_name
        self.composite: tuple[str, dict[str, Any]] | None = None
        self._memo: dict = {}
        self._effects: frozenset | None = None

    in_avals = property(lambda self: [v.aval for v in self.invars])
    out_avals = property(lambda self: [v.aval for v in self.outvars])
    jaxpr = property(lambda self: self)

    @property
    def debug_info(self) -> Any:
        """What the jaxpr was traced for, as far as it is known: the function, and not the names of its arguments."""
        from aot.extend.core import DebugInfo
        return DebugInfo("jit", self.debug_name, (None,) * len(self.invars))

    @property
    def effects(self) -> frozenset:
        if self._effects is None:
            self._effects = frozenset().union(*(e.effects for e in self.eqns))
        return self._effects

    def memo(self, key: Any, make: Callable) -> Any:
        """Derived forms (jvp, transpose, batched, ...) live exactly as long as the jaxpr they derive from.

        They serve all its callers: what is recorded meanwhile, and has no place in the jaxpr, has the place of the call."""
        found = self._memo.get(key)
        if found is None:
            before = set_current(CALLER)
            try:
                found = self._memo[key] = make()
            finally:
                set_current(before)
        return found

    def replace(self, *, debug_info: Any = None, effects: Any = None, **changes: Any) -> Jaxpr:
        """The same with other invars, eqns, outvars or debug_name.  effects are those of the equations, whatever is given."""
        if debug_info is not None:
            changes["debug_name"] = debug_info.func_src_info
        return Jaxpr(**{**{k: getattr(self, k) for k in ("invars", "eqns", "outvars", "debug_name")}, **changes})

    def placed(self, source: Source) -> Jaxpr:
        """With this place for equations that have that of the call."""
        if not source or all(e.source for e in self.eqns):
            return self
        return self.memo(("placed", source), lambda: Jaxpr(self.invars, [
            e if e.source else Eqn(e.primitive, e.invars, e.outvars, e.params, source) for e in self.eqns], self.outvars,
            self.debug_name))

    def __str__(self):
        from aot.trace.printing import jaxpr_text
        return jaxpr_text(self)

    __repr__ = __str__


class ClosedJaxpr:
    """A jaxpr whose first variables (`constvars`) are bound to `consts`: what `make_jaxpr` returns."""
    __slots__ = ("inner", "constvars", "consts")

    def __init__(self, jaxpr: Any, consts: Sequence, constvars: Sequence | None = None):
        self.inner, self.consts = getattr(jaxpr, "inner", jaxpr), list(consts)
        self.constvars = list(jaxpr.constvars if constvars is None else constvars)

    jaxpr = property(lambda self: self)
    invars = property(lambda self: self.inner.invars)
    outvars = property(lambda self: self.inner.outvars)
    eqns = property(lambda self: self.inner.eqns)
    in_avals = property(lambda self: self.inner.in_avals)
    out_avals = property(lambda self: self.inner.out_avals)
    debug_info = property(lambda self: self.inner.debug_info)

    @property
    def effects(self) -> set:
        from aot.debug._effects import shown
        return shown(e.effects for e in self.inner.eqns)

    literals = property(lambda self: self.consts)

    def replace(self, *, jaxpr: Any = None, consts: Sequence | None = None, constvars: Sequence | None = None,
                **changes: Any) -> ClosedJaxpr:
        """The same with another jaxpr, or other values of its constvars; or with other invars, eqns, outvars or constvars."""
        jaxpr = self if jaxpr is None else jaxpr
        inner = jaxpr.inner if isinstance(jaxpr, ClosedJaxpr) else jaxpr
        return ClosedJaxpr(inner.replace(**changes) if changes else inner, self.consts if consts is None else consts,
                           jaxpr.constvars if constvars is None else constvars)

    def without_consts(self) -> Jaxpr:
        """The same as a jaxpr in which the constants are literals."""
        if not self.constvars:
            return self.inner
        literals = {v: Literal(x, v.aval) for v, x in zip(self.constvars, self.consts)}
        return replaced(self.inner, self.invars, lambda x: literals.get(x, x) if type(x) is Var else x)

    def __str__(self):
        from aot.trace.printing import jaxpr_text
        return jaxpr_text(self)

    __repr__ = __str__


def subjaxprs(params: dict) -> Iterable[Jaxpr]:
    """The jaxprs among an equation's params (bodies, branches, ...)."""
    for v in params.values():
        if isinstance(v, Jaxpr):
            yield v
        elif isinstance(v, tuple):
            yield from (j for j in v if isinstance(j, Jaxpr))


def replaced(jaxpr: Jaxpr, invars: list, atom: Callable) -> Jaxpr:
    """The jaxpr with other inputs, and atom(x) for each operand x."""
    eqns = [Eqn(e.primitive, list(map(atom, e.invars)), e.outvars, e.params, e.source) for e in jaxpr.eqns]
    return Jaxpr(invars, eqns, list(map(atom, jaxpr.outvars)), jaxpr.debug_name)


def hoist_consts(jaxpr: Jaxpr, captured: Sequence = ()) -> ClosedJaxpr:
    """Captured tracers (the first inputs) and array literals of the outermost equations become constvars, as `make_jaxpr`
    shows them."""
    n = len(captured)
    seen: dict[int, tuple[Any, Var]] = {id(x): (x, v) for x, v in zip(captured, jaxpr.invars)}

    def atom(x):
        if type(x) is Literal and x.aval.physical.shape and not isinstance(x.val, (bool, int, float, complex)):
            return seen.setdefault(id(x.val), (x.val, Var(x.aval)))[1]
        return x
    return ClosedJaxpr(replaced(jaxpr, jaxpr.invars[n:], atom), [x for x, _ in seen.values()], [v for _, v in seen.values()])


def dce(jaxpr: Jaxpr, used_outputs: Sequence[bool] | None = None, keep_inputs: bool = True) -> tuple[Jaxpr, list[bool]]:
    """Drop equations (without effects) that no used output needs -> (jaxpr, which inputs are used)."""
    outs = [v for v, u in zip(jaxpr.outvars, used_outputs or [True] * len(jaxpr.outvars)) if u]
    live = {v for v in outs if type(v) is Var}
    eqns = []
    for e in reversed(jaxpr.eqns):
        needed = [v in live for v in e.outvars]
        if not any(needed) and not e.effects:
            continue
        e = e.primitive.dce(e, needed)
        live.update(v for v in e.invars if type(v) is Var)
        eqns.append(e)
    used = [v in live for v in jaxpr.invars]
    invars = jaxpr.invars if keep_inputs else [v for v, u in zip(jaxpr.invars, used) if u]
    return Jaxpr(invars, eqns[::-1], outs, jaxpr.debug_name), used


def lean(jaxpr: Jaxpr, always: Iterable[int] = ()) -> tuple[Jaxpr, tuple[int, ...] | None]:
    """What no result needs is left out, inputs too but those at the positions `always` -> (jaxpr, the positions of the inputs
    that are left; None: all)."""
    wanted = frozenset(always)

    def find():
        found, used = dce(jaxpr)
        kept = tuple(i for i, u in enumerate(used) if u or i in wanted)
        if len(kept) < len(used):
            return found.replace(invars=[jaxpr.invars[i] for i in kept]), kept
        same = len(found.eqns) == len(jaxpr.eqns) and all(a is b for a, b in zip(found.eqns, jaxpr.eqns))
        return jaxpr if same else found, None
    return jaxpr.memo(("lean", wanted), find)


def pick(values: Sequence, kept: tuple[int, ...] | None) -> Sequence:
    """Those at the positions that `lean` gave."""
    return values if kept is None else [values[i] for i in kept]
