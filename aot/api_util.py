"""Flat functions of functions of trees, for libraries that transform functions themselves."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aot.arguments import parameter_names, resolve_static
from aot.extend.core import DebugInfo
from aot.extend.linear_util import WrappedFun, transformation2, transformation_with_aux2
from aot.trace import typeof
from aot.tree_util import broadcast_prefix, tree_flatten, tree_unflatten, treedef_children


def shaped_abstractify(x: Any) -> Any:
    """The type of an array, a scalar, or what has a shape and a dtype."""
    return typeof(x)


@transformation_with_aux2
def flatten_fun(f: Callable, store: Any, in_tree: Any, *args_flat: Any) -> list:
    """fun(*args, **kwargs) as a function of the leaves of (args, kwargs) to those of its result; aux: the result's tree."""
    args, kwargs = tree_unflatten(in_tree, args_flat)
    leaves, tree = tree_flatten(f(*args, **kwargs))
    store.store(tree)
    return leaves


@transformation_with_aux2
def flatten_fun_nokwargs(f: Callable, store: Any, in_tree: Any, *args_flat: Any) -> list:
    """fun(*args) as a function of the leaves of args to those of its result; aux: the result's tree."""
    leaves, tree = tree_flatten(f(*tree_unflatten(in_tree, args_flat)))
    store.store(tree)
    return leaves


def flatten_axes(name: str, treedef: Any, axis_tree: Any, *, kws: bool = False, tupled_args: bool = False) -> list:
    """One entry of a prefix tree (where None is an entry) for each leaf of treedef."""
    full = tree_unflatten(treedef, [object()] * treedef.num_leaves)
    return broadcast_prefix(axis_tree, full, is_leaf=lambda x: x is None, name=name)


@transformation2
def _partial(f: Callable, places: tuple, fixed: tuple, *dynamic: Any, **kwargs: Any) -> Any:
    args: list = list(fixed)
    for place, x in zip(places, dynamic, strict=True):
        args[place] = x
    return f(*args, **kwargs)


def argnums_partial(f: WrappedFun, dyn_argnums: int | Sequence[int], args: Sequence,
                    require_static_args_hashable: bool = True) -> tuple[WrappedFun, list]:
    """f as a function of some of args, the others fixed -> (that function, those of args)."""
    places = tuple(n % len(args) for n in ([dyn_argnums] if isinstance(dyn_argnums, int) else dyn_argnums))
    return _partial(f, places, tuple(args)), [args[n] for n in places]


def donation_vector(donate_argnums: Sequence[int], donate_argnames: Sequence[str], in_tree: Any,
                    kws: bool = True) -> tuple[bool, ...]:
    """For each leaf of in_tree (of (args, kwargs), or of args with kws=False) whether it is donated."""
    args_tree, kwargs_tree = treedef_children(in_tree) if kws else (in_tree, None)
    flags = [n in tuple(donate_argnums) for n, tree in enumerate(treedef_children(args_tree)) for _ in range(tree.num_leaves)]
    if kwargs_tree is not None:
        names = kwargs_tree.node_data()[1]
        flags += [name in tuple(donate_argnames) for name, tree in zip(names, treedef_children(kwargs_tree))
                  for _ in range(tree.num_leaves)]
    return tuple(flags)


def rebase_donate_argnums(donate_argnums: Sequence[int], static_argnums: Sequence[int]) -> tuple[int, ...]:
    """Positions of donated arguments once the static ones are taken out.  ValueError where an argument is both."""
    if both := set(donate_argnums) & set(static_argnums):
        raise ValueError(f"arguments {sorted(both)} are both donated and static")
    return tuple(sorted(n - sum(s < n for s in static_argnums) for n in donate_argnums))


def infer_argnums_and_argnames(sig: Any, argnums: int | Sequence[int] | None, argnames: str | Sequence[str] | None
                               ) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Positions and names of the same parameters of a signature, from either."""
    nums = (argnums,) if isinstance(argnums, int) else tuple(argnums or ())
    names = (argnames,) if isinstance(argnames, str) else tuple(argnames or ())
    found = resolve_static(sig, nums, names)
    return tuple(sorted(found[0])), tuple(sorted(found[1]))


def debug_info(traced_for: str, fun: Callable, args: Sequence, kwargs: dict, *, static_argnums: Sequence[int] = (),
               static_argnames: Sequence[str] = (), result_paths_thunk: Any = None, sourceinfo: str | None = None,
               signature: Any = None) -> DebugInfo:
    """Names of a function and its arguments, for messages."""
    names = [name for n, name in enumerate(parameter_names(fun, len(args))) if n not in tuple(static_argnums)]
    return DebugInfo(traced_for, sourceinfo or getattr(fun, "__name__", str(fun)), (*names, *kwargs), result_paths_thunk)


def safe_map(f: Callable, *sequences: Any) -> list:
    """The list of f of elements, which all sequences have as many of.  ValueError else."""
    return [f(*xs) for xs in zip(*sequences, strict=True)]


__all__ = ["argnums_partial", "debug_info", "donation_vector", "flatten_axes", "flatten_fun", "flatten_fun_nokwargs",
           "rebase_donate_argnums", "safe_map", "shaped_abstractify"]
