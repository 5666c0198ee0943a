"""`Array`: a concrete array on a device, and how values become one."""
from __future__ import annotations

from typing import Any

import numpy as np

from aot import dtypes, xla
from aot.array_methods import ArrayMethods
from aot.trace import ShapedArray, Tracer, is_tracer, typeof
from aot.trace.refs import is_ref

_asarray = np.asarray


class _ArrayMeta(type):
    """isinstance(x, Array) also holds for tracers, as users of traced functions expect."""

    def __instancecheck__(cls, x):
        t = type(x)
        return t is Array or issubclass(t, Tracer) and not is_ref(x)


class Array(ArrayMethods, metaclass=_ArrayMeta):
    """An immutable array in device memory.

    Holds a jaxlib buffer in `buf`; `aval` says what it means (typed keys are stored as uint32 words).
    """
    __slots__ = ("buf", "aval", "_host", "__weakref__")  # pyright: ignore
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, buf: Any, aval: ShapedArray):
        self.buf, self.aval, self._host = buf, aval, None

    shape = property(lambda self: self.aval.shape)  # pyright: ignore
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: len(self.aval.shape))
    size = property(lambda self: self.aval.size)
    weak_type = property(lambda self: self.aval.weak_type)
    itemsize = property(lambda self: self.aval.dtype.itemsize)
    nbytes = property(lambda self: self.aval.size * self.aval.dtype.itemsize)

    @property
    def _value(self) -> np.ndarray:
        """The (physical) contents as a read-only numpy array; waits for the computation."""
        if self._host is None:
            if self.buf.is_deleted():
                raise RuntimeError(f"Array has been deleted with shape={self.aval.str_short(False)}. "
                                   "hint: it was donated to a jitted function or deleted; use the function's result")
            self._host = gather(self) if xla.is_placed(self.buf) else xla.to_numpy(self.buf)
        return self._host

    def _numeric(self) -> np.ndarray:
        if not isinstance(self.aval.dtype, np.dtype):
            raise TypeError("JAX array with PRNGKey dtype cannot be converted to a NumPy array. "
                            "hint: use random.key_data(arr) to get the underlying integers")
        return self._value

    def __array__(self, dtype=None, copy=None):
        v = self._host
        if v is None and isinstance(self.aval.dtype, np.dtype):
            try:
                v = self._host = np.asarray(memoryview(self.buf))       # the quick form of _value
            except Exception:
                v = None
        if v is None:
            v = self._numeric()
        if dtype is not None and v.dtype != dtype:
            return v.astype(dtype)
        return v.copy() if copy else v

    def __bool__(self):
        if self.size != 1:
            raise ValueError("The truth value of an array with more than one element is ambiguous. "
                             "Use a.any() or a.all()" if self.size else
                             "The truth value of an empty array is ambiguous. Use `array.size > 0` to check")
        return bool(self._numeric().reshape(())[()])

    def _scalar(self, kind):
        if self.ndim:
            raise TypeError(f"Only scalar arrays can be converted to Python scalars; got arr.ndim={self.ndim}")
        return kind(self._numeric()[()])

    def __int__(self): return self._scalar(int)
    def __float__(self): return self._scalar(float)
    def __complex__(self): return self._scalar(complex)

    def __index__(self):
        if self.ndim or self.dtype.kind not in "iu":
            raise TypeError("Only integer scalar arrays can be converted to a scalar index.")
        return int(self._value[()])

    def __hex__(self): return hex(self.__index__())
    def __oct__(self): return oct(self.__index__())

    @property
    def __cuda_array_interface__(self): raise AttributeError("__cuda_array_interface__ is for arrays on GPUs; use dlpack")

    @property
    def device_buffer(self): raise AttributeError("device_buffer was removed; use x.addressable_data(0)")

    @property
    def device_buffers(self): raise AttributeError("device_buffers was removed; use [s.data for s in x.addressable_shards]")

    def __format__(self, spec):
        is_number = self.ndim == 0 and isinstance(self.dtype, np.dtype)
        return format(self._value[()] if is_number else self._value if spec and isinstance(self.dtype, np.dtype)
                      else str(self), spec)

    def tolist(self): return self._numeric().tolist()
    def item(self, *args): return self._numeric().item(*args)
    def tobytes(self, order: Any = "C"): return self._numeric().tobytes(order)
    def __reduce__(self): return _restore, (np.array(self._value), self.aval.dtype, self.aval.weak_type)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        self._numeric()
        return xla.dlpack_export(self.buf)

    def __dlpack_device__(self): return (1, 0)

    def block_until_ready(self):
        """Wait for the computation that makes this array; returns it."""
        self.buf.block_until_ready()
        return self

    def copy_to_host_async(self) -> None:
        """Start the copy that `np.asarray` waits for."""
        for part in xla.single_device_buffers(self.buf):
            part._copy_single_device_array_to_host_async()

    def is_deleted(self) -> bool: return self.buf.is_deleted()
    def delete(self) -> None:
        """Free the memory.  References to this array keep their contents."""
        from aot.compile.eager import leave
        leave([self.buf])
        self.buf.delete()

    def is_ready(self) -> bool: return self.buf.is_ready()
    def on_device_size_in_bytes(self) -> int: return self.aval.physical.size * self.aval.physical.dtype.itemsize

    @property
    def sharding(self) -> Any:
        """How the array is laid out over devices."""
        return self.placement.bare

    @property
    def placement(self) -> Any:
        """The sharding and, where that is not the default, the layout of the buffer."""
        from aot.sharding import SingleDeviceSharding
        s = self.buf._sharding
        return s.logical if hasattr(s, "logical") else SingleDeviceSharding(s._device)

    @property
    def format(self):
        """The order of the elements in memory, and the devices."""
        from aot.layout import Format, Layout
        return Format(Layout.parse(xla.layout_of(self.buf), self.ndim), self.sharding)

    @property
    def platform(self) -> str:
        """The kind of device, for instance "cpu"."""
        return next(iter(self.sharding.device_set)).platform

    @property
    def device(self) -> Any:
        """The device, or the sharding of an array on several."""
        s = self.sharding
        return s if len(s.device_tuple) > 1 else s.device_tuple[0]

    def devices(self) -> set: return self.sharding.device_set

    @property
    def is_fully_addressable(self) -> bool: return self.sharding.is_fully_addressable

    @property
    def is_fully_replicated(self) -> bool: return self.sharding.is_fully_replicated

    @property
    def committed(self) -> bool: return xla.is_placed(self.buf)

    @property
    def addressable_shards(self) -> list[Shard]:
        """The parts of the array on this process's devices."""
        s = self.sharding
        if len(s.device_tuple) == 1:
            return [Shard(self.device, tuple(slice(None) for _ in self.shape), 0, self)]
        where, seen, out = s.devices_indices_map(self.shape), {}, []
        local = ShapedArray(s.shard_shape(self.shape), self.aval.dtype, self.aval.weak_type)
        mine = [d for d in s.device_tuple if d in s.addressable_devices]
        for d, b in zip(mine, xla.single_device_buffers(self.buf)):
            at = str(where[d])
            seen[at] = seen.get(at, -1) + 1
            out.append(Shard(d, where[d], seen[at], Array(b, local)))
        return out

    def addressable_data(self, index: int) -> Array: return self.addressable_shards[index].data

    @property
    def global_shards(self) -> list[Shard]: return self.addressable_shards

    def to_device(self, device: Any, *, stream=None) -> Array: return device_put_one(self, device)

    def unsafe_buffer_pointer(self) -> int: return self.buf.unsafe_buffer_pointer()

    def __repr__(self):
        if not isinstance(self.dtype, np.dtype):
            return f"Array({self.shape}, dtype={self.dtype.name}) overlaying:\n{self._value}"
        weak = ", weak_type=True" if self.weak_type else ""
        tail, width = f"dtype={self.dtype.name}{weak})", np.get_printoptions()["linewidth"]
        text = f"[], shape={self.shape}" if not self.size else np.array2string(
            self._value, prefix="Array(", suffix=",", separator=", ", max_line_width=width)
        last = len(text) - text.rfind("\n") + 1
        return f"Array({text},{' ' if last + len(tail) + 1 <= width else '      '}{tail}"

    def __str__(self): return str(self._value) if isinstance(self.dtype, np.dtype) else repr(self)


class Shard:
    """One device's part of an array: which device, which slices of the whole, which copy of them, the data."""
    __slots__ = ("data", "device", "index", "replica_id")

    def __init__(self, device: Any, index: tuple, replica_id: int, data: Array):
        self.device, self.index, self.replica_id, self.data = device, index, replica_id, data

    def __repr__(self):
        return f"Shard(device={self.device!r}, index={self.index}, replica_id={self.replica_id}, data={self.data})"


def gather(x: Array) -> np.ndarray:
    """The whole of an array that lies on several devices, on the host."""
    if x.is_fully_replicated:
        return xla.to_numpy(xla.single_device_buffers(x.buf)[0])
    if not x.is_fully_addressable:
        raise RuntimeError("Fetching value for `jax.Array` that spans non-addressable (non process local) devices is not "
                           "possible. hint: use experimental.multihost_utils.process_allgather, or addressable_shards")
    a = x.aval.physical
    out = np.empty(a.shape, a.dtype)
    for shard in x.addressable_shards:
        out[shard.index] = xla.to_numpy(shard.data.buf)
    out.flags.writeable = False
    return out


def as_physical(x: Any, aval: ShapedArray) -> np.ndarray:
    """Any concrete value as the numpy array of its stored form."""
    return x._value if type(x) is Array else np.asarray(x, dtype=aval.physical.dtype)


def to_buffer(x: Any, aval: ShapedArray, device=None) -> Any:
    """The buffer of a concrete value whose aval is known: on this device, by default where new values go."""
    if type(x) is Array and not (xla.may_be_placed() and xla.is_placed(x.buf)):
        return x.buf
    where = xla.default_sharding(xla.chosen_device() if device is None else device)
    return xla.put(as_physical(x, aval), xla.storage(aval), where)


def shared(x: np.ndarray) -> Array:
    """A numpy array that nobody changes as an Array of the same memory.  Its contents are known without waiting for a device,
    which a callback that runs on one of the device's threads must not do."""
    aval = ShapedArray(x.shape, x.dtype)
    out = Array(xla.put(x, xla.storage(aval), may_alias=True), aval)
    out._host = x.view()
    out._host.flags.writeable = False
    return out


def asarray(x: Any, dtype: Any = None) -> Array:
    """A concrete array-like as an Array (copied), keeping its weak type."""
    if type(x) is Array and dtype is None:
        return x
    if dtype is not None:
        x = np.asarray(x, dtype=dtype)
    aval = typeof(x)
    return Array(to_buffer(x, aval), aval)


def _restore(words: np.ndarray, dtype: Any, weak_type: bool) -> Array:
    """The inverse of pickling; a dtype of 64 bits is narrowed where those are off."""
    shape = words.shape if isinstance(dtype, np.dtype) else words.shape[:words.ndim - len(dtype.impl.key_shape)]
    aval = ShapedArray(shape, dtypes.canonicalize_dtype(dtype) if isinstance(dtype, np.dtype) else dtype, weak_type)
    return Array(to_buffer(words, aval), aval)


def device_put_one(x: Any, where: Any = None) -> Any:
    """One leaf of `device_put`: x on a device, or laid out by a sharding."""
    from aot.layout import AutoLayout, Format, with_layout_constraint
    from aot.memory import Space
    from aot.sharding import PartitionSpec, Sharding
    if isinstance(where, Space):
        if where is Space.Host:
            raise NotImplementedError("device_put(x, memory.Space.Host) is not supported: arrays are in the memory of a "
                                      "device. hint: device_get gives a numpy array")
        where = None
    if isinstance(where, (Sharding, PartitionSpec, Format)):
        from aot.compile.spmd import place, resolve
        target: Any = resolve(where, "device_put")
        if target is None and isinstance(where, Sharding):      # of a type, where no mesh is set
            return device_put_one(x)
        if target is None or not target.device_tuple or isinstance(getattr(where, "layout", None), AutoLayout):
            raise ValueError(f"device_put needs to know where to, got {where!r}. hint: give the Format a sharding, and a "
                             "Layout that is not AUTO")
        if is_tracer(x):
            from aot.ops.spmd import sharding_constraint_p
            from aot.trace import bind1
            constrained = bind1(sharding_constraint_p, x, sharding=target.bare)
            return constrained if target.bare is target else with_layout_constraint(constrained, target.layout)
        aval = typeof(x)
        return x if type(x) is Array and x.placement == target else Array(place(x, aval, target), aval)
    if is_tracer(x):
        return x
    if type(x) is Array and (where is None or x.device == where):
        return x
    aval = typeof(x)
    if aval.dtype == dtypes.float0:
        return x
    return Array(xla.put(as_physical(x, aval), xla.storage(aval), xla.default_sharding(where or xla.chosen_device())), aval)
