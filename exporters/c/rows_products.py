"""Rows of dot_general and convolution."""
from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np

from aot.exporters.stablehlo import Op, Value

from .index import Index, strides
from .lowering import Lowering, Scope, row
from .memory import Buffer
from .rows_movement import fill, spread
from .rows_reduction import attribute, paddings
from .scalar import converted
from .types import BRIEF, CType, literal, of

TILE_BYTES = 64         # of a row of the part of a result that is computed in registers
TILE_ROWS = 6           # of such a part
PACKED = 12             # rows from which on a copy of some columns of the right matrix pays


def accumulator(t: CType) -> CType:
    """The type in which products are summed."""
    return BRIEF["f32"] if t.is_small_float else t


@row("dot_general")
def dot_general(l: Lowering, op: Op) -> None:
    """(batch, m, k) times (batch, k, n)."""
    (x, y), d = op.operands, op.attrs["dot_dimension_numbers"]
    free_x = [i for i in range(x.rank) if i not in (*d.lhs_batching_dimensions, *d.lhs_contracting_dimensions)]
    free_y = [i for i in range(y.rank) if i not in (*d.rhs_batching_dimensions, *d.rhs_contracting_dimensions)]
    batches, k = (prod(x.shape[i] for i in axes) for axes in (d.lhs_batching_dimensions, d.lhs_contracting_dimensions))
    m, n = prod(x.shape[i] for i in free_x), prod(y.shape[i] for i in free_y)
    t = of(op.dtype)
    form = "vector" if n == 1 else "tiles" if accumulator(t).brief in ("f32", "f64") and k > 1 else "matrix"
    groups = (d.lhs_batching_dimensions, free_x, d.lhs_contracting_dimensions), \
             (d.rhs_batching_dimensions, d.rhs_contracting_dimensions, free_y)
    (left, (bx, xm, xk)), (right, (by, yk, yn)) = (grouped(l, v, g, form == "vector") for v, g in zip((x, y), groups))
    name = product_function(l, left.ctype, right.ctype, t, form)
    with l.kernel():
        out = l.new(op.result)
        more = f"{m}, {k}" if form == "vector" else f"{m}, {k}, {n}, {xm}, {xk}, {yk}, {yn}"
        if form == "tiles":
            more += f", {l.pointer(l.temporary(accumulator(t), k, columns_of(t)), written=True)}"
        with l.w.loop(batches) as b:
            places = l.pointer(left, b * bx), l.pointer(right, b * by), l.pointer(out, b * (m * n), True)
            l.w.line(f"{name}({', '.join(places)}, {more});")


def grouped(l: Lowering, x: Value, groups: Sequence[Sequence[int]], dense: bool) -> tuple[Buffer, list[int]]:
    """An operand in memory, and how far neighbours along each group of axes are apart there; dense: in this order.

    Axes that do not follow each other as in their group are brought into this order first."""
    steps = strides(x.shape)
    lasts = [next((steps[i] for i in reversed(g) if x.shape[i] != 1), 0) for g in groups]
    order = [i for g in groups for i in g if x.shape[i] != 1]
    follow = all(steps[a] == steps[b] * x.shape[b] for g in groups
                 for a, b in pairwise([i for i in g if x.shape[i] != 1]))
    if (follow and not dense) or order == sorted(order):
        return l.stored(x), lasts
    made = arranged(l, x, [i for g in groups for i in g])
    sizes = [prod(x.shape[i] for i in g) for g in groups]
    return made, [prod(sizes[i + 1:]) for i in range(len(groups))]


def arranged(l: Lowering, x: Value, order: Sequence[int]) -> Buffer:
    """A copy of an operand with its axes in this order."""
    shape = tuple(x.shape[i] for i in order)
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


def product_function(l: Lowering, a: CType, b: CType, out: CType, form: str) -> str:
    """The name of the function that multiplies matrices of these types; form: a row of FORMS."""
    name = f"product_{form}_{a.brief}_{b.brief}_{out.brief}"
    if name not in l.functions:
        l.functions[name] = FORMS[form](name, a, b, out)
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


def _fused(acc: CType, a: CType, b: CType, total: str, x: str, y: str) -> str:
    """total += x * y"""
    if acc.brief not in ("f32", "f64"):
        return _added(acc, total, _multiplied(acc, a, b, x, y))
    x, y = (converted(t.load(place), t, acc) for t, place in ((a, x), (b, y)))
    return f"{total} = aot_fma_{acc.brief}({x}, {y}, {total});"


def columns_of(out: CType) -> int: return TILE_BYTES * 8 // accumulator(out).bits


def _matrix(name: str, a: CType, b: CType, out: CType) -> str:
    acc = accumulator(out)

    def step(y: str) -> str:
        if acc == out:
            return _fused(acc, a, b, "row[j]", "x[i * xm + p * xk]", y)
        return f"row[j] = {out.store(_multiplied(acc, a, b, 'x[i * xm + p * xk]', y))};"      # there is one product
    return f"""
/* out = x y for x of m rows and k columns, y of k rows and n columns; xm, xk, yk, yn: how far neighbours in them are apart. */
static void {name}(const {a.stored} *restrict x, const {b.stored} *restrict y, {out.stored} *restrict out,
    ptrdiff_t m, ptrdiff_t k, ptrdiff_t n, ptrdiff_t xm, ptrdiff_t xk, ptrdiff_t yk, ptrdiff_t yn) {{
  for (ptrdiff_t i = 0; i < m; i++) {{
    {out.stored} *restrict row = out + i * n;
    for (ptrdiff_t j = 0; j < n; j++) row[j] = 0;
    for (ptrdiff_t p = 0; p < k; p++) {{
      if (yn == 1)
        for (ptrdiff_t j = 0; j < n; j++) {step("y[p * yk + j]")}
      else
        for (ptrdiff_t j = 0; j < n; j++) {step("y[p * yk + j * yn]")}
    }}
  }}
}}"""


def _tiles(name: str, a: CType, b: CType, out: CType) -> str:
    acc, columns = accumulator(out), columns_of(out)
    taken = converted(b.load("y[p * yk + (j + c) * yn]"), b, acc)
    direct = f"yn == 1 && columns == {columns} && m < {PACKED}" if b == acc else "false"
    source = "packed ? room : y + j" if b == acc else "room"
    tiles = "\n".join(f"""\
    for (; i + {rows} <= m; i += {rows})
      {name}_{rows}(x + i * xm, xm, xk, {source}, packed ? {columns} : yk, out + i * n + j, k, n, columns);"""
                      for rows in (TILE_ROWS, 2, 1))
    return "\n".join([*(_tile(name, rows, a, acc, out) for rows in (TILE_ROWS, 2, 1)), f"""
/* out = x y for x of m rows and k columns, y of k rows and n columns; xm, xk, yk, yn: how far neighbours in them are apart;
 * room holds some columns of y next to each other. */
static void {name}(const {a.stored} *restrict x, const {b.stored} *restrict y, {out.stored} *restrict out,
    ptrdiff_t m, ptrdiff_t k, ptrdiff_t n, ptrdiff_t xm, ptrdiff_t xk, ptrdiff_t yk, ptrdiff_t yn,
    {acc.stored} *restrict room) {{
  for (ptrdiff_t j = 0; j < n; j += {columns}) {{
    const ptrdiff_t columns = n - j < {columns} ? n - j : {columns};
    const bool packed = !({direct});
    ptrdiff_t i = 0;
    if (packed)
      for (ptrdiff_t p = 0; p < k; p++)
        for (ptrdiff_t c = 0; c < {columns}; c++) room[p * {columns} + c] = c < columns ? {taken} : 0;
{tiles}
  }}
}}"""])


def _tile(name: str, rows: int, a: CType, acc: CType, out: CType) -> str:
    """The function for some rows of the result and as many columns as fill the registers."""
    columns = TILE_BYTES * 8 // acc.bits
    sums, kept = range(rows), out.store("sum[c]")
    x = [converted(a.load(f"x[{r} * xm + p * xk]"), a, acc) for r in sums]
    write = f"memcpy(sum, &s%d, sizeof sum); for (ptrdiff_t c = 0; c < columns; c++) out[%d * n + c] = {kept};"
    plain = "\n".join(f"    for (int c = 0; c < {columns}; c++) s{r}[c] = aot_fma_{acc.brief}({x[r]}, y[c], s{r}[c]);"
                      for r in sums)
    return f"""
/* {rows} rows of x y: rows of y are `step` apart, those of the result n, of which `columns` are written. */
static void {name}_{rows}(const {a.stored} *restrict x, ptrdiff_t xm, ptrdiff_t xk,
    const {acc.stored} *restrict y, ptrdiff_t step, {out.stored} *restrict out, ptrdiff_t k, ptrdiff_t n, ptrdiff_t columns) {{
  {acc.value} sum[{columns}];
#ifdef AOT_VECTORS
  typedef {acc.value} vector __attribute__((vector_size({TILE_BYTES}), aligned({acc.align}), may_alias));
  vector {", ".join(f"s{r} = {{0}}" for r in sums)};
  for (ptrdiff_t p = 0; p < k; p++, y += step) {{
    const vector v = *(const vector *)y;
    {" ".join(f"s{r} += {x[r]} * v;" for r in sums)}
  }}
#else
  {acc.value} {", ".join(f"s{r}[{columns}] = {{0}}" for r in sums)};
  for (ptrdiff_t p = 0; p < k; p++, y += step) {{
{plain}
  }}
#endif
{chr(10).join("  " + write % (r, r) for r in sums)}
}}"""


def _vector(name: str, a: CType, b: CType, out: CType) -> str:
    acc = accumulator(out)
    lanes = 16 if acc.kind == "f" else 1
    term = _fused(acc, a, b, "lane[c]", "x[i * k + p + c]", "y[p + c]")
    return f"""
/* out = x y for x of m rows and k columns, and a vector y. */
static void {name}(const {a.stored} *restrict x, const {b.stored} *restrict y, {out.stored} *restrict out,
    ptrdiff_t m, ptrdiff_t k) {{
  for (ptrdiff_t i = 0; i < m; i++) {{
    {acc.value} lane[{lanes}] = {{0}}, sum = 0;
    ptrdiff_t p = 0;
    for (; p + {lanes} <= k; p += {lanes})
      for (int c = 0; c < {lanes}; c++) {term}
    for (int c = 0; c < k - p; c++) {term}
    for (int c = 0; c < {lanes}; c++) {_added(acc, "sum", "lane[c]")}
    out[i] = {out.store("sum")};
  }}
}}"""


FORMS = {"matrix": _matrix, "tiles": _tiles, "vector": _vector}


# ---- convolution -----------------------------------------------------------------------------------------------------

@row("convolution")
def convolution(l: Lowering, op: Op) -> None:
    """Sums over the kernel, for a padded copy of the input where the window reaches over its edge."""
    (x, kernel), d = op.operands, op.attrs["dimension_numbers"]
    rank = len(d.input_spatial_dimensions)
    stride, dilation = attribute(op, "window_strides", 1, rank), attribute(op, "rhs_dilation", 1, rank)
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
                    where[d.input_spatial_dimensions[i]] = spatial[i] * stride[i] + offset[i] * dilation[i]
                    turned = offset[i] * -1 + (window[i] - 1) if reversal[i] else offset[i]
                    by[d.kernel_spatial_dimensions[i]] = turned
                w.line(_fused(acc, source.ctype, weights.ctype, l.element(total, at, True), l.element(source, where),
                              l.element(weights, by)))
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
    dilation, around = attribute(op, "lhs_dilation", 1, rank), paddings(op, rank)
    if all(n == 1 for n in dilation) and all(pair == (0, 0) for pair in around):
        return l.stored(x)
    low, high, between = ([0] * x.rank for _ in range(3))
    for i, axis in enumerate(d.input_spatial_dimensions):
        low[axis], high[axis], between[axis] = around[i][0], around[i][1], dilation[i] - 1
    shape = [max(n + max(n - 1, 0) * k + a + b, 0) for n, k, a, b in zip(x.shape, between, low, high)]
    with l.kernel():
        made = l.temporary(of(x.dtype), *shape)
        fill(l, made, literal(0, made.ctype))
        spread(l, made, x, low, between)
    return made
