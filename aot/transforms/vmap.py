"""Vectorising: values with a batch dimension as a Trace, and batching of jaxprs."""
from __future__ import annotations

from typing import Any, Callable, Sequence

from aot.source import transformed
from aot.trace import Jaxpr, ShapedArray, Trace, Tracer, axis_env, eval_jaxpr, stage_closed, state, tracing, typeof
from aot.transforms.discharge import must_thread, thread


class Axis:
    """The mapped axis: its size, its name for collectives (or None)."""
    __slots__ = ("size", "name")

    def __init__(self, size: int, name: Any = None):
        self.size, self.name = size, name

    def __eq__(self, other): return (self.size, self.name) == (other.size, other.name)
    def __hash__(self): return hash((self.size, self.name))


class BatchTracer(Tracer):
    """A value whose dimension `dim` is mapped over."""
    __slots__ = ("value", "dim")

    def __init__(self, trace, value, dim):
        a = typeof(value)
        self.owner, self.value, self.dim = trace, value, dim
        self.aval = a.update(shape=a.shape[:dim] + a.shape[dim + 1:])


class BatchTrace(Trace):
    def __init__(self, parent: Trace, axis: Axis, tag: Any = None):
        self.parent, self.axis, self.tag = parent, axis, tag or object()

    def pair(self, x) -> tuple[Any, int | None]:
        return (x.value, x.dim) if type(x) is BatchTracer and x.owner.tag is self.tag else (x, None)

    def process(self, prim, args, params):
        values, dims, active, tag = [], [], False, self.tag
        for x in args:
            if type(x) is BatchTracer and x.owner.tag is tag:
                values.append(x.value)
                dims.append(x.dim)
                active = True
            else:
                values.append(x)
                dims.append(None)
        if prim.holds and active and must_thread(prim, args, lambda x: True):
            return thread(prim, args, params)
        state.trace = self.parent
        try:
            if not active and not (prim.batch_consts and prim.uses_axis(self.axis.name, params)):
                return self.parent.process(prim, values, params)
            outs, out_dims = prim.vmap(self.axis, values, dims, **params)
        finally:
            state.trace = self
        return [x if d is None else BatchTracer(self, x, d) for x, d in zip(outs, out_dims)]

    def _custom(self, kind, call, args):
        values, dims = [list(z) for z in zip(*map(self.pair, args))] if args else ([], [])
        with tracing(self.parent):
            batched, out_dims = call.batch(self.axis, dims, self.tag)    # even if no dims: it may close over our tracers
            outs = getattr(self.parent, kind)(batched, values)
        return [x if d is None else BatchTracer(self, x, d) for x, d in zip(outs, out_dims())]

    def custom_jvp(self, call, args): return self._custom("custom_jvp", call, args)
    def custom_vjp(self, call, args): return self._custom("custom_vjp", call, args)


def vmap_flat(f: Callable, axis: Axis, args: Sequence, dims: Sequence[int | None], tag: Any = None) -> tuple[list, list]:
    """f maps flat values to a flat list -> (outputs, their batch dims or None).

    tag: of the trace whose tracers f may close over."""
    trace = BatchTrace(state.trace, axis, tag)
    with tracing(trace), axis_env(axis.name, axis.size), transformed("vmap"):
        outs = f(*[x if d is None else BatchTracer(trace, x, d) for x, d in zip(args, dims, strict=True)])
        pairs = [trace.pair(x) for x in outs]
    return [x for x, _ in pairs], [d for _, d in pairs]


def to_dim(axis: Axis, x, src: int | None, dst: int | None):
    """Move (or make) the batch dimension src of x to dst; dst None means: unbatched, allowed only if it is."""
    from aot.ops.shape import broadcast_new, moveaxis
    if src == dst:
        return x
    if dst is None:
        raise ValueError("a batched value was given where an unbatched one is required")
    return broadcast_new(x, axis.size, dst) if src is None else moveaxis(x, src, dst)


def batch_jaxpr(jaxpr: Jaxpr, axis: Axis, dims: Sequence[int | None], out: Any = False) -> tuple[Jaxpr, list]:
    """-> (jaxpr with batched inputs, batch dims of its outputs).

    out: False keeps the dims as they come; a list of bools forces batching at 0 where True."""
    force = tuple(out) if out is not False else (False,) * len(jaxpr.outvars)
    return jaxpr.memo(("vmap", axis, tuple(dims), force, tuple(state.axes.items())),
                      lambda: _batch_jaxpr(jaxpr, axis, dims, force, out is not False))


def _batch_jaxpr(jaxpr, axis, dims, force, to_front):
    out_dims: list[int | None] = []

    def f(*args):
        outs, ods = vmap_flat(lambda *xs: eval_jaxpr(jaxpr, xs), axis, args, dims)
        if to_front:
            outs = [to_dim(axis, x, d, 0) if d is not None or must else x for x, d, must in zip(outs, ods, force)]
            ods = [0 if d is not None or must else None for d, must in zip(ods, force)]
        out_dims[:] = ods
        return outs
    avals = [batched_aval(a, axis.size, d) for a, d in zip(jaxpr.in_avals, dims)]
    return stage_closed(f, avals, jaxpr.debug_name), out_dims


def batched_aval(a: ShapedArray, size: int, d: int | None) -> ShapedArray:
    if d is None:
        return a
    return a.update(shape=(*a.shape[:d], size, *a.shape[d:]))
