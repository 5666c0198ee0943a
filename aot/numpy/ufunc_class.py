"""The `ufunc` class: an elementwise function with `reduce`, `accumulate`, `at`, `outer` and `reduceat`."""
from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from aot import lax
from aot.api import eval_shape, vmap
from aot.numpy._util import (
    BOOL,
    array_of,
    arraylike,
    arrays,
    axis_of,
    broadcast_to,
    cast,
    check,
    dtype_of,
    named,
    shape_of,
    where,
)

_AT_HELP = (
    "arrays are immutable, so ufunc.at() cannot work in place as numpy's does. Pass inplace=False and use the result:\n"
    ">>> x = jnp.add.at(x, indices, values, inplace=False)"
)


#: The methods that are one call operation in a jaxpr, and their static arguments.
_STATIC_ARGUMENTS = {
    "reduce": ("axis", "dtype", "keepdims"), "accumulate": ("axis", "dtype"), "reduceat": ("axis", "dtype"), "outer": (),
}


class ufunc:
    """An elementwise function object, such as `jnp.add`.

    `func` takes `nin` scalars and returns `nout`; it is vectorized unless `call` is given. `reduce`, `accumulate`, `at`
    and `reduceat` replace the general loops by something better.
    """

    def __init__(self, func: Callable[..., Any], /, nin: int, nout: int, *, name: str | None = None,
                 nargs: int | None = None, identity: Any = None, call: Callable[..., Any] | None = None,
                 reduce: Callable[..., Any] | None = None, accumulate: Callable[..., Any] | None = None,
                 at: Callable[..., Any] | None = None, reduceat: Callable[..., Any] | None = None):
        self.__doc__ = func.__doc__
        self.__name__ = name or func.__name__
        self._func, self.identity = func, identity
        self.nin, self.nout, self.nargs = operator.index(nin), operator.index(nout), operator.index(nargs or nin)
        self._call = call or self._vectorized
        self._reduce, self._accumulate = reduce or self._reduce_loop, accumulate or self._accumulate_loop
        self._at, self._reduceat = at or self._at_loop, reduceat or self._reduceat_loop
        for method, static in _STATIC_ARGUMENTS.items():
            setattr(self, method, named(*static)(getattr(self, method)))
        self._at_jitted = named()(self._apply_at)

    def _key(self) -> tuple:
        return self._func, self.__name__, self.identity, self.nin, self.nout, self.nargs

    def __hash__(self) -> int:
        return hash(self._key())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ufunc) and self._key() == other._key()

    def __repr__(self) -> str:
        return f"<jnp.ufunc '{self.__name__}'>"

    def __call__(self, *args: Any, out: None = None, where: None = None) -> Any:
        if out is not None:
            raise NotImplementedError(f"out argument of {self}")
        if where is not None:
            raise NotImplementedError(f"where argument of {self}")
        return self._call(*args)

    def _vectorized(self, *args: Any) -> Any:
        from aot.numpy.vectorizing import vectorize

        check(self.__name__, *args)
        return vectorize(self._func)(*args)

    def _need_binary(self, method: str) -> None:
        if self.nin != 2:
            raise ValueError(f"{method} only supported for binary ufuncs")
        if self.nout != 1:
            raise ValueError(f"{method} only supported for functions returning a single value")

    def _no_out(self, method: str, out: Any) -> None:
        if out is not None:
            raise NotImplementedError(f"out argument of {self.__name__}.{method}()")

    def _result_dtype(self, *args: Any) -> Any:
        """The dtype the function returns for scalars of the dtypes of `args`."""
        return eval_shape(self._func, *[np.ones((), dtype_of(a)) for a in args]).dtype

    # ---- reduce ----------------------------------------------------------------------------------------------------
    def reduce(self, a: Any, axis: int | None = 0, dtype: Any = None, out: None = None, keepdims: bool = False,
               initial: Any = None, where: Any = None) -> Any:
        """Combine all elements along `axis` with this function."""
        self._need_binary("reduce")
        self._no_out("reduce", out)
        check(f"{self.__name__}.reduce", a, *[v for v in (initial, where) if v is not None])
        if where is not None:
            if self.identity is None and initial is None:
                raise ValueError(f"reduction operation {self.__name__!r} does not have an identity, so to use a where "
                                 "mask one has to specify 'initial'.")
            if dtype_of(where) != BOOL:
                raise ValueError(f"where argument must have dtype=bool; got dtype={dtype_of(where)}")
        return self._reduce(a, axis=axis, dtype=dtype, keepdims=keepdims, initial=initial, where=where)

    def _reduce_loop(self, a: Any, axis: Any = 0, dtype: Any = None, keepdims: bool = False, initial: Any = None,
                     where: Any = None) -> Any:
        if isinstance(axis, tuple):
            raise NotImplementedError("tuple of axes")
        a, mask = array_of(a), where
        initial = self.identity if initial is None else initial
        dtype = self._result_dtype(a, a) if dtype is None else dtype
        mask = None if mask is None else broadcast_to(array_of(mask), a.shape)
        ones = [1 if axis is None or i == axis_of(axis, a.ndim) else n for i, n in enumerate(a.shape)]
        axis = None if axis is None else axis_of(axis, a.ndim)
        a, mask = _leading(a, axis), None if mask is None else _leading(mask, axis)
        result = self._fold(a, mask, dtype, initial)
        return lax.reshape(result, tuple(ones)) if keepdims else result

    def _fold(self, a: Any, mask: Any, dtype: Any, initial: Any) -> Any:
        """Left fold over axis 0 of `a`."""
        if a.shape[0] == 0:
            if initial is None:
                raise ValueError(f"zero-size array to reduction operation {self.__name__} which has no identity")
            return lax.full(a.shape[1:], initial, dtype)

        def body(i, value):
            new = self(value, lax.convert_element_type(lax.dynamic_index_in_dim(a, i, keepdims=False), dtype))
            return new if mask is None else where(lax.dynamic_index_in_dim(mask, i, keepdims=False), new, value)

        first = lax.index_in_dim(a, 0, keepdims=False) if initial is None else array_of(initial)
        first = broadcast_to(lax.convert_element_type(first, dtype), a.shape[1:])
        return lax.fori_loop(1 if initial is None else 0, a.shape[0], body, first)

    # ---- accumulate ------------------------------------------------------------------------------------------------
    def accumulate(self, a: Any, axis: int = 0, dtype: Any = None, out: None = None) -> Any:
        """All partial reductions along `axis`."""
        self._need_binary("accumulate")
        self._no_out("accumulate", out)
        check(f"{self.__name__}.accumulate", a)
        return self._accumulate(a, axis=axis, dtype=dtype)

    def _accumulate_loop(self, a: Any, axis: Any = 0, dtype: Any = None) -> Any:
        if axis is None or isinstance(axis, tuple):
            raise ValueError("accumulate does not allow multiple axes")
        a = array_of(a)
        dtype = self._result_dtype(a, a) if dtype is None else dtype
        axis = axis_of(axis, a.ndim)
        if a.size == 0:
            return lax.full(a.shape, 0, dtype)
        a = lax.convert_element_type(_leading(a, axis), dtype)

        def body(carry, row):
            new = lax.convert_element_type(self(carry, row), dtype)
            return new, new

        first, rest = lax.index_in_dim(a, 0, keepdims=False), lax.slice_in_dim(a, 1, None)
        _, rows = lax.scan(body, first, rest)
        return _back(lax.concatenate([lax.expand_dims(first, (0,)), rows], 0), axis)

    # ---- at --------------------------------------------------------------------------------------------------------
    def at(self, a: Any, indices: Any, b: Any = None, /, *, inplace: bool = True) -> Any:
        """`a` with this function applied at `indices`, once for every occurrence of an index."""
        if inplace:
            raise NotImplementedError(_AT_HELP)
        entries = indices if isinstance(indices, tuple) else (indices,)
        plain = any(not arraylike(i) for i in entries)  # slices are no arguments for a jitted function
        return (self._apply_at if plain else self._at_jitted)(a, indices, b)

    def _apply_at(self, a: Any, indices: Any, b: Any) -> Any:
        return self._at(array_of(a), indices) if b is None else self._at(array_of(a), indices, b)

    def _at_loop(self, a: Any, indices: Any, *args: Any) -> Any:
        check(f"{self.__name__}.at", a, *args)
        dtype = self._result_dtype(a, *args)
        a, *operands = [lax.convert_element_type(array_of(x), dtype) for x in (a, *args)]
        indices = indices if isinstance(indices, tuple) else (indices,)
        if not indices:
            return a
        shapes = [shape_of(i) for i in indices if not isinstance(i, slice)]
        shape = lax.broadcast_shapes(*shapes) if shapes else ()
        if not shape:
            return a.at[indices].set(self(a.at[indices].get(), *operands))
        size = math.prod(shape)
        flat = [i if isinstance(i, slice) else lax.reshape(broadcast_to(array_of(i), shape), (size,)) for i in indices]
        values = [_flat_values(x, shape, size) for x in operands]

        def body(i, a):
            here = tuple(ind if isinstance(ind, slice) else ind[i] for ind in flat)
            return a.at[here].set(self(a.at[here].get(), *[v[i] for v in values]))

        return lax.fori_loop(0, size, body, a)

    # ---- reduceat and outer ----------------------------------------------------------------------------------------
    def reduceat(self, a: Any, indices: Any, axis: int = 0, dtype: Any = None, out: None = None) -> Any:
        """Reductions over the segments of `axis` that start at `indices`."""
        self._need_binary("reduceat")
        self._no_out("reduceat", out)
        return self._reduceat(a, indices, axis=axis, dtype=dtype)

    def _reduceat_loop(self, a: Any, indices: Any, axis: Any = 0, dtype: Any = None) -> Any:
        a, indices = arrays(f"{self.__name__}.reduceat", a, indices)
        if a.ndim == 0:
            raise ValueError(f"reduceat: a must have 1 or more dimension, got {a.shape=}")
        if indices.ndim != 1:
            raise ValueError(f"reduceat: indices must be one-dimensional, got {indices.shape=}")
        if axis is None or isinstance(axis, (tuple, list)):
            raise ValueError("reduceat requires a single integer axis.")
        from aot.numpy.selecting import take

        axis = axis_of(axis, a.ndim)
        others = tuple(i for i in range(a.ndim) if i != axis)
        ends = lax.concatenate([indices, lax.full((1,), a.shape[axis], indices.dtype)], 0)
        start, stop = [lax.expand_dims(x, others) for x in (indices, lax.slice_in_dim(ends, 1, None))]

        def body(i, out):
            row = lax.dynamic_slice_in_dim(a, i, 1, axis)
            inside = lax.bitwise_and(lax.gt(cast(i, start.dtype), start), lax.lt(cast(i, stop.dtype), stop))
            return where(inside, self(out, row), out)

        return lax.fori_loop(0, a.shape[axis], body, take(a, indices, axis=axis))

    def outer(self, A: Any, B: Any, /) -> Any:
        """The function of every pair of elements: shape `A.shape + B.shape`."""
        self._need_binary("outer")
        A, B = arrays(f"{self.__name__}.outer", A, B)
        flat = vmap(vmap(self, (None, 0)), (0, None))(lax.reshape(A, (A.size,)), lax.reshape(B, (B.size,)))
        return lax.reshape(flat, (*A.shape, *B.shape))


def _leading(a: Any, axis: int | None) -> Any:
    """`axis` moved to the front; everything flattened if it is None."""
    if axis is None:
        return lax.reshape(a, (a.size,))
    return lax.transpose(a, (axis, *[i for i in range(a.ndim) if i != axis])) if axis else a


def _back(a: Any, axis: int) -> Any:
    """The front axis moved to `axis`."""
    return lax.transpose(a, (*range(1, axis + 1), 0, *range(axis + 1, a.ndim))) if axis else a


def _flat_values(x: Any, shape: tuple[int, ...], size: int) -> Any:
    rest = x.shape[len(shape):]
    return lax.reshape(broadcast_to(x, (*shape, *rest)), (size, *rest))


def frompyfunc(func: Callable[..., Any], /, nin: int, nout: int, *, identity: Any = None) -> ufunc:
    """A ufunc from a function of scalars that uses `aot.numpy` operations."""
    return ufunc(func, nin, nout, identity=identity)
