"""Functions of `aot.nn` that are one operator of ONNX: each row is checked against XLA, on special numbers too."""
from __future__ import annotations

import numpy as np

from aot.exporters.stablehlo import Composite, Op, Rule


def _softmax(name: str, *types: str) -> Rule:
    def rule(c: Composite) -> Op | None:
        axes = c.axes() if c.takes("x") else ()
        return c.op(f"onnx.{name}", "x", axis=axes[0]) if len(axes) == 1 and _is(c, *types) else None
    return rule


def _activation(name: str, *numbers: str, **attrs: float) -> Rule:
    """numbers: arguments of the function that are attributes of the operator, as ARGUMENT=ATTRIBUTE."""
    def rule(c: Composite) -> Op | None:
        given = {k: c.number(v) for v, _, k in (n.partition("=") for n in numbers)}
        if not _is(c, "float32") or set(c.operands) > {"x", *(n.partition("=")[0] for n in numbers)} or None in given.values():
            return None
        return c.op(f"onnx.{name}", "x", **given, **attrs)
    return rule


def _gelu(c: Composite) -> Op | None:
    return c.op("onnx.Gelu", "x", approximate="tanh" if c.attrs["approximate"] else "none") if _is(c, "float32") else None


def _standardize(c: Composite) -> Op | None:
    """The mean and the variance along the last axes.  The kernel refuses axes without elements."""
    epsilon = c.number("epsilon")
    if c.operands.keys() - {"x", "epsilon"} or epsilon is None or not _is(c, "float32", "float64"):
        return None
    axes, rank = c.axes(), len(c.type.shape)
    if not axes or axes != tuple(range(axes[0], rank)) or 0 in c.type.shape:
        return None
    return c.op("onnx.LayerNormalization", "x", axis=axes[0], epsilon=epsilon, is_fast=c.attrs["algorithm"] == "fast")


def _attention(c: Composite) -> Op | None:
    if any(v.dtype not in (np.float32, np.bool_) for v in c.operands.values()):
        return None
    return c.op("onnx.Attention", *c.operands, arguments=tuple(c.operands), scale=float(c.attrs["scale"]),
                is_causal=bool(c.attrs["is_causal"]))


def _is(c: Composite, *types: str) -> bool:
    return c.type.dtype.name in types and c.operands["x"].type == c.type


#: name -> (first opset, rule).  Not here, because onnxruntime's kernels give other results: `OneHot` counts negative indices
#: from the end, `ReduceLogSumExp` of NaN is infinite.
_RULES: dict[str, tuple[int, Rule]] = {
    "softmax": (18, _softmax("Softmax", "float32", "float64")), "log_softmax": (18, _softmax("LogSoftmax", "float32")),
    "gelu": (20, _gelu), "standardize": (18, _standardize), "dot_product_attention": (18, _attention),
    "relu": (18, _activation("Relu")), "relu6": (18, _activation("Clip", low=0.0, high=6.0)),
    "hard_tanh": (18, _activation("Clip", low=-1.0, high=1.0)),
    "hard_silu": (18, _activation("HardSwish")), "hard_sigmoid": (18, _activation("HardSigmoid", alpha=1 / 6, beta=0.5)),
    "leaky_relu": (18, _activation("LeakyRelu", "negative_slope=alpha")), "elu": (18, _activation("Elu", "alpha=alpha")),
    "celu": (18, _activation("Celu", "alpha=alpha")),
    "selu": (18, _activation("Selu", alpha=1.6732632423543772, gamma=1.0507009873554805)),
    "mish": (18, _activation("Mish")), "softplus": (18, _activation("Softplus")), "soft_sign": (18, _activation("Softsign")),
    "silu": (24, _activation("Swish")),
}
#: the composites that the exporter wants to see
COMPOSITES = tuple(f"aot.{name}" for name in _RULES)


def rules(opset: int) -> dict[str, Rule]:
    """The rules that hold for an opset."""
    return {f"aot.{name}": rule for name, (since, rule) in _RULES.items() if opset >= since}
