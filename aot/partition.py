"""Meshes and shardings as text, for programs that are compiled for devices that need not be here.

    mesh        data=4,model=2                 axes and their sizes
    sharding    params=-,model                 for each dimension the mesh axes that split it: a name, several joined by
                                               `+`, or `-` for none; further dimensions are not split
    which       params, params.w1, x, result   an argument, a part of one, or of the result; `*` stands for anything

The last rule that fits a leaf, or something around it, holds.
"""
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np

from aot.errors import AotError
from aot.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec, absent_mesh


def parse_mesh(text: str) -> Mesh:
    """The mesh of abstract devices that a text describes.  Raises AotError."""
    axes: dict[str, int] = {}
    for part in text.split(","):
        name, equals, size = (p.strip() for p in part.partition("="))
        if not equals or not name.isidentifier() or not size.isdigit() or not int(size) or name in axes:
            raise AotError(f"mesh {text!r}: {part.strip()!r} is not an axis", hint="write it like data=4,model=2")
        axes[name] = int(size)
    count = int(np.prod([*axes.values()], dtype=int))
    if count > 1 << 20:
        raise AotError(f"mesh {text!r} has {count} devices", hint="at most 1,048,576")
    return absent_mesh(AbstractMesh([*axes.values()], [*axes]))


def parse_spec(text: str, mesh: Mesh) -> PartitionSpec:
    """`data,-,model+expert` -> PartitionSpec("data", None, ("model", "expert")).  Raises AotError."""
    dims = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        names = () if part in ("-", "None") else tuple(n.strip() for n in part.split("+"))
        if unknown := [n for n in names if n not in mesh.shape]:
            raise AotError(f"sharding {text!r}: the mesh has no axis {unknown[0]!r}",
                           hint=f"it has {', '.join(f'{k}={v}' for k, v in mesh.shape.items())}; `-` leaves a dimension whole")
        dims.append(names or None)
    while dims and dims[-1] is None:        # so that `-` fits scalars too
        dims.pop()
    return PartitionSpec(*dims)


def dotted(leaf: str) -> str:
    """`params['layers'][0]['w']` -> `params.layers.0.w`"""
    return re.sub(r"\.+", ".", re.sub(r"\[(?:'([^']*)'|\"([^\"]*)\"|([^\]]*))\]", r".\1\2\3", leaf))


def assign(rules: Mapping[str, str], leaves: Mapping[str, tuple[int, ...]], mesh: Mesh,
           what: str) -> list[NamedSharding | None]:
    """The sharding of each leaf (name -> shape), None where no rule speaks of it.

    Raises AotError for a rule that fits no leaf, and for one that does not fit the shape of its leaf."""
    found: list[NamedSharding | None] = [None] * len(leaves)
    for pattern, text in rules.items():
        spec, fits = parse_spec(text, mesh), False
        for i, (name, shape) in enumerate(leaves.items()):
            if _fits(dotted(pattern), dotted(name)):
                fits = True
                found[i] = _checked(NamedSharding(mesh, spec), name, shape)
        if not fits:
            raise AotError(f"{what} {pattern!r} names nothing", hint=f"there are: {', '.join(map(dotted, leaves)) or 'none'}")
    return found


def _fits(pattern: str, name: str) -> bool:
    parts = name.split(".")
    return any(fnmatchcase(".".join(parts[:n]), pattern) for n in range(1, len(parts) + 1))


def _checked(sharding: NamedSharding, name: str, shape: tuple[int, ...]) -> NamedSharding:
    """The sharding, which must divide the shape."""
    try:
        dims, _ = sharding.tiles(len(shape))
    except ValueError:
        raise AotError(f"{dotted(name)} has {len(shape)} dimensions, its sharding {sharding.spec} has more") from None
    for i, (n, d) in enumerate(zip(shape, dims)):
        if n % d:
            raise AotError(f"{dotted(name)}: dimension {i} of size {n} cannot be split over {d} devices",
                           hint="choose other axes for it, or `-` to leave it whole")
    return sharding


def onto(sharding: NamedSharding | None, mesh: Mesh) -> NamedSharding | None:
    """The same sharding over other devices."""
    return None if sharding is None else NamedSharding(mesh, sharding.spec)


def described(sharding: NamedSharding, ndim: int) -> list[list[str]]:
    """For each dimension the axes that split it, as the manifest says it."""
    return [list(sharding.spec.axes(i)) for i in range(ndim)]


def collectives(hlo: str) -> dict[str, dict[str, int]]:
    """{operation: {"count", "bytes"}}: what the devices exchange in one run, by the text of a compiled program.

    bytes: of the results on one device; operations in loops count once."""
    found: dict[str, dict[str, int]] = {}
    for types, name in re.findall(rf"= (.*?) ({'|'.join(_COLLECTIVES)})(?:-start)?\(", hlo):
        entry = found.setdefault(name, {"count": 0, "bytes": 0})
        entry["count"] += 1
        entry["bytes"] += sum(_bytes(t, dims) for t, dims in re.findall(r"(\w+)\[([\d,]*)\]", types))
    return found


_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all", "collective-permute",
                "collective-broadcast")


def _bytes(kind: str, dims: str) -> int:
    bits = int(m[0]) if (m := re.search(r"\d+", kind)) else 8
    return int(np.prod([int(d) for d in dims.split(",") if d], dtype=int)) * max(bits, 8) // 8


__all__: Sequence[str] = ("assign", "collectives", "described", "dotted", "onto", "parse_mesh", "parse_spec")
