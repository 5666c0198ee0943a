"""Positions of operations in the user's program."""
from __future__ import annotations

from aot.source import recorded_frame as current
from aot.source import register_internal as register_exclusion
from aot.source import where as summarize

__all__ = ["current", "register_exclusion", "summarize"]
