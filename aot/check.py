"""`aot check`: what in a function would surprise its author once it is compiled.

Two looks: at the source (calls with side effects, writes to globals, global random state) and at the jaxpr (large
captured constants, callbacks that no file format can hold, key reuse, arithmetic and derivatives that become infinite or
NaN).  Each finding names a line and says what to do.
"""
from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from aot import dtypes, source
from aot.config import override
from aot.errors import KeyReuseError
from aot.ranges import INF, Ranges
from aot.trace import Eqn, Jaxpr, Literal, Var, is_tracer, stage, subjaxprs
from aot.tree_util import tree_flatten, tree_leaves


class Finding(NamedTuple):
    """rule: a short name; place: file:line (function); message: what is there; fix: what to do."""
    rule: str
    place: str
    message: str
    fix: str


LARGE = 1 << 20         # bytes of a captured constant worth a word

#: called name -> (what it does, what to use instead)
CALLS = {
    "print": ("prints while tracing only, and tracers instead of values", "use aot.debug.print"),
    "input": ("reads from the terminal while tracing only", "pass the value as an argument"),
    "open": ("opens a file while tracing only", "read it outside and pass the data as an argument"),
    "next": ("takes an element of an iterator once, while tracing", "pass an array and index it, or use lax.scan"),
}
#: module -> (what its functions do, what to use instead)
_RANDOM = ("draws random numbers once, while tracing; every run gives the same", "use aot.random with a key argument")
MODULES = {
    "np.random": _RANDOM, "numpy.random": _RANDOM, "random": _RANDOM,
    "time": ("reads the clock once, while tracing", "measure outside of the function"),
    "datetime": ("reads the clock once, while tracing", "pass the time as an argument"),
    "os.environ": ("reads the environment once, while tracing", "read it outside and pass the value as a static argument"),
}
MUTATORS = frozenset(("append", "extend", "insert", "add", "update", "pop", "remove", "clear", "setdefault", "discard"))


# ---- the source ------------------------------------------------------------------------------------------------------

def check_source(fun: Callable) -> list[Finding]:
    """Side effects in the function's own text and in the functions of the same module that it calls."""
    found: list[Finding] = []
    seen: set[Any] = set()
    todo = [inspect.unwrap(fun)]
    while todo:
        f = todo.pop()
        if f in seen or not inspect.isfunction(f):
            continue
        seen.add(f)
        tree = syntax(f)
        if tree is None:
            continue
        found += _Visitor(f, tree).findings
        todo += [g for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
                 for g in [f.__globals__.get(n.func.id)] if getattr(g, "__module__", None) == f.__module__]
    return found


def syntax(f: Callable) -> Any:
    """The function's syntax tree with line numbers of its file; None without source."""
    try:
        lines, first = inspect.getsourcelines(f)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    return ast.increment_lineno(tree, first - 1)


def dotted(node: ast.AST) -> str:
    """a.b.c of an attribute chain, or ''."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


class _Visitor(ast.NodeVisitor):
    """Collects findings of one function."""

    def __init__(self, f: Callable, tree: ast.AST):
        self.f, self.findings = f, []
        self.file, self.name = source.relative(f.__code__.co_filename), f.__qualname__
        self.own = set(f.__code__.co_varnames)
        self.visit(tree)

    def note(self, node: ast.AST, rule: str, message: str, fix: str) -> None:
        self.findings.append(Finding(rule, f"{self.file}:{node.lineno} ({self.name})", message, fix))  # type: ignore[attr-defined]

    def visit_Global(self, node: ast.Global) -> None:
        self.note(node, "global write", f"writes the global {', '.join(node.names)} while tracing only",
                  "return the value instead")

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.note(node, "closure write", f"writes {', '.join(node.names)} of an enclosing function while tracing only",
                  "return the value instead")

    def visit_Call(self, node: ast.Call) -> None:
        name = dotted(node.func)
        if name in CALLS and name not in self.own:
            self.note(node, "side effect", f"{name}(...) {CALLS[name][0]}", CALLS[name][1])
        for module, (what, fix) in MODULES.items():
            if name.startswith(module + ".") and self.means(module):
                self.note(node, "side effect", f"{name}(...) {what}", fix)
                break
        if isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS and isinstance(node.func.value, ast.Name):
            self.mutation(node, node.func.value.id, node.func.attr)
        self.generic_visit(node)

    def means(self, module: str) -> bool:
        """Whether the first part of a dotted name is that module here (`random` may be aot.random)."""
        head = module.partition(".")[0]
        value = self.f.__globals__.get(head)
        return inspect.ismodule(value) and not value.__name__.startswith("aot")

    def mutation(self, node: ast.Call, name: str, how: str) -> None:
        if name in self.own:
            return
        value = self.f.__globals__.get(name)
        if isinstance(value, (list, dict, set)) or name in self.f.__code__.co_freevars:
            self.note(node, "global write", f"{name}.{how}(...) changes a value outside of the function, while tracing only",
                      "return the value instead")


# ---- the jaxpr -------------------------------------------------------------------------------------------------------

def bodies(jaxpr: Jaxpr, has_rule: bool = False) -> Iterator[tuple[Jaxpr, bool]]:
    """The jaxpr and every one inside of it, and whether a rule of the user's (custom_jvp, ...) says its derivative; jit calls
    are looked through, and so are primitives that libraries lower to other operations.  Equations of samplers have no place:
    what they compute is no concern of the user's."""
    from aot.ad_checkpoint import inline_calls
    from aot.interpreters import mlir
    jaxpr = inline_calls(jaxpr, is_sampler)
    yield jaxpr, has_rule
    for e in jaxpr.eqns:
        for inner in subjaxprs(e.params):
            yield from bodies(inner.placed(e.source), has_rule or e.primitive.name in ("custom_jvp_call", "custom_vjp_call"))
        if (inner := mlir.traced(e)) is not None:
            yield from bodies(inner.placed(e.source), True)


def is_sampler(call: Eqn) -> bool:
    """Whether this is a call of a function of the library that takes a random key."""
    return (any(not isinstance(x.aval.dtype, np.dtype) for x in call.invars)
            and not any(e.source for e in call.params["jaxpr"].eqns))


def check_jaxpr(jaxpr: Jaxpr) -> list[Finding]:
    """Large constants and callbacks."""
    found, seen = [], set()
    for e in (e for inner, _ in bodies(jaxpr) for e in inner.eqns):
        place = source.where(e.source)
        for x in e.invars:
            if type(x) is Literal and id(x.val) not in seen and x.aval.size * x.aval.physical.dtype.itemsize >= LARGE:
                seen.add(id(x.val))
                found.append(Finding("large constant", place, f"captures a constant of type {x.aval.str_short()} "
                                     f"({x.aval.size * x.aval.physical.dtype.itemsize / 2**20:.1f} MiB)",
                                     "pass it as an argument, so that it can be swapped and is stored once"))
    return found + [Finding("host callback", place, f"calls back into Python ({kind}); an artifact cannot hold that",
                            "compute it with aot.numpy, or outside of the function") for place, kind in callbacks(jaxpr)]


def callbacks(jaxpr: Jaxpr) -> list[tuple[str, str]]:
    """The place and the kind of every call back into Python."""
    return [(source.where(e.source), e.params["kind"])
            for inner, _ in bodies(jaxpr) for e in inner.eqns if e.primitive.name == "callback"]


# ---- numbers: what becomes infinite or NaN ---------------------------------------------------------------------------

def check_numbers(jaxpr: Jaxpr) -> list[Finding]:
    """Operations that are not finite, or whose derivatives are not, for numbers that they may well get."""
    return [f for inner, has_rule in bodies(jaxpr) if not has_rule for f in check_body(inner)]


def check_body(jaxpr: Jaxpr) -> list[Finding]:
    """`check_numbers` of one jaxpr."""
    found: dict[str, Finding] = {}          # one for each place
    ranges = Ranges(jaxpr)
    for e in (e for e in jaxpr.eqns if e.source):
        if e.primitive.name == "select_n":
            for f in unsafe_where(ranges, e):
                found.setdefault(f.place, f)
    for e in (e for e in jaxpr.eqns if e.source):
        dtype = e.outvars[0].aval.dtype if e.outvars else None
        row = next((r for r in NUMBERS if e.primitive.name in r.primitives and r.applies(ranges, e)), None) if (
            isinstance(dtype, np.dtype) and dtypes.issubdtype(dtype, np.floating)) else None
        if row is not None and (row.rule != "nan derivative" or e.outvars[0] in ranges.differentiable):
            place = source.where(e.source)
            found.setdefault(place, Finding(row.rule, place, row.message, row.fix))
    return list(found.values())


class Numbers(NamedTuple):
    """One pattern: the operations it is about, a test of ranges and equation, and what to say."""
    rule: str
    primitives: tuple[str, ...]
    applies: Callable[[Ranges, Eqn], bool]
    message: str
    fix: str


def reaches(r: Ranges, x: Any, point: float) -> bool:
    """Whether x is known to go down to this point or below, and no `where` keeps it away (of an argument nothing is known)."""
    low = r.of(x)[0]
    return -INF < low <= point and not is_made_by(r, x, "select_n")


def unguarded(r: Ranges, x: Any) -> bool:
    """Whether x may be 0 or less for all that is known."""
    return r.of(x)[0] <= 0 and not is_made_by(r, x, "select_n")


def is_made_by(r: Ranges, x: Any, *names: str) -> bool:
    e = r.source(x)
    if e is not None and e.primitive.name == "select_n" and any(
            type(v) is Literal and not v.aval.shape and v.val != v.val for v in e.invars[1:]):
        return False            # where(n > 0, ..., nan), as in var: nobody's guard
    return e is not None and e.primitive.name in names


def is_sum(r: Ranges, x: Any) -> bool:
    """A sum that may be 0, or a mean."""
    e = r.source(x)
    if e is not None and e.primitive.name in ("div", "mul") and type(e.invars[1]) is Literal:
        e = r.source(e.invars[0])
    return e is not None and e.primitive.name == "reduce_sum" and r.of(e.outvars[0])[0] <= 0


def is_sum_of_exp(r: Ranges, x: Any) -> bool:
    e = r.source(x)
    return e is not None and e.primitive.name == "reduce_sum" and is_made_by(r, e.invars[0], "exp")


def overflows(r: Ranges, x: Any) -> bool:
    """Whether x is exp, or a sum of exp, of something without a bound."""
    e = r.source(x)
    if e is not None and e.primitive.name == "reduce_sum":
        e = r.source(e.invars[0])
    return e is not None and e.primitive.name == "exp" and r.of(e.outvars[0])[1] == INF


def is_softmax(r: Ranges, x: Any) -> bool:
    e = r.source(x)
    return e is not None and e.primitive.name == "div" and is_made_by(r, e.invars[0], "exp") and is_sum_of_exp(r, e.invars[1])


def squared(r: Ranges, e: Eqn | None) -> Any:
    """v where the equation is v * v, else None."""
    if e is not None and (e.primitive.name == "square" or e.primitive.name == "integer_pow" and e.params["y"] == 2
                          or e.primitive.name == "mul" and e.invars[0] is e.invars[1]):
        return e.invars[0]
    return None


def mean_of(r: Ranges, x: Any) -> Any:
    """v where x is the mean of v, else None."""
    e = r.source(x)
    if e is None or e.primitive.name not in ("div", "mul") or type(e.invars[1]) is not Literal:
        return None
    e = r.source(e.invars[0])
    return e.invars[0] if e is not None and e.primitive.name == "reduce_sum" else None


def is_variance(r: Ranges, e: Eqn) -> bool:
    """mean(x * x) - mean(x) ** 2, without max(..., 0) around it."""
    squares, mean = mean_of(r, e.invars[0]), squared(r, r.source(e.invars[1]))
    return (squares is not None and mean is not None and mean_of(r, mean) is not None
            and squared(r, r.source(squares)) is not None
            and all(u.primitive.name != "max" for u in r.users.get(e.outvars[0], ())))


def is_fraction(x: Any) -> bool:
    return type(x) is Literal and x.aval.size == 1 and 0 < float(np.asarray(x.val).reshape(())) < 1


NUMBERS = (
    Numbers("overflow", ("log",), lambda r, e: is_sum_of_exp(r, e.invars[0]) and overflows(r, e.invars[0]),
            "log(sum(exp(x))) is infinite as soon as one x is above 88 (float32)", "use aot.nn.logsumexp(x)"),
    Numbers("overflow", ("div",), lambda r, e: is_sum_of_exp(r, e.invars[1]) and overflows(r, e.invars[1]) and overflows(
        r, e.invars[0]), "exp(x) / sum(exp(x)) is NaN as soon as one x is above 88 (float32)", "use aot.nn.softmax(x)"),
    Numbers("log of zero", ("log",), lambda r, e: is_softmax(r, e.invars[0]),
            "log of a softmax is -inf where the softmax underflows to 0, and its derivative NaN", "use aot.nn.log_softmax(x)"),
    Numbers("log of zero", ("log",), lambda r, e: is_made_by(r, e.invars[0], "logistic"),
            "log of a sigmoid is -inf where the sigmoid underflows to 0, and its derivative NaN", "use aot.nn.log_sigmoid(x)"),
    Numbers("log of zero", ("log",), lambda r, e: reaches(r, e.invars[0], 0),
            "log of a value that may be 0 or negative: the result is -inf or NaN, its derivative infinite",
            "keep the value away from 0: log(maximum(x, 1e-12)), or log(x + 1e-12) where x is not negative; for log(1 - p) of "
            "a sigmoid p use aot.nn.log_sigmoid(-x)"),
    Numbers("log of zero", ("log1p",), lambda r, e: reaches(r, e.invars[0], -1),
            "log1p of a value that may be -1 or less: the result is -inf or NaN, its derivative infinite",
            "keep the value above -1: log1p(maximum(x, -1 + 1e-6)); for log1p(-p) of a sigmoid p use aot.nn.log_sigmoid(-x)"),
    Numbers("nan derivative", ("sqrt", "rsqrt"), lambda r, e: reaches(r, e.invars[0], 0),
            "the root of a value that may be 0, as in a norm, a distance or a std: its derivative is infinite there, and NaN "
            "after multiplication by 0", "add a small number under the root, sqrt(x + 1e-12), or use where twice: "
            "where(x > 0, sqrt(where(x > 0, x, 1)), 0)"),
    Numbers("nan derivative", ("pow",), lambda r, e: is_fraction(e.invars[1]) and unguarded(r, e.invars[0]),
            "a fractional power of a value that may be 0 or negative: the derivative is infinite at 0, and negative values "
            "give NaN", "keep the base above 0: maximum(x, 1e-12) ** 0.5"),
    Numbers("nan derivative", ("pow",), lambda r, e: type(e.invars[1]) is not Literal and unguarded(r, e.invars[0]),
            "a power with a computed exponent, whose derivative takes the log of the base: infinite at 0, NaN below",
            "keep the base above 0: maximum(x, 1e-12) ** y, or write exp(y * log(x)) with a safe log"),
    Numbers("nan derivative", ("atan2",), lambda r, e: all(r.of(x)[0] <= 0 <= r.of(x)[1] and not is_made_by(
        r, x, "select_n", "add") for x in e.invars), "arctan2(y, x) has derivative NaN where both are 0",
            "make one of them safe: arctan2(y, where((x == 0) & (y == 0), 1, x))"),
    Numbers("division by zero", ("div",), lambda r, e: not is_made_by(r, e.invars[1], "select_n") and (
        reaches(r, e.invars[1], 0) and r.of(e.invars[1])[1] >= 0 or is_sum(r, e.invars[1])),
            "division by a value that may be 0, such as a sum, a count or a norm: the result is infinite or NaN",
            "keep the denominator away from 0: x / maximum(total, 1e-12), or x / (total + 1e-12) where it is not negative"),
    Numbers("cancellation", ("sub",), is_variance,
            "mean(x * x) - mean(x) ** 2 loses all digits where the mean is large, and may be negative", "use x.var()"),
)


#: primitives whose derivative is infinite or NaN somewhere: where, and above which number it is not
SINGULAR = {"log": ("at 0 and below", 0), "log1p": ("at -1 and below", -1), "sqrt": ("at 0 and below", 0),
            "rsqrt": ("at 0 and below", 0), "div": ("where the denominator is 0", 0), "pow": ("at 0 and below", 0),
            "acos": ("at -1 and 1", 1), "asin": ("at -1 and 1", 1), "atanh": ("at -1 and 1", 1), "acosh": ("at 1 and below", 1)}


def unsafe_where(ranges: Ranges, select: Eqn) -> list[Finding]:
    """where(safe, log(x), 0): the value is fine, but the derivative of the branch not taken is NaN times 0 = NaN."""
    made, found = ranges.made, []
    for case in select.invars[1:]:
        e = made.get(case) if type(case) is Var else None
        while e is not None and e.primitive.name in ("mul", "add", "sub", "neg", "convert_element_type", "broadcast_in_dim"):
            nexts = [made.get(x) for x in e.invars if type(x) is Var]
            e = next((n for n in nexts if n is not None), None)
        if e is None or e.primitive.name not in SINGULAR:
            continue
        operand = e.invars[-1 if e.primitive.name == "div" else 0]
        guard = made.get(operand) if type(operand) is Var else None
        if type(operand) is Literal or guard is not None and guard.primitive.name in ("select_n", "max", "clamp", "add"):
            continue        # the operand itself is kept away from the singularity
        name, (low, high) = e.primitive.name, ranges.of(operand)
        singular, harmless_above = SINGULAR[name]
        if low > harmless_above or name == "div" and high < 0:
            continue
        found.append(Finding("nan derivative", source.where(e.source), f"{name} inside a where: its derivative is not finite "
                             f"{singular}, and the gradient is NaN even where the other branch is chosen",
                             "make the operand safe too: x_safe = where(mask, x, 1), then where(mask, f(x_safe), other)"))
    return found


# ---- all together ----------------------------------------------------------------------------------------------------

def check(fun: Callable, args: Sequence[Any] = (), rules: Iterable[str] = ("source", "jaxpr", "keys"),
          transform: Callable[[Callable], Callable] = lambda fun: fun) -> list[Finding]:
    """Every finding about fun.

    args: arrays or ShapeDtypeStructs that transform(fun), for instance its gradient, is traced on."""
    from aot.dispatch import jit
    found = check_source(fun) if "source" in rules else []
    if "jaxpr" in rules:
        own: list[Jaxpr] = []
        found += check_jaxpr(jit(transform(staging(fun, own))).trace(*args).entry.jaxpr)
        for jaxpr in own:
            found += check_numbers(jaxpr)
    if "keys" in rules:
        with override("debug_key_reuse", True):
            try:
                jit(transform(fun)).trace(*args)
            except KeyReuseError as err:
                found.append(key_finding(str(err)))
    return list(dict.fromkeys(found))


def staging(fun: Callable, found: list[Jaxpr]) -> Callable:
    """fun, whose own jaxpr is added to `found` at each call: what the user wrote, without what derivatives add."""
    @functools.wraps(fun)
    def staged(*args, **kwargs):
        leaves, tree = tree_flatten((args, kwargs))
        traced = {i: x for i, x in enumerate(leaves) if is_tracer(x)}

        def flat(*xs):
            values = dict(zip(traced, xs))
            a, k = tree.unflatten([values.get(i, x) for i, x in enumerate(leaves)])
            return tree_leaves(fun(*a, **k))
        found.append(stage(flat, [x.aval for x in traced.values()])[0])
        return fun(*args, **kwargs)
    return staged


def key_finding(text: str) -> Finding:
    message, _, fix = text.partition("\nTo fix this: ")
    first = message.splitlines()[0]
    return Finding("key reuse", first.rpartition(" at ")[2], first, fix)
