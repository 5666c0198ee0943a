"""The persistent cache of `jit`, under the names of JAX's module."""
from __future__ import annotations

import os

from aot import cache
from aot.config import config


def set_cache_dir(path: str | os.PathLike) -> None:
    """Keep compiled programs in this directory from now on."""
    config.update("compilation_cache_dir", os.fspath(path))


def is_initialized() -> bool:
    """Whether a directory is set and the cache is enabled."""
    return cache.active() is not None


def reset_cache() -> None:
    """Forget the cache object: the directory is opened again at the next compilation.  Removes nothing."""
    cache._active = (), None
