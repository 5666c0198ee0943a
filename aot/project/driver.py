"""`build`: from a manifest to artifacts, doing only what is needed, several things at a time.

Each artifact goes through: trace and first target (`lower`), further targets (`compile`), writing (`assemble`).  What
happens is reported as events: dicts with a "reason", which `aot build --message-format json` prints as they are.
"""
from __future__ import annotations

import contextlib
import glob
import importlib
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from aot import manifest as manifests
from aot import targets
from aot.errors import AotError
from aot.manifest import Manifest
from aot.project import dependencies
from aot.project.pool import Pool
from aot.project.state import LOCK, Lock, State
from aot.targets import absolute, distinct

Report = Callable[[dict], None]


@dataclass
class Options:
    """How to build.  names: functions or artifacts, none for all; targets: instead of the manifest's; timeout: seconds
    for one task; cache: directory, or None for no cache."""
    names: Sequence[str] = ()
    jobs: int = 0
    profile: str = "release"
    targets: Sequence[str] = ()
    locked: bool = False
    offline: bool = False
    keep_going: bool = False
    require_hit: bool = False
    force: bool = False
    timeout: float | None = None
    cache: str | None = None
    exporter: str = ""      # the task that writes files of other formats


@dataclass
class Job:
    """One artifact to build: its items, and how far it has come."""
    path: str
    items: list[dict]
    wanted: dict
    left: int = 0
    failed: bool = False
    done: bool = False
    outputs: list[str] = field(default_factory=list)
    size: int = 0
    reads: dict[str, dict] = field(default_factory=lambda: {"files": {}, "folders": {}, "variables": {}})
    made: dict[str, dict] = field(default_factory=dict)


def build(manifest: Manifest, options: Options, report: Report) -> dict:
    """Build what is not fresh -> {"ok", "fresh", "built", "failed", "skipped", "errors"} and the records of all artifacts.

    Raises AotError for a request that cannot be carried out; a function that fails is an event.
    """
    return Builder(manifest, options, report).run()


class Builder:
    def __init__(self, manifest: Manifest, options: Options, report: Report):
        self.manifest, self.options, self.report = manifest, options, report
        self.root, self.output = manifest.root, manifest.output(options.profile)
        self.state = State(self.root, self.output)
        self.hidden = os.path.join(self.root, self.output, ".aot")
        self.stage = os.path.join(self.hidden, f"stage-{os.getpid()}")
        self.lock = Lock(self.root)
        self.identity = dependencies.identity()
        self.pool = Pool(options.jobs or available_cpus(), self._started)
        self.errors: list[dict] = []

    def run(self) -> dict:
        try:
            with self.pool:
                jobs, every = self._plan()
                if self.options.locked:
                    self.lock.check_tools(self._tools([i for job in jobs for i in job.items]))
                stale = [job for job in jobs if self._is_stale(job)]
                self._check_targets(stale)
                self._work([job for job in stale if not self._restored(job)])
        finally:
            self._tidy()
        return self._outcome(jobs, stale, every)

    # ---- planning ----
    def _plan(self) -> tuple[list[Job], set[str]]:
        """The artifacts asked for, and the names of all functions of the manifest."""
        items = manifests.items(self.manifest, self.options.profile, self._entries())
        if not items:
            raise AotError(f"{manifests.FILE} names no function", hint="add [[function]], or modules with @aot.entry")
        groups: dict[str, list[dict]] = {}
        for item in items:
            if self.options.targets:
                item["targets"] = distinct(self.options.targets)
            groups.setdefault(item["artifact"], []).append(item)
        chosen = self._chosen(groups)
        return ([Job(os.path.join(self.output, name), group, {"items": group, **self.identity, "tools": self._tools(group)})
                 for name, group in groups.items() if name in chosen], {i["name"] for i in items})

    def _tools(self, items: list[dict]) -> dict[str, str]:
        """The tools that take part in building these: a plugin only where a target needs it."""
        kinds = {t.partition(":")[0] for i in items for t in i["targets"]}
        plugins = _plugins({t for i in items for t in i["targets"]}) if "pjrt" in kinds else {}
        return {**{k: v for k, v in self.identity["tools"].items()
                   if k not in dependencies.PLUGINS or dependencies.PLUGINS[k] in kinds}, **plugins}

    def _chosen(self, groups: dict[str, list[dict]]) -> set[str]:
        chosen = set() if self.options.names else set(groups)
        for name in self.options.names:
            base = os.path.basename(name)
            found = [g for g, items in groups.items() if base in (g, g.removesuffix(".aot"))
                     or any(name in (i["name"], i["base"]) for i in items)]
            if not found:
                raise _no_function(name, [i for items in groups.values() for i in items])
            chosen.update(found)
        return chosen

    def _entries(self) -> list[dict]:
        """Functions marked in modules, from the records while the modules' files are the same."""
        found = []
        for i, module in enumerate(self.manifest.project.get("modules", [])):
            name = f"modules/{module}"
            wanted = {"module": module, "as_jax": self.manifest.project.get("as_jax", False), **self.identity}
            stale = self.options.force or self.state.stale(name, wanted)
            if stale and (known := self.results.find(name, wanted)):
                self.state.record(name, wanted, known["reads"], [], known["result"])
            elif stale:
                self.pool.submit({**self._task(), "do": "discover", "module": module}, log=self._log(f"module{i}"),
                                 timeout=self.options.timeout)
                _, reply, _ = self.pool.next() or (None, {}, 0)
                if "error" in reply:
                    raise TaskError(module, reply["error"])
                result = reply["result"]
                self.state.record(name, wanted, result["dependencies"], [], result["entries"])
                self.results.keep(name, wanted, result["dependencies"], [], result["entries"])
            found += self.state.records[name]["result"]
        return found

    def _is_stale(self, job: Job) -> bool:
        why = "--force" if self.options.force else self.state.stale(job.path, job.wanted)
        if why is None:
            self.report({"reason": "fresh", "artifact": job.path, "functions": [i["name"] for i in job.items]})
            if self.options.locked:
                for name, made in self.state.records[job.path]["result"].items():
                    self._check_lock(name, made)
        else:
            self.report({"reason": "stale", "artifact": job.path, "why": why,
                         "tasks": 1 + sum(len(_files(i)) + (len(_executables(i)) or 1) for i in job.items)})
        return why is not None

    def _restored(self, job: Job) -> bool:
        """Take an artifact that was built from the same files before, here or elsewhere, from the cache."""
        known = self.results.find(job.path, job.wanted)
        if known is None:
            return False
        job.reads, job.outputs, job.made = known["reads"], list(known["blobs"]), known["result"]
        if self.options.locked and [k for k, made in job.made.items() if not self._check_lock(k, made)]:
            job.failed = True
            return True
        self.results.write(known["blobs"])
        job.size = os.path.getsize(os.path.join(self.root, job.path))
        for item in job.items:
            for target in (*_executables(item), *_files(item)):
                self.report({"reason": "compiled", "artifact": job.path, "function": item["name"], "target": target,
                             "seconds": 0.0, "hit": True})
        self._built(job, 0.0)
        return True

    def _check_targets(self, jobs: list[Job]) -> None:
        for name in dict.fromkeys(t for job in jobs for item in job.items for t in item["targets"]):
            try:
                targets.require(name)
            except AotError as e:
                if self.options.targets:
                    raise
                self.manifest.fail(self._place_of_target(name), e.message, e.hint)

    def _place_of_target(self, name: str) -> tuple:
        """Where the manifest asks for a target; () when only a mark does."""
        m, profile = self.manifest, self.options.profile
        tables = [(("profile", profile), m.profiles.get(profile, {})),
                  *((("function", i), f) for i, f in enumerate(m.functions)), (("project",), m.project)]
        return next(((*at, "targets") for at, table in tables
                     if name in (absolute(t, self.root) for t in table.get("targets", ()))), ())

    # ---- working ----
    def _task(self) -> dict:
        where = {"directory": self.options.cache, "offline": self.options.offline} if self.options.cache else None
        return {"root": self.root, "output": self.output, "cache": where, "require_hit": self.options.require_hit,
                "as_jax": self.manifest.project.get("as_jax", False)}

    @cached_property
    def results(self) -> Any:
        """Imported where something is not fresh."""
        from aot.cache import from_environment
        from aot.project.results import Results
        o = self.options
        return Results(self.root, self.output, from_environment(o.cache, o.offline) if o.cache and not o.force else None)

    def _log(self, name: str) -> str:
        folder = os.path.join(self.hidden, "log")
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as e:
            raise AotError(f"{self.output}: cannot be written: {e.strerror or e}") from None
        return os.path.join(folder, f"{name.replace(':', '-').replace('/', '-')}.log")

    def _work(self, jobs: list[Job]) -> None:
        for job in jobs:
            for item in job.items:
                job.left += 1
                first = next(iter(_executables(item)), None)
                self._submit(job, item, "lower", first, {"stage": self._stage(item), "target": first, "x64": item["x64"]})
        while self.pool.busy:
            found = self.pool.next()
            if found is not None:
                (job, item, do, target), reply, seconds = found
                self._finished(job, item, do, target, reply, seconds)

    def _stage(self, item: dict) -> str:
        return os.path.join(self.stage, item["name"])

    def _submit(self, job: Job, item: dict, do: str, target: str | None, extra: dict) -> None:
        if self.errors and not self.options.keep_going and do != "assemble":
            return
        devices = 1
        if item["mesh"]:
            from aot.partition import parse_mesh
            devices = parse_mesh(item["mesh"]).size
        env = targets.parse(target).over(devices).environment if target else {}
        name = item["name"] if do != "assemble" else os.path.basename(job.path)
        task = {**self._task(), "do": do, "item": item, "devices": devices, **extra}
        self.pool.submit(task, env=env, timeout=self.options.timeout,
                         log=self._log("-".join(filter(None, (name, target, do)))), tag=(job, item, do, target))

    def _started(self, tag: Any) -> None:
        if tag is not None:
            job, item, do, target = tag
            self.report({"reason": "started", "artifact": job.path, "function": item["name"], "task": do, "target": target})

    def _finished(self, job: Job, item: dict, do: str, target: str | None, reply: dict, seconds: float) -> None:
        if "error" in reply:
            return self._failed(job, item, do, target, reply["error"])
        result = reply["result"]
        if do == "assemble":
            return self._assembled(job, result, seconds)
        job.left -= 1
        if do == self.options.exporter:
            return self._exported(job, item, target, result, seconds)
        if do == "lower":
            self._lowered(job, item, result)
        known = {k: v for k, v in result.get("compile", {}).items() if k not in ("cpu_features", "platform", "created")}
        self.report({"reason": "compiled" if target else "lowered", "artifact": job.path, "function": item["name"],
                     "target": target, "seconds": round(seconds, 3), **known})
        if not job.left and not job.failed:
            self._assemble(job)

    def _lowered(self, job: Job, item: dict, result: dict) -> None:
        job.reads = dependencies.merge(job.reads, result["dependencies"])
        made = job.made[item["name"]] = {k: result[k] for k in ("signature", "program", "weights")}
        if self.options.locked and not self._check_lock(item["name"], made):
            job.failed = True
            return
        for n, target in enumerate(_executables(item)[1:], 1):
            job.left += 1
            self._submit(job, item, "compile", target, {"stage": self._stage(item), "target": target, "number": n})

    def _check_lock(self, name: str, made: dict) -> bool:
        why = self.lock.check(name, made) if self.options.profile == "release" else None
        if why:
            self._error({"function": name, "target": None, "kind": "error", "message": why,
                         "hint": "build without --locked to accept it"})
        return why is None

    def _assemble(self, job: Job) -> None:
        parts = [{"stage": self._stage(i), "executables": len(_executables(i)), "separate": i["weights_mode"] == "separate"}
                 for i in job.items]
        self._submit(job, job.items[0], "assemble", None, {"path": job.path, "functions": parts})

    def _assembled(self, job: Job, result: dict, seconds: float) -> None:
        job.outputs, job.size = result["files"], result["size"]
        for item in job.items:
            for target in _files(item):
                job.left += 1
                path = os.path.join(os.path.dirname(job.path), item["name"] + targets.parse(target).file_suffix)
                self._submit(job, item, self.options.exporter, target, {"artifact": job.path, "path": path, "target": target})
        if not job.left:
            self._finish(job, seconds)

    def _exported(self, job: Job, item: dict, target: str | None, result: dict, seconds: float) -> None:
        job.outputs += result["files"]
        self.report({"reason": "compiled", "artifact": job.path, "function": item["name"], "target": target,
                     "seconds": round(seconds, 3), "size": result["size"]})
        if not job.left and not job.failed:
            self._finish(job, seconds)

    def _finish(self, job: Job, seconds: float) -> None:
        self.results.keep(job.path, job.wanted, job.reads, job.outputs, job.made)
        self._built(job, seconds)

    def _built(self, job: Job, seconds: float) -> None:
        job.done = True
        self.state.record(job.path, job.wanted, job.reads, job.outputs, job.made)
        self.report({"reason": "artifact", "artifact": job.path, "files": job.outputs, "size": job.size,
                     "functions": [i["name"] for i in job.items], "seconds": round(seconds, 3),
                     "signatures": [m["signature"] for m in job.made.values()]})

    def _failed(self, job: Job, item: dict, do: str, target: str | None, error: dict) -> None:
        job.failed, job.left = True, job.left - 1
        name = item["name"] if do != "assemble" else job.path
        self._error({"function": name, "target": target, "artifact": job.path, **error,
                     "log": self._log("-".join(filter(None, (os.path.basename(name), target, do))))})

    def _error(self, error: dict) -> None:
        self.errors.append(error)
        self.report({"reason": "failed", **error})
        if not self.options.keep_going:
            self.pool.cancel()

    # ---- ending ----
    def _tidy(self) -> None:
        """Remove what this build, or one that was killed, left half done."""
        output = os.path.join(self.root, self.output)
        for folder, name in ((self.hidden, "stage-*"), (self.hidden, "*.tmp"), (output, "*.tmp"), (self.root, f"{LOCK}.*.tmp")):
            for path in glob.glob(os.path.join(glob.escape(folder), name)):
                pid = path.removesuffix(".tmp").replace("-", ".").rpartition(".")[2]
                if pid == str(os.getpid()) or pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
                    _remove(path)

    def _outcome(self, jobs: list[Job], stale: list[Job], every: set[str]) -> dict:
        built = [job for job in stale if job.done]
        ok = not self.errors and len(built) == len(stale)
        if ok and not self.options.locked and self.options.profile == "release":
            made = {name: m for job in jobs for name, m in self.state.records[job.path]["result"].items()}
            self.lock.update(self._tools([i for job in jobs for i in job.items]), made, every)
        records = [self.state.records[job.path] for job in jobs if job.path in self.state.records]
        failed = sum(job.failed for job in stale)
        return {"ok": ok, "fresh": len(jobs) - len(stale), "built": len(built), "failed": failed,
                "skipped": len(stale) - len(built) - failed,
                "errors": self.errors, "records": records}


def _plugins(names: set[str]) -> dict[str, str]:
    """The plugin files among some targets, by what is in them."""
    from aot.compile.pjrt import file_sha256
    from aot.targets import parse
    files = {parse(t).plugin for t in names} - {""}
    return {"plugin_" + re.sub(r"[^\w-]", "_", os.path.basename(f), flags=re.ASCII): file_sha256(f)[:16]
            for f in sorted(files) if os.path.isfile(f)}


class TaskError(AotError):
    """A task failed outside of any artifact.  where: on which module; error: the worker's reply."""

    def __init__(self, where: str, error: dict):
        self.where, self.error = where, error
        super().__init__(f"{where}: {error['message']}")


def _remove(path: str) -> None:
    """Remove a folder or file that another build may remove at the same time."""
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _executables(item: dict) -> list[str]:
    return [t for t in item["targets"] if t != "stablehlo" and t not in _files(item)]


def _files(item: dict) -> list[str]:
    """The targets that are files of other formats."""
    return [t for t in item["targets"] if t.partition(":")[0] in targets.FORMATS]


def available_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def clean(manifest: Manifest) -> list[str]:
    """Remove every artifact and record that builds have written -> the files removed."""
    removed = []
    profiles = {*manifest.profiles, *manifests.PROFILES}
    for output in {manifest.output(p) for p in profiles}:
        state = State(manifest.root, output)
        for record in state.records.values():
            for path in record["outputs"]:
                full = os.path.join(manifest.root, path)
                if os.path.isfile(full):
                    os.unlink(full)
                    removed.append(path)
        shutil.rmtree(os.path.join(manifest.root, output, ".aot"), ignore_errors=True)
        for folder in (output, os.path.dirname(output)):
            try:
                os.rmdir(os.path.join(manifest.root, folder)) if folder else None
            except OSError:
                pass  # it holds what builds have not written, or is not there
    return sorted(removed)


def _no_function(name: str, items: list[dict]) -> AotError:
    return AotError(f"{manifests.FILE} has no function {name!r}", hint=f"it has: {', '.join(i['name'] for i in items)}")


def named_program(name: str) -> Any:
    """The program of a function of the manifest here or above, in a process that is set up for it from now on."""
    from aot import binding, marks
    from aot.config import config
    from aot.project.tasks import program_of
    found = manifests.load(manifests.find())
    os.chdir(found.root)
    if found.project.get("as_jax"):
        importlib.import_module("aot.as_jax")
    modules = [binding._import_file(path) for path in found.project.get("modules", [])]
    items = manifests.items(found, entries=[e for m in modules for e in marks.discover(m, found.root)])
    item = next((i for i in items if i["name"] == name), None)
    if item is None:
        raise _no_function(name, items)
    if item["x64"]:
        config.update("enable_x64", True)
    return program_of(item)


def explain(program: Any, target: str, cache: Any) -> dict[str, Any]:
    """`Cache.explain` for a program and a target."""
    from aot.compile import cached
    wanted = targets.require(target)
    text, before = program.lowered.text, dict(os.environ)
    os.environ.update(wanted.environment)  # as in the worker that would compile it
    try:
        return cache.explain(cached.fields_of(text, wanted, program.xla_flags))
    finally:
        os.environ.clear()
        os.environ.update(before)
