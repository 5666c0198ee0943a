"""Reductions, argmin/argmax, cumulative operations, and the general reduce."""
from __future__ import annotations

import operator
from typing import Any, Callable, Sequence

import numpy as np

from aot import dtypes
from aot.ops import elementwise as ew
from aot.ops.families import LinearOp, NonDifferentiable, Primitive, check_dtype, in_lax, kind, lit
from aot.ops.shape import broadcast_in_dim, canonical_axis, concatenate, full_like, moveaxis, pad, reshape, rev
from aot.ops.slicing import slice_in_dim
from aot.trace import Jaxpr, ShapedArray, Zero, bind, bind1, stage, tangent_aval, typeof


def lowest(dtype) -> Any:
    """The identity of max."""
    k = kind(dtype)
    return False if k == "b" else dtypes.iinfo(dtype).min if k in "iu" else (
        -np.inf if dtypes.supports_inf(dtype) else dtypes.finfo(dtype).min)


def highest(dtype) -> Any:
    """The identity of min."""
    k = kind(dtype)
    return True if k == "b" else dtypes.iinfo(dtype).max if k in "iu" else (
        np.inf if dtypes.supports_inf(dtype) else dtypes.finfo(dtype).max)


def removed(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    return tuple([n for i, n in enumerate(shape) if i not in axes])


def kept(ndim: int, axes: Sequence[int]) -> tuple[int, ...]:
    return tuple([i for i in range(ndim) if i not in axes])


class Reduce(Primitive):
    """Combine all elements along `axes` with one associative operation."""

    def __init__(self, name: str, hlo: str, identity: Callable, accepts: str):
        self.name, self.hlo, self.identity, self.accepts = name, hlo, identity, accepts

    def infer(self, x, *, axes, **_):
        check_dtype(self.name, self.accepts, x)
        if len(set(axes)) != len(axes):
            raise ValueError(f"duplicate value in 'axes' of reduction: {axes}")
        if not all(0 <= a < x.ndim for a in axes):
            raise ValueError(f"reduction axes {axes} contains out-of-bounds indices for {x}.")
        return [ShapedArray(removed(x.shape, axes), x.dtype, x.weak_type)]

    def vmap(self, axis, args, dims, *, axes, **params):
        d, = dims
        moved = tuple(a + (a >= d) for a in axes)
        return bind(self, *args, axes=moved, **params), [d - sum(a < d for a in moved)]

    def lower(self, e, ins, outs, x, *, axes, **_):
        a = ins[0]
        if not axes:
            return [x]
        init = e.splat(self.identity(a.dtype), ShapedArray((), a.dtype))
        dims = ", ".join(map(str, axes))
        return [e.op(f"stablehlo.reduce({x} init: {init}) applies stablehlo.{self.hlo} across dimensions = [{dims}] : "
                     f"({a.mlir}, {a.element}) -> {outs[0].mlir}")]


class ReduceSum(Reduce, LinearOp):
    def transpose(self, cts, x, *, axes, **_):
        return [broadcast_in_dim(cts[0], x.aval.shape, kept(x.aval.ndim, axes))]


class ReduceChooser(Reduce):
    """max and min: the tangent of the chosen element; ties share it equally."""

    def jvp(self, primals, tangents, *, axes, **params):
        (x,), (t,) = primals, tangents
        y = bind1(self, x, axes=axes, **params)
        if type(t) is Zero:
            return [y], [Zero(tangent_aval(typeof(y)))]
        shape = typeof(x).shape
        chosen = ew.eq(x, broadcast_in_dim(y, shape, kept(len(shape), axes)))
        where = ew.convert(chosen, typeof(t).dtype)
        return [y], [ew.div(reduce_sum(ew.mul(t, where), axes), reduce_sum(where, axes))]


class ReduceProd(Reduce):
    def jvp(self, primals, tangents, *, axes, **params):
        (x,), (t,) = primals, tangents
        y = bind1(self, x, axes=axes, **params)
        if type(t) is Zero:
            return [y], [Zero(tangent_aval(typeof(y)))]
        flat = _axes_last(x, axes)
        n = typeof(flat).ndim - 1
        others = ew.mul(_exclusive_cumprod(flat, n, False), _exclusive_cumprod(flat, n, True))
        return [y], [reduce_sum(ew.mul(_axes_last(t, axes), others), (n,))]


def _axes_last(x, axes):
    """Move `axes` to the end and join them into one."""
    from aot.ops.shape import transpose
    shape = typeof(x).shape
    keep = kept(len(shape), axes)
    x = transpose(x, (*keep, *axes))
    return reshape(x, (*[shape[i] for i in keep], int(np.prod([shape[i] for i in axes], dtype=int))))


def _exclusive_cumprod(x, axis, reverse):
    n = typeof(x).shape[axis]
    config = [(0, 0, 0)] * typeof(x).ndim
    config[axis] = (-1, 1, 0) if reverse else (1, -1, 0)
    shifted = pad(x, lit(x, 1), config) if n else x
    return cumprod(shifted, axis, reverse)


class ReduceBits(Reduce, NonDifferentiable):
    pass


#                                 name         StableHLO   identity
reduce_sum_p = ReduceSum("reduce_sum", "add", lambda d: 0, "fciu")
reduce_prod_p = ReduceProd("reduce_prod", "multiply", lambda d: 1, "fciu")
reduce_max_p = ReduceChooser("reduce_max", "maximum", lowest, "fciub")
reduce_min_p = ReduceChooser("reduce_min", "minimum", highest, "fciub")
reduce_and_p = ReduceBits("reduce_and", "and", lambda d: True if kind(d) == "b" else -1 if kind(d) == "i"
                          else dtypes.iinfo(d).max, "iub")
reduce_or_p = ReduceBits("reduce_or", "or", lambda d: 0, "iub")
reduce_xor_p = ReduceBits("reduce_xor", "xor", lambda d: 0, "iub")


def _reducer(prim, what: str):
    def f(operand, axes, **_):
        axes = tuple([operator.index(a) for a in axes])
        ndim = typeof(operand).ndim
        if any(a < 0 for a in axes):
            axes = tuple(canonical_axis(a, ndim) for a in axes)
        return bind1(prim, operand, axes=axes) if axes or not hasattr(operand, "aval") else operand
    return in_lax(f, prim.name, f"{what} over the dimensions `axes`, which the result lacks.")


reduce_sum = _reducer(reduce_sum_p, "Sum")
reduce_prod = _reducer(reduce_prod_p, "Product")
reduce_max = _reducer(reduce_max_p, "Maximum (NaN if any element is)")
reduce_min = _reducer(reduce_min_p, "Minimum (NaN if any element is)")
reduce_and = _reducer(reduce_and_p, "Bitwise and")
reduce_or = _reducer(reduce_or_p, "Bitwise or")
reduce_xor = _reducer(reduce_xor_p, "Bitwise exclusive or")


# ---- argmin, argmax ----------------------------------------------------------------------------------------------

class ArgChooser(NonDifferentiable):
    """Index of the extreme element along one axis: the first among equals, and the first NaN before all."""

    def __init__(self, name: str, better: str, identity: Callable):
        self.name, self.better, self.identity = name, better, identity

    def infer(self, x, *, axes, index_dtype):
        check_dtype(self.name, "fiub", x)
        axis, = axes
        if not 0 <= axis < x.ndim:
            raise ValueError(f"Invalid axis {axis} for operand shape {x.shape}")
        if x.shape[axis] < 1:
            raise ValueError(f"attempt to get {self.name} of an empty sequence")
        if kind(index_dtype) not in "iu":
            raise TypeError(f"index_dtype must be an integer type, but got {index_dtype.name}.")
        return [ShapedArray(removed(x.shape, axes), index_dtype)]

    def vmap(self, axis, args, dims, *, axes, index_dtype):
        d, = dims
        moved = tuple(a + (a >= d) for a in axes)
        return bind(self, *args, axes=moved, index_dtype=index_dtype), [d - sum(a < d for a in moved)]

    def lower(self, e, ins, outs, x, *, axes, index_dtype):
        a, out = ins[0], outs[0]
        at = ShapedArray(a.shape, index_dtype)
        index = e.op(f"stablehlo.iota dim = {axes[0]} : {at.mlir}")
        value, position = ShapedArray((), a.dtype), ShapedArray((), index_dtype)
        body = e.region(self._choose, [value, position, value, position])
        inits = [e.splat(self.identity(a.dtype), value), e.splat(0, position)]
        outs_text = f"({out.update(dtype=a.dtype).mlir}, {out.mlir})"
        return [e.ops(f'"stablehlo.reduce"({x}, {index}, {", ".join(inits)}) {body_attr(body, axes)} : '
                      f"({a.mlir}, {at.mlir}, {value.mlir}, {position.mlir}) -> {outs_text}", 2)[1]]

    def _choose(self, x, i, y, j):
        better = getattr(ew, self.better)
        pick = better(x, y)
        if kind(typeof(x).dtype) == "f":
            pick = ew.bitwise_or(pick, ew.ne(x, x))
        same = ew.eq(x, y)
        first = ew.bitwise_or(pick, ew.bitwise_and(same, ew.lt(i, j)))
        return [ew.select(pick, x, y), ew.select(first, i, j)]


def body_attr(body: str, axes: Sequence[int]) -> str:
    """The attribute and region part of a generic stablehlo.reduce."""
    return f"<{{dimensions = array<i64: {', '.join(map(str, axes))}>}}> {body}" if axes else (
        f"<{{dimensions = array<i64>}}> {body}")


argmax_p = ArgChooser("argmax", "gt", lowest)
argmin_p = ArgChooser("argmin", "lt", highest)


def argmax(operand, axis: int, index_dtype):
    """Index of the largest element along axis."""
    return bind1(argmax_p, operand, axes=(canonical_axis(axis, typeof(operand).ndim),),
                 index_dtype=dtypes.canonicalize_dtype(dtypes.dtype(index_dtype)))


def argmin(operand, axis: int, index_dtype):
    """Index of the smallest element along axis."""
    return bind1(argmin_p, operand, axes=(canonical_axis(axis, typeof(operand).ndim),),
                 index_dtype=dtypes.canonicalize_dtype(dtypes.dtype(index_dtype)))


# ---- cumulative --------------------------------------------------------------------------------------------------

class Cumulative(Primitive):
    """Running reduction along one axis, forwards or (reverse) backwards."""

    def __init__(self, name: str, combine: Callable, identity: Callable, accepts: str, hlo: str):
        self.name, self.combine, self.identity, self.accepts, self.hlo = name, combine, identity, accepts, hlo

    def infer(self, x, *, axis, reverse):
        check_dtype(self.name, self.accepts, x)
        if not 0 <= axis < x.ndim:
            raise ValueError(f"axis {axis} is out of bounds for array of shape {x.shape}")
        return [x]

    def jvp(self, primals, tangents, *, axis, reverse):
        from aot.transforms.jvp import jvp_flat
        if type(tangents[0]) is Zero:
            return bind(self, *primals, axis=axis, reverse=reverse), list(tangents)
        return jvp_flat(lambda x: [cumulative_tree(self.combine, x, axis, reverse)], primals, tangents)

    def vmap(self, axis_data, args, dims, *, axis, reverse):
        d, = dims
        return bind(self, *args, axis=axis + (axis >= d), reverse=reverse), [d]

    def lower(self, e, ins, outs, x, *, axis, reverse):
        n = ins[0].shape[axis]
        if n * ins[0].size == 0:
            return [x]
        if n > 32 or self.hlo == "":
            return e.inline(lambda v: cumulative_tree(self.combine, v, axis, reverse), ins, (x,))
        return [self._window(e, ins[0], x, axis, reverse, n)]

    def _window(self, e, a, x, axis, reverse, n):
        scalar = ShapedArray((), a.dtype)
        init = e.splat(self.identity(a.dtype), scalar)
        body = e.region(lambda p, q: self.combine(p, q), [scalar, scalar])
        window = [n if i == axis else 1 for i in range(a.ndim)]
        padding = [([0, n - 1] if reverse else [n - 1, 0]) if i == axis else [0, 0] for i in range(a.ndim)]
        return e.op(f'"stablehlo.reduce_window"({x}, {init}) <{{window_dimensions = array<i64: '
                    f'{", ".join(map(str, window))}>, padding = dense<{padding}> : tensor<{a.ndim}x2xi64>}}> {body} : '
                    f"({a.mlir}, {scalar.mlir}) -> {a.mlir}")


class CumSum(Cumulative, LinearOp):
    def jvp(self, primals, tangents, **params): return LinearOp.jvp(self, primals, tangents, **params)

    def transpose(self, cts, x, *, axis, reverse): return bind(self, *cts, axis=axis, reverse=not reverse)


def cumulative_tree(combine: Callable, x, axis: int, reverse: bool):
    """Running reduction in O(n) work and O(log n) depth: combine pairs, scan those, fill in between."""
    if reverse:
        return rev(cumulative_tree(combine, rev(x, (axis,)), axis, False), (axis,))
    n = typeof(x).shape[axis]
    if n < 2:
        return x
    cut = lambda lo, hi, s: slice_in_dim(x, lo, hi, s, axis)
    odd = cumulative_tree(combine, combine(cut(0, n - 1, 2), cut(1, n, 2)), axis, False)
    inner = slice_in_dim(odd, 0, (n - 1) // 2, 1, axis) if n > 2 else None
    first = cut(0, 1, 1)
    even = first if inner is None else concatenate([first, combine(inner, cut(2, n, 2))], axis)
    return interleave(even, odd, axis)


def interleave(a, b, axis: int):
    """a0 b0 a1 b1 ... along axis; a has as many elements as b, or one more."""
    na, nb = typeof(a).shape[axis], typeof(b).shape[axis]
    config = lambda lo, hi: [(lo, hi, 1) if i == axis else (0, 0, 0) for i in range(typeof(a).ndim)]
    zero = np.zeros((), typeof(a).dtype)[()]
    if kind(typeof(a).dtype) == "b":
        zero = np.bool_(False)
        return ew.bitwise_or(pad(a, zero, config(0, 1 if na == nb else 0)), pad(b, zero, config(1, 0 if na == nb else 1)))
    return ew.add(pad(a, zero, config(0, 1 if na == nb else 0)), pad(b, zero, config(1, 0 if na == nb else 1)))


def _logaddexp(a, b):
    m = ew.max(a, b)
    safe = ew.select(ew.is_finite(m), m, full_like(m, 0))
    return ew.add(ew.log(ew.add(ew.exp(ew.sub(a, safe)), ew.exp(ew.sub(b, safe)))), safe)


cumsum_p = CumSum("cumsum", ew.add, lambda d: 0, "fciu", "add")
cumprod_p = Cumulative("cumprod", ew.mul, lambda d: 1, "fciu", "multiply")
cummax_p = Cumulative("cummax", ew.max, lowest, "fciu", "maximum")
cummin_p = Cumulative("cummin", ew.min, highest, "fciu", "minimum")
cumlogsumexp_p = Cumulative("cumlogsumexp", _logaddexp, lowest, "f", "")


def _cumulative(prim, what):
    def f(operand, axis: int = 0, reverse: bool = False):
        return bind1(prim, operand, axis=canonical_axis(axis, typeof(operand).ndim), reverse=bool(reverse))
    return in_lax(f, prim.name, f"Running {what} along axis.")


cumsum = _cumulative(cumsum_p, "sum")
cumprod = _cumulative(cumprod_p, "product")
cummax = _cumulative(cummax_p, "maximum")
cummin = _cumulative(cummin_p, "minimum")
cumlogsumexp = _cumulative(cumlogsumexp_p, "log-sum-exp")


# ---- general reduce ----------------------------------------------------------------------------------------------

class GeneralReduce(Primitive):
    """Reduce several operands at once with a user's computation: (accumulators, elements) -> accumulators."""
    multiple_results = True
    name = "reduce"

    def infer(self, *avals, computation, jaxpr, dimensions):
        n = len(avals) // 2
        return [ShapedArray(removed(x.shape, dimensions), x.dtype, x.weak_type) for x in avals[:n]]

    def jvp(self, primals, tangents, *, computation, jaxpr, dimensions):
        n = len(primals) // 2
        if all(type(t) is Zero for t in tangents):
            outs = bind(self, *primals, computation=computation, jaxpr=jaxpr, dimensions=dimensions)
            return outs, [Zero(tangent_aval(typeof(o))) for o in outs]
        from aot.transforms.jvp import jvp_flat
        return jvp_flat(lambda *xs: reduce_by_tree(jaxpr, xs[:n], xs[n:], dimensions), primals, tangents)

    def vmap(self, axis, args, dims, *, computation, jaxpr, dimensions):
        from aot.transforms.vmap import to_dim
        n = len(args) // 2
        if any(d is not None for d in dims[n:]):
            raise NotImplementedError("vmap of lax.reduce over its initial values; hint: combine them afterwards")
        xs = [to_dim(axis, x, d, 0) for x, d in zip(args[:n], dims)]
        outs = bind(self, *xs, *args[n:], computation=computation, jaxpr=jaxpr,
                    dimensions=tuple(d + 1 for d in dimensions))
        return outs, [0] * n

    def lower(self, e, ins, outs, *xs, computation, jaxpr, dimensions):
        body = e.region(jaxpr, jaxpr.in_avals)
        types = ", ".join(a.mlir for a in ins)
        results = ", ".join(a.mlir for a in outs)
        return e.ops(f'"stablehlo.reduce"({", ".join(xs)}) {body_attr(body, dimensions)} : ({types}) -> ({results})',
                     len(outs))


reduce_p = GeneralReduce()


def reduce_by_tree(jaxpr: Jaxpr, xs: Sequence, inits: Sequence, dimensions: Sequence[int]) -> list:
    """The same reduction by halving, for differentiation."""
    from aot.trace import eval_jaxpr
    from aot.transforms.vmap import Axis, vmap_flat
    xs = [moveaxis(_axes_last(x, tuple(dimensions)), -1 % (typeof(x).ndim - len(dimensions) + 1), 0) for x in xs]
    rank = typeof(xs[0]).ndim

    def combine(a, b):
        def scalar(*v): return eval_jaxpr(jaxpr, v)
        f = scalar
        for _ in range(rank):
            f = (lambda g: lambda *v: list(vmap_flat(g, Axis(typeof(v[0]).shape[0]), v, [0] * len(v))[0]))(f)
        return f(*a, *b)
    n = typeof(xs[0]).shape[0]
    while n > 1:
        half = n // 2
        pairs = combine([slice_in_dim(x, 0, half) for x in xs], [slice_in_dim(x, half, 2 * half) for x in xs])
        xs = [concatenate([p, slice_in_dim(x, 2 * half, n)], 0) if n % 2 else p for p, x in zip(pairs, xs)]
        n = half + n % 2
    heads = [broadcast_in_dim(i, (1, *typeof(x).shape[1:]), ()) for i, x in zip(inits, xs)]
    return [reshape(o, typeof(o).shape[1:]) for o in (combine(heads, xs) if n else heads)]


_MONOIDS = {"add": reduce_sum, "mul": reduce_prod, "max": reduce_max, "min": reduce_min, "and": reduce_and,
            "or": reduce_or, "xor": reduce_xor}


def monoid_of(jaxpr: Jaxpr) -> str | None:
    """The name of the one elementwise operation that jaxpr is, if it is one."""
    if len(jaxpr.eqns) != 1 or jaxpr.outvars != jaxpr.eqns[0].outvars or len(jaxpr.invars) != 2:
        return None
    e = jaxpr.eqns[0]
    return e.primitive.name if set(e.invars) == set(jaxpr.invars) and e.primitive.name in _MONOIDS else None


def reduce(operands: Any, init_values: Any, computation: Callable, dimensions: Sequence[int], out_sharding=None):
    """Reduce trees of equally shaped arrays along `dimensions` with computation(accumulator, element)."""
    from aot.ops.shape import placed
    from aot.tree_util import tree_flatten
    xs, tree = tree_flatten(operands)
    inits, init_tree = tree_flatten(init_values)
    if tree != init_tree:
        raise ValueError(f"Operands must have the same tree structure as init_values: {tree} vs. {init_tree}")
    if len(xs) != len(inits):
        raise ValueError(f"Must have same total number of operands as init_values:  {len(xs)} vs. {len(inits)}")
    inits = [ew.convert(i, typeof(x).dtype) if not hasattr(i, "aval") else i for i, x in zip(inits, xs)]
    scalars = [ShapedArray((), typeof(x).dtype) for x in xs]

    def flat(*vals):
        n = len(xs)
        out = computation(tree.unflatten(vals[:n]), tree.unflatten(vals[n:]))
        return tree_flatten(out)[0]
    jaxpr, captured = stage(flat, [*scalars, *scalars], getattr(computation, "__name__", ""))
    if captured:
        raise TypeError("the computation of lax.reduce must not close over traced values")
    dims = tuple(canonical_axis(d, typeof(xs[0]).ndim) for d in dimensions)
    name = monoid_of(jaxpr) if len(xs) == 1 else None
    if name is not None:
        out = _MONOIDS[name](xs[0], dims)
        outs = [jaxpr_pair(jaxpr, inits[0], out)]
    else:
        outs = bind(reduce_p, *xs, *inits, computation=None, jaxpr=jaxpr, dimensions=dims)
    return placed(tree.unflatten(outs), out_sharding)


def jaxpr_pair(jaxpr: Jaxpr, init, x):
    """Combine a scalar initial value with a reduced array, elementwise."""
    from aot.ops.shape import broadcast_to
    prim = jaxpr.eqns[0].primitive
    return bind1(prim, broadcast_to(init, typeof(x).shape), x)


