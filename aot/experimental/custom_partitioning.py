"""Functions that say themselves how they are split over devices.

In a program over several devices such a function is one opaque operation to the partitioner: the sharding rule tells how
layouts pass through it, `partition` gives the function that each device runs on its part.  On one device, and inside of
shard_map, it is the function itself.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any, NamedTuple

import numpy as np

from aot import errors, xla
from aot.array import Array
from aot.compile.spmd import run_eqn
from aot.config import config
from aot.experimental._sharding_rule import (
    BATCHING,
    ArrayMapping,
    CompoundFactor,
    SdyShardingRule,
    parse_rule,
    rule_text,
)
from aot.lower.emitter import Emitter, Module
from aot.ops.call import Holder
from aot.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, TiledSharding, get_mesh, spec_from_tiles
from aot.source import api_boundary
from aot.trace import Jaxpr, ShapedArray, ShapeDtypeStruct, bind, is_tracer, stage, state, typeof
from aot.tree_util import tree_flatten, tree_leaves

TARGET = "aot_custom_partitioning"


class custom_partitioning:
    """fun, with rules for its partitioning that `def_partition` sets.

    static_argnums: positions of arguments that are Python values; the rules get them first."""

    def __init__(self, fun: Callable, static_argnums: int | Sequence[int] = ()):
        update_wrapper(self, fun)
        self.fun = fun
        self.static_argnums = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
        self.rules: Rules | None = None
        self._traces: dict[Any, tuple[Jaxpr, Info]] = {}

    def def_partition(self, partition: Callable, infer_sharding_from_operands: Callable | None = None,
                      propagate_user_sharding: Callable | None = None, decode_shardings: bool = True,
                      sharding_rule: Any = None, **options: Any) -> Callable:
        """Set the rules -> partition.

        partition(*static, mesh, arg_shapes, result_shape): shapes with shardings as the partitioner has chosen them ->
        (mesh, function of the parts on one device, shardings of the results, shardings of the arguments).
        sharding_rule: a SdyShardingRule, its notation ("... i -> ... i", with options of SdyShardingRule), or
        rule(*static, mesh, arg_types, result_types) that gives one of these.  Without it
        infer_sharding_from_operands(*static, mesh, arg_shapes, result_shape) -> shardings of the results is asked about
        each dimension of each argument.  propagate_user_sharding: taken for the sake of older code; rules work in both
        directions.  decode_shardings: False gives the partitioner's own tiles instead of NamedShardings."""
        if isinstance(sharding_rule, str):
            sharding_rule = parse_rule(sharding_rule, **options)
        elif options:
            raise ValueError(f"def_partition got {sorted(options)}, which only a sharding_rule in notation takes")
        self.rules = Rules(partition, infer_sharding_from_operands, propagate_user_sharding, decode_shardings, sharding_rule)
        return partition

    @api_boundary
    def __call__(self, *args, **kwargs):
        if self.rules is None:
            raise TypeError(f"{self._name()} has no partition rule. hint: call {self._name()}.def_partition(...) first")
        bound = inspect.signature(self.fun).bind(*args, **kwargs)
        bound.apply_defaults()
        if bound.kwargs:
            raise TypeError(f"{self._name()}: keyword arguments {sorted(bound.kwargs)} have no position. hint: pass arguments "
                            "of custom_partitioning functions by position")
        static = self._static(bound.args)
        leaves, in_tree = tree_flatten(tuple(x for i, x in enumerate(bound.args) if i not in static))
        jaxpr, info = self._traced(self.rules, static, in_tree, tuple(typeof(x) for x in leaves), len(bound.args))
        return info.out_tree.unflatten(bind(custom_partitioning_p, *leaves, jaxpr=jaxpr, info=info))

    def _traced(self, rules: Rules, static: dict, in_tree: Any, avals: tuple, n: int) -> tuple[Jaxpr, Info]:
        """The function on these types.  Kept, unless a static argument has no hash."""
        key = tuple(static.items()), in_tree, avals, n, rules, config.trace_key(), tuple(state.axes.items())
        try:
            found = self._traces.get(key)
        except TypeError:
            return self._trace(rules, static, in_tree, avals, n)
        if found is None:
            found = self._traces[key] = self._trace(rules, static, in_tree, avals, n)
        return found

    def _trace(self, rules: Rules, static: dict, in_tree: Any, avals: tuple, n: int) -> tuple[Jaxpr, Info]:
        out: list = []

        def flat(*xs):
            it = iter(in_tree.unflatten(xs))
            outs, tree = tree_flatten(self.fun(*[static[i] if i in static else next(it) for i in range(n)]))
            out.append(tree)
            return outs
        jaxpr, captured = stage(flat, avals, self._name())
        if captured:
            raise errors.UnexpectedTracerError(f"{self._name()} closes over a traced value {captured[0]}. hint: pass it as an "
                                               "argument")
        return jaxpr, Info(self.__module__, _qualified(self.fun), rules, tuple(static.values()), in_tree, out[0])

    def _name(self) -> str: return getattr(self.fun, "__name__", "f")

    def _static(self, args: tuple) -> dict[int, Any]:
        """position -> value of the static arguments, in the order they were named."""
        static = {i % len(args): args[i] for i in self.static_argnums}
        if any(is_tracer(x) for x in tree_leaves(tuple(static.values()))):
            raise errors.UnexpectedTracerError(f"{self._name()}: an argument that static_argnums names is a traced value")
        return static


def _qualified(fun: Callable) -> str: return getattr(fun, "__qualname__", type(fun).__qualname__)


class Rules(NamedTuple):
    """What def_partition was given."""
    partition: Callable
    infer: Callable | None
    propagate: Callable | None
    decode: bool
    rule: Any


class Info(NamedTuple):
    """One call of a custom_partitioning function."""
    module: str
    name: str
    rules: Rules
    static: tuple
    in_tree: Any
    out_tree: Any

    # Static arguments need not be hashable: two calls are the same where all else is, and these are the same objects.
    def _key(self): return *self[:3], tuple(map(id, self.static)), *self[4:]
    def __hash__(self): return hash(self._key()[:2])
    def __eq__(self, other): return isinstance(other, Info) and self._key() == other._key()


# ---- the primitive -----------------------------------------------------------------------------------------------------

class CustomPartitioning(Holder):
    """A call that the partitioner asks back about; without partitioning it is the call itself."""
    name = "custom_partitioning"

    def infer(self, *avals, jaxpr, info): return jaxpr.out_avals

    def jvp(self, primals, tangents, *, jaxpr, info): raise _no_rule(info, "derivative", "custom_vjp or custom_jvp")
    def vmap(self, axis, args, dims, *, jaxpr, info): raise _no_rule(info, "batching", "custom_vmap")
    def transpose(self, cts, *args, jaxpr, info): raise _no_rule(info, "transposition", "custom_vjp")

    def evaluate(self, args, params):
        from aot.dispatch import run_jaxpr
        if any(type(x) is Array and xla.is_placed(x.buf) for x in args):
            return run_eqn(self, args, params)
        return run_jaxpr(params["jaxpr"], args, params["info"].name)

    def lower(self, e, ins, outs, *xs, jaxpr, info):
        devices = e.module.devices
        if e.manual is not None or not devices or len(devices) == 1:
            return e.jaxpr(jaxpr, xs)
        if any(a.physical is not a for a in (*ins, *outs)):
            raise TypeError(f"{info.name}: typed random keys cannot be partitioned by hand. hint: pass "
                            "aot.random.key_data(key)")
        mesh = program_mesh(e.module)
        text = _rule_of(info, mesh, ins, outs)
        rule = f", sdy.sharding_rule = {text}" if text else ""
        return e.ops(f'stablehlo.custom_call @{TARGET}({", ".join(xs)}) {{api_version = 2 : i32, backend_config = '
                     f'"{register(info, mesh)}"{rule}}} : ({", ".join(a.mlir for a in ins)}) -> '
                     f'({", ".join(a.mlir for a in outs)})', len(outs))


def _no_rule(info: Info, rule: str, wrapper: str) -> Exception:
    return NotImplementedError(f"`custom_partitioning` has no {rule} rule: {info.name} is opaque. hint: wrap it with "
                               f"{wrapper}, whose rules may call other custom_partitioning functions")


custom_partitioning_p = CustomPartitioning()


# ---- rules for the partitioner ---------------------------------------------------------------------------------------------

def program_mesh(module: Module) -> Mesh:
    """The mesh that rules see: the first one of the program, in terms of its devices."""
    devices = module.devices or ()
    for mesh in (*module.meshes, get_mesh()):
        if isinstance(mesh, Mesh) and mesh.device_tuple == devices:
            return mesh
    return Mesh(np.array(devices, dtype=object), ("devices",))


def _rule_of(info: Info, mesh: Mesh, ins: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> str | None:
    rule: Any = info.rules.rule
    options: dict = {}
    if callable(rule):
        rule = rule(*info.static, mesh, list(ins), list(outs))
        rule, options = rule if isinstance(rule, (list, tuple)) and len(rule) == 2 else (rule, {})
        rule = parse_rule(rule, **options) if isinstance(rule, str) else rule
    if rule is None and info.rules.infer is not None:
        rule = _probed(info, mesh, ins, outs)
    if rule is not None and not isinstance(rule, SdyShardingRule):
        raise ValueError(f"{info.name}: sharding_rule must be or give a SdyShardingRule or its notation, got {rule!r}")
    return None if rule is None else rule_text(rule, [a.shape for a in ins], [a.shape for a in outs])


def _probed(info: Info, mesh: Mesh, ins: Sequence[ShapedArray], outs: Sequence[ShapedArray]) -> SdyShardingRule:
    """The rule that infer_sharding_from_operands implies: split one dimension at a time and see where it comes out."""
    results = [[f"r{i}_{j}" for j in range(a.ndim)] for i, a in enumerate(outs)]
    operands = [[f"o{i}_{j}" for j in range(a.ndim)] for i, a in enumerate(ins)]
    axis = mesh.axis_names[0]
    for i, a in enumerate(ins):
        for j in range(a.ndim):
            shapes = [ShapeDtypeStruct(b.shape, b.dtype, sharding=NamedSharding(mesh, PartitionSpec(*[
                axis if (k, d) == (i, j) else None for d in range(b.ndim)]))) for k, b in enumerate(ins)]
            given = info.rules.infer(*info.static, mesh, info.in_tree.unflatten(shapes), info.out_tree.unflatten(outs))
            came = [(n, d) for n, s in enumerate(_flat_shardings(info.out_tree, given, info)) for d in range(outs[n].ndim)
                    if axis in s.spec.axes(d)]
            if came:
                operands[i][j] = results[came[0][0]][came[0][1]]
                for n, d in came:
                    results[n][d] = operands[i][j]
    return SdyShardingRule(tuple(map(tuple, operands)), tuple(map(tuple, results)))


def _flat_shardings(tree: Any, shardings: Any, info: Info) -> list:
    flat = tree.flatten_up_to(shardings)
    for s in flat:
        if not isinstance(s, Sharding):
            raise ValueError(f"{info.name}: custom partitioning rules must return shardings, got {s!r}")
    return flat


# ---- what XLA calls back -----------------------------------------------------------------------------------------------------

_registered: dict[str, tuple[Info, Mesh]] = {}
_CAPACITY = 4096


def register(info: Info, mesh: Mesh) -> str:
    """The name by which XLA asks about this call: where its function is defined, and a number among those.

    It is the same in every process that makes the same calls in the same order."""
    xla.register_partitioner(TARGET, _partition_for_xla)
    base, n = f"{info.module}.{info.name}".replace('"', "'").replace("\\", "/"), 0
    while (found := _registered.get(f"{base}#{n}")) is not None and found != (info, mesh):
        n += 1
    if found is None and len(_registered) >= _CAPACITY:
        _registered.pop(next(iter(_registered)))
    _registered[f"{base}#{n}"] = info, mesh
    return f"{base}#{n}"


def _partition_for_xla(key: str, args: Sequence[tuple], results: Sequence[tuple]) -> tuple[str, list, list]:
    """args, results: (shape, dtype, tiles or None) -> (StableHLO of one part, shardings of args, shardings of results)."""
    found = _registered.get(key)
    if found is None:
        raise errors.AotError(f"the partition rule of {key} is not in this process",
                              hint="compile programs with custom_partitioning in the process that lowers them")
    info, mesh = found
    described = [[ShapeDtypeStruct(shape, dtype, sharding=_decoded(mesh, tiles, len(shape), info.rules.decode))
                  for shape, dtype, tiles in side] for side in (args, results)]
    over, fn, out, ins = info.rules.partition(*info.static, mesh, info.in_tree.unflatten(described[0]),
                                              info.out_tree.unflatten(described[1]))
    in_shardings, out_shardings = _flat_shardings(info.in_tree, ins, info), _flat_shardings(info.out_tree, out, info)
    parts = lambda side, shardings: [ShapedArray(xla.tile_shape(s, shape), np.dtype(dtype))
                                     for (shape, dtype, _), s in zip(side, shardings)]
    text = _part_text(info, over, fn, parts(args, in_shardings), parts(results, out_shardings), mesh)
    return text, in_shardings, out_shardings


def _decoded(mesh: Mesh, tiles: Any, ndim: int, decode: bool) -> Sharding:
    if tiles is None:
        return NamedSharding(mesh, PartitionSpec(*[None] * ndim))
    named = spec_from_tiles(mesh, *tiles) if decode else None
    if named is None:
        return TiledSharding(mesh.device_tuple, *tiles)
    return NamedSharding(mesh, PartitionSpec(*named.spec, *[None] * (ndim - len(named.spec))))


def _part_text(info: Info, mesh: Mesh, fn: Callable, ins: Sequence[ShapedArray], outs: Sequence[ShapedArray],
               order: Mesh) -> str:
    """StableHLO of what one device does; collectives in it speak to the axes of the mesh."""
    from aot.ops.spmd import manual_axes

    def flat(*xs):
        got, tree = tree_flatten(fn(*info.in_tree.unflatten(xs)))
        if tree != info.out_tree:
            raise ValueError(f"{info.name}: the function that `partition` gave returns {tree}, expected {info.out_tree}")
        return got
    with manual_axes(mesh, frozenset(mesh.axis_names)):
        jaxpr, captured = stage(flat, ins, info.name)
    if captured:
        raise errors.UnexpectedTracerError(f"{info.name}: the function that `partition` gave closes over a traced value")
    if [(a.shape, a.dtype) for a in jaxpr.out_avals] != [(a.shape, a.dtype) for a in outs]:
        raise ValueError(f"{info.name}: the function that `partition` gave returns {_shown(jaxpr.out_avals)} for parts "
                         f"{_shown(ins)}, but the shardings of its results mean {_shown(outs)}")
    return _module_text(jaxpr, mesh, order, info)


def _shown(avals: Sequence[ShapedArray]) -> str: return ", ".join(a.str_short() for a in avals) or "nothing"


def _module_text(jaxpr: Jaxpr, mesh: Mesh, order: Mesh, info: Info) -> str:
    module = Module("part")
    module.devices = order.device_tuple
    e = Emitter(module)
    e.manual = mesh
    names = [f"%arg{i}" for i in range(len(jaxpr.invars))]
    outs = e.jaxpr(jaxpr, names)
    if module.callbacks:
        raise NotImplementedError(f"{info.name}: callbacks cannot run in the function that `partition` gave. hint: call them "
                                  "around the custom_partitioning function")
    args = ", ".join(f"{n}: {a.mlir}" for n, a in zip(names, jaxpr.in_avals))
    types = ", ".join(a.mlir for a in jaxpr.out_avals)
    body = "\n".join([*e.lines, f"return {', '.join(outs)} : {types}"])
    return "\n".join(["module @part {", *module.declarations, f"func.func public @main({args}) -> ({types}) {{\n{body}\n}}",
                      *module.text, "}"])


__all__ = ["ArrayMapping", "BATCHING", "CompoundFactor", "SdyShardingRule", "custom_partitioning", "custom_partitioning_p"]
