"""From a program to a graph: one row for each StableHLO operation, in the modules `rows_*`.

A row is a function `row(lower, op, *operands) -> result or list of results`, registered by name with `@row`.  Operands are
Tensors or Complex pairs.  Inside of a region that is applied to whole arrays (a comparator, the body of a reduction) the
operands are arrays although the operation's types are scalar: rows of elementwise operations look at operands alone.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aot.exporters.report import Report
from aot.exporters.stablehlo import Block, Op, Type, Value

from .complex_numbers import PARTS, Complex, Math, constant
from .flatbuffer import TENSOR_TYPES
from .kernels import NoKernel, Profile

ROWS: dict[str, Callable[..., Any]] = {}


def row(*names: str) -> Callable:
    """Register a function as the row of these operations."""
    def register(f: Callable) -> Callable:
        ROWS.update(dict.fromkeys(names, f))
        return f
    return register


class Lowering:
    """Writes the operations of a block to a graph."""

    def __init__(self, graph: Math, report: Report, env: dict[Value, Any] | None = None):
        self.g, self.report = graph, report
        self.env: dict[Value, Any] = {} if env is None else env

    def block(self, block: Block, args: Sequence[Any]) -> list[Any]:
        """The results of a block for these arguments; also the way to apply a scalar region to whole arrays."""
        self.env.update(zip(block.args, args))
        for op in block.ops:
            self.env.update(zip(op.results, self.operation(op)))
        return [self.env[v] for v in block.outputs]

    def apply(self, region: Block, *args: Any) -> list[Any]:
        """A region on arguments, in this graph."""
        return Lowering(self.g, self.report, dict(self.env)).block(region, args)

    def operation(self, op: Op) -> list[Any]:
        """The results of an operation; what cannot be expressed is reported, and zeros stand for it."""
        if op.name == "constant":
            return [self.constant(op)]
        try:
            for v in op.results:
                check_type(v.type, self.g.profile)
            if op.results and all(v.type.size == 0 for v in op.results):
                return [zeros(self.g, v.type) for v in op.results]
            if op.name not in ROWS:
                raise NoKernel("no TFLite operation does this")
            found = ROWS[op.name](self, op, *(self.env[v] for v in op.operands))
            return found if isinstance(found, list) else [found]
        except NoKernel as e:
            self.report.refuse(op, str(e), e.hint)
            whole = next((self.env[v].shape for v in op.operands if v.rank == 0 and self.env[v].rank), None)
            return [zeros(self.g, v.type if whole is None else v.type.with_shape(whole)) for v in op.results]

    def constant(self, op: Op) -> Any:
        try:
            check_type(op.result.type, self.g.profile)
            return constant(self.g, op.attrs["value"])
        except NoKernel as e:
            self.report.refuse(op, str(e), e.hint)
            return zeros(self.g, op.result.type)


def check_type(type: Type, profile: Profile) -> None:
    """Raises NoKernel for types that no tensor of the runtime has."""
    if not type.is_static:
        raise NoKernel("a size is not known", "export with static shapes")
    part = PARTS.get(type.dtype, type.dtype)
    if part.name not in profile.tensors:
        raise NoKernel(f"the runtime does not compute with {type.dtype.name}", "convert to a wider type")
    if type.rank > 8:
        raise NoKernel(f"arrays of the runtime have at most 8 dimensions, not {type.rank}", "merge dimensions with reshape")


def zeros(g: Math, type: Type) -> Any:
    """What stands for a value that is not computed."""
    dtype = type.dtype if type.dtype.name in TENSOR_TYPES or type.dtype in PARTS else np.dtype(np.float32)
    shape = tuple(max(n, 0) for n in type.shape)
    part = PARTS.get(dtype)
    return Complex(g.full(shape, 0, part), g.full(shape, 0, part)) if part else g.full(shape, 0, dtype)
