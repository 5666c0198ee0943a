"""Window functions for filters and spectra."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aot import lax
from aot.numpy._util import concrete_index, default_float
from aot.numpy.elementwise import cos, i0, sqrt
from aot.numpy.ufuncs import abs


def _window(name: str, M: Any, formula: Callable[[Any, int], Any]) -> Any:
    """`formula(n, M)` of the positions n = 0..M-1; all ones for a window of at most one point."""
    M = concrete_index(M, f"M argument of jnp.{name}")
    if M <= 1:
        return lax.full((M,), 1, default_float())
    return formula(lax.iota(default_float(), M), M)


def bartlett(M: int) -> Any:
    """Triangular window of M points."""
    return _window("bartlett", M, lambda n, M: 1 - abs(2 * n + 1 - M) / (M - 1))


def blackman(M: int) -> Any:
    """Blackman window of M points: three terms of cosines."""
    turn = 2 * np.pi
    return _window("blackman", M, lambda n, M: 0.42 - 0.5 * cos(turn * n / (M - 1)) + 0.08 * cos(2 * turn * n / (M - 1)))


def hamming(M: int) -> Any:
    """Hamming window of M points: a raised cosine that does not reach zero."""
    return _window("hamming", M, lambda n, M: 0.54 - 0.46 * cos(2 * np.pi * n / (M - 1)))


def hanning(M: int) -> Any:
    """Hann window of M points: a raised cosine."""
    return _window("hanning", M, lambda n, M: 0.5 * (1 - cos(2 * np.pi * n / (M - 1))))


def kaiser(M: int, beta: Any) -> Any:
    """Kaiser window of M points with shape parameter `beta`."""

    def formula(n, M):
        half = 0.5 * (M - 1)
        return i0(beta * sqrt(1 - ((n - half) / half) ** 2)) / i0(beta)

    return _window("kaiser", M, formula)
