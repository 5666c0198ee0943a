"""Where arrays live: meshes of devices, partition specs, and the shardings made of them."""
from __future__ import annotations

import contextlib
import enum
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Hashable, Iterator, Sequence

import numpy as np

from aot import xla
from aot.source import wraps
from aot.trace import state

AxisName = Hashable


class AxisType(enum.Enum):
    """Who decides how values are split over a mesh axis: the compiler (Auto), their types (Explicit), the user (Manual).

    Explicit axes are accepted and left to the compiler, as Auto ones: results lie where constraints and arguments suggest,
    and the types of traced values do not tell."""
    Auto = "auto"
    Explicit = "explicit"
    Manual = "manual"

    def __repr__(self): return self.name


class _Infer:
    def __repr__(self): return "Infer"


#: axes that shall follow from the types of arguments (see `smap`)
Infer = _Infer()


class PartitionSpec(tuple):
    """For each array dimension the mesh axis it is split over, a tuple of axes, or None."""
    UNCONSTRAINED = type("Unconstrained", (), {"__repr__": lambda self: "UNCONSTRAINED"})()

    def __new__(cls, *partitions, unreduced=frozenset(), reduced=frozenset()):
        return super().__new__(cls, [tuple(p) if isinstance(p, list) else p for p in partitions])

    def __repr__(self): return f"PartitionSpec({', '.join(map(repr, self))}{',' if len(self) == 1 else ''})"
    def __reduce__(self): return PartitionSpec, tuple(self)
    def __hash__(self): return tuple.__hash__(self)
    def __eq__(self, other): return isinstance(other, tuple) and _trim(self) == _trim(other)

    def axes(self, dim: int) -> tuple:
        """The mesh axes of one dimension, major first."""
        p = self[dim] if dim < len(self) else None
        return () if p is None or p is self.UNCONSTRAINED else p if isinstance(p, tuple) else (p,)


def _trim(spec) -> tuple:
    out = [p[0] if isinstance(p, tuple) and len(p) == 1 else None if p == () else p for p in spec]
    while out and out[-1] is None:
        out.pop()
    return tuple(out)


P = PartitionSpec


@dataclass(frozen=True)
class AbstractDevice:
    """A kind of device, for meshes without devices."""
    device_kind: str
    num_cores: int | None
    platform: str


@dataclass(frozen=True)
class AbsentDevice:
    """A place in a mesh of devices that are not here."""
    id: int
    platform: str = "abstract"
    process_index: int = 0
    device_kind: str = "abstract"
    num_cores: int | None = None


def are_same_devices(some: Sequence, others: Sequence) -> bool:
    """Whether these are the same devices in any order.  Absent ones stand for any that have their ids."""
    if any(isinstance(d, AbsentDevice) for d in (*some[:1], *others[:1])):
        return {d.id for d in some} == {d.id for d in others}
    return some is others or set(some) == set(others)


@dataclass(frozen=True)
class ManualAxisType:
    """The manual mesh axes over which a value varies, is a sum not yet taken, or has had its sum taken."""
    varying: frozenset = frozenset()
    unreduced: frozenset = frozenset()
    reduced: frozenset = frozenset()

    def __post_init__(self):
        for name in ("unreduced", "reduced"):
            if both := self.varying & getattr(self, name):
                raise ValueError(f"ManualAxisType: the axes {sorted(map(str, both))} are varying and {name}; an axis is one of "
                                 f"them")


class AbstractMesh:
    """Axis names and sizes, without devices.  Raises ValueError where their numbers differ."""
    abstract_device: AbstractDevice | None = None

    def __init__(self, axis_sizes: Sequence[int], axis_names: Sequence[AxisName] | str,
                 axis_types: AxisType | Sequence[AxisType] | None = None, *, abstract_device: AbstractDevice | None = None):
        self.axis_names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        self.axis_sizes = tuple(axis_sizes)
        types = axis_types if axis_types is not None else AxisType.Auto
        self.axis_types = (types,) * len(self.axis_names) if isinstance(types, AxisType) else tuple(types)
        if abstract_device is not None:
            self.abstract_device = abstract_device
        if not len(self.axis_names) == len(self.axis_sizes) == len(self.axis_types):
            raise ValueError(f"a mesh has one size, name and type for each axis; got sizes {self.axis_sizes}, names "
                             f"{self.axis_names}, types {self.axis_types}")
        if any(not isinstance(t, AxisType) for t in self.axis_types):
            raise TypeError(f"mesh axis_types must be of type AxisType, got {self.axis_types}")

    @property
    def shape(self) -> OrderedDict: return OrderedDict(zip(self.axis_names, self.axis_sizes))

    @property
    def shape_tuple(self) -> tuple: return tuple(zip(self.axis_names, self.axis_sizes))

    @property
    def abstract_mesh(self) -> AbstractMesh: return self

    def _axes_of(self, kind: AxisType) -> tuple:
        return tuple(n for n, t in zip(self.axis_names, self.axis_types) if t is kind)

    auto_axes = property(lambda self: self._axes_of(AxisType.Auto))
    explicit_axes = property(lambda self: self._axes_of(AxisType.Explicit))
    manual_axes = property(lambda self: self._axes_of(AxisType.Manual))
    are_all_axes_auto = property(lambda self: not self.empty and self.auto_axes == self.axis_names)
    are_all_axes_explicit = property(lambda self: not self.empty and self.explicit_axes == self.axis_names)
    are_all_axes_manual = property(lambda self: not self.empty and self.manual_axes == self.axis_names)

    def update(self, axis_sizes=None, axis_names=None, axis_types=None, **kwargs: Any) -> AbstractMesh:
        """The same without devices, with other sizes, names or types."""
        return AbstractMesh(self.axis_sizes if axis_sizes is None else axis_sizes,
                            self.axis_names if axis_names is None else axis_names,
                            self.axis_types if axis_types is None else axis_types,
                            abstract_device=kwargs.get("abstract_device", self.abstract_device))

    def update_axis_types(self, name_to_type: Mapping[AxisName, AxisType]) -> AbstractMesh:
        """The same without devices, with other types of some axes."""
        return AbstractMesh.update(self, axis_types=[name_to_type.get(n, t) for n, t in zip(self.axis_names, self.axis_types)])

    @property
    def size(self) -> int: return prod(self.axis_sizes) if self.axis_sizes else 0

    @property
    def empty(self) -> bool: return not self.axis_names

    @property
    def _key(self) -> tuple: return self.axis_names, self.axis_sizes, self.axis_types, self.abstract_device

    def __eq__(self, other): return type(other) is AbstractMesh and self._key == other._key
    def __hash__(self): return hash(self._key)

    def __repr__(self):
        types = "" if self.auto_axes == self.axis_names else f", axis_types={self.axis_types}"
        return f"{type(self).__name__}({', '.join(f'{n!r}: {s}' for n, s in self.shape.items())}{types})"


class Mesh(AbstractMesh):
    """Devices in a grid with named axes.  `with mesh:` makes it the default of this thread."""

    def __init__(self, devices: Any, axis_names: Sequence[AxisName] | str,
                 axis_types: AxisType | Sequence[AxisType] | None = None):
        grid = np.array(devices, dtype=object)
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        if grid.ndim != len(names):
            raise ValueError(f"Mesh requires the ndim of its first argument (`devices`) to equal the length of its second "
                             f"argument (`axis_names`), but got devices.ndim == {grid.ndim} and len(axis_names) == "
                             f"{len(names)}.")
        if len(set(names)) != len(names):
            raise ValueError(f"mesh axis names must be distinct, got {names}")
        super().__init__(grid.shape, names, axis_types)
        self.devices = grid
        self._before: list = []

    @cached_property
    def device_tuple(self) -> tuple: return tuple(self.devices.flat)

    @property
    def device_ids(self) -> np.ndarray: return np.vectorize(lambda d: d.id, otypes=[int])(self.devices)

    @property
    def local_devices(self) -> list: return [d for d in self.device_tuple if d.process_index == xla.client().process_index()]

    @property
    def abstract_mesh(self) -> AbstractMesh:
        d = next(iter(self.device_tuple), None)
        known = d is not None and d.platform != "abstract"
        kind = AbstractDevice(d.device_kind, getattr(d, "num_cores", None), d.platform) if known else None
        return AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types, abstract_device=kind)

    def update(self, devices=None, axis_names=None, axis_types=None) -> Mesh:  # type: ignore[override]
        """The same with other devices, names or types."""
        return Mesh(self.devices if devices is None else devices, self.axis_names if axis_names is None else axis_names,
                    self.axis_types if axis_types is None else axis_types)

    @property
    def is_multi_process(self) -> bool: return len({d.process_index for d in self.device_tuple}) > 1

    def __eq__(self, other):
        return self is other or isinstance(other, Mesh) and self._key == other._key and self.device_tuple == other.device_tuple

    def __hash__(self): return self._hash

    @cached_property
    def _hash(self) -> int: return hash((self._key, self.device_tuple))

    def __enter__(self):
        self._before.append(state.mesh)
        state.mesh = self
        return self

    def __exit__(self, *exc):
        state.mesh = self._before.pop()


def get_mesh() -> Mesh | None:
    """The mesh of the innermost `with mesh:` or `set_mesh`, or None."""
    state.mesh_read = True
    return state.mesh


def get_abstract_mesh() -> AbstractMesh:
    """The same without its devices; without axes where there is none."""
    mesh = get_mesh()
    return mesh.abstract_mesh if mesh is not None else AbstractMesh((), ())


class set_mesh:
    """Make a mesh the default, for the rest of the program or, as a context manager, for a block."""

    def __init__(self, mesh: Mesh | None):
        self.before, state.mesh = state.mesh, mesh

    def __enter__(self): return state.mesh
    def __exit__(self, *exc): state.mesh = self.before


@contextlib.contextmanager
def use_abstract_mesh(mesh: AbstractMesh) -> Iterator[AbstractMesh]:
    """Trace and lower in this block for a mesh whose devices need not be here."""
    with absent_mesh(mesh):
        yield mesh


def absent_mesh(mesh: AbstractMesh) -> Mesh:
    """A mesh of devices that are not here."""
    kind = mesh.abstract_device or AbstractDevice("abstract", None, "abstract")
    devices = np.array([AbsentDevice(i, kind.platform, 0, kind.device_kind, kind.num_cores) for i in range(mesh.size)],
                       dtype=object)
    return Mesh(devices.reshape(mesh.axis_sizes), mesh.axis_names, mesh.axis_types)


@contextlib.contextmanager
def use_mesh(mesh: Mesh) -> Iterator[Mesh]:
    with mesh:
        yield mesh


def make_mesh(axis_shapes: Sequence[int], axis_names: Sequence[AxisName], axis_types=None, *, devices=None) -> Mesh:
    """A mesh of the first prod(axis_shapes) devices."""
    n = prod(axis_shapes)
    found = list(devices) if devices is not None else xla.devices()
    if len(found) < n:
        raise ValueError(f"Number of devices {len(found)} must be >= the product of mesh_shape {tuple(axis_shapes)}. hint: on "
                         "CPU set XLA_FLAGS=--xla_force_host_platform_device_count=N before the first array is made")
    return Mesh(np.array(found[:n], dtype=object).reshape(tuple(axis_shapes)), axis_names, axis_types)


# ---- shardings ---------------------------------------------------------------------------------------------------------

class Sharding:
    """How an array is laid out over devices."""
    memory_kind: str | None = None

    @property
    def bare(self) -> Sharding:
        """The sharding alone, without a layout of memory (see aot/layout.py)."""
        return self

    @property
    def device_tuple(self) -> tuple: raise NotImplementedError
    def tiles(self, ndim: int) -> Any: raise NotImplementedError

    @property
    def device_set(self) -> set: return set(self.device_tuple)

    @property
    def num_devices(self) -> int: return len(self.device_tuple)

    @property
    def _addressable_device_assignment(self) -> tuple:      # read by orbax
        return tuple(d for d in self.device_tuple if d.process_index == xla.client().process_index())

    @property
    def addressable_devices(self) -> set: return set(self._addressable_device_assignment)

    @property
    def is_fully_addressable(self) -> bool: return len(self.addressable_devices) == self.num_devices

    @property
    def is_fully_replicated(self) -> bool: return False

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict:
        """device -> tuple of slices that it holds."""
        dims, order = self.tiles(len(global_shape))
        self.shard_shape(global_shape)
        out = {}
        grid = np.asarray(order).reshape(*dims, -1)
        for at in np.ndindex(*grid.shape):
            index = tuple(slice(None) if dims[i] == 1 else slice(at[i] * (n // dims[i]), (at[i] + 1) * (n // dims[i]))
                          for i, n in enumerate(global_shape))
            out[self.device_tuple[grid[at]]] = index
        return {d: out[d] for d in self.device_tuple}

    def addressable_devices_indices_map(self, global_shape) -> dict:
        mine = self.addressable_devices
        return {d: i for d, i in self.devices_indices_map(global_shape).items() if d in mine}

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape each device holds.  Raises ValueError where the devices do not divide a dimension."""
        dims, _ = self.tiles(len(global_shape))
        for dim, n in enumerate(global_shape):
            if n % dims[dim]:
                raise ValueError(f"One of device_put or jit arguments was given the sharding of {self}, which implies that the "
                                 f"global size of its dimension {dim} should be divisible by {dims[dim]}, but it is equal to "
                                 f"{n} (full shape: {tuple(global_shape)})")
        return tuple(n // d for n, d in zip(global_shape, dims))

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        """Same devices in the same places."""
        if self.device_tuple != other.device_tuple:
            return False
        (d1, o1), (d2, o2) = self.tiles(ndim), other.tiles(ndim)
        groups = lambda dims, order: [sorted(row) for row in np.asarray(order).reshape(prod(dims), -1).tolist()]
        return tuple(d1) == tuple(d2) and groups(d1, o1) == groups(d2, o2)


class SingleDeviceSharding(Sharding):
    """A whole array on one device."""

    def __init__(self, device: Any, *, memory_kind: str | None = None):
        self._device, self.memory_kind = device, memory_kind

    @property
    def device_tuple(self) -> tuple: return (self._device,)

    @property
    def is_fully_replicated(self) -> bool: return True

    def tiles(self, ndim: int): return (1,) * ndim, [0]
    def __eq__(self, other): return isinstance(other, SingleDeviceSharding) and self._device == other._device
    def __hash__(self): return hash(self._device)
    def __repr__(self): return f"SingleDeviceSharding(device={self._device!r})"


def make_single_device_sharding(device: Any, *, memory_kind: str | None = None) -> SingleDeviceSharding:
    return SingleDeviceSharding(device, memory_kind=memory_kind)


class NamedSharding(Sharding):
    """A mesh, and for each array dimension the mesh axes that split it."""

    def __init__(self, mesh: AbstractMesh, spec: PartitionSpec, *, memory_kind: str | None = None, _logical_device_ids=None):
        if not isinstance(spec, PartitionSpec):
            raise TypeError(f"Unexpected type {type(spec)} for sharding.spec; hint: use PartitionSpec(...)")
        used = [a for i in range(len(spec)) for a in spec.axes(i)]
        for a in used:
            if a not in mesh.shape:
                raise ValueError(f"Resource axis: {a} of {spec} is not found in mesh: {tuple(mesh.shape)}.")
        if len(set(used)) != len(used):
            raise ValueError(f"A single NamedSharding spec specification can map every mesh axis to at most one positional "
                             f"dimension, but {spec} has duplicate entries for one of {sorted(map(str, used))}")
        self.mesh, self.spec, self.memory_kind = mesh, spec, memory_kind

    @property
    def device_tuple(self) -> tuple:
        if not isinstance(self.mesh, Mesh):
            raise ValueError(f"{self} has no devices. hint: make it of a Mesh, or use it where one of this shape is set, as by "
                             "`with aot.set_mesh(mesh):`")
        return self.mesh.device_tuple

    @property
    def is_fully_replicated(self) -> bool:
        return all(self.mesh.shape[a] == 1 for i in range(len(self.spec)) for a in self.spec.axes(i))

    def update(self, *, mesh: AbstractMesh | None = None, spec: Any = None, memory_kind: str | None = None) -> NamedSharding:
        """The same with another mesh, spec (a PartitionSpec, or its entries) or memory kind."""
        if spec is not None and not isinstance(spec, PartitionSpec):
            spec = PartitionSpec(*spec)
        return NamedSharding(mesh or self.mesh, self.spec if spec is None else spec,
                             memory_kind=memory_kind or self.memory_kind)

    def tiles(self, ndim: int) -> tuple[tuple[int, ...], list[int]]:
        """(tiles in each dimension, device positions in tile order, replicas last)."""
        if len(self.spec) > ndim:
            raise ValueError(f"Sharding {self} is only valid for values of rank at least {len(self.spec)}, but was applied "
                             f"to a value of rank {ndim}")
        shape = self.mesh.shape
        axes = [self.spec.axes(i) for i in range(ndim)]
        dims = tuple(prod(shape[a] for a in group) for group in axes)
        named = [self.mesh.axis_names.index(a) for group in axes for a in group]
        rest = [i for i in range(len(shape)) if i not in named]
        ids = np.arange(self.mesh.size).reshape(self.mesh.axis_sizes).transpose([*named, *rest])
        return dims, ids.ravel().tolist()

    def __eq__(self, other):
        return self is other or isinstance(other, NamedSharding) and self.mesh == other.mesh and self.spec == other.spec

    def __hash__(self): return self._hash

    @cached_property
    def _hash(self) -> int: return hash((self.mesh, _trim(self.spec)))
    def __repr__(self): return f"NamedSharding(mesh={self.mesh!r}, spec={self.spec!r})"


class TiledSharding(Sharding):
    """A layout that the compiler chose and that no spec of the mesh describes: tile counts and device order."""

    def __init__(self, devices: Sequence, dims: Sequence[int], order: Sequence[int]):
        self._devices, self.dims, self.order = tuple(devices), tuple(dims), list(order)

    @property
    def device_tuple(self) -> tuple: return self._devices

    @property
    def is_fully_replicated(self) -> bool: return prod(self.dims) == 1

    def tiles(self, ndim: int): return self.dims + (1,) * (ndim - len(self.dims)), self.order

    def __eq__(self, other):
        return isinstance(other, TiledSharding) and (self._devices, self.dims, self.order) == (
            other._devices, other.dims, other.order)

    def __hash__(self): return self._hash

    @cached_property
    def _hash(self) -> int: return hash((self._devices, self.dims, tuple(self.order)))
    def __repr__(self): return f"TiledSharding(dims={self.dims}, order={self.order})"


def spec_from_tiles(mesh: Mesh, dims: Sequence[int], order: Sequence[int]) -> NamedSharding | None:
    """The spec over this mesh that gives these tiles, if there is one."""
    sizes, names = mesh.shape, mesh.axis_names

    def assign(i: int, left: tuple) -> Iterator[list]:
        if i == len(dims):
            yield []
            return
        for group in _groups(left, dims[i], sizes):
            for rest in assign(i + 1, tuple(a for a in left if a not in group)):
                yield [group, *rest]
    want = [sorted(row) for row in np.asarray(order).reshape(prod(dims), -1).tolist()]
    for groups in assign(0, names):
        found = NamedSharding(mesh, PartitionSpec(*[None if not g else g[0] if len(g) == 1 else g for g in groups]))
        _, ids = found.tiles(len(dims))
        if [sorted(row) for row in np.asarray(ids).reshape(prod(dims), -1).tolist()] == want:
            return found
    return None


def _groups(axes: tuple, n: int, sizes) -> Iterator[tuple]:
    """Ordered choices of axes whose sizes multiply to n (axes of size 1 are left out)."""
    if n == 1:
        yield ()
        return
    for a in axes:
        if sizes[a] > 1 and n % sizes[a] == 0:
            for rest in _groups(tuple(b for b in axes if b != a), n // sizes[a], sizes):
                yield (a, *rest)


def reshard(xs: Any, out_shardings: Any) -> Any:
    """Every leaf of xs in another layout."""
    from aot.parallel import reshard
    return reshard(xs, out_shardings)


def auto_axes(f: Callable | None = None, /, *, axes: str | Sequence[str] | None = None, out_sharding: Any = None) -> Callable:
    """f, with its results laid out as out_sharding says (given here, or to each call): a sharding, or a tree of them.

    axes: named for the sake of programs with Explicit axes; all axes are left to the compiler anyway (see AxisType)."""
    return _resharded(f, "auto_axes", "out_sharding", axes, out_sharding)


def explicit_axes(f: Callable | None = None, /, *, axes: str | Sequence[str] | None = None, in_sharding: Any = None
                  ) -> Callable:
    """f of arguments that are laid out first as in_sharding says (given here, or to each call).  axes: as of auto_axes."""
    return _resharded(f, "explicit_axes", "in_sharding", axes, in_sharding)


def _resharded(f: Callable | None, name: str, option: str, axes: Any, given: Any) -> Callable:
    if f is None:
        return lambda g: _resharded(g, name, option, axes, given)

    @wraps(f)
    def call(*args, **kwargs):
        where = kwargs.pop(option, None) if given is None else given
        if where is None:
            raise TypeError(f"{name} of {getattr(f, '__name__', f)} needs {option}=. hint: give it to {name} or to the call")
        named = (axes,) if isinstance(axes, str) else tuple(axes or ())
        if unknown := [a for a in named if a not in get_abstract_mesh().axis_names]:
            raise ValueError(f"{name}: the mesh has no axis {unknown[0]!r}. hint: it has {get_abstract_mesh().axis_names}; "
                             "`with aot.set_mesh(mesh):` sets it")
        if option == "in_sharding":
            return f(*reshard(args, where), **kwargs)
        return reshard(f(*args, **kwargs), where)
    return call
