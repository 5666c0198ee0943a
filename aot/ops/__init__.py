"""The primitives, a file a family (not for users: `aot.lax` is), and four public functions with JAX's names.

`segment_sum`, `segment_prod`, `segment_max`, `segment_min` load when first used."""


def __getattr__(name: str):
    if name in ("segment_sum", "segment_prod", "segment_max", "segment_min"):
        import importlib
        return getattr(importlib.import_module("aot.numpy.segments"), name)
    raise AttributeError(f"module 'aot.ops' has no attribute {name!r}")
