"""`jit`: trace once per signature, compile once, then dispatch; and the staged forms trace / lower / compile."""
from __future__ import annotations

import functools
import inspect
import weakref
from typing import Any, Callable, Iterable, Mapping, Sequence

from numpy import bool_, float32, float64, int32, int64, ndarray

from aot import xla
from aot.arguments import Plan, Static, argument_aval, parameter_names, resolve_static
from aot.array import Array, asarray
from aot.config import config, gate
from aot.dtypes import float0
from aot.ops.call import pjit_p
from aot.source import api_boundary, boundaries, hide_internal_frames
from aot.trace import (
    Jaxpr,
    ShapeDtypeStruct,
    Tracer,
    base_trace,
    bind,
    is_live,
    lean,
    pick,
    state,
    typeof,
)
from aot.trace.memo import per_function
from aot.trace.refs import Ref
from aot.traced import Entry, Signature, trace_to_entry, without_float0, without_structs
from aot.tree_util import (
    broadcast_prefix,
    default_registry,
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_structure,
)

_flatten = default_registry.flatten
_all_jitted: weakref.WeakSet = weakref.WeakSet()
_new_array = Array.__new__
#: what needs no flattening, of the values that calls get most
_LEAVES = frozenset((ndarray, bool, int, float, complex, bool_, float32, float64, int32, int64))


class _Raised(Exception):
    """What a function raised when it was traced below jaxlib's call cache: it leaves as it is, and nothing is tried again."""


class PjitFunction:
    """A function compiled per signature.  See `jit`."""
    # not in `__dict__`, which `functools.wraps` copies from one function to another
    __slots__ = ("fun", "name", "inline", "in_shardings", "out_shardings", "sharded", "options", "static_nums", "static_names",
                 "donate_nums", "donate_names", "keep_unused", "plain", "plans", "donates", "entries", "fast", "epoch",
                 "composite", "__dict__", "__weakref__")

    def __init__(self, fun: Callable, static_argnums=(), static_argnames=(), donate_argnums=(), donate_argnames=(),
                 inline: bool = False, keep_unused: bool = False, in_shardings=None, out_shardings=None,
                 compiler_options: Mapping[str, Any] | None = None):
        functools.update_wrapper(self, fun)
        self.in_shardings, self.out_shardings = in_shardings, out_shardings
        self.sharded = in_shardings is not None or out_shardings is not None
        self.options, self.keep_unused = dict(compiler_options or {}), keep_unused
        self.fun, self.name, self.inline = fun, getattr(fun, "__name__", type(fun).__name__), inline
        self.static_nums, self.static_names = resolve_static(fun, static_argnums, static_argnames)
        self.donate_nums, self.donate_names = resolve_static(fun, donate_argnums, donate_argnames)
        if both := self.static_names & self.donate_names or self.static_nums & self.donate_nums:
            raise ValueError(f"jit: the arguments {sorted(both)} are static and donated; a static argument has no buffer to "
                             "donate. hint: name them in one of the two")
        self.plain = not (self.static_nums or self.static_names)
        self.plans: dict[Any, Plan] = {}        # by number of arguments and names of keywords
        self.donates = bool(self.donate_nums or self.donate_names)
        options = (self.static_nums, self.static_names, self.donate_nums, self.donate_names, keep_unused)
        self.entries: dict[Any, Entry] = per_function(fun, (*options, *sorted(self.options.items())))
        self.fast: dict[Any, Any] = {}
        self.epoch: Any = ()        # in which `fast` holds
        self.composite: Callable[[Signature, Entry], Any] | None = None      # says what `Jaxpr.composite` is
        _all_jitted.add(self)

    # ---- calling ----
    def __call__(self, *args, **kwargs):
        try:
            if self.epoch is not gate.ready:
                return self._call_slow(args, kwargs)
            dynamic, key = args, len(args)
            if kwargs or not self.plain:
                key, dynamic = self._divide(args, kwargs)
            buffers = []
            for x in dynamic:
                kind = type(x)
                if kind is Array:
                    buffers.append(x.buf)
                elif kind in _LEAVES:
                    buffers.append(x)
                else:
                    leaves, tree = _flatten(tuple(dynamic))
                    buffers = [x.buf if type(x) is Array else x for x in leaves]
                    key = key, tree
                    break
            try:
                fast = self.fast.get(key)
            except TypeError:       # a static argument without a hash: the slow path says so
                fast = None
            if fast is None:
                return self._call_slow(args, kwargs)
            call, out_tree, donated = fast
            if donated:
                buffers = donated(buffers)
            try:
                outs = call(*buffers)
            except xla.XlaRuntimeError:
                self._refuse_deleted(buffers)
                raise
            except _Raised as e:
                return self._raise(*e.args)
            except Exception:       # types not seen before, or not acceptable: the slow path traces them or says why
                return self._call_slow(args, kwargs)
            if out_tree is None:
                out, = outs
                array = _new_array(Array)       # what Array(out, ..) does, in half the time
                array.buf, array.aval, array._host = out, out.aval.logical, None
                return array
            return out_tree.unflatten([Array(b, b.aval.logical) for b in outs])
        except Exception as e:      # without the frames of this package, of which this is one
            hide_internal_frames(e)
            raise

    @staticmethod
    @api_boundary
    def _raise(exception):
        context = exception.__context__
        try:
            raise exception
        finally:
            exception.__context__ = context     # not `_Raised`

    @staticmethod
    def _refuse_deleted(buffers):
        from aot.compile.eager import refuse_deleted
        refuse_deleted(buffers)

    def _install_fast(self, args, kwargs, entry: Entry, callbacks: Sequence) -> None:
        """Dispatch later calls with this argument structure, and these static arguments, in C++, where that is possible."""
        if gate.ready is None:
            return
        if self.epoch is not gate.ready:
            self.fast.clear()
            self.epoch = gate.ready
        in_tree, static = entry.signature.in_tree, entry.signature.static
        keys = self._fast_keys(args, kwargs)
        if (keys[0] in self.fast or callbacks or config.disable_jit or config.debug_nans or config.debug_key_reuse
                or config.debug_infs):
            return
        from aot.compile import fastpath
        if not fastpath.usable():
            return
        out_tree = entry.out_tree

        def program_for(buffers):
            leaves = [Array(b, b.aval.logical) if type(b) is xla.ArrayImpl else b for b in buffers]
            avals = tuple([typeof(x) for x in leaves])
            # An exception here would make jaxlib ask again at every call with this signature: new ones are traced at once.
            try:
                found = self._entry(Signature(in_tree, avals, static), leaves)
            except Exception as e:
                raise _Raised(e) from None
            if found.out_tree != out_tree or found.mesh_read or found.captured:
                raise KeyError("a signature for the slow path")
            program, kept = self._program(found, leaves)
            if program.callbacks:
                raise KeyError("callbacks: for the slow path")
            placed = program.placed(pick(leaves, kept), pick(avals, kept))
            if any(b is not p and xla.moved_unseen(b, p) for b, p in zip(pick(buffers, kept), placed)):
                raise KeyError("an argument to be laid out anew: for the slow path")
            return program, placed, kept
        call = fastpath.make(self.name, program_for)
        donated = functools.partial(_protect, donated=entry.donated) if any(entry.donated) else None
        fast = call, None if out_tree.num_nodes == out_tree.num_leaves == 1 else out_tree, donated
        self.fast.update(dict.fromkeys(keys, fast))

    def _fast_keys(self, args, kwargs) -> list:
        """The keys of a call in `fast`: with the structure of its arguments, and without where each is one array."""
        key, dynamic = self._divide(args, kwargs) if kwargs or not self.plain else (len(args), args)
        tree = tree_structure(tuple(dynamic))
        return [(key, tree), key] if tree.num_nodes == tree.num_leaves + 1 else [(key, tree)]

    @api_boundary
    def _call_slow(self, args, kwargs):
        if config.disable_jit:
            return self.fun(*args, **kwargs)
        signature, leaves = self._signature(args, kwargs)
        if config.debug_key_reuse:
            from aot.random._reuse import replay
            replay(self._entry(signature, leaves).key_uses, leaves)
        if structs := ShapeDtypeStruct in map(type, leaves):
            leaves = without_structs(self._entry(signature, leaves), leaves, functools.partial(self._describe, args, kwargs))
        if state.trace is base_trace and not any(isinstance(x, (Tracer, Ref)) for x in leaves) and not (
                entry := self._entry(signature, leaves)).captured:          # what it captures there are references
            state.mesh_read = entry.mesh_read
            program, kept = self._program(entry, leaves)
            outs = self._run(entry, program, leaves, kept)
            if not state.axes and not state.mesh_read and not structs:
                self._install_fast(args, kwargs, entry, program.callbacks)
            return outs
        entry = self._entry(signature, leaves)
        if self.in_shardings is not None:
            leaves = _constrained(leaves, self._leaf_shardings(self.in_shardings, signature.in_tree, "in_shardings"))
        outs = bind(pjit_p, *entry.captured, *leaves, jaxpr=entry.jaxpr, name=self.name,
                    **({"inline": True} if self.inline else {}))
        if self.out_shardings is not None:
            outs = _constrained(outs, self._leaf_shardings(self.out_shardings, entry.out_tree, "out_shardings"))
        return entry.out_tree.unflatten(outs)

    def _program(self, entry: Entry, leaves: Sequence) -> tuple[Any, tuple[int, ...] | None]:
        """(the compiled program for one device, or for the devices that shardings and arguments name; which of the arguments
        it takes, see `lean`)."""
        jaxpr, kept = self.lean(entry.jaxpr)
        donated = pick(entry.donated, kept) if entry.donated else ()
        layouts = self.shardings(entry, leaves, kept) if self.sharded or is_partitioned(pick(leaves, kept), jaxpr) else None
        if layouts is not None:
            from aot.compile.spmd import program_of
            return program_of(jaxpr, f"jit_{self.name}", donated, *layouts, **self.options), kept
        if entry.program is None:
            entry.program = compile_entry(entry, jaxpr, donated, **self.options)
        return entry.program, kept

    def lean(self, jaxpr: Jaxpr) -> tuple[Jaxpr, tuple[int, ...] | None]:
        """What is compiled, and which of the inputs that takes."""
        return (jaxpr, None) if self.keep_unused else lean(jaxpr)

    def _run(self, entry: Entry, program, leaves, kept):
        buffers = program.placed(pick(leaves, kept), pick(entry.signature.avals, kept))
        if entry.donated:
            buffers = _protect(buffers, pick(entry.donated, kept))
        outs = program.run(buffers)
        if config.debug_nans or config.debug_infs:
            self._check_finite(entry, outs, leaves)
        return entry.out_tree.unflatten(outs)

    def shardings(self, entry: Entry, leaves: Sequence, kept: tuple[int, ...] | None = None) -> tuple[Sequence, list] | None:
        """(sharding or None of each argument that is kept, the same of each result), or None for a program of one device."""
        ins = self._leaf_shardings(self.in_shardings, entry.signature.in_tree, "in_shardings") or [None] * len(leaves)
        outs = self._leaf_shardings(self.out_shardings, entry.out_tree, "out_shardings") or [None] * len(entry.jaxpr.out_avals)
        ins = pick([s if s is not None else _layout_of(x) for s, x in zip(ins, leaves)], kept)
        from aot.compile.spmd import device_meshes
        default = xla.chosen_device() is None and all(s is None or xla.is_default(s) for s in (*ins, *outs))
        if default and all(xla.is_default_place(m.device_tuple) for m in device_meshes(entry.jaxpr)):
            return None
        return ins, outs

    def _leaf_shardings(self, given, tree, what) -> list | None:
        """One sharding (or None) for each leaf of a tree, from a prefix of it."""
        if given is None:
            return None
        from aot.compile.spmd import resolve
        from aot.layout import Format
        from aot.sharding import PartitionSpec, Sharding
        stop = lambda x: x is None or isinstance(x, (PartitionSpec, Sharding, Format)) or hasattr(x, "platform")
        whole = tree.unflatten([0] * tree.num_leaves)
        if what == "in_shardings":
            whole = whole[0]
            given = given if isinstance(given, tuple) and not stop(given) else (given,) * len(whole)
        return [resolve(s, what) for s in broadcast_prefix(given, whole, is_leaf=stop, name=f"jit {what}")]

    def _check_finite(self, entry, outs, leaves):
        from aot.compile.eager import check_finite
        try:
            check_finite(f"the output of jitted function {self.name}", outs)
        except FloatingPointError:
            args, kwargs = entry.signature.in_tree.unflatten(map(asarray, leaves))
            with config_override("disable_jit", True):
                self._merge_static(entry.signature)(*args, **kwargs)      # finds the operation, and the user's line
            raise

    # ---- signatures ----
    def _signature(self, args, kwargs) -> tuple[Signature, list]:
        dynamic, named, static = self._split(args, kwargs)
        leaves, in_tree = _flatten((dynamic, named))
        avals = [x.aval if type(x) is Array else
                 argument_aval(x, functools.partial(self._describe, args, kwargs, x)) for x in leaves]
        if any(type(x) is ndarray and x.dtype == float0 for x in leaves):
            leaves, in_tree = without_float0(leaves, in_tree)
            avals = [a for a in avals if a.dtype != float0]
        return Signature(in_tree, avals, static), leaves

    def _split(self, args, kwargs):
        if self.plain:
            return args, kwargs, ()
        n = len(args)
        _, fixed, free, fixed_names, names = self._plan(args, kwargs)
        static = [*[(i, Static(args[i], self, i)) for i in fixed], *[(k, Static(kwargs[k], self, k)) for k in fixed_names]]
        return tuple([args[i] for i in free if i < n]), {k: kwargs[k] for k in names}, (n, tuple(static))

    def _divide(self, args, kwargs) -> tuple[Any, Sequence]:
        """(what tells the static arguments of a call from others, the arguments that are not static)."""
        mark, fixed, free, fixed_names, names = self.plans.get((len(args), *kwargs)) or self._plan(args, kwargs)
        dynamic = (*args, *[kwargs[k] for k in names]) if names else args
        if not fixed and not fixed_names:
            return mark, dynamic
        key = [mark]
        if fixed:
            for i in fixed:
                key += args[i], type(args[i])
            dynamic = [dynamic[i] for i in free]
        for k in fixed_names:
            key += kwargs[k], type(kwargs[k])
        return tuple(key), dynamic

    def _plan(self, args, kwargs) -> Plan:
        """Which of the arguments are static, and which are not."""
        n = len(args)
        key = n, *kwargs
        found = self.plans.get(key)
        if found is None:
            fixed = sorted({i + n if i < 0 else i for i in self.static_nums}.intersection(range(n)))
            others = sorted(kwargs.keys() - self.static_names)
            free = sorted({*range(n + len(others))}.difference(fixed))
            found = self.plans[key] = object(), fixed, free, sorted(kwargs.keys() & self.static_names), others
        return found

    def _merge_static(self, signature: Signature) -> Callable:
        """The function of dynamic arguments only."""
        if not signature.static:
            return self.fun

        @functools.wraps(self.fun)
        def call(*dynamic, **named):
            args, kwargs = self.merged(signature, dynamic, named)
            return self.fun(*args, **kwargs)
        return call

    @staticmethod
    def merged(signature: Signature, dynamic: Sequence, named: dict) -> tuple[Sequence, dict]:
        """All arguments, the static ones of a signature among these."""
        if not signature.static:
            return dynamic, named
        n, static = signature.static
        fixed, it = dict(static), iter(dynamic)
        args = [fixed[i].value if i in fixed else next(it) for i in range(n)]
        return args, {**named, **{k: v.value for k, v in fixed.items() if isinstance(k, str)}}

    def _describe(self, args, kwargs, leaf) -> str:
        """Words for the argument that `leaf` is, e.g. `Argument 'params['w']'`."""
        names = parameter_names(self.fun, len(args))
        for i, x in enumerate(args):
            for path, found in tree_flatten_with_path(x)[0]:
                if found is leaf:
                    return f"Argument '{names[i]}{keystr(path)}'"
        for k, x in kwargs.items():
            for path, found in tree_flatten_with_path(x)[0]:
                if found is leaf:
                    return f"Argument '{k}{keystr(path)}'"
        return f"Argument '{leaf}'"

    def _entry(self, signature: Signature, leaves) -> Entry:
        entry = self.entries.get(signature.key)
        if entry is None or not all(is_live(x.owner) for x in entry.captured):
            donated = self._donated(signature, leaves) if self.donates else ()
            before, state.mesh_read = state.mesh_read, False
            entry = trace_to_entry(self._merge_static(signature), signature.in_tree, signature.avals, self.name, donated,
                                   signature)
            entry.mesh_read, state.mesh_read = state.mesh_read, before
            if self.composite is not None:
                entry.jaxpr.composite = self.composite(signature, entry)
            self.entries[signature.key] = entry
        state.mesh_read = state.mesh_read or entry.mesh_read
        return entry

    def _donated(self, signature, leaves) -> tuple[bool, ...]:
        args, kwargs = signature.in_tree.unflatten(range(len(leaves)))
        position = list(range(len(args)))
        if signature.static:
            n, static = signature.static
            fixed = {i for i, _ in static}
            position = [i for i in range(n) if i not in fixed]
        donated: set[int] = set()
        for i, x in zip(position, args):
            if i in self.donate_nums:
                donated.update(i for i in tree_flatten(x)[0] if isinstance(i, int))
        for k, x in kwargs.items():
            if k in self.donate_names:
                donated.update(i for i in tree_flatten(x)[0] if isinstance(i, int))
        return tuple(i in donated for i in range(len(leaves)))

    # ---- stages ----
    @api_boundary
    def trace(self, *args, **kwargs):
        """Trace on arrays or ShapeDtypeStructs -> `Traced`."""
        from aot.stages import Traced
        signature, leaves = self._signature(args, kwargs)
        entry = self._entry(signature, leaves)
        return Traced(self, entry, signature, self.shardings(entry, leaves))

    def lower(self, *args, **kwargs):
        """Trace and lower to StableHLO -> `Lowered`."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args, **kwargs):
        """Output shapes and dtypes without computing."""
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        self.entries.clear()
        self.fast.clear()

    def _cache_size(self) -> int: return len(self.entries)

    def __get__(self, obj, owner=None):
        return self if obj is None else functools.partial(self, obj)

    def __repr__(self): return f"<PjitFunction of {self.fun!r}>"

    def __getattr__(self, name):        # not a property: asked of the class, that would be a signature which is none
        if name == "__signature__":
            return inspect.signature(self.fun)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


boundaries.add(PjitFunction.__call__.__code__)


def _protect(buffers, donated):
    from aot.compile.eager import protect
    return protect(buffers, donated)


def _layout_of(x: Any) -> Any:
    """The sharding that an argument brings along, if it is not the default one."""
    if type(x) is Array:
        return x.placement if xla.is_placed(x.buf) else None
    return x.sharding if type(x) is ShapeDtypeStruct else None


def is_partitioned(leaves: Sequence, jaxpr: Jaxpr) -> bool:
    """Whether a call involves other devices or layouts than the default: by its arguments, or by shardings in the program."""
    for x in leaves:
        if type(x) is Array and xla.is_placed(x.buf):
            return True
    if not xla.several_devices():
        return False
    if xla.chosen_device() is not None:
        return True
    from aot.compile.spmd import device_meshes
    return not all(xla.is_default_place(m.device_tuple) for m in device_meshes(jaxpr))


def _constrained(values: Sequence, shardings: Iterable[Any] | None) -> list:
    """Operands or results of a call within a program, as its shardings ask; one device is no layout there."""
    from aot.ops.spmd import sharding_constraint_p
    bare = [None if s is None else s.bare for s in shardings or [None] * len(values)]
    return [x if s is None or len(s.device_tuple) == 1 else bind(sharding_constraint_p, x, sharding=s)[0]
            for x, s in zip(values, bare, strict=True)]


def compile_entry(entry: Entry, jaxpr: Jaxpr, donated: Sequence[bool], **options: Any):
    """The program of a traced signature: of what is left of its jaxpr and its donated arguments."""
    from aot.compile.eager import compile_jaxpr
    if entry.captured:
        raise RuntimeError("internal: a program that runs captures a tracer")
    if config.log_compiles:
        import logging
        logging.getLogger("aot").warning("Compiling %s for %s", entry.name, entry.jaxpr.in_avals)
    return compile_jaxpr(jaxpr, f"jit_{entry.name}", donated, **options)


def run_jaxpr(jaxpr: Jaxpr, args: Sequence, name: str) -> list:
    """Run a jaxpr on concrete values as one compiled program, kept with the jaxpr."""
    from aot.compile.eager import compile_jaxpr
    jaxpr, kept = lean(jaxpr)
    args = pick(args, kept)
    if is_partitioned(args, jaxpr):
        from aot.compile.spmd import run_jaxpr as run_over_devices
        return run_over_devices(jaxpr, args, jaxpr.in_avals, f"jit_{name}")
    program = jaxpr.memo("program", lambda: compile_jaxpr(jaxpr, f"jit_{name}"))
    return program.run(program.placed(args, jaxpr.in_avals))


def config_override(name, value):
    from aot.config import override
    return override(name, value)


# ---- the public function -----------------------------------------------------------------------------------------

def jit(fun: Callable | None = None, *, in_shardings: Any = None, out_shardings: Any = None,
        static_argnums: int | Sequence[int] | None = None, static_argnames: str | Iterable[str] | None = None,
        donate_argnums: int | Sequence[int] | None = None, donate_argnames: str | Iterable[str] | None = None,
        keep_unused: bool = False, device: Any = None, backend: str | None = None, inline: bool = False,
        compiler_options: dict | None = None) -> Any:
    """Compile fun with XLA, once for each combination of argument shapes, dtypes and static values.

    static_*: arguments that are Python values to the trace (hashable).  donate_*: arguments whose buffers may be
    reused for results.  compiler_options: XLA's debug options by name, for a whole program: they have no effect
    where the call is part of another, or under a transform.
    device, or the first one of backend: where to run; not together with shardings.  keep_unused: also pass arguments that no
    result needs; by default they are neither sent to the device nor donated.
    Usable as a decorator, with or without options.
    """
    if device is not None or backend is not None:
        if in_shardings is not None or out_shardings is not None or None not in (device, backend):
            raise ValueError("jit takes one of device=, backend= and shardings. hint: in_shardings=, out_shardings= say it all")
        in_shardings = out_shardings = device if device is not None else xla.client(backend or "cpu").devices()[0]
    if fun is None:
        return functools.partial(jit, static_argnums=static_argnums, static_argnames=static_argnames,
                                 donate_argnums=donate_argnums, donate_argnames=donate_argnames,
                                 keep_unused=keep_unused, inline=inline, in_shardings=in_shardings,
                                 out_shardings=out_shardings, compiler_options=compiler_options)
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun}")
    if inspect.isgeneratorfunction(fun):
        raise TypeError(f"Expected a function, got a generator function: {fun}")
    return PjitFunction(fun, _tuple(static_argnums), _tuple(static_argnames), _tuple(donate_argnums),
                       _tuple(donate_argnames), inline, keep_unused, in_shardings, out_shardings, compiler_options)


def _tuple(x) -> tuple:
    return () if x is None else (x,) if isinstance(x, (int, str)) else tuple(x)


__all__ = ["PjitFunction", "jit"]
