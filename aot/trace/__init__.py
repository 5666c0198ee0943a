"""Tracing: avals, jaxprs, primitives, and the traces that decide what a primitive does."""
from aot.trace.aval import ShapedArray, ShapeDtypeStruct, as_numpy, is_valid_type, tangent_aval, typeof
from aot.trace.core import (
    Primitive,
    StageTrace,
    StageTracer,
    Trace,
    Tracer,
    axis_env,
    base_trace,
    bind,
    bind1,
    captured_by,
    check_leak,
    check_live,
    concrete_or_error,
    current,
    eval_jaxpr,
    is_live,
    is_tracer,
    opened,
    stage,
    stage_closed,
    state,
    tracing,
)
from aot.trace.jaxpr import ClosedJaxpr, Eqn, Jaxpr, Literal, Var, dce, hoist_consts, lean, pick, subjaxprs
from aot.trace.symbolic import Linear, Zero, is_linear, is_zero

__all__ = ["ClosedJaxpr", "Eqn", "Jaxpr", "Linear", "Literal", "Primitive", "ShapeDtypeStruct", "ShapedArray",
           "StageTrace", "StageTracer", "Trace", "Tracer", "Var", "Zero", "as_numpy", "axis_env", "base_trace", "bind",
           "bind1", "captured_by", "check_leak", "check_live", "concrete_or_error", "current", "dce", "eval_jaxpr",
           "hoist_consts", "is_linear", "is_live", "is_tracer", "is_valid_type", "is_zero", "lean", "opened", "pick", "stage",
           "stage_closed", "state", "subjaxprs", "tangent_aval", "tracing", "typeof"]
