"""Shapes of convolutions and windows without the arrays, and convolution with a kernel of its own at every position."""
from __future__ import annotations

from typing import Any, Sequence

from aot.ops.conv import _transpose_padding, conv_dimension_numbers, conv_general_dilated_patches
from aot.ops.dot import canonical_precision, dot_general
from aot.ops.shape import transpose
from aot.ops.windows import padtype_to_pads, window_output_shape
from aot.trace import typeof

Shape = tuple[int, ...]


def conv_shape_tuple(lhs_shape, rhs_shape, strides, pads, batch_group_count: int = 1) -> Shape:
    """The shape of a convolution of NC.. with OI.. ."""
    lhs, rhs = tuple(map(int, lhs_shape)), tuple(map(int, rhs_shape))
    pads = padtype_to_pads(lhs[2:], rhs[2:], strides, pads)
    if len(pads) != len(lhs) - 2:
        raise TypeError(f"Wrong number of explicit pads for convolution: expected {len(lhs) - 2}, got {len(pads)}.")
    if any(n + lo + hi < 0 for n, (lo, hi) in zip(lhs[2:], pads)):
        raise ValueError("Negative padding is larger than the size of the corresponding dimension: got "
                         f"padding={pads} for lhs_shape[2:]={lhs[2:]}")
    ones = (1,) * len(pads)
    space = window_output_shape(lhs[2:], rhs[2:], strides, pads, ones, ones)
    return (lhs[0] // batch_group_count, rhs[0], *space)


def conv_general_permutations(dimension_numbers: Sequence[str]) -> tuple[Shape, Shape, Shape]:
    """Three layouts like ('NHWC', 'HWIO', 'NHWC') -> where batch, feature and the spatial axes (in rhs' order) are."""
    pairs = (("N", "C"), ("O", "I"), ("N", "C"))
    for i, (spec, pair) in enumerate(zip(dimension_numbers, pairs)):
        if any(spec.count(c) != 1 for c in pair):
            raise TypeError(f"convolution dimension_numbers[{i}] must contain the characters '{pair[0]}' and "
                            f"'{pair[1]}' exactly once, got {spec}.")
        if len(set(spec)) != len(spec):
            raise TypeError(f"convolution dimension_numbers[{i}] cannot have duplicate characters, got {spec}.")
    spatial = [[c for c in spec if c not in pair] for spec, pair in zip(dimension_numbers, pairs)]
    if not set(spatial[0]) == set(spatial[1]) == set(spatial[2]):
        raise TypeError("convolution dimension_numbers elements must each have the same set of spatial characters, got "
                        f"{dimension_numbers}.")
    lhs, rhs, out = (tuple(spec.index(c) for c in (*pair, *spatial[1])) for spec, pair in zip(dimension_numbers, pairs))
    return lhs, rhs, out


def conv_general_shape_tuple(lhs_shape, rhs_shape, window_strides, padding, dimension_numbers) -> Shape:
    """The shape of a convolution in any layout."""
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    shape = conv_shape_tuple([lhs_shape[i] for i in lhs], [rhs_shape[i] for i in rhs], window_strides, padding)
    return tuple(shape[out.index(i)] for i in range(len(out)))


def conv_transpose_shape_tuple(lhs_shape, rhs_shape, window_strides, padding, dimension_numbers) -> Shape:
    """The shape of a transposed convolution in any layout."""
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    x, k = [lhs_shape[i] for i in lhs], [rhs_shape[i] for i in rhs]
    if isinstance(padding, str):
        padding = [_transpose_padding(m, s, padding) for m, s in zip(k[2:], window_strides)]
    space = [(n - 1) * s - m + 2 + lo + hi for n, m, s, (lo, hi) in zip(x[2:], k[2:], window_strides, padding)]
    shape = (x[0], k[0], *space)
    return tuple(int(shape[out.index(i)]) for i in range(len(out)))


def reduce_window_shape_tuple(operand_shape, window_dimensions, window_strides, padding, base_dilation=None,
                              window_dilation=None) -> Shape:
    """The shape of a windowed reduction; padding: explicit pairs."""
    ones = (1,) * len(operand_shape)
    return window_output_shape(operand_shape, window_dimensions, window_strides, padding, base_dilation or ones,
                               window_dilation or ones)


def conv_general_dilated_local(lhs: Any, rhs: Any, window_strides, padding, filter_shape, lhs_dilation=None,
                               rhs_dilation=None, dimension_numbers=None, precision=None) -> Any:
    """A convolution whose kernel differs at every output position.

    rhs has rhs' layout, with (features in * window size) as its input features and output positions as its spatial
    sizes."""
    pair = canonical_precision(precision)
    if pair is not None and not isinstance(pair, tuple):
        raise ValueError(f"Unsupported precision for conv_general_dilated_local: {precision}")
    patches = conv_general_dilated_patches(lhs, filter_shape, window_strides, padding, lhs_dilation, rhs_dilation,
                                           dimension_numbers, None if pair is None else pair[0])
    numbers = conv_dimension_numbers(typeof(lhs).shape, (1, 1, *filter_shape), dimension_numbers)
    out_spec, rhs_spec = numbers.out_spec, numbers.rhs_spec
    at = sorted(range(len(filter_shape)), key=lambda i: out_spec[2 + i])
    batch = tuple(out_spec[2 + i] for i in at), tuple(rhs_spec[2 + i] for i in at)
    out = dot_general(patches, rhs, (((out_spec[1],), (rhs_spec[1],)), batch), precision)
    order = [0] * len(out_spec)                 # (positions.., batch, features) -> the output's layout
    for i, d in enumerate((*batch[0], out_spec[0], out_spec[1])):
        order[d] = i
    return transpose(out, tuple(order))
