"""Running things: executables as callables, and the eager evaluation of single primitives."""
from __future__ import annotations

import weakref
from typing import Any, Sequence

import numpy as np

from aot import errors, xla
from aot.array import Array, to_buffer
from aot.compile import cached
from aot.config import config
from aot.lower import lower
from aot.trace import Eqn, Jaxpr, ShapedArray, Tracer, Var, typeof

#: buffers that loaded programs hold as constants, by id
_constants: weakref.WeakValueDictionary = weakref.WeakValueDictionary()


def protect(buffers: Sequence, donated: Sequence[bool]) -> list:
    """Buffers for a call that donates some of them: a copy where a program holds the buffer as a constant."""
    return [xla.put(xla.to_numpy(b), b.aval, b._sharding) if d and id(b) in _constants and not b.is_deleted() else b
            for b, d in zip(buffers, donated)]


def refuse_deleted(buffers: Sequence) -> None:
    """After a failed call: raise RuntimeError where an argument had been deleted."""
    for b in buffers:
        if type(b) is xla.ArrayImpl and b.is_deleted():
            raise RuntimeError(f"Array has been deleted with shape={b.aval.logical.str_short(False)}. hint: it was donated to "
                               "a jitted function or deleted; use the function's result") from None


class Program:
    """A loaded executable with its output types and hoisted constants."""
    __slots__ = ("executable", "out_avals", "storage", "handlers", "weights", "text", "callbacks")

    def __init__(self, executable, out_avals: Sequence[ShapedArray], weights: Sequence = (), text: str = "",
                 callbacks: Sequence = ()):
        sharding = xla.default_sharding()
        self.executable, self.out_avals, self.text, self.callbacks = executable, list(out_avals), text, callbacks
        self.storage = [xla.storage(a) for a in out_avals]
        self.handlers = [xla.result_handler(s, sharding) for s in self.storage]
        self.weights = [to_buffer(w, typeof(w)) for w in weights]
        _constants.update((id(w), w) for w in self.weights)

    def run_buffers(self, buffers: list) -> list:
        """Device buffers in, device buffers out."""
        args = self.weights + buffers if self.weights else buffers
        if self.callbacks:
            return self._run_with_callbacks(args)
        try:
            return self.executable.execute_sharded(args).consume_with_handlers(self.handlers)
        except xla.XlaRuntimeError:
            refuse_deleted(args)
            raise

    def _run_with_callbacks(self, args: list) -> list:
        """Wait for the program, so that effects are in order and a callback's exception is the user's own."""
        for c in self.callbacks:
            c.error = None
        try:
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


def compile_jaxpr(jaxpr: Jaxpr, name: str, donated: Sequence[bool] = ()) -> Program:
    """Lower and compile for the default device."""
    text, weights, callbacks = lower(jaxpr, name, donated)
    return Program(cached.compile_text(text, host_callbacks=callbacks), jaxpr.out_avals, weights, text, callbacks)


# ---- eager -------------------------------------------------------------------------------------------------------

_programs: dict[Any, Program] = {}
_CAPACITY = 8192


def evaluate(prim, args: Sequence, params: dict) -> list:
    """Run one primitive on concrete values."""
    avals, buffers, several = [], [], False
    for x in args:
        if type(x) is Array:
            avals.append(x.aval)
            buffers.append(x.buf)
            several = several or xla.is_multi_device(x.buf)
        elif isinstance(x, Tracer):
            raise errors.UnexpectedTracerError(x)
        else:
            a = typeof(x)
            avals.append(a)
            buffers.append(to_buffer(x, a))
    direct = getattr(prim, "evaluate", None)
    if direct is not None:
        return direct(args, params)
    if several:
        from aot.compile.spmd import run_eqn
        return run_eqn(prim, args, params)
    key = (prim, tuple(avals), tuple(params.items()), config.trace_key())
    program = _programs.get(key)
    if program is None:
        program = _programs[key] = _compile(prim, avals, params)
        if len(_programs) > _CAPACITY:
            _programs.pop(next(iter(_programs)))
    outs = program.run(buffers)
    if config.debug_nans or config.debug_infs:
        check_finite(prim.name, outs)
    return outs


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


def clear_caches() -> None:
    """Forget every compiled eager operation."""
    _programs.clear()
