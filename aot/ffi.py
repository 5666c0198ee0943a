"""Calls of functions in libraries (C, C++, CUDA) from programs, through XLA's foreign function interface.

A library exports handlers (`xla/ffi/api/ffi.h`, in `include_dir()`); `register_ffi_target` makes one known under a name, and
`ffi_call` calls it by that name.
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from aot import xla
from aot.layout import Layout
from aot.lower.emitter import dense_text, quoted, scalar_text, symbol_text
from aot.ops.callbacks import VMAP_METHODS, ForeignCall, layout_text
from aot.source import api_boundary
from aot.trace import ShapedArray, bind, typeof
from aot.trace.aval import MLIR_NAMES

TYPED = 4       # the version of the call interface that has typed attributes


# ---- libraries ---------------------------------------------------------------------------------------------------------

def include_dir() -> str:
    """The folder with XLA's headers for handlers."""
    return xla.include_dir()


def pycapsule(funcptr: Any) -> Any:
    """A function of a ctypes library in the form that `register_ffi_target` takes."""
    destructor = ctypes.CFUNCTYPE(None, ctypes.py_object)
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, destructor)
    return make(funcptr, None, destructor(0))


def register_ffi_target(name: str, fn: Any, platform: str = "cpu", api_version: int = 1, **kwargs: Any) -> None:
    """Make a handler callable as `name` on a platform.

    fn: a capsule (see `pycapsule`), or a dict of them by stage.  api_version: 1 for typed handlers, 0 for older ones."""
    xla.register_call_target(name, fn, platform, api_version, **kwargs)


def register_ffi_type(name: str, type_registration: Mapping[str, Any], platform: str = "cpu") -> None:
    """Make the type of a handler's state known: capsules of its `type_id` and, if there is one, `type_info`."""
    xla.register_call_type(name, dict(type_registration), platform)


def register_ffi_target_as_batch_partitionable(name: str) -> None:
    """Let calls of a target be split over devices along dimensions before those that the handler works on."""
    xla.register_batch_partitionable(name)


# ---- calls -------------------------------------------------------------------------------------------------------------

class FfiCall(ForeignCall):
    """A call of a handler by name.  Layouts are dimensions from the slowest to the fastest, one tuple for each array."""
    name = "ffi_call"

    def effects(self, *, has_side_effect, **_): return frozenset(("ffi",) if has_side_effect else ())

    def _not_differentiable(self, *_, target_name, **__):
        raise ValueError(f"The FFI call to `{target_name}` cannot be differentiated. hint: give the derivative "
                         "with custom_jvp or custom_vjp")

    jvp = transpose = _not_differentiable

    def _batched(self, axis, args, dims, params, result_avals):
        """The new dimension is the slowest of each array that has it."""
        every = params["vmap_method"] != "legacy_vectorized"
        wider = lambda layout: (0, *[d + 1 for d in layout])
        params = {**params, "output_layouts": tuple(map(wider, params["output_layouts"])), "input_layouts": tuple(
            wider(layout) if every or d is not None else layout for layout, d in zip(params["input_layouts"], dims))}
        return super()._batched(axis, args, dims, params, result_avals)

    def lower(self, e, ins, outs, *xs, target_name, result_avals, vmap_method, attributes, has_side_effect, input_layouts,
              output_layouts, aliases, api_version):
        return emit(e, target_name, ins, outs, xs, attributes, input_layouts, output_layouts, dict(aliases), has_side_effect,
                    api_version)


ffi_call_p = FfiCall()


def ffi_call(target_name: str, result_shape_dtypes: Any, *, has_side_effect: bool = False, vmap_method: str | None = None,
             input_layouts: Sequence[Any] | None = None, output_layouts: Any = None,
             input_output_aliases: Mapping[int, int] | None = None, custom_call_api_version: int = TYPED,
             legacy_backend_config: str | None = None) -> Callable[..., Any]:
    """A function of arrays that calls a handler; keywords are its attributes (numbers, strings, 1-d numpy arrays, dicts).

    result_shape_dtypes: shape and dtype of the result, or a sequence of them for several.  layouts: for each array None, a
    Layout or the order of dimensions from the slowest to the fastest.  input_output_aliases: which result may overwrite which
    argument.  vmap_method: as of pure_callback.  Raises ValueError for options that do not fit, TypeError for attributes of
    other types, NotImplementedError under vmap without a vmap_method."""
    if vmap_method is not None and vmap_method not in VMAP_METHODS:
        raise ValueError(f"ffi_call: vmap_method={vmap_method!r}. hint: one of {', '.join(map(repr, VMAP_METHODS))}, or None")
    if legacy_backend_config is not None and custom_call_api_version >= TYPED:
        raise ValueError("ffi_call: legacy_backend_config is for custom_call_api_version < 4. hint: pass attributes by keyword")
    several = isinstance(result_shape_dtypes, Sequence)
    results = tuple(typeof(ShapedArray(tuple(r.shape), np.dtype(r.dtype))) for r in (
        result_shape_dtypes if several else [result_shape_dtypes]))
    outs = _layouts(output_layouts if several or output_layouts is None else [output_layouts], results, "output_layouts")

    @api_boundary
    def call(*args: Any, **attributes: Any) -> Any:
        avals = [typeof(x) for x in args]
        aliases = tuple(sorted((input_output_aliases or {}).items()))
        _check_aliases(aliases, avals, results)
        if custom_call_api_version < TYPED:
            if attributes:
                raise ValueError(f"ffi_call: attributes {sorted(attributes)} need custom_call_api_version=4. hint: pass "
                                 "legacy_backend_config=")
            config = quoted(legacy_backend_config or "")
        else:
            config = attribute_text(attributes, target_name)
        got = bind(ffi_call_p, *args, target_name=target_name, result_avals=results, vmap_method=vmap_method, attributes=config,
                   has_side_effect=has_side_effect, input_layouts=_layouts(input_layouts, avals, "input_layouts"),
                   output_layouts=outs, aliases=aliases, api_version=custom_call_api_version)
        return (tuple(got) if isinstance(result_shape_dtypes, tuple) else got) if several else got[0]
    return call


def ffi_lowering(call_target_name: str, *, operand_layouts: Sequence[Any] | None = None,
                 result_layouts: Sequence[Any] | None = None, backend_config: Mapping[str, Any] | str | None = None,
                 skip_ffi_layout_processing: bool = False, has_side_effect: bool = False,
                 operand_output_aliases: Mapping[int, int] | None = None, **lowering_args: Any) -> Callable:
    """The rule `lower` of a primitive of one's own that calls a handler: its params become the handler's attributes.

    Layouts are always processed: skip_ffi_layout_processing has no effect.  Raises TypeError for options of jax's own
    lowering rules (lowering_args)."""
    if lowering_args:
        raise TypeError(f"ffi_lowering does not know {', '.join(sorted(lowering_args))}. hint: attributes of the handler are "
                        "params of the primitive, or go in backend_config={...}")
    def lower(e, ins, outs, *xs, **params):
        legacy = isinstance(backend_config, str)
        given = {**(backend_config or {}), **params} if not isinstance(backend_config, str) else {}
        config = quoted(str(backend_config)) if legacy else attribute_text(given, call_target_name)
        return emit(e, call_target_name, ins, outs, xs, config, _layouts(operand_layouts, ins, "operand_layouts"),
                    _layouts(result_layouts, outs, "result_layouts"), dict(operand_output_aliases or {}), has_side_effect,
                    2 if legacy else TYPED)
    return lower


def _layouts(given: Sequence[Any] | None, avals: Sequence[ShapedArray], what: str) -> tuple[tuple[int, ...], ...]:
    given = [None] * len(avals) if given is None else list(given)
    if len(given) != len(avals):
        raise ValueError(f"ffi_call: {what} has {len(given)} entries for {len(avals)} arrays")
    orders = [Layout(tuple(range(a.ndim))) if g is None else g if isinstance(g, Layout) else Layout(tuple(g))
              for g, a in zip(given, avals)]
    return tuple(layout.for_stored(a).major_to_minor for layout, a in zip(orders, avals))


def _check_aliases(aliases: Sequence[tuple[int, int]], ins: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> None:
    for i, o in aliases:
        if not (0 <= i < len(ins) and 0 <= o < len(outs)):
            raise ValueError(f"ffi_call: input_output_aliases has {i}: {o} for {len(ins)} arguments and {len(outs)} results")
        if (ins[i].shape, ins[i].dtype) != (outs[o].shape, outs[o].dtype):
            raise ValueError(f"ffi_call: input_output_aliases joins argument {i}, {ins[i].str_short()}, and result {o}, "
                             f"{outs[o].str_short()}; these must have one type")


# ---- text --------------------------------------------------------------------------------------------------------------

def emit(e: Any, target: str, ins: Sequence[ShapedArray], outs: Sequence[ShapedArray], xs: Sequence[str], config: str,
         in_layouts: Sequence, out_layouts: Sequence, aliases: Mapping[int, int], has_side_effect: bool, version: int
         ) -> list[str]:
    """Append a custom call -> the names of its results."""
    alias = ", ".join(f"#stablehlo.output_operand_alias<output_tuple_indices = [{o if len(outs) > 1 else ''}], operand_index = "
                      f"{i}, operand_tuple_indices = []>" for i, o in aliases.items())
    return e.ops(f"stablehlo.custom_call @{symbol_text(target)}({', '.join(xs)}) {{api_version = {version} : i32, "
                 f"backend_config = {config}, has_side_effect = {str(has_side_effect).lower()}, "
                 f"operand_layouts = [{', '.join(map(layout_text, in_layouts))}], "
                 f"result_layouts = [{', '.join(map(layout_text, out_layouts))}], output_operand_aliases = [{alias}]}} : "
                 f"({', '.join(a.mlir for a in ins)}) -> ({', '.join(a.mlir for a in outs)})", len(outs))


def attribute_text(value: Any, where: str) -> str:
    """A Python value as an MLIR attribute: Python's int and float have 64 bits, numpy's numbers their own type.

    Raises TypeError for what has no such form."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k} = {attribute_text(v, f'{where}, attribute {k}')}" for k, v in sorted(value.items())) + "}"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    if isinstance(value, (int, float)) and not isinstance(value, np.generic):
        value = np.int64(value) if isinstance(value, int) else np.float64(value)
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.name in MLIR_NAMES and value.dtype.kind != "c":
        kind = MLIR_NAMES[value.dtype.name]
        if value.ndim == 0:
            return f"{scalar_text(value[()], value.dtype)} : {kind}"
        if value.ndim == 1:
            return f"{dense_text(value)} : tensor<{value.size}x{kind}>"
    raise TypeError(f"ffi_call to {where}: {value!r} of type {type(value).__name__} cannot be an attribute. hint: pass "
                    "numbers, strings, dicts of them or 1-d numpy arrays; other arrays are arguments")


__all__ = ["ffi_call", "ffi_lowering", "include_dir", "pycapsule", "register_ffi_target",
           "register_ffi_target_as_batch_partitionable", "register_ffi_type"]
