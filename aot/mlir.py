"""StableHLO modules through jaxlib's MLIR bindings: parsing, portable bytecode, and the passes that exporters need.

Beside aot/xla.py this is the only file of the compiler that imports jaxlib.
"""
from __future__ import annotations

import io
import re
from functools import cache
from typing import Any, Collection, Mapping, Sequence

# ---- modules --------------------------------------------------------------------------------------------------------

@cache
def dialects() -> tuple:
    """(MLIR's bindings, the registry of XLA's dialects, functions that register further ones)."""
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    return ir, registry, (stablehlo.register_dialect, chlo.register_dialect, sdy.register_dialect,
                          mhlo.register_mhlo_dialect)


def context() -> Any:
    """A fresh MLIR context with every dialect that XLA reads."""
    ir, registry, registrars = dialects()
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    for register in registrars:
        register(context)
    return context


def parse(text: str | bytes) -> Any:
    """StableHLO text or bytecode -> verified MLIR module."""
    ir = dialects()[0]
    with context():
        return ir.Module.parse(text)


def computation(text: str) -> Any:
    """StableHLO text -> XLA's computation, which has `as_hlo_text()`."""
    from jaxlib import _jax
    return _jax.mlir.mlir_module_to_xla_computation(text, use_tuple_args=False, return_tuple=False)


def cost_analysis(text: str) -> dict:
    """XLA's estimate of what the program costs before it is optimized: flops, bytes accessed, ..."""
    from jaxlib import _jax

    from aot import xla
    return _jax.hlo_module_cost_analysis(xla.client(), computation(text).get_hlo_module())


TARGET_STABLEHLO = "1.0.0"


def portable_bytecode(text: str | bytes, target: str | None = None) -> bytes:
    """StableHLO module -> portable artifact bytes, readable by every consumer of that StableHLO version or later.

    Without a target: the oldest of a few versions that can express the module (1.0.0 unless it uses newer features).
    """
    from jaxlib import _jax
    from jaxlib.mlir.dialects import stablehlo
    module, serialize_at = parse(text), _jax.mlir.serialize_portable_artifact
    if target is not None:
        return serialize_at(module, target)
    twelve_weeks = stablehlo.StablehloCompatibilityRequirement.WEEK_12
    for version in (TARGET_STABLEHLO, stablehlo.get_version_from_compatibility_requirement(twelve_weeks)):
        try:
            return serialize_at(module, version)
        except _jax.JaxRuntimeError:
            pass
    return serialize_at(module, stablehlo.get_current_version())


def from_portable_bytecode(blob: bytes) -> Any:
    """Portable artifact bytes -> StableHLO text."""
    from jaxlib.mlir.dialects import stablehlo
    with context() as within:
        return str(stablehlo.deserialize_portable_artifact(within, blob))


# ---- shardings of portable programs ---------------------------------------------------------------------------------------

def restore_shardings(module: Any) -> dict[str, tuple[list[tuple[str, int]], list[int]]]:
    """Say the shardings of a portable program in the dialect sdy again, in place -> {symbol of a mesh: (axes, device ids)}.

    Portable bytecode has them as text in attributes, and manual computations as functions that are called between two custom
    calls.  XLA reads this form or the dialect, and no module that has both.
    """
    from jaxlib.mlir.dialects import sdy
    run_passes(module, "builtin.module(xla-sdy-round-trip-import-shardy-attrs)")
    named = {op.attributes["sym_name"].value: op.operation for op in module.body.operations}
    with module.context:
        meshes = {name: sdy.MeshAttr(op.attributes["mesh"]) for name, op in named.items() if op.name == "sdy.mesh"}
        for op in _custom_calls(module, "Sharding"):
            sharding = sdy.TensorShardingPerValueAttr(op.attributes["sdy.sharding"]).shardings[0]
            _replace(op, "sdy.sharding_constraint", op.operands, {"sharding": sharding}, 0)
        for op in _custom_calls(module, "xla.sdy.LocalToGlobalShape"):
            _restore_manual(op, named)
        axes = lambda mesh: [(a.name, a.size) for a in map(sdy.MeshAxisAttr, mesh.axes)]
        return {name: (axes(mesh), list(mesh.device_ids)) for name, mesh in meshes.items()}


def _custom_calls(module: Any, target: str) -> list[Any]:
    found, go_on = [], dialects()[0].WalkResult.ADVANCE

    def visit(op: Any) -> Any:
        if op.name == "stablehlo.custom_call" and op.attributes["call_target_name"].value == target:
            found.append(op)
        return go_on
    module.operation.walk(visit)
    return found


def _replace(op: Any, name: str, operands: Sequence, attributes: dict, regions: int) -> Any:
    """Another operation with the results of one, in its place."""
    ir = dialects()[0]
    with ir.InsertionPoint(op), op.location:
        made = ir.Operation.create(name, [r.type for r in op.results], list(operands), attributes, regions=regions)
    for old, new in zip(op.results, made.results):
        old.replace_all_uses_with(new)
    op.erase()
    return made


def _restore_manual(last: Any, functions: Mapping[str, Any]) -> None:
    """`sdy.manual_computation` in the place of a call between the custom calls that change shapes; `last` is the second."""
    ir = dialects()[0]
    call = last.operands[0].owner
    first = call.operands[0].owner if len(call.operands) else None          # none where nothing is split
    text = lambda op, key: ir.StringAttr(op.attributes["mhlo.frontend_attributes"][f"xla.sdy.{key}"]).value
    shardings = {"in_shardings": text(first, "in_shardings") if first else "#sdy.sharding_per_value<[]>",
                 "out_shardings": text(last, "out_shardings"), "manual_axes": text(last, "manual_axes")}
    made = _replace(last, "sdy.manual_computation", first.operands if first else (),
                    {k: ir.Attribute.parse(v) for k, v in shardings.items()}, 1)
    body = functions[call.attributes["callee"].value]
    block = body.regions[0].blocks[0]
    end = list(block.operations)[-1].operation
    _replace(end, "sdy.return", end.operands, {}, 0)
    block.append_to(made.regions[0])
    for done in (call, first, body):
        if done:
            done.erase()


# ---- rewriting programs for exporters --------------------------------------------------------------------------------------

def bindings() -> tuple[Any, Any]:
    """jaxlib's modules for MLIR and for the StableHLO dialect."""
    from jaxlib.mlir.dialects import stablehlo
    return dialects()[0], stablehlo


def error() -> type[Exception]:
    """What the MLIR bindings raise for a module that is not valid."""
    return dialects()[0].MLIRError


def read_module(source: str | bytes) -> Any:
    """StableHLO text, bytecode or portable artifact -> MLIR module.  Raises `error()` or ValueError."""
    if isinstance(source, bytes) and source.startswith(b"ML\xefR"):
        from jaxlib.mlir.dialects import stablehlo
        if b"StableHLO_v" in source[:64]:
            with context() as within:
                return stablehlo.deserialize_portable_artifact(within, source)
    return parse(source)


@cache
def _register_passes() -> None:
    from jaxlib.mlir.dialects import mhlo, stablehlo
    stablehlo.register_stablehlo_passes()
    mhlo.register_mhlo_passes()


def run_passes(module: Any, pipeline: str) -> None:
    """Run a textual pipeline of passes on a module.  Raises `error()`."""
    from jaxlib.mlir import passmanager
    _register_passes()
    with module.context:
        passmanager.PassManager.parse(pipeline).run(module.operation)


#: a size that is not known, or an operation whose sizes are operands
_UNKNOWN = re.compile(r"[<x]\?x|real_dynamic_slice|dynamic_(?!slice|update_slice)")


def legalize(module: Any, keep: Collection[str] = (), composites: Collection[str] = ()) -> None:
    """Express deprecated operations, the dialect chlo and composites in plain StableHLO, in place.

    Calls of library functions that carry the name of a composite to keep become that composite first.

    keep: chlo operations to keep, `chlo.erf` or for one element type `chlo.erf:f32`: each becomes a custom call of its
    name with its attributes as `mhlo.backend_config`.
    composites: names of composites to keep.  Unknown sizes are refined as far as they follow from known ones.
    """
    with module.context:
        _hide_kept(module, set(keep))
    name_composites(module, composites)
    excepted = f"{{except={','.join(sorted(composites))}}}" if composites else ""
    steps = ["chlo-legalize-to-stablehlo", "stablehlo-complex-math-expander", f"stablehlo-legalize-composite-to-call{excepted}",
             "stablehlo-legalize-deprecated-ops{fail-on-unused=false}", "stablehlo-canonicalize-dynamism"]
    run_passes(module, f"builtin.module(func.func({','.join(steps)}))")
    if _UNKNOWN.search(module.operation.get_asm(large_elements_limit=16)):
        run_passes(module, "builtin.module(stablehlo-refine-shapes,func.func(stablehlo-canonicalize-dynamism))")


def _hide_kept(module: Any, keep: set[str]) -> None:
    ir, stablehlo = bindings()

    def visit(op):
        if op.name.startswith("chlo.") and not keep.isdisjoint((op.name, f"{op.name}:{op.results[0].type.element_type}")):
            with ir.InsertionPoint(op), op.location:
                attributes = {"call_target_name": ir.StringAttr.get(op.name),
                              "mhlo.backend_config": ir.DictAttr.get({
                                  (n if isinstance(n, str) else n.name):
                                      op.attributes[n if isinstance(n, str) else n.name] for n in op.attributes})}
                made = ir.Operation.create("stablehlo.custom_call", [r.type for r in op.results], list(op.operands),
                                           attributes)
            for old, new in zip(op.results, made.results):
                old.replace_all_uses_with(new)
            op.erase()
            return
        for region in op.regions:
            for block in region.blocks:
                for inner in list(block.operations):
                    visit(inner.operation)
    if keep:
        visit(module.operation)


def name_composites(module: Any, names: Collection[str] | None = None) -> None:
    """Make calls of functions that the lowering marked with these names (None: any) `stablehlo.composite`s, in place."""
    ir = dialects()[0]
    marks = {op.attributes["sym_name"].value: op.attributes for op in module.body.operations
             if "aot.composite" in op.attributes and (names is None or op.attributes["aot.composite"].value in names)}

    def visit(op: Any) -> None:
        mark = marks.get(op.attributes["callee"].value) if op.name == "func.call" else None
        if mark is not None:
            attributes = {"name": mark["aot.composite"], "composite_attributes": mark["aot.attributes"],
                          "decomposition": op.attributes["callee"]}
            with ir.InsertionPoint(op), op.location:
                made = ir.Operation.create("stablehlo.composite", [r.type for r in op.results], list(op.operands), attributes)
            for old, new in zip(op.results, made.results):
                old.replace_all_uses_with(new)
            op.erase()
        for region in () if mark is not None else op.regions:
            for block in region.blocks:
                for inner in list(block.operations):
                    visit(inner.operation)
    if marks:
        with module.context:
            visit(module.operation)


def bind_arguments(module: Any, attributes: Mapping[int, str]) -> None:
    """Replace arguments of `@main` by constants, given as the text of MLIR attributes, in place."""
    ir = dialects()[0]
    with module.context, ir.Location.unknown(module.context):
        main = next(op for op in module.body.operations if op.attributes["sym_name"].value == "main")
        block = main.regions[0].blocks[0]
        for i in sorted(attributes, reverse=True):
            with ir.InsertionPoint.at_block_begin(block):
                value = ir.Attribute.parse(attributes[i])
                made = ir.Operation.create("stablehlo.constant", [block.arguments[i].type], [], {"value": value})
            block.arguments[i].replace_all_uses_with(made.results[0])
            block.erase_argument(i)
        results = main.attributes["function_type"].value.results
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([a.type for a in block.arguments], results))
        if attributes and "arg_attrs" in main.attributes:
            del main.attributes["arg_attrs"]


def specialize(module: Any, shapes: Sequence[tuple[int, ...]]) -> None:
    """Give the arguments of `@main` these static shapes and refine all types that follow, in place."""
    ir = dialects()[0]
    with module.context, ir.Location.unknown(module.context):
        main = next(op for op in module.body.operations if op.attributes["sym_name"].value == "main")
        arguments = list(main.regions[0].blocks[0].arguments)
        for argument, shape in zip(arguments, shapes, strict=True):
            argument.set_type(ir.RankedTensorType.get(list(shape), argument.type.element_type))
        results = main.attributes["function_type"].value.results
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([a.type for a in arguments], results))
    run_passes(module, "builtin.module(stablehlo-refine-shapes,func.func(stablehlo-canonicalize-dynamism))")


def bytecode(text: str) -> bytes:
    """StableHLO text -> MLIR bytecode."""
    module, out = parse(text), io.BytesIO()
    module.operation.write_bytecode(out)
    return out.getvalue()
