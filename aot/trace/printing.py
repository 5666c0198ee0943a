"""Jaxprs as text: `{ lambda consts ; inputs. let equations in (outputs,) }`, laid out to 80 columns."""
from __future__ import annotations

from typing import Any, Iterator

import numpy as np

from aot.trace.jaxpr import ClosedJaxpr, Eqn, Jaxpr, Literal, Var

WIDTH = 80


class Names:
    """a, b, ..., z, ba, bb, ... in order of appearance."""

    def __init__(self, jaxpr: Any = None):
        self.names: dict[Var, str] = {}
        self.dropped = _dropped(jaxpr) if jaxpr is not None else frozenset()

    def __call__(self, v) -> str:
        if type(v) is Literal:
            return literal_text(v)
        found = self.names.get(v)
        if found is None:
            found = self.names[v] = _letters(len(self.names))
        return found

    def binder(self, v: Var) -> str:
        return f"{self(v)}:{v.aval.str_short()}"


def _letters(n: int) -> str:
    out = chr(97 + n % 26)
    while n >= 26:
        n //= 26
        out = chr(97 + n % 26) + out
    return out


def literal_text(x: Literal) -> str:
    if x.aval.physical.shape:
        return f"<{x.aval.str_short()}>"
    value = x.val if isinstance(x.val, (bool, int, float, complex)) else np.asarray(x.val).item()
    if isinstance(value, float) and x.aval.dtype == np.float32:
        value = float(np.float32(value))
    return str(value)


def jaxpr_text(jaxpr: Jaxpr | ClosedJaxpr) -> str:
    return "\n".join(_jaxpr_lines(jaxpr, Names(jaxpr), 0, 0))


def _dropped(jaxpr: Any) -> frozenset:
    """Results that nothing uses, of outermost equations that have a text of their own."""
    used = {x for e in jaxpr.eqns for x in e.invars if type(x) is Var} | {x for x in jaxpr.outvars if type(x) is Var}
    return frozenset(v for e in jaxpr.eqns if e.primitive.text for v in e.outvars if v not in used)


def eqn_text(e: Eqn) -> str:
    return "\n".join(_eqn_lines(e, Names(), 0))


def _jaxpr_lines(jaxpr: Any, names: Names, indent: int, used: int) -> list[str]:
    """Lines of a jaxpr; the first follows `used` columns of text, the rest are indented by `indent`."""
    consts = [names.binder(v) for v in jaxpr.constvars]
    head = "{ lambda " + " ".join(consts) + (" ; " if consts else "; ")
    ins = [names.binder(v) for v in jaxpr.invars]
    eqns = [_eqn_lines(e, names, indent + 4) for e in jaxpr.eqns]
    outs = [names(v) for v in jaxpr.outvars]
    tail = f"in ({', '.join(outs)}{',' if len(outs) == 1 else ''}) }}"
    flat = head + " ".join(ins) + ". let" + "".join(" " + line[0].strip() + ";" for line in eqns)
    flat = flat.rstrip(";") + " " + tail
    if len(eqns) <= 1 and all(len(line) == 1 for line in eqns) and used + len(flat) <= WIDTH:
        return [flat]
    lines = _fill(head, ins, ". let", indent + 4, used)
    for e in eqns:
        lines += e
    return [*lines, " " * (indent + 2) + tail]


def _fill(head: str, words: list[str], end: str, indent: int, used: int) -> list[str]:
    """head and words, broken where a variable's name (its type not counted) would pass WIDTH."""
    lines, line, at = [], head, used + len(head)
    for i, word in enumerate(words):
        text = word + (end if i == len(words) - 1 else "")
        if i and at + 1 + len(word.partition(":")[0]) > WIDTH:
            lines.append(line)
            line, at = " " * indent + text, indent + len(text)
        else:
            line += (" " if i else "") + text
            at += len(text) + (1 if i else 0)
    return [*lines, line + ("" if words else end.lstrip())]


def _eqn_lines(e: Eqn, names: Names, indent: int) -> list[str]:
    args = [names(x) for x in e.invars]
    outs = ["_" if v is None else "" if v in names.dropped else names.binder(v) for v in e.outvars]
    pad = " " * indent
    left = f"{' '.join(outs)} = {e.primitive.name}" if outs else e.primitive.name
    right = (" " + " ".join(args)) if args else ""
    if e.primitive.text is not None:
        return [pad + e.primitive.text(e, outs, *args)]
    params = list(e.primitive.shown(e.params).items())
    if not params:
        return [pad + left + right]
    nested = any(_holds_jaxpr(v) for _, v in params)
    flat = f"{pad}{left}[{' '.join(f'{k}={_value(v)}' for k, v in params if not nested)}]{right}"
    if not nested and len(flat) <= WIDTH:
        return [flat]
    lines = [f"{pad}{left}["]
    for k, v in params:
        lines += _param_lines(k, v, names, indent + 2)
    return [*lines, f"{pad}]{right}"]


def _param_lines(k: str, v: Any, names: Names, indent: int) -> Iterator[str]:
    pad = " " * indent
    if isinstance(v, (Jaxpr, ClosedJaxpr)):
        first, *rest = _jaxpr_lines(v, names, indent, indent + len(k) + 1)
        return iter([f"{pad}{k}={first}", *rest])
    if isinstance(v, tuple) and v and all(isinstance(j, Jaxpr) for j in v):
        lines = [f"{pad}{k}=("]
        for j in v:
            first, *rest = _jaxpr_lines(j, names, indent + 2, indent + 2)
            lines += [" " * (indent + 2) + first, *rest]
        return iter([*lines, f"{pad})"])
    return iter([f"{pad}{k}={_value(v)}"])


def _holds_jaxpr(v: Any) -> bool:
    return isinstance(v, (Jaxpr, ClosedJaxpr)) or isinstance(v, tuple) and any(map(_holds_jaxpr, v))


def _value(v: Any) -> str:
    if isinstance(v, np.dtype):
        return v.name
    if callable(v) and hasattr(v, "__name__"):
        return v.__name__
    return str(v)
