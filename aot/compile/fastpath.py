"""Calls dispatched in C++: argument signatures, transfers and execution without Python in between.

jaxlib's call cache has process-wide settings that belong to jax once jax is loaded, so it is used only in processes
without jax, also where `jax` is this package (aot/as_jax.py); elsewhere the Python dispatcher does the same work.
"""
from __future__ import annotations

import sys
from collections import namedtuple
from functools import cache
from typing import Any, Callable

from aot import xla
from aot.array import Array
from aot.compile.spmd import place
from aot.config import config
from aot.trace import typeof

Call = namedtuple("Call", "xla_executable out_pytree_def in_shardings out_shardings out_avals out_committed "
                          "kept_var_bitvec in_device_local_layouts const_args")


class _Unique:
    """A cache key equal only to itself."""
    __hash__ = object.__hash__

    def __eq__(self, other): return self is other


@cache
def _settings() -> Any:
    """Install the three settings that the C++ side requires -> the one for 64-bit types."""
    make = xla.ext.config.Config
    x64 = make("aot_enable_x64", False)
    xla.ext.jax_jit.set_enable_x64_state(x64)
    xla.ext.jax_jit.set_disable_jit_state(make("aot_disable_jit", False))
    xla.ext.jax_jit.set_post_hook_state(make("aot_post_hook", None))
    return x64


@cache
def _call_cache() -> Any:
    return xla.ext.PjitFunctionCache(capacity=4096)


@cache
def _out_tree(n: int) -> Any:
    return xla.pytree.PyTreeRegistry().flatten(tuple(range(n)))[1]


def usable() -> bool:
    return "jax" not in sys.modules or "aot.as_jax" in sys.modules


def _placed(x, sharding, layout):
    """An argument that is not on the devices that the program wants it on, or not in that layout."""
    if not hasattr(sharding, "logical"):
        raise TypeError(f"cannot transfer a value of type {type(x)} to the device")
    if type(x) is not xla.ArrayImpl:
        return place(x, typeof(x), sharding.logical)
    return x if x._sharding is sharding else place(Array(x, x.aval.logical), x.aval.logical, sharding.logical)


def make(name: str, program_for: Callable[[tuple], Any]) -> Callable:
    """A function of flat buffers, numpy arrays and Python numbers -> tuple of buffers.

    program_for(args) gives the program for arguments whose types and layouts are seen for the first time, the buffers that
    it takes, and the positions of these among the arguments (None: all)."""
    x64 = _settings()
    x64.set_local(config.enable_x64)
    sharding = xla.default_sharding()

    def miss(*args):
        program, buffers, kept = program_for(args)
        outs = tuple(program.run_buffers(buffers))
        n, weights = len(buffers) + len(program.weights), program.weights
        taken = set(range(len(args)) if kept is None else kept)
        passed = [True] * len(weights) + [i in taken for i in range(len(args))]
        ins, results = program.layouts or ([sharding] * n, [sharding] * len(outs))
        call = Call(program.executable, _out_tree(len(outs)), ins, results, program.storage, [True] * len(outs), passed,
                    [None] * n, weights)
        return outs, call, False
    return xla.ext.pjit(name, None, miss, [], [], _Unique(), xla.default_registry(), _placed, _call_cache())
