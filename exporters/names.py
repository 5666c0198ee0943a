"""The names of a model's inputs and outputs."""
from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from aot.errors import AotError

from . import stablehlo


def one_each(kind: str, wanted: Sequence[str], count: int) -> list[str]:
    """The names of `count` inputs or outputs.  Raises AotError where there are more or fewer of them."""
    if len(wanted) == count:
        return [*wanted]
    hint = ("jit leaves out arguments that no result needs: keep_unused=True keeps them" if kind == "input" else
            "give one for each array of the result, in flat order")
    raise AotError(f"{len(wanted)} {kind} names for {count} {kind}s of the program", hint=hint)


class Names:
    """Names of inputs and outputs: `params['w'][0]` becomes `params.w.0`; each is used once."""

    def __init__(self, used: Iterable[str] = ()) -> None:
        self.used = set(used)

    def __call__(self, wanted: str, default: str, type: stablehlo.Type) -> tuple[str, ...]:
        """The name of a value, or of its two parts."""
        name = re.sub(r"\W+", ".", wanted.replace("'", "").replace('"', "")).strip(".") or default
        while name in self.used or f"{name}.real" in self.used or re.fullmatch(r"_[a-z]+\d+", name):   # as intermediate values
            name += "_"
        parts = (f"{name}.real", f"{name}.imag") if type.dtype.kind == "c" else (name,)
        self.used.update(parts)
        return parts
