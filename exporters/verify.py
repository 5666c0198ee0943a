"""Is an exported file right?  It runs in its own runtime and its program in XLA, on the same inputs, and results are compared.

Inputs are those recorded at build time, random ones, and edges.  Both sides run in processes of their own: some runtimes
end the process, and some inputs would keep a loop running for ever.
"""
from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from aot import targets
from aot.errors import AotError
from aot.replay import compare, tolerance

from . import formats, reference, stablehlo
from .judge import read_arrays, write_arrays
from .source import Source, of_artifact

TIMEOUT = 60.0          # seconds for a case
AGAIN = 10.0            # for those after one that took longer: loops that end for some inputs only


@dataclass
class Case:
    """Inputs with a name, and what a side made of them: arrays, or the reason why there are none."""
    name: str
    inputs: list[np.ndarray]
    expected: list[np.ndarray] | str = ""
    found: list[np.ndarray] | str = ""


def verify(source: Source, path: str, *, format: str | None = None, rtol: float | None = None, random: int = 2,
           edges: bool = True, timeout: float = TIMEOUT) -> dict[str, Any]:
    """Compare a file with the source that it was exported from.

    Returns {"file", "format", "function", "ok", "cases": [{"name", "outcome": "right" | "differs" | "failed" | "skipped",
    "why", "outputs": [{"name", "type", "ok", "max_abs_error", "max_rel_error", "max_ulp_error"}]}]}.  A case is skipped
    where XLA itself has no result within the time; where all are, `ok` is None, and "why" says why.
    rtol: see `aot.replay.compare`; by default that of the narrowest float that the program computes with.  A result that
    differs by more is right, and `why` says so, if it is as near as XLA's to that of the program in double precision.
    format: what the file is; by default its name tells.  Raises AotError for a file of no known format.
    """
    format = format or formats.of_path(path)
    program = stablehlo.read(source.content)
    types = [v.type for i, v in enumerate(program.body.args) if i not in source.weights]
    cases = make_cases(types, source.golden, random, edges)
    if not os.path.isfile(path):
        raise AotError(f"{path}: no such file", hint=f"write it with `aot export --format {format} -o {path}`")
    with tempfile.TemporaryDirectory() as folder:
        reference = os.path.join(folder, "program")
        with open(reference, "wb") as f:
            f.write(source.content.encode() if isinstance(source.content, str) else source.content)
        for case, result in zip(cases, run_all("xla", reference, [source.arguments(c.inputs) for c in cases], timeout)):
            case.expected = result
        compared = [c for c in cases if not isinstance(c.expected, str)]
        for case, result in zip(compared, run_all(format, path, [c.inputs for c in compared], timeout)):
            case.found = result
        names = [n or f"result {i}" for i, n in enumerate(source.outputs or program.result_names)]
        losing = any(map(loses_nan, program.body.walk()))
        rows = [judged(case, names, _narrowest(program, rtol), losing) for case in cases]
        if differing := [i for i, row in enumerate(rows) if row["outcome"] == "differs" and row["name"] not in UNBOUNDED]:
            arguments = [source.arguments(cases[i].inputs) for i in differing]
            for i, exact in zip(differing, _in_double(source, folder, arguments, timeout)):
                _reconsider(rows[i], cases[i], exact)
    counted = [r for r in rows if r["outcome"] != "skipped"]
    report = {"file": path, "format": format, "function": source.name, "cases": rows}
    if rows and not counted:
        return report | {"ok": None, "why": f"not compared: {rows[0]['why'].splitlines()[0]}"}
    return report | {"ok": bool(counted) and all(r["outcome"] == "right" for r in counted)}


def beside(artifact: str | os.PathLike, rtol: float | None = None) -> list[dict[str, Any]]:
    """Compare the exported files that lie next to an artifact, by the names that builds give them, with its functions.

    Returns a report as of `verify` for each; `ok` is None, and `why` says why, where the format's runtime is not installed.
    A file of a function is `FUNCTION.onnx` or, for a target with an option, `FUNCTION-OPTION.onnx`; one of an artifact with
    a single function may have the artifact's name instead.
    """
    import aot_runtime
    names, reports = aot_runtime.load(artifact).keys(), []
    folder, base = os.path.split(os.path.splitext(os.fspath(artifact))[0])
    for function, stem in dict.fromkeys([*zip(names, names), *((n, base) for n in names if len(names) == 1)]):
        for name, row in formats.FORMATS.items():
            for option, options in {"": {}, **targets.FORMATS.get(name, ("", {}))[1]}.items():
                path = os.path.join(folder, f"{stem}{option and '-' + option}{row.suffix}")
                if os.path.isfile(path):
                    reports.append(_beside(artifact, function, name, path, options, rtol))
    return reports


def _beside(artifact: str | os.PathLike, function: str, name: str, path: str, options: Mapping[str, Any],
            rtol: float | None) -> dict[str, Any]:
    row = formats.FORMATS[name]
    if why := row.missing():
        return {"file": path, "format": name, "function": function, "cases": [], "ok": None, "why": f"not run: {why}"}
    how: dict[str, Any] = {}
    if "quantize" in options:
        how = dict(row.load().VERIFICATION[options["quantize"]])
    return verify(of_artifact(os.fspath(artifact), function), path, **(how if rtol is None else {**how, "rtol": rtol}))


def extend(report: dict[str, Any], other: dict[str, Any], what: str) -> None:
    """Add the cases of another report on the same file, under names that end in `what`."""
    report["cases"] += [case | {"name": f"{case['name']}, {what}"} for case in other["cases"]]
    report["ok"] = report["ok"] and other["ok"]


# ---- inputs --------------------------------------------------------------------------------------------------------

def make_cases(types: Sequence[stablehlo.Type], golden: Any = None, random: int = 2, edges: bool = True) -> list[Case]:
    """The inputs to compare on; the same for equal arguments."""
    cases = [Case("recorded", [np.asarray(x) for x in golden[0]])] if golden is not None else []
    rng = np.random.default_rng(0)
    cases += [Case(f"random {i}", [_random(t, rng) for t in types]) for i in range(random)]
    if edges and types:
        cases += [Case(name, [np.full(t.shape, value(t.dtype)) for t in types]) for name, value in EDGES.items()]
    return cases


def _random(type: stablehlo.Type, rng: np.random.Generator) -> np.ndarray:
    dtype, shape = type.dtype, type.shape
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype == np.uint32 and shape[-1:] == (2,):                           # what a random key is stored as
        return rng.integers(0, 1 << 32, shape, np.uint32)
    if dtype.kind in "iu" or "int" in dtype.name:
        return rng.integers(0, 2 if dtype.name in ("int2", "uint2") else 4, shape).astype(dtype)
    noise = rng.standard_normal(shape)
    return np.asarray(noise + 1j * rng.standard_normal(shape) if dtype.kind == "c" else noise).astype(dtype)


def _filled(real: float, integer: int) -> Callable[[np.dtype], Any]:
    def value(dtype: np.dtype) -> Any:
        is_integer = dtype.kind in "iub" or "int" in dtype.name
        return np.asarray(integer if is_integer else real).astype(dtype)
    return value


EDGES: dict[str, Callable[[np.dtype], Any]] = {
    "zeros": _filled(0.0, 0), "negative zeros": _filled(-0.0, 1), "ones": _filled(1.0, 1), "large": _filled(50.0, 3),
    "negative": _filled(-3.0, 2), "infinite": _filled(float("inf"), 1), "not a number": _filled(float("nan"), 1)}


#: cases whose results are compared only where XLA has numbers: sums of infinities and NaN depend on the order of operations
UNBOUNDED = ("infinite", "not a number")


# ---- running -------------------------------------------------------------------------------------------------------

def run_all(format: str, path: str, inputs: Sequence[Sequence[np.ndarray]], timeout: float) -> list[list[np.ndarray] | str]:
    """The results of a file for each list of inputs, or the reason why there are none, such as a crash of the runtime."""
    results: dict[int, list[np.ndarray] | str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for i, arrays in enumerate(inputs):
            write_arrays(os.path.join(folder, f"in.{i}"), arrays)
        while todo := [i for i in range(len(inputs)) if i not in results]:
            why, late = _process([format, path, folder, *map(str, todo)], timeout, folder)
            timeout = min(timeout, AGAIN) if late else timeout
            before = len(results)
            for i in todo:
                if (found := _result(folder, i)) is not None:
                    results[i] = found
            rest = [i for i in todo if i not in results]
            if rest and (why or len(results) == before):
                results[rest[0]] = why or "the process ended without a result"
    return [results[i] for i in range(len(inputs))]


def _result(folder: str, i: int) -> list[np.ndarray] | str | None:
    if os.path.exists(error := os.path.join(folder, f"err.{i}")):
        with open(error, encoding="utf-8", errors="replace") as f:
            return f.read()
    out = os.path.join(folder, f"out.{i}")
    return read_arrays(out) if os.path.exists(out) else None


def _process(arguments: Sequence[str], timeout: float, folder: str) -> tuple[str, bool]:
    """Run the judge until it ends or makes no progress for the timeout -> (how it failed or "", whether it was late)."""
    command = [sys.executable, "-P", "-m", "aot.exporters.judge", *arguments]      # the user's files are no libraries
    with open(os.path.join(folder, "log"), "wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            done = -1
            while process.poll() is None:
                now = len(os.listdir(folder))
                if now == done:
                    process.kill()
                    process.wait()
                    return f"no result within {timeout:.0f} seconds", True
                done = now
                try:
                    process.wait(timeout)
                except subprocess.TimeoutExpired:
                    pass
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    code = process.returncode
    return "" if code == 0 else f"the runtime ended the process with signal {-code}" if code < 0 else f"exit code {code}", False


# ---- comparing -----------------------------------------------------------------------------------------------------

def _narrowest(program: stablehlo.Program, rtol: float | None) -> Callable[[np.dtype], float]:
    """The tolerance for results of a type: digits that a narrower float on the way has cut off mean nothing."""
    if rtol is not None:
        return lambda dtype: rtol
    used = {v.dtype for op in program.body.walk() for v in op.results} & {np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)}
    least = max(map(tolerance, used), default=0.0)
    return lambda dtype: max(tolerance(dtype), least) if tolerance(dtype) else 0.0


def _in_double(source: Source, folder: str, arguments: Sequence[Sequence[np.ndarray]], timeout: float) -> list[Any]:
    """What XLA makes of the program in double precision, None where it cannot."""
    from aot import mlir
    path = os.path.join(folder, "double")
    with open(path, "w", encoding="utf-8") as f:
        f.write(reference.widened(str(mlir.read_module(source.content))))
    found = run_all("xla", path, [reference.widened_arrays(x) for x in arguments], timeout)
    return [None if isinstance(x, str) else x for x in found]


def _reconsider(row: dict[str, Any], case: Case, exact: Sequence[np.ndarray] | None) -> None:
    """Results of a case that differ are right where XLA's are no nearer to the exact ones."""
    if exact is None or isinstance(case.found, str):
        return
    found = joined(case.found, [np.asarray(w).dtype for w in case.expected])
    for o, got, want, x in zip(row["outputs"], found, case.expected, exact):
        o["ok"] = o["ok"] or reference.as_near(got, np.asarray(want), x)
    if all(o["ok"] for o in row["outputs"]):
        row |= {"outcome": "right", "why": "as near as XLA to the result in double precision"}


def loses_nan(op: stablehlo.Op) -> bool:
    """Whether XLA loses a NaN in an operation, unless it comes last in a window: that a file keeps it is no fault."""
    return op.name == "select_and_scatter" or op.name == "reduce_window" and any(
        inner.name in ("maximum", "minimum") for region in op.regions for inner in region.walk())


def judged(case: Case, names: Sequence[str], rtol: Callable[[np.dtype], float], losing: bool = False) -> dict[str, Any]:
    """A row of the report.

    rtol: the tolerance for results of a type; losing: whether an operation of the program `loses_nan`."""
    row: dict[str, Any] = {"name": case.name, "outcome": "right", "why": "", "outputs": []}
    if isinstance(case.expected, str):
        return row | {"outcome": "skipped", "why": f"XLA: {case.expected}"}
    if isinstance(case.found, str):
        return row | {"outcome": "failed", "why": case.found}
    found = joined(case.found, [w.dtype for w in case.expected])
    if [(x.dtype, x.shape) for x in found] != [(x.dtype, x.shape) for x in case.expected]:
        return row | {"outcome": "failed", "why": f"results are {_types(found)} instead of {_types(case.expected)}"}
    if case.name in UNBOUNDED:
        anywhere = losing and case.name == "not a number"
        found = [_where_finite(got, want, anywhere) for got, want in zip(found, case.expected)]
    row["outputs"] = [compare(got, want, rtol(want.dtype)) |
                      {"name": n, "type": _types([want]), "max_ulp_error": ulp_error(got, want)}
                      for n, got, want in zip(names, found, case.expected)]
    return row if all(o["ok"] for o in row["outputs"]) else row | {"outcome": "differs"}


def _where_finite(got: np.ndarray, want: np.ndarray, anywhere: bool) -> np.ndarray:
    """Any result that is no number, where XLA has none either (or anywhere), counts as XLA's."""
    if want.dtype.kind not in "fc" and want.dtype.name != "bfloat16":
        return got
    return np.where(~np.isfinite(got) & (anywhere | ~np.isfinite(want)), want, got)


def joined(found: Sequence[np.ndarray], dtypes: Sequence[np.dtype]) -> list[np.ndarray]:
    """Results by the program's types: two real arrays become a complex one.  Too few or too many stay as they are."""
    rest, made = list(found), []
    for dtype in dtypes:
        if dtype.kind == "c" and len(rest) > 1 and rest[0].dtype.kind != "c":
            both = np.empty(rest[0].shape, dtype)
            both.real, both.imag = rest[0], rest[1]
            rest, made = rest[2:], [*made, both]
        elif rest:
            made.append(rest.pop(0))
    return [*made, *rest]


def ulp_error(got: np.ndarray, want: np.ndarray, largest: float = 0.0) -> float | None:
    """The largest distance in units of the last place; None for integers, and where nothing finite is compared.

    Numbers below the rounding error of the largest one (at least `largest`) are left out: all their digits are noise.
    """
    if want.dtype.kind == "c":
        size = float(np.abs(want[np.isfinite(want)]).max(initial=0))
        parts = [ulp_error(np.ascontiguousarray(a), np.ascontiguousarray(b), size)
                 for a, b in ((got.real, want.real), (got.imag, want.imag))]
        return max((p for p in parts if p is not None), default=None)
    if want.dtype.kind in "biu" or "int" in want.dtype.name or want.dtype.itemsize not in (1, 2, 4, 8):
        return None
    with np.errstate(all="ignore"):
        wide, size = got.astype(np.float64), np.abs(want.astype(np.float64))
        finite = np.isfinite(wide) & np.isfinite(size)
        finite &= size >= float(ml_dtypes.finfo(want.dtype).eps) * size[finite].max(initial=largest)
    if not finite.any():
        return None
    a, b = _ordered(got[finite]), _ordered(want[finite])
    return float((np.maximum(a, b) - np.minimum(a, b)).max())


def _ordered(x: np.ndarray) -> np.ndarray:
    """Unsigned integers that are one apart for neighbouring floats; both zeros are one number."""
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    bits, sign = np.ascontiguousarray(x).view(unsigned), unsigned.type(1 << (x.dtype.itemsize * 8 - 1))
    return np.where(bits & sign, sign - (bits ^ sign), bits | sign).astype(np.uint64)


def _types(arrays: Sequence[np.ndarray]) -> str:
    return ", ".join(str(stablehlo.Type(x.shape, x.dtype)) for x in arrays)
