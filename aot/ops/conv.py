"""Convolution of every kind (dilated, grouped, batch-grouped), its gradients and batching."""
from __future__ import annotations

from typing import Any, NamedTuple, Sequence

from aot import dtypes
from aot.ops.dot import canonical_precision
from aot.ops.dot_algorithm import Algorithm
from aot.ops.families import Bilinear, check_dtype
from aot.ops.shape import moveaxis, placed, reshape, rev, zeros
from aot.ops.windows import dilate, padtype_to_pads
from aot.trace import ShapedArray, bind1, is_linear, typeof


class ConvDimensionNumbers(NamedTuple):
    """Positions of (batch, feature, *spatial) in lhs and out and of (out feature, in feature, *spatial) in rhs."""
    lhs_spec: tuple[int, ...]
    rhs_spec: tuple[int, ...]
    out_spec: tuple[int, ...]


#: what the functions below take as dimension_numbers
ConvGeneralDilatedDimensionNumbers = tuple[str, str, str] | ConvDimensionNumbers | None


def conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers: Any) -> ConvDimensionNumbers:
    """None (NCHW, OIHW, NCHW), three strings, or a ConvDimensionNumbers -> a ConvDimensionNumbers."""
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    n = len(lhs_shape)
    if len(rhs_shape) != n:
        raise TypeError(f"convolution requires lhs and rhs ndim to be equal, got {n} and {len(rhs_shape)}.")
    if dimension_numbers is None:
        iota = tuple(range(n))
        return ConvDimensionNumbers(iota, iota, iota)
    if not isinstance(dimension_numbers, (list, tuple)) or len(dimension_numbers) != 3:
        raise TypeError("convolution dimension_numbers must be tuple/list or None, got "
                        f"{type(dimension_numbers)}: {dimension_numbers}")
    for spec in dimension_numbers:
        if not isinstance(spec, str) or len(spec) != n or len(set(spec)) != n:
            raise TypeError(f"convolution dimension_numbers[i] must be a string of {n} distinct characters, got {spec}.")
    lhs, rhs, out = dimension_numbers
    for spec, needs in ((lhs, "NC"), (rhs, "OI"), (out, "NC")):
        if any(c not in spec for c in needs):
            raise TypeError(f"convolution dimension_numbers {dimension_numbers} must contain the characters {needs}")
    if len({frozenset(s) - frozenset("NCIO") for s in (lhs, rhs, out)}) != 1:
        raise TypeError(f"convolution dimension_numbers elements must each have the same set of spatial characters, got "
                        f"{dimension_numbers}.")
    spatial = [c for c in rhs if c not in "OI"]
    place = lambda spec, a, b: (spec.index(a), spec.index(b), *[spec.index(c) for c in spatial])
    return ConvDimensionNumbers(place(lhs, "N", "C"), place(rhs, "O", "I"), place(out, "N", "C"))


def split_axis(x, axis: int, n: int):
    """Axis of size n * m -> two axes (n, m)."""
    s = typeof(x).shape
    return reshape(x, (*s[:axis], n, s[axis] // n, *s[axis + 1:]))


def merge_into(x, src: int, dst: int):
    """Drop axis src and put it, as the major part, into axis dst (numbered as if src were gone)."""
    x = moveaxis(x, src, dst)
    s = typeof(x).shape
    return reshape(x, (*s[:dst], s[dst] * s[dst + 1], *s[dst + 2:]))


class Conv(Bilinear):
    name = "conv_general_dilated"

    def infer(self, lhs, rhs, *, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers,
              feature_group_count, batch_group_count, precision, preferred_element_type):
        d = dimension_numbers
        for a in (lhs, rhs):
            check_dtype(self.name, "fciu", a)
        if lhs.dtype != rhs.dtype:
            raise TypeError(f"lax.{self.name} requires arguments to have the same dtypes, got {lhs.dtype.name}, "
                            f"{rhs.dtype.name}. hint: convert one with astype")
        n = lhs.ndim - 2
        if not len(window_strides) == len(padding) == len(lhs_dilation) == len(rhs_dilation) == n:
            raise TypeError(f"{self.name} window_strides, padding and dilations must have {n} entries for operands of "
                            f"{lhs.ndim} dimensions, got {window_strides}, {padding}, {lhs_dilation}, {rhs_dilation}")
        if any(s < 1 for s in window_strides):
            raise TypeError(f"All elements of window_strides must be positive, got {window_strides}.")
        features, out_features = lhs.shape[d.lhs_spec[1]], rhs.shape[d.rhs_spec[0]]
        if features != rhs.shape[d.rhs_spec[1]] * feature_group_count:
            raise ValueError(f"{self.name} lhs feature dimension size divided by feature_group_count must equal the rhs "
                             f"input feature dimension size, but {features} // {feature_group_count} != "
                             f"{rhs.shape[d.rhs_spec[1]]}. hint: lhs {lhs.shape}, rhs {rhs.shape}, {d}")
        if out_features % feature_group_count or out_features % batch_group_count:
            raise ValueError(f"{self.name} rhs output feature dimension size must be a multiple of the group count, but "
                             f"{out_features} is not.")
        batch = lhs.shape[d.lhs_spec[0]]
        if batch % batch_group_count:
            raise ValueError(f"{self.name} lhs batch dimension size must be a multiple of batch_group_count, but "
                             f"{batch} is not a multiple of {batch_group_count}.")
        shape = [0] * lhs.ndim
        shape[d.out_spec[0]], shape[d.out_spec[1]] = batch // batch_group_count, out_features
        for i in range(n):
            total = dilate(lhs.shape[d.lhs_spec[i + 2]], lhs_dilation[i]) + sum(padding[i])
            span = dilate(rhs.shape[d.rhs_spec[i + 2]], rhs_dilation[i])
            shape[d.out_spec[i + 2]] = max(0, (total - span) // window_strides[i] + 1) if total >= span else 0
        return [ShapedArray(tuple(shape), preferred_element_type or lhs.dtype, lhs.weak_type and rhs.weak_type)]

    def transpose(self, cts, lhs, rhs, **params):
        if is_linear(lhs):
            return [self._lhs_cotangent(cts[0], lhs.aval, rhs, **params), None]
        return [None, self._rhs_cotangent(cts[0], lhs, rhs.aval, **params)]

    def _lhs_cotangent(self, ct, lhs: ShapedArray, rhs, *, window_strides, padding, lhs_dilation, rhs_dilation,
                       dimension_numbers, feature_group_count, batch_group_count, precision, **_):
        d, k = dimension_numbers, typeof(rhs).shape
        (lb, lf, *ls), (ro, ri, *rs), (ob, of, *os) = d
        groups = feature_group_count if batch_group_count == 1 else batch_group_count
        if groups > 1:         # output features of each group become its input features
            rhs = merge_into(split_axis(rhs, ro, groups), ro, ri)
        pads = []
        for i in range(len(ls)):
            span, spread = dilate(k[rs[i]], rhs_dilation[i]), dilate(typeof(ct).shape[os[i]], window_strides[i])
            before = span - padding[i][0] - 1
            pads.append((before, dilate(lhs.shape[ls[i]], lhs_dilation[i]) + span - 1 - spread - before))
        numbers = ConvDimensionNumbers(d.out_spec, (ri, ro, *rs), d.lhs_spec)
        out = conv_bind(ct, rev(rhs, tuple(rs)), lhs_dilation, pads, window_strides, rhs_dilation, numbers, groups, 1,
                        precision, lhs.dtype)
        if batch_group_count > 1:
            out = merge_into(split_axis(out, lf, batch_group_count), lf, lb)
        return out

    def _rhs_cotangent(self, ct, lhs, rhs: ShapedArray, *, window_strides, padding, lhs_dilation, rhs_dilation,
                       dimension_numbers, feature_group_count, batch_group_count, precision, **_):
        d, n = dimension_numbers, typeof(lhs).shape
        (lb, lf, *ls), (ro, ri, *rs), (ob, of, *os) = d
        pads = []
        for i in range(len(ls)):
            wide, spread = dilate(n[ls[i]], lhs_dilation[i]), dilate(typeof(ct).shape[os[i]], window_strides[i])
            lo = padding[i][0]
            pads.append((lo, spread - wide + dilate(rhs.shape[rs[i]], rhs_dilation[i]) - lo - 1))
        numbers = ConvDimensionNumbers((lf, lb, *ls), (of, ob, *os), (ri, ro, *rs))
        return conv_bind(lhs, ct, rhs_dilation, pads, lhs_dilation, window_strides, numbers,
                         batch_group_count, feature_group_count, precision, rhs.dtype)

    def vmap(self, axis, args, dims, *, dimension_numbers, feature_group_count, batch_group_count, **params):
        (lhs, rhs), (dl, dr), d, n = args, dims, dimension_numbers, axis.size
        (lb, lf, *_), (ro, _, *_), (ob, of, *_) = d
        groups, batches = feature_group_count, batch_group_count

        def call(lhs, rhs, groups, batches):
            return bind1(self, lhs, rhs, dimension_numbers=d, feature_group_count=groups, batch_group_count=batches,
                         **params)
        if dl is not None and dr is not None and not n:         # no groups: nothing that a convolution could express
            elements = [ShapedArray(a.shape[:d] + a.shape[d + 1:], a.dtype, a.weak_type)
                        for a, d in zip(map(typeof, args), dims)]
            out, = self.infer(*elements, dimension_numbers=dimension_numbers, feature_group_count=groups,
                              batch_group_count=batches, **params)
            return [zeros(ShapedArray((0, *out.shape), out.dtype, out.weak_type))], [0]
        if dl is not None and dr is not None:
            rhs = merge_into(rhs, dr, ro)
            if batches > 1:
                out = call(merge_into(lhs, dl, lb), rhs, groups, batches * n)
            else:
                out = call(merge_into(lhs, dl, lf), rhs, groups * n, batches)
            return [split_axis(out, of, n)], [of]
        if dl is not None:
            if batches == 1:
                return [split_axis(call(merge_into(lhs, dl, lb), rhs, groups, 1), ob, n)], [ob]
            lhs = split_axis(moveaxis(lhs, dl, 0), lb + 1, batches)         # (n, .., b, N/b, ..)
            lhs = merge_into(merge_into(lhs, 0, lb + 1), lb, lb)
            return [split_axis(call(lhs, rhs, groups, batches), ob, n)], [ob]
        split, at = groups * batches, int(dr or 0)
        if split == 1:
            return [split_axis(call(lhs, merge_into(rhs, at, ro), 1, 1), of, n)], [of]
        rhs = split_axis(moveaxis(rhs, at, 0), ro + 1, split)               # (n, .., g, O/g, ..)
        rhs = merge_into(merge_into(rhs, 0, ro + 1), ro, ro)
        out = split_axis(call(lhs, rhs, groups, batches), of, split)        # (.., g, n * O/g, ..)
        out = moveaxis(split_axis(out, of + 1, n), of + 1, 0)               # (n, .., g, O/g, ..)
        return [merge_into(out, of + 1, of + 1)], [0]

    def lower(self, e, ins, outs, lhs, rhs, *, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers,
              feature_group_count, batch_group_count, precision, preferred_element_type):
        def spec(positions, first, second):
            names = [""] * len(positions)
            for name, p in zip([first, second, *map(str, range(len(positions) - 2))], positions):
                names[p] = name
            return f"[{', '.join(names)}]"
        d = dimension_numbers
        numbers = f"{spec(d.lhs_spec, 'b', 'f')}x{spec(d.rhs_spec, 'o', 'i')}->{spec(d.out_spec, 'b', 'f')}"
        window = (f"{{stride = {list(window_strides)}, pad = {[list(p) for p in padding]}, lhs_dilate = "
                  f"{list(lhs_dilation)}, rhs_dilate = {list(rhs_dilation)}}}")
        p = ""
        if isinstance(precision, Algorithm):
            raise ValueError(f"convolutions take a Precision, not a dot algorithm, got {precision}")
        if precision:
            p = f", precision_config = [{', '.join(f'#stablehlo<precision {q.name}>' for q in precision)}]"
        return [e.op(f"stablehlo.convolution({lhs}, {rhs}) dim_numbers = {numbers}, window = {window} "
                     f"{{batch_group_count = {batch_group_count} : i64, feature_group_count = {feature_group_count} : "
                     f"i64{p}}} : ({ins[0].mlir}, {ins[1].mlir}) -> {outs[0].mlir}")]


conv_p = Conv()


def conv_bind(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, numbers, feature_group_count,
              batch_group_count, precision, preferred_element_type):
    return bind1(conv_p, lhs, rhs, window_strides=tuple(window_strides), padding=tuple(map(tuple, padding)),
                 lhs_dilation=tuple(lhs_dilation), rhs_dilation=tuple(rhs_dilation), dimension_numbers=numbers,
                 feature_group_count=feature_group_count, batch_group_count=batch_group_count, precision=precision,
                 preferred_element_type=preferred_element_type)


def conv_general_dilated(lhs, rhs, window_strides: Sequence[int], padding: Any, lhs_dilation=None, rhs_dilation=None,
                         dimension_numbers: Any = None, feature_group_count: int = 1, batch_group_count: int = 1,
                         precision=None, preferred_element_type=None, out_sharding=None):
    """N-dimensional convolution (cross-correlation) with strides, padding, dilations and groups."""
    a, b = typeof(lhs), typeof(rhs)
    numbers = conv_dimension_numbers(a.shape, b.shape, dimension_numbers)
    n = a.ndim - 2
    lhs_dilation = tuple(lhs_dilation) if lhs_dilation is not None else (1,) * n
    rhs_dilation = tuple(rhs_dilation) if rhs_dilation is not None else (1,) * n
    if isinstance(padding, str):
        if padding.upper() != "VALID" and any(x != 1 for x in lhs_dilation):
            raise ValueError("String padding is not implemented for transposed convolution using this op. Please either "
                             "exactly specify the required padding or use conv_transpose.")
        window = [dilate(b.shape[i], s) for i, s in zip(numbers.rhs_spec[2:], rhs_dilation)]
        padding = padtype_to_pads([a.shape[i] for i in numbers.lhs_spec[2:]], window, window_strides, padding)
    preferred = None if preferred_element_type is None else dtypes.canonicalize_dtype(
        dtypes.dtype(preferred_element_type))
    return placed(conv_bind(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, numbers, feature_group_count,
                            batch_group_count, canonical_precision(precision), preferred), out_sharding)


def conv(lhs, rhs, window_strides, padding: str, precision=None, preferred_element_type=None):
    """Convolution in NCHW / OIHW layout."""
    return conv_general_dilated(lhs, rhs, window_strides, padding, precision=precision,
                                preferred_element_type=preferred_element_type)


def conv_with_general_padding(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, precision=None,
                              preferred_element_type=None):
    """Convolution in NCHW / OIHW layout with explicit padding and dilations."""
    return conv_general_dilated(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, precision=precision,
                                preferred_element_type=preferred_element_type)


def conv_transpose(lhs, rhs, strides: Sequence[int], padding: Any, rhs_dilation=None, dimension_numbers: Any = None,
                   transpose_kernel: bool = False, precision=None, preferred_element_type=None, use_consistent_padding=False):
    """Transposed convolution: the gradient of a strided convolution with the same arguments (up to kernel layout)."""
    n = typeof(lhs).ndim - 2
    if dimension_numbers is None:
        spatial = "HWD"[:n] if n <= 3 else None
        if spatial is None:
            raise ValueError("No 4+ dimensional dimension_number defaults.")
        dimension_numbers = (f"N{spatial}C", f"{spatial}IO", f"N{spatial}C")
    numbers = conv_dimension_numbers(typeof(lhs).shape, typeof(rhs).shape, dimension_numbers)
    k = [typeof(rhs).shape[i] for i in numbers.rhs_spec[2:]]
    dilation = tuple(rhs_dilation) if rhs_dilation is not None else (1,) * n
    spans = [dilate(m, d) for m, d in zip(k, dilation)]
    if padding in ("SAME", "VALID"):
        pads = [_transpose_padding(m, s, padding) for m, s in zip(spans, strides)]
    elif use_consistent_padding:
        pads = [(m - 1 - lo, m - 1 - hi) for m, (lo, hi) in zip(spans, padding)]
    else:
        pads = [tuple(p) for p in padding]
    if transpose_kernel:
        rhs = rev(rhs, numbers.rhs_spec[2:])
        o, i, *s = numbers.rhs_spec
        numbers = numbers._replace(rhs_spec=(i, o, *s))
    return conv_general_dilated(lhs, rhs, (1,) * n, pads, strides, dilation, numbers, precision=precision,
                                preferred_element_type=preferred_element_type)


def _transpose_padding(k: int, s: int, padding: str) -> tuple[int, int]:
    if padding == "SAME":
        total = k + s - 2
        before = k - 1 if s > k - 1 else -(-total // 2)
    else:
        total = k + s - 2 + max(k - s, 0)
        before = k - 1
    return before, total - before


def conv_general_dilated_patches(lhs, filter_shape: Sequence[int], window_strides, padding, lhs_dilation=None,
                                 rhs_dilation=None, dimension_numbers=None, precision=None, preferred_element_type=None):
    """The patches that a convolution would see, stacked in the feature dimension (feature major, then position)."""
    import numpy as np

    from aot.ops.elementwise import convert
    a, size = typeof(lhs), int(np.prod(filter_shape, dtype=int))
    n = a.ndim
    if dimension_numbers is None or isinstance(dimension_numbers, (tuple, list)) and isinstance(dimension_numbers[0], str):
        rhs_rank = (1,) * n
        numbers = conv_dimension_numbers(a.shape, rhs_rank, dimension_numbers)
    else:
        numbers = dimension_numbers
    channels = a.shape[numbers.lhs_spec[1]]
    eye = np.eye(size, dtype=np.float32).reshape(size, 1, *filter_shape)
    kernel = np.tile(eye, (channels,) + (1,) * (n - 1))
    order = np.argsort(numbers.rhs_spec)
    kernel = convert(np.ascontiguousarray(np.transpose(kernel, order)), a.dtype)
    return conv_general_dilated(lhs, kernel, window_strides, padding, lhs_dilation, rhs_dilation, numbers,
                                feature_group_count=channels,
                                precision=precision, preferred_element_type=preferred_element_type)


__all__ = ["ConvDimensionNumbers", "conv", "conv_dimension_numbers", "conv_general_dilated",
           "conv_general_dilated_patches", "conv_transpose", "conv_with_general_padding"]
