"""Making arrays: from data, from a shape and a value, ranges, grids, and the matrices eye, tri, diag."""
from __future__ import annotations

import math
import reprlib
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aot import dtypes, lax
from aot.api import device_put, vmap
from aot.array_methods import ArrayMethods
from aot.numpy import _util
from aot.numpy._util import (
    BOOL,
    array_of,
    arrays,
    cast,
    check,
    check_or_none,
    concrete,
    concrete_index,
    default_float,
    default_int,
    dtype_of,
    inexact,
    is_tracer,
    kind,
    named,
    ndim_of,
    quick,
    result_type,
    shape_of,
    user_dtype,
)
from aot.trace.core import staged


# ---- from data -------------------------------------------------------------------------------------------------------
def array(object: Any, dtype: Any = None, *args: Any, copy: bool = True, order: str | None = "K", ndmin: int = 0,
          device: Any = None, out_sharding: Any = None) -> Any:
    """An array from a number, a nested sequence, a numpy array or anything with the array or buffer protocol."""
    if args:
        copy, order, ndmin = _positional(args, copy, order, ndmin)
    if order is not None and order != "K":
        raise NotImplementedError("Only implemented for order='K'")
    weak = dtype is None and _is_weak(object)
    dtype = None if dtype is None else user_dtype(dtype, "array")
    out = _convert(_unwrap(object), dtype, weak, copy)
    if type(object) in (bool, int, float, complex):
        out = staged(out)
    if ndmin > out.ndim:
        out = lax.expand_dims(out, tuple(range(ndmin - out.ndim)))
    target = _placement(device, out_sharding, "array")
    return out if target is None else device_put(out, target)


def asarray(a: Any, dtype: Any = None, order: str | None = None, *, copy: bool | None = None, device: Any = None,
            out_sharding: Any = None) -> Any:
    """Like `array`, without copying what is an array already."""
    if dtype is None and isinstance(a, ArrayMethods) and not copy and device is None and out_sharding is None:
        return a
    return array(a, dtype, copy=bool(copy), order=order, device=device, out_sharding=out_sharding)


def _positional(args: tuple, copy: Any, order: Any, ndmin: Any) -> tuple[Any, Any, Any]:
    """`copy, order, ndmin` given by position, which numpy once allowed."""
    if len(args) > 3:
        raise TypeError(f"array() takes at most 5 positional arguments but {len(args) + 2} were given")
    given, default = [copy, order, ndmin], [True, "K", 0]
    for i, name in enumerate(("copy", "order", "ndmin")[:len(args)]):
        if given[i] != default[i]:
            raise TypeError(f"array() got multiple values for argument {name!r}")
    import warnings

    warnings.warn("Pass copy, order and ndmin of jnp.array by keyword.", DeprecationWarning, stacklevel=3)
    copy, order, ndmin = (*args, *given[len(args):])
    return copy, order, ndmin


def _is_weak(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return False
    return type(x) in (int, float, complex) or bool(getattr(x, "weak_type", False))


def _unwrap(x: Any) -> Any:
    """The array behind the `__jax_array__` protocol."""
    if isinstance(x, ArrayMethods) or not hasattr(x, "__jax_array__"):
        return x
    return x.__jax_array__()


def _convert(x: Any, dtype: Any, weak: bool, copy: bool) -> Any:
    if isinstance(x, ArrayMethods):
        out = x if dtype is None else cast(x, dtype)
        return _copy(out) if copy and out is x else out
    if isinstance(x, (list, tuple)):
        return _from_sequence(x, dtype)
    if type(x) in (bool, int, float, complex):
        return array_of(x) if dtype is None or weak else _put(_scalar(x, dtype), dtype)
    if not isinstance(x, (np.ndarray, np.generic)):
        x = _from_object(x)
    dtype = dtypes.canonicalize_dtype(x.dtype) if dtype is None else dtype
    return _put(np.asarray(x), dtype)


def _scalar(x: Any, dtype: Any) -> np.ndarray:
    """A Python scalar as numpy array; out of range is an OverflowError, as in numpy."""
    if kind(dtype) in "ui" and type(x) in (bool, int):
        return np.asarray(dtype.type(x))
    return np.asarray(x)


def _put(x: np.ndarray, dtype: Any) -> Any:
    """A numpy array as an array of `dtype`, converted on the host by numpy's rules."""
    if x.dtype != dtype:
        if kind(x.dtype) == "c" and kind(dtype) not in "cb":
            x = x.real
        x = x.astype(dtype)
    return device_put(x)


def _from_object(x: Any) -> np.ndarray:
    if x is None:
        raise ValueError("None is not a valid value for jnp.array")
    for protocol in ("__array__", "__array_interface__"):
        if hasattr(x, protocol):
            return np.asarray(x)
    try:
        out = np.array(memoryview(x))
    except TypeError:
        out = np.asarray(x)  # ranges and other sequences; subclasses of numbers such as IntEnum
    if out.dtype.kind in "OSUMm":
        raise TypeError(f"Value {reprlib.repr(x)} is no number and no array of numbers. "
                        f"Unexpected input type for array: {type(x)}. hint: keep other objects outside of arrays")
    return out


def _leaves(x: Any) -> list[Any]:
    """The innermost entries of a nested sequence."""
    if not isinstance(x, (list, tuple)):
        return [x]
    return [leaf for item in x for leaf in _leaves(item)]


def _from_sequence(x: Any, dtype: Any) -> Any:
    leaves = _leaves(x)
    if any(leaf is None for leaf in leaves):
        raise ValueError("None is not a valid value for jnp.array")
    if dtype is None:
        dtype = result_type(*[_typed(leaf) for leaf in leaves])[0] if leaves else default_float()
    # Concrete arrays could be gathered on the host, but that would stop derivatives and placement from following them.
    if not any(isinstance(_unwrap(leaf), ArrayMethods) for leaf in leaves):
        return _put(_host_array(x, leaves, dtype), dtype)
    return _join(x, dtype)


def _typed(leaf: Any) -> Any:
    """Something that has a dtype."""
    leaf = _unwrap(leaf)
    return leaf if isinstance(leaf, (ArrayMethods, bool, int, float, complex)) or hasattr(leaf, "dtype") else np.asarray(leaf)


def _host_array(x: Any, leaves: list[Any], dtype: Any) -> np.ndarray:
    if kind(dtype) in "ui" and any(type(leaf) is not int and kind(dtype_of(_typed(leaf))) in "fc" for leaf in leaves):
        return np.asarray(x)  # converted by _put: numpy itself would refuse 1.5 as an element of an int array
    return np.asarray(x, dtype=dtype)


def _join(x: Any, dtype: Any) -> Any:
    """Rows converted one by one, then concatenated; at most 16 at a time, to keep operations small."""
    if not isinstance(x, (list, tuple)):
        return cast(array_of(_unwrap(x)), dtype) if isinstance(_unwrap(x), ArrayMethods) else _convert(x, dtype, False, False)
    if not x:
        return lax.full((0,), 0, dtype)
    rows = [lax.expand_dims(row, (0,)) for row in [_join(row, dtype) for row in x]]
    while len(rows) > 16:
        rows = [lax.concatenate(rows[i:i + 16], 0) for i in range(0, len(rows), 16)]
    return lax.concatenate(rows, 0)


def _copy(x: Any) -> Any:
    return x if is_tracer(x) else lax.copy(x)


def copy(a: Any, order: str | None = None) -> Any:
    """A copy of the array."""
    check("copy", a)
    return array(a, copy=True, order=order)


def astype(x: Any, dtype: Any, /, *, copy: bool = False, device: Any = None) -> Any:
    """`x` converted to `dtype`; out-of-range floats saturate when they become integers."""
    x = arrays("astype", x)
    dtype = default_float() if dtype is None else user_dtype(dtype, "astype")
    if not dtypes.is_extended(dtype) and kind(x.dtype) == "c" and kind(dtype) != "c":
        x = _from_complex(x, dtype)
    out = lax._convert_element_type(x, dtype, False)
    out = _copy(out) if copy and out is x else out
    return out if device is None else device_put(out, device)


def _from_complex(x: Any, dtype: Any) -> Any:
    if kind(dtype) == "b":
        return lax.ne(x, cast(0, x.dtype))
    import warnings

    warnings.warn("astype from complex to real drops the imaginary part; use jnp.real or jnp.imag to say which part is "
                  "meant.", DeprecationWarning, stacklevel=3)
    return lax.real(x)


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Any:
    """A one-dimensional array from the bytes of a buffer."""
    return asarray(np.frombuffer(buffer, dtype=np.dtype(dtype), count=count, offset=offset))


def fromstring(string: str, dtype: Any = float, count: int = -1, *, sep: str) -> Any:
    """A one-dimensional array from numbers in a text."""
    return asarray(np.fromstring(string, dtype=np.dtype(dtype), count=count, sep=sep))


def _impure(name: str) -> Callable[..., Any]:
    def fun(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"jnp.{name}() is not available: it consumes its input, so a traced function that used it would not be "
            f"pure. Use jnp.asarray(np.{name}(...)) outside of traced functions."
        )

    fun.__name__, fun.__doc__ = name, f"Not available; use `jnp.asarray(np.{name}(...))`."
    return fun


fromfile, fromiter = _impure("fromfile"), _impure("fromiter")


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """An array that shares the memory of any object with `__dlpack__`."""
    from aot import dlpack

    return dlpack.from_dlpack(x, device=device, copy=copy)


def fromfunction(function: Callable[..., Any], shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
    """`function(i, j, ...)` of all index tuples of `shape`."""
    sizes = _shape(shape)
    for i in range(len(sizes)):
        function = vmap(function, in_axes=tuple(0 if i == j else None for j in range(len(sizes)))[::-1])
    return function(*[arange(n, dtype=dtype) for n in sizes], **kwargs)


def load(file: Any, *args: Any, **kwargs: Any) -> Any:
    """An array from a .npy file, or the dictionary-like contents of a .npz file."""
    out = np.load(file, *args, **kwargs)
    if isinstance(out, np.ndarray):
        # numpy writes bfloat16 as raw two-byte records.
        out = out.view(dtypes.bfloat16) if out.dtype == "V2" else out
        try:
            return asarray(out)
        except TypeError:
            return out
    return out


# ---- from a shape ----------------------------------------------------------------------------------------------------
def _shape(shape: Any) -> tuple[int, ...]:
    from aot.numpy.shapes import _static_dim

    if isinstance(shape, types.GeneratorType):
        raise TypeError("expected sequence object with len >= 0 or a single integer")
    sizes = tuple(_static_dim(d) for d in (shape if np.iterable(shape) else (shape,)))
    if any(d < 0 for d in sizes):
        raise TypeError(f"shapes cannot have negative sizes, got {sizes}")
    return sizes


def _placement(device: Any, out_sharding: Any, name: str) -> Any:
    if device is not None and out_sharding is not None:
        raise ValueError(f"jnp.{name}: only one of `device` or `out_sharding` can be set, got {device!r} and {out_sharding!r}")
    return out_sharding if device is None else device


def _filled(name: str, shape: Any, value: Any, dtype: Any, device: Any, out_sharding: Any) -> Any:
    if isinstance(dtype, int) and isinstance(shape, int):
        raise TypeError(f"Cannot interpret '{dtype}' as a data type.\n\nDid you mean jnp.{name}(({shape}, {dtype})), with "
                        "the shape as one tuple?")
    dtype = default_float() if dtype is None else dtype if dtypes.is_extended(dtype) else user_dtype(dtype, name)
    target = _placement(device, out_sharding, name)
    out = lax.full(_shape(shape), value, dtype)
    return out if target is None else device_put(out, target)


def zeros(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """An array of zeros."""
    return _filled("zeros", shape, 0, dtype, device, out_sharding)


def ones(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """An array of ones."""
    return _filled("ones", shape, 1, dtype, device, out_sharding)


def empty(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """An array of zeros: there is no uninitialised memory here."""
    return _filled("empty", shape, 0, dtype, device, out_sharding)


def full(shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """An array of `fill_value`, which may be an array that broadcasts to `shape`."""
    check("full", fill_value)
    dtype = None if dtype is None else user_dtype(dtype, "full")
    target, sizes = _placement(device, out_sharding, "full"), _shape(shape)
    if ndim_of(fill_value) == 0:
        out = lax.full(sizes, fill_value, dtype)
    else:
        out = _util.broadcast_to(asarray(fill_value, dtype=dtype), sizes)
    return out if target is None else device_put(out, target)


def _like(name: str, a: Any, value: Any, dtype: Any, shape: Any, device: Any, out_sharding: Any) -> Any:
    if not (hasattr(a, "dtype") and hasattr(a, "shape")):
        check(name, a)
        a = _unwrap(a)
    check(name, value)
    dtype = None if dtype is None else user_dtype(dtype, name)
    sizes, target = None if shape is None else _shape(shape), _placement(device, out_sharding, name)
    if ndim_of(value) == 0:
        out = lax.full_like(a, value, dtype, sizes)
    else:
        sizes = shape_of(a) if sizes is None else sizes
        out = _util.broadcast_to(asarray(value, dtype=result_type(a)[0] if dtype is None else dtype), sizes)
    return out if target is None else device_put(out, target)


def zeros_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """Zeros with the shape and dtype of `a`."""
    return _like("zeros_like", a, 0, dtype, shape, device, out_sharding)


def ones_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None) -> Any:
    """Ones with the shape and dtype of `a`."""
    return _like("ones_like", a, 1, dtype, shape, device, out_sharding)


def empty_like(prototype: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Any:
    """Zeros with the shape and dtype of `prototype`."""
    return _like("empty_like", prototype, 0, dtype, shape, device, None)


def full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Any = None, *, device: Any = None,
              out_sharding: Any = None) -> Any:
    """`fill_value` with the shape and dtype of `a`."""
    return _like("full_like", a, fill_value, dtype, shape, device, out_sharding)


# ---- ranges ----------------------------------------------------------------------------------------------------------
def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None, *, device: Any = None,
           out_sharding: Any = None) -> Any:
    """Numbers from `start` (0 by default) up to, not including, `stop` in steps of `step`."""
    out = _arange(start, stop, step, dtype)
    target = _placement(device, out_sharding, "arange")
    return out if target is None else device_put(out, target)


def _arange(start: Any, stop: Any, step: Any, dtype: Any) -> Any:
    dtype = None if dtype is None else user_dtype(dtype, "arange")
    check_or_none("arange", start, stop, step)
    first = "stop" if stop is None and step is None else "start"
    given = {first: start, "stop": stop, "step": step} if first == "start" else {"stop": start}
    for name, value in given.items():
        value = concrete(value, f"It arose in the jnp.arange argument '{name}'")
        if value is not None and ndim_of(value) != 0:
            raise ValueError(f"jax.numpy.arange: arguments must be scalars; got {name}={value}")
        if value is not None and kind(dtype_of(value)) == "c":
            raise ValueError("jnp.arange does not accept complex start, stop or step")
    if dtype is None:
        dtype = result_type(*[x for x in (start, stop, step) if x is not None])[0]
    start, stop = (0, start) if stop is None else (start, stop)
    if step is None:
        count = _count(stop if _is_zero(start) else _minus(stop, start))
        steps = lax.broadcasted_iota(dtype, (count,), 0)
        return steps if _is_zero(start) else lax.add(_static_scalar(start, dtype), steps)
    return _stepped(start, stop, step, dtype)


def _stepped(start: Any, stop: Any, step: Any, dtype: Any) -> Any:
    count = _count(_minus(stop, start) / _host(step))
    # Narrow floats could not even count the steps.
    narrow = kind(dtype) == "f" and dtypes.finfo(dtype).bits < 32
    work = np.dtype(np.float32) if narrow else dtype
    steps = lax.mul(_static_scalar(step, work), lax.broadcasted_iota(work, (count,), 0))
    return lax.convert_element_type(lax.add(_static_scalar(start, work), steps), dtype)


def _host(x: Any) -> Any:
    return x if isinstance(x, (int, float, np.generic)) else np.asarray(x)[()]


def _minus(a: Any, b: Any) -> Any:
    return _host(a) - _host(b)


def _is_zero(x: Any) -> bool:
    return bool(_host(x) == 0)


def _count(x: Any) -> int:
    return max(0, math.ceil(_host(x)))


def _static_scalar(x: Any, dtype: Any) -> Any:
    """A known number as a scalar constant of `dtype`."""
    return np.asarray(_host(x)).astype(dtype)[()]


@quick
def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None,
             axis: int = 0, *, device: Any = None) -> Any:
    """`num` evenly spaced numbers from `start` to `stop`; also their distance if `retstep`."""
    num = concrete_index(num, "'num' argument of jnp.linspace")
    axis = concrete_index(axis, "'axis' argument of jnp.linspace")
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    check("linspace", start, stop)
    dtype = None if dtype is None else user_dtype(dtype, "linspace")
    values, *step = _linspace(start, stop, num=num, endpoint=bool(endpoint), retstep=bool(retstep), dtype=dtype, axis=axis)
    values = values if device is None else device_put(values, device)
    return (values, *step) if retstep else values


@named("num", "endpoint", "retstep", "dtype", "axis")
def _linspace(start: Any, stop: Any, num: int, endpoint: bool, retstep: bool, dtype: Any, axis: int) -> tuple[Any, ...]:
    values, step = _evenly_spaced(start, stop, num, endpoint, dtype, axis)
    return (values, step) if retstep else (values,)


def _evenly_spaced(start: Any, stop: Any, num: int, endpoint: bool, dtype: Any, axis: int) -> tuple[Any, Any]:
    if dtype is None:
        dtype = inexact(result_type(start, stop)[0])
    work = inexact(dtype)
    start, stop = [lax.convert_element_type(x, work) for x in (start, stop)]
    start, stop = _util.broadcast(start, stop)
    axis = start.ndim + axis + 1 if axis < 0 else axis
    first, last = lax.expand_dims(start, (axis,)), lax.expand_dims(stop, (axis,))
    if num <= 1:
        empty = lax.full((*start.shape[:axis], 0, *start.shape[axis:]), 0, work)
        values = first if num == 1 else empty
        step = lax.full((), np.nan, work) if num == 0 or endpoint else lax.sub(stop, start)
        step = _util.broadcast_to(step, start.shape) if num == 1 and not endpoint else step
        return _to(values, dtype), step
    parts = num - 1 if endpoint else num
    delta = lax.div(lax.sub(stop, start), cast(parts, work))
    real = _util.real_of(work)
    ratio = lax.div(lax.iota(real, parts), cast(parts, real))
    ratio = lax.reshape(lax.convert_element_type(ratio, work), tuple(parts if i == axis else 1 for i in range(first.ndim)))
    # Weighting both ends keeps the result inside them; `start + k * delta` may step over the end.
    values = lax.add(lax.mul(first, lax.sub(cast(1, work), ratio)), lax.mul(last, ratio))
    if endpoint:
        values = lax.concatenate([values, last], axis)
    return _to(values, dtype), delta


def _to(x: Any, dtype: Any) -> Any:
    """Convert, rounding down on the way to integers."""
    if kind(dtype) in "ui" and kind(x.dtype) not in "ui":
        x = lax.floor(x)
    return lax.convert_element_type(x, dtype)


def logspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None,
             axis: int = 0) -> Any:
    """`base` to the power of evenly spaced numbers."""
    num = concrete_index(num, "'num' argument of jnp.logspace")
    axis = concrete_index(axis, "'axis' argument of jnp.logspace")
    check("logspace", start, stop)
    dtype = inexact(result_type(start, stop)[0]) if dtype is None else user_dtype(dtype, "logspace")
    return _logspace(start, stop, num=num, endpoint=bool(endpoint), base=base, dtype=dtype, axis=axis)


@named("num", "endpoint", "dtype", "axis")
def _logspace(start: Any, stop: Any, num: int, endpoint: bool, base: Any, dtype: Any, axis: int) -> Any:
    from aot.numpy.ufuncs import power

    start, stop = [lax.convert_element_type(x, inexact(dtype)) for x in (start, stop)]
    exponents = linspace(start, stop, num, endpoint=endpoint, axis=axis)
    return lax.convert_element_type(power(base, exponents), dtype)


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    """`num` numbers from `start` to `stop` with a constant ratio."""
    num = concrete_index(num, "'num' argument of jnp.geomspace")
    axis = concrete_index(axis, "'axis' argument of jnp.geomspace")
    check("geomspace", start, stop)
    dtype = inexact(result_type(start, stop)[0]) if dtype is None else user_dtype(dtype, "geomspace")
    return _geomspace(start, stop, num=num, endpoint=bool(endpoint), dtype=dtype, axis=axis)


@named("num", "endpoint", "dtype", "axis")
def _geomspace(start: Any, stop: Any, num: int, endpoint: bool, dtype: Any, axis: int) -> Any:
    from aot.numpy import elementwise, shapes

    start, stop = [lax.convert_element_type(x, inexact(dtype)) for x in (start, stop)]
    direction = lax.sign(start)
    start, stop = [elementwise.log10(lax.div(*_util.broadcast(x, direction))) for x in (start, stop)]
    values = logspace(start, stop, num, endpoint=endpoint, base=10.0, dtype=inexact(dtype))
    values = lax.mul(*_util.broadcast(direction, values))
    return lax.convert_element_type(shapes.moveaxis(values, 0, axis), dtype)


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list[Any]:
    """Coordinate arrays of the grid spanned by one-dimensional arrays."""
    check("meshgrid", *xi)
    args = [array_of(x) for x in xi]
    if not copy:
        raise ValueError("jax.numpy.meshgrid only supports copy=True")
    if indexing not in ("xy", "ij"):
        raise ValueError(f"Valid values for indexing are 'xy' and 'ij', got {indexing}")
    if any(a.ndim != 1 for a in args):
        raise ValueError(f"Arguments to jax.numpy.meshgrid must be 1D, got shapes {[a.shape for a in args]}")
    swap = indexing == "xy" and len(args) >= 2
    order = [1, 0, *range(2, len(args))] if swap else list(range(len(args)))
    sizes = [args[i].shape[0] for i in order]

    def grid(axis: int, a: Any) -> Any:
        shape = tuple(n if i == axis or not sparse else 1 for i, n in enumerate(sizes))
        return lax.broadcast_in_dim(a, shape, (axis,))

    return [grid(order.index(i), a) for i, a in enumerate(args)]


def indices(dimensions: Sequence[int], dtype: Any = None, sparse: bool = False) -> Any:
    """The coordinates of every element of an array with this shape: shape `(n, *dimensions)`, or n sparse arrays."""
    dtype = default_int() if dtype is None else user_dtype(dtype, "indices")
    sizes = tuple(concrete_index(d, "dimensions argument of jnp.indices") for d in dimensions)
    out = []
    for i, n in enumerate(sizes):
        shape = tuple(n if j == i else 1 for j in range(len(sizes))) if sparse else sizes
        out.append(lax.broadcast_in_dim(lax.iota(dtype, n), shape, (i,)))
    if sparse:
        return tuple(out)
    return lax.stack(out, axis=0) if out else lax.full((0,), 0, dtype)


def ix_(*args: Any) -> tuple[Any, ...]:
    """One-dimensional index arrays shaped so that together they select a grid."""
    check("ix", *args)
    out = []
    for i, a in enumerate(map(array_of, args)):
        if a.ndim != 1:
            raise ValueError(f"Arguments to jax.numpy.ix_ must be 1-dimensional, got shape {a.shape}")
        if a.dtype == BOOL:
            raise NotImplementedError("Boolean arguments to jax.numpy.ix_ are not implemented")
        shape = tuple(a.shape[0] if j == i else 1 for j in range(len(args)))
        out.append(lax.broadcast_in_dim(a, shape, (i,)) if a.size else lax.full(shape, 0, default_int()))
    return tuple(out)


