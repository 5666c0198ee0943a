"""Host data across processes: broadcast, gather, compare, wait; local arrays to global ones and back.

Arrays travel as bytes, so every value of every dtype arrives as it was.
"""
from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from aot import distributed, xla
from aot.array import Array
from aot.environment import process_count, process_index
from aot.parallel import make_array_from_single_device_arrays
from aot.sharding import Mesh, NamedSharding, PartitionSpec
from aot.tree_util import broadcast_prefix, tree_flatten, tree_map


def _gather(x: Any) -> np.ndarray:
    """A host array, of one type in all processes -> (processes, *shape), the arrays of all of them."""
    import aot
    x = np.asarray(x)
    count = process_count()
    if count == 1:
        return x[None]
    here = xla.client().local_devices()
    grid = np.array(sorted(xla.devices(), key=lambda d: (d.process_index, d.id)), dtype=object).reshape(count, -1)
    mesh = Mesh(grid, ("processes", "local"))
    row = np.frombuffer(np.ascontiguousarray(x).tobytes(), np.uint8)[None]
    parts = [aot.device_put(row, d) for d in here]
    rows = make_array_from_single_device_arrays((count, row.shape[1]), NamedSharding(mesh, PartitionSpec("processes")), parts)
    everywhere = aot.jit(lambda a: a, out_shardings=NamedSharding(mesh, PartitionSpec()))(rows)
    found = np.asarray(everywhere.addressable_data(0))
    return np.frombuffer(found.tobytes(), x.dtype).reshape(count, *x.shape)


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The tree of the source (by default process 0), in every process.  All give trees of the same types."""
    source = is_source if is_source is not None else process_index() == 0
    flags = _gather(np.array(bool(source)))
    if flags.sum() != 1:
        raise ValueError(f"broadcast_one_to_all needs one source, {int(flags.sum())} processes say that they are it")
    return tree_map(lambda x: _gather(x)[int(flags.argmax())], in_tree)


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The arrays of all processes on each host: stacked along a new first axis, or joined along the first one if tiled.

    An array that already spans processes is gathered as a whole."""
    def one(x: Any) -> np.ndarray:
        if type(x) is Array and not x.is_fully_addressable:
            import aot
            whole = aot.jit(lambda a: a, out_shardings=NamedSharding(x.sharding.mesh, PartitionSpec()))(x)
            return np.asarray(whole.addressable_data(0))
        rows = _gather(x)
        return rows.reshape(-1, *rows.shape[2:]) if tiled and rows.ndim > 1 else rows.reshape(-1) if tiled else rows
    return tree_map(one, in_tree)


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Raise AssertionError unless the tree has the same values in all processes."""
    expected = broadcast_one_to_all(in_tree)
    a, b = (tree_flatten(t)[0] for t in (in_tree, expected))
    if not all(np.array_equal(np.asarray(x), y, equal_nan=np.asarray(x).dtype.kind in "fc") for x, y in zip(a, b)):
        raise AssertionError(f"{fail_message} Expected: {expected}; got: {in_tree}.")


def sync_global_devices(name: str) -> None:
    """Wait until all processes are here, with the same name."""
    if process_count() > 1:
        assert_equal(np.uint32(zlib.crc32(name.encode())), f"sync_global_devices name mismatch ({name!r}).")


class ProcessFailureError(Exception):
    """A process died within `live_devices`; failed_devices are its devices."""

    def __init__(self, failed_devices: set):
        self.failed_devices = failed_devices
        super().__init__(f"the processes of these devices have died: {sorted(map(str, failed_devices))}")


@contextmanager
def live_devices(devices: Sequence[Any]) -> Iterator[list]:
    """`with live_devices(devices) as alive:` gives those whose processes live, the same in all of these.

    Raises ProcessFailureError at the end where one of them has died meanwhile, ValueError where none of the devices is of
    this process."""
    alive = _alive(devices)
    try:
        yield alive
    except Exception as e:
        if failed := set(alive) - set(_alive(alive)):
            raise ProcessFailureError(failed) from e
        raise
    if failed := set(alive) - set(_alive(alive)):
        raise ProcessFailureError(failed)


def _alive(devices: Sequence[Any]) -> list:
    processes = {d.process_index for d in devices}
    if process_index() not in processes:
        raise ValueError("live_devices: none of the devices is of this process. hint: pass aot.devices()")
    if not distributed.is_initialized():
        return list(devices)
    found = distributed.client().get_live_nodes(sorted(processes))
    return [d for d in devices if d.process_index in found]


def reached_preemption_sync_point(step_id: int) -> bool:
    """Whether the cluster asked to stop at this step; nothing here asks for that."""
    return False


# ---- local and global arrays -------------------------------------------------------------------------------------------

def local_mesh(mesh: Mesh) -> tuple[Mesh, tuple[slice, ...]]:
    """The part of a mesh that this process has, which must be a block of it, and where it is."""
    mine = np.vectorize(lambda d: d.process_index == process_index(), otypes=[bool])(mesh.devices)
    where = [np.flatnonzero(mine.any(tuple(j for j in range(mine.ndim) if j != i))) for i in range(mine.ndim)]
    block = tuple(slice(int(w[0]), int(w[-1]) + 1) for w in where) if all(w.size for w in where) else ()
    if not block or not mine[block].all():
        raise ValueError("the devices of this process are not a block of the mesh. hint: order the mesh's devices by process")
    return Mesh(mesh.devices[block], mesh.axis_names), block


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """Each process's part, split over its block of the mesh as pspecs say -> the array over the whole mesh."""
    return _each(_to_global, local_inputs, global_mesh, pspecs)


def global_array_to_host_local_array(global_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """The opposite: what lies on this process's devices, as an array over its block of the mesh."""
    return _each(_to_local, global_inputs, global_mesh, pspecs)


def _each(f: Any, tree: Any, mesh: Mesh, pspecs: Any) -> Any:
    leaves, treedef = tree_flatten(tree)
    specs = broadcast_prefix(pspecs, tree, is_leaf=lambda s: isinstance(s, PartitionSpec), name="pspecs")
    return treedef.unflatten([f(x, mesh, s) for x, s in zip(leaves, specs)])


def _scale(mesh: Mesh, local: Mesh, spec: PartitionSpec, ndim: int) -> list[int]:
    """How many times larger the global array is in each dimension."""
    return [int(np.prod([mesh.shape[a] // local.shape[a] for a in spec.axes(i)], dtype=int)) for i in range(ndim)]


def _to_global(x: Any, mesh: Mesh, spec: PartitionSpec) -> Array:
    import aot
    local, _ = local_mesh(mesh)
    value = np.asarray(x)
    shape = [n * k for n, k in zip(value.shape, _scale(mesh, local, spec, value.ndim))]
    index = NamedSharding(local, spec).devices_indices_map(value.shape)
    parts = [aot.device_put(value[index[d]], d) for d in local.device_tuple]
    return make_array_from_single_device_arrays(shape, NamedSharding(mesh, spec), parts, dtype=value.dtype)


def _to_local(x: Array, mesh: Mesh, spec: PartitionSpec) -> Array:
    local, _ = local_mesh(mesh)
    shape = [n // k for n, k in zip(x.shape, _scale(mesh, local, spec, x.ndim))]
    by_device = {s.device: s.data for s in x.addressable_shards}
    return make_array_from_single_device_arrays(shape, NamedSharding(local, spec), [by_device[d] for d in local.device_tuple],
                                                dtype=x.dtype)


__all__ = ["assert_equal", "broadcast_one_to_all", "global_array_to_host_local_array", "host_local_array_to_global_array",
           "ProcessFailureError", "live_devices", "process_allgather", "reached_preemption_sync_point", "sync_global_devices"]
