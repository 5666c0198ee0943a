"""Smaller models: weights in half precision, and products in 8-bit integers with ranges from calibration inputs.

`float16` stores large constants in half the bytes and widens them when the model is loaded.  `int8` computes the matrix
products and convolutions of the main graph, whose weights are constant, in integers:

    QUANTIZE -> FULLY_CONNECTED or CONV_2D -> DEQUANTIZE

Activations have one scale and zero point, found from the values that they take on the calibration inputs; weights have
one scale for each output channel.  Everything else stays in float32.
"""
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aot.errors import AotError

from .graph import Graph

MODES = ("float16", "int8")


def check(mode: str | None, calibration: Any) -> None:
    """Raises AotError for an unknown mode, and for calibration inputs that are missing or not used."""
    if mode is not None and mode not in MODES:
        raise AotError(f"unknown quantization {mode!r}", hint=f"one of {', '.join(MODES)}")
    if mode == "int8" and not calibration:
        raise AotError("int8 quantization needs calibration inputs", hint="give a few typical inputs: --calibration FILE")
    if mode != "int8" and calibration:
        raise AotError("calibration inputs are for int8 quantization", hint="--quantize int8")


#: how `aot.exporters.verify` compares a model of each mode with XLA; error relative to the largest value
VERIFICATION: dict[str | None, dict[str, Any]] = {
    None: {}, "float16": {"rtol": 1e-2}, "int8": {"rtol": 0.1, "random": 0, "edges": False}}


def samples(calibration: Any, names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> list[list[np.ndarray]]:
    """Calibration inputs: lists of arrays as they are, or those in a .npz file.

    The file has an array for each input under its name: of the input's shape, or with an axis of samples in front.
    Raises AotError for a file that cannot be read or does not fit.
    """
    if not isinstance(calibration, (str, os.PathLike)):
        return [[np.asarray(x) for x in sample] for sample in calibration]
    path = os.fspath(calibration)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {k: file[k] for k in file.files}
    except (OSError, ValueError, AttributeError) as e:
        raise AotError(f"{path}: not a readable .npz file: {e}",
                       hint="write one with numpy.savez(FILE, NAME=array, ...)") from None
    columns = [_column(path, arrays, *row) for row in zip(names, shapes)]
    if len({len(c) for c in columns}) != 1:
        raise AotError(f"{path}: the inputs have different numbers of samples: {[len(c) for c in columns]}")
    return [list(row) for row in zip(*columns)]


def _column(path: str, arrays: dict[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The samples of an input."""
    if name not in arrays:
        raise AotError(f"{path}: no array {name!r}", hint=f"it has: {', '.join(arrays) or 'none'}")
    x = arrays[name]
    if x.shape[1:] == shape and x.ndim == len(shape) + 1:
        return x
    if x.shape != shape:
        raise AotError(f"{path}: {name} has shape {list(x.shape)}, its input {list(shape)}",
                       hint="the same, or an axis of samples in front")
    return x[None]


# ---- int8 -------------------------------------------------------------------------------------------------------------

#: operator -> axis of output channels in its weights
QUANTIZED = {"FULLY_CONNECTED": 0, "CONV_2D": 0}


def nodes(g: Graph) -> list[int]:
    """Positions of the nodes that can be computed in integers."""
    return [i for i, node in enumerate(g.subgraph.operators) if _name(g, node) in QUANTIZED and _weights(g, node) is not None]


def _name(g: Graph, node: Any) -> str: return g.model.codes[node.opcodeIndex][0]


def _weights(g: Graph, node: Any) -> np.ndarray | None:
    """The constant weights of a node, None where they are computed or groups share them."""
    tensor = g.subgraph.tensors[node.inputs[1]]
    data = g.model.buffers[tensor.buffer]
    if data is None:
        return None
    weights = data.view(np.float32).reshape(tensor.shape)
    features = g.subgraph.tensors[node.inputs[0]].shape[-1]
    return weights if weights.shape[-1] == features else None


def observed(g: Graph) -> dict[int, str]:
    """The tensors whose ranges `apply` needs, and their names."""
    ends = [int(i) for n in nodes(g) for node in [g.subgraph.operators[n]] for i in (node.inputs[0], node.outputs[0])]
    return {i: g.subgraph.tensors[i].name for i in ends}


def ranges(data: bytes, tensors: Mapping[int, str], names: Sequence[str], samples: Sequence[Sequence[np.ndarray]]) -> dict:
    """tensor -> (smallest, largest) value on the samples, from running the float model with its tensors kept.

    tensors: number in the graph -> name; names: of the inputs.
    """
    from .run import Model
    model, found = Model(data, keep=True), {}
    index = {d["name"]: d["index"] for d in model.interpreter.get_tensor_details()}
    for sample in samples:
        model(dict(zip(names, sample, strict=True)))
        for t, name in tensors.items():
            x = model.interpreter.get_tensor(index[name])
            x = x[np.isfinite(x)]
            low, high = found.get(t, (0.0, 0.0))            # zero is always exact
            found[t] = (min(low, float(x.min(initial=0))), max(high, float(x.max(initial=0))))
    return found


def apply(g: Graph, bounds: dict[int, tuple[float, float]]) -> None:
    """Put integer forms in place of the nodes whose operands have known ranges."""
    chosen, kept = set(nodes(g)), []
    quantized: dict[int, int] = {}
    for i, node in enumerate(g.subgraph.operators):
        if i not in chosen:
            kept.append(node)
            continue
        x, y = int(node.inputs[0]), int(node.outputs[0])
        if x not in quantized:
            quantized[x] = _tensor(g, g.subgraph.tensors[x].shape, np.int8, _activation(g, *bounds[x]))
            kept.append(_node(g, "QUANTIZE", [x], [quantized[x]], None))
        scale, weights = _quantized_weights(g, node)
        inputs = [quantized[x], weights]
        if len(node.inputs) > 2:
            inputs.append(_bias(g, node, quantized[x], scale))
        result = _tensor(g, g.subgraph.tensors[y].shape, np.int8, _activation(g, *bounds[y]))
        kept.append(_integer_form(g, node, inputs, result))
        kept.append(_node(g, "DEQUANTIZE", [result], [y], None))
    g.subgraph.operators = kept


def _node(g: Graph, name: str, inputs: list[int], outputs: list[int], options: Any) -> Any:
    return g.model.operator(name, g.profile.versions.get(name, 1), inputs, outputs, options)


def _integer_form(g: Graph, node: Any, inputs: list[int], result: int) -> Any:
    made = _node(g, _name(g, node), inputs, [result], None)
    made.builtinOptionsType, made.builtinOptions = node.builtinOptionsType, node.builtinOptions
    return made


def _tensor(g: Graph, shape: Any, dtype: Any, quantization: Any, value: np.ndarray | None = None) -> int:
    tensors = g.subgraph.tensors
    buffer = g.model.buffer(value) if value is not None else 0
    tensors.append(g.model.tensor(f"t{len(tensors)}", shape, np.dtype(dtype), buffer, quantization))
    return len(tensors) - 1


def _parameters(g: Graph, scale: np.ndarray, zero_point: np.ndarray, axis: int = 0) -> Any:
    made = g.model.s.QuantizationParametersT()
    made.scale, made.zeroPoint, made.quantizedDimension = scale.astype(np.float32), zero_point.astype(np.int64), axis
    return made


def _activation(g: Graph, low: float, high: float) -> Any:
    """256 steps from low to high, of which one is 0."""
    scale = max((high - low) / 255, 1e-9)
    zero = int(np.clip(round(-128 - low / scale), -128, 127))
    return _parameters(g, np.array([scale]), np.array([zero]))


def _quantized_weights(g: Graph, node: Any) -> tuple[np.ndarray, int]:
    """(scale of each output channel, tensor)."""
    weights, axis = _weights(g, node), QUANTIZED[_name(g, node)]
    assert weights is not None
    others = tuple(d for d in range(weights.ndim) if d != axis)
    scale = np.maximum(np.abs(weights).max(others), 1e-9) / 127
    value = np.clip(np.rint(weights / np.expand_dims(scale, others)), -127, 127).astype(np.int8)
    return scale, _tensor(g, value.shape, np.int8, _parameters(g, scale, np.zeros(len(scale)), axis), value)


def _bias(g: Graph, node: Any, x: int, scale: np.ndarray) -> int:
    tensor = g.subgraph.tensors[node.inputs[2]]
    data = g.model.buffers[tensor.buffer]
    assert data is not None
    step = scale * float(g.subgraph.tensors[x].quantization.scale[0])
    value = np.rint(data.view(np.float32) / step).astype(np.int32)
    return _tensor(g, value.shape, np.int32, _parameters(g, step, np.zeros(len(step))), value)
