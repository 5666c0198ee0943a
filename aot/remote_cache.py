"""Remote tiers of the cache: a directory, an HTTP server, or anything that fsspec reaches.

    file:///mnt/shared/aot        another cache directory, for example on NFS
    http://host/aot  https://..   GET, and PUT where the server takes it (bazel-remote, nginx with dav, ...)
    s3://bucket/aot  gs://.. ...  through fsspec and its driver (the extra `remote`)

A prefix `ro+` (`ro+https://..`) never writes.  A tier that fails is not asked again in this process: a build never fails
or waits long because of one.
"""
from __future__ import annotations

import http.client
import logging
import os
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from aot.errors import AotError

TIMEOUT = 5.0    # seconds to wait for a remote tier
#: the same for fsspec's drivers
PATIENCE = {"s3": {"config_kwargs": {"connect_timeout": TIMEOUT, "read_timeout": 4 * TIMEOUT,
                                     "retries": {"max_attempts": 1}}}}
log = logging.getLogger("aot.cache")


def open_tier(url: str) -> Tier:
    """The tier of a URL.  Raises AotError for a URL without a scheme or when its driver is not installed."""
    readonly, url = url.startswith("ro+"), url.removeprefix("ro+")
    scheme = urllib.parse.urlsplit(url).scheme
    if not scheme:
        raise AotError(f"remote cache {url!r} is not a URL", hint="write file:///folder, https://host/folder or s3://bucket")
    kind = {"file": Folder, "http": Http, "https": Http}.get(scheme, Fsspec)
    return kind(url.rstrip("/"), readonly)


class Tier:
    """Entries' files by key.  Subclasses have `fetch`, which returns None for what is not there, and `store`."""

    def __init__(self, url: str, readonly: bool = False):
        self.url, self.readonly, self.down = url, readonly, False

    def get(self, k: str) -> bytes | None:
        return None if self.down else self._guarded(self.fetch, k)

    def put(self, k: str, raw: bytes) -> None:
        if not self.down and not self.readonly:
            self._guarded(self.store, k, raw)

    def _guarded(self, f: Any, *args: Any) -> Any:
        try:
            return f(*args)
        except Exception as e:  # whatever a driver raises: the cache is an optimisation
            self.down = True
            log.warning("remote cache %s does not work (%s); going on without it", self.url, _short(e))
            return None

    def fetch(self, k: str) -> bytes | None: raise NotImplementedError
    def store(self, k: str, raw: bytes) -> None: raise NotImplementedError


def _short(e: Exception) -> str:
    return f"{type(e).__name__}: {e}".splitlines()[0][:200]


class Folder(Tier):
    """A cache directory that others use too."""

    def __init__(self, url: str, readonly: bool = False):
        super().__init__(url, readonly)
        from aot.cache import Cache
        self.cache = Cache(urllib.request.url2pathname(urllib.parse.urlsplit(url).path))

    def fetch(self, k: str) -> bytes | None:
        try:
            with open(self.cache.path(k), "rb") as f:
                return f.read()
        except FileNotFoundError:
            return None

    def store(self, k: str, raw: bytes) -> None:
        if not os.path.exists(self.cache.path(k)):
            self.cache._write(k, raw)


class Http(Tier):
    """GET and PUT of URL/KEY[:2]/KEY."""

    def fetch(self, k: str) -> bytes | None:
        try:
            with urllib.request.urlopen(f"{self.url}/{k[:2]}/{k}", timeout=TIMEOUT) as response:
                return response.read()
        except urllib.error.HTTPError as e:
            if e.code in (403, 404, 410):
                return None
            raise
        except http.client.IncompleteRead:
            return None

    def store(self, k: str, raw: bytes) -> None:
        request = urllib.request.Request(f"{self.url}/{k[:2]}/{k}", data=raw, method="PUT",
                                         headers={"Content-Type": "application/octet-stream"})
        try:
            urllib.request.urlopen(request, timeout=TIMEOUT).close()
        except urllib.error.HTTPError as e:
            if e.code not in (401, 403, 405, 501):
                raise
            self.readonly = True  # a server that only serves


class Fsspec(Tier):
    """Any file system that fsspec knows: s3, gs, abfs, memory, ..."""

    def __init__(self, url: str, readonly: bool = False):
        super().__init__(url, readonly)
        scheme = urllib.parse.urlsplit(url).scheme
        self.folders = scheme not in ("s3", "s3a", "gs", "gcs", "abfs", "az", "oss", "oci")  # would make a bucket
        try:
            import fsspec
            self.fs, self.root = fsspec.core.url_to_fs(url, **PATIENCE.get(scheme, {}))
        except ImportError as e:
            raise AotError(f"remote cache {url}: {scheme}:// needs a package that is not installed ({e})",
                           hint="pip install 'aotc[remote]', and s3fs, gcsfs, ... for the scheme") from None
        except ValueError as e:
            raise AotError(f"remote cache {url}: {e}") from None

    def fetch(self, k: str) -> bytes | None:
        try:
            return self.fs.cat_file(f"{self.root}/{k[:2]}/{k}")
        except FileNotFoundError:
            return None

    def store(self, k: str, raw: bytes) -> None:
        path = f"{self.root}/{k[:2]}/{k}"
        if self.folders:
            self.fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        self.fs.pipe_file(path, raw)
