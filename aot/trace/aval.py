"""Abstract values: what tracing knows of an array (shape, dtype, weak_type), and `typeof` of anything array-like."""
from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from aot import dtypes
from aot.config import config

MLIR_NAMES = {"bool": "i1", "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16",
              "complex64": "complex<f32>", "complex128": "complex<f64>",
              **{f"int{n}": f"i{n}" for n in (2, 4, 8, 16, 32, 64)},
              **{f"uint{n}": f"ui{n}" for n in (2, 4, 8, 16, 32, 64)},
              "float8_e4m3b11fnuz": "f8E4M3B11FNUZ", "float8_e4m3fn": "f8E4M3FN", "float8_e4m3fnuz": "f8E4M3FNUZ",
              "float8_e4m3": "f8E4M3", "float8_e3m4": "f8E3M4", "float8_e5m2": "f8E5M2",
              "float8_e5m2fnuz": "f8E5M2FNUZ", "float8_e8m0fnu": "f8E8M0FNU", "float4_e2m1fn": "f4E2M1FN"}


class AbstractValue:
    """What tracing knows of a value."""
    __slots__ = ()


class ShapedArray(AbstractValue):
    """Shape, dtype and weak_type of a value.  Immutable; equal by value.

    sharding and manual_axis_type have no effect: types do not tell how a value is split."""
    __slots__ = ("shape", "dtype", "weak_type", "_hash", "_mlir")

    def __init__(self, shape: tuple[int, ...], dtype: Any, weak_type: bool = False, *, sharding: Any = None,
                 manual_axis_type: Any = None):
        if isinstance(dtype, type):
            dtype = np.dtype(dtype)
        self.shape, self.dtype, self.weak_type = shape, dtype, weak_type
        self._hash = self._mlir = None

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: prod(self.shape))

    def __eq__(self, other):
        return self is other or (type(other) is ShapedArray and self.shape == other.shape
                                 and self.dtype == other.dtype and self.weak_type == other.weak_type)

    def __hash__(self):
        if self._hash is None:
            self._hash = hash((self.shape, self.dtype, self.weak_type))
        return self._hash

    @property
    def sharding(self) -> Any:
        """The layout as far as the type knows it: nothing is fixed of axes that the compiler decides about.

        Raises NotImplementedError where the mesh has Explicit axes, about which types do not tell."""
        from aot.sharding import NamedSharding, PartitionSpec, get_abstract_mesh
        mesh = get_abstract_mesh()
        if mesh.explicit_axes:
            raise NotImplementedError(
                f"the type of a value does not tell how it is split over the Explicit axes {mesh.explicit_axes}, which are "
                "left to the compiler here. hint: ask a concrete array for `x.sharding`, or use lax.with_sharding_constraint")
        return NamedSharding(mesh, PartitionSpec(*[None] * self.ndim))

    def update(self, shape=None, dtype=None, weak_type=None, sharding=None, manual_axis_type=None) -> ShapedArray:
        return ShapedArray(self.shape if shape is None else shape, self.dtype if dtype is None else dtype,
                           self.weak_type if weak_type is None else weak_type)

    def strip_weak_type(self) -> ShapedArray:
        return ShapedArray(self.shape, self.dtype) if self.weak_type else self

    @property
    def physical(self) -> ShapedArray:
        """What is stored: typed keys are arrays of uint32 words with trailing dimensions."""
        if isinstance(self.dtype, np.dtype):
            return self
        return ShapedArray((*self.shape, *self.dtype.impl.key_shape), np.dtype("uint32"))

    @property
    def mlir(self) -> str:
        """The StableHLO type, e.g. `tensor<2x3xf32>`."""
        if self._mlir is None:
            a = self.physical
            if prod([max(n, 1) for n in a.shape]) >= 1 << 60:      # XLA would end the process
                raise ValueError(f"an array of shape {a.shape} has more elements than any machine can hold")
            self._mlir = f"tensor<{''.join(f'{n}x' for n in a.shape)}{MLIR_NAMES[a.dtype.name]}>"
        return self._mlir

    @property
    def element(self) -> str:
        """The StableHLO type of one element as a scalar tensor."""
        return f"tensor<{MLIR_NAMES[self.dtype.name]}>"

    def str_short(self, short_dtypes: bool = True) -> str:
        name = dtypes.short_name(self.dtype) if short_dtypes else "float0" if self.dtype == dtypes.float0 else self.dtype.name
        return f"{name}[{','.join(map(str, self.shape))}]"

    def __str__(self): return self.str_short(False)

    def __repr__(self):
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self.str_short(False)}{weak})"

    def to_tangent_aval(self) -> ShapedArray:
        return tangent_aval(self)

    at_least_vspace = to_tangent_aval       # its former name


class ShapeDtypeStruct:
    """Shape and dtype without data, for `eval_shape`, `.trace(...)` and friends.

    manual_axis_type has no effect: types of traced values do not say over which manual axes they vary."""
    __slots__ = ("shape", "dtype", "sharding", "weak_type", "is_ref")

    def __init__(self, shape, dtype, *, sharding=None, weak_type: bool = False, manual_axis_type=None, is_ref: bool = False):
        if dtype is None:
            raise ValueError("ShapeDtypeStruct: dtype must be specified.")
        self.shape = tuple(shape)
        self.dtype = dtype if dtypes.issubdtype(dtype, dtypes.extended) else np.dtype(dtype)
        self.sharding, self.weak_type, self.is_ref = sharding, weak_type, is_ref

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: prod(self.shape))

    def update(self, **kw) -> ShapeDtypeStruct:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return ShapeDtypeStruct(**{**fields, **kw})

    def __eq__(self, other):
        return isinstance(other, ShapeDtypeStruct) and all(getattr(self, k) == getattr(other, k) for k in self.__slots__)

    def __hash__(self): return hash((self.shape, self.dtype, self.weak_type))

    def __len__(self):
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __repr__(self):
        weak = ", weak_type=True" if self.weak_type else ""
        sharding = f", sharding={self.sharding}" if self.sharding is not None else ""
        ref = ", is_ref=True" if self.is_ref else ""
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name}{sharding}{weak}{ref})"


# ---- avals of concrete values ------------------------------------------------------------------------------------

_scalar_avals: dict[tuple, ShapedArray] = {}


def _scalar_aval(kind: type) -> ShapedArray:
    x64 = config.enable_x64
    found = _scalar_avals.get((kind, x64))
    if found is None:
        name = {bool: "bool", int: "int", float: "float", complex: "complex"}[kind]
        bits = {"bool": "", "int": "64" if x64 else "32", "float": "64" if x64 else "32",
                "complex": "128" if x64 else "64"}[name]
        found = _scalar_avals[kind, x64] = ShapedArray((), np.dtype(name + bits), kind is not bool)
    return found


def _ndarray_aval(x) -> ShapedArray:
    if isinstance(x, np.ma.MaskedArray):
        raise ValueError("a numpy masked array would lose its mask here; hint: use x.filled() or aot.numpy.where")
    if x.dtype == dtypes.float0:
        return ShapedArray(x.shape, x.dtype)
    if x.dtype.kind in "OSUMm" or x.dtype.names:
        raise TypeError(f"a numpy array of dtype {x.dtype} is not a valid array here; "
                        "hint: convert it to a number type (numpy `astype`) first")
    if not x.dtype.isnative:
        raise TypeError(f"a numpy array of dtype {x.dtype} is not a valid array here: its bytes are in the other order; "
                        "hint: x.astype(x.dtype.newbyteorder('='))")
    return ShapedArray(x.shape, dtypes.canonicalize_dtype(x.dtype))


def _struct_aval(x: ShapeDtypeStruct) -> Any:
    if any(not isinstance(d, int) for d in x.shape):
        from aot.symbolic import refuse_symbolic
        refuse_symbolic(x.shape)
    aval = ShapedArray(x.shape, dtypes.canonicalize_dtype(x.dtype, True), x.weak_type)
    if not x.is_ref:
        return aval
    from aot.trace.refs import AbstractRef
    return AbstractRef(aval)


_typeof: dict[type, Any] = {
    np.ndarray: _ndarray_aval,
    bool: lambda x: _scalar_aval(bool), float: lambda x: _scalar_aval(float), complex: lambda x: _scalar_aval(complex),
    ShapeDtypeStruct: _struct_aval,
    ShapedArray: lambda x: x,
}


def _int_aval(x: int) -> ShapedArray:
    a = _scalar_aval(int)
    bits = 63 if a.dtype.itemsize == 8 else 31
    if not -(1 << bits) <= x < (1 << bits):
        raise OverflowError(f"Python int {x} too large to convert to {a.dtype.name}")
    return a


_typeof[int] = _int_aval


def typeof(x: Any) -> ShapedArray:
    """The aval of an Array, Tracer, numpy array or scalar, or Python scalar.  TypeError on anything else."""
    aval = getattr(x, "aval", None)
    if aval is not None:
        return aval
    f = _typeof.get(type(x))
    if f is not None:
        return f(x)
    if isinstance(x, (np.generic, np.ndarray)):
        return _ndarray_aval(x)
    for kind in (bool, int, float, complex):
        if isinstance(x, kind):
            return _typeof[kind](x)
    if hasattr(x, "__jax_array__"):
        return typeof(x.__jax_array__())
    raise TypeError(f"Argument '{x}' of type {type(x)} is not a valid JAX type")


def is_valid_type(x: Any) -> bool:
    try:
        typeof(x)
        return True
    except TypeError:
        return False


def tangent_aval(aval: ShapedArray) -> ShapedArray:
    """Floating and complex values have tangents of their own type; everything else has float0.

    So have references: what makes them gives them tangents (`NewRef.jvp`)."""
    if isinstance(aval.dtype, np.dtype) and dtypes.issubdtype(aval.dtype, np.inexact) and type(aval) is ShapedArray:
        return aval
    return ShapedArray(aval.shape, dtypes.float0)


def as_numpy(x: Any, aval: ShapedArray | None = None) -> np.ndarray:
    """Concrete value -> numpy array of its aval's (physical) dtype."""
    a = (aval or typeof(x)).physical
    return np.asarray(x, dtype=a.dtype) if not hasattr(x, "aval") else x._value
