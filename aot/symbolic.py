"""Sizes that are not known, for `eval_shape`, and sizes as text for `aot.export`.

A symbolic size is known by what it is at a few sample sizes of its variables.  `eval_shape` evaluates the function at each of
these, and says what the sizes of its results are: a function of other shapes than the samples', at sizes that it treats
otherwise (`if x.shape[0] > 5000`), is not seen.  Programs have known sizes: everything else refuses symbolic ones."""
from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from aot.errors import InconclusiveDimensionOperation
from aot.trace import ShapeDtypeStruct, typeof
from aot.tree_util import broadcast_prefix, tree_flatten

#: where the sample sizes of a variable are looked for: large enough for windows, and far apart
_STARTS = (83, 211, 1009)
_PRIMES = [n for n in range(2, 2000) if all(n % d for d in range(2, int(n ** .5) + 1))]

_FUNCTIONS: dict[str, Callable] = {
    "max": lambda a, b: _of(max, "max({}, {})", a, b), "min": lambda a, b: _of(min, "min({}, {})", a, b),
    "mod": lambda a, b: _of(operator.mod, "mod({}, {})", a, b),
    "floordiv": lambda a, b: _of(operator.floordiv, "floordiv({}, {})", a, b)}
_OPERATORS: dict[type, Callable] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv, ast.Pow: operator.pow}
_COMPARISONS: dict[type, Callable] = {
    ast.GtE: operator.ge, ast.LtE: operator.le, ast.Gt: operator.gt, ast.Lt: operator.lt, ast.Eq: operator.eq}


class SymbolicScope:
    """Variables that shapes share, and what holds for them: texts like "a >= 2", "mod(b, 8) == 0" or "b <= 2*a"."""

    def __init__(self, constraints_str: Sequence[str] = ()):
        self.variables: dict[str, SymbolicDim] = {}
        self.lowest: dict[str, int] = {}        # the least size of a variable, where a constraint says so
        self.constraints: list[tuple[set[str], Callable[[dict[str, int]], bool]]] = []
        for text in constraints_str:
            self._add(text)

    def _add(self, text: str) -> None:
        match _parsed(text):
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
                pass
            case _:
                raise ValueError(f"constraint {text!r} is no comparison. hint: write it like 'a >= 2' or 'mod(a, 8) == 0'")
        match left, op, right:
            case ast.Name(id=name), ast.GtE() | ast.Gt(), ast.Constant(value=int() as n):
                self.lowest[name] = max(n + (type(op) is ast.Gt), self.lowest.get(name, 1))
        names = {n.id for n in ast.walk(ast.Tuple([left, right])) if isinstance(n, ast.Name)} - _FUNCTIONS.keys()
        compare = _COMPARISONS[type(op)]
        self.constraints.append((names, lambda at: compare(_value(left, at.__getitem__), _value(right, at.__getitem__))))

    def variable(self, name: str) -> SymbolicDim:
        """The size with that name.  ValueError if no size satisfies the constraints."""
        if name not in self.variables:
            values: list[int] = []
            for i, start in enumerate(_STARTS):
                at = {n: d.values[i] for n, d in self.variables.items()}
                fits = [holds for names, holds in self.constraints if name in names and names <= {name, *at}]
                known = {*at.values(), *values}
                for n in _candidates(start, known):
                    if all(holds({**at, name: n}) for holds in fits):
                        values.append(n)
                        break
                else:
                    raise ValueError(f"no size {name!r} up to 4096 satisfies the constraints of its scope. "
                                     "hint: they contradict each other, or are only true of larger sizes")
            self.variables[name] = SymbolicDim(self, tuple(values), name, {name: 1})
        return self.variables[name]


def _candidates(start: int, known: set[int]) -> Iterable[int]:
    """Sizes to try: primes that are no other's sample, from `start` on, then any."""
    yield from (p for p in _PRIMES if p >= start and p not in known)
    yield from (n for n in range(4096, 0, -1) if n not in known)
    yield from known


class SymbolicDim:
    """A size of a shape that is not known.  Arithmetic gives sizes; a comparison that is not the same for all is an error.

    values: what it is at the samples of its scope; terms: variable (or "", the constant) -> factor, where it is such a sum."""
    __slots__ = ("scope", "values", "text", "terms")

    def __init__(self, scope: SymbolicScope, values: tuple[int, ...], text: str, terms: dict[str, int] | None = None):
        self.scope, self.values, self.text, self.terms = scope, values, text, terms

    def __add__(self, other: Any) -> Any: return _sum(self, other, 1)
    def __sub__(self, other: Any) -> Any: return _sum(self, other, -1)
    def __mul__(self, other: Any) -> Any: return _product(self, other)
    def __neg__(self) -> Any: return _product(self, -1)
    def __floordiv__(self, other: Any) -> Any: return self if other == 1 else _FUNCTIONS["floordiv"](self, other)
    def __mod__(self, other: Any) -> Any: return _FUNCTIONS["mod"](self, other)
    def __pow__(self, n: Any) -> Any: return _of(operator.pow, "{}^{}" if self.text.isidentifier() else "({})^{}", self, n)
    def __rsub__(self, other: Any) -> Any: return -self + other
    def __rfloordiv__(self, other: Any) -> Any: return _FUNCTIONS["floordiv"](other, self)
    def __rmod__(self, other: Any) -> Any: return _FUNCTIONS["mod"](other, self)
    def __divmod__(self, other: Any) -> Any: return self // other, self % other
    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, SymbolicDim) and other.scope is self.scope and other.values == self.values

    def __hash__(self) -> int: return hash(self.values)
    def __ge__(self, other: Any) -> bool: return self._at_least(other, 0)
    def __gt__(self, other: Any) -> bool: return self._at_least(other, 1)
    def __le__(self, other: Any) -> bool: return not self._at_least(other, 1)
    def __lt__(self, other: Any) -> bool: return not self._at_least(other, 0)

    def _at_least(self, other: Any, by: int) -> bool:
        """Whether it is at least `other` + by, if that is so for all sizes or for none."""
        difference = self - other
        if not isinstance(difference, SymbolicDim):
            return difference >= by
        terms = dict(difference.terms or {})
        constant = terms.pop("", 0)
        end = constant + sum(f * self.scope.lowest.get(n, 1) for n, f in terms.items())
        if terms and all(f > 0 for f in terms.values()) and end >= by:
            return True
        if terms and all(f < 0 for f in terms.values()) and end < by:
            return False
        raise InconclusiveDimensionOperation(
            f"whether {self} is at least {other}{f' + {by}' if by else ''} depends on the sizes. hint: say what holds for "
            "them, constraints=('a >= 2',) of symbolic_shape")

    def __index__(self) -> int: raise TypeError(str(_refusal(str(self))))
    __int__ = __float__ = __index__

    def __repr__(self) -> str: return self.text


def _of(f: Callable[[int, int], int], text: str, *parts: Any, terms: dict[str, int] | None = None) -> Any:
    """f of sizes, some of them symbolic: a number if it is one for all samples."""
    scope = next((p.scope for p in parts if isinstance(p, SymbolicDim)), None)
    if scope is None:
        return f(*parts)
    if any(isinstance(p, SymbolicDim) and p.scope is not scope for p in parts):
        raise ValueError(f"sizes of two scopes: {', '.join(map(str, parts))}. hint: give symbolic_shape the scope of the other")
    columns = [p.values if isinstance(p, SymbolicDim) else (operator.index(p),) * len(_STARTS) for p in parts]
    values = tuple(f(*row) for row in zip(*columns))
    return values[0] if len(set(values)) == 1 else SymbolicDim(scope, values, text.format(*parts), terms)


def _terms(x: Any) -> dict[str, int] | None: return x.terms if isinstance(x, SymbolicDim) else {"": operator.index(x)}


def _sum(a: Any, b: Any, sign: int) -> Any:
    if (s := _terms(a)) is None or (t := _terms(b)) is None:
        return _of(lambda x, y: x + sign * y, "{} + {}" if sign > 0 else "{} - ({})", a, b)
    total = {n: f for n in [*s, *t] if (f := s.get(n, 0) + sign * t.get(n, 0))}
    return _of(lambda x, y: x + sign * y, _written(total), a, b, terms=total)


def _product(a: Any, b: Any) -> Any:
    if not isinstance(b, SymbolicDim) and isinstance(a.terms, dict):
        terms = {n: f * b for n, f in a.terms.items() if f * b}
        return _of(operator.mul, _written(terms), a, b, terms=terms)
    if not isinstance(b, SymbolicDim):
        a, b = (b, a) if b != 1 else (a, b)
    return a if b == 1 else _of(operator.mul, "*".join("({})" if " " in str(x) else "{}" for x in (a, b)), a, b)


def _written(terms: dict[str, int]) -> str:
    in_order = sorted(terms.items(), key=lambda t: (not t[0], t[0]))       # the constant last
    parts = [str(f) if not n else n if f == 1 else f"-{n}" if f == -1 else f"{f}*{n}" for n, f in in_order]
    return " + ".join(parts).replace("+ -", "- ") or "0"


def _refusal(what: str) -> NotImplementedError:
    return NotImplementedError(f"symbolic dimensions ({what}) are only for eval_shape: every program has known sizes. hint: "
                               "export one function for each size; several signatures of a function in aot.toml make an "
                               "artifact that takes batches of any size (docs/loader.md)")


# ---- text ------------------------------------------------------------------------------------------------------------

def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text.replace("^", "**").strip(), mode="eval").body
    except SyntaxError as err:
        raise ValueError(f"{text!r} is no size: {err.msg}. hint: write sizes like 'a', '2*a + 1' or 'floordiv(a, 2)'") from None


def _value(node: ast.expr, look_up: Callable[[str], Any]) -> Any:
    """The size that an expression says."""
    match node:
        case ast.Constant(value=int() as n):
            return n
        case ast.Name(id=name):
            return look_up(name)
        case ast.UnaryOp(op=ast.USub(), operand=x):
            return -_value(x, look_up)
        case ast.BinOp(left=a, op=op, right=b) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(a, look_up), _value(b, look_up))
        case ast.Call(func=ast.Name(id=name), args=[a, b]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](_value(a, look_up), _value(b, look_up))
    raise ValueError(f"{ast.unparse(node)!r} is no size. hint: write sizes like 'a', '2*a + 1' or 'floordiv(a, 2)'")


def is_symbolic_dim(p: Any) -> bool:
    """Whether a size is an unknown one."""
    return isinstance(p, SymbolicDim)


def symbolic_shape(shape_spec: str | None, *, constraints: Sequence[str] = (), scope: SymbolicScope | None = None,
                   like: Sequence[int | None] | None = None) -> tuple[Any, ...]:
    """The shape that a text like "a, 2*b, 3" says; `_` stands for the size in `like`, `...` for all further ones.

    Its names are sizes that are not known, for `eval_shape`.  ValueError where `like` does not fit."""
    if scope is None:
        scope = SymbolicScope(constraints)
    elif constraints:
        raise ValueError("constraints are given with a scope. hint: give them to SymbolicScope")
    text = (shape_spec if shape_spec is not None else "...").strip()
    text = text[1:-1] if text[:1] == "(" and text[-1:] == ")" else text
    tuple_of = _parsed(f"({text.rstrip(', ')},)") if text.strip(", ") else ast.Tuple([])
    parts = tuple_of.elts if isinstance(tuple_of, ast.Tuple) else [tuple_of]
    given = None if like is None else tuple(like)
    blank, rest = ast.Name("_"), [isinstance(p, ast.Constant) and p.value is ... for p in parts]
    if rest[-1:] == [True]:
        parts = [*parts[:-1], *[blank] * (len(given or ()) - len(parts) + 1)]
    blanks = [isinstance(p, ast.Name) and p.id == "_" for p in parts]
    if any(blanks) and (given is None or len(given) != len(parts) or any(rest[:-1])) or given and len(given) != len(parts):
        raise ValueError(f"shape {shape_spec!r} does not fit {given}. hint: `_` and `...` stand for sizes of an array")
    sizes = [like[i] if b and like else _value(p, scope.variable) for i, (p, b) in enumerate(zip(parts, blanks))]
    if wrong := [(a, b) for a, b in zip(sizes, given or ()) if b is not None and not is_symbolic_dim(a) and a != b]:
        raise ValueError(f"shape {shape_spec!r} does not fit {given}: {wrong[0][0]} is not {wrong[0][1]}")
    return tuple(n for n in sizes if n is not None)


def symbolic_args_specs(args: Any, shapes_specs: Any, constraints: Sequence[str] = (), scope: SymbolicScope | None = None
                        ) -> Any:
    """ShapeDtypeStructs in the structure of args, with the shapes that shapes_specs (a prefix of it) says, as symbolic_shape
    reads them."""
    leaves, tree = tree_flatten(args)
    specs = broadcast_prefix(shapes_specs, args, is_leaf=lambda x: x is None, name="symbolic_args_specs shapes_specs")
    avals = [typeof(x) for x in leaves]
    scope = SymbolicScope(constraints) if scope is None else scope
    return tree.unflatten([ShapeDtypeStruct(symbolic_shape(s, scope=scope, like=a.shape), a.dtype)
                           for s, a in zip(specs, avals)])


# ---- shapes of functions ---------------------------------------------------------------------------------------------

def refuse_symbolic(shape: Sequence[Any]) -> None:
    """NotImplementedError for a shape with unknown sizes."""
    if found := [d for d in shape if isinstance(d, SymbolicDim)]:
        raise _refusal(", ".join(map(str, found)))


def evaluated(leaves: Sequence[Any], evaluate: Callable[[list], Any]) -> Any:
    """What evaluate(leaves) gives, a tree of ShapeDtypeStructs, where leaves have symbolic sizes."""
    dims = list(dict.fromkeys(d for x in leaves if type(x) is ShapeDtypeStruct for d in x.shape if isinstance(d, SymbolicDim)))
    scope, *others = {d.scope for d in dims}
    if others:
        raise ValueError("symbolic sizes of several scopes. hint: give symbolic_shape the scope of the first")
    found = []
    for i in range(len(_STARTS)):
        known = [x.update(shape=tuple(d.values[i] if isinstance(d, SymbolicDim) else d for d in x.shape))
                 if type(x) is ShapeDtypeStruct else x for x in leaves]
        try:
            found.append(tree_flatten(evaluate(known)))
        except Exception as err:
            err.add_note("with " + ", ".join(f"{n} = {d.values[i]}" for n, d in scope.variables.items()) +
                         ", as a sample of the symbolic sizes")
            raise
    (outs, tree), *more = found
    if any(t != tree for _, t in more) or any([(len(x.shape), x.dtype) for x in xs] != [(len(x.shape), x.dtype) for x in outs]
                                              for xs, _ in more):
        raise _refusal(f"the structure, ranks or dtypes of the results depend on {', '.join(map(str, dims))}")
    columns = zip(*(xs for xs, _ in found))
    return tree.unflatten([col[0].update(shape=tuple(_recognised(scope, dims, v) for v in zip(*(x.shape for x in col))))
                           for col in columns])


def _recognised(scope: SymbolicScope, dims: Sequence[SymbolicDim], values: tuple[int, ...]) -> Any:
    """The size that is `values` at the samples: a number, what is made of dims in a simple way, or a function `f(a, b)`."""
    if len(set(values)) == 1:
        return values[0]
    for found in _made_of([*dims, *scope.variables.values()], values):
        if isinstance(found, SymbolicDim) and found.values == values:
            return found
    return SymbolicDim(scope, values, f"f({', '.join(scope.variables)})")


def _made_of(dims: Sequence[SymbolicDim], values: tuple[int, ...]) -> Iterable[Any]:
    """Sizes that may be `values`: n*d + c, floordiv(d + c, n), then sums and products of two."""
    rise = values[1] - values[0]
    for d in dims:
        step = d.values[1] - d.values[0]
        if step and not rise % step:
            yield d * (rise // step) + (values[0] - rise // step * d.values[0])
        elif rise and (n := round(step / rise)):
            first = values[0] * n - d.values[0]
            yield from ((d + c) // n for c in range(first, first + abs(n)))
    for a, b in itertools.product(dims, dims):
        yield a + b
        yield a * b * (values[0] // (a * b).values[0])
