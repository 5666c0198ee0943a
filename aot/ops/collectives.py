"""Communication over named axes: psum and its relatives, axis_index.  Under vmap they are ordinary array operations
on the mapped dimension."""
from __future__ import annotations

import operator
from typing import Any, Callable, Sequence

import numpy as np

from aot.ops import elementwise as ew
from aot.ops.families import kind
from aot.ops.reductions import reduce_max, reduce_min, reduce_sum
from aot.ops.shape import broadcast_to, broadcasted_iota, canonical_axis, concatenate, moveaxis, reshape, zeros
from aot.ops.slicing import index_in_dim, split
from aot.trace import Primitive, ShapedArray, Zero, bind, bind1, state, tangent_aval, typeof
from aot.tree_util import tree_map


def axis_names(axis_name: Any) -> tuple:
    return tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)


def size_of(name: Any) -> int:
    """The size of a bound axis name, or NameError."""
    try:
        return state.axes[name]
    except (KeyError, TypeError):
        raise NameError(f"Found an unbound axis name: {name}. hint: collectives work inside vmap(..., axis_name={name!r}), "
                        "shard_map or pmap with that axis name") from None


class Collective(Primitive):
    """Works over the axes in params['axes']; asked also about values that are not batched."""
    batch_consts = True

    def uses_axis(self, name, params): return name is not None and name in params["axes"]

    def infer(self, x, *, axes, **params):
        for a in axes:
            size_of(a)
        return [x]

    def jvp(self, primals, tangents, **params):
        out = bind1(self, *primals, **params)
        if type(tangents[0]) is Zero:
            return [out], [Zero(tangent_aval(typeof(out)))]
        return [out], [bind1(self, tangents[0], **params)]

    def vmap(self, axis, args, dims, *, axes, **params):
        """Over another axis: shift positions; over this one: the operation itself on the mapped dimension."""
        x, d = args[0], dims[0]
        if axis.name not in axes:
            return self.shifted(x, d, axes=axes, **params)
        rest = tuple(a for a in axes if a != axis.name)
        if d is None:
            x, d = self.replicate(axis, x), 0
        x, d = self.mapped(axis, x, d, axes=axes, **params)
        if not rest:
            return [x], [d]
        if d is None:
            return bind(self, x, axes=rest, **params), [None]
        raise NotImplementedError(f"{self.name} over several axes under vmap")

    def replicate(self, axis, x): return broadcast_to(x, (axis.size, *typeof(x).shape))

    def shifted(self, x, d, **params): return bind(self, x, **params), [d]

    def mapped(self, axis, x, d, **params) -> tuple: raise self.missing("mapped")

    def lower(self, e, ins, outs, *xs, axes, **params):
        if e.manual is None:
            raise NotImplementedError(f"{self.name} over axes {axes} outside vmap, shard_map and pmap; hint: use it inside one "
                                      "of them, with that axis name")
        return self.communicate(e, ins, outs, *xs, axes=axes, **params)

    def communicate(self, e, ins, outs, *xs, **params) -> list[str]:
        """The StableHLO collective, inside shard_map."""
        raise self.missing("communicate")

    def evaluate(self, args, params):
        for a in params["axes"]:
            size_of(a)
        raise self.missing("evaluate")


class AllReduce(Collective):
    def __init__(self, name: str, reduce: Callable, combine: Callable):
        self.name, self.reduce, self.combine = name, reduce, combine

    def communicate(self, e, ins, outs, x, *, axes, axis_index_groups=None):
        from aot.ops.spmd import CHANNEL, groups_text, replica_groups
        scalar = ShapedArray((), ins[0].dtype)
        body = e.region(self.combine, [scalar, scalar])
        return [e.op(f'"stablehlo.all_reduce"({x}) <{{{CHANNEL}, replica_groups = '
                     f"{groups_text(replica_groups(e, axes, axis_index_groups))}, use_global_device_ids}}> {body} : "
                     f"({ins[0].mlir}) -> {outs[0].mlir}")]

    def mapped(self, axis, x, d, *, axes, axis_index_groups=None):
        if axis_index_groups is None:
            return self.reduce(x, (d,)), None
        x = moveaxis(x, d, 0)
        rows: list[Any] = [None] * axis.size
        for group in axis_index_groups:
            total = self.reduce(concatenate([index_in_dim(x, i) for i in group], 0), (0,))
            for i in group:
                rows[i] = reshape(total, (1, *typeof(total).shape))
        return concatenate(rows, 0), 0

    def transpose(self, cts, x, **params): return [bind1(self, cts[0], **params)]


class AllReduceExtreme(AllReduce):
    linear = False

    def jvp(self, primals, tangents, **params):
        (x,), (t,) = primals, tangents
        out = bind1(self, x, **params)
        if type(t) is Zero:
            return [out], [Zero(tangent_aval(typeof(out)))]
        mine = ew.convert(ew.eq(x, out), typeof(t).dtype)
        return [out], [ew.div(bind1(psum_p, ew.mul(t, mine), **params), bind1(psum_p, mine, **params))]


psum_p = AllReduce("psum", reduce_sum, ew.add)
pmax_p = AllReduceExtreme("pmax", reduce_max, ew.max)
pmin_p = AllReduceExtreme("pmin", reduce_min, ew.min)


def _groups(groups) -> Any:
    return None if groups is None else tuple(tuple(int(i) for i in g) for g in groups)


def psum(x: Any, axis_name: Any, *, axis_index_groups=None):
    """Sum over the named axes, for every leaf of x; the psum of a constant is the constant times the axis size."""
    axes, groups = axis_names(axis_name), _groups(axis_index_groups)

    def one(leaf):
        if isinstance(leaf, (bool, int, float, complex)):
            n = len(groups[0]) if groups else int(np.prod([size_of(a) for a in axes]))
            return leaf * n
        if kind(typeof(leaf).dtype) == "b":
            leaf = ew.convert(leaf, np.dtype("int32"))
        return bind1(psum_p, leaf, axes=axes, axis_index_groups=groups)
    return tree_map(one, x)


def pmean(x: Any, axis_name: Any, *, axis_index_groups=None):
    """Mean over the named axes."""
    total = psum(x, axis_name, axis_index_groups=axis_index_groups)
    n = psum(1, axis_name, axis_index_groups=axis_index_groups)

    def mean(v):
        from aot import dtypes
        a = typeof(v)
        v = v if kind(a.dtype) in "fc" else ew.convert(v, dtypes.to_inexact_dtype(a.dtype))
        return ew.div(v, ew.lit(v, n)) if not isinstance(v, (int, float)) else v / n
    return tree_map(mean, total)


def pmax(x: Any, axis_name: Any, *, axis_index_groups=None):
    """Maximum over the named axes."""
    return _each(pmax_p, x, axes=axis_names(axis_name), axis_index_groups=_groups(axis_index_groups))


def pmin(x: Any, axis_name: Any, *, axis_index_groups=None):
    """Minimum over the named axes."""
    return _each(pmin_p, x, axes=axis_names(axis_name), axis_index_groups=_groups(axis_index_groups))


def _each(prim, x, **params): return tree_map(lambda leaf: bind1(prim, leaf, **params), x)


class AxisIndex(Collective):
    name = "axis_index"

    def infer(self, *, axes):
        size_of(axes[0])
        return [ShapedArray((), np.dtype("int32"))]

    def jvp(self, primals, tangents, *, axes):
        out = bind1(self, axes=axes)
        return [out], [Zero(tangent_aval(typeof(out)))]

    def vmap(self, axis, args, dims, *, axes):
        return [broadcasted_iota(np.dtype("int32"), (axis.size,), 0)], [0]


    def communicate(self, e, ins, outs, *, axes):
        from aot.ops.spmd import position_text
        return [position_text(e, axes[0])]


axis_index_p = AxisIndex()


def axis_index(axis_name: Any):
    """The position along a named axis (row-major over several)."""
    index: Any = None
    for a in axis_names(axis_name):
        i = bind1(axis_index_p, axes=(a,))
        index = i if index is None else ew.add(ew.mul(index, np.int32(size_of(a))), i)
    return index


def axis_size(axis_name: Any) -> int:
    """The size of a named axis, as a Python int."""
    return int(np.prod([size_of(a) for a in axis_names(axis_name)]))


class Ppermute(Collective):
    """Send to perm's destinations; positions that receive nothing get zeros."""
    name = "ppermute"

    def mapped(self, axis, x, d, *, axes, perm):
        x = moveaxis(x, d, 0)
        source = {dst: src for src, dst in perm}
        if len(source) != len(perm):
            raise ValueError(f"ppermute sources and destinations must be unique, got {perm}.")
        nothing = zeros(typeof(index_in_dim(x, 0)))
        return concatenate([index_in_dim(x, source[i]) if i in source else nothing for i in range(axis.size)], 0), 0

    def transpose(self, cts, x, *, axes, perm):
        return [bind1(self, cts[0], axes=axes, perm=tuple((b, a) for a, b in perm))]


    def communicate(self, e, ins, outs, x, *, axes, perm):
        from aot.ops.spmd import CHANNEL, replica_groups
        pairs = [[int(row[a]), int(row[b])] for row in replica_groups(e, axes) for a, b in perm]
        text = f"dense<{pairs}> : tensor<{len(pairs)}x2xi64>" if pairs else "dense<> : tensor<0x2xi64>"
        return [e.op(f'"stablehlo.collective_permute"({x}) <{{{CHANNEL}, source_target_pairs = {text}}}> : '
                     f"({ins[0].mlir}) -> {outs[0].mlir}")]


ppermute_p = Ppermute()


def ppermute(x: Any, axis_name: Any, perm: Sequence[tuple[int, int]]):
    """Move values along a named axis by (source, destination) pairs."""
    return _each(ppermute_p, x, axes=axis_names(axis_name), perm=tuple((int(a), int(b)) for a, b in perm))


def pshuffle(x: Any, axis_name: Any, perm: Sequence[int]):
    """result[i] = x[perm[i]] along a named axis."""
    if set(perm) != set(range(len(perm))):
        raise ValueError(f"`perm` does not represent a permutation: {perm}")
    return ppermute(x, axis_name, [(src, dst) for dst, src in enumerate(perm)])


class AllGather(Collective):
    name = "all_gather"

    def infer(self, x, *, axes, dimension, tiled, axis_index_groups=None):
        n = len(axis_index_groups[0]) if axis_index_groups else int(np.prod([size_of(a) for a in axes]))
        s = x.shape
        shape = (*s[:dimension], s[dimension] * n, *s[dimension + 1:]) if tiled else (*s[:dimension], n, *s[dimension:])
        return [ShapedArray(shape, x.dtype, x.weak_type)]

    def shifted(self, x, d, *, dimension, tiled, **params):
        at = dimension + (dimension >= d if tiled else dimension > d)
        out = bind(self, x, dimension=at, tiled=tiled, **params)
        return out, [d + (not tiled and at <= d)]

    def mapped(self, axis, x, d, *, axes, dimension, tiled, axis_index_groups=None):
        if axis_index_groups is not None:
            raise NotImplementedError("all_gather with axis_index_groups under vmap")
        out = moveaxis(x, d, dimension)
        if tiled:
            s = typeof(out).shape
            out = reshape(out, (*s[:dimension], s[dimension] * s[dimension + 1], *s[dimension + 2:]))
        return out, None

    def transpose(self, cts, x, *, axes, dimension, tiled, axis_index_groups=None):
        return [bind1(psum_scatter_p, cts[0], axes=axes, dimension=dimension, tiled=tiled,
                      axis_index_groups=axis_index_groups)]


    def communicate(self, e, ins, outs, x, *, axes, dimension, tiled, axis_index_groups=None):
        from aot.ops.spmd import CHANNEL, groups_text, replica_groups
        a, rows = ins[0], replica_groups(e, axes, axis_index_groups)
        if not tiled:
            a = a.update(shape=(*a.shape[:dimension], 1, *a.shape[dimension:]))
            x = e.op(f"stablehlo.reshape {x} : ({ins[0].mlir}) -> {a.mlir}")
        return [e.op(f'"stablehlo.all_gather"({x}) <{{all_gather_dim = {dimension} : i64, {CHANNEL}, replica_groups = '
                     f"{groups_text(rows)}, use_global_device_ids}}> : ({a.mlir}) -> {outs[0].mlir}")]


class PsumScatter(Collective):
    name = "reduce_scatter"

    def infer(self, x, *, axes, dimension, tiled, axis_index_groups=None):
        n = len(axis_index_groups[0]) if axis_index_groups else int(np.prod([size_of(a) for a in axes]))
        s = x.shape
        if s[dimension] % n or not tiled and s[dimension] != n:
            raise ValueError(f"reduce_scatter operand scatter dimension size {s[dimension]} must match or divide by the "
                             f"axis size {n}")
        mid = (s[dimension] // n,) if tiled else ()
        return [ShapedArray((*s[:dimension], *mid, *s[dimension + 1:]), x.dtype, x.weak_type)]

    def shifted(self, x, d, *, dimension, tiled, **params):
        at = dimension + (dimension >= d)
        out = bind(self, x, dimension=at, tiled=tiled, **params)
        return out, [d - (not tiled and at < d)]

    def mapped(self, axis, x, d, *, axes, dimension, tiled, axis_index_groups=None):
        if axis_index_groups is not None:
            raise NotImplementedError("psum_scatter with axis_index_groups under vmap")
        total = reduce_sum(x, (d,))
        if not tiled:
            return moveaxis(total, dimension, 0), 0
        s = typeof(total).shape
        total = reshape(total, (*s[:dimension], axis.size, s[dimension] // axis.size, *s[dimension + 1:]))
        return moveaxis(total, dimension, 0), 0

    def transpose(self, cts, x, *, axes, dimension, tiled, axis_index_groups=None):
        return [bind1(all_gather_p, cts[0], axes=axes, dimension=dimension, tiled=tiled,
                      axis_index_groups=axis_index_groups)]


    def communicate(self, e, ins, outs, x, *, axes, dimension, tiled, axis_index_groups=None):
        from aot.ops.spmd import CHANNEL, groups_text, replica_groups
        rows, out = replica_groups(e, axes, axis_index_groups), outs[0]
        wide = out if tiled else out.update(shape=(*out.shape[:dimension], 1, *out.shape[dimension:]))
        scalar = ShapedArray((), ins[0].dtype)
        y = e.op(f'"stablehlo.reduce_scatter"({x}) <{{{CHANNEL}, replica_groups = {groups_text(rows)}, scatter_dimension = '
                 f"{dimension} : i64, use_global_device_ids}}> {e.region(ew.add, [scalar, scalar])} : ({ins[0].mlir}) -> "
                 f"{wide.mlir}")
        return [y if tiled else e.op(f"stablehlo.reshape {y} : ({wide.mlir}) -> {out.mlir}")]


all_gather_p, psum_scatter_p = AllGather(), PsumScatter()


def all_gather(x: Any, axis_name: Any, *, axis_index_groups=None, axis: int = 0, tiled: bool = False,
               to: str = "varying"):
    """Every position's value, stacked (or, tiled, concatenated) at `axis`.

    to has no effect: types do not say over which axes values vary."""
    def one(leaf):
        ndim = typeof(leaf).ndim + (not tiled)
        return bind1(all_gather_p, leaf, axes=axis_names(axis_name), dimension=canonical_axis(axis, ndim), tiled=tiled,
                     axis_index_groups=_groups(axis_index_groups))
    return tree_map(one, x)


def psum_scatter(x: Any, axis_name: Any, *, scatter_dimension: int = 0, axis_index_groups=None, tiled: bool = False):
    """The sum over a named axis, each position keeping its part of scatter_dimension."""
    return tree_map(lambda leaf: bind1(psum_scatter_p, leaf, axes=axis_names(axis_name), tiled=tiled,
                                       dimension=canonical_axis(scatter_dimension, typeof(leaf).ndim),
                                       axis_index_groups=_groups(axis_index_groups)), x)


class AllToAll(Collective):
    """Split along one dimension over the axis and concatenate along another (both tiled)."""
    name = "all_to_all"

    def infer(self, x, *, axes, split_axis, concat_axis, axis_index_groups=None):
        n = int(np.prod([size_of(a) for a in axes]))
        if x.shape[split_axis] % n:
            raise ValueError(f"all_to_all requires the size of the split axis ({x.shape[split_axis]}) to be divisible by "
                             f"the axis size ({n})")
        shape = list(x.shape)
        shape[split_axis] //= n
        shape[concat_axis] *= n
        return [ShapedArray(tuple(shape), x.dtype, x.weak_type)]

    def shifted(self, x, d, *, split_axis, concat_axis, **params):
        return bind(self, x, split_axis=split_axis + (split_axis >= d), concat_axis=concat_axis + (concat_axis >= d),
                    **params), [d]

    def mapped(self, axis, x, d, *, axes, split_axis, concat_axis, axis_index_groups=None):
        if axis_index_groups is not None:
            raise NotImplementedError("all_to_all with axis_index_groups under vmap")
        x = moveaxis(x, d, 0)
        n = axis.size
        parts = split(x, [typeof(x).shape[split_axis + 1] // n] * n, split_axis + 1)       # parts[j][i]: from i to j
        rows = []
        for p in parts:
            joined = concatenate([index_in_dim(p, i, keepdims=False) for i in range(n)], concat_axis)
            rows.append(reshape(joined, (1, *typeof(joined).shape)))
        return concatenate(rows, 0), 0

    def transpose(self, cts, x, *, split_axis, concat_axis, **params):
        return [bind1(self, cts[0], split_axis=concat_axis, concat_axis=split_axis, **params)]


    def communicate(self, e, ins, outs, x, *, axes, split_axis, concat_axis, axis_index_groups=None):
        from aot.ops.spmd import CHANNEL, groups_text, replica_groups
        rows = replica_groups(e, axes, axis_index_groups)
        return [e.op(f'"stablehlo.all_to_all"({x}) <{{{CHANNEL}, concat_dimension = {concat_axis} : i64, replica_groups = '
                     f"{groups_text(rows)}, split_count = {rows.shape[1]} : i64, split_dimension = {split_axis} : i64}}> : "
                     f"({ins[0].mlir}) -> {outs[0].mlir}")]


all_to_all_p = AllToAll()


def all_to_all(x: Any, axis_name: Any, split_axis: int, concat_axis: int, *, axis_index_groups=None, tiled: bool = False):
    """Scatter split_axis over the named axis and gather the axis into concat_axis."""
    def one(leaf):
        ndim = typeof(leaf).ndim
        a, b = canonical_axis(split_axis, ndim), canonical_axis(concat_axis, ndim)
        params = dict(axes=axis_names(axis_name), axis_index_groups=_groups(axis_index_groups))
        if tiled:
            return bind1(all_to_all_p, leaf, split_axis=a, concat_axis=b, **params)
        n = axis_size(axis_name)
        if typeof(leaf).shape[a] != n:
            raise ValueError(f"all_to_all requires the size of the mapped axis axis_name to equal x.shape[split_axis], but "
                             f"they are {n} and {typeof(leaf).shape[a]} respectively.")
        return _untiled(moveaxis(leaf, a, b), b, params)        # the split dimension sits where the new one will
    return tree_map(one, x)


def _untiled(x, at: int, params):
    """x has the split dimension at `at`; after the exchange that dimension counts the sources."""
    s = typeof(x).shape
    wide = reshape(x, (*s[:at], s[at], 1, *s[at + 1:]))
    out = bind1(all_to_all_p, wide, split_axis=at, concat_axis=at + 1, **params)
    t = typeof(out).shape
    return reshape(out, (*t[:at], t[at + 1], *t[at + 2:]))


def pswapaxes(x: Any, axis_name: Any, axis: int, *, axis_index_groups=None):
    """Exchange a named axis with an array axis of the same size."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def pbroadcast(x: Any, axis_name: Any, source: int):
    """Every position gets the value at position `source`."""
    def one(leaf):
        here = ew.eq(axis_index(axis_name), np.int32(operator.index(source)))
        kept = ew.select(broadcast_to(here, typeof(leaf).shape), leaf, zeros(typeof(leaf)))
        return psum(kept, axis_name)
    return tree_map(one, x)


def pvary(x: Any, axis_name: Any):
    """Mark x as varying over a named axis; values are unchanged."""
    for a in axis_names(axis_name):
        size_of(a)
    return x


def pcast(x: Any, axis_name: Any, *, to: str):
    """Change how x is said to vary over a named axis; values are unchanged, and types do not say it (`to` has no effect)."""
    return pvary(x, axis_name)

