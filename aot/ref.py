"""Mutable array references: `ref = new_ref(x)`, then `ref[i]`, `ref[i] = y`, `ref[i] += y`; `freeze(ref)` ends them."""
from aot.ops.refs import addupdate, empty_ref, free_ref, freeze, get, new_ref, set, swap
from aot.trace.refs import AbstractRef, Ref

__all__ = ["AbstractRef", "Ref", "addupdate", "empty_ref", "free_ref", "freeze", "get", "new_ref", "set", "swap"]
