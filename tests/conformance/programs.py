"""The public StableHLO test programs: read from their archive once, then kept as plain modules with inputs and results.

A program of the archive is a module whose `main` calls `@inputs` and `@expected` and compares with custom calls
`check.*`.  Here it becomes a module whose `main` takes the inputs and returns what was checked.
"""
from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aot import mlir
from tests.conformance.reference import main_of, run_xla

HERE = Path(__file__).resolve().parent
ARCHIVE = HERE.parent / "data" / "stablehlo_testdata.tar.xz"
SAMPLE = HERE / "sample"


@dataclass(frozen=True)
class Program:
    """A StableHLO module (text) with the arrays that `main` takes and those that it should return."""
    name: str
    text: str
    inputs: list[np.ndarray]
    expected: list[np.ndarray]


def archive() -> Path | None:
    """The archive of programs ($AOT_TESTDATA or tests/data), or None where this machine has none."""
    path = Path(os.environ.get("AOT_TESTDATA") or ARCHIVE)
    return path if path.is_file() else None


def prepared(path: Path) -> Path:
    """The folder with the prepared programs of an archive, or of a folder of programs, made at the first use."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aot-conformance"
    files = [(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in sorted(path.iterdir() if path.is_dir() else [path])]
    recipe = Path(__file__).read_bytes() + repr(files).encode()
    folder = base / hashlib.sha256(recipe).hexdigest()[:16]
    if not folder.exists():
        base.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=base))
        try:
            for name, text in members(path):
                save(made, prepare(name, text))
            made.rename(folder)
        except OSError:
            if not folder.exists():  # else another process prepared the same programs meanwhile
                raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return folder


def members(path: Path):
    """(name, text) of each program of an archive or a folder."""
    if path.is_dir():
        yield from ((p.stem, p.read_text()) for p in sorted(path.glob("*.mlir")))
        return
    with tarfile.open(path) as tar:
        for member in tar:
            if member.name.endswith(".mlir"):
                file = tar.extractfile(member)
                assert file is not None
                yield Path(member.name).stem, file.read().decode()


# ---- one program ------------------------------------------------------------------------------------------------------

def prepare(name: str, text: str) -> Program:
    """A program with checks -> the program with its inputs and expected results.

    Raises ValueError where the text does not have the form described above.
    """
    module = mlir.parse(text)
    main = main_of(module)
    with module.context:
        given, expected = values_of(module, main, "inputs"), values_of(module, main, "expected")
        take_arguments(main)
        results = separate_checks(main, name)
        return_values(main, [value for value, _ in results])
        erase_functions(module, ("inputs", "expected"))
        module.operation.verify()
    return Program(name, str(module), given, [expected[position] for _, position in results])


def callee(op) -> str:
    return op.attributes["callee"].value if op.operation.name == "func.call" else ""


def body(function):
    return function.regions[0].blocks[0]


def values_of(module, main, name: str) -> list[np.ndarray]:
    """What the function of this name returns; it takes nothing and holds constants."""
    if not any(callee(op) == name for op in body(main)):
        return []
    function = next(op for op in module.body.operations if op.attributes["sym_name"].value == name)
    if not body(function).operations[0].results:          # an empty list of inputs
        return []
    return run_xla(f"module {{\n{function}\n}}".replace(f"func.func private @{name}(", "func.func public @main("), [])


def separate_checks(main, name: str) -> list[tuple]:
    """Erase the checks; (value, position in the expected values) of each."""
    results = []
    for op in list(body(main)):
        if op.operation.name == "stablehlo.custom_call" and op.attributes["call_target_name"].value.startswith("check."):
            value, want = op.operands[0], op.operands[1]
            if callee(want.owner.opview) != "expected":
                raise ValueError(f"{name}: a check that does not compare with @expected")
            results.append((value, want.result_number))
            op.erase()
    return results


def take_arguments(main) -> None:
    """Replace the results of `call @inputs` by arguments of main."""
    for op in [op for op in body(main) if callee(op) == "inputs"]:
        for result in op.results:
            result.replace_all_uses_with(body(main).add_argument(result.type, op.location))
        op.erase()


def return_values(main, values: Sequence) -> None:
    """End main by returning these values, and give it the type that follows."""
    from jaxlib.mlir import ir
    body(main).operations[len(body(main).operations) - 1].erase()
    for op in [op for op in body(main) if callee(op) == "expected"]:
        op.erase()
    with ir.InsertionPoint(body(main)), main.location:
        ir.Operation.create("func.return", [], values)
    types = ir.FunctionType.get([a.type for a in body(main).arguments], [v.type for v in values])
    main.attributes["function_type"] = ir.TypeAttr.get(types)
    for attribute in ("arg_attrs", "res_attrs"):
        if attribute in main.attributes:
            del main.attributes[attribute]


def erase_functions(module, names: Sequence[str]) -> None:
    for op in list(module.body.operations):
        if op.attributes["sym_name"].value in names:
            op.erase()


# ---- keeping them -----------------------------------------------------------------------------------------------------

def save(folder: Path, program: Program) -> None:
    (folder / f"{program.name}.mlir").write_text(program.text)
    arrays = {f"{kind}{i}": x for kind in ("inputs", "expected") for i, x in enumerate(getattr(program, kind))}
    stored: dict[str, Any] = {f"{k}:{x.dtype.name}": raw(x) for k, x in arrays.items()}
    np.savez(folder / f"{program.name}.npz", **stored)


def raw(x: np.ndarray) -> np.ndarray:
    """numpy's files know no bfloat16: keep such arrays as bytes."""
    return x if x.dtype.isbuiltin == 1 else x[..., None].view(np.uint8)


def load(folder: Path, name: str) -> Program:
    with np.load(folder / f"{name}.npz") as file:
        arrays = {k.split(":")[0]: cooked(file[k], k.split(":")[1]) for k in file.files}
    text = (folder / f"{name}.mlir").read_text()
    return Program(name, text, *([arrays[f"{kind}{i}"] for i in range(len(arrays)) if f"{kind}{i}" in arrays]
                                 for kind in ("inputs", "expected")))


def cooked(x: np.ndarray, dtype: str) -> np.ndarray:
    want = np.dtype(dtype)
    return x if x.dtype == want else x.view(want)[..., 0]
