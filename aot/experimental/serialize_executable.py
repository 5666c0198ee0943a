"""Compiled functions as bytes, for processes on machines like this one: an `.aot` artifact that holds the executable alone.

What is for other machines too is `aot.export`, or an artifact of `aot compile`.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aot import artifact, cache, xla
from aot.config import override
from aot.exported_files import aval_of
from aot.layout import LaidOut, Layout
from aot.sharding import Mesh
from aot.stages import Compiled, Lowered, arguments_info
from aot.trace import ShapedArray, pick
from aot.traced import described
from aot.tree_util import PyTreeDef
from aot_runtime import Artifact, ArtifactError, misfit


def serialize(compiled: Compiled) -> tuple[bytes, PyTreeDef, PyTreeDef]:
    """-> (the executable with its types and constants, the structure of the arguments, that of the result).

    Raises ValueError for a program that calls back into Python."""
    stage, program = compiled.lowered, compiled.program
    if isinstance(stage, Lowered):
        stage.traced.lasting()
    if stage.mesh is not None and xla.is_absent(stage.mesh.device_tuple[0]):
        raise ValueError(f"{stage.fun_name} was compiled for devices that are not here, which have loaders of their own. hint: "
                         "compiled.runtime_executable().serialize() has its code; `aot compile --target` writes an artifact")
    if program.callbacks:
        raise ValueError(f"{stage.fun_name} calls back into Python, which bytes cannot contain. hint: remove debug prints and "
                         "callbacks from it")
    devices = [xla.default_device()] if stage.mesh is None else list(stage.mesh.device_tuple)
    weights = {f"const{i}": np.asarray(w) for i, w in enumerate(stage.consts)}
    given = dict.fromkeys(pick(range(len(stage.in_avals)), stage.kept))
    arguments = _entries("args", stage.in_avals)
    about = {"fun_name": stage.fun_name, "devices": [d.id for d in devices], "donated": list(stage.donated),
             "weak": [[i for i, a in enumerate(avals) if a.weak_type] for avals in (stage.in_avals, stage.out_avals)]}
    if unused := {str(i): a for i, a in enumerate(arguments) if i not in given}:
        about["unused"] = unused
    inputs = [arguments[i] for i in given]
    record = artifact.Function(
        "call", [{"name": x["name"], "tree": "*"} for x in inputs], inputs,
        _entries("result", stage.out_avals), {"tuple": ["*"] * len(stage.out_avals)},
        [*weights, *range(len(inputs))], source={"serialized": about},
        executables=[artifact.Executable.for_this_host("cpu", _code(compiled), devices=len(devices))],
        mesh=[] if stage.mesh is None else [list(axis) for axis in stage.mesh.shape.items()])
    return artifact.as_bytes([record], weights), stage.in_tree, stage.out_tree


def _code(compiled: Compiled) -> bytes:
    """The executable's bytes.  XLA leaves out the code of one that came from bytes itself, as from the persistent cache."""
    stage = compiled.lowered
    if isinstance(stage, _Stage):
        return stage.code
    if cache.active() is not None:
        with override("enable_compilation_cache", False):
            compiled = stage.compile(compiled.options)
    return xla.serialize(compiled.program.executable)


def _entries(name: str, avals: Sequence[ShapedArray]) -> list[dict]:
    return [artifact.describe_array(f"{name}[{i}]", a.shape, a.dtype) for i, a in enumerate(avals)]


def deserialize_and_load(serialized: bytes, in_tree: PyTreeDef, out_tree: PyTreeDef, backend: Any = None,
                         execution_devices: Sequence[Any] | None = None) -> Compiled:
    """What `serialize` gave, as a compiled function again.

    execution_devices: as many as it was compiled for, instead of those with the same ids.  Raises ArtifactError for other
    bytes, and where this host is not like the one that compiled it; ValueError for too few devices or other structures."""
    read = Artifact(serialized)
    try:
        record = read.manifest["functions"]["call"]
        about, executable = record["source"]["serialized"], record["executables"][0]
        unused, used = {int(i): x for i, x in about.get("unused", {}).items()}, iter(record["inputs"])
        arguments = [unused[i] if i in unused else next(used) for i in range(len(unused) + len(record["inputs"]))]
        avals = [[aval_of(x, i in weak) for i, x in enumerate(side)]
                 for side, weak in zip((arguments, record["outputs"]), about["weak"])]
        ids, donated = about["devices"], tuple(about["donated"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, StopIteration):
        raise ArtifactError("an artifact, but not one that `serialize` wrote", where=read.path) from None
    if why := misfit(executable):
        raise ArtifactError(f"the executable does not fit this host: {why}", where=read.path,
                            hint="compile it here, or keep the program with aot.export")
    if (in_tree.num_leaves, out_tree.num_leaves) != tuple(map(len, avals)):
        raise ValueError(f"the structures {in_tree} and {out_tree} do not have {len(avals[0])} and {len(avals[1])} leaves, as "
                         "the arguments and results do. hint: pass those that serialize gave")
    devices = _devices(ids, execution_devices)
    weights = [read.weights()[p] for p in record["parameters"] if isinstance(p, str)]
    kept = tuple(i for i in range(len(arguments)) if i not in unused) if unused else None
    code = bytes(read.member(executable["member"]))
    stage = _Stage(about["fun_name"], in_tree, out_tree, avals[0], avals[1], donated, _mesh(record.get("mesh", ()), devices),
                   weights, code, kept)
    return Compiled(stage, _program(stage, xla.deserialize(code, devices)))


@dataclass
class _Stage:
    """What `Compiled` asks of the stage before."""
    fun_name: str
    in_tree: PyTreeDef
    out_tree: PyTreeDef
    in_avals: list[ShapedArray]
    out_avals: list[ShapedArray]
    donated: tuple[bool, ...]
    mesh: Mesh | None
    consts: list[np.ndarray]
    code: bytes
    kept: tuple[int, ...] | None

    out_info = property(lambda self: described(self.out_tree, self.out_avals))
    args_info = property(arguments_info)


def _devices(ids: Sequence[int], given: Sequence[Any] | None) -> list:
    here = {d.id: d for d in xla.devices()}
    if given is None and (missing := [i for i in ids if i not in here]):
        raise ValueError(f"the program was compiled for the devices {list(ids)}, of which {missing} are not here. hint: pass "
                         "execution_devices=, or set XLA_FLAGS=--xla_force_host_platform_device_count=N")
    if given is not None and len(given) != len(ids):
        raise ValueError(f"the program was compiled for {len(ids)} devices, execution_devices has {len(given)}")
    return list(given) if given is not None else [here[i] for i in ids]


def _mesh(axes: Sequence, devices: list) -> Mesh | None:
    """None for the first device alone."""
    if axes:
        return Mesh(np.array(devices, dtype=object).reshape([n for _, n in axes]), [name for name, _ in axes])
    return None if devices == [xla.default_device()] else Mesh(np.array(devices, dtype=object), ("devices",))


def _program(stage: _Stage, executable: Any) -> Any:
    """Layouts on devices and in memory are those that the executable has."""
    if stage.mesh is None:
        from aot.compile.eager import Program
        return Program(executable, stage.out_avals, stage.consts)
    from aot.compile import spmd
    as_compiled, given = LaidOut(None, Layout.AUTO), pick(stage.in_avals, stage.kept)
    return spmd.load(executable, given, stage.out_avals, stage.mesh, [as_compiled] * len(given),
                     [as_compiled] * len(stage.out_avals), stage.consts)


__all__ = ["deserialize_and_load", "serialize"]
