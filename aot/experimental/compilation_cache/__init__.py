"""The persistent cache of `jit`: see `compilation_cache`."""
