"""Products of arrays: dot, matmul, tensordot, inner, outer, vdot, vecdot, matvec, vecmat, kron, cross."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aot import lax
from aot.numpy import _util
from aot.numpy._util import array_of, arrays, axis_of, cast, check, kind, named, no_out, promote, quick, user_dtype
from aot.ops.shape import placed


def _element_type(name: str, a: Any, b: Any, given: Any) -> tuple[Any, bool]:
    """The dtype of the result and whether it is weak."""
    if given is not None:
        return user_dtype(given, name), False
    if a.dtype == b.dtype and not a.aval.weak_type:
        return a.dtype, False
    return _util.result_type(a, b)


def _contract(a: Any, b: Any, axes: tuple, batch: tuple, dtype: Any, weak: bool, precision: Any, sharding: Any = None) -> Any:
    a, b = (a, b) if a.dtype == b.dtype else [array_of(x) for x in promote(a, b)]
    out = lax.dot_general(a, b, (axes, batch), precision=precision, preferred_element_type=dtype, out_sharding=sharding)
    return cast(out, dtype, weak)


@quick
def dot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None, out_sharding: Any = None) -> Any:
    """Sum of products over the last axis of `a` and the second to last (or only) axis of `b`."""
    a, b = arrays("dot", a, b)
    dtype, weak = _element_type("dot", a, b, preferred_element_type)
    if a.ndim == 0 or b.ndim == 0:
        axes = ((), ())
    else:
        axes = ((a.ndim - 1,), (0 if b.ndim == 1 else b.ndim - 2,))
    return _contract(a, b, axes, ((), ()), dtype, weak, precision, out_sharding)


@quick
def matmul(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None, out_sharding: Any = None) -> Any:
    """Matrix product over the last two axes, `(..., m, k) @ (..., k, n) -> (..., m, n)`; the others broadcast."""
    a, b = arrays("matmul", a, b)
    for i, x in enumerate((a, b)):
        if x.ndim < 1:
            raise ValueError(f"matmul input operand {i} must have ndim at least 1, but it has ndim {x.ndim}")
    dtype, weak = _element_type("matmul", a, b, preferred_element_type)
    if a.ndim <= 2 and b.ndim <= 2:
        axes = ((a.ndim - 1,), (0,))
        return _contract(a, b, axes, ((), ()), dtype, weak, precision, out_sharding)
    return _matmul_batched(a, b, dtype, weak, precision, out_sharding)


def _batch_kinds(a: Any, b: Any) -> list[str]:
    """For each broadcast batch axis: 'a' or 'b' if only that side has it, 'both', or 'one' if it has size 1 in both."""
    sa, sb = a.shape[:-2], b.shape[:-2]
    n = max(len(sa), len(sb))
    out = []
    for p, q in zip((None,) * (n - len(sa)) + sa, (None,) * (n - len(sb)) + sb):
        if p is None or q is None:
            out.append("b" if p is None else "a")
        elif p == q:
            out.append("one" if p == 1 else "both")
        elif p == 1 or q == 1:
            out.append("b1" if p == 1 else "a1")  # the other side has a size-1 axis that must go
        else:
            raise ValueError(f"Incompatible types for matmul arguments: {a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}")
    return out


def _without(x: Any, kinds: list[str], dropped: tuple[str, ...]) -> tuple[Any, list[int]]:
    """`x` without its batch axes of the kinds `dropped`, and which batch axis each remaining one is."""
    n = len(x.shape[:-2])
    own = list(range(len(kinds) - n, len(kinds)))
    drop = tuple(i for i, k in enumerate(own) if kinds[k] in dropped)
    return (lax.squeeze(x, drop) if drop else x), [k for i, k in enumerate(own) if i not in drop]


def _matmul_batched(a: Any, b: Any, dtype: Any, weak: bool, precision: Any, sharding: Any) -> Any:
    """One dot_general: axes of one side only are free dimensions, so nothing is broadcast in memory."""
    a, b = (a, b) if a.dtype == b.dtype else [array_of(x) for x in promote(a, b)]
    kinds = _batch_kinds(a, b)
    a_mat, b_mat = a.ndim > 1, b.ndim > 1
    a, a_axes = _without(a, kinds, ("one", "b1"))
    b, b_axes = _without(b, kinds, ("one", "a1"))
    both = [k for k, kd in enumerate(kinds) if kd == "both"]
    batch = (tuple(a_axes.index(k) for k in both), tuple(b_axes.index(k) for k in both))
    axes = ((a.ndim - 1,), (b.ndim - 1 - b_mat,))
    out = lax.dot_general(a, b, (axes, batch), precision=precision, preferred_element_type=dtype)
    last = len(kinds)
    order = [*both, *[k for k in a_axes if k not in both], *[last] * a_mat, *[k for k in b_axes if k not in both],
             *[last + 1] * b_mat]
    perm = tuple(int(i) for i in np.argsort(order, kind="stable"))
    out = lax.transpose(out, perm) if perm != tuple(range(len(perm))) else out
    ones = tuple(k for k, kd in enumerate(kinds) if kd == "one")
    out = lax.expand_dims(out, ones) if ones else out
    return placed(cast(out, dtype, weak), sharding)


def tensordot(a: Any, b: Any, axes: Any = 2, *, precision: Any = None, preferred_element_type: Any = None,
              out_sharding: Any = None) -> Any:
    """Sum of products over `axes`: a number of axes, or a pair of (lists of) axes."""
    a, b = arrays("tensordot", a, b)
    dtype, weak = _element_type("tensordot", a, b, preferred_element_type)
    return _contract(a, b, _contracted(a, b, axes), ((), ()), dtype, weak, precision, out_sharding)


def _contracted(a: Any, b: Any, axes: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if type(axes) is int:
        if axes > min(a.ndim, b.ndim):
            raise TypeError(f"Number of tensordot axes (axes {axes}) exceeds input ranks ({a.shape} and {b.shape})")
        return tuple(range(a.ndim - axes, a.ndim)), tuple(range(axes))
    if not (isinstance(axes, (tuple, list)) and len(axes) == 2):
        raise TypeError("tensordot axes argument must be an int, a pair of ints, or a pair of lists/tuples of ints.")
    first, second = axes
    if isinstance(first, int) and isinstance(second, int):
        return (axis_of(first, a.ndim),), (axis_of(second, b.ndim),)
    if not (isinstance(first, (tuple, list)) and isinstance(second, (tuple, list))):
        raise TypeError(f"tensordot requires both axes lists to be either ints, tuples or lists, got {first} and {second}")
    if len(first) != len(second):
        raise TypeError(f"tensordot requires axes lists to have equal length, got {first} and {second}.")
    return tuple(axis_of(i, a.ndim) for i in first), tuple(axis_of(i, b.ndim) for i in second)


@quick
def inner(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Sum of products over the last axis of both."""
    a, b = arrays("inner", a, b)
    if a.ndim and b.ndim:
        return tensordot(a, b, (-1, -1), precision=precision, preferred_element_type=preferred_element_type)
    if preferred_element_type is not None:
        a, b = [lax.convert_element_type(x, user_dtype(preferred_element_type)) for x in (a, b)]
    return a * b


@quick
def outer(a: Any, b: Any, out: None = None) -> Any:
    """Products of all pairs of elements, `(m,), (n,) -> (m, n)`."""
    no_out("outer", out)
    a, b = [array_of(x) for x in promote(*arrays("outer", a, b))]
    return lax.reshape(a, (a.size, 1)) * lax.reshape(b, (1, b.size))


@quick
def vdot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Dot product of the flattened arrays, the first one conjugated."""
    a, b = arrays("vdot", a, b)
    a = lax.conj(a) if kind(a.dtype) == "c" else a
    a, b = lax.reshape(a, (a.size,)), lax.reshape(b, (b.size,))
    return dot(a, b, precision=precision, preferred_element_type=preferred_element_type)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Dot products of vectors along `axis`, the first one conjugated; the other axes broadcast."""
    from aot.numpy.shapes import moveaxis
    from aot.numpy.vectorizing import vectorize

    x1, x2 = arrays("jnp.vecdot", x1, x2)
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(f"axes must match; got shapes {x1.shape} and {x2.shape} with axis={axis}")

    def one(u, v):
        return vdot(u, v, precision=precision, preferred_element_type=preferred_element_type)

    return vectorize(one, signature="(n),(n)->()")(moveaxis(x1, axis, -1), moveaxis(x2, axis, -1))


@named()
def matvec(x1: Any, x2: Any, /) -> Any:
    """Matrix times vector, `(..., n, m), (..., m) -> (..., n)`."""
    from aot.numpy.vectorizing import vectorize

    return vectorize(matmul, signature="(n,m),(m)->(n)")(*arrays("matvec", x1, x2))


@named()
def vecmat(x1: Any, x2: Any, /) -> Any:
    """Conjugated vector times matrix, `(..., n), (..., n, m) -> (..., m)`."""
    from aot.numpy.elementwise import conj
    from aot.numpy.vectorizing import vectorize

    x1, x2 = arrays("vecmat", x1, x2)
    return vectorize(matmul, signature="(n),(n,m)->(m)")(conj(x1), x2)


@named()
def kron(a: Any, b: Any) -> Any:
    """Kronecker product: every element of `a` times all of `b`, as blocks."""
    check("kron", a, b)
    a, b = [array_of(x) for x in promote(a, b)]
    n = max(a.ndim, b.ndim)
    a, b = [lax.expand_dims(x, tuple(range(n - x.ndim))) if x.ndim < n else x for x in (a, b)]
    sizes = tuple(p * q for p, q in zip(a.shape, b.shape))
    spread_a, spread_b = lax.expand_dims(a, tuple(range(1, 2 * n, 2))), lax.expand_dims(b, tuple(range(0, 2 * n, 2)))
    return lax.reshape(spread_a * spread_b, sizes)


@named("axisa", "axisb", "axisc", "axis")
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    """Cross product of vectors of 2 or 3 elements along the given axes."""
    from aot.numpy.shapes import moveaxis

    check("cross", a, b)
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = moveaxis(a, axisa, -1), moveaxis(b, axisb, -1)
    if a.shape[-1] not in (2, 3) or b.shape[-1] not in (2, 3):
        raise ValueError("Dimension must be either 2 or 3 for cross product")
    (a0, a1, a2), (b0, b1, b2) = _three(a), _three(b)
    if a.shape[-1] == b.shape[-1] == 2:
        return a0 * b1 - a1 * b0
    parts: Sequence[Any] = (a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0)
    return moveaxis(lax.stack([array_of(p) for p in parts], axis=0), 0, axisc)


def _three(x: Any) -> tuple[Any, Any, Any]:
    """The components along the last axis; a missing third one is zero."""
    first, second = x[..., 0], x[..., 1]
    return first, second, x[..., 2] if x.shape[-1] == 3 else lax.full_like(first, 0)


