"""One signature of a function, traced: the jaxpr, and the program once it is compiled."""
from __future__ import annotations

import weakref
from typing import Any, Callable, Sequence

from numpy import ndarray, zeros

from aot.arguments import parameter_names
from aot.config import config
from aot.dtypes import float0
from aot.ops.shape import full
from aot.source import is_ours, scope, shared_body
from aot.trace import ShapedArray, ShapeDtypeStruct, StageTrace, check_leak, lean, pick, state, tracing, typeof
from aot.trace.refs import refuse_ref
from aot.tree_util import default_registry, keystr, register_pytree_node, tree_flatten_with_path

_flatten = default_registry.flatten


class Signature:
    """What distinguishes one trace of a function from another."""
    __slots__ = ("key", "in_tree", "avals", "static")

    def __init__(self, in_tree, avals, static):
        self.in_tree, self.avals, self.static = in_tree, tuple(avals), static
        self.key = (in_tree, self.avals, static, config.trace_key(), tuple(state.axes.items()), state.mesh)


class Entry:
    """One traced signature: the jaxpr (captured tracers first), and the program once compiled."""
    __slots__ = ("jaxpr", "captured", "out_tree", "program", "donated", "name", "signature", "key_uses", "mesh_read")

    def __init__(self, jaxpr, captured, out_tree, donated, name, signature):
        self.jaxpr, self.captured, self.out_tree, self.donated = jaxpr, captured, out_tree, donated
        self.program, self.name, self.signature, self.key_uses, self.mesh_read = None, name, signature, (), False


def trace_to_entry(fun: Callable, in_tree, avals: Sequence[ShapedArray], name: str, donated: tuple,
                   signature=None) -> Entry:
    """Trace fun, called with the tree of arguments (args, kwargs), on avals."""
    entry, trace = _trace_to_entry(fun, in_tree, avals, name, donated, signature)
    if config.check_tracer_leaks:
        check_leak(trace, name)
    return entry


def _trace_to_entry(fun, in_tree, avals, name, donated, signature):
    trace = StageTrace()
    with tracing(trace), scope(None):
        ins = [trace.new_input(a) for a in avals]
        trace.function = f"`{name}`"
        variables = [i.variable for i in ins]       # not ins, which refer to the trace: nothing is to wait for the collector
        trace.input_names = lambda: argument_names(fun, in_tree, variables)
        args, kwargs = in_tree.unflatten(ins)
        out = shared_body(fun, args, kwargs) if is_ours(fun) else fun(*args, **kwargs)
        leaves, out_tree = _flatten(out)
        for x in leaves:
            check_output(x, out, name)
        if any(type(x) is ndarray and x.dtype == float0 for x in leaves):
            leaves, out_tree = without_float0(leaves, out_tree)
        jaxpr, captured = trace.close(ins, leaves, name)
    entry = Entry(jaxpr, captured, out_tree, donated, name, signature)
    if config.debug_key_reuse:
        from aot.random._reuse import uses
        entry.key_uses = uses(trace, ins)
    return entry, weakref.ref(trace)


class _Float0:
    """A float0 result, as a node without leaves that unflattens to it."""

    def __init__(self, shape): self.shape = shape


def _float0(shape: Any, _: Any) -> Any: return zeros(shape, float0)


register_pytree_node(_Float0, lambda x: ((), x.shape), _float0)


def without_float0(leaves, tree):
    """float0 arrays have no data: they become part of the structure."""
    return _flatten(tree.unflatten([_Float0(x.shape) if typeof(x).dtype == float0 else x for x in leaves]))


def without_structs(entry: Entry, leaves: Sequence, describe: Callable[[Any], str]) -> list:
    """The arguments, with zeros for the ShapeDtypeStructs: nothing may need their values."""
    used, first = {*pick(range(len(entry.jaxpr.invars)), lean(entry.jaxpr)[1])}, len(entry.captured)
    for i, x in enumerate(leaves, first):
        if type(x) is ShapeDtypeStruct and i in used:
            raise TypeError(f"{describe(x)} is a ShapeDtypeStruct, which has no value, and function {entry.name} uses it. "
                            "hint: pass an array, or trace with eval_shape or .lower()")
    return [full(x.shape, 0, x.dtype) if type(x) is ShapeDtypeStruct else x for x in leaves]


def described(out_tree, avals: Sequence[ShapedArray]) -> Any:
    """A result with ShapeDtypeStructs for its leaves."""
    tree = out_tree.unflatten([ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in avals])
    leaves, treedef = _flatten(tree)
    return treedef.unflatten([ShapeDtypeStruct(x.shape, x.dtype) if type(x) is ndarray else x for x in leaves])


def argument_names(fun: Callable, in_tree, variables: Sequence) -> dict:
    """variable -> the argument it is, e.g. params['w'], for messages."""
    args, kwargs = in_tree.unflatten(variables)
    names, out = parameter_names(fun, len(args)), {}
    for name, tree in [*zip(names, args), *kwargs.items()]:
        for path, v in tree_flatten_with_path(tree)[0]:
            if not isinstance(v, ndarray):
                out[v] = f"{name}{keystr(path)}"
    return out


def check_output(x: Any, out: Any, name: str) -> None:
    refuse_ref(x, f"function {name}")
    try:
        typeof(x)
    except TypeError:
        path = next(keystr(p) for p, leaf in tree_flatten_with_path(out)[0] if leaf is x)
        where = f" at output component {path}" if path else ""
        raise TypeError(f"function {name} to be traced must return arrays, scalars or pytrees of them; got a value of "
                        f"type {type(x)}{where}. hint: return only arrays; keep other objects outside the function"
                        ) from None
