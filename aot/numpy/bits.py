"""The same bits seen as another dtype: what `x.view` and `x.byteswap` do."""
from __future__ import annotations

from typing import Any

import numpy as np

from aot import dtypes, lax
from aot.numpy._util import BOOL, kind, real_of, user_dtype


def view(x: Any, dtype: Any = None) -> Any:
    """`x` as `dtype` bit by bit; the last axis grows or shrinks by the ratio of the widths."""
    if dtype is None:
        return x
    dtype = user_dtype(dtype, "view")
    old, new = dtypes.itemsize_bits(x.dtype), dtypes.itemsize_bits(dtype)
    if x.ndim == 0:
        if old != new:
            raise ValueError("view() of a 0d array is only supported if the itemsize is unchanged.")
        return lax.reshape(view(lax.reshape(x, (1,)), dtype), ())
    if x.shape[-1] * old % new:
        raise ValueError("When changing to a larger dtype, its size must be a divisor of the total size in bytes of the "
                         "last axis of the array.")
    if x.dtype == dtype:
        return x
    return _as_bits(_from_special(x), dtype)


def _from_special(x: Any) -> Any:
    """Booleans as bytes, complex numbers as pairs of floats."""
    if x.dtype == BOOL:
        return lax.convert_element_type(x, np.uint8)
    if kind(x.dtype) == "c":
        pairs = lax.stack([lax.real(x), lax.imag(x)], axis=x.ndim)
        return lax.reshape(pairs, (*x.shape[:-1], 2 * x.shape[-1]))
    return x


def _as_bits(x: Any, dtype: Any) -> Any:
    if dtype == BOOL:
        return lax.ne(_as_bits(x, np.dtype(np.uint8)), np.uint8(0))
    if kind(dtype) == "c":
        parts = _as_bits(x, real_of(dtype))
        return lax.complex(parts[..., 0::2], parts[..., 1::2])
    if x.dtype == dtype:
        return x
    old, new = dtypes.itemsize_bits(x.dtype), dtypes.itemsize_bits(dtype)
    if old < new:
        x = lax.reshape(x, (*x.shape[:-1], x.shape[-1] * old // new, new // old))
    out = lax.bitcast_convert_type(x, dtype)
    return lax.reshape(out, (*out.shape[:-2], out.shape[-2] * out.shape[-1])) if old > new else out


def byteswap(x: Any) -> Any:
    """Every element with its bytes in reversed order."""
    if kind(x.dtype) == "c":
        return lax.complex(byteswap(lax.real(x)), byteswap(lax.imag(x)))
    if x.dtype.itemsize == 1:
        return x
    octets = lax.bitcast_convert_type(x, np.uint8)
    return lax.bitcast_convert_type(lax.rev(octets, (x.ndim,)), x.dtype)
