"""Every option of the compiler in one table, with process-wide values and per-thread overrides.

An option is declared once in `OPTIONS` below.  Its value is looked up in this order:

1. the innermost active context manager of this thread (`with aot.enable_x64(True): ...`);
2. `config.update("enable_x64", value)`;
3. the environment variable `AOT_<NAME>`, then `JAX_<NAME>`, read once at import;
4. the declared default.

Names are accepted with and without the `jax_` prefix, so settings of existing programs carry over.  The class is a
`threading.local`: class attributes hold the process-wide values and instance attributes the overrides of one thread,
which makes a read one attribute access.
"""
from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple


class Option(NamedTuple):
    """One row of the table.  `kind` is a type, or the tuple of allowed strings."""

    name: str
    default: Any
    kind: Any
    doc: str
    in_trace_key: bool = False
    optional: bool = False


T = True
_WHAT_IF_64 = ("allow", "warn", "error")
_GUARD = ("allow", "log", "disallow", "log_explicit", "disallow_explicit")
_PRECISION = (
    "default", "high", "highest", "bfloat16", "tensorfloat32", "float32", "bfloat16_3x", "ANY_F8_ANY_F8_F32",
    "ANY_F8_ANY_F8_F32_FAST_ACCUM", "ANY_F8_ANY_F8_ANY", "ANY_F8_ANY_F8_ANY_FAST_ACCUM", "F16_F16_F16", "F16_F16_F32",
    "BF16_BF16_BF16", "BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "BF16_BF16_F32_X9", "TF32_TF32_F32",
    "TF32_TF32_F32_X3", "F32_F32_F32", "F64_F64_F64")

OPTIONS: tuple[Option, ...] = (
    # numerics
    Option("enable_x64", False, bool, "Keep 64-bit dtypes instead of narrowing them to 32 bits.", T),
    Option("explicit_x64_dtypes", "warn", _WHAT_IF_64, "What to do when a 64-bit dtype is asked for with x64 off.", T),
    Option("numpy_dtype_promotion", "standard", ("standard", "strict"), "Implicit dtype promotion rules.", T),
    Option("numpy_rank_promotion", "allow", ("allow", "warn", "raise"), "Implicit rank promotion in broadcasting.", T),
    Option("default_matmul_precision", None, _PRECISION, "Precision of dots and convolutions that name none.", T, T),
    Option("allow_f16_reductions", True, bool, "Sum 16-bit floats without widening inside named reductions.", T),
    Option("softmax_custom_jvp", False, bool, "Use the memory-saving derivative of softmax.", T),
    # random numbers
    Option("default_prng_impl", "threefry2x32", ("threefry2x32", "rbg", "unsafe_rbg"), "Key kind of new keys.", T),
    Option("threefry_partitionable", True, bool, "Random bits whose layout does not depend on the array size.", T),
    Option("enable_custom_prng", False, bool, "Let PRNGKey return typed keys, as key does.", T),
    Option("legacy_prng_key", "allow", ("allow", "warn", "error"), "What to do when a raw uint32 key is used."),
    Option("high_dynamic_range_gumbel", False, bool, "Default mode 'high' for gumbel and categorical.", T),
    Option("random_seed_offset", 0, int, "Added to every seed, to vary a whole program.", T),
    # checks
    Option("debug_nans", False, bool, "Check every result for NaN and raise at the operation that made it.", T),
    Option("debug_infs", False, bool, "Check every result for infinities and raise where they appear.", T),
    Option("debug_key_reuse", False, bool, "Raise when a random key is consumed twice.", T),
    Option("check_tracer_leaks", False, bool, "Raise when a traced value outlives its trace.", T),
    Option("enable_checks", False, bool, "Verify every jaxpr after every transform.", T),
    Option("check_static_indices", False, bool, "Raise on static indices that are out of bounds.", T),
    Option("check_vma", False, bool, "Check which values vary over which mesh axes under shard_map.", T),
    Option("error_checking_behavior_nan", "ignore", ("ignore", "raise"), "NaN checks of aot.experimental.checkify.", T),
    Option("error_checking_behavior_divide", "ignore", ("ignore", "raise"), "Division checks of checkify.", T),
    Option("error_checking_behavior_oob", "ignore", ("ignore", "raise"), "Index checks of checkify.", T),
    Option("mutable_array_checks", True, bool, "Check aliasing of refs.", T),
    Option("disable_bwd_checks", False, bool, "Skip the type checks on what custom_vjp rules return.", T),
    Option("thread_guard", False, bool, "Raise when one computation is used from several threads."),
    Option("transfer_guard", None, _GUARD, "Guard all transfers between host and devices.", False, T),
    Option("transfer_guard_host_to_device", None, _GUARD, "Guard host-to-device transfers.", False, T),
    Option("transfer_guard_device_to_device", None, _GUARD, "Guard device-to-device transfers.", False, T),
    Option("transfer_guard_device_to_host", None, _GUARD, "Guard device-to-host transfers.", False, T),
    Option("array_garbage_collection_guard", None, ("allow", "log", "fatal"), "Report arrays in cycles.", False, T),
    # tracing and execution
    Option("disable_jit", False, bool, "Run jitted functions and control flow op by op.", T),
    Option("no_tracing", False, bool, "Raise on any new trace, to find unexpected ones."),
    Option("no_execution", False, bool, "Raise on any execution, to find unexpected ones."),
    Option("default_device", None, object, "Device of uncommitted values: a Device or a platform name.", T, T),
    Option("auto_pcast", True, bool, "Insert pcast where types differ only in the axes they vary over.", T),
    Option("remove_size_one_mesh_axis_from_type", False, bool, "Drop mesh axes of size one from types.", T),
    Option("use_shardy_partitioner", True, bool, "Partition with Shardy instead of GSPMD.", T),
    Option("jax2tf_associative_scan_reductions", False, bool, "Lower cumulative ops to associative scans.", T),
    Option("use_direct_linearize", True, bool, "Accepted; reverse mode always linearizes directly."),
    # platforms
    Option("platforms", None, str, "Comma-separated platforms to initialise, first is the default.", False, T),
    Option("platform_name", "", str, "Default platform, when `platforms` is not set."),
    Option("num_cpu_devices", -1, int, "Number of CPU devices; -1 leaves it to XLA_FLAGS."),
    Option("cpu_collectives_implementation", "gloo", str, "Collectives between CPU processes.", False, T),
    Option("cpu_enable_async_dispatch", True, bool, "Return before a CPU computation has finished."),
    # compiling
    Option("compilation_cache_dir", None, str, "Directory of the persistent cache.", False, T),
    Option("enable_compilation_cache", True, bool, "Use the persistent cache when a directory is set."),
    Option("compilation_cache_max_size", -1, int, "Bytes the cache may hold; -1 is unlimited."),
    Option("persistent_cache_min_compile_time_secs", 1.0, float, "Do not store what compiles faster than this."),
    Option("persistent_cache_min_entry_size_bytes", 0, int, "Do not store entries smaller than this."),
    Option("raise_persistent_cache_errors", False, bool, "Raise on cache errors instead of warning."),
    Option("disable_most_optimizations", False, bool, "Compile fast, run slow."),
    Option("optimization_level", "UNKNOWN", ("UNKNOWN", "O0", "O1", "O2", "O3"), "Effort of the compiler."),
    Option("memory_fitting_level", "O2", ("UNKNOWN", "O0", "O1", "O2", "O3"), "Effort spent on fitting memory."),
    Option("exec_time_optimization_effort", 0.0, float, "Effort spent on execution time, -1 to 1."),
    Option("memory_fitting_effort", 0.0, float, "Effort spent on memory, -1 to 1."),
    Option("captured_constants_warn_bytes", 2_000_000_000, int, "Warn about closed-over constants above this size."),
    Option("captured_constants_report_frames", 0, int, "Stack frames to print for each such constant."),
    # reporting
    Option("log_compiles", False, bool, "Log every trace and compile with its duration."),
    Option("explain_cache_misses", False, bool, "Log why a jitted function was traced again."),
    Option("log_checkpoint_residuals", False, bool, "Log what a checkpointed function keeps."),
    Option("logging_level", "NOTSET", ("NOTSET", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"), "Log level."),
    Option("debug_log_modules", "", str, "Comma-separated modules to log at DEBUG."),
    Option("dump_ir_to", "", str, "Directory that receives every lowered module."),
    Option("dump_ir_modes", "stablehlo", str, "Comma-separated: stablehlo, jaxpr, eqn_count_pprof."),
    Option("traceback_filtering", "auto", ("off", "tracebackhide", "remove_frames", "quiet_remove_frames", "auto"),
           "How frames of this package are dropped from tracebacks; 'off' keeps them."),
    Option("tracer_error_num_traceback_frames", 5, int, "User frames shown in errors about traced values."),
    Option("include_full_tracebacks_in_locations", True, bool, "Keep call stacks in the locations of operations."),
    Option("traceback_in_locations_limit", 100, int, "Frames kept in a location; -1 keeps all."),
    Option("pprint_use_color", True, bool, "Colour printed jaxprs on terminals."),
)

_TRUE = frozenset(("y", "yes", "t", "true", "on", "1"))
_FALSE = frozenset(("n", "no", "f", "false", "off", "0"))
_BY_NAME: dict[str, Option] = {}


def _flag(name: str, text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(f"option {name!r}: {text!r} is neither true nor false; use 1, true, yes, on or 0, false, no, off")


def _checked(option: Option, value: Any) -> Any:
    """`value` as the option stores it, or an error that lists what is allowed."""
    name, kind = option.name, option.kind
    if value is None and option.optional:
        return None
    if isinstance(kind, tuple):
        if value not in kind:
            raise ValueError(f"option {name!r} must be one of {', '.join(map(repr, kind))}; got {value!r}")
        return value
    if kind is bool:
        return _flag(name, value) if isinstance(value, str) else bool(_typed(name, (bool, int), value))
    if kind is float:
        return float(_typed(name, (float, int), value))
    if kind is int:
        return _typed(name, (int,), value)
    return value if kind is object else _typed(name, (kind,), value)


def _typed(name: str, kinds: tuple[type, ...], value: Any) -> Any:
    if not isinstance(value, kinds):
        raise TypeError(f"option {name!r} takes {kinds[0].__name__}, got {type(value).__name__} {value!r}")
    return value


def _from_environment(option: Option) -> Any:
    """The initial value: `AOT_<NAME>`, else `JAX_<NAME>`, else the default."""
    for prefix in ("AOT_", "JAX_"):
        text = os.environ.get(prefix + option.name.upper())
        if text is not None:
            try:
                return _parsed(option, text)
            except ValueError as e:
                environment_errors.append(f"environment variable {prefix}{option.name.upper()}: {e}")
    return option.default


#: What is wrong with values in the environment.  Said when XLA is first needed, not by `import aot`: a command says it better.
environment_errors: list[str] = []


def check_environment() -> None:
    """Raise AotError where an option has a value in the environment that it cannot have."""
    if environment_errors:
        from aot.errors import AotError
        raise AotError("\n".join(environment_errors))


def _parsed(option: Option, text: str) -> Any:
    if option.kind in (int, float):
        return option.kind(text)
    return _checked(option, text or (None if option.optional else text))


def _plain(name: str) -> str:
    """`jax_enable_x64` -> `enable_x64`; raises AttributeError for a name that is not an option."""
    short = name[4:] if name.startswith("jax_") else name
    if short not in _BY_NAME:
        import difflib

        close = difflib.get_close_matches(short, _BY_NAME, 1)
        raise AttributeError(f"there is no option named {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
    return short


class Config(threading.local):
    """The options as attributes: `config.enable_x64`, or `config.jax_enable_x64` for older programs.

    `update` sets a value for the whole process; the context managers of this module set one for the current thread.
    """

    _key: tuple[int, tuple] | None = None
    _version = 0

    def update(self, name: str, value: Any) -> None:
        """Set an option for every thread.  Raises AttributeError, ValueError or TypeError, naming what is allowed."""
        short = _plain(name)
        type.__setattr__(Config, short, _checked(_BY_NAME[short], value))
        _changed()

    def read(self, name: str) -> Any:
        """The value of option `name` in this thread."""
        return getattr(self, _plain(name))

    def parse_flags_with_absl(self, argv: list[str] | None = None) -> None:
        """Set options from flags of the command line: `--jax_enable_x64`, `--nojax_enable_x64`, `--jax_name=value`.

        Other arguments are ignored.  absl is not needed.
        """
        for argument in sys.argv[1:] if argv is None else argv:
            flag, equals, text = argument.lstrip("-").partition("=")
            off = flag.startswith("nojax_")
            if argument.startswith("-") and flag.removeprefix("no").startswith("jax_"):
                name = _plain(flag.removeprefix("no") if off else flag)
                self.update(name, _parsed(_BY_NAME[name], text) if equals else not off)

    def config_with_absl(self) -> None:
        """Declare every option as an absl flag and take its value when `absl.app.run` has parsed them.  Needs absl."""
        try:
            from absl import app, flags
        except ImportError:
            raise ImportError("config_with_absl needs the package absl-py; "
                              "hint: parse_flags_with_absl works without it") from None
        for option in OPTIONS:
            flags.DEFINE_string(f"jax_{option.name}", None, option.doc)
        app.call_after_init(lambda: self.parse_flags_with_absl(
            [f"--jax_{o.name}={flags.FLAGS[f'jax_{o.name}'].value}" for o in OPTIONS
             if flags.FLAGS[f"jax_{o.name}"].value is not None]))

    x64_enabled = property(lambda self: self.enable_x64, doc="The former name of `enable_x64`.")

    @property
    def values(self) -> dict[str, Any]:
        """All options by their full name (`jax_enable_x64`) with their values in this thread."""
        return {f"jax_{name}": getattr(self, name) for name in _BY_NAME}

    def trace_key(self) -> tuple[Hashable, ...]:
        """The values that can change what a trace records, as a cache key; the same tuple object until one changes."""
        key = self._key
        if key is None or key[0] != Config._version:
            key = (Config._version, tuple([getattr(self, name) for name in _TRACE_NAMES]))
            self.__dict__["_key"] = key
        return key[1]

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"set options with config.update({name!r}, value), or with a context manager")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("jax_"):
            return getattr(self, _plain(name))
        raise AttributeError(f"there is no option named {name!r}")


def _changed() -> None:
    type.__setattr__(Config, "_version", Config._version + 1)
    gate.new_epoch()


class Gate:
    """One look that tells a compiled call that nothing has changed: `ready` is the object it was before.

    While any thread traces, or has options of its own, it is None, and calls look at everything."""
    __slots__ = ("ready", "_epoch", "_busy", "_lock")

    def __init__(self):
        self.ready = self._epoch = object()
        self._busy, self._lock = 0, threading.Lock()

    def close(self) -> None:
        with self._lock:
            self._busy, self.ready = self._busy + 1, None

    def open(self) -> None:
        with self._lock:
            self._busy -= 1
            self.ready = None if self._busy else self._epoch

    def new_epoch(self) -> None:
        """Options have changed for every thread."""
        with self._lock:
            self._epoch = object()
            self.ready = None if self._busy else self._epoch


gate = Gate()


_TRACE_NAMES: list[str] = []
config = Config()
_UNSET: Any = object()


@contextlib.contextmanager
def override(name: str, value: Any) -> Iterator[None]:
    """Set one option for the current thread inside a `with` block (or as a decorator)."""
    short = _plain(name)
    checked = _checked(_BY_NAME[short], value)
    mine = config.__dict__
    before, key = mine.get(short, _UNSET), mine.get("_key")
    mine[short] = checked
    mine.pop("_key", None)
    gate.close()
    try:
        yield
    finally:
        gate.open()
        if before is _UNSET:
            mine.pop(short, None)
        else:
            mine[short] = before
        # The key computed before the block is valid again, unless an `update` came meanwhile (the version tells).
        mine["_key"] = key


class State:
    """A context manager factory for one option: `with enable_x64(True):`; `.value` reads it."""

    def __init__(self, option: Option):
        self._name = option.name
        self.__doc__ = option.doc

    @property
    def name(self) -> str:
        """The full option name, `jax_enable_x64`."""
        return f"jax_{self._name}"

    @property
    def value(self) -> Any:
        """The value in this thread."""
        return getattr(config, self._name)

    def __call__(self, new_val: Any = _UNSET) -> contextlib.AbstractContextManager[None]:
        if new_val is _UNSET:
            if _BY_NAME[self._name].kind is not bool:
                raise TypeError(f"{self._name}() needs a value")
            new_val = True
        return override(self._name, new_val)

    def __bool__(self) -> bool:
        raise TypeError(f"use {self._name}.value to read the option {self._name!r}")

    def __repr__(self) -> str:
        return f"<option {self._name}={self.value!r}>"


def _declare(option: Option, value: Any) -> None:
    _BY_NAME[option.name] = option
    type.__setattr__(Config, option.name, value)
    if option.in_trace_key:
        _TRACE_NAMES.append(option.name)


for _option in OPTIONS:
    _declare(_option, _from_environment(_option))


def __getattr__(name: str) -> State:
    """`aot.config_module.enable_x64` and every other option name: the context manager factory of that option."""
    if name.startswith("_") or name not in _BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    state = globals()[name] = State(_BY_NAME[name])
    return state


def disable_jit(disable: bool = True) -> contextlib.AbstractContextManager[None]:
    """In this block jitted functions and control flow run operation by operation."""
    return override("disable_jit", disable)


def checking_leaks() -> contextlib.AbstractContextManager[None]:
    """`check_tracer_leaks(True)`: in this block a traced value that outlives its trace is an error."""
    return override("check_tracer_leaks", True)


@contextlib.contextmanager
def transfer_guard(new_val: str) -> Iterator[None]:
    """Guard host-to-device, device-to-device and device-to-host transfers in this thread at once."""
    with contextlib.ExitStack() as stack:
        for suffix in ("", "_host_to_device", "_device_to_device", "_device_to_host"):
            stack.enter_context(override("transfer_guard" + suffix, new_val))
        yield


def make_user_context(default_value: Any = None) -> State:
    """A new per-thread value of the caller's own that takes part in the trace key.

    Returns a factory like the option context managers: `ctx(value)` is a context manager, `ctx.value` the value.
    """
    option = Option(f"user_context_{len(_BY_NAME)}", default_value, object, "user context", True, True)
    _declare(option, default_value)
    _changed()
    return State(option)
