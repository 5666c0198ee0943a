"""Separable resampling: one matrix of weights for each resized axis, contracted with the image."""
from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import aot.numpy as jnp
from aot import lax
from aot.numpy._util import axis_of, concrete, fused
from aot.ops.shape import canonical_shape
from aot.scipy._util import inexact

Array = Any


class ResizeMethod(enum.Enum):
    """How values between pixels are made."""
    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """The method of a name: nearest, (bi, tri)linear, triangle, lanczos3, lanczos5, (bi, tri)cubic, cubic-pytorch,
        bicubic-pytorch, area."""
        names = {"nearest": "NEAREST", "lanczos3": "LANCZOS3", "lanczos5": "LANCZOS5", "area": "AREA",
                 **dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), "LINEAR"),
                 **dict.fromkeys(("cubic", "bicubic", "tricubic"), "CUBIC"),
                 **dict.fromkeys(("cubic-pytorch", "bicubic-pytorch"), "CUBIC_PYTORCH")}
        if s not in names:
            raise ValueError(f'Unknown resize method "{s}"; hint: one of {", ".join(names)}')
        return ResizeMethod[names[s]]


# ---- kernels: weight of a pixel at distance x >= 0 -------------------------------------------------------------------

def _triangle(x: Array) -> Array:
    return jnp.maximum(0, 1 - x)


def _lanczos(radius: float) -> Callable[[Array], Array]:
    """sinc(x) sinc(x / radius)."""
    def kernel(x):
        y = radius * jnp.sin(np.pi * x) * jnp.sin(np.pi * x / radius)
        out = jnp.where(x > 1e-3, y / jnp.where(x != 0, np.pi ** 2 * x ** 2, 1), 1)
        return jnp.where(x > radius, 0., out)
    return kernel


def _cubic(a: float) -> Callable[[Array], Array]:
    """Cubic convolution (R. Keys, IEEE Trans. ASSP 29 (1981)); Pillow and TensorFlow have a = -0.5, OpenCV has -0.75."""
    def kernel(x):
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return jnp.where(x >= 2, 0., jnp.where(x >= 1, far, near))
    return kernel


#: method -> (radius of the kernel, kernel; None: area)
_KERNELS: dict[ResizeMethod, tuple[int, Callable | None]] = {
    ResizeMethod.LINEAR: (1, _triangle), ResizeMethod.LANCZOS3: (3, _lanczos(3.)), ResizeMethod.LANCZOS5: (5, _lanczos(5.)),
    ResizeMethod.CUBIC: (2, _cubic(-0.5)), ResizeMethod.CUBIC_PYTORCH: (2, _cubic(-0.75)), ResizeMethod.AREA: (1, None)}


# ---- weights ---------------------------------------------------------------------------------------------------------

def _overlaps(n_in: int, n_out: int, inverse: Array, shift: Array, dtype: Any) -> Array:
    """Lengths that output pixels, projected back, share with input pixels."""
    left = jnp.arange(n_out, dtype=dtype) * inverse - shift
    pixels = jnp.arange(n_in, dtype=dtype)[:, None]
    shared = jnp.minimum((left + inverse)[None, :], pixels + 1.0) - jnp.maximum(left[None, :], pixels)
    return jnp.maximum(0.0, shared)


def _normalized(weights: Array) -> Array:
    total = jnp.sum(weights, axis=0, keepdims=True)
    enough = jnp.abs(total) > 1000. * float(np.finfo(np.float32).eps)
    return jnp.where(enough, weights / jnp.where(total != 0, total, 1), 0)


def _weights(n_in: int, n_out: int, scale: Array, translation: Array, method: ResizeMethod, antialias: bool) -> Array:
    """(n_in, n_out): how much each input pixel counts for each output pixel."""
    radius, kernel = _KERNELS[method]
    dtype = jnp.result_type(scale, translation)
    inverse = 1. / scale
    shift = translation * inverse
    center = (jnp.arange(n_out, dtype=dtype) + 0.5) * inverse - shift - 0.5
    if method is ResizeMethod.CUBIC_PYTORCH:                # never antialiased; pixels beyond the edge repeat it
        at = np.arange(-radius, n_in + radius)
        spread = kernel(jnp.abs(center[None, :] - at[:, None].astype(dtype)))  # type: ignore[misc]
        weights = jnp.zeros((n_in, n_out), dtype).at[np.clip(at, 0, n_in - 1)].add(spread)
        return _normalized(weights)
    if kernel is None:
        weights = _overlaps(n_in, n_out, inverse, shift, dtype)
    else:
        width = jnp.maximum(inverse, 1.) if antialias else 1.
        weights = kernel(jnp.abs(center[None, :] - jnp.arange(n_in, dtype=dtype)[:, None]) / width)
    inside = (center >= -0.5) & (center <= n_in - 0.5)
    return jnp.where(inside[None, :], _normalized(weights), 0)


def _resample(x: Array, shape: tuple[int, ...], axes: Sequence[int], scale: Any, translation: Any, method: ResizeMethod,
              antialias: bool, precision: Any) -> Array:
    if not axes:
        return x
    operands: list = [x, list(range(x.ndim))]
    out = list(range(x.ndim))
    for i, d in enumerate(axes):
        d = axis_of(d, x.ndim)
        w = _weights(x.shape[d], shape[d], scale[i], translation[i], method, antialias).astype(x.dtype)
        operands += [w, [d, x.ndim + i]]
        out[d] = x.ndim + i
    return jnp.einsum(*operands, out, precision=precision)


def _method_of(method: str | ResizeMethod, antialias: bool) -> ResizeMethod:
    method = ResizeMethod.from_string(method) if isinstance(method, str) else method
    return ResizeMethod.CUBIC if method is ResizeMethod.CUBIC_PYTORCH and antialias else method


def _check_rank(image: Array, shape: tuple[int, ...]) -> None:
    if len(shape) != image.ndim:
        raise ValueError(f"shape must have length equal to the number of dimensions of x;  {shape} vs {image.shape}")


# ---- public ----------------------------------------------------------------------------------------------------------

def scale_and_translate(image: Array, shape: Sequence[int], spatial_dims: Sequence[int], scale: Array, translation: Array,
                        method: str | ResizeMethod, antialias: bool = True,
                        precision: Any = lax.Precision.HIGHEST) -> Array:
    """image scaled and moved along spatial_dims: output position y shows input position (y - translation) / scale.

    shape: of the result.  scale, translation: one number an axis; differentiable.  antialias: low-pass when shrinking.
    What lies outside of the image is 0."""
    shape, image = canonical_shape(shape), jnp.asarray(image)
    _check_rank(image, shape)
    method = _method_of(method, antialias)
    if method is ResizeMethod.NEAREST:
        raise ValueError("Nearest neighbor resampling is not currently supported for scale_and_translate.")
    scale, translation = inexact("scale_and_translate", jnp.asarray(scale), jnp.asarray(translation))
    return _resample(inexact("scale_and_translate", image), shape, spatial_dims, scale, translation, method, antialias,
                     precision)


def resize(image: Array, shape: Sequence[int], method: str | ResizeMethod, antialias: bool = True,
           precision: Any = lax.Precision.HIGHEST) -> Array:
    """image resampled to a shape of the same rank; axes of unchanged size are left alone."""
    shape = canonical_shape(concrete(shape, "the shape of image.resize"))
    return _resize(image, shape=shape, method=_method_of(method, antialias), antialias=bool(antialias), precision=precision)


@fused("shape", "method", "antialias", "precision")
def _resize(image: Array, shape: tuple[int, ...], method: ResizeMethod, antialias: bool, precision: Any) -> Array:
    image = jnp.asarray(image)
    _check_rank(image, shape)
    axes = tuple(i for i, (n, m) in enumerate(zip(image.shape, shape)) if n != m)
    if method is ResizeMethod.NEAREST:
        for d in axes:
            n, m = shape[d], image.shape[d]
            at = (np.arange(n, dtype=np.float32) + np.float32(0.5)) * np.float32(m) / np.float32(n)
            image = jnp.take(image, np.floor(at).astype(np.int32), axis=d)
        return image
    scale = [1.0 if shape[d] == 0 else shape[d] / image.shape[d] if image.shape[d] else math.inf for d in axes]
    image = inexact("resize", image)
    return _resample(image, shape, axes, scale, [0.] * len(axes), method, antialias, precision)
