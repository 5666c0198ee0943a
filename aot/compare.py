"""Comparing two artifacts, for `aot diff`."""
from __future__ import annotations

import difflib
from typing import Any

import numpy as np

import aot_runtime

Row = dict[str, Any]


def diff(a: str, b: str, program: bool = False) -> list[Row]:
    """[{"function", "what", "change"}]: signatures, programs, weights, recorded results, executables, tools.

    program: rows of programs also have "lines", a unified diff of the StableHLO text.
    """
    x, y = aot_runtime.load(a), aot_runtime.load(b)
    rows: list[Row] = []
    for name in {**x.manifest["functions"], **y.manifest["functions"]}:
        if name in x and name in y:
            rows += _functions(x, y, name, program)
        else:
            rows.append(_row(name, "function", f"only in {a if name in x else b}"))
    rows += _weights(x.weights(), y.weights())
    rows += _fields("", "tool", x.manifest["toolchain"], y.manifest["toolchain"])
    return rows


def _row(function: str, what: str, change: str, **more: Any) -> Row:
    return {"function": function, "what": what, "change": change, **more}


def _fields(function: str, what: str, a: dict, b: dict) -> list[Row]:
    return [_row(function, f"{what} {k}", f"{a.get(k, 'none')} -> {b.get(k, 'none')}") for k in sorted({**a, **b})
            if a.get(k) != b.get(k)]


def _functions(x: Any, y: Any, name: str, program: bool) -> list[Row]:
    a, b = x.manifest["functions"][name], y.manifest["functions"][name]
    rows = []
    if x.signature(name) != y.signature(name):
        rows.append(_row(name, "signature", f"{x.signature(name)} -> {y.signature(name)}"))
    for key in ("inputs", "outputs"):
        rows += _fields(name, key[:-1], _types(a[key]), _types(b[key]))
    rows += _fields(name, "static", a["static"], b["static"]) + _fields(name, "flag", a["xla_flags"], b["xla_flags"])
    rows += _programs(x, y, name, program)
    rows += _fields(name, "target", _executables(a), _executables(b))
    rows += _results(name, x.golden(name), y.golden(name))
    return rows


def _types(entries: list[dict]) -> dict[str, str]:
    return {e["name"]: aot_runtime.short(e["dtype"], e["shape"]) for e in entries}


def _executables(fn: dict) -> dict[str, str]:
    return {e["target"]: f"jaxlib {e['jaxlib']}, needs {len(e['cpu_features'] or ())} CPU features" for e in
            fn["executables"]}


def _programs(x: Any, y: Any, name: str, lines: bool) -> list[Row]:
    a, b = (bytes(z.member(f)) if (f := z.manifest["functions"][name].get("program")) else b"" for z in (x, y))
    if a == b:
        return []
    from aot import mlir
    texts = [mlir.from_portable_bytecode(p).splitlines() if p else [] for p in (a, b)]
    changes = [line for line in difflib.unified_diff(texts[0], texts[1], n=1, lineterm="") if line[:2] not in ("--", "++")]
    count = sum(line[0] in "+-" for line in changes)
    if not count:
        return [_row(name, "program", "the same operations, written differently")]
    return [_row(name, "program", f"{count} lines differ", **({"lines": changes} if lines else {}))]


def _weights(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> list[Row]:
    rows = []
    for name in sorted({**a, **b}):
        if name not in a or name not in b:
            rows.append(_row("", f"weight {name}", "added" if name in b else "removed"))
        elif change := _arrays(a[name], b[name]):
            rows.append(_row("", f"weight {name}", change))
    return rows


def _results(name: str, a: Any, b: Any) -> list[Row]:
    if a is None or b is None:
        return [] if a is b else [_row(name, "recorded result", "added" if a is None else "removed")]
    rows = []
    for side, xs, ys in zip(("input", "output"), a, b):
        for i, (x, y) in enumerate(zip(xs, ys)):
            if change := _arrays(x, y):
                rows.append(_row(name, f"recorded {side} {i}", change))
    return rows


def _arrays(x: np.ndarray, y: np.ndarray) -> str | None:
    if (x.dtype, x.shape) != (y.dtype, y.shape):
        return f"{aot_runtime.short(x.dtype, x.shape)} -> {aot_runtime.short(y.dtype, y.shape)}"
    if x.tobytes() == y.tobytes():
        return None
    wide = np.complex128 if x.dtype.kind == "c" else np.float64
    gap = np.abs(x.astype(wide) - y.astype(wide))
    return f"{np.count_nonzero(gap)} of {x.size} values differ, by up to {np.nanmax(gap):.3g}" if gap.any() else None
