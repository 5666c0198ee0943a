"""Finished builds in the cache: what was built from the same files, on this machine or another one, is copied, not traced.

A record for what is asked for (the artifact's items, tools, options and host) has the builds that were made so far: the files
and variables that each one read, with hashes, and the hashes of the files that it wrote, which are entries of their own.
"""
from __future__ import annotations

import json
import os
from functools import cached_property
from typing import Any

from aot import provenance
from aot.cache import Cache, key
from aot.files import replacing
from aot.project import dependencies

MOST = 16       # builds that a record has: those of as many states of the sources
SHARE = 50      # a build is kept if it has at most this part of the cache's bound


class Results:
    """store: the cache, or None where there is none: nothing is found or kept."""

    def __init__(self, root: str, output: str, store: Cache | None):
        self.root, self.output, self.store = root, output, store
        self._digests: dict[str, str | None] = {}

    def find(self, name: str, wanted: dict) -> dict | None:
        """A build of `name` as `wanted` describes from what is here now, or None: {"reads", "blobs", "result"}.

        reads: as for `State.record`; blobs: the contents of the files that it wrote, by path."""
        for made in self._record(name, wanted):
            now = {k: made[k] for k in ("folders", "variables")}
            if all(self._digest(path) == sha for path, sha in made["files"].items()) and not dependencies.changes(
                    self.root, self.output, {"files": {}, **now}):
                files = {p: dependencies.entry(os.path.join(self.root, p), sha) for p, sha in made["files"].items()}
                blobs = {path: self._file(sha) for path, sha in made["outputs"].items()}
                if all(blobs.values()) and not any(map(_is_outside, blobs)):
                    return {"reads": {"files": files, **now}, "blobs": blobs, "result": made["result"]}
        return None

    def write(self, blobs: dict[str, bytes]) -> None:
        """Write the files of a build.  Artifacts name the revision of the sources that are here, which are the same."""
        for path, blob in blobs.items():
            full = os.path.join(self.root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            if path.endswith(".aot"):
                from aot.artifact import with_revision
                blob = with_revision(blob, self._revision)
            with replacing(full) as f:
                f.write(blob)

    def keep(self, name: str, wanted: dict, reads: dict[str, dict], outputs: list[str], result: Any) -> None:
        """Note a build.  One that is large, or whose sources changed meanwhile, is not kept."""
        files = {path: entry[2] for path, entry in reads["files"].items()}
        store = self.store
        if store is None or store.readonly or not all(files.values()) or any(map(_is_outside, outputs)):
            return
        blobs = {}
        for path in outputs:
            with open(os.path.join(self.root, path), "rb") as f:
                blobs[path] = f.read()
        if store.max_size is not None and sum(map(len, blobs.values())) * SHARE > store.max_size:
            return
        made = {**reads, "files": files, "result": result,
                "outputs": {path: self._keep_file(store, path, blob) for path, blob in blobs.items()}}
        others = [m for m in self._record(name, wanted) if any(m[k] != made[k] for k in reads)]
        builds = [made, *others][:MOST]
        store.put(key(self._fields(name, wanted)), json.dumps(builds).encode(), _shown("build", name))

    # ---- entries ----
    def _fields(self, name: str, wanted: dict) -> dict:
        """The name and everything that is asked for, as any machine says it."""
        from aot_runtime import host_info
        host, described = host_info(), {k: v for k, v in wanted.items() if k != "compiler"}
        return {"kind": "build", "name": name, **described, "contents": dependencies.compiler_contents(),
                "host": [host["machine"], host["cpu_features"]]}

    def _record(self, name: str, wanted: dict) -> list[dict]:
        found = self.store.get(key(self._fields(name, wanted))) if self.store else None
        return json.loads(found) if found else []

    def _file(self, sha: str) -> bytes | None:
        found = self.store.get(_file_key(sha)) if self.store else None
        return found if found and _sha256(found) == sha else None

    def _keep_file(self, store: Cache, path: str, blob: bytes) -> str:
        sha = _sha256(blob)
        if self._file(sha) is None:
            store.put(_file_key(sha), blob, _shown("file", path))
        return sha

    def _digest(self, path: str) -> str | None:
        """Of a file as it was at the first look: records have the same files, and some are large."""
        if path not in self._digests:
            try:
                self._digests[path] = dependencies.digest(os.path.join(self.root, path))
            except OSError:
                self._digests[path] = None
        return self._digests[path]

    @cached_property
    def _revision(self) -> dict[str, Any]: return provenance.revision(self.root)


def _shown(kind: str, name: str) -> dict:
    """What `aot cache list` tells of an entry."""
    return {"kind": kind, "name": name, "target": kind}


def _file_key(sha: str) -> str: return key({"kind": "file", "sha256": sha})


def _sha256(blob: bytes) -> str:
    from hashlib import sha256
    return sha256(blob).hexdigest()


def _is_outside(path: str) -> bool: return os.path.isabs(path) or os.path.normpath(path).startswith("..")
