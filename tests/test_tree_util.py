"""Pytrees against real jax: the same trees flattened, rebuilt, mapped, printed and refused by both."""
import collections
import dataclasses
import pickle
import types

import pytest

from aot import tree, tree_util

jax = pytest.importorskip("jax")

NT = collections.namedtuple("NT", "p q")


class Pair:
    """Registered with both packages, with keys."""

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __eq__(self, other):
        return type(other) is Pair and (self.a, self.b) == (other.a, other.b)

    def __repr__(self):
        return f"Pair({self.a}, {self.b})"


class Box:
    """Registered with both packages, without keys and with metadata."""

    def __init__(self, x, tag="aux"):
        self.x, self.tag = x, tag

    def __repr__(self):
        return f"Box({self.x})"

    def tree_flatten(self):
        return (self.x,), self.tag

    @classmethod
    def tree_unflatten(cls, tag, children):
        return cls(*children, tag)


@dataclasses.dataclass
class Data:
    x: int
    m: int = dataclasses.field(metadata={"static": True}, default=3)


@dataclasses.dataclass(frozen=True)
class Static:
    name: str


for tu in (jax.tree_util, tree_util):
    tu.register_pytree_with_keys(
        Pair, lambda p, tu=tu: (((tu.GetAttrKey("a"), p.a), (tu.GetAttrKey("b"), p.b)), None), lambda _, c: Pair(*c))
    tu.register_pytree_node_class(Box)
    tu.register_dataclass(Data)
    tu.register_static(Static)

TREES = [
    1, None, (), [], {}, (1, [2, None], {"a": 1}), {"b": 1, "a": (2, 3)}, NT(1, [2]), [NT(1, None)],
    collections.OrderedDict([("b", 1), ("a", 2)]), collections.defaultdict(list, {"z": 1, "y": [2]}),
    Pair(1, {"k": 2}), Box((1, 2)), Data(1), Data(Box(2), 4), Static("s"), [Static("s"), 1],
    {"w": [1, 2, (3, None)], "n": Pair(4, {"z": 5}), "d": Data(6, 7)}, "text", [[], {}, ()], {1: 2, 3: {4: 5}},
]


@pytest.mark.parametrize("t", TREES, ids=repr)
def test_flatten_and_print(t):
    leaves, treedef = tree_util.tree_flatten(t)
    want_leaves, want_treedef = jax.tree_util.tree_flatten(t)
    assert leaves == want_leaves and str(treedef) == str(want_treedef)
    assert (treedef.num_leaves, treedef.num_nodes) == (want_treedef.num_leaves, want_treedef.num_nodes)
    assert repr(tree_util.tree_unflatten(treedef, leaves)) == repr(want_treedef.unflatten(leaves))
    assert treedef == tree_util.tree_structure(t) and hash(treedef) == hash(tree_util.tree_structure(t))
    assert tree_util.treedef_is_leaf(treedef) == jax.tree_util.treedef_is_leaf(want_treedef)
    assert str(tree_util.treedef_children(treedef)) == str(jax.tree_util.treedef_children(want_treedef))
    assert tree_util.is_tree_node(type(t)) == jax.tree_util.is_tree_node(type(t))


@pytest.mark.parametrize("t", TREES, ids=repr)
def test_paths(t):
    pairs, treedef = tree_util.tree_flatten_with_path(t)
    want = jax.tree_util.tree_leaves_with_path(t)
    assert treedef == tree_util.tree_structure(t)
    assert [(repr(p), x) for p, x in pairs] == [(repr(p), x) for p, x in want]
    for kw in ({}, {"simple": True, "separator": "/"}):
        assert [tree_util.keystr(p, **kw) for p, _ in pairs] == [jax.tree_util.keystr(p, **kw) for p, _ in want]
    mapped = tree_util.tree_map_with_path(lambda p, x: tree_util.keystr(p), t)
    assert repr(mapped) == repr(jax.tree_util.tree_map_with_path(lambda p, x: jax.tree_util.keystr(p), t))


@pytest.mark.parametrize("t", TREES, ids=repr)
def test_one_level(t):
    def run(tu):
        try:
            children, metadata = tu.flatten_one_level(t)
            keyed, _ = tu.flatten_one_level_with_keys(t)
            keys = [repr(k) for k, _ in keyed]
            return list(children), metadata, [v for _, v in keyed], len(keys) if hasattr(t, "_fields") else keys
        except ValueError:
            return "ValueError"
    assert run(tree_util) == run(jax.tree_util)


def test_namedtuple_keys_name_their_fields():
    keyed, _ = tree_util.flatten_one_level_with_keys(NT(1, 2))
    assert [k.name for k, _ in keyed] == ["p", "q"]


@pytest.mark.parametrize("rest", [[(10, [20, None], {"a": 30})], [((1, 2), ["x", None], {"a": {}})]], ids=repr)
def test_map_with_more_trees(rest):
    t = (1, [2, None], {"a": 1})
    assert tree_util.tree_map(lambda *a: a, t, *rest) == jax.tree_util.tree_map(lambda *a: a, t, *rest)


# (prefix, full, the key path that the error must name)
MISMATCHES = [
    ((1, 2), (1,), "tree"), ((1, 2), [1, 2], "tree"), ({"a": 1}, {"b": 1}, "tree"), ([1, {"a": 1}], [1, 2], "tree[1]"),
    ([1, None], [1, 2], "tree[1]"), ([1, {"k": (1, 2)}], [1, {"k": (1, 2, 3)}], "tree[1]['k']"),
    (NT(1, 2), (1, 2), "tree"), ((1, Box(1)), (1, Data(2)), "tree[1]"), (Box((1,), "s"), Box((1,), "t"), "tree"),
    (Pair(1, [1]), Pair(1, (1,)), "tree.b"), ({"a": 1}, collections.OrderedDict(a=1), "tree"),
]


@pytest.mark.parametrize("prefix, full, path", MISMATCHES, ids=repr)
def test_mismatches_name_the_path(prefix, full, path):
    for f in (lambda tu: tu.tree_map(lambda *a: a, prefix, full), lambda tu: tu.tree_broadcast(prefix, full)):
        with pytest.raises(ValueError):
            f(jax.tree_util)
        with pytest.raises(ValueError) as caught:
            f(tree_util)
        assert f"at key path {'tree_map ' if 'tree_map' in str(caught.value) else 'prefix_'}{path}" in str(caught.value)
        assert str(caught.value).endswith(str(caught.value.__cause__))     # jaxlib's words, which jax's users know, and match
    assert tree_util.prefix_error(prefix, full) is not None
    assert tree_util.structure_differences(prefix, full)
    assert tree_util.prefix_error(full, full) is None and not tree_util.structure_differences(full, full)


BROADCASTS = [(1, {"a": 2, "b": (3, 4)}), ({"a": 1, "b": 2}, {"a": 2, "b": (3, 4)}), (Box(1), Box((1, 2))),
              ([1, None], [(1, 1), None]), ([], []), (5, None)]


@pytest.mark.parametrize("prefix, full", BROADCASTS, ids=repr)
def test_broadcast(prefix, full):
    assert repr(tree_util.tree_broadcast(prefix, full)) == repr(jax.tree_util.tree_broadcast(prefix, full))
    got = tree_util.broadcast_prefix([None, 1], [(1, 2), 3], is_leaf=lambda x: x is None)
    assert got == [None, None, 1]


def add(a, b):
    return (a, b)


EQUAL = {       # name -> function of the module, compared by repr or by the class of the error
    "reduce": lambda tu: tu.tree_reduce(add, [1, 2, (3,)]),
    "reduce from": lambda tu: tu.tree_reduce(add, [1, 2, (3,)], 10),
    "reduce nothing": lambda tu: tu.tree_reduce(add, []),
    "reduce nothing from": lambda tu: tu.tree_reduce(add, [], None),
    "associative": lambda tu: [tu.tree_reduce_associative(add, list(range(n))) for n in (1, 2, 3, 5, 8)],
    "associative nothing": lambda tu: tu.tree_reduce_associative(add, []),
    "associative identity": lambda tu: tu.tree_reduce_associative(add, [], identity=0),
    "all": lambda tu: (tu.tree_all([True, 1]), tu.tree_all([1, (0,)]), tu.tree_all([])),
    "all_leaves": lambda tu: [tu.all_leaves(x) for x in ([1, 2], [1, (2,)], [1, None], [])],
    "all_leaves is_leaf": lambda tu: [tu.all_leaves(x, lambda y: y == (2,)) for x in ([1, (2,)], [1, (3,)])],
    "transpose": lambda tu: tu.tree_transpose(tu.tree_structure([0, 0]), tu.tree_structure((0, 0, 0)),
                                              [(1, 2, 3), (4, 5, 6)]),
    "transpose inferred": lambda tu: tu.tree_transpose(tu.tree_structure([0, 0]), None, [(1, 2, 3), (4, 5, 6)]),
    "transpose mismatch": lambda tu: tu.tree_transpose(tu.tree_structure([0, 0]), tu.tree_structure((0, 0)),
                                                       [(1, 2, 3), (4, 5, 6)]),
    "transpose other structure": lambda tu: tu.tree_transpose(tu.tree_structure([0, 0]), tu.tree_structure((0, 0)), [1, (2, [3, 4])]),
    "tuple": lambda tu: tu.treedef_tuple([tu.tree_structure(1), tu.tree_structure([1])]),
    "unflatten few": lambda tu: tu.tree_unflatten(tu.tree_structure([1, 2]), [1]),
    "unflatten many": lambda tu: tu.tree_unflatten(tu.tree_structure([1, 2]), [1, 2, 3]),
    "is_leaf": lambda tu: tu.tree_flatten([1, [2]], is_leaf=lambda x: x == [2]),
    "is_leaf path": lambda tu: tu.tree_flatten_with_path([[1], 2], is_leaf=lambda p, x: len(p) == 1,
                                                         is_leaf_takes_path=True),
    "is_leaf no path": lambda tu: tu.tree_leaves_with_path([[1], 2], is_leaf=lambda x: x == [1]),
    "mixed keys": lambda tu: tu.tree_structure({"b": 1, 2: 2}),
    "keys": lambda tu: [tu.DictKey("a"), tu.SequenceKey(1), tu.GetAttrKey("x"), tu.FlattenedIndexKey(2)],
    "keystr plain": lambda tu: (tu.keystr((1, "a")), tu.keystr((1, "a"), simple=True, separator="."), tu.keystr(())),
    "partial": lambda tu: tu.tree_flatten(tu.Partial(print, 1, a=2)),
    "partial paths": lambda tu: tu.tree_leaves_with_path(tu.Partial(print, 1, a=2)),
    "partial twice": lambda tu: tu.tree_leaves(tu.Partial(tu.Partial(print, 1), 2)),
    "twice": lambda tu: tu.register_dataclass(Data),
    "not a dataclass": lambda tu: tu.register_dataclass(int),
    "half": lambda tu: tu.register_dataclass(fresh(), ["a"]),
    "missing": lambda tu: tu.register_dataclass(fresh(), ["a"], []),
    "extra": lambda tu: tu.register_dataclass(fresh(), ["a"], ["b", "c"]),
    "overlap": lambda tu: tu.register_dataclass(fresh(), ["a", "b"], ["b"]),
    "drop": lambda tu: tu.tree_structure(tu.register_dataclass(fresh(), ["a"], [], drop_fields=["b"])(1, 2)),
    "flatten leaf": lambda tu: tu.flatten_one_level(1),
}


def fresh():
    return dataclasses.make_dataclass("Fresh", ["a", ("b", int, 0)])


@pytest.mark.parametrize("name", EQUAL)
def test_same_as_jax(name):
    def run(tu):
        try:
            return repr(EQUAL[name](tu))
        except Exception as e:
            return type(e).__name__
    assert run(tree_util) == run(jax.tree_util)


def test_partial():
    p = tree_util.Partial(max, 3, key=abs)
    assert p(-5) == -5 and isinstance(p, types.FunctionType.__base__)
    doubled = tree_util.tree_map(lambda x: x * 2, tree_util.Partial(max, 3))
    assert doubled(5) == 6
    nested = tree_util.Partial(tree_util.Partial(max, 3), 7)
    assert nested() == 7 and tree_util.tree_leaves(nested) == [7]
    assert tree_util.tree_structure(nested) == tree_util.tree_structure(tree_util.Partial(nested.func.func, 7))


def test_static_fields_and_structure_pickles():
    @tree_util.register_dataclass
    @dataclasses.dataclass
    class Op:
        x: int
        op: str = tree.static(default="add")

    assert str(tree.structure(Op(1))) == "PyTreeDef(CustomNode(Op[('add',)], [*]))"
    assert tree.map(lambda v: v + 1, Op(1, "mul")) == Op(2, "mul")
    structure = tree.structure([1, (2, {"a": None})])
    assert pickle.loads(pickle.dumps(structure)) == structure


def test_registry_is_our_own():
    class Theirs:
        pass
    jax.tree_util.register_static(Theirs)
    assert tree_util.all_leaves([Theirs()])


def test_build_tree():
    treedef = tree_util.tree_structure({"a": [1, 2], "b": (3,)})
    assert tree_util.build_tree(treedef, [[1, 2], [3]]) == {"a": [1, 2], "b": (3,)}


# ---- the documented examples of pytrees ------------------------------------------------------------------------------

def test_documented_leaves_and_maps():
    trees = [([1, "a", "b"], 3), ((1, (2, 3), ()), 3), ([1, {"k1": 2, "k2": (3, 4)}, 5], 5), ({"a": 2, "b": (2, 3)}, 3)]
    assert [len(tree.leaves(t)) for t, _ in trees] == [n for _, n in trees]
    lists = [[1, 2, 3], [1, 2], [1, 2, 3, 4]]
    doubled = [[2, 4, 6], [2, 4], [2, 4, 6, 8]]
    assert tree.map(lambda x: x * 2, lists) == tree.map(lambda x, y: x + y, lists, lists) == doubled
    assert tree.leaves([None, None]) == [] and tree.leaves([None], is_leaf=lambda x: x is None) == [None]
    assert tree.leaves([NT("Alice", 1), NT("Bob", 4)]) == ["Alice", 1, "Bob", 4]


def test_documented_transposition():
    steps, expected = [{"t": 1, "obs": 3}, {"t": 2, "obs": 4}], {"obs": [3, 4], "t": [1, 2]}
    assert tree.map(lambda *xs: list(xs), *steps) == expected
    assert tree.transpose(outer_treedef=tree.structure([0 for _ in steps]), inner_treedef=tree.structure(steps[0]),
                          pytree_to_transpose=steps) == expected


def test_documented_registration():
    class Special:
        def __init__(self, x, y):
            self.x, self.y = x, y

    class Registered(Special):
        def __repr__(self):
            return f"RegisteredSpecial(x={self.x}, y={self.y})"

    with pytest.raises(TypeError, match="unsupported operand"):
        tree.map(lambda x: x + 1, [Special(0, 1)])
    tree_util.register_pytree_node(Registered, lambda v: ((v.x, v.y), None), lambda _, c: Registered(*c))
    mapped = tree.map(lambda x: x + 1, [Registered(0, 1), Registered(2, 4)])
    assert repr(mapped) == "[RegisteredSpecial(x=1, y=2), RegisteredSpecial(x=3, y=5)]"


def test_documented_key_paths():
    named = collections.namedtuple("ATuple", ("name",))
    pairs, _ = tree_util.tree_flatten_with_path([1, {"k1": 2, "k2": (3, 4)}, named("foo")])
    assert [(tree_util.keystr(p), x) for p, x in pairs] == [
        ("[0]", 1), ("[1]['k1']", 2), ("[1]['k2'][0]", 3), ("[1]['k2'][1]", 4), ("[2].name", "foo")]
    assert [repr(p) for p, _ in pairs] == [
        "(SequenceKey(idx=0),)", "(SequenceKey(idx=1), DictKey(key='k1'))",
        "(SequenceKey(idx=1), DictKey(key='k2'), SequenceKey(idx=0))",
        "(SequenceKey(idx=1), DictKey(key='k2'), SequenceKey(idx=1))", "(SequenceKey(idx=2), GetAttrKey(name='name'))"]


def test_tree_module_names():
    assert sorted(tree.__all__) == [n for n in dir(jax.tree) if not n.startswith("_")]
    for name in tree.__all__:
        ours = getattr(tree, name)
        assert ours is getattr(tree_util, f"tree_{name}", getattr(tree_util, name, None))
    public = [n for n in dir(jax.tree_util) if not n.startswith("_")]
    assert [n for n in public if not hasattr(tree_util, n)] == []
