"""Rule families: what whole kinds of primitives share.  A family is a Primitive subclass; a row is one call."""
from __future__ import annotations

from functools import cache, lru_cache
from math import copysign
from typing import Any, Callable

import numpy as np

from aot import dtypes
from aot.config import config
from aot.trace import Primitive, ShapedArray, Zero, bind, bind1, is_linear, state, tangent_aval, typeof

KINDS = {"f": "floating", "c": "complex", "i": "signed integer", "u": "unsigned integer", "b": "bool", "k": "key"}


@cache
def kind(dtype) -> str:
    """One letter: f float, c complex, i signed, u unsigned, b bool, k key, 0 float0."""
    if not isinstance(dtype, np.dtype):
        return "k"
    if dtype == dtypes.float0:
        return "0"
    return ("b" if dtype == np.bool_ else "c" if dtypes.issubdtype(dtype, np.complexfloating)
            else "f" if dtypes.issubdtype(dtype, np.floating)
            else "u" if dtypes.issubdtype(dtype, np.unsignedinteger) else "i")


@lru_cache(maxsize=4096)
def _typed_scalar(value, dtype, negative, x64):
    """negative tells 0.0 from -0.0, which compare equal."""
    return exact(dtype.type(-0.0 if negative else value))


def exact(x: Any) -> Any:
    """A numpy array or scalar as a constant of exactly its dtype: an Array where 64 bits are off now, but were on where the
    operand was made."""
    if dtypes.canonicalize_dtype(x.dtype) == x.dtype:
        return x
    from aot.array import Array, to_buffer
    aval = ShapedArray(x.shape, x.dtype)
    return Array(to_buffer(np.asarray(x), aval), aval)


def typed_scalar(value, dtype) -> Any:
    """A scalar constant of exactly this dtype."""
    negative = value == 0 and type(value) is float and copysign(1, value) < 0
    return _typed_scalar(value, dtype, negative, config.enable_x64)


def lit(x: Any, value) -> Any:
    """The scalar `value` in the dtype of x, weakly typed if x is."""
    a = typeof(x)
    if a.weak_type:
        k = kind(a.dtype)
        python = float(value) if k == "f" else complex(value) if k == "c" else int(value)
        if typeof(python).dtype == a.dtype:
            return python
    return typed_scalar(value, a.dtype)


def check_dtype(name: str, accepts: str | frozenset, aval: ShapedArray) -> None:
    if kind(aval.dtype) not in accepts:
        wanted = ", ".join(v for k, v in KINDS.items() if k in accepts)
        raise TypeError(f"{name} does not accept dtype {aval.dtype.name}; accepted: {wanted}. "
                        f"hint: convert the operand with astype, or use the aot.numpy function, which promotes")


def unbroadcast(ct, aval: ShapedArray):
    """Cotangent of a result -> cotangent of an operand that was broadcast (a scalar, or sizes of 1)."""
    shape = typeof(ct).shape
    if shape == aval.shape:
        return ct
    from aot.ops.reductions import reduce_sum
    from aot.ops.shape import reshape
    if not aval.shape:
        return reduce_sum(ct, tuple(range(len(shape))))
    ct = reduce_sum(ct, tuple(i for i, (n, m) in enumerate(zip(shape, aval.shape)) if n != m))
    return reshape(ct, aval.shape)


def broadcast_shape(name: str, avals) -> tuple[int, ...]:
    """The common shape of operands that are scalars or of one rank, with sizes equal or 1."""
    shape: tuple[int, ...] = ()
    for a in avals:
        s = a.shape
        if s == shape or not s:
            continue
        if not shape:
            shape = s
            continue
        if len(s) != len(shape) or any(n != m and n != 1 and m != 1 for n, m in zip(s, shape)):
            got = ", ".join(str(b.shape) for b in avals)
            raise TypeError(f"{name} got incompatible shapes for broadcasting: {got}. hint: lax functions broadcast only "
                            "scalars and sizes of 1 at equal rank; use aot.numpy or broadcast_to first")
        shape = tuple([m if n == 1 else n for n, m in zip(s, shape)])
    return shape


class Elementwise(Primitive):
    """Same position in, same position out; rank-0 operands are broadcast."""
    nary = True

    def __init__(self, name: str, hlo: str, partials: tuple, accepts: str, result=None, transposes: tuple | None = None,
                 emit: Callable | None = None):
        """partials[i](t, y, *xs, **params): tangent contribution of operand i, or None for none.
        result: dtype of the result as a function of the operand's dtype.  transposes[i](ct, *xs, **params)."""
        self.name, self.hlo, self.partials, self.accepts = name, hlo, partials, frozenset(accepts)
        self.result, self.transposes, self.emit = result, transposes, emit
        self._ok: set = set()

    def infer(self, *avals, **params):
        a = avals[0]
        if len(avals) == 1:
            if a.dtype not in self._ok:
                check_dtype(self.name, self.accepts, a)
                self._ok.add(a.dtype)
            return [a] if self.result is None else [self.out_aval(a.shape, a.dtype, a.weak_type)]
        shape, weak, dtype = a.shape, a.weak_type, a.dtype
        for b in avals[1:]:
            if b.dtype is not dtype and b.dtype != dtype:
                raise self.dtype_error(avals)
            if b.shape != shape:
                shape = None
            weak = weak and b.weak_type
        if shape is None:
            shape = broadcast_shape(self.name, avals)
        if dtype not in self._ok:
            check_dtype(self.name, self.accepts, a)
            self._ok.add(dtype)
        if self.result is None:
            return [a if shape is a.shape and weak == a.weak_type else ShapedArray(shape, dtype, weak)]
        return [self.out_aval(shape, dtype, weak)]

    def out_aval(self, shape, dtype, weak):
        out = self.result(dtype)
        return ShapedArray(shape, out, weak)

    def dtype_error(self, avals):
        got = ", ".join(a.dtype.name for a in avals)
        return TypeError(f"lax.{self.name} requires arguments to have the same dtypes, got {got}. "
                         f"hint: aot.numpy has functions that promote; or convert one with astype")

    def jvp(self, primals, tangents, **params):
        y = bind1(self, *primals, **params)
        a = typeof(y)
        total = None
        for p, t in zip(self.partials, tangents):
            if p is None or type(t) is Zero:
                continue
            part = p(t, y, *primals, **params)
            if type(part) is Zero:
                continue
            total = part if total is None else add_any(total, part)
        if total is None:
            return [y], [Zero(tangent_aval(a))]
        if typeof(total).shape != a.shape:
            from aot.ops.shape import broadcast_to
            total = broadcast_to(total, a.shape)
        return [y], [total]

    def transpose(self, cts, *xs, **params):
        ct, = cts
        if self.transposes is None:
            raise self.missing("transpose")
        if type(ct) is Zero:
            return [None] * len(xs)
        return [unbroadcast(f(ct, *xs, **params), x.aval) if is_linear(x) else None
                for f, x in zip(self.transposes, xs)]

    def vmap(self, axis, args, dims, **params):
        if len(args) == 1:
            return bind(self, *args, **params), list(dims)
        xs, d = align(axis, args, dims)
        return bind(self, *xs, **params), [d]

    def lower(self, e, ins, outs, *xs, **params):
        if self.emit is not None:
            return [self.emit(e, ins, outs, *xs, **params)]
        return [e.elementwise(self.hlo, ins, outs[0], xs)]


def align(axis, args, dims):
    """Operands of an n-ary elementwise operation, batched at one common dimension -> (operands, that dimension).

    Unbatched operands get a size of 1 there, unless they are scalars."""
    from aot.ops.shape import broadcast_in_dim, broadcast_new, moveaxis
    avals = [typeof(x) for x in args]
    rank = max(a.ndim - (d is not None) for a, d in zip(avals, dims))
    d = next((d for a, d in zip(avals, dims) if d is not None and a.ndim == rank + 1), 0)
    column = (*(1,) * d, axis.size, *(1,) * (rank - d))
    out = []
    for x, a, e in zip(args, avals, dims):
        if e is None:
            out.append(x if a.ndim == 0 else broadcast_new(x, 1, d))
        elif a.ndim == rank + 1:
            out.append(x if e == d else moveaxis(x, e, d))
        else:
            out.append(broadcast_in_dim(x, column, (d,)))
    return out, d


def align_full(axis, args, dims):
    """As align, with every operand brought to the full shape."""
    from aot.ops.shape import broadcast_to
    xs, d = align(axis, args, dims)
    shape = broadcast_shape("vmap", [typeof(x) for x in xs])
    return [broadcast_to(x, shape) for x in xs], d


def in_lax(f: Callable, name: str, doc: str) -> Callable:
    """f as the function `aot.lax.<name>`, for functions that are made in a loop."""
    f.__name__ = f.__qualname__ = name
    f.__doc__, f.__module__ = doc, "aot.lax"
    return f


def public(prim: Primitive, doc: str, n: int, names: tuple[str, ...] = ("x", "y")) -> Callable:
    """The user-facing function of an elementwise primitive; names: of its parameters, if there are two."""
    if n == 1:
        def f(x, accuracy=None): return state_bind(prim, (x,))
    elif n == 2:
        def f(x, y): return state_bind(prim, (x, y))
        f.__code__ = f.__code__.replace(co_varnames=names)
    else:
        def f(*xs): return state_bind(prim, xs)
    f.primitive = prim  # type: ignore[attr-defined]
    return in_lax(f, prim.name.removesuffix("_"), doc)


def state_bind(prim, xs):
    return state.trace.process(prim, xs, {})[0]


def unary(name: str, hlo: str, tangent: Callable | None, accepts: str = "fc", result=None, transpose=None, emit=None,
          doc: str = "") -> Callable:
    """Declare an elementwise function of one operand.  tangent(t, y, x) -> tangent of y."""
    prim = Elementwise(name, hlo, (tangent,), accepts, result, (transpose,) if transpose else None, emit)
    return public(prim, doc or f"Elementwise {name}.", 1)


def binary(name: str, hlo: str, tx: Callable | None, ty: Callable | None, accepts: str = "fciu", result=None,
           transposes=None, emit=None, doc: str = "", names: tuple[str, str] = ("x", "y")) -> Callable:
    """Declare an elementwise function of two operands of one dtype.  tx(t, z, x, y), ty(t, z, x, y).

    names: of the function's parameters."""
    prim = Elementwise(name, hlo, (tx, ty), accepts, result, transposes, emit)
    return public(prim, doc or f"Elementwise {name}.", 2, names)


class LinearOp(Primitive):
    """Linear in some operands (the first, unless a class says otherwise); the others are fixed.

    The tangents of the former go through the same operation together."""
    linear_operands: tuple[int, int | None] = (0, 1)        # from, to

    def jvp(self, primals, tangents, **params):
        out = bind1(self, *primals, **params)
        linear = slice(*self.linear_operands)
        dots = tangents[linear]
        if all(type(t) is Zero for t in dots):
            return [out], [Zero(tangent_aval(typeof(out)))]
        if len(dots) > 1:
            from aot.transforms.jvp import instantiate_zero
            dots = map(instantiate_zero, dots)
        operands = list(primals)
        operands[linear] = dots
        return [out], [bind1(self, *operands, **params)]


class Bilinear(Primitive):
    """Linear in each of two operands: d(x.y) = dx.y + x.dy."""

    def jvp(self, primals, tangents, **params):
        (x, y), (dx, dy) = primals, tangents
        out = bind1(self, x, y, **params)
        parts = []
        if type(dx) is not Zero:
            parts.append(bind1(self, dx, y, **params))
        if type(dy) is not Zero:
            parts.append(bind1(self, x, dy, **params))
        if not parts:
            return [out], [Zero(tangent_aval(typeof(out)))]
        return [out], [parts[0] if len(parts) == 1 else add_any(*parts)]


class NonDifferentiable(Primitive):
    """Outputs carry no tangent."""

    def jvp(self, primals, tangents, **params):
        outs = bind(self, *primals, **params)
        return outs, [Zero(tangent_aval(typeof(x))) for x in outs]


add_any = binary("add_any", "add", lambda t, z, x, y: t, lambda t, z, x, y: t, accepts="fciub",
                 transposes=(lambda ct, x, y: ct, lambda ct, x, y: ct), doc="Sum of two tangents or cotangents.")
