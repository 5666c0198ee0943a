"""From a program to C: what is computed into memory, what is fused into the loops of its users, and how loops are written.

A value is a Buffer, or an expression that its users evaluate at the positions they need: elementwise operations with one user,
and views (slices, broadcasts, transposes) of buffers.  Every other operation has a row that writes loops, `@row(name)`, in the
modules `rows_*`.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from aot.exporters.report import Report
from aot.exporters.stablehlo import Block, Op, Value

from . import index, scalar
from .index import Index
from .memory import Buffer, Memory, Storage
from .types import CType, Inexpressible, check, literal, of
from .writer import Writer

ROWS: dict[str, Callable[..., None]] = {}
#: operations that choose where their operand is read
VIEWS = frozenset(("broadcast_in_dim", "reshape", "transpose", "slice", "reverse"))
#: operations that read each element of their operands once, at its own position or in a loop of their own
STREAMING = frozenset(("reduce", "pad", "concatenate"))
DEEPEST = 64            # operations that are fused one after the other


def row(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function `row(lowering, op)` that computes the results of these operations into buffers."""
    def register(f: Callable[..., None]) -> Callable[..., None]:
        ROWS.update(dict.fromkeys(names, f))
        return f
    return register


def is_expression(op: Op) -> bool:
    """Whether an operation can be evaluated at one position."""
    if op.name == "bitcast_convert":
        return scalar.same_width(op)
    return op.name in scalar.ROWS or op.name in VIEWS or op.name in ("constant", "iota")


def is_splat(value: np.ndarray) -> bool:
    return value.size == 1 or value.size > 0 and all(s == 0 or n == 1 for s, n in zip(value.strides, value.shape))


# ---- what is fused ---------------------------------------------------------------------------------------------------

class Plan:
    """Which values of a block go to memory, and when each is used for the last time."""

    def __init__(self, block: Block):
        self.users: dict[Value, list[Op]] = {}
        for op in block.ops:
            for v in dict.fromkeys(op.operands):
                self.users.setdefault(v, []).append(op)
        nested = {v for op in block.ops for region in op.regions for v in used_in(region)}
        self.own = {*block.args, *(r for op in block.ops for r in op.results)}
        self.stored = {v for v in (*block.outputs, *nested) if v.op is None or v.op.name != "constant"}
        depth: dict[Value, int] = {}            # of expressions that are not stored
        for op in block.ops:
            deepest = 1 + max((depth.get(v, 0) for v in op.operands), default=0)
            if not is_expression(op) or self.is_worth_storing(op) or deepest > DEEPEST and op.name not in VIEWS:
                self.stored.update(op.results)
            depth.update((v, deepest) for v in op.results if v not in self.stored)
        places = {op: i for i, op in enumerate(block.ops)}
        ends = dict.fromkeys((*block.outputs,), len(block.ops))
        for op in reversed(block.ops):
            now = max([ends.get(r, -1) for r in op.results if r not in self.stored or op.name == "reshape"], default=-1)
            for v in (*op.operands, *(v for region in op.regions for v in used_in(region))):
                ends[v] = max(ends.get(v, -1), now, places[op])
        self.last = ends

    def is_worth_storing(self, op: Op) -> bool:
        """Whether an expression is computed once into memory, not by each user."""
        v = op.results[0]
        if op.name in ("constant", "iota"):
            return False
        users = self.users.get(v, [])
        if op.name in VIEWS:
            source = op.operands[0]
            return len(users) > 1 and source not in self.stored and not self.is_plain(source)
        if len(users) != 1:
            return True
        user = users[0]
        if v.rank == 0:
            return not is_expression(user) or user.result.rank > 0
        return self.is_repeated(v) or not (is_expression(user) or user.name in STREAMING)

    def is_repeated(self, v: Value) -> bool:
        """Whether views of a value have more elements than it."""
        return any(user.name in VIEWS and (user.result.type.size > v.type.size or self.is_repeated(user.result))
                   for user in self.users.get(v, ()))

    def is_plain(self, v: Value) -> bool:
        """Whether reading a value costs no more than a load."""
        if v.op is None or v in self.stored or v.op.name in ("constant", "iota"):
            return True
        return v.op.name in VIEWS and self.is_plain(v.op.operands[0])


def used_in(region: Block) -> dict[Value, None]:
    """The values from outside that a region uses, in order."""
    own, used = {*region.args}, dict.fromkeys(region.outputs)
    for op in region.ops:
        used.update(dict.fromkeys(op.operands))
        own.update(op.results)
        for inner in op.regions:
            used |= used_in(inner)
    return {v: None for v in used if v not in own}


def ordered(block: Block) -> list[Op]:
    """The operations of a block; those that free as much memory as they take follow at once when they can be computed."""
    used = {op: dict.fromkeys([*op.operands, *(v for region in op.regions for v in used_in(region))]) for op in block.ops}
    free = ("constant", "iota")
    made = {v for op in block.ops if op.name not in free for v in op.results} - {*block.outputs}
    users: dict[Value, list[Op]] = {}
    for op, values in used.items():
        for v in values:
            users.setdefault(v, []).append(op)
    left = {v: len(ops) for v, ops in users.items()}        # users that are still to come
    missing = {op: sum(v.op is not None and v.op in used for v in values) for op, values in used.items()}
    order: dict[Op, None] = {}

    def size(v: Value) -> int: return v.type.size * v.dtype.itemsize

    def frees(op: Op) -> bool:
        freed = sum(size(v) for v in used[op] if v in made and left[v] == 1)
        return missing[op] == 0 and freed > 0 and freed >= sum(size(v) for v in op.results if v in made)

    for first in sorted(block.ops, key=lambda op: op.name not in free):
        ready = [first]
        while ready:
            op = ready.pop()
            if op in order:
                continue
            order[op] = None
            for v in used[op]:
                left[v] -= 1
            following = dict.fromkeys(user for v in op.results for user in users.get(v, ()))
            for user in following:
                missing[user] -= sum(v.op is op for v in used[user])
            beside = [user for v in used[op] if left[v] == 1 for user in users[v]]
            ready += [user for user in (*beside, *following) if user not in order and frees(user)]
    return list(order)


# ---- expressions -----------------------------------------------------------------------------------------------------

class Scope:
    """The innermost loop: what has been evaluated there, by value and position."""

    def __init__(self, lowering: Lowering, flat: bool = False):
        """flat: positions are numbers of elements, of all arrays alike."""
        self.lowering, self.flat, self.known = lowering, flat, {}

    def get(self, v: Value, at: Sequence[Index]) -> str:
        """A name or literal for an element of a value; writes what computes it."""
        bound = self.lowering.env.get(v)
        if isinstance(bound, str):
            return bound
        key = v, tuple(at)
        if key not in self.known:
            self.known[key] = self.evaluated(v, list(at), bound)
        return self.known[key]

    def evaluated(self, v: Value, at: list[Index], bound: Buffer | None) -> str:
        t, op = of(v.dtype), v.op
        if bound is not None:
            return self.let(t, self.lowering.load(self.seen(bound), at))
        if op is None:
            raise AssertionError("an argument without a place")
        if op.name == "constant":
            array = op.attrs["value"]
            if is_splat(array):
                return atom(literal(array[(0,) * array.ndim], t))
            return self.let(t, self.lowering.load(self.seen(self.lowering.constant(v)), at))
        if op.name == "iota":
            return self.let(t, scalar.converted(f"({at[op.attrs['iota_dimension']]})", of(np.dtype(np.int64)), t))
        if op.name in VIEWS and not self.flat:
            return self.get(op.operands[0], source_of(op, at))
        if op.name in VIEWS:
            return self.get(op.operands[0], at if op.name == "reshape" else [Index()])
        operands = [self.get(x, at if x.rank or self.flat and x.type.size == op.result.type.size else []) for x in op.operands]
        return self.let(t, scalar.expression(op, operands))

    def seen(self, b: Buffer) -> Buffer:
        """A buffer with the positions that are used here."""
        return b.reshaped((b.storage.size,)) if self.flat else b

    def let(self, t: CType, expression: str) -> str:
        name = self.lowering.w.name("v")
        self.lowering.w.line(f"const {t.value} {name} = {expression};")
        return name

    def region(self, block: Block, operands: Sequence[str | Callable[[], str]]) -> list[str]:
        """The results of a region of scalars.  An operand may be a function: it is asked for what the region uses."""
        env = self.lowering.env
        used = {v for op in block.ops for v in op.operands}.union(block.outputs)
        env.update((v, x if isinstance(x, str) else x()) for v, x in zip(block.args, operands) if v in used)
        for op in block.ops:
            if op.name == "constant":
                continue
            if op.name not in scalar.ROWS or op.regions:
                raise Inexpressible(f"its region does more than arithmetic: {op.name}", "use a loop of aot.lax instead")
            names = [self.get(v, []) for v in op.operands]
            env[op.result] = self.let(of(op.dtype), scalar.expression(op, names))
        return [self.get(v, []) for v in block.outputs]


def atom(text: str) -> str: return f"({text})" if text.startswith("-") else text


def source_of(op: Op, at: list[Index]) -> list[Index]:
    """The position of an element of a view in its operand."""
    shape = op.operands[0].shape
    match op.name:
        case "broadcast_in_dim":
            return [at[d] if n != 1 else Index() for d, n in zip(op.attrs["broadcast_dimensions"], shape)]
        case "reshape":
            return reshaped(at, op.shape, shape)
        case "transpose":
            found = [Index()] * len(shape)
            for i, d in zip(at, op.attrs["permutation"]):
                found[d] = i
            return found
        case "slice":
            return [i * s + b for i, b, s in zip(at, op.attrs["start_indices"], op.attrs["strides"])]
        case _:
            turned = set(op.attrs["dimensions"])
            return [i * -1 + (n - 1) if d in turned else i for d, (i, n) in enumerate(zip(at, shape))]


def reshaped(at: Sequence[Index], old: Sequence[int], new: Sequence[int]) -> list[Index]:
    """The position with the same number in another shape; axes of size 1 only come and go."""
    kept = [i for i, n in zip(at, old) if n != 1]
    if [n for n in old if n != 1] == [n for n in new if n != 1]:
        rest = iter(kept)
        return [next(rest) if n != 1 else Index() for n in new]
    return index.unflat(index.flat(at, old), new)


# ---- the program -----------------------------------------------------------------------------------------------------

class Lowering:
    """Writes a program.  env: a buffer, or the expression of a scalar, for each value that has one."""

    def __init__(self, report: Report):
        self.w, self.memory, self.report = Writer(), Memory(), report
        self.env: dict[Value, Any] = {}
        self.constants: dict[tuple, tuple[Storage, np.ndarray]] = {}
        self.functions: dict[str, str] = {}             # that rows share, by name
        self.targets: dict[Value, Storage] = {}         # where results of this block are wanted
        self.bound: dict[Storage, set[Value]] = {}      # the values that lie in a storage
        self.kernels: list[dict[Storage, bool]] = []    # the storages that the kernel uses, and whether it writes to them
        self.plan = Plan(Block([]))
        self.place = 0                                  # of the operation in its block

    # ---- blocks ----
    def block(self, block: Block, targets: dict[Value, Storage] | None = None) -> list[Buffer]:
        """Write a block -> its results.  targets: where results are wanted; they may lie elsewhere nevertheless."""
        before = self.plan, self.place, self.targets
        block = Block(block.args, ordered(block), block.outputs)
        self.plan, self.targets = Plan(block), dict(targets or {})
        for self.place, op in enumerate(block.ops):
            self.operation(op)
        self.place = len(block.ops)
        found = [self.stored(v) for v in block.outputs]
        self.plan, self.place, self.targets = before
        return found

    def operation(self, op: Op) -> None:
        """Write one operation; what cannot be expressed is reported."""
        self.memory.step += 1
        try:
            for v in (*op.results, *op.operands):
                check(v.type)
            if op.results and all(v.type.size == 0 for v in op.results):
                for v in op.results:
                    self.bind(v, self.memory.new(of(v.dtype), 0))
            elif op.name == "reshape" and isinstance(found := self.env.get(op.operands[0]), Buffer):
                self.bind(op.result, found.storage)
            elif is_expression(op):
                if op.result in self.plan.stored and op.name != "constant":
                    self.stored(op.result)
            elif op.name in ROWS:
                self.comment(op)
                ROWS[op.name](self, op)
            else:
                raise Inexpressible("it has no form in C")
        except Inexpressible as e:
            self.report.refuse(op, str(e), e.hint)
            for v in op.results:
                self.bind(v, self.memory.new(of(np.dtype(np.float32)), max(v.type.size, 0)))

    def comment(self, op: Op) -> None:
        where = f"  {op.location}" if op.location.file else ""
        self.w.line(f"/* {op.name}{where.replace('*/', '')} */")

    # ---- values ----
    def bind(self, v: Value, storage: Storage) -> Buffer:
        """Let a value lie in a storage."""
        self.env[v] = made = Buffer(storage, v.shape)
        self.bound.setdefault(storage, set()).add(v)
        return made

    def new(self, v: Value) -> Buffer:
        """A place for a value: where it is wanted, or a new one."""
        return self.bind(v, self.place_for(v))

    def place_for(self, v: Value) -> Storage:
        wanted = self.targets.pop(v, None)
        if wanted is not None and self.is_free(wanted):
            return wanted
        return self.memory.new(of(v.dtype), v.type.size)

    def is_free(self, storage: Storage) -> bool:
        """Whether nothing that lies in a storage is needed from this operation on."""
        return all(self.plan.last.get(u, -1) < self.place for u in self.bound.get(storage, ()))

    def temporary(self, ctype: CType, *shape: int) -> Buffer:
        """Room for a row's own use."""
        return Buffer(self.memory.new(ctype, prod(shape)), shape)

    def constant(self, v: Value) -> Buffer:
        """The array of a constant, written once for equal ones."""
        assert v.op is not None
        return Buffer(self.table(v.op.attrs["value"]), v.shape)

    def table(self, array: np.ndarray) -> Storage:
        """The constant with these elements."""
        key = array.tobytes(), array.dtype.name
        if key not in self.constants:
            self.constants[key] = Storage(f"c{len(self.constants)}", of(array.dtype), array.size, "constant"), array
        return self.constants[key][0]

    def stored(self, v: Value) -> Buffer:
        """A value in memory; computes it now where it is an expression."""
        found = self.env.get(v)
        if isinstance(found, Buffer):
            return found
        if found is None and (array := v.constant) is not None:     # users go on to know its value
            return Buffer(self.compute(v), v.shape) if is_splat(array) else self.constant(v)
        return self.bind(v, self.compute(v))

    def compute(self, v: Value) -> Storage:
        """Compute an expression into memory."""
        if v.op is not None:
            self.comment(v.op)
        flat = self.is_flat(v)
        shape = (v.type.size,) if flat else v.shape
        with self.kernel():
            made = self.place_for(v)
            with self.w.loops(shape) as at:
                self.put(Buffer(made, shape), at, Scope(self, flat).get(v, at))
        return made

    def is_flat(self, v: Value) -> bool:
        """Whether an expression reads all its operands at the number of the element that it computes."""
        if isinstance(self.env.get(v), (Buffer, str)):
            return True
        op = v.op
        if op is None or op.name == "iota":
            return v.rank == 1
        if op.name == "constant":
            return True
        if op.name == "broadcast_in_dim":
            return op.operands[0].type.size == 1 and self.is_flat(op.operands[0])
        if op.name in VIEWS:
            return op.name == "reshape" and self.is_flat(op.operands[0])
        return all(self.is_flat(x) for x in op.operands)

    def may_overwrite(self, v: Value, captured: Collection[Value] = ()) -> Buffer | None:
        """The place of an operand that this operation is the last to need, so that its result may be made there.

        captured: what its regions use."""
        found = self.env.get(v)
        if not isinstance(found, Buffer) or not found.storage.is_writable:
            return None
        others = self.bound.get(found.storage, set())
        dead = all(u in self.plan.own and self.plan.last.get(u, -1) <= self.place and u not in captured for u in others)
        return found if dead else None

    # ---- kernels ----
    @contextmanager
    def kernel(self) -> Iterator[None]:
        """A block of loops with pointers to what they use.  Pointers are known to be different within it alone."""
        w = self.w
        w.line("{")
        start, used = len(w.lines), {}
        w.indent += 1
        self.kernels.append(used)
        yield
        self.kernels.pop()
        kinds = [(s, "" if written else "const ") for s, written in used.items() if s.kind == "work"]
        declared = [f"{const}{s.ctype.stored} *restrict {s.name} = @{s.name} {const}@;" for s, const in kinds]
        w.lines[start:start] = ["  " * w.indent + text for text in declared]
        w.indent -= 1
        w.line("}")

    def use(self, storage: Storage, written: bool = False) -> None:
        """The current kernel reads a storage or writes to it."""
        self.memory.touch(storage)
        if self.kernels:
            used = self.kernels[-1]
            used[storage] = used.get(storage, False) or written

    def load(self, b: Buffer, at: Sequence[Index]) -> str:
        """An element as a value."""
        return b.ctype.load(self.element(b, at))

    def put(self, b: Buffer, at: Sequence[Index], value: str) -> None:
        """Write the assignment of an element."""
        self.w.line(f"{self.element(b, at, True)} = {b.ctype.store(value)};")

    def element(self, b: Buffer, at: Sequence[Index], written: bool = False) -> str:
        self.use(b.storage, written)
        return b.storage.element(str(index.flat(at, b.shape)))

    def pointer(self, b: Buffer, at: Index = Index(), written: bool = False) -> str:
        """The address of an element by its number."""
        self.use(b.storage, written)
        name = f"&{b.storage.name}" if b.storage.kind == "local" else b.storage.name
        return name if str(at) == "0" else f"{name} + {at}"

    def copy(self, source: Buffer, target: Storage) -> None:
        """Copy a whole array, unless it lies there."""
        if source.storage is target or not target.size:
            return
        with self.kernel():
            to = Buffer(target, source.shape)
            if target.size == 1:
                zeros = [Index()] * len(source.shape)
                self.w.line(f"{self.element(to, zeros, True)} = {self.element(source, zeros)};")
            else:
                self.w.line(f"memcpy({self.pointer(to, written=True)}, {self.pointer(source)}, "
                            f"{target.size} * sizeof({target.ctype.stored}));")

    def move(self, sources: Sequence[Buffer], targets: Sequence[Storage]) -> None:
        """Copy arrays to storages, all at the same time: what lies where another one goes is set aside first."""
        moves = [(b, s) for b, s in zip(sources, targets, strict=True) if b.storage is not s]
        taken = {s for _, s in moves}
        for i, (b, s) in enumerate(moves):
            if b.storage in taken:
                aside = self.memory.new(b.ctype, b.storage.size)
                self.copy(b, aside)
                moves[i] = Buffer(aside, b.shape), s
        for b, s in moves:
            self.copy(b, s)

    def value(self, v: Value) -> str:
        """A scalar as a name or literal, evaluated here."""
        return Scope(self).get(v, [Index()] * v.rank)
