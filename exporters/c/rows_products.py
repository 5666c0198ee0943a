"""Rows of dot_general and convolution."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from aot.exporters.stablehlo import Op, Value

from .index import Index
from .lowering import Lowering, Scope, row
from .memory import Buffer
from .rows_movement import fill
from .rows_reduction import attribute, paddings
from .scalar import converted
from .types import BRIEF, CType, literal, of

#: rows and columns of a result that are computed together, in registers
TILE_ROWS, TILE_COLUMNS = 4, 16


def accumulator(t: CType) -> CType:
    """The type in which products are summed."""
    return BRIEF["f32"] if t.is_small_float else t


@row("dot_general")
def dot_general(l: Lowering, op: Op) -> None:
    """(batch, m, k) times (batch, k, n), after each operand was brought into that order."""
    (x, y), d = op.operands, op.attrs["dot_dimension_numbers"]
    batches = prod(x.shape[i] for i in d.lhs_batching_dimensions)
    k = prod(x.shape[i] for i in d.lhs_contracting_dimensions)
    free_x = [i for i in range(x.rank) if i not in (*d.lhs_batching_dimensions, *d.lhs_contracting_dimensions)]
    free_y = [i for i in range(y.rank) if i not in (*d.rhs_batching_dimensions, *d.rhs_contracting_dimensions)]
    m, n = prod(x.shape[i] for i in free_x), prod(y.shape[i] for i in free_y)
    left = arranged(l, x, [*d.lhs_batching_dimensions, *free_x, *d.lhs_contracting_dimensions])
    right_order = [*d.rhs_batching_dimensions, *d.rhs_contracting_dimensions, *free_y]
    if n == 1:      # the same array, and the order needs no copy where only sizes of 1 move
        right_order = [*d.rhs_batching_dimensions, *free_y, *d.rhs_contracting_dimensions]
    right = arranged(l, y, right_order)
    t = of(op.dtype)
    name = product_function(l, left.ctype, right.ctype, t, narrow=n == 1)
    with l.kernel():
        out = l.new(op.result)
        with l.w.loop(batches) as b:
            a, c, r = (l.pointer(buffer, b * size, written) for buffer, size, written in
                       ((left, m * k, False), (right, k * n, False), (out, m * n, True)))
            l.w.line(f"{name}({a}, {c}, {r}, {m}, {k}{'' if n == 1 else f', {n}'});")


def arranged(l: Lowering, x: Value, order: Sequence[int]) -> Buffer:
    """An operand in memory with its axes in this order."""
    shape = tuple(x.shape[i] for i in order)
    if [i for i in order if x.shape[i] != 1] == [i for i in range(x.rank) if x.shape[i] != 1]:
        return l.stored(x).reshaped(shape)
    if (array := x.constant) is not None and x not in l.env:
        return Buffer(l.table(np.ascontiguousarray(np.transpose(array, order))), shape)
    plain = l.plan.is_plain(x)
    source = None if plain else l.stored(x)
    with l.kernel():
        made = l.temporary(of(x.dtype), *shape)
        with l.w.loops(shape) as at:
            place = [Index()] * x.rank
            for i, axis in zip(at, order):
                place[axis] = i
            value = Scope(l).get(x, place) if source is None else l.load(source, place)
            l.put(made, at, value)
    return made


def product_function(l: Lowering, a: CType, b: CType, out: CType, narrow: bool) -> str:
    """The name of the function that multiplies matrices of these types; narrow: a matrix and a vector."""
    name = f"product_{'vector' if narrow else 'matrix'}_{a.brief}_{b.brief}_{out.brief}"
    if name not in l.functions:
        l.functions[name] = (_vector if narrow else _matrix)(name, a, b, out)
    return name


def _multiplied(acc: CType, a: CType, b: CType, x: str, y: str) -> str:
    """An expression of the type that is summed."""
    x, y = (converted(t.load(place), t, acc) for t, place in ((a, x), (b, y)))
    if acc.kind == "b":
        return f"{x} && {y}"
    return f"({acc.value})({x} * {y})" if acc.bits >= 32 else f"(({acc.value})(int32_t)((uint32_t){x} * (uint32_t){y}))"


def _added(acc: CType, total: str, term: str) -> str:
    if acc.kind == "b":
        return f"{total} = {total} || ({term});"
    if acc.kind == "i":
        wide = "uint64_t" if acc.bits == 64 else "uint32_t"
        return f"{total} = ({acc.value})(({wide}){total} + ({wide})({term}));"
    return f"{total} = ({acc.value})({total} + {term});"


def _matrix(name: str, a: CType, b: CType, out: CType) -> str:
    acc = accumulator(out)
    term = _added(acc, "sum[r][c]", _multiplied(acc, a, b, "x[(i + r) * k + p]", "y[p * n + j + c]"))
    stored = out.store("sum[r][c]")
    return f"""
/* out = x y for x of m rows and k columns, y of k rows and n columns. */
static void {name}(const {a.stored} *restrict x, const {b.stored} *restrict y, {out.stored} *restrict out,
    ptrdiff_t m, ptrdiff_t k, ptrdiff_t n) {{
  for (ptrdiff_t i = 0; i < m; i += {TILE_ROWS}) {{
    const ptrdiff_t rows = m - i < {TILE_ROWS} ? m - i : {TILE_ROWS};
    for (ptrdiff_t j = 0; j < n; j += {TILE_COLUMNS}) {{
      const ptrdiff_t columns = n - j < {TILE_COLUMNS} ? n - j : {TILE_COLUMNS};
      {acc.value} sum[{TILE_ROWS}][{TILE_COLUMNS}] = {{{{0}}}};
      if (rows == {TILE_ROWS} && columns == {TILE_COLUMNS}) {{
        for (ptrdiff_t p = 0; p < k; p++)
          for (int r = 0; r < {TILE_ROWS}; r++)
            for (int c = 0; c < {TILE_COLUMNS}; c++) {term}
      }} else {{
        for (ptrdiff_t p = 0; p < k; p++)
          for (ptrdiff_t r = 0; r < rows; r++)
            for (ptrdiff_t c = 0; c < columns; c++) {term}
      }}
      for (ptrdiff_t r = 0; r < rows; r++)
        for (ptrdiff_t c = 0; c < columns; c++) out[(i + r) * n + j + c] = {stored};
    }}
  }}
}}"""


def _vector(name: str, a: CType, b: CType, out: CType) -> str:
    acc = accumulator(out)
    lanes = 16 if acc.kind == "f" else 1
    term = _multiplied(acc, a, b, "x[i * k + p + c]", "y[p + c]")
    return f"""
/* out = x y for x of m rows and k columns, and a vector y. */
static void {name}(const {a.stored} *restrict x, const {b.stored} *restrict y, {out.stored} *restrict out,
    ptrdiff_t m, ptrdiff_t k) {{
  for (ptrdiff_t i = 0; i < m; i++) {{
    {acc.value} lane[{lanes}] = {{0}}, sum = 0;
    ptrdiff_t p = 0;
    for (; p + {lanes} <= k; p += {lanes})
      for (int c = 0; c < {lanes}; c++) {_added(acc, "lane[c]", term)}
    for (int c = 0; c < k - p; c++) {_added(acc, "lane[c]", term)}
    for (int c = 0; c < {lanes}; c++) {_added(acc, "sum", "lane[c]")}
    out[i] = {out.store("sum")};
  }}
}}"""


# ---- convolution -----------------------------------------------------------------------------------------------------

@row("convolution")
def convolution(l: Lowering, op: Op) -> None:
    """Sums over the kernel, for a padded copy of the input where the window reaches over its edge."""
    (x, kernel), d = op.operands, op.attrs["dimension_numbers"]
    rank = len(d.input_spatial_dimensions)
    stride, spread = attribute(op, "window_strides", 1, rank), attribute(op, "rhs_dilation", 1, rank)
    reversal = attribute(op, "window_reversal", 0, rank)
    source, weights, t = padded(l, op), l.stored(kernel), of(op.dtype)
    acc = accumulator(t)
    features, groups = op.shape[d.output_feature_dimension], int(op.attrs["feature_group_count"])
    batches, parts = op.shape[d.output_batch_dimension], int(op.attrs["batch_group_count"])
    inner = kernel.shape[d.kernel_input_feature_dimension]
    count = groups * parts
    sizes = [op.shape[i] for i in d.output_spatial_dimensions]
    window = [kernel.shape[i] for i in d.kernel_spatial_dimensions]
    with l.kernel():
        out = l.new(op.result)
        total = out if acc == t else l.temporary(acc, *op.shape)
        fill(l, total, literal(0, acc))
        w = l.w
        # the last loop runs over neighbours in the result
        features_last = d.output_feature_dimension == len(op.shape) - 1
        with w.loop(count) as g, w.loop(batches) as n, w.loops(sizes[:-1]) as place, w.loops(window) as offset, \
                w.loop(inner) as c:
            def term(o: Index, last: Index) -> None:
                spatial = [*place, last] if sizes else []
                at, where, by = [Index()] * len(op.shape), [Index()] * x.rank, [Index()] * kernel.rank
                feature = g * (features // count) + o
                at[d.output_batch_dimension], at[d.output_feature_dimension] = n, feature
                where[d.input_batch_dimension] = g * batches + n if parts > 1 else n
                where[d.input_feature_dimension] = g * inner + c if groups > 1 else c
                by[d.kernel_input_feature_dimension], by[d.kernel_output_feature_dimension] = c, feature
                for i in range(rank):
                    at[d.output_spatial_dimensions[i]] = spatial[i]
                    where[d.input_spatial_dimensions[i]] = spatial[i] * stride[i] + offset[i] * spread[i]
                    turned = offset[i] * -1 + (window[i] - 1) if reversal[i] else offset[i]
                    by[d.kernel_spatial_dimensions[i]] = turned
                product = _multiplied(acc, source.ctype, weights.ctype, l.element(source, where), l.element(weights, by))
                w.line(_added(acc, l.element(total, at, True), product))
            if features_last:
                with w.loops(sizes[-1:]) as last, w.loop(features // count) as o:
                    term(o, last[0] if last else Index())
            else:
                with w.loop(features // count) as o, w.loops(sizes[-1:]) as last:
                    term(o, last[0] if last else Index())
        if total is not out:
            with w.loop(out.storage.size) as i:
                line = (out.storage.size,)
                l.put(out.reshaped(line), [i], l.load(total.reshaped(line), [i]))


def padded(l: Lowering, op: Op) -> Buffer:
    """The input of a convolution with its padding, and zeros between its elements."""
    x, d = op.operands[0], op.attrs["dimension_numbers"]
    rank = len(d.input_spatial_dimensions)
    spread, around = attribute(op, "lhs_dilation", 1, rank), paddings(op, rank)
    if all(n == 1 for n in spread) and all(pair == (0, 0) for pair in around):
        return l.stored(x)
    low, high, between = ([0] * x.rank for _ in range(3))
    for i, axis in enumerate(d.input_spatial_dimensions):
        low[axis], high[axis], between[axis] = around[i][0], around[i][1], spread[i] - 1
    shape = [max(n + max(n - 1, 0) * k + a + b, 0) for n, k, a, b in zip(x.shape, between, low, high)]
    with l.kernel():
        made = l.temporary(of(x.dtype), *shape)
        fill(l, made, literal(0, made.ctype))
        first = [max(0, -(b // (i + 1))) if b < 0 else 0 for b, i in zip(low, between)]
        last = [min(n, -(-(m - b) // (i + 1))) for n, m, b, i in zip(x.shape, shape, low, between)]
        counts = [b - a for a, b in zip(first, last)]
        if min(counts, default=1) > 0:
            with l.w.loops(counts) as at:
                place = [i + a for i, a in zip(at, first)]
                l.put(made, [i * (n + 1) + b for i, n, b in zip(place, between, low)], Scope(l).get(x, place))
    return made
