"""The persistent cache: what has been compiled once is not compiled again.

    cache = Cache("~/.cache/aot", max_size=parse_size("5GiB"))
    k = key(fields)                       # fields: everything that decides the result
    blob = cache.get(k)                   # None on a miss
    cache.put(k, blob, fields)

An entry is addressed by the hash of its inputs and is one file, `v1/KEY[:2]/KEY`:

    b"aot-cache 1\\n"  u32 length  JSON {"key", "fields", "info"}  payload  sha256 of all that precedes

Files are written under a temporary name and renamed.  There is no index: nothing can be out of step, and putting costs
the same whatever the cache holds.  An entry that is truncated, damaged or under a wrong name is a miss; so is anything
that the file system refuses.  Being used makes an entry young; `prune` removes the oldest.  Entries hold machine code:
share a directory or a remote tier only with those whose code you would run.
"""
from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import re
import struct
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from aot.errors import AotError

SCHEMA = 1
MAGIC = b"aot-cache 1\n"
DEFAULT_MAX_SIZE = 5 << 30
STALE = 3600           # seconds after which a temporary file belongs to nobody
SLICE = 32             # a put checks the bound about once for each 1/SLICE of it that is written

log = logging.getLogger("aot.cache")


@dataclass(frozen=True)
class Entry:
    """One file of the cache, as the directory tells it."""
    key: str
    path: str
    size: int
    used: float


def key(fields: Mapping[str, Any]) -> str:
    """The address of what these inputs produce."""
    text = json.dumps({"schema": SCHEMA, **fields}, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


def encode(k: str, payload: bytes, fields: Mapping[str, Any], info: Mapping[str, Any]) -> bytes:
    header = json.dumps({"key": k, "fields": fields, "info": info}, sort_keys=True).encode()
    body = b"".join((MAGIC, struct.pack("<I", len(header)), header, payload))
    return body + sha256(body).digest()


def decode(raw: bytes, k: str) -> tuple[bytes, dict] | None:
    """(payload, header) of an entry's file, or None when it is not whole or not this key's."""
    start = len(MAGIC) + 4
    if len(raw) < start + 32 or not raw.startswith(MAGIC) or sha256(memoryview(raw)[:-32]).digest() != raw[-32:]:
        return None
    n, = struct.unpack_from("<I", raw, len(MAGIC))
    header = json.loads(raw[start:start + n])
    return (raw[start + n:-32], header) if header["key"] == k else None


class Cache:
    """A directory of entries, and the remote tiers behind it.

    max_size: bytes to keep, None for no bound.  readonly: never write, not even the time of use.  counts: what has
    happened in this process (hits, misses, puts, damaged, errors).
    """

    def __init__(self, directory: str | os.PathLike, *, max_size: int | None = None, readonly: bool = False,
                 remotes: Sequence[Any] = ()):
        self.directory = os.path.abspath(os.path.expanduser(os.fspath(directory)))
        self.root = os.path.join(self.directory, f"v{SCHEMA}")
        self.max_size, self.readonly, self.remotes = max_size, readonly, list(remotes)
        self.counts: Counter[str] = Counter()
        self._warned = False

    def path(self, k: str) -> str:
        return os.path.join(self.root, k[:2], k)

    # ---- reading and writing ----
    def get(self, k: str) -> bytes | None:
        """The payload, or None.  Raises only when the option raise_persistent_cache_errors is on."""
        found = self.lookup(k)
        return found and found[0]

    def lookup(self, k: str) -> tuple[bytes, dict] | None:
        """(payload, header) or None."""
        found = self._local(k) or self._remote(k)
        self.counts["hits" if found else "misses"] += 1
        return found

    def _local(self, k: str) -> tuple[bytes, dict] | None:
        path = self.path(k)
        try:
            with open(path, "rb") as f:
                raw = f.read()
        except FileNotFoundError:
            return None
        except OSError as e:
            self._trouble(f"{path}: cannot be read: {e.strerror or e}", e)
            return None
        found = decode(raw, k)
        if found is None:
            self.counts["damaged"] += 1
            log.info("damaged entry %s: treated as a miss", path)
        elif not self.readonly:
            with contextlib.suppress(OSError):
                os.utime(path)
        return found

    def _remote(self, k: str) -> tuple[bytes, dict] | None:
        for tier in self.remotes:
            raw = tier.get(k)
            found = raw and decode(raw, k)
            if found:
                self.counts["remote hits"] += 1
                if not self.readonly:
                    self._write(k, raw)
                return found
        return None

    def put(self, k: str, payload: bytes, fields: Mapping[str, Any] | None = None,
            info: Mapping[str, Any] | None = None) -> bool:
        """Store; True when it is on disk.  A full or forbidden disk is logged once and is otherwise no trouble."""
        if self.readonly:
            return False
        raw = encode(k, payload, fields or {}, {"created": int(time.time()), **(info or {})})
        stored = self._write(k, raw)
        for tier in self.remotes:
            tier.put(k, raw)
        return stored

    def _write(self, k: str, raw: bytes) -> bool:
        temporary = os.path.join(self.root, "tmp", f"{os.getpid()}-{random.getrandbits(64):016x}")
        try:
            self._write_file(temporary, raw)
            self._rename(temporary, self.path(k))
        except OSError as e:
            self._trouble(f"{self.directory}: cannot be written: {e.strerror or e}", e)
            return False
        finally:
            _unlink(temporary)      # gone after success; Ctrl-C is no OSError
        self.counts["puts"] += 1
        if self.max_size is not None and random.random() * self.max_size < len(raw) * SLICE:
            self.prune(self.max_size)
        return True

    def _write_file(self, path: str, raw: bytes) -> None:
        try:
            f = open(path, "xb")
        except FileNotFoundError:
            self._make_root()
            f = open(path, "xb")
        with f:
            f.write(raw)

    def _make_root(self) -> None:
        os.makedirs(os.path.join(self.root, "tmp"), exist_ok=True)
        tag = os.path.join(self.directory, "CACHEDIR.TAG")
        if not os.path.exists(tag):
            with open(tag, "w") as f:
                f.write("Signature: 8a477f597d28d172789f06886806bc55\n# Compiled programs; see aot cache --help.\n")

    def _rename(self, temporary: str, path: str) -> None:
        try:
            os.replace(temporary, path)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.replace(temporary, path)

    def _trouble(self, message: str, error: OSError) -> None:
        self.counts["errors"] += 1
        from aot.config import config
        if config.raise_persistent_cache_errors:
            raise AotError(f"compilation cache: {message}") from error
        if not self._warned:
            self._warned = True
            log.warning("compilation cache: %s; going on without it", message)

    # ---- looking after it ----
    def entries(self) -> Iterator[Entry]:
        """Every entry, in no order.  Entries that vanish meanwhile are passed over."""
        for folder in _scan(self.root):
            if len(folder.name) == 2:
                for file in _scan(folder.path):
                    try:
                        s = file.stat()
                    except OSError:
                        continue
                    yield Entry(file.name, file.path, s.st_size, s.st_mtime)

    def header(self, entry: Entry) -> dict | None:
        """Fields and info of an entry, read without its payload and so without its checksum."""
        try:
            with open(entry.path, "rb") as f:
                start = f.read(len(MAGIC) + 4)
                return json.loads(f.read(struct.unpack_from("<I", start, len(MAGIC))[0]))
        except (OSError, ValueError, struct.error):
            return None

    def stats(self) -> dict[str, Any]:
        """entries, bytes, the bound, and the times of the oldest and newest use."""
        found = list(self.entries())
        used = [e.used for e in found]
        return {"directory": self.directory, "entries": len(found), "bytes": sum(e.size for e in found),
                "max_bytes": self.max_size, "oldest": min(used, default=None), "newest": max(used, default=None),
                "temporary": sum(1 for _ in _scan(os.path.join(self.root, "tmp")))}

    def verify(self, delete: bool = True) -> list[Entry]:
        """Check every entry's checksum; the damaged ones are returned, and removed unless told otherwise."""
        damaged = []
        for entry in self.entries():
            try:
                with open(entry.path, "rb") as f:
                    whole = decode(f.read(), entry.key) is not None
            except FileNotFoundError:
                continue
            except (OSError, ValueError, KeyError):
                whole = False
            if not whole:
                damaged.append(entry)
                if delete and not self.readonly:
                    _unlink(entry.path)
        return damaged

    def prune(self, max_size: int | None = None, max_age: float | None = None) -> tuple[int, int]:
        """Remove entries unused for max_age seconds, and the least recently used until max_size bytes are left.

        Also removes temporary files of writers that were killed.  -> (entries removed, bytes removed)
        """
        if self.readonly:
            return 0, 0
        now, kept, removed = time.time(), 0, []
        self._remove_stale(now)
        for entry in sorted(self.entries(), key=lambda e: -e.used):
            kept += entry.size
            if max_size is not None and kept > max_size or max_age is not None and now - entry.used > max_age:
                kept -= entry.size
                if _unlink(entry.path):
                    removed.append(entry.size)
        return len(removed), sum(removed)

    def _remove_stale(self, now: float, age: float = STALE) -> None:
        for file in _scan(os.path.join(self.root, "tmp")):
            try:
                if now - file.stat().st_mtime >= age:
                    _unlink(file.path)
            except OSError:
                pass

    def clear(self) -> tuple[int, int]:
        """Remove every entry -> (entries removed, bytes removed)."""
        self._remove_stale(time.time(), 0)
        return self.prune(0)

    def explain(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Why these inputs hit or miss: {"hit", "key", "nearest", "changed": {field: (stored, wanted)}}.

        The nearest entry is the one that shares most fields, the youngest of several.
        """
        k, nearest, best = key(fields), None, (0, 0.0)
        if self._local(k):
            return {"hit": True, "key": k, "nearest": k, "changed": {}}
        for entry in self.entries():
            stored = (self.header(entry) or {}).get("fields", {})
            score = sum(stored.get(f) == v for f, v in fields.items()) + 2 * (
                "name" in fields and stored.get("name") == fields["name"]), entry.used
            if score > best:
                best, nearest, other = score, entry.key, stored
        changed = {f: (other.get(f), v) for f, v in fields.items() if other.get(f) != v} if nearest else {}
        return {"hit": False, "key": k, "nearest": nearest, "changed": changed}


def _scan(folder: str) -> list[os.DirEntry]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def _unlink(path: str) -> bool:
    try:
        os.unlink(path)
        return True
    except OSError:
        return False


# ---- which cache ---------------------------------------------------------------------------------------------------

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_size(text: str) -> int:
    """`500M`, `5GiB`, `5 GB`, `1024` -> bytes (powers of 1024).  Raises AotError."""
    m = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([KMGT]?)(?:i?B)?\s*", text, re.IGNORECASE)
    if m is None:
        raise AotError(f"{text!r} is not a size", hint="write 500M or 5GiB")
    return int(float(m[1]) * _UNITS[m[2].upper()])


def default_directory() -> str:
    """AOT_CACHE_DIR, else `aot` in the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("AOT_CACHE_DIR") or os.path.join(base, "aot")


def from_environment(directory: str | None = None, offline: bool = False) -> Cache:
    """The cache of the command line: AOT_CACHE_DIR, AOT_CACHE_MAX_SIZE, AOT_CACHE_READONLY, AOT_CACHE_REMOTE.

    AOT_CACHE_REMOTE: URLs of remote tiers, separated by blanks, asked in this order.  offline: ask none.
    """
    remotes = os.environ.get("AOT_CACHE_REMOTE", "").split()
    if remotes and not offline:
        from aot.remote_cache import open_tier
        tiers = [open_tier(url) for url in remotes]
    else:
        tiers = []
    size = parse_size(os.environ["AOT_CACHE_MAX_SIZE"]) if "AOT_CACHE_MAX_SIZE" in os.environ else DEFAULT_MAX_SIZE
    readonly = os.environ.get("AOT_CACHE_READONLY", "0").lower() not in ("", "0", "false", "no")
    return Cache(directory or default_directory(), max_size=size, readonly=readonly, remotes=tiers)


_active: tuple[tuple, Cache | None] = ((), None)


def active() -> Cache | None:
    """The cache that `jit` uses: the one of the option compilation_cache_dir, if set and enabled."""
    global _active
    from aot.config import config
    directory, bound = config.compilation_cache_dir, config.compilation_cache_max_size
    if not directory or not config.enable_compilation_cache:
        return None
    if _active[0] != (directory, bound):
        made = from_environment(directory)
        made.max_size = bound if bound >= 0 else None
        _active = (directory, bound), made
    return _active[1]


def use(cache: Cache) -> None:
    """Make this the cache of the process, for everything that is compiled."""
    global _active
    from aot.config import config
    config.update("compilation_cache_dir", cache.directory)
    config.update("persistent_cache_min_compile_time_secs", 0.0)
    _active = (cache.directory, config.compilation_cache_max_size), cache


@contextlib.contextmanager
def using(cache: Cache) -> Iterator[None]:
    """`use` inside a `with` block."""
    from aot.config import config
    names = ("compilation_cache_dir", "persistent_cache_min_compile_time_secs")
    before = [config.read(n) for n in names]
    use(cache)
    try:
        yield
    finally:
        for n, v in zip(names, before):
            config.update(n, v)
