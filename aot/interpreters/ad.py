"""Rules for derivatives: of primitives of one's own, and of those of this package."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from aot import dtypes
from aot.interpreters.rules import Rules, listed, unlisted
from aot.trace import Linear as UndefinedPrimal
from aot.trace import Primitive, Zero
from aot.trace import is_linear as is_undefined_primal
from aot.transforms.jvp import JVPTrace, JVPTracer, add_tangents, instantiate_zero


def _jvp_method(prim: Primitive, rule: Callable) -> Callable:
    def jvp(primals: Any, tangents: Any, **params: Any) -> tuple[list, list]:
        outs, dots = rule(list(primals), list(tangents), **params)
        outs = listed(prim, outs)
        return outs, [Zero.like(o) if t is None or getattr(t, "dtype", None) == dtypes.float0 else t
                      for o, t in zip(outs, listed(prim, dots), strict=True)]
    return jvp


def _jvp_rule(prim: Primitive, method: Callable) -> Callable:
    def rule(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
        outs, dots = method(primals, tangents, **params)
        return unlisted(prim, outs), unlisted(prim, dots)
    return rule


def _transpose_method(prim: Primitive, rule: Callable) -> Callable:
    def transpose(cts: Any, *args: Any, **params: Any) -> list:
        found = rule(unlisted(prim, list(cts)), *args, **params)
        return [None] * len(args) if found is Zero else list(found)
    return transpose


def _transpose_rule(prim: Primitive, method: Callable) -> Callable:
    return lambda ct, *args, **params: method(listed(prim, ct), *args, **params)


#: primitive -> rule(primals, tangents, **params) -> (result, its tangent), or lists of them; tangents may be `Zero`
primitive_jvps = Rules("jvp", _jvp_method, _jvp_rule)
#: primitive -> rule(cotangents, *args, **params) -> a cotangent or None for each argument; linear ones are `UndefinedPrimal`
primitive_transposes = Rules("transpose", _transpose_method, _transpose_rule)


def get_primitive_transpose(p: Primitive) -> Callable:
    """The rule for transposition.  NotImplementedError where there is none."""
    try:
        return primitive_transposes[p]
    except KeyError:
        raise p.missing("transpose") from None


def instantiate_zeros(tangent: Any) -> Any:
    """A tangent, where it is a `Zero` as an array of zeros."""
    return instantiate_zero(tangent)


def zeros_like_aval(aval: Any) -> Any:
    """An array of zeros of a type."""
    return instantiate_zeros(Zero(aval))


def defjvp(primitive: Primitive, *jvprules: Callable | None) -> None:
    """The tangent is the sum of rule(tangent of an argument, *args, **params)."""
    defjvp2(primitive, *(rule and functools.partial(_without_result, rule) for rule in jvprules))


def _without_result(rule: Callable, t: Any, out: Any, *args: Any, **params: Any) -> Any: return rule(t, *args, **params)


def defjvp2(primitive: Primitive, *jvprules: Callable | None) -> None:
    """The same of rules that take the result too: rule(tangent, result, *args, **params)."""
    def jvp(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
        out = primitive.bind(*primals, **params)
        dots = [rule(t, out, *primals, **params) for rule, t in zip(jvprules, tangents) if rule and type(t) is not Zero]
        return out, functools.reduce(add_tangents, dots, Zero.like(out))
    primitive_jvps[primitive] = jvp


def deflinear2(primitive: Primitive, transpose_rule: Callable) -> None:
    """A linear primitive: its tangent is itself; transpose_rule(cotangents, *args, **params) as in `primitive_transposes`."""
    def jvp(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
        out = primitive.bind(*primals, **params)
        if all(type(t) is Zero for t in tangents):
            return out, [Zero.like(o) for o in out] if primitive.multiple_results else Zero.like(out)
        return out, primitive.bind(*map(instantiate_zeros, tangents), **params)
    primitive_jvps[primitive], primitive_transposes[primitive] = jvp, transpose_rule


def deflinear(primitive: Primitive, transpose_rule: Callable) -> None:
    """The same with transpose_rule(cotangents, **params)."""
    deflinear2(primitive, lambda ct, *args, **params: transpose_rule(ct, **params))


def defbilinear(prim: Primitive, lhs_rule: Callable, rhs_rule: Callable) -> None:
    """A primitive that is linear in each of two arguments; rules: rule(cotangent, x, y, **params)."""
    defjvp(prim, lambda g, x, y, **params: prim.bind(g, y, **params), lambda g, x, y, **params: prim.bind(x, g, **params))

    def transpose(ct: Any, x: Any, y: Any, **params: Any) -> list:
        if type(ct) is Zero:
            return [None, None]
        return [lhs_rule(ct, x, y, **params), None] if is_undefined_primal(x) else [None, rhs_rule(ct, x, y, **params)]
    primitive_transposes[prim] = transpose


__all__ = ["JVPTrace", "JVPTracer", "UndefinedPrimal", "Zero", "add_tangents", "defbilinear", "defjvp", "defjvp2", "deflinear",
           "deflinear2", "get_primitive_transpose", "instantiate_zeros", "is_undefined_primal", "primitive_jvps",
           "primitive_transposes", "zeros_like_aval"]
