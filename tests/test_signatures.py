"""Every call that is valid in jax is valid here: names, kinds, order and defaults of the parameters of public callables.

Both packages are walked at once: what the inventories list and what both have. Classes are compared by their
constructor and their public methods. More parameters than jax's are fine behind jax's. What calls with such parameters
mean is compared at the end of the file.
"""
from __future__ import annotations

import enum
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aot
import aot.experimental.jet
import aot.lax
import aot.numpy

sys.path.insert(0, str(Path(__file__).parent))
import api_coverage
from support import compare, jax

MODULES = [m for m in api_coverage.modules() if m not in ("Array", "Array.at")] + [
    "custom_derivatives", "experimental", "experimental.layout", "experimental.pjit", "experimental.shard_map", "ffi", "monitoring", "profiler", "ref",
    "scipy.cluster.vq", "scipy.spatial.transform", "typing", *(f"scipy.stats.{name}" for name in api_coverage.inventory("scipy.stats"))]
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
EMPTY = inspect.Parameter.empty

#: callables of C++ that have no signature: what their documentation says
DOCUMENTED: dict[str, Callable] = {
    "*.NamedSharding": lambda mesh, spec, *, memory_kind=None, _logical_device_ids=None: 0,
    "*.SingleDeviceSharding": lambda device, *, memory_kind=None: 0,
}

_MADE = "made by the library, never by users: the fields are the implementation's"
#: callables that differ from jax's, with the reason
REVIEWED: dict[str, str] = {
    **dict.fromkeys(["jax.Array", "numpy.ndarray", "jax.Shard", "*.Ref", "export.Exported", "export.DisabledSafetyCheck",
                     "experimental.checkify.Error", "stages.ArgInfo", "stages.Compiled", "stages.Lowered", "stages.Traced"], _MADE),
    **dict.fromkeys(["experimental.jet.JetTrace", "experimental.jet.JetTracer.*", "experimental.sparse.SparseTracer.*"],
                    "classes of jax's implementation that its module does not hide"),
    **dict.fromkeys(["*.lower"], "_private_parameters is private"),
    **dict.fromkeys(["*.count", "*.index"], "methods of tuple, whose parameters have no names there"),
    **dict.fromkeys(["core.Tracer", "core.Tracer.*", "interpreters.ad.JVPTrace", "interpreters.ad.JVPTracer.*", "extend.core.Jaxpr",
                     "extend.core.JaxprEqn", "extend.core.Var", "extend.linear_util.WrappedFun", "experimental.hijax.TransformedRef",
                     "*.ShapedArray.str_short", "*.AbstractRef.str_short", "*.AbstractRef.update", "*.AvalMutableQDD"], _MADE),
    **dict.fromkeys(["*.ShapedArray", "*.ShapedArray.update"], "manual axes and memories are no part of types here"),
    **dict.fromkeys(["extend.linear_util.transformation*", "api_util.flatten_fun*"], "the parameters are those of the transformation"),
    "api_util.debug_info": "None means that there are none",
    "*.NamedSharding.update": "the keywords have names here",
    **dict.fromkeys(["jax.jit", "jax.checkpoint", "jax.remat"], "None means that an option is not given"),
    "experimental.checkify.checkify": "the default is user_checks in both, a set of other objects",
    "lax.random_gamma_grad": "jax's takes anything and has the parameters a and x",
}


def pairs() -> Iterator[tuple[str, Any, Any]]:
    """(name, jax's, ours) for every callable of the modules, for what is made by calling, and for arrays' methods."""
    for module in MODULES:
        theirs, ours = (found(package, "" if module == "jax" else module) for package in (jax, aot))
        for name in sorted(dir(theirs)) if inspect.ismodule(theirs) else ():
            if not name.startswith("_") and hasattr(ours, name):
                yield from members(f"{module}.{name}", getattr(theirs, name), getattr(ours, name))
    yield from methods("Array", jax.numpy.ones(2), aot.numpy.ones(2))
    yield from methods("Array.at", jax.numpy.ones(2).at[0], aot.numpy.ones(2).at[0])
    yield from methods("numpy.add", jax.numpy.add, aot.numpy.add)
    jitted = [m.jit(m.numpy.sin) for m in (jax, aot)]
    yield from methods("jit(f)", *jitted)
    yield from methods("jit(f).trace(x)", *(f.trace(1.) for f in jitted))
    yield from methods("jit(f).lower(x)", *(f.lower(1.) for f in jitted))
    yield from methods("jit(f).lower(x).compile()", *(f.lower(1.).compile() for f in jitted))


def found(package: Any, path: str) -> Any:
    """What is at a dotted path in a package: modules may be lazy, and some are there under two names."""
    owner = package
    for i, name in enumerate(path.split(".") if path else ()):
        if not hasattr(owner, name):
            importlib.import_module(f"{package.__name__}.{'.'.join(path.split('.')[:i + 1])}")
        owner = getattr(owner, name)
    return owner


def members(name: str, theirs: Any, ours: Any) -> Iterator[tuple[str, Any, Any]]:
    if inspect.ismodule(theirs) or not callable(theirs):
        return
    yield name, theirs, ours
    if inspect.isclass(theirs) and inspect.isclass(ours) and not issubclass(theirs, (np.generic, BaseException, jax.Array)):
        yield from methods(name, theirs, ours)


def methods(name: str, theirs: Any, ours: Any) -> Iterator[tuple[str, Any, Any]]:
    for method in sorted(dir(theirs)):
        if not method.startswith("_"):
            a, b = attribute(theirs, method), attribute(ours, method)
            if callable(a) and callable(b):
                yield f"{name}.{method}", a, forwarded(b, bound=not inspect.isclass(ours))


def forwarded(method: Any, bound: bool) -> Any:
    """A method of arrays that passes everything on: the function of aot.numpy with the array as first argument."""
    name = getattr(method, "__name__", "")
    parameters = signature(method) or []
    if getattr(method, "__doc__", None) != f"See `aot.numpy.{name}`." or parameters[-1].kind is not parameters[-1].VAR_KEYWORD:
        return method
    function = getattr(aot.numpy, name)
    return functools.partial(function, None) if bound else function


def attribute(owner: Any, name: str) -> Any:
    """The attribute, or None where there is none or a property raises."""
    try:
        return getattr(owner, name)
    except Exception:
        return None


def documented(name: str, fun: Any) -> Any:
    """What has the signature of a callable of jax."""
    return next((f for pattern, f in DOCUMENTED.items() if fnmatch(name, pattern)), fun)


def signature(fun: Any) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        return None


def differences(theirs: list[inspect.Parameter], ours: list[inspect.Parameter]) -> Iterator[str]:
    """What some call that suits `theirs` would meet in `ours`."""
    mine = {p.name: p for p in ours}
    kinds = {p.kind for p in ours}
    row = [p for p in ours if p.kind in POSITIONAL]
    for i, p in enumerate(theirs):
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            if p.kind not in kinds:
                yield f"no {p}"
            continue
        if p.kind is p.POSITIONAL_ONLY:
            match = row[i] if i < len(row) else None
        else:
            match = mine.get(p.name)
            if match is None and p.VAR_KEYWORD in kinds and p.kind is p.KEYWORD_ONLY:
                continue
        if match is None or p.kind is not p.POSITIONAL_ONLY and match.kind is match.POSITIONAL_ONLY:
            yield f"no {p.name}"
        elif p.kind in POSITIONAL and (i >= len(row) or row[i] is not match):
            yield f"{p.name} is not number {i}"
        elif p.default is not EMPTY and match.default is EMPTY:
            yield f"{p.name} is required"
        elif p.default is not EMPTY and plain(p.default) != plain(match.default):
            yield f"{p.name}={match.default!r} is {p.default!r} in jax"
    named = {p.name for p in theirs}
    starred = any(p.kind is p.VAR_POSITIONAL for p in theirs)
    for i, p in enumerate(ours):
        extra = p.name not in named and i >= sum(q.kind in POSITIONAL for q in theirs)
        if extra and (p.kind in POSITIONAL and starred or p.kind in (*POSITIONAL, p.KEYWORD_ONLY) and p.default is EMPTY):
            yield f"{p.name} is not in jax"


def plain(default: Any) -> Any:
    """A default as text: equal for values that mean the same in both packages."""
    text = repr(default).split(".")[-1]
    if type(default) is object or any(word in repr(default) for word in ("NoDefault", "nspecified")):
        return "not given"
    if isinstance(default, enum.Enum):
        return default.name
    return getattr(default, "__name__", type(default).__name__) if callable(default) else text if text == "Infer" else repr(default)


def test_every_call_of_jax_is_valid_here():
    found, compared = {}, 0
    for name, theirs, ours in pairs():
        a, b = signature(documented(name, theirs)), signature(ours)
        if a is not None and b is not None:
            compared += 1
            if differ := list(differences(a, b)):
                found[name] = differ
    reviewed = {name: pattern for name in found for pattern in REVIEWED if fnmatch(name, pattern)}
    assert {name: differ for name, differ in found.items() if name not in reviewed} == {}
    assert set(REVIEWED) == set(reviewed.values())           # no reason without a difference
    assert compared > 1400


# ---- what the calls mean -------------------------------------------------------------------------------------------------

X, SMALL = np.float32(1.5), np.arange(4, dtype=np.int8) + 60
WIDE = np.random.default_rng(0).normal(size=(7, 2000)).astype(np.float32)
KEYWORDS = dict(zeta=("x", "q"), polygamma=("m", "x"), nextafter=("x1", "x2"), igamma=("a", "x"), igammac=("a", "x"))


def without_jit(m, lax):
    def f(x):
        seen = []
        for disable in (False, True):
            with m.disable_jit(disable=disable):
                m.jit(lambda y: seen.append(isinstance(y, m.core.Tracer) if m is jax else aot.trace.is_tracer(y)) or y)(x)
        return seen
    return f


def jaxpr_with_axes(m, lax):
    return lambda x: [len(str(m.make_jaxpr(lambda y: lax.psum(y, "i"), axis_env=[("i", 4)], return_shape=True)(x)[0]).split("psum"))]


#  name: function of (module, lax) -> function of the arguments, arguments
CALLS: dict[str, tuple] = {
    **{name: (lambda m, lax, name=name, names=names: lambda x: getattr(lax, name)(**dict.fromkeys(names, x)), X)
       for name, names in KEYWORDS.items()},
    "broadcast_like": (lambda m, lax: lambda x: lax.broadcast_like(arr=x, like_arr=SMALL), X),
    "mul, wider": (lambda m, lax: lambda x: lax.mul(x, x, out_dtype=np.int32), SMALL),
    "mul, mixed": (lambda m, lax: lambda x, y: lax.mul(x, y, out_dtype=np.float16), SMALL, X),
    "mul, slope": (lambda m, lax: m.grad(lambda x: lax.mul(x, X, out_dtype=np.float16).astype(np.float32)), X),
    "reduce_window": (lambda m, lax: lambda x: lax.reduce_window(x, np.int8(0), lax.max, (2,)), SMALL),
    "cond of None": (lambda m, lax: lambda x: lax.cond(x > 1, lambda none: x, lambda none: -x, operand=None), X),
    "switch of one": (lambda m, lax: lambda x: lax.switch(1, [lambda y: y, lambda y: -y], operand=x), X),
    "cond of both": (lambda m, lax: lambda x: lax.cond(True, lambda y: y, lambda y: y, x, operand=x), X),
    "full": (lambda m, lax: lambda: lax.full((2,), X, sharding=m.sharding.SingleDeviceSharding(m.devices()[0])),),
    "iota": (lambda m, lax: lambda: lax.broadcasted_iota(np.int32, (2, 3), 1, out_sharding=None),),
    "jet": (lambda m, lax: lambda x: importlib.import_module(f"{m.__name__}.experimental.jet").jet(
        lambda y: y * m.numpy.sin(y), (x,), ((x, x * x, x),), factorial_scaled=False), X),
    "checkpoint": (lambda m, lax: m.grad(m.checkpoint(lambda x, k: x ** 3 * k, prevent_cse=(True, False), static_argnames="k")
                                         if m is aot else lambda x, k: x ** 3 * k), X, 2.),
    "checkpoint, concrete": (lambda m, lax: m.checkpoint(m.numpy.sin, concrete=True), X),
    "jit on a device": (lambda m, lax: m.jit(m.numpy.sin, device=m.devices()[0]), X),
    "jit on a backend": (lambda m, lax: m.jit(m.numpy.sin, backend="cpu"), X),
    "jit on no backend": (lambda m, lax: m.jit(m.numpy.sin, backend="abacus"), X),
    "jit with options": (lambda m, lax: m.jit(m.numpy.sin, compiler_options={"xla_cpu_enable_fast_math": True}), X),
    "jit with no options": (lambda m, lax: m.jit(m.numpy.sin, compiler_options={"xla_no_such_option": True}), X),
    "astype": (lambda m, lax: lambda x: (m.numpy.asarray(x).astype(dtype=np.int32), m.numpy.asarray(x).astype(np.int8, False)), X),
    "pure_callback": (lambda m, lax: lambda x: m.pure_callback(
        callback=lambda: np.float32(2), result_shape_dtypes=m.ShapeDtypeStruct((), np.float32, is_ref=False)), X),
    "sequential_vmap": (lambda m, lax: m.vmap(m.custom_batching.sequential_vmap(f=lambda x: x * 2)), SMALL),
    "compile": (lambda m, lax: lambda x: m.jit(m.numpy.sin).lower(x).compile(device_assignment=None)(x), X),
    "axis_env": (jaxpr_with_axes, X),
    "disable_jit": (without_jit, X),
    "approx_max_k": (lambda m, lax: lambda x: [lax.approx_max_k(x, 3, axis, .9, size, False)
                                               for axis, size in ((0, -1), (1, -1), (-1, 100000))], WIDE),
    "approx_min_k": (lambda m, lax: lambda x: lax.approx_min_k(x, k=2, aggregate_to_topk=False), WIDE),
    "reduce_axes": (lambda m, lax: lambda x: m.grad(m.numpy.sin, reduce_axes=("i",))(x), X),
}


@pytest.mark.filterwarnings("ignore:backend and device")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_calls_mean_the_same(call):
    compare(*call)


def test_options_and_arguments_in_two_calls(capfd):
    for m in (jax, aot):
        m.jit(lambda x, m=m: m.debug.print(ordered=True)("ordered={ordered}", ordered=x))(X)
        m.debug.callback()(lambda x, ordered: print(float(x), ordered), X, ordered="no")
        m.effects_barrier()
        with pytest.raises(TypeError):
            m.debug.print(x=X)
    lines = capfd.readouterr().out.splitlines()
    assert lines == ["ordered=1.5", "1.5 no"] * 2


REFUSED = {
    "shard_map": (TypeError, "in_specs", lambda: aot.shard_map(lambda x: x, out_specs=None)),
    "memory of a reference": (NotImplementedError, "memory_space", lambda: aot.new_ref(1., memory_space="host")),
    "ffi": (TypeError, "backend_config", lambda: aot.ffi.ffi_lowering("f", called_computations=[])),
    "devices": (NotImplementedError, "device_assignment", lambda: aot.jit(aot.numpy.sin).lower(X).compile(device_assignment=[None])),
    "device and backend": (ValueError, "device=", lambda: aot.jit(aot.numpy.sin, device=aot.devices()[0], backend="cpu")),
    "a debugger": (ValueError, "backend", lambda: aot.debug.breakpoint(backend="web")),
}


@pytest.mark.parametrize("error, text, call", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_honoured_is_refused(error, text, call):
    with pytest.raises(error, match=text):
        call()
