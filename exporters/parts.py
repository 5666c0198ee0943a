"""Complex arrays where a format has none: as two arrays, the real and the imaginary part."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def split(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Arrays with two in the place of each complex one."""
    return [part for x in arrays for part in ((x.real, x.imag) if x.dtype.kind == "c" else (x,))]


def joined(parts: Sequence[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """One array of its parts."""
    if len(parts) == 1:
        return parts[0]
    both = np.empty(parts[0].shape, dtype)
    both.real, both.imag = parts
    return both
