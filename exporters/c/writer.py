"""Lines of C, in blocks, and the loops around them."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from .index import Index


class Writer:
    """The body of a function as it grows."""

    def __init__(self):
        self.lines: list[str] = []
        self.indent = 1
        self.numbers = count()

    def line(self, text: str) -> None:
        self.lines.append("  " * self.indent + text)

    def name(self, letter: str) -> str:
        """A name that no other variable has."""
        return f"{letter}{next(self.numbers)}"

    @contextmanager
    def block(self, head: str = "", tail: str = "") -> Iterator[None]:
        self.line(f"{head} {{".strip())
        self.indent += 1
        yield
        self.indent -= 1
        self.line(f"}}{tail}")

    @contextmanager
    def loop(self, extent: int, step: int = 1, end: str = "") -> Iterator[Index]:
        """A loop over 0 .. extent - 1, none for one step.  end: an expression that is not larger than the extent."""
        if 0 < extent <= step:
            yield Index()
            return
        i = self.name("i")
        with self.block(f"for (ptrdiff_t {i} = 0; {i} < {end or extent}; {i}{'++' if step == 1 else f' += {step}'})"):
            yield Index.of(i, extent)

    @contextmanager
    def loops(self, shape: Sequence[int], end: str = "") -> Iterator[list[Index]]:
        """Nested loops over the positions of a shape.  end: of the first one."""
        if not shape:
            yield []
            return
        with self.loop(shape[0], end=end) as first, self.loops(shape[1:]) as rest:
            yield [first, *rest]

    @contextmanager
    def parts(self, extent: int, size: int) -> Iterator[tuple[Index, str]]:
        """A loop over parts of so many steps -> the first step of each, and how many there are where they may be fewer."""
        with self.loop(extent, step=size) as i:
            end = ""
            if extent % size:
                end, left = self.name("p"), f"{extent} - {i}"
                self.line(f"const ptrdiff_t {end} = {left} < {size} ? {left} : {size};")
            yield i, end
