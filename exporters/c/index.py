"""Positions as sums of loop variables, so that views of views cost no arithmetic that the sizes already decide."""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Index:
    """A sum of terms and a number.  terms: (variable or expression, how many values it takes, factor); values start at 0."""
    terms: tuple[tuple[str, int, int], ...] = ()
    constant: int = 0

    @staticmethod
    def of(name: str, extent: int) -> Index:
        """A variable that runs over 0 .. extent - 1."""
        return Index(((name, extent, 1),)) if extent != 1 else Index()

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.constant + other)
        found: dict[str, tuple[str, int, int]] = {}
        for name, extent, factor in (*self.terms, *other.terms):
            before = found.get(name, ("", 0, 0))[2]
            found[name] = name, extent, before + factor
        return Index(tuple(t for t in found.values() if t[2]), self.constant + other.constant)

    def __mul__(self, factor: int) -> Index:
        return Index(tuple((n, e, f * factor) for n, e, f in self.terms if factor), self.constant * factor)

    @property
    def highest(self) -> int: return self.constant + sum((e - 1) * f for _, e, f in self.terms if f > 0)

    @property
    def lowest(self) -> int: return self.constant + sum((e - 1) * f for _, e, f in self.terms if f < 0)

    def divide(self, n: int) -> tuple[Index, Index]:
        """(quotient, remainder) of a position that is not negative, by a size."""
        if n == 1:
            return self, Index()
        whole = Index(tuple((v, e, f // n) for v, e, f in self.terms if f % n == 0), self.constant // n)
        rest = Index(tuple(t for t in self.terms if t[2] % n), self.constant % n)
        if rest.lowest >= 0 and rest.highest < n:
            return whole, rest
        extent = self.highest // n + 1
        return Index.of(f"({self}) / {n}", extent), Index.of(f"({self}) % {n}", n)

    def __str__(self) -> str:
        words = []
        for name, _, factor in self.terms:
            name = f"({name})" if " " in name else name
            words.append(name if factor == 1 else f"-{name}" if factor == -1 else f"{factor} * {name}")
        if self.constant or not words:
            words.append(str(self.constant))
        return " + ".join(words).replace("+ -", "- ")


Position = Sequence[Index]


def strides(shape: Sequence[int]) -> list[int]:
    """How far neighbours along each axis are apart, in elements of a row-major array."""
    return [math.prod(shape[i + 1:]) for i in range(len(shape))]


def flat(at: Position, shape: Sequence[int]) -> Index:
    """The number of an element in row-major order."""
    total = Index()
    for i, n in zip(at, strides(shape)):
        total = total + i * n
    return total


def unflat(number: Index, shape: Sequence[int]) -> list[Index]:
    """The position of the element with this number."""
    at = []
    for n in strides(shape):
        whole, number = number.divide(n) if n else (Index(), Index())
        at.append(whole)
    return at
