"""Loads `.aot` artifacts and runs them: one file, no compiler.  Needs numpy, jaxlib and (for its dtypes) ml_dtypes.

    import aot_runtime
    predict = aot_runtime.load("model.aot")["predict"]
    y = predict(params, x)          # numpy arrays in (or anything that numpy understands), numpy arrays out

The format is specified in docs/format.md; this module is its only reader in Python.  Every member is checked against the
sha256 in the manifest before it is used.  A serialized executable runs only on the platform, CPU features and jaxlib
build that it was made for; anything else is not even tried: the StableHLO program in the same file is compiled
instead (a warning of the logger `aot_runtime` says why), or `strict=True` makes that an error.  `explain()` tells
what would be used on this host.

A checksum protects against damage, not against malice: an artifact holds machine code, so load only files that you
would run.
"""
from __future__ import annotations

import atexit
import json
import mmap
import os
import struct
import sys
import threading
import zlib
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from concurrent.futures import Future

__version__ = "0.1.0"
__all__ = ["SAFETENSORS", "AotError", "Artifact", "ArtifactError", "Function", "InputError", "check", "collect",
           "count_leaves", "dtype_of", "host_info", "join", "key", "load", "meet", "public_key", "short", "tensors"]

_modules = sys.modules
SCHEMA = 1  # the newest manifest schema that this loader reads

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # before jaxlib loads: its INFO lines are noise


class AotError(Exception):
    """What went wrong (`what`), on which file, function or argument (`where`), and what to do about it (`hint`)."""

    def __init__(self, what: str, *, where: str = "", hint: str = ""):
        self.what, self.where, self.hint = what, where, hint
        super().__init__((f"{where}: " if where else "") + what + (f"\nhint: {hint}" if hint else ""))


class ArtifactError(AotError):
    """A file that is missing, truncated, damaged, of another kind or of a newer schema, or whose signer is not trusted."""


class InputError(AotError, TypeError):
    """The arguments of a call do not fit the function's signature."""


def load(source: Any, *, strict: bool = False, device: str = "cpu", functions: Iterable[str] | None = None,
         trusted_keys: Iterable[Any] | None = None, weights: str | os.PathLike | None = None) -> Artifact:
    """Open an artifact (a path, its bytes, or a binary file): `load(path)[name](*args)`.

    strict: refuse a function that has no executable for this host instead of compiling its StableHLO program.
    device: "cpu", "cuda", "tpu", "cuda:1", ... or "pjrt:/path/of/plugin.so"; the default is the host's processor.
    functions: prepare these now.  By default only the manifest is read here, and a function is verified and prepared
    when it is looked up.
    trusted_keys: accept the file only if one of these Ed25519 public keys signed it (`aot sign`).  A key is 64 hex
    digits, a PEM text, or the path of a PEM file; needs the package `cryptography`.
    weights: a safetensors file to use instead of the one that an artifact with separate weights names.

    Raises ArtifactError for a file that is missing, truncated, damaged, of another kind, of a newer schema or not signed
    by a trusted key, and AotError for a device that is not there.
    """
    artifact = Artifact(source, strict=strict, device=device, trusted_keys=trusted_keys, weights=weights)
    for name in functions or ():
        artifact[name]
    return artifact


_joined: Any = None     # client of the service, number of processes, this one, where Gloo listens


def join(address: str, num_processes: int, process_id: int, timeout: int = 300, heartbeat_timeout: int = 100) -> None:
    """Run functions over several devices together with other processes; before `load`, returns when all are there.

    address: "host:port" where process 0 listens.  Each process has the same share of a function's processors, passes the same
    whole arguments, and makes the same calls in the same order.  A process ends within heartbeat_timeout seconds after another
    one died.  Raises AotError when called twice, or when processes are missing in time.
    """
    global _joined
    from jaxlib import _jax
    if _joined is not None or _xla.cache_info().currsize:
        raise AotError("join comes once, before anything is loaded", hint="call it first in the program")
    if not address.rpartition(":")[2].isdigit():
        raise AotError(f"address {address!r} has no port", hint="write host:port")
    service, bind = None, listening_address(address)
    meet(bind, address, num_processes, process_id, timeout)
    try:
        if process_id == 0:
            service = _jax.get_distributed_runtime_service(bind, num_processes, heartbeat_timeout=heartbeat_timeout,
                                                           cluster_register_timeout=timeout, shutdown_timeout=timeout)
        client = _jax.get_distributed_runtime_client(address, process_id, init_timeout=timeout, shutdown_timeout=timeout,
                                                     heartbeat_timeout=heartbeat_timeout, use_compression=True)
        client.connect()
    except (_jax.JaxRuntimeError, RuntimeError) as e:
        raise AotError(f"process {process_id} cannot join: {str(e).splitlines()[0]}", where=address,
                       hint="start all processes again") from None
    _joined = client, num_processes, process_id, loopback(address)
    atexit.register(_leave, client, service)


def loopback(address: str) -> str | None:
    """The host of an address, if all processes are on this one."""
    host = _host(address)[0]
    return host if host in ("127.0.0.1", "localhost", "::1") else None


def listening_address(address: str) -> str:
    """Where process 0 listens: on all interfaces, or only at its address if that is of this host alone."""
    return address if loopback(address) else "[::]:" + address.rpartition(":")[2]


def _host(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def meet(bind: str, address: str, count: int, me: int, timeout: int) -> None:
    """Return when all processes are there.  The service would abort the process where some are missing.

    Each sends its number to process 0 and waits for an answer.  Raises AotError saying who is missing."""
    import socket
    import time
    deadline = time.monotonic() + timeout
    hint = f"start all {count} processes with the same address, and see that its port is open"
    if me == 0:
        missing = _gather_numbers(bind, count, deadline)
        if missing:
            late = ", ".join(map(str, sorted(missing)))
            raise AotError(f"processes {late} did not come to {address} within {timeout} s", hint=hint)
        return
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(_host(address), max(deadline - time.monotonic(), 0.1)) as s:
                s.sendall(f"{me}\n".encode())
                if s.recv(2) == b"go":
                    return
        except OSError:
            pass
        time.sleep(0.1)
    raise AotError(f"process 0 did not answer at {address}, or other processes are missing, within {timeout} s", hint=hint)


def _gather_numbers(bind: str, count: int, deadline: float) -> set[int]:
    """Listen until every process has sent its number, and answer them -> the numbers that are missing."""
    import contextlib
    import socket
    import time
    host, port = _host(bind)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        server = socket.create_server((host, port), family=family, dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6())
    except OSError as e:
        raise AotError(f"process 0 cannot listen at {bind}: {e.strerror or e}", hint="choose a free port") from None
    there: dict[int, Any] = {}
    with server, contextlib.ExitStack() as stack:
        while len(there) < count - 1 and (left := deadline - time.monotonic()) > 0:
            server.settimeout(left)
            try:
                peer = stack.enter_context(server.accept()[0])
                peer.settimeout(5)
                there[int(peer.makefile().readline())] = peer
            except (OSError, ValueError):       # time is up, or something else knocked
                continue
        missing = set(range(1, count)) - set(there)
        for peer in there.values() if not missing else ():
            peer.sendall(b"go")
    return missing


def _leave(client: Any, service: Any) -> None:
    """Wait for the other processes, so that none sees another one vanish."""
    _xla.cache_clear()
    client.shutdown()
    if service is not None:
        service.shutdown()


def check(source: Any) -> dict[str, Any]:
    """What an artifact holds, from its directory and manifest alone: no checksum of a member is computed, no native
    code is loaded.

    {"file", "schema", "producer", "functions": {name: signature}, "fit": {name: [(target, why not or None)]},
    "signed_by": [public keys in hex, as the file claims]}.  Raises ArtifactError for what cannot be loaded.
    """
    artifact = Artifact(source)
    missing = [m for m in artifact.manifest["members"] if m not in artifact._members]
    if missing:
        raise ArtifactError(f"member {missing[0]!r} is missing", where=artifact.path, hint=_AGAIN)
    return {"file": artifact.path, "schema": artifact.manifest["schema"], "producer": artifact.manifest["producer"],
            "functions": {name: artifact.signature(name) for name in artifact}, "fit": artifact.fit(),
            "signed_by": [key for key, _ in artifact.signatures()]}


def key(seed: int) -> np.ndarray:
    """The random key of an integer seed, as the uint32[2] array that a `key<fry>[]` argument takes."""
    return np.array([(seed >> 32) & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)


# ---- the container: a zip of stored members ------------------------------------------------------------------------

_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_AGAIN = "copy it again, or build it again with `aot compile`"
_MOST_MEMBERS, _LARGEST_MANIFEST = 1 << 16, 1 << 28
_SYMLINK = 0xA000
_PIECE = 1 << 20         # bytes read at once: they stay in the processor's cache until they are hashed


def _open(source: Any) -> tuple[memoryview, str]:
    """The bytes of a path (mapped), of bytes, or of what a binary file still holds (mapped, if it is a file)."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return memoryview(source).toreadonly().cast("B"), "<bytes>"
    if not hasattr(source, "read"):
        path = os.fspath(source)
        return _map_file(path), path
    name = str(getattr(source, "name", "<file>"))
    try:
        if not source.tell():
            return memoryview(_Mapped(source.fileno())), name
    except (OSError, ValueError, AttributeError):
        pass
    data = source.read()
    if not isinstance(data, bytes):
        raise ArtifactError("the file is open for text", where=name, hint='open it with mode "rb"')
    return memoryview(data), name


class _Mapped(mmap.mmap):
    """A mapped file that keeps a descriptor of its own, to read from where that is faster than to touch the mapping."""
    descriptor: int | None

    def __new__(cls, descriptor: int) -> _Mapped:
        self = super().__new__(cls, descriptor, 0, access=mmap.ACCESS_READ)
        self.descriptor = os.dup(descriptor) if hasattr(os, "pread") else None
        return self

    def __del__(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)


def _map_file(path: str) -> memoryview:
    try:
        with open(path, "rb") as f:
            if not os.fstat(f.fileno()).st_size:
                raise ArtifactError("the file is empty", where=path, hint=_AGAIN)
            return memoryview(_Mapped(f.fileno()))
    except FileNotFoundError:
        raise ArtifactError("no such file", where=path, hint="artifacts are written by `aot compile`") from None
    except (OSError, ValueError) as e:
        raise ArtifactError(f"cannot be read: {getattr(e, 'strerror', None) or e}", where=path) from None


def _directory(buf: memoryview, path: str) -> tuple[int, int, int]:
    """(offset, end, number of entries) of the central directory, from the zip or zip64 end record at the file's end."""
    at = len(buf) - _END.size
    if at < 0 or buf[at:at + 4] != b"PK\5\6":
        if buf[:2] == b"PK":
            raise ArtifactError("truncated, or bytes follow its end", where=path, hint=_AGAIN)
        raise ArtifactError("not an .aot artifact (not a zip file)", where=path)
    _, disk, first, here, count, size, offset, comment = _END.unpack_from(buf, at)
    if at >= 20 and buf[at - 20:at - 16] == b"PK\6\7":
        at, = struct.unpack_from("<Q", buf, at - 12)
        sig, _, _, _, disk, first, here, count, size, offset = _END64.unpack_from(buf, at)
        if sig != b"PK\6\6":
            raise struct.error
    if disk or first or comment or here != count or offset + size != at or count * _CENTRAL.size > size:
        raise struct.error
    if count > _MOST_MEMBERS:
        raise ArtifactError(f"it claims to have {count} members", where=path, hint=_AGAIN)
    return offset, at, count


def _widen(extra: memoryview, values: list[int]) -> list[int]:
    """Replace the 0xFFFFFFFF among (size, compressed size, offset) by what the zip64 extra field says."""
    at = 0
    while at + 4 <= len(extra):
        tag, size = struct.unpack_from("<HH", extra, at)
        if tag == 1:
            wide = iter(struct.unpack_from(f"<{size // 8}Q", extra, at + 4))
            return [next(wide) if v == 0xFFFFFFFF else v for v in values]
        at += 4 + size
    return values


class _Member(NamedTuple):
    data: memoryview         # a view of the mapped file
    start: int               # where the data begins in the file
    crc: int


def _members(buf: memoryview, path: str) -> dict[str, _Member]:
    """Every member of the zip by name."""
    members: dict[str, _Member] = {}
    extents = []
    try:
        at, end, count = _directory(buf, path)
        start = at
        for _ in range(count):
            sig, _, _, flags, method, _, _, crc, packed, size, n, m, k, _, _, mode, offset = _CENTRAL.unpack_from(buf, at)
            name = bytes(buf[at + 46:at + 46 + n]).decode()
            size, packed, offset = _widen(buf[at + 46 + n:at + 46 + n + m], [size, packed, offset])
            at += 46 + n + m + k
            if sig != b"PK\1\2" or at > end:
                raise struct.error
            data = _data_offset(buf, name, offset, path)
            if why := _refusal(name, members, flags, method, packed, size, mode >> 16, data + size > start):
                raise ArtifactError(f"member {name!r} {why}", where=path, hint="build it again; do not repack artifacts")
            members[name] = _Member(buf[data:data + size], data, crc)
            extents.append((offset, data + size, name))
        if at != end:
            raise struct.error
    except (struct.error, UnicodeDecodeError, StopIteration, OverflowError):
        raise ArtifactError("damaged: its directory cannot be read", where=path, hint=_AGAIN) from None
    extents.sort()
    for (_, stop, first), (begin, _, second) in zip(extents, extents[1:]):
        if begin < stop:
            raise ArtifactError(f"members {first!r} and {second!r} overlap", where=path, hint=_AGAIN)
    return members


def _data_offset(buf: memoryview, name: str, offset: int, path: str) -> int:
    """Where a member's data begins; its local header must repeat its name."""
    sig, *_, n, m = _LOCAL.unpack_from(buf, offset) if offset + _LOCAL.size <= len(buf) else (b"", 0, 0)
    if sig != b"PK\3\4" or bytes(buf[offset + 30:offset + 30 + n]).decode("utf-8", "replace") != name:
        raise ArtifactError(f"damaged: member {name!r} has no header of its own", where=path, hint=_AGAIN)
    return offset + 30 + n + m


def _refusal(name: str, members: dict, flags: int, method: int, packed: int, size: int, mode: int, outside: bool) -> str:
    """Why a member is refused, or nothing."""
    if not name or "\\" in name or "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        return "has a name that is not a plain relative path"
    if name in members:
        return "is there twice"
    if method:
        return "is compressed"
    if flags & 1:
        return "is encrypted"
    if mode & 0xF000 == _SYMLINK:
        return "is a symbolic link"
    if packed != size or outside:
        return "reaches past its place in the file"
    return ""


# ---- the manifest --------------------------------------------------------------------------------------------------
#
# What a manifest must look like: a type; a tuple of values or types, any of them; [what each element is]; {...: what
# each value is}; a table of fields, where a name that ends in "?" may be missing and other fields are ignored.
# `int` is a whole number >= 0, `float` any number.  A pytree ("tree") has a check of its own.

ANY = object()
TREE = "tree"
ARRAY = {"shape": [int], "dtype": str}
ENTRY = {"name": str, **ARRAY, "data?": ARRAY, "donated?": bool, "sharding?": [[str]]}
EXECUTABLE = {"target": str, "member": str, "platform": str, "machine": str, "cpu_features": ([str], None), "jaxlib": str,
              "jaxlib_build": str, "xla_flags?": {...: ANY}, "device_kind?": str, "plugin?": str,
              "memory?": ({...: float}, None), "flops?": (float, None), "devices?": int,
              "collectives?": ({...: {"count": int, "bytes": int}}, None)}
FUNCTION = {"arguments": [{"name": str, "tree": TREE, "keyword?": bool}], "inputs": [ENTRY], "outputs": [ENTRY],
            "out_tree": TREE, "parameters": [(int, str)], "executables": [EXECUTABLE], "program?": str, "stablehlo?": str,
            "xla_flags?": {...: ANY}, "custom_calls?": [str], "golden?": str, "static?": {...: str}, "base?": str,
            "source?": {...: ANY}, "mesh?": [[(str, int)]], "unused_weights?": [str]}
MANIFEST = {"format": ("aot",), "schema": int, "producer": str, "toolchain": {...: str},
            "members": {...: {"size": int, "sha256": str, "chunks?": {"size": int, "sha256": [str]}}},
            "functions": {...: FUNCTION}, "external?": {"file": str, "arrays": {...: ARRAY}}, "created?": str,
            "provenance?": {...: ANY}}
_DEEPEST_TREE = 100


def _check_shape(value: Any, shape: Any, at: str) -> None:
    """Raise ValueError naming the first field that is not as the tables above say."""
    if shape is ANY:
        return
    if shape == TREE:
        count_leaves(value, at)
    elif isinstance(shape, tuple):
        if not any(_fits(value, s, at) for s in shape):
            raise ValueError(at)
    elif isinstance(shape, list):
        if type(value) is not list:
            raise ValueError(at)
        for i, v in enumerate(value):
            _check_shape(v, shape[0], f"{at}[{i}]")
    elif isinstance(shape, dict):
        _check_table(value, shape, at)
    elif shape is float and type(value) is int:
        return
    elif type(value) is not shape or shape is int and value < 0:
        raise ValueError(at)


def _fits(value: Any, shape: Any, at: str) -> bool:
    if shape is None or isinstance(shape, str):
        return value == shape
    try:
        _check_shape(value, shape, at)
    except ValueError:
        return False
    return True


def _check_table(value: Any, shape: dict, at: str) -> None:
    if type(value) is not dict:
        raise ValueError(at)
    if ... in shape:
        for k, v in value.items():
            _check_shape(v, shape[...], f"{at}[{k!r}]")
        return
    for k, s in shape.items():
        name = k.removesuffix("?")
        if name in value:
            _check_shape(value[name], s, f"{at}.{name}")
        elif name == k:
            raise ValueError(f"{at}.{k}")


def count_leaves(tree: Any, at: str = "", depth: int = 0) -> int:
    """Number of leaves of a TREE.  Raises ValueError for what is not one."""
    if tree is None or tree == "*":
        return tree == "*"
    if type(tree) is not dict or depth > _DEEPEST_TREE:
        raise ValueError(at)
    if "fields" in tree:
        if type(tree.get("namedtuple") or tree.get("node")) is not str:
            raise ValueError(at)
        children = tree["fields"]
    else:
        children = tree.get("tuple", tree.get("list", tree.get("dict")))
    if type(children) is not list:
        raise ValueError(at)
    if "fields" in tree or "dict" in tree:
        if any(type(c) is not list or len(c) != 2 or type(c[0]) is dict for c in children):
            raise ValueError(at)
        children = [c for _, c in children]
    return sum(count_leaves(c, at, depth + 1) for c in children)


def _check_meaning(manifest: dict, members: dict) -> None:
    """Raise ValueError where the parts of a manifest contradict each other or the file."""
    for name, entry in manifest["members"].items():
        if name in members and len(members[name].data) != entry["size"]:
            raise ValueError(f"members[{name!r}].size")
    for name, fn in manifest["functions"].items():
        at = f"functions[{name!r}]"
        if sum(count_leaves(a["tree"], at) for a in fn["arguments"]) != len(fn["inputs"]):
            raise ValueError(f"{at}.inputs")
        if count_leaves(fn["out_tree"], at) != len(fn["outputs"]):
            raise ValueError(f"{at}.outputs")
        if sorted(p for p in fn["parameters"] if type(p) is int) != list(range(len(fn["inputs"]))):
            raise ValueError(f"{at}.parameters")
        if any([type(v) for v in axis] != [str, int] or not axis[1] for axis in fn.get("mesh", ())):
            raise ValueError(f"{at}.mesh")
        for e in (*fn["inputs"], *fn["outputs"]):
            dtype_of(_physical(e)[1])
    file = manifest.get("external", {}).get("file", "")
    if os.path.basename(file) != file:
        raise ValueError("external.file")


def _manifest(members: dict[str, _Member], path: str) -> dict:
    """The parsed and checked manifest.  It lists the sha256 of every other member; its own check is the zip's CRC-32."""
    if "manifest.json" not in members:
        raise ArtifactError("not an .aot artifact (it has no manifest.json)", where=path)
    raw, _, crc = members["manifest.json"]
    if zlib.crc32(raw) != crc:
        raise ArtifactError("damaged: manifest.json does not match its checksum", where=path, hint=_AGAIN)
    try:
        if len(raw) > _LARGEST_MANIFEST:
            raise ValueError
        manifest = json.loads(bytes(raw))
        kind, schema = manifest["format"], int(manifest["schema"])
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        raise ArtifactError("not an .aot artifact (its manifest.json is something else)", where=path) from None
    if kind != "aot":
        raise ArtifactError(f"not an .aot artifact (format {kind!r})", where=path)
    if schema > SCHEMA:
        raise ArtifactError(f"written with manifest schema {schema}, this loader reads up to {SCHEMA}", where=path,
                            hint="upgrade the loader: pip install -U aotc")
    try:
        _check_shape(manifest, MANIFEST, "")
        _check_meaning(manifest, members)
    except (ValueError, TypeError, AttributeError, OverflowError) as e:
        raise ArtifactError(f"damaged: manifest.json: {str(e).lstrip('.')} is not what it must be", where=path,
                            hint=_AGAIN) from None
    return manifest


# ---- signatures ----------------------------------------------------------------------------------------------------
#
# The member signatures.json, which the manifest cannot list, is {"signatures": [{"key": .., "signature": ..}]}: Ed25519
# public keys and signatures, in hex, of SIGNED + the bytes of manifest.json, which has the sha256 of everything else.

SIGNED = b"aot manifest v1\n"


def _signatures(members: dict[str, _Member], path: str) -> list[tuple[str, bytes]]:
    """(public key in hex, signature) of each signature that the file claims to have."""
    if "signatures.json" not in members:
        return []
    try:
        return [(bytes.fromhex(e["key"]).hex(), bytes.fromhex(e["signature"]))
                for e in json.loads(bytes(members["signatures.json"].data))["signatures"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ArtifactError("damaged: member 'signatures.json' is not what it must be", where=path, hint=_AGAIN) from None


def public_key(source: Any) -> Any:
    """The Ed25519 public key of 64 hex digits, a PEM text, or the path of a PEM file.  Raises AotError."""
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError:
        raise AotError("signatures need the package `cryptography`", hint='pip install "aotc[sign]"') from None
    text = source.decode("ascii", "replace") if isinstance(source, bytes) else os.fspath(source)
    try:
        if len(text) == 64 and not os.path.exists(text):
            return Ed25519PublicKey.from_public_bytes(bytes.fromhex(text))
        if "-----BEGIN" not in text:
            with open(text, encoding="ascii") as f:
                text = f.read()
        key = load_pem_public_key(text.encode())
    except OSError as e:
        raise AotError(f"public key {text!r} cannot be read: {e.strerror}") from None
    except ValueError:
        raise AotError("this is not a public key", hint="give 64 hex digits or a PEM file with an Ed25519 public key") from None
    if not isinstance(key, Ed25519PublicKey):
        raise AotError("this public key is not an Ed25519 key", hint="`aot sign --new-key` makes one")
    return key


def _require_signature(signatures: list[tuple[str, bytes]], manifest: memoryview, trusted: Iterable[Any], path: str) -> str:
    """The trusted key, in hex, that signed the manifest.  Raises ArtifactError."""
    trusted = {k.public_bytes_raw().hex(): k for k in map(public_key, trusted)}
    for key, signature in signatures:
        if key in trusted:
            from cryptography.exceptions import InvalidSignature
            try:
                trusted[key].verify(signature, SIGNED + bytes(manifest))
                return key
            except InvalidSignature:
                raise ArtifactError(f"the signature of key {key[:16]}... is wrong: the file was changed after it was signed",
                                    where=path, hint="do not use it; get it again from its source") from None
    signers = ", ".join(k[:16] + "..." for k, _ in signatures)
    raise ArtifactError(f"signed by {signers}, which is not trusted" if signers else "it is not signed", where=path,
                        hint="sign it with `aot sign`, or add the signer's public key to the trusted ones")


def _sha256(data: memoryview) -> str:
    """hashlib costs 3 ms and 3.5 MB to import, more than the small members that most artifacts have."""
    if len(data) < 1 << 23 and "hashlib" not in sys.modules:
        try:
            if sys.version_info >= (3, 12):
                from _sha2 import sha256
            else:
                from _sha256 import sha256
            return sha256(data).hexdigest()
        except ImportError:
            pass
    import hashlib
    return hashlib.sha256(data).hexdigest()


def _is_whole(member: _Member, entry: dict, file: int | None) -> bool:
    """Whether a member is as its manifest entry says.  Large ones are hashed in chunks on all processors, and read from
    the open file, if there is one, not touched in the mapping: page faults in several threads make a disk slow."""
    chunks = entry.get("chunks")
    if chunks is None:
        return _sha256(member.data) == entry["sha256"]
    from concurrent.futures import ThreadPoolExecutor
    from hashlib import sha256
    size = max(chunks["size"], 1)

    def digest(at: int) -> str:
        part = member.data[at:at + size]
        if file is None:
            return _sha256(part)
        at, end, whole = member.start + at, member.start + at + len(part), sha256()
        while at < end and (piece := os.pread(file, min(end - at, _PIECE), at)):
            whole.update(piece)
            at += len(piece)
        return whole.hexdigest()

    starts = range(0, len(member.data), size)
    if len(starts) != len(chunks["sha256"]):
        return False
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return all(a == b for a, b in zip(pool.map(digest, starts), chunks["sha256"]))


# ---- dtypes and safetensors ----------------------------------------------------------------------------------------

_SHORT = {"float": "f", "bfloat": "bf", "uint": "u", "int": "i", "complex": "c"}
SAFETENSORS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64",
                "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16",
                "U8": "uint8", "BOOL": "bool", "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}


@cache
def dtype_of(name: str) -> np.dtype:
    """numpy's or ml_dtypes' dtype of this name."""
    try:
        dtype = np.dtype(name)
    except TypeError:
        import ml_dtypes
        dtype = np.dtype(getattr(ml_dtypes, name, object))
    if dtype.kind in "biufc" or dtype.num >= 256:      # numpy's own numbers, or those of ml_dtypes
        return dtype
    raise ValueError(f"dtype {name!r}")


def short(dtype: Any, shape: tuple | list) -> str:
    """`f32[784,512]`"""
    name = str(dtype)
    for long, short in _SHORT.items():
        if name.startswith(long) and name[len(long):len(long) + 1].isdigit():
            name = short + name[len(long):]
            break
    return f"{name}[{','.join(map(str, shape))}]"


def tensors(view: memoryview, where: str) -> dict[str, np.ndarray]:
    """The arrays of a member in safetensors layout, without copying.

    A tensor whose dtype safetensors does not have is stored as U8 with a last axis of its item size, and its dtype is
    in the metadata under `dtype:NAME`."""
    try:
        n, = struct.unpack_from("<Q", view, 0)
        header = json.loads(bytes(view[8:8 + n]))
        meta = header.pop("__metadata__", {})
        out = {}
        for name, entry in header.items():
            if name.startswith("__pad"):
                continue
            start, end = entry["data_offsets"]
            if not 0 <= start <= end <= len(view) - 8 - n:
                raise ValueError(f"{name!r} reaches past its end")
            a = np.frombuffer(view[8 + n + start:8 + n + end], dtype_of(SAFETENSORS[entry["dtype"]]))
            a = a.reshape(entry["shape"])
            if "dtype:" + name in meta:
                a = a.reshape(-1).view(dtype_of(meta["dtype:" + name])).reshape(entry["shape"][:-1])
            out[name] = a
        return out
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise ArtifactError(f"damaged: not in safetensors layout ({e})", where=where, hint=_AGAIN) from None


# ---- this host -----------------------------------------------------------------------------------------------------

_ISA = ("pni", "ssse3", "sse4", "avx", "fma", "f16c", "bmi", "abm", "movbe", "popcnt", "adx", "amx", "gfni", "vaes",
        "aes", "vpclmulqdq", "pclmulqdq", "sha_ni", "xop", "tbm", "cx16", "lahf_lm", "rdpid", "fsgsbase", "xsave")


def _cpu_features() -> list[str] | None:
    """The instruction set extensions of this CPU that a code generator may use, by their names in /proc/cpuinfo."""
    try:
        with open("/proc/cpuinfo") as f:
            for line in f:
                if line.startswith(("flags", "Features")):
                    flags = line.split(":")[1].split()
                    return sorted(x for x in flags if line[0] == "F" or x.startswith(_ISA))
    except OSError:
        pass
    return None


@cache
def host_info() -> dict[str, Any]:
    """What decides whether an executable may run here: platform, machine, CPU features, jaxlib and its build."""
    import jaxlib.version as v
    machine = os.uname().machine if hasattr(os, "uname") else os.environ.get("PROCESSOR_ARCHITECTURE", "")
    return {"platform": "cpu", "machine": machine, "cpu_features": _cpu_features(), "jaxlib": v.__version__,
            "jaxlib_build": getattr(v, "_git_hash", "")}


def misfit(exe: dict, device: str = "cpu") -> str | None:
    """Why this executable must not be tried on a device of this host, or None when it fits."""
    platform, host = device.partition(":")[0], host_info()
    if exe["platform"] != platform:
        return f"built for {exe['platform']}, this process runs on {platform}"
    if platform == "pjrt" and exe.get("plugin") != _plugin_identity(device):
        return "built by another plugin"
    if exe["machine"] and exe["machine"] != host["machine"]:
        return f"built for {exe['machine']}, this machine is {host['machine']}"
    if platform in ("cpu", "pjrt"):
        if exe["cpu_features"] is None or host["cpu_features"] is None:
            return "CPU features could not be read"
        if missing := [x for x in exe["cpu_features"] if x not in host["cpu_features"]]:
            return f"needs CPU features that this host lacks: {', '.join(missing)}"
    if (exe["jaxlib"], exe["jaxlib_build"]) != (host["jaxlib"], host["jaxlib_build"]) and platform != "pjrt":
        same = exe["jaxlib"] == host["jaxlib"]
        return f"built with jaxlib {exe['jaxlib']}, this is {'another build of it' if same else host['jaxlib']}"
    return None


@cache
def _plugin_identity(device: str) -> str:
    return _sha256(_map_file(device.partition(":")[2]))


# ---- PJRT plugins --------------------------------------------------------------------------------------------------

#: platform -> what to install, package, and shared library in it
PLUGINS = {"cuda": ("jax-cuda12-plugin", "jax_plugins.xla_cuda12", "xla_cuda_plugin.so"),
           "tpu": ("libtpu", "libtpu", "libtpu.so")}


@cache
def plugin_path(platform: str) -> str | None:
    """The shared library of a platform's plugin, found without importing its package, which would import jax."""
    from importlib.util import find_spec
    _, package, file = PLUGINS[platform]
    try:
        spec = find_spec(package)
    except ImportError:
        return None
    for folder in (spec and spec.submodule_search_locations) or ():
        if os.path.exists(path := os.path.join(folder, file)):
            return path
    return None


def _plugin_library(device: str) -> str:
    """The shared library of a device's plugin.  Raises AotError."""
    platform, _, rest = device.partition(":")
    if platform == "pjrt":
        if not os.path.isfile(rest):
            raise AotError("there is no such plugin", where=rest, hint="name the file of a PJRT plugin, with its folder")
        return os.path.abspath(rest)        # a name without a folder would be looked for among the system's libraries
    if platform not in PLUGINS:
        raise AotError(f"unknown device {device!r}", hint='there are "cpu", "cuda", "tpu" (each with ":N" for another one) and '
                                                          '"pjrt:/path/of/plugin.so"')
    found = plugin_path(platform)
    if found is None:
        raise AotError(f"there is no plugin for device {device!r}", hint=f"pip install {PLUGINS[platform][0]}")
    return found


_shared: dict[str, int] = {}     # the number of devices of the client that joined processes have in common


def _client(ext: Any, device: str, count: int = 1) -> Any:
    """The PJRT client of a device's platform.  Raises AotError where there is no plugin or it finds no device."""
    platform = device.partition(":")[0]
    if platform == "cpu":
        # Results are wanted at once, so a dispatch thread would only add latency.
        if count > 1 and _joined is not None:
            service, processes, me, host = _joined
            if count % processes:
                raise AotError(f"the function runs on {count} devices, which {processes} processes cannot share out",
                               hint="start a number of processes that divides it")
            if (first := _shared.setdefault("count", count)) != count:
                raise AotError(f"after one on {first} devices, a function on {count} cannot run in joined processes",
                               hint="load them in different processes, or compile them for meshes of one size")
            gloo = ext.make_gloo_tcp_collectives(service, hostname=host)
            return ext.get_tfrt_cpu_client(asynchronous=False, distributed_client=service, node_id=me, num_nodes=processes,
                                           collectives=gloo, num_devices=count // processes)
        return ext.get_tfrt_cpu_client(asynchronous=False, num_devices=count) if count > 1 else \
            ext.get_tfrt_cpu_client(asynchronous=False)
    library = _plugin_library(device)
    name = "pjrt_" + _plugin_identity(device)[:16] if platform == "pjrt" else platform
    if platform == "tpu":
        os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # without a TPU it would ask for one on the network for minutes
    try:
        if not ext.pjrt_plugin_loaded(name):
            ext.load_pjrt_plugin(name, library, c_api=None)
        if not ext.pjrt_plugin_initialized(name):
            ext.initialize_pjrt_plugin(name)
        return ext.get_c_api_client(name)
    except ext.JaxRuntimeError as e:
        raise AotError(f"device {device!r} cannot be used: {str(e).splitlines()[0]}", where=library) from None


# ---- XLA -----------------------------------------------------------------------------------------------------------

class _Aval:
    """What jaxlib wants to know of an array."""
    weak_type = False

    def __init__(self, shape, dtype): self.shape, self.dtype, self.ndim = tuple(shape), dtype, len(shape)


class _Xla:
    """A device, or several, and the handful of calls that running needs.  Only `_jax` and `_hlo` are imported, never MLIR;
    jaxlib's `xla_client` and every call that would make its C++ code `import jax` are avoided."""

    def __init__(self, device: str, count: int = 1):
        from jaxlib import _hlo, _jax
        self.ext, self.hlo, self.count = _jax, _hlo, count
        # Each execution leaves a traceback of 90 bytes that C++ may not free without the GIL: freed before the next one.
        self.collect_garbage = getattr(_jax, "collect_garbage", lambda: None)
        self.client = _client(_jax, device, count)
        self.on_host = self.client.platform == "cpu" and not device.startswith("pjrt")
        self.all = self._pick(device)
        own = self.client.process_index()
        self.mine = [i for i, d in enumerate(self.all) if d.process_index == own]
        self.device, self.devices = self.all[self.mine[0]], _jax.DeviceList(self.all)
        self.trees = _jax.pytree.PyTreeRegistry()
        self.trees.register_node(OrderedDict, lambda d: (tuple(d.values()), tuple(d)),
                                 lambda keys, values: OrderedDict(zip(keys, values)))
        replicated = _hlo.HloSharding.replicate()

        class Sharding(_jax.SingleDeviceSharding):  # class attributes: jax, if imported, puts properties on the base
            memory_kind = None
            num_devices = 1
            _internal_device_list = self.devices
            def _to_xla_hlo_sharding(self, ndim): return replicated

        self.sharding = Sharding(self.device)

    def _pick(self, device: str) -> tuple:
        """The devices from the number on that `cuda:1` names, by default the first ones."""
        found, number = self.client.local_devices(), device.partition(":")[2]
        if self.on_host and self.count > 1 and _joined is not None:
            found = sorted(self.client.devices(), key=lambda d: d.id)
        number = "0" if device.startswith("pjrt") else number or "0"
        if not number.isdigit() or int(number) >= len(found):
            raise AotError(f"there is no device {device!r}: this process has {len(found)}",
                           hint=f'"{device.partition(":")[0]}:0" is the first')
        if int(number) + self.count > len(found):
            raise AotError(f"the function runs on {self.count} devices, this process has {len(found) - int(number)} from "
                           f"{device!r} on", hint="load it on a machine with more, or compile it for a smaller mesh")
        return tuple(found[int(number):int(number) + self.count])

    def put(self, aval: _Aval, x: np.ndarray) -> Any:
        """Host array -> buffer, sharing the memory where it is aligned."""
        return self.ext.batched_device_put(aval, self.sharding, [x], [self.device], enable_x64=True)

    def handler(self, aval: _Aval, sharding: Any = None) -> Any:
        try:
            return self.ext.array_result_handler(aval, sharding or self.sharding, True, True)
        except TypeError:  # jaxlib 0.12 dropped the last argument
            return self.ext.array_result_handler(aval, sharding or self.sharding, True)

    def options(self, flags: dict) -> Any:
        options = self.ext.CompileOptions()
        options.env_option_overrides = list(flags.items())
        if self.count > 1:
            options.num_partitions, options.num_replicas = self.count, 1
            build = options.executable_build_options
            build.use_spmd_partitioning = build.use_shardy_partitioner = True
            ids = np.array([d.id for d in self.all]).reshape(1, self.count)
            options.device_assignment = self.ext.DeviceAssignment.create(ids)
        return options

    def deserialize(self, blob: memoryview, flags: dict) -> Any:
        return self.client.deserialize_executable(bytes(blob), self.devices, self.options(flags))

    def compile(self, program: memoryview, flags: dict) -> Any:
        return self.client.compile_and_load(bytes(program), self.devices, self.options(flags))


_xla = cache(_Xla)


class _Spread:
    """How an array lies on several devices, as a compiled program wants it or leaves it: its parts in, its parts out."""

    def __init__(self, xla: _Xla, aval: _Aval, proto: Any):
        self.xla, self.aval = xla, aval
        hlo = xla.hlo.HloSharding.from_proto(proto)
        whole = tuple(slice(None) for _ in aval.shape)
        self.index = [whole] * xla.count if hlo.is_replicated() else self._tiles(hlo)
        own = [self.index[i] for i in xla.mine]
        self.parts = {repr(index): (i, index) for i, index in reversed([*enumerate(own)])}    # one of our devices for each part
        self.whole = len(self.parts) == len({*map(repr, self.index)})

        class Sharding(xla.ext.Sharding):
            memory_kind = None
            num_devices = xla.count
            _internal_device_list = xla.devices
            def _to_xla_hlo_sharding(self, ndim): return hlo

        self.sharding = Sharding()
        self.key = repr(self.index)

    def _tiles(self, hlo: Any) -> list[tuple[slice, ...]]:
        """The part that each device holds."""
        dims = list(hlo.tile_assignment_dimensions())[:self.aval.ndim]
        order = np.asarray(list(hlo.tile_assignment_devices())).reshape(*dims, -1)
        sizes = [n // d for n, d in zip(self.aval.shape, dims)]
        index: list = [None] * self.xla.count
        for *at, copy in np.ndindex(*order.shape):
            index[order[(*at, copy)]] = tuple(slice(i * n, (i + 1) * n) for i, n in zip(at, sizes))
        return index

    def put(self, x: np.ndarray) -> Any:
        own = [self.index[i] for i in self.xla.mine]
        shards = [np.ascontiguousarray(x[i]) if i else x for i in own]
        devices = [self.xla.all[i] for i in self.xla.mine]
        return self.xla.ext.batched_device_put(self.aval, self.sharding, shards, devices, enable_x64=True)

    def handler(self) -> Any: return self.xla.handler(self.aval, self.sharding)

    def read(self, buffer: Any) -> np.ndarray:
        arrays, out = _without_jax(lambda: buffer._arrays), np.empty(self.aval.shape, self.aval.dtype)
        for i, index in self.parts.values():
            out[index] = _reader(_Aval(out[index].shape, out.dtype), self.xla.on_host)(arrays[i])
        return out


# ---- calls dispatched in C++ ---------------------------------------------------------------------------------------
#
# jaxlib's call cache takes numpy arrays to an executable without Python in between.  It has settings for a whole process,
# which belong to jax, or to the compiler, where one of them is loaded: there, and for unusual arguments, Python does it.

_Call = namedtuple("_Call", "xla_executable out_pytree_def in_shardings out_shardings out_avals out_committed "
                            "kept_var_bitvec in_device_local_layouts const_args")


def _settings_are_free() -> bool: return "jax" not in _modules and "aot" not in _modules


class _Unique:
    """A cache key equal only to itself."""


@cache
def _call_cache(ext: Any) -> Any:
    """The cache of calls.  C++ wants three settings to be there."""
    make = ext.config.Config
    ext.jax_jit.set_enable_x64_state(make("aot_runtime_enable_x64", True))
    ext.jax_jit.set_disable_jit_state(make("aot_runtime_disable_jit", False))
    ext.jax_jit.set_post_hook_state(make("aot_runtime_post_hook", None))
    return ext.PjitFunctionCache(capacity=4096)


def _quick_call(f: Function) -> Any:
    """A C++ function of numpy arrays of exactly the right types, to a tuple of buffers.  Raises TypeError for others.

    None for types that are packed on the device, and where weights are not the first parameters."""
    n, own = len(f._buffers), len(f._slots)
    if not _settings_are_free():
        return None
    packed = any(e.dtype.kind == "V" and e.dtype.itemsize == 1 for e in (*f._inputs, *f._outputs))
    if packed or f._slots != list(range(n - own, n)):
        return None
    x, weights = f._xla, f._buffers[:n - own]

    def miss(*leaves):
        for a, (dtype, shape) in zip(leaves, f._checks, strict=True):
            if type(a) is not np.ndarray or a.dtype != dtype or a.shape != shape:
                raise TypeError
        outs = tuple(f._execute([*weights, *map(x.put, f._inputs, leaves)]))
        tree = x.trees.flatten(tuple(range(len(outs))))[1]
        call = _Call(f._executable, tree, [x.sharding] * n, [x.sharding] * len(outs), f._outputs, [True] * len(outs),
                     [True] * n, [None] * n, weights)
        return outs, call, False

    def refuse(*_): raise TypeError
    return x.ext.pjit(f.name, None, miss, [], [], _Unique(), x.trees, refuse, _call_cache(x.ext))


@cache
def _register_lapack() -> None:
    """Make jaxlib's LAPACK kernels callable; without `initialize` calling one would crash the process."""
    from jaxlib import lapack
    lapack._lapack.initialize()  # type: ignore[attr-defined]
    for platform, rows in lapack.registrations().items():
        for name, fn, version in rows:
            _xla("cpu").ext.register_custom_call_target(name, fn, platform=platform, api_version=version)


class _Memory:
    """A result's memory for `numpy.asarray`, which keeps this object, and so the buffer, alive."""
    __slots__ = ("__array_interface__", "buffer")

    def __init__(self, buffer, shape, typestr):
        self.buffer = buffer
        buffer.block_until_ready()  # XLA may still be computing on its own threads
        self.__array_interface__ = {"data": (buffer.unsafe_buffer_pointer(), False), "shape": shape,
                                    "typestr": typestr, "version": 3}


def _copy_out(buffer: Any) -> np.ndarray:
    """For types that are packed on the device (int4, ...), and devices with memory of their own.

    """
    return _without_jax(buffer._single_device_array_to_np_array_did_copy)[0]


def _without_jax(f: Callable) -> Any:
    """f(), where C++ would try `import jax`: refuse it."""
    if "jax" in sys.modules:
        return f()
    sys.modules["jax"] = None  # type: ignore[assignment]
    try:
        return f()
    finally:
        del sys.modules["jax"]


_SMALL = 1 << 16


def _reader(aval: _Aval, on_host: bool = True) -> Any:
    """buffer -> writable numpy array: a copy of a small one, otherwise over the buffer's own memory if that is the host's."""
    shape, dtype = aval.shape, aval.dtype
    if 0 in shape:
        return lambda buffer: np.empty(shape, dtype)
    if not on_host or any(kind in dtype.name for kind in ("int4", "int2", "float4")):
        return lambda buffer: np.array(_copy_out(buffer))
    typestr, native = dtype.str, dtype.kind in "biufc"
    if native and dtype.itemsize * prod(shape) <= _SMALL:
        return lambda buffer: np.ndarray(shape, dtype, buffer).copy()   # less work than to keep the buffer alive

    def read(buffer):
        a = np.asarray(_Memory(buffer, shape, typestr))
        return a if native else a.view(dtype)
    return read


# ---- pytrees -------------------------------------------------------------------------------------------------------
#
# In the manifest: "*" is a leaf, null is None, {"tuple": [..]}, {"list": [..]}, {"dict": [[key, tree], ..]} (with
# "ordered": true for an OrderedDict), {"namedtuple": NAME, "fields": [[field, tree], ..]}, and for classes known only
# where the artifact was built {"node": NAME, "fields": [[attribute, tree], ..]}.

@cache
def _record(name: str, fields: tuple) -> type:
    return namedtuple(name, fields, rename=True)


def _key(k: Any) -> Any:
    return tuple(map(_key, k)) if isinstance(k, list) else k


def _skeleton(tree: Any) -> Any:
    """An object of this structure with 0 at every leaf.  Classes that only the builder had become named tuples."""
    if tree is None or tree == "*":
        return tree and 0
    if "tuple" in tree:
        return tuple(map(_skeleton, tree["tuple"]))
    if "list" in tree:
        return list(map(_skeleton, tree["list"]))
    if "dict" in tree:
        return (OrderedDict if tree.get("ordered") else dict)((_key(k), _skeleton(t)) for k, t in tree["dict"])
    fields = tuple(str(k) for k, _ in tree["fields"])
    return _record(tree.get("namedtuple") or tree["node"], fields)(*(_skeleton(t) for _, t in tree["fields"]))


def collect(tree: Any, x: Any, at: str, out: list) -> None:
    """Append the leaves of x, which must have this structure.  `at` names x in errors."""
    if tree == "*":
        out.append(x)
    elif tree is None:
        if x is not None:
            raise InputError(f"expected None, got {type(x).__name__}", where=at)
    elif "fields" in tree:
        _collect_fields(tree, x, at, out)
    elif "dict" in tree:
        _collect_dict(tree, x, at, out)
    else:
        kind, children = next(iter(tree.items()))
        if not isinstance(x, (list, tuple)) or (kind == "list") != isinstance(x, list):
            raise InputError(f"expected a {kind} of {len(children)}, got {type(x).__name__}", where=at)
        if len(x) != len(children):
            raise InputError(f"expected a {kind} of {len(children)}, got {len(x)} elements", where=at)
        for i, (t, v) in enumerate(zip(children, x)):
            collect(t, v, f"{at}[{i}]", out)


def _collect_dict(tree: dict, x: Any, at: str, out: list) -> None:
    keys = [_key(k) for k, _ in tree["dict"]]
    if not isinstance(x, Mapping):
        raise InputError(f"expected a dict with keys {_names(keys)}, got {type(x).__name__}", where=at)
    if set(x) != set(keys):
        missing, extra = [k for k in keys if k not in x], [k for k in x if k not in keys]
        raise InputError(" and ".join([f"missing key {_names(missing)}"] * bool(missing)
                                      + [f"unexpected key {_names(extra)}"] * bool(extra)), where=at)
    for k, (_, t) in zip(keys, tree["dict"]):
        collect(t, x[k], f"{at}[{k!r}]", out)


def _collect_fields(tree: dict, x: Any, at: str, out: list) -> None:
    """Named tuples and the builder's own classes: anything with these attributes, or a dict with these keys.  Children
    that have numbers for names are also those of a list or tuple."""
    fields, name = [k for k, _ in tree["fields"]], tree.get("namedtuple") or tree["node"]
    numbered = isinstance(x, (list, tuple)) and fields == [*range(len(x))]
    indexed = numbered or isinstance(x, Mapping)
    if not (numbered or all(map(x.__contains__ if indexed else lambda k: hasattr(x, str(k)), fields))):
        raise InputError(f"expected a {name} with {_names(fields)}, got {type(x).__name__}", where=at)
    for k, t in tree["fields"]:
        collect(t, x[k] if indexed else getattr(x, str(k)), f"{at}.{k}", out)


def _names(keys: list) -> str:
    return ", ".join(map(repr, keys))


# ---- artifacts and functions ---------------------------------------------------------------------------------------

class Artifact:
    """An open artifact: a mapping from function names to Functions.

    Attributes: path, manifest (the parsed manifest.json), strict, device, signer (the trusted key in hex, if asked for).
    """

    def __init__(self, source: Any, *, strict: bool = False, device: str = "cpu", trusted_keys: Iterable[Any] | None = None,
                 weights: str | os.PathLike | None = None):
        buf, self.path = _open(source)
        self.strict, self.device, self._external = strict, device, weights
        self._file = buf.obj.descriptor if isinstance(buf.obj, _Mapped) and not isinstance(source, memoryview) else None
        self._members = _members(buf, self.path)
        self.manifest = _manifest(self._members, self.path)
        self.signer = None if trusted_keys is None else _require_signature(
            self.signatures(), self.member("manifest.json"), trusted_keys, self.path)
        if weights is not None and "external" not in self.manifest:
            raise AotError("its weights are not in a separate file, so others cannot be given", where=self.path)
        self._functions: dict[str, Function | Buckets] = {}
        self._verified: set[str] = set()
        self._weights: dict[str, np.ndarray] | None = None
        self._on_device: dict[tuple, Any] = {}
        self._lock = threading.RLock()

    def signatures(self) -> list[tuple[str, bytes]]:
        """(public key in hex, signature) of each signature that the file claims to have; not verified."""
        return _signatures(self._members, self.path)

    def keys(self) -> list[str]: return list(self.manifest["functions"])

    def __iter__(self): return iter(self.keys())

    def __len__(self) -> int: return len(self.manifest["functions"])

    def __contains__(self, name: str) -> bool: return name in self.manifest["functions"]

    def __repr__(self) -> str: return f"<aot_runtime.Artifact {self.path}: {', '.join(self.keys())}>"

    def __getitem__(self, name: str) -> Any:
        """The function, its members verified and its executable ready, or the Buckets of a function that was compiled
        for several sizes.  Raises AotError when there is none."""
        with self._lock:
            if name not in self._functions:
                if name not in self and (sizes := self._sizes(name)):
                    self._functions[name] = Buckets(name, [self[k] for k in sizes])
                    return self._functions[name]
                if name not in self:
                    raise AotError(f"no function {name!r}", where=self.path, hint=f"it has: {', '.join(self.keys())}")
                self._functions[name] = Function(self, name)
            return self._functions[name]

    def _sizes(self, base: str) -> list[str]:
        """The functions that are `base` compiled for several signatures."""
        return [k for k, f in self.manifest["functions"].items() if f.get("base") == base]

    def member(self, name: str) -> memoryview:
        """The bytes of a member, checked against the sha256 in the manifest (once)."""
        if name == "manifest.json":
            return self._members[name].data
        entry = self.manifest["members"].get(name)
        if entry is None or name not in self._members:
            raise ArtifactError(f"member {name!r} is missing", where=self.path, hint=_AGAIN)
        member = self._members[name]
        if name not in self._verified:
            try:
                whole = len(member.data) == entry["size"] and _is_whole(member, entry, self._file)
            except OSError as e:
                raise ArtifactError(f"{name} cannot be read: {e.strerror}", where=self.path) from None
            if not whole:
                raise ArtifactError(f"damaged: {name} does not match its sha256", where=self.path, hint=_AGAIN)
            self._verified.add(name)
        return member.data

    def verify(self) -> None:
        """Check every member.  Raises AotError naming the first damaged or missing one."""
        for name in self.manifest["members"]:
            self.member(name)

    def weights(self) -> dict[str, np.ndarray]:
        """The stored arrays by name: read-only views of the mapped file."""
        if self._weights is None:
            stored = "weights" in self.manifest["members"]
            inside = tensors(self.member("weights"), f"{self.path}: weights") if stored else {}
            self._weights = {**inside, **self._separate()}
        return self._weights

    def swap_weights(self, weights: str | os.PathLike | Mapping[str, Any]) -> None:
        """Replace stored arrays, all or some, by those of a safetensors file or a mapping: same names, shapes, dtypes.

        Names of arrays that were given at build time, and that no function uses, are passed over.
        Functions that are loaded take the new ones from the next call on; a call that runs keeps those it began with.
        Raises ArtifactError naming the first array that does not fit; then nothing is replaced."""
        where = "swap_weights" if isinstance(weights, Mapping) else os.fspath(weights)
        new = weights if isinstance(weights, Mapping) else tensors(_map_file(where), where)
        with self._lock:
            old = self.weights()
            unused = {k for f in self.manifest["functions"].values() for k in f.get("unused_weights", ())}
            if unknown := [k for k in new if k not in old and k not in unused]:
                raise ArtifactError(f"there is no weight {unknown[0]!r}", where=where, hint=f"there are: {_names(list(old))}")
            fresh = {k: np.array(v) if new is weights else v for k, v in new.items() if k in old}   # its own may change
            for k, a in fresh.items():
                _require_type(k, a, {"shape": list(old[k].shape), "dtype": old[k].dtype.name}, where)
            self._weights = {**old, **fresh}
            self._on_device = {k: b for k, b in self._on_device.items() if k[0] not in fresh}
            for f in self._functions.values():
                if isinstance(f, Function):
                    f.refresh()

    def on_device(self, name: str, xla: _Xla, spread: _Spread | None = None) -> Any:
        """The buffer of a stored array, one for all functions that want it on the same devices."""
        key = name, xla.count, spread and spread.key
        with self._lock:
            if key not in self._on_device:
                w = self.weights().get(name)
                if w is None:
                    raise ArtifactError(f"weight {name!r} is missing", where=self.path, hint=_AGAIN)
                self._on_device[key] = spread.put(w) if spread else xla.put(_Aval(w.shape, w.dtype), w)
            return self._on_device[key]

    def _separate(self) -> dict[str, np.ndarray]:
        """The weights in a file of their own, which must have the types that the programs take."""
        entry = self.manifest.get("external")
        if entry is None:
            return {}
        path = os.fspath(self._external or os.path.join(os.path.dirname(self.path), entry["file"]))
        arrays = tensors(_map_file(path), path)
        for name, want in entry["arrays"].items():
            _require_type(name, arrays.get(name), want, path)
        return {name: arrays[name] for name in entry["arrays"]}

    def golden(self, name: str) -> tuple[list[np.ndarray], list[np.ndarray]] | None:
        """(inputs, outputs) in flat order that were recorded at build time, or None."""
        member = self.manifest["functions"][name].get("golden")
        if member is None:
            return None
        arrays = tensors(self.member(member), f"{self.path}: {member}")
        return tuple([arrays[f"{side}.{i}"] for i in range(sum(k.startswith(side + ".") for k in arrays))]
                     for side in ("in", "out"))  # type: ignore[return-value]

    def signature(self, name: str) -> str:
        """`predict(params, x) -> f32[32,10]`"""
        return name + _signature(self.manifest["functions"][name])

    def fit(self) -> dict[str, list[tuple[str, str | None]]]:
        """For every function, (target, why it cannot run here or None) of each of its executables."""
        return {name: [(exe["target"], misfit(exe, self.device)) for exe in spec["executables"]]
                for name, spec in self.manifest["functions"].items()}

    def explain(self) -> str:
        """For every function, each executable with the reason why it can or cannot run here, and what would run."""
        lines = [f"{self.path}: schema {self.manifest['schema']}, written by {self.manifest['producer']}"]
        for name, executables in self.fit().items():
            lines.append(self.signature(name))
            first = next((target for target, why in executables if why is None), None)
            for target, why in executables:
                lines.append(f"  {target}: {why or 'fits this host'}{': used' if target == first else ''}")
            if first is None and "program" in self.manifest["functions"][name]:
                refused = "refused under strict=True" if self.strict else "compiled here when the function is loaded"
                lines.append(f"  stablehlo: {refused}")
        return "\n".join(lines)


def _require_type(name: str, a: np.ndarray | None, want: dict, where: str) -> None:
    if a is None or (a.dtype.name, list(a.shape)) != (want["dtype"], want["shape"]):
        got = "it is missing" if a is None else f"got {short(a.dtype, a.shape)}"
        raise ArtifactError(f"weight {name!r}: expected {short(want['dtype'], want['shape'])}, {got}", where=where)


@cache
def _pool() -> Any:
    from concurrent.futures import ThreadPoolExecutor
    return ThreadPoolExecutor(os.cpu_count(), "aot_runtime")


class Function:
    """One function of an artifact, ready to be called with arrays.

    Attributes: name, signature (text), target ("cpu", ... or "stablehlo" when it was compiled here), reasons (why
    executables were passed over).
    """

    def __init__(self, artifact: Artifact, name: str):
        self.name, self.artifact = name, artifact
        self.spec = spec = artifact.manifest["functions"][name]
        self.signature = artifact.signature(name)
        self.reasons: list[str] = []
        self._executable = self._choose(spec)
        x = self._xla
        self._inputs = [_Aval(*_physical(e)) for e in spec["inputs"]]
        self._checks = [(a.dtype, a.shape) for a in self._inputs]
        self._outputs = [_Aval(*_physical(e)) for e in spec["outputs"]]
        self._handlers = [x.handler(a) for a in self._outputs]
        self._read = [_reader(a, x.on_host) for a in self._outputs]
        self._spread: list[_Spread] | None = None
        if x.count > 1:
            self._spread_out()
        self._slots = [spec["parameters"].index(i) for i in range(len(spec["inputs"]))]
        self.refresh()
        self._flat = all(a["tree"] == "*" for a in spec["arguments"])
        self._single = spec["out_tree"] == "*"
        self._positional = sum(not a.get("keyword") for a in spec["arguments"])
        self._simple = self._positional if self._positional == len(spec["arguments"]) else -1
        self._in_tree = x.trees.flatten([_skeleton(a["tree"]) for a in spec["arguments"]])[1]
        self._out_tree = x.trees.flatten(_skeleton(spec["out_tree"]))[1]

    def __repr__(self) -> str: return f"<aot_runtime.Function {self.signature} on {self.target}>"

    def _spread_out(self) -> None:
        """Take the layouts of arguments and results from the program over several devices."""
        x, weights, exe = self._xla, self.artifact.weights(), self._executable
        avals = [self._inputs[p] if type(p) is int else _Aval(weights[p].shape, weights[p].dtype)
                 for p in self.spec["parameters"]]
        self._spread = [_Spread(x, a, proto) for a, proto in zip(avals, exe.get_parameter_shardings(), strict=True)]
        outs = [_Spread(x, a, proto) for a, proto in zip(self._outputs, exe.get_output_shardings(), strict=True)]
        if split := [e["name"] for e, s in zip(self.spec["outputs"], outs) if not s.whole]:
            raise AotError(f"this process would have only parts of {', '.join(split)}", where=self.signature,
                           hint=f"compile it with whole results: --out-sharding '{split[0]}=-'")
        self._handlers, self._read = [s.handler() for s in outs], [s.read for s in outs]

    def _choose(self, spec: dict) -> Any:
        for call in spec.get("custom_calls", ()):
            if call.startswith("lapack_"):
                _register_lapack()
        self._xla = x = _xla(self.artifact.device, prod(n for _, n in spec.get("mesh", ())))
        for exe in spec["executables"]:
            why = misfit(exe, self.artifact.device)
            if why is None:
                blob = self.artifact.member(exe["member"])
                try:
                    executable, self.target = x.deserialize(blob, exe.get("xla_flags", {})), exe["target"]
                    return executable
                except x.ext.JaxRuntimeError as e:
                    why = f"rejected by XLA: {str(e).splitlines()[0]}"
            self.reasons.append(f"{exe['target']}: {why}")
        return self._compile(spec)

    def _compile(self, spec: dict) -> Any:
        where, why = f"{self.artifact.path}: {self.name}", "; ".join(self.reasons) or "it holds no executable"
        if self.artifact.strict or "program" not in spec:
            raise AotError(f"no executable for this host ({why})", where=where,
                           hint="build one on this kind of host, or load without strict=True to compile its StableHLO")
        import logging
        logging.getLogger("aot_runtime").warning("%s: compiling its StableHLO for this host (%s)", where, why)
        self.target = "stablehlo"
        try:
            return self._xla.compile(self.artifact.member(spec["program"]), spec.get("xla_flags", {}))
        except self._xla.ext.JaxRuntimeError as e:
            raise AotError(f"its StableHLO program does not compile here: {str(e).splitlines()[0]}",
                           where=where) from None

    def refresh(self) -> None:
        """Take the artifact's weights, from the next call on."""
        parameters, spread = self.spec["parameters"], self._spread or [None] * len(self.spec["parameters"])
        self._buffers = [self.artifact.on_device(p, self._xla, s) if isinstance(p, str) else None
                         for p, s in zip(parameters, spread)]
        self._quick = _quick_call(self) if self._spread is None else None
        self._put = [partial(self._xla.put, a) for a in self._inputs] if self._spread is None else [
            self._spread[slot].put for slot in self._slots]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on numpy arrays, Python scalars, or anything that `numpy.asarray` takes without copying (dlpack).

        Returns numpy arrays in the function's output structure; they own the result buffers and are writable.
        Raises InputError naming the argument that does not fit.
        """
        if not kwargs and self._quick is not None and _settings_are_free():
            try:
                outs = self._quick(*(args if self._flat else self._leaves([*args])))
                return self._read[0](outs[0]) if self._single else self._results(outs)
            except (TypeError, ValueError):     # unusual arguments, or wrong ones: below
                pass
        values = [*args] if not kwargs and len(args) == self._simple else self._by_name(args, kwargs)
        return self._out_tree.unflatten(self.call_flat(self._leaves(values)))

    def _leaves(self, values: list) -> list:
        leaves, tree = self._xla.trees.flatten(values)
        if tree != self._in_tree:
            leaves = []
            for a, v in zip(self.spec["arguments"], values, strict=True):
                collect(a["tree"], v, a["name"], leaves)
        return leaves

    def _results(self, buffers: Iterable) -> Any:
        return self._out_tree.unflatten([read(b) for read, b in zip(self._read, buffers)])

    def submit(self, *args: Any, **kwargs: Any) -> Future:
        """Run on a thread of a pool, as many as there are processors: a `concurrent.futures.Future` of the result."""
        return _pool().submit(self, *args, **kwargs)

    def call_flat(self, leaves: list) -> list[np.ndarray]:
        """Run on the flat list of inputs; returns the flat list of outputs."""
        buffers, i = self._buffers.copy(), 0
        rows = zip(leaves, self._checks, self._inputs, self._slots, self._put, strict=True)
        for leaf, (dtype, shape), aval, slot, put in rows:
            if type(leaf) is not np.ndarray or leaf.dtype != dtype or leaf.shape != shape:
                leaf = _coerce(leaf, self.spec["inputs"][i], aval)
            buffers[slot] = put(leaf)
            i += 1
        return [read(r) for read, r in zip(self._read, self._execute(buffers))]

    def _execute(self, buffers: list) -> list:
        self._xla.collect_garbage()
        return self._executable.execute_sharded(buffers).consume_with_handlers(self._handlers)

    def _by_name(self, args: tuple, kwargs: dict) -> list:
        names = [a["name"] for a in self.spec["arguments"]]
        if len(args) > self._positional:
            raise InputError(f"takes {self._positional} positional arguments, got {len(args)}", where=self.signature)
        values = dict(zip(names, args))
        for k, v in kwargs.items():
            if k not in names or k in values:
                what = "got two values for" if k in values else "unexpected"
                raise InputError(f"{what} argument {k!r}", where=self.signature)
            values[k] = v
        if missing := [n for n in names if n not in values]:
            raise InputError(f"missing argument {_names(missing)}", where=self.signature)
        return [values[n] for n in names]


class Buckets:
    """One function compiled for several sizes of some dimension, such as a batch: calls take any size up to the largest.

    The dimensions are those in which the signatures differ; all of them have the same size in one signature.  Inputs are
    padded with zeros to the next size, results are cut to the size that was given.  So rows must not depend on each other:
    a mean over the batch would count the zeros.

    Attributes: name, functions (by ascending size), sizes.
    """

    def __init__(self, name: str, functions: list[Function]):
        self.name = name
        try:
            self._axes, sizes = _varying(functions, "inputs")
            self._out_axes, _ = _varying(functions, "outputs")
        except ValueError:
            names = ", ".join(f.name for f in functions)
            raise AotError(f"the signatures of {name} ({names}) differ in more than one size",
                           where=functions[0].artifact.path, hint=f"look up {functions[0].name!r} or another") from None
        pairs = sorted(zip(sizes, functions), key=lambda pair: pair[0])
        self.sizes, self.functions = [n for n, _ in pairs], [f for _, f in pairs]

    def __repr__(self) -> str: return f"<aot_runtime.Buckets {self.name} for sizes {', '.join(map(str, self.sizes))}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Like a Function, with inputs of any size up to the largest.  Raises InputError."""
        largest = self.functions[-1]
        values = largest._by_name(args, kwargs)
        leaves: list[Any] = []
        for a, v in zip(largest.spec["arguments"], values):
            collect(a["tree"], v, a["name"], leaves)
        leaves = [np.asarray(x) if axes else x for x, axes in zip(leaves, self._axes)]
        size = self._size(leaves)
        padded, f = next((n, f) for n, f in zip(self.sizes, self.functions) if n >= size)
        results = f.call_flat([_resize(x, axes, padded) for x, axes in zip(leaves, self._axes)])
        return f._out_tree.unflatten([_cut(y, axes, size) for y, axes in zip(results, self._out_axes)])

    def _size(self, leaves: list) -> int:
        size = None
        for x, axes, e in zip(leaves, self._axes, self.functions[-1].spec["inputs"]):
            for i in axes:
                if x.ndim != len(_physical(e)[0]) or size not in (None, x.shape[i]) or x.shape[i] > self.sizes[-1]:
                    expected = short(e["dtype"], e["shape"])
                    raise InputError(f"expected {expected} or a smaller size, the same for all inputs, got "
                                     f"{short(x.dtype.name, x.shape)}", where=e["name"])
                size = x.shape[i]
        return size or 0


def _varying(functions: list[Function], side: str) -> tuple[list[tuple[int, ...]], list[int]]:
    """(for each input or output, the axes in which its shapes differ; the size of those axes in each function).

    Raises ValueError where the functions differ in anything else."""
    trees = [[f.spec["out_tree"], *(a["tree"] for a in f.spec["arguments"])] for f in functions]
    signatures = [[_physical(e) for e in f.spec[side]] for f in functions]
    if any(t != trees[0] for t in trees):
        raise ValueError
    axes = []
    for arrays in zip(*signatures):
        shapes, dtypes = zip(*arrays)
        if len({len(s) for s in shapes}) > 1 or len(set(dtypes)) > 1:
            raise ValueError
        axes.append(tuple(i for i, sizes in enumerate(zip(*shapes)) if len(set(sizes)) > 1))
    found = [{s[0][i] for s, own in zip(signature, axes) for i in own} for signature in signatures]
    if any(len(sizes) > 1 for sizes in found) or side == "inputs" and not all(found):
        raise ValueError
    return axes, [min(sizes, default=0) for sizes in found]


def _resize(x: Any, axes: tuple, size: int) -> Any:
    """x with zeros after its end up to this size along the axes."""
    if not axes or x.shape[axes[0]] == size:
        return x
    out = np.zeros([size if i in axes else n for i, n in enumerate(x.shape)], x.dtype)
    out[tuple(slice(n) for n in x.shape)] = x
    return out


def _cut(y: np.ndarray, axes: tuple, size: int) -> np.ndarray:
    return y[tuple(slice(size) if i in axes else slice(None) for i in range(y.ndim))] if axes else y


def _physical(entry: dict) -> tuple[tuple, np.dtype]:
    """(shape, dtype) of the array that stands for an input or output: random keys are uint32 data."""
    data = entry.get("data", entry)
    return tuple(data["shape"]), dtype_of(data["dtype"])


def _signature(spec: dict) -> str:
    """`(params, x) -> f32[32,10]`"""
    outs = ", ".join(short(e["dtype"], e["shape"]) for e in spec["outputs"])
    return f"({', '.join(a['name'] for a in spec['arguments'])}) -> {outs or 'None'}"


def _coerce(leaf: Any, entry: dict, aval: _Aval) -> np.ndarray:
    """The leaf as an array of the expected dtype and shape, or InputError.  Only Python scalars change type."""
    expected = short(entry["dtype"], entry["shape"])
    if type(leaf) in _SCALARS and not aval.shape:
        return _scalar(leaf, aval.dtype, expected, entry["name"])
    if isinstance(leaf, (list, tuple, dict, str)) or not hasattr(leaf, "__array__"):
        hint = "aot_runtime.key(seed) makes one" if "data" in entry else "pass a numpy array or a value with __array__"
        raise InputError(f"expected {expected}, got {type(leaf).__name__}", where=entry["name"], hint=hint)
    try:
        a = np.asarray(leaf)
    except TypeError as e:      # random keys of a library, for one
        hint = "pass the words of the key, random.key_data(key)" if "data" in entry else ""
        raise InputError(f"expected {expected}, got what numpy cannot convert: {e}", where=entry["name"], hint=hint) from None
    if not a.dtype.isnative:
        a = a.astype(a.dtype.newbyteorder("="))
    if a.dtype != aval.dtype or a.shape != aval.shape:
        hint = f"convert it with .astype({aval.dtype.name!r})" if a.shape == aval.shape else ""
        raise InputError(f"expected {expected}, got {short(a.dtype.name, a.shape)}", where=entry["name"], hint=hint)
    return a


_SCALARS = {bool: "b", int: "iufc", float: "fc", complex: "c"}  # the dtype kinds that each may become


def _scalar(x: Any, dtype: np.dtype, expected: str, where: str) -> np.ndarray:
    kind = "f" if dtype.kind == "V" else dtype.kind  # ml_dtypes floats are of kind V
    if kind not in _SCALARS[type(x)]:
        raise InputError(f"expected {expected}, got the Python {type(x).__name__} {x!r}", where=where)
    try:
        return np.array(x, dtype)
    except OverflowError:
        raise InputError(f"expected {expected}, got {x!r}, which it cannot hold", where=where) from None
