"""Rows: bits of numbers - shifts, counts, bitcasts, reduced precision, random bits.

Opset 26 has BitCast.  Before it, the bits of a float are computed: its exponent by comparing with powers of two, its
mantissa by scaling, which is exact for everything but the payload and the sign of NaN.
"""
from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from aot.exporters.stablehlo import Op

from .elementwise import is_negative
from .graph import BF16, ELEMENTS, F32, F64, I32, I64, U32, U64, Graph, Inexpressible, Tensor
from .lowering import Lowering, row


def unsigned(dtype: np.dtype) -> np.dtype:
    """The unsigned integer type of the same width."""
    return np.dtype(f"uint{dtype.itemsize * 8}")


# ---- shifts ----------------------------------------------------------------------------------------------------------

@row("shift_left", "shift_right_logical")
def _shift(c: Lowering, op: Op, x: Tensor, s: Tensor) -> Tensor:
    return shift(c.g, "LEFT" if op.name == "shift_left" else "RIGHT", x, s)


def shift(g: Graph, direction: str, x: Tensor, s: Tensor) -> Tensor:
    """Logical shift; amounts that are negative or at least the width give 0."""
    wide = unsigned(x.dtype)
    bits, known = x.dtype.itemsize * 8, s.numpy()
    amount = g.cast(s, wide)
    shifted = g.cast(g("BitShift", g.cast(x, wide), amount, direction=direction), x.dtype)
    if known is not None and ((known >= 0) & (known < bits)).all():
        return shifted
    return g.where(g("Less", amount, g.like(bits, amount)), shifted, g.like(0, x))


@row("shift_right_arithmetic")
def _shift_arithmetic(c: Lowering, op: Op, x: Tensor, s: Tensor) -> Tensor:
    """x < 0 ? ~(~x >> s) : x >> s; large amounts leave only the sign."""
    g, wide = c.g, unsigned(x.dtype)
    top = x.dtype.itemsize * 8 - 1
    known, amount = s.numpy(), g.cast(s, wide)
    if known is None or not ((known >= 0) & (known <= top)).all():
        amount = g("Min", amount, g.like(top, amount))
    if x.dtype.kind == "u":                                    # the type does not change what the operation does
        signed = np.dtype(f"int{x.dtype.itemsize * 8}")
        return g.cast(_shift_arithmetic(c, op, g.cast(x, signed), g.cast(s, signed)), x.dtype)
    if g.opset >= 28:
        return g("BitShift", x, g.cast(amount, x.dtype), direction="RIGHT")
    negative = g("Less", x, g.like(0, x))
    flipped = g.where(negative, g("BitwiseNot", x), x)
    moved = g.cast(g("BitShift", g.cast(flipped, wide), amount, direction="RIGHT"), x.dtype)
    return g.where(negative, g("BitwiseNot", moved), moved)


# ---- counts ----------------------------------------------------------------------------------------------------------

@row("popcnt")
def _popcount(c: Lowering, op: Op, x: Tensor) -> Tensor:
    g = c.g
    wide = U64 if x.dtype.itemsize == 8 else U32
    return g.cast(_ones(g, g.cast(g.cast(x, unsigned(x.dtype)), wide)), x.dtype)


def _ones(g: Graph, x: Tensor) -> Tensor:
    """The number of set bits, added up in parallel."""
    width = x.dtype.itemsize * 8

    def repeated(byte: int) -> Tensor: return g.like(int.from_bytes(bytes([byte]) * (width // 8), "little"), x)
    def right(v: Tensor, n: int) -> Tensor: return g("BitShift", v, g.like(n, v), direction="RIGHT")
    x = g("Sub", x, g("BitwiseAnd", right(x, 1), repeated(0x55)))
    x = g("Add", g("BitwiseAnd", x, repeated(0x33)), g("BitwiseAnd", right(x, 2), repeated(0x33)))
    x = g("BitwiseAnd", g("Add", x, right(x, 4)), repeated(0x0F))
    return right(g("Mul", x, repeated(0x01)), width - 8)


@row("count_leading_zeros")
def _leading_zeros(c: Lowering, op: Op, x: Tensor) -> Tensor:
    """Spread the highest bit downwards and count what stays 0."""
    g, width = c.g, x.dtype.itemsize * 8
    wide = U64 if width == 64 else U32
    y = g.cast(g.cast(x, unsigned(x.dtype)), wide)
    for n in (1, 2, 4, 8, 16, 32):
        if n < width:
            y = g("BitwiseOr", y, g("BitShift", y, g.like(n, y), direction="RIGHT"))
    return g.cast(g("Sub", g.like(width, y), _ones(g, y)), x.dtype)


# ---- floats as bits --------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Layout:
    """A binary floating-point format and the type in which its parts are computed exactly."""
    mantissa: int
    exponent: int
    compute: np.dtype

    @property
    def bias(self) -> int: return (1 << (self.exponent - 1)) - 1


LAYOUTS = {"float16": Layout(10, 5, F32), "bfloat16": Layout(7, 8, F32), "float32": Layout(23, 8, F32),
           "float64": Layout(52, 11, F64)}


def float_bits(g: Graph, x: Tensor) -> Tensor:
    """The bits of floats as unsigned integers of the same width."""
    bits = unsigned(x.dtype)
    if x.array is not None:
        return Tensor(None, x.shape, bits, x.stored, np.asarray(x.array, order="C").view(bits))
    if g.opset >= 26:
        return g.emit("BitCast", [x], x.shape, bits, {"to": ELEMENTS[bits.name]}, x.stored)
    g.notes["before opset 26, every NaN has the same bits: its sign and payload cannot be read"] = None
    if x.dtype == BF16:
        wide = float_bits(g, g.cast(x, F32))
        return g.cast(g("BitShift", wide, g.like(16, wide), direction="RIGHT"), bits)
    layout = LAYOUTS[x.dtype.name]
    integer = I64 if x.dtype == F64 else I32
    exponent, scaled = _normalised(g, g("Abs", g.cast(x, layout.compute)), layout)
    mantissa = g.cast(g("Mul", scaled, g.like(2.0 ** layout.mantissa, scaled)), integer)
    found = g("Add", mantissa, g("Mul", g.cast(exponent, integer), g.constant(np.asarray(1 << layout.mantissa, integer))))
    infinite = ((1 << layout.exponent) - 1) << layout.mantissa
    found = g.where(g("IsInf", x), g.constant(np.asarray(infinite, integer)), found)
    found = g.where(g("IsNaN", x), g.constant(np.asarray(infinite | 1 << (layout.mantissa - 1), integer)), found)
    found = g.cast(found, bits)
    sign = g.constant(np.asarray(1 << (bits.itemsize * 8 - 1), bits))
    return g.where(is_negative(g, x), g("Add", found, sign), found)


def _normalised(g: Graph, a: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    """(exponent + bias - 1 as float, a / 2**exponent in [1, 2), or below 1 for subnormal numbers) of a >= 0."""
    steps = [1 << i for i in reversed(range(layout.exponent - 1))]
    exponent = g.like(layout.bias - 1, a)
    for k in steps:
        large = g("GreaterOrEqual", a, g.like(2.0 ** k, a))
        a = g.where(large, g("Mul", a, g.like(2.0 ** -k, a)), a)
        exponent = g("Add", exponent, g.where(large, g.like(k, a), g.like(0, a)))
    for k in steps:
        small = g("Less", a, g.like(2.0 ** (1 - k), a))
        small = g("And", small, g("GreaterOrEqual", exponent, g.like(k, a)))
        a = g.where(small, g("Mul", a, g.like(2.0 ** k, a)), a)
        exponent = g("Sub", exponent, g.where(small, g.like(k, a), g.like(0, a)))
    return exponent, a


def bits_float(g: Graph, b: Tensor, dtype: np.dtype) -> Tensor:
    """Floats from their bits: unsigned integers of the same width."""
    if b.array is not None:
        return Tensor(None, b.shape, dtype, b.stored, np.asarray(b.array, order="C").view(dtype))
    if g.opset >= 26:
        return g.emit("BitCast", [b], b.shape, dtype, {"to": ELEMENTS[dtype.name]}, b.stored)
    if dtype == BF16:
        wide = g.cast(b, U32)
        return g.cast(bits_float(g, g("BitShift", wide, g.like(16, wide), direction="LEFT"), F32), dtype)
    layout = LAYOUTS[dtype.name]
    b = g.cast(b, U32) if b.dtype.itemsize < 4 else b
    full = (1 << layout.exponent) - 1
    mantissa = g("BitwiseAnd", b, g.like((1 << layout.mantissa) - 1, b))
    exponent = g("BitwiseAnd", g("BitShift", b, g.like(layout.mantissa, b), direction="RIGHT"), g.like(full, b))
    hidden = g.where(g("Equal", exponent, g.like(0, b)), g.like(0, b), g.like(1 << layout.mantissa, b))
    value = g("Mul", g.cast(g("Add", mantissa, hidden), layout.compute), _scale(g, exponent, layout))
    is_nan = g("And", g("Equal", exponent, g.like(full, b)), g("Greater", mantissa, g.like(0, b)))
    value = g.where(is_nan, g.like(np.nan, value), value)
    sign = g("BitwiseAnd", b, g.like(1 << (dtype.itemsize * 8 - 1), b))
    return g.cast(g.where(g("Greater", sign, g.like(0, b)), g("Neg", value), value), dtype)


def _scale(g: Graph, exponent: Tensor, layout: Layout) -> Tensor:
    """What to multiply a mantissa with, looked up by the exponent field."""
    powers = [math.ldexp(1.0, max(e, 1) - layout.bias - layout.mantissa) for e in range((1 << layout.exponent) - 1)]
    table = g.constant(np.array([*powers, np.inf], layout.compute))
    index = g.full(g.cast(exponent, I64))
    return g.emit("Gather", [table, index], index.shape, layout.compute, {})


# ---- bitcast ---------------------------------------------------------------------------------------------------------

@row("bitcast_convert")
def _bitcast(c: Lowering, op: Op, x: Tensor) -> Tensor:
    g, to = c.g, op.dtype
    if x.dtype == to:
        return x
    for dtype in (x.dtype, to):
        if dtype.kind not in "iu" and dtype.name not in LAYOUTS:
            raise Inexpressible(f"the bits of {dtype.name} cannot be read in ONNX", "convert it to float32 first")
    if to.kind not in "iu" and g.opset < 26 and (fast := _one_to_two(g, op, x)) is not None:
        return fast
    bits = _resized(g, g.cast(x, unsigned(x.dtype)) if x.dtype.kind in "iu" else float_bits(g, x), unsigned(to))
    return g.cast(bits, to) if to.kind in "iu" else bits_float(g, bits, to)


def _resized(g: Graph, x: Tensor, to: np.dtype) -> Tensor:
    """Unsigned integers cut into (or put together from) smaller ones along the last axis, lowest first."""
    if x.dtype.itemsize == to.itemsize:
        return x
    if x.dtype.itemsize > to.itemsize:
        bits, n = to.itemsize * 8, x.dtype.itemsize // to.itemsize
        parts = [g.cast(g("BitShift", x, g.like(i * bits, x), direction="RIGHT") if i else x, to) for i in range(n)]
        return g.concat([g.reshape(p, (*x.shape, 1)) for p in parts], x.rank)
    bits, n, shape = x.dtype.itemsize * 8, to.itemsize // x.dtype.itemsize, x.shape[:-1]
    found = None
    for i in range(n):
        start = [0] * (x.rank - 1) + [i]
        part = g.cast(g.reshape(g.slice(x, start, [*shape, i + 1]), shape), to)
        part = g("BitShift", part, g.like(i * bits, part), direction="LEFT") if i else part
        found = part if found is None else g("BitwiseOr", found, part)
    assert found is not None
    return found


def _one_to_two(g: Graph, op: Op, x: Tensor) -> Tensor | None:
    """Random mantissas: bits of (b >> n) | ONE, where ONE has only an exponent, are a scaled integer."""
    made = op.operands[0].op
    layout = LAYOUTS.get(op.dtype.name)
    if layout is None or made is None or made.name != "or" or x.dtype.itemsize != op.dtype.itemsize:
        return None
    ones = [v.constant for v in made.operands]
    shifted = [v.op for v in made.operands if v.op is not None and v.op.name == "shift_right_logical"]
    one = next((int(k.reshape(-1)[0]) for k in ones if k is not None and k.size and (k == k.reshape(-1)[0]).all()), None)
    if one is None or not shifted or one & ((1 << layout.mantissa) - 1) or one >> (x.dtype.itemsize * 8 - 1):
        return None
    amount = shifted[0].operands[1].constant
    if amount is None or (amount < x.dtype.itemsize * 8 - layout.mantissa).any():
        return None
    exponent = (one >> layout.mantissa) - layout.bias
    mantissa = g.cast(g("BitwiseAnd", x, g.like((1 << layout.mantissa) - 1, x)), layout.compute)
    value = g("Mul", mantissa, g.like(2.0 ** (exponent - layout.mantissa), mantissa))
    return g.cast(g("Add", value, g.like(2.0 ** exponent, value)), op.dtype)


# ---- reduced precision -----------------------------------------------------------------------------------------------

@row("reduce_precision")
def _reduce_precision(c: Lowering, op: Op, x: Tensor) -> Tensor:
    """Round the mantissa to even, overflow to infinity, numbers below the smallest normal one to zero."""
    g, own = c.g, LAYOUTS.get(x.dtype.name)
    exponent, mantissa = op.attrs["exponent_bits"], op.attrs["mantissa_bits"]
    if own is None:
        raise Inexpressible(f"the precision of {x.dtype.name} cannot be reduced")
    if exponent >= own.exponent and mantissa >= own.mantissa:
        return x
    bits = float_bits(g, x)
    cut = own.mantissa - mantissa
    if cut > 0:
        last = g("BitwiseAnd", g("BitShift", bits, g.like(cut, bits), direction="RIGHT"), g.like(1, bits))
        bits = g("Add", bits, g("Add", last, g.like((1 << (cut - 1)) - 1, bits)))
        bits = g("BitwiseAnd", bits, g.like(~((1 << cut) - 1) & ((1 << bits.dtype.itemsize * 8) - 1), bits))
    if exponent < own.exponent:
        bits = _in_range(g, bits, own, (1 << (exponent - 1)) - 1)
    return g.where(g("IsNaN", x), x, bits_float(g, bits, x.dtype))


def _in_range(g: Graph, bits: Tensor, own: Layout, bias: int) -> Tensor:
    field = ((1 << own.exponent) - 1) << own.mantissa
    sign = g("BitwiseAnd", bits, g.like(1 << (bits.dtype.itemsize * 8 - 1), bits))
    part = g("BitwiseAnd", bits, g.like(field, bits))
    large = g("Greater", part, g.like((own.bias + bias) << own.mantissa, bits))
    small = g("LessOrEqual", part, g.like((own.bias - bias) << own.mantissa, bits))
    bits = g.where(large, g("BitwiseOr", sign, g.like(field, bits)), bits)
    return g.where(small, sign, bits)


# ---- random bits -----------------------------------------------------------------------------------------------------

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(g: Graph, key: tuple[Tensor, Tensor], x: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Threefry-2x32 with 20 rounds on uint32 tensors."""
    ks = (*key, g("BitwiseXor", g("BitwiseXor", *key), g.constant(np.uint32(0x1BD11BDA))))
    a, b = g("Add", x[0], ks[0]), g("Add", x[1], ks[1])
    for i in range(5):
        for r in _ROTATIONS[i % 2]:
            a = g("Add", a, b)
            b = g("BitwiseXor", a, _rotated(g, b, r))
        a = g("Add", a, ks[(i + 1) % 3])
        b = g("Add", g("Add", b, ks[(i + 2) % 3]), g.constant(np.uint32(i + 1)))
    return a, b


def _rotated(g: Graph, x: Tensor, r: int) -> Tensor:
    return g("BitwiseOr", g("BitShift", x, g.like(r, x), direction="LEFT"),
             g("BitShift", x, g.like(32 - r, x), direction="RIGHT"))


def _halves(g: Graph, x: Tensor) -> tuple[Tensor, Tensor]:
    """(low, high) 32 bits of uint64."""
    return (g.cast(g("BitwiseAnd", x, g.like(0xFFFFFFFF, x)), U32),
            g.cast(g("BitShift", x, g.like(32, x), direction="RIGHT"), U32))


def _joined(g: Graph, low: Tensor, high: Tensor) -> Tensor:
    high = g.cast(high, U64)
    return g("BitwiseOr", g.cast(low, U64), g("BitShift", high, g.like(32, high), direction="LEFT"))


@row("rng_bit_generator")
def _random_bits(c: Lowering, op: Op, state: Tensor) -> list[Tensor]:
    g, algorithm, out = c.g, op.attrs["rng_algorithm"], op.results[1].type
    if state.dtype != U64:
        raise Inexpressible(f"its state is {state.dtype.name}, not uint64")
    words = [g.reshape(g.slice(state, [i], [i + 1]), ()) for i in range(state.shape[0])]
    bits = out.dtype.itemsize * 8
    if algorithm != "THREE_FRY":        # XLA's default on CPU is philox
        found, words = _philox(g, words, out.size, bits)
        found = g.reshape(found, out.shape)
    else:
        found, words = _threefry_bits(g, words, out.shape, bits)
    new = g.concat([g.reshape(w, (1,)) for w in words], 0)
    made = g.cast(g.cast(found, unsigned(out.dtype)) if bits < 32 else found, out.dtype)
    return [new, made]


def _threefry_bits(g: Graph, words: list[Tensor], shape: tuple[int, ...], bits: int) -> tuple[Tensor, list[Tensor]]:
    """One counter for each 64 bits; smaller results are the low and the high word in turn along one axis."""
    axis, half = (0, shape) if bits == 64 else _half_shape(shape)
    n = math.prod(half)
    low, high = threefry(g, _halves(g, words[0]), _halves(g, _counters(g, words[1], n)))
    if bits == 64:
        found = g.reshape(_joined(g, low, high), shape)
    else:
        apart = (*half[:axis + 1], 1, *half[axis + 1:])
        both = g.concat([g.reshape(g.full(t), apart) for t in (low, high)], axis + 1)
        doubled = [2 * m if i == axis else m for i, m in enumerate(half)]
        found = g.reshape(g.slice(g.reshape(both, doubled), [0] * len(half), shape or (1,)), shape)
    return found, [words[0], g("Add", words[1], g.constant(np.uint64(n)))]


def _half_shape(shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """The axis along which words alternate, the first of even size or else the largest; and the shape of the counters."""
    shape = shape or (1,)
    axis = next((i for i, n in enumerate(shape) if n % 2 == 0), int(np.argmax(shape)))
    return axis, tuple(-(-n // 2) if i == axis else n for i, n in enumerate(shape))


def _counters(g: Graph, start: Tensor, n: int) -> Tensor:
    return g("Add", g.broadcast(start, (), (n,)), g.constant(np.arange(n, dtype=np.uint64)))


def _philox(g: Graph, words: list[Tensor], n: int, bits: int) -> tuple[Tensor, list[Tensor]]:
    """Philox-4x32 with 10 rounds: a 128-bit counter for each four 32-bit words."""
    per = 4 if bits <= 32 else 2
    count = -(-n // per)
    low = words[1]
    high = words[2 if len(words) > 2 else 0]
    counters = _counters(g, low, count)
    carry = g.cast(g("Less", counters, g.broadcast(low, (), (count,))), U64)
    x = [*_halves(g, counters), *_halves(g, g("Add", g.broadcast(high, (), (count,)), carry))]
    k = list(_halves(g, words[0]))
    for i in range(10):
        x = _philox_round(g, x, k)
        k = [g("Add", k[0], g.constant(np.uint32(0x9E3779B9))), g("Add", k[1], g.constant(np.uint32(0xBB67AE85)))] \
            if i < 9 else k
    parts = x if bits <= 32 else [_joined(g, x[0], x[1]), _joined(g, x[2], x[3])]
    flat = g.reshape(g.concat([g.reshape(g.full(p), (count, 1)) for p in parts], 1), (count * per,))
    new_low = g("Add", low, g.constant(np.uint64(count)))
    new_high = g("Add", high, g.cast(g("Less", new_low, low), U64))
    return g.slice(flat, [0], [n]), [words[0], new_low, *([new_high] if len(words) > 2 else [])]


def _philox_round(g: Graph, x: list[Tensor], k: list[Tensor]) -> list[Tensor]:
    low0, high0 = _halves(g, g("Mul", g.cast(x[0], U64), g.constant(np.uint64(0xD2511F53))))
    low1, high1 = _halves(g, g("Mul", g.cast(x[2], U64), g.constant(np.uint64(0xCD9E8D57))))
    return [g("BitwiseXor", g("BitwiseXor", high1, x[1]), k[0]), low1,
            g("BitwiseXor", g("BitwiseXor", high0, x[3]), k[1]), low0]


__all__ = ["bits_float", "float_bits", "shift", "threefry", "unsigned"]
