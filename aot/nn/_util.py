"""Argument handling shared by the files of `aot.nn`."""
from __future__ import annotations

from typing import Any

from aot.numpy import _util


def inexact(name: str, *args: Any) -> Any:
    """Arguments as arrays of one float or complex dtype; TypeError, naming the function, for what is no array."""
    out = [_util.array_of(x) for x in _util.promote_args(name, *args, to=_util.inexact)]
    return out[0] if len(out) == 1 else out
