"""Rows of factorizations and random bits: cholesky, triangular_solve, rng_bit_generator."""
from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from aot.exporters.stablehlo import Op

from .index import Index
from .lowering import Lowering, row
from .types import BRIEF, CType, Inexpressible, of

WIDE = BRIEF["c128"]


# ---- factorizations ------------------------------------------------------------------------------------------------------

def _part(t: CType) -> str: return "f" if t.brief in ("f32", "c64") or t.is_small_float else ""


def _conjugate(t: CType, x: str) -> str: return f"conj{_part(t)}({x})" if t.kind == "c" else x


@row("cholesky")
def cholesky(l: Lowering, op: Op) -> None:
    x, lower = op.operands[0], bool(op.attrs.get("lower", False))
    n, source, t = x.shape[-1], l.stored(x), of(x.dtype)
    wide = BRIEF["f32"] if t.is_small_float else t
    with l.kernel():
        out = l.new(op.result)
        work = l.temporary(wide, n, n)
        with l.w.loops(x.shape[:-2]) as batch:
            name = f"cholesky_{wide.brief}"
            if name not in l.functions:
                l.functions[name] = _cholesky(name, wide)
            with l.w.loops((n, n)) as at:
                place = at if lower else at[::-1]
                value = l.load(source, [*batch, *place])
                l.put(work, at, value if lower else _conjugate(t, value))
            l.w.line(f"{name}({l.pointer(work, written=True)}, {n});")
            with l.w.loops((n, n)) as at:
                value = l.load(work, at if lower else at[::-1])
                l.put(out, [*batch, *at], _conjugate(t, value) if not lower else value)


def _cholesky(name: str, t: CType) -> str:
    real = t.value.removesuffix(" complex")
    root = f"creal{_part(t)}(x[i * n + i])" if t.kind == "c" else "x[i * n + i]"
    return f"""
/* x = L L^H by its lower triangle, in place; NaN where it is not positive definite. */
static void {name}({t.value} *x, ptrdiff_t n) {{
  for (ptrdiff_t i = 0; i < n; i++) {{
    for (ptrdiff_t j = 0; j <= i; j++) {{
      {t.value} sum = x[i * n + j];
      for (ptrdiff_t k = 0; k < j; k++) sum -= x[i * n + k] * {_conjugate(t, 'x[j * n + k]')};
      x[i * n + j] = i == j ? sum : sum / x[j * n + j];
    }}
    {real} pivot = {root};
    x[i * n + i] = pivot > 0 ? sqrt{_part(t)}(pivot) : ({real})NAN;
    for (ptrdiff_t j = i + 1; j < n; j++) x[i * n + j] = 0;
  }}
}}"""


@row("triangular_solve")
def triangular_solve(l: Lowering, op: Op) -> None:
    a, b = op.operands
    left, lower, unit = (bool(op.attrs[k]) for k in ("left_side", "lower", "unit_diagonal"))
    transpose = str(op.attrs["transpose_a"])
    matrix, t, n = l.stored(a), of(b.dtype), a.shape[-1]
    wide = BRIEF["f32"] if t.is_small_float else t
    other = b.shape[-1] if left else b.shape[-2]
    source = l.stored(b)
    with l.kernel():
        out = l.new(op.result)
        factor, line = l.temporary(wide, n, n), l.temporary(wide, n)
        # x A = b is A^T x^T = b^T
        turned = (transpose != "NO_TRANSPOSE") != (not left)
        forward = lower != turned
        w = l.w
        with w.loops(b.shape[:-2]) as batch:
            with w.loops((n, n)) as at:
                value = l.load(matrix, [*batch, *(at[::-1] if turned else at)])
                l.put(factor, at, _conjugate(t, value) if transpose == "ADJOINT" else value)
            with w.loop(other) as j:
                def at_b(i: Index) -> list[Index]: return [*batch, i, j] if left else [*batch, j, i]
                with w.loop(n) as step:
                    i = step if forward else step * -1 + (n - 1)
                    total = w.name("a")
                    w.line(f"{wide.value} {total} = {l.load(source, at_b(i))};")
                    k = w.name("i")
                    bounds = f"ptrdiff_t {k} = 0; {k} < {i}; {k}++" if forward else f"ptrdiff_t {k} = {i + 1}; {k} < {n}; {k}++"
                    with w.block(f"for ({bounds})"):
                        inner = Index.of(k, n)
                        w.line(f"{total} -= {l.load(factor, [i, inner])} * {l.load(line, [inner])};")
                    l.put(line, [i], total if unit else f"{total} / {l.load(factor, [i, i])}")
                with w.loop(n) as i:
                    l.put(out, at_b(i), l.load(line, [i]))


# ---- random bits -----------------------------------------------------------------------------------------------------------

@row("rng_bit_generator")
def rng_bit_generator(l: Lowering, op: Op) -> None:
    state, (new, bits) = l.stored(op.operands[0]), op.results
    if state.ctype.brief != "u64":
        raise Inexpressible(f"its state is {state.ctype.brief}, not u64")
    words, t = state.shape[0], of(bits.dtype)
    threefry = op.attrs["rng_algorithm"] == "THREE_FRY"         # XLA's default on CPU is philox
    name = f"random_{'threefry' if threefry else 'philox'}_{t.brief}"
    if name not in l.functions:
        l.functions[name] = _threefry_bits(name, t) if threefry else _philox_bits(name, t)
    with l.kernel():
        after, out = l.new(new), l.new(bits)
        with l.w.loop(words) as i:
            l.put(after, [i], l.load(state, [i]))
        end = l.pointer(out, written=True)
        if not threefry:
            l.w.line(f"{name}({l.pointer(after, written=True)}, {words}, {end}, {bits.type.size});")
            return
        axis, half = (0, bits.shape) if t.bits == 64 else _half(bits.shape)
        whole = bits.shape[axis] if bits.shape else 1
        before, behind = math.prod(half[:axis]), math.prod(half[axis + 1:])
        l.w.line(f"{name}({l.pointer(after, written=True)}, {end}, {before}, {half[axis] if half else 1}, {whole}, {behind});")


def _half(shape: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """The axis along which words alternate, the first of even size or else the largest; and the shape of the counters."""
    shape = tuple(shape) or (1,)
    axis = next((i for i, n in enumerate(shape) if n % 2 == 0), int(np.argmax(shape)))
    return axis, tuple(-(-n // 2) if i == axis else n for i, n in enumerate(shape))


def _threefry_bits(name: str, t: CType) -> str:
    write = f"out[(i * half + j) * behind + k] = ({t.stored})(x[0] | (uint64_t)x[1] << 32);" if t.bits == 64 else f"""\
out[(i * whole + 2 * j) * behind + k] = ({t.stored})x[0];
        if (2 * j + 1 < whole) out[(i * whole + 2 * j + 1) * behind + k] = ({t.stored})x[1];"""
    return f"""
/* One counter for each 64 bits; smaller results are the low and the high word in turn along one axis. */
static void {name}(uint64_t *state, {t.stored} *out, ptrdiff_t before, ptrdiff_t half, ptrdiff_t whole, ptrdiff_t behind) {{
  const uint32_t key[2] = {{(uint32_t)state[0], (uint32_t)(state[0] >> 32)}};
  for (ptrdiff_t i = 0; i < before; i++)
    for (ptrdiff_t j = 0; j < half; j++)
      for (ptrdiff_t k = 0; k < behind; k++) {{
        const uint64_t counter = state[1] + (uint64_t)((i * half + j) * behind + k);
        uint32_t x[2] = {{(uint32_t)counter, (uint32_t)(counter >> 32)}};
        aot_threefry(key, x);
        {write}
      }}
  state[1] += (uint64_t)(before * half * behind);
  (void)whole;
}}"""


def _philox_bits(name: str, t: CType) -> str:
    per = 2 if t.bits == 64 else 4
    value = "x[2 * k] | (uint64_t)x[2 * k + 1] << 32" if t.bits == 64 else "x[k]"
    return f"""
/* A counter of 128 bits for each four 32-bit words. */
static void {name}(uint64_t *state, ptrdiff_t words, {t.stored} *out, ptrdiff_t size) {{
  const uint32_t key[2] = {{(uint32_t)state[0], (uint32_t)(state[0] >> 32)}};
  const uint64_t low = state[1], high = state[words > 2 ? 2 : 0], count = (uint64_t)(size + {per - 1}) / {per};
  for (uint64_t i = 0; i < count; i++) {{
    const uint64_t a = low + i, b = high + (a < low);
    uint32_t x[4] = {{(uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b, (uint32_t)(b >> 32)}};
    aot_philox(key, x);
    for (int k = 0; k < {per}; k++)
      if ((ptrdiff_t)i * {per} + k < size) out[(ptrdiff_t)i * {per} + k] = ({t.stored})({value});
  }}
  state[1] = low + count;
  if (words > 2) state[2] = high + (state[1] < low);
}}"""
