"""Running and checking finished artifacts: what `aot run` and `aot verify` do."""
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import aot_runtime
from aot import spec
from aot.errors import AotError

# Allowed error relative to the largest expected value, by bits of the mantissa: another compiler may sum in
# another order, which moves the last bits.
_RTOL = {52: 1e-9, 23: 1e-4, 10: 1e-2, 7: 5e-2}


def function(path: str | os.PathLike, name: str | None = None, *, strict: bool = False) -> aot_runtime.Function:
    """The named function of an artifact, or its only one.  Raises AotError (ours or the loader's)."""
    loaded = aot_runtime.load(path, strict=strict)
    if name is None and len(loaded) != 1:
        raise AotError(f"{path}: holds {len(loaded)} functions", hint=f"choose one of: {', '.join(loaded)}")
    return loaded[name or loaded.keys()[0]]


def run(fn: aot_runtime.Function, args: Sequence[str], kwargs: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Call with arguments given as text (files and literals); returns the flat results by name."""
    arguments, inputs = fn.spec["arguments"], iter(fn.spec["inputs"])
    entries = {a["name"]: [next(inputs) for _ in range(aot_runtime.count_leaves(a["tree"]))] for a in arguments}
    trees = {a["name"]: a["tree"] for a in arguments}
    names = [a["name"] for a in arguments]
    values = [_value(text, trees.get(n), entries.get(n)) for n, text in zip(names, args)]
    values += [_value(text, None, None) for text in args[len(names):]]
    result = fn(*values, **{k: _value(text, trees.get(k), entries.get(k)) for k, text in kwargs.items()})
    leaves: list = []
    aot_runtime.collect(fn.spec["out_tree"], result, "result", leaves)
    return {e["name"]: x for e, x in zip(fn.spec["outputs"], leaves)}


def _value(text: str, tree: Any, entries: list | None) -> Any:
    value = spec.parse(text)
    return value if entries is None else _fit(value, tree, iter(entries), text)


def _fit(value: Any, tree: Any, entries: Any, text: str) -> Any:
    """Turn literals into arrays where the function takes one; leave a wrong structure for the loader to report."""
    if isinstance(value, spec.Array):
        raise AotError(f"{text!r} is a type, running needs values", hint="give a .npy or .npz file, or a literal")
    if tree == "*":
        return _leaf(value, next(entries), text)
    if isinstance(value, dict) and isinstance(tree, dict) and "dict" in tree and len(value) == len(tree["dict"]):
        return {k: _fit(value[k], t, entries, text) for k, t in tree["dict"] if k in value}
    children = tree.get("tuple") or tree.get("list") if isinstance(tree, dict) else None
    if isinstance(value, (list, tuple)) and children and len(value) == len(children):
        return (tuple if "tuple" in tree else list)(_fit(v, t, entries, text) for v, t in zip(value, children))
    return value


def _leaf(value: Any, entry: dict, text: str) -> Any:
    if "data" in entry and isinstance(value, int) and not entry["shape"]:
        return aot_runtime.key(value)
    if not isinstance(value, (list, tuple)):
        return value
    try:
        return np.asarray(value, aot_runtime.dtype_of(entry.get("data", entry)["dtype"]))
    except (TypeError, ValueError) as e:
        raise AotError(f"{entry['name']}: {text!r} is not an array: {e}") from None


# ---- verification --------------------------------------------------------------------------------------------------

def verify(path: str | os.PathLike, *, rtol: float | None = None, strict: bool = False,
           trusted_keys: Sequence[Any] | None = None) -> dict[str, Any]:
    """Check every member of an artifact, and its signature if keys are given, and replay every function's recorded inputs.

    Returns {"file", "ok", "signer": key or None, "members": count, "functions": [{"name", "target", "ok", "outputs":
    [{"name", "type", "ok", "max_abs_error", "max_rel_error"}] or None if nothing was recorded}]}.  rtol: allowed error
    relative to the largest expected value; the default depends on the type, and integers must be equal.
    Raises aot_runtime.AotError for a damaged artifact.
    """
    loaded = aot_runtime.load(path, strict=strict, trusted_keys=trusted_keys)
    loaded.verify()
    functions = [_verify_function(loaded, name, rtol) for name in loaded]
    return {"file": os.fspath(path), "ok": all(f["ok"] for f in functions), "signer": loaded.signer,
            "members": len(loaded.manifest["members"]), "functions": functions}


def _verify_function(loaded: aot_runtime.Artifact, name: str, rtol: float | None) -> dict[str, Any]:
    fn, golden = loaded[name], loaded.golden(name)
    if golden is None:
        return {"name": name, "target": fn.target, "ok": True, "outputs": None}
    inputs, expected = golden
    rows = [compare(got, want, rtol) | {"name": e["name"], "type": aot_runtime.short(e["dtype"], e["shape"])}
            for got, want, e in zip(fn.call_flat(inputs), expected, fn.spec["outputs"])]
    return {"name": name, "target": fn.target, "ok": all(r["ok"] for r in rows), "outputs": rows}


def compare(got: np.ndarray, want: np.ndarray, rtol: float | None = None) -> dict[str, Any]:
    """{"ok", "max_abs_error", "max_rel_error"} of two arrays of the same type.  NaNs and infinities must coincide."""
    rtol = tolerance(want.dtype) if rtol is None else rtol
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    a, b = got.astype(wide), want.astype(wide)
    finite = np.isfinite(a) & np.isfinite(b)
    same = bool(np.array_equal(a[~finite], b[~finite], equal_nan=True))
    error, size = np.abs(a[finite] - b[finite]), np.abs(b[finite])
    relative = error[size > 0] / size[size > 0]
    ok = same and bool((error <= rtol * size.max(initial=0)).all())
    return {"ok": ok, "max_abs_error": float(error.max(initial=0)), "max_rel_error": float(relative.max(initial=0))}


def tolerance(dtype: np.dtype) -> float:
    """The default rtol for a dtype: 0 for integers and booleans."""
    if dtype.kind in "biu" or "int" in dtype.name:
        return 0.0
    if dtype.kind == "c":
        dtype = np.dtype(f"float{dtype.itemsize * 4}")
    import ml_dtypes
    return next((tol for bits, tol in _RTOL.items() if ml_dtypes.finfo(dtype).nmant >= bits), 0.2)
