"""Sharding rules: which dimensions of operands and results are one thing to the partitioner.

A rule names the dimensions by factors, `i j, j k -> i k`.  A dimension that is a product of several factors is written
`(a b)`, and `...` stands for any number of leading dimensions (`...1` for those of another group).
"""
from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

BATCHING = "\u2026"
_FACTOR = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_BATCH = re.compile(BATCHING + r"\d*")
_TOKEN = re.compile(rf"\s*({_BATCH.pattern}|{_FACTOR.pattern}|[(),])")


def _check(factor: Any) -> None:
    if not isinstance(factor, str) or not _FACTOR.fullmatch(factor):
        raise ValueError(f"{factor!r} is not the name of a factor: a letter, then letters, digits or underscores")


def _is_batching(dim: Any) -> bool: return isinstance(dim, str) and bool(_BATCH.fullmatch(dim))


class CompoundFactor(tuple):
    """A dimension that is the product of several factors, major first.  Raises ValueError for fewer than two."""

    def __new__(cls, *factors: str):
        if len(factors) < 2:
            raise ValueError(f"A compound factor should contain at least two factors, got {factors}")
        for f in factors:
            _check(f)
        return super().__new__(cls, factors)


class ArrayMapping(tuple):
    """The dimensions of one operand or result: factors, CompoundFactors; the first may be BATCHING."""

    def __new__(cls, *dims: Any):
        for i, d in enumerate(dims):
            if isinstance(d, CompoundFactor) or i == 0 and _is_batching(d):
                continue
            if _is_batching(d):
                raise ValueError("Ellipsis can only be used at the beginning of a dimension")
            _check(d)
        return super().__new__(cls, dims)


class SdyShardingRule:
    """The rule of one operation.

    operand_mappings, result_mappings: an ArrayMapping each.  factor_sizes: of the factors that occur only in compound
    ones.  Factors are passed through, unless they are among the reduction_factors (contracted: partial results are
    summed), need_replication_factors (must not be split) or permutation_factors.  Raises ValueError."""

    def __init__(self, operand_mappings: Sequence, result_mappings: Sequence, *, reduction_factors: tuple = (),
                 need_replication_factors: tuple = (), permutation_factors: tuple = (), **factor_sizes: int):
        self.operand_mappings = tuple(ArrayMapping(*m) for m in operand_mappings)
        self.result_mappings = tuple(ArrayMapping(*m) for m in result_mappings)
        self.factor_sizes = factor_sizes
        self.reduction_factors, self.need_replication_factors = reduction_factors, need_replication_factors
        self.permutation_factors = permutation_factors
        self._check_sizes()
        self._check_kinds()

    @property
    def mappings(self) -> tuple: return self.operand_mappings + self.result_mappings

    def _factors(self) -> dict[str, bool]:
        """factor -> whether it is a whole dimension somewhere."""
        found: dict[str, bool] = {}
        for dim in (d for m in self.mappings for d in m):
            if isinstance(dim, str):
                found[dim] = True
            else:
                found.update({f: found.get(f, False) for f in dim})
        return found

    def _check_sizes(self) -> None:
        factors = self._factors()
        if unused := self.factor_sizes.keys() - factors.keys():
            raise ValueError(f"Factor {min(unused)} is not used in the rule, but size is provided")
        for f, whole in factors.items():
            if whole == (f in self.factor_sizes):
                raise ValueError(f"Factor {f} represents a whole dimension; do not specify its size" if whole else
                                 f"Factor {f} is only used in compound factors; must specify its size")

    def _check_kinds(self) -> None:
        factors, seen = self._factors(), set()
        for kind, given in self.kinds().items():
            if not isinstance(given, tuple):
                raise ValueError(f"{kind} must be a tuple of factors, got {given!r}")
            for f in given:
                if f not in factors:
                    raise ValueError(f"Factor {f} in {kind} is not used in the rule")
                if f in seen:
                    raise ValueError(f"Factor {f} occurs twice among the factors with a kind ({', '.join(self.kinds())})")
                seen.add(f)

    def kinds(self) -> dict[str, tuple]:
        return {"reduction_factors": self.reduction_factors, "need_replication_factors": self.need_replication_factors,
                "permutation_factors": self.permutation_factors}

    def _key(self) -> tuple:
        return self.mappings, len(self.operand_mappings), tuple(sorted(self.factor_sizes.items())), *self.kinds().values()

    def __eq__(self, other): return isinstance(other, SdyShardingRule) and self._key() == other._key()
    def __hash__(self): return hash(self._key())

    def __str__(self):
        kinds = "".join(f" {k}={v}" for k, v in self.kinds().items() if v)
        return f"SdyShardingRule({self.operand_mappings}, {self.result_mappings}, {self.factor_sizes}{kinds})"


# ---- the notation ----------------------------------------------------------------------------------------------------

def parse_rule(rule: str, **options: Any) -> SdyShardingRule:
    """The rule that a text describes.  options: of SdyShardingRule.  Raises ValueError."""
    if BATCHING in rule or "." in rule.replace("...", ""):
        raise ValueError(f"sharding rule {rule!r}: write leading dimensions as `...`")
    sides = rule.replace("...", BATCHING).split("->")
    if len(sides) != 2:
        raise ValueError(f"There is no -> in rule: {rule!r}" if len(sides) == 1 else f"More than one -> in rule: {rule!r}")
    return SdyShardingRule(*(_parse_side(s, rule) for s in sides), **options)


def _parse_side(text: str, rule: str) -> tuple[ArrayMapping, ...]:
    arrays: list[list] = [[]]
    group: list[str] | None = None
    for token in _tokens(text, rule):
        if token in "()":
            if (token == "(") != (group is None):
                raise ValueError(f"Brackets are nested or not balanced in rule: {rule!r}")
            if group is not None:
                arrays[-1].append(CompoundFactor(*group))
            group = [] if group is None else None
        elif token == "," and group is None:
            arrays.append([])
        else:
            (arrays[-1] if group is None else group).append(token)
    if group is not None:
        raise ValueError(f"Brackets are not balanced in rule: {rule!r}")
    return tuple(ArrayMapping(*dims) for dims in arrays)


def _tokens(text: str, rule: str) -> list[str]:
    found, at = [], 0
    while text[at:].strip():
        m = _TOKEN.match(text, at)
        if m is None:
            raise ValueError(f"Unknown character {text[at:].strip()[0]!r} in rule: {rule!r}")
        found.append(m[1])
        at = m.end()
    return found


# ---- for Shardy --------------------------------------------------------------------------------------------------------

_SHOWN = (("reduction", "reduction_factors"), ("need_replication", "need_replication_factors"),
          ("permutation", "permutation_factors"))


def rule_text(rule: SdyShardingRule, operands: Sequence[tuple[int, ...]], results: Sequence[tuple[int, ...]]) -> str:
    """`#sdy.op_sharding_rule<...>` for operands and results of these shapes.  Raises ValueError where they do not fit."""
    for what, mappings, shapes in (("operands", rule.operand_mappings, operands), ("results", rule.result_mappings, results)):
        if len(mappings) != len(shapes):
            raise ValueError(f"Sharding rule has {len(mappings)} {what}, but the operation has {len(shapes)} {what}")
    expanded = _expand(rule, [*operands, *results])
    sizes = _sizes(rule, expanded, [*operands, *results])
    names = {f: _symbol(i) for i, f in enumerate(sizes)}
    texts = ["[" + ", ".join("".join(names[f] for f in dim) for dim in dims) + "]" for dims in expanded]
    shown = f" {{{', '.join(f'{names[f]}={n}' for f, n in sizes.items())}}}" if sizes else ""
    kinds = "".join(f" {word}={{{', '.join(names[f] for f in getattr(rule, kind))}}}"
                    for word, kind in _SHOWN if getattr(rule, kind))
    n = len(operands)
    return f"#sdy.op_sharding_rule<({', '.join(texts[:n])})->({', '.join(texts[n:])}){shown}{kinds}, custom>"


def _symbol(i: int) -> str:
    """Shardy's name of the factor with this number: i to z, then z_1, z_2, ..."""
    return chr(ord("i") + i) if i < 18 else f"z_{i - 17}"


def _expand(rule: SdyShardingRule, shapes: Sequence[tuple[int, ...]]) -> list[list[tuple]]:
    """For each array and dimension its factors; leading dimensions of `...` are factors (group, number)."""
    ranks: dict[str, int] = {}
    out = []
    for m, shape in zip(rule.mappings, shapes):
        batched = bool(m) and _is_batching(m[0])
        own = [d if isinstance(d, CompoundFactor) else (d,) for d in (m[1:] if batched else m)]
        extra = len(shape) - len(own)
        if extra < 0 or extra and not batched:
            raise ValueError(f"Sharding rule {rule}: {m} has rank {len(own)}, but the array has rank {len(shape)}")
        group = m[0].removeprefix(BATCHING) or "0" if batched else ""
        if batched and ranks.setdefault(group, extra) != extra:
            raise ValueError(f"Sharding rule {rule}: ellipsis represents different numbers of leading dimensions")
        out.append([((group, j),) for j in range(extra)] + own)
    return out


def _sizes(rule: SdyShardingRule, expanded: list[list[tuple]], shapes: Sequence[tuple[int, ...]]) -> dict[Any, int]:
    """factor -> size, in order of appearance; of several sizes of one factor the smallest."""
    sizes: dict[Any, int] = {}
    for dims, shape in zip(expanded, shapes):
        for dim, n in zip(dims, shape):
            for f in dim:
                if isinstance(f, tuple) and sizes.get(f, n) != n:
                    raise ValueError(f"Sharding rule {rule}: batching dimension {f[1]} has two sizes, {sizes[f]} and {n}")
                size = rule.factor_sizes[f] if f in rule.factor_sizes else n if len(dim) == 1 else None
                sizes[f] = min(s for s in (size, sizes.get(f), 1 << 62) if s is not None)
    for dims, shape in zip(expanded, shapes):
        for dim, n in zip(dims, shape):
            total = 1
            for f in dim:
                total *= sizes[f]
            if len(dim) > 1 and total != n:
                raise ValueError(f"Sharding rule {rule}: a dimension of size {n} is not the product {total} of {dim}")
    return sizes
