"""Compiling and running programs over several devices."""
from __future__ import annotations

from functools import lru_cache
from typing import Any, Sequence

import numpy as np

from aot import xla
from aot.array import Array, as_physical, to_buffer
from aot.compile import cached
from aot.layout import Format, LaidOut, Layout, mode, placement, settled
from aot.lower.emitter import Module
from aot.sharding import (
    AbsentDevice,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
    TiledSharding,
    are_same_devices,
    get_mesh,
    spec_from_tiles,
)
from aot.trace import Eqn, Jaxpr, ShapedArray, Var, subjaxprs, typeof


class PartitionedProgram:
    """An executable over several devices, with the layout of every argument and result."""

    def __init__(self, executable, mesh: Mesh, in_avals, in_shardings, out_avals, out_shardings, weights, callbacks):
        self.executable, self.mesh, self.in_shardings, self.out_avals = executable, mesh, in_shardings, list(out_avals)
        self.out_shardings, self.callbacks = out_shardings, callbacks
        self.storage = [xla.storage(a) for a in out_avals]
        everywhere = from_tiles(mesh, None)
        layouts = lambda avals, shardings: [xla.buffer_sharding(s, xla.storage(a).ndim) for a, s in zip(avals, shardings)]
        self.layouts = (layouts(map(typeof, weights), [everywhere] * len(weights)) + layouts(in_avals, in_shardings),
                        layouts(out_avals, out_shardings))
        self.handlers = [xla.result_handler(a, s) for a, s in zip(self.storage, self.layouts[1])]
        self.weights = [place(w, typeof(w), everywhere) for w in weights]

    def placed(self, leaves: Sequence, avals: Sequence[ShapedArray]) -> list:
        """The buffers of arguments, laid out as the program wants them."""
        return [place(x, a, s) for x, a, s in zip(leaves, avals, self.in_shardings)]

    def run_buffers(self, buffers: list) -> list:
        """Device buffers in, device buffers out.  A program with callbacks is waited for."""
        xla.collect_garbage()
        outs = self.executable.execute_sharded([*self.weights, *buffers]).consume_with_handlers(self.handlers)
        for b in outs if self.callbacks else ():
            b.block_until_ready()
        return outs

    def run(self, buffers: list) -> list[Array]:
        """Device buffers in, Arrays out."""
        return [Array(b, a) for b, a in zip(self.run_buffers(buffers), self.out_avals)]


class AbsentProgram(PartitionedProgram):
    """An executable for devices that are not here."""

    def __init__(self, executable, mesh: Mesh, in_avals, in_shardings, out_avals, out_shardings, weights, callbacks):
        self.executable, self.mesh, self.in_shardings, self.out_avals = executable, mesh, in_shardings, list(out_avals)
        self.out_shardings, self.weights, self.callbacks = out_shardings, weights, callbacks

    def placed(self, leaves: Sequence, avals: Sequence[ShapedArray]) -> list:
        """Raises RuntimeError: nothing can be put on these devices."""
        kind = self.mesh.device_tuple[0].device_kind
        raise RuntimeError(f"the function was compiled for {kind} devices that are not here, and cannot be called. "
                           "hint: `compiled.runtime_executable().serialize()` has its code; `aot compile --target` writes an "
                           "artifact that such a machine loads")


def place(x: Any, aval: ShapedArray, sharding: Sharding) -> Any:
    """The buffer of x laid out as `sharding` says."""
    if type(x) is Array and x.placement == sharding:
        return x.buf
    if isinstance(sharding, LaidOut):
        program = program_of(_identity(aval), "lay_out", (), [sharding.bare], [sharding])
        return program.run_buffers([place(x, aval, sharding.bare)])[0]
    if xla.is_absent(sharding.device_tuple[0]):
        raise RuntimeError(f"an array cannot be put on {sharding.device_tuple[0].device_kind} devices, which are not here. "
                           "hint: lower for a ShapeDtypeStruct, and compile")
    if xla.is_default(sharding):
        return to_buffer(x, aval, sharding.device_tuple[0])
    value = as_physical(x, aval)
    if len(sharding.device_tuple) == 1:
        return xla.put(value, xla.storage(aval), xla.default_sharding(sharding.device_tuple[0]))
    index = sharding.addressable_devices_indices_map(aval.shape)
    mine = [d for d in sharding.device_tuple if d in index]
    return xla.put_shards([value[index[d]] for d in mine], xla.storage(aval), sharding)


@lru_cache(maxsize=256)
def _identity(aval: ShapedArray) -> Jaxpr:
    x = Var(aval)
    return Jaxpr([x], [], [x])


def device_meshes(jaxpr: Jaxpr) -> list:
    """Every mesh (or other sharding over several devices) that the equations name."""
    def find():
        out = []
        for e in jaxpr.eqns:
            if e.primitive.name in ("shard_map", "call_exported_partitioned"):
                out.append(e.params["mesh"])
            elif e.primitive.name == "sharding_constraint":
                s = e.params["sharding"]
                out.append(s.mesh if isinstance(s, NamedSharding) else s)
            for sub in subjaxprs(e.params):
                out += device_meshes(sub)
        return out
    return jaxpr.memo("meshes", find)


def resolve(sharding: Any, what: str) -> Sharding | None:
    """A user's sharding argument: a Sharding, a Format, a PartitionSpec with a mesh in scope, a device, or None."""
    if isinstance(sharding, NamedSharding) and sharding.mesh.empty:     # that of a type, where no mesh is set
        return None
    if isinstance(sharding, NamedSharding) and not isinstance(sharding.mesh, Mesh):
        here = get_mesh()
        if here is None or here.shape != sharding.mesh.shape:
            raise ValueError(f"{what} got a sharding over {sharding.mesh}, which has no devices, where the mesh is {here}. "
                             "hint: set a Mesh of that shape, as by `with aot.set_mesh(mesh):`")
        return NamedSharding(here, sharding.spec, memory_kind=sharding.memory_kind)
    if sharding is None or isinstance(sharding, Sharding):
        return sharding
    if isinstance(sharding, Format):
        return placement(sharding)
    if isinstance(sharding, PartitionSpec):
        mesh = get_mesh()
        if mesh is None:
            raise RuntimeError(f"{what} requires a non-empty mesh if you are passing PartitionSpecs. hint: use `with mesh:` or "
                               "pass a NamedSharding")
        return NamedSharding(mesh, sharding)
    if hasattr(sharding, "platform"):
        return SingleDeviceSharding(sharding)
    raise TypeError(f"{what} must be a Sharding, a Format, a PartitionSpec, a device or None, got {sharding!r}")


def run_jaxpr(jaxpr: Jaxpr, leaves: Sequence, avals: Sequence[ShapedArray], name: str) -> list[Array]:
    """Run over the devices that arguments and equations name."""
    given = [x.placement if type(x) is Array and xla.is_placed(x.buf) else None for x in leaves]
    program = program_of(jaxpr, name, (), given, None)
    return program.run(program.placed(leaves, avals))


def program_of(jaxpr: Jaxpr, name: str, donated: Sequence[bool], given: Sequence, out_shardings: Sequence | None,
               **options: Any) -> PartitionedProgram:
    """The program for arguments that are laid out like this (None: as XLA likes), kept with the jaxpr."""
    key = ("partitioned", tuple(given), tuple(out_shardings or ()), tuple(donated), xla.chosen_device(),
           tuple(sorted(options.items())))
    return jaxpr.memo(key, lambda: compile_jaxpr(jaxpr, name, donated, given, out_shardings, **options))


def common_mesh(jaxpr: Jaxpr, shardings: Sequence) -> Mesh:
    """A mesh over the devices of the program."""
    shardings = [s.bare for s in shardings if s is not None and s.bare is not None]
    meshes = device_meshes(jaxpr)
    default = SingleDeviceSharding(xla.chosen_device() or xla.default_device())
    found: list = [s for s in (*shardings, *meshes) if not xla.is_default_place(s.device_tuple)] or [default]
    first = next((s for s in found if isinstance(s.device_tuple[0], AbsentDevice)), found[0])   # what is compiled for
    for other in found:
        if not are_same_devices(other.device_tuple, first.device_tuple):
            raise ValueError("Received incompatible devices for jitted computation. Got shardings over devices "
                             f"{sorted(d.id for d in first.device_tuple)} and {sorted(d.id for d in other.device_tuple)}. "
                             "hint: device_put the arguments onto one mesh")
    mesh = getattr(first, "mesh", first)
    return mesh if isinstance(mesh, Mesh) else Mesh(np.array(first.device_tuple, dtype=object), ("devices",))


def compile_jaxpr(jaxpr: Jaxpr, name: str, donated, in_shardings, out_shardings, **options: Any) -> PartitionedProgram:
    text, weights, callbacks, mesh = lower(jaxpr, name, donated, in_shardings, out_shardings)
    executable = compile_text(text, mesh.device_tuple, callbacks, len(weights), len(jaxpr.outvars), **options)
    return load(executable, jaxpr.in_avals, jaxpr.out_avals, mesh, in_shardings, out_shardings, weights, callbacks)


def compile_text(text: str, devices: Sequence, callbacks: Sequence, weights: int, results: int, **options: Any) -> Any:
    """The executable of what `lower` gave, with the number of hoisted arrays and of results."""
    if any(isinstance(d, AbsentDevice) for d in devices):
        raise ValueError(f"the program is for {len(devices)} devices that are not here. hint: `aot compile --mesh ... "
                         "--target ...` builds for those; to run it set a Mesh of devices, as by `with aot.set_mesh(mesh):`")
    if xla.is_absent(devices[0]):
        if callbacks:
            raise NotImplementedError("a program that calls back into Python cannot be compiled for devices that are not here. "
                                      "hint: remove debug prints and callbacks from it")
        from aot.lower.plain_lapack import expand
        return xla.compile_absent(expand(text), devices, **options)
    executable = cached.compile_partitioned(text, devices, callbacks, **options)
    if "mhlo.layout_mode" in text:
        ins, outs = xla.layouts(executable, weights)
        if (again := settled(text, [*ins, *outs], results)) is not None:
            return cached.compile_partitioned(again, devices, callbacks, **options)
    return executable


def load(executable: Any, in_avals: Sequence[ShapedArray], out_avals: Sequence[ShapedArray], mesh: Mesh, in_shardings: Sequence,
         out_shardings: Sequence | None, weights: Sequence, callbacks: Sequence = ()) -> PartitionedProgram:
    """An executable that was compiled from what `lower` gave."""
    chosen = xla.parameter_tiles(executable, [typeof(w).ndim for w in weights] + [a.ndim for a in in_avals])
    ins = [bare(s) or from_tiles(mesh, t) for s, t in zip(in_shardings, chosen[len(weights):])]
    tiles = xla.output_tiles(executable, [a.ndim for a in out_avals])
    results = out_shardings or [None] * len(tiles)
    outs = [bare(s) or from_tiles(mesh, t) for s, t in zip(results, tiles)]
    if any(isinstance(s, LaidOut) for s in (*in_shardings, *results)):
        orders = xla.layouts(executable, len(weights))
        ins = [laid_out(*x) for x in zip(ins, orders[0], in_avals)]
        outs = [laid_out(*x) for x in zip(outs, orders[1], out_avals)]
    kind = AbsentProgram if xla.is_absent(mesh.device_tuple[0]) else PartitionedProgram
    return kind(executable, mesh, in_avals, ins, out_avals, outs, weights, callbacks)


def bare(s: Sharding | None) -> Sharding | None:
    return None if s is None else s.bare


def laid_out(s: Sharding, order: str, a: ShapedArray) -> Sharding:
    """A sharding with the layout that XLA's text describes."""
    found = Layout.parse(order, a.ndim)
    return s if found.is_default else LaidOut(s, found)


def from_tiles(mesh: Mesh, tiles) -> Sharding:
    if mesh.size == 1:
        return SingleDeviceSharding(mesh.device_tuple[0])
    if tiles is None:
        return NamedSharding(mesh, PartitionSpec())
    return spec_from_tiles(mesh, *tiles) or TiledSharding(mesh.device_tuple, *tiles)


def lower(jaxpr: Jaxpr, name: str, donated, in_shardings, out_shardings, **options):
    """-> (StableHLO with Shardy annotations, hoisted arrays, callbacks, a mesh in the order of the partition ids).

    options: of `Module`."""
    from aot.ops.spmd import mesh_symbol, replicated_text, sharding_text
    everything = [*in_shardings, *(out_shardings or [])]
    mesh = common_mesh(jaxpr, everything)
    module = Module(name, **options)
    module.devices = mesh.device_tuple
    module.weight_attr = lambda t: f" {{sdy.sharding = #sdy.sharding{replicated_text(t, mesh_symbol(module, mesh))}}}"

    layouts = any(isinstance(s, LaidOut) for s in everything)

    def attrs(shardings, avals, donate):
        out = []
        for i, (given, a) in enumerate(zip(shardings, avals)):
            s = bare(given)
            parts = [f"sdy.sharding = {sharding_text(module, s, a)}"] if s is not None and len(s.device_tuple) > 1 else []
            parts += [f'mhlo.layout_mode = "{mode(given, a)}"'] if layouts else []
            parts += ["jax.buffer_donor = true"] if donate and donate[i] else []
            out.append(f" {{{', '.join(parts)}}}" if parts else "")
        return out
    arg_attrs = attrs(in_shardings, jaxpr.in_avals, donated)
    result_attrs = attrs(out_shardings or [None] * len(jaxpr.out_avals), jaxpr.out_avals, None)
    text, weights = module.main(jaxpr, arg_attrs, result_attrs)
    return text, weights, module.callbacks, mesh


def run_eqn(prim, args: Sequence, params: dict) -> list[Array]:
    """One primitive on values of several devices."""
    avals = [typeof(x) for x in args]
    key = (prim, tuple(avals), tuple(params.items()))
    jaxpr = _eqns.get(key)
    if jaxpr is None:
        ins, outs = [Var(a) for a in avals], [Var(a) for a in prim.infer(*avals, **params)]
        jaxpr = _eqns[key] = Jaxpr(list(ins), [Eqn(prim, list(ins), outs, params)], list(outs))
        if len(_eqns) > 4096:
            _eqns.pop(next(iter(_eqns)))
    return run_jaxpr(jaxpr, args, avals, prim.name)


_eqns: dict[Any, Jaxpr] = {}
