"""Running portable artifacts: XLA, on the CPU."""
from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from aot.exporters import xla_run


def open_file(path: str) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """A function from the program's inputs to its results."""
    with open(path, "rb") as f:
        return xla_run.function(f.read())
