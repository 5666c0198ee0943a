"""MLIR types and attributes as Python values."""
from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from .ir import Location, Type


@dataclass(frozen=True)
class GatherDims:
    """`dimension_numbers` of gather, by the names of the StableHLO specification."""
    offset_dims: tuple[int, ...] = ()
    collapsed_slice_dims: tuple[int, ...] = ()
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()
    start_index_map: tuple[int, ...] = ()
    index_vector_dim: int = 0


@dataclass(frozen=True)
class ScatterDims:
    """`scatter_dimension_numbers` of scatter."""
    update_window_dims: tuple[int, ...] = ()
    inserted_window_dims: tuple[int, ...] = ()
    input_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()
    scattered_dims_to_operand_dims: tuple[int, ...] = ()
    index_vector_dim: int = 0


@dataclass(frozen=True)
class DotDims:
    """`dot_dimension_numbers` of dot_general."""
    lhs_batching_dimensions: tuple[int, ...] = ()
    rhs_batching_dimensions: tuple[int, ...] = ()
    lhs_contracting_dimensions: tuple[int, ...] = ()
    rhs_contracting_dimensions: tuple[int, ...] = ()


@dataclass(frozen=True)
class ConvDims:
    """`dimension_numbers` of convolution."""
    input_batch_dimension: int = 0
    input_feature_dimension: int = 0
    input_spatial_dimensions: tuple[int, ...] = ()
    kernel_input_feature_dimension: int = 0
    kernel_output_feature_dimension: int = 0
    kernel_spatial_dimensions: tuple[int, ...] = ()
    output_batch_dimension: int = 0
    output_feature_dimension: int = 0
    output_spatial_dimensions: tuple[int, ...] = ()


#: mnemonic of the attribute -> (class of the bindings, ours)
_DIMENSIONS = {"gather": ("GatherDimensionNumbers", GatherDims), "scatter": ("ScatterDimensionNumbers", ScatterDims),
               "dot": ("DotDimensionNumbers", DotDims), "conv": ("ConvDimensionNumbers", ConvDims)}


# ---- types ---------------------------------------------------------------------------------------------------------

_ELEMENTS = {"i1": np.bool_, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
             "complex<f32>": np.complex64, "complex<f64>": np.complex128, "index": np.int64,
             "i2": ml_dtypes.int2, "ui2": ml_dtypes.uint2, "i4": ml_dtypes.int4, "ui4": ml_dtypes.uint4,
             **{f"{u}i{n}": np.dtype(f"{u and 'u'}int{n}") for u in ("", "u") for n in (8, 16, 32, 64)},
             "f4E2M1FN": ml_dtypes.float4_e2m1fn, "f6E2M3FN": ml_dtypes.float6_e2m3fn,
             "f6E3M2FN": ml_dtypes.float6_e3m2fn, "f8E3M4": ml_dtypes.float8_e3m4, "f8E4M3": ml_dtypes.float8_e4m3,
             "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
             "f8E4M3B11FNUZ": ml_dtypes.float8_e4m3b11fnuz, "f8E5M2": ml_dtypes.float8_e5m2,
             "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz, "f8E8M0FNU": ml_dtypes.float8_e8m0fnu}
_TENSOR = re.compile(r"tensor<((?:\?x|\d+x)*)(.*)>$")


@cache
def parse_type(text: str) -> Type | None:
    """`tensor<2x?xf32>` -> Type; None for a type that is no tensor of numbers (token, tuple, quantized)."""
    found = _TENSOR.match(text)
    if found is None:
        return None
    element = found[2].partition(",")[0] if "#" in found[2] else found[2]      # an encoding of bounds follows a comma
    if element not in _ELEMENTS:
        return None
    sizes = found[1].split("x")[:-1]
    return Type(tuple(-1 if n == "?" else int(n) for n in sizes), np.dtype(_ELEMENTS[element]))


# ---- arrays --------------------------------------------------------------------------------------------------------

_DENSE = re.compile(r"dense<(.*)>\s*:\s*(tensor<.*>)", re.DOTALL)
_NUMBER = re.compile(r"[^\s,()\[\]]+")


def array_of(attribute: Any) -> np.ndarray:
    """A dense elements attribute as a read-only array; a splat is broadcast from one element.

    Raises TypeError for element types that the bindings cannot give: see `array_of_text`.
    """
    if getattr(attribute, "is_splat", False) and 0 not in attribute.type.shape:
        scalar = np.array(attribute).reshape(-1)[:1].reshape(())
        return np.broadcast_to(scalar, tuple(attribute.type.shape))
    found = np.array(attribute)
    wanted = parse_type(str(attribute.type))
    if wanted is None or wanted.size and found.dtype != wanted.dtype:
        raise TypeError(str(attribute.type))
    found = found.astype(wanted.dtype, copy=False).reshape(wanted.shape)
    found.flags.writeable = False
    return found


def array_of_text(text: str) -> np.ndarray:
    """The first `dense<...> : tensor<...>` of a text, of any element type: numbers, bits, or a blob in hexadecimal."""
    found = _DENSE.search(text)
    type = parse_type(found[2]) if found else None
    if found is None or type is None:
        raise ValueError(f"not a dense constant: {text[:80]}")
    body = found[1]
    if body.startswith('"0x'):
        flat = _from_blob(bytes.fromhex(body[3:-1]), type)
    else:
        words = _NUMBER.findall(body)
        flat = _from_words(words, type.dtype)
    if flat.size == 1 != type.size:
        return np.broadcast_to(flat.reshape(()), type.shape)
    flat = flat.reshape(type.shape)
    flat.flags.writeable = False
    return flat


def _from_blob(blob: bytes, type: Type) -> np.ndarray:
    """Little-endian elements; those of less than a byte take a byte each."""
    if type.dtype == np.bool_:
        return np.frombuffer(blob, np.uint8).astype(bool)
    return np.frombuffer(blob, type.dtype).copy()


def _from_words(words: list[str], dtype: np.dtype) -> np.ndarray:
    if dtype == np.bool_:
        return np.array([w == "true" for w in words], bool)
    if dtype.kind == "c":
        part = np.dtype("f4" if dtype == np.complex64 else "f8")
        return _from_words(words, part).view(dtype)
    if dtype.kind in "iu" or dtype.name in ("int4", "uint4", "int2", "uint2"):
        return np.array([int(w, 0) for w in words], np.int64 if dtype.kind != "u" else np.uint64).astype(dtype)
    out = np.zeros(len(words), dtype)
    bits = out.view(f"u{dtype.itemsize}")
    for i, w in enumerate(words):
        if w.startswith("0x"):
            bits[i] = int(w, 16)
        else:
            out[i] = float(w)
    return out


# ---- attributes ----------------------------------------------------------------------------------------------------

_ENUM = re.compile(r"#\w+<\w+ (\w+)>$")
_MNEMONIC = re.compile(r"#stablehlo\.(\w+)<")


class Attributes:
    """Converts attributes; one for each reading, because the bindings are imported lazily."""

    def __init__(self, bindings: Any, stablehlo: Any):
        ir = bindings
        self.stablehlo = stablehlo
        self.known: dict[type, Callable[[Any], Any]] = {
            ir.IntegerAttr: lambda a: a.value, ir.FloatAttr: lambda a: a.value, ir.BoolAttr: lambda a: a.value,
            ir.StringAttr: lambda a: a.value, ir.FlatSymbolRefAttr: lambda a: a.value,
            ir.ArrayAttr: lambda a: tuple(self(x) for x in a),
            ir.DictAttr: lambda a: {name: self(a[name]) for name in _names(a)},
            ir.TypeAttr: lambda a: str(a.value), ir.UnitAttr: lambda a: True,
            ir.DenseBoolArrayAttr: tuple, ir.DenseI32ArrayAttr: tuple, ir.DenseI64ArrayAttr: tuple,
            ir.DenseIntElementsAttr: array_of, ir.DenseFPElementsAttr: array_of}

    def __call__(self, attribute: Any) -> Any:
        convert = self.known.get(type(attribute))
        if convert is not None:
            try:
                return convert(attribute)
            except TypeError:
                pass
        text = str(attribute)
        if found := _ENUM.match(text):
            return found[1]
        if (found := _MNEMONIC.match(text)) and found[1] in _DIMENSIONS:
            return self.dimensions(found[1], attribute)
        if "dense<" in text and text.startswith("dense<"):
            return array_of_text(text)
        return text

    def dimensions(self, mnemonic: str, attribute: Any) -> Any:
        name, ours = _DIMENSIONS[mnemonic]
        view = getattr(self.stablehlo, name)(attribute)
        values = {f: getattr(view, f) for f in ours.__dataclass_fields__}
        return ours(**{f: v if isinstance(v, int) else tuple(v) for f, v in values.items()})

    def of(self, op: Any) -> dict[str, Any]:
        """All attributes of an operation, by name."""
        found = {}
        for name in _names(op.attributes):
            try:
                found[name] = self(op.attributes[name])
            except TypeError:                     # the bindings have no class for complex elements
                found[name] = array_of_text(op.operation.get_asm())
        return found


def _names(attributes: Any) -> list[str]:
    """Names of a mapping of the bindings; their iterators differ between versions."""
    return [a if isinstance(a, str) else a.name for a in attributes]


# ---- locations -----------------------------------------------------------------------------------------------------

_FILE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):\d+')
_NAMED_FILE = re.compile(r'"((?:[^"\\]|\\.)*)"\("((?:[^"\\]|\\.)*)":(\d+):\d+')


@cache
def parse_location(text: str) -> Location:
    """`loc("f"("model.py":3:0))`, also fused or of a call: the innermost file, line and function."""
    if named := _NAMED_FILE.search(text):
        return Location(named[2], int(named[3]), named[1])
    if plain := _FILE.search(text):
        return Location("" if plain[1] == "-" else plain[1], int(plain[2]), "")
    return Location()
