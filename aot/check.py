"""`aot check`: what in a function would surprise its author once it is compiled.

Two looks: at the source (calls with side effects, writes to globals, global random state) and at the jaxpr (large
captured constants, callbacks that no file format can hold, key reuse, derivatives that become NaN).  Each finding names a
line and says what to do.
"""
from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from aot import source
from aot.config import override
from aot.errors import KeyReuseError
from aot.trace import Eqn, Jaxpr, Literal, Var, subjaxprs


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

def equations(jaxpr: Jaxpr) -> Iterator[tuple[Jaxpr, Eqn]]:
    """Every equation, those of inner jaxprs included; jit calls are looked through."""
    from aot.ad_checkpoint import inline_calls
    jaxpr = inline_calls(jaxpr)
    for e in jaxpr.eqns:
        yield jaxpr, e
        for sub in subjaxprs(e.params):
            yield from equations(sub)


def check_jaxpr(jaxpr: Jaxpr) -> list[Finding]:
    """Large constants, callbacks, and NaN-prone derivatives."""
    found, seen = [], set()
    for inner, e in equations(jaxpr):
        place = source.where(e.source)
        for x in e.invars:
            if type(x) is Literal and id(x.val) not in seen and x.aval.size * x.aval.physical.dtype.itemsize >= LARGE:
                seen.add(id(x.val))
                found.append(Finding("large constant", place, f"captures a constant of type {x.aval.str_short()} "
                                     f"({x.aval.size * x.aval.physical.dtype.itemsize / 2**20:.1f} MiB)",
                                     "pass it as an argument, so that it can be swapped and is stored once"))
        if e.primitive.name == "callback":
            found.append(Finding("host callback", place, f"calls back into Python ({e.params['kind']}); an artifact "
                                 "cannot hold that", "compute it with aot.numpy, or outside of the function"))
        if e.primitive.name == "select_n":
            found += unsafe_where(inner, e)
    return found


#: primitives whose derivative is infinite or NaN somewhere, and where
SINGULAR = {"log": "at 0 and below", "log1p": "at -1 and below", "sqrt": "at 0 and below", "rsqrt": "at 0 and below",
            "div": "where the denominator is 0", "pow": "at 0 and below", "acos": "at -1 and 1", "asin": "at -1 and 1",
            "atanh": "at -1 and 1", "acosh": "at 1 and below"}


def unsafe_where(jaxpr: Jaxpr, select: Eqn) -> list[Finding]:
    """where(safe, log(x), 0): the value is fine, but the derivative of the branch not taken is NaN times 0 = NaN."""
    made = {v: e for e in jaxpr.eqns for v in e.outvars}
    found = []
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
        name = e.primitive.name
        found.append(Finding("nan derivative", source.where(e.source), f"{name} inside a where: its derivative is not finite "
                             f"{SINGULAR[name]}, and the gradient is NaN even where the other branch is chosen",
                             "make the operand safe too: x_safe = where(mask, x, 1), then where(mask, f(x_safe), other)"))
    return found


# ---- all together ----------------------------------------------------------------------------------------------------

def check(fun: Callable, args: Sequence[Any] = (), rules: Iterable[str] = ("source", "jaxpr", "keys"),
          traced_as: Callable | None = None) -> list[Finding]:
    """Every finding about fun.

    args: arrays or ShapeDtypeStructs that `traced_as` (fun with transforms; fun itself by default) is traced on."""
    from aot.dispatch import jit
    program = traced_as or fun
    found = check_source(fun) if "source" in rules else []
    if "jaxpr" in rules:
        found += check_jaxpr(jit(program).trace(*args).entry.jaxpr)
    if "keys" in rules:
        with override("debug_key_reuse", True):
            try:
                jit(program).trace(*args)
            except KeyReuseError as err:
                found.append(key_finding(str(err)))
    return list(dict.fromkeys(found))


def key_finding(text: str) -> Finding:
    message, _, fix = text.partition("\nTo fix this: ")
    first = message.splitlines()[0]
    return Finding("key reuse", first.rpartition(" at ")[2], first, fix)
