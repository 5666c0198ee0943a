"""Where values lie: parameters, constants, local variables, and places in the workspace that share its bytes over time."""
from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from .types import CType

ALIGN = 64


@dataclass(eq=False)
class Storage:
    """A piece of memory.

    kind: "input", "output", "constant" (named in the code as they are), "local" (a variable) or "work" (in the workspace).
    first, last: the steps of the program at which it holds something that matters.  depth: of loops around its first step.
    """
    name: str
    ctype: CType
    size: int
    kind: str
    first: int = 0
    last: int = 0
    depth: int = 0
    offset: int = -1

    @property
    def bytes(self) -> int: return self.size * self.ctype.bits // 8

    @property
    def is_writable(self) -> bool: return self.kind in ("work", "local", "output")

    def element(self, offset: str) -> str:
        """The place of an element."""
        return self.name if self.kind == "local" else f"{self.name}[{offset}]"


@dataclass(frozen=True)
class Buffer:
    """A dense row-major array in a storage."""
    storage: Storage
    shape: tuple[int, ...]

    @property
    def ctype(self) -> CType: return self.storage.ctype

    def reshaped(self, shape: tuple[int, ...]) -> Buffer: return replace(self, shape=shape)


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
        s.last = max(s.last, self.step)
        for _, outside in self.loops[s.depth:]:
            outside.append(s)

    def enter(self) -> None:
        self.loops.append((self.step, []))

    def leave(self) -> None:
        for s in self.loops.pop()[1]:
            s.last = max(s.last, self.step)

    def plan(self) -> int:
        """Give every storage of the workspace its offset -> bytes that it takes.  Larger ones first, each at the lowest place
        that is free while it is needed."""
        placed = np.zeros((len(self.work), 4), np.int64)        # offset, end, first and last step, by their offsets
        for n, s in enumerate(sorted(self.work, key=lambda s: (-s.bytes, s.first))):
            s.offset = 0
            others = placed[:n]
            for start, end in others[(others[:, 2] <= s.last) & (others[:, 3] >= s.first), :2].tolist():
                if s.offset + s.bytes <= start:
                    break
                s.offset = max(s.offset, -(-end // ALIGN) * ALIGN)
            at = int(np.searchsorted(others[:, 0], s.offset, "right"))
            placed[at + 1:n + 1] = placed[at:n].copy()
            placed[at] = s.offset, s.offset + s.bytes, s.first, s.last
        return int(placed[:, 1].max(initial=0))
