"""Values that compiled functions take."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from aot.dispatch import jit
from aot.trace import Primitive, as_numpy
from aot.trace.aval import _typeof

#: type -> value with the dtype that it has in functions.  A type needs an entry in `core.pytype_aval_mappings` to be taken as
#: an array; numpy converts its values, whatever stands here.
canonicalize_dtype_handlers: dict[type, Callable[[Any], Any]] = dict.fromkeys(_typeof, as_numpy)


def apply_primitive(prim: Primitive, *args: Any, **params: Any) -> Any:
    """What a primitive computes from arrays, by its lowering: for `Primitive.def_impl`."""
    return _program(prim, tuple(params.items()))(*args)


@functools.lru_cache(1024)
def _program(prim: Primitive, params: tuple) -> Callable:
    return jit(functools.partial(prim.bind, **dict(params)))
