"""Special functions without a StableHLO operation, composed from others."""
from __future__ import annotations

import numpy as np

from aot.ops import elementwise as ew
from aot.ops.families import binary, lit, unary

# Chebyshev coefficients, interpolated in double precision to 1e-16:
# of exp(-x) I0(x) in t = x/4 - 1 on [0, 8], and of sqrt(x) exp(-x) I0(x) in t = 16/x - 1 on [8, inf)
_I0E_SMALL = (
    0.33839763720473803, -0.30468267234319835, 0.17162090152220866, -0.09490109704804756,
    0.0493052842396706, -0.02373741480589942, 0.010546460394594982, -0.0043243099950506176,
    0.0016394756169414303, -0.0005763755745386508, 0.00018850288509594159, -5.754195010083698e-05,
    1.6448448070681465e-05, -4.416738358362173e-06, 1.1173875389531062e-06, -2.670793852751227e-07,
    6.046995008400219e-08, -1.3000250029149197e-08, 2.6598236692709656e-09, -5.189795312201744e-10,
    9.675806236777058e-11, -1.7268247165649802e-11, 2.955065940785614e-12, -4.855811785382392e-13,
    7.655592029008407e-14, -1.140938391257896e-14, 1.2002317736975124e-15, 2.612314557874141e-16,
    -7.017872974041007e-16, 6.967452568905943e-16)
_I0E_LARGE = (
    0.40224520550705434, 0.003369116478255694, 6.889758346908841e-05, 2.8913705208239447e-06,
    2.0489185887242103e-07, 2.266668990530124e-08, 3.3962320029531785e-09, 4.940602365184181e-10,
    1.1889231149577118e-11, -3.149915250605489e-11, -1.3215691472587112e-11, -1.7941744135350854e-12,
    7.17974971934253e-13, 3.85270579984385e-13, 1.5237364063287973e-14, -4.1505600751626905e-14,
    -9.672323931960893e-15, 3.812447344733349e-15, 1.7438040615005366e-15, -3.4593454201945873e-16,
    -3.3534570653715893e-16, 3.138210103940095e-17, 1.4727310749212215e-16, -9.72286094630446e-18,
    -1.215012539219623e-16)


def chebyshev(coefficients, t):
    """sum c[k] T_k(t) by Clenshaw's recurrence."""
    zero = ew.sub(t, t)
    b1, b2, two_t = zero, zero, ew.add(t, t)
    for c in reversed(coefficients[1:]):
        b1, b2 = ew.add(ew.sub(ew.mul(two_t, b1), b2), lit(t, c)), b1
    return ew.add(ew.sub(ew.mul(t, b1), b2), lit(t, coefficients[0]))


def _bessel_i0e(x):
    a = ew.abs(x)
    small = chebyshev(_I0E_SMALL, ew.sub(ew.mul(ew.min(a, lit(x, 8)), lit(x, 0.25)), lit(x, 1)))
    far = ew.max(a, lit(x, 8))
    large = ew.mul(chebyshev(_I0E_LARGE, ew.sub(ew.div(lit(x, 16), far), lit(x, 1))), ew.rsqrt(far))
    return ew.select(ew.le(a, lit(x, 8)), small, large)


bessel_i0e = unary("bessel_i0e", "", lambda t, y, x: ew.mul(t, ew.sub(ew.bessel_i1e(x), ew.mul(ew.sign(x), y))), "f",
                   emit=lambda e, ins, outs, x: e.inline(_wide(_bessel_i0e), ins, (x,))[0],
                   doc="Exponentially scaled modified Bessel function of order 0: exp(-|x|) I0(x).")


def _wide(f):
    """Compute 16-bit floats in float32."""
    def g(x):
        from aot.trace import typeof
        dtype = typeof(x).dtype
        return f(x) if dtype.itemsize >= 4 else ew.convert(f(ew.convert(x, np.dtype("float32"))), dtype)
    return g


def _mulhi(x, y):
    """Upper half of the product: in 32 bits for narrow integers, else schoolbook with halves of the operands."""
    from aot.ops.families import kind
    from aot.trace import typeof
    dtype = typeof(x).dtype
    bits, unsigned = dtype.itemsize * 8, kind(dtype) == "u"
    if bits < 32:
        wide = np.dtype("uint32" if unsigned else "int32")
        product = ew.mul(ew.convert(x, wide), ew.convert(y, wide))
        return ew.convert(ew.shift_right_logical(product, wide.type(bits)), dtype)
    word = np.dtype(f"uint{bits}")
    high = _mulhi_unsigned(ew.convert(x, word), ew.convert(y, word), word, bits // 2)
    if unsigned:
        return high
    for v, other in ((x, y), (y, x)):           # a negative operand counts as 2^bits more: take off the other
        negative = ew.lt(v, dtype.type(0))
        high = ew.sub(high, ew.select(negative, ew.convert(other, word), ew.sub(high, high)))
    return ew.convert(high, dtype)


def _mulhi_unsigned(x, y, word, half: int):
    low = lambda v: ew.bitwise_and(v, word.type(2**half - 1))
    up = lambda v: ew.shift_right_logical(v, word.type(half))
    middle = ew.add(ew.mul(up(x), low(y)), up(ew.mul(low(x), low(y))))
    other = ew.add(ew.mul(low(x), up(y)), low(middle))
    return ew.add(ew.add(ew.mul(up(x), up(y)), up(middle)), up(other))


mulhi = binary("mulhi", "", None, None, "iu", emit=lambda e, ins, outs, x, y: e.inline(_mulhi, ins, (x, y))[0],
               doc="Upper half of the product of two integers of one dtype: (x * y) >> bits, elementwise.")
