"""Functions of `aot.nn` that are one operator of TFLite: each is checked against XLA, on special numbers too."""
from __future__ import annotations

from typing import Any

import numpy as np

from aot.exporters.stablehlo import Composite, Op, Rule

from .kernels import Profile
from .lowering import Lowering, row


def _activation(operator: str) -> Rule:
    return lambda c: c.op(f"tflite.{operator}", "x") if c.takes("x") else None


def _softmax(operator: str, **options: float) -> Rule:
    """Along the last axis."""
    def rule(c: Composite) -> Op | None:
        return c.op(f"tflite.{operator}", "x", **options) if c.takes("x") and c.axes() == (len(c.type.shape) - 1,) else None
    return rule


def _leaky_relu(c: Composite) -> Op | None:
    slope = c.number("negative_slope")
    return None if slope is None or not np.isfinite(slope) else c.op("tflite.LEAKY_RELU", "x", alpha=slope)


def _elu(c: Composite) -> Op | None:
    return c.op("tflite.ELU", "x") if c.number("alpha") == 1 else None


def _gelu(c: Composite) -> Op | None: return c.op("tflite.GELU", "x", approximate=bool(c.attrs["approximate"]))


#: name -> (operator, rule)
_RULES: dict[str, tuple[str, Rule]] = {
    "softmax": ("SOFTMAX", _softmax("SOFTMAX", beta=1.0)), "log_softmax": ("LOG_SOFTMAX", _softmax("LOG_SOFTMAX")),
    "gelu": ("GELU", _gelu), "leaky_relu": ("LEAKY_RELU", _leaky_relu), "elu": ("ELU", _elu),
    **{name: (op, _activation(op)) for name, op in
       (("relu", "RELU"), ("relu6", "RELU6"), ("hard_silu", "HARD_SWISH"))},
}
#: the composites that the exporter wants to see
COMPOSITES = tuple(f"aot.{name}" for name in _RULES)


def rules(profile: Profile) -> dict[str, Rule]:
    """The rules for float32 whose operators a runtime has."""
    def guarded(rule: Rule) -> Rule:
        def of_float32(c: Composite) -> Op | None:
            return rule(c) if c.type.dtype == np.float32 and c.operands["x"].type == c.type else None
        return of_float32
    return {f"aot.{name}": guarded(rule) for name, (operator, rule) in _RULES.items()
            if profile.has(operator, np.dtype("float32"))}


@row(*(f"tflite.{operator}" for operator, _ in _RULES.values()))
def _operator(lower: Lowering, op: Op, x: Any) -> Any:
    g = lower.g
    return g.node(op.name.removeprefix("tflite."), [g.broadcast(x, op.shape)], op.shape, **op.attrs)
