"""What onnxruntime's CPU kernels compute, measured with one-node models: the reason for most casts in exported files.

ONNX allows more types than runtimes have kernels for.  An operation on a type without a kernel is computed in a wider
one and converted back; the tables say where that gives the same numbers.
"""
from __future__ import annotations

from functools import cache

import numpy as np

_FLOATS = "float16 float32 float64"
_SIGNED = "int8 int16 int32 int64"
_UNSIGNED = "uint8 uint16 uint32 uint64"
_INTS = f"{_SIGNED} {_UNSIGNED}"
_NUMBERS = f"{_FLOATS} {_INTS}"
_ALL = f"{_NUMBERS} bool bfloat16"
_SMALL = "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz"

#: ONNX operator -> dtypes of its first tensor operand that run; an entry `NAME:N` holds from opset N on
_TABLE = {
    "Abs": _NUMBERS, "Neg": f"{_FLOATS} {_SIGNED}", "Exp Log Sqrt Reciprocal Sin Cos Tanh Sigmoid Floor Ceil Round": _FLOATS,
    "Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Erf": "float16 float32", "Sign": f"{_NUMBERS} bfloat16",
    "Not And Or Xor": "bool", "BitwiseNot BitwiseAnd BitwiseOr BitwiseXor": _INTS,
    "IsNaN": _FLOATS, "IsInf": "float32 float64", "IsNaN:20 IsInf:20": f"{_FLOATS} bfloat16", "Relu": f"{_FLOATS} int8 int32",
    "Identity": f"{_ALL} {_SMALL} int4 uint4", "Add Sub Mul Div": _NUMBERS, "Pow": f"{_FLOATS} int32 int64",
    "Max Min": f"{_FLOATS} int8 int32 int64 uint8 uint32 uint64", "Equal": f"{_NUMBERS} bool",
    "Less Greater LessOrEqual GreaterOrEqual": _NUMBERS, "Mod": _NUMBERS, "BitShift": _UNSIGNED, "BitShift:28": _INTS,
    "Reshape Transpose Unsqueeze Squeeze": f"{_ALL} {_SMALL}", "Slice Concat Gather GatherND GatherElements": _ALL,
    "Pad": "float16 float32 float64 int8 int32 int64 uint8 uint32 uint64 bool",
    "Pad:21": "float16 float32 bfloat16 float64 int8 int32 int64 uint8 uint32 uint64 bool",
    "Tile Expand": f"{_NUMBERS} bool",
    "ScatterND:none ScatterElements:none": _ALL, "ScatterND:add ScatterElements:add": f"float32 float64 {_INTS}",
    "ScatterND:mul ScatterElements:mul": f"float32 float64 {_INTS}",
    "ScatterND:max ScatterElements:max ScatterND:min ScatterElements:min": f"float32 float64 {_INTS}",
    "Where": "float32 float16 float64 int8 int32 int64 uint8 uint32",
    "ReduceSum ReduceProd ReduceMean ReduceLogSumExp ReduceL2": f"{_FLOATS} int32 int64",
    "ReduceMax ReduceMin": f"{_FLOATS} int8 int32 int64 uint8 bool", "ArgMax ArgMin": f"{_FLOATS} int8 int32 int64 uint8",
    "CumSum": f"{_FLOATS} int32 int64", "CumProd": f"{_FLOATS} int32 int64 uint32 uint64",
    "TopK": f"{_FLOATS} int8 int16 int32 int64 uint8",
    "MatMul": f"{_FLOATS} int32 int64 uint32 uint64", "Gemm Softmax DFT LogSoftmax": _FLOATS,
    "Einsum": f"{_FLOATS} int32 int64",
    "Conv ConvTranspose AveragePool": "float16 float32", "MaxPool": f"{_FLOATS} int8 uint8",
    "LayerNormalization": f"{_FLOATS} bfloat16", "Gelu": "float16 float32",
    "Attention Celu Clip Elu HardSigmoid HardSwish LeakyRelu Mish Selu Softplus Softsign Swish": "float32",
    "Range": "float32 float64 int16 int32 int64",
    "ConstantOfShape": _ALL, "Trilu": f"{_FLOATS} int32 int64 bool",
    "BitCast:26": f"{_NUMBERS} bfloat16",
}

#: dtype -> wider types in order of preference.  Casts between integers of one size keep the bits, so wrapping
#: arithmetic and moving data may use either; what compares numbers may not: see `ORDERED`.
_WIDER = {
    "bfloat16": ("float32",), "float16": ("float32",), "float32": ("float64",), "bool": ("uint8", "int32"),
    "int8": ("int32", "int16", "uint8"), "int16": ("int32", "uint16"), "int32": ("int64", "uint32"), "int64": ("uint64",),
    "uint8": ("int32", "int8"), "uint16": ("int32", "uint32", "int16"), "uint32": ("int64", "int32"), "uint64": ("int64",),
    "int4": ("int8", "int32"), "uint4": ("uint8", "int32"), "int2": ("int8", "int32"), "uint2": ("uint8", "int32"),
    **dict.fromkeys((*_SMALL.split(), "float4_e2m1fn", "float8_e8m0fnu"), ("float32",)),
}
#: operators that need the order or the value of numbers, not only their bits
ORDERED = frozenset("Max Min Less Greater LessOrEqual GreaterOrEqual Div Mod Pow ReduceMax ReduceMin ReduceMean ArgMax ArgMin "
                    "TopK Abs Sign ScatterElements:max ScatterElements:min ScatterND:max ScatterND:min MaxPool Equal".split())
_SAME_SIZE = {("int64", "uint64"), ("uint64", "int64"), ("int32", "uint32"), ("uint32", "int32"), ("int16", "uint16"),
              ("uint16", "int16"), ("int8", "uint8"), ("uint8", "int8")}


@cache
def _kernels(opset: int) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for names, dtypes in _TABLE.items():
        for name in names.split():
            base, _, since = name.rpartition(":")
            if since.isdigit():
                if opset >= int(since):
                    found[base] = frozenset(dtypes.split())
            else:
                found[name] = frozenset(dtypes.split())
    return found


def has_kernel(operator: str, dtype: np.dtype, opset: int) -> bool:
    """Whether the runtime computes this operator on this type (operators that no table row has: yes)."""
    row = _kernels(opset).get(operator)
    return row is None or dtype.name in row


@cache
def compute_dtype(operator: str, dtype: np.dtype, opset: int) -> np.dtype | None:
    """The type to compute in: the type itself, or the first wider one that gives the same result; None if there is none."""
    if has_kernel(operator, dtype, opset):
        return dtype
    for wider in _WIDER.get(dtype.name, ()):
        if operator in ORDERED and (dtype.name, wider) in _SAME_SIZE:
            continue
        if has_kernel(operator, np.dtype(_dtype(wider)), opset):
            return np.dtype(_dtype(wider))
    return None


def _dtype(name: str) -> np.dtype:
    import ml_dtypes
    return np.dtype(getattr(ml_dtypes, name, name))
