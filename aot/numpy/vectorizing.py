"""`vectorize` with gufunc signatures, `apply_along_axis`, `apply_over_axes`, `piecewise`: loops as vmap."""
from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Collection, Sequence
from typing import Any

from aot import lax
from aot.api import vmap
from aot.numpy._util import array_of, arrays, axis_of, config, named, shape_of

Dims = tuple[str, ...]
_NAMES = r"\w+"
_ARGUMENT = rf"\((?:{_NAMES}(?:,{_NAMES})*)?\)"
_SIGNATURE = re.compile(rf"^(?:{_ARGUMENT}(?:,{_ARGUMENT})*)?->{_ARGUMENT}(?:,{_ARGUMENT})*$")


def _parse(signature: str) -> tuple[list[Dims], list[Dims]]:
    """`(n,m),(m)->(n)` as the dimension names of inputs and outputs."""
    text = signature.replace(" ", "")
    if not _SIGNATURE.match(text):
        raise ValueError(f"not a valid gufunc signature: {signature}")
    inputs, outputs = ([tuple(re.findall(_NAMES, arg)) for arg in re.findall(_ARGUMENT, side)] for side in text.split("->"))
    return inputs, outputs


def _bind_sizes(sizes: dict[str, int], shape: tuple[int, ...], dims: Dims, what: str, exact: bool) -> None:
    """Record the sizes of the named dimensions at the end of `shape`, or complain."""
    if len(shape) < len(dims) or (exact and len(shape) != len(dims)):
        raise ValueError(f"{what} shape {shape} does not fit core dimensions {dims}")
    for name, size in zip(dims, shape[len(shape) - len(dims):]):
        if sizes.setdefault(name, size) != size:
            raise ValueError(f"inconsistent size for core dimension {name!r}: {size} vs {sizes[name]} ({what})")


def _checked(func: Callable, sizes: dict[str, int], outputs: list[Dims], what: str) -> Callable:
    """`func` with its results checked against the signature."""

    def call(*args):
        out = func(*args)
        results = out if isinstance(out, tuple) else (out,)
        if len(outputs) > 1 and not isinstance(out, tuple):
            raise TypeError(f"output must be a tuple when multiple outputs are expected, got: {out!r} {what}")
        if len(results) != len(outputs):
            raise TypeError(f"wrong number of output arguments: expected {len(outputs)}, got {len(results)} {what}")
        bound = dict(sizes)
        for value, dims in zip(results, outputs):
            _bind_sizes(bound, shape_of(value), dims, f"output {what}", exact=True)
        return out

    return call


def _fix(func: Callable, fixed: Collection[int | str], args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Callable, list]:
    """`func` with some positional and keyword arguments bound; keywords that are not fixed are passed along too."""
    positions = {i: a for i, a in enumerate(args) if i in fixed}

    def call(*rest):
        rest = iter(rest)
        return func(*[positions[i] if i in positions else next(rest) for i in range(len(args))], **kwargs)

    return call, [a for i, a in enumerate(args) if i not in positions]


def vectorize(pyfunc: Callable, *, excluded: Collection[int | str] = frozenset(), signature: str | None = None) -> Callable:
    """A function of arrays from a function of scalars, or of the core shapes that `signature` names.

    All arguments broadcast over their other dimensions. Arguments in `excluded` (positions or names) are passed as they
    are.
    """
    if any(not isinstance(e, (str, int)) for e in excluded):
        raise TypeError(f"jax.numpy.vectorize can only exclude integer or string arguments, but {excluded=}")
    if any(isinstance(e, int) and e < 0 for e in excluded):
        raise ValueError(f"{excluded=} contains negative numbers")
    what = f"on vectorized function with {excluded=} and {signature=}"

    @functools.wraps(pyfunc)
    def wrapped(*args, **kwargs):
        none = {i for i, a in enumerate(args) if a is None}
        fixed = {e for e in excluded if isinstance(e, int)} | none
        free_names = [k for k in kwargs if k not in excluded]
        func, dynamic = _fix(_keywords_last(pyfunc, free_names), fixed, [*args, *[kwargs[k] for k in free_names]],
                             {k: v for k, v in kwargs.items() if k in excluded})
        if signature is None:
            inputs, outputs = [()] * len(dynamic), None
        else:
            inputs, outputs = _signature_dims(signature, none, excluded)
        return _apply(func, [array_of(_listed(a)) for a in dynamic], inputs, outputs, what)

    return wrapped


def _listed(a: Any) -> Any:
    from aot.numpy.creation import asarray

    return asarray(a)


def _keywords_last(func: Callable, names: list[str]) -> Callable:
    """`func` that takes the arguments `names` at the end of the positional ones."""
    if not names:
        return func

    def call(*args, **kwargs):
        split = len(args) - len(names)
        return func(*args[:split], **dict(zip(names, args[split:])), **kwargs)

    return call


def _signature_dims(signature: str, none: set[int], excluded: Collection) -> tuple[list[Dims], list[Dims]]:
    inputs, outputs = _parse(signature)
    removed = sorted(i for i in none if i not in excluded)
    if any(i < len(inputs) and inputs[i] for i in removed):
        raise ValueError(f"Cannot pass None at locations {set(removed)} with {signature=}")
    return [d for i, d in enumerate(inputs) if i not in removed], outputs


def _apply(func: Callable, args: list[Any], inputs: list[Dims], outputs: list[Dims] | None, what: str) -> Any:
    if len(args) != len(inputs):
        raise TypeError(f"wrong number of positional arguments: expected {len(inputs)}, got {len(args)} {what}")
    sizes: dict[str, int] = {}
    for a, dims in zip(args, inputs):
        _bind_sizes(sizes, a.shape, dims, f"input {what}", exact=False)
    loops = [a.shape[:a.ndim - len(d)] for a, d in zip(args, inputs)]
    _check_ranks(args, loops, what)
    shape = lax.broadcast_shapes(*loops) if loops else ()
    func = func if outputs is None else _checked(func, sizes, outputs, what)
    padded = [(1,) * (len(shape) - len(s)) + s for s in loops]
    ones = [tuple(i for i, n in enumerate(s) if n == 1) for s in loops]
    args = [lax.squeeze(a, o) if o else a for a, o in zip(args, ones)]
    missing = []
    for axis in reversed(range(len(shape))):
        in_axes = tuple(None if p[axis] == 1 else 0 for p in padded)
        if any(i == 0 for i in in_axes):
            func = vmap(func, in_axes=in_axes)
        else:
            missing.append(axis)
    out = func(*args)
    if not missing:
        return out
    expand = lambda r: lax.expand_dims(array_of(r), tuple(sorted(missing)))
    return tuple(map(expand, out)) if isinstance(out, tuple) else expand(out)


def _check_ranks(args: list[Any], loops: list[tuple[int, ...]], what: str) -> None:
    if config.numpy_rank_promotion == "allow":
        return
    if len({len(s) for a, s in zip(args, loops) if a.ndim}) > 1:
        text = (f"operands with shapes {[a.shape for a in args]} require rank promotion {what}; set the option "
                "`numpy_rank_promotion` to 'allow' to accept this silently")
        if config.numpy_rank_promotion == "raise":
            raise ValueError(text)
        warnings.warn(text, stacklevel=4)


# ---- along axes ------------------------------------------------------------------------------------------------------
def apply_along_axis(func1d: Callable, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """`func1d(vector, *args, **kwargs)` of every one-dimensional slice along `axis`."""
    arr = arrays("apply_along_axis", arr)
    axis = axis_of(axis, arr.ndim)
    func = lambda vector: func1d(vector, *args, **kwargs)
    for i in range(1, arr.ndim - axis):
        func = vmap(func, in_axes=i, out_axes=-1)
    for _ in range(axis):
        func = vmap(func, in_axes=0, out_axes=0)
    return func(arr)


def apply_over_axes(func: Callable[[Any, int], Any], a: Any, axes: Sequence[int]) -> Any:
    """`func(a, axis)` for one axis after the other, each keeping the number of dimensions."""
    a = arrays("apply_over_axes", a)
    for axis in axes:
        b = func(a, axis)
        if b.ndim == a.ndim - 1:
            b = lax.expand_dims(b, (axis,))
        elif b.ndim != a.ndim:
            raise ValueError("function is not returning an array of the correct shape")
        a = b
    return a


def piecewise(x: Any, condlist: Any, funclist: list[Any], *args: Any, **kw: Any) -> Any:
    """Elementwise choice of functions or constants by conditions, the last true one counting; else the default."""
    from aot.numpy.creation import asarray

    x = arrays("piecewise", x)
    n, given = len(condlist), len(funclist)
    if given == n + 1:
        funclist = [funclist[-1], *funclist[:-1]]
    elif given == n:
        funclist = [0, *funclist]
    else:
        raise ValueError(f"with {n} condition(s), either {n} or {n + 1} functions are expected; got {given}")
    consts = [None if callable(f) else f for f in funclist]
    funcs = tuple(f if callable(f) else None for f in funclist)
    return _piecewise(x, asarray(condlist, dtype=bool), consts, args, kw, funcs=funcs)


@named("funcs")
def _piecewise(x: Any, conditions: Any, consts: list[Any], args: tuple, kw: dict[str, Any], funcs: tuple) -> Any:
    n = conditions.shape[0]
    # Position of the last true condition, plus one; 0 where there is none.
    last = lax.broadcast_in_dim(lax.iota("int32", n) + 1, conditions.shape, (0,))
    ranks = lax.select(conditions, last, lax.full(conditions.shape, 0, "int32"))
    index = lax.reduce_max(ranks, axes=(0,)) if n else lax.full(x.shape, 0, "int32")
    branches = [_branch(c if f is None else f, x.dtype, args, kw) for f, c in zip(funcs, consts)]
    return vectorize(lambda i, v: lax.switch(i, branches, v))(index, x)


def _branch(f: Any, dtype: Any, args: tuple, kw: dict[str, Any]) -> Callable:
    from aot.numpy.creation import asarray

    if callable(f):
        return lambda v: lax.convert_element_type(f(v, *args, **kw), dtype)
    return lambda v: asarray(f, dtype=dtype)
