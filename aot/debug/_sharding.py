"""Printing which device holds which part of an array."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aot.sharding import Sharding


def visualize(arr: Any, **kwargs) -> None:
    """Print the layout of a one- or two-dimensional array."""
    visualize_sharding(arr.shape, arr.sharding, **kwargs)


def visualize_sharding(shape: Sequence[int], sharding: Sharding, *, use_color: bool = True, scale: float = 1.,
                       min_width: int = 9, max_width: int = 80, color_map: Any = None) -> None:
    """Print a box for each part of an array of this shape, with the ids of the devices that hold it.

    min_width: of a box, in characters.  The other options are about colours and scaling, and have no effect."""
    if len(shape) not in (1, 2):
        raise ValueError("`visualize_sharding` only works for shapes with 1 and 2 dimensions.")
    rows = [tuple(shape)] if len(shape) == 1 else None
    parts: dict[tuple, list] = {}
    for device, index in sharding.devices_indices_map(shape).items():
        bounds = tuple(s.indices(n)[:2] for s, n in zip(index, shape))
        parts.setdefault(bounds if rows is None else ((0, 1), *bounds), []).append(device)
    tops = sorted({b[0] for b in parts})
    print("\n".join(boxes([[parts[top, left] for left in sorted({b[1] for b in parts})] for top in tops], min_width)))


def boxes(grid: list[list[list]], min_width: int) -> list[str]:
    """Lines of a table with one cell for each part."""
    cells = [[f"{d[0].platform.upper()} {','.join(str(x.id) for x in d)}" for d in row] for row in grid]
    width = max(min_width, *(len(c) + 2 for row in cells for c in row))
    edge = lambda left, mid, right: left + mid.join(["─" * width] * len(cells[0])) + right
    lines = [edge("┌", "┬", "┐")]
    for i, row in enumerate(cells):
        lines += ["│" + "│".join(c.center(width) for c in row) + "│"]
        lines.append(edge("├", "┼", "┤") if i < len(cells) - 1 else edge("└", "┴", "┘"))
    return lines


def inspect_array_sharding(value: Any, *, callback: Callable[[Sharding], None]) -> None:
    """Call back with the sharding of a concrete value; a traced value is on the device its program runs on."""
    from aot.trace import is_tracer
    if is_tracer(value):
        from aot import xla
        from aot.sharding import SingleDeviceSharding
        callback(SingleDeviceSharding(xla.default_device()))
        return
    callback(value.sharding)
