"""Algorithms of matrix products: which types the operands are rounded to and sums are kept in."""
from __future__ import annotations

import enum
from typing import Any, NamedTuple, Union

import ml_dtypes
import numpy as np

F16, F32, F64 = np.dtype("float16"), np.dtype("float32"), np.dtype("float64")
BF16 = np.dtype(ml_dtypes.bfloat16)
_MLIR = {F16: "f16", F32: "f32", F64: "f64", BF16: "bf16", "tf32": "tf32"}


class DotAlgorithm(NamedTuple):
    """An algorithm in StableHLO's terms; the result has the accumulation type."""
    lhs_precision_type: Any
    rhs_precision_type: Any
    accumulation_type: Any
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False

    @property
    def storage(self) -> tuple[Any, Any]:
        """The dtypes that the operands are converted to."""
        return np.dtype(self.lhs_precision_type), np.dtype(self.rhs_precision_type)

    @property
    def result(self) -> Any: return np.dtype(self.accumulation_type)

    def text(self, lhs: Any = None, rhs: Any = None) -> str:
        """StableHLO's attribute."""
        name = lambda t: t if t == "tf32" else _MLIR[np.dtype(t)]
        return (f", algorithm = <lhs_precision_type = {name(self.lhs_precision_type)}, "
                f"rhs_precision_type = {name(self.rhs_precision_type)}, "
                f"accumulation_type = {name(self.accumulation_type)}, "
                f"lhs_component_count = {self.lhs_component_count}, rhs_component_count = {self.rhs_component_count}, "
                f"num_primitive_operations = {self.num_primitive_operations}, "
                f"allow_imprecise_accumulation = {str(self.allow_imprecise_accumulation).lower()}>")


class DotAlgorithmPreset(enum.Enum):
    """Algorithms that some platform has, named <lhs>_<rhs>_<sum>; _Xn: n products emulate one of higher precision."""
    DEFAULT = enum.auto()
    ANY_F8_ANY_F8_F32 = enum.auto()
    ANY_F8_ANY_F8_F32_FAST_ACCUM = enum.auto()
    ANY_F8_ANY_F8_ANY = enum.auto()
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = enum.auto()
    F16_F16_F16 = enum.auto()
    F16_F16_F32 = enum.auto()
    BF16_BF16_BF16 = enum.auto()
    BF16_BF16_F32 = enum.auto()
    BF16_BF16_F32_X3 = enum.auto()
    BF16_BF16_F32_X6 = enum.auto()
    BF16_BF16_F32_X9 = enum.auto()
    TF32_TF32_F32 = enum.auto()
    TF32_TF32_F32_X3 = enum.auto()
    F32_F32_F32 = enum.auto()
    F64_F64_F64 = enum.auto()

    def __repr__(self): return f"{type(self).__name__}.{self.name}"
    def __str__(self): return self.name

    @property
    def parts(self) -> tuple[str, str, int]:
        """(operand type, sum type, number of products) out of the name."""
        name, _, times = self.name.partition("_X")
        operand, _, total = name.split("_")
        return operand.lower(), total.lower(), int(times or 1)

    @property
    def supported_lhs_types(self) -> tuple | None:
        """Operand dtypes that are taken as they are; the first is what others are converted to.  None: any."""
        if self is self.DEFAULT or self.name.startswith("ANY"):
            return None
        operand, total, times = self.parts
        if operand == "bf16" and times == 1:
            return BF16, F32
        return ({"f16": F16, "f64": F64}.get(operand, F32),)

    supported_rhs_types = supported_lhs_types

    @property
    def accumulation_type(self) -> Any:
        """The dtype of sums; None: the result's."""
        if self is self.DEFAULT or "F8_ANY" in self.name.removeprefix("ANY_F8_ANY_F8"):
            return None
        if self.name.startswith("ANY"):
            return F32 if "F32" in self.name else None
        return {"f16": F16, "bf16": BF16, "f64": F64}.get(self.parts[1], F32)

    def text(self, lhs: Any, rhs: Any) -> str:
        """StableHLO's attribute for operands of these dtypes."""
        if self is self.DEFAULT:
            return ""
        if self.name.startswith("ANY"):
            raise ValueError(f"The dot algorithm '{self}' requires both inputs to have float8 dtypes and a platform with "
                             f"float8 products; got {lhs} and {rhs}")
        operand, total, times = self.parts
        kinds = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64, "tf32": "tf32"}
        return DotAlgorithm(kinds[operand], kinds[operand], kinds[total], num_primitive_operations=times).text()


Algorithm = (DotAlgorithm, DotAlgorithmPreset)
DotDimensionNumbers = tuple[tuple[Any, Any], tuple[Any, Any]]


def named_preset(name: Any) -> DotAlgorithmPreset | None:
    """The preset of this name (any case), or None."""
    return DotAlgorithmPreset.__members__.get(name.upper()) if isinstance(name, str) and name.upper() != "DEFAULT" else None


def operand_dtypes(algorithm: Any, lhs: Any, rhs: Any) -> tuple[Any, Any]:
    """What the operands are converted to before the product."""
    if isinstance(algorithm, DotAlgorithm):
        return algorithm.storage
    allowed = algorithm.supported_lhs_types
    if allowed is None:
        return lhs, rhs
    if lhs == rhs and lhs in allowed:
        return lhs, rhs
    return allowed[0], allowed[0]


def result_dtype(algorithm: Any, lhs: Any, rhs: Any, out: Any) -> Any:
    """What the product itself returns, before it is converted to the dtype of the result."""
    if isinstance(algorithm, DotAlgorithm):
        return algorithm.result
    total = algorithm.accumulation_type
    if total is None:
        return out
    half = {"F16_F16_F32": F16, "BF16_BF16_F32": BF16}.get(algorithm.name)
    return out if half is not None and out == half and lhs == rhs == half else total


PrecisionLike = Union[None, str, tuple, DotAlgorithm, DotAlgorithmPreset, enum.Enum]
