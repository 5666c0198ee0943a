"""StableHLO to TFLite.

    from aot.exporters import tflite
    tflite.export(program_text).data          # bytes of a .tflite file, or Refused
"""
from __future__ import annotations

from .export import COMPOSITES, KEEP, Exported, export
from .quantize import VERIFICATION

__all__ = ["COMPOSITES", "KEEP", "VERIFICATION", "Exported", "export"]
