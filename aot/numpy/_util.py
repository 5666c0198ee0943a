"""What every file of `aot.numpy` shares: argument checks, promotion, axes, and the two ways to group operations.

Nothing here is public. Promotion works on avals, so that an argument which already has the right dtype costs two
attribute reads, and Python scalars become scalars of the promoted dtype without recording an operation.
"""
from __future__ import annotations

import functools
import inspect
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aot import dtypes, lax
from aot.api import device_put, jit
from aot.arguments import UnhashableStatic
from aot.array import Array
from aot.array_methods import ArrayMethods
from aot.config import config, gate
from aot.ops.families import typed_scalar
from aot.trace import base_trace, concrete_or_error, is_tracer, state, typeof
from aot.trace.refs import is_ref, refuse_as_array

__all__ = [
    "ArrayMethods", "arraylike", "array_of", "arrays", "axes_of", "axis_of", "broadcast", "cast", "check", "concrete",
    "concrete_index", "config", "default_float", "default_int", "dtype_of", "fused", "index_dtype", "is_tracer", "jit",
    "kind", "named", "ndim_of", "no_out", "promote", "promote_args", "quick", "shape_of", "static_axes", "typeof", "user_dtype",
    "where",
]

_SCALARS = (bool, int, float, complex, np.generic)
_WIDE = frozenset(map(np.dtype, ("int64", "uint64", "float64", "complex128")))
_PYTHON_SCALARS = frozenset((bool, int, float, complex))
_RANK_HELP = "set the option `numpy_rank_promotion` to 'allow' to accept this silently"


# ---- what kind of number -------------------------------------------------------------------------------------------
_KINDS = (("b", np.bool_), ("u", np.unsignedinteger), ("i", np.signedinteger), ("f", np.floating),
          ("c", np.complexfloating))


@functools.cache
def kind(dtype: Any) -> str:
    """'b'ool, 'u'nsigned, 'i'nteger, 'f'loat, 'c'omplex, or 'k' for keys and other extended dtypes."""
    return next((letter for letter, parent in _KINDS if dtypes.issubdtype(dtype, parent)), "k")


INEXACT = frozenset((*dtypes.FLOATS, *dtypes.COMPLEX))
BOOL = dtypes.BOOL
default_float, default_int = dtypes.default_float_dtype, dtypes.default_int_dtype
default_uint = dtypes.default_uint_dtype


def inexact(dtype: Any) -> Any:
    """`dtype` itself if it is float or complex, else the float dtype that integers are computed in."""
    if dtype in INEXACT or dtypes.is_extended(dtype):
        return dtype
    result = dtypes.to_inexact_dtype(dtype)
    return dtypes.canonicalize_dtype(result) if dtypes.canonicalize_dtype(dtype) == dtype else result


def numeric(dtype: Any) -> Any:
    """`dtype` itself, except that bool becomes int32."""
    return dtypes.to_numeric(dtype) if dtype == BOOL else dtype


def complexes(dtype: Any) -> Any:
    """The complex dtype that holds `dtype`."""
    return dtypes.canonicalize_dtype(dtypes.to_complex_dtype(dtype))


def real_of(dtype: Any) -> np.dtype:
    """The dtype of the real part: float32 for complex64, else `dtype` itself."""
    return np.zeros((), dtype).real.dtype if kind(dtype) == "c" else dtype


def user_dtype(dtype: Any, name: str = "") -> Any:
    """A dtype given by the user in the form arrays use, with a warning where 64 bits are narrowed to 32."""
    return dtypes.check_user_dtype_supported(dtype, name)


def index_dtype(size: int) -> np.dtype:
    """The dtype of positions along an axis of `size` elements, at least the default int."""
    return np.dtype(np.int64) if size > np.iinfo(np.int32).max else default_int()


# ---- arguments -----------------------------------------------------------------------------------------------------
def arraylike(x: Any) -> bool:
    """Whether `x` may be used where an array is expected: arrays and scalars, never lists or tuples."""
    return isinstance(x, (ArrayMethods, np.ndarray, *_SCALARS)) or hasattr(x, "__jax_array__")


def check(name: str, *args: Any) -> None:
    """Raise a TypeError that names the function and the position unless all `args` are array-like."""
    for position, arg in enumerate(args):
        if not arraylike(arg):
            raise TypeError(f"{name} requires ndarray or scalar arguments, got {type(arg)} at position {position}.")


def check_or_none(name: str, *args: Any) -> None:
    """Like `check`, but None is allowed."""
    for position, arg in enumerate(args):
        if arg is not None and not arraylike(arg):
            raise TypeError(f"{name} requires ndarray, scalar, or None arguments, got {type(arg)} at position {position}.")


def array_of(x: Any) -> Any:
    """`x` as an array; Python scalars stay weakly typed."""
    if isinstance(x, ArrayMethods):
        return x
    convert = getattr(x, "__jax_array__", None)
    return device_put(x) if convert is None else convert()


def arrays(name: str, *args: Any) -> Any:
    """All `args` as arrays, after `check`. One argument gives an array, several give a list."""
    if len(args) == 1 and isinstance(args[0], ArrayMethods):
        return args[0]
    check(name, *args)
    return array_of(args[0]) if len(args) == 1 else [array_of(x) for x in args]


def dtype_of(x: Any) -> Any:
    """The dtype `x` has or would have as an array."""
    return typeof(x).dtype


def shape_of(x: Any) -> tuple[int, ...]:
    """The shape of an array-like."""
    return x.shape if hasattr(x, "shape") else np.shape(x)


def ndim_of(x: Any) -> int:
    """The number of dimensions of an array-like."""
    return len(shape_of(x))


def no_out(name: str, out: Any) -> None:
    """Refuse the `out=` argument that is only there for numpy's signature."""
    if out is not None:
        raise NotImplementedError(f"The 'out' argument to jnp.{name} is not supported.")


def concrete(x: Any, context: str) -> Any:
    """`x` itself if its value is known, else the error that explains tracing, with `context`."""
    return concrete_or_error(None, x, context)


def concrete_index(x: Any, context: str) -> int:
    """`x` as a Python int; its value must be known."""
    return concrete_or_error(operator.index, x, context)


def mask_of(name: str, where_: Any) -> Any:
    """A `where=` mask as an array, checked to be boolean."""
    if where_ is None:
        return None
    where_ = arrays(name, where_)
    if where_.dtype != BOOL:
        raise ValueError(f"jnp.{name}: where must be None or a boolean array; got where.dtype={where_.dtype!r}.")
    return where_


# ---- axes ----------------------------------------------------------------------------------------------------------
def axis_of(axis: Any, ndim: int) -> int:
    """`axis` as a non-negative int below `ndim`, or numpy's error (a ValueError and an IndexError)."""
    axis = operator.index(axis)
    if not -ndim <= axis < ndim:
        raise np.exceptions.AxisError(axis, ndim)
    return axis + ndim if axis < 0 else axis


def index_tuple(x: Any) -> tuple[int, ...]:
    """An int or a sequence of ints as a tuple of ints."""
    try:
        return (operator.index(x),)
    except TypeError:
        return tuple(operator.index(i) for i in x)


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """None, an int or a sequence of ints as a tuple of different non-negative axes."""
    if axis is None:
        return tuple(range(ndim))
    axes = tuple(axis_of(a, ndim) for a in index_tuple(axis))
    if len(set(axes)) != len(axes):
        raise ValueError(f"duplicate value in 'axis': {axis}")
    return axes


def _force_axes(axis: Any) -> Any:
    try:
        return operator.index(axis)
    except TypeError:
        return tuple(a if isinstance(a, str) else operator.index(a) for a in axis)


def static_axes(axis: Any) -> Any:
    """`axis` as None, an int or a tuple of ints; a traced axis is an error that says why."""
    if axis is None or type(axis) is int:
        return axis
    return concrete_or_error(_force_axes, axis, "The axis argument must be known statically.")


# ---- promotion -----------------------------------------------------------------------------------------------------
_PYTHON_FORM = {"i": int, "u": int, "f": float, "c": complex}
_NUMBERS = frozenset((*dtypes.INTEGERS, *INEXACT))


def _is_default(dtype: Any) -> bool:
    """Whether Python scalars have this dtype."""
    return dtype.itemsize == (8 if config.enable_x64 else 4) * (2 if dtype.kind == "c" else 1) and dtype.kind in "ifc"


def _strong(x: Any, dtype: Any) -> Any:
    """A Python scalar as a numpy scalar; integers wrap around as long as they fit the default int."""
    if dtype.itemsize >= 8 and dtype in _WIDE and not config.enable_x64:
        return typed_scalar(x, dtype)       # for an array made while 64 bits were on
    try:
        return dtype.type(x)
    except OverflowError:
        return np.asarray(x, default_int()).astype(dtype)[()]
    except TypeError:                       # the small floats take no integers above 64 bits
        return dtype.type(float(x))


def scalar_like(x: Any, aval: Any) -> Any:
    """The Python scalar `x` in the type of the other operand, or None where promotion has to decide."""
    dtype, form = aval.dtype, type(x)
    if (form is float and dtype in INEXACT) or (form is int and dtype in _NUMBERS):
        if not aval.weak_type:
            wide = dtype.itemsize >= 8 and dtype in _WIDE and not config.enable_x64
            return None if wide else _strong(x, dtype)
        if _is_default(dtype):
            return _PYTHON_FORM[dtype.kind](x)
    return None


def cast(x: Any, dtype: Any, weak: bool = False) -> Any:
    """`x` with this dtype and weak type; free if it has them, and a plain scalar if `x` is a Python scalar."""
    if type(x) in _PYTHON_SCALARS and not dtypes.is_extended(dtype):
        if not weak:
            return _strong(x.real if dtype.kind != "c" and type(x) is complex else x, dtype)
        if _is_default(dtype) and (type(x) is not complex or dtype.kind == "c"):
            return _PYTHON_FORM[dtype.kind](x)
    aval = getattr(x, "aval", None) or typeof(x)
    if aval.dtype == dtype and aval.weak_type == weak:
        return x
    return lax._convert_element_type(x, dtype, weak)


def constant(x: Any, value: Any) -> Any:
    """`value` with the dtype and weak type of `x`."""
    aval = getattr(x, "aval", None) or typeof(x)
    return cast(value, aval.dtype, aval.weak_type)


def result_type(*args: Any) -> tuple[Any, bool]:
    """The promoted dtype of `args` and whether it is weak."""
    return dtypes.lattice_result_type(*args)


def promote(*args: Any, to: Callable[[Any], Any] | None = None) -> list[Any]:
    """`args` with their common dtype, after `to` (`inexact`, `numeric` or `complexes`) was applied to it."""
    dtype, weak = result_type(*args)
    if to is not None:
        dtype = to(dtype)
    return [cast(x, dtype, weak) for x in args]


def promote_arrays(*args: Any, to: Callable[[Any], Any] | None = None) -> list[Any]:
    """`promote`, with arrays for Python's numbers."""
    return [array_of(x) for x in promote(*args, to=to)]


promote_inexact = functools.partial(promote_arrays, to=inexact)
promote_complex = functools.partial(promote_arrays, to=complexes)


def same_rank(name: str, args: list[Any]) -> list[Any]:
    """Give all non-scalar `args` the same number of dimensions; `lax` broadcasts scalars and size-1 axes itself."""
    shapes = [shape_of(x) for x in args]
    rank = max([len(s) for s in shapes])
    if {len(s) for s in shapes} <= {0, rank}:
        return args
    if config.numpy_rank_promotion != "allow":
        _rank_promotion(name, shapes)
    lax.broadcast_shapes(*shapes)
    return [x if len(s) == rank or not s else _leading_ones(x, rank) for x, s in zip(args, shapes)]


def _leading_ones(x: Any, rank: int) -> Any:
    shape = shape_of(x)
    extra = rank - len(shape)
    return lax.broadcast_in_dim(x, (1,) * extra + shape, tuple(range(extra, rank)))


def _rank_promotion(name: str, shapes: Sequence[tuple[int, ...]]) -> None:
    text = f"{name}: shapes {' '.join(map(str, shapes))} have different numbers of dimensions; {_RANK_HELP}"
    if config.numpy_rank_promotion == "raise":
        raise ValueError(text)
    warnings.warn(text, stacklevel=4)


def plain(name: str, position: int, x: Any) -> Any:
    """One checked argument without the `__jax_array__` protocol around it, and never a float0 array."""
    if not isinstance(x, (ArrayMethods, np.ndarray, *_SCALARS)):
        convert = getattr(x, "__jax_array__", None)
        if convert is None:
            if is_ref(x):
                refuse_as_array(x.aval, f"passed to {name}")
            raise TypeError(f"{name} requires ndarray or scalar arguments, got {type(x)} at position {position}.")
        x = convert()
    if getattr(x, "dtype", None) == dtypes.float0:
        raise TypeError(
            f"{name} was called with a float0 array. float0 is the dtype of derivatives with respect to integers; it "
            "takes part in no operation. Did you differentiate with respect to an integer argument? "
            "`np.zeros_like(x, dtype=float)` turns it into ordinary zeros."
        )
    return x


def promote_args(name: str, *args: Any, to: Callable[[Any], Any] | None = None) -> list[Any]:
    """Check, promote dtypes and equalize ranks: what every elementwise function does to its arguments."""
    args = tuple([plain(name, i, x) for i, x in enumerate(args)])
    out = promote(*args, to=to)
    return out if len(out) == 1 else same_rank(name, out)


# ---- grouping operations ---------------------------------------------------------------------------------------------
def _lazily(fun: Callable, static: tuple[str, ...] | None) -> Callable:
    """`fun` jitted, but set up at the first call: most functions are never called in a process.

    `static`: names of static arguments; None: all that have a default. One without a hash, as an array, is traced in place."""
    made: list[Callable] = []

    def call(*args, **kwargs):
        if not made:
            made.append(jit(fun, static_argnames=_optional(fun) if static is None else static))
        try:
            return made[0](*args, **kwargs)
        except UnhashableStatic as e:
            if e.function is not made[0]:
                raise
        return fun(*args, **kwargs)

    return call


def _optional(fun: Callable) -> list[str]:
    return [p.name for p in inspect.signature(fun).parameters.values() if p.default is not p.empty]


def named(*static: str) -> Callable[[Callable], Callable]:
    """A function that is one call operation in a jaxpr, under its own name. `static`: names of static arguments."""
    return lambda fun: functools.wraps(fun)(_lazily(fun, static))


def fused(*static: str) -> Callable[[Callable], Callable]:
    """A function whose operations appear one by one in a jaxpr, but run as one computation when called eagerly."""

    def decorate(fun: Callable) -> Callable:
        compiled = _lazily(fun, static)

        @functools.wraps(fun)
        def wrapper(*args, **kwargs):
            return (compiled if state.trace is base_trace else fun)(*args, **kwargs)

        return wrapper

    return decorate


_PLAIN = frozenset((type(None), bool, int, float, str, tuple))
_ARRAY_OR_PLAIN = _PLAIN | {Array}


def quick(fun: Callable) -> Callable:
    """A function that is one compiled call outside of any trace, where its options are plain values; for the most common ones.

    What its checks and its bookkeeping cost is then paid once a signature."""
    compiled = _lazily(fun, None)

    @functools.wraps(fun)
    def wrapper(*args, **kwargs):
        if (gate.ready is not None and _ARRAY_OR_PLAIN.issuperset(map(type, args))
                and (not kwargs or _PLAIN.issuperset(map(type, kwargs.values())))):
            return compiled(*args, **kwargs)
        return fun(*args, **kwargs)

    return wrapper


# ---- broadcasting and selection --------------------------------------------------------------------------------------
def broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    """`x` with `shape`, by numpy's rules."""
    old = shape_of(x)
    if old == shape:
        return x
    if not old:
        return lax.broadcast_in_dim(x, shape, ())
    ndim, extra = len(old), len(shape) - len(old)
    if extra < 0 or any(a != b and a != 1 for a, b in zip(old, shape[extra:], strict=True)):
        raise ValueError(f"Incompatible shapes for broadcasting: {old} and requested shape {shape}")
    ones = [i for i in range(ndim) if old[i] == 1 and shape[extra + i] != 1]
    x = lax.squeeze(x, tuple(ones)) if ones else x
    return lax.broadcast_in_dim(x, shape, tuple([extra + i for i in range(ndim) if i not in ones]))


def broadcast(*args: Any) -> list[Any]:
    """All `args` as arrays with their common shape."""
    shapes = [shape_of(x) for x in args]
    if all(s == shapes[0] for s in shapes):
        return list(args)
    shape = lax.broadcast_shapes(*shapes)
    return [broadcast_to(x, shape) for x in args]


def _where(condition: Any, x: Any, y: Any) -> Any:
    if dtype_of(condition) != BOOL:
        condition = lax.ne(condition, cast(0, dtype_of(condition)))
    x, y = promote(x, y)
    if ndim_of(condition) == 0:
        x, y = broadcast(x, y)
    else:
        condition, x, y = broadcast(condition, x, y)
    return lax.select(condition, x, y) if 0 not in shape_of(x) else array_of(x)


where = jit(_where)
