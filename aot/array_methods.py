"""The operators, methods and properties that every array-like value of this package has.

`ArrayMethods` is inherited by the concrete `Array` and by `Tracer`. It asks three things of the class that inherits
it: `shape`, `dtype` and `aval`. Everything else forwards to `aot.numpy`, which is imported at the first use, so that
this file costs nothing at import time and there is no import cycle.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


class _LazyNumpy:
    """Stands for `aot.numpy`; a name is looked up there once and then kept in the instance."""

    def __getattr__(self, name: str) -> Any:
        import aot.numpy as jnp

        value = getattr(jnp, name)
        setattr(self, name, value)
        return value


_np: Any = _LazyNumpy()

_IMMUTABLE = (
    "JAX arrays are immutable: item assignment is not possible. To get an updated copy, write "
    "`x = x.at[idx].set(y)` in place of `x[idx] = y`; `.at[idx]` also has add, multiply, min, max and more."
)


def _operand(other: Any) -> Any:
    """`other` as an operand of a binary operator, or NotImplemented where arrays know nothing about its type."""
    if isinstance(other, _OPERAND_TYPES):
        return other
    convert = getattr(other, "__jax_array__", None)
    return NotImplemented if convert is None else convert()


def _binary(name: str, reflected: bool = False) -> Callable[[Any, Any], Any]:
    def method(self, other):
        other = _operand(other)
        if other is NotImplemented:
            return other
        function = getattr(_np, name)
        return function(other, self) if reflected else function(self, other)

    method.__doc__ = f"See `aot.numpy.{name}`" + (" (with the operands swapped)." if reflected else ".")
    return method


def _both(name: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """The operator with the array on its left, and on its right."""
    return _binary(name), _binary(name, reflected=True)


def _strict_binary(name: str, symbol: str, refused: tuple[type, ...], reflected: bool = False) -> Callable:
    """A binary operator for which Python containers are an error and not merely `NotImplemented`.

    Without this, `x == [1, 2]` would quietly be False, and `[1] + x` could be taken for concatenation.
    """
    base = _binary(name, reflected)

    def method(self, other):
        if type(other) in refused:
            left, right = type(self).__name__, type(other).__name__
            left, right = (right, left) if reflected else (left, right)
            raise TypeError(f"unsupported operand type(s) for {symbol}: {left!r} and {right!r}")
        return base(self, other)

    method.__doc__ = base.__doc__
    return method


def _unary(name: str) -> Callable[[Any], Any]:
    def method(self):
        return getattr(_np, name)(self)

    method.__doc__ = f"See `aot.numpy.{name}`."
    return method


def _method(name: str) -> Callable:
    """A method that is the function of the same name with the array as first argument."""

    def method(self, *args, **kwargs):
        return getattr(_np, name)(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"See `aot.numpy.{name}`."
    return method


def _shape_arguments(args: tuple) -> Any:
    """`x.reshape(2, 3)` and `x.reshape((2, 3))` are the same call."""
    return args[0] if len(args) == 1 else args


class ArrayMethods:
    """Operators and methods shared by arrays and tracers."""

    __slots__ = ()
    __array_priority__ = 100  # numpy's operators give way to ours
    __hash__ = None  # type: ignore[assignment]  # arrays compare elementwise, so they are not hashable

    shape: tuple[int, ...]
    dtype: Any
    aval: Any

    # ---- arithmetic --------------------------------------------------------------------------------------------
    __add__ = _strict_binary("add", "+", (list, tuple))
    __radd__ = _strict_binary("add", "+", (list, tuple), reflected=True)
    __sub__, __rsub__ = _both("subtract")
    __mul__ = _strict_binary("multiply", "*", (list, tuple))
    __rmul__ = _strict_binary("multiply", "*", (list, tuple), reflected=True)
    __truediv__, __rtruediv__ = _both("true_divide")
    __floordiv__, __rfloordiv__ = _both("floor_divide")
    __mod__, __rmod__ = _both("remainder")
    __divmod__, __rdivmod__ = _both("divmod")
    __pow__, __rpow__ = _both("power")
    __matmul__, __rmatmul__ = _both("matmul")
    __neg__, __pos__, __abs__ = _unary("negative"), _unary("positive"), _unary("abs")

    # ---- bits and comparisons ------------------------------------------------------------------------------------
    __and__, __rand__ = _both("bitwise_and")
    __or__, __ror__ = _both("bitwise_or")
    __xor__, __rxor__ = _both("bitwise_xor")
    __lshift__, __rlshift__ = _both("left_shift")
    __rshift__, __rrshift__ = _both("right_shift")
    __invert__ = _unary("invert")
    __eq__ = _strict_binary("equal", "==", (dict, list, set, tuple))  # type: ignore[assignment]
    __ne__ = _strict_binary("not_equal", "!=", (dict, list, set, tuple))  # type: ignore[assignment]
    __lt__, __le__ = _binary("less"), _binary("less_equal")
    __gt__, __ge__ = _binary("greater"), _binary("greater_equal")

    # ---- indexing and containers ---------------------------------------------------------------------------------
    def __getitem__(self, index: Any) -> Any:
        """`x[index]` with numpy's rules; out-of-range positions clamp to the nearest element."""
        return _np._getitem(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError(_IMMUTABLE)

    def __delitem__(self, index: Any) -> None:
        raise TypeError(_IMMUTABLE)

    @property
    def at(self) -> Any:
        """Pure updates: `x.at[index].set(y)`, also add, subtract, multiply, divide, power, min, max, apply, get."""
        return _np._At(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        from aot.ops.misc import rows
        return rows(self)

    def __reversed__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return reversed(_np.unstack(self))

    def __contains__(self, other: Any) -> Any:
        """Whether a scalar is among the elements of a one-dimensional array."""
        if other is None or isinstance(other, str):
            raise TypeError(f"Array.__contains__: an operand of type {type(other)} cannot be in an array")
        if self.ndim != 1 or np.ndim(other) != 0:
            raise ValueError(
                "Array.__contains__: needs a one-dimensional array and a scalar, "
                f"got shapes {self.shape} and {np.shape(other)}"
            )
        return _np.any(_np.equal(self, other))

    # ---- sizes ---------------------------------------------------------------------------------------------------
    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize

    @property
    def weak_type(self) -> bool:
        """Whether the dtype gives way to the other operand's in promotion."""
        return self.aval.weak_type

    @property
    def __numpy_dtype__(self) -> Any:
        return self.dtype

    # ---- properties that compute ---------------------------------------------------------------------------------
    T = property(_unary("transpose"))
    mT = property(_unary("matrix_transpose"))
    real = property(_unary("real"))
    imag = property(_unary("imag"))

    @property
    def flat(self) -> Any:
        """Not available: arrays are immutable and have no flat iterator."""
        raise NotImplementedError("arrays have no `.flat` iterator: use `x.ravel()` instead")

    # ---- methods that are functions of the same name -------------------------------------------------------------
    all, any = _method("all"), _method("any")
    argmax, argmin = _method("argmax"), _method("argmin")
    argpartition, argsort = _method("argpartition"), _method("argsort")
    choose, clip = _method("choose"), _method("clip")
    conj, conjugate = _method("conj"), _method("conjugate")
    copy = _method("copy")
    cumprod, cumsum = _method("cumprod"), _method("cumsum")
    diagonal, dot = _method("diagonal"), _method("dot")
    flatten, ravel = _method("ravel"), _method("ravel")
    max, mean, min = _method("max"), _method("mean"), _method("min")
    nonzero = _method("nonzero")
    prod, ptp = _method("prod"), _method("ptp")
    repeat, round = _method("repeat"), _method("round")
    searchsorted, sort = _method("searchsorted"), _method("sort")
    squeeze, std, sum = _method("squeeze"), _method("std"), _method("sum")
    swapaxes = _method("swapaxes")
    take, trace = _method("take"), _method("trace")
    var = _method("var")

    def astype(self, dtype: Any, copy: bool = False, device: Any = None) -> Any:
        """See `aot.numpy.astype`."""
        return _np.astype(self, dtype, copy=copy, device=device)

    def compress(self, condition: Any, axis: int | None = None, *, out: None = None, size: int | None = None,
                 fill_value: Any = 0) -> Any:
        """See `aot.numpy.compress`."""
        return _np.compress(condition, self, axis=axis, out=out, size=size, fill_value=fill_value)

    def reshape(self, *args: Any, order: str = "C", copy: bool | None = None, out_sharding: Any = None) -> Any:
        """See `aot.numpy.reshape`; the new shape may be given as one tuple or as several integers."""
        return _np.reshape(self, _shape_arguments(args), order=order, copy=copy, out_sharding=out_sharding)

    def transpose(self, *args: Any) -> Any:
        """See `aot.numpy.transpose`; the axes may be given as one tuple or as several integers."""
        return _np.transpose(self, _shape_arguments(args) if args else None)

    def view(self, dtype: Any = None, type: None = None) -> Any:
        """The same bits seen as another dtype; the last axis grows or shrinks with the width."""
        if type is not None:
            raise NotImplementedError("the `type` argument of view() is not supported")
        return _np._view(self, dtype)

    def byteswap(self) -> Any:
        """The bytes of every element in reversed order."""
        return _np._byteswap(self)

    # ---- placement -----------------------------------------------------------------------------------------------
    def to_device(self, device: Any, *, stream: Any = None) -> Any:
        """A copy of the array on another device."""
        if stream is not None:
            raise NotImplementedError("stream argument of array.to_device()")
        from aot.api import device_put

        return device_put(self, device)

    def clone(self) -> Any:
        """A copy of the array."""
        return _np.copy(self)

    # ---- conversions to Python -----------------------------------------------------------------------------------
    def item(self, *args: int) -> bool | int | float | complex:
        """The only element (or the one at `args`) as a Python scalar; the value must be concrete."""
        return np.asarray(self).item(*args)

    def tolist(self) -> Any:
        """Nested Python lists of Python scalars; the value must be concrete."""
        return np.asarray(self).tolist()

    def tobytes(self, order: str = "C") -> bytes:
        """The elements' bytes; the value must be concrete."""
        return np.asarray(self).tobytes(order)  # type: ignore[arg-type]

    def __copy__(self) -> Any:
        return _np.copy(self)

    def __deepcopy__(self, memo: Any) -> Any:
        return _np.copy(self)

    def __round__(self, ndigits: int | None = None) -> Any:
        rounded = _np.round(self, decimals=ndigits or 0)
        return rounded.astype(int) if ndigits is None else rounded

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The module of array functions, for code written against the array API standard."""
        import aot.numpy as jnp

        if api_version not in (None, jnp.__array_api_version__):
            raise ValueError(f"array API version {api_version!r} is not supported, use {jnp.__array_api_version__!r}")
        return jnp

    def __array_module__(self, types: Any) -> Any:
        """numpy's module dispatch (NEP 37)."""
        import aot.numpy as jnp

        known = all(issubclass(t, (ArrayMethods, np.ndarray)) for t in types)
        return jnp if known else NotImplemented


_OPERAND_TYPES = (ArrayMethods, int, float, complex, np.ndarray, np.generic)
