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
    **dict.fromkeys("""allow_f16_reductions array_garbage_collection_guard auto_pcast check_tracer_leaks
                     debug_infs debug_key_reuse debug_nans default_device default_matmul_precision
                     default_prng_impl disable_jit checking_leaks enable_checks enable_custom_prng enable_x64
                     explain_cache_misses jax2tf_associative_scan_reductions legacy_prng_key log_compiles
                     make_user_context no_execution no_tracing numpy_dtype_promotion numpy_rank_promotion
                     remove_size_one_mesh_axis_from_type softmax_custom_jvp thread_guard
                     threefry_partitionable transfer_guard transfer_guard_device_to_device
                     transfer_guard_device_to_host transfer_guard_host_to_device""".split(), "aot.config"),
    **dict.fromkeys(("Device", "devices", "local_devices", "device_count", "local_device_count", "default_backend",
                     "process_index", "process_indices", "process_count", "host_id", "host_ids", "host_count",
                     "live_arrays", "clear_caches", "print_environment_info"), "aot.environment"),
    **dict.fromkeys(("shard_map", "smap", "pmap", "make_array_from_callback", "make_array_from_single_device_arrays",
                     "make_array_from_process_local_data", "reshard"), "aot.parallel"),
    **dict.fromkeys(("P", "NamedSharding", "make_mesh", "set_mesh"), "aot.sharding"),
    "Shard": "aot.array",
    **dict.fromkeys(("closure_convert", "copy_to_host_async", "ensure_compile_time_eval", "fwd_and_bwd", "named_call",
                     "named_scope"), "aot.transforms.more"),
    "float0": "aot.dtypes",
    "entry": "aot.marks",
    **dict.fromkeys(("Ref", "empty_ref", "free_ref", "freeze", "new_ref"), "aot.ref"),
    "ds": "aot.ops.views",
    **dict.fromkeys(("pure_callback", "effects_barrier"), "aot.callbacks"),
    **dict.fromkeys(("checkpoint", "remat", "checkpoint_policies"), "aot.ad_checkpoint"),
    **dict.fromkeys(("custom_jvp", "custom_vjp", "custom_gradient"), "aot.custom"),
}
_MODULES = tuple("""ad ad_checkpoint api api_util array artifact build cache callbacks core custom custom_batching
                    custom_derivatives debug distributed dlpack dtypes errors example_libraries experimental export
                    extend ffi flatten_util image interpreters lax manifest memory mlir
                    monitoring nn numpy ops profiler project random ref scipy sharding spec
                    stages targets test_util trace tree tree_util typing version xla""".split())


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
