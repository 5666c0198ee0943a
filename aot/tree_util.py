"""Pytrees: nested containers of leaves, flattened and rebuilt by jaxlib's C++ registry.

Nodes are tuples, lists, dicts (keys sorted), None (a node without children), namedtuples, OrderedDict, defaultdict and
the classes registered here; everything else is a leaf.  A *key path* is the tuple of keys that leads to a leaf:
`SequenceKey`, `DictKey`, `GetAttrKey` or `FlattenedIndexKey`.  The registry is our own, so importing jax in the same
process changes nothing.
"""
from __future__ import annotations

import dataclasses
import difflib
import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from aot.xla import pytree as _pytree

DictKey, FlattenedIndexKey = _pytree.DictKey, _pytree.FlattenedIndexKey
GetAttrKey, SequenceKey = _pytree.GetAttrKey, _pytree.SequenceKey
PyTreeDef = _pytree.PyTreeDef

KeyEntry = TypeVar("KeyEntry")
KeyPath = tuple[KeyEntry, ...]
Leaf = Any
T = TypeVar("T")
Typ = TypeVar("Typ", bound=type)
IsLeaf = Callable[[Any], bool] | None

default_registry = _pytree.PyTreeRegistry()
# A PyTreeDef pickles as a reference to its registry, found by these two names.
default_registry.__module__, default_registry.__name__ = __name__, "default_registry"  # type: ignore[attr-defined]


class Unspecified:
    """Marks an argument that was not given, where None is a meaningful value."""

    def __repr__(self) -> str:
        return "<unspecified>"


_unspecified = Unspecified()


# ---- flatten and rebuild ---------------------------------------------------------------------------------------------

def tree_flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Leaf], PyTreeDef]:
    """The leaves of `tree`, left to right, and its structure.  `is_leaf(node)` true stops at that node."""
    return default_registry.flatten(tree, is_leaf)


def tree_unflatten(treedef: PyTreeDef, leaves: Iterable[Leaf]) -> Any:
    """The tree of structure `treedef` with `leaves`.  Raises ValueError when there are too few or too many."""
    return treedef.unflatten(leaves)


def tree_leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Leaf]:
    """The leaves of `tree`, left to right."""
    return default_registry.flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: IsLeaf = None) -> PyTreeDef:
    """The structure of `tree`."""
    return default_registry.flatten(tree, is_leaf)[1]


def tree_flatten_with_path(tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False,
                           ) -> tuple[list[tuple[KeyPath, Any]], PyTreeDef]:
    """`(key path, leaf)` pairs and the structure.  With `is_leaf_takes_path` it is called as `is_leaf(path, node)`."""
    if is_leaf is not None and not is_leaf_takes_path:
        return default_registry.flatten_with_path(tree, lambda _, node: is_leaf(node))
    return default_registry.flatten_with_path(tree, is_leaf)


def tree_leaves_with_path(tree: Any, is_leaf: Callable[..., bool] | None = None, is_leaf_takes_path: bool = False,
                          ) -> list[tuple[KeyPath, Any]]:
    """`(key path, leaf)` pairs, left to right."""
    return tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


def all_leaves(iterable: Iterable[Any], is_leaf: IsLeaf = None) -> bool:
    """Whether every element of `iterable` is a leaf."""
    if is_leaf is None:
        return _pytree.all_leaves(default_registry, iterable)
    items = list(iterable)
    leaves = tree_leaves(items, is_leaf)
    return len(leaves) == len(items) and all(a is b for a, b in zip(leaves, items))


def flatten_one_level(tree: Any) -> tuple[Iterable[Any], Hashable]:
    """The children and the metadata of the node `tree`.  Raises ValueError for a leaf."""
    found = default_registry.flatten_one_level(tree)
    if found is None:
        raise ValueError(f"a leaf has no children to flatten: {type(tree).__name__} is not a registered pytree node")
    return found


def flatten_one_level_with_keys(tree: Any) -> tuple[Iterable[tuple[Any, Any]], Hashable]:
    """Like `flatten_one_level`, with `(key, child)` pairs."""
    found = default_registry.flatten_one_level_with_keys(tree)
    if found is None:
        raise ValueError(f"a leaf has no children to flatten: {type(tree).__name__} is not a registered pytree node")
    pairs, metadata = found
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):     # jaxlib repeats the first field's key
        pairs = [(GetAttrKey(field), child) for field, child in zip(tree._fields, tree)]
    return pairs, metadata


def is_tree_node(typ: type) -> bool:
    """Whether values of class `typ` are interior nodes."""
    return typ is type(None) or default_registry.is_node(typ) or (issubclass(typ, tuple) and hasattr(typ, "_fields"))


# ---- map and reduce --------------------------------------------------------------------------------------------------

class _NodeTypes:
    """The types of interior nodes, as a mapping to how they are taken apart and put together."""

    def __contains__(self, typ: type) -> bool: return is_tree_node(typ)

    def __getitem__(self, typ: type) -> SimpleNamespace:
        if typ not in self:
            raise KeyError(typ)

        def from_iter(metadata: Any, children: Iterable[Any]) -> Any:
            children = list(children)
            return from_node((typ, metadata), [tree_structure(0)] * len(children)).unflatten(children)
        return SimpleNamespace(to_iter=flatten_one_level, from_iter=from_iter)


def tree_map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """Apply `f` to each leaf of `tree` and the matching subtrees of `rest`; the results in the structure of `tree`.

    Raises ValueError, naming the key path, when `tree` is not a prefix of one of `rest`.
    """
    leaves, treedef = default_registry.flatten(tree, is_leaf)
    if not rest:
        return treedef.unflatten(map(f, leaves))
    return treedef.unflatten(map(f, leaves, *[_up_to(treedef, tree, r, is_leaf, "tree_map tree") for r in rest]))


def tree_map_with_path(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[..., bool] | None = None,
                       is_leaf_takes_path: bool = False) -> Any:
    """Like `tree_map`, with the key path as the first argument of `f`."""
    pairs, treedef = tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    columns = [treedef.flatten_up_to(r) for r in rest]
    return treedef.unflatten([f(path, leaf, *others) for (path, leaf), *others in zip(pairs, *columns)])


def tree_reduce(function: Callable[[T, Any], T], tree: Any, initializer: T | Unspecified = _unspecified,
                is_leaf: IsLeaf = None) -> T:
    """`functools.reduce` over the leaves.  Raises TypeError for no leaves and no `initializer`."""
    leaves = tree_leaves(tree, is_leaf)
    if isinstance(initializer, Unspecified):
        return functools.reduce(function, leaves)
    return functools.reduce(function, leaves, initializer)


def tree_reduce_associative(operation: Callable[[T, T], T], tree: Any, *, identity: T | Unspecified = _unspecified,
                            is_leaf: IsLeaf = None) -> T:
    """Reduce the leaves in the shape of a balanced binary tree: the depth grows with the logarithm of their number."""
    leaves = tree_leaves(tree, is_leaf)
    if not leaves:
        if isinstance(identity, Unspecified):
            raise TypeError("tree_reduce_associative needs an identity to reduce a tree without leaves")
        return identity
    return _balanced(operation, leaves)


def _balanced(operation: Callable[[T, T], T], items: Sequence[T]) -> T:
    if len(items) == 1:
        return items[0]
    middle = len(items) // 2
    return operation(_balanced(operation, items[:middle]), _balanced(operation, items[middle:]))


def tree_all(tree: Any, *, is_leaf: IsLeaf = None) -> bool:
    """Whether every leaf is true."""
    return all(tree_leaves(tree, is_leaf))


def tree_transpose(outer_treedef: PyTreeDef, inner_treedef: PyTreeDef | None, pytree_to_transpose: Any) -> Any:
    """Turn a tree of trees inside out: from `outer` of `inner` to `inner` of `outer`.

    Without `inner_treedef` it is the structure of the first subtree.  Raises TypeError when the tree does not have as many
    leaves as the composed structure.  (Metadata of nodes may depend on what is in them: they are not compared.)
    """
    flat, treedef = tree_flatten(pytree_to_transpose)
    if inner_treedef is None:
        inner_treedef = tree_structure(outer_treedef.flatten_up_to(pytree_to_transpose)[0])
    inner = inner_treedef.num_leaves
    if treedef.num_leaves != outer_treedef.num_leaves * inner:
        raise TypeError(f"the tree to transpose has structure\n  {treedef}\nbut outer and inner make\n  "
                        f"{outer_treedef.compose(inner_treedef)}")
    return inner_treedef.unflatten([outer_treedef.unflatten(flat[i::inner]) for i in range(inner)])


def tree_broadcast(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> Any:
    """`full_tree` with every leaf replaced by the leaf of `prefix_tree` above it.

    Raises ValueError, naming the key path, when `prefix_tree` is not a prefix.
    """
    return tree_structure(full_tree).unflatten(broadcast_prefix(prefix_tree, full_tree, is_leaf))


def broadcast_prefix(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None, name: str = "prefix_tree") -> list[Any]:
    """The flat form of `tree_broadcast`; `name` is how an error calls `prefix_tree`."""
    leaves, treedef = default_registry.flatten(prefix_tree, is_leaf)
    result: list[Any] = []
    for leaf, subtree in zip(leaves, _up_to(treedef, prefix_tree, full_tree, is_leaf, name)):
        result += [leaf] * tree_structure(subtree).num_leaves
    return result


def _up_to(treedef: PyTreeDef, prefix: Any, full: Any, is_leaf: IsLeaf, name: str) -> list[Any]:
    try:
        return treedef.flatten_up_to(full)
    except ValueError as exc:
        message = prefix_error(prefix, full, is_leaf, name)
        if message is None:
            raise
        raise ValueError(f"{message}\n{exc}") from exc


# ---- structures ------------------------------------------------------------------------------------------------------

def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """The structures of the root's children."""
    return treedef.children()


def from_node(node_data: tuple[type, Any], children: Iterable[PyTreeDef]) -> PyTreeDef:
    """The structure of a node, from what `treedef.node_data()` says of it and the structures of its children."""
    return tree_structure(0).from_node_data_and_children(default_registry, node_data, list(children))


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """Whether the structure is one node without children: a leaf, None or an empty container."""
    return treedef.num_nodes == 1


def treedef_tuple(treedefs: Iterable[PyTreeDef]) -> PyTreeDef:
    """The structure of a tuple whose elements have the given structures."""
    return _pytree.treedef_tuple(default_registry, list(treedefs))


def build_tree(treedef: PyTreeDef, xs: Any) -> Any:
    """Rebuild a tree of structure `treedef` from nested iterables of the same nesting."""
    return treedef.from_iterable_tree(xs)


# ---- registering classes ---------------------------------------------------------------------------------------------

def register_pytree_node(nodetype: type[T], flatten_func: Callable[[T], tuple[Iterable[Any], Hashable]],
                         unflatten_func: Callable[[Any, Any], T],
                         flatten_with_keys_func: Callable[[T], tuple[Iterable[Any], Hashable]] | None = None) -> None:
    """Make `nodetype` an interior node.

    Args:
      flatten_func: `node -> (children, metadata)`; metadata must be hashable and comparable.
      unflatten_func: `(metadata, children) -> node`; must accept any objects as children.
      flatten_with_keys_func: `node -> (pairs of key and child, metadata)`, for readable key paths.

    Raises ValueError when `nodetype` is registered already.
    """
    default_registry.register_node(nodetype, flatten_func, unflatten_func, flatten_with_keys_func)


def register_pytree_node_class(cls: Typ) -> Typ:
    """Class decorator; uses the methods `tree_flatten(self)` and `tree_unflatten(cls, metadata, children)`."""
    register_pytree_node(cls, cls.tree_flatten, cls.tree_unflatten)
    return cls


def register_pytree_with_keys(nodetype: type[T], flatten_with_keys: Callable[[T], tuple[Iterable[Any], Any]],
                              unflatten_func: Callable[[Any, Any], T],
                              flatten_func: Callable[[T], tuple[Iterable[Any], Any]] | None = None) -> None:
    """Like `register_pytree_node`, from a flatten function that yields `(key, child)` pairs."""
    def without_keys(node: T) -> tuple[list[Any], Any]:
        pairs, metadata = flatten_with_keys(node)
        return [child for _, child in pairs], metadata

    register_pytree_node(nodetype, flatten_func or without_keys, unflatten_func, flatten_with_keys)


def register_pytree_with_keys_class(cls: Typ) -> Typ:
    """Class decorator; uses the methods `tree_flatten_with_keys`, `tree_unflatten` and, if there, `tree_flatten`."""
    register_pytree_with_keys(cls, cls.tree_flatten_with_keys, cls.tree_unflatten, getattr(cls, "tree_flatten", None))
    return cls


def register_static(cls: type[T]) -> type[T]:
    """Class decorator: instances are nodes without leaves, carried in the structure; they need `==` and `hash`."""
    register_pytree_node(cls, lambda obj: ((), obj), lambda obj, _: obj, lambda obj: ((), obj))
    return cls


def register_dataclass(nodetype: Any, data_fields: Sequence[str] | None = None,
                       meta_fields: Sequence[str] | None = None, drop_fields: Sequence[str] = ()) -> Any:
    """Make a dataclass (or any class with such fields) a node: data fields are children, meta fields are metadata.

    Without the lists, fields made with `tree.static()` (metadata `static=True`) are meta and all others data.
    `drop_fields` are left out and take their defaults.  Raises TypeError when only one list is given, or none for a
    class that is no dataclass; ValueError when the lists overlap or miss a field.
    """
    if (data_fields is None) != (meta_fields is None):
        raise TypeError("register_dataclass: give both data_fields and meta_fields, or neither")
    if data_fields is None or meta_fields is None:
        if not dataclasses.is_dataclass(nodetype):
            raise TypeError(f"register_dataclass: {nodetype} is not a dataclass; give data_fields and meta_fields")
        fields = [f for f in dataclasses.fields(nodetype) if f.init and f.name not in drop_fields]
        meta_fields = [f.name for f in fields if f.metadata.get("static", False)]
        data_fields = [f.name for f in fields if f.name not in meta_fields]
    _check_fields(cast(type, nodetype), set(data_fields), set(meta_fields), set(drop_fields))
    default_registry.register_dataclass_node(nodetype, list(data_fields), list(meta_fields))
    return nodetype


def _check_fields(nodetype: type, data: set[str], meta: set[str], drop: set[str]) -> None:
    if data & meta:
        raise ValueError(f"register_dataclass: data_fields and meta_fields both list {sorted(data & meta)}")
    if not dataclasses.is_dataclass(nodetype):
        return
    init = {f.name for f in dataclasses.fields(nodetype) if f.init}
    if missing := init - data - meta - drop:
        raise ValueError(f"register_dataclass: fields {sorted(missing)} of {nodetype.__name__} are in neither "
                         "data_fields nor meta_fields; add them there or to drop_fields")
    if extra := (data | meta) - init:
        raise ValueError(f"register_dataclass: {nodetype.__name__} has no field with init=True named {sorted(extra)}")


def static(**kwargs: Any) -> Any:
    """`dataclasses.field` for a field that `register_dataclass` shall treat as metadata."""
    return dataclasses.field(**{**kwargs, "metadata": {**(kwargs.get("metadata") or {}), "static": True}})


register_pytree_with_keys(
    OrderedDict, lambda d: ([(DictKey(k), v) for k, v in d.items()], tuple(d)),
    lambda keys, values: OrderedDict(zip(keys, values)), lambda d: (tuple(d.values()), tuple(d)))


def _flatten_defaultdict(d: defaultdict) -> tuple[list[Any], Any]:
    keys = tuple(sorted(d))
    return [(DictKey(k), d[k]) for k in keys], (d.default_factory, keys)


register_pytree_with_keys(defaultdict, _flatten_defaultdict,
                          lambda meta, values: defaultdict(meta[0], zip(meta[1], values)))


class _Whole:
    """Hides a partial from `functools.partial`, which would merge the two, and keeps identity and equality."""

    def __init__(self, func: Callable[..., Any]):
        self.func = func
        functools.update_wrapper(self, func)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.func(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Whole) and self.func is other.func

    def __hash__(self) -> int:
        return id(self.func)

    def __repr__(self) -> str:
        return repr(self.func)


class Partial(functools.partial):
    """`functools.partial` as a pytree: its arguments are children, its function is metadata.

    Such a value can be passed to and returned from transformed functions.  Equality of structures compares the
    function, so pass one that is defined once rather than a fresh lambda each call.
    """

    def __new__(cls, func: Callable[..., Any], *args: Any, **kw: Any) -> Partial:
        return super().__new__(cls, _Whole(func) if isinstance(func, functools.partial) else func, *args, **kw)


register_pytree_node(Partial, lambda p: ((p.args, p.keywords), p.func),
                     lambda func, children: Partial(func, *children[0], **children[1]))


# ---- key paths and messages ------------------------------------------------------------------------------------------

def keystr(keys: KeyPath, *, simple: bool = False, separator: str = "") -> str:
    """A key path as text: `['w'][0].bias`; with `simple` only the bare keys, as in `w/0/bias` for separator '/'."""
    return separator.join([_bare(k) if simple else str(k) for k in keys])


def _bare(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def prefix_error(prefix: Any, full: Any, is_leaf: IsLeaf = None, name: str = "prefix tree") -> str | None:
    """What keeps `prefix` from being a prefix of `full`, with the key path of the first place; None if nothing does."""
    return next(iter(_mismatches(prefix, full, is_leaf, name, ())), None)


def prefix_errors(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> list[Callable[[str], ValueError]]:
    """For each place where `prefix_tree` is no prefix of `full_tree`: how it is called -> the error that says so."""
    def named(i: int) -> Callable[[str], ValueError]:
        return lambda name: ValueError(list(_mismatches(prefix_tree, full_tree, is_leaf, name, ()))[i])
    return [named(i) for i, _ in enumerate(_mismatches(prefix_tree, full_tree, is_leaf, "", ()))]


def _mismatches(prefix: Any, full: Any, is_leaf: IsLeaf, name: str, path: KeyPath) -> Iterable[str]:
    if all_leaves([prefix], is_leaf):
        return
    where = f"{name}{keystr(path)}"
    if type(prefix) is not type(full):
        yield (f"pytree structure error: different types at key path {where}: {_describe(prefix)} there, "
               f"but the other tree has {_describe(full)}")
        return
    ours, theirs = flatten_one_level_with_keys(prefix), flatten_one_level_with_keys(full)
    mine, other = list(ours[0]), list(theirs[0])
    if len(mine) != len(other) and isinstance(prefix, (list, tuple)):
        yield (f"pytree structure error: different lengths of {_type(prefix)} at key path {where}: "
               f"{len(mine)} elements there, but the other tree has {len(other)}")
    elif ours[1] != theirs[1] or len(mine) != len(other):
        yield _metadata_error(where, prefix, ours[1], theirs[1])
    else:
        for (key, child), (_, matching) in zip(mine, other):
            yield from _mismatches(child, matching, is_leaf, name, (*path, key))


def _metadata_error(where: str, prefix: Any, ours: Any, theirs: Any) -> str:
    if isinstance(prefix, dict):
        missing, extra = set(ours) - set(theirs), set(theirs) - set(ours)
        detail = "; ".join([f"{who} lacks {_listed(keys)}" for who, keys in
                            (("the other tree", missing), ("this one", extra)) if keys]) or "the order of keys differs"
        return f"pytree structure error: different keys of a {_type(prefix)} at key path {where}: {detail}"
    diff = "\n".join("    " + line.rstrip() for line in difflib.ndiff([str(ours)], [str(theirs)]))
    return f"pytree structure error: different pytree metadata at key path {where} ({_type(prefix)}):\n{diff}"


def _type(x: Any) -> str:
    return "None" if x is None else type(x).__name__


def structure_differences(a: Any, b: Any) -> list[tuple[KeyPath, str, str]]:
    """Where two trees differ in structure: `(key path, what a has, what b has)` for each topmost place."""
    found: list[tuple[KeyPath, str, str]] = []

    def visit(path: KeyPath, x: Any, y: Any) -> None:
        leaf_x, leaf_y = all_leaves([x]), all_leaves([y])
        if leaf_x and leaf_y:
            return
        if leaf_x or leaf_y or type(x) is not type(y):
            found.append((path, "a leaf" if leaf_x else _describe(x), "a leaf" if leaf_y else _describe(y)))
            return
        (mine, meta_x), (other, meta_y) = flatten_one_level_with_keys(x), flatten_one_level_with_keys(y)
        mine, other = list(mine), list(other)
        if meta_x != meta_y or len(mine) != len(other):
            found.append((path, _describe(x), _describe(y)))
            return
        for (key, child), (_, matching) in zip(mine, other):
            visit((*path, key), child, matching)

    visit((), a, b)
    return found


def _describe(node: Any) -> str:
    if isinstance(node, dict):
        return f"a {type(node).__name__} with keys {_listed(node)}"
    if isinstance(node, (list, tuple)):
        return f"a {type(node).__name__} of length {len(node)}"
    article = "an" if _type(node)[0] in "aeiouAEIOU" else "a"
    return "None" if node is None else f"{article} {_type(node)}"


def _listed(keys: Iterable[Any]) -> str:
    return ", ".join(sorted(map(repr, keys)))
