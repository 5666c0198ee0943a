"""Vector quantization."""
from __future__ import annotations

from typing import Any

import aot.numpy as jnp
from aot.numpy._util import check
from aot.scipy._util import fused
from aot.scipy.linalg.factorizations import floats

Array = Any


def vq(obs: Array, code_book: Array, check_finite: bool = True) -> tuple[Array, Array]:
    """(index of the nearest code, distance to it) of each observation, (m, n) or (m,) scalars; code_book: (k, n)."""
    check("vq", obs, code_book)
    obs, codes = floats("vq", obs, code_book)
    if obs.ndim != codes.ndim:
        raise ValueError("Observation and code_book should have the same rank")
    if obs.ndim == 1:
        obs, codes = obs[..., None], codes[..., None]
    if obs.ndim != 2:
        raise ValueError("ndim different than 1 or 2 are not supported")
    return _vq(obs, codes)


@fused()
def _vq(obs: Array, codes: Array) -> tuple[Array, Array]:
    distance = jnp.linalg.norm(obs[:, None, :] - codes[None, :, :], axis=-1)
    nearest = jnp.argmin(distance, axis=-1)
    return nearest, jnp.min(distance, axis=-1)
