"""Random sparse arrays."""
from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import dtypes, random
from aot.experimental.sparse._bcoo import BCOO
from aot.experimental.sparse._storage import Layout
from aot.experimental.sparse.util import tuple_of
from aot.transforms.batching import vmap


def random_bcoo(key: Any, shape: Sequence[int], *, dtype: Any = np.float64, indices_dtype: Any = None, nse: float | int = 0.2,
                n_batch: int = 0, n_dense: int = 0, unique_indices: bool = True, sorted_indices: bool = False,
                generator: Callable[..., Any] = random.uniform, **kwds: Any) -> BCOO:
    """A BCOO array with random elements at random positions.

    nse: how many elements each batch stores, or the fraction of the sparse dimensions if 0 < nse < 1.  unique_indices: no
    position twice.  generator(key, shape=, dtype=, **kwds) makes the values.  Raises ValueError for sizes that do not fit.
    """
    shape = tuple_of(shape)
    n_batch, n_dense = operator.index(n_batch), operator.index(n_dense)
    if n_batch < 0 or n_dense < 0 or n_batch + n_dense > len(shape):
        raise ValueError(f"Invalid n_batch={n_batch}, n_dense={n_dense} for {shape=}")
    batch, sparse, dense = Layout(n_batch, len(shape) - n_batch - n_dense, n_dense, 0).groups(shape)
    size = math.prod(sparse)
    nse = _number(nse, size)
    dtype = dtypes.canonicalize_dtype(dtype)
    data_key, *keys = random.split(key, math.prod(batch) + 1)
    data = generator(data_key, shape=(*batch, nse, *dense), dtype=dtype, **kwds)
    indices_dtype = indices_dtype or jnp.array(0).dtype

    def positions(k):
        if not sparse:
            return jnp.empty((nse, 0), indices_dtype)
        if unique_indices:
            flat = jnp.asarray(random.choice(k, size, shape=(nse,), replace=False), indices_dtype)
        else:
            flat = random.randint(k, (nse,), 0, size, dtype=indices_dtype)
        return jnp.stack(jnp.unravel_index(flat, sparse), axis=-1).astype(indices_dtype)
    if keys:
        indices = vmap(positions)(jnp.stack(keys)).reshape(*batch, nse, len(sparse))
    else:
        indices = jnp.empty((*batch, nse, len(sparse)), indices_dtype)
    mat = BCOO((data, indices), shape=shape)
    return mat.sort_indices() if sorted_indices else mat


def _number(nse: float | int, size: int) -> int:
    """nse as a number of elements."""
    if 0 < nse < 1:
        nse = math.ceil(nse * size)
    if nse != int(nse):
        raise ValueError(f"nse must be a fraction below 1 or an integer, got {nse}")
    if not 0 <= nse <= size:
        raise ValueError(f"got nse={nse}, expected to be between 0 and {size}")
    return int(nse)
