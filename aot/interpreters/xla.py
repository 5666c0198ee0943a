"""Values that compiled functions take."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aot.trace import as_numpy
from aot.trace.aval import _typeof

#: type -> value with the dtype that it has in functions.  A type needs an entry in `core.pytype_aval_mappings` to be taken as
#: an array; numpy converts its values, whatever stands here.
canonicalize_dtype_handlers: dict[type, Callable[[Any], Any]] = dict.fromkeys(_typeof, as_numpy)
