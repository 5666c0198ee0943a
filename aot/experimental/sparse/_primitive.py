"""Primitives over the arrays of sparse formats.  Each is one function of other operations; all its rules follow from that."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from aot.config import config
from aot.source import CALLER, set_current
from aot.trace import Jaxpr, Linear, Literal, Primitive, Zero, bind, eval_jaxpr, is_linear, stage, tangent_aval, typeof


@functools.lru_cache(maxsize=4096)
def _traced(prim: SparsePrimitive, avals: tuple, params: tuple, options: Any) -> Jaxpr:
    """The function of a primitive for operands of these types; it serves all callers, so its equations have their place."""
    before = set_current(CALLER)
    try:
        return stage(lambda *xs: _listed(prim.of(*xs, **dict(params))), avals, prim.name)[0]
    finally:
        set_current(before)


def _listed(out: Any) -> list: return list(out) if isinstance(out, (tuple, list)) else [out]


class SparsePrimitive(Primitive):
    """of(*arrays, **params) -> an array, or a tuple of them.

    A transform meets the primitive as one operation where nothing that the transform follows goes in, and as the operations
    that it is made of otherwise: the products with tangents are as sparse as the ones of values."""

    def __init__(self, name: str, of: Callable):
        self.name, self.of = name, of

    def jaxpr(self, avals: Any, params: dict) -> Jaxpr:
        return _traced(self, tuple(avals), tuple(params.items()), config.trace_key())

    def infer(self, *avals, **params): return self.jaxpr(avals, params).out_avals

    def lower(self, e, ins, outs, *xs, **params): return e.jaxpr(self.jaxpr(ins, params), xs)

    def jvp(self, primals, tangents, **params):
        from aot.transforms.jvp import jvp_flat
        if all(type(t) is Zero for t in tangents):
            outs = bind(self, *primals, **params)
            return outs, [Zero(tangent_aval(typeof(o))) for o in outs]
        jaxpr = self.jaxpr(map(typeof, primals), params)
        return jvp_flat(lambda *xs: eval_jaxpr(jaxpr, xs), primals, tangents)

    def transpose(self, cts, *args, **params):
        from aot.transforms.linearize import transpose_flat
        jaxpr = self.jaxpr([x.aval if is_linear(x) else typeof(x) for x in args], params)
        got = iter(transpose_flat(jaxpr, args, cts))
        return [next(got) if is_linear(x) else None for x in args]

    def known(self, args, params):
        """Indices do not depend on data: they are values where the data are transposed."""
        jaxpr = self.jaxpr([x.aval if is_linear(x) else typeof(x) for x in args], params)
        env: dict = dict(zip(jaxpr.invars, args))
        read = lambda x: x.val if type(x) is Literal else env[x]
        for e in jaxpr.eqns:
            ins = list(map(read, e.invars))
            unknown = any(map(is_linear, ins))
            env.update(zip(e.outvars, [Linear(v.aval) for v in e.outvars] if unknown else e.primitive.rebind(ins, e.params)))
        return list(map(read, jaxpr.outvars))

    def vmap(self, axis, args, dims, **params):
        from aot.transforms.vmap import vmap_flat
        avals = [_unbatched(typeof(x), d) for x, d in zip(args, dims)]
        jaxpr = self.jaxpr(avals, params)
        return vmap_flat(lambda *xs: eval_jaxpr(jaxpr, xs), axis, args, dims)

    def __call__(self, *args: Any, **params: Any) -> Any:
        outs = bind(self, *args, **params)
        return outs[0] if len(outs) == 1 else tuple(outs)


def _unbatched(aval: Any, d: int | None) -> Any:
    return aval if d is None else aval.update(shape=aval.shape[:d] + aval.shape[d + 1:])


def primitive(name: str) -> Callable[[Callable], SparsePrimitive]:
    """Decorator: the primitive of this name that does what the function does."""
    return functools.partial(SparsePrimitive, name)
