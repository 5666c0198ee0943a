"""The stages between a function and its executable: Traced, Lowered, Compiled."""
from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Iterable, Protocol, Sequence, runtime_checkable

import numpy as np

from aot import dtypes, mlir, xla
from aot.array import Array
from aot.sharding import SingleDeviceSharding
from aot.trace import ClosedJaxpr, hoist_consts, is_tracer, lean, pick, typeof
from aot.trace.refs import AbstractRef, is_ref
from aot.traced import described, without_float0
from aot.transforms.discharge import on_contents
from aot.tree_util import keystr, tree_flatten, tree_flatten_with_path


@dataclass(frozen=True)
class ArgInfo:
    """What is known of one argument: shape and dtype, and whether its buffer may be reused."""
    shape: tuple[int, ...]
    dtype: Any
    donated: bool


CompilerOptions = dict[str, str | bool]      # XLA's debug options by name


@runtime_checkable
class Wrapped(Protocol):
    """A function that has been given to `jit`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def trace(self, *args: Any, **kwargs: Any) -> Traced: ...
    def lower(self, *args: Any, **kwargs: Any) -> Lowered: ...


def arguments_info(stage: Any) -> Any:
    """(of the positional arguments, of the named ones), in their structure."""
    donated = stage.donated or (False,) * len(stage.in_avals)
    return stage.in_tree.unflatten([ArgInfo(a.shape, a.dtype, d) for a, d in zip(stage.in_avals, donated)])


class Traced:
    """A function traced on one signature.  shardings: those of arguments and results of a program over several devices.

    lean: what is compiled; kept: the positions of the arguments that this takes, see `trace.lean`."""

    def __init__(self, owner, entry, signature, shardings: tuple[Sequence, Sequence] | None = None):
        self.owner, self.entry, self.signature, self.shardings = owner, entry, signature, shardings
        self.in_tree, self.out_tree = signature.in_tree, entry.out_tree
        self.in_avals, self.fun_name, self.donated = list(signature.avals), owner.name, entry.donated
        self.pure, self.written = on_contents(entry.jaxpr)
        if self.written and shardings is not None:
            raise NotImplementedError(f"{owner.name} writes into references, and is a program over several devices. "
                                      "hint: call it; it is not compiled ahead of time")
        self.lean, self.kept = (self.pure, None) if self.refs or entry.captured else owner.lean(self.pure)

    def keeping(self, always: Iterable[int]) -> Traced:
        """The same, where the program takes the arguments at these positions, whether they have a use or not."""
        other = copy.copy(self)
        if self.refs is None and not self.entry.captured:
            other.lean, other.kept = lean(self.pure, always)
        return other

    args_info = property(arguments_info)

    @property
    def jaxpr(self) -> ClosedJaxpr:
        return hoist_consts(self.entry.jaxpr, self.entry.captured)

    out_avals = property(lambda self: self.entry.jaxpr.out_avals)

    @property
    def out_info(self) -> Any:
        return described(self.out_tree, self.out_avals)

    @property
    def refs(self) -> tuple | None:
        """(references that the function closes over, the program on contents, which inputs it writes), where there are any."""
        held = any(type(a) is AbstractRef for a in self.entry.jaxpr.in_avals)
        return (self.entry.captured, self.pure, self.written) if held else None

    def lasting(self) -> Traced:
        """This.  Raises NotImplementedError where it has references to arrays of this process."""
        if self.refs is None:
            return self
        raise NotImplementedError(f"{self.fun_name} takes a reference, or closes over one, which a program that outlives this "
                                  "process cannot. hint: take the contents as an argument, make the reference in the function, "
                                  "and return freeze(ref)")

    @property
    def _platform(self) -> str:
        """That of the program's devices, where these are not here."""
        if self.shardings is None:
            return "cpu"
        from aot.compile.spmd import common_mesh
        first = common_mesh(self.entry.jaxpr, [s for group in self.shardings for s in group or ()]).device_tuple[0]
        return first.platform if xla.is_absent(first) else "cpu"

    def lower(self, *, lowering_platforms: Sequence[str] | None = None) -> Lowered:
        """The StableHLO module.  lowering_platforms: ("cpu",), ("cuda",), ("rocm",) or ("tpu",), which chooses the branches of
        `lax.platform_dependent`; by default the processor's."""
        platforms = tuple(lowering_platforms or (self._platform,))
        if len(platforms) != 1 or platforms[0] not in PLATFORMS:
            raise NotImplementedError(f"lowering_platforms={platforms!r} is not supported. "
                                      f"hint: lower for one platform at a time, of {', '.join(PLATFORMS)}")
        return Lowered(self, platforms[0])


PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


class Lowered:
    """A StableHLO module.  `@main` takes the hoisted constants `consts` first, then the flat inputs that are kept."""

    def __init__(self, traced: Traced, platform: str):
        self.traced, self.platform, self.mesh, self.kept = traced, platform, None, traced.kept
        self.shardings = traced.shardings and (pick(traced.shardings[0], self.kept), traced.shardings[1])
        self.text, self._consts, self.callbacks = self._lower()
        self.in_tree, self.out_tree = traced.in_tree, traced.out_tree
        self.in_avals, self.out_avals = traced.in_avals, traced.out_avals
        self.donated = traced.entry.donated or (False,) * len(self.in_avals)

    args_info = property(arguments_info)

    refs = property(lambda self: self.traced.refs)

    def _lower(self, **options: Any) -> tuple[str, list, list]:
        entry, name = self.traced.entry, f"jit_{self.traced.fun_name}"
        donated = pick([False] * len(entry.captured) + [*entry.donated], self.kept) if entry.donated else ()
        if self.shardings is None:
            from aot.lower import lower
            return lower(self.traced.lean, name, donated, platform=self.platform, **options)
        from aot.compile.spmd import lower
        text, weights, callbacks, self.mesh = lower(self.traced.lean, name, donated, *self.shardings, platform=self.platform,
                                                    **options)
        return text, weights, callbacks

    out_info = property(lambda self: self.traced.out_info)
    fun_name = property(lambda self: self.traced.fun_name)

    @property
    def consts(self) -> list:
        """The hoisted constants as numpy arrays."""
        return [x._value if type(x) is Array else x for x in self._consts]

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """The module as text in the dialect "stablehlo", with source locations when debug_info, or "hlo"."""
        if debug_info and dialect in (None, "stablehlo"):
            return self.located_text()
        module = self.compiler_ir(dialect)
        return module.as_hlo_text() if dialect == "hlo" else str(module)

    def located_text(self, root: str | None = None) -> str:
        """The module with each operation's source line, relative to root."""
        return self._lower(locations=True, root=root)[0]

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """The module as jaxlib's object: an MLIR module for "stablehlo", an XlaComputation for "hlo".  Raises ValueError for
        another dialect."""
        if dialect not in (None, "stablehlo", "hlo"):
            raise ValueError(f"unknown dialect: {dialect}. hint: use 'stablehlo' or 'hlo'")
        return mlir.computation(self.text) if dialect == "hlo" else mlir.parse(self.text)

    def cost_analysis(self) -> dict:
        """XLA's estimate for the program as written, without compiling it: flops, bytes accessed, ..."""
        return mlir.cost_analysis(self.text)

    def compile(self, compiler_options: dict | None = None, *, device_assignment: Sequence[Any] | None = None) -> Compiled:
        """Compile for this process's device.  compiler_options: XLA debug options by name, on top of jit's.

        Raises NotImplementedError for a device_assignment other than the devices that the program was lowered for."""
        if device_assignment is not None and tuple(device_assignment) != (
                (xla.default_device(),) if self.mesh is None else tuple(self.mesh.device_tuple)):
            raise NotImplementedError(f"compile(device_assignment={device_assignment!r}) is not supported: these are not the "
                                      "devices that the program was lowered for. hint: put the arguments on these devices, or "
                                      "give shardings over them to jit, and lower again")
        from aot.compile import cached, spmd
        from aot.compile.eager import Program
        absent = self.mesh is not None and xla.is_absent(self.mesh.device_tuple[0])
        if self.platform != "cpu" and not absent:
            raise NotImplementedError(f"lowered for {self.platform}, which this process does not have. "
                                      "hint: `aot compile --target` builds for machines that are not here")
        compiler_options = {**getattr(self.traced.owner, "options", {}), **(compiler_options or {})} or None
        options = compiler_options or {}
        if self.mesh is not None and self.shardings is not None:
            executable = spmd.compile_text(self.text, self.mesh.device_tuple, self.callbacks, len(self._consts),
                                           len(self.out_avals), **options)
            program = spmd.load(executable, self.traced.lean.in_avals, self.out_avals, self.mesh, *self.shardings, self._consts,
                                self.callbacks)
            return Compiled(self, program, compiler_options)
        executable = cached.compile_text(self.text, host_callbacks=self.callbacks, **options)
        program = Program(executable, self.traced.lean.out_avals, self._consts, self.text, self.callbacks)
        return Compiled(self, program, compiler_options)


class Compiled:
    """An executable.  Call it with arguments of exactly the types that were traced."""

    def __init__(self, lowered: Any, program: Any, options: dict | None = None):
        self.lowered, self.program, self.options = lowered, program, options
        self.in_tree, self.out_tree = lowered.in_tree, lowered.out_tree
        self.in_avals, self.out_avals = lowered.in_avals, lowered.out_avals

    executable = property(lambda self: self.program.executable)
    args_info = property(lambda self: self.lowered.args_info)
    out_info = property(lambda self: self.lowered.out_info)

    @property
    def input_shardings(self) -> Any:
        """(shardings of the positional arguments, of the named ones), in their structure; None for one that is not used."""
        return self.in_tree.unflatten([f and f.sharding for f in self._formats[0]])

    @property
    def output_shardings(self) -> Any:
        """Shardings in the structure of the result."""
        return self.out_tree.unflatten([f.sharding for f in self._formats[1]])

    @property
    def input_formats(self) -> Any:
        """(formats of the positional arguments, of the named ones), in their structure; None for one that is not used."""
        return self.in_tree.unflatten(self._formats[0])

    @property
    def output_formats(self) -> Any:
        """Formats in the structure of the result."""
        return self.out_tree.unflatten(self._formats[1])

    @property
    def _formats(self) -> tuple[list, list]:
        ins, outs = self._program_formats
        kept = self.lowered.kept
        if kept is not None:
            given = dict(zip(kept, ins))
            ins = [given.get(i) for i in range(len(self.in_avals))]
        return ins, outs

    @property
    def _program_formats(self) -> tuple[list, list]:
        from aot.layout import Format, Layout
        if self.lowered.mesh is not None and xla.is_absent(self.lowered.mesh.device_tuple[0]):
            return ([Format(None, s.bare) for s in self.program.in_shardings],
                    [Format(None, s.bare) for s in self.program.out_shardings])
        single = SingleDeviceSharding(xla.default_device())
        given = pick(self.in_avals, self.lowered.kept)
        shardings = ([[single] * len(given), [single] * len(self.out_avals)] if self.lowered.mesh is None else
                     [self.program.in_shardings, self.program.out_shardings])
        orders = xla.layouts(self.program.executable, len(self.program.weights))
        ins, outs = ([Format(Layout.parse(o, a.ndim), s.bare) for s, o, a in zip(ss, os, avals)]
                     for ss, os, avals in zip(shardings, orders, (given, self.out_avals)))
        return ins, outs

    def runtime_executable(self) -> Any: return self.program.executable
    def as_text(self) -> str: return self.program.executable.hlo_modules()[0].to_string()
    def memory_analysis(self) -> Any: return self.program.executable.get_compiled_memory_stats()

    def cost_analysis(self) -> dict:
        """XLA's estimate: flops, bytes accessed, ..."""
        found = self.program.executable.cost_analysis()
        return found[0] if isinstance(found, (list, tuple)) else found

    def __call__(self, *args, **kwargs):
        leaves, tree = tree_flatten((args, kwargs))
        if any(type(x) is np.ndarray and x.dtype == dtypes.float0 for x in leaves):
            leaves, tree = without_float0(leaves, tree)
        if tree != self.in_tree:
            raise TypeError(f"Function compiled with input pytree does not match the input pytree it was called with. "
                            f"Compiled for {self.in_tree}, called with {tree}. hint: static arguments are not passed")
        if any(map(is_tracer, leaves)):
            raise TypeError("Cannot apply JAX transformations to a function lowered and compiled for a particular signature. "
                            "hint: transform the function first, then lower and compile the result")
        for i, (x, a) in enumerate(zip(leaves, self.in_avals)):
            got = typeof(x)
            if got.shape != a.shape or got.dtype != a.dtype or type(got) is not type(a):
                path = keystr(tree_flatten_with_path((args, kwargs))[0][i][0])
                raise TypeError(f"Argument types differ from the types for which this computation was compiled: "
                                f"argument {path}: compiled for {a.str_short()}, called with {got.str_short()}")
        if refs := getattr(self.lowered, "refs", None):
            return self._run_on_contents(leaves, *refs)
        kept = self.lowered.kept
        buffers = self.program.placed(pick(leaves, kept), pick(self.in_avals, kept))
        if any(self.lowered.donated):
            from aot.compile.eager import protect
            buffers = protect(buffers, pick(self.lowered.donated, kept))
        outs = self.program.run(buffers)
        return self.out_tree.unflatten(outs)

    def _run_on_contents(self, leaves: Sequence, captured: Sequence, pure: Any, written: Sequence[int]) -> Any:
        """A call with references, or of a function that closes over some."""
        operands = [*captured, *leaves]
        values = [x.value if is_ref(x) else x for x in operands]
        outs = self.program.run(self.program.placed(values, pure.in_avals))
        for i, new in zip(written, outs[len(self.out_avals):]):
            operands[i].hold(new)
        return self.out_tree.unflatten(outs[:len(self.out_avals)])
