"""The driver: a StableHLO program -> a C source file and its header."""
from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from aot.errors import AotError
from aot.exporters import stablehlo
from aot.exporters.names import one_each
from aot.exporters.report import Report
from aot.files import replacing

from . import (  # noqa: F401  each registers rows
    rows_control,
    rows_convolution,
    rows_fourier,
    rows_indexing,
    rows_linear,
    rows_movement,
    rows_products,
    rows_reduction,
)
from .helpers import needed
from .lowering import Lowering
from .memory import ALIGN, Storage
from .names import LINKED, RESERVED, identifier
from .types import PARTS, Inexpressible, check, initializer, of

#: operations of the dialect chlo that have rows
KEEP = ("chlo.erf", "chlo.erfc")
FOLDED = 1 << 12        # elements up to which results that are known are written as constants
WEIGHTS, APART = ".weights", 1 << 10       # how the file of constants is called, and bytes from which on they go there

@dataclass(frozen=True)
class Exported:
    """A program in C.

    name: of the function.  inputs, outputs: the names of its parameters for each argument and result.  workspace: bytes that it
    needs besides.  weights: the constants that are not in the source.  renamed: program name -> name in C, where they differ.
    """
    name: str
    source: str
    header: str
    inputs: list[tuple[str, ...]]
    outputs: list[tuple[str, ...]]
    input_types: list[stablehlo.Type] = field(default_factory=list)
    output_types: list[stablehlo.Type] = field(default_factory=list)
    workspace: int = 0
    weights: bytes = b""
    renamed: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def save(self, path: str | os.PathLike) -> list[str]:
        """Write the source, and next to it its header and its weights -> the files."""
        path = os.fspath(path)
        base, files = path.removesuffix(".c"), [path]
        if self.weights:
            files.append(base + WEIGHTS)
            with replacing(files[-1]) as f:
                f.write(self.weights)
        with replacing(base + ".h") as f:
            f.write(self.header.encode())
        with replacing(path) as f:
            f.write(self.source.replace(f'#include "{self.name}.h"', f'#include "{os.path.basename(base)}.h"', 1).encode())
        return [*files, base + ".h"]


def export(source: Any, *, input_names: Sequence[str] | None = None, output_names: Sequence[str] | None = None,
           metadata: Mapping[str, str] | None = None, weights: str = "source") -> Exported:
    """A StableHLO program (what `stablehlo.read` takes, or a Program) as C99.

    weights: "source" writes constants as arrays of C; "file" puts those from 1 KiB on in a file of bytes, whose contents the
    function takes as its first parameter.
    The function is called what the metadata's `function` says, or as the module.  Names default to those in the program, then
    to `input_0` and `output_0`.  Raises Refused with everything that C cannot express, AotError where the source is no program.
    """
    if weights not in ("source", "file"):
        raise AotError(f"weights={weights!r} is no place for constants", hint="choose source or file")
    program = stablehlo.simplify(stablehlo.read(source, keep=KEEP), fold_limit=FOLDED)
    name = identifier((metadata or {}).get("function") or program.name, "program", {*RESERVED, *LINKED})
    used = {*RESERVED, name, *(f"{name.upper()}_{word}" for word in ("H", "RESTRICT", "WORKSPACE"))}
    inputs = _named(used, "input", input_names or program.argument_names, program.input_types)
    outputs = _named(used, "output", output_names or program.result_names, program.output_types)
    _check_types(program)
    lowering, workspace = _lowered(program, [n for _, n in inputs], [n for _, n in outputs])
    apart = _place(lowering, APART if weights == "file" else 1 << 62)
    about = {"function": name, "workspace": workspace, "weights": len(apart), "inputs": _about(inputs, program.input_types),
             "outputs": _about(outputs, program.output_types)}
    signature = _signature(name, about)
    return Exported(name, _source(lowering, signature, name), _header(name, signature, about),
                    [(n,) for _, n in inputs], [(n,) for _, n in outputs], program.input_types, program.output_types,
                    workspace, apart, {w: (n,) for w, n in [*inputs, *outputs] if w and w != n})


# ---- names and types ----------------------------------------------------------------------------------------------------

def _named(used: set[str], kind: str, wanted: Sequence[str], types: Sequence[stablehlo.Type]) -> list[tuple[str, str]]:
    """(name in the program, name in C) of each input or output."""
    return [(w, identifier(w, f"{kind}_{i}", used)) for i, w in enumerate(one_each(kind, wanted, len(types)))]


def _check_types(program: stablehlo.Program) -> None:
    report = Report("c")
    for kind, types in (("input", program.input_types), ("output", program.output_types)):
        for i, type in enumerate(types):
            try:
                check(type)
            except Inexpressible as e:
                report.add(f"{kind} {i}", str(type), why=str(e), hint=e.hint)
    report.raise_if_any()


# ---- text ------------------------------------------------------------------------------------------------------------------

def _lowered(program: stablehlo.Program, inputs: Sequence[str], outputs: Sequence[str]) -> tuple[Lowering, int]:
    """The body of the function, and the bytes of its workspace.  Raises Refused."""
    report = Report("c")
    l = Lowering(report)
    for v, name in zip(program.body.args, inputs):
        l.bind(v, Storage(name, of(v.dtype), v.type.size, "input"))
    results = [Storage(name, of(v.dtype), v.type.size, "output") for v, name in zip(program.body.outputs, outputs)]
    wanted: dict[Any, Storage] = {}
    for v, s in zip(program.body.outputs, results):
        wanted.setdefault(v, s)
    l.move(l.block(program.body, wanted), results)
    report.raise_if_any()
    return l, l.memory.plan(results)


def _place(l: Lowering, limit: int) -> bytes:
    """Give the constants of `limit` bytes and more their places in a file -> its contents."""
    contents = bytearray()
    for s, array in l.constants.values():
        if s.bytes >= limit:
            contents += bytes(-len(contents) % ALIGN)
            s.offset = len(contents)
            contents += np.ascontiguousarray(array).tobytes()
    return bytes(contents)


def _about(named: Sequence[tuple[str, str]], types: Sequence[stablehlo.Type]) -> list[dict[str, Any]]:
    return [{"name": n, "dtype": t.dtype.name, "shape": list(t.shape)} for (_, n), t in zip(named, types)]


def _signature(name: str, about: dict[str, Any]) -> str:
    parameters = ["const void *restrict weights"] if about["weights"] else []
    parameters += [f"const {_stored(p)} *restrict {p['name']}" for p in about["inputs"]]
    parameters += [f"{_stored(p)} *restrict {p['name']}" for p in about["outputs"]]
    return f"void {name}(" + ", ".join([*parameters, "void *restrict workspace"]) + ")"


def _stored(parameter: dict[str, Any]) -> str: return of(stablehlo.Type((), _dtype(parameter["dtype"])).dtype).stored


def _dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def _source(l: Lowering, signature: str, name: str) -> str:
    places = {s.name: s for s in l.memory.work}
    body = re.sub(r"@(\w+) (const )?@", lambda m: places[m[1]].address(m[2] or ""), "\n".join(l.w.lines))
    variables = [f"  {s.ctype.value if not s.ctype.is_small_float else s.ctype.stored} {s.name} = 0;" for s in l.memory.locals]
    names = re.findall(r"(\w+)(?:, |\)$)", signature)
    words = set(re.findall(r"\w+", body))
    unused = [n for n in names[:-1] if n not in words]
    ignored = [f"  (void){name};" for name in (*unused, *(s.name for s in l.memory.locals))]
    constants = [_constant(s, array) for s, array in l.constants.values() if s.offset < 0]
    variables += [f"  const {s.ctype.stored} *const {s.name} = {s.name}_.numbers;"
                  for s, _ in l.constants.values() if s.offset < 0 and s.ctype.kind == "c"]
    variables += [f"  const {s.ctype.stored} *const {s.name} = "
                  f"(const {s.ctype.stored} *)((const unsigned char *)weights + {s.offset});"
                  for s, _ in l.constants.values() if s.offset >= 0]
    functions = list(l.functions.values())
    helpers = needed("\n".join([body, *functions]))
    work = ["  unsigned char *const work = workspace;"] if "work +" in body else ["  (void)workspace;"]
    vectors = [_VECTORS] if "AOT_VECTORS" in "".join(functions) else []
    function = [f"{signature} {{", *work, *variables, *ignored, body, "}"]
    code = "\n".join([*vectors, *helpers, *functions, "", *constants, "", *function])
    complex_ = ["#include <complex.h>"] if "complex" in code or "conj" in code else []
    return "\n".join([f'#include "{name}.h"', "", *complex_, "#include <math.h>", "#include <string.h>",
                      "", *(["#ifdef I\n#undef I /* of complex.h */\n#endif"] if complex_ else []), code, ""])


def _constant(s: Storage, array: np.ndarray) -> str:
    """An array in the source.  C99 has no constants that are complex numbers: their parts share the memory with them."""
    elements, part = initializer(array, s.ctype), PARTS.get(s.ctype.brief)
    if part is None:
        return f"static const {s.ctype.stored} {s.name}[{s.size}] = {{\n{elements}\n}};"
    union = f"union {{ {part.stored} parts[{2 * s.size}]; {s.ctype.stored} numbers[{s.size}]; }}"
    return f"static const {union} {s.name}_ = {{{{\n{elements}\n}}}};"


#: the bytes of a vector, for compilers and machines that have some
_VECTORS = """
#if defined(__GNUC__) && defined(__AVX512F__)
#define AOT_VECTORS 64
#elif defined(__GNUC__) && defined(__AVX__)
#define AOT_VECTORS 32
#elif defined(__GNUC__) && (defined(__SSE2__) || defined(__ARM_NEON) || defined(__VSX__) || defined(__riscv_vector))
#define AOT_VECTORS 16
#endif
#ifdef __GNUC__
#define AOT_APART __attribute__((noinline)) /* inlined, GCC keeps sums in memory */
#else
#define AOT_APART
#endif"""


def _header(name: str, signature: str, about: dict[str, Any]) -> str:
    guard, upper = f"{name.upper()}_H", name.upper()
    rows = [f" *   {p['name']}: {p['dtype']}[{','.join(map(str, p['shape']))}]{', written' if kind == 'outputs' else ''}"
            for kind in ("inputs", "outputs") for p in about[kind]]
    if about["weights"]:
        rows.insert(0, f" *   weights: {about['weights']} bytes, the contents of the file {WEIGHTS}, aligned to {ALIGN}")
    plain = signature.replace("restrict ", f"{upper}_RESTRICT ")
    as_complex = {t: f"{name}_{t.split()[0]}_complex" for t in ("float complex", "double complex") if t in plain}
    for t, alias in as_complex.items():
        plain = plain.replace(t, alias)
    return f"""/* {name}, a function of arrays.  Arrays are dense and row-major; they may not overlap.
 *
{os.linesep.join(rows)}
 *   workspace: {upper}_WORKSPACE bytes, aligned to {ALIGN}; what it holds before and after the call has no meaning.
 *
 * It allocates nothing, keeps no state, and may be called by several threads, each with a workspace and results of its own.
 * float16 and bfloat16 are passed as their bits.
 * aot: {json.dumps(about)}
 */
#ifndef {guard}
#define {guard}

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
{_lines("#include <complex>", as_complex)}#define {upper}_RESTRICT
{_lines(*(f"typedef std::complex<{t.split()[0]}> {alias};" for t, alias in as_complex.items()))}extern "C" {{
#else
{_lines("#include <complex.h>", as_complex)}#define {upper}_RESTRICT restrict
{_lines(*(f"typedef {t} {alias};" for t, alias in as_complex.items()))}#endif

#define {upper}_WORKSPACE {about["workspace"]}

{_folded(plain)};

#ifdef __cplusplus
}}
#endif
#endif
"""


def _lines(*lines: Any) -> str:
    """Lines of text; nothing where the last one is empty."""
    return "".join(f"{line}\n" for line in lines if isinstance(line, str)) if lines and lines[-1] else ""


def _folded(text: str, width: int = 116) -> str:
    """A long declaration in lines."""
    lines, line = [], ""
    for part in text.split(", "):
        if line and len(line) + len(part) > width:
            lines.append(line)
            line = "    "
        line += part + ", "
    return "\n".join([*(x.rstrip() for x in lines), line.removesuffix(", ")])


def signature_in(header: str) -> dict[str, Any]:
    """What `about` a header says.  Raises AotError where it is none of ours."""
    found = re.search(r"^ \* aot: (\{.*\})$", header, re.MULTILINE)
    if found is None:
        raise AotError("not a header that was exported: it has no line ` * aot: {..}`")
    return json.loads(found[1])
