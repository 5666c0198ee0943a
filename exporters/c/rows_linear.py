"""Rows of transforms and factorizations: fft, cholesky, triangular_solve, rng_bit_generator."""
from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from aot.exporters.stablehlo import Op

from .index import Index, strides
from .lowering import Lowering, row
from .memory import Buffer
from .types import BRIEF, CType, Inexpressible, of

WIDE = BRIEF["c128"]


# ---- Fourier transforms ------------------------------------------------------------------------------------------------

@row("fft")
def fft(l: Lowering, op: Op) -> None:
    """In double precision, one axis after the other."""
    x, kind, lengths = op.operands[0], op.attrs["fft_type"], [int(n) for n in op.attrs["fft_length"]]
    source, rank = l.stored(x), x.rank
    shape = [*op.shape[:rank - len(lengths)], *lengths]             # of the whole transform
    inverse = kind in ("IFFT", "IRFFT")
    with l.kernel():
        whole = l.temporary(WIDE, *shape)
        longest = max(lengths)
        line, room = l.temporary(WIDE, longest), l.temporary(WIDE, longest)
        out = l.new(op.result)
        axes = list(range(rank - len(lengths), rank))
        half = rank - 1 if kind == "IRFFT" else None
        with l.w.loops(x.shape if half is not None else shape) as at:
            value = l.load(source, at)
            l.put(whole, at, value if source.ctype.kind == "c" else f"aot_complex_c128({value}, 0)")
        if half is not None:        # the axis of which a half is given comes last: the others are transformed before
            for axis in axes[:-1]:
                _transform(l, whole, axis, x.shape, line, room, inverse)
            _mirror(l, whole, x.shape)
            _transform(l, whole, half, shape, line, room, inverse)
        else:
            for axis in axes:
                _transform(l, whole, axis, shape, line, room, inverse)
        scale = f" / {math.prod(lengths)}" if inverse else ""
        with l.w.loops(op.shape) as at:
            value = l.load(whole, at)
            value = f"creal({value}){scale}" if out.ctype.kind == "f" else f"{value}{scale}"
            l.put(out, at, f"({out.ctype.value})({value})")


def _transform(l: Lowering, whole: Buffer, axis: int, extents: Sequence[int], line: Buffer, room: Buffer,
               inverse: bool) -> None:
    """Transform along one axis, in place.  extents: how much of each other axis there is."""
    n = whole.shape[axis]
    if n == 1:
        return
    angles = -2 * np.pi * np.arange(n) / n
    roots = Buffer(l.table(np.stack([np.cos(angles), np.sin(angles)], -1).reshape(-1)), (2 * n,))
    others = [d for d in range(len(extents)) if d != axis]
    step = strides(whole.shape)[axis]
    with l.w.loops([extents[d] for d in others]) as outer:
        at = list(outer)
        at.insert(axis, Index())
        start = sum((i * s for i, s in zip(at, strides(whole.shape))), Index())
        l.w.line(f"aot_fft({l.pointer(whole, start)}, {step}, {n}, {l.pointer(roots)}, 1, {int(inverse)}, "
                 f"{l.pointer(line, written=True)}, {l.pointer(room, written=True)});")
        with l.w.loop(n) as i:
            l.put(whole, [i if d == axis else j for d, j in enumerate(at)], l.load(line, [i]))


def _mirror(l: Lowering, whole: Buffer, given: Sequence[int]) -> None:
    """The other half of the last axis of a transform of real numbers; the axes before are in the domain of the result."""
    n, half = whole.shape[-1], given[-1]
    with l.w.loops(given[:-1]) as at:
        ends = [0] + ([n // 2] if n % 2 == 0 and half > n // 2 else [])
        for k in ends:              # their imaginary parts mean nothing
            place = [*at, Index((), k)]
            l.put(whole, place, f"aot_complex_c128(creal({l.load(whole, place)}), 0)")
        if n - half > 0:
            with l.w.loop(n - half) as i:
                place, source = [*at, i + half], [*at, i * -1 + (n - half)]
                l.put(whole, place, f"conj({l.load(whole, source)})")


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
