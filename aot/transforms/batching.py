"""The user-facing `vmap` over pytrees."""
from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence

from aot.source import api_boundary, wraps
from aot.trace import ShapedArray, typeof
from aot.transforms.vmap import Axis, to_dim, vmap_flat
from aot.tree_util import broadcast_prefix, keystr, tree_flatten, tree_flatten_with_path, tree_leaves


def _is_none(x): return x is None


class _Mapped(NamedTuple):
    enter: Callable
    exit: Callable
    leave: Callable


#: classes of tree nodes that know about mapped axes, see `register_mapped`
_MAPPED: dict[type, _Mapped] = {}


def register_mapped(cls: type, enter: Callable, leave: Callable | None = None, exit: Callable | None = None) -> None:
    """What `vmap` does with nodes of a class whose metadata, or the axes of whose arrays, depend on the mapped axis.

    enter(node, axis) -> (the node as the function sees it, the mapped axis of each of its leaves, or None);
    exit(node, axis, size) -> the same of a node among the function's results, where not all leaves get the axis;
    leave(node, axis, size) -> the node with the axis among its arrays, where the function's result is put together."""
    _MAPPED[cls] = _Mapped(enter, exit or (lambda node, axis, size: (node, [axis] * len(tree_leaves(node)))),
                           leave or (lambda node, axis, size: node))


def _is_mapped(x: Any) -> bool: return type(x) in _MAPPED


def _divided(value: Any, dims: Sequence[int | None], which: str, *size: int) -> tuple[Any, list[int | None]]:
    """Arguments as the function sees them ("enter"), or results ("exit"), and the axes of their leaves."""
    nodes, tree = tree_flatten(value, is_leaf=_is_mapped)
    it, inside, axes = iter(dims), [], []
    for node in nodes:
        own = [next(it) for _ in tree_leaves(node)]
        if _is_mapped(node) and own and own[0] is not None:
            node, own = getattr(_MAPPED[type(node)], which)(node, own[0], *size)
        inside.append(node)
        axes += own
    return tree.unflatten(inside), axes


def _left(value: Any, axes: Sequence[int | None], size: int) -> Any:
    """Results with the mapped axis in the metadata of their nodes."""
    nodes, tree = tree_flatten(value, is_leaf=_is_mapped)
    it, outside = iter(axes), []
    for node in nodes:
        own = [next(it) for _ in tree_leaves(node)]
        outside.append(_MAPPED[type(node)].leave(node, own[0], size) if _is_mapped(node) and own and own[0] is not None
                       else node)
    return tree.unflatten(outside)


def vmap(fun: Callable, in_axes: int | None | Sequence[Any] = 0, out_axes: Any = 0, axis_name: Any = None,
         axis_size: int | None = None, spmd_axis_name: Any = None, sum_match: bool = False) -> Callable:
    """Map fun over an axis of its arguments, vectorised.

    in_axes: for each positional argument the axis to map (or None), or a tree of those; out_axes likewise for the
    result.  axis_name names the axis for collectives such as lax.psum.  spmd_axis_name and sum_match have no effect: the
    compiler chooses how a mapped axis is split over devices.
    """
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if not (in_axes is None or isinstance(in_axes, (int, tuple))):
        raise TypeError("vmap in_axes must be an int, None, or a tuple of entries corresponding to the positional "
                        f"arguments passed to the function, but got {in_axes}.")
    for leaf in tree_leaves(in_axes):
        if not isinstance(leaf, int):
            raise TypeError("vmap in_axes must be an int, None, or (nested) container with those types as leaves, but "
                            f"got {in_axes}.")

    @wraps(fun)
    @api_boundary
    def vmap_f(*args, **kwargs):
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise ValueError("vmap in_axes must be an int, None, or a tuple of entries corresponding to the positional "
                             f"arguments passed to the function, but got len(in_axes)={len(in_axes)}, "
                             f"len(args)={len(args)}")
        dims = broadcast_prefix((in_axes, 0), (args, kwargs), is_leaf=_is_none, name="vmap in_axes")
        if _MAPPED:
            (args, kwargs), dims = _divided((args, kwargs), dims, "enter")
        leaves, tree = tree_flatten((args, kwargs))
        dims = canonical_dims(dims, leaves, "vmap")
        axis = Axis(mapped_size(axis_size, leaves, dims, args, kwargs, "vmap"), axis_name)
        box = {}

        def flat(*xs):
            a, k = tree.unflatten(xs)
            out = fun(*a, **k)
            box["axes"] = broadcast_prefix(out_axes, out, is_leaf=_is_none, name="vmap out_axes")
            if _MAPPED:
                out, box["axes"] = _divided(out, box["axes"], "exit", axis.size)
            outs, box["tree"] = tree_flatten(out)
            for x in outs:
                typeof(x)
            return outs
        outs, out_dims = vmap_flat(flat, axis, leaves, dims)
        for i, (d, want) in enumerate(zip(out_dims, box["axes"])):
            if d is not None and want is None:
                path = keystr(tree_flatten_with_path(box["tree"].unflatten(outs))[0][i][0])
                raise ValueError(f"at vmap out_axes, output{path} got axis spec None but output was batched on axis {d}. "
                                 "hint: give out_axes an axis for it, or make it independent of the mapped arguments")
        result = box["tree"].unflatten([_place(axis, x, d, want) for x, d, want in zip(outs, out_dims, box["axes"])])
        return _left(result, box["axes"], axis.size) if _MAPPED else result
    return vmap_f


def canonical_dims(dims: Sequence[int | None], leaves: Sequence, what: str) -> list[int | None]:
    """Mapped axes counted from the front.  Raises ValueError, naming the function `what`, where an array has no such axis."""
    def canonical(d: int, a: ShapedArray) -> int:
        if not -a.ndim <= d < a.ndim:
            raise ValueError(f"{what} was requested to map its argument along axis {d}, which implies that its rank should be "
                             f"at least {d + 1 if d >= 0 else -d}, but is only {a.ndim} (its shape is {a.shape})")
        return d % a.ndim
    return [None if d is None else canonical(d, typeof(x)) for d, x in zip(dims, leaves)]


def mapped_size(given: int | None, leaves: Sequence, dims: Sequence[int | None], args: tuple, kwargs: dict, what: str) -> int:
    """The one size of the mapped axes.  Raises ValueError, naming the function `what`, where there is none, or two."""
    sizes = [typeof(x).shape[d] for x, d in zip(leaves, dims) if d is not None]
    if given is not None:
        sizes.append(given)
    if not sizes:
        raise ValueError(f"{what} must have at least one non-None value in in_axes, or axis_size must be given")
    if len(set(sizes)) > 1:
        raise ValueError(_inconsistent(given, dims, args, kwargs, what))
    return sizes[0]


def _inconsistent(given, dims, args, kwargs, what) -> str:
    lines = [f"{what} got inconsistent sizes for array axes to be mapped:"]
    for (path, x), d in zip(tree_flatten_with_path((args, kwargs))[0], dims):
        if d is not None:
            lines.append(f"  * axis {d} of argument {_name(path)} of type {typeof(x).str_short(False)} has size "
                         f"{typeof(x).shape[d]};")
    if given is not None:
        lines.append(f"  * axis_size={given} was given;")
    return "\n".join(lines)


def _name(path) -> str:
    which, *rest = path
    return ("args" if which.idx == 0 else "kwargs") + keystr(tuple(rest))


def _place(axis: Axis, x, d: int | None, want: int | None):
    if want is None:
        return x
    ndim = typeof(x).ndim + (d is None)
    if not -ndim <= want < ndim:
        raise ValueError(f"vmap out_axes is {want} for an output of {ndim - 1} dimensions")
    return to_dim(axis, x, d, want % ndim)
