"""Users' functions for several devices: shard_map, pmap, with_sharding_constraint, arrays made of parts."""
from __future__ import annotations

import functools
from typing import Any, Callable, Sequence

import numpy as np

from aot import dtypes, xla
from aot.array import Array
from aot.ops.spmd import local_aval, manual_axes, shard_map_p, sharding_constraint_p
from aot.sharding import Infer, Mesh, NamedSharding, PartitionSpec, Sharding, get_mesh
from aot.source import api_boundary, wraps
from aot.trace import ShapedArray, bind, bind1, is_tracer, stage, state, typeof
from aot.tree_util import broadcast_prefix, tree_flatten, tree_map


def _stop(x) -> bool: return x is None or isinstance(x, (PartitionSpec, Sharding))


@api_boundary
def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """x (every leaf of a tree), with a layout that the compiler must give it at this point."""
    from aot.compile.spmd import resolve
    leaves, tree = tree_flatten(x)
    given = broadcast_prefix(shardings, x, is_leaf=_stop, name="with_sharding_constraint shardings")
    out = []
    for leaf, s in zip(leaves, given):
        s = resolve(s, "with_sharding_constraint")
        out.append(leaf if s is None else bind1(sharding_constraint_p, leaf, sharding=s))
    return tree.unflatten(out)


def shard_map(f: Callable | None = None, /, *, out_specs: Any, in_specs: Any = Infer, mesh: Any = None,
              axis_names: Any = frozenset(), check_vma: bool = True, check_rep: bool = True,
              auto: frozenset = frozenset()) -> Any:
    """Map f over the parts of its arguments, one on each device of the mesh.

    in_specs, out_specs: PartitionSpecs (trees, or prefixes of them) saying which dimensions the mesh axes split; an
    output that a spec does not split must be the same on each device.  axis_names: the axes handled by hand (all).
    check_vma and check_rep (its old name) have no effect: results are not checked to be the same on each device.
    Raises TypeError where in_specs is not given."""
    if f is None:
        return functools.partial(shard_map, out_specs=out_specs, in_specs=in_specs, mesh=mesh, axis_names=axis_names, auto=auto)
    if in_specs is Infer:
        raise TypeError("shard_map needs in_specs: types do not tell how arguments are split. hint: in_specs=P('x'), or a "
                        "tuple with one for each argument")

    @wraps(f)
    @api_boundary
    def mapped(*args):
        over = mesh if mesh is not None else get_mesh()
        if not isinstance(over, Mesh):
            raise ValueError("shard_map requires a mesh with devices. hint: pass mesh=, or use it inside `with mesh:`")
        manual = frozenset(axis_names) or frozenset(over.axis_names) - frozenset(auto)
        leaves, tree = tree_flatten(args)
        specs = tuple(_spec(s, over, "in_specs") for s in broadcast_prefix(
            in_specs if isinstance(in_specs, tuple) and not _stop(in_specs) else (in_specs,) * len(args), args,
            is_leaf=_stop, name="shard_map in_specs"))
        avals = [local_aval(typeof(x), over, s) for x, s in zip(leaves, specs)]
        box: dict[str, Any] = {}

        def flat(*xs):
            out = f(*tree.unflatten(xs))
            outs, box["tree"] = tree_flatten(out)
            box["specs"] = tuple(_spec(s, over, "out_specs") for s in broadcast_prefix(out_specs, out, is_leaf=_stop,
                                                                                       name="shard_map out_specs"))
            return outs
        with manual_axes(over, manual):
            jaxpr, captured = stage(flat, avals, getattr(f, "__name__", "f"))
        if any(len(s) > a.ndim for s, a in zip(box["specs"], jaxpr.out_avals)):
            raise ValueError(f"shard_map applied to {getattr(f, '__name__', 'f')}: an out_spec has more entries than its "
                             f"output has dimensions: {box['specs']} for {[a.str_short() for a in jaxpr.out_avals]}")
        outs = bind(shard_map_p, *captured, *leaves, jaxpr=jaxpr, mesh=over,
                    in_specs=(*[PartitionSpec()] * len(captured), *specs), out_specs=box["specs"], manual=manual)
        return box["tree"].unflatten(outs)
    return mapped


def smap(f: Callable | None = None, /, *, in_axes: Any = Infer, out_axes: Any, axis_name: Any) -> Any:
    """Map f over one axis of the mesh that is set, by hand, while the compiler handles the others.

    in_axes, out_axes: which dimension of each argument and result the axis splits (None: it has the whole): an int, or a
    tuple or tree of them.  Raises TypeError for other values, and where in_axes is not given."""
    if f is None:
        return functools.partial(smap, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)
    if in_axes is Infer:
        raise TypeError("smap needs in_axes: types do not tell how arguments are split. hint: in_axes=0, or a tuple "
                        "with one for each argument")
    if isinstance(axis_name, (list, tuple)):
        raise TypeError(f"smap maps over one axis, got axis_name={axis_name!r}. hint: nest smap, or use shard_map")
    spec = lambda d: PartitionSpec() if d is None else _split(d, axis_name)
    specs = [tree_map(spec, axes, is_leaf=lambda d: d is None) for axes in (in_axes, out_axes)]
    return shard_map(f, in_specs=specs[0], out_specs=specs[1], axis_names={axis_name})


def _split(d: Any, axis_name: Any) -> PartitionSpec:
    if not isinstance(d, int) or d < 0:
        raise TypeError(f"smap in_axes and out_axes are dimensions from 0 on, or None, got {d!r}")
    return PartitionSpec(*[None] * d, axis_name)


def _spec(s, mesh: Mesh, what: str) -> PartitionSpec:
    if isinstance(s, NamedSharding):
        s = s.spec
    s = PartitionSpec() if s is None else s
    if not isinstance(s, PartitionSpec):
        raise TypeError(f"shard_map {what} must be PartitionSpecs, got {s!r}")
    NamedSharding(mesh, s)
    return s


# ---- pmap ------------------------------------------------------------------------------------------------------------

def pmap(fun: Callable, axis_name: Any = None, *, in_axes: Any = 0, out_axes: Any = 0, static_broadcasted_argnums: Any = (),
         devices: Sequence | None = None, backend: str | None = None, axis_size: int | None = None, donate_argnums: Any = (),
         global_arg_shapes=None) -> Callable:
    """Map fun over an axis of its arguments, one device for each element, as a compiled program.

    Inside another mapped or traced function it is vectorised like vmap, which computes the same.
    backend and global_arg_shapes have no effect: devices are what devices= says, or the first of all."""
    from aot.dispatch import jit
    from aot.transforms.batching import canonical_dims, mapped_size, vmap
    name = axis_name if axis_name is not None else _Anonymous()
    static = (static_broadcasted_argnums,) if isinstance(static_broadcasted_argnums, int) else tuple(static_broadcasted_argnums)
    programs: dict[Any, Callable] = {}

    @wraps(fun)
    @api_boundary
    def mapped(*args, **kwargs):
        fixed = {i: args[i] for i in static if i < len(args)}
        dynamic = tuple(x for i, x in enumerate(args) if i not in fixed)

        def call(*xs, **kw):
            it = iter(xs)
            return fun(*[fixed[i] if i in fixed else next(it) for i in range(len(args))], **kw)
        axes = in_axes if not isinstance(in_axes, tuple) else tuple(a for i, a in enumerate(in_axes) if i not in fixed)
        vectorised = vmap(call, in_axes=axes, out_axes=out_axes, axis_name=name, axis_size=axis_size)
        leaves, _ = tree_flatten((dynamic, kwargs))
        if any(is_tracer(x) for x in leaves) or state.axes:
            return vectorised(*dynamic, **kwargs)
        dims = broadcast_prefix((axes, 0), (dynamic, kwargs), is_leaf=lambda x: x is None, name="pmap in_axes")
        n = mapped_size(axis_size, leaves, canonical_dims(dims, leaves, "pmap"), dynamic, kwargs, "pmap")
        available = list(devices) if devices is not None else xla.devices()
        if n > len(available):
            raise ValueError(f"compiling computation that requires {n} logical devices, but only {len(available)} XLA devices "
                             "are available. hint: on CPU set XLA_FLAGS=--xla_force_host_platform_device_count=N")
        key = (n, len(args), tuple(fixed.items()))
        run = programs.get(key)
        if run is None:
            run = programs[key] = jit(_over_devices(call, axes, out_axes, name, Mesh(np.array(available[:n], dtype=object), (
                name,))), donate_argnums=tuple(i - sum(j < i for j in static) for i in (
                    (donate_argnums,) if isinstance(donate_argnums, int) else donate_argnums)))
        return run(*dynamic, **kwargs)
    return mapped


class _Anonymous:
    def __repr__(self): return "<axis>"
    def __str__(self): return f"_axis{id(self)}"


def _over_devices(call: Callable, in_axes, out_axes, name, mesh: Mesh) -> Callable:
    """call on each device's slice: a shard_map whose specs split the mapped axes."""
    from aot.ops.shape import expand_dims, squeeze

    def run(*args, **kwargs):
        leaves, tree = tree_flatten((args, kwargs))
        dims = broadcast_prefix((in_axes, 0), (args, kwargs), is_leaf=lambda x: x is None, name="pmap in_axes")
        dims = [None if d is None else d % typeof(x).ndim for d, x in zip(dims, leaves)]
        box: dict[str, Any] = {}

        def body(*xs):
            own = [x if d is None else squeeze(x, (d,)) for x, d in zip(xs, dims)]
            a, k = tree.unflatten(own)
            out = call(*a, **k)
            outs, box["tree"] = tree_flatten(out)
            wanted = broadcast_prefix(out_axes, out, is_leaf=lambda x: x is None, name="pmap out_axes")
            box["axes"] = [None if d is None else d % (typeof(o).ndim + 1) for d, o in zip(wanted, outs)]
            return [o if d is None else expand_dims(o, (d,)) for o, d in zip(outs, box["axes"])]
        split = lambda d: PartitionSpec() if d is None else PartitionSpec(*[None] * d, name)
        avals = [local_aval(typeof(x), mesh, split(d)) for x, d in zip(leaves, dims)]
        with manual_axes(mesh, frozenset([name])):
            jaxpr, captured = stage(body, avals, "pmap")
        outs = bind(shard_map_p, *captured, *leaves, jaxpr=jaxpr, mesh=mesh, manual=frozenset([name]),
                    in_specs=(*[PartitionSpec()] * len(captured), *[split(d) for d in dims]),
                    out_specs=tuple(split(d) for d in box["axes"]))
        return box["tree"].unflatten(outs)
    return run


# ---- arrays made of parts --------------------------------------------------------------------------------------------

def make_array_from_callback(shape: Sequence[int], sharding: Sharding, data_callback: Callable, dtype=None) -> Array:
    """An array whose part on each device is data_callback(index), index a tuple of slices."""
    shape = tuple(shape)
    index = sharding.addressable_devices_indices_map(shape)
    mine = [d for d in sharding.device_tuple if d in index]
    cache: dict[str, np.ndarray] = {}
    parts = []
    for d in mine:
        key = str(index[d])
        if key not in cache:
            cache[key] = np.asarray(data_callback(index[d]))
        parts.append(cache[key])
    return _assemble(shape, sharding, parts, dtype)


def make_array_from_single_device_arrays(shape: Sequence[int], sharding: Sharding, arrays: Sequence[Array], *,
                                         dtype=None) -> Array:
    """An array from its parts, one array for each addressable device in the order of the sharding's devices."""
    where = {a.device: a for a in arrays}
    mine = [d for d in sharding.device_tuple if d in sharding.addressable_devices]
    if set(where) != set(mine):
        raise ValueError(f"make_array_from_single_device_arrays needs one array on each of {mine}, got {list(where)}")
    return _assemble(tuple(shape), sharding, [where[d]._value for d in mine], dtype)


def make_array_from_process_local_data(sharding: Sharding, local_data: np.ndarray, global_shape: Sequence[int] | None = None
                                       ) -> Array:
    """An array from the rows that this process has, split over its devices."""
    local_data = np.asarray(local_data)
    if sharding.is_fully_addressable:
        from aot.array import device_put_one
        return device_put_one(local_data, sharding)
    from aot.environment import process_count
    shape = tuple(global_shape) if global_shape is not None else (local_data.shape[0] * process_count(), *local_data.shape[1:])
    index = sharding.addressable_devices_indices_map(shape)
    first = min(i[0].start or 0 for i in index.values())
    local = lambda i: (slice((i[0].start or 0) - first, (shape[0] if i[0].stop is None else i[0].stop) - first), *i[1:])
    mine = [d for d in sharding.device_tuple if d in index]
    return _assemble(shape, sharding, [local_data[local(index[d])] for d in mine], None)


def _assemble(shape, sharding: Sharding, parts: Sequence[np.ndarray], dtype) -> Array:
    want = sharding.shard_shape(shape)
    kind = dtypes.canonicalize_dtype(np.dtype(dtype) if dtype is not None else parts[0].dtype)
    for p in parts:
        if p.shape != want:
            raise ValueError(f"each device holds a part of shape {want}, got one of shape {p.shape}")
    aval = ShapedArray(shape, kind)
    parts = [np.asarray(p, kind, order="C") for p in parts]
    if len(sharding.device_tuple) == 1:
        return Array(xla.put(parts[0], xla.storage(aval), xla.default_sharding(sharding.device_tuple[0])), aval)
    return Array(xla.put_shards(parts, xla.storage(aval), sharding), aval)


def reshard(xs: Any, out_shardings: Any) -> Any:
    """Every leaf of xs in another layout."""
    from aot.api import device_put
    return device_put(xs, out_shardings)


