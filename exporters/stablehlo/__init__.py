"""StableHLO for exporters: reading programs, and simplifying them.

    from aot.exporters import stablehlo
    program = stablehlo.read(Path("model.mlirbc"), keep={"chlo.erf"})     # text, bytes, a path or an MLIR module
    stablehlo.simplify(program)                                           # in place
    for op in program.body.ops:
        op.name, op.operands, op.results, op.attrs, op.regions, op.location

Program, Block, Op, Value, Type, Location: see ir.py.  Attributes are Python values; dimension numbers are the classes of
attributes.py.  Constants are numpy arrays (ml_dtypes for the small types), splats have strides of 0 (`is_splat`).
"""
from __future__ import annotations

from .attributes import ConvDims, DotDims, GatherDims, ScatterDims
from .composites import Composite, Rule, resolve
from .ir import Block, Location, Op, Program, Type, Value
from .reader import bind, constant, read
from .simplify import is_splat, simplify, substitute

__all__ = ["Block", "Composite", "ConvDims", "DotDims", "GatherDims", "Location", "Op", "Program", "Rule", "ScatterDims",
           "Type", "Value", "bind", "constant", "is_splat", "read", "resolve", "simplify", "substitute"]
