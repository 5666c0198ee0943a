"""What jaxprs and traces are made of, for those who walk them."""
from __future__ import annotations

import importlib
import operator
import warnings
from contextlib import AbstractContextManager
from typing import Any, Sequence

from aot.trace import Jaxpr, ShapedArray, Trace, Tracer, base_trace, tracing
from aot.trace import eval_jaxpr as _eval_jaxpr
from aot.trace.aval import AbstractValue
from aot.trace.aval import _typeof as pytype_aval_mappings
from aot.trace.jaxpr import Atom
from aot.transforms.more import ensure_compile_time_eval

ParamDict = dict[str, Any]      # the parameters of an equation
Value = Any                     # what a variable of a jaxpr stands for


# pytype_aval_mappings: type of values that functions take -> value to ShapedArray

def eval_jaxpr(jaxpr: Any, consts: Sequence, *args: Any, propagate_source_info: bool = True) -> list:
    """The results of a jaxpr on args, with consts for its constvars.  propagate_source_info has no effect: it always is."""
    inner = getattr(jaxpr, "inner", jaxpr)
    return _eval_jaxpr(Jaxpr([*jaxpr.constvars, *inner.invars], inner.eqns, inner.outvars), [*consts, *args])


def eval_context() -> AbstractContextManager:
    """Operations within run at once, also while something is being traced."""
    return tracing(base_trace)


def max_dim(d1: Any, d2: Any) -> int:
    """The larger of two sizes."""
    return max(operator.index(d1), operator.index(d2))


def min_dim(d1: Any, d2: Any) -> int:
    """The smaller of two sizes."""
    return min(operator.index(d1), operator.index(d2))


def is_concrete(x: Any) -> bool:
    """Whether the value of x is known now: all but tracers of staged functions and of batches."""
    return not isinstance(x, Tracer) or x.concrete() is not None


#: names of `extend.core` that are still found here
_MOVED = frozenset("""DebugInfo DropVar Effect Effects InconclusiveDimensionOperation JaxprTypeError check_jaxpr
                      concrete_or_error find_top_trace gensym get_opaque_trace_state jaxprs_in_params new_jaxpr_eqn no_effects
                      nonempty_axis_env_DO_NOT_USE primal_dtype_to_tangent_dtype unsafe_am_i_under_a_jit_DO_NOT_USE
                      unsafe_am_i_under_a_vmap_DO_NOT_USE unsafe_get_axis_names_DO_NOT_USE valid_jaxtype""".split())


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        raise AttributeError(f"module 'aot.core' has no attribute {name!r}")
    warnings.warn(f"core.{name} is deprecated. hint: it is extend.core.{name}", DeprecationWarning, stacklevel=2)
    return getattr(importlib.import_module("aot.extend.core"), name)


__all__ = ["AbstractValue", "Atom", "ParamDict", "ShapedArray", "Trace", "Tracer", "Value", "ensure_compile_time_eval",
           "eval_context", "eval_jaxpr", "is_concrete", "max_dim", "min_dim", "pytype_aval_mappings"]
