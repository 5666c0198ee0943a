"""From a user's function to an artifact: transform, trace, lower, compile, write.

    program = build.Program(binding.find("model.py:predict"), [spec.parse("f32[32,784]")], weights={"params": params})
    build.save("model.aot", [program])

Every step of the command line's `compile` and `trace` is here; the commands only turn options into these calls.
"""
from __future__ import annotations

import inspect
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np

from aot import artifact, blame, partition, pipeline, provenance, spec, targets
from aot.binding import as_positional, bind, function_name
from aot.compile.spmd import device_meshes
from aot.errors import AotError
from aot.sharding import Mesh, NamedSharding, PartitionSpec
from aot.trace import pick

Stage = Callable[[str], AbstractContextManager]


# ---- one function --------------------------------------------------------------------------------------------------

class Program:
    """One function with its argument specs: traced, lowered and compiled on demand.

    args, named: trees of `spec.Array`, `aot.ShapeDtypeStruct`, arrays or Python scalars; weights: parameter name ->
    tree of arrays to store; static: parameter name -> value.  transforms: see `aot.pipeline`; grad, value_and_grad and
    vmap are short forms of the common ones, applied first.  donate: names of arguments whose memory may be reused.
    mesh, in_shardings, out_shardings: a program over several devices, see `aot.partition`; arguments without a rule are
    on every device, results without one are where XLA leaves them.
    """

    def __init__(self, fun: Callable, args: Sequence[Any] = (), named: Mapping[str, Any] | None = None, *,
                 name: str | None = None, weights: Mapping[str, Any] | None = None,
                 static: Mapping[str, Any] | None = None, grad: str | None = None, value_and_grad: str | None = None,
                 vmap: str | None = None, transforms: Iterable[Any] = (), donate: Iterable[str] = (),
                 xla_flags: Mapping[str, Any] | None = None, mesh: str = "",
                 in_shardings: Mapping[str, str] | None = None, out_shardings: Mapping[str, str] | None = None):
        self.fun, self.static = fun, dict(static or {})
        self.bound = bind(fun, args, named or {}, weights or {}, self.static)
        self.name = name or function_name(fun).strip("<>")
        self.xla_flags = dict(xla_flags or {})
        self.donate = set(donate)
        passed = {a.name for a in self.bound if not a.weights}
        if unknown := sorted(self.donate - passed):
            raise AotError(f"{self.name}: donate: there is no argument {unknown[0]!r}",
                           hint=f"there are: {', '.join(sorted(passed)) or 'none'}; stored weights cannot be donated")
        self.mesh = partition.parse_mesh(mesh) if mesh else None
        self.rules = dict(in_shardings or {}), dict(out_shardings or {})
        if any(self.rules) and self.mesh is None:
            raise AotError(f"{self.name}: shardings need a mesh", hint="give one, like data=4,model=2")
        short = {"grad": grad, "value_and_grad": value_and_grad, "vmap": vmap}
        self.transforms = [*({k: v} for k, v in short.items() if v is not None), *transforms]

    @cached_property
    def transformed(self) -> Callable:
        """The function of the bound arguments, after its transforms."""
        return self.transform(self.fun)

    def transform(self, fun: Callable) -> Callable:
        """The same of any function that takes what `fun` does."""
        return pipeline.apply(as_positional(fun, self.bound, self.static), self.transforms, self.bound)

    @cached_property
    def traced(self) -> Any:
        import aot
        donated = tuple(i for i, a in enumerate(self.bound) if a.name in self.donate and not a.weights)
        f = aot.jit(self.transformed, donate_argnums=donated)
        with self.mesh or nullcontext():
            traced = f.trace(*self.abstract_args()).lasting()
        leaves = [a.weights for a in self.bound for _ in _paths(a.tree)]
        return traced.keeping(i for i, weight in enumerate(leaves) if not weight)     # weights without a use are left out

    def abstract_args(self) -> list[Any]:
        """What the transformed function is traced on."""
        return [_abstract(a.tree, a.name) for a in self.bound]

    @property
    def devices(self) -> int: return 1 if self.mesh is None else self.mesh.size

    @cached_property
    def shardings(self) -> tuple[list, list] | None:
        """The sharding or None of each flat argument, and of each result, of a program over several devices."""
        if self.mesh is None:
            return None
        t = self.traced
        names = self.leaf_names(), _output_names(t)
        ins, outs = (partition.assign(rules, {n: a.shape for n, a in zip(own, avals)}, self.mesh, what)
                     for what, rules, own, avals in zip(("in-sharding", "out-sharding"), self.rules, names,
                                                        (t.in_avals, t.out_avals)))
        return [s or NamedSharding(self.mesh, PartitionSpec()) for s in ins], outs

    @cached_property
    def lowered(self) -> Any: return self._lower("cpu")

    def _lower(self, platform: str) -> Any:
        if self.mesh is not None:
            self.traced.shardings = self.shardings
        elif meshes := [m for m in device_meshes(self.traced.entry.jaxpr) if len(m.device_tuple) > 1]:
            count = len(meshes[0].device_tuple)
            axes = ",".join(f"{k}={v}" for k, v in getattr(meshes[0], "shape", {"devices": count}).items())
            raise AotError(f"{self.name} runs on {count} devices", hint=f"give it a mesh, {axes}: --mesh, or mesh in aot.toml")
        return self.traced.lower(lowering_platforms=(platform,))

    def text(self, target: targets.Target) -> str:
        """The program as StableHLO text for the platform of a target."""
        if target.platform == "cpu":
            return self.lowered.text
        return self._lower(target.platform).text

    @cached_property
    def built(self) -> Any:
        """The executable for this process's CPU, serialized and loaded."""
        return self.build(targets.parse("cpu").over(self.devices))

    def build(self, target: targets.Target) -> Any:
        """The executable for a target for which this process is set up."""
        from aot.compile import cached
        return cached.build(self.text(target), target, self.xla_flags)

    @cached_property
    def compiled(self) -> Any:
        from aot.compile.eager import Program as Loaded
        from aot.stages import Compiled
        low = self.lowered
        if self.shardings is not None and self.mesh is not None:
            from aot import xla
            from aot.compile import spmd
            devices = np.array(xla.devices()[:self.devices], dtype=object).reshape(self.mesh.axis_sizes)
            here = Mesh(devices, self.mesh.axis_names)
            ins, outs = ([partition.onto(s, here) for s in side] for side in low.shardings)
            return Compiled(low, spmd.load(self.built.loaded, pick(low.in_avals, low.kept), low.out_avals, here, ins, outs,
                                           low.consts))
        return Compiled(low, Loaded(self.built.loaded, low.out_avals, low.consts, low.text))

    @cached_property
    def bytecode(self) -> bytes:
        """The program as portable StableHLO."""
        from aot import mlir
        return mlir.portable_bytecode(self.lowered.text)

    @property
    def file(self) -> str:
        """The file that defines the function, or nothing."""
        code = getattr(inspect.unwrap(self.fun), "__code__", None)
        return os.path.abspath(code.co_filename) if code and os.path.isfile(code.co_filename) else ""

    @property
    def source(self) -> dict[str, Any]:
        """What the artifact says of where the function comes from."""
        name, file = function_name(self.fun), self.file
        base = os.fsencode(os.path.basename(file)).decode(errors="replace")     # names in other encodings are no JSON
        found = {"function": f"{base}:{name}" if file else name, "transforms": self.transforms, "files": {}}
        if file:
            with open(file, "rb") as f:
                found["files"] = {base: sha256(f.read()).hexdigest()}
        return found

    def leaf_names(self) -> list[str]:
        """`params['w1']`, ... for every flat input, weights included."""
        return [a.name + path for a in self.bound for path, _ in _paths(a.tree)]


def _paths(tree: Any) -> list[tuple[str, Any]]:
    from aot import tree_util
    return [(tree_util.keystr(path), leaf) for path, leaf in tree_util.tree_flatten_with_path(tree)[0]]


def _abstract(tree: Any, name: str) -> Any:
    """Specs as the values that `jit(f).trace` takes: ShapeDtypeStructs, arrays and scalars."""
    from aot import tree_util
    return tree_util.tree_map(lambda x: _struct(x, name) if isinstance(x, spec.Array) else x, tree)


def _struct(a: spec.Array, name: str) -> Any:
    import aot
    from aot import dtypes
    from aot.config import config
    if a.dtype == "key":
        return aot.ShapeDtypeStruct(a.shape, aot.eval_shape(lambda: aot.random.key(0)).dtype)
    dtype = dtypes.as_dtype(a.dtype)
    if dtype.itemsize in (8, 16) and dtypes.canonicalize_dtype(dtype) != dtype and not config.enable_x64:
        raise AotError(f"{name}: {a.dtype} needs 64-bit types, which are off",
                       hint="set AOT_ENABLE_X64=1, or x64 = true in aot.toml")
    return aot.ShapeDtypeStruct(a.shape, dtype)


# ---- describing and writing ----------------------------------------------------------------------------------------

def describe(program: Program, targets_: Sequence[str] = ("cpu",), golden: bool = True,
             stage: Stage = nullcontext) -> tuple[artifact.Function, dict[str, np.ndarray]]:
    """Compile one function: its artifact record and the weights that it needs.

    stage: called with what is being done, as a context manager.  Raises AotError for an unknown target.
    """
    wanted = [targets.require(t).over(program.devices) for t in targets.distinct(targets_)]
    if files := [t.name for t in wanted if t.is_file]:
        raise AotError(f"{files[0]} is a file of its own, not a part of an artifact",
                       hint="`aot export` writes it, or `aot build`")
    record, weights = describe_program(program, stage)
    for target in wanted:
        if target.kind != "stablehlo":
            with stage(f"compiling {program.name} for {target.name}"):
                record.executables.append(executable(program, target))
    if golden and any(t.kind in ("cpu", "pjrt") for t in wanted):
        with stage(f"recording a result of {program.name}"):
            record.golden = _golden(program, record)
    return record, weights


def describe_program(program: Program, stage: Stage = nullcontext) -> tuple[artifact.Function, dict[str, np.ndarray]]:
    """The record without executables: signature and portable StableHLO; and the weights."""
    with stage(f"tracing {program.name}"):
        lowered = program.lowered
    record, weights = _record(program, lowered)
    with stage(f"writing StableHLO of {program.name}"):
        record.program = program.bytecode
        version = re.search(rb"StableHLO_v([\d.]+)", record.program[:64])
        record.stablehlo = version[1].decode() if version else ""
    return record, weights


def save(path: str | os.PathLike, programs: Sequence[Program], targets: Sequence[str] = ("cpu",), *,
         golden: bool = True, stage: Stage = nullcontext) -> None:
    """Compile the functions and write them to one artifact.  Raises AotError; user code's exceptions pass through."""
    described = [describe(program, targets, golden, stage) for program in programs]
    with stage(f"writing {os.fspath(path)}"):
        sources = [os.path.dirname(file) for p in programs if (file := p.file)]
        artifact.write(path, [record for record, _ in described], merge_weights(described),
                       revision=provenance.revision(sources[0]) if sources else None)


def prepare_devices(count: int) -> None:
    """Let this process's CPU be as many devices as a program runs on; has an effect only before XLA starts."""
    if count > 1:
        os.environ.update(targets.parse("cpu").over(count).environment)


def merge_weights(described: Iterable[tuple[artifact.Function, dict[str, np.ndarray]]]) -> dict[str, np.ndarray]:
    """The weights of all functions of an artifact; equal names of different arrays get the function's name in front."""
    weights: dict[str, np.ndarray] = {}
    for record, own in described:
        for name in [k for k in own if k in weights and not _same(weights[k], own[k])]:
            fresh = f"{record.name}.{name}"
            own[fresh] = own.pop(name)
            record.parameters = [fresh if p == name else p for p in record.parameters]
        weights |= own
    return weights


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a is b or a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _record(program: Program, lowered: Any) -> tuple[artifact.Function, dict[str, np.ndarray]]:
    """The signature part of the record, and the arrays of its leading parameters and bound weights."""
    parameters: list[int | str] = [f"const{i}" for i in range(len(lowered.consts))]
    weights = {f"const{i}": np.asarray(c) for i, c in enumerate(lowered.consts)}
    arguments, inputs, unused = [], [], []
    kept = {*pick(range(len(lowered.in_avals)), lowered.kept)}
    ins, outs = program.shardings or ([None] * len(lowered.in_avals), [None] * len(lowered.out_avals))
    leaves = zip(itertools.count(), lowered.in_avals, lowered.donated, ins)
    for a in program.bound:
        for path, leaf in _paths(a.tree):
            position, aval, given_up, sharding = next(leaves)
            if a.weights:
                name = (a.name + path).replace("']['", ".").replace("['", ".").replace("']", "")
                if position not in kept:
                    unused.append(name)
                    continue
                weights[name] = np.asarray(_plain(leaf), aval.physical.dtype)
                parameters.append(name)
            else:
                parameters.append(len(inputs))
                inputs.append({**artifact.describe_array(a.name + path, aval.shape, aval.dtype),
                               **({"donated": True} if given_up else {}), **_described(sharding, aval)})
        if not a.weights:
            arguments.append({"name": a.name, "tree": _tree(a.tree, a.name),
                              **({"keyword": True} if a.keyword else {})})
    outputs = [{**artifact.describe_array(n, v.shape, v.dtype), **_described(s, v)}
               for n, v, s in zip(_output_names(lowered), lowered.out_avals, outs)]
    record = artifact.Function(program.name, arguments, inputs, outputs,
                               artifact.describe_tree(lowered.out_tree, f"{program.name}: result"), parameters,
                               xla_flags=program.xla_flags, custom_calls=_custom_calls(program, lowered.text),
                               static={k: repr(v) for k, v in program.static.items()}, source=program.source,
                               mesh=[list(axis) for axis in program.mesh.shape.items()] if program.mesh else [],
                               unused_weights=unused)
    return record, weights


def _described(sharding: Any, aval: Any) -> dict:
    return {} if sharding is None else {"sharding": partition.described(sharding, len(aval.shape))}


def _tree(tree: Any, where: str) -> Any:
    from aot import tree_util
    return artifact.describe_tree(tree_util.tree_structure(tree), where)


def _output_names(lowered: Any) -> list[str]:
    return ["result" + path for path, _ in _paths(lowered.out_tree.unflatten(range(lowered.out_tree.num_leaves)))]


def _custom_calls(program: Program, text: str) -> list[str]:
    """Targets of the program's custom calls.  Python callbacks cannot be stored."""
    found = sorted(set(re.findall(r"custom_call @(\w+)", text)))
    if any("python" in name and "callback" in name for name in found):
        from aot import check
        places = dict.fromkeys(f"\n  {place}: {kind}" for place, kind in check.callbacks(program.traced.entry.jaxpr))
        hint = "remove debug prints and callbacks from the function"
        if "equinox" in sys.modules:
            hint += ("; checks while the program runs, of equinox and of what is built on it (diffrax, lineax, ...), are "
                     "callbacks unless EQX_ON_ERROR=nan is in the environment")
        raise AotError(f"{program.name} calls back into Python, which an artifact cannot contain{''.join(places)}", hint=hint)
    return found


def executable(program: Program, target: targets.Target) -> artifact.Executable:
    """Compile for a target, and what the result needs of its host.  Other targets than `cpu` get a worker process."""
    if target.name != "cpu":     # several devices of this host are made by flags, which `cpu` finds in its own process
        from aot.project.pool import compile_elsewhere
        return compile_elsewhere(program.text(target), target, program.xla_flags)
    return as_executable(program.built, target, program.xla_flags)


def as_executable(built: Any, target: targets.Target, xla_flags: dict) -> artifact.Executable:
    host, info = artifact.host_info(), built.info
    name, cpu = target.name, target.kind == "cpu"
    if target.kind == "pjrt":
        from aot.compile import pjrt
        name, cpu = pjrt.label(target), info["device"] == "cpu"
    return artifact.Executable(
        name, built.blob, platform=info["platform"], machine=host["machine"] if cpu else "",
        cpu_features=info["cpu_features"], jaxlib=host["jaxlib"], jaxlib_build=host["jaxlib_build"],
        xla_flags=xla_flags, device_kind="" if target.kind in ("cpu", "pjrt") else target.chip, memory=info.get("memory"),
        flops=info.get("flops"), devices=target.devices, collectives=info.get("collectives"), plugin=info.get("plugin", ""),
        plugin_api=info.get("plugin_api", ""))


def _golden(program: Program, record: artifact.Function) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Inputs (the given values, otherwise fixed random numbers) and what the compiled function makes of them."""
    try:
        return _run_once(program, record)
    except Exception as e:
        if not blame.is_out_of_memory(e):
            raise
        raise AotError(f"{program.name}: there is not enough memory to run it and record a result",
                       hint="leave that out: --no-golden, or golden = false in aot.toml") from None


def _run_once(program: Program, record: artifact.Function) -> tuple[list[np.ndarray], list[np.ndarray]]:
    from aot import tree_util
    rng = np.random.default_rng(0)
    entries, avals = iter(record.inputs), iter(program.lowered.in_avals)
    inputs, args = [], []
    for a in program.bound:
        leaves, treedef = tree_util.tree_flatten(a.tree)
        for i, leaf in enumerate(leaves):
            aval = next(avals)
            if not a.weights:
                inputs.append(_sample(leaf, next(entries), rng))
                leaves[i] = _as_argument(inputs[-1], aval.dtype)
        args.append(treedef.unflatten(leaves))
    outputs = [_plain(y) for y in tree_util.tree_leaves(program.compiled(*args))]
    return inputs, outputs


def _sample(leaf: Any, entry: dict, rng: np.random.Generator) -> np.ndarray:
    """The value that was given for an input, or a random one.  Integers are small, to be indices of anything."""
    from aot import dtypes
    data = entry.get("data", entry)
    dtype, shape = dtypes.as_dtype(data["dtype"]), tuple(data["shape"])
    if hasattr(leaf, "__array__") or isinstance(leaf, (bool, int, float, complex)):
        return _plain(leaf).astype(dtype)
    if "data" in entry:
        return rng.integers(0, 1 << 32, shape, np.uint32)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtypes.issubdtype(dtype, np.integer):
        return rng.integers(0, 4 if dtypes.itemsize_bits(dtype) > 2 else 2, shape).astype(dtype)
    noise = rng.standard_normal(shape)
    return np.asarray(noise + 1j * rng.standard_normal(shape) if dtype.kind == "c" else noise).astype(dtype)


def _as_argument(x: np.ndarray, dtype: Any) -> Any:
    import aot
    return x if isinstance(dtype, np.dtype) else aot.random.wrap_key_data(x, impl=dtype.impl.name)


def _plain(x: Any) -> np.ndarray:
    """A result as a numpy array: random keys as their data."""
    import aot
    from aot import dtypes
    return np.asarray(aot.random.key_data(x) if dtypes.is_extended(getattr(x, "dtype", None)) else x)
