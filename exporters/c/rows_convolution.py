"""The row of convolution: products of matrices, one of which is gathered from the input, or plain sums where little is shared.

A convolution is a nest of axes: groups, positions and features of the result, and what is summed.  Zeros between elements of
the input are never multiplied: positions of the result that meet the same part of the kernel are a nest of their own (`Phase`).
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product as combinations
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from aot.exporters.stablehlo import Op, Value

from .index import Index, strides
from .lowering import Lowering, is_splat, row
from .memory import Buffer
from .rows_movement import fill, spread
from .rows_products import TILE_ROWS, accumulator, add, add_product, columns_of, product
from .rows_reduction import attribute, paddings
from .types import literal, of

GATHERED = 1 << 17      # bytes that are gathered at a time
UNROLLED = 25           # products that are written one after the other
DEEP = 256              # products that are enough for a part of a sum
DEEPEST = 4096          # products from which on a sum is made in parts
LANES = 8               # neighbours from which on compilers make good vectors


Place = tuple[Index, Index, Index]      # in the input, the kernel and the result


class Axis(NamedTuple):
    """A loop: its steps, and how far each of them goes in the input, the kernel and the result."""
    n: int
    x: int = 0
    k: int = 0
    out: int = 0


@dataclass(frozen=True)
class Nest:
    """A convolution without padding.  start: the first elements.  taps: what is summed."""
    source: Buffer
    kernel: Value
    out: Buffer
    start: Axis
    group: Axis
    positions: list[Axis]
    feature: Axis
    taps: list[Axis]

    @property
    def depth(self) -> int: return prod(a.n for a in self.taps)


class Phase(NamedTuple):
    """Positions of the result along an axis, `first` + i `period`, that meet the same part of the kernel, `tap` + j `skip`.

    They read the input at `start` + i `stride` + j `dilation`."""
    first: int
    period: int
    count: int
    tap: int
    skip: int
    taps: int
    start: int
    stride: int
    dilation: int

    @property
    def end(self) -> int: return self.start + (self.count - 1) * self.stride + (self.taps - 1) * self.dilation + 1


def phases(size: int, window: int, stride: int, dilation: int, between: int, low: int) -> list[Phase]:
    """between: how far the elements of the input are apart.  low: zeros before the first one."""
    period, skip = between // gcd(stride, between), between // gcd(dilation, between)
    found = []
    for first in range(min(period, size)):
        taps = [j for j in range(window) if (first * stride + j * dilation - low) % between == 0]
        tap = taps[0] if taps else 0
        found.append(Phase(first, period, -(-(size - first) // period), tap, skip, len(taps),
                           (first * stride + tap * dilation - low) // between, stride * period // between,
                           dilation * skip // between))
    return found


@row("convolution")
def convolution(l: Lowering, op: Op) -> None:
    (x, kernel), d = op.operands, op.attrs["dimension_numbers"]
    spatial, rank = d.input_spatial_dimensions, x.rank - 2
    options = [attribute(op, name, 1, rank) for name in ("window_strides", "rhs_dilation", "lhs_dilation")]
    low, sizes = [low for low, _ in paddings(op, rank)], [op.shape[i] for i in d.output_spatial_dimensions]
    window = [kernel.shape[i] for i in d.kernel_spatial_dimensions]
    found = [phases(*numbers) for numbers in zip(sizes, window, *options, low)]
    before, behind = [0] * x.rank, [0] * x.rank
    for axis, ps in zip(spatial, found):
        before[axis] = max([0, *(-p.start for p in ps if p.taps)])
        behind[axis] = max([0, *(p.end - x.shape[axis] for p in ps if p.taps)])
    source, out, t = padded(l, x, before, behind), l.new(op.result), of(op.dtype)
    nests = [nest(op, source, out, [before[i] for i in spatial], chosen) for chosen in combinations(*found)]
    if any(n.depth == 0 for n in nests):
        with l.kernel():
            fill(l, out, literal(0, t))
    for n in nests:
        if n.depth:
            (in_sums if is_shallow(n) else in_products)(l, n)


def padded(l: Lowering, x: Value, before: Sequence[int], behind: Sequence[int]) -> Buffer:
    """A value with zeros around it."""
    if not any((*before, *behind)):
        return l.stored(x)
    plain = l.plan.is_plain(x)
    if not plain:
        l.stored(x)
    with l.kernel():
        made = l.temporary(of(x.dtype), *(a + n + b for a, n, b in zip(before, x.shape, behind)))
        fill(l, made, literal(0, made.ctype))
        spread(l, made, x, before, [0] * x.rank)
    return made


def nest(op: Op, source: Buffer, out: Buffer, before: Sequence[int], chosen: Sequence[Phase]) -> Nest:
    """The positions of one phase of each axis."""
    d, weights = op.attrs["dimension_numbers"], op.operands[1]
    xs, ks, outs = strides(source.shape), strides(weights.shape), strides(out.shape)
    groups, parts = int(op.attrs["feature_group_count"]), int(op.attrs["batch_group_count"])
    inner, batches = weights.shape[d.kernel_input_feature_dimension], out.shape[d.output_batch_dimension]
    per = out.shape[d.output_feature_dimension] // (groups * parts)
    x_batch, x_feature = xs[d.input_batch_dimension], xs[d.input_feature_dimension]
    k_feature, out_feature = ks[d.kernel_output_feature_dimension], outs[d.output_feature_dimension]
    x_group = batches * x_batch if parts > 1 else inner * x_feature
    positions, taps = [Axis(batches, x=x_batch, out=outs[d.output_batch_dimension])], \
        [Axis(inner, x=x_feature, k=ks[d.kernel_input_feature_dimension])]
    x0 = k0 = out0 = 0
    reversal = attribute(op, "window_reversal", 0, len(chosen))
    for i, p in enumerate(chosen):
        x, k, o = (s[dims[i]] for s, dims in ((xs, d.input_spatial_dimensions), (ks, d.kernel_spatial_dimensions),
                                              (outs, d.output_spatial_dimensions)))
        window, turned = weights.shape[d.kernel_spatial_dimensions[i]], bool(reversal[i])
        positions.append(Axis(p.count, x=p.stride * x, out=p.period * o))
        taps.append(Axis(p.taps, x=p.dilation * x, k=-p.skip * k if turned else p.skip * k))
        x0, out0 = x0 + (p.start + before[i]) * x, out0 + p.first * o
        k0 += (window - 1 - p.tap if turned else p.tap) * k
    return Nest(source, weights, out, Axis(1, x0, k0, out0), Axis(groups * parts, x_group, per * k_feature, per * out_feature),
                sorted((a for a in positions if a.n != 1), key=lambda a: -a.out), Axis(per, k=k_feature, out=out_feature),
                [a for a in taps if a.n != 1])


def is_shallow(n: Nest) -> bool:
    """Whether elements of the input meet so few features that sums over neighbours in the result are as good as products."""
    return n.feature.n <= 2 and loops_of(n)[-1].n >= LANES


def loops_of(n: Nest) -> list[Axis]:
    """The axes of the result, the longest steps first."""
    return [Axis(1), *sorted((a for a in (n.group, n.feature, *n.positions) if a.n != 1), key=lambda a: -a.out)]


@contextmanager
def within(l: Lowering, axes: Sequence[Axis], start: Place) -> Iterator[Place]:
    """Loops over axes -> the places in the input, the kernel and the result."""
    with l.w.loops([a.n for a in axes]) as at:
        x, k, out = (sum((i * a[part] for i, a in zip(at, axes)), first) for part, first in enumerate(start, 1))
        yield x, k, out


def begin(n: Nest) -> Place: return Index((), n.start.x), Index((), n.start.k), Index((), n.start.out)


# ---- sums ------------------------------------------------------------------------------------------------------------

def in_sums(l: Lowering, n: Nest) -> None:
    """For each tap, or some of them at once, neighbours in the result."""
    around, few, room = [], [], UNROLLED
    for a in reversed(n.taps):
        part = max(i for i in range(1, room + 1) if a.n % i == 0)
        few.insert(0, a._replace(n=part))
        around.insert(0, Axis(a.n // part, a.x * part, a.k * part))
        room //= part
    around = [a for a in around if a.n != 1]
    *outer, lane = loops_of(n)
    with summed(l, n, bool(around)) as total:
        x, kernel, t = in_line(n.source), in_line(l.stored(n.kernel)), accumulator(n.out.ctype)
        with l.kernel(), within(l, [*outer, *around, lane], begin(n)) as (at, by, to):
            name = l.w.name("a")
            l.w.line(f"{t.value} {name} = {l.load(total, [to]) if around else literal(0, t)};")
            for i in np.ndindex(*(a.n for a in few)):
                place, weight = (sum(j * a[part] for j, a in zip(i, few)) for part in (1, 2))
                factors = l.element(x, [at + place]), l.element(kernel, [by + weight])
                l.w.line(add_product(t, x.ctype, kernel.ctype, name, *factors))
            l.put(total, [to], name)


@contextmanager
def summed(l: Lowering, n: Nest, in_parts: bool) -> Iterator[Buffer]:
    """Where the results of a nest are made: zeros at first, of the type in which products are summed, if that is in parts."""
    out, t = in_line(n.out), accumulator(n.out.ctype)
    total = out if t == out.ctype or not in_parts else l.temporary(t, out.storage.size)
    if in_parts:
        with l.kernel(), within(l, loops_of(n), begin(n)) as (_, _, to):
            l.put(total, [to], literal(0, t))
    yield total
    if total is not out:
        with l.kernel(), within(l, loops_of(n), begin(n)) as (_, _, to):
            l.put(out, [to], l.load(total, [to]))


def in_line(b: Buffer) -> Buffer: return b.reshaped((b.storage.size,))


# ---- products ----------------------------------------------------------------------------------------------------------

def merged(axes: Sequence[Axis]) -> list[Axis]:
    """The same elements in as few axes as possible."""
    found: list[Axis] = []
    for a in axes:
        if found and all(b == a.n * step for b, step in zip(found[-1][1:], a[1:])):
            found[-1] = a._replace(n=found[-1].n * a.n)
        elif a.n != 1:
            found.append(a)
    return found


def step_of(axes: Sequence[Axis], part: int) -> int | None:
    """How far neighbours along axes are apart if that is always the same.  part: of an `Axis`."""
    found = merged([Axis(a.n, a[part]) for a in axes])
    return found[0].x if len(found) == 1 else None if found else 1


@dataclass(frozen=True)
class Matrix:
    """The kernel as a matrix of taps and features.

    start: where the convolution begins.  around: taps that are added one after the other.  step: how far `taps` are apart."""
    kernel: Buffer
    start: Place
    group: Axis
    feature: Axis
    around: list[Axis]
    taps: list[Axis]
    step: int

    @property
    def depth(self) -> int: return prod(a.n for a in self.taps)


def matrix(l: Lowering, n: Nest, in_rows: bool) -> Matrix:
    """A copy of the kernel where its taps are not equally far apart; long sums in parts."""
    around, taps, start = [], sorted(n.taps, key=lambda a: -a.k) or [Axis(1)], begin(n)

    def inside() -> int: return prod(a.n for a in taps[1:])
    while inside() >= DEEP and (step_of(taps, 2) is None or inside() * taps[0].n > DEEPEST):
        around.append(taps.pop(0))
    if inside() * taps[0].n > DEEPEST:
        part = max(i for i in range(1, DEEPEST + 1) if taps[0].n % i == 0)
        if part * inside() >= DEEP:
            first, taps[0] = taps[0], taps[0]._replace(n=part)
            around.append(Axis(first.n // part, first.x * part, first.k * part))
    step = step_of(taps, 2)
    if step is not None and step > 0 and (step == 1 or n.feature.n > 1):
        return Matrix(l.stored(n.kernel), start, n.group, n.feature, around, taps, step)
    taps.sort(key=lambda a: -a.x)
    order = [n.group, *around, *([*taps, n.feature] if in_rows else [n.feature, *taps])]
    kernel = copied(l, n.kernel, n.start.k, order)
    group, *order = (a._replace(k=step) for a, step in zip(order, strides(kernel.shape)))
    around, rest = order[:len(around)], order[len(around):]
    feature, taps = (rest[-1], rest[:-1]) if in_rows else (rest[0], rest[1:])
    return Matrix(kernel, (start[0], Index(), start[2]), group, feature, around, taps, n.feature.n if in_rows else 1)


@dataclass(frozen=True)
class Block:
    """What is computed at a time: a product for some positions, which are its rows or its columns.

    steps: how far positions and taps are apart in the input where it is used as it lies, else it is gathered in `room`.
    part: where the product is made if not in `total`.  multiply: writes it."""
    source: Buffer
    matrix: Matrix
    positions: list[Axis]
    in_rows: bool
    steps: tuple[int, int] | None
    room: Buffer
    part: Buffer | None
    total: Buffer
    multiply: Callable[..., None]

    def write(self, l: Lowering, place: Place, end: str) -> None:
        """end: how many of the first of the positions there are, if less than all."""
        (at, by, to), m, size = place, self.matrix, prod(a.n for a in self.positions)
        count = f"{end} * {prod(a.n for a in self.positions[1:])}" if end else size
        if self.steps is None:
            with self.moves(l, m.taps, 1, end) as (there, here):
                l.w.line(f"{l.element(self.room, [here], True)} = {l.element(self.source, [at + there])};")
        x = l.pointer(self.room) if self.steps is None else l.pointer(self.source, at)
        target, kernel = l.pointer(self.part or self.total, Index() if self.part else to, True), l.pointer(m.kernel, by)
        if self.in_rows:
            row = m.feature.n if self.part else step_of(self.positions, 3)
            self.multiply((x, kernel, target), count, m.feature.n, (*(self.steps or (m.depth, 1)), m.step, m.feature.k, row))
        else:
            position, tap = self.steps or (1, size)
            self.multiply((kernel, x, target), m.feature.n, count,
                          (m.feature.k, m.step, tap, position, size if self.part else m.feature.out))
        if self.part:
            with self.moves(l, [m.feature], 3, end) as (there, here):
                element, value = l.element(self.total, [to + there], True), l.load(self.part, [here])
                kept = f"{element} = {self.total.ctype.store(value)};"
                l.w.line(add(self.total.ctype, element, value) if m.around else kept)

    @contextmanager
    def moves(self, l: Lowering, others: Sequence[Axis], part: int, end: str) -> Iterator[tuple[Index, Index]]:
        """Loops over positions and other axes -> the place by these steps of theirs, and that in rows and columns."""
        every = [*self.positions, *others] if self.in_rows else [*others, *self.positions]
        walk = [Axis(a.n, a[part], 0, step) for a, step in zip(every, strides([a.n for a in every]))]
        cut = len(others) if end and not self.in_rows else 0
        before, behind = merged(walk[:cut]), [walk[cut], *merged(walk[cut + 1:])] if end else merged(walk)
        with l.w.loops([a.n for a in before]) as i, l.w.loops([a.n for a in behind], end) as j:
            at = list(zip([*i, *j], [*before, *behind]))
            yield sum((x * a.x for x, a in at), Index()), sum((x * a.out for x, a in at), Index())


def in_products(l: Lowering, n: Nest) -> None:
    """The kernel times parts of the input that are gathered; columns are features, or positions if those are neighbours."""
    in_rows = n.feature.out == 1 or n.feature.n == 1        # positions are rows
    m, types = matrix(l, n, in_rows), (n.source.ctype, of(n.kernel.dtype))
    outer = [a for a in n.positions if not in_rows and a.out > n.feature.out]
    positions = [a for a in n.positions if a not in outer] or [Axis(1)]
    position, tap = step_of(positions, 1), step_of(m.taps, 1)
    steps = None if position is None or tap is None else (position, tap)
    cut, chunk = 0, positions[0].n
    if not is_direct(m, positions, in_rows) or n.feature.n == 1 and steps != (m.depth, 1):
        steps = None
    if steps is None:
        cut, chunk = blocks(positions, m.depth * types[0].bits // 8, TILE_ROWS if in_rows else columns_of(n.out.ctype))
    a, inner = positions[cut], [positions[cut]._replace(n=chunk), *positions[cut + 1:]]
    size, source = prod(b.n for b in inner), in_line(n.source)
    with summed(l, n, bool(m.around)) as total:
        room = source if steps else l.temporary(types[0], m.depth * size)
        part = None if is_direct(m, inner, in_rows) else l.temporary(total.ctype, size * m.feature.n)
        left, right = types if in_rows else reversed(types)
        multiply = product(l, left, right, total.ctype, m.depth, n.feature.n == 1)
        block = Block(source, m, inner, in_rows, steps, room, part, total, multiply)
        with l.kernel(), within(l, [m.group, *outer, *positions[:cut]], m.start) as (at, by, to), \
                l.w.parts(a.n, chunk) as (i, end):
            with within(l, m.around, (at + i * a.x, by, to + i * a.out)) as place:
                block.write(l, place, end)


def is_direct(m: Matrix, positions: Sequence[Axis], in_rows: bool) -> bool:
    """Whether a product may be made where its elements belong."""
    step = step_of(positions, 3)
    return not m.around and (step == 1 if not in_rows or m.feature.n == 1 else step is not None)
def copied(l: Lowering, kernel: Value, start: int, axes: Sequence[Axis]) -> Buffer:
    """The elements of a kernel that axes reach, in this order."""
    shape, array = tuple(a.n for a in axes), kernel.constant
    if array is not None and kernel not in l.env and not is_splat(array):
        numbers = start + sum(np.arange(a.n).reshape(-1, *[1] * i) * a.k for i, a in enumerate(reversed(axes)))
        return Buffer(l.table(np.ascontiguousarray(array).reshape(-1)[numbers]), shape)
    source = l.stored(kernel)
    with l.kernel():
        made = l.temporary(source.ctype, *shape)
        with l.w.loops(shape) as at:
            place = sum((i * a.k for i, a in zip(at, axes)), Index((), start))
            l.w.line(f"{l.element(made, at, True)} = {l.element(in_line(source), [place])};")
    return made


def blocks(positions: Sequence[Axis], depth: int, tile: int) -> tuple[int, int]:
    """Which axis of positions is cut, and into how many of its steps, so that what is gathered at a time is not too much and
    fills whole tiles.  depth: bytes that are gathered for one position."""
    found, most = [], max(GATHERED // depth, tile)
    for axis, a in enumerate(positions):
        around, rest = prod(b.n for b in positions[:axis]), prod(b.n for b in positions[axis + 1:])
        for chunk in range(1, min(a.n, most // rest) + 1):
            tiles = around * (a.n // chunk * -(-chunk * rest // tile) + -(-(a.n % chunk) * rest // tile))
            found.append((tiles, -chunk * rest, axis, chunk))
    *_, axis, chunk = min(found)
    return axis, chunk
