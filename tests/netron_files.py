"""Do exported files open in netron's parsers?  `make netron` runs them in node on a file of each own function and format.

Inputs, outputs and the operators of the main graph must be those that were written.  Needs node and the package netron.
"""
from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

import aot
from aot.exporters import onnx, stablehlo, tflite
from aot.exporters.report import Refused
from tests.exported import FUNCTIONS


def operators(format: str, data: bytes) -> list[str]:
    """The operators of the main graph of a model, in order."""
    if format == "onnx":
        import onnx
        return [n.op_type for n in onnx.load_from_string(data).graph.node]
    from ai_edge_litert import schema_py_generated as schema
    model = schema.ModelT.InitFromPackedBuf(data, 0)
    names = {v: k for k, v in vars(schema.BuiltinOperator).items() if isinstance(v, int)}
    return [names[model.operatorCodes[n.opcodeIndex].builtinCode] for n in model.subgraphs[0].operators or []]


def written(folder: str) -> dict[str, dict]:
    """Export every own function to both formats -> file: what it has."""
    files = {}
    for name, f, args in FUNCTIONS:
        lowered = aot.jit(f).trace(*args).lower()
        weights = {i: (f"const{i}", np.asarray(v)) for i, v in enumerate(lowered.consts)}
        for format, module in (("onnx", onnx), ("tflite", tflite)):
            program = stablehlo.bind(stablehlo.read(lowered.text, keep=module.KEEP, composites=module.COMPOSITES), weights)
            try:
                made = module.export(program)
            except Refused:
                continue
            path = os.path.join(folder, f"{name}.{format}")
            made.save(path)
            files[path] = {"inputs": [n for pair in made.inputs for n in pair], "outputs": [n for pair in made.outputs for n in pair],
                           "nodes": operators(format, made.data)}
    return files


def differences(wanted: dict, found: dict) -> list[str]:
    """What netron sees otherwise than it was written; it spells TFLite's operators in another way."""
    wrong = list(found["errors"])
    for key in ("inputs", "outputs", "nodes") if not wrong else ():
        plain = [[n.replace("_", "").lower() if key == "nodes" else n for n in side[key]] for side in (wanted, found)]
        if plain[0] != plain[1]:
            wrong.append(f"{key}: {found[key]} instead of {wanted[key]}")
    return wrong


def main() -> int:
    spec = importlib.util.find_spec("netron")
    if spec is None or spec.origin is None:
        print("the package netron is not installed; hint: pip install netron", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        files = written(folder)
        command = ["node", os.path.join(os.path.dirname(__file__), "netron.mjs"), os.path.dirname(spec.origin), *files]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        failed = {path: wrong for path, wanted in files.items() if (wrong := differences(wanted, found[path]))}
    for path, wrong in failed.items():
        print(f"{os.path.basename(path)}: {'; '.join(wrong)[:500]}")
    print(f"netron opens {len(files) - len(failed)} of {len(files)} files")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
