"""Running things: executables as callables, and the eager evaluation of single primitives."""
from __future__ import annotations

import weakref
from itertools import compress
from typing import Any, Iterable, Sequence

import ml_dtypes
import numpy as np

from aot import errors, xla
from aot.array import Array, to_buffer
from aot.compile import cached
from aot.config import Config, config
from aot.lower import lower
from aot.trace import Eqn, Jaxpr, ShapedArray, Tracer, Var, subjaxprs, typeof
from aot.trace.refs import Ref, holders
from aot.transforms.discharge import run_eagerly, without_refs

#: buffers that loaded programs hold as constants, by id
_constants: dict[int, weakref.ref] = {}


def _hold(buffer: Any) -> None:
    i = id(buffer)
    _constants[i] = weakref.ref(buffer, lambda _, constants=_constants: constants.pop(i, None))     # at exit, globals are None


def protect(buffers: Sequence, donated: Sequence[bool]) -> list:
    """Buffers for a call that donates some of them: a copy where a program holds the buffer as a constant.  References that
    hold one get a copy."""
    leave(compress(buffers, donated))
    return _without_constants(buffers, donated)


def leave(buffers: Iterable) -> None:
    """Before these are donated or deleted: what references have in them moves to copies."""
    for ref in holders(buffers):
        if not ref.value.is_deleted():
            ref.hold(Array(_copy(ref.value.buf), ref.value.aval))


def _without_constants(buffers: Sequence, donated: Sequence[bool]) -> list:
    held = _constants
    if not held:
        return list(buffers)
    return [_copy(b) if d and id(b) in held and not b.is_deleted() else b for b, d in zip(buffers, donated)]


def _copy(buffer: Any) -> Any: return xla.put(xla.to_numpy(buffer), buffer.aval, buffer._sharding)


def refuse_deleted(buffers: Sequence) -> None:
    """After a failed call: raise RuntimeError where an argument had been deleted."""
    for b in buffers:
        if type(b) is xla.ArrayImpl and b.is_deleted():
            raise RuntimeError(f"Array has been deleted with shape={b.aval.logical.str_short(False)}. hint: it was donated to "
                               "a jitted function or deleted; use the function's result") from None


class Program:
    """A loaded executable with its output types and hoisted constants."""
    __slots__ = ("executable", "out_avals", "storage", "handlers", "weights", "text", "callbacks")
    layouts: Any = None         # of parameters and results, where there are several devices

    def __init__(self, executable, out_avals: Sequence[ShapedArray], weights: Sequence = (), text: str = "",
                 callbacks: Sequence = ()):
        sharding = xla.default_sharding()
        self.executable, self.out_avals, self.text, self.callbacks = executable, list(out_avals), text, callbacks
        self.storage = [xla.storage(a) for a in out_avals]
        self.handlers = [xla.result_handler(s, sharding) for s in self.storage]
        self.weights = [to_buffer(w, typeof(w), xla.default_device()) for w in weights]
        for w in self.weights:
            _hold(w)

    def placed(self, leaves: Sequence, avals: Sequence[ShapedArray]) -> list:
        """The buffers of arguments."""
        here = xla.default_device()
        return [to_buffer(x, a, here) for x, a in zip(leaves, avals)]

    def run_buffers(self, buffers: list) -> list:
        """Device buffers in, device buffers out."""
        args = self.weights + buffers if self.weights else buffers
        if self.callbacks:
            return self._run_with_callbacks(args)
        try:
            xla.collect_garbage()
            return self.executable.execute_sharded(args).consume_with_handlers(self.handlers)
        except xla.XlaRuntimeError:
            refuse_deleted(args)
            raise

    def _run_with_callbacks(self, args: list) -> list:
        """Wait for the program, so that effects are in order and a callback's exception is the user's own."""
        for c in self.callbacks:
            c.error = None
        try:
            xla.collect_garbage()
            outs = self.executable.execute_sharded(args, with_tokens=True)
            token = outs.consume_token()
            buffers = outs.consume_with_handlers(self.handlers)
            token.block_until_ready()
            for b in buffers:
                b.block_until_ready()
        except xla.XlaRuntimeError:
            for c in self.callbacks:
                if c.error is not None:
                    raise c.error from None
            raise
        return buffers

    def run(self, buffers: list) -> list[Array]:
        """Device buffers in, Arrays out."""
        return [Array(b, a) for b, a in zip(self.run_buffers(buffers), self.out_avals)]


def compile_jaxpr(jaxpr: Jaxpr, name: str, donated: Sequence[bool] = (), **options: Any) -> Program:
    """Lower and compile for the default device, with these options of XLA."""
    jaxpr = without_refs(jaxpr)
    text, weights, callbacks = lower(jaxpr, name, donated)
    return Program(cached.compile_text(text, host_callbacks=callbacks, **options), jaxpr.out_avals, weights, text, callbacks)


def run_donating(jaxpr: Jaxpr, args: Sequence, given: Sequence[int], copied: Sequence[int], name: str) -> list[Array]:
    """Run a jaxpr on concrete values as one program, which may use the memory of those at `given` for its results.

    copied: of which a copy is given."""
    donated = [i in given for i in range(len(args))]
    program = jaxpr.memo(("donating", tuple(given)), lambda: compile_jaxpr(jaxpr, f"jit_{name}", donated))
    buffers = program.placed(args, jaxpr.in_avals)
    for i in copied:
        buffers[i] = _copy(buffers[i])
    return program.run(_without_constants(buffers, donated))


# ---- eager -------------------------------------------------------------------------------------------------------

_programs: dict[Any, dict] = {}         # the options that a trace depends on -> operation and types -> its program
_recent: tuple[Any, dict, bool] = (None, {}, False)  # the member of _programs used last, whether results are checked
_scalars: dict[Any, tuple] = {}         # a scalar -> its type and its copy on the device
_CAPACITY = 8192

#: scalar types whose equal values are the same value but for the sign of zero
_SIMPLE = frozenset((bool, int, float, np.bool_, np.float16, np.float32, np.float64, ml_dtypes.bfloat16,
                     *(np.dtype(f"{u}int{n}").type for u in ("", "u") for n in (8, 16, 32, 64))))


def evaluate(prim, args: Sequence, params: dict) -> list:
    """Run one primitive on concrete values."""
    avals, buffers = [], []
    for x in args:
        if type(x) is Array:
            avals.append(x.aval)
            buffers.append(x.buf)
        else:
            if type(x) is Ref:
                return run_eagerly(prim, args, params)
            a, buffer = _operand(x)
            avals.append(a)
            buffers.append(buffer)
    if prim.evaluate is not None:
        return prim.evaluate(args, params)
    if xla.may_be_placed() and (any(map(xla.is_placed, buffers)) or xla.chosen_device() is not None):
        from aot.compile.spmd import run_eqn
        return run_eqn(prim, args, params)
    now, recent = config._key, _recent
    if now is None or now[0] != Config._version or recent[0] is not now[1]:
        recent = _options_changed()
    _, programs, checks = recent
    key = (prim, *avals, *params.items()) if params else (prim, *avals)
    program = programs.get(key)
    if program is None:
        program = _program(key, programs, prim, avals, params)
    outs = [Array(b, a) for b, a in zip(program.run_buffers(buffers), program.out_avals)]
    if checks:
        check_finite(prim.name, outs)
    return outs


def _program(key: tuple, programs: dict, prim, avals, params) -> Program:
    """A new program; where the operation runs jaxprs it is kept with them, so that it goes when one of them goes."""
    if jaxprs := list(subjaxprs(params)):
        plain = [(k, v) for k, v in params.items() if not any(subjaxprs({k: v}))]
        programs, key = _programs_of(*jaxprs), (prim, *avals, *plain, config.trace_key())
        if key not in programs:
            programs[key] = _compile(prim, avals, params)
        return programs[key]
    program = programs[key] = _compile(prim, avals, params)
    if len(programs) > _CAPACITY:
        programs.pop(next(iter(programs)))
    return program


def _programs_of(jaxpr: Jaxpr, *others: Jaxpr) -> dict:
    """The programs of operations that run exactly these jaxprs."""
    tables = jaxpr.memo(("eager", len(others)), weakref.WeakKeyDictionary)
    for j in others[:-1]:
        tables = tables.setdefault(j, weakref.WeakKeyDictionary())
    return tables.setdefault((others or (jaxpr,))[-1], {})


def _options_changed() -> tuple[Any, dict, bool]:
    """The new `_recent`.  The tuple of options is another object after every change of any option."""
    global _recent
    options = config.trace_key()
    recent = _recent = options, _programs.setdefault(options, {}), config.debug_nans or config.debug_infs
    return recent


def _operand(x: Any) -> tuple[ShapedArray, Any]:
    """The type and the buffer of a value that is not an Array.  Scalars are sent to the device once."""
    if type(x) not in _SIMPLE:
        if isinstance(x, Tracer):
            raise errors.UnexpectedTracerError(x)
        a = typeof(x)
        return a, to_buffer(x, a)
    key = (type(x), x if x else str(x), config.enable_x64, config.default_device)
    found = _scalars.get(key)
    if found is None:
        a = typeof(x)
        found = _scalars[key] = a, to_buffer(x, a)
        if len(_scalars) > _CAPACITY // 4:
            _scalars.pop(next(iter(_scalars)))
    return found


def _compile(prim, avals, params) -> Program:
    ins = [Var(a) for a in avals]
    outs = [Var(a) for a in prim.infer(*avals, **params)]
    return compile_jaxpr(Jaxpr(list(ins), [Eqn(prim, list(ins), outs, params)], list(outs)), prim.name)


def check_finite(what: str, outs: Sequence[Array]) -> None:
    """Raise FloatingPointError where debug_nans or debug_infs asks for it."""
    for x in outs:
        if isinstance(x.dtype, np.dtype) and np.issubdtype(x.dtype, np.inexact):
            v = x._value
            if config.debug_nans and np.isnan(v).any():
                raise FloatingPointError(f"invalid value (nan) encountered in {what}")
            if config.debug_infs and np.isinf(v).any():
                raise FloatingPointError(f"invalid value (inf) encountered in {what}")


def check_contents(what: str, value: Array) -> None:
    """`check_finite` of what was written to a reference."""
    if config.debug_nans or config.debug_infs:
        check_finite(f"what {what} wrote to a reference", [value])


def clear_caches() -> None:
    """Forget every compiled eager operation."""
    global _recent
    _programs.clear()
    _scalars.clear()
    _recent = None, {}, False
