"""Exported functions as `.aot` artifacts without executables, and back, with the classes that are registered for this."""
from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from aot import artifact, dtypes, mlir
from aot.ops.random import IMPLS
from aot.sharding import AbstractMesh, PartitionSpec
from aot.trace import ShapedArray
from aot.tree_util import PyTreeDef, from_node, keystr, tree_flatten_with_path, treedef_tuple
from aot_runtime import Artifact, ArtifactError

if TYPE_CHECKING:
    from aot.export import Exported

T = TypeVar("T")


# ---- artifacts ---------------------------------------------------------------------------------------------------------

def functions_of(e: Exported, name: str, vjp_order: int) -> list[artifact.Function]:
    """The functions of an artifact: one, or one for each platform where these differ, and those of derivatives."""
    args, kwargs = e.in_tree.children()
    keys = kwargs.node_data()[1]
    tree = lambda t: artifact.describe_tree(t, e.fun_name, _registered_node)
    arguments = [{"name": f"args[{i}]", "tree": tree(t)} for i, t in enumerate(args.children())] + [
        {"name": k, "tree": tree(t), "keyword": True} for k, t in zip(keys, kwargs.children())]
    inputs = _entries(e.in_tree, e.in_avals, e.in_specs if e.mesh else ())
    outputs = _entries(e.out_tree, e.out_avals, e.out_specs if e.mesh else ())
    out_tree, records = tree(e.out_tree), []
    different = len(set(e.programs.values())) > 1
    for platform in e.platforms if different else e.platforms[:1]:
        program = e.programs[platform]
        version = re.search(rb"StableHLO_v([\d.]+)", program[:64])
        calls = sorted(set(re.findall(r"custom_call @(\w+)", mlir.from_portable_bytecode(program))))
        about = {"fun_name": e.fun_name, "platforms": [platform] if different else list(e.platforms),
                 "disabled_checks": [str(d) for d in e.disabled_safety_checks],
                 "calling_convention_version": e.calling_convention_version}
        records.append(artifact.Function(
            f"{name}.{platform}" if different else name, arguments, inputs, outputs, out_tree, list(range(len(inputs))),
            program, version[1].decode() if version else "", custom_calls=calls,
            source={"export": about}, mesh=[list(axis) for axis in e.mesh.shape.items()] if e.mesh else []))
    return records + (functions_of(e.vjp(), f"{name}_vjp", vjp_order - 1) if vjp_order else [])


def _entries(tree: PyTreeDef, avals: Sequence[ShapedArray], specs: Sequence) -> list[dict]:
    paths = [keystr(path) for path, _ in tree_flatten_with_path(tree.unflatten(range(tree.num_leaves)))[0]]
    entries = [artifact.describe_array(p, a.shape, a.dtype) for p, a in zip(paths, avals, strict=True)]
    for entry, spec, a in zip(entries, specs, avals):
        if spec is not None:
            entry["sharding"] = [list(spec.axes(i)) for i in range(a.ndim)]
    return entries


def deserialize(blob: bytes | bytearray) -> Exported:
    """What `Exported.serialize` wrote.  Raises ArtifactError for anything else, ValueError for classes in arguments or results
    that are not registered here."""
    read = Artifact(bytes(blob))
    try:
        return _read(read, "call")
    except (KeyError, TypeError, IndexError, StopIteration):
        raise ArtifactError("an artifact, but not one that `Exported.serialize` wrote", where=read.path) from None


def _read(read: Artifact, name: str) -> Exported:
    from aot.export import DisabledSafetyCheck, Exported
    found = {k: f for k, f in read.manifest["functions"].items() if k == name or k.rpartition(".")[0] == name}
    records = [(f, f["source"]["export"]) for f in found.values()]
    first, about = records[0]
    programs = {p: bytes(read.member(f["program"])) for f, a in records for p in a["platforms"]}
    tree = lambda t: artifact.read_tree(t, _node_of)
    named = {a["name"]: tree(a["tree"]) for a in first["arguments"] if a.get("keyword")}
    positional = treedef_tuple([tree(a["tree"]) for a in first["arguments"] if not a.get("keyword")])
    in_tree = treedef_tuple([positional, from_node((dict, list(named)), named.values())])
    avals = [tuple(map(aval_of, first[side])) for side in ("inputs", "outputs")]
    specs = [tuple(PartitionSpec(*[tuple(d) or None for d in x["sharding"]]) if "sharding" in x else None for x in first[side])
             for side in ("inputs", "outputs")]
    mesh = AbstractMesh([n for _, n in first["mesh"]], [k for k, _ in first["mesh"]]) if first.get("mesh") else None
    following = f"{name}_vjp"
    kept = any(k.startswith(following) for k in read.manifest["functions"])
    return Exported(about["fun_name"], in_tree, avals[0], tree(first["out_tree"]), avals[1], tuple(programs), programs,
                    tuple(map(DisabledSafetyCheck, about["disabled_checks"])), mesh, *specs,
                    calling_convention_version=about["calling_convention_version"],
                    _get_vjp=(lambda _: _read(read, following)) if kept else None)


def aval_of(entry: dict, weak: bool = False) -> ShapedArray:
    """The type that an ENTRY of an artifact describes, which does not say whether it is weak."""
    name, shape = entry["dtype"], tuple(entry["shape"])
    if "data" not in entry:
        return ShapedArray(shape, dtypes.as_dtype(name), weak)
    return ShapedArray(shape, next(d for i in IMPLS.values() if (d := dtypes.KeyDType(i)).name == name))


# ---- classes in arguments and results -----------------------------------------------------------------------------------

@dataclass(frozen=True)
class _Registered:
    nodetype: type
    to_bytes: Callable[[Any], bytes]
    from_bytes: Callable[[bytes], Any]


_by_name: dict[str, _Registered] = {}
_names: dict[type, str] = {}


def register_pytree_node_serialization(nodetype: type[T], *, serialized_name: str, serialize_auxdata: Callable[[Any], bytes],
                                       deserialize_auxdata: Callable[[bytes], Any],
                                       from_children: Callable[[Any, Any], Any] | None = None) -> type[T]:
    """Let arguments and results of serialized functions have nodes of a class that is registered as a pytree node.

    serialized_name: its name in files.  serialize_auxdata: the metadata of a node as bytes, and back.  (from_children is not
    needed: structures are made of class and metadata.)  Raises ValueError for a class or name that is registered already."""
    if nodetype in _names:
        raise ValueError(f"{nodetype} is registered for serialization already, as {_names[nodetype]!r}")
    if serialized_name in _by_name:
        raise ValueError(f"the name {serialized_name!r} is registered already, for {_by_name[serialized_name].nodetype}")
    _by_name[serialized_name] = _Registered(nodetype, serialize_auxdata, deserialize_auxdata)
    _names[nodetype] = serialized_name
    return nodetype


def register_namedtuple_serialization(nodetype: type[T], *, serialized_name: str) -> type[T]:
    """The same for a named tuple."""
    if not (isinstance(nodetype, type) and issubclass(nodetype, tuple) and hasattr(nodetype, "_fields")):
        raise ValueError(f"{nodetype} is not a named tuple. hint: use register_pytree_node_serialization")
    return register_pytree_node_serialization(nodetype, serialized_name=serialized_name, serialize_auxdata=lambda _: b"",
                                              deserialize_auxdata=lambda _: None)


def _registered_node(cls: type, metadata: Any) -> dict:
    name = _names.get(cls)
    if name is None:
        raise ValueError(f"{cls} in the arguments or results cannot be serialized. hint: register_pytree_node_serialization or "
                         "register_namedtuple_serialization says how")
    return {"registered": name, "data": base64.b64encode(_by_name[name].to_bytes(metadata)).decode()}


def _node_of(tree: dict) -> tuple[type, Any]:
    found = _by_name.get(tree["registered"])
    if found is None:
        raise ValueError(f"the class {tree['registered']!r} is not registered in this process. hint: call "
                         "register_pytree_node_serialization or register_namedtuple_serialization, as where it was written")
    return found.nodetype, found.from_bytes(base64.b64decode(tree["data"]))
