"""Programs that outlive this process: a jitted function as portable StableHLO with its signature.

`export(jit(f))(*args)` gives an `Exported`; its `serialize()` is an `.aot` artifact (docs/format.md) without executables, so
`aot inspect`, `aot verify` and the loader read it too, and `deserialize` gives back an Exported that functions can call.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from aot import artifact, dtypes, mlir, xla
from aot.exported_files import (
    deserialize,
    functions_of,
    register_namedtuple_serialization,
    register_pytree_node_serialization,
)
from aot.ops.call import Primitive
from aot.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec, absent_mesh, get_mesh
from aot.source import api_boundary
from aot.stages import PLATFORMS, Wrapped
from aot.symbolic import SymbolicScope, is_symbolic_dim, symbolic_args_specs, symbolic_shape
from aot.trace import ShapedArray, ShapeDtypeStruct, bind, eval_jaxpr, typeof
from aot.tree_util import (
    PyTreeDef,
    keystr,
    structure_differences,
    tree_flatten,
    tree_flatten_with_path,
)

minimum_supported_calling_convention_version = 9
maximum_supported_calling_convention_version = 10


# ---- what may be left unchecked ----------------------------------------------------------------------------------------

@dataclass(frozen=True)
class DisabledSafetyCheck:
    """A check that `export` or `call` shall leave out: `DisabledSafetyCheck.platform()`, `.custom_call(target_name)`."""
    name: str

    @classmethod
    def platform(cls) -> DisabledSafetyCheck:
        """Calls on a platform that the function was not exported for."""
        return cls("platform")

    @classmethod
    def custom_call(cls, target_name: str) -> DisabledSafetyCheck:
        """Custom calls of a target that need not exist, or mean the same, where the program is loaded."""
        return cls(f"custom_call:{target_name}")

    def is_custom_call(self) -> str | None:
        """The target, if this is about custom calls."""
        return self.name.removeprefix("custom_call:") if self.name.startswith("custom_call:") else None

    def __str__(self) -> str: return self.name


#: custom calls that every XLA knows, and kernels of jaxlib with a stable interface
_LASTING = re.compile(r"Sharding|SPMD\w+ShapeTo\w+|SPMD\w+|LayoutConstraint|lapack_\w+_ffi|mhlo\.\w+|xla\.sdy\.\w+|TopK|"
                      r"annotate_device_placement")


# ---- exporting ---------------------------------------------------------------------------------------------------------

def default_export_platform() -> str:
    """The platform that `export` lowers for when none is named: this process's."""
    return "cpu"


def export(fun_jit: Any, *, platforms: Sequence[str] | None = None, disabled_checks: Sequence[DisabledSafetyCheck] = (),
           _override_lowering_rules: Any = None) -> Callable[..., Exported]:
    """A function of the same arguments (arrays or ShapeDtypeStructs) that gives fun_jit as an `Exported`.

    platforms: of "cpu", "cuda", "rocm" and "tpu".  Raises ValueError for what is not the result of `jit`, and in the call
    for custom calls that need not mean the same elsewhere; NotImplementedError for programs that call back into Python."""
    if not isinstance(fun_jit, Wrapped):
        raise ValueError(f"export takes the result of jit, got {fun_jit!r}. hint: export(jit(f))(*args)")
    if _override_lowering_rules:
        raise NotImplementedError("export: lowering rules belong to primitives here. hint: write what differs with "
                                  "lax.platform_dependent")
    wanted = tuple(platforms) if platforms is not None else (default_export_platform(),)
    if not wanted or any(p not in PLATFORMS for p in wanted):
        raise ValueError(f"export: platforms={wanted!r}. hint: name one or more of {', '.join(PLATFORMS)}")

    @api_boundary
    def exported(*args, **kwargs):
        return _exported(fun_jit.trace(*args, **kwargs).lasting(), wanted, tuple(disabled_checks))
    return exported


def _exported(traced: Any, platforms: tuple[str, ...], disabled: tuple[DisabledSafetyCheck, ...]) -> Exported:
    programs, lowered, traced = {}, None, traced.keeping(range(len(traced.in_avals)))
    for platform in platforms:
        lowered = traced.lower(lowering_platforms=(platform,))
        programs[platform] = _portable(lowered, platform, disabled)
    assert lowered is not None
    ins, outs = traced.shardings or ([None] * len(traced.in_avals), [None] * len(traced.out_avals))
    jaxpr, mesh = traced.entry.jaxpr, lowered.mesh
    return Exported(traced.fun_name, traced.in_tree, tuple(traced.in_avals), traced.out_tree, tuple(traced.out_avals),
                    platforms, programs, disabled, mesh and AbstractMesh(mesh.axis_sizes, mesh.axis_names),
                    tuple(map(_spec, ins)), tuple(map(_spec, outs)),
                    _get_vjp=lambda e: _vjp(e, lambda *xs: eval_jaxpr(jaxpr, xs)))


def _spec(s: Any) -> PartitionSpec | None:
    s = None if s is None else s.bare
    return s.spec if isinstance(s, NamedSharding) else None


def _portable(lowered: Any, platform: str, disabled: Sequence[DisabledSafetyCheck]) -> bytes:
    """The program with its constants, as bytes that later versions and other platforms read."""
    from aot.lower.emitter import dense_text
    from aot.lower.plain_lapack import expand
    name = lowered.traced.fun_name
    if lowered.callbacks:
        raise NotImplementedError(f"{name} calls back into Python, which an exported program cannot contain. hint: remove "
                                  "debug prints and callbacks from it")
    text = lowered.text if platform == "cpu" else expand(lowered.text)
    allowed = {d.is_custom_call() for d in disabled}
    for target in sorted(set(re.findall(r"custom_call @(\w+)", text)) - allowed):
        if not _LASTING.fullmatch(target):
            raise ValueError(f"{name} has custom calls of {target}, which need not exist or mean the same where the program "
                             f"is loaded. hint: disabled_checks=[DisabledSafetyCheck.custom_call({target!r})] leaves this out")
    if lowered.consts:
        module = mlir.parse(text)
        mlir.bind_arguments(module, {i: f"{dense_text(c)} : {typeof(c).physical.mlir}" for i, c in enumerate(lowered.consts)})
        text = str(module)
    return mlir.portable_bytecode(text)


def _vjp(e: Exported, flat: Callable) -> Exported:
    """The exported function of the flat arguments and the cotangents of results that have any, to those of arguments."""
    from aot.api import vjp
    from aot.dispatch import jit
    n, smooth = len(e.in_avals), [_is_smooth(a) for a in e.out_avals]

    def backward(*xs):
        it = iter(xs[n:])
        cts = [next(it) if s else np.zeros(a.shape, dtypes.float0) for s, a in zip(smooth, e.out_avals)]
        back = vjp(lambda *args: list(flat(*args)), *xs[:n])[1](cts)
        return tuple(b for b, a in zip(back, e.in_avals) if _is_smooth(a))
    backward.__name__ = f"{e.fun_name}_vjp"
    given = [*e.in_avals, *[a for a, s in zip(e.out_avals, smooth) if s]]
    specs = [*e.in_specs, *[p for p, s in zip(e.out_specs, smooth) if s]]
    mesh = get_mesh() if e.mesh is not None else None
    if e.mesh is not None and (mesh is None or mesh.shape != e.mesh.shape):
        raise ValueError(f"{e.fun_name} was exported for {e.nr_devices} devices. hint: take its vjp inside `with "
                         f"aot.set_mesh(mesh):` with a mesh of the shape {dict(e.mesh.shape)}")
    where = [ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type,
                              sharding=NamedSharding(mesh, p) if mesh is not None and p is not None else None)
             for a, p in zip(given, specs)]
    return _exported(jit(backward).trace(*where), e.platforms, e.disabled_safety_checks)


def _is_smooth(a: ShapedArray) -> bool: return isinstance(a.dtype, np.dtype) and dtypes.issubdtype(a.dtype, np.inexact)


# ---- the exported function -----------------------------------------------------------------------------------------------

@dataclass(eq=False)
class Exported:
    """A function as portable StableHLO, with its signature.

    in_tree: of (args, kwargs).  in_avals, out_avals: flat.  mesh: of a program over several devices, without these;
    in_specs, out_specs: how it splits arguments and results (None: not said)."""
    fun_name: str
    in_tree: PyTreeDef
    in_avals: tuple[ShapedArray, ...]
    out_tree: PyTreeDef
    out_avals: tuple[ShapedArray, ...]
    platforms: tuple[str, ...]
    programs: dict[str, bytes]
    disabled_safety_checks: tuple[DisabledSafetyCheck, ...] = ()
    mesh: AbstractMesh | None = None
    in_specs: tuple[PartitionSpec | None, ...] = ()
    out_specs: tuple[PartitionSpec | None, ...] = ()
    calling_convention_version: int = maximum_supported_calling_convention_version
    _get_vjp: Callable[[Exported], Exported] | None = field(default=None, repr=False)

    nr_devices = property(lambda self: 1 if self.mesh is None else self.mesh.size)
    ordered_effects: tuple = field(default=(), init=False)
    unordered_effects: tuple = field(default=(), init=False)
    uses_global_constants = False
    module_kept_var_idx = property(lambda self: tuple(range(len(self.in_avals))))

    def __str__(self) -> str: return f"Exported(fun_name={self.fun_name}, ...)"
    __repr__ = __str__

    def mlir_module_of(self, platform: str | None = None) -> bytes:
        """The portable bytecode for a platform; the name may be left out where all have the same."""
        if platform is None and len(set(self.programs.values())) > 1:
            raise ValueError(f"{self.fun_name} differs between the platforms {self.platforms}. hint: name one, as in "
                             f"mlir_module_of({self.platforms[0]!r})")
        return self.programs[platform or self.platforms[0]]

    @property
    def mlir_module_serialized(self) -> bytes:
        """The StableHLO module as portable bytecode."""
        return self.mlir_module_of()

    def mlir_module(self, serialized: bool = True) -> Any:
        """The StableHLO module as text, or (not serialized) as an MLIR module; `@main` takes the flat arguments."""
        text = mlir.from_portable_bytecode(self.mlir_module_of())
        return text if serialized else mlir.parse(text)

    in_shardings_hlo = property(lambda self: self._hlo(self.in_specs, self.in_avals))
    out_shardings_hlo = property(lambda self: self._hlo(self.out_specs, self.out_avals))

    def _hlo(self, specs: Sequence, avals: Sequence) -> tuple:
        """Shardings as XLA has them (None: not said)."""
        mesh = None if self.mesh is None else absent_mesh(self.mesh)
        return tuple(None if mesh is None or s is None else xla.hlo_sharding(NamedSharding(mesh, s), a.ndim)
                     for s, a in zip(specs, avals))

    def in_shardings_jax(self, mesh: Mesh) -> tuple:
        """How arguments are laid out on a mesh of devices (None: not said)."""
        return tuple(None if s is None else NamedSharding(mesh, s) for s in self.in_specs)

    def out_shardings_jax(self, mesh: Mesh) -> tuple:
        """The same for results."""
        return tuple(None if s is None else NamedSharding(mesh, s) for s in self.out_specs)

    # ---- derivatives ----
    def has_vjp(self) -> bool: return self._get_vjp is not None

    def vjp(self) -> Exported:
        """The backward function: of the flat arguments, then the cotangents of results, to the cotangents of arguments.

        Integers and keys have no cotangents.  Raises ValueError where this was deserialized without."""
        if self._get_vjp is None:
            raise ValueError(f"No VJP is available for {self.fun_name}. hint: serialize(vjp_order=1) stores it")
        if self._kept is None:
            self._kept = self._get_vjp(self)
        return self._kept

    _kept: Exported | None = field(default=None, init=False, repr=False)

    # ---- calling ----
    @api_boundary
    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call it, also inside of functions that are traced; differentiable in reverse as far as there is a vjp.

        Raises ValueError for arguments of other structures or types than it was exported for, and on other platforms."""
        leaves, tree = tree_flatten((args, kwargs))
        if tree != self.in_tree:
            raise ValueError(f"{self.fun_name} was exported for arguments of another structure:\n"
                             f"{self._differences(args, kwargs)}")
        self._check_types(leaves, args, kwargs)
        return self.out_tree.unflatten(self._call(*leaves))

    def _differences(self, args: tuple, kwargs: dict) -> str:
        mine = self.in_tree.unflatten([0] * self.in_tree.num_leaves)
        found = structure_differences(mine, (args, kwargs))
        return "\n".join(f"    at (args, kwargs){keystr(path)}: exported {a}, called with {b}" for path, a, b in found)

    def _check_types(self, leaves: Sequence, args: tuple, kwargs: dict) -> None:
        for i, (x, a) in enumerate(zip(leaves, self.in_avals)):
            got = typeof(x)
            if (got.shape, got.dtype) != (a.shape, a.dtype):
                path = keystr(tree_flatten_with_path((args, kwargs))[0][i][0])
                what = "Shape" if got.shape != a.shape else "Dtype"
                raise ValueError(f"{what} mismatch for (args, kwargs){path} of {self.fun_name}: exported for {a.str_short()}, "
                                 f"called with {got.str_short()}")

    @cached_property
    def _call(self) -> Callable:
        """The function of flat arguments, with its derivative."""
        from aot.custom import custom_vjp

        @custom_vjp
        def call(*leaves):
            if self.mesh is None:
                return bind(call_exported_p, *leaves, exported=self)
            mesh = self.concrete_mesh()
            return bind(call_partitioned_p, *self._laid_out(leaves, mesh), exported=self, mesh=mesh)

        def forward(*leaves): return call(*leaves), leaves

        def backward(leaves, cts):
            found = iter(self.vjp()._call(*leaves, *[c for c, a in zip(cts, self.out_avals) if _is_smooth(a)]))
            return tuple(next(found) if _is_smooth(a) else None for a in self.in_avals)
        call.defvjp(forward, backward)
        return call

    def _laid_out(self, leaves: Sequence, mesh: Mesh) -> list:
        """Arguments where a program over several devices takes them."""
        from aot.parallel import reshard
        return [reshard(x, NamedSharding(mesh, s or PartitionSpec())) for x, s in zip(leaves, self.in_specs)]

    def concrete_mesh(self) -> Mesh:
        """The mesh that is set, which must have the shape that the program was exported for.  Raises ValueError."""
        assert self.mesh is not None
        mesh = get_mesh()
        if mesh is None or mesh.shape != self.mesh.shape:
            raise ValueError(f"{self.fun_name} was exported for {self.nr_devices} devices. hint: call it inside `with "
                             f"aot.set_mesh(mesh):` with a mesh of the shape {dict(self.mesh.shape)}")
        return mesh

    # ---- storing ----
    def serialize(self, vjp_order: int = 0) -> bytearray:
        """An artifact of this and of that many derivatives of it.  Raises ValueError for a class in the arguments or results
        that was not registered for this (see `register_pytree_node_serialization`)."""
        return bytearray(artifact.as_bytes(functions_of(self, "call", vjp_order)))


# ---- calls inside of programs ------------------------------------------------------------------------------------------

class CallExported(Primitive):
    """The exported program, as a function of the module that calls it."""
    name = "call_exported"

    def infer(self, *avals, exported, mesh=None): return list(exported.out_avals)
    def shown(self, params): return {"name": params["exported"].fun_name}

    def vmap(self, axis, args, dims, *, exported, mesh=None):
        raise NotImplementedError(f"{exported.fun_name} was exported for arguments of fixed sizes and cannot be mapped. hint: "
                                  "export jit(vmap(f)), or use lax.map")

    def lower(self, e, ins, outs, *xs, exported, mesh=None):
        name = _embed(e.module, exported, mesh)
        types, results = ", ".join(a.mlir for a in ins), ", ".join(a.mlir for a in outs)
        return e.ops(f"func.call @{name}({', '.join(xs)}) : ({types}) -> ({results})", len(outs))


class CallPartitioned(CallExported):
    """The same for a program over several devices, which are those of a mesh."""
    name = "call_exported_partitioned"

    def evaluate(self, args, params):
        from aot.compile.spmd import run_eqn
        return run_eqn(self, args, params)


call_exported_p = CallExported()
call_partitioned_p = CallPartitioned()


def _embed(module: Any, exported: Exported, mesh: Mesh | None) -> str:
    """Write the functions of an exported program into a module, once for a mesh -> the name of the first."""
    platform, unchecked = module.platform, DisabledSafetyCheck.platform() in exported.disabled_safety_checks
    if platform not in exported.platforms and not unchecked:
        raise ValueError(f"{exported.fun_name} was exported for {', '.join(exported.platforms)} and is used on {platform}. "
                         f"hint: export(..., platforms=({platform!r}, ...)), or disable the check when exporting")
    key = (id(exported), mesh)
    if key in module.functions:
        return module.functions[key][0]
    program = mlir.read_module(exported.mlir_module_of(platform if platform in exported.platforms else exported.platforms[0]))
    meshes = {} if mesh is None else _meshes(module, exported.fun_name, mesh, mlir.restore_shardings(program))
    body = re.sub(r"(?m)^\s*sdy\.mesh @\w+ = .*\n", "", _body(str(program)))
    names = meshes | {n: module._unique(exported.fun_name if n == "main" else n)
             for n in re.findall(r"func\.func (?:public |private )?@([\w.$-]+)", body)}
    body = re.sub(r"(?<!custom_call )@([\w.$-]+)", lambda m: f"@{names.get(m[1], m[1])}", body)
    module.text.append(body.replace("func.func public ", "func.func private "))
    module.functions[key] = names["main"], []
    module.keep.append(exported)
    return names["main"]


def _meshes(module: Any, name: str, here: Mesh, stored: dict) -> dict[str, str]:
    """The symbols in a module for the meshes of an exported program, over the devices of the one that it is called with."""
    from aot.ops.spmd import axis_of, mesh_symbol
    mesh_symbol(module, here)
    if module.devices != here.device_tuple:                # the program has positions of devices in it
        raise ValueError(f"{name} is called for the devices {[d.id for d in here.device_tuple]}, in a program over "
                         f"{[d.id for d in module.devices]}. hint: set a mesh with the devices in this order")

    def symbol(axes, ids):
        devices = np.array([here.device_tuple[i] for i in ids or range(here.size)], dtype=object)
        return mesh_symbol(module, Mesh(devices.reshape([n for _, n in axes]), [axis_of(a) for a, _ in axes]))
    return {name: symbol(*mesh) for name, mesh in stored.items()}


def _body(text: str) -> str:
    """What is inside of a module's braces, with the names of attributes replaced by what they stand for."""
    lines = text.rstrip().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("module"))
    body = "\n".join(lines[start + 1:-1]) + "\n"
    for name, value in reversed([line.split(" = ", 1) for line in lines[:start] if line.startswith("#")]):
        body = re.sub(rf"{re.escape(name)}\b", lambda _: value, body)
    return body


__all__ = ["DisabledSafetyCheck", "Exported", "SymbolicScope", "default_export_platform", "deserialize", "export",
           "is_symbolic_dim", "maximum_supported_calling_convention_version", "minimum_supported_calling_convention_version",
           "register_namedtuple_serialization", "register_pytree_node_serialization", "symbolic_args_specs", "symbolic_shape"]
