"""The row of fft: several lines at a time, as neighbours in memory, by the factors of their length (Stockham's algorithm).

Real and imaginary parts lie apart, so that every step is a loop over neighbours.  The inverse exchanges the two.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod

import numpy as np

from aot.exporters.stablehlo import Op

from .index import Index
from .lowering import Lowering, row
from .memory import Buffer
from .types import BRIEF, PARTS, CType, of

LINES = 64              # bytes of neighbours that are transformed at a time
ROOM = 1 << 19          # bytes that are transformed at a time, if more than one line
LONG = 512              # numbers from which on one line by itself is as fast, where lines do not lie next to each other
SMALL = (4, 2, 3)       # factors that have a helper of their own
PRECISE = 32            # prime factors from which on sums are made in double precision
LARGE = 128             # those from which on a transform is a convolution of lengths with small factors (Bluestein's algorithm)

Place = Callable[[Index, Index], list[Index]]           # of an element by its number in the line and the number of the line


def factors(n: int) -> list[int]:
    found = []
    while n > 1:
        found.append(next((p for p in SMALL if n % p == 0), 0) or next(p for p in range(5, n + 1, 2) if n % p == 0))
        n //= found[-1]
    return found


@row("fft")
def fft(l: Lowering, op: Op) -> None:
    """One axis after the other."""
    x, kind, lengths = op.operands[0], op.attrs["fft_type"], [int(n) for n in op.attrs["fft_length"]]
    source, result, inverse = l.stored(x), of(op.dtype), kind in ("IFFT", "IRFFT")
    first = x.rank - len(lengths)
    axes = range(first, x.rank) if kind == "IRFFT" else range(x.rank - 1, first - 1, -1)
    out = l.new(op.result)
    between = l.temporary(source.ctype, *x.shape) if kind == "IRFFT" and len(axes) > 1 else out
    for axis in axes:
        target = out if axis == axes[-1] else between
        scale = prod(lengths) if inverse and axis == axes[-1] else 1
        Lines(l, source, target, axis, lengths[axis - first], PARTS.get(result.brief, result), inverse, scale).write()
        source = target


class Lines:
    """Transforms of n numbers along an axis.  real: the type of their parts.  scale: what the results are divided by."""

    def __init__(self, l: Lowering, source: Buffer, target: Buffer, axis: int, n: int, real: CType, inverse: bool, scale: int):
        self.l, self.n, self.inverse, self.scale = l, n, inverse, scale
        self.outer, self.inner = prod(target.shape[:axis]), prod(target.shape[axis + 1:])
        self.source, self.target = (b.reshaped((self.outer, b.shape[axis], self.inner)) for b in (source, target))
        self.is_real = source.ctype.kind == "f", target.ctype.kind == "f"
        self.halved = any(self.is_real) and n % 2 == 0          # pairs of neighbours are transformed as complex numbers
        self.length = n // 2 if self.halved else n
        largest = max(factors(self.length), default=1)
        self.wide = self.length if largest < LARGE else next(m for m in range(2 * self.length - 1, 4 * self.length)
                                                             if m % 2 == 0 and max(factors(m)) in SMALL)
        self.factors = factors(self.wide)
        self.type = real if largest < PRECISE else BRIEF["f64"]
        size = self.type.bits // 8
        self.lines = self.outer if self.inner == 1 else self.inner
        alone = self.inner == 1 and self.wide >= LONG and max(self.factors) in SMALL
        self.lanes = 1 if alone else max(1, min(self.lines, LINES // size, ROOM // (4 * size * self.wide)))
        self.rooms = [l.temporary(self.type, 2, self.wide, self.lanes) for _ in range(2)]

    def write(self) -> None:
        l, (room, _) = self.l, self.rooms
        with l.kernel():
            if self.lines % self.lanes:         # the last time not all of it is used
                l.w.line(f"memset({l.pointer(room, written=True)}, 0, {room.storage.bytes});")
            with self.groups() as (place, end):
                self.load(place, end)
                self.store(self.transform(), place, end)

    @contextmanager
    def groups(self) -> Iterator[tuple[Place, str]]:
        """Loops over groups of lines."""
        if self.inner == 1:
            with self.l.w.parts(self.outer, self.lanes) as (i, end):
                yield lambda k, lane: [i + lane, k, Index()], end
        else:
            with self.l.w.loop(self.outer) as o, self.l.w.parts(self.inner, self.lanes) as (i, end):
                yield lambda k, lane: [o, k, i + lane], end

    @contextmanager
    def each(self, count: int, end: str) -> Iterator[tuple[Index, Index]]:
        """Loops over so many elements of each line, in the order in which they lie in the arrays."""
        w = self.l.w
        if self.inner == 1:
            with w.loop(self.lanes, end=end) as lane, w.loop(count) as k:
                yield k, lane
        else:
            with w.loop(count) as k, w.loop(self.lanes, end=end) as lane:
                yield k, lane

    def transform(self) -> Buffer:
        """Write the transform of the lines in the first room -> where the result lies."""
        n, m = self.length, self.wide
        if n == m:
            return self.stepped(self.rooms)
        squares = np.arange(n) ** 2 % (2 * n) / (2 * n)         # j k = (j^2 + k^2 - (j - k)^2) / 2
        chirp, w = parts_of(squares), self.l.w
        around = np.zeros(m, complex)
        around[:n] = np.exp(2j * np.pi * squares)
        around[m - n + 1:] = around[1:n][::-1]
        other = np.fft.fft(around) / m
        with w.loop(2) as part, w.loop(m - n) as k, w.loop(self.lanes) as lane:
            self.l.put(self.rooms[0], [part, k + n, lane], "0")
        self.multiply(self.rooms[0], n, chirp)
        found = self.stepped(self.rooms)
        self.multiply(found, m, np.concatenate([other.real, other.imag]), exchange=True)        # the inverse of what is above
        found = self.stepped(self.rooms if found is self.rooms[0] else self.rooms[::-1])
        self.multiply(found, n, np.concatenate([chirp[:n], -chirp[n:]]), exchange=True)
        return found

    def multiply(self, room: Buffer, n: int, by: np.ndarray, exchange: bool = False) -> None:
        """Multiply the first n numbers of each line by others; exchange: of the parts of the products."""
        with self.l.w.loop(n) as k, self.l.w.loop(self.lanes) as lane:
            places = [[Index((), part), k, lane] for part in (0, 1)]
            (x, y), held = (self.let(self.l.load(room, at)) for at in places), self.table(by.reshape(2, n))
            r, i = (self.let(self.l.load(held, [Index((), part), k])) for part in (0, 1))
            products = f"{x} * {r} - {y} * {i}", f"{x} * {i} + {y} * {r}"
            for at, value in zip(places, products[::-1] if exchange else products):
                self.l.put(room, at, value)

    def stepped(self, rooms: list[Buffer]) -> Buffer:
        """Write the steps for each factor, from the first room to the second one and back -> where the result lies."""
        (x, y), m, s, at = rooms, self.wide, self.lanes, 0
        if not self.factors:
            return x
        l, held = self.l, self.table(roots(self.factors))
        for p in self.factors:
            m //= p
            name, first = (f"fft{p}", "") if p in SMALL else ("fft", f"{p}, ")
            places = f"{l.pointer(x)}, {l.pointer(y, written=True)}"
            l.w.line(f"aot_{name}_{self.type.brief}({places}, {first}{m}, {s}, {self.wide * self.lanes}, "
                     f"{l.pointer(held, Index((), at))});")
            x, y, s, at = y, x, s * p, at + 2 * (p - 1) * m if p in SMALL else at + 2 * p * (m + 1)
        return x

    def table(self, numbers: np.ndarray) -> Buffer:
        return Buffer(self.l.table(numbers.astype(np.float32 if self.type.bits == 32 else np.float64)), numbers.shape)

    # ---- between arrays and lines ----
    def put(self, k: Index, lane: Index, real: str, imaginary: str) -> None:
        """Write a number to the lines that are transformed."""
        for part, value in zip((1, 0) if self.inverse else (0, 1), (real, imaginary)):
            self.l.put(self.rooms[0], [Index((), part), k, lane], value)

    def get(self, room: Buffer, k: Index, lane: Index) -> tuple[str, str]:
        """The parts of a result."""
        first, second = (self.l.load(room, [Index((), part), k, lane]) for part in (0, 1))
        return (second, first) if self.inverse else (first, second)

    def let(self, value: str) -> str:
        name = self.l.w.name("v")
        self.l.w.line(f"const {self.type.value} {name} = {value};")
        return name

    def given(self, at: list[Index]) -> tuple[str, str]:
        """The parts of an element of the input."""
        value, f = self.l.load(self.source, at), "f" if self.source.ctype.brief == "c64" else ""
        if self.is_real[0]:
            return self.let(value), "0"
        name = self.l.w.name("v")
        self.l.w.line(f"const {self.source.ctype.value} {name} = {value};")
        return f"creal{f}({name})", f"cimag{f}({name})"

    def keep(self, at: list[Index], real: str, imaginary: str = "") -> None:
        """Write an element of the result."""
        t, scale = self.target.ctype, f" / {self.scale}" if self.scale != 1 else ""
        part = PARTS.get(t.brief, t).value
        parts = [f"({part})({x}{scale})" for x in (real, imaginary) if x]
        self.l.put(self.target, at, parts[0] if t.kind == "f" else f"aot_complex_{t.brief}({', '.join(parts)})")

    def turn(self, k: Index) -> tuple[str, str]:
        """exp(-2 pi i k / n)"""
        held = self.table(parts_of(np.arange(self.length) / self.n).reshape(2, -1))
        real, imaginary = (self.let(self.l.load(held, [Index((), part), k])) for part in (0, 1))
        return real, imaginary

    def load(self, place: Place, end: str) -> None:
        if self.halved and self.is_real[0]:
            with self.each(self.length, end) as (k, lane):
                pair = [self.given(place(k * 2 + j, lane))[0] for j in (0, 1)]
                self.put(k, lane, *pair)
        elif self.halved:
            self.load_half(place, end)
        elif self.is_real[1]:           # the second half is the first one in a mirror; the first number is real
            with self.each(self.n // 2 + 1, end) as (k, lane):
                self.put(k, lane, *self.given(place(k, lane)))
            with self.each(self.n // 2, end) as (k, lane):
                real, imaginary = self.given(place(k + 1, lane))
                self.put(k * -1 + (self.n - 1), lane, real, f"-{imaginary}")
            with self.each(1, end) as (k, lane):
                self.put(k, lane, self.given(place(k, lane))[0], "0")
        else:
            with self.each(self.length, end) as (k, lane):
                self.put(k, lane, *self.given(place(k, lane)))

    def load_half(self, place: Place, end: str) -> None:
        """Complex numbers whose transform has the real results as pairs.  The parts are those of the first and second ones."""
        h = self.length
        with self.each(1, end) as (k, lane):
            a, b = self.given(place(k, lane))[0], self.given(place(k + h, lane))[0]
            self.put(k, lane, f"{a} + {b}", f"{a} - {b}")
        with self.each(h - 1, end) as (k, lane):
            k = k + 1
            (ar, ai), (br, bi) = self.given(place(k, lane)), self.given(place(k * -1 + h, lane))
            (wr, wi), dr, di = self.turn(k), self.let(f"{ar} - {br}"), self.let(f"{ai} + {bi}")
            self.put(k, lane, f"{ar} + {br} - ({di} * {wr} - {dr} * {wi})", f"{ai} - {bi} + ({dr} * {wr} + {di} * {wi})")

    def store(self, room: Buffer, place: Place, end: str) -> None:
        if self.halved and self.is_real[1]:
            with self.each(self.length, end) as (k, lane):
                for j, part in enumerate(self.get(room, k, lane)):
                    self.keep(place(k * 2 + j, lane), part)
        elif self.halved:
            self.store_half(room, place, end)
        else:
            with self.each(self.target.shape[1], end) as (k, lane):
                self.keep(place(k, lane), *self.get(room, k, lane)[:1 if self.is_real[1] else 2])

    def store_half(self, room: Buffer, place: Place, end: str) -> None:
        """The first half of the transform of real numbers from that of their pairs."""
        h = self.length
        with self.each(1, end) as (k, lane):
            real, imaginary = self.get(room, k, lane)
            self.keep(place(k, lane), f"{real} + {imaginary}", "0")
            self.keep(place(k + h, lane), f"{real} - {imaginary}", "0")
        with self.each(h - 1, end) as (k, lane):
            k = k + 1
            (ar, ai), (br, bi) = self.get(room, k, lane), self.get(room, k * -1 + h, lane)
            (wr, wi), dr, di = self.turn(k), self.let(f"{ai} + {bi}"), self.let(f"{br} - {ar}")
            self.keep(place(k, lane), f"({ar} + {br} + ({dr} * {wr} - {di} * {wi})) / 2",
                      f"({ai} - {bi} + ({dr} * {wi} + {di} * {wr})) / 2")


def roots(steps: list[int]) -> np.ndarray:
    """What the helpers want, for one step after the other."""
    n, found = prod(steps), [np.zeros(0)]
    for p in steps:
        m = n // p
        if p not in SMALL:
            found.append(parts_of(np.arange(p) / p))
        found += [parts_of(np.arange(m) * j / n) for j in range(1 if p in SMALL else 0, p)]
        n = m
    return np.concatenate(found)


def parts_of(turns: np.ndarray) -> np.ndarray:
    """The real and then the imaginary parts of exp(-2 pi i turns)."""
    angles = -2 * np.pi * turns
    return np.concatenate([np.cos(angles), np.sin(angles)])
