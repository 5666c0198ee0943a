"""The simplifier: folding, views that cancel, broadcasts and reshapes moved towards results, CSE and dead code."""
from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from .attributes import DotDims
from .folding import broadcast, fold
from .ir import Block, Location, Op, Program, Type, Value

#: elementwise operations of StableHLO and chlo: result and operands have one shape (`select` and `clamp` may have scalars)
ELEMENTWISE = frozenset("""
    abs add and atan2 cbrt ceil clamp compare complex convert cosine count_leading_zeros divide exponential
    exponential_minus_one floor imag is_finite log log_plus_one logistic maximum minimum multiply negate not or popcnt
    power real reduce_precision remainder round_nearest_afz round_nearest_even rsqrt select shift_left
    shift_right_arithmetic shift_right_logical sign sine sqrt subtract tan tanh xor
    chlo.erf chlo.erfc chlo.tan chlo.asin chlo.acos chlo.atan chlo.sinh chlo.cosh chlo.asinh chlo.acosh chlo.atanh
""".split())
_EFFECTS = frozenset("custom_call infeed outfeed send recv".split())


def is_splat(value: np.ndarray) -> bool:
    """Whether an array is one element broadcast: known from its strides, not by looking at the elements."""
    return value.size == 1 or value.size > 1 and all(s == 0 or n == 1 for s, n in zip(value.strides, value.shape))


def simplify(program: Program, *, fold_limit: int = 1 << 16) -> Program:
    """Simplify in place, and return, a program.  Results of more than fold_limit elements are not folded, except splats."""
    for _ in range(4):
        pass_ = _Pass(fold_limit, uses([program.body]))
        pass_.block(program.body, {})
        dropped = drop_dead(program.body)
        if not pass_.changed and not dropped:
            break
    return program


def substitute(block: Block, values: Mapping[Value, Value]) -> None:
    """Replace values in a block and in the blocks nested in it, in place."""
    for op in block.walk():
        op.operands = [values.get(v, v) for v in op.operands]
        for region in op.regions:
            region.outputs = [values.get(v, v) for v in region.outputs]
    block.outputs = [values.get(v, v) for v in block.outputs]


# ---- dead code -----------------------------------------------------------------------------------------------------

def drop_dead(block: Block) -> bool:
    """Remove operations whose results nobody uses and that have no effects; whether there were any."""
    used: set[Value] = set()
    return _drop(block, used)


def _drop(block: Block, used: set[Value]) -> bool:
    used.update(block.outputs)
    kept, dropped = [], False
    for op in reversed(block.ops):
        if not has_effect(op) and not any(r in used for r in op.results):
            dropped = True
            continue
        used.update(op.operands)
        for region in op.regions:
            dropped |= _drop(region, used)
        kept.append(op)
    block.ops = kept[::-1]
    return dropped


def has_effect(op: Op) -> bool:
    """Whether an operation does more than compute its results."""
    if op.name in _EFFECTS:
        return bool(op.attrs.get("has_side_effect", op.name != "custom_call"))
    return any(has_effect(inner) for region in op.regions for inner in region.ops)


# ---- one pass ------------------------------------------------------------------------------------------------------

class _Pass:
    """One pass over a program: rebuilds each block, with every value replaced by the simplest one that equals it."""

    def __init__(self, limit: int, uses: Mapping[Value, int]):
        self.limit, self.uses, self.changed = limit, uses, False
        self.ops: list[Op] = []
        self.seen: ChainMap[Any, Op] = ChainMap()       # operations by what they compute: here, and in the blocks around

    def block(self, block: Block, env: dict[Value, Value]) -> None:
        outer_ops, outer_seen = self.ops, self.seen
        self.ops, self.seen = [], self.seen.new_child()
        for op in block.ops:
            op.operands = [env.get(v, v) for v in op.operands]
            for region in op.regions:
                self.block(region, env)
            found = self.simplest(op)
            for old, new in zip(op.results, found):
                if old is not new:
                    env[old] = new
                    self.changed = True
        block.ops, block.outputs = self.ops, [env.get(v, v) for v in block.outputs]
        self.ops, self.seen = outer_ops, outer_seen

    def simplest(self, op: Op) -> list[Value]:
        """Values equal to the results of an operation; appends to the block what they need."""
        if op.name in ELEMENTWISE and (sunk := self.sunk(op)) is not None:
            return [sunk]
        if (folded := self.folded(op)) is not None:
            return [self.add(_constant(folded, op.location))]
        for rule in _RULES.get(op.name, ()):
            if (found := rule(self, op)) is not None:
                return found if isinstance(found, list) else [found]
        return self.unique(op)

    def folded(self, op: Op) -> np.ndarray | None:
        if op.regions or len(op.results) != 1 or op.name == "constant" or not op.result.type.is_static:
            return None
        if op.name == "reshape" and op.operands[0].op is not None and "name" in op.operands[0].op.attrs:
            return None                                          # weights keep their names
        arrays = [_known(v) for v in op.operands]
        if any(a is None for a in arrays):
            return None
        splats = [a for a in arrays if a is not None and a.size and is_splat(a)]
        if op.name in ELEMENTWISE and arrays and len(splats) == len(arrays) and op.result.type.size:
            one = fold(_like(op, op.result.type.with_shape(())), [a.reshape(-1)[:1].reshape(()) if a.size == 1 else
                                                                  a[(0,) * a.ndim] for a in splats])
            return None if one is None else np.broadcast_to(one, op.shape)
        if op.name in ("broadcast_in_dim", "reshape") and len(splats) == 1 and op.result.type.size:
            return np.broadcast_to(splats[0][(0,) * splats[0].ndim], op.shape)
        if op.result.type.size > self.limit or op.name == "broadcast_in_dim":      # which takes no memory as it is
            return None
        return fold(op, arrays)     # type: ignore[arg-type]

    def unique(self, op: Op) -> list[Value]:
        """The results of an equal operation before, or its own."""
        key = _key(op)
        if key is not None:
            found = self.seen.setdefault(key, op)
            if found is not op:
                return found.results
        self.ops.append(op)
        return op.results

    def add(self, op: Op) -> Value:
        """A new operation: its result, or a simpler value."""
        return self.simplest(op)[0] if op.name != "constant" else self.unique(op)[0]

    def make(self, name: str, operands: list[Value], type: Type, location: Location, **attrs: Any) -> Value:
        return self.add(Op(name, operands, [type], attrs, location=location))

    def sunk(self, op: Op) -> Value | None:
        """An elementwise operation on equal broadcasts (or reshapes) and splats: the operation first, then the view."""
        if op.attrs.get("compare_type") == "TOTALORDER":
            return None
        view = next((v.op for v in op.operands if v.op is not None and v.op.name == "broadcast_in_dim"), None)
        if view is None or view.operands[0].type.size >= op.result.type.size:
            return None
        small = [_before(v, view) for v in op.operands]
        if any(s is None for s in small):
            return None
        inner = view.operands[0].shape
        operands = [s if isinstance(s, Value) else self.add(_constant(np.broadcast_to(s, inner if s.ndim else ())))
                    for s in small if s is not None]
        computed = self.make(op.name, operands, op.result.type.with_shape(inner), op.location, **op.attrs)
        return self.make("broadcast_in_dim", [computed], op.result.type, view.location, **view.attrs)


def _before(v: Value, view: Op) -> Value | np.ndarray | None:
    """The operand of a broadcast like `view`, the element of a splat, or None."""
    if v.constant is not None and v.constant.size and is_splat(v.constant):
        first = v.constant[(0,) * v.rank]
        return np.asarray(first) if not v.rank else np.broadcast_to(first, view.operands[0].shape)
    if v.op is not None and v.op.name == "broadcast_in_dim" and v.op.attrs == view.attrs \
            and v.op.operands[0].shape == view.operands[0].shape and v.shape == view.shape:
        return v.op.operands[0]
    return None


def _known(v: Value) -> np.ndarray | None:
    """The elements of a constant or of a broadcast of one."""
    op = v.op
    if op is not None and op.name == "broadcast_in_dim" and op.operands[0].constant is not None and v.type.is_static:
        return broadcast(op.operands[0].constant, op.attrs["broadcast_dimensions"], v.type)
    return v.constant


def _constant(value: np.ndarray, location: Location = Location()) -> Op:
    return Op("constant", [], [Type(tuple(value.shape), value.dtype)], {"value": value}, location=location)


def _like(op: Op, type: Type) -> Op:
    return Op(op.name, [], [type], op.attrs)


def _key(op: Op) -> Any:
    """What two operations have in common when they compute the same; None for those that are not merged."""
    if has_effect(op) or op.name in ("rng", "while", "if", "case"):
        return None
    if op.name == "constant":
        value = op.attrs["value"]
        if "name" in op.attrs:
            return None
        if is_splat(value):
            return "splat", op.result.type, value[(0,) * value.ndim].tobytes()
        return ("constant", op.result.type, value.tobytes()) if value.nbytes <= 4096 else None
    try:
        attrs = tuple(sorted((k, _hashable(v)) for k, v in op.attrs.items()))
        regions = tuple(_region_key(r) for r in op.regions)
        key = op.name, tuple(map(id, op.operands)), tuple(r.type for r in op.results), attrs, regions
        hash(key)
        return key
    except TypeError:
        return None


def _region_key(block: Block) -> Any:
    """What two bodies have in common when they compute the same: values are numbered, those from outside are themselves."""
    numbers: dict[Value, int] = {v: i for i, v in enumerate(block.args)}
    ops = []
    for op in block.ops:
        if op.regions:
            raise TypeError("nested bodies are not compared")
        attrs = tuple(sorted((k, _hashable(v)) for k, v in op.attrs.items()))
        ops.append((op.name, tuple(numbers.get(v, id(v)) for v in op.operands), tuple(r.type for r in op.results), attrs))
        for r in op.results:
            numbers[r] = len(numbers)
    return tuple(v.type for v in block.args), tuple(ops), tuple(numbers.get(v, id(v)) for v in block.outputs)


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    if isinstance(value, dict):
        return tuple(sorted((k, _hashable(v)) for k, v in value.items()))
    if isinstance(value, tuple):
        return tuple(_hashable(v) for v in value)
    return value


# ---- rules ---------------------------------------------------------------------------------------------------------

def _defined_by(v: Value, name: str) -> Op | None:
    return v.op if v.op is not None and v.op.name == name else None


def _identity(keep: Callable[[Op], bool] | None = None) -> Callable:
    """The operand, where the operation changes neither type nor, as far as `keep` tells, order."""
    def rule(p: _Pass, op: Op) -> Value | None:
        x = op.operands[0]
        return x if x.type == op.result.type and (keep is None or keep(op)) else None
    return rule


def _merge_reshape(p: _Pass, op: Op) -> Value | None:
    inner = _defined_by(op.operands[0], "reshape")
    return inner and p.make("reshape", [inner.operands[0]], op.result.type, op.location)


def _merge_transpose(p: _Pass, op: Op) -> Value | None:
    inner = _defined_by(op.operands[0], "transpose")
    if inner is None:
        return None
    first = inner.attrs["permutation"]
    return p.make("transpose", [inner.operands[0]], op.result.type, op.location,
                  permutation=tuple(first[i] for i in op.attrs["permutation"]))


def _transpose_as_reshape(p: _Pass, op: Op) -> Value | None:
    """Only axes of size 1 move."""
    order = [d for d in op.attrs["permutation"] if op.operands[0].shape[d] != 1]
    if order != sorted(order) or not op.operands[0].type.is_static:
        return None
    return p.make("reshape", [op.operands[0]], op.result.type, op.location)


def _other_product(p: _Pass, op: Op) -> Value | None:
    """The transpose of a product in this block that nothing else uses, as the product of its operands in the other order."""
    dot = _defined_by(op.operands[0], "dot_general")
    if dot is None or p.uses.get(dot.result) != 1 or p.seen.maps[0].get(_key(dot)) is not dot or not dot.result.type.is_static:
        return None
    d, (x, y), shape = dot.attrs["dot_dimension_numbers"], dot.operands, dot.shape
    batch = len(d.lhs_batching_dimensions)
    left = x.rank - len(d.lhs_contracting_dimensions)
    order = [*range(batch), *range(left, len(shape)), *range(batch, left)]
    if [i for i in op.attrs["permutation"] if shape[i] != 1] != [i for i in order if shape[i] != 1]:
        return None
    numbers = DotDims(d.rhs_batching_dimensions, d.lhs_batching_dimensions, d.rhs_contracting_dimensions,
                      d.lhs_contracting_dimensions)
    made = p.make("dot_general", [y, x], op.result.type.with_shape(tuple(shape[i] for i in order)), dot.location,
                  **{**dot.attrs, "dot_dimension_numbers": numbers})
    return p.make("reshape", [made], op.result.type, op.location)


def _merge_broadcast(p: _Pass, op: Op) -> Value | None:
    inner = _defined_by(op.operands[0], "broadcast_in_dim")
    if inner is None:
        return None
    dims = tuple(op.attrs["broadcast_dimensions"][d] for d in inner.attrs["broadcast_dimensions"])
    return p.make("broadcast_in_dim", [inner.operands[0]], op.result.type, op.location, broadcast_dimensions=dims)


def _broadcast_as_reshape(p: _Pass, op: Op) -> Value | None:
    x, dims = op.operands[0], op.attrs["broadcast_dimensions"]
    same_size = x.type.is_static and x.type.size == op.result.type.size and list(dims) == sorted(dims)
    return p.make("reshape", [x], op.result.type, op.location) if same_size else None


def _without_ones(p: _Pass, op: Op) -> Value | None:
    """Only axes that stay are broadcast: those of size 1 go before."""
    x, dims = op.operands[0], op.attrs["broadcast_dimensions"]
    kept = [i for i, n in enumerate(x.shape) if n != 1]
    if len(kept) == x.rank or not x.type.is_static:
        return None
    small = p.make("reshape", [x], x.type.with_shape(tuple(x.shape[i] for i in kept)), op.location)
    return p.make("broadcast_in_dim", [small], op.result.type, op.location,
                  broadcast_dimensions=tuple(dims[i] for i in kept))


def _choose(p: _Pass, op: Op) -> Value | None:
    chosen = op.operands[0].constant
    if chosen is not None and chosen.size and is_splat(chosen):
        return op.operands[1 if chosen[(0,) * chosen.ndim] else 2]
    return op.operands[1] if op.operands[1] is op.operands[2] else None


def _one_part(p: _Pass, op: Op) -> Value | None:
    parts = [v for v in op.operands if v.type.size]
    if not parts or len(parts) == len(op.operands):
        return op.operands[0] if len(op.operands) == 1 else None
    return p.make("concatenate", parts, op.result.type, op.location, **op.attrs)


def _branch(p: _Pass, op: Op) -> list[Value] | None:
    """`if` and `case` on a constant: the operations of the branch that is taken."""
    chosen = op.operands[0].constant
    if chosen is None:
        return None
    n = len(op.regions)
    index = (0 if chosen else 1) if op.name == "if" else (int(chosen) if 0 <= int(chosen) < n else n - 1)
    p.ops += op.regions[index].ops
    return op.regions[index].outputs


def _neutral(value: Any) -> Callable:
    """The other operand, where one is a constant that changes nothing.  value: from the dtype."""
    def rule(p: _Pass, op: Op) -> Value | None:
        for x, k in ((op.operands[0], op.operands[1]), (op.operands[1], op.operands[0])):
            known = k.constant
            if known is not None and known.size and is_splat(known) and known[(0,) * known.ndim] == value(known.dtype):
                return x
        return None
    return rule


def _masked(p: _Pass, op: Op) -> Value | None:
    """A mask of numbers times x: what the mask leaves out is 0, also where x is infinite or NaN, as in XLA on CPUs,
    which has no arithmetic of bfloat16."""
    for k, x in (op.operands, reversed(op.operands)):
        made = _defined_by(k, "convert")
        if made and made.operands[0].dtype.kind == "b" and x.dtype.kind in "fc":
            zero = p.add(_constant(np.broadcast_to(np.zeros((), x.dtype), op.shape), op.location))
            return p.make("select", [made.operands[0], x, zero], op.result.type, op.location)
    return None


def _never_negative(p: _Pass, op: Op) -> Value | None:
    """Unsigned numbers compared with 0."""
    answers = {"LT": (False, None), "GE": (True, None), "GT": (None, False), "LE": (None, True)}
    known = answers.get(op.attrs["comparison_direction"])
    if op.operands[0].dtype.kind != "u" or known is None:
        return None
    for k, answer in zip(reversed(op.operands), known):
        zero = k.constant
        if answer is not None and zero is not None and zero.size and is_splat(zero) and zero[(0,) * zero.ndim] == 0:
            return p.add(_constant(np.broadcast_to(np.bool_(answer), op.shape), op.location))
    return None


def _lowest(dtype: np.dtype) -> Any:
    return np.iinfo(dtype).min if dtype.kind in "iu" else False if dtype == np.bool_ else -np.inf


def _highest(dtype: np.dtype) -> Any:
    return np.iinfo(dtype).max if dtype.kind in "iu" else True if dtype == np.bool_ else np.inf


def _unchanged_part(p: _Pass, op: Op) -> Value | None:
    """real(complex(a, b)) and imag(complex(a, b))."""
    made = _defined_by(op.operands[0], "complex")
    return made and made.operands[0 if op.name == "real" else 1]


def _in_order(op: Op) -> bool: return list(op.attrs["permutation"]) == list(range(len(op.shape)))


_RULES: dict[str, tuple[Callable, ...]] = {
    "reshape": (_identity(), _merge_reshape),
    "broadcast_in_dim": (_identity(lambda op: list(op.attrs["broadcast_dimensions"]) == list(range(len(op.shape)))),
                         _merge_broadcast, _broadcast_as_reshape, _without_ones),
    "transpose": (_identity(_in_order), _merge_transpose, _transpose_as_reshape, _other_product),
    "convert": (_identity(),), "slice": (_identity(),), "concatenate": (_one_part,), "select": (_choose,),
    "reverse": (_identity(lambda op: all(op.shape[d] == 1 for d in op.attrs["dimensions"])),),
    "pad": (_identity(lambda op: not any((*op.attrs["edge_padding_low"], *op.attrs["edge_padding_high"]))),),
    "maximum": (_neutral(_lowest),), "minimum": (_neutral(_highest),), "multiply": (_neutral(lambda dtype: 1), _masked),
    "compare": (_never_negative,),
    "real": (_unchanged_part,), "imag": (_unchanged_part,), "if": (_branch,), "case": (_branch,),
}


def uses(blocks: Iterable[Block]) -> dict[Value, int]:
    """How often each value is used, in these blocks and those nested in them."""
    count: dict[Value, int] = {}
    for block in blocks:
        for op in block.walk():
            for v in op.operands:
                count[v] = count.get(v, 0) + 1
            for region in op.regions:
                for v in region.outputs:
                    count[v] = count.get(v, 0) + 1
        for v in block.outputs:
            count[v] = count.get(v, 0) + 1
    return count
