"""Layers of networks as pairs of functions: (init(key, input shape) -> (output shape, params), apply(params, inputs, **kw)).

A layer is made by a function of this module (`Dense(10)`), or is one (`Relu`).  `serial` and `parallel` combine them.
"""
from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import aot.numpy as jnp
from aot import lax, random
from aot.api import eval_shape
from aot.nn import (
    elu,
    gelu,
    leaky_relu,
    log_softmax,
    relu,
    selu,
    sigmoid,
    softmax,
    softplus,
    standardize,
)
from aot.nn.initializers import glorot_normal, normal, ones, zeros
from aot.trace import ShapeDtypeStruct

Layer = tuple[Callable, Callable]


def Dense(out_dim: int, W_init: Callable = glorot_normal(), b_init: Callable = normal()) -> Layer:
    """x W + b, with W of shape (inputs, out_dim)."""
    def init(rng, shape):
        for_w, for_b = random.split(rng)
        return (*shape[:-1], out_dim), (W_init(for_w, (shape[-1], out_dim)), b_init(for_b, (out_dim,)))

    def apply(params, x, **_):
        w, b = params
        return jnp.dot(x, w) + b
    return init, apply


def _convolution(call: Callable, dimension_numbers: Any, out_chan: int, filter_shape: Sequence[int], strides: Any, padding: Any,
                 W_init: Any, b_init: Callable) -> Layer:
    inputs, kernel, outputs = dimension_numbers
    strides = strides or (1,) * len(filter_shape)
    W_init = W_init or glorot_normal(kernel.index("I"), kernel.index("O"))

    def run(x, w):
        return call(x, w, strides, padding, dimension_numbers=dimension_numbers)

    def init(rng, shape):
        sizes = iter(filter_shape)
        w_shape = [out_chan if c == "O" else shape[inputs.index("C")] if c == "I" else next(sizes) for c in kernel]
        b_shape = [out_chan if c == "C" else 1 for c in outputs]
        for_w, for_b = random.split(rng)
        w, b = W_init(for_w, w_shape), b_init(for_b, b_shape)
        return eval_shape(run, ShapeDtypeStruct(shape, w.dtype), w).shape, (w, b)

    def apply(params, x, **_):
        w, b = params
        return run(x, w) + b
    return init, apply


def GeneralConv(dimension_numbers: Any, out_chan: int, filter_shape: Sequence[int], strides: Any = None, padding: Any = "VALID",
                W_init: Any = None, b_init: Callable = normal(1e-6)) -> Layer:
    """A convolution with the dimension numbers (inputs, filter, outputs), as in lax.conv_general_dilated, and a bias."""
    return _convolution(lax.conv_general_dilated, dimension_numbers, out_chan, filter_shape, strides, padding, W_init, b_init)


def GeneralConvTranspose(dimension_numbers: Any, out_chan: int, filter_shape: Sequence[int], strides: Any = None,
                         padding: Any = "VALID", W_init: Any = None, b_init: Callable = normal(1e-6)) -> Layer:
    """The same of lax.conv_transpose."""
    return _convolution(lax.conv_transpose, dimension_numbers, out_chan, filter_shape, strides, padding, W_init, b_init)


Conv = functools.partial(GeneralConv, ("NHWC", "HWIO", "NHWC"))
Conv1DTranspose = functools.partial(GeneralConvTranspose, ("NHC", "HIO", "NHC"))
ConvTranspose = functools.partial(GeneralConvTranspose, ("NHWC", "HWIO", "NHWC"))


def BatchNorm(axis: Any = (0, 1, 2), epsilon: float = 1e-5, center: bool = True, scale: bool = True,
              beta_init: Callable = zeros, gamma_init: Callable = ones) -> Layer:
    """Mean 0 and variance 1 over axes, times gamma plus beta."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)

    def init(rng, shape):
        kept = tuple(n for i, n in enumerate(shape) if i not in axes)
        for_beta, for_gamma = random.split(rng)
        return shape, (beta_init(for_beta, kept) if center else (), gamma_init(for_gamma, kept) if scale else ())

    def apply(params, x, **_):
        beta, gamma = params
        places = tuple(None if i in axes else slice(None) for i in range(x.ndim))
        z = standardize(x, axes, epsilon=epsilon)
        z = z * gamma[places] if scale else z
        return z + beta[places] if center else z
    return init, apply


def elementwise(fun: Callable, **fun_kwargs: Any) -> Layer:
    """A function without parameters."""
    return lambda rng, shape: (shape, ()), lambda params, x, **_: fun(x, **fun_kwargs)


Tanh, Relu, Exp = elementwise(jnp.tanh), elementwise(relu), elementwise(jnp.exp)
LogSoftmax, Softmax = elementwise(log_softmax, axis=-1), elementwise(softmax, axis=-1)
Softplus, Sigmoid, Elu = elementwise(softplus), elementwise(sigmoid), elementwise(elu)
LeakyRelu, Selu, Gelu = elementwise(leaky_relu), elementwise(selu), elementwise(gelu)
Identity = elementwise(lambda x: x)


def _pool(reducer: Callable, start: Any, mean: bool, window_shape: Sequence[int], strides: Any, padding: str,
          spec: Any) -> Layer:
    strides = strides or (1,) * len(window_shape)
    # batch and channel dimensions: those of the spec, or the first and the last
    plain = sorted((spec.index("N"), spec.index("C"))) if spec else [0, len(window_shape) + 1]

    def full(sizes):
        sizes = list(sizes)
        for at in plain:
            sizes.insert(at, 1)
        return tuple(sizes)

    def pool(x):
        return lax.reduce_window(x, jnp.asarray(start, x.dtype), reducer, full(window_shape), full(strides), padding)

    def apply(params, x, **_):
        return pool(x) / pool(jnp.ones(x.shape, x.dtype)) if mean else pool(x)

    def init(rng, shape):
        return eval_shape(pool, ShapeDtypeStruct(shape, jnp.float32)).shape, ()
    return init, apply


def MaxPool(window_shape: Sequence[int], strides: Any = None, padding: str = "VALID", spec: Any = None) -> Layer:
    """The maximum of windows; spec: which dimensions are batch (N) and channels (C), as in 'NCHW'."""
    return _pool(lax.max, -jnp.inf, False, window_shape, strides, padding, spec)


def SumPool(window_shape: Sequence[int], strides: Any = None, padding: str = "VALID", spec: Any = None) -> Layer:
    """The sum of windows."""
    return _pool(lax.add, 0.0, False, window_shape, strides, padding, spec)


def AvgPool(window_shape: Sequence[int], strides: Any = None, padding: str = "VALID", spec: Any = None) -> Layer:
    """The mean of windows, of what lies within the input."""
    return _pool(lax.add, 0.0, True, window_shape, strides, padding, spec)


Flatten: Layer = (lambda rng, shape: ((shape[0], prod(shape[1:])), ()), lambda params, x, **_: jnp.reshape(x, (x.shape[0], -1)))


def FanOut(num: int) -> Layer:
    """The input, num times, for `parallel`."""
    return lambda rng, shape: ([shape] * num, ()), lambda params, x, **_: [x] * num


FanInSum: Layer = (lambda rng, shapes: (shapes[0], ()), lambda params, xs, **_: functools.reduce(operator.add, xs))


def FanInConcat(axis: int = -1) -> Layer:
    """The inputs one after the other along an axis."""
    def init(rng, shapes):
        at = axis % len(shapes[0])
        return (*shapes[0][:at], sum(s[at] for s in shapes), *shapes[0][at + 1:]), ()
    return init, lambda params, xs, **_: jnp.concatenate(xs, axis)


def Dropout(rate: float, mode: str = "train") -> Layer:
    """In mode 'train', each element is kept with probability `rate`, and divided by it; apply takes rng=."""
    def apply(params, x, *, rng=None, **_):
        if mode != "train":
            return x
        if rng is None:
            raise ValueError("Dropout in mode 'train' needs a key. hint: apply(params, inputs, rng=key)")
        return jnp.where(random.bernoulli(rng, rate, x.shape), x / rate, 0)
    return lambda rng, shape: (shape, ()), apply


def _keys(rng: Any, n: int) -> Sequence: return [None] * n if rng is None else random.split(rng, n)


def serial(*layers: Layer) -> Layer:
    """Layers one after the other; params is the list of theirs."""
    def init(rng, shape):
        params = []
        for layer_init, _ in layers:
            rng, key = random.split(rng)
            shape, made = layer_init(key, shape)
            params.append(made)
        return shape, params

    def apply(params, x, *, rng=None, **kwargs):
        for (_, layer), p, key in zip(layers, params, _keys(rng, len(layers))):
            x = layer(p, x, rng=key, **kwargs)
        return x
    return init, apply


def parallel(*layers: Layer) -> Layer:
    """Layers side by side, each of an input of its own."""
    def init(rng, shapes):
        made = [layer_init(key, shape) for (layer_init, _), key, shape in zip(layers, random.split(rng, len(layers)), shapes)]
        return [shape for shape, _ in made], [params for _, params in made]

    def apply(params, xs, *, rng=None, **kwargs):
        return [layer(p, x, rng=key, **kwargs) for (_, layer), p, x, key in zip(layers, params, xs, _keys(rng, len(layers)))]
    return init, apply


def shape_dependent(make_layer: Callable) -> Layer:
    """The layer make_layer(input shape)."""
    return (lambda rng, shape: make_layer(shape)[0](rng, shape),
            lambda params, x, **kwargs: make_layer(x.shape)[1](params, x, **kwargs))


__all__ = ["AvgPool", "BatchNorm", "Conv", "Conv1DTranspose", "ConvTranspose", "Dense", "Dropout", "Elu", "Exp", "FanInConcat",
           "FanInSum", "FanOut", "Flatten", "Gelu", "GeneralConv", "GeneralConvTranspose", "Identity", "LeakyRelu",
           "LogSoftmax", "MaxPool", "Relu", "Selu", "Sigmoid", "Softmax", "Softplus", "SumPool", "Tanh", "elementwise",
           "parallel", "relu", "serial", "shape_dependent", "softmax"]
