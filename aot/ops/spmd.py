"""Programs over several devices: sharding constraints and shard_map, as primitives lowered to Shardy."""
from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from math import prod
from typing import Any, Sequence

import numpy as np

from aot.ops.call import Holder, with_dots
from aot.ops.families import LinearOp
from aot.ops.shape import reshape
from aot.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec, Sharding, are_same_devices
from aot.trace import (
    Jaxpr,
    Linear,
    ShapedArray,
    Zero,
    axis_env,
    bind,
    captured_by,
    eval_jaxpr,
    is_linear,
    is_zero,
    opened,
    stage_closed,
    tangent_aval,
    typeof,
)

# ---- text ----------------------------------------------------------------------------------------------------------------

def axis_text(name: Any) -> str:
    """An axis of a mesh.  Other characters than the plain ones are written as their codes: XLA ends the process on some."""
    plain = lambda c: c.isascii() and c.isprintable() and c not in '"%\\'
    return '"' + "".join(c if plain(c) else f"%{ord(c):x}." for c in str(name)) + '"'


def axis_of(text: str) -> str:
    """The name of an axis that `axis_text` wrote."""
    return re.sub(r"%([0-9a-f]+)\.", lambda m: chr(int(m[1], 16)), text)


def mesh_symbol(module, mesh: Mesh | AbstractMesh) -> str:
    """The name of a mesh in the module, declared on first use; devices in another order get their positions."""
    if module.devices is None:
        module.devices = mesh.device_tuple
    found = module.meshes.get(mesh)
    if found is None and not are_same_devices(module.devices, mesh.device_tuple):
        raise ValueError("Received incompatible devices for jitted computation: a mesh over "
                         f"{[d.id for d in mesh.device_tuple]} in a program over {[d.id for d in module.devices]}")
    if found is None:
        name = "mesh" if not module.meshes else f"mesh_{len(module.meshes)}"
        axes = ", ".join(f"{axis_text(a)}={n}" for a, n in mesh.shape.items())
        where = {d.id: i for i, d in enumerate(module.devices)}
        ids = [where[d.id] for d in mesh.device_tuple]
        extra = f", device_ids={ids}" if ids != list(range(len(ids))) else ""
        module.declarations.append(f"sdy.mesh @{name} = <[{axes}]{extra}>")
        found = module.meshes[mesh] = name
    return found


def spec_text(spec: PartitionSpec, ndim: int, symbol: str) -> str:
    dims = []
    for i in range(ndim):
        if i < len(spec) and spec[i] is PartitionSpec.UNCONSTRAINED:
            dims.append("{?}")
        else:
            dims.append("{" + ", ".join(map(axis_text, spec.axes(i))) + "}")
    return f"<@{symbol}, [{', '.join(dims)}]>"


def replicated_text(type_: str, symbol: str) -> str:
    """The whole of a value of this StableHLO type on each device."""
    return f"<@{symbol}, [{', '.join(['{}'] * len(re.findall('[0-9]+x', type_)))}]>"


def sharding_text(module, sharding: Sharding, aval: ShapedArray) -> str:
    """`#sdy.sharding<...>` of a value."""
    ndim = len(aval.physical.shape)
    if not isinstance(sharding, NamedSharding):
        sharding = as_named(sharding, aval.ndim)
    return "#sdy.sharding" + spec_text(sharding.spec, ndim, mesh_symbol(module, sharding.mesh))


def as_named(sharding: Sharding, ndim: int) -> NamedSharding:
    """Any sharding as a spec over a mesh made for it."""
    dims, order = sharding.tiles(ndim)
    copies = len(order) // prod(dims)
    devices = np.array([sharding.device_tuple[i] for i in order], dtype=object).reshape(*dims, copies)
    names = [f"_{i}" for i in range(len(dims))]
    return NamedSharding(Mesh(devices, (*names, "_r")), PartitionSpec(*names))


# ---- with_sharding_constraint ------------------------------------------------------------------------------------------------

class ShardingConstraint(LinearOp):
    """The identity, with a layout that the compiler must give the value."""
    name = "sharding_constraint"

    def infer(self, x, *, sharding):
        sharding.shard_shape(x.shape)
        return [x]

    def transpose(self, cts, x, *, sharding): return bind(self, *cts, sharding=sharding)

    def vmap(self, axis, args, dims, *, sharding):
        d = dims[0]
        s = sharding if isinstance(sharding, NamedSharding) else as_named(sharding, typeof(args[0]).ndim - 1)
        spec = [*s.spec, *[None] * (typeof(args[0]).ndim - 1 - len(s.spec))]
        spec.insert(d, PartitionSpec.UNCONSTRAINED)
        return bind(self, *args, sharding=NamedSharding(s.mesh, PartitionSpec(*spec))), [d]

    def lower(self, e, ins, outs, x, *, sharding):
        if len(sharding.device_tuple) == 1:
            return [x]
        text = sharding_text(e.module, sharding, ins[0]).removeprefix("#sdy.sharding")
        return [e.op(f"sdy.sharding_constraint {x} {text} : {ins[0].mlir}")]

    def evaluate(self, args, params):
        from aot.array import device_put_one
        s = params["sharding"]
        if isinstance(s, NamedSharding) and PartitionSpec.UNCONSTRAINED in tuple(s.spec):
            from aot.compile.spmd import run_eqn
            return run_eqn(self, args, params)                  # the compiler chooses, as it does within a program
        return [device_put_one(args[0], s)]


sharding_constraint_p = ShardingConstraint()


# ---- shard_map ---------------------------------------------------------------------------------------------------------------

def unmentioned(mesh, manual, spec) -> tuple:
    """The manual axes that a spec leaves out."""
    used = {a for i in range(len(spec)) for a in spec.axes(i)}
    return tuple(a for a in mesh.axis_names if a in manual and a not in used)


def local_aval(a: ShapedArray, mesh, spec) -> ShapedArray:
    """The part of a value that one device holds."""
    shape = list(a.shape)
    for i in range(min(len(shape), len(spec))):
        n = prod(mesh.shape[x] for x in spec.axes(i))
        if shape[i] % n:
            raise ValueError(f"shard_map applied to a function with an argument of shape {a.shape}, whose dimension {i} is not "
                             f"divisible by {n}, as the spec {spec} and the mesh {mesh} require")
        shape[i] //= n
    return ShapedArray(tuple(shape), a.dtype, a.weak_type)


def global_aval(a: ShapedArray, mesh, spec) -> ShapedArray:
    shape = [n * prod(mesh.shape[x] for x in spec.axes(i)) if i < len(spec) else n for i, n in enumerate(a.shape)]
    return ShapedArray(tuple(shape), a.dtype, a.weak_type)


class ShardMap(Holder):
    """Run a jaxpr on each device's part of the arguments; collectives inside speak to the mesh axes in `manual`."""
    name = "shard_map"

    def infer(self, *avals, jaxpr, mesh, in_specs, out_specs, manual):
        return [global_aval(a, mesh, s) for a, s in zip(jaxpr.out_avals, out_specs)]

    def uses_axis(self, name, params): return name not in params["manual"] and super().uses_axis(name, params)

    def opened(self, args, params):
        held, jaxpr = captured_by(params["jaxpr"]), opened(params["jaxpr"])
        return [*held, *args], {**params, "jaxpr": jaxpr, "in_specs": (*[PartitionSpec()] * len(held), *params["in_specs"])}

    def jvp(self, primals, tangents, *, jaxpr, in_specs, out_specs, mesh, manual):
        from aot.transforms.jvp import jvp_jaxpr
        nonzero = [not is_zero(t) for t in tangents]
        with manual_axes(mesh, manual):
            both, out_nonzero = jvp_jaxpr(jaxpr, nonzero)
        ins = (*in_specs, *[s for s, nz in zip(in_specs, nonzero) if nz])
        outs_specs = (*out_specs, *[s for s, nz in zip(out_specs, out_nonzero) if nz])
        outs = self.bind(*primals, *[t for t in tangents if not is_zero(t)], jaxpr=both, mesh=mesh, in_specs=ins,
                         out_specs=outs_specs, manual=manual)
        return with_dots(outs, out_nonzero, [typeof(o) for o in outs[:len(out_specs)]])

    def linearize(self, primals, tangents, *, jaxpr, in_specs, out_specs, mesh, manual):
        """Residuals that are not arguments cross as arrays with a leading dimension split over every manual axis."""
        from aot.transforms.linearize import linearize_jaxpr
        nonzero = [not is_zero(t) for t in tangents]
        with manual_axes(mesh, manual):
            lin = linearize_jaxpr(jaxpr, nonzero)
            n, all_axes = len(out_specs), PartitionSpec(tuple(a for a in mesh.axis_names if a in manual))
            fwd = jaxpr.memo(("shard fwd", tuple(nonzero)), lambda: _with_leading(lin.fwd, n))
            body = jaxpr.memo(("shard lin", tuple(nonzero)), lambda: _without_leading(lin))
        extra = len(lin.fwd.outvars) - n
        outs = self.bind(*primals, jaxpr=fwd, mesh=mesh, in_specs=in_specs, out_specs=(*out_specs, *[all_axes] * extra),
                         manual=manual)
        res_specs = []
        values = []
        for side, i in lin.residuals:
            values.append(primals[i] if side == "in" else outs[i])
            res_specs.append(in_specs[i] if side == "in" else all_axes if i >= n else out_specs[i])
        dots = [t for t in tangents if not is_zero(t)]
        dot_specs = [s for s, nz in zip(in_specs, nonzero) if nz]
        lin_specs = tuple(s for s, nz in zip(out_specs, lin.out_nonzero) if nz)
        lin_outs = self.bind(*values, *dots, jaxpr=body, mesh=mesh, in_specs=(*res_specs, *dot_specs), out_specs=lin_specs,
                             manual=manual) if any(lin.out_nonzero) else []
        return with_dots([*outs[:n], *lin_outs], lin.out_nonzero, [typeof(o) for o in outs[:n]])

    def transpose(self, cts, *args, jaxpr, in_specs, out_specs, mesh, manual):
        """An output that axes do not split is the same on each device: its cotangent is shared out among them; an input
        that axes do not split receives the sum."""
        from aot.ops import elementwise as ew
        from aot.ops.collectives import psum
        from aot.transforms.jvp import instantiate_zero
        from aot.transforms.linearize import transpose_flat
        linear = [is_linear(x) for x in args]
        nonzero = [not is_zero(c) for c in cts]
        fixed_specs = [s for s, lin in zip(in_specs, linear) if not lin]
        lin_specs = [s for s, lin in zip(in_specs, linear) if lin]
        ct_specs = [s for s, nz in zip(out_specs, nonzero) if nz]
        n_fixed = len(fixed_specs)

        def back(*values):
            fixed, dots = iter(values[:n_fixed]), iter(values[n_fixed:])
            ins = [Linear(a) if lin else next(fixed) for a, lin in zip(jaxpr.in_avals, linear)]
            shared = []
            for nz, a, s in zip(nonzero, jaxpr.out_avals, out_specs):
                if not nz:
                    shared.append(Zero(tangent_aval(a)))
                    continue
                c, copies = next(dots), prod(mesh.shape[x] for x in unmentioned(mesh, manual, s))
                shared.append(c if copies == 1 else ew.div(c, ew.lit(c, copies)))
            outs = [instantiate_zero(c) for c in transpose_flat(jaxpr, ins, shared)]
            return [psum(c, axes) if (axes := unmentioned(mesh, manual, s)) else c for c, s in zip(outs, lin_specs)]
        key = ("shard transpose", tuple(linear), tuple(nonzero), in_specs, out_specs)
        fixed_avals = [a for a, lin in zip(jaxpr.in_avals, linear) if not lin]
        ct_avals = [tangent_aval(a) for a, nz in zip(jaxpr.out_avals, nonzero) if nz]
        with manual_axes(mesh, manual):
            body = jaxpr.memo(key, lambda: stage_closed(back, [*fixed_avals, *ct_avals], jaxpr.debug_name))
        outs = iter(self.bind(*[x for x, lin in zip(args, linear) if not lin], *[c for c in cts if not is_zero(c)],
                              jaxpr=body, mesh=mesh, in_specs=(*fixed_specs, *ct_specs), out_specs=tuple(lin_specs),
                              manual=manual))
        return [next(outs) if lin else None for lin in linear]

    def vmap(self, axis, args, dims, *, jaxpr, in_specs, out_specs, mesh, manual):
        from aot.transforms.vmap import batch_jaxpr
        with manual_axes(mesh, manual):
            batched, out_dims = batch_jaxpr(jaxpr, axis, dims)
        full = lambda s, n: [*s, *[None] * (n - len(s))]
        put = lambda s, d, n: s if d is None else PartitionSpec(*full(s, n)[:d], None, *full(s, n)[d:])
        ins = tuple(put(s, d, a.ndim) for s, d, a in zip(in_specs, dims, jaxpr.in_avals))
        outs_specs = tuple(put(s, d, a.ndim) for s, d, a in zip(out_specs, out_dims, jaxpr.out_avals))
        outs = self.bind(*args, jaxpr=batched, mesh=mesh, in_specs=ins, out_specs=outs_specs, manual=manual)
        return outs, out_dims

    def lower(self, e, ins, outs, *xs, jaxpr, mesh, in_specs, out_specs, manual):
        symbol = mesh_symbol(e.module, mesh)
        weights = e.module.big_literals(jaxpr)
        operands = [*(e.weights[i] for i in weights), *xs]
        w_types = [e.module.weight_types[i] for i in weights]
        replicated = [replicated_text(t, symbol) for t in w_types]
        text = lambda a, s: spec_text(s, len(a.physical.shape), symbol)
        in_text = ", ".join([*replicated, *[text(a, s) for a, s in zip(ins, in_specs)]])
        out_text = ", ".join(text(a, s) for a, s in zip(outs, out_specs))
        inner = [*w_types, *[a.mlir for a in jaxpr.in_avals]]
        e.count += 1
        names = [f"%s{e.count}_{i}" for i in range(len(inner))]
        saved = e.lines, e.scopes, e.weights, e.manual
        e.lines, e.scopes, e.weights, e.manual = [], [{}], dict(zip(weights, names)), mesh
        results = e.jaxpr(jaxpr, names[len(weights):])
        body = e.lines
        e.lines, e.scopes, e.weights, e.manual = saved
        args = ", ".join(f"{n}: {t}" for n, t in zip(names, inner))
        local = ", ".join(a.mlir for a in jaxpr.out_avals)
        ret = f"sdy.return {', '.join(results)} : {local}" if results else "sdy.return"
        axes = ", ".join(axis_text(a) for a in mesh.axis_names if a in manual)
        types = ", ".join([*w_types, *[a.mlir for a in ins]])
        return e.ops(f"sdy.manual_computation({', '.join(operands)}) in_shardings=[{in_text}] out_shardings=[{out_text}] "
                     f"manual_axes={{{axes}}} ({args}) {{\n" + "\n".join([*body, ret]) + f"\n}} : ({types}) -> "
                     f"({', '.join(a.mlir for a in outs)})", len(outs))

    def evaluate(self, args, params):
        from aot.compile.spmd import run_eqn
        return run_eqn(self, args, params)


shard_map_p = ShardMap()


@contextmanager
def manual_axes(mesh, manual):
    """Axis names of a mesh in scope while a body is traced."""
    with ExitStack() as stack:
        for name, size in mesh.shape.items():
            if name in manual:
                stack.enter_context(axis_env(name, size))
        yield


def _with_leading(fwd: Jaxpr, n: int) -> Jaxpr:
    """Outputs after the first n get a leading dimension of size 1."""
    def f(*args):
        outs = eval_jaxpr(fwd, args)
        return [*outs[:n], *[reshape(o, (1, *typeof(o).shape)) for o in outs[n:]]]
    return stage_closed(f, fwd.in_avals, fwd.debug_name)


def _without_leading(lin) -> Jaxpr:
    """The linear jaxpr, whose residuals that are extra outputs come with a leading dimension of size 1."""
    n = len(lin.residuals)
    n_out = len(lin.out_nonzero)
    extra = [side == "out" and i >= n_out for side, i in lin.residuals]
    avals = [ShapedArray((1, *a.shape), a.dtype, a.weak_type) if x else a for a, x in zip(lin.lin.in_avals, extra)]

    def f(*args):
        res = [reshape(v, typeof(v).shape[1:]) if x else v for v, x in zip(args, extra)]
        return eval_jaxpr(lin.lin, [*res, *args[n:]])
    return stage_closed(f, [*avals, *lin.lin.in_avals[n:]], lin.lin.debug_name)


# ---- collectives in text ---------------------------------------------------------------------------------------

def replica_groups(e, axes: Sequence, groups: Any = None) -> np.ndarray:
    """Device positions that communicate over these axes of the manual mesh, one row a group."""
    mesh = e.manual
    where = {d.id: i for i, d in enumerate(e.module.devices)}
    ids = np.array([where[d.id] for d in mesh.device_tuple]).reshape(mesh.axis_sizes)
    at = [mesh.axis_names.index(a) for a in axes]
    rest = [i for i in range(ids.ndim) if i not in at]
    rows = ids.transpose([*rest, *at]).reshape(-1, prod(mesh.axis_sizes[i] for i in at))
    if groups is not None:
        rows = np.concatenate([rows[:, list(g)] for g in groups])
    return rows


CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"


def groups_text(rows: np.ndarray) -> str:
    return f"dense<{rows.tolist()}> : tensor<{rows.shape[0]}x{rows.shape[1]}xi64>"


def position_text(e, axis) -> str:
    """The name of this device's position along one axis, int32."""
    mesh = e.manual
    ids = replica_groups(e, mesh.axis_names).ravel()          # partition id of each mesh position
    index = np.arange(mesh.size).reshape(mesh.axis_sizes)
    i = mesh.axis_names.index(axis)
    table = np.zeros(len(ids), np.int32)
    table[ids] = (index // prod(mesh.axis_sizes[i + 1:]) % mesh.axis_sizes[i]).ravel()
    a = ShapedArray((len(ids),), np.dtype("int32"))
    pid = e.op("stablehlo.partition_id : tensor<ui32>")
    one = e.op(f"stablehlo.dynamic_slice {e.constant(table, a)}, {pid}, sizes = [1] : ({a.mlir}, tensor<ui32>) -> "
               "tensor<1xi32>")
    return e.op(f"stablehlo.reshape {one} : (tensor<1xi32>) -> tensor<i32>")


