"""The row of dot_general, and functions that multiply matrices."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod

import numpy as np

from aot.exporters.stablehlo import Op, Value

from .index import Index, strides
from .lowering import Lowering, Scope, row
from .memory import Buffer
from .scalar import converted
from .types import BRIEF, CType, of

TILE_BYTES = 64         # of a row of the columns that are copied together
TILE_ROWS = 6           # of the part of a result that is computed in registers
PACKED = 12             # rows from which on a copy of some columns of the right matrix pays


def accumulator(t: CType) -> CType:
    """The type in which products are summed."""
    return BRIEF["f32"] if t.is_small_float else t


def tile_type(out: CType) -> CType | None:
    """The type of sums in registers, None where there is none: vectors of floats, or of integers that wrap around."""
    acc = accumulator(out)
    return BRIEF["u32"] if acc.brief in ("i32", "u32") else acc if acc.kind == "f" else None


@row("dot_general")
def dot_general(l: Lowering, op: Op) -> None:
    """(batch, m, k) times (batch, k, n)."""
    (x, y), d = op.operands, op.attrs["dot_dimension_numbers"]
    free_x = [i for i in range(x.rank) if i not in (*d.lhs_batching_dimensions, *d.lhs_contracting_dimensions)]
    free_y = [i for i in range(y.rank) if i not in (*d.rhs_batching_dimensions, *d.rhs_contracting_dimensions)]
    batches, k = (prod(x.shape[i] for i in axes) for axes in (d.lhs_batching_dimensions, d.lhs_contracting_dimensions))
    m, n = prod(x.shape[i] for i in free_x), prod(y.shape[i] for i in free_y)
    t = of(op.dtype)
    groups = (d.lhs_batching_dimensions, free_x, d.lhs_contracting_dimensions), \
             (d.rhs_batching_dimensions, d.rhs_contracting_dimensions, free_y)
    (left, (bx, xm, xk)), (right, (by, yk, yn)) = (grouped(l, v, g, n == 1) for v, g in zip((x, y), groups))
    multiply = product(l, left.ctype, right.ctype, t, k, n == 1)
    with l.kernel():
        out = l.new(op.result)
        with l.w.loop(batches) as b:
            places = l.pointer(left, b * bx), l.pointer(right, b * by), l.pointer(out, b * (m * n), True)
            multiply(places, m, n, (xm, xk, yk, yn, n))


def product(l: Lowering, a: CType, b: CType, out: CType, k: int,
            vector: bool = False) -> Callable[..., None]:
    """What writes products of matrices of k columns and k rows, of these types: (addresses of both and of the result, rows m,
    columns, (steps)) for how far rows and columns of the left, rows and columns of the right, and rows of the result are apart.

    vector: the right one is a vector, and nothing has gaps."""
    acc = tile_type(out) if k > 1 and not vector else None
    form = "vector" if vector else "tiles" if acc else "matrix"
    name = f"product_{form}_{a.brief}_{b.brief}_{out.brief}"
    if name not in l.functions:
        l.functions[name] = FORMS[form](name, a, b, out)
    room = l.temporary(acc, k, columns_of(out)) if acc else None

    def write(places: Sequence[str], m: int | str, n: int | str, steps: Sequence[int]) -> None:
        sizes = [m, k] if form == "vector" else [m, k, n, *steps]
        more = [l.pointer(room, written=True)] if room else []
        l.w.line(f"{name}({', '.join([*places, *map(str, sizes), *more])});")
    return write


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


def _multiplied(acc: CType, a: CType, b: CType, x: str, y: str) -> str:
    """An expression of the type that is summed."""
    x, y = (converted(t.load(place), t, acc) for t, place in ((a, x), (b, y)))
    if acc.kind == "b":
        return f"{x} && {y}"
    return f"({acc.value})({x} * {y})" if acc.bits >= 32 else f"(({acc.value})(int32_t)((uint32_t){x} * (uint32_t){y}))"


def add(acc: CType, total: str, term: str) -> str:
    """total += term"""
    if acc.kind == "b":
        return f"{total} = {total} || ({term});"
    if acc.kind == "i":
        wide = "uint64_t" if acc.bits == 64 else "uint32_t"
        return f"{total} = ({acc.value})(({wide}){total} + ({wide})({term}));"
    return f"{total} = ({acc.value})({total} + {term});"


def add_product(acc: CType, a: CType, b: CType, total: str, x: str, y: str) -> str:
    """total += x * y"""
    if acc.brief not in ("f32", "f64"):
        return add(acc, total, _multiplied(acc, a, b, x, y))
    x, y = (converted(t.load(place), t, acc) for t, place in ((a, x), (b, y)))
    return f"{total} = aot_fma_{acc.brief}({x}, {y}, {total});"


def columns_of(out: CType) -> int: return TILE_BYTES * 8 // accumulator(out).bits


def _matrix(name: str, a: CType, b: CType, out: CType) -> str:
    acc = accumulator(out)

    def step(y: str) -> str:
        if acc == out:
            return add_product(acc, a, b, "row[j]", "x[i * xm + p * xk]", y)
        return f"row[j] = {out.store(_multiplied(acc, a, b, 'x[i * xm + p * xk]', y))};"      # there is one product
    return f"""
/* out = x y for x of m rows and k columns, y of k rows and n columns; xm, xk, yk, yn, step: how far neighbours
 * in them, and rows of the result, are apart. */
static void {name}(const {a.stored} *restrict x, const {b.stored} *restrict y, {out.stored} *restrict out,
    ptrdiff_t m, ptrdiff_t k, ptrdiff_t n, ptrdiff_t xm, ptrdiff_t xk, ptrdiff_t yk, ptrdiff_t yn, ptrdiff_t step) {{
  for (ptrdiff_t i = 0; i < m; i++) {{
    {out.stored} *restrict row = out + i * step;
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
    acc, columns = tile_type(out) or out, columns_of(out)
    taken = converted(b.load("y[p * yk + (j + c) * yn]"), b, acc)
    direct = f"yn == 1 && columns == {columns} && m < {PACKED}" if b == acc else "false"
    source = "packed ? room : y + j" if b == acc else "room"
    tiles = "\n".join(f"""\
    for (; i + {rows} <= m; i += {rows})
      {name}_{rows}(x + i * xm, xm, xk, {source}, packed ? {columns} : yk, out + i * step + j, k, step, columns);"""
                      for rows in (TILE_ROWS, 2, 1))
    return "\n".join([*(_tile(name, rows, a, acc, out) for rows in (TILE_ROWS, 2, 1)), f"""
/* out = x y for x of m rows and k columns, y of k rows and n columns; xm, xk, yk, yn, step: how far neighbours
 * in them, and rows of the result, are apart; room holds some columns of y next to each other. */
static void {name}(const {a.stored} *restrict x, const {b.stored} *restrict y, {out.stored} *restrict out,
    ptrdiff_t m, ptrdiff_t k, ptrdiff_t n, ptrdiff_t xm, ptrdiff_t xk, ptrdiff_t yk, ptrdiff_t yn,
    ptrdiff_t step, {acc.stored} *restrict room) {{
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
    sums, kept = range(rows), out.store("sum[j - c]" if acc.kind == "f" else converted("sum[j - c]", acc, out))
    x = [converted(a.load(f"x[{r} * xm + p * xk]"), a, acc) for r in sums]

    def write(r: int) -> str:
        some = f"{{ memcpy(sum, &s{r}, sizeof s{r}); for (ptrdiff_t j = c; j < columns; j++) out[{r} * n + j] = {kept}; }}"
        whole = f"if (c + lanes <= columns) memcpy(out + {r} * n + c, &s{r}, sizeof s{r});\n    else "
        return f"    {whole if out.bits == acc.bits else ''}{some}"
    plain = "\n".join(f"      for (int j = 0; j < lanes; j++) {add_product(acc, acc, acc, f's{r}[j]', x[r], 'z[j]')}"
                      for r in sums)
    return f"""
/* {rows} rows of x y: rows of y are `step` apart, those of the result n, of which `columns` are written. */
static AOT_APART void {name}_{rows}(const {a.stored} *restrict x, ptrdiff_t xm, ptrdiff_t xk,
    const {acc.stored} *restrict y, ptrdiff_t step, {out.stored} *restrict out, ptrdiff_t k, ptrdiff_t n, ptrdiff_t columns) {{
#ifdef AOT_VECTORS
  typedef {acc.value} vector __attribute__((vector_size(AOT_VECTORS), aligned({acc.align}), may_alias));
  enum {{ lanes = AOT_VECTORS / sizeof({acc.value}) }};
#else
  enum {{ lanes = {columns} }};
#endif
  {acc.value} sum[lanes];
  for (ptrdiff_t c = 0; c < columns; c += lanes) {{
    const {acc.stored} *z = y + c;
#ifdef AOT_VECTORS
    vector {", ".join(f"s{r} = {{0}}" for r in sums)};
    for (ptrdiff_t p = 0; p < k; p++, z += step) {{
      const vector v = *(const vector *)z;
      {" ".join(f"s{r} += {x[r]} * v;" for r in sums)}
    }}
#else
    {acc.value} {", ".join(f"s{r}[lanes] = {{0}}" for r in sums)};
    for (ptrdiff_t p = 0; p < k; p++, z += step) {{
{plain}
    }}
#endif
{chr(10).join(map(write, sums))}
  }}
}}"""


def _vector(name: str, a: CType, b: CType, out: CType) -> str:
    acc = accumulator(out)
    lanes = 16 if acc.kind == "f" else 1
    term = add_product(acc, a, b, "lane[c]", "x[i * k + p + c]", "y[p + c]")
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
    for (int c = 0; c < {lanes}; c++) {add(acc, "sum", "lane[c]")}
    out[i] = {out.store("sum")};
  }}
}}"""


FORMS = {"matrix": _matrix, "tiles": _tiles, "vector": _vector}

