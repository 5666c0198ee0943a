"""Loads `.aot` artifacts and runs them: one file, no compiler.  Needs numpy, jaxlib and (for its dtypes) ml_dtypes.

    import aot_runtime
    predict = aot_runtime.load("model.aot")["predict"]
    y = predict(params, x)          # numpy arrays in (or anything that numpy understands), numpy arrays out

The format is specified in `aot/artifact.py`; this module is its only reader.  Every member is checked against the
sha256 in the manifest before it is used.  A serialized executable runs only on the platform, CPU features and jaxlib
build that it was made for; anything else is not even tried: the StableHLO program in the same file is compiled
instead (a warning of the logger `aot_runtime` says why), or `strict=True` makes that an error.  `explain()` tells
what would be used on this host.

A checksum protects against damage, not against malice: an artifact holds machine code, so load only files that you
would run.
"""
from __future__ import annotations

import json
import mmap
import os
import struct
import sys
import zlib
from collections import OrderedDict, namedtuple
from functools import cache
from typing import Any

import numpy as np

__version__ = "0.1.0"
__all__ = ["AotError", "Artifact", "Function", "InputError", "collect", "dtype_of", "host_info", "key", "load", "short",
           "tensors"]

SCHEMA = 1  # the newest manifest schema that this loader reads

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # before jaxlib loads: its INFO lines are noise


class AotError(Exception):
    """What went wrong (`what`), on which file, function or argument (`where`), and what to do about it (`hint`)."""

    def __init__(self, what: str, *, where: str = "", hint: str = ""):
        self.what, self.where, self.hint = what, where, hint
        super().__init__((f"{where}: " if where else "") + what + (f"\nhint: {hint}" if hint else ""))


class InputError(AotError, TypeError):
    """The arguments of a call do not fit the function's signature."""


def load(path: str | os.PathLike | bytes, *, strict: bool = False, weights: str | os.PathLike | None = None) -> Artifact:
    """Open an artifact (a path, or its bytes): `load(path)[name](*args)`.

    weights: a safetensors file to use instead of the one that an artifact with separate weights names.

    Only the manifest is read here; a function is verified and prepared when it is looked up.  `strict=True` refuses a
    function that has no executable for this host instead of compiling its StableHLO program.
    Raises AotError for a file that is missing, truncated, damaged, of another kind or of a newer schema.
    """
    return Artifact(path, strict=strict, weights=weights)


def key(seed: int) -> np.ndarray:
    """The random key of an integer seed, as the uint32[2] array that a `key<fry>[]` argument takes."""
    return np.array([(seed >> 32) & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)


# ---- the container: a zip of stored members ------------------------------------------------------------------------

_CENTRAL = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_AGAIN = "copy it again, or build it again with `aot compile`"


def _map_file(path: str) -> memoryview:
    try:
        with open(path, "rb") as f:
            if not os.fstat(f.fileno()).st_size:
                raise AotError("the file is empty", where=path, hint=_AGAIN)
            return memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))
    except FileNotFoundError:
        raise AotError("no such file", where=path, hint="artifacts are written by `aot compile`") from None
    except OSError as e:
        raise AotError(f"cannot be read: {e.strerror or e}", where=path) from None


def _directory(buf: memoryview, path: str) -> tuple[int, int]:
    """(offset, number of entries) of the central directory, from the zip or zip64 end record."""
    start = max(0, len(buf) - 65557)
    found = bytes(buf[start:]).rfind(b"PK\5\6")
    if found < 0 or start + found + 22 > len(buf):
        if buf[:2] == b"PK":
            raise AotError("truncated: the file ends before its directory", where=path, hint=_AGAIN)
        raise AotError("not an .aot artifact (not a zip file)", where=path)
    at = start + found
    count, _, offset = struct.unpack_from("<HII", buf, at + 10)
    if at >= 20 and buf[at - 20:at - 16] == b"PK\6\7":
        record, = struct.unpack_from("<Q", buf, at - 12)
        count, _, offset = struct.unpack_from("<QQQ", buf, record + 32)
    return offset, count


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


def _members(buf: memoryview, path: str) -> dict[str, tuple[memoryview, int]]:
    """Every member of the zip: name -> (view of the mapped file, CRC-32)."""
    members = {}
    try:
        at, count = _directory(buf, path)
        for _ in range(count):
            sig, _, _, _, method, _, _, crc, packed, size, n, m, k, _, _, _, offset = _CENTRAL.unpack_from(buf, at)
            name = bytes(buf[at + 46:at + 46 + n]).decode()
            size, packed, offset = _widen(buf[at + 46 + n:at + 46 + n + m], [size, packed, offset])
            local = _LOCAL.unpack_from(buf, offset)
            data = offset + 30 + local[9] + local[10]
            if sig != b"PK\1\2" or local[0] != b"PK\3\4" or data + size > len(buf):
                raise struct.error
            if method:
                raise AotError(f"member {name!r} is compressed", where=path, hint="do not repack artifacts")
            members[name] = buf[data:data + size], crc
            at += 46 + n + m + k
    except (struct.error, UnicodeDecodeError, StopIteration, OverflowError):
        raise AotError("damaged: its directory cannot be read", where=path, hint=_AGAIN) from None
    return members


def _manifest(members: dict[str, tuple[memoryview, int]], path: str) -> dict:
    """The parsed manifest.  It lists the sha256 of every other member; its own check is the zip's CRC-32."""
    if "manifest.json" not in members:
        raise AotError("not an .aot artifact (it has no manifest.json)", where=path)
    raw, crc = members["manifest.json"]
    if zlib.crc32(raw) != crc:
        raise AotError("damaged: manifest.json does not match its checksum", where=path, hint=_AGAIN)
    try:
        manifest = json.loads(bytes(raw))
        kind, schema = manifest["format"], manifest["schema"]
    except (ValueError, KeyError, TypeError):
        raise AotError("not an .aot artifact (its manifest.json is something else)", where=path) from None
    if kind != "aot":
        raise AotError(f"not an .aot artifact (format {kind!r})", where=path)
    if schema > SCHEMA:
        raise AotError(f"written with manifest schema {schema}, this loader reads up to {SCHEMA}", where=path,
                       hint="upgrade the loader: pip install -U aotc")
    return manifest


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


# ---- dtypes and safetensors ----------------------------------------------------------------------------------------

_SHORT = {"float": "f", "bfloat": "bf", "uint": "u", "int": "i", "complex": "c"}
_SAFETENSORS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64",
                "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16",
                "U8": "uint8", "BOOL": "bool", "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}


@cache
def dtype_of(name: str) -> np.dtype:
    """numpy's or ml_dtypes' dtype of this name."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes
        return np.dtype(getattr(ml_dtypes, name))


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
            a = np.frombuffer(view[8 + n + start:8 + n + end], dtype_of(_SAFETENSORS[entry["dtype"]]))
            a = a.reshape(entry["shape"])
            if "dtype:" + name in meta:
                a = a.reshape(-1).view(dtype_of(meta["dtype:" + name])).reshape(entry["shape"][:-1])
            out[name] = a
        return out
    except (struct.error, ValueError, KeyError, TypeError) as e:
        raise AotError(f"damaged: not in safetensors layout ({e})", where=where, hint=_AGAIN) from None


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


def _misfit(exe: dict) -> str | None:
    """Why this executable must not be tried on this host, or None when it fits."""
    host = host_info()
    if exe["platform"] != host["platform"]:
        return f"built for {exe['platform']}, this process runs on {host['platform']}"
    if exe["machine"] != host["machine"]:
        return f"built for {exe['machine']}, this machine is {host['machine']}"
    if exe["cpu_features"] is None or host["cpu_features"] is None:
        return "CPU features could not be read"
    if missing := [x for x in exe["cpu_features"] if x not in host["cpu_features"]]:
        return f"needs CPU features that this host lacks: {', '.join(missing)}"
    if (exe["jaxlib"], exe["jaxlib_build"]) != (host["jaxlib"], host["jaxlib_build"]):
        same = exe["jaxlib"] == host["jaxlib"]
        return f"built with jaxlib {exe['jaxlib']}, this is {'another build of it' if same else host['jaxlib']}"
    return None


# ---- XLA -----------------------------------------------------------------------------------------------------------

class _Aval:
    """What jaxlib wants to know of an array."""
    weak_type = False

    def __init__(self, shape, dtype): self.shape, self.dtype, self.ndim = tuple(shape), dtype, len(shape)


class _Xla:
    """The CPU client and the handful of calls that running needs.  Only `_jax` and `_hlo` are imported, never MLIR;
    jaxlib's `xla_client` and every call that would make its C++ code `import jax` are avoided."""

    def __init__(self):
        from jaxlib import _hlo, _jax
        self.ext = _jax
        # Each execution leaves a traceback of 90 bytes that C++ may not free without the GIL: freed before the next one.
        self.collect_garbage = getattr(_jax, "collect_garbage", lambda: None)
        # Results are wanted at once, so a dispatch thread would only add latency.
        self.client = _jax.get_tfrt_cpu_client(asynchronous=False)
        self.device = self.client.devices()[0]
        self.devices = _jax.DeviceList((self.device,))
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

    def put(self, aval: _Aval, x: np.ndarray) -> Any:
        """Host array -> buffer, sharing the memory where it is aligned."""
        return self.ext.batched_device_put(aval, self.sharding, [x], [self.device], enable_x64=True)

    def handler(self, aval: _Aval) -> Any:
        try:
            return self.ext.array_result_handler(aval, self.sharding, True, True)
        except TypeError:  # jaxlib 0.12 dropped the last argument
            return self.ext.array_result_handler(aval, self.sharding, True)

    def options(self, flags: dict) -> Any:
        options = self.ext.CompileOptions()
        options.env_option_overrides = list(flags.items())
        return options

    def deserialize(self, blob: memoryview, flags: dict) -> Any:
        return self.client.deserialize_executable(bytes(blob), self.devices, self.options(flags))

    def compile(self, program: memoryview, flags: dict) -> Any:
        return self.client.compile_and_load(bytes(program), self.devices, self.options(flags))


@cache
def _xla() -> _Xla:
    return _Xla()


@cache
def _register_lapack() -> None:
    """Make jaxlib's LAPACK kernels callable; without `initialize` calling one would crash the process."""
    from jaxlib import lapack
    lapack._lapack.initialize()  # type: ignore[attr-defined]
    for platform, rows in lapack.registrations().items():
        for name, fn, version in rows:
            _xla().ext.register_custom_call_target(name, fn, platform=platform, api_version=version)


class _Memory:
    """A result's memory for `numpy.asarray`, which keeps this object, and so the buffer, alive."""
    __slots__ = ("__array_interface__", "buffer")

    def __init__(self, buffer, shape, typestr):
        self.buffer = buffer
        buffer.block_until_ready()  # XLA may still be computing on its own threads
        self.__array_interface__ = {"data": (buffer.unsafe_buffer_pointer(), False), "shape": shape,
                                    "typestr": typestr, "version": 3}


def _copy_out(buffer: Any) -> np.ndarray:
    """For types that are packed on the device (int4, ...).  This call makes C++ try `import jax`; refuse it."""
    absent = "jax" not in sys.modules
    if absent:
        sys.modules["jax"] = None  # type: ignore[assignment]
    try:
        return buffer._single_device_array_to_np_array_did_copy()[0]
    finally:
        if absent:
            del sys.modules["jax"]


def _reader(aval: _Aval) -> Any:
    """buffer -> writable numpy array over the buffer's own memory."""
    shape, dtype = aval.shape, aval.dtype
    if 0 in shape:
        return lambda buffer: np.empty(shape, dtype)
    if "int4" in dtype.name or "int2" in dtype.name or "float4" in dtype.name:
        return _copy_out
    typestr, native = dtype.str, dtype.kind in "biufc"

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
    if not isinstance(x, dict):
        raise InputError(f"expected a dict with keys {_names(keys)}, got {type(x).__name__}", where=at)
    if x.keys() != set(keys):
        missing, extra = [k for k in keys if k not in x], [k for k in x if k not in keys]
        raise InputError(" and ".join([f"missing key {_names(missing)}"] * bool(missing)
                                      + [f"unexpected key {_names(extra)}"] * bool(extra)), where=at)
    for k, (_, t) in zip(keys, tree["dict"]):
        collect(t, x[k], f"{at}[{k!r}]", out)


def _collect_fields(tree: dict, x: Any, at: str, out: list) -> None:
    """Named tuples and the builder's own classes: anything with these attributes, or a dict with these keys."""
    fields, name = [k for k, _ in tree["fields"]], tree.get("namedtuple") or tree["node"]
    has = x.__contains__ if isinstance(x, dict) else lambda k: hasattr(x, str(k))
    if not all(map(has, fields)):
        raise InputError(f"expected a {name} with {_names(fields)}, got {type(x).__name__}", where=at)
    for k, t in tree["fields"]:
        collect(t, x[k] if isinstance(x, dict) else getattr(x, str(k)), f"{at}.{k}", out)


def _names(keys: list) -> str:
    return ", ".join(map(repr, keys))


# ---- artifacts and functions ---------------------------------------------------------------------------------------

class Artifact:
    """An open artifact: a mapping from function names to Functions.

    Attributes: path, manifest (the parsed manifest.json), strict.
    """

    def __init__(self, path: str | os.PathLike | bytes, *, strict: bool = False,
                 weights: str | os.PathLike | None = None):
        self.path = "<bytes>" if isinstance(path, bytes) else os.fspath(path)
        self.strict, self._external = strict, weights
        buf = memoryview(path) if isinstance(path, bytes) else _map_file(self.path)
        self._members = _members(buf, self.path)
        self.manifest = _manifest(self._members, self.path)
        if weights is not None and "external" not in self.manifest:
            raise AotError("its weights are not in a separate file, so others cannot be given", where=self.path)
        self._functions: dict[str, Function] = {}
        self._verified: set[str] = set()
        self._weights: dict[str, np.ndarray] | None = None

    def keys(self) -> list[str]: return list(self.manifest["functions"])

    def __iter__(self): return iter(self.keys())

    def __len__(self) -> int: return len(self.manifest["functions"])

    def __contains__(self, name: str) -> bool: return name in self.manifest["functions"]

    def __repr__(self) -> str: return f"<aot_runtime.Artifact {self.path}: {', '.join(self.keys())}>"

    def __getitem__(self, name: str) -> Function:
        """The function, its members verified and its executable ready.  Raises AotError when there is none."""
        if name not in self._functions:
            if name not in self:
                raise AotError(f"no function {name!r}", where=self.path, hint=f"it has: {', '.join(self.keys())}")
            self._functions[name] = Function(self, name)
        return self._functions[name]

    def member(self, name: str) -> memoryview:
        """The bytes of a member, checked against the sha256 in the manifest (once)."""
        entry = self.manifest["members"].get(name)
        if entry is None or name not in self._members:
            raise AotError(f"member {name!r} is missing", where=self.path, hint=_AGAIN)
        view = self._members[name][0]
        if name not in self._verified:
            if len(view) != entry["size"] or _sha256(view) != entry["sha256"]:
                raise AotError(f"damaged: {name} does not match its sha256", where=self.path, hint=_AGAIN)
            self._verified.add(name)
        return view

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

    def _separate(self) -> dict[str, np.ndarray]:
        """The weights in a file of their own, which must have the types that the programs take."""
        entry = self.manifest.get("external")
        if entry is None:
            return {}
        path = os.fspath(self._external or os.path.join(os.path.dirname(self.path), entry["file"]))
        arrays = tensors(_map_file(path), path)
        for name, want in entry["arrays"].items():
            a = arrays.get(name)
            wanted = short(want["dtype"], want["shape"])
            if a is None or (a.dtype.name, list(a.shape)) != (want["dtype"], want["shape"]):
                got = "it is missing" if a is None else f"got {short(a.dtype, a.shape)}"
                raise AotError(f"weight {name!r}: expected {wanted}, {got}", where=path)
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
        return {name: [(exe["target"], _misfit(exe)) for exe in spec["executables"]]
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
        outs = [_Aval(*_physical(e)) for e in spec["outputs"]]
        self._handlers, self._readers = [x.handler(a) for a in outs], [_reader(a) for a in outs]
        self._buffers, self._slots = self._bind(spec["parameters"])
        self._positional = sum(not a.get("keyword") for a in spec["arguments"])
        self._simple = self._positional if self._positional == len(spec["arguments"]) else -1
        self._in_tree = x.trees.flatten([_skeleton(a["tree"]) for a in spec["arguments"]])[1]
        self._out_tree = x.trees.flatten(_skeleton(spec["out_tree"]))[1]

    def __repr__(self) -> str: return f"<aot_runtime.Function {self.signature} on {self.target}>"

    def _choose(self, spec: dict) -> Any:
        for call in spec.get("custom_calls", ()):
            if call.startswith("lapack_"):
                _register_lapack()
        self._xla = x = _xla()
        for exe in spec["executables"]:
            why = _misfit(exe)
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

    def _bind(self, parameters: list) -> tuple[list, list[int]]:
        """The program's parameter list with the weights in place, and the position of every input in it."""
        buffers, slots = [None] * len(parameters), [0] * len(self._inputs)
        for position, p in enumerate(parameters):
            if isinstance(p, str):
                w = self.artifact.weights()[p]
                buffers[position] = self._xla.put(_Aval(w.shape, w.dtype), w)
            else:
                slots[p] = position
        return buffers, slots

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on numpy arrays, Python scalars, or anything that `numpy.asarray` takes without copying (dlpack).

        Returns numpy arrays in the function's output structure; they own the result buffers and are writable.
        Raises InputError naming the argument that does not fit.
        """
        values = list(args)
        if kwargs or len(args) != self._simple:
            values = self._by_name(args, kwargs)
        leaves, tree = self._xla.trees.flatten(values)
        if tree != self._in_tree:
            leaves = []
            for a, v in zip(self.spec["arguments"], values):
                collect(a["tree"], v, a["name"], leaves)
        return self._out_tree.unflatten(self.call_flat(leaves))

    def call_flat(self, leaves: list) -> list[np.ndarray]:
        """Run on the flat list of inputs; returns the flat list of outputs."""
        buffers, put, i = self._buffers.copy(), self._xla.put, 0
        for leaf, (dtype, shape), aval, slot in zip(leaves, self._checks, self._inputs, self._slots, strict=True):
            if type(leaf) is not np.ndarray or leaf.dtype != dtype or leaf.shape != shape:
                leaf = _coerce(leaf, self.spec["inputs"][i], aval)
            buffers[slot] = put(aval, leaf)
            i += 1
        self._xla.collect_garbage()
        results = self._executable.execute_sharded(buffers).consume_with_handlers(self._handlers)
        return [read(r) for read, r in zip(self._readers, results)]

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
    a = np.asarray(leaf)
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
