"""What workers do: trace and lower one function, compile it for one more target, write one artifact.

Each task is a function of a JSON-like dict in a process of its own.  Intermediate results lie in the task's `stage`
folder: `record.json`, `program.mlirbc`, `PLATFORM.mlir`, `weights`, `golden`, `exec.N` and `exec.N.json`.
"""
from __future__ import annotations

import importlib
import json
import mmap
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aot import artifact, binding, blame, build, cache, manifest, provenance, spec, targets
from aot.errors import AotError
from aot.project import dependencies

Task = dict[str, Any]


def guarded(task: Task) -> dict:
    """Run the task of that name: {"result": ..}, or {"error": {"kind": "user" | "error" | "bug", "message": ..}}."""
    from aot.config import config
    start = time.perf_counter()
    try:
        os.chdir(task["root"])
        binding.import_from(task["root"])
        sys.argv = [sys.argv[0]]
        if task.get("as_jax"):
            importlib.import_module("aot.as_jax")
        if task.get("x64"):
            config.update("enable_x64", True)
        _use_cache(task)
        result = _work(task)
        store = cache.active()
        counts = dict(store.counts) if store else {}
        return {"result": {**result, "seconds": round(time.perf_counter() - start, 3), "cache": counts}}
    except (KeyboardInterrupt, SystemExit, Exception) as e:
        return {"error": blame.describe(e)}


def _work(task: Task) -> dict:
    """What the task asks for: one of TASKS, or "MODULE:FUNCTION" of a package on top of this one."""
    module, colon, name = task["do"].partition(":")
    return getattr(importlib.import_module(module), name)(task) if colon else TASKS[module](task)


def _use_cache(task: Task) -> None:
    from aot.compile import cached
    where = task.get("cache")
    if where is not None:
        cache.use(cache.from_environment(where["directory"], where["offline"]))
    cached.require_hit = bool(task.get("require_hit"))


# ---- a function ----------------------------------------------------------------------------------------------------

def program_of(item: Task) -> build.Program:
    """The program that a resolved manifest item describes."""
    fun = binding.find(item["function"])
    positional, named = _arguments(item)
    weights = _weights(fun, item["weights"])
    as_arguments = item["weights_mode"] == "argument"
    if as_arguments:
        named = {**{k: _types(v) for k, v in weights.items()}, **named}
    return build.Program(fun, positional, named, name=item["name"], weights={} if as_arguments else weights,
                         static=item["static"], transforms=item["transforms"], donate=item["donate"],
                         xla_flags=item["xla_flags"], mesh=item["mesh"], in_shardings=item["in_shardings"],
                         out_shardings=item["out_shardings"])


def _arguments(item: Task) -> tuple[list, dict]:
    named = {k: spec.parse(v) for k, v in item["named"].items()}
    if not isinstance(item["args"], str):
        return [spec.parse(a) for a in item["args"]], named
    found = binding.find(item["args"])()
    if isinstance(found, dict):
        return [], {**{k: _parsed(v) for k, v in found.items()}, **named}
    if not isinstance(found, (list, tuple)):
        raise AotError(f"{item['args']} returned {type(found).__name__}, not the arguments",
                       hint="return a list with one value or spec per argument, or a dict by name")
    return [_parsed(v) for v in found], named


def _parsed(tree: Any) -> Any:
    from aot import tree_util
    return tree_util.tree_map(lambda x: spec.parse(x) if isinstance(x, str) else x, tree)


def _weights(fun: Callable, given: Any) -> dict[str, Any]:
    by_name = {binding.first_parameter(fun): given} if isinstance(given, str) else given
    return {k: spec.load_file(path) for k, path in by_name.items()}


def _types(tree: Any) -> Any:
    from aot import tree_util
    return tree_util.tree_map(lambda x: spec.Array(np.shape(x), np.asarray(x).dtype.name), tree)


def lower(task: Task) -> dict:
    """Trace, lower, compile for the first executable target and record a result; the rest is left to `compile_one`."""
    item, stage, start = task["item"], task["stage"], time.time()
    os.makedirs(stage, exist_ok=True)
    with dependencies.recording(task["root"], task["output"]) as read:
        program = program_of(item)
        record, weights = build.describe_program(program)
        reads = dependencies.snapshot(task["root"], task["output"], read(), start)
    record.base = item["base"] if item["base"] != item["name"] else ""
    record.source = {"function": item["function"], "transforms": item["transforms"],
                     "files": {path: entry[2] for path, entry in sorted(reads["files"].items()) if not os.path.isabs(path)}}
    info = _compile_here(task, program, record) if task["target"] else {}
    if isinstance(item["golden"], list):
        _give_inputs(program, item)
    if item["golden"] and task["target"] and targets.parse(task["target"]).kind in ("cpu", "pjrt"):
        record.golden = build._golden(program, record)
    _save_stage(stage, program, record, weights, item["targets"])
    return {"dependencies": reads, "signature": _signature(record), "compile": info,
            "program": _digest(record.program or b""), "weights": _weights_digest(weights)}


def _digest(data: bytes) -> str:
    from hashlib import sha256
    return sha256(data).hexdigest()


def _weights_digest(weights: dict[str, np.ndarray]) -> str:
    """One hash over names, types and values; empty for a function without weights."""
    from hashlib import sha256
    h = sha256()
    for name, a in sorted(weights.items()):
        h.update(f"{name} {a.dtype.name} {a.shape}\n".encode())
        h.update(np.ascontiguousarray(a).reshape(-1).view(np.uint8).data)
    return h.hexdigest() if weights else ""


def _compile_here(task: Task, program: build.Program, record: artifact.Function) -> dict:
    target = targets.require(task["target"]).over(program.devices)
    built = program.build(target)
    if target.kind == "cpu":
        program.built = built
    return _save_executable(task["stage"], 0, build.as_executable(built, target, program.xla_flags), built.info, target)


def compile_one(task: Task) -> dict:
    """Compile what `lower` wrote for another target."""
    from aot.compile import cached
    target = targets.require(task["target"]).over(task.get("devices", 1))
    with open(os.path.join(task["stage"], f"{target.platform}.mlir")) as f:
        built = cached.build(f.read(), target, task["item"]["xla_flags"])
    exe = build.as_executable(built, target, task["item"]["xla_flags"])
    return {"compile": _save_executable(task["stage"], task["number"], exe, built.info, target)}


def _save_executable(stage: str, n: int, exe: artifact.Executable, info: dict, target: targets.Target) -> dict:
    _write(stage, f"exec.{n}", exe.blob)
    _write(stage, f"exec.{n}.json", json.dumps({k: v for k, v in exe.__dict__.items() if k != "blob"}).encode())
    return {**info, "target": target.name, "size": len(exe.blob), "warning": _too_large(info.get("memory"), target)}


def _too_large(memory: dict | None, target: targets.Target) -> str | None:
    """A warning when the program needs more memory than the chip has."""
    if not memory or not target.memory:
        return None
    needed = sum(memory[k] for k in ("argument", "output", "temp", "generated_code")) - memory["alias"]
    if needed <= target.memory:
        return None
    return (f"needs {needed / 2**30:.1f} GiB, {target.chip} has {target.memory / 2**30:.0f} GiB "
            f"(arguments {memory['argument'] / 2**30:.1f}, temporaries {memory['temp'] / 2**30:.1f})")


def _give_inputs(program: build.Program, item: Task) -> None:
    """Let the recorded result be that of these inputs."""
    given = [spec.parse(text) for text in item["golden"]]
    passed = [a for a in program.bound if not a.weights]
    if len(given) != len(passed):
        raise AotError(f"golden gives {len(given)} inputs, {item['name']} takes {len(passed)} "
                       f"({', '.join(a.name for a in passed)})")
    from aot import tree_util
    for a, value in zip(passed, given):
        want, got = tree_util.tree_structure(a.tree), tree_util.tree_structure(value)
        if want != got:
            raise AotError(f"golden input {a.name} has the structure {got}, not {want}")
        a.tree = value


def _signature(record: artifact.Function) -> str:
    import aot_runtime
    return record.name + aot_runtime._signature(record.__dict__)


# ---- the stage folder ----------------------------------------------------------------------------------------------

_PARTS = ("program", "executables", "golden")


def _write(stage: str, name: str, *parts: Any) -> None:
    try:
        with open(os.path.join(stage, name), "wb") as f:
            f.writelines(parts)
    except OSError as e:
        raise AotError(f"{stage}: cannot be written: {e.strerror or e}") from None


def _save_stage(stage: str, program: build.Program, record: artifact.Function, weights: dict, wanted: Sequence[str]) -> None:
    _write(stage, "record.json", json.dumps({k: v for k, v in record.__dict__.items() if k not in _PARTS}).encode())
    _write(stage, "program.mlirbc", record.program)
    for target in {t.platform: t for t in map(targets.parse, wanted)}.values():
        _write(stage, f"{target.platform}.mlir", program.text(target).encode())
    _write(stage, "weights", *artifact.pack_tensors(weights))
    if record.golden is not None:
        named = {f"{s}.{i}": a for s, arrays in zip(("in", "out"), record.golden) for i, a in enumerate(arrays)}
        _write(stage, "golden", *artifact.pack_tensors(named))


def _read(stage: str, name: str) -> bytes | mmap.mmap:
    with open(os.path.join(stage, name), "rb") as f:
        return mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) if os.fstat(f.fileno()).st_size else b""


def _tensors(stage: str, name: str) -> dict[str, np.ndarray]:
    import aot_runtime
    return aot_runtime.tensors(memoryview(_read(stage, name)), name)


def _load_stage(stage: str, executables: int) -> tuple[artifact.Function, dict[str, np.ndarray]]:
    record = artifact.Function(**json.loads(bytes(_read(stage, "record.json"))))
    record.program = bytes(_read(stage, "program.mlirbc"))
    for n in range(executables):
        about = json.loads(bytes(_read(stage, f"exec.{n}.json")))
        record.executables.append(artifact.Executable(blob=bytes(_read(stage, f"exec.{n}")), **about))
    if os.path.exists(os.path.join(stage, "golden")):
        arrays = _tensors(stage, "golden")
        sides = [[arrays[f"{s}.{i}"] for i in range(sum(k.startswith(s + ".") for k in arrays))] for s in ("in", "out")]
        record.golden = sides[0], sides[1]
    return record, _tensors(stage, "weights")


def assemble(task: Task) -> dict:
    """Write an artifact from the stage folders of its functions."""
    described = [_load_stage(f["stage"], f["executables"]) for f in task["functions"]]
    weights = build.merge_weights(described)
    apart = {p for (record, _), f in zip(described, task["functions"]) if f["separate"]
             for p in record.parameters if isinstance(p, str) and not p.startswith("const")}
    os.makedirs(os.path.dirname(os.path.abspath(task["path"])), exist_ok=True)
    files = artifact.write(task["path"], [record for record, _ in described], weights, apart,
                           provenance.revision(task["root"]))
    return {"size": os.path.getsize(task["path"]), "files": files}


# ---- a module's marks ----------------------------------------------------------------------------------------------

def discover(task: Task) -> dict:
    """The functions that a module marks with `@aot.entry`."""
    from aot import marks
    start = time.time()
    with dependencies.recording(task["root"], task["output"]) as read:
        module = binding._import_file(task["module"])
    found = marks.discover(module, task["root"])
    if not found:
        raise AotError("it marks no function with @aot.entry", hint=f"remove it from `modules` in {manifest.FILE}")
    return {"dependencies": dependencies.snapshot(task["root"], task["output"], read(), start), "entries": found}


def sleep(task: Task) -> dict:
    """Nothing: to try the pool, in tests and by `aot doctor`."""
    time.sleep(task["seconds"])
    return {}


TASKS: dict[str, Callable[[Task], dict]] = {"lower": lower, "compile": compile_one, "assemble": assemble,
                                            "discover": discover, "sleep": sleep}
