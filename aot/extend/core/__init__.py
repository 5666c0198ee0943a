"""Jaxprs and what they are made of, for libraries that read, evaluate or rewrite them."""
from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from aot import dtypes
from aot.array import Array
from aot.core import eval_jaxpr as _eval_jaxpr
from aot.errors import InconclusiveDimensionOperation, JaxprTypeError
from aot.extend.core.custom import Primitive
from aot.trace import (
    ClosedJaxpr,
    Jaxpr,
    Literal,
    ShapedArray,
    StageTrace,
    Trace,
    Tracer,
    Var,
    base_trace,
    concrete_or_error,
    is_valid_type,
    state,
    tangent_aval,
    tracing,
)
from aot.trace import Eqn as JaxprEqn
from aot.trace import subjaxprs as _subjaxprs
from aot.transforms.vmap import BatchTrace


def __getattr__(name: str) -> Any:
    if name == "primitives":
        return importlib.import_module("aot.extend.core.primitives")
    raise AttributeError(f"module 'aot.extend.core' has no attribute {name!r}")


Effect = object
Effects = frozenset
no_effects: frozenset = frozenset()
array_types: set[type] = {Array, np.ndarray, *(getattr(np, n) for n in (
    "bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex64", "complex128"))}


class DropVar(Var):
    """A result that nothing uses."""
    __slots__ = ()


class DebugInfo(NamedTuple):
    """What a function was traced for, and how its arguments and results are called in messages."""
    traced_for: str
    func_src_info: str
    arg_names: tuple[str | None, ...]
    result_paths: Any = None


@dataclass(frozen=True)
class OpaqueTraceState:
    """Equal where the same transformations are running."""
    trace: Any
    axes: tuple

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, OpaqueTraceState) and self.trace is other.trace and self.axes == other.axes

    def __hash__(self) -> int: return hash((id(self.trace), self.axes))


def get_opaque_trace_state(convention: str | None = None) -> OpaqueTraceState:
    """What transformations are running now, to be compared."""
    return OpaqueTraceState(state.trace, tuple(state.axes.items()))


def trace_state_clean() -> bool:
    """Whether no transformation is running."""
    return state.trace is base_trace and not state.axes


def unsafe_am_i_under_a_jit_DO_NOT_USE() -> bool:
    """Whether a function is being traced to a jaxpr."""
    return _is_running(StageTrace)


def unsafe_am_i_under_a_vmap_DO_NOT_USE() -> bool:
    """Whether a function is being vmapped."""
    return _is_running(BatchTrace)


def nonempty_axis_env_DO_NOT_USE() -> bool:
    """Whether there are axes that collectives may use."""
    return bool(state.axes)


def unsafe_get_axis_names_DO_NOT_USE() -> list:
    """The names of the axes that collectives may use now."""
    return list(state.axes)


def _is_running(kind: type[Trace]) -> bool:
    trace = state.trace
    while trace is not None and type(trace) is not kind:
        trace = trace.parent
    return trace is not None


class TraceTag:
    """Shared by traces that accept each other's tracers."""


@contextmanager
def take_current_trace() -> Iterator[Trace]:
    """The innermost running trace; within, operations run at once."""
    trace = state.trace
    with tracing(base_trace):
        yield trace


def find_top_trace(_: Any = ()) -> Trace:
    """The innermost running trace."""
    return state.trace


def set_current_trace(trace: Trace, check_leaks: bool = False) -> AbstractContextManager:
    """A block whose operations a trace processes."""
    return tracing(trace)


def jaxpr_as_fun(closed_jaxpr: Any, *args: Any) -> Any:
    """The function that a closed jaxpr is, of flat arguments to a list of results."""
    return functools.partial(_eval_jaxpr, closed_jaxpr, closed_jaxpr.consts, *args)


def jaxprs_in_params(params: dict) -> Iterable[Jaxpr]:
    """The jaxprs among the parameters of an equation."""
    return _subjaxprs(params)


def subjaxprs(jaxpr: Any) -> Iterable[Jaxpr]:
    """The jaxprs among the parameters of all equations of a jaxpr."""
    return (inner for e in jaxpr.eqns for inner in _subjaxprs(e.params))


def gensym() -> Callable[[Any], Var]:
    """A function that makes a new variable of a type."""
    return Var


def check_jaxpr(jaxpr: Any) -> None:
    """Raise JaxprTypeError where a variable is used before it has a value, or has another type than its primitive gives it."""
    known = {*jaxpr.constvars, *jaxpr.invars}
    for e in jaxpr.eqns:
        if unknown := [v for v in e.invars if not isinstance(v, Literal) and v not in known]:
            raise JaxprTypeError(f"{unknown[0]} has no value where it is used, in the equation\n{e}")
        for inner in _subjaxprs(e.params):
            check_jaxpr(inner)
        found = e.primitive.infer(*[v.aval for v in e.invars], **e.params)
        if [(a.shape, a.dtype) for a in found] != [(v.aval.shape, v.aval.dtype) for v in e.outvars]:
            raise JaxprTypeError(f"results of the types {[v.aval.str_short() for v in e.outvars]} where the primitive gives "
                                 f"{[a.str_short() for a in found]}, in the equation\n{e}")
        known.update(e.outvars)
    if any(not isinstance(v, Literal) and v not in known for v in jaxpr.outvars):
        raise JaxprTypeError("a result of the jaxpr has no value")


def new_jaxpr_eqn(invars: list, outvars: list, primitive: Primitive, params: dict, effects: Any = None,
                  source_info: Any = None, ctx: Any = None) -> JaxprEqn:
    """outvars = primitive[params] invars."""
    return JaxprEqn(primitive, list(invars), list(outvars), params, source_info)


def valid_jaxtype(x: Any) -> bool:
    """Whether x is an array or a scalar that functions take."""
    return is_valid_type(x)


def mapped_aval(size: int, axis: int | None, aval: Any) -> Any:
    """The type of an element of an array of that type along an axis."""
    return aval if axis is None else aval.update(shape=(*aval.shape[:axis], *aval.shape[axis + 1:]))


def unmapped_aval(size: int, axis: int | None, aval: Any, explicit_mesh_axis: Any = None) -> Any:
    """The type of an array with elements of that type along an axis."""
    return aval if axis is None else aval.update(shape=(*aval.shape[:axis], size, *aval.shape[axis:]))


def primal_dtype_to_tangent_dtype(primal_dtype: Any) -> Any:
    """float0 for dtypes without derivatives, else the dtype."""
    return tangent_aval(ShapedArray((), dtypes.canonicalize_dtype(primal_dtype))).dtype


__all__ = ["ClosedJaxpr", "DebugInfo", "DropVar", "Effect", "Effects", "InconclusiveDimensionOperation", "Jaxpr", "JaxprEqn",
           "JaxprTypeError", "Literal", "Primitive", "TraceTag", "Tracer", "Var", "array_types", "check_jaxpr",
           "concrete_or_error", "find_top_trace", "gensym", "get_opaque_trace_state", "jaxpr_as_fun",
           "jaxprs_in_params", "mapped_aval", "new_jaxpr_eqn", "no_effects", "nonempty_axis_env_DO_NOT_USE",
           "primal_dtype_to_tangent_dtype", "set_current_trace", "subjaxprs", "take_current_trace",
           "trace_state_clean", "unmapped_aval", "unsafe_am_i_under_a_jit_DO_NOT_USE",
           "unsafe_am_i_under_a_vmap_DO_NOT_USE", "unsafe_get_axis_names_DO_NOT_USE", "valid_jaxtype"]
