"""`import jax` means this package from here on, so that code and libraries written for jax run on it unchanged.

    import aot.as_jax       # first
    import optax, flax

`jax.numpy` is then `aot.numpy`, and so on; `jax.__version__` is the version of jax whose API this is.  The few private
names that widely used libraries import from `jax._src` are in `_PRIVATE`.  Raises AotError where jax itself is imported
already: arrays and tracers of the two do not mix.
"""
from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import aot
from aot.errors import AotError

#: The version of jax whose names and meanings are followed.
JAX_VERSION = "0.10.2"

#: private module of jax -> {name there: where it is here; with () at its end, what a function returns}; "": all other names
_PRIVATE: dict[str, dict[str, str]] = {
    **{f"jax._src.{name}": {"": f"aot.{name}"} for name in (
        "ad_checkpoint", "api", "api_util", "array", "config", "custom_derivatives", "flatten_util", "interpreters",
        "interpreters.ad", "interpreters.batching", "interpreters.mlir", "interpreters.partial_eval", "numpy", "random",
        "typing")},
    "jax._src": {},
    "jax._src.ad_util": {"": "aot.interpreters.ad", "stop_gradient_p": "aot.ops.misc.stop_gradient_p"},
    "jax._src.checkify": {"": "aot.experimental.checkify"},
    "jax._src.callback": {"": "aot.callbacks"},
    "jax._src.compiler": {},
    "jax._src.core": {"": "aot.extend.core", "get_aval": "aot.trace.typeof", "typeof": "aot.trace.typeof", "Ref": "aot.ref.Ref",
                      **{n: f"aot.core.{n}" for n in ("AbstractValue", "Atom", "ShapedArray", "Trace", "Tracer", "eval_context",
                                                      "ensure_compile_time_eval", "eval_jaxpr")}},
    "jax._src.distributed": {"": "aot.distributed", "global_state": "aot.distributed.global_state()"},
    "jax._src.dispatch": {"wait_for_tokens": "aot.callbacks.effects_barrier"},
    "jax._src.dtypes": {"": "aot.dtypes", "DType": "typing.Any"},
    "jax._src.lax": {"lax": "aot.lax"},
    "jax._src.lax.lax": {"": "aot.lax"},
    "jax._src.lax.control_flow": {"": "aot.lax"},
    "jax._src.linear_util": {"": "aot.extend.linear_util"},
    "jax._src.mesh": {"": "aot.sharding"},
    "jax._src.numpy.util": {"promote_dtypes": "aot.numpy._util.promote_arrays",
                            "promote_dtypes_complex": "aot.numpy._util.promote_complex",
                            "promote_dtypes_inexact": "aot.numpy._util.promote_inexact"},
    "jax._src.public_test_util": {"": "aot.test_util", "check_close": "aot.test_util._check_close"},
    "jax._src.scipy": {},
    "jax._src.scipy.special": {"": "aot.scipy.special"},
    "jax._src.sharding_impls": {"": "aot.sharding"},
    "jax._src.state": {"AbstractRef": "aot.trace.refs.AbstractRef"},
    "jax._src.state.types": {"AbstractRef": "aot.trace.refs.AbstractRef"},
    "jax._src.traceback_util": {"api_boundary": "aot.source.api_boundary", "register_exclusion": "aot.source.register_internal",
                                "include_frame": "aot.source.is_users_frame",
                                "UnfilteredStackTrace": "aot.source.UnfilteredStackTrace",
                                "_exclude_paths": "aot.source._internal_roots"},
    "jax._src.tree_util": {"": "aot.tree_util", "_registry": "aot.tree_util._NodeTypes()"},
    "jax._src.xla_bridge": {"": "aot.extend.backend", "_backends": "aot.extend.backend.backends()"},
}


#: modules of jax that libraries import for services that are not here: what is in them raises when it is used
_ABSENT = frozenset(("jax.experimental.pallas", "jax.experimental.pallas.tpu", "jax.experimental.pallas.triton",
                     *("jax.experimental.pallas.ops" + name for name in (
                         "", ".tpu", *(".tpu.splash_attention" + part for part in (
                             "", ".splash_attention_kernel", ".splash_attention_mask")))),
                     "jax.experimental.array_serialization", "jax.experimental.array_serialization.serialization",
                     "jax.experimental.colocated_python", "jax.experimental.colocated_python.func",
                     "jax.experimental.colocated_python.serialization", "jax.extend.ifrt_programs", "jax.interpreters.pxla"))


class _Module(ModuleType):
    """A module that pickles as its name, as plain ones do for libraries that pickle classes of users."""

    def __reduce__(self) -> tuple: return importlib.import_module, (self.__name__,)


class _Jax(_Module):
    """The module `jax`: the names of this package, and a version of its own."""
    __version__ = JAX_VERSION
    __version_info__ = tuple(map(int, JAX_VERSION.split(".")))

    def __getattr__(self, name: str) -> Any:
        if name == "_src":
            return importlib.import_module("jax._src")
        try:
            value = getattr(aot, name)
        except AttributeError:
            raise AttributeError(f"module 'jax' has no attribute {name!r}; it is aot {aot.__version__}, which follows jax "
                                 f"{JAX_VERSION}") from None
        return value if not isinstance(value, ModuleType) else importlib.import_module(f"jax.{name}")   # in sys.modules, too

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(aot)})


class _Private(_Module):
    """One of jax's private modules, with those of its names that are in `_PRIVATE`."""

    def __getattr__(self, name: str) -> Any:
        names = _PRIVATE[self.__name__]
        if f"{self.__name__}.{name}" in _PRIVATE:
            return importlib.import_module(f"{self.__name__}.{name}")
        found = names.get(name) or (f"{names['']}.{name}" if "" in names and not name.startswith("__") else "")
        try:
            module, _, attribute = found.removesuffix("()").rpartition(".")
            value = getattr(importlib.import_module(module), attribute)
        except (ValueError, AttributeError):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}: it is private in jax, and aot has "
                                 "nothing in its place. hint: use the public API") from None
        return value() if found.endswith("()") else value


class _Absent(_Module):
    """One of `_ABSENT`: every name is a class without instances."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

        if f"jax.{self.__name__.partition('.')[2]}.{name}" in _ABSENT:
            return importlib.import_module(f"{self.__name__}.{name}")

        def refuse(*_: Any, **__: Any) -> Any:
            raise NotImplementedError(f"{self.__name__}.{name} is not supported by aot {aot.__version__}. hint: leave out what "
                                      "calls it, or run that part on jax; docs/libraries.md says what is not there")
        kind = type(name, (), {"__new__": refuse})
        setattr(self, name, kind)
        return kind


class _Distribution(Distribution):
    """What `importlib.metadata` tells of jax."""

    def read_text(self, filename: str) -> str | None:
        return f"Metadata-Version: 2.1\nName: jax\nVersion: {JAX_VERSION}\n" if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any: return Path(aot.__path__[0], path)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `jax` and the modules below it, and its version."""

    def find_distributions(self, context: DistributionFinder.Context = DistributionFinder.Context()) -> list[Distribution]:
        return [_Distribution()] if context.name == "jax" else []

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if (fullname == "jax" or fullname in _PRIVATE or fullname.startswith("jax.") and _exists(_ours(fullname))
                or fullname in _ABSENT or fullname.replace("aot.", "jax.", 1) in _ABSENT):      # asked by `from jax.x import y`
            return importlib.util.spec_from_loader(fullname, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        name = spec.name
        absent = name in _ABSENT or name.startswith("aot.")
        return (_Jax(name) if name == "jax" else _Private(name) if name in _PRIVATE else _Absent(name) if absent
                else ModuleType(name))

    def exec_module(self, module: ModuleType) -> None:
        if type(module) is ModuleType:
            sys.modules[module.__name__] = importlib.import_module(_ours(module.__name__))     # one module, two names
        elif type(module) is _Jax:
            _take_names()


def _take_names() -> None:
    """Libraries for arrays of several packages know them by the names of modules, and by what of jax is imported already:
    `type(x).__module__`, `jax.numpy.__name__`, `sys.modules["jax.core"].Tracer`."""
    import aot.numpy
    from aot.array import Array
    from aot.trace import Tracer

    def rename(cls: type) -> None:
        cls.__module__ = "jax" + cls.__module__.removeprefix("aot")
        for each in cls.__subclasses__():
            rename(each)
    rename(Tracer)
    Tracer.__init_subclass__ = classmethod(rename)      # type: ignore[assignment]
    Array.__module__, aot.numpy.__name__ = "jax", "jax.numpy"
    for name in ("jax.core", "jax.numpy"):
        importlib.import_module(name)


def _ours(name: str) -> str: return "aot" + name.removeprefix("jax")


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


if type(sys.modules.get("jax", None)) not in (type(None), _Jax):
    raise AotError("jax is imported already, and arrays of jax and of aot do not mix",
                   hint="`import aot.as_jax` before anything that imports jax")
if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
    sys.meta_path.insert(0, _Finder())
