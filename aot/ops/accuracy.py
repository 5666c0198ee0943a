"""What accuracy a user asks of an elementwise function: `lax.exp(x, accuracy=...)`."""
from __future__ import annotations

import enum
from dataclasses import dataclass


class AccuracyMode(enum.Enum):
    """The platform's most accurate implementation, or its usual one."""
    HIGHEST = 1
    DEFAULT = 2


@dataclass(frozen=True)
class Tolerance:
    """Bounds on the error; implementations within them may be chosen.  At least one is positive."""
    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0

    def __post_init__(self):
        if self.atol < 0 or self.rtol < 0 or self.ulps < 0:
            raise ValueError("Tolerances must be non-negative.")
        if not (self.atol or self.rtol or self.ulps):
            raise ValueError("At least one of atol, rtol, or ulps must be set.")
