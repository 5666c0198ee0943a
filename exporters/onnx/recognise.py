"""High-level operations found in programs, where a kernel of the runtime is faster than what it consists of.

Each rule looks at the operation that ends a pattern and gives one that stands for all of it, named `onnx.NAME`; its row is
in recognised.py.  A rule matches only where the result is the same up to rounding, also for infinities and NaN.
"""
from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from aot.exporters.stablehlo import Block, Op, Program, Value, is_splat
from aot.exporters.stablehlo.simplify import drop_dead, substitute

from .lowering import reducer

Rule = Callable[[Op], "Op | None"]


def recognise(program: Program, opset: int) -> Program:
    """Replace patterns in place, in this block and those nested in it."""
    rules = {name: [r for since, r in found if opset >= since] for name, found in _RULES.items()}
    _block(program.body, rules)
    drop_dead(program.body)
    return program


def _block(block: Block, rules: dict[str, list[Rule]]) -> None:
    replaced: dict[Value, Value] = {}
    ops: list[Op] = []
    for op in block.ops:
        op.operands = [replaced.get(v, v) for v in op.operands]
        for region in op.regions:
            substitute(region, replaced)
            if op.name in ("while", "if", "case"):
                _block(region, rules)
        made = next((m for rule in rules.get(op.name, ()) if (m := rule(op)) is not None), None)
        if made is not None:
            made.location = op.location
            replaced[op.result] = made.result
        ops.append(made or op)
    block.ops, block.outputs = ops, [replaced.get(v, v) for v in block.outputs]


# ---- what values are -------------------------------------------------------------------------------------------------

def by(v: Value | None, *names: str) -> Op | None:
    """The operation of one of these names that makes a value."""
    return v.op if v is not None and v.op is not None and v.op.name in names else None


def splat(v: Value) -> float | None:
    """The element of a constant that has only one."""
    value = v.constant
    return float(value[(0,) * value.ndim]) if value is not None and value.size and is_splat(value) and \
        value.dtype.kind not in "cb" else None


def scaled(v: Value) -> tuple[Value, float] | None:
    """(x, k) of x * k, k * x, x / (1/k) and -x."""
    op = by(v, "multiply", "divide", "negate")
    if op is None:
        return None
    if op.name == "negate":
        return op.operands[0], -1.0
    x, y = op.operands
    if (k := splat(y)) is not None:
        return x, k if op.name == "multiply" else 1 / k if k else math.inf
    if op.name == "multiply" and (k := splat(x)) is not None:
        return y, k
    return None


def spread(v: Value, axis: int) -> Value:
    """What was repeated along an axis to make v: without broadcasts and reshapes that keep the order of the rest."""
    shape = v.shape
    rest = [n for i, n in enumerate(shape) if i != axis and n != 1]
    while (op := by(v, "broadcast_in_dim", "reshape")) is not None:
        inner = op.operands[0]
        if op.name == "broadcast_in_dim" and list(op.attrs["broadcast_dimensions"]) != sorted(op.attrs["broadcast_dimensions"]):
            return v
        if [n for n in inner.shape if n != 1] != rest:
            return v
        v = inner
    return v


def same_rows(v: Value, shape: tuple[int, ...], axis: int) -> bool:
    """Whether a value has one element for each row of an array of this shape."""
    return [n for n in v.shape if n != 1] == [n for i, n in enumerate(shape) if i != axis and n != 1]


def reduced(v: Value, kind: str) -> tuple[Value, int] | None:
    """(x, axis) of a reduction of x along one axis from the neutral element."""
    while (op := by(v, "reshape")) is not None and op.operands[0].type.size == v.type.size:
        v = op.operands[0]
    op = by(v, "reduce")
    if op is None or len(op.results) != 1 or reducer(op.regions[0]) != kind or len(op.attrs["dimensions"]) != 1:
        return None
    start = splat(op.operands[1])
    if start is None or start != (-math.inf if kind == "maximum" else 0):
        return None
    return op.operands[0], op.attrs["dimensions"][0]


def mean(v: Value) -> tuple[Value, int] | None:
    """(x, axis) of the mean of x along one axis."""
    found = scaled(v)
    total = reduced(found[0], "add") if found else None
    if found is None or total is None or abs(found[1] * total[0].shape[total[1]] - 1) > 1e-6:
        return None
    return total


# ---- softmax ---------------------------------------------------------------------------------------------------------

def _shifted(v: Value) -> tuple[Value, int] | None:
    """(x, axis) of x - max(x)."""
    op = by(v, "subtract")
    if op is None:
        return None
    x = op.operands[0]
    for axis in range(x.rank):
        top = reduced(spread(op.operands[1], axis), "maximum")
        if top is not None and top == (x, axis):
            return top
    return None


def softmax(op: Op) -> Op | None:
    """exp(x - max(x)) / sum(exp(x - max(x)))"""
    e = by(op.operands[0], "exponential")
    found = _shifted(e.operands[0]) if e is not None else None
    if e is None or found is None or op.dtype.itemsize < 4:
        return None
    total = reduced(spread(op.operands[1], found[1]), "add")
    return _made("Softmax", [found[0]], op, axis=found[1]) if total == (e.result, found[1]) else None


def log_softmax(op: Op) -> Op | None:
    """y - log(sum(exp(y))) for y = x - max(x)"""
    y = op.operands[0]
    found = _shifted(y)
    if found is None or op.dtype != np.float32:               # that of float64 gives -inf where a row holds infinity
        return None
    log = by(spread(op.operands[1], found[1]), "log")
    total = reduced(log.operands[0], "add") if log is not None else None
    e = by(total[0], "exponential") if total is not None else None
    if e is None or total is None or total[1] != found[1] or e.operands[0] is not y:
        return None
    return _made("LogSoftmax", [found[0]], op, axis=found[1])


# ---- layer normalization ---------------------------------------------------------------------------------------------

def _normalised(v: Value) -> tuple[Value, int, float] | None:
    """(x, axis, epsilon) of (x - mean) * rsqrt(variance + epsilon), with / sqrt too."""
    op = by(v, "multiply", "divide")
    if op is None:
        return None
    for centred, factor in (op.operands, op.operands[::-1] if op.name == "multiply" else op.operands):
        found = _centred(centred)
        if found is None:
            continue
        x, axis = found
        root = by(spread(factor, axis), "rsqrt" if op.name == "multiply" else "sqrt")
        total = by(root.operands[0], "add") if root is not None else None
        if total is None:
            continue
        for variance, epsilon in (total.operands, total.operands[::-1]):
            if (e := splat(epsilon)) is not None and _is_variance(variance, centred, axis):
                return x, axis, e
    return None


def _centred(v: Value) -> tuple[Value, int] | None:
    """(x, axis) of x - mean(x)."""
    op = by(v, "subtract")
    if op is None:
        return None
    x = op.operands[0]
    axis = x.rank - 1
    return (x, axis) if axis >= 0 and mean(spread(op.operands[1], axis)) == (x, axis) else None


def _is_variance(v: Value, centred: Value, axis: int) -> bool:
    found = mean(spread(v, axis))
    square = by(found[0], "multiply") if found is not None and found[1] == axis else None
    return square is not None and all(x is centred or _same_centred(x, centred) for x in square.operands)


def _same_centred(v: Value, centred: Value) -> bool:
    return _centred(v) is not None and _centred(v) == _centred(centred)


def _vector(v: Value, axis: int) -> Value | None:
    """w of a broadcast of a vector along the last axis."""
    op = by(v, "broadcast_in_dim")
    if op is None or op.operands[0].shape != (v.shape[axis],) or tuple(op.attrs["broadcast_dimensions"]) != (axis,):
        return None
    return op.operands[0]


def layer_norm(op: Op) -> Op | None:
    """normalised * gain + bias, normalised * gain, or normalised alone."""
    if op.dtype.itemsize < 4 or not op.shape:
        return None
    axis = len(op.shape) - 1
    if op.name == "add":
        for v, b in (op.operands, op.operands[::-1]):
            before, bias = by(v, "onnx.LayerNormalization"), _vector(b, axis)
            if before is not None and bias is not None and len(before.operands) == 2 and before.attrs["axis"] == axis:
                return _made("LayerNormalization", [*before.operands, bias], op, **before.attrs)
        return None
    for v, w in (op.operands, op.operands[::-1]) if op.name == "multiply" else ():
        before, gain = by(v, "onnx.LayerNormalization"), _vector(w, axis)
        if before is not None and gain is not None and len(before.operands) == 1 and before.attrs["axis"] == axis:
            return _made("LayerNormalization", [before.operands[0], gain], op, **before.attrs)
    found = _normalised(op.result)
    return _made("LayerNormalization", [found[0]], op, axis=found[1], epsilon=found[2]) if found is not None else None


# ---- activations -----------------------------------------------------------------------------------------------------

def relu(op: Op) -> Op | None:
    for x, zero in (op.operands, op.operands[::-1]):
        if splat(zero) == 0 and x.constant is None and op.dtype.kind == "f":
            return _made("Relu", [x], op)
    return None


def gelu(op: Op) -> Op | None:
    """x/2 erfc(-x/sqrt 2), x/2 (1 + erf(x/sqrt 2)), and the form with tanh; of float32."""
    if op.dtype != np.float32:
        return None
    for half, factor in (op.operands, op.operands[::-1]):
        x, k = scaled(half) or (half, 1.0)
        if abs(k - 0.5) < 1e-6 and (approximate := _gelu_factor(factor, x)):
            return _made("Gelu", [x], op, approximate=approximate)
        if k == 1.0 and (inner := scaled(factor)) is not None and abs(inner[1] - 0.5) < 1e-6 and \
                (approximate := _gelu_factor(inner[0], half)):
            return _made("Gelu", [half], op, approximate=approximate)
    return None


def _gelu_factor(v: Value, x: Value) -> str:
    """"none" or "tanh" where v is twice the share of x that Gelu keeps, else ""."""
    if (erfc := by(v, "chlo.erfc")) is not None:
        return "none" if _is_scaled(erfc.operands[0], x, -math.sqrt(0.5)) else ""
    total = by(v, "add")
    if total is None:
        return ""
    for one, f in (total.operands, total.operands[::-1]):
        if splat(one) == 1:
            if (erf := by(f, "chlo.erf")) is not None and _is_scaled(erf.operands[0], x, math.sqrt(0.5)):
                return "none"
            if (tanh := by(f, "tanh")) is not None and _is_tanh_argument(tanh.operands[0], x):
                return "tanh"
    return ""


def _factor(v: Value) -> tuple[Value, float]:
    """v = x * k with all constant factors taken out."""
    k = 1.0
    while (found := scaled(v)) is not None:
        v, k = found[0], k * found[1]
    return v, k


def _is_scaled(v: Value, x: Value, k: float) -> bool:
    (a, p), (b, q) = _factor(v), _factor(x)
    return a is b and abs(p - q * k) < 1e-6 * abs(p)


def _is_tanh_argument(v: Value, x: Value) -> bool:
    """sqrt(2/pi) (x + 0.044715 x x x)"""
    inner, k = _factor(v)
    total = by(inner, "add")
    if total is None or abs(k - math.sqrt(2 / math.pi)) > 1e-6:
        return False
    for first, cube in (total.operands, total.operands[::-1]):
        k, n = _monomial(cube, x)
        if first is x and abs(k - 0.044715) < 1e-7 and n == 3:
            return True
    return False


def _monomial(v: Value, x: Value) -> tuple[float, int]:
    """(k, n) of k * x ** n written as products; n is far below 0 for anything else."""
    if v is x:
        return 1.0, 1
    if (k := splat(v)) is not None:
        return k, 0
    op = by(v, "multiply")
    if op is None:
        return 1.0, -1000
    (a, m), (b, n) = (_monomial(o, x) for o in op.operands)
    return a * b, m + n


# ---- convolution with bias -------------------------------------------------------------------------------------------

def conv_bias(op: Op) -> Op | None:
    """convolution + a vector along its features; of float32."""
    for v, w in (op.operands, op.operands[::-1]):
        conv, b = by(v, "convolution"), by(w, "broadcast_in_dim")
        if conv is None or b is None or op.dtype != np.float32 or not conv.attrs["dimension_numbers"].input_spatial_dimensions:
            continue
        feature = conv.attrs["dimension_numbers"].output_feature_dimension
        if b.operands[0].shape == (op.shape[feature],) and tuple(b.attrs["broadcast_dimensions"]) == (feature,):
            return Op("convolution", [*conv.operands, b.operands[0]], [op.result.type], conv.attrs)
    return None


def _made(name: str, operands: list[Value], op: Op, **attrs: object) -> Op:
    return Op(f"onnx.{name}", operands, [op.result.type], attrs)


#: operation that ends a pattern -> [(first opset, rule)], tried in order
_RULES: dict[str, list[tuple[int, Rule]]] = {
    "divide": [(18, softmax), (18, layer_norm)], "subtract": [(18, log_softmax)], "maximum": [(18, relu)],
    "multiply": [(20, gelu), (18, layer_norm)], "add": [(18, layer_norm), (18, conv_bias)],
}
