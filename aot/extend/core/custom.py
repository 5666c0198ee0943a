"""Primitives of one's own."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aot import trace


class _AnyPrimitive(type):
    def __instancecheck__(cls, x: Any) -> bool: return isinstance(x, trace.Primitive)


class Primitive(trace.Primitive, metaclass=_AnyPrimitive):
    """A primitive of one's own, made of the rules that are given for it:

        p = Primitive("p")                                  # p.multiple_results = True where it has a list of results
        p.def_impl(f)                                       # f(*arrays, **params), where nothing is traced
        p.def_abstract_eval(shapes)                         # shapes(*avals, **params) -> ShapedArray, or a list of them
        mlir.register_lowering(p, mlir.lower_fun(f, multiple_results=False))
        ad.primitive_jvps[p] = ...;  ad.primitive_transposes[p] = ...;  batching.primitive_batchers[p] = ...

    `p.bind(*args, **params)` is an equation.  Every primitive is an instance of this class.  Subclasses may have methods
    `impl`, as for `def_impl`, and `abstract_eval`, as for `def_effectful_abstract_eval`.
    """

    def __init__(self, name: str):
        self.name = name
        if hasattr(type(self), "impl"):
            self.def_impl(self.impl)
        if hasattr(type(self), "abstract_eval"):
            self.def_effectful_abstract_eval(self.abstract_eval)

    def def_impl(self, impl: Callable) -> Callable:
        """What it computes from concrete arrays."""
        self.impl = impl
        self.evaluate = lambda args, params: self.results(impl(*args, **params))
        return impl

    def def_abstract_eval(self, abstract_eval: Callable) -> Callable:
        """The types of its results."""
        self.abstract_eval = abstract_eval
        self.infer = lambda *avals, **params: self.results(abstract_eval(*avals, **params))
        return abstract_eval

    def def_effectful_abstract_eval(self, effectful_abstract_eval: Callable) -> Callable:
        """The types of its results, and its effects, which have to be none.  NotImplementedError where there are some."""
        def types(*avals: Any, **params: Any) -> Any:
            found, effects = effectful_abstract_eval(*avals, **params)
            if effects:
                raise NotImplementedError(f"`{self.name}` has the effects {effects}: primitives of one's own can have none. "
                                          "hint: use io_callback(..., ordered=True) within a function")
            return found
        self.def_abstract_eval(types)
        return effectful_abstract_eval

    def results(self, outs: Any) -> list:
        """The list of results that a rule returned."""
        return list(outs) if self.multiple_results else [outs]

    def missing(self, rule: str) -> Exception:
        return NotImplementedError(f"the primitive `{self.name}` has no rule for {_WHAT[rule][0]}. hint: {_WHAT[rule][1]}")


_WHAT = {
    "infer": ("the types of its results", "give it one with `def_abstract_eval`"),
    "lower": ("compiled programs", "give it one: mlir.register_lowering(p, mlir.lower_fun(f, multiple_results=...))"),
    "jvp": ("differentiation", "give it one: ad.primitive_jvps[p] = lambda primals, tangents, **params: (outs, out_tangents)"),
    "transpose": ("transposition", "give it one: ad.primitive_transposes[p] = lambda cotangents, *args, **params: [...]"),
    "vmap": ("vmap", "give it one: batching.primitive_batchers[p] = lambda args, dims, **params: (outs, out_dims)"),
}
