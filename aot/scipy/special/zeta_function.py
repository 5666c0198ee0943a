"""Hurwitz zeta function and Bernoulli numbers."""
from __future__ import annotations

import math
import operator
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import dtypes, lax
from aot.api import jvp
from aot.custom import custom_jvp
from aot.numpy._util import concrete
from aot.scipy._util import inexact

Array = Any


@cache
def _bernoulli(n: int) -> Fraction:
    """B_n by sum_k binomial(n + 1, k) B_k = 0."""
    if n == 0:
        return Fraction(1)
    if n > 1 and n % 2:
        return Fraction(0)
    return -sum((math.comb(n + 1, k) * _bernoulli(k) for k in range(n)), start=Fraction(0)) / (n + 1)


def bernoulli(n: int) -> Array:
    """B_0 .. B_n, with B_1 = -1/2."""
    n = operator.index(concrete(n, "Argument n of bernoulli"))
    if n < 0:
        raise ValueError("n must be a non-negative integer.")
    return jnp.array([_to_float(_bernoulli(k)) for k in range(n + 1)])


def _to_float(b: Fraction) -> float:
    try:
        return float(b)
    except OverflowError:
        return math.inf if b > 0 else -math.inf


@custom_jvp
def zeta(x: Array, q: Array | None = None) -> Array:
    """Hurwitz zeta function: sum over k >= 0 of (k + q)^-x."""
    if q is None:
        raise NotImplementedError(
            "Riemann zeta function not implemented; pass q != None to compute the Hurwitz Zeta function.")
    return lax.zeta(*inexact("zeta", x, q))


def _euler_maclaurin(s: Array, a: Array) -> Array:
    """zeta(s, a) in a form that can be differentiated: formula (5) of F. Johansson, "Rigorous high-precision
    computation of the Hurwitz zeta function and its derivatives", arXiv:1309.2877."""
    s, a = inexact("zeta", s, a)
    n = 8 if a.dtype == np.float32 else 16
    s, a = jnp.broadcast_arrays(s, a)
    head = sum((a + k) ** -s for k in range(n))
    top = a + n
    total = head + top ** (1 - s) / (s - 1)
    rising, tail, limit = s / top, 0.5, dtypes.finfo(a.dtype).max
    for j in range(1, n + 1):                      # rising = s (s + 1) .. (s + 2j - 2) / top^(2j - 1)
        coefficient = Fraction(math.factorial(2 * j)) / _bernoulli(2 * j)
        tail = tail + jnp.clip(rising, max=limit) / float(coefficient)
        rising = rising * (s + (2 * j - 1)) / top * (s + 2 * j) / top
    return total + top ** -s * tail


@zeta.defjvp
def _zeta_jvp(primals, tangents):
    return jvp(_euler_maclaurin, primals, tangents)
