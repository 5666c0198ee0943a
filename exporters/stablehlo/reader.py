"""StableHLO files and modules -> Program: parsing, legalisation of other dialects, inlining of calls."""
from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from aot.errors import AotError

from .attributes import Attributes, array_of_text, parse_location, parse_type
from .expansions import expand
from .ir import Block, Location, Op, Program, Type, Value
from .simplify import substitute

Source = Any  # StableHLO text, bytecode (portable or not), the path of a file with either, or an MLIR module


def read(source: Source, *, keep: Collection[str] = (), composites: Collection[str] = (),
         shapes: Sequence[tuple[int, ...]] | None = None) -> Program:
    """The program of a StableHLO module.  LAPACK calls are written in StableHLO where expansions.py can.

    source: text, bytes, an `os.PathLike` of a .mlir or .mlirbc file, or an MLIR module (which is changed); a Program is
    returned as it is.
    keep: operations of other dialects that the caller knows, such as "chlo.erf"; all others are expressed in StableHLO.
    composites: names of composites that the caller knows: they stay as `composite` operations with `name`,
    `composite_attributes` and their decomposition as the only region; others are replaced by their decomposition.
    shapes: static shapes of the arguments, for modules with unknown sizes.
    Raises AotError with a hint when it is no StableHLO, holds types or operations that cannot be read, or recurses.
    """
    from aot import mlir, xla
    if isinstance(source, Program):
        return source
    try:
        module = mlir.read_module(_content(source)) if isinstance(source, (str, bytes, os.PathLike)) else source
        if shapes is not None:
            mlir.specialize(module, shapes)
        mlir.legalize(module, keep=keep, composites=composites)
    except (mlir.error(), xla.XlaRuntimeError, ValueError) as e:
        raise AotError(f"not a StableHLO program that can be read: {_first_lines(e)}",
                       hint="give StableHLO as MLIR text, as bytecode, or a file of it as a pathlib.Path; "
                            "`aot trace --stablehlo` prints an example") from e
    return expand(_Reader(module).program())


def _content(source: str | bytes | os.PathLike) -> str | bytes:
    if not isinstance(source, os.PathLike):
        return source
    try:
        with open(source, "rb") as f:
            return f.read()
    except OSError as e:
        raise AotError(f"{os.fspath(source)}: {e.strerror or e}") from e


def _first_lines(e: Exception) -> str:
    lines = [line.strip() for line in str(e).splitlines() if line.strip()]
    return " ".join(lines[:2])[:400]


class _Reader:
    """One module.  Values are looked up by the MLIR value; a tuple stands for its elements, a token for nothing."""

    def __init__(self, module: Any):
        from aot import mlir
        ir, stablehlo = mlir.bindings()
        self.module, self.attributes = module, Attributes(ir, stablehlo)
        self.functions = {op.attributes["sym_name"].value: op for op in module.body.operations
                          if op.operation.name == "func.func"}
        self.active: list[str] = []
        self.outer = Location()     # the place of the call, or of the operation with a region, that is being read

    def program(self) -> Program:
        main = self.functions.get("main") or (next(iter(self.functions.values())) if len(self.functions) == 1 else None)
        if main is None:
            raise AotError("the module has no function @main", hint="call the function to export @main")
        block = main.regions[0].blocks[0]
        env: dict[Any, Any] = {}
        args = []
        for a in block.arguments:
            env[a] = value = self.argument(str(a.type))
            args += _flat(value)
        body = Block(args)
        body.outputs = self.block(block, env, body.ops)
        return Program(self.name(), body, self.argument_names(main, block), self.result_names(main, len(body.outputs)),
                       self.partitions())

    def name(self) -> str:
        attributes = self.module.operation.attributes
        return attributes["sym_name"].value if "sym_name" in attributes else "main"

    def partitions(self) -> int:
        attributes = self.attributes.of(self.module.operation)
        return int(attributes.get("mhlo.num_partitions", 1)) * int(attributes.get("mhlo.num_replicas", 1))

    def argument_names(self, main: Any, block: Any) -> list[str]:
        """From jax.arg_info, or from the location `loc("x")` that jax gives to arguments."""
        attrs = self.entry_attributes(main, "arg_attrs", len(block.arguments))
        names = []
        for i, a in enumerate(block.arguments):
            name = attrs[i].get("jax.arg_info", "") or _location_name(a)
            names += [name] * len(_flat(self.argument(str(a.type))))
        return names

    def result_names(self, main: Any, n: int) -> list[str]:
        attrs = self.entry_attributes(main, "res_attrs", n)
        return [a.get("jax.result_info", "") for a in attrs]

    def entry_attributes(self, main: Any, which: str, n: int) -> list[dict]:
        found = list(self.attributes(main.attributes[which])) if which in main.attributes else []
        return found if len(found) == n else [{}] * n

    # ---- operations ----
    def argument(self, text: str) -> Any:
        return self.shaped(text, lambda t: Value(t))

    def shaped(self, text: str, make: Any) -> Any:
        """What stands for a value of an MLIR type; make(type) is called for every tensor in it."""
        if text.startswith(("!stablehlo.token", "token")):
            return None
        if text.startswith("tuple<"):
            return [self.shaped(t, make) for t in _split_types(text[6:-1])]
        type = parse_type(text)
        if type is None:
            raise AotError(f"values of type {text} cannot be exported",
                           hint="quantized and other special types have to be expressed by plain tensors")
        return make(type)

    def block(self, block: Any, env: dict, ops: list[Op]) -> list[Value]:
        """Read a block's operations into `ops` -> what it returns."""
        for op in block.operations:
            op = op.operation
            name = op.name
            if name in _TERMINATORS:
                return [v for x in op.operands for v in _flat(env[x])]
            handler = _SPECIAL.get(name)
            if handler is not None:
                handler(self, op, env, ops)
            else:
                self.plain(op, name, env, ops)
        return []

    def plain(self, op: Any, name: str, env: dict, ops: list[Op]) -> None:
        attrs = self.attributes.of(op)
        target = str(attrs.get("call_target_name", "")) if name == "stablehlo.custom_call" else ""
        if target in _PLACING:
            return self.forward(op, env, ops)
        if target.startswith("chlo."):
            name, attrs = attrs["call_target_name"], {**attrs, **dict(attrs.get("mhlo.backend_config") or {})}
        operands = [v for x in op.operands for v in _flat(env[x])]
        types: list[Type] = []
        for r in op.results:
            self.shaped(str(r.type), types.append)
        with self.inside(op):
            regions = [self.region(r, env) for r in op.regions]
        made = Op(name.removeprefix("stablehlo."), operands, types, attrs, regions, self.location(op))
        ops.append(made)
        results = iter(made.results)
        for r in op.results:
            env[r] = self.shaped(str(r.type), lambda t: next(results))

    def region(self, region: Any, env: dict) -> Block:
        if len(region.blocks) != 1:
            raise AotError("a region with control flow between blocks is no StableHLO")
        block = region.blocks[0]
        inner = _Scope(env)
        args = []
        for a in block.arguments:
            inner[a] = value = self.argument(str(a.type))
            args += _flat(value)
        made = Block(args)
        made.outputs = self.block(block, inner, made.ops)
        return made

    def location(self, op: Any) -> Location:
        """The place of an operation; without one, that of the call or of the operation whose region it is in."""
        found = parse_location(str(op.location))
        return found if found.file else self.outer

    @contextmanager
    def inside(self, op: Any) -> Iterator[None]:
        before, self.outer = self.outer, self.location(op)
        yield
        self.outer = before

    # ---- what is not kept ----
    def call(self, op: Any, env: dict, ops: list[Op]) -> None:
        self.inline(op, self.callee(op), env, ops)

    def callee(self, op: Any) -> str:
        return self.attributes(op.attributes["callee"])

    def inline(self, op: Any, name: str, env: dict, ops: list[Op]) -> None:
        if name in self.active:
            raise AotError(f"function @{name} calls itself", hint="write the recursion as a loop")
        if name not in self.functions:
            raise AotError(f"the module calls @{name}, which it does not define")
        block = self.functions[name].regions[0].blocks[0]
        self.active.append(name)
        inner = {a: env[x] for a, x in zip(block.arguments, op.operands)}
        with self.inside(op):
            outs = iter(self.block(block, inner, ops))
        self.active.pop()
        for r in op.results:
            env[r] = self.shaped(str(r.type), lambda t: next(outs))

    def composite(self, op: Any, env: dict, ops: list[Op]) -> None:
        """A composite that the caller wants to see: its decomposition becomes its region."""
        attrs = self.attributes.of(op)
        function = self.functions[attrs.pop("decomposition")].regions[0].blocks[0]
        body = Block([])
        inner = {}
        for a in function.arguments:
            inner[a] = value = self.argument(str(a.type))
            body.args += _flat(value)
        with self.inside(op):
            body.outputs = self.block(function, inner, body.ops)
        operands = [v for x in op.operands for v in _flat(env[x])]
        made = Op("composite", operands, [v.type for v in body.outputs], attrs, [body], self.location(op))
        ops.append(made)
        results = iter(made.results)
        for r in op.results:
            env[r] = self.shaped(str(r.type), lambda t: next(results))

    def constant(self, op: Any, env: dict, ops: list[Op]) -> None:
        try:
            value = self.attributes(op.attributes["value"])
        except TypeError:
            value = array_of_text(op.get_asm())
        if not isinstance(value, np.ndarray):
            value = array_of_text(op.get_asm())
        made = constant(value, self.location(op))
        ops.append(made)
        env[op.results[0]] = made.result

    def tuple(self, op: Any, env: dict, ops: list[Op]) -> None:
        env[op.results[0]] = [env[x] for x in op.operands]

    def get_tuple_element(self, op: Any, env: dict, ops: list[Op]) -> None:
        env[op.results[0]] = env[op.operands[0]][op.attributes["index"].value]

    def forward(self, op: Any, env: dict, ops: list[Op]) -> None:
        for r, x in zip(op.results, op.operands):
            env[r] = env[x]

    def token(self, op: Any, env: dict, ops: list[Op]) -> None:
        env[op.results[0]] = None


class _Scope(dict):
    """The values of a nested block: looks further out for what it does not have."""

    def __init__(self, outer: Any):
        super().__init__()
        self.outer = outer

    def __missing__(self, key: Any) -> Any: return self.outer[key]


_TERMINATORS = {"func.return", "stablehlo.return", "return", "sdy.return"}
_SPECIAL = {"func.call": _Reader.call, "stablehlo.composite": _Reader.composite, "stablehlo.constant": _Reader.constant,
            "stablehlo.tuple": _Reader.tuple, "stablehlo.get_tuple_element": _Reader.get_tuple_element,
            "stablehlo.optimization_barrier": _Reader.forward, "stablehlo.after_all": _Reader.token,
            "stablehlo.create_token": _Reader.token, "sdy.sharding_constraint": _Reader.forward}
#: custom calls that say where and in what order a value is stored, which is no meaning of values
_PLACING = {"LayoutConstraint", "Sharding", "annotate_device_placement"}


def constant(value: np.ndarray, location: Location = Location()) -> Op:
    """A `constant` operation."""
    return Op("constant", [], [Type(tuple(value.shape), value.dtype)], {"value": value}, location=location)


def _flat(value: Any) -> list[Value]:
    if value is None:
        return []
    return [v for x in value for v in _flat(x)] if isinstance(value, list) else [value]


def _split_types(text: str) -> list[str]:
    """`tensor<2xf32>, tuple<..>` -> its parts."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c == "<") - (c == ">")
        if c == "," and not depth:
            parts.append(text[start:i].strip())
            start = i + 1
    return [*parts, text[start:].strip()] if text.strip() else []


def _location_name(argument: Any) -> str:
    """`x` of an argument's `loc("x")`."""
    try:
        text = str(argument.location)
    except AttributeError:
        return ""
    name = text.removeprefix('loc("').removesuffix('")')
    return name if text == f'loc("{name}")' and '"' not in name else ""


def bind(program: Program, arrays: Mapping[int, tuple[str, np.ndarray]]) -> Program:
    """Make arguments constants, in place: argument number -> (name, array).  The name is the attribute `name`."""
    if not arrays:
        return program
    values = {}
    for i, (name, array) in arrays.items():
        made = constant(np.asarray(array))
        made.attrs["name"] = name
        values[program.body.args[i]] = made.result
    substitute(program.body, values)
    program.body.ops[:0] = [v.op for v in values.values() if v.op is not None]
    kept = [i for i in range(len(program.body.args)) if i not in arrays]
    program.body.args = [program.body.args[i] for i in kept]
    program.argument_names = [program.argument_names[i] for i in kept]
    return program
