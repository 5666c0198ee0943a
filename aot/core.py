"""What jaxprs and traces are made of, for those who walk them."""
from __future__ import annotations

import operator
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


__all__ = ["AbstractValue", "Atom", "ParamDict", "ShapedArray", "Trace", "Tracer", "Value", "ensure_compile_time_eval",
           "eval_context", "eval_jaxpr", "max_dim", "min_dim", "pytype_aval_mappings"]
