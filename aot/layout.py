"""How the elements of an array are ordered in a device's memory.

A `Layout` orders the dimensions, a `Format` is a layout on devices.  Both name what arguments and results of `jit` have,
and what `device_put` gives; arrays compute the same whatever their layout is.
"""
from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Sequence

from aot.ops.families import LinearOp
from aot.sharding import NamedSharding, Sharding, SingleDeviceSharding
from aot.source import api_boundary
from aot.trace import ShapedArray, bind, bind1, typeof


class AutoLayout:
    """The layout that the compiler finds best: `Layout.AUTO`."""

    def __repr__(self): return "AUTO"


@dataclass(frozen=True)
class Layout:
    """The dimensions from the slowest to the fastest; tiles, where a device stores blocks of the fastest dimensions."""
    major_to_minor: tuple[int, ...]
    tiling: tuple[tuple[int, ...], ...] | None = None        # kept as ()
    sub_byte_element_size_in_bits: int = 0
    AUTO: ClassVar[AutoLayout] = AutoLayout()

    def __post_init__(self):
        object.__setattr__(self, "major_to_minor", tuple(self.major_to_minor))
        object.__setattr__(self, "tiling", tuple(map(tuple, self.tiling or ())))

    @property
    def is_default(self) -> bool:
        """Rows first, without tiles: what an array has that nobody asked for something else."""
        return self.major_to_minor == tuple(range(len(self.major_to_minor))) and not self.tiling

    def for_stored(self, a: ShapedArray) -> Layout:
        """The layout of what is stored for an array of this type.  Raises ValueError where it does not fit."""
        if sorted(self.major_to_minor) != list(range(a.ndim)):
            raise ValueError(f"{self} does not order the {a.ndim} dimensions of {a.str_short()}. hint: major_to_minor has each "
                             "dimension once, the slowest first")
        extra = range(a.ndim, len(a.physical.shape))
        return Layout((*self.major_to_minor, *extra), self.tiling, self.sub_byte_element_size_in_bits) if extra else self

    @property
    def text(self) -> str:
        """XLA's text, which has the fastest dimension first."""
        tiles = "".join(f"({','.join(map(str, t))})" for t in self.tiling or ())
        size = f"E({self.sub_byte_element_size_in_bits})" if self.sub_byte_element_size_in_bits else ""
        tail = f":{f'T{tiles}' if tiles else ''}{size}" if tiles or size else ""
        return f"{{{','.join(map(str, reversed(self.major_to_minor)))}{tail}}}"

    @classmethod
    def parse(cls, text: str, ndim: int | None = None) -> Layout:
        """The layout that XLA's text describes; ndim: without the dimensions that only the stored form has."""
        dims, _, tail = text.strip("{}").partition(":")
        order = [int(d) for d in reversed(dims.split(",")) if d]
        tiles = tuple(tuple(int(n) for n in t.split(",")) for t in re.findall(r"\(([\d,]+)\)", tail.partition("E")[0]))
        size = re.search(r"E\((\d+)\)", tail)
        return cls(tuple(d for d in order if ndim is None or d < ndim), tiles, int(size[1]) if size else 0)


class Format:
    """A layout (None, `Layout.AUTO` or a Layout) on the devices of a sharding (None: whichever suits)."""
    __slots__ = ("layout", "sharding")

    def __init__(self, layout: Layout | AutoLayout | None = None, sharding: Sharding | None = None):
        if layout is not None and not isinstance(layout, (Layout, AutoLayout)):
            raise TypeError(f"Format: layout is {layout!r} of type {type(layout).__name__}. hint: pass a Layout, Layout.AUTO "
                            "or None")
        if isinstance(layout, Layout) and not isinstance(sharding, (NamedSharding, SingleDeviceSharding)):
            raise ValueError(f"Format: a Layout needs to know its devices, but the sharding is {sharding!r}. hint: pass a "
                             "NamedSharding or a SingleDeviceSharding")
        if sharding is not None and not isinstance(sharding, Sharding):
            raise TypeError(f"Format: sharding is {sharding!r} of type {type(sharding).__name__}. hint: pass a "
                            "Sharding or None")
        self.layout, self.sharding = layout, sharding

    def __eq__(self, other):
        return isinstance(other, Format) and (self.layout, self.sharding) == (other.layout, other.sharding)

    def __hash__(self): return hash((self.layout, self.sharding))
    def __repr__(self): return f"Format(layout={self.layout!r}, sharding={self.sharding!r})"


class LaidOut(Sharding):
    """A sharding (None: as XLA likes) together with a layout: how programs and buffers carry a format.

    Buffers in the default layout have plain shardings, so that a program never takes one kind for the other."""

    def __init__(self, sharding: Sharding | None, layout: Layout | AutoLayout):
        self.sharding, self.layout = sharding, layout

    @property
    def bare(self) -> Any: return self.sharding

    @property
    def device_tuple(self) -> tuple: return self.sharding.device_tuple if self.sharding is not None else ()

    @property
    def is_fully_replicated(self) -> bool: return self.sharding is None or self.sharding.is_fully_replicated

    def tiles(self, ndim: int) -> Any:
        assert self.sharding is not None
        return self.sharding.tiles(ndim)

    def __eq__(self, other):
        return isinstance(other, LaidOut) and (self.sharding, self.layout) == (other.sharding, other.layout)

    def __hash__(self): return hash((self.sharding, self.layout))
    def __repr__(self): return f"LaidOut({self.sharding!r}, {self.layout!r})"


def placement(f: Format) -> Sharding | None:
    """A user's format as a sharding, `LaidOut` where it asks for more than the default layout."""
    if f.layout is None or isinstance(f.layout, Layout) and f.layout.is_default:
        return f.sharding
    return LaidOut(f.sharding, f.layout)


def mode(s: Sharding | None, a: ShapedArray) -> str:
    """What a program says of the layout of an argument or result."""
    if not isinstance(s, LaidOut):
        return "default"
    return "auto" if isinstance(s.layout, AutoLayout) else s.layout.for_stored(a).text


def settled(text: str, chosen: Sequence[str], results: int) -> str | None:
    """A module with the layouts that XLA chose in place of `auto`, or None where it can stay as it is.

    chosen: the layouts of all arguments and of the results, in order.  XLA takes one `auto` among the results for
    leave to choose all of them, so such a program is compiled again with what it chose."""
    asked = re.findall(_MODE, text)[-results:] if results else []
    if "auto" not in asked or set(asked) == {"auto"}:
        return None
    fresh = iter(chosen)
    return re.sub(_MODE, lambda m: (found := next(fresh)) and f'mhlo.layout_mode = "{found if m[1] == "auto" else m[1]}"', text)


_MODE = r'mhlo\.layout_mode = "([^"]*)"'


# ---- inside of programs ------------------------------------------------------------------------------------------------

class LayoutConstraint(LinearOp):
    """The identity, on a value that has this layout at this point."""
    name = "layout_constraint"

    def infer(self, x, *, layout):
        layout.for_stored(x)
        return [x]

    def transpose(self, cts, x, *, layout): return bind(self, *cts, layout=layout)

    def vmap(self, axis, args, dims, *, layout):
        """The mapped dimension is the slowest."""
        d = dims[0]
        order = (d, *[i + (i >= d) for i in layout.major_to_minor])
        return bind(self, *args, layout=Layout(order, layout.tiling, layout.sub_byte_element_size_in_bits)), [d]

    def lower(self, e, ins, outs, x, *, layout):
        from aot.ops.callbacks import layout_text
        text = layout_text(layout.for_stored(ins[0]).major_to_minor)
        return [e.op(f'stablehlo.custom_call @LayoutConstraint({x}) {{backend_config = "", operand_layouts = [{text}], '
                     f"result_layouts = [{text}]}} : ({ins[0].mlir}) -> {outs[0].mlir}")]

    def evaluate(self, args, params): return list(args)


layout_constraint_p = LayoutConstraint()


@api_boundary
def with_layout_constraint(x: Any, layouts: Any) -> Any:
    """x (every leaf of a tree), in these layouts at this point of a program.  Raises ValueError where one does not fit."""
    from aot.tree_util import broadcast_prefix, tree_flatten
    leaves, tree = tree_flatten(x)
    given = broadcast_prefix(layouts, x, is_leaf=lambda s: s is None, name="with_layout_constraint layouts")
    if bad := [s for s in given if s is not None and not isinstance(s, Layout)]:
        raise TypeError(f"with_layout_constraint takes Layouts, got {bad[0]!r}. hint: Layout(major_to_minor=(1, 0))")
    for leaf, s in zip(leaves, given):
        if s is not None:
            s.for_stored(typeof(leaf))
    return tree.unflatten([leaf if s is None else bind1(layout_constraint_p, leaf, layout=s) for leaf, s in zip(leaves, given)])
