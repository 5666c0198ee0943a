"""StableHLO to C: one source file and a header, without dependencies but libm.

    from aot.exporters import c
    c.export(program_text).source          # the text of a .c file, or Refused
"""
from __future__ import annotations

from .export import KEEP, Exported, export

__all__ = ["KEEP", "Exported", "export"]
