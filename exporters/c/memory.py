"""Where values lie: parameters, constants, local variables, and places in the workspace that share its bytes over time."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .types import CType

ALIGN = 64


@dataclass(eq=False)
class Storage:
    """A piece of memory.

    kind: "input", "output", "constant" (named in the code as they are), "local" (a variable) or "work" (in the workspace).
    first, last: the steps of the program at which it holds something that matters.  depth: of loops around its first step.
    host: the result in whose memory it lies before that is written, instead of in the workspace.
    """
    name: str
    ctype: CType
    size: int
    kind: str
    first: int = 0
    last: int = 0
    depth: int = 0
    offset: int = -1
    host: Storage | None = None

    @property
    def bytes(self) -> int: return self.size * self.ctype.bits // 8

    @property
    def is_writable(self) -> bool: return self.kind in ("work", "local", "output")

    def element(self, offset: str) -> str:
        """The place of an element."""
        return self.name if self.kind == "local" else f"{self.name}[{offset}]"

    def address(self, constant: str) -> str:
        """Where it begins, as a pointer to `constant` (or nothing) elements.  It has been placed."""
        if self.host is None:
            return f"({constant}{self.ctype.stored} *)(work + {self.offset})"
        return f"{self.host.name} + {self.offset * 8 // self.ctype.bits}" if self.offset else self.host.name


@dataclass(frozen=True)
class Buffer:
    """A dense row-major array in a storage."""
    storage: Storage
    shape: tuple[int, ...]

    @property
    def ctype(self) -> CType: return self.storage.ctype

    def reshaped(self, shape: tuple[int, ...]) -> Buffer: return replace(self, shape=shape)


class Region:
    """Bytes that storages share over time."""

    def __init__(self):
        self.placed = np.zeros((0, 4), np.int64)        # offset, end, first and last step, by their offsets

    def fit(self, s: Storage) -> int:
        """The lowest offset that is free while a storage is needed."""
        offset, others = 0, self.placed
        for start, end in others[(others[:, 2] <= s.last) & (others[:, 3] >= s.first), :2].tolist():
            if offset + s.bytes <= start:
                break
            offset = max(offset, -(-end // ALIGN) * ALIGN)
        return offset

    def place(self, s: Storage, offset: int) -> None:
        s.offset = offset
        at = int(np.searchsorted(self.placed[:, 0], offset, "right"))
        self.placed = np.insert(self.placed, at, (offset, offset + s.bytes, s.first, s.last), axis=0)


@dataclass
class Memory:
    """All storages of a program.  step: how many operations have been written."""
    step: int = 0
    depth: int = 0
    work: list[Storage] = field(default_factory=list)
    locals: list[Storage] = field(default_factory=list)
    loops: list[tuple[int, list[Storage]]] = field(default_factory=list)    # first step, what it uses from outside

    def new(self, ctype: CType, size: int) -> Storage:
        """A storage that the program writes to: a variable for one element."""
        kind, group = ("local", self.locals) if size == 1 else ("work", self.work)
        made = Storage(f"{'s' if size == 1 else 't'}{len(group)}", ctype, size, kind, self.step, self.step, len(self.loops))
        group.append(made)
        return made

    def touch(self, s: Storage) -> None:
        """It is read or written now; in a loop that began after it did, it is needed until the loop ends."""
        if s.kind == "output" and not s.first:
            s.first = self.loops[0][0] if self.loops else self.step
        s.last = max(s.last, self.step)
        for _, outside in self.loops[s.depth:]:
            outside.append(s)

    def enter(self) -> None:
        self.loops.append((self.step, []))

    def leave(self) -> None:
        for s in self.loops.pop()[1]:
            s.last = max(s.last, self.step)

    def plan(self, outputs: Sequence[Storage]) -> int:
        """Give every storage its offset -> bytes of the workspace.  Larger ones first, each at the lowest place that is free
        while it is needed, in a result of the same type if it is needed no more when that is written."""
        work, hosts = Region(), [(s, Region()) for s in outputs]
        for s in sorted(self.work, key=lambda s: (-s.bytes, s.first)):
            fitting = ((host, region, region.fit(s)) for host, region in hosts
                       if host.ctype == s.ctype and host.bytes >= s.bytes and host.first > s.last)
            s.host, region, offset = next(((h, r, at) for h, r, at in fitting if at + s.bytes <= h.bytes), (None, work, -1))
            region.place(s, work.fit(s) if s.host is None else offset)
        return int(work.placed[:, 1].max(initial=0))
