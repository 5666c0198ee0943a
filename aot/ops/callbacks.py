"""Calls from compiled programs back into Python: pure, with side effects, and for debugging."""
from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np

from aot.lower.emitter import TOKEN
from aot.ops.shape import moveaxis
from aot.ops.slicing import index_in_dim
from aot.trace import Primitive, ShapedArray, Zero, bind, tangent_aval, typeof

IO, ORDERED, DEBUG = "io", "ordered", "debug"


VMAP_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized")


class ForeignCall(Primitive):
    """A call of code that knows nothing of vmap: params vmap_method says what a batch is to it, result_avals what it gives."""

    def infer(self, *avals, result_avals, **_): return list(result_avals)

    def vmap(self, axis, args, dims, *, vmap_method, result_avals, **params):
        if vmap_method not in VMAP_METHODS:
            raise NotImplementedError("vmap is only supported for pure_callback, io_callback and ffi_call with a vmap_method. "
                                      f"hint: pass vmap_method=, one of {', '.join(map(repr, VMAP_METHODS))}")
        rule = {"sequential": self._one_by_one, "sequential_unrolled": self._unrolled}.get(vmap_method, self._batched)
        return rule(axis, args, dims, {**params, "vmap_method": vmap_method}, result_avals)

    def _one_by_one(self, axis, args, dims, params, result_avals):
        from aot.ops.loops import map_over
        rows = [moveaxis(x, d, 0) for x, d in zip(args, dims) if d is not None]

        def step(batched):
            it = iter(batched)
            return tuple(bind(self, *[x if d is None else next(it) for x, d in zip(args, dims)],
                              result_avals=result_avals, **params))
        outs: Any = map_over(step, rows)
        return list(outs), [0] * len(outs)

    def _unrolled(self, axis, args, dims, params, result_avals):
        from aot.ops.misc import stack
        rows = [bind(self, *[x if d is None else index_in_dim(x, i, d, keepdims=False) for x, d in zip(args, dims)],
                     result_avals=result_avals, **params) for i in range(axis.size)]
        outs = [stack(list(col)) for col in zip(*rows)]
        return outs, [0] * len(outs)

    def _batched(self, axis, args, dims, params, result_avals):
        """One call on whole arrays; unbatched operands get a leading size of 1, or the full size."""
        from aot.ops.shape import broadcast_new
        how = params["vmap_method"]
        size = axis.size if how == "broadcast_all" else 1
        xs = [moveaxis(x, d, 0) if d is not None else x if how == "legacy_vectorized" else broadcast_new(x, size, 0)
              for x, d in zip(args, dims)]
        wide = tuple(a.update(shape=(axis.size, *a.shape)) for a in result_avals)
        return bind(self, *xs, result_avals=wide, **params), [0] * len(wide)


class Callback(ForeignCall):
    """Call a Python function of numpy arrays.

    kind: "pure" (may be dropped or repeated), "io" or "debug"; ordered: keep program order among ordered callbacks.
    function returns a list of arrays of exactly `result_avals`."""
    name = "callback"

    def effects(self, *, kind, ordered, **_):
        return frozenset(() if kind == "pure" else (ORDERED, kind) if ordered else (kind,))

    def shown(self, params): return {k: params[k] for k in ("function", "kind", "ordered", "result_avals")}

    def jvp(self, primals, tangents, *, kind, **params):
        outs = bind(self, *primals, kind=kind, **params)
        if kind != "debug" and any(type(t) is not Zero for t in tangents):
            what = "Pure callbacks" if kind == "pure" else "IO callbacks"
            raise ValueError(f"{what} do not support JVP. hint: use custom_jvp or custom_vjp to give the derivative, or "
                             "stop_gradient on the arguments")
        return outs, [Zero(tangent_aval(typeof(o))) for o in outs]

    def transpose(self, cts, *args, kind, **params):
        raise ValueError(f"{kind} callbacks do not support transpose")

    def vmap(self, axis, args, dims, **params):
        if params["ordered"]:
            raise ValueError("Cannot `vmap` ordered effects. hint: pass ordered=False")
        if params["kind"] == "debug":
            params = {**params, "vmap_method": "sequential_unrolled"}
        return super().vmap(axis, args, dims, **params)

    def evaluate(self, args, params):
        from aot.array import Array, asarray
        host = [x._value if type(x) is Array else np.asarray(x, typeof(x).dtype) for x in args]
        return [asarray(v) for v in call_checked(params["function"], params["result_avals"], host)]

    def lower(self, e, ins, outs, *xs, function, result_avals, kind, ordered, vmap_method):
        index = len(e.module.callbacks)
        effect = kind != "pure"
        e.module.callbacks.append(HostCall(function, result_avals, effect))
        types_in, types_out = [a.mlir for a in ins], [a.mlir for a in outs]
        layouts = lambda avals: [layout_text(range(len(a.physical.shape))) for a in avals]
        operands, lin, lout = list(xs), layouts(ins), layouts(outs)
        if effect:      # without ordered, the order is kept within one block
            token = e.token if ordered else e.block_token
            operands, types_in, types_out = [token, *xs], [TOKEN, *types_in], [TOKEN, *types_out]
            lin, lout = [layout_text(()), *lin], [layout_text(()), *lout]
        names = e.ops(f"stablehlo.custom_call @xla_ffi_python_cpu_callback({', '.join(operands)}) {{api_version = 4 : i32, "
                      f"backend_config = {{index = {index} : ui64}}, has_side_effect = {str(effect).lower()}, "
                      f"operand_layouts = [{', '.join(lin)}], result_layouts = [{', '.join(lout)}]}} : "
                      f"({', '.join(types_in)}) -> ({', '.join(types_out)})", len(types_out))
        if effect:
            token, *names = names
            if ordered:
                e.token = token
            else:
                e.block_token = token
        return names


def layout_text(order: Sequence[int]) -> str:
    """A layout in MLIR's text.  order: the dimensions from the slowest to the fastest."""
    return f"dense<{list(reversed(order))}> : tensor<{len(order)}xindex>" if order else "dense<> : tensor<0xindex>"


class HostCall:
    """What XLA calls: checks results (XLA does not) and keeps the user's exception for the caller."""

    def __init__(self, function: Callable, result_avals: Sequence[ShapedArray], has_token: bool):
        self.function, self.result_avals, self.has_token = function, result_avals, has_token
        self.error: BaseException | None = None

    def __call__(self, *args):
        try:
            if self.has_token:
                args = args[1:]
            outs = call_checked(self.function, self.result_avals, [np.array(a) for a in args])
        except BaseException as err:
            self.error = err
            raise
        return (None, *outs) if self.has_token else tuple(outs)


def call_checked(function: Callable, result_avals: Sequence[ShapedArray], args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Call on host values; TypeError unless the results have the declared types."""
    from aot.trace import base_trace, tracing
    with tracing(base_trace):
        outs = [np.asarray(v) for v in function(*args)]
    if len(outs) != len(result_avals):
        raise TypeError(f"the callback returned {len(outs)} arrays, but {len(result_avals)} were declared")
    for i, (v, a) in enumerate(zip(outs, result_avals)):
        if v.shape != a.shape:
            raise ValueError(f"the callback returned shape {v.shape} for result {i}, declared {a.str_short(False)}")
        if v.dtype != a.dtype:
            if not np.can_cast(v.dtype, a.dtype, "same_kind"):
                raise TypeError(f"the callback returned dtype {v.dtype} for result {i}, declared {a.str_short(False)}. "
                                "hint: convert it with astype in the callback")
            outs[i] = v.astype(a.dtype)
    return outs


callback_p = Callback()


def callback(function: Callable, args: Sequence, result_avals: Sequence[ShapedArray], kind: str, ordered: bool = False,
             vmap_method: str | None = None) -> list:
    """Bind the primitive: function(*numpy arrays) -> list of numpy arrays."""
    for a in result_avals:
        if not isinstance(a.dtype, np.dtype):
            raise TypeError("a callback cannot return typed keys; hint: return key data and wrap it with "
                            "random.wrap_key_data")
    return bind(callback_p, *args, function=function, result_avals=tuple(result_avals), kind=kind, ordered=ordered,
                vmap_method=vmap_method)


