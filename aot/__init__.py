"""Ahead-of-time compiler for JAX-style pure functions.  Names and meanings follow JAX's public API.

Importing this package is cheap: submodules load when first used.
"""
from __future__ import annotations

import importlib
from typing import Any

from aot.config import config as config  # the object, not the module, so that `aot.config.update(...)` works

__version__ = "0.1.0"

#: public name -> the module that defines it
_EXPORTS = {
    **dict.fromkeys(("jit", "grad", "value_and_grad", "vjp", "jvp", "linearize", "linear_transpose", "vmap", "jacfwd",
                     "jacrev", "jacobian", "hessian", "make_jaxpr", "eval_shape", "device_put", "device_get",
                     "block_until_ready"), "aot.api"),
    "Array": "aot.array",
    "ShapeDtypeStruct": "aot.trace",
    "typeof": "aot.trace",
    **dict.fromkeys(("enable_x64", "debug_nans", "debug_infs", "disable_jit", "default_matmul_precision",
                     "numpy_rank_promotion", "numpy_dtype_promotion", "debug_key_reuse", "check_tracer_leaks",
                     "threefry_partitionable", "default_prng_impl", "log_compiles"), "aot.config"),
    **dict.fromkeys(("pure_callback", "effects_barrier"), "aot.callbacks"),
    **dict.fromkeys(("checkpoint", "remat", "checkpoint_policies"), "aot.ad_checkpoint"),
    **dict.fromkeys(("custom_jvp", "custom_vjp", "custom_gradient"), "aot.custom"),
}
_MODULES = tuple("""ad_checkpoint api array artifact build callbacks custom debug dlpack dtypes errors experimental
                    flatten_util image lax nn numpy ops random scipy sharding spec stages test_util trace tree tree_util
                    xla""".split())


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is not None:
        value = getattr(importlib.import_module(module), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return importlib.import_module(f"aot.{name}")
    raise AttributeError(f"module 'aot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS, *_MODULES])
