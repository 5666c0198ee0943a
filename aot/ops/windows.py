"""Reductions over sliding windows, with gradients (select_and_scatter_add for max and min)."""
from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np

from aot.ops import elementwise as ew
from aot.ops.families import LinearOp, Primitive, kind
from aot.ops.indexing import i64s
from aot.ops.reductions import highest, lowest, monoid_of
from aot.ops.shape import pad, zeros
from aot.trace import Jaxpr, ShapedArray, Zero, bind, bind1, is_linear, stage, tangent_aval, typeof


def dilate(n: int, d: int) -> int:
    return 0 if n == 0 else (n - 1) * d + 1


def padtype_to_pads(in_shape, window_shape, window_strides, padding) -> list[tuple[int, int]]:
    """'SAME', 'SAME_LOWER' or 'VALID' -> explicit (low, high) pairs."""
    if not isinstance(padding, str):
        return [(int(a), int(b)) for a, b in padding]
    name = padding.upper()
    if name == "VALID":
        return [(0, 0)] * len(in_shape)
    if name not in ("SAME", "SAME_LOWER"):
        raise RuntimeError(f"Unrecognized padding type: expected 'VALID', 'SAME' or 'SAME_LOWER', got {padding}.")
    pads = []
    for n, w, s in zip(in_shape, window_shape, window_strides):
        total = max(0, (-(-n // s) - 1) * s + w - n) if n else 0
        low = total // 2 if name == "SAME" else total - total // 2
        pads.append((low, total - low))
    return pads


def window_output_shape(shape, window, strides, padding, base_dilation, window_dilation) -> tuple[int, ...]:
    out = []
    for n, w, s, (lo, hi), b, d in zip(shape, window, strides, padding, base_dilation, window_dilation):
        total, span = dilate(n, b) + lo + hi, dilate(w, d)
        out.append(0 if total < span else (total - span) // s + 1)
    return tuple(out)


class Window(Primitive):
    """What all windowed reductions share: shape, batching, text."""

    def infer(self, *xs, window_dimensions, window_strides, padding, base_dilation, window_dilation, **_):
        x, n = xs[0], xs[0].ndim
        for what, v in (("window_dimensions", window_dimensions), ("window_strides", window_strides),
                        ("padding", padding), ("base_dilation", base_dilation), ("window_dilation", window_dilation)):
            if len(v) != n:
                raise TypeError(f"{self.name} {what} must have one entry per dimension of the operand, got {v} for "
                                f"shape {x.shape}.")
        if any(w < 1 for w in window_dimensions) or any(s < 1 for s in window_strides):
            raise TypeError(f"{self.name} window_dimensions and window_strides must be positive, got "
                            f"{window_dimensions} and {window_strides}.")
        shape = window_output_shape(x.shape, window_dimensions, window_strides, padding, base_dilation, window_dilation)
        return [ShapedArray(shape, a.dtype, a.weak_type) for a in xs]

    def batched(self, axis, xs, dims, params):
        from aot.transforms.vmap import to_dim
        xs = [to_dim(axis, x, d, 0) for x, d in zip(xs, dims)]
        for k in ("window_dimensions", "window_strides", "base_dilation", "window_dilation"):
            if k in params:
                params = {**params, k: (1, *params[k])}
        return xs, {**params, "padding": ((0, 0), *params["padding"])}

    def vmap(self, axis, args, dims, **params):
        xs, params = self.batched(axis, args, dims, params)
        return bind(self, *xs, **params), [0] * len(xs)

    def text(self, e, ins, outs, xs, inits, body, window_dimensions, window_strides, padding, base_dilation,
             window_dilation):
        n = len(window_dimensions)
        pads = f"dense<{[list(p) for p in padding]}> : tensor<{n}x2xi64>" if n else "dense<> : tensor<0x2xi64>"
        types = ", ".join([a.mlir for a in ins] + [a.element for a in ins])
        results = ", ".join(a.mlir for a in outs)
        return e.ops(f'"stablehlo.reduce_window"({", ".join([*xs, *inits])}) <{{base_dilations = {i64s(base_dilation)}, '
                     f"padding = {pads}, window_dilations = {i64s(window_dilation)}, window_dimensions = "
                     f"{i64s(window_dimensions)}, window_strides = {i64s(window_strides)}}}> {body} : ({types}) -> "
                     f"({results})", len(outs))


class MonoidWindow(Window):
    def __init__(self, name: str, combine: Callable, identity: Callable):
        self.name, self.combine, self.identity = name, combine, identity

    def lower(self, e, ins, outs, x, **params):
        scalar = ShapedArray((), ins[0].dtype)
        body = e.region(self.combine, [scalar, scalar])
        return self.text(e, ins, outs, [x], [e.splat(self.identity(scalar.dtype), scalar)], body, **params)


class WindowSum(MonoidWindow, LinearOp):
    def transpose(self, cts, x, *, window_dimensions, window_strides, padding, base_dilation, window_dilation):
        ct, shape = cts[0], x.aval.shape
        config = []
        for n, m, w, s, (lo, _), b, d in zip(shape, typeof(ct).shape, window_dimensions, window_strides, padding,
                                             base_dilation, window_dilation):
            span, spread = dilate(w, d), dilate(m, s)
            before = span - lo - 1
            config.append((before, dilate(n, b) + span - 1 - spread - before, s - 1))
        ct = pad(ct, zeros(ShapedArray((), typeof(ct).dtype)), config)
        ones = (1,) * len(shape)
        return [bind1(self, ct, window_dimensions=window_dimensions, window_strides=base_dilation,
                      padding=((0, 0),) * len(shape), base_dilation=ones, window_dilation=window_dilation)]


class WindowChooser(MonoidWindow):
    def jvp(self, primals, tangents, **params):
        (x,), (t,) = primals, tangents
        out = bind1(self, x, **params)
        if type(t) is Zero:
            return [out], [Zero(tangent_aval(typeof(out)))]
        return [out], [bind1(select_and_gather_add_p, t, x, largest=self.name.endswith("max"), **params)]


reduce_window_sum_p = WindowSum("reduce_window_sum", ew.add, lambda d: 0)
reduce_window_max_p = WindowChooser("reduce_window_max", ew.max, lowest)
reduce_window_min_p = WindowChooser("reduce_window_min", ew.min, highest)


class SelectAndGatherAdd(Window):
    """Of each window, the tangent at the position of the largest (smallest) operand."""
    name = "select_and_gather_add"

    def infer(self, t, x, *, largest, **params):
        return [Window.infer(self, t, **params)[0]]

    def jvp(self, primals, tangents, **params):
        t, x = primals
        out = bind1(self, t, x, **params)
        if type(tangents[0]) is Zero:
            return [out], [Zero(tangent_aval(typeof(out)))]
        return [out], [bind1(self, tangents[0], x, **params)]

    def transpose(self, cts, t, x, *, largest, window_dimensions, window_strides, padding, base_dilation,
                  window_dilation):
        if any(d != 1 for d in (*base_dilation, *window_dilation)):
            raise NotImplementedError("reverse-mode gradient of a dilated windowed max or min")
        return [select_and_scatter_add(cts[0], x, largest, window_dimensions, window_strides, padding), None]

    def vmap(self, axis, args, dims, **params):
        xs, params = self.batched(axis, args, dims, params)
        return bind(self, *xs, **params), [0]

    def lower(self, e, ins, outs, t, x, *, largest, **params):
        value, tangent = ShapedArray((), ins[1].dtype), ShapedArray((), ins[0].dtype)

        def choose(a, da, b, db):
            pick = (ew.ge if largest else ew.le)(a, b)
            pick = ew.bitwise_or(pick, ew.ne(a, a)) if kind(value.dtype) == "f" else pick
            return [ew.select(pick, a, b), ew.select(pick, da, db)]
        body = e.region(choose, [value, tangent, value, tangent])
        inits = [e.splat((lowest if largest else highest)(value.dtype), value), e.splat(0, tangent)]
        both = [outs[0].update(dtype=value.dtype), outs[0]]
        return [self.text(e, [ins[1], ins[0]], both, [x, t], inits, body, **params)[1]]


select_and_gather_add_p = SelectAndGatherAdd()


class SelectAndScatterAdd(Window):
    """Add each element of source to the position of the largest (smallest) operand in its window."""
    name = "select_and_scatter_add"

    def infer(self, source, x, *, largest, window_dimensions, window_strides, padding):
        return [ShapedArray(x.shape, source.dtype)]

    def jvp(self, primals, tangents, **params):
        out = bind1(self, *primals, **params)
        if type(tangents[0]) is Zero:
            return [out], [Zero(tangent_aval(typeof(out)))]
        return [out], [bind1(self, tangents[0], primals[1], **params)]

    def transpose(self, cts, source, x, **params):
        ones = (1,) * len(params["window_dimensions"])
        return [bind1(select_and_gather_add_p, cts[0], x, base_dilation=ones, window_dilation=ones, **params)
                if is_linear(source) else None, None]

    def vmap(self, axis, args, dims, **params):
        xs, params = self.batched(axis, args, dims, params)
        return bind(self, *xs, **params), [0]

    def lower(self, e, ins, outs, source, x, *, largest, window_dimensions, window_strides, padding):
        """Padding is written out first: XLA's select_and_scatter then never chooses a padded position."""
        a, value = ins[1], ShapedArray((), ins[1].dtype)
        select = e.region(ew.ge if largest else ew.le, [value, value])
        scalar = ShapedArray((), ins[0].dtype)
        scatter = e.region(ew.add, [scalar, scalar])
        n = len(window_dimensions)
        pads = f"dense<{[list(p) for p in padding]}> : tensor<{n}x2xi64>"
        zero = e.splat(0, scalar)
        return [e.op(f'"stablehlo.select_and_scatter"({x}, {source}, {zero}) <{{padding = {pads}, window_dimensions = '
                     f"{i64s(window_dimensions)}, window_strides = {i64s(window_strides)}}}> {select[:-1]}, "
                     f"{scatter[1:]} : ({a.mlir}, {ins[0].mlir}, {scalar.mlir}) -> {outs[0].mlir}")]


select_and_scatter_add_p = SelectAndScatterAdd()


def select_and_scatter_add(source, operand, largest: bool, window_dimensions, window_strides, padding):
    """See SelectAndScatterAdd."""
    return bind1(select_and_scatter_add_p, source, operand, largest=largest, window_dimensions=tuple(window_dimensions),
                 window_strides=tuple(window_strides), padding=tuple(map(tuple, padding)))


class GeneralWindow(Window):
    """Windowed reduction of several operands by a user's computation."""
    multiple_results = True
    name = "reduce_window"

    def infer(self, *avals, jaxpr, **params):
        return Window.infer(self, *avals[:len(avals) // 2], **params)

    def jvp(self, primals, tangents, *, jaxpr, **params):
        from aot.transforms.jvp import instantiate_zero, jvp_jaxpr
        n = len(primals) // 2
        if all(type(t) is Zero for t in tangents):
            outs = bind(self, *primals, jaxpr=jaxpr, **params)
            return outs, [Zero(tangent_aval(typeof(o))) for o in outs]
        both, _ = jvp_jaxpr(jaxpr, [True] * (2 * n), True)
        v = both.invars
        body = Jaxpr([*v[:n], *v[2 * n:3 * n], *v[n:2 * n], *v[3 * n:]], both.eqns, both.outvars)
        ts = [instantiate_zero(t) for t in tangents]
        outs = bind(self, *primals[:n], *ts[:n], *primals[n:], *ts[n:], jaxpr=body, **params)
        return outs[:n], outs[n:]

    def vmap(self, axis, args, dims, *, jaxpr, **params):
        n = len(args) // 2
        if any(d is not None for d in dims[n:]):
            raise NotImplementedError("vmap of lax.reduce_window over its initial values")
        xs, params = self.batched(axis, args[:n], dims[:n], params)
        return bind(self, *xs, *args[n:], jaxpr=jaxpr, **params), [0] * n

    def lower(self, e, ins, outs, *xs, jaxpr, **params):
        n = len(outs)
        return self.text(e, ins[:n], outs, xs[:n], xs[n:], e.region(jaxpr, jaxpr.in_avals), **params)


reduce_window_p = GeneralWindow()
_MONOIDS = {"add": (reduce_window_sum_p, lambda d: 0), "max": (reduce_window_max_p, lowest),
            "min": (reduce_window_min_p, highest)}


def _is_identity(init, value, dtype) -> bool:
    try:
        got = np.asarray(init)
    except Exception:
        return False
    return got.shape == () and bool(got == np.asarray(value).astype(dtype))


def reduce_window(operand: Any, init_value: Any, computation: Callable, window_dimensions: Sequence[int],
                  window_strides: Sequence[int] | None = None, padding: Any = "VALID",
                  base_dilation: Sequence[int] | None = None, window_dilation: Sequence[int] | None = None):
    """Reduce each window of operand (an array or tree) with computation, starting from init_value.

    Strides and dilations are 1 where they are not given."""
    from aot.tree_util import tree_flatten
    xs, tree = tree_flatten(operand)
    inits, init_tree = tree_flatten(init_value)
    if tree != init_tree or not xs:
        raise ValueError(f"reduce_window operands and init_values must have the same tree structure: {tree} vs {init_tree}")
    n = typeof(xs[0]).ndim
    base = tuple(base_dilation or (1,) * n)
    dilation = tuple(window_dilation or (1,) * n)
    window, strides = tuple(window_dimensions), tuple(window_strides or (1,) * n)
    span = [dilate(w, d) for w, d in zip(window, dilation)]
    pads = tuple(padtype_to_pads(typeof(xs[0]).shape, span, strides, padding))
    params = dict(window_dimensions=window, window_strides=strides, padding=pads, base_dilation=base,
                  window_dilation=dilation)
    scalars = [ShapedArray((), typeof(x).dtype) for x in xs]
    jaxpr, captured = stage(lambda *v: tree_flatten(computation(tree.unflatten(v[:len(xs)]),
                                                                tree.unflatten(v[len(xs):])))[0],
                            [*scalars, *scalars], "reduce_window")
    if captured:
        raise TypeError("the computation of reduce_window must not close over traced values")
    name = monoid_of(jaxpr) if len(xs) == 1 else None
    if name in _MONOIDS and _is_identity(inits[0], _MONOIDS[name][1](scalars[0].dtype), scalars[0].dtype):
        return tree.unflatten(bind(_MONOIDS[name][0], xs[0], **params))
    inits = [ew.convert(i, a.dtype) if not hasattr(i, "aval") else i for i, a in zip(inits, scalars)]
    return tree.unflatten(bind(reduce_window_p, *xs, *inits, jaxpr=jaxpr, **params))


__all__ = ["padtype_to_pads", "reduce_window"]
