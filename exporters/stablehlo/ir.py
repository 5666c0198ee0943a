"""The program that exporters read: values, operations and blocks as plain Python objects, without MLIR behind them.

A program is one block: calls are inlined, tuples are taken apart, tokens are gone.  Every operation keeps its StableHLO
name (`add`, `dot_general`) or, from other dialects, its full one (`chlo.erf`), and its place in the user's source.
"""
from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Type:
    """The type of a value.  shape: a size of -1 is unknown; dtype: numpy's or ml_dtypes'."""
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def rank(self) -> int: return len(self.shape)

    @property
    def size(self) -> int: return math.prod(self.shape)

    @property
    def is_static(self) -> bool: return all(n >= 0 for n in self.shape)

    def with_shape(self, shape: tuple[int, ...]) -> Type: return Type(tuple(shape), self.dtype)

    def with_dtype(self, dtype: Any) -> Type: return Type(self.shape, np.dtype(dtype))

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join('?' if n < 0 else str(n) for n in self.shape)}]"


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the user's program; file is empty where it is not known."""
    file: str = ""
    line: int = 0
    function: str = ""

    def __str__(self) -> str:
        if not self.file:
            return ""
        return f"{self.file}:{self.line}" + (f" ({self.function})" if self.function else "")


class Value:
    """What an operation computes or a block is given.  op: its operation, None for an argument of a block."""
    __slots__ = ("type", "op", "index")

    def __init__(self, type: Type, op: Op | None = None, index: int = 0):
        self.type, self.op, self.index = type, op, index

    @property
    def shape(self) -> tuple[int, ...]: return self.type.shape

    @property
    def dtype(self) -> np.dtype: return self.type.dtype

    @property
    def rank(self) -> int: return len(self.type.shape)

    @property
    def constant(self) -> np.ndarray | None:
        """The array of a `constant` operation (read-only; a splat has strides of 0), None for other values."""
        return self.op.attrs["value"] if self.op is not None and self.op.name == "constant" else None

    def __repr__(self) -> str: return f"<{self.op.name if self.op else 'argument'} {self.type}>"


class Op:
    """One operation.

    attrs: attribute name -> Python value: int, float, bool, str, tuple of them, ndarray, dict, or one of the
    dimension numbers of attributes.py.  regions: nested blocks, which may use values of the blocks around them.
    """
    __slots__ = ("name", "operands", "attrs", "regions", "results", "location")

    def __init__(self, name: str, operands: list[Value], types: list[Type], attrs: dict[str, Any] | None = None,
                 regions: list[Block] | None = None, location: Location = Location()):
        self.name, self.operands, self.attrs = name, operands, attrs or {}
        self.regions, self.location = regions or [], location
        self.results = [Value(t, self, i) for i, t in enumerate(types)]

    @property
    def result(self) -> Value: return self.results[0]

    @property
    def shape(self) -> tuple[int, ...]: return self.results[0].type.shape

    @property
    def dtype(self) -> np.dtype: return self.results[0].type.dtype

    def __repr__(self) -> str:
        return f"<{self.name} ({', '.join(str(v.type) for v in self.operands)}) -> " \
               f"({', '.join(str(v.type) for v in self.results)})>"


@dataclass(eq=False)
class Block:
    """Operations in an order that defines before use.  args: what it is given; outputs: what it returns."""
    args: list[Value]
    ops: list[Op] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)

    def walk(self) -> Iterator[Op]:
        """Every operation, those of nested blocks after the one that holds them."""
        for op in self.ops:
            yield op
            for region in op.regions:
                yield from region.walk()


@dataclass
class Program:
    """A whole program.

    body: `@main`, its arguments and results without tokens and tuples.  result_names: jax.result_info of each result or
    "".  argument_names: the same from jax.arg_info or the names of source locations.  partitions: num_replicas *
    num_partitions.
    """
    name: str
    body: Block
    argument_names: list[str]
    result_names: list[str]
    partitions: int = 1

    @property
    def input_types(self) -> list[Type]: return [v.type for v in self.body.args]

    @property
    def output_types(self) -> list[Type]: return [v.type for v in self.body.outputs]
