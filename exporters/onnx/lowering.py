"""From operations of StableHLO to nodes: the table of rows, and what rows share."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aot.exporters.report import Report
from aot.exporters.stablehlo import Block, Op, Type, Value
from aot.exporters.stablehlo.simplify import ELEMENTWISE

from .graph import Graph, Inexpressible, Tensor


@dataclass
class Pair:
    """A complex value: ONNX runtimes have no complex tensors, so it is two real ones."""
    re: Tensor
    im: Tensor

    @property
    def shape(self) -> tuple[int, ...]: return self.re.shape

    @property
    def rank(self) -> int: return self.re.rank

    @property
    def size(self) -> int: return self.re.size


Exported = Any                       # Tensor, or Pair for complex numbers
Row = Callable[..., Any]             # (lowering, op, *operands) -> one result or a list of them

#: StableHLO operation -> its row; the second table has the rows for operations on complex numbers
ROWS: dict[str, Row] = {}
COMPLEX_ROWS: dict[str, Row] = {}


def row(*names: str) -> Callable[[Row], Row]:
    """Decorator: the row of these operations on real numbers."""
    def register(f: Row) -> Row:
        ROWS.update(dict.fromkeys(names, f))
        return f
    return register


def complex_row(*names: str) -> Callable[[Row], Row]:
    """Decorator: the row of these operations where a complex number takes part."""
    def register(f: Row) -> Row:
        COMPLEX_ROWS.update(dict.fromkeys(names, f))
        return f
    return register


def structural(*names: str) -> Callable[[Row], Row]:
    """Decorator: a row that only moves elements of its operands, so that it serves the parts of complex numbers too."""
    def register(f: Row) -> Row:
        ROWS.update(dict.fromkeys(names, f))
        COMPLEX_ROWS.update(dict.fromkeys(names, lambda c, op, *xs: both_parts(lambda *ys: f(c, op, *ys), xs)))
        return f
    return register


def both_parts(f: Callable[..., Any], xs: Sequence[Exported]) -> Any:
    """f of the real parts and f of the imaginary parts; operands that are not complex go to both."""
    re = f(*(x.re if isinstance(x, Pair) else x for x in xs))
    im = f(*(x.im if isinstance(x, Pair) else x for x in xs))
    return [Pair(a, b) for a, b in zip(re, im)] if isinstance(re, list) else Pair(re, im)


def each(f: Callable[..., Tensor], *xs: Exported) -> Exported:
    """f of a tensor, or of both parts of complex numbers."""
    return both_parts(f, xs) if any(isinstance(x, Pair) for x in xs) else f(*xs)


class Lowering:
    """Writes the operations of a program to a graph."""

    def __init__(self, g: Graph, report: Report):
        self.g, self.report = g, report
        self.env: dict[Value, Exported] = {}
        self.partitions = 1
        self.uses: dict[Value, int] = {}

    # ---- values ----
    def read(self, v: Value) -> Exported:
        return self.env[v]

    def given(self, type: Type, name: Sequence[str]) -> Exported:
        """An input of a graph, under one name or those of its parts."""
        if type.dtype.kind != "c":
            return Tensor(name[0], type.shape, type.dtype)
        part = part_dtype(type.dtype)
        return Pair(Tensor(name[0], type.shape, part), Tensor(name[1], type.shape, part))

    def constant(self, value: np.ndarray) -> Exported:
        if value.dtype.kind == "c":
            return Pair(self.g.constant(value.real), self.g.constant(value.imag))
        return self.g.constant(value)

    def weight(self, name: str, value: np.ndarray) -> Exported:
        """A known array under a name of its own."""
        if value.dtype.kind == "c":
            return Pair(self.weight(f"{name}.real", value.real), self.weight(f"{name}.imag", value.imag))
        self.g.wanted[id(value)] = name, value
        return Tensor(None, value.shape, value.dtype, array=value)

    # ---- operations ----
    def ops(self, ops: Iterable[Op]) -> None:
        for op in ops:
            if all(r in self.env for r in op.results) and op.results:
                continue                                     # a part of a pattern that is written already
            self.op(op)

    def op(self, op: Op) -> None:
        """Write one operation; what cannot be expressed is reported, and dummies stand for its results."""
        try:
            found = self.apply(op, [self.read(v) for v in op.operands])
        except Inexpressible as e:
            self.report.refuse(op, e.why, e.hint)
            found = [self.given(r.type, (self.g.fresh("unsupported"),) * 2) for r in op.results]
        self.env.update(zip(op.results, found))

    def apply(self, op: Op, xs: Sequence[Exported]) -> list[Exported]:
        """The results of an operation on these operands.  Raises Inexpressible."""
        if not all(r.type.is_static for r in op.results):
            raise Inexpressible("its result has a size that is only known when it runs",
                                "export a program with static shapes; --dynamic-batch makes the first axis variable")
        is_complex = any(isinstance(x, Pair) for x in xs) or any(r.dtype.kind == "c" for r in op.results)
        found = (COMPLEX_ROWS if is_complex else ROWS).get(op.name)
        if found is None:
            raise Inexpressible(*_why_no_row(op, is_complex))
        result = found(self, op, *xs)
        return result if isinstance(result, list) else [result]

    # ---- blocks ----
    def inline(self, block: Block, args: Sequence[Exported]) -> list[Exported]:
        """Write a block here -> what it returns."""
        self.env.update(zip(block.args, args, strict=True))
        for op in block.ops:                                     # a block may be written more than once
            for r in op.results:
                self.env.pop(r, None)
        self.ops(block.ops)
        return [self.read(v) for v in block.outputs]

    def vectorised(self, block: Block, args: Sequence[Exported], shape: Sequence[int]) -> list[Exported]:
        """A block of operations on scalars, applied to each element of tensors of this shape.

        Raises Inexpressible if an operation in it is not elementwise.
        """
        env: dict[Value, Exported] = dict(zip(block.args, args, strict=True))
        for op in block.ops:
            operands = [env[v] if v in env else self.read(v) for v in op.operands]
            if op.name in ("reshape", "broadcast_in_dim") and op.result.type.size == op.operands[0].type.size == 1:
                found = [operands[0]]
            elif op.name == "constant":
                found = [self.constant(op.attrs["value"].reshape(()))]
            elif op.name in ELEMENTWISE or op.name in ("select", "clamp"):
                wide = Op(op.name, op.operands, [Type(tuple(shape), r.dtype) for r in op.results], op.attrs,
                          location=op.location)
                found = self.apply(wide, operands)
            else:
                raise Inexpressible(f"its body has the operation {op.name}, which is not elementwise")
            env.update(zip(op.results, found))
        return [self.spread(env[v] if v in env else self.read(v), shape) for v in block.outputs]

    def spread(self, x: Exported, shape: Sequence[int]) -> Exported:
        """A scalar or a tensor of this shape, as a tensor of this shape."""
        return each(lambda t: t if t.shape == tuple(shape) else self.g.broadcast(t, range(t.rank), shape), x)


_COLLECTIVES = {"all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute", "cross-replica-sum",
                "partition_id", "reduce_scatter", "replica_id"}
_EFFECTS = {"infeed", "outfeed", "send", "recv", "async_start", "async_done"}


def _why_no_row(op: Op, is_complex: bool) -> tuple[str, str]:
    target = str(op.attrs.get("call_target_name", ""))
    if target.startswith("lapack_"):
        return ("it calls LAPACK, which ONNX has no operator for",
                "eigh, svd, qr, cholesky, lu and solve can be exported; eigenvalues of general matrices and Schur forms cannot")
    if op.name == "custom_call":
        return ("it calls code that is not part of the program",
                "use a function that is written in StableHLO operations, or keep this step outside of the exported function")
    if op.name in _COLLECTIVES:
        return "it communicates between devices", "export a program for one device"
    if op.name in _EFFECTS:
        return "it talks to the host while it runs, which ONNX cannot", "return the value instead"
    if op.name == "rng":
        return "its numbers would differ from run to run", "use aot.random, whose bits are part of the program"
    kind = " on complex numbers" if is_complex else ""
    return f"there is no ONNX form of {op.name}{kind} here", ""


def part_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of the parts of a complex one."""
    return np.dtype("float32" if dtype == np.complex64 else "float64")


def reducer(block: Block, offset: int = 0) -> str:
    """The operation of a body that applies one operation to its two arguments, or ""."""
    args = block.args
    if len(block.ops) != 1 or len(args) != 2 or len(block.outputs) != 1 or block.outputs[0].op is not block.ops[0]:
        return ""
    op = block.ops[0]
    same = len(op.operands) == 2 and {id(v) for v in op.operands} == {id(v) for v in args}
    return op.name if same and op.name in REDUCERS else ""


#: operation -> its neutral element for a dtype
REDUCERS: dict[str, Callable[[np.dtype], Any]] = {
    "add": lambda d: 0, "multiply": lambda d: 1, "maximum": lambda d: lowest(d), "minimum": lambda d: highest(d),
    "and": lambda d: True if d == np.bool_ else -1 if d.kind == "i" else np.iinfo(d).max if d.kind == "u" else 0,
    "or": lambda d: 0, "xor": lambda d: 0}


def lowest(dtype: np.dtype) -> Any:
    return False if dtype == np.bool_ else np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def highest(dtype: np.dtype) -> Any:
    return True if dtype == np.bool_ else np.iinfo(dtype).max if dtype.kind in "iu" else np.inf
