"""numpy's functions with JAX's names and meaning, for use in traced functions and eagerly.

Every function is a plain function over `aot.lax`. A name is imported from its file at the first use (`_FILES`), so that
importing this package stays cheap.
"""
from __future__ import annotations

import importlib
from typing import Any

from aot.modules import fill

#: file -> the public names it defines
_FILES = {
    "ufuncs": """
        abs absolute add bitwise_and bitwise_count bitwise_invert bitwise_left_shift bitwise_not bitwise_or
        bitwise_right_shift bitwise_xor divide divmod equal fabs float_power floor_divide fmod greater greater_equal
        invert left_shift less less_equal logaddexp logaddexp2 logical_and logical_not logical_or logical_xor maximum
        minimum mod multiply negative not_equal positive pow power reciprocal remainder right_shift sign square subtract
        true_divide""",
    "elementwise": """
        acos acosh angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh around asin asinh atan atan2 atanh cbrt
        ceil conj conjugate copysign cos cosh deg2rad degrees exp exp2 expm1 floor fmax fmin frexp gcd heaviside hypot
        i0 imag iscomplex isfinite isinf isnan isneginf isposinf isreal lcm ldexp log log10 log1p log2 modf nan_to_num
        nextafter rad2deg radians real rint round signbit sin sinc sinh spacing sqrt tan tanh trunc""",
    "ufunc_class": "frompyfunc ufunc",
    "creation": """
        arange array asarray astype copy empty empty_like frombuffer fromfile fromfunction fromiter fromstring
        from_dlpack full full_like geomspace indices ix_ linspace load logspace meshgrid ones ones_like zeros
        zeros_like""",
    "shapes": """
        append array_split atleast_1d atleast_2d atleast_3d block broadcast_arrays broadcast_shapes broadcast_to
        column_stack concat concatenate dsplit dstack expand_dims flip fliplr flipud hsplit hstack matrix_transpose
        moveaxis ndim permute_dims ravel repeat reshape resize roll rollaxis rot90 shape size split squeeze stack
        swapaxes tile transpose unstack vsplit vstack""",
    "reductions": """
        all amax amin any argmax argmin average count_nonzero cumprod cumsum cumulative_prod cumulative_sum max mean min
        prod ptp std sum var""",
    "nans": """
        nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin nanpercentile nanprod nanquantile
        nanstd nansum nanvar""",
    "statistics": """
        bincount corrcoef correlate convolve cov histogram histogram2d histogram_bin_edges histogramdd median percentile
        quantile""",
    "selecting": """
        argwhere choose clip compress extract flatnonzero nonzero place put put_along_axis ravel_multi_index select take
        take_along_axis unravel_index where""",
    "sorting": "argpartition argsort digitize lexsort partition searchsorted sort sort_complex",
    "setops": """
        intersect1d isin setdiff1d setxor1d union1d unique unique_all unique_counts unique_inverse unique_values""",
    "products": "cross dot inner kron matmul matvec outer tensordot vdot vecdot vecmat",
    "contraction": "einsum einsum_path",
    "matrices": """
        diag diag_indices diag_indices_from diagflat diagonal eye fill_diagonal identity mask_indices trace tri tril
        tril_indices tril_indices_from triu triu_indices triu_indices_from""",
    "differences": "diff ediff1d gradient interp trapezoid unwrap",
    "editing": "delete insert packbits pad trim_zeros unpackbits vander",
    "polynomial": "poly polyadd polyder polydiv polyfit polyint polymul polysub polyval roots",
    "windows": "bartlett blackman hamming hanning kaiser",
    "vectorizing": "apply_along_axis apply_over_axes piecewise vectorize",
    "logic": """
        allclose array_equal array_equiv isclose iscomplexobj isdtype isrealobj isscalar issubdtype promote_types
        result_type""",
    "grids": "c_ index_exp mgrid ogrid r_ s_",
    "names": """
        ComplexWarning array_repr array_str can_cast character complexfloating dtype e euler_gamma finfo flexible
        floating generic get_printoptions iinfo inexact inf integer iterable nan ndarray newaxis number object_ pi
        printoptions save savez set_printoptions signedinteger unsignedinteger __array_namespace_info__""",
    "scalars": """
        bfloat16 bool bool_ cdouble complex128 complex64 complex_ csingle double float16 float32 float4_e2m1fn float64
        float6_e2m3fn float6_e3m2fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2
        float8_e5m2fnuz float8_e8m0fnu float_ int1 int16 int2 int32 int4 int64 int8 int_ single uint uint1 uint16 uint2
        uint32 uint4 uint64 uint8""",
}
_FILE_OF = {name: file for file, names in _FILES.items() for name in names.split()}
_FILE_OF.update(fft="", linalg="")
#: What the methods and operators of arrays need and users do not: name here -> (file, name there).
_PRIVATE = {
    "_getitem": ("indexing", "getitem"), "_At": ("at", "At"), "_view": ("bits", "view"), "_byteswap": ("bits", "byteswap"),
}
__all__ = sorted(name for name in _FILE_OF if not name.startswith("_"))
__array_api_version__ = "2024.12"


def __getattr__(name: str) -> Any:
    file, there = _PRIVATE.get(name) or (_FILE_OF.get(name), name)
    if file is None:
        if name == "fix":
            raise AttributeError("aot.numpy has no `fix`, as jax.numpy no longer has it: use `trunc`")
        raise AttributeError(f"module 'aot.numpy' has no attribute {name!r}")
    if not file:
        return importlib.import_module(f"aot.numpy.{name}")
    value = getattr(importlib.import_module(f"aot.numpy.{file}"), there)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__array_api_version__", "__array_namespace_info__"]


fill(__name__)
