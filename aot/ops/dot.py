"""dot_general and its relatives."""
from __future__ import annotations

import enum
from typing import Any, Sequence

import numpy as np

from aot import dtypes
from aot.config import config
from aot.ops.dot_algorithm import Algorithm, named_preset, operand_dtypes, result_dtype
from aot.ops.families import Bilinear, check_dtype
from aot.ops.shape import placed, transpose
from aot.trace import ShapedArray, bind, bind1, is_linear, typeof


class Precision(enum.Enum):
    """How much of float32 a TPU or GPU matrix product keeps."""
    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    @classmethod
    def _missing_(cls, value):
        if isinstance(value, str):
            names = {"default": cls.DEFAULT, "fastest": cls.DEFAULT, "bfloat16": cls.DEFAULT, "high": cls.HIGH,
                     "bfloat16_3x": cls.HIGH, "tensorfloat32": cls.HIGH, "highest": cls.HIGHEST,
                     "float32": cls.HIGHEST}
            return names.get(value.lower())
        return cls.DEFAULT if value is None else None

    def __repr__(self): return f"{self.__class__.__name__}.{self.name}"
    def __str__(self): return self.name


def canonical_precision(precision: Any):
    """None, a Precision, a name, or a pair of those -> None or a pair; dot algorithms (or their names) as they are."""
    if precision is None:
        default = config.default_matmul_precision
        return None if default is None else canonical_precision(default)
    if isinstance(precision, Algorithm):
        return precision
    preset = named_preset(precision)
    if preset is not None:
        return preset
    if isinstance(precision, (tuple, list)):
        if len(precision) != 2:
            raise ValueError(f"precision must be None, a name, a Precision or a pair of those; got {precision}")
        return tuple(Precision(p) for p in precision)
    p = Precision(precision)
    return (p, p)


def sizes(x, axes): return tuple([x.shape[i] for i in axes])


def free(ndim: int, used: Sequence[int]): return tuple([i for i in range(ndim) if i not in used])


class DotGeneral(Bilinear):
    """(b.. m.. k..) . (b.. n.. k..) -> (b.. m.. n..); dimension_numbers = ((lhs k, rhs k), (lhs b, rhs b))."""
    name = "dot_general"

    def infer(self, x, y, *, dimension_numbers, precision=None, preferred_element_type=None, out_sharding=None):
        (xk, yk), (xb, yb) = dimension_numbers
        self._check(x, y, xk, yk, xb, yb)
        shape = sizes(x, xb) + sizes(x, free(x.ndim, xk + xb)) + sizes(y, free(y.ndim, yk + yb))
        dtype = preferred_element_type or x.dtype
        return [ShapedArray(shape, dtype, x.weak_type and y.weak_type and preferred_element_type is None)]

    def shown(self, params):
        (xk, yk), (xb, yb) = params["dimension_numbers"]
        numbers = (([*xk], [*yk]), ([*xb], [*yb]))
        rest = {k: params[k] for k in ("precision", "preferred_element_type") if params.get(k) is not None}
        return {"dimension_numbers": numbers, **rest}

    def _check(self, x, y, xk, yk, xb, yb):
        for a in (x, y):
            check_dtype(self.name, "fciub", a)
        if len(xk) != len(yk) or len(xb) != len(yb):
            raise TypeError("dot_general requires equal numbers of lhs and rhs dimensions in each pair, got "
                            f"contracting {xk}, {yk} and batch {xb}, {yb}")
        for what, ax, ay in (("batch", xb, yb), ("contracting", xk, yk)):
            if any(not 0 <= i < x.ndim for i in ax) or any(not 0 <= i < y.ndim for i in ay):
                raise TypeError(f"dot_general {what} dimensions {ax}, {ay} are out of range for shapes {x.shape} and "
                                f"{y.shape}")
            if sizes(x, ax) != sizes(y, ay):
                raise TypeError(f"dot_general requires {what} dimensions to have the same shape, got {sizes(x, ax)} and "
                                f"{sizes(y, ay)}. hint: shapes are {x.shape} and {y.shape}; transpose or reshape one")
        if x.dtype != y.dtype and not (x.dtype.itemsize == y.dtype.itemsize == 1):
            raise TypeError(f"lax.dot_general requires arguments to have the same dtypes, got {x.dtype.name}, "
                            f"{y.dtype.name}. hint: aot.numpy.matmul promotes")

    def transpose(self, cts, x, y, *, dimension_numbers, precision=None, preferred_element_type=None, **_):
        ct = cts[0]
        dims = dimension_numbers
        if is_linear(x):
            return [self._transpose_lhs(ct, x.aval, y, dims, precision, False), None]
        (xk, yk), (xb, yb) = dims
        return [None, self._transpose_lhs(ct, y.aval, x, ((yk, xk), (yb, xb)), precision, True)]

    def _transpose_lhs(self, ct, x: ShapedArray, y, dims, precision, swapped: bool):
        """Cotangent of the first operand; `swapped`: ct's free dimensions are in (y, x) order."""
        (xk, yk), (xb, yb) = dims
        ya = typeof(y)
        x_free, y_free = free(x.ndim, xk + xb), free(ya.ndim, yk + yb)
        nb, first = len(xb), len(y_free) if swapped else len(x_free)
        lo, hi = range(nb, nb + first), range(nb + first, typeof(ct).ndim)
        ct_y = tuple(lo) if swapped else tuple(hi)
        numbers = ((ct_y, y_free), (tuple(range(nb)), yb))
        ct = ct if typeof(ct).dtype == ya.dtype else _convert(ct, ya.dtype)
        out = bind1(self, ct, y, dimension_numbers=numbers, precision=precision, preferred_element_type=x.dtype)
        order = np.argsort(yk, kind="stable")
        axes = [*xb, *x_free, *[xk[i] for i in order]]        # which axis of x each result axis is
        return transpose(out, tuple(np.argsort(axes)))

    def vmap(self, axis, args, at, *, dimension_numbers, **params):
        (x, y), (dx, dy) = args, at
        (xk, yk), (xb, yb) = dimension_numbers
        shift = lambda axes, d: tuple(i + (i >= d) for i in axes)
        if dx is not None and dy is not None:
            numbers = ((shift(xk, dx), shift(yk, dy)), ((dx, *shift(xb, dx)), (dy, *shift(yb, dy))))
            return bind(self, x, y, dimension_numbers=numbers, **params), [0]
        if dy is None:
            numbers = ((shift(xk, dx), yk), (shift(xb, dx), yb))
            out_free = free(typeof(x).ndim, numbers[0][0] + numbers[1][0])
            return bind(self, x, y, dimension_numbers=numbers, **params), [len(xb) + out_free.index(dx)]
        numbers = ((xk, shift(yk, dy)), (xb, shift(yb, dy)))
        out_free = free(typeof(y).ndim, numbers[0][1] + numbers[1][1])
        n_x = typeof(x).ndim - len(xk) - len(xb)
        return bind(self, x, y, dimension_numbers=numbers, **params), [len(xb) + n_x + out_free.index(dy)]

    def lower(self, e, ins, outs, x, y, *, dimension_numbers, precision=None, preferred_element_type=None, **_):
        (xk, yk), (xb, yb) = dimension_numbers
        a, b = ins
        join = lambda axes: ", ".join(map(str, axes))
        batch = f"batching_dims = [{join(xb)}] x [{join(yb)}], " if xb else ""
        out = outs[0]
        if isinstance(precision, Algorithm):
            kinds = operand_dtypes(precision, a.dtype, b.dtype)
            out = out.update(dtype=result_dtype(precision, a.dtype, b.dtype, out.dtype))
            (a, x), (b, y) = [(v.update(dtype=d), e.convert(n, v, v.update(dtype=d)))
                              for v, n, d in ((a, x, kinds[0]), (b, y, kinds[1]))]
            p = f", precision = [DEFAULT, DEFAULT]{precision.text(a.dtype, b.dtype)}"
        else:
            p = f", precision = [{', '.join(q.name for q in precision)}]" if precision else ""
        return [e.convert(e.op(f"stablehlo.dot_general {x}, {y}, {batch}contracting_dims = [{join(xk)}] x [{join(yk)}]{p}"
                               f" : ({a.mlir}, {b.mlir}) -> {out.mlir}"), out, outs[0])]


def _convert(x, dtype):
    from aot.ops.elementwise import convert
    return convert(x, dtype)


dot_general_p = DotGeneral()


def _ints(axes) -> tuple[int, ...]: return tuple([int(i) for i in axes])


def dot_general(lhs, rhs, dimension_numbers, precision=None, preferred_element_type=None, *, out_sharding=None):
    """General tensor contraction: batch dimensions, then free dimensions of lhs, then of rhs."""
    (xk, yk), (xb, yb) = dimension_numbers
    a, b = typeof(lhs), typeof(rhs)
    if a.dtype != b.dtype and not a.dtype.itemsize == b.dtype.itemsize == 1:     # products of 8-bit floats may mix
        common = dtypes.promote_types(a.dtype, b.dtype)
        lhs, rhs = _convert(lhs, common), _convert(rhs, common)
    n, m = a.ndim, b.ndim
    wrap = lambda axes, r: tuple([i % r if r else i for i in _ints(axes)])
    preferred = preferred_element_type
    if preferred is not None:
        same = preferred == typeof(lhs).dtype       # a dtype of 64 bits stays where the arrays have it
        preferred = typeof(lhs).dtype if same else dtypes.canonicalize_dtype(dtypes.dtype(preferred))
    out = bind1(dot_general_p, lhs, rhs, precision=canonical_precision(precision), preferred_element_type=preferred,
                dimension_numbers=((wrap(xk, n), wrap(yk, m)), (wrap(xb, n), wrap(yb, m))), out_sharding=None)
    return placed(out, out_sharding)


def dot(lhs, rhs, *, dimension_numbers=None, precision=None, preferred_element_type=None, out_sharding=None):
    """Vector and matrix products; with dimension_numbers, the same as dot_general."""
    if dimension_numbers is not None:
        return dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type, out_sharding=out_sharding)
    x, y = typeof(lhs), typeof(rhs)
    if not (1 <= x.ndim <= 2 and 1 <= y.ndim <= 2 and x.shape[-1] == y.shape[0]):
        raise TypeError(f"Incompatible shapes for dot: got {x.shape} and {y.shape}.")
    return dot_general(lhs, rhs, (((x.ndim - 1,), (0,)), ((), ())), precision, preferred_element_type,
                       out_sharding=out_sharding)


def batch_matmul(lhs, rhs, precision=None):
    """Matrix product over equal leading dimensions."""
    x, y = typeof(lhs), typeof(rhs)
    if x.ndim < 2 or y.ndim < 2 or x.ndim != y.ndim:
        raise ValueError(f"Arguments to batch_matmul must be at least 2D, of equal rank, got {x.ndim}, {y.ndim}")
    batch = tuple(range(x.ndim - 2))
    return dot_general(lhs, rhs, (((x.ndim - 1,), (x.ndim - 2,)), (batch, batch)), precision)


__all__ = ["Precision", "batch_matmul", "dot", "dot_general"]
