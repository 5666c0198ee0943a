"""The refusal report: everything that a format cannot express in a program, all at once.

An exporter collects rows while it visits the program and ends with `raise_if_any`:

    report = Report("tflite")
    report.add("stablehlo.fft", "(tensor<8xcomplex<f64>>) -> ...", where="model.py:12", why="...", hint="...")
    report.raise_if_any()          # Refused
"""
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from aot.errors import AotError

from .stablehlo.ir import Op


@dataclass(frozen=True, order=True)
class Unsupported:
    """One use of an operation that a format cannot express.

    op: StableHLO name; types: "(operands) -> results"; where: the user's "file:line", "" if unknown;
    why: the reason; hint: what to do about it, "" if nothing.
    """
    op: str
    types: str = ""
    where: str = ""
    why: str = ""
    hint: str = ""


class Refused(AotError):
    """A program that cannot be exported; `rows` has the distinct uses and `counts` how often each occurs."""

    def __init__(self, format: str, rows: list[Unsupported]):
        self.format, self.counts = format, Counter(rows)
        self.rows = list(self.counts)
        super().__init__(self._text())

    def _text(self) -> str:
        total = sum(self.counts.values())
        head = f"cannot export to {self.format}: {total} unsupported operation{'s' * (total != 1)}"
        lines = [head, *(_line(row, n) for row, n in self.counts.items())]
        if not any(row.where for row in self.rows):
            lines.append("hint: artifacts and StableHLO files hold no source lines; `aot export MODULE:FUNCTION` tells them")
        return "\n".join(lines)

    def to_json(self) -> list[dict]:
        return [{"op": r.op, "types": r.types, "where": r.where, "count": n, "why": r.why, "hint": r.hint}
                for r, n in self.counts.items()]


def _line(row: Unsupported, count: int) -> str:
    times = f" x{count}" if count > 1 else ""
    at = f"\n      at {row.where}" if row.where else ""
    hint = f"\n      hint: {row.hint}" if row.hint else ""
    return f"  {row.op}{times} {row.types}{at}\n      {row.why}{hint}"


@dataclass
class Report:
    """Collects what a format cannot express."""
    format: str
    rows: list[Unsupported] = field(default_factory=list)

    def add(self, op: str, types: str = "", where: str = "", why: str = "", hint: str = "") -> None:
        self.rows.append(Unsupported(op, types, where, why, hint))

    def refuse(self, op: Op, why: str, hint: str = "") -> None:
        """Add one operation of a program."""
        given, made = (", ".join(str(v.type) for v in values) for values in (op.operands, op.results))
        name = op.name if "." in op.name else f"stablehlo.{op.name}"
        if op.name == "custom_call":
            name += f" @{op.attrs.get('call_target_name', '')}"
            hint = hint or "express it by operations of aot.numpy and aot.lax, which lower to StableHLO"
        self.add(name, f"({given}) -> ({made})", str(op.location), why, hint)

    def raise_if_any(self) -> None:
        """Raises Refused if anything was added."""
        if self.rows:
            raise Refused(self.format, self.rows)
