"""Devices in grids for meshes."""
from __future__ import annotations

from math import prod
from typing import Any, Sequence

import numpy as np

from aot import xla


def create_device_mesh(mesh_shape: Sequence[int], devices: Sequence[Any] | None = None, *, contiguous_submeshes: bool = False,
                       allow_split_physical_axes: bool = False) -> np.ndarray:
    """Devices in a grid of this shape, in the order of their ids (hosts and CPUs have no torus to follow).

    contiguous_submeshes and allow_split_physical_axes are about such a torus, and have no effect."""
    shape = (mesh_shape,) if isinstance(mesh_shape, int) else tuple(mesh_shape)
    found = list(devices) if devices is not None else xla.devices()
    if prod(shape) != len(found):
        raise ValueError(f"Number of devices {len(found)} must equal the product of mesh_shape {shape}")
    return np.array(sorted(found, key=lambda d: d.id), dtype=object).reshape(shape)


def create_hybrid_device_mesh(mesh_shape: Sequence[int], dcn_mesh_shape: Sequence[int], devices: Sequence[Any] | None = None, *,
                              process_is_granule: bool = False, should_sort_granules_by_key: bool = True,
                              allow_split_physical_axes: bool = False) -> np.ndarray:
    """A grid whose dimension i has dcn_mesh_shape[i] granules (slices, or processes) of mesh_shape[i] devices each."""
    found = list(devices) if devices is not None else xla.devices()
    key = (lambda d: d.process_index) if process_is_granule else (lambda d: getattr(d, "slice_index", d.process_index))
    granules: dict[Any, list] = {}
    for d in found:
        granules.setdefault(key(d), []).append(d)
    order = sorted(granules) if should_sort_granules_by_key else list(granules)
    if prod(dcn_mesh_shape) != len(order):
        raise ValueError(f"Number of slices {len(order)} must equal the product of dcn_mesh_shape {tuple(dcn_mesh_shape)}")
    blocks = [create_device_mesh(mesh_shape, granules[g]) for g in order]
    n = len(mesh_shape)
    grid = np.stack(blocks).reshape(*dcn_mesh_shape, *mesh_shape)
    mixed = grid.transpose([i for pair in zip(range(n), range(n, 2 * n)) for i in pair])
    return mixed.reshape([a * b for a, b in zip(dcn_mesh_shape, mesh_shape)])


#: device kind -> function that orders its devices; CPUs need none
device_kind_handler_dict: dict = {}
