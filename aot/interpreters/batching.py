"""Rules for vmap: of primitives of one's own, and of those of this package."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aot.interpreters.rules import Rules, listed, unlisted
from aot.trace import Primitive, typeof
from aot.transforms.batching import register_mapped
from aot.tree_util import tree_flatten

not_mapped = None


def _rules(arguments: Callable) -> Rules:
    """arguments(axis) -> what the rules take before (args, dims)."""
    def adapted(prim: Primitive, rule: Callable) -> Callable:
        def vmap(axis: Any, args: Any, dims: Any, **params: Any) -> tuple[list, list]:
            outs, out_dims = rule(*arguments(axis), list(args), list(dims), **params)
            outs = listed(prim, outs)
            return outs, [out_dims] * len(outs) if out_dims is None or isinstance(out_dims, int) else list(out_dims)
        return vmap

    def plain(prim: Primitive, method: Callable) -> Callable:
        def rule(*given: Any, **params: Any) -> tuple[Any, Any]:
            *axis, args, dims = given
            size = next(typeof(x).shape[d] for x, d in zip(args, dims) if d is not None)
            outs, out_dims = method(axis[0] if axis else _axis(size), args, dims, **params)
            return unlisted(prim, outs), unlisted(prim, out_dims)
        return rule
    return Rules("vmap", adapted, plain)


def _axis(size: int) -> Any:
    from aot.transforms.vmap import Axis
    return Axis(size)


#: primitive -> rule(args, dims, **params) -> (result, its dim), or lists of them; a dim is None where there is no batch
primitive_batchers = _rules(lambda axis: ())
#: primitive -> rule(axis, args, dims, **params), where the axis has a size and a name
fancy_primitive_batchers = _rules(lambda axis: (axis,))
#: primitive -> rule(size of the axis, its name, None, args, dims, **params)
axis_primitive_batchers = _rules(lambda axis: (axis.size, axis.name, None))


def broadcast(x: Any, sz: int, axis: int, mesh_axis: Any = None) -> Any:
    """x, repeated along a new axis."""
    import aot.numpy as jnp
    shape = list(jnp.shape(x))
    return jnp.broadcast_to(jnp.expand_dims(x, axis), [*shape[:axis], sz, *shape[axis:]])


def moveaxis(x: Any, source: int | None, destination: int) -> Any:
    """x with its batch dimension elsewhere."""
    import aot.numpy as jnp
    return x if source is None else jnp.moveaxis(x, source, destination)


def bdim_at_front(x: Any, bdim: int | None, size: int, mesh_axis: Any = None) -> Any:
    """x with the batch dimension first; repeated where it has none."""
    return broadcast(x, size, 0) if bdim is None else moveaxis(x, bdim, 0)


def defvectorized(prim: Primitive) -> None:
    """The primitive works elementwise: on batches as on elements."""
    def rule(args: Any, dims: Any, **params: Any) -> tuple[Any, Any]:
        if len(set(dims)) > 1:
            raise NotImplementedError(f"vmap of `{prim.name}` with the batch dimensions {dims}, which differ. hint: use "
                                      "defbroadcasting for it")
        return prim.bind(*args, **params), dims[0]
    primitive_batchers[prim] = rule


def defbroadcasting(prim: Primitive) -> None:
    """The primitive works elementwise on arguments that broadcast against each other."""
    def rule(args: Any, dims: Any, **params: Any) -> tuple[Any, Any]:
        import aot.numpy as jnp
        rank = max(jnp.ndim(x) - (d is not None) for x, d in zip(args, dims))

        def full(x: Any, dim: int | None) -> Any:
            if dim is None:
                return x
            x = moveaxis(x, dim, 0)
            return jnp.reshape(x, (x.shape[0], *[1] * (rank + 1 - x.ndim), *x.shape[1:]))
        out = prim.bind(*map(full, args, dims), **params)
        return out, [0] * len(out) if prim.multiple_results else 0
    primitive_batchers[prim] = rule


def defreducer(prim: Primitive) -> None:
    """The primitive reduces the axes that its parameter `axes` names."""
    def rule(args: Any, dims: Any, *, axes: Any, **params: Any) -> tuple[Any, int]:
        (x,), (dim,) = args, dims
        shifted = tuple(a + (a >= dim) for a in axes)
        return prim.bind(x, axes=shifted, **params), dim - sum(a < dim for a in shifted)
    primitive_batchers[prim] = rule


class _Along:
    """A leaf, and the axis that it is mapped along."""

    def __init__(self, x: Any, axis: int | None): self.x, self.axis = x, axis


def register_vmappable(data_type: type, spec_type: type, axis_size_type: type, to_elt: Callable, from_elt: Callable,
                       make_iota: Callable | None = None) -> None:
    """A class of tree nodes that say themselves how `vmap` maps them.

    to_elt(cont, index, x, axis) -> the element that the mapped function gets: `cont(leaf, axis)` for each array that is mapped.
    from_elt(cont, size, elt, axis) -> the result that `vmap` returns: `cont(size, leaf, axis)` for each array that is to have
    the axis.  Axes and sizes are integers: NotImplementedError for other types of them, and where the index is asked for."""
    if spec_type is not int or axis_size_type is not int or make_iota is not None:
        raise NotImplementedError(f"{data_type.__name__} is mapped along {spec_type.__name__}, with sizes "
                                  f"{axis_size_type.__name__}: not supported. hint: axes and sizes that are int")

    def index() -> Any:
        raise NotImplementedError(f"the index along the mapped axis of a {data_type.__name__} is not supported. hint: map "
                                  "numpy.arange as well")

    def along(x: Any, axis: int | None) -> Any:
        return to_elt(along, index, x, axis) if type(x) is data_type else _Along(x, axis)

    def back(size: int, x: Any, axis: int | None) -> Any:
        return from_elt(back, size, x, axis) if type(x) is data_type else _Along(x, axis)

    def divided(marked: Any) -> tuple[Any, list[int | None]]:
        leaves, tree = tree_flatten(marked)
        return (tree.unflatten([x.x if type(x) is _Along else x for x in leaves]),
                [x.axis if type(x) is _Along else None for x in leaves])
    register_mapped(data_type, lambda x, axis: divided(along(x, axis)),
                    exit=lambda x, axis, size: divided(back(size, x, axis)))


__all__ = ["axis_primitive_batchers", "bdim_at_front", "broadcast", "defbroadcasting", "defreducer", "defvectorized",
           "fancy_primitive_batchers", "moveaxis", "not_mapped", "primitive_batchers", "register_vmappable"]
