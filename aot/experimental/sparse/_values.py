"""Values of functions that are made sparse, as flat lists of arrays: for jaxprs of loops and branches."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from aot.experimental.sparse._base import JAXSparse
from aot.experimental.sparse._bcoo import BCOO
from aot.experimental.sparse.bcsr import BCSR
from aot.experimental.sparse.util import SparseInfo
from aot.trace import ShapedArray, typeof

Array = Any
SPARSE = (BCOO, BCSR)


class Form(NamedTuple):
    """What a value is, and which of the flat arrays it consists of.  Arrays of indices that are shared come once."""

    kind: Any                       # None for a dense array
    info: SparseInfo | None
    places: tuple[int, ...]


def is_sparse(x: Any) -> bool: return isinstance(x, SPARSE)


def aval_of(x: Any) -> ShapedArray:
    """The type of the dense array that a value stands for."""
    return ShapedArray(x.shape, typeof(x.data).dtype, typeof(x.data).weak_type) if is_sparse(x) else typeof(x)


def flatten(values: Sequence) -> tuple[list, tuple[Form, ...]]:
    """-> (arrays, what they make up)."""
    arrays: list = []
    shared: dict[int, tuple[int, ...]] = {}
    forms = []
    for x in values:
        if not is_sparse(x):
            forms.append(Form(None, None, (len(arrays),)))
            arrays.append(x)
            continue
        data, *where = x._bufs
        places = shared.get(id(x._pattern))
        start = len(arrays)
        arrays.append(data)
        if places is None:
            places = shared[id(x._pattern)] = tuple(range(start + 1, start + 1 + len(where)))
            arrays += where
        forms.append(Form(type(x), x._info, (start, *places)))
    return arrays, tuple(forms)


def unflatten(forms: Sequence[Form], arrays: Sequence) -> list:
    """The values of these arrays; those that share indices are known to."""
    patterns: dict[tuple, Any] = {}
    out = []
    for form in forms:
        if form.kind is None:
            out.append(arrays[form.places[0]])
            continue
        assert form.info is not None
        x = form.kind.tree_unflatten(form.info._asdict(), [arrays[i] for i in form.places])
        x._pattern = patterns.setdefault(form.places[1:], x._pattern)
        out.append(x)
    return out


def separate(values: Sequence) -> list:
    """The values with indices that are not known to be shared."""
    return [type(x).tree_unflatten(x._info._asdict(), x._bufs) if is_sparse(x) else x for x in values]


def supported(x: Any) -> Any:
    """x, unless it has a format that sparsify does not know (NotImplementedError)."""
    if isinstance(x, JAXSparse) and not is_sparse(x):
        raise NotImplementedError(f"sparsify takes BCOO and BCSR arrays, got {x!r}. hint: BCOO.fromdense(x.todense())")
    return x
