"""Exact elementwise arithmetic on every element type: what StableHLO means, from the kernels that the runtime has.

Operands have one shape, or are scalars.  Rows of `_WIDER` say in which type a narrow one is computed.
"""
from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from .graph import Tensor
from .shapes import CARRIERS, Shapes

BF16 = np.dtype(ml_dtypes.bfloat16)
#: types without kernels of their own for most operations: computed in a wider type, exactly
WIDER = {"int8": "int32", "int16": "int32", "uint8": "int32", "uint16": "int32", "float16": "float32", "bfloat16": "float32"}
SIGNED = {"uint8": "int8", "uint16": "int16", "uint32": "int32", "uint64": "int64"}
UNSIGNED = {v: k for k, v in SIGNED.items()}
NEGATED = {"NE": "EQ"}
COMPARISONS = {"EQ": "EQUAL", "NE": "NOT_EQUAL", "LT": "LESS", "LE": "LESS_EQUAL", "GT": "GREATER", "GE": "GREATER_EQUAL"}


def is_float(dtype: np.dtype) -> bool: return dtype.kind == "f" or dtype == BF16


def bits(dtype: np.dtype) -> int: return 8 * np.dtype(dtype).itemsize


class Arithmetic(Shapes):
    """add, subtract, multiply, compare, select, convert, bits."""

    def elementwise(self, operator: str, *xs: Tensor, dtype=None) -> Tensor:
        """One node; flat where the rank is above four, with equal shapes where the kernel does not broadcast."""
        shape = next((x.shape for x in xs if x.rank), ())
        if operator.startswith("STABLEHLO_") or operator == "ATAN2":
            xs = tuple(self.broadcast(x, shape) for x in xs)
        else:
            xs = tuple(self._scalar_if_splat(x, xs) for x in xs)
            xs = tuple(self._unrepeated(x, xs) for x in xs) if len(shape) <= 4 else xs
        if len(shape) <= 4:
            return self.node(operator, xs, shape, dtype)
        flat = [self.reshape(x, (x.size,)) if x.rank else x for x in xs]
        return self.reshape(self.node(operator, flat, (math.prod(shape),), dtype), shape)

    def _scalar_if_splat(self, x: Tensor, others: tuple[Tensor, ...]) -> Tensor:
        """A constant of equal elements takes one element in the file, if another operand has the shape."""
        if x.value is None or x.rank == 0 or any(x.value.strides) or not x.size:
            return x
        if not any(o.shape == x.shape and (o.value is None or any(o.value.strides)) for o in others):
            return x
        return self.const(x.value.reshape(-1)[0])

    def _unrepeated(self, x: Tensor, others: tuple[Tensor, ...]) -> Tensor:
        """What a broadcast repeats, if another operand has the shape: the kernels broadcast faster."""
        if x.repeats is None or not any(o.shape == x.shape and o.repeats is None for o in others):
            return x
        return x.repeats

    def like(self, x: Tensor, value) -> Tensor:
        """A scalar constant of the type of x."""
        with np.errstate(all="ignore"):
            return self.const(np.asarray(value).astype(x.dtype))

    def _widened(self, f, *xs: Tensor) -> Tensor:
        """f in a wider type, then back: exact modulo 2^n for integers, rounded once for floats."""
        dtype = xs[0].dtype
        return self.cast(f(*(self.cast(x, WIDER[dtype.name]) for x in xs)), dtype)

    def _signed(self, f, *xs: Tensor) -> Tensor:
        """f on the same bits as signed integers."""
        return self.bitcast(f(*(self.bitcast(x, SIGNED[x.dtype.name]) for x in xs)), xs[0].dtype)

    # ---- arithmetic ----
    def add(self, x: Tensor, y: Tensor) -> Tensor: return self._ring("ADD", "STABLEHLO_ADD", self.add, self.logical_or, x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        return self._ring("MUL", "STABLEHLO_MULTIPLY", self.mul, self.logical_and, x, y)

    def _ring(self, operator: str, second: str, again, logical, x: Tensor, y: Tensor) -> Tensor:
        if x.dtype == bool:
            return logical(x, y)
        for name in (operator, second):
            if self.profile.has(name, x.dtype):
                return self.elementwise(name, x, y)
        if x.dtype.name in WIDER:
            return self._widened(again, x, y)
        return self._signed(again, x, y) if x.dtype.name in SIGNED else self.elementwise(operator, x, y)

    def sub(self, x: Tensor, y: Tensor) -> Tensor:
        if self.profile.has("SUB", x.dtype):
            return self.elementwise("SUB", x, y)
        if x.dtype == np.float64:
            return self.add(x, self.neg(y))
        return self._widened(self.sub, x, y) if x.dtype.name in WIDER else self._signed(self.sub, x, y)

    def neg(self, x: Tensor) -> Tensor:
        if self.profile.has("NEG", x.dtype):
            return self.elementwise("NEG", x)
        if is_float(x.dtype):
            return self.mul(x, self.like(x, -1))
        return self.sub(self.like(x, 0), x)

    def abs(self, x: Tensor) -> Tensor:
        if x.dtype.kind in "ub":
            return x
        if self.profile.has("ABS", x.dtype):
            return self.elementwise("ABS", x)
        if is_float(x.dtype):
            return self.clear_sign(x)
        return self.select(self.less(x, self.like(x, 0)), self.neg(x), x)

    def clear_sign(self, x: Tensor) -> Tensor:
        i = self.bitcast(x, f"int{bits(x.dtype)}")
        return self.bitcast(self.bit_and(i, self.like(i, (1 << bits(x.dtype) - 1) - 1)), x.dtype)

    def maximum(self, x: Tensor, y: Tensor) -> Tensor: return self._extremum("MAXIMUM", self.maximum, self.logical_or, x, y)

    def minimum(self, x: Tensor, y: Tensor) -> Tensor: return self._extremum("MINIMUM", self.minimum, self.logical_and, x, y)

    def _extremum(self, operator: str, again, logical, x: Tensor, y: Tensor) -> Tensor:
        if x.dtype == bool:
            return logical(x, y)
        if x.dtype.name in ("float16", "bfloat16"):
            return self._widened(again, x, y)
        name = operator if self.profile.has(operator, x.dtype) else f"STABLEHLO_{operator}"
        if not self.profile.has(name, x.dtype):
            return self._widened(again, x, y) if x.dtype.name in WIDER else self._extremum_by_order(operator, x, y)
        found = self.elementwise(name, x, y)
        for t in (y, x):                           # the runtime drops a NaN
            found = self._keep_nan(t, found)
        return found

    def _extremum_by_order(self, operator: str, x: Tensor, y: Tensor) -> Tensor:
        return self.select(self.compare("GT" if operator == "MAXIMUM" else "LT", x, y), x, y)

    def _keep_nan(self, x: Tensor, otherwise: Tensor) -> Tensor:
        if not is_float(x.dtype) or x.value is not None and not np.isnan(x.value.astype(np.float64)).any():
            return otherwise
        return self.select(self.is_nan(x), x, otherwise)

    # ---- comparison ----
    def compare(self, direction: str, x: Tensor, y: Tensor, total: bool = False) -> Tensor:
        """total: the total order of floating point numbers, in which -0 < 0 and NaN is outside of the infinities."""
        if total and x.dtype.name in ("float16", "bfloat16"):
            x, y = self.cast(x, np.float32), self.cast(y, np.float32)
        if total and is_float(x.dtype):
            return self.compare(direction, self.order_key(x), self.order_key(y))
        if x.dtype == bool:
            return self._compare_bool(direction, x, y)
        operator = COMPARISONS[direction]
        if self.profile.has(operator, x.dtype):
            return self.elementwise(operator, x, y, dtype=bool)
        if x.dtype.name in WIDER:
            return self.compare(direction, self.cast(x, WIDER[x.dtype.name]), self.cast(y, WIDER[y.dtype.name]))
        if x.dtype == np.float64:
            return self._compare_double(direction, x, y)
        return self.compare(direction, self.biased(x), self.biased(y))

    def biased(self, x: Tensor) -> Tensor:
        """Unsigned -> signed, in the same order."""
        signed = self.bitcast(x, SIGNED[x.dtype.name])
        return self.add(signed, self.like(signed, np.iinfo(signed.dtype).min))

    def unbiased(self, x: Tensor) -> Tensor:
        """The unsigned number that `biased` made x of."""
        return self.bitcast(self.add(x, self.like(x, np.iinfo(x.dtype).min)), UNSIGNED[x.dtype.name])

    def _compare_bool(self, direction: str, x: Tensor, y: Tensor) -> Tensor:
        if direction in ("EQ", "NE"):
            return self.elementwise(COMPARISONS[direction], x, y, dtype=bool)
        return self.compare(direction, self.cast(x, np.int32), self.cast(y, np.int32))

    def _compare_double(self, direction: str, x: Tensor, y: Tensor) -> Tensor:
        """By bits: the runtime compares no double precision."""
        a, b = (self.order_key(self.add(t, self.like(t, 0.0))) for t in (x, y))         # -0 + 0 = 0
        found = self.compare("EQ" if direction == "NE" else direction, a, b)
        for t in (x, y):
            if t.value is None or np.isnan(t.value).any():
                found = self.logical_and(found, self.logical_not(self.is_nan(t)))
        return self.logical_not(found) if direction == "NE" else found

    def order_key(self, x: Tensor) -> Tensor:
        """A signed integer for each float, in the total order."""
        i = self.bitcast(x, f"int{bits(x.dtype)}")
        flipped = self.bit_xor(i, self.like(i, np.iinfo(i.dtype).max))
        return self.select(self.less(i, self.like(i, 0)), flipped, i)

    def from_order_key(self, key: Tensor, dtype: np.dtype) -> Tensor:
        """The number that `order_key` made an integer of."""
        flipped = self.bit_xor(key, self.like(key, np.iinfo(key.dtype).max))
        return self.bitcast(self.select(self.less(key, self.like(key, 0)), flipped, key), dtype)

    def less(self, x: Tensor, y: Tensor) -> Tensor: return self.compare("LT", x, y)

    def equal(self, x: Tensor, y: Tensor) -> Tensor: return self.compare("EQ", x, y)

    def is_nan(self, x: Tensor) -> Tensor:
        if x.dtype == np.float64:
            i = self.bitcast(self.clear_sign(x), np.int64)
            return self.less(self.like(i, 0x7FF << 52), i)
        return self.compare("NE", x, x)

    def select(self, predicate: Tensor, x: Tensor, y: Tensor) -> Tensor:
        if self.profile.has("SELECT_V2", x.dtype):
            return self.elementwise("SELECT_V2", predicate, x, y, dtype=x.dtype)
        if x.dtype == np.float16:
            return self._widened(lambda *ts: self.select(predicate, *ts), x, y)
        carrier = CARRIERS[x.dtype.name][0]
        return self.bitcast(self.select(predicate, *(self.bitcast(t, carrier) for t in (x, y))), x.dtype)

    def any(self, x: Tensor) -> Tensor:
        """Whether any element is true: bool[]."""
        flat = self.reshape(x, (x.size,))
        return self.node("REDUCE_ANY", [flat, self.i32([0])], ())

    # ---- logic and bits ----
    def logical_and(self, x: Tensor, y: Tensor) -> Tensor: return self.elementwise("LOGICAL_AND", x, y)

    def logical_or(self, x: Tensor, y: Tensor) -> Tensor: return self.elementwise("LOGICAL_OR", x, y)

    def logical_not(self, x: Tensor) -> Tensor: return self.elementwise("LOGICAL_NOT", x)

    def bit_and(self, x: Tensor, y: Tensor) -> Tensor:
        if x.dtype == bool:
            return self.logical_and(x, y)
        if self.profile.has("STABLEHLO_AND", x.dtype):
            return self.elementwise("STABLEHLO_AND", x, y)
        if x.dtype.itemsize == 8:
            return self._in_halves(self.bit_and, x, y)
        return self._and_without_kernel(x, y)

    def _and_without_kernel(self, x: Tensor, y: Tensor) -> Tensor:
        """x + y = (x ^ y) + 2 (x & y), for 16 bits at a time, in int32."""
        if x.dtype != np.int32:
            wide = self._and_without_kernel(*(self._as_int32(t) for t in (x, y)))
            return self.bitcast(wide, x.dtype) if x.dtype.itemsize == 4 else self.node("CAST", [wide], wide.shape, x.dtype)

        def common(a: Tensor, b: Tensor) -> Tensor:
            twice = self.sub(self.add(a, b), self.elementwise("BITWISE_XOR", a, b))
            return self.elementwise("RIGHT_SHIFT", twice, self.like(a, 1))
        high = [self.elementwise("RIGHT_SHIFT", t, self.like(t, 16)) for t in (x, y)]
        low = [self.sub(t, self.mul(h, self.like(h, 1 << 16))) for t, h in zip((x, y), high)]
        return self.add(self.mul(common(*high), self.like(x, 1 << 16)), common(*low))

    def _as_int32(self, x: Tensor) -> Tensor:
        return self.bitcast(x, np.int32) if x.dtype.itemsize == 4 else self.cast(x, np.int32)

    def bit_xor(self, x: Tensor, y: Tensor) -> Tensor:
        if x.dtype == bool:
            return self.compare("NE", x, y)
        if x.dtype.itemsize == 8:
            return self._in_halves(self.bit_xor, x, y)
        return self.elementwise("BITWISE_XOR", x, y)

    def bit_or(self, x: Tensor, y: Tensor) -> Tensor:
        """No kernel: the bits of one operand, and those of both."""
        if x.dtype == bool:
            return self.logical_or(x, y)
        if x.dtype.itemsize == 8:
            return self._in_halves(self.bit_or, x, y)
        return self.bit_xor(self.bit_xor(x, y), self.bit_and(x, y))

    def bit_not(self, x: Tensor) -> Tensor:
        return self.logical_not(x) if x.dtype == bool else self.bit_xor(x, self.like(x, -1 if x.dtype.kind == "i" else
                                                                                  np.iinfo(x.dtype).max))

    def _in_halves(self, f, *xs: Tensor) -> Tensor:
        """f on 64-bit integers as pairs of 32-bit ones."""
        shape = next((x.shape for x in xs if x.rank), ())
        return self.bitcast(f(*(self.bitcast(self.broadcast(x, shape), np.uint32) for x in xs)), xs[0].dtype)

    def halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The low and the high 32 bits of 64-bit integers or floats, as uint32."""
        pair = self.bitcast(x, np.uint32)
        low, high = (self.along(pair, x.rank, i, i + 1) for i in (0, 1))
        return self.reshape(low, x.shape), self.reshape(high, x.shape)

    def from_halves(self, low: Tensor, high: Tensor, dtype) -> Tensor: return self.bitcast(self.stack([low, high]), dtype)

    # ---- shifts: amounts that are not below the width give 0, or the sign ----
    def shift_left(self, x: Tensor, amount: Tensor) -> Tensor:
        if x.dtype.itemsize == 8:
            return self._shift_left_64(x, amount)
        signed, count = (self.bitcast(t, SIGNED.get(t.dtype.name, t.dtype)) for t in (x, amount))
        if self.profile.has("STABLEHLO_SHIFT_LEFT", signed.dtype):
            shifted = self.elementwise("STABLEHLO_SHIFT_LEFT", signed, self._safe_amount(count))
        else:
            shifted = self.mul(signed, self._power_of_two(self._safe_amount(count)))
        return self.bitcast(self._in_range(amount, shifted, self.like(signed, 0)), x.dtype)

    def _power_of_two(self, count: Tensor) -> Tensor:
        """2^count, from a table."""
        table = np.int64(1) << np.arange(bits(count.dtype), dtype=np.int64)
        if count.value is not None:
            return self.const(table[count.value].astype(count.dtype))
        flat = self.reshape(self.cast(count, np.int32), (count.size,))
        found = self.carry("GATHER", [self.const(table.astype(count.dtype))], flat.shape, flat, axis=0)
        return self.reshape(found, count.shape)

    def shift_right_logical(self, x: Tensor, amount: Tensor) -> Tensor:
        if x.dtype.itemsize == 8:
            return self._shift_right_64(x, amount)
        unsigned, count = (self.bitcast(t, UNSIGNED.get(t.dtype.name, t.dtype)) for t in (x, amount))
        if not self.profile.has("RIGHT_SHIFT", unsigned.dtype):
            wide = self.shift_right_logical(*(self.cast(t, np.uint32) for t in (unsigned, count)))
            return self.bitcast(self._in_range(amount, self.cast(wide, unsigned.dtype), self.like(unsigned, 0)), x.dtype)
        shifted = self.elementwise("RIGHT_SHIFT", unsigned, self._safe_amount(count))
        return self.bitcast(self._in_range(amount, shifted, self.like(unsigned, 0)), x.dtype)

    def shift_right_arithmetic(self, x: Tensor, amount: Tensor) -> Tensor:
        if x.dtype.itemsize == 8:
            negative = self.less(self.bitcast(x, np.int64), self.const(np.int64(0)))
            flipped = self.shift_right_logical(self.select(negative, self.bit_not(x), x), amount)
            return self.select(negative, self.bit_not(flipped), flipped)
        signed = self.bitcast(x, SIGNED.get(x.dtype.name, x.dtype))
        count = self.bitcast(amount, signed.dtype)
        top = self.like(count, bits(x.dtype) - 1)
        count = self.select(self._is_in_range(amount), count, top)
        return self.bitcast(self.elementwise("RIGHT_SHIFT", signed, count), x.dtype)

    def _is_in_range(self, amount: Tensor) -> Tensor:
        unsigned = self.bitcast(amount, UNSIGNED.get(amount.dtype.name, amount.dtype))
        return self.less(unsigned, self.like(unsigned, bits(amount.dtype)))

    def _safe_amount(self, amount: Tensor) -> Tensor:
        width = bits(amount.dtype)
        if amount.value is not None:
            return self.const(np.where((amount.value >= 0) & (amount.value < width), amount.value, 0).astype(amount.dtype))
        return self.bit_and(amount, self.like(amount, width - 1))

    def _in_range(self, amount: Tensor, shifted: Tensor, otherwise: Tensor) -> Tensor:
        if amount.value is not None and ((amount.value >= 0) & (amount.value < bits(amount.dtype))).all():
            return shifted
        return self.select(self._is_in_range(amount), shifted, otherwise)

    def _shift_left_64(self, x: Tensor, amount: Tensor) -> Tensor:
        """In 32-bit halves: the high half takes what leaves the low one, from either side of a shift by 32."""
        (low, high), (n, _) = self.halves(x), self.halves(amount)
        c32 = self.like(low, 32)
        carried = self.bit_or(self.shift_right_logical(low, self.sub(c32, n)), self.shift_left(low, self.sub(n, c32)))
        high = self.bit_or(self.shift_left(high, n), carried)
        return self._shifted_64(self.shift_left(low, n), high, x, amount)

    def _shift_right_64(self, x: Tensor, amount: Tensor) -> Tensor:
        (low, high), (n, _) = self.halves(x), self.halves(amount)
        c32 = self.like(low, 32)
        carried = self.bit_or(self.shift_left(high, self.sub(c32, n)), self.shift_right_logical(high, self.sub(n, c32)))
        low = self.bit_or(self.shift_right_logical(low, n), carried)
        return self._shifted_64(low, self.shift_right_logical(high, n), x, amount)

    def _shifted_64(self, low: Tensor, high: Tensor, x: Tensor, amount: Tensor) -> Tensor:
        shape = next((t.shape for t in (x, amount) if t.rank), ())
        whole = self.from_halves(self.broadcast(low, shape), self.broadcast(high, shape), x.dtype)
        return self._in_range(amount, whole, self.like(whole, 0))

    # ---- types ----
    def cast(self, x: Tensor, dtype) -> Tensor:
        """StableHLO's convert: integers wrap; floats saturate to integers and NaN is 0; bool is x != 0."""
        dtype = np.dtype(dtype)
        if x.dtype == dtype:
            return x
        if x.value is not None and is_float(x.dtype) == is_float(dtype):
            with np.errstate(all="ignore"):
                return self.const(_cast_constant(x.value, dtype))
        if dtype.kind == "b":
            return self.compare("NE", x, self.like(x, 0))
        if is_float(x.dtype) and not is_float(dtype):
            return self._float_to_int(x, dtype)
        return self._cast_64(x, dtype)

    def _float_to_int(self, x: Tensor, dtype: np.dtype) -> Tensor:
        """Truncated and saturated."""
        x = self.cast(x, np.float32) if x.dtype.name in WIDER else x
        x = self.select(self.is_nan(x), self.like(x, 0), x)
        if dtype.itemsize == 8:
            return self._float_to_64(x, dtype)
        info = np.iinfo(dtype)
        over = self.compare("GE", x, self.like(x, 2.0 ** 32)) if dtype == np.uint32 else None
        if x.dtype == np.float64 or dtype != np.int32:        # the bounds of int32 are no float32
            x = self.minimum_plain(self.maximum_plain(x, self.like(x, info.min)), self._below(x, info.max))
        wide = self.node("CAST", [x], x.shape, np.int32 if dtype != np.uint32 else np.int64)
        found = self.node("CAST", [wide], x.shape, dtype) if wide.dtype != dtype else wide
        return found if over is None else self.select(over, self.like(found, info.max), found)

    def _below(self, x: Tensor, bound: int) -> Tensor:
        """The largest number of the type of x that is not above an integer."""
        value = np.array(bound, x.dtype)
        return self.const(value if int(value) <= bound else np.nextafter(value, x.dtype.type(0)))

    def maximum_plain(self, x: Tensor, y: Tensor) -> Tensor:
        """Of numbers that are not NaN."""
        return self.elementwise("MAXIMUM" if self.profile.has("MAXIMUM", x.dtype) else "STABLEHLO_MAXIMUM", x, y)

    def minimum_plain(self, x: Tensor, y: Tensor) -> Tensor:
        return self.elementwise("MINIMUM" if self.profile.has("MINIMUM", x.dtype) else "STABLEHLO_MINIMUM", x, y)

    def _float_to_64(self, x: Tensor, dtype: np.dtype) -> Tensor:
        info = np.iinfo(dtype)
        if dtype == np.uint64:
            return self._float_to_u64(x)
        inside = self.minimum_plain(self.maximum_plain(x, self.like(x, info.min)), self._below(x, info.max))
        found = self.node("CAST", [inside], x.shape, np.int64)
        over = self.compare("GE", x, self.like(x, 2.0 ** 63))
        return self.select(over, self.like(found, info.max), found)

    def _float_to_u64(self, x: Tensor) -> Tensor:
        """The upper half of the range, less 2^63, and the lower one."""
        x = self.maximum_plain(x, self.like(x, 0))
        upper = self.compare("GE", x, self.like(x, 2.0 ** 63))
        reduced = self.select(upper, self.sub(x, self.like(x, 2.0 ** 63)), x)
        low = self.bitcast(self._float_to_64(reduced, np.dtype(np.int64)), np.uint64)
        found = self.select(upper, self.add(low, self.like(low, 1 << 63)), low)
        over = self.compare("GE", x, self.like(x, 2.0 ** 64))
        return self.select(over, self.like(found, (1 << 64) - 1), found)

    def _cast_64(self, x: Tensor, dtype: np.dtype) -> Tensor:
        """uint64 has no CAST: the same bits as int64, or by halves."""
        if dtype == np.uint64:
            return self.bitcast(self.cast(x, np.int64), dtype)
        if x.dtype != np.uint64:
            return self._cast_plain(x, dtype)
        if not is_float(dtype):
            return self.cast(self.bitcast(x, np.int64), dtype)
        low, high = (self.node("CAST", [t], x.shape, np.float64) for t in self.halves(x))
        return self.cast(self.add(self.mul(high, self.like(high, 2.0 ** 32)), low), dtype)

    def _cast_plain(self, x: Tensor, dtype: np.dtype) -> Tensor:
        if is_float(dtype) and dtype.name in WIDER and x.dtype not in (np.float32, np.float64):
            return self.node("CAST", [self._cast_plain(x, np.dtype(np.float32))], x.shape, dtype) if x.dtype != dtype else x
        if dtype.name in WIDER and x.dtype == np.float64 or x.dtype.name in ("float16", "bfloat16") and dtype != np.float32:
            return self._cast_plain(self.node("CAST", [x], x.shape, np.float32), dtype)
        return self.node("CAST", [x], x.shape, dtype)


def _cast_constant(value: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if not any(value.strides):                        # a splat stays one
        return np.broadcast_to(value.reshape(-1)[:1].astype(dtype).reshape(()), value.shape)
    return value.astype(dtype)
