"""What can be compiled for: the grammar of targets and the table of chips.

    cpu                                  this host
    cpu:x86-64-v2 | v3 | v4              any x86-64 CPU of this level
    cuda:h100, cuda:sm_90, ...           an NVIDIA GPU, which need not be here (extra `cuda`)
    tpu:v5e:2x2, tpu:v6e, ...            a TPU topology, which need not be here (extra `tpu`)
    pjrt:PATH, pjrt:PATH:x86-64-v3       the PJRT plugin in that file, for loaders that use the same file
    onnx, onnx:OPSET                     a file next to the artifact (projects only; extra `onnx`)
    tflite, tflite:2.14, tflite:float16  the same (extra `tflite`); for an older runtime, with half-precision weights
    stablehlo                            only the portable program, which every artifact contains
"""
from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod
from typing import Any

from aot.errors import AotError


@dataclass(frozen=True)
class Target:
    """One target.  name: its canonical text; memory: bytes of one device, 0 if unknown; plugin: file of a `pjrt` target;
    devices: over which a program is partitioned; options: of the export to a file."""
    name: str
    kind: str
    chip: str = ""
    memory: int = 0
    isa: str = ""
    features: tuple[str, ...] = ()
    config: str = field(default="", repr=False)
    topology: str = ""
    plugin: str = ""
    devices: int = 1
    options: dict[str, Any] = field(default_factory=dict, hash=False, compare=False)

    @property
    def is_file(self) -> bool:
        """Whether it is a file of another format, not an executable."""
        return self.kind in FORMATS

    @property
    def file_suffix(self) -> str:
        """How the name of that file ends: `.onnx`, or `-26.onnx` where the target has an option."""
        _, _, option = self.name.partition(":")
        return (option and "-" + option) + "." + self.kind

    @property
    def platform(self) -> str:
        """The platform that programs are lowered for."""
        return self.kind if self.kind in ("cuda", "tpu") else "cpu"

    @property
    def environment(self) -> dict[str, str]:
        """Variables that must be set before XLA starts: its ISA limit holds for a whole process."""
        flags = [f"--xla_cpu_max_isa={self.isa}"] if self.isa else []
        if self.kind == "cpu" and self.devices > 1:
            flags.append(f"--xla_force_host_platform_device_count={self.devices}")
        if flags:
            return {"XLA_FLAGS": " ".join(filter(None, (os.environ.get("XLA_FLAGS", ""), *flags)))}
        if self.kind == "tpu":
            return {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
        return {}

    def over(self, devices: int) -> Target:
        """The same for a program that is partitioned over several devices.  Raises AotError where it has fewer."""
        if devices == 1:
            return self
        if self.kind == "pjrt":
            raise AotError(f"{self.name}: programs over several devices are not supported for plugins",
                           hint="choose cpu, cuda or tpu targets")
        if self.kind == "tpu" and devices > (here := prod(int(n) for n in self.topology.partition(":")[2].split("x"))):
            raise AotError(f"the mesh has {devices} devices, {self.name} has {here}",
                           hint=f"name a larger topology, like {self.name.rpartition(':')[0]}:4x4")
        topology = f"1x1x{devices}" if self.kind == "cuda" else self.topology
        return replace(self, devices=devices, topology=topology)


GIB = 1 << 30
_V2 = ("cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3")
_V3 = (*_V2, "abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
#: level -> (XLA's name of the instruction set, what it needs by the names of /proc/cpuinfo)
CPU_LEVELS = {"x86-64-v2": ("SSE4_2", _V2), "x86-64-v3": ("AVX2", _V3), "x86-64-v4": ("AVX512", _V4)}

#: chip -> description, compute capability, multiprocessors, memory, bandwidth (bytes/s), L2, GHz, shared memory of a
#: multiprocessor and of a block that asks for it, threads and FP32 lanes of a multiprocessor
GPUS = {
    "a100":    ("A100 80GB", (8, 0), 108, 85_094_825_984, 2_039_000_000_000, 41_943_040, 1.41, 167_936, 166_912, 2048, 64),
    "h100":    ("H100", (9, 0), 132, 84_978_434_048, 3_352_320_000_000, 52_428_800, 1.98, 233_472, 232_448, 2048, 128),
    "h200":    ("H200", (9, 0), 132, 150_109_880_320, 4_800_000_000_000, 62_914_560, 1.98, 233_472, 232_448, 2048, 128),
    "b200":    ("B200", (10, 0), 148, 191_500_000_000, 7_700_000_000_000, 132_120_576, 1.965, 233_472, 232_448, 2048, 128),
    "l4":      ("L4", (8, 9), 58, 23_609_475_072, 300_000_000_000, 50_331_648, 2.04, 102_400, 101_376, 1536, 128),
    "rtx4090": ("RTX 4090", (8, 9), 128, 25_386_352_640, 1_008_000_000_000, 75_497_472, 2.52, 102_400, 101_376, 1536, 128),
}
GPU_ALIASES = {"sm_80": "a100", "sm_89": "l4", "sm_90": "h100", "sm_100": "b200"}

#: format of exported files -> package that it needs ("" for none), and the options that may follow a colon
FORMATS: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "onnx": ("onnx", {str(v): {"opset": v} for v in range(18, 29)}),
    "tflite": ("ai_edge_litert", {"2.14": {"runtime": "2.14"}, "float16": {"quantize": "float16"}}),
    "c": ("", {"file": {"weights": "file"}}),
}

#: generation -> (topology of one host, memory of one device, number of axes)
TPUS = {"v4": ("2x2x1", 16 * GIB, 3), "v5e": ("2x2", 16 * GIB, 2), "v5p": ("2x2x1", 95 * GIB, 3),
        "v6e": ("2x2", 32 * GIB, 2)}


def parse(text: str) -> Target:
    """The target of a text.  Raises AotError that lists what there is."""
    return _parse(absolute(text))


def absolute(text: str, folder: str = "") -> str:
    """The text with the path of a plugin made absolute, from the folder or else from the current one."""
    if not text.startswith("pjrt:"):
        return text
    path, level = _split_level(text.removeprefix("pjrt:"))
    return f"pjrt:{os.path.abspath(os.path.join(folder, os.path.expanduser(path)))}{level and ':' + level}"


def distinct(texts: Iterable[str], folder: str = "") -> list[str]:
    """The texts as `absolute` has them, without those that name a target again.  Raises AotError for an unknown one."""
    return list({_parse(t).name: t for t in (absolute(t, folder) for t in texts)}.values())


def _split_level(text: str) -> tuple[str, str]:
    path, _, level = text.rpartition(":")
    return (path, level) if level in CPU_LEVELS else (text, "")


@cache
def _parse(text: str) -> Target:
    kind, _, rest = text.partition(":")
    if kind == "pjrt" and rest:
        path, level = _split_level(rest)
        isa, features = CPU_LEVELS.get(level, ("", ()))
        return Target(text, kind, level, 0, isa, features, plugin=path)
    rest = rest.lower()
    if text in ("cpu", "stablehlo"):
        return Target(text, text)
    if kind == "cpu" and rest in CPU_LEVELS:
        isa, features = CPU_LEVELS[rest]
        return Target(text, "cpu", rest, 0, isa, features)
    if kind == "cuda" and GPU_ALIASES.get(rest, rest) in GPUS:
        return _gpu(f"cuda:{rest}", GPU_ALIASES.get(rest, rest))
    if kind == "tpu" and rest.partition(":")[0] in TPUS:
        return _tpu(*rest.partition(":")[::2])
    if kind in FORMATS and (rest in FORMATS[kind][1] or text == kind):
        return Target(text, kind, rest, options=FORMATS[kind][1].get(rest, {}))
    known = {"cpu": CPU_LEVELS, "cuda": [*GPUS, *GPU_ALIASES], "tpu": TPUS, **{k: v[1] for k, v in FORMATS.items()}}.get(kind)
    if known is None:
        raise AotError(f"unknown target {text!r}",
                       hint="targets are cpu, cpu:x86-64-v3, cuda:CHIP, tpu:GENERATION, pjrt:PATH, stablehlo, onnx, tflite and "
                            "c; `aot targets` lists them")
    raise AotError(f"unknown target {text!r}", hint="there are: " + ", ".join(f"{kind}:{k}" for k in known))


def _gpu(name: str, chip: str) -> Target:
    label, (major, minor), cores, memory, bandwidth, l2, clock, shared, optin, threads, lanes = GPUS[chip]
    config = f"""gpu_device_info {{ threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
 shared_memory_per_core: {shared} threads_per_core_limit: {threads} core_count: {cores} fpus_per_core: {lanes}
 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535 memory_bandwidth: {bandwidth}
 l2_cache_size: {l2} clock_rate_ghz: {clock} device_memory_size: {memory} shared_memory_per_block_optin: {optin}
 cuda_compute_capability {{ major: {major} minor: {minor} }} registers_per_core_limit: 65536
 registers_per_block_limit: 65536 }} platform_name: "CUDA" dnn_version_info {{ major: 9 minor: 8 }}
 runtime_version {{ major: 12 minor: 8 }} device_description_str: "{label}" """
    return Target(name, "cuda", label, memory, config=config, topology="1x1x1")


def _tpu(generation: str, topology: str) -> Target:
    default, memory, axes = TPUS[generation]
    topology = topology or default
    sizes = topology.split("x")
    if len(sizes) != axes or not all(s.isdigit() and int(s) for s in sizes):
        raise AotError(f"tpu:{generation}:{topology} is not a topology of {generation}",
                       hint=f"it has {axes} axes, for example tpu:{generation}:{default}")
    return Target(f"tpu:{generation}:{topology}", "tpu", f"TPU {generation}", memory, topology=f"{generation}:{topology}")


# ---- what this machine can build for -------------------------------------------------------------------------------

def unavailable(target: Target) -> tuple[str, str] | None:
    """(why, hint) when this machine cannot build for the target, else None."""
    if target.isa:
        from aot_runtime import host_info
        host = host_info()
        if host["machine"] not in ("x86_64", "AMD64"):
            return f"this machine is {host['machine']}", "build it on an x86-64 machine"
        missing = [f for f in target.features if f not in (host["cpu_features"] or ())]
        if missing:
            return f"this CPU lacks {', '.join(missing)}", "build it on a CPU of this level"
    if target.plugin and not os.path.isfile(target.plugin):
        return f"there is no file {target.plugin}", "pjrt:PATH names the shared library of a PJRT plugin"
    package = FORMATS[target.kind][0] if target.is_file else ""
    if package and importlib.util.find_spec(package) is None:
        return f"the package {package} is not installed", f"pip install 'aotc[{target.kind}]'"
    if target.kind in ("cuda", "tpu") and plugin_path(target.kind) is None:
        from aot_runtime import PLUGINS
        return f"{PLUGINS[target.kind][0]} is not installed", f"pip install 'aotc[{target.kind}]'"
    return None


def require(name: str) -> Target:
    """The target, if this machine can build for it.  Raises AotError with what to install."""
    target = parse(name)
    if found := unavailable(target):
        raise AotError(f"cannot build for {name}: {found[0]}", hint=found[1])
    return target


def plugin_path(kind: str) -> str | None:
    """The shared library of the PJRT plugin that compiles for a kind of target, as the loader finds it."""
    import aot_runtime  # numpy comes with it, which a build that has nothing to do should not load
    return aot_runtime.plugin_path(kind)


def names() -> list[str]:
    """One name for every row of the tables."""
    return ["cpu", *(f"cpu:{k}" for k in CPU_LEVELS), *(f"cuda:{k}" for k in GPUS),
            *(f"tpu:{k}:{v[0]}" for k, v in TPUS.items()), "stablehlo", *FORMATS]
