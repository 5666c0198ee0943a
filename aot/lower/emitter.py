"""Jaxpr -> StableHLO text.  Text, parsed once by MLIR, is several times faster to make than MLIR objects.

An Emitter writes one function.  Values are SSA names; rules append lines and return names.  Constants are written
where first used, once per block.
"""
from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Iterator, Sequence

import ml_dtypes
import numpy as np

from aot import source
from aot.trace import Jaxpr, Literal, ShapedArray, as_numpy, stage, subjaxprs
from aot.transforms.discharge import without_refs

#: captured arrays with more bytes than this become parameters of the program instead of constants in it
INLINE_LIMIT = 1024


#: numbers smaller than a byte, and what holds them
NARROW = {"int2": "int8", "uint2": "uint8", "int4": "int8", "uint4": "uint8"}
NARROW_DTYPES = {np.dtype(getattr(ml_dtypes, k)): np.dtype(v) for k, v in NARROW.items()}
NARROW_DTYPES[np.dtype(ml_dtypes.float4_e2m1fn)] = np.dtype(ml_dtypes.bfloat16)
WIDENED = frozenset(("concatenate", "sort", "top_k", "argmax", "argmin", "dot_general", "conv_general_dilated"))


class Emitter:
    def __init__(self, module: Module):
        self.module = module
        self.lines: list[str] = []
        self.count = 0
        self.scopes: list[dict] = [{}]
        self.weights: dict[int, str] = {}     # id of a hoisted array -> the argument that carries it
        self.loc = ""
        self.scope = ""                       # names of the scopes around what is being written
        self.manual: Any = None               # the mesh of the shard_map being written
        self._token: str | None = None        # orders side effects; made on first use, threaded through calls and loops

    @property
    def token(self) -> str:
        if self._token is None:
            self._token = self.op("stablehlo.create_token : !stablehlo.token")
        return self._token

    @token.setter
    def token(self, name: str) -> None:
        self._token = name

    @property
    def block_token(self) -> str:
        """A token for effects within the current block only."""
        found = self.scopes[-1].get("token")
        return found or self.op("stablehlo.create_token : !stablehlo.token")

    @block_token.setter
    def block_token(self, name: str) -> None:
        self.scopes[-1]["token"] = name

    # ---- lines ----
    def fresh(self) -> str:
        self.count += 1
        return f"%{self.count}"

    def op(self, rhs: str) -> str:
        """Append one operation with one result -> its name."""
        self.count += 1
        name = f"%{self.count}"
        self.lines.append(f"{name} = {rhs}{self.loc}")
        return name

    def ops(self, rhs: str, n: int) -> list[str]:
        """Append one operation with n results -> their names."""
        if n == 0:
            self.lines.append(rhs + self.loc)
            return []
        name = self.fresh()
        self.lines.append(f"{name}{f':{n}' if n > 1 else ''} = {rhs}{self.loc}")
        return [name] if n == 1 else [f"{name}#{i}" for i in range(n)]

    # ---- constants ----
    def splat(self, value: Any, aval: ShapedArray) -> str:
        """A constant of aval's type with every element equal to value (a Python or numpy scalar)."""
        a = aval.physical
        text = scalar_text(value, a.dtype)
        return self._constant(f"dense<{text}>", a.mlir)

    def constant(self, value: Any, aval: ShapedArray) -> str:
        """A constant array."""
        value = as_numpy(value, aval)
        a = aval.physical
        if value.size and not value.shape:
            return self.splat(value[()], aval)
        return self._constant(dense_text(value), a.mlir)

    def _constant(self, dense: str, type_: str) -> str:
        key = (dense, type_)
        for scope in self.scopes:
            if key in scope:
                return scope[key]
        name = self.scopes[-1][key] = self.op(f"stablehlo.constant {dense} : {type_}")
        return name

    # ---- common operations ----
    def elementwise(self, hlo: str, ins: Sequence[ShapedArray], out: ShapedArray, xs: Sequence[str]) -> str:
        t = out.mlir
        if hlo.startswith("chlo.") or ins[0].mlir != t:
            hlo = hlo if "." in hlo else f"stablehlo.{hlo}"
            return self.op(f'"{hlo}"({", ".join(xs)}) : ({", ".join(a.mlir for a in ins)}) -> {t}')
        return self.op(f"stablehlo.{hlo} {', '.join(xs)} : {t}")

    def full_type(self, ins, out: ShapedArray) -> str:
        return ShapedArray(out.shape, ins[0].dtype).mlir

    def broadcast_operand(self, x: str, aval: ShapedArray, shape: tuple[int, ...]) -> str:
        """A scalar, or a value of the same rank with sizes of 1, at the full shape."""
        if aval.shape == shape:
            return x
        out = aval.update(shape=shape)
        first = len(shape) - aval.ndim
        dims = ", ".join(str(first + i) for i in range(len(aval.physical.shape)))
        return self.op(f"stablehlo.broadcast_in_dim {x}, dims = [{dims}] : ({aval.mlir}) -> {out.mlir}")

    def broadcast_in_dim(self, x: str, aval: ShapedArray, shape: tuple[int, ...], dims: Sequence[int]) -> str:
        text = ", ".join(map(str, dims))
        return self.op(f"stablehlo.broadcast_in_dim {x}, dims = [{text}] : ({aval.mlir}) -> "
                       f"{aval.update(shape=shape).mlir}")

    def select(self, pred: str, pred_aval, on_true: str, on_false: str, out: ShapedArray) -> str:
        if out.physical.shape != out.shape and pred_aval.shape:
            pred = self.broadcast_in_dim(pred, pred_aval, out.physical.shape, range(pred_aval.ndim))
            pred_aval = pred_aval.update(shape=out.physical.shape)
        return self.op(f"stablehlo.select {pred}, {on_true}, {on_false} : {pred_aval.mlir}, {out.mlir}")

    def convert(self, x: str, a: ShapedArray, out: ShapedArray) -> str:
        if a.dtype == out.dtype:
            return x
        if out.dtype == np.bool_:
            zero = self.splat(0, a)
            narrow = a.dtype.name in NARROW
            how = ("UNSIGNED" if a.dtype.kind == "u" or narrow and a.dtype.name.startswith("u") else
                   "SIGNED" if a.dtype.kind in "ib" or narrow else "FLOAT")
            return self.op(f"stablehlo.compare NE, {x}, {zero}, {how} : ({a.mlir}, {a.mlir}) -> {out.mlir}")
        if a.dtype.kind == "c" and out.dtype.kind != "c":
            part = a.update(dtype=np.dtype("float32" if a.dtype == np.complex64 else "float64"))
            x, a = self.op(f"stablehlo.real {x} : ({a.mlir}) -> {part.mlir}"), part
            if a.dtype == out.dtype:
                return x
        return self.op(f"stablehlo.convert {x} : ({a.mlir}) -> {out.mlir}")

    # ---- regions ----
    @contextmanager
    def block(self) -> Iterator[list[str]]:
        """A nested block: what is emitted meanwhile goes to the list that this gives."""
        outer, self.lines = self.lines, []
        self.scopes.append({})
        yield self.lines
        self.scopes.pop()
        self.lines = outer

    def finish(self, outs: Sequence[str], types: Sequence[str]) -> None:
        """End a block with its results."""
        self.lines.append(f"stablehlo.return {', '.join(outs)} : {', '.join(types)}" if outs else "stablehlo.return")

    def region(self, fn: Callable | Jaxpr, avals: Sequence[ShapedArray]) -> str:
        """A nested block computing fn (on tracers) of its arguments, as text `({ ^bb0(...): ... })`."""
        names = [f"%a{self.count}_{i}" for i in range(len(avals))]
        self.count += 1
        with self.block() as lines:
            jaxpr = fn if isinstance(fn, Jaxpr) else stage_flat(fn, avals)
            self.finish(self.jaxpr(jaxpr, names), [a.mlir for a in jaxpr.out_avals])
        args = ", ".join(f"{n}: {a.mlir}" for n, a in zip(names, avals))
        head = f"^bb0({args}):\n" if avals else ""
        return "({\n" + head + "\n".join(lines) + "\n})"

    def inline(self, fn: Callable, ins: Sequence[ShapedArray], xs: Sequence[str]) -> list[str]:
        """Trace fn (over lax functions, returning one value or a list) and emit its equations here."""
        return self.jaxpr(stage_flat(fn, ins), xs)

    # ---- jaxprs ----
    def jaxpr(self, jaxpr: Jaxpr, args: Sequence[str]) -> list[str]:
        """Emit every equation -> names of the outputs."""
        env, outer, around = dict(zip(jaxpr.invars, args, strict=True)), self.loc, self.scope
        for e in jaxpr.eqns:
            inner = source.scope_of(e.source)
            if not (self.module.locations or inner or around):
                self.eqn(e, env)
                continue
            self.scope = f"{around}/{inner}" if around and inner else around or inner
            self.loc = self.module.location(e.source, self.scope, e.primitive.name) or outer
            with source.replaying(e.source):       # what a lowering rule traces comes from the same line
                self.eqn(e, env)
        self.loc, self.scope = outer, around
        return [self.read(x, env) for x in jaxpr.outvars]

    def read(self, x, env) -> str:
        if type(x) is Literal:
            return self.weights.get(id(x.val)) or self.constant(x.val, x.aval)
        return env[x]

    def eqn(self, e, env) -> None:
        prim, outs = e.primitive, [v.aval for v in e.outvars]
        ins = [x.aval for x in e.invars]
        shape = outs[0].shape if prim.nary else ()
        if shape and any(a.shape != shape for a in ins):
            names, wide = [], []
            for x in e.invars:
                a = x.aval
                if a.shape == shape:
                    names.append(self.read(x, env))
                elif type(x) is Literal and not a.shape and a.physical is a:
                    a = a.update(shape=shape)
                    names.append(self.splat(as_numpy(x.val, x.aval)[()], a))
                else:
                    names.append(self.broadcast_operand(self.read(x, env), a, shape))
                    a = a.update(shape=shape)
                wide.append(a)
            ins = wide
        else:
            names = [self.read(x, env) for x in e.invars]
        if prim.name in WIDENED and any(a.dtype in NARROW_DTYPES for a in ins):
            env.update(zip(e.outvars, self.widened(prim, ins, outs, names, e.params)))
        else:
            env.update(zip(e.outvars, prim.lower(self, ins, outs, *names, **e.params)))

    def widened(self, prim, ins, outs, names, params) -> list[str]:
        """An operation that XLA gets wrong on numbers of less than a byte (it crashes, or sorts wrongly), on bytes."""
        def wide(a):
            return a.update(dtype=NARROW_DTYPES[a.dtype]) if a.dtype in NARROW_DTYPES else a
        names = [self.convert(x, a, wide(a)) for x, a in zip(names, ins)]
        got = prim.lower(self, [wide(a) for a in ins], [wide(a) for a in outs], *names, **params)
        return [self.convert(x, wide(a), a) for x, a in zip(got, outs)]

    def call(self, jaxpr: Jaxpr, xs: Sequence[str], name: str) -> list[str]:
        """Call the function that computes jaxpr, writing it once per module (in place inside shard_map)."""
        if self.manual is not None:
            return self.jaxpr(jaxpr, xs)
        fn, weights = self.module.function(jaxpr, name)
        args = [*(self.weights[i] for i in weights), *xs]
        types = [*(self.module.weight_types[i] for i in weights), *(a.mlir for a in jaxpr.in_avals)]
        outs = [a.mlir for a in jaxpr.out_avals]
        ordered = is_ordered(jaxpr)
        if ordered:
            args, types, outs = [*args, self.token], [*types, TOKEN], [*outs, TOKEN]
        names = self.ops(f"func.call @{fn}({', '.join(args)}) : ({', '.join(types)}) -> ({', '.join(outs)})", len(outs))
        if ordered:
            *names, self.token = names
        return names


TOKEN = "!stablehlo.token"


def is_ordered(*jaxprs: Jaxpr) -> bool:
    """Whether these contain side effects whose order matters."""
    return any("ordered" in j.effects for j in jaxprs)


def stage_flat(fn: Callable, avals: Sequence[ShapedArray]) -> Jaxpr:
    def f(*xs):
        out = fn(*xs)
        return list(out) if isinstance(out, (list, tuple)) else [out]
    jaxpr, captured = stage(f, [a.strip_weak_type() for a in avals])
    if captured:
        raise ValueError("a lowering rule captured a traced value")
    return jaxpr


class Module:
    """One StableHLO module: @main plus one private function per called jaxpr."""

    def __init__(self, name: str = "main", locations: bool = False, root: str | None = None, platform: str = "cpu"):
        self.name, self.locations, self.root, self.platform = name, locations, root, platform
        self.functions: dict[Any, tuple[str, list[int]]] = {}
        self.names: set[str] = {"main"}
        self.keep: list[Jaxpr] = []           # ids above stay valid while their jaxprs live
        self.text: list[str] = []
        self.weight_values: dict[int, Any] = {}
        self.weight_types: dict[int, str] = {}
        self._big: dict[int, list[int]] = {}
        self.callbacks: list[Callable] = []
        self.devices: tuple | None = None             # of a partitioned program, in the order of its partition ids
        self.meshes: dict[Any, str] = {}
        self.declarations: list[str] = []
        self.weight_attr: Callable[[str], str] | None = None      # attributes of a hoisted array, from its type
        self._locations: dict[Any, str] = {}

    def location(self, src, scope: str, operation: str) -> str:
        """What stands behind an operation: its scopes, and its place where the module has locations."""
        if not self.locations or not src:
            return f" loc({quoted(f'{scope}/{operation}')})" if scope else ""
        found = self._locations.get((src, scope))
        if found is None:
            file, line, function = source.location(src) or ("<unknown>", 0, "<unknown>")
            name = quoted(f"{scope}/{function}" if scope else function)
            found = self._locations[src, scope] = f" loc({name}({quoted(source.relative(file, self.root))}:{line}:0))"
        return found

    def big_literals(self, jaxpr: Jaxpr) -> list[int]:
        """ids of the captured arrays in jaxpr (and below) that are hoisted to parameters."""
        found = self._big.get(id(jaxpr))
        if found is None:
            seen: dict[int, None] = {}
            for e in jaxpr.eqns:
                for x in e.invars:
                    self._note(x, seen)
                for sub in subjaxprs(e.params):
                    seen.update(dict.fromkeys(self.big_literals(sub)))
            for x in jaxpr.outvars:
                self._note(x, seen)
            found = self._big[id(jaxpr)] = list(seen)
            self.keep.append(jaxpr)
        return found

    def _note(self, x, seen):
        if type(x) is Literal and x.aval.shape and x.aval.size * itemsize(x.aval) > INLINE_LIMIT:
            seen[id(x.val)] = None
            self.weight_values[id(x.val)] = x.val
            self.weight_types[id(x.val)] = x.aval.mlir

    def function(self, jaxpr: Jaxpr, name: str) -> tuple[str, list[int]]:
        """Write the function of jaxpr if it is new -> (its name, the hoisted arrays it takes first)."""
        found = self.functions.get(id(jaxpr))
        if found is None:
            fn = self._unique(name)
            weights = self.big_literals(jaxpr)
            found = self.functions[id(jaxpr)] = (fn, weights)
            self.keep.append(jaxpr)
            self.text.append(self._function_text(f"private @{fn}", jaxpr, weights, [], private=True))
        return found

    def _unique(self, name: str) -> str:
        base = symbol(name) or "fn"
        fn, n = base, 0
        while fn in self.names:
            fn, n = f"{base}_{n}", n + 1
        self.names.add(fn)
        return fn

    def _function_text(self, head: str, jaxpr: Jaxpr, weights: list[int], arg_attrs: Sequence[str],
                       private: bool = False, result_attrs: Sequence[str] = ()) -> str:
        e = Emitter(self)
        names = [f"%arg{i}" for i in range(len(weights) + len(jaxpr.invars))]
        threads = private and is_ordered(jaxpr)
        if threads:
            e.token = "%token"
        e.weights = dict(zip(weights, names))
        types = [*(self.weight_types[i] for i in weights), *(a.mlir for a in jaxpr.in_avals)]
        own = [self.weight_attr(self.weight_types[i]) if not private and self.weight_attr else "" for i in weights]
        attrs = [*own, *(arg_attrs or [""] * len(jaxpr.invars))]
        outs = e.jaxpr(jaxpr, names[len(weights):])
        results = [a.mlir for a in jaxpr.out_avals]
        shown = [t + a for t, a in zip(results, result_attrs or [""] * len(results))]
        args = ", ".join(f"{n}: {t}{a}" for n, t, a in zip(names, types, attrs))
        named = composite_text(jaxpr.composite) if private and jaxpr.composite and not weights and not threads else ""
        if threads:
            args = f"{args}, %token: {TOKEN}" if args else f"%token: {TOKEN}"
            outs, results, shown = [*outs, e.token], [*results, TOKEN], [*shown, TOKEN]
        out_types = ", ".join(results)
        ret = f"return {', '.join(outs)} : {out_types}" if outs else "return"
        return f"func.func {head}({args}) -> ({', '.join(shown)}){named} {{\n" + "\n".join([*e.lines, ret]) + "\n}"

    def main(self, jaxpr: Jaxpr, arg_attrs: Sequence[str] = (), result_attrs: Sequence[str] = ()) -> tuple[str, list]:
        """-> (module text, hoisted arrays, which @main takes as its first parameters)."""
        jaxpr = without_refs(jaxpr)
        weights = self.big_literals(jaxpr)
        main = self._function_text("public @main", jaxpr, weights, arg_attrs, result_attrs=result_attrs)
        text = f"module @{symbol(self.name) or 'main'} {{\n" + "\n".join([*self.declarations, main, *self.text]) + "\n}\n"
        return text, [self.weight_values[i] for i in weights]


def symbol(name: str) -> str:
    """A Python name as the name of a function or module: MLIR wants letters of ASCII, and none of digits in front."""
    found = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
    return "_" + found if found[:1].isdigit() else found


def quoted(text: str) -> str:
    """A string of MLIR; characters that are no Unicode (of file names in another encoding) become question marks."""
    plain = lambda b: 32 <= b < 127 and b not in b'"\\'
    return '"' + "".join(chr(b) if plain(b) else f"\\{b:02X}" for b in text.encode(errors="replace")) + '"'


def symbol_text(name: str) -> str:
    """A name that is kept as it is, behind the @."""
    return name if name and name == symbol(name) else quoted(name)


def itemsize(a: ShapedArray) -> int:
    return a.physical.dtype.itemsize * (a.physical.size // max(a.size, 1) or 1)


# ---- constants as text -------------------------------------------------------------------------------------------

def scalar_text(value: Any, dtype: np.dtype) -> str:
    """One element of a dense attribute; floats that decimal cannot carry are written as bits."""
    name = dtype.name
    if name == "bool":
        return "true" if value else "false"
    if dtype.kind in "iu" or name in ("int4", "uint4", "int2", "uint2"):
        return str(int(value))
    if dtype.kind == "c":
        part = np.dtype("float32" if name == "complex64" else "float64")
        value = dtype.type(value)
        return f"({scalar_text(value.real, part)}, {scalar_text(value.imag, part)})"
    typed = np.asarray(value, dtype)
    if name in ("float32", "float64") and np.isfinite(typed):
        text = repr(float(typed))
        mantissa, _, exponent = text.partition("e")
        mantissa = mantissa if "." in mantissa else mantissa + ".0"
        return f"{mantissa}e{exponent}" if exponent else mantissa
    bits = int(typed.view(f"u{dtype.itemsize}"))
    digits = max(dtype.itemsize * 2, 1)
    return f"0x{bits:0{digits}X}"


def attribute_text(v: Any) -> str:
    """A number, string, or tuple of them as an MLIR attribute.  Raises TypeError for others."""
    if isinstance(v, bool | np.bool_):
        return str(bool(v)).lower()
    if isinstance(v, int | np.integer):
        return f"{int(v)} : i64"
    if isinstance(v, float | np.floating):
        return f"{scalar_text(np.float32(v), np.dtype('float32'))} : f32"
    if isinstance(v, str):
        return '"' + v.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(v, (tuple, list)):
        return f"[{', '.join(map(attribute_text, v))}]"
    raise TypeError(f"a composite's attributes are numbers, strings and tuples of them, got {type(v)}")


def composite_text(composite: tuple[str, dict[str, Any]]) -> str:
    """What marks a function as the plain form of a composite: XLA does not look at it, `mlir.name_composites` does."""
    name, attributes = composite
    text = ", ".join(f"{k} = {attribute_text(v)}" for k, v in attributes.items())
    return f" attributes {{aot.composite = {attribute_text(name)}, aot.attributes = {{{text}}}}}"


def dense_text(value: np.ndarray) -> str:
    """The `dense<...>` attribute of an array of at least one dimension."""
    if value.size == 0:
        return "dense<>"
    flat = value.reshape(-1)
    if value.size > 1 and value.dtype.kind != "V" and (flat[0] == flat).all() and not (value == 0).any():
        return f"dense<{scalar_text(flat[0], value.dtype)}>"
    name = value.dtype.name
    if name == "bool" or name in ("int4", "uint4", "int2", "uint2"):
        return f"dense<{_nested(value)}>"
    data = np.ascontiguousarray(value).tobytes()
    return f'dense<"0x{data.hex().upper()}">'


def _nested(value: np.ndarray) -> str:
    if value.ndim == 0:
        return scalar_text(value[()], value.dtype)
    return f"[{', '.join(_nested(v) for v in value)}]"


def lower(jaxpr: Jaxpr, name: str = "main", donated: Sequence[bool] = (), locations: bool = False,
          root: str | None = None, platform: str = "cpu") -> tuple[str, list, list[Callable]]:
    """-> (StableHLO text, hoisted arrays = leading parameters of @main, host callbacks).

    platform: which branches of `platform_dependent` are written; the rest is the same for all."""
    module = Module(name, locations, root, platform)
    attrs = [" {jax.buffer_donor = true}" if d else "" for d in donated]
    text, weights = module.main(jaxpr, attrs)
    return text, weights, module.callbacks


