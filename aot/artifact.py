"""The `.aot` artifact: everything of one build in one file.  docs/format.md specifies it; this is its only writer.

Files are written to a temporary name and renamed, so a reader sees all or nothing.
"""
from __future__ import annotations

import io
import json
import os
import platform
import struct
import time
import zipfile
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

import aot_runtime
from aot import __version__, provenance
from aot.errors import AotError
from aot.files import is_file_name, replacing
from aot_runtime import SAFETENSORS, host_info

SCHEMA = 1
ALIGN = 64
CHUNK = 1 << 22     # bytes of a large member that have a hash of their own
LARGE = 1 << 25     # bytes of a member from which on it is large


@dataclass
class Executable:
    """A serialized executable and what it needs of the host that runs it (see `executables` above)."""
    target: str
    blob: bytes
    platform: str = "cpu"
    machine: str = ""
    cpu_features: list[str] | None = None
    jaxlib: str = ""
    jaxlib_build: str = ""
    xla_flags: dict[str, Any] = field(default_factory=dict)
    device_kind: str = ""
    memory: dict[str, int] | None = None
    flops: int | None = None
    devices: int = 1
    collectives: dict[str, dict[str, int]] | None = None
    plugin: str = ""
    plugin_api: str = ""

    @classmethod
    def for_this_host(cls, target: str, blob: bytes, **kwargs: Any) -> Executable:
        """An executable that was compiled in this process for its own CPU."""
        return cls(target, blob, **host_info(), **kwargs)

    def manifest(self, member: str) -> dict:
        entry = {k: v for k, v in self.__dict__.items() if k != "blob" and (v != "" or not k.startswith("plugin"))}
        return {**entry, "member": member}


@dataclass
class Function:
    """One function to store; the fields are those of `function` above, with contents instead of member names."""
    name: str
    arguments: list[dict]
    inputs: list[dict]
    outputs: list[dict]
    out_tree: Any
    parameters: list[int | str]
    program: bytes | None = None
    stablehlo: str = ""
    executables: list[Executable] = field(default_factory=list)
    golden: tuple[Sequence[np.ndarray], Sequence[np.ndarray]] | None = None
    xla_flags: dict[str, Any] = field(default_factory=dict)
    custom_calls: list[str] = field(default_factory=list)
    static: dict[str, str] = field(default_factory=dict)
    base: str = ""
    source: dict[str, Any] = field(default_factory=dict)
    mesh: list[list] = field(default_factory=list)
    unused_weights: list[str] = field(default_factory=list)


def write(path: str | os.PathLike, functions: Iterable[Function], weights: Mapping[str, np.ndarray] | None = None,
          separate: Collection[str] = (), revision: Mapping[str, Any] | None = None) -> list[str]:
    """Write an artifact atomically -> the files written.  `weights` holds every array that `parameters` name.

    separate: the weights that go to a file next to the artifact, NAME.weights.safetensors.  revision: of the sources,
    see aot/provenance.py.
    Raises AotError when a file cannot be written or a name is used twice.
    """
    functions, path, weights = list(functions), os.fspath(path), weights or {}
    manifest = _manifest(revision)
    apart = {k: v for k, v in weights.items() if k in separate}
    files = [path, path.removesuffix(".aot") + ".weights.safetensors"][:1 + bool(apart)]
    if apart:
        manifest["external"] = {"file": os.path.basename(files[1]), "arrays": {
            k: {"shape": list(v.shape), "dtype": v.dtype.name} for k, v in apart.items()}}
        with replacing(files[1]) as f:
            f.writelines(pack_tensors(apart))
    inside = {k: v for k, v in weights.items() if k not in apart}
    with replacing(path) as f:
        _write(f, manifest, functions, inside)
    return files


def as_bytes(functions: Iterable[Function], weights: Mapping[str, np.ndarray] | None = None) -> bytes:
    """The bytes of an artifact.  Raises AotError when a name is used twice."""
    f = io.BytesIO()
    _write(f, _manifest(), list(functions), weights or {})
    return f.getvalue()


def with_revision(blob: bytes, revision: Mapping[str, Any]) -> bytes:
    """The bytes of an artifact as `write` would have written them at this revision of the sources."""
    with zipfile.ZipFile(io.BytesIO(blob)) as old:
        manifest = json.loads(old.read("manifest.json"))
        if manifest.get("provenance", {}) == revision:
            return blob
        manifest.pop("provenance", None)
        manifest |= {"provenance": dict(revision)} if revision else {}
        new = io.BytesIO()
        with zipfile.ZipFile(new, "w") as z:
            for name in old.namelist():
                if name != "manifest.json":
                    add_member(z, name, [old.read(name)])
            _add_manifest(z, manifest)
    return new.getvalue()


def _manifest(revision: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A manifest that lists nothing yet."""
    tools = {"jaxlib": host_info()["jaxlib"], "python": platform.python_version(), "numpy": np.__version__,
             "ml_dtypes": ml_dtypes.__version__}
    return {"format": "aot", "schema": SCHEMA, "producer": f"aotc {__version__}", "members": {}, "toolchain": tools,
            "functions": {}, **_created(), **({"provenance": dict(revision)} if revision else {})}


def _write(f: BinaryIO, manifest: dict[str, Any], functions: list[Function], weights: Mapping[str, np.ndarray]) -> None:
    with zipfile.ZipFile(f, "w") as z:
        for name, parts in _contents(functions, weights, manifest["functions"]):
            manifest["members"][name] = add_member(z, name, parts)
        bill = provenance.sbom(", ".join(manifest["functions"]), manifest["toolchain"], manifest.get("created", ""))
        manifest["members"]["sbom.json"] = add_member(z, "sbom.json", [bill])
        _add_manifest(z, manifest)


def _add_manifest(z: zipfile.ZipFile, manifest: dict[str, Any]) -> None:
    add_member(z, "manifest.json", [json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False).encode()])


def _created() -> dict[str, str]:
    """The date of the build, only where SOURCE_DATE_EPOCH gives one: equal builds have equal bytes."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not epoch.isdigit():
        return {}
    return {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(epoch)))}


def _contents(functions: list[Function], weights: Mapping[str, np.ndarray],
              described: dict) -> Iterator[tuple[str, list]]:
    """Every member but the manifest, as (name, list of bytes); fills in `described` on the way."""
    for fn in functions:
        if fn.name in described or not is_file_name(fn.name):
            raise AotError(f"function name {fn.name!r}: names must be different, of one line, without '/' and '\\', "
                           "and must not begin with '.'")
        described[fn.name] = entry = _describe_function(fn)
        if fn.program is not None:
            yield entry["program"], [fn.program]
        for exe, e in zip(fn.executables, entry["executables"]):
            yield e["member"], [exe.blob]
        if fn.golden is not None:
            named = {f"{side}.{i}": a for side, arrays in zip(("in", "out"), fn.golden) for i, a in enumerate(arrays)}
            yield entry["golden"], pack_tensors(named)
    if weights:
        yield "weights", pack_tensors(weights)


def _describe_function(fn: Function) -> dict:
    entry = {"arguments": fn.arguments, "inputs": fn.inputs, "outputs": fn.outputs, "out_tree": fn.out_tree,
             "parameters": fn.parameters, "xla_flags": fn.xla_flags, "custom_calls": fn.custom_calls,
             "static": fn.static,
             "executables": [e.manifest(f"exec/{fn.name}/{e.target}") for e in fn.executables]}
    if fn.program is not None:
        entry |= {"program": f"program/{fn.name}.mlirbc", "stablehlo": fn.stablehlo}
    if fn.golden is not None:
        entry["golden"] = f"golden/{fn.name}"
    return {**entry, **{k: v for k in ("base", "source", "mesh", "unused_weights") if (v := getattr(fn, k))}}


# ---- the container -------------------------------------------------------------------------------------------------

def add_member(z: zipfile.ZipFile, name: str, parts: list) -> dict:
    """Append a stored member whose data is aligned; returns its manifest entry."""
    size, digest, chunks = sum(len(p) for p in parts), sha256(), _Chunks()
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.external_attr = 0o644 << 16
    wide = size >= 1 << 31
    data = z.fp.tell() + 30 + len(name.encode()) + 20 * wide + 4  # type: ignore[union-attr]
    pad = -data % ALIGN
    info.extra = struct.pack("<HH", 0xD935, pad) + bytes(pad)
    with z.open(info, "w", force_zip64=wide) as member:
        for part in parts:
            digest.update(part)
            chunks.update(part)
            member.write(part)
    entry = {"size": size, "sha256": digest.hexdigest()}
    return {**entry, "chunks": {"size": CHUNK, "sha256": chunks.finish()}} if size > LARGE else entry


class _Chunks:
    """sha256 of every CHUNK bytes of what is given piece by piece."""

    def __init__(self): self.done, self.current, self.room = [], sha256(), CHUNK

    def update(self, part: Any) -> None:
        view = memoryview(part).cast("B")
        while len(view):
            piece, view = view[:self.room], view[self.room:]
            self.current.update(piece)
            self.room -= len(piece)
            if not self.room:
                self.done.append(self.current.hexdigest())
                self.current, self.room = sha256(), CHUNK

    def finish(self) -> list[str]:
        return self.done if self.room == CHUNK else [*self.done, self.current.hexdigest()]


# ---- arrays --------------------------------------------------------------------------------------------------------

_NAMES = {dtype: name for name, dtype in SAFETENSORS.items()}


def pack_tensors(arrays: Mapping[str, np.ndarray]) -> list:
    """Arrays in safetensors layout, as a list of buffers to write one after the other."""
    header, meta, data, at = {}, {}, [], 0
    for name, a in arrays.items():
        a = np.asarray(a, order="C")
        if gap := -at % ALIGN:
            header[f"__pad{len(header)}__"] = {"dtype": "U8", "shape": [gap], "data_offsets": [at, at + gap]}
            data.append(bytes(gap))
        at += gap
        dtype, shape = _NAMES.get(a.dtype.name), list(a.shape)
        if dtype is None:
            meta["dtype:" + name], dtype, shape = a.dtype.name, "U8", [*shape, a.dtype.itemsize]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + a.nbytes]}
        data.append(a.reshape(-1).view(np.uint8).data)
        at += a.nbytes
    text = json.dumps({**({"__metadata__": meta} if meta else {}), **header}).encode()
    text += b" " * (-(len(text) + 8) % ALIGN)
    return [struct.pack("<Q", len(text)), text, *data]


# ---- descriptions of pytrees and arrays ----------------------------------------------------------------------------

def describe_tree(treedef: Any, where: str = "", custom: Callable[[type, Any], dict] | None = None) -> Any:
    """TREE of a PyTreeDef.  Raises AotError for dictionary keys that JSON cannot hold, and where it is too deep for loaders.

    custom(class, metadata) gives `registered` and further fields for nodes of other classes than containers, or raises."""
    try:
        tree = _describe_tree(treedef, where, custom)
    except RecursionError:
        tree = "deeper than this"
    if not _is_readable(tree):
        raise AotError(f"{where}: containers are nested too deeply to be stored",
                       hint="flatten them, or stack what is alike into one array") from None
    return tree


def _is_readable(tree: Any) -> bool:
    """Whether loaders take a TREE as deep as this."""
    try:
        aot_runtime.count_leaves(tree)
    except (ValueError, RecursionError):
        return False
    return True


def _describe_tree(treedef: Any, where: str, custom: Callable[[type, Any], dict] | None) -> Any:
    from aot import tree_util
    data, children = treedef.node_data(), treedef.children()
    if data is None:
        return "*" if treedef.num_leaves else None
    cls, meta = data
    if cls is type(None):
        return None
    if cls in (tuple, list):
        return {cls.__name__: [_describe_tree(c, where, custom) for c in children]}
    further = custom(cls, meta) if custom and cls not in (dict, OrderedDict) else {}
    if issubclass(cls, dict):
        return {**_describe_dict(cls, meta, children, where, custom), **further}
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return {"namedtuple": cls.__name__, "fields": _fields(cls._fields, children, where, custom), **further}
    keys = _keys(treedef, len(children))
    if keys and all(isinstance(k, tree_util.DictKey) for k in keys):      # a mapping of the user's, which loaders make a dict
        pairs = [[_json_key(k.key, where), _describe_tree(c, where, custom)] for k, c in zip(keys, children)]
        return {"dict": pairs, **further}
    names = [getattr(k, "name", i) for i, k in enumerate(keys)]
    return {"node": cls.__name__, "fields": _fields(names, children, where, custom), **further}


def _fields(names: Sequence, children: Sequence, where: str, custom: Any) -> list:
    return [[n, _describe_tree(c, where, custom)] for n, c in zip(names, children)]


def _describe_dict(cls: type, meta: Any, children: Sequence, where: str, custom: Any) -> dict:
    keys = meta[1] if issubclass(cls, defaultdict) else meta  # a defaultdict's metadata is (factory, keys)
    pairs = [[_json_key(k, where), _describe_tree(c, where, custom)] for k, c in zip(keys, children)]
    return {"dict": pairs, **({"ordered": True} if cls.__name__ == "OrderedDict" else {})}


def read_tree(tree: Any, custom: Callable[[dict], tuple[type, Any]]) -> Any:
    """The PyTreeDef of a TREE that has been checked.

    custom(node) gives class and metadata of nodes of other classes, or raises."""
    from aot import tree_util
    if tree == "*":
        return tree_util.tree_structure(0)
    if tree is None:
        return tree_util.tree_structure(None)
    if "tuple" in tree or "list" in tree:
        kind, children = next(iter(tree.items()))
        data: tuple = {"tuple": tuple, "list": list}[kind], None
    else:
        pairs = tree["dict"] if "dict" in tree else tree["fields"]
        keys, children = [_read_key(k) for k, _ in pairs], [c for _, c in pairs]
        data = custom(tree) if "fields" in tree or "registered" in tree else (
            (OrderedDict, tuple(keys)) if tree.get("ordered") else (dict, keys))
    return tree_util.from_node(data, [read_tree(c, custom) for c in children])


def _read_key(k: Any) -> Any:
    return tuple(map(_read_key, k)) if isinstance(k, list) else k


def _json_key(k: Any, where: str) -> Any:
    if isinstance(k, str) and not k.isascii() and k.encode(errors="ignore").decode() != k:
        raise AotError(f"{where}: dictionary key {k!r} is no Unicode and cannot be stored", hint="use other keys")
    if isinstance(k, (str, bool, int, float)) or k is None:
        return k
    if isinstance(k, np.generic):
        return k.item()
    if isinstance(k, tuple):
        return [_json_key(x, where) for x in k]
    raise AotError(f"{where}: dictionary key {k!r} of type {type(k).__name__} cannot be stored",
                   hint="use strings or numbers as keys")


def _keys(treedef: Any, n: int) -> list:
    """The entries that a registered class's children have in key paths; numbers where it has none."""
    from aot import tree_util
    try:
        node = treedef.unflatten([0] * treedef.num_leaves)
        return [k for k, _ in tree_util.flatten_one_level_with_keys(node)[0]]
    except Exception:  # the class's own code objects to numbers as children
        return list(range(n))


def describe_array(name: str, shape: Sequence[int], dtype: Any) -> dict:
    """ENTRY of an array or, for an extended dtype such as `key<fry>`, of the array that stands for it."""
    entry = {"name": name, "shape": list(shape), "dtype": dtype.name}
    if not isinstance(dtype, np.dtype):
        entry["data"] = {"shape": [*shape, *dtype.impl.key_shape], "dtype": "uint32"}
    return entry
