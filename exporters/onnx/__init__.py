"""StableHLO programs as ONNX models.

    from aot.exporters import onnx
    exported = onnx.export(Path("model.mlirbc"), opset=21)      # raises Refused with all that ONNX cannot express
    exported.save("model.onnx")

Where to find what: graph.py writes nodes and casts to types that the runtime computes (kernels.py); lowering.py has the
table of rows, one for each StableHLO operation, which the other files fill; model.py puts the model together.
"""
from __future__ import annotations

from .composites import COMPOSITES
from .model import DEFAULT_OPSET, KEEP, MAX_OPSET, MIN_OPSET, Exported, export, save

__all__ = ["COMPOSITES", "DEFAULT_OPSET", "KEEP", "MAX_OPSET", "MIN_OPSET", "Exported", "export", "save"]
