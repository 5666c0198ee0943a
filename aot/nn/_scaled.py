"""Products of block-scaled low-precision matrices, and the quantization into that form.

A block of `block_size` elements along the contracted dimension shares one scale (OCP Microscaling Formats, 2023).
Computed by widening, on any platform.
"""
from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import dtypes, lax
from aot.custom import custom_vjp
from aot.numpy._util import arrays

Array = Any


def scaled_matmul(lhs: Array, rhs: Array, lhs_scales: Array, rhs_scales: Array,
                  preferred_element_type: Any = np.float32) -> Array:
    """[B M K] times [B N K] over K -> [B M N], each block of K scaled.

    Args:
      lhs_scales, rhs_scales: [B M Ka] and [B N Kb], where Ka and Kb divide K.

    Raises ValueError for shapes that do not fit.
    """
    lhs, rhs, lhs_scales, rhs_scales = arrays("scaled_matmul", lhs, rhs, lhs_scales, rhs_scales)
    dtype = dtypes.check_user_dtype_supported(preferred_element_type, "scaled_matmul")
    if not (lhs.ndim == rhs.ndim == 3) or lhs.shape[0] != rhs.shape[0] or lhs.shape[2] != rhs.shape[2]:
        raise ValueError(f"scaled_matmul multiplies [B M K] by [B N K], got {lhs.shape} and {rhs.shape}")
    a, b = _widened("lhs", lhs, lhs_scales), _widened("rhs", rhs, rhs_scales)
    return jnp.einsum("BMK,BNK->BMN", a, b, preferred_element_type=jnp.float32).astype(dtype)


def _widened(name: str, x: Array, scales: Array) -> Array:
    """Elements times the scale of their block, in float32."""
    if scales.ndim != 3 or scales.shape[:2] != x.shape[:2] or x.shape[2] % scales.shape[2]:
        raise ValueError(f"scaled_matmul: scales {scales.shape} of {name} {x.shape} must have the same first two "
                         "dimensions and a last one that divides that of the array")
    repeated = jnp.repeat(scales.astype(jnp.float32), x.shape[2] // scales.shape[2], axis=2)
    return x.astype(jnp.float32) * repeated


@dataclasses.dataclass
class BlockScaleConfig:
    """How one operand is quantized: block size, element and scale types, and a scale of the whole array (nvfp4)."""

    mode: str
    block_size: int
    data_type: Any
    scale_type: Any
    global_scale: Any
    infer_only: bool = False


def get_scaled_dot_general_config(mode: str, global_scale: Array | None = None) -> BlockScaleConfig:
    """The quantization of `scaled_dot_general`: 'mxfp8' (blocks of 32) or 'nvfp4' (blocks of 16, global_scale [1])."""
    if mode == "mxfp8":
        return BlockScaleConfig(mode, 32, dtypes.float8_e4m3fn, dtypes.float8_e8m0fnu, None)
    if mode == "nvfp4":
        scale = jnp.ones((1,), dtype=jnp.float32) if global_scale is None else global_scale
        return BlockScaleConfig(mode, 16, dtypes.float4_e2m1fn, dtypes.float8_e4m3fn, scale)
    raise ValueError(f"mode is 'mxfp8' or 'nvfp4', got {mode!r}")


def scaled_dot_general(lhs: Array, rhs: Array, dimension_numbers: Any, preferred_element_type: Any = np.float32,
                       configs: list[BlockScaleConfig] | None = None, implementation: str | None = None) -> Array:
    """`lax.dot_general` with both operands quantized in blocks along the contracted dimensions.

    Args:
      configs: for lhs, rhs and the gradient, from `get_scaled_dot_general_config`; None multiplies without quantizing.
      implementation: ignored.

    mxfp8 also quantizes the gradient; nvfp4 passes it through where values were not clipped.
    """
    dtype = dtypes.check_user_dtype_supported(preferred_element_type, "scaled_dot_general")
    if configs is None:
        return lax.dot_general(lhs, rhs, dimension_numbers, preferred_element_type=dtype)
    lhs, rhs = arrays("scaled_dot_general", lhs, rhs)
    (lc, rc), (lb, rb) = dimension_numbers
    a, batch, m = _to_3d(lhs, lb, lc)
    b, _, n = _to_3d(rhs, rb, rc)
    return _product(a, b, configs, dtype).reshape(*batch, *m, *n)


def _to_3d(x: Array, batch: Any, contract: Any) -> tuple[Array, tuple, tuple]:
    """-> ([B M K], batch shape, free shape)."""
    batch, contract = [tuple(d % x.ndim for d in dims) for dims in (batch, contract)]
    free = tuple(d for d in range(x.ndim) if d not in (*batch, *contract))
    shape = lambda dims: tuple(x.shape[d] for d in dims)
    flat = lax.transpose(x, (*batch, *free, *contract)).reshape(*[math.prod(shape(d)) for d in (batch, free, contract)])
    return flat, shape(batch), shape(free)


def _product(a: Array, b: Array, configs: list[BlockScaleConfig], dtype: Any) -> Array:
    """[B M K], [B N K] -> [B M N] with a derivative."""
    first, second, third = configs

    @custom_vjp
    def product(a, b):
        return _quantized_product(a, b, first, second, dtype)

    def forward(a, b):
        return product(a, b), (a, b)

    def backward(saved, ct):
        a, b = saved
        at, bt, ctt = [jnp.swapaxes(x, 1, 2) for x in (a, b, ct)]
        if third.mode == "mxfp8":
            da, db = _quantized_product(ct, bt, third, second, dtype), _quantized_product(ctt, at, third, first, dtype)
        else:
            da = _kept(a, jnp.einsum("BMN,BKN->BMK", ct, bt), first)
            db = _kept(b, jnp.einsum("BNM,BKM->BNK", ctt, at), second)
        return da.astype(a.dtype), db.astype(b.dtype)

    product.defvjp(forward, backward)
    return product(a, b)


def _kept(x: Array, grad: Array, config: BlockScaleConfig) -> Array:
    """The gradient where x was inside of the representable range."""
    limit = config.global_scale * _max(config.data_type) * _max(config.scale_type)
    return jnp.where(jnp.abs(x) <= limit, grad, 0)


def _quantized_product(a, b, config_a, config_b, dtype) -> Array:
    (qa, sa), (qb, sb) = quantize(a, config_a), quantize(b, config_b)
    out = scaled_matmul(qa, qb, sa, sb, preferred_element_type=dtype)
    if config_a.global_scale is not None:
        out = out * (config_a.global_scale * config_b.global_scale).astype(out.dtype)
    return out


def quantize(x: Array, config: BlockScaleConfig) -> tuple[Array, Array]:
    """[B M K] -> (low-precision [B M K], scales [B M K/block])."""
    b, m, k = x.shape
    if k % config.block_size or not k:
        raise ValueError(f"{config.mode} quantizes blocks of {config.block_size} elements; the contracted dimension "
                         f"has size {k}")
    blocks = x.reshape(b, m, k // config.block_size, config.block_size)
    if config.global_scale is not None:
        blocks = blocks / config.global_scale.astype(x.dtype)
    largest, top = _max(config.data_type), jnp.max(jnp.abs(blocks), -1, keepdims=True)
    if config.mode == "mxfp8":
        scales, divisor = _power_of_two_scales(top.astype(jnp.float32) / largest)
    else:
        scales = jnp.clip(top / largest, 0, _max(config.scale_type)).astype(config.scale_type)
        scales = lax.optimization_barrier(scales)       # or XLA may keep the wider value from before the rounding
        divisor = scales.astype(jnp.float32)
    data = jnp.clip(blocks / divisor.astype(x.dtype), -largest, largest).astype(config.data_type)
    return data.reshape(b, m, k), scales.reshape(b, m, k // config.block_size)


def _max(dtype: Any) -> float:
    return float(dtypes.finfo(dtype).max)


def _power_of_two_scales(scale: Array) -> tuple[Array, Array]:
    """float32 scales rounded up to powers of two -> (as e8m0, as float32)."""
    bits = lax.bitcast_convert_type(scale, np.uint32)
    exponent, mantissa = bits >> 23, bits & 0x7FFFFF
    up = (mantissa > 0) & (exponent != 254) & ~((exponent == 0) & (mantissa <= 0x400000))
    stored = jnp.where(up, exponent + 1, exponent).astype(np.uint8)
    value = lax.bitcast_convert_type(stored.astype(np.uint32) << 23, np.float32)
    smallest = np.float32(2.0 ** -127)                  # stored as 0
    return lax.bitcast_convert_type(stored, dtypes.float8_e8m0fnu), jnp.where(value == 0, smallest, value)
