"""The one adapter to `jaxlib`: clients, compilation, execution, buffers.  aot/mlir.py is its part that reads modules.

No other file of the compiler imports jaxlib (the loader, which is one self-contained file, has its own copy of the
few calls it needs).  Everything here is lazy: importing this module costs nothing until the first array is made.
"""
from __future__ import annotations

import os
import sys
import threading
import warnings
from contextlib import contextmanager
from functools import cache
from typing import Any, Callable, Iterator, Sequence

import numpy as np

from aot import mlir
from aot.config import check_environment

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # jaxlib 0.12 logs device lists at INFO


class once:
    """Decorator: `cache` for what must not be made twice by threads that ask for it at the same time."""

    def __init__(self, make: Callable):
        self.lock, self.made = threading.RLock(), cache(make)
        self.cache_info = self.made.cache_info

    def __call__(self, *args: Any) -> Any:
        with self.lock:
            return self.made(*args)


# ---- keep C++ from importing jax behind our back -----------------------------------------------------------------

_quiet = threading.local()


class _RefuseJax:
    """jaxlib's C++ does `import jax` inside some calls to build avals.  Refused, but only inside those calls."""

    def find_spec(self, name, path=None, target=None):
        if name == "jax" and getattr(_quiet, "on", False):
            raise ModuleNotFoundError(name, name=name)
        return None


def without_jax(f: Callable, *args, **kwargs):
    """Call f while refusing jaxlib's own attempts to import jax (a no-op once the user has imported it)."""
    if "jax" in sys.modules:
        return f(*args, **kwargs)
    _quiet.on = True
    try:
        return f(*args, **kwargs)
    finally:
        _quiet.on = False


def __getattr__(name: str) -> Any:
    """Lazy handles on jaxlib's modules: `xla.xc`, `xla.ext` and `xla.pytree`."""
    if name in ("xc", "ext", "pytree", "XlaRuntimeError", "SingleDeviceSharding", "ArrayImpl", "collect_garbage"):
        _load()
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@once
def _load() -> None:
    check_environment()
    from jaxlib import _jax as ext
    from jaxlib import xla_client as xc
    sys.meta_path.insert(0, _RefuseJax())

    class SingleDeviceSharding(xc.SingleDeviceSharding):
        """jaxlib's single-device sharding plus the three methods that C++ asks for.  Class level: jax patches bases."""
        memory_kind = None
        num_devices = 1
        _internal_device_list = property(lambda self: _device_list((self._device,)))

        def _to_xla_hlo_sharding(self, ndim):
            return xc.HloSharding.replicate()

    globals().update(xc=xc, ext=ext, pytree=ext.pytree, XlaRuntimeError=ext.JaxRuntimeError,
                     SingleDeviceSharding=SingleDeviceSharding, ArrayImpl=xc.ArrayImpl,
                     # Each execute_sharded leaves a traceback of 90 bytes that C++ may not free without the GIL.
                     collect_garbage=getattr(ext, "collect_garbage", lambda: None))


def _mod(name: str) -> Any:
    return globals().get(name) or __getattr__(name)


@once
def _device_list(devices: tuple) -> Any:
    return _mod("xc").DeviceList(devices)


# ---- clients and devices -----------------------------------------------------------------------------------------

def client(platform: str = "cpu") -> Any:
    """The process's PJRT client of a platform."""
    return _client(platform)


@once
def _client(platform: str) -> Any:
    """Made once.  The number of CPU devices follows `--xla_force_host_platform_device_count` or
    the config value `num_cpu_devices`."""
    from aot.config import config
    if platform != "cpu":
        raise RuntimeError(f"Unknown backend {platform!r}: this process has no PJRT client for it; "
                           "hint: executables for other platforms are compiled ahead of time with --target")
    n = getattr(config, "num_cpu_devices", -1)
    kwargs = {"num_devices": n} if n and n > 0 else {}
    if not kwargs and "xla_force_host_platform_device_count=" in os.environ.get("XLA_FLAGS", ""):
        flag = os.environ["XLA_FLAGS"].split("xla_force_host_platform_device_count=")[1].split()[0]
        kwargs = {"num_devices": int(flag)}
    if distributed := sys.modules.get("aot.distributed"):
        kwargs |= distributed.client_options()
    os.register_at_fork(before=_warn_of_fork)
    return _mod("xc").make_cpu_client(asynchronous=True, **kwargs)


def _warn_of_fork() -> None:
    warnings.warn("a process that has run programs is forked: the child has none of XLA's threads, and waits forever where it "
                  "runs one. hint: fork before the first array, or start processes with multiprocessing's 'spawn'",
                  RuntimeWarning, stacklevel=2)


def devices() -> list:
    return client().devices()


@cache
def default_device() -> Any:
    """The first device of this process."""
    return client().local_devices()[0]


def chosen_device() -> Any:
    """The device that the option `default_device` asks for, None where that is the default one."""
    from aot.config import config
    wanted = config.default_device
    if isinstance(wanted, str):
        wanted = client(wanted).local_devices()[0]
    return None if wanted is None or wanted == default_device() else wanted


def started() -> bool:
    """Whether this process has a client, so that its devices are fixed."""
    return _client.cache_info().currsize > 0


@cache
def several_devices() -> bool:
    """Whether this process has more than one device at all."""
    return len(devices()) > 1


_layouts_used = False       # whether any buffer of this process has a layout of its own


def may_be_placed() -> bool:
    """Whether any buffer of this process may be placed (see `is_placed`)."""
    return _layouts_used or several_devices()


def is_default(logical) -> bool:
    """Whether a sharding of ours is what arrays have that nobody asked for something else: not `is_placed`."""
    return logical.bare is logical and is_default_place(logical.device_tuple)


def is_default_place(devices: tuple) -> bool: return devices == (default_device(),)


@once
def default_sharding(device=None) -> Any:
    """The sharding that puts a whole array on one device (the first one by default)."""
    if device is None or device == default_device():
        return _mod("SingleDeviceSharding")(default_device())
    from aot.sharding import SingleDeviceSharding
    return _buffer_sharding_class()(SingleDeviceSharding(device), 0)


# ---- buffers -----------------------------------------------------------------------------------------------------

class Storage:
    """What C++ wants to know of a buffer (shape, dtype, weak_type), and the aval that it stores.

    Typed keys are stored as uint32 words; they are marked weakly typed, so that a signature never takes words for keys.
    """
    __slots__ = ("shape", "dtype", "weak_type", "ndim", "logical")

    def __init__(self, logical):
        physical = logical.physical
        self.shape, self.dtype, self.ndim = physical.shape, physical.dtype, len(physical.shape)
        self.weak_type, self.logical = logical.weak_type or physical is not logical, logical

    def __hash__(self): return hash((self.shape, self.dtype, self.weak_type, self.logical))
    def __eq__(self, other): return type(other) is Storage and self.logical == other.logical


@cache
def storage(aval) -> Storage:
    return Storage(aval)


@once
def default_registry() -> Any:
    """A pytree registry for C++ calls, which see only flat tuples."""
    return _mod("pytree").PyTreeRegistry()


def put(x: np.ndarray, stored: Storage, sharding=None, may_alias: bool = False) -> Any:
    """Host array -> device buffer on one device.  Copies unless `may_alias` (then host memory may be shared)."""
    s = sharding or default_sharding()
    semantics = _mod("xc").HostBufferSemantics
    how = semantics.ZERO_COPY if may_alias else semantics.IMMUTABLE_ONLY_DURING_CALL
    return _mod("xc").batched_device_put(stored, s, [x], [s._device],
                                         host_buffer_semantics=how, enable_x64=True)


def to_numpy(buf) -> np.ndarray:
    """Single-shard device buffer -> read-only numpy array, zero-copy where the dtype allows it."""
    try:
        return np.asarray(memoryview(buf))
    except (BufferError, ValueError, NotImplementedError):
        return without_jax(buf._single_device_array_to_np_array_did_copy)[0]


@cache
def result_handler(aval: Storage, sharding) -> Any:
    xc = _mod("xc")
    try:
        return xc.array_result_handler(aval, sharding, True, True)
    except TypeError:  # jaxlib 0.12 dropped the last argument
        return xc.array_result_handler(aval, sharding, True)


def dlpack_export(buf, **kwargs) -> Any:
    return without_jax(_mod("ext").buffer_to_dlpack_managed_tensor, buf)


def described(buf, stored: Storage, sharding) -> Any:
    """A buffer that came from elsewhere, with the type and the sharding that ours have."""
    return buf._rewrap_with_aval_and_sharding(stored, sharding)


def dlpack_import(capsule, device=None) -> Any:
    device = device if device is not None else default_device()
    return without_jax(_mod("ext").dlpack_managed_tensor_to_buffer, capsule, device, None)


# ---- compile and run ---------------------------------------------------------------------------------------------

def compile_options(num_partitions: int = 1, device_ids: Sequence[int] = (0,), **flags) -> Any:
    """flags: XLA DebugOptions fields, e.g. xla_cpu_enable_fast_math=False."""
    xc = _mod("xc")
    options = xc.CompileOptions()
    options.num_partitions, options.num_replicas = num_partitions, 1
    build = options.executable_build_options
    build.use_spmd_partitioning, build.use_shardy_partitioner = num_partitions > 1, True
    options.device_assignment = xc.DeviceAssignment.create(np.array(device_ids).reshape(1, num_partitions))
    options.env_option_overrides = list(flags.items())
    return options


def compile_text(text: str, device=None, host_callbacks: Sequence[Callable] = (), **flags) -> Any:
    """StableHLO text -> loaded executable.  Raises XlaRuntimeError."""
    device = device if device is not None else default_device()
    if "@lapack_" in text:
        register_lapack()
    options = compile_options(device_ids=(device.id,), **flags)
    module: Any = text.encode()
    if host_callbacks:
        module = mlir.parse(text)
        return client().compile_and_load(module, _device_list((device,)), options, host_callbacks=list(host_callbacks))
    return client().compile_and_load(module, _device_list((device,)), options)


@cache
def register_lapack() -> None:
    """Make jaxlib's LAPACK kernels callable; without `initialize` calling them would crash the process."""
    from jaxlib import lapack
    lapack._lapack.initialize()
    for platform, rows in lapack.registrations().items():
        for name, fn, api in rows:
            _mod("xc").register_custom_call_target(name, fn, platform=platform, api_version=api)


def register_call_target(name: str, fn: Any, platform: str, api_version: int, **kwargs: Any) -> None:
    """Make a function of a library callable from programs.  Raises XlaRuntimeError for a name that is taken."""
    _mod("xc").register_custom_call_target(name, fn, platform=platform, api_version=api_version, **kwargs)


def register_call_type(name: str, registration: Any, platform: str) -> None:
    """Make a type known that functions of a library keep between calls."""
    _mod("xc").register_custom_type(name, registration, platform=platform)


def register_batch_partitionable(name: str) -> None:
    """Let calls of a target be split over devices along leading dimensions."""
    _mod("xc").register_custom_call_as_batch_partitionable(name)


def include_dir() -> str:
    """The folder of XLA's headers for such functions."""
    import jaxlib
    return os.path.join(os.path.dirname(os.path.abspath(jaxlib.__file__)), "include")


def profiler() -> tuple[Any, Any]:
    """XLA's profiler, and its reader of profiles."""
    from jaxlib import _profile_data, _profiler
    return _profiler, _profile_data


def serialize(executable) -> bytes:
    return client().serialize_executable(executable)


def deserialize(blob: bytes, devices: Sequence = (), lapack: bool = True, **flags) -> Any:
    """Serialized executable -> executable over these devices, by default the first one.

    lapack: it may call LAPACK kernels (loading them takes a while).
    """
    devices = tuple(devices) or (default_device(),)
    if lapack:
        register_lapack()
    options = compile_options(len(devices), [d.id for d in devices], **flags)
    return client().deserialize_executable(blob, _device_list(devices), options)


def analysis(executable: Any) -> dict[str, Any]:
    """{"memory": {use: bytes}, "flops": number, "collectives": see aot/partition.py}, as far as the platform tells."""
    from aot.partition import collectives

    def memory():
        stats = executable.get_compiled_memory_stats()
        return {k: getattr(stats, f"{k}_size_in_bytes") for k in ("argument", "output", "alias", "temp", "generated_code")}

    def flops():
        cost = executable.cost_analysis()
        return int((cost[0] if isinstance(cost, (list, tuple)) else cost).get("flops", 0))

    def exchanged(): return collectives(executable.hlo_modules()[0].to_string())
    found: dict[str, Any] = {}
    for name, ask in (("memory", memory), ("flops", flops), ("collectives", exchanged)):
        try:
            found[name] = ask()
        except (_mod("XlaRuntimeError"), AttributeError):  # not implemented on some platforms
            pass
    return found


def cross_compile(text: str, kind: str, plugin: str | None, topology: str, config: str = "", count: int = 1, **flags) -> Any:
    """Compile for `count` devices of a machine that is not here: see `absent_devices`.

    The result has `serialize()` but cannot run.  Raises XlaRuntimeError.
    """
    return compile_absent(text, absent_devices(kind, plugin, topology, config)[:count], **flags)


def absent_devices(kind: str, plugin: str | None, topology: str, config: str = "") -> list:
    """The devices of a machine that is not here, to compile for.  kind: "cuda" or "tpu"; plugin: its shared library.

    Raises XlaRuntimeError."""
    xc = _mod("xc")
    if not xc.pjrt_plugin_loaded(kind):
        _plugins[kind] = xc.load_pjrt_plugin_dynamically(kind, plugin)
        xc.initialize_pjrt_plugin(kind)
    for target in _partitioners:
        _register_partitioner(target, c_api=_plugins[kind])
    if kind == "tpu":
        described = xc.make_tfrt_tpu_c_api_device_topology(topology)
    else:
        described = xc.make_c_api_device_topology(_plugins[kind], "", target_config=config, topology=topology)
    return described._make_compile_only_devices()


def is_absent(device: Any) -> bool:
    """Whether a device is one of `absent_devices`."""
    return type(getattr(device, "client", None)).__name__ == "CompileOnlyPyClient"


def compile_absent(text: str, devices: Sequence, **flags) -> Any:
    """Compile for absent devices of one machine.  Raises XlaRuntimeError."""
    options = compile_options(len(devices), [d.id for d in devices], **flags)
    with _errors_of_partitioners():
        return devices[0].client.compile(mlir.parse(text), _device_list(tuple(devices)), options)


_plugins: dict[str, Any] = {}


def plugin_client(path: str) -> Any:
    """A client of a PJRT plugin file.  Raises XlaRuntimeError."""
    xc, name = _mod("xc"), f"plugin:{path}"
    if not xc.pjrt_plugin_loaded(name):
        xc.load_pjrt_plugin_dynamically(name, path)
        xc.initialize_pjrt_plugin(name)
    return xc.make_c_api_client(name)


def compile_for_plugin(client: Any, text: str, **flags) -> tuple[bytes, dict[str, Any]]:
    """Compile for the first device of a plugin's client -> the executable, serialized, and `analysis` of it."""
    device = client.devices()[0]
    made = client.compile_and_load(text.encode(), _device_list((device,)), compile_options(device_ids=(device.id,), **flags))
    return client.serialize_executable(made), analysis(made)


def warm_up() -> None:
    """Load jaxlib and its MLIR bindings, but make no client: the process can still fork."""
    _load()
    mlir.dialects()


def version_info() -> dict[str, str]:
    """Identity of the toolchain, for cache keys and manifests."""
    import jaxlib
    return {"jaxlib": jaxlib.__version__, "platform": "cpu", "xla": client().platform_version}


# ---- several devices -----------------------------------------------------------------------------------------------------

@once
def _buffer_sharding_class() -> Any:
    xc = _mod("xc")

    class BufferSharding(xc.GSPMDSharding):
        """What C++ asks of the sharding of a placed buffer (see `is_placed`); `logical` is ours.

        There is one object for each and each rank, so that C++ compares and hashes them without asking Python; with this
        base it takes buffers as they are."""
        memory_kind = None
        num_devices = property(lambda self: len(self.logical.device_tuple))
        _internal_device_list = property(lambda self: self.list)
        _device = property(lambda self: self.logical.device_tuple[0])

        def __init__(self, logical, ndim: int):
            self.logical, self.list = logical, _device_list(logical.device_tuple)
            super().__init__(self.list, hlo_sharding(logical, ndim))

        def _to_xla_hlo_sharding(self, ndim): return hlo_sharding(self.logical, ndim)

        __eq__, __hash__ = object.__eq__, object.__hash__
    return BufferSharding


@once
def buffer_sharding(logical, ndim: int) -> Any:
    """The jaxlib sharding of a sharding of ours, for buffers of this rank."""
    global _layouts_used
    if logical.bare is not logical:
        _layouts_used = True
    elif len(logical.device_tuple) == 1:
        return default_sharding(logical.device_tuple[0])
    return _buffer_sharding_class()(logical, ndim)


def hlo_sharding(logical, ndim: int) -> Any:
    xc = _mod("xc")
    dims, order = logical.tiles(ndim)
    tiles = int(np.prod(dims, dtype=int))
    if tiles == 1:
        return xc.HloSharding.replicate()
    proto = xc.OpSharding()
    proto.type = xc.OpSharding.Type.OTHER
    copies = len(order) // tiles
    proto.tile_assignment_dimensions = [*dims, copies] if copies > 1 else list(dims)
    proto.tile_assignment_devices = list(order)
    proto.replicate_on_last_tile_dim = copies > 1
    return xc.HloSharding.from_proto(proto)


def is_placed(buf) -> bool:
    """Whether a buffer lies elsewhere than on the default device, or in another layout than the default: programs are made
    for such arguments, and run where these are."""
    return type(buf._sharding) is not _mod("SingleDeviceSharding")


def put_shards(shards: Sequence, stored: Storage, logical) -> Any:
    """One host array (or single-device buffer) for each addressable device of the sharding -> one buffer."""
    xc = _mod("xc")
    mine = [d for d in logical.device_tuple if d in logical.addressable_devices]
    copies = [np.array(s) for s in shards]          # ours alone, so that the devices may keep them
    return xc.batched_device_put(stored, buffer_sharding(logical, stored.ndim), copies, mine, enable_x64=True)


def single_device_buffers(buf) -> list:
    """The parts of a buffer, one for each addressable device."""
    return list(without_jax(lambda: buf._arrays))


def compile_partitioned(text: str, devices: Sequence, host_callbacks: Sequence[Callable] = (), **flags) -> Any:
    """StableHLO with Shardy annotations -> executable over these devices.  Raises XlaRuntimeError."""
    if "@lapack_" in text:
        register_lapack()
    options = compile_options(len(devices), [d.id for d in devices], **flags)
    module: Any = mlir.parse(text) if host_callbacks else text.encode()
    kwargs = {"host_callbacks": list(host_callbacks)} if host_callbacks else {}
    with _errors_of_partitioners():
        return client().compile_and_load(module, _device_list(tuple(devices)), options, **kwargs)


def moved_unseen(x, placed) -> bool:
    """Whether calls in C++, which compare numbers of devices alone, would not turn an argument x into the buffer placed."""
    if type(x) is _mod("ArrayImpl"):
        return x._sharding.num_devices == placed._sharding.num_devices
    return placed._sharding.num_devices == 1 and is_placed(placed)


def layouts(executable, weights: int = 0) -> tuple[list[str], list[str]]:
    """XLA's texts for the layouts of parameters (without the first ones) and of results."""
    return ([str(x) for x in executable.get_parameter_layouts()[weights:]], [str(x) for x in executable.get_output_layouts()])


def layout_of(buf) -> str:
    """XLA's text for the layout of a buffer."""
    return str(buf._pjrt_layout)


def output_tiles(executable, ndims: Sequence[int]) -> list[tuple[tuple[int, ...], list[int]] | None]:
    """The layout XLA chose for each output as (tiles, device order), None for replicated."""
    return _tiles(executable.get_output_shardings(), ndims)


def parameter_tiles(executable, ndims: Sequence[int]) -> list[tuple[tuple[int, ...], list[int]] | None]:
    """The same for each parameter."""
    return _tiles(executable.get_parameter_shardings(), ndims)


def _tiles(protos: Sequence | None, ndims: Sequence[int]) -> list:
    if protos is None:
        return [None] * len(ndims)
    return [tiles_of(_mod("xc").HloSharding.from_proto(proto), n) for proto, n in zip(protos, ndims)]


def tiles_of(sharding, ndim: int) -> tuple[tuple[int, ...], list[int]] | None:
    """XLA's sharding as (tiles, device order), None for replicated."""
    if sharding.is_replicated():
        return None
    return tuple(sharding.tile_assignment_dimensions()[:ndim]), list(sharding.tile_assignment_devices())


def tile_shape(logical, shape: Sequence[int]) -> tuple[int, ...]:
    """What one device holds of an array of this shape (rounded up, as XLA does it)."""
    return tuple(-(-n // d) for n, d in zip(shape, logical.tiles(len(shape))[0]))


# ---- operations that say themselves how they are partitioned --------------------------------------------------------------

_partitioners: dict[str, Callable] = {}
_partitioner_errors: list[BaseException] = []


def register_partitioner(target: str, partition: Callable) -> None:
    """XLA asks partition about custom calls of this target, once for each of them that a program has.

    partition(the call's backend_config, arguments, results) with (shape, dtype, tiles or None) for each -> (StableHLO of
    what one device does, shardings of the arguments, shardings of the results), shardings as in aot/sharding.py."""
    if target not in _partitioners:
        _partitioners[target] = partition
        _register_partitioner(target)


def _register_partitioner(target: str, **where: Any) -> None:
    """where: the C API of a plugin, for its compiler."""
    _mod("xc").register_custom_call_partitioner(target, lambda user, shape, key: user, _partitioned(_partitioners[target]),
                                                _no_inference, can_side_effecting_have_replicated_sharding=True, **where)


def _no_inference(arg_shapes, arg_shardings, result_shape, key):
    raise NotImplementedError("shardings follow from the sharding rule of the call")


def _partitioned(partition: Callable) -> Callable:
    def asked(arg_shapes, arg_shardings, result_shape, result_sharding, key):
        several = result_shape.is_tuple()
        result_shapes = result_shape.tuple_shapes() if several else [result_shape]
        result_shardings = result_sharding.tuple_elements() if several else [result_sharding]
        describe = lambda shapes, shardings: [(tuple(s.dimensions()), s.numpy_dtype(), tiles_of(h, len(s.dimensions())))
                                              for s, h in zip(shapes, shardings)]
        hlo = lambda shapes, ours: [hlo_sharding(s, len(x.dimensions())) for x, s in zip(shapes, ours)]
        try:
            text, ins, outs = partition(key.decode(), describe(arg_shapes, arg_shardings),
                                        describe(result_shapes, result_shardings))
            results = hlo(result_shapes, outs)
            packed = _mod("xc").HloSharding.tuple_sharding(result_shape, results) if several else results[0]
            return mlir.bytecode(text), hlo(arg_shapes, ins), packed
        except BaseException as e:
            _partitioner_errors.append(e)
            raise
    return asked


@contextmanager
def _errors_of_partitioners() -> Iterator[None]:
    """An exception of a partitioner is the caller's own, and not one of XLA."""
    _partitioner_errors.clear()
    try:
        yield
    except _mod("XlaRuntimeError"):
        if _partitioner_errors:
            raise _partitioner_errors.pop() from None
        raise
