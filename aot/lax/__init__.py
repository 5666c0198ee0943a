"""Primitive operations with JAX's names: thin, strict about dtypes and shapes, and each one differentiable, batchable
and lowerable.  `aot.numpy` is built on these."""
from typing import Any

from aot.modules import fill
from aot.ops.call import pjit_p as pjit_p
from aot.ops.collectives import (
    all_gather,
    all_to_all,
    axis_index,
    axis_size,
    pbroadcast,
    pcast,
    pmax,
    pmean,
    pmin,
    ppermute,
    pshuffle,
    psum,
    psum_scatter,
    pswapaxes,
    pvary,
)
from aot.ops.conv import (
    ConvDimensionNumbers,
    conv,
    conv_dimension_numbers,
    conv_general_dilated,
    conv_general_dilated_patches,
    conv_transpose,
    conv_with_general_padding,
)
from aot.ops.dot import Precision, batch_matmul, dot, dot_general
from aot.ops.elementwise import (
    RoundingMethod,
    _convert_element_type,
    abs,
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bessel_i1e,
    bitcast_convert_type,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    cbrt,
    ceil,
    clamp,
    clz,
    complex,
    conj,
    convert_element_type,
    copy,
    cos,
    cosh,
    digamma,
    div,
    eq,
    erf,
    erf_inv,
    erfc,
    exp,
    exp2,
    expm1,
    floor,
    ge,
    gt,
    imag,
    integer_pow,
    is_finite,
    le,
    lgamma,
    log,
    log1p,
    logistic,
    lt,
    max,
    min,
    mul,
    ne,
    neg,
    nextafter,
    polygamma,
    population_count,
    pow,
    real,
    reduce_precision,
    rem,
    round,
    rsqrt,
    select,
    select_n,
    shift_left,
    shift_right_arithmetic,
    shift_right_logical,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    sub,
    tan,
    tanh,
    zeta,
)
from aot.ops.indexing import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
    gather,
    index_take,
    scatter,
    scatter_add,
    scatter_apply,
    scatter_max,
    scatter_min,
    scatter_mul,
    scatter_sub,
)
from aot.ops.loops import associative_scan, cond, fori_loop, scan, switch, while_loop
from aot.ops.loops import map_over as map
from aot.ops.misc import (
    FftType,
    broadcast_like,
    broadcast_shapes,
    broadcast_to_rank,
    collapse,
    dtype,
    empty,
    fft,
    optimization_barrier,
    reciprocal,
    shape_as_value,
    stack,
    stop_gradient,
    tile,
    unstack,
)
from aot.ops.reductions import (
    argmax,
    argmin,
    cumlogsumexp,
    cummax,
    cummin,
    cumprod,
    cumsum,
    reduce,
    reduce_and,
    reduce_max,
    reduce_min,
    reduce_or,
    reduce_prod,
    reduce_sum,
    reduce_xor,
)
from aot.ops.shape import (
    broadcast,
    broadcast_in_dim,
    broadcasted_iota,
    concatenate,
    expand_dims,
    full,
    full_like,
    iota,
    pad,
    reshape,
    rev,
    squeeze,
    transpose,
)
from aot.ops.slicing import (
    dynamic_index_in_dim,
    dynamic_slice,
    dynamic_slice_in_dim,
    dynamic_update_index_in_dim,
    dynamic_update_slice,
    dynamic_update_slice_in_dim,
    index_in_dim,
    slice,
    slice_in_dim,
    split,
)
from aot.ops.sorting import approx_max_k, approx_min_k, sort, sort_key_val, top_k
from aot.ops.special import bessel_i0e
from aot.ops.windows import padtype_to_pads, reduce_window

#: rarely used names -> the module of aot/ops that defines them
_LAZY = {
    **dict.fromkeys("igamma igammac igamma_grad_a igamma_grad_a_p random_gamma_grad random_gamma_grad_p betainc "
                    "regularized_incomplete_beta_p".split(), "incomplete"),
    **dict.fromkeys("RandomAlgorithm rng_bit_generator rng_uniform".split(), "rng"),
    **dict.fromkeys("custom_linear_solve custom_root linear_solve_p".split(), "implicit"),
    **dict.fromkeys("after_all composite create_token dce_sink dce_sink_p platform_dependent stage "
                    "stage_p".split(), "platform"),
    **dict.fromkeys("conv_general_dilated_local conv_general_permutations conv_general_shape_tuple conv_shape_tuple "
                    "conv_transpose_shape_tuple reduce_window_shape_tuple".split(), "conv_shapes"),
    **dict.fromkeys("DotAlgorithm DotAlgorithmPreset DotDimensionNumbers PrecisionLike".split(), "dot_algorithm"),
    **dict.fromkeys("RaggedDotDimensionNumbers ragged_dot ragged_dot_general scaled_dot".split(), "ragged"),
    **dict.fromkeys("AccuracyMode Tolerance".split(), "accuracy"),
    "ConvGeneralDilatedDimensionNumbers": "conv",
    "device_put_p": "misc",
    "mulhi": "special",
}
#: primitives with other names in their module: JAX's name -> (module of aot/ops, the name there)
_PRIMITIVES = {
    "and_p": ("elementwise", "bitwise_and"), "or_p": ("elementwise", "bitwise_or"),
    "xor_p": ("elementwise", "bitwise_xor"), "not_p": ("elementwise", "bitwise_not"),
    "approx_top_k_p": ("sorting", "top_k_p"), "bitcast_convert_type_p": ("elementwise", "bitcast_p"),
    "conv_general_dilated_p": ("conv", "conv_p"), "convert_element_type_p": ("elementwise", "convert_p"),
}
_OPS = ("elementwise", "shape", "slicing", "reductions", "dot", "conv", "windows", "indexing", "sorting", "spmd", "control",
        "collectives", "misc", "random", "rng", "scan", "special")


def __getattr__(name: str) -> Any:
    """`lax.linalg` and rarely used functions load when first used; `lax.<name>_p` is the primitive of that name."""
    import importlib
    ops = lambda module: importlib.import_module(f"aot.ops.{module}")
    if name == "with_sharding_constraint":
        return importlib.import_module("aot.parallel").with_sharding_constraint
    if name == "linalg":
        return importlib.import_module("aot.lax.linalg")
    if name in _LAZY:
        value = globals()[name] = getattr(ops(_LAZY[name]), name)
        return value
    if name.endswith("_p"):
        module, there = _PRIMITIVES.get(name, ("", name))
        function = getattr(ops(module), there) if module else globals().get(name[:-2]) or (
            __getattr__(name[:-2]) if name[:-2] in _LAZY else None)
        if hasattr(function, "primitive"):
            return function.primitive
        if module:
            return function
        for module in _OPS:
            found = getattr(ops(module), name, None)
            if found is not None:
                return found
    raise AttributeError(f"module 'aot.lax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, "linalg", "with_sharding_constraint"})


fill(__name__)
