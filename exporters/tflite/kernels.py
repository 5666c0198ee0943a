"""What the TFLite runtime can compute: element types of each builtin operator, and versions, by profile.

The tables are measured, one operator and type at a time against XLA.  An operator that is missing for a type is missing in
the runtime, or gives wrong numbers, or ends the process (ADD of int8 without quantization divides by zero).  Nothing else
may be written to a model: `Graph.node` asks `check`.
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aot.errors import AotError

SHORT = {"i1": "bool", "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
         **{f"{p}{n}": f"{'u' * (p == 'u')}int{n}" for p in "iu" for n in (8, 16, 32, 64)}}
ANY = "i1 i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64"
INTS = "i8 i16 i32 i64 u8 u16 u32 u64"

#: ai-edge-litert: operator -> element types of its data operand
CURRENT = {
    "ABS": "i32 f32", "NEG": "i8 i16 i32 i64 f32", "SIGN": "i32 f32",
    "EXP": "f32", "LOG": "f32", "SQRT": "f32", "RSQRT": "f32", "SIN": "f32", "COS": "f32", "TANH": "f32",
    "LOGISTIC": "f32", "FLOOR": "f32", "CEIL": "f32", "ROUND": "f32",
    "ADD": "i32 i64 f32", "SUB": "i32 i64 f32", "MUL": "i32 i64 u32 f32", "DIV": "i32 f32",
    "FLOOR_MOD": "i8 i16 i32 i64 f32", "POW": "f32", "ATAN2": "f32 f64",
    "MAXIMUM": "i8 i16 i32 i64 u8 f32", "MINIMUM": "i8 i16 i32 i64 u8 f32",
    "EQUAL": "i1 i32 i64 f32", "NOT_EQUAL": "i1 i32 i64 f32", "LESS": "i32 i64 f32", "LESS_EQUAL": "i32 i64 f32",
    "GREATER": "i32 i64 f32", "GREATER_EQUAL": "i32 i64 f32",
    "LOGICAL_AND": "i1", "LOGICAL_OR": "i1", "LOGICAL_NOT": "i1", "BITWISE_XOR": "i8 i16 i32 u8 u16 u32",
    "RIGHT_SHIFT": "i8 i16 i32 u8 u16 u32", "STABLEHLO_SHIFT_LEFT": "i8 i16 i32", "STABLEHLO_AND": INTS,
    "STABLEHLO_ADD": f"{INTS} f32 f64", "STABLEHLO_MULTIPLY": f"{INTS} f32 f64",
    "STABLEHLO_MAXIMUM": f"{INTS} f32 f64", "STABLEHLO_MINIMUM": f"{INTS} f32 f64",
    "CAST": "i1 i8 i16 i32 i64 u8 u16 u32 f16 bf16 f32 f64", "BITCAST": ANY, "SELECT_V2": ANY,
    "RESHAPE": ANY, "TRANSPOSE": ANY, "BROADCAST_TO": ANY, "SLICE": ANY, "STRIDED_SLICE": ANY,
    "DYNAMIC_UPDATE_SLICE": ANY, "STABLEHLO_GATHER": ANY, "STABLEHLO_PAD": ANY,
    "CONCATENATION": "i1 i8 i16 i32 i64 u8 u32 f16 bf16 f32",
    "REVERSE_V2": "i1 i8 i16 i32 i64 u8 f16 bf16 f32", "GATHER": "i1 i8 i16 i32 i64 u8 f16 bf16 f32",

    "STABLEHLO_SCATTER": f"{INTS} f16 f32 f64",
    "SUM": "i32 i64 f32", "REDUCE_PROD": "i32 i64 f32", "REDUCE_MAX": "i8 i16 i32 i64 u8 f32",
    "REDUCE_MIN": "i8 i16 i32 i64 u8 f32", "REDUCE_ANY": "i1", "REDUCE_ALL": "i1",
    "BATCH_MATMUL": "f32", "FULLY_CONNECTED": "f32", "CONV_2D": "f32", "MAX_POOL_2D": "f32", "AVERAGE_POOL_2D": "f32",
    "TOPK_V2": "i32 i64", "SOFTMAX": "f32", "LOG_SOFTMAX": "f32", "GELU": "f32", "HARD_SWISH": "f32", "LEAKY_RELU": "f32",
    "ELU": "f32", "RELU": "f32", "RELU6": "f32",

    "WHILE": ANY, "IF": "i1", "STABLEHLO_RNG_BIT_GENERATOR": "u64", "QUANTIZE": "f32", "DEQUANTIZE": "i8 f16",
}

MOVED = "i1 i8 i16 i32 i64 u8 u32 f32"

#: tflite-runtime 2.14, the last release under that name
OLD = {
    "ABS": "i32 f32", "NEG": "i32 i64 f32", "SIGN": "i32 f32", "EXP": "f32", "LOG": "f32", "SQRT": "f32", "RSQRT": "f32",
    "SIN": "f32", "COS": "f32", "TANH": "f32", "LOGISTIC": "f32", "FLOOR": "f32", "CEIL": "f32", "ROUND": "f32",
    "ADD": "i32 i64 f32", "SUB": "i32 i64 f32", "MUL": "i32 i64 u32 f32", "DIV": "i32 f32",
    "FLOOR_MOD": "i8 i16 i32 i64 f32", "POW": "f32", "ATAN2": "f32", "MAXIMUM": "i8 i16 i32 i64 u8 f32",
    "MINIMUM": "i8 i16 i32 i64 u8 f32", "EQUAL": "i1 i32 i64 f32", "NOT_EQUAL": "i1 i32 i64 f32", "LESS": "i32 i64 f32",
    "LESS_EQUAL": "i32 i64 f32", "GREATER": "i32 i64 f32", "GREATER_EQUAL": "i32 i64 f32",
    "LOGICAL_AND": "i1", "LOGICAL_OR": "i1", "LOGICAL_NOT": "i1", "BITWISE_XOR": "i8 i16 i32 u8 u32",
    "RIGHT_SHIFT": "i8 i16 i32 u8 u32", "CAST": f"{MOVED} f16 f64", "BITCAST": f"{MOVED} u64 f16 f64",
    "SELECT_V2": MOVED, "RESHAPE": f"{MOVED} u64 f16 f64", "TRANSPOSE": "i1 i8 i16 i32 i64 u8 f32",
    "BROADCAST_TO": f"{MOVED} u64 f16 f64", "SLICE": MOVED, "STRIDED_SLICE": MOVED, "CONCATENATION": MOVED,
    "DYNAMIC_UPDATE_SLICE": "i1 i8 i32 i64 f32", "REVERSE_V2": "i1 i8 i16 i32 i64 u8 f32",
    "GATHER": "i1 i8 i16 i32 i64 u8 f32", "SUM": "i32 i64 f32", "REDUCE_PROD": "i32 i64 f32",
    "REDUCE_MAX": "i8 i16 i32 i64 u8 f32", "REDUCE_MIN": "i8 i16 i32 i64 u8 f32", "REDUCE_ANY": "i1", "REDUCE_ALL": "i1",
    "BATCH_MATMUL": "f32", "FULLY_CONNECTED": "f32", "CONV_2D": "f32", "MAX_POOL_2D": "f32", "AVERAGE_POOL_2D": "f32",
    "TOPK_V2": "i32 i64",
    "WHILE": f"{MOVED} u64 f16 f64", "IF": "i1", "QUANTIZE": "f32", "DEQUANTIZE": "i8 f16",
}

#: operator -> version, where it is not 1
VERSIONS = {"BROADCAST_TO": 3, "CONCATENATION": 3, "TRANSPOSE": 6, "STRIDED_SLICE": 6, "SELECT_V2": 2, "DEQUANTIZE": 3}

#: operand that has the element type which decides, where it is not the first
DATA_OPERAND = {"SELECT_V2": 1}


@dataclass(frozen=True)
class Profile:
    """A runtime to write for.

    types: operator -> names of element types; versions: operator -> version; tensors: the element types of arguments and
    results.
    """
    name: str
    types: dict[str, frozenset[str]]
    versions: dict[str, int]
    tensors: frozenset[str]

    def has(self, operator: str, dtype: np.dtype) -> bool:
        return np.dtype(dtype).name in self.types.get(operator, ())

    def check(self, operator: str, dtype: np.dtype) -> None:
        """Raises NoKernel unless the runtime computes this operator on this type."""
        if not self.has(operator, dtype):
            raise NoKernel(f"the runtime ({self.name}) has no kernel {operator} for {np.dtype(dtype).name}")


class NoKernel(Exception):
    """A program needs what the runtime does not have; `hint` says what to do."""

    def __init__(self, why: str, hint: str = ""):
        super().__init__(why)
        self.hint = hint


def _names(types: str) -> frozenset[str]: return frozenset(SHORT[t] for t in types.split())


def _table(rows: dict[str, str]) -> dict[str, frozenset[str]]:
    return {op: _names(types) for op, types in rows.items()}


PROFILES = {"current": Profile("ai-edge-litert", _table(CURRENT), VERSIONS, _names(ANY)),
            "2.14": Profile("tflite-runtime 2.14", _table(OLD), VERSIONS, _names(f"{MOVED} u64 f16 f64"))}


def profile(name: str) -> Profile:
    """Raises AotError for an unknown name."""
    if name not in PROFILES:
        raise AotError(f"unknown profile {name!r} of the TFLite runtime", hint=f"one of {', '.join(sorted(PROFILES))}")
    return PROFILES[name]
