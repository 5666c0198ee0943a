"""Devices that are not here, to compile for: `jit(f, in_shardings=...).lower(...).compile()` over a mesh of them.

The result can be asked for its costs, memory and text, but not called.  `aot compile --target tpu:v5e:2x2` writes artifacts for
such devices.
"""
from __future__ import annotations

import os
from collections.abc import Sequence

from aot import targets, xla
from aot.environment import devices
from aot.errors import AotError
from aot.experimental.mesh_utils import create_device_mesh
from aot.sharding import Mesh


class TopologyDescription:
    """The devices of a machine."""

    def __init__(self, devices: list):
        self.devices = devices


def get_attached_topology(platform: str | None = None) -> TopologyDescription:
    """The devices of this machine."""
    return TopologyDescription(devices(platform))


def get_topology_desc(topology_name: str = "", platform: str | None = None, *, target_config: str = "", topology: str = "1x1x1"
                      ) -> TopologyDescription:
    """The devices of another machine.

    Args:
      topology_name: for TPUs generation and shape, as "v5e:2x2"; for GPUs the chip, as "h100" (`aot targets` lists them).
      platform: "tpu" (default) or "cuda".
      target_config: for GPUs, XLA's description of a chip, in place of its name.
      topology: for GPUs, partitions, hosts and devices, as "1x1x8".

    Raises AotError for an unknown machine, and where the plugin that compiles for it is not installed.
    """
    kind = platform or "tpu"
    if kind not in ("tpu", "cuda"):
        raise AotError(f"there is no topology for the platform {platform!r}", hint="choose 'tpu' or 'cuda'")
    described = targets.require(f"{kind}:{topology_name or ('h100' if target_config else '')}".rstrip(":"))
    os.environ.update({k: v for k, v in described.environment.items() if k not in os.environ})
    try:
        shape, config = described.topology if kind == "tpu" else topology, target_config or described.config
        return TopologyDescription(xla.absent_devices(kind, targets.plugin_path(kind), shape, config))
    except xla.XlaRuntimeError as e:
        raise AotError(f"there is no topology {topology_name or topology}: {str(e).splitlines()[0]}") from None


def make_mesh(topo: TopologyDescription, mesh_shape: Sequence[int], axis_names: tuple[str, ...], *,
              contiguous_submeshes: bool = False) -> Mesh:
    """A mesh over the devices of a topology."""
    return Mesh(create_device_mesh(mesh_shape, list(topo.devices), contiguous_submeshes=contiguous_submeshes), axis_names)
